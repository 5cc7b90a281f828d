"""The benchmarks: the primes server, what is read from siege, figures, and errors.  No test looks at a speed."""

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from interpreters import ROOT
from stm_bench import calibrate, siege
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import LARGEST
from stm_bench.servers import Server, last_lines, probe, require, reserved_port

rich_console = pytest.importorskip("rich.console")

from stm_bench import machine, primes_client  # noqa: E402

APPLICATION = str(ROOT / "stm_bench" / "primes.py")
IP_LOCAL_PORT_RANGE = 51  # Linux 6.3: what ports the kernel may choose for this socket
PRIMES_TO_30 = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def run(*command, **options):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, **options)


def one_line(text):
    """The only line of `text`."""
    (line,) = text.splitlines()
    return line


# The primes server


@pytest.fixture(scope="module")
def upstream():
    with Server("upstream", [sys.executable, APPLICATION, "--upstream"]) as server:
        yield server


def get(server, path):
    """The status and the body that `server` answers."""
    try:
        with urllib.request.urlopen(server.url(path), timeout=100) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    "limit, expected",
    [(0, []), (1, []), (2, [2]), (29, PRIMES_TO_30), (30, PRIMES_TO_30), (1000, primes_client.sieve(1000))],
)
def test_primes_are_the_primes(upstream, limit, expected):
    status, body = get(upstream, "/%d" % limit)
    assert status == 200
    assert json.loads(body) == {"primes": expected}


@pytest.mark.parametrize("path", ["/", "/-5", "/abc", "/3.5", "/1e3", "/%d" % (LARGEST + 1), "/" + "9" * 5000])
def test_what_is_no_sensible_number_is_refused(upstream, path):
    status, body = get(upstream, path)
    assert status in (400, 404)
    assert b"Traceback" not in body


def test_sigterm_stops_an_upstream_server_and_writes_no_counts():
    with Server("upstream", [sys.executable, APPLICATION, "--upstream"]) as server:
        assert server.stop() == {}
        assert server.process.returncode == 0


def test_sigterm_may_come_as_soon_as_an_upstream_server_listens():
    done = run(sys.executable, "-c", """
import asyncio, os, signal, tornado.web
from stm_bench import primes
tornado.web.Application.listen = lambda *arguments: os.kill(os.getpid(), signal.SIGTERM)
asyncio.run(primes.main(0, stop_signal=signal.SIGTERM))
""")
    assert done.returncode == 0, done.stderr


def test_ctrl_c_stops_an_upstream_server_without_a_traceback():
    with Server("upstream", [sys.executable, APPLICATION, "--upstream"]) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(100) == 0
        assert Path(server.path("stderr")).read_text() == ""


def test_a_port_in_use_is_one_line_and_status_2(upstream):
    done = run(sys.executable, APPLICATION, "--upstream", "--port", str(upstream.port))
    assert done.returncode == 2
    assert "port %d is in use: " % upstream.port in one_line(done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["0"],
        ["-1"],
        ["two"],
        ["1.5"],
        ["--port", "0"],
        ["--port", "65536"],
        ["--port", "http"],
        ["2", "--upstream"],
        ["--fast"],
    ],
)
def test_bad_arguments_of_the_server_are_one_line_and_status_2(arguments):
    done = run(sys.executable, APPLICATION, *arguments)
    assert done.returncode == 2
    assert one_line(done.stderr).startswith("primes.py: ")


# Server processes


def test_a_server_that_dies_is_reported_with_what_it_printed_last():
    script = "import sys; print('first', file=sys.stderr); sys.exit('no such thing')"
    with pytest.raises(BenchmarkError, match=r"^server mine ended with status 1: first \| no such thing$"):
        with Server("mine", [sys.executable, "-c", script]):
            pass


def test_a_server_that_does_not_serve_is_reported_and_ended(monkeypatch):
    monkeypatch.setattr("stm_bench.servers.START_TIMEOUT", 0.3)
    server = Server("mine", [sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(BenchmarkError, match="does not accept connections"):
        server.__enter__()
    assert server.process.returncode is not None


def test_a_server_has_ended_when_its_context_is_left_with_an_error():
    with pytest.raises(KeyboardInterrupt):
        with Server("upstream", [sys.executable, APPLICATION, "--upstream"]) as server:
            raise KeyboardInterrupt
    assert server.process.returncode is not None
    assert not os.path.exists(server.folder)


def test_a_server_that_ends_with_an_error_after_sigterm_is_reported():
    script = (
        "import signal, socket, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[2])))\n"
        "signal.pause()\n"
    )
    with Server("mine", [sys.executable, "-c", script]) as server:
        with pytest.raises(BenchmarkError, match="ended with status 3 after SIGTERM"):
            server.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_reserved_port_is_for_those_who_ask_for_it_alone(host):
    """One that was only free when it was chosen went to another process; the server ended with "Address already in use"."""

    def bind_to_some_port():
        with socket.socket() as other:
            other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", port << 16 | port))
            other.bind((host, 0))
            return other.getsockname()[1]

    with reserved_port() as port:
        for _ in range(2):  # a server is started again
            socket.create_server((host, port)).close()
            with pytest.raises(OSError) as raised:
                bind_to_some_port()
            if raised.value.errno == errno.ENOPROTOOPT:
                pytest.skip("before Linux 6.3 nobody can tell the kernel what port to choose")
            assert raised.value.errno == errno.EADDRINUSE
    assert bind_to_some_port() == port


def test_probe_describes_this_interpreter():
    here = probe(sys.executable)
    assert here.version == sys.version.split()[0].rstrip("+")
    assert here.version in str(here)


def test_an_interpreter_that_cannot_be_used_is_one_line(tmp_path):
    with pytest.raises(BenchmarkError, match="does not run"):
        probe(str(tmp_path / "python"))
    with pytest.raises(BenchmarkError, match="cannot import no_such_module: ModuleNotFoundError"):
        require(probe(sys.executable), "no_such_module")


def test_last_lines_leaves_blank_lines_out():
    assert last_lines("a\n\n b \n\nc\n", 2) == "b | c"
    assert last_lines("", 2) == ""


# siege

GOOD = """\
New configuration template added to /somewhere/.siege
Run siege -C to view the current settings in that file
{	"transactions":			          94,
	"availability":			      100.00,
	"elapsed_time":			        4.48,
	"data_transferred":		        0.28,
	"response_time":		        1.74,
	"transaction_rate":		       20.98,
	"throughput":			        0.06,
	"concurrency":			       36.54,
	"successful_transactions":	          94,
	"failed_transactions":		           0,
	"longest_transaction":		        2.83,
	"shortest_transaction":		        0.05
}
"""

NO_SERVER = """\
[[1;33merror[0m] socket: unable to connect sock.c:282: Connection refused
[[1;33merror[0m] socket: unable to connect sock.c:282: Connection refused
{	"transactions":			           0,
	"availability":			        0.00,
	"elapsed_time":			        0.01,
	"data_transferred":		        0.00,
	"response_time":		        0.00,
	"transaction_rate":		        0.00,
	"throughput":			        0.00,
	"concurrency":			        0.00,
	"successful_transactions":	           0,
	"failed_transactions":		        1026,
	"longest_transaction":		        0.00,
	"shortest_transaction":		        0.00
}
"""

# Every request answered 404: siege counts them neither as successful nor as failed.
NOT_FOUND = """\
{	"transactions":			        2071,
	"availability":			      100.00,
	"elapsed_time":			        0.78,
	"data_transferred":		        0.14,
	"response_time":		        0.00,
	"transaction_rate":		     2655.13,
	"throughput":			        0.17,
	"concurrency":			        2.97,
	"successful_transactions":	           0,
	"failed_transactions":		           0,
	"longest_transaction":		        0.01,
	"shortest_transaction":		        0.00
}
"""


def test_a_report_of_siege_is_read():
    assert siege.parse(GOOD) == siege.Report(94, 0, 20.98, 4.48)


def test_requests_without_a_good_answer_are_failed():
    assert (siege.parse(NO_SERVER).answered, siege.parse(NO_SERVER).failed) == (0, 1026)
    assert (siege.parse(NOT_FOUND).answered, siege.parse(NOT_FOUND).failed) == (0, 2071)


def test_a_client_stopped_between_two_counters_has_not_failed():
    one_more = GOOD.replace('"successful_transactions":\t          94', '"successful_transactions":\t          95')
    assert one_more != GOOD
    assert siege.parse(one_more).failed == 0


@pytest.mark.parametrize(
    "output, said",
    [
        ("", "nothing"),
        ("ERROR: Unable to open cookies file\n****\n\n", "ERROR: Unable to open cookies file"),
        ("{ broken", "{ broken"),
        ('{"transactions": 3}', "transactions"),
    ],
)
def test_output_without_a_report_is_one_line(output, said):
    with pytest.raises(BenchmarkError, match="siege printed no report, but: .*%s" % said):
        siege.parse(output)


def sieges(monkeypatch, folder, ends):
    """In the place of siege, a program that counts its runs and ends as siege does now and then, but for the third time."""
    runs = folder / "runs"
    siege_ = folder / "siege"
    siege_.write_text(
        "#!%s -IS\nimport os\nwith open(%r, 'a') as file:\n    file.write('.')\nif os.path.getsize(%r) < 3:\n    %s\nprint(%r)\n"
        % (sys.executable, str(runs), str(runs), ends, GOOD)
    )
    siege_.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return runs


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), 9)", "raise SystemExit(0)", "import time; time.sleep(60)"])
def test_a_load_is_made_again_if_siege_fails(monkeypatch, tmp_path, ends):
    monkeypatch.setattr(siege, "GRACE", 2 if "sleep" in ends else 100)
    runs = sieges(monkeypatch, tmp_path, ends)
    assert siege.load("http://127.0.0.1:1/", 1, 1) == siege.parse(GOOD)
    assert len(runs.read_text()) == 3


NOTHING = GOOD.replace(str(siege.parse(GOOD).answered), "0")


def test_a_load_of_which_nothing_came_is_made_again(monkeypatch, tmp_path):
    assert (siege.parse(NOTHING).answered, siege.parse(NOTHING).failed) == (0, 0)
    runs = sieges(monkeypatch, tmp_path, "print(%r); raise SystemExit(0)" % NOTHING)
    assert siege.load("http://127.0.0.1:1/", 1, 1) == siege.parse(GOOD)
    assert len(runs.read_text()) == 3
    monkeypatch.setattr(siege, "LOADS", 2)
    runs.unlink()
    assert siege.load("http://127.0.0.1:1/", 1, 1) == siege.parse(NOTHING)


def test_a_siege_that_always_fails_says_how_it_ended(monkeypatch, tmp_path):
    runs = sieges(monkeypatch, tmp_path, "os.kill(os.getpid(), 11)")
    monkeypatch.setattr(siege, "LOADS", 2)
    with pytest.raises(BenchmarkError, match="siege was ended by SIGSEGV"):
        siege.load("http://127.0.0.1:1/", 1, 1)
    assert len(runs.read_text()) == 2


def test_a_wrong_answer_is_noticed(upstream, monkeypatch):
    primes_client.check_answers(upstream, 500)
    monkeypatch.setattr(primes_client, "sieve", lambda limit: [2])
    with pytest.raises(WrongAnswer, match="answered GET /0 wrongly"):
        primes_client.check_answers(upstream, 500)


def test_default_thread_counts_are_powers_of_two_and_all_cpus():
    assert [machine.default_threads(cpus) for cpus in (1, 2, 3, 4, 6, 16)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 6],
        [1, 2, 4, 8, 16],
    ]


def test_a_request_size_is_found_for_a_time(monkeypatch):
    monkeypatch.setattr(calibrate, "time_primes", lambda size: size**1.9 * 5e-9)
    assert calibrate.request_size(0.05) == pytest.approx((0.05 / 5e-9) ** (1 / 1.9), rel=0.1)
    assert calibrate.request_size(1e9) == LARGEST
    assert calibrate.request_size(1e-9) >= 2


# The command line


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "BENCHMARK"),
        (["nonsense"], "nonsense"),
        (["primes", "--threads", "1,x"], "not a positive integer: 'x'"),
        (["primes", "--threads", "0"], "not a positive integer: '0'"),
        (["primes", "--time", "-1"], "--time"),
        (["apps", "--size", str(LARGEST + 1)], "larger than"),
        (["handlers", "--trivial", "--only", "primes"], "not allowed with"),
        (["astar", "--width", "0"], "not a positive integer: '0'"),
        (["astar", "--writers", "2"], "not a share, 0 to 1: '2'"),
        (["convoy", "--beside", "x"], "--beside"),
        (["primes", "--compare", "/no/such/file"], "holds no figures of an earlier run"),
        (["primes", "--threads", "1,128"], "more than 127 threads: 128"),
        (["primes", "--json", "/no/such/folder/figures.json"], "cannot write"),
        (["primes", "--plot", "/"], "cannot write"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(arguments, said, refused):
    assert said in refused(*arguments)


def test_what_is_refused_is_the_status_of_the_process():
    done = run(sys.executable, "-m", "stm_bench", "nonsense")
    assert (done.returncode, done.stdout) == (2, "") and "nonsense" in one_line(done.stderr)


def test_a_missing_siege_is_one_line_and_status_2(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused("primes") == "stm_bench: siege is not installed: run make setup, or apt install siege"
