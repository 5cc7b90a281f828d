/* The evaluation loop, in the place of the interpreter's own. */
#ifndef TORNADO_STM_ENTRY_H
#define TORNADO_STM_ENTRY_H

#include <stdbool.h>

/* Does Python code run on our loop? */
bool loop_is_ours(void);

#endif
