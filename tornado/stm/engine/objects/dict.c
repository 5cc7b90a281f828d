/* dict: its keys are locked one by one; whoever looks at the whole excludes those who change keys.
 *
 * Some dicts are namespaces, and locked in another way (names.c).  The order of the keys is that of a serial
 * run (order.c).
 */
#include "dict.h"

#include "../calls/callbacks.h"
#include "../calls/calls.h"
#include "access.h"
#include "deep.h"
#include "dictkeys.h"
#include "known.h"
#include "memoryview.h"
#include "names.h"
#include "namespaces.h"

#include "internal/pycore_dict.h"

static PyObject *missing_name;      /* "__missing__" */

int
dict_init(void)
{
    missing_name = PyUnicode_InternFromString("__missing__");
    return missing_name == NULL ? -1 : 0;
}

/* ---- Undo ----------------------------------------------------------------------------- */

/* A key that was changed, or inserted. */
static int
put_value_back(Tx *tx, Undo *u)
{
    PyObject *now = NULL;
    int r = u->old != NULL ? dict_put(u->obj, u->key, u->hash, u->old, &now) : dict_take(u->obj, u->key, u->hash, &now);
    displace(tx, now);
    return r < 0 ? -1 : 0;
}

const UndoKind undo_key = {.what = "a key", .undo = put_value_back, .logged = order_logged};

/* The rollback compares no keys with Python code. */
Undo *
log_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *old)
{
    PyObject *actual = old == NULL ? Py_NewRef(key) : dict_actual_key(dict, key, hash);
    Undo *u = actual == NULL ? NULL : undo_push_key(tx, &undo_key, dict, actual, hash, old);
    Py_XDECREF(actual);
    return u;
}

/* Put all contents back, at once for those who look up keys. */
static int
put_contents_back(Tx *tx, Undo *u)
{
    if (!dict_exchange(u->obj, u->old)) {
        int r;
        Py_BEGIN_CRITICAL_SECTION2(u->obj, u->old);
        displace(tx, PyDict_Items(u->obj));
        PyDict_Clear(u->obj);
        r = PyDict_Update(u->obj, u->old);
        Py_END_CRITICAL_SECTION2();
        return r;
    }
    displace(tx, PyDict_Items(u->old));
    PyDict_Clear(u->old);
    return 0;
}

const UndoKind undo_dict = {.what = "all", .undo = put_contents_back};

/* Put the entries back where they stood, which an insertion has moved; what they are is undone by itself. A thread may have
 * changed some meanwhile. */
static int
put_places_back(Tx *tx, Undo *u)
{
    displace(tx, PyDict_Items(u->old));
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    if (dict_put_into_places(u->obj, u->old) == 0)
        dict_exchange(u->obj, u->old);
    Py_END_CRITICAL_SECTION();
    displace(tx, PyDict_Items(u->old));
    PyDict_Clear(u->old);
    return PyErr_Occurred() ? -1 : 0;
}

static const UndoKind undo_places = {.what = "the places of keys", .undo = put_places_back};

/* ---- Locks ---------------------------------------------------------------------------- */

/* Lock one key of a dict, for reading or to own it; of a dict with storage of its
 * own with the intention on the whole, of a view of an instance as its attribute. */
int
lock_key_shared(Tx *tx, PyObject *dict, Cell key_cell)
{
    if (lock_intent_read(tx, cell_of(dict, WHOLE)) < 0 || lock_shared(tx, key_cell) < 0)
        return -1;
    bias_seen(tx, dict);
    return 0;
}

int
lock_key_owned(Tx *tx, PyObject *dict, Cell key_cell, bool *first)
{
    if (lock_intent_write(tx, cell_of(dict, WHOLE)) < 0 || lock_exclusive(tx, key_cell, first) < 0)
        return -1;
    return bias_revoke(tx, dict);
}

/* The transaction excludes others from changing the container. What stands for keys that
 * it has deleted (order.c) is taken out before it looks at the whole, and it can be seen in which
 * order the keys are that it has inserted. */
static int
settle_keys(Tx *tx, PyObject *obj)
{
    if (thread_of(tx)->order.n_placeholders > 0 && PyDict_Check(obj) && !snapshot_taken(tx, obj)) {
        int hidden = order_hide_placeholders(tx, obj);
        if (hidden < 0)
            return -1;
        if (hidden)
            note_opened(tx, obj, OPENED_SNAPSHOT);
    }
    if (has_inserted(tx, cell_of(obj, WHOLE)))
        order_inserted_items(tx, obj);
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------ */

static int
read_whole(Tx *tx, PyObject *dict)
{
    if (captured(tx, dict))
        return check_doomed(tx);
    const void *base = namespace_of(dict);
    if (base != NULL)
        return open_all_names(tx, dict, base, false);
    if (read_by_bias(tx, dict))
        return check_doomed(tx);
    if (lock_shared_container(tx, cell_of(dict, WHOLE)) < 0 || settle_keys(tx, dict) < 0)
        return -1;
    if (UNLIKELY(namespace_of(dict) != NULL))
        return open_whole_read(tx, dict);       /* it has become one meanwhile */
    return note_read(tx, dict);
}

static int
write_whole(Tx *tx, PyObject *dict)
{
    const void *base = namespace_of(dict);
    bool first;
    if (base != NULL && is_module_dict(dict))
        return exclusive_for(tx, "all globals at once through", dict);
    if (captured(tx, dict))
        return check_doomed(tx);
    if (base != NULL)
        return open_all_names(tx, dict, base, true) < 0 ? -1 : log_contents(tx, dict);
    if (lock_exclusive(tx, cell_of(dict, WHOLE), &first) < 0 || settle_keys(tx, dict) < 0 || bias_revoke(tx, dict) < 0)
        return -1;
    if (UNLIKELY(namespace_of(dict) != NULL))
        return open_whole_write(tx, dict);      /* it has become one meanwhile */
    return log_all(tx, dict);
}

int
visit_dict(Tx *tx, PyObject *dict, Visit visit, void *arg)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    int r = 0;
    if (open_whole_read(tx, dict) < 0)
        return -1;
    Py_BEGIN_CRITICAL_SECTION(dict);
    while (r == 0 && PyDict_Next(dict, &pos, &key, &value)) {
        r = visit_unless_inert(tx, key, visit, arg);
        if (r == 0)
            r = visit_unless_inert(tx, value, visit, arg);
    }
    Py_END_CRITICAL_SECTION();
    return r;
}

/* The container gets what is in the other one, which is open. In a namespace, each new name
 * has to be opened for itself: those that are there already say nothing of it. */
int
open_merge(Tx *tx, PyObject *obj, PyObject *other)
{
    if (kind_of(tx, obj) != &dict_kind || namespace_of(obj) == NULL)
        return open_whole_write(tx, obj) < 0 ? -1 : open_resize(tx, obj);
    if (!PyDict_CheckExact(other))
        return exclusive_for(tx, "attributes set by the keys of", other);
    PyObject *names = PyDict_Keys(other);
    int r = names == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(names); i++)
        r = open_key_write(tx, obj, PyList_GET_ITEM(names, i), false);
    Py_XDECREF(names);
    return r;
}

/* ---- Keys ----------------------------------------------------------------------------- */

static int
read_key(Tx *tx, PyObject *dict, PyObject *key)
{
    Py_hash_t hash;
    int open = is_open_for_keys(tx, dict);
    if (open != 0)
        return open < 0 ? -1 : 0;
    int h = hash_of(key, &hash);
    if (h <= 0)
        return h;
    const void *base = namespace_of(dict);
    return base != NULL ? lock_shared(tx, cell_of(base, key_bits(hash))) : lock_key_shared(tx, dict, cell_of(dict, key_bits(hash)));
}

bool
inserts_missing_keys(PyObject *dict)
{
    if (PyDict_CheckExact(dict))
        return false;
    PyObject *m = _PyType_LookupRef(Py_TYPE(dict), missing_name);
    bool c_code = m != NULL && Py_IS_TYPE(m, &PyMethodDescr_Type);
    Py_XDECREF(m);
    return c_code;
}

/* dict[key], by which a defaultdict gets a key that it does not have: what its factory makes is
 * put there now, so that the operation finds it. */
static int
read_item(Tx *tx, PyObject *dict, PyObject *key)
{
    if (is_constant(key) && captured(tx, dict)) {
        int there = PyDict_Contains(dict, key);
        if (there != 0)
            return there < 0 ? -1 : check_doomed(tx);
    }
    if (open_key_read(tx, dict, key) < 0)
        return -1;
    if (!inserts_missing_keys(dict) || PyObject_Hash(key) == -1) {
        PyErr_Clear();
        return 0;
    }
    int there = PyDict_Contains(dict, key);
    if (there != 0)
        return there < 0 ? -1 : 0;
    PyObject *factory = PyObject_GetAttrString(dict, "default_factory");
    if (factory == NULL || factory == Py_None) {
        Py_XDECREF(factory);
        return factory == NULL ? -1 : 0;
    }
    PyObject *value = stm_call(factory, NULL, 0, NULL);
    Py_DECREF(factory);
    int r = value == NULL || (tx->open && open_key_write(tx, dict, key, false) < 0) ? -1
        : PyDict_SetDefaultRef(dict, key, value, NULL);   /* the factory may have put one there */
    Py_XDECREF(value);
    return r < 0 ? -1 : 0;
}

/* It is not known which. Only what a type in C makes is known to be new, and needs not be opened. */
int
open_missing_keys(Tx *tx, PyObject *dict)
{
    if (!inserts_missing_keys(dict))
        return 0;
    PyObject *factory = PyObject_GetAttrString(dict, "default_factory");
    if (factory == NULL || factory == Py_None) {
        Py_XDECREF(factory);
        return factory == NULL ? -1 : 0;
    }
    bool makes = PyType_Check(factory) && !is_python_class((PyTypeObject *)factory);
    int r = makes ? call_with_own(tx, factory) : exclusive_for(tx, "keys that are missing, and made by C code, in", dict);
    Py_DECREF(factory);
    return r < 0 ? -1 : open_whole_write(tx, dict);
}

/* The dict may come to have its entries at other places, where others may look them up by these. A thread may change keys meanwhile, which
 * other locks of the program guard: a rollback must not put back all that there was. */
static int
open_places(Tx *tx, PyObject *dict)
{
    bool first;
    if (lock_exclusive(tx, cell_of(dict, WHOLE), &first) < 0 || bias_revoke(tx, dict) < 0)
        return -1;
    PyObject *copy = dict_copy_places(dict);
    Undo *u = copy == NULL ? NULL : undo_push(tx, &undo_places, dict, NULL, copy);
    Py_XDECREF(copy);
    if (u == NULL)
        return -1;
    if (has_inserted(tx, cell_of(dict, WHOLE)))
        order_inserted_items(tx, dict);
    return 0;
}

static int write_key(Tx *tx, PyObject *dict, PyObject *key, bool del);

/* A key is to be deleted without leaving a placeholder. */
static int
open_whole_for_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash)
{
    thread_of(tx)->order.deletes_keys = true;
    if (LIKELY(thread_of(tx)->mutexes.n == 0) || captured(tx, dict))
        return open_whole_write(tx, dict);
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    PyObject *old = NULL;
    if (open_places(tx, dict) < 0)
        return -1;
    if (UNLIKELY(namespace_of(dict) != NULL))
        return write_key(tx, dict, key, true);      /* it has become one meanwhile */
    if (PyDict_GetItemRef(dict, key, &old) < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
    }
    Undo *u = log_key(tx, dict, key, hash, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

static int
write_key(Tx *tx, PyObject *dict, PyObject *key, bool del)
{
    Py_hash_t hash;
    int h = hash_of(key, &hash);
    if (h <= 0)
        return h;
    const void *base = namespace_of(dict);
    if (base != NULL && is_module_dict(dict))
        return open_global_change(tx, dict, key, del);
    if (base != NULL)
        return del ? open_name_delete(tx, dict, base, key) : open_name_write(tx, dict, base, key);
    if (del)
        return open_whole_for_key(tx, dict, key, hash);
    bool first;
    if (lock_key_owned(tx, dict, cell_of(dict, key_bits(hash)), &first) < 0)
        return -1;
    if (UNLIKELY(namespace_of(dict) != NULL))
        return write_key(tx, dict, key, del);     /* it has become one meanwhile */
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    bool logged = !first && key_is_logged(tx, dict, key, hash);
    if (logged && !thread_of(tx)->order.deletes_keys)
        return 0;
    PyObject *old = NULL;
    if (PyDict_GetItemRef(dict, key, &old) < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
    }
    if (logged && old != NULL) {
        Py_DECREF(old);
        return 0;
    }
    if (old == NULL && dict_would_close_gaps(dict, key) && open_places(tx, dict) < 0)
        return -1;
    Undo *u = log_key(tx, dict, key, hash, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* A key is to be deleted. Returns 1 if that is done, with a new reference to its value;
 * 0 if it is open for being deleted, or complained about, by who wants to. */
int
delete_key(Tx *tx, PyObject *obj, PyObject *key, PyObject **value)
{
    Py_hash_t hash;
    bool first;
    /* Captured as by whoever looks at it afterwards, and would not find a placeholder then. */
    if (kind_of(tx, obj) != &dict_kind || namespace_of(obj) != NULL || opened(tx, obj, OPENED_WRITE)
        || captured_container(tx, obj) || captured(tx, obj))
        return open_key_write(tx, obj, key, true);
    int h = hash_of(key, &hash);
    if (h <= 0)
        return h;
    if (lock_key_owned(tx, obj, cell_of(obj, key_bits(hash)), &first) < 0)
        return -1;
    if (UNLIKELY(namespace_of(obj) != NULL))
        return open_key_write(tx, obj, key, true);      /* it has become one meanwhile */
    thread_of(tx)->order.deletes_keys = true;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, obj))
        return 0;
    /* It has read the whole, so that nobody else writes there, and may do so again without being asked. */
    if (opened(tx, obj, OPENED_READ))
        return thread_of(tx)->mutexes.n > 0 ? open_whole_for_key(tx, obj, key, hash) : log_contents(tx, obj);
    /* The same may be true, and forgotten; or it has read by bias, the whole or a key; or it may have made the dict, and that has
     * been forgotten. */
    if (may_have_read(tx, cell_of(obj, WHOLE)) || may_have_read_by_bias(tx, obj)
        || (thread_of(tx)->opened.forgot && obj->ob_tid == thread_of(tx)->opened.tid))
        return open_whole_for_key(tx, obj, key, hash);
    int done = order_delete_key(tx, obj, key, hash, value);
    if (done == -2)
        return open_whole_for_key(tx, obj, key, hash);
    if (done == 0)
        return log_key(tx, obj, key, hash, NULL) ? 0 : -1;
    return done;
}

static bool
dict_may_be_biased(PyObject *dict)
{
    return PyDict_CheckExact(dict) && namespace_of(dict) == NULL;
}

const struct Kind dict_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .mapping = true,
    .made_captured = true,
    .read_whole = read_whole,
    .write_whole = write_whole,
    .read_key = read_key,
    .read_item = read_item,
    .write_key = write_key,
    .visit = visit_dict,
    .may_be_biased = dict_may_be_biased,
    .contents = dict_copy_places,
    .undo = &undo_dict,
};
