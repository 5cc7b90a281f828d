/* The context (contextvars) of a transaction that waits in a queue.
 *
 * As with asyncio's call_soon, it runs in a copy of the context in which it was added; what it
 * sets there nobody else sees.  A copy is cheap: the variables of a context are a persistent
 * map, so the queue keeps that map alone, and each thread has one Context in which it puts
 * the maps of its transactions by turns.  An attempt begins with the map as it was: what it sets needs
 * neither locks nor undo.
 */
#include "context.h"

#include "../thread.h"
#include "access.h"
#include "deep.h"

#include "internal/pycore_context.h"

static PyObject **
variables_of(PyObject *context)
{
    return (PyObject **)&((struct _pycontextobject *)context)->ctx_vars;
}

/* What a context is that nobody else refers to: a token does, for one. */
static int
have_context(Tx *tx)
{
    if (LIKELY(thread_of(tx)->context != NULL && _PyObject_IsUniquelyReferenced(thread_of(tx)->context)))
        return 0;
    Py_XSETREF(thread_of(tx)->context, PyContext_New());
    return thread_of(tx)->context == NULL ? -1 : 0;
}

/* The variables of the current context; a new reference, or NULL with an exception. */
PyObject *
context_variables(void)
{
    static PyObject *_Atomic none;
    PyObject *context = PyThreadState_Get()->context;
    if (context != NULL)
        return Py_NewRef(*variables_of(context));
    PyObject *variables = atomic_load_explicit(&none, memory_order_acquire);
    if (variables == NULL) {
        PyObject *empty = PyContext_New();
        if (empty == NULL)
            return NULL;
        variables = Py_NewRef(*variables_of(empty));    /* the only map without variables */
        Py_DECREF(empty);
        atomic_store_explicit(&none, variables, memory_order_release);
    }
    return Py_NewRef(variables);
}

/* An attempt begins: it is to have these variables. */
int
context_enter(Tx *tx, PyObject *variables)
{
    if (have_context(tx) < 0)
        return -1;
    PyObject **place = variables_of(thread_of(tx)->context);
    if (*place != variables)
        Py_SETREF(*place, Py_NewRef(variables));
    return PyContext_Enter(thread_of(tx)->context);
}

/* It has ended: what it has set is dropped, after a rollback if there is one. */
void
context_exit(Tx *tx, PyObject *variables)
{
    if (PyContext_Exit(thread_of(tx)->context) < 0)
        PyErr_FormatUnraisable("tornado.stm: at the end of a transaction");
    PyObject **place = variables_of(thread_of(tx)->context);
    if (*place == variables)
        return;
    displace(tx, *place);
    *place = Py_NewRef(variables);
}

/* ---- Contexts of the program ------------------------------------------------------------- */

static int
put_variables_back(Tx *Py_UNUSED(tx), Undo *u)
{
    PyObject **place = variables_of(u->obj), *now = *place;
    *place = u->old;
    u->old = now;
    return 0;
}

static const UndoKind undo_context = {.what = "the variables", .undo = put_variables_back};

int
open_context(Tx *tx, PyObject *ctx)
{
    bool first;
    if (ctx == thread_of(tx)->context)
        return check_doomed(tx);        /* nobody else's (see above) */
    if (lock_exclusive(tx, cell_of(ctx, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    return undo_push(tx, &undo_context, ctx, NULL,
                     (PyObject *)((struct _pycontextobject *)ctx)->ctx_vars) ? 0 : -1;
}

/* Contexts are compared by the values of their variables; a token tells its variable, and whether it has been used. */
static int
visit_values(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    if (lock_container_read(tx, obj) < 0)
        return -1;
    if (Py_IS_TYPE(obj, &PyContextToken_Type))
        return visit(tx, (PyObject *)((PyContextToken *)obj)->tok_var, arg);
    PyObject *values = PyMapping_Values(obj);
    int r = values == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(values); i++)
        r = visit_unless_inert(tx, PyList_GET_ITEM(values, i), visit, arg);
    Py_XDECREF(values);
    return r;
}

const struct Kind context_kind = {
    .fixed_attributes = true,
    .c_state = C_STATE_WHOLE,
    .compared_inside = true,
    .visited_in_part = true,
    .read_whole = lock_container_read,
    .visit = visit_values,
};
