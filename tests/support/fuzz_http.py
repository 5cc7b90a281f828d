"""The same hostile bytes for a server on this loop and for one on upstream's: they must be answered alike.

    fuzz_http.py [--requests N] [--seed N] [--threads N] [--clients N]

Compared are all the bytes that are answered, but for dates, and whether the server has closed the connection.  A connection
that is answered in two ways by upstream itself (it depends on what the kernel hands over together) is asked again: a
difference is one that upstream does not show in `RETRIES` runs.  It is then cut down to what it takes.
"""

import argparse
import random
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

from hostile import conversation
from programs import Program

#: runs of one conversation before what differs is called a difference
RETRIES = 8

#: seconds to wait for bytes that upstream has sent
PATIENCE = 60

DATE = re.compile(rb"\r\nDate: [^\r\n]*")

ORDERLY, CLOSED, UNENDED = "closed after us", "closed before us", "never closed"


@dataclass(frozen=True)
class Outcome:
    """What a server did with a conversation: its bytes, stage by stage, without dates; and how it ended."""

    answers: tuple
    end: str


class Side:
    """One of the two servers, as seen by one client."""

    def __init__(self, program):
        self.program = program
        self._quiet = program.connect()

    def close(self):
        self._quiet.close()

    def wait_until_quiet(self):
        """Until it has done, on a loop that takes turns, what has been sent to it."""
        self._quiet.sendall(b"GET /quiet HTTP/1.1\r\nHost: test\r\n\r\n")
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            data = self._quiet.recv(4096)
            assert data, f"upstream's server has gone: {received}"
            received += data

    def run(self, talk, expected=None):
        """Send it all; the outcome.  Answers are awaited as far as they are expected (an Outcome, with dates), else until quiet."""
        connection = self.program.connect()
        answers = []
        gone = False
        try:
            for number, pieces in enumerate(talk.stages()):
                size = len(expected.answers[number]) if expected and not talk.reset else None
                answer = b""
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                except OSError:
                    pass  # it has closed; what it has sent before can be read
                if talk.reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return Outcome((), "reset")
                connection.settimeout(PATIENCE if expected else 0)
                while not gone and (size is None or len(answer) < size):
                    if expected is None:
                        self.wait_until_quiet()
                    try:
                        data = connection.recv(1 << 20)
                    except BlockingIOError, TimeoutError:
                        break
                    except OSError:
                        data = b""
                    answer += data
                    gone = not data
                answers.append(answer)
            if expected is not None and not gone and expected.end == CLOSED:
                gone = not connection_lives(connection, answers)
            # What comes now should not.
            rest, end = read_to_end(connection, gone)
            answers.append(rest)
            return Outcome(tuple(answers), end)
        finally:
            connection.close()


def connection_lives(connection, answers):
    """The server should close; what comes instead is an answer."""
    try:
        data = connection.recv(1 << 20)
    except TimeoutError:
        return True
    except OSError:
        return False
    answers[-1] += data
    return bool(data)


def read_to_end(connection, gone):
    rest = b""
    connection.settimeout(PATIENCE)
    try:
        if not gone:
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 20):
            rest += data
    except TimeoutError:
        return rest, UNENDED
    except OSError:
        return rest, CLOSED
    return rest, CLOSED if gone else ORDERLY


def undated(outcome):
    """To be compared: all answers as one, for where a stage ends is a matter of time."""
    return DATE.sub(b"", b"".join(outcome.answers)), outcome.end


class Difference(Exception):
    """The servers answer one conversation differently."""

    def __init__(self, seed, talk, upstream, ours):
        super().__init__(
            f"conversation {seed} is answered differently\nsent: {[list(map(shortened, pieces)) for pieces in talk.stages()]}\n"
            + "\n".join(
                f"{side}, {end}: {shortened(answer)}"
                for side, outcomes in (("upstream", upstream), ("ours, but never upstream", ours - upstream))
                for answer, end in sorted(outcomes)
            )
        )


def shortened(data):
    """With the length of what is repeated in its place."""
    return re.sub(rb"(.{1,8}?)\1{9,}", lambda match: match[1] + b"... <%d>" % len(match[0]), data, flags=re.DOTALL)


class Fuzzer:
    """Both servers (a context manager), and what has been sent to them.

    Args:
        threads: of the transactional loop.
        arguments: for the application; by default nothing that it answers depends on time.
        environment: more variables for the server on that loop.
    """

    def __init__(self, threads=2, arguments=("at-once",), environment=None):
        self.upstream = Program("fuzzed.py", *arguments, threads=0)
        self.ours = Program("fuzzed.py", *arguments, threads=threads, environment=environment)
        self.counts = Counter()  # requests, conversations, answers, closed, unsteady
        self._lock = threading.Lock()
        self._failure = None

    def __enter__(self):
        self.upstream.__enter__()
        self.ours.__enter__()
        return self

    def __exit__(self, *exc):
        self.ours.__exit__(*exc)
        self.upstream.__exit__(*exc)

    def compare(self, seed, upstream, ours):
        """One conversation, by two `Side`s.  Raises Difference."""
        talk = conversation(seed)
        first = upstream.run(talk)
        second = ours.run(talk, first)
        unsteady = undated(first) != undated(second)
        if unsteady and (differing := self._differing(talk, upstream, ours)):
            talk, *differing = self._cut_down(talk, differing, upstream, ours)
            raise Difference(seed, talk, *differing)
        with self._lock:
            self.counts["requests"] += len(talk.requests)
            self.counts["conversations"] += 1
            self.counts["answers"] += sum(answer.count(b"HTTP/1.1 ") for answer in first.answers)
            self.counts["closed"] += first.end == CLOSED
            self.counts["unsteady"] += unsteady

    def _differing(self, talk, upstream, ours):
        """What upstream answers, and what it never does; or None."""
        theirs, other = set(), set()
        for _ in range(RETRIES):
            first = upstream.run(talk)
            theirs.add(undated(first))
            other.add(undated(ours.run(talk, first)))
        return (theirs, other) if other - theirs else None

    def _cut_down(self, talk, differing, upstream, ours):
        """Leave out requests, waits, cuts and halves of requests, as long as it differs."""
        for attempt in simpler(talk):
            if found := self._differing(attempt, upstream, ours):
                return self._cut_down(attempt, found, upstream, ours)
        return talk, *differing

    def run(self, seed, requests, clients=4, progress=None):
        """Send at least so many requests, from so many clients at once.  Raises Difference."""
        seeds = iter(range(seed << 32, (seed + 1) << 32))
        goal = self.counts["requests"] + requests

        def work():
            try:
                upstream, ours = Side(self.upstream), Side(self.ours)
                while self._failure is None and self.counts["requests"] < goal:
                    with self._lock:
                        number = next(seeds)
                    self.compare(number, upstream, ours)
                    if progress:
                        progress(self.counts)
                upstream.close()
                ours.close()
            except BaseException as e:
                self._failure = e

        threads = [threading.Thread(target=work, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        for side in self.ours, self.upstream:
            assert side.process.poll() is None, side.errors


def simpler(talk):
    """Conversations with a little less in them."""
    for i in range(len(talk.requests)):
        waits = {w - (w > i) for w in talk.waits if w != i}
        yield type(talk)(talk.requests[:i] + talk.requests[i + 1 :], waits, talk.cuts)
    for cut in talk.cuts:
        yield type(talk)(talk.requests, talk.waits, [other for other in talk.cuts if other != cut])
    for i, request in enumerate(talk.requests):
        lines = request.splitlines(keepends=True)
        for j in range(len(lines) if 1 < len(lines) < 30 else 0):
            shorter = b"".join(lines[:j] + lines[j + 1 :])
            yield type(talk)([*talk.requests[:i], shorter, *talk.requests[i + 1 :]], talk.waits, talk.cuts)


def main():
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    parser = argparse.ArgumentParser(description="Compare how hostile bytes are answered by this loop and by upstream's.")
    parser.add_argument("--requests", type=int, default=100_000, metavar="N", help="at least so many (default %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), metavar="N", help="default: a random one")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of the transactional loop (default %(default)s)")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="connections at a time (default %(default)s)")
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    start = time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Fuzzer(options.threads) as fuzzer, Progress(*columns) as bars:
        bar = bars.add_task("requests", total=options.requests)
        try:
            fuzzer.run(options.seed, options.requests, options.clients,
                       lambda counts: bars.update(bar, completed=counts["requests"]))
        except Difference as e:
            bars.stop()
            print(e)
            return 1
    print(*(f"{count} {name}" for name, count in fuzzer.counts.items()), sep=", ", end=f", {time.monotonic() - start:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
