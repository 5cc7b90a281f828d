"""Has the module ``random`` been seeded outside of transactions?

As long as nobody has seeded it, nobody can tell in which order its numbers are drawn, and whoever draws some takes no lock.  Of
``random.seed`` and ``setstate`` in a transaction the engine is told by the call.  Elsewhere no barrier tells of them: but then the
generator is in a state to which drawing numbers does not lead.  Once it has been seeded, that is so for ever.
"""

import random

from .. import forks

#: as many numbers lie in the state of the generator; when they are used up, it becomes the next state
BLOCK = 624

#: so many states are looked through; who has drawn more numbers than that is taken to have seeded it
BLOCKS = 1000

_last_state = None
_seeded = False


def note():
    """Whatever has been done to the generator until now is known."""
    global _last_state
    if not _seeded:
        _last_state = random._inst.getstate()


def seeded():
    """Has it been seeded since the first `note`, or put back into a state of before?"""
    global _seeded
    now = random._inst.getstate()
    if not _seeded and now != _last_state:
        _seeded = not _leads_to(now)
    return _seeded


def _leads_to(state):
    """Does drawing numbers lead from the state that was noted to this one?"""
    ahead = random.Random()
    ahead.setstate(_last_state)
    *numbers, used = state[1]
    for passed in range(BLOCKS):
        *block, used_then = ahead.getstate()[1]
        if block == numbers:
            return passed > 0 or used >= used_then
        ahead.getrandbits(32 * BLOCK)
    return False


note()
forks.begin_by(note)  # after `random` has seeded it there, by chance
