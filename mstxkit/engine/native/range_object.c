/* A range as Python sees it: what `with`, `async with` and `@` make of it.
 *
 * `__enter__` and `__exit__` are looked up without a bound method: type(range).__enter__ is a SelfDescr, whose
 * lookup gives the range itself, and the range is callable: with no argument it begins, with three it ends, with one
 * it decorates.
 */
#include "range_object.h"

#include "attributes.h"
#include "entering.h"
#include "faults.h"
#include "free_ranges.h"
#include "ready.h"
#include "sites.h"
#include "words.h"

/* ---- the object ---- */

static HOT void clear_range(Range *r)
{
    for (int i = 0; i < r->inline_count; i++) {
        Py_CLEAR(r->keys[i]);
        Py_CLEAR(r->values[i]);
    }
    r->inline_count = 0;
    Py_CLEAR(r->extra);
    Py_CLEAR(r->added);
    Py_CLEAR(r->settled);
    Py_CLEAR(r->stage_key);
    Py_CLEAR(r->domain);
    Py_CLEAR(r->stream);
    r->busy = 0;
    r->rare = r->unsure = 0;
}

static COLD void end_forgotten(Range *r)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    while (r->begun) end(r, 1);
    PyErr_Restore(type, value, trace);
}

static HOT void range_dealloc(PyObject *self)
{
    Range *r = (Range *)self;
    if (UNLIKELY(r->weak != NULL)) PyObject_ClearWeakRefs(self);
    if (UNLIKELY(r->begun)) end_forgotten(r);
    Py_CLEAR(r->name);
    r->site = NULL;
    r->entered = 0;
    if (UNLIKELY(r->rare)) clear_range(r);
    r->next_free = g_free_ranges;
    g_free_ranges = r;
}

/* An iterator says by StopIteration that it is at its end: no failure. */
static inline int is_failure(PyObject *type)
{
    return type != Py_None && type != PyExc_GeneratorExit && type != PyExc_StopIteration &&
           type != PyExc_StopAsyncIteration;
}

static inline void leave(Range *r, PyObject *type)
{
    if (UNLIKELY(r->entered == 0)) { note_fault("range.exit_without_enter"); return; }
    r->entered--;
    if (LIKELY(r->begun)) end(r, is_failure(type));
}

/* A new reference; None: there are none. */
static PyObject *all_attributes(Range *r)
{
    PyObject *all = r->extra ? PyDict_Copy(r->extra) : r->inline_count ? PyDict_New() : Py_NewRef(Py_None);
    for (int i = 0; all && i < r->inline_count; i++)
        if (!PyDict_SetDefault(all, r->keys[i], r->values[i])) Py_CLEAR(all);
    return all;
}

/* name, stage, domain, stream, attributes: what makes another one like it */
static COLD PyObject *settings_of(Range *r)
{
    PyObject *attributes = all_attributes(r);
    if (!attributes) return NULL;
    PyObject *none = Py_None, *name = r->name ? r->name : r->site ? r->site->name : none;
    PyObject *stage = r->stage_key ? r->stage_key : r->site ? r->site->stage : none;
    PyObject *domain = r->domain ? r->domain : r->site ? r->site->domain : s_default;
    PyObject *stream = r->stream ? r->stream : none;
    PyObject *settings = PyTuple_Pack(5, name, stage, domain, stream, attributes);
    Py_DECREF(attributes);
    return settings;
}

static COLD PyObject *decorate(Range *r, PyObject *function)
{
    if (r == g_nothing) return Py_NewRef(function);
    PyObject *settings = settings_of(r);
    PyObject *decorated = settings ? PyObject_CallFunctionObjArgs(g.decorate, settings, function, NULL) : NULL;
    Py_XDECREF(settings);
    return decorated;
}

static PyObject *range_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *settings = settings_of((Range *)self);
    return settings ? Py_BuildValue("ON", g.unpickle ? g.unpickle : Py_None, settings) : NULL;
}

static HOT PyObject *range_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
{
    Range *r = (Range *)self;
    size_t n = (size_t)PyVectorcall_NARGS(flags);
    if (n == 0 && !kwnames) {
        r->entered++;
        begin(r, 0);
        Py_INCREF(self);
        return self;
    }
    if (LIKELY(n == 3)) {
        leave(r, args[0]);
        Py_RETURN_NONE;
    }
    if (n == 1 && !kwnames && (PyCallable_Check(args[0]) || Py_TYPE(args[0])->tp_descr_get))
        return decorate(r, args[0]); /* a property, a class method: only what they hold is called */
    PyErr_SetString(PyExc_TypeError, "a range is used in a with statement, or decorates one function");
    return NULL;
}

static PyObject *range_set(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Range *r = (Range *)self;
    while (r->inner) r = r->inner;
    if (n) { PyErr_SetString(PyExc_TypeError, "set() takes attributes by keyword only"); return NULL; }
    if (r->begun != OPEN || !kwnames || r == g_nothing) Py_RETURN_NONE;
    if (!r->added && !(r->added = PyDict_New())) { note_fault("range.set"); Py_RETURN_NONE; }
    r->rare = 1;
    PyObject *added = Py_NewRef(r->added); /* who is told of a fault may end the range */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
        r->unsure |= !is_plain(args[i]);
        if (PyDict_SetItem(added, PyTuple_GET_ITEM(kwnames, i), args[i]) < 0) note_fault("range.set");
    }
    Py_DECREF(added);
    Py_RETURN_NONE;
}

static PyObject *range_aenter(PyObject *self, PyObject *unused)
{
    (void)unused;
    ((Range *)self)->entered++;
    begin((Range *)self, 1);
    return ready(self, g_ready_nothing); /* its set() does nothing; `self` ends all the same */
}

static PyObject *range_aexit(PyObject *self, PyObject *args)
{
    leave((Range *)self, PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None);
    return ready(Py_None, g_ready_none);
}

static PyObject *range_get(PyObject *self, void *which)
{
    Range *r = (Range *)self;
    PyObject *of_site = !r->site ? NULL : which == (void *)0 ? r->site->name : which == (void *)1 ? r->site->stage
                                                                                                 : r->site->domain;
    PyObject *own = which == (void *)0 ? r->name : which == (void *)1 ? r->stage_key : r->domain;
    if (own) return Py_NewRef(own);
    if (of_site) return Py_NewRef(of_site);
    return Py_NewRef(which == (void *)2 ? s_default : Py_None);
}

static PyMethodDef range_methods[] = {
    {"set", (PyCFunction)(void *)range_set, METH_FASTCALL | METH_KEYWORDS,
     "Add attributes to the innermost open entry before its end."},
    {"__reduce__", range_reduce, METH_NOARGS, NULL},
    {"__aenter__", range_aenter, METH_NOARGS, NULL},
    {"__aexit__", range_aexit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef range_getset[] = {{"name", range_get, NULL, "The range's name.", (void *)0},
                                     {"stage", range_get, NULL, "The range's own stage, or None.", (void *)1},
                                     {"domain", range_get, NULL, "The mstx domain.", (void *)2},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef range_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Range, call), READONLY, NULL},
                                      {"__weaklistoffset__", T_PYSSIZET, offsetof(Range, weak), READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyType_Slot range_slots[] = {{Py_tp_dealloc, range_dealloc}, {Py_tp_call, PyVectorcall_Call},
                                    {Py_tp_methods, range_methods},
                                    {Py_tp_getset, range_getset}, {Py_tp_members, range_members},
                                    {Py_tp_doc, (void *)doc_range}, {0, NULL}};
static PyType_Spec range_spec = {"mstxkit.engine.native.hot.Range", sizeof(Range), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, range_slots};

/* ---- SelfDescr ---- */
static PyTypeObject *SelfDescr_Type;

static HOT PyObject *selfdescr_get(PyObject *self, PyObject *obj, PyObject *type)
{
    (void)type;
    return Py_NewRef(obj ? obj : self);
}

static PyObject *selfdescr_call(PyObject *self, PyObject *args, PyObject *kwargs)
{ /* type(cm).__enter__(cm) and type(cm).__exit__(cm, t, v, tb), as contextlib.ExitStack does */
    (void)self;
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    if ((n != 1 && n != 4) || kwargs || Py_TYPE(PyTuple_GET_ITEM(args, 0)) != Range_Type) {
        PyErr_SetString(PyExc_TypeError, "a range was expected");
        return NULL;
    }
    return range_call(PyTuple_GET_ITEM(args, 0), ((PyTupleObject *)args)->ob_item + 1, (size_t)n - 1, NULL);
}

static PyType_Slot selfdescr_slots[] = {{Py_tp_descr_get, selfdescr_get}, {Py_tp_call, selfdescr_call}, {0, NULL}};
static PyType_Spec selfdescr_spec = {"mstxkit.engine.native.hot.SelfDescr", sizeof(PyObject), 0,
                                     Py_TPFLAGS_DEFAULT, selfdescr_slots};
