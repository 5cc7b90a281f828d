/* asyncio's Task. */
#include "task.h"

#include "../calls/callbacks.h"
#include "../core/latch.h"
#include "../objects/access.h"
#include "../objects/born.h"
#include "../objects/deep.h"
#include "../objects/exception.h"
#include "../objects/generator.h"
#include "../objects/known.h"
#include "handle.h"
#include "sites.h"

static PyObject *start_eagerly;
static _Atomic uint64_t made;       /* so many tasks: they are named by it */

/* ---- All tasks -------------------------------------------------------------------------------------
 * Lists, so that threads which make tasks seldom meet.  A task is in one of them from its making to its death. */

#define LISTS 64
static struct { Latch lock; Future *first; char pad[64 - sizeof(Latch) - sizeof(Future *)]; } lists[LISTS];

static int
list_of(Future *t)
{
    return (int)(((uintptr_t)t >> 12 ^ (uintptr_t)t >> 20) % LISTS);
}

static void
enlist(Future *t)
{
    int i = list_of(t);
    latch_take(&lists[i].lock);
    if (t->link == NULL) {
        t->next = lists[i].first;
        t->link = &lists[i].first;
        if (t->next != NULL)
            t->next->link = &t->next;
        lists[i].first = t;
    }
    latch_give(&lists[i].lock);
}

void
task_unlist(Future *t)
{
    int i = list_of(t);
    latch_take(&lists[i].lock);
    if (t->link != NULL) {
        *t->link = t->next;
        if (t->next != NULL)
            t->next->link = t->link;
        t->link = NULL;
    }
    latch_give(&lists[i].lock);
}

/* In the child of a fork: no other thread has a lock any more. */
void
tasks_in_child(void)
{
    for (int i = 0; i < LISTS; i++)
        lists[i].lock = (Latch){0};
}

PyObject *
tasks_all(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *all = PyList_New(0), *last = NULL;
    for (int i = 0; all != NULL && i < LISTS; i++) {
        latch_take(&lists[i].lock);
        for (Future *t = lists[i].first; all != NULL && t != NULL; t = t->next) {
            /* One that is dying, or that an aborted attempt has made, is none. */
            if (t->state != FUTURE_PENDING || t->loop == NULL || _PyGC_FINALIZED((PyObject *)t) || !PyUnstable_TryIncRef((PyObject *)t))
                continue;
            if (PyList_Append(all, (PyObject *)t) < 0) {
                last = (PyObject *)t;   /* it must not die under the lock, nor those in the list */
                break;
            }
            Py_DECREF(t);
        }
        latch_give(&lists[i].lock);
        if (last != NULL)
            Py_CLEAR(all);
    }
    Py_XDECREF(last);
    return all;
}

/* ---- What the loop is given to call ------------------------------------------------------------------- */

static int step(Future *t, PyObject *exception);
static int wake_up(Future *t, PyObject *future);

static PyObject *
call_step(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return step((Future *)self, n > 0 ? args[0] : NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
call_wake_up(PyObject *self, PyObject *future)
{
    return wake_up((Future *)self, future) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef step_def = {"TaskStepMethWrapper", _PyCFunction_CAST(call_step), METH_FASTCALL, PyDoc_STR("The next step of a task.")};
static PyMethodDef wake_up_def = {"task_wakeup", call_wake_up, METH_O,
                                  PyDoc_STR("The next step of a task, since what it waits for is done.")};

Future *
task_of_callback(PyObject *callback)
{
    if (!PyCFunction_CheckExact(callback))
        return NULL;
    PyMethodDef *method = ((PyCFunctionObject *)callback)->m_ml;
    return method == &step_def || method == &wake_up_def ? (Future *)PyCFunction_GET_SELF(callback) : NULL;
}

/* The next step comes, with that exception or NULL. */
static int
schedule_step(Future *t, PyObject *exception)
{
    PyObject *callback = PyCFunction_New(&step_def, (PyObject *)t);
    int r = callback != NULL ? schedule(t->loop, callback, exception, t->context) : -1;
    Py_XDECREF(callback);
    return r;
}

static int
schedule_error(Future *t, PyObject *text)
{
    PyObject *error = text != NULL ? PyObject_CallOneArg(PyExc_RuntimeError, text) : NULL;
    int r = error != NULL ? schedule_step(t, error) : -1;
    Py_XDECREF(error);
    Py_XDECREF(text);
    return r;
}

/* ---- A step ---------------------------------------------------------------------------------------------- */

static int
is_abort(void)
{
    return stm_Abort != NULL && PyErr_ExceptionMatches(stm_Abort);
}

/* What an object says under that name; NULL without an exception if nothing. */
static int
look_up(PyObject *o, PyObject *name, PyObject **value)
{
    *value = NULL;
    if (stm_open != NULL && open_attr_read(stm_open, o, name) < 0)
        return -1;
    return PyObject_GetOptionalAttr(o, name, value);
}

/* o.name(argument), as code of the program would call it. */
static PyObject *
call_method(PyObject *o, PyObject *name, PyObject *argument)
{
    PyObject *method;
    if (look_up(o, name, &method) < 0)
        return NULL;
    if (method == NULL)
        return PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute %R", Py_TYPE(o)->tp_name, name);
    PyObject *args[1] = {argument}, *r = stm_call(method, args, argument != NULL, NULL);
    Py_DECREF(method);
    return r;
}

/* The coroutine runs up to where it waits next: what it has given, or returned. */
static PySendResult
resume(Future *t, PyObject *exception, PyObject **given)
{
    PyObject *coroutine = Py_NewRef(t->coroutine);
    bool native = PyCoro_CheckExact(coroutine) || PyGen_CheckExact(coroutine);
    Tx *tx = stm_open;
    PySendResult result = PYGEN_ERROR;
    *given = NULL;
    if (tx != NULL && ((native && (exception == NULL ? open_generator : open_generator_throw)(tx, coroutine) < 0)
                       || (exception != NULL && PyExceptionInstance_Check(exception) && open_exception(tx, exception) < 0)))
        goto out;
    if (exception == NULL && native)
        result = PyIter_Send(coroutine, Py_None, given);
    else {
        if (exception == NULL)
            *given = call_method(coroutine, asyncio.send, Py_None);
        else if (native)
            *given = PyObject_CallMethodOneArg(coroutine, asyncio.throw, exception);
        else
            *given = call_method(coroutine, asyncio.throw, exception);
        if (*given != NULL)
            result = PYGEN_NEXT;
        else if (_PyGen_FetchStopIterationValue(given) == 0)
            result = PYGEN_RETURN;
    }
out:
    Py_DECREF(coroutine);
    return result;
}

/* It has ended with an exception, which is set. */
static int
ended(Future *t)
{
    if (is_abort())
        return -1;
    if (PyErr_ExceptionMatches(asyncio.CancelledError)) {
        PyObject *error = PyErr_GetRaisedException();
        if (future_write(t) < 0) {
            Py_DECREF(error);
            return -1;
        }
        Py_XSETREF(t->cancelled_exception, error);
        return future_cancel(t, NULL) < 0 ? -1 : 0;
    }
    PyObject *error = PyErr_GetRaisedException();
    int r = future_set_exception(t, error);
    bool leaves = PyErr_GivenExceptionMatches(error, PyExc_KeyboardInterrupt) || PyErr_GivenExceptionMatches(error, PyExc_SystemExit);
    if (r == 0 && leaves) {
        PyErr_SetRaisedException(error);
        return -1;
    }
    Py_DECREF(error);
    return r;
}

static int
returned(Future *t, PyObject *value)
{
    if (future_write(t) < 0)
        return -1;
    if (t->must_cancel) {
        /* It has been asked to just before its end. */
        t->must_cancel = false;
        PyObject *message = Py_XNewRef(t->cancel_message);
        int r = future_cancel(t, message);
        Py_XDECREF(message);
        return r < 0 ? -1 : 0;
    }
    return future_set_result(t, value);
}

/* Is it a future or a task, of no derived class? */
static bool
is_own(PyObject *o)
{
    return Py_IS_TYPE(o, stm_future_type) || Py_IS_TYPE(o, stm_task_type);
}

/* It waits for a future of ours. */
static int
waits_for_future(Future *t, Future *f)
{
    if (f->loop != t->loop)
        return schedule_error(t, PyUnicode_FromFormat("Task %R got Future %R attached to a different loop", t, f));
    if (!f->blocking)
        return schedule_error(t, PyUnicode_FromFormat("yield was used instead of yield from in task %R with %R", t, f));
    if (f == t)
        return schedule_error(t, PyUnicode_FromFormat("Task cannot await on itself: %R", t));
    if (future_write(f) < 0 || future_write(t) < 0 || future_awaited_by(f, (PyObject *)t) < 0)
        return -1;
    f->blocking = false;
    PyObject *callback = PyCFunction_New(&wake_up_def, (PyObject *)t);
    int r = callback != NULL ? future_add_callback(f, callback, t->context) : -1;
    Py_XDECREF(callback);
    if (r < 0)
        return -1;
    Py_XSETREF(t->waits_for, Py_NewRef((PyObject *)f));
    return 0;
}

/* It waits for something else that says it is a future. */
static int
waits_for_other(Future *t, PyObject *f, PyObject *blocking)
{
    PyObject *loop = NULL, *method;
    if (look_up(f, asyncio.get_loop, &method) < 0)
        return -1;
    if (method != NULL) {
        loop = stm_call(method, NULL, 0, NULL);
        Py_DECREF(method);
    }
    else if (look_up(f, asyncio.loop, &loop) == 0)
        PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '_loop'", Py_TYPE(f)->tp_name);
    if (loop == NULL)
        return -1;
    Py_DECREF(loop);
    int is = PyObject_IsTrue(blocking);
    if (is < 0)
        return -1;
    if (loop != t->loop)
        return schedule_error(t, PyUnicode_FromFormat("Task %R got Future %R attached to a different loop", t, f));
    if (!is)
        return schedule_error(t, PyUnicode_FromFormat("yield was used instead of yield from in task %R with %R", t, f));
    if (future_write(t) < 0 || (is_future(f) && future_awaited_by((Future *)f, (PyObject *)t) < 0)
        || (stm_open != NULL && open_attr_write(stm_open, f, asyncio.blocking, false) < 0)
        || PyObject_SetAttr(f, asyncio.blocking, Py_False) < 0 || look_up(f, asyncio.add_done_callback, &method) < 0)
        return -1;
    PyObject *callback = PyCFunction_New(&wake_up_def, (PyObject *)t), *names = PyTuple_Pack(1, asyncio.context), *r = NULL;
    if (method == NULL)
        PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute 'add_done_callback'", Py_TYPE(f)->tp_name);
    else if (callback != NULL && names != NULL)
        r = stm_call(method, (PyObject *[]){callback, t->context}, 1, names);
    Py_XDECREF(names);
    Py_XDECREF(callback);
    Py_XDECREF(method);
    if (r == NULL)
        return -1;
    Py_DECREF(r);
    Py_XSETREF(t->waits_for, Py_NewRef(f));
    return 0;
}

/* Have what it waits for cancelled: 1 if that was possible. */
static int
cancel_what_it_waits_for(Future *t, PyObject *message)
{
    PyObject *f = Py_NewRef(t->waits_for);
    int r;
    if (Py_IS_TYPE(f, stm_future_type))
        r = future_cancel((Future *)f, message);
    else {
        PyObject *method = NULL, *names = PyTuple_Pack(1, asyncio.msg), *done = NULL;
        int found = names != NULL ? look_up(f, asyncio.cancel, &method) : -1;
        if (found > 0)
            done = stm_call(method, (PyObject *[]){message}, 0, names);
        else if (found == 0)
            PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute 'cancel'", Py_TYPE(f)->tp_name);
        Py_XDECREF(method);
        r = done != NULL ? PyObject_IsTrue(done) : -1;
        Py_XDECREF(names);
        Py_XDECREF(done);
    }
    Py_DECREF(f);
    return r;
}

/* The coroutine has given this and waits. */
static int
gave(Future *t, PyObject *given)
{
    PyObject *blocking = NULL;
    int r;
    if (given == Py_None)
        return schedule_step(t, NULL);
    bool ours = is_own(given);
    if (!ours && look_up(given, asyncio.blocking, &blocking) < 0)
        return -1;
    if (ours)
        r = future_read((Future *)given) < 0 ? -1 : waits_for_future(t, (Future *)given);
    else if (blocking != NULL && blocking != Py_None) {
        r = given == (PyObject *)t ? schedule_error(t, PyUnicode_FromFormat("Task cannot await on itself: %R", t))
            : waits_for_other(t, given, blocking);
        Py_DECREF(blocking);
    }
    else {
        Py_XDECREF(blocking);
        return schedule_error(t, PyGen_CheckExact(given)
                              ? PyUnicode_FromFormat("yield was used instead of yield from for generator in task %R with %R", t, given)
                              : PyUnicode_FromFormat("Task got bad yield: %R", given));
    }
    if (r == 0 && t->must_cancel && t->waits_for == given) {
        PyObject *message = Py_NewRef(t->cancel_message != NULL ? t->cancel_message : Py_None);
        int is = cancel_what_it_waits_for(t, message);
        Py_DECREF(message);
        if (is > 0)
            t->must_cancel = false;
        return is < 0 ? -1 : 0;
    }
    return r;
}

/* Run it up to where it waits next, and see what has come of it. */
static int
run_and_look(Future *t, PyObject *exception)
{
    PyObject *given;
    switch (resume(t, exception, &given)) {
    case PYGEN_RETURN: {
        int r = returned(t, given);
        Py_DECREF(given);
        return r;
    }
    case PYGEN_NEXT: {
        atomic_store_explicit(&t->waits_at, place_of_wait(t->coroutine), memory_order_relaxed);
        int r = future_write(t) < 0 ? -1 : gave(t, given);
        Py_DECREF(given);
        return r;
    }
    default:
        return ended(t);
    }
}

static int
step(Future *t, PyObject *exception)
{
    if (future_write(t) < 0)
        return -1;
    if (t->state != FUTURE_PENDING) {
        PyErr_Format(asyncio.InvalidStateError, "__step(): already done: %R %R", t, exception != NULL ? exception : Py_None);
        return -1;
    }
    PyObject *thrown = NULL;
    if (t->must_cancel) {
        bool is = exception != NULL && PyErr_GivenExceptionMatches(exception, asyncio.CancelledError);
        thrown = is ? Py_NewRef(exception) : future_cancelled_error(t);
        if (thrown == NULL)
            return -1;
        t->must_cancel = false;
    }
    else if (exception != NULL && exception != Py_None)
        thrown = Py_NewRef(exception);
    Py_CLEAR(t->waits_for);
    PyObject *which[] = {t->loop, (PyObject *)t}, *entered = PyObject_Vectorcall(asyncio.enter_task, which, 2, NULL);
    int r = -1;
    if (entered != NULL) {
        Py_INCREF(t);
        r = run_and_look(t, thrown);
        PyObject *raised = PyErr_GetRaisedException();
        PyObject *left = PyObject_Vectorcall(asyncio.leave_task, which, 2, NULL);
        if (left == NULL)
            r = -1;
        Py_XDECREF(left);
        if (raised != NULL)
            PyErr_SetRaisedException(raised);
        Py_DECREF(t);
    }
    Py_XDECREF(entered);
    Py_XDECREF(thrown);
    return r;
}

PyObject *
task_eager_step(PyObject *Py_UNUSED(module), PyObject *task)
{
    Future *t = (Future *)task;
    if (future_write(t) < 0)
        return NULL;
    return run_and_look(t, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

/* What it waits for is done. */
static int
wake_up(Future *t, PyObject *f)
{
    PyObject *outcome = NULL;
    int how;
    if (is_future(f) && future_not_awaited_by((Future *)f, (PyObject *)t) < 0)
        return -1;
    if (is_own(f))
        how = future_outcome((Future *)f, &outcome);
    else {      /* also a derived class may have a method of its own */
        static PyObject *result;
        if (result == NULL)
            result = PyUnicode_InternFromString("result");
        outcome = call_method(f, result, NULL);
        how = outcome != NULL ? 0 : -1;
    }
    if (how < 0) {
        if (is_abort())
            return -1;
        outcome = PyErr_GetRaisedException();
    }
    int r = step(t, how == 0 ? NULL : outcome);
    Py_DECREF(outcome);
    return r;
}

/* ---- The life of one ---------------------------------------------------------------------------------------- */

static int
name_it(Future *t, PyObject *name)
{
    if (name != Py_None && stm_open != NULL && open_deep_read(stm_open, name) < 0)
        return -1;
    PyObject *text = name != Py_None ? PyObject_Str(name)
        : PyLong_FromUnsignedLongLong(atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1);
    if (text == NULL)
        return -1;
    Py_XSETREF(t->name, text);
    return 0;
}

static int
check_coroutine(PyObject *coroutine)
{
    if (PyCoro_CheckExact(coroutine))
        return 1;
    PyObject *is = stm_call(asyncio.iscoroutine, &coroutine, 1, NULL);
    int yes = is != NULL ? PyObject_IsTrue(is) : -1;
    Py_XDECREF(is);
    return yes;
}

static int
task_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"coro", "loop", "name", "context", "eager_start", NULL};
    PyObject *coroutine, *loop = Py_None, *name = Py_None, *context = Py_None;
    int eager = 0;
    Future *t = (Future *)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOp:Task", names, &coroutine, &loop, &name, &context, &eager)
        || future_setup(t, loop) < 0)
        return -1;
    t->log_destroy_pending = false;
    int is = check_coroutine(coroutine);
    if (is <= 0) {
        if (is == 0)
            PyErr_Format(PyExc_TypeError, "a coroutine was expected, got %R", coroutine);
        return -1;
    }
    Py_XSETREF(t->context, context != Py_None ? Py_NewRef(context) : PyContext_CopyCurrent());
    Py_CLEAR(t->waits_for);
    if (t->context == NULL || name_it(t, name) < 0)
        return -1;
    Py_XSETREF(t->coroutine, Py_NewRef(coroutine));
    t->log_destroy_pending = true;
    if (stm_open != NULL && captured(stm_open, self) && note_birth(stm_open, self) < 0)
        return -1;
    if (eager) {
        PyObject *running = call_method(t->loop, asyncio.is_running, NULL);
        eager = running != NULL ? PyObject_IsTrue(running) : -1;
        Py_XDECREF(running);
    }
    if (eager < 0)
        return -1;
    if (eager) {
        PyObject *r = stm_call(start_eagerly, &self, 1, NULL);
        Py_XDECREF(r);
        if (r == NULL)
            return -1;
        if (t->state != FUTURE_PENDING) {
            Py_CLEAR(t->coroutine);
            return 0;
        }
    }
    else if (schedule_step(t, NULL) < 0)
        return -1;
    PyUnstable_EnableTryIncRef(self);
    enlist(t);
    return 0;
}

/* ---- Methods --------------------------------------------------------------------------------------------------- */

static PyObject *
task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Future *t = (Future *)self;
    PyObject *message = message_of_cancel(args, n, kwnames);
    if (message == NULL || future_write(t) < 0)
        return NULL;
    t->log_traceback = false;
    if (t->state != FUTURE_PENDING)
        Py_RETURN_FALSE;
    t->cancels++;
    if (t->waits_for != NULL) {
        /* It goes on waiting for that: should it be a task that does not let itself be cancelled, it may be asked again. */
        int r = cancel_what_it_waits_for(t, message);
        if (r != 0)
            return r < 0 ? NULL : Py_NewRef(Py_True);
    }
    t->must_cancel = true;
    Py_XSETREF(t->cancel_message, Py_NewRef(message));
    Py_RETURN_TRUE;
}

static PyObject *
cancelling(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return future_read((Future *)self) < 0 ? NULL : PyLong_FromSsize_t(((Future *)self)->cancels);
}

static PyObject *
uncancel(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Future *t = (Future *)self;
    if (future_write(t) < 0)
        return NULL;
    if (t->cancels > 0 && --t->cancels == 0)
        t->must_cancel = false;
    return PyLong_FromSsize_t(t->cancels);
}

/* A field, or None. */
static PyObject *
field(PyObject *self, PyObject *const *at)
{
    return future_read((Future *)self) < 0 ? NULL : Py_NewRef(*at != NULL ? *at : Py_None);
}

static PyObject *
get_coro(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return field(self, &((Future *)self)->coroutine);
}

static PyObject *
get_context(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return field(self, &((Future *)self)->context);
}

static PyObject *
get_name(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Future *t = (Future *)self;
    if (future_read(t) < 0)
        return NULL;
    if (t->name == NULL || !PyLong_CheckExact(t->name))
        return field(self, &t->name);
    return PyUnicode_FromFormat("Task-%S", t->name);
}

static PyObject *
set_name(PyObject *self, PyObject *name)
{
    PyObject *text = name == Py_None ? PyUnicode_InternFromString("None") : Py_NewRef(name);
    int r = text == NULL || future_write((Future *)self) < 0 ? -1 : name_it((Future *)self, text);
    Py_XDECREF(text);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
refuse(const char *what)
{
    PyErr_Format(PyExc_RuntimeError, "Task does not support %s operation", what);
    return NULL;
}

static PyObject *
no_set_result(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(value))
{
    return refuse("set_result");
}

static PyObject *
no_set_exception(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(value))
{
    return refuse("set_exception");
}

static PyMethodDef methods[] = {
    {"cancel", _PyCFunction_CAST(task_cancel), METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("cancel($self, /, msg=None)\n--\n\nAsk it to end: CancelledError is raised where it waits.  False if it has ended.")},
    {"cancelling", cancelling, METH_NOARGS, PyDoc_STR("cancelling($self, /)\n--\n\nHow often it has been asked to end, less what was taken back.")},
    {"uncancel", uncancel, METH_NOARGS, PyDoc_STR("uncancel($self, /)\n--\n\nTake one such request back; returns how many are left.")},
    {"get_coro", get_coro, METH_NOARGS, PyDoc_STR("get_coro($self, /)\n--\n\nIts coroutine.")},
    {"get_context", get_context, METH_NOARGS, PyDoc_STR("get_context($self, /)\n--\n\nThe context in which it runs.")},
    {"get_name", get_name, METH_NOARGS, PyDoc_STR("get_name($self, /)\n--\n\nIts name.")},
    {"set_name", set_name, METH_O, PyDoc_STR("set_name($self, value, /)\n--\n\nName it.")},
    {"set_result", no_set_result, METH_O, PyDoc_STR("set_result($self, result, /)\n--\n\nRaises RuntimeError.")},
    {"set_exception", no_set_exception, METH_O, PyDoc_STR("set_exception($self, exception, /)\n--\n\nRaises RuntimeError.")},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, PyDoc_STR("See PEP 585.")},
    {NULL, NULL, 0, NULL},
};

static PyObject *
get_must_cancel(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Future *)self)->must_cancel);
}

static PyObject *
get_log_destroy_pending(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Future *)self)->log_destroy_pending);
}

static int
set_log_destroy_pending(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int is = truth_to_set(value);
    if (is >= 0)
        ((Future *)self)->log_destroy_pending = is;
    return is < 0 ? -1 : 0;
}

static PyGetSetDef attributes[] = {
    {"_must_cancel", get_must_cancel, NULL, PyDoc_STR("will its next step raise CancelledError?"), NULL},
    {"_log_destroy_pending", get_log_destroy_pending, set_log_destroy_pending,
     PyDoc_STR("is to be told of it if it dies before its end?"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"_coro", _Py_T_OBJECT, offsetof(Future, coroutine), Py_READONLY, NULL},
    {"_fut_waiter", _Py_T_OBJECT, offsetof(Future, waits_for), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, PyDoc_STR("Task(coro, *, loop=<unrepresentable>, name=None, context=None, eager_start=False)\n--\n\nasyncio's Task, whose"
                          " state is rolled back with the transaction that has changed it.")},
    {Py_tp_init, task_init},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_traverse, future_traverse},
    {Py_tp_clear, future_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, attributes},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tornado.stm._engine.Task",
    .basicsize = sizeof(Future),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_MANAGED_DICT | Py_TPFLAGS_MANAGED_WEAKREF,
    .slots = slots,
};

PyObject *
tasks_begin(PyObject *Py_UNUSED(module), PyObject *eager_start)
{
    Py_XSETREF(start_eagerly, Py_NewRef(eager_start));
    Py_RETURN_NONE;
}

int
tasks_init(PyObject *module)
{
    stm_task_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, (PyObject *)stm_future_type);
    return stm_task_type != NULL ? PyModule_AddType(module, stm_task_type) : -1;
}
