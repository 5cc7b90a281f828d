/* The worker's round. */
#include "dispatcher.h"

#include "../calls/calls.h"
#include "../core/bystanders.h"
#include "../core/transaction.h"
#include "../objects/access.h"
#include "../objects/garbage.h"
#include "../objects/immortal.h"
#include "../objects/types.h"
#include "../per_thread.h"
#include "../thread.h"
#include "chain.h"
#include "handle.h"

#include "internal/pycore_tstate.h"

#include <math.h>

/* Seconds from one time that signals are let in to the next, while there is always something to run. */
#define SIGNAL_PERIOD 0.001

/* Timers that only wait to be forgotten are, once there are so many and they are the most. */
#define CANCELLED 100

/* Seconds: who waits looks so often whether others leave garbage behind. */
#define GARBAGE_PERIOD 0.1

/* So many prompt transactions may wait for the thread that runs one, though another one is idle. */
#define FEW 2

/* Seconds: how long what is to be gathered waits at least while others have something longer to run, and how long they wait for it
 * at most. */
#define PATIENCE 0.02
#define LONGEST_GATHERING 0.05

/* Seconds: when the loop's thread has not come for so long to gather, others do not wait for it any more. */
#define TAKE_OVER 0.1

/* Seconds: a gathering waits so long for more, for instance for what a database answers.  Where that was in vain, others do not, the more
 * often, the more. */
#define LINGER 0.001
#define MOST_VAIN 6

/* Seconds: so long what somebody begins to watch waits for what has been scheduled by then, at most: that may never return. */
#define LONGEST_EARLY 1.0

struct DispatchNames dispatch_names;

static Dispatcher *
as_dispatcher(PyObject *self)
{
    return (Dispatcher *)self;
}

/* ---- Of which loop? ------------------------------------------------------------------------------- */

/* Invariant: while a loop is here it lives, or is being taken down; so who has one need not ask for more than its address. */
#define LOOPS 64
static struct { PyObject *_Atomic loop; Dispatcher *dispatcher; } loops[LOOPS];
static Latch loops_lock;
static PyObject *dispatcher_name;

static void
remember_loop(Dispatcher *d, PyObject *loop)
{
    latch_take(&loops_lock);
    for (int i = 0; i < LOOPS; i++) {
        if (atomic_load(&loops[i].loop) == NULL) {
            loops[i].dispatcher = d;
            atomic_store(&loops[i].loop, loop);
            break;
        }
    }
    latch_give(&loops_lock);
}

static void
forget_loop(Dispatcher *d)
{
    latch_take(&loops_lock);
    for (int i = 0; i < LOOPS; i++) {
        if (loops[i].dispatcher == d) {
            atomic_store(&loops[i].loop, NULL);
            loops[i].dispatcher = NULL;
        }
    }
    latch_give(&loops_lock);
}

void
dispatchers_in_child(void)
{
    loops_lock = (Latch){0};
}

Dispatcher *
dispatcher_of(PyObject *loop)
{
    for (int i = 0; i < LOOPS; i++) {
        if (atomic_load_explicit(&loops[i].loop, memory_order_acquire) == loop && loop != NULL)
            return loops[i].dispatcher;
    }
    /* There may be more loops than that. The attribute never changes. */
    PyObject *found = NULL;
    if (loop == NULL || PyObject_GetOptionalAttr(loop, dispatcher_name, &found) < 0)
        PyErr_Clear();
    bool is = found != NULL && Py_IS_TYPE(found, &Dispatcher_Type);
    Py_XDECREF(found);
    return is ? (Dispatcher *)found : NULL;
}

bool
is_dispatcher(PyObject *o)
{
    if (Py_IS_TYPE(o, &Dispatcher_Type))
        return true;
    PyErr_Format(PyExc_TypeError, "a Dispatcher is needed, not %R", o);
    return false;
}

/* ---- The lock --------------------------------------------------------------------------------------- */

void
dispatcher_lock(Dispatcher *d)
{
    unsigned long me = PyThread_get_thread_ident();
    if (UNLIKELY(atomic_load_explicit(&d->owner, memory_order_relaxed) == me)) {
        d->level++;
        return;
    }
    latch_take(&d->lock);
    atomic_store_explicit(&d->owner, me, memory_order_relaxed);
}

void
dispatcher_unlock(Dispatcher *d)
{
    if (UNLIKELY(d->level > 0)) {
        d->level--;
        return;
    }
    PyObject *dropped = d->dropped;
    d->dropped = NULL;
    atomic_store_explicit(&d->owner, 0, memory_order_relaxed);
    latch_give(&d->lock);
    Py_XDECREF(dropped);
}

/* Under the lock: what may be the last reference, and no finalizer may run yet.  Takes it. */
static void
drop_later(Dispatcher *d, PyObject *o)
{
    if (d->dropped == NULL)
        d->dropped = PyList_New(0);
    if (d->dropped == NULL || PyList_Append(d->dropped, o) < 0)
        PyErr_Clear();
    Py_DECREF(o);
}

/* ---- What a thread schedules -------------------------------------------------------------------- */

static int
order_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)((Order *)self)->last);
    return 0;
}

static int
order_clear(PyObject *self)
{
    Py_CLEAR(((Order *)self)->last);
    return 0;
}

static void
order_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    order_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject Order_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Order",
    .tp_basicsize = sizeof(Order),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = order_dealloc,
    .tp_traverse = order_traverse,
    .tp_clear = order_clear,
};

static void
add_fresh(Fresh *fresh, Entry *entry)
{
    if (fresh->first == NULL)
        fresh->first = entry;
    else
        fresh->last->next = entry;
    fresh->last = entry;
}

/* The first, which the caller owns from here on; or NULL. */
static Entry *
take_fresh(Fresh *fresh)
{
    Entry *entry = fresh->first;
    if (entry != NULL) {
        fresh->first = entry->next;
        entry->next = NULL;
    }
    return entry;
}

static int
scheduling_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)((Scheduling *)self)->order);
    for (Entry *entry = ((Scheduling *)self)->fresh.first; entry != NULL; entry = entry->next)
        Py_VISIT((PyObject *)entry);
    return timers_traverse(&((Scheduling *)self)->early, visit, arg);
}

static int
scheduling_clear(PyObject *self)
{
    Py_CLEAR(((Scheduling *)self)->order);
    for (Entry *entry; (entry = take_fresh(&((Scheduling *)self)->fresh)) != NULL;)
        Py_DECREF(entry);
    timers_clear(&((Scheduling *)self)->early);
    return 0;
}

static void
scheduling_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    scheduling_clear(self);
    PyMem_RawFree(((Scheduling *)self)->heard.fds);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject Scheduling_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Scheduling",
    .tp_basicsize = sizeof(Scheduling),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = scheduling_dealloc,
    .tp_traverse = scheduling_traverse,
    .tp_clear = scheduling_clear,
};

/* Under the lock: that of this thread, borrowed; NULL with an exception. */
static Scheduling *
mine(Dispatcher *d)
{
    PyObject *thread = PyLong_FromUnsignedLong(identified_thread()), *found = NULL;
    if (thread != NULL && PyDict_GetItemRef(d->threads, thread, &found) == 0) {
        found = Scheduling_Type.tp_alloc(&Scheduling_Type, 0);
        if (found != NULL && PyDict_SetItem(d->threads, thread, found) < 0)
            Py_CLEAR(found);
    }
    Py_XDECREF(thread);
    Py_XDECREF(found);
    return (Scheduling *)found;
}

/* Under the lock: what came last into the strand of what runs, unless it is that itself; borrowed, or NULL. */
static Entry *
last_beside(Entry *running)
{
    Entry *last = running->strand->last;
    return last != running ? last : NULL;
}

/* Under the lock: the order of what this very transaction (or thread, outside transactions) schedules, borrowed. */
static Order *
my_order(Dispatcher *d)
{
    Scheduling *s = mine(d);
    if (s == NULL)
        return NULL;
    uint64_t parent = stm_self != NULL && stm_self->txn != NULL ? stm_self->txn->age : 0;
    if (s->order == NULL || s->order->parent != parent) {
        Order *order = (Order *)Order_Type.tp_alloc(&Order_Type, 0);
        if (order == NULL)
            return NULL;
        order->parent = parent;
        order->by = s;
        order->run = parent != 0 ? s->run : 0;
        order->last = order->run != 0 ? (Entry *)Py_XNewRef(last_beside(s->running)) : NULL;
        Py_XSETREF(s->order, order);
    }
    return s->order;
}

void
dispatcher_added(Dispatcher *d)
{
    Scheduling *s = mine(d);
    if (s == NULL)
        PyErr_Clear();
    if (s == NULL || s->run == 0)
        poller_wake(&d->poller, 1);
}

/* Under the lock: make function(argument) ready there, as one of what the order's transaction or thread has scheduled.  The caller owns it; NULL
 * with an exception. */
static Entry *
make_ready(Dispatcher *d, PyObject *function, PyObject *argument, PyObject *site, Order *order, Turn turn)
{
    PyObject *args = PyTuple_Pack(1, argument);
    Entry *entry = args != NULL ? ready_make(d->ready, function, args, site, turn.before) : NULL;
    Py_XDECREF(args);
    if (entry != NULL && strand_join(turn.strand, entry, true) < 0)
        Py_CLEAR(entry);
    if (entry != NULL) {
        Py_XSETREF(order->last, (Entry *)Py_NewRef(entry));
        order->has_scheduled = true;
    }
    return entry;
}

/* Under the lock: all of them are ready. */
static void
place_fresh(Dispatcher *d, Fresh *fresh)
{
    for (Entry *entry; (entry = take_fresh(fresh)) != NULL;)
        ready_place(d->ready, entry);
}

/* Under the lock: what has been scheduled before anything runs is of one strand, or NULL: that of what was left over when the loop last
 * stopped, if there is any. */
static Strand *
unbegun(Dispatcher *d)
{
    if (d->workers == 0 && d->unbegun == NULL) {
        Entry *left = ready_youngest(d->ready);
        d->unbegun = left != NULL ? left->strand : NULL;
    }
    return d->workers == 0 ? d->unbegun : NULL;
}

static void
joins_unbegun(Dispatcher *d, Entry *entry)
{
    if (d->workers == 0)
        d->unbegun = entry->strand;
}

/* Under the lock: of what is scheduled by no transaction that runs here. */
static Turn
turn_of_call(Dispatcher *d, Order *order)
{
    Strand *strand = unbegun(d);
    return (Turn){strand, strand != NULL ? strand->last : order->last};
}

/* Under the lock: of what the running transaction schedules.  What is not expected to be short leaves the strand, or what is would wait
 * behind it; but what one transaction schedules, or the events of one descriptor do, commits in that order. */
static Turn
turn_of_scheduled(Dispatcher *d, Order *order, PyObject *site)
{
    Entry *running = order->by->running;
    if (!is_expected_short(d->ready->estimates, site))
        return (Turn){NULL, order->has_scheduled || running->follows_event ? order->last : NULL};
    bool after_long = order->has_scheduled && is_to_run(order->last) && order->last->strand != running->strand;
    return (Turn){running->strand, after_long ? order->last : last_beside(running)};
}

/* Under the lock: the handle is ready: at once, or with what else the running transaction schedules. */
static int
handle_is_ready(Dispatcher *d, PyObject *handle, PyObject *site)
{
    Order *order = my_order(d);
    if (order == NULL)
        return -1;
    Scheduling *s = order->by;
    bool scheduled = s->run != 0 && order->run == s->run;
    Turn turn = scheduled ? turn_of_scheduled(d, order, site) : turn_of_call(d, order);
    Entry *entry = make_ready(d, d->run_handle, handle, site, order, turn);
    if (entry == NULL)
        return -1;
    if (scheduled) {
        entry->round = s->running->round + chain_depth_of_next();
        add_fresh(&s->fresh, entry);
    }
    else {
        joins_unbegun(d, entry);
        ready_place(d->ready, entry);
    }
    if (s->run == 0)
        poller_wake(&d->poller, 1);
    return 0;
}

static PyObject *
submit(PyObject *self, PyObject *handle)
{
    Dispatcher *d = as_dispatcher(self);
    PyObject *site = site_of(NULL, handle);
    if (site == NULL)
        return NULL;
    dispatcher_lock(d);
    int r = handle_is_ready(d, handle, site);
    dispatcher_unlock(d);
    Py_DECREF(site);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
put_first(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Dispatcher *d = as_dispatcher(self);
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "put_first() takes a function and a tuple of its arguments");
        return NULL;
    }
    dispatcher_lock(d);
    int r = ready_put_first(d->ready, args[0], args[1]);
    poller_wake(&d->poller, 1);
    dispatcher_unlock(d);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- Timers ---------------------------------------------------------------------------------------- */

/* What the loop's clock shows, in seconds; NAN with an exception. */
static double
now(Dispatcher *d)
{
    if (UNLIKELY(d->other_clock)) {
        PyObject *time = PyObject_CallMethodNoArgs(d->loop, dispatch_names.time);
        double seconds = time != NULL ? PyFloat_AsDouble(time) : NAN;
        Py_XDECREF(time);
        return PyErr_Occurred() ? NAN : seconds;
    }
    return seconds_of(CLOCK_MONOTONIC);
}

/* Takes the reference to the order, which may be NULL. */
static int
set_timer(Dispatcher *d, double when, PyObject *timer, Order *order)
{
    Timer set = {when, ++d->timers_set, Py_NewRef(timer), order};
    if (timers_push(&d->timers, set) < 0)
        return -1;
    if (when < d->poller.until)
        poller_wake_who_polls(&d->poller);
    return 0;
}

static double
float_attribute(PyObject *o, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(o, name);
    double number = value != NULL ? PyFloat_AsDouble(value) : -1.0;
    Py_XDECREF(value);
    return number;
}

static PyObject *
arm(PyObject *self, PyObject *timer)
{
    Dispatcher *d = as_dispatcher(self);
    double when = float_attribute(timer, dispatch_names.when);
    if (when == -1.0 && PyErr_Occurred())
        return NULL;
    dispatcher_lock(d);
    Order *order = my_order(d);
    int r = order != NULL ? set_timer(d, when, timer, (Order *)Py_NewRef(order)) : -1;
    dispatcher_unlock(d);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
call_at(PyObject *self, PyObject *args)
{
    Dispatcher *d = as_dispatcher(self);
    double when;
    PyObject *function, *arguments;
    if (!PyArg_ParseTuple(args, "dOO!", &when, &function, &PyTuple_Type, &arguments))
        return NULL;
    PyObject *call = PyTuple_Pack(2, function, arguments);
    if (call == NULL)
        return NULL;
    dispatcher_lock(d);
    int r = set_timer(d, when, call, NULL);
    dispatcher_unlock(d);
    Py_DECREF(call);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* Add the program's handles that wait to a list. */
static int
add_waiting(PyObject *all, Timers *timers)
{
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < timers->n; i++) {
        PyObject *timer = timers->heap[i].timer;
        if (!PyTuple_CheckExact(timer) && timer_waits(timer))
            r = PyList_Append(all, timer);
    }
    return r;
}

static PyObject *
timers(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    PyObject *all = PyList_New(0);
    if (all == NULL)
        return NULL;
    dispatcher_lock(d);
    Scheduling *s = mine(d);
    int r = s == NULL ? -1 : add_waiting(all, &s->early) < 0 ? -1 : add_waiting(all, &d->timers);
    dispatcher_unlock(d);
    if (r < 0)
        Py_CLEAR(all);
    return all;
}

static void
drop_timer_later(Dispatcher *d, Timer timer)
{
    drop_later(d, timer.timer);
    Py_XDECREF(timer.order);
}

static PyObject *
timer_cancelled(PyObject *self, PyObject *timer)
{
    Dispatcher *d = as_dispatcher(self);
    dispatcher_lock(d);
    timer_waits_no_more(timer);
    if (++d->timers_cancelled > CANCELLED && 2 * d->timers_cancelled > d->timers.n) {
        Py_ssize_t kept = 0, n = d->timers.n;
        for (Py_ssize_t i = 0; i < n; i++) {
            if (timer_waits(d->timers.heap[i].timer))
                d->timers.heap[kept++] = d->timers.heap[i];
            else
                drop_timer_later(d, d->timers.heap[i]);
        }
        d->timers.n = kept;
        timers_sort(&d->timers);
        d->timers_cancelled = 0;
    }
    dispatcher_unlock(d);
    Py_RETURN_NONE;
}

/* Under the lock: of a timer that is due, like `others` of that moment.  Those of one transaction come in the order of their deadlines, and
 * after what that has scheduled. */
static Turn
turn_of_timer(Dispatcher *d, Order *order, Fresh *others)
{
    Strand *strand = others->first != NULL ? others->first->strand : unbegun(d);
    bool after_last = strand == NULL || (is_to_run(order->last) && order->last->strand != strand);
    return (Turn){strand, after_last ? order->last : strand->last};
}

/* Under the lock: a timer is due, with others. Takes its references. */
static int
falls_due(Dispatcher *d, Timer timer, Fresh *others)
{
    Order *order = timer.order;
    if (order != NULL && order->run != 0 && order->by->run == order->run)
        return timers_push(&order->by->early, timer);
    int r = 0;
    if (PyTuple_CheckExact(timer.timer))
        r = ready_put_first(d->ready, PyTuple_GET_ITEM(timer.timer, 0), PyTuple_GET_ITEM(timer.timer, 1));
    else if (timer_waits(timer.timer)) {
        PyObject *site = site_of(NULL, timer.timer);
        Entry *entry = site != NULL ? make_ready(d, d->run_timer, timer.timer, site, order, turn_of_timer(d, order, others)) : NULL;
        Py_XDECREF(site);
        r = entry != NULL ? 0 : -1;
        if (entry != NULL) {
            joins_unbegun(d, entry);
            add_fresh(others, entry);
        }
    }
    drop_timer_later(d, timer);
    return r < 0 ? -1 : 0;
}

/* Under the lock: timers whose time has come become ready; those of one moment in one strand, whoever has set them. */
static int
due_timers(Dispatcher *d)
{
    if (d->timers.n == 0)
        return 0;
    double time = now(d);
    if (isnan(time))
        return -1;
    int r = 0;
    while (r == 0 && d->timers.n > 0 && d->timers.heap[0].when < time + d->resolution) {
        double when = d->timers.heap[0].when;
        Fresh due = {0};
        while (r == 0 && d->timers.n > 0 && d->timers.heap[0].when == when)
            r = falls_due(d, timers_pop(&d->timers), &due);
        place_fresh(d, &due);
    }
    return r;
}

/* ---- File descriptors -------------------------------------------------------------------------------- */

/* The number of the descriptor that the watch or outbox is for; -1 with an exception. */
static int
number_of(PyObject *o)
{
    PyObject *fd = PyObject_GetAttr(o, dispatch_names.fd);
    int number = fd != NULL ? PyLong_AsInt(fd) : -1;
    Py_XDECREF(fd);
    return number;
}

/* Under the lock: what this thread's transaction has scheduled last, borrowed; or NULL. */
static Entry *
just_scheduled(Scheduling *s)
{
    Order *order = s->order;
    bool of_this = order != NULL && stm_self != NULL && stm_self->txn != NULL && order->parent == stm_self->txn->age;
    return of_this && order->has_scheduled ? order->last : NULL;
}

/* Under the lock: keep that one (or NULL) in the place of another one. */
static void
note_entry(Dispatcher *d, Entry **kept, Entry *entry)
{
    Entry *before = *kept;
    *kept = (Entry *)Py_XNewRef((PyObject *)entry);
    if (before != NULL)
        drop_later(d, (PyObject *)before);
}

void
dispatcher_received(void)
{
    Scheduling *by = stm_self != NULL ? thread_of(stm_self)->chain.by : NULL;
    if (by != NULL)
        by->received = true;
}

/* Under the lock, of a descriptor whose event this thread's transaction has handled: does it leave that to what has been scheduled, so that the
 * kernel would report it again until that has run? */
static bool
leaves_event(Dispatcher *d, Scheduling *s, int fd)
{
    return !s->received && !atomic_load_explicit(&s->sent.something, memory_order_relaxed) && poller_has_scheduled(&d->poller, fd);
}

/* Under the lock, of a descriptor whose event this thread's transaction has handled: arm it when that has let go of all that it held.
 * By then there may be more to read, which this thread then goes on with; armed here, the kernel would wake another one for it.
 * Or arm it later still: see poller.h. */
static bool
arms_later(Dispatcher *d, int fd)
{
    Scheduling *s = mine(d);
    if (s == NULL) {
        PyErr_Clear();
        return false;
    }
    if (s->run == 0)
        return false;
    Descriptor *descriptor = &d->poller.descriptors[fd];
    Entry *scheduled = just_scheduled(s);
    if (scheduled != NULL || !is_to_run(descriptor->scheduled))
        note_entry(d, &descriptor->scheduled, scheduled);
    if (!leaves_event(d, s, fd) || (d->poller.polls && !poller_is_the_same(&d->poller, fd)))
        return descriptors_add(&s->heard, fd);
    return descriptors_add(&d->held, fd);
}

/* Under the lock: this thread's transaction watches the descriptor.  If that begins, and more has been scheduled than what runs, it is armed when
 * that has run: see poller.h. */
static bool
begins_later(Dispatcher *d, int fd)
{
    Descriptor *descriptor = &d->poller.descriptors[fd];
    if (descriptor->early > 0)
        return true;
    if (d->n_threads == 1 || !poller_is_new(&d->poller, fd))
        return false;
    Scheduling *s = mine(d);
    if (s == NULL) {
        PyErr_Clear();
        return false;
    }
    Entry *last = s->run != 0 ? last_beside(s->running) : NULL;
    if (!is_to_run(last) || !descriptors_add(&d->held, fd))
        return false;
    note_entry(d, &descriptor->scheduled, last);
    strand_hold(&descriptor->strand, last->strand);
    descriptor->early = 2;
    descriptor->since = seconds_of(CLOCK_MONOTONIC);
    descriptor->busy = true;
    return true;
}

/* Under the lock: must it not be armed yet? */
static bool
is_held(Dispatcher *d, Descriptor *descriptor)
{
    bool waits = is_to_run(descriptor->scheduled);
    if (descriptor->early == 0)
        return waits;
    bool is_over = seconds_of(CLOCK_MONOTONIC) - descriptor->since >= LONGEST_EARLY;
    if (waits && !is_over)
        return true;
    descriptor->early--;
    Entry *last = descriptor->early > 0 && !is_over && descriptor->strand != NULL ? descriptor->strand->last : NULL;
    if (!is_to_run(last)) {     /* what its events schedule has nothing to do with all that */
        last = NULL;
        descriptor->early = 0;
        strand_hold(&descriptor->strand, NULL);
    }
    note_entry(d, &descriptor->scheduled, last);
    return last != NULL;
}

/* Under the lock: are some held for a time at most, whatever runs? */
static bool
holds_for_a_time(Dispatcher *d)
{
    for (int i = 0; i < d->held.n; i++) {
        if (d->held.fds[i] < d->poller.n && d->poller.descriptors[d->held.fds[i]].early > 0)
            return true;
    }
    return false;
}

/* Under the lock: has it been held, for what it is of no more? */
static bool
hold_is_over(Dispatcher *d, int fd)
{
    for (int i = 0; i < d->held.n; i++) {
        if (d->held.fds[i] == fd) {
            if (poller_is_the_same(&d->poller, fd))
                return false;
            d->held.fds[i] = d->held.fds[--d->held.n];
            return true;
        }
    }
    return false;
}

/* The last of them that is expected to be short, or NULL. */
static Entry *
last_short(Dispatcher *d, Fresh *fresh)
{
    Entry *last = NULL;
    for (Entry *entry = fresh->first; entry != NULL; entry = entry->next)
        last = is_expected_short(d->ready->estimates, entry->site) ? entry : last;
    return last;
}

/* Under the lock: all that this thread's transaction has scheduled so far is ready; what has been answered comes after that. */
static int
place_scheduled(Dispatcher *d, Scheduling *s)
{
    if (atomic_load_explicit(&s->sent.something, memory_order_relaxed))
        question_goes_on(&d->questions, &s->sent, d->n_threads > 1 ? last_short(d, &s->fresh) : NULL);
    place_fresh(d, &s->fresh);
    return poller_lets_answers_in(d);
}

/* What transactions want to hear has been set (at their commit), may have been told to what is no more (after an abort), or has been
 * heard (at the commit). */
enum { SET, ABORTED, HEARD };

static PyObject *
look_at_watch(Dispatcher *d, PyObject *watch, int when)
{
    int fd = number_of(watch), r = 0;
    if (fd < 0)
        return NULL;
    dispatcher_lock(d);
    Descriptor *descriptor = d->poller.epoll >= 0 ? poller_descriptor(&d->poller, fd) : NULL;
    if (descriptor != NULL) {
        if (when == SET && descriptor->watch != watch) {
            if (descriptor->watch != NULL)
                drop_later(d, descriptor->watch);
            descriptor->watch = Py_NewRef(watch);
        }
        if (when == SET && poller_is_wanted(&d->poller, fd))
            answers_follow();
        if (when != HEARD)
            poller_changed(&d->poller, fd);
        if (when == HEARD ? arms_later(d, fd) : when == SET && begins_later(d, fd))
            goto out;
        if (when == HEARD || (when == SET && hold_is_over(d, fd)))
            descriptor->busy = false;
        /* A watch that an aborted attempt has made never was: the kernel must not be asked for it. */
        if (descriptor->watch == watch && !descriptor->busy)
            r = poller_arm(d, fd);
    }
    else if (d->poller.epoll >= 0)
        r = -1;
out:
    dispatcher_unlock(d);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
watch(PyObject *self, PyObject *watch)
{
    return look_at_watch(as_dispatcher(self), watch, SET);
}

static PyObject *
watch_again(PyObject *self, PyObject *watch)
{
    return look_at_watch(as_dispatcher(self), watch, ABORTED);
}

static PyObject *
rearm(PyObject *self, PyObject *watch)
{
    return look_at_watch(as_dispatcher(self), watch, HEARD);
}

int
dispatcher_flush_later(Dispatcher *d, PyObject *outbox)
{
    int fd = number_of(outbox), r = 0;
    if (fd < 0)
        return -1;
    dispatcher_lock(d);
    bool open = d->poller.epoll >= 0;
    Descriptor *descriptor = open ? poller_descriptor(&d->poller, fd) : NULL;
    if (descriptor != NULL) {
        if (descriptor->outbox != NULL)
            drop_later(d, descriptor->outbox);
        descriptor->outbox = Py_NewRef(outbox);
        poller_changed(&d->poller, fd);
        if (!descriptor->busy)
            r = poller_arm(d, fd);
    }
    else if (open)
        r = -1;
    dispatcher_unlock(d);
    return r < 0 ? -1 : open;
}

static PyObject *
flush_later(PyObject *self, PyObject *outbox)
{
    int open = dispatcher_flush_later(as_dispatcher(self), outbox);
    return open < 0 ? NULL : PyBool_FromLong(open);
}

static PyObject *
add_special(PyObject *self, PyObject *args)
{
    int fd;
    PyObject *action;
    if (!PyArg_ParseTuple(args, "iO", &fd, &action))
        return NULL;
    dispatcher_lock(as_dispatcher(self));
    int r = poller_set_special(&as_dispatcher(self)->poller, fd, action);
    dispatcher_unlock(as_dispatcher(self));
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
remove_special(PyObject *self, PyObject *number)
{
    int fd = PyLong_AsInt(number);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    dispatcher_lock(as_dispatcher(self));
    int r = poller_set_special(&as_dispatcher(self)->poller, fd, NULL);
    dispatcher_unlock(as_dispatcher(self));
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
outboxes(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    PyObject *all = PyList_New(0);
    dispatcher_lock(d);
    for (int fd = 0; all != NULL && fd < d->poller.n; fd++) {
        PyObject *outbox = d->poller.descriptors[fd].outbox;
        if (outbox != NULL && PyList_Append(all, outbox) < 0)
            Py_CLEAR(all);
    }
    dispatcher_unlock(d);
    return all;
}

/* ---- The end --------------------------------------------------------------------------------------------- */

/* From here on what the callable says of a descriptor decides whether anything is read from it. */
static PyObject *
leave_unread(PyObject *self, PyObject *callable)
{
    Dispatcher *d = as_dispatcher(self);
    int r = 0;
    dispatcher_lock(d);
    Py_XSETREF(d->leaves_unread, Py_NewRef(callable));
    for (int fd = 0; r == 0 && fd < d->poller.n; fd++) {
        if (d->poller.descriptors[fd].watch != NULL && !d->poller.descriptors[fd].busy)
            r = poller_arm(d, fd);
    }
    dispatcher_unlock(d);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* Is nothing left to do but what the caller does, nothing to send, and no timer due before that time? */
static PyObject *
is_idle(PyObject *self, PyObject *until)
{
    Dispatcher *d = as_dispatcher(self);
    double end = PyFloat_AsDouble(until);
    if (end == -1.0 && PyErr_Occurred())
        return NULL;
    dispatcher_lock(d);
    bool idle = ready_length(d->ready) + d->ready->aside.n == 0 && d->running <= 1;
    for (int fd = 0; idle && fd < d->poller.n; fd++)
        idle = !d->poller.descriptors[fd].busy && d->poller.descriptors[fd].outbox == NULL;
    for (Py_ssize_t i = 0; idle && i < d->timers.n; i++)
        idle = d->timers.heap[i].when >= end || PyTuple_CheckExact(d->timers.heap[i].timer);
    dispatcher_unlock(d);
    return PyBool_FromLong(idle);
}

/* Under the lock: run what is older than this, then stop. */
static void
stop_at(Dispatcher *d, uint64_t age)
{
    d->stop_at = age;
    poller_wake(&d->poller, INT_MAX);
}

/* Under the lock, where this thread's transaction ends the loop: what asyncio's loop would run in its next rounds is left over, also what
 * runs already, which commits after this one; or `all` that does. */
static void
leave(Dispatcher *d, bool all)
{
    Scheduling *s = mine(d);
    PyObject *thread, *other;
    Py_ssize_t at = 0;
    if (s == NULL)
        PyErr_Clear();
    if (s == NULL || s->running == NULL)
        return;
    ready_stop(d->ready, s->running, chain_depth());
    while (PyDict_Next(d->threads, &at, &thread, &other)) {
        Entry *running = ((Scheduling *)other)->running;
        if (running != NULL && running != s->running && (all || is_of_next_rounds(d->ready, running)))
            atomic_store(&((Transaction *)running->transaction)->left, true);
    }
}

void
dispatcher_ends_at_once(Dispatcher *d)
{
    dispatcher_lock(d);
    leave(d, true);
    stop_at(d, 0);
    dispatcher_unlock(d);
}

static PyObject *
stop(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    dispatcher_lock(d);
    if (d->stop_at == UINT64_MAX) {
        leave(d, false);
        stop_at(d, atomic_fetch_add(&stm_next_age, 1));
    }
    dispatcher_unlock(d);
    Py_RETURN_NONE;
}

static PyObject *
wake_all(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    dispatcher_lock(d);
    poller_wake(&d->poller, INT_MAX);
    dispatcher_unlock(d);
    Py_RETURN_NONE;
}

/* ---- The worker's round --------------------------------------------------------------------------------------- */

/* The loop ends by what has been raised. */
static void
fail(Dispatcher *d)
{
    PyObject *exception = PyErr_GetRaisedException();
    dispatcher_lock(d);
    if (d->failure == NULL) {
        d->failure = exception;
        exception = NULL;
    }
    stop_at(d, 0);
    dispatcher_unlock(d);
    Py_XDECREF(exception);
}

static void
run_one(Dispatcher *d, Tx *tx, Scheduling *s, Entry *entry)
{
    ThreadClock *clock = &thread_of(tx)->chain.clock;
    double began = clock_read(clock), since = clock->now;
    Transaction *running = (Transaction *)entry->transaction;
    running->may_be_put_off = true;
    running->may_move = d->ready->gathers && !entry->moves_not;
    chain_run(s);
    WasAlone *was_alone = &thread_of(tx)->was_alone;
    Py_CLEAR(was_alone->why);
    Py_CLEAR(was_alone->site);
    was_alone->anchored = was_alone->unusual = false;
    thread_of(tx)->chain.began = began;
    if (s->company == GATHERED)
        count_gathered(tx, entry->why_alone);
    int how = transaction_run(running, s->company, NULL);
    chain_run(NULL);
    if (how == RUN_RAISED)
        fail(d);
    double took = clock_read(clock) - began;
    dispatcher_lock(d);
    d->running--;
    d->running_prompt -= s->is_prompt;
    PyObject *over = NULL;
    PyObject *site = was_alone->site != NULL ? was_alone->site : entry->site;
    if (s->company == AMONG_OTHERS)
        learn_anchored(d->ready->estimates, site, was_alone->anchored);
    if (how == RUN_PUT_OFF) {
        entry->moves_not |= d->stop_at != UINT64_MAX;
        ready_put_off(d->ready, entry);
    }
    else {
        ready_ran(d->ready, entry, took, clock->now - since);
        if (s->company != SEQUENTIAL)
            learn_alone(d->ready->estimates, site, was_alone->unusual ? NULL : was_alone->why, was_alone->before, s->company == GATHERED);
        over = entry->transaction;
        _Py_atomic_store_ptr_relaxed(&entry->transaction, NULL);
        if (entry->question != 0)
            question_is_over(&d->questions, entry);
    }
    place_scheduled(d, s);
    s->run = 0;
    s->running = NULL;
    while (s->early.n > 0 && timers_push(&d->timers, timers_pop(&s->early)) == 0)
        ;
    if (PyErr_Occurred())
        PyErr_WriteUnraisable((PyObject *)d);
    dispatcher_unlock(d);
    Py_XDECREF(over);
    Py_DECREF(entry);
}

/* Under the lock: the kernel may report the descriptor's next event. */
static int
arm_again(Dispatcher *d, int fd, bool looks)
{
    if (fd >= d->poller.n)
        return 0;
    d->poller.descriptors[fd].busy = false;
    return looks ? poller_arm_or_go_on(d, fd) : poller_arm(d, fd);
}

/* Under the lock: see arms_later(). */
static int
arm_heard(Dispatcher *d, Scheduling *s)
{
    int r = 0;
    for (int i = d->held.n; i-- > 0;) {
        int fd = d->held.fds[i];
        if (fd < d->poller.n && is_held(d, &d->poller.descriptors[fd]))
            continue;
        d->held.fds[i] = d->held.fds[--d->held.n];
        r |= arm_again(d, fd, false);
    }
    /* If nothing is ready and another one polls, the kernel must not wake that for what is there already. */
    bool looks = s->heard.n > 0 && d->poller.polls && ready_length(d->ready) == 0;
    while (s->heard.n > 0)
        r |= arm_again(d, s->heard.fds[--s->heard.n], looks);
    return r;
}

/* What a thread does next. */
typedef struct {
    enum { FAIL, STOP, RUN, WAIT } what;
    Waiting how;
    Entry *entry;           /* to run */
    double seconds;         /* to wait; -1: for ever */
} Step;

/* Under the lock: can what waits wait for a thread that is at something prompt? */
static bool
can_wait(Dispatcher *d)
{
    if (!ready_is_known_prompt(d->ready))
        return false;
    return ready_length(d->ready) <= FEW || !restraint_look(&d->restraint, seconds_of(CLOCK_MONOTONIC), d->ready->callbacks);
}

/* Under the lock: are all threads called for what is prompt?  (The clock is looked at only where they may be.) */
static bool
calls_all(Dispatcher *d)
{
    return d->restraint.all && restraint_calls_all(&d->restraint, seconds_of(CLOCK_MONOTONIC));
}

/* Where this thread comes from: a transaction, or a look at what has become ready; waiting; waiting that the watchdog has ended. */
typedef enum { AT_WORK, CALLED, WATCHDOG } From;

/* Under the lock: do others run something, or look for something to run?  All but those that wait in the kernel. */
static int
others_up(Dispatcher *d)
{
    return d->workers - d->poller.resting - d->poller.polls - 1;
}

/* Under the lock, not on the loop's thread, where one thread is enough: does the loop's own do without this one what there is to do?
 * Most of what a program uses belongs to that thread, which has made it: another one counts references to it atomically, and takes
 * it out of that one's cache.  So if it waits, it is called, and this one goes on until it has come. */
static bool
leaves_to_home(Dispatcher *d, From from)
{
    Anchoring *a = &d->anchoring;
    if (a->by == NULL)
        return false;
    if (d->poller.at_home != IS_UP) {
        if (ready_length(d->ready) > 0)
            poller_call_home(&d->poller);
        return false;
    }
    if (from == WATCHDOG && a->by->run == a->left_at)
        a->stands_at = a->left_at;
    a->left_at = a->by->run;
    return a->by->run != a->stands_at && d->running_prompt == d->running;
}

/* Under the lock: do others do without this thread what there is to do?  One that is at work goes on before one that comes to it.
 * `home`: this is the loop's thread, which does what one thread is enough for. */
static bool
others_do_it(Dispatcher *d, From from, bool home)
{
    int others = from == AT_WORK ? d->running : others_up(d);
    if ((home && others == 0) || !can_wait(d))
        return false;
    bool one_is_enough = !calls_all(d);
    if (one_is_enough && !home && leaves_to_home(d, from))
        return true;
    if (others == 0 || (one_is_enough && home))
        return false;
    return from == WATCHDOG ? d->runs != d->poller.watched_run : one_is_enough && d->running_prompt == d->running;
}

/* Under the lock, of a thread that is about to run something. */
static void
call_others(Dispatcher *d, bool needed, bool from_anchor)
{
    Poller *poller = &d->poller;
    if (!poller_has_free(poller))
        return;
    Py_ssize_t left = ready_length(d->ready) - (from_anchor ? d->ready->anchored.n : 0);
    if (needed)
        poller_wake(poller, left + !poller->polls);
    else if (left > 0 || !poller->polls)
        poller_watch(poller, d->runs);
}

/* Under the lock, with nothing to run: how long at most, in seconds?  Others may leave garbage behind that nobody else collects: a step that takes
 * long, threads of the program. */
static double
longest_wait(Dispatcher *d)
{
    return d->running > 0 || there_are_bystanders() ? GARBAGE_PERIOD : INFINITY;
}

/* Under the lock: until this thread is called. */
static Step
rest(Dispatcher *d, bool home)
{
    poller_begins_to_rest(&d->poller, home);
    return (Step){.what = WAIT, .how = REST, .seconds = -1};
}

/* Under the lock: wait for what there is to do; with nothing to run. */
static Step
idle(Dispatcher *d, bool home)
{
    if (d->poller.waiting.n > 0 || holds_for_a_time(d))    /* not all can be heard, though nothing may end */
        poller_watch(&d->poller, d->runs);
    if (d->poller.polls || d->poller.waiting.n > 0)
        return rest(d, home);
    double seconds = longest_wait(d);
    d->poller.until = INFINITY;
    if (d->timers.n > 0) {
        double time = now(d), first = d->timers.heap[0].when;
        if (isnan(time))
            return (Step){.what = FAIL};
        seconds = fmin(seconds, fmax(first - time, 0));
        d->poller.until = first;
    }
    Step step = {.what = WAIT, .how = POLL, .seconds = isinf(seconds) ? -1 : seconds};
    poller_begins_to_poll(&d->poller, home);
    return step;
}

/* Under the lock: will nobody else have anything to do until this one is over, as far as can be told?  What has been prompt so far may
 * take long once, and nobody else can go on meanwhile, as on upstream's loop; so it must have been prompt for long. */
static bool
is_sequential(Dispatcher *d, Entry *entry)
{
    if (!runs_on_few(d->n_threads))
        return false;
    if (d->n_threads == 1)
        return true;
    if (others_up(d) > 0 || calls_all(d))
        return false;
    Estimates *known = d->ready->estimates;
    return is_always_prompt(known, entry->site) || (is_anchored(known, entry->site) && is_known_prompt(known, entry->site));
}

static Company
company_of(Dispatcher *d, Entry *entry)
{
    return entry->why_alone != NULL ? GATHERED : is_sequential(d, entry) ? SEQUENTIAL : AMONG_OTHERS;
}

/* Under the lock: this thread is about to run it. */
static Step
begin_run(Dispatcher *d, Scheduling *s, Entry *entry, Company company)
{
    s->company = company;
    s->run = ++d->runs;
    s->running = entry;
    s->received = false;
    d->unbegun = NULL;
    atomic_store(&((Transaction *)entry->transaction)->left, false);
    s->is_prompt = is_known_prompt(d->ready->estimates, entry->site);
    d->running++;
    d->running_prompt += s->is_prompt;
    d->round--;
    return (Step){.what = RUN, .entry = entry};
}

/* Under the lock: has what was ready at the last look at the kernel's events been run?  Then it is time for the next. */
static bool
is_to_look(Dispatcher *d)
{
    if (d->round > 0)
        return false;
    d->round = ready_length(d->ready);
    return true;
}

/* ---- Gathering ---- */

/* Under the lock: for so many seconds there has been something to gather. */
static double
has_waited_to_gather(Dispatcher *d, double time)
{
    if (d->gathering.waits == 0)
        d->gathering.waits = time;
    return time - d->gathering.waits;
}

/* Under the lock: are there some to gather, and may they be now? */
static bool
is_to_gather(Dispatcher *d, double time)
{
    if (!ready_has_gathered(d->ready, d->stop_at))
        return false;
    if (ready_is_known_prompt(d->ready) || d->stop_at != UINT64_MAX)
        return true;
    return has_waited_to_gather(d, time) >= PATIENCE && time >= d->gathering.not_before;
}

/* Under the lock: there is nothing to gather now.  Wait for more? */
static bool
lingers(Dispatcher *d, double time)
{
    Gathering *g = &d->gathering;
    if (d->poller.polls || d->stop_at != UINT64_MAX || ready_length(d->ready) == 0)
        return false;
    if (g->idle == 0) {
        if (g->pass > 0) {
            g->pass--;
            return false;
        }
        g->idle = time;
    }
    if (time - g->idle < LINGER)
        return true;
    if (g->vain < MOST_VAIN)
        g->vain++;
    g->pass = 1 << g->vain;
    return false;
}

/* Under the lock, on the loop's thread: the next step of a gathering; false: there is none, or no more. */
static bool
gather(Dispatcher *d, Scheduling *s, bool looked, Step *step)
{
    Gathering *g = &d->gathering;
    g->called = false;
    if (g->by == NULL && d->ready->gathered.n == 0)
        return false;
    double time = seconds_of(CLOCK_MONOTONIC);
    if (g->by == NULL) {
        if (!is_to_gather(d, time))
            return false;
        g->by = s;
        g->began = time;
        g->waits = g->idle = 0;
        poller_wake_who_polls(&d->poller);
    }
    /* What is not taken in a gathering, as what is anchored, waits for its end. */
    if (time - g->began < LONGEST_GATHERING || (ready_is_known_prompt(d->ready) && !ready_leaves_some(d->ready))) {
        if (!looked && is_to_look(d)) {
            *step = (Step){.what = WAIT, .how = LOOK};
            return true;
        }
        Entry *entry = ready_take_in_gathering(d->ready, d->stop_at);
        if (entry != NULL) {
            *step = begin_run(d, s, entry, company_of(d, entry));
            if (g->idle != 0)
                g->vain = 0;
            g->idle = 0;
            return true;
        }
        if (!looked) {
            *step = (Step){.what = WAIT, .how = LOOK};
            return true;
        }
        if (lingers(d, time)) {
            poller_begins_to_poll(&d->poller, true);
            *step = (Step){.what = WAIT, .how = POLL, .seconds = LINGER};
            return true;
        }
    }
    g->by = NULL;
    g->not_before = time + (time - g->began);
    return false;
}

/* Under the lock: does what the loop's thread runs take longer than it ever has, and others could go on beside it? */
static bool
is_held_up(Dispatcher *d, From from)
{
    Scheduling *by = d->gathering.by;
    return from == WATCHDOG && by != NULL && by->run == d->poller.watched_run && by->company == AMONG_OTHERS;
}

/* Under the lock, not on the loop's thread: one that is to be gathered, if that thread has not come for it for long: what it is at may
 * never end.  Who runs alone has that rolled back. */
static Entry *
take_over(Dispatcher *d)
{
    if (d->ready->gathered.n == 0) {
        d->gathering.waits = 0;
        return NULL;
    }
    if (d->gathering.by != NULL)
        return NULL;
    if (has_waited_to_gather(d, seconds_of(CLOCK_MONOTONIC)) >= TAKE_OVER)
        return ready_take_gathered(d->ready, d->stop_at);
    poller_watch(&d->poller, d->runs);
    return NULL;
}

/* Under the lock, not on the loop's thread: does this one rest while that gathers?  If it has to be told to, it is. */
static bool
leaves_to_gather(Dispatcher *d, From from)
{
    if (is_held_up(d, from))
        d->gathering.by = NULL;     /* it may take for ever */
    if (d->gathering.by == NULL && d->ready->gathered.n > 0 && !d->gathering.called) {
        d->gathering.called = true;
        poller_call_home(&d->poller);
    }
    return d->gathering.by != NULL && d->stop_at == UINT64_MAX;
}

/* Under the lock, not on the loop's thread: one that waits for that thread, if it has not come for it for long; else it is called, if it
 * has to be. */
static Entry *
take_over_anchored(Dispatcher *d)
{
    Anchoring *a = &d->anchoring;
    if (LIKELY(d->ready->anchored.n == 0)) {
        a->waits = 0;
        return NULL;
    }
    double time = seconds_of(CLOCK_MONOTONIC);
    if (a->waits == 0)
        a->waits = time;
    if (time - a->waits >= TAKE_OVER || d->stop_at != UINT64_MAX) {
        Entry *entry = ready_take_anchored(d->ready, d->stop_at);
        if (entry != NULL)
            entry->moves_not = true;
        return entry;
    }
    if (!a->called && (a->by == NULL || a->by->run == 0)) {
        a->called = true;
        poller_call_home(&d->poller);
    }
    poller_watch(&d->poller, d->runs);
    return NULL;
}

/* Under the lock, not on the loop's thread, for which something waits: does that do without this one what else there is to do, too? */
static bool
leaves_to_anchor(Dispatcher *d, From from)
{
    bool stands = from == WATCHDOG && d->runs == d->poller.watched_run;
    return d->stop_at == UINT64_MAX && can_wait(d) && !calls_all(d) && !stands;
}

/* Under the lock, on the loop's thread: it looks at what waits for it. */
static void
anchor_comes(Dispatcher *d, Scheduling *s)
{
    d->anchoring = (Anchoring){.by = s, .stands_at = UINT64_MAX};
}

/* Under the lock; what it is counted for, it is counted from here on.  `looked`: at what has become ready, since the last
 * transaction? */
static Step
next_step(Dispatcher *d, Tx *tx, Scheduling *s, bool looked, From from)
{
    if (place_scheduled(d, s) < 0)      /* of a transaction that runs the loop itself */
        return (Step){.what = FAIL};
    if (arm_heard(d, s) < 0 || due_timers(d) < 0)
        return (Step){.what = FAIL};
    Step step;
    bool gathers = is_on_anchor(tx);
    Entry *entry = NULL;
    if (gathers) {
        anchor_comes(d, s);
        if (gather(d, s, looked, &step))
            return step;
    }
    else if ((entry = take_over(d)) == NULL)
        entry = take_over_anchored(d);
    if (entry != NULL)
        return begin_run(d, s, entry, company_of(d, entry));
    bool leaves_it = (!gathers && leaves_to_gather(d, from)) || (d->stop_at == UINT64_MAX && others_do_it(d, from, gathers));
    if (d->ready->anchored.n > 0)
        leaves_it = !gathers && (leaves_it || leaves_to_anchor(d, from));
    leaves_it = leaves_it && !is_asked();
    if (from == WATCHDOG)
        poller_calm(&d->poller, leaves_it || ready_length(d->ready) == 0);
    if (leaves_it) {
        poller_watch(&d->poller, d->runs);
        return rest(d, gathers);
    }
    if (!looked && ready_length(d->ready) > 0 && (ready_only_long(d->ready) || is_to_look(d)))
        return (Step){.what = WAIT, .how = LOOK};
    entry = ready_take(d->ready, d->stop_at, gathers);
    if (entry != NULL) {
        step = begin_run(d, s, entry, company_of(d, entry));
        bool needed = !s->is_prompt || !can_wait(d);
        call_others(d, needed, gathers);
        return step;
    }
    if (d->stop_at != UINT64_MAX)
        return (Step){.what = STOP};
    if (is_asked())
        return (Step){.what = WAIT, .how = LOOK};
    return idle(d, gathers);
}

/* Run transactions until the loop stops: 0; or -1 with what the handler of a signal has raised, or with an error.  `open`: on the
 * main thread, which blocks the signals that the program handles, the mask that the program has; else NULL. */
static int
work_until_stopped(Dispatcher *d, Tx *tx, Scheduling *s, const sigset_t *open)
{
    bool looked = false;
    From from = AT_WORK;
    double let_in = 0;      /* when signals last were */
    for (;;) {
        if (thread_of(tx)->births.dying != NULL)
            finalize_dying(tx, GRADE_IRREVOCABLE);
        if (serve() < 0)
            return -1;
        if (open != NULL && seconds_of(CLOCK_MONOTONIC) - let_in >= SIGNAL_PERIOD) {
            if (let_signals_in(open) < 0)
                return -1;
            let_in = seconds_of(CLOCK_MONOTONIC);
        }
        dispatcher_lock(d);
        Step step = next_step(d, tx, s, looked, from);
        dispatcher_unlock(d);
        looked = step.what != RUN;
        switch (step.what) {
        case FAIL:
            return -1;
        case STOP:
            return 0;
        case RUN:
            if (d->n_threads > 1)
                make_immortal_when_due(s->run);
            run_one(d, tx, s, step.entry);
            from = AT_WORK;
            break;
        case WAIT: {
            int watchdog = poller_poll(d, step.how, step.seconds, is_on_anchor(tx), open);
            if (watchdog < 0)
                return -1;
            from = watchdog ? WATCHDOG : step.how == LOOK ? AT_WORK : CALLED;
            break;
        }
        }
        if (step.what == RUN || step.how != LOOK)
            mind_garbage(tx);
    }
}

/* None, or an iterable of signals. */
static int
as_mask(PyObject *signals, sigset_t *mask)
{
    sigemptyset(mask);
    PyObject *each = PyObject_GetIter(signals), *number;
    while (each != NULL && (number = PyIter_Next(each)) != NULL) {
        int signum = PyLong_AsInt(number);
        Py_DECREF(number);
        if (signum == -1 && PyErr_Occurred())
            break;
        sigaddset(mask, signum);
    }
    Py_XDECREF(each);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *
work(PyObject *self, PyObject *signals)
{
    Dispatcher *d = as_dispatcher(self);
    sigset_t open;
    Tx *tx = stm_thread_tx();
    if (tx == NULL || (signals != Py_None && as_mask(signals, &open) < 0))
        return NULL;
    count_runner(tx);
    dispatcher_lock(d);
    Scheduling *s = mine(d);
    d->workers++;
    dispatcher_unlock(d);
    bool stood_by = bystander_steps_in();
    const void *group = atomic_exchange(&tx->contention.group, d);
    int r = s != NULL ? work_until_stopped(d, tx, s, signals != Py_None ? &open : NULL) : -1;
    PyObject *raised = PyErr_GetRaisedException();
    dispatcher_lock(d);
    d->workers--;
    if (d->anchoring.by == s)
        d->anchoring.by = NULL;
    if (r < 0)      /* the others do without this thread, which may have polled for them */
        poller_wake(&d->poller, INT_MAX);
    dispatcher_unlock(d);
    atomic_store(&tx->contention.group, group);
    bystander_steps_back(stood_by);
    PyErr_SetRaisedException(raised);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
engine_let_signals_in(PyObject *Py_UNUSED(type), PyObject *signals)
{
    sigset_t open;
    if (as_mask(signals, &open) < 0 || let_signals_in(&open) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Look at what has become ready. */
static PyObject *
look(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return poller_poll(as_dispatcher(self), LOOK, 0, false, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
begin(PyObject *self, PyObject *args)
{
    Dispatcher *d = as_dispatcher(self);
    int threads, other_clock;
    double resolution;
    if (!PyArg_ParseTuple(args, "ipd", &threads, &other_clock, &resolution))
        return NULL;
    dispatcher_lock(d);
    d->n_threads = threads;
    d->gathering = (Gathering){0};
    d->anchoring = (Anchoring){0};
    d->other_clock = other_clock;
    d->resolution = resolution;
    d->ready->gathers = threads > 1 && threads <= atomic_load(&stm_sequential_limit);
    d->questions.n = 0;     /* what they wait for is ready, and runs first */
    dispatcher_unlock(d);
    /* A loop that is stopped before it runs, or by its first callback, makes one round: with all that there is. */
    if (poller_poll(d, LOOK, 0, false, NULL) < 0)
        return NULL;
    dispatcher_lock(d);
    int r = poller_lets_answers_in(d) | due_timers(d);
    ready_begin(d->ready);
    if (d->stop_at != UINT64_MAX)
        stop_at(d, atomic_fetch_add(&stm_next_age, 1));
    dispatcher_unlock(d);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* All threads are to end as soon as they can. */
static PyObject *
end(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    dispatcher_lock(d);
    stop_at(d, d->stop_at == UINT64_MAX ? 0 : d->stop_at);
    dispatcher_unlock(d);
    Py_RETURN_NONE;
}

/* They have: returns what a callback has raised to end the loop, or None. */
static PyObject *
ended(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Dispatcher *d = as_dispatcher(self);
    dispatcher_lock(d);
    d->stop_at = UINT64_MAX;
    PyObject *failure = d->failure;
    d->failure = NULL;
    dispatcher_unlock(d);
    return failure != NULL ? failure : Py_NewRef(Py_None);
}

/* ---- The type ---------------------------------------------------------------------------------------------------- */

static int
traverse(PyObject *self, visitproc visit, void *arg)
{
    Dispatcher *d = as_dispatcher(self);
    Py_VISIT(d->loop);
    Py_VISIT(d->run_handle);
    Py_VISIT(d->run_timer);
    Py_VISIT(d->handle_event);
    Py_VISIT(d->inboxes);
    Py_VISIT(d->leaves_unread);
    Py_VISIT(d->threads);
    Py_VISIT(d->dropped);
    Py_VISIT(d->failure);
    Py_VISIT(d->ready);
    int r = timers_traverse(&d->timers, visit, arg);
    return r != 0 ? r : poller_traverse(&d->poller, visit, arg);
}

/* What waits is forgotten, and the kernel is asked for nothing. */
static void
forget(Dispatcher *d)
{
    d->unbegun = NULL;
    if (d->ready != NULL)
        ready_clear(d->ready);
    timers_clear(&d->timers);
    poller_close(&d->poller);
    PyMem_RawFree(d->held.fds);
    d->held = (Descriptors){0};
    PyMem_RawFree(d->questions.open);
    d->questions = (Questions){0};
    if (d->threads != NULL)
        PyDict_Clear(d->threads);
}

static int
clear(PyObject *self)
{
    Dispatcher *d = as_dispatcher(self);
    forget(d);
    forget_loop(d);
    Py_CLEAR(d->loop);
    Py_CLEAR(d->run_handle);
    Py_CLEAR(d->run_timer);
    Py_CLEAR(d->handle_event);
    Py_CLEAR(d->inboxes);
    Py_CLEAR(d->leaves_unread);
    Py_CLEAR(d->dropped);
    Py_CLEAR(d->failure);
    return 0;
}

static void
dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_CLEAR(as_dispatcher(self)->threads);
    Py_CLEAR(as_dispatcher(self)->ready);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
make(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *loop, *run_handle, *run_timer, *handle_event, *inboxes;
    if (!PyArg_ParseTuple(args, "OOOOO!", &loop, &run_handle, &run_timer, &handle_event, &PyDict_Type, &inboxes))
        return NULL;
    Dispatcher *d = (Dispatcher *)type->tp_alloc(type, 0);
    if (d == NULL)
        return NULL;
    d->loop = Py_NewRef(loop);
    d->run_handle = Py_NewRef(run_handle);
    d->run_timer = Py_NewRef(run_timer);
    d->handle_event = Py_NewRef(handle_event);
    d->inboxes = Py_NewRef(inboxes);
    d->stop_at = UINT64_MAX;
    d->poller.epoll = d->poller.rest = d->poller.rest_at_home = d->poller.wake = d->poller.home = d->poller.calls = d->poller.watchdog = -1;
    d->threads = PyDict_New();
    d->ready = ready_new();
    if (d->threads == NULL || d->ready == NULL || poller_open(&d->poller) < 0)
        Py_CLEAR(d);
    else
        remember_loop(d, loop);
    return (PyObject *)d;
}

static PyObject *
close_all(PyObject *self, PyObject *Py_UNUSED(unused))
{
    as_dispatcher(self)->closed = true;
    forget(as_dispatcher(self));
    Py_RETURN_NONE;
}

static Py_ssize_t
length(PyObject *self)
{
    return ready_length(as_dispatcher(self)->ready);
}

static PyMethodDef methods[] = {
    {"submit", submit, METH_O,
     PyDoc_STR("submit($self, handle, /)\n--\n\nMake a ready callback a transaction.  Those that one transaction schedules commit in that"
               " order.")},
    {"put_first", _PyCFunction_CAST(put_first), METH_FASTCALL,
     PyDoc_STR("put_first($self, function, args, /)\n--\n\nLet function(*args) run before all that waits, as one transaction.")},
    {"arm", arm, METH_O,
     PyDoc_STR("arm($self, timer, /)\n--\n\nAt commit: start a timer.  However soon, it comes after the callbacks that its transaction has"
               " scheduled.")},
    {"timer_cancelled", timer_cancelled, METH_O,
     PyDoc_STR("timer_cancelled($self, timer, /)\n--\n\nAt commit: this timer is only waiting to be forgotten.")},
    {"timers", timers, METH_NOARGS, PyDoc_STR("timers($self, /)\n--\n\nThe program's that wait for their time, as a list.")},
    {"call_at", call_at, METH_VARARGS,
     PyDoc_STR("call_at($self, when, function, args, /)\n--\n\nfunction(*args) as one transaction at that time.  No program waits for it.")},
    {"watch", watch, METH_O, PyDoc_STR("watch($self, watch, /)\n--\n\nAt commit: its reader or writer has changed.")},
    {"watch_again", watch_again, METH_O,
     PyDoc_STR("watch_again($self, watch, /)\n--\n\nOn abort: an event may have been told by a reader or writer that the attempt had"
               " written.")},
    {"rearm", rearm, METH_O, PyDoc_STR("rearm($self, watch, /)\n--\n\nAt commit of the transaction that handled its event.")},
    {"flush_later", flush_later, METH_O,
     PyDoc_STR("flush_later($self, outbox, /)\n--\n\nSend the rest of the outbox when the kernel takes more; False if the loop is closed.")},
    {"add_special", add_special, METH_VARARGS,
     PyDoc_STR("add_special($self, fd, action, /)\n--\n\nCall this outside transactions whenever the descriptor is readable (the wake-up pipe"
               " of signals).")},
    {"remove_special", remove_special, METH_O, PyDoc_STR("remove_special($self, fd, /)\n--\n\nUndo `add_special`.")},
    {"outboxes", outboxes, METH_NOARGS, PyDoc_STR("outboxes($self, /)\n--\n\nThose with something left to send.")},
    {"leave_unread", leave_unread, METH_O,
     PyDoc_STR("leave_unread($self, which, /)\n--\n\nThe program is ending: read no more from descriptors of which which(fd) is true.")},
    {"is_idle", is_idle, METH_O,
     PyDoc_STR("is_idle($self, until, /)\n--\n\nIs nothing left to do but what the caller does, nothing to send, and no timer of the"
               " program's due before that time?")},
    {"stop", stop, METH_NOARGS, PyDoc_STR("stop($self, /)\n--\n\nAt commit: run what is ready now, then return from `work`.")},
    {"wake_all", wake_all, METH_NOARGS, PyDoc_STR("wake_all($self, /)\n--\n\nAll threads that poll look around.")},
    {"begin", begin, METH_VARARGS,
     PyDoc_STR("begin($self, threads, other_clock, resolution, /)\n--\n\nSo many threads are about to work.\n\nother_clock: is the loop's"
               " time() not asyncio's?  resolution: of that clock, in seconds.")},
    {"work", work, METH_O,
     PyDoc_STR("work($self, open, /)\n--\n\nRun transactions on this thread until `stop`.\n\n`open` is the program's signal mask on the main"
               " thread, which has the signals blocked that the program handles, and None elsewhere.  Raises what the handler of a signal"
               " raises, and OSError.")},
    {"end", end, METH_NOARGS, PyDoc_STR("end($self, /)\n--\n\nAll threads are to return from `work` as soon as they can.")},
    {"ended", ended, METH_NOARGS,
     PyDoc_STR("ended($self, /)\n--\n\nThey have.  Returns what a callback has raised to end the loop, or None.")},
    {"look", look, METH_NOARGS, PyDoc_STR("look($self, /)\n--\n\nAsk the kernel what has become ready.")},
    {"let_signals_in", engine_let_signals_in, METH_O | METH_STATIC,
     PyDoc_STR("let_signals_in(open, /)\n--\n\nOn the main thread: the handlers of signals that are not in this mask, and have come, run.")},
    {"close", close_all, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nForget all that waits; no thread works any more.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"ready", Py_T_OBJECT_EX, offsetof(Dispatcher, ready), Py_READONLY, PyDoc_STR("its ReadyQueue")},
    {"debug", Py_T_BOOL, offsetof(Dispatcher, debug), 0, PyDoc_STR("is the loop in debug mode?")},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods as_sequence = {.sq_length = length};

PyTypeObject Dispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Dispatcher",
    .tp_doc = PyDoc_STR("Dispatcher(loop, run_handle, run_timer, handle_event, inboxes, /)\n--\n\n"
                        "The ready queue, the timers, the descriptors of one event loop, and a worker's round.\n\n"
                        "Transactions run ``run_handle(handle)``, ``run_timer(timer)`` and ``handle_event(dispatcher, watch, reader, writer)``;"
                        " inboxes: descriptor -> what has been received and not been taken.  Raises OSError."),
    .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = make,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_methods = methods,
    .tp_members = members,
    .tp_as_sequence = &as_sequence,
};

int
dispatcher_init(PyObject *module)
{
    static const struct { PyObject **name; const char *is; } all[] = {
        {&dispatch_names.reader, "reader"}, {&dispatch_names.writer, "writer"}, {&dispatch_names.flush, "flush"}, {&dispatch_names.fd, "fd"},
        {&dispatch_names.when, "_when"}, {&dispatch_names.time, "time"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((*all[i].name = PyUnicode_InternFromString(all[i].is)) == NULL)
            return -1;
    }
    dispatcher_name = PyUnicode_InternFromString("_dispatcher");
    return dispatcher_name == NULL || PyType_Ready(&Order_Type) < 0 || PyType_Ready(&Scheduling_Type) < 0
        || PyModule_AddType(module, &Dispatcher_Type) < 0 || types_register(&Dispatcher_Type, KIND_INERT) < 0 ? -1 : 0;
}
