"""``python -m tornado.stm [-j N] app.py [args...]``: run an unmodified program on the transactional loop."""

import argparse
import errno
import importlib.util
import os
import pkgutil
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader

from . import install, restart


def main(arguments):
    """Run a script or module with `install` in force.

    Returns:
        The exit status: 2 for bad input.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tornado.stm",
        usage="%(prog)s [-j N] app.py [args...]\n       %(prog)s [-j N] -m module [args...]",
        description="Run a Tornado or asyncio program with its event loop on several cores.",
    )
    parser.error = lambda message: sys.exit(fail(message))
    parser.add_argument("-j", dest="threads", metavar="N", help="threads (default: the CPUs this process may use)")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script or module, and its arguments")
    options = parser.parse_args(arguments)
    if not options.program:
        parser.error("which program? Give a script, or -m and a module")
    threads = None
    if options.threads is not None:
        if not options.threads.isdecimal() or int(options.threads) < 1:
            parser.error(f"-j {options.threads}: the number of threads must be a positive integer")
        threads = int(options.threads)
    program = options.program[0]
    if options.module:
        if not is_executable_module(program):
            parser.error(f"{program}: there is no such module to run")
    elif not os.path.exists(program):
        parser.error(f"{program}: there is no such script")
    elif os.path.isdir(program) and not os.path.exists(os.path.join(program, "__main__.py")):
        parser.error(f"{program}: there is no __main__.py in this folder")
    install(threads)
    restart.install()
    sys.argv = options.program
    try:
        if options.module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            run_script(program)
    except OSError as e:
        if e.errno != errno.EADDRINUSE:
            raise
        return fail(f"{program}: {e.strerror or 'address already in use'}: end the other server or choose another port")
    return 0


def run_script(path):
    """Run a script as ``python path`` does: ``__file__`` is absolute, ``sys.argv[0]`` is what was typed."""
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which ``-m`` has put there
    if pkgutil.get_importer(path) is not None:
        runpy.run_path(path, run_name="__main__")  # a folder or an archive
        return
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    path = os.path.join(os.getcwd(), path)
    loader = SourceFileLoader("__main__", path)
    main_module = types.ModuleType("__main__")
    main_module.__file__ = path
    main_module.__loader__ = loader
    sys.modules["__main__"] = main_module
    exec(loader.source_to_code(loader.get_data(path), path), vars(main_module))


def fail(message):
    """Print one line on stderr; return the exit status of bad input."""
    print(f"python -m tornado.stm: {message}", file=sys.stderr)
    return 2


def is_executable_module(name):
    """Is there a module or package of this name that can be run?  Imports the packages that it is in."""
    if not all(name.split(".")):
        return False
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(name + ".__main__")
    except ModuleNotFoundError as e:
        if e.name is None or not (name + ".").startswith(e.name + "."):
            raise
        return False
    return spec is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
