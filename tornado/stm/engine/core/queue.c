/* A queue of transactions, and the loop of a thread that works for it.
 *
 *      add     outside transactions: into the queue at once.  Inside one: onto a list of
 *              that transaction, which goes into the queue after its commit, unless its
 *              function has raised: then what it added to the queue that it came
 *              from is dropped.
 *      work    on any number of threads: take the oldest, run it to the commit, until
 *              none is left and none is running that might add more.  A thread that
 *              leaves others behind in the queue, while nobody is about to take them,
 *              hires one more, up to a limit.
 *      calls   between two transactions the main thread makes calls that handlers of signals want
 *              made there, as transactions of the queue that have never waited in it.  A
 *              transaction that is rolled back there meanwhile is put back, in front.
 *      home    the thread that has last run a transaction on the same first argument has
 *              what that works on in its caches, and owns the reference counts of what it
 *              has made: it takes the next one, too, if that is among the first ready
 *              (affinity scheduling: Squillante & Lazowska, 1993).
 *      end     a transaction that raises an exception is the last of the run, in the order of
 *              commits.  It has become irrevocable, then it marks the queue as ended.  Those that
 *              wait are dropped, those that run are rolled back and dropped; those that commit
 *              already come before it, and what they add is dropped.  What others add later waits
 *              for the next run, which begins when all workers have left.
 *      fork    in the child only the thread is left that has forked, as a transaction that ran alone
 *              or between two: what others had taken and not begun waits again.
 *      width   so many of the threads run transactions at the same time.  Where they would
 *              lose most of their time to each other, waiting or aborted, fewer do (adaptive
 *              transaction scheduling: Yoo & Lee, 2008); from time to time one more tries.
 *
 * Transactions in the queue are chained through themselves.  Nobody detaches, allocates
 * or drops a reference while holding the lock, so that the garbage collector may look at the
 * chain whenever it has stopped the world.
 */
#include "queue.h"

#include "bystanders.h"
#include "tx.h"
#include "latch.h"
#include "park.h"
#include "transaction.h"
#include "upcalls.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The main thread looks as often whether a signal, or a transaction, asks something of it. */
#define LOOK_NS 50000000L

/* In cycles of the time stamp counter. A worker looks at how it fares every WINDOW (a tenth of a
 * millisecond, or a long transaction). A trial costs about one window. */
#define WINDOW 200000
#define FIRST_TRIAL 2000000
#define LONGEST_TRIAL 200000000
#define CYCLES_PER_NS 3

/* So many transactions may a thread look at for one at home with it; so often may one be passed by. */
#define LOOK_AHEAD 8
#define MOST_PASSED 64
#define HOMES 1024

struct Queue {
    PyObject_HEAD
    Latch lock;
    Transaction *first, *last;      /* ready: owned, chained by `next` */
    Py_ssize_t n_ready, n_executed;
    int n_running, n_asleep;
    int forks;                      /* that there had been when its numbers were last right */
    int n_workers, n_hired;         /* threads in work(), or about to be; those of them that others have hired */
    unsigned long anchor;           /* the thread that runs the queue */
    int limit;                      /* of n_workers */
    int width;                      /* of n_running: 1..limit */
    uint8_t home[HOMES];            /* slot of a thread by first argument, hashed; 0: none yet */
    uint64_t trial, next_trial;     /* cycles between trials of a larger width; the next one */
    _Atomic bool ended;             /* a transaction has raised: nothing begins any more in this run */
    PyObject *failure;              /* its exception, until one of the callers of run() has it */
    PyObject *calls;                /* borrowed: the list of those that the main thread is to make, while that works for it */
    _Atomic uint32_t signal;        /* futex: counts what sleepers may have waited for */
};

static void
signal_sleepers(Queue *q, int n)
{
    atomic_fetch_add(&q->signal, 1);
    if (n > 0)
        syscall(SYS_futex, &q->signal, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

bool
queue_has_ended(Queue *q)
{
    return atomic_load(&q->ended);
}

/* Some thread that works for it is asked for something. */
void
queue_wake(Queue *q)
{
    signal_sleepers(q, INT_MAX);
}

/* Put a chain of n transactions at the end, with ages in their order. Not if it comes from a
 * worker, and the queue has ended meanwhile: then it is to be dropped. */
static bool
put(Queue *q, Transaction *first, Transaction *last, Py_ssize_t n, bool from_worker)
{
    latch_take(&q->lock);
    if (UNLIKELY(from_worker && q->ended)) {
        latch_give(&q->lock);
        return false;
    }
    uint64_t age = atomic_fetch_add(&stm_next_age, (uint64_t)n);
    for (Transaction *t = first; t != NULL; t = t->next)
        t->age = age++;
    if (q->last != NULL)
        q->last->next = first;
    else
        q->first = first;
    q->last = last;
    q->n_ready += n;
    /* A worker is about to take the first itself. */
    Py_ssize_t takers = n - from_worker < q->n_asleep ? n - from_worker : q->n_asleep;
    if (takers > q->width - q->n_running)
        takers = q->width - q->n_running;
    latch_give(&q->lock);
    if (takers > 0)
        signal_sleepers(q, (int)takers);
    return true;
}

/* The transaction has committed: what it has added counts from here. Returns what is to be
 * dropped, that before what is already. */
Transaction *
queue_added(Tx *tx, Transaction *dropped)
{
    Transaction *added = tx->added.first;
    tx->added.first = tx->added.last = NULL;
    Queue *own = tx->txn != NULL ? tx->txn->queue : NULL;
    while (added != NULL) {
        /* As many as go to the same queue, at once. */
        Transaction *first = added, *last = added;
        Queue *q = first->queue;
        Py_ssize_t n = 1;
        while (last->next != NULL && last->next->queue == q) {
            last = last->next;
            n++;
        }
        added = last->next;
        last->next = NULL;
        for (Transaction *t = first; t != NULL; t = t->next)
            t->holds_queue = false;
        if (!put(q, first, last, n, q == own)) {
            last->next = dropped;
            dropped = first;
            continue;
        }
        for (; q != own && n > 0; n--)
            Py_DECREF(q);
    }
    return dropped;
}

static PyObject *
queue_add(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "add() needs a function");
        return NULL;
    }
    Transaction *t = transaction_make(args[0], args + 1, nargs - 1, kwnames);
    if (t == NULL)
        return NULL;
    t->variables = stm_upcalls->variables();
    if (t->variables == NULL) {
        Py_DECREF(t);
        return NULL;
    }
    t->queue = (Queue *)self;
    Tx *tx = stm_self;
    if (tx != NULL && tx->live) {
        if (tx->txn == NULL || tx->txn->queue != t->queue) {
            /* Nobody else may hold it until the commit. */
            t->holds_queue = true;
            Py_INCREF(self);
        }
        if (tx->added.last != NULL)
            tx->added.last->next = t;
        else
            tx->added.first = t;
        tx->added.last = t;
    }
    else
        put((Queue *)self, t, t, 1, false);
    Py_RETURN_NONE;
}

/* Sleep until something has been signalled since, or for so many cycles, about (0: no limit). */
static void
sleep_since(Queue *q, uint32_t seen, uint64_t cycles)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&q->signal) != seen)
            return;
        __builtin_ia32_pause();
    }
    bool main = PyThread_get_thread_ident() == stm_main_thread;
    struct timespec nap = {0, LOOK_NS};
    if (cycles != 0 && (long)(cycles / CYCLES_PER_NS) < LOOK_NS)
        nap.tv_nsec = (long)(cycles / CYCLES_PER_NS);
    if (!stm_upcalls->is_asked()) {
        PyThreadState *ts = stm_upcalls->sleeps(true);
        syscall(SYS_futex, &q->signal, FUTEX_WAIT_PRIVATE, seen, main || cycles != 0 ? &nap : NULL, NULL, 0);
        stm_upcalls->wakes(ts);
    }
    if (serve() < 0)
        PyErr_FormatUnraisable("Exception ignored in a request to the main thread");
}

/* The transaction has raised, cannot be rolled back and is about to commit: nothing of its queue
 * does after it. Returns what is to be dropped. */
Transaction *
queue_end(Tx *tx, Queue *q)
{
    latch_take(&q->lock);
    Transaction *dropped = q->first;
    q->first = q->last = NULL;
    q->n_ready = 0;
    atomic_store(&q->ended, true);
    latch_give(&q->lock);
    end_others(tx, q);
    return dropped;
}

static uint8_t *
home_of(Queue *q, Transaction *t)
{
    static uint8_t nowhere;     /* stays 0 */
    return Py_SIZE(t) == 0 ? &nowhere : &q->home[((uintptr_t)t->args[0] >> 4) * 0x9E3779B97F4A7C15ull >> 54];
}

/* Does the next one have the same first argument? */
static bool
is_repeated(Transaction *t)
{
    return Py_SIZE(t) != 0 && t->next != NULL && Py_SIZE(t->next) != 0 && t->args[0] == t->next->args[0];
}

/* Take one that is ready, for that thread; there is one. Holding the lock. */
static Transaction *
take_locked(Queue *q, uint8_t slot)
{
    Transaction *t = q->first, *before = NULL;
    if (q->width > 1 && t->passed < MOST_PASSED && !is_repeated(t)) {
        int seen = 0;
        while (t != NULL && *home_of(q, t) != 0 && *home_of(q, t) != slot && ++seen < LOOK_AHEAD) {
            before = t;
            t = t->next;
        }
        if (t == NULL || seen == LOOK_AHEAD) {
            t = q->first;       /* all are at home elsewhere */
            before = NULL;
        }
        else if (before != NULL)
            q->first->passed++;
    }
    if (before == NULL)
        q->first = t->next;
    else
        before->next = t->next;
    if (q->last == t)
        q->last = before;
    t->next = NULL;
    q->n_ready--;
    q->n_running++;
    if (Py_SIZE(t) != 0 && q->width > 1)
        *home_of(q, t) = slot;
    return t;
}

/* One that was to be hired does not come: from here on there are no more than there are. */
static void
do_without(Queue *q)
{
    latch_take(&q->lock);
    q->n_workers--;
    q->n_hired--;
    q->limit = q->n_workers;
    if (q->width > q->limit)
        q->width = q->limit;
    latch_give(&q->lock);
}

/* Returns -1 with an exception to raise, such as a signal handler's. That the system has no more
 * threads is none. */
static int
hire(Queue *q, PyObject *start)
{
    PyObject *r = PyObject_CallNoArgs(start);
    Py_XDECREF(r);
    if (r != NULL)
        return 0;
    do_without(q);
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_FormatUnraisable("Exception ignored while starting a thread for transactions");
    return 0;
}

/* A worker has lost most of its last window to the others, or not. Holding the lock. Returns
 * how many more may run. */
static int
adapt_locked(Queue *q, bool crowded, uint64_t now)
{
    if (crowded && q->width > 1 && q->n_workers > 1) {
        q->width = (q->width < q->n_workers ? q->width : q->n_workers) - 1;
        q->next_trial = now + q->trial;
        if (q->trial < LONGEST_TRIAL)
            q->trial *= 2;
        return 0;
    }
    if (crowded || now < q->next_trial)
        return 0;
    q->next_trial = now + q->trial;
    if (q->width == q->limit) {
        if (q->trial > FIRST_TRIAL)
            q->trial /= 2;
        return 0;
    }
    q->width++;
    return 1;
}

static _Atomic int forks;       /* so often is this process the child of one */
static Latch forgetting;

void
queues_in_child(void)
{
    forgetting = (Latch){0};
    atomic_fetch_add(&forks, 1);
}

/* If this is the child of a fork, and the queue its parent's, all others that have worked for it are gone. */
static void
forget_parents(Queue *q, bool works, bool is_hired, bool ran)
{
    if (LIKELY(q->forks == atomic_load(&forks)))
        return;
    latch_take(&forgetting);
    if (q->forks != atomic_load(&forks)) {
        q->lock = (Latch){0};
        q->n_workers = works;
        q->n_hired = works && is_hired;
        q->n_running = ran;
        q->n_asleep = 0;
        q->forks = atomic_load(&forks);
    }
    latch_give(&forgetting);
}

void
queue_wait_again(Transaction *t)
{
    Queue *q = t->queue;
    t->next = q->first;
    q->first = t;
    if (q->last == NULL)
        q->last = t;
    q->n_ready++;
}

/* It has been taken, and is to run again when something else has. */
static void
put_back(Tx *tx, Queue *q, Transaction *t)
{
    latch_take(&q->lock);
    bool ended = q->ended;
    if (!ended)
        queue_wait_again(t);
    latch_give(&q->lock);
    if (ended)
        release_dropped(tx, t);
}

/* Run it, and keep its exception. Returns whether it has been committed. */
static bool
run_one(Tx *tx, Queue *q, Transaction *t)
{
    Company company = q->limit == 1 && runs_on_few(1) ? SEQUENTIAL : AMONG_OTHERS;
    int how = run_to_commit(tx, t, company, NULL);
    if (UNLIKELY(how == RUN_DROPPED)) {
        release_dropped(tx, t);
        return false;
    }
    if (UNLIKELY(how == RUN_PUT_OFF)) {
        put_back(tx, q, t);
        return false;
    }
    Py_DECREF(t);
    if (UNLIKELY(how == RUN_RAISED)) {
        /* The only one of this run, before the worker is counted as one that runs nothing. */
        PyObject *exception = PyErr_GetRaisedException();
        latch_take(&q->lock);
        PyObject *before = q->failure;
        q->failure = exception;
        latch_give(&q->lock);
        Py_XDECREF(before);
    }
    return true;
}

/* Run a call that has not waited in the queue. Returns whether it has been committed. */
static bool
run_call(Tx *tx, Queue *q, PyObject *function, PyObject *const *args, Py_ssize_t n)
{
    Transaction *t = transaction_make(function, args, n, NULL);
    if (t == NULL) {
        PyErr_FormatUnraisable("Exception ignored before a call of %R", function);
        return true;
    }
    t->queue = q;
    t->is_call = true;
    t->age = atomic_fetch_add(&stm_next_age, 1);
    return run_one(tx, q, t);
}

bool
queue_has_calls(Queue *q)
{
    latch_take(&q->lock);
    bool any = q->calls != NULL && PyList_GET_SIZE(q->calls) > 0;
    latch_give(&q->lock);
    return any;
}

bool
queue_is_interrupted(Queue *q)
{
    if (PyThread_get_thread_ident() != stm_main_thread || q->calls == NULL)
        return false;
    if (PyErr_CheckSignals() < 0)       /* what stands in for a handler raises nothing */
        PyErr_FormatUnraisable("Exception ignored in the handler of a signal");
    return queue_has_calls(q);
}

/* They stay in the list, and find nothing left to do when they are made once more. */
int
queue_make_calls(Queue *q)
{
    for (Py_ssize_t i = 0; q->calls != NULL && i < PyList_GET_SIZE(q->calls); i++) {
        PyObject *call = PyList_GetItemRef(q->calls, i);
        PyObject *result = call == NULL ? NULL : PyObject_Call(PyTuple_GET_ITEM(call, 0), PyTuple_GET_ITEM(call, 1), NULL);
        Py_XDECREF(call);
        Py_XDECREF(result);
        if (result == NULL)
            return -1;
    }
    return 0;
}

/* Make the calls in the list, (function, arguments) each. If the queue ends the rest stays there. */
static void
make_calls(Tx *tx, Queue *q, PyObject *waiting)
{
    while (PyList_GET_SIZE(waiting) > 0 && !q->ended) {
        PyObject *call = PyList_GetItemRef(waiting, 0), *args = PyTuple_GET_ITEM(call, 1);
        if (run_call(tx, q, PyTuple_GET_ITEM(call, 0), ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args))
            && PyList_SetSlice(waiting, 0, 1, NULL) < 0)
            PyErr_FormatUnraisable("Exception ignored after the call %R", call);
        Py_DECREF(call);
    }
}

static PyObject *
raise_again(PyObject *unused, PyObject *exception)
{
    (void)unused;
    PyErr_SetRaisedException(Py_NewRef(exception));
    return NULL;
}

static PyMethodDef raise_again_method = {"raise_again", raise_again, METH_O, NULL};

/* An exception that has come up between two transactions ends the queue as if one had raised it. */
static void
fail(Tx *tx, Queue *q)
{
    PyObject *exception = PyErr_GetRaisedException(), *function = PyCFunction_New(&raise_again_method, NULL);
    if (function == NULL)
        PyErr_FormatUnraisable("Exception ignored at the exception %R", exception);
    else
        run_call(tx, q, function, &exception, 1);
    Py_XDECREF(function);
    Py_DECREF(exception);
}

/* Run transactions until none is left and, unless hired itself, until all hired threads have left.
 * `start` hires one. `waiting` is None or a list of calls, to be made between transactions. Returns
 * the exception that has ended the queue to the first that was not hired; to others, NULL. */
static PyObject *
work(Tx *tx, Queue *q, PyObject *start, PyObject *waiting, bool is_hired)
{
    bool ran = false, committed = false;
    unsigned long anchor = tx->anchor;
    tx->anchor = q->anchor;
    const void *group = atomic_exchange(&tx->contention.group, q);
    if (waiting != Py_None)
        q->calls = waiting;
    uint64_t window = __builtin_ia32_rdtsc();
    for (;;) {
        forget_parents(q, true, is_hired, ran);
        if (waiting != Py_None && UNLIKELY(PyList_GET_SIZE(waiting) > 0))
            make_calls(tx, q, waiting);
        int widened = 0;
        uint64_t now = ran ? __builtin_ia32_rdtsc() : window;
        latch_take(&q->lock);
        q->n_running -= ran;
        q->n_executed += committed;
        if (now - window > WINDOW) {
            widened = adapt_locked(q, tx->contention.lost > (now - window) / 2, now);
            window = now;
            tx->contention.lost = 0;
        }
        if (!ran && q->first != NULL && q->n_running >= q->width)
            adapt_locked(q, false, now);    /* who runs may do so for long */
        bool any = q->first != NULL && LIKELY(!q->ended);
        Transaction *t = any && q->n_running < q->width ? take_locked(q, (uint8_t)tx->slot) : NULL;
        bool idle = t == NULL && q->n_running == 0;
        bool over = idle && (is_hired || q->n_hired == 0);
        bool surplus = t == NULL && any;
        uint64_t nap = surplus ? (q->next_trial > now ? q->next_trial - now : 1) : 0;
        uint64_t executed = (uint64_t)q->n_executed;
        bool more = t != NULL && q->n_ready > q->n_asleep && q->n_workers < q->limit;
        q->n_workers += more - over;
        q->n_hired += more - (over && is_hired);
        q->n_asleep += t == NULL && !over;
        PyObject *failure = NULL;
        if (over && !is_hired) {
            failure = q->failure;
            q->failure = NULL;
        }
        if (over && waiting != Py_None)
            q->calls = NULL;
        uint32_t seen = atomic_load(&q->signal);
        latch_give(&q->lock);

        if (t == NULL)
            finalize_dying(tx, GRADE_IRREVOCABLE);
        if (over || (idle && ran))
            signal_sleepers(q, INT_MAX);
        if (over) {
            tx->anchor = anchor;
            atomic_store(&tx->contention.group, group);
            return failure;
        }
        if (widened)
            signal_sleepers(q, widened);
        if (more && hire(q, start) < 0)
            fail(tx, q);
        ran = t != NULL;
        if (ran)
            stm_upcalls->goes_on(tx, executed, q->limit > 1);
        committed = ran && run_one(tx, q, t);
        if (!ran) {
            sleep_since(q, seen, nap);
            latch_take(&q->lock);
            q->n_asleep--;
            latch_give(&q->lock);
            if (PyErr_CheckSignals() < 0)
                fail(tx, q);
            window = __builtin_ia32_rdtsc();
            tx->contention.lost = 0;
        }
    }
}

/* work(start): as one more thread, which another one has hired.  If there are too many that run transactions, it does nothing. */
static PyObject *
queue_work(PyObject *self, PyObject *start)
{
    Tx *tx = stm_thread_tx();
    if (tx == NULL || check_can_run(tx) < 0) {
        PyErr_Clear();
        do_without((Queue *)self);
        signal_sleepers((Queue *)self, INT_MAX);    /* it may have been the last that they wait for */
        Py_RETURN_NONE;
    }
    bool stood_by = bystander_steps_in();
    work(tx, (Queue *)self, start, Py_None, true);
    bystander_steps_back(stood_by);
    Py_RETURN_NONE;
}

/* run(limit, start, waiting): as the first of `limit` workers, or one more of those that another caller
 * has. Returns the exception that has ended the queue, unless another caller has it, or None. */
static PyObject *
queue_run(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 3 || !(args[2] == Py_None || PyList_CheckExact(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "_run() needs a number, a function, and a list or None");
        return NULL;
    }
    Queue *q = (Queue *)self;
    int limit = PyLong_AsInt(args[0]);
    Tx *tx = stm_thread_tx();
    if ((limit == -1 && PyErr_Occurred()) || tx == NULL || check_can_run(tx) < 0)
        return NULL;
    forget_parents(q, false, false, false);
    for (;;) {
        latch_take(&q->lock);
        if (!q->ended || q->n_workers == 0)
            break;
        uint32_t seen = atomic_load(&q->signal);
        latch_give(&q->lock);
        sleep_since(q, seen, 0);
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
    q->ended = false;
    if (q->n_workers++ == 0)
        q->anchor = PyThread_get_thread_ident();
    q->limit = q->width = limit;
    q->trial = FIRST_TRIAL;
    latch_give(&q->lock);
    /* Its count of references would be what the threads wait for most. */
    if (limit > 1)
        PyUnstable_Object_EnableDeferredRefcount(self);
    bool stood_by = bystander_steps_in();
    PyObject *failure = work(tx, q, args[1], args[2], false);
    bystander_steps_back(stood_by);
    return failure != NULL ? failure : Py_NewRef(Py_None);
}

static PyObject *
queue_new(PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    PyObject *self = PyType_GenericNew(type, args, kwds);
    if (self != NULL)
        ((Queue *)self)->forks = atomic_load(&forks);
    return self;
}

static int
queue_traverse(PyObject *self, visitproc visit, void *arg)
{
    Queue *q = (Queue *)self;
    for (Transaction *t = q->first; t != NULL; t = t->next)
        Py_VISIT(t);
    Py_VISIT(q->failure);
    return 0;
}

static int
queue_clear(PyObject *self)
{
    Queue *q = (Queue *)self;
    Transaction *t = q->first;
    q->first = q->last = NULL;
    q->n_ready = 0;
    transactions_drop(t);
    Py_CLEAR(q->failure);
    return 0;
}

static void
queue_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    queue_clear(self);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
}

static PyMethodDef queue_methods[] = {
    {"add", _PyCFunction_CAST(queue_add), METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("add($self, f, /, *args, **kwds)\n--\n\nAdd ``f(*args, **kwds)`` as one transaction. "
               "From inside a transaction it counts from that one's commit.")},
    {"_run", _PyCFunction_CAST(queue_run), METH_FASTCALL,
     PyDoc_STR("_run(limit, start, waiting): run transactions until none is left, on so many threads; start() starts "
               "one more, which calls _work(start); the calls that wait are made in between. "
               "Gives the exception that has ended it, or None")},
    {"_work", queue_work, METH_O, PyDoc_STR("_work(start): run transactions until none is left, on a thread that _run has started")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"_workers", Py_T_INT, offsetof(Queue, n_workers), Py_READONLY, PyDoc_STR("so many threads work")},
    {"_executed", Py_T_PYSSIZET, offsetof(Queue, n_executed), Py_READONLY, PyDoc_STR("so many transactions have run")},
    {"_width", Py_T_INT, offsetof(Queue, width), Py_READONLY, PyDoc_STR("so many threads may run transactions now")},
    {0},
};

PyTypeObject Queue_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Queue",
    .tp_doc = PyDoc_STR("Queue()\n--\n\nTransactions that wait to be run."),
    .tp_basicsize = sizeof(Queue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = queue_new,
    .tp_dealloc = queue_dealloc,
    .tp_traverse = queue_traverse,
    .tp_clear = queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
};
