/* C functions that wait: for a lock, a thread, a process, a descriptor, or for time to pass.
 *
 * On upstream a loop that waits so keeps nobody but itself waiting, and what it waits for may be done by another one: a blocking portal into a
 * loop in a thread, a job of an executor that runs a loop, a server and its blocking client.  Here, who waits runs alone (mutex.c, the effects of
 * calls), so others could not begin.  So it lends its turn (contention.c): transactions of other loops and queues run meanwhile, and none of its own.
 *
 * The functions are stood in for where their types and modules have them, since code that runs alone calls them without a barrier.
 */
#include "waiting.h"

#include "../core/transaction.h"
#include "../core/tx.h"
#include "../objects/mutex.h"

#include "internal/pycore_ceval.h"

/* ---- What is called, and how -------------------------------------------------------------------- */

static struct { const char *module, *type, *name; enum { WAITS, TAKES, IF_BLOCKING } how; } functions[] = {
    {"_thread", "lock", "acquire", TAKES},
    {"_thread", "lock", "acquire_lock", TAKES},
    {"_thread", "lock", "__enter__", TAKES},
    {"_thread", "RLock", "acquire", TAKES},
    {"_thread", "RLock", "__enter__", TAKES},
    {"_thread", "RLock", "_acquire_restore", WAITS},
    {"_thread", "_ThreadHandle", "join", WAITS},
    {"_queue", "SimpleQueue", "get", WAITS},
    {"time", NULL, "sleep", WAITS},
    {"posix", NULL, "waitpid", WAITS},
    {"select", NULL, "select", WAITS},
    {"select", "poll", "poll", WAITS},
    {"select", "epoll", "poll", WAITS},
    {"_socket", "socket", "_accept", IF_BLOCKING},
    {"_socket", "socket", "connect", IF_BLOCKING},
    {"_socket", "socket", "recv", IF_BLOCKING},
    {"_socket", "socket", "recv_into", IF_BLOCKING},
    {"_socket", "socket", "recvfrom", IF_BLOCKING},
    {"_socket", "socket", "send", IF_BLOCKING},
    {"_socket", "socket", "sendall", IF_BLOCKING},
};
#define FOR_ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)
#define COUNT (sizeof functions / sizeof functions[0])

static void *originals[COUNT];

/* Does this socket wait? */
static bool
is_blocking(PyObject *socket)
{
    PyObject *timeout = PyObject_CallMethod(socket, "gettimeout", NULL);
    bool no = timeout != NULL && PyFloat_CheckExact(timeout) && PyFloat_AS_DOUBLE(timeout) == 0;
    PyErr_Clear();
    Py_XDECREF(timeout);
    return !no;
}

/* Has the turn been lent, for that call?  With `first`, the first argument, or NULL; *taken: there is nothing to wait for. */
static bool
lends(int i, PyObject *self, PyObject *first, bool *taken)
{
    Tx *tx = stm_self;
    *taken = false;
    if (LIKELY(tx == NULL || !tx->live || tx->grade != GRADE_EXCLUSIVE))
        return false;
    if (functions[i].how == TAKES && (first == NULL ? (*taken = mutex_take_at_once(self)) : first == Py_False))
        return false;
    if (functions[i].how == IF_BLOCKING && !is_blocking(self))
        return false;
    return turn_lend(tx);
}

static PyObject *
back(bool lent, PyObject *result)
{
    if (lent)
        turn_take_back(stm_self);
    return result;
}

/* With the lock taken at once. */
static PyObject *
acquired(void)
{
    Py_RETURN_TRUE;
}

/* ---- The functions that stand in, by how the originals are called --------------------------------- */

typedef PyObject *(*FastWithClass)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);

static inline PyObject *
first_of(PyObject *args, PyObject *kwds)
{
    if (PyTuple_Check(args) && PyTuple_GET_SIZE(args) > 0)
        return PyTuple_GET_ITEM(args, 0);
    return kwds != NULL && PyDict_GET_SIZE(kwds) > 0 ? kwds : NULL;     /* to be looked at by the original */
}

#define STAND_IN(i) \
    static PyObject *plain_##i(PyObject *self, PyObject *args) \
    { \
        bool taken, lent = lends(i, self, args != NULL ? args : NULL, &taken); \
        return taken ? acquired() : back(lent, ((PyCFunction)originals[i])(self, args)); \
    } \
    static PyObject *named_##i(PyObject *self, PyObject *args, PyObject *kwds) \
    { \
        bool taken, lent = lends(i, self, first_of(args, kwds), &taken); \
        return taken ? acquired() : back(lent, ((PyCFunctionWithKeywords)originals[i])(self, args, kwds)); \
    } \
    static PyObject *fast_##i(PyObject *self, PyObject *const *args, Py_ssize_t n) \
    { \
        bool taken, lent = lends(i, self, n > 0 ? args[0] : NULL, &taken); \
        return taken ? acquired() : back(lent, ((PyCFunctionFast)originals[i])(self, args, n)); \
    } \
    static PyObject *fast_named_##i(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) \
    { \
        bool taken, lent = lends(i, self, n > 0 ? args[0] : names, &taken); \
        return taken ? acquired() : back(lent, ((PyCFunctionFastWithKeywords)originals[i])(self, args, n, names)); \
    } \
    static PyObject *fast_of_class_##i(PyObject *self, PyTypeObject *cls, PyObject *const *args, size_t n, PyObject *names) \
    { \
        bool taken, lent = lends(i, self, n > 0 ? args[0] : names, &taken); \
        return taken ? acquired() : back(lent, ((FastWithClass)originals[i])(self, cls, args, n, names)); \
    }
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
