/* C objects whose state is their structure. */
#ifndef TORNADO_STM_STRUCTURE_H
#define TORNADO_STM_STRUCTURE_H

#include "../core/tx.h"

/* That of _json.c, whose size is compared with the type's. */
typedef struct {
    PyObject_HEAD
    signed char strict;
    PyObject *object_hook, *object_pairs_hook, *parse_float, *parse_int, *parse_constant;
} JSONScanner;

extern PyObject *stm_add;       /* operator.add */
bool structure_register(PyTypeObject *type);
int open_structure(Tx *tx, PyObject *obj);
int open_state(Tx *tx, PyObject *obj);
/* From now on who uses this endpoint runs alone: others write to its memory, who ask nobody. False where there are too many. Any thread. */
bool state_expose(PyObject *endpoint);
int guard_parts(Tx *tx, PyObject *obj);

/* Do iterators of this type call something, or compare, as they advance?  For types that have been registered. */
bool structure_calls(PyTypeObject *type);
extern PyObject *stm_unordered;
void structure_swap(PyObject *obj, void *copy);

#endif
