"""Does in debug mode what that has something to say of."""

import asyncio
import logging
import sys
import time


def slow():
    time.sleep(0.11)  # the limit is 0.1


async def slow_task():
    slow()


def fails():
    1 / 0


async def forgotten():
    pass


async def main():
    loop = asyncio.get_running_loop()
    loop.call_soon(slow)
    loop.call_soon_threadsafe(slow)
    loop.call_later(0.001, slow)
    await asyncio.create_task(slow_task(), name="slowpoke")
    await asyncio.sleep(0.2)
    loop.call_soon(fails)
    loop.call_later(0.001, fails)
    await asyncio.sleep(0.01)
    forgotten()
    await asyncio.sleep(0)
    try:
        loop.call_soon(forgotten)
    except TypeError as error:
        print(error)
    try:
        await asyncio.to_thread(loop.call_soon, print)
    except RuntimeError as error:
        print(error)
    await asyncio.sleep(0)


logging.basicConfig(format="LOG %(levelname)s %(name)s %(message)s", stream=sys.stdout)
asyncio.run(main(), debug=True)
