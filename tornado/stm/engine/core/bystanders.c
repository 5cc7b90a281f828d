/* Bystanders: threads that run code of the program's outside of transactions.
 *
 * What they read and write nobody locks or logs, so an object that an attempt has found may die by them while its frames use it: it
 * would have been counted that these do.  So nothing is borrowed (borrowed.c) while there is a bystander.
 *
 * Bystanders are the threads of an executor, and whatever else runs Python code that is not trusted, outside of transactions, while it does;
 * a thread that waits in the midst of such code, too.  The thread that runs a loop or a queue is none meanwhile.
 *
 * Invariant.  While a bystander goes on, no attempt's `borrows` is set.  An attempt sets it before it looks for bystanders; a
 * bystander counts itself before it looks for that.  Attempts that are at work then are waited for, and after a while doomed: those
 * may never end.
 *
 * For a while after a thread has come or gone nothing is borrowed: so who starts many waits for few attempts.  So it is, too, when the
 * interpreter has made another thread's state: C code has that done which calls back from a thread of its own.  (If it
 * changes the program's objects without running Python code, and at once, an attempt at work then is not protected.)
 */
#include "bystanders.h"

#include "contention.h"
#include "park.h"
#include "tx.h"
#include "upcalls.h"

#include <unistd.h>

#define PATIENCE 50000000ull    /* ns that a bystander waits for attempts before they are doomed */
#define LOOK_US 50
#define UNREST 100              /* attempts that borrow nothing */

_Thread_local bool stm_stands_by;
static _Atomic int bystanders, unrest;
static _Atomic int unrest_at_first = UNREST;
static _Atomic uint64_t states_made;    /* of threads, by the interpreter, when somebody looked last */
static int others_before;

static void
await_borrowers(void)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o == NULL || o == stm_self || !atomic_load(&o->borrows))
            continue;
        uint64_t attempt = attempt_of(o), since = now_ns();
        bool patient = true;
        PyThreadState *ts = PyEval_SaveThread();
        while (atomic_load(&o->borrows) && attempt_of(o) == attempt) {
            usleep(LOOK_US);
            if (patient && now_ns() - since > PATIENCE) {
                patient = false;
                PyEval_RestoreThread(ts);
                contention_hasten(o, attempt);
                ts = PyEval_SaveThread();
            }
        }
        PyEval_RestoreThread(ts);
    }
}

static void
stand_by(void)
{
    stm_stands_by = true;
    atomic_fetch_add(&bystanders, 1);
    await_borrowers();
}

bool
there_are_bystanders(void)
{
    return atomic_load_explicit(&bystanders, memory_order_relaxed) > 0;
}

void
bystander_begins(void)
{
    atomic_store(&unrest, atomic_load(&unrest_at_first));
    stand_by();
}

void
bystander_ends(void)
{
    stm_stands_by = false;
    atomic_fetch_sub(&bystanders, 1);
}

bool
bystander_steps_in(void)
{
    bool stood_by = stm_stands_by;
    if (stood_by)
        bystander_ends();
    return stood_by;
}

void
bystander_steps_back(bool stood_by)
{
    if (stood_by)
        stand_by();
}

static bool
is_restless(void)
{
    uint64_t made = stm_upcalls->states_made();
    if (UNLIKELY(made != atomic_load_explicit(&states_made, memory_order_relaxed))) {
        atomic_store(&states_made, made);
        atomic_store(&unrest, atomic_load(&unrest_at_first));
    }
    int left = atomic_load(&unrest);
    if (LIKELY(left == 0))
        return false;
    atomic_compare_exchange_strong(&unrest, &left, left - 1);
    return true;
}

void
borrowing_begins(Tx *tx)
{
    tx->borrowed = false;
    atomic_store(&tx->borrows, true);
    if (UNLIKELY(is_restless() || atomic_load(&bystanders) > 0))
        atomic_store(&tx->borrows, false);
}

void
borrowing_ends(Tx *tx)
{
    atomic_store_explicit(&tx->borrows, false, memory_order_release);
}

void
bystanders_init(int others)
{
    others_before = others;
    stm_stands_by = true;
    atomic_store(&bystanders, others + 1);
}

void
bystanders_forget(void)
{
    atomic_fetch_sub(&bystanders, others_before);
    others_before = 0;
    atomic_store(&unrest_at_first, 0);
    atomic_store(&unrest, 0);
}

void
bystanders_in_child(void)
{
    others_before = 0;
    atomic_store(&bystanders, stm_stands_by);
}
