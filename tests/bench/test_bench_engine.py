"""The engine benchmark: its programs, its workloads, its tables and its errors.  No test looks at a time."""

import io
import json
import os
import subprocess
import sys
from collections import deque

import pytest

from interpreters import ROOT
from stm_bench import bank, calls, engine_workloads, programs
from stm_bench.engine_worker import PlainCalls, Worker
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.programs import astar, catalogue, deltablue, genexprs, nbody, nqueens, richards, router, template
from stm_bench.workers import WorkerProcess
from tornado.stm import core, transaction

rich_console = pytest.importorskip("rich.console")

from stm_bench import engine_report, engine_sections  # noqa: E402
from stm_bench.engine_report import Column, Section, Target  # noqa: E402

compiled_only = pytest.mark.skipif(not core.PARALLEL, reason="needs the compiled engine")


def run(*arguments, **options):
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, **options)


def one_line(text):
    """The only line of `text`."""
    (line,) = text.splitlines()
    return line


# The programs compute what they claim to


def test_richards_queues_and_holds_as_often_as_it_must():
    assert richards.simulate() == (richards.QUEUED, richards.HELD)


def test_deltablue_brings_values_through_a_chain():
    assert deltablue.chain(30) == sum(range(deltablue.VALUES))


def test_deltablue_projects_in_both_directions():
    others = range(1, 20)
    assert deltablue.projection(20) == (
        17 * 10 + 1000,
        (1050 - 1000) // 10,
        sum(number * 5 + 1000 for number in others),
        sum(number * 5 + 2000 for number in others),
    )


def test_deltablue_refuses_what_cannot_be_satisfied():
    planner, variable = deltablue.Planner(), deltablue.Variable("v")
    planner.add(deltablue.Stay(deltablue.Strength.REQUIRED, variable))
    with pytest.raises(ValueError, match="cannot be enforced"):
        planner.add(deltablue.Stay(deltablue.Strength.REQUIRED, variable))


def test_the_planets_have_the_known_energies_and_keep_their_momentum():
    bodies = nbody.solar_system()
    pairs = [(body, other) for i, body in enumerate(bodies) for other in bodies[i + 1 :]]
    assert nbody.energy(bodies, pairs) == pytest.approx(-0.169075164, abs=1e-9)
    nbody.advance(bodies, pairs, 1000)
    assert nbody.energy(bodies, pairs) == pytest.approx(-0.169087605, abs=1e-9)
    for axis in range(3):
        assert sum(velocity[axis] * mass for _, velocity, mass in bodies) == pytest.approx(0, abs=1e-12)


def test_eight_queens_have_92_placements_without_attacks():
    found = list(nqueens.placements(8))
    assert len(set(found)) == nqueens.SOLUTIONS
    for columns in found:
        assert len({column for column in columns}) == 8
        assert len({column + row for row, column in enumerate(columns)}) == 8
        assert len({column - row for row, column in enumerate(columns)}) == 8


def breadth_first(fields, start, goal):
    """The length of a shortest path in fields, or None."""
    lengths, todo = {start: 1}, deque([start])
    while todo:
        x, y = todo.popleft()
        for place in (x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1):
            inside = 0 <= place[1] < len(fields) and 0 <= place[0] < len(fields[0])
            if inside and fields[place[1]][place[0]] == astar.OPEN and place not in lengths:
                lengths[place] = lengths[x, y] + 1
                todo.append(place)
    return lengths.get(goal)


def test_astar_finds_shortest_paths():
    places = astar.open_places(astar.MAP)
    for start, goal in zip(places[::97], places[::-89]):
        path = astar.Search(astar.MAP, start, goal).path()
        assert (path and len(path)) == breadth_first(astar.MAP, start, goal)
        if path:
            assert (path[0], path[-1]) == (start, goal)
            assert all(abs(x - u) + abs(y - v) == 1 for (x, y), (u, v) in zip(path, path[1:]))


def test_the_router_finds_handlers_and_arguments():
    from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

    def find(uri, host="www.example.org"):
        start = RequestStartLine("GET", uri, "HTTP/1.1")
        request = HTTPServerRequest(start_line=start, headers=HTTPHeaders({"Host": host}))
        handler, arguments = router.ROUTES.find_handler(request)
        return handler.name, arguments

    assert find("/") == ("home", [])
    assert find("/api/v1/users/12/orders/34?page=2") == ("order", [b"12", b"34"])
    assert find("/api/nothing") == ("missing", [b"api/nothing"])
    assert find("/static/site.css", "static.example.org") == ("static", [b"site.css"])


def test_the_page_is_escaped_and_has_all_products():
    page = template.PAGE.generate(
        title="a & b", products=template.PRODUCTS, link=template.link, footer="<f>", note="<b>net</b>"
    ).decode()
    assert "<title>a &amp; b (25)</title>" in page
    assert "<h1>A &amp; B</h1>" in page
    assert page.count("<tr class=") == len(template.PRODUCTS)
    assert "<footer>&lt;f&gt;</footer>" in page
    assert "<b>net</b>" in page


def test_the_primes_are_those_of_the_sieve():
    sieve = bytearray(b"\1") * genexprs.LIMIT
    for number in range(2, genexprs.LIMIT):
        sieve[2 * number :: number] = bytes(len(range(2 * number, genexprs.LIMIT, number)))
    found = genexprs.primes(genexprs.LIMIT)
    assert found == [number for number in range(2, genexprs.LIMIT) if sieve[number]]
    assert len(found) == genexprs.PRIMES


def test_the_cheapest_products_are_in_stock():
    offers = catalogue.cheapest(catalogue.PRODUCTS, 3)
    for department, offer in offers.items():
        prices = sorted(
            product.price for product in catalogue.PRODUCTS
            if product.department == department and product.stock and product.price > 200
        )
        assert [price for _, price in offer] == prices[:3]
    assert len(offers) == 17


# The programs compute the same in transactions


@compiled_only
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_program_computes_the_same_in_a_transaction_that_is_aborted_again_and_again(name):
    worker, asked = Worker(threads=2), {"name": name, "size": 1, "runs": 1}
    plain = worker.measure("program", how="plain", **asked)
    aborts = 0
    core.inject_aborts(0.002, 7)
    try:
        for _ in range(50):  # the first runs may be exclusive, and a program may have few places to be aborted at
            found = worker.measure("program", how="transaction", **asked)
            assert found["result"] == plain["result"]
            aborts += found["aborts"]
            if aborts >= 3:
                break
    finally:
        core.inject_aborts(0, 0)
    assert aborts >= 3


@compiled_only
@pytest.mark.parametrize("name", engine_workloads.WORKLOADS)
def test_a_workload_does_the_same_in_transactions_on_two_threads(name):
    calls = PlainCalls(threads=1)
    expected = engine_workloads.WORKLOADS[name](calls, 60)
    calls.run()
    transaction.set_threads(2)
    try:
        found = engine_workloads.WORKLOADS[name](transaction, 60)
        transaction.run()
    finally:
        transaction.set_threads(None)
    assert found() == expected()


def test_no_money_is_lost():
    transfers = bank.make_transfers(300)
    assert bank.with_transactions(transaction, transfers)[0] == bank.MONEY
    assert bank.with_lock(2, transfers)[0] == bank.MONEY


def test_no_money_is_lost_by_atomix():
    pytest.importorskip("atomix_stm")
    assert bank.with_atomix(2, bank.make_transfers(50))[0] == bank.MONEY


def test_what_a_thread_of_the_bank_raises_comes_out():
    with pytest.raises(IndexError):
        bank.with_lock(2, [(0, bank.ACCOUNTS, 1)])


# Workers


def test_a_worker_reports_what_it_found_and_survives_a_failure():
    with WorkerProcess("mine") as worker:
        with pytest.raises(BenchmarkError, match="^mine: program failed: ModuleNotFoundError: .*nonsense"):
            worker.measure("program", name="nonsense", how="plain", size=1, runs=1)
        found = worker.measure("program", name="nqueens", how="plain", size=1, runs=2)
        assert found["result"] == 2 * nqueens.run(1)
        assert (found["commits"], found["exclusives"], found["reasons"]) == (0, 0, {})
    assert worker.process.returncode is not None


def test_a_worker_that_dies_is_one_line():
    with WorkerProcess("mine", threads="none") as worker:
        with pytest.raises(BenchmarkError, match="^mine ended with status 2: .*invalid int value: 'none'$"):
            worker.measure("program", name="nqueens", how="plain", size=1, runs=1)


def test_a_worker_on_the_serial_engine_has_no_other():
    with WorkerProcess("serial", threads=2, serial=True) as worker:
        found = worker.measure("workload", name="counter", count=5, plain=False)
        assert (found["result"], found["commits"], found["aborts"]) == (5, 5, 0)


def test_sides_that_disagree_are_a_wrong_answer():
    engine_sections.check_results({"plain": [{"result": 3}, {"result": 3}], "ours": [{"result": 3}]})
    with pytest.raises(WrongAnswer, match="plain.*3.*ours.*4"):
        engine_sections.check_results({"plain": [{"result": 3}], "ours": [{"result": 3}, {"result": 4}]})


# Figures


def taken(*seconds, **more):
    return [{"seconds": each, "exclusives": 0, "commits": 1, "reasons": {}, **more} for each in seconds]


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    found = engine_sections.compared(taken(1.0, 2.0, 4.0), taken(2.0, 2.0, 2.0))
    assert found == {"figure": 1.0, "range": "0.50-2.00"}


def test_rounds_alternate_and_warm_up_ends_with_the_first_abortable_run():
    called = []

    def side(name):
        def measure():
            called.append(name)
            exclusives = int(name == "a" and called.count("a") < 3)
            return {"seconds": 1.0, "exclusives": exclusives}

        return measure

    effort = engine_sections.Effort(repeats=3, quick=True, length=1, threads=[])
    found = engine_sections.interleaved(effort, {"a": side("a"), "b": side("b")}, warm=["a", "b"])
    assert called == ["a", "a", "a", "b"] + ["a", "b"] + ["b", "a"] + ["a", "b"]
    assert [len(each) for each in found.values()] == [3, 3]


def test_exclusive_transactions_are_noted_with_their_reasons():
    found = {"fine": taken(1.0), "bad": taken(1.0, 1.0, exclusives=2, commits=5, reasons={"because": 2})}
    assert engine_sections.warn_of_exclusives(found) == ["bad: 4 of 10 transactions ran exclusively: because"]


def test_two_threads_are_always_compared_with_one():
    assert engine_sections.Effort(repeats=1, quick=False, length=1, threads=[4]).threads == [1, 2, 4]


def canned():
    columns = [Column("what", "what"), Column("ratio", "figure", "%.2f"), Column("target", "target")]
    rows = [
        {"what": "slow", "figure": 2.5, "target": Target(1.8)},
        {"what": "fast", "figure": 2.0, "target": Target(1.85, at_least=True)},
        {"what": "whatever", "figure": 12.0, "target": None},
    ]
    return Section("canned", "A title", columns, rows, ["a caption"], ["a note"])


def test_a_missed_target_stands_out():
    assert list(engine_report.table(canned()).columns[1].cells) == ["[bold red]2.50[/]", "2.00", "12.00"]


def test_a_section_is_printed_with_title_caption_and_notes():
    console = rich_console.Console(file=io.StringIO(), width=60)
    engine_report.show(canned(), console)
    lines = [line.strip() for line in console.file.getvalue().splitlines() if line.strip()]
    assert lines[0] == "A title"
    assert lines[2:4] == ["\N{BOX DRAWINGS LIGHT HORIZONTAL}" * len(lines[2]), "slow       2.50  \N{LESS-THAN OR EQUAL TO} 1.80"]
    assert lines[-2:] == ["a caption", "note: a note"]


@pytest.mark.parametrize("width, parts", [(100, ["what ratio target"]), (24, ["what ratio", "what target"]), (5, ["what ratio", "what target"])])
def test_a_table_that_is_wider_than_the_terminal_is_told_in_parts(width, parts):
    assert [" ".join(column.heading for column in part) for part in engine_report.fitting(canned(), width)] == parts
    console = rich_console.Console(file=io.StringIO(), width=width)
    engine_report.show(canned(), console)
    assert width < 20 or "\N{HORIZONTAL ELLIPSIS}" not in console.file.getvalue()


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed():
    assert [engine_report.percentile([3, 1, 2, 4], n) for n in (0, 25, 26, 50, 75, 99, 100)] == [1, 1, 2, 2, 3, 4, 4]


ENVIRONMENT = {"python": "3.14.7 free-threading build", "cpus": 2, "processor": "X", "date": "2026-01-02T03:04:05"}


def test_restructured_text_has_aligned_columns():
    assert engine_report.rst([canned()], ENVIRONMENT).splitlines() == [
        "CPython 3.14.7t, 2 CPUs, X, 2026-01-02.",
        "",
        "A title:",
        "",
        "========  =====  ======",
        "what      ratio  target",
        "========  =====  ======",
        "slow       2.50  \N{LESS-THAN OR EQUAL TO} 1.80",
        "fast       2.00  \N{GREATER-THAN OR EQUAL TO} 1.85",
        "whatever  12.00",
        "========  =====  ======",
        "",
        "a caption",
        "",
        "a note",
        "",
    ][:-1]
    page = engine_report.rst([canned()], ENVIRONMENT, ("Title", "It was so.")).splitlines()
    assert page[:7] == ["=====", "Title", "=====", "", "It was so.", "", "CPython 3.14.7t, 2 CPUs, X, 2026-01-02."]


def test_it_tells_whether_the_interpreter_is_profile_guided():
    assert engine_report.where(ENVIRONMENT | {"profile-guided": False}) == engine_report.where(ENVIRONMENT)
    assert engine_report.where(ENVIRONMENT | {"profile-guided": True}).startswith("CPython 3.14.7t (profile-guided), 2 CPUs")


def test_json_tells_which_targets_are_met():
    data = json.loads(engine_report.to_json([canned()], ENVIRONMENT))
    rows = data["sections"]["canned"]
    assert [row.get("met") for row in rows] == [False, True, None]
    assert rows[0]["target"] == "\N{LESS-THAN OR EQUAL TO} 1.80"
    assert data["notes"] == ["canned: a note"]


# The command line


@compiled_only
def test_a_quick_run_measures_every_section(tmp_path):
    done = run(
        "stm_bench", "engine", "--quick", "--rst", str(tmp_path / "t.rst"), "--json", str(tmp_path / "t.json")
    )
    assert done.returncode == 0, done.stderr
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
    data = json.loads((tmp_path / "t.json").read_text())
    sections = data["sections"]
    assert list(sections) == list(engine_sections.SECTIONS)
    assert [row["what"] for row in sections["programs"]] == [*programs.PROGRAMS, "geometric mean"]
    targets = {name: [row["target"] for row in rows if row.get("target")] for name, rows in sections.items()}
    assert targets == {
        "empty": ["\N{LESS-THAN OR EQUAL TO} 2.00"],
        "programs": ["\N{LESS-THAN OR EQUAL TO} 1.40"] * 10 + ["\N{LESS-THAN OR EQUAL TO} 1.25"],
        "calls": ["\N{LESS-THAN OR EQUAL TO} 1.40"] * len(calls.CALLS),
        "independent": ["\N{GREATER-THAN OR EQUAL TO} 1.85"],
        "counter": ["\N{GREATER-THAN OR EQUAL TO} 0.70"],
        "read-mostly": ["\N{GREATER-THAN OR EQUAL TO} 1.60"],
        "transfer": ["\N{GREATER-THAN OR EQUAL TO} 1.00"] if atomix_is_there(data["notes"]) else [],
        "log": ["\N{LESS-THAN OR EQUAL TO} 5 %"] * 3,
        "memory": ["\N{LESS-THAN OR EQUAL TO} 16", "\N{LESS-THAN OR EQUAL TO} 2"],
    }
    text = (tmp_path / "t.rst").read_text()
    assert text.count("\n===") == 3 * len(sections)


def atomix_is_there(notes):
    return not any("no row for atomix-stm" in note for note in notes)


@compiled_only
def test_without_atomix_there_is_a_line_and_no_row(tmp_path):
    (tmp_path / "atomix_stm.py").write_text("raise ImportError('broken here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run("stm_bench", "engine", "--quick", "--only", "transfer", env=environment)
    assert done.returncode == 0, done.stderr
    assert "note: no row for atomix-stm: atomix: transfers failed: ImportError: broken here\n" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if "threading.Lock" in line or "tornado-stm" in line]


@compiled_only
@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--only", "nonsense"], "nonsense"),
        (["--only"], "--only"),
        (["--repeats", "0"], "not a positive integer: '0'"),
        (["--threads", "1,x"], "not a positive integer: 'x'"),
        (["--length", "-1"], "--length"),
        (["--json", "/no/such/folder/figures.json"], "cannot write"),
        (["--rst", "/"], "cannot write"),
        (["programs"], "programs"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(arguments, said, refused):
    assert said in refused("engine", *arguments)


@pytest.mark.skipif(core.PARALLEL, reason="there is a compiled engine")
def test_without_the_compiled_engine_there_is_one_line_and_status_2():
    done = run("stm_bench", "engine", "--quick")
    assert done.returncode == 2
    assert "has no compiled engine, or a GIL" in one_line(done.stderr)


@pytest.mark.parametrize("how", ["--plain", pytest.param("--transaction", marks=compiled_only)])
def test_one_program_runs_in_one_process(how):
    done = run("stm_bench.programs", "nqueens", how, "--rounds", "2", "--size", "1")
    assert done.returncode == 0, done.stderr
    assert ["checksum %d" % nqueens.run(1) in line for line in done.stdout.splitlines() if "round" in line] == [True] * 2


@pytest.mark.parametrize("arguments", [["nonsense", "--plain"], ["nqueens"], ["nqueens", "--plain", "--size", "0"]])
def test_bad_arguments_of_one_program_are_one_line_and_status_2(arguments):
    done = run("stm_bench.programs", *arguments)
    assert done.returncode == 2
    assert one_line(done.stderr).startswith("stm_bench.programs: ")
