/* The outbox of a socket: what committed transactions have sent, and the kernel has not taken. */
#include "outbox.h"

#include "../core/latch.h"
#include "../core/publish.h"
#include "../core/tx.h"
#include "../deferred.h"
#include "../dispatch/dispatcher.h"
#include "../objects/access.h"
#include "../objects/deep.h"
#include "room.h"

#include "internal/pycore_lock.h"
#include "internal/pycore_tstate.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

SocketMethods socket_methods;
static PyObject *transmit_method;

/* ---- One of them ---------------------------------------------------------------------------------------- */

typedef struct Chunk {
    struct Chunk *next;
    PyObject *write;            /* what gives it to the kernel, or NULL: as it is */
    PyObject *data;             /* bytes */
    bool begins;                /* it does not go to the kernel together with the one before */
} Chunk;

/* Invariants (under `lock`): the kernel gets the chunks in order, and nothing past them; `size`, `parts` and `pieces` count what is in
 * them plus what running transactions have put aside, so they may be a little too large, never too small; `sock` is there while
 * `parts` is not 0.  The lock is held while the kernel is given something: that waits for nobody. */
typedef struct {
    PyObject_HEAD
    PyObject *sock;             /* or NULL */
    int fd;
    ino_t file;                 /* that tells the socket from the next one which has its number: not all are closed by socket.close() */
    PyObject *dispatcher;       /* that polls for it, or NULL */
    Latch lock;
    Chunk *first, **end;
    Py_ssize_t size, parts, pieces;     /* bytes; what was sent, one by one; and that put together for the kernel */
    PyObject *error;            /* what the kernel has said of earlier bytes, or NULL */
    int shutdown;               /* how it is to be shut down when all is sent; -1: not */
    bool closing;               /* it is to be closed then */
    uint64_t sender;            /* the attempt that has put something aside last, */
    int times;                  /* and how often */
} Outbox;

/* An attempt that sends more often than that may go on until it hears that the peer is gone: from there on it sends at once. */
#define MANY_TIMES 1000

/* So many parts go to the kernel together, at most. */
#define MANY_PARTS 256

#define PATIENCE_MS 2000

static PyTypeObject Outbox_Type;

static Outbox *
new_outbox(PyObject *sock, int fd)
{
    Outbox *box = PyObject_GC_New(Outbox, &Outbox_Type);
    if (box == NULL)
        return NULL;
    Dispatcher *d = dispatcher_of(((_PyThreadStateImpl *)PyThreadState_Get())->asyncio_running_loop);
    box->sock = Py_NewRef(sock);
    box->fd = fd;
    box->file = file_of(fd);
    box->dispatcher = Py_XNewRef((PyObject *)d);
    box->lock = (Latch){0};
    box->first = NULL;
    box->end = &box->first;
    box->size = box->parts = box->pieces = 0;
    box->error = NULL;
    box->shutdown = -1;
    box->closing = false;
    box->sender = 0;
    box->times = 0;
    PyObject_GC_Track(box);
    return box;
}

static void
count_off(Outbox *box, Py_ssize_t size, bool begins)
{
    box->size -= size;
    box->parts--;
    box->pieces -= begins;
}

static void
drop_first(Outbox *box)
{
    Chunk *c = box->first;
    if ((box->first = c->next) == NULL)
        box->end = &box->first;
    count_off(box, PyBytes_GET_SIZE(c->data), c->begins);
    Py_XDECREF(c->write);
    Py_DECREF(c->data);
    PyMem_Free(c);
}

static void
drop_all(Outbox *box)
{
    while (box->first != NULL)
        drop_first(box);
}

static int
outbox_traverse(PyObject *self, visitproc visit, void *arg)
{
    Outbox *box = (Outbox *)self;
    Py_VISIT(box->sock);
    Py_VISIT(box->dispatcher);
    Py_VISIT(box->error);
    for (Chunk *c = box->first; c != NULL; c = c->next)
        Py_VISIT(c->write);
    return 0;
}

static int
outbox_clear(PyObject *self)
{
    Outbox *box = (Outbox *)self;
    drop_all(box);
    Py_CLEAR(box->sock);
    Py_CLEAR(box->dispatcher);
    Py_CLEAR(box->error);
    return 0;
}

static void
outbox_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    outbox_clear(self);
    PyObject_GC_Del(self);
}

/* ---- Which socket has which --------------------------------------------------------------------------------
 * By the numbers of descriptors.  An empty one is dropped, or what is left of it is an error that keeps no socket alive; but not while a
 * transaction may be about to put something into it: both happen under the place's lock. */

#define PAGE 1024
#define PAGES 16384
typedef struct { Latch lock; Outbox *box; } Position;
static Position *_Atomic pages[PAGES];

/* NULL where no socket has had one yet. */
static Position *
known_place(int fd)
{
    Position *page = fd >= 0 && fd < PAGE * PAGES ? atomic_load_explicit(&pages[fd / PAGE], memory_order_acquire) : NULL;
    return page != NULL ? &page[fd % PAGE] : NULL;
}

bool
has_outbox(int fd)
{
    Position *place = known_place(fd);
    if (place == NULL)
        return false;
    latch_take(&place->lock);
    bool has = place->box != NULL;
    latch_give(&place->lock);
    return has;
}

/* NULL with an exception. */
static Position *
place_of(int fd)
{
    if (fd < 0 || fd >= PAGE * PAGES) {
        PyErr_Format(PyExc_ValueError, "descriptor %d: this engine knows those below %d", fd, PAGE * PAGES);
        return NULL;
    }
    Position *page = atomic_load_explicit(&pages[fd / PAGE], memory_order_acquire);
    if (page == NULL) {
        Position *made = PyMem_RawCalloc(PAGE, sizeof(Position));
        if (made == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        if (atomic_compare_exchange_strong(&pages[fd / PAGE], &page, made))
            page = made;
        else
            PyMem_RawFree(made);
    }
    return &page[fd % PAGE];
}

static void
drop_if_empty(Outbox *box)
{
    Position *place = known_place(box->fd);
    Outbox *dropped = NULL;
    PyObject *sock = NULL;
    latch_take(&place->lock);
    latch_take(&box->lock);
    if (box->parts == 0 && box->error != NULL) {
        sock = box->sock;
        box->sock = NULL;
    }
    else if (box->parts == 0 && place->box == box) {
        dropped = box;
        place->box = NULL;
    }
    latch_give(&box->lock);
    latch_give(&place->lock);
    Py_XDECREF(sock);
    Py_XDECREF((PyObject *)dropped);
}

void
outboxes_in_child(void)
{
    for (int i = 0; i < PAGES; i++) {
        Position *page = atomic_load(&pages[i]);
        for (int k = 0; page != NULL && k < PAGE; k++) {
            page[k].lock = (Latch){0};
            Outbox *box = page[k].box;
            if (box != NULL) {      /* the parent sends what waits, and nothing may die here */
                box->lock = (Latch){0};
                box->first = NULL;
                box->end = &box->first;
                box->size = box->parts = box->pieces = 0;
            }
        }
    }
}

int
fileno_of(PyObject *sock)
{
    PyObject *number = PyObject_CallOneArg(socket_methods.fileno, sock);
    int fd = number != NULL ? PyLong_AsInt(number) : -2;
    Py_XDECREF(number);
    return number != NULL && fd == -1 && PyErr_Occurred() ? -2 : fd;
}

long
fact_of_socket(PyObject *descriptor, PyObject *sock)
{
    PyObject *value = Py_TYPE(descriptor)->tp_descr_get(descriptor, sock, (PyObject *)Py_TYPE(sock));
    long number = value != NULL ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* ---- Giving it to the kernel ---------------------------------------------------------------------------------- */

/* It can be called, and what OSError it raises does not matter. -1 with another exception. */
static int
call_quietly(PyObject *method, PyObject *sock, PyObject *argument)
{
    PyObject *r = PyObject_CallFunctionObjArgs(method, sock, argument, NULL);
    Py_XDECREF(r);
    if (r == NULL && PyErr_ExceptionMatches(PyExc_OSError)) {
        PyErr_Clear();      /* the peer is gone: nobody is left to be told */
        return 0;
    }
    return r == NULL ? -1 : 0;
}

/* As many of the first chunks as go together: how much the kernel has taken; -1 with an exception. */
static Py_ssize_t
send_plain(Outbox *box)
{
    struct iovec parts[MANY_PARTS];
    struct msghdr message = {.msg_iov = parts};
    for (Chunk *c = box->first; c != NULL && c->write == NULL && message.msg_iovlen < MANY_PARTS; c = c->next)
        parts[message.msg_iovlen++] = (struct iovec){PyBytes_AS_STRING(c->data), PyBytes_GET_SIZE(c->data)};
    /* Even if the program has made it one that blocks. */
    ssize_t sent = sendmsg(box->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    return sent;
}

/* What a call that has sent something returned, and takes: how much; -1 with an exception. */
static Py_ssize_t
sent_by(PyObject *r)
{
    Py_ssize_t sent = r != NULL ? PyLong_AsSsize_t(r) : -1;
    Py_XDECREF(r);
    return sent;
}

/* What the kernel takes of the first chunks.  1: more of it, perhaps; 0: no more now; -1 with an exception. */
static int
send_first(Outbox *box)
{
    Py_ssize_t sent = box->first->write != NULL ? sent_by(PyObject_CallOneArg(box->first->write, box->first->data)) : send_plain(box);
    if (sent < 0) {
        if (PyErr_ExceptionMatches(PyExc_BlockingIOError) || PyErr_ExceptionMatches(PyExc_InterruptedError)) {
            PyErr_Clear();
            return 0;
        }
        if (!PyErr_ExceptionMatches(PyExc_OSError))
            return -1;
        Py_XSETREF(box->error, PyErr_GetRaisedException());
        drop_all(box);
        return 1;
    }
    while (box->first != NULL && sent >= PyBytes_GET_SIZE(box->first->data)) {
        sent -= PyBytes_GET_SIZE(box->first->data);
        drop_first(box);
    }
    if (sent == 0)
        return 1;
    Chunk *c = box->first;
    PyObject *rest = PyBytes_FromStringAndSize(PyBytes_AS_STRING(c->data) + sent, PyBytes_GET_SIZE(c->data) - sent);
    if (rest == NULL)
        return -1;
    Py_SETREF(c->data, rest);
    box->size -= sent;
    return 1;
}

/* With its lock: 1 when nothing is left, 0 when something is; -1 with an exception. */
static int
flush_locked(Outbox *box)
{
    while (box->first != NULL) {
        int more = send_first(box);
        if (more <= 0)
            return more;
    }
    int r = 0;
    if (box->shutdown >= 0) {
        PyObject *how = PyLong_FromLong(box->shutdown);
        box->shutdown = -1;
        r = how != NULL ? call_quietly(socket_methods.shutdown, box->sock, how) : -1;
        Py_XDECREF(how);
    }
    if (r == 0 && box->closing) {
        PyObject *closed = PyObject_CallOneArg(socket_methods.close, box->sock);
        Py_XDECREF(closed);
        r = closed != NULL ? 0 : -1;
    }
    return r < 0 ? -1 : 1;
}

/* The same, without it. */
static int
flush(Outbox *box)
{
    latch_take(&box->lock);
    bool is_another = file_of(box->fd) != box->file;
    if (UNLIKELY(is_another)) {     /* nobody is left to send it to */
        drop_all(box);
        box->shutdown = -1;
        box->closing = false;
    }
    int all = flush_locked(box);
    latch_give(&box->lock);
    if (all > 0)
        drop_if_empty(box);
    return all;
}

static PyObject *
outbox_flush(PyObject *self, PyObject *Py_UNUSED(unused))
{
    int all = flush((Outbox *)self);
    return all < 0 ? NULL : PyBool_FromLong(all);
}

/* When the kernel takes more; where no loop polls for it, this thread waits for that: of a loop that has been closed not for ever, for what
 * reads at the other end may wait for this very thread. */
static int
flush_later(Outbox *box)
{
    int polled = box->dispatcher != NULL ? dispatcher_flush_later((Dispatcher *)box->dispatcher, (PyObject *)box) : 0;
    if (polled != 0)
        return polled < 0 ? -1 : 0;
    if (stm_self != NULL)
        publishing_ends(stm_self);      /* the peer may be one that waits for that */
    for (;;) {
        int all = flush(box);
        if (all != 0)
            return all < 0 ? -1 : 0;
        struct pollfd writable = {.fd = box->fd, .events = POLLOUT};
        int room;
        Py_BEGIN_ALLOW_THREADS
        room = poll(&writable, 1, box->dispatcher != NULL ? PATIENCE_MS : -1);
        Py_END_ALLOW_THREADS
        if (room == 0) {
            latch_take(&box->lock);
            drop_all(box);
            latch_give(&box->lock);
        }
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
}

/* Of the deferred action: does it send plain bytes by this outbox? */
static bool
sends_plainly(PyObject *action, Outbox *box)
{
    PyObject *args = PyTuple_GET_ITEM(action, 1);
    return PyTuple_GET_ITEM(action, 0) == transmit_method && PyTuple_GET_ITEM(args, 0) == (PyObject *)box && PyTuple_GET_ITEM(args, 2) == Py_None;
}

/* transmit(bytes, write or None, begins), at the commit: send it, or queue what the kernel does not take now.  What is to be sent next goes
 * together with it: it is one piece on the wire, and nobody receives one half of what a step has sent. */
static PyObject *
outbox_transmit(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Outbox *box = (Outbox *)self;
    if (n != 3 || !PyBytes_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "transmit() takes bytes, what gives them to the kernel or None, and whether they begin a piece");
        return NULL;
    }
    PyObject *next = stm_self != NULL ? stm_self->next_deferred : NULL;
    bool goes_on = next != NULL && args[1] == Py_None && sends_plainly(next, box);
    Chunk *chunk = PyMem_Malloc(sizeof(Chunk));
    if (chunk == NULL)
        return PyErr_NoMemory();
    *chunk = (Chunk){NULL, args[1] != Py_None ? Py_NewRef(args[1]) : NULL, Py_NewRef(args[0]), args[2] == Py_True};
    answers_follow();
    latch_take(&box->lock);
    *box->end = chunk;
    box->end = &chunk->next;
    int all = 1;
    if (UNLIKELY(box->error != NULL))
        drop_all(box);
    else if (!goes_on)
        all = flush_locked(box);
    latch_give(&box->lock);
    if (goes_on)
        Py_RETURN_NONE;
    if (all > 0)
        drop_if_empty(box);
    if (all < 0 || (all == 0 && flush_later(box) < 0))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Putting something aside ------------------------------------------------------------------------------------ */

static int
give_back(Tx *Py_UNUSED(tx), Undo *u)
{
    Outbox *box = (Outbox *)u->obj;
    latch_take(&box->lock);
    count_off(box, u->n, u->hash);
    latch_give(&box->lock);
    drop_if_empty(box);
    return 0;
}

static const UndoKind undo_put_aside = {.what = "what it has put aside to be sent", .undo = give_back};

/* Whoever was told of the error is no more: the next attempt is told again. */
static int
tell_again(Tx *Py_UNUSED(tx), Undo *u)
{
    Outbox *box = (Outbox *)u->obj;
    Position *place = known_place(box->fd);
    latch_take(&place->lock);
    if (place->box == NULL)
        place->box = (Outbox *)Py_NewRef(u->obj);
    box = place->box;
    latch_take(&box->lock);
    PyObject *told = box->error;
    box->error = Py_NewRef(u->old);
    latch_give(&box->lock);
    latch_give(&place->lock);
    Py_XDECREF(told);
    return 0;
}

static const UndoKind undo_told = {.what = "the error of what was sent", .undo = tell_again};

/* In bytes; -1 with an exception. */
static Py_ssize_t
size_of(PyObject *data)
{
    if (PyBytes_CheckExact(data))
        return PyBytes_GET_SIZE(data);
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    PyBuffer_Release(&view);
    return view.len;
}

/* So much of the data, as bytes of their own. */
static PyObject *
beginning_of(PyObject *data, Py_ssize_t room)
{
    if (PyBytes_CheckExact(data) && PyBytes_GET_SIZE(data) <= room)
        return Py_NewRef(data);
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(view.buf, view.len < room ? view.len : room);
    PyBuffer_Release(&view);
    return bytes;
}

/* What the kernel would say next: a connection that is gone stays so.  NULL: nothing. */
static PyObject *
error_after(PyObject *error)
{
    if (!PyErr_GivenExceptionMatches(error, PyExc_ConnectionError))
        return NULL;
    PyObject *next = PyObject_CallFunction(PyExc_OSError, "is", EPIPE, strerror(EPIPE));
    PyErr_Clear();
    return next;
}

/* With the lock: whoever sends is told of the error. */
static void
tell_error(Outbox *box)
{
    PyObject *error = box->error;
    box->error = error_after(error);
    PyErr_SetRaisedException(error);
}

static PyObject *
tell_of_no_room(void)
{
    errno = EAGAIN;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* With the locks of both: reserve room, and take so much of the data; NULL with an exception, or without one: whoever sends is to
 * hear from the kernel itself. */
static PyObject *
put_aside(Tx *tx, Outbox *box, PyObject *data, bool plain, bool begins)
{
    if (box->error != NULL) {
        if (undo_push(tx, &undo_told, (PyObject *)box, NULL, box->error) != NULL)
            tell_error(box);
        return NULL;
    }
    Py_ssize_t wanted = size_of(data);
    if (wanted < 0)
        return NULL;
    Py_ssize_t room = box->first != NULL ? 0 : plain ? room_in_kernel(box->fd, wanted, box->size, box->pieces - !begins)
        : room_for_tls(box->fd, wanted, box->size);
    if (room == PEER_IS_GONE)
        return NULL;
    if (room == 0 && wanted > 0)
        return tell_of_no_room();
    PyObject *chunk = beginning_of(data, room);
    Undo *u = chunk != NULL ? undo_push(tx, &undo_put_aside, (PyObject *)box, NULL, NULL) : NULL;
    if (u == NULL) {
        Py_CLEAR(chunk);
        return NULL;
    }
    u->n = PyBytes_GET_SIZE(chunk);
    u->hash = begins;
    box->size += u->n;
    box->parts++;
    box->pieces += begins;
    return chunk;
}

/* With the lock: does this attempt send on and on? */
static bool
is_tireless(Tx *tx, Outbox *box)
{
    uint64_t attempt = attempt_of(tx) << 8 | (unsigned)tx->slot;
    if (box->sender != attempt) {
        box->sender = attempt;
        box->times = 0;
    }
    return ++box->times > MANY_TIMES;
}

/* With the lock: why the kernel is to be asked at once, or NULL. */
static const char *
why_at_once(Tx *tx, Outbox *box, PyObject *sock)
{
    if (owns(tx, cell_of(sock, SENDING_BITS)))      /* this transaction closes it, or shuts it down */
        return "sending after the end of that";
    return is_tireless(tx, box) ? "sending again and again" : NULL;
}

/* Alone, behind what has waited for the commit, which has been sent by then.  How much the kernel has taken; -1 with an exception. */
static Py_ssize_t
send_alone(Tx *tx, const char *why, Outbox *box, PyObject *sock, PyObject *data, PyObject *write)
{
    if (exclusive_for(tx, why, NULL) < 0)
        return -1;
    answers_follow();
    latch_take(&box->lock);     /* a thread that polls may be about to send the rest */
    if (box->error != NULL)
        tell_error(box);
    else if (box->first != NULL)
        tell_of_no_room();
    latch_give(&box->lock);
    if (PyErr_Occurred())
        return -1;
    return sent_by(write != Py_None ? PyObject_CallOneArg(write, data)
        : PyObject_CallFunctionObjArgs(socket_methods.send, sock, data, NULL));
}

/* Does this part go to the kernel together with what the transaction has sent just before? */
static bool
goes_on(Tx *tx, Outbox *box, PyObject *write)
{
    Py_ssize_t n = tx->deferred != NULL ? PyList_GET_SIZE(tx->deferred) : 0;
    return n > 0 && write == Py_None && box->times % MANY_PARTS != 0 && sends_plainly(PyList_GET_ITEM(tx->deferred, n - 1), box);
}

/* How much of the data there was room for, and will be sent at the commit; -1 with an exception. */
static Py_ssize_t
put(Tx *tx, PyObject *sock, int fd, PyObject *data, PyObject *write)
{
    Position *place = place_of(fd);
    if (place == NULL || lock_shared(tx, cell_of(sock, SENDING_BITS)) < 0)
        return -1;
    PyObject *chunk = NULL;
    const char *why = NULL;
    bool begins = true;
    latch_take(&place->lock);
    Outbox *box = place->box, *of_another = NULL;
    if (UNLIKELY(box != NULL && box->sock != sock && box->file != file_of(fd))) {
        of_another = box;
        box = NULL;
    }
    if (box == NULL)
        box = place->box = new_outbox(sock, fd);
    if (box != NULL) {
        Py_INCREF(box);
        latch_take(&box->lock);
        if (box->sock == NULL)
            box->sock = Py_NewRef(sock);
        why = why_at_once(tx, box, sock);
        begins = !goes_on(tx, box, write);
        if (why == NULL)
            chunk = put_aside(tx, box, data, write == Py_None, begins);
        latch_give(&box->lock);
    }
    latch_give(&place->lock);
    Py_XDECREF((PyObject *)of_another);
    Py_ssize_t size = -1;
    if (chunk == NULL && box != NULL && !PyErr_Occurred())
        size = send_alone(tx, why != NULL ? why : "sending to a peer that is gone", box, sock, data, write);
    if (chunk != NULL && tx_defer((PyObject *const[]){transmit_method, (PyObject *)box, chunk, write, begins ? Py_True : Py_False}, 5) == 0)
        size = PyBytes_GET_SIZE(chunk);
    if (chunk == NULL && box != NULL) {
        PyObject *exception = PyErr_GetRaisedException();
        drop_if_empty(box);
        PyErr_SetRaisedException(exception);
    }
    Py_XDECREF(chunk);
    Py_XDECREF((PyObject *)box);
    return size;
}

/* ---- For Python ------------------------------------------------------------------------------------------------- */

PyObject *
put_off(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n < 2 || n > 3) {
        PyErr_SetString(PyExc_TypeError, "put_off() takes a socket, bytes and what gives them to the kernel");
        return NULL;
    }
    Tx *tx = live_tx();
    if (tx == NULL || tx->grade == GRADE_EXCLUSIVE) {
        PyErr_SetString(PyExc_RuntimeError, "put_off() is for transactions that can be rolled back");
        return NULL;
    }
    if (!PyBytes_CheckExact(args[1]) && open_deep_read(tx, args[1]) < 0)
        return NULL;
    int fd = fileno_of(args[0]);
    if (fd == -2)
        return NULL;
    /* Each datagram arrives or not, whatever became of the one before, and has a room of its own in the kernel: who sends is told at once. */
    bool stream = fd < 0 || fact_of_socket(socket_methods.type, args[0]) == SOCK_STREAM;
    if (PyErr_Occurred() || (!stream && exclusive_for(tx, "sending a datagram", NULL) < 0))
        return NULL;
    if (fd < 0 || !stream)      /* of one that is closed it raises what it has to */
        return PyObject_CallFunctionObjArgs(socket_methods.send, args[0], args[1], NULL);
    Py_ssize_t size = put(tx, args[0], fd, args[1], n > 2 ? args[2] : Py_None);
    return size < 0 ? NULL : PyLong_FromSsize_t(size);
}

PyObject *
sends_no_more(PyObject *Py_UNUSED(module), PyObject *sock)
{
    Tx *tx = live_tx();
    bool first;
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && lock_exclusive(tx, cell_of(sock, SENDING_BITS), &first) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
outbox_of(PyObject *fd, bool take)
{
    int number = PyLong_AsInt(fd);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    Position *place = known_place(number);
    Outbox *box = NULL;
    bool of_another = false;
    if (place != NULL) {
        latch_take(&place->lock);
        box = place->box;
        of_another = box != NULL && box->file != file_of(number);
        if (take || of_another)
            place->box = NULL;
        else
            Py_XINCREF((PyObject *)box);
        latch_give(&place->lock);
    }
    if (of_another)
        Py_CLEAR(box);
    return box != NULL ? (PyObject *)box : Py_NewRef(Py_None);
}

PyObject *find_outbox(PyObject *Py_UNUSED(module), PyObject *fd) { return outbox_of(fd, false); }
PyObject *take_outbox(PyObject *Py_UNUSED(module), PyObject *fd) { return outbox_of(fd, true); }

/* shut_down_later(how) */
static PyObject *
outbox_shut_down_later(PyObject *self, PyObject *how)
{
    Outbox *box = (Outbox *)self;
    int number = PyLong_AsInt(how);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    latch_take(&box->lock);
    bool waits = box->first != NULL;
    if (waits)
        box->shutdown = number;
    latch_give(&box->lock);
    return PyBool_FromLong(waits);
}

/* close_later(replace) */
static PyObject *
outbox_close_later(PyObject *self, PyObject *replace)
{
    Outbox *box = (Outbox *)self;
    PyObject *replaced = NULL;
    latch_take(&box->lock);
    bool waits = box->first != NULL;
    PyObject *other = waits ? PyObject_CallOneArg(replace, box->sock) : NULL;
    if (other != NULL) {
        replaced = box->sock;
        box->sock = other;
        box->closing = true;
    }
    latch_give(&box->lock);
    Py_XDECREF(replaced);
    if (waits && (other == NULL || flush_later(box) < 0))
        return NULL;
    return PyBool_FromLong(waits);
}

static PyObject *
outbox_waiting(PyObject *self, void *Py_UNUSED(closure))
{
    Outbox *box = (Outbox *)self;
    latch_take(&box->lock);
    bool waits = box->first != NULL;
    latch_give(&box->lock);
    return PyBool_FromLong(waits);
}

static PyMethodDef outbox_methods[] = {
    {"flush", outbox_flush, METH_NOARGS, PyDoc_STR("flush($self, /)\n--\n\nSend what the kernel takes; True when nothing is left.")},
    {"transmit", _PyCFunction_CAST(outbox_transmit), METH_FASTCALL,
     PyDoc_STR("transmit($self, data, write, begins, /)\n--\n\nAt the commit: send these bytes, by write(data) if that is not None, or queue"
               " what the kernel does not take now.  Unless they begin a piece, they go together with those before.")},
    {"shut_down_later", outbox_shut_down_later, METH_O,
     PyDoc_STR("shut_down_later($self, how, /)\n--\n\nShut the socket down when all is sent; False, without doing that, if nothing waits.")},
    {"close_later", outbox_close_later, METH_O,
     PyDoc_STR("close_later($self, replace, /)\n--\n\nClose the socket when all is sent: until then the descriptor belongs to"
               " replace(socket); False, without doing that, if nothing waits.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef outbox_members[] = {
    {"fd", Py_T_INT, offsetof(Outbox, fd), Py_READONLY, PyDoc_STR("the number of its descriptor")},
    {"size", Py_T_PYSSIZET, offsetof(Outbox, size), Py_READONLY,
     PyDoc_STR("how many bytes wait to be sent, with those that running transactions have put aside")},
    {"error", _Py_T_OBJECT, offsetof(Outbox, error), 0,
     PyDoc_STR("what the kernel has said of bytes that were sent, and nobody has been told; or None")},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef outbox_getset[] = {
    {"waiting", outbox_waiting, NULL, PyDoc_STR("is there anything that the kernel has not taken yet?"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Outbox(socket), in the place of what that socket had: for tests */
static PyObject *
outbox_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *sock;
    if (!PyArg_ParseTuple(args, "O", &sock))
        return NULL;
    int fd = fileno_of(sock);
    Position *place = fd != -2 ? place_of(fd) : NULL;
    Outbox *box = place != NULL ? new_outbox(sock, fd) : NULL;
    if (box == NULL)
        return NULL;
    latch_take(&place->lock);
    Outbox *before = place->box;
    place->box = (Outbox *)Py_NewRef((PyObject *)box);
    latch_give(&place->lock);
    Py_XDECREF((PyObject *)before);
    return (PyObject *)box;
}

static PyTypeObject Outbox_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Outbox",
    .tp_doc = PyDoc_STR("What committed transactions have sent by a socket, and the kernel has not taken."),
    .tp_basicsize = sizeof(Outbox),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = outbox_new,
    .tp_dealloc = outbox_dealloc,
    .tp_traverse = outbox_traverse,
    .tp_clear = outbox_clear,
    .tp_methods = outbox_methods,
    .tp_members = outbox_members,
    .tp_getset = outbox_getset,
};

PyObject *
sockets_begin(PyObject *Py_UNUSED(module), PyObject *args)
{
    SocketMethods m;
    if (!PyArg_ParseTuple(args, "OOOOOOOOO", &m.send, &m.setsockopt, &m.close, &m.shutdown, &m.fileno, &m.gettimeout, &m.family, &m.type, &m.proto))
        return NULL;
    Py_INCREF(args);        /* for ever */
    socket_methods = m;
    Py_RETURN_NONE;
}

int
outbox_init(PyObject *module)
{
    if (PyType_Ready(&Outbox_Type) < 0 || PyModule_AddObjectRef(module, "Outbox", (PyObject *)&Outbox_Type) < 0)
        return -1;
    transmit_method = PyObject_GetAttrString((PyObject *)&Outbox_Type, "transmit");
    return transmit_method != NULL ? 0 : -1;
}
