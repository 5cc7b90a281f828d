"""A workload in a process of its own.

python -m stm_bench.workload_server WORKLOAD KIND COUNT [--settings JSON] [--delayed-by PORT] --port PORT --stats FILE

KIND and COUNT: those of a Way.  --settings: of the workload, where they are not its own.  --delayed-by: where stm_bench.delay_server is.
SIGUSR2 has tornado.stm begin its conflict log, the file "log" beside that of --stats.  SIGTERM ends it; it then writes what the engine
has counted.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stm_bench import app_server, workloads

#: kinds of ways that are tornado.stm's
OURS = ("stm", "pinned")


@dataclass(frozen=True)
class How:
    """What of a Way a server must know; and the port of the server that answers late."""

    kind: str
    count: int
    delayed_by: int


async def until_terminated(workload, port, how):
    """What tornado.stm does by itself: SIGTERM cancels."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    if how.kind == "executor":
        loop.set_default_executor(ThreadPoolExecutor(how.count))
    for _ in range(how.count - 1 if how.kind == "loops" else 0):
        threading.Thread(target=lambda: asyncio.run(workload.serve(port, how)), daemon=True).start()
    await workload.serve(port, how)


async def pinned(workload, port, how):
    """Each thread that runs transactions is bound to one of the processors that this process may use."""
    processors = itertools.cycle(sorted(os.sched_getaffinity(0)))
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == os.getpid() or Path("/proc/self/task", thread, "comm").read_text().startswith("tornado-stm-"):
            os.sched_setaffinity(int(thread), {next(processors)})
    await workload.serve(port, how)


def serve(workload, port, how):
    """Until SIGTERM comes."""
    if hasattr(workload, "main"):
        workload.main(port, how)
    elif how.kind == "pinned":
        asyncio.run(pinned(workload, port, how))
    elif how.kind in OURS:
        asyncio.run(workload.serve(port, how))
    else:
        asyncio.run(until_terminated(workload, port, how))


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=workloads.MODULES)
    parser.add_argument("kind")
    parser.add_argument("count", type=int)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--delayed-by", type=int)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stats", required=True)
    options = parser.parse_args(arguments)
    how, stats = How(options.kind, options.count, options.delayed_by), dict
    if how.kind in OURS:
        import tornado.stm
        import tornado.stm.transaction
        from tornado.stm import conflictlog

        tornado.stm.install(how.count)
        stats = tornado.stm.transaction.stats
        log = Path(options.stats).with_name("log")
        signal.signal(signal.SIGUSR2, lambda number, frame: conflictlog.start(log))
    workload = workloads.load(options.workload).with_settings(options.settings)
    app_server.run(lambda: serve(workload, options.port, how), options.stats, stats)


if __name__ == "__main__":
    main()
