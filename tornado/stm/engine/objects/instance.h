/* Attributes of instances, and of any other object. */
#ifndef TORNADO_STM_INSTANCE_H
#define TORNADO_STM_INSTANCE_H

#include "types.h"

/* Who assigns to attributes of such objects, or deletes them: object, or a method? */
enum { HOOK_NONE, HOOK_PYTHON, HOOK_UNKNOWN };
int assignment_hook(PyTypeObject *type, const char *method);

int open_through_method(Tx *tx, PyObject *obj, PyObject *name);

extern const UndoKind undo_attr;    /* obj.key = old, or delete it */

#endif
