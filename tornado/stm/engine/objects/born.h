/* What an attempt has made whose end somebody could notice. */
#ifndef TORNADO_STM_BORN_H
#define TORNADO_STM_BORN_H

#include "../core/undo.h"

#include "internal/pycore_interpframe.h"

/* What a thread's attempt has made, and what is to die. */
typedef struct {
    PyObject *shared[2];            /* in f_locals of the frames of captured generators; [1]: of those
                                       that have exception handlers of their own */
    PyObject *noted;                /* list of weak references to objects with finalizers that it has made */
    PyObject *noted_ids;            /* set of the addresses of these references */
    PyObject *referents;            /* the same of what weak references with callbacks are to, that may have been there before */
    PyObject *references;           /* set of the addresses of these references */
    PyObject *dying;                /* list of objects whose finalizers have been put off, of calls, and of the variables that those which
                                       follow in it are to find in the context; None: none */
    uint64_t noted_in;              /* the last attempt that has noted the variables of a callback */
    PyObject *variables, *said;     /* of the callback that let go what is dropped now, or NULL; the last ones in `dying`, borrowed */
    _PyInterpreterFrame *dying_from;    /* the frame in which those die whose finalizers had been put off */
    PyTypeObject *watching;         /* class with a finalizer that is being called, until __init__ begins */
} Births;

/* At the end of an attempt. */
static inline void
births_reset(Births *births)
{
    Py_CLEAR(births->shared[0]);
    Py_CLEAR(births->shared[1]);
    Py_CLEAR(births->variables);
    births->watching = NULL;
}

int born_init(void);
PyObject *new_birth(void);
bool never_was(PyObject *coroutine);
PyObject *watched_constructor(PyObject *callable);
void born_never_was(Tx *tx);
void born_really(Tx *tx);
void born_forget(Tx *tx);
int note_birth(Tx *tx, PyObject *obj);
int note_referent(Tx *tx, PyObject *obj);   /* this attempt has made a weak reference with a callback to it */
int note_reference(Tx *tx, PyObject *reference);    /* it is that */
bool is_made_anew(Tx *tx, PyObject *self);
int finalizer_called(Tx *tx, PyObject *obj, _PyInterpreterFrame *caller);
bool frame_never_was(_PyInterpreterFrame *f);
int callback_called(Tx *tx, _PyInterpreterFrame *f, _PyInterpreterFrame *caller);
void note_callback(PyObject *callable);
/* C code calls it with these arguments.  Is that a weak reference's callback, which has been put off? */
bool callback_put_off(Tx *tx, PyObject *callable, PyObject *const *args, Py_ssize_t n);
/* This thread drops what a transaction has held that is over: the call comes after that, or never if that has been rolled back.  False: it does
 * not, or it cannot be put off. */
bool call_after_release(Tx *tx, PyObject *callable, PyObject *const *args, Py_ssize_t n);
/* By the finalizer of an object that is about to tell the program of its end.  Has that been put off? */
bool teller_put_off(PyObject *obj);
/* A callback of the loop has ended, in that context: what it has let go is finalized with the variables that are there now. */
int note_callback_end(Tx *tx, PyObject *context);
void let_die(Tx *tx);
void born_ask(Tx *tx);
extern const UndoKind undo_birth;      /* obj was never born: its finalizer must not run */

#endif
