"""Beside programs that keep all processors busy, a server that gives its processor away waits long until it has one again.

So the counts are looked at: how often the threads of a server wait for something while it answers requests.  A time would tell
what the machine does.
"""

import http.client
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from client import in_parallel
from interpreters import FREE_THREADED

pytest.importorskip("rich")

from stm_bench.servers import EndlessLoops, Server  # noqa: E402

pytestmark = pytest.mark.skipif(not FREE_THREADED, reason="nothing runs in parallel")

CLIENTS, REQUESTS = 8, 125  # of each, one after the other on its connection
WARM_UP = 20


def waits(server):
    """How often the threads of the process have given their processor away since they began: to wait, not since others wanted it."""
    found = 0
    for status in Path(f"/proc/{server.process.pid}/task").glob("*/status"):
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        found += int(fields["voluntary_ctxt_switches"])
    return found


def waits_a_request(server):
    """The same, a request, while clients ask for what takes next to nothing."""
    warm, go = threading.Barrier(CLIENTS + 1), threading.Barrier(CLIENTS + 1)

    def ask(connection):
        connection.request("GET", "/hello")
        assert connection.getresponse().read()

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for _ in range(WARM_UP):
            ask(connection)
        warm.wait()
        go.wait()
        for _ in range(REQUESTS):
            ask(connection)
        connection.close()

    def count():
        warm.wait()
        before = waits(server)
        go.wait()
        return before

    before, *_ = in_parallel([count] + [client] * CLIENTS)
    return (waits(server) - before) / (CLIENTS * REQUESTS)


@pytest.fixture(scope="module")
def beside():
    with EndlessLoops(2):
        yield


@pytest.fixture(scope="module")
def upstream(beside):
    return waits_of([])


def waits_of(options):
    with Server("hello", [sys.executable, "-m", "stm_bench.app_server", "handlers_app", *options]) as server:
        return waits_a_request(server)


@pytest.mark.parametrize("threads, most", [(1, 0.5), (2, 1.5), (8, 4)])
def test_a_server_seldom_waits_for_more_than_requests(threads, most, upstream):
    ours = waits_of(["--threads", str(threads)])
    print(f"{ours:.2f} waits a request on {threads} threads, {upstream:.2f} upstream")
    assert ours < upstream + most


TAKES_TAKEN_LOCKS = """
import _thread, os, threading
from pathlib import Path

from tornado.stm import transaction

def switches():
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines())["nonvoluntary_ctxt_switches"])

if THREADS:
    transaction.set_threads(THREADS)
    transaction.add(int)
    transaction.run()

def look():
    lost = []
    for _ in range(20):
        lock = _thread.allocate_lock()  # the next time nobody would yield, since somebody has slept
        lock.acquire()
        before = switches()
        lock.acquire(timeout=0.000001)
        lost.append(switches() - before)
    before = switches()
    for _ in range(1000):
        os.sched_yield()
    print(sorted(lost)[10], switches() - before)

if ELSEWHERE:
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
else:
    look()
"""


@pytest.mark.parametrize("threads, elsewhere", [(0, False), (2, False), (2, True)])
def test_a_thread_finds_mutexes_taken_and_keeps_its_processor_where_there_are_transactions(threads, elsewhere):
    """Another process always has something to do on that processor: a thread that gives it away comes back when that one's turn is over."""
    processor = {min(os.sched_getaffinity(0))}
    with EndlessLoops(1) as loops:
        os.sched_setaffinity(loops.processes[0].pid, processor)
        lost = subprocess.run(
            [sys.executable, "-c", TAKES_TAKEN_LOCKS.replace("THREADS", str(threads)).replace("ELSEWHERE", str(elsewhere))],
            preexec_fn=lambda: os.sched_setaffinity(0, processor), capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    by_mutexes, by_a_program_that_waits = map(int, lost.stdout.split())
    assert (by_mutexes > 0) == (threads == 0)
    assert by_a_program_that_waits > 0
