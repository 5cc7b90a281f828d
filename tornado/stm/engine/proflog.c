/* The conflict log, in the C7 format of PyPy-STM's stmgc ("STMGC-C7-PROF01").
 *
 * A record is u32 sec, u32 nsec, u32 thread, u32 other thread, u8 event, u8 len0,
 * u8 len1, packed and little-endian, then the two markers.  Time stamps rise:
 * the clock is read under the lock that orders the records.
 */
#include "stm.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Atomic int stm_log_on;
static FILE *file;
static char path_of_log[4000];
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

/* Append one record. The places may be NULL. */
void
log_event(Tx *tx, int other, int event, const char *place0, const char *place1)
{
    unsigned char record[19];
    size_t len0 = place0 ? strnlen(place0, 255) : 0, len1 = place1 ? strnlen(place1, 255) : 0;
    struct timespec now;
    pthread_mutex_lock(&lock);
    if (file != NULL) {
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
            fwrite(place0, 1, len0, file);
        if (len1 > 0)
            fwrite(place1, 1, len1, file);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- Places ------------------------------------------------------------------------- */

/* Interned for ever, in chains; there are only as many as the program has lines. */
typedef struct Place { struct Place *next; char text[]; } Place;
#define CHAINS 4096
static Place *chains[CHAINS];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *
intern(const char *text)
{
    uint32_t h = 2166136261u;
    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    Place **chain = &chains[h % CHAINS];
    pthread_mutex_lock(&places_lock);
    Place *at = *chain;
    while (at != NULL && strcmp(at->text, text) != 0)
        at = at->next;
    if (at == NULL) {
        at = PyMem_RawMalloc(sizeof(Place) + strlen(text) + 1);
        if (at != NULL) {
            strcpy(at->text, text);
            at->next = *chain;
            *chain = at;
        }
    }
    pthread_mutex_unlock(&places_lock);
    return at ? at->text : "";
}

/* Where this thread is in Python code that is not the project's own. */
const char *
log_place(Tx *tx)
{
    _PyInterpreterFrame *f = tx->tstate->current_frame;
    while (f != NULL) {
        if (f->owner < FRAME_OWNED_BY_INTERPRETER) {
            PyCodeObject *code = _PyFrame_GetCode(f);
            if (!(code->co_flags & CO_STM_TRUSTED)) {
                const char *name = PyUnicode_AsUTF8(code->co_filename);
                const char *function = PyUnicode_AsUTF8(code->co_qualname);
                if (name == NULL || function == NULL) {
                    PyErr_Clear();
                    return "";
                }
                char tail[120], text[256];
                int n = snprintf(tail, sizeof tail, "\", line %d, in %s",
                                 PyUnstable_InterpreterFrame_GetLine(f), function);
                if (n >= (int)sizeof tail)
                    n = sizeof tail - 1;
                /* The end of a long path says more than its beginning. */
                size_t room = 255 - 6 - n, len = strlen(name);
                snprintf(text, sizeof text, "File \"%s%s", len > room ? name + len - room : name, tail);
                return intern(text);
            }
        }
        f = f->previous;
    }
    return "";
}
