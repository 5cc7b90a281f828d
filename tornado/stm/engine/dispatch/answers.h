/* Answers: what the kernel tells after a transaction has sent something, or begun to watch a descriptor, comes after what that has scheduled.
 *
 * On asyncio's loop all that a callback schedules is ready before the loop asks the kernel again, so it runs before anybody is heard whom
 * the callback has told something, by the connection that it has used or by another one, and before a new reader or writer is called.  Here the
 * peer may be faster than the end of the transaction, or than the thread that runs what it has scheduled.
 *
 * So a transaction that sends or watches leaves a *question* open: from when it does, at its commit or alone, until the last short callback
 * that it has scheduled has run.  What the kernel tells meanwhile waits until those that were open then are closed.  A callback that was
 * expected to be short may never return, so after LONGEST seconds nobody waits for it any more.
 */
#ifndef TORNADO_STM_ANSWERS_H
#define TORNADO_STM_ANSWERS_H

#include "../core/base.h"

typedef struct Dispatcher Dispatcher;
typedef struct Entry Entry;

/* Of a thread; zeroed: its transaction has asked nothing. */
typedef struct {
    _Atomic bool something; /* it has; set by that thread */
    uint64_t number;        /* of the question; 0: nothing has been heard since */
    double since;           /* when something first was, by the monotonic clock */
} Sent;

typedef struct {
    uint64_t number;
    double since;
} Question;

/* For who has the dispatcher's lock.  Invariant: those that are open have numbers up to `asked`; their transactions are over, and the last short
 * callback of each is the Entry with its number. */
typedef struct {
    Question *open;
    int n, room;
    uint64_t asked;         /* so many have got a number */
} Questions;

/* This thread's transaction sends, or watches.  Requires: it commits, or runs alone, where it cannot be rolled back.  Without the lock. */
void answers_follow(void);

/* It is over, and this is the last short one that it has scheduled, or NULL. */
void question_goes_on(Questions *questions, Sent *sent, Entry *last);

/* That one has run. */
void question_is_over(Questions *questions, Entry *entry);

/* Are there open ones?  Then what is heard now waits for all up to the number that this returns; else 0. */
uint64_t questions_open(Dispatcher *d);

/* The least number of those that are open; UINT64_MAX: there are none. */
uint64_t questions_oldest(Dispatcher *d);

/* set_longest_question(seconds): a test hook, in the place of LONGEST; returns what it was. */
PyObject *set_longest_question(PyObject *module, PyObject *seconds);

#endif
