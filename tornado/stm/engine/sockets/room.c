/* What the kernel has room for: whoever sends is told how much the kernel has taken, before the commit gives it anything.  What is
 * promised too much waits in the outbox; then the program believes of bytes that they are on their way which are lost with it, or
 * are overtaken by what it writes to the same connection by other means.
 */
#include "room.h"

#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* A socket that is writable takes that in one piece, however small its buffer is (SOCK_MIN_SNDBUF in Linux is 4,608). */
#define SMALL 2048

/* What a piece takes of the buffer besides its bytes, at most: its head, and the rest of a page. */
#define PIECE 4864

/* Large pieces are cut into packets, each with a head: one part in so many. */
#define HEADS 32

/* Where the kernel does not tell: a guess, since most take more. */
#define GUESS (256 * 1024)

ino_t
file_of(int fd)
{
    struct stat is;
    return fstat(fd, &is) == 0 ? is.st_ino : 0;
}

/* What is left of its buffer. */
static Py_ssize_t
free_memory(int fd)
{
    uint32_t memory[SK_MEMINFO_VARS];
    socklen_t size = sizeof memory;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) < 0 || size <= SK_MEMINFO_WMEM_QUEUED * sizeof *memory)
        return GUESS;
    /* TCP counts what is queued; others, what is under way. */
    return (Py_ssize_t)memory[SK_MEMINFO_SNDBUF] - (Py_ssize_t)Py_MAX(memory[SK_MEMINFO_WMEM_ALLOC], memory[SK_MEMINFO_WMEM_QUEUED]);
}

/* TCP may be told to take no more than so many bytes that are not on their way yet: what is left of that. */
static Py_ssize_t
below_low_water(int fd)
{
    unsigned mark;
    socklen_t size = sizeof mark;
    int waiting;
    if (getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, &size) < 0 || mark == 0 || ioctl(fd, SIOCOUTQNSD, &waiting) < 0)
        return PY_SSIZE_T_MAX;
    return (Py_ssize_t)mark - waiting;
}

static bool
is_connected(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &size) == 0;
}

/* 1: it can be written to; 0: not now. */
static int
is_writable(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLOUT};
    if (poll(&now, 1, 0) < 0 || now.revents & (POLLERR | POLLHUP | POLLNVAL))
        return PEER_IS_GONE;
    return (now.revents & POLLOUT) != 0;
}

Py_ssize_t
room_in_kernel(int fd, Py_ssize_t wanted, Py_ssize_t promised, Py_ssize_t pieces)
{
    int writable = is_writable(fd);
    if (writable == PEER_IS_GONE)
        return PEER_IS_GONE;
    Py_ssize_t surely = writable && promised == 0 ? Py_MIN(wanted, SMALL) : 0;
    if (LIKELY(surely == wanted) || (!writable && !is_connected(fd)))
        return surely;
    Py_ssize_t all = free_memory(fd), room = all - all / HEADS - promised - (pieces + 1) * PIECE;
    room = Py_MIN(room, below_low_water(fd) - promised);
    return Py_MAX(surely, Py_MIN(wanted, room));
}

Py_ssize_t
room_for_tls(int fd, Py_ssize_t wanted, Py_ssize_t promised)
{
    return is_writable(fd) == PEER_IS_GONE ? PEER_IS_GONE : Py_MIN(wanted, GUESS - Py_MIN(promised, GUESS));
}
