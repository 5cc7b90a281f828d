/* What the kernel is asked for: events of file descriptors, of each one at a time.
 *
 * While an event of a descriptor is queued or being handled no other one counts, so events of one connection never overtake each
 * other.  The kernel is asked once for all of them, as asyncio's loop does: mostly the first has been handled when somebody polls again.
 * Who waits is told of it again, else, to no avail; then the kernel is asked for single events for a while.  All of this is for who has the
 * dispatcher's lock, but for poller_poll().
 *
 * A callback may leave to what it schedules to read what there is, as those of drivers do that read in C, or to watch the descriptor no more: until
 * that has run the kernel has the same to report, and asyncio's loop would run it before it asks again.  So an event of which nothing is received,
 * and nothing sent, is the last one until what it has scheduled, or one before it, has run.
 *
 * Of a descriptor that somebody begins to watch the kernel is asked when what had been scheduled by then has run, and what that has scheduled:
 * on asyncio's loop that is ready before the first event, and comes first.  So who waits for a connection goes on before its data come.
 *
 * What may be an answer waits until what was scheduled with the question has run (answers.h).
 *
 * Of a socket that listens every event is a connection of its own, and has nothing to do with the one before.  Nor has one of what the
 * program opens when it has closed another with that number.
 */
#ifndef TORNADO_STM_POLLER_H
#define TORNADO_STM_POLLER_H

#include "../core/base.h"

#include <signal.h>
#include <sys/types.h>

typedef struct Dispatcher Dispatcher;
typedef struct Entry Entry;
typedef struct Strand Strand;

/* Of one file descriptor; zeroed: nobody waits for it. */
typedef struct {
    PyObject *watch;        /* whose `reader` and `writer` belong to transactions, or NULL */
    PyObject *outbox;       /* with something left to send, or NULL */
    PyObject *special;      /* is called outside transactions whenever it is readable; or NULL */
    Entry *scheduled;       /* the last that the handling of its events has scheduled, or NULL */
    Strand *strand;         /* of its last event, held; or NULL */
    ino_t file;             /* what it was of when the kernel was told to forget it, if something of it was to run then */
    uint32_t armed;         /* events that the kernel goes on to report as long as they last, or with EPOLLONESHOT one or none; 0: none */
    uint32_t answers;       /* events that wait */
    uint64_t after;         /* for all questions up to that one */
    uint64_t armed_at;      /* so many polls had begun by then: what they report may have been handled */
    bool busy;              /* an event is queued or being handled, or would be the same again, or comes too early */
    char early;             /* so many times more it is left until what has been scheduled last beside it has run, before it is armed */
    double since;           /* when that began, by the monotonic clock */
    bool known;             /* to the kernel, as far as can be told: it forgets those that are closed */
} Descriptor;

typedef struct {
    int *fds;
    int n, room;
} Descriptors;

bool descriptors_add(Descriptors *all, int fd);     /* false: there is no memory */

/* Threads with nothing to run.  One of them *polls*: it waits for the kernel's events, and for the first timer; the others *rest*.
 * Whoever is to run for long, or leaves much in the queue, calls others.  For what is known to be prompt nobody is
 * called: a thread that would begin where this one ends costs both of them more than it brings.  What is known may be wrong, so
 * the *watchdog* looks after a moment whether a thread that could run is still idle.  The loop's own thread, where it is *at home*, can
 * be called by itself.
 *
 * Invariants.  As many calls are on their way to those that rest as `called` says: the eventfd `calls`, a semaphore, holds that
 * number, less the one for the loop's thread, if `home_called`, which is in the eventfd `home`.  `woken`: the eventfd `wake` is set,
 * for who polls.  While somebody rests and nobody polls, somebody has been called or the watchdog is set. */
typedef struct {
    int epoll;              /* who polls: descriptors, `wake`, `watchdog`; -1 once the loop is closed */
    int rest;               /* an epoll, too: `calls`, `watchdog` */
    int rest_at_home;       /* the same for the loop's thread, and `home` */
    int wake, calls, watchdog, home;
    Descriptor *descriptors;    /* by their numbers */
    int n;
    Descriptors waiting;    /* those with answers, and some that have none any more */
    int singly;             /* so many times more the kernel is asked for one event only */
    _Atomic uint64_t begun; /* so many polls, also without the lock */
    bool polls, woken, watched;
    uint64_t watched_run;   /* the last transaction that had begun when the watchdog was set */
    int calm;               /* so many times in a row it has found nothing amiss */
    int resting, called;
    enum { IS_UP, POLLS, RESTS } at_home;   /* what the loop's thread does: it is one of those above, or neither */
    bool home_called;
    double until;           /* when who polls comes back for a timer, on the loop's clock; INFINITY: for none */
} Poller;

int poller_open(Poller *poller);        /* -1 with OSError */
void poller_close(Poller *poller);
int poller_traverse(Poller *poller, visitproc visit, void *arg);

/* So many threads with nothing to run must look at the queue; the one that polls before those that rest. */
void poller_wake(Poller *poller, Py_ssize_t count);

/* Who polls must look at the timers. */
void poller_wake_who_polls(Poller *poller);

/* The loop's thread must look at the queue. */
void poller_call_home(Poller *poller);

/* Is a thread free that nobody has called yet? */
bool poller_has_free(Poller *poller);

/* In a moment, some thread that has nothing to run must look whether transaction `run` still is the last that has begun.  The moment
 * is the longer, the more often in a row that was not so. */
void poller_watch(Poller *poller, uint64_t run);
void poller_calm(Poller *poller, bool calm);    /* it has looked */

/* Is what its last event has scheduled still to run, and comes before the next one? */
bool poller_has_scheduled(Poller *poller, int fd);

/* What waits for questions that are closed becomes ready. -1 with an exception. */
int poller_lets_answers_in(Dispatcher *d);

/* Does anybody wait for its events? */
bool poller_is_wanted(Poller *poller, int fd);

/* Is it still of what the kernel has been asked about?  If not, the order of its events is forgotten.  The kernel reports nothing until it is
 * asked again. */
bool poller_is_the_same(Poller *poller, int fd);

/* Does somebody begin to watch it: has the kernel not been asked, and is nothing to run of what it has told before? */
bool poller_is_new(Poller *poller, int fd);

/* What is wanted of it has changed, or it has: what the kernel has been asked does not count.  If nothing is wanted any more the kernel is told
 * at once, before it can be closed. */
void poller_changed(Poller *poller, int fd);

/* These return NULL or -1 with an exception. */
Descriptor *poller_descriptor(Poller *poller, int fd);
int poller_arm(Dispatcher *d, int fd);                                  /* ask the kernel for the next event */
int poller_arm_or_go_on(Dispatcher *d, int fd);                         /* the same; what can be read already is ready at once */
int poller_set_special(Poller *poller, int fd, PyObject *action);       /* NULL: none any more */

/* This thread, the loop's (`home`) or another, is about to wait for events, or to rest. */
void poller_begins_to_poll(Poller *poller, bool home);
void poller_begins_to_rest(Poller *poller, bool home);

/* Ask the kernel what has become ready (LOOK), or wait for that (POLL), or until this thread is called (REST); so many seconds, -1:
 * for ever.  The main thread's signals that are not in `open` come in meanwhile: -1 also with what a handler has
 * raised.  1: the watchdog has ended the wait, and nothing else.  Requires: this thread counts as one that polls, or rests, if it does. */
typedef enum { LOOK, POLL, REST } Waiting;
int poller_poll(Dispatcher *d, Waiting how, double seconds, bool home, const sigset_t *open);

/* The program's handlers of signals that are not in `open`, and have come meanwhile, run. -1 with what one has raised. */
int let_signals_in(const sigset_t *open);

/* check_pollable(fd), for Python: raises OSError, as epoll_ctl(2) does. */
PyObject *check_pollable(PyObject *module, PyObject *fd);

#endif
