/* Short ways in front of the twins of sockets' methods (../../input_output/sockets.py, which says what they do).
 *
 * A short way is for a socket that does not block, and usual arguments.  In a transaction that can be rolled back it does what the twin
 * would; in an exclusive one, where nothing is undone or put off, it is the method itself, unless something is left of what others have
 * received or sent.  Anything else is for the twin, in Python.
 */
#include "socket.h"

#include "../calls/callbacks.h"
#include "../calls/twins.h"
#include "../core/publish.h"
#include "../deferred.h"
#include "../dispatch/dispatcher.h"
#include "../objects/access.h"
#include "../objects/known.h"
#include "outbox.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static PyObject *inboxes, *put_back, *nothing;      /* of the twins */
static _Atomic bool by_twins;
static PyObject *set_now;

#define LONGEST_DATAGRAM 65536     /* of the internet's */

bool
may_block(PyObject *sock)
{
    PyObject *timeout = PyObject_CallOneArg(socket_methods.gettimeout, sock);
    bool blocks = timeout == NULL || !PyFloat_CheckExact(timeout) || PyFloat_AS_DOUBLE(timeout) != 0.0;
    Py_XDECREF(timeout);
    return blocks;
}

/* The transaction, if this operation can be replayed or put off; else NULL, with an exception or without. */
static Tx *
transaction_of(PyObject *sock)
{
    Tx *tx = stm_open;
    return tx != NULL && !may_block(sock) ? tx : NULL;
}

/* Is the transaction exclusive?  Then what it does takes place at once.  No, also with an exception. */
static bool
is_alone_with(PyObject *sock)
{
    Tx *tx = live_tx();
    return tx != NULL && tx->grade == GRADE_EXCLUSIVE && !may_block(sock);
}

static PyObject *
by_twin(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return PyErr_Occurred() ? NULL : call_checked(pair, args, n, kwnames);
}

/* ---- Receiving ---------------------------------------------------------------------------------------------------- */

PyObject *
receiving_begin(PyObject *Py_UNUSED(module), PyObject *args)
{
    if (!PyArg_ParseTuple(args, "O!OO!", &PyDict_Type, &inboxes, &put_back, &PyTuple_Type, &nothing))
        return NULL;
    Py_INCREF(args);        /* for ever */
    Py_RETURN_NONE;
}

PyObject *
receive_by_twins(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    atomic_store(&by_twins, true);
    Py_RETURN_NONE;
}

PyObject *
ask(Tx *tx, PyObject *f, PyObject *const *args, Py_ssize_t n)
{
    uint64_t since = published();
    PyObject *received = PyObject_Vectorcall(f, args, n, NULL);
    if (received == NULL && tx != NULL && nothing != NULL && PyErr_ExceptionMatches(nothing)) {
        PyObject *exception = PyErr_GetRaisedException();
        if (!await_published(tx, since))
            PyErr_SetRaisedException(exception);
        else {
            Py_DECREF(exception);
            received = PyObject_Vectorcall(f, args, n, NULL);
        }
    }
    if (received != NULL && PyObject_IsTrue(received))      /* the end of a stream, or that there is no error, is told again and again */
        dispatcher_received();
    return received;
}

static bool
receives_by_twins(void)
{
    return atomic_load_explicit(&by_twins, memory_order_acquire);
}

/* The transaction, if it owns the socket now and has nothing but the kernel to receive from; else NULL, as above. */
static Tx *
begin_to_receive(PyObject *sock)
{
    Tx *tx = !receives_by_twins() ? transaction_of(sock) : NULL;
    if (tx == NULL || own_whole(tx, sock) < 0)
        return NULL;
    return PyDict_GET_SIZE(inboxes) == 0 ? tx : NULL;
}

static bool
receives_alone(PyObject *sock)
{
    return !receives_by_twins() && PyDict_GET_SIZE(inboxes) == 0 && is_alone_with(sock);
}

/* Is it for datagrams, perhaps, longer ones than that?  Their rest would be lost. */
static bool
may_cut_off(PyObject *sock, Py_ssize_t size)
{
    if (size >= LONGEST_DATAGRAM)
        return false;
    bool stream = fact_of_socket(socket_methods.type, sock) == SOCK_STREAM;
    PyErr_Clear();
    return !stream;
}

/* It has been received: an abort puts it back.  Nothing that can raise stands between the receiving and this, but for memory. */
static int
undo_receiving(Tx *tx, PyObject *sock, PyObject *data)
{
    int fd = fileno_of(sock);
    PyObject *arguments = fd != -2 ? Py_BuildValue("(iO)", fd, data) : NULL;
    bool logged = arguments != NULL && undo_push(tx, &undo_call, put_back, arguments, NULL) != NULL;
    Py_XDECREF(arguments);
    return logged ? 0 : -1;
}

/* The kernel may tell of an error once: an abort puts that back, too.  Returns NULL. */
static PyObject *
failed_to_receive(Tx *tx, PyObject *sock)
{
    if (!PyErr_ExceptionMatches(PyExc_OSError) || PyErr_ExceptionMatches(nothing))
        return NULL;
    PyObject *exception = PyErr_GetRaisedException();
    if (undo_receiving(tx, sock, exception) == 0)
        PyErr_SetRaisedException(Py_NewRef(exception));
    Py_DECREF(exception);
    return NULL;
}

/* recv(size) */
static PyObject *
receive(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    bool usual = n == 2 && kwnames == NULL && PyLong_CheckExact(args[1]) && PyObject_IsTrue(args[1]);
    if (usual && receives_alone(args[0]))
        return ask(stm_self, PyTuple_GET_ITEM(pair, 0), args, n);
    Tx *tx = usual && !may_cut_off(args[0], PyLong_AsSsize_t(args[1])) ? begin_to_receive(args[0]) : NULL;
    if (tx == NULL)
        return by_twin(pair, args, n, kwnames);
    PyObject *data = ask(tx, PyTuple_GET_ITEM(pair, 0), args, n);
    if (data == NULL)
        return failed_to_receive(tx, args[0]);
    if (undo_receiving(tx, args[0], data) < 0)
        Py_CLEAR(data);
    return data;
}

/* recv_into(bytearray[, size]) */
static PyObject *
receive_into(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    bool usual = (n == 2 || (n == 3 && PyLong_CheckExact(args[2]))) && kwnames == NULL && PyByteArray_CheckExact(args[1])
        && PyByteArray_GET_SIZE(args[1]) > 0;
    if (usual && receives_alone(args[0]))
        return ask(stm_self, PyTuple_GET_ITEM(pair, 0), args, n);
    Tx *tx = usual && !may_cut_off(args[0], PyByteArray_GET_SIZE(args[1])) ? begin_to_receive(args[0]) : NULL;
    if (tx == NULL || open_whole_write(tx, args[1]) < 0)
        return by_twin(pair, args, n, kwnames);
    PyObject *received = ask(tx, PyTuple_GET_ITEM(pair, 0), args, n);
    if (received == NULL)
        return failed_to_receive(tx, args[0]);
    PyObject *data = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(args[1]), PyLong_AsSsize_t(received));
    if (data == NULL || undo_receiving(tx, args[0], data) < 0)
        Py_CLEAR(received);
    Py_XDECREF(data);
    return received;
}

PyObject *
unset_bytearray(PyObject *Py_UNUSED(module), PyObject *size)
{
    if (!PyLong_CheckExact(size) || PyLong_AsSsize_t(size) < 0) {
        PyErr_Clear();
        return PyObject_CallOneArg((PyObject *)&PyByteArray_Type, size);
    }
    PyObject *made = PyByteArray_FromStringAndSize(NULL, PyLong_AsSsize_t(size));
    Tx *tx = stm_open;
    if (tx != NULL && made != NULL)
        note_captured(tx, made);
    return made;
}

/* ---- Sending ------------------------------------------------------------------------------------------------------- */

/* send(bytes) */
static PyObject *
send_later(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    bool usual = n == 2 && kwnames == NULL && (PyBytes_CheckExact(args[1]) || PyByteArray_CheckExact(args[1]) || PyMemoryView_Check(args[1]));
    if (usual && is_alone_with(args[0])) {
        int fd = fileno_of(args[0]);
        if (!has_outbox(fd) && !PyErr_Occurred()) {
            answers_follow();
            return PyObject_Vectorcall(PyTuple_GET_ITEM(pair, 0), args, n, NULL);
        }
    }
    Tx *tx = usual ? transaction_of(args[0]) : NULL;
    return tx == NULL ? by_twin(pair, args, n, kwnames) : put_off(NULL, args, 2);
}

static PyObject *send_pair;     /* socket.send and its twin */

static PyObject *
send_in_order(PyObject *sock, PyObject *const *args, Py_ssize_t n)
{
    PyObject *given[] = {sock, n > 0 ? args[0] : NULL, n > 1 ? args[1] : NULL};
    if (n == 1 || n == 2)
        return send_later(send_pair, given, n + 1, NULL);
    PyObject *all = PyTuple_New(n + 1);
    if (all == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i <= n; i++)
        PyTuple_SET_ITEM(all, i, Py_NewRef(i == 0 ? sock : args[i - 1]));
    PyObject *r = PyObject_Call(PyTuple_GET_ITEM(send_pair, 0), all, NULL);      /* which says what is wrong */
    Py_DECREF(all);
    return r;
}

PyObject *
socket_send(PyObject *Py_UNUSED(module), PyObject *pair)
{
    static PyMethodDef method = {"send", _PyCFunction_CAST(send_in_order), METH_FASTCALL, NULL};
    if (PyTuple_GET_SIZE(pair) != 2 || !Py_IS_TYPE(PyTuple_GET_ITEM(pair, 0), &PyMethodDescr_Type)) {
        PyErr_SetString(PyExc_TypeError, "socket_send() takes a method and its twin");
        return NULL;
    }
    method.ml_doc = ((PyMethodDescrObject *)PyTuple_GET_ITEM(pair, 0))->d_method->ml_doc;
    Py_XSETREF(send_pair, Py_NewRef(pair));
    return PyDescr_NewMethod(PyDescr_TYPE(PyTuple_GET_ITEM(pair, 0)), &method);
}

/* ---- Options --------------------------------------------------------------------------------------------------------- */

/* One that has TCP's options, and is not closed. */
static bool
is_tcp(PyObject *sock)
{
    long family = fact_of_socket(socket_methods.family, sock), proto = fact_of_socket(socket_methods.proto, sock);
    bool is = (family == AF_INET || family == AF_INET6) && fact_of_socket(socket_methods.type, sock) == SOCK_STREAM
        && (proto == 0 || proto == IPPROTO_TCP) && fileno_of(sock) >= 0;
    PyErr_Clear();
    return is;
}

/* setsockopt(IPPROTO_TCP, TCP_NODELAY or TCP_CORK, number): it says how bytes are sent, so it is set in order with the sending. */
static PyObject *
set_option(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    bool usual = n == 4 && kwnames == NULL;
    for (Py_ssize_t i = 1; usual && i < n; i++)
        usual = PyLong_CheckExact(args[i]) || PyBool_Check(args[i]);
    if (usual) {
        long level = PyLong_AsLong(args[1]), option = PyLong_AsLong(args[2]);
        PyLong_AsInt(args[3]);
        usual = !PyErr_Occurred() && level == IPPROTO_TCP && (option == TCP_NODELAY || option == TCP_CORK);
        PyErr_Clear();      /* a number that is too large: the twin says so */
    }
    if (usual && is_alone_with(args[0]))
        return PyObject_Vectorcall(PyTuple_GET_ITEM(pair, 0), args, n, NULL);
    Tx *tx = usual ? transaction_of(args[0]) : NULL;
    if (tx == NULL || !is_tcp(args[0]))
        return by_twin(pair, args, n, kwnames);
    PyObject *call[] = {set_now, args[0], args[1], args[2], args[3]};
    return tx_defer(call, 5) < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
set_option_now(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    PyObject *r = PyObject_Vectorcall(socket_methods.setsockopt, args, n, NULL);
    if (r == NULL && PyErr_ExceptionMatches(PyExc_OSError)) {
        PyErr_Clear();      /* the peer may have gone between the call and the commit */
        return Py_NewRef(Py_None);
    }
    return r;
}

/* ---- Registering ------------------------------------------------------------------------------------------------------- */

#define SHORT_WAY(name, f) {name, _PyCFunction_CAST(f), METH_FASTCALL | METH_KEYWORDS, NULL}
static PyMethodDef socket_ways[] = {
    SHORT_WAY("recv", receive),
    SHORT_WAY("recv_into", receive_into),
    SHORT_WAY("send", send_later),
    SHORT_WAY("setsockopt", set_option),
    {NULL, NULL, 0, NULL},
};

PyObject *
socket_way(PyObject *Py_UNUSED(module), PyObject *pair)
{
    if (PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "socket_way() takes a method and its twin");
        return NULL;
    }
    return find_twin(socket_ways, PyTuple_GET_ITEM(pair, 0), pair);
}

int
sockets_init(PyObject *module)
{
    set_now = PyObject_GetAttrString(module, "set_option_now");
    unnoticed_action = Py_XNewRef(set_now);
    return set_now != NULL ? 0 : -1;
}
