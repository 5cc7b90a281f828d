"""What the doubtful ones among the interpreter's instructions do in a transaction.  (That each has its line in the table of
barriers, the build checks.)
"""

import collections
import contextlib
import opcode
import operator
import types

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from meeting import ALONE, APART, CONFLICT, meet, run
from rolled_back import rolled_back
from tornado.stm._engine import Abort
from tornado.stm.core import trusted

activation.activate()

def test_common_constants_are_classes_or_functions_that_no_transaction_changes():
    for constant in opcode._common_constants:
        assert isinstance(constant, (type, types.BuiltinFunctionType))


def test_special_methods_are_those_of_with():
    # LOAD_SPECIAL looks them up in the class; the call that follows has a barrier, and so has what it returns.
    assert set(opcode._special_method_names) == {"__enter__", "__exit__", "__aenter__", "__aexit__"}


# ---- What doubtful instructions do in a transaction ------------------------------------------------------------------


def method(name):
    return lambda obj: getattr(obj, name)()


def conflict(make, first, second):
    """Do two methods of an object get in each other's way, whichever comes first?  Neither may run alone."""
    outcome = meet(lambda: (make(),), method(first), method(second))
    assert outcome in (APART, CONFLICT)
    return outcome == CONFLICT


@trusted
def abort_once(attempts):
    """End the first attempt here; one that runs alone cannot be ended."""
    attempts.append(core.is_exclusive())
    if len(attempts) == 1:
        assert not core.is_exclusive(), "it runs alone"
        raise Abort


def retried(function, *args):
    """What the function returns in an attempt after one that was aborted at its end."""
    run(lambda: function(*args))  # what runs alone the first time
    attempts = []

    def attempt():
        result = function(*args)
        abort_once(attempts)
        return result

    return run(attempt)


class Prepared(type):
    namespace = {}

    @classmethod
    def __prepare__(mcs, name, bases):
        return mcs.namespace

    def __new__(mcs, name, bases, namespace):
        return super().__new__(mcs, name, bases, dict(namespace))


def test_names_in_a_class_body_may_be_those_of_a_shared_dict():
    # LOAD_NAME, STORE_NAME, DELETE_NAME
    Prepared.namespace = namespace = {"counter": 0}

    def make():
        class Made(metaclass=Prepared):
            counter = counter + 1  # noqa: F821
            gone = 1
            del gone

        return Made.counter

    assert retried(make) == 2
    assert namespace["counter"] == 2 and "gone" not in namespace


def test_a_name_that_is_missing_in_a_class_body_may_be_made():
    Prepared.namespace = namespace = collections.defaultdict(int)

    def make():
        class Made(metaclass=Prepared):
            counter = missing + 1  # noqa: F821

        return Made.counter

    assert rolled_back(lambda namespace: make(), namespace) == (True, None)
    assert retried(make) == 1 and namespace["missing"] == 0


def test_a_global_that_is_missing_may_be_made():
    # LOAD_GLOBAL
    namespace = collections.defaultdict(int)
    exec("def read():\n    return missing + 1", namespace)
    run(namespace["read"])
    del namespace["missing"]
    finished, *_ = rolled_back(lambda namespace: namespace["read"](), namespace)
    assert finished is False and namespace["missing"] == 0


def test_annotations_of_a_class_body_may_lie_in_a_shared_dict():
    # SETUP_ANNOTATIONS
    Prepared.namespace = namespace = {}
    functions = {}
    code = compile(
        "from __future__ import annotations\ndef make(Prepared):\n    class Made(metaclass=Prepared):\n        x: int\n",
        "<test>", "exec",
    )
    exec(code, functions)
    attempts = []

    def attempt():
        seen.append("__annotations__" in namespace)
        functions["make"](Prepared)
        abort_once(attempts)

    seen = trusted_list()
    run(functions["make"], Prepared)
    del namespace["__annotations__"]
    run(attempt)
    assert seen == [False, False]


class trusted_list(list):
    """A list that an abort leaves as it is."""

    append = trusted(lambda self, item: list.append(self, item))


def test_a_class_body_reads_the_variables_around_it():
    # LOAD_FROM_DICT_OR_DEREF
    def make(x):
        def step():
            nonlocal x
            x += 1

            class Inner:
                y = x

            return Inner.y

        return step

    assert retried(make(0)) == 2


class Slotted:
    __slots__ = ("x",)

    def __init__(self):
        self.x = 0


class Derived(Slotted):
    __slots__ = ()

    def read(self):
        return super().x

    def write(self):
        self.x += 1


class Described(Exception):
    def read(self):
        return super().args

    def write(self):
        self.args = (self.args[0] + 1,)


@pytest.mark.parametrize("make", [Derived, lambda: Described(0)])
def test_super_reads_what_the_object_holds(make):
    # LOAD_SUPER_ATTR
    assert conflict(make, "read", "write")


class Awaited:
    """An awaitable that two tasks await at once."""

    def __await__(self):
        yield self


async def await_it(awaitable):
    await awaitable


def test_matching_a_class_reads_the_attributes():
    # MATCH_CLASS
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self):
            self.x = self.y = self.z = 0

        def positional(self):
            match self:
                case Point(0, 0):
                    return True

        def by_name(self):
            match self:
                case Point(z=0):
                    return True

        def write_y(self):
            self.y = 1

        def write_z(self):
            self.z = 1

    class Asked(type):
        def __getattr__(cls, name):
            raise AttributeError(name)

    class PointOfAnother(Point, metaclass=Asked):
        def by_name(self):
            match self:
                case PointOfAnother(z=0):
                    return True

    assert conflict(Point, "positional", "write_y")
    assert conflict(Point, "by_name", "write_z")
    assert conflict(PointOfAnother, "by_name", "write_z")
    assert not conflict(PointOfAnother, "by_name", "write_y")
    assert not conflict(Point, "by_name", "write_y")
    assert not conflict(Point, "positional", "write_z")


class Plain(type):
    __match_args__ = ("x",)


class Computed(type):
    @property
    def __match_args__(cls):
        return ("x",)


@pytest.mark.parametrize("meta", [Plain, Computed])
def test_which_attributes_a_pattern_reads_the_metaclass_may_say(meta):
    class Point(metaclass=meta):
        x = 0

        def match(self):
            match self:
                case Point(0):
                    return True

        def write(self):
            self.x = 1

    assert meet(lambda: (Point(),), method("match"), method("write")) == ALONE


class Keyed(dict):
    def match(self):
        match self:
            case {"a": 1}:
                return True

    def write_a(self):
        self["a"] = 2


def test_matching_a_mapping_reads_its_keys():
    # MATCH_KEYS
    assert conflict(lambda: Keyed(a=1, b=1), "match", "write_a")


class OwnAssignment(dict):
    """Inherits how a key is deleted, but not from where a plain dict has it."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)

    def delete(self):
        del self["a"]
        self["a"] = 1

    def read(self):
        return self["a"]


def test_a_dict_whose_class_says_how_a_key_is_set_deletes_as_any():
    # DELETE_SUBSCR
    def delete(d):
        del d["a"]

    assert rolled_back(delete, OwnAssignment(a=1, b=2)) == (True, None)
    assert conflict(lambda: OwnAssignment(a=1), "delete", "read")


class SplitBy(ExceptionGroup):
    pass


def test_how_a_group_is_split_may_be_an_attribute():
    # CHECK_EG_MATCH
    def make():
        parts = [ValueError(1)]
        group = SplitBy("some", [ValueError(1)])
        group.split = parts.count
        return group, parts

    def split(group, parts):
        try:
            raise group
        except* KeyError:
            pass

    def ignore(group, parts):
        try:
            split(group, parts)
        except (TypeError, SplitBy):
            pass

    assert meet(make, ignore, lambda group, parts: parts.append(1)) == ALONE


class Ending:
    """An iterator that ends by an exception which others know."""

    def __init__(self):
        self.end = StopIteration(1)

    def __iter__(self):
        return self

    def __next__(self):
        raise self.end

    def delegate(self):
        def delegating():
            yield (yield from self)

        return next(delegating())

    def write(self):
        self.end.value = 2


def test_the_value_of_yield_from_is_that_of_a_shared_exception():
    # SEND
    assert conflict(Ending, "delegate", "write")


class Raised:
    """One exception that several transactions raise and look at."""

    def __init__(self):
        self.error = ValueError("shared")
        self.other = KeyError("other")

    def throw(self):
        try:
            raise self.error
        except ValueError:
            pass

    def throw_from(self):
        try:
            raise self.error from self.other
        except ValueError:
            pass

    def traceback(self):
        return self.error.__traceback__

    def cause(self):
        return self.error.__cause__

    def context(self):
        return self.error.__context__

    def suppresses(self):
        return self.error.__suppress_context__


@pytest.mark.parametrize("look", ["traceback", "cause", "context", "suppresses"])
@pytest.mark.parametrize("throw", ["throw", "throw_from"])
def test_what_raising_sets_is_read_under_the_same_lock(throw, look):
    # RAISE_VARARGS
    assert conflict(Raised, throw, look)


def depth(error):
    n, tb = 0, error.__traceback__
    while tb is not None:
        n, tb = n + 1, tb.tb_next
    return n


class Single(Exception):
    """There is one of them."""

    made = []

    def __new__(cls, *args):
        if not cls.made:
            cls.made.append(super().__new__(cls))
        return cls.made[0]

    def throw(self):
        with contextlib.suppress(Single):
            raise Single

    def throw_from(self):
        with contextlib.suppress(Single):
            raise Single from ValueError()

    def throw_into(self):
        def wait():
            with contextlib.suppress(Single):
                yield
            yield

        generator = wait()
        next(generator)
        generator.throw(Single)

    def look(self):
        return self.__traceback__, self.__cause__


@pytest.mark.parametrize("throw", ["throw", "throw_from", "throw_into"])
def test_a_class_that_is_raised_may_give_an_exception_that_others_know(throw):
    # RAISE_VARARGS
    assert meet(lambda: (Single(),), method(throw), method("look")) in (CONFLICT, ALONE)


def test_a_class_that_is_raised_may_be_made_by_c_code():
    def make_and_raise(things):
        class Made(Exception):
            __init__ = things.clear

        with contextlib.suppress(Made):
            raise Made

    rolled_back(make_and_raise, [1, 2])


class Unlike(Exception):
    def __new__(cls, *args):
        return KeyError(*args)


class Number(Exception):
    def __new__(cls):
        return 5


def raise_class(cls, cause=None):
    try:
        raise cls from cause
    except Exception as e:
        return repr(e), repr(e.__context__)


@pytest.mark.parametrize("classes", [(Unlike,), (Number,), (ValueError, Number), (ValueError, Unlike), (None,)])
def test_a_class_that_is_raised_is_called_as_ever(classes):
    assert run(raise_class, *classes) == raise_class(*classes)


def test_what_lies_in_a_class_may_be_given_by_c_code():
    # LOAD_ATTR
    class Giving(dict):
        __get__ = operator.setitem

    giving = Giving()

    class Holder:
        given = giving

    rolled_back(lambda giving: Holder.given, giving)


def test_an_aborted_raise_leaves_traceback_and_cause():
    raised = Raised()
    raised.throw()
    before = depth(raised.error)
    attempts, seen = [], trusted_list()

    def attempt():
        seen.append((depth(raised.error), raised.error.__cause__))
        raised.throw_from()
        abort_once(attempts)

    run(lambda: Raised().throw_from())
    run(attempt)
    assert seen == [(before, None)] * 2


def resumed_twice(generator):
    """Step a generator in an attempt that is aborted, and again; returns the traceback's depth afterwards."""
    attempts = []

    def attempt():
        try:
            next(generator)
        except ValueError as e:
            n = depth(e)
            e.__context__
        else:
            n = None
        abort_once(attempts)
        return n

    return run(attempt)


def fails():
    raise ValueError("once")


def bare():
    try:
        fails()
    except ValueError:
        yield 1
        raise


def finally_():
    try:
        fails()
    finally:
        yield 1


def unmatched():
    try:
        fails()
    except (yield 1):
        pass


def deeper():
    yield from bare()


@pytest.mark.parametrize("make", [bare, finally_, deeper])
def test_what_is_raised_again_after_a_suspension_is_put_back(make):
    # RERAISE, RAISE_VARARGS without an operand
    def once():
        generator = make()
        next(generator)
        try:
            next(generator)
        except ValueError as e:
            return depth(e)

    run(once)
    generator = make()
    run(next, generator)
    run(lambda: depth(ValueError()))
    assert resumed_twice(generator) == once()


def test_an_exception_thrown_into_a_coroutine_is_put_back():
    error = ValueError("kept")

    def catch():
        try:
            yield
        except ValueError:
            yield

    def step(generator):
        generator.throw(error)

    run(lambda: (g := catch(), next(g), g.throw(ValueError())))
    generators = [catch(), catch()]
    for generator in generators:
        run(next, generator)
    run(step, generators[0])
    before = depth(error)
    attempts, seen = [], trusted_list()

    def attempt():
        seen.append(depth(error))
        step(generators[1])
        abort_once(attempts)

    run(attempt)
    assert seen == [before] * 2


def test_raising_an_exception_out_of_its_own_context_is_put_back():
    inner, outer = ValueError("inner"), KeyError("outer")

    def chain():
        try:
            try:
                raise inner
            except ValueError:
                raise outer
        except KeyError:
            pass

    def cut():
        try:
            raise outer
        except KeyError:
            try:
                raise inner
            except ValueError:
                pass

    run(chain)
    run(cut)
    inner.__context__ = None
    outer.__context__ = None
    chain()
    assert outer.__context__ is inner
    attempts, seen = [], trusted_list()

    def attempt():
        seen.append((outer.__context__, inner.__context__))
        cut()
        abort_once(attempts)

    run(attempt)
    assert seen == [(inner, None)] * 2


class Answering(ValueError):
    """Has something else under the names of what raising it sets."""

    __cause__ = property(lambda self: KeyError("the cause"))
    __traceback__ = property(lambda self: asked.append(self))
    __suppress_context__ = args = "nothing"


asked = trusted_list()


def test_what_raising_sets_comes_back_whatever_the_class_has_under_its_names():
    # RAISE_VARARGS
    fields = [vars(BaseException)[name] for name in ("__traceback__", "__context__", "__cause__", "args")]
    error, attempts, seen = Answering(), [], trusted_list()

    def fail(error):
        try:
            try:
                raise KeyError
            except KeyError:
                raise error from OSError()
        except ValueError:
            pass

    def attempt():
        seen.append([field.__get__(error) for field in fields])
        fail(error)
        abort_once(attempts)

    run(fail, Answering())
    run(attempt)
    assert seen == [[None, None, None, ()]] * 2 and not asked
    assert None not in [field.__get__(error) for field in fields]


class Group:
    def __init__(self):
        self.leaf = ValueError("leaf")
        self.leaf.add_note("first")
        self.group = ExceptionGroup("group", [ExceptionGroup("nested", [self.leaf, KeyError("k")])])
        self.group.add_note("first")

    def split(self):
        try:
            raise self.group
        except* ValueError:
            pass
        except* KeyError:
            pass

    def note(self):
        self.group.__notes__.append("more")

    def context(self):
        self.group.exceptions[0].__context__ = KeyError()


@pytest.mark.parametrize("change", ["note", "context"])
def test_splitting_a_group_reads_what_its_parts_say(change):
    # CHECK_EG_MATCH, CALL_INTRINSIC_2 INTRINSIC_PREP_RERAISE_STAR
    assert conflict(Group, "split", change)


class PartsKept(ExceptionGroup):
    """Its parts are what others have, too."""

    kept = ()

    def derive(self, parts):
        return self.kept[0]


class PartsKeptByAnotherName(PartsKept):
    derive = lambda self, parts: self.kept[0]  # noqa: E731, for its name


class GroupsThatAreKept:
    def __init__(self, cls=PartsKept):
        self.part = ExceptionGroup("part", [KeyError(2)])
        self.group = cls("group", [ValueError(1), KeyError(2)])
        self.group.kept = [self.part]
        self.group.add_note("noted")

    def split(self):
        try:
            raise self.group
        except* ValueError:
            pass

    def catch(self):
        try:
            self.split()
        except ExceptionGroup:
            pass

    def look(self):
        return self.part.__traceback__

    def context(self):
        return self.part.__context__

    def notes(self):
        return getattr(self.part, "__notes__", None)

    def told(self):
        return self.look(), self.context(), self.part.__cause__, self.part.__suppress_context__, self.notes()


@pytest.mark.parametrize("cls", [PartsKept, PartsKeptByAnotherName])
def test_splitting_a_group_changes_a_part_that_others_have(cls):
    # CHECK_EG_MATCH, CALL_INTRINSIC_2 INTRINSIC_PREP_RERAISE_STAR
    groups, attempts, seen = GroupsThatAreKept(cls), [], trusted_list()
    run(GroupsThatAreKept(cls).catch)

    def attempt():
        seen.append(groups.told())
        groups.catch()
        abort_once(attempts)

    run(attempt)
    assert seen == [(None, None, None, False, None)] * 2
    assert groups.look() is not None and groups.notes() == ["noted"]


@pytest.mark.parametrize("look", ["look", "context", "notes"])
def test_who_splits_a_group_and_who_looks_at_a_part_that_it_has(look):
    assert conflict(GroupsThatAreKept, "catch", look)

def test_a_deleted_global_comes_back():
    # DELETE_GLOBAL
    namespace = {"x": 1, "y": 2}
    exec("def delete():\n    global x\n    del x\n    return 'x' in globals()\ndef read():\n    return x", namespace)
    assert run(namespace["delete"]) is False
    namespace["x"] = 1
    attempts, seen = [], trusted_list()

    def attempt():
        seen.append(namespace["read"]())
        namespace["delete"]()
        abort_once(attempts)

    run(namespace["read"])
    run(attempt)
    assert seen == [1, 1] and "x" not in namespace


def test_comparing_views_of_memory_reads_it():
    # COMPARE_OP
    class Buffer:
        def __init__(self):
            self.data = bytearray(b"abc")
            self.view = memoryview(self.data)

        def compare(self):
            return self.view == b"abc"

        def write(self):
            self.data[0] = 0

    assert conflict(Buffer, "compare", "write")


class Hidden:
    """Python methods that give C code the objects to go on with."""

    def __init__(self):
        self.items = [1, 2, 3]
        self.table = {"a": 1}
        self.iterator = iter([1, 2, 3])
        self.generator = (x for x in (1, 2, 3))

    def __iter__(self):
        return self.iterator

    def step(self):
        for _ in self:
            break

    def unpack(self):
        first, *_ = self
        return first

    def step_directly(self):
        next(self.iterator, None)


@pytest.mark.parametrize("user", ["step", "unpack"])
def test_the_iterator_that_an_iter_method_returns_is_opened(user):
    # GET_ITER, FOR_ITER, UNPACK_EX
    assert conflict(Hidden, user, "step_directly")


def test_the_iterator_that_an_iter_method_returns_is_put_back():
    hidden = Hidden()
    run(lambda: [list(Hidden()), Hidden().step()])
    attempts = []

    def attempt():
        for x in hidden:
            break
        abort_once(attempts)
        return x

    assert run(attempt) == 1


class Mapped:
    """A mapping whose keys are a view of a dict."""

    def __init__(self):
        self.table = {"a": 1}

    def keys(self):
        return self.table.keys()

    def __getitem__(self, key):
        return 1

    def merge(self):
        return {**self}

    def call(self):
        return (lambda **kwargs: kwargs)(**self)

    def join(self):
        d = {}
        d |= self
        return d

    def insert(self):
        self.table["new"] = 1


@pytest.mark.parametrize("user", ["merge", "call", "join"])
def test_the_keys_that_a_keys_method_returns_are_opened(user):
    # DICT_UPDATE, DICT_MERGE, BINARY_OP |=
    assert conflict(Mapped, user, "insert")


class Lazy:
    def __init__(self):
        self.rows = [[1], [2]]

    def look(self):
        return [3] in (row for row in self.rows)

    def change(self):
        self.rows[1].append(3)


def test_items_that_are_made_while_they_are_looked_for_are_opened():
    # CONTAINS_OP
    assert meet(lambda: (Lazy(),), method("look"), method("change")) != APART


class Holder:
    """Objects of its own making, around something that everybody knows."""

    def __init__(self):
        self.rows = [1]
        self.data = bytearray(b"ab")

    def formatted(self):
        return f"{(self.rows,)}"

    def converted(self):
        return f"{[self.rows]!r}"

    def as_text(self):
        return str([self.rows])

    def look_for_bytes(self):
        return b"ab" in (self.data,)

    def append(self):
        self.rows.append(2)

    def write(self):
        self.data[0] = 0


@pytest.mark.parametrize("look, change", [
    ("formatted", "append"), ("converted", "append"), ("as_text", "append"), ("look_for_bytes", "write"),
])
def test_what_lies_in_an_object_of_its_own_is_opened(look, change):
    # FORMAT_SIMPLE, CONVERT_VALUE, CALL_STR_1, CONTAINS_OP
    assert conflict(Holder, look, change)


class Defaults(dict):
    """Its values are everybody's."""

    def __init__(self):
        super().__init__(here=[1])
        self.rows = [1]

    def __missing__(self, key):
        return (self.rows,)

    def interpolate(self):
        return "%(there)s" % self

    def interpolate_value(self):
        return "%(here)s" % self

    def interpolate_by_function(self):
        return operator.mod("%(there)s", self)

    def append(self):
        self.rows.append(2)

    def append_to_value(self):
        self["here"].append(2)


class Answers:
    """Not a dict at all."""

    def __init__(self):
        self.rows = [1]

    def __getitem__(self, key):
        if key == "inner":
            return "%(rows)s" % self, self.rows
        return self.rows if key == "rows" else "it is " + key

    def interpolate(self):
        return "%(rows)s" % self

    def interpolate_after_another(self):
        return "%(inner)s" % self

    def interpolate_bytes(self):
        return b"%(rows)a" % Encoded(self.rows)

    def interpolate_by_function(self):
        return operator.mod("%(rows)s", self)

    def interpolate_constants(self):
        return "%(a)s, %(b)s" % self

    def look_up(self):
        return self["rows"]

    def append(self):
        self.rows.append(2)


class Encoded:
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, key):
        return self.rows


@pytest.mark.parametrize("kind, look, change", [
    (Defaults, "interpolate", "append"), (Defaults, "interpolate_value", "append_to_value"), (Defaults, "interpolate_by_function", "append"),
    (Answers, "interpolate", "append"), (Answers, "interpolate_after_another", "append"), (Answers, "interpolate_bytes", "append"),
    (Answers, "interpolate_by_function", "append"),
])
def test_what_a_text_is_formatted_with_is_opened(kind, look, change):
    # BINARY_OP %
    assert conflict(kind, look, change)


@pytest.mark.parametrize("look", ["interpolate_constants", "look_up"])
def test_what_is_looked_up_is_not_printed(look):
    assert not conflict(Answers, look, "append")


def test_a_text_is_formatted_beside_others():
    run(Answers().interpolate)
    alone = core.stats()["exclusive_reasons"]
    assert run(Answers().interpolate) == "[1]"
    assert core.stats()["exclusive_reasons"] == alone
