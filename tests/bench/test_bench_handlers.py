"""The benchmark of ordinary handlers.  No test looks at a speed."""

import argparse
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from interpreters import ROOT

pytest.importorskip("rich")

from stm_bench import handlers_load, pages  # noqa: E402
from stm_bench.errors import BenchmarkError, WrongAnswer  # noqa: E402
from stm_bench.servers import Server  # noqa: E402


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "stm_bench", "handlers", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_it_measures(tmp_path):
    file = tmp_path / "figures.json"
    done = run(
        "--only", "catalogue", "--milliseconds", "10", "--threads", "1,2", "--time", "1", "--repeats", "1",
        "--concurrency", "2", "--json", str(file),
    )  # fmt: skip
    assert (done.returncode, "catalogue, 10 ms" in done.stdout) == (0, True), done.stderr
    (row,) = json.loads(file.read_text())["sections"]["handlers"]
    assert all(row[key] > 0 for key in ("upstream", "threads1", "threads2", "cpu1", "cpu2", "two"))
    assert row["figure"] == row["threads2"] and {"target", "met", "range"} < row.keys()


@pytest.mark.long
def test_it_measures_what_takes_next_to_nothing_beside_endless_loops(tmp_path):
    file = tmp_path / "figures.json"
    done = run(
        "--only", "echo", "--threads", "1", "--time", "1", "--repeats", "1", "--concurrency", "2", "--beside", "1",
        "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0 and "kept of requests/s beside 1 endless" in done.stdout, done.stderr
    rows = json.loads(file.read_text())["sections"]["handlers"]
    assert [row["name"] for row in rows] == ["echo"]
    assert rows[0]["figure"] == rows[0]["threads1"] > 0 and rows[0]["upstream"] > 0


@pytest.mark.parametrize("app", dict.fromkeys(page.app for page in pages.TRIVIAL.values()))
def test_trivial_pages_answer_what_they_are_asked_for(app):
    with Server("an application", [sys.executable, "-m", "stm_bench.app_server", app, "--threads", "1"]) as server:
        for page in pages.TRIVIAL.values():
            if page.app == app:
                page.check(server)


def test_every_page_that_computes_is_asked_for_what_it_answers():
    found = pages.computing(pages.COMPUTING, [3, 30])
    assert len(found) == 2 * len(pages.COMPUTING) and all(page.answer for page in found)
    assert len({page.path for page in found}) == len(found)


def test_what_fails_is_shown_and_the_others_are_measured(monkeypatch, tmp_path, capsys):
    asked = []

    def load(servers, page, clients, seconds):
        asked.append(page.name)
        if page.name == "echo" and asked.count("echo") == 6:  # after the warm-up, in the middle of a round
            raise WrongAnswer("server -j 1 sent 'x' back")
        return 10.0, 0.1

    server = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(handlers_load, "start_servers", lambda *_: {"upstream": [server], "two": [server], 1: [server], 2: [server]})
    monkeypatch.setattr(handlers_load, "load", load)
    monkeypatch.setattr(handlers_load.siege, "version", lambda: "4")
    parser, file = argparse.ArgumentParser(), tmp_path / "figures.json"
    handlers_load.add_arguments(parser)
    for beside in [], ["--beside", "1"]:
        asked.clear()
        arguments = ["--only", "hello", "echo", "json", "--threads", "1,2", "--repeats", "2", "--json", str(file), *beside]
        assert handlers_load.benchmark(parser.parse_args(arguments)) == 1
        assert asked.count("echo") == 6 and asked.count("json") == (20 if beside else 12)
        rows = json.loads(file.read_text())["sections"]["handlers"]
        assert [(row["name"], row["figure"]) for row in rows] == [("hello", 1), ("json", 1), ("echo", "failed")]
        assert "echo failed: server -j 1 sent 'x' back" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["hello", "echo"])
def test_that_a_server_has_died_is_told(page):
    with Server("mine", [sys.executable, "-m", "stm_bench.app_server", "handlers_app"]) as server:
        pages.TRIVIAL[page].check(server)
        server.process.kill()
        server.process.wait()
        with pytest.raises(BenchmarkError, match="^server mine ended with status -9"):
            handlers_load.load([server], pages.TRIVIAL[page], 1, 1)


def test_a_wrong_answer_is_told():
    page = pages.TRIVIAL["hello"]
    page.check(SimpleNamespace(name="right", answer=lambda path, form: (200, page.answer)))
    for answer in (200, "Bye"), (404, page.answer):
        with pytest.raises(WrongAnswer, match="wrong"):
            page.check(SimpleNamespace(name="wrong", answer=lambda path, form: answer))


def test_bad_arguments_are_one_line(refused):
    assert "nonsense" in refused("handlers", "--only", "nonsense")
