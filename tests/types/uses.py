"""Right and wrong uses of what is public, for type checkers: just the lines that end in ``# wrong`` are errors.  Never run."""

import asyncio
from collections.abc import Iterator

import tornado.web

import tornado.stm
from tornado.stm import conflictlog, dashboard, effects, log, testing, transaction


async def main() -> str:
    await asyncio.sleep(0)
    return "done"


def compute(number: int, *, scale: float = 1.0) -> float:
    return number * scale


def steps() -> Iterator[None]:
    yield


# ---- tornado.stm -------------------------------------------------------------------------------------------------------

text: str = tornado.stm.run(main())
text = tornado.stm.run(main(), threads=4, debug=True)
number: int = tornado.stm.run(main())  # wrong
tornado.stm.run(main)  # wrong
tornado.stm.run(main(), 4)  # wrong
tornado.stm.run(main(), threads="4")  # wrong
tornado.stm.install()
tornado.stm.install(threads=2)
tornado.stm.install("2")  # wrong

# ---- transaction -------------------------------------------------------------------------------------------------------

queue = transaction.TransactionQueue()
queue.add(compute, 1)
queue.add(compute, 1, scale=2.0)
queue.add(compute, "1")  # wrong
queue.add(compute)  # wrong
queue.add_generator(steps())
queue.add_generator(steps)  # wrong
queue.run()
queue.run(nb_segments=2)
queue.run("2")  # wrong
executed: int = queue.number_of_transactions_executed()
transaction.add(compute, 1)
transaction.add(compute, None)  # wrong
transaction.run()
transaction.set_threads(None)
transaction.set_threads("2")  # wrong
limit: int = transaction.getsegmentlimit()
with transaction.atomic, transaction.exclusive_atomic, transaction.single_transaction, transaction.signals_enabled:
    unique: int = transaction.count()
inside: bool = transaction.is_atomic()
commits: int = transaction.stats()["commits"]
now: float = transaction.time() + transaction.clock()
try:
    transaction.hint_commit_soon()
except transaction.TransactionError as e:
    error: RuntimeError = e

words: transaction.queue[str] = transaction.queue()
words.put("a")
words.put(1)  # wrong
word: str = words.get(block=False)
length: int = words.get(timeout=1.5)  # wrong
words.task_done()
words.join()

table: transaction.stmdict[str, int] = transaction.stmdict(a=1)
keys: list[str] = table.keys()
table["b"] = 2
table["c"] = "3"  # wrong
by_identity: transaction.stmiddict[object, str] = transaction.stmiddict([(main, "main")])
name: str = by_identity[main]
members: transaction.stmset[int] = transaction.stmset([1, 2])
members.add("3")  # wrong
objects: transaction.stmidset[object] = transaction.stmidset([main])
objects.discard(main)


class Cached:
    buffer = transaction.threadlocalproperty(bytearray)
    anything: transaction.threadlocalproperty[int] = transaction.threadlocalproperty()


cached = Cached()
buffer: bytearray = cached.buffer
cached.buffer = bytearray()
cached.buffer = 1  # wrong
cached.anything = 1
Cached.buffer.clear(cached)

# ---- effects, conflictlog, dashboard, log ------------------------------------------------------------------------------

effects.declare("pkg.mod.function", "PURE")
effects.declare("pkg.mod.Type", kind="INERT", instances="READS")
effects.declare(abs, "PURE")
effects.declare("pkg.mod.function", 1)  # wrong
effects.load("file.effects")
effects.load(1)  # wrong

conflictlog.start("stm.log", limit=1 << 20)
conflictlog.start("stm.log", "1")  # wrong
conflictlog.stop()
path: str = conflictlog.path()  # wrong
path_or_none: str | None = conflictlog.path()

application = tornado.web.Application()
dashboard.add(application)
dashboard.add(application, "/stm", public=True)
dashboard.add("/stm")  # wrong
port: int = dashboard.serve(0)
dashboard.serve("8899")  # wrong
metrics: bytes = dashboard.metrics()
page: str = dashboard.page()

status: int = log.main(["stm.log"])
log.main(1)  # wrong

# ---- testing -----------------------------------------------------------------------------------------------------------


def make_bank() -> dict[str, int]:
    return {"alice": 100, "bob": 100}


def transfer(bank: dict[str, int], source: str, target: str, amount: int) -> None:
    bank[source] -= amount
    bank[target] += amount
    testing.require(sum(bank.values()) == 200, "money is neither made nor lost")


def total(bank: dict[str, int]) -> int:
    return sum(bank.values())


def letters(bank: str) -> str:
    return bank


calls = [(transfer, "alice", "bob", 10), (transfer, "bob", "alice", 30)] * 5
run: testing.Run = testing.check_serializable(make_bank, calls, runs=100)
order: list[int] = run.order
testing.check_serializable(make_bank, [(transfer, "alice", "bob", 10), (total,)], observe=total, threads=3)
testing.check_serializable(make_bank, calls, observe=letters)  # wrong
testing.check_serializable(make_bank(), calls)  # wrong
testing.check_serializable(make_bank, [transfer])  # wrong
differences: list[str] = testing.compare(run, testing.replay(make_bank, calls, run.order))
picture: dict[str, str] = testing.describe(run=run)
