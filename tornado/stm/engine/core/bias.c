/* Read bias: what nobody has written for a while is read without a lock.
 *
 * Nine bits of an object's header that the interpreter leaves alone say what is known of it, if it is one of those of which
 * all readers and writers ask (the upcall of that name):
 *
 *      BIAS_SET    it is read without a lock: a reader only leaves a trace in a small table of its own thread
 *      BIAS_SEEN   it has been read with a lock in the epoch that is noted beside, and not been written since
 *      BIAS_TAKEN  it had the bias until the epoch that is noted beside
 *      BIAS_TIMES  how often the bias has been taken from it, up to three
 *
 * All are 0 in a new object, and 0 says nothing.
 *
 * A reader of what has no bias, when it has its mark, sets SEEN; eight epochs later one replaces that by SET.  A writer
 * has its lock first, and then clears SEEN, or replaces SET by TAKEN.  Where it finds SET or TAKEN it makes all threads finish
 * what they have begun to store (membarrier(2), which is why readers need no fence), and then looks for traces of the
 * object; whoever has left one is a reader that stands in its way like one with a mark.  So does each writer for eight epochs,
 * once for all that it writes of the object.  Who has written it does not set SEEN.
 * Compare BRAVO (Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", 2019).
 *
 * Invariants.  SET comes while no transaction has written to the object and is not over.  Each transaction that has
 * read the object without a mark, and is not over, has left its trace before a writer looks.
 *
 * Why the first holds.  An epoch ends when all transactions are over that ran at the end of the one before
 * (bias_advance() remembers their numbers): a transaction sees four of them at most, counting by how much what is seen
 * of its status may be late.  A writer whose lock is older than SEEN runs beside the reader that set it, and is over
 * before the epochs that these two see are: before eight.  One that comes later finds SEEN, for what it
 * knows of the epoch it knows from somebody who has waited for that reader to end; and it clears it in one
 * step with asking for SET, so that either the reader's exchange fails or the writer finds it done.
 *
 * Why the second holds.  A reader leaves its trace and then looks whether SET is still there.  If it saw that, it looked
 * before the writer took it away, hence before the writer's membarrier ended; then the trace was stored, too.
 */
#include "bias.h"

#include "tx.h"
#include "upcalls.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EPOCH_BITS (15 << BIAS_EPOCH_SHIFT)
#define SOME_TIME 8     /* epochs, of the 16 that can be told apart */

/* An epoch is at least as long as it takes a thread to do one of these. */
#define TOUCHES 4096
#ifndef COMMITS         /* the stress program is in a hurry */
#define COMMITS 16
#define SELDOM 4
#endif

_Static_assert(((_Py_STATICALLY_ALLOCATED_FLAG | _Py_IMMORTAL_FLAGS) & BIAS_BITS) == 0, "the interpreter uses these bits of ob_flags");
_Static_assert(sizeof(((PyObject *)NULL)->ob_flags) == 2, "ob_flags has sixteen bits");

static bool possible;                   /* this system has membarrier(2) */
static _Atomic uint32_t epoch;
static _Atomic int advancing;           /* somebody is in bias_advance() */
static _Atomic uint64_t running[MAX_THREADS];   /* status of those that have to end first, or 0 */

_Atomic uint64_t stm_biases_given, stm_biases_taken, stm_bias_waits;

void
bias_init(void)
{
    atomic_store(&advancing, 0);
    possible = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* ---- Epochs ---------------------------------------------------------------------------- */

/* Begin the next epoch, if all are over that ran when this one began. */
static void
bias_advance(void)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&advancing, &nobody, 1))
        return;
    int limit = atomic_load(&stm_thread_limit);
    bool over = true;
    for (int i = 1; i < limit && over; i++) {
        uint64_t awaited = atomic_load_explicit(&running[i], memory_order_relaxed);
        Tx *o = atomic_load(&stm_threads[i]);
        if (awaited == 0 || o == NULL)
            continue;
        uint64_t status = atomic_load(&o->status);
        over = status >> STATE_BITS != awaited >> STATE_BITS || (status & STATE_MASK) < TX_ACTIVE;
    }
    if (over) {
        for (int i = 1; i < limit; i++) {
            Tx *o = atomic_load(&stm_threads[i]);
            uint64_t status = o != NULL ? atomic_load(&o->status) : 0;
            atomic_store_explicit(&running[i], (status & STATE_MASK) >= TX_ACTIVE ? status : 0, memory_order_relaxed);
        }
        atomic_fetch_add(&epoch, 1);
    }
    atomic_store(&advancing, 0);
}

/* At the end of a transaction. */
void
bias_tick(Tx *tx)
{
    if (tx->bias.touches - tx->bias.touches_before < TOUCHES && ++tx->bias.ticks < COMMITS)
        return;
    tx->bias.touches_before = tx->bias.touches;
    tx->bias.ticks = 0;
    bias_advance();
}

static uint16_t
epoch_now(void)
{
    return (uint16_t)((atomic_load(&epoch) & 15) << BIAS_EPOCH_SHIFT);
}

/* Have so many epochs gone since the one that is noted there? */
static bool
long_ago(uint16_t bits)
{
    return (((epoch_now() - (bits & EPOCH_BITS)) & EPOCH_BITS) >> BIAS_EPOCH_SHIFT) >= SOME_TIME;
}

/* ---- What this attempt has written --------------------------------------------------------- */

/* Has it cleared SEEN, or waited for all who have read the object by bias?  Nobody else can begin to before it is over. */
static bool
has_written(Tx *tx, PyObject *obj)
{
    uint64_t attempt = atomic_load_explicit(&tx->status, memory_order_relaxed) >> STATE_BITS;
    uint32_t place = bias_trace(obj) % BIAS_WRITTEN;
    return tx->bias.written[place].obj == obj && tx->bias.written[place].attempt == attempt;
}

static void
note_written(Tx *tx, PyObject *obj)
{
    uint32_t place = bias_trace(obj) % BIAS_WRITTEN;
    tx->bias.written[place].obj = obj;
    tx->bias.written[place].attempt = atomic_load_explicit(&tx->status, memory_order_relaxed) >> STATE_BITS;
}

/* ---- Readers ------------------------------------------------------------------------------- */

/* The slow side of bias_seen(). */
void
bias_consider(Tx *tx, PyObject *obj, uint16_t bits)
{
    uint16_t rest = bits & ~(BIAS_SEEN | BIAS_TAKEN | EPOCH_BITS);
    if (bits & (BIAS_SEEN | BIAS_TAKEN)) {
        bool seen = bits & BIAS_SEEN;
        if (long_ago(bits) && atomic_compare_exchange_strong(bias_bits(obj), &bits, rest | (seen ? BIAS_SET : 0)) && seen)
            atomic_fetch_add_explicit(&stm_biases_given, 1, memory_order_relaxed);
        return;
    }
    /* The more often it has been taken away, the more seldom it is given. */
    int times = bits >> BIAS_TIMES_SHIFT & 3;
    if ((tx->bias.touches & ((1u << SELDOM * times) - 1)) == 0 && possible && !has_written(tx, obj) && stm_upcalls->may_be_biased(tx, obj))
        atomic_compare_exchange_strong(bias_bits(obj), &bits, rest | BIAS_SEEN | epoch_now());
}

/* A test hook, while no transactions run: may it be read without a lock from now on? */
bool
bias_give(Tx *tx, PyObject *obj)
{
    if (!possible || !stm_upcalls->may_be_biased(tx, obj))
        return false;
    atomic_fetch_and(bias_bits(obj), (uint16_t)~BIAS_BITS);
    atomic_fetch_or(bias_bits(obj), BIAS_SET);
    return true;
}

/* ---- Writers ------------------------------------------------------------------------------- */

/* May that transaction have left a trace of the object there? */
bool
bias_traced(Tx *o, uint32_t trace)
{
    uint32_t attempt = atomic_load_explicit(&o->epoch, memory_order_acquire);
    return atomic_load_explicit(&o->bias.traces[trace], memory_order_acquire) == (uint8_t)attempt;
}

static bool
find_reader(Tx *tx, Conflict *x)
{
    int limit = atomic_load_explicit(&stm_thread_limit, memory_order_acquire);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load_explicit(&stm_threads[i], memory_order_acquire);
        if (o == NULL || o == tx)
            continue;
        uint64_t status = atomic_load_explicit(&o->status, memory_order_acquire);
        x->slot = i;
        x->attempt = status >> STATE_BITS;
        if ((status & STATE_MASK) >= TX_ACTIVE && bias_traced(o, x->against))
            return true;
    }
    return false;
}

/* No bias is left when this returns: true if others may have read the object without a lock. */
bool
bias_take(PyObject *obj)
{
    uint16_t bits = atomic_load(bias_bits(obj)), without;
    do {
        int times = bits >> BIAS_TIMES_SHIFT & 3;
        uint16_t rest = bits & ~BIAS_BITS;
        if (bits & BIAS_SET)
            without = (uint16_t)(rest | BIAS_TAKEN | epoch_now() | (times < 3 ? times + 1 : 3) << BIAS_TIMES_SHIFT);
        else if ((bits & BIAS_TAKEN) && !long_ago(bits))
            return true;
        else
            without = (uint16_t)(rest | times << BIAS_TIMES_SHIFT);
    } while (!atomic_compare_exchange_strong(bias_bits(obj), &bits, without));
    if (bits & BIAS_SET)
        atomic_fetch_add_explicit(&stm_biases_taken, 1, memory_order_relaxed);
    return bits & BIAS_SET;
}

/* Wait until all are over who have read the object without a lock. Returns -1 when this transaction has to abort. */
int
bias_await_readers(Tx *tx, PyObject *obj)
{
    if (has_written(tx, obj))
        return 0;
    atomic_fetch_add_explicit(&stm_bias_waits, 1, memory_order_relaxed);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        return become_exclusive(tx, "a change without membarrier(2)");
    Conflict x = {.cell = cell_of(obj, WHOLE), .mode = MODE_EXCLUSIVE, .how = FOR_BIASED, .against = bias_trace(obj)};
    while (find_reader(tx, &x)) {
        if (contend(tx, &x, LOG_WRITE_READ) < 0)
            return -1;
    }
    if (UNLIKELY(has_reserved(tx)))
        reservation_end(tx);
    note_written(tx, obj);
    return 0;
}

/* The slow side of bias_revoke(). */
int
bias_give_up(Tx *tx, PyObject *obj)
{
    if (bias_take(obj))
        return bias_await_readers(tx, obj);
    note_written(tx, obj);
    return 0;
}
