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
} KnownLocation;

/* Of a thread. */
typedef struct {
    _PyInterpreterFrame *base;      /* the transaction runs on top of this frame; NULL: in the midst of the program */
    KnownLocation known[KNOWN_LOCATIONS];
} Locations;

const char *location(Tx *tx);
void locate_beginning(Tx *tx);
int register_holder(PyTypeObject *type, PyObject *name);

#endif
