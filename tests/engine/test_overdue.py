"""A transaction that never ends is rolled back for those who wait for it, and they go on."""

import threading
import time

import pytest

from apart import run_beside
from interpreters import needs_engine
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()

activation.activate()

#: seconds at least that one stands back which was rolled back because it was overdue
OVERDUE_STANDS_BACK = 6


class World:
    def __init__(self):
        self.count = 0
        self.attempts = 0
        self.begun = threading.Lock()
        self.begun.acquire()

    @trusted
    def has_begun(self):
        self.attempts += 1
        if self.attempts == 1:
            self.begun.release()


def without_barriers(world):
    world.count += 1
    world.has_begun()
    while True:
        pass


def with_barriers(world):
    world.count += 1
    world.has_begun()
    while True:
        world.count += 1


def swallowing(world):
    world.count += 1
    world.has_begun()
    while True:
        try:
            while True:
                world.count -= 1
        except BaseException:
            pass


def look(world):
    return world.count


def look_alone(world):
    core.exclusive("a test")
    return world.count


@trusted
def alone_from_the_beginning(world):
    assert core.atomic_enter()
    try:
        return world.count
    finally:
        core.atomic_exit()


@trusted
def beside(endless, world):
    """Run it on a thread that the test leaves behind; wait until it is in its loop."""
    thread = threading.Thread(target=core.Transaction(endless, (world,)).run, daemon=True)
    thread.start()
    assert world.begun.acquire(timeout=60)
    return thread


@trusted
def commit(function, world):
    return core.Transaction(function, (world,)).run()


def in_a_process(call):
    """What this prints: the endless one stays to the end of its process."""
    done = run_beside(__file__, f"import test_overdue\nprint({call})")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@trusted
def seen_beside(endless):
    """By one that wants the same, by a block that runs alone, and by one that becomes exclusive."""
    core.set_allowance(0.1)
    world = World()
    beside(endless, world)
    return commit(look, world), alone_from_the_beginning(world), commit(look_alone, world)


@pytest.mark.parametrize("endless", [without_barriers, with_barriers, swallowing])
def test_others_go_on(endless):
    assert in_a_process(f"test_overdue.seen_beside(test_overdue.{endless.__name__})") == "(0, 0, 0)"


def twice_too_long(world):
    world.count += 1
    world.has_begun()
    if world.attempts < 3:
        with_barriers(world)


@trusted
def ends_after_all():
    world = World()
    thread = beside(twice_too_long, world)
    while thread.is_alive():
        assert commit(look, world) in (0, 1)
    return commit(look, world), world.attempts


@pytest.mark.long
def test_what_ends_comes_to_its_end():
    assert in_a_process("test_overdue.ends_after_all()") == "(1, 3)"


def in_the_way(world):
    world.count += 1
    world.has_begun()
    if world.attempts == 1:
        until_doomed()


@trusted
def until_doomed():
    while not core.is_unwinding():
        time.sleep(0.001)


@trusted
def rolled_back_for_an_older_one():
    world = World()
    older = core.Transaction(look, (world,))
    thread = beside(in_the_way, world)
    begin = time.monotonic()
    seen = older.run()
    thread.join()
    return seen, world.attempts, time.monotonic() - begin < OVERDUE_STANDS_BACK


@trusted
def soon_at_last(call, tries=5):
    """What it returns, which ends in whether it was soon enough; a busy machine may keep it from that once or twice."""
    for _ in range(tries):
        result = call()
        if result[-1]:
            break
    return result


def test_the_first_attempt_of_a_thread_is_not_overdue_because_it_was_rolled_back():
    assert in_a_process("test_overdue.soon_at_last(test_overdue.rolled_back_for_an_older_one)") == "(0, 2, True)"


def busy(world, n, alone):
    """Changes both counts, in one order or the other, and computes in between."""
    first, second = ("count", "other") if n % 2 else ("other", "count")
    setattr(world, first, getattr(world, first) + 1)
    for i in range(n * 1_000_000):
        pass
    if alone:
        core.exclusive("a test")
    setattr(world, second, getattr(world, second) + 1)


@trusted
def busy_beside_each_other():
    """What is left in the end, and how many were rolled back."""
    world = World()
    world.other = 0
    core.set_allowance(0.05)

    @trusted
    def work(thread):
        for n in range(12):
            core.Transaction(busy, (world, (n + thread) % 15, n % 7 == thread)).run()
            alone_from_the_beginning(world)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return world.count, world.other, core.stats()["aborts"] > 0


@pytest.mark.long
def test_what_is_rolled_back_is_done_once():
    assert in_a_process("test_overdue.busy_beside_each_other()") == "(48, 48, True)"
