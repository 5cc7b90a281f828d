"""The sections of the engine benchmark: as tables on a terminal, as reStructuredText for the documentation, as JSON."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from stm_bench.errors import BenchmarkError

WIDTH_IN_A_FILE = 120  # columns, where a table is not printed on a terminal


def console():
    """What tables are printed on."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found.width = WIDTH_IN_A_FILE
    return found


FAILED = "failed"  # in the place of a figure


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
    """A column: its heading, the key of its cells in rows, and how a cell that is not None is printed."""

    heading: str
    key: str
    form: str = "%s"

    def text(self, row):
        value = row.get(self.key)
        return "" if value is None else self.form % value


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
    console.print(table(section))
    for line in section.caption:
        console.print(line, style="dim", markup=False)
    for note in section.notes:
        console.print("  note: " + note, markup=False, soft_wrap=True)


def table(section):
    """A section as a rich table; a figure that misses its target is red."""
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(section.columns):
        result.add_column(column.heading, justify="right" if number else "left", no_wrap=True)
    for row in section.rows:
        texts = cells(section, row)
        for number, column in enumerate(section.columns):
            texts[number] = alarm(texts[number], texts[number] == FAILED or (column.key == "figure" and missed(row)))
        result.add_row(*texts)
    return result


def rst(sections, environment, page=None):
    """The sections as reStructuredText: where they were measured, then a simple table each, with its title.

    Args:
        page: a title and a paragraph, to go above all that.
    """
    where = "CPython %s, %s CPUs, %s, %s." % (
        environment["python"].split()[0] + ("t" if "free-threading" in environment["python"] else ""),
        environment["cpus"],
        environment["processor"],
        environment["date"].partition("T")[0],
    )
    title, introduction = page or ("", "")
    head = ["=" * len(title), title, "=" * len(title), "", introduction, ""] if page else []
    return "\n".join([*head, where, "", *(line for section in sections for line in rst_lines(section))])


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
        yield from (paragraph, "")


def write(sections, environment, json_file=None, rst_file=None, page=None):
    """Writes the sections to those of the files that are named (see `rst`).  Raises BenchmarkError where one cannot be written."""
    try:
        if json_file:
            Path(json_file).write_text(to_json(sections, environment) + "\n")
        if rst_file:
            Path(rst_file).write_text(rst(sections, environment, page))
    except OSError as error:
        raise BenchmarkError("cannot write %s: %s" % (error.filename, error.strerror)) from None


def to_json(sections, environment):
    """The rows of all sections, by the section's name, and where they were measured, as JSON text."""
    rows = {section.name: [json_row(row) for row in section.rows] for section in sections}
    notes = [note for section in sections for note in section.notes]
    return json.dumps({"environment": environment, "sections": rows, "notes": notes}, indent=2)


def json_row(row):
    return {
        **row,
        **({"target": str(row["target"]), "met": not missed(row)} if row.get("target") else {}),
    }
