"""Gathered transactions: those that are expected to run alone do so in a row, on the loop's thread.

What a loop does is asked in a process of its own: in this one transactions are never gathered.
"""

import _thread
import asyncio
import functools
import os
import time

import pytest

import apart
import tornado.stm
from interpreters import needs_engine
from strands import begin_apart
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()

activation.activate()

in_a_process = functools.partial(apart.in_a_process, __file__)

REASON = "something that nobody knows"


@trusted
def this_thread():
    return _thread.get_ident()


def thread_alone(before=0.0):
    """Go on alone; returns which thread does, and is long before that, if asked to."""
    until = time.thread_time() + before
    while time.thread_time() < until:
        pass
    core.exclusive(REASON)
    return this_thread()


def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


class Program:
    """Tasks that run alone in one of three steps, and others that take long and never do."""

    def __init__(self, before=0.0):
        self.before = before
        self.log, self.threads, self.computed = [], [], 0

    async def speak(self, name, times):
        await begin_apart()
        for number in range(times):
            await asyncio.sleep(0)
            self.log.append((name, number))
            await asyncio.sleep(0)
            self.threads.append(thread_alone(self.before))
            await asyncio.sleep(0)

    async def compute(self, speakers):
        await begin_apart()
        while not all(task.done() for task in speakers):
            compute(0.006)
            self.computed += 1
            await asyncio.sleep(0)

    async def main(self, speakers, computers, times):
        speaking = [asyncio.create_task(self.of_its_own_kind().speak(name, times)) for name in range(speakers)]
        await asyncio.gather(*speaking, *[self.compute(speaking) for _ in range(computers)])

    def of_its_own_kind(self):
        """The same by another class.  Of hundreds of steps of one kind it is known that they are always prompt: they may be sequential, for
        which there is no reason to tell.
        """
        other = object.__new__(type("Program", (type(self),), {}))
        vars(other).update(vars(self))
        return other


def run(threads, speakers, computers, times, before=0.0):
    program = Program(before)
    tornado.stm.run(program.main(speakers, computers, times), threads=threads)
    for name in range(speakers):
        assert [number for who, number in program.log if who == name] == list(range(times))
    stats, here = core.stats(), this_thread()
    [reason] = [text for text in stats["exclusive_reasons"] if text.startswith(REASON)]
    return {
        "alone": stats["exclusive_reasons"][reason],
        "seconds": stats["exclusive_seconds"][reason],
        "elsewhere": [thread == here for thread in program.threads[20 * speakers :]].count(False),
        "computed": program.computed,
    }


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("computers", [0, 1, 5])
def test_what_runs_alone_does_so_on_the_loops_thread(threads, computers):
    found = in_a_process(f"run({threads}, 6, {computers}, 80)")
    assert found["alone"] >= 6 * 80 and found["seconds"] > 0  # it is still told for what reason
    # One of many finds out whether that still is so; and on a busy machine that thread may not come in time.  Else all threads would have a share.
    assert found["elsewhere"] <= 6 * 60 * (threads - 1) / threads / 3
    assert computers == 0 or found["computed"] > 0


def test_what_computes_before_it_runs_alone_may_run_anywhere():
    found = in_a_process("run(2, 6, 0, 160, 0.003)")  # so long that it is tried whether a second thread brings anything
    assert found["elsewhere"] > 0


def test_other_steps_go_on_between_two_gatherings():
    """There is always somebody who wants to run alone."""
    found = in_a_process("run(2, 40, 3, 40)")
    assert found["computed"] >= 10


class Stuck(Program):
    """What is on the loop's thread takes for ever: not what has always been short, for which nobody else would go on."""

    def __init__(self, loops_thread):
        super().__init__()
        self.loops_thread, self.turns = loops_thread, 0

    async def take_turns(self):
        await begin_apart()
        while True:
            await asyncio.sleep(0)
            self.turns += 1
            if self.turns % 20 == 0:  # so that it has not always been short, when it comes to that thread at last
                compute(0.003)
            if self.turns > 60 and this_thread() == self.loops_thread:
                note_stuck()
                while True:
                    pass

    async def main(self):
        tasks = [asyncio.create_task(self.speak(name, 10**6)) for name in range(6)]
        tasks.append(asyncio.create_task(self.take_turns()))
        await begin_apart()
        while not is_stuck:
            await asyncio.sleep(0)
        spoken = len(self.threads)
        while len(self.threads) < spoken + 20:
            await asyncio.sleep(0)
        print(["all went on"], flush=True)
        os._exit(len(tasks) - 7)


is_stuck = []


@trusted
def note_stuck():
    is_stuck.append(True)


def get_stuck():
    core.set_allowance(0.1)
    tornado.stm.run(Stuck(this_thread()).main(), threads=2)


def test_others_run_alone_while_the_loops_thread_is_at_something_endless():
    assert in_a_process("get_stuck()") == ["all went on"]


async def wait_for_a_pipe(steps):
    """So many steps alone, one after the other, and then until something has come; returns how many of the latter."""
    reading, writing = os.pipe()
    come = []
    asyncio.get_running_loop().add_reader(reading, lambda: come.append(os.read(reading, 1)))
    for step in range(10 * steps):
        if step == steps:
            os.write(writing, b"x")
        thread_alone()
        await asyncio.sleep(0)
        if come:
            break
    asyncio.get_running_loop().remove_reader(reading)
    return step - steps


def hear_amid_a_gathering():
    return tornado.stm.run(wait_for_a_pipe(1000), threads=2)


def test_what_the_kernel_tells_is_heard_amid_a_gathering():
    assert in_a_process("hear_amid_a_gathering()") < 10


async def end_in_the_midst():
    tasks = [asyncio.create_task(Program().speak(name, 10**6)) for name in range(5)]
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)


def end_again_and_again():
    return [tornado.stm.run(end_in_the_midst(), threads=2) for _ in range(3)]


def test_a_loop_ends_in_the_midst_of_a_gathering():
    assert in_a_process("end_again_and_again()") == [5, 5, 5]


async def hear_of_timers(times):
    """Two tasks pass the turn to each other: while one of them is to be gathered, what comes after it is; returns how many rounds it took at most."""

    async def pass_on():
        while True:
            await asyncio.sleep(0)

    def tell():
        nonlocal told
        told += 1

    loop = asyncio.get_running_loop()
    other = asyncio.create_task(pass_on())
    told = most = 0
    for number in range(times):
        core.exclusive(REASON)
        loop.call_later(0.00001, tell)
        rounds = 0
        while told == number and rounds < 20000:
            await asyncio.sleep(0)
            rounds += 1
        most = max(most, rounds)
    other.cancel()
    return most


def hear_timers_amid_a_gathering():
    return tornado.stm.run(hear_of_timers(60), threads=2)


def test_what_waits_longer_than_what_is_gathered_comes_first():
    """What is known to be prompt waited until nothing was left to be gathered, which was never where two tasks pass the turn to each other."""
    assert in_a_process("hear_timers_amid_a_gathering()") < 20000
