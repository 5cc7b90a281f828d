/* The undo log: what an abort puts back, and how.
 *
 * Entries are logged before the write that they undo, once a cell, by the
 * transaction that owns the cell, and applied backwards while it still owns
 * it.  So at that moment the object is exactly as its own writes left it, but
 * for keys of a dict or set that others, with locks of their own, have changed
 * (order.c).
 */
#include "stm.h"

#include "internal/pycore_context.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_gc.h"
#include "internal/pycore_setobject.h"

Undo *
undo_push(Tx *tx, UndoKind kind, PyObject *obj, PyObject *key, PyObject *old)
{
    if (tx->n_undo == tx->cap_undo) {
        Py_ssize_t cap = tx->cap_undo ? 2 * tx->cap_undo : 256;
        Undo *p = PyMem_RawRealloc(tx->undo, cap * sizeof(Undo));
        if (p == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        tx->undo = p;
        tx->cap_undo = cap;
    }
    Undo *u = &tx->undo[tx->n_undo++];
    *u = (Undo){kind, 0, Py_XNewRef(obj), Py_XNewRef(key), Py_XNewRef(old), NULL};
    if ((kind == UNDO_DICT_SET || kind == UNDO_ATTR) && old == NULL)
        order_logged(tx, u);
    return u;
}

/* What is about to be put out of its place may be the last reference, and no
 * finalizer may run before the rollback is over. Takes the reference. */
void
displace(Tx *tx, PyObject *value)
{
    PyErr_Clear();
    if (value == NULL)
        return;
    if (tx->displaced == NULL)
        tx->displaced = PyList_New(0);
    if (tx->displaced == NULL || PyList_Append(tx->displaced, value) < 0)
        PyErr_Clear();
    Py_DECREF(value);
}

static PyObject *
item_of(PyObject *dict, PyObject *key)
{
    PyObject *value = NULL;
    PyDict_GetItemRef(dict, key, &value);
    return value;
}

/* The method of the C type under the object's class: an override must not run. */
static PyObject *
call_c_method(PyObject *obj, PyObject *name, PyObject *arg)
{
    PyObject *method = c_base_method(obj, name);
    if (method == NULL)
        return NULL;
    PyObject *r = PyObject_CallFunctionObjArgs(method, obj, arg, NULL);
    Py_DECREF(method);
    return r;
}

/* A list of what is in an OrderedDict, pair by pair, or in what can be iterated over. */
static PyObject *
items_of(PyObject *obj, Kind kind)
{
    static PyObject *items_name;
    if (kind != KIND_ODICT) {
        PyObject *iterator = c_base(Py_TYPE(obj))->tp_iter(obj);
        PyObject *list = iterator ? PySequence_List(iterator) : NULL;
        Py_XDECREF(iterator);
        return list;
    }
    if (items_name == NULL)
        items_name = PyUnicode_InternFromString("items");
    PyObject *view = items_name ? call_c_method(obj, items_name, NULL) : NULL;
    PyObject *list = view ? PySequence_List(view) : NULL;
    Py_XDECREF(view);
    return list;
}

/* A copy of all that is in the container, whatever a subclass in Python makes of its methods: a
 * dict, an OrderedDict too; a set; bytes; or a list. */
PyObject *
contents_of(PyObject *obj, Kind kind)
{
    switch (kind) {
    case KIND_LIST:
        return PyList_GetSlice(obj, 0, PyList_GET_SIZE(obj));
    case KIND_SET:
        return set_copy_places(obj);
    case KIND_BYTEARRAY:
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(obj), PyByteArray_GET_SIZE(obj));
    case KIND_DICT:
        return dict_copy_places(obj);
    case KIND_ODICT:
        break;
    default:
        return items_of(obj, kind);
    }
    PyObject *items = items_of(obj, kind), *copy = items ? PyDict_New() : NULL;
    if (copy != NULL && PyDict_MergeFromSeq2(copy, items, 1) < 0)
        Py_CLEAR(copy);
    Py_XDECREF(items);
    return copy;
}

static int
call_and_drop(PyObject *obj, const char *method, PyObject *arg)
{
    PyObject *name = PyUnicode_InternFromString(method);
    PyObject *r = name ? call_c_method(obj, name, arg) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* A bytearray of unchanged size is restored in place: views of it may be about. */
static int
restore_bytes(PyObject *bytearray, PyObject *old)
{
    if (PyByteArray_GET_SIZE(bytearray) != PyBytes_GET_SIZE(old)
        && PyByteArray_Resize(bytearray, PyBytes_GET_SIZE(old)) < 0)
        return -1;
    memcpy(PyByteArray_AS_STRING(bytearray), PyBytes_AS_STRING(old), PyBytes_GET_SIZE(old));
    return 0;
}

/* The same for an array. */
static int
restore_items(PyObject *array, PyObject *old)
{
    PySequenceMethods *sequence = c_base(Py_TYPE(array))->tp_as_sequence;
    int r = 0;
    if (sequence->sq_length(array) != PyList_GET_SIZE(old))
        return call_and_drop(array, "clear", NULL) < 0 ? -1 : call_and_drop(array, "extend", old);
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(old); i++)
        r = sequence->sq_ass_item(array, i, PyList_GET_ITEM(old, i));
    return r;
}

/* A deque gets back a list, an OrderedDict a dict. */
static int
restore_sequence(Tx *tx, PyObject *obj, PyObject *old)
{
    displace(tx, items_of(obj, PyODict_Check(obj) ? KIND_ODICT : KIND_DEQUE));
    int r = call_and_drop(obj, "clear", NULL);
    if (r == 0 && !PyODict_Check(obj))
        return call_and_drop(obj, "extend", old);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; r == 0 && PyDict_Next(old, &at, &key, &value);)
        r = PyODict_SetItem(obj, key, value);
    return r;
}

static int
undo_one(Tx *tx, Undo *u)
{
    switch (u->kind) {
    case UNDO_ATTR:
        displace(tx, _PyObject_GenericGetAttrWithDict(u->obj, u->key, NULL, 1));
        if (PyObject_GenericSetAttr(u->obj, u->key, u->old) == 0)
            return 0;
        if (u->old != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();      /* it was set and deleted again */
        return 0;
    case UNDO_DICT_SET:
        displace(tx, item_of(u->obj, u->key));
        if (u->old != NULL)
            return PyDict_SetItem(u->obj, u->key, u->old);
        return PyDict_Pop(u->obj, u->key, NULL) < 0 ? -1 : 0;
    case UNDO_DICT_DEL:
        return order_restore_place(tx, u);
    case UNDO_NAME_DEL:
        return order_restore_name(tx, u);
    case UNDO_DICT_ALL:
        return order_restore_all(tx, u);
    case UNDO_SET_ADD:
        return PySet_Discard(u->obj, u->key) < 0 ? -1 : 0;
    case UNDO_SET_DEL:
        return set_put_back(u->obj, u->key, u->n);
    case UNDO_SET_ALL:
        set_exchange(u->obj, u->old);
        displace(tx, Py_NewRef(u->old));
        return 0;
    case UNDO_SET_GROWN:
        displace(tx, set_shrink(u->obj, u->old));
        displace(tx, Py_NewRef(u->old));
        return 0;
    case UNDO_LIST_LEN:
        displace(tx, PyList_GetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj)));
        return PyList_SetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj), NULL);
    case UNDO_LIST_ITEM:
        displace(tx, PyList_GetItemRef(u->obj, u->n));
        return PyList_SetItem(u->obj, u->n, Py_NewRef(u->old));
    case UNDO_LIST_ALL:
        displace(tx, PyList_GetSlice(u->obj, 0, PyList_GET_SIZE(u->obj)));
        return PyList_SetSlice(u->obj, 0, PyList_GET_SIZE(u->obj), u->old);
    case UNDO_BYTES:
    case UNDO_ARRAY: {
        Py_ssize_t views = views_ignore(u->obj);
        int r = u->kind == UNDO_BYTES ? restore_bytes(u->obj, u->old) : restore_items(u->obj, u->old);
        views_regard(u->obj, views);
        return r;
    }
    case UNDO_SEQ_ALL:
        if (restore_sequence(tx, u->obj, u->old) < 0)
            return -1;
        if (PyODict_Check(u->obj))
            odict_restore_changes(u->obj, u->n);
        return 0;
    case UNDO_DEQUE_PLACES:
        deque_restore_places(u->obj, u->old);
        return 0;
    case UNDO_METHOD: {
        PyObject *r = call_c_method(u->obj, u->key, u->old);
        if (r == NULL)
            return -1;
        displace(tx, r);
        return 0;
    }
    case UNDO_CELL:
        displace(tx, PyCell_Get(u->obj));
        return PyCell_Set(u->obj, u->old);
    case UNDO_STRUCT:
        structure_swap(u->obj, u->mem);
        return 0;
    case UNDO_SWAP:
        structure_swap(u->obj, u->old);
        return 0;
    case UNDO_RELEASE:
        return release_undo(u);
    case UNDO_GENERATOR:
        generator_restore(u);
        return 0;
    case UNDO_CONTEXT: {
        struct _pycontextobject *c = (struct _pycontextobject *)u->obj;
        PyObject *now = (PyObject *)c->ctx_vars;
        c->ctx_vars = (PyHamtObject *)u->old;
        u->old = now;
        return 0;
    }
    case UNDO_BIRTH:
        _PyGC_SET_FINALIZED(u->obj);
        return 0;
    case UNDO_CALL: {
        PyObject *r = PyObject_Call(u->obj, u->key, NULL);
        Py_XDECREF(r);
        return r == NULL ? -1 : 0;
    }
    }
    Py_UNREACHABLE();
}

/* Put everything back. The caller still owns all its cells.
 *
 * Views that were released come last: what they are around may have changed its size since
 * then, and may have been logged before. */
void
undo_rollback(Tx *tx)
{
    bool released = false;
    for (int last = 0; last <= (int)released; last++) {
        for (Py_ssize_t i = tx->n_undo; --i >= 0;) {
            Undo *u = &tx->undo[i];
            released |= u->kind == UNDO_RELEASE;
            if ((u->kind == UNDO_RELEASE) != last)
                continue;
            interruptible(tx);
            if (undo_one(tx, u) < 0)
                PyErr_FormatUnraisable("tornado.stm: an aborted attempt could not undo its "
                                       "write %d to %R", (int)u->kind, u->obj);
        }
    }
}

/* Drop the entries from this one on, and the references that they hold. */
void
undo_forget(Tx *tx, Py_ssize_t from)
{
    while (tx->n_undo > from) {
        Undo u = tx->undo[--tx->n_undo];
        if (u.kind == UNDO_STRUCT)
            structure_forget(&u);
        else if (u.kind == UNDO_GENERATOR)
            generator_forget(&u);
        Py_XDECREF(u.old);
        Py_XDECREF(u.key);
        Py_XDECREF(u.obj);
    }
    if (from == 0)
        tx->unordered = 0;
}
