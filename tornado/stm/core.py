"""The engine in use: the compiled one where threads run in parallel, the serial one where they take turns.

Everything above the engine imports it from here.  `PARALLEL` tells whether transactions run in parallel; where it is
false the same API runs them one at a time.
"""

import functools
import os
import sys
import threading

from . import forks

try:
    from . import _engine

    if _engine.gil_is_enabled():
        raise ImportError("the GIL is switched on")
    from ._engine import (
        CAUSES, GRADES, LOG_EVENTS, LONG, MOST_THREADS, SHORT, WAITS, Abort, Dispatcher, Estimates, Outbox, PerThread, Queue, ReadyQueue, Site,
        Transaction, add_to, after_release, after_warning, answers_follow, ask_main, atomic_enter, atomic_exit, await_lock, await_signal,
        begin_collecting, bias, bias_waits, call_soon, change, check_pollable, collect_garbage, collector_disable, collector_enable,
        collector_is_enabled, current, defer, end_chain, end_collecting, exchange_handlers, exchange_locals, exclusive, exclusive_anew, fiber_goes_on,
        find_outbox, forget_bystanders, forward_signal, fresh, future_add_to_awaited_by, future_discard_from_awaited_by, futures_begin, guarded,
        handle_event, handlers, handles_begin, has_lent, hide_frames, holds, in_fiber, in_transaction, in_turn, inject_aborts, inject_delays,
        irrevocable, is_biased, is_exclusive, is_fresh, is_hidden, is_in_c, is_only_thread, is_unwinding, keeps_others_waiting, leave_mutexes,
        log_close, log_losses, log_open, look_into, main_takes, new_handle, on_abort, open_all, open_items, own, put_off, puts_off, quiet_unawaited,
        receive, receive_by_twins, receiving_begin, record_history, recorded_history, rehearse, run_handle, run_timer, running, sends_no_more, serve,
        set_allowance, set_anchor, set_garbage, set_longest_question, set_option_now, set_sequential, set_short, settle, share, site_of, socket_send,
        socket_way, sockets_begin, stand_down, stats, step_back, step_in, submit_soon, switch_barriers, take_outbox, take_place, task_eager_step,
        tasks_all, tasks_begin, thread_ident, to_guard, unset_bytearray,
    )

    COMPILED = True
except ImportError as error:
    from .serial import (
        MOST_THREADS, Abort, PerThread, Queue, Transaction, add_to, after_release, ask_main, atomic_enter, atomic_exit, await_signal,
        begin_collecting, bias, change, collect_garbage, current, defer, end_collecting, exchange_handlers, exclusive, exclusive_anew,
        forward_signal, fresh, guarded, handlers, has_lent, in_transaction, in_turn, inject_aborts, inject_delays, irrevocable, is_exclusive,
        is_fresh, is_hidden, is_only_thread, is_unwinding, keeps_others_waiting, log_close, log_losses, log_open, look_into, on_abort, open_all,
        open_items, own, puts_off, receive, record_history, recorded_history, rehearse, run_callback, running, serve, set_allowance, set_sequential,
        settle, share, stand_down, stats, step_back, step_in, switch_barriers, thread_ident, to_guard,
    )

    COMPILED, MISSING = False, str(error)  # why

PARALLEL = COMPILED

#: what the names of this package's files begin with
FOLDER = os.path.join(os.path.dirname(__file__), "")


def gil_is_enabled():
    """Do threads of this process take turns?  (A free-threaded interpreter may switch its GIL on while it runs.)"""
    return _engine.gil_is_enabled() if COMPILED else getattr(sys, "_is_gil_enabled", lambda: True)()


def trusted(function):
    """Declare a function that is aware of transactions by itself: it has no barriers, nor has what it defines (decorator)."""
    if COMPILED:
        _engine.trust(function.__code__)
    return function


trusted(trusted)  # what another thread's object does at its end does not begin in here

@trusted
def is_trusted(code):
    """Does this code run without barriers?  Under the serial engine, all code does."""
    return not COMPILED or bool(code.co_flags & _engine.CO_TRUSTED)


@trusted
def say(text):
    """Print a line on standard error, if there is anybody to read it."""
    try:
        if sys.stderr is not None:  # where it is, print() would take standard output
            print(text, file=sys.stderr)
    except (OSError, ValueError):  # its reader has left; it has been closed
        pass


class TransactionError(RuntimeError):
    """Misuse of transactions, such as running a queue inside a transaction."""


def once(prepare):
    """The function, of which only the first call does anything; those of other threads wait until it is done (decorator)."""
    lock, done = threading.Lock(), False
    forks.free(lock)

    @functools.wraps(prepare)
    def unless_done():
        nonlocal done
        if not done:
            with lock:
                if not done:
                    prepare()
                    done = True

    return unless_done
