/* What a call is about to do. */
#ifndef TORNADO_STM_CALLS_H
#define TORNADO_STM_CALLS_H

#include "../core/base.h"

#include "internal/pycore_stackref.h"

/* What calls of a C function do: the names are those of effects.py. */
typedef enum {
    EFFECT_NONE = 0,
#define EFFECT(name) EFFECT_##name,
#include "effects.def"
#undef EFFECT
    EFFECT_VIA,         /* through a trampoline */
} Effect;
int calls_init(void);
int effects_register(PyObject *callable, int effect, PyObject *twin);
int effects_register_instances(PyTypeObject *type, int effect, PyObject *twin);
/* Its twin does the same, but with barriers: an exclusive transaction has the original called.  By one thread at a time. */
void twin_stands_aside(PyObject *callable);
bool stands_in(PyObject *callable);
int open_change(Tx *tx, PyObject *receiver, PyObject *second);
int before_call(Tx *tx, _PyStackRef *callable, PyObject *const *args, Py_ssize_t n,
                PyObject *const *kwvalues, Py_ssize_t nkw);
/* In an exclusive transaction: is it known that a call with these arguments needs nothing? before_call() finds that out. */
bool needs_nothing_alone(Tx *tx, PyObject *callable, _PyStackRef const *args, int n);
extern _Atomic unsigned stm_effects_registered;     /* so many effects have been registered */
/* What is always called in the place of this function of a module, or of this method of such a receiver, with its arguments; or NULL. */
PyObject *plain_twin(PyObject *callable, PyObject *receiver);
/* The same of a type in C which makes a container or an iterator of one argument, where that is open for iteration. */
PyObject *container_twin(PyObject *type);
int plain_effect(PyObject *callable, PyObject *receiver);
bool uses_state(PyObject *callable, PyObject *receiver);
extern PyTypeObject *stm_method_wrapper_type;

/* A slot wrapper bound to its receiver (private to CPython's descrobject.c). */
typedef struct { PyObject_HEAD PyObject *descr, *self; } MethodWrapper;
int effect_of_construction(PyTypeObject *type);
bool reads_constant(PyObject *type, PyObject *arg);
int effect_of_instances(PyTypeObject *type);
int call_with_own(Tx *tx, PyObject *f);
int effect_as_callback(Tx *tx, PyObject *f);

#endif
