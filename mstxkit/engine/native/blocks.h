#pragma once
#include "types.h"

typedef struct { uint64_t n, m; } Counts;
/* What the records reach over: segment.Extent. A bit for each stage. */
typedef struct { int64_t first, last; uint32_t first_step, last_step; uint64_t stages[65536 / 64]; } Extent;

static Counts count_whole(const uint64_t *words, uint64_t count, uint64_t salt);
static int encode_records(const uint64_t *words, uint64_t count, uint64_t salt, Counts c, unsigned char *planes,
                          unsigned char *attributes, Extent *extent);
static Counts count_kinds(const uint64_t *words, uint64_t count);
