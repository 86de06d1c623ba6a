#pragma once
#include "types.h"

static PyObject *decorate(Range *r, PyObject *function);
