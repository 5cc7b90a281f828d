/* Attributes of functions and of other C objects that can be given some. */
#ifndef TORNADO_STM_FUNCTION_H
#define TORNADO_STM_FUNCTION_H

#include "../core/tx.h"

int functions_init(void);

/* For who is about to read or write an attribute of that name. */
int lock_function_attribute(Tx *tx, PyObject *function, PyObject *name, bool write);
/* For who asks for its annotations, which may be made then: beside others, each of which will see them evaluated or not. */
int open_function_annotations(Tx *tx, PyObject *function);

/* A function in C that all threads use, for long: its references are not counted, for which they would wait for each other. */
PyObject *shared_function(PyMethodDef *def, PyObject *self);

#endif
