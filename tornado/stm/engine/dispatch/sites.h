/* What a transaction is expected to take is told by its *site*: which callback it runs, of what, and for the step of a task which
 * coroutine, with which plain arguments, and where it waits.  The last two runs of a site decide together (one alone may have been the first, or
 * unlucky); an unknown site is expected to do what its kind does: the same function on the same class.  Compare
 * "multilevel feedback queue" (Corbato, Daggett & Daley, "An experimental time-sharing system", 1962), which learns of a
 * process what this learns of a site.
 */
#ifndef TORNADO_STM_SITES_H
#define TORNADO_STM_SITES_H

#include "../core/base.h"

/* Seconds of processor time: from which on a transaction is long; below which a callback that waits for nothing but a future is
 * worth no transaction of its own. */
#define LONG 0.005
#define SHORT 0.001

/* A site, by hashes of what tells it from others: two with the same hashes are taken for one, which only makes for wrong guesses.
 * Immutable. */
typedef struct {
    PyObject_HEAD
    uint64_t kind, which;       /* `which` covers the kind, too */
} Site;

extern PyTypeObject Site_Type, Estimates_Type;

int sites_init(PyObject *module);       /* -1 with an exception */

/* site_of(handle): the Site of a callback, or None if the handle is none of asyncio's. */
PyObject *site_of(PyObject *module, PyObject *handle);

/* Does an asyncio handle tell somebody of a future, and nothing else? */
bool tells_of_future(PyObject *handle);

/* Does it begin the coroutine of a task? */
bool begins_task(PyObject *handle);

/* set_short(seconds): a test hook, in the place of SHORT; what is known not to be long takes as many times that as else. */
PyObject *set_short(PyObject *module, PyObject *seconds);

/* A hash of where a suspended coroutine waits: of its place in its code, and in that of what it awaits, and so on. */
uint64_t place_of_wait(PyObject *coroutine);

bool is_site(PyObject *o);      /* a Site or None? Else TypeError is set */

typedef struct Estimates Estimates;

/* `site` is a Site or None.  Learning is for one thread at a time; others may ask meanwhile. */
Estimates *estimates_new(void);
double expected_of(Estimates *estimates, PyObject *site);       /* seconds */
bool is_expected_short(Estimates *estimates, PyObject *site);   /* or nothing is known of it */
bool is_known_short(Estimates *estimates, PyObject *site);
bool is_known_prompt(Estimates *estimates, PyObject *site);     /* the same, of what is not long */
/* None of its last runs, which were many, has been long, nor has one of the last few waited for so long. */
bool is_always_prompt(Estimates *estimates, PyObject *site);
void learn(Estimates *estimates, PyObject *site, double used, double passed);   /* of processor time; by the clock */

/* Is a transaction of that kind expected to have to run alone, and to compute little before?  Why it had to last, as stats() tells it, borrowed;
 * else NULL.  With learn_alone() for one thread at a time. */
PyObject *why_alone(Estimates *estimates, PyObject *site);

bool is_gathered(Estimates *estimates, PyObject *site);     /* the same question; for all threads */

/* Has a transaction of that kind had to run on the loop's thread, beside others (../calls/fiber.c), in most of its runs? For all threads. */
bool is_anchored(Estimates *estimates, PyObject *site);
void learn_anchored(Estimates *estimates, PyObject *site, bool anchored);      /* it has run, and had to, or had not */

/* It has run.  `why`: it had to run alone, and found that out after so many seconds of processor time; NULL: it had not.  `gathered`: it
 * has run alone since that was expected, so nobody knows. */
void learn_alone(Estimates *estimates, PyObject *site, PyObject *why, double before, bool gathered);

#endif
