"""Blocks of code that nothing else runs in between of, in any thread; and what PyPy-STM has besides for its own blocks."""

from __future__ import annotations

from .. import activation, core
from ..core import TransactionError, trusted


class _Atomic:
    """``with atomic:`` no transaction and no other such block runs in between.

    In a transaction none does anyway.  Other threads are kept out only of blocks like this one.
    """

    @trusted
    def __enter__(self) -> None:
        activation.activate()
        if core.atomic_enter():
            _blocks.mine().depth = 1
        elif _blocks.mine().depth:
            _blocks.mine().depth += 1

    @trusted
    def __exit__(self, *exc: object) -> None:
        if not core.in_transaction():
            raise TransactionError("more exits from atomic blocks than entries")
        if _blocks.mine().depth:
            _blocks.mine().depth -= 1
            if not _blocks.mine().depth:
                core.atomic_exit()


class _ExclusiveAtomic(_Atomic):
    """``with exclusive_atomic:`` the same, but not inside another such block, `atomic` or a transaction.

    Raises:
        TransactionError: there.
    """

    @trusted
    def __enter__(self) -> None:
        if core.in_transaction():
            raise TransactionError("exclusive_atomic cannot be entered inside a transaction or an atomic block")
        super().__enter__()


class _Blocks:
    """How many blocks deep a thread is in `atomic`; 0 in transactions, which cannot run in one."""

    depth = 0


_blocks = core.PerThread(_Blocks)
atomic: _Atomic = _Atomic()
single_transaction: _Atomic = atomic
exclusive_atomic: _ExclusiveAtomic = _ExclusiveAtomic()


def is_atomic() -> bool:
    """Does nothing else run in between here?"""
    return core.in_transaction()


def hint_commit_soon() -> None:
    """Do nothing: a transaction here is what was added as one, and threads outside of transactions are in none.

    (On PyPy-STM all code is in some transaction, which goes on into the next block that has to be atomic.)
    """


class _SignalsEnabled:
    """``with signals_enabled:`` signals reach this thread: in CPython the main one whatever it does, others never.

    So there is nothing to do.  The main thread is among those that run transactions where it calls ``run()``: see `interrupts`.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


signals_enabled: _SignalsEnabled = _SignalsEnabled()
