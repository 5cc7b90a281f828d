/* The dict in which an object has its attributes.
 *
 * Many objects have none before they get an attribute, and the program can tell: exceptions and partials are pickled with
 * their dict, be it empty.  So a missing dict is not made to be locked: it is a container of its own, known by the object.  Who looks for an
 * attribute there has the intention to read, who changes what lies beside it, in a slot, the intention to write, and who makes
 * it owns that container.  The one that has been made it owns as a whole, too, from before others find it: these wait for the end, and a
 * rollback takes the dict away.  So who has waited looks again.
 *
 * The dict of an object whose attributes lie in the object itself (namespaces.c) is no such one: nobody can tell whether there is a view of
 * them.
 */
#include "attributes.h"

#include "access.h"
#include "known.h"
#include "namespaces.h"

#include "internal/pycore_object.h"
#include "internal/pycore_pymem.h"

static inline PyObject **
place_of_dict(PyObject *obj)
{
    return Py_TYPE(obj)->tp_flags & Py_TPFLAGS_MANAGED_DICT ? (PyObject **)&_PyObject_ManagedDictPointer(obj)->dict
        : _PyObject_GetDictPtr(obj);
}

static inline PyObject *
dict_at(PyObject **place)
{
    return place == NULL ? NULL : _Py_atomic_load_ptr_acquire(place);
}

/* Who has taken one away drops it late enough for that. */
PyObject *
own_dict(PyObject *obj)
{
    return Py_XNewRef(dict_at(place_of_dict(obj)));
}

static inline Cell
missing_cell(PyObject *obj)
{
    return cell_of(obj, MISSING_BITS);
}

static int
find(Tx *tx, PyObject *obj, PyObject **dict, int (*lock_missing)(Tx *tx, Cell c))
{
    PyObject **place = place_of_dict(obj);
    for (;;) {
        *dict = Py_XNewRef(dict_at(place));
        if (*dict == NULL) {
            if (lock_missing(tx, missing_cell(obj)) < 0)
                return -1;
        }
        else if (namespace_of(*dict) == NULL && lock_intent_read(tx, cell_of(*dict, WHOLE)) < 0) {
            Py_CLEAR(*dict);
            return -1;
        }
        if (LIKELY(dict_at(place) == *dict))
            return 0;
        Py_CLEAR(*dict);
    }
}

int
find_own_dict(Tx *tx, PyObject *obj, PyObject **dict)
{
    return find(tx, obj, dict, lock_intent_read);
}

int
find_own_dict_beside(Tx *tx, PyObject *obj, PyObject **dict)
{
    return find(tx, obj, dict, lock_intent_write);
}

int
open_own_dict(Tx *tx, PyObject *obj)
{
    PyObject *dict;
    if (find(tx, obj, &dict, lock_shared_container) < 0)
        return -1;
    int r = dict == NULL ? 0 : open_whole_read(tx, dict);
    Py_XDECREF(dict);
    return r;
}

/* ---- Making it -------------------------------------------------------------------------- */

/* Not what others, who have not asked, have put something into. */
static int
take_away(Tx *Py_UNUSED(tx), Undo *u)
{
    PyObject **place = place_of_dict(u->obj), *taken = NULL;
    Py_BEGIN_CRITICAL_SECTION2(u->obj, u->old);
    if (*place == u->old && PyDict_GET_SIZE(u->old) == 0) {
        taken = u->old;
        _Py_atomic_store_ptr_release(place, NULL);
    }
    Py_END_CRITICAL_SECTION2();
    _PyObject_XDecRefDelayed(taken);    /* others may just have found it */
    return 0;
}

static const UndoKind undo_making = {.what = "a dict of attributes", .undo = take_away};

/* Make one where the interpreter does, for only there do instances of a class share keys; and take it out at once. NULL without an
 * exception if there is one now. Others may have found it meanwhile, and be about to keep it: so it is dropped late. */
static PyObject *
make_aside(PyObject *obj, PyObject **place)
{
    PyObject *made = NULL;
    Py_BEGIN_CRITICAL_SECTION(obj);
    if (*place == NULL && (made = PyObject_GenericGetDict(obj, NULL)) != NULL) {
        _Py_atomic_store_ptr_release(place, NULL);
        Py_DECREF(made);
    }
    Py_END_CRITICAL_SECTION();
    return made;
}

static bool
put_in_place(PyObject *obj, PyObject **place, PyObject *made)
{
    bool missing;
    Py_BEGIN_CRITICAL_SECTION(obj);
    missing = *place == NULL;
    if (missing)
        _Py_atomic_store_ptr_release(place, Py_NewRef(made));
    Py_END_CRITICAL_SECTION();
    return missing;
}

/* As the interpreter does it: nobody else knows the object, or others may find the dict at once. */
static int
make_unasked(Tx *tx, PyObject *obj, PyObject **dict)
{
    bool there = dict_at(place_of_dict(obj)) != NULL;
    *dict = PyObject_GenericGetDict(obj, NULL);
    if (*dict != NULL && !there)
        forget_capture(tx, *dict);      /* maybe where a captured one has died */
    return *dict == NULL ? -1 : 0;
}

static bool
has_values_inside(PyObject *obj)
{
    return (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_INLINE_VALUES) && _PyObject_InlineValues(obj)->valid;
}

int
make_own_dict(Tx *tx, PyObject *obj, PyObject **dict)
{
    PyObject **place = place_of_dict(obj);
    bool first;
    if (has_values_inside(obj) || captured(tx, obj))
        return make_unasked(tx, obj, dict);
    *dict = NULL;
    for (;;) {
        if (dict_at(place) != NULL && (find_own_dict(tx, obj, dict) < 0 || *dict != NULL))
            return *dict == NULL ? -1 : 0;
        if (lock_exclusive(tx, missing_cell(obj), &first) < 0)
            return -1;
        if (tx->grade == GRADE_EXCLUSIVE)
            return 0;
        if (dict_at(place) != NULL)
            continue;
        PyObject *made = make_aside(obj, place);
        if (made == NULL && PyErr_Occurred())
            return -1;
        if (made == NULL)
            continue;
        forget_capture(tx, made);       /* likewise */
        if (lock_exclusive(tx, cell_of(made, WHOLE), &first) < 0 || undo_push(tx, &undo_making, obj, NULL, made) == NULL) {
            _PyObject_XDecRefDelayed(made);
            return -1;
        }
        if (put_in_place(obj, place, made)) {
            *dict = made;
            return 0;
        }
        _PyObject_XDecRefDelayed(made);        /* a thread beside the loop has been faster */
    }
}

int
give_own_dict(Tx *tx, PyObject *obj)
{
    PyObject *dict;
    bool first, unasked = has_values_inside(obj) || captured(tx, obj) || dict_at(place_of_dict(obj)) != NULL;
    if (!unasked && lock_exclusive(tx, missing_cell(obj), &first) < 0)      /* who has found none would not know of it */
        return -1;
    if (make_unasked(tx, obj, &dict) < 0)
        return -1;
    forget_capture(tx, dict);
    Py_DECREF(dict);
    return 0;
}
