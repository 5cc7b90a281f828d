"""What the interpreter calls by itself, from C, where it is no function in Python: special methods, and functions of properties."""

import collections.abc
import contextlib
import functools
import gc
import json
import operator
import sys
import types
import typing

import pytest

from interpreters import needs_engine
from tornado.stm import activation

needs_engine()

from beside import runs_beside_others
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
    __setattr__ = Bound(setattr)
    __delattr__ = Bound(delattr)
    __class__ = property(lambda self: type(object.__getattribute__(self, "_to")))
    size = property(len)


class BoundMethod(Bound):
    def __get__(self, proxy, owner=None):
        return self if proxy is None else types.MethodType(self.function, object.__getattribute__(proxy, "_to"))


class Call(functools.partial):
    pass


class BoundCall(Bound):
    def __get__(self, proxy, owner=None):
        return self if proxy is None else Call(self.function, object.__getattribute__(proxy, "_to"))


class OtherProxy(Proxy):
    """What its descriptors give is a method, or of a class in Python, and C code all the same."""

    __getitem__ = BoundMethod(operator.getitem)
    __len__ = BoundCall(len)


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
    "proxy's item by a method": (lambda: ({"a": 1},), lambda d: d.update(a=2), lambda d: OtherProxy(d)["a"]),
    "proxy's length by a class": (lambda: ({"a": 1},), lambda d: d.update(b=2), lambda d: len(OtherProxy(d))),
    "proxy's assignment": (lambda: (Own(),), lambda o: setattr(Proxy(o), "value", 1), lambda o: o.value),
    "proxy's deletion": (of(Own, value=1), lambda o: delattr(Proxy(o), "value"), lambda o: o.value),
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


def decorated(method):
    @functools.wraps(method)
    def call(*args):
        return method(*args)

    return call


class Held:
    """Methods in Python that C code calls and whose results it looks into, by other names than they were defined by."""

    def __init__(self, items, iterator):
        self.items, self.iterator = items, iterator

    def each(self):
        return self.iterator

    __iter__ = each
    __eq__ = lambda self, other: self.items  # noqa: E731
    __hash__ = None

    @decorated
    def __lt__(self, other):
        return self.items

    @decorated
    def __contains__(self, item):
        return self.items


class HeldInDict(dict):
    def each(self):
        return self.iterator

    __iter__ = each


class HeldByClass(type):
    def each(cls):
        return cls.iterator[0]

    __iter__ = each
    __instancecheck__ = lambda cls, obj: cls.items[0]  # noqa: E731


class Holder(metaclass=HeldByClass):
    iterator, items = [None], [None]


def held():
    items = [1, 2]
    Holder.items[0], Holder.iterator[0] = items, iter(items)
    return items, Holder.iterator[0]


def loop(iterable):
    for _ in iterable:
        pass


def unpack(iterable):
    first, *rest = iterable


def in_dict(items, iterator):
    made = HeldInDict()
    made.iterator = iterator
    return made


#: what looks at a list, or an iterator over it
LOOKS = {
    "for": lambda items, iterator: loop(Held(items, iterator)),
    "unpacking": lambda items, iterator: unpack(Held(items, iterator)),
    "tuple": lambda items, iterator: tuple(Held(items, iterator)),
    "& of a view": lambda items, iterator: {1: 1}.keys() & Held(items, iterator),
    "for, a dict": lambda items, iterator: loop(in_dict(items, iterator)),
    "for, a class": lambda items, iterator: loop(Holder),
    "==": lambda items, iterator: 1 if Held(items, iterator) == 1 else 0,
    "<": lambda items, iterator: 1 if Held(items, iterator) < 1 else 0,
    "in": lambda items, iterator: 1 in Held(items, iterator),
    "count": lambda items, iterator: [1].count(Held(items, iterator)),
    "isinstance": lambda items, iterator: isinstance(1, Holder),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_a_method_of_another_name_returns_is_opened(look):
    outcome = meet(held, look, lambda items, iterator: items.append(3))
    assert outcome in (CONFLICT, ALONE)


THINGS = list(range(1000))


class Taking:
    def __init__(self):
        self.n = 0

    __neg__ = THINGS.pop
    __pos__ = staticmethod(THINGS.pop)


def make_taking():
    return Taking()


@pytest.mark.parametrize("take", [operator.pos, operator.neg])
def test_a_class_is_met_when_an_instance_is_made(take):
    """By an instruction that knows the class already, as it was used outside of transactions."""

    def use(things):
        taking = make_taking()
        return +taking if take is operator.pos else -taking

    for _ in range(100):
        make_taking()
    for _ in range(3):
        rolled_back(use, THINGS)


def set_and_delete(own, setattr=setattr, delattr=delattr):
    proxy = Proxy(own)
    proxy.value = proxy.other = proxy.__call__ = 2
    setattr(proxy, "third", 3)
    del proxy.other
    delattr(proxy, "third")


def test_what_is_assigned_to_a_proxy_is_put_back():
    finished, *_ = rolled_back(set_and_delete, Own())
    assert finished
    own = Own()
    run(set_and_delete, own)
    assert vars(own) == {"value": 2, "__call__": 2}


@pytest.mark.parametrize("look", [lambda held: "a" in held, tuple, loop])
def test_what_has_methods_by_other_names_is_used_beside_others(look):
    assert meet(lambda: (Held([1], iter([1])), []), lambda held, log: look(held) and None, lambda held, log: log.append(1)) == APART
    assert meet(lambda: (Held([1], iter([1])), []), lambda held, log: log.append(1), lambda held, log: look(held) and None) == APART


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


@contextlib.contextmanager
def monitored():
    """As beneath a debugger, or one that tells which lines have run."""
    monitoring = sys.monitoring
    monitoring.use_tool_id(4, "lines")
    monitoring.register_callback(4, monitoring.events.LINE, lambda *_: None)
    monitoring.set_events(4, monitoring.events.LINE)
    try:
        yield
    finally:
        monitoring.set_events(4, 0)
        monitoring.free_tool_id(4)


@pytest.mark.parametrize("watched", [contextlib.nullcontext, monitored])
def test_the_program_sees_what_it_has_put_there(watched):
    with watched():
        assert type(run(lambda: Proxy({}).__len__)) is functools.partial
    assert run(lambda: (isinstance(Posing(), list), isinstance(Proxy({}), dict))) == (True, True)
    guarded, things = registry()
    assert run(lambda: guarded["a"]) == 1
    assert type(guarded).__getitem__ == things.__getitem__ and type(guarded).__getitem__.__self__ is things
    assert Cached.value.fget is vars(Cached)["value"].fget and Cached.value.fget.cache_info().currsize >= 0


# ---- What C code finds by its name ---------------------------------------------------------------------------------


class Forwarding:
    """Its methods are attributes of the instance, in C."""

    def __init__(self, to):
        self.get, self.keys = to.get, to.keys
        self.to = to

    def __getitem__(self, key):
        return self.to[key]


class Forwards:
    """Its methods are those of another object, which it is asked for one by one."""

    def __init__(self, to):
        self.to = to

    def __getattr__(self, name):
        return getattr(self.to, name)

    def __getitem__(self, key):
        return self.to[key]


class Mapped(Forwarding, collections.abc.Mapping):
    def __iter__(self):
        return iter("k")

    def __len__(self):
        return 1


def match_key(subject):
    match subject:
        case {"k": value}:
            return value


def keywords(**given):
    return given


def merged(other):
    d = {}
    d |= other
    return d


#: what calls `keys` of a mapping
SPREADS = {
    "display": lambda mapping: {**mapping}, "keywords": lambda mapping: keywords(**mapping), "|=": merged,
    "ior": lambda mapping: operator.ior({}, mapping),
}  # fmt: skip


@pytest.mark.parametrize("cls", [Forwarding, Forwards])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_the_keys_of_a_mapping_may_be_given_by_c_code(spread, cls):
    assert meet(lambda: ({"k": 1},), lambda d: spread(cls(d)), lambda d: d.update(new=2)) == ALONE


def test_a_pattern_that_gets_keys_by_c_code():
    assert meet(lambda: ({"k": 1},), lambda d: match_key(Mapped(d)), lambda d: d.update(k=2)) == ALONE


class Delegate:
    def __init__(self, items):
        self.send = self.throw = items.append
        self.close = items.pop

    def __iter__(self):
        return self

    def __next__(self):
        return 0


def delegating(to):
    yield (yield from to)


def close(generator):
    generator.close()


@pytest.mark.parametrize("act", [lambda g: g.send(1), lambda g: g.throw(ValueError()), close], ids=["send", "throw", "close"])
def test_what_a_generator_delegates_to_may_be_c_code(act):
    def change(items):
        generator = delegating(Delegate(items))
        next(generator)
        act(generator)

    rolled_back(change, [1, 2])


def test_another_super():
    class Box:
        n = 0

    def change(box, obj):
        box.n += 1

    box, names = Box(), {}
    exec("class C:\n    def read(self):\n        return super().n\n", names)
    names["super"] = lambda: box
    assert meet(lambda: (box, names["C"]()), lambda box, obj: obj.read(), change) == ALONE


# ---- Special methods of classes, descriptors and modules -------------------------------------------------------------


def with_class_getitem(things):
    class Made:
        __class_getitem__ = things.get

    return lambda: Made["k"]


def with_instancecheck(things):
    class Meta(type):
        __instancecheck__ = __subclasscheck__ = things.get

    made = Meta("Made", (), {})
    return lambda: (isinstance("k", made), issubclass(int, made))


def with_getitem_of_metaclass(things):
    class Meta(type):
        __getitem__ = staticmethod(things.get)

    made = Meta("Made", (), {})
    return lambda: made["k"]


def with_getattr_of_module(things):
    module = types.ModuleType("lazy")
    module.__getattr__ = things.get
    return lambda: module.k


def getattr_of_module(things):
    module = types.ModuleType("lazy")
    module.__getattr__ = things.get
    return lambda: getattr(module, "k", None)


@pytest.mark.parametrize("make", [
    with_class_getitem, with_instancecheck, with_getitem_of_metaclass, with_getattr_of_module, getattr_of_module,
])  # fmt: skip
def test_what_a_class_or_module_asks_c_code_for_conflicts_with_a_change(make):
    def things():
        d = {"k": 1}
        return d, make(d)

    outcome = meet(things, lambda d, look: look(), lambda d, look: d.update(k=2))
    assert outcome in (CONFLICT, ALONE)


def make_with_set_name(things):
    class Field:
        __set_name__ = things.setdefault

    field = Field()

    def make():
        class Made:
            f = field

    return make


def make_with_init_subclass(things):
    class Base:
        __init_subclass__ = things.popitem

    def make():
        class Made(Base):
            pass

    return make


def make_with_prepare(things):
    class Meta(type):
        __prepare__ = lambda name, bases: {}  # noqa: E731

    Meta.__prepare__ = things.setdefault

    def make():
        try:

            class Made(metaclass=Meta):
                pass
        except TypeError:
            pass  # what it returns is no mapping

    return make


def assign_to_descriptor(things):
    class Descriptor:
        __set__ = things.__setitem__

    class Made:
        x = Descriptor()

    made = Made()

    def make():
        made.x = 1

    return make


def negative_class(things):
    class Meta(type):
        __neg__ = staticmethod(things.popitem)

    made = Meta("Made", (), {})
    return lambda: -made


@pytest.mark.parametrize("make", [
    make_with_set_name, make_with_init_subclass, make_with_prepare, assign_to_descriptor, negative_class,
])  # fmt: skip
def test_what_a_class_has_c_code_change_is_put_back(make):
    things = {1: 1, 2: 2, 3: 3, 4: 4}
    use = make(things)
    rolled_back(lambda things: use(), things)


class OfClass:
    """As ``param`` makes classes of generator functions."""

    items = (1, 2)

    @classmethod
    def __iter__(cls):
        yield from cls.items


class OfNobody:
    @staticmethod
    def __iter__():
        return iter((1, 2))


@pytest.mark.parametrize("cls", [OfClass, OfNobody])
def test_a_method_of_the_class_makes_an_iterator_beside_others(cls):
    made = cls()
    assert runs_beside_others(lambda: ([item for item in made], tuple(made), max(made))) == ([1, 2], (1, 2), 2)
