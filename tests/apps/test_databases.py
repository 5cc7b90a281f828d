"""Drivers of databases, against real servers: programs get what they get on upstream's loop, whatever is rolled back meanwhile.

PostgreSQL's and Redis' servers are started here, where Debian's packages ``postgresql`` and ``redis-server`` are installed.
"""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from interpreters import ROOT, parallel_only
from stm_bench import database_servers

PROGRAM = str(ROOT / "tests" / "apps" / "databases.py")


@pytest.fixture(scope="module")
def postgresql():
    """Where to connect to."""
    try:
        with database_servers.postgresql() as where:
            yield where
    except database_servers.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def redis():
    try:
        with database_servers.redis() as url:
            yield url
    except database_servers.Missing as error:
        pytest.skip(str(error))


def outcome(*command, environment=None):
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=250, env=dict(os.environ, **environment or {})
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(driver, url):
    """On two threads, and with aborts: what comes of it on upstream's loop."""
    expected = outcome(PROGRAM, driver, url())
    assert expected["amounts"] is True
    assert outcome("-m", "tornado.stm", "-j", "2", PROGRAM, driver, url()) == expected
    assert outcome("-c", WITH_ABORTS, PROGRAM, driver, url()) == expected


WITH_ABORTS = f"""
import runpy, sys
import tornado.stm
from tornado.stm import activation, core
tornado.stm.install(threads=2)
activation.activate()
core.inject_aborts(0.002, 7)
sys.argv[:1] = []
runpy.run_path({PROGRAM!r}, run_name="__main__")
"""


def needs(*modules):
    return pytest.mark.skipif(any(find_spec(name) is None for name in modules), reason=f"needs {' and '.join(modules)}")


@parallel_only
@needs("asyncpg")
def test_asyncpg(postgresql):
    check("asyncpg", lambda: f"postgresql://tester@{postgresql}")


@parallel_only
@needs("psycopg")
def test_psycopg(postgresql):
    check("psycopg", lambda: f"postgresql://tester@{postgresql}")


@parallel_only
@needs("psycopg", "psycopg_pool")
def test_psycopg_by_its_pool(postgresql):
    check("psycopg_pool", lambda: f"postgresql://tester@{postgresql}")


@parallel_only
@needs("sqlalchemy", "greenlet", "asyncpg")
def test_sqlalchemy_with_asyncpg(postgresql):
    check("sqlalchemy", lambda: f"postgresql+asyncpg://tester@{postgresql}")


@parallel_only
@needs("sqlalchemy", "greenlet", "psycopg")
def test_sqlalchemy_with_psycopg(postgresql):
    check("sqlalchemy", lambda: f"postgresql+psycopg://tester@{postgresql}")


@parallel_only
@needs("sqlalchemy", "greenlet", "aiosqlite")
def test_sqlalchemy_with_aiosqlite(tmp_path):
    check("sqlalchemy", lambda: f"sqlite+aiosqlite:///{tmp_path}/{time.monotonic_ns()}.db")


@parallel_only
@needs("aiosqlite")
def test_aiosqlite(tmp_path):
    check("aiosqlite", lambda: str(tmp_path / f"{time.monotonic_ns()}.db"))


@parallel_only
@needs("redis")
def test_redis(redis):
    check("redis", lambda: redis)


def run_on(postgresql, program, **environment):
    """Run Python code to its end, with the URL of the database as its argument."""
    return subprocess.run(
        [sys.executable, "-c", program, f"postgresql://tester@{postgresql}"],
        cwd=ROOT, capture_output=True, text=True, timeout=200, env=os.environ | environment,
    )  # fmt: skip


QUERIES = """
import asyncio, sys
import asyncpg
import tornado.stm
from tornado.stm import transaction

async def main(url):
    async with asyncpg.create_pool(url, min_size=4, max_size=4) as pool:
        async def ask(k):
            async with pool.acquire() as c:
                row = await c.fetchrow("select $1::int as a, 'b' as b", k)
            return row["a"], row[1], sum(range(20000))
        await asyncio.gather(*map(ask, range(100)))
        before = transaction.stats()
        answers = [answer[:2] for answer in await asyncio.gather(*map(ask, range(300)))]
        after = transaction.stats()
    assert answers == [(k, "b") for k in range(300)], answers
    reasons = {why: n for why, n in after["exclusive_reasons"].items() if n != before["exclusive_reasons"].get(why)}
    print(after["exclusives"] - before["exclusives"], reasons)

tornado.stm.run(main(sys.argv[1]), threads=2)
"""


@parallel_only
@needs("asyncpg")
def test_queries_of_asyncpg_run_beside_others(postgresql):
    done = run_on(postgresql, QUERIES, TORNADO_STM_SEQUENTIAL="0")
    assert (done.stdout, done.returncode) == ("0 {}\n", 0), done.stderr


MANY_QUERIES = """
import asyncio, sys
import asyncpg
import tornado.stm
from tornado.stm import transaction

TEXT = "x" * 1000

def made(rows):
    yield from rows

async def main(url):
    alone = []
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
        await pool.execute("create table many (k int, text text)")

        async def insert(number, count, make=list):
            async with pool.acquire() as c:
                await c.executemany("insert into many values ($1, $2)", make([k * 100 + number, TEXT] for k in range(count)))

        await asyncio.gather(*[insert(number, 3) for number in range(10)])
        before = transaction.stats()["exclusives"]
        await asyncio.gather(*[insert(number, 500, make) for number in range(10, 20) for make in (list, tuple)])  # sent in several steps
        alone.append(transaction.stats()["exclusives"] - before)
        await asyncio.gather(*[insert(number, 500, made) for number in range(20, 22)])
        try:
            await pool.executemany("insert into many values ($1, $2)", [(1, "a"), ("b", 2)])
        except asyncpg.DataError:
            alone.append("refused")
        rows = await pool.fetch("select k % 100 as n, count(*) as m from many where text = $1 group by k % 100 order by k % 100", TEXT)
    assert [tuple(row) for row in rows] == [(n, 3 if n < 10 else 1000 if n < 20 else 500) for n in range(22)], rows
    print(*alone)

tornado.stm.run(main(sys.argv[1]), threads=2)
"""


@parallel_only
@needs("asyncpg")
def test_executemany_of_asyncpg_runs_beside_others(postgresql):
    done = run_on(postgresql, MANY_QUERIES, TORNADO_STM_SEQUENTIAL="0")
    assert (done.stdout, done.returncode) == ("0 refused\n", 0), done.stderr


ROWS = """
import asyncio, sys
sys.path.insert(0, "tests/support")
import asyncpg
import tornado.stm
from rolled_back import check
from tornado.stm import transaction

async def main(url):
    connection = await asyncpg.connect(url)
    row = (await connection.fetch("select 1 as a, 'b' as b, null as c"))[0]
    await connection.close()
    for _ in range(2):
        assert dict(row) == {**row} == {"a": 1, "b": "b", "c": None}
        assert list(row.items()) == list(zip(row.keys(), row.values())) and list(row) == [1, "b", None]
        assert (row.get("b"), row.get("d", 4)) == ("b", 4)
        await asyncio.sleep(0)
    assert not [why for why in transaction.stats()["exclusive_reasons"] if "Record" in why], transaction.stats()
    return row

row = tornado.stm.run(main(sys.argv[1]), threads=2)
for give in row.keys, row.values, row.items, row.__iter__:
    for begun in range(3):
        goes_on = give()
        for _ in range(begun):
            next(goes_on)
        for advance in next, list:
            assert check(advance, goes_on, rest=lambda one: None) is None
        assert list(goes_on) == list(give())[begun:]
"""


@parallel_only
@needs("asyncpg")
def test_rows_of_asyncpg_are_looked_into_beside_others(postgresql):
    done = run_on(postgresql, ROWS)
    assert done.returncode == 0, done.stderr


SAVEPOINTS = """
import asyncio, sys
import psycopg
import tornado.stm
from tornado.stm import transaction

async def main(url):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for _ in range(3):
            async with connection.transaction():
                async with connection.transaction():
                    cursor = await connection.execute("select %s || %s", ("a", "b"))
                    assert await cursor.fetchall() == [("ab",)]
    print([why for why in transaction.stats()["exclusive_reasons"] if "PQescape" in why])

tornado.stm.run(main(sys.argv[1]), threads=2)
"""


@parallel_only
@needs("psycopg")
def test_savepoints_of_psycopg_are_named_beside_others(postgresql):
    done = run_on(postgresql, SAVEPOINTS)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
