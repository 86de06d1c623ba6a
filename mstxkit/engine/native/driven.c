/* Coroutines and generators: a range that is on its track only while the body runs.
 *
 * At a suspension everything that the body has open is parked with it: the caller, or another task, is not inside of
 * it. At the next resume it is put on the track of whoever resumes. The time between resume and suspension adds up
 * to `busy`.
 */
#include "driven.h"

#include "clock.h"
#include "entering.h"
#include "faults.h"
#include "free_ranges.h"
#include "ready.h"
#include "stages.h"
#include "tracks.h"
#include "words.h"

typedef struct {
    PyObject_HEAD
    Span *span;
    PyObject *body;              /* has send, throw, close; NULL once it is finished */
    uint8_t ends_span;           /* a coroutine or generator of its own, not one piece of an async generator */
} Driven;

static PyTypeObject *Span_Type, *Driven_Type;
static PyObject *s_send, *s_throw, *s_close;

static void move_chain(Range *top, Range *bottom, Track *to)
{
    for (Range *r = top; r; r = r->parent) {
        r->track = to;
        if (r == bottom) break;
    }
}

static void park(Span *s)
{
    Range *bottom = s->range;
    Track *t = bottom->track;
    if (!bottom->begun || !t || t == &s->parked) return;
    int on_track = 0;
    uint32_t n = 0;
    s->has_stage = 0;
    for (Range *r = t->top; r; r = r->parent) {
        n++;
        s->has_stage |= r->staged;
        if (r == bottom) { on_track = 1; break; }
    }
    if (!on_track) return;
    bottom->home->parked++;
    s->parked.top = t->top;
    s->parked.depth = n;
    t->top = bottom->parent;
    t->depth -= n;
    move_chain(s->parked.top, bottom, &s->parked);
    bottom->parent = NULL;
    if (s->has_stage) {
        t->stage = bottom->outer_stage;
        if (bottom->context == thread_state()->context || !bottom->staged) store_ambient(t);
    }
    if (t->depth == 0) left_idle(t);
}

/* It is inside of what its resumer is inside of now, and of its own stages, of which some may have ended meanwhile. */
static COLD void enter_stages(Range *bottom, uint32_t outer, Track *t)
{
    Range *innermost = NULL;
    for (Range *r = t->top; r; r = r == bottom ? NULL : r->parent) {
        if (r->staged && !innermost) innermost = r;
        if (r->outer_stage == outer) r->outer_stage = t->stage;
    }
    if (innermost) t->stage = innermost->stage;
    store_ambient(t);
    stages_go_on(t);
}

static void unpark(Span *s)
{
    Range *bottom = s->range;
    if (!bottom->begun || bottom->track != &s->parked) return;
    Track *t = current_track();
    if (!t) return;
    if (--bottom->home->parked == 0) left_idle(bottom->home);
    move_chain(s->parked.top, bottom, t);
    bottom->parent = t->top;
    t->top = s->parked.top;
    t->depth += s->parked.depth;
    s->parked.top = NULL;
    s->parked.depth = 0;
    uint32_t outer = bottom->outer_stage;
    bottom->outer_stage = t->stage;
    if (s->has_stage) enter_stages(bottom, outer, t);
}

static void span_resume(Span *s)
{
    if (s->running || s->ended) return;
    s->running = 1;
    if (!s->begun) {
        s->begun = 1;
        begin(s->range, 1);
        if (UNLIKELY(s->ended)) end(s->range, 1); /* by whom a hook or sink let run */
    } else {
        unpark(s);
    }
    if (s->range->begun) s->resumed_at = now();
}

static void span_suspend(Span *s)
{
    if (!s->running) return;
    s->running = 0;
    if (!s->range->begun) return;
    s->busy += now() - s->resumed_at;
    park(s);
}

static void span_end(Span *s, int failed)
{
    if (s->ended) return;
    if (!s->running && s->begun) unpark(s);
    else if (s->running && s->range->begun) s->busy += now() - s->resumed_at;
    s->running = 0;
    s->ended = 1;
    if (!s->range->begun) return;
    s->range->busy = s->busy ? s->busy : 1;
    s->range->rare = 1;
    end(s->range, failed);
}

/* ---- one resume of the body ---- */
static int take_return(PyObject **result)
{ /* the value of the StopIteration that is set, which is cleared; as `yield from` takes it, mostly without memory */
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    int is_bare = type == PyExc_StopIteration && !(value && PyTuple_Check(value));
    if (!is_bare) PyErr_NormalizeException(&type, &value, &trace);
    if (!PyErr_GivenExceptionMatches(type, PyExc_StopIteration)) { /* it could not be made */
        PyErr_Restore(type, value, trace);
        return 0;
    }
    int is_whole = value && PyObject_TypeCheck(value, (PyTypeObject *)PyExc_StopIteration);
    PyObject *returned = is_whole ? ((PyStopIterationObject *)value)->value : value;
    *result = Py_NewRef(returned ? returned : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return 1;
}

static PySendResult finished(Driven *d, PyObject **result)
{ /* the body raised: StopIteration is its return */
    int returned = PyErr_ExceptionMatches(PyExc_StopIteration);
    int failed = !returned && !PyErr_ExceptionMatches(PyExc_GeneratorExit);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (d->ends_span) span_end(d->span, failed);
    else span_suspend(d->span);
    PyErr_Restore(type, value, trace);
    return returned && take_return(result) ? PYGEN_RETURN : PYGEN_ERROR;
}

static PySendResult sent(Driven *d, PySendResult how, PyObject **result)
{
    if (how == PYGEN_ERROR) return finished(d, result);
    if (how == PYGEN_NEXT || !d->ends_span) span_suspend(d->span);
    else span_end(d->span, 0);
    return how;
}

static PySendResult resume(Driven *d, PyObject *value, PyObject **result)
{
    *result = NULL;
    if (!d->body) { PyErr_SetNone(PyExc_StopIteration); return finished(d, result); }
    span_resume(d->span);
#if PY_VERSION_HEX >= 0x030a0000
    return sent(d, PyIter_Send(d->body, value, result), result);
#else
    int plain = value == Py_None && PyIter_Check(d->body); /* as PyIter_Send of later versions */
    *result = plain ? Py_TYPE(d->body)->tp_iternext(d->body) : PyObject_CallMethodObjArgs(d->body, s_send, value, NULL);
    if (!*result && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
    return sent(d, *result ? PYGEN_NEXT : PYGEN_ERROR, result);
#endif
}

static PyObject *as_iterator(PySendResult how, PyObject *result)
{
    if (how == PYGEN_NEXT) return result;
    if (how == PYGEN_RETURN) {
        stop_with(result);
        Py_DECREF(result);
    }
    return NULL;
}

static PyObject *driven_next(PyObject *self)
{
    PyObject *result;
    PySendResult how = resume((Driven *)self, Py_None, &result);
    if (how == PYGEN_RETURN && result == Py_None) Py_CLEAR(result); /* an end needs no exception, nor memory for one */
    return how == PYGEN_RETURN && !result ? NULL : as_iterator(how, result);
}

static PyObject *driven_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    PySendResult how = resume((Driven *)self, value, &result);
    return as_iterator(how, result);
}

static PyObject *driven_throw(PyObject *self, PyObject *args)
{
    Driven *d = (Driven *)self;
    PyObject *throw = d->body ? PyObject_GetAttr(d->body, s_throw) : NULL;
    if (!throw) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "this coroutine or generator is finished");
        return NULL;
    }
    span_resume(d->span);
    PyObject *result = PyObject_Call(throw, args, NULL);
    Py_DECREF(throw);
    PySendResult how = sent(d, result ? PYGEN_NEXT : PYGEN_ERROR, &result);
    return as_iterator(how, result);
}

static PyObject *driven_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Driven *d = (Driven *)self;
    if (!d->body) Py_RETURN_NONE;
    if (d->span->begun) span_resume(d->span);
    PyObject *done = PyObject_CallMethodObjArgs(d->body, s_close, NULL);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!d->ends_span) span_suspend(d->span);
    else if (d->span->begun) span_end(d->span, !done);
    PyErr_Restore(type, value, trace);
    return done;
}

#if PY_VERSION_HEX >= 0x030a0000
static PySendResult driven_am_send(PyObject *self, PyObject *value, PyObject **result)
{
    return resume((Driven *)self, value, result);
}
#endif

static int driven_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Driven *)self)->body);
#if PY_VERSION_HEX >= 0x03090000
    Py_VISIT(Py_TYPE(self));
#endif
    return 0;
}

static int driven_clear(PyObject *self)
{
    Py_CLEAR(((Driven *)self)->body);
    return 0;
}

static void driven_dealloc(PyObject *self)
{
    Driven *d = (Driven *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    Py_CLEAR(d->body); /* its frames leave their ranges first */
    if (d->ends_span && d->span->begun) span_end(d->span, 1);
    Py_DECREF(d->span);
    PyErr_Restore(kind, value, trace);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* What has send, throw and close: the body itself, or what its __await__ or __iter__ gives. New reference. */
static PyObject *resumable(PyObject *body)
{
    if (PyCoro_CheckExact(body) || PyGen_CheckExact(body)) return Py_NewRef(body);
    PyAsyncMethods *async = Py_TYPE(body)->tp_as_async;
    if (async && async->am_await) return async->am_await(body);
    return PyObject_GetIter(body);
}

static PyObject *new_driven(Span *span, PyObject *body, int ends_span)
{
    PyObject *inner = resumable(body);
    if (!inner) return NULL;
    Driven *d = PyObject_GC_New(Driven, Driven_Type);
    if (!d) { note_fault("driven"); return inner; } /* it runs outside of the range */
    d->span = (Span *)Py_NewRef((PyObject *)span);
    d->body = inner;
    d->ends_span = (uint8_t)ends_span;
    PyObject_GC_Track((PyObject *)d);
    return (PyObject *)d;
}

static PyMethodDef driven_methods[] = {{"send", driven_send, METH_O, "Resume the body with a value."},
                                       {"throw", driven_throw, METH_VARARGS, "Resume the body with an exception."},
                                       {"close", driven_close, METH_NOARGS, "Close the body, and the range with it."},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot driven_slots[] = {{Py_tp_dealloc, driven_dealloc}, {Py_tp_traverse, driven_traverse},
                                     {Py_tp_clear, driven_clear},
                                     {Py_am_await, ready_self}, {Py_tp_iter, ready_self}, {Py_tp_iternext, driven_next},
#if PY_VERSION_HEX >= 0x030a0000
                                     {Py_am_send, driven_am_send},
#endif
                                     {Py_tp_methods, driven_methods}, {Py_tp_doc, (void *)doc_driven},
                                     {0, NULL}};
static PyType_Spec driven_spec = {"mstxkit.engine.native.hot.Driven", sizeof(Driven), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, driven_slots};

/* ---- Span ---- */
static Span *g_no_span;         /* of g_nothing, and ended before it began */

static Span *new_span(Range *range)
{
    if (!range) return NULL;
    Span *s = PyObject_New(Span, Span_Type);
    if (!s) { Py_DECREF(range); return NULL; }
    memset((char *)s + sizeof(PyObject), 0, sizeof(Span) - sizeof(PyObject));
    s->range = range;
    return s;
}

/* Of g_nothing there is one only: two could not be in it at once. */
static Span *span_of(Range *range)
{
    Span *s = range == g_nothing ? NULL : new_span(range);
    if (s || !range) return s;
    if (PyErr_Occurred()) note_fault("span");
    return (Span *)Py_NewRef((PyObject *)g_no_span);
}

static PyObject *span_drive(PyObject *self, PyObject *body) { return new_driven((Span *)self, body, 0); }

static PyObject *span_close(PyObject *self, PyObject *error)
{
    int failed = PyObject_IsTrue(error);
    if (failed < 0) note_fault("span.close");
    if (((Span *)self)->begun) span_end((Span *)self, failed != 0);
    Py_RETURN_NONE;
}

static void span_dealloc(PyObject *self)
{
    Span *s = (Span *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (s->begun) span_end(s, 1);
    for (Range *r = s->parked.top; r; r = r->parent) r->track = NULL; /* this struct goes away */
    Py_DECREF(s->range);
    PyErr_Restore(kind, value, trace);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {{"drive", span_drive, METH_O, "Run one awaitable inside the span."},
                                     {"close", span_close, METH_O,
                                      "End the span; `error` says whether it failed."},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot span_slots[] = {{Py_tp_dealloc, span_dealloc}, {Py_tp_methods, span_methods},
                                   {Py_tp_doc, (void *)doc_span}, {0, NULL}};
static PyType_Spec span_spec = {"mstxkit.engine.native.hot.Span", sizeof(Span), 0, Py_TPFLAGS_DEFAULT, span_slots};
