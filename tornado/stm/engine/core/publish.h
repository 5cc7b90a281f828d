/* What a commit tells the kernel in several calls, and whoever may have seen but the first of them.
 *
 * A transaction's sends are deferred actions, one system call after another.  Another transaction may receive what the first has
 * brought, and must not miss then what the next one will bring.  So whoever finds nothing to receive waits for the commits that
 * were amid their actions, and asks once more.  Only what a commit of this process sends to this process is at stake.
 */
#ifndef TORNADO_STM_PUBLISH_H
#define TORNADO_STM_PUBLISH_H

#include "tx.h"

/* An action that no receiver can notice, whatever its arguments are; NULL: none is known. */
extern PyObject *unnoticed_action;

/* Are there several of these actions that can be noticed, one without the other? */
bool are_several(PyObject *actions);

/* Around the deferred actions of a commit that has several.  It may end before they do: where one of them waits for a peer. */
void publishing_begins(Tx *tx);
void publishing_ends(Tx *tx);

/* How many have ended: to be asked before the kernel is. */
uint64_t published(void);

/* Wait for those that have been amid their actions since then.  False: there was none, so what the kernel has said holds. */
bool await_published(Tx *tx, uint64_t since);

void publish_in_child(void);

#endif
