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
 * entries.  So the engine itself deletes the key, before the instruction or call
 * that was to do it and has nothing left to do then, and leaves a placeholder: a key
 * that no program has, in the place of the deleted one.  A rollback exchanges the
 * two again; a commit drops the placeholder, and the dict is as a deletion leaves it.
 *
 * Nobody sees any of this.  All of it happens while the transaction has the
 * intention to write in the dict, which excludes those who read or write the whole,
 * and so the order and the number of keys.  The transaction itself may come to read
 * the whole of a dict in which it has placeholders: then it takes them out, having
 * logged the contents with them, and a rollback begins by putting those back
 * at once (others may be looking up keys).  One that has become exclusive is not
 * rolled back any more and needs no placeholders.
 */
#include "order.h"

#include "../thread.h"
#include "access.h"
#include "attributes.h"
#include "dict.h"
#include "dictkeys.h"
#include "instance.h"
#include "namespaces.h"

#include "internal/pycore_dict.h"

static inline KeyOrder *
order_of(Tx *tx)
{
    return &thread_of(tx)->order;
}

/* ---- Where in the undo log keys are --------------------------------------------- */

static unsigned
bucket_of(const void *place)
{
    return (unsigned)((uintptr_t)place * 0x9E3779B97F4A7C15ull >> 32) % ORDER_BUCKETS;
}

static int
make_room(KeyNotes *notes)
{
    if (LIKELY(notes->n < notes->cap))
        return 0;
    Py_ssize_t cap = notes->cap ? 2 * notes->cap : 64;
    Noted *more = PyMem_RawRealloc(notes->noted, cap * sizeof(*more));
    if (more == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    notes->noted = more;
    notes->cap = cap;
    return 0;
}

/* The last entry of the log belongs there, where there is room. */
static void
note_key(Tx *tx, KeyNotes *notes, unsigned bucket, bool attribute)
{
    notes->noted[notes->n++] = (Noted){tx->undo.n - 1, notes->last[bucket] - 1, notes->last_attribute - 1, bucket};
    notes->last[bucket] = (int)notes->n;
    if (attribute)
        notes->last_attribute = (int)notes->n;
}

/* ---- Placeholders ------------------------------------------------------------- */

/* The next placeholder of this transaction, unlike those of all others that run. */
static PyObject *
next_placeholder(Tx *tx)
{
    if (order_of(tx)->placeholders == NULL && (order_of(tx)->placeholders = PyList_New(0)) == NULL)
        return NULL;
    if (order_of(tx)->n_placeholders == PyList_GET_SIZE(order_of(tx)->placeholders)) {
        PyObject *name = PyUnicode_FromFormat("%c tornado.stm: place %d of thread %d", 0,
                                              (int)order_of(tx)->n_placeholders, tx->slot);
        int r = name == NULL ? -1 : PyList_Append(order_of(tx)->placeholders, name);
        Py_XDECREF(name);
        if (r < 0)
            return NULL;
    }
    return PyList_GET_ITEM(order_of(tx)->placeholders, order_of(tx)->n_placeholders++);
}

/* Put a deleted key back in its place. */
static int
restore_place(Tx *tx, Undo *u)
{
    PyObject *now = NULL;
    int r = dict_take(u->obj, u->key, u->hash, &now);
    displace(tx, now);
    return r < 0 ? -1 : dict_unhide(u->obj, u->mem, u->n, u->key, u->hash, u->old);
}

static const UndoKind undo_deletion = {.what = "a deleted key", .undo = restore_place};

/* Delete the key, which this transaction owns, and keep its place. Returns 1 with a new
 * reference to its value; 0 if it is not there; -1 with an exception; -2 if that cannot be done so. */
int
order_delete_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value)
{
    if (make_room(&order_of(tx)->deleted) < 0)
        return -1;
    PyObject *placeholder = next_placeholder(tx), *actual;
    Py_ssize_t place;
    if (placeholder == NULL)
        return -1;
    int there = dict_hide(dict, key, hash, placeholder, &actual, value, &place);
    if (there <= 0) {
        order_of(tx)->n_placeholders--;
        return there < 0 ? -2 : 0;
    }
    Undo *u = undo_push_key(tx, &undo_deletion, dict, actual, hash, *value);
    if (u == NULL) {
        if (dict_unhide(dict, placeholder, place, actual, hash, *value) == 0)
            order_of(tx)->n_placeholders--;
        Py_DECREF(actual);
        Py_CLEAR(*value);
        return -1;
    }
    Py_DECREF(actual);
    u->n = place;
    u->mem = placeholder;       /* borrowed: lives as long as the thread's descriptor */
    note_key(tx, &order_of(tx)->deleted, bucket_of(dict), false);
    return 1;
}

static int
drop_placeholder(Undo *u)
{
    return dict_drop_placeholder(u->obj, u->mem, u->n);
}

/* There will be no rollback: drop the placeholders. */
void
order_drop_placeholders(Tx *tx)
{
    KeyNotes *deleted = &order_of(tx)->deleted;
    for (Py_ssize_t i = 0; i < deleted->n; i++) {
        if (drop_placeholder(&tx->undo.entries[deleted->noted[i].entry]) < 0)
            PyErr_FormatUnraisable("tornado.stm: while dropping the place of a key");
    }
    key_notes_clear(deleted);
    order_of(tx)->n_placeholders = 0;
}

/* Of the deletions that are noted from there on, in its bucket, the first one from the dict. */
static Undo *
deletion_from(Tx *tx, PyObject *dict, Py_ssize_t *at)
{
    while (*at >= 0) {
        const Noted *noted = &order_of(tx)->deleted.noted[*at];
        *at = noted->before;
        if (tx->undo.entries[noted->entry].obj == dict)
            return &tx->undo.entries[noted->entry];
    }
    return NULL;
}

/* The transaction, which excludes all others that write in the dict, is about to read or
 * to change the whole. Returns 1 if it had placeholders there, and so has logged the contents. */
int
order_hide_placeholders(Tx *tx, PyObject *dict)
{
    const Py_ssize_t last = order_of(tx)->deleted.last[bucket_of(dict)] - 1;
    Py_ssize_t at = last;
    if (deletion_from(tx, dict, &at) == NULL)
        return 0;
    PyObject *copy = dict_copy_places(dict);
    Undo *u = NULL;
    if (copy != NULL)
        u = undo_push(tx, &undo_dict, dict, NULL, copy);
    Py_XDECREF(copy);
    if (u == NULL)
        return -1;
    at = last;
    while ((u = deletion_from(tx, dict, &at)) != NULL) {
        if (drop_placeholder(u) < 0)
            return -1;
    }
    return 1;
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
    if ((u->kind != &undo_key && u->kind != &undo_attr) || u->old != NULL || u->n)
        return false;
    *t = (Table){NULL, NULL, NULL, NULL};
    if (u->kind == &undo_key)
        t->dict = u->obj;
    else {
        t->instance = u->obj;
        PyTypeObject *type = Py_TYPE(u->obj);
        if (type->tp_flags & Py_TPFLAGS_INLINE_VALUES && _PyObject_InlineValues(u->obj)->valid) {
            t->values = _PyObject_InlineValues(u->obj);
            t->keys = ((PyHeapTypeObject *)type)->ht_cached_keys;
            return true;
        }
        t->dict = can_have_dict(type) ? own_dict(u->obj) : NULL;
        if (t->dict == NULL)
            return false;       /* a slot */
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

/* The cell on which whoever inserts into it has the intention. */
static Cell
whole_of(Table *t)
{
    const void *base = t->dict ? namespace_of(t->dict) : t->values;
    return cell_of(base ? base : t->dict, WHOLE);
}

/* A key may be about to be inserted. While this transaction has all of the dict locked nobody else
 * inserts, and it comes to stand where it belongs at once: behind it, the transaction may
 * put keys without a log of them.  -1 without memory. */
int
order_logged(Tx *tx, Undo *u)
{
    Table t;
    if (!inserted_into(u, &t)) {
        u->n |= u->kind == &undo_attr && u->old == NULL;    /* a slot: nobody need find that out again */
        return 0;
    }
    if (holds_whole(tx, whole_of(&t))) {
        u->n = 1;
        return 0;
    }
    if (make_room(&order_of(tx)->inserted) < 0)
        return -1;
    bool attribute = u->kind == &undo_attr;
    note_key(tx, &order_of(tx)->inserted, !attribute ? bucket_of(u->obj) : t.values ? bucket_of(t.values) : ORDER_BUCKETS, attribute);
    return 0;
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

/* An entry of the undo log that is of an inserted key, and where that went: into which table, and, when that is known, where there. */
typedef struct { const void *place; Undo *entry; Py_ssize_t at; } Insertion;

/* Those into one place together, in the order of the log. */
static int
by_place(const void *a, const void *b)
{
    const Insertion *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Are the last keys those of these insertions, in their order? The usual case. */
static bool
are_last(Table *t, const Insertion *in, Py_ssize_t n)
{
    Py_ssize_t at = count_places(t);
    for (Py_ssize_t i = n; --i >= 0;) {
        PyObject *last = NULL;
        while (at > 0 && (last = key_at(t, --at)) == NULL)
            ;
        if (last != in[i].entry->key)
            return false;
    }
    return true;
}

static Py_hash_t
hash_in(Undo *u)
{
    return u->kind == &undo_key ? u->hash : PyObject_Hash(u->key);      /* of a name */
}

static int
move_to_end(Table *t, Undo *u)
{
    PyObject *value = NULL, *none = NULL;
    int r;
    if (t->dict != NULL) {
        r = dict_take(t->dict, u->key, hash_in(u), &value);
        if (r > 0)
            r = dict_put(t->dict, u->key, hash_in(u), value, &none);
    }
    else {
        value = _PyObject_GenericGetAttrWithDict(t->instance, u->key, NULL, 1);
        r = value == NULL ? -1 : PyObject_GenericSetAttr(t->instance, u->key, NULL);
        if (r == 0)
            r = PyObject_GenericSetAttr(t->instance, u->key, value);
    }
    Py_XDECREF(value);
    return r;
}

/* Where in the table's order the key is; -1 if it is not there any more. */
static Py_ssize_t
place_in(Table *t, Undo *u)
{
    if (t->values == NULL)
        return dict_entry(t->dict, u->key, hash_in(u));
    for (Py_ssize_t i = 0; i < t->values->size; i++) {
        if (PyUnicode_Equal(key_at(t, i), u->key))
            return i;
    }
    return -1;
}

static int
by_order(const void *a, const void *b)
{
    const Insertion *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Put the insertions in the order in which their keys are in the table: that is right among them. */
static void
as_in_table(Table *t, Insertion *in, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        in[i].at = place_in(t, in[i].entry);
    qsort(in, n, sizeof(*in), by_order);
}

/* Put these keys, which went into one table, behind those that are there already. */
static void
order_insertions(Tx *tx, Insertion *in, Py_ssize_t n)
{
    Table t;
    if (!inserted_into(in->entry, &t))
        return;
    wait_for_earlier_inserters(tx, whole_of(&t));
    if (t.instance != NULL && t.dict != NULL && Py_TYPE(t.instance)->tp_flags & Py_TPFLAGS_INLINE_VALUES)
        wait_for_earlier_inserters(tx, cell_of(_PyObject_InlineValues(t.instance), WHOLE));
    /* Who inserts an attribute locks the dict of the instance, if it has one. */
    PyObject *view = t.dict ? t.dict : (PyObject *)_PyObject_GetManagedDict(t.instance);
    PyObject *owner = view ? view : t.instance;
    bool ok;
    Py_BEGIN_CRITICAL_SECTION(owner);
    inserted_into(in->entry, &t);       /* it may have grown meanwhile */
    ok = are_last(&t, in, n);
    if (!ok)
        as_in_table(&t, in, n);
    Py_END_CRITICAL_SECTION();
    for (Py_ssize_t i = 0; !ok && i < n; i++) {
        if (in[i].at >= 0 && move_to_end(&t, in[i].entry) < 0)
            PyErr_FormatUnraisable("tornado.stm: while ordering the keys of %T", owner);
    }
    for (Py_ssize_t i = 0; i < n; i++)
        in[i].entry->n = 1;             /* in order */
}

/* Insertions that have been found: all, or, without memory, as many as there has been room for, and they are put in order one by one. */
typedef struct { Insertion *in; Py_ssize_t n, room; bool one_by_one; } Found;

/* If the entry is an insertion into the table at `place`, or into any if that is NULL. */
static void
find(Found *found, Undo *u, const void *place)
{
    Table t;
    if (found->one_by_one || !inserted_into(u, &t) || (place != NULL && place_of(&t) != place))
        return;
    if (found->n == found->room) {
        Py_ssize_t room = found->room ? 2 * found->room : 16;
        Insertion *more = PyMem_RawRealloc(found->in, room * sizeof(*found->in));
        if (more == NULL) {
            found->one_by_one = true;
            return;
        }
        found->in = more;
        found->room = room;
    }
    found->in[found->n++] = (Insertion){place_of(&t), u, -1};
}

/* Each by itself goes to the end, unless it is there, in the order in which they were inserted: more work, and no memory. */
static void
order_one_by_one(Tx *tx, const void *place)
{
    const KeyNotes *inserted = &order_of(tx)->inserted;
    for (Py_ssize_t i = 0; i < inserted->n; i++) {
        Undo *u = &tx->undo.entries[inserted->noted[i].entry];
        Table t;
        if (inserted_into(u, &t) && (place == NULL || place_of(&t) == place))
            order_insertions(tx, &(Insertion){place_of(&t), u, -1}, 1);
    }
}

/* Put them in the order of commits, table by table: those that have been found, of this place or, if it is NULL, of all. */
static void
order_found(Tx *tx, Found *found, const void *place)
{
    if (found->n == 0 && !found->one_by_one)
        return;
    tx_pause(tx);
    if (UNLIKELY(found->one_by_one)) {
        order_one_by_one(tx, place);
        found->n = 0;
    }
    qsort(found->in, found->n, sizeof(*found->in), by_place);
    for (Py_ssize_t from = 0, to; from < found->n; from = to) {
        for (to = from + 1; to < found->n && found->in[to].place == found->in[from].place; to++)
            ;
        order_insertions(tx, found->in + from, to - from);
    }
    tx_resume(tx);
    PyMem_RawFree(found->in);
}

/* Of one bucket, those that are attributes, or the others. */
static void
find_in_bucket(Tx *tx, Found *found, unsigned bucket, bool attributes, const void *place)
{
    const KeyNotes *inserted = &order_of(tx)->inserted;
    for (Py_ssize_t i = inserted->last[bucket] - 1; i >= 0; i = inserted->noted[i].before) {
        Undo *u = &tx->undo.entries[inserted->noted[i].entry];
        if ((u->kind == &undo_attr) == attributes)
            find(found, u, place);
    }
}

/* Put the keys that this transaction has inserted into the dict in the order of commits: behind those that are there already.  To be called
 * when nobody else can insert into it. */
void
order_inserted_items(Tx *tx, PyObject *dict)
{
    const KeyNotes *inserted = &order_of(tx)->inserted;
    Found found = {0};
    const PyDictValues *values = ((PyDictObject *)dict)->ma_values;
    const void *place = values ? (const void *)values : dict, *base = namespace_of(dict);
    find_in_bucket(tx, &found, bucket_of(dict), false, place);
    if (base != NULL && base != dict) {     /* the values of an instance, also if what is in them has come here */
        find_in_bucket(tx, &found, bucket_of(base), true, place);
        find_in_bucket(tx, &found, ORDER_BUCKETS, true, place);
    }
    else {
        for (Py_ssize_t i = inserted->last_attribute - 1; i >= 0; i = inserted->noted[i].attribute_before)
            find(&found, &tx->undo.entries[inserted->noted[i].entry], place);
    }
    order_found(tx, &found, place);
}

/* The same of all: this transaction commits. */
void
order_inserted_keys(Tx *tx)
{
    KeyNotes *inserted = &order_of(tx)->inserted;
    Found found = {0};
    for (Py_ssize_t i = 0; i < inserted->n; i++)
        find(&found, &tx->undo.entries[inserted->noted[i].entry], NULL);
    order_found(tx, &found, NULL);
    key_notes_clear(inserted);
}
