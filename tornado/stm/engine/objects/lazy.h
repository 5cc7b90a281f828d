/* What is evaluated when somebody asks for it first: annotations, type aliases, bounds and defaults of type variables. */
#ifndef TORNADO_STM_LAZY_H
#define TORNADO_STM_LAZY_H

#include "../core/base.h"

int lazy_init(void);

#endif
