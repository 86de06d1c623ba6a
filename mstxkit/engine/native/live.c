/* The live file as the hot path sees it: texts, records, slots. Layout: docs/internals/format.md.
 *
 * Everything here runs under the GIL, but for the heartbeat thread (its own mutex) and encode_bank (a full bank does
 * not change). Stores that a concurrent reader of the file depends on are release stores.
 */
#include "live.h"

static inline uint64_t *u64_at(char *base, uint64_t at) { return (uint64_t *)(void *)(base + at); }

static inline uint32_t *u32_at(char *base, uint64_t at) { return (uint32_t *)(void *)(base + at); }

static inline void publish(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }

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

/* ---- banks, and who seals them ---- */
static inline char *bank_at(uint32_t index) { return g.base + g.banks_at + index * g.bank_bytes; }

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

static inline uint64_t duration_bits(uint64_t ticks)
{
    if (LIKELY(ticks <= DURATION_MAX)) return ticks;
    uint64_t units = ticks >> SCALE_SHIFT;
    return (units > DURATION_MAX ? DURATION_MAX : units) | FLAG_SCALED;
}

/* ---- slots ---- */
/* The last ones are for stages. */
static COLD int has_slot(const Range *range)
{
    if (g.free_count && range->site->own_stage) return 1;
    g.counters[SLOTS_OVERFLOWED]++;
    return 0;
}

static inline int32_t open_slot(uint64_t start, uint64_t w1, uint64_t w2, Range *range)
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
