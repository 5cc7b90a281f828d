/* All that C code may come to read from an object on. */
#ifndef TORNADO_STM_DEEP_H
#define TORNADO_STM_DEEP_H

#include "types.h"

bool is_tuple_of_constants(PyObject *o, int depth);
/* For the `visit` of a kind: what is inert has nothing inside. */
int visit_unless_inert(Tx *tx, PyObject *obj, Visit visit, void *arg);

/* Visit all that the C base of the object's type traverses, but classes. */
int visit_referents(Tx *tx, PyObject *obj, Visit visit, void *arg);

int open_deep_read(Tx *tx, PyObject *obj);
/* The same for what is looked into at once: the items of a generator or an iterator cannot be opened before they are there. */
int open_deep(Tx *tx, PyObject *obj);
int open_lookups(Tx *tx, PyObject *obj);
int open_rows(Tx *tx, PyObject *rows);
int open_dict_operand(Tx *tx, PyObject *other);
int open_interpolated(Tx *tx, PyObject *text, PyObject *values);
int open_plain_read(Tx *tx, PyObject *obj);
int open_attributes(Tx *tx, PyObject *obj);
int open_reduced(Tx *tx, PyObject *obj);
int open_memory_of_attributes(Tx *tx, PyObject *obj);

#endif
