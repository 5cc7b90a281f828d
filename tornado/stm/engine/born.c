/* What an attempt has made whose end somebody could notice: coroutines, since a
 * warning tells of those that nobody awaited, and objects with a finalizer in
 * Python.
 *
 * If the attempt is aborted, none of them ever was.  Most die with it, and their
 * finalizers are stopped at the first barrier (transaction.c, release).  But those
 * in a cycle of references live on until the garbage collector comes by, at a time
 * when nothing tells them from others.  So they are marked:
 *
 *      coroutine   its frame refers to the mark of its attempt, in a field that
 *                  code with fast locals does not use, from before it is made.
 *                  The mark learns of the abort.
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
} Attempt;

static PyTypeObject Attempt_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Attempt",
    .tp_basicsize = sizeof(Attempt),
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
born_init(void)
{
    return PyType_Ready(&Attempt_Type);
}

/* The frame is about to turn into a coroutine. */
int
mark_coroutine(Tx *tx, _PyInterpreterFrame *frame)
{
    if (frame->f_locals != NULL || !(_PyFrame_GetCode(frame)->co_flags & CO_OPTIMIZED))
        return 0;
    if (tx->attempt == NULL) {
        Attempt *made = PyObject_New(Attempt, &Attempt_Type);
        if (made == NULL)
            return -1;
        made->aborted = false;
        tx->attempt = (PyObject *)made;
    }
    frame->f_locals = Py_NewRef(tx->attempt);
    return 0;
}

/* Was the coroutine, which has not begun, made by an attempt that was aborted? */
bool
never_was(PyObject *coroutine)
{
    if (!PyCoro_CheckExact(coroutine))
        return false;
    PyGenObject *g = (PyGenObject *)coroutine;
    PyObject *mark = g->gi_frame_state < FRAME_COMPLETED ? g->gi_iframe.f_locals : NULL;
    return mark != NULL && Py_IS_TYPE(mark, &Attempt_Type) && ((Attempt *)mark)->aborted;
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
    if (tx->attempt != NULL)
        ((Attempt *)tx->attempt)->aborted = true;
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
    Py_CLEAR(tx->attempt);
    Py_CLEAR(tx->born);
}
