/* What the interpreter calls where an object ends. */
#ifndef TORNADO_STM_ENDINGS_H
#define TORNADO_STM_ENDINGS_H

#include "../core/base.h"

int endings_init(void);
/* The class has just been made. */
void watch_endings(PyTypeObject *type);
/* Does the end of its instances run code of the program's? */
bool ends_in_python(PyTypeObject *type);

#endif
