/* How the attributes of a range become records: each once, the last one given, in a fixed order.
 *
 * Numbers and texts are written as they are. Python makes plain values of all others, while the range is still open.
 */
#include "attributes.h"

#include "banks.h"
#include "clock.h"
#include "faults.h"
#include "live.h"
#include "sites.h"

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
