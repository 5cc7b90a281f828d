/* Borrowed references: what a frame holds uncounted, since nothing can end its life before the attempt is over. */
#ifndef TORNADO_STM_BORROWED_H
#define TORNADO_STM_BORROWED_H

#include "thread.h"

/* The attempt is about to be inevitable: from now on it is counted what its frames have borrowed. */
void count_borrowed(Tx *tx);

#endif
