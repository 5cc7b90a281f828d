/* Latches: what keeps the engine's own structures whole for a moment (Gray & Reuter, "Transaction Processing", 1993: locks are for
 * transactions, latches for threads).
 *
 * Who finds one taken looks on for a moment, and then sleeps, detached, until it is let go (Drepper, "Futexes Are Tricky", 2011).
 * CPython's PyMutex, which the engine could use instead, gives its processor away forty times before it looks at the mutex again:
 * beside a busy process each of these costs as much as the kernel sees fit.
 *
 * Who has one waits for nothing but another one, and for these in one order.
 */
#ifndef TORNADO_STM_LATCH_H
#define TORNADO_STM_LATCH_H

#include "base.h"

/* 0: free; 1: taken; 2: taken, and somebody may sleep. Zeroed: free. */
typedef struct { _Atomic uint32_t word; } Latch;

void latch_await(Latch *latch);
void latch_wake(Latch *latch);

/* Requires: this thread is attached to the interpreter. */
static inline void
latch_take(Latch *latch)
{
    uint32_t free = 0;
    if (UNLIKELY(!atomic_compare_exchange_strong_explicit(&latch->word, &free, 1, memory_order_acquire, memory_order_relaxed)))
        latch_await(latch);
}

static inline void
latch_give(Latch *latch)
{
    if (UNLIKELY(atomic_exchange_explicit(&latch->word, 0, memory_order_release) == 2))
        latch_wake(latch);
}

#endif
