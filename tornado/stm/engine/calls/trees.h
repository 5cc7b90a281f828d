/* XML: stand-ins for what parses it, and for the methods of elements. */
#ifndef TORNADO_STM_TREES_H
#define TORNADO_STM_TREES_H

#include "../core/base.h"

int trees_init(void);
/* As c_twin() (twins.h), of _elementtree and pyexpat. */
PyObject *tree_twin(PyObject *original);
/* From now on the type's objects call nothing but Python functions when they parse. */
void watch_handlers(PyTypeObject *type);

#endif
