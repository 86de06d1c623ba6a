/* Banks: the active one takes records and knows all that they refer to; a full one is handed to the sealer. */
#include "banks.h"

#include "clock.h"
#include "live.h"
#include "sites.h"
#include "tracks.h"

/* ---- what a bank knows ---- */
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

/* What is open must be readable from a bank that has just become the active one. */
static void define_open(void)
{
    g_stages[0].seq = g.seq;
    for (uint32_t slot = 0; slot < g.slot_count; slot++) {
        Range *r = g.slot_ranges[slot];
        if (r) define(r);
    }
}

/* ---- coalesced calls that are not written yet ---- */
static inline int is_pending(const Window *w) { return w->calls && w->generation == g.generation; }

/* The first end that is still to be written, at most `at`. */
static uint64_t oldest_pending(uint64_t at)
{
    for (Thread *th = g_threads; th && g_windows; th = th->next)
        for (uint32_t i = 0; i < th->track_count; i++)
            for (Window *w = th->tracks[i]->windows; w; w = w->next)
                if (is_pending(w) && w->end < at) at = w->end;
    return at;
}

/* ---- one bank after another ---- */
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

/* ---- room ---- */
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

static COLD void define_for(Range *r)
{
    if (g.bank && !define(r) && rotate_bank()) define(r);
    r->seq = is_defined(r) ? g.seq : 0;
}
