"""Crashes, or computes for ever, in a callback on each thread."""

import asyncio
import faulthandler
import sys


def crashes():
    faulthandler._sigsegv()


def loops_for_ever():
    while True:
        pass


async def main():
    for _ in range(2):
        asyncio.get_running_loop().call_soon({"crash": crashes, "loop": loops_for_ever}[sys.argv[1]])
    await asyncio.sleep(1000)


asyncio.run(main())
