/* asyncio's Future and Task, whose state the undo log knows.
 *
 * Who uses them sees asyncio's own, those in C: the same methods, attributes, exceptions and order of callbacks.  What is seldom
 * called (how one is printed, the stack of a task) is asyncio's code in Python, put into these types by loop/futures.py.
 *
 * One is locked as a whole: by its methods, which have the barriers themselves (they are PURE to calls.c), and by who
 * reads an attribute (future_kind).  The first write of an attempt logs a copy of all its fields.
 */
#ifndef TORNADO_STM_FUTURE_H
#define TORNADO_STM_FUTURE_H

#include "../core/tx.h"

enum { FUTURE_PENDING, FUTURE_CANCELLED, FUTURE_FINISHED };

/* Invariants.  `callbacks` is NULL or a list of pairs (function, context), which nobody else has but entries of the undo log: it
 * is only ever appended to.  `awaited_by` is NULL, a task, or a set of tasks. */
typedef struct Future Future;
struct Future {
    PyObject_HEAD
    struct Future *next, **link;    /* of a task: in the list of all (task.c) */
    _Atomic uint64_t waits_at;      /* of a task: a hash of where it waits, for its site; a hint, which is not logged */
    /* From here on, what is logged. */
    uint8_t state;
    bool blocking;                  /* it has been given to who awaits it, and that has to tell the task's step */
    bool log_traceback;             /* nobody has asked for the exception yet */
    bool must_cancel;               /* of a task: its next step throws CancelledError */
    bool log_destroy_pending;       /* likewise: to be told of when it dies before its end */
    Py_ssize_t cancels;             /* likewise: how often it has been asked to */
    PyObject *loop, *callbacks, *result, *exception, *traceback, *source_traceback, *cancel_message, *cancelled_exception, *awaited_by;
    /* A Future ends here; a Task has these, too. */
    PyObject *coroutine, *context, *name, *waits_for;
};

extern PyTypeObject *stm_future_type, *stm_task_type;

static inline bool
is_future(PyObject *o)
{
    return PyObject_TypeCheck(o, stm_future_type);
}

static inline bool
is_task(PyObject *o)
{
    return PyObject_TypeCheck(o, stm_task_type);
}

/* Before its fields are read, or written: 0, or -1 with an exception. */
int future_read(Future *f);
int future_write(Future *f);

int future_setup(Future *f, PyObject *loop);        /* what __init__ does with that loop, or None */
int future_cancel(Future *f, PyObject *message);    /* 1: it was pending */
int future_set_result(Future *f, PyObject *result);
int future_set_exception(Future *f, PyObject *exception);
PyObject *future_result(Future *f);
int future_outcome(Future *f, PyObject **outcome);  /* 0: the result; 1: the exception that was set, to be raised; -1: it raises something else */
PyObject *future_cancelled_error(Future *f);        /* what is raised for it; a new reference */
int future_add_callback(Future *f, PyObject *function, PyObject *context);

/* The awaiting task is seen from what it waits for: for who looks at the graph of calls. */
int future_awaited_by(Future *f, PyObject *task);
int future_not_awaited_by(Future *f, PyObject *task);

PyObject *future_add_to_awaited_by(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *future_discard_from_awaited_by(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* For the types of both. */
int truth_to_set(PyObject *value);
int future_traverse(PyObject *self, visitproc visit, void *arg);
int future_clear(PyObject *self);
void future_dealloc(PyObject *self);

int futures_init(PyObject *module);
PyObject *futures_begin(PyObject *module, PyObject *finalizer);

/* What is asyncio's, from futures_begin() on. */
extern struct AsyncioNames {
    PyObject *CancelledError, *InvalidStateError, *iscoroutine, *get_event_loop, *extract_stack, *enter_task, *leave_task;
    PyObject *call_soon, *get_debug, *context, *blocking, *send, *throw, *cancel, *add_done_callback, *get_loop, *loop, *finalizer;
    PyObject *is_running, *msg, *traceback;
} asyncio;

#endif
