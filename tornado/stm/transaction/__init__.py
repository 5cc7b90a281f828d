"""PyPy-STM's ``transaction`` module on this engine: run functions in parallel as if one after the other::

    from tornado.stm import transaction

    queue = transaction.TransactionQueue()
    for item in items:
        queue.add(process, item)
    queue.run()

Here belongs what that module has, one idea a file, for programs with a loop and without: queues of transactions (`running`,
with the signals that arrive meanwhile: `interrupts`), atomic blocks (`blocks`), the queue between transactions and threads
(`queues`), containers, numbers, and values that each thread has for itself.  It knows the engine (`core`), and no loop.
"""

from time import process_time as clock
from time import time

from ..core import TransactionError, stats
from .blocks import atomic, exclusive_atomic, hint_commit_soon, is_atomic, signals_enabled, single_transaction
from .containers import hashtable, stmdict, stmiddict, stmidset, stmset
from .counting import count
from .queues import Empty, queue
from .running import TransactionQueue, add, getsegmentlimit, run, set_num_threads, set_threads
from .threadlocal import local, threadlocalproperty

__all__ = [
    "Empty", "TransactionError", "TransactionQueue", "add", "atomic", "clock", "count", "error", "exclusive_atomic",
    "getsegmentlimit", "hashtable", "hint_commit_soon", "is_atomic", "local", "queue", "run", "set_num_threads",
    "set_threads", "signals_enabled", "single_transaction", "stats", "stmdict", "stmiddict", "stmidset", "stmset",
    "threadlocalproperty", "time",
]

#: PyPy-STM's ``thread.error``, which `TransactionError` is too
error = RuntimeError
