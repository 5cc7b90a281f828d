"""Failures that are reported as one line and an exit status."""

import argparse


class BenchmarkError(Exception):
    """The benchmark cannot be run here as it was asked for; the message is one line for the user."""

    status = 2


class WrongAnswer(BenchmarkError):
    """A server answered, and answered wrongly."""

    status = 1


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, without the usage."""

    def error(self, message):
        self.exit(2, "%s: %s\n" % (self.prog.split()[0], message))
