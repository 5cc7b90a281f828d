/* The order of the keys of a dict, which a serial run would have. */
#ifndef TORNADO_STM_ORDER_H
#define TORNADO_STM_ORDER_H

#include "../core/tx.h"

/* An entry of the undo log that is of an inserted key. */
typedef struct {
    Py_ssize_t entry, before;       /* where it is in the log; and that before it in the same bucket, or -1 */
    unsigned bucket;
} Noted;

#define ORDER_BUCKETS 1024          /* of dicts, by their addresses; one more is for attributes, which may come to be in another dict */

/* What a transaction has changed of the order of keys. */
typedef struct {
    Noted *noted;                   /* what of the undo log is, or was, to be put in order: so nobody need go through all of that; the memory */
    Py_ssize_t n_noted, cap;        /* is the thread's for ever */
    int last[ORDER_BUCKETS + 1];        /* the latest in each bucket, and 1; 0: none */
    PyObject *placeholders;         /* list of keys that stand for deleted ones, of this thread for ever */
    Py_ssize_t n_placeholders;      /* of which so many are in use */
    bool deletes_keys;              /* so that owning a key does not tell that its insertion is logged */
    bool shares_hashes;             /* has logged keys that may have the hash of a string or small number */
} KeyOrder;

/* The undo log begins anew. */
static inline void
order_forget(KeyOrder *order)
{
    while (order->n_noted > 0)
        order->last[order->noted[--order->n_noted].bucket] = 0;
}

static inline void
order_reset(KeyOrder *order)
{
    order_forget(order);
    order->n_placeholders = 0;
    order->deletes_keys = order->shares_hashes = false;
}

int order_delete_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value);
void order_drop_placeholders(Tx *tx);
int order_hide_placeholders(Tx *tx, PyObject *dict);
const void *order_place(PyObject *dict);
void order_logged(Tx *tx, Undo *u);
void order_inserted_keys(Tx *tx, const void *place);
void order_inserted_items(Tx *tx, PyObject *dict);      /* the same of a dict that is no namespace */

#endif
