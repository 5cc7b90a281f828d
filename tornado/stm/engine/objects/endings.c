/* Finalizers of classes: whoever is about to be told of an object's end asks first whether this is the place (born.c).
 *
 * The interpreter finalizes anywhere, and what it calls then may be called for other reasons as well: __del__ may be another name of a
 * method, may have other parameters or be wrapped.  So it is the slot of the class that asks:
 *
 *      __del__     of all classes that have one in Python
 *      close       of a stream whose class is in Python: the finalizer of io's classes calls it
 *
 * Other streams, and sockets, are closed wherever they die; but when garbage is collected, not before those finalizers that are put off: these
 * may use them.
 */
#include "endings.h"

#include "../thread.h"
#include "class.h"
#include "known.h"

#include "internal/pycore_interp.h"

static destructor finalize_python, finalize_stream, finalize_socket;    /* the interpreter's */

static void
python_finalizer(PyObject *self)
{
    Tx *tx = stm_self;
    if (tx != NULL && !stm_barriers_off) {
        PyObject *exception = PyErr_GetRaisedException();
        int r = finalizer_called(tx, self, PyThreadState_Get()->current_frame);
        PyErr_SetRaisedException(exception);
        if (r != 0)
            return;
    }
    finalize_python(self);
}

static void
stream_finalizer(PyObject *self)
{
    if (!teller_put_off(self))
        finalize_stream(self);
}

/* Garbage is collected beside others. */
static bool
is_garbage(void)
{
    return stm_self != NULL && stm_self->releasing == AFTER_COMMIT && _Py_atomic_load_int_relaxed(&PyInterpreterState_Get()->gc.collecting);
}

static void
c_stream_finalizer(PyObject *self)
{
    if (!is_garbage() || !teller_put_off(self))
        finalize_stream(self);
}

static void
socket_finalizer(PyObject *self)
{
    if (!is_garbage() || !teller_put_off(self))
        finalize_socket(self);
}

void
watch_endings(PyTypeObject *type)
{
    if (type->tp_finalize == finalize_python)
        type->tp_finalize = python_finalizer;
    else if (type->tp_finalize == finalize_socket)
        type->tp_finalize = socket_finalizer;
    else if (type->tp_finalize == finalize_stream || type->tp_finalize == c_stream_finalizer)
        type->tp_finalize = type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE ? c_stream_finalizer : stream_finalizer;
}

bool
ends_in_python(PyTypeObject *type)
{
    if (LIKELY(type->tp_finalize == NULL))
        return false;
    watch_endings(type);    /* it may have got its finalizer just now */
    return type->tp_finalize == python_finalizer || type->tp_finalize == stream_finalizer;
}

/* ---- Once, when the engine is imported ------------------------------------------------------------ */

/* The interpreter's slots. */
static int
find_finalizers(void)
{
    PyObject *example = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){sO}", "Example", "__del__", Py_None);
    PyTypeObject *stream = (PyTypeObject *)PyImport_ImportModuleAttrString("_io", "_IOBase");
    PyTypeObject *socket = (PyTypeObject *)PyImport_ImportModuleAttrString("_socket", "socket");
    if (example == NULL || stream == NULL || socket == NULL)
        return -1;
    finalize_python = ((PyTypeObject *)example)->tp_finalize;
    finalize_stream = stream->tp_finalize;
    finalize_socket = socket->tp_finalize;
    Py_DECREF(example);
    Py_DECREF(stream);
    Py_DECREF(socket);
    if (finalize_python == NULL || finalize_stream == NULL || finalize_socket == NULL) {
        PyErr_SetString(PyExc_ImportError, "finalizers of classes are called by something else in this Python");
        return -1;
    }
    return 0;
}

int
endings_init(void)
{
    return find_finalizers() < 0 ? -1 : each_derived(&PyBaseObject_Type, watch_endings);
}
