/* Where the program is, for the conflict log. */
#ifndef TORNADO_STM_LOCATIONS_H
#define TORNADO_STM_LOCATIONS_H

#include "core/base.h"

#include "internal/pycore_interpframe.h"

/* Whose code: the program's own; made of text, as dataclasses are, or by the program that is the text of `python -c`; or a library's. */
typedef enum { OWN, MADE, OF_LIBRARY } Whose;

#define KNOWN_LOCATIONS 256
typedef struct {
    const void *instruction;
    PyCodeObject *code;
    PyObject *file, *function;
    const char *location;       /* NULL: not in the program */
    Whose whose;
    const Place *place;         /* where it was the innermost line last; NULL: it was not */
} KnownLocation;

/* Of a thread. */
typedef struct {
    _PyInterpreterFrame *base;      /* the transaction runs on top of this frame; NULL: in the midst of the program */
    KnownLocation known[KNOWN_LOCATIONS];
    const char *handler;            /* of the attempt of that number; NULL: not known yet */
    uint64_t handler_of;
} Locations;

const Place *location(Tx *tx);
const char *text_intern(const char *text);
const char *text_known(const char *text);            /* that is interned already, or NULL */
PyObject *places_losses(void);                      /* a list of what has been lost at places: see log_losses() in module.c */
int libraries_are_in(PyObject *folders);            /* a tuple of text that names of files begin with; -1 with an exception */
void locate_beginning(Tx *tx);
int register_holder(PyTypeObject *type, PyObject *name);

#endif
