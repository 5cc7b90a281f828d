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
Transaction *transaction_make(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *transaction_run(PyObject *self, PyObject *unused);
void transactions_drop(Transaction *chain);
int check_can_run(Tx *tx);
enum { RUN_RAISED = -1, RUN_RETURNED = 0, RUN_DROPPED = 1 };
int run_to_commit(Tx *tx, Transaction *t, PyObject **result);
void release_dropped(Tx *tx, Transaction *chain);
void tx_begin(Tx *tx, uint64_t age, int grade);
int tx_commit(Tx *tx);
void run_deferred(Tx *tx);
void tx_abort(Tx *tx);
void finalize_dying(Tx *tx);

#endif
