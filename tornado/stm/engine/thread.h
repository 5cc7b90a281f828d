/* All that is kept for a thread: the core's descriptor, and the parts of what is built on the core.
 *
 * Each part is declared by the file that it belongs to.  What they have to do in the life of an attempt is in thread.c,
 * in one place, since the order matters.
 */
#ifndef TORNADO_STM_THREAD_H
#define TORNADO_STM_THREAD_H

#include "core/tx.h"
#include "core/upcalls.h"

#include "internal/pycore_frame.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_interpframe.h"
#include "internal/pycore_stackref.h"

typedef struct Thread Thread;
static inline Thread *thread_of(Tx *tx) { return (Thread *)tx; }

#include "calls/anchor.h"
#include "calls/conversion.h"
#include "dispatch/chain.h"
#include "../interpreter/locations.h"
#include "../interpreter/names.h"
#include "objects/born.h"
#include "objects/fresh.h"
#include "objects/mutex.h"
#include "objects/opened.h"
#include "objects/order.h"
#include "objects/types.h"

struct Thread {
    Tx tx;
    OpenedTable opened;
    TypeEntry types[TYPE_CACHE];
    Loop loop;
    KeyOrder order;
    Births births;
    Mutexes mutexes;
    Asking anchor;
    Conversion *conversion;         /* that has called the C code which runs now, or NULL: Python code does, or other C code */
    bool in_fiber;                  /* it has let a fiber go on, whose frames have barriers (calls/fiber.c) */
    bool connection_inside;         /* C code of a connection runs, and functions of the program are not to begin there (connection.c) */
    CallbackChain chain;
    Locations locations;
    PyObject *context;              /* of this thread for its transactions that have variables, or NULL (context.c) */
    PyObject *reason;               /* why it was about to be exclusive last (reasons.c), or NULL */
    WasAlone was_alone;
    FreshTable fresh, raised;       /* raised: exceptions that conversions have made (conversion.c) */
    bool drops_past;                /* forget_past() goes on below */
};

extern const Upcalls stm_engine_upcalls;    /* what all that does for the core (thread.c) */
void forget_past(Tx *tx);

#endif
