/* What all parts are made of: the numbers of the file's format, the state, and the types that more than one part knows.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030b0000
#include <longintrepr.h>
#endif
#include <structmember.h>

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
typedef enum { PYGEN_RETURN = 0, PYGEN_ERROR = -1, PYGEN_NEXT = 1 } PySendResult;
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
    struct Range **slot_ranges; /* who is in a slot: a new bank must know their sites and tracks */

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
static Hot g __attribute__((aligned(64))); /* what a range reads of it lies in few cache lines */

typedef struct { uint64_t ticks, mono, real, error; } Anchor;

typedef struct Site {
    PyObject_HEAD
    uint32_t id;
    uint32_t own_stage;          /* 0: no stage */
    uint64_t seq;                /* the bank in which this site is defined */
    int32_t countdown;           /* calls until limits.c looks at one; always due where the site is limited */
    uint32_t period;             /* what the countdown began with */
    uint8_t is_watched;          /* watch.c */
    struct Limits *limits;       /* NULL: never looked at */
    PyObject *name, *stage, *domain;             /* as given, for pickling; stage may be None */
    PyObject *name_bytes, *domain_bytes;
    PyObject *message, *message_domain;          /* str, safe for mstx */
    const char *message_c, *message_domain_c;    /* domain: NULL for "default" */
    void *mstx_domain, *mstx_owner;              /* handle, and the function table that gave it */
} Site;

/* What a stage adds up in this process: union of its occurrences, for the last few steps. */
enum { STEPS_KEPT = 8 };
/* What is handed over of a stage: sums.c. Place 0 is that of no step. */
enum { SUMS_KEPT = 17 };
typedef struct {
    uint32_t step, count, active; /* outermost occurrences that ended; all that are open */
    uint8_t used, changed, has, own; /* of what work is known; and of what by the outermost themselves */
    uint64_t since, first, last, total, longest, busy;
    uint64_t tokens, responses, longest_response;
} Sum;
typedef struct {
    PyObject *key, *key_bytes;
    /* the bank in which this stage is defined; that of id 0, no stage, is always the active one */
    uint64_t seq;
    uint32_t active, step;
    uint32_t seen_in;            /* the latest process in which it began: watch.c; 0 none */
    uint64_t since;
    struct { uint32_t step; uint8_t used; uint64_t ticks; } kept[STEPS_KEPT];
    uint32_t next_kept;
    uint8_t latest_sum, sums_changed;
    Sum sums[SUMS_KEPT];
} Stage;

typedef struct Track {
    uint32_t id, depth;
    uint32_t parked;             /* suspended coroutines and generators that began here: the track stays theirs */
    uint32_t stage;              /* the innermost stage that is current */
    uint32_t step;               /* of at_step, else NO_STEP: the process's step counts */
    struct Range *top;
    uint64_t seq;                /* the bank in which this track is defined */
    PyObject *context;           /* borrowed: compared only; alive while depth > 0 */
    struct Track *hash_next;
    struct Thread *thread;
    struct Window *windows;      /* coalesced calls that are not written yet */
} Track;

enum { BUCKETS = 64, THREAD_NAME_BYTES = 64 };
typedef struct Thread {
    PyThreadState *state;
    uint64_t version;
    Track *current;
    uint32_t os_id;
    int dead;                    /* set by the thread's own exit */
    uint32_t name_bytes;
    char name[THREAD_NAME_BYTES]; /* Python's, UTF-8, as it was when the thread first recorded */
    Track **tracks;
    uint32_t track_count, track_room, lowest_idle;
    Track *buckets[BUCKETS];
    struct Thread *next;
} Thread;

enum { SINK_COUNT = 3 };
typedef struct { PyObject *begin, *end, *mark, *begin_stream; } Sink;
typedef struct {                 /* never freed: a range may still be open in it */
    void (*mark)(const char *, void *);
    uint64_t (*start)(const char *, void *);
    void (*end)(uint64_t);
    void *(*domain)(const char *);
    void (*domain_mark)(void *, const char *, void *);
    uint64_t (*domain_start)(void *, const char *, void *);
    void (*domain_end)(void *, uint64_t);
    PyObject *domains;           /* dict str -> int: handles, which mstx wants created once */
} Direct;

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
    uint8_t begun, recorded, depth, rare;   /* begun: 0 or one of the below; rare: something below is set */
    /* rare */
    uint8_t inline_count, sunk, staged;
    uint8_t summed, is_inner;    /* of a stage: the place of its sum, from 1; is it inside of itself on its track? */
    uint8_t unusual;             /* why its end is not as most: below */
    PyObject *stage_key, *domain, *stream;
    PyObject *keys[INLINE_ATTRIBUTES], *values[INLINE_ATTRIBUTES];
    PyObject *extra;             /* dict: given attributes that do not fit above */
    PyObject *added;             /* dict: attributes of set(), of this entry only */
    PyObject *settled;           /* of this entry only: what plain_values.settle made of all attributes */
    PyObject *context;           /* where a stage began, or went on: what is created there inherits it */
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
    PyObject *weak;              /* references to it */
} Range;

/* While it ends, sinks and texts may let others run, who may enter it again: as while it is open, they are inside. */
enum { OPEN = 1, ENDING, ONLY_INNER };
enum { HAS_INNER = 1, FOLDED = 2, SAMPLED = 4, TOLD = 8, NOTHING = 16 };

typedef struct Limits {
    uint8_t coalesce, throttled;
    uint32_t max_depth, max_per_s;
    uint32_t in_second;          /* records since `second`, in ticks */
    uint64_t second;
    uint64_t calls, coalesced;   /* calls without those of the countdown under way */
    uint64_t costed;             /* calls whose cost is in `cost_ns` */
    double cost_ns, usual_ns;
} Limits;

typedef struct Window {
    Site *site;
    uint64_t w1, start, end, calls, total, longest;
    uint32_t stage, generation;
    uint8_t depth, failed;
    struct Window *next;
} Window;
