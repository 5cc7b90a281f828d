/* The evaluation loop, in the place of the interpreter's own. */
#ifndef TORNADO_STM_ENTRY_H
#define TORNADO_STM_ENTRY_H

#include <Python.h>
#include <stdbool.h>

/* Does Python code run on our loop? */
bool loop_is_ours(void);

/* Is that thread at an instruction that asks for an attribute by its name, so that the program sees what it gets? */
bool is_loading_attribute(PyThreadState *tstate);

#endif
