/* What goes wrong: faults of ours are counted, and told to Python once it is safe to; what is the program's is given
 * back to it; a caller's mistake raises.
 */
#include "faults.h"

/* What a signal handler of the program raised while we ran, to be raised in the program */
static PyObject *g_escaped;

static int raise_escaped(void *unused)
{
    (void)unused;
    PyObject *escaped = g_escaped;
    g_escaped = NULL;
    if (!escaped) return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(escaped), escaped);
    Py_DECREF(escaped);
    return -1;
}

/* SystemExit of a handler of SIGTERM, say: it is for the program, which goes on where it was, and gets it there. */
static COLD void let_escape(PyObject *exception)
{
    if (syscall(SYS_gettid) != getpid()) { /* of a thread that somebody stops; a pending call is the main one's */
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(exception));
        return;
    }
    Py_XSETREF(g_escaped, Py_NewRef(exception));
    Py_AddPendingCall(raise_escaped, NULL);
}

/* What is set and no fault of ours goes to the program; 0: it is a fault, and has been cleared. */
static COLD int give_back(PyObject *type, PyObject *value)
{
    /* the user's Ctrl-C, caught in a sink: it comes again, in the user's own code */
    if (type == PyExc_KeyboardInterrupt) PyErr_SetInterrupt();
    else if (value && !PyErr_GivenExceptionMatches(type, PyExc_Exception)) let_escape(value);
    else return 0;
    return 1;
}

/* Counted also where Python cannot be told, for want of memory, say. */
static COLD void tell_fault(const char *where, PyObject *exception)
{
    uint64_t before = g.counters[FAULTS];
    PyObject *done = PyObject_CallFunction(g.fault, "sO", where, exception), *type, *value, *trace;
    if (!done && g.counters[FAULTS] == before) g.counters[FAULTS]++;
    Py_XDECREF(done);
    PyErr_Fetch(&type, &value, &trace);
    if (type) PyErr_NormalizeException(&type, &value, &trace);
    if (type) give_back(type, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Is there any? CPython 3.9 and 3.10 end the process where there is none for the MemoryError itself. */
static int has_memory(void)
{
    void *some = PyObject_Malloc(256);
    PyObject_Free(some);
    return some != NULL;
}

/* Count what is set, if anything is, and clear it: no exception is left. */
static COLD void note_fault(const char *where)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (type && g.fault && !(type == PyExc_MemoryError && !has_memory())) {
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace && PyException_SetTraceback(value, trace) < 0) PyErr_Clear();
        if (!give_back(type, value)) tell_fault(where, value);
    } else {
        g.counters[FAULTS]++;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static inline void note_if_failed(const char *where)
{
    if (PyErr_Occurred()) note_fault(where);
}

static COLD PyObject *wrong_arguments(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return NULL;
}

static PyObject *hot_count_fault(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    g.counters[FAULTS]++;
    Py_RETURN_NONE;
}
