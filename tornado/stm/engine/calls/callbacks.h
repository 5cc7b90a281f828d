/* Calls that C code makes: back into Python, or into other C code that it was given. */
#ifndef TORNADO_STM_CALLBACKS_H
#define TORNADO_STM_CALLBACKS_H

#include "../core/tx.h"

enum { USE_NOTHING, USE_TRUTH, USE_ITEMS, USE_ALL };    /* what C code looks at in a result */
enum {
    VIA_METHOD, VIA_PARTIAL, VIA_ATTRGETTER, VIA_METHODCALLER, VIA_CALLBACKS, VIA_CONTEXT, VIA_CONVERSION, VIA_LRU, VIA_ANCHOR,
    VIA_NEW, VIA_COMPUTATION, VIA_COMPUTATION_INTO
};
extern PyTypeObject Guarded_Type, GuardedItems_Type;
PyObject *guarded_new(PyObject *inner, int use);
PyObject *unguarded(PyObject *callable);    /* what it is around, or itself; borrowed */
PyObject *guarded_items(PyObject *iterable, int use);
PyObject *stm_call(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *trampoline(int via, PyObject *callable);
/* The twin in Python, or the original where the twin does not take such arguments: `parts` are the original, the twin and perhaps what
 * is bound in the original. */
PyObject *call_checked(PyObject *parts, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *twin_for(PyObject *original, PyObject *twin, PyObject *self, Py_ssize_t n, bool has_keywords);

/* The beginnings of structures that are private to CPython's _operator.c and
 * _functoolsmodule.c; effects_register_instances() compares the sizes. */
typedef struct { PyObject_HEAD Py_ssize_t n; PyObject *items; Py_ssize_t index; void *vectorcall; } ItemGetter;
typedef struct { PyObject_HEAD Py_ssize_t n; PyObject *attrs; void *vectorcall; } AttrGetter;
typedef struct {
    PyObject_HEAD
    PyObject *name, *args, *kwds, *vectorcall_args, *vectorcall_kwnames;
    void *vectorcall;
} MethodCaller;
typedef struct {
    PyObject_HEAD
    PyObject *function, *args, *keywords, *dict, *weakrefs, *placeholder;
    Py_ssize_t placeholders;
    void *vectorcall;
} Partial;

#endif
