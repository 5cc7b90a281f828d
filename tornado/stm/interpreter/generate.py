"""Make the cases of the evaluation loop: CPython's own instructions with our micro-ops.

The instructions' definitions (``Python/bytecodes.c``) are read, and the cases written, by CPython's own generator
(``Tools/cases_generator``).  In between the micro-ops of `instructions` are put into the list of those that an instruction is made of; so
the generator sees to it that a barrier finds its operands, and that the stack is in order when a barrier fails or waits.
"""

import importlib
import io
import re
import subprocess
import sys

from . import instructions

#: The loop is the interpreter's frame evaluation function, so it must not take that for somebody else's.
OWN_FRAMES = [
    (r"tstate->interp->eval_frame == NULL", "1"),
    (r"DEOPT_IF\(tstate->interp->eval_frame\)", "DEOPT_IF(0)"),
]

#: What an instruction loads need not be counted (borrowed.c).
LOADS = [
    (r"\b_Py_TryIncrefCompareStackRef\(", "STM_LOAD(frame, "),
    (r"\b_PyCell_GetStackRef\(cell\)", "STM_LOAD_CELL(frame, cell)"),
    (
        r"PyObject \*res_o = _PyList_GetItemRef\(\(PyListObject\*\)list, index\);\s*DEOPT_IF\(res_o == NULL\);"
        r"\s*STAT_INC\(BINARY_OP, hit\);\s*res = PyStackRef_FromPyObjectSteal\(res_o\);",
        """_PyStackRef item = PyStackRef_NULL;
            bool loaded = STM_LOAD_ITEM(frame, (PyListObject *)list, index, &item);
            if (!loaded) {
                PyObject *res_o = _PyList_GetItemRef((PyListObject *)list, index);
                DEOPT_IF(res_o == NULL);
                item = PyStackRef_FromPyObjectSteal(res_o);
            }
            res = item;""",
    ),
    (
        r"int result = _PyList_GetItemRefNoLock\(seq, it->it_index, &next\);",
        "int result = STM_LOAD_ITEM(frame, seq, it->it_index, &next) ? 1 : _PyList_GetItemRefNoLock(seq, it->it_index, &next);",
    ),
    (
        r"!_Py_IsOwnedByCurrentThread\(\(PyObject \*\)it->it_seq\) \|\|\s*!_PyObject_GC_IS_SHARED\(it->it_seq\)",
        "!STM_STEPS(frame, it->it_seq)",
    ),
]

#: what nobody else knows needs no lock of the interpreter's
LOCKS = [(r"\bLOCK_OBJECT\(", "STM_LOCK("), (r"\bUNLOCK_OBJECT\(", "STM_UNLOCK(")]

#: where the argument of an instruction says which name it means, how
NAMES = {"NAME": "oparg", "NAME2": "oparg >> 1", "NAME4": "oparg >> 2"}


def micro_op(name, stack, test, call):
    """The definition of a micro-op, in the language of ``bytecodes.c``.

    Its operands get names that no other micro-op has: those of an instruction share the variables of one name.
    """
    names = {operand: f"our_{operand}" for operand in re.findall(r"\b(?!unused\b|oparg\b)[a-z_]+\b", stack)}
    arrays = re.findall(r"(\w+)\[", stack)

    def expand(text):
        text = re.sub(r"\{(\w+)\}", lambda match: f"PyStackRef_AsPyObjectBorrow({names[match[1]]})", text)
        text = re.sub(r"\bNAME\d?\b", lambda match: f"GETITEM(FRAME_CO_NAMES, {NAMES[match[0]]})", text)
        return re.sub(r"\b(%s)\b" % "|".join(arrays or "-"), lambda match: names.get(match[0], match[0]), text)

    stack = re.sub(r"[a-z_]+", lambda match: names.get(match[0], match[0]), stack)
    lines = [f"op({name}, ({stack} -- {stack})) {{"]
    if call is None:
        lines.append(f"    {expand(test)};")
    else:
        lines += [
            f"    if ({expand(test)}) {{",
            f"        int barrier = {expand(call)};",
            "        if (barrier < 0) {",
            "            ERROR_NO_POP();",
            "        }",
            "    }",
        ]
    return "\n".join([*lines, "}"])


def first(instruction, is_micro_op):
    """Where a barrier goes: behind what specialises the instruction, which begins it anew, and what unpacks methods."""
    for i, part in enumerate(instruction.parts):
        if is_micro_op(part) and not part.name.startswith(("_SPECIALIZE_", "_MAYBE_EXPAND_METHOD")):
            return i
    raise ValueError(f"{instruction.name} is made of nothing that a barrier could stand in front of")


def generate(source, output):
    """Make what the loop of that version of CPython includes: the text of its cases; and `opcode_targets.h`, in that folder.

    Args:
        source: the folder of its unpacked source.
        output: the folder, for what is made on the way, too.

    Raises:
        ValueError: the tables of `instructions` do not fit this interpreter.
    """
    analyzer, tier1 = cases_generator(source)
    text = (source / "Python" / "bytecodes.c").read_text()
    for pattern, replacement in OWN_FRAMES + LOADS + LOCKS:
        text, places = re.subn(pattern, replacement, text)
        if not places:
            raise ValueError(f"Python/bytecodes.c has no {pattern!r}")
    definitions = output / "bytecodes.c"
    definitions.write_text(text)
    ours = output / "barriers.bytecodes.c"
    body = "\n\n".join(micro_op(name, *line) for name, line in instructions.MICRO_OPS.items())
    ours.write_text(f"// BEGIN BYTECODES //\n{body}\n// END BYTECODES //\n")
    analysis = analyzer.analyze_files([str(definitions), str(ours)])
    instructions.check(analysis.instructions)

    def is_micro_op(part):
        return isinstance(part, analyzer.Uop)

    def insert(instruction, at, name):
        stack = instructions.MICRO_OPS[name][0]
        if "[" in stack and "," in stack and instruction.properties.deopts:
            # what gives up in the middle, for the generic form, finds its operands only where they were
            raise ValueError(f"{name} takes some operands of {instruction.name} off the stack, which may give up behind it")
        instruction.parts.insert(at, analysis.uops[name])
        instruction._properties = None  # they are those of its parts

    for table, place in (
        (instructions.BARRIERS, lambda instruction: first(instruction, is_micro_op)),
        (instructions.BEHIND, lambda instruction: len(instruction.parts)),
    ):
        for name, names in table.items():
            for instruction in map(analysis.instructions.__getitem__, names.split()):
                insert(instruction, place(instruction), name)
    for name, (instruction, behind) in instructions.WITHIN.items():
        instruction = analysis.instructions[instruction]
        places = [i for i, part in enumerate(instruction.parts) if is_micro_op(part) and part.name == behind]
        if len(places) != 1:
            raise ValueError(f"{instruction.name} has {len(places)} micro-ops {behind}")
        insert(instruction, places[0] + 1, name)
    cases = io.StringIO()
    tier1.generate_tier1([str(definitions), str(ours)], analysis, cases, False)
    tool = source / "Tools" / "cases_generator" / "target_generator.py"
    targets = output / "opcode_targets.new"
    subprocess.run([sys.executable, tool, "-o", targets, definitions], check=True)
    write(output / "opcode_targets.h", targets.read_text())
    return cases.getvalue()


def cases_generator(source):
    """The modules `analyzer` and `tier1_generator` of that version's generator; another version's have the same names."""
    folder = str(source / "Tools" / "cases_generator")
    sys.path.insert(0, folder)
    try:
        return [importlib.import_module(name) for name in ("analyzer", "tier1_generator")]
    finally:
        sys.path.remove(folder)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(folder):
                del sys.modules[name]


def write(path, text):
    """Write a file, unless that is what it says already: so that what is compiled from it is known to be right."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
