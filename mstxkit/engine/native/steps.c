/* The step in force and the stage that one is in: set, asked for, carried to another thread; the times of stages. */
#include "clock.h"
#include "faults.h"
#include "sites.h"
#include "sums.h"
#include "tracks.h"
#include "watch.h"

/* ---- steps ---- */
static PyObject *step_object(uint32_t step)
{
    PyObject *number = step == NO_STEP ? NULL : PyLong_FromUnsignedLong(step);
    if (number) return number;
    if (step != NO_STEP) note_fault("step"); /* it is in force all the same */
    Py_RETURN_NONE;
}

/* NO_STEP, and a counted fault, for what is no step. */
static COLD uint32_t as_step(PyObject *value)
{
    PyObject *number = PyNumber_Index(value);
    unsigned long long step = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (!PyErr_Occurred() && step < NO_STEP) return (uint32_t)step;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "step must be an int from 0 to %u", NO_STEP - 1);
    note_fault("step");
    return NO_STEP;
}

static uint32_t step_in_force(void)
{
    Track *t = current_track();
    return t && t->step != NO_STEP ? t->step : g.step;
}

static PyObject *hot_step(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n > 1) return wrong_arguments("step(n=None)");
    uint32_t step;
    if (n == 0 || args[0] == Py_None) step = g.step == NO_STEP - 1 ? g.step : g.step + 1; /* NO_STEP + 1 is 0 */
    else if ((step = as_step(args[0])) == NO_STEP) return step_object(g.step);
    int moves_on = g_sums_changed && step != g.step;
    g.step = step;
    if (UNLIKELY(g.first_step == NO_STEP) && g.on & ON_RECORD) {
        g.first_step_ticks = now();
        g.first_step = step;
    }
    if (UNLIKELY(moves_on)) step_is_over();
    if (UNLIKELY(g_watch.stepped) && is_news(step)) tell_stepped(step);
    return step_object(step);
}

static PyObject *hot_current_step(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return step_object(step_in_force());
}

static PyObject *hot_process_step(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return step_object(g.step);
}

static PyObject *hot_first_step(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (g.first_step == NO_STEP) Py_RETURN_NONE;
    return Py_BuildValue("[IK]", g.first_step, (unsigned long long)g.first_step_ticks);
}

static PyObject *hot_current_stage(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Track *t = current_track();
    return Py_NewRef(t && t->stage ? g_stages[t->stage].key : Py_None);
}

typedef struct { PyObject_HEAD uint32_t step, before, forks; } AtStep;

static PyTypeObject *AtStep_Type;
static PyObject *g_no_step;      /* it changes nothing: for where there is no memory for another one */

static AtStep *new_at_step(void)
{
    AtStep *at = PyObject_New(AtStep, AtStep_Type);
    if (at) { at->step = at->before = NO_STEP; at->forks = g.forks; }
    return at;
}

static PyObject *hot_at_step(PyObject *self, PyObject *value)
{
    (void)self;
    AtStep *at = new_at_step();
    if (!at) { note_fault("at_step"); return Py_NewRef(g_no_step); }
    at->step = as_step(value);
    return (PyObject *)at;
}

static void set_track_step(uint32_t step)
{
    Track *t = current_track();
    if (!t) return;
    t->step = step;
    store_ambient(t);
}

static PyObject *at_step_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    AtStep *at = (AtStep *)self;
    Track *t = current_track();
    at->before = t ? t->step : NO_STEP;
    at->forks = g.forks;
    if (at->step != NO_STEP) set_track_step(at->step);
    return step_object(step_in_force());
}

static PyObject *at_step_exit(PyObject *self, PyObject *args)
{
    (void)args;
    AtStep *at = (AtStep *)self;
    if (at->step != NO_STEP && at->forks == g.forks) set_track_step(at->before); /* a child is not inside of it */
    Py_RETURN_NONE;
}

/* ---- work that is handed to another thread ---- */
static PyObject *hot_carried(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Track *t = current_track();
    if (!t || (!t->stage && t->step == NO_STEP)) Py_RETURN_NONE;
    PyObject *bits = PyLong_FromUnsignedLongLong(packed(t->stage, t->step == NO_STEP ? g.step : t->step));
    if (bits) return bits;
    note_fault("carried");
    Py_RETURN_NONE;
}

static PyObject *hot_carry(PyObject *self, PyObject *number)
{
    (void)self;
    if (number == Py_None) Py_RETURN_NONE;
    uint64_t bits = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    Track *t = current_track();
    if (!t) Py_RETURN_NONE;
    PyObject *before = PyLong_FromUnsignedLongLong(packed(t->stage, t->step));
    if (!before) { /* it could not be taken back */
        note_fault("carry");
        Py_RETURN_NONE;
    }
    unpack(t, bits);
    store_ambient(t);
    return before;
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef at_step_methods[] = {{"__enter__", at_step_enter, METH_NOARGS, NULL},
                                        {"__exit__", at_step_exit, METH_VARARGS, NULL},
                                        {NULL, NULL, 0, NULL}};
static PyType_Slot at_step_slots[] = {{Py_tp_dealloc, plain_dealloc}, {Py_tp_methods, at_step_methods}, {0, NULL}};
static PyType_Spec at_step_spec = {"mstxkit.engine.native.hot.AtStep", sizeof(AtStep), 0, Py_TPFLAGS_DEFAULT,
                                   at_step_slots};

/* The latest step before the one in force that has any time of any stage; else the latest that has any. */
static int latest_step(uint32_t *found)
{
    uint32_t in_force = step_in_force();
    int any = 0, finished = 0;
    for (uint32_t id = 1; id <= g_stage_count; id++)
        for (int i = 0; i < STEPS_KEPT; i++) {
            uint32_t step = g_stages[id].kept[i].step;
            if (!g_stages[id].kept[i].used) continue;
            int done = step != NO_STEP && in_force != NO_STEP && step < in_force;
            if (!any || (done && !finished) || (done == finished && step + 1 > *found + 1)) *found = step;
            finished |= done;
            any = 1;
        }
    return any;
}

static PyObject *hot_stage_times(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    static char *names[] = {"step", NULL};
    PyObject *wanted = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &wanted)) return NULL;
    uint32_t step = NO_STEP;
    if (wanted == Py_None ? !latest_step(&step) : (step = as_step(wanted)) == NO_STEP) return PyDict_New();
    PyObject *result = PyDict_New();
    for (uint32_t id = 1; result && id <= g_stage_count; id++)
        for (int i = 0; i < STEPS_KEPT; i++) {
            if (!g_stages[id].kept[i].used || g_stages[id].kept[i].step != step) continue;
            PyObject *seconds = PyFloat_FromDouble((double)g_stages[id].kept[i].ticks / g.ticks_per_ns * 1e-9);
            if (!seconds || PyDict_SetItem(result, g_stages[id].key, seconds) < 0) Py_CLEAR(result);
            Py_XDECREF(seconds);
            if (!result) return NULL;
        }
    return result;
}

static void forget_stage_times(void)
{
    for (uint32_t id = 1; id <= g_stage_count; id++) {
        g_stages[id].active = 0;
        for (int i = 0; i < STEPS_KEPT; i++) g_stages[id].kept[i].used = 0;
    }
}
