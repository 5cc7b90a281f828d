"""What the interpreter says of an exception that ends a program: as if the program had been started without this package."""

import sys

from .. import core
from ..patches import table


def show_programs_own(exception):
    """Called with what ends the program, where that has been caught: whoever has called this function is no part of it."""
    _clean_chained(exception)
    table.apply("failure", _without_ours(exception.__traceback__))


def programs_own(programs_hook, traceback):
    """``sys.excepthook`` for one exception, with this traceback; the next one is the program's hook's again."""

    def excepthook(kind, value, _):
        sys.excepthook = programs_hook
        value.__traceback__ = sys.last_traceback = traceback
        programs_hook(kind, value, traceback)

    return excepthook


def _clean_chained(exception):
    """The exceptions that it came of, and that it is a group of."""
    seen, waiting = {id(exception)}, [exception]
    while waiting:
        each = waiting.pop()
        for other in (each.__cause__, each.__context__, *getattr(each, "exceptions", ())):
            if isinstance(other, BaseException) and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
                other.__traceback__ = _without_ours(other.__traceback__)


def _without_ours(traceback):
    """The traceback without the frames of this package, and of what takes the place of C functions."""
    entries = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(core.FOLDER) and not core.is_hidden(code):
            entries.append(traceback)
        traceback = traceback.tb_next
    for entry, following in zip(entries, [*entries[1:], None]):
        if entry.tb_next is not following:
            entry.tb_next = following
    return entries[0] if entries else None
