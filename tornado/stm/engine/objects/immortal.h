/* Values that all threads use are made immortal (PEP 683): nobody counts references to them any more. */
#ifndef TORNADO_STM_IMMORTAL_H
#define TORNADO_STM_IMMORTAL_H

#include "../core/base.h"

/* Is it time for that, when so many transactions have begun?  Who is told so does it. */
bool immortality_is_due(uint64_t transactions);

/* Between transactions, and without any of the engine's locks: the world is stopped. */
void make_immortal(uint64_t transactions);

#endif
