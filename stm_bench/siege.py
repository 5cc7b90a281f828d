"""The load generator: runs siege and reads its report.

siege is run with a configuration and a home directory of its own, so that nothing in the user's ~/.siege changes a
figure, and nothing is written there.  It prints its report as JSON on stdout, after a few lines about the configuration
that it creates in an empty home.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass

from stm_bench.errors import BenchmarkError

# `limit` is the most clients siege will simulate: it silently takes fewer than asked for where they are more.
CONFIGURATION = """\
verbose = false
quiet = false
color = off
json_output = true
show-logfile = false
logging = false
parser = false
cache = false
cookies = false
protocol = HTTP/1.1
follow-location = false
connection = {connection}
limit = {clients}
"""

GRACE = 120  # seconds that siege may take beyond the time it was told

# At the end of its time siege 4.0 cancels its clients wherever they are, within malloc(), too: one load in a thousand hangs for ever
# then, or siege dies before it has printed its report.  And of a second it takes a third before it asks for anything: on a machine that is
# busy with something else nothing may be answered then, nor fail.  Such a load is made again, twice as long, so often at most.
LOADS = 3


@dataclass(frozen=True)
class Report:
    """What siege saw of one server under load.

    answered: requests answered with a status below 400; failed: all others, those without an answer included; rate: answers per second;
    elapsed: the seconds from the first request to the end.  Requests still unanswered when the time is up count nowhere.
    """

    answered: int
    failed: int
    rate: float
    elapsed: float


class SiegeFails(BenchmarkError):
    """It did not end in time, died, or printed no report, whatever the server did."""


def version():
    """The version of the installed siege, like "4.0.7".  Raises BenchmarkError where there is none."""
    if shutil.which("siege") is None:
        raise BenchmarkError("siege is not installed: run make setup, or apt install siege")
    text = run_siege(["--version"], timeout=20)
    words = text.split()
    return words[1] if len(words) > 1 else "unknown"


def load(url, clients, seconds, keep_alive=False):
    """Puts `url` under the load of so many `clients`, each asking again at once, for so many whole `seconds`.

    Each keeps its connection, or makes a new one for each request.
    """
    for longer in range(LOADS):
        try:
            report = attack(url, clients, ["--benchmark", "--time=%dS" % (seconds << longer)], (seconds << longer) + GRACE, keep_alive)
            if report.answered or report.failed or longer == LOADS - 1:
                return report
        except SiegeFails:
            if longer == LOADS - 1:
                raise


def requests(url, clients, each):
    """Requests `url` `each` times from each of so many `clients`, and returns when all are answered."""
    return attack(url, clients, ["--benchmark", "--reps=%d" % each], timeout=GRACE)


def attack(url, clients, options, timeout, keep_alive=False):
    with tempfile.TemporaryDirectory(prefix="stm_bench-") as home:
        configuration = os.path.join(home, "siegerc")
        with open(configuration, "w") as file:
            file.write(CONFIGURATION.format(clients=clients, connection="keep-alive" if keep_alive else "close"))
        arguments = ["--rc=" + configuration, "--concurrent=%d" % clients] + options + [url]
        return parse(run_siege(arguments, timeout, home))


def run_siege(arguments, timeout, home=None):
    environment = dict(os.environ)
    environment.pop("SIEGERC", None)
    if home is not None:
        environment["HOME"] = home
    try:
        done = subprocess.run(
            ["siege"] + arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise SiegeFails("siege did not end within %d s" % timeout) from None
    if done.returncode < 0:
        raise SiegeFails("siege was ended by %s" % signal.Signals(-done.returncode).name)
    return done.stdout


def parse(output):
    """The Report in what siege printed.  Raises SiegeFails where there is none."""
    start, end = output.rfind("{"), output.rfind("}")
    try:
        figures = json.loads(output[start : end + 1])
        answered = figures["successful_transactions"]
        return Report(
            answered=answered,
            # siege counts an answer like 404 neither as successful nor as failed.  A client that it stops between counting
            # a success and counting the transaction leaves one more of the former.
            failed=figures["failed_transactions"] + max(0, figures["transactions"] - answered),
            rate=figures["transaction_rate"],
            elapsed=figures["elapsed_time"],
        )
    except (ValueError, KeyError, TypeError):
        last = next((line for line in reversed(output.splitlines()) if line.strip(" *")), "nothing")
        raise SiegeFails("siege printed no report, but: %s" % last.strip()) from None
