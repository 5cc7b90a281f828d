/* Classes that transactions make. */
#ifndef TORNADO_STM_CLASS_H
#define TORNADO_STM_CLASS_H

#include "../core/tx.h"

int classes_init(void);
/* That, for the class and for each that is derived from it, once: they inherit slots when they are made.  -1 with an exception. */
int each_derived(PyTypeObject *type, void (*each)(PyTypeObject *));
PyObject *subclasses(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *check_subclass(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* The parts of a class, as __build_class__ gets them, before it calls methods of theirs. */
int open_class_parts(Tx *tx, PyObject *const *parts, Py_ssize_t n);

#endif
