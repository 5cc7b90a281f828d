"""What of CPython's own sources the loop is made of, and what is changed in each before it is compiled.

The executable exports most of what the loop needs.  What it hides comes from the files that define it, compiled once more;
whatever they define that the executable exports is turned into a reference to that (`symbols`), so that no state of
the interpreter exists twice.
"""

import re

#: files that define what the executable hides and the loop needs
BORROWED = """
    Objects/abstract Objects/call Objects/codeobject Objects/dictobject Objects/exceptions Objects/floatobject
    Objects/frameobject Objects/funcobject Objects/listobject Objects/moduleobject Objects/object Objects/obmalloc Objects/sliceobject
    Objects/typeobject Python/errors Python/frame Python/qsbr Python/import Python/legacy_tracing Python/pystate Python/suggestions
    Python/sysmodule Python/traceback
""".split()

#: Whatever is compared by identity must be the executable's own: `loop.c` fetches these when it begins.
IDENTITIES = {
    "loop_function_vectorcall": "vectorcallfunc",
    "loop_getattr_hook": "getattrofunc",
    "loop_getattro": "getattrofunc",
    "loop_missing": "PyObject *",
    "loop_disable": "PyObject *",
}

#: What the loop calls for nearly every call, though the executable exports it: it has copies of its own, which the compiler
#: may put in line.  They are declared in `loop.h`.
_ARRAY, _ARRAY_FREE, _PUSH, _POP = (
    (rf"\b{name}\b", f"loop{name}")
    for name in ("_PyObjectArray_FromStackRefArray", "_PyObjectArray_Free", "_PyEvalFramePushAndInit", "_PyEval_FrameClearAndPop")
)

_MISSING = (r"&_PyInstrumentation_MISSING\b", "loop_missing")
_DISABLE = (r"&_PyInstrumentation_DISABLE\b", "loop_disable")

#: file: what is replaced in it, by what.  A pattern that is found nowhere ends the build.
CHANGED = {
    "Python/ceval": [
        (r"\b_PyEval_EvalFrameDefault\b", "loop_evaluate"),
        _ARRAY,
        _ARRAY_FREE,
        _PUSH,
        _POP,
    ],
    "ceval_macros": [_ARRAY, _ARRAY_FREE],
    "Python/specialize": [
        # frames of this loop are inlined and specialised as on the stock one
        (r"_PyInterpreterState_GET\(\)->eval_frame", "0"),
        (r"vectorcall != _PyFunction_Vectorcall", "vectorcall != loop_function_vectorcall"),
        (r"\b_Py_type_getattro\b", "(PyType_Type.tp_getattro)"),
        (r"\b_Py_slot_tp_getattr_hook\b", "loop_getattr_hook"),
        (r"\b_Py_slot_tp_getattro\b", "loop_getattro"),
    ],
    "Python/instrumentation": [
        (r"(?m)^PyObject _PyInstrumentation_(?:MISSING|DISABLE)\b.*$", ""),
        _MISSING,
        _DISABLE,
        # what a tool notes of the program is no part of the program's transactions
        (r"_PyObject_VectorcallTstate\(tstate, instrument, args, nargsf, NULL\)", "stm_call_tool(instrument, args, nargsf)"),
    ],
    "generated_cases": [
        (r"vectorcall == _PyFunction_Vectorcall", "vectorcall == loop_function_vectorcall"),
        _MISSING,
        _PUSH,
        _POP,
        # an abort passes every handler; a doomed attempt that calls nothing is told at its jumps
        (r"int handled = get_exception_handler\(", "int handled = !stm_unwinds(tstate, frame) && get_exception_handler("),
        (r"_Py_HandlePending\(tstate\)", "stm_handle_pending(tstate)"),
    ],
}


def changed(name, text):
    """The text of that file as the loop needs it.

    Raises:
        ValueError: something that is to be replaced is not in it.
    """
    for pattern, replacement in CHANGED[name]:
        text, places = re.subn(pattern, lambda match, text_of=replacement: text_of, text)
        if not places:
            raise ValueError(f"{name} has no {pattern!r}")
    if "/" in name:
        declared = "".join(
            f'extern __attribute__((visibility("hidden"))) {kind} {identity};\n' for identity, kind in IDENTITIES.items()
        )
        declared += "PyObject *stm_call_tool(PyObject *tool, PyObject *const *args, size_t nargsf);\n"
        text = text.replace('#include "Python.h"\n', f'#include "Python.h"\n{declared}', 1)
    return text
