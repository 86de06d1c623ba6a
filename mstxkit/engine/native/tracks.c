/* Tracks: who is inside what. A thread, or a contextvars context on a thread, holds the ranges it has open.
 *
 * PyThreadState.context_ver grows with every context that is entered or left, so "still the same context" is one
 * comparison. A Track struct lives for ever; a thread's Tracks are taken over by a later thread once it is gone.
 */
#include "tracks.h"

#include "faults.h"
#include "live.h"

static __thread Thread *tls_thread __attribute__((tls_model("initial-exec")));
static uint32_t g_track_count;
static pthread_key_t g_thread_key;
static PyObject *s_threading;
static PyObject *g_ambient;      /* ContextVar: stage and at_step that tasks created here inherit */
static int g_ambient_used;
static uint32_t g_ambient_age;
static uint32_t g_left_in;       /* the forks after which `leave_all` has run */

static void thread_gone(void *thread) { __atomic_store_n(&((Thread *)thread)->dead, 1, __ATOMIC_RELEASE); }

static inline PyThreadState *thread_state(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

static Track *add_track(Thread *th)
{
    if (th->track_count == th->track_room) {
        uint32_t room = th->track_room ? th->track_room * 2 : 4;
        Track **grown = PyMem_RawRealloc(th->tracks, room * sizeof *grown);
        if (!grown) return NULL;
        th->tracks = grown;
        th->track_room = room;
    }
    Track *t = PyMem_RawCalloc(1, sizeof *t);
    if (!t) return NULL;
    t->id = g_track_count < TRACK_MAX ? g_track_count++ : TRACK_MAX;
    t->step = NO_STEP;
    t->thread = th;
    th->tracks[th->track_count++] = t;
    return t;
}

static int all_idle(Thread *th)
{
    for (uint32_t i = 0; i < th->track_count; i++)
        if (th->tracks[i]->depth || th->tracks[i]->parked) return 0;
    return 1;
}

/* Threads by Python's id, as it knows them: new, or NULL with or without an exception. A program that has not loaded
 * `threading` has but one. */
static PyObject *known_threads(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *threading = modules && PyDict_Check(modules) ? PyDict_GetItemWithError(modules, s_threading) : NULL;
    PyObject *known = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    if (!known || PyDict_Check(known)) return known;
    Py_DECREF(known);
    return NULL;
}

/* What Python calls this thread, new, or NULL with or without an exception. `threading.current_thread` would make an
 * object for a thread that it does not know; this runs no Python, and takes no lock. */
static PyObject *name_here(void)
{
    PyObject *known = known_threads();
    if (!known && !PyErr_Occurred() && syscall(SYS_gettid) == getpid()) return PyBytes_FromString("MainThread");
    PyObject *id = known ? PyLong_FromUnsignedLong(PyThread_get_thread_ident()) : NULL;
    PyObject *thread = id ? PyDict_GetItemWithError(known, id) : NULL;
    Py_XINCREF(thread);
    PyObject *name = thread ? PyObject_GetAttrString(thread, "_name") : NULL;
    Py_XDECREF(thread);
    PyObject *bytes = NULL;
    if (name && PyUnicode_Check(name)) bytes = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
    Py_XDECREF(name);
    Py_XDECREF(id);
    Py_XDECREF(known);
    return bytes;
}

static COLD void learn_name(Thread *th)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *bytes = name_here();
    Py_ssize_t size = bytes ? PyBytes_GET_SIZE(bytes) : 0;
    if (size > THREAD_NAME_BYTES) {
        size = THREAD_NAME_BYTES;
        while (size && (PyBytes_AS_STRING(bytes)[size] & 0xC0) == 0x80) size--; /* no half characters */
    }
    if (size) memcpy(th->name, PyBytes_AS_STRING(bytes), (size_t)size);
    th->name_bytes = (uint32_t)size;
    Py_XDECREF(bytes);
    PyErr_Restore(type, value, trace);
}

/* This OS thread's Thread: a dead one's, or a new one. NULL: no memory. */
static COLD Thread *make_thread(void)
{
    Thread *th = g_threads;
    while (th && !(__atomic_load_n(&th->dead, __ATOMIC_ACQUIRE) && all_idle(th))) th = th->next;
    if (!th) {
        if (!(th = PyMem_RawCalloc(1, sizeof *th))) return NULL;
        if (!add_track(th)) { /* also a first `tracks` without a track in it */
            PyMem_RawFree(th->tracks);
            PyMem_RawFree(th);
            return NULL;
        }
        th->next = g_threads;
        g_threads = th;
    }
    memset(th->buckets, 0, sizeof th->buckets);
    for (uint32_t i = 0; i < th->track_count; i++) {
        th->tracks[i]->context = NULL;
        th->tracks[i]->hash_next = NULL;
        th->tracks[i]->seq = 0;
    }
    th->lowest_idle = 0;
    th->dead = 0;
    th->state = NULL;
    th->os_id = (uint32_t)syscall(SYS_gettid);
    /* nobody takes it over once the thread is gone */
    if (pthread_setspecific(g_thread_key, th)) note_fault("engine.thread");
    tls_thread = th;
    learn_name(th);
    return th;
}

/* Stage and step as one number: stage in bits 0-15, step in 16-47, has-step in 48. */
static uint64_t packed(uint32_t stage, uint32_t step)
{
    return stage | (step == NO_STEP ? 0 : (uint64_t)step << 16 | 1ull << 48);
}

static void unpack(Track *t, uint64_t bits)
{
    t->stage = (uint32_t)(bits & 0xFFFF);
    t->step = bits >> 48 & 1 ? (uint32_t)(bits >> 16) : NO_STEP;
}

/* The ambient value: the packed number, and above it the age it is of. One that could not be replaced is of an age
 * that is over: nothing is inherited then rather than what is no longer true. */
static void load_ambient(Track *t)
{
    t->stage = 0;
    t->step = NO_STEP;
    if (!g_ambient_used) return;
    PyObject *value = NULL;
    if (PyContextVar_Get(g_ambient, NULL, &value) < 0) { note_fault("engine.ambient"); return; }
    if (!value) return;
    uint64_t bits = PyLong_AsUnsignedLongLong(value);
    Py_DECREF(value);
    if (bits >> 49 != g_ambient_age) return;
    unpack(t, bits);
}

/* CPython's PyContextVar_Set crashes (3.9 to 3.13) where there is memory neither for its token nor for the new value.
 * A token's room, just given back, is there for it. */
static int has_room_for_a_token(void)
{
    void *room = PyObject_Malloc(64);
    PyObject_Free(room);
    return room != NULL;
}

static void store_ambient(Track *t)
{
    g_ambient_used = 1;
    uint64_t bits = packed(t->stage, t->step) | (uint64_t)g_ambient_age << 49;
    PyObject *value = has_room_for_a_token() ? PyLong_FromUnsignedLongLong(bits) : PyErr_NoMemory();
    PyObject *token = value ? PyContextVar_Set(g_ambient, value) : NULL;
    Py_XDECREF(token);
    Py_XDECREF(value);
    if (token) return;
    g_ambient_age = (g_ambient_age + 1) & 0x7FFF;
    note_fault("engine.ambient");
}

static inline uint32_t bucket_of(PyObject *context) { return (uint32_t)((uintptr_t)context >> 5 & (BUCKETS - 1)); }

static Track *idle_track(Thread *th)
{
    for (uint32_t i = th->lowest_idle; i < th->track_count; i++)
        if (th->tracks[i]->depth == 0 && th->tracks[i]->parked == 0) { th->lowest_idle = i; return th->tracks[i]; }
    th->lowest_idle = th->track_count;
    return add_track(th);
}

static void give_context(Thread *th, Track *t, PyObject *context)
{
    if (t->context) {
        Track **at = &th->buckets[bucket_of(t->context)];
        while (*at && *at != t) at = &(*at)->hash_next;
        if (*at) *at = t->hash_next;
    }
    t->context = context;
    Track **head = &th->buckets[bucket_of(context)];
    t->hash_next = *head;
    *head = t;
}

static Track *no_track(void)
{
    note_fault("engine.track");
    return NULL;
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

static COLD Track *find_track(PyThreadState *ts)
{
    if (UNLIKELY(g_left_in != g.forks)) leave_all();
    Thread *th = tls_thread ? tls_thread : make_thread();
    if (!th) return no_track();
    if (!ts->context) { /* makes this thread's base context, so that it has an address like any other */
        PyObject *copy = PyContext_CopyCurrent();
        if (!copy) return no_track();
        Py_DECREF(copy);
    }
    PyObject *context = ts->context;
    Track *t = th->buckets[bucket_of(context)];
    while (t && (t->context != context || !(t->depth || t->parked))) t = t->hash_next;
    if (!t) { /* an idle track of a context at the same address is no reason to prefer it: the lowest one is taken */
        if (!(t = idle_track(th))) return no_track();
        if (t->context != context) give_context(th, t, context);
    }
    if (t->depth == 0) load_ambient(t);
    th->state = ts;
    th->version = ts->context_ver;
    return th->current = t;
}

static inline Track *current_track(void)
{
    PyThreadState *ts = thread_state();
    Thread *th = tls_thread;
    if (LIKELY(th && th->state == ts && th->version == ts->context_ver)) return th->current;
    return find_track(ts);
}

static inline void left_idle(Track *t)
{
    Thread *th = t->thread;
    if (th) th->lowest_idle = 0;
}

static int define_track(Track *t)
{
    const Thread *th = t->thread;
    uint64_t about[2] = {th ? th->os_id : 0, th && th->tracks[0] != t};
    uint32_t name_bytes = th ? th->name_bytes : 0;
    int done = put_text(TEXT_TRACK, t->id, about, sizeof about, th ? th->name : NULL, name_bytes, NULL, 0, 1);
    if (done) t->seq = g.seq;
    return done;
}
