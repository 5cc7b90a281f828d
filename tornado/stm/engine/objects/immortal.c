/* Values that all threads use are made immortal (PEP 683): nobody counts references to them any more.
 *
 * Whoever reads a value counts a reference, in the value; where two threads do that, each time the line of memory has to come from the
 * other processor.  The interpreter spares that to functions, classes, modules and the constants of code, and to nothing that a program
 * makes: the names and prices of its catalogue, a tuple of types for isinstance().  Such values that are there once the program is set up
 * are likely to remain as long as the process does, as PEP 683 and, before it, gc.freeze() assume.  Where that is wrong they are never
 * freed, so what is spent is bounded: values of SMALL bytes at most, MOST in all.
 *
 * Immutable ones only, of exactly the types below: there is no weak reference to them, no finalizer, and nothing else by which a program
 * could tell, but for sys.getrefcount().  C code that changes one in place asks first whether it has the only reference.
 *
 * Methods and attributes in C, too, of types that do not change: the interpreter leaves references on its stack uncounted, but not the one
 * by which it has found an attribute in a class.
 *
 * At that moment no thread is amid a change of a count: the world is stopped, as for a collection of garbage.
 */
#include "immortal.h"

#include "internal/pycore_gc.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_long.h"
#include "internal/pycore_object.h"
#include "internal/pycore_object_deferred.h"

#define FIRST 200           /* transactions: by then a program has been set up, and has loaded what it loads for a first request */
#define NEXT 100            /* times as many: again, for what it has loaded since */
#define SMALL 512           /* bytes; for large values the counting matters less, and the memory more */
#define MOST (32 << 20)     /* bytes in all */
#define DEPTH 4             /* of tuples in tuples */

static _Atomic uint64_t due = FIRST;
static size_t spent;        /* bytes; changed while the world is stopped */

/* An object whose thread still has to be told of references that others have dropped must not lose what they have noted in it. */
static bool
is_awaited_by_its_thread(PyObject *o)
{
    return (o->ob_ref_shared & _Py_REF_SHARED_FLAG_MASK) == _Py_REF_QUEUED;
}

static bool
take(PyObject *o, Py_ssize_t items, size_t of_bytes)
{
    size_t size = (size_t)Py_TYPE(o)->tp_basicsize + (size_t)items * of_bytes;
    if (size > SMALL || spent + size > MOST || is_awaited_by_its_thread(o))
        return false;
    spent += size;
    if (PyObject_IS_GC(o) && _PyObject_GC_IS_TRACKED(o))
        _PyObject_GC_UNTRACK(o);
    o->ob_tid = _Py_UNOWNED_TID;
    o->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
    o->ob_ref_shared = 0;
    o->ob_gc_bits |= _PyGC_BITS_DEFERRED;   /* what the interpreter asks first where it puts references on its stack */
    return true;
}

static bool take_value(PyObject *o, int depth);

static bool
take_items(PyObject *tuple, int depth)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (item == NULL || !take_value(item, depth))
            return false;
    }
    return true;
}

/* A method or attribute in C, of a type that does not change: who looks for it by its name counts a reference. */
static bool
is_descriptor(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    return (type == &PyGetSetDescr_Type || type == &PyMethodDescr_Type || type == &PyMemberDescr_Type || type == &PyWrapperDescr_Type)
        && PyType_HasFeature(PyDescr_TYPE(o), Py_TPFLAGS_IMMUTABLETYPE);
}

/* Is it one to which nobody counts references, now at the latest? */
static bool
take_value(PyObject *o, int depth)
{
    if (_Py_IsImmortal(o))
        return true;
    if (is_descriptor(o))
        return take(o, 0, 0);
    if (_PyObject_HasDeferredRefcount(o))
        return true;
    if (PyUnicode_CheckExact(o))
        return take(o, PyUnicode_GET_LENGTH(o), PyUnicode_KIND(o));
    if (PyBytes_CheckExact(o))
        return take(o, PyBytes_GET_SIZE(o), 1);
    if (PyLong_CheckExact(o))
        return take(o, _PyLong_DigitCount((PyLongObject *)o), sizeof(digit));
    if (PyFloat_CheckExact(o))
        return take(o, 0, 0);
    if (PyTuple_CheckExact(o))
        return depth < DEPTH && take_items(o, depth + 1) && take(o, PyTuple_GET_SIZE(o), sizeof(PyObject *));
    return false;
}

static int
take_referent(PyObject *o, void *Py_UNUSED(unused))
{
    take_value(o, 0);
    return 0;
}

/* A collection that is amid calling finalizers has its garbage in a list, whose links are where its objects have their threads: there is
 * nothing to be done now. */
static int
take_referents(PyObject *container, void *done)
{
    *(bool *)done = !PyInterpreterState_Get()->gc.collecting;
    if (*(bool *)done)
        Py_TYPE(container)->tp_traverse(container, take_referent, NULL);
    return *(bool *)done;
}

void
make_immortal_when_due(uint64_t transactions)
{
    uint64_t at = atomic_load_explicit(&due, memory_order_relaxed);
    if (LIKELY(transactions < at) || !atomic_compare_exchange_strong(&due, &at, at * NEXT))
        return;
    bool done = false;
    PyUnstable_GC_VisitObjects(take_referents, &done);
    if (!done)
        atomic_store(&due, transactions + FIRST);
}
