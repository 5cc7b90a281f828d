/* A queue of transactions, and the loop of a thread that works for it. */
#ifndef TORNADO_STM_QUEUE_H
#define TORNADO_STM_QUEUE_H

#include "base.h"

extern PyTypeObject Queue_Type;

/* Has a transaction of this run raised? Then no other begins. */
bool queue_has_ended(Queue *q);
/* Threads that wait for work look around: somebody asks something of one. */
void queue_wake(Queue *q);
/* By an inevitable transaction that has raised: the queue has ended. Returns the chain of those that waited. */
Transaction *queue_end(Tx *tx, Queue *q);
/* After the commit: what tx has added goes into its queues. Returns `dropped` and what is to be dropped besides. */
Transaction *queue_added(Tx *tx, Transaction *dropped);

#endif
