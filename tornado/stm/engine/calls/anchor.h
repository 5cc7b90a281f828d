/* The anchor: the thread that runs a loop or a queue, and the calls that belong on it. */
#ifndef TORNADO_STM_ANCHOR_H
#define TORNADO_STM_ANCHOR_H

#include "../core/tx.h"

#include "internal/pycore_stackref.h"

/* What a thread has of it. */
typedef struct {
    _Atomic uint32_t answered;      /* futex: the call that it has asked for has been made on the anchor */
    PyObject *wake;                 /* what has the anchor look around, or NULL */
} Asking;

/* What is done somewhere else, or in another way: NULL with an exception, or without one. */
typedef PyObject *(*Work)(void *arg);

/* A call, and the work that makes it. */
typedef struct {
    PyObject *callable;
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *kwnames;
} Call;
PyObject *make_call(void *arg);

bool is_on_anchor(Tx *tx);
Tx *anchors_own(void);      /* that of this thread, which makes a call for another one's transaction; or NULL */
bool anchor_asked(void);
void anchor_serve(void);
void anchor_in_child(void);
bool belongs_on_anchor(Tx *tx, PyObject *callable, bool known, PyObject *const *args, Py_ssize_t n,
                  PyObject *const *kwvalues, Py_ssize_t nkw);
/* Elsewhere than on the anchor: is an argument among these such that a call with it belongs there? */
bool belong_on_anchor(Tx *tx, _PyStackRef const *args, int n);
/* Have that work done on the anchor.  Requires: this transaction is exclusive, and elsewhere.  Returns what it does: also NULL without an
 * exception. */
PyObject *do_on_anchor(Tx *tx, Work work, void *arg);
PyObject *call_on_anchor(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *anchor_tie(PyObject *self, PyObject *args);
PyObject *anchor_set_untied(PyObject *self, PyObject *args);
PyObject *anchor_set(PyObject *self, PyObject *args);

#endif
