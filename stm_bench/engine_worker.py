"""The process that the engine benchmark measures in: one for each number of threads, for plain code, and so on.

python -m stm_bench.engine_worker [--threads N] [--serial]

It reads a request a line from standard input and answers each with a line, both JSON: ``[task, {argument: value}]`` and
what `Worker.measure` returns, or ``{"error": text}``.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time

from stm_bench import bank, calls, engine_workloads, memory, programs


class Worker:
    """Measures tasks in this process; tornado.stm is imported when the first transaction is asked for."""

    def __init__(self, threads=1, serial=False):
        self.threads = threads
        self.serial = serial

    def measure(self, task, **arguments):
        """Does a task; returns what it found, and the "commits", "aborts", "exclusives" and their "reasons" meanwhile.

        What a task finds is its "result" and its "seconds", of CPU or of the clock; "cpu" where it tells both.
        """
        before = self.stats()
        found = TASKS[task](self, **arguments)
        after = self.stats()
        changes = {name: after[name] - before.get(name, 0) for name in ("commits", "aborts", "exclusives") if after}
        reasons = {
            reason: count - before.get("exclusive_reasons", {}).get(reason, 0)
            for reason, count in after.get("exclusive_reasons", {}).items()
        }
        return {
            **found,
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
    """A program some times, plain or each time in a transaction; seconds of CPU: what else runs does not matter."""
    return repeated(worker, how, runs, programs.load(name).run, size)


def library_call(worker, name, how, runs):
    """One of `calls.CALLS`, likewise."""
    return repeated(worker, how, runs, calls.checksum, name)


def repeated(worker, how, runs, function, argument):
    results = []
    if how == "plain":
        start = time.process_time()
        for _ in range(runs):
            keep(results, function, argument)
        return {"result": sum(results), "seconds": time.process_time() - start}
    transaction = worker.transaction
    start = time.process_time()
    for _ in range(runs):
        transaction.add(keep, results, function, argument)
        transaction.run()
    return {"result": sum(results), "seconds": time.process_time() - start}


def keep(results, function, *args):
    results.append(function(*args))


def empty(worker, count, at_once):
    """That many transactions that do nothing, added and run so many at once; seconds of CPU."""
    transaction = worker.transaction
    start = time.process_time()
    for _ in range(count // at_once):
        for _ in range(at_once):
            transaction.add(nothing)
        transaction.run()
    return {"result": None, "seconds": time.process_time() - start}


def nothing():
    pass


def workload(worker, name, count, plain):
    """That many transactions of a workload, or plain calls, from when all are in the queue; seconds of the clock."""
    transaction = PlainCalls(worker.threads) if plain else worker.transaction
    check = engine_workloads.WORKLOADS[name](transaction, count)
    start, cpu_start = time.perf_counter(), time.process_time()
    transaction.run()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return {"result": check(), "seconds": seconds, "cpu": cpu}


def logged(worker, name, count, log):
    """A workload, with a conflict log or without; the number of its records, too.  Seconds of CPU, those of its writer among them."""
    worker.transaction.TransactionQueue()  # makes the engine ready
    from tornado.stm import conflictlog

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stm.log")
        start = time.process_time()
        if log:
            conflictlog.start(path)
        found = workload(worker, name, count, False)
        if log:
            conflictlog.stop()
        seconds = time.process_time() - start
        return {**found, "seconds": seconds, "events": records(path) if log else 0}


def records(path):
    """How many a log has."""
    with open(path, "rb") as file:
        data = file.read()
    at, count = 16, 0
    while at < len(data):
        at += 19 + data[at + 17] + data[at + 18]
        count += 1
    return count


class PlainCalls:
    """In the place of tornado.stm.transaction: calls functions on plain threads, with nothing between them."""

    def __init__(self, threads):
        self.threads = threads
        self.calls = []

    def add(self, function, *args):
        self.calls.append((function, args))

    def run(self):
        helpers = [threading.Thread(target=self.work, args=(number,)) for number in range(1, self.threads)]
        for helper in helpers:
            helper.start()
        self.work(0)
        for helper in helpers:
            helper.join()

    def work(self, number):
        for function, args in self.calls[number :: self.threads]:
            function(*args)


def transfers(worker, how, count):
    """That many transfers of a bank, by the function of bank.py that `how` names."""
    work = bank.make_transfers(count)
    if how == "transactions":
        money, seconds = bank.with_transactions(worker.transaction, work)
    elif how == "lock":
        money, seconds = bank.with_lock(worker.threads, work)
    else:
        money, seconds = bank.with_atomix(worker.threads, work)
    return {"result": money, "seconds": seconds}


def resident(worker, how):
    """Bytes of memory of this process when its threads have worked, in transactions or plain.  To be asked once."""
    start = time.perf_counter()
    import tornado.web  # noqa: F401, what a server has anyway is not the engine's

    if how == "plain":
        run = call
    else:
        worker.transaction.TransactionQueue()  # makes the engine ready
        from tornado.stm import core

        def run(function, argument):
            core.Transaction(function, (argument,)).run()

    return {"result": memory.resident_after(worker.threads, run), "seconds": time.perf_counter() - start}


def call(function, argument):
    function(argument)


TASKS = {
    "program": program, "call": library_call, "empty": empty, "workload": workload, "logged": logged, "transfers": transfers, "resident": resident,
}  # fmt: skip


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
