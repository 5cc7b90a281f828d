/* Special methods and properties that are not in Python. */
#ifndef TORNADO_STM_SPECIAL_H
#define TORNADO_STM_SPECIAL_H

#include "../core/base.h"

/* Has a class made in Python, or a base of it, a special method in C that is neither guarded nor the C base's own? */
bool has_unguarded_special_methods(PyTypeObject *type);

/* The class is met for the first time, or as it is now: its __getattr__ goes past no barrier. */
void special_watch(PyTypeObject *type);
/* Nor do the properties and descriptors that lie in the class itself, nor what is bound already. */
void special_look_into(PyTypeObject *type);

/* Does C code that asks this descriptor, which lies under a special name, get what has barriers? */
bool gives_guarded(PyObject *descriptor);

/* Is the attribute that is asked for looked for as in any object, and a __getattr__ asked only for one that is missing? */
bool asks_only_for_what_is_missing(PyTypeObject *type);

/* The types of the interpreter: from here on. */
int special_init(void);

#endif
