/* The undo log: what an abort puts back.
 *
 * Entries are logged before the write that they undo, once a cell, by the
 * transaction that owns the cell, and applied backwards while it still owns
 * it.  So at that moment the object is exactly as its own writes left it, but
 * for what others have changed in it under locks of their own: keys of a dict or set.
 */
#include "undo.h"

#include "tx.h"

Undo *
undo_push(Tx *tx, const UndoKind *kind, PyObject *obj, PyObject *key, PyObject *old)
{
    UndoLog *log = &tx->undo;
    if (log->n == log->cap) {
        Py_ssize_t cap = log->cap ? 2 * log->cap : 256;
        Undo *p = PyMem_RawRealloc(log->entries, cap * sizeof(Undo));
        if (p == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        log->entries = p;
        log->cap = cap;
    }
    Undo *u = &log->entries[log->n++];
    *u = (Undo){kind, 0, Py_XNewRef(obj), Py_XNewRef(key), Py_XNewRef(old), 0, NULL};
    if (kind->logged == NULL || kind->logged(tx, u) == 0)
        return u;
    undo_forget(tx, log->n - 1);
    return NULL;
}

static int
call(Tx *Py_UNUSED(tx), Undo *u)
{
    PyObject *r = PyObject_Call(u->obj, u->key, NULL);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

const UndoKind undo_call = {.what = "what is undone by a call", .undo = call};

void
displace(Tx *tx, PyObject *value)
{
    PyErr_Clear();
    if (value == NULL)
        return;
    if (tx->undo.displaced == NULL)
        tx->undo.displaced = PyList_New(0);
    if (tx->undo.displaced == NULL || PyList_Append(tx->undo.displaced, value) < 0)
        PyErr_Clear();
    Py_DECREF(value);
}

void
undo_rollback(Tx *tx)
{
    bool some_after_all = false;
    for (int last = 0; last <= (int)some_after_all; last++) {
        for (Py_ssize_t i = tx->undo.n; --i >= 0;) {
            Undo *u = &tx->undo.entries[i];
            some_after_all |= u->kind->after_all;
            if (u->kind->after_all != last)
                continue;
            interruptible(tx);
            if (u->kind->undo(tx, u) < 0)
                PyErr_FormatUnraisable("tornado.stm: an aborted attempt could not undo what it wrote to %s of %R",
                                       u->kind->what, u->obj);
        }
    }
}

void
undo_forget(Tx *tx, Py_ssize_t from)
{
    while (tx->undo.n > from) {
        Undo u = tx->undo.entries[--tx->undo.n];
        if (u.kind->forget != NULL)
            u.kind->forget(&u);
        Py_XDECREF(u.old);
        Py_XDECREF(u.key);
        Py_XDECREF(u.obj);
    }
}

void
undo_abandon(Tx *tx)
{
    tx->undo.n = 0;
    tx->undo.displaced = NULL;
}
