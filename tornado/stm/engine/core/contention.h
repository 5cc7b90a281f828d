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
    _Atomic uint64_t began;         /* when its transaction did, in cycles of the processor; others read it to tell of it only */
    _Atomic(const void *) group;    /* the loop or queue whose transactions it runs, or NULL */
    _Atomic bool lends;             /* it is exclusive, but waits, and lets others run meanwhile that are not of its group */
    /* Private to this thread: */
    uint64_t excludes_since;        /* ns; 0: it does not, or is sequential */
    bool asked;                     /* for the token, and has it not taken yet */
    bool forks;                     /* it is exclusive for that, outside of any transaction */
    uint64_t lost;                  /* cycles that it has waited for others, or been rolled back because of them */
    uint64_t kept_out;              /* cycles that its transaction has waited, so far, until it might begin an attempt */
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
    const Place *location; /* where the other thread is or was then, for the log; NULL: not known */
} Conflict;
bool in_the_way(Tx *tx, const Conflict *c);     /* in orec.c */

extern _Atomic int stm_exclusive_slot;  /* slot of the exclusive one, or 0 */
bool nobody_is_inevitable(void);        /* nor about to be: the token is free */
extern _Atomic int stm_reservations;    /* how many cells are reserved */
extern unsigned long stm_main_thread;

/* Injected aborts and delays: test hooks. Chances in 2^32, of an abort at each barrier of
 * a first attempt, of a delay of at most so many microseconds at each barrier and at each
 * step of a commit or rollback. */
extern _Atomic uint32_t stm_inject_rate;
extern _Atomic uint32_t stm_delay_rate, stm_delay_limit;

/* The slow sides of check_doomed() and interruptible() (tx.h). */
int stm_attention(Tx *tx);
void contention_hasten(Tx *o, uint64_t attempt);
void stm_delay(Tx *tx);

/* ---- In an attempt: these return 0, or -1 with stm_Abort set when it has to abort ---------- */

/* Wait for what stands in the way, or doom it.  Requires: the lock that is wanted has been withdrawn if the other one is
 * older.  `event` is the LOG_... of the conflict. */
int contend(Tx *tx, const Conflict *c, int event);
/* From here on it is not aborted: GRADE_IRREVOCABLE goes on beside the others, GRADE_EXCLUSIVE alone.  Where it has to abort
 * first the next attempt begins in that grade. */
int become_inevitable(Tx *tx, int grade);
/* It runs alone, for that reason, which the counts of reasons are told. */
int become_exclusive(Tx *tx, const char *why);
/* Abort; the next attempt is exclusive, for that reason.  Where the lock of C code is held nobody can be waited for. */
int begin_again_exclusive(Tx *tx, const char *why);
/* Nobody dooms it for what it has read or written any more, but for an exclusive one; then its predecessor commits. */
int wait_for_predecessor(Tx *tx);
/* Is the transaction not to begin in a grade of inevitability now, but to be put off until its predecessor has committed? */
bool is_to_be_put_off(Tx *tx);
/* Have it abort, to be put off and run on its anchor: with stm_Abort set; or false, where that cannot be. */
bool move_to_anchor(Tx *tx);
/* Have this attempt abort: always -1. */
int abort_self(Tx *tx, int cause);
int contention_may_end(Tx *tx);     /* a test hook: 0, or -1 if the attempt is to be rolled back where it would commit */

/* Has an older one, whose patience is at its end, reserved c->cell? Then *c tells of it. */
bool find_reservation(Tx *tx, Conflict *c);
/* It has the lock that it had reserved, or gives up. */
void reservation_end(Tx *tx);

/* ---- At its beginning and end ------------------------------------------------------------- */

void allow(Tx *tx);                 /* a transaction begins: others wait so long for its first attempt before it is overdue */
uint64_t first_allowance(void);     /* that long, in ns */
void limit_allowance(double seconds);   /* a test hook: and for no attempt longer */
void pass_gate(Tx *tx);             /* become active, while nobody is exclusive */
bool give_up_turn(Tx *tx);                  /* between two attempts: the next one does not begin yet; had it asked for its turn? */
void ask_again(Tx *tx);                     /* for the turn that it has given up */
void begin_inevitable(Tx *tx, int grade);   /* the same in that grade: it holds nothing while it waits, and nobody waits for it */
void take_ticket(Tx *tx);           /* its place among those that commit; requires: it cannot be doomed any more */
void wait_for_end(Tx *tx, Tx *o, uint64_t attempt);     /* of one that commits, with an earlier ticket */
/* Roll back all others of the queue but those that commit already, and wait for them.  Requires: this one is inevitable, and
 * who begins from here on sees that the queue has ended. */
void end_others(Tx *tx, Queue *q);
void contention_end_doom(Tx *tx);   /* from here on nobody looks for this thread to tell it that it is doomed */
/* It is exclusive and waits for something: from here on transactions of other groups may run; and no more.  Requires: it holds nothing then,
 * as between two transactions. */
void lending_begins(Tx *tx);
void lending_ends(Tx *tx);
void inevitable_end(Tx *tx);        /* the attempt is over: the token goes to the next */

/* ---- Between two attempts ------------------------------------------------------------------- */

bool is_overdue(Tx *tx);            /* is that why the last one was doomed? */
void stand_back(Tx *tx);            /* then let others go on for a while */
/* Have the main thread call this: 0, or -1 with RuntimeError.  By an exclusive transaction, so there is one request at most. */
int ask_main(PyObject *request);
bool is_asked(void);                /* is this thread asked for anything? */
int serve(void);                    /* do it: -1 with the exception of a request to the main thread */

/* A thread is about to fork, and, in the parent, has: outside of transactions it lets none run meanwhile. */
void fork_begins(void);
void fork_ends(void);

/* In the child of a fork: of a thread that is no more; this thread is the only one. */
void contention_abandon(Tx *tx);
void contention_in_child(void);

#endif
