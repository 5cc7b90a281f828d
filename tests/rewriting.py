"""A mark for tests of what only rewritten code has: on the engine's own evaluation loop nothing is rewritten."""

import pytest

from tornado.stm import core

if core.COMPILED:
    from tornado.stm.instrument import OWN_LOOP
else:
    OWN_LOOP = False

needs_rewriting = pytest.mark.skipif(OWN_LOOP, reason="nothing is rewritten on a loop of our own")
