/* A queue of transactions, and the loop of a thread that works for it. */
#ifndef TORNADO_STM_QUEUE_H
#define TORNADO_STM_QUEUE_H

#include "base.h"

extern PyTypeObject Queue_Type;
bool queue_has_ended(Queue *q);
void queue_wake(Queue *q);
Transaction *queue_end(Tx *tx, Queue *q);
Transaction *queue_added(Tx *tx, Transaction *dropped);

#endif
