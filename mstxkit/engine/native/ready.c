/* An awaitable that is done: what `__aenter__` and `__aexit__` give. */
#include "ready.h"

#include "faults.h"

typedef struct { PyObject_HEAD PyObject *value; } Ready;

static PyTypeObject *Ready_Type;

static Ready *new_ready(PyObject *value)
{
    Ready *done = PyObject_New(Ready, Ready_Type);
    if (done) done->value = Py_NewRef(value);
    return done;
}

static PyObject *ready(PyObject *value, PyObject *otherwise)
{
    Ready *done = new_ready(value);
    if (done) return (PyObject *)done;
    note_fault("range.await");
    return Py_NewRef(otherwise);
}

/* Raise StopIteration(value), also where value is a tuple or an exception, which PyErr_SetObject would take apart. */
static void stop_with(PyObject *value)
{
    PyObject *stop = value == Py_None ? NULL : PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
    if (value == Py_None) PyErr_SetNone(PyExc_StopIteration);
    else if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
}

static PyObject *ready_self(PyObject *self) { return Py_NewRef(self); }

static PyObject *ready_next(PyObject *self)
{
    stop_with(((Ready *)self)->value);
    return NULL;
}

#if PY_VERSION_HEX >= 0x030a0000
static PySendResult ready_send(PyObject *self, PyObject *unused, PyObject **result)
{ /* what `await` asks first, and without an exception for its answer */
    (void)unused;
    *result = Py_NewRef(((Ready *)self)->value);
    return PYGEN_RETURN;
}
#endif

static void ready_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((Ready *)self)->value);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot ready_slots[] = {{Py_tp_dealloc, ready_dealloc}, {Py_am_await, ready_self}, {Py_tp_iter, ready_self},
                                    {Py_tp_iternext, ready_next},
#if PY_VERSION_HEX >= 0x030a0000
                                    {Py_am_send, ready_send},
#endif
                                    {0, NULL}};
static PyType_Spec ready_spec = {"mstxkit.engine.native.hot.Ready", sizeof(Ready), 0, Py_TPFLAGS_DEFAULT, ready_slots};
