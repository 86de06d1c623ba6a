#pragma once
#include "types.h"

static void stage_begins(Range *r, Track *t);
static void stages_go_on(Track *t);
static void stage_ends(Range *r, Track *t, uint64_t end);
