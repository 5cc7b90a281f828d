/* The history: what the engine decided, in one order, for tests that judge it. */
#ifndef TORNADO_STM_HISTORY_H
#define TORNADO_STM_HISTORY_H

#include "base.h"

enum {
#define EVENT(name, text) DID_##name,
#include "history.def"
#undef EVENT
};
extern int stm_history_on;
void history_add(Tx *tx, int what, uint64_t other, int detail);
PyObject *history_list(void);
void history_switch(bool on);
static inline void
history(Tx *tx, int what, uint64_t other, int detail)
{
    if (UNLIKELY(stm_history_on))
        history_add(tx, what, other, detail);
}

#endif
