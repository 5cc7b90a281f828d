/* Iterators know places: what a rollback puts back must lie where it lay.
 *
 * An iterator that outlives a transaction is a number of a place, and what it
 * has seen of the container: its size, or a count of its changes.  It may go on after
 * another transaction has changed the container and been rolled back, and
 * must not notice.  So the contents come back to the same places, and the count to the
 * same number.  (Of dicts: dictkeys.c.)
 *
 * A set is a table.  A copy of it is logged, gaps and all, and a rollback exchanges the
 * two; an element that is taken out by itself is put back into its gap.  An element
 * that makes the table grow moves all others: whoever adds it logs a copy too, and a rollback
 * goes back to that, with what others have added and taken out meanwhile.
 *
 * A deque is a chain of blocks, and an iterator points into one of them.  Its places
 * are logged when a transaction first changes it, and are the last that is put back:
 * what the items are has been undone before, and now they move into the blocks
 * in which they were.  The deque keeps blocks that it does not need, up to sixteen.
 * Where one has been freed nevertheless, nothing is moved and the count stays: the
 * iterator complains of a change, as it does of any.
 *
 * An OrderedDict looks its keys up; only its count is put back.
 */
#include "stm.h"

#include "internal/pycore_setobject.h"

/* ---- Sets ------------------------------------------------------------------------ */

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

/* The place of this very element, or -1. */
Py_ssize_t
set_place(PyObject *obj, PyObject *element, Py_hash_t hash)
{
    PySetObject *set = (PySetObject *)obj;
    Py_ssize_t place = -1;
    Py_BEGIN_CRITICAL_SECTION(obj);
    for (SetProbe p = set_probe(set, hash); place < 0 && set->table[p.slot].key != NULL; set_probe_next(&p)) {
        if (set->table[p.slot].key == element)
            place = (Py_ssize_t)p.slot;
    }
    Py_END_CRITICAL_SECTION();
    return place;
}

/* Put an element back in its place; where that is none any more, elsewhere. */
int
set_put_back(PyObject *obj, PyObject *element, Py_ssize_t place)
{
    PySetObject *set = (PySetObject *)obj;
    Py_hash_t hash = PyObject_Hash(element);
    bool done = false;
    if (hash == -1 || PySet_Discard(obj, element) < 0)
        return -1;
    Py_BEGIN_CRITICAL_SECTION(obj);
    for (SetProbe p = set_probe(set, hash); !done && set->table[p.slot].key != NULL; set_probe_next(&p)) {
        setentry *e = &set->table[p.slot];
        if ((Py_ssize_t)p.slot != place || !is_gap(e))
            continue;
        e->key = Py_NewRef(element);
        e->hash = hash;
        __atomic_store_n(&set->used, set->used + 1, __ATOMIC_RELAXED);
        done = true;
    }
    Py_END_CRITICAL_SECTION();
    return done ? 0 : PySet_Add(obj, element);
}

/* Would one more element move the others? */
static bool
is_full(PySetObject *set)
{
    return (size_t)(set->fill + 1) * 5 >= (size_t)set->mask * 3;
}

bool
set_would_grow(PyObject *obj)
{
    return is_full((PySetObject *)obj);
}

/* A new set with the same table. */
PyObject *
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

void
set_exchange(PyObject *obj, PyObject *copy)
{
    Py_BEGIN_CRITICAL_SECTION(obj);
    exchange_tables((PySetObject *)obj, (PySetObject *)copy);
    Py_END_CRITICAL_SECTION();
}

/* The first gap or the end of the elements to which the hash leads, or where this very
 * element is. */
static setentry *
find_element(PySetObject *set, PyObject *element, Py_hash_t hash)
{
    setentry *gap = NULL, *e;
    SetProbe p = set_probe(set, hash);
    for (; (e = &set->table[p.slot])->key != NULL; set_probe_next(&p)) {
        if (e->key == element)
            return e;
        if (gap == NULL && is_gap(e))
            gap = e;
    }
    return gap ? gap : e;
}

/* Let the copy have what is in the set; false when it would have to grow. The list gets what is
 * not there any more: this is no place for finalizers. */
static bool
copy_catches_up(PySetObject *set, PySetObject *copy, PyObject *gone)
{
    for (Py_ssize_t i = 0; i <= copy->mask; i++) {
        setentry *e = &copy->table[i];
        if (e->key == NULL || is_gap(e) || find_element(set, e->key, e->hash)->key == e->key)
            continue;
        if (PyList_Append(gone, e->key) < 0) {
            PyErr_Clear();
            return false;
        }
        PyObject *element = e->key;
        e->key = _PySet_Dummy;
        e->hash = -1;
        copy->used--;
        Py_DECREF(element);
    }
    for (Py_ssize_t i = 0; i <= set->mask; i++) {
        setentry *from = &set->table[i];
        if (from->key == NULL || is_gap(from))
            continue;
        setentry *e = find_element(copy, from->key, from->hash);
        if (e->key == from->key)
            continue;
        if (e->key == NULL) {
            if (is_full(copy))
                return false;
            copy->fill++;
        }
        e->key = Py_NewRef(from->key);
        e->hash = from->hash;
        copy->used++;
    }
    return true;
}

/* Go back to the places that a copy has, from before the table grew. Returns what must be
 * dropped later, or NULL. */
PyObject *
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

/* ---- OrderedDict -------------------------------------------------------------------- */

typedef struct {
    PyDictObject dict;
    void *first, *last, **nodes;
    Py_ssize_t size;
    void *sentinel;
    size_t changes;
    PyObject *attributes, *weakrefs;
} OrderedDict;

Py_ssize_t
odict_changes(PyObject *od)
{
    return PyODict_Type.tp_basicsize == sizeof(OrderedDict) ? (Py_ssize_t)((OrderedDict *)od)->changes : 0;
}

void
odict_restore_changes(PyObject *od, Py_ssize_t changes)
{
    if (PyODict_Type.tp_basicsize == sizeof(OrderedDict))
        ((OrderedDict *)od)->changes = (size_t)changes;
}

/* ---- Deques --------------------------------------------------------------------------- */

enum { IN_BLOCK = 64, FREE_BLOCKS = 16 };

typedef struct Block {
    struct Block *left;
    PyObject *items[IN_BLOCK];
    struct Block *right;
} Block;

typedef struct {
    PyObject_VAR_HEAD
    Block *left, *right;
    Py_ssize_t first, last;     /* where the items begin in the left block, and end in the right one */
    size_t changes;
    Py_ssize_t maxlen, n_free;
    Block *free[FREE_BLOCKS];
    PyObject *weakrefs;
} Deque;

typedef struct {
    Py_ssize_t size, first, last;
    size_t changes;
    Py_ssize_t n_blocks;
    Block *blocks[];
} DequePlaces;

static Deque *
as_deque(PyObject *obj)
{
    return c_base(Py_TYPE(obj))->tp_basicsize == sizeof(Deque) ? (Deque *)obj : NULL;
}

static Py_ssize_t
count_blocks(Deque *d)
{
    Py_ssize_t n = 1;
    for (Block *b = d->left; b != d->right; b = b->right)
        n++;
    return n;
}

/* Note where the items are. A new reference to bytes; NULL with an exception. */
PyObject *
deque_places(PyObject *obj)
{
    Deque *d = as_deque(obj);
    PyObject *places;
    if (d == NULL)
        return PyBytes_FromString("");
    Py_BEGIN_CRITICAL_SECTION(obj);
    Py_ssize_t n = count_blocks(d);
    places = PyBytes_FromStringAndSize(NULL, sizeof(DequePlaces) + n * sizeof(Block *));
    if (places != NULL) {
        DequePlaces *p = (DequePlaces *)PyBytes_AS_STRING(places);
        *p = (DequePlaces){Py_SIZE(d), d->first, d->last, d->changes, n};
        Block *b = d->left;
        for (Py_ssize_t i = 0; i < n; i++, b = b->right)
            p->blocks[i] = b;
        /* Whatever the transaction does, these blocks are not to be freed. */
        while (d->n_free > 0 && d->n_free + n > FREE_BLOCKS)
            PyMem_Free(d->free[--d->n_free]);
    }
    Py_END_CRITICAL_SECTION();
    return places;
}

static bool
are_in_place(Deque *d, const DequePlaces *p)
{
    if (d->first != p->first || d->last != p->last || d->right != p->blocks[p->n_blocks - 1])
        return false;
    Block *b = d->left;
    for (Py_ssize_t i = 0; i < p->n_blocks; i++, b = b->right) {
        if (b != p->blocks[i])
            return false;
        if (b == d->right)
            return i == p->n_blocks - 1;
    }
    return false;
}

static int
by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)*(Block *const *)a, y = (uintptr_t)*(Block *const *)b;
    return x < y ? -1 : x > y;
}

/* Move the items into the blocks where they were; false if one of these is gone. */
static bool
move_items(Deque *d, const DequePlaces *p)
{
    Py_ssize_t n_now = count_blocks(d), n_all = n_now + d->n_free;
    Block **all = PyMem_Malloc((n_all + p->n_blocks) * sizeof(Block *)), **wanted = all + n_all;
    PyObject **items = PyMem_Malloc(p->size * sizeof(PyObject *));
    bool found = all != NULL && items != NULL;
    if (found) {
        Block *b = d->left;
        for (Py_ssize_t i = 0; i < n_now; i++, b = b->right)
            all[i] = b;
        memcpy(all + n_now, d->free, d->n_free * sizeof(Block *));
        memcpy(wanted, p->blocks, p->n_blocks * sizeof(Block *));
        qsort(all, n_all, sizeof(Block *), by_address);
        qsort(wanted, p->n_blocks, sizeof(Block *), by_address);
        for (Py_ssize_t i = 0; found && i < p->n_blocks; i++)
            found = bsearch(&wanted[i], all, n_all, sizeof(Block *), by_address) != NULL;
    }
    if (found) {
        Block *b = d->left;
        for (Py_ssize_t i = 0, at = d->first; i < p->size; i++) {
            items[i] = b->items[at];
            if (++at == IN_BLOCK) {
                at = 0;
                b = b->right;
            }
        }
        d->n_free = 0;
        for (Py_ssize_t i = 0; i < n_all; i++) {
            if (bsearch(&all[i], wanted, p->n_blocks, sizeof(Block *), by_address) != NULL)
                continue;
            if (d->n_free < FREE_BLOCKS)
                d->free[d->n_free++] = all[i];
            else
                PyMem_Free(all[i]);
        }
        for (Py_ssize_t i = 0; i < p->n_blocks; i++) {
            p->blocks[i]->left = i > 0 ? p->blocks[i - 1] : NULL;
            p->blocks[i]->right = i + 1 < p->n_blocks ? p->blocks[i + 1] : NULL;
        }
        for (Py_ssize_t i = 0, at = p->first; i < p->size; i++, at++)
            p->blocks[at / IN_BLOCK]->items[at % IN_BLOCK] = items[i];
        d->left = p->blocks[0];
        d->right = p->blocks[p->n_blocks - 1];
        d->first = p->first;
        d->last = p->last;
    }
    PyMem_Free(all);
    PyMem_Free(items);
    return found;
}

/* The items are those that there were: move them to where they were. */
void
deque_restore_places(PyObject *obj, PyObject *places)
{
    Deque *d = as_deque(obj);
    const DequePlaces *p = (const DequePlaces *)PyBytes_AS_STRING(places);
    if (d == NULL)
        return;
    Py_BEGIN_CRITICAL_SECTION(obj);
    if (Py_SIZE(d) == p->size && (are_in_place(d, p) || move_items(d, p)))
        d->changes = p->changes;
    Py_END_CRITICAL_SECTION();
}
