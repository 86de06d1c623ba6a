#pragma once
#include "types.h"

enum { FIRST_PERIOD = 8 };
static PyTypeObject *Site_Type;

static PyObject *g_sites;        /* (name bytes, domain bytes, stage or None) -> Site */
static Stage g_stages[STAGE_MAX + 1];
static uint32_t g_site_count, g_stage_count;
static PyObject *s_stage, *s_domain, *s_stream, *s_default;

static void count_cut(PyObject *text, PyObject *bytes);
static int define_stage(uint32_t id);
static int define_site(Site *s);
static Site *intern_slow(PyObject *name, PyObject *stage, PyObject *domain);
static inline Site *site_of(PyObject *name, PyObject *stage, PyObject *domain);
static inline PyObject *given(PyObject *value, PyObject *usual);
static Site *as_site(PyObject *value);
static inline int is_name(PyObject *key, PyObject *name);
