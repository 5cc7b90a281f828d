"""Has the module ``random`` been seeded outside of transactions?

As long as nobody has seeded it, nobody can tell in which order its numbers are drawn, and whoever draws some takes no lock.  Of
``random.seed`` and ``setstate`` in a transaction the engine is told by the call.  Elsewhere no barrier tells of them: but then the
generator is in a state to which drawing numbers does not lead.
"""

import os
import random

#: as many numbers lie in the state of the generator; when they are used up, it becomes the next state
BLOCK = 624

#: so many states are looked through; who has drawn more numbers than that is taken to have seeded it
BLOCKS = 1000

_last_state = None


def note():
    """Whatever has been done to the generator until now is known."""
    global _last_state
    _last_state = random._inst.getstate()


def seeded():
    """Has it been seeded since `note` was called?"""
    now = _numbers(random._inst)
    ahead = random.Random()
    ahead.setstate(_last_state)
    for _ in range(BLOCKS):
        if _numbers(ahead) == now:
            return False
        ahead.getrandbits(32 * BLOCK)
    return True


def _numbers(generator):
    return generator.getstate()[1][:-1]  # but for how many of them are used up


note()
os.register_at_fork(after_in_child=note)  # after `random` has seeded it there, by chance
