"""C code of libraries that the engine knows nothing of, and that has a twin in Python: the twin runs, with barriers, where the C code would run
alone."""

import importlib.util
import itertools
import os
import sys

from ..c_functions import libraries

#: Modules of C code, by library, with another module in Python that is taken where they are not there: so they are not, unless something is
#: declared for the release that is installed.
ELSEWHERE = {
    "aiohttp": ("aiohttp._http_parser", "aiohttp._http_writer", "aiohttp._websocket.mask"),
    "frozenlist": ("frozenlist._frozenlist",),
    "multidict": ("multidict._multidict",),
    "propcache": ("propcache._helpers_c",),
    "sqlalchemy": tuple(f"sqlalchemy.cyextension.{name}" for name in ("collections", "immutabledict", "processors", "resultproxy", "util")),
    "yarl": ("yarl._quoting_c",),
}

#: Likewise of releases of which something is known: nothing can be declared of these.
NOT_IN_C = ("aiohttp._websocket.reader_c",)

#: Packages with modules that lie there twice under the same name: as they were written, and compiled from that.
COMPILED_BESIDE = {"sqlalchemy.engine", "sqlalchemy.sql", "sqlalchemy.util"}
COMPILED = "_cy"  # how their names end


class PythonFinder:
    """For ``sys.meta_path``: of modules that lie there twice, it finds the source."""

    def find_spec(self, name, path=None, target=None):
        package, _, last = name.rpartition(".")
        if package not in COMPILED_BESIDE or not last.endswith(COMPILED):
            return None
        for folder in path or ():
            file = os.path.join(folder, last + ".py")
            if os.path.exists(file):
                return importlib.util.spec_from_file_location(name, file)
        return None


def prefer_python():
    """From here on imports find the twins."""
    unknown = [names for library, names in ELSEWHERE.items() if not libraries.covers(library)]
    for name in itertools.chain(NOT_IN_C, *unknown):
        sys.modules.setdefault(name, None)
    if not any(isinstance(finder, PythonFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PythonFinder())
