/* C code that makes data of other data. */
#ifndef TORNADO_STM_CONVERSION_H
#define TORNADO_STM_CONVERSION_H

#include "../objects/types.h"

/* A call that is under way. */
typedef struct Conversion {
    PyObject *converter;        /* or NULL, of a function of a module */
    PyObject *const *args;      /* by position and by name */
    Py_ssize_t n;
    PyObject *received;         /* list of what Python functions have returned to it, but for leaves, or NULL */
    Py_ssize_t reached;         /* so many objects have been opened for it */
    bool raises_python;         /* a Python function that it has called has raised something */
    struct Conversion *outer;
} Conversion;

int conversion_init(void);
/* Under this name classes have the converters of their instances. */
int conversion_named(PyObject *name);
/* Objects of this type have no state, and refer to nothing that has any. RuntimeError when there are too many. */
int conversion_leaf(PyTypeObject *type);
/* No converter reads the slot that instances have under this name. RuntimeError when there are too many. */
int conversion_unread(PyObject *name);
/* Converters call the method of this name of what they are given. RuntimeError when there are too many. */
int conversion_asks(PyObject *name);
/* Garbage is about to be collected: what only the answers keep alive is garbage. */
void forget_converters(void);
/* Does C code that this object has call nothing but what the object refers to, and only reads what is open or its own?  1, or 0 if
 * that is not known; -1 to abort. */
int calls_only_known(Tx *tx, PyObject *obj);
/* A converter (a method's receiver), or NULL, is about to be called with these arguments. */
int open_conversion(Tx *tx, PyObject *converter, PyObject *const *args, Py_ssize_t n, PyObject *const *kwvalues, Py_ssize_t nkw);
/* C code is about to make an instance of the class, whose metaclass is in C, of what it is given, and calls what the class was made with. */
int open_making(Tx *tx, PyTypeObject *cls);
/* Is it a method in C that is given its converter, the receiver, as the first argument? */
bool is_converters_method(PyObject *function, PyObject *receiver);
/* Has a conversion of this attempt made it, an exception, which refers to nothing but what was read, and what nobody else has? */
bool is_own_exception(Tx *tx, PyObject *obj);
/* What was wrong of the data that this exception tells of, and what is said of it: all that its text is made of.  Alone, if it is not the
 * attempt's own. */
int visit_errors(Tx *tx, PyObject *exception, Visit visit, void *arg);
/* The call itself: stands in for the function. */
PyObject *call_conversion(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* A Python function returns that to its C code: takes the reference. NULL with an exception. */
PyObject *conversion_received(Tx *tx, Conversion *c, PyObject *result);

#endif
