/* The locks of the program, threading.Lock and RLock (here: mutexes), between
 * transactions and the threads that are none.
 *
 * Transactions exclude one another by what they read and write; mutexes are all
 * that excludes plain threads.  So the transactions take a mutex together:
 *
 *  join      The first transaction that takes the mutex locks it, for all: a
 *            team.  Others join, and what each does inside is kept from the other
 *            members by their locks on cells.  What the program thinks of it, how
 *            often it has taken the mutex, is `level`, and private to the attempt.
 *  stay      Giving the mutex back lowers the level and no more: what has been
 *            written inside may still be rolled back.  So the member stays until
 *            its attempt has ended, committed with its effects or rolled back; a
 *            transaction that can be rolled back no more leaves at once.
 *  leave     The last of a team to leave unlocks the mutex: threads see all that
 *            was done inside, and nothing that was undone.
 *  keep      A transaction that commits while the program has the mutex owns the
 *            mutex's cell, which all members share: so it is the only one, and the
 *            mutex stays locked.  It is the program's then: transactions may take an RLock
 *            again and give it back, on whichever thread, and no thread may.
 *  adopt     A transaction that changes a mutex which the program has, or
 *            gives back one that a thread has taken, owns its cell and is a team
 *            of its own; should it be rolled back, the mutex stays locked.
 *
 * Waiting.  A transaction that needs a mutex from a thread waits in its place for
 * WAIT_NS at most.  Then it is rolled back and waits until the mutex can be had,
 * holding nothing.  So no transaction waits for a thread while somebody may wait
 * for it, and the two may take two mutexes in either order.  One that cannot be
 * rolled back any more becomes exclusive first: then it is the only one, has left
 * what the program has given back, and waits as the program would elsewhere.
 *
 * A thread that waits for a team gets the mutex when the members have ended: nobody
 * joins while it does, but who is older than a member (which may wait for it).  A
 * member that itself waits for another transaction meanwhile gives way
 * (mutexes_give_way); one that takes the mutex again and again, or sleeps, perhaps to
 * see what the thread has done, becomes exclusive.
 *
 * Exclusive transactions are alone, and members of no team: they take mutexes as any
 * thread does.
 */
#include "mutex.h"

#include "../core/latch.h"
#include "../core/park.h"
#include "../core/queue.h"
#include "../thread.h"
#include "access.h"

#include "internal/pycore_lock.h"

/* A transaction waits so long for a thread before it is rolled back, and looks again that
 * often whether it may join. */
#define WAIT_NS 2000000ll
/* Threads wait so long for a member that goes on and on before it has to give way. */
#define ENOUGH_NS 20000000ull

/* As _thread.lock and _thread.RLock begin; mutexes_init() compares the sizes. */
typedef struct {
    PyObject_HEAD
    _PyRecursiveMutex lock;     /* of a _thread.lock, only its mutex */
} MutexObject;

/* Not the idents of any threads: the owners of RLocks that a team has, or the program keeps. */
#define TEAM 1ull
#define PROGRAM 2ull

typedef struct Team {
    MutexObject *mutex;
    int members;
    uint64_t youngest;          /* the highest age of any that has joined */
    struct Team *next;
} Team;

/* Invariants, under the bucket's lock.  A team is in its bucket as long as it has members, and
 * its mutex is locked; an RLock's owner is TEAM then.  Who holds a bucket's lock waits for nobody. */
#define TEAM_BUCKETS 256
static struct { Latch lock; Team *teams; } buckets[TEAM_BUCKETS];

static PyTypeObject *lock_type, *rlock_type;

static inline Mutexes *
mutexes_of(Tx *tx)
{
    return &thread_of(tx)->mutexes;
}

/* ---- The mutex itself ------------------------------------------------------------------ */

static inline PyMutex *
raw(MutexObject *m)
{
    return &m->lock.mutex;
}

static inline bool
is_rlock(MutexObject *m)
{
    return Py_IS_TYPE((PyObject *)m, rlock_type);
}

static inline bool
is_locked(MutexObject *m)
{
    return _Py_atomic_load_uint8(&raw(m)->_bits) & _Py_LOCKED;
}

/* Does a thread sleep until it can have it? */
static inline bool
is_waited_for(MutexObject *m)
{
    return _Py_atomic_load_uint8(&raw(m)->_bits) & _Py_HAS_PARKED;
}

static bool
try_lock(MutexObject *m)
{
    uint8_t v = _Py_atomic_load_uint8(&raw(m)->_bits);
    while (!(v & _Py_LOCKED)) {
        if (_Py_atomic_compare_exchange_uint8(&raw(m)->_bits, &v, v | _Py_LOCKED))
            return true;
    }
    return false;
}

static bool
lock_for(MutexObject *m, int64_t ns)
{
    return _PyMutex_LockTimed(raw(m), ns, _PY_LOCK_DETACH) == PY_LOCK_ACQUIRED;
}

static inline unsigned long long
owner_of(MutexObject *m)
{
    return _Py_atomic_load_ullong_relaxed(&m->lock.thread);
}

static inline void
set_owner(MutexObject *m, unsigned long long thread)
{
    _Py_atomic_store_ullong_relaxed(&m->lock.thread, thread);
}

/* The program keeps it, so often; 0: it is free. */
static void
settle_lock(MutexObject *m, int level)
{
    if (is_rlock(m)) {
        m->lock.level = level > 0 ? (size_t)level - 1 : 0;
        set_owner(m, level > 0 ? PROGRAM : 0);
    }
    if (level > 0)
        return;
    if (is_rlock(m)) {
        PyMutex_Unlock(raw(m));
        return;
    }
    /* Any thread may have given it back meanwhile, which is an error of the program's. */
    PyObject *exception = PyErr_GetRaisedException();
    PyObject *r = PyObject_CallMethod((PyObject *)m, "release", NULL);
    if (r == NULL)
        PyErr_FormatUnraisable("Exception ignored while a transaction gives back %R", m);
    Py_XDECREF(r);
    PyErr_SetRaisedException(exception);
}

/* ---- Teams ----------------------------------------------------------------------------- */

static Team **
find_team(MutexObject *m, int bucket)
{
    Team **at = &buckets[bucket].teams;
    while (*at != NULL && (*at)->mutex != m)
        at = &(*at)->next;
    return at;
}

static inline int
bucket_of(MutexObject *m)
{
    return (int)((uintptr_t)m * 0x9E3779B97F4A7C15ull >> 56);
}

/* Who has locked the mutex for this purpose makes a team, under the bucket's lock. */
static int
found_team(Tx *tx, MutexObject *m, int bucket)
{
    Team *team = PyMem_RawMalloc(sizeof *team);
    if (team == NULL)
        return -1;
    *team = (Team){m, 1, atomic_load(&tx->age), buckets[bucket].teams};
    buckets[bucket].teams = team;
    if (is_rlock(m)) {
        m->lock.level = 0;
        set_owner(m, TEAM);
    }
    return 0;
}

/* May this transaction be one more? A thread that waits goes first, but not before an older
 * transaction: a member may wait for that one. */
static bool
may_join(Tx *tx, Team *team)
{
    return !is_waited_for(team->mutex) || atomic_load(&tx->age) < team->youngest;
}

typedef enum { JOINED, TAKEN, KEPT, FAILED } Joining;   /* TAKEN: by a thread; KEPT: by the program */

static Joining
join(Tx *tx, MutexObject *m)
{
    int bucket = bucket_of(m);
    Joining result = TAKEN;
    latch_take(&buckets[bucket].lock);
    Team *team = *find_team(m, bucket);
    if (team != NULL) {
        if (may_join(tx, team)) {
            team->members++;
            if (atomic_load(&tx->age) > team->youngest)
                team->youngest = atomic_load(&tx->age);
            result = JOINED;
        }
    }
    else if (try_lock(m))
        result = found_team(tx, m, bucket) < 0 ? FAILED : JOINED;
    else if (is_rlock(m) && owner_of(m) == PROGRAM)
        result = KEPT;
    latch_give(&buckets[bucket].lock);
    return result;
}

static void
leave(Tx *tx, Held *h, int level)
{
    MutexObject *m = (MutexObject *)h->mutex;
    int bucket = bucket_of(m);
    bool last = false;
    latch_take(&buckets[bucket].lock);
    Team **at = find_team(m, bucket), *team = *at;
    if (--team->members == 0) {
        *at = team->next;
        PyMem_RawFree(team);
        last = true;
    }
    latch_give(&buckets[bucket].lock);
    h->role = NO_MEMBER;
    if (last)
        settle_lock(m, level);
}

/* ---- What an attempt has taken ----------------------------------------------------------- */

/* Where the mutex is, or would be, in the table, which is open to every address and never full. */
static Held *
place_of(Held *table, Py_ssize_t cap, PyObject *mutex)
{
    size_t i = (uintptr_t)mutex * 0x9E3779B97F4A7C15ull >> 32;
    while (table[i & (size_t)(cap - 1)].mutex != NULL && table[i & (size_t)(cap - 1)].mutex != mutex)
        i++;
    return &table[i & (size_t)(cap - 1)];
}

/* As what it is a member with, or NULL. */
static Held *
held(Tx *tx, PyObject *mutex)
{
    if (mutexes_of(tx)->n == 0)
        return NULL;
    Held *h = place_of(mutexes_of(tx)->held, mutexes_of(tx)->cap, mutex);
    return h->mutex != NULL && h->role == MEMBER ? h : NULL;
}

/* Room for one more, before it is joined. */
static int
reserve_held(Tx *tx)
{
    if (2 * mutexes_of(tx)->n < mutexes_of(tx)->cap)
        return 0;
    Py_ssize_t cap = mutexes_of(tx)->cap ? 2 * mutexes_of(tx)->cap : 8;
    Held *table = PyMem_RawCalloc((size_t)cap, sizeof *table);
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        if (h->mutex != NULL)
            *place_of(table, cap, h->mutex) = *h;
    }
    PyMem_RawFree(mutexes_of(tx)->held);
    mutexes_of(tx)->held = table;
    mutexes_of(tx)->cap = cap;
    return 0;
}

static void
add_held(Tx *tx, PyObject *mutex, int role, int level, int kept)
{
    if (mutexes_of(tx)->n == 0) {
        mutexes_of(tx)->looked = now_ns();
        mutexes_of(tx)->wanted = false;
    }
    Held *h = place_of(mutexes_of(tx)->held, mutexes_of(tx)->cap, mutex);
    if (h->mutex == NULL) {
        mutexes_of(tx)->n++;
        Py_INCREF(mutex);
    }
    *h = (Held){mutex, role, level, kept};
}

/* Make a mutex that somebody has locked, and nobody else is about to touch (its cell is owned), a team's. */
static int
adopt(Tx *tx, PyObject *mutex)
{
    MutexObject *m = (MutexObject *)mutex;
    int kept = is_rlock(m) ? (int)m->lock.level + 1 : 1;
    int bucket = bucket_of(m);
    latch_take(&buckets[bucket].lock);
    int failed = found_team(tx, m, bucket);
    latch_give(&buckets[bucket].lock);
    if (failed) {
        PyErr_NoMemory();
        return -1;
    }
    add_held(tx, mutex, MEMBER, kept, kept);
    return 0;
}

static int
own_cell(Tx *tx, PyObject *mutex)
{
    bool first;
    return lock_exclusive(tx, cell_of(mutex, WHOLE), &first);
}

/* It can be rolled back no more: threads may see what it has done. */
static bool
is_final(Tx *tx)
{
    return tx->grade != GRADE_NONE || state_of(tx) == TX_COMMITTING;
}

/* Leave what the program has given back. Requires: is_final(). */
void
mutexes_leave(Tx *tx)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        if (h->role == MEMBER && h->level == 0)
            leave(tx, h, 0);
    }
}

/* Before the commit, still abortable: what the program keeps or has given back of what it had kept
 * before is a matter between transactions. */
int
mutexes_settle(Tx *tx)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        if (h->role == MEMBER && h->level > 0 && own_cell(tx, h->mutex) < 0)
            return -1;
    }
    return 0;
}

static void
run_natively(Tx *tx, Held *h)
{
    unsigned long long me = PyThread_get_thread_ident_ex();
    leave(tx, h, h->level);
    if (h->level > 0 && is_rlock((MutexObject *)h->mutex)) {
        set_owner((MutexObject *)h->mutex, me);
        h->role = NATIVE;
    }
}

/* It has become exclusive: it has in earnest, on this very thread, what the program has. */
void
mutexes_in_earnest(Tx *tx)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        if (h->role == MEMBER)
            run_natively(tx, h);
    }
}

/* The attempt has ended: what remains is what the program has. */
void
mutexes_end(Tx *tx, bool committed)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        MutexObject *m = (MutexObject *)h->mutex;
        if (h->role == MEMBER)
            leave(tx, h, committed ? h->level : h->kept);
        else if (h->role == NATIVE && is_locked(m) && owner_of(m) == PyThread_get_thread_ident_ex())
            set_owner(m, PROGRAM);
    }
}

/* The exclusive transaction goes on on another thread, where code without barriers may take RLocks again. */
void
mutexes_change_thread(Tx *tx, unsigned long from, unsigned long to)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        MutexObject *m = (MutexObject *)h->mutex;
        if (h->role == NATIVE && is_locked(m) && owner_of(m) == from)
            set_owner(m, to);
    }
}

/* Drop the references, where finalizers may run, which may take others. */
void
mutexes_forget(Tx *tx)
{
    Held *table = mutexes_of(tx)->held;
    Py_ssize_t cap = mutexes_of(tx)->cap;
    mutexes_of(tx)->held = NULL;
    mutexes_of(tx)->n = mutexes_of(tx)->cap = 0;
    for (Py_ssize_t i = 0; i < cap; i++)
        Py_XDECREF(table[i].mutex);
    if (mutexes_of(tx)->held != NULL) {
        PyMem_RawFree(table);
        return;
    }
    memset(table, 0, (size_t)cap * sizeof *table);
    mutexes_of(tx)->held = table;
    mutexes_of(tx)->cap = cap;
}

/* Does a thread wait for what this one has taken? */
static bool
is_wanted(Tx *tx)
{
    for (Py_ssize_t i = 0; i < mutexes_of(tx)->cap; i++) {
        Held *h = &mutexes_of(tx)->held[i];
        if (h->role == MEMBER && is_waited_for((MutexObject *)h->mutex))
            return true;
    }
    return false;
}

/* Has a thread waited, as far as one can see, for as long as it should? */
static bool
has_overstayed(Tx *tx)
{
    if (mutexes_of(tx)->n == 0)
        return false;
    uint64_t now = now_ns();
    if (now - mutexes_of(tx)->looked < ENOUGH_NS)
        return false;
    bool before = mutexes_of(tx)->wanted;
    mutexes_of(tx)->looked = now;
    mutexes_of(tx)->wanted = is_wanted(tx);
    return before && mutexes_of(tx)->wanted;
}

/* It has waited for another transaction since then. That one may be the thread that waits for
 * the mutex, in code of a commit. */
void
mutexes_give_way(Tx *tx, uint64_t since)
{
    if (now_ns() - since < ENOUGH_NS || !is_wanted(tx))
        return;
    if (is_final(tx))
        mutexes_leave(tx);
    else if (change_state(tx, attempt_of(tx), TX_ACTIVE, TX_DOOMED)) {
        tx->cause = CAUSE_MUTEX;
        atomic_store(&tx->attention, 1);
    }
}

/* ---- Waiting for a thread ---------------------------------------------------------------- */

/* Between two attempts: until the mutex can be had that the last one could not have. */
void
mutex_await(Tx *tx)
{
    MutexObject *m = (MutexObject *)mutexes_of(tx)->awaited;
    Queue *q = atomic_load(&tx->queue);
    int bucket = bucket_of(m);
    /* A queue that has ended waits for no thread: that may wait for the end of the run. */
    while (q == NULL || !queue_has_ended(q)) {
        latch_take(&buckets[bucket].lock);
        Team *team = *find_team(m, bucket);
        bool joinable = team != NULL ? may_join(tx, team) : is_rlock(m) && owner_of(m) == PROGRAM;
        latch_give(&buckets[bucket].lock);
        if (joinable)
            break;
        if (lock_for(m, WAIT_NS)) {
            PyMutex_Unlock(raw(m));
            break;
        }
        if (serve() < 0)
            PyErr_FormatUnraisable("Exception ignored in a request to the main thread");
        if (q != NULL && queue_is_interrupted(q))
            break;
    }
    Py_CLEAR(mutexes_of(tx)->awaited);
}

/* A thread has it: wait for a moment, else be rolled back. 0: taken, 1: has become exclusive. */
static int
wait_for_thread(Tx *tx, PyObject *mutex)
{
    MutexObject *m = (MutexObject *)mutex;
    if (lock_for(m, WAIT_NS)) {
        int bucket = bucket_of(m);
        latch_take(&buckets[bucket].lock);
        int failed = found_team(tx, m, bucket);
        latch_give(&buckets[bucket].lock);
        if (!failed)
            return 0;
        PyMutex_Unlock(raw(m));
        PyErr_NoMemory();
        return -1;
    }
    if (tx->grade == GRADE_NONE) {
        Py_XSETREF(mutexes_of(tx)->awaited, Py_NewRef(mutex));
        return abort_self(tx, CAUSE_MUTEX);
    }
    return exclusive_for(tx, "waiting for a lock that a thread holds", NULL) < 0 ? -1 : 1;
}

/* ---- Exclusive transactions ----------------------------------------------------------------- */

/* Has the program locked it, in this exclusive transaction or before? */
static bool
is_programs(MutexObject *m)
{
    return is_locked(m) && (owner_of(m) == PROGRAM || owner_of(m) == PyThread_get_thread_ident_ex());
}

/* What the two types had under the names of their methods when the engine was loaded: tools that look for blocking calls put functions
 * of their own there, which call these in their turn. */
static PyObject *originals[2];

/* The original of the method, by the thread that the transaction is on. */
static PyObject *
call_natively(Tx *tx, PyObject *mutex, const char *method, PyObject *args, PyObject *kwds)
{
    MutexObject *m = (MutexObject *)mutex;
    if (is_rlock(m)) {
        if (reserve_held(tx) < 0)
            return NULL;
        if (is_programs(m))
            set_owner(m, PyThread_get_thread_ident_ex());
        add_held(tx, mutex, NATIVE, 0, 0);  /* should it keep it */
    }
    PyObject *function = PyDict_GetItemString(originals[is_rlock(m)], method);      /* borrowed */
    if (function == NULL) {
        PyErr_SetString(PyExc_AttributeError, method);
        return NULL;
    }
    PyObject *self = PyTuple_Pack(1, mutex), *all = self == NULL ? NULL : PySequence_Concat(self, args);
    PyObject *result = all == NULL ? NULL : PyObject_Call(function, all, kwds);
    Py_XDECREF(all);
    Py_XDECREF(self);
    return result;
}

/* ---- What the program calls ------------------------------------------------------------------- */

static int
check_mutex(PyObject *mutex)
{
    if (Py_IS_TYPE(mutex, lock_type) || Py_IS_TYPE(mutex, rlock_type))
        return 0;
    PyErr_Format(PyExc_TypeError, "a lock is expected, not %T", mutex);
    return -1;
}

typedef enum { ERROR = -1, NOT_TAKEN, TAKEN_NOW, EXCLUSIVE } Taking;

static Taking
take_exclusively(Tx *tx, const char *why)
{
    return exclusive_for(tx, why, NULL) < 0 ? ERROR : EXCLUSIVE;
}

static Taking
take(Tx *tx, PyObject *mutex, bool blocking)
{
    Held *h = held(tx, mutex);
    MutexObject *m = (MutexObject *)mutex;
    if (h != NULL && h->level > 0) {
        if (!is_rlock(m))   /* it waits for itself, until a thread gives it back */
            return blocking ? take_exclusively(tx, "waiting for a lock that has been taken already") : NOT_TAKEN;
        h->level++;
        return TAKEN_NOW;
    }
    if (has_overstayed(tx))
        return take_exclusively(tx, "taking locks on and on while a thread waits for one of them");
    if (h != NULL) {
        h->level++;
        return TAKEN_NOW;
    }
    if (lock_shared(tx, cell_of(mutex, WHOLE)) < 0 || reserve_held(tx) < 0)
        return ERROR;
    switch (join(tx, m)) {
    case JOINED:
        add_held(tx, mutex, MEMBER, 1, 0);
        return TAKEN_NOW;
    case KEPT:
        if (own_cell(tx, mutex) < 0)
            return ERROR;
        if (owner_of(m) == PROGRAM) {   /* still, though another transaction has come first */
            if (adopt(tx, mutex) < 0)
                return ERROR;
            held(tx, mutex)->level++;
            return TAKEN_NOW;
        }
        return take(tx, mutex, blocking);
    case TAKEN:
        break;
    case FAILED:
        PyErr_NoMemory();
        return ERROR;
    }
    if (!blocking)
        return NOT_TAKEN;
    int waited = wait_for_thread(tx, mutex);
    if (waited != 0)
        return waited < 0 ? ERROR : EXCLUSIVE;
    add_held(tx, mutex, MEMBER, 1, 0);
    return TAKEN_NOW;
}

/* 1: given back, 0: it is not the program's to give, -1: failed. */
static int
give(Tx *tx, PyObject *mutex)
{
    Held *h = held(tx, mutex);
    MutexObject *m = (MutexObject *)mutex;
    if (h == NULL) {
        if (own_cell(tx, mutex) < 0 || reserve_held(tx) < 0)
            return -1;
        if (!is_locked(m) || (is_rlock(m) && owner_of(m) != PROGRAM))
            return 0;
        if (adopt(tx, mutex) < 0)
            return -1;
        h = held(tx, mutex);
    }
    if (h->level == 0)
        return 0;
    if (--h->level == 0 && is_final(tx))
        leave(tx, h, 0);
    return 1;
}

static Tx *
mutex_tx(PyObject *mutex)
{
    if (check_mutex(mutex) < 0)
        return NULL;
    if (stm_self == NULL || !stm_self->live)
        PyErr_SetString(PyExc_RuntimeError, "not in a transaction");
    return PyErr_Occurred() ? NULL : stm_self;
}

/* How `acquire` is asked to wait; what it complains about, or nobody waits for, is the original's business. */
typedef enum { ASK, WAIT, WAIT_A_WHILE, UNUSUAL } Patience;

static Patience
patience_of(PyObject *args, PyObject *kwds)
{
    static char *names[] = {"", "blocking", "timeout", NULL};
    PyObject *mutex, *timeout = NULL;
    int blocking = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwds, "O|pO", names, &mutex, &blocking, &timeout)) {
        PyErr_Clear();
        return UNUSUAL;
    }
    if (timeout == NULL)
        return blocking ? WAIT : ASK;
    bool number = PyFloat_CheckExact(timeout) || (PyLong_CheckExact(timeout) && PyUnstable_Long_IsCompact((PyLongObject *)timeout));
    double seconds = number ? PyFloat_AsDouble(timeout) : -2;
    if (seconds == -1)
        return blocking ? WAIT : ASK;
    return blocking && seconds >= 0 && seconds < 1e9 ? WAIT_A_WHILE : UNUSUAL;
}

static PyObject *
mutex_acquire(PyObject *self, PyObject *args, PyObject *kwds)
{
    (void)self;
    PyObject *mutex = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None;
    Tx *tx = mutex_tx(mutex);
    if (tx == NULL)
        return NULL;
    if (tx->grade != GRADE_EXCLUSIVE) {
        Patience patience = patience_of(args, kwds);
        Taking taken = patience == UNUSUAL ? NOT_TAKEN : take(tx, mutex, patience == WAIT);
        if (taken == TAKEN_NOW)
            Py_RETURN_TRUE;
        if (taken == NOT_TAKEN && patience == ASK)
            Py_RETURN_FALSE;
        if (taken == ERROR || (taken == NOT_TAKEN && exclusive_for(tx, "waiting for a lock for a time", NULL) < 0))
            return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *result = rest == NULL ? NULL : call_natively(tx, mutex, "acquire", rest, kwds);
    Py_XDECREF(rest);
    return result;
}

static PyObject *no_args;

static PyObject *
mutex_release(PyObject *self, PyObject *mutex)
{
    (void)self;
    Tx *tx = mutex_tx(mutex);
    if (tx == NULL)
        return NULL;
    if (tx->grade == GRADE_EXCLUSIVE)
        return call_natively(tx, mutex, "release", no_args, NULL);
    int given = give(tx, mutex);
    if (given < 0)
        return NULL;
    if (given == 0) {
        PyErr_SetString(PyExc_RuntimeError, is_rlock((MutexObject *)mutex) ? "cannot release un-acquired lock"
                        : "release unlocked lock");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
mutex_enter(PyObject *self, PyObject *mutex)
{
    PyObject *args = PyTuple_Pack(1, mutex);
    PyObject *result = args == NULL ? NULL : mutex_acquire(self, args, NULL);
    Py_XDECREF(args);
    return result;
}

static PyObject *
mutex_exit(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n > 0)
        return mutex_release(self, args[0]);
    PyErr_SetString(PyExc_TypeError, "a lock is expected");
    return NULL;
}

static PyObject *
mutex_locked(PyObject *self, PyObject *mutex)
{
    (void)self;
    Tx *tx = mutex_tx(mutex);
    if (tx == NULL)
        return NULL;
    MutexObject *m = (MutexObject *)mutex;
    if (tx->grade == GRADE_EXCLUSIVE)
        return PyBool_FromLong(is_locked(m));
    Held *h = held(tx, mutex);
    if (h != NULL)
        return PyBool_FromLong(h->level > 0);
    if (lock_shared(tx, cell_of(mutex, WHOLE)) < 0)
        return NULL;
    /* A team has it within transactions only, and one that will keep it owns the cell. */
    int bucket = bucket_of(m);
    latch_take(&buckets[bucket].lock);
    bool locked = *find_team(m, bucket) == NULL && is_locked(m);
    latch_give(&buckets[bucket].lock);
    return PyBool_FromLong(locked);
}

/* How often the program has an RLock; -1 with an exception. */
static Py_ssize_t
count_of(Tx *tx, PyObject *mutex)
{
    Held *h = held(tx, mutex);
    if (h != NULL)
        return h->level;
    MutexObject *m = (MutexObject *)mutex;
    if (tx->grade != GRADE_EXCLUSIVE && lock_shared(tx, cell_of(mutex, WHOLE)) < 0)
        return -1;
    bool mine = tx->grade == GRADE_EXCLUSIVE ? is_programs(m) : is_locked(m) && owner_of(m) == PROGRAM;
    return mine ? (Py_ssize_t)m->lock.level + 1 : 0;
}

static PyObject *
mutex_is_owned(PyObject *self, PyObject *mutex)
{
    (void)self;
    Tx *tx = mutex_tx(mutex);
    Py_ssize_t count = tx == NULL ? -1 : count_of(tx, mutex);
    return count < 0 ? NULL : PyBool_FromLong(count > 0);
}

static PyObject *
mutex_recursion_count(PyObject *self, PyObject *mutex)
{
    (void)self;
    Tx *tx = mutex_tx(mutex);
    Py_ssize_t count = tx == NULL ? -1 : count_of(tx, mutex);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

/* What Condition.wait() does with an RLock before it waits for a thread, and afterwards. */
static PyObject *
mutex_native(PyObject *self, PyObject *args)
{
    (void)self;
    const char *method;
    PyObject *mutex, *rest;
    if (!PyArg_ParseTuple(args, "OsO!", &mutex, &method, &PyTuple_Type, &rest))
        return NULL;
    Tx *tx = mutex_tx(mutex);
    if (tx == NULL || exclusive_for(tx, "waiting on a condition", NULL) < 0)
        return NULL;
    PyObject *result = call_natively(tx, mutex, method, rest, NULL);
    /* The state names the thread that gave it back; the transaction may go on on another one. */
    if (result != NULL && is_rlock((MutexObject *)mutex) && strcmp(method, "_acquire_restore") == 0)
        set_owner((MutexObject *)mutex, PyThread_get_thread_ident_ex());
    return result;
}

int
mutex_take_at_once(PyObject *mutex)
{
    MutexObject *m = (MutexObject *)mutex;
    if (is_rlock(m) && is_locked(m) && owner_of(m) == PyThread_get_thread_ident_ex()) {
        m->lock.level++;
        return true;
    }
    if (!try_lock(m))
        return false;
    if (is_rlock(m)) {
        m->lock.level = 0;
        set_owner(m, PyThread_get_thread_ident_ex());
    }
    return true;
}

void
mutex_comes_from(PyObject *mutex, unsigned long thread)
{
    MutexObject *m = (MutexObject *)mutex;
    if (is_rlock(m) && is_locked(m) && owner_of(m) == thread)
        set_owner(m, PyThread_get_thread_ident_ex());
}

static PyObject *
leave_mutexes(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Tx *tx = stm_self;
    if (tx != NULL && mutexes_of(tx)->n > 0 && is_final(tx))
        mutexes_leave(tx);
    Py_RETURN_NONE;
}

static PyObject *
await_lock(PyObject *self, PyObject *args)
{
    (void)self;
    MutexObject *m;
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "O!|d", lock_type, &m, &seconds))
        return NULL;
    return PyBool_FromLong(lock_for(m, seconds < 0 ? -1 : (int64_t)(seconds * 1e9)));
}

static PyObject *
mutex_wanted(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(stm_self != NULL && stm_self->live && is_wanted(stm_self));
}

PyMethodDef mutex_functions[] = {
    {"mutex_acquire", _PyCFunction_CAST(mutex_acquire), METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("mutex_acquire(lock, blocking=True, timeout=-1): the method, in a transaction")},
    {"mutex_release", mutex_release, METH_O, PyDoc_STR("mutex_release(lock): the method, in a transaction")},
    {"mutex_enter", mutex_enter, METH_O, PyDoc_STR("mutex_enter(lock): ``__enter__``, in a transaction")},
    {"mutex_exit", _PyCFunction_CAST(mutex_exit), METH_FASTCALL,
     PyDoc_STR("mutex_exit(lock, *exception): ``__exit__``, in a transaction")},
    {"mutex_locked", mutex_locked, METH_O, PyDoc_STR("mutex_locked(lock): the method, in a transaction")},
    {"mutex_is_owned", mutex_is_owned, METH_O, PyDoc_STR("mutex_is_owned(rlock): the method, in a transaction")},
    {"mutex_recursion_count", mutex_recursion_count, METH_O,
     PyDoc_STR("mutex_recursion_count(rlock): the method, in a transaction")},
    {"mutex_native", mutex_native, METH_VARARGS,
     PyDoc_STR("mutex_native(lock, method, args): become exclusive, and call it")},
    {"mutex_wanted", mutex_wanted, METH_NOARGS, PyDoc_STR("does a thread wait for a lock that this transaction has taken?")},
    {"await_lock", await_lock, METH_VARARGS,
     PyDoc_STR("await_lock(lock, seconds=-1): has it been taken?  A thread of the project's gives it in a moment; the turn is not lent meanwhile")},
    {"leave_mutexes", leave_mutexes, METH_NOARGS,
     PyDoc_STR("in a deferred action that takes locks itself: let those go that the program has given back")},
    {NULL, NULL, 0, NULL},
};

/* In the child of a fork: what teams had that have no members here is free. */
void
mutexes_in_child(void)
{
    for (int i = 0; i < TEAM_BUCKETS; i++) {
        buckets[i].lock = (Latch){0};
        Team **at = &buckets[i].teams;
        while (*at != NULL) {
            Team *team = *at;
            team->members = stm_self != NULL && held(stm_self, (PyObject *)team->mutex) != NULL;
            if (team->members > 0) {
                at = &team->next;
                continue;
            }
            *at = team->next;
            if (is_rlock(team->mutex))
                set_owner(team->mutex, 0);
            *raw(team->mutex) = (PyMutex){._bits = _Py_UNLOCKED};
            PyMem_RawFree(team);
        }
    }
}

int
mutexes_init(void)
{
    PyObject *module = PyImport_ImportModule("_thread");
    if (module == NULL)
        return -1;
    lock_type = (PyTypeObject *)PyObject_GetAttrString(module, "lock");
    rlock_type = (PyTypeObject *)PyObject_GetAttrString(module, "RLock");
    Py_DECREF(module);
    no_args = PyTuple_New(0);
    if (lock_type == NULL || rlock_type == NULL || no_args == NULL)
        return -1;
    if (rlock_type->tp_basicsize != sizeof(MutexObject)
        || lock_type->tp_basicsize != (Py_ssize_t)(sizeof(PyObject) + sizeof(void *))) {
        PyErr_Format(PyExc_SystemError, "locks of this interpreter are of other sizes: %zd, %zd", lock_type->tp_basicsize,
                     rlock_type->tp_basicsize);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        PyObject *methods = PyType_GetDict(i ? rlock_type : lock_type);
        originals[i] = methods == NULL ? NULL : PyDict_Copy(methods);
        Py_XDECREF(methods);
        if (originals[i] == NULL)
            return -1;
    }
    return 0;
}
