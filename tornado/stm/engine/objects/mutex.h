/* threading.Lock and RLock, between transactions and threads that are none. */
#ifndef TORNADO_STM_MUTEX_H
#define TORNADO_STM_MUTEX_H

#include "../core/tx.h"

/* A threading.Lock or RLock that this attempt has taken or changed: see mutex.c. */
typedef struct {
    PyObject *mutex;                /* owned; NULL: no entry */
    enum { NO_MEMBER = 0, MEMBER, NATIVE } role;    /* NATIVE: an RLock of an exclusive one, which a thread owns */
    int level;                      /* so often the program has taken it, as the attempt sees it */
    int kept;                       /* and had when the attempt changed it first */
} Held;

/* Of the present attempt. */
typedef struct {
    Held *held;                     /* hash table of `cap` places, `n` in use */
    Py_ssize_t n, cap;
    uint64_t looked;                /* when it has last looked whether a thread waits for any, in nanoseconds */
    bool wanted;                    /* and whether one did */
    PyObject *awaited;              /* the one to wait for before the next attempt, or NULL */
} Mutexes;

int mutexes_init(void);
extern PyMethodDef mutex_functions[];
int mutexes_settle(Tx *tx);
void mutexes_leave(Tx *tx);
void mutexes_in_earnest(Tx *tx);
void mutexes_end(Tx *tx, bool committed);
void mutexes_change_thread(Tx *tx, unsigned long from, unsigned long to);
void mutexes_forget(Tx *tx);
void mutexes_give_way(Tx *tx, uint64_t since);
void mutex_await(Tx *tx);
/* This thread takes the lock if it can, past transactions. */
int mutex_take_at_once(PyObject *mutex);
/* What that thread has taken in the place of this one is this one's. */
void mutex_comes_from(PyObject *mutex, unsigned long thread);
void mutexes_in_child(void);

#endif
