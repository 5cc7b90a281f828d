"""tornado.platform.pypystm, on CPython 2.7 with Tornado 4.5 and an emulated module `transaction` (tests/pypystm)."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile

import pytest

from interpreters import ROOT

HERE = ROOT / "tests" / "pypystm"
PYTHON = ROOT / ".venv-27" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="there is no CPython 2.7 with pip on PATH or in pyenv, from which make setup makes .venv-27")

MODULES = [f"tornado.test.{name}_test" for name in (
    "concurrent", "gen", "httpserver", "ioloop", "iostream", "tcpserver", "web", "websocket")]

# Not run, because on upstream's loop they wait five seconds each to fail: they were written for an older OpenSSL.
LEFT_OUT = [f"tornado.test.iostream_test.TestIOStreamSSL{name}.test_write_zero_bytes" for name in ("", "Context")]

# Tests that may come out differently, and why.
DIFFERENT = {
    # It relies on the order of two transactions that have nothing to do with each other: the server's, which logs, and
    # the client's, which ends the test in the same round.
    "tornado.test.tcpserver_test.TCPServerTest.test_handle_stream_coroutine_logging",
    # They want to wake the loop within five milliseconds.
    "tornado.test.ioloop_test.TestIOLoop.test_add_callback_wakeup",
    "tornado.test.ioloop_test.TestIOLoop.test_add_callback_wakeup_other_thread",
}


def environment(**variables):
    return {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", **variables}


def run(*arguments, cwd=HERE, **variables):
    """What CPython 2.7 printed."""
    done = subprocess.run([PYTHON, *arguments], cwd=cwd, env=environment(**variables), timeout=110,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def outcomes_of_tornados_tests(folder, loop, **variables):
    path = folder / f"{loop}.json"
    output = run("tornado_suite.py", path, loop, *MODULES, *(f"-{name}" for name in LEFT_OUT), **variables)
    return json.loads(path.read_text()), output


@pytest.fixture(scope="module")
def upstreams_outcomes(tmp_path_factory):
    return outcomes_of_tornados_tests(tmp_path_factory.mktemp("upstream"), "upstream")[0]


@pytest.mark.parametrize("loop, threads, seed", [pytest.param("strict", 0, 1, marks=pytest.mark.long), ("stm", 4, 2)])
def test_tornados_own_tests_come_out_as_on_upstreams_loop(tmp_path, upstreams_outcomes, loop, threads, seed):
    ours, output = outcomes_of_tornados_tests(
        tmp_path, loop, PYPYSTM_TEST_THREADS=str(threads), PYPYSTM_TEST_SEED=str(seed))
    if loop == "strict":
        assert int(re.search(r"(\d+) request handlers began", output).group(1)) > 300
    assert list(upstreams_outcomes.values()).count("passed") > 500
    assert ours.keys() == upstreams_outcomes.keys()
    # Some tests of TLS fail on both with OpenSSL 3, in ways of their own.
    different = {test: ours[test] for test, there in upstreams_outcomes.items()
                 if there in ("passed", "skipped") and ours[test] != there}
    assert not different.keys() - DIFFERENT, (different, output[-5000:])


@pytest.mark.parametrize("variables", [
    {"PYPYSTM_TEST_SEED": "1"},
    {"PYPYSTM_TEST_SEED": "2"},
    {"PYPYSTM_TEST_SEED": "3", "PYPYSTM_TEST_THREADS": "3"},
    {"PYPYSTM_TEST_OLD": "1"},
    {"PYPYSTM_TEST_WITHOUT": "ssl _ssl bz2 pyexpat"},
], ids=lambda variables: " ".join(variables))
def test_the_loop(variables):
    assert "\nOK" in run("check_loop.py", **variables)


def test_without_the_module_transaction_an_error_says_so():
    assert "needs the module 'transaction' of PyPy-STM" in run("-c", (
        "import repository, sys; sys.modules['transaction'] = None\n"
        "try:\n    import tornado.platform.pypystm\n"
        "except ImportError as error: print(error)"))


@contextlib.contextmanager
def primes_server(*arguments):
    """The URL of stm_bench/pypystm/primes.py."""
    start = ("import repository, runpy, sys\nsys.argv = ['primes.py'] + sys.argv[1:]\n"
             f"runpy.run_path({str(ROOT / 'stm_bench' / 'pypystm' / 'primes.py')!r}, run_name='__main__')")
    server = subprocess.Popen([PYTHON, "-c", start, *arguments, "--port", "0"], env=environment(),
                              stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://localhost:\d+/", server.stdout.readline()).group()
    finally:
        server.terminate()
        assert server.wait(60) == -signal.SIGTERM
        server.stdout.close()


@pytest.mark.parametrize("arguments", [["2"], ["2", "--contended"], ["--plain"]])
def test_primes(arguments):
    with primes_server(*arguments) as url:
        with urllib.request.urlopen(url + "30", timeout=60) as answer:
            assert json.load(answer) == {"primes": [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]}


def test_on_python_2_only_this_file_is_installed(tmp_path):
    """From the source distribution that Python 3 makes, without the network."""
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path],
        cwd=ROOT, check=True, capture_output=True, timeout=100)
    [sdist] = tmp_path.glob("*.tar.gz")
    run("-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path, sdist,
        cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        [metadata] = [files.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert [name for name in names if ".dist-info/" not in name] == ["tornado/platform/pypystm.py"]
    assert re.search(r"^Requires-Dist: tornado \(<5,>=4\.0\)$", metadata, re.MULTILINE), metadata


def test_on_python_3_it_is_not_installed():
    program = ("import runpy, setuptools\n"
               "setuptools.setup = lambda **given: print(*sorted(given['packages']), given.get('py_modules'))\n"
               "runpy.run_path('setup.py')")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    parts = "c_functions", "c_functions.libraries", "input_output", "loop", "patches", "program", "transaction"
    assert done.stdout.split() == ["tornado.stm", *(f"tornado.stm.{part}" for part in parts), "None"]
