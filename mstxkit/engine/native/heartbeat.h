#pragma once
#include "types.h"

static void stop_beating(void);
static void deadline_in(struct timespec *at, double seconds);
static uint64_t recorded_so_far(void);
static void wake_with_others(void);
