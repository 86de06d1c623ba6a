/* A range that is the occurrence of a stage: what is inside of it, its time, its sums and its work. */
#include "stages.h"

#include "sites.h"
#include "sums.h"
#include "tracks.h"
#include "watch.h"

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
