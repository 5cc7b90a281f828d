"""Run programs, and print a line for each: its seed, and what has come out.  One that hangs is the last.

    python run.py FIRST COUNT                                                     on upstream's loop
    python -m tornado.stm -q -j N run.py FIRST COUNT ABORTS REPEAT                on this one, with so many aborts, each so often
    python generator.py SEED                                                      prints a program
"""

import asyncio
import faulthandler
import sys
import traceback

import generator

PATIENCE = 60  # seconds until a program is taken to hang


async def run(main, reported):
    """What it returns; what the loop's handler of exceptions is told is added to `reported`."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.add(str(context.get("exception") or context["message"])))
    try:
        async with asyncio.timeout(PATIENCE):
            return await main()
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack(limit=3)
        raise


def result(main):
    """What it returns, or the traceback that it ends with; what the loop's handler of exceptions was told; and whether it hung."""
    reported, hung = set(), False
    try:
        returned = asyncio.run(run(main, reported))
    except Exception as e:
        returned, hung = "".join(traceback.format_exception(e)), isinstance(e, TimeoutError)
    return returned, sorted(reported), hung


def main(first, count, aborts="0", repeat="1"):
    core = None
    if "tornado.stm" in sys.modules:
        from tornado.stm import core
    for seed in range(int(first), int(first) + int(count)):
        space = {"__name__": f"program {seed}"}
        exec(compile(generator.program(seed), f"<program {seed}>", "exec"), space)
        for again in range(int(repeat)):
            faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
            if core:
                core.inject_aborts(float(aborts), seed * 1000 + again)
                core.inject_delays(0.01 if float(aborts) else 0, 0.0003)
            *found, hung = result(space["main"])
            if core:
                core.inject_aborts(0, 0)
                core.inject_delays(0, 0)
            print(seed, found, flush=True)
            if hung:
                sys.exit("it hangs")
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])
