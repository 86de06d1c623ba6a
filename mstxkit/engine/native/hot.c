/* mstxkit's hot path: ranges, marks, steps and the recorder's live file, in one extension module.
 *
 * The interface is that of docs/internals/engine.md; engine/twin/hot.py is the same in Python.
 *   live.h    clock, banks, texts, slots, records     sites.h   interned names and stages
 *   tracks.h  threads and contexts                    sinks.h   live outputs
 *   watch.h   hooks on stages and steps               range.h   a range from begin to end
 *   limits.h  storms and cost                         driven.h  coroutines and generators
 *   stored.h  what patched calls read                 sums.h    what is handed over of a stage
 * Needs the GIL (it does not declare Py_mod_gil, so a free-threaded interpreter turns the GIL on) and one interpreter.
 */
#include <sys/prctl.h>

#include "driven.h"
#include "stored.h"
#include "texts.h"
#include "words.h"

/* ---- a bank just activated: what is open must be readable from it ---- */
static void define_open(void)
{
    g_stages[0].seq = g.seq;
    for (uint32_t slot = 0; slot < g.slot_count; slot++) {
        Range *r = g.slot_ranges[slot];
        if (r) define(r);
    }
}

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

static COLD PyObject *wrong_arguments(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return NULL;
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

static PyObject *hot_mstx_range(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    (void)self;
    if (UNLIKELY(n != 1 || kwnames)) return (PyObject *)or_nothing(range_with_keywords(args, n, kwnames, 0));
    Range *r = new_range();
    if (UNLIKELY(!r)) return (PyObject *)or_nothing(r);
    Py_INCREF(args[0]);
    r->name = args[0];
    return (PyObject *)r;
}

static PyObject *hot_stage(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    (void)self;
    return (PyObject *)or_nothing(range_with_keywords(args, n, kwnames, 1));
}

/* site, stream=None, attributes=None: positional; the last two for wrappers that have them */
static Range *range_of_site(PyObject *const *args, Py_ssize_t n)
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

static PyObject *hot_timed(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return (PyObject *)range_of_site(args, n);
}

/* The one question that a wrapper asks while everything is off. Answered in C, so that no flag becomes a guard of
 * torch.compile; METH_O, which CPython calls most cheaply. */
static PyObject *hot_is_on(PyObject *self, PyObject *site)
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
    Range *r = range_with_keywords(args, n, NULL, 0);
    if (!r) { note_fault("mark"); Py_RETURN_NONE; }
    if (kwnames) take_keywords(r, args + n, kwnames, -1, 1);
    record_mark(r);
    Py_DECREF(r);
    Py_RETURN_NONE;
}

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

/* ---- attaching to a live file ---- */
static void forget_file(void)
{
    g.on &= ~(uint32_t)ON_RECORD;
    g.base = NULL;
    g.bank = NULL;
    g.records = NULL;
    g.count = g.limit = g.seq = 0;
    g.counters = g.detached_counters;
    g.generation++;
}

static void drop_file(void)
{
    forget_file();
    PyMem_RawFree(g.free_slots);
    PyMem_RawFree(g.slot_ranges);
    g.free_slots = NULL;
    g.slot_ranges = NULL;
    g.free_count = g.slot_count = 0;
    if (g.view.obj) PyBuffer_Release(&g.view);
}

static void stop_beating(void)
{
    if (!g.beat_running) return;
    pthread_mutex_lock(&g.beat_lock);
    g.beat_stop = 1;
    pthread_cond_signal(&g.beat_cond);
    pthread_mutex_unlock(&g.beat_lock);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(g.beat_thread, NULL);
    Py_END_ALLOW_THREADS
    g.beat_running = 0;
}

static PyObject *hot_detach(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    stop_beating();
    drop_file();
    Py_RETURN_NONE;
}

static int is_laid_out(char *base, uint64_t size)
{
    if (size < HEADER_BYTES) return 0;
    uint64_t slots = *u32_at(base, AT_SLOT_COUNT), slots_at = *u64_at(base, AT_SLOTS);
    uint64_t banks = *u32_at(base, AT_BANK_COUNT), banks_at = *u64_at(base, AT_BANKS);
    uint64_t bank_bytes = *u64_at(base, AT_BANK_BYTES);
    return banks && bank_bytes >= 4096 && banks_at <= size && bank_bytes <= (size - banks_at) / banks &&
           slots_at <= size && slots <= (size - slots_at) / SLOT_BYTES;
}

/* What only a recording takes of Python is loaded when one begins. */
static int find_settle(void)
{
    if (g.settle) return 1;
    PyObject *values = PyImport_ImportModule("mstxkit.engine.plain_values");
    g.settle = values ? PyObject_GetAttrString(values, "settle") : NULL;
    Py_XDECREF(values);
    return g.settle != NULL;
}

static PyObject *hot_attach(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *source;
    unsigned long long nonce;
    if (!PyArg_ParseTuple(args, "OK", &source, &nonce) || !find_settle()) return NULL;
    stop_beating();
    drop_file();
    if (PyObject_GetBuffer(source, &g.view, PyBUF_CONTIG) < 0) return NULL;
    char *base = g.view.buf;
    uint64_t size = (uint64_t)g.view.len;
    if (!is_laid_out(base, size)) {
        drop_file();
        PyErr_SetString(PyExc_ValueError, "not the buffer of a live file");
        return NULL;
    }
    uint64_t banks_at = *u64_at(base, AT_BANKS), bank_bytes = *u64_at(base, AT_BANK_BYTES);
    uint32_t slots = *u32_at(base, AT_SLOT_COUNT), banks = *u32_at(base, AT_BANK_COUNT);
    g.free_slots = PyMem_RawCalloc(slots ? slots : 1, sizeof *g.free_slots);
    g.slot_ranges = PyMem_RawCalloc(slots ? slots : 1, sizeof *g.slot_ranges);
    if (!g.free_slots || !g.slot_ranges) {
        drop_file();
        return PyErr_NoMemory();
    }
    g.nonce = nonce;
    g.slot_count = slots;
    g.bank_count = banks;
    g.bank_bytes = bank_bytes;
    g.slots_at = *u64_at(base, AT_SLOTS);
    g.banks_at = banks_at;
    g.counters = u64_at(base, AT_COUNTERS);
    g.free_count = slots;
    for (uint32_t i = 0; i < slots; i++) g.free_slots[i] = slots - 1 - i;
    forget_sums();
    /* last_seq goes on: sites and tracks that an earlier file defined in a bank of the same number must be defined
     * again */
    g.base = base;
    activate(0);
    Py_RETURN_NONE;
}

static PyObject *hot_recording(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(g.on != 0);
}
static PyObject *hot_set_recording(PyObject *self, PyObject *value)
{
    (void)self;
    int on = PyObject_IsTrue(value);
    if (on < 0) return NULL;
    if (on && g.base) g.on |= ON_RECORD;
    else g.on &= ~(uint32_t)ON_RECORD;
    Py_RETURN_NONE;
}

/* ---- the sealer's calls ---- */
static PyObject *hot_rotate(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(g.base && (!g.bank || g.count) && rotate_bank());
}

static PyObject *hot_full_bank(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    long found = -1;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; g.base && i < g.bank_count; i++)
        if (*u32_at(bank_at(i), BANK_STATE) == BANK_FULL && *u64_at(bank_at(i), BANK_SEQ) < lowest) {
            lowest = *u64_at(bank_at(i), BANK_SEQ);
            found = (long)i;
        }
    return PyLong_FromLong(found);
}

static char *bank_of(PyObject *number)
{
    long i = PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    if (g.base && i >= 0 && (uint32_t)i < g.bank_count) return bank_at((uint32_t)i);
    PyErr_SetString(PyExc_ValueError, "no such bank");
    return NULL;
}

/* ids of stages, as a tuple of numbers */
static PyObject *stages_of(const Extent *e)
{
    PyObject *ids = PyList_New(0), *id = NULL;
    for (uint32_t stage = 0; ids && stage < 65536; stage++) {
        if (!e->stages[stage >> 6]) stage |= 63; /* none of these */
        if (!(e->stages[stage >> 6] >> (stage & 63) & 1)) continue;
        id = PyLong_FromUnsignedLong(stage);
        if (!id || PyList_Append(ids, id) < 0) Py_CLEAR(ids);
        Py_XDECREF(id);
    }
    PyObject *all = ids ? PyList_AsTuple(ids) : NULL;
    Py_XDECREF(ids);
    return all;
}

/* planes, attributes, their counts and what they reach over, of records that do not change; the GIL is released */
static PyObject *encoded(PyObject *texts, const uint64_t *words, uint64_t count, uint64_t salt)
{
    Counts c;
    Extent *extent = PyMem_Calloc(1, sizeof(Extent));
    if (!extent) {
        Py_XDECREF(texts);
        return PyErr_NoMemory();
    }
    extent->first_step = extent->last_step = NO_STEP;
    Py_BEGIN_ALLOW_THREADS
    c = count_whole(words, count, salt);
    Py_END_ALLOW_THREADS
    PyObject *planes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(c.n * RECORD_BYTES));
    PyObject *attributes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(c.m * RECORD_BYTES));
    PyObject *stages = NULL, *result = NULL;
    if (texts && planes && attributes) {
        Py_BEGIN_ALLOW_THREADS
        encode_records(words, count, salt, c, (unsigned char *)PyBytes_AS_STRING(planes),
                       (unsigned char *)PyBytes_AS_STRING(attributes), extent);
        Py_END_ALLOW_THREADS
        stages = stages_of(extent);
    }
    if (stages)
        result = Py_BuildValue("OOOKK(LLIIO)", texts, planes, attributes, (unsigned long long)c.n,
                               (unsigned long long)c.m, (long long)extent->first, (long long)extent->last,
                               extent->first_step, extent->last_step, stages);
    Py_XDECREF(texts);
    Py_XDECREF(planes);
    Py_XDECREF(attributes);
    Py_XDECREF(stages);
    PyMem_Free(extent);
    return result;
}

static PyObject *encoded_into(char *bank, Py_buffer *room, Py_ssize_t at)
{
    const uint64_t *words = u64_at(bank, BANK_HEADER_BYTES);
    uint64_t count = *u64_at(bank, BANK_COUNT), salt = *u64_at(bank, BANK_SALT);
    if (at < 0 || at > room->len || count * RECORD_BYTES > (uint64_t)(room->len - at)) {
        PyErr_SetString(PyExc_ValueError, "no room for all of the bank's records");
        return NULL;
    }
    Extent *extent = PyMem_Malloc(sizeof(Extent));
    if (!extent) return PyErr_NoMemory();
    unsigned char *planes = (unsigned char *)room->buf + at;
    Counts c;
    int is_encoded = 0;
    Py_BEGIN_ALLOW_THREADS
    c = count_kinds(words, count);
    for (int is_counted = 0; !is_encoded && is_counted < 2; is_counted++) { /* the second time: something is damaged */
        if (is_counted) c = count_whole(words, count, salt);
        memset(extent, 0, sizeof *extent);
        extent->first_step = extent->last_step = NO_STEP;
        is_encoded = encode_records(words, count, salt, c, planes, planes + c.n * RECORD_BYTES, extent);
    }
    Py_END_ALLOW_THREADS
    PyObject *stages = stages_of(extent), *result = NULL;
    if (stages)
        result = Py_BuildValue("KK(LLIIO)", (unsigned long long)c.n, (unsigned long long)c.m,
                               (long long)extent->first, (long long)extent->last, extent->first_step,
                               extent->last_step, stages);
    Py_XDECREF(stages);
    PyMem_Free(extent);
    return result;
}

/* A copy of a bank's texts without their own checksums, which cannot be compressed: a block has one over everything.
 * The last entry lies first; each is its payload, padded to 8 bytes, and 16 bytes about it. */
static PyObject *without_checksums(const char *text, uint64_t bytes)
{
    PyObject *texts = PyBytes_FromStringAndSize(text, (Py_ssize_t)bytes);
    for (uint64_t at = bytes; texts && at >= TRAILER_BYTES;) {
        char *trailer = PyBytes_AS_STRING(texts) + at - TRAILER_BYTES;
        uint32_t length;
        memcpy(&length, trailer, sizeof length);
        uint64_t whole = TRAILER_BYTES + ((uint64_t)length + 7) / 8 * 8;
        if (whole > at) break;
        memset(trailer + TRAILER_BYTES - sizeof(uint32_t), 0, sizeof(uint32_t));
        at -= whole;
    }
    return texts;
}

static PyObject *hot_encode_bank(PyObject *self, PyObject *number)
{
    (void)self;
    char *bank = bank_of(number);
    if (!bank) return NULL;
    uint64_t text = *u64_at(bank, BANK_TEXT);
    PyObject *texts = without_checksums(bank + g.bank_bytes - text, text);
    return encoded(texts, u64_at(bank, BANK_HEADER_BYTES), *u64_at(bank, BANK_COUNT), *u64_at(bank, BANK_SALT));
}

/* bank_texts(index): the bank's texts alone, as encode_bank gives them. */
static PyObject *hot_bank_texts(PyObject *self, PyObject *number)
{
    (void)self;
    char *bank = bank_of(number);
    if (!bank) return NULL;
    uint64_t text = *u64_at(bank, BANK_TEXT);
    return without_checksums(bank + g.bank_bytes - text, text);
}

/* encode_into(index, room, at): planes and attributes of a full bank, into room that is used again and again. */
static PyObject *hot_encode_into(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *number;
    Py_buffer room;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "Ow*n", &number, &room, &at)) return NULL;
    char *bank = bank_of(number);
    PyObject *result = bank ? encoded_into(bank, &room, at) : NULL;
    PyBuffer_Release(&room);
    return result;
}

/* encode_left(raw records, text bytes, salt): encode_bank for a bank that another process left. */
static PyObject *hot_encode_left(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *raw, *texts;
    unsigned long long salt;
    if (!PyArg_ParseTuple(args, "SSK", &raw, &texts, &salt)) return NULL;
    texts = without_checksums(PyBytes_AS_STRING(texts), (uint64_t)PyBytes_GET_SIZE(texts));
    return encoded(texts, (uint64_t *)(void *)PyBytes_AS_STRING(raw),
                   (uint64_t)PyBytes_GET_SIZE(raw) / RECORD_BYTES, salt);
}

static PyObject *hot_release_bank(PyObject *self, PyObject *number)
{
    (void)self;
    char *bank = bank_of(number);
    if (!bank) return NULL;
    if (bank != g.bank) __atomic_store_n(u32_at(bank, BANK_STATE), BANK_FREE, __ATOMIC_RELEASE);
    if (!g.bank) rotate_bank();
    Py_RETURN_NONE;
}

static void deadline_in(struct timespec *at, double seconds)
{
    clock_gettime(CLOCK_MONOTONIC, at);
    uint64_t ns = (uint64_t)at->tv_nsec + (uint64_t)(seconds * 1e9);
    at->tv_sec += (time_t)(ns / 1000000000ull);
    at->tv_nsec = (long)(ns % 1000000000ull);
}

/* Another one once anything was recorded, or a stage entered for the first time. */
static uint64_t recorded_so_far(void)
{
    char *bank = bank_at(*u32_at(g.base, AT_ACTIVE));
    return *u64_at(bank, BANK_SEQ) << 40 ^ *u64_at(bank, BANK_COUNT) << 16 ^ g_seen_count;
}

/* This thread's sleeps may take 50 ms longer, so that the kernel wakes it together with others: a core that is awake,
 * and has its caches filled, costs a fraction. Source: Linux, kernel/futex/core.c futex_setup_timer. */
static void wake_with_others(void) { prctl(PR_SET_TIMERSLACK, 50000000ul, 0, 0, 0); }

static PyObject *slept(PyObject *value, int is_quiet)
{
    double seconds = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) return NULL;
    struct timespec until;
    deadline_in(&until, seconds);
    int woken;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&g.work_lock);
    if (is_quiet && g.base) {
        wake_with_others();
        g.quiet_at = recorded_so_far();
        __atomic_store_n(&g.is_quiet, 1, __ATOMIC_RELEASE);
    }
    while (!g.work_pending && pthread_cond_timedwait(&g.work_cond, &g.work_lock, &until) == 0) {}
    woken = g.work_pending;
    g.work_pending = g.is_quiet = 0;
    pthread_mutex_unlock(&g.work_lock);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(woken);
}

static PyObject *hot_wait(PyObject *self, PyObject *value)
{
    (void)self;
    return slept(value, 0);
}

static PyObject *hot_wait_for_records(PyObject *self, PyObject *value)
{
    (void)self;
    return slept(value, 1);
}

static PyObject *hot_wake(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    wake_sealer();
    Py_RETURN_NONE;
}

/* ---- heartbeat: a thread of its own that needs no GIL ---- */
static void *beat(void *base)
{
    uint64_t beats = 0, next_anchor = 0, period = g.beat_ns;
    static const uint64_t early[] = {10000000, 90000000, 900000000};
    uint64_t started = clock_ns(CLOCK_MONOTONIC), due = started + early[0];
    if (period >= 1000000000) wake_with_others();
    for (;;) {
        uint64_t at = clock_ns(CLOCK_MONOTONIC);
        publish(u64_at(base, AT_HEARTBEAT), at);
        if (UNLIKELY(__atomic_load_n(&g.is_quiet, __ATOMIC_ACQUIRE)) && recorded_so_far() != g.quiet_at) wake_sealer();
        if (beats++ && at >= due) {
            write_anchor(base);
            next_anchor++;
            due = at + (next_anchor < 3 ? early[next_anchor] : 2000000000ull);
        }
        struct timespec until;
        uint64_t pause = at < due && due - at < period ? due - at : period;
        deadline_in(&until, (double)pause * 1e-9);
        pthread_mutex_lock(&g.beat_lock);
        while (!g.beat_stop && pthread_cond_timedwait(&g.beat_cond, &g.beat_lock, &until) == 0) {}
        int stop = g.beat_stop;
        pthread_mutex_unlock(&g.beat_lock);
        if (stop) return NULL;
    }
}

static PyObject *hot_start_heartbeat(PyObject *self, PyObject *value)
{
    (void)self;
    double seconds = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) return NULL;
    if (!g.base || g.beat_running) Py_RETURN_NONE;
    g.beat_ns = (uint64_t)(seconds * 1e9);
    g.beat_stop = 0;
    sigset_t all, before; /* signals belong to the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    g.beat_running = pthread_create(&g.beat_thread, NULL, beat, g.base) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (g.beat_running) Py_RETURN_NONE;
    PyErr_SetString(PyExc_RuntimeError, "can't start new thread");
    return NULL;
}
static PyObject *hot_stop_heartbeat(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    stop_beating();
    Py_RETURN_NONE;
}
static PyObject *hot_anchor(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (g.base) write_anchor(g.base);
    Py_RETURN_NONE;
}

/* ---- clock ---- */
static PyObject *hot_clock_kind(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLong(g.clock);
}

static PyObject *hot_set_clock(PyObject *self, PyObject *value)
{
    (void)self;
    unsigned long kind = PyLong_AsUnsignedLong(value);
    if (PyErr_Occurred()) return NULL;
    int known = kind == CLOCK_MONO || kind == CLOCK_FAKE;
#if defined(__x86_64__)
    known |= kind == CLOCK_TSC;
#elif defined(__aarch64__)
    known |= kind == CLOCK_CNTVCT;
#endif
    if (!known) { PyErr_Format(PyExc_ValueError, "clock %lu is not one of this machine", kind); return NULL; }
    if (g.base) {
        PyErr_SetString(PyExc_ValueError, "the clock cannot change while a live file is attached");
        return NULL;
    }
    g.clock = (uint32_t)kind;
    g.ticks_per_ns = 1.0;
    Anchor first = take_anchor();
    g.first_ticks = first.ticks;
    g.first_ns = first.mono;
    if (kind == CLOCK_TSC || kind == CLOCK_CNTVCT) { /* a first estimate; later anchors refine it */
        struct timespec pause = {0, 1000000};
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS
        Anchor second = take_anchor();
        g.ticks_per_ns = (double)(second.ticks - first.ticks) / (double)(second.mono - first.mono);
    }
    Py_RETURN_NONE;
}
static PyObject *hot_set_fake_ticks(PyObject *self, PyObject *value)
{
    (void)self;
    unsigned long long ticks = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) return NULL;
    g.fake_ticks = ticks;
    Py_RETURN_NONE;
}
static PyObject *hot_now(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLongLong(now());
}
static PyObject *hot_ticks_per_ns(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyFloat_FromDouble(g.ticks_per_ns);
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
static PyObject *hot_set_hooks(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *hooks[5] = {NULL};
    if (!PyArg_ParseTuple(args, "OOOO|O", hooks, hooks + 1, hooks + 2, hooks + 3, hooks + 4)) return NULL;
    Py_XSETREF(g.describe, Py_NewRef(hooks[0]));
    Py_XSETREF(g.utf8, Py_NewRef(hooks[1]));
    Py_XSETREF(g.fault, Py_NewRef(hooks[2]));
    Py_XSETREF(g.decorate, Py_NewRef(hooks[3]));
    if (hooks[4]) Py_XSETREF(g.unpickle, Py_NewRef(hooks[4]));
    if (g_catch_all) Py_RETURN_NONE;
    PyObject *name = PyUnicode_FromString("(too many names)");
    if (!name) return NULL;
    g_catch_all = intern_slow(name, NULL, NULL);
    Py_DECREF(name);
    if (!g_catch_all) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- counters ---- */
static PyObject *hot_count_fault(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    g.counters[FAULTS]++;
    Py_RETURN_NONE;
}
static PyObject *hot_counters(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    uint64_t *c = g.counters;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:I}", "dropped", c[DROPPED], "slots_overflowed",
                         c[SLOTS_OVERFLOWED], "attributes_lost", c[ATTRIBUTES_LOST], "names_capped", c[NAMES_CAPPED],
                         "texts_cut", c[TEXTS_CUT], "faults", c[FAULTS], "coalesced", c[COALESCED],
                         "summaries_lost", g_summaries_lost, "sites", g_site_count, "open",
                         g.slot_count - g.free_count);
}

/* ---- fork: a child that did not go through os.fork() must not write into its parent's file ---- */
static void before_fork(void)
{
    pthread_mutex_lock(&g.beat_lock);
    pthread_mutex_lock(&g.work_lock);
}
static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&g.work_lock);
    pthread_mutex_unlock(&g.beat_lock);
}
static void make_locks(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g.beat_lock, NULL);
    pthread_mutex_init(&g.work_lock, NULL);
    pthread_cond_init(&g.beat_cond, &monotonic);
    pthread_cond_init(&g.work_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
static void after_fork_in_child(void)
{
    make_locks();
    forget_file(); /* the memory is let go of by attach or detach, which may use Python */
    g.on = 0;
    g.beat_running = 0;
    g.forks++;
    g_seen_count = 0;
    g.step = NO_STEP;
    forget_stage_times();
    forget_sums();
    if (!tls_thread) return;
    tls_thread->os_id = (uint32_t)syscall(SYS_gettid);
    tls_thread->state = NULL; /* so that its track is looked for anew, which leaves what the parent is inside of */
}

/* ---- the module ---- */
#define FAST (METH_FASTCALL | METH_KEYWORDS)
#define CALL(f) (PyCFunction)(void *)f
static PyMethodDef hot_methods[] = {
    {"mstx_range", CALL(hot_mstx_range), FAST, doc_mstx_range},
    {"stage", CALL(hot_stage), FAST, doc_stage},
    {"mark", CALL(hot_mark), FAST, doc_mark},
    {"at_step", hot_at_step, METH_O, doc_at_step},
    {"carried", hot_carried, METH_NOARGS, NULL},
    {"carry", hot_carry, METH_O, NULL},
    {"current_step", hot_current_step, METH_NOARGS, doc_current_step},
    {"stage_times", CALL(hot_stage_times), METH_VARARGS | METH_KEYWORDS,
     "stage_times(step=None)\n--\n\nStage to seconds in this process, of a step or of the last finished one."},
    {"take_summaries", CALL(hot_take_summaries), METH_VARARGS | METH_KEYWORDS, NULL},
    {"stage_keys", hot_stage_keys, METH_NOARGS, NULL},
    {"process_step", hot_process_step, METH_NOARGS, NULL},
    {"intern", CALL(hot_intern), METH_VARARGS | METH_KEYWORDS, NULL},
    {"attach", hot_attach, METH_VARARGS, NULL},
    {"detach", hot_detach, METH_NOARGS, NULL},
    {"recording", hot_recording, METH_NOARGS, NULL},
    {"set_recording", hot_set_recording, METH_O, NULL},
    {"rotate", hot_rotate, METH_NOARGS, NULL},
    {"full_bank", hot_full_bank, METH_NOARGS, NULL},
    {"encode_bank", hot_encode_bank, METH_O, NULL},
    {"encode_into", hot_encode_into, METH_VARARGS, NULL},
    {"bank_texts", hot_bank_texts, METH_O, NULL},
    {"encode_left", hot_encode_left, METH_VARARGS, NULL},
    {"text_columns", hot_text_columns, METH_O, NULL},
    {"release_bank", hot_release_bank, METH_O, NULL},
    {"limit", CALL(hot_limit), METH_VARARGS | METH_KEYWORDS, NULL},
    {"throttle", hot_throttle, METH_VARARGS, NULL},
    {"flush_coalesced", hot_flush_coalesced, METH_NOARGS, NULL},
    {"site_costs", hot_site_costs, METH_NOARGS, NULL},
    {"add_cost", hot_add_cost, METH_VARARGS, NULL},
    {"wait", hot_wait, METH_O, NULL},
    {"wait_for_records", hot_wait_for_records, METH_O, NULL},
    {"wake", hot_wake, METH_NOARGS, NULL},
    {"start_heartbeat", hot_start_heartbeat, METH_O, NULL},
    {"stop_heartbeat", hot_stop_heartbeat, METH_NOARGS, NULL},
    {"anchor", hot_anchor, METH_NOARGS, NULL},
    {"clock_kind", hot_clock_kind, METH_NOARGS, NULL},
    {"set_clock", hot_set_clock, METH_O, NULL},
    {"set_fake_ticks", hot_set_fake_ticks, METH_O, NULL},
    {"now", hot_now, METH_NOARGS, NULL},
    {"ticks_per_ns", hot_ticks_per_ns, METH_NOARGS, NULL},
    {"set_sink", hot_set_sink, METH_VARARGS, NULL},
    {"clear_sink", hot_clear_sink, METH_O, NULL},
    {"set_direct", hot_set_direct, METH_VARARGS, NULL},
    {"clear_direct", hot_clear_direct, METH_NOARGS, NULL},
    {"set_hooks", hot_set_hooks, METH_VARARGS, NULL},
    {"set_watch", hot_set_watch, METH_VARARGS, NULL},
    {"watch", hot_watch, METH_O, NULL},
    {"watch_site", hot_watch_site, METH_O, NULL},
    {"stages_seen", hot_stages_seen, METH_NOARGS, NULL},
    {"count_fault", hot_count_fault, METH_NOARGS, NULL},
    {"counters", hot_counters, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
/* What generated wrappers hold. Their module is said to be mstxkit.marking.state, so that a wrapper which
 * cloudpickle ships by value takes them by reference, and finds the engine of the process that it arrives in. */
static PyMethodDef wrapper_calls[] = {{"is_on", hot_is_on, METH_O, NULL},
                                      {"timed", CALL(hot_timed), METH_FASTCALL, NULL},
                                      {"driven", CALL(hot_driven), METH_FASTCALL, NULL},
                                      {"opened", CALL(hot_opened), METH_FASTCALL, NULL},
                                      {"stored", CALL(hot_stored), METH_FASTCALL, NULL},
                                      {"step", CALL(hot_step), METH_FASTCALL, doc_step},
                                      {"current_stage", hot_current_stage, METH_NOARGS, doc_current_stage},
                                      {NULL, NULL, 0, NULL}};

static int make_types(PyObject *module)
{
    struct { PyTypeObject **type; PyType_Spec *spec; const char *name; } all[] = {
        {&Site_Type, &site_spec, "Site"},     {&Range_Type, &range_spec, "Range"}, {&Ready_Type, &ready_spec, NULL},
        {&Span_Type, &span_spec, "Span"},     {&Driven_Type, &driven_spec, "Driven"},
        {&AtStep_Type, &at_step_spec, NULL},
        {&SelfDescr_Type, &selfdescr_spec, NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].type = (PyTypeObject *)PyType_FromSpec(all[i].spec);
        if (!*all[i].type) return 0;
        if (all[i].name && PyObject_SetAttrString(module, all[i].name, (PyObject *)*all[i].type) < 0) return 0;
    }
    PyObject *descr = (PyObject *)PyObject_New(PyObject, SelfDescr_Type);
    int done = descr && PyObject_SetAttrString((PyObject *)Range_Type, "__enter__", descr) == 0 &&
               PyObject_SetAttrString((PyObject *)Range_Type, "__exit__", descr) == 0;
    Py_XDECREF(descr);
    return done;
}

/* What is given where there is no memory for another one. */
static int make_spares(void)
{
    if (!(g_nothing = new_range())) return 0;
    g_nothing->begun = 1;
    g_nothing->unusual = NOTHING;
    if (!(g_no_span = new_span((Range *)Py_NewRef((PyObject *)g_nothing)))) return 0;
    g_no_span->ended = 1;
    g_no_step = (PyObject *)new_at_step();
    g_ready_none = (PyObject *)new_ready(Py_None);
    g_ready_nothing = (PyObject *)new_ready((PyObject *)g_nothing);
    return g_no_step && g_ready_none && g_ready_nothing;
}

static int add_wrapper_calls(PyObject *module)
{
    PyObject *home = PyUnicode_FromString("mstxkit.marking.state");
    int done = home != NULL;
    for (PyMethodDef *d = wrapper_calls; done && d->ml_name; d++) {
        PyObject *call = PyCFunction_NewEx(d, NULL, home);
        done = call && PyObject_SetAttrString(module, d->ml_name, call) == 0;
        Py_XDECREF(call);
    }
    Py_XDECREF(home);
    return done;
}

static int make_tables(void)
{
    g_sites = PyDict_New();
    g_by_name = PyDict_New();
    g_stage_ids = PyDict_New();
    g.texts = PyDict_New();
    g_ambient = PyContextVar_New("mstxkit.ambient", NULL);
    s_threading = PyUnicode_InternFromString("threading");
    s_stage = PyUnicode_InternFromString("stage");
    s_domain = PyUnicode_InternFromString("domain");
    static const char *const work[WORK_KINDS] = {"tokens", "responses", "prompts", "longest_response"};
    for (int kind = 0; kind < WORK_KINDS; kind++)
        if (!(s_work[kind] = PyUnicode_InternFromString(work[kind]))) return 0;
    s_stream = PyUnicode_InternFromString("stream");
    s_default = PyUnicode_InternFromString("default");
    s_send = PyUnicode_InternFromString("send");
    s_throw = PyUnicode_InternFromString("throw");
    s_close = PyUnicode_InternFromString("close");
    s_coalesced = PyUnicode_InternFromString("coalesced");
    s_total_ns = PyUnicode_InternFromString("total_ns");
    s_max_ns = PyUnicode_InternFromString("max_ns");
    /* CPython 3.9 to 3.11 crash where there is no memory for a process's first context: here it is, once */
    PyObject *context = PyContext_CopyCurrent();
    Py_XDECREF(context);
    return context && g_sites && g_by_name && g_stage_ids && g.texts && g_ambient && s_threading && s_stage &&
           s_domain && s_stream && s_default && s_send && s_throw && s_close && s_coalesced && s_total_ns && s_max_ns;
}

static int make_hooks_of_the_system(void)
{
    if (pthread_key_create(&g_thread_key, thread_gone) == 0 &&
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0) return 1;
    PyErr_NoMemory();
    return 0;
}

static PyObject *g_module;       /* the first one: who takes it out of sys.modules gets the same again */

static int count_refusal(void *unused)
{
    (void)unused;
    if (g.counters) g.counters[FAULTS]++;
    return 0;
}

/* This engine's state is the process's: a second interpreter would take the file and the hooks from the first. */
static int refuse(void)
{
    PyErr_SetString(PyExc_ImportError, "mstxkit's C engine serves the main interpreter of a process only");
#if PY_VERSION_HEX >= 0x030c0000
    Py_AddPendingCall(count_refusal, NULL); /* this one may have a GIL of its own */
#else
    count_refusal(NULL);
#endif
    return -1;
}

static int hot_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) return refuse();
    if (g_module) return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(g_module));
    if (!make_tables() || !make_types(module) || !make_spares() || !add_wrapper_calls(module)) return -1;
    if (PyObject_SetAttrString(module, "NATIVE", Py_True) < 0 || !make_hooks_of_the_system()) return -1;
    g.counters = g.detached_counters;
    g.step = NO_STEP;
    g.clock = CLOCK_MONO;
    g.ticks_per_ns = 1.0;
    g.first_ticks = g.first_ns = clock_ns(CLOCK_MONOTONIC);
    make_locks();
    g_module = Py_NewRef(module);
    return 0;
}

static PyModuleDef_Slot hot_slots[] = {{Py_mod_exec, hot_exec},
#if PY_VERSION_HEX >= 0x030c0000
                                       /* hot_exec refuses, and counts it */
                                       {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
                                       {0, NULL}};
static struct PyModuleDef hot_module = {PyModuleDef_HEAD_INIT, "mstxkit.engine.native.hot", "mstxkit's hot path.", 0,
                                       hot_methods, hot_slots, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit_hot(void);
PyMODINIT_FUNC PyInit_hot(void) { return PyModuleDef_Init(&hot_module); }
