"""The order of a dict's keys is that of a serial run, for whoever looks: also for the one that has inserted some itself."""

import _thread
import threading

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from tornado.stm.core import trusted

activation.activate()

TIMEOUT = 60


def run(function, *args):
    return core.Transaction(function, args).run()


class Overtaking:
    """Another transaction commits, on a thread of its own, while the first attempt of this one is open.

    In a serial run the other one is the earlier.
    """

    def __init__(self, other, *args):
        self.transaction = core.Transaction(other, args)
        self.over = threading.Lock()
        self.over.acquire()

    @trusted
    def run_other(self):
        self.transaction.run()
        self.over.release()

    @trusted
    def happens(self):
        if not self.transaction.done and not core.is_exclusive():
            _thread.start_new_thread(self.run_other, ())
            assert self.over.acquire(timeout=TIMEOUT)


def put(table, key):
    table[key] = key


def test_keys_inserted_before_and_after_going_exclusive():
    def insert(table):
        table["a"] = 1
        core.exclusive("a test")
        table["b"] = 2

    table = {}
    run(insert, table)
    assert list(table) == ["a", "b"]


def test_keys_inserted_before_going_exclusive_come_after_those_of_earlier_commits():
    seen = []

    def insert(table, overtaking):
        table["a"] = 1
        overtaking.happens()
        core.exclusive("a test")
        seen.append(list(table))
        table["b"] = 2

    table = {}
    run(insert, table, Overtaking(put, table, "other"))
    assert list(table) == ["other", "a", "b"]
    assert seen == [["other", "a"]]



def test_who_inserted_sees_the_order_of_commits():
    def insert(table, overtaking):
        table["a"] = 1
        overtaking.happens()
        return [*table]

    table = {}
    seen = run(insert, table, Overtaking(put, table, "other"))
    assert seen == list(table) == ["other", "a"]


#: of more, the chance grows with the square that two keys have one lock, and the other transaction then waits for this one's end
MANY = 300


def test_who_inserted_into_many_dicts_sees_the_order_of_commits():
    def put_into_all(tables):
        for table in tables:
            table["other"] = "other"

    def insert(tables, overtaking):
        for number, table in enumerate(tables):
            table[number] = number
            table["a"] = 1
        overtaking.happens()
        seen = [[*table] for table in tables]
        for table in tables:
            table["b"] = 2
        return seen, [[*table] for table in tables]

    tables = [{} for _ in range(MANY)]
    before, behind = run(insert, tables, Overtaking(put_into_all, tables))
    assert before == [["other", number, "a"] for number in range(MANY)]
    assert behind == [[*table] for table in tables] == [["other", number, "a", "b"] for number in range(MANY)]


def test_who_inserted_pops_its_own_key():
    def insert(table, overtaking):
        table["a"] = 1
        overtaking.happens()
        return table.popitem()

    table = {}
    assert run(insert, table, Overtaking(put, table, "other")) == ("a", 1)
    assert list(table) == ["other"]


def test_a_key_deleted_and_put_back_by_who_inserted_another():
    def change(table, overtaking):
        table["a"] = 1
        overtaking.happens()
        del table["old"]
        seen = list(table)
        table["old"] = 2
        return seen

    table = {"old": 0}
    assert run(change, table, Overtaking(put, table, "other")) == ["other", "a"]
    assert list(table) == ["other", "a", "old"]


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Many(Thing):
    """More attributes than an instance keeps inline."""

    def __init__(self):
        super().__init__(**{f"a{i}": i for i in range(40)})


class OwnDict(dict):
    """Its attributes are its items."""

    def __init__(self):
        self.__dict__ = self


def set_attribute(thing, name):
    setattr(thing, name, name)


@pytest.mark.parametrize("make", [Thing, Many, OwnDict])
def test_attributes_come_in_the_order_of_commits(make):
    def change(thing, overtaking):
        thing.mine = 1
        thing.too = 1
        overtaking.happens()

    thing = make()
    run(change, thing, Overtaking(set_attribute, thing, "other"))
    assert list(vars(thing))[-3:] == ["other", "mine", "too"]


@pytest.mark.parametrize("make", [Thing, Many, OwnDict])
def test_who_made_attributes_sees_the_order_of_commits(make):
    def change(thing, overtaking):
        thing.mine = 1
        overtaking.happens()
        seen = list(thing.__dict__)
        thing.last = 1
        return seen

    thing = make()
    assert run(change, thing, Overtaking(set_attribute, thing, "other"))[-2:] == ["other", "mine"]
    assert list(vars(thing))[-3:] == ["other", "mine", "last"]


def test_an_attribute_deleted_by_its_key_and_set_by_its_name():
    def change(thing, overtaking):
        del vars(thing)["a1"]
        overtaking.happens()
        thing.a1 = "again"

    thing = Many()
    run(change, thing, Overtaking(set_attribute, thing, "other"))
    assert list(vars(thing))[-2:] == ["other", "a1"]


def set_key(thing, name):
    vars(thing)[name] = name


class Row(list):
    """Its attributes never lie inline."""


def grown():
    """Seen as a dict before it had more attributes than lie inline."""
    thing = Thing()
    run(set_key, thing, "first")
    for i in range(40):
        setattr(thing, f"a{i}", i)
    return thing


@pytest.mark.parametrize("put", [set_attribute, set_key])
@pytest.mark.parametrize("make", [Thing, Many, grown, Row])
def test_attributes_of_two_that_commit_at_the_same_time(make, put):
    core.inject_delays(0.5, 0.0003)
    try:
        for _ in range(20):
            thing, commits = make(), []
            start = threading.Barrier(2)

            @trusted
            def work(letter):
                start.wait(TIMEOUT)
                for i in range(3):
                    transaction = core.Transaction(put, (thing, f"{letter}{i}"))
                    transaction.run()
                    commits.append((transaction.commit_number, f"{letter}{i}"))

            threads = [threading.Thread(target=work, args=(letter,)) for letter in "xy"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT)
            assert list(vars(thing))[-6:] == [name for _, name in sorted(commits)]
    finally:
        core.inject_delays(0, 0)


def test_attributes_that_are_items_stay_in_their_order():
    def change(own):
        own["first"] = 1
        own.second = 2
        own["third"] = 3

    own = OwnDict()
    run(change, own)
    assert list(own) == ["first", "second", "third"]


def test_a_key_inserted_deleted_and_inserted_again():
    def change(table, overtaking):
        table["a"] = 1
        overtaking.happens()
        del table["a"]
        table["b"] = 2
        table["a"] = 3
        return list(table)

    table = {}
    assert run(change, table, Overtaking(put, table, "other")) == ["other", "b", "a"]
    assert list(table) == ["other", "b", "a"]


def test_keys_inserted_before_and_after_all_of_the_dict_was_logged():
    """Who has read all of a dict logs all of it to delete a key; what is inserted later has no entry of its own."""
    d = {"first": 0, "second": 0}

    def step():
        list(d)
        d["third"] = 0
        d.pop("first")
        d["fourth"] = 0

    core.Transaction(step, ()).run()
    assert list(d) == ["second", "third", "fourth"]


def test_a_key_put_back_after_another_by_who_has_seen_all_of_them():
    def change(table):
        list(table)
        table["b"] = 2
        del table["a"]
        table["a"] = 3
        return list(table)

    table = {"a": 0}
    assert run(change, table) == ["b", "a"]
    assert list(table) == ["b", "a"]


def with_attributes(n):
    """An instance with so many attributes, the last of them `a`.  Of a class of its own: the others fill that up."""

    class Thing:
        pass

    o = Thing()
    for i in range(n - 1):
        setattr(o, f"a{i}", i)
    o.a = 0
    return o


def few():
    return with_attributes(1)


def many():
    """More than an instance keeps inline."""
    return with_attributes(40)


def grown_since():
    """The same, looked at while they were inline."""
    o = with_attributes(1)
    run(lambda: len(vars(o)))
    del o.a
    for i in range(40):
        setattr(o, f"a{i}", i)
    o.a = 0
    return o


attributes = pytest.mark.parametrize("make", [few, many, grown_since])


@attributes
@pytest.mark.parametrize("again", [setattr, lambda o, name, value: vars(o).__setitem__(name, value)])
def test_an_attribute_put_back_after_another(make, again):
    def change(o):
        o.a = 1
        del o.a
        o.b = 2
        again(o, "a", 3)
        return list(vars(o))[-2:]

    o = make()
    assert run(change, o) == ["b", "a"]
    assert list(vars(o))[-2:] == ["b", "a"]


@attributes
def test_an_attribute_put_back_by_who_does_not_look(make):
    def change(o):
        o.a = 1
        del o.a
        o.b = 2
        o.a = 3

    o = make()
    run(change, o)
    assert list(vars(o))[-2:] == ["b", "a"]


@attributes
def test_attributes_made_anew_after_all_are_gone(make):
    def change(o):
        del o.a
        o.b = 2
        vars(o).clear()
        vars(o)["b"] = 2
        vars(o)["c"] = 1

    o = make()
    run(change, o)
    assert list(vars(o)) == ["b", "c"]


@attributes
def test_an_attribute_made_after_it_was_not_there_to_be_deleted(make):
    def change(o):
        try:
            del o.b
        except AttributeError:
            o.b = 1
        o.c = 2

    o = make()
    run(change, o)
    assert list(vars(o))[-2:] == ["b", "c"]
