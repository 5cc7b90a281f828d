/* C functions that wait. */
#ifndef TORNADO_STM_WAITING_H
#define TORNADO_STM_WAITING_H

#include "../core/base.h"

int waiting_init(void);
bool interrupts_lent(void);
PyObject *call_in_turn(PyObject *const *call, Py_ssize_t n);

#endif
