"""pyzmq: its sockets are irrevocable, and do not run alone."""

import subprocess
import sys

import pytest

from beside import is_irrevocable, needs_release, runs_beside_others
from tornado.stm import core, testing

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def zmq_pair():
    zmq = needs_release("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        pull.bind("inproc://here")
        push.connect("inproc://here")
        pull.rcvtimeo = 10_000
        yield push, pull


@needs_threads
def test_a_socket_of_zmq_is_used_beside_others(zmq_pair):
    push, pull = zmq_pair

    def exchange():
        before = is_irrevocable()
        push.send(b"one")
        push.send_multipart([bytearray(b"two"), memoryview(b"three")])
        return before, (pull.recv(), pull.recv_multipart()), pull.events, push.closed, is_irrevocable()

    assert runs_beside_others(exchange) == (False, (b"one", [b"two", b"three"]), 0, False, True)


@needs_threads
def test_a_message_of_zmq_is_sent_once_and_in_the_order_of_commits(zmq_pair):
    push, pull = zmq_pair

    def send(heap, n):
        heap.append(n)
        push.send(b"%d" % n)
        heap.append(-n)

    for seed in range(5):
        run = testing.run_concurrently(list, [(send, n) for n in range(40)], seed=seed, aborts=0.02)
        assert [int(pull.recv()) for _ in range(40)] == run.order
        assert run.heap == [each for n in run.order for each in (n, -n)]
    assert not pull.poll(0)


@needs_threads
def test_whether_a_socket_of_zmq_is_closed_is_asked_at_ones_turn(zmq_pair):
    push, _ = zmq_pair
    shadow = type(push).shadow(push)

    def ask():
        return shadow.closed, is_irrevocable()

    assert runs_beside_others(ask) == (False, True)


ZMQ_ASYNCIO = """
import asyncio, sys, zmq, zmq.asyncio
from tornado.stm import core

async def answer(context, url, n):
    with context.socket(zmq.ROUTER) as socket:
        socket.bind(url)
        for _ in range(n):
            *sender, question = await socket.recv_multipart()
            await socket.send_multipart([*sender, b"<%b>" % question])

async def ask(context, url, k, n):
    answers = []
    with context.socket(zmq.DEALER) as socket:
        socket.connect(url)
        for i in range(n):
            await socket.send(b"%d.%d" % (k, i))
            answers.append((await socket.recv()).decode())
            alone.append(core.is_exclusive())
    return answers

async def main():
    with zmq.asyncio.Context() as context:
        url = f"ipc://{sys.argv[1]}"
        answering = asyncio.create_task(answer(context, url, 40))
        answers = await asyncio.gather(*(ask(context, url, k, 10) for k in range(4)))
        await answering
    print(answers == [[f"<{k}.{i}>" for i in range(10)] for k in range(4)], set(alone))

alone = []
asyncio.run(main())
"""


@needs_threads
def test_sockets_of_zmq_asyncio(tmp_path):
    needs_release("zmq")
    (tmp_path / "app.py").write_text(ZMQ_ASYNCIO)
    done = subprocess.run(
        [sys.executable, "-m", "tornado.stm", "-q", "-j", "2", tmp_path / "app.py", tmp_path / "socket"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "True {False}\n"), done.stderr
