"""What the interpreter calls by itself, from C, where it is no function in Python: special methods, and functions of properties."""

import functools
import gc
import json
import operator
import typing

import pytest

from interpreters import needs_engine
from tornado.stm import activation

needs_engine()

from meeting import ALONE, APART, CONFLICT, meet, run
from rolled_back import rolled_back, unraisable_exceptions  # noqa: F401, a fixture

activation.activate()


class DotDict(dict):
    __getattr__ = dict.get


class StrictDotDict(dict):
    __getattr__ = dict.__getitem__


class Getter:
    size = property(operator.attrgetter("_size"))
    first = property(operator.itemgetter(0))
    length = property(len)
    _size = 0
    items = ()

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class DerivedProperty(property):
    pass


class DerivedGetter:
    size = DerivedProperty(operator.attrgetter("_size"))
    _size = 0


def registry():
    things = {"a": 1}

    class Registry:
        __getitem__ = things.__getitem__
        __contains__ = things.__contains__
        __len__ = things.__len__

    return Registry(), things


def stepping():
    """An iterator that takes its items from another one, as ElementTree's `iterparse` makes them."""
    items = [1, 2]

    class Stepping:
        __next__ = iter(items).__next__

        def __iter__(self):
            return self

    return Stepping(), items


class Bound:
    """A descriptor like those of werkzeug's proxies: a partial object for each special method."""

    def __init__(self, function):
        self.function = function

    def __get__(self, proxy, owner=None):
        return self if proxy is None else functools.partial(self.function, object.__getattribute__(proxy, "_to"))


class Proxy:
    def __init__(self, to):
        object.__setattr__(self, "_to", to)

    __getattr__ = Bound(getattr)
    __getitem__ = Bound(operator.getitem)
    __setitem__ = Bound(operator.setitem)
    __contains__ = Bound(operator.contains)
    __len__ = Bound(len)
    __bool__ = Bound(bool)
    __class__ = property(lambda self: type(object.__getattribute__(self, "_to")))
    size = property(len)


class GivesList:
    def __get__(self, obj, owner=None):
        return list


class Posing:
    __class__ = GivesList()
    __len__ = GivesList()


class Own:
    value = 0


def of(cls, **attributes):
    def make():
        obj = cls()
        vars(obj).update(attributes)
        return (obj,)

    return make


def set_size(obj):
    obj._size = 1


#: {what: objects, what changes them, what looks at them}
READERS = {
    "dict.get": (lambda: (DotDict(a=1),), lambda d: d.update(a=2), lambda d: d.a),
    "dict.get, nothing": (lambda: (DotDict(),), lambda d: d.update(a=2), lambda d: d.a),
    "getattr": (lambda: (DotDict(a=1),), lambda d: d.update(a=2), lambda d: getattr(d, "a")),  # noqa: B009
    "hasattr": (lambda: (StrictDotDict(a=1),), lambda d: d.update(a=2), lambda d: hasattr(d, "a")),
    "dict.__getitem__": (lambda: (StrictDotDict(a=1),), lambda d: d.update(a=2), lambda d: d.a),
    "attrgetter": (of(Getter, _size=0), set_size, lambda o: o.size),
    "attrgetter, derived": (of(DerivedGetter, _size=0), set_size, lambda o: o.size),
    "itemgetter": (of(Getter, items=[1]), lambda o: o.items.append(2), lambda o: o.first),
    "len": (of(Getter, items=[1]), lambda o: o.items.append(2), lambda o: o.length),
    "proxy's attribute": (lambda: (Own(),), lambda o: setattr(o, "value", 1), lambda o: Proxy(o).value),
    "proxy's item": (lambda: ({"a": 1},), lambda d: d.update(a=2), lambda d: Proxy(d)["a"]),
    "proxy's key": (lambda: ({"a": 1},), lambda d: d.update(b=2), lambda d: "b" in Proxy(d)),
    "proxy's length": (lambda: ({"a": 1},), lambda d: d.update(b=2), lambda d: len(Proxy(d))),
    "bound item": (registry, lambda r, things: things.update(a=2), lambda r, things: r["a"]),
    "bound key": (registry, lambda r, things: things.update(b=2), lambda r, things: "b" in r),
    "bound length": (registry, lambda r, things: things.update(b=2), lambda r, things: len(r)),
    "bound step": (stepping, lambda o, items: items.append(3), lambda o, items: next(o)),
    "proxy's length by a property": (lambda: ({"a": 1},), lambda d: d.update(b=2), lambda d: Proxy(d).size),
    "proxy's truth": (lambda: ({},), lambda d: d.update(b=2), lambda d: not Proxy(d)),
}


@pytest.mark.parametrize("name", READERS)
def test_what_they_look_at_conflicts_with_a_change(name):
    make, change, look = READERS[name]
    assert meet(make, change, look) == CONFLICT
    assert meet(make, look, change) == CONFLICT


class Stack(list):
    __lshift__ = list.append


STATIC = []


class Static:
    """Of functions in C that are bound already only those are guarded that nothing is around."""

    __matmul__ = staticmethod(STATIC.append)


class Bag(set):
    __lshift__ = set.add


LOG = []


class Appending:
    logged = property(LOG.append, LOG.append, LOG.remove)


class Added(list):
    def __init__(self, *items):
        super().__init__(items)

    all_added = property(None, list.append)


def add_to(stack):
    stack << 1


def assign(added):
    added.all_added = 1


@pytest.mark.parametrize("obj", [Stack(), Bag()], ids=["list", "set"])
def test_what_they_change_is_changed_alone(obj):
    finished, *_ = rolled_back(add_to, obj)
    assert finished is False and len(obj) == 1


def test_a_static_method_in_c_is_called_alone():
    finished, *_ = rolled_back(lambda log: Static() @ 1, STATIC)
    assert finished is False and STATIC == [1]


def test_what_the_functions_of_a_property_change_is_put_back():
    rolled_back(lambda log: Appending().logged, LOG)
    rolled_back(assign, Added())


class Cached:
    """Each value is computed once, from what is there at that moment."""

    base = 0

    @property
    @functools.lru_cache  # noqa: B019
    def value(self):
        return type(self).base + self.extra

    @functools.lru_cache  # noqa: B019
    def __getattr__(self, name):
        return [name, self.extra]

    extra = 0


def test_a_cache_under_a_property_or_a_special_method_forgets_aborted_attempts():
    cached = Cached()

    def change(cached):
        cached.extra = 10
        return cached.value, cached.other

    rolled_back(change, cached)
    assert (run(lambda: cached.value), run(lambda: cached.other)) == (0, ["other", 0])


@functools.lru_cache
def numbered(cls, name):
    self = object.__new__(cls)
    self.number = numbers[0] = numbers[0] + 1
    return self


numbers = [0]


class Numbered:
    """One object for each name."""

    __new__ = numbered


class OnePerCall(type):
    __call__ = functools.lru_cache(type.__call__)


def test_a_cache_in_the_place_of_a_constructor_forgets_aborted_attempts():
    class Config(metaclass=OnePerCall):
        def __init__(self):
            numbers.append("made")

    rolled_back(lambda numbers: (Numbered("a"), Config()), numbers)
    made, config = run(lambda: (Numbered("b"), Config()))
    assert numbers[0] == made.number == 1 and numbers[1:] == ["made"]
    assert run(Config) is config


def test_a_property_in_c_that_nobody_knows_is_read_alone():
    class Referring:
        seen = property(gc.get_referrers)

    assert meet(lambda: (Referring(),), lambda o: o.seen, lambda o: None) == ALONE


Number = typing.NewType("Number", int)


class Movie(typing.TypedDict):
    name: str


class Plain(dict):
    """Such as many have."""

    __hash__ = object.__hash__
    __repr__ = dict.__repr__
    __str__ = object.__str__
    __class_getitem__ = classmethod(list)
    __ne__ = object.__ne__


class Constant(int):
    __str__ = __format__ = int.__repr__
    __eq__ = int.__eq__
    __hash__ = int.__hash__


class Same(tuple):
    __eq__ = tuple.__eq__
    __hash__ = tuple.__hash__
    __len__ = tuple.__len__


@pytest.mark.parametrize("use", [
    lambda: Same((1,)) == (1,), lambda: Number(3), lambda: Movie(name="m"), lambda: Plain(a=1)["a"], lambda: str(Plain()),
    lambda: (str(Constant(3)), Constant(3) == 3, hash(Constant(3))), lambda: Plain() != 3,
])  # fmt: skip
def test_what_everybody_has_runs_beside_others(use):
    assert meet(lambda: ([],), lambda items: use() and items.append(1), lambda items: use()) == APART


def assign_in_vain(thing):
    """As `typing` does with what a class gives that was subscribed before: `stream[int](1)`."""
    with pytest.raises(AttributeError):
        thing.__orig_class__ = int
    with pytest.raises(AttributeError):
        del thing.__orig_class__


@pytest.mark.parametrize("make", [lambda: (1, []), lambda: 3, lambda: "x", lambda: None, lambda: 1.5, lambda: [].append])
def test_an_attribute_that_an_object_in_c_cannot_have_is_refused_beside_others(make):
    use = assign_in_vain
    assert meet(lambda: (make(), []), lambda thing, items: use(thing) or items.append(1), lambda thing, items: use(thing)) == APART


class Words(str):
    """As markupsafe's: it has no dict."""

    __slots__ = ()


@pytest.mark.parametrize("use", [
    lambda words: f"{words}", lambda words: "%s" % words, lambda words: repr([words]), lambda words: json.dumps([words]),
    lambda words: [words].index(words),
])  # fmt: skip
def test_an_object_of_a_class_derived_from_str_that_has_no_attributes_is_used_beside_others(use):
    made = lambda: (Words("a"), [])  # noqa: E731
    assert meet(made, lambda words, items: (use(words), items.append(1)), lambda words, items: use(words)) == APART


def test_the_program_sees_what_it_has_put_there():
    assert type(run(lambda: Proxy({}).__len__)) is functools.partial
    assert run(lambda: (isinstance(Posing(), list), isinstance(Proxy({}), dict))) == (True, True)
    guarded, things = registry()
    assert run(lambda: guarded["a"]) == 1
    assert type(guarded).__getitem__ == things.__getitem__ and type(guarded).__getitem__.__self__ is things
    assert Cached.value.fget is vars(Cached)["value"].fget and Cached.value.fget.cache_info().currsize >= 0
