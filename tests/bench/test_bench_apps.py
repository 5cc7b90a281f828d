"""The benchmark of applications.  No test looks at a speed."""

import argparse
import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from interpreters import ROOT

pytest.importorskip("rich")

from stm_bench import app_server, apps_load  # noqa: E402
from stm_bench.errors import BenchmarkError, WrongAnswer  # noqa: E402


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "stm_bench", "apps", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_it_measures(tmp_path):
    file = tmp_path / "figures.json"
    done = run(
        "--only", "websocket", "--threads", "1,2", "--time", "1", "--repeats", "1", "--size", "300", "--concurrency", "3",
        "--json", str(file),
    )
    assert (done.returncode, "Tornado, web sockets" in done.stdout) == (0, True), done.stderr
    (row,) = json.loads(file.read_text())["sections"]["apps"]
    assert row["figure"] == row["threads2"] / row["upstream"] > 0
    assert row["releases"] and {"target", "met", "aborted", "alone"} < row.keys()


@pytest.mark.long
@pytest.mark.parametrize("kind", apps_load.KINDS)
def test_every_application_is_measured(kind):
    done = run("--only", kind, "--threads", "1", "--time", "1", "--repeats", "1", "--size", "300")
    assert (done.returncode, apps_load.KINDS[kind].title in done.stdout) == (0, True), done.stderr


def test_the_warm_up_is_not_counted():
    before = {"commits": 5, "exclusive_reasons": {"an import": 2}}
    now = {"commits": 7, "exclusive_reasons": {"an import": 2, "a look at all tasks": 1}}
    assert app_server.since(before, now) == {"commits": 2, "exclusive_reasons": {"an import": 0, "a look at all tasks": 1}}
    assert app_server.since({}, now) == now


def test_what_fails_is_shown_and_the_others_are_measured(monkeypatch, tmp_path, capsys):
    failing = {("aiohttp_app", None), ("starlette_app", 1), ("quart_app", 2)}
    turns = []

    def take_turn(kind, how, name, *_):
        turns.append((kind.app, how))
        if (kind.app, how) in failing:
            raise WrongAnswer("server %s did not answer" % name)
        return 10.0 * (how or 1), {"commits": 9, "aborts": 1, "exclusive_reasons": {}}

    monkeypatch.setattr(apps_load, "take_turn", take_turn)
    monkeypatch.setattr(apps_load.Kind, "releases", lambda kind: "1.0")
    parser, file = argparse.ArgumentParser(), tmp_path / "figures.json"
    apps_load.add_arguments(parser)
    options = ["--only", "http", "aiohttp", "starlette", "quart", "--threads", "1,2", "--size", "9", "--repeats", "2", "--json", str(file)]
    assert apps_load.benchmark(parser.parse_args(options)) == 1
    for each in failing:
        assert turns.count(each) == 1  # and not again
    assert len(turns) == 4 * 3 * 2 - len(failing)
    rows = json.loads(file.read_text())["sections"]["apps"]
    assert [[row.get(key) for key in ("upstream", "threads1", "threads2", "figure", "aborted")] for row in rows] == [
        [10, 10, 20, 2, 10], ["failed", 10, 20, None, 10], [10, "failed", 20, 2, 10], [10, 10, "failed", None, None],
    ]  # fmt: skip
    assert "starlette failed: server starlette, -j 1 did not answer" in capsys.readouterr().out


def test_a_database_that_does_not_start_fails_its_application_only(monkeypatch, tmp_path):
    def no_database():
        raise BenchmarkError("it does not listen")

    stats = {"commits": 1, "aborts": 0, "exclusive_reasons": {}}
    monkeypatch.setattr(apps_load, "take_turn", lambda *_: (1.0, stats))
    monkeypatch.setitem(apps_load.KINDS, "redis", apps_load.Kind("redis-py", "database_app", given=no_database))
    parser, file = argparse.ArgumentParser(), tmp_path / "figures.json"
    apps_load.add_arguments(parser)
    assert apps_load.benchmark(parser.parse_args(["--only", "redis", "http", "--threads", "2", "--size", "9", "--json", str(file)])) == 1
    rows = json.loads(file.read_text())["sections"]["apps"]
    assert [(row["threads2"], row.get("figure")) for row in rows] == [("failed", None), (1, 1)]


def test_bad_arguments_are_one_line(refused):
    assert "nonsense" in refused("apps", "--only", "nonsense")


class Member:
    """A web socket that gets these messages."""

    def __init__(self, *messages):
        self.messages = list(messages)

    async def send_str(self, text):
        assert text == "10"

    async def receive_str(self):
        return self.messages.pop(0)


def in_a_room(*messages):
    """A room of one member who has asked once, and its answers."""

    async def ask():
        room = apps_load.Room(SimpleNamespace(name="test"), 10, 1)
        member = Member(*messages)
        room.members, room.sent, room.each, room.end = {member: 0}, 0, 1, float("inf")
        await room.ask_on(member)
        return room

    return asyncio.run(ask())


def test_a_right_answer_counts():
    assert in_a_room("primes 10: 4").answered == 1
    assert in_a_room("news 10: 4", "primes 10: 4").answered == 1


@pytest.mark.parametrize("answer", ["primes 10: 5", "primes 11: 4", "news 10: 3"])
def test_a_wrong_answer_is_told(answer):
    with pytest.raises(WrongAnswer):
        in_a_room(answer, "primes 10: 4")


def test_an_answer_that_is_missing_is_told():
    with pytest.raises(IndexError):
        in_a_room("news 10: 4")
