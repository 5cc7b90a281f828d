"""Workloads as pictures, two charts for each: a bar for each way, and what tornado.stm gives on so many threads.

Of the ways: dots for the rounds, the times until an answer, and a line for what as many processes can give.  Against the threads: from the
lowest round to the highest, and one thread's rate times their number.  What others have published stands below.
"""

import io
import statistics
import textwrap

from stm_bench.engine_report import FAILED, percentile
from stm_bench.errors import BenchmarkError

UPSTREAM, OURS, LIMIT, DOTS = "#9aa5b1", "#2f6fb5", "#b5442f", "#1f2933"
BAR, LOWEST = 0.34, 2.8  # inches
COLUMNS = 1.13, 1.27  # where the times until an answer end, in widths of a chart
TITLE, PUBLISHED = 72, 120  # characters in a line


def check():
    """Raises BenchmarkError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BenchmarkError("pictures need matplotlib: run make setup, or pip install matplotlib") from None


def figure_of(results, footer=""):
    """A matplotlib figure with the two charts of each result beside each other, and the results below one another."""
    from matplotlib.figure import Figure

    heights = [max(LOWEST, 1.2 + BAR * len(result.measured) + 0.13 * len(published(result))) for result in results]
    figure = Figure(figsize=(12, sum(heights) + 0.2), layout="constrained")
    charts = figure.subplots(len(results), 2, squeeze=False, height_ratios=heights, width_ratios=(7, 4))
    for result, (ways, threads) in zip(results, charts):
        draw(ways, result)
        draw_threads(threads, result)
    figure.supxlabel(footer, x=0.01, ha="left", fontsize=7)
    return figure


def shown(result):
    return [measured for measured in result.measured if result.has_figures(measured)]


def published(result):
    """The lines that say what others have found."""
    text = result.workload.published
    return textwrap.wrap("published, elsewhere: " + text, PUBLISHED) if text else []


def on_threads(result):
    """What tornado.stm was measured on with this interpreter: number of threads -> Measured, the lowest number first."""
    upstream = result.measured[0].way
    ours = {each.way.count: each for each in shown(result) if each.way.kind == "stm" and each.way.python == upstream.python}
    return dict(sorted(ours.items()))


def draw(axes, result):
    """The ways."""
    measured = shown(result)
    for place, each in enumerate(result.measured):
        if each not in measured:
            told = FAILED if each.wrong else (each.failure or "upstream failed").partition(":")[0]
            color = LIMIT if each.wrong else UPSTREAM
            axes.annotate(told, (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=color)
            continue
        rate, end = statistics.median(each.rates), max(each.rates)
        axes.barh(place, rate, color=OURS if each.way.is_ours else UPSTREAM, height=0.62)
        axes.plot(each.rates, [place] * len(each.rates), "o", color=DOTS, markersize=2.5, alpha=0.6)
        if each.waits:
            for column, n in zip(COLUMNS, (50, 99)):
                told = "%.1f ms" % (1000 * percentile(each.waits, n))
                axes.text(column, place, told, transform=axes.get_yaxis_transform(), va="center", ha="right", fontsize=8)
        axes.annotate(
            "%.2f times" % statistics.median(result.ratios(each)) if place else "upstream", (end, place), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=8, fontweight="bold" if each.way.is_ours else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
    if any(each.waits for each in measured):
        for column, told in zip(COLUMNS, ("answered after:\nmedian", "99th\npercentile")):
            axes.text(column, -0.6, told, transform=axes.get_yaxis_transform(), va="bottom", ha="right", fontsize=7)
    axes.set_yticks(range(len(result.measured)), [each.way.name for each in result.measured], fontsize=8)
    axes.set_ylim(len(result.measured) - 0.4, -1.1)
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    if result.is_limited and measured:
        draw_limit(axes, limit_of(result))
    unit = "%s: medians of the rounds, which are the dots; so many times upstream's" % result.workload.unit
    finish(axes, "\n".join([unit, *published(result)]))
    title = textwrap.fill("%s: %s" % (result.workload.name, result.workload.summary), TITLE)
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold")


def limit_of(result):
    """The rate that processes of their own can give."""
    return statistics.median(result.limits) * statistics.median(result.measured[0].rates)


def draw_limit(axes, limit):
    """A line, told of where there is more room."""
    axes.axvline(limit, color=LIMIT, linewidth=1.2, linestyle="--", zorder=0)
    left = limit > axes.get_xlim()[1] / 2
    axes.annotate(
        "limit: processes of their own", (limit, -0.6), xytext=(-4 if left else 4, 4), textcoords="offset points", fontsize=7, color=LIMIT,
        ha="right" if left else "left",
    )  # fmt: skip


def draw_threads(axes, result):
    """The rate against the number of threads; nothing where there is but one number."""
    ours = on_threads(result)
    if len(ours) < 2:
        axes.set_axis_off()
        return
    counts, rates = list(ours), [statistics.median(each.rates) for each in ours.values()]
    reach = [[abs(rate - end(each.rates)) for rate, each in zip(rates, ours.values())] for end in (min, max)]
    linear = [rates[0] * count / counts[0] for count in counts]
    axes.plot(counts, linear, color=DOTS, linewidth=1, linestyle=":", label="linear, from %d thread%s" % (counts[0], "s" * (counts[0] > 1)))
    axes.errorbar(counts, rates, yerr=reach, fmt="o-", color=OURS, markersize=4, capsize=3, label="tornado.stm, all rounds")
    axes.axhline(statistics.median(result.measured[0].rates), color=UPSTREAM, linewidth=1.5, label="upstream, one loop")
    if result.limits:
        what = "upstream, processes" + (" (the limit)" if result.is_limited else ", each for itself")
        axes.plot([result.limit.way.count], [limit_of(result)], "_", color=LIMIT, markersize=16, markeredgewidth=2, label=what)
    axes.set_xticks(counts)
    axes.margins(x=0.12, y=0.1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(result.workload.unit, fontsize=8)
    axes.legend(fontsize=7, frameon=False, loc="upper left")
    axes.set_ylim(top=axes.get_ylim()[1] * 1.3)  # room for the legend
    finish(axes, "threads")


def finish(axes, label):
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


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
