/* The order of the keys of a dict, which a serial run would have. */
#ifndef TORNADO_STM_ORDER_H
#define TORNADO_STM_ORDER_H

#include "../core/tx.h"

/* An entry of the undo log that is of an inserted or deleted key. */
typedef struct {
    Py_ssize_t entry, before;       /* where it is in the log; and that before it in the same bucket, or -1 */
    Py_ssize_t attribute_before;    /* likewise that of the attribute before it, if it is one: they may come to be in another dict */
    unsigned bucket;
} Noted;

#define ORDER_BUCKETS 1024          /* of dicts and of the values of instances, by their addresses; one more is for other attributes */

/* Such entries, found by what the keys are in: nobody need go through all of the undo log. */
typedef struct {
    Noted *noted;                   /* the memory is the thread's for ever */
    Py_ssize_t n, cap;
    int last[ORDER_BUCKETS + 1];    /* the latest in each bucket, and 1; 0: none */
    int last_attribute;             /* likewise */
} KeyNotes;

/* What a transaction has changed of the order of keys. */
typedef struct {
    KeyNotes inserted;              /* what is to be put in order */
    KeyNotes deleted;               /* what leaves a placeholder */
    PyObject *placeholders;         /* list of keys that stand for deleted ones, of this thread for ever */
    Py_ssize_t n_placeholders;      /* of which so many are in use */
    bool deletes_keys;              /* so that owning a key does not tell that its insertion is logged */
    bool shares_hashes;             /* has logged keys that may have the hash of a string or small number */
} KeyOrder;

static inline void
key_notes_clear(KeyNotes *notes)
{
    while (notes->n > 0)
        notes->last[notes->noted[--notes->n].bucket] = 0;
    notes->last_attribute = 0;
}

/* The undo log begins anew. */
static inline void
order_forget(KeyOrder *order)
{
    key_notes_clear(&order->inserted);
    key_notes_clear(&order->deleted);
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
int order_logged(Tx *tx, Undo *u);
void order_inserted_keys(Tx *tx);
void order_inserted_items(Tx *tx, PyObject *dict);

#endif
