#pragma once
#include "types.h"

static void note_fault(const char *where);
static inline void note_if_failed(const char *where);
static PyObject *wrong_arguments(const char *usage);
