/* What is plainly stored where a path of attributes, items and a length leads. Reading runs nobody's code: no
 * property, no __getattr__, no __getitem__ or __len__ but those of the exact built-in types. engine/plain_paths.py
 * reads the same and a little more, and says why where there is nothing to be read.
 */
#include "types.h"

enum { TO_ATTRIBUTE, TO_ITEM, TO_LENGTH, LARGEST_DICT = 256 };

/* Is there nothing in the class, or a plain value, or a slot? */
static inline int has_no_descriptor(PyTypeObject *kind, PyObject *name)
{
    PyObject *held = _PyType_Lookup(kind, name);
    if (!held) return 1;
    PyTypeObject *of = Py_TYPE(held);
    return of == &PyMemberDescr_Type || (!of->tp_descr_get && !of->tp_descr_set);
}

static inline int is_harmless_key(PyObject *key)
{
    return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBool_Check(key) || key == Py_None ||
           PyFloat_CheckExact(key) || PyBytes_CheckExact(key);
}

/* Looking a key up compares it with others. */
static int has_harmless_keys(PyObject *dict)
{
    PyObject *key, *value;
    if (PyDict_GET_SIZE(dict) > LARGEST_DICT) return 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
        if (!is_harmless_key(key)) return 0;
    return 1;
}

static PyObject *stored_item(PyObject *owner, PyObject *key)
{
    if (PyDict_CheckExact(owner))
        return has_harmless_keys(owner) ? Py_XNewRef(PyDict_GetItemWithError(owner, key)) : NULL;
    int is_list = PyList_CheckExact(owner);
    if (!PyLong_CheckExact(key) || (!is_list && !PyTuple_CheckExact(owner))) return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(key), size = PySequence_Fast_GET_SIZE(owner);
    if (PyErr_Occurred()) return NULL;
    if (at < 0) at += size;
    return at < 0 || at >= size ? NULL : Py_NewRef(PySequence_Fast_GET_ITEM(owner, at));
}

static PyObject *stored_length(PyObject *owner)
{
    PyTypeObject *kind = Py_TYPE(owner);
    int has_length = kind == &PyList_Type || kind == &PyTuple_Type || kind == &PyDict_Type || kind == &PyUnicode_Type ||
                     kind == &PyBytes_Type || kind == &PySet_Type || kind == &PyFrozenSet_Type || kind == &PyRange_Type;
    Py_ssize_t size = has_length ? PyObject_Size(owner) : -1;
    return size < 0 ? NULL : PyLong_FromSsize_t(size);
}

/* One step of a path: (kind, key). A new reference; NULL, with or without an exception: there is nothing to be read. */
static PyObject *stored_at(PyObject *owner, PyObject *step)
{
    if (!PyTuple_CheckExact(step) || PyTuple_GET_SIZE(step) != 2) return NULL;
    PyObject *key = PyTuple_GET_ITEM(step, 1);
    switch (PyLong_AsLong(PyTuple_GET_ITEM(step, 0))) {
    case TO_ATTRIBUTE:
        if (!PyUnicode_CheckExact(key) || !has_no_descriptor(Py_TYPE(owner), key)) return NULL;
        return PyObject_GenericGetAttr(owner, key);
    case TO_ITEM: return stored_item(owner, key);
    case TO_LENGTH: return stored_length(owner);
    default: return NULL;
    }
}

static inline int is_scalar(PyObject *value)
{
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyFloat_CheckExact(value) || value == Py_None ||
           PyBool_Check(value);
}

/* stored(owner, path): NotImplemented where there is nothing to be read. */
static PyObject *hot_stored(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n != 2 || !PyTuple_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "stored(owner, path)");
        return NULL;
    }
    PyObject *value = Py_NewRef(args[0]);
    for (Py_ssize_t i = 0; value && i < PyTuple_GET_SIZE(args[1]); i++) {
        PyObject *next = stored_at(value, PyTuple_GET_ITEM(args[1], i));
        Py_SETREF(value, next);
    }
    if (value && is_scalar(value)) return value;
    Py_XDECREF(value);
    PyErr_Clear();
    return Py_NewRef(Py_NotImplemented);
}
