/* Threads that wait: they sleep until what they wait for may have changed. */
#include "park.h"

#include "upcalls.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int sleepers;

uint64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void
unpark(Tx *o)
{
    if (atomic_exchange(&o->parked, 0) == 1)
        syscall(SYS_futex, &o->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void
wake(int slot, uint32_t what)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (LIKELY(atomic_load_explicit(&sleepers, memory_order_relaxed) == 0))
        return;
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o == NULL || atomic_load(&o->parked) == 0)
            continue;
        uint32_t reason = atomic_load(&o->parked_for);
        if ((reason & 0xFF & what) || (slot != 0 && reason >> 8 == (uint32_t)slot))
            unpark(o);
    }
}

static void
wake_all(bool idle)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o != NULL && atomic_load(&o->parked) != 0 && !(atomic_load(&o->parked_for) & PARK_IDLE) == !idle)
            unpark(o);
    }
}

void
wake_attempts(void)
{
    wake_all(false);
}

void
wake_idle(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    wake_all(true);
}

void
nap(Tx *tx, uint32_t reason, long ns, Condition holds, void *arg, uint64_t since)
{
    bool in_the_way = stm_upcalls->is_in_the_way(tx);
    PyThreadState *ts = stm_upcalls->sleeps(false);
    atomic_store(&tx->parked_for, reason);
    atomic_store(&tx->parked, 1);
    atomic_fetch_add(&sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (!holds(tx, arg)) {
        struct timespec limit = {0, in_the_way && ns > NAP_NS ? NAP_NS : ns};
        syscall(SYS_futex, &tx->parked, FUTEX_WAIT_PRIVATE, 1, &limit, NULL, 0);
    }
    atomic_fetch_sub(&sleepers, 1);
    atomic_store(&tx->parked, 0);
    stm_upcalls->wakes(ts);
    if (in_the_way)
        stm_upcalls->waits(tx, since);
}

void
await(Tx *tx, uint32_t reason, Condition holds, void *arg)
{
    for (int i = 0; i < SPINS; i++) {
        if (holds(tx, arg))
            return;
        __builtin_ia32_pause();
    }
    uint64_t since = now_ns();
    while (!holds(tx, arg))
        nap(tx, reason, LONG_NAP_NS, holds, arg, since);
}

/* In the child of a fork this thread is the only one. */
void
park_in_child(void)
{
    atomic_store(&sleepers, 0);
}
