/* The context (contextvars) of a transaction that waits in a queue.
 *
 * As with asyncio's call_soon, it runs in a copy of the context in which it was added; what it
 * sets there nobody else sees.  A copy is cheap: the variables of a context are a persistent
 * map, so the queue keeps that map alone, and each thread has one Context in which it puts
 * the maps of its transactions by turns.  An attempt begins with the map as it was: what it sets needs
 * neither locks nor undo.
 */
#include "stm.h"

#include "internal/pycore_context.h"

static PyObject **
variables_of(PyObject *context)
{
    return (PyObject **)&((struct _pycontextobject *)context)->ctx_vars;
}

/* What a context is that nobody else refers to: a token does, for one. */
static int
own_context(Tx *tx)
{
    if (LIKELY(tx->context != NULL && _PyObject_IsUniquelyReferenced(tx->context)))
        return 0;
    Py_XSETREF(tx->context, PyContext_New());
    return tx->context == NULL ? -1 : 0;
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
    if (own_context(tx) < 0)
        return -1;
    PyObject **place = variables_of(tx->context);
    if (*place != variables)
        Py_SETREF(*place, Py_NewRef(variables));
    return PyContext_Enter(tx->context);
}

/* It has ended: what it has set is dropped, after a rollback if there is one. */
void
context_exit(Tx *tx, PyObject *variables)
{
    if (PyContext_Exit(tx->context) < 0)
        PyErr_FormatUnraisable("tornado.stm: at the end of a transaction");
    PyObject **place = variables_of(tx->context);
    if (*place == variables)
        return;
    displace(tx, *place);
    *place = Py_NewRef(variables);
}
