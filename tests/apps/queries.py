"""Operations on connections of ``sqlite3``: queried, changed, in the midst of a transaction and not, with functions in Python."""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

OPERATIONS = {}  # name -> function of the heap and small numbers from 0 to 7


def op(function):
    OPERATIONS[function.__name__] = function
    return function


class Heap:
    """A database in a file with two connections, which give up at once where it is locked, and one in memory."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="queries-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.path = Path(self.folder, "database")
        self.connections = [connected(path) for path in (self.path, self.path, ":memory:")]
        self.cursors = [None, None, None]
        self.seen = []
        self.factor = 2
        for connection in self.connections[1:]:
            connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER CHECK (v < 1000))")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, 10 * k) for k in range(8)])
            connection.commit()
        self.connections[0].create_function("times", 1, lambda v: self.factor * v)
        self.connections[2].create_function("seen", 1, self.see)

    def see(self, v):
        self.seen.append(v)
        return len(self.seen)

    def close(self):
        """Functions of a connection are not seen by the garbage collector, and refer to this."""
        self.cursors.clear()
        for connection in self.connections:
            connection.close()
        shutil.rmtree(self.folder)

    def __getitem__(self, c):
        return self.connections[c % 3]


def connected(path):
    connection = sqlite3.connect(path, timeout=0, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def observed(h):
    """What is left of it, at last."""
    for connection in h.connections:
        connection.rollback()
    h.connections[0].row_factory = h.connections[2].row_factory = None
    tables = [c.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() for c in h.connections[1:]]
    rows = [c.execute("SELECT * FROM t ORDER BY k").fetchall() for c in h.connections[1:]]
    left = [told(lambda: next(cursor, None)) if isinstance(cursor, sqlite3.Cursor) else cursor for cursor in h.cursors]
    h.close()
    return rows, tables, h.seen, h.factor, left


def told(function):
    """An error's text where there is one, as handlers do that go on."""
    try:
        return function()
    except sqlite3.Error as e:
        return type(e).__name__, str(e)


SUM = "SELECT sum(v) FROM t"
ALL = "SELECT k, v FROM t ORDER BY k"
ONE = "SELECT v FROM t WHERE k = ?"


@op
def one(h, c, k):
    return told(lambda: h[c].execute(ONE, (k,)).fetchone())


@op
def all_fetched(h, c):
    return told(lambda: h[c].execute(ALL).fetchall())


@op
def twice_the_same(h, c):
    return told(lambda: h[c].execute(SUM).fetchone() == h[c].execute(SUM).fetchone())


@op
def walked_over(h, c):
    return told(lambda: [row for row in h[c].execute(ALL)])


@op
def walked_over_in_part(h, c, n):
    def walk():
        for k, v in h[c].execute(ALL):
            if k == n:
                return v

    return told(walk)


@op
def taken_by_c_code(h, c):
    return told(lambda: (list(h[c].execute(ALL)), dict(h[c].execute(ALL)), max(h[c].execute(ALL)), [*zip(h[c].execute(SUM))]))


@op
def with_a_cursor(h, c, n):
    def use():
        cursor = h[c].cursor()
        cursor.execute("SELECT * FROM t WHERE k < :n", {"n": n})
        names = [column[0] for column in cursor.description]
        return names, cursor.fetchmany(2), cursor.fetchone(), cursor.rowcount, cursor.fetchmany(), cursor.fetchall()

    return told(use)


@op
def named_rows(h, c):
    def use():
        cursor = h[c].cursor()
        cursor.row_factory = sqlite3.Row
        rows = cursor.execute(ALL).fetchall()
        return [(row["k"], row[1], tuple(row), row.keys(), dict(row)) for row in rows[:3]]

    return told(use)


@op
def made_rows(h, c):
    def make(cursor, row):
        h.seen.append(row[0])
        return {column[0]: h.factor * value for column, value in zip(cursor.description, row)}

    def use():
        cursor = h[c].cursor()
        cursor.row_factory = make
        return cursor.execute(ALL).fetchone(), cursor.fetchmany(2), [*cursor], cursor.fetchone(), cursor.fetchall()

    return told(use)


@op
def common_table(h, c):
    return told(lambda: h[c].execute("WITH x AS (SELECT v FROM t) SELECT max(v) FROM x").fetchone())


@op
def changed(h, c, k, v):
    def change():
        cursor = h[c].execute("UPDATE t SET v = ? WHERE k = ?", (v, k))
        return cursor.rowcount, h[c].in_transaction, h[c].execute(ONE, (k,)).fetchone()

    return told(change)


@op
def added_to(h, c, k):
    def add():
        with h[c]:
            (v,) = h[c].execute(ONE, (k,)).fetchone()
            h[c].execute("UPDATE t SET v = ? WHERE k = ?", (v + 1, k))
        return v

    return told(add)


@op
def moved(h, c, a, b):
    def move():
        with h[c]:
            h[c].execute("UPDATE t SET v = v - 1 WHERE k = ?", (a,))
            h[c].execute("UPDATE t SET v = v + 1 WHERE k = ?", (b,))
        return h[c].execute(SUM).fetchone()

    return told(move)


@op
def failed(h, c, k):
    def fail():
        with h[c]:
            h[c].execute("UPDATE t SET v = v + 1 WHERE k = ?", (k,))
            h[c].execute("UPDATE t SET v = 5000 WHERE k = ?", (k,))

    return told(fail)


@op
def wrong(h, c):
    return told(lambda: h[c].execute("SELECT nothing FROM t")), told(lambda: h[c].execute(ONE, (1, 2)))


@op
def many_changed(h, c, n):
    return told(lambda: h[c].executemany("REPLACE INTO t VALUES (?, ?)", [(k, n) for k in range(n)]).rowcount)


@op
def scripted(h, c, n):
    return told(lambda: bool(h[c].executescript(f"UPDATE t SET v = {n} WHERE k = 1; SELECT 1;")))


@op
def returned(h, c, k):
    return told(lambda: h[c].execute("UPDATE t SET v = v + 1 WHERE k < ? RETURNING k, v", (k,)).fetchall())


@op
def committed(h, c):
    return told(h[c].commit)


@op
def rolled_back(h, c):
    return told(h[c].rollback), h[c].in_transaction


@op
def begun(h, c):
    return told(lambda: h[c].execute("BEGIN").fetchall()), told(lambda: h[c].execute(SUM).fetchone())


@op
def table_made(h, c):
    return told(lambda: h[c].execute("CREATE TABLE IF NOT EXISTS extra (x)").fetchall())


@op
def table_dropped(h, c):
    first = told(lambda: h[c].execute(ALL).fetchone())
    return first, told(lambda: h[c].execute("DROP TABLE IF EXISTS extra").fetchall())


@op
def kept(h, c):
    h.cursors[c % 3] = None
    h.cursors[c % 3] = told(lambda: h[c].execute(ALL))


@op
def kept_one_continued(h, c):
    cursor = h.cursors[c % 3]
    return told(lambda: next(cursor, None)) if isinstance(cursor, sqlite3.Cursor) else cursor


@op
def kept_one_used_anew(h, c, k):
    cursor = h.cursors[c % 3]
    if isinstance(cursor, sqlite3.Cursor):
        return told(lambda: cursor.execute(ONE, (k,)).fetchall()), cursor.description is None


@op
def kept_one_closed(h, c):
    cursor, h.cursors[c % 3] = h.cursors[c % 3], None
    return told(cursor.close) if isinstance(cursor, sqlite3.Cursor) else None


@op
def asked_of_a_new_one(h, k):
    def ask():
        with contextlib.closing(sqlite3.connect(h.path, timeout=0)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(ONE, (k,)).fetchone()["v"], connection.execute(SUM).fetchone()[0]

    return told(ask)


@op
def changed_by_a_new_one(h, k):
    def change():
        with contextlib.closing(sqlite3.connect(h.path, timeout=0)) as connection, connection:
            return connection.execute("UPDATE t SET v = v + 1 WHERE k = ?", (k,)).rowcount

    return told(change)


@op
def left_to_die(h, k):
    def ask():
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE t (k, v)")
        connection.execute("INSERT INTO t VALUES (?, ?)", (k, k))
        return connection.execute(ALL).fetchall()

    return told(ask)


@op
def of_a_function(h):
    return told(lambda: h[0].execute("SELECT times(v) FROM t").fetchall())


@op
def of_one_that_writes(h):
    return told(lambda: h[2].execute("SELECT seen(v) FROM t WHERE k < 2").fetchall()), len(h.seen)


@op
def changed_by_a_function(h, k):
    return told(lambda: h[0].execute("UPDATE t SET v = times(v) % 500 WHERE k = ?", (k,)).rowcount)


@op
def factor_changed(h, n):
    h.factor = n


@op
def function_given(h, c, n):
    h[c].create_function("more", 1, lambda v: v + n + h.factor)
    return told(lambda: h[c].execute("SELECT more(1)").fetchone())


@op
def function_given_in_c(h, n):
    h[2].create_function("note", 1, h.seen.append)
    return told(lambda: h[2].execute("SELECT note(?)", (n,)).fetchone())


@op
def aggregated(h, c):
    class Longest:
        def __init__(self):
            self.most = h.factor

        def step(self, v):
            self.most = max(self.most, v)

        def finalize(self):
            return self.most

    h[c].create_aggregate("longest", 1, Longest)
    return told(lambda: h[c].execute("SELECT longest(v) FROM t").fetchone())


@op
def collated(h, c):
    h[c].create_collation("backwards", lambda a, b: (a < b) - (a > b))
    return told(lambda: h[c].execute("SELECT k FROM t ORDER BY CAST(k AS TEXT) COLLATE backwards").fetchmany(3))


@op
def traced(h, n):
    h[2].set_trace_callback(h.seen.append if n % 2 else None)
    return told(lambda: h[2].execute(SUM).fetchone())


@op
def factory_set(h, c, n):
    h[c].row_factory = sqlite3.Row if n % 2 else None


@op
def looked_at(h, c):
    return h[c].in_transaction, h[c].isolation_level, h[c].row_factory is None, h[c].total_changes
