"""C code of libraries that the engine knows nothing of, and that has a twin in Python: the twin runs, with barriers, where the C code would run
alone."""

import importlib.util
import os
import sys

from ..c_functions import libraries

#: Modules of C code, by library, with another module in Python that is taken where they are not there: so they are not, unless something is
#: declared for the release that is installed.
ELSEWHERE = {
    "aiohttp._http_parser": "aiohttp",
    "aiohttp._http_writer": "aiohttp",
    "aiohttp._websocket.mask": "aiohttp",
    "frozenlist._frozenlist": "frozenlist",
    "multidict._multidict": "multidict",
    "pendulum._pendulum": "pendulum",
    "propcache._helpers_c": "propcache",
    "sqlalchemy.cyextension": "sqlalchemy",
    "wcwidth._wcwidth_c": "wcwidth",
    "whenever._whenever": "whenever",
    "wrapt._wrappers": "wrapt",
    "yarl._quoting_c": "yarl",
    "zope.interface._zope_interface_coptimizations": "zope",
}

#: Likewise of releases of which something is known: nothing can be declared of these.
NOT_IN_C = {"aiohttp._websocket.reader_c"}

#: Modules of C code that a library takes where they are there, and has a twin in Python for; others that ask for them get them.
TAKEN_BY = {"hiredis": "redis"}  # it would switch the GIL on

#: Packages with modules that lie there twice under the same name: as they were written, and compiled from that.
COMPILED_BESIDE = {"sqlalchemy.engine", "sqlalchemy.sql", "sqlalchemy.util"}
COMPILED = "_cy"  # how their names end


def _who_imports():
    """The package whose code imports what a finder is asked for."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]


class PythonFinder:
    """For ``sys.meta_path``: it finds the twins, or what they stand in for is not there."""

    def find_spec(self, name, path=None, target=None):
        if name in NOT_IN_C or (name in ELSEWHERE and not libraries.covers(ELSEWHERE[name])):
            raise ModuleNotFoundError(f"tornado.stm knows nothing of {name}, so its twin in Python is taken", name=name)
        if name in TAKEN_BY and _who_imports() == TAKEN_BY[name]:
            raise ModuleNotFoundError(f"tornado.stm knows nothing of {name}, so {TAKEN_BY[name]} does without", name=name)
        package, _, last = name.rpartition(".")
        if package in COMPILED_BESIDE and last.endswith(COMPILED):
            for folder in path or ():
                file = os.path.join(folder, last + ".py")
                if os.path.exists(file):
                    return importlib.util.spec_from_file_location(name, file)
        return None


def prefer_python():
    """From here on imports find the twins."""
    if not any(isinstance(finder, PythonFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PythonFinder())
