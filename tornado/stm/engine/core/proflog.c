/* The conflict log, in the C7 format of PyPy-STM's stmgc ("STMGC-C7-PROF01").
 *
 * A record is u32 sec, u32 nsec, u32 thread, u32 other thread, u8 event, u8 len0,
 * u8 len1, packed and little-endian, then the two markers.  Time stamps rise:
 * the clock is read under the lock that orders the records.
 *
 * The records of each thread, whenever the log was opened, obey this grammar:
 *
 *      thread       (transaction | pause)*
 *      transaction  START (conflict | pause)* (COMMIT | conflict-lost ABORT | ABORT)
 *      conflict     CONTENTION_... [ABORTING_OTHER] WAIT_CONTENTION WAIT_DONE
 *      conflict-lost    CONTENTION_...
 *      pause        WAIT_SYNC_PAUSE WAIT_DONE
 *
 * A conflict names the place where this thread is, and the one where the other thread did what
 * is in the way.  Who waits because another one is inevitable, to begin itself among others, has a
 * conflict with that one.  A pause is nobody's: the wait for the commit of an earlier transaction,
 * and what the engine itself has to wait for (Tx.preparing).
 *
 * An attempt begins with the wait for those that are exclusive.  The transaction in which a thread drops what an ended
 * one held is in the log only if it has a conflict.
 */
#include "proflog.h"

#include "tx.h"
#include "upcalls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Atomic int stm_log_on;
const char stm_nowhere[] = "";
static FILE *file;
static char path_of_log[4000];
static uint32_t number;     /* of the log: what Tx.told says is about one of them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of the log, under the lock, is taken by a new one. */
static int
open_file(const char *path)
{
    FILE *opened = fopen(path, "wb");
    if (opened == NULL)
        return -1;
    fwrite("STMGC-C7-PROF01\n", 1, 16, opened);
    fflush(opened);
    if (file != NULL)
        fclose(file);
    file = opened;
    number++;
    return 0;
}

static void
before_fork(void)
{
    pthread_mutex_lock(&lock);
    if (file != NULL)
        fflush(file);
}

static void
in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child writes a log of its own. */
static void
in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    if (stm_log_on) {
        char path[4100];
        snprintf(path, sizeof path, "%s.fork%ld", path_of_log, (long)getpid());
        stm_log_on = open_file(path) == 0;
    }
}

int
log_open(const char *path)
{
    static bool fork_handled;
    bool done = false, handle_fork = false;
    pthread_mutex_lock(&lock);
    if (strlen(path) >= sizeof path_of_log)
        errno = ENAMETOOLONG;
    else if (open_file(path) == 0) {
        strcpy(path_of_log, path);
        stm_log_on = done = true;
        handle_fork = !fork_handled;
        fork_handled = true;
    }
    pthread_mutex_unlock(&lock);
    if (handle_fork)
        pthread_atfork(before_fork, in_parent, in_child);
    if (!done)
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    return done ? 0 : -1;
}

void
log_close(void)
{
    pthread_mutex_lock(&lock);
    if (file != NULL)
        fclose(file);
    file = NULL;
    stm_log_on = 0;
    pthread_mutex_unlock(&lock);
}

static void
put32(unsigned char *p, uint32_t v)
{
    p[0] = v & 0xFF;
    p[1] = v >> 8 & 0xFF;
    p[2] = v >> 16 & 0xFF;
    p[3] = v >> 24;
}

static void
append(Tx *tx, int other, int event, const char *here, const char *there)
{
    unsigned char record[19];
    size_t len0 = here ? strnlen(here, 255) : 0, len1 = there ? strnlen(there, 255) : 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    put32(record, (uint32_t)now.tv_sec);
    put32(record + 4, (uint32_t)now.tv_nsec);
    put32(record + 8, (uint32_t)tx->slot);
    put32(record + 12, (uint32_t)other);
    record[16] = (unsigned char)event;
    record[17] = (unsigned char)len0;
    record[18] = (unsigned char)len1;
    fwrite(record, 1, sizeof record, file);
    if (len0 > 0)
        fwrite(here, 1, len0, file);
    if (len1 > 0)
        fwrite(there, 1, len1, file);
}

/* Is there a log? Then under the lock, with tx->logged.told about this one. */
static bool
begin_records(Tx *tx)
{
    if (LIKELY(!stm_log_on))
        return false;
    pthread_mutex_lock(&lock);
    if (file == NULL) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    if (tx->logged.told.log != number)
        tx->logged.told = (Told){.log = number};
    return true;
}

static void
end_records(void)
{
    pthread_mutex_unlock(&lock);
}

static void
append_conflict(Tx *tx)
{
    Told *told = &tx->logged.told;
    if (!told->begun)
        append(tx, 0, LOG_START, NULL, NULL);
    told->begun = true;
    append(tx, told->other, told->conflict, told->here, told->there);
}

static void
append_wait(Tx *tx)
{
    append(tx, 0, tx->logged.told.conflict ? LOG_WAIT_CONTENTION : LOG_WAIT_SYNC_PAUSE, NULL, NULL);
    tx->logged.told.waiting = true;
}

/* Where this thread is, unless what it is about is none of the program's business. */
const char *
log_location(Tx *tx)
{
    return tx->logged.preparing ? stm_nowhere : stm_upcalls->location(tx);
}

void
log_begin(Tx *tx)
{
    if (begin_records(tx)) {
        append(tx, 0, LOG_START, NULL, NULL);
        tx->logged.told.begun = true;
        end_records();
    }
    stm_upcalls->locate_beginning(tx);
}

/* With LOG_COMMIT or LOG_ABORT. */
void
log_end(Tx *tx, int event)
{
    if (!begin_records(tx))
        return;
    if (tx->logged.told.begun)
        append(tx, 0, event, NULL, NULL);
    tx->logged.told.begun = false;
    tx->logged.told.conflict = 0;
    end_records();
}

/* Something that the other thread did there (NULL: nobody knows where) is in the way of this one.
 * What comes next is log_aborting(), log_wait(), or the abort of this attempt. */
void
log_conflict(Tx *tx, int event, Tx *other, const char *there)
{
    if (LIKELY(!stm_log_on))
        return;
    const char *here = log_location(tx);
    if (there == NULL)
        there = atomic_load_explicit(&other->logged.at, memory_order_acquire);
    if (!begin_records(tx))
        return;
    tx->logged.told.conflict = 0;
    if (here != stm_nowhere && there != stm_nowhere) {
        tx->logged.told.conflict = event;
        tx->logged.told.other = other->slot;
        tx->logged.told.here = here;
        tx->logged.told.there = there;
        append_conflict(tx);
    }
    end_records();
}

/* For that conflict, the other one will be rolled back. The grammar has that before the wait: one that
 * has lasted until now ends here, and goes on as another conflict. */
void
log_aborting(Tx *tx, Tx *other)
{
    Told *told = &tx->logged.told;
    if (!begin_records(tx))
        return;
    if (told->conflict) {
        bool waiting = told->waiting;
        if (waiting) {
            append(tx, 0, LOG_WAIT_DONE, NULL, NULL);
            if (told->other != other->slot) {
                told->other = other->slot;
                told->there = atomic_load_explicit(&other->logged.at, memory_order_acquire);
            }
            append_conflict(tx);
        }
        append(tx, other->slot, LOG_ABORTING_OTHER, NULL, NULL);
        if (waiting)
            append_wait(tx);
    }
    end_records();
}

/* This thread waits, for that conflict if there is one. */
void
log_wait(Tx *tx)
{
    if (!begin_records(tx))
        return;
    if (!tx->logged.told.waiting)
        append_wait(tx);
    end_records();
}

/* It has waited, be it only for a moment. */
void
log_go(Tx *tx)
{
    if (!begin_records(tx))
        return;
    if (!tx->logged.told.waiting && tx->logged.told.conflict)
        append_wait(tx);
    if (tx->logged.told.waiting)
        append(tx, 0, LOG_WAIT_DONE, NULL, NULL);
    tx->logged.told.waiting = false;
    tx->logged.told.conflict = 0;
    end_records();
}
