/* What the kernel knows of a descriptor: which file it is of, and what it has room for. */
#ifndef TORNADO_STM_ROOM_H
#define TORNADO_STM_ROOM_H

#include "../core/base.h"

#include <sys/types.h>

/* What tells the file, or socket, that has this number now from others that have had it, or will; 0: none has. */
ino_t file_of(int fd);

#define PEER_IS_GONE (-1)       /* or there has never been one: whoever sends now is told */

/* How many of the `wanted` bytes the kernel is sure to take from this socket, behind so many bytes in so many pieces that have been
 * promised; 0: none now. */
Py_ssize_t room_in_kernel(int fd, Py_ssize_t wanted, Py_ssize_t promised, Py_ssize_t pieces);

/* The same for what OpenSSL writes, who takes less no more when it has begun: so it is a limit for what waits, only. */
Py_ssize_t room_for_tls(int fd, Py_ssize_t wanted, Py_ssize_t promised);

#endif
