"""Workloads as pictures: for each a bar for each way, dots for its rounds, and a line for what as many processes can give.

A mark at the bars of several threads, "linear", is one thread's rate times their number.  What others have published stands below.
"""

import io
import statistics
import textwrap

from stm_bench.engine_report import FAILED, percentile
from stm_bench.errors import BenchmarkError

UPSTREAM, OURS, LIMIT, DOTS = "#9aa5b1", "#2f6fb5", "#b5442f", "#1f2933"
BAR = 0.34  # inches
TITLE, PUBLISHED = 72, 120  # characters in a line


def check():
    """Raises BenchmarkError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BenchmarkError("pictures need matplotlib: run make setup, or pip install matplotlib") from None


def figure_of(results, footer=""):
    """A matplotlib figure with one chart for each result, below one another."""
    from matplotlib.figure import Figure

    heights = [1.1 + BAR * len(result.measured) + 0.13 * len(published(result)) for result in results]
    figure = Figure(figsize=(8.5, sum(heights) + 0.2), layout="constrained")
    charts = figure.subplots(len(results), 1, squeeze=False, height_ratios=heights)
    for result, (axes,) in zip(results, charts):
        draw(axes, result)
    figure.supxlabel(footer, x=0.01, ha="left", fontsize=7)
    return figure


def shown(result):
    return [measured for measured in result.measured if result.has_figures(measured)]


def published(result):
    """The lines that say what others have found."""
    text = result.workload.published
    return textwrap.wrap("published, elsewhere: " + text, PUBLISHED) if text else []


def draw(axes, result):
    measured = shown(result)
    one = next((statistics.median(each.rates) for each in measured if each.way.kind == "stm" and each.way.count == 1), None)
    room = max((rate for each in measured for rate in each.rates), default=0) / 8  # that a number takes
    for place, each in enumerate(result.measured):
        if each not in measured:
            told = FAILED if each.wrong else (each.failure or "upstream failed").partition(":")[0]
            color = LIMIT if each.wrong else UPSTREAM
            axes.annotate(told, (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=color)
            continue
        rate, end = statistics.median(each.rates), max(each.rates)
        axes.barh(place, rate, color=OURS if each.way.is_ours else UPSTREAM, height=0.62)
        axes.plot(each.rates, [place] * len(each.rates), "o", color=DOTS, markersize=2.5, alpha=0.6)
        if one is not None and each.way.kind == "stm" and each.way.count > 1:
            linear = one * each.way.count
            end = linear if end < linear < end + room else end
            axes.plot([linear, linear], [place - 0.36, place + 0.36], color=DOTS, linewidth=1.5)
            axes.text(linear, place - 0.4, "linear", ha="center", va="bottom", fontsize=6.5)
        if each.waits:
            told = "%.1f ms, %.1f ms" % tuple(1000 * percentile(each.waits, n) for n in (50, 99))
            axes.text(1.02, place, told, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        axes.annotate(
            "%.2f" % statistics.median(result.ratios(each)), (end, place), xytext=(6, 0), textcoords="offset points",
            va="center", fontsize=8, fontweight="bold" if each.way.is_ours else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
    if any(each.waits for each in measured):
        axes.text(1.02, -0.7, "median, p99", transform=axes.get_yaxis_transform(), va="center", fontsize=7)
    axes.set_yticks(range(len(result.measured)), [each.way.name for each in result.measured], fontsize=8)
    axes.set_ylim(len(result.measured) - 0.4, -1.1)
    axes.margins(x=0.1)
    axes.set_xlim(left=0)
    if result.is_limited and measured:
        draw_limit(axes, statistics.median(result.limits) * statistics.median(result.measured[0].rates))
    axes.tick_params(axis="x", labelsize=8)
    legend = "%s; dots: rounds; numbers: to upstream on the same interpreter; linear: one thread's times the threads" % result.workload.unit
    axes.set_xlabel("\n".join([legend, *published(result)]), fontsize=8)
    title = textwrap.fill("%s: %s" % (result.workload.name, result.workload.summary), TITLE)
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def draw_limit(axes, limit):
    """A line, told of where there is more room."""
    axes.axvline(limit, color=LIMIT, linewidth=1.2, linestyle="--", zorder=0)
    left = limit > axes.get_xlim()[1] / 2
    axes.annotate(
        "limit: processes of their own", (limit, -0.6), xytext=(-4 if left else 4, 4), textcoords="offset points", fontsize=7, color=LIMIT,
        ha="right" if left else "left",
    )  # fmt: skip


def save(results, footer, path):
    """Draws those of the results that have figures into the file `path`, a PNG.  Raises BenchmarkError where none has."""
    results = [result for result in results if shown(result)]
    if not results:
        raise BenchmarkError("nothing was measured that could be drawn into %s" % path)
    figure_of(results, footer).savefig(path, format="png", dpi=140)


def svg(result):
    """One result as the text of an SVG element."""
    text = io.StringIO()
    figure_of([result]).savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]
