#include "restraint.h"

#define WINDOW 0.05         /* seconds over which callbacks are counted */
#define STALE (4 * WINDOW)  /* in so long a window there was too little to do */
#define SETTLING 3          /* windows: so long it takes until what it has switched to does its best */
#define GAIN 1.25           /* all threads are called if they run so many times as many as one: they take more of the processors' time */
#define TRIALS 3            /* if so many in a row say so; each may be mistaken, for what there is to do comes in bursts; */
#define FEW 6000.0          /* but one is enough if one thread runs less than so many a second: what takes that long has much to gain */
#define LEAST_GAIN 1.1      /* and no longer once a trial says that they run less than so many times as many */
#define SHORTEST 10         /* windows */
#define LONGEST 160

/* A trial is over. `after`: the rate after it. */
static void
judge(Restraint *r, double after)
{
    double as_settled = (r->before + after) / 2;
    bool change = r->settled ? as_settled < LEAST_GAIN * r->tried : r->tried > GAIN * as_settled;
    if (!change)
        r->in_a_row = 0;
    else if (r->settled || (r->in_a_row += as_settled < FEW ? TRIALS : 1) >= TRIALS) {
        r->settled = !r->settled;
        r->in_a_row = 0;
    }
    r->keep = change || r->keep == 0 ? SHORTEST : r->keep < LONGEST ? 2 * r->keep : r->keep;
    r->left = r->keep;
    r->at = KEEPS;
}

/* A window is over, in which there was always something to do.  The trial is compared with the windows on both sides of it, for how fast
 * all goes varies with what else the machine is doing. */
static void
window_over(Restraint *r, double rate)
{
    if (r->left > 0) {
        r->left--;
        return;
    }
    switch (r->at) {
    case KEEPS:
        r->at = BEFORE_TRIAL;
        return;
    case BEFORE_TRIAL:
        r->before = rate;
        r->at = SWITCHED;
        r->left = SETTLING - 1;
        return;
    case SWITCHED:
        r->at = TRIAL;
        return;
    case TRIAL:
        r->tried = rate;
        r->at = SWITCHED_BACK;
        r->left = SETTLING - 1;
        return;
    case SWITCHED_BACK:
        r->at = AFTER_TRIAL;
        return;
    case AFTER_TRIAL:
        judge(r, rate);
        return;
    }
}

bool
restraint_look(Restraint *r, double now, uint64_t callbacks)
{
    double passed = now - r->begun;
    if (passed < WINDOW)
        return r->all;
    if (passed > STALE) {
        if (r->at != KEEPS)
            r->left = 0;
        r->at = KEEPS;
        r->in_a_row = 0;
    } else
        window_over(r, (double)(callbacks - r->callbacks) / passed);
    r->all = r->settled != (r->at == SWITCHED || r->at == TRIAL);
    r->begun = now;
    r->callbacks = callbacks;
    return r->all;
}
