"""Figures as a picture: a bar for each server, a dot for each of its runs."""

from stm_bench.errors import BenchmarkError

UPSTREAM, OURS, IDEAL = "#9aa5b1", "#2f6fb5", "#1f2933"


def check():
    """Raises BenchmarkError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BenchmarkError("--plot needs matplotlib: run make setup, or pip install matplotlib") from None


def save(figures, path):
    """Draws the figures into the file `path`, a PNG."""
    from matplotlib.figure import Figure

    servers = figures.servers
    places = range(len(servers))
    figure = Figure(figsize=(8, 1.6 + 0.5 * len(servers)), layout="constrained")
    axes = figure.subplots()
    colours = [OURS if server.threads else UPSTREAM for server in servers]
    axes.barh(places, [server.rate for server in servers], color=colours, height=0.6)
    single = next((server.rate for server in servers if server.threads == 1), None)
    for place, server in zip(places, servers):
        rates = [run.load.rate for run in server.runs]
        axes.plot(rates, [place] * len(rates), "o", color=IDEAL, markersize=3, alpha=0.6)
        furthest = max(rates)
        if single and server.threads and server.threads > 1:
            ideal = single * server.threads
            axes.plot([ideal, ideal], [place - 0.36, place + 0.36], color=IDEAL, linewidth=1.5)
            furthest = max(furthest, ideal)
        axes.annotate(
            "%.1f" % server.rate, (furthest, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_yticks(list(places), [server.name for server in servers])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel("requests/s: median (bar), each run (dot), one thread times the threads (line)", fontsize=9)
    axes.set_title(
        "GET /%d from %d clients, %s CPUs"
        % (figures.settings["size"], figures.settings["clients"], figures.environment["cpus"]),
        loc="left",
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=150)
