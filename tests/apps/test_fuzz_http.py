"""Hostile bytes are answered here as they are by upstream's loop: see fuzz_http.py."""

import random

import pytest

import fuzz_http
from fuzz_http import Difference, Fuzzer, Outcome, Side, undated
from hostile import Conversation, conversation
from interpreters import needs_engine

needs_engine()

GET = b"GET /echo HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.fixture(scope="module")
def fuzzer():
    with Fuzzer() as fuzzer:
        yield fuzzer


@pytest.fixture(scope="module")
def unhurried():
    with Fuzzer(arguments=()) as fuzzer:
        yield fuzzer


def test_a_thousand_requests(fuzzer):
    seed = random.randrange(1 << 31)
    print("seed", seed)
    fuzzer.run(seed, 1000)
    assert fuzzer.counts["answers"] > 200 and fuzzer.counts["closed"] < fuzzer.counts["conversations"], fuzzer.counts


def test_requests_with_aborts():
    with Fuzzer(environment={"ABORT_RATE": "0.001", "ABORT_SEED": "1"}) as fuzzer:
        seed = random.randrange(1 << 31)
        print("seed", seed)
        fuzzer.run(seed, 500)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_requests(fuzzer):
    seed = random.randrange(1 << 31)
    print("seed", seed)
    fuzzer.run(seed, 100_000)


@pytest.mark.parametrize("requests", [
    # A body that nobody reads: the answer leaves before the connection is reset.
    [GET, b"GET /upload?limit=1 HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n\r\n" + b"z" * 40000],
    [b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", GET],
    [b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456", GET],
    [b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", GET],
    [b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\n\r\n", GET],
    [b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 16385\r\n\r\n" + b"z" * 16385, GET],
    [GET, b"GET / HTTP/1.1\r\nHost: test\r\nX: " + b"v" * 5000 + b"\r\n\r\n", GET],
    [GET * 20],
])
def test_what_attackers_send(unhurried, requests):
    upstream, ours = Side(unhurried.upstream), Side(unhurried.ours)
    talk = Conversation(requests, set(range(1, len(requests))))
    first = upstream.run(talk)
    assert any(answer.startswith(b"HTTP/1.1 ") for answer in first.answers)
    assert undated(ours.run(talk, first)) == undated(first)


def test_a_difference_is_found(fuzzer, monkeypatch):
    run = Side.run

    def lossy(side, talk, expected=None):
        outcome = run(side, talk, expected)
        if side.program is fuzzer.ours and b"echo" in b"".join(talk.requests):
            return Outcome(outcome.answers[:-2], outcome.end)
        return outcome

    monkeypatch.setattr(Side, "run", lossy)
    monkeypatch.setattr(fuzz_http, "RETRIES", 1)
    with pytest.raises(Difference, match="echo"):
        fuzzer.run(1, 1000)


def test_one_seed_gives_one_conversation():
    assert conversation(5) == conversation(5) != conversation(6)
