"""The sections of the engine benchmark: as tables on a terminal, as reStructuredText for the documentation, as JSON."""

import contextlib
import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from stm_bench.errors import BenchmarkError

LINE = 128  # characters of a paragraph's in reStructuredText
WIDTH_IN_A_FILE = 120  # columns, where a table is not printed on a terminal


def console():
    """What tables are printed on."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found.width = WIDTH_IN_A_FILE
    return found


FAILED = "failed"  # in the place of a figure


def percentile(values, per_cent):
    """The smallest of the values that so many per cent of them do not exceed."""
    return sorted(values)[max(0, -(-len(values) * per_cent // 100) - 1)]


def alarm(text, alarming):
    return "[bold red]%s[/]" % text if alarming else text


@dataclass(frozen=True)
class Target:
    """What a figure should be: at least or at most `bound`."""

    bound: float
    at_least: bool = False
    form: str = "%.2f"

    def __str__(self):
        sign = "\N{GREATER-THAN OR EQUAL TO}" if self.at_least else "\N{LESS-THAN OR EQUAL TO}"
        return "%s %s" % (sign, self.form % self.bound)

    def met(self, figure):
        return figure >= self.bound if self.at_least else figure <= self.bound


@dataclass(frozen=True)
class Column:
    """A column: its heading, the key of its cells in rows, and how a cell is printed that is neither None nor a text."""

    heading: str
    key: str
    form: str = "%s"

    def text(self, row):
        value = row.get(self.key)
        return "" if value is None else value if isinstance(value, str) else self.form % value


@dataclass
class Section:
    """One table.  A row is a dict by the keys of the columns; its "target", a Target or None, is about its "figure"."""

    name: str
    title: str
    columns: list[Column]
    rows: list[dict]
    caption: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def missed(row):
    target = row.get("target")
    return target is not None and not target.met(row["figure"])


def cells(section, row):
    return [column.text(row) for column in section.columns]


def show(section, console):
    """Prints the section with its title, caption and notes."""
    console.print()
    console.print(section.title, style="bold", markup=False)
    for columns in fitting(section, console.width):
        console.print(table(section, columns))
    for line in section.caption:
        console.print(line, style="dim", markup=False)
    for note in section.notes:
        console.print("  note: " + note, markup=False, soft_wrap=True)


def fitting(section, width):
    """The columns in as many parts as have room for all of their figures, each with the first column, which says what a row is about."""
    widths = [max(len(text) for text in (column.heading, *map(column.text, section.rows))) + 2 for column in section.columns]
    first, room = section.columns[0], width - widths[0] - 1
    parts, left = [[first]], room
    for column, needed in zip(section.columns[1:], widths[1:]):
        if needed > left and len(parts[-1]) > 1:
            parts.append([first])
            left = room
        parts[-1].append(column)
        left -= needed
    return parts


def table(section, columns=None):
    """A section, or these columns of it, as a rich table; a figure that misses its target is red."""
    columns = columns or section.columns
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        result.add_column(column.heading, justify="right" if number else "left", no_wrap=True)
    for row in section.rows:
        texts = [column.text(row) for column in columns]
        for number, column in enumerate(columns):
            texts[number] = alarm(texts[number], texts[number] == FAILED or (column.key == "figure" and missed(row)))
        result.add_row(*texts)
    return result


def where(environment):
    """In a line: with what, on which machine, and when it was measured."""
    python = environment["python"].split()[0] + ("t" if "free-threading" in environment["python"] else "")
    python += " (profile-guided)" * environment.get("profile-guided", False)
    versions = ["%s %s" % (name, environment[name]) for name in ("Tornado", "tornado-stm", "siege") if name in environment]
    machine = ["%s CPUs" % environment["cpus"], environment["processor"], environment["date"].partition("T")[0]]
    return ", ".join(["CPython " + python, *versions, *machine]) + "."


def rst(sections, environment, page=None):
    """The sections as reStructuredText: where they were measured, then a simple table each, with its title.

    Args:
        page: a title and a paragraph, to go above all that.
    """
    title, introduction = page or ("", "")
    head = ["=" * len(title), title, "=" * len(title), "", introduction, ""] if page else []
    return "\n".join([*head, where(environment), "", *(line for section in sections for line in rst_lines(section))])


def rst_lines(section):
    rows = [[column.heading for column in section.columns]] + [cells(section, row) for row in section.rows]
    widths = [max(len(row[number]) for row in rows) for number in range(len(section.columns))]
    rule = "  ".join("=" * width for width in widths)
    yield section.title + ":"
    yield ""
    yield rule
    for number, row in enumerate(rows):
        # An empty first cell would continue the row above, so it is never empty.
        yield "  ".join(
            text.ljust(width) if place == 0 or not number else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths))
        ).rstrip()
        if number == 0:
            yield rule
    yield rule
    yield ""
    for paragraph in [*section.caption, *section.notes]:
        names = re.sub(r"_(?!\w)", r"\\_", paragraph)  # else one that ends so is a reference
        yield from (*textwrap.wrap(names, LINE, break_long_words=False, break_on_hyphens=False), "")


def write(sections, environment, json_file=None, rst_file=None, page=None):
    """Writes the sections to those of the files that are named (see `rst`).  Raises BenchmarkError where one cannot be written."""
    with writing():
        if json_file:
            Path(json_file).write_text(to_json(sections, environment) + "\n")
        if rst_file:
            Path(rst_file).write_text(rst(sections, environment, page))


@contextlib.contextmanager
def writing():
    """Files are written within.  Raises BenchmarkError where one cannot be."""
    try:
        yield
    except OSError as error:
        raise BenchmarkError("cannot write %s: %s" % (error.filename, error.strerror)) from None


def to_json(sections, environment):
    """The rows of all sections, by the section's name, and where they were measured, as JSON text."""
    rows = {section.name: [json_row(row) for row in section.rows] for section in sections}
    notes = ["%s: %s" % (section.name, note) for section in sections for note in section.notes]
    return json.dumps({"environment": environment, "sections": rows, "notes": notes}, indent=2)


def json_row(row):
    return {
        **row,
        **({"target": str(row["target"]), "met": not missed(row)} if row.get("target") else {}),
    }
