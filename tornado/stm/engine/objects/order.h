/* The order of the keys of a dict, which a serial run would have. */
#ifndef TORNADO_STM_ORDER_H
#define TORNADO_STM_ORDER_H

#include "../core/tx.h"

/* What a transaction has changed of the order of keys. */
typedef struct {
    Py_ssize_t unordered;           /* at most so many entries of the undo log are of inserted keys to be put in order */
    PyObject *placeholders;         /* list of keys that stand for deleted ones, of this thread for ever */
    Py_ssize_t n_placeholders;      /* of which so many are in use */
    bool deletes_keys;              /* so that owning a key does not tell that its insertion is logged */
    bool shares_hashes;             /* has logged keys that may have the hash of a string or small number */
} KeyOrder;

static inline void
order_reset(KeyOrder *order)
{
    order->unordered = order->n_placeholders = 0;
    order->deletes_keys = order->shares_hashes = false;
}

int order_delete_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value);
void order_drop_placeholders(Tx *tx);
int order_hide_placeholders(Tx *tx, PyObject *dict);
const void *order_place(PyObject *dict);
void order_logged(Tx *tx, Undo *u);
void order_inserted_keys(Tx *tx, const void *place);

#endif
