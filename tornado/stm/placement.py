"""Where in memory the engine lies: near the interpreter, as far as branches are concerned.

A processor predicts where a branch leads within the branch's own 4 GiB (addresses that have their upper 32 bits in common) more cheaply
than anywhere else; V8 copies its builtins next to what it compiles for that reason ("Short builtin calls", 2021).  The engine's
evaluation loop calls the interpreter in nearly all instructions.  But an executable is loaded at 0x55..., and libraries at 0x7f...: on
such an interpreter a loop that adds numbers takes a tenth longer.  One that is a library itself, as in Docker's images, lies near already.
"""

import contextlib
import mmap

NEAR = 1 << 32  # bytes
SMALLEST = 1 << 20  # bytes: no engine fits into less
FORBIDDEN = 0  # no page of it can be touched, so it costs nothing


@contextlib.contextmanager
def near_the_interpreter():
    """What is loaded meanwhile lies in the interpreter's 4 GiB, if the system permits.

    The system maps a library at the highest address that is free.  So all that is free above those 4 GiB is reserved for so long.  Where
    that cannot be (a limit on the address space; a system without /proc) libraries lie where they always do.
    """
    with contextlib.ExitStack() as reserved:
        with contextlib.suppress(OSError):
            regions = list(mapped())
            if not has_sanitizer(regions):
                for size in sorted(free_above(regions, end_of_what_is_near(id(object))), reverse=True):
                    reserved.enter_context(contextlib.closing(reserve(size)))
        yield


def has_sanitizer(regions):
    """Such a library maps memory wherever it likes, over what is reserved, too."""
    return any("san.so" in name for _, _, name in regions)


def end_of_what_is_near(address):
    return (address // NEAR + 1) * NEAR


def mapped():
    """What is mapped: (start, end, name), in order."""
    with open("/proc/self/maps") as file:
        for line in file:
            addresses, _, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            yield start, end, name[0].rstrip("\n") if name else ""


def free_above(regions, limit):
    """The sizes of the gaps between them, of what is above the limit; the one below the stack is for the stack."""
    end = 0
    for start, next_end, name in regions:
        if name == "[stack]":
            return
        size = start - max(end, limit)
        if size >= SMALLEST:
            yield size
        end = next_end


def reserve(size):
    """Raises OSError."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE, prot=FORBIDDEN)
