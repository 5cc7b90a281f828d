"""Which globals of a module its functions rebind: only those are read with a barrier.

They are found once, when the first transaction gets hold of the module's globals.  To assign to another name later is
possible, and runs alone.
"""

import dis
import opcode
import threading
import types
import weakref

from . import _engine

_REBINDING = "STORE_GLOBAL", "DELETE_GLOBAL"
_OPCODES = {opcode.opmap[name] for name in _REBINDING}

_lock = threading.RLock()
#: id of a code object -> (weak reference to it, names of the globals that it rebinds)
_known = {}


def see_globals(namespace, code=None):
    """Have the engine know these globals, whoever has got hold of them.

    Args:
        namespace: the dict.
        code: what is about to run there, such as the text that ``exec`` was given; or None.
    """
    with _lock:
        if _engine.rebound_globals(namespace) is None:
            codes = (*_codes_of_module(namespace), *([code] if code else []))
            _engine.register_module(namespace, frozenset().union(*map(_names_rebound, codes)))


def _codes_of_module(namespace):
    seen = set()
    todo = list(namespace.copy().values())
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(type(value), (staticmethod, classmethod)):
            value = value.__func__
        kind = type(value)  # and not what it says of itself: a mock says anything, and makes attributes without end
        if kind is types.FunctionType:
            if value.__globals__ is namespace:
                yield value.__code__
            todo.extend(vars(value).copy().values())  # __wrapped__ of decorators
            todo.extend(cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        elif issubclass(kind, property):
            todo.extend((value.fget, value.fset, value.fdel))
        elif issubclass(kind, type) and value.__module__ == namespace.get("__name__"):
            todo.extend(vars(value).copy().values())


def _is_filled(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _names_rebound(code):
    """By the code, or by code nested in it.  Remembered: a template is run again and again."""
    key = id(code)
    if key not in _known:
        names = set()
        if not _OPCODES.isdisjoint(code.co_code[::2]):  # to look at each instruction takes long
            names.update(i.argval for i in dis.get_instructions(code) if i.opname in _REBINDING)
        if "globals" in code.co_names:
            # globals()["name"] = ...: any constant may be such a name.
            names.update(const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
        names.update(*(_names_rebound(const) for const in code.co_consts if isinstance(const, types.CodeType)))
        forget = _known.pop  # found now: the code may outlive this module when the interpreter ends
        _known[key] = weakref.ref(code, lambda _: forget(key, None)), frozenset(names)
    return _known[key][1]
