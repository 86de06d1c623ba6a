/* Recording into a live file begins and ends. */
#include "banks.h"
#include "heartbeat.h"
#include "live.h"
#include "sums.h"

/* ---- attaching to a live file ---- */
static void forget_file(void)
{
    g.on &= ~(uint32_t)ON_RECORD;
    g.base = NULL;
    g.bank = NULL;
    g.records = NULL;
    g.count = g.limit = g.seq = 0;
    g.counters = g.detached_counters;
    g.generation++;
}

static void drop_file(void)
{
    forget_file();
    PyMem_RawFree(g.free_slots);
    PyMem_RawFree(g.slot_ranges);
    g.free_slots = NULL;
    g.slot_ranges = NULL;
    g.free_count = g.slot_count = 0;
    if (g.view.obj) PyBuffer_Release(&g.view);
}

static PyObject *hot_detach(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    stop_beating();
    drop_file();
    Py_RETURN_NONE;
}

static int is_laid_out(char *base, uint64_t size)
{
    if (size < HEADER_BYTES) return 0;
    uint64_t slots = *u32_at(base, AT_SLOT_COUNT), slots_at = *u64_at(base, AT_SLOTS);
    uint64_t banks = *u32_at(base, AT_BANK_COUNT), banks_at = *u64_at(base, AT_BANKS);
    uint64_t bank_bytes = *u64_at(base, AT_BANK_BYTES);
    return banks && bank_bytes >= 4096 && banks_at <= size && bank_bytes <= (size - banks_at) / banks &&
           slots_at <= size && slots <= (size - slots_at) / SLOT_BYTES;
}

/* What only a recording takes of Python is loaded when one begins. */
static int find_settle(void)
{
    if (g.settle) return 1;
    PyObject *values = PyImport_ImportModule("mstxkit.engine.plain_values");
    g.settle = values ? PyObject_GetAttrString(values, "settle") : NULL;
    Py_XDECREF(values);
    return g.settle != NULL;
}

static PyObject *hot_attach(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *source;
    unsigned long long nonce;
    if (!PyArg_ParseTuple(args, "OK", &source, &nonce) || !find_settle()) return NULL;
    stop_beating();
    drop_file();
    if (PyObject_GetBuffer(source, &g.view, PyBUF_CONTIG) < 0) return NULL;
    char *base = g.view.buf;
    uint64_t size = (uint64_t)g.view.len;
    if (!is_laid_out(base, size)) {
        drop_file();
        PyErr_SetString(PyExc_ValueError, "not the buffer of a live file");
        return NULL;
    }
    uint64_t banks_at = *u64_at(base, AT_BANKS), bank_bytes = *u64_at(base, AT_BANK_BYTES);
    uint32_t slots = *u32_at(base, AT_SLOT_COUNT), banks = *u32_at(base, AT_BANK_COUNT);
    g.free_slots = PyMem_RawCalloc(slots ? slots : 1, sizeof *g.free_slots);
    g.slot_ranges = PyMem_RawCalloc(slots ? slots : 1, sizeof *g.slot_ranges);
    if (!g.free_slots || !g.slot_ranges) {
        drop_file();
        return PyErr_NoMemory();
    }
    g.nonce = nonce;
    g.slot_count = slots;
    g.bank_count = banks;
    g.bank_bytes = bank_bytes;
    g.slots_at = *u64_at(base, AT_SLOTS);
    g.banks_at = banks_at;
    g.counters = u64_at(base, AT_COUNTERS);
    g.free_count = slots;
    g.stage_slots = slots / 16;
    for (uint32_t i = 0; i < slots; i++) g.free_slots[i] = slots - 1 - i;
    forget_sums();
    /* last_seq goes on: sites and tracks that an earlier file defined in a bank of the same number must be defined
     * again */
    g.base = base;
    activate(0);
    Py_RETURN_NONE;
}

static PyObject *hot_recording(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(g.on != 0);
}

static PyObject *hot_set_recording(PyObject *self, PyObject *value)
{
    (void)self;
    int on = PyObject_IsTrue(value);
    if (on < 0) return NULL;
    if (on) g.first_step = NO_STEP;
    if (on && g.base) g.on |= ON_RECORD;
    else g.on &= ~(uint32_t)ON_RECORD;
    Py_RETURN_NONE;
}
