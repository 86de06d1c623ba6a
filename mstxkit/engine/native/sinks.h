#pragma once
#include "types.h"

static Sink g_sinks[SINK_COUNT];
static Direct *g_direct;

static PyObject *sink_begin(int k, Site *s, PyObject *stream, PyObject **end);
static void sink_end(int k, Site *s, PyObject *token, PyObject *end);
static inline uint64_t direct_begin(Direct *d, Site *s, void **domain);
static inline void direct_end(Direct *d, void *domain, uint64_t id);
static void mark_in_sinks(Site *s, PyObject *stream);
