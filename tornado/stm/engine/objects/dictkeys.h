/* Surgery on dicts that the interpreter's own functions do not offer. */
#ifndef TORNADO_STM_DICTKEYS_H
#define TORNADO_STM_DICTKEYS_H

#include "../core/base.h"

int dict_hide(PyObject *dict, PyObject *key, PyObject *placeholder, PyObject **actual, PyObject **value,
              Py_ssize_t *place);
int dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, PyObject *value);
int dict_drop_placeholder(PyObject *dict, PyObject *placeholder, Py_ssize_t place);
PyObject *dict_copy_places(PyObject *dict);
bool dict_would_close_gaps(PyObject *dict, PyObject *key);
bool dict_exchange(PyObject *dict, PyObject *copy);
Py_ssize_t dict_rank(PyObject *dict, PyObject *key);
int dict_insert_at(PyObject *dict, PyObject *key, PyObject *value, Py_ssize_t rank);

#endif
