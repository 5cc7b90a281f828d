"""docs/tutorial.rst: what is in it, and its commands, run word by word."""

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
from stm_bench.servers import reserved_port

needs_siege = pytest.mark.skipif(shutil.which("siege") is None, reason="siege is missing")

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


def words(line, port, python):
    """The command as the test runs it: that interpreter, a free port, half of the load."""
    line = line.replace("8888", str(port)).replace("-t 6S", "-t 3S")
    return [str(python) if word == "python" else word for word in shlex.split(line)]


def follow(folder, source, python=sys.executable, env=None):
    """Run the commands in the folder, by that interpreter in that environment.

    Returns:
        How many requests siege and the server have counted, the report on the log, and the log as data.
    """
    script = folder / "docs" / "examples" / "shop.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(source)
    with reserved_port() as port:
        server = subprocess.Popen(words(SERVE, port, python), cwd=folder, env=env)
        try:
            asked = words(ASK, port, python)[-1]
            deadline = time.monotonic() + 60
            while True:
                try:
                    assert urllib.request.urlopen(asked, timeout=10).read() == b"0"
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < deadline
                    time.sleep(0.05)
            loaded = subprocess.run(words(LOAD, port, python), capture_output=True, text=True, timeout=60)
            counted = re.search(r'(?:"transactions"|Transactions):\s+(\d+)', loaded.stdout + loaded.stderr)
            visits = int(urllib.request.urlopen(asked, timeout=10).read())
            server.terminate()
            assert server.wait(20) == 0
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
    read = [*words(READ, port, python), "--json", "log.json"]
    report = subprocess.run(read, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    data = json.loads((folder / "log.json").read_text())
    return int(counted[1]), visits, report, data


def conflicts_of(report):
    """The paragraphs of the report that are about one conflict each."""
    return [part for part in report.split("\n\n") if "STM_CONTENTION" in part]


def cost_of_handler(report):
    """Seconds that Search.get has lost."""
    found = re.search(r"([\d.]+)s in aborts, +([\d.]+)s paused: Search\.get", report)
    return float(found[1]) + float(found[2]) if found else 0.0


def check_first(report, data):
    """What the text promises of the example's log."""
    first = conflicts_of(report)[0]
    assert "about Shop.visits\n" in first and "    shop.visits += 1\n" in first and "lost by Search.get (shop.py:" in first
    advice = " ".join(re.search(r"advice: (.*?)\n\n", TEXT, re.S)[1].split())
    assert f"advice: {advice}" in first
    assert data["conflicts"][0]["object"] == "Shop.visits"
