#pragma once
#include "types.h"

static inline void unlink_range(Range *r);
static inline uint64_t first_word(const Site *s, const Track *t);
static inline void place_range(Range *r, Site *s, Track *t);
static inline void begin_plain(Range *r, Site *s, uint32_t on);
static inline void forget_entry(Range *r);
static inline void mark_ending(Range *r);
static inline int is_written(const Range *r);
static inline int is_written_with_role(Range *r, uint64_t end, int failed);
static int settle(Range *r, uint64_t *at);
static inline void end_plain(Range *r, uint64_t at, int is_done, int failed);
