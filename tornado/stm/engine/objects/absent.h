/* Threads that sleep: what they have made may end without them.
 *
 * CPython counts the references of the thread that has made an object apart from those of all others (biased reference
 * counting: Choi, Shull and Torrellas, PACT 2018).  Where another thread drops the last one, the object waits in a queue
 * of its maker's, until that is amid bytecode again.  To the program the threads of a loop are one, and a file that nobody refers
 * to is closed, a weak reference to nothing dead.  So a thread that sleeps is meanwhile none of those that the interpreter
 * knows to have made anything, as if it had exited: whoever drops the last reference ends the object.
 */
#ifndef TORNADO_STM_ABSENT_H
#define TORNADO_STM_ABSENT_H

#include "../core/base.h"

/* PyEval_SaveThread() and PyEval_RestoreThread(), for a thread that may sleep long.  Between two attempts what waits for this thread ends
 * first; in one that is no place for it.  The second preserves errno. */
PyThreadState *absent_begin(bool between);
void absent_end(PyThreadState *ts);

#endif
