"""Failures that are reported as one line and an exit status."""


class BenchmarkError(Exception):
    """The benchmark cannot be run here as it was asked for; the message is one line for the user."""

    status = 2


class WrongAnswer(BenchmarkError):
    """A server answered, and answered wrongly."""

    status = 1
