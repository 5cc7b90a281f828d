/* What a commit tells the kernel in several calls. */
#include "publish.h"

#include "park.h"

/* An action may wait for what the receiver has, a lock: then the receiver does not wait for ever. */
#define PATIENCE_NS 1000000000ull

/* Invariant: `ended` never exceeds `begun`.  So they are equal only where no commit is amid its actions. */
static _Alignas(64) struct { _Atomic uint64_t begun, ended; } commits;

PyObject *unnoticed_action;

bool
are_several(PyObject *actions)
{
    int noticed = 0;
    for (Py_ssize_t i = 0; noticed < 2 && i < PyList_GET_SIZE(actions); i++)
        noticed += PyTuple_GET_ITEM(PyList_GET_ITEM(actions, i), 0) != unnoticed_action;
    return noticed > 1;
}

void
publishing_begins(Tx *tx)
{
    atomic_store(&tx->publishing, tx->publishing + 1);
    atomic_fetch_add(&commits.begun, 1);
}

void
publishing_ends(Tx *tx)
{
    if (tx->publishing % 2 == 0)
        return;
    atomic_fetch_add(&commits.ended, 1);
    atomic_store(&tx->publishing, tx->publishing + 1);
    wake(tx->slot, 0);
}

uint64_t
published(void)
{
    return atomic_load(&commits.ended);
}

typedef struct { Tx *publisher; uint32_t turn; uint64_t until; } Awaited;

static bool
is_published(Tx *tx, void *arg)
{
    Awaited *awaited = arg;
    return atomic_load(&awaited->publisher->publishing) != awaited->turn || state_of(tx) == TX_DOOMED || now_ns() > awaited->until;
}

bool
await_published(Tx *tx, uint64_t since)
{
    if (LIKELY(atomic_load(&commits.begun) == since))
        return false;
    uint64_t until = now_ns() + PATIENCE_NS;
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *publisher = atomic_load(&stm_threads[i]);
        uint32_t turn = publisher != NULL ? atomic_load(&publisher->publishing) : 0;
        if (turn % 2 == 1 && publisher != tx)
            await(tx, (uint32_t)publisher->slot << 8, is_published, &(Awaited){publisher, turn, until});
    }
    return true;
}

/* This thread is the only one left. */
void
publish_in_child(void)
{
    atomic_store(&commits.ended, atomic_load(&commits.begun));
}
