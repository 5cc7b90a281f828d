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
    watch_endings(type);    /* it may have inherited a finalizer from one in C */
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

/* A class may get its __del__ when it has instances, and classes derived from it: so ours stands in the interpreter's table of what it puts
 * into the slots of classes for their methods. The entry is found by any method that a slot has been made. */
static int
stand_in_table(void)
{
    PyObject *dict = PyType_GetDict(&PyGen_Type), *method = NULL;
    struct wrapperbase *entry = NULL;
    if (PyDict_GetItemStringRef(dict, "__del__", &method) > 0 && Py_IS_TYPE(method, &PyWrapperDescr_Type))
        entry = ((PyWrapperDescrObject *)method)->d_base;
    Py_XDECREF(method);
    Py_DECREF(dict);
    if (entry == NULL || entry->function != (void *)finalize_python) {
        PyErr_SetString(PyExc_ImportError, "__del__ is called by something else in this Python");
        return -1;
    }
    entry->function = (void *)python_finalizer;
    return 0;
}

int
endings_init(void)
{
    return find_finalizers() < 0 || stand_in_table() < 0 ? -1 : each_derived(&PyBaseObject_Type, watch_endings);
}
