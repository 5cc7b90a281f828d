/* asyncio's Task: a coroutine that runs, a step at a time. */
#ifndef TORNADO_STM_TASK_H
#define TORNADO_STM_TASK_H

#include "future.h"

/* Is it what the loop is given to call for a task?  That task, borrowed, or NULL. */
Future *task_of_callback(PyObject *callback);

/* A task dies: it leaves the list of all. */
void task_unlist(Future *t);

/* all_tasks(): a list of those that have not ended, of all loops.  Requires that no transaction runs beside the caller. */
PyObject *tasks_all(PyObject *module, PyObject *unused);

/* task_eager_step(task): its first step, while it is being made. */
PyObject *task_eager_step(PyObject *module, PyObject *task);

PyObject *message_of_cancel(PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

int tasks_init(PyObject *module);
void tasks_in_child(void);
/* tasks_begin(eager_start): what begins the first step of a task at once. */
PyObject *tasks_begin(PyObject *module, PyObject *eager_start);

#endif
