/* A queue of transactions, and the loop of a thread that works for it. */
#ifndef TORNADO_STM_QUEUE_H
#define TORNADO_STM_QUEUE_H

#include "base.h"

extern PyTypeObject Queue_Type;

/* Has a transaction of this run raised? Then no other begins. */
bool queue_has_ended(Queue *q);
/* Threads that wait for work look around: somebody asks something of one. */
void queue_wake(Queue *q);
/* Does the main thread, which runs that queue, have calls to make between two of its transactions, a signal's? */
bool queue_has_calls(Queue *q);
/* On the main thread, which waits while it runs that queue: the same, when signals have been looked for. */
bool queue_is_interrupted(Queue *q);
/* On the main thread, in a transaction of that queue which runs alone and would wait: make them here, in that one. -1 with an exception. */
int queue_make_calls(Queue *q);
/* In the child of a fork: queues go on without the other threads. What such a one has taken, and not begun, waits again. */
void queues_in_child(void);
void queue_wait_again(Transaction *t);
/* By an inevitable transaction that has raised: the queue has ended. Returns the chain of those that waited. */
Transaction *queue_end(Tx *tx, Queue *q);
/* After the commit: what tx has added goes into its queues. Returns `dropped` and what is to be dropped besides. */
Transaction *queue_added(Tx *tx, Transaction *dropped);

#endif
