/* The evaluation loop, in the place of the interpreter's own. */
#ifndef TORNADO_STM_ENTRY_H
#define TORNADO_STM_ENTRY_H

#include <Python.h>
#include <stdbool.h>

#include "../engine/core/base.h"

/* Does Python code run on our loop? */
bool loop_is_ours(void);

/* The name of the attribute that the instruction asks for which that thread is at, borrowed; NULL if it is another instruction. */
PyObject *attribute_asked_for(PyThreadState *tstate);

/* Does the object, its transaction's own, get a dict or a class so that it is that still?  Then nothing is to be opened. */
bool replaces_own(Tx *tx, PyObject *obj, PyObject *name, PyObject *value, bool raw);

#endif
