#pragma once
#include "types.h"

static PyTypeObject *Range_Type;
static Range *g_free_ranges;
/* What is given where there is no memory for a range: it does nothing, is never freed and may be used by all at once.
 * It counts as begun and unusual, so that begin and end ask what it is only where they do not hurry. */
static Range *g_nothing;

static inline Range *new_range(void);
static Range *or_nothing(Range *r);
