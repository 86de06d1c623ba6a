#pragma once
#include "types.h"

static PyObject *g_ready_none, *g_ready_nothing; /* for where there is no memory for another one */

static PyObject *ready(PyObject *value, PyObject *otherwise);
static void stop_with(PyObject *value);
static PyObject *ready_self(PyObject *self);
