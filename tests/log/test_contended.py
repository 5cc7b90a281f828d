"""The example of docs/contention.rst: its changes change no answer, and no visit is lost."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from interpreters import ROOT
from stm_bench.apps.contended_app import CHANGES
from stm_bench.servers import Server
from tornado.stm import core

COMMAND = [sys.executable, "-m", "stm_bench.app_server", "contended_app"]


def ask(server, path):
    status, text = server.answer(path)
    assert status == 200
    return text


@pytest.mark.parametrize("threads", [None, 2], ids=["upstream", "two threads"])
def test_all_changes_answer_the_same_and_count_all_visits(threads):
    if threads and not core.PARALLEL:
        pytest.skip("transactions run one at a time")
    with Server("the application", COMMAND + (["--threads", str(threads)] if threads else [])) as server:
        paths = [f"/{n}/{words}" for words in ("green%20chair", "lamp") for n in range(len(CHANGES))] * 3
        with ThreadPoolExecutor(4) as clients:
            answers = [json.loads(text) for text in clients.map(lambda path: ask(server, path), paths)]
        assert ask(server, "/visits") == str(len(paths))
        found = {path.rpartition("/")[2]: {(*answer["found"], *answer["similar"]) for asked, answer in zip(paths, answers) if asked[2:] == path[2:]}
                 for path in paths}  # fmt: skip
        assert {words: len(each) for words, each in found.items()} == {"green%20chair": 1, "lamp": 1}
        assert all(len(answer["others"].split(", ")) <= 10 for answer in answers)
        server.stop()


def test_the_walk_through_shows_the_handlers_that_there_are():
    text = (ROOT / "docs" / "contention.rst").read_text()
    source = (ROOT / "stm_bench" / "apps" / "contended_app.py").read_text()
    contended = re.search(r"# \[contended\]\n(.*?)# \[end\]", source, re.S)[1]
    assert [line.strip() for line in contended.splitlines()] == [
        line.strip() for line in re.search(r"code-block:: python\n\n(.*?)\n\nOn upstream", text, re.S)[1].splitlines()
    ]
    for number, line in re.findall(r'contended_app\.py", line (\d+), in \S+\n\s+(.+)', text):
        assert source.splitlines()[int(number) - 1].strip() == line.strip()
