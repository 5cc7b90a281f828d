/* Where the program is, for the conflict log. */
#ifndef TORNADO_STM_LOCATIONS_H
#define TORNADO_STM_LOCATIONS_H

#include "core/base.h"

#include "internal/pycore_interpframe.h"

#define KNOWN_LOCATIONS 256
typedef struct {
    const void *instruction;
    PyCodeObject *code;
    PyObject *file, *function;
    const char *location;       /* NULL: not in the program */
    bool of_library;            /* and in a library that it uses */
} KnownLocation;

/* Of a thread. */
typedef struct {
    _PyInterpreterFrame *base;      /* the transaction runs on top of this frame; NULL: in the midst of the program */
    KnownLocation known[KNOWN_LOCATIONS];
} Locations;

const char *location(Tx *tx);
const char *location_outside_libraries(Tx *tx);     /* the innermost one there is; or NULL */
int libraries_are_in(PyObject *folders);            /* a tuple of text that names of files begin with; -1 with an exception */
void locate_beginning(Tx *tx);
int register_holder(PyTypeObject *type, PyObject *name);

#endif
