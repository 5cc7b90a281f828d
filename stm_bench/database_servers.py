"""PostgreSQL's and Redis' servers for benchmarks and tests: started on a free port, ended with the block.

Debian's packages ``postgresql`` and ``redis-server`` have the programs.
"""

import contextlib
import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from stm_bench.errors import BenchmarkError
from stm_bench.servers import HOST, reserved_port

START_TIMEOUT = 100  # seconds

#: of the servers, which do not bear the address sanitizer that tests may run under
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


class Missing(BenchmarkError):
    """The server is not installed."""


@contextlib.contextmanager
def postgresql():
    """Yields ``HOST:PORT/DATABASE`` of a new server, whose user ``tester`` needs no password.  Raises Missing."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not found:
        raise Missing("no PostgreSQL: Debian's package postgresql has it")
    programs = Path(found[-1]).parent
    # It does not run as root.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    # Its socket lies in there, whose path must be short.
    with tempfile.TemporaryDirectory(prefix="stm-postgresql-", ignore_cleanup_errors=True) as folder, reserved_port() as port:
        os.chown(folder, user.pw_uid, user.pw_gid)
        options = {"cwd": folder, "env": ENVIRONMENT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:
            options.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
        data = Path(folder, "data")
        make = [programs / "initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync"]
        try:
            subprocess.run(make, check=True, timeout=START_TIMEOUT, **options)
        except subprocess.SubprocessError as error:
            raise BenchmarkError("PostgreSQL makes no data base: %s" % error) from None
        serve = [programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-c", "fsync=off"]
        with _serving(subprocess.Popen(serve, **options), port):
            yield "%s:%d/postgres" % (HOST, port)


@contextlib.contextmanager
def redis():
    """Yields the URL of a new server's first database.  Raises Missing."""
    if shutil.which("redis-server") is None:
        raise Missing("no Redis: Debian's package redis-server has it")
    with tempfile.TemporaryDirectory(prefix="stm-redis-") as folder, reserved_port() as port:
        serve = ["redis-server", "--port", str(port), "--save", "", "--dir", folder]
        with _serving(subprocess.Popen(serve, env=ENVIRONMENT, stdout=subprocess.DEVNULL), port):
            yield "redis://%s:%d/0" % (HOST, port)


@contextlib.contextmanager
def _serving(server, port):
    try:
        _wait_until_it_listens(server, port)
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_it_listens(server, port):
    give_up = time.monotonic() + START_TIMEOUT
    while time.monotonic() < give_up:
        if server.poll() is not None:
            raise BenchmarkError("%s has ended at once, with status %d" % (server.args[0], server.returncode))
        try:
            return socket.create_connection((HOST, port)).close()
        except OSError:
            time.sleep(0.05)
    raise BenchmarkError("%s does not listen" % server.args[0])
