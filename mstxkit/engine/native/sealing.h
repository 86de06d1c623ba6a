/* What the recorder's own threads call: full banks as blocks of a segment, sleep until there is work, heartbeat. */
#ifndef MSTXKIT_SEALING_H
#define MSTXKIT_SEALING_H
#include <sys/prctl.h>

#include "blocks.h"
#include "range.h"
#include "texts.h"

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
    int had_one = g.beat_running;
    stop_beating();
    return PyBool_FromLong(had_one);
}
static PyObject *hot_anchor(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (g.base) write_anchor(g.base);
    Py_RETURN_NONE;
}
#endif
