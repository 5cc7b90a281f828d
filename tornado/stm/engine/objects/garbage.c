/* Garbage in cycles: when it is collected, and beside whom.
 *
 * The interpreter's collector stops all threads for a moment and takes what nothing refers to.  Attempts may be amid their work then, since
 * nothing of what they use is garbage: what an attempt has found lives until it is over (interpreter/borrowed.c says why), and what
 * it has replaced its log refers to.  Were all of them waited for, then what is prompt would wait for what is long, and the more threads there
 * are, the more often.
 *
 * Garbage that an attempt has made itself may go at once, too, but its end must not be noticed: if the attempt is rolled back it never
 * was.
 *
 *      object, task    with a finalizer, or with a weak reference that calls something back: they have been noted (born.c), and as long
 *                      as the attempt lasts the collector does not look at them: they are *frozen*, as by gc.freeze().
 *      generator       its finalizer is put off, until nobody is left of those who were amid their work: only then the birth that it
 *                      belongs to tells whether it ever was.
 *
 * Finalizers of what committed ones have left behind are put off as well, like all that begin outside of transactions.  They run
 * when those are over, in an irrevocable transaction: on the thread that has come to the end of the last one.  If one of those goes on
 * and on, and there is much to collect again, they run alone, so that it is rolled back like any that others wait for.
 *
 * It is alone from its beginning where it calls, or tells, the program: hooks in gc.callbacks, gc.set_debug().  And who runs alone, perhaps for
 * long, has the interpreter collect as ever.
 *
 * When it is due is as in CPython (gc_should_collect), but for a larger number to begin with: so many containers have come and not gone,
 * and they are a part of all there are, and either memory has grown or there have been many such rounds.
 */
#include "garbage.h"

#include "../core/latch.h"
#include "../core/park.h"
#include "../core/transaction.h"
#include "../core/upcalls.h"
#include "../thread.h"

#include "internal/pycore_gc.h"
#include "internal/pycore_interp.h"

#include <fcntl.h>
#include <unistd.h>

#define CONTAINERS 20000        /* have come and not gone: it is worth a look */
#define ROUNDS 10               /* of that many: they are collected even if memory has not grown */
#define SHARE_OF_ALL 4          /* one in so many of all containers */
#define GROWN 10                /* one part in so many of memory */

static _Atomic int containers = CONTAINERS;
static _Atomic int64_t waiting;         /* containers of rounds before, since the last collection */
static _Atomic long memory_then;        /* pages, after the last one */
static _Atomic bool goes_on;            /* a thread is at it, or finalizers wait: there is no other one meanwhile */

/* Invariant.  While `finalizers_wait`, these belong to whoever sets it back: what finalizers wait, and for which attempt of each thread. */
static _Atomic bool finalizers_wait;
static PyObject *ending;                /* as Births.dying */
static _Atomic uint64_t amid[MAX_THREADS];  /* the number of an attempt that was amid its work; or NOBODY */
#define NOBODY UINT64_MAX
static _Atomic uint64_t wait_since;     /* ns */

static Latch switch_lock;               /* around these, and the interpreter's own switch: */
static int runs;                        /* so many run transactions */
static _Atomic bool collects;           /* and the program wants garbage to be collected */
static bool alone;                      /* a transaction runs alone */

PyObject *
begin_collecting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&switch_lock);
    if (runs++ == 0)
        atomic_store(&collects, PyGC_Disable());
    latch_give(&switch_lock);
    Py_RETURN_NONE;
}

PyObject *
end_collecting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&switch_lock);
    /* In the child of a fork what has begun before that is no run any more. */
    if (runs > 0 && --runs == 0 && atomic_exchange(&collects, false))
        PyGC_Enable();
    latch_give(&switch_lock);
    Py_RETURN_NONE;
}

PyObject *
several_run(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&switch_lock);
    bool several = runs > 1;
    latch_give(&switch_lock);
    return PyBool_FromLong(several);
}

/* Under the lock. */
static void
switch_interpreter(bool on)
{
    if (on)
        PyGC_Enable();
    else
        PyGC_Disable();
}

void
collector_alone(bool is)
{
    latch_take(&switch_lock);
    alone = is;
    if (runs > 0)
        switch_interpreter(is && atomic_load(&collects));
    latch_give(&switch_lock);
}

static void
switch_collector(bool on)
{
    latch_take(&switch_lock);
    if (runs > 0)
        atomic_store(&collects, on);
    switch_interpreter(on && (runs == 0 || alone));
    latch_give(&switch_lock);
}

PyObject *
collector_enable(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    switch_collector(true);
    Py_RETURN_NONE;
}

PyObject *
collector_disable(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    switch_collector(false);
    Py_RETURN_NONE;
}

PyObject *
collector_is_enabled(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&switch_lock);
    bool on = runs > 0 ? atomic_load(&collects) : PyGC_IsEnabled();
    latch_give(&switch_lock);
    return PyBool_FromLong(on);
}

void
garbage_in_child(void)
{
    switch_lock = (Latch){0};
    ending = NULL;
    /* Those who would collect are no more. */
    runs = 0;
    alone = false;
    if (atomic_exchange(&collects, false))
        PyGC_Enable();
    atomic_store(&finalizers_wait, false);
    atomic_store(&goes_on, false);
}

/* ---- When --------------------------------------------------------------------------------- */

/* Pages of this process that are in memory; 0: not known. */
static long
memory_now(void)
{
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0)
        close(file);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *resident = strchr(text, ' ');
    return resident != NULL ? strtol(resident, NULL, 10) : 0;
}

static bool
has_enough_come(struct _gc_runtime_state *gc)
{
    int count = _Py_atomic_load_int_relaxed(&gc->young.count);
    return UNLIKELY(count > atomic_load_explicit(&containers, memory_order_relaxed)) && count >= gc->long_lived_total / SHARE_OF_ALL;
}

static bool
garbage_is_due(void)
{
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    if (LIKELY(!has_enough_come(gc)) || gc->young.threshold == 0 || !atomic_load(&collects) || atomic_load(&goes_on))
        return false;
    int count = _Py_atomic_exchange_int(&gc->young.count, 0);
    if (atomic_fetch_add(&waiting, count) + count > (int64_t)ROUNDS * atomic_load(&containers))
        return true;
    long then = atomic_load(&memory_then), now = memory_now();
    return now == 0 || now - then > then / GROWN;
}

PyObject *
set_garbage(PyObject *Py_UNUSED(module), PyObject *objects)
{
    int many = PyLong_AsInt(objects);
    if (many == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(atomic_exchange(&containers, many));
}

/* ---- Beside whom --------------------------------------------------------------------------- */

int
collect_now(void)
{
    static PyObject *collect;
    if (collect == NULL)
        collect = PyImport_ImportModuleAttrString("gc", "collect");
    PyObject *r = collect == NULL ? NULL : PyObject_CallNoArgs(collect);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* Does it tell the program?  Another thread may be about to enter a hook: then this one waits. */
static bool
tells_program(Tx *tx)
{
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    atomic_store(&tx->attention, 0);    /* as long as it only locks that, none of the program's code has been called */
    bool locked = lock_shared(tx, cell_of(gc->callbacks, WHOLE)) == 0;
    atomic_store(&tx->attention, 1);
    return !locked || gc->debug != 0 || PyList_GET_SIZE(gc->callbacks) > 1;     /* one is the engine's (module.c) */
}

static void
collect_beside_others(Tx *tx)
{
    if (tells_program(tx)) {
        PyErr_Clear();
        if (become_exclusive(tx, "a collection of garbage that is told to the program") < 0)
            return;
    }
    if (collect_now() < 0)
        PyErr_FormatUnraisable("Exception ignored in garbage collection");
}

/* From here on finalizers of what has been collected wait for those who are amid their work. */
static void
put_finalizers_off(Tx *tx)
{
    int limit = atomic_load(&stm_thread_limit);
    for (int i = 1; i < MAX_THREADS; i++) {
        Tx *o = i < limit ? atomic_load(&stm_threads[i]) : NULL;
        uint64_t status = o != NULL && o != tx ? atomic_load(&o->status) : TX_IDLE, state = status & STATE_MASK;
        atomic_store(&amid[i], state == TX_ACTIVE || state == TX_DOOMED ? status >> STATE_BITS : NOBODY);
    }
    ending = thread_of(tx)->births.dying;
    thread_of(tx)->births.dying = NULL;
    atomic_store(&wait_since, now_ns());
    atomic_store(&finalizers_wait, true);
}

static bool
nobody_is_left(void)
{
    for (int i = 1; i < MAX_THREADS; i++) {
        uint64_t attempt = atomic_load_explicit(&amid[i], memory_order_relaxed);
        if (attempt != NOBODY && attempt_of(atomic_load(&stm_threads[i])) == attempt)
            return false;
    }
    return true;
}

/* Somebody may be amid his work for ever. */
static bool
have_waited_for_long(void)
{
    return now_ns() - atomic_load_explicit(&wait_since, memory_order_relaxed) > first_allowance();
}

/* Under the claim: what has been put off ends on this thread. */
static void
take_ending(Tx *tx)
{
    if (ending == NULL)
        return;
    PyObject *dying = thread_of(tx)->births.dying;
    if (dying != NULL && PyList_SetSlice(ending, 0, 0, dying) < 0)      /* those were here before */
        PyErr_Clear();
    Py_XSETREF(thread_of(tx)->births.dying, ending);
    ending = NULL;
}

/* Under the claim: the collection is over when its finalizers have run. */
static void
end_collection(Tx *tx, int grade)
{
    take_ending(tx);
    if (grade == GRADE_EXCLUSIVE)
        stm_upcalls->tell_reason(tx, "finalizers of collected garbage");
    finalize_dying(tx, grade);
    atomic_store(&goes_on, false);
    wake(0, PARK_OTHERS);
}

void
garbage_collected(void)
{
    Tx *tx = stm_self;
    bool wait = true;
    if (tx == NULL || !tx->live || tx->grade != GRADE_EXCLUSIVE || tx->releasing != HOLDING
        || !atomic_compare_exchange_strong(&finalizers_wait, &wait, false))
        return;
    take_ending(tx);
    let_die(tx);
    atomic_store(&goes_on, false);
    wake(0, PARK_OTHERS);
}

void
finalize_garbage(Tx *tx, bool insists)
{
    bool wait = true;
    if (!atomic_compare_exchange_strong(&finalizers_wait, &wait, false))
        return;
    /* Who is irrevocable, and may be for long, is not waited for here: others come by until he is over. */
    if (nobody_is_left() && (insists || nobody_is_inevitable()))
        end_collection(tx, GRADE_IRREVOCABLE);
    else if ((insists || (has_enough_come(&PyInterpreterState_Get()->gc) && nobody_is_inevitable())) && have_waited_for_long())
        end_collection(tx, GRADE_EXCLUSIVE);    /* has who is overdue rolled back */
    else
        atomic_store(&finalizers_wait, true);
}

static void
collect_garbage(Tx *tx)
{
    bool nobody = false;
    if (!atomic_compare_exchange_strong(&goes_on, &nobody, true))
        return;
    release_garbage(tx, collect_beside_others);
    atomic_store(&waiting, 0);
    atomic_store(&memory_then, memory_now());
    if (thread_of(tx)->births.dying != NULL)
        put_finalizers_off(tx);
    else
        atomic_store(&goes_on, false);
}

void
mind_garbage(Tx *tx)
{
    if (garbage_is_due())
        collect_garbage(tx);
    if (UNLIKELY(atomic_load(&finalizers_wait)))
        finalize_garbage(tx, false);
}

static bool
has_ended(Tx *Py_UNUSED(tx), void *Py_UNUSED(arg))
{
    return !atomic_load(&goes_on) || (atomic_load(&finalizers_wait) && (nobody_is_left() || have_waited_for_long()));
}

PyObject *
engine_collect_garbage(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Tx *tx = stm_thread_tx();
    if (tx == NULL)
        return NULL;
    if (state_of(tx) == TX_IDLE)
        collect_garbage(tx);
    while (state_of(tx) == TX_IDLE && atomic_load(&goes_on)) {
        await(tx, PARK_OTHERS, has_ended, NULL);
        finalize_garbage(tx, true);
    }
    Py_RETURN_NONE;
}

/* ---- What attempts have made ---------------------------------------------------------------- */

void
keep_from_collector(PyObject *obj)
{
    if (PyObject_IS_GC(obj))
        _PyObject_SET_GC_BITS(obj, _PyGC_BITS_FROZEN);
}

/* The collector has found it to be alive, and has not taken that back, since it was frozen. */
void
leave_to_collector(PyObject *obj)
{
    if (PyObject_IS_GC(obj))
        _PyObject_CLEAR_GC_BITS(obj, _PyGC_BITS_FROZEN | _PyGC_BITS_ALIVE);
}
