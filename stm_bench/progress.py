"""What a user sees on stderr while a benchmark runs: a bar on a terminal, otherwise a line for each run."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Runs:
    """A context manager that shows how many of `total` runs are done, and what each found."""

    def __init__(self, total, console=None):
        self.console = console or Console(stderr=True, highlight=False)
        self.total = total
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *exception):
        self.bar.stop()

    def starting(self, what):
        self.bar.update(self.task, description=what)

    def done(self, what):
        """Ends one run with the line `what`."""
        self.bar.advance(self.task)
        self.console.print(what, markup=False, soft_wrap=True)
