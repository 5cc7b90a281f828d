"""What transactions write into text files and logs is there at the commit, in order, and makes nobody run alone."""

import json
import os
import subprocess
import sys

from interpreters import ROOT, parallel_only

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
