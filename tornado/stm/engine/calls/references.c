/* Callbacks of weak references: whoever is called back asks first whether this is the place (born.c).
 *
 * The interpreter calls back wherever a referent dies.  A function asks itself (note_callback); anything else has a Guarded around it, which
 * does.  References that were there before the engine are given one, too; what C code makes by PyWeakref_NewRef() is missed.
 */
#include "references.h"

#include "../objects/class.h"
#include "../objects/known.h"
#include "callbacks.h"

static newfunc make_reference;      /* the interpreter's weakref.ref.__new__, and weakref.proxy */
static PyCFunctionFast make_proxy;

/* What is to be called in its place: a new reference. */
static PyObject *
asking(PyObject *callback)
{
    PyObject *func = PyMethod_Check(callback) ? PyMethod_GET_FUNCTION(callback) : callback;
    if (callback == Py_None || Py_IS_TYPE(callback, &Guarded_Type) || !PyCallable_Check(callback))
        return Py_NewRef(callback);
    if (!PyFunction_Check(func))
        return guarded_new(callback, USE_NOTHING);
    note_callback(func);
    return Py_NewRef(callback);
}

/* It has been made in a transaction: if that is rolled back, nobody is called back. */
static PyObject *
note_made(PyObject *made, PyObject *referent, PyObject *callback)
{
    Tx *tx = stm_self;
    if (made == NULL || callback == Py_None || tx == NULL || !tx->open)
        return made;
    if (note_reference(tx, made) < 0 || (captured(tx, referent) ? note_birth(tx, referent) : note_referent(tx, referent)) < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *
new_reference(PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    if (PyTuple_GET_SIZE(args) != 2)
        return make_reference(type, args, kwds);
    PyObject *callback = asking(PyTuple_GET_ITEM(args, 1));
    PyObject *both = callback != NULL ? PyTuple_Pack(2, PyTuple_GET_ITEM(args, 0), callback) : NULL;
    PyObject *made = both != NULL ? note_made(make_reference(type, both, kwds), PyTuple_GET_ITEM(args, 0), callback) : NULL;
    Py_XDECREF(callback);
    Py_XDECREF(both);
    return made;
}

static PyObject *
new_proxy(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2)
        return make_proxy(module, args, n);
    PyObject *callback = asking(args[1]);
    PyObject *made = callback != NULL ? note_made(make_proxy(module, (PyObject *const[]){args[0], callback}, 2), args[0], callback) : NULL;
    Py_XDECREF(callback);
    return made;
}

/* What _abc.c gives to a reference of its own: it takes a class that is no more out of what another one remembers, which nobody else sees. */
static bool
forgets_class(PyObject *callback)
{
    return PyCFunction_Check(callback) && strcmp(((PyCFunctionObject *)callback)->m_ml->ml_name, "_destroy") == 0;
}

/* One that was there before.  It may be called back just now. */
static int
have_ask(PyWeakReference *reference)
{
    PyObject *callback = _Py_atomic_load_ptr(&reference->wr_callback);
    if (callback == NULL || forgets_class(callback))
        return 0;
    PyObject *other = asking(callback);
    if (other == NULL)
        return -1;
    if (other != callback && _Py_atomic_compare_exchange_ptr(&reference->wr_callback, &callback, other))
        other = callback;
    Py_DECREF(other);
    return 0;
}

static int
have_all_ask(void)
{
    PyObject *objects = PyImport_ImportModuleAttrString("gc", "get_objects");
    PyObject *all = objects != NULL ? PyObject_CallNoArgs(objects) : NULL;
    int r = all == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(all); i++) {
        if (is_reference_type(Py_TYPE(PyList_GET_ITEM(all, i))))
            r = have_ask((PyWeakReference *)PyList_GET_ITEM(all, i));
    }
    Py_XDECREF(objects);
    Py_XDECREF(all);
    return r;
}

/* Classes that are derived from weakref.ref have inherited its slot. */
static void
stand_in(PyTypeObject *type)
{
    if (type->tp_new == make_reference)
        type->tp_new = new_reference;
}

int
references_init(void)
{
    PyObject *proxy = PyImport_ImportModuleAttrString("_weakref", "proxy");
    PyMethodDef *method = proxy != NULL && PyCFunction_Check(proxy) ? ((PyCFunctionObject *)proxy)->m_ml : NULL;
    Py_XDECREF(proxy);      /* its module keeps it */
    if (method == NULL || method->ml_flags != METH_FASTCALL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ImportError, "weakref.proxy is another function in this Python");
        return -1;
    }
    make_proxy = (PyCFunctionFast)(void (*)(void))method->ml_meth;
    method->ml_meth = _PyCFunction_CAST(new_proxy);
    make_reference = _PyWeakref_RefType.tp_new;
    return each_derived(&_PyWeakref_RefType, stand_in) < 0 ? -1 : have_all_ask();
}
