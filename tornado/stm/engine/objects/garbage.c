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
 * Finalizers of what committed ones have left behind are put off as well, like all that begin outside of transactions.  They run alone
 * when the collection is over.
 *
 * It is alone from its beginning where it calls, or tells, the program: hooks in gc.callbacks, gc.set_debug().
 *
 * When it is due is as in CPython (gc_should_collect), but for a larger number to begin with: so many containers have come and not gone,
 * and they are a part of all there are, and either memory has grown or there have been many such rounds.
 */
#include "garbage.h"

#include "../core/latch.h"
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
static _Atomic bool goes_on;            /* a thread is at it */
static Latch begin_lock;                /* around these, and the interpreter's own switch: */
static int runs;                        /* so many run transactions */
static _Atomic bool collects;           /* and the program wants garbage to be collected */

PyObject *
begin_collecting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&begin_lock);
    if (runs++ == 0)
        atomic_store(&collects, PyGC_Disable());
    latch_give(&begin_lock);
    Py_RETURN_NONE;
}

PyObject *
end_collecting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    latch_take(&begin_lock);
    if (--runs == 0 && atomic_exchange(&collects, false))
        PyGC_Enable();
    latch_give(&begin_lock);
    Py_RETURN_NONE;
}

static void
switch_collector(bool on)
{
    latch_take(&begin_lock);
    if (runs > 0)
        atomic_store(&collects, on);
    else if (on)
        PyGC_Enable();
    else
        PyGC_Disable();
    latch_give(&begin_lock);
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
    latch_take(&begin_lock);
    bool on = runs > 0 ? atomic_load(&collects) : PyGC_IsEnabled();
    latch_give(&begin_lock);
    return PyBool_FromLong(on);
}

void
garbage_in_child(void)
{
    begin_lock = (Latch){0};
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

bool
garbage_is_due(void)
{
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    int enough = atomic_load_explicit(&containers, memory_order_relaxed), count = _Py_atomic_load_int_relaxed(&gc->young.count);
    if (LIKELY(count <= enough) || count < gc->long_lived_total / SHARE_OF_ALL || gc->young.threshold == 0 || !atomic_load(&collects)
        || atomic_load(&goes_on))
        return false;
    count = _Py_atomic_exchange_int(&gc->young.count, 0);
    if (atomic_fetch_add(&waiting, count) + count > (int64_t)ROUNDS * enough)
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

static PyObject *collector;     /* gc.collect, the interpreter's */

static void
collect(Tx *Py_UNUSED(tx))
{
    PyObject *r = PyObject_CallNoArgs(collector);
    if (r == NULL)
        PyErr_FormatUnraisable("Exception ignored in garbage collection");
    Py_XDECREF(r);
}

/* Does it tell the program?  Another thread may be about to enter a hook: then this one waits. */
static bool
tells_program(Tx *tx)
{
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    atomic_store(&tx->attention, 0);    /* as long as it only locks that, none of the program's code has been called */
    bool locked = lock_shared(tx, cell_of(gc->callbacks, WHOLE)) == 0;
    atomic_store(&tx->attention, 1);
    return !locked || gc->debug != 0 || PyList_GET_SIZE(gc->callbacks) > 1;     /* one is the engine's (calls/conversion.c) */
}

static void
collect_beside_others(Tx *tx)
{
    if (tells_program(tx)) {
        PyErr_Clear();
        if (become_exclusive(tx, "a collection of garbage that is told to the program") < 0)
            return;
    }
    collect(tx);
}

int
collect_garbage(Tx *tx)
{
    bool nobody = false;
    if (!atomic_compare_exchange_strong(&goes_on, &nobody, true))
        return 0;
    if (collector == NULL)
        collector = PyImport_ImportModuleAttrString("gc", "collect");
    if (collector != NULL) {
        release_garbage(tx, collect_beside_others);
        if (stm_upcalls->is_late(tx)) {
            stm_upcalls->tell_reason(tx, "finalizers of collected garbage");
            finalize_dying(tx, GRADE_EXCLUSIVE);
        }
        atomic_store(&waiting, 0);
        atomic_store(&memory_then, memory_now());
    }
    atomic_store(&goes_on, false);
    return collector != NULL ? 0 : -1;
}

PyObject *
engine_collect_garbage(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Tx *tx = stm_thread_tx();
    if (tx == NULL || (state_of(tx) == TX_IDLE && collect_garbage(tx) < 0))
        return NULL;
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
