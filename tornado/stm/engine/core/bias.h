/* Read bias: what nobody has written for a while is read without a lock. */
#ifndef TORNADO_STM_BIAS_H
#define TORNADO_STM_BIAS_H

#include "base.h"

/* Places for traces; objects may share one. */
#define BIAS_TRACES 16384

/* What a thread remembers of the objects that it writes; what does not fit is forgotten. */
#define BIAS_WRITTEN 64

/* What a thread has read by bias, and has seen of it. */
typedef struct {
    _Atomic uint8_t traces[BIAS_TRACES];    /* of what it has read without a mark: the lowest bits of its epoch; others read it */
    struct { PyObject *obj; uint64_t attempt; } written[BIAS_WRITTEN];  /* has that attempt seen to it that nobody reads it by bias? */
    uint32_t touches;                       /* reads of objects without a bias */
    uint32_t touches_before, ticks;         /* then, and transactions since then, when it last tried to begin an epoch */
} Bias;

void bias_init(void);           /* in each process */
void bias_tick(Tx *tx);         /* at the end of each transaction */

/* The slow sides of bias_seen() (tx.h) and bias_revoke(). */
void bias_consider(Tx *tx, PyObject *obj, uint16_t bits);
int bias_give_up(Tx *tx, PyObject *obj);

/* The latter in two steps: no bias is left, and whether others may have read without a lock; wait for these (-1 to abort). */
bool bias_take(PyObject *obj);
int bias_await_readers(Tx *tx, PyObject *obj);

/* May that transaction have left a trace there? */
bool bias_traced(Tx *o, uint32_t trace);

/* A test hook, while no transactions run: it may be read without a lock from now on; false if that cannot be. */
bool bias_give(Tx *tx, PyObject *obj);
extern _Atomic uint64_t stm_biases_given, stm_biases_taken, stm_bias_waits;    /* by all threads, for tests */

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

/* Is there anything that a writer has to look at more closely? */
static inline bool
is_bias_known(PyObject *obj)
{
    return atomic_load_explicit(bias_bits(obj), memory_order_acquire) & (BIAS_SET | BIAS_SEEN | BIAS_TAKEN);
}

/* By a writer that has its lock, before it writes. Returns -1 when the transaction has to abort. */
static inline int
bias_revoke(Tx *tx, PyObject *obj)
{
    return LIKELY(!is_bias_known(obj)) ? 0 : bias_give_up(tx, obj);
}

#endif
