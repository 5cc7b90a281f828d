/* The guard's signal: it comes, and a program that does not end is killed, also while the interpreter stands still.
 *
 * C code that does not return keeps a thread from stopping, and the first time that the interpreter
 * stops all threads, none of them runs Python code any more: no signal handler, nor the guard of
 * graceful.py.  So what SIGTERM needs until then is here, without the interpreter:
 *
 *      the main thread takes the signal        and `forward` hands it to the guard;
 *      the guard takes it, in `await_signal`   and sets `deadline` before it comes back to the interpreter;
 *      at the deadline                         the process is killed, unless the guard has called `stand_down`.
 */
#include "guard.h"

#include "signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Of the process `guarded_process` (0: none yet): the guard and its timer.  A child that was forked has neither. */
static pid_t guarded_process;
static pthread_t guard;
static timer_t deadline;
static volatile sig_atomic_t forwarded;     /* by the main thread, and the guard does not know it yet */

static void
kill_program(union sigval unused)
{
    static const char line[] = "tornado.stm: killed: SIGTERM has come, and what runs does not end (Timeout)\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(1);
}

static void
forward(int signum)
{
    int saved = errno;
    if (getpid() == guarded_process) {
        forwarded = 1;
        pthread_kill(guard, signum);
    }
    else {
        signal(signum, SIG_DFL);
        raise(signum);      /* it is blocked until the handler returns */
    }
    errno = saved;
}

static int
set_deadline(double seconds)
{
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)seconds}};
    when.it_value.tv_nsec = (long)((seconds - (double)when.it_value.tv_sec) * 1e9);
    return timer_settime(deadline, 0, &when, NULL);
}

/* forward_signal(signum, thread): `to_guard` handles it by now, and this thread, which has it blocked, is the guard.
 * From here on that does without the interpreter. */
PyObject *
guard_forward(PyObject *Py_UNUSED(self), PyObject *args)
{
    int signum;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "ik", &signum, &thread))
        return NULL;
    if (guarded_process != getpid()) {
        struct sigevent at_deadline = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = kill_program};
        if (timer_create(CLOCK_MONOTONIC, &at_deadline, &deadline) < 0)
            return PyErr_SetFromErrno(PyExc_OSError);
        guarded_process = getpid();
    }
    guard = (pthread_t)thread;
    struct sigaction action = {.sa_handler = forward, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (sigaction(signum, &action, NULL) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* to_guard(signum, frame): a handler of the signal, which hands it to the guard. */
PyObject *
guard_tell(PyObject *Py_UNUSED(self), PyObject *args)
{
    int signum;
    PyObject *frame;
    if (!PyArg_ParseTuple(args, "iO", &signum, &frame))
        return NULL;
    forward(signum);
    Py_RETURN_NONE;
}

/* await_signal(signum, seconds): in the guard, wait for the signal.  The process is killed that long after it, unless
 * `stand_down` is called, or the program has a handler of its own.  Returns whether it was the main thread that had
 * taken it. */
PyObject *
guard_await(PyObject *Py_UNUSED(self), PyObject *args)
{
    int signum;
    double seconds;
    if (!PyArg_ParseTuple(args, "id", &signum, &seconds))
        return NULL;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, signum);
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    while (sigwaitinfo(&awaited, NULL) < 0 && !failed)
        failed = errno != EINTR;
    if (!failed && guarded_process == getpid() && signal_handler(signum) == forward)
        failed = set_deadline(seconds) < 0;
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    bool was_forwarded = forwarded;
    forwarded = 0;
    return PyBool_FromLong(was_forwarded);
}

/* stand_down(): in the guard: what the signal asked for has happened. */
PyObject *
guard_stand_down(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    if (guarded_process == getpid() && set_deadline(0) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
