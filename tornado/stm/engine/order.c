/* The order of the keys of a dict, which a serial run would have.
 *
 * Insertions.  Two transactions may insert keys of one dict at the same time; a
 * serial run would have them in the order of commit.  So a commit moves the keys
 * that it has inserted to the end, if others came in between, and takes its turn
 * with those that commit insertions into the same dict just now.  A transaction
 * that looks at a dict into which it has inserted keys itself moves these first.
 * The same goes for attributes.
 *
 * Deletions.  A key that a rollback puts back has to stand where it stood, while
 * others insert and delete keys around it, and the dict may have moved all of its
 * entries.  So a deletion leaves a placeholder: a key that no program has, in the
 * place of the deleted one.  A rollback exchanges the two and drops the
 * placeholder; a commit just drops it.
 *
 * Nobody sees any of this.  All of it happens while the transaction has the
 * intention to write in the dict, which excludes those who read or write the whole,
 * and so the order and the number of keys.  The transaction itself may come to read
 * the whole of a dict in which it has placeholders: then it takes them out, having
 * logged the contents with them, and a rollback begins by putting those back
 * at once (others may be looking up keys).  One that has become exclusive is not
 * rolled back any more and needs no placeholders.
 */
#include "stm.h"

#include "internal/pycore_dict.h"

/* ---- Placeholders ------------------------------------------------------------- */

/* The next placeholder of this transaction, unlike those of all others that run. */
static PyObject *
next_placeholder(Tx *tx)
{
    if (tx->placeholders == NULL && (tx->placeholders = PyList_New(0)) == NULL)
        return NULL;
    if (tx->n_placeholders == PyList_GET_SIZE(tx->placeholders)) {
        PyObject *name = PyUnicode_FromFormat("%c tornado.stm: place %d of thread %d", 0,
                                              (int)tx->n_placeholders, tx->slot);
        int r = name == NULL ? -1 : PyList_Append(tx->placeholders, name);
        Py_XDECREF(name);
        if (r < 0)
            return NULL;
    }
    return PyList_GET_ITEM(tx->placeholders, tx->n_placeholders++);
}

/* Before the transaction deletes the key, which the dict has as this very object, and
 * which it owns: log that, and see to it that the place is kept. */
int
order_keep_place(Tx *tx, PyObject *dict, PyObject *key, PyObject *value)
{
    Py_hash_t hash = PyObject_Hash(key);
    PyObject *placeholder = next_placeholder(tx);
    if (placeholder == NULL || (hash == -1 && PyErr_Occurred()))
        return -1;
    Undo *u = undo_push(tx, UNDO_DICT_DEL, dict, key, value);
    if (u == NULL)
        return -1;
    u->n = hash;
    u->mem = placeholder;       /* borrowed: lives as long as the thread's descriptor */
    int r;
    Py_BEGIN_CRITICAL_SECTION(dict);
    r = PyDict_SetItem(dict, placeholder, Py_None);
    if (r == 0 && !dict_swap_places(dict, key, hash, placeholder, PyObject_Hash(placeholder)))
        r = PyDict_Pop(dict, placeholder, NULL) < 0 ? -1 : 1;
    Py_END_CRITICAL_SECTION();
    if (r == 0)
        return 0;
    /* It is not there any more: nobody else could take it out. */
    tx->n_undo--;
    Py_DECREF(u->obj);
    Py_DECREF(u->key);
    Py_DECREF(u->old);
    return r < 0 ? -1 : 0;
}

/* Put a deleted key back in its place. */
int
order_restore_place(Tx *tx, Undo *u)
{
    PyObject *now = NULL;
    int r;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    r = PyDict_Pop(u->obj, u->key, &now) < 0 ? -1 : PyDict_SetItem(u->obj, u->key, u->old);
    if (r == 0)
        dict_swap_places(u->obj, u->key, u->n, u->mem, PyObject_Hash(u->mem));
    if (PyDict_Pop(u->obj, u->mem, NULL) < 0)
        r = -1;
    Py_END_CRITICAL_SECTION();
    displace(tx, now);
    return r;
}

/* Was this logged before the insertion of a key? (Or before a deletion of a key that was
 * not there.) */
static bool
inserts(Undo *u)
{
    return u->kind == UNDO_DICT_SET && u->old == NULL;
}

/* Has the key been inserted again after it was deleted? */
static bool
inserted_after(Tx *tx, Py_ssize_t i)
{
    for (Py_ssize_t j = i + 1; j < tx->n_undo; j++) {
        Undo *u = &tx->undo[j];
        if (inserts(u) && u->obj == tx->undo[i].obj
            && (u->key == tx->undo[i].key || PyObject_Hash(u->key) == tx->undo[i].n))
            return true;
    }
    return false;
}

/* Drop the placeholder that the undo entry has, if it is there. */
static void
drop_placeholder(Tx *tx, Py_ssize_t i)
{
    Undo *u = &tx->undo[i];
    PyObject *now = NULL;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    /* The deletion that the place was kept for may not have come about: a __delitem__
     * that does something else, a comparison that raised. */
    if (UNLIKELY(PyDict_GetItemRef(u->obj, u->key, &now) == 1 && !inserted_after(tx, i)))
        dict_swap_places(u->obj, u->key, u->n, u->mem, PyObject_Hash(u->mem));
    if (PyDict_Pop(u->obj, u->mem, NULL) < 0)
        PyErr_FormatUnraisable("tornado.stm: while dropping the place of a key");
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(now);
    PyErr_Clear();
}

/* There will be no rollback: drop the placeholders. */
void
order_drop_placeholders(Tx *tx)
{
    for (Py_ssize_t i = 0; tx->n_placeholders > 0 && i < tx->n_undo; i++) {
        if (tx->undo[i].kind == UNDO_DICT_DEL)
            drop_placeholder(tx, i);
    }
    tx->n_placeholders = 0;
}

/* The transaction, which excludes all others that write in the dict, is about to read or
 * to change the whole. Returns 1 if it had placeholders there, and so has logged the contents. */
int
order_hide_placeholders(Tx *tx, PyObject *dict)
{
    bool found = false;
    for (Py_ssize_t i = 0; i < tx->n_undo && !found && tx->n_placeholders > 0; i++)
        found = tx->undo[i].kind == UNDO_DICT_DEL && tx->undo[i].obj == dict;
    if (!found)
        return 0;
    PyObject *copy = PyDict_New();
    Undo *u = NULL;
    if (copy != NULL && PyDict_Update(copy, dict) == 0)
        u = undo_push(tx, UNDO_DICT_ALL, dict, NULL, copy);
    Py_XDECREF(copy);
    if (u == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < tx->n_undo; i++) {
        if (tx->undo[i].kind == UNDO_DICT_DEL && tx->undo[i].obj == dict)
            drop_placeholder(tx, i);
    }
    return 1;
}

/* Put all contents back, at once for those who look up keys. */
int
order_restore_all(Tx *tx, Undo *u)
{
    if (!dict_exchange(u->obj, u->old)) {
        displace(tx, PyDict_Items(u->obj));
        PyDict_Clear(u->obj);
        return PyDict_Update(u->obj, u->old);
    }
    displace(tx, PyDict_Items(u->old));
    PyDict_Clear(u->old);
    return 0;
}

/* ---- Inserted keys -------------------------------------------------------------- */

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
