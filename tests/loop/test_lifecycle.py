"""How programs on the transactional loop begin and end: signals, `run`, `install`, and clients that go away."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from interpreters import ROOT, has_gil, on_both, on_each, without_report

SERVER = ROOT / "tests" / "loop" / "lifecycle_programs" / "server.py"

#: seconds after which what does not come is taken to hang, on a machine however busy
STUCK = 60

every_way_to_start = pytest.mark.parametrize("how", ["run", "asyncio", "ioloop", "install"])


class Server:
    """lifecycle_programs/server.py in a process of its own (context manager).

    `grace` are the seconds to answer, after SIGTERM, what has begun; None for those that every program has, which may be
    too few on a busy machine.
    """

    def __init__(self, python, how="run", grace=STUCK):
        command = ["-m", "tornado.stm", "-j", "2"] if how in ("asyncio", "ioloop") else []
        self.process = subprocess.Popen(
            [python, *command, str(SERVER), how, *([] if grace is None else [str(grace)])], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.port = int(self.process.stdout.readline())
        self.stderr = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.communicate()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=STUCK)

    def get(self, path, method="GET", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STUCK)
        connection.request(method, path, body=body)
        response = connection.getresponse()
        result = response.status, response.read()
        connection.close()
        return result

    def end(self, *signals):
        """Send the signals; the exit status and what was printed since the start."""
        for number in signals:
            self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=STUCK)
        self.stderr = without_report(stderr)
        return self.process.returncode, stdout.split("\n")[:-1]


class Client(threading.Thread):
    """Asks again and again on one connection, or on a new one each time, until the server is gone."""

    def __init__(self, server, name, path, body, keep_alive):
        super().__init__(daemon=True)
        self.server, self.name, self.path, self.body, self.keep_alive = server, name, path, body, keep_alive
        self.answered = 0
        self.wrong = []  # what is neither a whole answer nor the end
        self.ending = None

    def run(self):
        connection = None
        while self.ending is None:
            received = b""
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=STUCK)
                close = b"" if self.keep_alive else b"Connection: close\r\n"
                connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (self.path.encode(), close))
                while not self.is_whole(received):
                    data = connection.recv(65536)
                    if not data:
                        raise EOFError
                    received += data
            except (OSError, EOFError) as e:
                self.ending = type(e).__name__
                if received:
                    self.wrong.append((self.ending, len(received), received[:200]))
                return
            self.answered += 1
            if not self.keep_alive:
                connection.close()
                connection = None

    def is_whole(self, received):
        head, blank, body = received.partition(b"\r\n\r\n")
        if not blank:
            return False
        if not head.startswith(b"HTTP/1.1 200 OK"):
            self.wrong.append((head,))
            return True
        if b"Transfer-Encoding: chunked" in head:
            if not body.endswith(b"0\r\n\r\n"):
                return False
            pieces = body.split(b"\r\n")
            body = b"".join(pieces[1:-3:2])
        elif len(body) < int(head.partition(b"Content-Length: ")[2].partition(b"\r")[0]):
            return False
        if body != self.body:
            self.wrong.append((head, len(body), body[:200]))
        return True


def load(server, count, keep_alive=True):
    """Clients in a closed loop, each of which has been answered."""
    clients = []
    for i in range(count):
        if i % 4 == 3:
            path, body = "/streamed", b"".join(b"%d" % i * 1000 for i in range(10))
        else:
            path, body = f"/busy/{i}", (b"%d" % i * 20000)[:20000]
        clients.append(Client(server, f"client-{i}", path, body, keep_alive))
    for client in clients:
        client.start()
    deadline = time.monotonic() + STUCK
    while not all(client.answered or client.wrong for client in clients):
        assert time.monotonic() < deadline, [(c.name, c.answered, c.ending) for c in clients]
        time.sleep(0.01)
    return clients


def expected_end(how):
    return {"ioloop": ["the end"], "run": ["main is over", "the end"]}.get(how, ["main is over"])


# SIGTERM


@on_each
@pytest.mark.parametrize("how", ["run", "ioloop"])
@pytest.mark.parametrize("keep_alive", [True, False], ids=["keep-alive", "close"])
def test_sigterm_under_load_answers_what_has_begun(python, how, keep_alive):
    with Server(python, how, grace=20) as server:
        clients = load(server, 6, keep_alive)
        status, printed = server.end(signal.SIGTERM)
        for client in clients:
            client.join(STUCK)
        assert {c.name: c.wrong for c in clients if c.wrong} == {}
        assert all(c.ending for c in clients), [(c.name, c.ending) for c in clients]
        assert (status, printed) == (0, expected_end(how)), server.stderr


@on_each
def test_sigterm_answers_a_request_that_is_being_handled(python):
    with Server(python) as server:
        connections = [server.connect() for _ in range(4)]
        for i, connection in enumerate(connections):
            connection.sendall(b"GET /held/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % i)
        while server.get("/begun")[1] != b"4":
            pass
        status, _ = server.end(signal.SIGTERM)
        assert status == 0, server.stderr
        for i, connection in enumerate(connections):
            received = b""
            while data := connection.recv(65536):
                received += data
            assert received.endswith(b"\r\n\r\n" + (b"%d" % i * 20000)[:20000])
            connection.close()


@on_both
def test_sigterm_does_not_wait_for_what_nobody_reads(python):
    """Connections that a transaction begins to watch when the loop is draining already."""
    with Server(python, grace=2 * STUCK) as server:
        port = int(server.get("/late")[1])
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for connection in connections:
            connection.sendall(b"unread")
        assert server.end(signal.SIGTERM) == (0, expected_end("run")), server.stderr
        for connection in connections:
            connection.close()


@on_each
@every_way_to_start
def test_sigterm_while_idle(python, how):
    with Server(python, how) as server:
        assert server.get("/busy/a")[0] == 200
        idle = server.connect()
        status, printed = server.end(signal.SIGTERM)
        assert (status, printed) == (0, expected_end(how)), server.stderr
        assert idle.recv(10) == b""
        idle.close()


@on_each
def test_sigterm_before_any_request(python):
    with Server(python) as server:
        assert server.end(signal.SIGTERM) == (0, expected_end("run")), server.stderr


@on_each
def test_sigterm_twice(python):
    with Server(python) as server:
        clients = load(server, 4)
        status, printed = server.end(signal.SIGTERM, signal.SIGTERM)
        for client in clients:
            client.join(STUCK)
        assert {c.name: c.wrong for c in clients if c.wrong} == {}
        assert (status, printed) == (0, expected_end("run")), server.stderr


@on_each
def test_sigterm_does_not_wait_for_ever(python):
    with Server(python, grace=None) as server:
        connection = server.connect()
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert server.get("/busy/a")[0] == 200
        status, printed = server.end(signal.SIGTERM)
        assert (status, printed) == (0, expected_end("run")), server.stderr
        connection.close()


@on_each
def test_own_handler_of_sigterm_is_kept(python):
    with Server(python, "own-handler") as server:
        assert server.get("/busy/a")[0] == 200
        status, printed = server.end(signal.SIGTERM)
        assert (status, printed) == (7, ["own handler", "main is over"]), server.stderr


@on_both
def test_own_handler_of_sigterm_has_all_the_time_that_it_wants(python):
    with Server(python, "takes-its-time", grace=None) as server:
        assert server.get("/busy/a")[0] == 200
        status, printed = server.end(signal.SIGTERM)
        assert (status, printed) == (0, ["took its time", "main is over", "the end"]), server.stderr


@on_each
def test_sigint_is_a_keyboard_interrupt(python):
    for how in ("run", "asyncio"):
        with Server(python, how) as server:
            assert server.get("/busy/a")[0] == 200
            status, printed = server.end(signal.SIGINT)
            assert printed == ["main is over"], server.stderr
            assert status in (-signal.SIGINT, 130) and server.stderr.splitlines()[-1] == "KeyboardInterrupt"


@on_each
def test_sigint_under_load(python):
    with Server(python) as server:
        load(server, 4)
        status, printed = server.end(signal.SIGINT)
        assert printed == ["main is over"], server.stderr
        assert status in (-signal.SIGINT, 130) and server.stderr.splitlines()[-1] == "KeyboardInterrupt"


# Clients that go away, handlers that raise


@on_each
def test_failing_handler_is_answered_500_and_the_next_is_fine(python):
    with Server(python) as server:
        for _ in range(3):
            status, body = server.get("/fails")
            assert status == 500 and b"never sent" not in body
            assert server.get("/fails") == (200, b"fine")
        server.end(signal.SIGTERM)
        assert server.stderr.count("RuntimeError: on purpose\n") == 3, server.stderr


@on_each
def test_client_disconnects_in_the_middle(python):
    with Server(python) as server:
        parts = [
            b"", b"GET /busy", b"GET /busy/a HTTP/1.1\r\nHost: loc", b"POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc",
            b"GET /busy/a HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /streamed HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        for abruptly in (False, True):
            for part in parts:
                for at_once in (True, False):
                    connection = server.connect()
                    connection.sendall(part)
                    if not at_once:
                        server.get("/begun")  # by now it knows of what has been sent before
                    if abruptly:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    connection.close()
        body = os.urandom(300_000)
        assert server.get("/echo", "POST", body) == (200, body)
        assert server.get("/busy/a") == (200, b"a" * 20000)
        status, printed = server.end(signal.SIGTERM)
        assert (status, printed) == (0, expected_end("run")), server.stderr
        assert "Abort" not in server.stderr, server.stderr


@on_each
def test_slow_reader_gets_everything(python):
    with Server(python) as server:
        with server.connect() as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            connection.recv(1, socket.MSG_PEEK)  # it has begun to answer
            assert server.get("/busy/a") == (200, b"a" * 20000)
            received = 0
            while data := connection.recv(1 << 20):
                received += len(data)
                last = data
        assert received > 20_000_000 and last.endswith(b"x")


# run and install


def result_of(python, program, *arguments):
    """What the program leaves in `result`."""
    text = f"import asyncio, json, sys\nresult = []\n{program}\nprint(json.dumps(result))\n"
    finished = subprocess.run(
        [python, "-c", text, *arguments], capture_output=True, text=True, timeout=STUCK, cwd=ROOT
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@on_each
def test_run_returns_and_raises(python):
    assert result_of(python, """
import tornado.stm

async def value(x):
    await asyncio.sleep(0)
    if x < 0:
        raise LookupError(x)
    return x

result.append(tornado.stm.run(value(1)))
for threads in (1, 2, 3, None):
    result.append(tornado.stm.run(value(5), threads=threads))
    try:
        tornado.stm.run(value(-2), threads=threads)
    except LookupError as e:
        result.append(e.args[0])
for exception in (SystemExit(9), KeyboardInterrupt(), asyncio.CancelledError()):
    async def fail():
        await asyncio.sleep(0)
        raise exception
    try:
        tornado.stm.run(fail(), threads=2)
    except BaseException as e:
        result.append(type(e).__name__)
""") == [1, 5, -2, 5, -2, 5, -2, 5, -2, "SystemExit", "KeyboardInterrupt", "CancelledError"]


@on_each
def test_run_again_and_again(python):
    assert result_of(python, """
import contextlib
import os
import tornado.stm

async def work(n):
    tasks = [asyncio.create_task(asyncio.sleep(0.0005, i)) for i in range(n)]
    return sum(await asyncio.gather(*tasks))

def others():
    # So many threads are there when those that have run transactions are gone: the system lists them a moment longer.
    while True:
        names = []
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
                names.append(file.read())
        if not any(name.startswith("tornado-stm-") for name in names):
            return len(names)

result.append(tornado.stm.run(work(0), threads=2))
before = others()
for n in range(1, 30):
    result.append(tornado.stm.run(work(n), threads=2))
result.append(others() - before)
""") == [sum(range(n)) for n in range(30)] + [0]


@on_each
def test_run_leaks_no_descriptors(python):
    before, after = result_of(python, """
import os
import tornado.stm

for n in range(20):
    tornado.stm.run(asyncio.sleep(0.001), threads=2)
    if n == 4:
        result.append(len(os.listdir("/proc/self/fd")))
result.append(len(os.listdir("/proc/self/fd")))
""")
    assert before == after


@on_each
def test_a_loop_that_has_been_run_is_not_kept(python):
    """Not until the next one ends, either: with it all that the program has left in it, as a default executor."""
    assert result_of(python, """
import gc
import weakref
import tornado.stm

async def running():
    return weakref.ref(asyncio.get_running_loop())

for _ in range(2):
    loop = tornado.stm.run(running(), threads=2)
    gc.collect()
    result.append(loop() is None)
""") == [True, True]


@on_each
def test_run_in_a_thread_that_is_not_the_main_one(python):
    assert result_of(python, """
import threading
import tornado.stm

async def work():
    return sum(await asyncio.gather(*[asyncio.sleep(0.001, i) for i in range(10)]))

thread = threading.Thread(target=lambda: result.append(tornado.stm.run(work(), threads=2)))
thread.start()
thread.join()
""") == [45]


@on_each
def test_run_restores_the_signal_handler(python):
    assert result_of(python, """
import signal
import tornado.stm

tornado.stm.run(asyncio.sleep(0), threads=2)
result.append(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
result.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""") == [True, True]


@on_both
@pytest.mark.parametrize("threads", ["0", "-1", "'2'", "True", "1.5", "128", "10000"])
def test_bad_number_of_threads(python, threads):
    assert result_of(python, f"""
import tornado.stm

async def main():
    result.append("ran")

for start in (lambda: tornado.stm.run(main(), threads={threads}), lambda: tornado.stm.install({threads})):
    try:
        start()
    except ValueError as e:
        result.append(repr({threads}) in str(e))
""") == [True, True]


@on_both
def test_most_threads(python):
    expected = 1 if has_gil(python) else 127
    assert result_of(python, f"""
import os, threading
import tornado.stm

async def main():
    while len(os.listdir("/proc/self/task")) < {expected}:
        await asyncio.sleep(0.001)
    return threading.active_count()

result.append(tornado.stm.run(main(), threads=127))
""") == [1]  # to the program they are one


@on_each
def test_run_and_install_refuse_what_asyncio_refuses(python):
    """With the same errors."""
    assert result_of(python, """
import warnings
import tornado.stm

warnings.simplefilter("ignore")  # coroutines that have not been awaited

async def main():
    await asyncio.sleep(0)

def error_of(function, *args):
    try:
        function(*args)
    except Exception as e:
        return type(e).__name__, str(e)

for wrong in (5, None, main, [main]):
    result.append(error_of(tornado.stm.run, wrong) == error_of(asyncio.run, wrong) != None)

async def inside():
    result.append(error_of(tornado.stm.run, main()) == error_of(asyncio.run, main()) != None)
    result.append(error_of(tornado.stm.install))
    return type(asyncio.new_event_loop()).__module__

result.append(asyncio.run(inside()))
tornado.stm.run(inside())
result.pop()
""") == [
        True, True, True, True,
        True, ["RuntimeError", "tornado.stm.install() cannot be called from a running event loop"], "asyncio.unix_events",
        True,
    ]


@on_each
def test_install(python):
    parallel = not has_gil(python)
    name, *rest = result_of(python, """
import tornado.ioloop
import tornado.stm
from tornado.stm.loop.graceful import EndsGracefully

tornado.stm.install(2)

async def main():
    loop = asyncio.get_running_loop()
    result.append(type(loop).__name__)
    result.append(tornado.ioloop.IOLoop.current().asyncio_loop is loop)
    return await asyncio.sleep(0.001, 5)

result.append(asyncio.run(main()))
with asyncio.Runner() as runner:
    result.append(type(runner.get_loop()).__name__ == result[0])
loop = asyncio.new_event_loop()
result.append(type(loop).__name__ == result[0])
loop.close()
io_loop = tornado.ioloop.IOLoop.current()
result.append(type(io_loop.asyncio_loop).__name__ == result[0])
result.append(io_loop.run_sync(main))
for named in asyncio.SelectorEventLoop, getattr(asyncio, "EventLoop", asyncio.SelectorEventLoop):
    with asyncio.Runner(loop_factory=named) as runner:
        result.append(isinstance(runner.get_loop(), EndsGracefully))
        result.append(runner.run(asyncio.sleep(0.001, 6)))
""")
    assert rest[:5] == [True, 5, True, True, True]
    assert rest[7:] == [5, True, 6, True, 6], "and by the name of the class"
    assert (name == "TransactionalEventLoop") == parallel


@on_each
def test_loop_stop(python):
    assert result_of(python, """
import tornado.ioloop
import tornado.stm

tornado.stm.install(2)
loop = asyncio.new_event_loop()
for n in range(3):
    loop.call_later(0.002, result.append, n)
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
result.append(loop.is_running())
loop.close()

io_loop = tornado.ioloop.IOLoop()
for n in range(3, 6):
    io_loop.add_callback(result.append, n)
    io_loop.add_callback(io_loop.stop)
    io_loop.start()
io_loop.close()

io_loop = tornado.ioloop.IOLoop()
import threading
threading.Timer(0.02, lambda: io_loop.add_callback(io_loop.stop)).start()
io_loop.start()
result.append("stopped from a thread")
""") == [0, 1, 2, False, 3, 4, 5, "stopped from a thread"]


@on_each
def test_a_loop_that_is_stopped_before_it_runs_makes_one_round(python):
    """With all that there is by then, as ``loop.stop(); loop.run_forever()`` is known to do."""
    assert result_of(python, """
import socket
import tornado.stm

tornado.stm.install(2)
loop = asyncio.new_event_loop()
ours, theirs = socket.socketpair()
ours.setblocking(False)

def receive():
    result.append(str(ours.recv(10)))

loop.add_reader(ours, receive)
for stop in loop.stop, lambda: loop.call_soon(loop.stop):
    theirs.send(b"data")
    loop.call_later(0, result.append, "timer")
    stop()
    loop.call_soon(result.append, "callback")
    loop.run_forever()
    result.append(None)
result[:] = [sorted(result[:3]), result[3], sorted(result[4:7]), result[7]]
loop.close()
""") == 2 * [["b'data'", "callback", "timer"], None]


@on_each
def test_descriptors_of_which_the_kernel_tells_nothing_are_refused(python, tmp_path):
    assert result_of(python, """
import os
import tornado.stm

async def main():
    loop = asyncio.get_running_loop()
    with open("/dev/null") as null, open(os.path.abspath(__import__("sys").executable), "rb") as file:
        closed = os.dup(null.fileno())
        os.close(closed)
        for descriptor in null, file, closed:
            for add in loop.add_reader, loop.add_writer:
                try:
                    add(descriptor, print)
                except OSError as e:
                    result.append(e.errno)

tornado.stm.run(main(), threads=2)
""") == [1, 1, 1, 1, 9, 9]


@on_each
def test_sigterm_while_main_cleans_up(python, tmp_path):
    (tmp_path / "app.py").write_text("""
import asyncio, os, signal
import tornado.stm

async def main():
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.01)
        print("clean", flush=True)

print(tornado.stm.run(main(), threads=2))
""")
    finished = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=STUCK)
    assert (finished.returncode, finished.stdout) == (0, "clean\nNone\n"), finished.stderr


@on_each
@pytest.mark.parametrize("seconds", [0, 0.01, 0.2])
def test_sigterm_ends_the_program_though_its_loop_ends_by_itself(python, tmp_path, seconds):
    (tmp_path / "app.py").write_text(f"""
import asyncio, os, signal
import tornado.stm
from tornado.stm.program.runner import new_loop

async def end_by_itself():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep({seconds})

with asyncio.Runner(loop_factory=lambda: new_loop(2)) as runner:
    runner.run(end_by_itself())
for _ in range(20):  # the clock of a machine that was stopped may have gone on by seconds
    with asyncio.Runner(loop_factory=lambda: new_loop(2)) as runner:
        runner.run(asyncio.sleep(1))
print("goes on", flush=True)
""")
    finished = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=STUCK)
    assert finished.stdout == ""
    assert finished.returncode in (0, -signal.SIGTERM), finished.stderr


@on_each
def test_a_program_that_raises_sigterm_at_the_end_of_its_loop_has_status_0(python, tmp_path):
    """As uvicorn does, when it has ended gracefully: the loop is over before the guard has looked at it."""
    (tmp_path / "app.py").write_text("""
import asyncio, signal
import tornado.stm
from tornado.stm.loop import graceful

graceful.STEP, graceful.PATIENCE = 0.5, 60
tornado.stm.install(2)

async def end_by_itself():
    signal.raise_signal(signal.SIGTERM)

asyncio.run(end_by_itself())
if graceful.guard._thread is not None:
    while not graceful.guard.is_ending():
        pass
print("cleaned up")
""")
    finished = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=STUCK)
    assert (finished.stdout, finished.returncode) == ("cleaned up\n", 0), finished.stderr


GOES_ON = {
    "without a loop": """
import time
asyncio.run(end_by_itself())
time.sleep(60)
""",
    "with its loop": """
loop = asyncio.new_event_loop()
for _ in range(1200):
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
""",
    "with a loop that was stopped": """
loop = asyncio.new_event_loop()
for _ in range(3):
    loop.call_later(20, loop.stop)
    loop.run_forever()
""",
    "with what Tornado waits for": """
import tornado.ioloop
tornado.ioloop.IOLoop.current().run_sync(lambda: asyncio.sleep(60))
""",
    "and does not let itself be cancelled": """
import threading, time

def kill_again():
    while True:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=kill_again, daemon=True).start()

async def swallow():
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass

asyncio.run(swallow())
""",
}


@pytest.mark.parametrize("goes_on", GOES_ON)
@on_each
def test_sigterm_ends_a_program_that_would_go_on(python, tmp_path, goes_on):
    (tmp_path / "app.py").write_text(f"""
import asyncio, os, signal, threading
import tornado.stm

tornado.stm.install(2)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

async def end_by_itself():
    await asyncio.sleep(0.4)
{GOES_ON[goes_on]}
print("goes on", flush=True)
""")
    finished = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=STUCK)
    assert finished.stdout == ""
    assert finished.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM), finished.stderr


@on_each
def test_uncaught_exception_of_run_gives_status_1(python, tmp_path):
    (tmp_path / "app.py").write_text("""
import tornado.stm

async def main():
    raise LookupError("not there")

tornado.stm.run(main(), threads=2)
""")
    finished = subprocess.run([python, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=STUCK)
    assert finished.returncode == 1 and finished.stderr.splitlines()[-1] == "LookupError: not there"
