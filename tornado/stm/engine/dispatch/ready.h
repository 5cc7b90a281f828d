/* The dispatch order: what is expected to be over soon runs before what is expected to compute for long.
 *
 * Transactions wait in two lines, both first come, first served.  What waits in the *prompt* line runs first; a transaction goes to
 * the *long* line if those like it have lately taken at least LONG seconds of processor time (sites.h).  So a trivial request
 * waits until one of the threads ends what it is at, not for all the computing that others have asked for before.
 *
 * What is expected to run alone waits in a line of its own, the *gathered*: one thread runs all that is there in a row, while the others
 * run nothing (dispatcher.c).  What is expected to have to run on that thread, beside the others, waits in another, the *anchored*: to that
 * thread it is a part of the prompt line.  Where nothing has taken long lately, it is gathered: it costs less alone, and keeps nobody from
 * anything.
 *
 * What is guaranteed:
 *
 * - No long transaction starves.  While some wait, their line is owed as much time as the threads spend on prompt ones; what it is
 *   owed goes before the prompt line.  So they get at least half of all time, in the order in which they came.
 * - A transaction is never dispatched before its predecessor, and it does not wait for long for that with a thread in its hands: it is
 *   put off, waits aside, and comes back before all others when that has run; with it what had to wait for it.
 * - The guess decides on the order only.  A wrong one costs time: a long transaction that was expected to be prompt delays what
 *   waits behind it once, and so does the other way round the transaction itself.
 */
#ifndef TORNADO_STM_READY_H
#define TORNADO_STM_READY_H

#include "sites.h"

typedef struct Entry Entry;

typedef struct {
    Entry *first, *last;
    Py_ssize_t n, n_prompt;
} Line;

/* What descends from one event, from the timers of one moment or from one call of another thread: its callbacks run in the order in which they
 * have been scheduled, as if nothing else ran, however many threads do.  Each commits after the one that was ready before it.  But what is not
 * expected to be short begins one of its own: what is does not wait behind it.
 *
 * Invariants.  So many of it are made, wait or run, and so many `holders` may have more join it: it goes with the last of them.  What joins it
 * comes after `last`, unless that has run (NULL). */
typedef struct Strand {
    Py_ssize_t n, holders;
    Entry *last;                /* borrowed */
    uint64_t number;            /* no other one has had that */
} Strand;

/* Invariants.  While `line` is set it waits there, the line owns it, and `next` is what waits behind it, or NULL; while it is made and waits
 * in no line yet (`is_fresh`), whoever has it may use that.  `before` is what must have been dispatched first, or NULL; also once it has
 * been.  It is of a `strand` from when it joins one until it has run.  So many wait aside for it as `holds_up` says; what waits aside goes
 * `back` to that line. */
struct Entry {
    PyObject_HEAD
    PyObject *transaction;      /* NULL: it has run */
    PyObject *site;             /* Site or None */
    Entry *before, *next;
    Strand *strand;
    Line *line, *back;
    double expected;            /* seconds */
    Py_ssize_t holds_up;
    uint64_t question;          /* that is open until it has run, or 0 (answers.h) */
    unsigned round;             /* of its strand: what one schedules is of the next, as if the loop ran what is ready round by round */
    bool is_fresh;
    bool follows_event;         /* something of the descriptor's last event is still to run: what this one schedules comes after that */
    bool is_prompt;              /* known to be, when it came */
    bool moves_not;             /* the loop's thread has not come for it for long: it runs where it is taken */
    PyObject *why_alone;        /* it is gathered: for that reason such ones have had to run alone; else NULL */
};

/* All but `estimates` is for who has the dispatcher's lock.
 *
 * Invariants.  What waits in the prompt line and has to come after something that waits comes after it in that line, or after what is
 * anchored; what waits in the long line, or in one of those for the loop's thread, may be dispatched unless it has to come after what
 * waits in another line, or further ahead in its own.  What waits aside comes after its `before`, which runs, or is fresh,
 * anchored or aside, too. */
typedef struct {
    PyObject_HEAD
    Line prompt, long_ones, gathered, anchored, aside;
    double owed;                /* seconds that the threads have given to prompt ones while long ones waited */
    uint64_t stopped;           /* the number of a strand of which only what is of that round, or an earlier one, can be taken; 0: of none */
    unsigned stopped_in;
    bool gathers;               /* there are lines for the loop's thread: else all is prompt, or long */
    uint64_t callbacks;         /* so many have run, also where one transaction ran several */
    uint64_t ran, long_ran;     /* so many transactions; by when one had taken LONG last */
    Estimates *estimates;
} ReadyQueue;

extern PyTypeObject Entry_Type, ReadyQueue_Type;

int ready_init(PyObject *module);       /* -1 with an exception */

ReadyQueue *ready_new(void);

/* Make function(*args) one transaction that commits after that of `before` (or NULL); `site` is a Site or None. A new reference. No
 * code of Python runs in these, but for what may die in ready_clear(). */
Entry *ready_make(ReadyQueue *q, PyObject *function, PyObject *args, PyObject *site, Entry *before);
/* It is one of that strand, or (NULL) the first of a new one.  `last`: what joins the strand from here on comes after it.  -1 with an exception. */
int strand_join(Strand *strand, Entry *entry, bool last);
/* Hold that one (or NULL) in the place of another one (or NULL). */
void strand_hold(Strand **held, Strand *strand);
/* It waits.  Takes the reference. */
void ready_place(ReadyQueue *q, Entry *entry);
/* The loop is about to run: all that waits is of its first round. */
void ready_begin(ReadyQueue *q);
/* That one, which is running, stops the loop, in a round that is so many behind its own: what is of the next ones is left over; NULL: all that
 * waits may run. */
void ready_stop(ReadyQueue *q, Entry *running, unsigned behind);
bool is_of_next_rounds(ReadyQueue *q, Entry *entry);        /* of those that are left over then */
int ready_put_first(ReadyQueue *q, PyObject *function, PyObject *args);     /* before all others; -1 with an exception */
Entry *ready_take(ReadyQueue *q, uint64_t until, bool on_anchor);   /* the next with an age below that, which the caller owns; or NULL */
Entry *ready_take_anchored(ReadyQueue *q, uint64_t until);      /* the same of those that the loop's thread should take */
Entry *ready_take_gathered(ReadyQueue *q, uint64_t until);      /* the same of those alone */
Entry *ready_take_prompt(ReadyQueue *q, uint64_t until);         /* the next prompt one, if that is known to be */
/* The next for who gathers: of those to be gathered, or of those that are known to be prompt, whichever has waited longer. */
Entry *ready_take_in_gathering(ReadyQueue *q, uint64_t until);
bool ready_has_gathered(ReadyQueue *q, uint64_t until);         /* is there one that can be taken? */
/* This thread has run it, with so many seconds of processor time, while so many passed: learn from that, and from its followers. */
void ready_ran(ReadyQueue *q, Entry *entry, double used, double passed);
void ready_put_off(ReadyQueue *q, Entry *entry);    /* it has been taken, and its `before` has not run, or not when it asked, or it moves */
void ready_clear(ReadyQueue *q);

Entry *ready_youngest(ReadyQueue *q);       /* of those that wait, borrowed, or NULL */

/* So many can be taken, or soon. */
static inline Py_ssize_t
ready_length(ReadyQueue *q)
{
    return q->prompt.n + q->long_ones.n + q->gathered.n + q->anchored.n;
}

/* Does any wait that would run before a prompt one?  Also without the lock: now, or a moment ago. */
static inline bool
ready_has_prompt(ReadyQueue *q)
{
    return _Py_atomic_load_ssize_relaxed(&q->prompt.n) + _Py_atomic_load_ssize_relaxed(&q->gathered.n) > 0;
}

/* All that waits was known to be prompt when it came. */
bool ready_is_known_prompt(ReadyQueue *q);
/* Does something wait that a gathering does not take: on the loop's thread, or behind something else? */
bool ready_leaves_some(ReadyQueue *q);

/* Nothing has taken long for long. */
#define QUIET 1000
static inline bool
ready_only_prompt(ReadyQueue *q)
{
    return q->ran - q->long_ran >= QUIET;
}

static inline bool
ready_only_long(ReadyQueue *q)
{
    return !ready_has_prompt(q) && q->long_ones.n > 0;
}

/* Of one that this thread runs: is it what was scheduled last in its strand, also by what comes before it?  Then what it schedules comes next.
 * Without the lock; in this order, for what comes before it schedules until it has run. */
static inline bool
is_last_of_strand(const Entry *entry)
{
    const Strand *strand = entry->strand;
    bool first = entry->before == NULL || _Py_atomic_load_ptr_acquire(&entry->before->transaction) == NULL;
    return (first && _Py_atomic_load_ptr_relaxed(&strand->last) == entry) || _Py_atomic_load_ssize_relaxed(&strand->n) == 1;
}

/* It waits, or runs.  Without the lock: now, or a moment ago. */
static inline bool
is_to_run(Entry *entry)
{
    return entry != NULL && _Py_atomic_load_ptr_relaxed(&entry->transaction) != NULL;
}

#endif
