/* Which transaction runs next, on which thread, and who polls meanwhile.
 *
 * Of the threads with nothing to run, one polls, and the others rest (poller.h).  A thread runs the first transaction that has become
 * ready itself, and calls others only for what is worth it: so a lightly loaded server hands nothing over, and when one thread is
 * busy for long, the next event finds another.  While there is always something to run, each round of the queue ends
 * with a look at what else has become ready; and there is such a look before each transaction that is expected to take long.
 *
 * Between two transactions no code of Python runs, but for what another thread has asked this one for, finalizers that have been
 * put off, and handlers of signals: those come in at one point, where nothing is lost by what they raise.
 */
#ifndef TORNADO_STM_DISPATCHER_H
#define TORNADO_STM_DISPATCHER_H

#include "../core/latch.h"
#include "../core/tx.h"
#include "answers.h"
#include "poller.h"
#include "ready.h"
#include "restraint.h"
#include "timers.h"

/* What becomes ready together, and has not yet; it owns them, and `next` is the next one. */
typedef struct {
    Entry *first, *last;
} Fresh;

/* Where something joins a strand. */
typedef struct {
    Strand *strand;         /* NULL: it is the first of a new one */
    Entry *before;          /* what it comes after, or NULL */
} Turn;

/* What a thread has to do with a dispatcher. */
typedef struct Scheduling {
    PyObject_HEAD
    Order *order;           /* of what it schedules, or NULL */
    uint64_t run;           /* number of the run that it is at; 0: it runs no transaction of the dispatcher's */
    Entry *running;         /* that transaction's, while `run` is set; borrowed */
    bool is_prompt;         /* that is known to be prompt */
    Company company;        /* that it is in */
    Fresh fresh;            /* what that has scheduled: it becomes ready when the transaction is over */
    Timers early;           /* due before the transaction that has set them is over: it may set others that come before them */
    Descriptors heard;      /* whose events its last transactions have handled: they are armed before the next step */
    Sent sent;              /* by its transaction */
    bool received;          /* that has received something, in one of its attempts */
} Scheduling;

/* Transactions that are expected to run alone are *gathered*: while there are some, the loop's own thread runs them one after the other, on
 * which most of their C code belongs (../calls/anchor.h), and the other threads rest; else the world would have to wait for each
 * of them.  Meanwhile it also runs what is known to be prompt.
 *
 * Times are of the monotonic clock, in seconds.  Invariant: while `by` is set, that thread is about to go on. */
typedef struct {
    Scheduling *by;         /* the loop's thread, or NULL: there is no gathering; borrowed */
    double began;           /* the present one */
    double waits;           /* since when there are some to gather, and they are not; 0: nobody has seen any */
    double idle;            /* since when it has had nothing to run; 0: it has */
    int vain, pass;         /* so many times in a row it has waited for more in vain; so many to come will not wait */
    double not_before;      /* others get as much time as the last one has had */
    bool called;            /* the loop's thread has been, for that */
} Gathering;

/* The loop's thread, and what waits for it alone. */
typedef struct {
    Scheduling *by;         /* that thread; NULL: it has not come yet; borrowed, as above */
    double waits;           /* since when there is something, as far as others have seen; 0: nobody has */
    bool called;            /* it has been, for that */
    uint64_t left_at;       /* what it ran when another one left all to it last, as in Scheduling; */
    uint64_t stands_at;     /* and what it has run for a moment, while others could: they do not leave it to that; UINT64_MAX: nothing */
} Anchoring;

/* What one transaction has scheduled, in the order in which it commits. */
struct Order {
    PyObject_HEAD
    uint64_t parent;        /* its age; 0: what a thread schedules outside of transactions */
    Entry *last;            /* the next one comes after that, or NULL */
    bool has_scheduled;     /* that is one of its own */
    Scheduling *by;         /* borrowed: that of a thread lives as long as the dispatcher */
    uint64_t run;           /* whose transaction that is, as in Scheduling; 0: of none of the dispatcher's */
};

/* All is for who has the lock, of which `owner` is the thread, or 0.  It has it `level` times more: outboxes are emptied under it, by
 * code of Python, where a finalizer may schedule something. */
struct Dispatcher {
    PyObject_HEAD
    Latch lock;
    _Atomic unsigned long owner;
    int level;
    PyObject *loop;
    PyObject *run_handle, *run_timer, *handle_event;    /* what the transactions run */
    PyObject *inboxes;          /* dict: descriptor -> what has been received and not been taken */
    PyObject *leaves_unread;    /* called with a descriptor while the program ends, else NULL */
    PyObject *threads;          /* dict: thread identifier -> Scheduling */
    PyObject *dropped;          /* list of what is to die without the lock, or NULL */
    PyObject *failure;          /* what a callback has raised to end the loop, or NULL */
    ReadyQueue *ready;
    Timers timers;
    uint64_t timers_set;
    Py_ssize_t timers_cancelled;    /* so many of them are only waiting to be forgotten */
    Poller poller;
    Questions questions;
    Descriptors held;           /* to be armed when what their events, or those who begin to watch them, have scheduled has run */
    Py_ssize_t round;           /* transactions to run before the next look at what has become ready */
    Restraint restraint;
    int running, running_prompt;    /* threads that run a transaction; of those, one that is known to be prompt */
    int n_threads, workers;    /* threads that are to work; those that do */
    uint64_t runs;              /* so many have begun */
    Strand *unbegun;            /* of what has been scheduled before anything runs, or NULL; borrowed from that */
    Gathering gathering;
    Anchoring anchoring;
    uint64_t stop_at;           /* run what is older than this, then stop; UINT64_MAX: run on */
    bool debug;                 /* the loop is in debug mode */
    bool closed;
    bool other_clock;           /* the loop has a clock of its own, time() */
    double resolution;          /* of the clock, in seconds */
};

extern PyTypeObject Dispatcher_Type;

int dispatcher_init(PyObject *module);      /* -1 with an exception */

/* In the child of a fork: no other thread has a lock any more. */
void dispatchers_in_child(void);

/* That of a loop, borrowed, or NULL without an exception: it is not one of ours. Requires no lock. */
Dispatcher *dispatcher_of(PyObject *loop);

bool is_dispatcher(PyObject *o);        /* else TypeError is set */

void dispatcher_lock(Dispatcher *d);
void dispatcher_unlock(Dispatcher *d);

/* What this thread runs, exclusively, ends the loop by an exception: all else that waits or runs is left over for when it runs again. */
void dispatcher_ends_at_once(Dispatcher *d);

/* This thread's transaction has received something: what the kernel reports next is something else. Without the lock. */
void dispatcher_received(void);

/* Something has become ready: is this not one of its threads, which will look at the queue, another one must. With the lock. */
void dispatcher_added(Dispatcher *d);

/* Call the outbox's flush() when the kernel takes more from its descriptor `fd`, until that is true. 0: the loop is closed; -1 with an
 * exception. */
int dispatcher_flush_later(Dispatcher *d, PyObject *outbox);

/* Names of attributes. */
extern struct DispatchNames {
    PyObject *reader, *writer, *flush, *fd, *when, *time;
} dispatch_names;

#endif
