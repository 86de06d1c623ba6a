/* The heartbeat: a thread of its own that needs no GIL, says that the process lives, and writes anchors. */
#include "heartbeat.h"

#include "clock.h"
#include "live.h"
#include "watch.h"

#include <sys/mman.h>
#include <sys/prctl.h>

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

/* Pages of the live file are there before anybody writes to them, a few at a time: a mapping that the program makes
 * waits for it. Before Linux 5.14 whoever writes first pays. Source: Linux, include/uapi/asm-generic/mman-common.h. */
static void make_resident(char *base, uint64_t bytes)
{
    enum { POPULATE_WRITE = 23, SOME = 64 << 12 };
    for (uint64_t at = 0; at < bytes; at += SOME)
        if (madvise(base + at, bytes - at < SOME ? bytes - at : SOME, POPULATE_WRITE)) return;
}

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
        if (beats == 1) make_resident(base, (uint64_t)g.view.len);
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
