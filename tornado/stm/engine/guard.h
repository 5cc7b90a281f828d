/* The guard's signal. */
#ifndef TORNADO_STM_GUARD_H
#define TORNADO_STM_GUARD_H

#include "core/base.h"

PyObject *guard_await(PyObject *self, PyObject *args);
PyObject *guard_stand_down(PyObject *self, PyObject *ignored);
PyObject *guard_tell(PyObject *self, PyObject *args);
PyObject *guard_forward(PyObject *self, PyObject *number);

#endif
