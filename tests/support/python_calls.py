"""Which functions in Python are called."""

import contextlib
import sys


@contextlib.contextmanager
def calls_of(module):
    """Yields a list: the names of the functions in that module's file that begin to run meanwhile, on any thread."""
    names, tool = [], sys.monitoring.DEBUGGER_ID

    def begins(code, _):
        if code.co_filename == module.__file__:
            names.append(code.co_name)

    sys.monitoring.use_tool_id(tool, __name__)
    sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, begins)
    sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
    try:
        yield names
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, None)
        sys.monitoring.free_tool_id(tool)
