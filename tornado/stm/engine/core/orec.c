/* Ownership records and read marks: who may read, who may write.
 *
 * Protocol.  A reader stores its mark, fences, and looks for an owner; a
 * writer takes the ownership record, fences, and looks for marks.  Whichever
 * comes second sees the other (Dekker), so two conflicting accesses never
 * both go on.  The one that has to give way withdraws what it had placed
 * before it waits, so that nobody waits for somebody who only asks.
 *
 * Containers are locked at two levels.  An operation on a key takes an
 * intention (to read, to write) on the whole and a lock on the key's cell;
 * an operation on the whole takes it shared or exclusive:
 *
 *                     intent-read  intent-write  shared  exclusive
 *      intent-read        ok            ok         ok       -
 *      intent-write       ok            ok         -        -
 *      shared             ok            -          ok       -
 *      exclusive          -             -          -        -
 *
 * A lock, once taken, is held until its transaction ends (two-phase locking).
 */
#include "orec.h"

#include "pages.h"
#include "park.h"
#include "tx.h"

static OrecBucket *orecs;       /* the small table, and behind it the large one */
#define BUCKETS (SMALL_BUCKETS + LARGE_BUCKETS)

int
orec_init(void)
{
    orecs = pages_new(BUCKETS * sizeof(OrecBucket));
    if (orecs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* In the child of a fork nobody owns anything. */
void
locks_in_child(void)
{
    memset((void *)orecs, 0, BUCKETS * sizeof(OrecBucket));
}

/* In the child of a fork: those of a thread that is no more. */
void
locks_abandon(Tx *tx)
{
    memset((void *)tx->locks.marks, 0, MARKS * sizeof(uint32_t));
    tx->locks.n_owned = 0;
}

static inline OrecBucket *
bucket_of(Cell c)
{
    return &orecs[small_bucket(c)];
}

/* Where its word is if that bucket has spilled. */
static inline OrecBucket *
spill_of(Cell c)
{
    return &orecs[SMALL_BUCKETS + large_bucket(c)];
}

static inline bool
has_spilled(OrecBucket *b)
{
    return UNLIKELY(atomic_load_explicit(&b->spilled, memory_order_acquire) != 0);
}

static inline uint64_t
orec_tag(Cell c)
{
    return c >> SMALL_BITS;
}

/* What that word's tag says of its cell. */
static inline uint32_t
mark_tag_of(uint64_t word)
{
    return mark_tag((word >> 8) << SMALL_BITS);
}

/* The bucket that the word lies in: they lie at multiples of their size. */
static inline OrecBucket *
bucket_with(_Atomic uint64_t *word)
{
    return (OrecBucket *)((uintptr_t)word & ~(uintptr_t)(sizeof(OrecBucket) - 1));
}

/* The bucket in the small table that it has spilled from; NULL if it has not. */
static inline OrecBucket *
spilled_from(_Atomic uint64_t *word)
{
    size_t i = (size_t)(bucket_with(word) - orecs);
    return UNLIKELY(i >= SMALL_BUCKETS) ? &orecs[(i - SMALL_BUCKETS) & (SMALL_BUCKETS - 1)] : NULL;
}

/* By its owner: the cell is free. */
static void
clear_word(_Atomic uint64_t *word)
{
    OrecBucket *b = spilled_from(word);
    atomic_store_explicit(word, 0, memory_order_release);
    if (b != NULL)
        atomic_fetch_sub_explicit(&b->spilled, 1, memory_order_release);
}

/* With the bucket's latch: own the cell. Who looks for the word has to look there, too, if it spills. */
static void
set_word(_Atomic uint64_t *word, Cell c, int slot)
{
    OrecBucket *b = spilled_from(word);
    if (b != NULL)
        atomic_fetch_add_explicit(&b->spilled, 1, memory_order_relaxed);
    atomic_store_explicit(word, orec_tag(c) << 8 | (uint64_t)slot, memory_order_release);
}

/* ---- Places, for the conflict log -------------------------------------------------
 * The tables lie beside those of the ownership records and of the marks.  Whoever places one while there is a log
 * stores first where; once there is a table, also that nobody knows. */

static Location *_Atomic owner_locations;

static void
remember(Location *_Atomic *table, size_t size, size_t i, const Place *location)
{
    Location *t = atomic_load_explicit(table, memory_order_acquire);
    if (t == NULL) {
        Location *made = location != NULL ? PyMem_RawCalloc(size, sizeof(*made)) : NULL;
        if (made == NULL)
            return;
        /* Another thread may own another cell, and be here too. */
        if (atomic_compare_exchange_strong(table, &t, made))
            t = made;
        else
            PyMem_RawFree(made);
    }
    atomic_store_explicit(&t[i], location, memory_order_release);
}

static const Place *
recall(Location *_Atomic *table, size_t i)
{
    Location *t = atomic_load_explicit(table, memory_order_acquire);
    return t != NULL ? atomic_load_explicit(&t[i], memory_order_acquire) : NULL;
}

static void
remember_owner(_Atomic uint64_t *word, const Place *location)
{
    OrecBucket *b = bucket_with(word);
    if (UNLIKELY(location != NULL || atomic_load_explicit(&owner_locations, memory_order_relaxed) != NULL))
        remember(&owner_locations, (size_t)BUCKETS * OREC_WAYS, (size_t)(b - orecs) * OREC_WAYS + (word - b->word), location);
}

/* Where that thread took the cell, or one that readers take for it. */
static const Place *
owner_location(Cell c, int slot)
{
    for (int large = 0; stm_log_on && large < 2; large++) {
        OrecBucket *b = large ? spill_of(c) : bucket_of(c);
        for (int i = 0; i < OREC_WAYS; i++) {
            uint64_t w = atomic_load_explicit(&b->word[i], memory_order_acquire);
            if (w != 0 && (int)(w & 0xFF) == slot && mark_tag_of(w) == mark_tag(c))
                return recall(&owner_locations, (size_t)(b - orecs) * OREC_WAYS + i);
        }
    }
    return NULL;
}

static inline void
remember_mark(Tx *tx, _Atomic uint32_t *mark, const Place *location)
{
    if (UNLIKELY(location != NULL || atomic_load_explicit(&tx->locks.locations, memory_order_relaxed) != NULL))
        remember(&tx->locks.locations, MARKS, mark - tx->locks.marks, location);
}

/* ---- Owners and marks ------------------------------------------------------------- */

/* The slot of the thread that owns the cell, or 0. */
static int
owner_of(Cell c)
{
    OrecBucket *b = bucket_of(c);
    bool spilled = has_spilled(b);
    for (int large = 0; large <= (int)spilled; large++, b = spill_of(c)) {
        for (int i = 0; i < OREC_WAYS; i++) {
            uint64_t w = atomic_load_explicit(&b->word[i], memory_order_acquire);
            if (w != 0 && w >> 8 == orec_tag(c))
                return (int)(w & 0xFF);
        }
    }
    return 0;
}

/* Has anybody an ownership record in the bucket of the cell?  Mostly nobody has. */
static inline bool
is_any_owned(Cell c)
{
    OrecBucket *b = bucket_of(c);
    uint64_t any = atomic_load_explicit(&b->spilled, memory_order_acquire);
#pragma GCC unroll 7
    for (int i = 0; i < OREC_WAYS; i++)
        any |= atomic_load_explicit(&b->word[i], memory_order_acquire);
    return any != 0;
}

/* The thread that a reader of the cell has to wait for, or 0. A mark holds only the lowest
 * bits of a cell, and marked() trusts it for every cell that shares them: so the
 * reader must wait for owners of those cells too. */
static int
owner_before_reader(Cell c, int self)
{
    OrecBucket *b = bucket_of(c);
    bool spilled = has_spilled(b);
    int found = 0;
    for (int large = 0; large <= (int)spilled; large++, b = spill_of(c)) {
        for (int i = 0; i < OREC_WAYS; i++) {
            uint64_t w = atomic_load_explicit(&b->word[i], memory_order_acquire);
            if (w == 0 || mark_tag_of(w) != mark_tag(c))
                continue;
            if ((int)(w & 0xFF) != self)
                return (int)(w & 0xFF);
            found = self;
        }
    }
    return found;
}

typedef struct { _Atomic uint32_t *at; uint32_t before; } Placed;

/* In that bucket: 1 when the mark is placed, 0 when it was there before, -1 when there is no room. */
static inline int
mark_in(Tx *tx, _Atomic uint32_t *b, uint32_t want, uint32_t mode, const Place *location, Placed *placed)
{
    uint32_t epoch = want >> 18, m;
    _Atomic uint32_t *empty = NULL;
#pragma GCC unroll 4
    for (int i = 0; i < MARK_WAYS; i++) {
        m = atomic_load_explicit(&b[i], memory_order_relaxed);
        if ((m & ~MODE_MASK) == want) {
            /* A mark with the intention to read has no bit of its own: that there is one says it. */
            if ((m & mode) == mode)
                return 0;
            remember_mark(tx, &b[i], location);
            atomic_store_explicit(&b[i], m | mode, memory_order_release);
            *placed = (Placed){&b[i], m};
            return 1;
        }
        if (m >> 18 != epoch)
            empty = &b[i];
    }
    if (UNLIKELY(empty == NULL))
        return -1;
    remember_mark(tx, empty, location);
    atomic_store_explicit(empty, want | mode, memory_order_release);
    *placed = (Placed){empty, 0};
    return 1;
}

/* Where the bucket in the small table is full. True: it was not marked so before. */
static bool
spill_mark(Tx *tx, Cell c, uint32_t mode, const Place *location, Placed *placed)
{
    _Atomic uint32_t *b = marks_at(tx, c, true);
    uint32_t epoch = atomic_load_explicit(&tx->epoch, memory_order_relaxed);
    atomic_store_explicit(&tx->locks.spilled, epoch, memory_order_release);     /* before the mark: who looks for that has to look here */
    int done = mark_in(tx, b, epoch << 18 | mark_tag(c) << 2, mode, location, placed);
    if (done >= 0)
        return done;
    /* Full: way 0 stands for every cell of the bucket from now on. */
    uint32_t m = atomic_load_explicit(&b[0], memory_order_relaxed);
    remember_mark(tx, &b[0], location);
    atomic_store_explicit(&b[0], epoch << 18 | MARK_ANY_TAG << 2 | (m & MODE_MASK) | mode, memory_order_release);
    *placed = (Placed){&b[0], m};
    return true;
}

/* Add the mode to this thread's mark of the cell; remember what stood there.  False: it was marked so before.
 * Released: it may take the place of a mark of an earlier transaction, and a writer
 * that looks for that one then learns only from this one that it is over. */
static inline bool
mark_cell(Tx *tx, Cell c, uint32_t mode, const Place *location, Placed *placed)
{
    uint32_t want = atomic_load_explicit(&tx->epoch, memory_order_relaxed) << 18 | mark_tag(c) << 2;
    int done = mark_in(tx, marks_at(tx, c, false), want, mode, location, placed);
    return LIKELY(done >= 0) ? done : spill_mark(tx, c, mode, location, placed);
}

static void
mark_withdraw(Placed p)
{
    atomic_store_explicit(p.at, p.before, memory_order_release);
}

/* The thread's mark on the cell with one of these modes, or NULL.
 * `any` counts a mark of every mode, intent-read too. */
static _Atomic uint32_t *
find_mark(Tx *o, Cell c, uint32_t modes, bool any)
{
    uint32_t epoch = atomic_load_explicit(&o->epoch, memory_order_acquire);
    bool spilled = atomic_load_explicit(&o->locks.spilled, memory_order_acquire) == epoch;
    for (int large = 0; large <= (int)spilled; large++) {
        _Atomic uint32_t *b = marks_at(o, c, large);
        for (int i = 0; i < MARK_WAYS; i++) {
            uint32_t m = atomic_load_explicit(&b[i], memory_order_acquire);
            uint32_t tag = m >> 2 & 0xFFFF;
            if (m >> 18 == epoch && (tag == mark_tag(c) || tag == MARK_ANY_TAG)
                && (any || (m & modes)))
                return &b[i];
        }
    }
    return NULL;
}

static bool
mark_of_other(Tx *o, Cell c, uint32_t modes, bool any)
{
    return find_mark(o, c, modes, any) != NULL;
}

/* May this transaction have the intention to write keys of the container? */
bool
has_inserted(Tx *tx, Cell container)
{
    return mark_of_other(tx, container, MODE_INTENT_WRITE, false);
}

/* May this transaction have read all of the container? */
bool
may_have_read(Tx *tx, Cell container)
{
    return mark_of_other(tx, container, MODE_SHARED, false);
}

bool
owns(Tx *tx, Cell c)
{
    return owner_of(c) == tx->slot;
}

/* Has this transaction locked all of the container? */
bool
holds_whole(Tx *tx, Cell container)
{
    return owns(tx, container) || marked(tx, container, MODE_SHARED);
}

/* Is there another thread with marks against that lock? Then it is the conflict. */
static bool
find_marker(Tx *tx, Conflict *x)
{
    int limit = atomic_load_explicit(&stm_thread_limit, memory_order_acquire);
    x->how = FOR_READER;
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load_explicit(&stm_threads[i], memory_order_acquire);
        if (o == NULL || o == tx)
            continue;
        uint64_t status = atomic_load_explicit(&o->status, memory_order_acquire);
        if ((status & STATE_MASK) < TX_ACTIVE)
            continue;
        x->slot = i;
        x->attempt = status >> STATE_BITS;
        _Atomic uint32_t *mark = find_mark(o, x->cell, x->against, x->against == 0);
        if (mark != NULL) {
            x->location = stm_log_on ? recall(&o->locks.locations, mark - o->locks.marks) : NULL;
            return true;
        }
    }
    return false;
}

/* Two locks of one cell that two transactions cannot have at the same time? */
static bool
modes_conflict(uint32_t a, uint32_t b)
{
    return a == MODE_EXCLUSIVE || b == MODE_EXCLUSIVE || (a | b) == (MODE_SHARED | MODE_INTENT_WRITE);
}

bool
in_the_way(Tx *tx, const Conflict *x)
{
    Tx *o = atomic_load(&stm_threads[x->slot]);
    if (attempt_of(o) != x->attempt)
        return false;
    switch (x->how) {
    case FOR_OWNER:
        return (x->mode == MODE_EXCLUSIVE ? owner_of(x->cell) : owner_before_reader(x->cell, tx->slot)) == x->slot;
    case FOR_READER:
        return mark_of_other(o, x->cell, x->against, x->against == 0);
    case FOR_BIASED:
        return bias_traced(o, x->against);
    case FOR_RESERVATION:
        return atomic_load(&o->contention.reserved) == x->cell
            && modes_conflict(x->mode, atomic_load(&o->contention.reserved_mode));
    }
    Py_UNREACHABLE();
}

/* Take the cell in a reader's mode; conflicting marks are those of `against`. */
static int
lock_by_mark_or_wait(Tx *tx, Cell c, uint32_t mode, uint32_t against)
{
    if (UNLIKELY(stm_log_on) && marked(tx, c, mode))
        return 0;       /* the log knows where that was */
    const Place *location = UNLIKELY(stm_log_on) ? log_location(tx) : NULL;
    for (;;) {
        Conflict x = {.cell = c, .mode = mode, .against = against};
        if (UNLIKELY(atomic_load_explicit(&stm_reservations, memory_order_relaxed) != 0)
            && !marked(tx, c, mode) && find_reservation(tx, &x))
            goto wait;
        Placed p;
        if (!mark_cell(tx, c, mode, location, &p))
            return 0;
        atomic_thread_fence(memory_order_seq_cst);
        int other = owner_before_reader(c, tx->slot);
        if (other != 0 && other != tx->slot) {
            x.how = FOR_OWNER;
            x.slot = other;
            x.attempt = attempt_of(atomic_load(&stm_threads[other]));
            x.location = owner_location(c, other);
            if (owner_before_reader(c, tx->slot) != other) {
                mark_withdraw(p);
                continue;
            }
        }
        else if (other == tx->slot || against == 0 || !find_marker(tx, &x)) {
            if (UNLIKELY(has_reserved(tx)))
                reservation_end(tx);
            return 0;
        }
        mark_withdraw(p);
        wake(tx->slot, 0);
    wait:
        if (contend(tx, &x, LOG_WRITE_READ) < 0)
            return -1;
    }
}

/* The same, for what nobody else has mostly. */
static inline int
lock_by_mark(Tx *tx, Cell c, uint32_t mode, uint32_t against)
{
    if (check_doomed(tx) < 0)
        return -1;
    if (UNLIKELY(stm_log_on || against != 0 || atomic_load_explicit(&stm_reservations, memory_order_relaxed) != 0))
        return lock_by_mark_or_wait(tx, c, mode, against);
    Placed p;
    if (!mark_cell(tx, c, mode, NULL, &p))
        return 0;
    atomic_thread_fence(memory_order_seq_cst);
    if (LIKELY(!is_any_owned(c)))
        return 0;
    mark_withdraw(p);
    return lock_by_mark_or_wait(tx, c, mode, against);
}

/* Read a cell that is no container of keys. */
int
lock_shared(Tx *tx, Cell c)
{
    return lock_by_mark(tx, c, MODE_SHARED, 0);
}

AtOnce
lock_shared_at_once(Tx *tx, Cell c)
{
    if (UNLIKELY(atomic_load_explicit(&tx->attention, memory_order_relaxed)))
        return NOT_AT_ONCE;
    if (UNLIKELY(stm_log_on || atomic_load_explicit(&stm_reservations, memory_order_relaxed) != 0))
        return marked(tx, c, MODE_SHARED) ? LOCKED_BEFORE : NOT_AT_ONCE;
    Placed p;
    if (!mark_cell(tx, c, MODE_SHARED, NULL, &p))
        return LOCKED_BEFORE;
    atomic_thread_fence(memory_order_seq_cst);
    if (LIKELY(!is_any_owned(c)))
        return LOCKED_NOW;
    int owner = owner_before_reader(c, tx->slot);
    if (owner == 0 || owner == tx->slot)
        return LOCKED_NOW;
    mark_withdraw(p);
    return NOT_AT_ONCE;
}

/* Read all of a container. */
int
lock_shared_container(Tx *tx, Cell c)
{
    return lock_by_mark(tx, c, MODE_SHARED, MODE_INTENT_WRITE);
}

int
lock_intent_read(Tx *tx, Cell c)
{
    return lock_by_mark(tx, c, MODE_INTENT_READ, 0);
}

int
lock_intent_write(Tx *tx, Cell c)
{
    return lock_by_mark(tx, c, MODE_INTENT_WRITE, MODE_SHARED);
}

static int
remember_owned(Tx *tx, _Atomic uint64_t *word)
{
    if (tx->locks.n_owned == tx->locks.cap_owned) {
        Py_ssize_t cap = tx->locks.cap_owned ? 2 * tx->locks.cap_owned : 256;
        void *p = PyMem_RawRealloc(tx->locks.owned, cap * sizeof(*tx->locks.owned));
        if (p == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        tx->locks.owned = p;
        tx->locks.cap_owned = cap;
    }
    tx->locks.owned[tx->locks.n_owned++] = word;
    return 0;
}

/* With the bucket's latch: a free word for the cell, or NULL; *owner is the slot of the thread that owns it, or 0. */
static _Atomic uint64_t *
free_word(OrecBucket *b, Cell c, int *owner)
{
    _Atomic uint64_t *found = NULL;
    *owner = 0;
    bool spilled = has_spilled(b);
    for (int large = 0; large < 2; large++, b = spill_of(c)) {
        if (large && found != NULL && !spilled)
            break;
        _Atomic uint64_t *here = NULL;
        for (int i = 0; i < OREC_WAYS; i++) {
            /* Acquired: a free way may be that of the last owner, who cleared it without
             * the latch. And whoever reads what we put there sees what that one did. */
            uint64_t w = atomic_load_explicit(&b->word[i], memory_order_acquire);
            if (w == 0)
                here = &b->word[i];
            else if (w >> 8 == orec_tag(c))
                *owner = (int)(w & 0xFF);
        }
        if (found == NULL)
            found = here;
    }
    return found;
}

/* Own the cell. *first tells whether this transaction did not own it before,
 * that is, whether the caller has to log how to undo its write. */
int
lock_exclusive(Tx *tx, Cell c, bool *first)
{
    if (check_doomed(tx) < 0)
        return -1;
    *first = false;
    if (owner_of(c) == tx->slot)
        return 0;
    *first = true;
    OrecBucket *b = bucket_of(c);
    for (;;) {
        int other;
        Conflict x = {.cell = c, .mode = MODE_EXCLUSIVE};
        if (UNLIKELY(atomic_load_explicit(&stm_reservations, memory_order_relaxed) != 0)
            && find_reservation(tx, &x)) {
            if (contend(tx, &x, LOG_WRITE_WRITE) < 0)
                return -1;
            continue;
        }
        const Place *location = UNLIKELY(stm_log_on) ? log_location(tx) : NULL;
        latch_take(&b->latch);
        _Atomic uint64_t *word = free_word(b, c, &other);
        if (other == 0 && word != NULL) {
            remember_owner(word, location);
            set_word(word, c, tx->slot);
        }
        else if (other != 0) {
            /* Its owner cannot end before it has cleared the word. */
            x.how = FOR_OWNER;
            x.slot = other;
            x.attempt = attempt_of(atomic_load(&stm_threads[other]));
        }
        latch_give(&b->latch);
        if (other != 0) {
            /* Clearing needs no latch: it may just have ended. */
            x.location = owner_location(c, other);
            if (owner_of(c) != other)
                continue;
            if (contend(tx, &x, LOG_WRITE_WRITE) < 0)
                return -1;
            continue;
        }
        if (word == NULL) {
            /* More writes meet in these buckets than they have room for. */
            *first = true;
            return become_exclusive(tx, "the table of ownership records is full");
        }
        if (remember_owned(tx, word) < 0) {
            clear_word(word);
            return -1;
        }
        atomic_thread_fence(memory_order_seq_cst);
        for (;;) {
            if (!find_marker(tx, &x)) {
                if (UNLIKELY(has_reserved(tx)))
                    reservation_end(tx);
                return 0;
            }
            Tx *o = atomic_load(&stm_threads[x.slot]);
            bool yield = tx->grade == GRADE_NONE
                && atomic_load(&o->age) < atomic_load(&tx->age);
            if (yield) {
                tx->locks.n_owned--;
                clear_word(word);
                wake(tx->slot, 0);
            }
            if (contend(tx, &x, LOG_WRITE_READ) < 0)
                return -1;
            if (yield)
                break;
        }
    }
}

/* Give up all cells: the caller then moves its epoch on, which drops the marks. */
void
locks_release(Tx *tx)
{
    for (Py_ssize_t i = 0; i < tx->locks.n_owned; i++)
        clear_word(tx->locks.owned[i]);
    tx->locks.n_owned = 0;
}

/* While this transaction commits: wait for those with an earlier ticket that have
 * the intention to write in the same dict too. So the order of inserted keys and
 * that of deferred actions are the same. */
void
wait_for_earlier_inserters(Tx *tx, Cell dict)
{
    uint64_t mine = atomic_load(&tx->ticket);
    int limit = atomic_load_explicit(&stm_thread_limit, memory_order_acquire);
    for (int i = 1; i < limit; i++) {
        Tx *o = atomic_load_explicit(&stm_threads[i], memory_order_acquire);
        if (o == NULL || o == tx)
            continue;
        uint64_t attempt = attempt_of(o), theirs;
        while ((theirs = atomic_load(&o->ticket)) == CHOOSING)
            __builtin_ia32_pause();
        if (theirs != 0 && theirs < mine && mark_of_other(o, dict, MODE_INTENT_WRITE, false))
            wait_for_end(tx, o, attempt);
    }
}
