/* The context (contextvars) of a transaction that waits in a queue. */
#ifndef TORNADO_STM_CONTEXT_H
#define TORNADO_STM_CONTEXT_H

#include "../core/tx.h"

PyObject *context_variables(void);
int context_enter(Tx *tx, PyObject *variables);
void context_exit(Tx *tx, PyObject *variables);

#endif
