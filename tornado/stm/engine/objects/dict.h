/* dict: its keys are locked one by one. */
#ifndef TORNADO_STM_DICT_H
#define TORNADO_STM_DICT_H

#include "types.h"

#include "../core/orec.h"

int dict_init(void);

/* Lock one key, for reading or to own it; of a dict with storage of its own with the intention on the whole, of
 * a view of an instance as its attribute. */
int lock_key_shared(Tx *tx, PyObject *dict, Cell key_cell);
int lock_key_owned(Tx *tx, PyObject *dict, Cell key_cell, bool *first);

/* Has it a __missing__ in C, as a defaultdict has? */
bool inserts_missing_keys(PyObject *dict);

int visit_dict(Tx *tx, PyObject *dict, Visit visit, void *arg);
int open_merge(Tx *tx, PyObject *obj, PyObject *other);
/* C code is about to look keys up, and may come to insert missing ones. */
int open_missing_keys(Tx *tx, PyObject *dict);
int delete_key(Tx *tx, PyObject *obj, PyObject *key, PyObject **value);

/* A key is about to be changed, or inserted (`old` is NULL): the entry of the log, or NULL with an exception. */
Undo *log_key(Tx *tx, PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *old);

extern const UndoKind undo_key;     /* dict[key] = old, or delete it */
extern const UndoKind undo_dict;    /* contents = old */

#endif
