/* C objects that an attempt has made whose state nobody can put back: nobody else can know them before the commit, so nothing has to be.
 *
 * Invariant.  What is in the table lives until the attempt is over, so that nothing else gets its address.
 */
#ifndef TORNADO_STM_FRESH_H
#define TORNADO_STM_FRESH_H

#include "../core/base.h"

/* A set of objects, by open addressing (Knuth, "The Art of Computer Programming" 3, algorithm 6.4L). */
typedef struct {
    PyObject **places;      /* a power of two, of which at most half are taken, or none; NULL: free */
    PyObject **made;        /* the same objects in the order in which they were made, with a reference to each */
    size_t mask, n;         /* places less one; how many objects */
} FreshTable;

static inline size_t
fresh_place(PyObject *obj)
{
    return (uintptr_t)obj * 0x9E3779B97F4A7C15ull >> 32;
}

static inline bool
fresh_has(const FreshTable *table, PyObject *obj)
{
    if (table->n == 0)
        return false;
    for (size_t i = fresh_place(obj);; i++) {
        PyObject *there = table->places[i & table->mask];
        if (there == obj || there == NULL)
            return there != NULL;
    }
}

/* Returns -1 with MemoryError set. */
int fresh_add(FreshTable *table, PyObject *obj);
/* Finalizers may run, which may have more made. */
void fresh_clear(FreshTable *table);

#endif
