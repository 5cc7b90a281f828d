/* Signals that Python code handles come to the main thread, whichever thread the kernel gives them to.
 *
 * While the main thread runs a transaction it blocks them, and the kernel gives them to any other thread that does not: one that the
 * program or a library has started.  The interpreter's own handler would let the main thread know at once, in the transaction; or,
 * about to wait for events, not at all.  */
#include "signals.h"

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
