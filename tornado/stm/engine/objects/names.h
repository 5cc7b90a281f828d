/* Names in a namespace, by its dict. */
#ifndef TORNADO_STM_OBJECTS_NAMES_H
#define TORNADO_STM_OBJECTS_NAMES_H

#include "../core/orec.h"

/* What the name in that namespace is known by: `base` is namespace_of() its dict. */
static inline Cell
attr_cell(const void *base, PyObject *name)
{
    Py_hash_t hash = PyUnicode_CheckExact(name) ? _Py_atomic_load_ssize_relaxed(&_PyASCIIObject_CAST(name)->hash) : -1;
    return cell_of(base, key_bits(LIKELY(hash != -1) ? hash : PyObject_Hash(name)));
}

/* As "__init__": the interpreter and C code ask for such for purposes of their own, and not as names of data. */
static inline bool
is_dunder(PyObject *name)
{
    Py_ssize_t n = PyUnicode_Check(name) ? PyUnicode_GET_LENGTH(name) : 0;
    return n > 4 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, 1) == '_'
        && PyUnicode_READ_CHAR(name, n - 1) == '_' && PyUnicode_READ_CHAR(name, n - 2) == '_';
}

int open_name_write(Tx *tx, PyObject *dict, const void *base, PyObject *name);
int open_name_delete(Tx *tx, PyObject *dict, const void *base, PyObject *name);
int open_all_names(Tx *tx, PyObject *dict, const void *base, bool write);
int open_global_read(Tx *tx, PyObject *globals, PyObject *name);
int open_global_write(Tx *tx, PyObject *globals, PyObject *name);
int open_global_change(Tx *tx, PyObject *globals, PyObject *name, bool del);

#endif
