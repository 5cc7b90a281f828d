/* What a program sees of the engine in a traceback: nothing. */
#ifndef TORNADO_STM_TRACEBACKS_H
#define TORNADO_STM_TRACEBACKS_H

#include "core/base.h"

/* A code flag beyond CPython's own: the project's code, which knows about transactions and has no barriers. */
#define CO_STM_TRUSTED 0x20000000

int tracebacks_hide(PyObject *pair);
bool is_hidden_code(PyCodeObject *code);
void traceback_clean(PyObject *exception);

#endif
