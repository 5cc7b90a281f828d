/* The file of the conflict log, and the thread that writes it. */
#ifndef TORNADO_STM_LOGFILE_H
#define TORNADO_STM_LOGFILE_H

#include "base.h"

/* What is told: a record of the log, before it is one. */
typedef struct {
    uint64_t ns;                    /* when */
    uint32_t log;                   /* the number of the log that it is told to */
    uint32_t other;                 /* thread */
    int event;                      /* LOG_... */
    const char *here, *there;       /* interned; NULL: nothing */
} Told;

extern _Atomic int stm_log_on;
extern _Atomic uint32_t stm_log_number;     /* of the log that is open; another one has another */

/* Each returns -1 with OSError.  `limit`: of the bytes of the file and of the one before it together; 0: none. */
int logfile_open(const char *path, uint64_t limit);
void logfile_close(void);               /* when all that has been told is written */
/* By the thread in that slot; `told.ns` is filled in.  Returns it. */
uint64_t logfile_tell(int slot, Told told);

#endif
