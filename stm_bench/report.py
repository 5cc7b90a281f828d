"""From runs to figures, and figures as a table or as JSON."""

import dataclasses
import json
import statistics
from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from stm_bench.servers import Interpreter
from stm_bench.siege import Report


@dataclass(frozen=True)
class Run:
    """One load of one server; commits and aborts are None for a server without transactions.

    They count the whole life of the server process, the warm-up included.
    """

    load: Report
    commits: int | None = None
    aborts: int | None = None


@dataclass
class Measured:
    """A server and its runs.  `threads` is None for an upstream Tornado, else the threads that tornado.stm runs on."""

    name: str
    interpreter: Interpreter
    threads: int | None
    runs: list[Run] = field(default_factory=list)

    @property
    def rate(self):
        """Requests per second: the median of the runs."""
        return statistics.median(run.load.rate for run in self.runs)

    @property
    def availability(self):
        """Per cent of requests that got an answer, as siege counts it: the lowest of the runs."""
        return min(run.load.availability for run in self.runs)

    @property
    def failed(self):
        """Requests without a good answer in all runs together."""
        return sum(run.load.failed for run in self.runs)

    @property
    def aborted(self):
        """The share of attempted transactions that were aborted, 0 to 1; None where there were none."""
        attempts = [run.commits + run.aborts for run in self.runs if run.commits is not None]
        if not sum(attempts):
            return None
        return sum(run.aborts for run in self.runs) / sum(attempts)


@dataclass(frozen=True)
class Figures:
    """All that a benchmark found.  The first of `servers` is upstream Tornado on the interpreter of tornado.stm."""

    settings: dict
    environment: dict
    servers: list[Measured]
    notes: list[str]

    def ratio(self, server):
        """The rate of `server` over that of upstream Tornado on the interpreter of tornado.stm, or None."""
        upstream = self.servers[0].rate
        return server.rate / upstream if upstream else None

    def efficiency(self, server):
        """The rate of each thread over that of tornado.stm on one thread; 1 is perfect scaling.

        None for upstream, and where one thread was not measured.
        """
        single = next((other.rate for other in self.servers if other.threads == 1), 0)
        if server.threads is None or not single:
            return None
        return server.rate / server.threads / single

    @property
    def failed(self):
        return sum(server.failed for server in self.servers)


def table(figures):
    """The figures as a rich table, a row for each server."""
    settings = figures.settings
    result = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title="GET /%(size)d from %(clients)d clients, median of %(repeats)d x %(seconds)d s" % settings,
        title_justify="left",
        caption="upstream: Tornado %s.  range: lowest and highest repeat.\n"
        "ratio: to %s.  per core: requests/s per thread, to tornado-stm on one.\n"
        "aborted: share of the attempted transactions.  answered, failed: as siege counts them."
        % (", ".join(sorted({server.interpreter.tornado for server in figures.servers})), figures.servers[0].name),
        caption_justify="left",
        title_style="bold",
        caption_style="dim",
    )
    result.add_column("server", no_wrap=True)
    for heading in "requests/s", "range", "ratio", "per core", "aborted", "answered", "failed":
        result.add_column(heading, justify="right", no_wrap=True)
    for server in figures.servers:
        rates = [run.load.rate for run in server.runs]
        result.add_row(
            server.name,
            "%.1f" % server.rate,
            "%.1f-%.1f" % (min(rates), max(rates)),
            formatted("%.2f", figures.ratio(server)),
            formatted("%.0f %%", figures.efficiency(server), 100),
            formatted("%.1f %%", server.aborted, 100),
            alarm("%.4g %%" % server.availability, server.availability < 100),
            alarm("%d" % server.failed, server.failed),
            style="bold" if server.threads else None,
        )
    return result


def formatted(form, number, scale=1):
    return "" if number is None else form % (number * scale)


def alarm(text, alarming):
    return "[bold red]%s[/]" % text if alarming else text


def to_json(figures):
    """The figures, each run among them, as JSON text."""
    servers = []
    for server in figures.servers:
        interpreter = dataclasses.asdict(server.interpreter)
        del interpreter["python"]
        servers.append(
            {
                "name": server.name,
                "interpreter": interpreter,
                "threads": server.threads,
                "requests_per_second": server.rate,
                "ratio_to_upstream": figures.ratio(server),
                "efficiency_per_core": figures.efficiency(server),
                "aborted_share": server.aborted,
                "availability": server.availability,
                "failed": server.failed,
                "runs": [dataclasses.asdict(run) for run in server.runs],
            }
        )
    return json.dumps(
        {
            "settings": figures.settings,
            "environment": figures.environment,
            "servers": servers,
            "notes": figures.notes,
        },
        indent=2,
    )
