"""Bugs that were there once; each test failed before its fix."""

import array
import builtins
import collections
import decimal
import enum
import functools
import gc
import gzip
import heapq
import importlib
import io
import logging
import os
import sys
import threading
import types
import warnings
import weakref

import pytest

from tornado.stm import activation, core, transaction

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="one transaction at a time: nothing is rolled back")

if core.PARALLEL:
    from tornado.stm import _engine
    from tornado.stm.core import trusted

    activation.activate()
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


def test_a_stream_into_memory_is_written_at_once():
    memory = io.BytesIO()
    text = io.TextIOWrapper(memory, encoding="ascii", write_through=True)

    def write():
        text.write("abc")
        return memory.getvalue()

    assert core.Transaction(write, ()).run() == b"abc"


def compressed(pieces):
    """What Tornado's GZipContentEncoding does with a response in pieces."""
    memory = io.BytesIO()
    file = gzip.GzipFile(mode="w", fileobj=memory, mtime=0)
    seen = []
    for piece in pieces:
        file.write(piece)
        file.flush()
        seen.append(memory.getvalue())
        memory.truncate(0)
        memory.seek(0)
    file.close()
    return seen + [memory.getvalue()]


def test_compressing_need_not_run_alone():
    pieces = [b"asdf", b"qwer" * 1000]
    core.Transaction(compressed, (pieces,)).run()  # what C code calls for the first time runs alone
    before = core.stats()["exclusives"]
    assert core.Transaction(compressed, (pieces,)).run() == compressed(pieces)
    assert core.stats()["exclusives"] == before


def test_an_aborted_attempt_to_compress_leaves_no_trace(monkeypatch):
    pieces, told = [b"asdf", b"qwer" * 1000], []
    expected = compressed(pieces)
    monkeypatch.setattr(sys, "unraisablehook", core.trusted(lambda report: told.append(report.exc_value)))
    before = core.stats()["aborts"]
    for seed in range(1, 41):
        core.inject_aborts(0.02, seed)
        try:
            assert core.Transaction(compressed, (pieces,)).run() == expected
        finally:
            core.inject_aborts(0, 0)
    gc.collect()
    assert core.stats()["aborts"] > before
    assert not [each for each in told if not isinstance(each, core.Abort)]


def test_a_stream_into_a_python_object_is_written_at_once():
    memory = io.BytesIO()
    file = gzip.GzipFile(mode="w", fileobj=memory, mtime=0)

    def write():
        file.write(b"asdf")
        file.flush()
        return len(memory.getvalue())

    header = len(memory.getvalue())
    assert header < core.Transaction(write, ()).run() < core.Transaction(write, ()).run()
    file.close()
    assert gzip.decompress(memory.getvalue()) == b"asdf" * 2


def test_writing_to_a_closed_file_raises():
    def write():
        file.write("abc")

    with open(os.devnull, "w") as file:
        pass
    with pytest.raises(ValueError):
        core.Transaction(write, ()).run()


@pytest.mark.parametrize("make", [dict, collections.Counter, lambda pairs: collections.defaultdict(int, pairs)])
def test_nothing_shows_where_a_key_of_a_new_dict_was(make):
    # The table of what is open forgets; it may forget that the dict is new, and still know that it may be read.
    def step():
        left = []
        for size in range(100, 4100, 97):
            d = {"a": 1, "b": 2, "c": 3} if make is dict else make({"a": 1, "b": 2, "c": 3})
            bool(d)
            others = [{} for _ in range(size)]  # each of these takes a place in the table
            del d["b"]
            left.append([*d])
            del others
        return left

    assert core.Transaction(step, ()).run() == [["a", "c"]] * len(range(100, 4100, 97))


class Plain:
    pass


def test_the_dict_of_a_shared_instance_is_not_taken_for_a_dict_that_died():
    def step():
        throw_away = {"made": "here"}
        del throw_away
        thing.__dict__["a"] = 2  # the dict is made now, where the other one was

    for _ in range(2):
        thing = Plain()
        thing.a = 1
        assert aborted_once(step)
        assert thing.a == 1


class WithSlot(Plain):
    __slots__ = ("slot",)


@pytest.mark.parametrize("cls", [Plain, WithSlot])
def test_a_new_object_is_as_ever_through_its_dict(cls):
    """Also where its attributes get so many that they leave the object, and where the dict outlives it."""

    def step():
        new = cls()
        names = new.__dict__
        names["first"] = 1
        new.second = 2
        for number in range(60):
            names[f"a{number}"] = number
            names[f"a{number}"] += new.second
        del names["a7"], new.a8
        names.update(third=3)
        same = new.__dict__ is names and new.third == 3 and "a7" not in vars(new)
        new.__dict__ = {"other": names.pop("first")}
        return same, new.other, new.__dict__, list(names.items())

    assert aborted_once(step)
    assert core.Transaction(step, ()).run() == step()


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


def run(step):
    return core.Transaction(step, ()).run()


class Box:
    def __init__(self, value):
        self.value = value


def test_what_only_the_undo_log_refers_to_dies_once_there_is_no_way_back():
    box = Box(Box(1))
    ref = weakref.ref(box.value)

    def step():
        box.value = None  # what it was is in the undo log
        gc.collect()  # runs alone from here on
        return ref()

    assert run(step) is None


def test_a_reference_count_does_not_tell_of_the_undo_log():
    def step():
        box = Box(1)
        before = sys.getrefcount(box)
        box.value, box.other = 2, 3
        return sys.getrefcount(box) - before

    assert run(step) == step()


def test_sorting_a_list_that_its_key_function_changes():
    numbers = [3, 1, 2]

    def step():
        with pytest.raises(ValueError, match="modified during sort"):
            numbers.sort(key=lambda number: numbers.append(number) or number)
        return numbers

    assert run(step) == [1, 2, 3]


def test_a_list_looks_empty_while_it_is_sorted():
    numbers, lengths = [3, 1, 2], []

    def step():
        numbers.sort(key=lambda number: lengths.append(len(numbers)) or number)

    run(step)
    assert numbers == [1, 2, 3] and lengths == [0, 0, 0]


def test_a_list_whose_key_function_raises_keeps_its_items():
    numbers = [3, 1, 0]

    def step():
        with pytest.raises(ZeroDivisionError):
            numbers.sort(key=lambda number: 1 / number)
        return numbers

    assert sorted(run(step)) == [0, 1, 3]


def test_sorting_does_not_ask_a_subclass():
    class Odd(list):
        def __iter__(self):
            raise AssertionError

        __setitem__ = __getitem__ = __len__ = __iter__

    odd = Odd([2, 1])

    def step():
        odd.sort()
        odd.sort(key=abs)

    run(step)
    assert str(odd) == "[1, 2]"


def test_exec_takes_its_namespaces_by_name():
    code = compile("y = x + 1", "none", "exec")

    def step():
        namespace = {"x": 1}
        exec(code, globals=namespace)
        local = {}
        exec("z = x + 2", globals=namespace, locals=local)
        return namespace["y"], local["z"]

    assert run(step) == (2, 3)


@pytest.mark.parametrize("make", [
    lambda: 3, lambda: [(1, 2), 3], lambda: [(1, 2, 3)], lambda: [()], lambda: [(1,)], lambda: [len(3) for _ in "a"], lambda: [(len(3) for _ in "a")],
])
@pytest.mark.parametrize("put", [
    lambda rows: {}.update(rows), lambda rows: dict(rows), lambda rows: collections.OrderedDict(rows),
    lambda rows: collections.OrderedDict().update(rows),
], ids=["update", "dict", "ordered", "ordered update"])
def test_what_a_dict_says_of_wrong_rows(put, make):
    def step():
        try:
            put(make())
        except Exception as error:
            return type(error), str(error), getattr(error, "__notes__", None)

    expected = step()
    assert run(step) == expected


def test_stand_ins_do_without_replaced_builtins(monkeypatch):
    callers, lock, length = set(), threading.Lock(), len

    def replaced(sized):
        callers.add(sys._getframe(1).f_globals["__name__"])
        return length(sized)

    monkeypatch.setattr(builtins, "len", replaced)

    def step():
        with lock:
            return len(sorted([2, 1]))

    assert run(step) == 2
    assert __name__ in callers and "tornado.stm.c_functions.twins" not in callers


def test_stand_ins_are_for_the_types_that_they_know():
    """A second copy of an extension module has types of its own, but the same functions."""
    first = sys.modules.pop("_functools")
    try:
        second = importlib.import_module("_functools")
    finally:
        sys.modules["_functools"] = first
    assert second._lru_cache_wrapper is not first._lru_cache_wrapper
    cached = second._lru_cache_wrapper(abs, 4, False, functools._CacheInfo)
    cached(-1)
    run(lambda: cached.cache_clear())
    assert cached.cache_info().currsize == 0


def test_what_an_aborted_attempt_made_is_never_finalized():
    class Connection:
        def __init__(self, number):
            self.me = self  # a cycle: it outlives the attempt
            self.number = number
            self.number += 0

        def __del__(self):
            finalized.append(self.number)

    def step():
        Connection(1).number += 0

    finalized = []
    core.Transaction(step, ()).run()
    gc.collect()
    assert finalized == [1]
    assert aborted_once(step)
    gc.collect()
    assert finalized == [1]


def test_what_an_enum_remembers_is_rolled_back():
    class Mode(enum.IntFlag):
        READ = 1
        WRITE = 2

    run(lambda: ~Mode.READ)  # Flag.__invert__ is called from C

    class Mode(enum.IntFlag):  # noqa: F811
        READ = 1
        WRITE = 2

    before = vars(Mode.READ).copy()

    def step():
        Mode.READ._inverted_ = Mode.WRITE
        assert ~Mode.WRITE == 1

    assert aborted_once(step)
    assert vars(Mode.READ) == before and "_inverted_" not in vars(Mode.WRITE)


def test_the_end_of_the_interpreter_is_silent(monkeypatch):
    """Modules are emptied before the last objects die."""
    from tornado.stm import rebound
    from tornado.stm.patches import finalizers

    reported = []
    function = types.FunctionType((lambda: None).__code__.replace(co_name="dies"), {})
    run(function)
    hook = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    monkeypatch.setattr(finalizers, "core", None)
    monkeypatch.setattr(rebound, "_known", None)
    hook(types.SimpleNamespace(exc_type=_engine.Abort))
    del function
    gc.collect()
    assert reported == []


def test_a_finalizer_of_an_aborted_attempt_does_nothing_unknown():
    unknown, interval, died, box = sys.setswitchinterval, sys.getswitchinterval(), [], Box(None)

    class Dies:
        def __del__(self):
            unknown(interval)  # a C function that the engine does not know, before any barrier that opens something
            died.append(self)

    def step():
        box.value = Dies()

    for _ in range(2):  # __del__ has no barriers the first time
        assert aborted_once(step)
        assert box.value is None and died == []


def test_what_a_rolled_back_generator_had_made_does_not_act_when_it_dies():
    alive = Box(0)

    class Counted:
        def __init__(self):
            alive.value += 1

        def __del__(self):
            alive.value -= 1

    def numbers():
        yield 1
        counted = Counted()
        yield counted

    generator = run(numbers)
    run(generator.__next__)
    for _ in range(2):
        assert aborted_once(lambda: next(generator))
        assert alive.value == 0
    next(generator)
    assert alive.value == 1


def in_a_cycle(obj):
    """Refer to the object from a cycle of references, so that only the garbage collector finds out that it died."""
    box = Box(obj)
    box.cycle = box


def test_coroutines_of_an_aborted_attempt_are_not_missed(monkeypatch):
    missed = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: missed.append(str(message)))

    async def coroutine():
        pass

    def step():
        in_a_cycle(coroutine())

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert aborted_once(step)
        gc.collect()
        assert missed == []
        run(step)
        gc.collect()
        assert len(missed) == 1 and "was never awaited" in missed[0]


def test_objects_of_an_aborted_attempt_are_not_finalized():
    finalized = []

    class Dies:
        def __del__(self):
            finalized.append(self)

    class Initialized(Dies):
        def __init__(self):
            self.value = 1

    def step():
        in_a_cycle(Dies())
        in_a_cycle(Initialized())
        in_a_cycle(Dies.__new__(Dies))
        in_a_cycle(object.__new__(Dies))

    assert aborted_once(step)
    gc.collect()
    assert finalized == []
    run(step)
    gc.collect()
    assert len(finalized) == 4


def test_the_first_lock_of_a_thread():
    condition, done = threading.Condition(threading.Lock()), []

    def step():
        with condition:
            condition.notify()
        done.append(core.is_exclusive())

    thread = threading.Thread(target=run, args=(step,))
    thread.start()
    thread.join()
    assert done == [False]


def test_a_heap_that_grows_while_others_wait_for_it():
    heap = []

    def push(number):
        for i in range(5):
            heapq.heappush(heap, -number * 5 - i)
        if number % 3 == 0:
            heapq.heappop(heap)
            heapq.heapreplace(heap, 1000)

    queue = transaction.TransactionQueue()
    for number in range(300):
        queue.add(push, number)
    core.inject_delays(0.3, 0.0002)
    try:
        queue.run(2)
    finally:
        core.inject_delays(0, 0)
    assert len(heap) == 1400
    popped = [heapq.heappop(heap) for _ in range(len(heap))]
    assert popped == sorted(popped)


def test_a_comparison_that_empties_the_heap():
    class Empties(int):
        def __lt__(self, other):
            heap.clear()
            return NotImplemented

    heap = [Empties(0)]

    def step():
        with pytest.raises(IndexError):
            heapq.heappushpop(heap, 1)

    run(step)


def test_code_that_exec_runs_is_called_by_who_calls_exec():
    code = compile("caller = sys._getframe(1).f_code.co_name", "none", "exec")

    def step():
        namespace = {"sys": sys}
        exec(code, namespace)
        exec("text_caller = sys._getframe(1).f_code.co_name", namespace)
        return namespace["caller"], namespace["text_caller"]

    assert run(step) == ("step", "step")


def test_exec_of_the_code_of_a_function():
    box = Box(1)

    function = types.FunctionType(compile("def function(): box.value += 1", "none", "exec").co_consts[0], {"box": box})
    run(lambda: function())

    def step():
        exec(function.__code__, {"box": box})

    run(step)
    assert box.value == 3
    assert aborted_once(step)
    assert box.value == 3


def test_a_constant_key_deleted_and_set_again_is_undone():
    """Keys that are constants are noted as opened; after a deletion that tells nothing of the undo log."""
    d = {"a": 1, "b": 2, "c": 3}
    seen = []

    def step():
        d["a"] = 10
        d["a"] = d["a"] + 1
        del d["a"]
        d["a"] = 12
        d["new"] = d["b"]
        del d["new"]
        d["new"] = 5
        seen.append(list(d.items()))

    aborted_once(step)
    assert list(d.items()) == [("a", 1), ("b", 2), ("c", 3)]
    core.Transaction(step, ()).run()
    assert list(d.items()) == [("b", 2), ("c", 3), ("a", 12), ("new", 5)] == seen[-1]


def test_a_constant_key_of_something_else_than_a_dict():
    class Keyed:
        def __init__(self):
            self.asked = []

        def __getitem__(self, key):
            self.asked.append(key)
            return len(self.asked)

    missing = collections.defaultdict(list)
    keyed = Keyed()
    core.Transaction(lambda: Keyed()["y"], ()).run()  # a first call from C runs alone

    def step():
        missing["x"].append(keyed["y"])
        missing["x"].append(keyed["y"])
        return missing["x"]

    aborted_once(step)
    assert not missing and not keyed.asked
    assert core.Transaction(step, ()).run() == [1, 2]
    assert keyed.asked == ["y", "y"]


def test_an_import_is_called_by_who_calls_it(tmp_path, monkeypatch):
    (tmp_path / "deprecated_one.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def step():
        return __import__("deprecated_one")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(step)
    assert [warning.filename for warning in caught] == [__file__]


def test_importing_what_is_there_does_not_run_alone():
    def step():
        __import__("os.path", fromlist=["join"])
        __import__("os", globals(), None, ("path", "getcwd"))
        __import__("xml")
        before = core.is_exclusive()
        __import__("os", fromlist=["no_such_name"])
        return before, core.is_exclusive()

    importlib.import_module("xml")
    assert run(step) == (False, True)


def test_importing_what_is_there_by_a_relative_name_does_not_run_alone():
    # Packages that import what they offer when it is asked for do so in each use: websockets.connect.
    importlib.import_module("xml.sax.handler")
    namespace = vars(importlib.import_module("xml.sax"))

    def step():
        modules = [
            __import__("handler", namespace, None, ["ContentHandler"], 1),
            __import__("sax.handler", globals=namespace, fromlist=("ContentHandler",), level=2),
            __import__("handler", {"__package__": "xml.sax"}, None, ["ContentHandler"], 1),
        ]
        return modules, core.is_exclusive()

    assert run(step) == ([sys.modules["xml.sax.handler"]] * 3, False)

    def cannot(*arguments):
        with pytest.raises((ImportError, TypeError, ValueError, OverflowError, KeyError)):
            __import__("handler", *arguments)
        return core.is_exclusive()

    for arguments in (
        ({}, None, ["ContentHandler"], 1),
        ({"__package__": 5}, None, ["ContentHandler"], 1),
        (namespace, None, ["ContentHandler"], 9),
        (namespace, None, ["ContentHandler"], -1),
        (namespace, None, ["ContentHandler"], 2**70),
        (None, None, ["ContentHandler"], 1),
    ):
        assert run(lambda: cannot(*arguments))


def test_every_list_of_many_is_put_back():
    # Marks hold 32 bits of what they are for: among so many, one looked as if it said that a list was logged.
    numbers = dict.fromkeys(range(150_000), 0)

    def step():
        for number in range(150_000):
            numbers[number]
        for each in lists:
            each.reverse()

    rolled_back = 0
    for _ in range(6):
        lists = [[1, 2] for _ in range(40_000)]
        try:
            rolled_back += bool(aborted_once(step))
        except core.Abort:
            continue  # a bucket of ownership records was full, so it ran alone: that is rare
        assert all(each == [1, 2] for each in lists)
    assert rolled_back


def test_keys_of_an_ordered_dict_of_a_subclass():
    class Cache(collections.OrderedDict):
        pass

    cache = Cache(a=1, b=2, c=3)

    def step():
        cache.pop("b")
        del cache["a"]
        cache["b"] = 4

    assert run(lambda: cache.pop("x", 5)) == 5
    assert aborted_once(step)
    assert list(cache.items()) == [("a", 1), ("b", 2), ("c", 3)]
    run(step)
    assert list(cache.items()) == [("c", 3), ("b", 4)]


def odd(base):
    """A container that shows something else than what it has; undoing changes asks it nothing."""

    class Odd(base):
        def __iter__(self):
            return iter(())

        def __len__(self):
            return 0

        def __getitem__(self, key):
            return "odd"

        def __contains__(self, key):
            return False

        def nothing(self, *args):
            return None

        __setitem__ = __delitem__ = append = clear = extend = insert = pop = update = nothing

        def keys(self):
            return ["odd"]

        def items(self):
            return [("odd", "odd")]

    return Odd


CHANGES = {
    dict: [("clear",), ("update", {"z": 1}), ("__setitem__", "a", 9), ("__delitem__", "b"), ("pop", "a"), ("popitem",),
           ("setdefault", "n", 3)],
    collections.OrderedDict: [("clear",), ("__setitem__", "a", 9), ("__delitem__", "b"), ("pop", "a"), ("popitem",),
                              ("move_to_end", "a")],
    list: [("clear",), ("append", 1), ("pop",), ("extend", [7, 8]), ("__setitem__", 0, 7), ("__delitem__", 0), ("reverse",)],
    collections.deque: [("clear",), ("append", 1), ("appendleft", 1), ("pop",), ("popleft",), ("extend", [7, 8]),
                        ("rotate", 1)],
    set: [("clear",), ("add", 9), ("discard", 1), ("update", {1, 9}), ("pop",)],
    array.array: [("append", 1), ("pop",), ("__setitem__", 0, 7), ("reverse",), ("insert", 0, 9)],
}


@pytest.mark.parametrize("base, change", [(base, change) for base, changes in CHANGES.items() for change in changes])
def test_undoing_does_not_ask_a_subclass(base, change):
    def contents():
        if isinstance(container, collections.OrderedDict):
            return list(base.__iter__(container)), list(dict.values(container))
        if base is dict:
            return list(dict.items(container))
        return set(set.__iter__(container)) if base is set else list(base.__iter__(container))

    def step():
        getattr(base, change[0])(container, *change[1:])

    for _ in range(2):  # what C code calls for the first time runs alone
        if base is array.array:
            container = odd(base)("l", [1, 2, 3])
        elif issubclass(base, dict):
            container = odd(base)()
            for key in "abc":
                base.__setitem__(container, key, key)
        else:
            container = odd(base)([1, 2, 3])
        before = contents()
        done = aborted_once(step)
        assert not done or contents() == before
    assert done


def test_what_has_no_room_for_weak_references_is_finalized_in_the_transaction_that_made_it():
    class Number(int):
        def __del__(self):
            finalized.append(int(self))

    finalized = []

    def step():
        numbers = {i: Number(i) for i in range(3)}
        numbers[1] = None
        return list(finalized)

    assert run(step) == [1]


def test_a_factory_that_looks_its_own_key_up():
    def step():
        calls = []

        def factory():
            calls.append(1)
            if len(calls) == 1:
                return d["key"] and "outer"
            return "inner"

        d = collections.defaultdict(factory)
        return d["key"], dict(d)

    assert run(step) == step() == ("inner", {"key": "inner"})


def test_globals_that_say_they_are_functions_are_not_asked_for_their_code():
    """A mock with the specification of another one says that it is a function, and makes as many attributes as somebody asks for."""
    from unittest import mock

    asked = []

    class Says:
        """What a mock is to whoever believes it, without an end."""

        __class__ = types.FunctionType

        def __getattr__(self, name):
            asked.append(name)
            if len(asked) > 100:
                raise RuntimeError("it is asked again and again")
            return [Says()] if name == "__closure__" else namespace if name == "__globals__" else Says()

    namespace = {"says": Says(), "mocked": mock.create_autospec(lambda: None), "method": mock.MagicMock(spec=staticmethod)}
    exec("def function():\n    global counter\n    counter = 1\n    return counter", namespace)
    assert core.Transaction(namespace["function"], ()).run() == 1
    assert asked == []


def test_a_bound_method_that_makes_an_object_is_called_with_what_it_is_bound_to():
    def step():
        copy = decimal.Context(prec=7).copy
        return copy().prec

    assert run(step) == step() == 7
