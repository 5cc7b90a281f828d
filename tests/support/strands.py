"""Tasks that are in no order with each other, though one callback begins them."""

import asyncio
import itertools

moments = itertools.count(1)


async def begin_apart():
    """What this task does comes after what no other one does, as if it had been begun by an event of its own."""
    await asyncio.sleep(next(moments) / 1e6)
