"""Serial semantics under load: whatever clients see, and what is left in the end, is what one thread could have done.

The first half goes through a server; its clients check every byte.  The second half runs the same steps through a
`TransactionQueue`.  A history is judged by what was answered and by the order of the events at the clients, never by a
time.  Each test has a companion which shows that it fails when the barriers are switched off.
"""

import itertools
import random
import re
import socket
import sys
import time
from collections import Counter
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path

import pytest

from client import BYTES, HTML, TIMEOUT, Server, in_parallel, load, load_the_broken, request
from tornado.stm import core, transaction

sys.path.append(str(Path(__file__).resolve().parent))

import histories  # noqa: E402

CLIENTS = 6
REQUESTS = 12  # of each client
TICKETS = 25
RUSH = 400  # attempts to see a race without barriers: one is enough
ERROR_PAGE = b"<html><title>500: Internal Server Error</title><body>500: Internal Server Error</body></html>"

parallel = pytest.mark.skipif(not core.PARALLEL, reason="nothing races where transactions run one at a time")


# ---- What a serial order looks like ---------------------------------------------------------------------------------


def distinct(values):
    """Raises AssertionError where a value is there twice."""
    twice = [value for value, times in Counter(values).items() if times > 1]
    assert not twice, f"more than once: {twice[:5]}"


def in_real_time_order(numbered):
    """Raises AssertionError where a call got a higher number than one that began after it had been answered.

    Args:
        numbered: pairs of a number, the place in the serial order, and its `Call`.  Any order among equals will do.
    """
    first = itemgetter(0)
    latest = None  # of the calls with lower numbers, the one that was sent last
    for _, group in itertools.groupby(sorted(numbered, key=first), key=first):
        calls = [call for _, call in group]
        for call in calls:
            assert latest is None or call.received > latest.sent, f"{call} was answered before {latest} was sent"
        latest = max(calls + ([latest] if latest else []), key=attrgetter("sent"))


class History:
    """A kind of load, and how to judge what comes of it.  A room of the server has one history."""

    def paths(self, clients, requests):
        """The paths that each client asks for."""
        raise NotImplementedError

    def check_answers(self, calls):
        """Raises AssertionError when no serial run gives these answers, perhaps among others."""
        raise NotImplementedError

    def check_end(self, calls, summary):
        """Raises AssertionError when no serial run with just these answers ends like this."""
        raise NotImplementedError


class Counting(History):
    name = "counting"

    def paths(self, clients, requests):
        return [["/counting/count"] * requests for _ in range(clients)]

    def check_answers(self, calls):
        distinct(call.answer["value"] for call in calls)
        in_real_time_order([(call.answer["value"], call) for call in calls])

    def check_end(self, calls, summary):
        assert sorted(call.answer["value"] for call in calls) == list(range(1, len(calls) + 1))
        assert summary["count"] == len(calls)


class Transfers(History):
    name = "transfers"
    pattern = re.compile(r".*source=(\w+)&target=(\w+)&amount=(\d+)")

    def paths(self, clients, requests):
        choose = random.Random(clients * 1000 + requests)
        names = ["account%d" % i for i in range(histories.ACCOUNTS)]
        paths = []
        for _ in range(clients):
            paths.append([])
            for i in range(requests):
                source, target = choose.sample(names, 2)
                amount = choose.randrange(1, 100)
                paths[-1].append(f"/transfers/transfer?source={source}&target={target}&amount={amount}")
                if i % 3 == 2:
                    paths[-1].append("/transfers/audit")
        return paths

    def check_answers(self, calls):
        for call in calls:
            assert set(call.answer["sums"]) == {histories.ACCOUNTS * histories.DEPOSIT}, call

    def check_end(self, calls, summary):
        expected = Counter({"account%d" % i: histories.DEPOSIT for i in range(histories.ACCOUNTS)})
        for call in calls:
            if "amount" in call.path:
                source, target, amount = self.pattern.match(call.path).groups()
                expected[source] -= int(amount)
                expected[target] += int(amount)
        assert summary["accounts"] == dict(expected)


class Sales(History):
    name = "sales"

    def paths(self, clients, requests):
        return [[f"/sales/sell?buyer={client}-{i}" for i in range(requests)] for client in range(clients)]

    def check_answers(self, calls):
        sold = [call for call in calls if call.answer["ticket"]]
        assert len(sold) <= TICKETS
        distinct(call.answer["ticket"] for call in sold)
        in_real_time_order([(call.answer["ticket"] or TICKETS + 1, call) for call in calls])

    def check_end(self, calls, summary):
        buyers = {call.answer["ticket"]: call.path.split("=")[1] for call in calls if call.answer["ticket"]}
        assert len(calls) > TICKETS
        assert summary["left"] == 0
        assert summary["buyers"] == [buyers[i + 1] for i in range(TICKETS)]


class Steps(History):
    """Coroutines: what is read before an ``await`` and written after it."""

    name = "steps"

    def paths(self, clients, requests):
        return [["/steps/yielding"] * (requests // 2) for _ in range(clients)]

    def check_answers(self, calls):
        numbered = [(step, call) for call in calls for step in call.answer["steps"]]
        for step, call in numbered:
            assert len(set(step)) == 1, f"a step saw half of another: {call}"
        for call in calls:
            assert call.answer["steps"] == sorted(call.answer["steps"]), call
        distinct(step[0] for step, _ in numbered)
        in_real_time_order([(step[0], call) for step, call in numbered])

    def check_end(self, calls, summary):
        places = sorted(step[0] for call in calls for step in call.answer["steps"])
        assert places == list(range(len(places)))
        assert summary["sides"] == [len(places)] * 2
        assert summary["meetings"] == 0


class Meetings(Steps):
    """Coroutines that wait for a future which another handler sets; who of the two comes first makes it."""

    name = "meetings"

    def paths(self, clients, requests):
        return [
            [f"/meetings/{('wait', 'tell')[client % 2]}?key={client // 2}-{i}" for i in range(requests // 2)]
            for client in range(clients // 2 * 2)
        ]

    def check_answers(self, calls):
        super().check_answers(calls)
        tellers = {call.path.split("=")[1]: call for call in calls if "/tell" in call.path}
        for call in calls:
            if "/wait" in call.path:
                told = tellers.get(call.path.split("=")[1])
                assert told is None or call.answer["told"] == told.answer["steps"][0], (call, told)
                assert call.answer["told"] < call.answer["steps"][1], f"went on before it was told: {call}"


class Appends(History):
    name = "appends"

    def paths(self, clients, requests):
        return [[f"/appends/append?item={client}-{i}" for i in range(requests)] for client in range(clients)]

    def check_answers(self, calls):
        distinct(call.answer["index"] for call in calls)
        in_real_time_order([(call.answer["index"], call) for call in calls])

    def check_end(self, calls, summary):
        expected = {call.answer["index"]: call.path.split("=")[1] for call in calls}
        assert summary["items"] == [expected[i] for i in range(len(calls))]


HISTORIES = [Counting(), Transfers(), Sales(), Steps(), Meetings(), Appends()]
each_history = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


def check(history, server, calls):
    history.check_answers(calls)
    history.check_end(calls, server.get(f"/{history.name}/summary"))


# ---- Through a server -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[2, 4], ids="{}-threads".format)
def server(request):
    with Server(request.param, TICKETS) as server:
        yield server


@each_history
def test_history(server, history):
    check(history, server, load(server, history.paths(CLIENTS, REQUESTS)))


@parallel
@each_history
def test_history_goes_wrong_without_barriers(history):
    for _ in range(RUSH):
        broken = Server(4, TICKETS, BARRIERS="off")
        try:
            calls = load_the_broken(broken, history.paths(CLIENTS, REQUESTS))
        finally:
            broken.kill()
        try:
            history.check_answers(calls)
        except AssertionError:
            return
    pytest.fail("nothing went wrong")


def test_raising_is_a_result(server):
    def client(number):
        values = []
        with server.connect() as connection:
            for i in range(8):
                connection.send(f"/raising/{('raise', 'raiselater')[i % 2]}?item={number}-{i}")
                assert connection.receive(500, HTML) == ERROR_PAGE
                values.append(connection.get("/raising/count")["value"])
            connection.end()
        return values

    before = server.stderr().count("RuntimeError: on purpose")
    values = in_parallel([partial(client, number) for number in range(CLIENTS)])
    summary = server.get("/raising/summary")
    assert summary["count"] == CLIENTS * 16
    assert sorted(summary["items"]) == sorted(f"{number}-{i}" for number in range(CLIENTS) for i in range(8))
    distinct(value for each in values for value in each)
    for each in values:
        assert each == sorted(each)
    assert server.stderr().count("RuntimeError: on purpose") - before == CLIENTS * 8


def test_clients_that_disconnect_harm_nobody(server):
    quiet = server.open_files()
    body = bytes(100_000)

    def early(connection, data):
        connection.sock.sendall(data)

    def late(connection, data, count):
        connection.sock.sendall(data)
        while count > 0:
            count -= len(connection.sock.recv(min(count, 4096)))

    rude = [
        partial(early, data=b"GET /gone/count HTTP/1.1\r\nHo"),
        partial(early, data=request("/gone/echo", body)[:50_000]),
        partial(early, data=request("/gone/count")),
        partial(early, data=request("/gone/count") * 3 + b"GET"),
        partial(early, data=request("/gone/wait?key=lonely{}")),
        partial(late, data=request("/gone/large?size=5000000"), count=100),
        partial(late, data=request("/gone/large?size=5000000"), count=1_000_000),
        partial(late, data=request("/gone/stream?name=a&pieces=50&size=5000"), count=20_000),
        partial(late, data=request("/gone/echo", body), count=50_000),
    ]

    def be_rude(reset):
        for _ in range(3):
            for act in rude:
                with server.connect() as connection:
                    act(connection)
                    if reset:
                        connection.reset()

    def be_good(number):
        with server.connect() as connection:
            for i in range(30):
                connection.send("/healthy/echo", b"%d-%d;" % (number, i) * 2000)
                connection.send("/healthy/count")
                echo = connection.receive(kind=BYTES)
                assert echo == b"%d-%d;" % (number, i) * 2000
                connection.receive()
            connection.end()

    in_parallel([partial(be_rude, reset) for reset in (True, False)] + [partial(be_good, n) for n in range(3)])
    assert server.get("/healthy/summary")["count"] == 90
    # The ones that wait for ever are told, also those that it hears of only now; nobody listens to them any more.
    until = time.monotonic() + TIMEOUT
    while server.open_files() > quiet:
        assert time.monotonic() < until
        server.get("/gone/tell?key=lonely{}")
        time.sleep(0.01)  # that connection has its end, too
    assert "Exception ignored" not in server.stderr()


# ---- With aborts at random barriers ------------------------------------------------------------------------------------


def echoes(server, number):
    noise = random.Random(number)
    with server.connect() as connection:
        for i in range(3):
            body = noise.randbytes(100_000)
            connection.send("/effects/echo", body)
            assert connection.receive(kind=BYTES) == body
        connection.end()


def streams(server, number):
    with server.connect() as connection:
        for i in range(3):
            pieces, size = 5 + i, (1, 500, 3000)[i]
            connection.send(f"/effects/stream?name=s{number}x{i}&pieces={pieces}&size={size}")
            body = connection.receive(kind="text/plain", chunked=True)
            assert body == b"".join(b"s%dx%d:%d;" % (number, i, piece) * size for piece in range(pieces)) + b"end"
        connection.end()


def pipelines(server, number):
    with server.connect() as connection:
        for burst in range(2):
            paths = [f"/pipes/append?item=p{number}x{burst}x{i}" for i in range(10)]
            bodies = [b"%d/%d/%d," % (number, burst, i) * (i * 100) for i in range(10)]
            connection.sock.sendall(
                b"".join(request(path) + request("/pipes/echo", body) for path, body in zip(paths, bodies))
            )
            for body in bodies:
                connection.receive()
                assert connection.receive(kind=BYTES) == body
        connection.end()


def failures(server, number):
    with server.connect() as connection:
        for i in range(4):
            connection.send(f"/failures/{('raise', 'raiselater')[i % 2]}?item={number}-{i}")
            assert connection.receive(500, HTML) == ERROR_PAGE
        connection.end()


SAYERS = 3
SAYINGS = 8


def sayings(server, number):
    values = []
    with server.connect() as connection:
        for i in range(SAYINGS):
            values.append((connection.get(f"/sayings/say?name={number}-{i}")["value"], f"{number}-{i}"))
        connection.end()
    return values


@pytest.mark.parametrize("rate", [0.0005, 0.01])
@pytest.mark.parametrize("threads", [2, 4])
def test_aborts_leave_no_trace(threads, rate):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    with Server(threads, TICKETS, ABORT_RATE=str(rate), ABORT_SEED=str(seed)) as server:
        loads = [partial(load, server, history.paths(4, 7)) for history in HISTORIES]
        others = [partial(act, server, n) for act in (echoes, streams, pipelines, failures) for n in range(2)]
        sayers = [partial(sayings, server, n) for n in range(SAYERS)]
        results = in_parallel(loads + others + sayers)
        for history, calls in zip(HISTORIES, results):
            check(history, server, calls)
        piped = server.get("/pipes/summary")["items"]
        assert sorted(piped) == sorted(f"p{n}x{burst}x{i}" for n in range(2) for burst in range(2) for i in range(10))
        for n in range(2):
            own = [item for item in piped if item.startswith(f"p{n}")]
            assert own == [f"p{n}x{burst}x{i}" for burst in range(2) for i in range(10)]
        failed = server.get("/failures/summary")
        assert failed["count"] == 8
        assert sorted(failed["items"]) == [f"{n}-{i}" for n in range(2) for i in range(4)]
        if core.PARALLEL:
            assert server.get("/any/summary")["aborts"] > 0
        server.stop()
        said = sorted(itertools.chain(*results[-SAYERS:]))
        assert [value for value, _ in said] == list(range(1, SAYERS * SAYINGS + 1))
        # Whoever counts later prints later: each line is whole, once, and in the serial order.
        assert server.stdout().splitlines() == [
            f"listening {server.port}", *(f"printed {value} {name}" for value, name in said), "ended",
        ]
        logged = [line for line in server.stderr().splitlines() if line.startswith("logged")]
        assert logged == [f"logged {value} {name}" for value, name in said]
        assert server.stderr().count("RuntimeError: on purpose") == 8
        assert "Exception ignored" not in server.stderr()
        assert "Abort" not in server.stderr()


# ---- Through a queue of transactions, without a server ------------------------------------------------------------------


def note(answers, step, *args):
    answers.append(step(*args))


def count_all(queue, state, answers):
    for _ in range(60):
        queue.add(note, answers, histories.count, state)

    def judge():
        assert sorted(answers) == list(range(1, 61))
        assert state.count == 60

    return judge


def transfer_all(queue, state, answers):
    choose = random.Random(1)
    names = list(state.accounts)
    expected = dict(state.accounts)
    for i in range(60):
        source, target = choose.sample(names, 2)
        expected[source] -= i
        expected[target] += i
        queue.add(note, answers, histories.transfer, state, source, target, i)
        if i % 5 == 0:
            queue.add(note, answers, histories.audit, state)

    def judge():
        assert len(answers) == 72
        assert {total for sums in answers for total in sums} == {histories.ACCOUNTS * histories.DEPOSIT}
        assert state.accounts == expected

    return judge


def sell_all(queue, state, answers):
    for buyer in range(60):
        queue.add(note, answers, histories.sell, state, buyer)

    def judge():
        assert sorted(answers) == [0] * (60 - TICKETS) + list(range(1, TICKETS + 1))
        assert state.left == 0
        assert len(set(state.buyers)) == len(state.buyers) == TICKETS

    return judge


def pair_all(queue, state, answers):
    """Chains of transactions, each of which adds the next."""

    def step(chain, rest):
        chain.append(histories.paired(state))
        if rest:
            queue.add(step, chain, rest - 1)

    for _ in range(10):
        answers.append([])
        queue.add(step, answers[-1], 5)

    def judge():
        for chain in answers:
            assert chain == sorted(chain)
        steps = [step for chain in answers for step in chain]
        assert sorted(steps) == [[i] * 4 for i in range(60)]
        assert state.left_side == state.right_side == 60

    return judge


def append_all(queue, state, answers):
    def step(item):
        answers.append((histories.append(state, item), item))

    for item in range(60):
        queue.add(step, item)

    def judge():
        assert sorted(answers) == list(enumerate(state.items))
        assert sorted(state.items) == list(range(60))

    return judge


each_batch = pytest.mark.parametrize(
    "batch", [count_all, transfer_all, sell_all, pair_all, append_all], ids=lambda batch: batch.__name__
)
each_thread_count = pytest.mark.parametrize("threads", [2, 4])


def run_batch(batch, threads):
    """Returns what judges the outcome, by raising AssertionError."""
    queue = transaction.TransactionQueue()
    judge = batch(queue, histories.State(TICKETS), [])
    transaction.set_threads(threads)
    try:
        queue.run()
    finally:
        transaction.set_threads(None)
    return judge


@each_batch
@each_thread_count
def test_queue(batch, threads):
    for _ in range(3):
        run_batch(batch, threads)()


@each_batch
@each_thread_count
@pytest.mark.parametrize("rate", [0.0005, 0.01])
def test_queue_with_aborts(batch, threads, rate):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    core.inject_aborts(rate, seed)
    try:
        judge = run_batch(batch, threads)
    finally:
        core.inject_aborts(0, 0)
    judge()


@pytest.mark.parametrize("rate", [0.0005, 0.01, 0.05])
def test_aborts_lose_no_connection_and_no_byte(rate):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    accepted, received = [], []

    def accept():
        try:
            accepted.append(listener.accept()[0])
        except BlockingIOError:
            accepted.append(None)
        else:
            accepted[-1].setblocking(False)

    def receive(sock, size):
        try:
            received.append(sock.recv(size))
        except BlockingIOError:
            received.append(None)

    queue = transaction.TransactionQueue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        for i in range(100):
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(b"%03d:%03d" % (i, i))
                core.inject_aborts(rate, seed + i)
                try:
                    queue.add(accept)
                    queue.run(1)
                    assert accepted[i] is not None, f"the accepted connection {i} is lost"
                    for size in (3, 1, 9):
                        queue.add(receive, accepted[i], size)
                        queue.run(1)
                finally:
                    core.inject_aborts(0, 0)
            accepted[i].close()
            assert received[-3:] == [b"%03d" % i, b":", b"%03d" % i]


@parallel
@each_batch
@each_thread_count
def test_queue_goes_wrong_without_barriers(batch, threads):
    for _ in range(RUSH):
        core.switch_barriers(False)
        try:
            judge = run_batch(batch, threads)
        finally:
            core.switch_barriers(True)
        try:
            judge()
        except AssertionError:
            return
    pytest.fail("nothing went wrong")
