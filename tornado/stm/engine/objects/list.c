/* list: locked whole, changed at its end with a light undo. */
#include "access.h"
#include "deep.h"
#include "known.h"
#include "namespaces.h"

#define SMALL_LIST 64

static int
cut(Tx *tx, Undo *u)
{
    int r;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    displace(tx, PyList_GetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj)));
    r = PyList_SetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj), NULL);
    Py_END_CRITICAL_SECTION();
    return r;
}

static const UndoKind undo_append = {.what = "the end", .undo = cut};

/* Of n items the last was to be popped.  It may be there still: an attempt may end at a barrier after the one that has logged it, in
 * front of the same call, and the call may raise.  And what extends the list may have appended others since, without a barrier, which
 * goes on after Python code of an iterator has popped some. */
static int
put_end_back(Tx *tx, Undo *u)
{
    PyObject *end = PyTuple_Pack(1, u->old);
    int r = -1;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    if (end != NULL) {
        displace(tx, PyList_GetSlice(u->obj, u->n - 1, PyList_GET_SIZE(u->obj)));
        r = PyList_SetSlice(u->obj, u->n - 1, PyList_GET_SIZE(u->obj), end);
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(end);
    return r;
}

static const UndoKind undo_pop = {.what = "an end", .undo = put_end_back};

static int
put_item_back(Tx *tx, Undo *u)
{
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    if (u->n < PyList_GET_SIZE(u->obj)) {       /* else a thread has taken it out */
        displace(tx, PyList_GetItemRef(u->obj, u->n));
        r = PyList_SetItem(u->obj, u->n, Py_NewRef(u->old));
    }
    Py_END_CRITICAL_SECTION();
    return r;
}

static const UndoKind undo_item = {.what = "an item", .undo = put_item_back};

static PyObject *
list_contents(PyObject *list)
{
    return PyList_GetSlice(list, 0, PyList_GET_SIZE(list));
}

static int
put_contents_back(Tx *tx, Undo *u)
{
    int r;
    Py_BEGIN_CRITICAL_SECTION2(u->obj, u->old);
    displace(tx, list_contents(u->obj));
    r = PyList_SetSlice(u->obj, 0, PyList_GET_SIZE(u->obj), u->old);
    Py_END_CRITICAL_SECTION2();
    return r;
}

static const UndoKind undo_list = {.what = "all", .undo = put_contents_back};

static int
read_item(Tx *tx, PyObject *list, PyObject *Py_UNUSED(key))
{
    if (open_whole_read(tx, list) < 0)
        return -1;
    note_items(tx, list);
    return 0;
}

static int
write_item(Tx *tx, PyObject *list, PyObject *key, bool del)
{
    if (own_whole(tx, list) < 0)
        return -1;
    /* The items may be guarded by different locks of the program's: then a thread may change another one. */
    bool small = PyList_GET_SIZE(list) <= SMALL_LIST && thread_of(tx)->mutexes.n == 0;
    if (del || !PyLong_CheckExact(key) || small)
        return log_all(tx, list);
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Py_ssize_t i = PyLong_AsSsize_t(key);
    if (i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    if (i < 0)
        i += PyList_GET_SIZE(list);
    PyObject *old = i < 0 ? NULL : PyList_GetItemRef(list, i);
    if (old == NULL) {
        PyErr_Clear();
        return 0;
    }
    Undo *u = undo_push(tx, &undo_item, list, NULL, old);
    Py_DECREF(old);
    if (u == NULL)
        return -1;
    u->n = i;
    return 0;
}

int
open_list_append(Tx *tx, PyObject *list)
{
    if (captured(tx, list) || opened(tx, list, OPENED_APPEND))
        return check_doomed(tx);
    if (kind_of(tx, list) != &list_kind)
        return open_whole_write(tx, list);
    if (own_whole(tx, list) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    if (!snapshot_taken(tx, list)) {
        Undo *u = undo_push(tx, &undo_append, list, NULL, NULL);
        if (u == NULL)
            return -1;
        u->n = PyList_GET_SIZE(list);
    }
    note_opened(tx, list, OPENED_APPEND);
    return 0;
}

int
open_list_pop(Tx *tx, PyObject *list, Py_ssize_t index)
{
    if (captured(tx, list) || opened(tx, list, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, list) != &list_kind)
        return open_whole_write(tx, list);
    if (own_whole(tx, list) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Py_ssize_t n;
    PyObject *last;
    Py_BEGIN_CRITICAL_SECTION(list);
    n = PyList_GET_SIZE(list);
    last = index == -1 && n > SMALL_LIST ? PyList_GetItemRef(list, n - 1) : NULL;
    Py_END_CRITICAL_SECTION();
    if (last == NULL)
        return log_all(tx, list);
    /* The length that was logged may lie above what is left now. */
    forget_opened(tx, list, OPENED_APPEND);
    Undo *logged = tx->undo.n > 0 ? &tx->undo.entries[tx->undo.n - 1] : NULL;
    bool is_logged = logged != NULL && logged->kind == &undo_pop && logged->obj == list && logged->n == n;
    Undo *u = is_logged ? logged : undo_push(tx, &undo_pop, list, NULL, last);
    Py_DECREF(last);
    if (u == NULL)
        return -1;
    u->n = n;
    return 0;
}

static int
visit_list(Tx *tx, PyObject *list, Visit visit, void *arg)
{
    int r = open_whole_read(tx, list);
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *item = PyList_GetItemRef(list, i);
        if (item == NULL) {
            PyErr_Clear();
            break;
        }
        r = visit_unless_inert(tx, item, visit, arg);
        Py_DECREF(item);
    }
    return r;
}

static bool
list_may_be_biased(PyObject *list)
{
    return PyList_CheckExact(list);
}

const struct Kind list_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .made_captured = true,
    .read_whole = lock_container_read,
    .write_whole = lock_container_write,
    .read_key = read_item,
    .write_key = write_item,
    .visit = visit_list,
    .may_be_biased = list_may_be_biased,
    .contents = list_contents,
    .undo = &undo_list,
};
