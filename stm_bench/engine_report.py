"""The sections of the engine benchmark as tables: for a terminal, and as reStructuredText for the documentation."""

from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from stm_bench.report import alarm


@dataclass(frozen=True)
class Target:
    """What a figure should be: at least or at most `bound`."""

    bound: float
    at_least: bool = False
    form: str = "%.2f"

    def __str__(self):
        return "%s %s" % ("\N{GREATER-THAN OR EQUAL TO}" if self.at_least else "\N{LESS-THAN OR EQUAL TO}", self.form % self.bound)

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
    """One table.  A row is a dict by the keys of the columns; "figure" is what its "target", a Target or None, is about."""

    name: str
    title: str
    columns: list[Column]
    rows: list[dict]
    caption: str = ""
    notes: list[str] = field(default_factory=list)


def missed(row):
    target = row.get("target")
    return target is not None and not target.met(row["figure"])


def cells(section, row):
    return [column.text(row) for column in section.columns]


def table(section):
    """A section as a rich table; a figure that misses its target is red."""
    result = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=section.title,
        title_justify="left",
        title_style="bold",
        caption=section.caption,
        caption_justify="left",
        caption_style="dim",
    )
    for number, column in enumerate(section.columns):
        result.add_column(column.heading, justify="right" if number else "left", no_wrap=True)
    for row in section.rows:
        texts = cells(section, row)
        for number, column in enumerate(section.columns):
            texts[number] = alarm(texts[number], column.key == "figure" and missed(row))
        result.add_row(*texts)
    return result


def rst(sections):
    """The sections as reStructuredText: a simple table each, with its title before it."""
    return "\n".join(line for section in sections for line in rst_lines(section))


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
    for paragraph in filter(None, [*section.caption.splitlines(), *section.notes]):
        yield from (paragraph, "")


def to_json(sections):
    """The rows of all sections, by the section's name, for json.dumps."""
    return {
        section.name: [
            {key: str(value) if isinstance(value, Target) else value for key, value in row.items()}
            for row in section.rows
        ]
        for section in sections
    }
