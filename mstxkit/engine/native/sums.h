#pragma once
#include "types.h"

enum { W_TOKENS, W_RESPONSES, W_PROMPTS, W_LONGEST, W_WAITS, WORK_KINDS };
static uint8_t g_sums_changed;
static PyObject *s_work[WORK_KINDS]; /* their names, interned */

static inline uint8_t sum_begins(Stage *stage, uint32_t step, uint64_t start);
static inline void sum_ends(Stage *stage, Sum *sum, uint64_t start, uint64_t end, uint64_t busy, int is_inner);
static void add_work(Stage *stage, Sum *sum, PyObject *const *work, int is_inner);
static void forget_sums(void);
static void step_is_over(void);
