/* Hooks into Python: a watched range begins, has ended; the process's step has changed; the first range or mark is
 * there. And which stages there have been.
 *
 * A site with a stage of its own is watched, and whichever `watch_site` marked. A hook may do anything, also start a
 * profiler that sets a sink, or let another thread run: what was known before it is read again. Hooks are those of
 * the process that set them: a forked child has none.
 */
#include "watch.h"

#include "faults.h"
#include "sites.h"

static uint16_t g_seen[STAGE_MAX]; /* ids of the stages begun in this process, in order */

/* This process among its ancestors; never 0. */
static inline uint32_t this_process(void) { return g.forks + 1; }

/* Has it said True? */
static COLD int call_hook(PyObject *hook, PyObject *const *args, size_t n, const char *where)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_INCREF(hook);
    PyObject *done = PyObject_Vectorcall(hook, args, n, NULL);
    if (!done) note_fault(where);
    Py_XDECREF(done);
    Py_DECREF(hook);
    PyErr_Restore(type, value, trace);
    return done == Py_True;
}

static COLD void tell(PyObject *hook, PyObject *const *args, size_t n, const char *where)
{
    if (hook && g_watch.process == this_process()) call_hook(hook, args, n, where);
}

/* Threads that come while the hook runs call it too: each may wait until recording has begun. */
static COLD void tell_first(void)
{
    if (!g_watch.first || !call_hook(g_watch.first, NULL, 0, "watch.first")) g.on &= ~(uint32_t)ON_AWAITED;
}

/* The process in which `left` is to be told of it; 0: nobody was told. */
static COLD uint32_t tell_entered(Site *s, int may_move)
{
    uint32_t process = this_process(); /* a hook may fork */
    if (!g_watch.entered || g_watch.process != process) return 0;
    PyObject *args[2] = {(PyObject *)s, may_move ? Py_True : Py_False};
    tell(g_watch.entered, args, 2, "watch.entered");
    return process;
}

static COLD void tell_left(Site *s, uint32_t told, int failed)
{
    PyObject *args[2] = {(PyObject *)s, failed ? Py_True : Py_False};
    if (told == this_process()) tell(g_watch.left, args, 2, "watch.left");
}

/* Patched calls tell their step at each call: what was told already is worth nothing to anybody who does not watch. */
static inline int is_news(uint32_t step)
{
    return g_watch.told_step != step || g.on & ON_WATCH || g_watch.told_on != PyThread_get_thread_ident();
}

static COLD void tell_stepped(uint32_t step)
{
    g_watch.told_step = step;
    g_watch.told_on = PyThread_get_thread_ident();
    PyObject *number = PyLong_FromUnsignedLong(step);
    if (number) tell(g_watch.stepped, &number, 1, "watch.stepped");
    else note_fault("watch.stepped");
    Py_XDECREF(number);
}

static COLD void see_stage(uint32_t id)
{
    g_stages[id].seen_in = this_process();
    g_seen[g_seen_count++] = (uint16_t)id;
}

/* ---- the calls from Python ---- */
static PyObject *hot_set_watch(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *entered, *left, *stepped;
    if (!PyArg_ParseTuple(args, "OOO", &entered, &left, &stepped)) return NULL;
    g_watch.process = this_process();
    g_watch.told_step = NO_STEP;
    Py_XSETREF(g_watch.entered, Py_XNewRef(given(entered, NULL)));
    Py_XSETREF(g_watch.left, Py_XNewRef(given(left, NULL)));
    Py_XSETREF(g_watch.stepped, Py_XNewRef(given(stepped, NULL)));
    Py_RETURN_NONE;
}

static PyObject *hot_watch(PyObject *self, PyObject *value)
{
    (void)self;
    int on = PyObject_IsTrue(value);
    if (on < 0) return NULL;
    if (on) g.on |= ON_WATCH;
    else g.on &= ~(uint32_t)ON_WATCH;
    Py_RETURN_NONE;
}

static PyObject *hot_await_first(PyObject *self, PyObject *hook)
{
    (void)self;
    Py_XSETREF(g_watch.first, Py_XNewRef(given(hook, NULL)));
    if (g_watch.first) g.on |= ON_AWAITED;
    else g.on &= ~(uint32_t)ON_AWAITED;
    Py_RETURN_NONE;
}

static PyObject *hot_watch_site(PyObject *self, PyObject *value)
{
    (void)self;
    Site *s = as_site(value);
    if (!s) return NULL;
    s->is_watched = 1;
    Py_RETURN_NONE;
}

static PyObject *hot_stages_seen(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *keys = PyList_New(0);
    for (uint32_t i = 0; keys && i < g_seen_count; i++)
        if (PyList_Append(keys, g_stages[g_seen[i]].key) < 0) Py_CLEAR(keys);
    return keys;
}
