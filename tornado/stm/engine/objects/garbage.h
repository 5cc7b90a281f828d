/* Garbage in cycles: when it is collected, and beside whom. */
#ifndef TORNADO_STM_GARBAGE_H
#define TORNADO_STM_GARBAGE_H

#include "../core/tx.h"

/* As long as threads run transactions it is they who collect garbage, between two of them: the interpreter would amid one.  For Python;
 * to be called in pairs. */
PyObject *begin_collecting(PyObject *module, PyObject *unused);
PyObject *end_collecting(PyObject *module, PyObject *unused);
PyObject *several_run(PyObject *module, PyObject *unused);   /* is there more than one loop or queue at it? */
/* What gc.enable, gc.disable and gc.isenabled are to the program, then and otherwise. */
PyObject *collector_enable(PyObject *module, PyObject *unused);
PyObject *collector_disable(PyObject *module, PyObject *unused);
PyObject *collector_is_enabled(PyObject *module, PyObject *unused);

/* A transaction begins to run alone, or ends: it may take long, and all others are between two, so the interpreter collects meanwhile. */
void collector_alone(bool is);

/* For a thread that is between two transactions: collect garbage, if there may be enough, and run finalizers of what has been collected,
 * if they need not wait any more.  Where another thread collects, this one does not. */
void mind_garbage(Tx *tx);
/* That about finalizers alone.  Where it insists on that, or there is much to collect again, they wait for so long only. */
void finalize_garbage(Tx *tx, bool insists);
/* The collector has done its work.  In a transaction that runs alone what has waited ends now: so it does after gc.collect(). */
void garbage_collected(void);
/* gc.collect(), for who runs alone, or has seen to the others: 0, or -1 with an exception. */
int collect_now(void);

/* An attempt has made the object, whose end somebody could notice, or is over: may the collector take it? */
void keep_from_collector(PyObject *obj);
void leave_to_collector(PyObject *obj);

void garbage_in_child(void);

/* For Python: the same at once; and a test hook, how many objects make a collection due (returns how many did). */
PyObject *engine_collect_garbage(PyObject *module, PyObject *unused);
PyObject *set_garbage(PyObject *module, PyObject *objects);

#endif
