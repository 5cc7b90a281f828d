/* The life of a transaction: begin, run, commit or abort, publish.
 *
 *      enqueue     Transaction(function, args): gets its age
 *      begin       waits while another one is exclusive
 *      run         the function
 *      abort       roll back, let the locks go, begin again with the same age
 *      commit      wait for the predecessor; from here no doom; put inserted
 *                  keys in order; run the deferred actions; let the locks go
 *      release     drop the old values: finalizers run exclusively
 *
 * An exception of the function is a result: its writes are committed.  Where it comes from a
 * queue it is the last one of that: such a transaction becomes irrevocable before it commits,
 * and rolls back all others of the queue that have not begun to commit (queue.c).
 */
#include "transaction.h"

#include "bystanders.h"
#include "history.h"
#include "latch.h"
#include "pages.h"
#include "park.h"
#include "publish.h"
#include "queue.h"
#include "upcalls.h"

#include <pthread.h>

#define MAX_ATTEMPTS 30     /* then the next one is exclusive */

_Thread_local Tx *stm_self, *stm_open;
Tx *_Atomic stm_threads[MAX_THREADS];
_Atomic int stm_thread_limit = 1;
_Atomic uint64_t stm_next_age = 1;
PyObject *stm_Abort;
_Atomic uint32_t stm_inject_rate, stm_delay_rate, stm_delay_limit;
int stm_barriers_off;
uint64_t stm_inject_seed;
_Atomic int stm_runners;
_Atomic int stm_sequential_limit = INT_MAX;

/* ---- Descriptors ------------------------------------------------------------------ */

static Latch slots_lock;
static _Atomic bool slot_used[MAX_THREADS];
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* A descriptor outlives its thread, since others may be looking at it, and
 * serves the next thread that comes: which sees all that this one wrote there,
 * because the flag is released here and acquired there. */
static void
on_thread_exit(void *p)
{
    Tx *tx = p;
    if (tx->runs)
        atomic_fetch_sub(&stm_runners, 1);
    tx->runs = false;
    atomic_store_explicit(&slot_used[tx->slot], false, memory_order_release);
}

void
count_runner(Tx *tx)
{
    if (LIKELY(tx->runs))
        return;
    tx->runs = true;
    atomic_fetch_add(&stm_runners, 1);
}

/* The one that this thread is about from here on, or none. */
static void
set_transaction(Tx *tx, Transaction *t)
{
    tx->txn = t;
    atomic_store_explicit(&tx->queue, t != NULL ? t->queue : NULL, memory_order_release);
}

/* Only the thread that forked lives on in the child. What the others were about is
 * forgotten, with the references that they held: the next thread begins from nothing. */
static void
in_child(void)
{
    for (int i = 1; i < MAX_THREADS; i++) {
        Tx *tx = atomic_load(&stm_threads[i]);
        if (tx == NULL || tx == stm_self)
            continue;
        bool begins = state_of(tx) <= TX_ADMITTED && !tx->releasing;
        if (begins && tx->txn != NULL && tx->txn->queue != NULL && !tx->txn->is_call && !atomic_load(&tx->txn->done))
            queue_wait_again(tx->txn);      /* with the reference that its thread had */
        atomic_store(&tx->status, (attempt_of(tx) + 1) << STATE_BITS | TX_IDLE);
        atomic_store(&tx->parked, 0);
        atomic_store(&tx->ticket, 0);
        atomic_store(&tx->publishing, 0);
        contention_abandon(tx);
        locks_abandon(tx);
        undo_abandon(tx);
        tx->grade = GRADE_NONE;
        tx->releasing = HOLDING;
        tx->aborting = false;
        tx->want_grade = GRADE_NONE;
        tx->runs = false;
        borrowing_ends(tx);
        set_transaction(tx, NULL);
        tx->deferred = NULL;
        tx->anchor = 0;
        stm_upcalls->abandon(tx);
        atomic_store(&slot_used[i], false);
    }
    slots_lock = (Latch){0};
    atomic_store(&stm_runners, stm_self != NULL && stm_self->runs);
    locks_in_child();
    contention_in_child();
    bias_init();
    bystanders_in_child();
    queues_in_child();
    stm_upcalls->in_child();
}

static void
make_exit_key(void)
{
    pthread_key_create(&exit_key, on_thread_exit);
    pthread_atfork(NULL, NULL, in_child);
}

Tx *
stm_thread_tx(void)
{
    if (LIKELY(stm_self != NULL))
        return stm_self;
    pthread_once(&exit_once, make_exit_key);
    latch_take(&slots_lock);
    int slot = 1;
    while (slot < MAX_THREADS && atomic_load_explicit(&slot_used[slot], memory_order_acquire))
        slot++;
    if (slot == MAX_THREADS) {
        latch_give(&slots_lock);
        PyErr_Format(PyExc_RuntimeError, "more than %d threads run transactions", MAX_THREADS - 1);
        return NULL;
    }
    Tx *tx = atomic_load(&stm_threads[slot]);
    if (tx == NULL) {
        size_t size = (stm_upcalls->thread_size + 63) & ~(size_t)63;
        tx = pages_new(size + MARKS * sizeof(uint32_t));
        if (tx == NULL) {
            latch_give(&slots_lock);
            PyErr_NoMemory();
            return NULL;
        }
        tx->locks.marks = (_Atomic uint32_t *)((char *)tx + size);
        tx->slot = slot;
        atomic_store(&tx->epoch, 1);
        atomic_store(&stm_threads[slot], tx);
        if (atomic_load(&stm_thread_limit) <= slot)
            atomic_store(&stm_thread_limit, slot + 1);
    }
    atomic_store_explicit(&slot_used[slot], true, memory_order_relaxed);
    latch_give(&slots_lock);
    tx->thread_id = PyThread_get_thread_ident();
    tx->tstate = PyThreadState_Get();       /* and no longer that of the thread which had the slot before */
    allow(tx);
    tx->contention.inject_state = (stm_inject_seed + slot) * 0x9E3779B97F4A7C15ull | 1;
    pthread_setspecific(exit_key, tx);
    stm_self = tx;
    return tx;
}

/* ---- Begin and end -------------------------------------------------------------------- */

/* In an inevitable grade from the beginning, or in none. */
void
tx_begin(Tx *tx, uint64_t age, int grade)
{
    count_runner(tx);
    tx->tstate = PyThreadState_Get();
    atomic_store_explicit(&tx->age, age, memory_order_relaxed);
    atomic_store_explicit(&tx->attention, stm_inject_rate != 0 || stm_delay_rate != 0 || tx->releasing > FINALIZING,
                          memory_order_relaxed);
    tx->cause = CAUSE_DOOMED;
    tx->rehearsing = tx->borrowed = false;
    tx->paused = 0;
    stm_upcalls->begins(tx);
    if (UNLIKELY(stm_log_on) && !tx->releasing)
        log_begin(tx);
    if (UNLIKELY(tx->grade == GRADE_EXCLUSIVE))
        ;                           /* it has been alone: see tx_end() */
    else if (UNLIKELY(grade != GRADE_NONE)) {
        begin_inevitable(tx, grade);
        stm_upcalls->became_inevitable(tx);
    }
    else if (state_of(tx) == TX_IDLE)
        pass_gate(tx);
    else
        set_state(tx, TX_ACTIVE);   /* it was let in before: see tx_end() */
    if (tx->grade == GRADE_NONE && !tx->releasing)
        borrowing_begins(tx);
    tx_set_live(tx);
}

static void
let_all_go(Tx *tx)
{
    locks_release(tx);
    if (UNLIKELY(has_reserved(tx)))
        reservation_end(tx);
    uint32_t epoch = atomic_load_explicit(&tx->epoch, memory_order_relaxed) + 1;
    if (epoch > EPOCH_MAX) {
        /* Others may be reading: to them the transaction is over from here on (as in
         * mark_cell()). */
        for (size_t i = 0; i < MARKS; i++)
            atomic_store_explicit(&tx->locks.marks[i], 0, memory_order_release);
        atomic_store_explicit(&tx->locks.spilled, 0, memory_order_release);
        epoch = 1;
    }
    atomic_store_explicit(&tx->ticket, 0, memory_order_release);
    atomic_store_explicit(&tx->epoch, epoch, memory_order_release);
    tx_set_idle(tx);
}

/* Let all locks go. Marks fall with the epoch; waiters watch the number of the attempt. Afterwards the thread
 * is idle, or (`goes_on`) at once in the next transaction, which drops what this one held: what
 * waits to be exclusive waits for that, too, and one that is exclusive stays so. */
static void
tx_end(Tx *tx, bool goes_on)
{
    stm_upcalls->ends(tx);
    let_all_go(tx);
    if (goes_on)
        atomic_store_explicit(&tx->age, UINT64_MAX, memory_order_relaxed);
    bool stays_alone = goes_on && tx->grade == GRADE_EXCLUSIVE;
    int state = stays_alone ? TX_INEVITABLE : goes_on ? TX_ACTIVE : TX_IDLE;
    atomic_store_explicit(&tx->status, (attempt_of(tx) + 1) << STATE_BITS | (unsigned)state, memory_order_release);
    if (!stays_alone)
        inevitable_end(tx);
    wake(tx->slot, PARK_OTHERS);
}

bool
turn_lend(Tx *tx)
{
    if (!tx->live || tx->grade != GRADE_EXCLUSIVE || tx->releasing == AFTER_ABORT || atomic_load(&tx->contention.group) == NULL)
        return false;
    stm_upcalls->lends(tx);
    let_all_go(tx);
    atomic_store_explicit(&tx->status, (attempt_of(tx) + 1) << STATE_BITS | TX_IDLE, memory_order_release);
    lending_begins(tx);
    wake(tx->slot, PARK_OTHERS);
    return true;
}

void
turn_take_back(Tx *tx)
{
    PyObject *exception = PyErr_GetRaisedException();
    lending_ends(tx);
    tx_set_live(tx);
    stm_upcalls->became_inevitable(tx);
    PyErr_SetRaisedException(exception);
}

/* Run the deferred actions, in order, with barriers off. */
void
run_deferred(Tx *tx)
{
    PyObject *actions = tx->deferred;
    if (actions == NULL)
        return;
    tx_pause(tx);
    if (are_several(actions))
        publishing_begins(tx);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(actions); i++) {
        PyObject *action = PyList_GET_ITEM(actions, i);
        tx->next_deferred = i + 1 < PyList_GET_SIZE(actions) ? PyList_GET_ITEM(actions, i + 1) : NULL;
        PyObject *r = PyObject_Call(PyTuple_GET_ITEM(action, 0), PyTuple_GET_ITEM(action, 1), NULL);
        if (r == NULL)
            PyErr_FormatUnraisable("Exception ignored in the deferred action %R", action);
        Py_XDECREF(r);
    }
    publishing_ends(tx);
    tx_resume(tx);
}

/* Between two transactions begins one that drops what nobody holds any more: after a commit, or after an abort. */
static void
begin_release(Tx *tx, int after)
{
    set_transaction(tx, NULL);
    tx->releasing = after;
    tx_begin(tx, UINT64_MAX, after == AFTER_COMMIT ? stm_upcalls->first_grade() : GRADE_NONE);
}

/* What the transaction has added goes to the queues: returns what is to be dropped, that before what is already. */
static Transaction *
put_added(Tx *tx, Transaction *dropped)
{
    return LIKELY(tx->added.first == NULL) ? dropped : queue_added(tx, dropped);
}

static void
end_release(Tx *tx, Transaction *txn)
{
    if (tx->releasing == AFTER_COMMIT) {
        if (tx->grade == GRADE_EXCLUSIVE)
            stm_upcalls->finalizes(tx);
        run_deferred(tx);
        transactions_drop(put_added(tx, NULL));
    }
    log_end(tx, LOG_COMMIT);
    tx_end(tx, false);
    tx->releasing = HOLDING;
    set_transaction(tx, txn);
    /* What has been written there, exclusively, needs no undoing. */
    undo_forget(tx, 0);
    stm_upcalls->drops(tx);
    Py_CLEAR(tx->deferred);
}

/* Drop the references that the ended transaction held, in a transaction of
 * their own.  After a commit, finalizers in Python are put off (finalize_dying), but where it is exclusive.
 * After an abort the objects that die never existed in any serial run, and their
 * finalizers are stopped at the first barrier. */
static void
release(Tx *tx, int after, Transaction *dropped)
{
    PyObject *actions = tx->deferred, *displaced = tx->undo.displaced;
    tx->deferred = tx->undo.displaced = NULL;
    Transaction *txn = tx->txn;
    begin_release(tx, after);
    undo_forget(tx, 0);
    stm_upcalls->drops(tx);
    Py_XDECREF(actions);
    Py_XDECREF(displaced);
    transactions_drop(dropped);
    if (after == AFTER_COMMIT && txn != NULL)
        Py_TYPE(txn)->tp_clear((PyObject *)txn);
    end_release(tx, txn);
}

void
release_garbage(Tx *tx, void (*collect)(Tx *tx))
{
    Transaction *txn = tx->txn;
    begin_release(tx, AFTER_COMMIT);
    collect(tx);
    end_release(tx, txn);
}

void
finalize_dying(Tx *tx, int grade)
{
    while (stm_upcalls->is_late(tx)) {
        Transaction *txn = tx->txn;
        set_transaction(tx, NULL);
        tx->releasing = FINALIZING;
        tx->contention.began = __builtin_ia32_rdtsc();
        tx_begin(tx, UINT64_MAX, stm_upcalls->first_grade() != GRADE_NONE ? stm_upcalls->first_grade() : grade);
        stm_upcalls->finalizes(tx);
        if (stm_upcalls->may_commit(tx) < 0)
            PyErr_FormatUnraisable("tornado.stm: after finalizers");
        take_ticket(tx);
        stm_upcalls->will_commit(tx);
        run_deferred(tx);
        stm_upcalls->committed(tx);
        log_end(tx, LOG_COMMIT);
        tx_end(tx, true);
        release(tx, AFTER_COMMIT, put_added(tx, NULL));
        set_transaction(tx, txn);
    }
}

int
tx_commit(Tx *tx)
{
    borrowing_ends(tx);
    if (stm_upcalls->may_commit(tx) < 0)
        return -1;
    Queue *ended = tx->failed ? atomic_load(&tx->queue) : NULL;
    if (UNLIKELY(ended != NULL) && become_inevitable(tx, GRADE_IRREVOCABLE) < 0)
        return -1;
    if (tx->grade == GRADE_NONE) {
        if (contention_may_end(tx) < 0 || wait_for_predecessor(tx) < 0)
            return -1;
        if (!change_state(tx, attempt_of(tx), TX_ACTIVE, TX_COMMITTING)) {
            PyErr_SetNone(stm_Abort);
            return -1;
        }
    }
    Transaction *dropped = UNLIKELY(ended != NULL) ? queue_end(tx, ended) : NULL;
    take_ticket(tx);
    if (tx->txn != NULL)
        tx->txn->commit_number = atomic_load(&tx->ticket);
    interruptible(tx);
    stm_upcalls->will_commit(tx);
    run_deferred(tx);
    interruptible(tx);
    count_one(&tx->commits);
    log_end(tx, LOG_COMMIT);
    history(tx, DID_COMMIT, atomic_load(&tx->ticket), 0);
    stm_upcalls->committed(tx);
    bias_tick(tx);
    if (tx->txn != NULL) {
        atomic_store(&tx->txn->done, 1);
        if (UNLIKELY(atomic_load(&tx->txn->awaited)))
            wake(0, PARK_ORDER);
    }
    tx_end(tx, true);
    release(tx, AFTER_COMMIT, put_added(tx, dropped));
    finalize_dying(tx, GRADE_IRREVOCABLE);
    return 0;
}

void
tx_abort(Tx *tx)
{
    tx->aborting = true;
    borrowing_ends(tx);
    tx_pause(tx);
    contention_end_doom(tx);
    undo_rollback(tx);
    stm_upcalls->rolled_back(tx);
    count_one(&tx->aborts);
    tx->paused = 0;
    log_end(tx, LOG_ABORT);
    history(tx, DID_ABORT, 0, tx->cause);
    tx_end(tx, true);
    Transaction *added = tx->added.first;
    tx->added.first = tx->added.last = NULL;
    release(tx, AFTER_ABORT, added);
    stm_upcalls->aborted(tx);
    tx->aborting = false;
}

/* Drop what will not run, in a transaction of its own. */
void
release_dropped(Tx *tx, Transaction *chain)
{
    release(tx, AFTER_COMMIT, chain);
}

/* ---- Transactions as objects ----------------------------------------------------------- */

/* Without an age yet. The arguments are as in a vectorcall; n counts the positional ones. */
Transaction *
transaction_make(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    n += kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    Transaction *t = (Transaction *)Transaction_Type.tp_alloc(&Transaction_Type, n);
    if (t == NULL)
        return NULL;
    /* Made by one thread, dropped by another: all references are counted in one place, so
     * that it dies where it is dropped. */
    PyObject *self = (PyObject *)t;
    self->ob_tid = _Py_UNOWNED_TID;
    self->ob_ref_local = 0;
    self->ob_ref_shared = _Py_REF_SHARED(1, _Py_REF_MERGED);
    t->function = Py_NewRef(function);
    t->kwnames = Py_XNewRef(kwnames);
    for (Py_ssize_t i = 0; i < n; i++)
        t->args[i] = Py_NewRef(args[i]);
    return t;
}

Transaction *
transaction_after(PyObject *function, PyObject *args, Transaction *predecessor)
{
    Transaction *t = transaction_make(function, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL);
    if (t == NULL)
        return NULL;
    if (predecessor != NULL && !atomic_load(&predecessor->done))
        t->predecessor = Py_NewRef(predecessor);
    t->age = atomic_fetch_add(&stm_next_age, 1);
    return t;
}

static PyObject *
transaction_new(PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    (void)type;
    static char *names[] = {"function", "args", "predecessor", NULL};
    PyObject *function, *call_args, *predecessor = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwds, "OO!|O", names, &function, &PyTuple_Type,
                                     &call_args, &predecessor))
        return NULL;
    if (predecessor != Py_None && !Py_IS_TYPE(predecessor, &Transaction_Type)) {
        PyErr_SetString(PyExc_TypeError, "predecessor must be a Transaction or None");
        return NULL;
    }
    return (PyObject *)transaction_after(function, call_args, predecessor != Py_None ? (Transaction *)predecessor : NULL);
}

static int
transaction_traverse(PyObject *self, visitproc visit, void *arg)
{
    Transaction *t = (Transaction *)self;
    Py_VISIT(t->function);
    Py_VISIT(t->kwnames);
    Py_VISIT(t->variables);
    Py_VISIT(t->predecessor);
    if (t->holds_queue)
        Py_VISIT((PyObject *)t->queue);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_VISIT(t->args[i]);
    return 0;
}

static int
transaction_clear(PyObject *self)
{
    Transaction *t = (Transaction *)self;
    Py_CLEAR(t->function);
    Py_CLEAR(t->kwnames);
    Py_CLEAR(t->variables);
    Py_CLEAR(t->predecessor);
    if (t->holds_queue) {
        t->holds_queue = false;
        Py_CLEAR(t->queue);
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_CLEAR(t->args[i]);
    return 0;
}

static void
transaction_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    transaction_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* Drop a chain of transactions that will not run. */
void
transactions_drop(Transaction *chain)
{
    while (chain != NULL) {
        Transaction *next = chain->next;
        chain->next = NULL;
        Py_DECREF(chain);
        chain = next;
    }
}

/* 0, or -1 with an exception: this thread cannot run a transaction now. */
int
check_can_run(Tx *tx)
{
    if (state_of(tx) != TX_IDLE) {
        PyErr_SetString(PyExc_RuntimeError, "a transaction cannot run inside another one");
        return -1;
    }
    if (!stm_upcalls->is_ready()) {
        PyErr_SetString(PyExc_RuntimeError, "the engine is not ready: call tornado.stm.activation.activate() first");
        return -1;
    }
    return 0;
}

void
count_run(Tx *tx, uint64_t began)
{
    count_more(&tx->ran, __builtin_ia32_rdtsc() - began - tx->contention.kept_out);
}

/* When it began; `lost`: so many cycles had been by then. */
static int
stopped(Tx *tx, int how, uint64_t began, uint64_t lost)
{
    count_run(tx, began);
    count_more(&tx->lost, tx->contention.lost - lost);
    tx->company = AMONG_OTHERS;
    set_transaction(tx, NULL);
    return how;
}

/* Is the main thread, between two attempts, to make calls first? */
static bool
is_interrupted(Tx *tx, Transaction *t)
{
    return t->queue != NULL && tx->thread_id == stm_main_thread && !t->is_call && queue_has_calls(t->queue);
}

/* Run to the commit, however often it takes: RUN_RETURNED, and what (dropped in the transaction,
 * if nobody wants it); or RUN_RAISED, with the exception; or RUN_DROPPED, because another one
 * has raised, or RUN_PUT_OFF: then it has done nothing. */
int
run_to_commit(Tx *tx, Transaction *t, Company company, PyObject **result)
{
    PyObject *value = NULL, *exception = NULL;
    set_transaction(tx, t);
    stm_upcalls->run_begins(tx);
    atomic_store_explicit(&tx->logged.inevitable_at, NULL, memory_order_relaxed);
    tx->want_grade = stm_upcalls->first_grade();
    if (company != AMONG_OTHERS && tx->want_grade == GRADE_NONE) {
        tx->company = company;
        tx->want_grade = GRADE_EXCLUSIVE;
    }
    uint64_t lost = tx->contention.lost, began = __builtin_ia32_rdtsc();
    tx->contention.began = began;
    tx->contention.kept_out = 0;
    allow(tx);
    for (;;) {
        /* It would wait for that without anything that another attempt had to do again. */
        if (UNLIKELY(tx->want_grade != GRADE_NONE && is_to_be_put_off(tx)))
            return stopped(tx, RUN_PUT_OFF, began, lost);
        tx_begin(tx, t->age, tx->want_grade);
        bool dropped = t->queue != NULL && queue_has_ended(t->queue);
        if (UNLIKELY(dropped || is_left_over(tx))) {
            log_end(tx, LOG_ABORT);
            borrowing_ends(tx);
            tx_end(tx, false);
            return stopped(tx, dropped ? RUN_DROPPED : RUN_PUT_OFF, began, lost);
        }
        history(tx, DID_BEGIN, 0, t->attempts);
        bool aborted = false;
        value = stm_upcalls->call(tx, t);
        tx->failed = value == NULL;
        if (value == NULL) {
            exception = PyErr_GetRaisedException();
            aborted = Py_IS_TYPE(exception, (PyTypeObject *)stm_Abort) && tx->grade == GRADE_NONE;
        }
        else if (result == NULL)
            Py_CLEAR(value);
        if (!aborted)
            aborted = tx_commit(tx) < 0;
        if (!aborted)
            break;
        PyErr_Clear();
        if (change_state(tx, attempt_of(tx), TX_ACTIVE, TX_DOOMED))
            tx->cause = CAUSE_RAISED;
        Py_CLEAR(value);
        Py_CLEAR(exception);
        bool overdue = is_overdue(tx), put_off = tx->cause == CAUSE_ORDER || tx->cause == CAUSE_THREAD;
        tx_abort(tx);
        /* What it waited in these attempts among it. */
        tx->contention.lost = lost + (__builtin_ia32_rdtsc() - began - tx->contention.kept_out);
        stm_upcalls->retries(tx);
        if (UNLIKELY(is_interrupted(tx, t))) {
            give_up_turn(tx);
            put_off = true;
        }
        if (UNLIKELY(put_off))
            return stopped(tx, RUN_PUT_OFF, began, lost);
        if (overdue)
            stand_back(tx);
        else if (++t->attempts >= MAX_ATTEMPTS)
            tx->want_grade = GRADE_EXCLUSIVE;
    }
    if (result != NULL)
        *result = value;
    if (exception == NULL)
        return stopped(tx, RUN_RETURNED, began, lost);
    stopped(tx, RUN_RAISED, began, lost);
    PyErr_SetRaisedException(exception);
    return RUN_RAISED;
}

int
transaction_run(Transaction *t, Company company, PyObject **result)
{
    Tx *tx = stm_thread_tx();
    if (tx == NULL || check_can_run(tx) < 0)
        return RUN_RAISED;
    if (atomic_exchange(&t->taken, 1)) {
        PyErr_SetString(PyExc_RuntimeError, atomic_load(&t->done)
                        ? "this transaction has been committed"
                        : "this transaction runs on another thread");
        return RUN_RAISED;
    }
    Py_INCREF(t);
    int how = run_to_commit(tx, t, company, result);
    if (UNLIKELY(how == RUN_PUT_OFF))
        atomic_store(&t->taken, 0);
    Py_DECREF(t);
    return how;
}

static PyObject *
run(PyObject *self, PyObject *args)
{
    int alone = 0;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "|p", &alone))
        return NULL;
    bool stood_by = bystander_steps_in();
    transaction_run((Transaction *)self, alone ? SEQUENTIAL : AMONG_OTHERS, &result);
    bystander_steps_back(stood_by);
    return result;
}

static PyObject *
transaction_get_done(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(atomic_load(&((Transaction *)self)->done));
}

static PyObject *
transaction_get_age(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(((Transaction *)self)->age);
}

static PyObject *
transaction_get_commit_number(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(((Transaction *)self)->commit_number);
}

static PyMethodDef transaction_methods[] = {
    {"run", run, METH_VARARGS,
     PyDoc_STR("run($self, alone=False, /)\n--\n\nRun to the commit on this thread, exclusively if `alone`; return or raise what the "
               "function did. Raises RuntimeError inside a transaction, and the second time.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef transaction_getset[] = {
    {"done", transaction_get_done, NULL, PyDoc_STR("has been committed"), NULL},
    {"commit_number", transaction_get_commit_number, NULL,
     PyDoc_STR("place in a serial order that explains what it saw; 0 before its commit"), NULL},
    {"age", transaction_get_age, NULL, PyDoc_STR("position in the order of creation; smaller is older"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Transaction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Transaction",
    .tp_doc = PyDoc_STR("Transaction(function, args, predecessor=None)\n--\n\n"
                        "function(*args) as one transaction. Its age is that of this call. It commits "
                        "after the predecessor, a Transaction created before it."),
    .tp_basicsize = sizeof(Transaction),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = transaction_new,
    .tp_dealloc = transaction_dealloc,
    .tp_traverse = transaction_traverse,
    .tp_clear = transaction_clear,
    .tp_methods = transaction_methods,
    .tp_getset = transaction_getset,
};
