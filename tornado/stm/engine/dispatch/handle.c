/* asyncio's handles: made, and run, in C. */
#include "handle.h"

#include "../calls/callbacks.h"
#include "../deferred.h"
#include "../objects/access.h"
#include "../objects/born.h"
#include "../objects/known.h"
#include "chain.h"
#include "future.h"
#include "task.h"

#include <frameobject.h>

/* ---- Slots ------------------------------------------------------------------------------------------ */

static PyTypeObject *handle_type, *timer_type;
static PyObject *run_slowly, *tell, *plain_call_soon, *rearm;

/* The function of asyncio's from which callbacks are called: tracebacks have it, as those who read them are used to. */
static struct { PyObject *function; int at, line; } caller;

static struct { Py_ssize_t callback, args, cancelled, loop, source_traceback, repr, context, when, scheduled; } at;
static PyObject *cancelled_name, *scheduled_name;

static PyObject **
slot(PyObject *handle, Py_ssize_t offset)
{
    return (PyObject **)((char *)handle + offset);
}

/* Where the class keeps that slot; -1 with an exception. */
static Py_ssize_t
offset_of(PyTypeObject *type, const char *name)
{
    PyObject *descr = PyObject_GetAttrString((PyObject *)type, name);
    Py_ssize_t offset = -1;
    if (descr != NULL && Py_IS_TYPE(descr, &PyMemberDescr_Type))
        offset = ((PyMemberDescrObject *)descr)->d_member->offset;
    else if (descr != NULL)
        PyErr_Format(PyExc_ImportError, "asyncio's %s has no slot %s: this engine does not know it", type->tp_name, name);
    Py_XDECREF(descr);
    return offset;
}

PyObject *
handle_callback(PyObject *handle)
{
    return handle_type != NULL && PyObject_TypeCheck(handle, handle_type) ? *slot(handle, at.callback) : NULL;
}

PyObject *
handle_arguments(PyObject *handle)
{
    return handle_type != NULL && PyObject_TypeCheck(handle, handle_type) ? *slot(handle, at.args) : NULL;
}

/* Nobody else writes to it before its time has come, and both values are immortal. */
bool
timer_waits(PyObject *timer)
{
    return !PyObject_TypeCheck(timer, timer_type) || *slot(timer, at.scheduled) == Py_True;
}

void
timer_waits_no_more(PyObject *timer)
{
    if (PyObject_TypeCheck(timer, timer_type))
        *slot(timer, at.scheduled) = Py_False;
}

/* ---- Making one ---------------------------------------------------------------------------------------- */

/* Not in debug mode, in which it would know where it was made. */
static PyObject *
make_handle(PyTypeObject *type, PyObject *loop, PyObject *callback, PyObject *args, PyObject *context)
{
    context = context != NULL && context != Py_None ? Py_NewRef(context) : PyContext_CopyCurrent();
    PyObject *handle = context != NULL ? type->tp_alloc(type, 0) : NULL;
    if (handle == NULL) {
        Py_XDECREF(context);
        return NULL;
    }
    *slot(handle, at.context) = context;
    *slot(handle, at.callback) = Py_NewRef(callback);
    *slot(handle, at.args) = Py_NewRef(args);
    *slot(handle, at.loop) = Py_NewRef(loop);
    *slot(handle, at.cancelled) = Py_False;
    *slot(handle, at.repr) = *slot(handle, at.source_traceback) = Py_None;
    if (stm_open != NULL)
        note_captured(stm_open, handle);
    return handle;
}

PyObject *
new_handle(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n < 4 || n > 5 || !PyTuple_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "new_handle() takes a loop, a callback, a tuple, a context or None, and a time");
        return NULL;
    }
    PyObject *handle = make_handle(n > 4 ? timer_type : handle_type, args[0], args[1], args[2], args[3]);
    if (handle != NULL && n > 4) {
        *slot(handle, at.when) = Py_NewRef(args[4]);
        *slot(handle, at.scheduled) = Py_True;
    }
    return handle;
}

PyObject *
call_soon(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 5 || !PyTuple_CheckExact(args[3]) || !is_dispatcher(args[0])) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "call_soon() takes a Dispatcher, a loop, a callback, a tuple, and a context or None");
        return NULL;
    }
    PyObject *handle = make_handle(handle_type, args[1], args[2], args[3], args[4]);
    if (handle != NULL && chain_add(args[0], handle) < 0)
        Py_CLEAR(handle);
    return handle;
}

PyObject *
submit_soon(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !is_dispatcher(args[0])) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "submit_soon() takes a Dispatcher and a handle");
        return NULL;
    }
    return chain_add(args[0], args[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

int
loop_is_debugged(PyObject *loop)
{
    Dispatcher *d = dispatcher_of(loop);
    if (LIKELY(d != NULL))
        return d->debug;
    PyObject *method = PyObject_GetAttr(loop, asyncio.get_debug);
    PyObject *debug = method != NULL ? stm_call(method, NULL, 0, NULL) : NULL;
    int is = debug != NULL ? PyObject_IsTrue(debug) : -1;
    Py_XDECREF(method);
    Py_XDECREF(debug);
    return is;
}

PyObject *
stack_of_caller(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    return frame != NULL ? PyObject_CallOneArg(asyncio.extract_stack, (PyObject *)frame) : PyList_New(0);
}

/* ---- Scheduling ------------------------------------------------------------------------------------------ */

/* Is the loop's call_soon() the one that this is in the place of? -1 with an exception. */
static int
has_plain_call_soon(PyObject *loop)
{
    if (stm_open != NULL && open_attr_read(stm_open, loop, asyncio.call_soon) < 0)
        return -1;
    PyObject *method = NULL;
    int unbound = _PyObject_GetMethod(loop, asyncio.call_soon, &method);
    bool plain = unbound && method == plain_call_soon;
    Py_XDECREF(method);
    return method == NULL ? -1 : plain;
}

int
schedule(PyObject *loop, PyObject *function, PyObject *argument, PyObject *context)
{
    Dispatcher *d = dispatcher_of(loop);
    int plain = d != NULL && !d->debug && !d->closed ? has_plain_call_soon(loop) : 0;
    if (LIKELY(plain > 0)) {
        PyObject *args = argument != NULL ? PyTuple_Pack(1, argument) : PyTuple_New(0);
        PyObject *handle = args != NULL ? make_handle(handle_type, loop, function, args, context) : NULL;
        int r = handle != NULL ? chain_add((PyObject *)d, handle) : -1;
        Py_XDECREF(args);
        Py_XDECREF(handle);
        return r;
    }
    if (plain < 0 || (stm_open != NULL && open_attr_read(stm_open, loop, asyncio.call_soon) < 0))
        return -1;
    PyObject *method = PyObject_GetAttr(loop, asyncio.call_soon), *names = PyTuple_Pack(1, asyncio.context), *r = NULL;
    PyObject *args[] = {function, argument != NULL ? argument : context, context};
    if (method != NULL && names != NULL)
        r = stm_call(method, args, 1 + (argument != NULL), names);
    Py_XDECREF(method);
    Py_XDECREF(names);
    Py_XDECREF(r);
    return r != NULL ? 0 : -1;
}

/* ---- Running -------------------------------------------------------------------------------------------------- */

/* What a transaction may have changed since the handle was made: has it been cancelled? */
static int
is_cancelled(PyObject *handle)
{
    if (stm_open != NULL && !captured(stm_open, handle) && open_attr_read(stm_open, handle, cancelled_name) < 0)
        return -1;
    PyObject *is = *slot(handle, at.cancelled);
    return is != NULL ? PyObject_IsTrue(is) : 0;
}

/* The callback, in its context. */
static PyObject *
call_in_context(PyObject *context, PyObject *callback, PyObject *args)
{
    if ((stm_open != NULL && open_context(stm_open, context) < 0) || PyContext_Enter(context) < 0)
        return NULL;
    PyObject *result = stm_call(callback, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), NULL);
    PyObject *raised = result == NULL ? PyErr_GetRaisedException() : NULL;
    if (PyContext_Exit(context) < 0) {
        Py_CLEAR(result);
        Py_XDECREF(raised);
    }
    else if (raised != NULL)
        PyErr_SetRaisedException(raised);
    return result;
}

/* The callback has raised this.  As in an `except`: it is what is being handled, for who asks for that. */
static PyObject *
tell_of(PyObject *handle, PyObject *raised)
{
    _PyErr_StackItem *handling = PyThreadState_Get()->exc_info;
    PyObject *handled = handling->exc_value;
    handling->exc_value = Py_NewRef(raised);
    PyObject *result = stm_call(tell, (PyObject *[]){handle, raised}, 2, NULL);
    Py_SETREF(handling->exc_value, handled);
    return result;
}

/* The exception has come through asyncio's function that calls back. */
static void
trace_caller(PyObject *raised)
{
    if (caller.function == NULL)
        return;
    PyFrameObject *frame = PyFrame_New(PyThreadState_Get(), (PyCodeObject *)PyFunction_GET_CODE(caller.function),
                                       PyFunction_GET_GLOBALS(caller.function), NULL);
    PyObject *before = PyException_GetTraceback(raised);
    PyObject *traced = frame == NULL ? NULL : PyObject_CallFunction((PyObject *)&PyTraceBack_Type, "OOii", before != NULL ? before : Py_None,
                                                                    frame, caller.at, caller.line);
    if (traced == NULL || PyException_SetTraceback(raised, traced) < 0)
        PyErr_Clear();
    Py_XDECREF(traced);
    Py_XDECREF(before);
    Py_XDECREF(frame);
}

static int
run(PyObject *handle)
{
    PyObject *loop = *slot(handle, at.loop), *callback = *slot(handle, at.callback), *args = *slot(handle, at.args);
    PyObject *context = Py_XNewRef(*slot(handle, at.context)), *result;
    bool in_context = context != NULL && PyContext_CheckExact(context);
    bool plain = (Py_IS_TYPE(handle, handle_type) || Py_IS_TYPE(handle, timer_type)) && callback != NULL && args != NULL
        && PyTuple_CheckExact(args) && in_context;
    int debugged = plain ? loop_is_debugged(loop) : 0;
    if (debugged < 0) {
        Py_XDECREF(context);
        return -1;
    }
    if (plain && !debugged) {
        /* They may be taken away by who cancels it meanwhile. */
        Py_INCREF(callback);
        Py_INCREF(args);
        result = call_in_context(context, callback, args);
        Py_DECREF(callback);
        Py_DECREF(args);
        if (result == NULL && !PyErr_ExceptionMatches(stm_Abort) && !PyErr_ExceptionMatches(PyExc_SystemExit)
            && !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            PyObject *raised = PyErr_GetRaisedException();
            trace_caller(raised);
            result = tell_of(handle, raised);
            Py_DECREF(raised);
        }
    }
    else
        result = stm_call(run_slowly, &handle, 1, NULL);
    int r = result != NULL ? 0 : -1;
    if (r == 0 && in_context && stm_open != NULL && stm_open->grade != GRADE_EXCLUSIVE)
        r = note_callback_end(stm_open, context);
    Py_XDECREF(context);
    Py_XDECREF(result);
    return r;
}

static int
run_unless_cancelled(PyObject *handle)
{
    int cancelled = is_cancelled(handle);
    return cancelled != 0 ? cancelled < 0 ? -1 : 0 : run(handle);
}

/* What is to follow in the same transaction (chain.h), unless the callbacks that have been run since chain_open() have failed (`r`). */
static int
run_followers(Dispatcher *d, int r)
{
    PyObject *handle = NULL;
    while (r == 0 && (r = chain_follower(d, &handle)) == 0 && handle != NULL) {
        r = run_unless_cancelled(handle);
        Py_DECREF(handle);
    }
    if (r < 0 && PyErr_ExceptionMatches(stm_Abort))
        return -1;
    PyObject *raised = PyErr_GetRaisedException();
    if (chain_close((PyObject *)d) < 0 || (raised != NULL && become_exclusive(stm_self, "an exception that ends the loop") < 0)) {
        Py_XDECREF(raised);
        return -1;
    }
    if (raised != NULL)
        dispatcher_ends_at_once(d);     /* so nothing commits after it */
    if (raised != NULL)
        PyErr_SetRaisedException(raised);
    return r;
}

PyObject *
run_handle(PyObject *Py_UNUSED(module), PyObject *handle)
{
    Dispatcher *d = dispatcher_of(*slot(handle, at.loop));
    if (d == NULL)
        PyErr_SetString(PyExc_RuntimeError, "the loop of this handle is no more");
    if (d == NULL)
        return NULL;
    chain_open();
    return run_followers(d, run_unless_cancelled(handle)) < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
run_timer(PyObject *module, PyObject *timer)
{
    if (stm_open != NULL && open_attr_write(stm_open, timer, scheduled_name, false) < 0)
        return NULL;
    if (PyObject_SetAttr(timer, scheduled_name, Py_False) < 0)
        return NULL;
    return run_handle(module, timer);
}

/* What transactions want to hear of it; a new reference, or NULL with an exception, or without if nothing. */
static PyObject *
wanted(PyObject *watch, PyObject *name)
{
    if (stm_open != NULL && open_attr_read(stm_open, watch, name) < 0)
        return NULL;
    PyObject *handle = PyObject_GetAttr(watch, name);
    if (handle == Py_None)
        Py_CLEAR(handle);
    return handle;
}

/* Call the one that the event was for, unless it has been removed or replaced since: the next one may be another socket's, and what there
 * was may have been received.  If not, the kernel tells of it again. */
static int
run_wanted(PyObject *watch, PyObject *name, PyObject *told)
{
    if (told == Py_None)
        return 0;
    PyObject *handle = wanted(watch, name);
    if (handle == NULL && PyErr_Occurred())
        return -1;
    int r = handle == told ? run_unless_cancelled(handle) : 0;
    Py_XDECREF(handle);
    return r;
}

PyObject *
handle_event(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 4 || !is_dispatcher(args[0])) {
        PyErr_SetString(PyExc_TypeError, "handle_event() takes a Dispatcher, a watch, and the handles of its reader and of its writer or None");
        return NULL;
    }
    Dispatcher *d = (Dispatcher *)args[0];
    chain_open();
    int r = run_wanted(args[1], dispatch_names.reader, args[2]);
    if (r == 0)     /* before what the reader has scheduled */
        r = run_wanted(args[1], dispatch_names.writer, args[3]);
    r = run_followers(d, r);
    if (r < 0 && PyErr_ExceptionMatches(stm_Abort))
        return NULL;
    /* The last of its effects: the next event comes after whatever this one has scheduled, and after a stop.  And in the
     * end: what is deferred takes place at once where the transaction goes exclusive, and the kernel would report what
     * has not been read yet a second time. */
    PyObject *raised = PyErr_GetRaisedException();
    if (tx_defer((PyObject *const[]){rearm, args[0], args[1]}, 3) < 0) {
        Py_XDECREF(raised);
        return NULL;
    }
    if (raised != NULL)
        PyErr_SetRaisedException(raised);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- The beginning ----------------------------------------------------------------------------------------------- */

PyObject *
handles_begin(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 8 || !PyType_Check(args[0]) || !PyType_Check(args[1]) || !PyFunction_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "handles_begin() takes two classes, four functions, an instruction and a line");
        return NULL;
    }
    PyTypeObject *handle = (PyTypeObject *)args[0], *timer = (PyTypeObject *)args[1];
    const struct { Py_ssize_t *offset; PyTypeObject *type; const char *name; } all[] = {
        {&at.callback, handle, "_callback"}, {&at.args, handle, "_args"}, {&at.cancelled, handle, "_cancelled"},
        {&at.loop, handle, "_loop"}, {&at.source_traceback, handle, "_source_traceback"}, {&at.repr, handle, "_repr"},
        {&at.context, handle, "_context"}, {&at.when, timer, "_when"}, {&at.scheduled, timer, "_scheduled"},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(all); i++) {
        if ((*all[i].offset = offset_of(all[i].type, all[i].name)) < 0)
            return NULL;
    }
    if (((caller.at = PyLong_AsInt(args[6])) == -1 || (caller.line = PyLong_AsInt(args[7])) == -1) && PyErr_Occurred())
        return NULL;
    caller.function = Py_NewRef(args[5]);
    plain_call_soon = Py_NewRef(args[2]);
    run_slowly = Py_NewRef(args[3]);
    tell = Py_NewRef(args[4]);
    timer_type = (PyTypeObject *)Py_NewRef(timer);
    handle_type = (PyTypeObject *)Py_NewRef(handle);
    Py_RETURN_NONE;
}

int
handles_init(void)
{
    cancelled_name = PyUnicode_InternFromString("_cancelled");
    scheduled_name = PyUnicode_InternFromString("_scheduled");
    rearm = PyObject_GetAttrString((PyObject *)&Dispatcher_Type, "rearm");
    return cancelled_name == NULL || scheduled_name == NULL || rearm == NULL ? -1 : 0;
}
