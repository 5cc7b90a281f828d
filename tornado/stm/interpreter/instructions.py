"""Which instruction of the interpreter has which barrier, and why the others need none.

A *barrier* is a micro-op that is put in front of those of an instruction (or behind them, where it is about what the
instruction has made).  It is made here from a line of `MICRO_OPS`: the operands that it looks at, the test whether anything is left to
do (inline; nothing that can stop or fail), and the function of the engine that then does it.  An operand is an object,
which both get borrowed; several with a number (``site[oparg+2]``) are where they lie on the stack, so that the function
may put another callable there.

`BARRIERS` and `WITHOUT` together name every instruction of CPython 3.14, also the specialised and the instrumented forms:
`check` compares them with the interpreter's own list, so that a build for a version with another instruction fails.
"""

#: micro-op: (what lies on the stack, the test, the call).  {x} is an operand; NAME, NAME2 the names that LOAD_ATTR's and
#: other instructions' arguments stand for; `oparg` the argument.
MICRO_OPS = {
    "_STM_READ_ATTR": ("owner", "STM_ATTR_LEFT({owner}, NAME2, OF_READ_ATTR)", "stm_read_attr({owner}, NAME2)"),
    "_STM_READ_VALUE": ("owner", "STM_VALUE_LEFT({owner}, NAME2)", "stm_read_attr({owner}, NAME2)"),
    "_STM_READ_MODULE": ("module", "STM_MODULE_LEFT({module}, NAME2)", "stm_read_attr({module}, NAME2)"),
    "_STM_WRITE_ATTR": ("value, owner", "STM_ATTR_LEFT({owner}, NAME, OF_WRITTEN_ATTR)", "stm_write_attr({owner}, NAME, {value})"),
    "_STM_WRITE_VALUE": ("value, owner", "STM_WRITTEN_VALUE_LEFT({owner}, NAME)", "stm_write_attr({owner}, NAME, {value})"),
    "_STM_DELETE_ATTR": ("owner", "STM_ACTS()", "stm_delete_attr({owner}, NAME)"),
    "_STM_SUPER_ATTR": ("super, type, self", "STM_ACTS()", "stm_super_attr({super}, {self}, NAME4, oparg)"),
    "_STM_READ_ITEM": ("container, key", "STM_ITEM_LEFT({container}, {key})", "stm_read_item({container}, {key})"),
    "_STM_WRITE_ITEM": ("value, container, key", "STM_KEY_LEFT({container}, {key})", "stm_write_item({container}, {key}, {value})"),
    "_STM_DELETE_ITEM": ("site[2]", "STM_ACTS()", "stm_delete_item(site)"),
    "_STM_READ_SLICE": ("container, start, stop", "STM_WHOLE_LEFT({container})", "stm_read_whole({container})"),
    "_STM_WRITE_SLICE": ("value, container, start, stop", "STM_ACTS()", "stm_write_slice({container}, {value})"),
    "_STM_CONTAINS": ("item, container", "STM_CONTAINS_LEFT({item}, {container})", "stm_contains({item}, {container})"),
    "_STM_BINARY": ("left, right", "STM_BINARY_LEFT({left}, {right}, oparg)", "stm_binary({left}, {right}, oparg)"),
    "_STM_COMPARE": ("left, right", "STM_OPERANDS_LEFT({left}, {right})", "stm_compare({left}, {right})"),
    "_STM_UNARY": ("operand", "STM_WHOLE_LEFT({operand})", "stm_read_whole({operand})"),
    "_STM_TRUTH": ("operand", "STM_TRUTH_LEFT({operand})", "stm_read_whole({operand})"),
    "_STM_LENGTH": ("operand", "STM_WHOLE_LEFT({operand})", "stm_read_whole({operand})"),
    "_STM_FORMAT": ("operand", "STM_DEEP_LEFT({operand})", "stm_read_deep({operand})"),
    "_STM_FORMAT_SECOND": ("operand, specification", "STM_DEEP_LEFT({operand})", "stm_read_deep({operand})"),
    "_STM_ITERATE": ("iterable", "STM_ITERABLE_LEFT({iterable})", "stm_iterate({iterable})"),
    "_STM_GET_ITER": ("iterable", "STM_WILL_ITERATE({iterable}) || STM_ITERABLE_LEFT({iterable})", "stm_iterate({iterable})"),
    "_STM_NEXT": ("iterator", "STM_STEP_LEFT(frame, {iterator})", "stm_iterate({iterator})"),
    "_STM_SEND": ("receiver, value", "STM_SEND_LEFT(frame, {receiver}, {value})", "stm_send({receiver}, {value})"),
    "_STM_READ_CELL": ("", "STM_READ_CELL_LEFT(PyStackRef_AsPyObjectBorrow(GETLOCAL(oparg)))", "stm_read_cell(PyStackRef_AsPyObjectBorrow(GETLOCAL(oparg)))"),  # noqa: E501
    "_STM_WRITE_CELL": ("", "STM_WRITTEN_CELL_LEFT(PyStackRef_AsPyObjectBorrow(GETLOCAL(oparg)))", "stm_write_cell(PyStackRef_AsPyObjectBorrow(GETLOCAL(oparg)))"),  # noqa: E501
    "_STM_READ_GLOBAL": ("", "STM_GLOBAL_LEFT(frame, NAME2)", "stm_read_global(frame, NAME2)"),
    "_STM_WRITE_GLOBAL": ("", "STM_ACTS()", "stm_write_global(frame, NAME)"),
    "_STM_DELETE_GLOBAL": ("", "STM_ACTS()", "stm_delete_global(frame, NAME)"),
    "_STM_READ_NAME": ("", "STM_ACTS()", "stm_read_name(frame, NAME)"),
    "_STM_WRITE_NAME": ("", "STM_ACTS()", "stm_write_name(frame, NAME)"),
    "_STM_DELETE_NAME": ("", "STM_ACTS()", "stm_delete_name(frame, NAME)"),
    "_STM_NAME_OR_GLOBAL": ("namespace", "STM_ACTS()", "stm_read_name_in({namespace}, frame, NAME)"),
    "_STM_NAME_OR_CELL": ("namespace", "STM_ACTS()", "stm_read_name_or_cell({namespace}, frame, oparg)"),
    "_STM_LIST_GROWS": ("list, unused[oparg-1], item", "STM_DISPLAY_LEFT({list})", "stm_append({list})"),
    "_STM_SET_GROWS": ("set, unused[oparg-1], item", "STM_DISPLAY_LEFT({set})", "stm_write_whole({set})"),
    "_STM_DICT_GROWS": ("dict, unused[oparg-1], key, value", "STM_DISPLAY_LEFT({dict})", "stm_write_whole({dict})"),
    "_STM_LIST_EXTENDS": ("list, unused[oparg-1], items", "STM_EXTENDS_LEFT({list}, {items})", "stm_extend_list({list}, {items})"),
    "_STM_SET_EXTENDS": ("set, unused[oparg-1], items", "STM_EXTENDS_LEFT({set}, {items})", "stm_extend_set({set}, {items})"),
    "_STM_DICT_EXTENDS": ("dict, unused[oparg-1], items", "STM_EXTENDS_LEFT({dict}, {items})", "stm_extend_dict({dict}, {items})"),
    "_STM_CALL": ("site[oparg+2]", "STM_CALL_LEFT(site, oparg)", "stm_before_call(site, oparg)"),
    "_STM_CALL_KW": ("site[oparg+3]", "STM_CALL_LEFT(site, oparg)", "stm_before_call_kw(site, oparg)"),
    "_STM_CALL_EX": ("site[4]", "STM_LIVE()", "stm_before_call_ex(site)"),
    "_STM_APPEND": ("callable, self, item", "STM_APPEND_LEFT({self})", "stm_append({self})"),
    "_STM_LEN": ("callable, null, operand", "STM_WHOLE_LEFT({operand})", "stm_read_whole({operand})"),
    "_STM_STR": ("callable, null, operand", "STM_DEEP_LEFT({operand})", "stm_read_deep({operand})"),
    "_STM_TUPLE": ("callable, null, operand", "STM_ITERABLE_LEFT({operand})", "stm_iterate({operand})"),
    "_STM_EXIT": ("site[5]", "STM_LIVE()", "stm_before_exit(site)"),
    "_STM_SPECIAL": ("owner", "STM_ACTS()", "stm_load_special()"),
    "_STM_RAISE": ("raised[oparg]", "STM_ACTS()", "stm_raise(raised, oparg)"),
    "_STM_RERAISE": ("exception", "STM_ACTS()", "stm_reraise({exception})"),
    "_STM_GROUP": ("exception, types", "STM_ACTS()", "stm_split_group({exception})"),
    "_STM_MATCH_CLASS": ("subject, type, names", "STM_ACTS()", "stm_match_class({subject}, {type}, {names}, oparg)"),
    "_STM_MATCH_KEYS": ("subject, keys", "STM_ACTS()", "stm_match_keys({subject}, {keys})"),
    "_STM_IMPORT": ("level, names", "STM_ACTS()", "stm_import(frame, NAME, {level})"),
    "_STM_IMPORT_FROM": ("module", "STM_ACTS()", "stm_read_attr({module}, NAME)"),
    "_STM_INTRINSIC": ("operand", "STM_INTRINSIC_LEFT(oparg)", "stm_intrinsic_1({operand}, oparg)"),
    "_STM_INTRINSIC_2": ("first, second", "STM_ACTS()", "stm_intrinsic_2({second}, oparg)"),
    "_STM_ANNOTATIONS": ("", "STM_ACTS()", "stm_setup_annotations(frame)"),
    "_STM_HANDLER": ("caught", "STM_LIVE()", "stm_handle({caught})"),
    "_STM_SUSPEND": ("yielded", "STM_BORROWED()", "stm_suspend(frame)"),
    # what the instruction has made: nothing is left to do but to note it
    "_STM_MADE": ("made", "STM_NOTE_MADE(frame, {made})", None),
    "_STM_MADE_GENERATOR": ("made", "STM_NOTE_GENERATOR({made})", None),
    "_STM_MADE_ITERATOR": ("iterator", "STM_NOTE_ITERATOR({iterator})", None),
    "_STM_MADE_SELF": ("site[oparg+2]", "STM_NOTE_SELF(frame, PyStackRef_AsPyObjectBorrow(site[1]))", None),
}

#: micro-op: the instructions that it goes in front of
BARRIERS = {
    "_STM_READ_ATTR": "LOAD_ATTR LOAD_ATTR_WITH_HINT LOAD_ATTR_NONDESCRIPTOR_NO_DICT LOAD_ATTR_METHOD_LAZY_DICT",
    "_STM_READ_MODULE": "LOAD_ATTR_MODULE",
    "_STM_READ_VALUE": """LOAD_ATTR_INSTANCE_VALUE LOAD_ATTR_SLOT LOAD_ATTR_NONDESCRIPTOR_WITH_VALUES
        LOAD_ATTR_METHOD_WITH_VALUES""",
    "_STM_WRITE_ATTR": "STORE_ATTR STORE_ATTR_WITH_HINT",
    "_STM_WRITE_VALUE": "STORE_ATTR_INSTANCE_VALUE STORE_ATTR_SLOT",
    "_STM_DELETE_ATTR": "DELETE_ATTR",
    "_STM_SUPER_ATTR": "LOAD_SUPER_ATTR LOAD_SUPER_ATTR_ATTR LOAD_SUPER_ATTR_METHOD INSTRUMENTED_LOAD_SUPER_ATTR",
    "_STM_READ_ITEM": "BINARY_OP_SUBSCR_DICT BINARY_OP_SUBSCR_LIST_INT BINARY_OP_SUBSCR_LIST_SLICE",
    "_STM_WRITE_ITEM": "STORE_SUBSCR STORE_SUBSCR_DICT STORE_SUBSCR_LIST_INT",
    "_STM_DELETE_ITEM": "DELETE_SUBSCR",
    "_STM_READ_SLICE": "BINARY_SLICE",
    "_STM_WRITE_SLICE": "STORE_SLICE",
    "_STM_CONTAINS": "CONTAINS_OP CONTAINS_OP_DICT CONTAINS_OP_SET",
    "_STM_BINARY": "BINARY_OP BINARY_OP_EXTEND",
    "_STM_COMPARE": "COMPARE_OP",
    "_STM_UNARY": "UNARY_NEGATIVE UNARY_INVERT",
    "_STM_TRUTH": "TO_BOOL TO_BOOL_LIST",
    "_STM_LENGTH": "GET_LEN",
    "_STM_FORMAT": "FORMAT_SIMPLE CONVERT_VALUE",
    "_STM_FORMAT_SECOND": "FORMAT_WITH_SPEC",
    "_STM_ITERATE": "UNPACK_EX UNPACK_SEQUENCE UNPACK_SEQUENCE_LIST GET_YIELD_FROM_ITER GET_AITER GET_ANEXT GET_AWAITABLE",
    "_STM_GET_ITER": "GET_ITER",
    "_STM_NEXT": "FOR_ITER FOR_ITER_GEN FOR_ITER_LIST FOR_ITER_RANGE FOR_ITER_TUPLE INSTRUMENTED_FOR_ITER",
    "_STM_SEND": "SEND SEND_GEN",
    "_STM_READ_CELL": "LOAD_DEREF",
    "_STM_WRITE_CELL": "STORE_DEREF DELETE_DEREF",
    "_STM_READ_GLOBAL": "LOAD_GLOBAL LOAD_GLOBAL_MODULE LOAD_GLOBAL_BUILTIN",
    "_STM_WRITE_GLOBAL": "STORE_GLOBAL",
    "_STM_DELETE_GLOBAL": "DELETE_GLOBAL",
    "_STM_READ_NAME": "LOAD_NAME",
    "_STM_WRITE_NAME": "STORE_NAME",
    "_STM_DELETE_NAME": "DELETE_NAME",
    "_STM_NAME_OR_GLOBAL": "LOAD_FROM_DICT_OR_GLOBALS",
    "_STM_NAME_OR_CELL": "LOAD_FROM_DICT_OR_DEREF",
    "_STM_LIST_GROWS": "LIST_APPEND",
    "_STM_SET_GROWS": "SET_ADD",
    "_STM_DICT_GROWS": "MAP_ADD",
    "_STM_LIST_EXTENDS": "LIST_EXTEND",
    "_STM_SET_EXTENDS": "SET_UPDATE",
    "_STM_DICT_EXTENDS": "DICT_MERGE DICT_UPDATE",
    "_STM_CALL": """CALL INSTRUMENTED_CALL CALL_NON_PY_GENERAL CALL_BUILTIN_CLASS CALL_BUILTIN_FAST
        CALL_BUILTIN_FAST_WITH_KEYWORDS CALL_BUILTIN_O CALL_METHOD_DESCRIPTOR_FAST
        CALL_METHOD_DESCRIPTOR_FAST_WITH_KEYWORDS CALL_METHOD_DESCRIPTOR_NOARGS CALL_METHOD_DESCRIPTOR_O CALL_ISINSTANCE""",
    "_STM_CALL_KW": "CALL_KW CALL_KW_NON_PY INSTRUMENTED_CALL_KW",
    "_STM_CALL_EX": "CALL_FUNCTION_EX INSTRUMENTED_CALL_FUNCTION_EX",
    "_STM_APPEND": "CALL_LIST_APPEND",
    "_STM_LEN": "CALL_LEN",
    "_STM_STR": "CALL_STR_1",
    "_STM_TUPLE": "CALL_TUPLE_1",
    "_STM_EXIT": "WITH_EXCEPT_START",
    "_STM_SPECIAL": "LOAD_SPECIAL",
    "_STM_RAISE": "RAISE_VARARGS",
    "_STM_RERAISE": "RERAISE END_ASYNC_FOR INSTRUMENTED_END_ASYNC_FOR CLEANUP_THROW",
    "_STM_GROUP": "CHECK_EG_MATCH",
    "_STM_MATCH_CLASS": "MATCH_CLASS",
    "_STM_MATCH_KEYS": "MATCH_KEYS",
    "_STM_IMPORT": "IMPORT_NAME",
    "_STM_IMPORT_FROM": "IMPORT_FROM",
    "_STM_INTRINSIC": "CALL_INTRINSIC_1",
    "_STM_INTRINSIC_2": "CALL_INTRINSIC_2",
    "_STM_ANNOTATIONS": "SETUP_ANNOTATIONS",
    "_STM_HANDLER": "PUSH_EXC_INFO",
    "_STM_SUSPEND": "YIELD_VALUE INSTRUMENTED_YIELD_VALUE",
}

#: micro-op: the instructions that it goes behind
BEHIND = {
    "_STM_MADE": "BUILD_LIST BUILD_MAP BUILD_SET BINARY_OP_SUBSCR_LIST_SLICE",
    "_STM_MADE_GENERATOR": "RETURN_GENERATOR",
    "_STM_MADE_ITERATOR": "GET_ITER",
}

#: micro-op: (the instruction, which of its micro-ops it goes behind)
WITHIN = {
    "_STM_MADE_SELF": ("CALL_ALLOC_AND_ENTER_INIT", "_CHECK_AND_ALLOCATE_OBJECT"),
}

#: why no barrier stands in front of these
WITHOUT = {
    "only the stack of the frame, its local variables and constants": """
        COPY COPY_FREE_VARS DELETE_FAST EXIT_INIT_CHECK LOAD_COMMON_CONSTANT LOAD_CONST LOAD_CONST_IMMORTAL
        LOAD_CONST_MORTAL LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK
        LOAD_FAST_LOAD_FAST LOAD_LOCALS LOAD_SMALL_INT NOP NOT_TAKEN POP_EXCEPT POP_ITER POP_TOP PUSH_NULL
        RETURN_VALUE STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP INTERPRETER_EXIT END_FOR END_SEND
        INSTRUMENTED_END_FOR INSTRUMENTED_END_SEND INSTRUMENTED_POP_ITER INSTRUMENTED_RETURN_VALUE""",
    "it jumps, on what is true or false by identity": """
        JUMP_BACKWARD JUMP_BACKWARD_JIT JUMP_BACKWARD_NO_INTERRUPT JUMP_BACKWARD_NO_JIT JUMP_FORWARD POP_JUMP_IF_FALSE
        POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE INSTRUMENTED_JUMP_BACKWARD INSTRUMENTED_JUMP_FORWARD
        INSTRUMENTED_POP_JUMP_IF_FALSE INSTRUMENTED_POP_JUMP_IF_NONE INSTRUMENTED_POP_JUMP_IF_NOT_NONE
        INSTRUMENTED_POP_JUMP_IF_TRUE INSTRUMENTED_NOT_TAKEN""",
    "compares identities, or tests for a bool": "IS_OP UNARY_NOT",
    "guarded: its operands are of exact types whose objects never change": """
        BINARY_OP_ADD_FLOAT BINARY_OP_ADD_INT BINARY_OP_ADD_UNICODE BINARY_OP_INPLACE_ADD_UNICODE BINARY_OP_MULTIPLY_FLOAT
        BINARY_OP_MULTIPLY_INT BINARY_OP_SUBSCR_STR_INT BINARY_OP_SUBSCR_TUPLE_INT BINARY_OP_SUBTRACT_FLOAT
        BINARY_OP_SUBTRACT_INT COMPARE_OP_FLOAT COMPARE_OP_INT COMPARE_OP_STR TO_BOOL_BOOL TO_BOOL_INT TO_BOOL_NONE
        TO_BOOL_STR UNPACK_SEQUENCE_TUPLE UNPACK_SEQUENCE_TWO_TUPLE""",
    "guarded by the version of a class, which only an exclusive transaction changes": """
        TO_BOOL_ALWAYS_TRUE LOAD_ATTR_CLASS LOAD_ATTR_CLASS_WITH_METACLASS_CHECK LOAD_ATTR_METHOD_NO_DICT""",
    "it begins Python code, which has barriers of its own": """
        CALL_ALLOC_AND_ENTER_INIT CALL_BOUND_METHOD_EXACT_ARGS CALL_BOUND_METHOD_GENERAL CALL_KW_BOUND_METHOD CALL_KW_PY
        CALL_PY_EXACT_ARGS CALL_PY_GENERAL BINARY_OP_SUBSCR_GETITEM LOAD_ATTR_PROPERTY LOAD_ATTR_GETATTRIBUTE_OVERRIDDEN""",
    "what it makes nobody else knows, and needs no undo": """
        BUILD_INTERPOLATION BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TEMPLATE BUILD_TUPLE MAKE_CELL
        MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE RETURN_GENERATOR""",
    "it looks at types only": "CALL_TYPE_1 CHECK_EXC_MATCH MATCH_MAPPING MATCH_SEQUENCE",
    "a name of the builtins": "LOAD_BUILD_CLASS",
    "the eval breaker is looked at here, and tells a doomed attempt": "RESUME RESUME_CHECK INSTRUMENTED_RESUME",
    "it runs another instruction in its place": """
        CACHE ENTER_EXECUTOR EXTENDED_ARG RESERVED INSTRUMENTED_INSTRUCTION INSTRUMENTED_LINE""",
}


def check(instructions):
    """Do the tables name each of these instructions once?

    Args:
        instructions: the names of all instructions of the interpreter.

    Raises:
        ValueError: which one is missing, unknown or named twice.
    """
    named = [name for table in (BARRIERS, WITHOUT) for names in table.values() for name in names.split()]
    known = set(instructions)
    twice = sorted({name for name in named if named.count(name) > 1})
    for names, what in (
        (sorted(known - set(named)), "no line says which barrier this instruction has"),
        (sorted(set(named) - known), "this interpreter has no such instruction"),
        (twice, "more than one line is about this instruction"),
    ):
        if names:
            raise ValueError(f"{what}: {', '.join(names)}")
