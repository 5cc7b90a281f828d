/* The transactional engine: shared declarations.
 *
 * Concurrency control is two-phase locking with in-place writes and an undo
 * log (TLRW: Dice & Shavit, "TLRW: Return of the Read-Write Lock", 2010):
 *
 *   orec.c         what is locked: ownership records (writers), read marks
 *   bias.c         what is only read for long goes without marks
 *   contention.c   who waits, who is doomed; irrevocable and exclusive mode
 *   undo.c         what an abort puts back
 *   order.c        the order of the keys of dicts; dictkeys.c: its tools
 *   frames.c       snapshots of suspended generators and coroutines
 *   born.c         what an aborted attempt has made must die unnoticed
 *   types.c        which types have mutable state, and of which shape
 *   access.c       opening an object for an operation: locks plus undo
 *   namespaces.c   dicts whose keys are names: globals, attributes
 *   functions.c    the same for attributes of functions
 *   classes.c      making classes; __subclasses__() and abstract classes
 *   threadlocal.c  the same for those of threading.local
 *   deep.c         the same for all that C code may read from an object on
 *   views.c        memoryview
 *   structures.c   iterators and other objects that are C structures
 *   calls.c        effects of C callables at a call
 *   callbacks.c    calls that C code makes
 *   anchor.c       calls of C code that belong on the loop's thread
 *   lru.c          functools.lru_cache
 *   mutexes.c      threading.Lock and RLock, between transactions and threads
 *   twins.c        stand-ins for C functions, in C
 *   tracebacks.c   what a program sees of all that when an exception passes
 *   transaction.c  begin, retry, commit, publish
 *   guard.c        SIGTERM, also while the interpreter stands still
 *   contexts.c     the variables (contextvars) of those in a queue
 *   queue.c        transactions that wait, and the loop of a thread that runs them
 *   proflog.c      the PYPYSTM conflict log
 *   locations.c    the places in the program that it names
 *   history.c      what the engine decided, for tests
 *   module.c       the Python face of all this
 *
 * A function that "opens" something returns 0 when the caller may go on and
 * -1 with an exception set when the transaction must abort (or failed).
 */
#ifndef TORNADO_STM_H
#define TORNADO_STM_H

#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "internal/pycore_frame.h"
#include "internal/pycore_interpframe.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_stackref.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define MAX_THREADS 128

/* A code flag beyond CPython's own: the project's code, which knows about transactions and has no barriers. */
#define CO_STM_TRUSTED 0x20000000

/* ---- Cells ------------------------------------------------------------
 * A cell is the smallest thing that is locked: an attribute of an instance,
 * a key of a dict or set, or a whole object (key 0). It is known by a 64-bit
 * hash of (object, key); two cells with one hash only wait needlessly. */
typedef uint64_t Cell;

static inline Cell
cell_of(const void *obj, uint64_t key)
{
    uint64_t h = ((uintptr_t)obj >> 4) * 0x9E3779B97F4A7C15ull;
    h ^= key * 0xC2B2AE3D27D4EB4Full + 0x165667B19E3779F9ull;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ull;
    h ^= h >> 32;
    return h;
}

#define WHOLE 0ull
/* Key hashes are moved away from WHOLE. */
static inline uint64_t key_bits(Py_hash_t h) { return (uint64_t)h | (1ull << 63); }

/* ---- Read marks ---------------------------------------------------------
 * One table a thread, written by its owner only, read by every writer.
 * mark = epoch << 18 | tag << 2 | mode. A mark counts only while its epoch is
 * the owner's current one, so that ending a transaction drops all of them. */
#define BUCKET_BITS 16           /* of marks and of ownership records: cells with one mark share a bucket of those */
#define MARK_BUCKETS (1u << BUCKET_BITS)
#define MARK_WAYS 4
#define EPOCH_MAX ((1u << 14) - 1)

enum {
    MODE_INTENT_READ = 0,   /* reads a key of this container */
    MODE_SHARED = 1,        /* reads the cell (of a container: all of it) */
    MODE_INTENT_WRITE = 2,  /* writes a key of this container */
    MODE_EXCLUSIVE = 4,     /* owns the cell: never in a mark */
};
#define MODE_MASK 3u
/* The tag that a full bucket falls back to: it stands for every cell there. */
#define MARK_ANY_TAG 0xFFFFu

/* ---- Ownership records --------------------------------------------------
 * word = tag << 8 | owner's slot, 0 when free. A cell is owned by at most one
 * thread; its word lies in any way of its bucket. Words are set under the
 * bucket's spin lock and cleared by their owner with a plain release store. */
#define OREC_BUCKETS (1u << BUCKET_BITS)
#define OREC_WAYS 7
typedef struct {
    _Atomic uint64_t word[OREC_WAYS];
    _Atomic uint64_t spin;
} OrecBucket;

/* ---- Undo log ----------------------------------------------------------- */
typedef enum {
    UNDO_ATTR,          /* obj.key = old (or delete) */
    UNDO_DICT_SET,      /* dict[key] = old (or delete: the key was inserted) */
    UNDO_DICT_DEL,      /* put key back in the place of mem, a placeholder; n is where that was */
    UNDO_NAME_DEL,      /* put the name back as the n-th of the namespace */
    UNDO_DICT_ALL,      /* contents = old (a dict) */
    UNDO_SET_ADD,       /* discard key */
    UNDO_SET_DEL,       /* add key, in place n */
    UNDO_SET_ALL,       /* contents = old (a set) */
    UNDO_SET_GROWN,     /* places as in old (a set) */
    UNDO_LIST_LEN,      /* cut to n items */
    UNDO_LIST_ITEM,     /* list[n] = old */
    UNDO_LIST_ALL,      /* contents = old (a list) */
    UNDO_BYTES,         /* contents = old (a bytearray, bytes) */
    UNDO_ARRAY,         /* contents = old (an array.array, a list) */
    UNDO_SEQ_ALL,       /* clear(), extend(old): deque, OrderedDict by update; n is its count of changes */
    UNDO_DEQUE_PLACES,  /* the items of the deque where they were, as old says */
    UNDO_METHOD,        /* obj.key(old), or obj.key() */
    UNDO_CELL,          /* closure cell = old */
    UNDO_STRUCT,        /* memory of a C structure */
    UNDO_SWAP,          /* the same, with that of a copy that is an object */
    UNDO_RELEASE,       /* obj, a memoryview of old, was not released */
    UNDO_GENERATOR,     /* suspended frame */
    UNDO_CONTEXT,       /* variables of a contextvars.Context */
    UNDO_CALL,          /* obj(*key) */
    UNDO_BIRTH,         /* obj was never born: its finalizer must not run */
} UndoKind;

typedef struct {
    UndoKind kind;
    Py_ssize_t n;
    PyObject *obj, *key, *old;  /* owned, may be NULL */
    void *mem;                  /* snapshot, owned by the entry */
} Undo;

/* A ticket or a turn while its owner is about to draw it (Lamport's bakery). */
#define CHOOSING UINT64_MAX

/* ---- Transaction descriptor ------------------------------------------------ */
enum {
    TX_IDLE = 0,
    TX_WAITING,     /* at the gate while another one is exclusive */
    TX_ADMITTED,    /* let in by the one that was, but has not noticed yet */
    TX_ACTIVE,
    TX_DOOMED,
    TX_INEVITABLE,
    TX_COMMITTING,
};
#define STATE_BITS 3
#define STATE_MASK ((1u << STATE_BITS) - 1)

enum { GRADE_NONE = 0, GRADE_IRREVOCABLE, GRADE_EXCLUSIVE };
#define OVERDUE 3       /* in the history, in the place of the grade of one that dooms another for that */

/* Why an attempt is aborted, for the history. */
enum { CAUSE_DOOMED = 0, CAUSE_EXCLUSIVE, CAUSE_INJECTED, CAUSE_DROPPED, CAUSE_RAISED, CAUSE_MUTEX };

typedef struct Transaction Transaction;
typedef struct Queue Queue;

/* A threading.Lock or RLock that this attempt has taken or changed: see mutexes.c. */
typedef struct {
    PyObject *mutex;                /* owned; NULL: no entry */
    enum { NO_MEMBER = 0, MEMBER, NATIVE } role;    /* NATIVE: an RLock of an exclusive one, which a thread owns */
    int level;                      /* so often the program has taken it, as the attempt sees it */
    int kept;                       /* and had when the attempt changed it first */
} Held;

#define TYPE_CACHE 512
typedef struct {
    PyTypeObject *type;
    uint32_t version;
    int kind;
    bool simple_call;   /* calling the class runs a Python __init__ and no other Python code */
    bool reference;     /* a weak one */
} TypeEntry;

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

enum {  /* what for */
    OPENED_CAPTURED = 1,        /* made in this transaction: needs neither locks nor undo */
    OPENED_READ,            /* all of it may be read */
    OPENED_ITEMS,           /* the same, and looking an item up changes nothing */
    OPENED_WRITE,           /* all of it may be changed, its contents are logged */
    OPENED_APPEND,          /* items may be appended to the list */
    OPENED_SNAPSHOT,        /* its contents are logged */
    OPENED_BORN,            /* made in this transaction: something with a finalizer that `born` cannot have,
                               or a weak reference with a callback */
    OPENED_END,
};

/* Where something in the program is; NULL: not known. */
typedef const char *_Atomic Place;

/* What the conflict log has been told by a thread. */
typedef struct {
    uint32_t log;               /* the number of the log that the rest is about */
    bool begun;                 /* the START of a transaction, and not yet its end */
    bool waiting;               /* a WAIT_..., and not yet its WAIT_DONE */
    int conflict;               /* CONTENTION_... of the present conflict, or 0 */
    int other;                  /* thread with which it has that */
    const char *here, *there;
} Told;

#define KNOWN_LOCATIONS 256
typedef struct {
    const void *instruction;
    PyCodeObject *code;
    PyObject *file, *function;
    const char *location;       /* NULL: not in the program */
} KnownLocation;

/* An attribute, item or global that an instruction has opened, by its name. It counts while it is opened_name_entry()
 * (../interpreter/loop.h) of the object. */
typedef struct {
    PyObject *obj;
    uintptr_t what;         /* the name, and an OF_ in its lowest bits */
    uint64_t check;         /* as in Opened */
    uintptr_t tid;          /* the object's ob_tid: one that is there by capture is known from those of other threads */
} OpenedName;

enum { OF_READ_ATTR, OF_WRITTEN_ATTR, OF_READ_ITEM, OF_WRITTEN_ITEM, OF_GLOBAL };
#define OPENED_NAME_SLOTS 4096
#define BIAS_TRACES 16384

/* A C function and what makes that a call of it needs nothing. That stays so. */
typedef struct {
    const void *method;         /* PyMethodDef */
    PyTypeObject *receiver;     /* of exactly this type; of a function, that of its module */
    enum {
        CALL_PURE,              /* nothing has to */
        CALL_OF_CAPTURED,       /* a receiver made in this transaction */
        CALL_OF_CONSTANTS,      /* constants as arguments */
        CALL_OF_OPEN,           /* a receiver and arguments that are constants or open for reading */
        CALL_INTO_CAPTURED,     /* a receiver made in this transaction, and such arguments */
    } needs;
} KnownCall;
#define KNOWN_CALLS 256

/* Invariants.  `status` holds how many attempts this thread has ended, and the state of the
 * present one.  Others change it by compare-and-swap only, so never that of a later
 * attempt: ACTIVE -> DOOMED (whoever is in the right) and WAITING -> ADMITTED (the
 * exclusive one, at its end).  An attempt that is IDLE or WAITING holds no locks. */
typedef struct Tx {
    /* Written by other threads: */
    _Atomic uint64_t status;
    _Atomic uint32_t parked;        /* futex: 1 while the thread sleeps */
    _Atomic int attention;          /* look at status (or inject) at the next barrier */
    char pad[48];
    /* Written by this thread, read by others: */
    _Atomic uint32_t epoch;         /* 1..EPOCH_MAX; counts up at each end */
    _Atomic uint32_t parked_for;    /* slot << 8 of what it waits to end, or PARK_... */
    _Atomic uint64_t age;           /* smaller is older; fixed at the enqueueing */
    _Atomic uint64_t ticket;        /* place among those that commit; 0: not committing */
    _Atomic uint64_t turn;          /* place in the queue for the token of inevitability, or 0 */
    _Atomic int alone;              /* with that turn: holds nothing and waits to be exclusive */
    _Atomic uint64_t reserved;      /* the cell that it waits for, or 0 */
    _Atomic uint32_t reserved_mode;
    _Atomic int patience;           /* so many younger ones may still have that cell before it */
    _Atomic uint64_t allowance;     /* nanoseconds that others wait for it before it is overdue */
    _Atomic uint64_t overdue;       /* the number of the attempt that somebody has found to be; written by others, too */
    Queue *_Atomic queue;           /* that its transaction comes from, or NULL; while it releases, too */
    _Atomic uint32_t *marks;
    _Atomic uint8_t traces[BIAS_TRACES];    /* of what it has read without a mark: the lowest bits of `epoch` */
    int slot;                       /* 1..MAX_THREADS-1, index in stm_threads */
    unsigned long thread_id;
    unsigned long anchor;             /* of the thread that it runs transactions for (anchor.c); 0: for nobody else */
    _Atomic uint32_t answered;      /* futex: the call that it has asked for has been made on the anchor */
    /* Private to this thread: */
    int live;                       /* barriers act: in a transaction, not paused */
    int open;                       /* live, and not exclusive: barriers have to open what they are for */
    uint32_t stamp;                 /* of the entries in `opened` and `names`; counts up at each beginning */
    bool forgot;                    /* an entry of captured memory of this transaction had to make room */
    uintptr_t tid;                  /* ob_tid of what this thread allocates */
    PyTypeObject *constructing;     /* class whose call comes next; its __init__ gets a captured object */
    PyTypeObject *watching;         /* class with a finalizer that is being called, until __init__ begins */
    bool new_iterator;              /* GET_ITER comes next, and will make an iterator */
    PyObject *births[2];            /* in f_locals of the frames of captured generators; [1]: of those
                                       that have exception handlers of their own */
    int paused;                     /* depth of engine code inside a transaction */
    int grade;
    enum { HOLDING = 0, AFTER_COMMIT, AFTER_ABORT } releasing;  /* dropping what an ended one held */
    bool aborting;                  /* rolling back */
    bool failed;                    /* its function has raised an exception */
    uint64_t lost;                  /* cycles that it has waited for others, or been rolled back because of them */
    int want_grade;                 /* the next attempt begins in this grade */
    bool rehearsing;                /* a test hook: this attempt will be rolled back, so it never becomes inevitable */
    bool asked;                     /* for the token, and has it not taken yet */
    int cause;                      /* of the abort, CAUSE_... */
    uint64_t inject_state;
    uint32_t touches;               /* reads of objects without a bias */
    uint32_t touches_before, ticks; /* then, and transactions since then, when it last tried to begin an epoch */
    PyThreadState *tstate;
    Transaction *txn;
    _Atomic uint64_t **owned;       /* words to clear at the end */
    Py_ssize_t n_owned, cap_owned;
    Undo *undo;
    Py_ssize_t n_undo, cap_undo;
    Py_ssize_t unordered;           /* at most so many entries are of inserted keys to be put in order */
    PyObject *placeholders;         /* list of keys that stand for deleted ones, of this thread for ever */
    Py_ssize_t n_placeholders;      /* of which so many are in use */
    bool deletes_keys;              /* so that owning a key does not tell that its insertion is logged */
    Transaction *added, *last_added;    /* chain: into their queues after the commit */
    PyObject *deleted;              /* value of a key that the engine has deleted in the place of a call */
    PyObject *scratch;              /* dict for an instruction to delete from, in the place of another */
    PyObject *deferred;             /* list of (callable, args): run at commit */
    PyObject *displaced;            /* list of what a rollback took out: dies after it */
    PyObject *born;                 /* list of weak references to objects with finalizers that it has made */
    PyObject *dying;                /* list of objects whose finalizers have been put off, and of calls */
    PyObject *wake_anchor;            /* what has the anchor look around, or NULL */
    PyObject *context;              /* of this thread for its transactions that have variables, or NULL */
    PyObject *fresh;                /* set of ids->objects created in this transaction, or NULL */
    struct {
        Held *held;                 /* hash table of `cap` places, `n` in use */
        Py_ssize_t n, cap;
        uint64_t looked;            /* when it has last looked whether a thread waits for any, in nanoseconds */
        bool wanted;                /* and whether one did */
        PyObject *awaited;          /* the one to wait for before the next attempt, or NULL */
    } mutexes;
    _Atomic uint64_t commits, aborts, exclusives;   /* written by this thread only: see count_one() */
    TypeEntry types[TYPE_CACHE];
    Opened opened[OPENED_SLOTS];
    OpenedName names[OPENED_NAME_SLOTS];
    KnownCall calls[KNOWN_CALLS];           /* what makes a call of that method need nothing */
    /* For the conflict log. Places are interned text. Written by this thread, read by others: */
    Place at;                       /* where in the program it was last */
    Place inevitable_at;            /* where it became inevitable, or wants to */
    Place *_Atomic mark_places;     /* of the read marks; NULL: there has been no log yet */
    /* Private: */
    bool preparing;                 /* what it waits for now is no conflict of the program's */
    _PyInterpreterFrame *base;      /* the transaction runs on top of this frame; NULL: in the midst of the program */
    Told told;
    KnownLocation known[KNOWN_LOCATIONS];
} Tx;

static inline int
state_of(Tx *tx)
{
    return (int)(atomic_load(&tx->status) & STATE_MASK);
}

/* The number of the attempt: when it has changed, that attempt is over. */
static inline uint64_t
serial_of(Tx *tx)
{
    return atomic_load(&tx->status) >> STATE_BITS;
}

/* By the thread itself. */
static inline void
set_state(Tx *tx, int state)
{
    uint64_t now = atomic_load_explicit(&tx->status, memory_order_relaxed);
    atomic_store(&tx->status, (now & ~(uint64_t)STATE_MASK) | (unsigned)state);
}

/* One attempt's state, if it still is `from`. */
static inline bool
change_state(Tx *tx, uint64_t serial, int from, int to)
{
    uint64_t expected = serial << STATE_BITS | (unsigned)from;
    return atomic_compare_exchange_strong(&tx->status, &expected, serial << STATE_BITS | (unsigned)to);
}

static inline Opened *
opened_at(Tx *tx, PyObject *obj, uint32_t what)
{
    uintptr_t a = (uintptr_t)obj;
    return &tx->opened[((a >> 4) ^ (a >> 14) ^ what * 0x4F2B) & (OPENED_SLOTS - 1)];
}

static inline uint64_t
opened_key(PyObject *obj, uint32_t what, uint32_t by_capture)
{
    return (uint64_t)(uintptr_t)obj << 16 | what << 1 | by_capture;
}

static inline uint64_t
opened_check(Tx *tx, PyObject *obj)
{
    return (uint64_t)tx->stamp << 32 | Py_TYPE(obj)->tp_version_tag;
}

/* Has this transaction opened the object for that? */
static inline bool
opened(Tx *tx, PyObject *obj, uint32_t what)
{
    Opened *e = opened_at(tx, obj, what);
    uint64_t by_capture = e->key ^ opened_key(obj, what, 0);
    return e->check == opened_check(tx, obj)
        && (by_capture == 0 || (by_capture == 1 && obj->ob_tid == tx->tid));
}

/* Where an entry goes that has to make room. */
static inline Opened *
spare_place(Tx *tx, Opened *e)
{
    return &tx->opened[(e - tx->opened) ^ 1];
}

static inline void
note(Tx *tx, PyObject *obj, uint32_t what, uint32_t by_capture)
{
    Opened *e = opened_at(tx, obj, what);
    uint64_t key = opened_key(obj, what, by_capture);
    if (UNLIKELY(Py_TYPE(obj)->tp_version_tag == 0))
        return;
    if (e->check >> 32 == tx->stamp && e->key != key
        && (e->key & 0xFFFF) == (OPENED_CAPTURED << 1 | 1)) {
        tx->forgot = true;
        *spare_place(tx, e) = *e;
    }
    *e = (Opened){key, opened_check(tx, obj)};
}

static inline void
note_opened(Tx *tx, PyObject *obj, uint32_t what)
{
    note(tx, obj, what, 0);
}

static inline void
note_captured(Tx *tx, PyObject *obj)
{
    note(tx, obj, OPENED_CAPTURED, 1);
}

static inline void
forget_opened(Tx *tx, PyObject *obj, uint32_t what)
{
    Opened *e = opened_at(tx, obj, what), *spare = spare_place(tx, e);
    if (e->key >> 16 == (uintptr_t)obj)
        e->key = 0;
    if (spare->key >> 16 == (uintptr_t)obj)
        spare->key = 0;
}

/* What lies there was made in this transaction, but is a way to something that was not. */
static inline void
forget_capture(Tx *tx, PyObject *obj)
{
    for (uint32_t what = OPENED_CAPTURED; what < OPENED_END; what++)
        forget_opened(tx, obj, what);
}

static inline bool
says_captured(Tx *tx, Opened *e, PyObject *obj)
{
    return e->key == opened_key(obj, OPENED_CAPTURED, 1) && e->check == opened_check(tx, obj)
        && obj->ob_tid == tx->tid;
}

/* Made in this transaction? Then it is opened for everything by that alone. What had to make room once is known still. */
static inline bool
captured(Tx *tx, PyObject *obj)
{
    Opened *e = opened_at(tx, obj, OPENED_CAPTURED);
    return says_captured(tx, e, obj) || says_captured(tx, spare_place(tx, e), obj);
}

static inline bool
is_builtin_container(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyList_Type || t == &PyDict_Type || t == &PySet_Type;
}

/* A container that has been made in this transaction. */
static inline bool
own_container(Tx *tx, PyObject *o)
{
    return is_builtin_container(o) && captured(tx, o);
}

/* Something that no transaction can change, nor what is in it. */
static inline bool
is_constant(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyBool_Type || o == Py_None
        || t == &PyBytes_Type;
}

/* Something that is compared without a look at what a transaction can change: by its value
 * or, where its class says nothing, by its identity. */
static inline bool
compares_plainly(PyObject *o)
{
    richcmpfunc f = Py_TYPE(o)->tp_richcompare;
    return f == PyLong_Type.tp_richcompare || f == PyUnicode_Type.tp_richcompare || f == PyFloat_Type.tp_richcompare
        || f == PyBaseObject_Type.tp_richcompare || is_constant(o);
}

/* Others read these counts at any time and order nothing by them. */
static inline void
count_one(_Atomic uint64_t *n)
{
    uint64_t now = atomic_load_explicit(n, memory_order_relaxed);
    atomic_store_explicit(n, now + 1, memory_order_relaxed);
}

extern __attribute__((tls_model("initial-exec"))) _Thread_local Tx *stm_self;
extern __attribute__((tls_model("initial-exec"))) _Thread_local Tx *stm_open;    /* the same while tx->open, else NULL */
extern Tx *_Atomic stm_threads[MAX_THREADS];
extern _Atomic int stm_thread_limit;    /* slots in use are below this */
extern _Atomic uint64_t stm_next_age;
extern PyObject *stm_Abort;             /* raised to unwind an aborted attempt */
extern _Atomic int stm_exclusive_slot;  /* slot of the exclusive one, or 0 */

/* Injected aborts and delays: test hooks. Chances in 2^32, of an abort at each barrier of
 * a first attempt, of a delay of at most so many microseconds at each barrier and at each
 * step of a commit or rollback. */
extern _Atomic uint32_t stm_inject_rate;
extern _Atomic uint32_t stm_delay_rate, stm_delay_limit;
extern int stm_barriers_off;            /* another: show what breaks without barriers */

/* descriptor, in transaction.c */
Tx *stm_thread_tx(void);

/* orec.c */
int orec_init(void);
void orec_after_fork(void);
int lock_shared(Tx *tx, Cell c);
int lock_shared_container(Tx *tx, Cell c);
int lock_intent_read(Tx *tx, Cell c);
int lock_intent_write(Tx *tx, Cell c);
int lock_exclusive(Tx *tx, Cell c, bool *first);
void locks_release(Tx *tx);
bool has_inserted(Tx *tx, Cell container);
bool may_have_read(Tx *tx, Cell container);
bool holds_whole(Tx *tx, Cell container);
void wait_for_earlier_inserters(Tx *tx, Cell dict);

static inline uint32_t
mark_tag(Cell c)
{
    uint32_t tag = (uint32_t)(c >> BUCKET_BITS) & 0xFFFF;
    return tag == MARK_ANY_TAG ? tag - 1 : tag;
}

/* Has this transaction marked the cell with (at least) this mode? */
static inline bool
marked(Tx *tx, Cell c, uint32_t mode)
{
    _Atomic uint32_t *b = tx->marks + (c & (MARK_BUCKETS - 1)) * MARK_WAYS;
    uint32_t epoch = atomic_load_explicit(&tx->epoch, memory_order_relaxed);
    uint32_t want = epoch << 18 | mark_tag(c) << 2;
    for (int i = 0; i < MARK_WAYS; i++) {
        uint32_t m = atomic_load_explicit(&b[i], memory_order_relaxed);
        if ((m & ~MODE_MASK) == want)
            return (m & mode) == mode;
    }
    return false;
}

/* contention.c */

/* What a transaction waits for: another that owns a cell, has read it (with a mark or without) or has reserved it;
 * its predecessor; the end of an exclusive one. */
enum { FOR_OWNER, FOR_READER, FOR_RESERVATION, FOR_ORDER, FOR_GATE, FOR_BIASED };

/* What stands in the way of a lock: an attempt of another thread, and how. */
typedef struct {
    Cell cell;
    uint32_t mode;      /* in which the lock is wanted */
    int how;
    int slot;
    uint64_t serial;
    uint32_t against;   /* FOR_READER: the modes of a mark that conflict; 0: any. FOR_BIASED: the trace */
    const char *place;  /* where the other thread is or was then, for the log; NULL: not known */
} Conflict;
bool in_the_way(Tx *tx, const Conflict *c);     /* in orec.c */

int stm_attention(Tx *tx);
void stm_delay(Tx *tx);
int contend(Tx *tx, const Conflict *c, int event);
void reservation_end(Tx *tx);
bool find_reservation(Tx *tx, Conflict *c);
extern _Atomic int stm_reservations;
static inline bool
has_reserved(Tx *tx)
{
    return atomic_load_explicit(&tx->reserved, memory_order_relaxed) != 0;
}
void allow(Tx *tx);
void limit_allowance(double seconds);
bool is_overdue(Tx *tx);
void stand_back(Tx *tx);
int become_inevitable(Tx *tx, int grade);
void begin_inevitable(Tx *tx, int grade);
void inevitable_end(Tx *tx);
void take_ticket(Tx *tx);
void wait_for_end(Tx *tx, Tx *o, uint64_t serial);
void pass_gate(Tx *tx);
int ask_main(PyObject *request);
int serve(void);
bool is_asked(Tx *tx);
void wake_idle(void);
extern unsigned long stm_main_thread;
void end_others(Tx *tx, Queue *q);
int wait_for_predecessor(Tx *tx);
int abort_self(Tx *tx, int cause);
uint64_t now_ns(void);
void contention_end_doom(Tx *tx);
void contention_after_fork(void);

enum { PARK_OTHERS = 1, PARK_TOKEN = 2, PARK_GATE = 4, PARK_ORDER = 8, PARK_IDLE = 128 };
void wake(int slot, uint32_t what);

static inline int
check_doomed(Tx *tx)
{
    if (UNLIKELY(atomic_load_explicit(&tx->attention, memory_order_relaxed)))
        return stm_attention(tx);
    return 0;
}

/* Another thread may come in here; where that would be rare, tests make it likely. */
static inline void
interruptible(Tx *tx)
{
    if (UNLIKELY(stm_delay_rate != 0))
        stm_delay(tx);
}

/* undo.c */
Undo *undo_push(Tx *tx, UndoKind kind, PyObject *obj, PyObject *key, PyObject *old);
void undo_rollback(Tx *tx);
void undo_forget(Tx *tx, Py_ssize_t from);
void displace(Tx *tx, PyObject *value);

/* order.c */
int order_delete_key(Tx *tx, PyObject *dict, PyObject *key, PyObject **value);
int order_restore_place(Tx *tx, Undo *u);
void order_drop_placeholders(Tx *tx);
int order_hide_placeholders(Tx *tx, PyObject *dict);
int order_restore_all(Tx *tx, Undo *u);
int order_restore_name(Tx *tx, Undo *u);
const void *order_place(PyObject *dict);
void order_logged(Tx *tx, Undo *u);
void order_inserted_keys(Tx *tx, const void *place);

/* dictkeys.c */
int dict_hide(PyObject *dict, PyObject *key, PyObject *placeholder, PyObject **actual, PyObject **value,
              Py_ssize_t *place);
int dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, PyObject *value);
int dict_drop_placeholder(PyObject *dict, PyObject *placeholder, Py_ssize_t place);
PyObject *dict_copy_places(PyObject *dict);
bool dict_would_close_gaps(PyObject *dict, PyObject *key);
bool dict_exchange(PyObject *dict, PyObject *copy);
Py_ssize_t dict_rank(PyObject *dict, PyObject *key);
int dict_insert_at(PyObject *dict, PyObject *key, PyObject *value, Py_ssize_t rank);

/* places.c */
Py_ssize_t set_place(PyObject *set, PyObject *element, Py_hash_t hash);
int set_put_back(PyObject *set, PyObject *element, Py_ssize_t place);
bool set_would_grow(PyObject *set);
PyObject *set_copy_places(PyObject *set);
void set_exchange(PyObject *set, PyObject *copy);
PyObject *set_shrink(PyObject *set, PyObject *copy);
Py_ssize_t odict_changes(PyObject *od);
void odict_restore_changes(PyObject *od, Py_ssize_t changes);
PyObject *deque_places(PyObject *deque);
void deque_restore_places(PyObject *deque, PyObject *places);

/* frames.c */
int open_generator(Tx *tx, PyObject *gen);
int open_frame_read(Tx *tx, PyObject *frame);
void generator_restore(Undo *u);
void generator_forget(Undo *u);

/* born.c */
int born_init(void);
PyObject *new_birth(void);
bool never_was(PyObject *coroutine);
bool has_python_finalizer(PyTypeObject *type);
PyObject *watched_constructor(PyObject *callable);
void born_never_was(Tx *tx);
void born_forget(Tx *tx);
int note_birth(Tx *tx, PyObject *obj);
int finalizer_called(Tx *tx, PyObject *obj, _PyInterpreterFrame *caller);
bool frame_never_was(_PyInterpreterFrame *f);
int callback_called(Tx *tx, _PyInterpreterFrame *f, _PyInterpreterFrame *caller);
void note_callback(PyObject *callable);
void let_die(Tx *tx);

/* bias.c */
void bias_init(void);
void bias_tick(Tx *tx);
void bias_consider(Tx *tx, PyObject *obj, uint16_t bits);
bool bias_give(Tx *tx, PyObject *obj);
bool bias_traced(Tx *o, uint32_t trace);
bool bias_take(PyObject *obj);
int bias_await_readers(Tx *tx, PyObject *obj);
int bias_give_up(Tx *tx, PyObject *obj);
extern _Atomic uint64_t stm_biases_given, stm_biases_taken;

enum {
    BIAS_SET = 1 << 15,
    BIAS_SEEN = 1 << 14,
    BIAS_TIMES_SHIFT = 12,
    BIAS_EPOCH_SHIFT = 8,
    BIAS_TAKEN = 1 << 7,
    BIAS_BITS = 0xFF80,
};

static inline _Atomic uint16_t *
bias_bits(PyObject *obj)
{
    return (_Atomic uint16_t *)&obj->ob_flags;
}

/* Where a reader leaves its trace. Objects may share a place. */
static inline uint32_t
bias_trace(PyObject *obj)
{
    uintptr_t a = (uintptr_t)obj;
    return (uint32_t)(a >> 4 ^ a >> 18) & (BIAS_TRACES - 1);
}

static inline bool
has_bias(PyObject *obj)
{
    return atomic_load_explicit(bias_bits(obj), memory_order_acquire) & BIAS_SET;
}

/* May this transaction read it without a lock? Then that stays so until its end. The trace is stored before the
 * second look as writers see it, for they use membarrier(2); the compiler must not change the order. */
static inline bool
read_by_bias(Tx *tx, PyObject *obj)
{
    if (LIKELY(!has_bias(obj)))
        return false;
    uint8_t attempt = (uint8_t)atomic_load_explicit(&tx->epoch, memory_order_relaxed);
    atomic_store_explicit(&tx->traces[bias_trace(obj)], attempt, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return has_bias(obj);
}

/* The same for all that is in a list, dict or set. */
static inline bool
container_read_by_bias(Tx *tx, PyObject *obj)
{
    return is_builtin_container(obj) && read_by_bias(tx, obj);
}

/* By a reader that has its mark. */
static inline void
bias_seen(Tx *tx, PyObject *obj)
{
    tx->touches++;
    uint16_t bits = atomic_load_explicit(bias_bits(obj), memory_order_relaxed);
    if (!(bits & BIAS_SET))
        bias_consider(tx, obj, bits);
}

/* By a writer that has its lock, before it writes. Returns -1 when the transaction has to abort. */
static inline int
bias_revoke(Tx *tx, PyObject *obj)
{
    if (LIKELY(!(atomic_load_explicit(bias_bits(obj), memory_order_acquire) & (BIAS_SET | BIAS_SEEN | BIAS_TAKEN))))
        return 0;
    return bias_give_up(tx, obj);
}

/* types.c */
typedef enum {
    KIND_INERT = 1,   /* no mutable state that a transaction may write */
    KIND_INSTANCE,    /* of a Python class: attributes */
    KIND_LIST,
    KIND_DICT,
    KIND_ODICT,       /* OrderedDict: locked whole */
    KIND_SET,
    KIND_DEQUE,
    KIND_BYTEARRAY,
    KIND_TUPLE,       /* inert itself; deep operations look inside (frozenset too) */
    KIND_GENERATOR,   /* generator, coroutine, async generator */
    KIND_ITERATOR,    /* a C iterator or view whose state is its struct */
    KIND_MODULE,
    KIND_CLASS,
    KIND_FUNCTION,    /* attributes read freely, written exclusively */
    KIND_METHOD,      /* bound method, partial: callable around others */
    KIND_CONTEXT,
    KIND_PROXY,       /* types.MappingProxyType: what it is around */
    KIND_BUFFER,      /* memoryview: what it is around */
    KIND_ARRAY,       /* array.array */
    KIND_STRUCT,      /* another C object whose state is its struct */
    KIND_COPIED,      /* copy() of it has all of its state, and may change places with it */
    KIND_STATED,      /* __getstate__ and __setstate__ have all of its state */
    KIND_LOCAL,       /* threading.local: attributes of which each thread has its own */
    KIND_FRAME,       /* that of a suspended generator changes with that */
    KIND_OPAQUE,      /* C state that cannot be restored: fresh ones only */
    KIND_UNKNOWN,
} Kind;
Kind classify(PyTypeObject *type);
int types_register(PyTypeObject *type, int kind);
void types_set_probe(PyTypeObject *python_class);
bool is_python_class(PyTypeObject *type);
PyTypeObject *c_base(PyTypeObject *type);

static inline bool
is_reference_type(PyTypeObject *t)
{
    return PyType_IsSubtype(t, &_PyWeakref_RefType) || t == &_PyWeakref_ProxyType || t == &_PyWeakref_CallableProxyType;
}

static inline TypeEntry *
type_entry(Tx *tx, PyTypeObject *t)
{
    TypeEntry *e = &tx->types[((uintptr_t)t >> 5) % TYPE_CACHE];
    if (LIKELY(e->type == t && e->version == t->tp_version_tag && e->version != 0))
        return e;
    Kind k = classify(t);
    if (t->tp_version_tag == 0)
        PyUnstable_Type_AssignVersionTag(t);
    *e = (TypeEntry){t, t->tp_version_tag, k, false, is_reference_type(t)};
    return e;
}

static inline Kind
kind_of(Tx *tx, PyObject *obj)
{
    return type_entry(tx, Py_TYPE(obj))->kind;
}

PyObject *contents_of(PyObject *obj, Kind kind);    /* in undo.c */

#define MAX_DEPTH 100   /* of objects inside objects */

/* threadlocal.c */
PyObject *thread_dict(Tx *tx, PyObject *local);
PyObject *exchange_locals(PyObject *self, PyObject *pair);
int open_local_read(Tx *tx, PyObject *local, PyObject *name);
int open_local_write(Tx *tx, PyObject *local, PyObject *name, bool del);

/* functions.c */
int functions_init(void);
int open_function_attr_read(Tx *tx, PyObject *obj, PyObject *name);
int open_function_attr_write(Tx *tx, PyObject *obj, PyObject *name);

/* classes.c */
int classes_init(void);
PyObject *subclasses(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *check_subclass(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* deep.c */
bool is_tuple_of_constants(PyObject *o, int depth);
int open_deep_read(Tx *tx, PyObject *obj);
int open_interpolated(Tx *tx, PyObject *text, PyObject *values);
int open_plain_read(Tx *tx, PyObject *obj);
int open_attributes(Tx *tx, PyObject *obj);

/* structures.c */
extern PyObject *stm_add;       /* operator.add */
bool structure_register(PyTypeObject *type);
int open_iter(Tx *tx, PyObject *obj);
int open_mapping(Tx *tx, PyObject *obj);
int open_structure(Tx *tx, PyObject *obj);
int open_state(Tx *tx, PyObject *obj);
int guard_parts(Tx *tx, PyObject *obj);
extern PyObject *stm_unordered;
void structure_swap(PyObject *obj, void *copy);
void structure_forget(Undo *u);

/* views.c */
int open_view_read(Tx *tx, PyObject *obj);
int open_view_write(Tx *tx, PyObject *obj);
int open_view_release(Tx *tx, PyObject *obj);
int open_resize(Tx *tx, PyObject *obj);
Py_ssize_t views_ignore(PyObject *obj);
void views_regard(PyObject *obj, Py_ssize_t n);
int views_init(void);
int release_undo(Undo *u);

/* namespaces.c */
bool may_be_biased(Tx *tx, PyObject *obj);
int bias_revoke_namespace(Tx *tx, PyObject *dict);
extern int stm_module_watcher, stm_instance_watcher, stm_rebound_watcher;
extern PyObject *stm_register_module;
int namespaces_init(void);
int register_module_globals(PyObject *globals, PyObject *rebound);
PyObject *globals_rebound(PyObject *globals);
int open_as_globals(Tx *tx, PyObject *dict);
int see_globals(Tx *tx, PyObject *globals);
int open_module_name(Tx *tx, PyObject *name);
int open_locals(Tx *tx);
const void *namespace_base(PyObject *dict);

static inline bool
is_module_dict(PyObject *dict)
{
    return ((PyDictObject *)dict)->_ma_watcher_tag >> stm_module_watcher & 1;
}

/* What the names in this dict are known by, or NULL: it is a dict like any other. */
static inline const void *
namespace_of(PyObject *dict)
{
    PyDictObject *d = (PyDictObject *)dict;
    uint64_t watched = 1ull << stm_module_watcher | 1ull << stm_instance_watcher;
    return LIKELY(d->ma_values == NULL && !(d->_ma_watcher_tag & watched)) ? NULL : namespace_base(dict);
}

/* access.c */
int open_attr_read(Tx *tx, PyObject *obj, PyObject *name);
int open_attr_write(Tx *tx, PyObject *obj, PyObject *name, bool raw);
int open_attr_delete(Tx *tx, PyObject *obj, PyObject *name, bool raw);
int open_whole_read(Tx *tx, PyObject *obj);
PyObject *proxied(PyObject *proxy);
int open_key_read(Tx *tx, PyObject *obj, PyObject *key);
int open_item_read(Tx *tx, PyObject *obj, PyObject *key);
int open_key_write(Tx *tx, PyObject *obj, PyObject *key, bool del);
int delete_key(Tx *tx, PyObject *obj, PyObject *key, PyObject **value);
int open_whole_write(Tx *tx, PyObject *obj);
int open_merge(Tx *tx, PyObject *obj, PyObject *other);
int open_list_append(Tx *tx, PyObject *list);
int open_list_pop(Tx *tx, PyObject *list, Py_ssize_t index);
int open_deque_op(Tx *tx, PyObject *deque, int op);
int push_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value);
PyObject *c_base_method(PyObject *obj, PyObject *name);
int open_set_change(Tx *tx, PyObject *set, PyObject *key);
int open_cell_read(Tx *tx, PyObject *cell);
int open_cell_write(Tx *tx, PyObject *cell);
int open_context(Tx *tx, PyObject *ctx);
int open_exception(Tx *tx, PyObject *exception);
int open_exception_init(Tx *tx, PyObject *exception);
int open_exception_group(Tx *tx, PyObject *exception, int depth);
int open_global_read(Tx *tx, PyObject *globals, PyObject *name);
int open_global_write(Tx *tx, PyObject *globals, PyObject *name);
int exclusive_for(Tx *tx, const char *what, PyObject *obj);
int access_init(void);

enum { DEQUE_APPEND, DEQUE_APPENDLEFT, DEQUE_POP, DEQUE_POPLEFT };

/* calls.c: effects. The names are those of the effects table. */
typedef enum {
    EFFECT_NONE = 0,
    EFFECT_PURE,
    EFFECT_READS,
    EFFECT_DEEP,
    EFFECT_PRINTS,
    EFFECT_ITERATES,
    EFFECT_GETS_KEY,
    EFFECT_GETS_ITEM,
    EFFECT_PUTS_KEY,
    EFFECT_DELETES_KEY,
    EFFECT_MUTATES,
    EFFECT_MUTATES_DEEP,
    EFFECT_MUTATES_SECOND,
    EFFECT_LIST_APPEND,
    EFFECT_LIST_EXTEND,
    EFFECT_LIST_POP,
    EFFECT_SET_CHANGE,
    EFFECT_DEQUE_APPEND,
    EFFECT_DEQUE_APPENDLEFT,
    EFFECT_DEQUE_POP,
    EFFECT_DEQUE_POPLEFT,
    EFFECT_GETS_DICT,
    EFFECT_GETS_LOCALS,
    EFFECT_ATTRIBUTES,
    EFFECT_GETS_ATTR,
    EFFECT_SETS_ATTR,
    EFFECT_DELETES_ATTR,
    EFFECT_RAISES,
    EFFECT_RELEASES,
    EFFECT_RESUMES,
    EFFECT_ADVANCES,
    EFFECT_COMPILES,
    EFFECT_CALLED_LATER,
    EFFECT_CALLS_BACK,
    EFFECT_CALLS_PARTS,
    EFFECT_PARTIAL,
    EFFECT_GETS_ITEMS,
    EFFECT_GETS_ATTRS,
    EFFECT_CALLS_METHOD,
    EFFECT_CACHED,
    EFFECT_RUNS_CONTEXT,
    EFFECT_SETS_CONTEXT,
    EFFECT_CREATES,
    EFFECT_OPAQUE,
    EFFECT_USES,
    EFFECT_FILLS,
    EFFECT_SEEDS,
    EFFECT_TWIN,
    EFFECT_IRREVOCABLE,
    EFFECT_EXCLUSIVE,
    EFFECT_VIA,         /* not in the table: through a trampoline */
} Effect;
int calls_init(void);
int effects_register(PyObject *callable, int effect, PyObject *twin);
int effects_register_instances(PyTypeObject *type, int effect, PyObject *twin);
bool stands_in(PyObject *callable);
int open_change(Tx *tx, PyObject *receiver, PyObject *second);
int before_call(Tx *tx, _PyStackRef *callable, PyObject *const *args, Py_ssize_t n,
                PyObject *const *kwvalues, Py_ssize_t nkw);
int plain_effect(PyObject *callable, PyObject *receiver);
extern PyTypeObject *stm_method_wrapper_type;
int call_with_own(Tx *tx, PyObject *f);
int effect_as_callback(Tx *tx, PyObject *f);
bool is_fresh(Tx *tx, PyObject *obj);
int make_fresh(Tx *tx, PyObject *obj);

/* callbacks.c */
enum { USE_NOTHING, USE_TRUTH, USE_ITEMS, USE_ALL };    /* what C code looks at in a result */
enum { VIA_METHOD, VIA_PARTIAL, VIA_ATTRGETTER, VIA_METHODCALLER, VIA_CALLBACKS, VIA_CONTEXT, VIA_LATER, VIA_LRU, VIA_ANCHOR };
extern PyTypeObject Guarded_Type, GuardedItems_Type;
PyObject *guarded_new(PyObject *inner, int use);
PyObject *guarded_items(PyObject *iterable, int use);
PyObject *stm_call(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *trampoline(int via, PyObject *callable);
PyObject *twin_for(PyObject *original, PyObject *twin, PyObject *self, Py_ssize_t n, bool has_keywords);

/* The beginnings of structures that are private to CPython's _operator.c and
 * _functoolsmodule.c; effects_register_instances() compares the sizes. */
typedef struct { PyObject_HEAD Py_ssize_t n; PyObject *items; Py_ssize_t index; void *vectorcall; } ItemGetter;
typedef struct { PyObject_HEAD Py_ssize_t n; PyObject *attrs; void *vectorcall; } AttrGetter;
typedef struct {
    PyObject_HEAD
    PyObject *name, *args, *kwds, *vectorcall_args, *vectorcall_kwnames;
    void *vectorcall;
} MethodCaller;
typedef struct {
    PyObject_HEAD
    PyObject *function, *args, *keywords, *dict, *weakrefs, *placeholder;
    Py_ssize_t placeholders;
    void *vectorcall;
} Partial;

/* anchor.c */
bool anchor_asked(void);
void anchor_serve(void);
void anchor_after_fork(void);
bool belongs_on_anchor(Tx *tx, PyObject *callable, bool known, PyObject *const *args, Py_ssize_t n,
                  PyObject *const *kwvalues, Py_ssize_t nkw);
PyObject *call_on_anchor(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *anchor_tie(PyObject *self, PyObject *type);
PyObject *anchor_set_untied(PyObject *self, PyObject *names);
PyObject *anchor_set(PyObject *self, PyObject *args);

/* guard.c */
PyObject *guard_await(PyObject *self, PyObject *args);
PyObject *guard_stand_down(PyObject *self, PyObject *ignored);
PyObject *guard_tell(PyObject *self, PyObject *args);
PyObject *guard_forward(PyObject *self, PyObject *number);

/* lru.c */
extern const size_t lru_size;
PyObject *lru_call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *lru_info(PyObject *original, PyObject *const *args, Py_ssize_t n);
PyObject *lru_clear(PyObject *original, PyObject *const *args, Py_ssize_t n);

/* mutexes.c */
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
void mutexes_after_fork(void);

/* twins.c */
PyObject *c_twin(PyObject *original);
PyObject *short_way(PyObject *args);

/* tracebacks.c */
int tracebacks_hide(PyObject *pair);
bool is_hidden_code(PyCodeObject *code);
void traceback_clean(PyObject *exception);

/* ../interpreter/loop.c */
bool loop_is_ours(void);

/* transaction.c */
struct Transaction {
    PyObject_VAR_HEAD           /* size: of args */
    PyObject *function;
    PyObject *kwnames;          /* tuple of the names of the last arguments, or NULL */
    PyObject *variables;        /* of the context to run in, or NULL: in that of the thread */
    PyObject *predecessor;      /* Transaction that must commit first, or NULL */
    Queue *queue;               /* in which it waits or has waited, or NULL */
    uint8_t passed;             /* so many younger ones were taken out of the queue before it */
    bool holds_queue;           /* owns that reference: only while another queue's transaction adds it */
    Transaction *next;          /* in the queue, or among those that a transaction has added */
    uint64_t age;
    uint64_t commit_number;     /* place in the order of commits; 0: not committed */
    _Atomic int taken, done;    /* a thread runs it, or has; it has been committed */
    _Atomic int awaited;        /* somebody may be waiting for its commit */
    int attempts;
    PyObject *room;             /* the called function may use the place before the arguments */
    PyObject *args[];
};
extern PyTypeObject Transaction_Type;
Transaction *transaction_make(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *transaction_run(PyObject *self, PyObject *unused);
void transactions_drop(Transaction *chain);
int check_can_run(Tx *tx);
enum { RUN_RAISED = -1, RUN_RETURNED = 0, RUN_DROPPED = 1 };
int run_to_commit(Tx *tx, Transaction *t, PyObject **result);
void release_dropped(Tx *tx, Transaction *chain);
void tx_begin(Tx *tx, uint64_t age, int grade);
int tx_commit(Tx *tx);
void run_deferred(Tx *tx);
void tx_abort(Tx *tx);
void forget_past(Tx *tx);
void finalize_dying(Tx *tx);
static inline void tx_set_live(Tx *tx)
{
    tx->live = state_of(tx) != TX_IDLE && tx->paused == 0;
    tx->open = tx->live && tx->grade != GRADE_EXCLUSIVE && !stm_barriers_off;
    stm_open = tx->open ? tx : NULL;
}
static inline void tx_set_idle(Tx *tx)
{
    tx->live = tx->open = 0;
    stm_open = NULL;
}
static inline void tx_pause(Tx *tx) { tx->paused++; tx_set_idle(tx); }
static inline void tx_resume(Tx *tx) { tx->paused--; tx_set_live(tx); }

/* contexts.c */
PyObject *context_variables(void);
int context_enter(Tx *tx, PyObject *variables);
void context_exit(Tx *tx, PyObject *variables);

/* queue.c */
extern PyTypeObject Queue_Type;
bool queue_has_ended(Queue *q);
void queue_wake(Queue *q);
Transaction *queue_end(Tx *tx, Queue *q);
Transaction *queue_added(Tx *tx, Transaction *dropped);

/* proflog.c */
enum {
    LOG_START = 0, LOG_COMMIT, LOG_ABORT, LOG_WRITE_WRITE, LOG_WRITE_READ,
    LOG_INEVITABLE, LOG_ABORTING_OTHER, LOG_WAIT_FREE_SEGMENT, LOG_WAIT_SYNC_PAUSE,
    LOG_WAIT_CONTENTION, LOG_WAIT_DONE,
};
extern _Atomic int stm_log_on;
int log_open(const char *path);
void log_close(void);
const char *log_place(Tx *tx);      /* interned: lives for ever */
/* They do nothing while there is no log. */
void log_begin(Tx *tx);
void log_end(Tx *tx, int event);
void log_conflict(Tx *tx, int event, Tx *other, const char *there);
void log_aborting(Tx *tx, Tx *other);
void log_wait(Tx *tx);
void log_go(Tx *tx);

/* locations.c */
extern const char stm_nowhere[];
const char *location(Tx *tx);
void locate_beginning(Tx *tx);
int register_holder(PyTypeObject *type, PyObject *name);

/* history.c */
enum {
    DID_BEGIN = 0,  /* detail: the number of the attempt */
    DID_COMMIT,     /* other: its ticket */
    DID_ABORT,      /* detail: CAUSE_... */
    DID_WAIT,       /* other: the age of the one that it waits for; detail: what for */
    DID_GO,         /* it waits no more */
    DID_DOOM,       /* other: the age of the one that it dooms; detail: its own grade, or OVERDUE */
    DID_WANT,       /* detail: the grade of inevitability that it wants */
    DID_ASK,        /* other: its turn in the queue for the token */
    DID_LEAVE,      /* it is about to leave that queue; other: its turn */
    DID_TURN,       /* it gave the token on; other: the turn of the one that has it now */
    DID_GET,        /* detail: the grade that it has now */
};
extern int stm_history_on;
void history_add(Tx *tx, int what, uint64_t other, int detail);
PyObject *history_list(void);
void history_switch(bool on);
static inline void
history(Tx *tx, int what, uint64_t other, int detail)
{
    if (UNLIKELY(stm_history_on))
        history_add(tx, what, other, detail);
}

#endif
