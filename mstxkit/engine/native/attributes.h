#pragma once
#include "types.h"

static inline uint32_t known_text_id(PyObject *text);
static inline int is_plain(PyObject *value);
static int is_all_plain(const Range *r);
static PyObject *settled_attributes(Range *r, uint64_t *at);
static int write_with_attributes(Range *r, uint64_t end, uint64_t w2, int whole);
