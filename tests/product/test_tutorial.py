"""docs/tutorial.rst, word by word: its commands are run on its example, and what the text promises is what comes of them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

from interpreters import ROOT
from stm_bench.servers import free_port
from tornado.stm import core

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: nothing conflicts")

TEXT = (ROOT / "docs" / "tutorial.rst").read_text()
SOURCE = (ROOT / "docs" / "examples" / "shop.py").read_text()


def blocks(language):
    """The text of each code block in that language, without its indentation."""
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", TEXT)
    return ["\n".join(line[4:] for line in block.rstrip().splitlines()) for block in found]


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]
BEFORE, AFTER = blocks("python")


def command(beginning):
    (found,) = [line for line in COMMANDS if line.startswith(beginning)]
    return found


SERVE, LOAD, ASK, READ = command("python -m tornado.stm "), command("siege "), command("curl "), command("python -m tornado.stm.log ")


def test_these_are_all_commands():
    assert sorted(COMMANDS) == sorted([SERVE, LOAD, ASK, READ])


def test_the_handler_is_that_of_the_example():
    assert f"\n\n{BEFORE}\n\n" in SOURCE
    assert [line for line in AFTER.splitlines() if line not in BEFORE.splitlines()] == ["        await asyncio.sleep(0)"]


def test_the_places_in_the_log_are_those_of_the_example():
    places = re.findall(r'shop\.py", line (\d+), in \S+\n\s+(.+)', TEXT)
    assert places
    for number, line in places:
        assert SOURCE.splitlines()[int(number) - 1].strip() == line
    (defined,) = re.findall(r"lost by Search\.get \(shop\.py:(\d+)\)", TEXT)
    assert "def get(self, words)" in SOURCE.splitlines()[int(defined) - 1]


def words(line, port):
    """The command as the test runs it: this interpreter, a free port, half of the load."""
    line = line.replace("8888", str(port)).replace("-t 6S", "-t 3S")
    return [sys.executable if word == "python" else word for word in shlex.split(line)]


def follow(folder, source):
    """Run the commands in the folder; return how many requests siege and the server have counted, and the log as data."""
    script = folder / "docs" / "examples" / "shop.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(source)
    port = free_port()
    server = subprocess.Popen(words(SERVE, port), cwd=folder)
    try:
        asked = words(ASK, port)[-1]
        deadline = time.monotonic() + 60
        while True:
            try:
                assert urllib.request.urlopen(asked, timeout=10).read() == b"0"
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        loaded = subprocess.run(words(LOAD, port), capture_output=True, text=True, timeout=60)
        counted = re.search(r'(?:"transactions"|Transactions):\s+(\d+)', loaded.stdout + loaded.stderr)
        visits = int(urllib.request.urlopen(asked, timeout=10).read())
        server.terminate()
        assert server.wait(20) == 0
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    read = [*words(READ, port), "--json", "log.json"]
    report = subprocess.run(read, cwd=folder, capture_output=True, text=True, timeout=60, check=True).stdout
    data = json.loads((folder / "log.json").read_text())
    return int(counted[1]), visits, report, data


def conflicts_of(report):
    """The paragraphs of the report that are about one conflict each."""
    return [part for part in report.split("\n\n") if "STM_CONTENTION" in part]


def cost_of_handler(report):
    """Seconds that Search.get has lost."""
    found = re.search(r"([\d.]+)s in aborts, +([\d.]+)s paused: Search\.get", report)
    return float(found[1]) + float(found[2]) if found else 0.0


@pytest.mark.skipif(shutil.which("siege") is None, reason="siege is missing")
def test_the_log_tells_of_the_contention_and_the_change_ends_it(tmp_path):
    counted, visits, report, data = follow(tmp_path, SOURCE)
    assert visits >= counted > 0
    first = conflicts_of(report)[0]
    assert "about Shop.visits\n" in first and "    shop.visits += 1\n" in first and "lost by Search.get (shop.py:" in first
    advice = " ".join(re.search(r"advice: (.*?)\n\n", TEXT, re.S)[1].split())
    assert f"advice: {advice}" in first
    assert data["conflicts"][0]["object"] == "Shop.visits"

    counted, visits, changed, _ = follow(tmp_path, SOURCE.replace(BEFORE, AFTER))
    assert visits >= counted > 0
    assert cost_of_handler(changed) < cost_of_handler(report) / 4
