/* A range is entered and left: also again while it is open, watched, by the first of a process, or as one of those that
 * limits.c looks at.
 */
#include "entering.h"

#include "attributes.h"
#include "clock.h"
#include "faults.h"
#include "free_ranges.h"
#include "limits.h"
#include "range.h"
#include "sites.h"
#include "watch.h"

/* ---- begin ---- */
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

/* It is entered while it is open. */
static COLD void begin_again(Range *r, int may_move)
{
    Range *again = r == g_nothing ? NULL : add_inner(r);
    if (!again) return;
    begin(again, may_move);
    Py_DECREF(again); /* ended before it had begun, it ends here */
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

/* In a process that waits for its first range. */
static COLD void begin_first(Range *r, int may_move)
{
    tell_first();
    uint32_t on = g.on & ~(uint32_t)ON_AWAITED;
    if (r->begun) begin_again(r, may_move);
    else if (on) begin_told(r, on, may_move);
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

/* ---- end ---- */
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

static HOT void end_open(Range *r, int failed)
{
    uint64_t at = LIKELY(r->recorded) || r->staged ? now() : 0;
    int is_done = UNLIKELY(r->rare) && is_written(r) && is_written_with_role(r, at, failed);
    if (UNLIKELY(r->unsure) && !is_done && is_written(r) && !is_all_plain(r) && !settle(r, &at)) {
        if (r->inner) end_inner(r, failed); /* whoever came in meanwhile is inside of it: the end is theirs */
        return;
    }
    end_plain(r, at, is_done, failed);
}

static __attribute__((noinline)) void end_unusual(Range *r, int failed)
{
    if (r == g_nothing) return;
    if (r->inner) { end_inner(r, failed); return; }
    Site *s = r->site;
    uint8_t how = r->unusual;
    uint32_t told = r->told;
    uint64_t cost = r->cost, before = how & SAMPLED ? now() : 0;
    r->unusual = 0;
    if (how & FOLDED) end_folded(r, failed);
    else end_open(r, failed);
    r->nest = 0;
    if (how & SAMPLED) add_sample(s, cost + now() - before, how & FOLDED);
    if (how & TOLD) tell_left(s, told, failed);
}

static inline void end(Range *r, int failed)
{
    if (UNLIKELY(r->begun != OPEN)) {
        if (r->inner) end_inner(r, failed);
    } else if (UNLIKELY(r->unusual)) end_unusual(r, failed);
    else end_open(r, failed);
}
