"""Drivers of databases, against real servers: programs get what they get on upstream's loop, whatever is rolled back meanwhile.

PostgreSQL's and Redis' servers are started here, where Debian's packages ``postgresql`` and ``redis-server`` are installed.
"""

import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from interpreters import ROOT, parallel_only

#: of the servers, which do not bear the address sanitizer that tests may run under
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}

PROGRAM = str(ROOT / "tests" / "apps" / "databases.py")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def until_it_listens(port, server):
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        assert server.poll() is None, "the server has ended"
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server does not listen")


def ended(server):
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    """Where to connect to."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not found:
        pytest.skip("no PostgreSQL: Debian's package postgresql has it")
    programs = Path(found[-1]).parent
    folder = tmp_path_factory.mktemp("postgresql")
    # It does not run as root.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    data, port = Path("/tmp") / f"{folder.parent.name}-{folder.name}-{os.getpid()}", free_port()
    data.mkdir()
    os.chown(data, user.pw_uid, user.pw_gid)
    options = {"cwd": data, "env": ENVIRONMENT, "stdout": subprocess.DEVNULL}
    if os.geteuid() == 0:
        options.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    try:
        subprocess.run(
            [programs / "initdb", "-D", data / "data", "-U", "tester", "--auth=trust", "--no-sync"], check=True, timeout=100, **options
        )
        server = subprocess.Popen(
            [programs / "postgres", "-D", data / "data", "-p", str(port), "-k", data, "-c", "fsync=off"],
            stderr=subprocess.DEVNULL, **options,
        )  # fmt: skip
        try:
            until_it_listens(port, server)
            yield f"127.0.0.1:{port}/postgres"
        finally:
            ended(server)
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    if shutil.which("redis-server") is None:
        pytest.skip("no Redis: Debian's package redis-server has it")
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--dir", tmp_path_factory.mktemp("redis")],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until_it_listens(port, server)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        ended(server)


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
    done = subprocess.run(
        [sys.executable, "-c", QUERIES, f"postgresql://tester@{postgresql}"],
        cwd=ROOT, capture_output=True, text=True, timeout=200, env=dict(os.environ, TORNADO_STM_SEQUENTIAL="0"),
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("0 {}\n", 0), done.stderr
