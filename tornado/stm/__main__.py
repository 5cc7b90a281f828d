"""``python -m tornado.stm [-j N] app.py [args...]``: run an unmodified program on the transactional loop."""

import argparse
import builtins
import errno
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader

from . import conflictlog, core, effects, transaction
from .program import parallelism, processes, restart, tracebacks

#: the name of a script that is read from standard input
STDIN = "-"

#: of megabytes: more than any disk has
MOST_DIGITS = 12

NO_MODULE = "%s: there is no such module to run"


def main(arguments):
    """Run a script or module with `install` in force.

    Returns:
        The exit status: 2 for bad input.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tornado.stm",
        usage="%(prog)s [options] app.py [args...]\n       %(prog)s [options] -m module [args...]",
        description="Run a Tornado or asyncio program with its event loop on several cores.",
    )
    parser.error = lambda message: sys.exit(fail(message))
    reserve_stderr()
    parser.add_argument("-j", dest="threads", metavar="N", help="threads (default: the CPUs this process may use, by its container's limit, too)")
    parser.add_argument("--effects", action="append", default=[], metavar="FILE", help="what C functions of other libraries do")
    parser.add_argument("--explain", action="store_true", help="at the end, tell all that ran alone, and what could be declared")
    parser.add_argument("--log", metavar="FILE", help="write the conflict log there, for python -m tornado.stm.log")
    parser.add_argument("--log-size", metavar="MB", help="megabytes of it, of which the older half is in FILE.1 (1024; 0: no limit)")
    parser.add_argument("--version", action="store_true", help="print the versions of all that matters here, and end")
    parser.add_argument("-q", dest="quiet", action="store_true", help="tell nothing: no report of a run, no warnings")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script or module, and its arguments")
    options = parser.parse_args(arguments)
    if options.version:
        try:
            os.write(1, f"{versions()}\n".encode())
        except OSError as e:
            return fail(f"standard output: {e.strerror}")
        return 0
    if not options.program:
        parser.error("which program? Give a script, or -m and a module")
    threads = None
    if options.threads is not None:
        try:
            threads = int(options.threads) if options.threads.isdecimal() else 0
            transaction.set_threads(threads)
        except ValueError:
            parser.error(
                f"-j {options.threads}: the number of threads must be a positive integer, {core.MOST_THREADS} at most"
            )
    if options.log == "":
        parser.error("--log: which file?")
    if options.log_size is not None:
        if options.log is None:
            parser.error("--log-size: of which log? Give --log FILE, too")
        if not (options.log_size.isdecimal() and len(options.log_size) <= MOST_DIGITS):
            parser.error(f"--log-size {options.log_size}: megabytes must be a whole number, of {MOST_DIGITS} digits at most")
    if options.log:
        conflictlog.want(options.log, int(options.log_size) << 20 if options.log_size else conflictlog.LIMIT)
    for file in options.effects:
        try:
            effects.load(file)
        except OSError as e:
            parser.error(f"--effects {file}: {e.strerror}")
        except ValueError as e:
            parser.error(f"--effects {e}")
    program = options.program[0]
    if options.module:
        if not may_be_module(program):
            parser.error(NO_MODULE % program)
    elif program != STDIN and not os.path.exists(program):
        parser.error(f"{program}: there is no such script")
    elif os.path.isdir(program) and not os.path.exists(os.path.join(program, "__main__.py")):
        parser.error(f"{program}: there is no __main__.py in this folder")
    files = tuple(map(os.path.abspath, options.effects))
    reports = options.explain or not options.quiet
    processes.begin(processes.Options(threads, files, reports, options.explain, options.quiet))
    restart.install()
    sys.modules["__main__"] = new_main_module()
    sys.argv = options.program
    run = run_module if options.module else run_script
    try:
        return run(program)
    except SystemExit:
        raise
    except BaseException as e:
        if isinstance(e, OSError) and e.errno == errno.EADDRINUSE:
            return fail(f"{program}: {e.strerror or 'address already in use'}: end the other server or choose another port")
        tracebacks.show_programs_own(e)
        raise


def versions():
    """One line for a report of a bug."""
    # only here: both take a while
    import importlib.metadata

    import tornado

    try:
        name = f"tornado-stm {importlib.metadata.version('tornado-stm')}"
    except importlib.metadata.PackageNotFoundError:
        name = "tornado-stm, not installed"
    python, why = "{}.{}.{}".format(*sys.version_info), parallelism.why_serial()
    engine = f"compiled for {python}" if core.COMPILED else f"serial, as {why}"
    return f"{name} (Python {python}{' free-threading' * parallelism.FREE_THREADED}; engine: {engine}; tornado {tornado.version})"


def may_be_module(name):
    """Can there be a module of this name?  Imports nothing: the packages that it is in belong to the program."""
    first, *rest = name.split(".")
    return all([first, *rest]) and importlib.util.find_spec(first) is not None


def new_main_module():
    """What Python makes before it runs a program."""
    module = types.ModuleType("__main__")
    module.__loader__ = BuiltinImporter
    module.__builtins__ = builtins
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    return module


def run_module(name):
    """Run a module as ``python -m name`` does; return the exit status."""
    if name == restart.NAME:
        restart.run_autoreload()
        return 0
    sys.argv[0] = "-m"
    return run_as_main(name, True, NO_MODULE % name)


def run_as_main(name, alter_argv, missing):
    """Let Python's own function run a module; it raises SystemExit if there is none."""
    try:
        runpy._run_module_as_main(name, alter_argv)
    except SystemExit as e:
        found_none = isinstance(e.__context__, runpy._Error) and e.__traceback__.tb_next.tb_next is None
        if not found_none:
            raise
        return fail(missing)
    return 0


def run_script(path):
    """Run a script as ``python path`` does; return the exit status."""
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which ``-m`` has put there
    if path != STDIN and pkgutil.get_importer(path) is not None:
        sys.path.insert(0, absolute(path))
        return run_as_main("__main__", False, f"{path}: there is no __main__.py in this archive")
    main_module = sys.modules["__main__"]
    main_module.__cached__ = None
    if path == STDIN:
        folder, main_module.__file__ = "", "<stdin>"
        code = compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
    else:
        folder, path = os.path.dirname(os.path.realpath(path)), absolute(path)
        main_module.__file__ = path
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)
            main_module.__loader__ = (SourcelessFileLoader if code else SourceFileLoader)("__main__", path)
            if code is None:
                file.seek(0)
                code = compile(file.read(), path, "exec", dont_inherit=True)
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
    exec(code, vars(main_module))
    return 0


def absolute(path):
    """As Python names a program in tracebacks.  The current folder may be gone: only a path that is relative to it asks for it."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def fail(message):
    """Print one line on stderr; return the exit status of bad input."""
    core.say(f"python -m tornado.stm: {message}")
    return 2


def reserve_stderr():
    """Where there is no standard error, let the program get its number for none of its files: reports are written to that."""
    try:
        os.fstat(2)
    except OSError:
        file = os.open(os.devnull, os.O_WRONLY)
        if file != 2:
            os.dup2(file, 2, inheritable=False)
            os.close(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
