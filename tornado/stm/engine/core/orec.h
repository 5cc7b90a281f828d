/* Ownership records and read marks: who may read, who may write. */
#ifndef TORNADO_STM_OREC_H
#define TORNADO_STM_OREC_H

#include "base.h"
#include "latch.h"

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

/* The key with which that object has this cell: the inverse of the same. */
static inline uint64_t
key_of_cell(Cell c, const void *obj)
{
    uint64_t h = c ^ c >> 32;
    h *= 0x96DE1B173F119089ull;
    h ^= h >> 29 ^ h >> 58;
    h ^= ((uintptr_t)obj >> 4) * 0x9E3779B97F4A7C15ull;
    return (h - 0x165667B19E3779F9ull) * 0x0BA79078168D4BAFull;
}

#define WHOLE 0ull
/* Key hashes are moved away from WHOLE. */
static inline uint64_t key_bits(Py_hash_t h) { return (uint64_t)h | (1ull << 63); }
/* What makes an attribute another cell than a key of that name, should the object be a dict: in a slot, and of a function. */
#define SLOT_BITS 0x5bd1e995deadbeefull
#define FUNCTION_BITS 0x3c6ef372fe94f82aull
/* The cell of a socket that says whether anything can be sent by it. */
#define SENDING_BITS 0x1f83d9abfb41bd6bull
/* The cell of the dict of attributes that an object does not have. */
#define MISSING_BITS 0x510e527fade682d1ull

/* ---- Tables -------------------------------------------------------------
 * Read marks and ownership records lie in two tables each.  Few cells are in use at a time, and they shall be in the processor's cache:
 * so the first table is small.  What finds its bucket full there *spills* into the large one.
 * What a mark knows of a cell, the lowest SMALL_BITS + 16 bits, tells its bucket in all four. */
#define SMALL_BITS 11
#define SMALL_BUCKETS (1u << SMALL_BITS)
#define LARGE_BITS 16
#define LARGE_BUCKETS (1u << LARGE_BITS)

/* ---- Read marks ---------------------------------------------------------
 * Of a thread, written by it only, read by every writer.
 * mark = epoch << 18 | tag << 2 | mode. A mark counts only while its epoch is
 * the owner's current one, so that ending a transaction drops all of them. */
#define MARK_WAYS 4
#define MARKS ((size_t)(SMALL_BUCKETS + LARGE_BUCKETS) * MARK_WAYS)    /* the small table, and behind it the large one */
#define EPOCH_MAX ((1u << 14) - 1)

enum {
    MODE_INTENT_READ = 0,   /* reads a key of this container */
    MODE_SHARED = 1,        /* reads the cell (of a container: all of it) */
    MODE_INTENT_WRITE = 2,  /* writes a key of this container */
    MODE_EXCLUSIVE = 4,     /* owns the cell: never in a mark */
};
#define MODE_MASK 3u
/* The tag that a full bucket of the large table falls back to: it stands for every cell there. */
#define MARK_ANY_TAG 0xFFFFu

static inline uint32_t
mark_tag(Cell c)
{
    uint32_t tag = (uint32_t)(c >> SMALL_BITS) & 0xFFFF;
    return tag == MARK_ANY_TAG ? tag - 1 : tag;
}

static inline size_t small_bucket(Cell c) { return c & (SMALL_BUCKETS - 1); }

/* Those that belong to one bucket of the small table have one there. */
static inline size_t
large_bucket(Cell c)
{
    return small_bucket(c) | (mark_tag(c) & (LARGE_BUCKETS / SMALL_BUCKETS - 1)) << SMALL_BITS;
}

/* ---- Ownership records --------------------------------------------------
 * word = tag << 8 | owner's slot, 0 when free. A cell is owned by at most one
 * thread; its word lies in any way of its bucket, or of that in the large table. Words are set under the
 * latch of the bucket in the small table and cleared by their owner with a plain release store. */
#define OREC_WAYS 7
typedef struct {
    _Atomic uint64_t word[OREC_WAYS];
    Latch latch;
    _Atomic uint32_t spilled;       /* so many words of this bucket are in the large table, or are about to be, or have just been */
} OrecBucket;

/* What a thread holds. */
typedef struct {
    _Atomic uint32_t *marks;        /* MARKS of them; written by this thread, read by others, as the next */
    _Atomic uint32_t spilled;       /* the last epoch of which there may be marks in the large table */
    Location *_Atomic locations;          /* of the marks, for the conflict log; NULL: there has been no log yet */
    _Atomic uint64_t **owned;       /* words to clear at the end */
    Py_ssize_t n_owned, cap_owned;
} Locks;

int orec_init(void);            /* -1 with MemoryError */

/* Each lock is held until the transaction ends.  Requires: the transaction runs, and is not exclusive.  These wait for who
 * is in the way, or roll them back; they return -1 with stm_Abort set when this transaction has to abort. */

/* Read a cell that is no container of keys. */
int lock_shared(Tx *tx, Cell c);
/* The same, where nothing is in the way, not even a log that is to be told where; else it is for lock_shared(). */
typedef enum { NOT_AT_ONCE, LOCKED_BEFORE, LOCKED_NOW } AtOnce;
AtOnce lock_shared_at_once(Tx *tx, Cell c);
/* Read all of a container of keys. */
int lock_shared_container(Tx *tx, Cell c);
/* Read, or write, a key of the container whose cell that is: besides the lock of the key. */
int lock_intent_read(Tx *tx, Cell c);
int lock_intent_write(Tx *tx, Cell c);
/* Own the cell. *first: this transaction did not before, so the caller has to log how to undo its write. */
int lock_exclusive(Tx *tx, Cell c, bool *first);

/* Does this transaction? */
bool owns(Tx *tx, Cell c);

/* Give up all that is owned.  The caller then moves tx->epoch on, which drops the marks. */
void locks_release(Tx *tx);

/* Of a container's cell: has this transaction inserted there, may it have read the whole (or it is forgotten), does it
 * exclude all others? */
bool has_inserted(Tx *tx, Cell container);
bool may_have_read(Tx *tx, Cell container);
bool holds_whole(Tx *tx, Cell container);

/* While this transaction commits: wait for those with an earlier ticket that have the intention to write there, too. */
void wait_for_earlier_inserters(Tx *tx, Cell container);

/* In the child of a fork: nobody owns anything; the marks of a thread that is no more. */
void locks_in_child(void);
void locks_abandon(Tx *tx);

#endif
