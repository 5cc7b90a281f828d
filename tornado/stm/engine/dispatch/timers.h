/* The timers of a loop: a heap, by the moment at which each is due. */
#ifndef TORNADO_STM_TIMERS_H
#define TORNADO_STM_TIMERS_H

#include "../core/base.h"

typedef struct Order Order;     /* dispatcher.h */

typedef struct {
    double when;            /* on the loop's clock */
    uint64_t number;        /* of several for the same moment, the first that was set comes first */
    PyObject *timer;        /* an asyncio.TimerHandle; or a tuple: a function, and a tuple of its arguments */
    Order *order;           /* of the transaction that has set it, or NULL */
} Timer;

/* Zeroed: there are none. */
typedef struct {
    Timer *heap;
    Py_ssize_t n, room;
} Timers;

int timers_push(Timers *timers, Timer timer);       /* takes its references, too if it fails: -1 with MemoryError */
Timer timers_pop(Timers *timers);                   /* of some: that which is due first */
void timer_drop(Timer timer);
void timers_sort(Timers *timers);                   /* make a heap of what is in it in any order */
void timers_clear(Timers *timers);
int timers_traverse(Timers *timers, visitproc visit, void *arg);

#endif
