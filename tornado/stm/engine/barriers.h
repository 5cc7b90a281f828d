/* What a barrier has to do, whichever way it is called: from rewritten bytecode (barriers.c), or from the instructions of
 * an evaluation loop of our own (../interpreter).  0, or -1 with an exception. */
#ifndef TORNADO_STM_BARRIERS_H
#define TORNADO_STM_BARRIERS_H

#include "stm.h"

/* The instruction that a barrier is for. */
typedef struct {
    _PyInterpreterFrame *frame;
    _PyStackRef *top;           /* top[-1] is the instruction's topmost operand */
    const _Py_CODEUNIT *next;   /* the instruction */
} Site;

int open_own_attr_write(Tx *tx, PyObject *obj, PyObject *name);
int open_name(Tx *tx, PyObject *namespace, PyObject *globals, PyObject *name);
bool known_here_only(Tx *tx, PyObject *o);
int iterate_work(Tx *tx, PyObject *o);
int contains_work(Tx *tx, Site s, PyObject *unused);
int binary_work(Tx *tx, PyObject *a, PyObject *b, Site s);
int compare_work(Tx *tx, PyObject *a, PyObject *b, Site s);
int super_attr_work(Tx *tx, Site s, PyObject *name);
int item_delete_work(Tx *tx, Site s, PyObject *unused);
int raising_work(Tx *tx, Site s, PyObject *unused);
int raising_again_work(Tx *tx, Site s, PyObject *unused);
int match_class_work(Tx *tx, Site s, PyObject *unused);
int match_keys_work(Tx *tx, Site s, PyObject *unused);
int import_name_work(Tx *tx, Site s, PyObject *name);
int before_stack_call(Tx *tx, _PyStackRef *at, int n, PyObject *kwnames);
int call_ex_work(Tx *tx, Site s);
int with_except_work(Tx *tx, Site s);

#endif
