"""What the engine benchmark measures: a function for each section, which returns its table.

Everything is a ratio of two things measured in turns in one run, so that a machine that grows slower or faster does so
for both; a figure is the median over the rounds.  Each side is a process of its own (workers.py): once
transactions have run, all code of a process is on the engine's evaluation loop.
"""

import functools
import importlib.metadata
import statistics
from contextlib import ExitStack

from stm_bench import bank, calls, programs
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.progress import Runs
from stm_bench.workers import WorkerProcess

QUIET = 0.9  # the share of a CPU that one thread gets where nothing else runs
WARM_UPS = 3  # unmeasured runs at most: the first ones may run alone
QUICK = 50  # how many times less work a quick run does

# How much one run of a round does: tenths of a second each.
PROGRAM_RUNS = 10
CALL_RUNS = 20
EMPTY, EMPTY_AT_ONCE = 100_000, 1000
TRANSACTIONS = {"independent": 3000, "counter": 100_000, "read-mostly": 30_000, "read-mostly, bare": 100_000}
LOGGED, EVENTS = ("independent", "counter", "read-mostly"), 50_000
TRANSFERS = {"transactions": 50_000, "atomix": 5000, "lock": 500_000}
MEMORY_THREADS = 9  # the first one's memory is counted as shared, but for what each of the others takes


class Effort:
    """How much is measured: so many rounds, of full size or of hardly any work; on 1 and 2 threads, and more."""

    def __init__(self, repeats, quick, length, threads):
        self.repeats = repeats
        self.quick = quick
        self.length = length  # of programs, in what is usual
        self.threads = sorted({1, 2, *threads})

    def size(self, full):
        return max(1, full // QUICK) if self.quick else full


# Rounds


def interleaved(effort, sides, warm):
    """Measures each of `sides`, a dict of functions, once a round; returns a dict of the lists of what they found.

    The order is reversed every second round, so that no side always comes after the same other.  Before the first round
    each side in `warm` runs until it stays abortable: the first calls of functions do not.
    """
    found = {name: [] for name in sides}
    for name in warm:
        for _ in range(WARM_UPS):
            if not sides[name]()["exclusives"]:
                break
    with Runs(effort.repeats * len(sides)) as runs:
        for number in range(effort.repeats):
            for name in list(sides)[:: -1 if number % 2 else 1]:
                runs.starting(name)
                found[name].append(sides[name]())
                runs.done("round %d: %s: %.3g ms" % (number + 1, name, found[name][-1]["seconds"] * 1e3))
    return found


def warn_of_exclusives(found):
    """A line for each side some of whose measured transactions did not stay abortable, with the reasons."""
    notes = []
    for name, taken in found.items():
        exclusives, commits = total(taken, "exclusives"), total(taken, "commits")
        reasons = sorted({reason for each in taken for reason in each["reasons"]})
        if exclusives:
            said = "; ".join(reasons) or "no reason recorded"
            notes.append("%s: %d of %d transactions ran exclusively: %s" % (name, exclusives, commits, said))
    return notes


def check_results(found):
    """Raises WrongAnswer where the sides, which did the same, do not agree."""
    results = {name: sorted({each["result"] for each in taken}) for name, taken in found.items()}
    if len(set(map(str, results.values()))) > 1:
        raise WrongAnswer("the results differ: %s" % results)


def total(taken, key):
    return sum(each[key] for each in taken)


def median(taken, scale=1.0, key="seconds"):
    return statistics.median(each[key] for each in taken) * scale


def compared(taken, base):
    """How much faster than `base` these rounds are: the median as "figure", and their range."""
    ratios = [theirs["seconds"] / ours["seconds"] for ours, theirs in zip(taken, base)]
    return {"figure": statistics.median(ratios), "range": "%.2f-%.2f" % (min(ratios), max(ratios))}


def in_threads(count):
    return "%d thread%s" % (count, "" if count == 1 else "s")


RATIO = [Column("ratio", "figure", "%.2f"), Column("range", "range"), Column("target", "target")]
EXCLUSIVE = Column("exclusive", "exclusives")
EXCLUSIVE_CAPTION = "exclusive: not abortable."


# The sections


def measure_empty(effort):
    """What a transaction costs that does nothing."""
    count = effort.size(EMPTY)
    at_once = min(count, EMPTY_AT_ONCE)
    with WorkerProcess("transactions") as ours, WorkerProcess("the serial engine", serial=True) as serial:
        sides = {
            "%d added, then run" % at_once: lambda: ours.measure("empty", count=count, at_once=at_once),
            "each added and run": lambda: ours.measure("empty", count=count, at_once=1),
            "the first on the serial engine": lambda: serial.measure("empty", count=count, at_once=at_once),
        }
        found = interleaved(effort, sides, warm=sides)
    targets = [Target(2.0), None, None]
    rows = []
    for (name, taken), target in zip(found.items(), targets):
        each = [1e6 * one["seconds"] / count for one in taken]
        rows.append(
            {
                "what": name,
                "figure": statistics.median(each),
                "range": "%.2f-%.2f" % (min(each), max(each)),
                "target": target,
                "exclusives": total(taken, "exclusives"),
            }
        )
    return Section(
        "empty",
        "An empty transaction through add and run, 1 thread",
        [Column("transactions", "what"), Column("\N{MICRO SIGN}s each", "figure", "%.2f"), *RATIO[1:], EXCLUSIVE],
        rows,
        ["median of %d rounds of %d, CPU time" % (effort.repeats, count)],
        warn_of_exclusives(found),
    )


def measure_programs(effort):
    """What barriers cost: programs plain and in a transaction."""
    runs = effort.size(max(1, PROGRAM_RUNS // effort.length))

    def task(name):
        return "program", {"size": effort.size(programs.load(name).ROUNDS * effort.length)}

    section = against_plain(
        effort, "programs", "Programs in one transaction, to the same program plain, 1 thread", "program", programs.PROGRAMS, task, runs
    )
    mean = statistics.geometric_mean(row["figure"] for row in section.rows)
    section.rows.append({"what": "geometric mean", "figure": mean, "target": Target(1.25)})
    return section


def measure_calls(effort):
    """What barriers cost in front of C code, the dearest first."""
    title = "Calls of builtins and the standard library over shared objects, in a transaction, to the same plain, 1 thread"
    section = against_plain(effort, "calls", title, "call", calls.CALLS, lambda name: ("call", {}), effort.size(CALL_RUNS))
    section.rows.sort(key=lambda row: -row["figure"])
    return section


def against_plain(effort, name, title, what, names, task, runs):
    """The Section of that name: a row for each of the names, in so many transactions, to the same plain.

    what: one of them is called that; task(name) returns what a worker is asked to do, and with which arguments.
    """
    with WorkerProcess("plain Python") as plain, WorkerProcess("transactions", threads=2) as transactional:
        workers = {"plain": plain, "transaction": transactional}

        def side(each, how):
            asked, arguments = task(each)
            return lambda: workers[how].measure(asked, name=each, how=how, runs=runs, **arguments)

        sides = {"%s, %s" % (each, how): side(each, how) for each in names for how in workers}
        found = interleaved(effort, sides, warm=sides)
    rows = []
    for each in names:
        ours = {how: found["%s, %s" % (each, how)] for how in workers}
        check_results({"%s, %s" % (each, how): taken for how, taken in ours.items()})
        rows.append(
            {
                "what": each,
                "plain": median(ours["plain"], 1e3 / runs),
                "transaction": median(ours["transaction"], 1e3 / runs),
                **compared(ours["plain"], ours["transaction"]),
                "target": Target(1.4),
                "exclusives": total(ours["transaction"], "exclusives"),
            }
        )
    return Section(
        name,
        title,
        [
            Column(what, "what"),
            Column("plain ms", "plain", "%.2f"),
            Column("transaction ms", "transaction", "%.2f"),
            *RATIO,
            EXCLUSIVE,
        ],
        rows,
        ["median of %d rounds of %d transactions, CPU time.  %s" % (effort.repeats, runs, EXCLUSIVE_CAPTION)],
        warn_of_exclusives(found),
    )


def measure_independent(effort):
    """Whether what touches nothing in common scales."""
    rows, notes = scaling(effort, "independent", Target(1.85, at_least=True))
    return scaling_section(effort, "independent", "Transactions of about 100 µs on objects of their own", rows, notes)


def measure_counter(effort):
    """What the worst conflict costs, to an engine that knows none."""
    rows, notes = scaling(effort, "counter", Target(0.7, at_least=True), to_serial=True)
    title = "All transactions increment one counter, to the serial engine"
    return scaling_section(effort, "counter", title, rows, notes)


def measure_read_mostly(effort):
    """Whether reading one dict scales while it is written."""
    target = Target(1.6, at_least=True)
    rows, notes = scaling(effort, "read-mostly", target, label="request, ")
    bare, more_notes = scaling(effort, "read-mostly, bare", None, label="key, ")
    title = "Read-mostly: 95 % look up, 5 % write, 1,000 keys in one dict"
    caption = "request: three look-ups and the text of an answer, or a write.  key: one look-up or write, nothing else."
    return scaling_section(effort, "read-mostly", title, rows + bare, notes + more_notes, caption)


def scaling(effort, workload, target, label="", to_serial=False):
    """Rows and notes: a workload on each number of threads, to one thread or else to the serial engine.

    Beside it the same calls without transactions, in plain threads: what the interpreter by itself scales to.  Not where
    the comparison is to the serial engine, because there the threads would destroy each other's work.
    """
    count = effort.size(TRANSACTIONS[workload])
    processes = {}
    for threads in effort.threads:
        if threads == 1 or not to_serial:
            processes["plain, " + in_threads(threads)] = WorkerProcess("plain threads", threads)
    if to_serial:
        processes["serial engine"] = WorkerProcess("the serial engine", serial=True)
    for threads in effort.threads:
        processes[in_threads(threads)] = WorkerProcess("transactions", threads)
    base = "serial engine" if to_serial else "1 thread"
    with ExitStack() as stack:

        def side(name):
            worker = stack.enter_context(processes[name])
            plain = name.startswith("plain")
            return lambda: worker.measure("workload", name=workload, count=count, plain=plain)

        found = interleaved(effort, {name: side(name) for name in processes}, warm=processes)
    check_results(found)
    rows = []
    for name, taken in found.items():
        attempts = total(taken, "commits") + total(taken, "aborts")
        rows.append(
            {
                "what": label + name,
                "rate": count / median(taken),
                "cpu": median(taken, 1e6 / count, "cpu"),
                **compared(taken, found[base]),
                "target": target if name == in_threads(2) else None,
                "aborted": 100 * total(taken, "aborts") / attempts if attempts else None,
                "exclusives": total(taken, "exclusives") if attempts else None,
            }
        )
    notes = warn_of_exclusives({label + name: taken for name, taken in found.items()})
    share = total(found["1 thread"], "cpu") / total(found["1 thread"], "seconds")
    if share < QUIET:
        notes.append("the machine is busy: one thread got %.0f %% of a CPU, so the ratios mean little" % (100 * share))
    return rows, notes


def scaling_section(effort, name, title, rows, notes, *caption):
    return Section(
        name,
        title,
        [
            Column("transactions", "what"),
            Column("per second", "rate", "%.0f"),
            Column("CPU \N{MICRO SIGN}s", "cpu", "%.1f"),
            *RATIO,
            Column("aborted", "aborted", "%.1f %%"),
            EXCLUSIVE,
        ],
        rows,
        [
            "median of %d rounds, from when all are added" % effort.repeats,
            "CPU: per transaction, of all threads.  aborted: share of the attempts.  " + EXCLUSIVE_CAPTION,
            *caption,
        ],
        notes,
    )


def measure_transfer(effort):
    """Bank transfers, to what else keeps them in one piece."""
    threads = 2
    names = {"transactions": "tornado-stm", "lock": "threading.Lock"}
    notes = []
    with ExitStack() as stack:
        workers = {how: stack.enter_context(WorkerProcess(how, threads)) for how in TRANSFERS}

        def side(how):
            count = effort.size(TRANSFERS[how])

            def measure():
                found = workers[how].measure("transfers", how=how, count=count)
                return {**found, "seconds": found["seconds"] / count}  # the sides do not do the same number

            return measure

        sides = {how: side(how) for how in TRANSFERS}
        try:
            sides["atomix"]()
            names["atomix"] = "atomix-stm %s" % importlib.metadata.version("atomix-stm")
        except BenchmarkError as error:
            del sides["atomix"]
            notes.append("no row for atomix-stm: %s" % error)
        found = interleaved(effort, sides, warm=["transactions", "lock"])
    for how, taken in found.items():
        if any(each["result"] != bank.MONEY for each in taken):
            raise WrongAnswer("%s: the money of the bank has changed" % names[how])
    rows = []
    for how, taken in found.items():
        ratio = compared(taken, found["atomix"]) if "atomix" in found else {}
        rows.append(
            {
                "what": names[how],
                "rate": 1 / median(taken),
                "each": median(taken, 1e6),
                **ratio,
                "target": Target(1.0, at_least=True) if how == "transactions" and ratio else None,
            }
        )
    return Section(
        "transfer",
        "Bank transfers between %d accounts, %d threads, to atomix-stm" % (bank.ACCOUNTS, threads),
        [
            Column("transfers", "what"),
            Column("per second", "rate", "%.0f"),
            Column("\N{MICRO SIGN}s each", "each", "%.2f"),
            *RATIO,
        ],
        rows,
        ["median of %d rounds; adding to the queue and starting threads included" % effort.repeats],
        notes + warn_of_exclusives({names[how]: taken for how, taken in found.items()}),
    )


def measure_log(effort):
    """What the conflict log costs."""
    rows = []
    with WorkerProcess("transactions", 2) as worker:
        for name in LOGGED:
            count = effort.size(TRANSACTIONS[name])
            sides = {how: functools.partial(worker.measure, "logged", name=name, count=count, log=how == "log") for how in ("no log", "log")}
            found = interleaved(effort, sides, warm=sides)
            rates = [one["events"] / one["seconds"] for one in found["log"]]
            shares = [
                100 * (log["seconds"] / without["seconds"] - 1) * min(1, EVENTS / max(1, rate))
                for without, log, rate in zip(found["no log"], found["log"], rates)
            ]
            rows.append({
                "what": name, "rate": statistics.median(rates), "figure": statistics.median(shares),
                "range": "%.1f-%.1f" % (min(shares), max(shares)), "target": Target(5.0, form="%.0f %%"),
            })  # fmt: skip
    return Section(
        "log",
        "What the conflict log adds to CPU time, 2 threads",
        [Column("workload", "what"), Column("events/s", "rate", "%.0f"), Column("more", "figure", "%.1f %%"), *RATIO[1:]],
        rows,
        [
            "events/s: a second of CPU.  more: of CPU time, the writer's included; of a workload with more than %d events/s, what so many"
            " of them would add." % EVENTS,
            "median of %d rounds" % effort.repeats,
        ],
    )  # fmt: skip


def measure_memory(effort):
    """What the engine's tables and logs take, once all of their pages have been used."""

    def side(how, threads):
        def measure():
            with WorkerProcess("memory", threads) as worker:
                return worker.measure("resident", how=how)

        return measure

    sides = {
        "%s, %s" % (how, in_threads(threads)): side(how, threads)
        for threads in (1, MEMORY_THREADS)
        for how in ("plain", "transactions")
    }
    found = interleaved(effort, sides, warm=[])
    shared, each = [], []
    for plain, ours, plain_more, ours_more in zip(*found.values()):
        one = ours["result"] - plain["result"]
        many = ours_more["result"] - plain_more["result"]
        each.append((many - one) / (MEMORY_THREADS - 1) / 1e6)
        shared.append(one / 1e6 - each[-1])
    rows = [
        {
            "what": what,
            "figure": statistics.median(sizes),
            "range": "%.1f-%.1f" % (min(sizes), max(sizes)),
            "target": Target(bound, form="%.0f"),
        }
        for what, sizes, bound in (("shared", shared, 16), ("each thread", each, 2))
    ]
    return Section(
        "memory",
        "Resident memory that transactions take beside the same work without them",
        [Column("memory", "what"), Column("MB", "figure", "%.1f"), *RATIO[1:]],
        rows,
        ["median of %d rounds of fresh processes, to the same work in plain threads" % effort.repeats],
    )


SECTIONS = {
    "empty": measure_empty,
    "programs": measure_programs,
    "calls": measure_calls,
    "independent": measure_independent,
    "counter": measure_counter,
    "read-mostly": measure_read_mostly,
    "transfer": measure_transfer,
    "log": measure_log,
    "memory": measure_memory,
}
