"""The workloads: each runs in each way that it can, answers rightly, and its clients notice what is wrong.  No test looks at a time."""

import argparse
import copy
import json
import math
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from interpreters import has_gil
from stm_bench import workloads
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.servers import Server

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from stm_bench import workload_load, workload_page, workload_plot  # noqa: E402
from stm_bench.__main__ import command_line  # noqa: E402
from stm_bench.ways import Way  # noqa: E402
from stm_bench.workloads import astar, chat, client, programs  # noqa: E402

needs_siege = pytest.mark.skipif(shutil.which("siege") is None, reason="siege is not installed")
UPSTREAM, EXECUTOR, LOOPS = Way("upstream", "plain"), Way("an executor", "executor", 2), Way("loops", "loops", 2)
OURS = Way("ours", "stm", 1 if has_gil(sys.executable) else 2)

#: those that compute for long do so for less here
SHORTER = {"primes": {"milliseconds": 2}, "sieve": {"milliseconds": 2}, "catalogue": {"milliseconds": 2}, "template": {"milliseconds": 2}}


@pytest.fixture
def upstream_only(monkeypatch):
    """No other way is looked for."""
    monkeypatch.setattr(workload_load, "all_ways", lambda threads: ([UPSTREAM], []))
    monkeypatch.setattr(workload_load.siege, "version", lambda: "4")


def can_run(workload, way):
    return way.kind in workload.kinds and not workload.needs


#: what another one is with other numbers
SAME = {"primes-small", "astar-building", "convoy-alone"}

#: all others on tornado.stm; those that have something of their own for another way, or a check of their own, also in that
RUNS = [(name, OURS) for name in workloads.MODULES if name not in SAME]
RUNS += [("session", UPSTREAM), ("session", EXECUTOR), ("session", LOOPS), ("json", EXECUTOR), ("sums", EXECUTOR), ("sums", LOOPS)]
RUNS += [(name, UPSTREAM) for name in ("astar", "chat", "sums-yielding", "pi")]
RUNS = [(name, way) for name, way in RUNS if can_run(workloads.load(name), way)]


def measured(workload, *ways):
    """What one round finds."""
    options = SimpleNamespace(repeats=1, time=1 if workload.needs_siege or not workload.clients else 0.3)

    class Silent:
        def starting(self, what):
            pass

        done = starting

    return workload_load.measure(workload, ways, options, Silent())


@needs_siege
@pytest.mark.parametrize("name, way", RUNS, ids=["%s, %s" % (name, way.kind) for name, way in RUNS])
def test_a_workload_runs_in_that_way_and_is_answered_rightly(name, way, monkeypatch):
    workload = workloads.load(name)
    monkeypatch.setattr(workload_load, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(workload_load, "LOG_SECONDS", 0)
    for setting, value in SHORTER.get(name, {}).items():
        monkeypatch.setattr(workload, setting, value)
    result = measured(workload, way)
    assert result.measured[0].failure is None
    assert len(result.measured[0].rates) == 1 and result.measured[0].rates[0] > 0
    assert bool(result.measured[0].waits) == bool(workload.clients)


@pytest.mark.skipif(OURS.count == 1, reason="transactions run one at a time")
def test_what_conflicts_is_told_from_the_log(monkeypatch):
    monkeypatch.setattr(workload_load, "WARM_UP_SECONDS", 0)
    result = measured(workloads.load("counter"), OURS)
    assert "for Count.requests, at shared.py:" in result.measured[0].log
    assert "conflict log of ours: of the threads' time " in " ".join(workload_load.section(result, {}, SimpleNamespace(repeats=1, time=1)).caption)


def test_a_log_without_conflicts_says_so():
    accounts = workload_load.stm_log.C7Accounts("C7")
    accounts.real_time = 10**9
    assert workload_load.told_by(accounts, 2) == "of the threads' time 0.0 % was rolled back and 0.0 % waited."
    accounts.inevitable = {(b'File "/a/b.py", line 7, in f', b"exclusive"): SimpleNamespace(lost=10**8, count=1)}
    assert workload_load.told_by(accounts, 2).endswith("; transactions ran alone for 10 % of the time, most at b.py:7, f.")


def test_what_cannot_be_is_said_and_not_run():
    ways = [UPSTREAM, Way("two processes", "processes", 2), LOOPS]
    said = {name: [workload_load.why_not(workloads.load(name), way) for way in ways] for name in ("session", "chat", "hello")}
    assert said["session"] == [None, "not possible: requests share what changes", None]
    assert said["chat"] == [None, "not possible: requests share what changes", "not possible"]
    assert said["hello"] == [None, None, None]


# What clients notice


class Canned:
    """In the place of a server's process."""

    name = "canned"

    def __init__(self, text=""):
        self.text = text

    def ask(self, path):
        return self.text


class Answers:
    """In the place of a connection on which this has come."""

    server = Canned()

    def __init__(self, received=b"", asked=None):
        self.received, self.asked = received, asked


def test_a_path_through_a_wall_is_noticed():
    game = astar.Walls(12, 12)
    game.fields = [[astar.OPEN] * 12 for _ in range(12)]
    asked = ("path", (0, 0), (2, 0), 100.0)
    path = json.dumps([[0, 0], [1, 0], [2, 0]])
    game.check(Answers(asked=asked), path)
    game.fields[0][1], game.since[0][1] = astar.WALL, 101.0  # built after it was asked for
    game.check(Answers(asked=asked), path)
    game.since[0][1] = 99.0
    with pytest.raises(WrongAnswer, match="through the wall at 1, 0"):
        game.check(Answers(asked=asked), path)
    with pytest.raises(WrongAnswer, match="no path from"):
        game.check(Answers(asked=asked), json.dumps([[0, 0], [2, 0]]))


def test_a_path_that_is_not_found_though_there_is_one_is_noticed():
    game = astar.Walls(3, 3)
    game.fields = [[astar.OPEN] * 3 for _ in range(3)]
    asked = ("path", (0, 0), (2, 2), 100.0)
    with pytest.raises(WrongAnswer, match="found no path from .* and there is one"):
        game.check(Answers(asked=asked), "null")
    for y in range(3):
        game.fields[y][1] = astar.WALL
    game.check(Answers(asked=asked), "null")
    game.fields[1][1], game.since[1][1] = astar.OPEN, 101.0  # there was a wall when it was asked for
    game.check(Answers(asked=asked), "null")
    game.since[1][1] = math.inf  # it is being changed
    game.check(Answers(asked=asked), "null")


def test_requests_that_are_not_counted_are_noticed(monkeypatch):
    """A count that comes twice is an update that was lost; one that never comes, an attempt that was not undone."""
    counter = copy.copy(workloads.load("counter"))
    server = Canned()

    def counted(*counts):
        monkeypatch.setattr(counter, "_ask", lambda *args: [counter.is_right(server, "count", "%d %s" % (n, counter._total)) for n in counts])
        counter._last = {server: 2}
        assert counter.load([server], 1) == [True] * len(counts)

    counted(3, 5, 4)
    for wrong in (3, 4, 4), (3, 5), (4, 5), (2, 3):
        with pytest.raises(WrongAnswer, match="has not counted each of its requests once"):
            counted(*wrong)
    assert not counter.is_right(server, "count", "3 0")


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"rate": "x"}', '{"rate": 0}'])
def test_a_program_that_tells_no_rate_is_noticed(text):
    with pytest.raises(WrongAnswer, match="server canned"):
        programs.Program("program", "one").load([Canned(text)], 1)


@pytest.mark.parametrize("received", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"HTTP/1.1 500 No\r\n\r\n"])
def test_what_is_no_answer_at_all_is_one_line(received):
    game = copy.copy(workloads.load("astar"))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as server:

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(received)
                connection.recv(1 << 16)

        listener.settimeout(60)
        answered = server.submit(answer)
        game.clients, canned = 1, Canned()
        canned.port = listener.getsockname()[1]
        with pytest.raises(WrongAnswer, match="^server canned "):
            game.load([canned], 1)
        answered.result()


def test_what_takes_longer_than_the_load_has_a_rate():
    """On a machine that is busy with something else nothing may be answered in time, nor fail."""
    with Server("mine", [sys.executable, "-m", "stm_bench.workload_server", "sums", "plain", "1"]) as server:
        found = workloads.load("sums").load([server], 0.000001)
    assert found.rate > 0 and len(found.waits) == 1


def test_a_wrong_answer_while_siege_asks_is_noticed():
    """siege looks at no text."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as server:

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
                connection.recv(1 << 16)

        listener.settimeout(60)
        answered = server.submit(answer)
        canned = Canned()
        canned.port = listener.getsockname()[1]
        with pytest.raises(WrongAnswer, match="^server canned answered GET /page wrongly"):
            workloads.load("hello")._ask([canned], 1, 60, iter(["page"]), lambda server, path, answer: answer == "y")
        answered.result()


def test_clients_are_shared_out_without_one_too_many():
    servers = ["a", "b", "c"]
    assert client.shared_out(8, servers) == [("a", 3), ("b", 3), ("c", 2)]
    assert client.shared_out(2, servers) == [("a", 1), ("b", 1)]


def test_members_that_hear_another_order_are_noticed():
    first, late, wrong = (Answers(b"".join(map(chat.told, said)), asked="3") for said in ("1234", "23", "24"))
    late.received += chat.told("4")[:-1]  # which has not come whole
    for member, own in (first, 1), (late, 1), (wrong, 0):
        member.heard_to = 0
        assert chat.hear(member) == own and not chat.hear(member)
        chat.check(member)
    assert late.heard == ["2", "3"]
    chat.compare(first, late)
    chat.compare(late, first)
    with pytest.raises(WrongAnswer, match="sent 3 to one and 4 to another in its place"):
        chat.compare(first, wrong)


def test_messages_that_are_wrong_or_come_twice_are_noticed():
    with pytest.raises(WrongAnswer, match="sent a message twice"):
        chat.check(Answers(chat.told("1") + chat.told("2") + chat.told("1")))
    with pytest.raises(WrongAnswer, match="sent b"):
        chat.check(Answers(chat.told("1").replace(b"%d" % (chat.SHOWN + 1), b"%d" % chat.SHOWN)))


@needs_siege
def test_a_wrong_answer_fails_the_way_and_not_the_others(monkeypatch):
    workload = workloads.load("hello")
    monkeypatch.setattr(workload, "_asked", (None, "", "something else"))
    result = measured(workload, UPSTREAM)
    (upstream,) = result.measured
    assert upstream.wrong and upstream.failure == "failed: server upstream answered GET / wrongly"
    table = workload_load.section(result, {}, SimpleNamespace(repeats=1, time=1))
    assert table.rows[0]["shown"] == "failed" and table.rows[0]["figure"] is None


# Figures


def canned():
    ways = [UPSTREAM, Way("upstream, 2 processes", "processes", 2), Way("tornado.stm, 2 threads", "stm", 2), EXECUTOR]
    rates = [[100.0, 50.0, 80.0], [200.0, 90.0, 150.0], [185.0, 120.0, 144.0], []]
    result = workload_load.Result(workloads.load("primes"), [workload_load.Measured(way, each) for way, each in zip(ways, rates)])
    result.measured[3].failure = "not possible"
    result.limit = result.measured[1]
    return result


def canned_section(before=None):
    return workload_load.section(canned(), before or {}, SimpleNamespace(repeats=3, time=3))


def test_what_is_more_than_the_limit_is_left_out_and_that_is_said():
    row = canned_section().rows[2]
    assert (row["figure"], row["range"]) == (pytest.approx(1.825), "1.80-1.85")  # and not the 2.4 of the second round
    assert "tornado.stm, 2 threads: 1 of 3 rounds are left out, which gave more than the limit" in canned_section().notes


def test_where_all_rounds_are_more_than_the_limit_none_is_left_out_and_that_is_said():
    result = canned()
    result.measured[2].rates = [300.0, 120.0, 250.0]
    section = workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3))
    assert section.rows[2]["range"] == "2.40-3.12"
    assert "tornado.stm, 2 threads: 3 of 3 rounds gave more than the limit" in section.notes


def test_processes_that_fail_in_the_middle_are_no_limit():
    result = canned()
    result.limit = workload_load.Measured(Way("the limit", "processes", 2), [200.0], failure="failed: ended with status 1", wrong=True)
    section = workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3))
    assert section.rows[2]["range"] == "1.80-2.40"  # of all rounds
    assert section.notes == ["no limit is known: failed: ended with status 1"] and result.is_wrong
    assert not canned().is_wrong and canned_section().rows[0]["limits"] == [2.0, 1.8, 1.875]


def test_a_machine_with_fewer_cores_than_threads_is_not_busy_for_that(monkeypatch):
    monkeypatch.setattr(workload_load.machine, "usable_cpus", lambda: 2)
    result = canned()
    result.limit = workload_load.Measured(Way("upstream, 4 processes", "processes", 4), [190.0, 95.0, 152.0])
    assert not [note for note in workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3)).notes if "busy" in note]
    result.limit.rates = [140.0, 70.0, 112.0]
    notes = workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3)).notes
    assert notes[-1].endswith("processes got 1.40 of 2 cores")


def test_what_has_failed_has_no_figure_in_tables_and_pictures(tmp_path):
    result = canned()
    result.measured[2].failure, result.measured[2].wrong = "failed: it has ended", True  # after three rounds
    assert workload_plot.shown(result) == result.measured[:2]
    result.measured[0].failure = "failed: wrong"
    assert workload_plot.shown(result) == []
    rows = workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3)).rows
    assert [(row["shown"], row["figure"]) for row in rows[1:3]] == [("upstream failed", None), ("failed", None)]
    assert workload_load.engine_report.cells(workload_load.overview([result]), workload_load.overview([result]).rows[0])[1:3] == ["", "failed"]
    with pytest.raises(BenchmarkError, match="nothing was measured"):
        workload_plot.save([result], "", tmp_path / "figures.png")


def test_that_a_server_has_died_is_told_and_not_what_clients_saw_of_it():
    measured = workload_load.Measured(UPSTREAM)
    with Server("mine", [sys.executable, "-m", "stm_bench.workload_server", "sums", "plain", "1"]) as server:
        server.process.kill()
        server.process.wait()
        assert workload_load.attempt(workloads.load("sums"), measured, [server], 1) is None
    assert measured.wrong and measured.failure.startswith("failed: server mine ended with status -9")


def test_times_until_an_answer_are_shown_where_clients_measure_them():
    result = canned()
    result.measured[2].waits = [0.010] * 98 + [0.050, 0.090]  # of a hundred, 99 have taken no longer than the last but one
    table = workload_load.section(result, {}, SimpleNamespace(repeats=3, time=3))
    assert [column.heading for column in table.columns][-2:] == ["median", "p99"]
    assert workload_load.engine_report.cells(table, table.rows[2])[-2:] == ["10.0 ms", "50.0 ms"]
    assert "median" not in [column.heading for column in canned_section().columns]


def test_paragraphs_of_restructured_text_have_short_lines_and_no_references():
    table = canned_section()
    table.notes.append("waited for Buffer.size_, at buffer.py:1, Buffer.__len__" + " and some more" * 20)
    text = "\n".join(workload_load.engine_report.rst_lines(table))
    paragraphs = text.partition("ratio: to upstream")[2].splitlines()
    assert max(map(len, paragraphs)) <= workload_load.engine_report.LINE < len(table.notes[-1])
    assert "Buffer.size\\_, at buffer.py:1, Buffer.__len_\\_ and" in text


def test_an_earlier_run_stands_beside(tmp_path):
    earlier = tmp_path / "earlier.json"
    workload_load.engine_report.write([canned_section()], {}, str(earlier))
    before = workload_load.read_figures(str(earlier))["primes"]
    assert before["tornado.stm, 2 threads"] == pytest.approx(1.825)
    assert canned_section(before).rows[2]["before"] == pytest.approx(1.825)


def test_the_overview_has_a_row_for_each_workload_and_a_column_for_each_way():
    table = workload_load.overview([canned(), canned()])
    assert [column.heading for column in table.columns] == ["workload", "2 processes", "stm, 2", "executor, 2", "target"]
    assert workload_load.engine_report.cells(table, table.rows[1]) == ["primes", "1.88", "1.83", "", "\N{GREATER-THAN OR EQUAL TO} 1.85"]
    assert workload_load.engine_report.missed(table.rows[0])


def test_pictures_and_pages_are_written(tmp_path):
    workload_plot.save([canned(), canned()], "CPython 3.14", tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")
    environment = {"python": "3.14.7", "Tornado": "6.6", "processor": "<one>", "cpus": 2, "date": "2026"}
    workload_page.save([canned()], [canned_section()], environment, ["a note & more"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page and "a note &amp; more" in page and "&lt;one&gt;" in page and "1.80-1.85" in page and "Tornado 6.6" in page


def test_a_picture_shows_the_rate_against_the_threads_and_the_times_until_an_answer():
    result = canned()
    result.measured[2].waits = [0.010] * 98 + [0.050, 0.090]
    result.measured.append(workload_load.Measured(Way("tornado.stm, 1 thread", "stm", 1), [90.0, 60.0, 70.0]))
    result.measured.append(workload_load.Measured(Way("tornado.stm, with a GIL", "stm", 1, "another"), [9.0, 6.0, 7.0]))
    ways, threads = workload_plot.figure_of([result]).axes
    assert {"10.0 ms", "50.0 ms"} < {text.get_text() for text in ways.texts}
    lines = [line.get_xydata().tolist() for line in threads.get_lines()]
    for rates in [[1, 70], [2, 140]], [[1, 70], [2, 144]], [[2, 150]]:  # linear, tornado.stm's, the limit
        assert rates in lines
    assert [text.get_text() for text in threads.get_legend().get_texts()] == [
        "linear, from 1 thread", "upstream, one loop", "upstream, processes (the limit)", "tornado.stm, all rounds"
    ]  # fmt: skip


def test_where_there_is_one_number_of_threads_nothing_is_drawn_against_it():
    assert not workload_plot.figure_of([canned()]).axes[1].axison


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(143), WrongAnswer("canned answered wrongly")], ids=repr)
def test_what_was_measured_before_an_interruption_is_written(ends, upstream_only, monkeypatch, tmp_path, capsys):
    """Whole rounds of what was being loaded, and all of what had been; the command ends as it would have."""
    loads = []

    def attempt(workload, measured, servers, seconds):
        loads.append(workload.name)
        if len(loads) > 6:
            raise ends
        return SimpleNamespace(rate=1.0, waits=[0.5])

    monkeypatch.setattr(workload_load, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(workload_load, "LOG_SECONDS", 0)
    monkeypatch.setattr(workload_load, "all_ways", lambda threads: ([UPSTREAM, EXECUTOR], []))
    monkeypatch.setattr(workload_load, "start", lambda *arguments: ["a server"])
    monkeypatch.setattr(workload_load, "attempt", attempt)
    files = {option: str(tmp_path / ("figures." + option)) for option in ("json", "rst", "html", "plot")}
    command = ["all", "--only", "sums", "json", "--repeats", "2", *(word for option, file in files.items() for word in ("--" + option, file))]
    if isinstance(ends, SystemExit):
        with pytest.raises(SystemExit, match="143"):
            command_line(command)
    else:
        assert command_line(command) == (130 if isinstance(ends, KeyboardInterrupt) else 1)
    assert loads == ["sums"] * 4 + ["json"] * 3
    written = json.loads((tmp_path / "figures.json").read_text())
    assert [row["rates"] for row in written["sections"]["sums"]] == [[1.0, 1.0]] * 2
    assert [row["rates"] for row in written["sections"]["json"]] == [[1.0]] * 2
    assert written["notes"] == ["json: ended early, after 1 of 2 rounds"]
    assert all((tmp_path / ("figures." + option)).stat().st_size for option in files)


def test_what_is_interrupted_before_a_round_is_over_writes_nothing(upstream_only, monkeypatch, tmp_path):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(workload_load, "start", interrupted)
    assert command_line(["sums", "--json", str(tmp_path / "figures.json")]) == 130
    assert not (tmp_path / "figures.json").exists() or not (tmp_path / "figures.json").read_text()


def test_what_compiles_itself_is_warmed_up_for_longer(monkeypatch):
    loads = []

    def attempt(workload, measured, servers, seconds):
        loads.append((measured.way.name, seconds))
        return SimpleNamespace(rate=1.0, waits=[])

    monkeypatch.setattr(workload_load, "start", lambda *arguments: ["a server"])
    monkeypatch.setattr(workload_load, "attempt", attempt)
    pypy = Way("upstream, PyPy 3.9.16", "plain")
    measured(workloads.load("hello"), UPSTREAM, pypy)
    assert loads[:2] == [("upstream", 1), (pypy.name, workload_load.COMPILING)]


def test_a_server_of_a_workload_ends_on_sigterm():
    for name, kind in ("pi", "plain"), ("session", "loops"):
        with Server(name, [sys.executable, "-m", "stm_bench.workload_server", name, kind, "2"]) as server:
            assert server.stop() == {}


@pytest.mark.parametrize("name", ["sums", "all"])
def test_one_workload_is_a_command_and_all_are(name, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line([name, "--help"])
    assert ended.value.code == 0 and "--compare" in capsys.readouterr().out


def test_what_siege_asks_needs_it_and_nothing_else_does(upstream_only, monkeypatch):
    def no_siege():
        raise BenchmarkError("siege is not installed")

    monkeypatch.setattr(workload_load, "measure", lambda *_: canned())
    monkeypatch.setattr(workload_load.siege, "version", no_siege)
    parser = argparse.ArgumentParser()
    workload_load.add_arguments_of_all(parser)
    others = [name for name in workloads.MODULES if not workloads.load(name).needs_siege]
    assert {"astar", "session", "counter", "chat", "sums", "convoy"} < set(others) and "primes" not in others
    assert workload_load.benchmark(parser.parse_args(["--only", *others])) == 0
    with pytest.raises(BenchmarkError, match="siege is not installed"):
        workload_load.benchmark(parser.parse_args(["--only", "sums", "hello"]))


def test_that_an_earlier_run_lacks_a_workload_is_said(upstream_only, monkeypatch, tmp_path, capsys):
    earlier = tmp_path / "earlier.json"
    workload_load.engine_report.write([canned_section()], {}, str(earlier))
    monkeypatch.setattr(workload_load, "measure", lambda workload, *_: workload_load.Result(workload, canned().measured))
    parser = argparse.ArgumentParser()
    workload_load.add_arguments_of_all(parser)
    assert workload_load.benchmark(parser.parse_args(["--only", "primes", "sums", "--compare", str(earlier)])) == 0
    shown = capsys.readouterr().out
    assert "earlier.json has no figures of sums" in shown and "has no figures of primes" not in shown


def test_so_many_clients_as_are_asked_for(upstream_only, monkeypatch):
    """Eight keep no sixteen threads busy.  The workload itself is as before."""
    seen = []

    def measure(workload, ways, options, runs):
        seen.append(workload.clients)
        return workload_load.Result(workload, [workload_load.Measured(UPSTREAM, [1.0])])

    monkeypatch.setattr(workload_load, "measure", measure)
    parser = argparse.ArgumentParser()
    workload_load.add_arguments_of_all(parser)
    for arguments in (["--clients", "48"], []):
        assert parser.parse_args(["--only", "session", *arguments]).benchmark(parser.parse_args(["--only", "session", *arguments])) == 0
    assert seen == [48, 8]


def test_settings_of_a_workload_are_options_which_its_servers_get(upstream_only, monkeypatch):
    seen = []
    monkeypatch.setattr(workload_load, "measure", lambda workload, *others: seen.append(workload) or canned())
    parser = argparse.ArgumentParser()
    workload_load.add_arguments_of_one(parser, workloads.load("astar"))
    options = parser.parse_args(["--width", "9", "--writers", "0.5"])
    assert options.benchmark(options) == 0
    assert (seen[0].width, seen[0].height, seen[0].writers) == (9, 120, 0.5) and workloads.load("astar").width == 120
    command = [sys.executable, "-m", "stm_bench.workload_server", "astar", "plain", "1", "--settings", json.dumps(seen[0].changed)]
    with Server("mine", command) as server:
        assert server.ask("/path/8,0,8,0") == "[[8, 0]]" or server.ask("/path/8,0,8,0") == "null"
        assert server.answer("/path/9,0,9,0")[0] == 500
    title = workload_load.section(workload_load.Result(seen[0], canned().measured), {}, SimpleNamespace(repeats=1, time=1)).title
    assert "(width: 9, writers: 0.5, 8 clients, median of" in title
    with pytest.raises(SystemExit):
        parser.parse_args(["--writers", "2"])


def test_what_runs_by_itself_has_no_clients():
    convoy = workload_load.changed(workloads.load("convoy"), SimpleNamespace(clients=5, beside=0))
    assert (convoy.clients, convoy.beside) == (None, 0)
    table = workload_load.section(workload_load.Result(convoy, canned().measured), {}, SimpleNamespace(repeats=1, time=1))
    assert "(beside: 0, median of 1 x 1 s)" in table.title


def test_where_a_module_that_is_needed_is_missing_nothing_is_measured_in_its_place():
    hello = copy.copy(workloads.load("hello"))
    hello.needs = ("no_such_module",)
    assert {way.failure for way in measured(hello, UPSTREAM, OURS).measured} == {"not measured: needs no_such_module"}
    assert workload_load.why_not(hello, Way("upstream, PyPy 3.9", "plain", python="compiles by itself")) is None
