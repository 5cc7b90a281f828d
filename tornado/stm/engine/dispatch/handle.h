/* asyncio's handles: made, and run, in C.
 *
 * They are objects of asyncio's own classes, which are Python code with slots: all that is done to one elsewhere is asyncio's.
 * Who runs one looks at `_cancelled` first, under a lock like any other; the other slots are written by who has
 * written to that one, or has just made the handle.  But `_scheduled` of a timer that waits for its time is the dispatcher's: only the
 * commit of who has cancelled it says that it waits no more, since what has been written to `_cancelled` may be rolled back.
 */
#ifndef TORNADO_STM_HANDLE_H
#define TORNADO_STM_HANDLE_H

#include "dispatcher.h"

/* Of a handle, borrowed; NULL where it has none (it has been cancelled in debug mode, or is not one that is known). */
PyObject *handle_callback(PyObject *handle);
PyObject *handle_arguments(PyObject *handle);

/* With the dispatcher's lock, of what is among its timers: does it wait for its time, as far as transactions have committed? */
bool timer_waits(PyObject *timer);
void timer_waits_no_more(PyObject *timer);

/* Let the loop call function(argument), or function() if that is NULL, in the context: what loop.call_soon() does. */
int schedule(PyObject *loop, PyObject *function, PyObject *argument, PyObject *context);

/* Is the loop in debug mode? -1 with an exception. */
int loop_is_debugged(PyObject *loop);

/* For debug mode, where the program is: what asyncio's extract_stack() gives. */
PyObject *stack_of_caller(void);

/* What Python sees of it: module.c. */
PyObject *new_handle(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *call_soon(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *submit_soon(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *run_handle(PyObject *module, PyObject *handle);
PyObject *run_timer(PyObject *module, PyObject *timer);
PyObject *handle_event(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *handles_begin(PyObject *module, PyObject *const *args, Py_ssize_t n);

int handles_init(void);

#endif
