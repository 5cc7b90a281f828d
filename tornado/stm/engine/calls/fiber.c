/* Fibers: Python code that waits in the midst of functions, on a stack of its own (greenlets; see ../../patches/fibers.py).
 *
 * Such a stack belongs to the thread that has made it, and cannot be rolled back.  So who lets a fiber go on
 *
 *      is on the anchor    A transaction elsewhere is put off, and begins again there; one that cannot be put off runs alone, and the
 *                          call is made there (anchor.c).
 *      is irrevocable      Others run beside it.
 *
 * When a fiber goes on, what it has opened before is no more: that was another transaction.  Its frames open again what they use, for
 * each instruction does that itself, but for the next step of a loop: what its frames loop over is opened at once.  So a fiber goes on alone
 *
 *      within C code       (the sort() that calls a key function which waits): that relies on what it has opened when it began, as
 *                          does who resumes a generator: is_in_c();
 *      without barriers    if its frames have none.  Those that begin in a fiber have them, whatever its transaction (`in_fiber`), unless
 *                          it is expected to go on alone anyway.
 */
#include "fiber.h"

#include "../core/transaction.h"
#include "../objects/access.h"
#include "../thread.h"
#include "anchor.h"

/* What this transaction needs, its kind needs as a rule. */
static void
note_anchored(Tx *tx)
{
    WasAlone *was = &thread_of(tx)->was_alone;
    was->anchored = true;
    Py_XSETREF(was->site, Py_XNewRef(thread_of(tx)->chain.site));
}

/* This thread may let a fiber go on, or have the anchor do that.  -1 with stm_Abort set: the attempt has to end. */
static int
prepare(Tx *tx)
{
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    note_anchored(tx);
    if (is_on_anchor(tx))
        return become_inevitable(tx, GRADE_IRREVOCABLE);
    return move_to_anchor(tx) ? -1 : become_exclusive(tx, "a greenlet that is not of this thread");
}

/* in_fiber(barriers, function, *args, **kwargs): call that; it makes a fiber, or lets one go on, whose new frames have barriers, or need
 * not have any. */
PyObject *
in_fiber(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    if (n < 2) {
        PyErr_SetString(PyExc_TypeError, "in_fiber() takes a flag, a function, and its arguments");
        return NULL;
    }
    Tx *tx = live_tx();
    if (tx == NULL)
        return PyObject_Vectorcall(args[1], args + 2, (size_t)n - 2, kwnames);
    if (prepare(tx) < 0)
        return NULL;
    bool outer = thread_of(tx)->in_fiber;
    thread_of(tx)->in_fiber = args[0] == Py_True;
    PyObject *result = call_on_anchor(args[1], args + 2, n - 2, kwnames);
    thread_of(tx)->in_fiber = outer;
    return result;
}

/* Open what waits on the stack of a frame for the next step of a loop. */
static int
open_loops(Tx *tx, _PyInterpreterFrame *frame)
{
    for (_PyStackRef *at = _PyFrame_Stackbase(frame); at < frame->stackpointer; at++) {
        PyObject *o = PyStackRef_IsNullOrInt(*at) ? NULL : PyStackRef_AsPyObjectBorrow(*at);
        if (o != NULL && PyIter_Check(o) && open_iter(tx, o) < 0)
            return -1;
    }
    return 0;
}

/* goes_on(): this fiber does, perhaps in another transaction. */
PyObject *
fiber_goes_on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Tx *tx = stm_open;
    _PyInterpreterFrame *frame = PyThreadState_Get()->current_frame;
    for (; tx != NULL && frame != NULL && frame->owner == FRAME_OWNED_BY_THREAD; frame = frame->previous) {
        if (open_loops(tx, frame) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* is_in_c(): is anything but functions in Python between the beginning of this stack and here? */
PyObject *
is_in_c(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    int entries = 0;
    bool others = false;
    for (_PyInterpreterFrame *frame = PyThreadState_Get()->current_frame; frame != NULL && !others; frame = frame->previous) {
        entries += frame->owner == FRAME_OWNED_BY_INTERPRETER;      /* one for each time that C code has called */
        others = frame->owner != FRAME_OWNED_BY_INTERPRETER && frame->owner != FRAME_OWNED_BY_THREAD;
    }
    return PyBool_FromLong(others || entries > 1);
}
