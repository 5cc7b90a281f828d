"""The evaluation loop: functions do in transactions what they do outside, aborts get past every handler, lines stay."""

import asyncio
import builtins
import contextlib
import dataclasses
import enum
import functools
import linecache
import sys
import traceback
import types
import warnings

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from tornado.stm.core import trusted

activation.activate()

# What an injected abort needs to be looked for, and what makes it certain.
HARDLY_EVER, CERTAINLY = 1e-9, 0.9999999


@pytest.fixture(autouse=True)
def unraisable_exceptions(monkeypatch):
    """What nobody could handle is dropped, by a hook that no abort can stop."""
    monkeypatch.setattr(sys, "unraisablehook", trusted(lambda report: None))


def run(function, *args):
    return core.Transaction(function, args).run()


# ---- The same results ----------------------------------------------------------------------------------------------------


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __repr__(self):
        return f"Point({self.x}, {self.y})"

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __lt__(self, other):
        return self.x < other.x

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def __iadd__(self, other):
        self.x += other.x
        return self

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __len__(self):
        return 2

    def __bool__(self):
        return self.x != 0

    def __contains__(self, value):
        return value in (self.x, self.y)

    def __call__(self, *args, **kwargs):
        return self.x, args, sorted(kwargs.items())

    def __enter__(self):
        return self.x

    def __exit__(self, *exc):
        self.y += 1
        return self.x == 1 and exc[0] is not None

    def __neg__(self):
        return Point(-self.x, -self.y)

    def __hash__(self):
        return hash(self.x)


def nested_functions():
    def outer(a):
        def middle(b):
            def inner(c):
                return a, b, c
            return inner
        return middle
    return outer(1)(2)(3)


def nested_rebinding():
    n = 0
    seen = []

    def count(by=1):
        nonlocal n
        n += by
        seen.append(n)
        return n

    return [count(), count(5), (lambda: count(-2))(), n, seen]


def late_binding():
    return [f() for f in [lambda: i for i in range(3)]], [f() for f in [lambda i=i: i for i in range(3)]]


def deleted_closure():
    x = 1

    def look():
        return x

    first = look()
    del x
    try:
        look()
    except NameError as e:
        return first, type(e).__name__


def lambdas():
    return (lambda: 1)(), (lambda x, *y, z=3, **k: (x, y, z, k))(1, 2, z=4, w=5), sorted([3, 1, 2], key=lambda x: -x)


def comprehensions():
    matrix = [[i * j for j in range(3)] for i in range(3)]
    return matrix, {x: y for x, y in zip("ab", range(2))}, {i % 3 for i in range(9)}, [*(i for i in range(4) if i % 2)]


def comprehension_scopes():
    x = "outer"
    result = [x for x in range(3)]
    y = [(x, z) for z in "ab"]
    return x, result, y, [[x for x in range(n)] for n in range(3)]


def walrus():
    values = [last := i for i in range(5)]
    if (n := len(values)) > 3:
        return n, last, [y for x in values if (y := x * 2) > 4]


def generators():
    def count(n):
        while n:
            got = yield n
            n = got if got is not None else n - 1
        return "end"

    def outer():
        result = yield from count(3)
        yield result

    g = count(5)
    return list(count(3)), list(outer()), next(g), g.send(2), next(g)


def generator_with_finally():
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        except ValueError:
            log.append("value")
            yield "handled"
        finally:
            log.append("finally")

    g = numbers()
    next(g)
    handled = g.throw(ValueError)
    g.close()
    h = numbers()
    next(h)
    h.close()
    return handled, log


def infinite_generator():
    def fibonacci():
        a, b = 0, 1
        while True:
            yield a
            a, b = b, a + b

    return [x for _, x in zip(range(10), fibonacci())]


def coroutines():
    async def add(a, b):
        await asyncio.sleep(0)
        return a + b

    async def main():
        values = await asyncio.gather(add(1, 2), add(3, 4))
        return values, [await add(i, i) for i in range(3)]

    coroutine = main()
    coroutine.close()

    @types.coroutine
    def pause(x):
        return (yield x)

    async def drive():
        return [await pause(1), await pause(2)]

    c = drive()
    result = [c.send(None), c.send("a")]
    try:
        c.send("b")
    except StopIteration as e:
        return result, e.value


def async_things():
    class Aiter:
        def __init__(self, n):
            self.n = n

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.n:
                raise StopAsyncIteration
            self.n -= 1
            return self.n

    class Manager:
        async def __aenter__(self):
            return "entered"

        async def __aexit__(self, kind, value, tb):
            return kind is KeyError

    async def agen(n):
        try:
            for i in range(n):
                yield i
        finally:
            log.append("closed")

    log = []

    async def main():
        async for x in Aiter(3):
            log.append(x)
        else:
            log.append("else")
        async with Manager() as m:
            log.append(m)
            raise KeyError
        log.append([x async for x in agen(3) if x])
        async for x in agen(5):
            if x == 2:
                break
        return {x: x async for x in Aiter(2)}

    c = main()
    try:
        c.send(None)
    except StopIteration as e:
        return log, e.value


def try_else_finally(n):
    log = []
    for i in range(n):
        try:
            log.append(1 / (i - 2))
            if i == 3:
                continue
            if i == 4:
                break
        except ZeroDivisionError as e:
            log.append(str(e))
        else:
            log.append("else")
        finally:
            log.append("finally")
    else:
        log.append("no break")
    return log


def nested_try():
    log = []
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            log.append(repr(e))
            try:
                raise ValueError("b") from e
            finally:
                log.append("inner")
    except ValueError as e:
        log.append((repr(e), repr(e.__cause__), repr(e.__context__)))
    return log


def return_in_finally():
    def f(x):
        try:
            return x
        finally:
            x += 1
            log.append(x)

    log = []
    return f(1), log


def reraise():
    def f():
        try:
            raise LookupError("x")
        except LookupError:
            raise

    try:
        f()
    except LookupError as e:
        return e.args


def exception_groups():
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), ExceptionGroup("h", [ValueError(3), OSError(4)])])
    except* ValueError as e:
        log.append(len(e.exceptions))
    except* (KeyError, OSError) as e:
        log.append([type(x).__name__ for x in e.exceptions])
    return log


def with_blocks():
    p = Point(1, 1)
    log = []
    with p as x:
        log.append(x)
        raise ValueError
    with Point(2, 0) as a, Point(3, 0) as b:
        log.append((a, b))
    try:
        with Point(5, 5) as c:
            raise KeyError(c)
    except KeyError as e:
        log.append(e.args)
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    for i in range(3):
        with Point(i, i):
            if i == 1:
                continue
            log.append(i)
    return log, p


def return_from_with():
    with Point(3, 3) as x:
        for i in range(5):
            with Point(i, i):
                if i == 2:
                    return x, i


@contextlib.contextmanager
def managed(log):
    log.append("enter")
    try:
        yield 1
    except KeyError:
        log.append("handled")
    finally:
        log.append("exit")


def context_manager_function():
    log = []
    with managed(log) as x:
        log.append(x)
    with managed(log):
        raise KeyError
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log))
        stack.callback(log.append, "callback")
    return log


def match_statement(*subjects):
    def kind(x):
        match x:
            case 0 | 1:
                return "bit"
            case int(n) if n < 0:
                return "negative", n
            case str() as s:
                return "str", s
            case [a, b]:
                return "pair", a, b
            case [first, *rest]:
                return "sequence", first, rest
            case {"type": t, **others}:
                return "mapping", t, others
            case Point(x=0, y=y):
                return "on the axis", y
            case Point(a, b):
                return "point", a, b
            case None:
                return "none"
            case _:
                return "other"

    return [kind(x) for x in (0, 1, -5, "s", [1, 2], (1, 2, 3), {"type": "t", "a": 1}, Point(0, 5), Point(1, 2), None, 9.5, {})]


def star_arguments():
    def f(a, /, b, *args, c=3, d, **kwargs):
        return a, b, args, c, d, kwargs

    items, options = [1, 2, 3], {"d": 4, "e": 5}
    return f(*items, **options), f(*items, *items, c=0, **options, **{"z": 1}), f(1, b=2, d=3), max(*items), dict(**options)


def many_arguments():
    def f(*args, **kwargs):
        return sum(args), len(kwargs)

    return f(*range(300)), f(*[1] * 100, **{f"k{i}": i for i in range(100)}), max(*range(200))


def wrong_arguments():
    def f(a, b):
        return a

    def error(g):
        try:
            return g()
        except TypeError as e:
            return str(e).split(")")[-1]

    return error(lambda: f(1)), error(lambda: f(1, 2, 3)), error(lambda: f(1, c=2)), error(lambda: len()), error(lambda: 1 + "")


def class_bodies():
    class Base:
        registry = []
        x = [i for i in range(3)]

        def __init_subclass__(cls, **options):
            cls.registry.append((cls.__name__, options))

        def method(self):
            return "base"

        @staticmethod
        def static(a):
            return a * 2

        @classmethod
        def make(cls, *args):
            return cls.__name__, args

        @property
        def value(self):
            return self.x[1]

    class Derived(Base, option=1):
        y: int = 5

        def method(self):
            return "derived", super().method(), super(Derived, self).method(), __class__.__name__

    class Meta(type):
        def __call__(cls, *args):
            return "made", super().__call__(*args)

        def __new__(mcls, name, bases, namespace):
            namespace["added"] = len(namespace)
            return super().__new__(mcls, name, bases, namespace)

    class Made(metaclass=Meta):
        def __repr__(self):
            return "Made"

    d = Derived()
    return (d.method(), d.static(4), Derived.static(3), d.make(1), d.value, Base.registry, Derived.y, repr(Made()),
            Made.added > 0, Derived.__annotations__)


def decorators():
    def twice(f):
        @functools.wraps(f)
        def wrapper(*args):
            return f(f(*args))
        return wrapper

    def with_argument(n):
        def decorate(f):
            return lambda x: f(x) + n
        return decorate

    @with_argument(10)
    @twice
    def increment(x):
        return x + 1

    @functools.lru_cache
    def square(x):
        return x * x

    @functools.singledispatch
    def show(x):
        return "any"

    @show.register
    def _(x: int):
        return "int"

    return increment(1), square(3), square(3), show(1), show("s")


def descriptors():
    class Typed:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner):
            return self if obj is None else getattr(obj, self.name, 0)

        def __set__(self, obj, value):
            setattr(obj, self.name, int(value))

    class C:
        x = Typed()

        def __getattr__(self, name):
            return name.upper()

    c = C()
    c.x = "5"
    c.x += 1
    return c.x, c.other, c.__dict__


def data_classes():
    @dataclasses.dataclass(order=True)
    class Item:
        name: str
        price: float = 1.0
        tags: list = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        x: int

    a, b = Item("a"), Item("b", 2.0)
    a.tags.append(1)
    try:
        Frozen(1).x = 2
    except dataclasses.FrozenInstanceError as e:
        frozen = str(e)
    return a < b, a == Item("a", 1.0, [1]), repr(a), dataclasses.asdict(b), frozen, Frozen(3).x


def enums():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    return Color.RED.name, Color(2).value, [c.name for c in Color], Color.RED is Color["RED"], Color.RED == Color.BLUE


def operators():
    a, b = Point(1, 2), Point(3, 4)
    c = a + b
    a += b
    xs = [1, 2]
    ys = xs
    ys += [3]
    s = {1, 2}
    s |= {3}
    d = {"a": 1}
    d |= {"b": 2}
    n = 7
    n //= 2
    n **= 3
    n <<= 1
    n ^= 5
    return c, a, xs, s, d, n, -b, ~n, not b, b[0], 3 in b, a < b, b == Point(3, 4), len(b), b(1, k=2), 5 % 3, 2 @ Matrix() if 0 else 0


class Matrix:
    def __rmatmul__(self, other):
        return "matmul"


def matrix_product():
    return 2 @ Matrix()


def slices():
    xs = list(range(10))
    xs[2:4] = [9, 9, 9]
    del xs[0:2]
    xs[::3] = [0] * len(xs[::3])
    b = bytearray(b"hello")
    b[1:3] = b"EE"
    return xs[1:5], xs[::-1], xs[-2:], "abc"[1:], b, (1, 2, 3)[:2]


def targets():
    o = Point(0, 0)
    d, xs = {}, [0, 0]
    o.x, d["k"], xs[1], (a, *b), *c = 1, 2, 3, "xyz", 5, 6
    for o.y, d["i"] in [(1, 2), (3, 4)]:
        pass
    with Point(8, 0) as d["w"]:
        pass
    return o, d, xs, a, b, c


def conditions(xs=(0, 1, "", "a", [], [0], None, 2.5)):
    return [(x and 1, x or 2, not x, 3 if x else 4, x is None, 1 < len(str(x)) < 4) for x in xs]


def loops():
    log = []
    i = 0
    while i < 10:
        i += 1
        if i % 2:
            continue
        if i > 7:
            break
        log.append(i)
    else:
        log.append("never")
    for x, (y, z) in enumerate(zip("ab", "cd")):
        log.append((x, y, z))
    for _ in []:
        pass
    else:
        log.append("else")
    for i in reversed(range(3)):
        for j in range(i):
            if j:
                break
        else:
            log.append(i)
    return log


def strings():
    name, n, width = "x", 3.14159, 8
    return f"{name!r:>{width}}|{n:.2f}|{n=}|{{}}", "%s-%d" % (name, 3), "{0}{0}{a}".format(name, a=[1]), ",".join(map(str, range(3)))


def unpacking():
    a, b = 1, 2
    a, b = b, a
    (c, d), *e = [(1, 2), 3, 4]
    *f, g = "abc"
    try:
        x, y = [1, 2, 3]
    except ValueError as error:
        return a, b, c, d, e, f, g, str(error)


def dict_displays():
    d = {"a": 1, **{"b": 2}, "c": 3}
    return {**d, "a": 5}, [*d, *d.values()], {*d, "z"}, dict(d, e=5), d.items() >= {("a", 1)}


def recursion():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def walk(tree):
        return sum(walk(t) if isinstance(t, list) else t for t in tree)

    return fact(20), walk([1, [2, [3, [4]]]])


def deep_recursion():
    def down(n):
        return down(n + 1)

    try:
        down(0)
    except RecursionError:
        return "too deep"


def imports():
    import json
    import os.path as p
    from collections import OrderedDict, deque as d

    return json.dumps({"a": [1, None, True]}), p.join("a", "b"), OrderedDict(a=1), d([1], maxlen=1)


def executed_code():
    namespace = {}
    exec("def f(x):\n    y = [i + x for i in range(3)]\n    return y\nz = f(1)", namespace)
    return namespace["z"], namespace["f"](2), eval("[a for a in range(n)]", {"n": 2})


def type_statements():
    def first[T](xs: list[T]) -> T:
        return xs[0]

    class Box[T]:
        def __init__(self, value: T):
            self.value = value

    type Numbers = list[int]
    return first([1]), Box[int](3).value, Numbers.__value__


def assertions():
    namespace = {}
    exec("def check(x):\n    assert x == [1], ('message', x)", namespace)
    namespace["check"]([1])
    try:
        namespace["check"]([])
    except AssertionError as e:
        return e.args


def local_names():
    a = 1
    b = 2
    return sorted(locals()), eval("a + b"), "a" in dir()


def chained_comparisons():
    calls = []

    def f(x):
        calls.append(x)
        return x

    return f(1) < f(2) < f(3), f(3) < f(2) < f(1), calls


def sorting():
    points = [Point(3, 1), Point(1, 2), Point(2, 3)]
    return sorted(points), min(points), sorted(points, key=lambda p: p.y, reverse=True), max([1, 5], key=abs)


def string_methods():
    return "a,b".split(","), "abc".upper(), " x ".strip(), "abc".replace("b", "d"), b"ab".hex(), "{:>5}".format(3), "é".encode()


def defaults_are_shared():
    def f(x, seen=[]):
        seen.append(x)
        return list(seen)

    return f(1), f(2)


def reraised_from_generator():
    def g():
        try:
            yield 1
        except KeyError as e:
            raise ValueError("from") from e

    it = g()
    next(it)
    try:
        it.throw(KeyError("k"))
    except ValueError as e:
        return repr(e.__cause__)


def exception_state():
    log = []
    try:
        raise KeyError
    except KeyError:
        log.append(sys.exc_info()[0].__name__)
        try:
            raise ValueError
        except ValueError:
            log.append(sys.exc_info()[0].__name__)
        log.append(sys.exc_info()[0].__name__)
    log.append(sys.exc_info()[0])
    return log


def unbound_local():
    try:
        x
    except NameError as e:
        kind = type(e).__name__
    for x in []:
        pass
    return kind


def wide_jumps(n=400):
    total = 0
    for i in range(n):
        if i % 2: total += 1
        elif i % 3: total += 2
        elif i % 5: total += 3
        else: total -= 1
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
        a = [total, i]; b = {"a": a}; c = (a, b); total += len(a) + len(b) + len(c)
    return total


def many_names():
    source = "\n".join(f"    v{i} = o.a{i} = [{i}]" for i in range(400))
    source += "\n    return sum(" + " + ".join(f"len(v{i} + o.a{i})" for i in range(400)) + " for _ in range(2))"
    namespace = {}
    exec("class O: pass\ndef f(o):\n" + source, namespace)
    return namespace["f"](namespace["O"]())


CORPUS = [
    nested_functions, nested_rebinding, late_binding, deleted_closure, lambdas, comprehensions, comprehension_scopes, walrus,
    generators, generator_with_finally, infinite_generator, coroutines, async_things, lambda: try_else_finally(3),
    lambda: try_else_finally(7), nested_try, return_in_finally, reraise, exception_groups, with_blocks, return_from_with,
    context_manager_function, match_statement, star_arguments, many_arguments, wrong_arguments, class_bodies, decorators,
    descriptors, data_classes, enums, operators, matrix_product, slices, targets, conditions, loops, strings, unpacking,
    dict_displays, recursion, deep_recursion, imports, executed_code, type_statements, assertions, local_names,
    chained_comparisons, sorting, string_methods, defaults_are_shared, reraised_from_generator, exception_state,
    unbound_local, wide_jumps, many_names,
]
PLAIN = {function: function() for function in CORPUS if function is not defaults_are_shared}


@pytest.mark.parametrize("function", CORPUS, ids=lambda f: f.__name__)
def test_same_result(function):
    expected = PLAIN.get(function)
    if expected is None:
        expected = function()
    for _ in range(2):
        result = run(function)
        assert result == expected
        assert repr(result) == repr(expected)
    assert function() == expected


# Those with so many barriers that hardly an attempt would get to its end are left out.
@pytest.mark.parametrize("function", [f for f in CORPUS if f not in (many_names, wide_jumps, deep_recursion)],
                         ids=lambda f: f.__name__)
def test_same_result_after_aborts(function):
    expected = PLAIN.get(function) or function()
    run(function)
    try:
        for seed in range(6):
            core.inject_aborts(0.02, seed)
            assert repr(run(function)) == repr(expected)
    finally:
        core.inject_aborts(0, 0)


# ---- Aborts and handlers -------------------------------------------------------------------------------------------------


def bare_except(o):
    try:
        o.x = 2
        o.x
    except:
        o.swallowed = True


def except_base_exception(o):
    try:
        o.x = 2
        o.x
    except BaseException:
        o.swallowed = True


def except_in_a_loop(o):
    while True:
        try:
            o.x = 2
            len([])
        except BaseException:
            o.swallowed = True
            continue


# The compiler warns of them, rightly.
FINALLY = """
def finally_with_return(o):
    try:
        o.x = 2
        o.x
    finally:
        return "swallowed"


def finally_with_break(o):
    for _ in range(3):
        try:
            o.x = 2
            o.x
        finally:
            break
    return "swallowed"


def finally_with_continue(o):
    for _ in range(3):
        try:
            o.x = 2
        finally:
            continue
    return "swallowed"
"""
with warnings.catch_warnings(action="ignore"):
    exec(compile(FINALLY, __file__, "exec"))


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return True

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        return True


def exit_returns_true(o):
    with Swallowing():
        o.x = 2
        o.x
    return "swallowed"


def suppressed(o):
    with contextlib.suppress(BaseException):
        o.x = 2
        o.x
    return "swallowed"


def exit_stack(o):
    with contextlib.ExitStack() as stack:
        stack.push(lambda *exc: True)
        o.x = 2
        o.x
    return "swallowed"


def except_star(o):
    try:
        o.x = 2
        o.x
    except* Exception:
        o.swallowed = True
    finally:
        o.swallowed = True


def in_a_generator(o):
    def g():
        while True:
            try:
                o.x = 2
                yield o.x
            except BaseException:
                yield "swallowed"

    return list(zip(range(3), g()))


def in_a_coroutine(o):
    async def c():
        async with Swallowing():
            o.x = 2
            o.x
        return "swallowed"

    try:
        c().send(None)
    except BaseException as e:
        return e


def getattr_default(o):
    class C:
        @property
        def value(self):
            o.x = 2
            return o.x

    return hasattr(C(), "value"), getattr(C(), "value", "swallowed")


def in_a_comparison(o):
    class C:
        def __eq__(self, other):
            try:
                return o.x
            except BaseException:
                return "swallowed"

        __hash__ = None

    return C() in [C(), C()]


HANDLERS = [
    bare_except, except_base_exception, except_in_a_loop, *(globals()[f"finally_with_{how}"] for how in ("return", "break", "continue")),
    exit_returns_true, suppressed, exit_stack, except_star, in_a_generator, in_a_coroutine, getattr_default, in_a_comparison,
]


class Thing:
    def __init__(self):
        self.x = 1


@trusted
def doom():
    """Abort this attempt at its next barrier; the next attempt goes undisturbed."""
    core.on_abort(core.inject_aborts, 0.0, 0)
    core.inject_aborts(CERTAINLY, 1)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda f: f.__name__)
def test_no_handler_swallows_an_abort(handler):
    attempts, got_past = [], []

    @trusted
    def first():
        attempts.append(1)
        return len(attempts) == 1

    @trusted
    def after():
        got_past.append(1)

    def attempt(o):
        if first():
            doom()
            handler(o)
            after()
        return vars(o).copy()

    def familiar(o):
        if handler is not except_in_a_loop:
            handler(o)

    run(familiar, Thing())
    o = Thing()
    core.inject_aborts(HARDLY_EVER, 0)
    try:
        assert run(attempt, o) == {"x": 1}
    finally:
        core.inject_aborts(0, 0)
    assert len(attempts) == 2 and not got_past


# ---- Lines -----------------------------------------------------------------------------------------------------------


def failing(depth, o):
    if depth:
        xs = [o.x for _ in range(3)]
        return failing(
            depth - 1,
            o,
        )
    value = o.x
    return [value,
            o.x,
            o.missing]


def failing_in_handlers(_, o):
    try:
        with Swallowing():
            o.x
        o.missing
    except AttributeError:
        for i in range(3):
            if i == 2:
                {}[i]


def failing_generator(_, o):
    def g():
        yield o.x

        yield o.missing

    return sum(g())


def lines(function):
    try:
        function(2, Thing())
    except Exception as e:
        return [(f.name, f.lineno, f.line, f.colno, f.end_colno) for f in traceback.extract_tb(e.__traceback__)
                if f.filename == __file__ and f.name not in ("lines", "run", "<lambda>")]


@pytest.mark.parametrize("function", [failing, failing_in_handlers, failing_generator], ids=lambda f: f.__name__)
def test_tracebacks_show_the_users_lines(function):
    plain = lines(function)
    assert plain
    assert lines(lambda *args: run(function, *args)) == plain
    linecache.checkcache(__file__)


def test_frames_show_the_users_function():
    def function(a, b=2, *c, d, **e):
        f = sys._getframe()
        return f.f_lineno - f.f_code.co_firstlineno, f.f_code is function.__code__, sorted(f.f_locals)

    assert run(lambda: function(1, d=3)) == function(1, d=3)


# ---- Builtins under other names --------------------------------------------------------------------------------------


REBINDING = """
def numbers(n):
    total = []
    for i in range(n):
        total += [i % 3]
    return total

def size(x):
    return len(x) + 1

def sizes(xs):
    return [len(x) * 2 for x in xs]
"""


class Surprise:
    """What another `range` or `len` may give: nothing like a number."""

    def __init__(self, value):
        self.value = value

    def __mod__(self, other):
        return f"{self.value} mod {other}"

    def __add__(self, other):
        return f"{self.value} plus {other}"

    def __mul__(self, other):
        return f"{self.value} times {other}"


def module():
    namespace = {"__name__": "rebinding", "__builtins__": builtins}
    exec(REBINDING, namespace)
    return namespace


def test_range_and_len_rebound_later():
    m = module()
    assert run(m["numbers"], 4) == [0, 1, 2, 0]
    assert run(m["size"], "abc") == 4 and run(m["sizes"], ["a", "bc"]) == [2, 4]
    m["range"] = lambda n: [Surprise(i) for i in builtins.range(n)]
    m["len"] = lambda x: Surprise(builtins.len(x))
    assert run(m["numbers"], 2) == ["0 mod 3", "1 mod 3"]
    assert run(m["size"], "abc") == "3 plus 1" and run(m["sizes"], ["a"]) == ["1 times 2"]
    del m["range"], m["len"]
    assert run(m["numbers"], 4) == [0, 1, 2, 0] and run(m["size"], "abc") == 4


def test_range_and_len_rebound_before():
    m = module()
    m["range"] = lambda n: [Surprise(i) for i in builtins.range(n)]
    m["len"] = lambda x: Surprise(builtins.len(x))
    assert run(m["numbers"], 2) == ["0 mod 3", "1 mod 3"]
    assert run(m["size"], "abc") == "3 plus 1"


def test_builtins_replaced(monkeypatch):
    namespace = {"__name__": "codes", "__builtins__": builtins}
    exec("def code(c):\n    return ord(c) + 1\n", namespace)
    assert run(namespace["code"], "a") == 98
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "ord", Surprise)
        result = run(namespace["code"], "a")
    assert result == "a plus 1"


def test_globals_rebound_after_the_first_call():
    namespace = {"__name__": "late", "__builtins__": builtins}
    exec("limit = 1\ndef get():\n    return limit\n", namespace)
    assert run(namespace["get"]) == 1
    namespace["limit"] = 2
    assert run(namespace["get"]) == 2
    exec("def change(to):\n    global limit\n    limit = to\n", namespace)
    run(namespace["change"], 3)
    assert run(namespace["get"]) == 3


def test_one_code_in_two_modules():
    code = compile("def f(n):\n    return [len(x) + 1 for x in n]\n", "shared", "exec")
    one, two = {"__builtins__": builtins}, {"__builtins__": builtins, "len": lambda x: Surprise(x)}
    exec(code, one)
    exec(code, two)
    assert run(one["f"], ["ab"]) == [3]
    assert run(two["f"], ["ab"]) == ["ab plus 1"]


def test_the_namespace_of_a_function_is_its_variables():
    def look(a):
        b = a.x + a.y
        c = [b, a.x]
        frame = sys._getframe()
        exec("d = 1")
        return sorted(locals()), sorted(frame.f_locals), sorted(vars()), eval("b"), c

    point = types.SimpleNamespace(x=1, y=2)
    assert run(look, point) == look(point)


def test_a_block_begins_a_transaction_within_a_function():
    """What the function has of barriers before the block has to act in it."""

    def step(a):
        before = a.x + a.y
        with transaction.atomic:
            a.x = a.x + 1
            a.y = a.y + before
        return a.x, a.y

    point = types.SimpleNamespace(x=1, y=2)
    assert step(point) == (2, 5)
    assert step(point) == (3, 12)


# ---- Syntax of late -----------------------------------------------------------------------------------------------------


def defaults_of_type_parameters():
    class A[T = int, **P = [int]]:
        pass

    def f[T = int](x: T) -> T:
        return x

    type X[T = int] = list[T]

    def g[*Ts = *tuple[int, str]]():
        pass

    return [p.__default__ for p in A.__type_params__], f(3), X.__value__, repr(g.__type_params__[0].__default__)


def template_strings():
    name = 255
    template = t"{name!r:>{5}} {name!a} {name} {name:x}{name!s}"
    return template.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in template.interpolations]


def comprehensions_over_outer_names():
    A, T, B = 1, 2, 3

    class C[U]:
        A = 4
        x = [T for T in (T, B)]
        y = [(lambda: (B, T))() for B in (A, T)]
        type Alias[V: ([T for T in (T, [1])], A)] = [(T, A) for T in (T, B)]

    return C.x, C.y, C.Alias.__value__, C.Alias.__type_params__[0].__constraints__, A, T, B


@pytest.mark.parametrize("function", [defaults_of_type_parameters, template_strings, comprehensions_over_outer_names])
def test_syntax_of_late(function):
    assert repr(run(function)) == repr(function())
