#pragma once
#include "types.h"

static inline uint64_t clock_ns(clockid_t id);
static inline uint64_t now(void);
static Anchor take_anchor(void);
