/* threading.local: attributes of which each thread has its own. */
#ifndef TORNADO_STM_LOCAL_H
#define TORNADO_STM_LOCAL_H

#include "../core/tx.h"

PyObject *exchange_locals(PyObject *self, PyObject *pair);

#endif
