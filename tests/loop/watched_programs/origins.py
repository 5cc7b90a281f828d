"""Which coroutines know where they were made: as debug mode is switched, and as the program has asked for it before."""

import asyncio
import sys


async def nothing():
    pass


async def make(when, seen):
    for _ in range(20):
        made = nothing()
        seen.add((when, bool(made.cr_origin)))
        made.close()
        await asyncio.sleep(0)


async def main():
    loop, seen = asyncio.get_running_loop(), set()
    loop.slow_callback_duration = float("inf")  # on a busy machine anything may be slow
    await asyncio.gather(*(make("at first", seen) for _ in range(10)))
    for debug in (True, False, True):
        loop.set_debug(debug)
        await asyncio.sleep(0.01)
        await asyncio.gather(*(make(f"debug: {debug}", seen) for _ in range(10)))
    print(sorted(seen))


for depth in (0, 3):
    for debug in (False, True):
        sys.set_coroutine_origin_tracking_depth(depth)
        asyncio.run(main(), debug=debug)
        print(depth, debug, sys.get_coroutine_origin_tracking_depth())
