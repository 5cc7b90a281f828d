/* Methods, operators and parsers in C that make a list, dict or set: what they return is the attempt's own. */
#ifndef TORNADO_STM_MAKERS_H
#define TORNADO_STM_MAKERS_H

#include "../core/tx.h"

int makers_init(void);      /* once, when the engine is imported; -1 with an exception */

#endif
