/* The calls that make ranges and marks, of programs and of generated wrappers. */
#include "attributes.h"
#include "clock.h"
#include "driven.h"
#include "faults.h"
#include "free_ranges.h"
#include "range.h"
#include "range_object.h"
#include "sinks.h"
#include "sites.h"
#include "tracks.h"
#include "watch.h"

/* ---- making ranges ---- */
static inline void add_attribute(Range *r, PyObject *key, PyObject *value)
{
    r->rare = 1;
    r->unsure |= !is_plain(value);
    if (r->inline_count < INLINE_ATTRIBUTES) {
        r->keys[r->inline_count] = Py_NewRef(key);
        r->values[r->inline_count++] = Py_NewRef(value);
    } else if ((!r->extra && !(r->extra = PyDict_New())) || PyDict_SetItem(r->extra, key, value) < 0) {
        note_fault("range.attribute"); /* the range goes without it */
    }
}

/* The keywords of mstx_range: stage, domain, stream; all others but number `skip` are attributes. `fixed_stage`:
 * stage() has none. */
static void take_keywords(Range *r, PyObject *const *values, PyObject *kwnames, Py_ssize_t skip, int fixed_stage)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
        if (i == skip) continue;
        PyObject *key = PyTuple_GET_ITEM(kwnames, i), *value = values[i];
        r->rare = 1;
        if (!fixed_stage && is_name(key, s_stage)) Py_XSETREF(r->stage_key, Py_XNewRef(given(value, NULL)));
        else if (is_name(key, s_domain)) Py_XSETREF(r->domain, Py_XNewRef(given(value, s_default)));
        else if (is_name(key, s_stream)) Py_XSETREF(r->stream, Py_XNewRef(given(value, NULL)));
        else add_attribute(r, key, value);
    }
}

static Range *range_with_keywords(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, int is_stage)
{
    PyObject *name = n == 1 ? args[0] : NULL;
    Py_ssize_t skip = -1;
    if (n == 0 && kwnames) /* mstx_range(name="x") */
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
            PyObject *key = PyTuple_GET_ITEM(kwnames, i);
            if (PyUnicode_CompareWithASCIIString(key, is_stage ? "key" : "name") == 0) { name = args[i]; skip = i; }
        }
    if (!name)
        return (Range *)wrong_arguments(is_stage ? "stage(key, **attributes) takes one positional argument"
                                                 : "mstx_range(name, *, stage=None, domain='default', stream=None, "
                                                   "**attributes) takes one positional argument");
    Range *r = new_range();
    if (!r) return NULL;
    r->name = Py_NewRef(name);
    if (is_stage) { r->stage_key = Py_NewRef(name); r->rare = 1; }
    if (kwnames) take_keywords(r, args + n, kwnames, skip, is_stage);
    return r;
}

/* What a decorator without a name is given in its place: `names.FUNCTIONS`. */
static inline int is_function(PyObject *name)
{
    PyTypeObject *type = Py_TYPE(name);
    return UNLIKELY(type != &PyUnicode_Type) &&
           (type == &PyFunction_Type || type == &PyStaticMethod_Type || type == &PyClassMethod_Type);
}

/* `@stage` and `@mstx_range`: the function is what they decorate. */
static COLD PyObject *range_or_decorated(Range *r)
{
    if (!r || !is_function(r->name)) return (PyObject *)or_nothing(r);
    PyObject *decorated = decorate(r, r->name);
    Py_DECREF(r);
    return decorated;
}

static PyObject *hot_mstx_range(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    (void)self;
    if (UNLIKELY(n != 1 || kwnames || is_function(args[0])))
        return range_or_decorated(range_with_keywords(args, n, kwnames, 0));
    Range *r = new_range();
    if (UNLIKELY(!r)) return (PyObject *)or_nothing(r);
    Py_INCREF(args[0]);
    r->name = args[0];
    return (PyObject *)r;
}

static PyObject *hot_stage(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    (void)self;
    return range_or_decorated(range_with_keywords(args, n, kwnames, 1));
}

/* site, stream=None, attributes=None: positional; the last two for wrappers that have them */
static HOT Range *range_of_site(PyObject *const *args, Py_ssize_t n)
{
    if (UNLIKELY(n < 1 || Py_TYPE(args[0]) != Site_Type)) return (Range *)wrong_arguments("a Site was expected");
    Range *r = new_range();
    if (UNLIKELY(!r)) return or_nothing(r);
    r->site = (Site *)args[0];
    if (UNLIKELY(n > 1)) {
        r->rare = 1;
        r->stream = Py_XNewRef(given(args[1], NULL));
        if (n > 2 && PyDict_Check(args[2]) && PyDict_GET_SIZE(args[2])) {
            r->extra = Py_NewRef(args[2]);
            r->unsure = 1;
        }
    }
    return r;
}

static HOT PyObject *hot_timed(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return (PyObject *)range_of_site(args, n);
}

/* The one question that a wrapper asks while everything is off. Answered in C, so that no flag becomes a guard of
 * torch.compile; METH_O, which CPython calls most cheaply. */
static HOT PyObject *hot_is_on(PyObject *self, PyObject *site)
{
    (void)self, (void)site;
    return Py_NewRef(g.on ? Py_True : Py_False);
}

static PyObject *hot_opened(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return (PyObject *)span_of(range_of_site(args, n));
}

static PyObject *hot_driven(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 2) return wrong_arguments("driven(site, body, stream=None, attributes=None)");
    PyObject *of_site[3] = {args[0], n > 2 ? args[2] : Py_None, n > 3 ? args[3] : Py_None};
    Span *span = span_of(range_of_site(of_site, n > 2 ? 3 : 1));
    if (!span) return NULL;
    PyObject *driven = new_driven(span, args[1], 1);
    Py_DECREF(span);
    return driven;
}

static PyObject *hot_intern(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    static char *names[] = {"name", "stage", "domain", NULL};
    PyObject *name, *stage = NULL, *domain = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", names, &name, &stage, &domain)) return NULL;
    Site *site = intern_slow(name, given(stage, NULL), given(domain, s_default));
    return site ? Py_NewRef((PyObject *)site) : PyErr_NoMemory();
}

/* ---- marks ---- */
static COLD void record_mark(Range *r)
{
    Track *t = current_track();
    if (!t || !(r->site = site_of(r->name, r->stage_key, r->domain))) return;
    mark_in_sinks(r->site, r->stream);
    if (!(g.on & ON_RECORD)) return;
    uint64_t at = now();
    if (r->unsure && !is_all_plain(r)) r->settled = settled_attributes(r, &at);
    r->seq = 0;
    r->home = t;
    r->stage = t->stage;
    r->w1 = first_word(r->site, t);
    uint64_t w2 = (uint64_t)(t->depth > 255 ? 255 : t->depth) << 40 | (uint64_t)KIND_MARK << KIND_SHIFT;
    write_with_attributes(r, at, w2, 0);
    r->home = NULL;
}

static PyObject *hot_mark(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    (void)self;
    if (n != 1) return wrong_arguments("mark(message, *, domain='default', stream=None, **attributes)");
    if (!g.on) Py_RETURN_NONE;
    if (g.on & ON_AWAITED) tell_first();
    Range *r = range_with_keywords(args, n, NULL, 0);
    if (!r) { note_fault("mark"); Py_RETURN_NONE; }
    if (kwnames) take_keywords(r, args + n, kwnames, -1, 1);
    record_mark(r);
    Py_DECREF(r);
    Py_RETURN_NONE;
}
