/* The live file as the hot path sees it: clock, banks, texts, slots, records. Layout: docs/internals/format.md.
 *
 * Everything here runs under the GIL, but for the heartbeat thread (its own mutex) and encode_bank (a full bank does
 * not change). Stores that a concurrent reader of the file depends on are release stores.
 */
#ifndef MSTXKIT_LIVE_H
#define MSTXKIT_LIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030b0000
#include <longintrepr.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))
/* Beside one another: after a sleep each page of code that a call needs is as dear as all its instructions. */
#define HOT __attribute__((hot))
#if PY_VERSION_HEX < 0x030a0000
static inline PyObject *new_reference(PyObject *o) { Py_INCREF(o); return o; }
static inline PyObject *new_reference_or_null(PyObject *o) { Py_XINCREF(o); return o; }
#define Py_NewRef(o) new_reference((PyObject *)(o))
#define Py_XNewRef(o) new_reference_or_null((PyObject *)(o))
#endif

/* records.py */
enum { RECORD_WORDS = 3, RECORD_BYTES = 24, STAGE_MAX = 4095, TRACK_MAX = 65535, ATTRIBUTE_LIMIT = 64 };
enum { NUMBERED_STAGES = 3000 };
#define SITE_LIMIT 60000u
#define NO_STEP 0xFFFFFFFFu
#define LOW_48 ((1ull << 48) - 1)
#define LOW_52 ((1ull << 52) - 1)
#define DURATION_MAX ((1ull << 40) - 1)
#define FLAG_ERROR (1ull << 48)
#define FLAG_SCALED (1ull << 49)
#define SCALE_SHIFT 12
#define KIND_SHIFT 50
#define CHECK_PRIME 4093u
enum { KIND_RANGE, KIND_MARK, KIND_ATTRIBUTE };
enum { TYPE_INT = 1, TYPE_FLOAT, TYPE_BOOL, TYPE_TEXT, TYPE_OTHER, TYPE_NULL, TYPE_BUSY };

/* livefile.py */
enum { HEADER_BYTES = 8192, SLOT_WORDS = 4, SLOT_BYTES = 32, BANK_HEADER_BYTES = 128, TRAILER_BYTES = 16 };
enum { AT_SLOT_COUNT = 16, AT_BANK_COUNT = 20, AT_BANK_BYTES = 24, AT_SLOTS = 32, AT_BANKS = 40, AT_HEARTBEAT = 72,
       AT_COUNTERS = 80, AT_ACTIVE = 152, AT_ANCHOR_COUNT = 256, AT_ANCHORS = 264,
       ANCHOR_BYTES = 32, ANCHOR_ENTRIES = 64 };
enum { BANK_SEQ = 0, BANK_STATE = 8, BANK_SALT = 16, BANK_ORIGIN = 24, BANK_COUNT = 32, BANK_TEXT = 40,
       BANK_SINCE = 48 };
enum { BANK_FREE, BANK_ACTIVE, BANK_FULL };
enum { TEXT_SITE = 1, TEXT_STAGE, TEXT_TEXT, TEXT_TRACK };
enum { DROPPED, SLOTS_OVERFLOWED, ATTRIBUTES_LOST, NAMES_CAPPED, TEXTS_CUT, FAULTS, COALESCED = 7, COUNTER_COUNT = 9 };
enum { CLOCK_MONO = 1, CLOCK_TSC, CLOCK_CNTVCT, CLOCK_FAKE };

/* What `g.on` holds: zero means that a range does nothing at all. */
enum { ON_RECORD = 1, ON_DIRECT = 2, ON_SINK_0 = 4, ON_SINKS = 4 | 8 | 16, ON_WATCH = 32, ON_AWAITED = 64 };

struct Range;

typedef struct {
    uint32_t on;
    uint32_t clock;
    uint32_t step;              /* NO_STEP until first set */
    uint32_t first_step;        /* the first that was said while this recorder records, and when */
    uint64_t first_step_ticks;
    uint32_t forks;             /* a child does not end in the tool what its parent began there */
    uint32_t generation;        /* of attach; a range of another generation writes nothing */
    uint64_t fake_ticks;
    double ticks_per_ns;
    uint64_t first_ticks, first_ns; /* the first anchor: what ticks_per_ns is refined from */

    /* the attached live file; all zero while detached */
    Py_buffer view;
    char *base;
    uint64_t nonce;
    uint32_t slot_count, bank_count;
    uint64_t bank_bytes, slots_at, banks_at;
    uint64_t *counters;         /* in the header, or `detached_counters` */
    uint64_t detached_counters[COUNTER_COUNT];

    /* the active bank */
    char *bank;                 /* NULL: none is free */
    uint64_t *records;
    uint64_t origin, salt, seq, text_bytes;
    uint64_t count, limit;      /* records written; how many fit above the texts */
    uint32_t bank_index, next_text;
    uint64_t last_seq;
    PyObject *texts;            /* dict str -> id, of the active bank */

    /* open slots */
    uint32_t *free_slots, free_count, stage_slots; /* the last ones are for stages */
    struct Range **slot_ranges;  /* who is in a slot: a new bank must know their sites and tracks */

    /* heartbeat thread and sealer wake-up */
    pthread_mutex_t beat_lock, work_lock;
    pthread_cond_t beat_cond, work_cond;
    pthread_t beat_thread;
    int beat_running, beat_stop, work_pending;
    int is_quiet;               /* the sealer sleeps until more is recorded than `quiet_at`, which a beat sees */
    uint64_t beat_ns, quiet_at;

    /* hooks into Python */
    PyObject *describe, *utf8, *fault, *decorate, *unpickle;
    PyObject *settle;           /* plain_values.settle */
} Hot;

static Hot g;

static inline uint64_t *u64_at(char *base, uint64_t at) { return (uint64_t *)(void *)(base + at); }
static inline uint32_t *u32_at(char *base, uint64_t at) { return (uint32_t *)(void *)(base + at); }
static inline void publish(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }

/* ---- clock ---- */
static inline uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline uint64_t now(void)
{
#if defined(__x86_64__)
    if (LIKELY(g.clock == CLOCK_TSC)) return __rdtsc();
#elif defined(__aarch64__)
    if (LIKELY(g.clock == CLOCK_CNTVCT)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return g.clock == CLOCK_FAKE ? g.fake_ticks : clock_ns(CLOCK_MONOTONIC);
}

typedef struct { uint64_t ticks, mono, real, error; } Anchor;

/* One instant on all three clocks: the tightest of a few brackets, since a preempted one would be off by
 * milliseconds. */
static Anchor take_anchor(void)
{
    Anchor best = {0, 0, 0, UINT64_MAX};
    for (int i = 0; i < 5; i++) {
        uint64_t m0 = clock_ns(CLOCK_MONOTONIC), before = now();
        uint64_t mono = clock_ns(CLOCK_MONOTONIC), real = clock_ns(CLOCK_REALTIME);
        uint64_t after = now(), bracket = clock_ns(CLOCK_MONOTONIC) - m0;
        if (bracket / 2 < best.error) {
            best.ticks = g.clock == CLOCK_MONO ? mono : before + (after - before) / 2;
            best.mono = mono;
            best.real = real;
            best.error = bracket / 2;
        }
    }
    return best;
}

static void write_anchor(char *base)
{
    Anchor a = take_anchor();
    pthread_mutex_lock(&g.beat_lock);
    uint64_t count = *u64_at(base, AT_ANCHOR_COUNT);
    uint64_t place = count == 0 ? 0 : 1 + (count - 1) % (ANCHOR_ENTRIES - 1);
    memcpy(base + AT_ANCHORS + place * ANCHOR_BYTES, &a, sizeof a);
    publish(u64_at(base, AT_ANCHOR_COUNT), count + 1);
    if (a.mono > g.first_ns + 10000000 && g.clock != CLOCK_FAKE)
        g.ticks_per_ns = (double)(a.ticks - g.first_ticks) / (double)(a.mono - g.first_ns);
    pthread_mutex_unlock(&g.beat_lock);
}

/* ---- faults: counted in the header, told to Python once it is safe to ---- */
/* what a signal handler of the program raised while we ran, to be raised in the program */
static PyObject *g_escaped;

static int raise_escaped(void *unused)
{
    (void)unused;
    PyObject *escaped = g_escaped;
    g_escaped = NULL;
    if (!escaped) return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(escaped), escaped);
    Py_DECREF(escaped);
    return -1;
}

/* SystemExit of a handler of SIGTERM, say: it is for the program, which goes on where it was, and gets it there. */
static COLD void let_escape(PyObject *exception)
{
    if (syscall(SYS_gettid) != getpid()) { /* of a thread that somebody stops; a pending call is the main one's */
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(exception));
        return;
    }
    Py_XSETREF(g_escaped, Py_NewRef(exception));
    Py_AddPendingCall(raise_escaped, NULL);
}

/* What is set and no fault of ours goes to the program; 0: it is a fault, and has been cleared. */
static COLD int give_back(PyObject *type, PyObject *value)
{
    /* the user's Ctrl-C, caught in a sink: it comes again, in the user's own code */
    if (type == PyExc_KeyboardInterrupt) PyErr_SetInterrupt();
    else if (value && !PyErr_GivenExceptionMatches(type, PyExc_Exception)) let_escape(value);
    else return 0;
    return 1;
}

/* Counted also where Python cannot be told, for want of memory, say. */
static COLD void tell_fault(const char *where, PyObject *exception)
{
    uint64_t before = g.counters[FAULTS];
    PyObject *done = PyObject_CallFunction(g.fault, "sO", where, exception), *type, *value, *trace;
    if (!done && g.counters[FAULTS] == before) g.counters[FAULTS]++;
    Py_XDECREF(done);
    PyErr_Fetch(&type, &value, &trace);
    if (type) PyErr_NormalizeException(&type, &value, &trace);
    if (type) give_back(type, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Is there any? CPython 3.9 and 3.10 end the process where there is none for the MemoryError itself. */
static int has_memory(void)
{
    void *some = PyObject_Malloc(256);
    PyObject_Free(some);
    return some != NULL;
}

/* Count what is set, if anything is, and clear it: no exception is left. */
static COLD void note_fault(const char *where)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (type && g.fault && !(type == PyExc_MemoryError && !has_memory())) {
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace && PyException_SetTraceback(value, trace) < 0) PyErr_Clear();
        if (!give_back(type, value)) tell_fault(where, value);
    } else {
        g.counters[FAULTS]++;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static inline void note_if_failed(const char *where)
{
    if (PyErr_Occurred()) note_fault(where);
}

/* ---- texts ---- */
static inline uint64_t bank_room(void) { return g.bank_bytes - BANK_HEADER_BYTES - g.text_bytes; }

static uint32_t crc32_of(const unsigned char *bytes, uint64_t n, uint32_t seed)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            table[i] = c;
        }
    uint32_t crc = ~seed;
    while (n--) crc = table[(crc ^ *bytes++) & 255] ^ (crc >> 8);
    return ~crc;
}

/* Append one text entry; `spare` records must still fit. 0: no room. */
static COLD int put_text(int kind, uint32_t id, const void *head, uint32_t head_bytes, const void *a, uint32_t a_bytes,
                         const void *b, uint32_t b_bytes, uint64_t spare)
{
    uint32_t length = head_bytes + a_bytes + b_bytes, padded = (length + 7u) & ~7u;
    uint64_t needed = padded + TRAILER_BYTES;
    if (!g.bank || bank_room() < (g.count + spare) * RECORD_BYTES + needed) return 0;
    char *end = g.bank + g.bank_bytes - g.text_bytes, *at = end - needed;
    memcpy(at, head, head_bytes);
    if (a_bytes) memcpy(at + head_bytes, a, a_bytes);
    if (b_bytes) memcpy(at + head_bytes + a_bytes, b, b_bytes);
    memset(at + length, 0, padded - length);
    struct { uint32_t length; uint16_t kind, zero; uint32_t id, crc; } trailer = {
        length, (uint16_t)kind, 0, id, crc32_of((unsigned char *)at, length, (uint32_t)g.salt)};
    memcpy(end - TRAILER_BYTES, &trailer, TRAILER_BYTES);
    g.text_bytes += needed;
    g.limit = bank_room() / RECORD_BYTES;
    publish(u64_at(g.bank, BANK_TEXT), g.text_bytes);
    return 1;
}

/* ---- banks ---- */
static inline char *bank_at(uint32_t index) { return g.base + g.banks_at + index * g.bank_bytes; }
static void define_open(void); /* attaching.h: what is open, in a bank just activated */
static uint64_t oldest_pending(uint64_t at); /* limits.h: the first end that is still to be written, at most `at` */

static uint64_t random_word(void)
{
    static uint64_t x;
    if (!x) x = clock_ns(CLOCK_REALTIME) ^ ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)&g;
    x += 0x9E3779B97F4A7C15ull; /* splitmix64 */
    uint64_t z = x;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* A record that made its bank rotate ended before the new one was activated: the origin lies a little, 4 million
 * ticks, earlier. */
#define ORIGIN_SLACK (1ull << 22)

static COLD void activate(uint32_t index)
{
    char *bank = bank_at(index);
    *u64_at(bank, BANK_COUNT) = 0;
    *u64_at(bank, BANK_TEXT) = 0;
    *u64_at(bank, BANK_SALT) = g.salt = random_word();
    uint64_t at = now(), oldest = oldest_pending(at);
    if (at - oldest < ORIGIN_SLACK) oldest = at > ORIGIN_SLACK ? at - ORIGIN_SLACK : 0;
    *u64_at(bank, BANK_ORIGIN) = g.origin = oldest;
    *u64_at(bank, BANK_SINCE) = clock_ns(CLOCK_MONOTONIC);
    publish(u64_at(bank, BANK_SEQ), ++g.last_seq);
    __atomic_store_n(u32_at(bank, BANK_STATE), BANK_ACTIVE, __ATOMIC_RELEASE);
    *u32_at(g.base, AT_ACTIVE) = index;
    g.bank = bank;
    g.bank_index = index;
    g.records = u64_at(bank, BANK_HEADER_BYTES);
    g.seq = g.last_seq;
    g.count = g.text_bytes = 0;
    g.next_text = 1;
    g.limit = bank_room() / RECORD_BYTES;
    PyDict_Clear(g.texts);
    define_open();
}

static void wake_sealer(void)
{
    pthread_mutex_lock(&g.work_lock);
    g.work_pending = 1;
    pthread_cond_signal(&g.work_cond);
    pthread_mutex_unlock(&g.work_lock);
}

/* The same without a wait: who holds the lock is awake, or was about to sleep for a second at most. */
static COLD void wake_sealer_soon(void)
{
    __atomic_store_n(&g.work_pending, 1, __ATOMIC_RELEASE);
    if (pthread_mutex_trylock(&g.work_lock)) return;
    pthread_cond_signal(&g.work_cond);
    pthread_mutex_unlock(&g.work_lock);
}

/* Hand the active bank to the sealer and take a free one. 0: there is none; then records are dropped until there is. */
static COLD int rotate_bank(void)
{
    if (!g.base) return 0;
    uint32_t next = g.bank_index;
    for (uint32_t i = 1; i <= g.bank_count; i++) {
        uint32_t index = (g.bank_index + i) % g.bank_count;
        if (*u32_at(bank_at(index), BANK_STATE) == BANK_FREE) { next = index; break; }
    }
    if (g.bank && g.count == 0) { /* nothing to seal: the same bank again, as new */
        activate(g.bank_index);
        return 1;
    }
    int found = *u32_at(bank_at(next), BANK_STATE) == BANK_FREE;
    if (g.bank) {
        if (!found) { wake_sealer(); return 0; }
        __atomic_store_n(u32_at(g.bank, BANK_STATE), BANK_FULL, __ATOMIC_RELEASE);
        g.bank = NULL;
        wake_sealer();
    }
    if (found) activate(next);
    return found;
}

/* ---- records ---- */
static inline uint64_t with_check(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t index)
{
    return w2 | ((w0 ^ w1 ^ w2 ^ g.salt ^ index) % CHECK_PRIME + 1) << 52;
}

static inline void store_record(uint64_t index, uint64_t w0, uint64_t w1, uint64_t w2)
{
    uint64_t *at = g.records + index * RECORD_WORDS;
    at[0] = w0;
    at[1] = w1;
    at[2] = with_check(w0, w1, w2, index);
}

static inline void publish_count(uint64_t count)
{
    g.count = count;
    publish(u64_at(g.bank, BANK_COUNT), count);
}

/* Ticks from the bank's origin; 0 for an end that is even older. */
static inline uint64_t since_origin(uint64_t end) { return LIKELY(end >= g.origin) ? end - g.origin : 0; }

/* Is there room for `n` records ending at `end`? Rotates where there is not; counts a drop where that fails. */
static COLD int make_room(uint64_t n, uint64_t end)
{
    if (g.bank && g.count + n <= g.limit && since_origin(end) >> 48 == 0) return 1;
    if (rotate_bank() && g.count + n <= g.limit) return 1;
    g.counters[DROPPED]++;
    return 0;
}

static inline int has_room(uint64_t n, uint64_t end)
{
    return LIKELY(g.count + n <= g.limit && since_origin(end) >> 48 == 0) || make_room(n, end);
}

static inline uint64_t duration_bits(uint64_t ticks)
{
    if (LIKELY(ticks <= DURATION_MAX)) return ticks;
    uint64_t units = ticks >> SCALE_SHIFT;
    return (units > DURATION_MAX ? DURATION_MAX : units) | FLAG_SCALED;
}

/* ---- slots ---- */
static int is_stage(const struct Range *range);
static COLD int has_slot(const struct Range *range)
{
    if (g.free_count && is_stage(range)) return 1;
    g.counters[SLOTS_OVERFLOWED]++;
    return 0;
}

static inline int32_t open_slot(uint64_t start, uint64_t w1, uint64_t w2, struct Range *range)
{
    if (UNLIKELY(g.free_count <= g.stage_slots) && !has_slot(range)) return -1;
    uint32_t slot = g.free_slots[--g.free_count];
    uint64_t *at = u64_at(g.base, g.slots_at + (uint64_t)slot * SLOT_BYTES);
    uint64_t mark = start ^ w1 ^ w2 ^ g.nonce;
    at[0] = start;
    at[1] = w1;
    at[2] = w2;
    publish(at + 3, mark ? mark : 1);
    g.slot_ranges[slot] = range;
    return (int32_t)slot;
}

static inline void close_slot(int32_t slot)
{
    if (UNLIKELY(slot < 0)) return;
    publish(u64_at(g.base, g.slots_at + (uint64_t)slot * SLOT_BYTES) + 3, 0);
    g.slot_ranges[slot] = NULL;
    g.free_slots[g.free_count++] = (uint32_t)slot;
}
#endif
