/* The dict in which an object has its attributes: found, missing, or made. */
#ifndef TORNADO_STM_ATTRIBUTES_H
#define TORNADO_STM_ATTRIBUTES_H

#include "../core/tx.h"

/* May objects of the type have one? */
static inline bool
can_have_dict(PyTypeObject *type)
{
    return type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT);
}

/* The dict, a new reference; or NULL without an exception. */
PyObject *own_dict(PyObject *obj);

/* *dict: it, a new reference, which the object keeps until the transaction ends; or NULL, and until then nobody else makes one. In a dict
 * that is no namespace the transaction has the intention to read.  Requires of these: can_have_dict(). */
int find_own_dict(Tx *tx, PyObject *obj, PyObject **dict);
/* The same for who changes what the object has beside a dict that is missing: in a slot, in a field. */
int find_own_dict_beside(Tx *tx, PyObject *obj, PyObject **dict);
/* The same for who makes it if it is missing, as reading obj.__dict__ and setting an attribute do: *dict is not NULL, but where the
 * transaction is exclusive. */
int make_own_dict(Tx *tx, PyObject *obj, PyObject **dict);
/* It is made, if it is missing, for whoever asks for obj.__dict__ in C, as the interpreter does it: others find it at once, and a rollback leaves
 * it there, with nothing in it. */
int give_own_dict(Tx *tx, PyObject *obj);
/* All attributes, in the dict or beside a missing one, are about to be read. */
int open_own_dict(Tx *tx, PyObject *obj);

#endif
