"""The process that the engine benchmark measures in: one for each number of threads, for plain code, for the serial engine.

python -m stm_bench.engine_worker [--threads N] [--serial]

It reads a request a line from standard input and answers each with a line, both JSON: ``[task, {argument: value}]`` and
what `Worker.measure` returns, or ``{"error": text}``.
"""

import argparse
import json
import sys
import time

from stm_bench import programs


class Worker:
    """Measures tasks in this process; tornado.stm is imported when the first transaction is asked for."""

    def __init__(self, threads=1, serial=False):
        self.threads = threads
        self.serial = serial

    def measure(self, task, **arguments):
        """Does a task; returns its "result", "seconds", and the "commits", "aborts", "exclusives", "reasons" meanwhile."""
        before = self.stats()
        result, seconds = TASKS[task](self, **arguments)
        after = self.stats()
        changes = {name: after[name] - before.get(name, 0) for name in ("commits", "aborts", "exclusives") if after}
        reasons = {
            reason: count - before.get("exclusive_reasons", {}).get(reason, 0)
            for reason, count in after.get("exclusive_reasons", {}).items()
        }
        return {
            "result": result,
            "seconds": seconds,
            **{name: changes.get(name, 0) for name in ("commits", "aborts", "exclusives")},
            "reasons": {reason: count for reason, count in reasons.items() if count},
        }

    @property
    def transaction(self):
        """The module tornado.stm.transaction, on the engine and the threads that are to be measured."""
        if self.serial:
            sys.modules["tornado.stm._engine"] = None  # importing it fails, as where it is not compiled
        from tornado.stm import transaction

        transaction.set_threads(self.threads)
        return transaction

    def stats(self):
        imported = sys.modules.get("tornado.stm.transaction")
        return imported.stats() if imported else {}


def program(worker, name, how, size, runs):
    """A program some times, plain or each time in a transaction; seconds of CPU, which other processes do not lengthen."""
    run = programs.load(name).run
    results = []
    if how == "plain":
        start = time.process_time()
        for _ in range(runs):
            keep(results, run, size)
        return sum(results), time.process_time() - start
    transaction = worker.transaction
    start = time.process_time()
    for _ in range(runs):
        transaction.add(keep, results, run, size)
        transaction.run()
    return sum(results), time.process_time() - start


def keep(results, function, *args):
    results.append(function(*args))


TASKS = {"program": program}


def serve(worker):
    for line in sys.stdin:
        task, arguments = json.loads(line)
        try:
            answer = worker.measure(task, **arguments)
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serial", action="store_true")
    options = parser.parse_args()
    serve(Worker(options.threads, options.serial))
