/* asyncio's Future. */
#include "future.h"

#include "../calls/callbacks.h"
#include "../objects/access.h"
#include "../objects/born.h"
#include "../objects/exception.h"
#include "../objects/instance.h"
#include "../objects/known.h"
#include "handle.h"
#include "task.h"

#include "internal/pycore_genobject.h"

PyTypeObject *stm_future_type, *stm_task_type;
static PyTypeObject *iterator_type;
struct AsyncioNames asyncio;

/* ---- Fields ------------------------------------------------------------------------------------ */

#define FIELDS offsetof(Future, state)
#define REFERENCES offsetof(Future, loop)

static size_t
end_of(PyObject *self)
{
    return is_task(self) ? sizeof(Future) : offsetof(Future, coroutine);
}

static Py_ssize_t
references_of(PyObject *self)
{
    return (end_of(self) - REFERENCES) / sizeof(PyObject *);
}

static PyObject **
first_reference(void *self)
{
    return (PyObject **)((char *)self + REFERENCES);
}

/* ---- Undo ------------------------------------------------------------------------------------------ */

/* `mem` is a copy of all from `state` on, at the same offsets; `n` says how many callbacks there were. */

static int
put_future_back(Tx *tx, Undo *u)
{
    Future *f = (Future *)u->obj;
    char now[sizeof(Future)];
    size_t n = end_of(u->obj) - FIELDS;
    memcpy(now, &f->state, n);
    memcpy(&f->state, u->mem, n);
    memcpy(u->mem, now, n);
    if (f->callbacks != NULL && PyList_GET_SIZE(f->callbacks) > u->n) {
        displace(tx, PyList_GetSlice(f->callbacks, u->n, PyList_GET_SIZE(f->callbacks)));
        if (PyList_SetSlice(f->callbacks, u->n, PyList_GET_SIZE(f->callbacks), NULL) < 0)
            return -1;
    }
    return 0;
}

static void
forget_copy(Undo *u)
{
    PyObject **copy = first_reference((char *)u->mem - FIELDS);
    for (Py_ssize_t i = 0, n = references_of(u->obj); i < n; i++)
        Py_XDECREF(copy[i]);
    PyMem_RawFree(u->mem);
}

static const UndoKind undo_future = {.what = "a future", .undo = put_future_back, .forget = forget_copy};

static int
log_future(Tx *tx, Future *f)
{
    size_t n = end_of((PyObject *)f) - FIELDS;
    void *copy = PyMem_RawMalloc(n);
    Undo *u = copy != NULL ? undo_push(tx, &undo_future, (PyObject *)f, NULL, NULL) : NULL;
    if (u == NULL) {
        PyMem_RawFree(copy);
        PyErr_NoMemory();
        return -1;
    }
    memcpy(copy, &f->state, n);
    u->mem = copy;
    u->n = f->callbacks != NULL ? PyList_GET_SIZE(f->callbacks) : 0;
    PyObject **all = first_reference(f);
    for (Py_ssize_t i = 0, references = references_of((PyObject *)f); i < references; i++)
        Py_XINCREF(all[i]);
    return 0;
}

/* ---- Barriers ---------------------------------------------------------------------------------------- */

static int
read_future(Tx *tx, PyObject *self)
{
    if (quickly_captured(tx, self) || opened(tx, self, OPENED_READ) || captured(tx, self))
        return check_doomed(tx);
    if (lock_shared(tx, cell_of(self, WHOLE)) < 0)
        return -1;
    note_opened(tx, self, OPENED_READ);
    return 0;
}

static int
write_future(Tx *tx, PyObject *self)
{
    if (quickly_captured(tx, self) || opened(tx, self, OPENED_WRITE) || captured(tx, self))
        return check_doomed(tx);
    bool first;
    if (lock_exclusive(tx, cell_of(self, WHOLE), &first) < 0 || (first && log_future(tx, (Future *)self) < 0))
        return -1;
    note_opened(tx, self, OPENED_WRITE);
    note_opened(tx, self, OPENED_READ);
    return 0;
}

int
future_read(Future *f)
{
    return stm_open == NULL ? 0 : read_future(stm_open, (PyObject *)f);
}

int
future_write(Future *f)
{
    return stm_open == NULL ? 0 : write_future(stm_open, (PyObject *)f);
}

/* 1: as of other objects, in its __dict__. */
static int
read_attr(Tx *tx, PyObject *self, PyObject *name)
{
    switch (name_in_c_type(self, name)) {
    case NAME_ABSENT: return 1;
    case NAME_CODE: return check_doomed(tx);
    default: return read_future(tx, self);
    }
}

static int
change_attr(Tx *tx, PyObject *self, PyObject *name, bool Py_UNUSED(del), bool Py_UNUSED(raw))
{
    return name_in_c_type(self, name) == NAME_C_STATE ? write_future(tx, self) : 1;
}

static int
visit(Tx *tx, PyObject *self, Visit Py_UNUSED(visit), void *Py_UNUSED(arg))
{
    return read_future(tx, self);
}

const struct Kind future_kind = {
    .has_attributes = true,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .read_whole = read_future,
    .write_whole = write_future,
    .read_key = open_no_key,
    .visit = visit,
};

/* ---- The life of one --------------------------------------------------------------------------------- */

static PyObject *
future_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyObject *self = type->tp_alloc(type, 0);
    if (self != NULL && stm_open != NULL)
        note_captured(stm_open, self);
    return self;
}

int
future_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    PyObject **all = first_reference(self);
    for (Py_ssize_t i = 0, n = references_of(self); i < n; i++)
        Py_VISIT(all[i]);
    return PyObject_VisitManagedDict(self, visit, arg);
}

int
future_clear(PyObject *self)
{
    PyObject **all = first_reference(self);
    for (Py_ssize_t i = 0, n = references_of(self); i < n; i++)
        Py_CLEAR(all[i]);
    PyObject_ClearManagedDict(self);
    return 0;
}

/* Does it die with something that has to be told?  What an aborted attempt has made has not (born.h). */
static void
future_finalize(PyObject *self)
{
    Future *f = (Future *)self;
    bool unfinished = is_task(self) && f->state == FUTURE_PENDING && f->log_destroy_pending;
    if ((!f->log_traceback && !unfinished) || f->loop == NULL || asyncio.finalizer == NULL || teller_put_off(self))
        return;
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *r = PyObject_CallFunctionObjArgs(asyncio.finalizer, self, PyBool_FromLong(unfinished), NULL);
    if (r == NULL)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(r);
    PyErr_SetRaisedException(raised);
}

void
future_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (is_task(self))
        task_unlist((Future *)self);
    PyObject_ClearWeakRefs(self);
    future_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* As if it had just been made. */
static void
begin_anew(Future *f)
{
    f->state = FUTURE_PENDING;
    f->blocking = f->log_traceback = f->must_cancel = false;
    f->cancels = 0;
    PyObject **all = first_reference(f);
    for (Py_ssize_t i = 0; i < (Py_ssize_t)((offsetof(Future, coroutine) - REFERENCES) / sizeof(PyObject *)); i++)
        Py_CLEAR(all[i]);
}

int
future_setup(Future *f, PyObject *loop)
{
    if (future_write(f) < 0)
        return -1;
    if (loop == Py_None) {
        loop = asyncio.get_event_loop != NULL ? stm_call(asyncio.get_event_loop, NULL, 0, NULL) : NULL;
        if (loop == NULL)
            return -1;
    }
    else
        Py_INCREF(loop);
    begin_anew(f);
    f->loop = loop;
    int debug = loop_is_debugged(loop);
    if (debug > 0 && (f->source_traceback = stack_of_caller()) == NULL)
        return -1;
    return debug < 0 ? -1 : 0;
}

static int
future_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", NULL};
    PyObject *loop = Py_None;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "|$O:Future", names, &loop) ? future_setup((Future *)self, loop) : -1;
}

/* ---- What happens to one ------------------------------------------------------------------------------- */

#define NOT_SET_UP "Future object is not initialized."

static int
check_setup(Future *f)
{
    if (LIKELY(f->loop != NULL))
        return 0;
    PyErr_SetString(PyExc_RuntimeError, NOT_SET_UP);
    return -1;
}

/* It is done, in that way: its callbacks are scheduled, and forgotten.
 *
 * Threads that run no transactions have no business here; should one come by all the same, it finds the future in a state
 * that it has been in, as asyncio's.  What they meet is changed in critical sections therefore. */
static int
ends(Future *f, uint8_t state)
{
    PyObject *callbacks;
    Py_BEGIN_CRITICAL_SECTION(f);
    f->state = state;
    callbacks = f->callbacks;
    f->callbacks = NULL;
    Py_END_CRITICAL_SECTION();
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && callbacks != NULL && i < PyList_GET_SIZE(callbacks); i++) {
        PyObject *pair = PyList_GET_ITEM(callbacks, i);
        r = schedule(f->loop, PyTuple_GET_ITEM(pair, 0), (PyObject *)f, PyTuple_GET_ITEM(pair, 1));
    }
    Py_XDECREF(callbacks);
    return r;
}

static int
check_pending(Future *f)
{
    if (check_setup(f) < 0)
        return -1;
    if (LIKELY(f->state == FUTURE_PENDING))
        return 0;
    PyErr_SetString(asyncio.InvalidStateError, "invalid state");
    return -1;
}

int
future_set_result(Future *f, PyObject *result)
{
    if (future_write(f) < 0 || check_pending(f) < 0)
        return -1;
    f->result = Py_NewRef(result);
    return ends(f, FUTURE_FINISHED);
}

/* What is raised in the place of a StopIteration, which no coroutine can raise. */
static PyObject *
not_a_stop(PyObject *stop)
{
    PyObject *text = PyUnicode_FromString("StopIteration interacts badly with generators and cannot be raised into a Future");
    PyObject *error = text != NULL ? PyObject_CallOneArg(PyExc_RuntimeError, text) : NULL;
    Py_XDECREF(text);
    if (error != NULL) {
        PyException_SetCause(error, Py_NewRef(stop));
        PyException_SetContext(error, Py_NewRef(stop));
    }
    return error;
}

int
future_set_exception(Future *f, PyObject *exception)
{
    if (future_write(f) < 0 || check_pending(f) < 0)
        return -1;
    exception = PyExceptionClass_Check(exception) ? stm_call(exception, NULL, 0, NULL) : Py_NewRef(exception);
    if (exception == NULL)
        return -1;
    if (!PyExceptionInstance_Check(exception)) {
        Py_DECREF(exception);
        PyErr_SetString(PyExc_TypeError, "invalid exception object");
        return -1;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration))
        Py_SETREF(exception, not_a_stop(exception));
    if (exception == NULL)
        return -1;
    /* Once more: the constructor of the class may have ended it. */
    Tx *tx = stm_open;
    if (check_pending(f) < 0 || (tx != NULL && open_attr_read(tx, exception, asyncio.traceback) < 0)) {
        Py_DECREF(exception);
        return -1;
    }
    f->exception = exception;
    f->traceback = PyException_GetTraceback(exception);
    if (ends(f, FUTURE_FINISHED) < 0)
        return -1;
    f->log_traceback = true;
    return tx != NULL && captured(tx, (PyObject *)f) ? note_birth(tx, (PyObject *)f) : 0;
}

int
future_cancel(Future *f, PyObject *message)
{
    if (future_write(f) < 0 || check_setup(f) < 0)
        return -1;
    f->log_traceback = false;
    if (f->state != FUTURE_PENDING)
        return 0;
    Py_XSETREF(f->cancel_message, Py_XNewRef(message));
    return ends(f, FUTURE_CANCELLED) < 0 ? -1 : 1;
}

PyObject *
future_cancelled_error(Future *f)
{
    if (f->cancelled_exception != NULL) {
        PyObject *saved = f->cancelled_exception;
        if (future_write(f) < 0)
            return NULL;
        f->cancelled_exception = NULL;
        return saved;
    }
    return f->cancel_message == NULL || f->cancel_message == Py_None ? PyObject_CallNoArgs(asyncio.CancelledError)
        : PyObject_CallOneArg(asyncio.CancelledError, f->cancel_message);
}

/* Raise it where the caller is: its context is what is being handled there.  Takes the reference. */
static void
raise_here(PyObject *error)
{
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
}

/* Is it done, and was not cancelled?  0, or -1 with what says otherwise. */
static int
check_done(Future *f, const char *otherwise)
{
    if (future_read(f) < 0)
        return -1;
    if (UNLIKELY(f->loop == NULL && f->state == FUTURE_PENDING))
        otherwise = NOT_SET_UP;
    if (f->state == FUTURE_CANCELLED) {
        PyObject *error = future_cancelled_error(f);
        if (error != NULL && stm_open != NULL && open_exception(stm_open, error) < 0)
            Py_CLEAR(error);
        if (error != NULL)
            raise_here(error);
        return -1;
    }
    if (f->state != FUTURE_FINISHED) {
        PyErr_SetString(asyncio.InvalidStateError, otherwise);
        return -1;
    }
    if (f->log_traceback) {
        if (future_write(f) < 0)
            return -1;
        f->log_traceback = false;
    }
    return 0;
}

int
future_outcome(Future *f, PyObject **outcome)
{
    if (check_done(f, "Result is not set.") < 0)
        return -1;
    if (LIKELY(f->exception == NULL)) {
        *outcome = Py_NewRef(f->result);
        return 0;
    }
    if (stm_open != NULL && open_exception(stm_open, f->exception) < 0)
        return -1;
    /* Where it was raised is told once: the frames that the traceback has need not live as long as the future. */
    if (PyException_SetTraceback(f->exception, f->traceback != NULL ? f->traceback : Py_None) < 0
        || (f->traceback != NULL && future_write(f) < 0))
        return -1;
    Py_CLEAR(f->traceback);
    *outcome = Py_NewRef(f->exception);
    return 1;
}

PyObject *
future_result(Future *f)
{
    PyObject *outcome;
    switch (future_outcome(f, &outcome)) {
    case 0:
        return outcome;
    case 1:
        raise_here(outcome);
    }
    return NULL;
}

int
future_add_callback(Future *f, PyObject *function, PyObject *context)
{
    if (future_read(f) < 0 || check_setup(f) < 0)
        return -1;
    context = context != NULL && context != Py_None ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (context == NULL)
        return -1;
    int r = -1;
    if (f->state != FUTURE_PENDING)
        r = schedule(f->loop, function, (PyObject *)f, context);
    else if (future_write(f) == 0) {
        PyObject *pair = PyTuple_Pack(2, function, context);
        Py_BEGIN_CRITICAL_SECTION(f);
        if (f->callbacks == NULL)
            f->callbacks = PyList_New(0);
        r = pair != NULL && f->callbacks != NULL ? PyList_Append(f->callbacks, pair) : -1;
        Py_END_CRITICAL_SECTION();
        Py_XDECREF(pair);
    }
    Py_DECREF(context);
    return r;
}

/* A new reference to the list, or NULL. */
static PyObject *
callbacks_of(Future *f)
{
    PyObject *callbacks;
    Py_BEGIN_CRITICAL_SECTION(f);
    callbacks = Py_XNewRef(f->callbacks);
    Py_END_CRITICAL_SECTION();
    return callbacks;
}

/* ---- Methods --------------------------------------------------------------------------------------------- */

static PyObject *
none_unless(int failed)
{
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
done(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return future_read((Future *)self) < 0 ? NULL : PyBool_FromLong(((Future *)self)->state != FUTURE_PENDING);
}

static PyObject *
cancelled(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return future_read((Future *)self) < 0 ? NULL : PyBool_FromLong(((Future *)self)->state == FUTURE_CANCELLED);
}

static PyObject *
result(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return future_result((Future *)self);
}

static PyObject *
exception(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Future *f = (Future *)self;
    return check_done(f, "Exception is not set.") < 0 ? NULL : Py_NewRef(f->exception != NULL ? f->exception : Py_None);
}

static PyObject *
set_result(PyObject *self, PyObject *value)
{
    return none_unless(future_set_result((Future *)self, value));
}

static PyObject *
set_exception(PyObject *self, PyObject *error)
{
    return none_unless(future_set_exception((Future *)self, error));
}

static PyObject *
add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *context = NULL;
    bool usual = n == 1 && (kwnames == NULL || (PyTuple_GET_SIZE(kwnames) == 1
                                                && PyUnicode_Equal(PyTuple_GET_ITEM(kwnames, 0), asyncio.context)));
    if (!usual) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes one function, and context=...");
        return NULL;
    }
    if (kwnames != NULL)
        context = args[1];
    return none_unless(future_add_callback((Future *)self, args[0], context));
}

/* Comparing these, or instances of Python classes, looks at nothing that a transaction can change but by Python code. */
static bool
compares_callables(PyObject *a)
{
    return PyFunction_Check(a) || PyMethod_Check(a) || PyCFunction_Check(a) || Py_TYPE(a)->tp_richcompare == PyBaseObject_Type.tp_richcompare
        || is_python_class(Py_TYPE(a));
}

static PyObject *
remove_done_callback(PyObject *self, PyObject *function)
{
    Future *f = (Future *)self;
    if (future_read(f) < 0 || check_setup(f) < 0)
        return NULL;
    PyObject *before = callbacks_of(f), *kept = PyList_New(0);
    Py_ssize_t removed = kept != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; removed >= 0 && before != NULL && i < PyList_GET_SIZE(before); i++) {
        PyObject *pair = PyList_GetItemRef(before, i);
        if (pair == NULL) {
            PyErr_Clear();
            break;
        }
        PyObject *each = PyTuple_GET_ITEM(pair, 0);
        if (stm_open != NULL && !(compares_callables(each) && compares_callables(function))
            && exclusive_for(stm_open, "a comparison of callbacks", each) < 0)
            removed = -1;
        int same = removed < 0 ? -1 : PyObject_RichCompareBool(each, function, Py_EQ);
        if (same == 0)
            same = PyList_Append(kept, pair);
        removed = same < 0 ? -1 : removed + same;
        Py_DECREF(pair);
    }
    if (removed > 0 && future_write(f) < 0)
        removed = -1;
    if (removed > 0) {
        Py_BEGIN_CRITICAL_SECTION(f);
        if (f->callbacks == before) {   /* a comparison in Python may have ended it, or added another one */
            f->callbacks = PyList_GET_SIZE(kept) > 0 ? Py_NewRef(kept) : NULL;
            Py_DECREF(before);
        }
        Py_END_CRITICAL_SECTION();
    }
    Py_XDECREF(kept);
    Py_XDECREF(before);
    return removed < 0 ? NULL : PyLong_FromSsize_t(removed);
}

/* cancel(msg=None), of a task, too: the message, borrowed, or NULL with TypeError. */
PyObject *
message_of_cancel(PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t named = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    if (n + named > 1 || (named == 1 && !PyUnicode_Equal(PyTuple_GET_ITEM(kwnames, 0), asyncio.msg))) {
        PyErr_SetString(PyExc_TypeError, "cancel() takes msg, and nothing else");
        return NULL;
    }
    return n + named > 0 ? args[0] : Py_None;
}

static PyObject *
cancel(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *message = message_of_cancel(args, n, kwnames);
    int r = message != NULL ? future_cancel((Future *)self, message) : -1;
    return r < 0 ? NULL : PyBool_FromLong(r);
}

static PyObject *
get_loop(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Future *f = (Future *)self;
    return future_read(f) < 0 || check_setup(f) < 0 ? NULL : Py_NewRef(f->loop);
}

static PyObject *
make_cancelled_error(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return future_read((Future *)self) < 0 ? NULL : future_cancelled_error((Future *)self);
}

static PyMethodDef methods[] = {
    {"done", done, METH_NOARGS, PyDoc_STR("done($self, /)\n--\n\nIs there a result or an exception, or was it cancelled?")},
    {"cancelled", cancelled, METH_NOARGS, PyDoc_STR("cancelled($self, /)\n--\n\nWas it cancelled?")},
    {"result", result, METH_NOARGS,
     PyDoc_STR("result($self, /)\n--\n\nThe result.  Raises the exception that was set, CancelledError, or InvalidStateError while there is"
               " none.")},
    {"exception", exception, METH_NOARGS,
     PyDoc_STR("exception($self, /)\n--\n\nThe exception that was set, or None.  Raises CancelledError, or InvalidStateError if it is not"
               " done.")},
    {"set_result", set_result, METH_O,
     PyDoc_STR("set_result($self, result, /)\n--\n\nIt is done; its callbacks are scheduled.  Raises InvalidStateError if it was.")},
    {"set_exception", set_exception, METH_O,
     PyDoc_STR("set_exception($self, exception, /)\n--\n\nThe same with an exception, or a class of such.")},
    {"add_done_callback", _PyCFunction_CAST(add_done_callback), METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("add_done_callback($self, fn, /, *, context=<unrepresentable>)\n--\n\nLet the loop call fn(future) when it is done.")},
    {"remove_done_callback", remove_done_callback, METH_O,
     PyDoc_STR("remove_done_callback($self, fn, /)\n--\n\nForget all callbacks equal to this; returns how many there were.")},
    {"cancel", _PyCFunction_CAST(cancel), METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("cancel($self, /, msg=None)\n--\n\nCancel it, and schedule its callbacks; False if it was done.")},
    {"get_loop", get_loop, METH_NOARGS, PyDoc_STR("get_loop($self, /)\n--\n\nThe event loop that it is bound to.")},
    {"_make_cancelled_error", make_cancelled_error, METH_NOARGS,
     PyDoc_STR("_make_cancelled_error($self, /)\n--\n\nWhat is raised for it, which then forgets why it was cancelled.")},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, PyDoc_STR("See PEP 585.")},
    {NULL, NULL, 0, NULL},
};

/* ---- Attributes: reading one has a barrier of its own (future_kind) ----------------------------------------- */

static PyObject *
get_state(PyObject *self, void *Py_UNUSED(closure))
{
    static const char *const names[] = {[FUTURE_PENDING] = "PENDING", [FUTURE_CANCELLED] = "CANCELLED", [FUTURE_FINISHED] = "FINISHED"};
    if (((Future *)self)->state == FUTURE_PENDING && check_setup((Future *)self) < 0)
        return NULL;
    return PyUnicode_InternFromString(names[((Future *)self)->state]);
}

static PyObject *
get_blocking(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Future *)self)->blocking);
}

/* Is it true, as which it is to be set?  -1 with an exception, as for one that is to be deleted. */
int
truth_to_set(PyObject *value)
{
    if (value != NULL)
        return PyObject_IsTrue(value);
    PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
    return -1;
}

static int
set_blocking(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int is = truth_to_set(value);
    if (is >= 0)
        ((Future *)self)->blocking = is;
    return is < 0 ? -1 : 0;
}

static PyObject *
get_log_traceback(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Future *)self)->log_traceback);
}

static int
set_log_traceback(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int is = truth_to_set(value);
    if (is > 0)
        PyErr_SetString(PyExc_ValueError, "_log_traceback can only be set to False");
    else if (is == 0)
        ((Future *)self)->log_traceback = false;
    return is != 0 ? -1 : 0;
}

static PyObject *
get_callbacks(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *callbacks = callbacks_of((Future *)self);
    PyObject *copy = callbacks != NULL ? PyList_GetSlice(callbacks, 0, PyList_GET_SIZE(callbacks)) : Py_NewRef(Py_None);
    Py_XDECREF(callbacks);
    return copy;
}

static PyObject *
get_awaited_by(PyObject *self, void *Py_UNUSED(closure))
{
    Future *f = (Future *)self;
    if (f->awaited_by == NULL)
        Py_RETURN_NONE;
    if (PyAnySet_CheckExact(f->awaited_by))
        return PyFrozenSet_New(f->awaited_by);
    PyObject *one = PyFrozenSet_New(NULL);
    if (one != NULL && PySet_Add(one, f->awaited_by) < 0)
        Py_CLEAR(one);
    return one;
}

static int
set_cancel_message(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
        return -1;
    }
    Py_XSETREF(((Future *)self)->cancel_message, Py_NewRef(value));
    return 0;
}

static PyObject *
get_cancel_message(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *message = ((Future *)self)->cancel_message;
    return Py_NewRef(message != NULL ? message : Py_None);
}

static PyGetSetDef attributes[] = {
    {"_state", get_state, NULL, PyDoc_STR("PENDING, CANCELLED or FINISHED"), NULL},
    {"_asyncio_future_blocking", get_blocking, set_blocking, PyDoc_STR("has who awaits it been given it just now?"), NULL},
    {"_log_traceback", get_log_traceback, set_log_traceback, PyDoc_STR("has nobody asked for the exception?"), NULL},
    {"_callbacks", get_callbacks, NULL, PyDoc_STR("a list of pairs (function, context), or None"), NULL},
    {"_asyncio_awaited_by", get_awaited_by, NULL, PyDoc_STR("a frozenset of the tasks that await it, or None"), NULL},
    {"_cancel_message", get_cancel_message, set_cancel_message, PyDoc_STR("what it was cancelled with, or None"), NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"_loop", _Py_T_OBJECT, offsetof(Future, loop), Py_READONLY, NULL},
    {"_result", _Py_T_OBJECT, offsetof(Future, result), Py_READONLY, NULL},
    {"_exception", _Py_T_OBJECT, offsetof(Future, exception), Py_READONLY, NULL},
    {"_source_traceback", _Py_T_OBJECT, offsetof(Future, source_traceback), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- Awaiting --------------------------------------------------------------------------------------------------- */

/* What `await` steps through.  Its state is the future's. */
typedef struct { PyObject_HEAD Future *future; } Iterator;

static PySendResult
step(PyObject *self, PyObject *Py_UNUSED(sent), PyObject **given)
{
    Future *f = ((Iterator *)self)->future;
    *given = NULL;
    if (future_read(f) < 0)
        return PYGEN_ERROR;
    if (f->state != FUTURE_PENDING) {
        *given = future_result(f);
        return *given != NULL ? PYGEN_RETURN : PYGEN_ERROR;
    }
    if (f->blocking) {
        PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
        return PYGEN_ERROR;
    }
    if (future_write(f) < 0)
        return PYGEN_ERROR;
    f->blocking = true;
    *given = Py_NewRef((PyObject *)f);
    return PYGEN_NEXT;
}

static PyObject *
next(PyObject *self)
{
    PyObject *given;
    if (step(self, Py_None, &given) == PYGEN_RETURN) {
        _PyGen_SetStopIterationValue(given);
        Py_CLEAR(given);
    }
    return given;
}

static PyObject *
send(PyObject *self, PyObject *Py_UNUSED(value))
{
    PyObject *given = next(self);
    if (given == NULL && !PyErr_Occurred())
        PyErr_SetNone(PyExc_StopIteration);
    return given;
}

/* throw(exception), or as before Python 3.12: raises that. */
static PyObject *
throw_in(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n)
{
    if (n < 1 || n > 3) {
        PyErr_SetString(PyExc_TypeError, "throw() takes an exception");
        return NULL;
    }
    PyObject *type = args[0], *value = n > 1 && args[1] != Py_None ? args[1] : NULL;
    PyObject *traceback = n > 2 && args[2] != Py_None ? args[2] : NULL;
    if (n > 1 && PyErr_WarnEx(PyExc_DeprecationWarning, "the (type, exc, tb) signature of throw() is deprecated, use the single-arg"
                              " signature instead.", 1) < 0)
        return NULL;
    if (traceback != NULL && !PyTraceBack_Check(traceback)) {
        PyErr_SetString(PyExc_TypeError, "throw() third argument must be a traceback");
        return NULL;
    }
    if (PyExceptionInstance_Check(type) && value == NULL) {
        if (stm_open != NULL && open_exception(stm_open, type) < 0)
            return NULL;
        if (traceback == NULL || PyException_SetTraceback(type, traceback) == 0)
            PyErr_SetRaisedException(Py_NewRef(type));
        return NULL;
    }
    if (!PyExceptionClass_Check(type)) {
        PyErr_SetString(PyExc_TypeError, PyExceptionInstance_Check(type) ? "instance exception may not have a separate value"
                        : "exceptions must be classes deriving BaseException or instances of such a class");
        return NULL;
    }
    PyErr_SetObject(type, value);
    if (traceback != NULL) {
        PyObject *raised = PyErr_GetRaisedException();
        PyException_SetTraceback(raised, traceback);
        PyErr_SetRaisedException(raised);
    }
    return NULL;
}

static PyObject *
close_it(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Py_RETURN_NONE;
}

static int
iterator_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((Iterator *)self)->future);
    return 0;
}

static int
iterator_clear(PyObject *self)
{
    Py_CLEAR(((Iterator *)self)->future);
    return 0;
}

static void
iterator_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    iterator_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef iterator_methods[] = {
    {"send", send, METH_O, PyDoc_STR("send($self, value, /)\n--\n\nThe future, while it is not done.")},
    {"throw", _PyCFunction_CAST(throw_in), METH_FASTCALL, PyDoc_STR("throw($self, exception, /)\n--\n\nRaises it.")},
    {"close", close_it, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nDoes nothing.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot iterator_slots[] = {
    {Py_tp_doc, PyDoc_STR("What awaiting a future steps through.")},
    {Py_tp_traverse, iterator_traverse},
    {Py_tp_clear, iterator_clear},
    {Py_tp_dealloc, iterator_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, next},
    {Py_am_send, step},
    {Py_tp_methods, iterator_methods},
    {0, NULL},
};

static PyType_Spec iterator_spec = {
    .name = "tornado.stm._engine.FutureIter",
    .basicsize = sizeof(Iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};

static PyObject *
await(PyObject *self)
{
    if (future_read((Future *)self) < 0 || check_setup((Future *)self) < 0)
        return NULL;
    Iterator *it = PyObject_GC_New(Iterator, iterator_type);
    if (it == NULL)
        return NULL;
    it->future = (Future *)Py_NewRef(self);
    PyObject_GC_Track(it);
    return (PyObject *)it;
}

/* ---- Who awaits it ------------------------------------------------------------------------------------------------- */

/* The set is changed in place, as there may be many: entries of the undo log have the same one. */
static int
log_awaiting(Future *f, PyObject *task, bool there)
{
    Tx *tx = stm_open;
    if (tx == NULL || captured(tx, (PyObject *)f))
        return 0;
    return log_element(tx, f->awaited_by, task, PyObject_Hash(task), there);
}

int
future_awaited_by(Future *f, PyObject *task)
{
    if (future_write(f) < 0)
        return -1;
    if (f->awaited_by == NULL || f->awaited_by == task) {
        Py_XSETREF(f->awaited_by, Py_NewRef(task));
        return 0;
    }
    if (!PyAnySet_CheckExact(f->awaited_by)) {
        PyObject *all = PySet_New(NULL);
        if (all == NULL || PySet_Add(all, f->awaited_by) < 0) {
            Py_XDECREF(all);
            return -1;
        }
        Py_SETREF(f->awaited_by, all);
    }
    int there = PySet_Contains(f->awaited_by, task);
    return there != 0 ? there < 0 ? -1 : 0 : log_awaiting(f, task, false) < 0 ? -1 : PySet_Add(f->awaited_by, task);
}

int
future_not_awaited_by(Future *f, PyObject *task)
{
    if (future_read(f) < 0)
        return -1;
    if (f->awaited_by == NULL)
        return 0;
    if (future_write(f) < 0)
        return -1;
    if (f->awaited_by == task) {
        Py_CLEAR(f->awaited_by);
        return 0;
    }
    int there = PyAnySet_CheckExact(f->awaited_by) ? PySet_Contains(f->awaited_by, task) : 0;
    if (there <= 0)
        return there;
    return log_awaiting(f, task, true) < 0 || PySet_Discard(f->awaited_by, task) < 0 ? -1 : 0;
}

static PyObject *
two_futures(PyObject *const *args, Py_ssize_t n, int (*change)(Future *, PyObject *))
{
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "a future and who awaits it are needed");
        return NULL;
    }
    return none_unless(is_future(args[0]) && is_future(args[1]) ? change((Future *)args[0], args[1]) : 0);
}

PyObject *
future_add_to_awaited_by(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return two_futures(args, n, future_awaited_by);
}

PyObject *
future_discard_from_awaited_by(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return two_futures(args, n, future_not_awaited_by);
}

/* ---- The type ---------------------------------------------------------------------------------------------------------- */

static PyType_Slot slots[] = {
    {Py_tp_doc, PyDoc_STR("Future(*, loop=<unrepresentable>)\n--\n\nasyncio's Future, whose state is rolled back with the transaction that"
                          " has changed it.")},
    {Py_tp_new, future_new},
    {Py_tp_init, future_init},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_finalize, future_finalize},
    {Py_tp_traverse, future_traverse},
    {Py_tp_clear, future_clear},
    {Py_tp_iter, await},
    {Py_am_await, await},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, attributes},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tornado.stm._engine.Future",
    .basicsize = offsetof(Future, coroutine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_MANAGED_DICT | Py_TPFLAGS_MANAGED_WEAKREF,
    .slots = slots,
};

int
futures_init(PyObject *module)
{
    stm_future_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    iterator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &iterator_spec, NULL);
    if (stm_future_type == NULL || iterator_type == NULL || PyModule_AddType(module, stm_future_type) < 0
        || PyModule_AddType(module, iterator_type) < 0)
        return -1;
    return tasks_init(module);
}

PyObject *
futures_begin(PyObject *Py_UNUSED(module), PyObject *finalizer)
{
    static const struct { PyObject **object; const char *module, *name; } all[] = {
        {&asyncio.CancelledError, "asyncio.exceptions", "CancelledError"},
        {&asyncio.InvalidStateError, "asyncio.exceptions", "InvalidStateError"},
        {&asyncio.iscoroutine, "asyncio.coroutines", "iscoroutine"},
        {&asyncio.get_event_loop, "asyncio.events", "get_event_loop"},
        {&asyncio.extract_stack, "asyncio.format_helpers", "extract_stack"},
        {&asyncio.enter_task, "_asyncio", "_enter_task"},
        {&asyncio.leave_task, "_asyncio", "_leave_task"},
    };
    static const struct { PyObject **name; const char *is; } names[] = {
        {&asyncio.call_soon, "call_soon"}, {&asyncio.get_debug, "get_debug"}, {&asyncio.context, "context"},
        {&asyncio.blocking, "_asyncio_future_blocking"}, {&asyncio.send, "send"}, {&asyncio.throw, "throw"},
        {&asyncio.cancel, "cancel"}, {&asyncio.add_done_callback, "add_done_callback"}, {&asyncio.get_loop, "get_loop"},
        {&asyncio.loop, "_loop"}, {&asyncio.is_running, "is_running"}, {&asyncio.msg, "msg"}, {&asyncio.traceback, "__traceback__"},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(all); i++) {
        PyObject *object = PyImport_ImportModuleAttrString(all[i].module, all[i].name);
        if (object == NULL)
            return NULL;
        Py_XSETREF(*all[i].object, object);
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].is)) == NULL)
            return NULL;
    }
    Py_XSETREF(asyncio.finalizer, Py_NewRef(finalizer));
    Py_RETURN_NONE;
}
