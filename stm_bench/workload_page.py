"""Workloads as one page of HTML, which needs nothing else."""

import html
from pathlib import Path

from stm_bench import engine_report, workload_plot

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #1f2933 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2.5em }
table { border-collapse: collapse; margin: .6em 0 } th, td { padding: .15em .8em; text-align: right; border-bottom: 1px solid #e3e8ee }
th:first-child, td:first-child { text-align: left } td.missed { color: #b5442f; font-weight: bold } p { margin: .3em 0; color: #52606d }
svg { max-width: 100%; height: auto }
"""


def save(results, sections, environment, notes, path):
    """Writes the file `path`."""
    parts = ["<!DOCTYPE html><html lang=en><meta charset=utf-8><title>tornado.stm: workloads</title><style>%s</style>" % STYLE]
    parts.append("<h1>tornado.stm beside the alternatives</h1>")
    before = len(sections) - len(results)
    for section in sections[:before]:
        parts += ["<h2>%s</h2>" % html.escape(section.title), table(section)]
    for result, section in zip(results, sections[before:]):
        parts += ["<h2>%s</h2>" % html.escape(section.title), table(section)]
        parts += ["<p>%s</p>" % html.escape(line) for line in (*section.caption, *section.notes)]
        if workload_plot.shown(result):
            parts.append(workload_plot.svg(result))
    parts += ["<footer>", *("<p>%s</p>" % html.escape(line) for line in (engine_report.where(environment), *notes)), "</footer></html>"]
    Path(path).write_text("\n".join(parts))


def table(section):
    lines = ["<table><tr>%s</tr>" % "".join("<th>%s</th>" % html.escape(column.heading) for column in section.columns)]
    for row in section.rows:
        cells = []
        for column, text in zip(section.columns, engine_report.cells(section, row)):
            missed = text == engine_report.FAILED or (column.key == "figure" and engine_report.missed(row))
            cells.append("<td%s>%s</td>" % (" class=missed" if missed else "", html.escape(text)))
        lines.append("<tr>%s</tr>" % "".join(cells))
    return "\n".join([*lines, "</table>"])
