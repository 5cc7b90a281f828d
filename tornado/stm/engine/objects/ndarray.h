/* Arrays of numpy. */
#ifndef TORNADO_STM_NDARRAY_H
#define TORNADO_STM_NDARRAY_H

#include "types.h"

/* Is the structure of arrays the one that is known here? */
bool ndarray_type_is_known(PyTypeObject *type);
/* The same of `numpy.ufunc`; how many arguments one of them has that are no results; does it call something of Python? */
extern const size_t ufunc_size;
Py_ssize_t ufunc_inputs(PyObject *ufunc);
bool ufunc_calls_back(PyObject *ufunc);

bool is_ndarray(Tx *tx, PyObject *obj);
/* Does nobody but this stack know the array, and that whose memory it shows?  Then it is taken for one that this transaction has made.
 * Requires: it lies on the stack of a frame, or C code has just returned it. What C code is given may be in somebody's tuple only. */
bool ndarray_known_here_only(Tx *tx, PyObject *array);
/* An array, or a tuple of arrays, is about to be changed; anything else is not. */
int open_result(Tx *tx, PyObject *result);
/* left op right, where one of them is an array or a number of numpy's. */
int open_array_operands(Tx *tx, PyObject *left, PyObject *right, bool in_place);
/* array[key] = value */
int open_array_item(Tx *tx, PyObject *array, PyObject *key, PyObject *value);

#endif
