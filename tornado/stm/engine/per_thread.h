/* What each thread has for itself. */
#ifndef TORNADO_STM_PER_THREAD_H
#define TORNADO_STM_PER_THREAD_H

#include "core/base.h"

/* The identifier of this thread, or of that whose transaction it has at the moment. */
unsigned long identified_thread(void);

int per_thread_init(PyObject *module);      /* -1 with an exception */

#endif
