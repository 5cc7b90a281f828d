"""Bugs that were there once; each test failed before its fix."""

import dis
import logging
import threading

import pytest

from tornado.stm import core, transaction

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="one transaction at a time: nothing is rolled back")

if core.PARALLEL:
    from tornado.stm import _engine
    from tornado.stm.instrument import trusted

    core.activate()
else:

    def trusted(function):
        return function


def aborted_once(step):
    """Run a step whose first attempt is rolled back at its end; return what the second attempt returns."""
    attempts = []

    @trusted
    def first():
        attempts.append(None)
        return len(attempts) == 1

    @trusted
    def abort():
        raise _engine.Abort

    def attempt():
        if not first():
            return None
        step()
        abort()

    core.Transaction(attempt, ()).run()
    assert len(attempts) in (1, 2)
    return len(attempts) == 2


@pytest.mark.parametrize("first, second", [(-1, -2), ((-1, 0), (-2, 0)), (-1.0, -2)])
def test_keys_with_one_hash_are_both_undone(first, second):
    assert hash(first) == hash(second)
    d, s = {first: 0, second: 0}, set()

    def step():
        d[first] += 1
        d[second] += 1
        s.add(first)
        s.add(second)

    assert aborted_once(step)
    assert d == {first: 0, second: 0} and s == set()


def test_an_attribute_and_a_key_of_one_name():
    class Both(dict):
        pass

    class OneSlot(dict):
        __slots__ = ("x",)

    for cls in (Both, OneSlot):
        d = cls(x=1)
        d.x = 1

        def step():
            d.x += 1
            d["x"] += 1

        assert aborted_once(step)
        assert (d.x, d["x"]) == (1, 1)


class SharedState:
    state = {}

    def __init__(self):
        self.__dict__ = self.state


class OwnDict(dict):
    def __init__(self):
        self.__dict__ = self


class ManyAttributes:
    def __init__(self):
        for i in range(40):
            setattr(self, f"a{i}", 0)


def test_one_attribute_under_several_names_is_counted_exactly():
    one, other, own, many = SharedState(), SharedState(), OwnDict(), ManyAttributes()
    one.n = own.n = 0
    view = vars(many)  # taken before any transaction

    def step():
        one.n += 1
        other.n += 1
        own.n += 1
        own["n"] += 1
        many.a39 += 1
        view["a39"] += 1
        many.a3 += 1

    queue = transaction.TransactionQueue()
    for _ in range(300):
        queue.add(step)
    queue.run(2)
    assert (one.n, own.n, many.a39, many.a3) == (600, 600, 600, 300)


def test_a_barrier_is_not_left_out_after_a_handler():
    # The code after the try is reached from the handler too, where the attribute has not been read.
    from tornado.stm import instrument

    def read(a, fail, items):
        try:
            fail()
            a.x
        except ValueError:
            pass
        for item in items:
            item = item + item + item + item + item + item + item + item
        return a.x

    code = instrument.instrument_code(read.__code__, frozenset(), frozenset(), frozenset())
    barriers = [const.__name__ for const in code.co_consts if type(const).__name__ == "Barrier"]
    assert "attr_read" in barriers
    loads = [i for i, instruction in enumerate(dis.get_instructions(code)) if instruction.opname == "LOAD_ATTR"]
    instructions = list(dis.get_instructions(code))
    for i in loads:
        if instructions[i].argval == "x":
            assert [each.opname for each in instructions[i - 2 : i]] == ["UNARY_NEGATIVE", "POP_TOP"], instructions[i]


def test_bytes_written_through_a_view_are_undone():
    data = bytearray(b"abc")
    view = memoryview(data)

    def step():
        view[0] = 90
        data[1] = 90

    aborted_once(step)
    if data != bytearray(b"ZZc"):  # ran alone, if the view may not be written
        assert data == bytearray(b"abc")


def test_a_subclass_of_a_c_iterator():
    class Numbered(enumerate):
        pass

    numbered = Numbered("abc")
    seen = []

    def step():
        seen.append(next(numbered))

    for _ in range(3):
        core.Transaction(step, ()).run()
    assert seen == [(0, "a"), (1, "b"), (2, "c")]


def test_a_dict_subclass_from_a_generator_does_not_run_alone():
    class Options(dict):
        pass

    source = {"a": 1, "b": 2}

    def make():
        return Options((name, value * 2) for name, value in source.items())

    core.Transaction(make, ()).run()
    before = core.stats()["exclusives"]
    made = core.Transaction(make, ()).run()
    assert type(made) is Options and made == {"a": 2, "b": 4}
    assert core.stats()["exclusives"] == before


def test_a_lock_that_a_transaction_holds_looks_locked():
    lock = threading.Lock()
    seen = []

    def step():
        with lock:
            seen.append((lock.locked(), lock.acquire(blocking=False)))
        seen.append(lock.locked())

    core.Transaction(step, ()).run()
    assert seen == [(True, False), False] and not lock.locked()


def test_a_lock_kept_over_the_commit_is_taken():
    lock = threading.Lock()

    def take():
        lock.acquire()

    def give():
        lock.release()

    core.Transaction(take, ()).run()
    assert lock.locked()
    core.Transaction(give, ()).run()
    assert not lock.locked()


def test_finalizers_after_a_commit_are_transactions():
    class Counted:
        alive = [0]

        def __del__(self):
            self.alive[0] -= 1

    def make_and_drop(n):
        Counted.alive[0] += n
        for _ in range(n):
            Counted()

    queue = transaction.TransactionQueue()
    for _ in range(200):
        queue.add(make_and_drop, 5)
    queue.run(2)
    assert Counted.alive == [0]


def test_formatting_a_log_record_does_not_run_alone():
    # Formatting reads all attributes of the record at once, through its dict.
    formatter = logging.Formatter("%(levelname)s %(message)s")

    def step():
        return formatter.format(logging.LogRecord("name", logging.INFO, "path", 1, "text %d", (1,), None))

    for _ in range(3):
        assert core.Transaction(step, ()).run() == "INFO text 1"
    before = core.stats()["exclusives"]
    core.Transaction(step, ()).run()
    assert core.stats()["exclusives"] == before, core.stats()["exclusive_reasons"]
