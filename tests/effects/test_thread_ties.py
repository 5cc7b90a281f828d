"""C objects that work on one thread only: to the program, the threads of a loop are one, and so are those of a queue."""

import _thread
import asyncio
import bdb
import collections
import contextvars
import ctypes
import errno
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

import tornado.stm
from interpreters import ROOT, parallel_only
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted


@pytest.fixture(params=[0, 0.02], ids="aborts {}".format)
def aborts(request):
    activation.activate()
    core.inject_aborts(request.param, 1)
    yield
    core.inject_aborts(0, 0)


@pytest.fixture(autouse=True)
def impatience():
    """Who waits for another transaction before the first call of some function is let go on soon."""
    activation.activate()
    core.set_allowance(0.05)
    yield
    core.set_allowance(1e9)


class Apart:
    """Has two transactions begin on two threads, so that one of them is not on the loop's."""

    def __init__(self):
        self.threads = set()
        self.arrived = set()

    @trusted
    def arrive(self, name):
        """In the first attempt of each of the two: wait for the other one."""
        self.arrived.add(name)
        give_up = time.monotonic() + 60
        while len(self.arrived) < 2 and not core.is_exclusive() and not core.is_unwinding():
            assert time.monotonic() < give_up
            time.sleep(0.0002)

    @trusted
    def note(self):
        """On which thread does this transaction run?"""
        self.threads.add(_thread.get_ident())


def on_two_threads(function):
    """What two callbacks of a loop return, each on a thread of its own, `function(0)` and `function(1)`."""
    apart = Apart()

    async def callback(i):
        await asyncio.sleep(0)
        apart.arrive(i)
        apart.note()
        return function(i)

    async def main():
        return await asyncio.gather(callback(0), callback(1))

    results = tornado.stm.run(main(), threads=2)
    assert len(apart.threads) == 2
    return results


@pytest.fixture
def db():
    """A connection made by the thread that will run the loop, before there is one."""
    db = sqlite3.connect(":memory:")
    db.execute("create table t (k integer primary key, v integer)")
    db.executemany("insert into t values (?, ?)", [(k, k * k) for k in range(10)])
    db.commit()
    yield db
    db.close()


SQUARES = [(k * k,) for k in range(10)]


# ---- sqlite3 ---------------------------------------------------------------------------------------------------------

def test_handlers_share_a_connection(db, aborts):
    async def handler():
        await asyncio.sleep(0)
        (v,) = db.execute("select v from t where k = 0").fetchone()
        with db:
            db.execute("update t set v = ? where k = 0", (v + 1,))

    async def main():
        await asyncio.gather(*[handler() for _ in range(60)])

    tornado.stm.run(main(), threads=3)
    assert db.execute("select v from t where k = 0").fetchone() == (60,)


USES = {
    "fetchall": lambda db, cursor: db.execute("select v from t").fetchall(),
    "a for loop": lambda db, cursor: [row for row in db.execute("select v from t")],
    "list": lambda db, cursor: list(db.execute("select v from t")),
    "sorted": lambda db, cursor: sorted(db.execute("select v from t")),
    "zip": lambda db, cursor: [row for (row,) in zip(db.execute("select v from t"))],
    "unpacking": lambda db, cursor: [*db.execute("select v from t")],
    "next": lambda db, cursor: [next(db.execute("select v from t where k = ?", (k,))) for k in range(10)],
    "a method for a slot": lambda db, cursor: [
        db.execute("select v from t where k = ?", (k,)).__iter__().__next__() for k in range(10)
    ],
    "a class of cursors": lambda db, cursor: [*class_of_cursors()(db).execute("select v from t")],
    "a class of cursors, asked": lambda db, cursor: class_of_cursors()(db).execute("select v from t").fetchall(),
    "a call of the connection": lambda db, cursor: db("select v from t") and SQUARES,
    "a cursor of before": lambda db, cursor: cursor.execute("select v from t").fetchall(),
    "a bound method": lambda db, cursor: list(map(tuple, cursor.connection.execute("select v from t").fetchall())),
    "callbacks": lambda db, cursor: db.create_function("twice", 1, lambda v: 2 * v)
        or [(v // 2,) for (v,) in db.execute("select twice(v) from t")],
    "a row factory": lambda db, cursor: rows_by_factory(db),
    "an attribute that commits": lambda db, cursor: setattr(db, "isolation_level", None)
        or [db.isolation_level, db.in_transaction, db.total_changes] == [None, False, 10] and SQUARES,
    "a new connection": lambda db, cursor: with_new_connection(),
    "a subclass": lambda db, cursor: sqlite3.connect(":memory:", factory=Database).squares(),
    "a blob": lambda db, cursor: with_blob(db),
}


def class_of_cursors():
    """Made when the engine has changed the one that it is derived from already."""

    class Cursor(sqlite3.Cursor):
        pass

    return Cursor


def rows_by_factory(db):
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    return [(row["v"],) for row in cursor.execute("select v from t")]


def with_new_connection():
    with sqlite3.connect(":memory:") as other:
        other.execute("create table s (v)")
        other.executemany("insert into s values (?)", SQUARES)
        return other.execute("select v from s").fetchall()


def with_blob(db):
    db.execute("insert into t values (100, zeroblob(3))")
    with db.blobopen("t", "v", 100) as blob:
        blob[1] = 7
        blob[2:] = b"\x08"
        assert (len(blob), blob[1], blob[:]) == (3, 7, b"\0\7\x08")
    db.rollback()
    return SQUARES


class Database(sqlite3.Connection):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.known = True

    def squares(self):
        assert self.known
        return self.execute("select * from (values (0), (1), (4), (9), (16), (25), (36), (49), (64), (81))").fetchall()


@pytest.mark.parametrize("name", USES)
def test_a_connection_is_used_on_any_thread(db, name):
    cursor = db.cursor()
    use = USES[name]
    assert on_two_threads(lambda i: use(db, cursor)) == [SQUARES, SQUARES]


def test_what_runs_alone_already_uses_a_connection(db):
    def use(i):
        core.exclusive("a test")
        return [row for row in db.execute("select v from t")]

    assert on_two_threads(use) == [SQUARES, SQUARES]


def test_a_cursor_is_walked_over_by_several_callbacks(db):
    cursor = db.execute("select v from t")
    first, second = on_two_threads(lambda i: [row for _, row in zip(range(5), cursor)])
    assert sorted(first + second) == SQUARES


def test_a_connection_that_a_callback_makes_is_the_loops():
    made = on_two_threads(lambda i: sqlite3.connect(":memory:"))
    for each in made:  # on this thread, which was the loop's
        assert each.execute("select 1").fetchone() == (1,)
        each.close()


def test_errors_come_out_of_the_call(db):
    def use(i):
        try:
            db.execute("select k from nowhere")
        except sqlite3.OperationalError as e:
            return str(e), e.__context__

    assert on_two_threads(use) == [("no such table: nowhere", None)] * 2


def test_threads_that_are_none_of_the_loop_may_not_use_it(db):
    def use():
        try:
            db.execute("select 1")
        except sqlite3.ProgrammingError as e:
            return "created in a thread" in str(e)

    async def handler():
        mine = sqlite3.connect(":memory:")
        return await asyncio.to_thread(use), await asyncio.to_thread(lambda: raises(mine))

    def raises(connection):
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("select 1")
        return True

    async def main():
        return await asyncio.gather(*[handler() for _ in range(4)])

    assert tornado.stm.run(main(), threads=2) == [(True, True)] * 4


def test_the_loop_may_not_use_one_of_another_thread():
    made = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(":memory:")))
    thread.start()
    thread.join()

    def use(i):
        with pytest.raises(sqlite3.ProgrammingError):
            made[0].execute("select 1")
        return True

    assert on_two_threads(use) == [True, True]


def test_a_loop_on_another_thread_has_its_own():
    results = []

    def run():
        db = sqlite3.connect(":memory:")
        db.execute("create table t (v)")
        on_two_threads(lambda i: db.execute("insert into t values (?)", (i,)))
        results.extend(sorted(db.execute("select v from t")))
        db.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [(0,), (1,)]


def test_what_is_called_back_belongs_to_the_transaction(db):
    """It sees the variables, the task and the exception of the code that calls, and what it schedules keeps the order."""
    variable = contextvars.ContextVar("variable")
    log = []

    def look(i):
        assert core.current() is not None and core.is_exclusive()
        asyncio.get_running_loop().call_soon(log.append, (i, "from the callback"))
        variable.set(variable.get() + 1)
        return f"{variable.get()} {asyncio.current_task().get_name()} {sys.exception()!r}"

    async def handler(i, apart):
        await asyncio.sleep(0)
        variable.set(10 * i)
        apart.arrive(i)
        loop = asyncio.get_running_loop()
        try:
            raise ValueError(i)
        except ValueError:
            db.create_function("look", 1, look)
            loop.call_soon(log.append, (i, "before"))
            (seen,) = db.execute("select look(?)", (i,)).fetchone()
            loop.call_soon(log.append, (i, "after"))
        return seen, variable.get()

    async def main():
        apart = Apart()
        tasks = [asyncio.create_task(handler(i, apart), name=f"task {i}") for i in range(2)]
        return await asyncio.gather(*tasks), await asyncio.sleep(0)

    results, _ = tornado.stm.run(main(), threads=2)
    assert results == [("1 task 0 ValueError(0)", 1), ("11 task 1 ValueError(1)", 11)]
    for i in range(2):
        assert [what for n, what in log if n == i] == ["before", "from the callback", "after"]


def test_transactions_of_a_queue_share_a_connection(db, aborts):
    queue = transaction.TransactionQueue()
    threads = set()

    @trusted
    def note():
        threads.add(_thread.get_ident())

    def add():
        note()
        (v,) = db.execute("select v from t where k = 0").fetchone()
        db.execute("update t set v = ? where k = 0", (v + 1,))

    for _ in range(100):
        queue.add(add)
    queue.run(4)
    assert db.execute("select v from t where k = 0").fetchone() == (100,)


# ---- What a thread is told of itself ------------------------------------------------------------------------------------

def test_a_callback_is_told_of_the_loops_thread():
    here = threading.get_ident(), threading.get_native_id(), threading.current_thread()
    seen = on_two_threads(lambda i: (threading.get_ident(), threading.get_native_id(), threading.current_thread()))
    assert seen == [here, here]


def test_the_clock_of_the_thread_never_goes_back():
    clocks = []

    def look(i):
        clocks.append((time.thread_time_ns(), int(time.thread_time() * 10**9) + 1))

    before = time.thread_time_ns()
    for _ in range(3):
        on_two_threads(look)
    times = [t for pair in clocks for t in pair]
    assert len(times) == 12 and min(times) >= before and all(a <= b for a, b in clocks)


def test_another_thread_is_told_of_itself():
    async def main():
        return await asyncio.to_thread(lambda: (threading.get_ident(), threading.get_native_id()))

    ident, native = tornado.stm.run(main(), threads=2)
    assert ident != threading.get_ident() and native != threading.get_native_id()


# ---- ctypes ------------------------------------------------------------------------------------------------------------

def test_what_ctypes_calls_is_on_the_loops_thread(aborts):
    library = ctypes.CDLL(None, use_errno=True)
    assert on_two_threads(lambda i: library.gettid()) == [threading.get_native_id()] * 2


def test_what_ctypes_has_called_leaves_its_errno(aborts):
    library = ctypes.CDLL(None, use_errno=True)

    def fail(i):
        ctypes.set_errno(0)
        return library.close(-1), ctypes.get_errno()

    assert on_two_threads(fail) == [(-1, errno.EBADF)] * 2


# ---- greenlet ----------------------------------------------------------------------------------------------------------

def awaiting(greenlet, function):
    """A coroutine that runs a function in which `wait` awaits, as SQLAlchemy does it."""
    def wait(awaitable):
        return greenlet.getcurrent().parent.switch(awaitable)

    async def run(*args):
        other = greenlet.greenlet(function)
        result = other.switch(wait, *args)
        while not other.dead:
            try:
                value = await result
            except ValueError as e:
                result = other.throw(e)
            else:
                result = other.switch(value)
        return result

    return run


def test_greenlets_switch_wherever_their_transactions_run(aborts):
    greenlet = pytest.importorskip("greenlet")
    counts = collections.Counter()

    def sync_part(wait, name):
        total = 0
        for i in range(5):
            total += wait(asyncio.sleep(0, i))
            counts[name] += 1
        try:
            wait(fail())
        except ValueError:
            return total

    async def fail():
        await asyncio.sleep(0)
        raise ValueError

    async def main():
        return await asyncio.gather(*[awaiting(greenlet, sync_part)(name) for name in "abcdefgh"])

    assert tornado.stm.run(main(), threads=3) == [10] * 8
    assert counts == dict.fromkeys("abcdefgh", 5)


def test_what_the_loops_thread_has_called_in_passing_belongs_there_afterwards():
    """There a call of C code that nobody knows needs nothing; the transaction goes on elsewhere."""
    greenlet, ffi = pytest.importorskip("greenlet"), pytest.importorskip("cffi").FFI()

    def look():
        return [greenlet.getcurrent() for _ in range(3)]

    def both(i):
        seen = []
        call_back = ffi.callback("void(void)", lambda: seen.extend(look()))
        for _ in range(3):  # what is called from C for the first time has no barriers
            call_back()
        return {*seen, *look()}

    here = greenlet.getcurrent()
    for _ in range(3):
        assert on_two_threads(both) == [{here}, {here}]


def test_a_greenlet_goes_on_in_another_transaction():
    greenlet = pytest.importorskip("greenlet")
    made = []

    class Adding(greenlet.greenlet):
        def __init__(self):
            super().__init__(self.add)
            self.total = 0

        def add(self, n):
            while True:
                self.total += n
                n = self.parent.switch(self.total)

    def use(i):
        if not made:
            made.append(Adding())
        return made[0].switch(10)

    assert sorted(on_two_threads(use)) == [10, 20]
    assert made[0].switch(1) == 21 and made[0].total == 21


@pytest.mark.long
def test_sqlalchemy_engine_of_asyncio():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main():
        engine = create_async_engine("sqlite+aiosqlite://")
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text("create table t (v)"))
            await connection.execute(sqlalchemy.text("insert into t values (1), (2)"))
            result = await connection.execute(sqlalchemy.text("select v from t"))
            rows = result.scalars().all()
        await engine.dispose()
        return rows

    assert tornado.stm.run(main(), threads=2) == [1, 2]


def test_a_debugger_follows_the_thread_that_has_stopped():
    """It asks `threading` which one that is, and is not told the loop's, which may be at something else."""
    followed = []

    async def handler():
        await asyncio.sleep(0)
        followed.append(bdb.threading.current_thread().ident == _thread.get_ident())

    async def main():
        await asyncio.gather(*(handler() for _ in range(50)))

    tornado.stm.run(main(), threads=3)
    assert followed == [True] * 50


BENEATH = """
import _thread, asyncio, sys, threading
import tornado.stm
from tornado.stm import transaction

beneath, traced = {}, set()


def look(n):
    for _ in range(n):
        pass
    frame, modules = sys._getframe(), []
    while frame.f_back is not None:
        frame = frame.f_back
        modules.append(frame.f_globals["__name__"])
    beneath[_thread.get_ident()] = frame.f_code.co_name, modules[-1], "threading" in modules, threading.enumerate() == [threading.main_thread()]


async def one():
    for _ in range(50):
        look(20_000)
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(*(one() for _ in range(8)))


threading.settrace(lambda *event: traced.add(_thread.get_ident()))
tornado.stm.run(main(), threads=3)
transaction.set_threads(3)
queue = transaction.TransactionQueue()
for _ in range(200):
    queue.add(look, 20_000)
queue.run()
main_thread = _thread.get_ident()
# A thread may have run nothing but the last callback: it is traced and has not looked.
print(len(beneath) > 1, set(beneath.values()), set(beneath) - {main_thread} <= traced, main_thread not in traced)
"""


@parallel_only
def test_beneath_a_callback_is_the_main_module_and_no_thread_of_the_program():
    """Whoever walks down the frames finds the same on each thread: freezegun asks for the modules, aiohttp's AppKey for the first one."""
    done = subprocess.run([sys.executable, "-c", BENEATH], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("True {('<module>', '__main__', False, True)} True True\n", "")
