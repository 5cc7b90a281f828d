/* The file of the conflict log, in the C7 format of PyPy-STM's stmgc ("STMGC-C7-PROF01").
 *
 * A record is u32 sec, u32 nsec, u32 thread, u32 other thread, u8 event, u8 len0,
 * u8 len1, packed and little-endian, then the two markers.  Time stamps rise.
 *
 * Threads do not write.  Each has a ring, into which it puts what it tells; one more thread, the writer, takes that out, puts it in
 * the order of time, and appends it to the file, every few milliseconds: what a killed process has told until then
 * can be read.
 *
 * A thread says that it *tells* before it reads the clock, and until its entry is in the ring.  So when the writer has read the clock
 * and has then seen each thread not telling, whatever is not in the rings yet will be later than that; and what is
 * earlier is written.
 *
 * A file that has grown to half of the limit becomes FILE.1, in the place of an older one, and a new one begins.
 */
#include "logfile.h"

#include "park.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RING 8192                   /* entries */
#define PERIOD 20                   /* milliseconds in which the writer writes at least once */
#define DROP_AFTER 2000000000       /* nanoseconds: the file is not written that long */
#define MOST_MARKER 255
#define HEADER "STMGC-C7-PROF01\n"
#define HEADER_SIZE 16
#define RECORD 19                   /* bytes, without markers */

typedef struct {
    _Atomic size_t told, written;   /* entries that were put in, by its thread, and taken out, by the writer */
    _Atomic bool telling;
    Told entries[RING];
} Ring;

_Atomic int stm_log_on;
_Atomic uint32_t stm_log_number;
static Ring *_Atomic rings[MAX_THREADS];        /* by slot; never freed */

/* One log is opened or closed at a time, until the writer has begun or ended.  Taken before the other one. */
static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;
/* Who holds the lock has the file and the ends of the rings. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hurry = PTHREAD_COND_INITIALIZER;
static pthread_t writer;
static bool writes;                 /* there is a writer */
static int file = -1;
static uint64_t most, size;         /* of the file: bytes, 0: no limit */
static _Atomic uint64_t dropped;    /* entries that had no room for DROP_AFTER */
static char path_as_asked[4000], path_of_log[4100];       /* the second in the child of a fork: with its number */

/* What is to be written next, all under the lock. */
static struct { Told *told; int *slot; size_t n, room; } batch;
static unsigned char buffer[1 << 16];
static size_t filled;

/* ---- A thread ------------------------------------------------------------------------ */

static Ring *
ring_of(int slot)
{
    Ring *ring = atomic_load_explicit(&rings[slot], memory_order_acquire);
    if (ring == NULL && (ring = PyMem_RawCalloc(1, sizeof(Ring))) != NULL)
        atomic_store_explicit(&rings[slot], ring, memory_order_release);
    return ring;
}

uint64_t
logfile_tell(int slot, Told told)
{
    Ring *ring = ring_of(slot);
    if (ring == NULL)
        return now_ns();
    size_t n = atomic_load_explicit(&ring->told, memory_order_relaxed), written;
    uint64_t since = 0;
    while (n - (written = atomic_load_explicit(&ring->written, memory_order_acquire)) == RING) {
        uint64_t now = now_ns();
        since = since != 0 ? since : now;
        if (!stm_log_on || now - since > DROP_AFTER) {
            atomic_fetch_add(&dropped, stm_log_on ? 1 : 0);
            return now;
        }
        pthread_cond_signal(&hurry);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    atomic_store(&ring->telling, true);
    told.ns = now_ns();
    ring->entries[n % RING] = told;
    atomic_store_explicit(&ring->told, n + 1, memory_order_release);
    atomic_store_explicit(&ring->telling, false, memory_order_release);
    if (n + 1 - written == RING / 2)
        pthread_cond_signal(&hurry);
    return told.ns;
}

/* ---- The writer ---------------------------------------------------------------------- */

static void
give_up(void)
{
    fprintf(stderr, "tornado.stm: the conflict log %s ends here: %s\n", path_of_log, strerror(errno));
    stm_log_on = 0;
    close(file);
    file = -1;
}

static void
flush(void)
{
    for (size_t done = 0; file >= 0 && done < filled;) {
        ssize_t n = write(file, buffer + done, filled - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            give_up();
    }
    size += filled;
    filled = 0;
}

static void
put(const void *bytes, size_t n)
{
    if (filled + n > sizeof buffer)
        flush();
    memcpy(buffer + filled, bytes, n);
    filled += n;
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
put_record(const Told *t, int slot)
{
    unsigned char record[RECORD];
    size_t here = t->here ? strnlen(t->here, MOST_MARKER) : 0, there = t->there ? strnlen(t->there, MOST_MARKER) : 0;
    put32(record, (uint32_t)(t->ns / 1000000000));
    put32(record + 4, (uint32_t)(t->ns % 1000000000));
    put32(record + 8, (uint32_t)slot);
    put32(record + 12, t->other);
    record[16] = (unsigned char)t->event;
    record[17] = (unsigned char)here;
    record[18] = (unsigned char)there;
    put(record, sizeof record);
    if (here > 0)
        put(t->here, here);
    if (there > 0)
        put(t->there, there);
}

/* One that make_file() has made. */
static void
begin_file(int made)
{
    file = made;
    size = HEADER_SIZE;
    filled = 0;
}

/* With nothing but the header; -1 with errno. */
static int
make_file(const char *path)
{
    int made = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ssize_t n = 0;
    while (made >= 0 && (n = write(made, HEADER, HEADER_SIZE)) < 0 && errno == EINTR)
        ;
    if (made < 0 || n == HEADER_SIZE)
        return made;
    int error = n < 0 ? errno : ENOSPC;
    close(made);
    errno = error;
    return -1;
}

/* Where the file before this one is. */
typedef struct { char path[sizeof path_of_log + 2]; } Old;

static Old
old_file(void)
{
    Old old;
    snprintf(old.path, sizeof old.path, "%s.1", path_of_log);
    return old;
}

/* That of an earlier log is none of this one. */
static void
remove_old_file(void)
{
    char begin[HEADER_SIZE];
    Old old = old_file();
    int opened = open(old.path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return;
    if (read(opened, begin, sizeof begin) == HEADER_SIZE && memcmp(begin, HEADER, HEADER_SIZE) == 0)
        unlink(old.path);
    close(opened);
}

static void
rotate(void)
{
    flush();
    if (file < 0)
        return;
    int opened = rename(path_of_log, old_file().path) < 0 ? -1 : make_file(path_of_log);
    if (opened < 0) {
        give_up();
        return;
    }
    close(file);
    begin_file(opened);
}

static void
add_to_batch(const Told *t, int slot)
{
    if (batch.n == batch.room) {
        size_t room = batch.room == 0 ? RING : batch.room * 2;
        Told *told = PyMem_RawRealloc(batch.told, room * sizeof *told);
        if (told != NULL)
            batch.told = told;
        int *slots = told != NULL ? PyMem_RawRealloc(batch.slot, room * sizeof *slots) : NULL;
        if (slots == NULL)
            return;
        batch.slot = slots;
        batch.room = room;
    }
    batch.told[batch.n] = *t;
    batch.slot[batch.n++] = slot;
}

/* Those of one thread follow each other in the batch, and are in order; the runs of all threads are merged. */
static void
put_batch(const size_t *begin, const size_t *end, int runs)
{
    size_t at[MAX_THREADS];
    memcpy(at, begin, runs * sizeof *at);
    for (size_t left = batch.n; left > 0; left--) {
        int first = -1;
        for (int i = 0; i < runs; i++) {
            if (at[i] < end[i] && (first < 0 || batch.told[at[i]].ns < batch.told[at[first]].ns))
                first = i;
        }
        put_record(&batch.told[at[first]], batch.slot[at[first]]);
        if (most != 0 && size + filled >= most / 2)
            rotate();
        at[first]++;
    }
}

/* Write what has been told until now.  Under the lock. */
static void
write_all(void)
{
    uint64_t until = now_ns();
    size_t begin[MAX_THREADS], end[MAX_THREADS];
    int runs = 0;
    batch.n = 0;
    for (int slot = 0; slot < MAX_THREADS; slot++) {
        Ring *ring = atomic_load_explicit(&rings[slot], memory_order_acquire);
        if (ring == NULL)
            continue;
        while (atomic_load(&ring->telling))
            sched_yield();
        size_t told = atomic_load_explicit(&ring->told, memory_order_acquire);
        size_t n = atomic_load_explicit(&ring->written, memory_order_relaxed);
        begin[runs] = batch.n;
        for (; n < told && ring->entries[n % RING].ns < until; n++) {
            if (ring->entries[n % RING].log == stm_log_number)
                add_to_batch(&ring->entries[n % RING], slot);
        }
        atomic_store_explicit(&ring->written, n, memory_order_release);
        end[runs] = batch.n;
        runs += end[runs] > begin[runs];
    }
    if (file < 0)
        return;
    put_batch(begin, end, runs);
    flush();
}

static void *
work(void *unused)
{
    pthread_mutex_lock(&lock);
    while (writes) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PERIOD * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&hurry, &lock, &until);
        write_all();
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Signals are for other threads.  Under the lock. */
static int
begin_writer(void)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    writes = true;
    int error = pthread_create(&writer, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    writes = error == 0;
    errno = error;
    return writes ? 0 : -1;
}

/* ---- Forks ----------------------------------------------------------------------------- */

static void
before_fork(void)
{
    pthread_mutex_lock(&lock);
    write_all();
}

static void
in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child writes a log of its own, of which nothing has been told yet. */
static void
in_child(void)
{
    pthread_mutex_init(&switching, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&hurry, NULL);
    writes = false;
    for (int slot = 0; slot < MAX_THREADS; slot++) {
        Ring *ring = atomic_load(&rings[slot]);
        if (ring != NULL) {
            atomic_store(&ring->telling, false);
            atomic_store(&ring->written, atomic_load(&ring->told));
        }
    }
    if (!stm_log_on)
        return;
    close(file);
    snprintf(path_of_log, sizeof path_of_log, "%s.fork%ld", path_as_asked, (long)getpid());
    int opened = make_file(path_of_log);
    file = -1;
    stm_log_on = opened >= 0;
    if (opened < 0)
        return;
    remove_old_file();
    stm_log_number++;
    begin_file(opened);
    if (begin_writer() < 0)
        give_up();
}

/* ---- Opened and closed ------------------------------------------------------------------ */

int
logfile_open(const char *path, uint64_t limit)
{
    static bool fork_handled;
    bool done = false, handle_fork = false;
    pthread_mutex_lock(&switching);
    pthread_mutex_lock(&lock);
    write_all();
    int opened = -1;
    if (strlen(path) >= sizeof path_as_asked)
        errno = ENAMETOOLONG;
    else
        opened = make_file(path);
    if (opened >= 0 && !writes && begin_writer() < 0) {
        close(opened);
        opened = -1;
    }
    if (opened >= 0) {
        struct stat about;
        if (file >= 0)
            close(file);
        strcpy(path_as_asked, path);
        strcpy(path_of_log, path);
        remove_old_file();
        most = fstat(opened, &about) == 0 && S_ISREG(about.st_mode) ? limit : 0;    /* a pipe has no older half */
        dropped = 0;
        stm_log_number++;
        begin_file(opened);
        stm_log_on = done = true;
        handle_fork = !fork_handled;
        fork_handled = true;
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&switching);
    errno = error;
    if (handle_fork)
        pthread_atfork(before_fork, in_parent, in_child);
    if (!done)
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    return done ? 0 : -1;
}

void
logfile_close(void)
{
    pthread_mutex_lock(&switching);
    pthread_mutex_lock(&lock);
    stm_log_on = 0;
    write_all();
    if (file >= 0)
        close(file);
    if (file >= 0 && dropped > 0)
        fprintf(stderr, "tornado.stm: %llu records are missing in the conflict log %s: it could not be written for seconds\n",
                (unsigned long long)dropped, path_of_log);
    file = -1;
    bool wrote = writes;
    writes = false;
    pthread_cond_signal(&hurry);
    pthread_mutex_unlock(&lock);
    if (wrote)
        pthread_join(writer, NULL);
    pthread_mutex_unlock(&switching);
}
