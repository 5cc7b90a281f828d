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
 *
 * And where a finalizer in Python runs.  An object belongs to the thread that made it:
 * when another one drops the last reference, the interpreter lets the first one finalize
 * it, at some call or jump of whatever it is doing then.  That may be an attempt which has
 * nothing to do with the object, whose abort would undo what the finalizer did; or code of
 * this project, with a lock in its hand and no transaction around it.  So a finalizer that
 * begins in a wrong place is stopped before it has done anything, the object stays alive,
 * and it dies again where what an ended transaction held is dropped.  The right places are
 * that one, an exclusive transaction, the attempt that made the object, and code of the
 * program outside transactions.
 */
#include "stm.h"

#include "internal/pycore_gc.h"
#include "internal/pycore_weakref.h"

typedef struct {
    PyObject_HEAD
    bool aborted;
} Birth;

static PyTypeObject Birth_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Birth",
    .tp_basicsize = sizeof(Birth),
    .tp_as_mapping = &birth_as_mapping,
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

int
note_birth(Tx *tx, PyObject *obj)
{
    PyObject *ref = PyWeakref_NewRef(obj, NULL);
    if (ref == NULL) {
        PyErr_Clear();      /* it has no room for one */
        return 0;
    }
    if (tx->born == NULL)
        tx->born = PyList_New(0);
    int r = tx->born == NULL ? -1 : PyList_Append(tx->born, ref);
    Py_DECREF(ref);
    return r;
}

/* Stands in for the constructor of a class with a finalizer. An __init__ in Python notes the
 * birth when it begins, since the attempt may be aborted before it ends. */
static PyObject *
call_and_watch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(self, args, nargs, kwnames);
    PyTypeObject *outer = tx->watching;
    tx->watching = (PyTypeObject *)self;
    PyObject *made = PyObject_Vectorcall(self, args, nargs, kwnames);
    bool noted = tx->watching == NULL;
    tx->watching = outer;
    if (made != NULL && !noted && tx->open && note_birth(tx, made) < 0)
        Py_CLEAR(made);
    return made;
}

static PyMethodDef call_and_watch_def = {"call_and_watch", _PyCFunction_CAST(call_and_watch),
                                         METH_FASTCALL | METH_KEYWORDS, NULL};

PyObject *
watched_constructor(PyObject *callable)
{
    return PyCFunction_New(&call_and_watch_def, callable);
}

static bool
born_here(Tx *tx, PyObject *obj)
{
    for (Py_ssize_t i = 0; tx->born != NULL && i < PyList_GET_SIZE(tx->born); i++) {
        /* A finalizer comes before weak references are cleared. */
        if (((PyWeakReference *)PyList_GET_ITEM(tx->born, i))->wr_object == obj)
            return true;
    }
    return false;
}

static int
finalize_later(Tx *tx, PyObject *obj)
{
    if ((tx->dying == NULL && (tx->dying = PyList_New(0)) == NULL) || PyList_Append(tx->dying, obj) < 0)
        return -1;
    PyErr_SetNone(stm_Abort);   /* of which the hook for unraisable exceptions says nothing */
    return -1;
}

/* The __del__ of the object begins, in this frame: 0, or -1 if it must not go on. */
int
finalizer_begins(Tx *tx, PyObject *obj, _PyInterpreterFrame *f)
{
    _PyInterpreterFrame *caller = f->previous;
    if (caller == NULL || caller->owner < FRAME_OWNED_BY_INTERPRETER)
        return tx->live ? check_doomed(tx) : 0;     /* called by its name */
    while (caller != NULL && caller->owner >= FRAME_OWNED_BY_INTERPRETER)
        caller = caller->previous;
    if (tx->live) {
        if (tx->grade == GRADE_EXCLUSIVE)
            return 0;
        /* After an abort: what has no room for a weak reference cannot be told from
         * what was made in the attempt. */
        if (tx->releasing == AFTER_COMMIT || (tx->releasing == HOLDING && born_here(tx, obj))
            || (tx->releasing == AFTER_ABORT && !_PyType_SUPPORTS_WEAKREFS(Py_TYPE(obj))))
            return check_doomed(tx);
    }
    else if (state_of(tx) == TX_IDLE
             && (caller == NULL || !(_PyFrame_GetCode(caller)->co_flags & CO_STM_TRUSTED)))
        return 0;
    return finalize_later(tx, obj);
}

/* Where finalizers may run: let those objects die that were about to in a wrong place. */
void
let_die(Tx *tx)
{
    PyObject *dying = tx->dying;
    tx->dying = NULL;
    for (Py_ssize_t i = 0; dying != NULL && i < PyList_GET_SIZE(dying); i++) {
        PyObject *obj = PyList_GET_ITEM(dying, i);
        if (PyObject_IS_GC(obj))
            _PyObject_CLEAR_GC_BITS(obj, _PyGC_BITS_FINALIZED);
    }
    Py_XDECREF(dying);
}

/* The attempt is rolled back: nothing that it has made was ever there. */
void
born_never_was(Tx *tx)
{
    for (int i = 0; i < 2; i++) {
        if (tx->births[i] != NULL)
            ((Birth *)tx->births[i])->aborted = true;
    }
    /* Nor will it be finalized later; it goes with what the rollback takes out. */
    for (Py_ssize_t i = tx->dying != NULL ? PyList_GET_SIZE(tx->dying) : 0; --i >= 0;) {
        PyObject *obj = PyList_GET_ITEM(tx->dying, i);
        if (!born_here(tx, obj))
            continue;
        if ((tx->displaced == NULL && (tx->displaced = PyList_New(0)) == NULL)
            || PyList_Append(tx->displaced, obj) < 0 || PyList_SetSlice(tx->dying, i, i + 1, NULL) < 0)
            PyErr_Clear();
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
