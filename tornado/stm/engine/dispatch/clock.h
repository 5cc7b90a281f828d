/* The processor time of a thread, cheaply: the kernel is asked at most every UNASKED seconds.
 *
 * In between, what passes counts as used, so a reading is too large by less than that. For one thread it never goes back.  What is measured by it
 * decides on the order only.
 */
#ifndef TORNADO_STM_CLOCK_H
#define TORNADO_STM_CLOCK_H

#include <time.h>

#define UNASKED 0.00025

/* Of a thread; zeroed: the kernel has not been asked yet. Invariant: at `asked` of the monotonic clock it had used `used`. */
typedef struct {
    double asked, used, shown;      /* in seconds */
    double now;                     /* of the monotonic clock, when it was read last */
} ThreadClock;

static inline double
seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* In seconds. */
static inline double
clock_read(ThreadClock *clock)
{
    double now = clock->now = seconds_of(CLOCK_MONOTONIC);
    if (now - clock->asked >= UNASKED) {
        double used = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        if (used < clock->used)
            clock->shown = 0.0;     /* this thread has the descriptor of one that has ended */
        clock->used = used;
        clock->asked = now;
    }
    double read = clock->used + (now - clock->asked);
    if (read > clock->shown)
        clock->shown = read;
    return clock->shown;
}

#endif
