"""Starting and ending programs on the transactional loop."""

import asyncio
import os
import selectors
import sys
import sysconfig

from . import conflictlog, core, transaction
from .graceful import GRACE, STEP, EndsGracefully, is_listening

if core.PARALLEL:
    from .loop import TransactionalEventLoop, use_python_futures


def usable_threads(threads):
    """Check a thread count and say, once, why there is only one.

    Raises:
        ValueError: not a possible number of threads.
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
            why = core.MISSING
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


class SerialEventLoop(EndsGracefully, asyncio.SelectorEventLoop):
    """Asyncio's own event loop, for interpreters with a GIL; SIGTERM ends it as gracefully as the transactional one."""

    _quiet = 0

    def run_forever(self):
        """Run until `stop` is called, or SIGTERM ends the program gracefully (if it has no handler of its own)."""
        self._check_running()
        with self._sigterm_drains():
            super().run_forever()

    def _drain(self):
        http1 = sys.modules.get("tornado.http1connection")
        if http1 is not None:
            # Tornado reads the next request of a connection without waiting for an event: let there be one at most.
            http1.HTTP1Connection._can_keep_alive = lambda *request: False
        for key in list(self._selector.get_map().values()):
            if is_listening(key.fd):
                self._remove_reader(key.fd)
        self._look_whether_drained(self.time() + GRACE)

    def _look_whether_drained(self, until):
        idle = not self._ready and not any(
            key.events & selectors.EVENT_WRITE for key in self._selector.get_map().values()
        )
        self._quiet = self._quiet + 1 if idle and not self._handles_requests() else 0
        timers = any(timer.when() < until and not timer.cancelled() for timer in self._scheduled)
        if (self._quiet > 2 and not timers) or self.time() >= until:
            self._cancel_all()
        else:
            self.call_later(STEP, self._look_whether_drained, until)


def new_loop(threads=None):
    """A loop for this interpreter: the transactional one, or the serial one where transactions run one at a time."""
    count = prepare(threads)
    return TransactionalEventLoop(count) if core.PARALLEL else SerialEventLoop()


def prepare(threads):
    """What comes before each new loop; returns the number of its threads."""
    global running_loops
    count = usable_threads(threads)
    conflictlog.begin()
    if core.PARALLEL:
        running_loops += 1
    return count


def selector_event_loop(threads):
    """What stands for ``asyncio.SelectorEventLoop``: programs that name this class get the loop that others get."""
    if not core.PARALLEL:
        return SerialEventLoop

    class SelectorEventLoop(TransactionalEventLoop):
        """The loop polls by itself: a selector is only closed with it."""

        def __init__(self, selector=None):
            super().__init__(prepare(threads), selector)

    SelectorEventLoop.__qualname__ = "SelectorEventLoop"
    return SelectorEventLoop


def run(main, threads, debug):
    """See `tornado.stm.run`."""
    if asyncio._get_running_loop() is not None:
        return asyncio.run(main)  # which says that this cannot be
    loop = None
    try:
        with asyncio.Runner(debug=debug, loop_factory=lambda: new_loop(threads)) as runner:
            loop = runner.get_loop()
            return runner.run(main)
    except SystemExit:
        if loop is not None and loop.terminated:
            return None
        raise
    finally:
        if asyncio.iscoroutine(main):
            main.close()


#: Libraries whose C parts, of which the engine knows nothing, have a twin in Python, which an environment variable asks for.
WITH_PYTHON_PARTS = ("AIOHTTP", "FROZENLIST", "MULTIDICT", "PROPCACHE", "YARL")


def install(threads):
    """See `tornado.stm.install`."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("tornado.stm.install() cannot be called from a running event loop")
    usable_threads(threads)
    conflictlog.begin()
    if core.PARALLEL:
        for library in WITH_PYTHON_PARTS:
            os.environ.setdefault(f"{library}_NO_EXTENSIONS", "1")

    def loop_factory():
        return new_loop(threads)

    if core.PARALLEL:
        # Before the program derives classes of its own from them.
        use_python_futures()
    # Where the program has not chosen another policy, all that make loops ask the default one.
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = staticmethod(loop_factory)
    named = selector_event_loop(threads)
    for module in asyncio, asyncio.unix_events:
        module.SelectorEventLoop = named
        if sys.version_info >= (3, 13):
            module.EventLoop = named
