/* What a transaction is about to lock. */
#ifndef TORNADO_STM_WANTED_H
#define TORNADO_STM_WANTED_H

#include "core/base.h"

/* A name of it for the user, interned; NULL: not known. */
const char *name_of_cell(Tx *tx, uint64_t c);

#endif
