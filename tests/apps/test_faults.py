"""What clients, handlers and the machine do wrong: everybody else is answered, and nothing is left behind.

Each test counts what was sent and what was answered.
"""

import contextlib
import os
import resource
import signal
import socket

import pytest

from app_process import App
from interpreters import GIL, needs_engine, needs_gil, not_sanitized
from programs import TIMEOUT, Client, Program, get, in_parallel, reset, until
from tornado.stm.loop.graceful import KILLED

needs_engine()


@pytest.fixture
def server():
    with Program("faulty.py") as program:
        yield program


# ---- Clients --------------------------------------------------------------------------------------------------------


def test_clients_that_send_half_a_request_and_vanish(server):
    get(server, "/count")
    before = server.descriptors
    whole = b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n" + b"b" * 100000
    vanished = answered = 0
    for cut in [0, 1, 10, 16, 30, 40, 61, 62, 63, 64, 65, 100, 5000, 70000, 100060] * 6:
        connection = server.connect()
        connection.sendall(whole[:cut])
        if vanished % 2:
            connection.close()
        else:
            reset(connection)
        vanished += 1
        get(server, "/count")
        answered += 1
    assert vanished == answered == 90
    assert get(server, "/count") == "92"
    until(lambda: server.descriptors <= before, server)


def test_a_thousand_idle_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with Program("faulty.py", limits={resource.RLIMIT_NOFILE: (hard, hard)}) as server:
            get(server, "/count")
            before = server.descriptors
            idle = [server.connect() for _ in range(1000)]
            for n in range(100):
                get(server, "/count")
            for connection in idle:
                connection.sendall(b"GET /count HTTP/1.1\r\nHost: test\r\n\r\n")
            answers = [connection.recv(4096) for connection in idle]
            assert sum(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers) == 1000
            assert sorted(int(answer.rpartition(b"\r\n")[2]) for answer in answers) == list(range(102, 1102))
            for connection in idle:
                connection.close()
            until(lambda: server.descriptors <= before, server)
            assert server.end() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_slow_readers_of_large_responses_keep_little_memory(server):
    """What waits for a reader is one piece, the outbox and what the kernels hold; not the response."""
    readers, size, pieces = 10, 65536, 500  # 31 MB each
    get(server, "/stream?size=65536&pieces=10")
    connections = []
    before = server.resident
    for _ in range(readers):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.settimeout(TIMEOUT)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /stream?size=%d&pieces=%d HTTP/1.0\r\n\r\n" % (size, pieces))
        connections.append(connection)
    heads = [connection.recv(100) for connection in connections]
    assert all(head.startswith(b"HTTP/1.1 200 OK\r\n") for head in heads)
    # They read no more: soon nothing is flushed any more.
    flushed = [get(server, "/flushed")]
    while len(flushed) < 200 or flushed[-1] != flushed[-200]:
        flushed.append(get(server, "/flushed"))
        assert len(flushed) < 20000
    assert int(flushed[-1]) < readers * 16 << 20
    assert server.resident - before < readers * 2 << 20
    received = in_parallel(readers, lambda number: len(heads[number]) + read_to_end(connections[number]))
    assert all(count > size * pieces for count in received), received
    assert int(get(server, "/flushed")) == 10 * 65536 + readers * size * pieces
    assert server.resident - before < readers * 4 << 20


def read_to_end(connection):
    count = 0
    while data := connection.recv(1 << 20):
        count += len(data)
    connection.close()
    return count


# ---- Handlers -------------------------------------------------------------------------------------------------------


def warm_up(server):
    """Let the server compute what it computes for its first requests only."""
    for _ in range(3):
        get(server, "/new?garbage=1")


def computing(server, path, on):
    """Ask for what does not end until a request computes it on that kind of thread; the connection."""
    warm_up(server)
    while True:
        connection = server.connect()
        used = processor_time(server, on)
        connection.sendall(f"GET {path}{'&' if '?' in path else '?'}on={on} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        connection.settimeout(0.01)
        while processor_time(server, on) - used < 25:
            try:
                assert b"elsewhere" in connection.recv(4096)
            except TimeoutError:
                continue
            break
        else:
            connection.settimeout(None)
            return connection
        connection.close()


def processor_time(server, on):
    """Ticks, a hundred a second, that its main thread has used, or all others."""
    main = str(server.process.pid)
    folder = f"/proc/{main}/task"
    total = 0
    for thread in os.listdir(folder):
        if (thread == main) == (on == "main"):
            with open(f"{folder}/{thread}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total


@pytest.fixture
def impatient():
    with Program("faulty.py", environment={"ALLOWANCE": "0.1"}) as program:
        yield program


@pytest.mark.parametrize("on", ["main", "other"])
def test_the_others_go_on_beside_an_endless_loop(impatient, on):
    server = impatient
    endless = computing(server, "/spin", on)
    sent = answered = 0
    with Client(server) as client:
        for _ in range(200):
            client.get("/count")
        for _ in range(10):
            client.get("/new?garbage=4000")
        sent, answered = client.sent, client.answered
    assert sent == answered == 210
    assert '"shared": 0,' in get(server, "/values")
    assert server.end() == 0
    assert endless.recv(4096) == b""


def test_whoever_wants_what_an_endless_loop_holds_gets_it(impatient):
    server = impatient
    computing(server, "/spin?holding=yes", "other")
    with Client(server) as client:
        assert '"shared": 0,' in client.get("/values")
        for _ in range(10):
            client.get("/swallow?how=bare&rounds=1")
        assert client.sent == client.answered == 11
    assert server.end() == 0


@contextlib.contextmanager
def set_off(server):
    """What is asked for in this context does not end: wait until a thread computes it."""

    def used():
        return processor_time(server, "main") + processor_time(server, "other")

    before = used()
    yield
    while used() - before < 25:
        pass


def test_what_comes_after_an_endless_loop_holds_no_thread(impatient):
    """The client goes, and what its connection's end schedules has to come after what its request has scheduled."""
    server = impatient
    with server.connect() as connection:
        for _ in range(300):  # enough to be known as short, and so to follow in the transactions of the connection's events
            connection.sendall(b"GET /count HTTP/1.1\r\nHost: test\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
        with set_off(server):
            connection.sendall(b"GET /spin HTTP/1.1\r\nHost: test\r\n\r\n")
        opened = server.descriptors
    while server.descriptors == opened:
        pass
    with Client(server) as client:  # on the number of the other one
        for _ in range(10):
            client.get("/count")


def test_a_closed_descriptor_whose_events_have_set_off_an_endless_loop_gives_its_number_back(impatient):
    """Its last event schedules nothing; until then it would not be told of another one before that loop ends."""
    server = impatient
    warm_up(server)
    with Client(server) as client:
        with set_off(server):
            client.get("/pair")
        opened = server.descriptors
        client.get("/pair")
        while server.descriptors == opened:
            pass
        with Client(server) as another:
            for _ in range(10):
                another.get("/count")


def test_no_connection_waits_for_one_accepted_before(impatient):
    server = impatient
    port = int(get(server, "/listen"))
    with contextlib.ExitStack() as first:
        with set_off(server):
            first.enter_context(socket.create_connection(("127.0.0.1", port)))
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
                assert connection.recv(10) == b"served"


def test_sigterm_ends_a_program_all_of_whose_threads_loop(server):
    endless = [computing(server, "/spin", "main"), computing(server, "/spin", "other")]
    used = 0, 0
    while min(used) < 20:  # neither stands back for somebody who waits for it
        before = [processor_time(server, on) for on in ("main", "other")]
        while sum(used := [processor_time(server, on) - b for on, b in zip(("main", "other"), before)]) < 50:
            pass
    assert server.end() == KILLED
    assert "Timeout" in server.errors
    assert [connection.recv(4096) for connection in endless] == [b"", b""]


@pytest.mark.parametrize("on", ["main", "other"])
def test_sigterm_ends_a_program_that_cannot_be_interrupted(server, on):
    """In C code, for which CPython itself waits whenever it stops all threads for a moment."""
    matching = computing(server, "/match?length=60", on)
    assert server.end() == KILLED
    assert matching.recv(4096) == b""


@pytest.mark.parametrize("on", ["main", "other"])
def test_sigterm_ends_a_program_that_has_come_to_a_halt(server, on):
    """All threads are to stop, and one that is in C code does not: no other runs any more."""
    get(server, "/halt")
    matching = computing(server, "/match?length=60", on)
    assert server.end() == KILLED
    assert matching.recv(4096) == b""


@needs_gil
def test_sigterm_ends_a_program_that_loops_with_a_gil():
    with Program("faulty.py", python=GIL) as server:
        endless = computing(server, "/spin", "main")
        assert server.end() == KILLED
        assert endless.recv(4096) == b""


@pytest.mark.parametrize("aborts", ["0", "0.01"])
def test_handlers_that_swallow_every_exception(aborts):
    """What an abort raises is not for them."""
    with Program("faulty.py", environment={"ABORT_RATE": aborts, "ABORT_SEED": "1"}) as server:
        def ask(number):
            with Client(server) as client:
                for _ in range(10):
                    client.get("/swallow?how=baseexception&rounds=20")
                    client.get("/swallow?how=bare&rounds=20")
                return client.answered

        assert in_parallel(4, ask) == [20] * 4
        assert '"shared": 1600, "swallowed": 1600,' in get(server, "/values")


def test_recursion_errors(server):
    def ask(number):
        with Client(server) as client:
            for _ in range(3):
                client.get("/recurse", 500)
                client.get("/count")
            return client.answered

    assert in_parallel(4, ask) == [6] * 4
    assert get(server, "/count") == "13"
    assert '"shared": 12,' in get(server, "/values")
    assert server.errors.count("RecursionError: maximum recursion depth exceeded") >= 12


def test_transactions_that_keep_conflicting(server):
    def ask(number):
        with Client(server) as client:
            for n in range(20):
                assert client.get("/contend" + "?backwards=yes" * (number % 2)) == "1"
            return client.answered

    assert in_parallel(8, ask) == [20] * 8
    assert '"table": [160]' in get(server, "/values")


# ---- The machine ----------------------------------------------------------------------------------------------------


def test_out_of_descriptors():
    """Whom it cannot accept yet waits; when some are free again, all are answered."""
    with Program("faulty.py", limits={resource.RLIMIT_NOFILE: (40, 40)}) as server:
        get(server, "/count")
        before = server.descriptors
        connections = [server.connect() for _ in range(100)]
        for connection in connections:
            connection.sendall(b"GET /count HTTP/1.1\r\nHost: test\r\n\r\n")
        answered = 0
        for connection in connections:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
            answered += 1
            connection.close()
        assert answered == 100
        until(lambda: server.descriptors <= before, server)
        assert "Too many open files" in server.errors
        assert int(get(server, "/count")) >= 102
        assert server.end() == 0


@not_sanitized
@pytest.mark.parametrize("how", ["at-once", "piecemeal"])
def test_memory_errors(how):
    with Program("faulty.py", limits={resource.RLIMIT_AS: (1 << 29, 1 << 29)}) as server:
        def ask(number):
            with Client(server) as client:
                for _ in range(2):
                    client.get(f"/allocate?how={how}", 500)
                    client.get("/count")
                return client.answered

        assert in_parallel(4, ask) == [4] * 4
        assert get(server, "/count") == "9"
        assert '"shared": 8,' in get(server, "/values")
        assert server.end() == 0


def test_that_a_program_has_crashed_is_told_though_no_client_has_noticed():
    with pytest.raises(AssertionError, match=r"faulty\.py has crashed"), Program("faulty.py") as server:
        server.end(signal.SIGSEGV)
    with pytest.raises(AssertionError, match="status -11 of files.py"), App("files.py", ".") as app:
        app.process.send_signal(signal.SIGSEGV)
