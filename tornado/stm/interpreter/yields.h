/* Where the interpreter gives the processor away. */
#ifndef TORNADO_STM_YIELDS_H
#define TORNADO_STM_YIELDS_H

#include "core/base.h"

/* From here on no thread gives the processor away where it finds a mutex of the interpreter's taken. */
void keep_processor(void);

#endif
