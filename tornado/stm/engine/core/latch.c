#include "latch.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 100

/* It is attached again before it has the latch: to be attached may mean to wait until others have the interpreter's structures in
 * order, for whom a latch would be in the way. */
void
latch_await(Latch *latch)
{
    for (int i = 0; i < LOOKS; i++) {
        uint32_t free = 0;
        if (atomic_load_explicit(&latch->word, memory_order_relaxed) == 0
            && atomic_compare_exchange_weak_explicit(&latch->word, &free, 1, memory_order_acquire, memory_order_relaxed))
            return;
        __builtin_ia32_pause();
    }
    while (atomic_exchange_explicit(&latch->word, 2, memory_order_acquire) != 0) {
        PyThreadState *ts = PyEval_SaveThread();
        syscall(SYS_futex, &latch->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
        PyEval_RestoreThread(ts);
    }
}

void
latch_wake(Latch *latch)
{
    syscall(SYS_futex, &latch->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
