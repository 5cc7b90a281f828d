"""How much memory the engine takes: that of the process with it, less that of the same work without it."""

import os
import threading

OBJECTS = 60_000  # far more than the pages of the engine's tables: their cells lie everywhere in them
WRITES = 1000  # in one transaction


class Thing:
    def __init__(self):
        self.value = 0


def write(things):
    for thing in things:
        thing.value += 1


def resident_after(threads, run):
    """Bytes that the process has in memory when that many threads have written all objects, before they end.

    `run` is called with a function and its argument, once for each piece of the work.
    """
    things = [Thing() for _ in range(OBJECTS)]
    done, measured = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
    turn = threading.Lock()
    failures = []

    def work():
        try:
            for start in range(0, OBJECTS, WRITES):
                with turn:  # the threads write the same objects: conflicts are not what is measured
                    run(write, things[start : start + WRITES])
        except Exception as error:
            failures.append(error)
        done.wait()
        measured.wait()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    done.wait()
    resident = resident_bytes()
    measured.wait()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return resident


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
