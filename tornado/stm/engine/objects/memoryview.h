/* memoryview: what it is around, what releasing it does, and who counts the views. */
#ifndef TORNADO_STM_MEMORYVIEW_H
#define TORNADO_STM_MEMORYVIEW_H

#include "../core/tx.h"

int open_view_release(Tx *tx, PyObject *obj);
int open_resize(Tx *tx, PyObject *obj);
Py_ssize_t views_ignore(PyObject *obj);
void views_regard(PyObject *obj, Py_ssize_t n);
int views_init(void);

#endif
