"""``python -m tornado.stm -j 2 APP [args...]``, observed: aborts are injected, and a test may ask what the engine counts.

    observed.py RATE SEED FD APP [args...]      FD: a socket on which it answers `core.stats()` to each byte, or -1
"""

import json
import socket
import sys
import threading

from tornado.stm import __main__, core


def answer(questions):
    """Until the other side closes."""
    while questions.recv(1):
        questions.sendall(json.dumps(core.stats()).encode() + b"\n")


if __name__ == "__main__":
    rate, seed, fd = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if rate:
        core.inject_aborts(rate, seed)
    if fd >= 0:
        threading.Thread(target=answer, args=(socket.socket(fileno=fd),), daemon=True).start()
    sys.exit(__main__.main(["-j", "2", *sys.argv[4:]]))
