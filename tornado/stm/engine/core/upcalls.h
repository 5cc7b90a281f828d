/* Upcalls: what the core asks of what is built on it, at the moments of an attempt's life (Clark, "The Structuring of
 * Systems Using Upcalls", 1985).
 *
 * Where nothing is built on it, they do nothing: then the core runs functions on plain memory.
 */
#ifndef TORNADO_STM_UPCALLS_H
#define TORNADO_STM_UPCALLS_H

#include "base.h"

typedef struct {
    size_t thread_size;                             /* bytes that are kept for a thread: they begin with its Tx */

    bool (*is_ready)(void);                         /* can transactions run? */
    int (*first_grade)(void);                       /* GRADE_EXCLUSIVE where this thread can run them in no other way now */
    PyObject *(*variables)(void);                   /* of the context in which a transaction is added; NULL with an exception */
    void (*goes_on)(Tx *tx, uint64_t transactions, bool several);   /* this thread is about to run one more, and (several threads) so many have run */
    void (*run_begins)(Tx *tx);                     /* before the first attempt of a transaction */
    void (*begins)(Tx *tx);                         /* an attempt begins, or the dropping of what one held */
    PyObject *(*call)(Tx *tx, Transaction *t);      /* its function: as that returns */

    int (*may_commit)(Tx *tx);                      /* the function is over: -1 with stm_Abort set when it has to abort */
    void (*will_commit)(Tx *tx);                    /* it will not be rolled back, and still has all its locks; perhaps twice */
    uint64_t (*states_made)(void);                  /* so many states of threads has the interpreter made */
    void (*counts_borrowed)(Tx *tx);                /* it is about to be inevitable: then the log does not keep alive what it uses */
    void (*became_inevitable)(Tx *tx);
    void (*lends)(Tx *tx);                          /* it does not run alone for a while */
    void (*committed)(Tx *tx);                      /* all has happened, and the locks are still there */
    void (*rolled_back)(Tx *tx);                    /* the same for one that is undone */
    void (*ends)(Tx *tx);                           /* all locks are about to go; tx->aborting tells how it ended */
    void (*aborted)(Tx *tx);                        /* and when what that held is dropped */
    void (*drops)(Tx *tx);                          /* drop references that the ended one held, where finalizers may run */
    void (*finalizes)(Tx *tx);                      /* after a commit, when all is dropped: what had been put off */
    bool (*is_late)(Tx *tx);                        /* between transactions: is there something to finalize? */
    void (*retries)(Tx *tx);                        /* rolled back, and holds nothing: before the next attempt */

    PyThreadState *(*sleeps)(bool between);         /* PyEval_SaveThread() of who may sleep long, between two attempts or in one */
    void (*wakes)(PyThreadState *ts);               /* PyEval_RestoreThread(); preserves errno */
    bool (*is_in_the_way)(Tx *tx);                  /* may others than transactions wait for this one? */
    void (*waits)(Tx *tx, uint64_t since);          /* such a one waits, since then (ns) */
    bool (*is_asked)(void);                         /* is this thread asked to make a call? */
    void (*serve)(void);                            /* between two attempts: make it */

    bool (*may_be_biased)(Tx *tx, PyObject *obj);   /* do all readers and writers of the object ask for its bias? */
    void (*tell_reason)(Tx *tx, const char *why);   /* it is about to be exclusive */
    void (*was_exclusive)(Tx *tx, uint64_t ns);     /* and was it for so long */
    const Place *(*location)(Tx *tx);               /* where in the program it is */
    const char *(*name_of_cell)(Tx *tx, uint64_t c);    /* what it is about to lock, interned; NULL: not known */
    void (*locate_beginning)(Tx *tx);               /* set tx->logged.at for an attempt that is about to begin */

    void (*abandon)(Tx *tx);                        /* in the child of a fork: of a thread that is no more */
    void (*in_child)(void);
} Upcalls;

extern const Upcalls stm_no_upcalls;
extern const Upcalls *stm_upcalls;      /* set before the first transaction */

#endif
