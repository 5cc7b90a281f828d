#include "restraint.h"

#define WINDOW 0.05         /* seconds over which transactions are counted */
#define STALE (4 * WINDOW)  /* in so long a window there was too little to do */
#define GAIN 1.05           /* all threads are worth it if they begin so many times as many */
#define SHORTEST 0.5
#define LONGEST 8.0

static void
compare(Restraint *r, double now, double rate)
{
    bool all = r->all ? rate > GAIN * r->settled_rate : r->settled_rate > GAIN * rate;
    r->keep = all != r->settled || r->keep == 0 ? SHORTEST : r->keep < LONGEST ? 2 * r->keep : r->keep;
    r->settled = r->all = all;
    r->trial = false;
    r->until = now + r->keep;
}

bool
restraint_look(Restraint *r, double now, uint64_t runs)
{
    double passed = now - r->begun;
    if (passed < WINDOW)
        return r->all;
    double rate = (double)(runs - r->runs) / passed;
    if (passed > STALE) {
        r->trial = false;
        r->all = r->settled;
    }
    else if (r->trial)
        compare(r, now, rate);
    else if (now >= r->until) {
        r->settled_rate = rate;
        r->trial = true;
        r->all = !r->settled;
    }
    r->begun = now;
    r->runs = runs;
    return r->all;
}
