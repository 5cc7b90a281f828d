/* Snapshots of suspended generators, coroutines and asynchronous generators. */
#ifndef TORNADO_STM_GENERATOR_H
#define TORNADO_STM_GENERATOR_H

#include "../core/tx.h"

int open_generator(Tx *tx, PyObject *gen);
/* The same, to have an exception thrown into what it delegates to, or that closed. */
int open_generator_throw(Tx *tx, PyObject *gen);

#endif
