/* Stand-ins in C for C functions that look into containers piece by piece. */
#ifndef TORNADO_STM_TWINS_H
#define TORNADO_STM_TWINS_H

#include "../core/base.h"

PyObject *c_twin(PyObject *original);
PyObject *short_way(PyObject *args);

#endif
