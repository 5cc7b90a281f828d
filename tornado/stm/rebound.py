"""Which globals of a module its functions rebind: only those are read with a barrier.

They are found once, when the first transaction gets hold of the module's globals.  To assign to another name later is
possible, and runs alone.
"""

import opcode
import types
import weakref

from . import _engine

_REBINDING = opcode.opmap["STORE_GLOBAL"], opcode.opmap["DELETE_GLOBAL"]

#: id of a code object -> (weak reference to it, names of the globals that it rebinds)
_known = {}


def see_globals(namespace, code=None):
    """Have the engine know these globals, whoever has got hold of them.  Of several threads that do, what the first one says counts.

    Args:
        namespace: the dict.
        code: what is about to run there, such as the text that ``exec`` was given; or None.
    """
    if _engine.rebound_globals(namespace) is None:
        names = set(_names_rebound(code) if code else ())
        for each in _codes_of_module(namespace):
            _add_rebound(each, names)
        _engine.register_module(namespace, frozenset(names))


#: of what has no code (a set that can change has a lock)
_PLAIN = frozenset({
    str, int, float, bool, type(None), bytes, tuple, list, dict, set, frozenset, types.BuiltinFunctionType, types.ModuleType,
    types.MemberDescriptorType, types.GetSetDescriptorType,
})  # fmt: skip


_attributes_of_class = type.__dict__["__dict__"].__get__


def _codes_of_module(namespace):
    seen = set()
    todo = list(namespace.copy().values())
    name = namespace.get("__name__")
    while todo:
        value = todo.pop()
        kind = type(value)  # and not what it says of itself: a mock says anything, and makes attributes without end
        if kind in _PLAIN or id(value) in seen:
            continue
        seen.add(id(value))
        if kind is types.FunctionType:
            if value.__globals__ is namespace:
                yield value.__code__
            if attributes := _engine.dict_of_function(value):
                todo.extend(attributes.copy().values())  # __wrapped__ of decorators
            if value.__closure__:
                todo.extend(cell.cell_contents for cell in value.__closure__ if _is_filled(cell))
        elif issubclass(kind, type):
            attributes = _attributes_of_class(value)  # and not what its metaclass says: types in C may have no __module__ at all
            if attributes.get("__module__") == name:
                todo.extend(attributes.copy().values())
        elif issubclass(kind, (staticmethod, classmethod)):
            todo.append(value.__func__)
        elif issubclass(kind, property):
            todo.extend((value.fget, value.fset, value.fdel))


def _is_filled(cell):
    try:
        cell.cell_contents  # noqa: B018, it may be unset
    except ValueError:
        return False
    return True


def _names_after(instruction, code, instructions):
    """The names that it has as an argument.  (`dis` tells, too, but looks at each instruction, which takes long at a start.)"""
    arguments = code.co_code[1::2]
    at = instructions.find(instruction)
    while at >= 0:
        first = at
        while first > 0 and instructions[first - 1] == opcode.EXTENDED_ARG:
            first -= 1
        yield code.co_names[int.from_bytes(arguments[first : at + 1])]
        at = instructions.find(instruction, at + 1)


def _add_rebound(code, names):
    """Those that the code rebinds, or code nested in it."""
    instructions = code.co_code[::2]
    for instruction in _REBINDING:
        if instruction in instructions:
            names.update(_names_after(instruction, code, instructions))
    if "globals" in code.co_names:
        # globals()["name"] = ...: any constant may be such a name.
        names.update(const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
    for const in code.co_consts:
        if type(const) is types.CodeType:
            _add_rebound(const, names)


def _names_rebound(code):
    """By code that is run as a whole.  Remembered: a template is run again and again."""
    key = id(code)
    known = _known.get(key)
    if known is None:
        names = set()
        _add_rebound(code, names)
        forget = _known.pop  # found now: the code may outlive this module when the interpreter ends
        known = _known[key] = weakref.ref(code, lambda _: forget(key, None)), frozenset(names)
    return known[1]
