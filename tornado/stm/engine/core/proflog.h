/* The conflict log: what threads tell of their transactions. */
#ifndef TORNADO_STM_PROFLOG_H
#define TORNADO_STM_PROFLOG_H

#include "logfile.h"

enum {
#define EVENT(name, text) LOG_##name,
#include "proflog.def"
#undef EVENT
};

/* What transactions have lost at a place, as long as there was a log.  Times are nanoseconds. */
typedef struct { _Atomic uint64_t conflicts, waited, lost, inevitable; } Losses;

/* Where in the program something happens.  Interned: it lives for ever, as its texts do. */
struct Place {
    const char *line;               /* of the program or of a library that it uses: the innermost that runs; "": not known */
    const char *caller;             /* of the program itself, where that is another one; or "" */
    const char *handler;            /* the function of the program that has led there; or "" */
    Losses *losses;
};

/* What the log has been told by a thread. */
typedef struct {
    uint32_t log;                   /* the number of the log that the rest is about */
    bool begun;                     /* the START of a transaction, and not yet its end */
    bool waiting;                   /* a WAIT_..., and not yet its WAIT_DONE */
    int conflict;                   /* CONTENTION_... of the present conflict, or 0 */
    int other;                      /* thread with which it has that */
    uint64_t since;                 /* nanoseconds: its START */
    uint64_t waits_since, inevitable_since;
    const Place *here, *there;
    const char *object;             /* what it is about, interned; NULL: not known */
} Story;

/* What the log knows of a thread.  Places are written by this thread, read by others. */
typedef struct {
    Location at;                    /* where in the program it was last */
    Location inevitable_at;         /* where it became inevitable, or wants to */
    bool preparing;                 /* what it waits for now is no conflict of the program's */
    Story story;
} Logged;

extern const Place stm_nowhere;     /* of what the engine itself waits for, on behalf of no line of the program */
extern const Place stm_unknown_place;
const Place *log_location(Tx *tx);
/* They do nothing while there is no log. */
void log_begin(Tx *tx);
void log_end(Tx *tx, int event);
void log_grade(Tx *tx);
void log_conflict(Tx *tx, int event, Tx *other, const Place *there, const uint64_t *cell);
void log_aborting(Tx *tx, Tx *other);
void log_wait(Tx *tx);
void log_go(Tx *tx);

#endif
