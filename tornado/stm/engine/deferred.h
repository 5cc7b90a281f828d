/* Calls that wait for the commit. */
#ifndef TORNADO_STM_DEFERRED_H
#define TORNADO_STM_DEFERRED_H

#include "core/base.h"

/* call[0](*call[1:]), n in all: at the commit of this thread's transaction, in order; at once outside of transactions and where it
 * is exclusive. -1 with an exception. */
int tx_defer(PyObject *const *call, Py_ssize_t n);
PyObject *arguments_of_call(PyObject *const *call, Py_ssize_t n);      /* call[1:], a new tuple */

#endif
