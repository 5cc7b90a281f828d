/* The contention manager: wound-wait by age, and the two grades of inevitability.
 *
 * Every kind of contention, and what is done about it:
 *
 *  write-write   two transactions want to own one cell;
 *  write-read    one wants to own what the other has read, or to read what the
 *                other owns.
 *      Whoever comes second looks on for a moment: most transactions are short.
 *      Then, if it is the older one, it dooms the younger and waits until that has
 *      rolled back; a younger one just waits until the older has ended.  So whoever
 *      waits, waits for an older one or for a doomed one: no cycle, no deadlock.
 *  reserved      an older one waits for the cell that a younger one could have now.
 *      The younger one may go first, but only PATIENT times in all: then those
 *      who want the cell in a mode that conflicts wait until the older one has ended.
 *      So the oldest transaction of all waits for those that hold the cell, and for
 *      so many, but not for all those to come.
 *  inevitable    one is inevitable, or wants to be.
 *      There is one token of inevitability, handed out in the order of asking.
 *      Its holder is never doomed.  An irrevocable holder runs beside the others.
 *      An exclusive one lets nobody begin and waits until the active ones have ended;
 *      an active one that would have to wait for it, directly, for the token or for a
 *      predecessor that cannot begin any more, aborts itself instead.
 *      A transaction that becomes exclusive half-way first waits, revocable as yet,
 *      until no older one is active: so that it kills none that comes to wait for it.
 *      One that has been aborted when it asked begins its next attempt by waiting for
 *      the token, and keeps its place in the queue; as do atomic blocks outside
 *      transactions.  It holds nothing then, so nobody waits for it.
 *  the gate      one wants to begin while another one is exclusive.
 *      It waits, and the exclusive one lets it in at its end, before the next
 *      exclusive one can come: each of them runs once in between.
 *      An exclusive one that waits itself, for a lock or for time to pass, *lends* its turn to those of other loops and queues
 *      (groups): what it waits for may be theirs.  Those of its own group stay at the gate.
 *  end           one of a queue has raised, which ends the queue, and others of it are active.
 *      It has become inevitable, dooms them, and waits until they have rolled back, or
 *      committed, if they were about to.
 *  order         a transaction reaches its commit before its predecessor.
 *      It waits.  Predecessors are older, so this closes no cycle either.  But that one may run
 *      for long, perhaps for ever: a transaction whose thread has others to go on with is put off
 *      once it has waited as long as it had taken itself.  So its thread does at most twice the work.
 *  a thread      one needs a lock of the program's that a thread has, or the other way
 *                round (../objects/mutex.c).
 *  overdue       one runs and runs, perhaps for ever, and others wait for it.
 *      Those who have waited for it as long as its allowance have it rolled back,
 *      older or not.  It stands back for STAND_BACK times as long, and its next
 *      attempt has twice the allowance: whatever ends comes to its end, and others go
 *      on most of the time beside what never does.
 *
 * What follows for an attempt: without inevitable ones, the oldest active
 * transaction is never aborted before it is overdue.  Waiting for the token is bounded
 * by those that asked before (one a thread at most), each with one transaction of each
 * thread in between.  A transaction that was aborted MAX_ATTEMPTS times, but for being
 * overdue, asks for it (transaction.c).
 *
 * A doomed transaction learns of it at its next barrier, while it waits, or,
 * if it has run into neither for a while, by an asynchronous exception.
 */
#include "contention.h"

#include "bystanders.h"
#include "tx.h"
#include "history.h"
#include "latch.h"
#include "park.h"
#include "publish.h"
#include "queue.h"
#include "transaction.h"
#include "upcalls.h"

#include "internal/pycore_ceval.h"
#include "internal/pycore_pystate.h"

#include <sched.h>
#include <unistd.h>

_Atomic int stm_exclusive_slot;
_Atomic int stm_reservations;           /* how many cells are reserved */
static _Atomic int token_slot;          /* who holds the token of inevitability; 0: nobody */
static _Atomic uint64_t next_turn = 1;
static _Atomic int lenders;            /* so many threads lend their turns */
static _Atomic uint64_t exclusives_over;        /* counted when those at the gate have been let in */

/* One lock around "is it still doomed?" and the asynchronous exception, so
 * that the exception never reaches a later transaction of that thread. */
static Latch doom_lock;

#define DISPATCHING (-1)    /* as token_slot: somebody is looking for the next */

#define PATIENT 16
/* Processor cycles, a moment: the next ones of a strand are about as short as this one, and to sleep and be called costs as much. */
#define ORDER_SPIN 60000

#ifndef PUT_OFF_NS      /* the stress program is in a hurry */
#define PUT_OFF_NS 2000000      /* so long it waits at least for its predecessor before it is put off */
#endif
/* A doomed transaction without a barrier for that many naps is in a loop, not in
 * engine or trusted code, where an exception out of nowhere would do harm. */
#define NAPS_IN_A_LOOP 25

#define ALLOWANCE_NS 2000000000ull      /* of a first attempt */
#define STAND_BACK 3
#define NO_ATTEMPT UINT64_MAX           /* they are counted from 0 */
static _Atomic uint64_t allowance_limit = UINT64_MAX;

/* ---- Doom ------------------------------------------------------------------- */

static void
raise_abort(void)
{
    PyErr_SetNone(stm_Abort);
}

int
abort_self(Tx *tx, int cause)
{
    if (change_state(tx, attempt_of(tx), TX_ACTIVE, TX_DOOMED))
        tx->cause = cause;
    atomic_store(&tx->attention, 1);
    raise_abort();
    return -1;
}

static bool
is_doomed(Tx *tx)
{
    return state_of(tx) == TX_DOOMED;
}

static bool
is_over(Tx *o)
{
    int state = state_of(o);
    return state == TX_IDLE || state == TX_WAITING;
}

/* The log tells that this one cannot go on, or begin, beside that inevitable one. */
static void
log_inevitable(Tx *tx, int slot)
{
    Tx *o = slot > 0 ? atomic_load(&stm_threads[slot]) : NULL;
    const Place *there = UNLIKELY(stm_log_on) && o != NULL ? atomic_load(&o->logged.inevitable_at) : NULL;
    if (there != NULL)      /* else it has just ended, or had begun before there was a log */
        log_conflict(tx, LOG_INEVITABLE, o, there, NULL);
}

static void
log_wait_for(Tx *tx, int slot)
{
    log_inevitable(tx, slot);
    if (slot > 0)
        log_wait(tx);
}

/* An exclusive one waits for this attempt, which therefore must not wait for what comes after that. */
static int
give_way(Tx *tx)
{
    log_inevitable(tx, atomic_load(&stm_exclusive_slot));
    return abort_self(tx, CAUSE_EXCLUSIVE);
}

static uint32_t
next_random(Tx *tx)
{
    uint64_t x = tx->contention.inject_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    tx->contention.inject_state = x;
    return (uint32_t)(x >> 16);
}

/* A test hook: wait until the others have got past so many barriers, or as long as a delay may be.  Were it only time, threads
 * would interleave on a quiet machine alone: on a busy one, each gets its turn after milliseconds. */
void
stm_delay(Tx *tx)
{
    static _Atomic uint32_t passed;
    uint32_t before = atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed) + 1;
    if (next_random(tx) >= stm_delay_rate)
        return;
    uint32_t chosen = next_random(tx), step = 50, left = stm_delay_limit / step;
    PyThreadState *ts = PyEval_SaveThread();
    sched_yield();
    for (; left > 0 && atomic_load_explicit(&passed, memory_order_relaxed) - before < chosen % 256; left--)
        nanosleep(&(struct timespec){0, (long)step * 1000L}, NULL);
    PyEval_RestoreThread(ts);
}

/* A test hook. The chance halves with each attempt, so that long transactions are
 * aborted at all of their places, the later ones too, and come to their end. */
static bool
abort_injected(Tx *tx, int times)
{
    int attempts = tx->txn != NULL ? tx->txn->attempts : 0;
    uint64_t chance = (uint64_t)stm_inject_rate * times;
    return next_random(tx) < (attempts < 32 ? chance >> attempts : 0);
}

#define AT_THE_END 64       /* so many times as likely as at a barrier: then all is undone */

int
contention_may_end(Tx *tx)
{
    bool ends = stm_inject_rate == 0 || state_of(tx) != TX_ACTIVE || !abort_injected(tx, AT_THE_END);
    return ends ? 0 : abort_self(tx, CAUSE_INJECTED);
}

/* The slow side of check_doomed(). */
int
stm_attention(Tx *tx)
{
    int state = state_of(tx);
    if (state == TX_DOOMED) {
        raise_abort();
        return -1;
    }
    if (tx->releasing == AFTER_ABORT)
        return abort_self(tx, CAUSE_DROPPED);
    if (tx->releasing == AFTER_COMMIT && tx->grade == GRADE_NONE)
        return become_exclusive(tx, "what C code calls where an object dies");     /* and is no finalizer in Python */
    interruptible(tx);
    if (stm_inject_rate != 0 && state == TX_ACTIVE && !tx->releasing && abort_injected(tx, 1))
        return abort_self(tx, CAUSE_INJECTED);
    return 0;
}

static bool
doom(Tx *tx, Tx *o, uint64_t attempt, int right)
{
    uint64_t age = atomic_load(&o->age);
    if (!change_state(o, attempt, TX_ACTIVE, TX_DOOMED))
        return false;
    atomic_store(&o->attention, 1);
    history(tx, DID_DOOM, age, right);
    unpark(o);
    return true;
}

/* Reach a doomed transaction that runs a loop without barriers, or is in C code: it asks at the eval breaker
 * (stm_handle_pending), for which any bit will do. This one makes it merge reference counts, which is done soon. */
static void
tell_doomed(Tx *o, uint64_t attempt)
{
    latch_take(&doom_lock);
    if (atomic_load(&o->status) == (attempt << STATE_BITS | TX_DOOMED))
        _Py_set_eval_breaker_bit(o->tstate, _PY_EVAL_EXPLICIT_MERGE_BIT);
    latch_give(&doom_lock);
}

/* A bystander has waited for that attempt for long, and lets it begin again. */
void
contention_hasten(Tx *o, uint64_t attempt)
{
    Tx *tx = stm_thread_tx();
    if (tx == NULL)
        PyErr_Clear();
    else if (doom(tx, o, attempt, OVERDUE))
        tell_doomed(o, attempt);
}

/* At the end of a doomed attempt: from here on nobody looks for its thread. */
void
contention_end_doom(Tx *tx)
{
    latch_take(&doom_lock);
    set_state(tx, TX_COMMITTING);
    latch_give(&doom_lock);
}

/* ---- Overdue transactions ----------------------------------------------------- */

static uint64_t
limited(uint64_t allowance)
{
    uint64_t limit = atomic_load(&allowance_limit);
    return allowance < limit ? allowance : limit;
}

uint64_t
first_allowance(void)
{
    return limited(ALLOWANCE_NS);
}

void
limit_allowance(double seconds)
{
    atomic_store(&allowance_limit, (uint64_t)(seconds * 1e9));
}

/* This one has waited so long for the other, which can be rolled back, unless it
 * has gone meanwhile. One that waits itself holds nobody up: somebody else does. */
static void
hurry(Tx *tx, Tx *o, uint64_t attempt, uint64_t waited)
{
    if (waited < limited(atomic_load(&o->contention.allowance)) || atomic_load(&o->parked) != 0)
        return;
    uint64_t status = atomic_load(&o->status);
    if (status == (attempt << STATE_BITS | TX_DOOMED)) {
        tell_doomed(o, attempt);
    }
    else if (status == (attempt << STATE_BITS | TX_ACTIVE)) {
        atomic_store(&o->contention.overdue, attempt);
        if (doom(tx, o, attempt, OVERDUE))
            log_aborting(tx, o);
    }
}

static void
hurry_older(Tx *tx, uint64_t age, uint64_t waited)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        uint64_t attempt = o != NULL ? attempt_of(o) : 0;
        if (o != NULL && o != tx && atomic_load(&o->age) < age)
            hurry(tx, o, attempt, waited);
    }
}

/* A transaction begins its first attempt. */
void
allow(Tx *tx)
{
    atomic_store_explicit(&tx->contention.allowance, ALLOWANCE_NS, memory_order_relaxed);
    atomic_store_explicit(&tx->contention.overdue, NO_ATTEMPT, memory_order_relaxed);
}

/* Is that why this attempt is doomed? */
bool
is_overdue(Tx *tx)
{
    return atomic_load(&tx->contention.overdue) == attempt_of(tx) && tx->cause == CAUSE_DOOMED;
}

/* ---- Waiting for one other transaction ---------------------------------------- */

static bool
conflict_over(Tx *tx, void *arg)
{
    const Conflict *c = arg;
    return !in_the_way(tx, c) || is_doomed(tx) || atomic_load(&stm_exclusive_slot) == c->slot;
}

/* From here on only so many younger ones go first. */
static void
reserve(Tx *tx, const Conflict *c)
{
    if (atomic_load_explicit(&tx->contention.reserved, memory_order_relaxed) == c->cell)
        return;
    atomic_store(&tx->contention.patience, PATIENT);
    atomic_store(&tx->contention.reserved_mode, c->mode);
    atomic_store(&tx->contention.reserved, c->cell);
    atomic_fetch_add(&stm_reservations, 1);
}

/* It has the lock, or gives up. Who waits for the reservation now waits for the end. */
void
reservation_end(Tx *tx)
{
    atomic_store(&tx->contention.reserved, 0);
    atomic_fetch_sub(&stm_reservations, 1);
}

/* Has an older one, whose patience is at its end, reserved the cell? */
bool
find_reservation(Tx *tx, Conflict *c)
{
    if (tx->grade != GRADE_NONE)
        return false;
    uint64_t age = atomic_load_explicit(&tx->age, memory_order_relaxed);
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o == NULL || o == tx || atomic_load(&o->contention.reserved) != c->cell)
            continue;
        *c = (Conflict){c->cell, c->mode, FOR_RESERVATION, i, attempt_of(o), 0, NULL};
        if (atomic_load(&o->age) < age && in_the_way(tx, c) && atomic_fetch_sub(&o->contention.patience, 1) <= 0)
            return true;
    }
    return false;
}

/* Wait until the conflict is over: 0, or -1 when this transaction must abort. */
int
contend(Tx *tx, const Conflict *c, int event)
{
    Tx *o = atomic_load(&stm_threads[c->slot]);
    log_conflict(tx, event, o, c->location, &c->cell);
    bool first = tx->grade != GRADE_NONE || atomic_load(&tx->age) < atomic_load(&o->age);
    uint64_t start = __builtin_ia32_rdtsc();
    reserve(tx, c);
    history(tx, DID_WAIT, atomic_load(&o->age), c->how);
    for (int i = 0; i < SPINS && !atomic_load(&o->parked) && !conflict_over(tx, (void *)c); i++)
        __builtin_ia32_pause();
    int result = 0;
    uint64_t since = now_ns();
    bool gives_way = false;
    for (int naps = 1; in_the_way(tx, c); naps++) {
        if (is_doomed(tx)) {
            raise_abort();
            result = -1;
            break;
        }
        if (atomic_load(&stm_exclusive_slot) == c->slot) {
            gives_way = true;
            break;
        }
        /* Each time: what was in the way may have gone and come back in one attempt. */
        if (first && doom(tx, o, c->attempt, tx->grade)) {
            /* Let it not run into the same again before this one has woken up. */
            atomic_store(&tx->contention.patience, 0);
            log_aborting(tx, o);
        }
        log_wait(tx);
        nap(tx, (uint32_t)c->slot << 8, first ? NAP_NS : LONG_NAP_NS, conflict_over, (void *)c, since);
        if (!first)
            hurry(tx, o, c->attempt, now_ns() - since);
        else if (naps % NAPS_IN_A_LOOP == 0 && is_doomed(o))
            tell_doomed(o, c->attempt);
    }
    tx->contention.lost += __builtin_ia32_rdtsc() - start;
    log_go(tx);
    history(tx, DID_GO, 0, 0);
    return gives_way ? give_way(tx) : result;
}

/* ---- The order of those that commit at the same time ------------------------------ */

static _Atomic uint64_t next_ticket = 1;

void
take_ticket(Tx *tx)
{
    atomic_store(&tx->ticket, CHOOSING);
    atomic_store(&tx->ticket, atomic_fetch_add(&next_ticket, 1));
}

typedef struct { Tx *other; uint64_t attempt; } Ending;

static bool
ended(Tx *tx, void *arg)
{
    (void)tx;
    Ending *e = arg;
    return attempt_of(e->other) != e->attempt;
}

/* The other one commits: it ends soon, and waits for nobody with a later ticket. */
void
wait_for_end(Tx *tx, Tx *o, uint64_t attempt)
{
    Ending e = {o, attempt};
    await(tx, (uint32_t)o->slot << 8, ended, &e);
}

/* ---- The end of a queue ------------------------------------------------------------ */

static bool
ended_or_idle(Tx *tx, void *arg)
{
    Ending *e = arg;
    return ended(tx, arg) || is_over(e->other);
}

/* Roll back all other transactions of the queue but those that commit already, and wait until all of
 * them have ended.  Requires: this one is inevitable, so none of them is, and whoever begins from
 * here on sees that the queue has ended. */
void
end_others(Tx *tx, Queue *q)
{
    int limit = atomic_load(&stm_thread_limit);
    Ending others[MAX_THREADS];
    int n = 0;
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o == NULL || o == tx)
            continue;
        /* In this order: the thread may go on to another transaction, but then its attempt is another. */
        uint64_t attempt = attempt_of(o);
        if (atomic_load(&o->queue) != q)
            continue;
        doom(tx, o, attempt, tx->grade);
        others[n++] = (Ending){o, attempt};
    }
    for (int i = 0; i < n; i++) {
        for (int naps = 1; !ended_or_idle(tx, &others[i]); naps++) {
            nap(tx, (uint32_t)others[i].other->slot << 8, NAP_NS, ended_or_idle, &others[i], now_ns());
            if (naps % NAPS_IN_A_LOOP == 0 && is_doomed(others[i].other))
                tell_doomed(others[i].other, others[i].attempt);
        }
    }
}

/* ---- Commit order ------------------------------------------------------------- */

static bool
predecessor_over(Tx *tx, void *arg)
{
    return atomic_load(&((Transaction *)arg)->done) || is_doomed(tx)
        || atomic_load(&stm_exclusive_slot) != 0;
}

/* The predecessor that has not committed yet, or NULL. */
static Transaction *
pending_predecessor(Tx *tx)
{
    Transaction *p = tx->txn != NULL ? (Transaction *)tx->txn->predecessor : NULL;
    if (p == NULL || atomic_load(&p->done))
        return NULL;
    atomic_store(&p->awaited, 1);
    return p;
}

bool
is_to_be_put_off(Tx *tx)
{
    return tx->txn != NULL && tx->txn->may_be_put_off && pending_predecessor(tx) != NULL;
}

int
wait_for_predecessor(Tx *tx)
{
    Transaction *p = pending_predecessor(tx);
    if (p == NULL)
        return is_left_over(tx) ? abort_self(tx, CAUSE_ORDER) : 0;
    uint64_t reached = __builtin_ia32_rdtsc(), took = reached - tx->contention.began, since = now_ns();
    bool may_be_put_off = tx->txn->may_be_put_off;
    history(tx, DID_WAIT, p->age, FOR_ORDER);
    log_wait(tx);
    while (__builtin_ia32_rdtsc() - reached < ORDER_SPIN && !predecessor_over(tx, p))
        __builtin_ia32_pause();
    bool put_off = false;
    while (!put_off && !predecessor_over(tx, p)) {
        nap(tx, PARK_ORDER, may_be_put_off ? NAP_NS : LONG_NAP_NS, predecessor_over, p, since);
        put_off = may_be_put_off && now_ns() - since >= PUT_OFF_NS && __builtin_ia32_rdtsc() - reached >= took;
    }
    log_go(tx);
    history(tx, DID_GO, 0, 0);
    if (atomic_load(&p->done))
        return is_left_over(tx) ? abort_self(tx, CAUSE_ORDER) : 0;
    if (is_doomed(tx)) {
        raise_abort();
        return -1;
    }
    return put_off ? abort_self(tx, CAUSE_ORDER) : give_way(tx);
}

/* ---- Requests to other threads -------------------------------------------------- */

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
    wake_idle();
    return 0;
}

/* Is there anything for serve() to do? */
bool
is_asked(void)
{
    return stm_upcalls->is_asked() || (atomic_load_explicit(&main_request, memory_order_relaxed) != NULL
        && PyThread_get_thread_ident() == stm_main_thread);
}

/* Between two attempts: do what this thread is asked for. -1 with an exception of a request to the main thread. */
int
serve(void)
{
    stm_upcalls->serve();
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

typedef struct { Condition holds; void *arg; } Idle;

static bool
holds_or_asked(Tx *tx, void *arg)
{
    Idle *idle = arg;
    return idle->holds(tx, idle->arg) || is_asked();
}

/* For nobody else's sake, so that is lost. */
#define STANDS_BACK 0

/* Wait outside any attempt, where the main thread can do as it is asked. */
static void
await_idle(Tx *tx, uint32_t reason, Condition holds, void *arg)
{
    Idle idle = {holds, arg};
    uint64_t start = __builtin_ia32_rdtsc(), before = tx->contention.kept_out;      /* of this transaction: what is served may run others */
    for (;;) {
        await(tx, reason | PARK_IDLE, holds_or_asked, &idle);
        if (holds(tx, arg)) {
            tx->contention.kept_out = before + (reason != STANDS_BACK ? __builtin_ia32_rdtsc() - start : 0);
            return;
        }
        /* Not as part of what waits here: a finalizer that begins counts as live already. */
        tx_pause(tx);
        if (serve() < 0)
            PyErr_FormatUnraisable("Exception ignored in a request to the main thread");
        tx_resume(tx);
    }
}

typedef struct { uint64_t since, allowance; } Retreat;

static bool
has_stood_back(Tx *tx, void *arg)
{
    const Retreat *r = arg;
    Queue *q = atomic_load(&tx->queue);
    return now_ns() - r->since >= STAND_BACK * limited(r->allowance) || (q != NULL && queue_has_ended(q));
}

/* Between two attempts: it was overdue. */
void
stand_back(Tx *tx)
{
    Retreat r = {now_ns(), atomic_load(&tx->contention.allowance)};
    atomic_store(&tx->contention.allowance, 2 * r.allowance);
    await_idle(tx, STANDS_BACK, has_stood_back, &r);
}

/* ---- The gate --------------------------------------------------------------------- */

/* Does somebody lend his turn, but not to this one?  The gate is open to other loops and queues then, and to nobody else. */
static bool
is_kept_out(Tx *tx)
{
    if (LIKELY(atomic_load(&lenders) == 0))
        return false;
    int limit = atomic_load(&stm_thread_limit);
    const void *group = atomic_load(&tx->contention.group);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o != NULL && o != tx && atomic_load(&o->contention.lends) && (group == NULL || atomic_load(&o->contention.group) == group))
            return true;
    }
    return false;
}

static bool
is_let_in(Tx *tx, void *arg)
{
    (void)arg;
    return !is_kept_out(tx);
}

static bool
gate_open(Tx *tx, void *arg)
{
    return !is_kept_out(tx) && (state_of(tx) == TX_ADMITTED || atomic_load(&stm_exclusive_slot) == 0
        || atomic_load(&exclusives_over) != *(uint64_t *)arg);  /* it came too late for that one */
}

/* Become active, while no other one is exclusive. */
void
pass_gate(Tx *tx)
{
    for (;;) {
        uint64_t over = atomic_load_explicit(&exclusives_over, memory_order_acquire);
        /* Whether admitted or late, only this thread takes it from here. */
        uint64_t was = atomic_exchange(&tx->status, attempt_of(tx) << STATE_BITS | TX_ACTIVE);
        if (((was & STATE_MASK) == TX_ADMITTED || LIKELY(atomic_load(&stm_exclusive_slot) == 0)) && LIKELY(!is_kept_out(tx)))
            return;
        set_state(tx, TX_WAITING);
        wake(0, PARK_OTHERS);
        history(tx, DID_WAIT, 0, FOR_GATE);
        log_wait_for(tx, atomic_load(&stm_exclusive_slot));
        await_idle(tx, PARK_GATE, gate_open, &over);
        log_go(tx);
        history(tx, DID_GO, 0, 0);
    }
}

/* By the exclusive one, at its end, before it gives the token on: so they are in, even if
 * the next one is exclusive too and has closed the gate before they have woken up. */
static void
admit_waiting(void)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o != NULL && state_of(o) == TX_WAITING && !is_kept_out(o)
            && change_state(o, attempt_of(o), TX_WAITING, TX_ADMITTED))
            unpark(o);
    }
    atomic_fetch_add(&exclusives_over, 1);
}

/* ---- Inevitability -------------------------------------------------------------- */

#define ANY_AGE UINT64_MAX

/* Another one below that age that is in an attempt, or NULL. */
static Tx *
active_other(Tx *tx, uint64_t age)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load(&stm_threads[i]);
        if (o != NULL && o != tx && !is_over(o) && (age == ANY_AGE || atomic_load(&o->age) < age))
            return o;
    }
    return NULL;
}

static bool
others_over(Tx *tx, void *arg)
{
    (void)arg;
    return active_other(tx, ANY_AGE) == NULL;
}

static bool
older_over_or_abort(Tx *tx, void *arg)
{
    (void)arg;
    return active_other(tx, atomic_load(&tx->age)) == NULL || is_doomed(tx)
        || atomic_load(&stm_exclusive_slot) != 0;
}

/* Wait, since then, until others are over, and hurry those of a lower age. */
static void
await_others(Tx *tx, Condition over, uint64_t age, uint64_t since)
{
    if (UNLIKELY(stm_log_on)) {
        Tx *o = active_other(tx, age);
        if (o == NULL)
            return;
        log_conflict(tx, LOG_INEVITABLE, o, NULL, NULL);
        log_wait(tx);
    }
    for (int i = 0; i < SPINS && !over(tx, NULL); i++)
        __builtin_ia32_pause();
    while (!over(tx, NULL)) {
        nap(tx, PARK_OTHERS, LONG_NAP_NS, over, NULL, since);
        hurry_older(tx, age, now_ns() - since);
    }
    log_go(tx);
}

/* ---- The token ------------------------------------------------------------------ */

/* By whoever has the right to (DISPATCHING): give the token to the one that asked first. A turn
 * that is taken after the search has begun is not seen: one before it may have been passed over.
 * If that one waits to be alone nobody can begin from here on, not even before it has
 * woken up. */
static void
dispatch_token(Tx *tx)
{
    for (;;) {
        uint64_t first = CHOOSING, begun = atomic_load(&next_turn);
        int limit = atomic_load(&stm_thread_limit);
        Tx *next = NULL;
        for (int i = 1; i < limit; i++) {
            Tx *o = atomic_load(&stm_threads[i]);
            uint64_t theirs = o != NULL ? atomic_load(&o->contention.turn) : 0;
            while (theirs == CHOOSING)
                theirs = atomic_load(&o->contention.turn);
            if (theirs != 0 && theirs < begun && theirs < first) {
                first = theirs;
                next = o;
            }
            interruptible(tx);
        }
        if (next == NULL) {
            atomic_store(&stm_exclusive_slot, 0);
            atomic_store(&token_slot, 0);
            atomic_thread_fence(memory_order_seq_cst);
            bool asked = false;
            for (int i = 1; i < limit && !asked; i++) {
                Tx *o = atomic_load(&stm_threads[i]);
                asked = o != NULL && atomic_load(&o->contention.turn) != 0;
            }
            int nobody = 0;
            if (!asked || !atomic_compare_exchange_strong(&token_slot, &nobody, DISPATCHING))
                return;
        }
        else if (atomic_compare_exchange_strong(&next->contention.turn, &first, 0)) {
            atomic_store(&stm_exclusive_slot, atomic_load(&next->contention.alone) ? next->slot : 0);
            history(tx, DID_TURN, first, 0);
            atomic_store(&token_slot, next->slot);
            unpark(next);
            return;
        }
    }
}

static bool
has_token(Tx *tx, void *arg)
{
    (void)arg;
    return atomic_load(&token_slot) == tx->slot;
}

bool
nobody_is_inevitable(void)
{
    return atomic_load(&token_slot) == 0;
}

static bool
has_token_or_abort(Tx *tx, void *arg)
{
    return has_token(tx, arg) || is_doomed(tx) || atomic_load(&stm_exclusive_slot) != 0;
}

static void
ask_for_token(Tx *tx, bool alone)
{
    atomic_store(&tx->contention.alone, alone);
    if (tx->contention.asked)
        return;
    tx->contention.asked = true;
    atomic_store(&tx->contention.turn, CHOOSING);
    uint64_t turn = atomic_fetch_add(&next_turn, 1);
    history(tx, DID_ASK, turn, 0);
    atomic_store(&tx->contention.turn, turn);
    int nobody = 0;
    if (atomic_compare_exchange_strong(&token_slot, &nobody, DISPATCHING))
        dispatch_token(tx);
}

static void
give_token(Tx *tx)
{
    atomic_store(&token_slot, DISPATCHING);
    dispatch_token(tx);
    wake(0, PARK_GATE);
}

static void
leave_queue(Tx *tx)
{
    tx->contention.asked = false;
    uint64_t turn = atomic_load(&tx->contention.turn);
    history(tx, DID_LEAVE, turn, 0);
    if (turn != 0 && atomic_compare_exchange_strong(&tx->contention.turn, &turn, 0))
        return;
    await(tx, PARK_TOKEN, has_token, NULL);     /* it is on its way */
    give_token(tx);
}

/* Between two attempts: the next one does not begin yet.  Had it asked for the token? */
bool
give_up_turn(Tx *tx)
{
    bool asked = tx->contention.asked;
    if (asked)
        leave_queue(tx);
    return asked;
}

void
ask_again(Tx *tx)
{
    ask_for_token(tx, atomic_load(&tx->contention.alone));
}

static void
log_wait_for_token(Tx *tx)
{
    int holder = DISPATCHING;
    while (UNLIKELY(stm_log_on) && holder == DISPATCHING)
        holder = atomic_load(&token_slot);
    if (holder != tx->slot)
        log_wait_for(tx, holder);
}

/* In an attempt: -1 when it must abort, which it is to the last. */
static int
take_token(Tx *tx, int grade)
{
    ask_for_token(tx, false);
    log_wait_for_token(tx);
    await(tx, PARK_TOKEN, has_token_or_abort, NULL);
    log_go(tx);
    if (has_token(tx, NULL) && change_state(tx, attempt_of(tx), TX_ACTIVE, TX_INEVITABLE)) {
        tx->contention.asked = false;
        return 0;
    }
    if (is_doomed(tx)) {
        raise_abort();
    }
    else {
        if (tx->want_grade < grade)
            tx->want_grade = grade;
        give_way(tx);
    }
    /* Its next attempt keeps the place, or the token, if it needs it from the beginning. */
    if (tx->want_grade == GRADE_NONE)
        leave_queue(tx);
    return -1;
}

/* Let nobody begin, and wait until the active ones have ended, for which it has waited since then. */
static void
exclude_others(Tx *tx, uint64_t since)
{
    atomic_store(&stm_exclusive_slot, tx->slot);
    atomic_thread_fence(memory_order_seq_cst);
    wake_attempts();
    tx->contention.excludes_since = tx->company == SEQUENTIAL ? 0 : now_ns();
    await_others(tx, others_over, ANY_AGE, since);
    count_one(tx->company == SEQUENTIAL ? &tx->sequentials : &tx->exclusives);
}

static bool
predecessor_done(Tx *tx, void *arg)
{
    (void)tx;
    return atomic_load(&((Transaction *)arg)->done);
}

/* Begin an attempt in this grade. It holds nothing and is not active while it waits,
 * so that nobody waits for it. */
void
begin_inevitable(Tx *tx, int grade)
{
    history(tx, DID_WANT, 0, grade);
    if (UNLIKELY(stm_log_on) && (tx->txn == NULL || atomic_load(&tx->logged.inevitable_at) == NULL))
        atomic_store(&tx->logged.inevitable_at, log_location(tx));
    tx->logged.preparing = atomic_load(&tx->logged.inevitable_at) == &stm_nowhere;     /* the last attempt was */
    if (state_of(tx) != TX_IDLE) {
        set_state(tx, TX_IDLE);
        wake(0, PARK_OTHERS);
    }
    Transaction *p = pending_predecessor(tx);
    if (p != NULL) {
        log_wait(tx);
        await_idle(tx, PARK_ORDER, predecessor_done, p);
        log_go(tx);
    }
    for (;;) {
        ask_for_token(tx, grade == GRADE_EXCLUSIVE);
        log_wait_for_token(tx);
        await_idle(tx, PARK_TOKEN, has_token, NULL);
        log_go(tx);
        tx->contention.asked = false;
        if (LIKELY(!is_kept_out(tx)))
            break;
        give_token(tx);
        await_idle(tx, PARK_GATE, is_let_in, NULL);
    }
    set_state(tx, TX_INEVITABLE);
    tx->grade = grade;
    if (grade == GRADE_EXCLUSIVE)
        exclude_others(tx, now_ns());
    tx->logged.preparing = false;
    log_grade(tx);
    history(tx, DID_GET, 0, grade);
}

/* From here on this transaction cannot be aborted: GRADE_IRREVOCABLE goes on
 * beside the others, GRADE_EXCLUSIVE alone. Returns -1 when it has to abort
 * first; the next attempt then begins in the grade asked for. */
int
become_inevitable(Tx *tx, int grade)
{
    if (tx->grade >= grade)
        return 0;
    if (tx->releasing == AFTER_ABORT)
        return abort_self(tx, CAUSE_DROPPED);   /* a finalizer of what never was */
    if (tx->rehearsing)
        return abort_self(tx, CAUSE_INJECTED);
    if (UNLIKELY(stm_log_on))
        atomic_store(&tx->logged.inevitable_at, log_location(tx));
    /* Before it waits for others: one of them may wait for a thread that begins, a bystander (bystanders.c), and that for who borrows. */
    stm_upcalls->counts_borrowed(tx);
    borrowing_ends(tx);
    if (tx->grade == GRADE_NONE && tx->releasing) {
        /* Python code runs while the thread drops what an ended transaction held. There
         * is nothing to abort and to begin again, but nothing has been read either. */
        begin_inevitable(tx, grade);
    }
    else {
        if (is_doomed(tx)) {
            raise_abort();
            return -1;
        }
        uint64_t since = now_ns();
        history(tx, DID_WANT, 0, grade);
        if (grade == GRADE_EXCLUSIVE)
            tx->want_grade = grade;
        if (tx->grade == GRADE_NONE) {
            if (wait_for_predecessor(tx) < 0)
                return -1;
            if (grade == GRADE_EXCLUSIVE)
                await_others(tx, older_over_or_abort, atomic_load(&tx->age), since);
            if (take_token(tx, grade) < 0)
                return -1;
        }
        tx->grade = grade;
        if (grade == GRADE_EXCLUSIVE)
            exclude_others(tx, since);
        log_grade(tx);
        history(tx, DID_GET, 0, grade);
    }
    if (tx->paused == 0)
        tx_set_live(tx);
    if (grade == GRADE_EXCLUSIVE) {
        stm_upcalls->will_commit(tx);
        /* It will commit: what it has put off can happen now, before what it
         * is about to do at once. */
        run_deferred(tx);
        Py_CLEAR(tx->deferred);
    }
    stm_upcalls->became_inevitable(tx);
    return 0;
}

/* From here on it runs alone, for that reason, which the counts of reasons are told. Returns as become_inevitable() does. */
int
become_exclusive(Tx *tx, const char *why)
{
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    stm_upcalls->tell_reason(tx, why);
    return become_inevitable(tx, GRADE_EXCLUSIVE);
}

int
begin_again_exclusive(Tx *tx, const char *why)
{
    stm_upcalls->tell_reason(tx, why);
    tx->want_grade = GRADE_EXCLUSIVE;
    return abort_self(tx, CAUSE_EXCLUSIVE);
}

bool
move_to_anchor(Tx *tx)
{
    if (tx->grade != GRADE_NONE || tx->releasing || tx->txn == NULL || !tx->txn->may_move)
        return false;
    tx->txn->moves = true;
    abort_self(tx, CAUSE_THREAD);
    return true;
}

void
lending_begins(Tx *tx)
{
    atomic_store(&tx->contention.lends, true);
    atomic_fetch_add(&lenders, 1);
    inevitable_end(tx);
}

void
lending_ends(Tx *tx)
{
    begin_inevitable(tx, GRADE_EXCLUSIVE);
    atomic_fetch_sub(&lenders, 1);
    atomic_store(&tx->contention.lends, false);
    wake(0, PARK_GATE);
}

/* The attempt has ended. */
void
inevitable_end(Tx *tx)
{
    if (tx->grade == GRADE_NONE)
        return;
    if (tx->grade == GRADE_EXCLUSIVE)
        admit_waiting();
    tx->grade = GRADE_NONE;
    give_token(tx);
    if (tx->contention.excludes_since != 0) {
        uint64_t passed = now_ns() - tx->contention.excludes_since;
        tx->contention.excludes_since = 0;
        count_more(&tx->alone, passed);
        stm_upcalls->was_exclusive(tx, passed);
    }
}

/* ---- Forks ------------------------------------------------------------------------ */

/* The child has the memory as it is at that moment, and of the threads only the one that forks.  What transactions have of the interpreter's own
 * locks then (that of a dict, which has been handed over to who has waited for it) nobody gives back there.  So they end first, or have not
 * begun, as where it is a step that forks.  Whoever lends waits for something, and has none of those.  Where no thread runs transactions one may
 * begin to at any moment.
 *
 * The thread may have what one of them waits for in earnest: so it is patient for a while only, and then forks beside them.  It does nothing
 * for others while it waits: it is amid the fork. */
#define FORK_PATIENCE_NS 1000000000ull

typedef struct { Condition holds; uint64_t since; bool held; } Patience;

/* What held a moment ago need not any more: of others_over(), who begins sees that it must not, and steps back. */
static bool
holds_or_enough(Tx *tx, void *arg)
{
    Patience *p = arg;
    p->held = p->holds(tx, NULL);
    return p->held || now_ns() - p->since >= FORK_PATIENCE_NS;
}

static void
stop_excluding(Tx *tx)
{
    tx->contention.forks = false;
    atomic_store_explicit(&tx->status, (attempt_of(tx) + 1) << STATE_BITS | TX_IDLE, memory_order_release);
    inevitable_end(tx);
    wake(tx->slot, PARK_OTHERS);
}

void
fork_begins(void)
{
    if (stm_self != NULL && state_of(stm_self) != TX_IDLE)
        return;
    Tx *tx = stm_thread_tx();
    if (tx == NULL) {       /* as many threads as can be run transactions */
        PyErr_Clear();
        return;
    }
    Patience patience = {has_token, now_ns(), false};
    ask_for_token(tx, true);
    await(tx, PARK_TOKEN, holds_or_enough, &patience);
    if (!patience.held) {
        leave_queue(tx);
        return;
    }
    tx->contention.asked = false;
    tx->contention.forks = true;
    atomic_store(&tx->logged.inevitable_at, NULL);
    set_state(tx, TX_INEVITABLE);
    tx->grade = GRADE_EXCLUSIVE;
    atomic_store(&stm_exclusive_slot, tx->slot);
    atomic_thread_fence(memory_order_seq_cst);
    wake_attempts();
    patience.holds = others_over;
    await(tx, PARK_OTHERS, holds_or_enough, &patience);
    if (!patience.held)
        stop_excluding(tx);
}

void
fork_ends(void)
{
    if (stm_self != NULL && stm_self->contention.forks)
        stop_excluding(stm_self);
}

void
contention_abandon(Tx *tx)
{
    atomic_store(&tx->contention.turn, 0);
    atomic_store(&tx->contention.reserved, 0);
    tx->contention.asked = false;
    atomic_store(&tx->contention.group, NULL);
    if (atomic_exchange(&tx->contention.lends, false))
        atomic_fetch_sub(&lenders, 1);
}

/* In the child of a fork this thread is the only one. */
void
contention_in_child(void)
{
    doom_lock = (Latch){0};
    park_in_child();
    publish_in_child();
    atomic_store(&stm_reservations, 0);
    if (stm_self != NULL && stm_self->contention.forks) {
        stm_self->contention.forks = false;
        stm_self->grade = GRADE_NONE;
        set_state(stm_self, TX_IDLE);
    }
    int grade = stm_self != NULL ? stm_self->grade : GRADE_NONE;
    atomic_store(&token_slot, grade != GRADE_NONE ? stm_self->slot : 0);
    atomic_store(&stm_exclusive_slot, grade == GRADE_EXCLUSIVE ? stm_self->slot : 0);
}
