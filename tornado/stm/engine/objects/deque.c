/* collections.deque: locked whole; both ends have a light undo.
 *
 * An iterator that outlives a transaction is a number of a place, and what it has seen of the container: its size,
 * or a count of its changes.  It may go on after another transaction has changed the container and been rolled back, and must
 * not notice.  So the contents come back to the same places, and the count to the same number.
 *
 * A deque is a chain of blocks, and an iterator points into one of them.  Its places
 * are logged when a transaction first changes it, and are the last that is put back:
 * what the items are has been undone before, and now they move into the blocks
 * in which they were.  The deque keeps blocks that it does not need, up to sixteen.
 * Where one has been freed nevertheless, nothing is moved and the count stays: the
 * iterator complains of a change, as it does of any.
 */
#include "access.h"
#include "deep.h"
#include "known.h"

/* ---- Places --------------------------------------------------------------------------- */

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
static PyObject *
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
static void
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

static int
put_places_back(Tx *Py_UNUSED(tx), Undo *u)
{
    deque_restore_places(u->obj, u->old);
    return 0;
}

static const UndoKind undo_places = {.what = "the places", .undo = put_places_back};

/* Log where its items lie. */
static int
log_places(Tx *tx, PyObject *deque)
{
    PyObject *places = deque_places(deque);
    Undo *u = places == NULL ? NULL : undo_push(tx, &undo_places, deque, NULL, places);
    Py_XDECREF(places);
    return u == NULL ? -1 : 0;
}

/* ---- Contents ------------------------------------------------------------------------- */

/* Not by an iterator, which locks itself besides. */
static PyObject *
deque_contents(PyObject *obj)
{
    Deque *d = as_deque(obj);
    PyObject *items;
    if (d == NULL)
        return c_items(obj);
    Py_BEGIN_CRITICAL_SECTION(obj);
    items = PyList_New(Py_SIZE(d));
    Block *b = d->left;
    for (Py_ssize_t i = 0, at = d->first; items != NULL && i < Py_SIZE(d); i++) {
        PyList_SET_ITEM(items, i, Py_NewRef(b->items[at]));
        if (++at == IN_BLOCK) {
            at = 0;
            b = b->right;
        }
    }
    Py_END_CRITICAL_SECTION();
    return items;
}

static int
put_contents_back(Tx *tx, Undo *u)
{
    return replace_contents(tx, u->obj, "clear", NULL, "extend", u->old, deque_contents);
}

static const UndoKind undo_deque = {.what = "all", .undo = put_contents_back};

/* 0: all is logged already; 1: not yet; -1 */
static int
own_deque(Tx *tx, PyObject *deque)
{
    bool first;
    if (lock_exclusive(tx, cell_of(deque, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, deque))
        return 0;
    return first && log_places(tx, deque) < 0 ? -1 : 1;
}

int
open_deque_op(Tx *tx, PyObject *deque, int op)
{
    if (captured(tx, deque) || opened(tx, deque, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, deque) != &deque_kind)
        return open_whole_write(tx, deque);
    int to_log = own_deque(tx, deque);
    if (to_log <= 0)
        return to_log;
    PySequenceMethods *sequence = c_base(Py_TYPE(deque))->tp_as_sequence;
    Py_ssize_t n;
    if (op == DEQUE_POP || op == DEQUE_POPLEFT) {
        PyObject *item;
        Py_BEGIN_CRITICAL_SECTION(deque);
        n = sequence->sq_length(deque);
        item = n > 0 ? sequence->sq_item(deque, op == DEQUE_POP ? n - 1 : 0) : NULL;
        Py_END_CRITICAL_SECTION();
        if (item == NULL)
            return n > 0 ? -1 : 0;
        int r = push_resizing_inverse(tx, deque, op == DEQUE_POP ? "append" : "appendleft", item, n);
        Py_DECREF(item);
        return r;
    }
    if (is_python_class(Py_TYPE(deque)))
        return log_all(tx, deque);  /* what it calls its maxlen may be anything */
    PyObject *maxlen = PyObject_GetAttrString(deque, "maxlen");
    if (maxlen == NULL)
        return -1;
    bool bounded = maxlen != Py_None;
    Py_DECREF(maxlen);
    if (bounded)
        return log_all(tx, deque);
    return push_resizing_inverse(tx, deque, op == DEQUE_APPEND ? "pop" : "popleft", NULL, sequence->sq_length(deque));
}

/* ---- Taking one out -------------------------------------------------------------------- */

/* It was in the place `key`, where the size is not n (as in call_inverse(), access.c). */
static int
put_one_back(Tx *tx, Undo *u)
{
    PyObject *name = PyUnicode_InternFromString("insert"), *insert = name != NULL ? c_base_method(u->obj, name) : NULL, *r = NULL;
    int back = -1;
    if (insert != NULL) {
        Py_BEGIN_CRITICAL_SECTION(u->obj);
        if (c_base(Py_TYPE(u->obj))->tp_as_sequence->sq_length(u->obj) == u->n)
            back = 0;
        else
            r = PyObject_CallFunctionObjArgs(insert, u->obj, u->key, u->old, NULL);
        Py_END_CRITICAL_SECTION();
    }
    Py_XDECREF(insert);
    Py_XDECREF(name);
    if (r == NULL)
        return back;
    displace(tx, r);
    return 0;
}

static const UndoKind undo_one = {.what = "one that was taken out", .undo = put_one_back};

static bool
is_compared_by_identity(PyObject *o)
{
    return Py_TYPE(o)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

/* Where in the deque the item is, if nothing but which object it is decides on that: -1 if nowhere; or -2. */
static Py_ssize_t
place_by_identity(Deque *d, PyObject *item)
{
    Py_ssize_t place = -1;
    bool plain = is_compared_by_identity(item);
    Py_BEGIN_CRITICAL_SECTION((PyObject *)d);
    Block *b = d->left;
    for (Py_ssize_t i = 0, at = d->first; place == -1 && i < Py_SIZE(d); i++) {
        if (b->items[at] == item)
            place = i;
        else if (!plain || !is_compared_by_identity(b->items[at]))
            place = -2;
        if (++at == IN_BLOCK) {
            at = 0;
            b = b->right;
        }
    }
    Py_END_CRITICAL_SECTION();
    return place;
}

/* Who waits in a line and is let go takes itself out: the others, futures as a rule, need not be looked into, nor copied for the undo. */
int
open_deque_remove(Tx *tx, PyObject *deque, PyObject *item)
{
    Deque *d = kind_of(tx, deque) == &deque_kind ? as_deque(deque) : NULL;
    if (d == NULL)
        return 0;
    int to_log = captured(tx, deque) || opened(tx, deque, OPENED_WRITE) ? 0 : own_deque(tx, deque);
    if (to_log < 0 || check_doomed(tx) < 0)
        return -1;
    Py_ssize_t place = place_by_identity(d, item);
    if (place == -2)
        return 0;
    if (place == -1 || to_log == 0)
        return 1;
    PyObject *key = PyLong_FromSsize_t(place);
    Undo *u = key != NULL ? undo_push(tx, &undo_one, deque, key, item) : NULL;
    Py_XDECREF(key);
    if (u == NULL)
        return -1;
    u->n = Py_SIZE(d);
    return 1;
}

static int
visit_deque(Tx *tx, PyObject *deque, Visit visit, void *arg)
{
    int r = open_whole_read(tx, deque);
    PySequenceMethods *sequence = c_base(Py_TYPE(deque))->tp_as_sequence;
    Py_ssize_t n = r == 0 ? sequence->sq_length(deque) : 0;
    for (Py_ssize_t i = 0; r == 0 && i < n; i++) {
        PyObject *item = sequence->sq_item(deque, i);
        if (item == NULL) {
            PyErr_Clear();
            break;
        }
        r = visit_unless_inert(tx, item, visit, arg);
        Py_DECREF(item);
    }
    return r;
}

const struct Kind deque_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .made_captured = true,
    .read_whole = lock_container_read,
    .write_whole = lock_container_write,
    .visit = visit_deque,
    .contents = deque_contents,
    .undo = &undo_deque,
    .log_more = log_places,
};
