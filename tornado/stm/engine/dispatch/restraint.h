/* Is what is prompt worth a second thread?
 *
 * Where one thread alone is at work nobody takes its cache lines, and nothing that it uses, and what has always been prompt is sequential
 * (dispatcher.c).  What several threads gain over that depends on the program, on their number, and on what else the machine is doing.
 * So it is found out: while more prompt callbacks wait than one thread is done with at once, it is tried now and then how many a second
 * one thread runs and how many all do, and what is more is kept.  Callbacks are counted and not transactions, since what is sequential
 * runs more of them in each.  A load of another kind, known by another rate, is tried at once.  Compare Didona, Felber, Harmanci,
 * Romano & Schenker, "Identifying the optimal level of parallelism in transactional memory applications", 2013, which climb that hill
 * step by step; here only its two ends are compared.
 */
#ifndef TORNADO_STM_RESTRAINT_H
#define TORNADO_STM_RESTRAINT_H

#include "../core/base.h"

/* Times are in seconds, of a clock that never goes back; rates are callbacks a second.  Zeroed: one thread, nothing known. */
typedef struct {
    bool all;               /* now all threads are called for what is prompt; else one does it */
    bool settled;           /* what was found to be more last: as `all` */
    enum { KEEPS, BEFORE_TRIAL, SWITCHED, TRIAL, SWITCHED_BACK, AFTER_TRIAL } at;   /* `all` is as settled, but for SWITCHED and TRIAL */
    double begun;           /* of the present window */
    uint64_t callbacks;     /* that had run by then */
    double before, tried;   /* rates of those windows; while it is SWITCHED, `tried` is that of the window before, INFINITY in the first */
    double usual, lately;   /* rates of what was found, on the whole and in the last windows */
    int in_a_row;           /* so many trials, the last ones, spoke for a change; fewer than it takes */
    int keep;               /* what was found is kept for so many windows */
    int left;               /* so many more windows of what it is at than this one: KEEPS, SWITCHED or SWITCHED_BACK */
} Restraint;

/* Much that is prompt waits: are others called for it?  `callbacks`: so many have run. */
bool restraint_look(Restraint *r, double now, uint64_t callbacks);

/* Are others called for what is prompt, as far as somebody has looked lately?  Where little waits, nobody looks. */
bool restraint_calls_all(const Restraint *r, double now);

#endif
