/* Surgery on dicts that the interpreter's own functions do not offer. */
#ifndef TORNADO_STM_DICTKEYS_H
#define TORNADO_STM_DICTKEYS_H

#include "../core/base.h"

bool is_plain_key(PyObject *key, int depth);
bool is_same_key(PyObject *there, Py_hash_t hash_there, PyObject *key, Py_hash_t hash);
PyObject *equal_key(PyObject *keys, PyObject *key);

/* Without any code of the program: the key by identity, or by a comparison in C. */
int dict_put(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *value, PyObject **old);
int dict_take(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value);
PyObject *dict_value(PyObject *dict, PyObject *key, Py_hash_t hash);
Py_ssize_t dict_entry(PyObject *dict, PyObject *key, Py_hash_t hash);

PyObject *dict_actual_key(PyObject *dict, PyObject *key, Py_hash_t hash);
int dict_hide(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *placeholder, PyObject **actual, PyObject **value,
              Py_ssize_t *place);
int dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, Py_hash_t hash, PyObject *value);
int dict_drop_placeholder(PyObject *dict, PyObject *placeholder, Py_ssize_t place);
PyObject *dict_copy_places(PyObject *dict);
bool dict_would_close_gaps(PyObject *dict, PyObject *key);
int dict_put_into_places(PyObject *dict, PyObject *copy);
bool dict_exchange(PyObject *dict, PyObject *copy);
Py_ssize_t dict_rank(PyObject *dict, PyObject *key);
int dict_insert_at(PyObject *dict, PyObject *name, Py_hash_t hash, PyObject *value, Py_ssize_t rank);
bool dict_is_of_strings(PyObject *dict);

#endif
