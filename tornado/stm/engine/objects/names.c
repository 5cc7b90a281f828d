/* Names in a namespace, by its dict: attributes of instances and globals of modules that are changed as keys.
 *
 * What locks them is told in namespaces.c.
 */
#include "names.h"

#include "access.h"
#include "dict.h"
#include "dictkeys.h"
#include "known.h"
#include "namespaces.h"

static PyObject *
value_of(PyObject *dict, PyObject *key)
{
    PyObject *value = NULL;
    if (PyDict_GetItemRef(dict, key, &value) < 0)
        PyErr_Clear();
    return value;
}

/* Put a deleted name back; the namespace has been this transaction's since. */
static int
restore_name(Tx *tx, Undo *u)
{
    PyObject *now = NULL;
    int r = dict_take(u->obj, u->key, u->hash, &now);
    displace(tx, now);
    return r < 0 ? -1 : dict_insert_at(u->obj, u->key, u->hash, u->old, u->n);
}

static const UndoKind undo_name_deletion = {.what = "a deleted name", .undo = restore_name};

int
open_name_write(Tx *tx, PyObject *dict, const void *base, PyObject *name)
{
    bool first;
    if (lock_exclusive(tx, attr_cell(base, name), &first) < 0 || bias_revoke_namespace(tx, dict) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    bool logged = !first && key_is_logged(tx, dict, name, PyObject_Hash(name));
    if (logged && !thread_of(tx)->order.deletes_keys)
        return 0;
    PyObject *old = value_of(dict, name);
    int r = 0;
    if (old == NULL || !logged) {
        if (old == NULL && lock_intent_write(tx, cell_of(base, WHOLE)) < 0)
            r = -1;
        else
            r = log_key(tx, dict, name, PyObject_Hash(name), old) ? 0 : -1;
    }
    Py_XDECREF(old);
    return r;
}

/* Deletion owns the whole: the name comes back to where it stands, should it have to. */
int
open_name_delete(Tx *tx, PyObject *dict, const void *base, PyObject *name)
{
    bool first;
    Cell whole = cell_of(base, WHOLE);
    if (!PyUnicode_CheckExact(name))    /* not a name: another key may be equal to it */
        return open_all_names(tx, dict, base, true) < 0 ? -1 : log_contents(tx, dict);
    if (lock_exclusive(tx, attr_cell(base, name), &first) < 0 || lock_exclusive(tx, whole, &first) < 0
        || bias_revoke_namespace(tx, dict) < 0)
        return -1;
    thread_of(tx)->order.deletes_keys = true;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    if (has_inserted(tx, whole))
        order_inserted_items(tx, dict);
    PyObject *old = value_of(dict, name);
    Py_hash_t hash = PyObject_Hash(name);
    PyObject *actual = old ? dict_actual_key(dict, name, hash) : Py_NewRef(name);
    Undo *u = actual == NULL ? NULL : undo_push_key(tx, old ? &undo_name_deletion : &undo_key, dict, actual, hash, old);
    if (u != NULL && old != NULL)
        u->n = dict_rank(dict, actual);
    Py_XDECREF(actual);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* All names: each of them, and, against new ones and deletions, the whole. Those of a
 * module that nobody rebinds are only changed exclusively. */
int
open_all_names(Tx *tx, PyObject *dict, const void *base, bool write)
{
    bool first;
    Cell whole = cell_of(base, WHOLE);
    if ((write ? lock_exclusive(tx, whole, &first) : lock_shared_container(tx, whole)) < 0
        || (write && bias_revoke_namespace(tx, dict) < 0))
        return -1;
    if (has_inserted(tx, whole))
        order_inserted_items(tx, dict);
    PyObject *names = is_module_dict(dict) ? globals_rebound(dict) : PyDict_Keys(dict);
    PyObject *list = names ? PySequence_List(names) : NULL;
    Py_XDECREF(names);
    int r = list == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *name = PyList_GET_ITEM(list, i);
        Py_hash_t hash;
        int h = hash_of(name, &hash);
        Cell cell = cell_of(base, key_bits(hash));
        r = h <= 0 ? h : write ? lock_exclusive(tx, cell, &first) : lock_shared(tx, cell);
    }
    Py_XDECREF(list);
    return r;
}

/* ---- Module globals ------------------------------------------------------------------ */

int
open_global_read(Tx *tx, PyObject *globals, PyObject *name)
{
    return lock_shared(tx, attr_cell(globals, name));
}

/* Rebinding a global is a keyed write if every function of the module reads
 * that name with a barrier; else all others must stand still. */
int
open_global_change(Tx *tx, PyObject *globals, PyObject *name, bool del)
{
    if (captured(tx, globals))
        return check_doomed(tx);
    PyObject *rebound = globals_rebound(globals);
    bool barriers = rebound != Py_None && PyUnicode_CheckExact(name)
        && PySequence_Contains(rebound, name) == 1;
    Py_DECREF(rebound);
    if (!barriers)
        return exclusive_for(tx, del ? "deletion of the module global" : "assignment to the module global", name);
    if (namespace_of(globals) != globals)
        return exclusive_for(tx, "a change of globals that are attributes", NULL);
    return del ? open_name_delete(tx, globals, globals, name) : open_name_write(tx, globals, globals, name);
}

int
open_global_write(Tx *tx, PyObject *globals, PyObject *name)
{
    return open_global_change(tx, globals, name, false);
}

/* Is the name missing in the module, and what it has for such no function in Python, which would have barriers of its own? */
static bool
asks_c_function(PyObject *globals, PyObject *name)
{
    static PyObject *getattr_name;
    if (getattr_name == NULL)
        getattr_name = PyUnicode_InternFromString("__getattr__");
    PyObject *asked = PyDict_Contains(globals, name) == 0 ? value_of(globals, getattr_name) : NULL;
    bool c_function = asked != NULL && !PyFunction_Check(asked);
    Py_XDECREF(asked);
    PyErr_Clear();
    return c_function;
}

static int
read_attr(Tx *tx, PyObject *module, PyObject *name)
{
    if (UNLIKELY(PyUnicode_EqualToUTF8(name, "__dict__")))
        return see_globals(tx, PyModule_GetDict(module));
    if (open_global_read(tx, PyModule_GetDict(module), name) < 0)
        return -1;
    return asks_c_function(PyModule_GetDict(module), name) ? exclusive_for(tx, "__getattr__ in C of", module) : 0;
}

static int
change_attr(Tx *tx, PyObject *module, PyObject *name, bool del, bool Py_UNUSED(raw))
{
    PyObject *globals = PyModule_GetDict(module);
    return del ? open_key_write(tx, globals, name, true) : open_global_write(tx, globals, name);
}

const struct Kind module_kind = {
    .read_attr = read_attr,
    .change_attr = change_attr,
};
