/* Opening objects: the locks that an operation needs, and the undo it must log.
 *
 * Here is what all kinds of objects have in common; the rest is in the constant structure of the kind (types.h).
 */
#include "access.h"

#include "../calls/calls.h"
#include "dictkeys.h"
#include "instance.h"
#include "known.h"
#include "memoryview.h"

#include "internal/pycore_list.h"

/* ---- Logging ---------------------------------------------------------------------------- */

int
log_contents(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, obj))
        return 0;
    if (kind->log_more != NULL && kind->log_more(tx, obj) < 0)
        return -1;
    PyObject *copy = kind->contents(obj);
    Undo *u = copy == NULL ? NULL : undo_push(tx, kind->undo, obj, NULL, copy);
    Py_XDECREF(copy);
    if (u == NULL)
        return -1;
    note_opened(tx, obj, OPENED_SNAPSHOT);
    return 0;
}

int
log_all(Tx *tx, PyObject *obj)
{
    if (log_contents(tx, obj) < 0)
        return -1;
    if (tx->grade != GRADE_EXCLUSIVE)
        note_opened(tx, obj, OPENED_WRITE);
    return 0;
}

int
hash_of(PyObject *key, Py_hash_t *hash)
{
    *hash = PyObject_Hash(key);
    if (*hash == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* Strings and small numbers have hashes of their own, but for the empty string, -1 and -2. (That a string has the hash of a small number
 * is as likely as that two strings have the same one.) */
static bool
has_hash_of_its_own(PyObject *key, Py_hash_t hash)
{
    return (PyUnicode_CheckExact(key) && PyUnicode_GET_LENGTH(key) > 0)
        || (PyLong_CheckExact(key) && PyUnstable_Long_IsCompact((PyLongObject *)key) && hash != -2);
}

/* May it have that of such a key? Tuples and what is hashed by its address are as unlikely to as strings; -1 and -2 do not. */
static bool
may_share_hash(PyObject *key, Py_hash_t hash)
{
    return !has_hash_of_its_own(key, hash) && !PyTuple_CheckExact(key) && Py_TYPE(key)->tp_hash != PyBaseObject_Type.tp_hash
        && !(PyLong_CheckExact(key) && hash == -2);
}

bool
key_is_logged(Tx *tx, PyObject *obj, PyObject *key, Py_hash_t hash)
{
    if (has_hash_of_its_own(key, hash) && !thread_of(tx)->order.shares_hashes)
        return true;
    for (Py_ssize_t i = tx->undo.n; --i >= 0 && i >= tx->undo.n - 16;) {
        Undo *u = &tx->undo.entries[i];
        if (u->obj == obj && u->key != NULL && u->hash == hash && is_same_key(u->key, u->hash, key, hash))
            return true;
    }
    return false;
}

Undo *
undo_push_key(Tx *tx, const UndoKind *kind, PyObject *obj, PyObject *key, Py_hash_t hash, PyObject *old)
{
    Undo *u = undo_push(tx, kind, obj, key, old);
    if (u != NULL)
        u->hash = hash;
    if (UNLIKELY(may_share_hash(key, hash)))
        thread_of(tx)->order.shares_hashes = true;
    return u;
}

/* ---- Methods in C, past any override ----------------------------------------------------- */

PyObject *
c_base_method(PyObject *obj, PyObject *name)
{
    return PyObject_GetAttr((PyObject *)c_base(Py_TYPE(obj)), name);
}

PyObject *
c_items(PyObject *obj)
{
    PyObject *list = PyList_New(0), *iterator = NULL, *item;
    Py_BEGIN_CRITICAL_SECTION(obj);
    if (list != NULL)
        iterator = c_base(Py_TYPE(obj))->tp_iter(obj);
    if (iterator != NULL) {
        while ((item = Py_TYPE(iterator)->tp_iternext(iterator)) != NULL && _PyList_AppendTakeRef((PyListObject *)list, item) == 0)
            ;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(iterator);
    if (PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

int
call_c_method(PyObject *obj, const char *method, PyObject *arg)
{
    PyObject *name = PyUnicode_InternFromString(method);
    PyObject *found = name ? c_base_method(obj, name) : NULL;
    PyObject *r = found ? PyObject_CallFunctionObjArgs(found, obj, arg, NULL) : NULL;
    Py_XDECREF(found);
    Py_XDECREF(name);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

int
replace_contents(Tx *tx, PyObject *obj, const char *empty, PyObject *a, const char *fill, PyObject *b, PyObject *(*contents)(PyObject *))
{
    PyObject *names[2] = {PyUnicode_InternFromString(empty), PyUnicode_InternFromString(fill)}, *methods[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        methods[i] = names[i] ? c_base_method(obj, names[i]) : NULL;
        Py_XDECREF(names[i]);
    }
    PyObject *emptied = NULL, *filled = NULL;
    if (methods[0] != NULL && methods[1] != NULL) {
        Py_BEGIN_CRITICAL_SECTION(obj);
        if (contents != NULL)
            displace(tx, contents(obj));
        emptied = PyObject_CallFunctionObjArgs(methods[0], obj, a, NULL);
        if (emptied != NULL)
            filled = PyObject_CallFunctionObjArgs(methods[1], obj, b, NULL);
        Py_END_CRITICAL_SECTION();
    }
    int r = filled == NULL ? -1 : 0;
    Py_XDECREF(emptied);
    Py_XDECREF(filled);
    Py_XDECREF(methods[0]);
    Py_XDECREF(methods[1]);
    return r;
}

/* obj.key(old), or obj.key(). The size tells whether what is undone has happened: an attempt may end at a barrier after the one that logged
 * it, in front of the same call (an instruction falls back to its general form), and the call may raise. */
static int
call_inverse(Tx *tx, Undo *u)
{
    PyObject *method = c_base_method(u->obj, u->key), *r = NULL;
    if (method == NULL)
        return -1;
    Py_ssize_t now;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    now = c_base(Py_TYPE(u->obj))->tp_as_sequence->sq_length(u->obj);
    if (now != u->n)
        r = PyObject_CallFunctionObjArgs(method, u->obj, u->old, NULL);
    Py_END_CRITICAL_SECTION();
    Py_DECREF(method);
    if (r == NULL)
        return now == u->n ? 0 : -1;
    displace(tx, r);
    return 0;
}

/* Where the size is not n. */
static const UndoKind undo_resizing = {.what = "an end", .undo = call_inverse};

int
push_resizing_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value, Py_ssize_t n)
{
    Undo *last = tx->undo.n > 0 ? &tx->undo.entries[tx->undo.n - 1] : NULL;
    if (last != NULL && last->kind == &undo_resizing && last->obj == obj && last->n == n
        && PyUnicode_EqualToUTF8(last->key, method))
        return 0;
    PyObject *name = PyUnicode_InternFromString(method);
    Undo *u = name ? undo_push(tx, &undo_resizing, obj, name, value) : NULL;
    Py_XDECREF(name);
    if (u == NULL)
        return -1;
    u->n = n;
    return 0;
}

/* ---- Whole objects ---------------------------------------------------------------------- */

int
open_nothing(Tx *tx, PyObject *Py_UNUSED(obj))
{
    return check_doomed(tx);
}

int
note_read(Tx *tx, PyObject *obj)
{
    bias_seen(tx, obj);
    note_opened(tx, obj, OPENED_READ);
    return 0;
}

int
lock_whole_read(Tx *tx, PyObject *obj, int (*lock)(Tx *tx, Cell c))
{
    if (captured(tx, obj) || read_by_bias(tx, obj))
        return check_doomed(tx);
    return lock(tx, cell_of(obj, WHOLE)) < 0 ? -1 : note_read(tx, obj);
}

int
lock_container_read(Tx *tx, PyObject *obj)
{
    return lock_whole_read(tx, obj, lock_shared);
}

int
own_whole(Tx *tx, PyObject *obj)
{
    bool first;
    return lock_exclusive(tx, cell_of(obj, WHOLE), &first) < 0 ? -1 : bias_revoke(tx, obj);
}

int
lock_container_write(Tx *tx, PyObject *obj)
{
    if (captured(tx, obj))
        return check_doomed(tx);
    return own_whole(tx, obj) < 0 ? -1 : log_all(tx, obj);
}

int
open_whole_read(Tx *tx, PyObject *obj)
{
    if (captured_container(tx, obj) || opened(tx, obj, OPENED_READ))
        return check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    return kind->read_whole != NULL ? kind->read_whole(tx, obj) : check_doomed(tx);
}

int
open_whole_write(Tx *tx, PyObject *obj)
{
    if (opened(tx, obj, OPENED_WRITE))
        return check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    if (kind->write_whole != NULL)
        return kind->write_whole(tx, obj);
    return is_fresh(tx, obj) ? 0 : exclusive_for(tx, "change of", obj);
}

/* ---- Keys ------------------------------------------------------------------------------- */

int
open_no_key(Tx *tx, PyObject *Py_UNUSED(obj), PyObject *Py_UNUSED(key))
{
    return check_doomed(tx);
}

void
note_items(Tx *tx, PyObject *obj)
{
    if (opened(tx, obj, OPENED_READ))
        note(tx, obj, OPENED_ITEMS, opened_at(tx, obj, OPENED_READ)->key & 1);
}

int
is_open_for_keys(Tx *tx, PyObject *obj)
{
    bool whole = opened(tx, obj, OPENED_READ) || captured(tx, obj);
    if (whole && (PyDict_CheckExact(obj) || PySet_CheckExact(obj)))
        note_items(tx, obj);
    return whole || read_by_bias(tx, obj) ? check_doomed(tx) < 0 ? -1 : 1 : 0;
}

int
open_key_read(Tx *tx, PyObject *obj, PyObject *key)
{
    Kind kind = kind_of(tx, obj);
    return kind->read_key != NULL ? kind->read_key(tx, obj, key) : open_whole_read(tx, obj);
}

int
open_item_read(Tx *tx, PyObject *obj, PyObject *key)
{
    Kind kind = kind_of(tx, obj);
    return kind->read_item != NULL ? kind->read_item(tx, obj, key) : open_key_read(tx, obj, key);
}

int
open_key_write(Tx *tx, PyObject *obj, PyObject *key, bool del)
{
    if (captured_container(tx, obj))
        return check_doomed(tx);
    bool resized = del || PySlice_Check(key);
    if (opened(tx, obj, OPENED_WRITE))
        return resized ? open_resize(tx, obj) : check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    if (kind->write_key != NULL)
        return captured(tx, obj) ? check_doomed(tx) : kind->write_key(tx, obj, key, del);
    return open_whole_write(tx, obj) < 0 ? -1 : resized ? open_resize(tx, obj) : 0;
}

/* ---- Items, one after the other --------------------------------------------------------- */

int
open_at_depth(Tx *tx, PyObject *obj, int depth)
{
    if (depth > MAX_DEPTH)
        return exclusive_for(tx, "deeply nested", obj);
    Kind kind = kind_of(tx, obj);
    return kind->iterate != NULL ? kind->iterate(tx, obj, depth) : open_whole_read(tx, obj);
}

int
open_iter(Tx *tx, PyObject *obj)
{
    return open_at_depth(tx, obj, 0);
}

int
open_mapping(Tx *tx, PyObject *obj)
{
    static PyObject *keys_name;
    if (kind_of(tx, obj) != &instance_kind)
        return open_iter(tx, obj);
    if (keys_name == NULL)
        keys_name = PyUnicode_InternFromString("keys");
    return open_through_method(tx, obj, keys_name) < 0 ? -1 : open_through_attribute(tx, obj, keys_name);
}

void
keep_referent(Tx *tx, PyObject *reference)
{
    PyObject *obj = NULL;
    if (!is_undisturbed(tx) || PyWeakref_GetRef(reference, &obj) <= 0)
        return;
    if (captured(tx, obj) || opened(tx, obj, OPENED_KEPT)) {
        Py_DECREF(obj);
        return;
    }
    note_opened(tx, obj, OPENED_KEPT);
    displace(tx, obj);
}
