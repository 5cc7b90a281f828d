"""argon2-cffi: given bytes and numbers, its functions work on memory of their own, by way of cffi.

Nothing of cffi is declared: its objects are memory to which others may refer who ask nobody.
"""

import functools
import sys

from .. import core
from ..core import trusted

#: The releases that this has been read in.  What cffi remembers (types by their names, functions of a library) is the same for everybody, under
#: locks; libargon2 has no state, and its threads end with the call.
READ = ("argon2-cffi", (25, 1), (25, 2)), ("argon2-cffi-bindings", (26, 2), (26, 3)), ("cffi", (2, 1), (2, 2))


def of_values(function):
    """A function of ``argon2.low_level``: where nothing that it is given can change, it needs no barriers; else it runs alone."""
    function = trusted(function)
    values = {bytes, int, sys.modules[function.__module__].Type}

    @functools.wraps(function)
    def method(*arguments, **named):
        if not values.issuperset(map(type, arguments)) or not values.issuperset(map(type, named.values())):
            core.exclusive("a hash of what may change")
        return function(*arguments, **named)

    return method
