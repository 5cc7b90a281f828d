/* What transactions send: it goes to the kernel at the commit, in order. */
#ifndef TORNADO_STM_OUTBOX_H
#define TORNADO_STM_OUTBOX_H

#include "../core/base.h"

/* What of sockets is called here: methods of _socket.socket, whatever stands in for them, and descriptors of its attributes. */
typedef struct {
    PyObject *send, *setsockopt, *close, *shutdown, *fileno, *gettimeout, *family, *type, *proto;
} SocketMethods;
extern SocketMethods socket_methods;

int outbox_init(PyObject *module);      /* -1 with an exception */

/* In the child of a fork: no other thread has a lock any more. */
void outboxes_in_child(void);

/* The number of the socket's descriptor; -1: it is closed.  -2 with an exception. */
int fileno_of(PyObject *sock);

/* By the descriptor of an attribute of sockets: a number, or -1 with an exception. */
long fact_of_socket(PyObject *descriptor, PyObject *sock);

/* Is there one of that number, also of a socket that had it before?  For who is alone; not with a number that no descriptor has. */
bool has_outbox(int fd);

/* For Python: */
PyObject *sockets_begin(PyObject *module, PyObject *args);
PyObject *put_off(PyObject *module, PyObject *const *args, Py_ssize_t n);
/* Until the end of this transaction no other one sends by that socket. */
PyObject *sends_no_more(PyObject *module, PyObject *sock);
PyObject *find_outbox(PyObject *module, PyObject *fd);
PyObject *take_outbox(PyObject *module, PyObject *fd);

#endif
