/* The barriers of the evaluation loop, where their inline tests (loop.h) find something left to do. */
#include "loop.h"

#include "internal/pycore_ceval.h"
#include "internal/pycore_intrinsics.h"
#include "opcode.h"

PyObject *stm_dict_name, *stm_class_name;

/* Methods that C code calls, and what it looks at in what they return. */
enum { LOOKS_AT_ITEMS, LOOKS_AT_TRUTH };
static const struct { const char *name; int at; } looked_into[] = {
    {"__iter__", LOOKS_AT_ITEMS},
    {"keys", LOOKS_AT_ITEMS},
    {"__eq__", LOOKS_AT_TRUTH},
    {"__ne__", LOOKS_AT_TRUTH},
    {"__lt__", LOOKS_AT_TRUTH},
    {"__le__", LOOKS_AT_TRUTH},
    {"__gt__", LOOKS_AT_TRUTH},
    {"__ge__", LOOKS_AT_TRUTH},
    {"__contains__", LOOKS_AT_TRUTH},
};
enum { LOOKED_INTO = sizeof looked_into / sizeof looked_into[0] };
static PyObject *looked_into_names[LOOKED_INTO], *del_name, *init_name;

int
loop_barriers_init(void)
{
    for (int i = 0; i < LOOKED_INTO; i++) {
        if ((looked_into_names[i] = PyUnicode_InternFromString(looked_into[i].name)) == NULL)
            return -1;
    }
    stm_dict_name = PyUnicode_InternFromString("__dict__");
    stm_class_name = PyUnicode_InternFromString("__class__");
    del_name = PyUnicode_InternFromString("__del__");
    init_name = PyUnicode_InternFromString("__init__");
    return stm_dict_name == NULL || stm_class_name == NULL || del_name == NULL || init_name == NULL ? -1 : 0;
}

static bool
in_trusted_code(Tx *tx)
{
    return STM_TRUSTED(tx->tstate->current_frame);
}

/* Begins each barrier: trusted code has none. */
#define BARRIER_OF(tx) \
    Tx *tx = stm_self; \
    if (in_trusted_code(tx)) \
        return 0

static void
note_name(Tx *tx, PyObject *o, PyObject *name, unsigned of)
{
    uintptr_t what = (uintptr_t)name | of;
    if (Py_TYPE(o)->tp_version_tag != 0)
        *opened_name_at(tx, o, what) = (OpenedName){.obj = o, .what = what, .check = opened_check(tx, o)};
}

/* The operands of an instruction as they would lie on the stack, for what asks for them there. */
#define LENT(o) PyStackRef_FromPyObjectBorrow(o)
#define SITE_OF(tx, argument, ...) \
    _Py_CODEUNIT instruction = {.op = {0, (uint8_t)(argument)}}; \
    _PyStackRef operands[] = {__VA_ARGS__}; \
    Site site_of = {(tx)->tstate->current_frame, operands + Py_ARRAY_LENGTH(operands), &instruction}

/* ---- Attributes ----------------------------------------------------------------------------------- */

static int
open_attr(PyObject *obj, PyObject *name, unsigned of, int (*opener)(Tx *tx, PyObject *obj, PyObject *name))
{
    BARRIER_OF(tx);
    if (check_doomed(tx) < 0)
        return -1;
    Kind kind = kind_of(tx, obj);
    bool attributes = is_python_class(Py_TYPE(obj));
    if (!attributes && of == OF_READ_ATTR
        && (kind == KIND_INERT || kind == KIND_TUPLE || kind == KIND_LIST || kind == KIND_DICT
            || kind == KIND_SET || kind == KIND_DEQUE || kind == KIND_BYTEARRAY || kind == KIND_CLASS))
        return 0;     /* their methods */
    attributes |= kind != KIND_INERT && kind != KIND_TUPLE;
    bool special = name == stm_dict_name || name == stm_class_name;
    if (attributes && !special && captured(tx, obj))
        return 0;
    if (opener(tx, obj, name) < 0)
        return -1;
    if (attributes && !special)
        note_name(tx, obj, name, of);
    return 0;
}

int stm_read_attr(PyObject *obj, PyObject *name) { return open_attr(obj, name, OF_READ_ATTR, open_attr_read); }
int stm_write_attr(PyObject *obj, PyObject *name) { return open_attr(obj, name, OF_WRITTEN_ATTR, open_own_attr_write); }

int
stm_delete_attr(PyObject *obj, PyObject *name)
{
    BARRIER_OF(tx);
    return open_attr_delete(tx, obj, name, false);
}

int
stm_super_attr(PyObject *self, PyObject *name, int oparg)
{
    BARRIER_OF(tx);
    SITE_OF(tx, oparg & 1, LENT(self));
    return super_attr_work(tx, site_of, name);
}

/* ---- Items and operators ------------------------------------------------------------------------------ */

/* An item of a dict that is like any other, under a name that lives for ever. */
static void
note_item(Tx *tx, PyObject *container, PyObject *key, unsigned of)
{
    if (PyDict_CheckExact(container) && _Py_IsImmortal(key) && PyUnicode_CheckExact(key) && namespace_of(container) == NULL)
        note_name(tx, container, key, of);
}

int
stm_read_item(PyObject *container, PyObject *key)
{
    BARRIER_OF(tx);
    if (known_here_only(tx, container))
        return check_doomed(tx);
    if (open_item_read(tx, container, key) < 0)
        return -1;
    note_item(tx, container, key, OF_READ_ITEM);
    return 0;
}

int
stm_write_item(PyObject *container, PyObject *key, PyObject *value)
{
    BARRIER_OF(tx);
    if (PySlice_Check(key) && open_iter(tx, value) < 0)
        return -1;
    if (open_key_write(tx, container, key, false) < 0)
        return -1;
    note_item(tx, container, key, OF_WRITTEN_ITEM);
    return 0;
}

int
stm_delete_item(_PyStackRef *site)
{
    BARRIER_OF(tx);
    return item_delete_work(tx, (Site){.top = site + 2}, NULL);
}

int
stm_write_slice(PyObject *container, PyObject *value)
{
    BARRIER_OF(tx);
    return open_iter(tx, value) < 0 || open_whole_write(tx, container) < 0 ? -1 : open_resize(tx, container);
}

int
stm_contains(PyObject *item, PyObject *container)
{
    BARRIER_OF(tx);
    SITE_OF(tx, 0, LENT(item), LENT(container));
    return contains_work(tx, site_of, NULL);
}

int
stm_binary(PyObject *left, PyObject *right, int op)
{
    BARRIER_OF(tx);
    if (op == NB_SUBSCR)
        return stm_read_item(left, right);
    _Py_CODEUNIT instruction = {.op = {BINARY_OP, (uint8_t)op}};
    return binary_work(tx, left, right, (Site){.next = &instruction});
}

int
stm_compare(PyObject *left, PyObject *right)
{
    BARRIER_OF(tx);
    return compare_work(tx, left, right, (Site){0});
}

/* ---- Whole objects --------------------------------------------------------------------------------------- */

int stm_read_whole(PyObject *obj) { BARRIER_OF(tx); return open_whole_read(tx, obj); }
int stm_write_whole(PyObject *obj) { BARRIER_OF(tx); return open_whole_write(tx, obj); }
int stm_read_deep(PyObject *obj) { BARRIER_OF(tx); return open_deep_read(tx, obj); }
int stm_append(PyObject *list) { BARRIER_OF(tx); return open_list_append(tx, list); }

int
stm_iterate(PyObject *obj)
{
    BARRIER_OF(tx);
    return known_here_only(tx, obj) ? check_doomed(tx) : iterate_work(tx, obj);
}

int
stm_extend_list(PyObject *list, PyObject *items)
{
    BARRIER_OF(tx);
    return iterate_work(tx, items) < 0 ? -1 : captured(tx, list) ? check_doomed(tx) : open_list_append(tx, list);
}

int
stm_extend_set(PyObject *set, PyObject *items)
{
    BARRIER_OF(tx);
    return iterate_work(tx, items) < 0 ? -1 : captured(tx, set) ? check_doomed(tx) : open_whole_write(tx, set);
}

int
stm_extend_dict(PyObject *dict, PyObject *items)
{
    BARRIER_OF(tx);
    return open_mapping(tx, items) < 0 ? -1 : captured(tx, dict) ? check_doomed(tx) : open_whole_write(tx, dict);
}

/* ---- Names --------------------------------------------------------------------------------------------------- */

int
stm_read_cell(PyObject *cell)
{
    BARRIER_OF(tx);
    if (open_cell_read(tx, cell) < 0)
        return -1;
    note_opened(tx, cell, OPENED_READ);
    return 0;
}

int
stm_write_cell(PyObject *cell)
{
    BARRIER_OF(tx);
    if (open_cell_write(tx, cell) < 0)
        return -1;
    note_opened(tx, cell, OPENED_WRITE);
    return 0;
}

static int
see_module(Tx *tx, PyObject *globals)
{
    return is_module_dict(globals) ? 0 : see_globals(tx, globals);
}

int
stm_read_global(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    PyObject *globals = frame->f_globals;
    if (see_module(tx, globals) < 0)
        return -1;
    PyObject *rebound = globals_rebound(globals);
    int is_rebound = rebound == Py_None ? 0 : PySequence_Contains(rebound, name);
    Py_DECREF(rebound);
    if (is_rebound <= 0)
        return is_rebound < 0 ? -1 : check_doomed(tx);
    if (open_global_read(tx, globals, name) < 0)
        return -1;
    note_name(tx, globals, name, OF_READ_ITEM);
    return 0;
}

int
stm_write_global(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return see_module(tx, frame->f_globals) < 0 ? -1 : open_global_write(tx, frame->f_globals, name);
}

int
stm_delete_global(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return see_module(tx, frame->f_globals) < 0 ? -1 : open_key_write(tx, frame->f_globals, name, true);
}

int
stm_read_name(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return open_name(tx, frame->f_locals, frame->f_globals, name);
}

int
stm_write_name(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return frame->f_locals == NULL ? check_doomed(tx) : open_key_write(tx, frame->f_locals, name, false);
}

int
stm_delete_name(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return frame->f_locals == NULL ? check_doomed(tx) : open_key_write(tx, frame->f_locals, name, true);
}

int
stm_read_name_in(PyObject *namespace, _PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return open_name(tx, namespace, frame->f_globals, name);
}

int
stm_read_name_or_cell(PyObject *namespace, _PyInterpreterFrame *frame, int oparg)
{
    BARRIER_OF(tx);
    PyObject *names = _PyFrame_GetCode(frame)->co_localsplusnames;
    if (open_key_read(tx, namespace, PyTuple_GET_ITEM(names, oparg)) < 0)
        return -1;
    return open_cell_read(tx, PyStackRef_AsPyObjectBorrow(frame->localsplus[oparg]));
}

int
stm_setup_annotations(_PyInterpreterFrame *frame)
{
    BARRIER_OF(tx);
    return frame->f_locals == NULL ? check_doomed(tx) : open_whole_write(tx, frame->f_locals);
}

int
stm_import(_PyInterpreterFrame *frame, PyObject *name, PyObject *level)
{
    BARRIER_OF(tx);
    SITE_OF(tx, 0, LENT(level), LENT(Py_None));
    site_of.frame = frame;
    return import_name_work(tx, site_of, name);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* A method of C objects: will its calls never need anything? */
static void
know_call(Tx *tx, PyObject *callable, _PyStackRef self_or_null)
{
    PyObject *receiver = PyStackRef_IsNull(self_or_null) ? NULL : PyStackRef_AsPyObjectBorrow(self_or_null);
    const void *method;
    if (Py_IS_TYPE(callable, &PyCFunction_Type)) {
        method = ((PyCFunctionObject *)callable)->m_ml;
        receiver = PyCFunction_GET_SELF(callable);
    }
    else if (Py_IS_TYPE(callable, &PyMethodDescr_Type))
        method = ((PyMethodDescrObject *)callable)->d_method;
    else
        return;
    if (receiver == NULL || PyType_Check(receiver))
        return;
    int effect = plain_effect(callable, receiver);
    bool changes_receiver = effect == EFFECT_LIST_APPEND || effect == EFFECT_LIST_POP || effect == EFFECT_DEQUE_APPEND
        || effect == EFFECT_DEQUE_APPENDLEFT || effect == EFFECT_DEQUE_POP || effect == EFFECT_DEQUE_POPLEFT;
    if (effect == EFFECT_PURE || changes_receiver)
        *known_call_at(tx, method) = (KnownCall){method, changes_receiver};
}

int
stm_before_call(_PyStackRef *site, int n)
{
    BARRIER_OF(tx);
    PyObject *callable = PyStackRef_AsPyObjectBorrow(site[0]);
    tx->constructing = NULL;
    if (stands_in(callable))
        return 0;       /* for something that may be half done: no abort now */
    if (PyFunction_Check(callable))
        return check_doomed(tx);
    if (tx->open)
        know_call(tx, callable, site[1]);
    return before_stack_call(tx, site, n, NULL);
}

int
stm_before_call_kw(_PyStackRef *site, int n)
{
    BARRIER_OF(tx);
    tx->constructing = NULL;
    if (stands_in(PyStackRef_AsPyObjectBorrow(site[0])))
        return 0;
    return before_stack_call(tx, site, n, PyStackRef_AsPyObjectBorrow(site[n + 2]));
}

int
stm_before_call_ex(_PyStackRef *site)
{
    BARRIER_OF(tx);
    tx->constructing = NULL;
    return call_ex_work(tx, (Site){.top = site + 4});
}

int
stm_before_exit(_PyStackRef *site)
{
    BARRIER_OF(tx);
    return with_except_work(tx, (Site){.top = site + 5});
}

int stm_load_special(void) { BARRIER_OF(tx); return check_doomed(tx); }

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

int
stm_match_class(PyObject *subject, PyObject *type, PyObject *names, int positional)
{
    BARRIER_OF(tx);
    if (positional > UINT8_MAX)
        return exclusive_for(tx, "a pattern with many parts of the class", type);
    SITE_OF(tx, positional, LENT(subject), LENT(type), LENT(names));
    return match_class_work(tx, site_of, NULL);
}

int
stm_match_keys(PyObject *subject, PyObject *keys)
{
    BARRIER_OF(tx);
    SITE_OF(tx, 0, LENT(subject), LENT(keys));
    return match_keys_work(tx, site_of, NULL);
}

/* ---- Intrinsic functions ----------------------------------------------------------------------------------------- */

int
stm_intrinsic_1(PyObject *operand, int function)
{
    BARRIER_OF(tx);
    switch (function) {
    case INTRINSIC_UNARY_POSITIVE:
        return open_whole_read(tx, operand);
    case INTRINSIC_IMPORT_STAR:
        return exclusive_for(tx, "import of all names of a module", NULL);
    case INTRINSIC_PRINT:
        return exclusive_for(tx, "printing of an expression statement", NULL);
    default:
        return check_doomed(tx);
    }
}

int
stm_intrinsic_2(PyObject *second, int function)
{
    BARRIER_OF(tx);
    return function == INTRINSIC_PREP_RERAISE_STAR ? open_exception_group(tx, second, 0) : check_doomed(tx);
}

/* ---- Exceptions -------------------------------------------------------------------------------------------------- */

int
stm_raise(_PyStackRef *raised, int n)
{
    BARRIER_OF(tx);
    _Py_CODEUNIT instruction = {.op = {RAISE_VARARGS, (uint8_t)n}};
    Site site = {.top = raised + n, .next = &instruction};
    return n == 0 ? raising_again_work(tx, site, NULL) : raising_work(tx, site, NULL);
}

int
stm_reraise(PyObject *exception)
{
    BARRIER_OF(tx);
    return PyExceptionInstance_Check(exception) ? open_exception(tx, exception) : check_doomed(tx);
}

int stm_split_group(PyObject *exception) { BARRIER_OF(tx); return open_exception_group(tx, exception, 0); }

int
stm_handle(PyObject *caught)
{
    BARRIER_OF(tx);
    traceback_clean(caught);
    return tx->open ? check_doomed(tx) : 0;
}

/* No handler sees an abort, nor what a doomed attempt raises: it has gone wrong because of what others did. Nor does a
 * generator go on that was made by an attempt which never was. */
bool
stm_unwinds(PyThreadState *tstate, _PyInterpreterFrame *frame)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->live || STM_TRUSTED(frame))
        return tx != NULL && frame_never_was(frame);
    PyObject *raised = tstate->current_exception;
    if (frame_never_was(frame) || (raised != NULL && Py_IS_TYPE(raised, (PyTypeObject *)stm_Abort)))
        return true;
    if (!tx->open || STM_QUIET(tx))
        return false;
    PyObject *exception = PyErr_GetRaisedException();
    if (check_doomed(tx) < 0) {
        Py_XDECREF(exception);
        return true;
    }
    PyErr_SetRaisedException(exception);
    return false;
}

int
stm_handle_pending(PyThreadState *tstate)
{
    if (_Py_HandlePending(tstate) < 0)
        return -1;
    Tx *tx = stm_self;
    return tx != NULL && tx->open && !in_trusted_code(tx) ? check_doomed(tx) : 0;
}

/* ---- What is made ------------------------------------------------------------------------------------------------ */

/* Has the code more handlers than the one around all of a generator, which turns StopIteration into an error? */
static bool
handles_exceptions(PyCodeObject *code)
{
    const uint8_t *at = (uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable);
    const uint8_t *end = at + PyBytes_GET_SIZE(code->co_exceptiontable);
    int first = -1;
    while (at < end) {
        int entry[4];       /* start, size, target, depth: each of so many bytes of six bits, as the seventh says */
        for (int i = 0; i < 4; i++) {
            entry[i] = *at & 63;
            while (*at++ & 64)
                entry[i] = entry[i] << 6 | (*at & 63);
        }
        if (first >= 0 && entry[2] != first)
            return true;
        first = entry[2];
    }
    return false;
}

/* The generator refers to the birth that it shares with others of the attempt (../engine/born.c). */
void
stm_made_generator(Tx *tx, PyObject *generator)
{
    if (!PyGen_CheckExact(generator) && !PyCoro_CheckExact(generator) && !PyAsyncGen_CheckExact(generator))
        return;
    _PyInterpreterFrame *f = &((PyGenObject *)generator)->gi_iframe;
    PyCodeObject *code = _PyFrame_GetCode(f);
    if (code->co_flags & CO_STM_TRUSTED || f->f_locals != NULL)
        return;
    PyObject **birth = &tx->births[handles_exceptions(code)];
    if (*birth == NULL && (*birth = new_birth()) == NULL)
        PyErr_Clear();      /* it is taken for an older one */
    f->f_locals = Py_XNewRef(*birth);
}

/* An object whose class has a finalizer. */
void
stm_made_self(Tx *tx, PyObject *self)
{
    if (has_python_finalizer(Py_TYPE(self)) ? note_birth(tx, self) < 0
        : undo_push(tx, UNDO_BIRTH, self, NULL, NULL) == NULL)
        PyErr_Clear();
}

/* ---- Python code that C code calls ------------------------------------------------------------------------------- */

/* An __init__, of an object that the call of its class may just have made. */
static int
constructor_begins(Tx *tx, PyObject *self)
{
    PyTypeObject *type = tx->constructing != NULL ? tx->constructing : tx->watching;
    bool made = Py_IS_TYPE(self, type) && self->ob_tid == tx->tid && self->ob_ref_shared == 0;
    tx->constructing = NULL;
    if (tx->watching == Py_TYPE(self)) {
        tx->watching = NULL;
        if (note_birth(tx, self) < 0)
            return -1;
    }
    else if (made && type->tp_finalize != NULL && undo_push(tx, UNDO_BIRTH, self, NULL, NULL) == NULL)
        return -1;
    if (made) {
        PyUnstable_Type_AssignVersionTag(type);     /* what is noted of the object counts while that stays */
        note_captured(tx, self);
    }
    return check_doomed(tx);
}

int
stm_enter(Tx *tx, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = _PyFrame_GetCode(frame);
    if (code->co_argcount == 0 || frame->owner != FRAME_OWNED_BY_THREAD || PyStackRef_IsNull(frame->localsplus[0]))
        return 0;
    PyObject *first = PyStackRef_AsPyObjectBorrow(frame->localsplus[0]);
    _PyInterpreterFrame *caller = PyThreadState_Get()->current_frame;
    if (code->co_argcount == 1 && code->co_name == del_name)
        return finalizer_called(tx, first, caller);
    if (code->co_flags & CO_STM_TRUSTED)
        return 0;
    if (!PyStackRef_IsNull(frame->f_funcobj) && callback_called(tx, frame, caller))
        return -1;
    return tx->open && code->co_name == init_name ? constructor_begins(tx, first) : 0;
}

/* Did nothing else refer to what a method has just returned, it has been made in it; but a view of a dict is not all
 * that C code looks into. */
static bool
is_made_there(PyObject *o)
{
    return _PyObject_IsUniquelyReferenced(o) && !PyDictViewSet_Check(o) && !PyDictValues_Check(o);
}

PyObject *
stm_return(Tx *tx, PyObject *name, PyObject *result)
{
    if (is_constant(result))
        return result;
    int i = 0;
    while (i < LOOKED_INTO && looked_into_names[i] != name)
        i++;
    if (i == LOOKED_INTO)
        return result;
    int opened = looked_into[i].at == LOOKS_AT_TRUTH ? open_whole_read(tx, result)
        : is_made_there(result) ? check_doomed(tx) : open_iter(tx, result);
    if (opened < 0)
        Py_CLEAR(result);
    return result;
}

PyObject *
stm_call_tool(PyObject *tool, PyObject *const *args, size_t nargsf)
{
    Tx *tx = stm_self;
    bool live = tx != NULL && tx->live;
    if (live)
        tx_pause(tx);
    PyObject *result = PyObject_Vectorcall(tool, args, nargsf, NULL);
    if (live)
        tx_resume(tx);
    return result;
}
