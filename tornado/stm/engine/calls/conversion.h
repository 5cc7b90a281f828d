/* C code that makes data of other data. */
#ifndef TORNADO_STM_CONVERSION_H
#define TORNADO_STM_CONVERSION_H

#include "../core/tx.h"

int conversion_init(void);
/* Under this name classes have the converters of their instances. */
int conversion_named(PyObject *name);

/* Does C code that this object has call nothing but what the object refers to, and only reads what is open or its own?  1, or 0 if
 * that is not known; -1 to abort. */
int calls_only_known(Tx *tx, PyObject *obj);
/* A converter (a method's receiver), or NULL, is about to be called with these arguments. */
int open_conversion(Tx *tx, PyObject *converter, PyObject *const *args, Py_ssize_t n, PyObject *const *kwvalues, Py_ssize_t nkw);

#endif
