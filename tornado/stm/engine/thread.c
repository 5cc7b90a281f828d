/* What the parts above the core do in the life of an attempt: one upcall after the other.
 *
 * Invariant.  The parts whose state belongs to an attempt are as new when the next one begins.
 */
#include "thread.h"

#include "../interpreter/borrowed.h"
#include "../interpreter/entry.h"
#include "../interpreter/wanted.h"
#include "calls/calls.h"
#include "calls/connection.h"
#include "core/transaction.h"
#include "dispatch/dispatcher.h"
#include "dispatch/task.h"
#include "objects/absent.h"
#include "objects/access.h"
#include "objects/context.h"
#include "objects/garbage.h"
#include "objects/immortal.h"
#include "objects/known.h"
#include "objects/namespaces.h"
#include "sockets/outbox.h"

#include "internal/pycore_runtime.h"
#include "internal/pycore_stackref.h"
#include "internal/pycore_tstate.h"

static bool
is_ready(void)
{
    return stm_register_module != NULL;
}

/* A debugger follows this thread: what it has shown must not be rolled back, and its own code is
 * no part of the program's transactions. (Coverage measures in C.) And there are no barriers but on our loop. */
static int
first_grade(void)
{
    PyObject *tracer = PyThreadState_Get()->c_traceobj;
    bool debugged = tracer != NULL && (PyFunction_Check(tracer) || PyMethod_Check(tracer));
    return UNLIKELY(debugged || !loop_is_ours()) ? GRADE_EXCLUSIVE : GRADE_NONE;
}

static void
run_begins(Tx *tx)
{
    thread_of(tx)->locations.base = PyThreadState_Get()->current_frame;
}

static void
begins(Tx *tx)
{
    Thread *t = thread_of(tx);
    opened_reset(&t->opened);
    order_reset(&t->order);
    loop_reset(&t->loop, t->opened.stamp);
    chain_begins(&t->chain);
}

/* Call the function as code with barriers would. */
static PyObject *
call_function(Tx *tx, Transaction *t)
{
    Py_ssize_t n_named = t->kwnames != NULL ? PyTuple_GET_SIZE(t->kwnames) : 0;
    Py_ssize_t n = Py_SIZE(t) - n_named;
    PyObject *function = t->function;
    if (LIKELY(PyFunction_Check(function)))
        return PyObject_Vectorcall(function, t->args, n | PY_VECTORCALL_ARGUMENTS_OFFSET, t->kwnames);
    /* A twin may take its place. */
    _PyStackRef callable = PyStackRef_FromPyObjectNew(function);
    PyObject *result = NULL;
    if (before_call(tx, &callable, t->args, n, t->args + n, n_named) == 0)
        result = PyObject_Vectorcall(PyStackRef_AsPyObjectBorrow(callable), t->args,
                                     n | PY_VECTORCALL_ARGUMENTS_OFFSET, t->kwnames);
    PyStackRef_CLOSE(callable);
    return result;
}

static PyObject *
call(Tx *tx, Transaction *t)
{
    if (t->variables == NULL)
        return call_function(tx, t);
    if (context_enter(tx, t->variables) < 0)
        return NULL;
    PyObject *result = call_function(tx, t), *exception = PyErr_GetRaisedException();
    context_exit(tx, t->variables);
    PyErr_SetRaisedException(exception);
    return result;
}

static int
may_commit(Tx *tx)
{
    return UNLIKELY(thread_of(tx)->mutexes.n > 0) ? mutexes_settle(tx) : 0;
}

static void
will_commit(Tx *tx)
{
    order_drop_placeholders(tx);
    if (tx->releasing <= FINALIZING)
        order_inserted_keys(tx);
}

static uint64_t
states_made(void)
{
    return PyInterpreterState_Get()->threads.next_unique_id;
}

static void
became_inevitable(Tx *tx)
{
    born_really(tx);
    if (tx->grade == GRADE_EXCLUSIVE)
        collector_alone(true);
    if (LIKELY(thread_of(tx)->mutexes.n == 0))
        return;
    if (tx->grade == GRADE_EXCLUSIVE)
        mutexes_in_earnest(tx);
    else
        mutexes_leave(tx);
}

static void
lends(Tx *Py_UNUSED(tx))
{
    collector_alone(false);
}

static void
rolled_back(Tx *tx)
{
    born_never_was(tx);
    chain_rolled_back(tx, &thread_of(tx)->chain);
    /* asyncio's current task is the thread's, and the attempt may have set it. */
    Py_CLEAR(((_PyThreadStateImpl *)tx->tstate)->asyncio_running_task);
}

static void
ends(Tx *tx)
{
    if (UNLIKELY(thread_of(tx)->mutexes.n > 0))
        mutexes_end(tx, !tx->aborting);
    if (tx->grade == GRADE_EXCLUSIVE)
        collector_alone(false);
    births_reset(&thread_of(tx)->births);
}

static void
drops(Tx *tx)
{
    fresh_clear(&thread_of(tx)->fresh);
    fresh_clear(&thread_of(tx)->raised);
    if (UNLIKELY(thread_of(tx)->mutexes.n > 0))
        mutexes_forget(tx);
}

/* An exclusive transaction is never rolled back. What it keeps for that would only
 * keep objects alive: their finalizers run now, in the transaction. */
void
forget_past(Tx *tx)
{
    bool within = thread_of(tx)->drops_past;
    thread_of(tx)->drops_past = true;
    undo_forget(tx, 0);
    order_forget(&thread_of(tx)->order);
    fresh_clear(&thread_of(tx)->fresh);
    fresh_clear(&thread_of(tx)->raised);
    thread_of(tx)->drops_past = within;
}

static void
goes_on(Tx *tx, uint64_t transactions, bool several)
{
    if (several)
        make_immortal_when_due(transactions);
    mind_garbage(tx);
}

static bool
is_late(Tx *tx)
{
    return thread_of(tx)->births.dying != NULL;
}

static void
retries(Tx *tx)
{
    if (UNLIKELY(thread_of(tx)->mutexes.awaited != NULL))
        mutex_await(tx);
}

static bool
is_in_the_way(Tx *tx)
{
    return thread_of(tx)->mutexes.n > 0;
}

/* What the others' references were to is lost with their threads. */
static void
abandon(Tx *tx)
{
    Thread *t = thread_of(tx);
    t->births = (Births){0};
    t->mutexes = (Mutexes){0};
    t->chain = (CallbackChain){0};
    t->connection_inside = t->in_fiber = false;
    t->anchor.wake = t->context = t->reason = NULL;
    t->fresh = t->raised = (FreshTable){0};
    t->was_alone = (WasAlone){0};
}

static void
in_child(void)
{
    /* Signals are told to the thread that has become the main one. (The interpreter goes on telling the one that is gone.) */
    PyThreadState *tstate = PyThreadState_GetUnchecked();
    if (tstate != NULL)
        _PyRuntime.main_tstate = tstate;
    garbage_in_child();
    mutexes_in_child();
    anchor_in_child();
    connection_in_child();
    tasks_in_child();
    dispatchers_in_child();
    outboxes_in_child();
}

const Upcalls stm_engine_upcalls = {
    .thread_size = sizeof(Thread),
    .is_ready = is_ready,
    .first_grade = first_grade,
    .variables = context_variables,
    .goes_on = goes_on,
    .run_begins = run_begins,
    .begins = begins,
    .call = call,
    .may_commit = may_commit,
    .will_commit = will_commit,
    .states_made = states_made,
    .counts_borrowed = count_borrowed,
    .became_inevitable = became_inevitable,
    .lends = lends,
    .committed = born_forget,
    .rolled_back = rolled_back,
    .ends = ends,
    .aborted = born_forget,
    .drops = drops,
    .finalizes = let_die,
    .is_late = is_late,
    .retries = retries,
    .sleeps = absent_begin,
    .wakes = absent_end,
    .is_in_the_way = is_in_the_way,
    .waits = mutexes_give_way,
    .is_asked = anchor_asked,
    .serve = anchor_serve,
    .may_be_biased = may_be_biased,
    .tell_reason = count_reason,
    .was_exclusive = count_time_alone,
    .location = location,
    .name_of_cell = name_of_cell,
    .locate_beginning = locate_beginning,
    .abandon = abandon,
    .in_child = in_child,
};
