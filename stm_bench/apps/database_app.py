"""Tornado with a database: ``GET /N`` asks a table for 100 rows, then answers the primes up to N.

Served with ``DRIVER URL``; the names of the drivers are those of the functions below.
"""

# An application has what it is given.
# pyright: reportAttributeAccessIssue=false

import asyncio
import contextlib
import sqlite3
import tempfile

import tornado.httpserver
import tornado.web

from stm_bench.primes import primes

ROWS = 100
CONNECTIONS = 4
NOTES = [(k, f"note {k}") for k in range(10 * ROWS)]
CREATE = "CREATE TABLE notes (k INTEGER PRIMARY KEY, text TEXT)"
FRESH = "DROP TABLE IF EXISTS notes; " + CREATE


class Primes(tornado.web.RequestHandler):
    async def get(self, limit):
        rows = await self.application.rows()
        if len(rows) != ROWS:
            raise tornado.web.HTTPError(500)
        self.write({"primes": primes(int(limit))})


class PrimesAtOnce(tornado.web.RequestHandler):
    """With a driver that waits where it is called."""

    def get(self, limit):
        if len(self.application.rows()) != ROWS:
            raise tornado.web.HTTPError(500)
        self.write({"primes": primes(int(limit))})


@contextlib.asynccontextmanager
async def sqlite(url):
    """One connection for all requests."""
    with tempfile.NamedTemporaryFile(suffix=".db") as file, contextlib.closing(sqlite3.connect(file.name)) as db:
        db.execute(CREATE)
        db.executemany("INSERT INTO notes VALUES (?, ?)", NOTES)
        db.commit()
        yield lambda: db.execute("SELECT k, text FROM notes WHERE k < ? ORDER BY k DESC", (ROWS,)).fetchall()


@contextlib.asynccontextmanager
async def aiosqlite(url):
    import aiosqlite

    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        async with aiosqlite.connect(file.name) as db:
            await db.execute(CREATE)
            await db.executemany("INSERT INTO notes VALUES (?, ?)", NOTES)
            await db.commit()
            yield lambda: db.execute_fetchall("SELECT k, text FROM notes WHERE k < ? ORDER BY k DESC", (ROWS,))


@contextlib.asynccontextmanager
async def asyncpg(url):
    import asyncpg

    async with asyncpg.create_pool(f"postgresql://tester@{url}", min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        await pool.execute(FRESH)
        await pool.executemany("INSERT INTO notes VALUES ($1, $2)", NOTES)
        yield lambda: pool.fetch("SELECT k, text FROM notes WHERE k < $1 ORDER BY k DESC", ROWS)


@contextlib.asynccontextmanager
async def psycopg(url):
    import psycopg_pool

    pool = psycopg_pool.AsyncConnectionPool(
        f"postgresql://tester@{url}", min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs={"autocommit": True}, open=False
    )
    async with pool:
        async with pool.connection() as connection, connection.cursor() as cursor:
            await connection.execute(FRESH)
            await cursor.executemany("INSERT INTO notes VALUES (%s, %s)", NOTES)

        async def rows():
            async with pool.connection() as connection:
                cursor = await connection.execute("SELECT k, text FROM notes WHERE k < %s ORDER BY k DESC", (ROWS,))
                return await cursor.fetchall()

        yield rows


@contextlib.asynccontextmanager
async def redis(url):
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(url) as client:
        await client.delete("notes")
        await client.rpush("notes", *[text for _, text in NOTES])
        yield lambda: client.lrange("notes", 0, ROWS - 1)


@contextlib.asynccontextmanager
async def sqlalchemy(url):
    """Its ORM, by asyncpg."""
    from sqlalchemy import select
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

    class Base(DeclarativeBase):
        pass

    class Note(Base):
        __tablename__ = "notes"
        k: Mapped[int] = mapped_column(primary_key=True)
        text: Mapped[str]

    engine = create_async_engine(f"postgresql+asyncpg://tester@{url}", pool_size=CONNECTIONS, max_overflow=0)
    session = async_sessionmaker(engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    async with session() as s:
        s.add_all(Note(k=k, text=text) for k, text in NOTES)
        await s.commit()

    async def rows():
        async with session() as s:
            return (await s.execute(select(Note).where(Note.k < ROWS).order_by(Note.k.desc()))).scalars().all()

    try:
        yield rows
    finally:
        await engine.dispose()


async def serve(port, given):
    driver, url = given.split()
    async with globals()[driver](url) as rows:
        app = tornado.web.Application([(r"/([0-9]+)", PrimesAtOnce if driver == "sqlite" else Primes)])
        app.rows = rows
        tornado.httpserver.HTTPServer(app).listen(port)
        await asyncio.Event().wait()
