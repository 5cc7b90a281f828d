"""``sqlite3`` in transactions: queries beside others, changes one after the other, and never anything that no serial order has."""

import asyncio
import contextlib
import datetime
import functools
import locale
import math
import operator
import sqlite3
import subprocess
import sys

import pytest

import random_programs
import tornado.stm
from apart import run_beside
from apps import queries
from interpreters import parallel_only
from tornado.stm import activation, core
from tornado.stm.core import trusted

activation.activate()

run_programs = functools.partial(random_programs.run, queries.Heap, queries.OPERATIONS, observe=queries.observed)


def test_random_programs_of_queries_are_serializable():
    run_programs(60, seed=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_programs_of_queries_are_serializable():
    random_programs.run_as_told(run_programs, 2000)


@parallel_only
@pytest.mark.parametrize("mistake", ["_only_reads = lambda sql: True", "_may_change = lambda *objects: core.irrevocable('')"])
def test_a_mistake_is_found(mistake):
    """So these programs can fail: with changes that are taken for queries, or do not keep queries away."""
    code = f"""
import test_sqlite as t
from tornado.stm.core import trusted
from tornado.stm.input_output import databases
core = databases.core
databases.{mistake.replace(" = ", " = trusted(")})
t.run_programs(1000, seed=1)
"""
    done = run_beside(__file__, code, timeout=280)
    # They may also wait for each other for ever: readers at a lock, under which a function of the program waits for them.
    assert "not serializable" in done.stderr or "have not committed" in done.stderr, done.stderr[-2000:]


# ---- What runs beside others ------------------------------------------------------------------------------------------


@core.trusted
def cost():
    return "exclusive" if core.is_exclusive() else "irrevocable" if core.keeps_others_waiting() else "nothing"


def cost_of(function, *args):
    """What the transaction is at its end that makes this call, and its result."""
    found = []

    def step():
        found.append((function(*args), cost()))

    core.Transaction(step, ()).run()
    return found[-1]


COSTS = {
    "nothing": [
        "one", "all_fetched", "twice_the_same", "walked_over", "walked_over_in_part", "taken_by_c_code", "with_a_cursor", "named_rows",
        "made_rows", "common_table", "wrong", "committed", "rolled_back", "asked_of_a_new_one",
    ],
    "irrevocable": ["changed", "added_to", "moved", "failed", "many_changed", "scripted", "returned", "table_made", "changed_by_a_new_one"],
    "exclusive": ["of_a_function", "of_one_that_writes", "function_given", "function_given_in_c", "aggregated", "collated", "factory_set"],
}  # fmt: skip


@parallel_only
@pytest.mark.parametrize("expected, name", [(expected, name) for expected, names in COSTS.items() for name in names])
def test_what_keeps_others_waiting(expected, name):
    function = queries.OPERATIONS[name]
    arguments = [1] * (function.__code__.co_argcount - 1)
    with contextlib.closing(queries.Heap()) as heap, contextlib.closing(queries.Heap()) as other:
        assert cost_of(function, heap, *arguments) == (function(other, *arguments), expected)


def many(connection):
    return connection.execute("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")


@pytest.fixture
def memory():
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    yield connection
    connection.close()


@parallel_only
def test_while_a_cursor_is_kept_in_the_midst_of_its_rows_nobody_runs_beside(memory):
    kept = [many(memory)]
    assert cost_of(lambda: many(memory).fetchall()) == ([(1,), (2,), (3,)], "exclusive")
    assert kept.pop().fetchall() == [(1,), (2,), (3,)]
    assert cost_of(lambda: many(memory).fetchall())[1] == "nothing"
    cost_of(lambda: kept.append(many(memory)))
    assert cost_of(lambda: many(memory).fetchone()) == ((1,), "exclusive")
    cost_of(kept.clear)
    assert cost_of(lambda: many(memory).fetchone()) == ((1,), "nothing")


@parallel_only
@pytest.mark.filterwarnings("ignore:The default date")
@pytest.mark.parametrize("value", [datetime.date(2026, 1, 2), memoryview(b"ab"), sqlite3.Binary(b"a"), bytearray(b"a")])
def test_what_is_adapted_is_so_alone(memory, value):
    found, how = cost_of(lambda: memory.execute("SELECT ?", (value,)).fetchone())
    assert (found, how) == (memory.execute("SELECT ?", (value,)).fetchone(), "exclusive")


@parallel_only
@pytest.mark.filterwarnings("ignore:The default date")
def test_what_is_converted_is_so_alone():
    connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_COLNAMES, check_same_thread=False)
    sql = """SELECT '2026-01-02' AS "day [date]" """
    assert cost_of(lambda: connection.execute(sql).fetchone()) == ((datetime.date(2026, 1, 2),), "exclusive")
    connection.close()


@parallel_only
@pytest.mark.parametrize("factory", [bytes, lambda text: text.decode()])
def test_other_texts_are_made_alone(memory, factory):
    memory.text_factory = factory
    assert cost_of(lambda: memory.execute("SELECT 'a'").fetchone())[1] == "exclusive"


@parallel_only
def test_one_that_may_load_c_code_runs_alone(memory):
    if not hasattr(memory, "enable_load_extension"):
        pytest.skip("this build of Python loads no extensions")
    memory.enable_load_extension(True)
    assert cost_of(lambda: memory.execute("SELECT 1").fetchone()) == ((1,), "exclusive")


@parallel_only
@pytest.mark.parametrize("give, how", [
    (lambda connection: connection.create_function("twice", 1, lambda n: 2 * n), "nothing"),
    (lambda connection: connection.create_function("floor", 1, math.floor, deterministic=True), "nothing"),
    (lambda connection: connection.create_function("note", 1, [].append), "exclusive"),
    (lambda connection: connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_FKEY), "exclusive"),
], ids=["function", "mathematics", "method", "configuration"])  # fmt: skip
def test_what_a_connection_may_call_is_still_known_after_hundreds_of_cursors(memory, give, how):
    """Whose list the connection replaces now and then."""
    core.Transaction(give, (memory,)).run()
    for _ in range(3):
        assert cost_of(lambda: memory.execute("SELECT 1").fetchone()) == ((1,), how)
        for _ in range(250):
            memory.execute("SELECT 1").fetchone()


def look(connection):
    return connection.execute("SELECT 1").fetchone()


def test_what_a_connection_may_call_is_known_as_long_as_it_lives(memory, monkeypatch):
    """Of a collation in C with the name of one of SQLite's nothing is to be seen later."""
    from tornado.stm.input_output import databases

    monkeypatch.setattr(databases, "_MOST_KNOWN", 10)
    monkeypatch.setattr(databases, "_most_known", 10)
    monkeypatch.setattr(databases, "_known", {})
    memory.create_collation("NOCASE", locale.strcoll)
    for make in range(50):
        with contextlib.closing(sqlite3.connect(":memory:")) as other:
            if make % 2:
                other.create_collation("NOCASE", locale.strcoll)
            assert cost_of(look, other)[1] == ("exclusive" if make % 2 else "nothing")
        del other
    assert cost_of(look, memory)[1] == "exclusive"
    assert len(databases._known) <= 11


@parallel_only
@pytest.mark.parametrize("collation", [locale.strcoll, operator.eq], ids=["strcoll", "eq"])
@pytest.mark.parametrize("name", ["NOCASE", "RTRIM", "BINARY"])
def test_a_collation_in_the_place_of_one_of_sqlites_that_came_before_anybody_took_note(memory, name, collation):
    vars(sqlite3.Connection)["create_collation"].__wrapped__(memory, name, collation)
    assert cost_of(look, memory)[1] == "exclusive"


BEFORE_ANY_LOOP = """\
import asyncio, math, sqlite3
from tornado.stm import core
connection = sqlite3.connect(":memory:", check_same_thread=False)
connection.create_function("floor", 1, math.floor)
connection.create_function("regexp", 2, lambda pattern, text: pattern in text)

async def work():
    for _ in range(10):
        connection.execute("SELECT 1").fetchone()
        await asyncio.sleep(0)

async def main():
    await asyncio.gather(work(), work())

asyncio.run(main())
print(core.stats()["exclusives"] < 10)
"""


@parallel_only
def test_what_a_connection_of_a_module_is_given_before_any_loop_is_noted(tmp_path):
    """As SQLAlchemy gives them to those of an engine that makes its tables while the program is imported."""
    (tmp_path / "app.py").write_text(BEFORE_ANY_LOOP)
    command = [sys.executable, "-m", "tornado.stm", "-q", "-j", "2", "app.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout == "True\n", done


def test_methods_that_give_functions_look_as_ever():
    assert sqlite3.Connection.create_function.__name__ == "create_function"
    with contextlib.closing(sqlite3.connect(":memory:")) as connection, pytest.raises(TypeError, match="create_function"):
        connection.create_function()


@parallel_only
def test_readers_see_what_is_committed_only(tmp_path):
    """Handlers with a connection of their own, or the one that all share; each looks twice, and writers change two rows at a time."""
    path = tmp_path / "accounts"
    shared = sqlite3.connect(path)
    shared.execute("CREATE TABLE accounts (k INTEGER PRIMARY KEY, v INTEGER)")
    shared.executemany("INSERT INTO accounts VALUES (?, ?)", [(k, 100) for k in range(10)])
    shared.commit()

    def total(connection):
        return sum(v for (v,) in connection.execute("SELECT v FROM accounts"))

    async def reader(i):
        await asyncio.sleep(0)
        connection = sqlite3.connect(path) if i % 2 else shared
        totals = total(connection), connection.execute("SELECT sum(v) FROM accounts").fetchone()[0], total(connection)
        if i % 2:
            connection.close()
        return totals

    async def writer(i):
        await asyncio.sleep(0)
        with shared:
            shared.execute("UPDATE accounts SET v = v - 1 WHERE k = ?", (i % 10,))
            shared.execute("UPDATE accounts SET v = v + 1 WHERE k = ?", (i * 7 % 10,))

    async def main():
        return await asyncio.gather(*(job(i) for i in range(120) for job in (reader, writer)))

    results = tornado.stm.run(main(), threads=4)
    assert results[::2] == [(1000, 1000, 1000)] * 120
    assert shared.execute("SELECT sum(v) FROM accounts").fetchone() == (1000,)
    shared.close()


@trusted
def roll_back():
    raise core.Abort


@pytest.mark.filterwarnings("error")
def test_nobody_is_warned_of_a_connection_of_an_aborted_attempt(tmp_path):
    path = str(tmp_path / "database")
    sqlite3.connect(path).close()

    def query():
        if core.rehearse():
            sqlite3.connect(path).execute("SELECT 1").fetchall()
            roll_back()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT 2").fetchall()

    assert core.Transaction(query, ()).run() == [(2,)]
