/* Calls that wait for the commit: core/transaction.c runs them. */
#include "deferred.h"

#include "core/tx.h"

PyObject *
arguments_of_call(PyObject *const *call, Py_ssize_t n)
{
    PyObject *rest = PyTuple_New(n - 1);
    for (Py_ssize_t i = 1; rest != NULL && i < n; i++)
        PyTuple_SET_ITEM(rest, i - 1, Py_NewRef(call[i]));
    return rest;
}

int
tx_defer(PyObject *const *call, Py_ssize_t n)
{
    Tx *tx = live_tx();
    if (tx == NULL || tx->grade == GRADE_EXCLUSIVE) {
        PyObject *r = PyObject_Vectorcall(call[0], call + 1, n - 1, NULL);
        Py_XDECREF(r);
        return r == NULL ? -1 : 0;
    }
    if (tx->deferred == NULL && (tx->deferred = PyList_New(0)) == NULL)
        return -1;
    PyObject *rest = arguments_of_call(call, n);
    PyObject *action = rest != NULL ? PyTuple_Pack(2, call[0], rest) : NULL;
    int r = action != NULL ? PyList_Append(tx->deferred, action) : -1;
    Py_XDECREF(rest);
    Py_XDECREF(action);
    return r;
}
