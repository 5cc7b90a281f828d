/* A binary heap (Williams, "Algorithm 232: Heapsort", 1964). */
#include "timers.h"

static bool
comes_before(const Timer *a, const Timer *b)
{
    return a->when < b->when || (a->when == b->when && a->number < b->number);
}

static void
rise(Timers *timers, Py_ssize_t at)
{
    Timer timer = timers->heap[at];
    while (at > 0) {
        Py_ssize_t above = (at - 1) / 2;
        if (!comes_before(&timer, &timers->heap[above]))
            break;
        timers->heap[at] = timers->heap[above];
        at = above;
    }
    timers->heap[at] = timer;
}

static void
sink(Timers *timers, Py_ssize_t at)
{
    Timer timer = timers->heap[at];
    for (;;) {
        Py_ssize_t below = 2 * at + 1;
        if (below >= timers->n)
            break;
        if (below + 1 < timers->n && comes_before(&timers->heap[below + 1], &timers->heap[below]))
            below++;
        if (!comes_before(&timers->heap[below], &timer))
            break;
        timers->heap[at] = timers->heap[below];
        at = below;
    }
    timers->heap[at] = timer;
}

void
timer_drop(Timer timer)
{
    Py_DECREF(timer.timer);
    Py_XDECREF(timer.order);
}

int
timers_push(Timers *timers, Timer timer)
{
    if (timers->n == timers->room) {
        Py_ssize_t room = timers->room ? 2 * timers->room : 64;
        Timer *heap = PyMem_RawRealloc(timers->heap, room * sizeof(Timer));
        if (heap == NULL) {
            timer_drop(timer);
            PyErr_NoMemory();
            return -1;
        }
        timers->heap = heap;
        timers->room = room;
    }
    timers->heap[timers->n] = timer;
    rise(timers, timers->n++);
    return 0;
}

Timer
timers_pop(Timers *timers)
{
    Timer first = timers->heap[0];
    timers->heap[0] = timers->heap[--timers->n];
    if (timers->n > 0)
        sink(timers, 0);
    return first;
}

void
timers_sort(Timers *timers)
{
    for (Py_ssize_t at = timers->n / 2; --at >= 0;)
        sink(timers, at);
}

void
timers_clear(Timers *timers)
{
    while (timers->n > 0)
        timer_drop(timers->heap[--timers->n]);
    PyMem_RawFree(timers->heap);
    timers->heap = NULL;
    timers->room = 0;
}

int
timers_traverse(Timers *timers, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < timers->n; i++) {
        Py_VISIT(timers->heap[i].timer);
        Py_VISIT((PyObject *)timers->heap[i].order);
    }
    return 0;
}
