/* The conflict log. */
#ifndef TORNADO_STM_PROFLOG_H
#define TORNADO_STM_PROFLOG_H

#include "base.h"

enum {
#define EVENT(name, text) LOG_##name,
#include "proflog.def"
#undef EVENT
};

/* What the conflict log has been told by a thread. */
typedef struct {
    uint32_t log;               /* the number of the log that the rest is about */
    bool begun;                 /* the START of a transaction, and not yet its end */
    bool waiting;               /* a WAIT_..., and not yet its WAIT_DONE */
    int conflict;               /* CONTENTION_... of the present conflict, or 0 */
    int other;                  /* thread with which it has that */
    const char *here, *there;
} Told;

/* What the conflict log knows of a thread. Places are interned text, written by this thread, read by others. */
typedef struct {
    Location at;                       /* where in the program it was last */
    Location inevitable_at;            /* where it became inevitable, or wants to */
    bool preparing;                 /* what it waits for now is no conflict of the program's */
    Told told;
} Logged;

extern _Atomic int stm_log_on;
extern const char stm_nowhere[];     /* the place of what the engine itself waits for, on behalf of no line of the program */
int log_open(const char *path);
void log_close(void);
const char *log_location(Tx *tx);      /* interned: lives for ever */
/* They do nothing while there is no log. */
void log_begin(Tx *tx);
void log_end(Tx *tx, int event);
void log_conflict(Tx *tx, int event, Tx *other, const char *there);
void log_aborting(Tx *tx, Tx *other);
void log_wait(Tx *tx);
void log_go(Tx *tx);

#endif
