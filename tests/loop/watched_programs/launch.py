"""Runs a script as ``python -m tornado.stm -j 2`` does, with aborts injected.

    launch.py SEED SCRIPT [ARGUMENT...]
"""

import sys

from tornado.stm import __main__, core, install

RATE = 0.01


if __name__ == "__main__":
    del sys.path[0]
    install(2)
    core.inject_aborts(RATE, int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    sys.path.insert(0, "")
    __main__.run_script(sys.argv[0])
