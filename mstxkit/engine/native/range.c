/* A range's life: it begins, is on its track, in its stage and told to sinks, and ends as a record. */
#include "range.h"

#include "attributes.h"
#include "banks.h"
#include "clock.h"
#include "live.h"
#include "sinks.h"
#include "stages.h"
#include "tracks.h"

static COLD void begin_in_sinks(Range *r, uint32_t on)
{
    r->forks = g.forks;
    for (int k = 0; k < SINK_COUNT; k++)
        if (on & (uint32_t)(ON_SINK_0 << k) && g_sinks[k].begin) {
            r->tokens[k] = sink_begin(k, r->site, r->stream, &r->ends[k]);
            if (r->tokens[k]) { r->sunk |= (uint8_t)(1 << k); r->rare = 1; }
        }
}

static COLD void end_in_sinks(Range *r)
{
    for (int k = SINK_COUNT - 1; k >= 0; k--)
        if (r->sunk & (1 << k)) {
            PyObject *token = r->tokens[k], *end = r->ends[k];
            r->tokens[k] = r->ends[k] = NULL;
            if (r->forks == g.forks) sink_end(k, r->site, token, end);
            else { Py_DECREF(token); Py_DECREF(end); } /* it is the parent's */
        }
    r->sunk = 0;
}

static inline void link_range(Range *r, Track *t)
{
    r->track = t;
    r->parent = t->top;
    t->top = r;
    t->depth++;
}

static inline void unlink_range(Range *r)
{
    Track *t = r->track;
    if (LIKELY(t->top == r)) t->top = r->parent;
    else {
        Range *above = t->top;
        while (above && above->parent != r) above = above->parent;
        if (above) above->parent = r->parent;
    }
    if (--t->depth == 0) left_idle(t);
    r->track = NULL;
}

/* Sinks are told before the clock at begin, so that their time is outside the range. */
static inline void tell_sinks(Range *r, uint32_t on)
{
    if (UNLIKELY(on & ON_SINKS)) begin_in_sinks(r, on);
    if (UNLIKELY(on & ON_DIRECT)) {
        r->direct = g_direct;
        r->direct_id = direct_begin(g_direct, r->site, &r->direct_domain);
        r->forks = g.forks;
        r->rare = 1;
    }
}

static inline void begin_recorded(Range *r, Track *t)
{
    r->seq = g.seq;
    if (UNLIKELY(!is_defined(r))) define_for(r);
    r->generation = g.generation;
    uint64_t w2 = r->stage | (uint64_t)r->depth << 16 | (uint64_t)t->thread->os_id << 32;
    uint64_t start = r->start = now();
    r->slot = open_slot(start, r->w1, w2, r);
}

static inline uint64_t first_word(const Site *s, const Track *t)
{
    uint32_t step = t->step == NO_STEP ? g.step : t->step;
    return s->id | (uint64_t)t->id << 16 | (uint64_t)step << 32;
}

static inline void place_range(Range *r, Site *s, Track *t)
{
    r->depth = t->depth > 255 ? 255 : (uint8_t)t->depth;
    r->outer_stage = t->stage;
    r->stage = s->own_stage ? s->own_stage : t->stage;
    r->w1 = first_word(s, t);
    r->home = t;
    link_range(r, t);
}

static HOT inline void begin_plain(Range *r, Site *s, uint32_t on)
{
    r->begun = OPEN;
    tell_sinks(r, on);
    r->recorded = (on & ON_RECORD) != 0;
    r->start = 0;
    if (UNLIKELY(!r->recorded && !s->own_stage)) return; /* only sinks see it: no clock, no track */
    Track *t = current_track();
    if (UNLIKELY(!t)) { r->recorded = 0; return; }
    place_range(r, s, t);
    if (LIKELY(r->recorded)) begin_recorded(r, t);
    else r->start = now();
    if (UNLIKELY(s->own_stage)) stage_begins(r, t);
}

static inline uint64_t third_word(const Range *r, uint64_t end, int failed)
{
    return duration_bits(end - r->start) | (uint64_t)r->depth << 40 | (failed ? FLAG_ERROR : 0);
}

/* With one text as its only attribute, which the active bank has already: the role of patched calls. Runs no Python. 0:
 * it is not that. */
static inline int is_written_with_role(Range *r, uint64_t end, int failed)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!r->extra || PyDict_GET_SIZE(r->extra) != 1 || r->added || r->settled || r->inline_count || r->busy) return 0;
    if (!PyDict_Next(r->extra, &at, &key, &value)) return 0;
    uint64_t seq = g.seq;
    uint32_t value_id = known_text_id(value), key_id = known_text_id(key); /* of exact texts, all that it knows */
    if (!value_id || !key_id) return 0;
    if (UNLIKELY(!ready_for(r, 2, end))) return 1; /* dropped, and counted */
    if (UNLIKELY(g.seq != seq)) return 0; /* that took another bank */
    store_record(g.count + 1, value_id, key_id | (uint64_t)TYPE_TEXT << 32, (uint64_t)KIND_ATTRIBUTE << KIND_SHIFT);
    store_record(g.count, since_origin(end) | (uint64_t)r->stage << 48, r->w1, third_word(r, end, failed));
    publish_count(g.count + 2);
    return 1;
}

static inline void write_range(Range *r, uint64_t end, int failed)
{
    uint64_t w2 = third_word(r, end, failed);
    if (UNLIKELY(r->rare && (r->inline_count || r->extra || r->added || r->busy))) {
        write_with_attributes(r, end, w2, 0);
        return;
    }
    if (UNLIKELY(!ready_for(r, 1, end))) return;
    store_record(g.count, since_origin(end) | (uint64_t)r->stage << 48, r->w1, w2);
    publish_count(g.count + 1);
}

/* What belonged to this entry only is gone. */
static inline void forget_entry(Range *r)
{
    r->busy = 0;
    Py_CLEAR(r->context);
    Py_CLEAR(r->added);
    Py_CLEAR(r->settled);
    r->rare = r->inline_count || r->extra || r->stage_key || r->domain || r->stream;
    r->unsure &= r->rare;
    r->begun = r->inner ? ONLY_INNER : 0;
}

static inline void mark_ending(Range *r) { r->begun = r->rare ? ENDING : 0; }

static inline int is_written(const Range *r) { return LIKELY(r->recorded) && LIKELY(r->generation == g.generation); }

/* Runs Python, and with it others, who may end or enter the same range, which is open still. 0: somebody did, and
 * the end that was asked for is not that of this entry. */
static COLD int settle(Range *r, uint64_t *at)
{
    PyObject *settled = settled_attributes(r, at);
    int is_here = r->begun == OPEN && !r->inner;
    if (is_here) Py_XSETREF(r->settled, settled);
    else Py_DECREF(settled);
    if (*at < r->start) *at = now();
    return is_here;
}

/* At an instant that was now; `is_done`: its record is written. */
static inline void end_plain(Range *r, uint64_t at, int is_done, int failed)
{
    mark_ending(r);
    if (is_written(r)) {
        if (!is_done) write_range(r, at, failed);
        if (LIKELY(r->generation == g.generation)) close_slot(r->slot); /* else recording was stopped meanwhile */
    }
    Track *t = r->track;
    if (LIKELY(t != NULL)) unlink_range(r);
    if (UNLIKELY(r->rare)) {
        if (r->staged) { r->staged = 0; stage_ends(r, t, at); }
        if (r->direct_id && r->forks == g.forks) direct_end(r->direct, r->direct_domain, r->direct_id);
        r->direct_id = 0;
        if (r->sunk) end_in_sinks(r);
        forget_entry(r);
    }
}
