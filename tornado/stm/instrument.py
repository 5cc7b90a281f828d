"""Puts barriers into the bytecode of functions, as transactions come to call them.

A *barrier* is a call of the engine right before the instruction that it opens objects for, in one of the two ways that
``engine/barriers.c`` tells: by its number in a table of the function's barriers, or by the negation of an object.  Which instruction gets which barrier is the table `BARRIERS`, which ones need none, and why, is
`NO_BARRIER`; an instruction in neither, of a later interpreter, makes the transaction exclusive.

Barriers are left out where they can do nothing:

* operands that are provably numbers (constants, ``range`` variables, results of arithmetic on numbers, ...);
* an attribute of a variable that is never rebound, where the same barrier has certainly run before in the same
  activation: a lock is held to the end of the transaction (not in generators, which outlive transactions);
* closure cells that nobody can rebind while another transaction looks at them.

Code that cannot be rewritten stays as it is and runs alone, each time; which code that is gets said once.
"""

import builtins
import contextlib
import dataclasses
import dis
import functools
import inspect
import opcode
import os
import sys
import threading
import types
import weakref

from bytecode import Bytecode, Instr, Intrinsic1Op, Intrinsic2Op, Label, TryBegin, TryEnd, concrete

from . import _engine


def _complete_bytecode():
    """Let `bytecode` know the functions of CALL_INTRINSIC_* that it has no names for, and BUILD_INTERPOLATION's plain number."""
    for functions, names in (Intrinsic1Op, opcode._intrinsic_1_descs), (Intrinsic2Op, opcode._intrinsic_2_descs):

        def unlisted(cls, number, names=names):
            member = int.__new__(cls, number)
            member._name_, member._value_ = names[number], number
            return member

        functions._missing_ = classmethod(unlisted)
    for misread in concrete.FORMAT_VALUE_OPS, concrete.BITFLAG_OPCODES:
        misread.discard(opcode.opmap["BUILD_INTERPOLATION"])


_complete_bytecode()

#: instruction -> (barrier, where its operand comes from: "name" or None)
BARRIERS = {
    "BINARY_SLICE": ("slice_read", None),
    "CALL": ("call", None),
    "CALL_FUNCTION_EX": ("call_ex", None),
    "CALL_KW": ("call_kw", None),
    "CHECK_EG_MATCH": ("group", None),
    "COMPARE_OP": ("compare", None),
    "CONTAINS_OP": ("contains", None),
    "CONVERT_VALUE": ("deep", None),
    "DELETE_ATTR": ("attr_delete", "name"),
    "DELETE_DEREF": ("cell_write", None),
    "DELETE_GLOBAL": ("global_delete", "name"),
    "DELETE_NAME": ("name_delete", "name"),
    "DELETE_SUBSCR": ("item_delete", None),
    "DICT_MERGE": ("mapping", None),
    "DICT_UPDATE": ("mapping", None),
    "FORMAT_SIMPLE": ("deep", None),
    "FORMAT_WITH_SPEC": ("deep_second", None),
    "GET_AITER": ("iterate", None),
    "GET_ANEXT": ("iterate", None),
    "GET_AWAITABLE": ("iterate", None),
    "GET_ITER": ("iterate", None),
    "GET_LEN": ("truth", None),
    "GET_YIELD_FROM_ITER": ("iterate", None),
    "IMPORT_FROM": ("attr_read", "name"),
    "IMPORT_NAME": ("import_name", "name"),
    "LIST_EXTEND": ("iterate", None),
    "LOAD_ATTR": ("attr_read", "name"),
    "LOAD_DEREF": ("cell_read", None),
    "LOAD_FROM_DICT_OR_DEREF": ("name_or_cell", None),
    "LOAD_FROM_DICT_OR_GLOBALS": ("name_or_global", "name"),
    "LOAD_NAME": ("name_read", "name"),
    "LOAD_SUPER_ATTR": ("super_attr", "name"),
    "MATCH_CLASS": ("match_class", None),
    "MATCH_KEYS": ("match_keys", None),
    "RAISE_VARARGS": ("raising", None),
    "SEND": ("send", None),
    "SETUP_ANNOTATIONS": ("name_write", None),
    "SET_UPDATE": ("iterate", None),
    "STORE_ATTR": ("attr_write", "name"),
    "STORE_DEREF": ("cell_write", None),
    "STORE_GLOBAL": ("global_write", "name"),
    "STORE_NAME": ("name_write", "name"),
    "STORE_SLICE": ("slice_write", None),
    "STORE_SUBSCR": ("item_write", None),
    "TO_BOOL": ("truth", None),
    "UNARY_INVERT": ("truth", None),
    "UNARY_NEGATIVE": ("truth", None),
    "UNPACK_EX": ("iterate", None),
    "UNPACK_SEQUENCE": ("iterate", None),
    "WITH_EXCEPT_START": ("with_except", None),
}

#: what depends on more than the instruction's name: `_Rewriter.choose` decides whether, and which
BARRIERS_BY_ARGUMENT = {
    "BINARY_OP": ("binary", None),  # or "item_read" where it subscripts
    "CALL_INTRINSIC_1": (None, None),  # `INTRINSICS`
    "CALL_INTRINSIC_2": (None, None),
    "LOAD_GLOBAL": ("global_read", "name"),  # names that functions of the module rebind
}

#: Barriers that only code which can suspend needs.  What these instructions work on was made in the same activation, and
#: lies on its stack: a list under construction, the iterator of a loop, an exception that was caught.  Where that
#: survives a transaction on the stack of a suspended frame, a rollback has to put it back.
SUSPENDABLE_BARRIERS = {
    "DICT_MERGE": ("comprehension_merge", None),
    "DICT_UPDATE": ("comprehension_merge", None),
    "FOR_ITER": ("iterate", None),
    "GET_ITER": ("get_iterator", None),
    "LIST_APPEND": ("comprehension_append", None),
    "LIST_EXTEND": ("comprehension_extend", None),
    "MAP_ADD": ("comprehension_put", None),
    "RERAISE": ("reraising", None),
    "SET_ADD": ("comprehension_add", None),
    "SET_UPDATE": ("comprehension_update", None),
}

#: why an instruction needs no barrier -> the instructions
NO_BARRIER = {
    "moves within the frame: its variables, its stack, the cells themselves but not what is in them": """
        COPY COPY_FREE_VARS DELETE_FAST LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW
        LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST MAKE_CELL POP_ITER POP_TOP PUSH_NULL STORE_FAST STORE_FAST_LOAD_FAST
        STORE_FAST_STORE_FAST SWAP""",
    "reads a constant": "LOAD_COMMON_CONSTANT LOAD_CONST LOAD_SMALL_INT",
    "pushes the namespace of a class body; what is read from it has barriers": "LOAD_LOCALS",
    "reads the builtins, which are only changed exclusively": "LOAD_BUILD_CLASS",
    "looks a method up in a class, and classes are only changed exclusively": "LOAD_SPECIAL",
    "looks at the type's flags": "MATCH_MAPPING MATCH_SEQUENCE",
    "looks at what is immutable: identities, bools, the classes of an exception": """
        CHECK_EXC_MATCH IS_OP POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE UNARY_NOT""",
    "jumps": """
        CACHE EXTENDED_ARG JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD NOP NOT_TAKEN RESUME""",
    "makes an object; hashing and comparing keys is Python code with barriers of its own, or C code on immutable objects": """
        BUILD_INTERPOLATION BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TEMPLATE BUILD_TUPLE
        MAKE_FUNCTION RETURN_GENERATOR""",
    "completes an object that this activation has just made, or (FOR_ITER) steps an iterator that GET_ITER has opened": """
        FOR_ITER LIST_APPEND MAP_ADD SET_ADD SET_FUNCTION_ATTRIBUTE""",
    "leaves the frame, or a loop": "END_FOR END_SEND RETURN_VALUE YIELD_VALUE",
    "passes on the exception that is being handled; the way into a handler has a barrier (`_Rewriter.result`)": """
        CLEANUP_THROW END_ASYNC_FOR POP_EXCEPT PUSH_EXC_INFO RERAISE""",
}

#: instructions that are never in the code that a transaction calls, and why
NEVER_IN_CODE = {
    "the compiler replaces it before there is a code object": """
        ANNOTATIONS_PLACEHOLDER JUMP JUMP_IF_FALSE JUMP_IF_TRUE JUMP_NO_INTERRUPT LOAD_CLOSURE POP_BLOCK SETUP_CLEANUP
        SETUP_FINALLY SETUP_WITH STORE_FAST_MAYBE_NULL""",
    "only in frames of the interpreter itself": "EXIT_INIT_CHECK INTERPRETER_EXIT",
    "the interpreter puts it into its own copy of the code; co_code has the original": "ENTER_EXECUTOR",
    "unassigned": "RESERVED",
}

#: function of CALL_INTRINSIC_1 or CALL_INTRINSIC_2 -> its barrier
INTRINSIC_BARRIERS = {
    "INTRINSIC_UNARY_POSITIVE": ("truth", None),
    "INTRINSIC_PREP_RERAISE_STAR": ("group", None),
    "INTRINSIC_IMPORT_STAR": ("unknown", "import of all names of a module"),
    "INTRINSIC_PRINT": ("unknown", "printing of an expression statement"),
}

#: why such a function needs no barrier -> the functions
INTRINSICS_WITHOUT_BARRIER = {
    "makes an object": """
        INTRINSIC_ASYNC_GEN_WRAP INTRINSIC_PARAMSPEC INTRINSIC_STOPITERATION_ERROR INTRINSIC_SUBSCRIPT_GENERIC
        INTRINSIC_TYPEALIAS INTRINSIC_TYPEVAR INTRINSIC_TYPEVARTUPLE INTRINSIC_TYPEVAR_WITH_BOUND
        INTRINSIC_TYPEVAR_WITH_CONSTRAINTS""",
    "works on an object that this activation has just made": """
        INTRINSIC_LIST_TO_TUPLE INTRINSIC_SET_FUNCTION_TYPE_PARAMS INTRINSIC_SET_TYPEPARAM_DEFAULT""",
    "only says that there is no such function": "INTRINSIC_1_INVALID INTRINSIC_2_INVALID",
}


#: Methods that C code calls, name -> barrier before they return: what they return is looked into by that code.
RETURN_BARRIERS = {
    "__iter__": ("iterable_returned", None),
    "keys": ("iterable_returned", None),
    **dict.fromkeys(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"), ("truth", None)),
}


def words(groups):
    """The words of all groups of such a table."""
    return frozenset(name for group in groups.values() for name in group.split())


WITHOUT_BARRIER = words(NO_BARRIER)
INTRINSICS = words(INTRINSICS_WITHOUT_BARRIER)

#: functions whose result is a number, or a bool, whatever they are given
NUMERIC_BUILTINS = {
    name: getattr(builtins, name)
    for name in ("len", "int", "float", "ord", "hash", "id", "isinstance", "issubclass", "callable", "hasattr")
}

#: builtins for which barriers are left out, or chosen, by name
ASSUMED_BUILTINS = ("range", *NUMERIC_BUILTINS)

#: attributes that stand for all others
SPECIAL_ATTRIBUTES = dict.fromkeys(
    ("__dict__", "__class__"), {"attr_read": "special_read", "attr_write": "special_write"}
)

#: bytes of code that a function may have to be instrumented
LONGEST = 1 << 16

NUMBER, INERT = "number", "inert"


class _Text(str):
    """The fact that something is this text: the fact `INERT`, and more."""

    def __new__(cls, text):
        fact = super().__new__(cls, INERT)
        fact.text = text
        return fact


GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
JUMPS = set(dis.hasjump) if hasattr(dis, "hasjump") else set(dis.hasjrel)

_lock = threading.RLock()
_barriers, _tables = {}, {}
#: id of a code object -> (weak reference to it, names of the globals that it rebinds)
_globals_of = {}
#: id of a code object -> (weak reference to it, {what of its module matters: instrumented code})
_done = {}
#: id of a code object that cannot be instrumented -> weak reference to it
_hopeless = {}


def barrier(name, operand=None, table=None):
    """What bytecode calls; one for each name, operand and table, made once and immortal.

    Args:
        table: of the function at whose beginning the barrier stands, where it has none yet.
    """
    key = name, operand if operand is None or isinstance(operand, (str, tuple)) else id(operand), id(table)
    try:
        return _barriers[key]
    except KeyError:
        with _lock:
            made = _engine.make_barrier(name, operand) if table is None else _engine.make_barrier(name, operand, table)
            return _barriers.setdefault(key, made)


def barrier_table(barriers):
    """What the engine finds these barriers in by their numbers; made once and immortal."""
    try:
        return _tables[barriers]
    except KeyError:
        with _lock:
            return _tables.setdefault(barriers, _engine.make_table(barriers))


def barriers_in(code):
    """[(instruction, barrier right before it)] of instrumented code, in its order; not of code nested in it."""
    found, numbered = [], ()
    instructions = list(dis.get_instructions(code))
    for n, i in enumerate(instructions):
        if i.opname == "LOAD_CONST" and isinstance(i.argval, _engine.BarrierTable):
            numbered = i.argval.barriers
        elif i.opname == "LOAD_CONST" and isinstance(i.argval, _engine.Barrier):
            found.append((instructions[n + 3], i.argval))
            if i.argval.table is not None:
                numbered = i.argval.table.barriers
        elif i.opname == "SETUP_ANNOTATIONS" and numbered:
            found.append((instructions[n + 1], numbered[code.co_code[i.offset + 1]]))
    return found


def trusted(function):
    """Declare a function that is aware of transactions by itself: it is not instrumented (decorator).

    To do so stops all threads for a moment.  What a trusted function defines is trusted already, and needs no decorator.
    """
    if not function.__code__.co_flags & _engine.CO_TRUSTED:
        _engine.replace_code(function, _trusted_code(function.__code__))
    return function


def _trusted_code(code):
    """The code, and the functions and comprehensions inside it, marked as trusted."""
    consts = tuple(_trusted_code(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=consts, co_flags=code.co_flags | _engine.CO_TRUSTED)


#: Do instructions have barriers of their own, on the engine's evaluation loop?  Then nothing is rewritten.
OWN_LOOP = bool(os.environ.get("STM_OWN_LOOP")) and hasattr(_engine, "use_loop")


def has_barriers(code):
    """Has this code been instrumented, or declared trusted?"""
    return OWN_LOOP or bool(code.co_flags & (_engine.CO_INSTRUMENTED | _engine.CO_TRUSTED))


def is_instrumented(code):
    """Has this code barriers?"""
    wanted = 0 if OWN_LOOP else _engine.CO_INSTRUMENTED
    return code.co_flags & (_engine.CO_INSTRUMENTED | _engine.CO_TRUSTED) == wanted


def instrument(function):
    """Replace the function's code by one with barriers.  Idempotent; other threads may be calling the function.

    Returns:
        False if that cannot be done; nothing is done then.
    """
    code = function.__code__
    if has_barriers(code):
        return True
    namespace = function.__globals__
    with _lock:
        instrumented = _instrumented(code, namespace)
        if instrumented is None:
            return False
        _engine.replace_code(function, instrumented)
    return True


def with_barriers(suspended):
    """The same call once more, by the function's instrumented code, if a coroutine or generator was made without and has not begun.

    Uninstrumented ones would run exclusively as long as they live; such are made by code outside transactions.  What is
    given is closed then.

    Returns:
        The new coroutine or generator; anything else as it is.
    """
    function = _engine.unstarted_function(suspended)
    if function is None:
        return suspended
    kind = "cr" if isinstance(suspended, types.CoroutineType) else "gi"
    code = getattr(suspended, f"{kind}_code")
    if has_barriers(code):
        return suspended
    values = getattr(suspended, f"{kind}_frame").f_locals
    names = code.co_varnames
    positional = code.co_argcount
    keywords = names[positional : positional + code.co_kwonlyargcount]
    rest = positional + code.co_kwonlyargcount
    arguments = [values[name] for name in names[:positional]]
    named = {name: values[name] for name in keywords}
    if code.co_flags & inspect.CO_VARARGS:
        arguments += values[names[rest]]
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named.update(values[names[rest]])
    _engine.ensure_instrumented(function)
    again = function(*arguments, **named)
    _engine.defer(suspended.close)
    return again


def instrument_module_code(code, namespace):
    """The instrumented form of code that `exec` is about to run in this namespace; None if there can be none."""
    with _lock:
        module_rebinds(namespace, code)
        return code if has_barriers(code) else _instrumented(code, namespace)


def _instrumented(code, namespace):
    rebound = module_rebinds(namespace)
    usual = namespace.get("__builtins__", builtins) in (builtins, vars(builtins))
    shadowed = frozenset(name for name in ASSUMED_BUILTINS if name in namespace or not usual)
    key = id(code)
    if key not in _done:
        forget = _done.pop  # found now: the code may outlive this module when the interpreter ends
        _done[key] = weakref.ref(code, lambda _: forget(key, None)), {}
    variants = _done[key][1]
    if (rebound, shadowed) not in variants:
        instrumented = instrument_code(code, shadowed, rebound, frozenset())
        if instrumented is None:
            return None
        variants[rebound, shadowed] = instrumented
    return variants[rebound, shadowed]


def module_rebinds(namespace, code=None):
    """The names of module globals that functions of the module, or this code of it, rebind: the ones that need barriers.

    Found once, when the first function of the module is instrumented; a later assignment to another name is exclusive.
    """
    known = _engine.rebound_globals(namespace)
    if known is None:
        codes = (*_codes_of_module(namespace), *([code] if code else []))
        known = frozenset().union(*map(_stored_globals, codes))
        _engine.register_module(namespace, known)
    return known


def see_globals(namespace):
    """Have the engine know these globals, whoever has got hold of them."""
    with _lock:
        module_rebinds(namespace)


def _codes_of_module(namespace):
    seen = set()
    todo = list(namespace.copy().values())
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        value = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(value, types.FunctionType):
            if value.__globals__ is namespace:
                yield value.__code__
            todo.extend(vars(value).copy().values())  # __wrapped__ of decorators
            todo.extend(cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
        elif isinstance(value, property):
            todo.extend((value.fget, value.fset, value.fdel))
        elif isinstance(value, type) and value.__module__ == namespace.get("__name__"):
            todo.extend(vars(value).copy().values())


def _filled(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _instructions(code, *names):
    """The instructions of these names; cheap where there are none, which is nearly everywhere."""
    present = set(code.co_code[::2])
    if not any(opcode.opmap[name] in present for name in names):
        return []
    return [i for i in dis.get_instructions(code) if i.opname in names]


def _stored_globals(code):
    """Names of globals that the code, or code nested in it, rebinds.  Remembered: a template is run again and again."""
    key = id(code)
    if key not in _globals_of:
        names = {instruction.argval for instruction in _instructions(code, "STORE_GLOBAL", "DELETE_GLOBAL")}
        if "globals" in code.co_names:
            # globals()["name"] = ...: any constant may be such a name.
            names.update(const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
        names.update(*(_stored_globals(const) for const in code.co_consts if isinstance(const, types.CodeType)))
        forget = _globals_of.pop
        _globals_of[key] = weakref.ref(code, lambda _: forget(key, None)), frozenset(names)
    return _globals_of[key][1]


def _stored_cells(code, names):
    """Names of closure variables that code nested in this one rebinds."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            stores = _instructions(const, "STORE_DEREF", "DELETE_DEREF")
            names.update(i.argval for i in stores if i.argval in const.co_freevars)
            _stored_cells(const, names)


def _stable_cells(code, outer_stable):
    """Closure variables that need no barrier here and in nested code.

    A variable that no nested function rebinds is only written by the function that has it; unless that is a generator,
    it does so in one transaction, before which nobody else knows the cell.
    """
    rebound = set()
    _stored_cells(code, rebound)
    own = set(code.co_cellvars) - rebound
    if code.co_flags & GENERATOR_FLAGS:
        own -= {i.argval for i in _instructions(code, "STORE_DEREF", "DELETE_DEREF")}
    inherited = {name for name in code.co_freevars if name in outer_stable or name == "__class__"}
    return frozenset(own | inherited)


def instrument_code(code, shadowed, rebound, outer_stable):
    """A copy of the code with barriers, and so for the code nested in it, as far as that can be had.

    Args:
        code: a code object of CPython's compiler.
        shadowed: names of builtins that its module has globals of.
        rebound: names of globals that need barriers.
        outer_stable: closure variables of the enclosing code that need none.

    Returns:
        The copy, or None: whoever calls the code has to run alone.
    """
    if id(code) in _hopeless:
        return None
    if len(code.co_code) > LONGEST:
        _give_up(code, "it is very long")
        return None
    try:
        return _Rewriter(code, shadowed, rebound, outer_stable).result()
    except (RecursionError, MemoryError):
        return None  # not for want of skill: later it may be done
    except Exception as e:
        _give_up(code, f"its bytecode is beyond the engine ({type(e).__name__}: {e})")
        return None


def _give_up(code, why):
    """Remember that the code cannot be instrumented, and say so on the process's own standard error."""
    key, forget = id(code), _hopeless.pop
    _hopeless[key] = weakref.ref(code, lambda _: forget(key, None))
    why = " ".join(why.split())
    if sys.__stderr__ is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.__stderr__.write(
                f"tornado.stm: {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) runs alone: {why}\n"
            )


def _rename(code, names):
    """The code with other names for some variables of its own."""
    if not names:
        return code
    varnames, cellvars = (tuple(names.get(name, name) for name in old) for old in (code.co_varnames, code.co_cellvars))
    return code.replace(co_varnames=varnames, co_cellvars=cellvars)


class _Rewriter:
    def __init__(self, code, shadowed, rebound, outer_stable):
        # `bytecode` takes a variable of a comprehension for the outer one of the same name, unless it is called otherwise.
        ambiguous = {*code.co_varnames, *code.co_cellvars} & {*code.co_freevars}
        self.stable = _stable_cells(code, outer_stable) - ambiguous
        code = _rename(code, {name: name + "'" for name in ambiguous})
        self.code = code
        self.old_names = {name + "'": name for name in ambiguous}
        self.shadowed = shadowed
        self.rebound = rebound
        self.suspends = bool(code.co_flags & GENERATOR_FLAGS)
        self.bytecode = Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
        self.out = []
        self.stack = []  # what is known of the topmost stack items, topmost last
        self.done = set()  # (barrier, variable, name) that has certainly run
        self.opens = {}  # the same for barriers that had to be emitted -> how many
        self.codes = {}  # id of a nested code object -> its instrumented form
        self.find_variables()
        self.find_loops()
        self.find_blocks()

    # -- What is known ---------------------------------------------------------------------------------------------

    def find_variables(self):
        """Find the variables that are always stored from a ``range``."""
        code = self.code
        stores = {}
        for i, item in enumerate(self.bytecode):
            if isinstance(item, Instr):
                for name in _stored(item):
                    stores.setdefault(name, []).append(i)
        arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        self.numbers = set()
        for name, places in stores.items():
            if name not in code.co_varnames[:arguments] and not self.suspends:
                if all(self.is_range_target(i) for i in places):
                    self.numbers.add(name)

    def is_range_target(self, i):
        """Is the store at this place that of ``for x in range(...)``?"""
        items = self.bytecode
        item = items[i]
        first = item.name == "STORE_FAST" or item.name in ("STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
        j = _before(items, i)
        if not first or j < 0 or items[j].name != "FOR_ITER":
            return False
        j = _before(items, j)
        if j < 0 or items[j].name != "GET_ITER":
            return False
        j = _before(items, j)
        return j >= 0 and self.calls_builtin(j, "range")

    def calls_builtin(self, i, *names):
        """The builtin that the CALL at this place is for, if its callable is one of these names; else None."""
        items = self.bytecode
        if items[i].name != "CALL":
            return None
        depth = items[i].arg + 2
        j = i
        while depth > 0:
            j -= 1
            item = items[j] if j >= 0 else None
            if item is None or isinstance(item, Label):
                return None
            if not isinstance(item, Instr):
                continue
            if item.name in JUMP_NAMES or item.name in ("CALL", "CALL_KW", "YIELD_VALUE", "SWAP") and depth <= 1:
                return None
            pops, pushes = _stack_effect(item)
            if item.name == "LOAD_GLOBAL" and depth <= pushes:
                break
            depth += pops - pushes
        item = items[j]
        if not (isinstance(item, Instr) and item.name == "LOAD_GLOBAL" and depth == 2 and item.arg[0]):
            return None
        name = item.arg[1]
        if name not in names or name in self.shadowed or name in self.rebound:
            return None
        return getattr(builtins, name, None)

    def find_blocks(self):
        """Cut the code into basic blocks.

        What is certain at each place of the code is found block by block.  A fact is (what, variable, attribute): a barrier has run for the object that the variable has now, and as locks
        are held to the end of the transaction, it need not run again until the variable is stored or the activation
        suspends; or the variable is a number, or inert.  What holds at a block's entry is what holds at the end of
        every block that may come before it; an exception may come from any place of a block, so its handler is only
        sure of what held throughout.
        """
        items = self.bytecode
        starts = {0}
        for i, item in enumerate(items):
            if isinstance(item, (Label, TryBegin, TryEnd)):
                starts.add(i)
            elif isinstance(item, Instr) and (item.name in JUMP_NAMES or item.name in LEAVES):
                starts.add(i + 1)
        bounds = sorted(start for start in starts if start < len(items)) + [len(items)]
        self.blocks = list(zip(bounds, bounds[1:]))
        block_of = {start: n for n, (start, _) in enumerate(self.blocks)}
        where = {item: block_of[i] for i, item in enumerate(items) if isinstance(item, Label)}
        after, handlers = [[] for _ in self.blocks], [[] for _ in self.blocks]
        active = []
        for n, (start, end) in enumerate(self.blocks):
            falls = True
            for i in range(start, end):
                item = items[i]
                if isinstance(item, TryBegin):
                    active.append(item)
                elif isinstance(item, TryEnd):
                    active = [region for region in active if region is not item.entry]
                elif isinstance(item, Instr):
                    if isinstance(item.arg, Label):
                        after[n].append(where[item.arg])
                    falls = item.name not in LEAVES
            handlers[n] = [where[region.target] for region in active]
            if falls and n + 1 < len(self.blocks):
                after[n].append(n + 1)
        self.after, self.handlers = after, handlers

    def find_facts(self, given):
        """What is certain when each block is entered, if these facts are when the function is."""
        entry = [None] * len(self.blocks)  # None: not reached yet, so everything holds
        entry[0] = given
        todo = [0]
        while todo:
            n = todo.pop()
            at_end, throughout = self.facts_of_block(*self.blocks[n], entry[n])
            for successors, facts in ((self.after[n], at_end), (self.handlers[n], throughout)):
                for successor in successors:
                    new = facts if entry[successor] is None else entry[successor] & facts
                    if new != entry[successor]:
                        entry[successor] = new
                        todo.append(successor)
        self.entry = {start: entry[n] or frozenset() for n, (start, _) in enumerate(self.blocks)}

    def facts_of_block(self, start, end, facts):
        """What holds at the end of the block, and what does all the time, if these facts hold at its entry."""
        self.done = set(facts)
        self.stack.clear()
        throughout = facts
        for i in range(start, end):
            item = self.bytecode[i]
            if isinstance(item, Instr):
                self.choose(i, item)
                self.track(i, item)
                if item.name in FORGETTING:
                    throughout &= self.done
        return frozenset(self.done), throughout

    def forget(self, names):
        """These variables are stored: nothing is known of them any more."""
        if self.done:
            self.done = {fact for fact in self.done if fact[1] not in names}
        self.stack[:] = [None if isinstance(k, tuple) and k[1] in names else k for k in self.stack]

    def store(self, name, known):
        self.forget((name,))
        if known in (NUMBER, INERT):
            self.done.add((known, name, None))

    def known(self, depth):
        """What is known of the stack item that many below the top (1 is the top)."""
        return self.stack[-depth] if depth <= len(self.stack) else None

    def variable_fact(self, name):
        if name in self.numbers or (NUMBER, name, None) in self.done:
            return NUMBER
        return INERT if (INERT, name, None) in self.done else ("variable", name)

    def track(self, i, item):
        """Update what is known of the stack by one instruction."""
        name = item.name
        stack = self.stack
        if name == "LOAD_SMALL_INT":
            stack.append(NUMBER)
            return
        if name == "LOAD_CONST":
            inert = isinstance(item.arg, (str, bytes, type(None), type(...), frozenset))
            fact = NUMBER if isinstance(item.arg, (int, float, complex)) else INERT if inert else None
            stack.append(_Text(item.arg) if type(item.arg) is str else fact)
            return
        if name in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"):
            stack.append(self.variable_fact(_variable(item.arg)))
            return
        if name in ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"):
            stack.extend(self.variable_fact(_variable(v)) for v in item.arg)
            return
        if name in ("STORE_FAST", "STORE_FAST_MAYBE_NULL"):
            self.store(_variable(item.arg), stack.pop() if stack else None)
            return
        if name == "STORE_FAST_STORE_FAST":
            for variable in item.arg:
                self.store(_variable(variable), stack.pop() if stack else None)
            return
        if name == "STORE_FAST_LOAD_FAST":
            self.store(_variable(item.arg[0]), stack.pop() if stack else None)
            stack.append(self.variable_fact(_variable(item.arg[1])))
            return
        if name in FORGETTING:
            if name == "YIELD_VALUE":
                self.done.clear()
            else:
                self.forget(_stored(item))
        result = None
        if name == "BINARY_OP" and self.known(1) == self.known(2) == NUMBER and int(item.arg) != SUBSCRIPT:
            result = NUMBER
        elif name == "COMPARE_OP" and self.known(1) == self.known(2) == NUMBER:
            result = NUMBER
        elif name in ("CONTAINS_OP", "IS_OP", "TO_BOOL", "UNARY_NOT"):
            result = NUMBER
        elif name in ("BUILD_STRING", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"):
            result = INERT
        elif name == "COPY" and item.arg <= len(stack):
            stack.append(stack[-item.arg])
            return
        elif name == "CALL" and self.calls_builtin(i, *NUMERIC_BUILTINS) and not self.suspends:
            result = NUMBER
        elif name == "CALL" and not self.suspends and self.calls_builtin(i, "range"):
            # What range() took can be used as an index: a number.
            for k in range(item.arg):
                fact = self.known(1 + k)
                if isinstance(fact, tuple):
                    self.done.add((NUMBER, fact[1], None))
        if name == "SWAP":
            if item.arg <= len(stack):
                stack[-1], stack[-item.arg] = stack[-item.arg], stack[-1]
            else:
                stack.clear()
            return
        pops, pushes = _stack_effect(item)
        for _ in range(pops):
            if stack:
                stack.pop()
        if pushes:
            stack.extend([None] * (pushes - 1))
            stack.append(result)

    # -- Which barrier ---------------------------------------------------------------------------------------------

    def choose(self, i, item):
        """(barrier, operand) for the instruction at this place, or None."""
        name = item.name
        if name == "BINARY_OP":
            if int(item.arg) == SUBSCRIPT:
                key = self.known(1)
                return ("key_read", key.text) if isinstance(key, _Text) else ("item_read", None)
            if self.known(1) in (NUMBER, INERT) and self.known(2) in (NUMBER, INERT):
                return None
            return "binary", None
        if name in ("COMPARE_OP", "CONTAINS_OP") and {self.known(1), self.known(2)} <= {NUMBER, INERT}:
            return None
        if name in ("TO_BOOL", "UNARY_NEGATIVE", "UNARY_INVERT", "FORMAT_SIMPLE", "CONVERT_VALUE"):
            if self.known(1) in (NUMBER, INERT):
                return None
        if name == "CALL" and not self.suspends:
            builtin = self.calls_builtin(i, "range", *NUMERIC_BUILTINS)
            if builtin is not None:
                return "call_builtin", builtin
        if name == "STORE_SUBSCR" and isinstance(self.known(1), _Text):
            return "key_write", self.known(1).text
        if name in ("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"):
            return None if _variable(item.arg) in self.stable else BARRIERS[name]
        if name == "LOAD_GLOBAL":
            return ("global_read", item.arg[1]) if item.arg[1] in self.rebound else None
        if name in ("CALL_INTRINSIC_1", "CALL_INTRINSIC_2"):
            function = item.arg.name
            return None if function in INTRINSICS else INTRINSIC_BARRIERS.get(function, ("unknown", function))
        if name in ("LOAD_ATTR", "STORE_ATTR"):
            attribute = item.arg[1] if name == "LOAD_ATTR" else item.arg
            kind = BARRIERS[name][0]
            fact = self.known(1)
            if isinstance(fact, tuple):
                key = kind, fact[1], attribute
                if key in self.done or ("attr_write", *key[1:]) in self.done:
                    return None
                self.done.add(key)
            if attribute in SPECIAL_ATTRIBUTES:
                kind = SPECIAL_ATTRIBUTES[attribute][kind]
            return kind, attribute
        if self.suspends and name in SUSPENDABLE_BARRIERS:
            return SUSPENDABLE_BARRIERS[name]
        if name == "RAISE_VARARGS" and not item.arg:
            return "raising_again", None
        if name == "RETURN_VALUE" and not self.suspends and self.code.co_name in RETURN_BARRIERS:
            return None if self.known(1) in (NUMBER, INERT) else RETURN_BARRIERS[self.code.co_name]
        if name == "SETUP_ANNOTATIONS":
            return "name_write", "__annotations__"
        if name in BARRIERS:
            kind, source = BARRIERS[name]
            arg = item.arg
            return kind, (arg[-1] if isinstance(arg, tuple) else arg) if source == "name" else None
        if name in WITHOUT_BARRIER:
            return None
        return "unknown", name

    def handles_exceptions(self):
        """Has this generator handlers besides the one around all of it, which turns StopIteration into an error?"""
        return len({item.target for item in self.bytecode if isinstance(item, TryBegin)}) > 1

    def has_self(self, name):
        """Is this a method of this name whose first argument is an ordinary variable?"""
        code = self.code
        return (
            code.co_name == name and code.co_argcount > 0 and not self.suspends
            and code.co_varnames[0] not in code.co_cellvars
        )

    def result(self):
        self.find_facts(frozenset())
        start = next(i for i, item in enumerate(self.bytecode) if isinstance(item, Instr) and item.name == "RESUME") + 1
        body = self.body(start, {})
        given = self.worth_giving()
        if given:
            back_edges = self.back_edges
            other, copies = self.body_given(start, given)
            light = Label()
            location = self.first_line()
            for place, certain in back_edges:
                if given <= certain:  # as they are from the second time round on
                    body[place] = Instr("JUMP_FORWARD", copies[body[place].arg], location=body[place].location)
            body = [self.guard(given, light, location), *body, light, *other]
        self.find_facts(frozenset())
        beginning = self.body(0, {}, start)
        barriers = self.numbered(beginning + body)
        bytecode = self.bytecode
        bytecode[:] = self.written(beginning, body, barriers)
        code = bytecode.to_code(
            stacksize=self.code.co_stacksize + 2, compute_exception_stack_depths=False
        )
        if barriers:
            numbers = [barriers[item.barrier()] for item in beginning + body if _is_numbered(item)]
            consts = (*code.co_consts, barrier_table(tuple(barriers)))  # where generators find it
            code = code.replace(co_code=_with_numbers(code.co_code, numbers), co_consts=consts)
        code = _rename(code, self.old_names)
        return code.replace(co_flags=self.code.co_flags | _engine.CO_INSTRUMENTED, co_qualname=self.code.co_qualname)

    def numbered(self, items):
        """{barrier: its number in the function's table}; empty if the function is to have none."""
        has_namespace = not self.code.co_flags & inspect.CO_OPTIMIZED
        places = [item for item in items if _is_numbered(item)]
        if has_namespace or len(places) < FEWEST_IN_TABLE:
            return {}
        barriers = {}
        for item in places:
            barriers.setdefault(item.barrier(), len(barriers))
        return barriers if len(barriers) <= _engine.MOST_BARRIERS else {}

    def written(self, beginning, body, barriers):
        """The items of the code with instructions in the place of barriers."""
        table = barrier_table(tuple(barriers)) if barriers else None
        if table is not None and not any(isinstance(item, _Barrier) and item.begins for item in beginning + body):
            beginning = [*beginning, *_negation(table, self.first_line())]
            table = None
        written = []
        for item in beginning + body:
            if not isinstance(item, _Barrier):
                written.append(item)
            elif barriers and not item.begins:
                written.append(Instr("SETUP_ANNOTATIONS", location=item.location))
            else:
                written += _negation(item.barrier(table if item.begins else None), item.location, item.light)
                table = None if item.begins else table
        return written

    def first_line(self):
        """Where the function begins to do something: debuggers stop at what comes right after RESUME."""
        instructions = [item for item in self.bytecode if isinstance(item, Instr)]
        resume = next(i for i, item in enumerate(instructions) if item.name == "RESUME")
        located = [item.location for item in instructions[resume + 1 :] if item.location and item.location.lineno]
        return located[0] if located else instructions[resume].location

    def worth_giving(self):
        """The facts about arguments that are worth a second body of the function, which takes them for granted.

        A barrier at the beginning (`opened`) tells whether they hold: a method that is called again and again for
        the same objects, or for objects made in the same transaction, then does without all those barriers.  And a loop
        in which they have certainly come to hold goes on in the second body.
        """
        if self.suspends or len(self.bytecode) > LONGEST_DOUBLED:
            return frozenset()
        code = self.code
        stored = {name for item in self.bytecode if isinstance(item, Instr) for name in _stored(item)}
        constant = set(code.co_varnames[: code.co_argcount]) - stored
        spared = {fact: count for fact, count in self.opens.items() if fact[1] in constant}
        choices = [certain & spared.keys() for _, certain in self.back_edges]
        looped = max(choices, key=lambda facts: sum(map(spared.get, facts)), default=())
        if any(fact in self.opens_in_loops for fact in looped):
            return frozenset(looped)
        return frozenset(spared) if sum(spared.values()) >= FEWEST_SPARED else frozenset()

    def find_loops(self):
        """Find which places lie in a loop."""
        labels = {item: i for i, item in enumerate(self.bytecode) if isinstance(item, Label)}
        self.in_loops = set()
        for i, item in enumerate(self.bytecode):
            if isinstance(item, Instr) and item.name == "JUMP_BACKWARD":
                self.in_loops.update(range(labels[item.arg], i))

    def body_given(self, start, given):
        """The body where these facts are given, with labels and try blocks of its own; and what those stand in for."""
        copies = {item: Label() for item in self.bytecode if isinstance(item, Label)}
        for item in self.bytecode:
            if isinstance(item, TryBegin):
                copies[item] = TryBegin(copies[item.target], item.push_lasti, item.stack_depth)
        copies.update((item, TryEnd(copies[item.entry])) for item in self.bytecode if isinstance(item, TryEnd))
        self.find_facts(given)
        return self.body(start, copies), copies

    def guard(self, given, light, location):
        """Goes to the light body if the facts hold."""
        names = self.code.co_varnames
        places = {}
        for kind, variable, attribute in sorted(given):
            places.setdefault(names.index(variable), []).append(barrier(kind, attribute))
        operand = tuple((place, tuple(barriers)) for place, barriers in places.items())
        return _Barrier("opened", operand, location, begins=True, light=light)

    def body(self, start, copies, end=None):
        """The instructions with barriers; `copies` stand in for labels and the ends of try blocks."""
        self.out = []
        self.opens, self.opens_in_loops = {}, set()
        self.back_edges = []  # (place of the jump among the items, facts that certainly hold there)
        for i in range(len(self.bytecode) if end is None else end):
            item = self.bytecode[i]
            if i in self.entry:
                self.done = set(self.entry[i])
                self.stack.clear()
            if i < start:
                continue
            if not isinstance(item, Instr):
                self.out.append(copies.get(item, item))
                continue
            if item.name == "LOAD_CONST" and isinstance(item.arg, types.CodeType):
                self.out.append(Instr("LOAD_CONST", self.nested(item.arg), location=item.location))
                self.stack.append(None)
                continue
            if item.name == "RETURN_GENERATOR":
                self.out.append(_Barrier("born", self.handles_exceptions(), item.location, begins=True))
            known = self.known(1)
            chosen = self.choose(i, item)
            if chosen is not None:
                self.out.append(_Barrier(*chosen, item.location))
                if chosen[0] in ("attr_read", "attr_write") and isinstance(known, tuple):
                    fact = chosen[0], known[1], chosen[1]
                    self.opens[fact] = self.opens.get(fact, 0) + 1
                    if i in self.in_loops:
                        self.opens_in_loops.add(fact)
            self.track(i, item)
            if item.name == "JUMP_BACKWARD":
                self.back_edges.append((len(self.out), frozenset(self.done)))
            if isinstance(item.arg, Label) and copies:
                self.out.append(Instr(item.name, copies[item.arg], location=item.location))
            else:
                self.out.append(item)
            if item.name == "PUSH_EXC_INFO":
                # A doomed transaction gets past no handler.
                self.out.append(_Barrier("handler", None, item.location))
            elif item.name == "GET_ITER" and self.suspends:
                self.out.append(_Barrier("got_iterator", None, item.location))
            elif item.name in DISPLAYS:
                self.out.append(_Barrier("made", None, item.location))
            elif item.name == "RESUME" and i + 1 == end and self.has_self("__init__"):
                self.out.append(_Barrier("constructed", None, self.first_line(), begins=True))
            elif item.name == "RESUME" and i + 1 == end and self.has_self("__del__"):
                self.out.append(_Barrier("finalizing", None, self.first_line(), begins=True))
        return self.out

    def nested(self, code):
        if id(code) not in self.codes:
            self.codes[id(code)] = instrument_code(code, self.shadowed, self.rebound, self.stable) or code
        return self.codes[id(code)]


@dataclasses.dataclass(frozen=True)
class _Barrier:
    """A place in rewritten code where a barrier is called."""

    kind: str
    operand: object
    location: object
    begins: bool = False  # where the function does, which gets its table then
    light: Label = None  # where to go if the answer is yes

    def barrier(self, table=None):
        return barrier(self.kind, self.operand, table)


def _is_numbered(item):
    return isinstance(item, _Barrier) and not item.begins


def _negation(operand, location, target=None):
    """The instructions that negate an object of the engine, and go to the target if that gives True."""
    return (
        Instr("LOAD_CONST", operand, location=location),
        Instr("UNARY_NEGATIVE", location=location),
        Instr("POP_TOP", location=location) if target is None else Instr("POP_JUMP_IF_TRUE", target, location=location),
    )


def _with_numbers(code, numbers):
    """The bytes of code with these arguments of the instruction that calls barriers by their numbers."""
    code = bytearray(code)
    places = (i for i in range(0, len(code), 2) if code[i] == opcode.opmap["SETUP_ANNOTATIONS"])
    for i, number in zip(places, numbers, strict=True):
        code[i + 1] = number
    return bytes(code)


#: a function gets a table of its barriers if it calls at least so many
FEWEST_IN_TABLE = 3
#: a function gets a second body if that spares at least so many barriers, and is not longer than this
FEWEST_SPARED, LONGEST_DOUBLED = 3, 200
DISPLAYS = {"BUILD_LIST", "BUILD_MAP", "BUILD_SET"}
SUBSCRIPT = next((i for i, (name, _) in enumerate(opcode._nb_ops) if name == "NB_SUBSCR"), -1)
JUMP_NAMES = {opcode.opname[op] for op in JUMPS}
#: instructions after which the next one does not come
LEAVES = {
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE",
}


#: instructions that end what is known of variables
STORES = {
    "STORE_FAST", "STORE_FAST_MAYBE_NULL", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST", "DELETE_FAST",
    "LOAD_FAST_AND_CLEAR",
}
FORGETTING = STORES | {"YIELD_VALUE"}


def _variable(arg):
    return arg if isinstance(arg, str) else arg.name


def _stored(item):
    """The local variables that the instruction stores or clears."""
    if item.name not in STORES:
        return ()
    if item.name == "STORE_FAST_LOAD_FAST":
        return (_variable(item.arg[0]),)
    return tuple(map(_variable, item.arg)) if isinstance(item.arg, tuple) else (_variable(item.arg),)


def _stack_effect(item):
    """(items popped, items pushed) by an instruction that does not jump."""
    first, second = item.pre_and_post_stack_effect(jump=False)
    return max(0, -first), second + max(0, first)


def _before(items, i):
    """The place of the instruction before this one, past labels and the ends of try blocks; -1 if there is none."""
    i -= 1
    while i >= 0 and not isinstance(items[i], Instr):
        i -= 1
    return i


class _PythonClass:
    """Tells the engine what a class made by a class statement looks like."""


TOOL = 4
_active = False


def activate():
    """Let the engine see Python code that starts in a transaction without having been announced by a call barrier."""
    global _active
    with _lock:
        if _active:
            return
        _active = True
        main_thread = threading.main_thread().ident
        _engine.configure(instrument, see_globals, sys.monitoring.DISABLE, _PythonClass, main_thread)
        _engine.hide_frames(os.path.join(os.path.dirname(__file__), ""), "")
        _engine.holds(functools.partial, "func")
        for name, module in list(sys.modules.items()):
            if name == "bytecode" or name.startswith("bytecode.") or name == __name__:
                _trust_module(module)
        if OWN_LOOP:
            _engine.use_loop(True)
            return
        if os.environ.get("STM_OWN_LOOP"):
            print("tornado.stm: this engine was compiled without an evaluation loop: run make loop", file=sys.stderr)
        monitoring = sys.monitoring
        monitoring.use_tool_id(TOOL, "tornado.stm")
        monitoring.register_callback(TOOL, monitoring.events.PY_START, _engine.on_python_start)
        monitoring.register_callback(TOOL, monitoring.events.PY_RESUME, _engine.on_python_start)
        monitoring.set_events(TOOL, monitoring.events.PY_START | monitoring.events.PY_RESUME)


def _trust_module(module):
    """What the instrumenter itself runs must not be instrumented, nor be looked at each time it starts.

    Only the module's own functions: what it imports from elsewhere, such as `enum.IntFlag`, is the program's too.
    """
    for value in list(vars(module).values()):
        members = vars(value).values() if isinstance(value, type) else [value]
        for member in list(members):
            member = getattr(member, "__func__", member)
            for function in (member, getattr(member, "fget", None), getattr(member, "fset", None)):
                if isinstance(function, types.FunctionType) and function.__globals__ is vars(module):
                    _trust_code(function)


def _trust_code(function):
    if OWN_LOOP or not has_barriers(function.__code__):
        trusted(function)
