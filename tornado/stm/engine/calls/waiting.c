/* C functions that wait: for a lock, a thread, a process, a descriptor, or for time to pass.
 *
 * On upstream a loop that waits so keeps nobody but itself waiting, and what it waits for may be done by another one: a blocking portal into a
 * loop in a thread, a job of an executor that runs a loop, a server and its blocking client.  Here, who waits runs alone (mutex.c, the effects of
 * calls), so others could not begin.  So it lends its turn (contention.c): transactions of other loops and queues run meanwhile, and none of its own.
 *
 * To those others a step is whole as long as it does not wait.  So what is there already is taken without lending: that is tried first.  And a call
 * that waits no longer than it takes lends only when it comes again and again, since the step may wait by asking.
 *
 * Within the time that is lent no code of the program's may run on this thread.  So calls whose arguments could have some run (``__index__``, a
 * buffer in Python, an encoding) do not lend, and none does where Python code audits the interpreter.
 *
 * Handlers of signals run on the main thread, and break off what waits there.  So if that runs the transaction's queue, it waits in the place of the
 * thread that the transaction is on (anchor.c); and what has arrived before is handled first, in this transaction.
 *
 * The functions are stood in for where their types and modules have them, since code that runs alone calls them without a barrier.
 */
#include "waiting.h"

#include "anchor.h"

#include "../core/queue.h"
#include "../core/transaction.h"
#include "../core/tx.h"
#include "../objects/mutex.h"
#include "../sockets/socket.h"

#include "internal/pycore_ceval.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_long.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- What is called, and how -------------------------------------------------------------------- */

typedef enum { TAKES, RESTORES, TAKES_SEMAPHORE, GETS, JOINS, SLEEPS, WAITS_FOR_CHILD, SELECTS, POLLS, RECEIVES, SENDS, READS, READS_FILE } How;

static struct { const char *module, *type, *name; How how; } functions[] = {
    {"_thread", "lock", "acquire", TAKES},
    {"_thread", "lock", "acquire_lock", TAKES},
    {"_thread", "lock", "__enter__", TAKES},
    {"_thread", "RLock", "acquire", TAKES},
    {"_thread", "RLock", "__enter__", TAKES},
    {"_thread", "RLock", "_acquire_restore", RESTORES},
    {"_thread", "_ThreadHandle", "join", JOINS},
    {"_multiprocessing", "SemLock", "acquire", TAKES_SEMAPHORE},
    {"_queue", "SimpleQueue", "get", GETS},
    {"time", NULL, "sleep", SLEEPS},
    {"posix", NULL, "waitpid", WAITS_FOR_CHILD},
    {"posix", NULL, "read", READS},
    {"_io", "FileIO", "read", READS_FILE},
    {"_io", "FileIO", "readall", READS_FILE},
    {"_io", "FileIO", "readinto", READS_FILE},
    {"select", NULL, "select", SELECTS},
    {"select", "poll", "poll", POLLS},
    {"select", "epoll", "poll", POLLS},
    {"_socket", "socket", "_accept", RECEIVES},
    {"_socket", "socket", "recv", RECEIVES},
    {"_socket", "socket", "recv_into", RECEIVES},
    {"_socket", "socket", "recvfrom", RECEIVES},
    {"_socket", "socket", "connect", SENDS},
    {"_socket", "socket", "send", SENDS},
    {"_socket", "socket", "sendall", SENDS},
};
#define FOR_ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) \
    X(22) X(23) X(24)
#define COUNT (sizeof functions / sizeof functions[0])

static void *originals[COUNT];

/* The arguments, in whichever way they have come. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *names;        /* of those behind the n, or NULL */
    PyObject *kwds;         /* a dict, or NULL */
} Given;

/* Borrowed; NULL: not given. */
static PyObject *
argument(const Given *g, Py_ssize_t position, const char *name)
{
    if (position < g->n)
        return g->args[position];
    for (Py_ssize_t i = 0; g->names != NULL && i < PyTuple_GET_SIZE(g->names); i++) {
        if (PyUnicode_EqualToUTF8(PyTuple_GET_ITEM(g->names, i), name))
            return g->args[g->n + i];
    }
    return g->kwds != NULL ? PyDict_GetItemString(g->kwds, name) : NULL;
}

static bool
is_plain(PyObject *o)
{
    if (PyTuple_CheckExact(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
            if (!is_plain(PyTuple_GET_ITEM(o, i)))
                return false;
        }
        return true;
    }
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBytes_CheckExact(o) || PyByteArray_CheckExact(o)
        || PyMemoryView_Check(o) || (PyUnicode_CheckExact(o) && PyUnicode_IS_ASCII(o));
}

static bool
are_plain(const Given *g)
{
    Py_ssize_t n = g->n + (g->names != NULL ? PyTuple_GET_SIZE(g->names) : 0), pos = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!is_plain(g->args[i]))
            return false;
    }
    PyObject *key, *value;
    while (g->kwds != NULL && PyDict_Next(g->kwds, &pos, &key, &value)) {
        if (!is_plain(value))
            return false;
    }
    return true;
}

/* Of what is plain. */
static double
number(PyObject *o, double otherwise)
{
    return o == NULL || o == Py_None ? otherwise : PyFloat_CheckExact(o) ? PyFloat_AS_DOUBLE(o)
        : PyLong_Check(o) && PyUnstable_Long_IsCompact((PyLongObject *)o) ? (double)PyUnstable_Long_CompactValue((PyLongObject *)o) : otherwise;
}

/* ---- Is there anything to wait for? ----------------------------------------------------------------- */

static bool
is_ready(int fd, short events)
{
    struct pollfd one = {.fd = fd, .events = events};
    return poll(&one, 1, 0) != 0;
}

static int
descriptor_of(PyObject *o)
{
    int fd = PyObject_AsFileDescriptor(o);
    PyErr_Clear();
    return fd;
}

static bool
is_blocking(PyObject *socket)
{
    bool yes = may_block(socket) && !PyErr_Occurred();
    PyErr_Clear();
    return yes;
}

static bool
has_file_ready(int fd)
{
    struct stat found;
    return fd < 0 || fstat(fd, &found) < 0 || S_ISREG(found.st_mode) || S_ISDIR(found.st_mode) || is_ready(fd, POLLIN);
}

static bool
has_ended(PyObject *thread)
{
    PyObject *done = PyObject_CallMethod(thread, "is_done", NULL);
    PyErr_Clear();
    Py_XDECREF(done);
    return done == NULL || done == Py_True;
}

static bool
has_child_ended(double pid)
{
    siginfo_t info = {0};
    return pid > 0 && (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0);
}

/* Are these arguments of a lock's acquire() nothing that it complains about, and does it wait? */
static bool
is_usual_wait(const Given *g)
{
    PyObject *blocking = argument(g, 0, "blocking"), *timeout = argument(g, 1, "timeout");
    Py_ssize_t all = g->n + (g->names != NULL ? PyTuple_GET_SIZE(g->names) : 0) + (g->kwds != NULL ? PyDict_GET_SIZE(g->kwds) : 0);
    double seconds = number(timeout, -2);
    return all == (blocking != NULL) + (timeout != NULL) && (blocking == NULL || blocking == Py_True)
        && (timeout == NULL || seconds == -1 || (seconds >= 0 && seconds < 1e9));
}

/* The call of a method which does not wait. */
static PyObject *
at_once(PyObject *self, const char *method, PyObject *no)
{
    return no != NULL ? PyObject_CallMethod(self, method, "O", no) : PyObject_CallMethod(self, method, NULL);
}

/* What comes of the call without waiting, a new reference; NULL: it would wait, or there is an exception (`*failed`). */
static PyObject *
without_waiting(How how, PyObject *self, const Given *g, bool *failed)
{
    PyObject *result = NULL;
    if (how == TAKES)
        return is_usual_wait(g) && mutex_take_at_once(self) ? Py_NewRef(Py_True) : NULL;
    if (how == TAKES_SEMAPHORE)
        result = at_once(self, "acquire", Py_False);
    else if (how == POLLS)
        result = at_once(self, "poll", _PyLong_GetZero());
    else if (how == GETS && (Py_TYPE(self)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        result = at_once(self, "get_nowait", NULL);
    if (result == NULL && PyErr_Occurred()) {
        *failed = how != GETS || !PyErr_ExceptionMatches(PyExc_Exception);
        if (!*failed)
            PyErr_Clear();      /* it is empty */
    }
    else if (result == Py_False || (result != NULL && PyList_CheckExact(result) && PyList_GET_SIZE(result) == 0))
        Py_CLEAR(result);
    return result;
}

/* Does the call end at once, whatever there is? */
static bool
never_waits(How how, PyObject *self, const Given *g)
{
    PyObject *first = argument(g, 0, how == TAKES ? "blocking" : how == POLLS || how == JOINS ? "timeout" : "block");
    switch (how) {
    case GETS:
        if (number(argument(g, 1, "timeout"), 0) < 0)
            return true;    /* which it complains about */
        /* fall through */
    case TAKES: case TAKES_SEMAPHORE:
        return number(first, 1) == 0 || number(argument(g, 1, "timeout"), -1) == 0;
    case JOINS: return number(first, -1) == 0 || has_ended(self);
    case POLLS: return number(first, -1) == 0;
    case WAITS_FOR_CHILD:
        return ((int)number(argument(g, 1, ""), 0) & WNOHANG) != 0 || has_child_ended(number(argument(g, 0, ""), 0));
    case RECEIVES: return !is_blocking(self) || is_ready(descriptor_of(self), POLLIN);
    case SENDS: return !is_blocking(self);
    case READS: return has_file_ready((int)number(argument(g, 0, ""), -1));
    case READS_FILE: return has_file_ready(descriptor_of(self));
    default: return false;
    }
}

/* So many calls that do not wait, in one transaction: it waits by asking. */
#define OFTEN 1000

static bool
asks_often(Tx *tx)
{
    static _Thread_local uint64_t attempt;
    static _Thread_local int times;
    if (attempt != attempt_of(tx)) {
        attempt = attempt_of(tx);
        times = 0;
    }
    return ++times > OFTEN;
}

/* ---- The call ---------------------------------------------------------------------------------------- */

typedef enum { ENDED, GOES_ON, LENT, ELSEWHERE } Begun;

static bool
runs_alone(Tx *tx)
{
    /* In another interpreter that it has made, whose locks are the same C code, there are no transactions. */
    return UNLIKELY(tx != NULL && tx->live && tx->grade == GRADE_EXCLUSIVE) && tx->tstate == PyThreadState_GetUnchecked();
}

/* This thread waits for another one's transaction, and was about to begin one of its own: that must not get the turn meanwhile. */
static _Thread_local bool stepped_aside;

/* Has the turn been lent?  Not where Python code audits the interpreter. */
static bool
lend(Tx *tx)
{
    if (PyInterpreterState_Get()->audit_hooks != NULL)
        return false;
    stepped_aside = anchors_own() != NULL && give_up_turn(anchors_own());
    if (turn_lend(tx))
        return true;
    if (stepped_aside)
        ask_again(anchors_own());
    return false;
}

static void
take_back(Tx *tx)
{
    turn_take_back(tx);
    if (stepped_aside)
        ask_again(anchors_own());
    stepped_aside = false;
}

/* The queue that the transaction is of, if the main thread runs it. */
static Queue *
queue_of_main(Tx *tx)
{
    return tx->anchor == stm_main_thread && tx->txn != NULL ? tx->txn->queue : NULL;
}

/* Before the original is called: ENDED with what came of it; or is it the main thread that is to wait, or the turn lent, to be taken back
 * afterwards? */
static Begun
begin(int i, PyObject *self, const Given *g, PyObject **result)
{
    Tx *tx = stm_self;
    if (!runs_alone(tx) || !are_plain(g))
        return GOES_ON;
    How how = functions[i].how;
    if (never_waits(how, self, g))
        return asks_often(tx) && lend(tx) ? LENT : GOES_ON;
    bool failed = false;
    *result = without_waiting(how, self, g, &failed);
    if (*result != NULL || failed)
        return ENDED;
    Queue *q = queue_of_main(tx);
    if (q != NULL && !is_on_anchor(tx))
        return ELSEWHERE;
    /* What has arrived since code of Python has last looked would not wake it. */
    if (q != NULL && (PyErr_CheckSignals() < 0 || queue_make_calls(q) < 0))
        return ENDED;
    return lend(tx) ? LENT : GOES_ON;
}

/* A handler of a signal, while it waits: is it this transaction, which has lent its turn, that is interrupted? */
bool
interrupts_lent(void)
{
    return stm_self != NULL && atomic_load(&stm_self->contention.lends);
}

/* Call it in this transaction, which has lent its turn, and lends it again afterwards. */
PyObject *
call_in_turn(PyObject *const *call, Py_ssize_t n)
{
    turn_take_back(stm_self);
    PyObject *result = PyObject_Vectorcall(call[0], call + 1, (size_t)n - 1, NULL), *exception = PyErr_GetRaisedException();
    turn_lend(stm_self);
    PyErr_SetRaisedException(exception);
    return result;
}

/* ---- select.select ------------------------------------------------------------------------------------- */

/* A list of the descriptors of what is in there: that may be asked in Python. */
static PyObject *
descriptors_of(PyObject *objects)
{
    PyObject *list = PySequence_List(objects);
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        int fd = PyObject_AsFileDescriptor(PyList_GET_ITEM(list, i));
        PyObject *n = fd < 0 ? NULL : PyLong_FromLong(fd);
        if (n == NULL || PyList_SetItem(list, i, n) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* In the place of descriptors, what they are of. */
static int
put_back(PyObject *ready, PyObject *descriptors, PyObject *objects)
{
    for (Py_ssize_t i = 0, k = 0; i < PyList_GET_SIZE(ready); i++, k++) {
        while (k < PyList_GET_SIZE(descriptors) && PyLong_AsLong(PyList_GET_ITEM(descriptors, k)) != PyLong_AsLong(PyList_GET_ITEM(ready, i)))
            k++;
        PyObject *object = PySequence_GetItem(objects, k);
        if (object == NULL || PyList_SetItem(ready, i, object) < 0)
            return -1;
    }
    return 0;
}

/* The call with descriptors, which waits for so long. */
static PyObject *
select_descriptors(int i, PyObject *module, PyObject *const lists[3], PyObject *timeout)
{
    PyObject *args[] = {lists[0], lists[1], lists[2], timeout};
    return ((PyCFunctionFast)originals[i])(module, args, 4);
}

static bool
is_anything_ready(PyObject *result)
{
    return PyList_GET_SIZE(PyTuple_GET_ITEM(result, 0)) + PyList_GET_SIZE(PyTuple_GET_ITEM(result, 1))
        + PyList_GET_SIZE(PyTuple_GET_ITEM(result, 2)) > 0;
}

typedef struct { int i; PyObject *module, *const *lists, *timeout; } Selecting;

/* Nothing is ready: where begin() would have the main thread wait, it does. */
static PyObject *
wait_in_select(void *arg)
{
    const Selecting *s = arg;
    Tx *tx = stm_self;
    Queue *q = queue_of_main(tx);
    if (q != NULL && !is_on_anchor(tx))
        return do_on_anchor(tx, wait_in_select, arg);
    if (q != NULL && (PyErr_CheckSignals() < 0 || queue_make_calls(q) < 0))
        return NULL;
    bool lent = lend(tx);
    PyObject *result = select_descriptors(s->i, s->module, s->lists, s->timeout);
    if (lent)
        take_back(tx);
    return result;
}

/* Of a transaction that runs alone. */
static PyObject *
select_lending(int i, PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    PyObject *timeout = n > 3 ? args[3] : Py_None, *objects[3] = {NULL}, *lists[3] = {NULL}, *result = NULL;
    for (int k = 0; k < 3; k++) {
        if ((objects[k] = PySequence_List(args[k])) == NULL || (lists[k] = descriptors_of(objects[k])) == NULL)
            goto out;
    }
    result = select_descriptors(i, module, lists, _PyLong_GetZero());
    if (result != NULL && !is_anything_ready(result)) {
        if (number(timeout, -1) != 0 || asks_often(stm_self))
            Py_SETREF(result, wait_in_select(&(Selecting){i, module, lists, timeout}));
    }
    for (int k = 0; result != NULL && k < 3; k++) {
        if (put_back(PyTuple_GET_ITEM(result, k), lists[k], objects[k]) < 0)
            Py_CLEAR(result);
    }
out:
    for (int k = 0; k < 3; k++) {
        Py_XDECREF(objects[k]);
        Py_XDECREF(lists[k]);
    }
    return result;
}

static bool
selects_alone(int i, PyObject *const *args, Py_ssize_t n)
{
    return functions[i].how == SELECTS && runs_alone(stm_self) && n >= 3 && n <= 4 && (n < 4 || is_plain(args[3]));
}

/* ---- The functions that stand in, by how the originals are called --------------------------------- */

typedef PyObject *(*FastWithClass)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);

/* A call of the original, and how it is made. */
typedef struct Whole {
    PyObject *(*make)(const struct Whole *);
    int i;
    PyObject *self, *args;
    Given given;
    PyTypeObject *cls;
} Whole;

static PyObject *make_plain(const Whole *w) { return ((PyCFunction)originals[w->i])(w->self, w->args); }
static PyObject *make_named(const Whole *w) { return ((PyCFunctionWithKeywords)originals[w->i])(w->self, w->args, w->given.kwds); }
static PyObject *make_fast(const Whole *w) { return ((PyCFunctionFast)originals[w->i])(w->self, w->given.args, w->given.n); }

static PyObject *
make_fast_named(const Whole *w)
{
    return ((PyCFunctionFastWithKeywords)originals[w->i])(w->self, w->given.args, w->given.n, w->given.names);
}

static PyObject *
make_fast_of_class(const Whole *w)
{
    return ((FastWithClass)originals[w->i])(w->self, w->cls, w->given.args, (size_t)w->given.n, w->given.names);
}

static PyObject *
call(void *arg)
{
    Whole *w = arg;
    PyObject *result = NULL;
    Begun begun = begin(w->i, w->self, &w->given, &result);
    if (begun == ENDED)
        return result;
    if (begun == ELSEWHERE) {
        result = do_on_anchor(stm_self, call, w);
        if (functions[w->i].how == TAKES || functions[w->i].how == RESTORES)
            mutex_comes_from(w->self, stm_self->anchor);
        return result;
    }
    result = w->make(w);
    if (begun == LENT)
        take_back(stm_self);
    return result;
}

/* A tuple of arguments, or the only one, or none. */
static Given
given(PyObject **args)
{
    bool several = *args != NULL && PyTuple_Check(*args);
    return several ? (Given){((PyTupleObject *)*args)->ob_item, PyTuple_GET_SIZE(*args), NULL, NULL} : (Given){args, *args != NULL, NULL, NULL};
}

static PyObject *
call_plain(int i, PyObject *self, PyObject *args)
{
    return call(&(Whole){make_plain, i, self, args, given(&args), NULL});
}

static PyObject *
call_named(int i, PyObject *self, PyObject *args, PyObject *kwds)
{
    Given g = given(&args);
    g.kwds = kwds;
    return call(&(Whole){make_named, i, self, args, g, NULL});
}

static PyObject *
call_fast(int i, PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (selects_alone(i, args, n))
        return select_lending(i, self, args, n);
    return call(&(Whole){make_fast, i, self, NULL, {args, n, NULL, NULL}, NULL});
}

static PyObject *
call_fast_named(int i, PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return call(&(Whole){make_fast_named, i, self, NULL, {args, n, names, NULL}, NULL});
}

static PyObject *
call_fast_of_class(int i, PyObject *self, PyTypeObject *cls, PyObject *const *args, size_t n, PyObject *names)
{
    return call(&(Whole){make_fast_of_class, i, self, NULL, {args, (Py_ssize_t)n, names, NULL}, cls});
}

#define STAND_IN(i) \
    static PyObject *plain_##i(PyObject *self, PyObject *args) { return call_plain(i, self, args); } \
    static PyObject *named_##i(PyObject *self, PyObject *args, PyObject *kwds) { return call_named(i, self, args, kwds); } \
    static PyObject *fast_##i(PyObject *self, PyObject *const *args, Py_ssize_t n) { return call_fast(i, self, args, n); } \
    static PyObject *fast_named_##i(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) \
    { return call_fast_named(i, self, args, n, names); } \
    static PyObject *fast_of_class_##i(PyObject *self, PyTypeObject *cls, PyObject *const *args, size_t n, PyObject *names) \
    { return call_fast_of_class(i, self, cls, args, n, names); }
FOR_ALL(STAND_IN)

#define ROW(i) {_PyCFunction_CAST(plain_##i), _PyCFunction_CAST(named_##i), _PyCFunction_CAST(fast_##i), _PyCFunction_CAST(fast_named_##i), \
                _PyCFunction_CAST(fast_of_class_##i)},
static const PyCFunction stand_ins[COUNT][5] = {FOR_ALL(ROW)};

/* Which of a row; -1: none. */
static int
convention_of(int flags)
{
    switch (flags & ~METH_COEXIST) {
    case METH_NOARGS: case METH_O: case METH_VARARGS: return 0;
    case METH_VARARGS | METH_KEYWORDS: return 1;
    case METH_FASTCALL: return 2;
    case METH_FASTCALL | METH_KEYWORDS: return 3;
    case METH_METHOD | METH_FASTCALL | METH_KEYWORDS: return 4;
    default: return -1;
    }
}

/* ---- Once, when the engine is imported ---------------------------------------------------------------- */

static PyMethodDef *
definition_of(int i)
{
    PyObject *holder = PyImport_ImportModule(functions[i].module);
    if (holder != NULL && functions[i].type != NULL)
        Py_SETREF(holder, PyObject_GetAttrString(holder, functions[i].type));
    if (holder != NULL && PyCFunction_Check(holder))    /* it makes those of a type that has no name */
        Py_SETREF(holder, PyObject_CallNoArgs(holder));
    PyObject *function = holder != NULL ? PyObject_GetAttrString(holder, functions[i].name) : NULL;
    PyMethodDef *found = NULL;
    if (function != NULL && Py_IS_TYPE(function, &PyMethodDescr_Type))
        found = ((PyMethodDescrObject *)function)->d_method;
    else if (function != NULL && PyCFunction_Check(function))
        found = ((PyCFunctionObject *)function)->m_ml;
    PyErr_Clear();
    Py_XDECREF(function);       /* its module keeps it */
    Py_XDECREF(holder);
    return found;
}

int
waiting_init(void)
{
    for (int i = 0; i < (int)COUNT; i++) {
        PyMethodDef *method = definition_of(i);
        int convention = method != NULL ? convention_of(method->ml_flags) : -1;
        if (convention < 0) {
            PyErr_Format(PyExc_ImportError, "%s.%s is another function in this Python", functions[i].module, functions[i].name);
            return -1;
        }
        originals[i] = (void *)method->ml_meth;
        method->ml_meth = stand_ins[i][convention];
    }
    return 0;
}
