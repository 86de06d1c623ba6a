#pragma once
#include "types.h"

static inline void begin(Range *r, int may_move);
static inline void end(Range *r, int failed);
