"""What programs do with a database, by one driver after the other: ``databases.py DRIVER URL``.  Prints what came of it, as JSON.

It is the same on any loop.  Money is moved between accounts by many tasks at once; what the program has noted of that in lists of
its own must be what the database has.
"""

import asyncio
import datetime
import decimal
import json
import sys

ACCOUNTS, TRANSFERS, EACH = 5, 60, 100


def transfers():
    return [(k % ACCOUNTS, (k * 3 + 1) % ACCOUNTS, k % 7 + 1) for k in range(TRANSFERS)]


def after(moved):
    amounts = [EACH] * ACCOUNTS
    for source, target, amount in moved:
        amounts[source] -= amount
        amounts[target] += amount
    return amounts


def work():
    """What a handler computes with what it has got."""
    return sum(number for number in range(2, 700) if all(number % divisor for divisor in range(2, int(number**0.5) + 1)))


async def error(awaitable):
    """Which error that ends with."""
    try:
        await awaitable
    except Exception as e:
        return type(e).__name__
    return None


async def at_once(function, items):
    return await asyncio.gather(*(function(item) for item in items))


async def with_asyncpg(url):
    import asyncpg

    moved, told = [], asyncio.Queue()
    async with asyncpg.create_pool(url, min_size=3, max_size=3) as pool:
        async with pool.acquire() as c:
            await c.execute("drop table if exists accounts")
            await c.execute("create table accounts (id int primary key, amount int, note text)")
            await c.executemany("insert into accounts values ($1, $2, $3)", [(k, EACH, f"n{k}") for k in range(ACCOUNTS)])

        async def move(transfer):
            source, target, amount = transfer
            async with pool.acquire() as c:
                async with c.transaction():
                    first, second = sorted((source, target))
                    await c.fetch("select * from accounts where id in ($1, $2) order by id for update", first, second)
                    await c.execute("update accounts set amount = amount - $2 where id = $1", source, amount)
                    await c.execute("update accounts set amount = amount + $2 where id = $1", target, amount)
                    moved.append(transfer)
            return work()

        computed = await at_once(move, transfers())
        rows = await pool.fetch("select id, amount, note from accounts order by id")
        values = (datetime.date(2024, 2, 29), decimal.Decimal("12.50"), [1, None, 3], "é", b"\0\1", None, 2.5, True)
        async with pool.acquire() as c:
            await c.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            decoded = await c.fetchval("select $1::json", {"a": [1, {"b": None}]})
            echoed = await c.fetchrow("select $1::date, $2::numeric, $3::int[], $4::text, $5::bytea, $6::int, $7::float8, $8::bool", *values)
            late = await error(c.fetchval("select pg_sleep(20)", timeout=0.1))
            slow = asyncio.ensure_future(c.fetchval("select pg_sleep(20)"))
            await asyncio.sleep(0.1)
            slow.cancel()
            await asyncio.wait([slow])
            usable = await c.fetchval("select 1")
            await c.add_listener("news", lambda *news: told.put_nowait(news[2:]))
            await pool.execute("notify news, 'hello'")
            news = await asyncio.wait_for(told.get(), 20)
            await c.reset_type_codec("json", schema="pg_catalog")
            await c.copy_records_to_table("accounts", records=[(k, k, None) for k in range(100, 120)])
            async with c.transaction():
                seen = [row["id"] async for row in c.cursor("select id from accounts where id >= 100 order by id", prefetch=7)]
            statement = await c.prepare("select amount * $1 from accounts where id = 100 + $1")
            products = [await statement.fetchval(k) for k in range(5)]
        errors = [
            await error(pool.execute("insert into accounts values (0, 0, '')")),
            await error(pool.fetch("select 1 / 0")),
            await error(pool.fetch("select nothing from nowhere")),
            await error(pool.fetch("select $1::int", "no number")),
        ]
        return {
            "computed": computed, "amounts": [row["amount"] for row in rows] == after(moved), "moved": sorted(moved) == sorted(transfers()),
            "rows": [[row[0], row["note"], *row.keys()] for row in rows], "decoded": decoded, "echoed": tuple(echoed) == values,
            "late": late, "cancelled": slow.cancelled(), "usable": usable, "news": news, "seen": seen, "products": products, "errors": errors,
        }  # fmt: skip


async def with_psycopg_pool(url):
    import psycopg_pool

    moved = []
    async with psycopg_pool.AsyncConnectionPool(url, min_size=3, max_size=3, open=False) as pool:
        async with pool.connection() as c:
            await c.execute("drop table if exists accounts")
            await c.execute("create table accounts (id int primary key, amount int)")
            async with c.cursor() as cursor:
                await cursor.executemany("insert into accounts values (%s, %s)", [(k, EACH) for k in range(ACCOUNTS)])

        async def move(transfer):
            source, target, amount = transfer
            async with pool.connection() as c:
                await c.execute("select * from accounts where id in (%s, %s) order by id for update", (source, target))
                await c.execute("update accounts set amount = amount - %s where id = %s", (amount, source))
                await c.execute("update accounts set amount = amount + %s where id = %s", (amount, target))
                moved.append(transfer)
            return work()

        async def break_off():
            async with pool.connection() as c:
                await c.execute("update accounts set amount = 0")
                await c.execute("select 1 / 0")

        async def wait_long():
            async with pool.connection() as c:
                await c.execute("select pg_sleep(100)")

        computed = await at_once(move, transfers())
        failed = await error(break_off())
        slow = asyncio.create_task(wait_long())
        await asyncio.sleep(0.1)
        slow.cancel()
        cancelled = await error(asyncio.wait_for(asyncio.gather(slow, return_exceptions=True), 10))
        computed += await at_once(move, transfers())  # by all three connections, which are back
        async with pool.connection() as c:
            rows = await (await c.execute("select amount from accounts order by id")).fetchall()
        return {
            "computed": computed, "amounts": [amount for (amount,) in rows] == after(moved), "failed": failed, "cancelled": cancelled,
            "moved": sorted(moved) == sorted(2 * transfers()),
        }  # fmt: skip


async def with_psycopg(url):
    import psycopg

    moved, free = [], asyncio.Queue()
    for _ in range(3):
        free.put_nowait(await psycopg.AsyncConnection.connect(url))
    c = await free.get()
    await c.execute("drop table if exists accounts")
    await c.execute("create table accounts (id int primary key, amount int)")
    async with c.cursor() as cursor:
        await cursor.executemany("insert into accounts values (%s, %s)", [(k, EACH) for k in range(ACCOUNTS)])
    await c.commit()
    free.put_nowait(c)

    async def move(transfer):
        source, target, amount = transfer
        c = await free.get()
        async with c.transaction():
            await c.execute("select * from accounts where id in (%s, %s) order by id for update", (source, target))
            await c.execute("update accounts set amount = amount - %s where id = %s", (amount, source))
            await c.execute("update accounts set amount = amount + %s where id = %s", (amount, target))
            moved.append(transfer)
        free.put_nowait(c)
        return work()

    computed = await at_once(move, transfers())
    c = await free.get()
    rows = await (await c.execute("select amount from accounts order by id")).fetchall()
    echoed = await (await c.execute("select %s::date, %s::numeric", (datetime.date(2024, 2, 29), decimal.Decimal("1.5")))).fetchone()
    failed = await error(c.execute("select 1 / 0"))
    await c.rollback()
    await c.close()
    while not free.empty():
        await (await free.get()).close()
    return {
        "computed": computed, "amounts": [amount for amount, in rows] == after(moved), "moved": len(moved),
        "echoed": list(map(str, echoed)), "failed": failed,
    }  # fmt: skip


async def with_sqlalchemy(url):
    from sqlalchemy import select
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
    from sqlalchemy.schema import ForeignKey

    class Base(DeclarativeBase):
        pass

    class Account(Base):
        __tablename__ = "accounts_of_orm"
        id: Mapped[int] = mapped_column(primary_key=True)
        amount: Mapped[int]
        notes: Mapped[list["Note"]] = relationship(lazy="selectin", order_by="Note.id")

    class Note(Base):
        __tablename__ = "notes_of_orm"
        id: Mapped[int] = mapped_column(primary_key=True)
        account: Mapped[int] = mapped_column(ForeignKey(Account.id))
        text: Mapped[str]

    engine = create_async_engine(url)
    async with engine.begin() as c:
        await c.run_sync(Base.metadata.drop_all)
        await c.run_sync(Base.metadata.create_all)
    session = async_sessionmaker(engine)
    async with session() as s:
        s.add_all(Account(id=k, amount=EACH, notes=[Note(text=f"first of {k}")]) for k in range(ACCOUNTS))
        await s.commit()
    one_at_a_time = asyncio.Lock()  # SQLite has one lock for all, and gives up waiting for it

    async def move(transfer):
        source, target, amount = transfer
        async with one_at_a_time, session() as s:
            (await s.get(Account, source)).amount -= amount
            (await s.get(Account, target)).amount += amount
            await s.commit()
        async with session() as s:
            account = (await s.execute(select(Account).where(Account.id == source))).scalar_one()
            return work(), [note.text for note in account.notes]

    computed = await at_once(move, transfers())
    async with session() as s:
        amounts = list((await s.execute(select(Account.amount).order_by(Account.id))).scalars())
        s.add(Account(id=0, amount=0))
        failed = await error(s.commit())
    await engine.dispose()
    return {"computed": computed, "amounts": amounts == after(transfers()), "failed": failed}


async def with_aiosqlite(url):
    import aiosqlite

    async with aiosqlite.connect(url) as c:
        await c.execute("create table accounts (id int primary key, amount int)")
        await c.executemany("insert into accounts values (?, ?)", [(k, EACH) for k in range(ACCOUNTS)])

        async def move(transfer):
            source, target, amount = transfer
            await c.execute("update accounts set amount = amount - ? where id = ?", (amount, source))
            await c.execute("update accounts set amount = amount + ? where id = ?", (amount, target))
            return work()

        computed = await at_once(move, transfers())
        async with c.execute("select amount from accounts order by id") as cursor:
            amounts = [amount async for amount, in cursor]
        failed = await error(c.execute("insert into accounts values (0, 0)"))
        await c.rollback()
    return {"computed": computed, "amounts": amounts == after(transfers()), "failed": failed}


async def with_redis(url):
    import redis.asyncio as redis

    async with redis.Redis.from_url(url, decode_responses=True, max_connections=10) as r:
        await r.flushdb()
        for k in range(ACCOUNTS):
            await r.set(f"account{k}", EACH)

        async def move(transfer):
            source, target, amount = transfer
            async with r.pipeline(transaction=True) as pipe:
                await pipe.decrby(f"account{source}", amount).incrby(f"account{target}", amount).rpush("moved", amount).execute()
            return work()

        computed = [
            result for k in range(0, TRANSFERS, 10) for result in await at_once(move, transfers()[k : k + 10])
        ]
        amounts = [int(await r.get(f"account{k}")) for k in range(ACCOUNTS)]
        told = []
        async with r.pubsub() as pubsub:
            await pubsub.subscribe("news")
            await r.publish("news", "hello")
            async for message in pubsub.listen():
                told.append((message["type"], message["data"]))
                if message["type"] == "message":
                    break
        return {
            "computed": computed, "amounts": amounts == after(transfers()), "moved": await r.llen("moved"), "told": told,
            "failed": await error(r.lpush("account0", 1)),
        }  # fmt: skip


if __name__ == "__main__":
    driver, url = sys.argv[1:]
    print(json.dumps(asyncio.run(globals()[f"with_{driver}"](url)), default=str))
