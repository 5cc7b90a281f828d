/* memoryview: what it is around, what releasing it does, and who counts the views.
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
 *
 * A bytearray or array that has views keeps its size: to change it is a BufferError.  So a
 * program notices when a view goes, and would notice one that an undo log or an ended attempt
 * keeps alive:
 *
 *   - A released view that only the undo log knows when the attempt is rolled back stays
 *     released.
 *   - Views of what an attempt has made larger do not hinder the rollback: nobody looks
 *     through them any more.
 *   - Where a size is to change and there are views, the transaction becomes exclusive.  By
 *     then all transactions that have ended have dropped what they held (tx_end), and it drops
 *     what its own log holds.  If there are still views, the garbage collector comes: in what
 *     another thread has made, and this one dropped, there may be some.  The views that
 *     are left are the program's.
 *
 * Any number of transactions may look at one bytearray, array or view at a time, and make
 * and drop views of it.  CPython counts those of a bytearray under a lock, but neither
 * those of an array nor those that share a buffer: both get one here.
 */
#include "memoryview.h"

#include "access.h"
#include "garbage.h"
#include "known.h"

/* The beginning of arraymodule.c's structure, which is private to it. */
typedef struct {
    PyObject_VAR_HEAD
    char *items;
    Py_ssize_t allocated;
    const void *description;
    PyObject *weakrefs;
    Py_ssize_t views;
} Array;

static PyTypeObject *array_type;

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

static int
read_whole(Tx *tx, PyObject *obj)
{
    if (open_view(tx, obj, false) < 0)
        return -1;
    PyObject *base = is_released(obj) ? NULL : PyMemoryView_GET_BASE(obj);
    return base == NULL || PyBytes_CheckExact(base) ? 0 : open_whole_read(tx, base);
}

static int
write_whole(Tx *tx, PyObject *obj)
{
    if (open_view(tx, obj, false) < 0)
        return -1;
    if (is_released(obj))
        return 0;
    PyObject *base = PyMemoryView_GET_BASE(obj);
    return base == NULL ? exclusive_for(tx, "change of", obj) : open_whole_write(tx, base);
}

/* If buffers of the object are counted there, let only those be left that the program knows. */
static int
drop_unknown(Tx *tx, const char *what, PyObject *obj, Py_ssize_t *count)
{
    if (count == NULL || LIKELY(_Py_atomic_load_ssize_relaxed(count) <= 0))
        return check_doomed(tx);
    if (exclusive_for(tx, what, obj) < 0)
        return -1;
    forget_past(tx);
    return _Py_atomic_load_ssize_relaxed(count) <= 0 ? 0 : collect_now();
}

/* Where the object counts its views, or NULL. */
static Py_ssize_t *
count_of_views(PyObject *obj)
{
    PyBufferProcs *buffer = Py_TYPE(obj)->tp_as_buffer;
    if (buffer == NULL || buffer->bf_getbuffer == NULL)
        return NULL;
    if (PyByteArray_Check(obj))
        return &((PyByteArrayObject *)obj)->ob_exports;
    return PyObject_TypeCheck(obj, array_type) ? &((Array *)obj)->views : NULL;
}

/* What is open for writing is about to change its size. */
int
open_resize(Tx *tx, PyObject *obj)
{
    return drop_unknown(tx, "change of size with views of", obj, count_of_views(obj));
}

/* Let it change its size whatever views there are, or no more: the first returns what the
 * second takes. */
Py_ssize_t
views_ignore(PyObject *obj)
{
    Py_ssize_t *views = count_of_views(obj), n;
    Py_BEGIN_CRITICAL_SECTION(obj);
    n = *views;
    *views = 0;
    Py_END_CRITICAL_SECTION();
    return n;
}

void
views_regard(PyObject *obj, Py_ssize_t n)
{
    Py_BEGIN_CRITICAL_SECTION(obj);
    *count_of_views(obj) += n;      /* meanwhile some may have gone */
    Py_END_CRITICAL_SECTION();
}

/* The view in `obj` was not released, and `old` is what it is around. */
static int
release_undo(Tx *Py_UNUSED(tx), Undo *u)
{
    PyMemoryViewObject *view = view_of(u->obj);
    _PyManagedBufferObject *buffer = view->mbuf;
    if (!is_released(u->obj))
        return 0;   /* it could not be: somebody was using it */
    if (Py_REFCNT(u->obj) == 1)
        return 0;   /* nobody will ask */
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

/* After all others: what it is around may have changed its size since then, and may have been logged before. */
static const UndoKind undo_release = {.what = "the release", .undo = release_undo, .after_all = true};

int
open_view_release(Tx *tx, PyObject *obj)
{
    if (!PyMemoryView_Check(obj))
        return check_doomed(tx);
    if (captured(tx, obj))
        return drop_unknown(tx, "release of a used", obj, &view_of(obj)->exports);
    if (open_view(tx, obj, true) < 0)
        return -1;
    if (is_released(obj))
        return 0;
    /* Other than views, what takes a buffer from a view keeps it from being released. */
    if (drop_unknown(tx, "release of a used", obj, &view_of(obj)->exports) < 0)
        return -1;
    PyObject *base = PyMemoryView_GET_BASE(obj);
    if (base == NULL || (!PyBytes_CheckExact(base) && !PyByteArray_CheckExact(base) && kind_of(tx, base) != &array_kind))
        return exclusive_for(tx, "release of a view of", base == NULL ? obj : base);
    if (!PyBytes_CheckExact(base) && open_whole_read(tx, base) < 0)
        return -1;
    return undo_push(tx, &undo_release, obj, NULL, base) == NULL ? -1 : 0;
}

/* ---- Counting views ------------------------------------------------------------------------ */

static getbufferproc array_get;
static releasebufferproc array_release;

static int
get_array_buffer(PyObject *array, Py_buffer *view, int flags)
{
    int r;
    Py_BEGIN_CRITICAL_SECTION(array);
    r = array_get(array, view, flags);
    Py_END_CRITICAL_SECTION();
    return r;
}

static void
release_array_buffer(PyObject *array, Py_buffer *view)
{
    Py_BEGIN_CRITICAL_SECTION(array);
    array_release(array, view);
    Py_END_CRITICAL_SECTION();
}

/* A view dies where it is dropped, by whichever thread, as it does where there is one: all
 * references to it are counted in one place. */
static PyObject *
of_no_thread(PyObject *view)
{
    if (view != NULL && _PyObject_IsUniquelyReferenced(view)) {
        view->ob_tid = _Py_UNOWNED_TID;
        view->ob_ref_local = 0;
        view->ob_ref_shared = _Py_REF_SHARED(1, _Py_REF_MERGED);
    }
    return view;
}

/* All that makes a view of a view, or releases one, counts in the buffer that they share. */
static destructor view_dealloc;
static newfunc view_new;
static binaryfunc view_subscript;
static PyCFunction view_release, view_exit, view_toreadonly;
static PyCFunctionFastWithKeywords view_cast;

#define COUNTING(view, call) \
    PyObject *result; \
    PyObject *buffer = Py_NewRef((PyObject *)view_of(view)->mbuf); \
    Py_BEGIN_CRITICAL_SECTION(buffer); \
    result = call; \
    Py_END_CRITICAL_SECTION(); \
    Py_DECREF(buffer); \
    return result

static PyObject *
counted_subscript(PyObject *view, PyObject *key)
{
    if (!PySlice_Check(key))
        return view_subscript(view, key);
    COUNTING(view, of_no_thread(view_subscript(view, key)));
}

static PyObject *
counted_release(PyObject *view, PyObject *unused)
{
    COUNTING(view, view_release(view, unused));
}

static PyObject *
counted_exit(PyObject *view, PyObject *args)
{
    COUNTING(view, view_exit(view, args));
}

static PyObject *
counted_toreadonly(PyObject *view, PyObject *unused)
{
    COUNTING(view, of_no_thread(view_toreadonly(view, unused)));
}

static PyObject *
counted_cast(PyObject *view, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    COUNTING(view, of_no_thread(view_cast(view, args, n, kwnames)));
}

static PyObject *
counted_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *view = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) == 1 && view == NULL)
        view = PyDict_GetItemString(kwargs, "object");
    if (view == NULL || !PyMemoryView_Check(view))
        return of_no_thread(view_new(type, args, kwargs));
    COUNTING(view, of_no_thread(view_new(type, args, kwargs)));
}

static void
counted_dealloc(PyObject *view)
{
    PyObject *buffer = Py_XNewRef((PyObject *)view_of(view)->mbuf);
    if (buffer == NULL) {   /* the garbage collector has taken it */
        view_dealloc(view);
        return;
    }
    Py_BEGIN_CRITICAL_SECTION(buffer);
    view_dealloc(view);
    Py_END_CRITICAL_SECTION();
    Py_DECREF(buffer);
}

/* Put a function in the place of the method that has these flags. */
static bool
replace_method(const char *name, int flags, PyCFunction counted, PyCFunction *original)
{
    PyObject *descr = PyObject_GetAttrString((PyObject *)&PyMemoryView_Type, name);
    bool found = descr != NULL && Py_IS_TYPE(descr, &PyMethodDescr_Type);
    PyMethodDef *method = found ? ((PyMethodDescrObject *)descr)->d_method : NULL;
    Py_XDECREF(descr);      /* its type keeps it */
    if (!found || method->ml_flags != flags) {
        PyErr_Format(PyExc_ImportError, "memoryview.%s is another function in this Python", name);
        return false;
    }
    *original = method->ml_meth;
    method->ml_meth = counted;
    return true;
}

/* Once, when the engine is imported. */
int
views_init(void)
{
    array_type = (PyTypeObject *)PyImport_ImportModuleAttrString("array", "array");
    if (array_type == NULL)
        return -1;
    if (array_type->tp_basicsize != sizeof(Array)) {
        PyErr_SetString(PyExc_ImportError, "array.array is another structure in this Python");
        return -1;
    }
    array_get = array_type->tp_as_buffer->bf_getbuffer;
    array_release = array_type->tp_as_buffer->bf_releasebuffer;
    array_type->tp_as_buffer->bf_getbuffer = get_array_buffer;
    array_type->tp_as_buffer->bf_releasebuffer = release_array_buffer;

    PyTypeObject *type = &PyMemoryView_Type;
    view_dealloc = type->tp_dealloc;
    view_new = type->tp_new;
    view_subscript = type->tp_as_mapping->mp_subscript;
    type->tp_dealloc = counted_dealloc;
    type->tp_new = counted_new;
    type->tp_as_mapping->mp_subscript = counted_subscript;
    return replace_method("release", METH_NOARGS, counted_release, &view_release)
        && replace_method("__exit__", METH_VARARGS, counted_exit, &view_exit)
        && replace_method("toreadonly", METH_NOARGS, counted_toreadonly, &view_toreadonly)
        && replace_method("cast", METH_FASTCALL | METH_KEYWORDS, _PyCFunction_CAST(counted_cast), (PyCFunction *)&view_cast)
        ? 0 : -1;
}

const struct Kind memoryview_kind = {
    .c_state = C_STATE_WHOLE,
    .compared_inside = true,
    .compared_by_memory = true,
    .made_captured = true,
    .read_whole = read_whole,
    .write_whole = write_whole,
};
