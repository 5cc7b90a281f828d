"""Each part of the package imports what is below it, and no two modules import each other."""

import ast
from pathlib import Path

import tornado.stm

PACKAGE = Path(tornado.stm.__file__).parent

#: from the bottom up, as docs/design.rst names them; what stands in one line does not import each other
LAYERS = [
    ["forks", "placement", "processors"],
    ["_engine", "serial"],
    ["core"],
    ["c_functions", "rebound", "input_output", "patches", "conflictlog", "log"],
    ["activation", "effects", "dashboard"],
    ["transaction", "testing"],
    ["loop"],
    ["program"],
    [""],
    ["__main__"],
]


def modules():
    """{name below tornado.stm: its file}; the package itself is ''."""
    files = [path for path in PACKAGE.rglob("*.py") if "interpreter" not in path.parts]
    names = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in files]
    return {name.removesuffix("__init__").strip("."): path for name, path in zip(names, files)}


def imports_of(name, path, known):
    """The modules of the package that this one imports, wherever in it."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for imported in node.names:
                for candidate in (".".join([*base, imported.name]), ".".join(base)):
                    if candidate in known:
                        yield candidate
                        break


def graph():
    known = modules()
    return {name: set(imports_of(name, path, known)) - {name} for name, path in known.items()}


def test_no_circles():
    left = graph()
    assert len(left) > 30
    while ready := {name for name, imports in left.items() if not imports & left.keys()}:
        left = {name: imports for name, imports in left.items() if name not in ready}
    assert left == {}


def test_the_layers():
    floor = {part: number for number, parts in enumerate(LAYERS) for part in parts}
    for name, imports in graph().items():
        part = name.split(".")[0]
        above = {other for other in imports if floor[other.split(".")[0]] >= floor[part] and other.split(".")[0] != part}
        assert above == set(), name
