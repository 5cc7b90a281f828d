/* Opening objects: the locks that an operation needs, and the undo it must log.
 *
 * A function that "opens" something returns 0 when the caller may go on and -1 with an exception set when the
 * transaction must abort (or failed).  All of them come before the native operation.  Requires: tx->open, or at least
 * tx->live: an exclusive transaction needs no locks and logs nothing.
 */
#ifndef TORNADO_STM_ACCESS_H
#define TORNADO_STM_ACCESS_H

#include "types.h"

#include "../core/tx.h"

/* ---- For whoever is about to use an object ------------------------------------------------ */

int open_attr_read(Tx *tx, PyObject *obj, PyObject *name);
/* Is that done without a lock, so that nothing is left to do? */
bool attr_read_by_bias(Tx *tx, PyObject *obj, PyObject *name);
/* Has this transaction made the instance, and read its __dict__? */
bool has_captured_dict(Tx *tx, PyObject *obj);

/* `raw`: by object.__setattr__, past a __setattr__ of the class. */
int open_attr_write(Tx *tx, PyObject *obj, PyObject *name, bool raw);
/* del obj.name. A slot or a property is as in an assignment. */
int open_attr_delete(Tx *tx, PyObject *obj, PyObject *name, bool raw);

int open_whole_read(Tx *tx, PyObject *obj);
int open_whole_write(Tx *tx, PyObject *obj);
int open_key_read(Tx *tx, PyObject *obj, PyObject *key);
/* obj[key], by which some containers get a key that they do not have. */
int open_item_read(Tx *tx, PyObject *obj, PyObject *key);
int open_key_write(Tx *tx, PyObject *obj, PyObject *key, bool del);
/* Somebody is going to take items from it. */
int open_iter(Tx *tx, PyObject *obj);
int open_at_depth(Tx *tx, PyObject *obj, int depth);
/* An object that C code takes for a mapping: it asks for its keys. */
int open_mapping(Tx *tx, PyObject *obj);

int open_list_append(Tx *tx, PyObject *list);
int open_list_pop(Tx *tx, PyObject *list, Py_ssize_t index);
enum { DEQUE_APPEND, DEQUE_APPENDLEFT, DEQUE_POP, DEQUE_POPLEFT };
int open_deque_op(Tx *tx, PyObject *deque, int op);
/* deque.remove(item): 1; 0 where that is to be opened as any change for which items are compared; -1. */
int open_deque_remove(Tx *tx, PyObject *deque, PyObject *item);
int open_set_change(Tx *tx, PyObject *set, PyObject *key);
/* Log that an element is about to be taken out (it is there) or put in. */
int log_element(Tx *tx, PyObject *set, PyObject *key, Py_hash_t hash, bool there);
int open_closure_read(Tx *tx, PyObject *cell);
int open_closure_write(Tx *tx, PyObject *cell);
int open_context(Tx *tx, PyObject *context);

/* ---- Running alone (reasons.c) ------------------------------------------------------------- */

extern PyObject *stm_exclusive_reasons, *stm_exclusive_seconds;
int reasons_init(void);
void count_reason(Tx *tx, const char *why);

/* That weak reference is called: what it refers to lives until the attempt is over (see borrowed.c). */
void keep_referent(Tx *tx, PyObject *reference);
void count_gathered(Tx *tx, PyObject *reason);      /* it runs alone for that reason of before, as was expected */
void count_time_alone(Tx *tx, uint64_t ns);     /* for the reason that was counted last */
/* Go exclusive because of something that the engine does not understand: what, and the object or name, or NULL. */
int exclusive_for(Tx *tx, const char *what, PyObject *obj);

/* ---- For the kinds ------------------------------------------------------------------------- */

/* Nothing can be changed there, or read by a key. */
int open_nothing(Tx *tx, PyObject *obj);
int open_no_key(Tx *tx, PyObject *obj, PyObject *key);

/* Own it until the end of the transaction, whatever it is; nothing is logged. */
int own_whole(Tx *tx, PyObject *obj);

/* For `read_whole` and `write_whole` of what is locked as a whole. */
int lock_container_read(Tx *tx, PyObject *obj);
/* The same with another way to lock: that of containers whose keys have locks of their own. */
int lock_whole_read(Tx *tx, PyObject *obj, int (*lock)(Tx *tx, Cell c));
int lock_container_write(Tx *tx, PyObject *obj);
/* It has just been locked for reading. Returns 0. */
int note_read(Tx *tx, PyObject *obj);
/* Is the whole open, so that no key needs a lock? -1 to abort. */
int is_open_for_keys(Tx *tx, PyObject *obj);
/* All of it has been opened for reading, and no method makes items that are missed. */
void note_items(Tx *tx, PyObject *obj);

/* Log a copy of the whole contents, once a transaction. Nobody else may change them. */
int log_contents(Tx *tx, PyObject *obj);
/* The same for one that this transaction owns, to do with it what it likes. */
int log_all(Tx *tx, PyObject *obj);

/* 1 with the hash (of which key_bits() makes a cell), 0 when the key has none (the native operation complains),
 * -1 when the transaction aborted in a __hash__. */
int hash_of(PyObject *key, Py_hash_t *hash);

/* Has this key been logged, whose cell was owned before? That does not tell, for another key may have the same hash: hash(-1) ==
 * hash(-2), hash("a") == hash(b"a"), hash(0) == hash("").  Among the latest entries only: to log a key twice does no harm. */
bool key_is_logged(Tx *tx, PyObject *obj, PyObject *key, Py_hash_t hash);

/* undo_push(), of a key of a dict or set. One that only Python code can compare has to be the very object that is there, or
 * will be. */
Undo *undo_push_key(Tx *tx, const UndoKind *kind, PyObject *obj, PyObject *key, Py_hash_t hash, PyObject *old);

/* A list of what iteration in C gives, which runs no Python code; NULL with an exception. Whole for threads that are no transactions, as
 * all is that logs or puts back contents, where the iterator locks the object and nothing else: with a second lock the thread might
 * have to let go of the first one. */
PyObject *c_items(PyObject *obj);

/* The method of that name of the C type that the object's class derives from. An override does not run. */
PyObject *c_base_method(PyObject *obj, PyObject *name);
int call_c_method(PyObject *obj, const char *method, PyObject *arg);

/* For a rollback: obj.empty(a) and obj.fill(b), by methods in C that run no code of the program's, and for threads in one step. `contents`,
 * unless it is NULL, makes a list of what is displaced. */
int replace_contents(Tx *tx, PyObject *obj, const char *empty, PyObject *a, const char *fill, PyObject *b, PyObject *(*contents)(PyObject *));

/* Undone by obj.method(value), or obj.method(); the operation changes the size of the object, which is n now. A call may be announced
 * twice: by the instruction that was specialised for another callable, and by the generic one in its place. */
int push_resizing_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value, Py_ssize_t n);

#endif
