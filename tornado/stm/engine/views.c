/* memoryview: what it is around, and what releasing it does.
 *
 * A view's own state is whether it has been released.  Whoever looks through a view shares
 * its cell; whoever releases it owns that, and a rollback takes the release back.  The
 * buffer behind a view (CPython's managed buffer, which all views derived from one another
 * share) goes back to its owner when the last of them is released.  Until the commit the
 * releasing transaction shares that owner's cell, too: nobody else may change its size
 * meanwhile, and its own changes have been undone when the buffer is taken again (releases
 * are the last to be undone).
 *
 * Only of bytes, bytearray and array.array is it known that giving a buffer back and
 * taking it again calls nothing and changes nothing else.
 */
#include "stm.h"

static PyMemoryViewObject *
view_of(PyObject *obj)
{
    return (PyMemoryViewObject *)obj;
}

/* Something else may lie where its buffer was: `view.obj` is not cleared. */
static bool
is_released(PyObject *obj)
{
    return view_of(obj)->flags & _Py_MEMORYVIEW_RELEASED || view_of(obj)->mbuf->flags & _Py_MANAGED_BUFFER_RELEASED;
}

/* Own or share the view, but not what it is around. */
static int
open_view(Tx *tx, PyObject *obj, bool own)
{
    bool first;
    if (captured(tx, obj))
        return check_doomed(tx);
    return own ? lock_exclusive(tx, cell_of(obj, WHOLE), &first) : lock_shared(tx, cell_of(obj, WHOLE));
}

int
open_view_read(Tx *tx, PyObject *obj)
{
    if (open_view(tx, obj, false) < 0)
        return -1;
    PyObject *base = is_released(obj) ? NULL : PyMemoryView_GET_BASE(obj);
    return base == NULL || PyBytes_CheckExact(base) ? 0 : open_whole_read(tx, base);
}

int
open_view_write(Tx *tx, PyObject *obj)
{
    if (open_view(tx, obj, false) < 0)
        return -1;
    if (is_released(obj))
        return 0;
    PyObject *base = PyMemoryView_GET_BASE(obj);
    return base == NULL ? exclusive_for(tx, "change of", obj) : open_whole_write(tx, base);
}

int
open_view_release(Tx *tx, PyObject *obj)
{
    if (!PyMemoryView_Check(obj) || captured(tx, obj))
        return check_doomed(tx);
    if (open_view(tx, obj, true) < 0)
        return -1;
    if (is_released(obj))
        return 0;
    PyObject *base = PyMemoryView_GET_BASE(obj);
    if (base == NULL || (!PyBytes_CheckExact(base) && !PyByteArray_CheckExact(base) && kind_of(tx, base) != KIND_ARRAY))
        return exclusive_for(tx, "release of a view of", base == NULL ? obj : base);
    if (!PyBytes_CheckExact(base) && open_whole_read(tx, base) < 0)
        return -1;
    return undo_push(tx, UNDO_RELEASE, obj, NULL, base) == NULL ? -1 : 0;
}

/* The view in `obj` was not released, and `old` is what it is around. */
int
release_undo(Undo *u)
{
    PyMemoryViewObject *view = view_of(u->obj);
    _PyManagedBufferObject *buffer = view->mbuf;
    if (!is_released(u->obj))
        return 0;   /* it could not be: somebody was using it */
    if (buffer->flags & _Py_MANAGED_BUFFER_RELEASED) {
        const char *before = buffer->master.buf;
        if (PyObject_GetBuffer(u->old, &buffer->master, PyBUF_FULL_RO) < 0)
            return -1;
        view->view.buf = (char *)buffer->master.buf + ((const char *)view->view.buf - before);
        buffer->flags &= ~_Py_MANAGED_BUFFER_RELEASED;
        PyObject_GC_Track(buffer);
    }
    buffer->exports++;
    view->flags &= ~_Py_MEMORYVIEW_RELEASED;
    return 0;
}
