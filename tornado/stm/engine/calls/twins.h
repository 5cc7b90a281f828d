/* Stand-ins in C for C functions that look into containers piece by piece. */
#ifndef TORNADO_STM_TWINS_H
#define TORNADO_STM_TWINS_H

#include "../core/base.h"

PyObject *c_twin(PyObject *original);
/* The function of that table that has the original's name, with this as its `self`. */
PyObject *find_twin(PyMethodDef *table, PyObject *original, PyObject *self);
PyObject *short_way(PyObject *args);
bool call_after_warning(PyObject *call);

#endif
