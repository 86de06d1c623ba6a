/* The unit of every time ratio: a context manager in C that does nothing, with ordinary methods.
 *
 * `__enter__` is METH_NOARGS and `__exit__` METH_FASTCALL, as any C extension would write them, so that `with` makes
 * its two bound-method objects per use. Not the fastest possible `with`: the ordinary one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Nothing = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "reference.Nothing",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = PyType_GenericNew,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "reference", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_reference(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module || PyType_Ready(&Nothing) < 0)
        return NULL;
    Py_INCREF(&Nothing);
    PyModule_AddObject(module, "Nothing", (PyObject *)&Nothing);
    return module;
}
