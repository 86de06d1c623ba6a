#pragma once
#include "types.h"

typedef struct {
    PyObject_HEAD
    Range *range;
    Track parked;                /* holds the body's open ranges while it is suspended */
    uint64_t resumed_at, busy;
    uint8_t begun, ended, running, has_stage;
} Span;

static PyObject *new_driven(Span *span, PyObject *body, int ends_span);
static Span *span_of(Range *range);
