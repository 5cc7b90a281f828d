"""What the tests of the benchmarks have in common."""

import pytest


@pytest.fixture
def refused(monkeypatch, capsys):
    """A function of arguments of ``python -m stm_bench`` that are refused: the line that says why.

    In this process: one of its own takes a second to begin.
    """
    from stm_bench import __main__

    monkeypatch.setattr(__main__.signal, "signal", lambda *_: None)

    def told(*arguments):
        try:
            status = __main__.command_line(arguments)
        except SystemExit as end:
            status = end.code
        output, errors = capsys.readouterr()
        (line,) = errors.splitlines()
        assert (status, output) == (2, "") and line.startswith("stm_bench: ")
        return line

    return told
