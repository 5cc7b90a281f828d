#include "restraint.h"

#define WINDOW 0.05         /* seconds over which callbacks are counted */
#define STALE (4 * WINDOW)  /* in so long a window there was too little to do */
#define GAIN 1.25           /* all threads are worth it if they run so many times as many: they take so many times the processor's time */
#define SHORTEST 0.5
#define LONGEST 8.0

static void
settle(Restraint *r, double now, double with_settled)
{
    bool all = r->settled ? with_settled > GAIN * r->tried : r->tried > GAIN * with_settled;
    r->keep = all != r->settled || r->keep == 0 ? SHORTEST : r->keep < LONGEST ? 2 * r->keep : r->keep;
    r->settled = all;
    r->until = now + r->keep;
    r->at = KEEPS;
}

/* A window is over, in which there was always something to do.  The trial is compared with the windows on both sides of it, for how fast
 * all goes varies with what else the machine is doing; and only once what it has switched to has begun to do its best. */
static void
window_over(Restraint *r, double now, double rate)
{
    switch (r->at) {
    case KEEPS:
        if (now >= r->until)
            r->at = BEFORE_TRIAL;
        return;
    case BEFORE_TRIAL:
        r->before = rate;
        r->at = SWITCHED;
        return;
    case SWITCHED:
        r->at = TRIAL;
        return;
    case TRIAL:
        r->tried = rate;
        r->at = SWITCHED_BACK;
        return;
    case SWITCHED_BACK:
        r->at = AFTER_TRIAL;
        return;
    case AFTER_TRIAL:
        settle(r, now, (r->before + rate) / 2);
        return;
    }
}

bool
restraint_look(Restraint *r, double now, uint64_t callbacks)
{
    double passed = now - r->begun;
    if (passed < WINDOW)
        return r->all;
    if (passed > STALE)
        r->at = KEEPS;
    else
        window_over(r, now, (double)(callbacks - r->callbacks) / passed);
    r->all = r->settled != (r->at == SWITCHED || r->at == TRIAL);
    r->begun = now;
    r->callbacks = callbacks;
    return r->all;
}
