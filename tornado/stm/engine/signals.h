/* Signals that Python code handles come to the main thread. */
#ifndef TORNADO_STM_SIGNALS_H
#define TORNADO_STM_SIGNALS_H

#include "core/base.h"

/* The handler of the signal, whether or not only the main thread takes it.  SIG_ERR: there is no such signal. */
void (*signal_handler(int signum))(int);

PyObject *signals_main_takes(PyObject *self, PyObject *args);

PyObject *signals_handlers(PyObject *self, PyObject *unused);
PyObject *signals_exchange(PyObject *self, PyObject *exchanges);

#endif
