/* Storms and cost: calls that are added up instead of recorded, and what each site costs itself.
 *
 * A coalesced call is on its track like any other, so that what is inside of it knows its depth and what is parked
 * keeps its track; but no sink is told, no slot is taken and no record written. At its end it goes into a window of
 * its site, track, stage and step, which becomes one record after a second at most. Nothing here runs for a call of
 * a site without limits, but for one in `period`, whose begin and end are timed.
 */
#include "limits.h"

#include "attributes.h"
#include "banks.h"
#include "clock.h"
#include "faults.h"
#include "free_ranges.h"
#include "live.h"
#include "range.h"
#include "sites.h"
#include "tracks.h"

/* Costs are sampled, more often where they are high: a rare, dear one must not be taken for the usual. */
enum { LONGEST_PERIOD = 256, DEAR_NS = 10000, WINDOWS_MAX = 4096 };

#define UNLIMITED UINT32_MAX

static uint32_t g_windows_in_use;
static PyObject *s_coalesced, *s_total_ns, *s_max_ns;

static inline int is_over_a_second(uint64_t ticks) { return (double)ticks > g.ticks_per_ns * 1e9; }

/* ---- what a site costs ---- */
static COLD Limits *limits_of(Site *s)
{
    if (!s->limits && (s->limits = PyMem_RawCalloc(1, sizeof *s->limits)))
        s->limits->max_depth = s->limits->max_per_s = UNLIMITED;
    return s->limits;
}

static inline int is_limited(const Limits *l)
{
    return l->coalesce || l->throttled || l->max_depth != UNLIMITED || l->max_per_s != UNLIMITED;
}

static uint64_t calls_of(const Site *s)
{
    return (s->limits ? s->limits->calls : 0) + s->period - (uint64_t)(s->countdown > 0 ? s->countdown : 0);
}

/* From the next call on; 0: all are looked at, and counted one by one. */
static void set_period(Site *s, uint32_t period)
{
    s->limits->calls = calls_of(s);
    s->period = period;
    s->countdown = (int32_t)period;
}

/* An estimate for the calls since the last one that was measured. */
static double cost_since(const Site *s)
{
    uint64_t calls = calls_of(s);
    return calls > s->limits->costed ? (double)(calls - s->limits->costed) * s->limits->usual_ns : 0;
}

/* One call was measured: it stands for those since the last one that was, but where it is dear only for itself. Of a
 * limited site all calls that are recorded are measured, and stand for themselves. */
static void add_sample(Site *s, uint64_t ticks, int folded)
{
    Limits *l = s->limits;
    double ns = (double)ticks / g.ticks_per_ns;
    if (is_limited(l) && !folded) {
        l->cost_ns += ns;
        l->costed++;
        return;
    }
    int dear = ns > DEAR_NS;
    if (l->usual_ns == 0) l->usual_ns = dear ? DEAR_NS : ns;
    uint64_t calls = calls_of(s), others = calls > l->costed ? calls - l->costed - 1 : 0;
    l->cost_ns += ns + (double)others * l->usual_ns;
    l->costed = calls;
    if (!dear) l->usual_ns += (ns - l->usual_ns) / 8;
    uint32_t longer = s->period < LONGEST_PERIOD ? s->period * 2 : LONGEST_PERIOD;
    if (!is_limited(l)) set_period(s, dear ? 1 : longer);
}

/* ---- windows ---- */
static Window *window_of(Range *r)
{
    Window **head = &r->home->windows, **at = head, *w;
    while ((w = *at) && !(w->w1 == r->w1 && w->stage == r->stage)) at = &w->next;
    if (w) *at = w->next;
    else if ((w = PyMem_RawCalloc(1, sizeof *w))) g_windows++;
    else return NULL;
    w->next = *head;
    *head = w;
    if (w->generation != g.generation) w->calls = 0; /* of a file that is gone */
    w->site = r->site;
    w->w1 = r->w1;
    w->stage = r->stage;
    w->generation = g.generation;
    return w;
}

static int give_number(Range *r, PyObject *key, double number)
{
    PyObject *value = PyLong_FromDouble(number);
    if (!value) return 0;
    r->keys[r->inline_count] = Py_NewRef(key);
    r->values[r->inline_count++] = value;
    return 1;
}

/* NULL: no memory. */
static Range *range_of_window(const Window *w, Track *home)
{
    Range *r = new_range();
    if (!r) return NULL;
    r->site = w->site;
    r->home = home;
    r->stage = w->stage;
    r->w1 = w->w1;
    r->seq = 0;
    r->busy = w->total ? w->total : 1;
    r->rare = 1;
    if (give_number(r, s_coalesced, (double)w->calls) &&
        give_number(r, s_total_ns, (double)w->total / g.ticks_per_ns) &&
        give_number(r, s_max_ns, (double)w->longest / g.ticks_per_ns))
        return r;
    Py_DECREF(r);
    return NULL;
}

/* Whole or not at all: without its attributes the record would be one call of that length. What cannot be written now
 * stays. A fault on the way may let other threads run: they give no window back meanwhile. */
static void write_window(Window *w, Track *home)
{
    Range *r = range_of_window(w, home);
    if (!r) { note_fault("engine.window"); return; }
    uint64_t calls = w->calls;
    uint64_t w2 = duration_bits(w->end - w->start) | (uint64_t)w->depth << 40 | (w->failed ? FLAG_ERROR : 0);
    g_windows_in_use++;
    w->calls = 0;
    int done = write_with_attributes(r, w->end, w2, 1);
    g_windows_in_use--;
    if (!done && !w->calls) w->calls = calls; /* else others have begun it anew: a fault was counted */
    r->home = NULL;
    Py_DECREF(r);
}

/* Write what is pending; what has been idle since the last time is given back. */
static void flush_windows(void)
{
    for (Thread *th = g_threads; th && g_windows && !g_windows_in_use; th = th->next)
        for (uint32_t i = 0; i < th->track_count; i++) {
            Window **at = &th->tracks[i]->windows;
            for (Window *w; (w = *at);) {
                if (is_pending(w)) {
                    if (g.base) write_window(w, th->tracks[i]);
                    at = &w->next;
                } else {
                    *at = w->next;
                    PyMem_RawFree(w);
                    g_windows--;
                }
            }
        }
}

/* A window holds what ended within a second of its first start. */
static void add_to_window(Range *r, uint64_t at, int failed)
{
    if (g_windows >= WINDOWS_MAX) flush_windows();
    Window *w = window_of(r);
    if (!w) { note_fault("engine.window"); return; }
    if (w->calls && is_over_a_second(at - (w->start < r->start ? w->start : r->start))) write_window(w, r->home);
    if (w->calls++ == 0) {
        w->start = r->start;
        w->end = at;
        w->total = w->longest = 0;
        w->depth = r->depth;
        w->failed = 0;
    }
    uint64_t inside = r->nest > 1 ? 0 : r->busy ? r->busy : at - r->start;
    if (r->start < w->start) w->start = r->start;
    if (r->depth < w->depth) w->depth = r->depth;
    if (at > w->end) w->end = at;
    if (inside > w->longest) w->longest = inside;
    w->total += inside;
    w->failed |= (uint8_t)failed;
}

/* ---- calls of limited sites, and those that are measured ---- */
static uint32_t nest_on(const Track *t, const Site *s)
{
    const Range *r = t->top;
    while (r && r->site != s) r = r->parent;
    return !r ? 1 : r->nest ? r->nest + 1 : 2;
}

static int is_over(Limits *l, uint32_t nest)
{
    if (l->coalesce || l->throttled || nest > l->max_depth) return 1;
    if (l->max_per_s == UNLIMITED) return 0;
    uint64_t at = now();
    if (!l->second || is_over_a_second(at - l->second + 1)) {
        l->second = at;
        l->in_second = 0;
    }
    return l->in_second >= l->max_per_s || (l->in_second++, 0);
}

static inline void fold(Range *r, Track *t, uint32_t on)
{
    r->begun = OPEN;
    r->recorded = (on & ON_RECORD) != 0;
    r->generation = g.generation;
    r->unusual |= FOLDED;
    place_range(r, r->site, t);
    r->site->limits->coalesced++;
    if (r->recorded) g.counters[COALESCED]++;
    r->start = now();
}

/* Is `r` folded? Else it is begun like any other. */
static inline int fold_if_over(Range *r, uint32_t on)
{
    Limits *l = r->site->limits;
    int sampled = (l->coalesced + 1) % LONGEST_PERIOD == 0;
    uint64_t before = sampled ? now() : 0;
    Track *t = current_track();
    r->site->countdown = 0;
    l->calls++;
    r->nest = t ? nest_on(t, r->site) : 1;
    if (!t || !is_over(l, r->nest)) return 0;
    fold(r, t, on);
    if (sampled) {
        r->cost = r->start - before;
        r->unusual |= SAMPLED;
    }
    return 1;
}

static __attribute__((noinline)) void begin_counted(Range *r, uint32_t on)
{
    Site *s = r->site;
    if (!limits_of(s)) {
        s->countdown = (int32_t)(s->period = LONGEST_PERIOD);
        note_fault("engine.cost");
        begin_plain(r, s, on);
        return;
    }
    if (!is_limited(s->limits)) set_period(s, s->period);
    else if (fold_if_over(r, on)) return;
    uint64_t before = now();
    begin_plain(r, s, on);
    r->cost = now() - before;
    r->unusual |= SAMPLED;
}

static void end_folded(Range *r, int failed)
{
    uint64_t at = now();
    mark_ending(r);
    if (r->recorded && r->generation == g.generation) add_to_window(r, at, failed);
    if (r->track) unlink_range(r);
    if (r->rare) forget_entry(r);
}

/* ---- the calls from Python ---- */
/* UNLIMITED for None; 0 with an exception. */
static int as_limit(PyObject *value, const char *name, uint32_t *limit)
{
    *limit = UNLIMITED;
    if (value == Py_None) return 1;
    long long number = PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
    if (number < 0 || number >= UNLIMITED) {
        PyErr_Format(PyExc_ValueError, "%s=%R: None or an int from 0 is needed", name, value);
        return 0;
    }
    *limit = (uint32_t)number;
    return 1;
}

/* What has been usual is so no more. */
static void limits_changed(Site *s)
{
    Limits *l = s->limits;
    if (is_limited(l) == (s->period == 0)) return;
    l->cost_ns += cost_since(s);
    l->costed = calls_of(s);
    l->usual_ns = 0;
    set_period(s, is_limited(l) ? 0 : FIRST_PERIOD);
}

static PyObject *hot_limit(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    static char *names[] = {"site", "coalesce", "max_depth", "max_per_s", NULL};
    PyObject *value, *depth = Py_None, *per_s = Py_None;
    int coalesce = 0;
    uint32_t max_depth, max_per_s;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|pOO", names, &value, &coalesce, &depth, &per_s)) return NULL;
    Site *s = as_site(value);
    if (!s || !as_limit(depth, "max_depth", &max_depth) || !as_limit(per_s, "max_per_s", &max_per_s)) return NULL;
    if (s->own_stage) Py_RETURN_NONE;
    Limits *l = limits_of(s);
    if (!l) return PyErr_NoMemory();
    l->coalesce = (uint8_t)coalesce;
    l->max_depth = max_depth;
    l->max_per_s = max_per_s;
    l->second = 0;
    limits_changed(s);
    Py_RETURN_NONE;
}

static PyObject *hot_throttle(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *value;
    int on;
    if (!PyArg_ParseTuple(args, "Op", &value, &on)) return NULL;
    Site *s = as_site(value);
    if (!s) return NULL;
    if (s->own_stage || (!s->limits && !on)) Py_RETURN_NONE;
    if (!limits_of(s)) return PyErr_NoMemory();
    s->limits->throttled = (uint8_t)on;
    limits_changed(s);
    Py_RETURN_NONE;
}

static PyObject *hot_flush_coalesced(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    flush_windows();
    Py_RETURN_NONE;
}

static PyObject *hot_add_cost(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *value;
    double ns;
    if (!PyArg_ParseTuple(args, "Od", &value, &ns)) return NULL;
    Site *s = as_site(value);
    if (!s) return NULL;
    if (limits_of(s)) s->limits->cost_ns += ns;
    else note_fault("engine.cost");
    Py_RETURN_NONE;
}

static PyObject *cost_of(Site *s)
{
    const Limits *l = s->limits;
    double ns = l ? l->cost_ns + cost_since(s) : 0;
    return Py_BuildValue("OKNK", s, calls_of(s), PyLong_FromDouble(ns), l ? l->coalesced : 0ull);
}

static PyObject *hot_site_costs(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *found = PyList_New(0), *sites = PyDict_Values(g_sites); /* a collection may run Python that adds one */
    for (Py_ssize_t i = 0; found && sites && i < PyList_GET_SIZE(sites); i++) {
        Site *site = (Site *)PyList_GET_ITEM(sites, i);
        if (!calls_of(site)) continue;
        PyObject *cost = cost_of(site);
        if (!cost || PyList_Append(found, cost) < 0) Py_CLEAR(found);
        Py_XDECREF(cost);
    }
    if (!sites) Py_CLEAR(found);
    Py_XDECREF(sites);
    return found;
}
