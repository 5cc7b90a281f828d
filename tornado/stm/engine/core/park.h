/* Threads that wait: they sleep until what they wait for may have changed.
 *
 * A thread that has looked on in vain sleeps on a futex of its own, after it has said what for; who changes what
 * somebody may be waiting for wakes those.  Both fence between their store and their look at the other's (Dekker).
 */
#ifndef TORNADO_STM_PARK_H
#define TORNADO_STM_PARK_H

#include "tx.h"

/* What a thread waits for, besides (in the bits above these) the end of the attempt of the thread in that slot. */
enum { PARK_OTHERS = 1, PARK_TOKEN = 2, PARK_GATE = 4, PARK_ORDER = 8, PARK_IDLE = 128 };

#define SPINS 100
/* Wake-ups are exact; who waits for a doomed one looks at it that often. */
#define NAP_NS 2000000L
#define LONG_NAP_NS 100000000L

typedef bool (*Condition)(Tx *tx, void *arg);

uint64_t now_ns(void);      /* of a clock that never goes back */

/* Spin for a moment, then sleep, detached, until the condition holds: when there is something to be done. */
void await(Tx *tx, uint32_t reason, Condition holds, void *arg);

/* Sleep once, until somebody wakes this thread or that much time has passed. It has waited since then. */
void nap(Tx *tx, uint32_t reason, long ns, Condition holds, void *arg, uint64_t since);

/* The attempt of that thread (0: none) has ended, or that has changed. */
void wake(int slot, uint32_t what);
void unpark(Tx *o);
/* Those in an attempt, who may have to abort it. */
void wake_attempts(void);
/* Those between attempts: they look whether they are asked for something. */
void wake_idle(void);

void park_in_child(void);

#endif
