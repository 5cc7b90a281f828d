/* Exceptions: what raising one sets is locked with the exception as a whole. */
#ifndef TORNADO_STM_EXCEPTION_H
#define TORNADO_STM_EXCEPTION_H

#include "types.h"

bool set_by_raising(PyObject *obj, PyObject *name);
int open_exception(Tx *tx, PyObject *exception);
int open_exception_init(Tx *tx, PyObject *exception);
int open_exception_group(Tx *tx, PyObject *exception, int depth);
/* Does this type of exceptions, in C but not Python's own, keep what it tells of by its method errors()? */
bool tells_errors(PyTypeObject *type);
int visit_exception(Tx *tx, PyObject *exception, Visit visit, void *arg);
/* What it has besides its attributes in a dict or in slots, but for the traceback: what Python's own types keep in C. */
int visit_all_of_exception(Tx *tx, PyObject *exception, Visit visit, void *arg);

#endif
