/* Ranges that nobody has, to be given out again; and the one that is given where there is no memory for any. */
#include "free_ranges.h"

#include "faults.h"

static vectorcallfunc g_call_range; /* what Python runs where a range is called */

static COLD Range *new_range_slow(void)
{
    Range *r = PyObject_New(Range, Range_Type);
    if (!r) return NULL;
    memset((char *)r + sizeof(PyObject), 0, sizeof(Range) - sizeof(PyObject));
    r->call = g_call_range;
    return r;
}

static inline Range *new_range(void)
{
    Range *r = g_free_ranges;
    if (UNLIKELY(!r)) return new_range_slow();
    g_free_ranges = r->next_free;
    Py_SET_REFCNT((PyObject *)r, 1);
    return r;
}

/* What a call from Python gives where there is none: nothing, but for the caller's own mistake. */
static COLD Range *or_nothing(Range *r)
{
    if (r || !PyErr_ExceptionMatches(PyExc_MemoryError)) return r;
    note_fault("range.new");
    return (Range *)Py_NewRef((PyObject *)g_nothing);
}
