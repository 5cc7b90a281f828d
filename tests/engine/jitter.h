/* Forced into each file of the engine (-include): now and then a thread lingers before an atomic access.
 *
 * Two threads meet between two such accesses once in millions of transactions; with this, often.  What the operations
 * do is unchanged.
 */
#ifndef JITTER_H
#define JITTER_H

#include <stdatomic.h>

void jitter(void);

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak_explicit
#undef atomic_thread_fence

#define atomic_load_explicit(at, order) (jitter(), __atomic_load_n(at, order))
#define atomic_load(at) atomic_load_explicit(at, memory_order_seq_cst)
#define atomic_store_explicit(at, value, order) \
    __extension__ ({ __auto_type stored = (value); jitter(); __atomic_store_n(at, stored, order); })
#define atomic_store(at, value) atomic_store_explicit(at, value, memory_order_seq_cst)
#define atomic_exchange(at, value) (jitter(), __atomic_exchange_n(at, value, memory_order_seq_cst))
#define atomic_fetch_add_explicit(at, n, order) (jitter(), __atomic_fetch_add(at, n, order))
#define atomic_fetch_add(at, n) atomic_fetch_add_explicit(at, n, memory_order_seq_cst)
#define atomic_fetch_sub(at, n) (jitter(), __atomic_fetch_sub(at, n, memory_order_seq_cst))
#define atomic_compare_exchange_strong(at, expected, value) \
    (jitter(), __atomic_compare_exchange_n(at, expected, value, 0, memory_order_seq_cst, memory_order_seq_cst))
#define atomic_compare_exchange_weak_explicit(at, expected, value, order, failed) \
    (jitter(), __atomic_compare_exchange_n(at, expected, value, 1, order, failed))
#define atomic_thread_fence(order) (jitter(), __atomic_thread_fence(order))

#endif
