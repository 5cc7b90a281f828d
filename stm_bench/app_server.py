"""An application of the apps benchmark in a process of its own.

python -m stm_bench.app_server APP [--threads N] [--given TEXT] --port PORT --stats FILE

APP is a module of stm_bench.apps, which is given the text.  On tornado.stm with so many threads, or on upstream's loop.  SIGTERM ends it; it then
writes what the engine has counted, since SIGUSR1 if that has come.
"""

import argparse
import asyncio
import importlib
import json
import signal


async def until_terminated(serving):
    """What tornado.stm does by itself: SIGTERM cancels."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    await serving


def since(before, now):
    """What has been added to these counts, which may be dicts of counts themselves."""
    return {
        name: since(before.get(name, {}), count) if isinstance(count, dict) else count - before.get(name, 0)
        for name, count in now.items()
    }


def run(serve, stats_file, stats=dict):
    """Call serve(), which SIGTERM ends; then write to the file what stats() has counted, since SIGUSR1 if that has come."""
    before = {}
    signal.signal(signal.SIGUSR1, lambda signum, frame: before.update(stats()))
    try:
        serve()
    except asyncio.CancelledError:
        pass
    except SystemExit as end:
        if end.code:
            raise
    with open(stats_file, "w") as file:
        json.dump(since(before, stats()), file)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("app")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--given")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stats", required=True)
    options = parser.parse_args(arguments)
    stats = dict
    if options.threads:
        import tornado.stm
        import tornado.stm.transaction

        tornado.stm.install(options.threads)
        stats = tornado.stm.transaction.stats
    app = importlib.import_module("stm_bench.apps." + options.app)
    serving = app.serve(options.port, options.given)
    run(lambda: asyncio.run(serving if options.threads else until_terminated(serving)), options.stats, stats)


if __name__ == "__main__":
    main()
