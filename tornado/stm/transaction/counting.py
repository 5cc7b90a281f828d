"""Numbers that differ, without conflicts."""

from __future__ import annotations

import itertools

from ..core import trusted

_numbers = itertools.count(1)


@trusted
def count() -> int:
    """A positive integer that no other call returns.

    They rise, about: a transaction may get a smaller one than another that commits before it.
    """
    return next(_numbers)
