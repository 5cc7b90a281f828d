"""What transactions write into text files and logs is there at the commit, in order, and makes nobody run alone."""

import json
import os
import subprocess
import sys

import pytest

from interpreters import ROOT, parallel_only
from tornado.stm import activation, core

#: Tasks take numbers and log them: on one thread they are in order, and a file is full when the next line does not fit.
APP = """
import asyncio, json, logging, logging.handlers, sys
import tornado.stm
from tornado.stm import activation, core, transaction

TASKS, LINES, FULL = 6, 60, 1500
log = logging.getLogger("numbers")
log.setLevel(logging.INFO)
log.propagate = False
log.addHandler(logging.FileHandler("plain.log"))
log.addHandler(logging.handlers.RotatingFileHandler("full.log", maxBytes=FULL, backupCount=1000))
log.addHandler(logging.handlers.TimedRotatingFileHandler("timed.log", when="D"))
printed = open("printed.txt", "w")
taken = 0

async def take(k):
    global taken
    for i in range(LINES):
        taken += 1
        log.info("number %d", taken)
        log.info("and %d", taken)
        print("number", taken, file=printed)
        printed.write(f"again {taken}\\n")
        await asyncio.sleep(0)

async def main():
    await asyncio.gather(*map(take, range(TASKS)))

if "upstream" in sys.argv:
    asyncio.run(main())
else:
    activation.activate()
    core.inject_aborts(float(sys.argv[1]), 5)
    tornado.stm.run(main(), threads=4)
    core.inject_aborts(0, 0)
    print(json.dumps(transaction.stats()["exclusive_reasons"]))
printed.close()
"""


def written(folder, *arguments):
    """What the files have that are in the folder then, by their names; and what ran alone."""
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    environment = dict(os.environ, TORNADO_STM_SEQUENTIAL="0", PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "app.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr
    files = {path.name: path.read_text() for path in folder.iterdir() if path.is_file() and path.name != "app.py"}
    return files, json.loads(done.stdout) if done.stdout else {}


@parallel_only
def test_logs_are_written_in_order_and_beside_others(tmp_path):
    expected, _ = written(tmp_path / "upstream", "upstream")
    assert len(expected) > 4
    files, reasons = written(tmp_path / "ours", "0")
    assert files == expected
    whys = {reason.partition(": File")[0]: count for reason, count in reasons.items()}
    opened = len(expected) - 3  # in the place of full.log, one after the other
    # A step that rotates runs alone already when it looks how far the new file is written: that look is not counted.
    first = whys.pop("the first look at how far a file is written", 0)
    assert first <= 4 * opened, "more than one of the four threads may ask for it at the same time"
    assert sum(whys.values()) <= 4 * opened + 2, whys  # and so may they find that the file is full


@parallel_only
def test_what_is_rolled_back_is_not_written(tmp_path):
    expected, _ = written(tmp_path / "upstream", "upstream")
    files, _ = written(tmp_path / "ours", "0.01")
    assert files == expected


#: how a line is written, as many handlers do
WRITES = {
    "print": lambda stream: print("line", file=stream, flush=True),
    "write": lambda stream: (stream.write("line\n"), stream.flush()),
    "bytes": lambda stream: (stream.buffer.write(b"line\n"), stream.buffer.flush()),
}


def broken_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


@parallel_only
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("make", [lambda: open("/dev/full", "w"), broken_pipe], ids=["full", "pipe"])
def test_whoever_writes_next_is_told_what_could_not_be_written(make, write, monkeypatch):
    activation.activate()
    unraisable, outcomes = [], []
    monkeypatch.setattr(sys, "unraisablehook", core.trusted(lambda report: unraisable.append(report.exc_type)))
    stream = make()
    with pytest.raises(OSError) as expected, make() as another:
        write(another)

    def attempt():
        try:
            write(stream)
        except OSError as e:
            return e.errno

    for _ in range(4):
        outcomes.append(core.Transaction(attempt, ()).run())
    assert outcomes == [None] + 3 * [expected.value.errno]
    assert unraisable == [expected.type], "but the first one, which might be the last"
    with pytest.raises(OSError):
        stream.close()


@parallel_only
def test_a_file_that_can_be_written_to_again_is(monkeypatch):
    activation.activate()
    monkeypatch.setattr(sys, "unraisablehook", core.trusted(lambda report: None))
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with open(reading, "rb") as reader, open(writing, "wb", buffering=1 << 20) as stream:
        core.Transaction(lambda: (stream.write(bytes(200_000)), stream.flush()), ()).run()
        got = len(os.read(reading, 200_000))
        with pytest.raises(BlockingIOError):
            core.Transaction(stream.flush, ()).run()
        for _ in range(20):
            try:
                core.Transaction(stream.flush, ()).run()
            except BlockingIOError:
                got += len(os.read(reading, 200_000))
        before = core.stats()["exclusives"]
        core.Transaction(lambda: (stream.write(b"more"), stream.flush()), ()).run()
        assert core.stats()["exclusives"] == before
        while got < 200_004:
            got += len(os.read(reading, 200_000))
        assert got == 200_004


@parallel_only
def test_a_program_ends_whose_reader_has_gone(tmp_path):
    """``program | head -1``"""
    (tmp_path / "app.py").write_text(
        "import asyncio\n"
        "async def main():\n"
        "    for i in range(100_000):\n"
        "        print('line', i, flush=True)\n"
        "        await asyncio.sleep(0.0001)\n"
        "asyncio.run(main())\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=dict(os.environ, TORNADO_STM_SEQUENTIAL="0"), text=True,
    )  # fmt: skip
    assert program.stdout.readline() == "line 0\n"
    program.stdout.close()
    errors = program.stderr.read()
    assert program.wait(60) != 0 and "\nBrokenPipeError" in errors
