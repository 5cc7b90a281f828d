/* Signals that Python code handles come to the main thread, whichever thread the kernel gives them to.
 *
 * While the main thread runs a transaction it blocks them, and the kernel gives them to any other thread that does not: one that the
 * program or a library has started.  The interpreter's own handler would let the main thread know at once, in the transaction; or,
 * about to wait for events, not at all.  */
#include "signals.h"

#include "internal/pycore_runtime.h"
#include "internal/pycore_signal.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of each signal: the interpreter's handler, if `hand_over` has ever been in its place. */
static void (*interpreters[NSIG])(int);

/* The main thread is the process's first: also in a child that another thread has forked. */
static void
hand_over(int signum)
{
    int saved = errno;
    pid_t process = getpid();
    struct sigaction action;
    /* If another handler has taken its place meanwhile, the main thread would take the signal for one of that: it could end the program. */
    if (gettid() == process || sigaction(signum, NULL, &action) < 0 || action.sa_handler != hand_over)
        interpreters[signum](signum);
    else
        syscall(SYS_tgkill, process, process, signum);
    errno = saved;
}

void (*signal_handler(int signum))(int)
{
    struct sigaction action;
    if (sigaction(signum, NULL, &action) < 0)
        return SIG_ERR;
    return action.sa_handler == hand_over ? interpreters[signum] : action.sa_handler;
}

static bool
is_plain(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

/* main_takes(signum, takes): from here on the main thread, which calls this, takes the signal; or again whichever gets it.  Without a
 * handler of the signal, and where the interpreter's main thread is not the process's, nothing changes. */
PyObject *
signals_main_takes(PyObject *Py_UNUSED(self), PyObject *args)
{
    int signum, takes;
    if (!PyArg_ParseTuple(args, "ip", &signum, &takes))
        return NULL;
    if (signum < 1 || signum >= NSIG)
        return PyErr_Format(PyExc_ValueError, "there is no signal %d", signum);
    struct sigaction action;
    if (sigaction(signum, NULL, &action) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    bool taken = is_plain(&action) && action.sa_handler == hand_over;
    if (!is_plain(&action) || taken == takes || gettid() != getpid())
        Py_RETURN_NONE;
    if (takes) {
        interpreters[signum] = action.sa_handler;
        action.sa_handler = hand_over;
    }
    else
        action.sa_handler = interpreters[signum];
    if (sigaction(signum, &action, NULL) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* ---- The interpreter's handlers ----------------------------------------------------------------------------------------------- *
 * All of them are exchanged by one call, on the main thread: between any two of `signal.signal` a handler could raise, and leave the
 * others as they are.  What the kernel calls stays the same. */

static PyObject **
handler_of(int signum)
{
    return &_PyRuntime.signals.handlers[signum].func;
}

/* handlers(): those in Python by the numbers of their signals. */
PyObject *
signals_handlers(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    PyObject *found = PyDict_New();
    for (int i = 1; found != NULL && i < Py_NSIG; i++) {
        PyObject *handler = _Py_atomic_load_ptr(handler_of(i));
        if (handler == NULL || !PyCallable_Check(handler))
            continue;
        PyObject *number = PyLong_FromLong(i);
        if (number == NULL || PyDict_SetItem(found, number, handler) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
    return found;
}

/* exchange_handlers({number: (this, that)}): where a signal has this handler, it has that one from here on. */
PyObject *
signals_exchange(PyObject *Py_UNUSED(self), PyObject *exchanges)
{
    PyObject *number, *handlers;
    for (Py_ssize_t at = 0; PyDict_Check(exchanges) && PyDict_Next(exchanges, &at, &number, &handlers);) {
        int i = PyLong_AsInt(number);
        if (i < 1 || i >= Py_NSIG || !PyTuple_Check(handlers) || PyTuple_GET_SIZE(handlers) != 2) {
            PyErr_SetString(PyExc_TypeError, "exchange_handlers() takes a dict, number: (this, that)");
            return NULL;
        }
    }
    for (Py_ssize_t at = 0; PyDict_Next(exchanges, &at, &number, &handlers);) {
        PyObject **place = handler_of(PyLong_AsInt(number)), *before = PyTuple_GET_ITEM(handlers, 0);
        if (_Py_atomic_load_ptr(place) == before) {
            _Py_atomic_store_ptr(place, Py_NewRef(PyTuple_GET_ITEM(handlers, 1)));
            Py_DECREF(before);      /* the caller has it */
        }
    }
    Py_RETURN_NONE;
}
