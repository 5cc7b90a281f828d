"""Is what ran in parallel what one thread could have done?  A tool for tests of applications, and of this package::

    from tornado.stm import testing

    def make_bank():
        return {"alice": 100, "bob": 100}

    def transfer(bank, source, target, amount):
        bank[source] -= amount
        bank[target] += amount
        testing.require(sum(bank.values()) == 200, "money is neither made nor lost")

    def test_transfers():
        calls = [(transfer, "alice", "bob", 10), (transfer, "bob", "alice", 30)] * 5
        testing.check_serializable(make_bank, calls, runs=100)

Each call is one transaction: ``function(heap, *args)``.  `check_serializable` runs all of them on several threads, with
aborts and delays injected at random, asks the engine in which order they took effect, runs them again in that order one
after the other on a fresh heap, outside of any transaction, and compares: what each call returned or raised, and
everything that can be seen of the heap that is left, its order and its identities too.  `require` catches a transaction
that looks at a state which no serial run has, even if that attempt is rolled back.

With hypothesis, `programs` generates the calls from a table of small operations.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import gc
import itertools
import random
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import activation, core, forks
from .core import trusted

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Run", "check_serializable", "compare", "describe", "judge", "perform", "perform_all", "perform_rehearsed", "programs",
    "replay", "require", "run_concurrently",
]

H = TypeVar("H")

#: a function and its arguments after the heap
Call = tuple[Any, ...]


class Run:
    """What came of a list of calls.

    Attributes:
        heap: what ``make_heap`` returned, as it is in the end.
        values: what each call returned; None where it raised.
        exceptions: what each call raised, or None.
        order: the numbers of the calls, in the order in which they took effect.
        broken: ``(number of the call, message)`` for each requirement that did not hold.
        strays: how many functions of the program rollbacks have called, where barriers are off.
        early: the numbers of calls that have taken effect before the one before them, though they were to follow it.
    """

    def __init__(self, heap: Any, count: int) -> None:
        self.heap = heap
        self.values: list[Any] = [None] * count
        self.exceptions: list[BaseException | None] = [None] * count
        self.order: list[int] = []
        self.broken: list[tuple[int | None, str]] = []
        self.strays = 0
        self.early: list[int] = []

    def call(self, number: int, function: Callable[..., object], *args: object) -> None:
        """Call, and keep what comes of it as that of the call with this number."""
        try:
            self.values[number] = function(*args)
        except BaseException as e:
            self.exceptions[number] = e


# ---- Requirements -----------------------------------------------------------------------------------------------------

_one_run = threading.Lock()
forks.free(_one_run)
_broken: list[tuple[Any, str]] = []  # (Transaction or None, message); appended to by trusted code, so that a rollback leaves it alone


@trusted
def require(condition: object, message: str = "a requirement") -> None:
    """Note that a condition does not hold, in a way that outlives a rollback of the transaction.

    No transaction ever looks at a state that no serial run has, so what holds in every serial run holds here.  Does not
    raise: the check that runs the call fails in the end.
    """
    if not condition:
        _broken.append((core.current(), message))


# ---- Running ------------------------------------------------------------------------------------------------------------


def run_concurrently(
    make_heap: Callable[[], object], calls: Iterable[Call], *, threads: int = 4, seed: int = 0, aborts: float = 0.005, delays: float = 0.02,
    pause: float = 0.0003, alone: float = 0.05, garbage: float = 0.02, ordered: float = 0.1, timeout: float = 60,
) -> Run:  # fmt: skip
    """Run each call as a transaction, on several threads at the same time.

    Args:
        make_heap: makes the object that the calls share; called once, outside of any transaction, on one of the threads.
        calls: tuples ``(function, *args)``, for ``function(heap, *args)``.
        threads: how many threads the calls are dealt out to.
        seed: of the injected aborts and delays, of how calls are dealt out, and of which objects the engine takes for
            such as have long been read only, and reads without locks until somebody writes.  How threads interleave also
            depends on the system, so the same seed makes a failure likely to come again, not certain.
        aborts: the probability of an injected abort at each barrier.
        delays: the probability of an injected delay at each barrier and at each step of a commit or a rollback.
        pause: the longest injected delay, in seconds; it ends when the other threads have got on, which takes less mostly.
        alone: the probability that a call runs exclusively from its beginning, as a loop's transactions do where nobody else has
            anything to do.
        garbage: the probability that the thread collects garbage after a call, beside those that are amid theirs.
        ordered: the probability that a call must not take effect before the one before it, like callbacks that one transaction
            schedules; where transactions run one at a time no call must.
        timeout: seconds after which calls that have not committed are given up.

    Returns:
        The `Run`.

    Raises:
        TimeoutError: some calls have not committed in time.
        ValueError: no threads, or no such probability of aborts or delays.
    """
    if threads < 1:
        raise ValueError(f"there must be a thread at least, not {threads}")
    activation.activate()
    calls = list(calls)
    run = Run(None, len(calls))
    choice = random.Random(seed)
    transactions: list[Any] = []
    hands: list[list[int]] = [[] for _ in range(threads)]
    for number in range(len(calls)):
        choice.choice(hands).append(number)
    exclusive = [choice.random() < alone for _ in calls]
    collects = [choice.random() < garbage for _ in calls]
    follows = [core.PARALLEL and number > 0 and choice.random() < ordered for number in range(len(calls))]
    start = threading.Barrier(threads)
    failures: list[BaseException] = []

    def make() -> None:
        try:
            run.heap = make_heap()
            _bias_some(run.heap, choice)
            for (function, *args), follow in zip(calls, follows):
                transactions.append(core.Transaction(function, (run.heap, *args), transactions[-1] if follow else None))
        except BaseException as e:
            failures.append(e)

    def play(hand: list[int]) -> None:
        # By a thread that plays: the engine may take what a thread has made for known to nobody else.
        if hand is hands[0]:
            make()
        start.wait()
        if failures:
            return
        stood_by = core.step_in()
        try:
            for number in hand:
                run.call(number, transactions[number].run, exclusive[number])
                if collects[number]:
                    core.collect_garbage()
        finally:
            core.step_back(stood_by)

    with _one_run:
        _broken.clear()
        strays = core.stats()["strays"]
        try:
            core.inject_aborts(aborts, seed)
            core.inject_delays(delays, pause)
            players = [threading.Thread(target=play, args=(hand,), daemon=True) for hand in hands]
            for player in players:
                player.start()
            deadline, stood_by = time.monotonic() + timeout, core.step_in()
            try:
                for player in players:
                    player.join(max(0, deadline - time.monotonic()))
            finally:
                core.step_back(stood_by)
        finally:
            core.inject_aborts(0, 0)
            core.inject_delays(0, 0)
        if failures:
            raise failures[0]
        broken = list(_broken)
    run.strays = core.stats()["strays"] - strays
    late = [number for number, transaction in enumerate(transactions) if not transaction.done]
    if late:
        raise TimeoutError(f"calls {late} have not committed after {timeout} s (seed {seed})")
    run.order = sorted(range(len(calls)), key=lambda number: transactions[number].commit_number)
    run.early = [
        number for number in range(len(calls))
        if follows[number] and transactions[number].commit_number < transactions[number - 1].commit_number
    ]
    numbers = {id(transaction): number for number, transaction in enumerate(transactions)}
    run.broken = [(numbers.get(id(transaction)), message) for transaction, message in broken]
    return run


def _bias_some(heap: object, choice: random.Random) -> None:
    """In every second run, half of what can be reached from there."""
    if choice.random() < 0.5:
        return
    seen, found = {id(heap)}, [heap]
    while found and len(seen) < 10_000:
        obj = found.pop()
        if choice.random() < 0.5:
            core.bias(obj)
        for part in gc.get_referents(obj):
            if id(part) not in seen and not isinstance(part, (type, types.ModuleType, types.FunctionType)):
                seen.add(id(part))
                found.append(part)


def replay(make_heap: Callable[[], object], calls: Iterable[Call], order: Iterable[int]) -> Run:
    """Run the calls one after the other, as plain Python, in a thread of their own.

    Args:
        make_heap, calls: see `run_concurrently`.
        order: the numbers of the calls in the order in which to run them.

    Returns:
        The `Run`.
    """
    calls = list(calls)
    run = Run(make_heap(), len(calls))
    run.order = list(order)

    def play() -> None:
        for number in run.order:
            _broken.clear()
            function, *args = calls[number]
            run.call(number, function, run.heap, *args)
            run.broken += [(number, message) for _, message in _broken]

    with _one_run:
        player = threading.Thread(target=play)
        player.start()
        player.join()
    return run


def compare(concurrent: Run, serial: Run, observe: Callable[[Any], object] | None = None) -> list[str]:
    """How two runs differ, as lines of text; none if what can be seen of them is the same.

    Args:
        concurrent, serial: a `Run` by `run_concurrently` and its `replay`.
        observe: called with each heap, returns what of it to compare; by default all of it.
    """
    pictures = []
    for run in (concurrent, serial):
        roots: dict[str, object] = {f"call {number}": end for number, end in enumerate(zip(run.values, run.exceptions))}
        roots["heap"] = run.heap if observe is None else observe(run.heap)
        pictures.append(describe(**roots))
    ours, theirs = pictures
    absent = "nothing"
    return [
        f"{path}: {ours.get(path, absent)} concurrently, {theirs.get(path, absent)} serially"
        for path in dict.fromkeys(itertools.chain(ours, theirs))
        if ours.get(path) != theirs.get(path)
    ]


SHOWN = 12  # lines of differences in a failure's message


def check_serializable(
    make_heap: Callable[[], H], calls: Iterable[Call], *, observe: Callable[[H], object] | None = None, seed: int | None = None, runs: int = 1,
    **options: Any,
) -> Run:  # fmt: skip
    """Check that calls which run concurrently do what they do one after the other, in the order of their commits.

    Args:
        make_heap, calls: see `run_concurrently`.  The heap must be made afresh by each call, and arguments must not be
            changed by the calls, for both runs get the same.
        observe: called with a heap after a run, returns what of it to compare; by default all that can be reached.
        seed: of the first run; None: a random one.  Further runs count on from it.
        runs: how many different ones to try.
        options: for `run_concurrently`.

    Returns:
        The last `Run`.

    Raises:
        AssertionError: they do not; says where, and with which seed.
        TimeoutError: some calls have not committed in time.
        ValueError: no runs, or what `run_concurrently` says.
    """
    if runs < 1:
        raise ValueError(f"there must be a run at least, not {runs}: nothing would be checked")
    calls = list(calls)
    if seed is None:
        seed = random.randrange(2**32)
    for seed in range(seed, seed + runs):  # noqa: B020, it counts on
        run = run_concurrently(make_heap, calls, seed=seed, **options)
        judge(run, replay(make_heap, calls, run.order), calls, seed, observe)
    return run


def judge(run: Run, serial: Run, calls: Sequence[Call], seed: int, observe: Callable[[Any], object] | None = None) -> None:
    """Raise an AssertionError if a run differs from its replay, broke a requirement or an order that was asked for; says where."""
    lines = [f"call {number} has seen a state that no serial run has: {message}" for number, message in run.broken]
    if serial.broken:
        lines = [f"call {number} breaks a requirement when it runs alone: {message}" for number, message in serial.broken]
    if run.strays:
        lines.append(f"rollbacks have called {run.strays} functions of the program")
    lines += [f"call {number} has taken effect before call {number - 1}, which it was to follow" for number in run.early]
    lines += compare(run, serial, observe)
    if not lines:
        return
    shown = lines[:SHOWN] + ([f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])
    program = [f"call {number}: {_call_text(calls[number])}" for number in run.order]
    raise AssertionError("\n".join([f"not serializable (seed={seed})", *shown, "in the order of commits:", *program]))


def _call_text(call: Call) -> str:
    function, *args = call
    return f"{getattr(function, '__qualname__', function)}({', '.join(map(repr, args))})"


# ---- Programs -------------------------------------------------------------------------------------------------------------


def perform(heap: object, *steps: Call) -> list[Any]:
    """One transaction of several operations: return what they return; an exception ends it.

    Args:
        heap: the first argument of each operation.
        steps: tuples ``(operation, *args)``.
    """
    results = []
    for operation, *args in steps:
        results.append(operation(heap, *args))
    return results


def perform_all(heap: object, *steps: Call) -> list[Any]:
    """The same, but go on after an exception, which is one of the results then."""
    results = []
    for operation, *args in steps:
        try:
            results.append(operation(heap, *args))
        except Exception as e:
            results.append(e)
    return results


def perform_rehearsed(heap: object, rehearsal: Iterable[Call], *steps: Call) -> list[Any]:
    """The same, after an attempt that performs the rehearsal in the place of the steps, and is rolled back.

    Args:
        rehearsal: a tuple of steps, of which nothing must be seen.
    """
    if core.rehearse():
        perform_all(heap, *rehearsal)
        _roll_back()
    return perform_all(heap, *steps)


@trusted
def _roll_back() -> None:
    raise core.Abort


def programs(
    operations: Iterable[Call], undone: Iterable[Call] = (), *, ways: Sequence[Callable[..., object]] = (perform, perform_all),
    rehearsed: Callable[..., object] = perform_rehearsed, transactions: int = 8, length: int = 5,
) -> SearchStrategy[list[Call]]:  # fmt: skip
    """A hypothesis strategy for lists of calls, each of some random operations.

    Args:
        operations: tuples ``(operation, *strategies of its arguments)``.
        undone: more of them, for rehearsals only.
        ways: functions like `perform`, which carry steps out.
        rehearsed: a function like `perform_rehearsed`.
        transactions: the most calls of a program; the fewest are two.
        length: the most operations of a call.
    """
    from hypothesis import strategies

    def steps_of(operations: Iterable[Call]) -> SearchStrategy[list[Call]]:
        step: list[SearchStrategy[Call]] = [strategies.tuples(strategies.just(operation), *arguments) for operation, *arguments in operations]
        return strategies.lists(strategies.one_of(step), min_size=1, max_size=length)

    steps = steps_of(operations)
    rehearsal: SearchStrategy[Call] = steps_of([*operations, *undone]).map(tuple)
    call: SearchStrategy[Call] = strategies.one_of(
        strategies.builds(lambda way, steps: (way, *steps), strategies.sampled_from(ways), steps),
        strategies.builds(lambda rehearsal, steps: (rehearsed, rehearsal, *steps), rehearsal, steps),
    )
    return strategies.lists(call, min_size=2, max_size=transactions)


# ---- Pictures of objects ----------------------------------------------------------------------------------------------------

_ATOMS: tuple[type, ...] = (
    types.NoneType, bool, int, float, complex, str, bytes, types.EllipsisType, types.NotImplementedType, range,
)
_NAMED: tuple[type, ...] = (
    types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.CodeType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType, types.FrameType, property, staticmethod, classmethod,
    contextvars.ContextVar, functools._lru_cache_wrapper,
)


def describe(**roots: object) -> dict[str, str]:
    """Everything that can be seen of some objects: values, order, identities.  Looks, but changes and calls nothing.

    Sets have no order; how far an iterator has come is seen where Python shows it (not inside ``map`` or ``zip``).

    Args:
        roots: names and objects.

    Returns:
        dict: path → text, such as ``"heap['a'][0].x": "1"``, in the order in which they are found.
    """
    picture: dict[str, str] = {}
    seen: dict[int, str] = {}
    alive = []  # ids are only distinct among objects that live
    todo = [(name, roots[name]) for name in reversed(roots)]
    while todo:
        path, obj = todo.pop()
        if isinstance(obj, _Text):
            picture[path] = obj
            continue
        if type(obj) in _ATOMS:
            picture[path] = repr(obj)
            continue
        if not isinstance(obj, (tuple, frozenset, enum.Enum)):  # whether equal ones are one object is nobody's business
            if id(obj) in seen:
                picture[path] = f"the same as {seen[id(obj)]}"
                continue
            seen[id(obj)] = path
        alive.append(obj)
        text, parts = _look(obj)
        picture[path] = text
        todo.extend((path + suffix, part) for suffix, part in reversed(parts))
    return picture


#: what an object consists of: (suffix of the path, object)
Parts = list[tuple[str, Any]]


class _Text(str):
    """A part of a picture that is no object."""


def _look(obj: Any) -> tuple[str, Parts]:
    """The text for an object, and its parts: (suffix of the path, object)."""
    for kind, look in _LOOKS:
        if isinstance(obj, kind):
            return look(obj)
    text, parts = _look_at_attributes(obj)
    if not parts:
        parts = _reduced(obj)
    return text, parts


def _name(obj: Any) -> Any:
    return getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or getattr(obj, "name", "")


def _look_at_name(obj: Any) -> tuple[str, Parts]:
    return f"{type(obj).__name__} {_name(obj)}", []


def _look_at_attributes(obj: Any) -> tuple[str, Parts]:
    parts = []
    try:
        attributes = dict(object.__getattribute__(obj, "__dict__"))
    except AttributeError:
        attributes = {}
    parts += [(f".{name}", value) for name, value in attributes.items()]
    # The attributes of C exceptions are either in `args` or say how the interpreter came to raise it.
    classes = [] if isinstance(obj, BaseException) else type(obj).__mro__
    for cls in classes:
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    parts.append((f".{name}", member.__get__(obj)))
                except AttributeError:
                    pass
    names = f" with {', '.join(suffix[1:] for suffix, _ in parts)}" if parts else ""
    return type(obj).__qualname__ + names, parts


def _reduced(obj: Any) -> Any:
    """What pickle would keep of a C object."""
    try:
        reduced = obj.__reduce_ex__(4)
    except Exception:  # whatever a type that cannot be pickled raises
        return []
    return [(".reduced", reduced[1:3])] if isinstance(reduced, tuple) else []


def _look_at_items(obj: Any) -> tuple[str, Parts]:
    text, parts = _look_at_attributes(obj)
    items = list(obj)
    if isinstance(obj, collections.deque) and obj.maxlen is not None:
        text += f" of at most {obj.maxlen}"
    return f"{text} of {len(items)}", parts + [(f"[{i}]", item) for i, item in enumerate(items)]


def _look_at_mapping(obj: Any) -> tuple[str, Parts]:
    text, parts = _look_at_attributes(obj)
    items = [(key, dict.__getitem__(obj, key)) for key in obj] if isinstance(obj, dict) else list(obj.items())
    keys = [repr(key) if type(key) in _ATOMS else _look(key)[0] for key, _ in items]
    for i, (key, value) in enumerate(items):
        if type(key) in _ATOMS:
            parts.append((f"[{key!r}]", value))
        else:
            parts += [(f".key[{i}]", key), (f".value[{i}]", value)]
    if isinstance(obj, collections.defaultdict):
        parts.append((".default_factory", obj.default_factory))
    return f"{text} of {{{', '.join(keys)}}}", parts


def _in_order(items: Iterable[Any]) -> list[Any]:
    """The items of something that has no order, in an order that depends only on what they look like."""
    return sorted(items, key=lambda item: "\n".join(f"{path} {text}" for path, text in describe(item=item).items()))


def _look_at_set(obj: Any) -> tuple[str, Parts]:
    text, parts = _look_at_attributes(obj)
    items = _in_order(obj)
    return f"{text} of {len(items)}", parts + [(f"{{{i}}}", item) for i, item in enumerate(items)]


def _look_at_weak_keys(obj: Any) -> tuple[str, Parts]:
    items = _in_order(obj.items())
    return f"{type(obj).__qualname__} of {len(items)}", [(f"{{{i}}}", item) for i, item in enumerate(items)]


def _look_at_class(obj: Any) -> tuple[str, Parts]:
    if "<locals>" not in obj.__qualname__:
        return f"class {obj.__qualname__}", []
    ignored = ("__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__", "__doc__")
    members = {
        name: value for name, value in vars(obj).items()
        if name not in ignored and not isinstance(value, types.GetSetDescriptorType)
    }
    parts = [(f".{name}", value) for name, value in members.items()]
    bases = ", ".join(base.__qualname__ for base in obj.__bases__)
    return f"class {obj.__qualname__}({bases}) with {', '.join(members)}", parts


def _look_at_function(obj: Any) -> tuple[str, Parts]:
    if "<locals>" not in obj.__qualname__:
        return f"function {obj.__qualname__}", []
    parts = [(f".{name}", value) for name, value in vars(obj).items()]
    for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or ()):
        try:
            parts.append((f" closed over {name}", cell.cell_contents))
        except ValueError:
            parts.append((f" closed over {name}", _Text("unset")))
    for what in ("__defaults__", "__kwdefaults__"):
        if getattr(obj, what) is not None:
            parts.append((f".{what}", getattr(obj, what)))
    return f"function {obj.__qualname__}", parts


def _look_at_generator(obj: Any) -> tuple[str, Parts]:
    prefix = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}[type(obj)]
    frame = getattr(obj, prefix + "_frame")
    text = f"{type(obj).__name__} {obj.__qualname__}"
    if frame is None:
        return f"{text}, finished", []
    awaited = getattr(obj, {"gi": "gi_yieldfrom", "cr": "cr_await", "ag": "ag_await"}[prefix])
    parts = [(f".{name}", value) for name, value in sorted(frame.f_locals.items())]
    if awaited is not None:
        parts.append((".awaited", awaited))
    return f"{text}, suspended at line {frame.f_lineno - frame.f_code.co_firstlineno}", parts


def _look_at_exception(obj: Any) -> tuple[str, Parts]:
    text, parts = _look_at_attributes(obj)
    parts.append((".args", obj.args))
    for name in ("__cause__", "__context__"):
        if getattr(obj, name) is not None:
            parts.append((f".{name}", getattr(obj, name)))
    hidden = ", its context hidden" if obj.__suppress_context__ else ""
    shown = ", ".join(repr(arg) if type(arg) in _ATOMS else "..." for arg in obj.args)
    return f"{text}({shown}){hidden}, {_places(obj.__traceback__)}", parts


def _places(traceback: types.TracebackType | None) -> str:
    """Where an exception has come through, but for the machinery of this package."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith("tornado.stm."):
            places.append(f"{code.co_qualname}+{traceback.tb_lineno - code.co_firstlineno}")
        traceback = traceback.tb_next
    return f"raised through {', '.join(places)}"


def _look_at_context(obj: Any) -> tuple[str, Parts]:
    variables = sorted(obj.items(), key=lambda item: item[0].name)
    return "Context", [(f"[{variable.name}]", value) for variable, value in variables]


#: type → how to look at its instances; the first that fits
_LOOKS: list[tuple[Any, Callable[[Any], tuple[str, Parts]]]] = [
    (enum.Enum, lambda obj: (f"{type(obj).__qualname__}.{obj.name}", [])),
    (_NAMED, _look_at_name),
    (type, _look_at_class),
    (types.FunctionType, _look_at_function),
    (types.MethodType, lambda obj: (f"method {_name(obj)}", [(".__self__", obj.__self__)])),
    (functools.partial, lambda obj: ("partial", [(".func", obj.func), (".args", obj.args), (".keywords", obj.keywords)])),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), _look_at_generator),
    (BaseException, _look_at_exception),
    (types.TracebackType, lambda obj: (_places(obj), [])),
    (weakref.ref, lambda obj: ("weak reference", [("()", obj())])),
    (weakref.WeakSet, _look_at_set),
    (weakref.WeakKeyDictionary, _look_at_weak_keys),
    (weakref.WeakValueDictionary, _look_at_mapping),
    (contextvars.Context, _look_at_context),
    ((dict, types.MappingProxyType), _look_at_mapping),
    ((list, tuple, collections.deque), _look_at_items),
    ((set, frozenset), _look_at_set),
    (bytearray, lambda obj: (repr(obj), [])),
    (memoryview, lambda obj: (f"memoryview of {obj.tobytes()}", [])),
]
