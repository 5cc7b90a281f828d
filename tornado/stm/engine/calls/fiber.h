/* Fibers: Python code that waits in the midst of functions, on a stack of its own. */
#ifndef TORNADO_STM_FIBER_H
#define TORNADO_STM_FIBER_H

#include "../core/tx.h"

PyObject *in_fiber(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *fiber_goes_on(PyObject *module, PyObject *unused);
PyObject *is_in_c(PyObject *module, PyObject *unused);

#endif
