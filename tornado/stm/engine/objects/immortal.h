/* Values that all threads use are made immortal (PEP 683): nobody counts references to them any more. */
#ifndef TORNADO_STM_IMMORTAL_H
#define TORNADO_STM_IMMORTAL_H

#include "../core/base.h"

/* One of several threads is about to run a transaction, and so many have begun: make such values immortal, if it is time for that.  Without
 * any of the engine's locks, as the world is stopped then. */
void make_immortal_when_due(uint64_t transactions);

#endif
