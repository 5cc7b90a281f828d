/* What an attempt has scheduled, in order: callbacks that are not worth a transaction of their own follow in this one.
 *
 * What a future tells to those who wait for it is short, mostly: it hands on a result, or lets a coroutine go on to where it waits
 * again.  It runs in the transaction that has scheduled it: a serial order like any other.  So does the beginning of a task that has always
 * been prompt, if nothing else is left to follow, and nothing waits that would run before it: a request's handler, which would look at all
 * anew that its transaction has made.  Where others wait it takes its turn among their handlers: the same code, run for many one after
 * the other, is a quarter faster than all that each of them needs ("cohort scheduling", Larus & Parkes, 2002).  Not of several, which other
 * threads shall run beside each other, and not what goes on after asyncio.sleep(0), which programs do to begin a transaction.
 */
#ifndef TORNADO_STM_CHAIN_H
#define TORNADO_STM_CHAIN_H

#include "clock.h"
#include "sites.h"

typedef struct Dispatcher Dispatcher;
struct Scheduling;

/* Of a thread.  Invariant: as new when an attempt begins, but for `by`, and what the followers of the last committed one have taken;
 * an aborted one's handles are gone. */
typedef struct {
    bool open;                  /* what is scheduled may follow */
    PyObject *handles;          /* list, or NULL; those from `next` on have not begun */
    Py_ssize_t next;
    unsigned depth;             /* the callback that runs, or ran last, was scheduled by one that was, and so on, up to the transaction's own: 0 */
    Py_ssize_t level;           /* the handles before that one are of that depth or a lesser one; those behind are one deeper */
    Py_ssize_t level_left;      /* so many of those that are submitted, the first ones, are of that depth, too */
    bool began_task;            /* one of those that have begun begins a task */
    PyObject *site;             /* of the follower that runs, or NULL: the transaction's own callback does */
    double began;               /* by `clock`; of the transaction's own callback, too */
    PyObject *followers;        /* list of (site, seconds) of those that have run, or NULL */
    struct Scheduling *by;      /* of the dispatcher whose transaction runs, or NULL; borrowed */
    ThreadClock clock;
} CallbackChain;

/* What a thread's last transaction has come to that had to run alone (objects/reasons.c), or on the loop's thread (calls/fiber.c). */
typedef struct {
    PyObject *why;              /* it had to run alone, as stats() tells it; NULL: it had not to */
    bool anchored;              /* it had to be on that thread */
    bool unusual;               /* that it had to run alone says nothing of others of its kind */
    PyObject *site;             /* of the follower that had to, or NULL: the transaction's own callback */
    double before;              /* seconds of processor time that had taken by then */
} WasAlone;

/* At the moments of an attempt of those names (../thread.c). */
void chain_begins(CallbackChain *chain);
void chain_rolled_back(Tx *tx, CallbackChain *chain);

/* Learn what the followers of this thread's last transaction have taken, of which there were n; returns the sum of their seconds. */
double chain_learn(Estimates *estimates, Py_ssize_t *n);

/* The thread runs one of the dispatcher's, or (NULL) none. */
void chain_run(struct Scheduling *by);

/* Within a transaction, where it runs a callback of the loop's. From here on what is scheduled may follow. */
void chain_open(void);
/* The handle is to run: dispatcher.submit(handle) at the commit, unless it follows. */
int chain_add(PyObject *dispatcher, PyObject *handle);
/* The next handle that is to run in this transaction, or NULL; a new reference. */
int chain_follower(Dispatcher *d, PyObject **handle);
/* What has not followed is submitted at the commit. */
int chain_close(PyObject *dispatcher);

/* Of what this thread's transaction submits, in that order: how many rounds of asyncio's loop would come before it, beginning with that of the
 * transaction's own callback? */
unsigned chain_depth_of_next(void);
/* The same of what ran last. */
unsigned chain_depth(void);

/* Of Python. end_chain(dispatcher): what has been scheduled before follows no more, and what is scheduled from here on neither. */
PyObject *end_chain(PyObject *module, PyObject *dispatcher);

int chain_init(void);       /* -1 with an exception */

#endif
