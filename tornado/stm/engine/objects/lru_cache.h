/* functools.lru_cache, transactional. */
#ifndef TORNADO_STM_LRU_CACHE_H
#define TORNADO_STM_LRU_CACHE_H

#include "../core/base.h"

extern const size_t lru_size;
PyObject *lru_call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* From here on calls of such wrappers by C code that does not announce them are transactional, too. */
void lru_watch(PyTypeObject *type);
bool is_watched_lru(PyTypeObject *type);
PyObject *lru_info(PyObject *original, PyObject *const *args, Py_ssize_t n);
PyObject *lru_clear(PyObject *original, PyObject *const *args, Py_ssize_t n);

#endif
