/* What every part of the engine begins with. */
#ifndef TORNADO_STM_BASE_H
#define TORNADO_STM_BASE_H

#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define MAX_THREADS 128

typedef struct Tx Tx;                       /* what the engine knows of a thread: tx.h */
typedef struct Transaction Transaction;     /* transaction.h */
typedef struct Queue Queue;                 /* queue.h */

/* Where something in the program is (proflog.h); NULL: not known. */
typedef struct Place Place;
typedef const Place *_Atomic Location;

/* Others read these counts at any time and order nothing by them. */
static inline void
count_more(_Atomic uint64_t *n, uint64_t more)
{
    uint64_t now = atomic_load_explicit(n, memory_order_relaxed);
    atomic_store_explicit(n, now + more, memory_order_relaxed);
}

static inline void
count_one(_Atomic uint64_t *n)
{
    count_more(n, 1);
}

#endif
