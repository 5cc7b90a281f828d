/* set: its elements are locked one by one, as the keys of a dict are.
 *
 * An iterator that outlives a transaction is a number of a place, and what it has seen of the container: its size,
 * or a count of its changes.  It may go on after another transaction has changed the container and been rolled back, and must
 * not notice.  So the contents come back to the same places, and the count to the same number.
 *
 * A set is a table.  A copy of it is logged, gaps and all, and a rollback exchanges the
 * two; an element that is taken out by itself is put back into its gap.  An element
 * that makes the table grow moves all others: whoever adds it logs a copy too, and a rollback
 * goes back to that, with what others have added and taken out meanwhile.
 */
#include "access.h"
#include "dict.h"
#include "dictkeys.h"
#include "known.h"
#include "namespaces.h"

#include "internal/pycore_setobject.h"

/* ---- The table ------------------------------------------------------------------------ */

static inline bool
is_gap(const setentry *e)
{
    return e->hash == -1;
}

/* Walks the slots of the table to which a hash leads: a few in a row, then elsewhere. */
typedef struct { size_t mask, start, perturb, slot, left; } SetProbe;

enum { IN_A_ROW = 9 };

static void
set_probe_from(SetProbe *p, size_t start)
{
    p->start = p->slot = start;
    p->left = start + IN_A_ROW <= p->mask ? IN_A_ROW : 0;
}

static SetProbe
set_probe(PySetObject *set, Py_hash_t hash)
{
    SetProbe p = {.mask = (size_t)set->mask, .perturb = (size_t)hash};
    set_probe_from(&p, (size_t)hash & p.mask);
    return p;
}

static void
set_probe_next(SetProbe *p)
{
    if (p->left > 0) {
        p->left--;
        p->slot++;
        return;
    }
    p->perturb >>= 5;
    set_probe_from(p, (p->start * 5 + 1 + p->perturb) & p->mask);
}

/* Would one more element move the others? */
static bool
is_full(PySetObject *set)
{
    return (size_t)(set->fill + 1) * 5 >= (size_t)set->mask * 3;
}

/* The place of the element, which is there, or of the first gap or end that the hash leads to. Finds an element as a rollback
 * finds a key (dictkeys.c). */
static setentry *
find_element(PySetObject *set, PyObject *element, Py_hash_t hash)
{
    setentry *gap = NULL, *e;
    SetProbe p = set_probe(set, hash);
    for (; (e = &set->table[p.slot])->key != NULL; set_probe_next(&p)) {
        if (!is_gap(e) && is_same_key(e->key, e->hash, element, hash))
            return e;
        if (gap == NULL && is_gap(e))
            gap = e;
    }
    return gap ? gap : e;
}

static bool
is_element(const setentry *e)
{
    return e->key != NULL && !is_gap(e);
}

static void
fill_place(PySetObject *set, setentry *e, PyObject *element, Py_hash_t hash)
{
    if (e->key == NULL)
        set->fill++;
    e->key = Py_NewRef(element);
    e->hash = hash;
    __atomic_store_n(&set->used, set->used + 1, __ATOMIC_RELAXED);
}

/* Returns the element, and the reference that the set had. */
static PyObject *
make_gap(PySetObject *set, setentry *e)
{
    PyObject *element = e->key;
    e->key = _PySet_Dummy;
    e->hash = -1;
    __atomic_store_n(&set->used, set->used - 1, __ATOMIC_RELAXED);
    return element;
}

/* Take an element out, without code of the program. Returns it, or NULL: it is not there. */
static PyObject *
set_take(PyObject *obj, PyObject *element, Py_hash_t hash)
{
    PySetObject *set = (PySetObject *)obj;
    PyObject *taken = NULL;
    Py_BEGIN_CRITICAL_SECTION(obj);
    setentry *e = find_element(set, element, hash);
    if (is_element(e))
        taken = make_gap(set, e);
    Py_END_CRITICAL_SECTION();
    return taken;
}

/* The set, which is full and locked, gets a larger table: by objects that nothing else is equal to. They may come to lie in gaps. */
static int
make_grow(PyObject *obj)
{
    PyObject *stand_ins = PyList_New(0);
    int r = stand_ins == NULL ? -1 : 0;
    while (r == 0 && is_full((PySetObject *)obj)) {
        PyObject *stand_in = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
        r = stand_in == NULL || PyList_Append(stand_ins, stand_in) < 0 ? -1 : PySet_Add(obj, stand_in);
        Py_XDECREF(stand_in);
    }
    for (Py_ssize_t i = 0; stand_ins != NULL && i < PyList_GET_SIZE(stand_ins); i++)
        PySet_Discard(obj, PyList_GET_ITEM(stand_ins, i));
    Py_XDECREF(stand_ins);
    return r;
}

/* Put an element, which is not there, back in its place; where that is none any more, elsewhere. Without code of
 * the program. */
static int
set_put_back(PyObject *obj, PyObject *element, Py_hash_t hash, Py_ssize_t place)
{
    PySetObject *set = (PySetObject *)obj;
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(obj);
    setentry *e = NULL;
    for (SetProbe p = set_probe(set, hash); e == NULL && set->table[p.slot].key != NULL; set_probe_next(&p)) {
        if ((Py_ssize_t)p.slot == place && is_gap(&set->table[p.slot]))
            e = &set->table[p.slot];
    }
    if (e == NULL)
        e = find_element(set, element, hash);
    if (e->key == NULL && is_full(set)) {
        r = make_grow(obj);
        e = find_element(set, element, hash);
    }
    if (r == 0)
        fill_place(set, e, element, hash);
    Py_END_CRITICAL_SECTION();
    return r;
}

static bool
set_would_grow(PyObject *obj)
{
    return is_full((PySetObject *)obj);
}

/* A new set with the same table. */
static PyObject *
set_copy_places(PyObject *obj)
{
    PySetObject *set = (PySetObject *)obj, *copy = (PySetObject *)PySet_New(NULL);
    if (copy == NULL)
        return NULL;
    bool ok = true;
    Py_BEGIN_CRITICAL_SECTION(obj);
    size_t size = (size_t)set->mask + 1;
    if (set->table != set->smalltable) {
        setentry *table = PyMem_Malloc(size * sizeof(setentry));
        if (table != NULL)
            copy->table = table;
        else
            ok = false;
    }
    if (ok) {
        memcpy(copy->table, set->table, size * sizeof(setentry));
        for (size_t i = 0; i < size; i++) {
            if (!is_gap(&copy->table[i]))
                Py_XINCREF(copy->table[i].key);
        }
        copy->mask = set->mask;
        copy->fill = set->fill;
        copy->used = set->used;
        copy->finger = set->finger;
    }
    Py_END_CRITICAL_SECTION();
    if (!ok) {
        Py_DECREF(copy);
        return PyErr_NoMemory();
    }
    return (PyObject *)copy;
}

/* Exchange the tables of a set, which is locked, and of a copy that nobody else knows. */
static void
exchange_tables(PySetObject *a, PySetObject *b)
{
    PySetObject was = *a;
    bool a_small = a->table == a->smalltable, b_small = b->table == b->smalltable;
    memcpy(a->smalltable, b->smalltable, sizeof(a->smalltable));
    memcpy(b->smalltable, was.smalltable, sizeof(a->smalltable));
    a->table = b_small ? a->smalltable : b->table;
    b->table = a_small ? b->smalltable : was.table;
    a->mask = b->mask;
    b->mask = was.mask;
    a->fill = b->fill;
    b->fill = was.fill;
    a->finger = b->finger;
    b->finger = was.finger;
    __atomic_store_n(&a->used, b->used, __ATOMIC_RELAXED);
    b->used = was.used;
}

static void
set_exchange(PyObject *obj, PyObject *copy)
{
    Py_BEGIN_CRITICAL_SECTION(obj);
    exchange_tables((PySetObject *)obj, (PySetObject *)copy);
    Py_END_CRITICAL_SECTION();
}

/* Let the copy have what is in the set; false when it would have to grow. The list gets what is
 * not there any more: this is no place for finalizers. */
static bool
copy_catches_up(PySetObject *set, PySetObject *copy, PyObject *gone)
{
    for (Py_ssize_t i = 0; i <= copy->mask; i++) {
        setentry *e = &copy->table[i];
        if (!is_element(e) || find_element(set, e->key, e->hash)->key == e->key)
            continue;
        if (PyList_Append(gone, e->key) < 0) {
            PyErr_Clear();
            return false;
        }
        Py_DECREF(make_gap(copy, e));
    }
    for (Py_ssize_t i = 0; i <= set->mask; i++) {
        setentry *from = &set->table[i];
        if (!is_element(from))
            continue;
        setentry *e = find_element(copy, from->key, from->hash);
        if (e->key == from->key)
            continue;
        if (e->key == NULL && is_full(copy))
            return false;
        fill_place(copy, e, from->key, from->hash);
    }
    return true;
}

/* Go back to the places that a copy has, from before the table grew. Returns what must be
 * dropped later, or NULL. */
static PyObject *
set_shrink(PyObject *obj, PyObject *copy)
{
    PyObject *gone = PyList_New(0);
    if (gone == NULL)
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(obj);
    if (copy_catches_up((PySetObject *)obj, (PySetObject *)copy, gone))
        exchange_tables((PySetObject *)obj, (PySetObject *)copy);
    Py_END_CRITICAL_SECTION();
    return gone;
}

/* ---- Undo ----------------------------------------------------------------------------- */

static int
discard(Tx *tx, Undo *u)
{
    displace(tx, set_take(u->obj, u->key, u->hash));
    return 0;
}

static const UndoKind undo_addition = {.what = "an element", .undo = discard};

static int
put_element_back(Tx *tx, Undo *u)
{
    displace(tx, set_take(u->obj, u->key, u->hash));    /* it may have been added again */
    return set_put_back(u->obj, u->key, u->hash, u->n);
}

static const UndoKind undo_removal = {.what = "an element", .undo = put_element_back};

static int
put_contents_back(Tx *tx, Undo *u)
{
    set_exchange(u->obj, u->old);
    displace(tx, Py_NewRef(u->old));
    return 0;
}

static const UndoKind undo_set = {.what = "all", .undo = put_contents_back};

static int
put_table_back(Tx *tx, Undo *u)
{
    displace(tx, set_shrink(u->obj, u->old));
    displace(tx, Py_NewRef(u->old));
    return 0;
}

static const UndoKind undo_growth = {.what = "the table", .undo = put_table_back};

/* ---- Opening -------------------------------------------------------------------------- */

static int
read_whole(Tx *tx, PyObject *set)
{
    return lock_whole_read(tx, set, lock_shared_container);
}

/* A set that is looked for as a frozenset. */
static int
open_key(Tx *tx, PyObject *key)
{
    return UNLIKELY(may_be_set_as_key(key)) && PyAnySet_Check(key) ? open_whole_read(tx, key) : 0;
}

static int
read_element(Tx *tx, PyObject *set, PyObject *key)
{
    Py_hash_t hash;
    if (open_key(tx, key) < 0)
        return -1;
    int open = is_open_for_keys(tx, set);
    if (open != 0)
        return open < 0 ? -1 : 0;
    int h = hash_of(key, &hash);
    if (h == 0 && PyAnySet_Check(key))
        return open_whole_read(tx, set);    /* taken for a frozenset */
    return h <= 0 ? h : lock_key_shared(tx, set, cell_of(set, key_bits(hash)));
}

/* The place of this very element, or -1. */
static Py_ssize_t
set_place(PyObject *obj, PyObject *element, Py_hash_t hash)
{
    PySetObject *set = (PySetObject *)obj;
    Py_ssize_t place = -1;
    Py_BEGIN_CRITICAL_SECTION(obj);
    setentry *e = find_element(set, element, hash);
    if (e->key == element)
        place = e - set->table;
    Py_END_CRITICAL_SECTION();
    return place;
}

/* The element that is there, and equal to the key: 1 for 1.0. A new reference; NULL with an exception. */
static PyObject *
element_of(PyObject *obj, PyObject *key, Py_hash_t hash)
{
    PySetObject *set = (PySetObject *)obj;
    PyObject *found = NULL, *others = NULL;
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(obj);
    setentry *e = find_element(set, key, hash);
    if (is_element(e))
        found = Py_NewRef(e->key);
    else if ((others = PyList_New(0)) == NULL)
        r = -1;
    for (SetProbe p = set_probe(set, hash); others != NULL && r == 0 && (e = &set->table[p.slot])->key != NULL; set_probe_next(&p)) {
        if (!is_gap(e) && e->hash == hash)
            r = PyList_Append(others, e->key);
    }
    Py_END_CRITICAL_SECTION();
    if (r == 0 && found == NULL)
        found = equal_key(others, key);
    Py_XDECREF(others);
    return found;
}

int
log_element(Tx *tx, PyObject *set, PyObject *key, Py_hash_t hash, bool there)
{
    PyObject *element = there ? element_of(set, key, hash) : Py_NewRef(key);
    Undo *u = element == NULL ? NULL
        : undo_push_key(tx, there ? &undo_removal : &undo_addition, set, element, hash, NULL);
    if (u != NULL)
        u->n = there ? set_place(set, element, hash) : -1;
    Py_XDECREF(element);
    return u == NULL ? -1 : 0;
}

int
open_set_change(Tx *tx, PyObject *set, PyObject *key)
{
    Py_hash_t hash;
    if (open_key(tx, key) < 0)
        return -1;
    if (captured(tx, set) || opened(tx, set, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, set) != &set_kind)
        return open_whole_write(tx, set);
    int h = hash_of(key, &hash);
    if (h == 0 && PyAnySet_Check(key))
        return open_whole_write(tx, set);   /* taken for a frozenset */
    if (h <= 0)
        return h;
    bool first;
    if (lock_intent_write(tx, cell_of(set, WHOLE)) < 0
        || lock_exclusive(tx, cell_of(set, key_bits(hash)), &first) < 0 || bias_revoke(tx, set) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, set))
        return 0;
    int there = PySet_Contains(set, key);
    if (there < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    bool grows = !there && set_would_grow(set);
    if (grows) {
        PyObject *copy = set_copy_places(set);
        Undo *u = copy == NULL ? NULL : undo_push(tx, &undo_growth, set, NULL, copy);
        Py_XDECREF(copy);
        if (u == NULL)
            return -1;
    }
    /* What is put in after others have been taken out may take a place of theirs, and what makes it grow goes before that is undone. */
    bool moves = grows || (!there && thread_of(tx)->order.deletes_keys);
    if (!first && !moves && key_is_logged(tx, set, key, hash))
        return 0;
    thread_of(tx)->order.deletes_keys |= there;
    return log_element(tx, set, key, hash, there);
}

static int
write_element(Tx *tx, PyObject *set, PyObject *key, bool Py_UNUSED(del))
{
    return open_set_change(tx, set, key);
}

static bool
set_may_be_biased(PyObject *set)
{
    return PySet_CheckExact(set);
}

const struct Kind set_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .made_captured = true,
    .read_whole = read_whole,
    .write_whole = lock_container_write,
    .read_key = read_element,
    .write_key = write_element,
    .may_be_biased = set_may_be_biased,
    .contents = set_copy_places,
    .undo = &undo_set,
};
