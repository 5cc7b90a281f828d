"""Starting and ending programs on the transactional loop."""

import asyncio
import atexit
import os
import signal
import sys
import sysconfig
import threading
import weakref

from . import core, transaction


def usable_threads(threads):
    """Check a thread count and say, once, why there is only one.

    Raises:
        ValueError: not a positive integer.
    """
    transaction.set_threads(threads)
    if not core.PARALLEL:
        _say_why_serial()
        return 1
    if core.gil_is_enabled():
        _warn_of_gil()
        return 1
    return transaction.getsegmentlimit()


_said = False


def _say_why_serial():
    global _said
    if not _said:
        _said = True
        version = ".".join(map(str, sys.version_info[:3]))
        if not sysconfig.get_config_var("Py_GIL_DISABLED"):
            why = f"Python {version} has a GIL"
        elif not core.COMPILED:
            why = "the compiled engine is missing (reinstall tornado-stm)"
        else:
            why = "the GIL is switched on"
        print(f"tornado.stm: {why}: transactions run on one thread", file=sys.stderr)


def _warn_of_gil():
    print(
        f"tornado.stm: warning: {gil_watch.culprit or 'an imported extension'} has switched the GIL on: "
        "transactions run on one thread",
        file=sys.stderr,
    )


class GilWatch:
    """Learns which extension module switches the GIL on, by looking before and after each is loaded."""

    def __init__(self):
        self.culprit = None

    def install(self):
        """Look at the extensions that are imported from here on."""
        from importlib.machinery import ExtensionFileLoader

        if not sysconfig.get_config_var("Py_GIL_DISABLED"):
            return
        exec_module, create_module = ExtensionFileLoader.exec_module, ExtensionFileLoader.create_module

        def watched(load):
            def load_and_look(loader, subject):
                before = core.gil_is_enabled()
                result = load(loader, subject)
                if not before and core.gil_is_enabled():
                    self.culprit = f"the extension module {loader.name}"
                    if running_loops:
                        _warn_of_gil()
                return result

            return load_and_look

        ExtensionFileLoader.create_module = watched(create_module)
        ExtensionFileLoader.exec_module = watched(exec_module)


gil_watch = GilWatch()
gil_watch.install()
running_loops = 0


def new_loop(threads=None):
    """A loop for this interpreter: the transactional one, or asyncio's own where transactions run one at a time."""
    global running_loops
    count = usable_threads(threads)
    open_log()
    if not core.PARALLEL:
        return asyncio.SelectorEventLoop()
    from .loop import TransactionalEventLoop

    running_loops += 1
    loop = TransactionalEventLoop(count)
    _loops.append(weakref.ref(loop))
    return loop


_loops = []


def was_terminated():
    """Has SIGTERM ended one of the loops gracefully?"""
    return any(loop() is not None and loop().terminated for loop in _loops)


_log_opened = False


def open_log():
    """Begin the conflict log that the environment variable PYPYSTM asks for.

    Raises:
        SystemExit: it cannot be written (status 2).
    """
    global _log_opened
    path = os.environ.get("PYPYSTM")
    if path and not _log_opened:
        _log_opened = True
        try:
            core.log_open(path)
        except OSError as e:
            print(f"tornado.stm: cannot write the conflict log {path}: {e.strerror}", file=sys.stderr)
            sys.exit(2)
        atexit.register(core.log_close)


def run(main, threads, debug):
    """See `tornado.stm.run`."""
    terminated = []
    try:
        with asyncio.Runner(debug=debug, loop_factory=lambda: new_loop(threads)) as runner:
            loop = runner.get_loop()
            if core.PARALLEL:
                return runner.run(main)
            return runner.run(_until_sigterm(main, terminated))
    except asyncio.CancelledError:
        if terminated or getattr(loop, "terminated", False):
            return None
        raise
    finally:
        main.close()


async def _until_sigterm(main, terminated):
    """Without transactions: SIGTERM cancels the main coroutine."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        task = asyncio.current_task()

        def on_sigterm():
            terminated.append(True)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, on_sigterm)
    return await main


def install(threads):
    """See `tornado.stm.install`."""
    usable_threads(threads)
    asyncio.events.new_event_loop = asyncio.new_event_loop = lambda: new_loop(threads)
