/* What a process hands over of its stages: sums by stage and step, until the sealer's thread takes them.
 *
 * The rows are those of store/summaries.py. Nothing here takes a lock, allocates or calls the system. Occurrences count
 * for the step at their own begin, and the union is one of that step: where steps overlap, each has its own.
 */
#include "sums.h"

#include "clock.h"
#include "live.h"
#include "sites.h"

enum { OUTSIDE = 0, PENDING_MAX = 4096, ROW_BYTES = 40 };
enum { HAS_TOKENS = 1, HAS_RESPONSES = 2, HAS_LONGEST = 4, HAS_BUSY = 8 };

/* A step of at_step, or one that was left by going back, is over after so many ns without an end; so often is handed
 * over what is in no step; so often at most the sealer is woken for a step. */
#define QUIET_NS 2e9
#define OUTSIDE_NS 60e9
#define WAKE_NS 1e9

typedef struct { uint32_t stage; Sum sum; } Pending;

static Pending g_pending[PENDING_MAX]; /* over, and put away: another step needed the place */
static uint32_t g_pending_count, g_highest_step;
static uint64_t g_summaries_lost, g_outside_since, g_woken_at;

static inline int is_ticks_since(uint64_t at, uint64_t before, double ns)
{
    return (double)(int64_t)(at - before) >= ns * g.ticks_per_ns;
}

static void put_away(uint32_t stage, Sum *sum)
{
    if (!sum->changed) return;
    if (g_pending_count == PENDING_MAX) { g_summaries_lost++; return; }
    g_pending[g_pending_count].stage = stage;
    g_pending[g_pending_count++].sum = *sum;
    if (g_pending_count == PENDING_MAX / 2) wake_sealer_soon();
}

/* The place of a step that is new to a stage; NULL: something of every step that it keeps is open. Of those that are
 * not, the one that changed first is put away. */
static COLD Sum *new_sum(Stage *stage, uint32_t step)
{
    Sum *found = step == NO_STEP ? &stage->sums[OUTSIDE] : NULL;
    for (int i = OUTSIDE + 1; step != NO_STEP && i < SUMS_KEPT; i++) {
        Sum *sum = &stage->sums[i];
        if (!sum->used) { found = sum; break; }
        if (!sum->active && (!found || sum->last < found->last)) found = sum;
    }
    if (!found) { g_summaries_lost++; return NULL; }
    if (found->used) put_away((uint32_t)(stage - g_stages), found);
    memset(found, 0, sizeof *found);
    found->used = 1;
    found->step = step;
    if (step != NO_STEP && step > g_highest_step) g_highest_step = step;
    return found;
}

static inline Sum *sum_of(Stage *stage, uint32_t step)
{
    Sum *latest = &stage->sums[stage->latest_sum];
    if (LIKELY(latest->used && latest->step == step)) return latest;
    for (int i = OUTSIDE; i < SUMS_KEPT; i++)
        if (stage->sums[i].used && stage->sums[i].step == step) return &stage->sums[i];
    return new_sum(stage, step);
}

/* Its place from 1; 0: there is none. */
static inline uint8_t sum_begins(Stage *stage, uint32_t step, uint64_t start)
{
    Sum *sum = sum_of(stage, step);
    if (UNLIKELY(!sum)) return 0;
    stage->latest_sum = (uint8_t)(sum - stage->sums);
    if (sum->active++ == 0) sum->since = start;
    return (uint8_t)(stage->latest_sum + 1);
}

/* `busy` 0: all of it was spent inside. What is inside of itself changes nothing until the outermost ends, or where
 * that has ended first. */
static inline void sum_ends(Stage *stage, Sum *sum, uint64_t start, uint64_t end, uint64_t busy, int is_inner)
{
    if (end < start) end = start;
    if (--sum->active == 0) sum->total += end > sum->since ? end - sum->since : 0;
    if (!is_inner || sum->count) stage->sums_changed = sum->changed = g_sums_changed = 1;
    if (is_inner) return;
    if (end > sum->last) sum->last = end;
    if (sum->count++ == 0 || start < sum->first) sum->first = start;
    if (end - start > sum->longest) sum->longest = end - start;
    sum->busy += busy ? busy : end - start;
    if (busy) sum->has |= HAS_BUSY;
}

static inline uint64_t saturated(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

/* Only whole numbers count; NULL: there is no such attribute. */
static inline int is_work(PyObject *value, uint64_t *amount)
{
    if (!value || !PyLong_CheckExact(value)) return 0;
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    *amount = (uint64_t)number;
    return !overflow && number >= 0;
}

/* What is inside of itself says it only where no outermost occurrence does: else the same work would count twice. */
static void add_kind(Sum *sum, uint8_t kind, uint64_t *kept, uint64_t amount, int is_inner)
{
    if (is_inner && sum->own & kind) return;
    uint64_t before = is_inner || sum->own & kind ? *kept : 0;
    if (kind == HAS_LONGEST) *kept = amount > before ? amount : before;
    else *kept = saturated(before, amount);
    sum->has |= kind;
    if (!is_inner) sum->own |= kind;
}

static PyObject *g_stage_waits; /* key of a stage to whom it waits for, "" where that is no text */

static void waits(Stage *stage, PyObject *for_whom)
{
    static PyObject *nobody;
    if (!nobody) nobody = PyUnicode_InternFromString("");
    if (!PyUnicode_CheckExact(for_whom)) for_whom = nobody;
    if (!for_whom || PyDict_SetItem(g_stage_waits, stage->key, for_whom) < 0) PyErr_Clear();
}

static void add_work(Stage *stage, Sum *sum, PyObject *const *work, int is_inner)
{
    PyObject *responses = work[W_RESPONSES] ? work[W_RESPONSES] : work[W_PROMPTS];
    uint64_t amount;
    if (work[W_WAITS] && work[W_WAITS] != Py_None) waits(stage, work[W_WAITS]);
    if (is_work(work[W_TOKENS], &amount)) add_kind(sum, HAS_TOKENS, &sum->tokens, amount, is_inner);
    if (is_work(responses, &amount)) add_kind(sum, HAS_RESPONSES, &sum->responses, amount, is_inner);
    if (is_work(work[W_LONGEST], &amount)) add_kind(sum, HAS_LONGEST, &sum->longest_response, amount, is_inner);
}

/* At a new file, and in a forked child. */
static void forget_sums(void)
{
    for (uint32_t id = 1; id <= g_stage_count; id++) {
        memset(g_stages[id].sums, 0, sizeof g_stages[id].sums);
        g_stages[id].sums_changed = g_stages[id].latest_sum = 0;
    }
    g_pending_count = g_highest_step = 0;
    g_summaries_lost = g_woken_at = 0;
    g_sums_changed = 0;
    g_outside_since = now();
}

/* The process's step has moved on: what is over is handed over now and not a second later. */
static COLD void step_is_over(void)
{
    uint64_t at = now();
    if (!(g.on & ON_RECORD) || (g_woken_at && !is_ticks_since(at, g_woken_at, WAKE_NS))) return;
    g_woken_at = at;
    wake_sealer_soon();
}

/* ---- taking ---- */
static int is_due(const Sum *sum, uint64_t at, int everything)
{
    if (!sum->changed) return 0;
    if (everything) return 1;
    if (sum->step == NO_STEP) return is_ticks_since(at, g_outside_since, OUTSIDE_NS);
    if (g.step != NO_STEP && sum->step < g.step) return 1;
    return sum->step != g.step && is_ticks_since(at, sum->last, sum->step < g_highest_step ? QUIET_NS : OUTSIDE_NS);
}

static uint64_t ns_of(uint64_t ticks) { return (uint64_t)((double)ticks / g.ticks_per_ns); }

static uint32_t in_units(uint64_t ns)
{
    uint64_t us = ns / 1000, coarse = us >> 10;
    if (us < 1ull << 31) return (uint32_t)us;
    return (uint32_t)(1ull << 31 | (coarse < (1ull << 31) - 1 ? coarse : (1ull << 31) - 1));
}

static uint64_t at_most(uint64_t value, uint64_t limit) { return value < limit ? value : limit; }

static uint64_t busy_part(const Sum *sum, uint64_t total_ns)
{
    if (!(sum->has & HAS_BUSY)) return 0xFFFF;
    if (!total_ns) return 0;
    return at_most((uint64_t)((unsigned __int128)ns_of(sum->busy) * 65534 / total_ns), 65534);
}

/* CLOCK_MONOTONIC, by an anchor of just now. */
static int64_t monotonic_of(uint64_t ticks, const Anchor *anchor)
{
    if (g.clock == CLOCK_MONO || g.clock == CLOCK_FAKE) return (int64_t)ticks;
    return (int64_t)anchor->mono + (int64_t)((double)(int64_t)(ticks - anchor->ticks) / g.ticks_per_ns);
}

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

#define PUT(type, value) do { type v = (type)(value); to = put(to, &v, sizeof v); } while (0)

static char *put_row(char *to, uint32_t stage, const Sum *sum, const Anchor *anchor)
{
    int64_t entered = monotonic_of(sum->first, anchor), left = monotonic_of(sum->last, anchor);
    /* Something is open yet: up to the last end, all since its begin belongs to the union. */
    uint64_t open = sum->active && sum->last > sum->since ? sum->last - sum->since : 0;
    uint64_t total_ns = ns_of(sum->total + open);
    PUT(uint32_t, sum->step);
    PUT(uint16_t, stage);
    PUT(uint16_t, at_most(sum->count, 0xFFFF));
    PUT(int64_t, entered);
    PUT(uint32_t, in_units((uint64_t)(left - entered)));
    PUT(uint32_t, in_units(total_ns));
    PUT(uint32_t, in_units(ns_of(sum->longest)));
    PUT(uint16_t, busy_part(sum, total_ns));
    PUT(uint16_t, sum->has & HAS_RESPONSES ? at_most(sum->responses, 0xFFFE) : 0xFFFF);
    PUT(uint32_t, sum->has & HAS_TOKENS ? at_most(sum->tokens, 0xFFFFFFFE) : 0xFFFFFFFF);
    PUT(uint32_t, sum->has & HAS_LONGEST ? at_most(sum->longest_response, 0xFFFFFFFE) : 0xFFFFFFFF);
    return to;
}

/* Calls from the sealer: counts what is due, or writes it to `to`, and then it is no longer. */
static uint32_t due_rows(char *to, uint64_t at, int everything, const Anchor *anchor)
{
    uint32_t due = g_pending_count, left = 0;
    for (uint32_t i = 0; to && i < g_pending_count; i++)
        to = put_row(to, g_pending[i].stage, &g_pending[i].sum, anchor);
    for (uint32_t id = 1; id <= g_stage_count; id++) {
        Stage *stage = &g_stages[id];
        uint32_t left_before = left;
        for (int i = OUTSIDE; stage->sums_changed && i < SUMS_KEPT; i++) {
            Sum *sum = &stage->sums[i];
            if (!is_due(sum, at, everything)) { left += sum->changed; continue; }
            due++;
            if (!to) continue;
            to = put_row(to, id, sum, anchor);
            sum->changed = 0;
        }
        if (to) stage->sums_changed = left != left_before;
    }
    if (!to) return due;
    g_pending_count = 0;
    g_sums_changed = left != 0;
    if (everything || is_ticks_since(at, g_outside_since, OUTSIDE_NS)) g_outside_since = at;
    return due;
}

static PyObject *hot_stage_keys(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *keys = PyList_New(0);
    for (uint32_t id = 1; keys && id <= g_stage_count; id++)
        if (PyList_Append(keys, g_stages[id].key) < 0) Py_CLEAR(keys);
    return keys;
}

static PyObject *hot_stage_waits(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyDict_Copy(g_stage_waits);
}

static PyObject *hot_take_summaries(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    static char *names[] = {"everything", NULL};
    int everything = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &everything)) return NULL;
    Anchor anchor = g.clock == CLOCK_MONO || g.clock == CLOCK_FAKE ? (Anchor){0, 0, 0, 0} : take_anchor();
    uint64_t at = now();
    uint32_t due = due_rows(NULL, at, everything, &anchor);
    PyObject *rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)due * ROW_BYTES); /* runs no Python */
    if (rows) due_rows(PyBytes_AS_STRING(rows), at, everything, &anchor);
    return rows;
}
