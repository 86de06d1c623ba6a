/* What the recorder's own threads call: full banks as blocks of a segment, sleep until there is work, heartbeat. */
#include "banks.h"
#include "blocks.h"
#include "heartbeat.h"
#include "live.h"

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
