/* The undo log: what an abort puts back, and how.
 *
 * Entries are logged before the write that they undo, once a cell, by the
 * transaction that owns the cell, and applied backwards while it still owns
 * it.  So at that moment the object is exactly as its own writes left it, but
 * for keys of a dict or set that others, with locks of their own, have changed.
 *
 * Order of dict keys.  Two transactions may insert keys of one dict at the
 * same time; a serial run would have them in the order of commit.  So a commit
 * moves the keys that it has inserted to the end, if others came in between, and
 * takes its turn with those that commit insertions into the same dict just now.
 * Whoever could see the order waits meanwhile: reading a whole dict excludes
 * the intention to write, and a transaction that looks at a dict into which it has
 * inserted keys itself moves these first.  Deletions own the whole dict, and a
 * rollback puts the key back where it stood.  All of this goes for attributes, too.
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
    if ((kind == UNDO_DICT_SET || kind == UNDO_ATTR) && old == NULL)
        tx->unordered++;
    Undo *u = &tx->undo[tx->n_undo++];
    *u = (Undo){kind, 0, Py_XNewRef(obj), Py_XNewRef(key), Py_XNewRef(old), NULL};
    return u;
}

/* Put a deleted key back as the n-th of the dict. */
static int
dict_insert_at(PyObject *dict, PyObject *key, PyObject *value, Py_ssize_t n)
{
    if (PyDict_Pop(dict, key, NULL) < 0)
        return -1;
    if (PyDict_GET_SIZE(dict) <= n)
        return PyDict_SetItem(dict, key, value);
    PyObject *items = PyDict_Items(dict);
    if (items == NULL)
        return -1;
    int r = 0;
    /* Only what comes after it has to move. */
    for (Py_ssize_t i = n; r == 0 && i < PyList_GET_SIZE(items); i++)
        r = PyDict_DelItem(dict, PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0));
    if (r == 0)
        r = PyDict_SetItem(dict, key, value);
    for (Py_ssize_t i = n; r == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i);
        r = PyDict_SetItem(dict, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    }
    Py_DECREF(items);
    return r;
}

/* What is about to be put out of its place may be the last reference, and no
 * finalizer may run before the rollback is over. Takes the reference. */
static void
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
        displace(tx, item_of(u->obj, u->key));
        return dict_insert_at(u->obj, u->key, u->old, u->n);
    case UNDO_DICT_ALL:
        displace(tx, PyDict_Items(u->obj));
        PyDict_Clear(u->obj);
        return PyDict_Update(u->obj, u->old);
    case UNDO_SET_ADD:
        return PySet_Discard(u->obj, u->key) < 0 ? -1 : 0;
    case UNDO_SET_DEL:
        return PySet_Add(u->obj, u->key);
    case UNDO_SET_ALL:
        displace(tx, PySet_New(u->obj));
        PySet_Clear(u->obj);
        return _PySet_Update(u->obj, u->old);
    case UNDO_LIST_LEN:
        displace(tx, PyList_GetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj)));
        return PyList_SetSlice(u->obj, u->n, PyList_GET_SIZE(u->obj), NULL);
    case UNDO_LIST_ITEM:
        displace(tx, PyList_GetItemRef(u->obj, u->n));
        return PyList_SetItem(u->obj, u->n, Py_NewRef(u->old));
    case UNDO_LIST_ALL:
        displace(tx, PyList_GetSlice(u->obj, 0, PyList_GET_SIZE(u->obj)));
        return PyList_SetSlice(u->obj, 0, PyList_GET_SIZE(u->obj), u->old);
    case UNDO_SEQ_ALL:
        if (PyByteArray_Check(u->obj))
            return restore_bytes(u->obj, u->old);
        displace(tx, PySequence_List(u->obj));
        if (call_and_drop(u->obj, "clear", NULL) < 0)
            return -1;
        return call_and_drop(u->obj, PyODict_Check(u->obj) ? "update" : "extend", u->old);
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
    case UNDO_STRUCT: {
        /* Swap: what it refers to now goes when the entry is forgotten. */
        char *body = (char *)u->obj + sizeof(PyObject);
        for (Py_ssize_t i = 0; i < u->n; i++) {
            char t = body[i];
            body[i] = ((char *)u->mem)[i];
            ((char *)u->mem)[i] = t;
        }
        return 0;
    }
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

/* Put everything back. The caller still owns all its cells. */
void
undo_rollback(Tx *tx)
{
    for (Py_ssize_t i = tx->n_undo; --i >= 0;) {
        interruptible(tx);
        if (undo_one(tx, &tx->undo[i]) < 0)
            PyErr_FormatUnraisable("tornado.stm: an aborted attempt could not undo its "
                                   "write %d to %R", (int)tx->undo[i].kind, tx->undo[i].obj);
    }
}

static int
drop_visited(PyObject *o, void *arg)
{
    (void)arg;
    Py_DECREF(o);
    return 0;
}

/* Drop the entries from this one on, and the references that they hold. */
void
undo_forget(Tx *tx, Py_ssize_t from)
{
    while (tx->n_undo > from) {
        Undo u = tx->undo[--tx->n_undo];
        if (u.kind == UNDO_STRUCT) {
            /* The snapshot owns what it refers to: let the type itself find
             * these references, in a stand-in of the object's size. */
            char *stand_in = (char *)u.mem - sizeof(PyObject);
            if (Py_TYPE(u.obj)->tp_traverse != NULL)
                Py_TYPE(u.obj)->tp_traverse((PyObject *)stand_in, drop_visited, NULL);
            PyMem_RawFree(stand_in);
        }
        else if (u.kind == UNDO_GENERATOR)
            generator_forget(&u);
        Py_XDECREF(u.old);
        Py_XDECREF(u.key);
        Py_XDECREF(u.obj);
    }
    if (from == 0)
        tx->unordered = 0;
}

/* ---- Order of inserted keys -------------------------------------------------- */

/* What keys are inserted into: a dict with storage of its own, or the values of an
 * instance, of which its dict, if it has one, is only a view. */
typedef struct {
    PyObject *dict, *instance;      /* borrowed; one of them may be NULL */
    PyDictKeysObject *keys;
    PyDictValues *values;           /* in whose order the keys are, or NULL: in their own */
} Table;

/* The table into which the entry's key has been inserted; false if it is no insertion. */
static bool
inserted_into(Undo *u, Table *t)
{
    if ((u->kind != UNDO_DICT_SET && u->kind != UNDO_ATTR) || u->old != NULL || u->n)
        return false;
    *t = (Table){NULL, NULL, NULL, NULL};
    if (u->kind == UNDO_DICT_SET)
        t->dict = u->obj;
    else {
        t->instance = u->obj;
        PyTypeObject *type = Py_TYPE(u->obj);
        if (type->tp_flags & Py_TPFLAGS_INLINE_VALUES && _PyObject_InlineValues(u->obj)->valid) {
            t->values = _PyObject_InlineValues(u->obj);
            t->keys = ((PyHeapTypeObject *)type)->ht_cached_keys;
            return true;
        }
        t->dict = PyObject_GenericGetDict(u->obj, NULL);
        PyErr_Clear();
        if (t->dict == NULL || !PyDict_Check(t->dict)) {
            Py_CLEAR(t->dict);
            return false;       /* a slot */
        }
        Py_DECREF(t->dict);     /* the instance has it */
    }
    t->keys = ((PyDictObject *)t->dict)->ma_keys;
    t->values = ((PyDictObject *)t->dict)->ma_values;
    return true;
}

static const void *
place_of(Table *t)
{
    return t->values ? (const void *)t->values : t->dict;
}

static Py_ssize_t
count_places(Table *t)
{
    return t->values ? t->values->size : t->keys->dk_nentries;
}

/* The key that stands there, or NULL where one has been deleted. */
static PyObject *
key_at(Table *t, Py_ssize_t i)
{
    if (t->values)
        return DK_UNICODE_ENTRIES(t->keys)[get_insertion_order_array(t->values)[i]].me_key;
    if (DK_IS_UNICODE(t->keys)) {
        PyDictUnicodeEntry *e = &DK_UNICODE_ENTRIES(t->keys)[i];
        return e->me_value ? e->me_key : NULL;
    }
    PyDictKeyEntry *e = &DK_ENTRIES(t->keys)[i];
    return e->me_value ? e->me_key : NULL;
}

/* Are the last keys those of these entries, in their order? The usual case. */
static bool
are_last(Table *t, Undo *u, Py_ssize_t n_undo)
{
    Py_ssize_t at = count_places(t);
    for (Py_ssize_t i = n_undo; --i >= 0;) {
        if (u[i].mem != place_of(t))
            continue;
        PyObject *last = NULL;
        while (at > 0 && (last = key_at(t, --at)) == NULL)
            ;
        if (last != u[i].key)
            return false;
    }
    return true;
}

static int
move_to_end(Table *t, PyObject *key)
{
    PyObject *value = NULL;
    int r;
    if (t->dict != NULL) {
        r = PyDict_Pop(t->dict, key, &value);
        if (r > 0)
            r = PyDict_SetItem(t->dict, key, value);
    }
    else {
        value = _PyObject_GenericGetAttrWithDict(t->instance, key, NULL, 1);
        r = value == NULL ? -1 : PyObject_GenericSetAttr(t->instance, key, NULL);
        if (r == 0)
            r = PyObject_GenericSetAttr(t->instance, key, value);
    }
    Py_XDECREF(value);
    return r;
}

/* The keys of these entries (the first of the table's, and later ones), in the order in
 * which they are in the table: that is right among them. NULL with an exception set. */
static PyObject *
inserted_in_order(Table *t, Undo *u, Py_ssize_t n_undo)
{
    PyObject *inserted = PySet_New(NULL), *keys = PyList_New(0);
    int r = inserted == NULL || keys == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < n_undo; i++) {
        if (u[i].mem == u[0].mem)
            r = PySet_Add(inserted, u[i].key);
    }
    for (Py_ssize_t i = 0; r == 0 && i < count_places(t); i++) {
        PyObject *key = key_at(t, i);
        r = key == NULL ? 0 : PySet_Contains(inserted, key);
        if (r > 0)
            r = PyList_Append(keys, key);
    }
    Py_XDECREF(inserted);
    if (r < 0)
        Py_CLEAR(keys);
    return keys;
}

/* Put the keys that this transaction has inserted in the order of commits: behind
 * those that are there already. For the table at `place`, or for all if that is NULL.
 * To be called when nobody else can insert into them, or while this one commits. */
void
order_inserted_keys(Tx *tx, const void *place)
{
    Undo *u = tx->undo;
    Py_ssize_t n = tx->n_undo;
    Table t;
    bool any = false;
    if (tx->unordered == 0)
        return;
    if (place == NULL)
        tx->unordered = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (inserted_into(&u[i], &t) && (place == NULL || place_of(&t) == place)) {
            u[i].mem = (void *)place_of(&t);
            any = true;
        }
    }
    if (!any)
        return;
    tx_pause(tx);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!inserted_into(&u[i], &t) || u[i].mem == NULL)
            continue;
        wait_for_earlier_inserters(tx, cell_of(place_of(&t), WHOLE));
        if (t.instance != NULL && t.values == NULL
            && Py_TYPE(t.instance)->tp_flags & Py_TPFLAGS_INLINE_VALUES)
            wait_for_earlier_inserters(tx, cell_of(_PyObject_InlineValues(t.instance), WHOLE));
        /* Who inserts an attribute locks the dict of the instance, if it has one. */
        PyObject *view = t.dict ? t.dict : (PyObject *)_PyObject_GetManagedDict(t.instance);
        PyObject *owner = view ? view : t.instance, *moving = NULL;
        bool ok;
        Py_BEGIN_CRITICAL_SECTION(owner);
        inserted_into(&u[i], &t);       /* it may have grown meanwhile */
        ok = are_last(&t, u + i, n - i);
        if (!ok)
            moving = inserted_in_order(&t, u + i, n - i);
        Py_END_CRITICAL_SECTION();
        for (Py_ssize_t j = 0; moving != NULL && j < PyList_GET_SIZE(moving); j++)
            ok = move_to_end(&t, PyList_GET_ITEM(moving, j)) == 0;
        Py_XDECREF(moving);
        if (!ok && PyErr_Occurred())
            PyErr_FormatUnraisable("tornado.stm: while ordering the keys of %R", owner);
        const void *at = u[i].mem;
        for (Py_ssize_t j = i; j < n; j++) {
            if (u[j].mem == at && inserted_into(&u[j], &t)) {
                u[j].n = 1;     /* in order */
                u[j].mem = NULL;
            }
        }
    }
    tx_resume(tx);
}
