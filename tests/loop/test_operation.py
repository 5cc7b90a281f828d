"""What whoever runs, watches and debugs a program sees of it: the same on the transactional loop as on upstream's.

Each program of watched_programs runs as it is, on upstream's loop and on ours, and where that makes sense with aborts injected.
"""

import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
import time

import pytest

from interpreters import ROOT, not_sanitized

APPS = ROOT / "tests" / "loop" / "watched_programs"
TIMEOUT = 250  # seconds: no test comes near, on a busy machine either

if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    pytest.skip("on an interpreter with a GIL the loop is asyncio's own", allow_module_level=True)

#: how to run a script
WAYS = {
    "upstream": [], "ours": ["-m", "tornado.stm", "-q", "-j", "2"], "one thread": ["-m", "tornado.stm", "-q", "-j", "1"],
    "aborts": [str(APPS / "launch.py"), "41"],
}
ours = pytest.mark.parametrize("way", ["ours", "one thread", "aborts"])


def run(way, app, *arguments, options=(), text="", status=0):
    """What the program prints, on stdout and stderr together."""
    command = [sys.executable, *options, *WAYS[way], str(APPS / f"{app}.py"), *arguments]
    process = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, cwd=ROOT
    )
    assert process.returncode == status, process.stdout
    return process.stdout


@functools.cache
def upstream(app, *arguments, **options):
    """The same of upstream's loop, once."""
    return run("upstream", app, *arguments, **options)


@ours
def test_tracebacks_tell_of_the_program_and_not_of_the_engine(way):
    assert run(way, "tracebacks") == upstream("tracebacks")


@ours
def test_tasks_have_names_and_contexts(way):
    assert without_gaps(run(way, "names")) == without_gaps(upstream("names"))


def without_gaps(output):
    """The names of tasks numbered from one on: an attempt that was rolled back has used some numbers up."""
    numbers = sorted({int(number) for number in re.findall(r"Task-(\d+)", output)})
    return re.sub(r"Task-(\d+)", lambda match: f"Task-{numbers.index(int(match[1])) + 1}", output)


@pytest.mark.parametrize("way", ["ours", "aborts"])
def test_debug_mode_says_what_it_says_upstream(way):
    expected, told = (debug_messages(output) for output in (upstream("debug"), run(way, "debug")))
    assert len([line for line in expected if line.startswith(EXECUTING)]) == 4
    assert told == expected


EXECUTING = "LOG WARNING asyncio Executing"
SLOW_ON_PURPOSE = re.compile(EXECUTING + r" <[^<]*(slow\(\)|name='slowpoke')")


def debug_messages(output):
    """The messages, without seconds, and tracebacks without what lies between the program and its callback."""
    output = re.sub(r"took .* seconds|when=[\d.]+", "...", output)
    lines = [line for line in output.splitlines() if not re.match(r'  File ".*/(asyncio/|tornado/stm/|threading.py)', line)]
    in_program = [line for line in lines if not line.startswith((" " * 4, "<frozen", '  File "<frozen'))]
    # Anything may be slow on a busy machine, and here the first call of a function; what counts is what is slow on purpose.
    in_program = [line for line in in_program if not line.startswith(EXECUTING) or SLOW_ON_PURPOSE.match(line)]
    return {line for line in in_program if "tornado/stm" not in line and not line.endswith("in <module>")}


def test_debug_mode_names_no_line_of_the_engine_as_an_origin():
    assert not re.findall(r"created at \S*tornado/stm/(?!loop/eventloop.py:\d+> took).*", run("ours", "debug"))


@ours
def test_coroutines_know_where_they_were_made_as_upstream(way):
    assert run(way, "origins") == upstream("origins")


STOPS = ["p name", "n", "s", "args", "n", "n", "p y", "up", "p self.request.path", "l", "c"]
STOPS_TWICE = STOPS[:-1] + ["tbreak classify", "c", "p n", "c"]


@pytest.mark.parametrize("way, commands", [("ours", STOPS), ("one thread", STOPS_TWICE)])
def test_a_debugger_stops_in_a_handler(way, commands):
    text = "\n".join(commands) + "\n"
    told, expected = (output.rpartition("answer:")[0] for output in (
        run(way, "handler", "stops", "5", text=text), upstream("handler", "stops", "5", text=text)))
    assert "'world'" in expected and "x = 21" in expected and "'/stops'" in expected
    assert told == expected


@pytest.mark.parametrize("core", ["ctrace", "sysmon"])
def test_coverage_measures_what_handlers_run(core, tmp_path, monkeypatch):
    monkeypatch.setenv("COVERAGE_CORE", core)
    expected = measured("upstream", tmp_path)
    assert measured("ours", tmp_path) == measured("aborts", tmp_path) == expected


def measured(way, directory):
    """What coverage.py tells of the program's lines and branches."""
    data = directory / way
    options = ["-m", "coverage", "run", "--branch", f"--data-file={data}", f"--include={APPS}/handler.py"]
    run(way, "handler", *map(str, range(5)), options=options)
    report = subprocess.run(
        [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", "-"],
        capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT,
    )
    (file,) = json.loads(report.stdout)["files"].values()
    assert file["summary"]["covered_lines"] > 20
    return {key: file[key] for key in ("executed_lines", "missing_lines", "executed_branches", "missing_branches")}


@not_sanitized
def test_a_crash_prints_where_the_program_was():
    output = run("ours", "faults", "crash", options=["-X", "faulthandler"], status=-signal.SIGSEGV)
    assert "Fatal Python error: Segmentation fault" in output
    assert re.search(r'(?:Stack|Current thread).*\n  File ".*/faults.py", line \d+ in crashes\n', output), output


@pytest.mark.parametrize("threads", ["1", "2"])
def test_faulthandler_shows_a_callback_that_never_ends(threads):
    command = [sys.executable, "-c", DUMPS_ON_A_SIGNAL, threads, str(APPS / "faults.py"), "loop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            dump, deadline = b"", time.monotonic() + TIMEOUT
            while b'faults.py", line' not in dump or b" in loops_for_ever\n" not in dump:
                assert time.monotonic() < deadline, dump.decode()
                dump = b""
                process.send_signal(signal.SIGUSR1)
                # Not before it is silent again: else it would do nothing but dump.
                while select.select([process.stderr], [], [], 0.2)[0]:
                    dump += os.read(process.stderr.fileno(), 10000)
                    assert process.poll() is None, dump.decode()
        finally:
            process.kill()


DUMPS_ON_A_SIGNAL = """
import faulthandler, signal, sys
from tornado.stm.__main__ import main
faulthandler.register(signal.SIGUSR1)
print("ready", flush=True)
sys.exit(main(["-j", *sys.argv[1:]]))
"""
