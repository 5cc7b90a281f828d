/* Attributes that C code makes when they are read. */
#ifndef TORNADO_STM_DESCRIPTOR_H
#define TORNADO_STM_DESCRIPTOR_H

#include "types.h"

/* The class is met for the first time, or as it is now: see to it that descriptors that it and its bases have are watched. */
void descriptors_watch(PyTypeObject *type);

#endif
