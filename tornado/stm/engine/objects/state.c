/* C objects of which only their type knows how to save the state, or nobody.
 */
#include "../calls/calls.h"
#include "../calls/conversion.h"
#include "../core/transaction.h"
#include "access.h"
#include "deep.h"
#include "known.h"
#include "structure.h"

static int
swap_back(Tx *Py_UNUSED(tx), Undo *u)
{
    structure_swap(u->obj, u->old);
    return 0;
}

/* The copy is an object. */
static const UndoKind undo_copy = {.what = "the state", .undo = swap_back};

/* A stream that has been closed meanwhile must be opened again first. */
static int
put_state_back(Tx *tx, Undo *u)
{
    return replace_contents(tx, u->obj, "__init__", PyTuple_GET_ITEM(u->old, 0), "__setstate__", u->old, NULL);
}

static const UndoKind undo_stated = {.what = "the state", .undo = put_state_back};

/* A copy of what `__getstate__` of a stream returns, but for the attributes: it ends with these. */
static PyObject *
without_attributes(PyObject *state)
{
    Py_ssize_t n = PyTuple_GET_SIZE(state);
    PyObject *copy = PyTuple_New(n);
    for (Py_ssize_t i = 0; copy != NULL && i < n; i++)
        PyTuple_SET_ITEM(copy, i, Py_NewRef(i == n - 1 ? Py_None : PyTuple_GET_ITEM(state, i)));
    return copy;
}

/* Own an object of which only its type knows how to save it. */
int
open_state(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    if (is_fresh(tx, obj))
        return check_doomed(tx);
    if (kind == &struct_kind)
        return open_structure(tx, obj);
    if (kind == &instance_kind && captured(tx, obj))
        return check_doomed(tx);        /* of a class in Python: what C code keeps of a stream are attributes, which nobody else can ask for */
    if (kind != &copied_kind && kind != &stated_kind)
        return exclusive_for(tx, "use of", obj);
    bool first;
    if (lock_exclusive(tx, cell_of(obj, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    if (guard_parts(tx, obj) < 0)
        return -1;
    PyObject *save = PyUnicode_InternFromString(kind == &copied_kind ? "copy" : "__getstate__");
    PyObject *method = save ? c_base_method(obj, save) : NULL;
    PyObject *saved = method ? PyObject_CallOneArg(method, obj) : NULL;
    Py_XDECREF(save);
    Py_XDECREF(method);
    if (saved == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        /* Nothing changes a closed stream any more; what cannot be copied now may change. */
        return kind == &stated_kind ? 0 : exclusive_for(tx, "use of", obj);
    }
    if (saved != NULL && kind == &stated_kind)
        Py_SETREF(saved, without_attributes(saved));
    Undo *u = saved == NULL ? NULL : undo_push(tx, kind == &stated_kind ? &undo_stated : &undo_copy, obj, NULL, saved);
    Py_XDECREF(saved);
    return u == NULL ? -1 : 0;
}

const struct Kind copied_kind = {.c_state = C_STATE_WHOLE, .read_whole = open_state, .write_whole = open_state};

const struct Kind stated_kind = {.c_state = C_STATE_WHOLE, .read_whole = open_state, .write_whole = open_state};

/* Endpoints whose memory others may write to, who ask nobody: who uses one runs alone.  Entries are added and stay, since nobody tells when
 * such an object dies; what lies there later is used alone for nothing. */
#define EXPOSED (1 << 10)
static PyObject *_Atomic exposed[EXPOSED];
static _Atomic int exposed_count;

static size_t
exposed_place(PyObject *obj)
{
    return ((uintptr_t)obj >> 4) * 0x9E3779B97F4A7C15ull >> 54;
}

bool
state_expose(PyObject *obj)
{
    if (atomic_fetch_add(&exposed_count, 1) >= EXPOSED - 1) {
        atomic_fetch_sub(&exposed_count, 1);
        return false;
    }
    for (size_t i = exposed_place(obj); ; i = (i + 1) % EXPOSED) {
        PyObject *nothing = NULL;
        if (atomic_compare_exchange_strong(&exposed[i], &nothing, obj))
            return true;
        if (nothing == obj) {
            atomic_fetch_sub(&exposed_count, 1);
            return true;
        }
    }
}

static bool
is_exposed(PyObject *obj)
{
    if (LIKELY(atomic_load_explicit(&exposed_count, memory_order_relaxed) == 0))
        return false;
    for (size_t i = exposed_place(obj); ; i = (i + 1) % EXPOSED) {
        PyObject *other = atomic_load_explicit(&exposed[i], memory_order_relaxed);
        if (other == NULL || other == obj)
            return other != NULL;
    }
}

static int
read_irreversible(Tx *tx, PyObject *obj)
{
    if (is_exposed(obj))
        return exclusive_for(tx, "use of memory that others may write to, of", obj);
    return is_fresh(tx, obj) ? check_doomed(tx) : lock_shared(tx, cell_of(obj, WHOLE));
}

/* Others go on: who wants to see the new state waits for the lock. */
static int
change_forward(Tx *tx, PyObject *obj)
{
    if (is_exposed(obj))
        return exclusive_for(tx, "use of memory that others may write to, of", obj);
    if (is_fresh(tx, obj))
        return check_doomed(tx);
    return own_whole(tx, obj) < 0 ? -1 : become_inevitable(tx, GRADE_IRREVOCABLE);
}

static int
change_irreversible(Tx *tx, PyObject *obj)
{
    if (!is_fresh(tx, obj) && own_whole(tx, obj) < 0)
        return -1;
    int known = calls_only_known(tx, obj);
    if (known <= 0)
        return known < 0 ? -1 : exclusive_for(tx, "calls of unknown code by", obj);
    return change_forward(tx, obj);
}

static int
visit_forward(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    return read_irreversible(tx, obj) < 0 ? -1 : visit_referents(tx, obj, visit, arg);
}

const struct Kind forward_kind = {
    .fixed_attributes = true,
    .compared_inside = true,
    .mapping = true,
    .read_whole = read_irreversible,
    .write_whole = change_forward,
    .visit = visit_forward,
};

const struct Kind irreversible_kind = {.c_state = C_STATE_WHOLE, .compared_by_memory = true, .read_whole = read_irreversible,
                                       .write_whole = change_irreversible};

const struct Kind endpoint_kind = {.c_state = C_STATE_WHOLE, .read_whole = read_irreversible, .write_whole = change_forward};

static int
read_database(Tx *tx, PyObject *obj)
{
    return captured(tx, obj) ? check_doomed(tx) : lock_shared(tx, cell_of(obj, WHOLE));
}

static int
write_database(Tx *tx, PyObject *obj)
{
    return captured(tx, obj) ? check_doomed(tx) : exclusive_for(tx, "change of", obj);
}

const struct Kind database_kind = {.c_state = C_STATE_WHOLE, .read_whole = read_database, .write_whole = write_database};

const struct Kind opaque_kind = {.c_state = C_STATE_UNKNOWN, .compared_by_memory = true, .read_whole = open_state,
                                 .write_whole = open_state};

static int
take_lines(Tx *tx, PyObject *obj, int Py_UNUSED(depth))
{
    return is_fresh(tx, obj) ? check_doomed(tx) : exclusive_for(tx, "iteration over", obj);
}

const struct Kind stream_kind = {
    .fixed_attributes = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .iterate = take_lines,
};

const struct Kind unknown_kind = {
    .c_state = C_STATE_UNKNOWN,
    .compared_inside = true,
    .compared_by_memory = true,
    .read_whole = open_state,
};
