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
    bool may_be_put_off;        /* rather than wait for long for its predecessor, with a thread in its hands */
    _Atomic bool left;          /* what commits before it has ended the loop: it is put off until that runs again */
    bool is_call;               /* it is made between those of its queue, and waits for no other such call */
    bool may_move, moves;       /* it may be put off to run on its anchor instead; it is to */
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

static inline bool
is_left_over(Tx *tx)
{
    return tx->txn != NULL && atomic_load_explicit(&tx->txn->left, memory_order_relaxed);
}

extern _Atomic uint64_t stm_next_age;
extern uint64_t stm_inject_seed;        /* a test hook: of the random numbers of threads to come */

/* Sequential transactions.  Where no other thread has anything to do, a transaction is exclusive from its beginning: nobody is kept
 * from anything, and it needs neither locks nor undo (the phase SEQUENTIAL-NOABORT of Lev, Moir & Nussbaum, "PhTM: Phased
 * Transactional Memory", 2007).  Who hands transactions out says which (../dispatch/dispatcher.c).  Whoever begins meanwhile waits at
 * the gate, as always. */
extern _Atomic int stm_runners;         /* threads that run transactions: as long as they live, once they have begun one */
extern _Atomic int stm_sequential_limit;    /* a test hook: only where at most so many threads run transactions */

/* Do at most so many threads run transactions, and may these be sequential?  Tests that inject aborts and delays need attempts which can
 * be rolled back. */
static inline bool
runs_on_few(int threads)
{
    return atomic_load_explicit(&stm_runners, memory_order_relaxed) <= threads
        && threads <= atomic_load_explicit(&stm_sequential_limit, memory_order_relaxed) && stm_inject_rate == 0 && stm_delay_rate == 0;
}

/* This thread is about to run transactions. */
void count_runner(Tx *tx);

/* Without an age yet, as a vectorcall of the function; n counts the positional arguments. NULL with MemoryError. */
Transaction *transaction_make(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* function(*args), the youngest of all, which commits after the predecessor, if there is one. A new reference, or NULL with an exception. */
Transaction *transaction_after(PyObject *function, PyObject *args, Transaction *predecessor);
void transactions_drop(Transaction *chain);     /* those that will not run */

/* Can this thread run one now? -1 with RuntimeError. */
int check_can_run(Tx *tx);

/* Run it to the commit, however often it takes. RUN_RETURNED: *result is what its function returned (dropped, if `result` is
 * NULL); RUN_RAISED: that exception is set; RUN_DROPPED: its queue has ended, and it has done nothing; RUN_PUT_OFF: nor has it here,
 * it is to run again when its predecessor has, or on its anchor, if it `moves`; or when its queue's calls have been made. */
enum { RUN_RAISED = -1, RUN_RETURNED = 0, RUN_DROPPED = 1, RUN_PUT_OFF = 2 };
int run_to_commit(Tx *tx, Transaction *t, Company company, PyObject **result);
void count_run(Tx *tx, uint64_t began);   /* to what transactions took: one that began then, and has ended */
/* The same for one of no queue, on whatever thread; RUN_RAISED also with RuntimeError: it has run, or this thread cannot run any. */
int transaction_run(Transaction *t, Company company, PyObject **result);

/* What run_to_commit() is made of, for atomic blocks: begin an attempt (in that grade, if not GRADE_NONE); commit it (-1 with
 * stm_Abort set: it has to abort); roll it back. */
void tx_begin(Tx *tx, uint64_t age, int grade);
int tx_commit(Tx *tx);
void tx_abort(Tx *tx);

void run_deferred(Tx *tx);      /* the actions that wait for the commit, in order, with barriers off */
void release_dropped(Tx *tx, Transaction *chain);   /* drop what will not run, in a transaction of its own */
/* A thread waits for something, perhaps within a transaction that runs alone.  Then those of other loops and queues run meanwhile, as threads
 * would, until it takes its turn back: true.  Nothing of Python's is touched in between. */
bool turn_lend(Tx *tx);
void turn_take_back(Tx *tx);

/* Have garbage collected, between two transactions: as what an ended one held, it goes in a transaction of its own, beside others. */
void release_garbage(Tx *tx, void (*collect)(Tx *tx));
/* Outside transactions: finalizers that began in a wrong place run in a transaction of that grade of inevitability, since none can be
 * begun again. */
void finalize_dying(Tx *tx, int grade);

#endif
