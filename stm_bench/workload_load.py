"""The workloads in all the ways to run them, beside each other: which is faster, on what, and when is it not?

All servers of a workload are up all the time and are loaded in turns, in many short rounds, so that what else the machine does
meets them all; a figure is the median of the ratios of the rounds.  Two processes of upstream's, or as many as there are threads, each
with its share of the clients, tell in the same rounds what so many cores can give here at this moment: that is the limit.
"""

import json
import os
import shlex
import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field

from stm_bench import engine_report, machine, siege, workload_page, workload_plot, workloads
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError
from stm_bench.machine import positive
from stm_bench.progress import Runs
from stm_bench.servers import Server, lacks
from stm_bench.ways import Way, all_ways
from tornado.stm import log as stm_log

SUMMARY = "All workloads, in all the ways to run them; or one, by its name."

LOG_SECONDS = 1  # of one more load, whose conflict log is looked at; 0: none
WARM_UP_SECONDS = 1  # 0: no warm-up
COMPILING = 10  # times as long, where code is compiled while it runs: PyPy's hello gets from 0.15 to 1.7 of upstream's in that time
TOLD = 0.02  # of the time: what takes less is no limit
BUSY = 0.75  # of the cores: what processes of their own get less than, says that the machine is busy
NOISE = 1.05  # times the limit: what is more than that is none of the way's own doing


@dataclass
class Measured:
    """A way, and what was found: the rate of each round, in the workload's unit; `failure`: what went wrong, or why it cannot be.

    `log`: what the conflict log of one more load tells, in a sentence.
    """

    way: Way
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds for each answer of all rounds, where the client measures them
    failure: str | None = None
    wrong: bool = False  # has something been answered wrongly?
    log: str = ""


@dataclass
class Result:
    """All that was found of a workload.  The first of `measured` is upstream; `limit`: processes, each with what is its own.

    `ended_by`: the exception that ended it before its time, if one has.
    """

    workload: object
    measured: list[Measured]
    limit: Measured | None = None
    ended_by: BaseException | None = None

    @property
    def loaded(self):
        """What has been loaded and has not failed."""
        return [each for each in (*self.measured, self.limit) if each is not None and each.failure is None]

    @property
    def rounds(self):
        """Those in which all of that was."""
        return min((len(each.rates) for each in self.loaded), default=0)

    def end_early(self, error):
        """Keeps whole rounds."""
        self.ended_by, rounds = error, self.rounds
        for each in self.loaded:
            del each.rates[rounds:]

    @property
    def limits(self):
        """What processes gained, in each round; nothing where there were none, or something failed."""
        if self.limit is None or self.limit.failure is not None:
            return []
        return [rate / upstream for rate, upstream in zip(self.limit.rates, self.measured[0].rates)]

    @property
    def is_wrong(self):
        """Has something failed, or been answered wrongly?"""
        return any(measured.wrong for measured in (*self.measured, self.limit) if measured is not None)

    def has_figures(self, measured):
        """Are there rates of it, and upstream's, of loads that have all been answered rightly?"""
        return all(each.rates and each.failure is None for each in (measured, self.measured[0]))

    def ratios(self, measured):
        """To upstream, of each round; without those that are `beyond` the limit, if there are others."""
        beyond = self.beyond(measured)
        rounds = [rate / upstream for rate, upstream in zip(measured.rates, self.measured[0].rates)]
        return [ratio for number, ratio in enumerate(rounds) if number not in beyond] or rounds

    @property
    def is_limited(self):
        """Can nothing be faster than processes of their own?  Pages that compute cannot; the order of callbacks may be worth more."""
        return bool(self.limits) and "processes" in self.workload.kinds

    def beyond(self, measured):
        """The rounds in which tornado.stm on several threads gave more than the limit."""
        limited = measured.way.is_ours and measured.way.count > 1 and self.is_limited
        rates = zip(measured.rates, self.limit.rates) if limited else ()
        return {number for number, (rate, limit) in enumerate(rates) if rate > limit * NOISE}


def add_arguments(parser):
    """Those of one workload, and of all."""
    parser.add_argument("--time", type=positive, default=1, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=15, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--threads", type=machine.thread_counts, metavar="N,N...", help="of tornado.stm (default: 1,2,4... up to the usable CPUs)")
    parser.add_argument("--clients", type=positive, metavar="N", help="that ask at the same time (default: the workload's own; for many cores, more)")
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--plot", "--png", type=machine.output_file, metavar="FILE.png", help="draw them into FILE.png")
    parser.add_argument("--html", type=machine.output_file, metavar="FILE.html", help="write tables and pictures to one page")
    parser.add_argument("--rst", type=machine.output_file, metavar="FILE", help="write all that is shown as a page of reStructuredText to FILE")
    parser.add_argument("--compare", metavar="FILE", help="beside the figures of an earlier run, which --json has written")
    parser.set_defaults(benchmark=benchmark, names=None)


def add_arguments_of_one(parser, workload):
    for name, (made_of, what) in workload.settings.items():
        parser.add_argument("--" + name, type=made_of, metavar="N", help="%s (default: %s)" % (what, getattr(workload, name)))
    add_arguments(parser)
    parser.set_defaults(names=[workload.name])


def add_arguments_of_all(parser):
    parser.add_argument("--only", nargs="+", choices=workloads.MODULES, metavar="NAME", help="of: " + ", ".join(workloads.MODULES))
    add_arguments(parser)


def benchmark(options):
    """Measures, shows and writes; returns the exit status, 1 where something failed or was answered wrongly.

    Raises what has ended it before its time, when it has written what was measured by then.
    """
    if options.plot or options.html:
        workload_plot.check()
    before = read_figures(options.compare) if options.compare else {}
    ways, notes = all_ways(options.threads or machine.default_threads(machine.usable_cpus()))
    chosen = [changed(workloads.load(name), options) for name in dict.fromkeys(options.names or options.only or workloads.MODULES)]
    sieging = {"siege": siege.version()} if any(workload.needs_siege for workload in chosen) else {}
    console = engine_report.console()
    results, sections, ended_by = [], [], None
    with Runs(options.repeats * sum(loads_in_a_round(workload, ways) for workload in chosen)) as runs:
        for workload in chosen:
            result = measure(workload, ways, options, runs)
            ended_by = result.ended_by
            if ended_by is None or result.rounds > 0:
                results.append(result)
                sections.append(section(result, before.get(workload.name, {}), options))
                engine_report.show(sections[-1], console)
            if ended_by is not None:
                break
    if not results:
        raise ended_by
    if len(results) > 1:
        sections.insert(0, overview(results))
        engine_report.show(sections[0], console)
    if options.compare:
        notes += ["%s has no figures of %s" % (options.compare, workload.name) for workload in chosen if workload.name not in before]
    for note in notes:
        console.print("note: " + note, style="dim", markup=False, soft_wrap=True)
    environment = {**machine.describe(), **sieging}
    console.print(engine_report.where(environment), style="dim", markup=False, soft_wrap=True)
    introduction = "Made by ``python -m stm_bench %s``; see :doc:`benchmarks` for what is compared." % shlex.join(sys.argv[1:])
    engine_report.write(sections, environment, options.json, options.rst, ("Workloads beside all the alternatives", introduction))
    with engine_report.writing():
        if options.plot:
            workload_plot.save(results, engine_report.where(environment), options.plot)
        if options.html:
            workload_page.save(results, sections, environment, notes, options.html)
    if ended_by is not None:
        raise ended_by
    return 1 if any(result.is_wrong for result in results) else 0


def changed(workload, options):
    """The workload as the command line wants it."""
    settings = {name: getattr(options, name, None) for name in workload.settings}
    if workload.clients:
        settings["clients"] = options.clients
    return workload.with_settings({name: value for name, value in settings.items() if value is not None})


def loads_in_a_round(workload, ways):
    """How many, that of the limit among them."""
    return sum(why_not(workload, way) is None or way.kind == "processes" for way in ways)


def why_not(workload, way):
    if way.kind == "processes" and workload.shared:
        return "not possible: requests share what changes"
    if way.kind not in workload.kinds:
        return "not possible"
    missing = [module for module in workload.needs if not way.compiles and lacks(way.python, module)]
    return "not measured: needs %s" % missing[0] if missing else None


# Measuring


def measure(workload, ways, options, runs):
    """Loads all that can be loaded, in turns; returns the Result, of whole rounds where it is ended before its time."""
    asked = [way for way in ways if way.kind != "pinned" or way.kind in workload.kinds]
    result = Result(workload, [Measured(way, failure=why_not(workload, way)) for way in asked])
    upstream = result.measured[0]
    if upstream.failure is not None:  # what all others are compared with
        for measured in result.measured:
            measured.failure = upstream.failure
        return result
    try:
        load_in_turns(workload, ways, options, runs, result)
    except (KeyboardInterrupt, SystemExit, BenchmarkError) as error:
        result.end_early(error)
    return result


def load_in_turns(workload, ways, options, runs, result):
    """Puts what it finds into the Result."""
    with ExitStack() as stack:
        arguments = ["--settings", json.dumps(workload.changed)]
        if workload.delayed:
            delay = stack.enter_context(Server("delay server", [sys.executable, "-m", "stm_bench.delay_server"]))
            arguments += ["--delayed-by", str(delay.port)]
        result.limit = next((each for each in result.measured if each.way.kind == "processes" and each.failure is None), None)
        many = max((way.count for way in ways if way.is_ours), default=1)
        if result.limit is None and many > 1:  # they cannot share what requests change: each has its own
            result.limit = Measured(Way("the limit", "processes", many))
        to_load = [measured for measured in result.measured if measured.failure is None]
        to_load += [result.limit] if result.limit and result.limit not in to_load else []
        loads = [(measured, start(stack, workload, measured, arguments)) for measured in to_load]
        for measured, servers in loads if WARM_UP_SECONDS else []:
            attempt(workload, measured, servers, WARM_UP_SECONDS * (COMPILING if measured.way.compiles else 1))
        for round_number in range(1, options.repeats + 1):
            for measured, servers in loads:
                runs.starting("%s: %s" % (workload.name, measured.way.name))
                found = attempt(workload, measured, servers, options.time)
                if found is not None:
                    measured.rates.append(found.rate)
                    measured.waits += found.waits
                runs.done("%s, round %d: %s: %s" % (
                    workload.name, round_number, measured.way.name, measured.failure or "%.1f %s" % (found.rate, workload.unit)
                ))  # fmt: skip
        for measured, servers in loads:
            if LOG_SECONDS and (measured.way.kind, measured.way.count) == ("stm", many) and measured.failure is None:
                load_with_log(workload, measured, *servers)


def load_with_log(workload, measured, server):
    """One more load, of which the conflict log tells something; the server is stopped after it."""
    try:
        file = server.begin_log()
        if attempt(workload, measured, [server], LOG_SECONDS) is not None:
            server.stop()
            measured.log = told_by(stm_log.analyse(file), measured.way.count)
    except (BenchmarkError, stm_log.LogError, OSError) as error:
        measured.failure, measured.wrong = "failed: %s" % error, True


def told_by(accounts, threads):
    """In a sentence: how much of the threads' time conflicts took, and what about; what ran alone."""
    real_time = max(1, accounts.real_time)
    whole = real_time * threads
    conflicts = accounts.ranking()
    lost, paused = (sum(getattr(conflict, what) for conflict in conflicts) / whole for what in ("lost", "paused"))
    parts = ["of the threads' time %s was rolled back and %s waited" % (per_cent(lost), per_cent(paused))]
    if lost + paused > TOLD and conflicts:
        worst = max(conflicts, key=lambda conflict: conflict.cost)
        about = stm_log.place_text(worst.wanted) or ("what may not be rolled back" if "INEVITABLE" in worst.kind else "an object")
        places = dict.fromkeys(map(place, (worst.caller_here or worst.here, worst.caller_there or worst.there)))
        where = " and ".join(filter(None, places)) or "no place"
        parts.append("%s of that for %s, at %s" % (per_cent(worst.cost / (lost + paused) / whole), about, where))
    alone = [(where, cost.lost) for (where, grade), cost in accounts.inevitable_ranking() if stm_log.place_text(grade) == "exclusive"]
    share = sum(taken for _, taken in alone) / real_time
    if share > TOLD:
        parts.append("transactions ran alone for %s of the time, most at %s" % (per_cent(share), place(alone[0][0]) or "no place"))
    return "; ".join(parts) + "."


def per_cent(share):
    return "%.0f %%" % (100 * share) if share >= 0.1 else "%.1f %%" % (100 * share)


def place(text):
    """The file and line of a place of the log, and the function; "" where it has none."""
    found = stm_log.PLACE.match(stm_log.place_text(text))
    if not found:
        return ""
    file, line, function = found.groups()
    return "%s:%s" % (os.path.basename(file), line) + (", %s" % function if function else "")


def start(stack, workload, measured, arguments):
    """Its servers; none where they do not come up."""
    way = measured.way
    processes = way.count if way.kind == "processes" else 1
    kind, count = ("plain", 1) if processes > 1 else (way.kind, way.count)
    command = [way.python, "-m", "stm_bench.workload_server", workload.name, kind, str(count), *arguments]
    try:
        return [stack.enter_context(Server(way.name, command)) for _ in range(processes)]
    except BenchmarkError as error:
        measured.failure, measured.wrong = "failed: %s" % error, True
        return []


def attempt(workload, measured, servers, seconds):
    """The Load; None where that has failed once."""
    if measured.failure is not None:
        return None
    try:
        with ExitStack() as stack:
            for server in servers:
                stack.enter_context(server.answering())
            return workload.load(servers, seconds)
    except BenchmarkError as error:
        measured.failure, measured.wrong = "failed: %s" % error, True
        return None


# Figures


def section(result, before, options):
    """The table of one workload, a row for each way."""
    workload = result.workload
    rows, notes = [], []
    for measured in result.measured:
        row = {"name": measured.way.name, "figure": None}
        if not result.has_figures(measured):
            why = measured.failure or "upstream failed"
            row["shown"] = engine_report.FAILED if measured.wrong else why.partition(":")[0]
            notes += ["%s: %s" % (row["name"], why)] if measured.wrong or ":" in why else []
        else:
            ratios = result.ratios(measured)
            row |= {"figure": statistics.median(ratios), "rates": measured.rates, "shown": "%.1f" % statistics.median(measured.rates)}
            if measured.log:
                row["log"] = measured.log
            if measured.waits:
                row |= {"p%d" % n: 1000 * engine_report.percentile(measured.waits, n) for n in (50, 99)}
            row["range"] = "%.2f-%.2f" % (min(ratios), max(ratios))
            beyond, of = len(result.beyond(measured)), len(measured.rates)
            if beyond:
                told = "of %d rounds are left out, which gave more than the limit" if beyond < of else "of %d rounds gave more than the limit"
                notes.append("%s: %d %s" % (row["name"], beyond, told % of))
            if workload.target and measured.way.kind == "stm" and measured.way.count == 2:
                row["target"] = Target(workload.target, at_least=True)
            if row["name"] in before:
                row["before"] = before[row["name"]]
        rows.append(row)
    if result.ended_by is not None:
        notes.append("ended early, after %d of %d rounds" % (result.rounds, options.repeats))
    caption = ["ratio: to upstream's rate in the same round, the median; range: the lowest and the highest."]
    if result.limits:
        limit, many = statistics.median(result.limits), result.limit.way.count
        told = "The limit: " * result.is_limited + "%d processes of upstream's, each with what is its own, gave %.2f of one at this moment."
        caption.append(told % (many, limit))
        cores = min(many, machine.usable_cpus(), workload.clients or many)
        if limit < BUSY * cores:
            notes.append("the machine is busy, or the clients need a core themselves: processes got %.2f of %d cores" % (limit, cores))
        rows[0]["limits"] = result.limits
    elif result.limit is not None and result.limit not in result.measured:
        notes.append("no limit is known: %s" % result.limit.failure)
    if workload.limits:
        caption.append("What limits it: " + workload.limits)
    caption += ["The conflict log of %s: %s" % (measured.way.name, measured.log) for measured in result.measured if measured.log]
    if workload.published:
        caption.append("Published: " + workload.published)
    columns = [Column("way", "name"), Column(workload.unit, "shown"), Column("ratio", "figure", "%.2f"), Column("range", "range")]
    if any("p50" in row for row in rows):
        columns += [Column("median", "p50", "%.1f ms"), Column("p99", "p99", "%.1f ms")]
        caption.append("median, p99: of the times until an answer, with that many clients who ask again at once.")
    if before:
        columns.append(Column("before", "before", "%.2f"))
    if any("target" in row for row in rows):
        columns.insert(3, Column("target", "target"))
    settings = ["%s: %s" % item for item in workload.changed.items() if item[0] != "clients"]
    settings += ["%d client%s" % (workload.clients, "s" * (workload.clients > 1))] if workload.clients else []
    settings += ["median of %d x %d s" % (options.repeats, options.time)]
    title = "%s: %s (%s)" % (workload.name, workload.summary, ", ".join(settings))
    return Section(workload.name, title, columns, rows, caption, notes)


def overview(results):
    """One table of all workloads: a row for each, a column for each way, in ratios to upstream."""
    ways = [measured.way for measured in max(results, key=lambda result: len(result.measured)).measured[1:]]
    rows = []
    for result in results:
        row = {"name": result.workload.name, "figure": None}
        for measured in result.measured:
            if result.has_figures(measured):
                ratio = statistics.median(result.ratios(measured))
                row[measured.way.name] = "%.2f" % ratio
                if result.workload.target and measured.way.kind == "stm" and measured.way.count == 2:
                    row |= {"figure": ratio, "target": Target(result.workload.target, at_least=True)}
            elif measured.wrong:
                row[measured.way.name] = engine_report.FAILED
        rows.append(row)
    columns = [Column("workload", "name"), *(Column(way.short, way.name) for way in ways), Column("target", "target")]
    caption = ["Ratios to upstream Tornado on the same interpreter; the target is for tornado.stm on 2 threads."]
    return Section("overview", "All workloads", columns, rows, caption)


def read_figures(name):
    """Of an earlier run: workload -> way -> ratio.  Raises BenchmarkError where the file is none of those."""
    try:
        with open(name) as file:
            sections = json.load(file)["sections"]
        return {section: {row["name"]: row["figure"] for row in rows if row.get("figure")} for section, rows in sections.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError("%s holds no figures of an earlier run: %s" % (name, error)) from None
