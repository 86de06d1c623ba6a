/* A range's life: it begins, is on its track, in its stage and told to sinks, and ends as a record. */
#ifndef MSTXKIT_RANGE_H
#define MSTXKIT_RANGE_H
#include "attributes.h"

/* ---- stages ---- */
static int is_stage(const Range *r) { return r->site->own_stage != 0; }

static int is_inside_itself(const Range *r, uint32_t id)
{
    const Range *x = r->parent;
    while (x && !(x->staged && x->site->own_stage == id)) x = x->parent;
    return x != NULL;
}

static COLD void stage_begins(Range *r, Track *t)
{
    uint32_t id = r->site->own_stage;
    Stage *stage = &g_stages[id];
    if (stage->active++ == 0) {
        stage->since = r->start;
        stage->step = (uint32_t)(r->w1 >> 32);
    }
    if (UNLIKELY(stage->seen_in != this_process())) see_stage(id);
    r->summed = r->recorded ? sum_begins(stage, (uint32_t)(r->w1 >> 32), r->start) : 0;
    r->is_inner = stage->active > 1 && is_inside_itself(r, id);
    t->stage = id;
    r->staged = r->rare = 1;
    store_ambient(t);
    r->context = Py_XNewRef(thread_state()->context);
}

/* The same for the stages of a body that goes on in another context. The last reference to one runs others' code, which
 * may end any of them. */
static COLD void stages_go_on(Track *t)
{
    PyObject *here = thread_state()->context;
    for (Range *r = t->top; r;) {
        int is_here = !r->staged || r->context == here;
        if (!is_here) Py_XSETREF(r->context, Py_XNewRef(here));
        r = is_here ? r->parent : t->top;
    }
}

static void add_stage_time(Stage *stage, uint64_t ticks)
{
    for (int i = 0; i < STEPS_KEPT; i++)
        if (stage->kept[i].used && stage->kept[i].step == stage->step) { stage->kept[i].ticks += ticks; return; }
    uint32_t place = stage->next_kept++ % STEPS_KEPT;
    stage->kept[place].used = 1;
    stage->kept[place].step = stage->step;
    stage->kept[place].ticks = ticks;
}

/* The stage that is current once `r` is gone, also where it ended before what was opened inside it. */
static void leave_stage(Range *r, Track *t)
{
    t->stage = r->outer_stage;
    int found = 0;
    for (Range *x = t->top; x; x = x->parent) {
        if (x->outer_stage == r->stage && x->start >= r->start) x->outer_stage = r->outer_stage;
        if (x->staged && !found) { t->stage = x->stage; found = 1; }
    }
}

/* `name` is interned. */
static inline int is_name(PyObject *key, PyObject *name)
{
    return key == name || (UNLIKELY(!PyUnicode_CHECK_INTERNED(key)) && PyUnicode_Compare(key, name) == 0);
}

/* Nobody's code runs: keys are compared, not looked up. What `set` gave stands for what was given before. */
static void find_work_in(PyObject *dict, PyObject **work)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; dict && PyDict_Next(dict, &at, &key, &value);)
        for (int kind = 0; PyUnicode_CheckExact(key) && kind < WORK_KINDS; kind++)
            if (is_name(key, s_work[kind])) work[kind] = value;
}

static COLD void add_work_of(Range *r, Stage *stage, Sum *sum)
{
    PyObject *work[WORK_KINDS] = {NULL};
    PyObject *settled = r->settled && PyTuple_Check(r->settled) ? PyTuple_GET_ITEM(r->settled, 0) : NULL;
    for (int i = 0; i < r->inline_count; i++)
        for (int kind = 0; kind < WORK_KINDS; kind++)
            if (is_name(r->keys[i], s_work[kind])) work[kind] = r->values[i];
    find_work_in(r->extra, work);
    find_work_in(r->added, work);
    for (Py_ssize_t i = 0; settled && i < PyList_GET_SIZE(settled); i++) { /* plain values of the same */
        PyObject *pair = PyList_GET_ITEM(settled, i), *key = PyTuple_GET_ITEM(pair, 0);
        for (int kind = 0; PyUnicode_CheckExact(key) && kind < WORK_KINDS; kind++)
            if (is_name(key, s_work[kind])) work[kind] = PyTuple_GET_ITEM(pair, 1);
    }
    add_work(stage, sum, work, r->is_inner);
}

/* A stage has ended in another context than its own, as of an async generator that nobody has driven to its end. Its
 * own is entered for that; where somebody runs in it just now, it keeps what it has. */
static COLD void leave_behind(Range *r, Track *t)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!PyContext_Enter(r->context)) {
        store_ambient(t);
        PyContext_Exit(r->context);
    }
    PyErr_Restore(type, value, trace);
}

static inline void end_sum(Range *r, Stage *stage, uint64_t end)
{
    if (UNLIKELY(!r->summed) || UNLIKELY(r->generation != g.generation)) return;
    Sum *sum = &stage->sums[r->summed - 1];
    sum_ends(stage, sum, r->start, end, r->busy, r->is_inner);
    if (r->inline_count || r->extra || r->added) add_work_of(r, stage, sum);
}

static COLD void stage_ends(Range *r, Track *t, uint64_t end)
{
    Stage *stage = &g_stages[r->site->own_stage];
    end_sum(r, stage, end);
    if (stage->active && --stage->active == 0) add_stage_time(stage, end - stage->since);
    if (!t) return;
    leave_stage(r, t);
    if (!t->thread) return; /* it was parked: nothing is inside of it */
    if (r->context == thread_state()->context) store_ambient(t);
    else if (r->context) leave_behind(r, t);
}

/* In a forked child, before it looks at a track: what its parent is inside of is not around it, and its end, should
 * the child run it too, is nothing to any track. */
static COLD void leave_all(void)
{
    g_left_in = g.forks;
    g_ambient_age = (g_ambient_age + 1) & 0x7FFF;
    for (Thread *th = g_threads; th; th = th->next) {
        th->lowest_idle = 0;
        for (uint32_t i = 0; i < th->track_count; i++) {
            Track *t = th->tracks[i];
            for (Range *r = t->top, *next; r; r = next) {
                next = r->parent;
                r->track = NULL;
                r->parent = NULL;
                r->staged = 0;
            }
            t->top = NULL;
            t->depth = t->stage = 0;
            t->step = NO_STEP;
        }
    }
}

/* ---- begin and end ---- */
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

static COLD void define_for(Range *r)
{
    if (g.bank && !define(r) && rotate_bank()) define(r);
    r->seq = is_defined(r) ? g.seq : 0;
}

static Range *new_range(void);

static COLD void begin_again(Range *r, int may_move); /* entered while open */
static COLD Range *add_inner(Range *r);

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

/* limits.h: one of a limited site, or whose cost is measured */
static __attribute__((noinline)) void begin_counted(Range *r, uint32_t on);
static __attribute__((noinline)) void end_unusual(Range *r, int failed);

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

static inline void begin_known(Range *r, Site *s, uint32_t on)
{
    if (UNLIKELY(--s->countdown <= 0)) begin_counted(r, on);
    else begin_plain(r, s, on);
}

/* The hook's time is neither in the range nor in what it costs. Whoever was told of a begin is told of the end, so
 * it begins whatever the hook has switched off; and while the hook ran, somebody else may have entered the same
 * object. */
static COLD void begin_watched(Range *r, Site *s, int may_move)
{
    uint32_t told = tell_entered(s, may_move);
    Range *again = r->begun ? add_inner(r) : NULL;
    if (r->begun && !again) { tell_left(s, told, 1); return; }
    if (again) r = again;
    r->told = told;
    if (told) r->unusual |= TOLD;
    begin_known(r, s, g.on);
    Py_XDECREF(again);
}

static COLD void begin_first(Range *r, int may_move); /* of a process that waits for it */

static HOT inline void begin_told(Range *r, uint32_t on, int may_move)
{
    Site *s = r->site;
    if (!s) {
        s = r->site = site_of(r->name, r->stage_key, r->domain);
        if (UNLIKELY(!s)) return;
        if (UNLIKELY(r->begun)) { begin_again(r, may_move); return; } /* by what its name let run, or another thread */
    }
    if (UNLIKELY(on & ON_WATCH) && s->is_watched) begin_watched(r, s, may_move);
    else begin_known(r, s, on);
}

/* `may_move`: it may be suspended, and go on or end on another thread. */
static HOT inline void begin(Range *r, int may_move)
{
    uint32_t on = g.on;
    if (UNLIKELY(r->begun)) { begin_again(r, may_move); return; }
    if (LIKELY(!on)) return;
    if (UNLIKELY(on & ON_AWAITED)) { begin_first(r, may_move); return; }
    begin_told(r, on, may_move);
}

static COLD void begin_first(Range *r, int may_move)
{
    tell_first();
    uint32_t on = g.on & ~(uint32_t)ON_AWAITED;
    if (r->begun) begin_again(r, may_move);
    else if (on) begin_told(r, on, may_move);
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

static COLD void end_inner(Range *r, int failed);

/* Runs Python, and with it others, who may end or enter the same range, which is open still. 0: this end is done. */
static COLD int settle(Range *r, int failed, uint64_t *at)
{
    PyObject *settled = settled_attributes(r, at);
    int is_here = r->begun == OPEN && !r->inner;
    if (is_here) Py_XSETREF(r->settled, settled);
    else Py_DECREF(settled);
    if (r->inner) end_inner(r, failed);
    if (*at < r->start) *at = now();
    return is_here;
}

static HOT inline void end_plain(Range *r, int failed)
{
    uint64_t at = LIKELY(r->recorded) || r->staged ? now() : 0;
    int is_done = UNLIKELY(r->rare) && is_written(r) && is_written_with_role(r, at, failed);
    if (UNLIKELY(r->unsure) && !is_done && is_written(r) && !is_all_plain(r) && !settle(r, failed, &at)) return;
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

static inline void end(Range *r, int failed)
{
    if (UNLIKELY(r->begun != OPEN)) {
        if (r->inner) end_inner(r, failed);
    } else if (UNLIKELY(r->unusual)) end_unusual(r, failed);
    else end_plain(r, failed);
}

/* A range inside an open one, not begun yet: that may run Python, which may enter or end the outer one. New
 * reference. */
static COLD Range *add_inner(Range *r)
{
    Range *innermost = r;
    while (innermost->inner) innermost = innermost->inner;
    Range *again = new_range();
    if (!again) { note_fault("range.begin"); return NULL; }
    again->site = r->site;
    again->rare = 1;
    again->stream = Py_XNewRef(r->stream);
    again->extra = Py_XNewRef(r->extra);
    again->unsure = r->unsure;
    for (; again->inline_count < r->inline_count; again->inline_count++) {
        again->keys[again->inline_count] = Py_NewRef(r->keys[again->inline_count]);
        again->values[again->inline_count] = Py_NewRef(r->values[again->inline_count]);
    }
    innermost->inner = (Range *)Py_NewRef((PyObject *)again);
    innermost->unusual |= HAS_INNER;
    r->rare = 1;
    return again;
}

static COLD void begin_again(Range *r, int may_move)
{
    Range *again = r == g_nothing ? NULL : add_inner(r);
    if (!again) return;
    begin(again, may_move);
    Py_DECREF(again); /* ended before it had begun, it ends here */
}

static COLD void end_inner(Range *r, int failed)
{
    Range *outer = r;
    while (outer->inner->inner) outer = outer->inner;
    Range *again = outer->inner;
    outer->inner = NULL;
    outer->unusual &= (uint8_t)~HAS_INNER;
    if (outer->begun == ONLY_INNER) outer->begun = 0;
    end(again, failed);
    Py_DECREF(again);
}
#endif
