/* Attributes of functions and of other C objects that can be given some. */
#ifndef TORNADO_STM_FUNCTION_H
#define TORNADO_STM_FUNCTION_H

#include "../core/tx.h"

int functions_init(void);

#endif
