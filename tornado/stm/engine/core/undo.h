/* The undo log: what an abort puts back.
 *
 * An entry is opaque here.  Who logs it says with a constant structure how it is undone.
 */
#ifndef TORNADO_STM_UNDO_H
#define TORNADO_STM_UNDO_H

#include "base.h"

typedef struct UndoKind UndoKind;

typedef struct {
    const UndoKind *kind;
    Py_ssize_t n;               /* what these mean is the kind's affair; the references are owned, and may be NULL */
    PyObject *obj, *key, *old;
    Py_hash_t hash;             /* of `key`, where that is in a dict or set: nobody may ask for it at a rollback */
    void *mem;
} Undo;

/* Undoing runs no code of the program: not the __hash__ or __eq__ of a key, no finalizer. It would run without barriers, and might
 * wait for a lock that this very attempt has taken. */
struct UndoKind {
    const char *what;                           /* has been written: "an attribute" */
    int (*undo)(Tx *tx, Undo *u);               /* -1 with an exception when it cannot be; the log owns nothing less than before */
    int (*logged)(Tx *tx, Undo *u);             /* the entry is in the log: -1 with an exception takes it out again; NULL: nothing to do */
    void (*forget)(Undo *u);                    /* drop what `mem` is; NULL: nothing to do */
    bool after_all;                             /* undone when all others are */
};

typedef struct {
    Undo *entries;
    Py_ssize_t n, cap;
    PyObject *displaced;        /* list of what a rollback took out: dies after it */
} UndoLog;

/* Log a write that is about to come. Requires: this transaction owns the cell, and did not log it before (or it does no
 * harm to undo it twice). Returns the entry, good until the next one, or NULL with MemoryError set. */
Undo *undo_push(Tx *tx, const UndoKind *kind, PyObject *obj, PyObject *key, PyObject *old);

/* What undoes a write whatever it was: obj(*key). */
extern const UndoKind undo_call;

/* Put everything back, the latest first. Requires: the transaction still owns all its cells. */
void undo_rollback(Tx *tx);

/* Drop the entries from this one on, and the references that they hold: finalizers may run. */
void undo_forget(Tx *tx, Py_ssize_t from);

/* What is about to be put out of its place by a rollback may be the last reference, and no
 * finalizer may run before that is over. Takes the reference, which may be NULL with an exception. */
void displace(Tx *tx, PyObject *value);

/* Put back by exchange, so that what is there now goes with the entry: it holds `*logged`, which is its `key` or `old`. */
static inline void
undo_exchange(PyObject **field, PyObject **logged)
{
    PyObject *now = *field;
    *field = *logged;
    *logged = now;
}

/* In the child of a fork: of a thread that is no more. */
void undo_abandon(Tx *tx);

#endif
