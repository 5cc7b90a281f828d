/* The life of a transaction. */
#ifndef TORNADO_STM_TRANSACTION_H
#define TORNADO_STM_TRANSACTION_H

#include "tx.h"

struct Transaction {
    PyObject_VAR_HEAD           /* size: of args */
    PyObject *function;
    PyObject *kwnames;          /* tuple of the names of the last arguments, or NULL */
    PyObject *variables;        /* of the context to run in, or NULL: in that of the thread */
    PyObject *predecessor;      /* Transaction that must commit first, or NULL */
    Queue *queue;               /* in which it waits or has waited, or NULL */
    uint8_t passed;             /* so many younger ones were taken out of the queue before it */
    bool holds_queue;           /* owns that reference: only while another queue's transaction adds it */
    Transaction *next;          /* in the queue, or among those that a transaction has added */
    uint64_t age;
    uint64_t commit_number;     /* place in the order of commits; 0: not committed */
    _Atomic int taken, done;    /* a thread runs it, or has; it has been committed */
    _Atomic int awaited;        /* somebody may be waiting for its commit */
    int attempts;
    PyObject *room;             /* the called function may use the place before the arguments */
    PyObject *args[];
};
extern PyTypeObject Transaction_Type;
extern _Atomic uint64_t stm_next_age;
extern uint64_t stm_inject_seed;        /* a test hook: of the random numbers of threads to come */

/* Without an age yet, as a vectorcall of the function; n counts the positional arguments. NULL with MemoryError. */
Transaction *transaction_make(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
void transactions_drop(Transaction *chain);     /* those that will not run */

/* Can this thread run one now? -1 with RuntimeError. */
int check_can_run(Tx *tx);

/* Run it to the commit, however often it takes. RUN_RETURNED: *result is what its function returned (dropped, if `result` is
 * NULL); RUN_RAISED: that exception is set; RUN_DROPPED: its queue has ended, and it has done nothing. */
enum { RUN_RAISED = -1, RUN_RETURNED = 0, RUN_DROPPED = 1 };
int run_to_commit(Tx *tx, Transaction *t, PyObject **result);
PyObject *transaction_run(PyObject *self, PyObject *unused);    /* of Python */

/* What run_to_commit() is made of, for atomic blocks: begin an attempt (in that grade, if not GRADE_NONE); commit it (-1 with
 * stm_Abort set: it has to abort); roll it back. */
void tx_begin(Tx *tx, uint64_t age, int grade);
int tx_commit(Tx *tx);
void tx_abort(Tx *tx);

void run_deferred(Tx *tx);      /* the actions that wait for the commit, in order, with barriers off */
void release_dropped(Tx *tx, Transaction *chain);   /* drop what will not run, in a transaction of its own */
void finalize_dying(Tx *tx);    /* outside transactions: finalizers that began in a wrong place */

#endif
