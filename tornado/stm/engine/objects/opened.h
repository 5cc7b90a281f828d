/* What this transaction has opened already, and what it has made. */
#ifndef TORNADO_STM_OPENED_H
#define TORNADO_STM_OPENED_H

#include "../core/base.h"

/* ---- What this transaction has opened already ---------------------------------
 * A small direct-mapped table in front of the locks: (object, what for) -> there is
 * nothing left to do. An entry counts while its stamp is the transaction's. It is a
 * cache: it may forget.
 *
 * Objects made in the transaction are captured memory (Dragojevic, Ni & Adl-Tabatabai,
 * "Optimizing Transactions for Captured Memory", 2009): nobody else knows them before the
 * commit, and an abort drops them. Their entries (lowest bit of the key set) count only as
 * long as what lies at the address was allocated by this thread: should the object have died,
 * another thread's is told by its ob_tid, and one of this thread is captured as well.
 *
 * Other entries are backed by locks, which are known by address, too; the version of
 * the type tells that the same attributes lie at the same places. */
#define OPENED_SLOTS 8192
typedef struct {
    uint64_t key;           /* address << 16 | what << 1 | by capture */
    uint64_t check;         /* the transaction's stamp << 32 | version of the type */
} Opened;

/* In front of that stands a smaller table of captured objects alone, which a barrier looks at in a few instructions. It does not
 * know types: it is for who has seen that the object is an instance of a Python class, or exactly a list, dict or set. What of
 * these this thread has allocated in this attempt, where something captured has died, is captured as well. */
#define CAPTURED_SLOTS 2048
#define CAPTURED_STAMP_SHIFT 44     /* above the bits of an address, but for the four that are zero */

/* Of a thread. */
typedef struct {
    uint64_t captured_stamp;        /* the attempt's stamp, as it stands in entries of `captured` */
    uint64_t captured[CAPTURED_SLOTS];  /* address >> 4 | stamp << CAPTURED_STAMP_SHIFT */
    uint32_t stamp;         /* of the entries of the present attempt: counts up at each beginning */
    bool forgot;            /* an entry of captured memory of this attempt had to make room */
    uintptr_t tid;          /* ob_tid of what this thread allocates */
    Opened entries[OPENED_SLOTS];
} OpenedTable;

/* An attempt begins: nothing is open. */
static inline void
opened_reset(OpenedTable *table)
{
    table->tid = _Py_ThreadId();
    table->forgot = false;
    if (UNLIKELY(++table->stamp == 0)) {
        memset(table->entries, 0, sizeof table->entries);
        table->stamp = 1;
    }
    table->captured_stamp = (uint64_t)table->stamp << CAPTURED_STAMP_SHIFT;
    if (UNLIKELY(table->captured_stamp == 0))   /* stamps come again: old entries must not */
        memset(table->captured, 0, sizeof table->captured);
}

enum {  /* what for */
    OPENED_CAPTURED = 1,        /* made in this transaction: needs neither locks nor undo */
    OPENED_READ,            /* all of it may be read */
    OPENED_ITEMS,           /* the same, and looking an item up changes nothing */
    OPENED_WRITE,           /* all of it may be changed, its contents are logged */
    OPENED_APPEND,          /* items may be appended to the list */
    OPENED_SNAPSHOT,        /* its contents are logged */
    OPENED_BORN,            /* made in this transaction: something with a finalizer that `born` cannot have,
                               or a weak reference with a callback */
    OPENED_KEPT,            /* it lives until the attempt is over, whoever else lets go of it */
    OPENED_END,
};

#endif
