/* What an attempt has made whose end somebody could notice: coroutines, since a
 * warning tells of those that nobody awaited, and objects with a finalizer in
 * Python.
 *
 * If the attempt is aborted, none of them ever was.  Most die with it, and their
 * finalizers are stopped at the first barrier (transaction.c, release).  But those
 * in a cycle of references live on until the garbage collector comes by, at a time
 * when nothing tells them from others.  So they are marked:
 *
 *      coroutine   its frame refers to the birth that it shares with the others of
 *                  the attempt (barriers.c), and the birth learns of the abort.
 *      object      the attempt has a weak reference to it, and the abort sets the
 *                  collector's own flag "has been finalized".
 *
 * Objects that C code makes (copy, pickle) are missed.
 */
#include "stm.h"

#include "internal/pycore_gc.h"

typedef struct {
    PyObject_HEAD
    bool aborted;
} Birth;

static PyTypeObject Birth_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Birth",
    .tp_basicsize = sizeof(Birth),
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
born_init(void)
{
    return PyType_Ready(&Birth_Type);
}

/* What the frames of the generators of an attempt refer to: see `births` in stm.h. */
PyObject *
new_birth(void)
{
    Birth *birth = PyObject_New(Birth, &Birth_Type);
    if (birth != NULL)
        birth->aborted = false;
    return (PyObject *)birth;
}

/* Was the coroutine, which has not begun, made by an attempt that was aborted? */
bool
never_was(PyObject *coroutine)
{
    if (!PyCoro_CheckExact(coroutine))
        return false;
    PyGenObject *g = (PyGenObject *)coroutine;
    PyObject *birth = g->gi_frame_state < FRAME_COMPLETED ? g->gi_iframe.f_locals : NULL;
    return birth != NULL && Py_IS_TYPE(birth, &Birth_Type) && ((Birth *)birth)->aborted;
}

bool
has_python_finalizer(PyTypeObject *type)
{
    static PyObject *name;
    if (type->tp_finalize == NULL)
        return false;
    if (name == NULL)
        name = PyUnicode_InternFromString("__del__");
    PyObject *finalizer = _PyType_LookupRef(type, name);
    bool yes = finalizer != NULL && PyFunction_Check(finalizer);
    Py_XDECREF(finalizer);
    return yes;
}

/* Stands in for the constructor of a class with a finalizer. */
static PyObject *
call_and_watch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *made = PyObject_Vectorcall(self, args, nargs, kwnames);
    Tx *tx = stm_self;
    if (made == NULL || tx == NULL || !tx->open)
        return made;
    PyObject *ref = PyWeakref_NewRef(made, NULL);
    if (ref == NULL)
        PyErr_Clear();      /* it has no room for one */
    else if ((tx->born == NULL && (tx->born = PyList_New(0)) == NULL)
             || PyList_Append(tx->born, ref) < 0)
        Py_CLEAR(made);
    Py_XDECREF(ref);
    return made;
}

static PyMethodDef call_and_watch_def = {"call_and_watch", _PyCFunction_CAST(call_and_watch),
                                         METH_FASTCALL | METH_KEYWORDS, NULL};

PyObject *
watched_constructor(PyObject *callable)
{
    return PyCFunction_New(&call_and_watch_def, callable);
}

/* The attempt is rolled back: nothing that it has made was ever there. */
void
born_never_was(Tx *tx)
{
    for (int i = 0; i < 2; i++) {
        if (tx->births[i] != NULL)
            ((Birth *)tx->births[i])->aborted = true;
    }
    for (Py_ssize_t i = 0; tx->born != NULL && i < PyList_GET_SIZE(tx->born); i++) {
        PyObject *obj;
        if (PyWeakref_GetRef(PyList_GET_ITEM(tx->born, i), &obj) > 0) {
            if (PyObject_IS_GC(obj))
                _PyGC_SET_FINALIZED(obj);
            Py_DECREF(obj);
        }
    }
    born_forget(tx);
}

void
born_forget(Tx *tx)
{
    Py_CLEAR(tx->born);
}
