/* Signals that Python code handles come to the main thread. */
#ifndef TORNADO_STM_SIGNALS_H
#define TORNADO_STM_SIGNALS_H

#include "core/base.h"

PyObject *signals_main_takes(PyObject *self, PyObject *args);

#endif
