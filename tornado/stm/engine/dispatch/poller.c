/* The descriptors of a loop: epoll(7). */
#include "poller.h"

#include "../objects/absent.h"
#include "../sockets/room.h"
#include "dispatcher.h"

#include <math.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SINGLY 64       /* how often single events are asked for before it is tried again to ask for all */
#define EVENTS_AT_ONCE 256
#define READ_EVENTS (~(uint32_t)EPOLLOUT)
#define WRITE_EVENTS (~(uint32_t)EPOLLIN)

/* How long a thread that could run may be idle because of a wrong guess. */
#define MOMENT_NS 1000000L
#define CALMEST 2     /* such a moment doubles so often */

static bool
listens(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int
poller_open(Poller *poller)
{
    poller->until = INFINITY;
    poller->epoll = epoll_create1(EPOLL_CLOEXEC);
    poller->rest = epoll_create1(EPOLL_CLOEXEC);
    poller->rest_at_home = epoll_create1(EPOLL_CLOEXEC);
    poller->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poller->home = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poller->calls = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
    poller->watchdog = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poller->epoll < 0 || poller->rest < 0 || poller->rest_at_home < 0 || poller->wake < 0 || poller->home < 0 || poller->calls < 0
        || poller->watchdog < 0 || !listens(poller->epoll, poller->wake) || !listens(poller->epoll, poller->watchdog)
        || !listens(poller->rest, poller->calls) || !listens(poller->rest, poller->watchdog)
        || !listens(poller->rest_at_home, poller->calls) || !listens(poller->rest_at_home, poller->watchdog)
        || !listens(poller->rest_at_home, poller->home)) {
        PyErr_SetFromErrno(PyExc_OSError);
        poller_close(poller);
        return -1;
    }
    return 0;
}

void
poller_close(Poller *poller)
{
    int *all[] = {&poller->epoll, &poller->rest, &poller->rest_at_home, &poller->wake, &poller->home, &poller->calls, &poller->watchdog};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(all); i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
    for (int fd = 0; fd < poller->n; fd++) {
        Py_XDECREF(poller->descriptors[fd].watch);
        Py_XDECREF(poller->descriptors[fd].outbox);
        Py_XDECREF(poller->descriptors[fd].special);
        Py_XDECREF((PyObject *)poller->descriptors[fd].scheduled);
        strand_hold(&poller->descriptors[fd].strand, NULL);
    }
    PyMem_RawFree(poller->descriptors);
    PyMem_RawFree(poller->waiting.fds);
    poller->waiting = (Descriptors){0};
    poller->descriptors = NULL;
    poller->n = 0;
}

int
poller_traverse(Poller *poller, visitproc visit, void *arg)
{
    for (int fd = 0; fd < poller->n; fd++) {
        Py_VISIT(poller->descriptors[fd].watch);
        Py_VISIT(poller->descriptors[fd].outbox);
        Py_VISIT(poller->descriptors[fd].special);
        Py_VISIT((PyObject *)poller->descriptors[fd].scheduled);
    }
    return 0;
}

/* ---- Waking ------------------------------------------------------------------------------------ */

void
poller_wake_who_polls(Poller *poller)
{
    if (poller->polls && !poller->woken && eventfd_write(poller->wake, 1) == 0)
        poller->woken = true;
}

void
poller_wake(Poller *poller, Py_ssize_t count)
{
    if (count > 0 && poller->polls && !poller->woken) {
        poller_wake_who_polls(poller);
        count--;
    }
    if (count > poller->resting - poller->called)
        count = poller->resting - poller->called;
    if (count > 0 && eventfd_write(poller->calls, (eventfd_t)count) == 0)
        poller->called += (int)count;
}

void
poller_call_home(Poller *poller)
{
    if (poller->at_home == POLLS)
        poller_wake_who_polls(poller);
    else if (poller->at_home == RESTS && !poller->home_called && poller->resting > poller->called && eventfd_write(poller->home, 1) == 0) {
        poller->home_called = true;
        poller->called++;
    }
}

bool
poller_has_free(Poller *poller)
{
    return (poller->polls && !poller->woken) || poller->resting > poller->called;
}

/* It stays set until somebody comes for it: so at most once in a moment it costs a call of the system. */
void
poller_watch(Poller *poller, uint64_t run)
{
    long moment = MOMENT_NS << poller->calm;
    struct itimerspec in_a_moment = {.it_value.tv_nsec = moment};
    if (poller->watched || timerfd_settime(poller->watchdog, 0, &in_a_moment, NULL) < 0)
        return;
    poller->watched = true;
    poller->watched_run = run;
}

void
poller_calm(Poller *poller, bool calm)
{
    if (!calm)
        poller->calm = 0;
    else if (poller->calm < CALMEST)
        poller->calm++;
}

void
poller_begins_to_poll(Poller *poller, bool home)
{
    poller->polls = true;
    if (home)
        poller->at_home = POLLS;
}

void
poller_begins_to_rest(Poller *poller, bool home)
{
    poller->resting++;
    if (home)
        poller->at_home = RESTS;
}

/* This thread waits in the kernel no more.  It takes a call along if it has seen one: in one step, so that there are never fewer
 * of them than threads that have been called and still rest. */
static void
leave(Dispatcher *d, Waiting how, bool home, bool seen_call)
{
    Poller *poller = &d->poller;
    eventfd_t one;
    if (home)
        poller->at_home = IS_UP;
    if (how == REST) {
        poller->resting--;
        if (home && poller->home_called) {
            poller->home_called = false;
            if (eventfd_read(poller->home, &one) == 0)
                poller->called--;
        }
        else if (seen_call && eventfd_read(poller->calls, &one) == 0)
            poller->called--;
        return;
    }
    poller->polls = false;
    poller->until = INFINITY;
    if (poller->woken && eventfd_read(poller->wake, &one) == 0)
        poller->woken = false;
    /* Before its next step it may run handlers of signals, and what else is called between transactions, for any time. */
    if (poller->resting > poller->called)
        poller_watch(poller, d->runs);
}

/* ---- Descriptors ---------------------------------------------------------------------------------- */

bool
descriptors_add(Descriptors *all, int fd)
{
    if (all->n == all->room) {
        int room = all->room ? 2 * all->room : 16;
        int *fds = PyMem_RawRealloc(all->fds, room * sizeof(int));
        if (fds == NULL)
            return false;
        all->fds = fds;
        all->room = room;
    }
    all->fds[all->n++] = fd;
    return true;
}

/* Whether the kernel tells of the descriptor's events. */
static bool
is_pollable(int fd)
{
    struct stat is;
    if (fstat(fd, &is) < 0)
        return false;
    if (LIKELY(S_ISSOCK(is.st_mode) || S_ISFIFO(is.st_mode)))
        return true;
    int epoll = epoll_create1(EPOLL_CLOEXEC), error;
    bool pollable = epoll >= 0 && listens(epoll, fd);
    error = errno;
    if (epoll >= 0)
        close(epoll);
    errno = error;
    return pollable;
}

PyObject *
check_pollable(PyObject *Py_UNUSED(module), PyObject *number)
{
    int fd = PyLong_AsInt(number);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    return is_pollable(fd) ? Py_NewRef(Py_None) : PyErr_SetFromErrno(PyExc_OSError);
}

Descriptor *
poller_descriptor(Poller *poller, int fd)
{
    if (fd >= poller->n) {
        int n = fd < 32 ? 64 : 2 * fd;
        Descriptor *all = PyMem_RawRealloc(poller->descriptors, n * sizeof(Descriptor));
        if (all == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(all + poller->n, 0, (n - poller->n) * sizeof(Descriptor));
        poller->descriptors = all;
        poller->n = n;
    }
    return &poller->descriptors[fd];
}

int
poller_set_special(Poller *poller, int fd, PyObject *action)
{
    Descriptor *descriptor = poller_descriptor(poller, fd);
    if (descriptor == NULL)
        return -1;
    Py_XSETREF(descriptor->special, Py_XNewRef(action));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poller->epoll, action != NULL ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) == 0)
        return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* Of the watch, which may be NULL: its reader, or its writer; a new reference, NULL if there is none. */
static PyObject *
wanted(Poller *poller, int fd, PyObject *name)
{
    PyObject *watch = poller->descriptors[fd].watch;
    PyObject *handle = watch != NULL ? PyObject_GetAttr(watch, name) : NULL;
    if (watch != NULL && handle == NULL)
        PyErr_Clear();
    if (handle == Py_None)
        Py_CLEAR(handle);
    return handle;
}

static bool
is_waited_for(Poller *poller, int fd, PyObject *name)
{
    PyObject *handle = wanted(poller, fd, name);
    Py_XDECREF(handle);
    return handle != NULL;
}

/* Is there something to receive that the kernel does not know of? */
static int
has_input(Dispatcher *d, int fd)
{
    if (LIKELY(PyDict_GET_SIZE(d->inboxes) == 0))
        return 0;
    PyObject *number = PyLong_FromLong(fd), *inbox = NULL;
    int r = number != NULL ? PyDict_GetItemRef(d->inboxes, number, &inbox) : -1;
    Py_XDECREF(number);
    if (r > 0) {
        r = PyObject_IsTrue(inbox);
        Py_DECREF(inbox);
    }
    return r;
}

/* The program is ending: is it one of those from which nothing is read any more? */
static int
is_left_unread(Dispatcher *d, int fd)
{
    if (LIKELY(d->leaves_unread == NULL))
        return 0;
    PyObject *left = PyObject_CallFunction(d->leaves_unread, "i", fd);
    int r = left != NULL ? PyObject_IsTrue(left) : -1;
    Py_XDECREF(left);
    return r;
}

/* The outbox sends what the kernel takes. */
static int
flush(Poller *poller, int fd)
{
    PyObject *outbox = Py_NewRef(poller->descriptors[fd].outbox);
    PyObject *all = PyObject_CallMethodNoArgs(outbox, dispatch_names.flush);
    int r = all != NULL ? PyObject_IsTrue(all) : -1;
    if (r > 0 && poller->descriptors[fd].outbox == outbox)
        Py_CLEAR(poller->descriptors[fd].outbox);
    Py_XDECREF(all);
    Py_DECREF(outbox);
    return r < 0 ? -1 : 0;
}

static bool
accepts(int fd)
{
    int on = 0;
    socklen_t size = sizeof on;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on;
}

bool
poller_has_scheduled(Poller *poller, int fd)
{
    return is_to_run(poller->descriptors[fd].scheduled) && !accepts(fd);
}

/* That of which something is to run before what its next event schedules; or NULL. */
static Strand *
strand_of(Descriptor *descriptor)
{
    if (is_to_run(descriptor->scheduled))
        return descriptor->scheduled->strand;
    return descriptor->strand != NULL && descriptor->strand->n > 0 ? descriptor->strand : NULL;
}

static void
forget_order(Descriptor *descriptor)
{
    if (is_to_run(descriptor->scheduled))       /* so this is not the last reference, or nothing dies with it */
        Py_CLEAR(descriptor->scheduled);
    strand_hold(&descriptor->strand, NULL);
}

/* The kernel has been asked for these events: to go on to report them, or to report one (EPOLLONESHOT).  Where it had been asked for some
 * before, or goes on, who has begun to poll by now may tell later of what has been handled by then. */
static void
set_armed(Poller *poller, int fd, uint32_t events)
{
    Descriptor *descriptor = &poller->descriptors[fd];
    if (descriptor->armed != 0 || (events != 0 && !(events & EPOLLONESHOT)))
        descriptor->armed_at = atomic_load(&poller->begun);
    descriptor->armed = events;
}

/* The kernel reports nothing of it until it is asked again; false: it has been asked about another one of that number, or none. */
static bool
disarm(Poller *poller, int fd)
{
    struct epoll_event nothing = {.events = EPOLLONESHOT, .data.fd = fd};
    set_armed(poller, fd, 0);
    return epoll_ctl(poller->epoll, EPOLL_CTL_MOD, fd, &nothing) == 0;
}

bool
poller_is_the_same(Poller *poller, int fd)
{
    bool same = disarm(poller, fd);
    if (!same)
        forget_order(&poller->descriptors[fd]);
    return same;
}

bool
poller_is_wanted(Poller *poller, int fd)
{
    return poller->descriptors[fd].outbox != NULL || is_waited_for(poller, fd, dispatch_names.reader)
        || is_waited_for(poller, fd, dispatch_names.writer);
}

bool
poller_is_new(Poller *poller, int fd)
{
    Descriptor *descriptor = &poller->descriptors[fd];
    if (descriptor->known || descriptor->busy)
        return false;
    if (strand_of(descriptor) != NULL) {
        if (file_of(fd) == descriptor->file)
            return false;
        forget_order(descriptor);
    }
    return true;
}

/* Ask the kernel about it no more. */
static void
forget(Poller *poller, int fd)
{
    Descriptor *descriptor = &poller->descriptors[fd];
    struct epoll_event unused;
    bool orders = strand_of(descriptor) != NULL;
    ino_t file = orders ? file_of(fd) : 0;
    if (epoll_ctl(poller->epoll, EPOLL_CTL_DEL, fd, &unused) < 0)      /* it has been closed */
        forget_order(descriptor);
    else if (orders)
        descriptor->file = file;
    descriptor->known = false;
    set_armed(poller, fd, 0);
}

void
poller_changed(Poller *poller, int fd)
{
    Descriptor *descriptor = &poller->descriptors[fd];
    set_armed(poller, fd, descriptor->armed != 0 ? EPOLLONESHOT : 0);   /* it may report that still */
    if (descriptor->answers != 0) {     /* to somebody else: the kernel tells them again */
        descriptor->answers = 0;
        descriptor->busy = false;
    }
    if (descriptor->busy && descriptor->known && !poller_is_wanted(poller, fd))
        forget(poller, fd);
}

/* What is queued or being handled already has been reported to who waited for something else. */
static void
report_singly(Poller *poller, int fd)
{
    if (poller->descriptors[fd].armed == 0)
        return;
    disarm(poller, fd);
    poller->singly = SINGLY;
}

/* These events become ready. */
static int
tell(Dispatcher *d, int fd, uint32_t events)
{
    Poller *poller = &d->poller;
    Descriptor *descriptor = &poller->descriptors[fd];
    PyObject *reader = events & READ_EVENTS ? wanted(poller, fd, dispatch_names.reader) : NULL;
    PyObject *writer = events & WRITE_EVENTS && descriptor->outbox == NULL ? wanted(poller, fd, dispatch_names.writer) : NULL;
    int r;
    if (reader != NULL || writer != NULL) {
        descriptor->busy = true;
        PyObject *site = site_of(NULL, reader != NULL ? reader : writer);
        PyObject *args = site != NULL ? PyTuple_Pack(4, d, descriptor->watch, reader != NULL ? reader : Py_None,
                                                     writer != NULL ? writer : Py_None) : NULL;
        Strand *strand = strand_of(descriptor);
        if (UNLIKELY(strand != NULL) && accepts(fd))
            strand = NULL;
        Entry *entry = args != NULL ? ready_make(d->ready, d->handle_event, args, site, NULL) : NULL;
        Py_XDECREF(site);
        Py_XDECREF(args);
        r = entry != NULL ? strand_join(strand, entry, strand == NULL) : -1;
        if (r == 0) {
            strand_hold(&descriptor->strand, entry->strand);
            entry->follows_event = strand != NULL;
            ready_place(d->ready, entry);
        }
        else
            Py_XDECREF(entry);
    }
    else
        r = poller_arm(d, fd);
    Py_XDECREF(reader);
    Py_XDECREF(writer);
    return r;
}

/* The kernel has reported events; no others count until the descriptor is armed again. */
static int
has_events(Dispatcher *d, int fd, uint32_t events)
{
    Poller *poller = &d->poller;
    if (poller->descriptors[fd].outbox != NULL && events & WRITE_EVENTS && flush(poller, fd) < 0)
        return -1;
    uint64_t after = questions_open(d);
    if (LIKELY(after == 0) || !descriptors_add(&poller->waiting, fd))
        return tell(d, fd, events);
    Descriptor *descriptor = &poller->descriptors[fd];
    descriptor->busy = true;
    descriptor->answers = events;
    descriptor->after = after;
    poller_watch(poller, d->runs);
    return 0;
}

int
poller_lets_answers_in(Dispatcher *d)
{
    Descriptors *waiting = &d->poller.waiting;
    if (LIKELY(waiting->n == 0))
        return 0;
    uint64_t oldest = questions_oldest(d);
    int n = waiting->n, r = 0;
    waiting->n = 0;
    for (int i = 0; i < n; i++) {
        int fd = waiting->fds[i];
        Descriptor *descriptor = &d->poller.descriptors[fd];
        uint32_t events = descriptor->answers;
        if (events != 0 && descriptor->after >= oldest)
            waiting->fds[waiting->n++] = fd;
        else if (events != 0) {
            descriptor->answers = 0;
            descriptor->busy = false;
            r |= tell(d, fd, events);
        }
    }
    return r;
}

/* What is to be read is there, and the kernel does not know of it: it becomes ready. */
static int
is_there(Dispatcher *d, int fd)
{
    if (has_events(d, fd, EPOLLIN) < 0)
        return -1;
    dispatcher_added(d);
    return 0;
}

int
poller_arm(Dispatcher *d, int fd)
{
    Poller *poller = &d->poller;
    bool reads = is_waited_for(poller, fd, dispatch_names.reader), writes = is_waited_for(poller, fd, dispatch_names.writer);
    if (reads) {
        int left = is_left_unread(d, fd), more = left == 0 ? has_input(d, fd) : 0;
        if (left < 0 || more < 0)
            return -1;
        if (more)
            return is_there(d, fd);
        reads = !left;
    }
    writes |= poller->descriptors[fd].outbox != NULL;
    bool known = poller->descriptors[fd].known;
    struct epoll_event event = {.events = (reads ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0), .data.fd = fd};
    if (LIKELY(event.events != 0 && event.events == poller->descriptors[fd].armed)) {
        set_armed(poller, fd, event.events);
        return 0;
    }
    if (!reads && !writes) {
        if (known)
            forget(poller, fd);
        return 0;
    }
    bool orders = !known && strand_of(&poller->descriptors[fd]) != NULL;
    if (UNLIKELY(orders) && file_of(fd) != poller->descriptors[fd].file)
        forget_order(&poller->descriptors[fd]);
    poller->descriptors[fd].known = true;
    if (poller->singly > 0) {
        poller->singly--;
        event.events |= EPOLLONESHOT;
    }
    set_armed(poller, fd, event.events);
    if (epoll_ctl(poller->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    /* It has been closed since, and this one is another that has its number. */
    if (known && (errno == ENOENT || errno == EBADF)) {
        forget_order(&poller->descriptors[fd]);
        if (epoll_ctl(poller->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
            return 0;
    }
    if (!known && errno == EEXIST && epoll_ctl(poller->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    poller->descriptors[fd].known = false;
    set_armed(poller, fd, 0);
    if (errno == EBADF || errno == EPERM)       /* closed, and perhaps another one has the number that it tells nothing of */
        return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* A poll has told of it that may have begun before that was handled, if it was: the next one tells. */
static int
is_reported_again(Dispatcher *d, int fd)
{
    uint32_t armed = d->poller.descriptors[fd].armed;
    return armed != 0 && !(armed & EPOLLONESHOT) ? 0 : poller_arm(d, fd);
}

/* These events, by the poll with this number. */
static int
has_polled(Dispatcher *d, int fd, uint32_t events, uint64_t number)
{
    Descriptor *descriptor = &d->poller.descriptors[fd];
    if (number <= descriptor->armed_at)
        return is_reported_again(d, fd);
    if (descriptor->armed & EPOLLONESHOT)
        descriptor->armed = 0;
    return has_events(d, fd, events);
}

int
poller_arm_or_go_on(Dispatcher *d, int fd)
{
    Poller *poller = &d->poller;
    struct pollfd now = {.fd = fd, .events = POLLIN};
    /* Who waits to write does not wait for a moment without anything to read. */
    bool only_reads = d->leaves_unread == NULL && poller->descriptors[fd].outbox == NULL
        && is_waited_for(poller, fd, dispatch_names.reader) && !is_waited_for(poller, fd, dispatch_names.writer);
    bool more = only_reads && poll(&now, 1, 0) == 1 && now.revents & POLLIN;
    return more ? has_events(d, fd, EPOLLIN) : poller_arm(d, fd);
}

/* ---- Signals ------------------------------------------------------------------------------------------- */

int
let_signals_in(const sigset_t *open)
{
    sigset_t pending, held;
    sigpending(&pending);
    for (int signum = 1; signum < NSIG; signum++) {
        if (sigismember(&pending, signum) == 1 && !sigismember(open, signum)) {
            pthread_sigmask(SIG_SETMASK, open, &held);
            pthread_sigmask(SIG_SETMASK, &held, NULL);
            break;
        }
    }
    return PyErr_CheckSignals();
}

/* ---- Polling ----------------------------------------------------------------------------------------- */

static int
milliseconds(double seconds)
{
    return seconds < 0 ? -1 : seconds < 1e6 ? (int)ceil(seconds * 1e3) : 1000000000;
}

int
poller_poll(Dispatcher *d, Waiting how, double seconds, bool home, const sigset_t *open)
{
    Poller *poller = &d->poller;
    struct epoll_event events[EVENTS_AT_ONCE];
    PyObject *special[EVENTS_AT_ONCE], *exception = NULL;
    int n, error, n_special = 0, ms = how == LOOK ? 0 : milliseconds(seconds);
    uint64_t number = how != REST ? atomic_fetch_add(&poller->begun, 1) + 1 : 0;
    int on = how != REST ? poller->epoll : home ? poller->rest_at_home : poller->rest;
    if (ms == 0)
        n = epoll_wait(on, events, EVENTS_AT_ONCE, 0);
    else {
        PyThreadState *ts = absent_begin(true);
        n = open != NULL ? epoll_pwait(on, events, EVENTS_AT_ONCE, ms, open) : epoll_wait(on, events, EVENTS_AT_ONCE, ms);
        absent_end(ts);
    }
    error = errno;
    dispatcher_lock(d);
    bool seen_call = false, seen_watchdog = false;
    for (int i = 0; i < n; i++) {
        uint64_t times;
        seen_call |= events[i].data.fd == poller->calls;
        seen_watchdog |= events[i].data.fd == poller->watchdog;
        /* Who but looks leaves it to those that wait, for whom it is set. */
        if (how != LOOK && events[i].data.fd == poller->watchdog && read(poller->watchdog, &times, sizeof times) >= 0)
            poller->watched = false;
    }
    if (how != LOOK)
        leave(d, how, home, seen_call);
    /* All of them, whatever becomes of one: the kernel may not report them again. */
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;
        Descriptor *descriptor = fd < poller->n ? &poller->descriptors[fd] : NULL;
        if (fd == poller->wake || fd == poller->calls || fd == poller->home || fd == poller->watchdog || descriptor == NULL)
            continue;
        if (descriptor->special != NULL)
            special[n_special++] = Py_NewRef(descriptor->special);
        else if (descriptor->busy && how != LOOK)
            report_singly(poller, fd);
        else if (!descriptor->busy && has_polled(d, fd, events[i].events, number) < 0)
            Py_XSETREF(exception, PyErr_GetRaisedException());
    }
    dispatcher_unlock(d);
    if (n < 0 && error != EINTR) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        exception = PyErr_GetRaisedException();
    }
    for (int i = 0; i < n_special; i++) {
        PyObject *r = PyObject_CallNoArgs(special[i]);
        if (r == NULL)
            Py_XSETREF(exception, PyErr_GetRaisedException());
        Py_XDECREF(r);
        Py_DECREF(special[i]);
    }
    if (exception != NULL) {
        PyErr_SetRaisedException(exception);
        return -1;
    }
    if (open != NULL && PyErr_CheckSignals() < 0)
        return -1;
    return how != LOOK && n == 1 && seen_watchdog;
}
