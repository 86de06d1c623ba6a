#pragma once
#include "types.h"

static void activate(uint32_t index);
static int rotate_bank(void);
static inline int is_defined(const Range *r);
static inline int ready_for(Range *r, uint64_t n, uint64_t end);
static void define_for(Range *r);
static inline int is_pending(const Window *w);
