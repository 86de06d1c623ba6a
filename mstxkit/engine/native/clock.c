/* The clock that ranges are timed by, and anchors: one instant on all clocks that a reader needs. */
#include "clock.h"

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

/* ---- the calls from Python ---- */
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
    int is_counter = kind == CLOCK_TSC || kind == CLOCK_CNTVCT;
    if (is_counter && kind == g.clock && g.first_ns) Py_RETURN_NONE; /* known since long, as in a forked child */
    g.clock = (uint32_t)kind;
    g.ticks_per_ns = 1.0;
    Anchor first = take_anchor();
    g.first_ticks = first.ticks;
    g.first_ns = first.mono;
    if (is_counter) { /* a first estimate; later anchors refine it */
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
