#pragma once
#include "types.h"

static Thread *g_threads;
static uint32_t g_windows;      /* of coalesced calls, on all tracks */

static inline PyThreadState *thread_state(void);
static uint64_t packed(uint32_t stage, uint32_t step);
static void unpack(Track *t, uint64_t bits);
static void store_ambient(Track *t);
static inline Track *current_track(void);
static inline void left_idle(Track *t);
static int define_track(Track *t);
