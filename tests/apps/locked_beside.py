"""Handlers and ordinary threads that share objects under locks: a random mix, and what must hold whatever it is.

    python -m tornado.stm -j N locked_beside.py SEED ROUNDS SECONDS

runs so many rounds, or for so many seconds, whichever takes longer.  In each, coroutines on the loop and threads beside it
draw operations from the same table.  Everything is as correct as it has to be on asyncio's loop: whoever touches what a lock
guards has the lock, and who needs two at once takes them in one order.  Prints one line for each round, and what is
wrong; the status is 1 then.
"""

import asyncio
import concurrent.futures
import faulthandler
import queue
import random
import sys
import threading
import time

from tornado.stm import core, transaction

LOCKS = 4
HANDLERS = 12
THREADS = 4
STEPS = 30


class Guarded:
    """A pair of numbers that are equal whenever nobody has the lock; how often both have been counted up."""

    def __init__(self, lock):
        self.lock = lock
        self.first = self.second = self.stripes = 0
        self.table = {}

    def change(self, spins):
        value = self.first
        self.first = value + 1
        self.table[value] = spins
        for _ in range(spins):
            pass
        self.second = value + 1


class Round:
    """What the handlers and threads of a round share.

    `wrong` has a line for each time that something was seen which no order of the operations explains.
    """

    def __init__(self, seed):
        chance = random.Random(seed)
        self.wrong = []
        self.expected = [0] * LOCKS  # how often each pair has been changed: counted under its lock
        self.guarded = [Guarded(chance.choice((threading.Lock, threading.RLock))()) for _ in range(LOCKS)]
        self.striped = {}
        self.balance = [1000] * LOCKS  # each under the lock of that number; their sum stays
        self.to_threads, self.to_handlers = queue.Queue(), queue.Queue()
        self.simple = queue.SimpleQueue()
        self.received, self.received_lock = [], threading.Lock()  # by threads
        self.got = []  # by handlers
        self.permits = threading.BoundedSemaphore(2)
        self.inside, self.inside_lock = 0, threading.Lock()
        self.condition, self.level = threading.Condition(), 0
        self.moved = [0, 0]  # changed in transactions and atomic blocks: their sum is 0
        self.sent = self.put = 0  # items for threads, counted by handlers; for handlers, when the threads have ended
        self.counter = {"conflicts": 0}

    def see(self, holds, what):
        if not holds:
            self.wrong.append(what)


# ---- Operations: of handlers and threads alike ----------------------------------------------------------------------------


def change(shared, chance):
    number = chance.randrange(LOCKS)
    pair = shared.guarded[number]
    with pair.lock:
        shared.see(pair.first == pair.second, f"a pair was seen half changed: {pair.first}, {pair.second}")
        pair.change(chance.choice((0, 50, 500)))
        shared.expected[number] += 1


def try_to_change(shared, chance):
    number = chance.randrange(LOCKS)
    pair = shared.guarded[number]
    if not pair.lock.acquire(blocking=False):
        return
    try:
        shared.see(pair.first == pair.second, f"a pair was seen half changed: {pair.first}, {pair.second}")
        pair.change(20)
        shared.expected[number] += 1
    finally:
        pair.lock.release()


def change_two(shared, chance):
    """One after the other, in any order: no two locks at once."""
    change(shared, chance)
    change(shared, chance)


def transfer(shared, chance):
    """Two locks at once, the lower number first."""
    low, high = sorted(chance.sample(range(LOCKS), 2))
    amount = chance.randrange(-5, 6)
    with shared.guarded[low].lock:
        with shared.guarded[high].lock:
            shared.balance[low] -= amount
            for _ in range(100):
                pass
            shared.balance[high] += amount


def audit(shared, chance):
    for pair in shared.guarded:
        pair.lock.acquire()
    total = sum(shared.balance)
    for pair in reversed(shared.guarded):
        pair.lock.release()
    shared.see(total == 1000 * LOCKS, f"the balances add up to {total}")


def nest(shared, chance):
    number = chance.randrange(LOCKS)
    pair = shared.guarded[number]
    if isinstance(pair.lock, type(threading.RLock())):
        with pair.lock:
            with pair.lock:
                shared.see(pair.first == pair.second, f"a pair was seen half changed: {pair.first}, {pair.second}")
            pair.change(10)
            shared.expected[number] += 1


def stripe(shared, chance):
    """Keys of one dict, each guarded by the lock of its number."""
    number = chance.randrange(LOCKS)
    pair = shared.guarded[number]
    with pair.lock:
        shared.striped[number] = shared.striped.get(number, 0) + 1
        shared.striped[number, pair.stripes] = pair
        if pair.stripes % 4 == 3:
            del shared.striped[number, pair.stripes - 1]
        pair.stripes += 1


def take_permit(shared, chance):
    if not shared.permits.acquire(blocking=False):
        return
    with shared.inside_lock:
        shared.inside += 1
        inside = shared.inside
    shared.see(inside <= 2, f"{inside} had one of two permits")
    with shared.inside_lock:
        shared.inside -= 1
    shared.permits.release()


def raise_level(shared, chance):
    with shared.condition:
        shared.level += 1
        shared.condition.notify(chance.choice((1, 1, 10)))


def put_simple(shared, chance):
    shared.simple.put(1)


OPERATIONS = [change, change, try_to_change, change_two, transfer, audit, nest, stripe, take_permit, raise_level, put_simple]


# ---- Handlers --------------------------------------------------------------------------------------------------------------


def conflict(shared):
    shared.counter["conflicts"] += 1


def move(shared):
    """A transaction, without a lock."""
    shared.moved[0] += 1
    for _ in range(50):
        pass
    shared.moved[1] -= 1


async def handler(shared, number, seed):
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    for step in range(STEPS):
        what = chance.randrange(8)
        if what == 0:
            shared.to_threads.put((number, step))
            shared.sent += 1
        elif what == 1:
            try:
                shared.got.append(shared.to_handlers.get_nowait())
            except queue.Empty:
                pass
        elif what == 2:
            move(shared)
        elif what == 3:
            answer = concurrent.futures.Future()
            loop.run_in_executor(None, answer.set_result, step)
            shared.see(await asyncio.wrap_future(answer) == step, "another answer")
        else:
            operation = chance.choice(OPERATIONS)
            state = chance.getstate()
            operation(shared, chance)
            if chance.random() < 0.3:
                conflict(shared)
            if chance.random() < 0.1:
                chance.setstate(state)
                operation(shared, chance)
        if chance.random() < 0.7:
            await asyncio.sleep(0)


# ---- Threads ---------------------------------------------------------------------------------------------------------------


def beside(shared, seed):
    """Returns how many items it has put into the queue for handlers."""
    chance, put = random.Random(seed), 0
    for step in range(STEPS * 3):
        what = chance.randrange(8)
        if what == 0:
            with transaction.atomic:
                shared.see(sum(shared.moved) == 0, f"a transaction was seen half done: {shared.moved}")
                shared.moved[1] -= 1
                shared.moved[0] += 1
        elif what == 1:
            shared.to_handlers.put((seed, step))
            put += 1
        elif what == 2:
            with shared.condition:
                shared.condition.wait(timeout=0.001)
        else:
            chance.choice(OPERATIONS)(shared, chance)
    return put


def drain(shared):
    """Until None comes."""
    while (item := shared.to_threads.get()) is not None:
        with shared.received_lock:
            shared.received.append(item)
        shared.to_threads.task_done()


# ---- A round ---------------------------------------------------------------------------------------------------------------


async def run_round(seed):
    chance = random.Random(seed)
    shared = Round(seed)
    drains = [threading.Thread(target=drain, args=(shared,)) for _ in range(2)]
    for thread in drains:
        thread.start()
    besides = asyncio.gather(*[asyncio.to_thread(beside, shared, chance.random()) for _ in range(THREADS)])
    await asyncio.gather(*[handler(shared, i, chance.random()) for i in range(HANDLERS)])
    shared.put = sum(await besides)
    for _ in drains:
        shared.to_threads.put(None)
    for thread in drains:
        await asyncio.to_thread(thread.join)

    while not shared.to_handlers.empty():
        shared.got.append(shared.to_handlers.get())
    for what, items, sent in ("threads", shared.received, shared.sent), ("handlers", shared.got, shared.put):
        shared.see(len(items) == len(set(items)), f"{what} received an item twice")
        shared.see(len(items) == sent, f"{what} received {len(items)} of {sent} items")
    striped = {i: pair.stripes for i, pair in enumerate(shared.guarded) if pair.stripes}
    striped |= {(i, n): pair for i, pair in enumerate(shared.guarded) for n in range(pair.stripes)
                if n % 4 != 2 or n + 1 == pair.stripes}
    shared.see(shared.striped == striped, f"keys under different locks: {shared.striped.keys() ^ striped.keys()}")
    for pair, expected in zip(shared.guarded, shared.expected):
        shared.see(pair.first == pair.second == expected, f"{expected} changes left {pair.first}, {pair.second}")
        shared.see(len(pair.table) == expected, f"{expected} changes left {len(pair.table)} entries")
        shared.see(not pair.lock.locked() if hasattr(pair.lock, "locked") else True, "a lock was left locked")
    shared.see(sum(shared.balance) == 1000 * LOCKS, f"the balances add up to {sum(shared.balance)}")
    shared.see(sum(shared.moved) == 0, f"{shared.moved} after transactions and atomic blocks")
    shared.see(shared.inside == 0 and shared.permits._value == 2, "a permit was lost")
    return shared.wrong


def main(seed, rounds, seconds):
    began, number, failed = time.monotonic(), 0, 0
    while number < rounds or time.monotonic() - began < seconds:
        faulthandler.dump_traceback_later(120, exit=True)
        core.inject_aborts(random.Random(seed + number).choice((0.0, 0.002, 0.01)), seed + number)
        wrong = asyncio.run(run_round(seed + number))
        print(f"round {seed + number}: {'wrong: ' + '; '.join(sorted(set(wrong))[:5]) if wrong else 'right'}", flush=True)
        failed += bool(wrong)
        number += 1
    core.inject_aborts(0.0, 0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
