#include "restraint.h"

#include <math.h>

#define WINDOW 0.05         /* seconds over which callbacks are counted */
#define STALE (4 * WINDOW)  /* in so long a window there was too little to do */
#define SETTLING 3          /* windows: so long it takes until what it has switched to does its best */
#define GAIN 1.25           /* all threads are called if they run so many times as many as one: they take more of the processors' time */
#define LEAST_GAIN 1.1      /* and no longer if they run less than so many times as many */
#define TRIALS 3            /* so many in a row must say so; each may be mistaken, for what there is to do comes in bursts; */
#define FEW 6000.0          /* but one is enough for all threads if one runs less than so many a second: what takes that long has much to */
                            /* gain, and a window is over after few of them; and for one thread if it runs more */
#define LOSS 0.8            /* a trial has lost clearly if what is tried runs less than so many times as many; */
#define ALL_LOSE LOSS       /* that of all threads is over once it has lost so much twice in a row, */
#define ONE_LOSES 0.7       /* that of one thread so much, for it takes longer to settle */
#define SHORTEST 10         /* windows from one trial to the next at first; then twice as many, or */
#define CLEARLY 4           /* so many times as many where it has lost clearly, up to */
#define LONGEST 160
#define FAR 2.5             /* a load of another kind has so many times the rate that was usual, or the other way round, */
#define LATELY 4            /* on an average of about so many windows: in one, there was a burst, or the machine did something else */
#define MEMORY 128          /* and what is usual on one of so many */

/* A trial is over. `after`: the rate after it. */
static void
judge(Restraint *r, double after)
{
    double as_settled = (r->before + after) / 2;
    bool was = r->settled;
    bool gains = was ? as_settled < LEAST_GAIN * r->tried : r->tried > GAIN * as_settled;
    bool takes_long = (was ? r->tried : as_settled) < FEW;
    r->in_a_row = gains ? r->in_a_row + 1 : 0;
    if (r->in_a_row >= (was == takes_long ? TRIALS : 1)) {
        r->settled = !was;
        r->in_a_row = 0;
    }
    if (gains || r->keep == 0)
        r->keep = SHORTEST;
    else {
        r->keep *= r->tried < LOSS * as_settled ? CLEARLY : 2;
        if (r->keep > LONGEST)
            r->keep = LONGEST;
    }
    r->left = r->keep;
    r->at = KEEPS;
    r->usual = r->lately = r->settled == was ? as_settled : r->tried;
}

/* Is there now, or was there until a moment ago, too little to do for a judgement? */
static bool
is_stale(const Restraint *r, double now)
{
    return now - r->begun > STALE;
}

static bool
are_far_apart(double rate, double other)
{
    return rate > FAR * other || other > FAR * rate;
}

/* What was found is kept; the window that is over had such a rate.  Is that of a load of which nothing has been found? */
static bool
is_of_another_kind(Restraint *r, double rate)
{
    r->usual += (rate - r->usual) / MEMORY;
    r->lately += (rate - r->lately) / LATELY;
    return are_far_apart(r->lately, r->usual);
}

/* A window is over, in which there was always something to do.  The trial is compared with the windows on both sides of it, for how fast
 * all goes varies with what else the machine is doing. */
static void
window_over(Restraint *r, double rate)
{
    if (r->at == KEEPS && is_of_another_kind(r, rate)) {
        r->left = 0;
        r->usual = r->lately;
    }
    if (r->at == SWITCHED && fmax(rate, r->tried) < (r->settled ? ONE_LOSES : ALL_LOSE) * r->before) {
        r->at = TRIAL;      /* this window tells enough */
        r->left = 0;
    }
    if (r->left > 0) {
        if (r->at == SWITCHED)
            r->tried = rate;
        r->left--;
        return;
    }
    switch (r->at) {
    case KEEPS:
        r->at = BEFORE_TRIAL;
        return;
    case AFTER_TRIAL:
        if (!are_far_apart(rate, r->before)) {
            judge(r, rate);
            return;
        }
        /* fall through: a load of another kind has come meanwhile, so the trial says nothing; this window is the first of another one */
    case BEFORE_TRIAL:
        r->before = rate;
        r->tried = INFINITY;
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
    }
}

bool
restraint_look(Restraint *r, double now, uint64_t callbacks)
{
    double passed = now - r->begun;
    if (passed < WINDOW)
        return r->all;
    if (is_stale(r, now)) {
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

bool
restraint_calls_all(const Restraint *r, double now)
{
    return r->all && !is_stale(r, now);
}
