"""How many threads can run transactions; and where it is one, who says so, and why."""

import sys
import sysconfig

from .. import core, transaction


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


def note_loop():
    """A loop is made that runs transactions in parallel: say so at once if the GIL is switched on from here on."""
    global running_loops
    running_loops += 1
