/* Connections of sqlite3, on any thread of a loop. */
#ifndef TORNADO_STM_CONNECTION_H
#define TORNADO_STM_CONNECTION_H

#include "anchor.h"

/* Is it one, and is its structure known? */
bool is_connection(PyObject *obj);
/* Do that with it on this thread. */
PyObject *with_connection(Tx *tx, PyObject *connection, Work work, void *arg);
/* A function of the program begins: has C code of a connection called it?  -1 to abort. */
int connection_calls_back(Tx *tx);
void connection_in_child(void);

PyObject *connection_learn(PyObject *self, PyObject *args);
PyObject *connection_converts(PyObject *self, PyObject *connection);
PyObject *connection_made(PyObject *self, PyObject *connection);
PyObject *connection_call(PyObject *self, PyObject *const *args, Py_ssize_t n);

#endif
