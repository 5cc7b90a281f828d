/* What the kernel is asked for: events of file descriptors, of each one at a time.
 *
 * While an event of a descriptor is queued or being handled the kernel reports no other, so events of one connection never
 * overtake each other.  All of this is for who has the dispatcher's lock, but for poller_poll().
 */
#ifndef TORNADO_STM_POLLER_H
#define TORNADO_STM_POLLER_H

#include "../core/base.h"

#include <signal.h>

typedef struct Dispatcher Dispatcher;

/* Of one file descriptor; zeroed: nobody waits for it. */
typedef struct {
    PyObject *watch;        /* whose `reader` and `writer` belong to transactions, or NULL */
    PyObject *outbox;       /* with something left to send, or NULL */
    PyObject *special;      /* is called outside transactions whenever it is readable; or NULL */
    bool busy;              /* an event is queued or being handled */
    bool known;             /* to the kernel, as far as can be told: it forgets those that are closed */
} Descriptor;

/* Invariant: as many wake-ups are on their way as `woken` says: the eventfd `wake`, a semaphore, holds that number. */
typedef struct {
    int epoll, wake;        /* -1 once the loop is closed */
    Descriptor *descriptors;    /* by their numbers */
    int n;
    int waiting, woken;     /* threads in the kernel; those of them that are to look at the queue */
    double until;           /* when the first of them comes back for a timer, on the loop's clock; INFINITY: none does */
} Poller;

int poller_open(Poller *poller);        /* -1 with OSError */
void poller_close(Poller *poller);
int poller_traverse(Poller *poller, visitproc visit, void *arg);

/* So many threads that wait in the kernel must look at the queue. */
void poller_wake(Poller *poller, Py_ssize_t count);

/* These return NULL or -1 with an exception. */
Descriptor *poller_descriptor(Poller *poller, int fd);
int poller_arm(Dispatcher *d, int fd);                                  /* ask the kernel for the next event */
int poller_arm_or_go_on(Dispatcher *d, int fd);                         /* the same; what can be read already is ready at once */
int poller_set_special(Poller *poller, int fd, PyObject *action);       /* NULL: none any more */

/* Ask the kernel for events, and wait for them (`waits`) so many seconds, -1: for ever.  The main thread's signals that are not in
 * `open` come in meanwhile: -1 also with what a handler has raised. Requires: this thread counts as waiting, if it does. */
int poller_poll(Dispatcher *d, bool waits, double seconds, const sigset_t *open);

/* The program's handlers of signals that are not in `open`, and have come meanwhile, run. -1 with what one has raised. */
int let_signals_in(const sigset_t *open);

#endif
