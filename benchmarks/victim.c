/* A stand-in for a training thread's own work: it follows pointers through memory of a given size, in an order that no
 * prefetcher knows, so that every cache line that somebody else evicts costs it time.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define LINE 64
typedef struct Link { struct Link *next; char rest[LINE - sizeof(struct Link *)]; } Link;

static Link *ring, *at;

static PyObject *make(PyObject *self, PyObject *value)
{
    (void)self;
    size_t bytes = PyLong_AsSize_t(value), n = bytes / LINE;
    if (PyErr_Occurred() || n < 2) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "too small");
    free(ring);
    size_t *order = malloc(n * sizeof *order);
    if (!order || posix_memalign((void **)&ring, LINE, n * LINE)) return PyErr_NoMemory();
    for (size_t i = 0; i < n; i++) order[i] = i;
    unsigned long long seed = 88172645463325252ull;
    for (size_t i = n - 1; i; i--) { /* Sattolo: one cycle through all */
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        size_t j = seed % i, held = order[i];
        order[i] = order[j], order[j] = held;
    }
    for (size_t i = 0; i < n; i++) ring[order[i]].next = &ring[order[(i + 1) % n]];
    at = ring;
    free(order);
    Py_RETURN_NONE;
}

static PyObject *work(PyObject *self, PyObject *value)
{
    (void)self;
    Py_ssize_t hops = PyLong_AsSsize_t(value);
    if (PyErr_Occurred()) return NULL;
    if (!at) return PyErr_Format(PyExc_RuntimeError, "make comes first");
    while (hops-- > 0) at = at->next;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"make", make, METH_O, NULL}, {"work", work, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "victim", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_victim(void)
{
    return PyModule_Create(&definition);
}
