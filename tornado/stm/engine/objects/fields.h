/* Instances whose base in C looks into their slots. */
#ifndef TORNADO_STM_FIELDS_H
#define TORNADO_STM_FIELDS_H

#include "types.h"

/* Does nothing else of such a class look there, or keep what it has found? */
bool fields_are_known(PyTypeObject *type);

#endif
