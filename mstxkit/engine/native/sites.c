/* Call sites: a name, domain and own stage, interned once and for the life of the process. */
#include "sites.h"

#include "faults.h"
#include "live.h"
#include "words.h"

static PyObject *g_by_name;      /* str -> Site, for plain names; (str, str or None, str or None) -> Site for others */
static PyObject *g_stage_ids;    /* stage key -> int */
static Site *g_catch_all;

enum { CACHE_BITS = 10 };

static struct { PyObject *name, *stage, *domain; Site *site; } g_cache[1 << CACHE_BITS];

/* Was a text cut to the limit on its way to `bytes`? */
static void count_cut(PyObject *text, PyObject *bytes)
{
    if (PyBytes_GET_SIZE(bytes) < 4000 || PyUnicode_GET_LENGTH(text) <= 1024) return;
    Py_ssize_t whole = 0;
    if (!PyUnicode_AsUTF8AndSize(text, &whole)) { PyErr_Clear(); whole = PyUnicode_GET_LENGTH(text); }
    g.counters[TEXTS_CUT] += whole > PyBytes_GET_SIZE(bytes);
}

static int define_stage(uint32_t id)
{
    PyObject *key = g_stages[id].key_bytes;
    if (g_stages[id].seq == g.seq) return 1;
    if (!put_text(TEXT_STAGE, id, PyBytes_AS_STRING(key), (uint32_t)PyBytes_GET_SIZE(key), NULL, 0, NULL, 0, 1))
        return 0;
    g_stages[id].seq = g.seq;
    return 1;
}

static COLD int define_site(Site *s)
{
    if (!define_stage(s->own_stage)) return 0;
    struct { uint16_t stage, domain; uint32_t name; } head = {
        (uint16_t)s->own_stage, (uint16_t)PyBytes_GET_SIZE(s->domain_bytes), (uint32_t)PyBytes_GET_SIZE(s->name_bytes)};
    int done = put_text(TEXT_SITE, s->id, &head, sizeof head, PyBytes_AS_STRING(s->domain_bytes), head.domain,
                        PyBytes_AS_STRING(s->name_bytes), head.name, 1);
    if (done) s->seq = g.seq;
    return done;
}

static PyObject *g_module;       /* the first one: who takes it out of sys.modules gets the same again */

/* Too many names, or stages: host/names.py says so. */
static COLD void tell_of_too_many(PyObject *stage)
{
    PyObject *names = PyImport_ImportModule("mstxkit.host.names"), *done = NULL;
    PyObject *mark = stage ? NULL : PyObject_GetAttrString(g_module, "mark");
    if (names && stage) done = PyObject_CallMethod(names, "tell_of_too_many_stages", "O", stage);
    else if (names && mark) done = PyObject_CallMethod(names, "tell_of_too_many", "OO", mark, g_catch_all->name);
    Py_XDECREF(done);
    Py_XDECREF(mark);
    Py_XDECREF(names);
    note_if_failed("engine.intern");
}

/* Keys with a number in them leave room for the others: a program has few stages, and a careless one names requests. */
static uint32_t stages_at_most(PyObject *key)
{
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(key); i++) {
        Py_UCS4 c = PyUnicode_READ_CHAR(key, i);
        if (c >= '0' && c <= '9') return NUMBERED_STAGES;
    }
    return STAGE_MAX;
}

/* A failed one leaves its exception: a site without the stage that it has would be a wrong record. */
static int stage_id(PyObject *key, uint32_t *id)
{
    *id = 0;
    if (!key || key == Py_None) return 1;
    PyObject *known = PyDict_GetItemWithError(g_stage_ids, key);
    if (known) *id = (uint32_t)PyLong_AsUnsignedLong(known);
    if (known || PyErr_Occurred()) return known != NULL;
    if (g_stage_count >= stages_at_most(key)) { tell_of_too_many(key); return 1; }
    uint32_t next = g_stage_count + 1;
    PyObject *number = PyLong_FromUnsignedLong(next), *bytes = PyUnicode_AsUTF8String(key);
    int done = number && bytes && PyDict_SetItem(g_stage_ids, key, number) == 0;
    Py_XDECREF(number);
    if (!done) { Py_XDECREF(bytes); return 0; }
    g_stages[next].key = Py_NewRef(key);
    g_stages[next].key_bytes = bytes;
    *id = g_stage_count = next;
    return 1;
}

static int fill_site(Site *s, PyObject *described)
{
    PyObject *name, *domain, *key, *message, *message_domain;
    if (!PyArg_ParseTuple(described, "SSOUU", &name, &domain, &key, &message, &message_domain)) return 0;
    s->name_bytes = Py_NewRef(name);
    s->domain_bytes = Py_NewRef(domain);
    s->message = Py_NewRef(message);
    s->message_domain = Py_NewRef(message_domain);
    if (!(s->message_c = PyUnicode_AsUTF8(message)) || !stage_id(key, &s->own_stage)) return 0;
    return PyUnicode_Compare(message_domain, s_default) == 0 ||
        (s->message_domain_c = PyUnicode_AsUTF8(message_domain));
}

static Site *site(PyObject *name, PyObject *stage, PyObject *domain, PyObject *described)
{
    Site *s = PyObject_New(Site, Site_Type);
    if (!s) return NULL;
    memset((char *)s + sizeof(PyObject), 0, sizeof(Site) - sizeof(PyObject));
    s->name = Py_NewRef(name);
    s->stage = Py_NewRef(stage ? stage : Py_None);
    s->domain = Py_NewRef(domain ? domain : s_default);
    if (!fill_site(s, described)) { Py_DECREF(s); return NULL; }
    s->is_watched = s->own_stage != 0;
    if (PyUnicode_Check(name)) count_cut(name, s->name_bytes);
    s->countdown = (int32_t)(s->period = FIRST_PERIOD);
    return s;
}

/* The dict keeps it, and it has an id, or it is gone. */
static Site *keep_site(Site *s, PyObject *key)
{
    if (!s) return NULL;
    s->id = ++g_site_count;
    int kept = PyDict_SetItem(g_sites, key, (PyObject *)s) == 0;
    Py_DECREF(s);
    if (kept) return s;
    g_site_count--;
    return NULL;
}

static COLD Site *catch_all(void)
{
    static int told;
    g.counters[NAMES_CAPPED]++;
    if (!told) {
        told = 1;
        tell_of_too_many(NULL);
    }
    return g_catch_all;
}

static int is_text_or_none(PyObject *given) { return !given || PyUnicode_CheckExact(given); }

/* Under what a site is found again without running Python, whose first steps after a sleep take fifty times as long.
 * New reference; NULL: not everything is plain text. */
static PyObject *key_by_name(PyObject *name, PyObject *stage, PyObject *domain)
{
    if (!PyUnicode_CheckExact(name) || !is_text_or_none(stage) || !is_text_or_none(domain)) return NULL;
    if (!stage && !domain) return Py_NewRef(name);
    PyObject *key = PyTuple_Pack(3, name, stage ? stage : Py_None, domain ? domain : Py_None);
    if (!key) PyErr_Clear();
    return key;
}

static void keep_by_name(PyObject *by_name, Site *site)
{
    Py_ssize_t room = site->own_stage ? SITE_LIMIT + STAGE_MAX : SITE_LIMIT;
    if (by_name && PyDict_GET_SIZE(g_by_name) < room) PyDict_SetItem(g_by_name, by_name, (PyObject *)site);
}

static Site *described_site(PyObject *name, PyObject *stage, PyObject *domain, PyObject *by_name);

/* Is it called as its stage is? There is room for these, STAGE_MAX of them, when there are too many names. */
static int is_called_as_its_stage(PyObject *described, uint32_t own_stage)
{
    PyObject *name = PyTuple_GET_ITEM(described, 0), *domain = PyTuple_GET_ITEM(described, 1);
    return own_stage && strcmp(PyBytes_AS_STRING(domain), "default") == 0 &&
           PyObject_RichCompareBool(name, g_stages[own_stage].key_bytes, Py_EQ) == 1;
}

static COLD Site *new_site(PyObject *name, PyObject *stage, PyObject *domain, PyObject *described, PyObject *key)
{
    uint32_t own_stage = 0;
    if (g_site_count < SITE_LIMIT) return keep_site(site(name, stage, domain, described), key);
    PyObject *of = PyTuple_GET_ITEM(described, 2);
    if (!stage_id(of, &own_stage)) return NULL;
    if (is_called_as_its_stage(described, own_stage))
        return keep_site(site(name, stage, domain, described), key);
    Site *other = catch_all();
    return own_stage ? described_site(of, of, NULL, NULL) : other;
}

static Site *described_site(PyObject *name, PyObject *stage, PyObject *domain, PyObject *by_name)
{
    PyObject *described = PyObject_CallFunctionObjArgs(g.describe, name, stage ? stage : Py_None,
                                                       domain ? domain : s_default, NULL);
    PyObject *key = described ? PyTuple_GetSlice(described, 0, 3) : NULL;
    uint64_t capped = g.counters[NAMES_CAPPED];
    Site *site = NULL;
    if (key) {
        site = (Site *)PyDict_GetItemWithError(g_sites, key);
        if (!site && !PyErr_Occurred()) site = new_site(name, stage, domain, described, key);
        if (site && capped == g.counters[NAMES_CAPPED]) keep_by_name(by_name, site);
    }
    Py_XDECREF(key);
    Py_XDECREF(described);
    int no_memory = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError);
    note_if_failed("engine.intern");
    return site || no_memory ? site : g_catch_all;
}

/* A new reference is not given: sites live as long as the process. NULL only when memory is short: then nothing is
 * recorded rather than under another name. No exception is left. */
static COLD Site *intern_slow(PyObject *name, PyObject *stage, PyObject *domain)
{
    PyObject *by_name = key_by_name(name, stage, domain);
    Site *site = by_name ? (Site *)PyDict_GetItemWithError(g_by_name, by_name) : NULL;
    if (!site && g_site_count >= SITE_LIMIT && by_name == name) site = catch_all();
    if (!site) site = described_site(name, stage, domain, by_name);
    Py_XDECREF(by_name);
    return site;
}

static inline Site *site_of(PyObject *name, PyObject *stage, PyObject *domain)
{
    uintptr_t p = (uintptr_t)name ^ ((uintptr_t)stage << 3) ^ ((uintptr_t)domain << 5);
    uint32_t slot = (uint32_t)((p >> 4 ^ p >> (4 + CACHE_BITS)) & ((1u << CACHE_BITS) - 1));
    if (LIKELY(g_cache[slot].name == name && g_cache[slot].stage == stage && g_cache[slot].domain == domain))
        return g_cache[slot].site;
    uint64_t capped = g.counters[NAMES_CAPPED];
    Site *site = intern_slow(name, stage, domain);
    if (site && capped == g.counters[NAMES_CAPPED]) { /* else each is counted */
        Py_INCREF(name);
        Py_XINCREF(stage);
        Py_XINCREF(domain);
        PyObject *old_name = g_cache[slot].name, *old_stage = g_cache[slot].stage, *old_domain = g_cache[slot].domain;
        g_cache[slot].name = name;
        g_cache[slot].stage = stage;
        g_cache[slot].domain = domain;
        g_cache[slot].site = site;
        Py_XDECREF(old_name);
        Py_XDECREF(old_stage);
        Py_XDECREF(old_domain);
    }
    return site;
}

/* NULL where the caller gave the default, so that the common case has one cache key. */
static inline PyObject *given(PyObject *value, PyObject *usual)
{
    if (!value || value == Py_None || value == usual) return NULL;
    if (usual && PyUnicode_CheckExact(value) && PyUnicode_Compare(value, usual) == 0) return NULL;
    return value;
}

static Site *as_site(PyObject *value)
{
    if (Py_TYPE(value) == Site_Type) return (Site *)value;
    PyErr_SetString(PyExc_TypeError, "a Site was expected");
    return NULL;
}

static PyObject *site_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    Site *s = (Site *)self;
    if (g.unpickle) return Py_BuildValue("O(OOO)", g.unpickle, s->name, s->stage, s->domain);
    PyErr_SetString(PyExc_TypeError, "a Site pickles as a call of the site hook, and none is set");
    return NULL;
}

static PyObject *site_repr(PyObject *self)
{
    Site *s = (Site *)self;
    return PyUnicode_FromFormat("Site(%R, stage=%R, domain=%R)", s->name, s->stage, s->domain);
}

static void site_dealloc(PyObject *self)
{
    Site *s = (Site *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *held[] = {s->name, s->stage, s->domain, s->name_bytes, s->domain_bytes, s->message, s->message_domain};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) Py_XDECREF(held[i]);
    PyMem_RawFree(s->limits);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef site_methods[] = {{"__reduce__", site_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMemberDef site_members[] = {
    {"name", T_OBJECT, offsetof(Site, name), READONLY, "The name as given."},
    {"stage", T_OBJECT, offsetof(Site, stage), READONLY, "The site's own stage, or None."},
    {"domain", T_OBJECT, offsetof(Site, domain), READONLY, "The mstx domain."},
    {"id", T_UINT, offsetof(Site, id), READONLY, "Id in this process's live file."},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot site_slots[] = {{Py_tp_dealloc, site_dealloc}, {Py_tp_repr, site_repr},
                                   {Py_tp_methods, site_methods},
                                   {Py_tp_members, site_members}, {Py_tp_doc, (void *)doc_site}, {0, NULL}};
static PyType_Spec site_spec = {"mstxkit.engine.native.hot.Site", sizeof(Site), 0, Py_TPFLAGS_DEFAULT, site_slots};

/* `name` is interned. */
static inline int is_name(PyObject *key, PyObject *name)
{
    return key == name || (UNLIKELY(!PyUnicode_CHECK_INTERNED(key)) && PyUnicode_Compare(key, name) == 0);
}
