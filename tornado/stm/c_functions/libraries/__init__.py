"""What is known of the C code of other libraries: a file for each beside this one, read when the engine is made ready.

A line counts from when the module has been imported that its name begins with; until then nobody can call what it is about.
`effects.py` explains the effects and kinds, `tornado.stm.effects` what else a file may say.
"""

import functools
import itertools
import sys
import threading
import types
from collections import namedtuple
from pathlib import Path

from ... import core, forks
from ...core import say, trusted

#: what: "call", "type", "hidden" (a type that its module does not have; lines below may name its methods), "instances", "converters",
#: "unread" (a slot of instances that these never read), "asks" (a method of what it is given that it calls), "leaf" or "prepare" (call
#: it once with None); name: dotted, or "" if there is an object; value: an effect, kind or name, if any; releases: of a distribution, for
#: which it holds: (name, first, the one that is too late), or None; object: what it is about, or None
Declaration = namedtuple("Declaration", "what name value releases object", defaults=(None, None, None))

_lock = threading.RLock()
_waiting = []  #: grows at its end, but for `_declare_known`
_of_program = []  #: what the program has declared by name, or its command line
_declaring = _once_more = False
_ready = False
_after_load = None
_loading = []  #: the modules whose code runs, and may still replace what they have so far


def parse(text, file):
    """The declarations of a file.  ValueError: a line says something else."""
    found, releases = [], None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        what, *rest = words
        if what == "library" and len(rest) == 3 and all(map(_is_release, rest[1:])):
            releases = rest[0], _release(rest[1]), _release(rest[2])
            continue
        declaration, form = None, _FORMS.get(what, _FORMS["call"])
        if what in _FORMS and what != "library" and len(rest) == form.count(" "):
            declaration = Declaration(what, *rest, releases=releases)
        wrong = f"it should be: {form}" if declaration is None else _what_is_wrong(declaration)
        if wrong:
            raise ValueError(f"{file}:{number}: {line.strip()!r}: {wrong}")
        found.append(declaration)
    return found


_FORMS = {form.partition(" ")[0]: form for form in (
    "call NAME EFFECT", "type NAME KIND", "hidden NAME KIND", "instances NAME EFFECT", "converters NAME EFFECT", "unread NAME SLOT",
    "asks NAME METHOD", "leaf NAME", "prepare NAME",
    "library DISTRIBUTION FROM BELOW, with releases like 1.4",
)}  # fmt: skip


def _is_release(text):
    return all(map(str.isdecimal, text.split(".")))


def _release(text):
    return tuple(map(int, text.split(".")))


def _what_is_wrong(declaration):
    what, name, value, _, about = declaration
    if about is not None:
        if isinstance(about, (types.FunctionType, types.MethodType)) or not callable(about):
            return "only what C code does when it is called can be declared"
        if what != "call" and not isinstance(about, type):
            return "only a type has a kind, and instances"
    elif name.count(".") < 1 or not all(part == "*" or part.isidentifier() for part in name.split(".")):
        return f"{name!r} is no dotted name"
    if not core.COMPILED or what in ("converters", "unread", "asks", "leaf", "prepare"):
        return None
    from ... import _engine

    is_kind = what in ("type", "hidden")
    if value not in (_engine.KINDS if is_kind else _engine.EFFECTS) or value == "TWIN":
        return f"there is no {'kind' if is_kind else 'effect'} {value!r}"
    return None


def add(declarations):
    """Take these into account.  ValueError: one is impossible."""
    for declaration in declarations:
        if wrong := _what_is_wrong(declaration):
            raise ValueError(f"{declaration.name or declaration.object!r}: {wrong}")
    if core.COMPILED:
        core.exclusive("a declaration of effects")
        _take(declarations)


@trusted
def _take(declarations):
    with _lock:
        _waiting.extend(declarations)
        _of_program.extend(declaration for declaration in declarations if declaration.object is None)
        if _ready:
            _declare_known()


@trusted
def not_found():
    """What the program has declared, of modules that it has imported, and nothing in C has been found for: a list of names."""
    with _lock:
        return [each.name for each in _of_program if each in _waiting and each.name.partition(".")[0] in sys.modules]


@trusted
def begin(after_load):
    """The engine's own table is filled: from here on modules that have been imported are declared.

    Args:
        after_load: called with the name of a module when it has been loaded, or was before, and before what it has is declared.
    """
    global _ready, _after_load
    _after_load = after_load
    for module in list(sys.modules):
        after_load(module)
    with _lock:
        _waiting.extend(_of_files())
        _ready = True
        _declare_known()


def _files():
    return sorted(Path(__file__).parent.glob("*.effects"))


@functools.cache
def _of_files():
    return [declaration for file in _files() for declaration in parse(file.read_text(), file.name)]


def declaring(load):
    """In the place of what runs a module's code: then its functions are there to be declared."""

    def load_and_declare(loader, module):
        # Its code may say that it has another name: that of _pydecimal while it runs, that of websockets.speedups before.
        name = module.__name__ if module.__spec__ is None else module.__spec__.name
        _loading.append(name)
        try:
            result = load(loader, module)
        finally:
            _loading.remove(name)
        if _after_load is not None:
            _after_load(name)
        within = f"{name}."
        with _lock:
            if any(declaration.name.startswith(within) for declaration in _waiting):
                _declare_known()
        return result

    # A part of what imports, to whoever looks for the frame that an import, or a warning in it, comes from.
    load_and_declare.__code__ = load_and_declare.__code__.replace(co_filename=load.__code__.co_filename)
    return functools.wraps(load)(trusted(load_and_declare))


def _declare_known():
    """Declare what waits and is there now."""
    global _declaring, _once_more
    _once_more = True
    if _declaring:
        return  # what is declared has imported something, and the caller that declares it goes on
    _declaring = True
    try:
        while _once_more:
            _once_more = False
            _declare_once()
    finally:
        _declaring = False


def _begin_anew():
    """In the child of a fork: a thread that is gone declares nothing more."""
    global _declaring
    _declaring = _declaring and _lock._is_owned()


forks.begin_by(_begin_anew)
forks.free(_lock)


def _declare_once():
    from .. import effects

    left, n = [], len(_waiting)
    for declaration in _waiting[:n]:
        top = declaration.name.partition(".")[0]
        if any(declaration.name.startswith(f"{module}.") for module in _loading):
            left.append(declaration)
            continue
        hidden = declaration.what == "hidden" and declaration.name.rpartition(".")[0] in sys.modules
        if declaration.object is not None:
            objects = [declaration.object]
        else:
            objects = effects.loaded(declaration.name) if top in sys.modules and not hidden else []
        if not objects and not hidden:
            left.append(declaration)
        elif declaration.releases is None or is_installed(*declaration.releases):
            if declaration.what in ("type", "instances", "leaf") and not all(isinstance(found, type) for found in objects):
                say(f"tornado.stm: warning: {declaration.name} is no type: what is declared of it does not count")
            else:
                effects.register_one(declaration, objects)
    _waiting[:n] = left


@functools.cache
def covers(library):
    """Is there a file for this library, and for the release that is installed?"""
    file = Path(__file__).with_name(f"{library}.effects")
    return file.exists() and any(is_installed(*declaration.releases) for declaration in parse(file.read_text(), file.name))


def not_for_this_release(name):
    """What is said of a function that is declared, but for other releases than the one that is installed; None if it is not."""
    with _lock:
        declarations = _of_program + _of_files()
    names = name, f"{name.rpartition('.')[0]}.*"
    found = [each.releases for each in declarations if each.name in names and each.releases is not None]
    if not found or any(is_installed(*releases) for releases in found):
        return None
    distribution, first, too_late = found[0]
    return (f"this is known of {distribution} from {_text(first)} on, below {_text(too_late)}; "
            f"what is installed is {_installed(distribution) or 'another one'}")  # fmt: skip


def _text(release):
    return ".".join(map(str, release))


@functools.cache
def is_installed(distribution, first, too_late):
    """Is a release of the distribution installed that is not before the first, and before the one that is too late?"""
    text = _installed(distribution)
    return text is not None and first <= tuple(map(int, itertools.takewhile(str.isdecimal, text.split(".")))) < too_late


def _installed(distribution):
    """The release of it that is installed, as a text, or None."""
    import importlib.metadata  # which takes long, and most programs have no such library

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
