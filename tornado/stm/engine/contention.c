/* The contention manager: wound-wait by age, and the two grades of inevitability.
 *
 * Every kind of contention, and what is done about it:
 *
 *  write-write   two transactions want to own one cell;
 *  write-read    one wants to own what the other has read, or to read what the
 *                other owns.
 *      The older one dooms the younger and waits until that has rolled back;
 *      the younger one waits until the older has ended.  So whoever waits,
 *      waits for an older one or for a doomed one: no cycle, no deadlock, and
 *      the oldest transaction of all never waits for long.
 *  inevitable    one is inevitable, or wants to be.
 *      There is one token of inevitability.  Its holder is never doomed.  An
 *      irrevocable holder runs beside the others.  An exclusive one stops new
 *      transactions from beginning and waits until the active ones have ended;
 *      an active one that would have to wait for it, directly or through a
 *      predecessor that cannot begin any more, aborts itself instead.
 *  order         a transaction reaches its commit before its predecessor.
 *      It waits.  Predecessors are older, so this closes no cycle either.
 *
 * A doomed transaction learns of it at its next barrier, while it waits, or,
 * if it has run into neither for a while, by an asynchronous exception.
 */
#include "stm.h"

#include "internal/pycore_pystate.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

static pthread_mutex_t change_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static _Atomic int sleepers;

_Atomic int stm_exclusive_slot;
static _Atomic int token_slot;          /* who holds the token of inevitability */

/* One lock around "is it still doomed?" and the asynchronous exception, so
 * that the exception never reaches a later transaction of that thread. */
static PyMutex async_lock;

#define SPINS 100
#define NAP_NS 2000000L
/* A doomed transaction without a barrier for that many naps is in a loop, not in
 * engine or trusted code, where an exception out of nowhere would do harm. */
#define PATIENCE 25

/* Something that somebody may be waiting for has changed. */
void
wake_waiters(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&sleepers, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&change_lock);
        pthread_cond_broadcast(&change);
        pthread_mutex_unlock(&change_lock);
    }
}

typedef bool (*Condition)(void *arg);

/* Wait, detached, until the condition holds, or a nap's length at most. */
static void
nap_until(Condition holds, void *arg)
{
    PyThreadState *ts = PyEval_SaveThread();
    pthread_mutex_lock(&change_lock);
    atomic_fetch_add(&sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (!holds(arg)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += NAP_NS;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000L;
        }
        pthread_cond_timedwait(&change, &change_lock, &until);
    }
    atomic_fetch_sub(&sleepers, 1);
    pthread_mutex_unlock(&change_lock);
    PyEval_RestoreThread(ts);
}

static inline void
wait_step(int *spins, Condition holds, void *arg)
{
    if (++*spins < SPINS)
        __builtin_ia32_pause();
    else
        nap_until(holds, arg);
}

/* ---- Doom ------------------------------------------------------------------- */

static void
raise_abort(void)
{
    PyErr_SetNone(stm_Abort);
}

static void
doom_self(Tx *tx)
{
    int expected = TX_ACTIVE;
    atomic_compare_exchange_strong(&tx->status, &expected, TX_DOOMED);
    atomic_store(&tx->attention, 1);
}

static int
abort_self(Tx *tx)
{
    doom_self(tx);
    raise_abort();
    return -1;
}

static uint32_t
next_random(Tx *tx)
{
    uint64_t x = tx->inject_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    tx->inject_state = x;
    return (uint32_t)(x >> 16);
}

/* A test hook: let the others go on for a while, or only take their turn. */
void
stm_delay(Tx *tx)
{
    if (next_random(tx) >= stm_delay_rate)
        return;
    uint32_t limit = stm_delay_limit, chosen = next_random(tx);
    PyThreadState *ts = PyEval_SaveThread();
    if (limit == 0 || chosen & 1)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, (long)(chosen % limit) * 1000L}, NULL);
    PyEval_RestoreThread(ts);
}

/* A test hook. The chance halves with each attempt, so that long transactions are
 * aborted at all of their places, the later ones too, and come to their end. */
static bool
abort_injected(Tx *tx)
{
    int attempts = tx->txn != NULL ? tx->txn->attempts : 0;
    return next_random(tx) < (attempts < 32 ? stm_inject_rate >> attempts : 0);
}

/* The slow side of check_doomed(). */
int
stm_attention(Tx *tx)
{
    int status = atomic_load(&tx->status);
    if (status == TX_DOOMED) {
        raise_abort();
        return -1;
    }
    if (tx->releasing == AFTER_ABORT)
        return abort_self(tx);
    if (tx->releasing && tx->grade == GRADE_NONE)
        return become_inevitable(tx, GRADE_EXCLUSIVE, "a finalizer after a commit");
    interruptible(tx);
    if (stm_inject_rate != 0 && status == TX_ACTIVE && !tx->releasing && abort_injected(tx))
        return abort_self(tx);
    return 0;
}

static bool
doom(Tx *o)
{
    int expected = TX_ACTIVE;
    if (!atomic_compare_exchange_strong(&o->status, &expected, TX_DOOMED))
        return false;
    atomic_store(&o->attention, 1);
    wake_waiters();
    return true;
}

/* Reach a doomed transaction that runs a loop without barriers. */
static void
doom_asynchronously(Tx *o, uint64_t serial)
{
    /* Only while it is in instrumented code. Trusted code may hold a lock or an
     * effect that nobody knows of yet; when the other enters it now, the exception
     * comes before its first instruction. */
    PyInterpreterState *interp = PyInterpreterState_Get();
    PyMutex_Lock(&async_lock);
    _PyEval_StopTheWorld(interp);
    if (atomic_load(&o->serial) == serial && atomic_load(&o->status) == TX_DOOMED && o->live) {
        _PyInterpreterFrame *f = o->tstate->current_frame;
        if (f != NULL && f->owner < FRAME_OWNED_BY_INTERPRETER
            && (_PyFrame_GetCode(f)->co_flags & CO_STM_ANY) == CO_STM_INSTRUMENTED)
            PyThreadState_SetAsyncExc(o->thread_id, stm_Abort);
    }
    _PyEval_StartTheWorld(interp);
    PyMutex_Unlock(&async_lock);
}

/* At the end of a doomed attempt: no exception of its doom may arrive later. */
void
contention_clear_async(Tx *tx)
{
    PyMutex_Lock(&async_lock);
    atomic_store(&tx->status, TX_COMMITTING);
    PyThreadState_SetAsyncExc(tx->thread_id, NULL);
    PyMutex_Unlock(&async_lock);
}

/* ---- Waiting for one other transaction ---------------------------------------- */

typedef struct { Tx *tx, *other; uint64_t serial; } Encounter;

static bool
encounter_over(void *arg)
{
    Encounter *e = arg;
    return atomic_load(&e->other->serial) != e->serial
        || atomic_load(&e->tx->status) == TX_DOOMED
        || atomic_load(&stm_exclusive_slot) == e->other->slot;
}

/* Transaction number `serial` of the thread `other_slot` stands in the way:
 * return 0 when it has ended, -1 when this transaction must abort. */
int
contend(Tx *tx, int other_slot, uint64_t serial, int event, const char *other_place)
{
    Tx *o = atomic_load(&stm_threads[other_slot]);
    Encounter e = {tx, o, serial};
    if (stm_log_on)
        log_event(tx, other_slot, event, log_place(tx), other_place);
    if (tx->grade != GRADE_NONE || atomic_load(&tx->age) < atomic_load(&o->age)) {
        if (atomic_load(&o->serial) == serial && doom(o) && stm_log_on)
            log_event(tx, other_slot, LOG_ABORTING_OTHER, NULL, NULL);
    }
    log_if(tx, LOG_WAIT_CONTENTION);
    int spins = 0, result = 0;
    while (atomic_load(&o->serial) == serial) {
        if (atomic_load(&tx->status) == TX_DOOMED) {
            raise_abort();
            result = -1;
            break;
        }
        if (atomic_load(&stm_exclusive_slot) == other_slot) {
            result = abort_self(tx);
            break;
        }
        wait_step(&spins, encounter_over, &e);
        if (spins >= SPINS + PATIENCE && (spins - SPINS) % PATIENCE == 0
            && atomic_load(&o->status) == TX_DOOMED)
            doom_asynchronously(o, serial);
    }
    log_if(tx, LOG_WAIT_DONE);
    return result;
}

/* ---- The order of those that commit at the same time ------------------------------ */

static _Atomic uint64_t next_ticket = 1;

void
take_ticket(Tx *tx)
{
    atomic_store(&tx->ticket, TICKET_CHOOSING);
    atomic_store(&tx->ticket, atomic_fetch_add(&next_ticket, 1));
}

typedef struct { Tx *other; uint64_t serial; } Ending;

static bool
ended(void *arg)
{
    Ending *e = arg;
    return atomic_load(&e->other->serial) != e->serial;
}

/* The other one commits: it ends soon, and waits for nobody with a later ticket. */
void
wait_for_end(Tx *o, uint64_t serial)
{
    Ending e = {o, serial};
    int spins = 0;
    while (!ended(&e))
        wait_step(&spins, ended, &e);
}

/* ---- Commit order ------------------------------------------------------------- */

static bool
predecessor_over(void *arg)
{
    Tx *tx = arg;
    Transaction *p = (Transaction *)tx->txn->predecessor;
    return atomic_load(&p->done) || atomic_load(&tx->status) == TX_DOOMED
        || atomic_load(&stm_exclusive_slot) != 0;
}

int
wait_for_predecessor(Tx *tx)
{
    if (tx->txn == NULL || tx->txn->predecessor == NULL)
        return 0;
    Transaction *p = (Transaction *)tx->txn->predecessor;
    if (atomic_load(&p->done))
        return 0;
    log_if(tx, LOG_WAIT_SYNC_PAUSE);
    int spins = 0, result = 0;
    while (!atomic_load(&p->done)) {
        if (atomic_load(&tx->status) == TX_DOOMED) {
            raise_abort();
            result = -1;
            break;
        }
        if (atomic_load(&stm_exclusive_slot) != 0) {
            result = abort_self(tx);
            break;
        }
        wait_step(&spins, predecessor_over, tx);
    }
    log_if(tx, LOG_WAIT_DONE);
    return result;
}

/* In the child of a fork this thread is the only one. */
void
contention_after_fork(void)
{
    pthread_mutex_init(&change_lock, NULL);
    pthread_cond_init(&change, NULL);
    async_lock = (PyMutex){0};
    atomic_store(&sleepers, 0);
    atomic_store(&token_slot, 0);
    atomic_store(&stm_exclusive_slot, 0);
}

static bool
admitted(void *arg)
{
    (void)arg;
    return atomic_load(&stm_exclusive_slot) == 0;
}

/* ---- Inevitability -------------------------------------------------------------- */

static bool
token_free(void *arg)
{
    Tx *tx = arg;
    return atomic_load(&token_slot) == 0 || atomic_load(&tx->status) == TX_DOOMED
        || atomic_load(&stm_exclusive_slot) != 0;
}

static bool
all_others_over(void *arg)
{
    Tx *tx = arg;
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o != NULL && o != tx && atomic_load(&o->status) != TX_IDLE)
            return false;
    }
    return true;
}

static int
take_token(Tx *tx)
{
    int spins = 0;
    for (;;) {
        int expected = 0;
        if (atomic_compare_exchange_strong(&token_slot, &expected, tx->slot))
            return 0;
        if (atomic_load(&tx->status) == TX_DOOMED) {
            raise_abort();
            return -1;
        }
        if (atomic_load(&stm_exclusive_slot) != 0)
            return abort_self(tx);
        wait_step(&spins, token_free, tx);
    }
}

/* A finalizer runs while the thread drops what an ended transaction held. There
 * is nothing to abort and to begin again, but nothing has been read either: so it
 * steps back to idle and becomes exclusive when its turn comes. */
static void
become_exclusive_from_nothing(Tx *tx)
{
    int spins = 0;
    for (;;) {
        atomic_store(&tx->status, TX_IDLE);
        wake_waiters();
        wait_until_admitted(tx);
        int expected = 0;
        if (atomic_compare_exchange_strong(&token_slot, &expected, tx->slot))
            break;
        wait_step(&spins, token_free, tx);
    }
    atomic_store(&tx->status, TX_INEVITABLE);
}

/* From here on this transaction cannot be aborted: GRADE_IRREVOCABLE goes on
 * beside the others, GRADE_EXCLUSIVE alone. Returns -1 when it has to abort
 * first; the next attempt then begins in the grade asked for. */
int
become_inevitable(Tx *tx, int grade, const char *why)
{
    if (tx->grade >= grade)
        return 0;
    if (tx->releasing == AFTER_ABORT)
        return abort_self(tx);      /* a finalizer of what never was */
    if (stm_log_on)
        log_event(tx, 0, LOG_INEVITABLE, log_place(tx), why);
    if (grade == GRADE_EXCLUSIVE)
        tx->want_exclusive = true;
    if (tx->grade == GRADE_NONE && tx->releasing) {
        become_exclusive_from_nothing(tx);
    }
    else if (tx->grade == GRADE_NONE) {
        if (wait_for_predecessor(tx) < 0)
            return -1;
        log_if(tx, LOG_WAIT_SYNC_PAUSE);
        int got = take_token(tx);
        log_if(tx, LOG_WAIT_DONE);
        if (got < 0)
            return -1;
        int expected = TX_ACTIVE;
        if (!atomic_compare_exchange_strong(&tx->status, &expected, TX_INEVITABLE)) {
            atomic_store(&token_slot, 0);
            wake_waiters();
            raise_abort();
            return -1;
        }
    }
    tx->grade = grade;
    if (tx->paused == 0)
        tx_set_live(tx);
    if (grade == GRADE_EXCLUSIVE) {
        atomic_store(&stm_exclusive_slot, tx->slot);
        atomic_thread_fence(memory_order_seq_cst);
        wake_waiters();
        log_if(tx, LOG_WAIT_SYNC_PAUSE);
        int spins = 0;
        while (!all_others_over(tx))
            wait_step(&spins, all_others_over, tx);
        log_if(tx, LOG_WAIT_DONE);
        count_one(&tx->exclusives);
        order_drop_placeholders(tx);
        if (!tx->releasing)
            order_inserted_keys(tx, NULL);
        /* It will commit: what it has put off can happen now, before what it
         * is about to do at once. */
        run_prepared(tx);
        run_deferred(tx);
        Py_CLEAR(tx->deferred);
    }
    return 0;
}

void
inevitable_end(Tx *tx)
{
    if (tx->grade == GRADE_NONE)
        return;
    if (tx->grade == GRADE_EXCLUSIVE)
        atomic_store(&stm_exclusive_slot, 0);
    tx->grade = GRADE_NONE;
    atomic_store(&token_slot, 0);
    wake_waiters();
}

/* What an exclusive transaction on another thread has the main thread do. There is
 * one such transaction at most, so one request at most. */
static PyObject *_Atomic main_request;
unsigned long stm_main_thread;

int
ask_main(PyObject *request)
{
    PyObject *none = NULL;
    if (!atomic_compare_exchange_strong(&main_request, &none, Py_NewRef(request))) {
        Py_DECREF(request);
        PyErr_SetString(PyExc_RuntimeError, "the main thread has been asked already");
        return -1;
    }
    wake_waiters();
    return 0;
}

int
serve_main(void)
{
    if (atomic_load_explicit(&main_request, memory_order_relaxed) == NULL
        || PyThread_get_thread_ident() != stm_main_thread)
        return 0;
    PyObject *request = atomic_exchange(&main_request, NULL);
    if (request == NULL)
        return 0;
    PyObject *r = PyObject_CallNoArgs(request);
    Py_DECREF(request);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* A transaction begins only while no other one is exclusive. */
void
wait_until_admitted(Tx *tx)
{
    if (admitted(NULL))
        return;
    log_if(tx, LOG_WAIT_SYNC_PAUSE);
    int spins = 0;
    while (!admitted(NULL)) {
        wait_step(&spins, admitted, NULL);
        if (serve_main() < 0)
            PyErr_FormatUnraisable("Exception ignored in a request to the main thread");
    }
    log_if(tx, LOG_WAIT_DONE);
}
