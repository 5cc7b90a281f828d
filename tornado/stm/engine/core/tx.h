/* The transaction descriptor: what the engine knows of a thread and of its present attempt.
 *
 * It is made of parts, each declared by the file that it belongs to.  What is built on the core keeps more for each
 * thread (../thread.h), behind this.
 */
#ifndef TORNADO_STM_TX_H
#define TORNADO_STM_TX_H

#include "base.h"
#include "bias.h"
#include "contention.h"
#include "orec.h"
#include "proflog.h"
#include "undo.h"

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

/* In what company a transaction begins: beside others; alone, since nobody else has anything to do; alone, since it is expected to have
 * to run so: others wait once for a row of such ones (dispatcher.c). */
typedef enum { AMONG_OTHERS, SEQUENTIAL, GATHERED } Company;

/* Invariants.  `status` holds how many attempts this thread has ended, and the state of the
 * present one.  Others change it by compare-and-swap only, so never that of a later
 * attempt: ACTIVE -> DOOMED (whoever is in the right) and WAITING -> ADMITTED (the
 * exclusive one, at its end).  An attempt that is IDLE or WAITING holds no locks. */
struct Tx {
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
    Queue *_Atomic queue;           /* that its transaction comes from, or NULL; while it releases, too */
    _Atomic uint64_t commits, aborts, exclusives, sequentials;  /* counted by count_one() */
    _Atomic uint64_t alone;         /* nanoseconds that others were kept out, but for sequential ones */
    _Atomic uint64_t lost;          /* cycles of the processor that conflicts have cost: waits, and attempts that were rolled back */
    _Atomic uint64_t ran;           /* cycles from the beginnings of transactions to their ends, but for those that they were kept out */
    _Atomic uint32_t publishing;    /* odd while it commits and several deferred actions are under way (publish.c) */
    _Atomic bool borrows;           /* its frames need not count references to what has a bias (bystanders.c) */
    _Atomic uint64_t strays;        /* functions of the program that began in a rollback: none, see UndoKind */
    int slot;                       /* 1..MAX_THREADS-1, index in stm_threads */
    unsigned long thread_id;
    unsigned long anchor;           /* of the thread that it runs transactions for; 0: for nobody else */
    /* Private to this thread: */
    int live;                       /* barriers act: in a transaction, not paused */
    int open;                       /* live, and not exclusive: barriers have to open what they are for */
    int paused;                     /* depth of engine code inside a transaction */
    int grade;
    int want_grade;                 /* the next attempt begins in this grade */
    /* Between two transactions: dropping what the ended one held, or running the finalizers of that. */
    enum { HOLDING = 0, FINALIZING, AFTER_COMMIT, AFTER_ABORT } releasing;
    bool aborting;                  /* rolling back */
    bool failed;                    /* its function has raised an exception */
    bool borrowed;                  /* its frames have not counted some references */
    bool rehearsing;                /* a test hook: this attempt will be rolled back, so it never becomes inevitable */
    Company company;                /* that its transaction was begun in */
    bool runs;                      /* counted among stm_runners */
    int cause;                      /* of the abort, CAUSE_... */
    PyThreadState *tstate;
    Transaction *txn;
    struct { Transaction *first, *last; } added;    /* chain: into their queues after the commit */
    PyObject *deferred;             /* list of (callable, args): run at commit */
    PyObject *next_deferred;        /* borrowed: the one to be run after that which is being run, or NULL */
    /* The parts: */
    Locks locks;
    UndoLog undo;
    Contention contention;
    Logged logged;
    Bias bias;
};

extern __attribute__((tls_model("initial-exec"))) _Thread_local Tx *stm_self;
extern __attribute__((tls_model("initial-exec"))) _Thread_local Tx *stm_open;    /* the same while tx->open, else NULL */
extern Tx *_Atomic stm_threads[MAX_THREADS];
extern _Atomic int stm_thread_limit;    /* slots in use are below this */
extern PyObject *stm_Abort;             /* raised to unwind an aborted attempt */
extern int stm_barriers_off;            /* a test hook: show what breaks without barriers */

/* The descriptor of this thread, or NULL with RuntimeError or MemoryError set. */
Tx *stm_thread_tx(void);

/* That of this thread, while it is in a transaction whose barriers act; else NULL. */
static inline Tx *
live_tx(void)
{
    return stm_self != NULL && stm_self->live ? stm_self : NULL;
}

static inline int
state_of(Tx *tx)
{
    return (int)(atomic_load(&tx->status) & STATE_MASK);
}

/* The number of the attempt: when it has changed, that attempt is over. */
static inline uint64_t
attempt_of(Tx *tx)
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
change_state(Tx *tx, uint64_t attempt, int from, int to)
{
    uint64_t expected = attempt << STATE_BITS | (unsigned)from;
    return atomic_compare_exchange_strong(&tx->status, &expected, attempt << STATE_BITS | (unsigned)to);
}

static inline void
tx_set_live(Tx *tx)
{
    tx->live = state_of(tx) != TX_IDLE && tx->paused == 0;
    tx->open = tx->live && tx->grade != GRADE_EXCLUSIVE && !stm_barriers_off;
    stm_open = tx->open ? tx : NULL;
}

static inline void
tx_set_idle(Tx *tx)
{
    tx->live = tx->open = 0;
    stm_open = NULL;
}

static inline void tx_pause(Tx *tx) { tx->paused++; tx_set_idle(tx); }
static inline void tx_resume(Tx *tx) { tx->paused--; tx_set_live(tx); }

/* Does nobody else touch what the barriers have opened for this attempt, and what it has made?  Bystanders may (bystanders.c). */
static inline bool
is_undisturbed(Tx *tx)
{
    return atomic_load_explicit(&tx->borrows, memory_order_relaxed);
}

/* Is it told of something? -1 with stm_Abort set when it has to abort. */
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

static inline bool
has_reserved(Tx *tx)
{
    return atomic_load_explicit(&tx->contention.reserved, memory_order_relaxed) != 0;
}

/* That thread's bucket of the cell in one of its tables of marks. */
static inline _Atomic uint32_t *
marks_at(Tx *o, Cell c, bool large)
{
    return o->locks.marks + (large ? SMALL_BUCKETS + large_bucket(c) : small_bucket(c)) * MARK_WAYS;
}

/* Has this transaction marked the cell with (at least) this mode? */
static inline bool
marked(Tx *tx, Cell c, uint32_t mode)
{
    uint32_t epoch = atomic_load_explicit(&tx->epoch, memory_order_relaxed);
    uint32_t want = epoch << 18 | mark_tag(c) << 2;
    bool spilled = atomic_load_explicit(&tx->locks.spilled, memory_order_relaxed) == epoch;
    for (int large = 0; large <= (int)spilled; large++) {
        _Atomic uint32_t *b = marks_at(tx, c, large);
        for (int i = 0; i < MARK_WAYS; i++) {
            uint32_t m = atomic_load_explicit(&b[i], memory_order_relaxed);
            if ((m & ~MODE_MASK) == want && (m & mode) == mode)
                return true;
        }
    }
    return false;
}

/* May this transaction read it without a lock? Then that stays so until its end. The trace is stored before the
 * second look as writers see it, for they use membarrier(2); the compiler must not change the order. */
static inline bool
read_by_bias(Tx *tx, PyObject *obj)
{
    if (LIKELY(!has_bias(obj)))
        return false;
    uint8_t attempt = (uint8_t)atomic_load_explicit(&tx->epoch, memory_order_relaxed);
    atomic_store_explicit(&tx->bias.traces[bias_trace(obj)], attempt, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return has_bias(obj);
}

/* By a writer that has its lock: may this transaction have read it without one before?  It has or had the bias then, and what takes it away
 * is noted for longer than a transaction lasts.  Traces alone would not do: objects share their places. */
static inline bool
may_have_read_by_bias(Tx *tx, PyObject *obj)
{
    return atomic_load(bias_bits(obj)) & (BIAS_SET | BIAS_TAKEN) && bias_traced(tx, bias_trace(obj));
}

/* By a reader that has its mark. */
static inline void
bias_seen(Tx *tx, PyObject *obj)
{
    tx->bias.touches++;
    uint16_t bits = atomic_load_explicit(bias_bits(obj), memory_order_relaxed);
    if (!(bits & BIAS_SET))
        bias_consider(tx, obj, bits);
}

#endif
