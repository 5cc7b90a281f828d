"""What the engine is to know of C functions that it does not know: `declare` one, or `load` a file of declarations.

The engine cannot look into C code.  What nobody has declared runs alone, which is always right and slow where each request does
it.  **A wrong declaration gives wrong answers under load**, seldom, and with no message: a function that is declared not to
change what it changes is not rolled back, and others see it change in the middle of what they do.  Declare what you have
read the source of; ``transaction.stats()["exclusive_reasons"]`` tells what is worth it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .c_functions import libraries

__all__ = ["declare", "load"]


def declare(
    what: str | Callable[..., Any], effect: str | None = None, *, kind: str | None = None, instances: str | None = None
) -> None:
    """Say what a C function does, or what a C type is.

    It counts from when the module that the name begins with has been imported; the engine's own declarations are not overridden.
    A name that is found then, but for no type where a kind or instances are declared, is told of on standard error.

    Args:
        what: dotted name of a C function, method or type, as ``"pkg.mod.Type.method"``; ``"pkg.mod.Type.*"``: all methods.  Or the
            function, method or type, or an object that is called as one: what numba has compiled, a function of ``ctypes``.  It
            is kept for ever.
        effect: what calling it does: ``"PURE"``, ``"READS"``, ``"DEEP"``, ``"MUTATES"``, or another of those that the beginning
            of ``tornado/stm/c_functions/effects.py`` lists.
        kind: what the type is: ``"INERT"``, ``"RECORD"``, ``"IRREVERSIBLE"``, or another kind listed there.
        instances: what calling an instance of the type does; an effect.

    Raises:
        ValueError: no such effect or kind (where there is an engine), no dotted name, or a function in Python, whose effects the
            engine sees.
        RuntimeError: there are more declarations than the engine has room for.
    """
    given = {"call": effect, "type": kind, "instances": instances}
    if not any(given.values()):
        raise ValueError("nothing is declared: give an effect, a kind or both")
    name, about = (what, None) if isinstance(what, str) else ("", what)
    libraries.add([libraries.Declaration(of, name, value, object=about) for of, value in given.items() if value is not None])


def load(path: str | os.PathLike[str]) -> None:
    """Read declarations from a file: lines ``call NAME EFFECT``, ``type NAME KIND``, ``instances NAME EFFECT``.

    What follows ``#`` is a comment.  ``library DISTRIBUTION FROM BELOW`` says for which releases the lines below it hold, to the
    next such line: with another one installed they do not count.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line says nothing that can be declared; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file of declarations") from None
    libraries.add(libraries.parse(text, str(path)))
