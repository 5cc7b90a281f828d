/* Attributes of instances, and of any other object. */
#ifndef TORNADO_STM_INSTANCE_H
#define TORNADO_STM_INSTANCE_H

#include "types.h"

/* Who assigns to attributes of such objects, or deletes them: object, or a method? */
enum { HOOK_NONE, HOOK_PYTHON, HOOK_UNKNOWN };
int assignment_hook(PyTypeObject *type, const char *method);

/* What the type of a C object says of the name: nothing, code, or state of the object? */
enum { NAME_ABSENT, NAME_CODE, NAME_SLOT, NAME_C_STATE };
int name_in_c_type(PyObject *obj, PyObject *name);

int open_through_method(Tx *tx, PyObject *obj, PyObject *name);
/* What the class has under this name, of a classmethod or staticmethod the function itself; a new reference, or NULL. */
PyObject *function_of_class(PyTypeObject *type, PyObject *name);
int open_through_attribute(Tx *tx, PyObject *obj, PyObject *name);
int iterate_instance(Tx *tx, PyObject *obj, int depth);

extern const UndoKind undo_attr;    /* obj.key = old, or delete it */

int instances_init(void);
extern PyObject *stm_dict_name, *stm_class_name;     /* "__dict__", "__class__" */

#endif
