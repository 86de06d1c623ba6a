#pragma once
#include "types.h"

static void add_sample(Site *s, uint64_t ticks, int folded);
static void begin_counted(Range *r, uint32_t on);
static void end_folded(Range *r, int failed);
