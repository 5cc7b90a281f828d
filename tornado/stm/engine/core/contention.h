/* The contention manager: wound-wait by age, and the two grades of inevitability. */
#ifndef TORNADO_STM_CONTENTION_H
#define TORNADO_STM_CONTENTION_H

#include "base.h"
#include "orec.h"

/* A ticket or a turn while its owner is about to draw it (Lamport's bakery). */
#define CHOOSING UINT64_MAX

enum {
#define WAIT(name) FOR_##name,
#include "waits.def"
#undef WAIT
};

enum {
#define CAUSE(name) CAUSE_##name,
#include "causes.def"
#undef CAUSE
};

enum {
#define GRADE(name) GRADE_##name,
#include "grades.def"
#undef GRADE
};
#define OVERDUE (GRADE_EXCLUSIVE + 1)   /* in the history, in the place of the grade of one that dooms another for that */

/* What a thread has of it. */
typedef struct {
    /* Written by this thread, read by others: */
    _Atomic uint64_t turn;          /* place in the queue for the token of inevitability, or 0 */
    _Atomic int alone;              /* with that turn: holds nothing and waits to be exclusive */
    _Atomic uint64_t reserved;      /* the cell that it waits for, or 0 */
    _Atomic uint32_t reserved_mode;
    _Atomic int patience;           /* so many younger ones may still have that cell before it */
    _Atomic uint64_t allowance;     /* nanoseconds that others wait for it before it is overdue */
    _Atomic uint64_t overdue;       /* the number of the attempt that somebody has found to be; written by others, too */
    /* Private to this thread: */
    bool asked;                     /* for the token, and has it not taken yet */
    uint64_t lost;                  /* cycles that it has waited for others, or been rolled back because of them */
    uint64_t inject_state;          /* of its random numbers, for the test hooks below */
} Contention;

/* What stands in the way of a lock: an attempt of another thread, and how. */
typedef struct {
    Cell cell;
    uint32_t mode;      /* in which the lock is wanted */
    int how;            /* FOR_... */
    int slot;
    uint64_t attempt;
    uint32_t against;   /* FOR_READER: the modes of a mark that conflict; 0: any. FOR_BIASED: the trace */
    const char *location;  /* where the other thread is or was then, for the log; NULL: not known */
} Conflict;
bool in_the_way(Tx *tx, const Conflict *c);     /* in orec.c */

extern _Atomic int stm_exclusive_slot;  /* slot of the exclusive one, or 0 */
extern _Atomic int stm_reservations;    /* how many cells are reserved */
extern unsigned long stm_main_thread;

/* Injected aborts and delays: test hooks. Chances in 2^32, of an abort at each barrier of
 * a first attempt, of a delay of at most so many microseconds at each barrier and at each
 * step of a commit or rollback. */
extern _Atomic uint32_t stm_inject_rate;
extern _Atomic uint32_t stm_delay_rate, stm_delay_limit;
int stm_attention(Tx *tx);
void stm_delay(Tx *tx);

/* Wait for what stands in the way, or doom it. Returns 0 when it may be gone, -1 when this transaction has to abort. */
int contend(Tx *tx, const Conflict *c, int event);
void reservation_end(Tx *tx);
bool find_reservation(Tx *tx, Conflict *c);
int abort_self(Tx *tx, int cause);
void contention_end_doom(Tx *tx);

void allow(Tx *tx);
void limit_allowance(double seconds);
bool is_overdue(Tx *tx);
void stand_back(Tx *tx);

int become_inevitable(Tx *tx, int grade);
int become_exclusive(Tx *tx, const char *why);
void begin_inevitable(Tx *tx, int grade);
void inevitable_end(Tx *tx);
void pass_gate(Tx *tx);

void take_ticket(Tx *tx);
void wait_for_end(Tx *tx, Tx *o, uint64_t attempt);
void end_others(Tx *tx, Queue *q);
int wait_for_predecessor(Tx *tx);

int ask_main(PyObject *request);
int serve(void);
bool is_asked(Tx *tx);

void contention_abandon(Tx *tx);
void contention_in_child(void);

#endif
