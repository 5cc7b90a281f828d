"""The transaction API where transactions run one at a time: an interpreter with a GIL, or one whose GIL is switched on."""

import json
import os
import subprocess
import sys

import pytest

from interpreters import FREE_THREADED, ROOT, gil_parameters

pytestmark = pytest.mark.parametrize(
    "python, environment",
    [
        *gil_parameters({}),
        pytest.param(
            sys.executable, {"PYTHON_GIL": "1"}, id="switched-on",
            marks=pytest.mark.skipif(not FREE_THREADED, reason="this interpreter has no switch"),
        ),
    ],
)

PROLOGUE = """
import json, threading
from tornado.stm import activation, core, transaction
from tornado.stm.transaction import TransactionError, TransactionQueue, add, atomic, is_atomic, run, stats
assert not core.PARALLEL
activation.activate()
result = None
"""


def result_of(python, environment, program):
    """What the program leaves in `result`."""
    text = PROLOGUE + program + "\nprint(json.dumps(result))\n"
    finished = subprocess.run(
        [python, "-c", text], capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, **environment}
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_everything_added_runs(python, environment):
    assert result_of(python, environment, """
seen = []
for i in range(50):
    add(seen.append, i)
run()
run()
result = sorted(seen)
""") == list(range(50))


def test_keywords_and_what_transactions_add(python, environment):
    assert result_of(python, environment, """
seen = []

def work(n, *, depth):
    seen.append([n, depth])
    if depth:
        add(work, n, depth=depth - 1)

for n in range(3):
    add(work, n, depth=4)
run()
result = [[depth for m, depth in seen if m == n] for n in range(3)]
""") == [[4, 3, 2, 1, 0]] * 3


def test_what_a_transaction_adds_runs_after_it(python, environment):
    assert result_of(python, environment, """
seen = []

def first():
    add(seen.append, "second")
    seen.append("first")

add(first)
run()
result = seen
""") == ["first", "second"]


@pytest.mark.parametrize("segments", [0, 1, 4])
def test_queue_runs_again_after_more_is_added(python, environment, segments):
    assert result_of(python, environment, f"""
queue, seen = TransactionQueue(), []
queue.run({segments})
for part in range(3):
    for i in range(5):
        queue.add(seen.append, i)
    queue.run(nb_segments={segments})
result = [sorted(seen), transaction.getsegmentlimit()]
""") == [sorted(list(range(5)) * 3), 1]


def test_exception_keeps_effects_and_drops_the_rest(python, environment):
    assert result_of(python, environment, """
queue, seen = TransactionQueue(), []

def fail():
    seen.append("effect")
    raise KeyError("first")

queue.add(fail)
for i in range(10):
    queue.add(seen.append, i)
try:
    queue.run()
except KeyError as e:
    result = [e.args[0]]
queue.add(seen.append, "later")
queue.run()
result += seen
""") == ["first", "effect", "later"]


def test_queue_does_not_run_inside_a_transaction(python, environment):
    assert result_of(python, environment, """
result = []

def nested():
    try:
        run()
    except TransactionError:
        result.append("in a transaction")

add(nested)
run()
with atomic:
    try:
        run()
    except TransactionError:
        result.append("in an atomic block")
add(result.append, "outside")
run()
""") == ["in a transaction", "in an atomic block", "outside"]


def test_atomic(python, environment):
    assert result_of(python, environment, """
result = [is_atomic()]
with atomic:
    result.append(is_atomic())
    with atomic:
        result.append(is_atomic())
    result.append(is_atomic())
result.append(is_atomic())

def inside():
    result.append(is_atomic())
    with atomic:
        result.append(is_atomic())
    result.append(is_atomic())

add(inside)
run()
try:
    with atomic:
        raise ValueError
except ValueError:
    result.append(is_atomic())
""") == [False, True, True, True, False, True, True, True, False]


def test_what_is_added_in_an_atomic_block_counts_from_its_end(python, environment):
    assert result_of(python, environment, """
queue, result = TransactionQueue(), []
with atomic:
    queue.add(result.append, "queued")
    result.append("block")
queue.run()
""") == ["block", "queued"]


def test_threads_with_atomic_blocks_lose_no_update(python, environment):
    assert result_of(python, environment, """
counter = {"n": 0}

def work():
    for _ in range(2000):
        with atomic:
            n = counter["n"]
            n += 1
            counter["n"] = n

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
result = counter["n"]
""") == 8000


def test_atomic_blocks_exclude_transactions_of_other_threads(python, environment):
    assert result_of(python, environment, """
import time
seen, queue = [], TransactionQueue()

def step():
    seen.append("begin")
    time.sleep(0.001)
    seen.append("end")

for _ in range(50):
    queue.add(step)
worker = threading.Thread(target=queue.run)
worker.start()
torn = 0
for _ in range(50):
    with atomic:
        torn += len(seen) % 2
worker.join()
result = [torn, len(seen)]
""") == [0, 100]


def test_stats_count_commits_only(python, environment):
    assert result_of(python, environment, """
before = stats()
for i in range(20):
    add(int)
run()
after = stats()
result = [after["commits"] - before["commits"], after["aborts"]]
""") == [20, 0]


def test_deferred_actions_run_at_commit_in_order(python, environment):
    assert result_of(python, environment, """
result = []

def work():
    core.defer(result.append, 2)
    core.defer(result.append, 3)
    result.append(1)

core.Transaction(work, ()).run()
core.defer(result.append, 4)

def fail():
    core.defer(result.append, 6)
    result.append(5)
    raise ValueError

try:
    core.Transaction(fail, ()).run()
except ValueError:
    result.append(7)
""") == [1, 2, 3, 4, 5, 6, 7]


def test_transaction_runs_once_and_returns_its_result(python, environment):
    assert result_of(python, environment, """
done = core.Transaction(max, (1, 5, 3))
result = [done.run(), core.in_transaction()]
try:
    done.run()
except RuntimeError:
    result.append("once")

def nested():
    core.Transaction(int, ()).run()

try:
    core.Transaction(nested, ()).run()
except RuntimeError:
    result.append("not nested")
""") == [5, False, "once", "not nested"]


@pytest.mark.parametrize("threads", ["0", "-1", "'2'", "True", "2.0", "128"])
def test_bad_number_of_threads(python, environment, threads):
    assert result_of(python, environment, f"""
try:
    transaction.set_threads({threads})
except ValueError as e:
    result = str(e)
""").endswith(str(eval(threads).__repr__()))


def test_transactions_of_a_queue_run_in_the_context_of_add(python, environment):
    assert result_of(python, environment, """
import contextvars
from tornado.stm import transaction

colour = contextvars.ContextVar("colour", default="none")
queue = transaction.TransactionQueue()
result = []

def step(n):
    result.append(colour.get())
    colour.set("inside")
    if n:
        queue.add(step, n - 1)

def add():
    colour.set("outside")
    queue.add(step, 1)

contextvars.copy_context().run(add)
queue.add(step, 0)
queue.run()
result.append(colour.get())
""") == ["outside", "none", "inside", "none"]


def test_what_is_expected_of_the_parallel_engine(python, environment):
    parts = "engine/test_transaction", "objects/test_containers", "engine/test_queues", "objects/test_threadlocal", "engine/test_interrupts"
    files = [f"tests/{part}.py" for part in parts]
    finished = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, **environment},
    )
    assert finished.returncode == 0, finished.stdout


def test_an_interrupt_ends_the_run_as_an_exception_does(python, environment):
    assert result_of(python, environment, """
import os, signal

def handler(signum, frame):
    raise InterruptedError

def work(i):
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(i):
        pass

signal.signal(signal.SIGUSR1, handler)
result = []
for i in range(200):
    queue = TransactionQueue()
    for _ in range(3):
        queue.add(work, i)
    try:
        queue.run()
    except InterruptedError:
        result.append([queue.number_of_transactions_executed(), core.in_transaction()])
    queue.run()
    result[-1].append(queue.number_of_transactions_executed())
result = [len(result), all(n == m and not inside for n, inside, m in result)]
""") == [200, True]


LOOP = """
import asyncio, time
from tornado.stm import transaction
from tornado.stm.program.runner import new_loop

def run_on_our_loop(main):
    loop = new_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
"""


def test_atomic_blocks_exclude_the_callbacks_of_a_loop(python, environment):
    assert result_of(python, environment, LOOP + """
state = {"n": 0, "added": 0, "torn": 0}

def add_slowly():
    n = state["n"]
    time.sleep(0.001)
    state["n"] = n + 1
    state["added"] += 1

def blocks():
    for _ in range(50):
        with atomic:
            state["torn"] += state["n"] != state["added"]
            add_slowly()

async def main():
    thread = threading.Thread(target=blocks)
    thread.start()
    for _ in range(25):
        loop = asyncio.get_running_loop()
        loop.call_soon(add_slowly)
        loop.call_later(0.0001, add_slowly)
        await asyncio.sleep(0.001)
    await asyncio.to_thread(thread.join)
    while state["added"] < 100:
        await asyncio.sleep(0)

run_on_our_loop(main)
result = state
""") == {"n": 100, "added": 100, "torn": 0}


def test_callbacks_of_a_loop_are_transactions(python, environment):
    assert result_of(python, environment, LOOP + """
result = []

def misused(function, *args):
    try:
        function(*args)
    except TransactionError:
        result.append(function.__name__)

async def main():
    before = stats()["commits"]
    result.append(is_atomic())
    misused(transaction.exclusive_atomic.__enter__)
    misused(TransactionQueue().run)
    misused(transaction.queue().get)
    with atomic:
        pass
    result.append(is_atomic())
    await asyncio.sleep(0)
    result.append(stats()["commits"] - before)

run_on_our_loop(main)
result.append(is_atomic())
""") == [True, "__enter__", "run", "get", True, 1, False]


def test_events_of_descriptors_are_transactions_and_see_what_was_put_before(python, environment):
    assert result_of(python, environment, LOOP + """
import socket

async def main():
    loop, told, queue = asyncio.get_running_loop(), asyncio.Event(), transaction.queue()
    ours, theirs = socket.socketpair()

    def read():
        loop.remove_reader(ours)
        result.append(is_atomic())
        told.set()

    loop.add_reader(ours, read)
    theirs.send(b"x")
    queue.put("put")
    await told.wait()
    result.append(queue.get(False))
    ours.close()
    theirs.close()

result = []
run_on_our_loop(main)
""") == [True, "put"]


def test_a_callback_may_wait_for_another_loop_while_a_thread_wants_a_block(python, environment):
    assert result_of(python, environment, LOOP + """
other = new_loop()
threading.Thread(target=other.run_forever).start()
wanted, entered = threading.Event(), threading.Event()

def block():
    wanted.set()
    with atomic:
        entered.set()

async def soon():
    await asyncio.sleep(0.01)
    return entered.is_set()

async def main():
    threading.Thread(target=block).start()
    wanted.wait()
    return [asyncio.run_coroutine_threadsafe(soon(), other).result() for _ in range(3)]

result = run_on_our_loop(main)
entered.wait()
other.call_soon_threadsafe(other.stop)
""") == [False] * 3


def test_callbacks_and_blocks_do_not_starve_each_other(python, environment):
    assert result_of(python, environment, LOOP + """
counts = {"callbacks": 0, "blocks": 0}

def blocks():
    while counts["callbacks"] < 200 or counts["blocks"] < 200:
        with atomic:
            counts["blocks"] += 1
            time.sleep(0.0001)

async def main():
    threads = [threading.Thread(target=blocks) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        counts["callbacks"] += 1
        await asyncio.sleep(0)

run_on_our_loop(main)
result = min(counts.values()) >= 200
""") is True


def test_a_child_has_what_its_thread_had_of_a_loop(python, environment):
    assert result_of(python, environment, LOOP + """
import os, warnings
warnings.simplefilter("ignore")

def child_ends_well(look):
    pid = os.fork()
    if not pid:
        os._exit(0 if look() else 1)
    return os.waitpid(pid, 0)[1] == 0

def enters():
    entered = threading.Event()

    def block():
        with atomic:
            entered.set()

    threading.Thread(target=block, daemon=True).start()
    return entered.wait(0.5)

async def main():
    return child_ends_well(lambda: is_atomic() and not enters())

result = [run_on_our_loop(main), child_ends_well(enters)]
with atomic:
    result.append(child_ends_well(lambda: not enters()))
""") == [True] * 3
