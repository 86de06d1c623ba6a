#pragma once
#include "types.h"

static struct {
    PyObject *entered, *left, *stepped; /* NULL: none */
    uint32_t process;            /* of which they are: below */
    uint32_t told_step;          /* which step `stepped` was told of last, and on which thread */
    unsigned long told_on;
    PyObject *first;             /* of this process, while ON_AWAITED */
} g_watch;
static uint32_t g_seen_count;

static inline uint32_t this_process(void);
static void tell_first(void);
static uint32_t tell_entered(Site *s, int may_move);
static void tell_left(Site *s, uint32_t told, int failed);
static inline int is_news(uint32_t step);
static void tell_stepped(uint32_t step);
static void see_stage(uint32_t id);
