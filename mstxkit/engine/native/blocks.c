/* The uncompressed parts of a block, of records that do not change any more: exactly as segment.encode_bank. */
#include "blocks.h"

static void reach_over(Extent *e, const uint64_t *w, int is_first)
{
    int64_t duration = (int64_t)((w[2] & DURATION_MAX) << (w[2] & FLAG_SCALED ? SCALE_SHIFT : 0));
    int64_t end = (int64_t)(w[0] & LOW_48);
    uint32_t step = (uint32_t)(w[1] >> 32);
    if (is_first || end - duration < e->first) e->first = end - duration;
    if (is_first || end > e->last) e->last = end;
    if (step != NO_STEP) {
        if (e->first_step == NO_STEP || step < e->first_step) e->first_step = step;
        if (e->last_step == NO_STEP || step > e->last_step) e->last_step = step;
    }
    e->stages[w[0] >> 54] |= 1ull << (w[0] >> 48 & 63);
}

static int is_whole(const uint64_t *w, uint64_t salt, uint64_t index)
{
    return w[2] >> 52 == (w[0] ^ w[1] ^ (w[2] & LOW_52) ^ salt ^ index) % CHECK_PRIME + 1;
}

/* Where an attribute's range is damaged the attribute is left out: it must not be shown as another range's. */
static Counts count_whole(const uint64_t *words, uint64_t count, uint64_t salt)
{
    Counts c = {0, 0};
    int has_owner = 0;
    for (uint64_t i = 0; i < count; i++, words += RECORD_WORDS) {
        if (!is_whole(words, salt, i)) has_owner = 0;
        else if ((words[2] >> KIND_SHIFT & 3) == KIND_ATTRIBUTE) c.m += (uint64_t)has_owner;
        else { c.n++; has_owner = 1; }
    }
    return c;
}

/* Planes that grow by eight records at a time: byte k of record i of `n` goes to k * n + i. */
typedef struct { unsigned char *out; uint64_t n, i; uint64_t words[3][8]; } Planes;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Rows of an 8 x 8 square of bytes become its columns: blocks of 4, of 2, of 1 change places across the diagonal. */
static inline void exchange(uint64_t *upper, uint64_t *lower, int bits, uint64_t low)
{
    uint64_t moved = (*upper >> bits ^ *lower) & low;
    *upper ^= moved << bits;
    *lower ^= moved;
}

static inline void transpose(uint64_t *x)
{
    static const uint64_t low4 = 0x00000000FFFFFFFFull, low2 = 0x0000FFFF0000FFFFull, low1 = 0x00FF00FF00FF00FFull;
    exchange(x, x + 4, 32, low4), exchange(x + 1, x + 5, 32, low4);
    exchange(x + 2, x + 6, 32, low4), exchange(x + 3, x + 7, 32, low4);
    exchange(x, x + 2, 16, low2), exchange(x + 1, x + 3, 16, low2);
    exchange(x + 4, x + 6, 16, low2), exchange(x + 5, x + 7, 16, low2);
    exchange(x, x + 1, 8, low1), exchange(x + 2, x + 3, 8, low1);
    exchange(x + 4, x + 5, 8, low1), exchange(x + 6, x + 7, 8, low1);
}

static inline void put_eight(Planes *p)
{
    unsigned char *out = p->out + p->i - 8;
    for (int word = 0; word < 3; word++) {
        uint64_t x[8];
        memcpy(x, p->words[word], sizeof x);
        transpose(x);
        for (int byte = 0; byte < 8; byte++, out += p->n) memcpy(out, x + byte, 8);
    }
}
#else
static inline void put_eight(Planes *p)
{
    for (int word = 0; word < 3; word++)
        for (int byte = 0; byte < 8; byte++)
            for (int k = 0; k < 8; k++)
                p->out[(uint64_t)(word * 8 + byte) * p->n + p->i - 8 + (uint64_t)k] =
                    (unsigned char)(p->words[word][k] >> (8 * byte));
}
#endif

static inline void put_record(Planes *p, uint64_t w0, uint64_t w1, uint64_t w2)
{
    uint64_t k = p->i++ & 7;
    p->words[0][k] = w0;
    p->words[1][k] = w1;
    p->words[2][k] = w2;
    if (k == 7) put_eight(p);
}

static void put_the_rest(Planes *p)
{
    uint64_t left = p->i & 7, first = p->i - left;
    for (int word = 0; word < 3; word++)
        for (int byte = 0; byte < 8; byte++)
            for (uint64_t k = 0; k < left; k++)
                p->out[(uint64_t)(word * 8 + byte) * p->n + first + k] =
                    (unsigned char)(p->words[word][k] >> (8 * byte));
}

/* Encodes what is whole, into room for `c`. 0: there is another number of records than that; what was written is none.
 * Counting beforehand by `count_whole` is sure and costs as much again; by `count_kinds` it is right but for damage. */
static int encode_records(const uint64_t *words, uint64_t count, uint64_t salt, Counts c, unsigned char *planes,
                          unsigned char *attributes, Extent *extent)
{
    Planes ranges = {planes, c.n, 0, {{0}}}, owned = {attributes, c.m, 0, {{0}}};
    uint64_t before = 0;
    int has_owner = 0;
    for (uint64_t index = 0; index < count; index++, words += RECORD_WORDS) {
        if (UNLIKELY(!is_whole(words, salt, index))) { has_owner = 0; continue; }
        if ((words[2] >> KIND_SHIFT & 3) == KIND_ATTRIBUTE) {
            if (UNLIKELY(!has_owner)) continue;
            if (UNLIKELY(owned.i == c.m)) return 0;
            put_record(&owned, words[0], words[1], ranges.i - 1);
        } else {
            if (UNLIKELY(ranges.i == c.n)) return 0;
            reach_over(extent, words, ranges.i == 0);
            put_record(&ranges, words[0] - before, words[1], words[2] & LOW_52);
            before = words[0];
            has_owner = 1;
        }
    }
    put_the_rest(&ranges);
    put_the_rest(&owned);
    return ranges.i == c.n && owned.i == c.m;
}

static Counts count_kinds(const uint64_t *words, uint64_t count)
{
    Counts c = {0, 0};
    for (uint64_t i = 0; i < count; i++, words += RECORD_WORDS)
        c.m += (words[2] >> KIND_SHIFT & 3) == KIND_ATTRIBUTE;
    c.n = count - c.m;
    return c;
}
