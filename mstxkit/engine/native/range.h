/* A range: its life from begin to end, its attributes, and the object that `with` sees.
 *
 * `__enter__` and `__exit__` are looked up without a bound method: type(range).__enter__ is a SelfDescr, whose
 * lookup gives the range itself, and the range is callable: with no argument it begins, with three it ends, with one
 * it decorates.
 */
#ifndef MSTXKIT_RANGE_H
#define MSTXKIT_RANGE_H
#include "sinks.h"
#include "sums.h"
#include "tracks.h"
#include "watch.h"

enum { INLINE_ATTRIBUTES = 8 };

typedef struct Range {
    PyObject_HEAD
    vectorcallfunc call;
    Site *site;                  /* borrowed: sites live as long as the process */
    PyObject *name;              /* until the site is known */
    uint64_t start, w1;
    uint64_t seq;                /* the bank in which all its ids are defined, 0 none */
    Track *track;                /* where it is linked now; NULL: nowhere */
    Track *home;                 /* where it began: the track of its record */
    struct Range *parent;        /* the range below on its track */
    uint32_t stage, outer_stage;
    uint32_t generation;
    int32_t slot;
    uint32_t entered;            /* entries without an exit yet, recorded or not */
    uint8_t begun, recorded, depth, rare;   /* rare: something below is set */
    /* rare */
    uint8_t inline_count, sunk, staged;
    uint8_t summed, is_inner;    /* of a stage: the place of its sum, from 1; is it inside of itself on its track? */
    uint8_t unusual;             /* why its end is not as most: below */
    PyObject *stage_key, *domain, *stream;
    PyObject *keys[INLINE_ATTRIBUTES], *values[INLINE_ATTRIBUTES];
    PyObject *extra;             /* dict: given attributes that do not fit above */
    PyObject *added;             /* dict: attributes of set(), of this entry only */
    PyObject *settled;           /* of this entry only: what plain_values.settle made of all attributes */
    PyObject *context;           /* borrowed: where a stage began */
    struct Range *inner;         /* the range was entered again while open */
    Direct *direct;
    void *direct_domain;         /* where it began: its end goes to the same */
    uint32_t forks;              /* g.forks then */
    uint8_t unsure;              /* a value may be none that a record holds as it is */
    uint64_t direct_id, busy;
    PyObject *tokens[SINK_COUNT], *ends[SINK_COUNT];
    uint64_t cost;               /* ticks that its begin took, where that was measured */
    uint32_t told;               /* where it is TOLD: the process in which a hook was told of its begin */
    /* of a limited site: its place, from 1, among the calls of that site inside each other */
    uint32_t nest;
    struct Range *next_free;
} Range;

enum { HAS_INNER = 1, FOLDED = 2, SAMPLED = 4, TOLD = 8, NOTHING = 16 };

static PyTypeObject *Range_Type;
static Range *g_free_ranges;
/* What is given where there is no memory for a range: it does nothing, is never freed and may be used by all at once.
 * It counts as begun and unusual, so that begin and end ask what it is only where they do not hurry. */
static Range *g_nothing;

/* ---- attributes ---- */
enum { TEXT_LIMIT_BYTES = 4096 };

static int long_int_bits(PyObject *number, uint64_t *bits)
{
    int overflow;
    *bits = (uint64_t)PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow;
}

/* The 64 bits of an int; 0: it has more. */
static inline int int_bits(PyObject *number, uint64_t *bits)
{
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)number)) return long_int_bits(number, bits);
    *bits = (uint64_t)PyUnstable_Long_CompactValue((PyLongObject *)number);
#else
    Py_ssize_t digits = Py_SIZE(number);
    if (digits < -1 || digits > 1) return long_int_bits(number, bits);
    *bits = (uint64_t)((int64_t)digits * (int64_t)((PyLongObject *)number)->ob_digit[0]);
#endif
    return 1;
}

/* Texts that are too long, or that are no UTF-8, are cut and escaped in Python. */
static COLD int put_unusual_text(PyObject *text, uint64_t spare)
{
    PyErr_Clear();
    PyObject *bytes = PyObject_CallFunctionObjArgs(g.utf8, text, NULL);
    int put = bytes && PyBytes_Check(bytes) &&
              put_text(TEXT_TEXT, g.next_text, PyBytes_AS_STRING(bytes), (uint32_t)PyBytes_GET_SIZE(bytes), NULL, 0,
                       NULL, 0, spare);
    if (put) count_cut(text, bytes);
    Py_XDECREF(bytes);
    return put;
}

/* The id of a text in the active bank; 0: there is no room for it, or, with an exception, no memory. */
static uint32_t text_id(PyObject *text, uint64_t spare)
{
    PyObject *known = PyDict_GetItemWithError(g.texts, text);
    uint64_t id_bits;
    if (known && int_bits(known, &id_bits)) return (uint32_t)id_bits;
    Py_ssize_t size = 0;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    int put = utf8 && size <= TEXT_LIMIT_BYTES
                  ? put_text(TEXT_TEXT, g.next_text, utf8, (uint32_t)size, NULL, 0, NULL, 0, spare)
                  : put_unusual_text(text, spare);
    if (!put) return 0;
    uint32_t id = g.next_text++;
    PyObject *number = PyLong_FromUnsignedLong(id);
    int known_now = number && PyDict_SetItem(g.texts, text, number) == 0;
    Py_XDECREF(number);
    if (!known_now) note_fault("engine.text"); /* it is written again when it is needed again */
    return id;
}

/* Ids of short texts by address: keys, and values that programs repeat, are the same objects at every range. */
enum { TEXT_IDS = 128, TEXT_ID_LENGTH = 256 };
static struct { PyObject *text; uint64_t seq; uint32_t id; } g_text_ids[TEXT_IDS];

/* An exact str for any str: a subclass may bring its own __hash__ and __eq__. */
static PyObject *exact_text(PyObject *text)
{
    return PyUnicode_CheckExact(text) ? Py_NewRef(text) : PyUnicode_FromObject(text);
}

static COLD uint32_t find_text_id(PyObject *text, uint64_t spare, uint32_t place)
{
    PyObject *exact = exact_text(text);
    uint32_t id = exact ? text_id(exact, spare) : 0;
    if (id && exact == text && PyUnicode_GET_LENGTH(text) <= TEXT_ID_LENGTH) {
        Py_XSETREF(g_text_ids[place].text, Py_NewRef(text));
        g_text_ids[place].seq = g.seq;
        g_text_ids[place].id = id;
    }
    Py_XDECREF(exact);
    return id;
}

static inline uint32_t place_of_text(PyObject *text)
{
    return (uint32_t)(((uintptr_t)text >> 4 ^ (uintptr_t)text >> 11) % TEXT_IDS);
}

/* 0: it is not known by its address. */
static inline uint32_t known_text_id(PyObject *text)
{
    uint32_t place = place_of_text(text);
    return LIKELY(g_text_ids[place].text == text && g_text_ids[place].seq == g.seq) ? g_text_ids[place].id : 0;
}

/* `text_id` of any str. */
static inline uint32_t quick_text_id(PyObject *text, uint64_t spare)
{
    uint32_t id = known_text_id(text);
    return LIKELY(id) ? id : find_text_id(text, spare, place_of_text(text));
}

static COLD PyObject *type_name(PyObject *value)
{
    const char *type = Py_TYPE(value)->tp_name, *dot = strrchr(type, '.');
    /* a static type has its module in front */
    if (dot && !(Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE)) type = dot + 1;
    return PyUnicode_FromString(type);
}

/* type and 64 bits of a value; 0 when its text found no room, or, with an exception, could not be made */
static inline int encode_value(PyObject *value, uint64_t *bits, uint64_t spare)
{
    if (PyLong_CheckExact(value) && int_bits(value, bits)) return TYPE_INT;
    if (PyUnicode_Check(value)) return (*bits = quick_text_id(value, spare)) ? TYPE_TEXT : 0;
    if (PyBool_Check(value)) { *bits = value == Py_True; return TYPE_BOOL; }
    if (PyLong_Check(value) && int_bits(value, bits)) return TYPE_INT;
    if (PyFloat_Check(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        memcpy(bits, &number, 8);
        return TYPE_FLOAT;
    }
    if (value == Py_None) { *bits = 0; return TYPE_NULL; }
    PyObject *text = type_name(value);
    *bits = text ? text_id(text, spare) : 0;
    Py_XDECREF(text);
    return *bits ? TYPE_OTHER : 0;
}

typedef struct { PyObject *key, *value; } Attribute;

/* A key that cannot be looked up, as its own __hash__ or __eq__ raises, is in nothing. */
static int is_in(PyObject *dict, PyObject *key)
{
    int found = dict ? PyDict_Contains(dict, key) : 0;
    if (found < 0) note_fault("engine.attribute");
    return found > 0;
}

/* What `given` holds and `later` does not replace; `lost` is set where something cannot be kept. */
static int collect_from(PyObject *given, PyObject *later, Attribute *found, int n, int *lost)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; given && PyDict_Next(given, &at, &key, &value);) {
        if (n == ATTRIBUTE_LIMIT || !PyUnicode_Check(key)) { *lost = 1; continue; }
        if (!is_in(later, key)) found[n++] = (Attribute){key, value};
    }
    return n;
}

/* The attributes in order, at most ATTRIBUTE_LIMIT and a few. */
static int collect_attributes(Range *r, Attribute *found, int *lost)
{
    int n = 0;
    for (int i = 0; i < r->inline_count; i++)
        if (!is_in(r->added, r->keys[i])) found[n++] = (Attribute){r->keys[i], r->values[i]};
    n = collect_from(r->extra, r->added, found, n, lost);
    return collect_from(r->added, NULL, found, n, lost);
}

/* ---- values that no record holds as they are: Python makes plain ones of them, while the range is still open ---- */
/* A subclass of str, int or float counts as what it derives from. */
static inline int is_plain(PyObject *value)
{
    uint64_t bits;
    if (PyType_HasFeature(Py_TYPE(value), Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS))
        return PyUnicode_Check(value) || int_bits(value, &bits);
    return PyFloat_CheckExact(value) || value == Py_None || PyFloat_Check(value);
}

static int has_only_plain(PyObject *dict)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; dict && PyDict_Next(dict, &at, &key, &value);)
        if (!is_plain(value)) return 0;
    return 1;
}

static int is_all_plain(const Range *r)
{
    for (int i = 0; i < r->inline_count; i++)
        if (!is_plain(r->values[i])) return 0;
    return has_only_plain(r->extra) && has_only_plain(r->added);
}

/* A list of (key, value); NULL: no memory. To make it may collect garbage, and so run Python. */
static PyObject *pairs_of(const Attribute *found, int n)
{
    for (int i = 0; i < n; i++) { Py_INCREF(found[i].key); Py_INCREF(found[i].value); }
    PyObject *pairs = PyList_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *pair = pairs ? PyTuple_Pack(2, found[i].key, found[i].value) : NULL;
        if (pair) PyList_SET_ITEM(pairs, i, pair);
        else Py_CLEAR(pairs);
        Py_DECREF(found[i].key);
        Py_DECREF(found[i].value);
    }
    return pairs;
}

/* The attributes as `take_settled` takes them; None, and a fault, where there is no memory. `at` was now: it is again
 * where it would lie before its bank. */
static COLD PyObject *settled_attributes(Range *r, uint64_t *at)
{
    Attribute found[ATTRIBUTE_LIMIT + INLINE_ATTRIBUTES];
    uint64_t seq = g.seq;
    int lost = 0, n = collect_attributes(r, found, &lost);
    PyObject *pairs = pairs_of(found, n), *settled = NULL;
    if (pairs) settled = PyObject_CallFunctionObjArgs(g.settle, pairs, lost ? Py_True : Py_False, NULL);
    Py_XDECREF(pairs);
    if (!settled) note_fault("engine.attribute");
    if (g.seq != seq) *at = now();
    return settled ? settled : Py_NewRef(Py_None);
}

/* Borrowed from `settled`. */
static COLD int take_settled(PyObject *settled, Attribute *found, int *lost)
{
    *lost = 1;
    if (!PyTuple_Check(settled)) return 0;
    PyObject *pairs = PyTuple_GET_ITEM(settled, 0);
    *lost = PyTuple_GET_ITEM(settled, 1) == Py_True;
    int n = (int)PyList_GET_SIZE(pairs);
    for (int i = 0; i < n; i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        found[i] = (Attribute){PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)};
    }
    return n;
}

typedef struct { uint64_t bits, key; } Encoded;

/* 0, without an exception: no room; with one: no memory. */
static inline int encode_attribute(const Attribute *attribute, uint64_t spare, Encoded *encoded)
{
    int type = encode_value(attribute->value, &encoded->bits, spare);
    uint64_t key = type ? quick_text_id(attribute->key, spare) : 0;
    encoded->key = key | (uint64_t)type << 32;
    return key != 0;
}

/* The attributes as words. What encodes a text may run Python, and with it other threads, which write records and
 * rotate. -1: one found no room for its text in the active bank; at the last try it is left out instead, like one for
 * which there is no memory. */
static int encode_attributes(const Attribute *attributes, int n, Encoded *encoded, int is_last, int *lost)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (encode_attribute(attributes + i, (uint64_t)n + 2, encoded + kept)) { kept++; continue; }
        if (!PyErr_Occurred() && !is_last) return -1;
        note_if_failed("engine.attribute");
        *lost = 1;
    }
    return kept;
}

enum { WRITTEN, NO_ROOM, OVERTAKEN, NOT_WHOLE };

/* One try to write a record and its attributes into the active bank; OVERTAKEN: it is another bank, or fuller, by
 * now. */
static int try_write(Range *r, uint64_t end, uint64_t w2, const Attribute *attributes, int n, int is_last, int whole,
    int *lost)
{
    Encoded encoded[ATTRIBUTE_LIMIT + INLINE_ATTRIBUTES];
    uint64_t seq = g.seq, generation = g.generation;
    int kept = encode_attributes(attributes, n, encoded, is_last, lost);
    if (generation != g.generation) return WRITTEN; /* stopped meanwhile */
    if (kept < 0) return NO_ROOM;
    if (whole && kept < n) return NOT_WHOLE;
    if (seq != g.seq || !g.bank || g.count + (uint64_t)kept + 2 > g.limit) return OVERTAKEN;
    uint64_t at = g.count + 1; /* from here on nothing else runs */
    for (int i = 0; i < kept; i++)
        store_record(at++, encoded[i].bits, encoded[i].key, (uint64_t)KIND_ATTRIBUTE << KIND_SHIFT);
    if (r->busy) store_record(at++, r->busy, (uint64_t)TYPE_BUSY << 32, (uint64_t)KIND_ATTRIBUTE << KIND_SHIFT);
    store_record(g.count, since_origin(end) | (uint64_t)r->stage << 48, r->w1, w2);
    publish_count(at);
    return WRITTEN;
}

/* Are the ids that this range's record carries defined in the active bank? */
static inline int is_defined(const Range *r)
{
    return ((r->site->seq ^ g.seq) | (r->home->seq ^ g.seq) | (g_stages[r->stage].seq ^ g.seq)) == 0;
}

static COLD int define(Range *r)
{
    return (r->site->seq == g.seq || define_site(r->site)) && (r->home->seq == g.seq || define_track(r->home)) &&
           define_stage(r->stage);
}

/* Room for `n` more records, in a bank that knows this range's site and track. 0: dropped, and counted. */
static COLD int define_late(Range *r)
{
    for (int again = 0; again < 2; again++) {
        if (define(r)) return 1;
        if (!rotate_bank()) break;
    }
    g.counters[DROPPED]++;
    return 0;
}

static inline int ready_for(Range *r, uint64_t n, uint64_t end)
{
    if (UNLIKELY(!has_room(n, end))) return 0;
    return LIKELY(r->seq == g.seq) || is_defined(r) || define_late(r);
}

/* A text without room goes into a new bank if there is one, else the record goes without it, or where it must be
 * `whole`, 0, not. */
static inline int write_found(Range *r, uint64_t end, uint64_t w2, const Attribute *found, int n, int lost_before,
    int whole)
{
    int rotated = 0;
    for (int tries = 0; tries < 16; tries++) {
        if (!ready_for(r, (uint64_t)n + 2, end)) return 1; /* dropped, and counted */
        int lost = lost_before, how = try_write(r, end, w2, found, n, rotated, whole, &lost);
        if (how == NOT_WHOLE) return 0;
        if (how == WRITTEN) {
            g.counters[ATTRIBUTES_LOST] += (uint64_t)lost;
            return 1;
        }
        if (how == NO_ROOM) { rotate_bank(); rotated = 1; }
    }
    g.counters[DROPPED]++;
    return 1;
}

static __attribute__((noinline)) int write_with_attributes(Range *r, uint64_t end, uint64_t w2, int whole)
{
    Attribute found[ATTRIBUTE_LIMIT + INLINE_ATTRIBUTES];
    PyObject *settled = Py_XNewRef(r->settled);
    int lost = 0, n = settled ? take_settled(settled, found, &lost) : collect_attributes(r, found, &lost);
    int done = write_found(r, end, w2, found, n, lost, whole);
    Py_XDECREF(settled);
    return done;
}

/* ---- stages ---- */
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
    r->context = thread_state()->context;
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

/* `name` is interned. */
static inline int is_name(PyObject *key, PyObject *name)
{
    return key == name || (UNLIKELY(!PyUnicode_CHECK_INTERNED(key)) && PyUnicode_Compare(key, name) == 0);
}

/* Nobody's code runs: keys are compared, not looked up. What `set` gave stands for what was given before. */
static void find_work_in(PyObject *dict, PyObject **work)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; dict && PyDict_Next(dict, &at, &key, &value);)
        for (int kind = 0; PyUnicode_CheckExact(key) && kind < WORK_KINDS; kind++)
            if (is_name(key, s_work[kind])) work[kind] = value;
}

static COLD void add_work_of(Range *r, Sum *sum)
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
    add_work(sum, work);
}

static inline void end_sum(Range *r, Stage *stage, uint64_t end)
{
    if (UNLIKELY(!r->summed) || UNLIKELY(r->generation != g.generation)) return;
    Sum *sum = &stage->sums[r->summed - 1];
    sum_ends(stage, sum, r->start, end, r->busy, r->is_inner);
    if (r->inline_count || r->extra || r->added) add_work_of(r, sum);
}

static COLD void stage_ends(Range *r, Track *t, uint64_t end)
{
    Stage *stage = &g_stages[r->site->own_stage];
    end_sum(r, stage, end);
    if (stage->active && --stage->active == 0) add_stage_time(stage, end - stage->since);
    if (!t) return;
    leave_stage(r, t);
    if (r->context == thread_state()->context) store_ambient(t);
}

/* In a forked child, before it looks at a track: what its parent is inside of is not around it, and its end, should
 * the child run it too, is nothing to any track. */
static COLD void leave_all(void)
{
    g_left_in = g.forks;
    g_ambient_age = (g_ambient_age + 1) & 0x7FFF;
    for (Thread *th = g_threads; th; th = th->next) {
        th->lowest_idle = 0;
        for (uint32_t i = 0; i < th->track_count; i++) {
            Track *t = th->tracks[i];
            for (Range *r = t->top, *next; r; r = next) {
                next = r->parent;
                r->track = NULL;
                r->parent = NULL;
                r->staged = 0;
            }
            t->top = NULL;
            t->depth = t->stage = 0;
            t->step = NO_STEP;
        }
    }
}

/* ---- begin and end ---- */
static COLD void begin_in_sinks(Range *r, uint32_t on)
{
    for (int k = 0; k < SINK_COUNT; k++)
        if (on & (uint32_t)(ON_SINK_0 << k) && g_sinks[k].begin) {
            r->tokens[k] = sink_begin(k, r->site, r->stream, &r->ends[k]);
            if (r->tokens[k]) { r->sunk |= (uint8_t)(1 << k); r->rare = 1; }
        }
}

static COLD void end_in_sinks(Range *r)
{
    for (int k = SINK_COUNT - 1; k >= 0; k--)
        if (r->sunk & (1 << k)) {
            PyObject *token = r->tokens[k], *end = r->ends[k];
            r->tokens[k] = r->ends[k] = NULL;
            sink_end(k, r->site, token, end);
        }
    r->sunk = 0;
}

static inline void link_range(Range *r, Track *t)
{
    r->track = t;
    r->parent = t->top;
    t->top = r;
    t->depth++;
}

static inline void unlink_range(Range *r)
{
    Track *t = r->track;
    if (LIKELY(t->top == r)) t->top = r->parent;
    else {
        Range *above = t->top;
        while (above && above->parent != r) above = above->parent;
        if (above) above->parent = r->parent;
    }
    if (--t->depth == 0) left_idle(t);
    r->track = NULL;
}

static COLD void define_for(Range *r)
{
    if (g.bank && !define(r) && rotate_bank()) define(r);
    r->seq = is_defined(r) ? g.seq : 0;
}

static Range *new_range(void);

static COLD void begin_again(Range *r, int may_move); /* entered while open */
static COLD Range *add_inner(Range *r);

/* Sinks are told before the clock at begin, so that their time is outside the range. */
static inline void tell_sinks(Range *r, uint32_t on)
{
    if (UNLIKELY(on & ON_SINKS)) begin_in_sinks(r, on);
    if (UNLIKELY(on & ON_DIRECT)) {
        r->direct = g_direct;
        r->direct_id = direct_begin(g_direct, r->site, &r->direct_domain);
        r->forks = g.forks;
        r->rare = 1;
    }
}

static inline void begin_recorded(Range *r, Track *t)
{
    r->seq = g.seq;
    if (UNLIKELY(!is_defined(r))) define_for(r);
    r->generation = g.generation;
    uint64_t w2 = r->stage | (uint64_t)r->depth << 16 | (uint64_t)t->thread->os_id << 32;
    uint64_t start = r->start = now();
    r->slot = open_slot(start, r->w1, w2, r);
}

/* limits.h: one of a limited site, or whose cost is measured */
static __attribute__((noinline)) void begin_counted(Range *r, uint32_t on);
static __attribute__((noinline)) void end_unusual(Range *r, int failed);

static inline uint64_t first_word(const Site *s, const Track *t)
{
    uint32_t step = t->step == NO_STEP ? g.step : t->step;
    return s->id | (uint64_t)t->id << 16 | (uint64_t)step << 32;
}

static inline void place_range(Range *r, Site *s, Track *t)
{
    r->depth = t->depth > 255 ? 255 : (uint8_t)t->depth;
    r->outer_stage = t->stage;
    r->stage = s->own_stage ? s->own_stage : t->stage;
    r->w1 = first_word(s, t);
    r->home = t;
    link_range(r, t);
}

static inline void begin_plain(Range *r, Site *s, uint32_t on)
{
    r->begun = 1;
    tell_sinks(r, on);
    r->recorded = (on & ON_RECORD) != 0;
    r->start = 0;
    if (UNLIKELY(!r->recorded && !s->own_stage)) return; /* only sinks see it: no clock, no track */
    Track *t = current_track();
    if (UNLIKELY(!t)) { r->recorded = 0; return; }
    place_range(r, s, t);
    if (LIKELY(r->recorded)) begin_recorded(r, t);
    else r->start = now();
    if (UNLIKELY(s->own_stage)) stage_begins(r, t);
}

static inline void begin_known(Range *r, Site *s, uint32_t on)
{
    if (UNLIKELY(--s->countdown <= 0)) begin_counted(r, on);
    else begin_plain(r, s, on);
}

/* The hook's time is neither in the range nor in what it costs. Whoever was told of a begin is told of the end, so
 * it begins whatever the hook has switched off; and while the hook ran, somebody else may have entered the same
 * object. */
static COLD void begin_watched(Range *r, Site *s, int may_move)
{
    uint32_t told = tell_entered(s, may_move);
    Range *again = r->begun ? add_inner(r) : NULL;
    if (r->begun && !again) { tell_left(s, told, 1); return; }
    if (again) r = again;
    r->told = told;
    if (told) r->unusual |= TOLD;
    begin_known(r, s, g.on);
    Py_XDECREF(again);
}

/* `may_move`: it may be suspended, and go on or end on another thread. */
static inline void begin(Range *r, int may_move)
{
    uint32_t on = g.on;
    if (UNLIKELY(r->begun)) { begin_again(r, may_move); return; }
    if (LIKELY(!on)) return;
    Site *s = r->site;
    if (!s) {
        s = r->site = site_of(r->name, r->stage_key, r->domain);
        if (UNLIKELY(!s)) return;
        if (UNLIKELY(r->begun)) { begin_again(r, may_move); return; } /* by what its name let run, or another thread */
    }
    if (UNLIKELY(on & ON_WATCH) && s->is_watched) begin_watched(r, s, may_move);
    else begin_known(r, s, on);
}

static inline uint64_t third_word(const Range *r, uint64_t end, int failed)
{
    return duration_bits(end - r->start) | (uint64_t)r->depth << 40 | (failed ? FLAG_ERROR : 0);
}

/* With one text as its only attribute, which the active bank has already: the role of patched calls. Runs no Python. 0:
 * it is not that. */
static inline int is_written_with_role(Range *r, uint64_t end, int failed)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!r->extra || PyDict_GET_SIZE(r->extra) != 1 || r->added || r->settled || r->inline_count || r->busy) return 0;
    if (!PyDict_Next(r->extra, &at, &key, &value)) return 0;
    uint64_t seq = g.seq;
    uint32_t value_id = known_text_id(value), key_id = known_text_id(key); /* of exact texts, all that it knows */
    if (!value_id || !key_id) return 0;
    if (UNLIKELY(!ready_for(r, 2, end))) return 1; /* dropped, and counted */
    if (UNLIKELY(g.seq != seq)) return 0; /* that took another bank */
    store_record(g.count + 1, value_id, key_id | (uint64_t)TYPE_TEXT << 32, (uint64_t)KIND_ATTRIBUTE << KIND_SHIFT);
    store_record(g.count, since_origin(end) | (uint64_t)r->stage << 48, r->w1, third_word(r, end, failed));
    publish_count(g.count + 2);
    return 1;
}

static inline void write_range(Range *r, uint64_t end, int failed)
{
    uint64_t w2 = third_word(r, end, failed);
    if (UNLIKELY(r->rare && (r->inline_count || r->extra || r->added || r->busy))) {
        write_with_attributes(r, end, w2, 0);
        return;
    }
    if (UNLIKELY(!ready_for(r, 1, end))) return;
    store_record(g.count, since_origin(end) | (uint64_t)r->stage << 48, r->w1, w2);
    publish_count(g.count + 1);
}

/* What belonged to this entry only is gone. */
static inline void forget_entry(Range *r)
{
    r->busy = 0;
    Py_CLEAR(r->added);
    Py_CLEAR(r->settled);
    r->rare = r->inline_count || r->extra || r->stage_key || r->domain || r->stream;
    r->unsure &= r->rare;
}

static inline int is_written(const Range *r) { return LIKELY(r->recorded) && LIKELY(r->generation == g.generation); }

static COLD void end_inner(Range *r, int failed);

/* Runs Python, and with it others, who may end or enter the same range, which is open still. 0: this end is done. */
static COLD int settle(Range *r, int failed, uint64_t *at)
{
    PyObject *settled = settled_attributes(r, at);
    int is_here = r->begun && !r->inner;
    if (is_here) Py_XSETREF(r->settled, settled);
    else Py_DECREF(settled);
    if (r->begun && r->inner) end_inner(r, failed);
    if (*at < r->start) *at = now();
    return is_here;
}

static inline void end_plain(Range *r, int failed)
{
    uint64_t at = LIKELY(r->recorded) || r->staged ? now() : 0;
    int is_done = UNLIKELY(r->rare) && is_written(r) && is_written_with_role(r, at, failed);
    if (UNLIKELY(r->unsure) && !is_done && is_written(r) && !is_all_plain(r) && !settle(r, failed, &at)) return;
    r->begun = 0;
    if (is_written(r)) {
        if (!is_done) write_range(r, at, failed);
        close_slot(r->slot);
    }
    Track *t = r->track;
    if (LIKELY(t != NULL)) unlink_range(r);
    if (UNLIKELY(r->rare)) {
        if (r->staged) { r->staged = 0; stage_ends(r, t, at); }
        if (r->direct_id && r->forks == g.forks) direct_end(r->direct, r->direct_domain, r->direct_id);
        r->direct_id = 0;
        if (r->sunk) end_in_sinks(r);
        forget_entry(r);
    }
}

static inline void end(Range *r, int failed)
{
    if (UNLIKELY(!r->begun)) return;
    if (UNLIKELY(r->unusual)) end_unusual(r, failed);
    else end_plain(r, failed);
}

/* A range inside an open one, not begun yet: that may run Python, which may enter or end the outer one. New
 * reference. */
static COLD Range *add_inner(Range *r)
{
    Range *innermost = r;
    while (innermost->inner) innermost = innermost->inner;
    Range *again = new_range();
    if (!again) { note_fault("range.begin"); return NULL; }
    again->site = r->site;
    again->rare = 1;
    again->stream = Py_XNewRef(r->stream);
    again->extra = Py_XNewRef(r->extra);
    again->unsure = r->unsure;
    for (; again->inline_count < r->inline_count; again->inline_count++) {
        again->keys[again->inline_count] = Py_NewRef(r->keys[again->inline_count]);
        again->values[again->inline_count] = Py_NewRef(r->values[again->inline_count]);
    }
    innermost->inner = (Range *)Py_NewRef((PyObject *)again);
    innermost->unusual |= HAS_INNER;
    r->rare = 1;
    return again;
}

static COLD void begin_again(Range *r, int may_move)
{
    Range *again = r == g_nothing ? NULL : add_inner(r);
    if (!again) return;
    begin(again, may_move);
    Py_DECREF(again); /* ended before it had begun, it ends here */
}

static COLD void end_inner(Range *r, int failed)
{
    Range *outer = r;
    while (outer->inner->inner) outer = outer->inner;
    Range *again = outer->inner;
    outer->inner = NULL;
    outer->unusual &= (uint8_t)~HAS_INNER;
    end(again, failed);
    Py_DECREF(again);
}

/* ---- the object ---- */
static PyObject *range_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames);

static COLD Range *new_range_slow(void)
{
    Range *r = PyObject_New(Range, Range_Type);
    if (!r) return NULL;
    memset((char *)r + sizeof(PyObject), 0, sizeof(Range) - sizeof(PyObject));
    r->call = range_call;
    return r;
}

static inline Range *new_range(void)
{
    Range *r = g_free_ranges;
    if (UNLIKELY(!r)) return new_range_slow();
    g_free_ranges = r->next_free;
    Py_SET_REFCNT((PyObject *)r, 1);
    return r;
}

/* What a call from Python gives where there is none: nothing, but for the caller's own mistake. */
static COLD Range *or_nothing(Range *r)
{
    if (r || !PyErr_ExceptionMatches(PyExc_MemoryError)) return r;
    note_fault("range.new");
    return (Range *)Py_NewRef((PyObject *)g_nothing);
}

static COLD void clear_range(Range *r)
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

static void range_dealloc(PyObject *self)
{
    Range *r = (Range *)self;
    if (UNLIKELY(r->begun)) end_forgotten(r);
    Py_CLEAR(r->name);
    r->site = NULL;
    r->entered = 0;
    if (UNLIKELY(r->rare)) clear_range(r);
    r->next_free = g_free_ranges;
    g_free_ranges = r;
}

static inline int is_failure(PyObject *type);
static inline void leave(Range *r, PyObject *type)
{
    if (UNLIKELY(r->entered == 0)) { note_fault("range.exit_without_enter"); return; }
    r->entered--;
    if (LIKELY(r->begun)) end(r, is_failure(type));
}

/* An iterator says by StopIteration that it is at its end: no failure. */
static inline int is_failure(PyObject *type)
{
    return type != Py_None && type != PyExc_GeneratorExit && type != PyExc_StopIteration &&
           type != PyExc_StopAsyncIteration;
}

/* A new reference; None: there are none. */
static PyObject *all_attributes(Range *r)
{
    PyObject *all = r->extra ? PyDict_Copy(r->extra) : r->inline_count ? PyDict_New() : Py_NewRef(Py_None);
    for (int i = 0; all && i < r->inline_count; i++)
        if (!PyDict_SetDefault(all, r->keys[i], r->values[i])) Py_CLEAR(all);
    return all;
}

static COLD PyObject *decorate(Range *r, PyObject *function)
{
    if (r == g_nothing) return Py_NewRef(function);
    PyObject *attributes = all_attributes(r);
    if (!attributes) return NULL;
    PyObject *name = r->name ? r->name : r->site->name, *none = Py_None;
    PyObject *stage = r->stage_key ? r->stage_key : r->site ? r->site->stage : none;
    PyObject *domain = r->domain ? r->domain : r->site ? r->site->domain : s_default;
    PyObject *stream = r->stream ? r->stream : none;
    PyObject *settings = PyTuple_Pack(5, name, stage, domain, stream, attributes);
    Py_DECREF(attributes);
    PyObject *decorated = settings ? PyObject_CallFunctionObjArgs(g.decorate, settings, function, NULL) : NULL;
    Py_XDECREF(settings);
    return decorated;
}

static PyObject *range_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
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
    if (n == 1 && !kwnames && PyCallable_Check(args[0])) return decorate(r, args[0]);
    PyErr_SetString(PyExc_TypeError, "a range is used in a with statement, or decorates one function");
    return NULL;
}

static PyObject *range_set(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Range *r = (Range *)self;
    while (r->inner) r = r->inner;
    if (n) { PyErr_SetString(PyExc_TypeError, "set() takes attributes by keyword only"); return NULL; }
    if (!r->begun || !kwnames || r == g_nothing) Py_RETURN_NONE;
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

/* ---- an awaitable that is done: what __aenter__ and __aexit__ give ---- */
typedef struct { PyObject_HEAD PyObject *value; } Ready;
static PyTypeObject *Ready_Type;
static PyObject *g_ready_none, *g_ready_nothing; /* for where there is no memory for another one */

static Ready *new_ready(PyObject *value)
{
    Ready *done = PyObject_New(Ready, Ready_Type);
    if (done) done->value = Py_NewRef(value);
    return done;
}

static PyObject *ready(PyObject *value, PyObject *otherwise)
{
    Ready *done = new_ready(value);
    if (done) return (PyObject *)done;
    note_fault("range.await");
    return Py_NewRef(otherwise);
}
/* Raise StopIteration(value), also where value is a tuple or an exception, which PyErr_SetObject would take apart. */
static void stop_with(PyObject *value)
{
    PyObject *stop = value == Py_None ? NULL : PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
    if (value == Py_None) PyErr_SetNone(PyExc_StopIteration);
    else if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
}
static PyObject *ready_self(PyObject *self) { return Py_NewRef(self); }
static PyObject *ready_next(PyObject *self)
{
    stop_with(((Ready *)self)->value);
    return NULL;
}
#if PY_VERSION_HEX >= 0x030a0000
static PySendResult ready_send(PyObject *self, PyObject *unused, PyObject **result)
{ /* what `await` asks first, and without an exception for its answer */
    (void)unused;
    *result = Py_NewRef(((Ready *)self)->value);
    return PYGEN_RETURN;
}
#endif
static void ready_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((Ready *)self)->value);
    PyObject_Free(self);
    Py_DECREF(type);
}
static PyType_Slot ready_slots[] = {{Py_tp_dealloc, ready_dealloc}, {Py_am_await, ready_self}, {Py_tp_iter, ready_self},
                                    {Py_tp_iternext, ready_next},
#if PY_VERSION_HEX >= 0x030a0000
                                    {Py_am_send, ready_send},
#endif
                                    {0, NULL}};
static PyType_Spec ready_spec = {"mstxkit.engine.native.hot.Ready", sizeof(Ready), 0, Py_TPFLAGS_DEFAULT, ready_slots};

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
    {"__aenter__", range_aenter, METH_NOARGS, NULL},
    {"__aexit__", range_aexit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef range_getset[] = {{"name", range_get, NULL, "The range's name.", (void *)0},
                                     {"stage", range_get, NULL, "The range's own stage, or None.", (void *)1},
                                     {"domain", range_get, NULL, "The mstx domain.", (void *)2},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef range_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Range, call), READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyType_Slot range_slots[] = {{Py_tp_dealloc, range_dealloc}, {Py_tp_call, PyVectorcall_Call},
                                    {Py_tp_methods, range_methods},
                                    {Py_tp_getset, range_getset}, {Py_tp_members, range_members},
                                    {Py_tp_doc, (void *)doc_range}, {0, NULL}};
static PyType_Spec range_spec = {"mstxkit.engine.native.hot.Range", sizeof(Range), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, range_slots};

/* ---- SelfDescr ---- */
static PyTypeObject *SelfDescr_Type;
static PyObject *selfdescr_get(PyObject *self, PyObject *obj, PyObject *type)
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
#endif
