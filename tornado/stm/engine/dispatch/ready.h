/* The dispatch order: what is expected to be over soon runs before what is expected to compute for long.
 *
 * Transactions wait in two lines, both first come, first served.  What waits in the *prompt* line runs first; a transaction goes to
 * the *long* line if those like it have lately taken at least LONG seconds of processor time (sites.h).  So a trivial request
 * waits until one of the threads ends what it is at, not for all the computing that others have asked for before.
 *
 * What is guaranteed:
 *
 * - No long transaction starves.  While some wait, their line is owed as much time as the threads spend on prompt ones; what it is
 *   owed goes before the prompt line.  So they get at least half of all time, in the order in which they came.
 * - A transaction is never dispatched before its predecessor, which it would wait for with a thread in its hands.
 * - The guess decides on the order only.  A wrong one costs time: a long transaction that was expected to be prompt delays what
 *   waits behind it once, and so does the other way round the transaction itself.
 */
#ifndef TORNADO_STM_READY_H
#define TORNADO_STM_READY_H

#include "../core/base.h"

extern PyTypeObject Entry_Type, ReadyQueue_Type;

int ready_init(PyObject *module);       /* -1 with an exception */

#endif
