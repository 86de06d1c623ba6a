/* Live outputs: up to three Python sinks, and mstx through plain C function pointers.
 *
 * What was begun is ended by the one that began it: a range keeps the `end` callable or the function table it was
 * begun with.
 */
#include "sinks.h"

#include "faults.h"

static void drop_sink(int k)
{
    Sink old = g_sinks[k];
    g.on &= ~(uint32_t)(ON_SINK_0 << k);
    memset(&g_sinks[k], 0, sizeof g_sinks[k]);
    Py_XDECREF(old.begin);
    Py_XDECREF(old.end);
    Py_XDECREF(old.mark);
    Py_XDECREF(old.begin_stream);
}

static COLD void sink_failed(int k)
{
    static const char *where[SINK_COUNT] = {"sink.torch_npu", "sink.mindspore", "sink.torch"};
    drop_sink(k);
    note_fault(where[k]);
}

/* A token (new reference), and the end that belongs to it; NULL where nothing was begun. */
static PyObject *sink_begin(int k, Site *s, PyObject *stream, PyObject **end)
{
    Sink *sink = &g_sinks[k];
    PyObject *with_stream[3] = {s->message, stream, s->message_domain}, *plain[2] = {s->message, s->message_domain};
    PyObject *call = stream && sink->begin_stream ? sink->begin_stream : sink->begin;
    PyObject *its_end = Py_NewRef(sink->end);
    Py_INCREF(call);
    PyObject *token = call == sink->begin ? PyObject_Vectorcall(call, plain, 2, NULL)
                                          : PyObject_Vectorcall(call, with_stream, 3, NULL);
    Py_DECREF(call);
    if (!token || token == Py_None) {
        if (!token) sink_failed(k);
        Py_XDECREF(token);
        Py_DECREF(its_end);
        return NULL;
    }
    *end = its_end;
    return token;
}

static void sink_end(int k, Site *s, PyObject *token, PyObject *end)
{
    PyObject *args[2] = {token, s->message_domain};
    PyObject *done = PyObject_Vectorcall(end, args, 2, NULL);
    if (!done) sink_failed(k);
    Py_XDECREF(done);
    Py_DECREF(token);
    Py_DECREF(end);
}

/* The handle of a site's domain in the tool; NULL for the default domain, and where the tool has no domains. */
static COLD void *new_direct_domain(Direct *d, Site *s)
{
    void *handle = NULL;
    PyObject *known = PyDict_GetItemWithError(d->domains, s->message_domain);
    if (known) handle = PyLong_AsVoidPtr(known);
    else if (d->domain && d->domain_mark && d->domain_start && d->domain_end) {
        handle = d->domain(s->message_domain_c);
        PyObject *number = PyLong_FromVoidPtr(handle);
        if (number) PyDict_SetItem(d->domains, s->message_domain, number);
        Py_XDECREF(number);
    }
    note_if_failed("sink.mstx"); /* another site asks for this domain again */
    s->mstx_owner = d;
    return s->mstx_domain = handle;
}

static inline void *direct_domain(Direct *d, Site *s)
{
    if (LIKELY(!s->message_domain_c)) return NULL;
    return s->mstx_owner == d ? s->mstx_domain : new_direct_domain(d, s);
}

static inline uint64_t direct_begin(Direct *d, Site *s, void **domain)
{
    *domain = direct_domain(d, s);
    return *domain ? d->domain_start(*domain, s->message_c, NULL) : d->start(s->message_c, NULL);
}

static inline void direct_end(Direct *d, void *domain, uint64_t id)
{
    if (domain) d->domain_end(domain, id);
    else d->end(id);
}

static void mark_in_sinks(Site *s, PyObject *stream)
{
    if (g.on & ON_DIRECT) {
        void *domain = direct_domain(g_direct, s);
        if (domain) g_direct->domain_mark(domain, s->message_c, NULL);
        else if (g_direct->mark) g_direct->mark(s->message_c, NULL);
    }
    for (int k = 0; k < SINK_COUNT; k++) {
        if (!(g.on & (uint32_t)(ON_SINK_0 << k)) || !g_sinks[k].mark) continue;
        PyObject *args[3] = {s->message, stream ? stream : Py_None, s->message_domain};
        PyObject *call = Py_NewRef(g_sinks[k].mark);
        PyObject *done = PyObject_Vectorcall(call, args, 3, NULL);
        Py_DECREF(call);
        if (!done) sink_failed(k);
        Py_XDECREF(done);
    }
}

/* ---- sinks and hooks ---- */
static PyObject *or_null(PyObject *value) { return value == Py_None ? NULL : Py_NewRef(value); }

static int sink_index(long k)
{
    if (k >= 0 && k < SINK_COUNT) return 1;
    PyErr_Format(PyExc_ValueError, "sink index must be 0 to %d", SINK_COUNT - 1);
    return 0;
}

static PyObject *hot_set_sink(PyObject *self, PyObject *args)
{
    (void)self;
    int k;
    PyObject *begin, *end, *mark = Py_None, *begin_stream = Py_None;
    if (!PyArg_ParseTuple(args, "iOO|OO", &k, &begin, &end, &mark, &begin_stream) || !sink_index(k)) return NULL;
    drop_sink(k);
    g_sinks[k] = (Sink){Py_NewRef(begin), Py_NewRef(end), or_null(mark), or_null(begin_stream)};
    g.on |= (uint32_t)(ON_SINK_0 << k);
    Py_RETURN_NONE;
}

static PyObject *hot_clear_sink(PyObject *self, PyObject *value)
{
    (void)self;
    long k = PyLong_AsLong(value);
    if (PyErr_Occurred() || !sink_index(k)) return NULL;
    drop_sink((int)k);
    Py_RETURN_NONE;
}

static PyObject *hot_set_direct(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long a[7];
    if (!PyArg_ParseTuple(args, "(KKKKKKK)", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6)) return NULL;
    if (!a[1] || !a[2]) {
        PyErr_SetString(PyExc_ValueError, "mstxRangeStartA and mstxRangeEnd are needed");
        return NULL;
    }
    Direct *d = PyMem_RawCalloc(1, sizeof *d);
    if (!d || !(d->domains = PyDict_New())) { PyMem_RawFree(d); return PyErr_NoMemory(); }
    memcpy(d, a, sizeof a); /* seven function pointers, in this order */
    g_direct = d;
    g.on |= ON_DIRECT;
    Py_RETURN_NONE;
}

static PyObject *hot_clear_direct(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    g.on &= ~(uint32_t)ON_DIRECT;
    Py_RETURN_NONE;
}
