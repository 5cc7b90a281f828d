/* Frames, and what `frame.f_locals` of a function is: a view of its variables.
 *
 * The frame of a call changes on its own thread, until that call is over; that of a suspended generator changes with the
 * generator, whose lock keeps it, and moves into the frame object when that completes: then the frame object is locked as well
 * (generator.c).  Closure variables are cells, with locks of their own.  Writing variables through
 * the view is exclusive.
 */
#include "access.h"
#include "known.h"

#include <frameobject.h>

#include "internal/pycore_code.h"

/* Lock a frame that is no call: 1 if nobody changes it before this transaction is over; 0 if that cannot be known. */
static int
lock_frame(Tx *tx, PyFrameObject *frame)
{
    if (frame->f_frame->owner != FRAME_OWNED_BY_GENERATOR && frame->f_frame->owner != FRAME_OWNED_BY_FRAME_OBJECT)
        return 0;
    if (lock_shared(tx, cell_of(frame, WHOLE)) < 0)
        return -1;
    _PyInterpreterFrame *f = frame->f_frame;
    if (f->owner != FRAME_OWNED_BY_GENERATOR)
        return 1;
    PyGenObject *g = _PyGen_GetGeneratorFromFrame(f);
    return lock_shared(tx, cell_of(g, WHOLE)) < 0 ? -1 : g->gi_frame_state != FRAME_EXECUTING;
}

static int
read_attr(Tx *tx, PyObject *frame, PyObject *Py_UNUSED(name))
{
    return lock_frame(tx, (PyFrameObject *)frame) < 0 ? -1 : check_doomed(tx);
}

/* Its text has the line where it is. */
static int
visit_frame(Tx *tx, PyObject *frame, Visit Py_UNUSED(visit), void *Py_UNUSED(arg))
{
    return read_attr(tx, frame, NULL);
}

const struct Kind frame_kind = {.visited_in_part = true, .read_attr = read_attr, .visit = visit_frame};

/* ---- Its variables -------------------------------------------------------------------------- */

/* Is it one of the calls that this thread is in? */
static bool
is_running_here(Tx *tx, _PyInterpreterFrame *frame)
{
    _PyInterpreterFrame *f = tx->tstate->current_frame;
    while (f != NULL && f != frame)
        f = f->previous;
    return f != NULL;
}

static int
read_whole(Tx *tx, PyObject *view)
{
    PyFrameObject *frame = ((PyFrameLocalsProxyObject *)view)->frame;
    int kept = is_running_here(tx, frame->f_frame) ? 1 : lock_frame(tx, frame);
    if (kept <= 0)
        return kept < 0 ? -1 : exclusive_for(tx, "a look into the frame of another thread by", view);
    _PyInterpreterFrame *f = frame->f_frame;
    PyCodeObject *code = _PyFrame_GetCode(f);
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        if (!(_PyLocals_GetKind(code->co_localspluskinds, i) & (CO_FAST_CELL | CO_FAST_FREE)) || PyStackRef_IsNull(f->localsplus[i]))
            continue;
        PyObject *variable = PyStackRef_AsPyObjectBorrow(f->localsplus[i]);
        if (PyCell_Check(variable) && open_closure_read(tx, variable) < 0)
            return -1;
    }
    return check_doomed(tx);
}

static int
read_key(Tx *tx, PyObject *view, PyObject *Py_UNUSED(key))
{
    return read_whole(tx, view);
}

static int
iterate(Tx *tx, PyObject *view, int Py_UNUSED(depth))
{
    return read_whole(tx, view);
}

static int
visit_variables(Tx *tx, PyObject *view, Visit visit, void *arg)
{
    if (read_whole(tx, view) < 0)
        return -1;
    PyObject *values = PyMapping_Values(view);
    int r = values == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(values); i++)
        r = visit(tx, PyList_GET_ITEM(values, i), arg);
    Py_XDECREF(values);
    return r;
}

const struct Kind frame_locals_kind = {
    .fixed_attributes = true,
    .mapping = true,
    .read_whole = read_whole,
    .read_key = read_key,
    .iterate = iterate,
    .visit = visit_variables,
};
