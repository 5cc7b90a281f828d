/* Short ways in front of the twins of sockets' methods. */
#ifndef TORNADO_STM_SOCKET_H
#define TORNADO_STM_SOCKET_H

#include "../core/tx.h"

int sockets_init(PyObject *module);     /* -1 with an exception */

/* Do its operations wait?  Yes, also with an exception. */
bool may_block(PyObject *sock);

/* set_option_now(socket, level, option, value...), at the commit */
PyObject *set_option_now(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* unset_bytearray(size): bytearray(size), of which nothing is read but what has been received into it */
PyObject *unset_bytearray(PyObject *module, PyObject *size);

/* What stands in for socket.recv, recv_into, send or setsockopt where that is simple, and else calls the twin: socket_way(f, twin).
 * `inboxes`, put_back(fd, bytes) and the exceptions that say that nothing has come are the twins'. */
PyObject *socket_way(PyObject *module, PyObject *args);
/* In the place of socket.send, also where no transaction asks for it, so that nothing overtakes what transactions have sent: a method that
 * does the same; socket_send(send, twin). */
PyObject *socket_send(PyObject *module, PyObject *args);
PyObject *receiving_begin(PyObject *module, PyObject *args);
/* f(*args), which receives; where nothing has come and commits of this process were amid their sending, once more after these. */
PyObject *ask(Tx *tx, PyObject *f, PyObject *const *args, Py_ssize_t n);
/* From here on all receiving is the twins' affair. */
PyObject *receive_by_twins(PyObject *module, PyObject *unused);

#endif
