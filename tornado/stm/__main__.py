"""``python -m tornado.stm [-j N] app.py [args...]``: run an unmodified program on the transactional loop."""

import argparse
import asyncio
import errno
import os
import runpy
import sys

from . import install, runner


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
    if not options.module and not os.path.exists(program):
        parser.error(f"{program}: there is no such script")
    install(threads)
    sys.argv = options.program
    try:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(program))
            runpy.run_path(program, run_name="__main__")
    except asyncio.CancelledError:
        if not runner.was_terminated():
            raise
    except OSError as e:
        if e.errno != errno.EADDRINUSE:
            raise
        print(f"python -m tornado.stm: {program}: {e.strerror or 'address already in use'}: "
              "end the other server or choose another port", file=sys.stderr)
        return 2
    except ImportError as e:
        if options.module and e.name and (program == e.name or program.startswith(e.name + ".")):
            print(f"python -m tornado.stm: {program}: there is no such module", file=sys.stderr)
            return 2
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
