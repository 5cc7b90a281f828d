/* Classes that transactions make. */
#ifndef TORNADO_STM_CLASS_H
#define TORNADO_STM_CLASS_H

#include "../core/tx.h"

int classes_init(void);
PyObject *subclasses(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *check_subclass(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

#endif
