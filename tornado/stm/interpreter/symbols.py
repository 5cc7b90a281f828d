"""Symbols of executables and object files, on x86-64 Linux (ELF, little-endian, 64 bits)."""

import re
import struct
import subprocess

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, size of an entry
_SYMBOL = struct.Struct("<IBBHQQ")  # name, binding and type, visibility, section, value, size
_SYMBOL_TABLE, _GLOBAL, _DEFAULT = 2, 1, 0


def exported(executable):
    """The names that other modules of a process may refer to."""
    return _listed(executable, "--defined-only")


def undefined(module):
    """The names that other modules of a process must define."""
    return _listed(module, "--undefined-only")


def _listed(path, which):
    done = subprocess.run(["nm", "--dynamic", which, "--format=posix", path], capture_output=True, text=True, check=True)
    return {line.split()[0].partition("@")[0] for line in done.stdout.splitlines()}


def needs(module):
    """The libraries that a module is linked with, and the versions of glibc that what it refers to has been there since, as pairs."""
    done = subprocess.run(["objdump", "--private-headers", module], capture_output=True, text=True, check=True)
    libraries = set(re.findall(r"^ +NEEDED +(\S+)$", done.stdout, re.MULTILINE))
    return libraries, {(int(major), int(minor)) for major, minor in re.findall(r" GLIBC_(\d+)\.(\d+)", done.stdout)}


def undefine(path, keep=None):
    """In this object file make definitions references to what others define by these names; how many there were.

    Those are the ones that other modules may see, by their visibility: CPython's executable exports them.  If `keep` is
    given, they are all that other files may see, but that one.  What the file itself refers to by such a name then comes from
    elsewhere, too.
    """
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (start,) = struct.unpack_from("<Q", data, 0x28)
    (count,) = struct.unpack_from("<H", data, 0x3C)
    if count == 0:  # too many for that field: the first section has the number
        count = _SECTION.unpack_from(data, start)[5]
    sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    done = 0
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, info, visibility, section, _, _ = _SYMBOL.unpack_from(data, at)
            if info >> 4 != _GLOBAL or section == 0:
                continue
            if keep is None:
                seen = visibility & 3 == _DEFAULT
            else:
                seen = data[names + name : data.index(0, names + name)] != keep.encode()
            if seen:
                _SYMBOL.pack_into(data, at, name, _GLOBAL << 4, visibility, 0, 0, 0)
                done += 1
    with open(path, "wb") as file:
        file.write(data)
    return done
