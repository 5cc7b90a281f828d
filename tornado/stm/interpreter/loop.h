/* What the micro-ops in front of the interpreter's instructions call (instructions.py).
 *
 * The tests in capitals are inline and short: is anything left to do?  They fail for nothing, stop at nothing, and do
 * nothing outside of transactions.  What they send on to is in barriers.c: 0, or -1 with an exception.
 *
 * Code that is trusted has no barriers.  The tests do not ask for that, which would cost everybody else something; the
 * functions do.
 */
#ifndef TORNADO_STM_LOOP_H
#define TORNADO_STM_LOOP_H

#include "calls/calls.h"
#include "objects/known.h"
#include "objects/namespaces.h"
#include "tracebacks.h"

#include "internal/pycore_cell.h"
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_intrinsics.h"
#include "internal/pycore_list.h"
#include "opcode.h"

/* What the loop seldom calls it calls from a place of its own, so that what it executes lies close together. */
#ifdef _PY_INTERPRETER
#define SLOW __attribute__((cold))

/* The loop's own copies of functions of CPython's (sources.py). */
PyObject **loop_PyObjectArray_FromStackRefArray(_PyStackRef *input, Py_ssize_t nargs, PyObject **scratch);
void loop_PyObjectArray_Free(PyObject **array, PyObject **scratch);
_PyInterpreterFrame *loop_PyEvalFramePushAndInit(PyThreadState *tstate, _PyStackRef func, PyObject *locals, _PyStackRef const *args,
                                                 size_t argcount, PyObject *kwnames, _PyInterpreterFrame *previous);
void loop_PyEval_FrameClearAndPop(PyThreadState *tstate, _PyInterpreterFrame *frame);
#else
#define SLOW
#endif

SLOW int stm_read_attr(PyObject *obj, PyObject *name);
SLOW int stm_write_attr(PyObject *obj, PyObject *name, PyObject *value);
SLOW int stm_delete_attr(PyObject *obj, PyObject *name);
SLOW int stm_super_attr(PyObject *super, PyObject *self, PyObject *name, int oparg);
SLOW int stm_read_item(PyObject *container, PyObject *key);
SLOW int stm_write_item(PyObject *container, PyObject *key, PyObject *value);
SLOW int stm_delete_item(_PyStackRef *site);
SLOW int stm_write_slice(PyObject *container, PyObject *value);
SLOW int stm_contains(PyObject *item, PyObject *container);
SLOW int stm_binary(PyObject *left, PyObject *right, int op);
SLOW int stm_compare(PyObject *left, PyObject *right);
SLOW int stm_read_whole(PyObject *obj);
SLOW int stm_write_whole(PyObject *obj);
SLOW int stm_read_deep(PyObject *obj);
SLOW int stm_iterate(PyObject *obj);
SLOW int stm_send(PyObject *receiver, PyObject *value);
SLOW int stm_read_cell(PyObject *cell);
SLOW int stm_write_cell(PyObject *cell);
SLOW int stm_read_global(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_write_global(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_delete_global(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_read_name(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_write_name(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_delete_name(_PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_read_name_in(PyObject *namespace, _PyInterpreterFrame *frame, PyObject *name);
SLOW int stm_read_name_or_cell(PyObject *namespace, _PyInterpreterFrame *frame, int oparg);
SLOW int stm_append(PyObject *list);
SLOW int stm_extend_list(PyObject *list, PyObject *items);
SLOW int stm_extend_set(PyObject *set, PyObject *items);
SLOW int stm_extend_dict(PyObject *dict, PyObject *items);
SLOW int stm_before_call(_PyStackRef *site, int n);
bool stm_call_left(Tx *tx, _PyStackRef *site, int n);
SLOW int stm_before_call_kw(_PyStackRef *site, int n);
SLOW int stm_before_call_ex(_PyStackRef *site);
SLOW int stm_before_exit(_PyStackRef *site);
SLOW int stm_load_special(void);
SLOW int stm_raise(_PyStackRef *raised, int n);
SLOW int stm_reraise(PyObject *exception);
SLOW int stm_split_group(PyObject *exception);
SLOW int stm_match_class(PyObject *subject, PyObject *type, PyObject *names, int positional);
SLOW int stm_match_keys(PyObject *subject, PyObject *keys);
SLOW int stm_import(_PyInterpreterFrame *frame, PyObject *name, PyObject *level);
SLOW int stm_intrinsic_1(PyObject *operand, int function);
SLOW int stm_intrinsic_2(PyObject *second, int function);
SLOW int stm_setup_annotations(_PyInterpreterFrame *frame);
SLOW int stm_handle(PyObject *caught);
int stm_suspend(_PyInterpreterFrame *frame);
SLOW void stm_made_generator(Tx *tx, PyObject *generator);
SLOW void stm_made_self(Tx *tx, PyObject *self);
SLOW bool stm_meets(Tx *tx, PyObject *self);

/* Where exceptions unwind: does this one leave the frame, whatever handlers that has? */
bool stm_unwinds(PyThreadState *tstate, _PyInterpreterFrame *frame);

/* In the place of _Py_HandlePending(): a doomed attempt is told at its jumps and calls, if no barrier does. */
int stm_handle_pending(PyThreadState *tstate);

extern PyObject *stm_init_name;      /* "__init__" */

/* C code has Python code run, and its frame begins: is nothing to be looked at then? */
static inline bool
begins_plainly(_PyInterpreterFrame *frame)
{
    PyCodeObject *code = _PyFrame_GetCode(frame);
    if (code->co_name == stm_init_name)
        return false;
    for (int i = 0; i < 2 && i < code->co_argcount; i++) {
        if (!PyStackRef_IsNull(frame->localsplus[i]) && may_be_reference(PyStackRef_AsPyObjectBorrow(frame->localsplus[i])))
            return false;
    }
    return true;
}

/* What is to be done if not. -1 with an exception: it must not begin. */
int stm_enter(Tx *tx, PyThreadState *tstate, _PyInterpreterFrame *frame);

/* Does C code look into what functions of that name return? As their first letters say: those of "keys", "items", "derive" and "__iter__". */
static inline bool
may_be_looked_into(PyObject *name)
{
    char first = *(const char *)((PyASCIIObject *)name + 1);    /* or something else, of a name that is not ASCII */
    return first == '_' || first == 'k' || first == 'i' || first == 'd';
}

/* A function that C code calls, with the first of its arguments: who calls keeps both. */
typedef struct { PyObject *function, *name, *self; } Called;

static inline Called
called_by_c(_PyInterpreterFrame *frame)
{
    PyCodeObject *code = _PyFrame_GetCode(frame);
    int first = code->co_argcount > 0 ? 0 : code->co_flags & CO_VARARGS ? code->co_kwonlyargcount : -1;
    PyObject *self = first < 0 || PyStackRef_IsNull(frame->localsplus[first]) ? NULL : PyStackRef_AsPyObjectBorrow(frame->localsplus[first]);
    if (self != NULL && code->co_argcount == 0)
        self = PyTuple_GET_SIZE(self) > 0 ? PyTuple_GET_ITEM(self, 0) : NULL;
    return (Called){PyStackRef_AsPyObjectBorrow(frame->f_funcobj), code->co_name, self};
}

/* What it returns to C code, or NULL with an exception: takes the reference. */
PyObject *stm_return(Tx *tx, const Called *called, PyObject *result);

/* A callback of sys.monitoring: outside of the transaction that it is told of. */
PyObject *stm_call_tool(PyObject *tool, PyObject *const *args, size_t nargsf);

/* What an instruction that takes items, or a call that does, is about to go over. */
int open_iterable(Tx *tx, PyObject *obj);

int loop_barriers_init(void);

/* What the tests do not find at once: is anything left to do? */
bool stm_attr_left(Tx *tx, PyObject *o, PyObject *name, unsigned of);
bool stm_value_left(Tx *tx, PyObject *o, PyObject *name);
bool stm_item_left(Tx *tx, PyObject *container, PyObject *key);
bool stm_key_left(Tx *tx, PyObject *container, PyObject *key);

/* ---- The tests -------------------------------------------------------------------------------------- */

/* In the loop for what runs alone, outside of transactions and in exclusive ones, nothing is left to do by then. */
#ifdef STM_ALONE
#define stm_open ((Tx *)NULL)
#endif

#define TEST static inline __attribute__((always_inline))

#define STM_QUIET(tx) LIKELY(!atomic_load_explicit(&(tx)->attention, memory_order_relaxed))
#define STM_LIVE() (stm_self != NULL && stm_self->live)
#define STM_ACTS() (stm_open != NULL)
#define STM_TRUSTED(frame) (_PyFrame_GetCode(frame)->co_flags & CO_STM_TRUSTED)

static inline bool
in_trusted_code(Tx *tx)
{
    return STM_TRUSTED(tx->tstate->current_frame);
}

/* The instruction gets something else to work on. */
static inline void
replace_operand(_PyStackRef *operand, PyObject *o)
{
    _PyStackRef old = *operand;
    *operand = PyStackRef_FromPyObjectNew(o);
    PyStackRef_CLOSE(old);
}

/* Begins each barrier: trusted code has none. */
#define BARRIER_OF(tx) \
    Tx *tx = stm_self; \
    if (in_trusted_code(tx)) \
        return 0

TEST OpenedName *
opened_name_at(Tx *tx, PyObject *o, uintptr_t what)
{
    uintptr_t mixed = (uintptr_t)o >> 4 ^ (uintptr_t)o >> 14 ^ (what * 0x9E3779B97F4A7C15ull) >> 48;
    return &thread_of(tx)->loop.names[mixed & (OPENED_NAME_SLOTS - 1)];
}

/* The entry that would say so, if it did. */
TEST OpenedName
opened_name_entry(Tx *tx, PyObject *o, uintptr_t what)
{
    return (OpenedName){o, what, opened_check(tx, o), o->ob_tid};
}

TEST bool
is_noted(const OpenedName *e, OpenedName entry)
{
    return e->obj == entry.obj && e->what == entry.what && e->check == entry.check && e->tid == entry.tid;
}

TEST bool
opened_name(Tx *tx, PyObject *o, PyObject *name, unsigned of)
{
    uintptr_t what = (uintptr_t)name | of;
    return is_noted(opened_name_at(tx, o, what), opened_name_entry(tx, o, what));
}

/* Of a dict that is like any other, as the one was that was noted: it may have died, and be a namespace's now. */
TEST bool
opened_item(Tx *tx, PyObject *container, PyObject *key, unsigned of)
{
    return opened_name(tx, container, key, of) && namespace_of(container) == NULL;
}

TEST KnownCall *
known_call_at(Tx *tx, const void *method)
{
    return &thread_of(tx)->loop.calls[known_call_place(method)];
}

TEST bool
STM_ATTR_LEFT(PyObject *o, PyObject *name, unsigned of)
{
    Tx *tx = stm_open;
    return tx != NULL && (stm_attr_left(tx, o, name, of) || !STM_QUIET(tx));
}

/* A module's dict, none of whose names any function of the module rebinds: only an exclusive transaction does. */
TEST bool
is_settled_module_dict(PyObject *dict)
{
    return (((PyDictObject *)dict)->_ma_watcher_tag & (stm_module_bit | stm_rebound_bit)) == stm_module_bit;
}

/* A global of another module, as an attribute of that. */
TEST bool
STM_MODULE_LEFT(PyObject *module, PyObject *name)
{
    if (stm_open == NULL)
        return false;
    PyObject *dict = PyModule_CheckExact(module) ? ((PyModuleObject *)module)->md_dict : NULL;
    return !(dict != NULL && LIKELY(is_settled_module_dict(dict))) && STM_ATTR_LEFT(module, name, OF_READ_ATTR);
}

/* For what the interpreter has found by the class and the layout that it then checks: an attribute of the instance, or
 * a method that none hides. Where that has changed, the general instruction runs in its place, and its barrier. */
TEST bool
STM_VALUE_LEFT(PyObject *o, PyObject *name)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !((read_by_bias(tx, o) || quickly_captured(tx, o)) && STM_QUIET(tx)) && stm_value_left(tx, o, name);
}

/* The same for an assignment. */
TEST bool
STM_WRITTEN_VALUE_LEFT(PyObject *o, PyObject *name)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !((quickly_captured(tx, o) || !stm_attr_left(tx, o, name, OF_WRITTEN_ATTR)) && STM_QUIET(tx));
}

TEST bool
STM_ITEM_LEFT(PyObject *container, PyObject *key)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    bool settled = is_builtin_container(container) && (read_by_bias(tx, container) || quickly_captured(tx, container));
    return !((settled || !stm_item_left(tx, container, key)) && STM_QUIET(tx));
}

TEST bool
STM_KEY_LEFT(PyObject *container, PyObject *key)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    if (PySlice_Check(key))
        return true;        /* the value is looked into, too */
    bool settled = is_builtin_container(container) && quickly_captured(tx, container);
    return !((settled || !stm_key_left(tx, container, key)) && STM_QUIET(tx));
}

TEST bool
is_plain_value(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type;
}

/* Whose items nobody else changes. */
TEST bool
is_settled_container(Tx *tx, PyObject *o)
{
    return Py_IS_TYPE(o, &PyFrozenSet_Type) || Py_IS_TYPE(o, &PyTuple_Type) || captured_container(tx, o);
}

TEST bool
STM_CONTAINS_LEFT(PyObject *item, PyObject *container)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    /* A constant looks into nothing, but bytes do into a bytearray; what is found by its hash compares itself. */
    bool is_value = is_constant(item) && !PyBytes_CheckExact(item);
    bool settled = is_value && (PyUnicode_CheckExact(container) || is_settled_container(tx, container) || PyBytes_CheckExact(container));
    if (!settled && (PyDict_CheckExact(container) || (PySet_CheckExact(container) && !may_be_set_as_key(item))))
        settled = captured(tx, container) || read_by_bias(tx, container) || opened(tx, container, OPENED_ITEMS);
    return !((LIKELY(settled) || opened_item(tx, container, item, OF_READ_ITEM)) && STM_QUIET(tx));
}

TEST bool
STM_OPERANDS_LEFT(PyObject *left, PyObject *right)
{
    if (LIKELY(Py_IS_TYPE(left, &PyLong_Type) && Py_IS_TYPE(right, &PyLong_Type)))
        return false;       /* that often that it asks for nothing else */
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !(LIKELY(is_plain_value(right)
                    && (is_plain_value(left) || Py_IS_TYPE(left, &PyTuple_Type) || captured_container(tx, left)))
             && STM_QUIET(tx));
}

TEST bool
STM_BINARY_LEFT(PyObject *left, PyObject *right, int op)
{
    if (op == NB_SUBSCR)
        return STM_ITEM_LEFT(left, right);
    if (!STM_OPERANDS_LEFT(left, right))
        return false;
    if (PyDict_CheckExact(left) && !PyDict_CheckExact(right))
        return true;        /* what is no dict may be rows, which are looked into, too */
    Tx *tx = stm_open;
    return !(is_settled_container(tx, left) && is_settled_container(tx, right) && STM_QUIET(tx));
}

TEST bool
STM_WHOLE_LEFT(PyObject *o)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !((is_constant(o) || Py_IS_TYPE(o, &PyTuple_Type) || Py_IS_TYPE(o, &PyRange_Type) || captured(tx, o)
              || container_read_by_bias(tx, o) || opened(tx, o, OPENED_READ)) && STM_QUIET(tx));
}

/* All that can be reached from it is looked at. */
TEST bool
STM_DEEP_LEFT(PyObject *o)
{
    Tx *tx = stm_open;
    return tx != NULL && !(is_constant(o) && STM_QUIET(tx));
}

/* Neither a number nor of a length: true whatever is in it. */
TEST bool
STM_TRUTH_LEFT(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    bool always_true = (t->tp_as_number == NULL || t->tp_as_number->nb_bool == NULL)
        && (t->tp_as_mapping == NULL || t->tp_as_mapping->mp_length == NULL)
        && (t->tp_as_sequence == NULL || t->tp_as_sequence->sq_length == NULL);
    return !always_true && STM_WHOLE_LEFT(o);
}

TEST bool
STM_READ_CELL_LEFT(PyObject *cell)
{
    Tx *tx = stm_open;
    return tx != NULL && !(LIKELY(*read_cell_at(&thread_of(tx)->loop, cell) == cell) && STM_QUIET(tx));
}

TEST bool
STM_WRITTEN_CELL_LEFT(PyObject *cell)
{
    Tx *tx = stm_open;
    return tx != NULL && !(LIKELY(opened(tx, cell, OPENED_WRITE)) && STM_QUIET(tx));
}

TEST bool
STM_ITERABLE_LEFT(PyObject *o)
{
    return STM_WHOLE_LEFT(o) && !(is_captured_generator(stm_open, o) && STM_QUIET(stm_open));
}

/* [*items], {*items}, {**items}, f(*items): what is under construction, and what it is extended by. */
TEST bool
STM_EXTENDS_LEFT(PyObject *display, PyObject *items)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !(captured(tx, display) && (is_settled_container(tx, items) || is_captured_generator(tx, items)) && STM_QUIET(tx));
}

TEST bool
STM_INTRINSIC_LEFT(int function)
{
    return (function == INTRINSIC_UNARY_POSITIVE || function == INTRINSIC_IMPORT_STAR || function == INTRINSIC_PRINT
            || function == INTRINSIC_SUBSCRIPT_GENERIC)
        && STM_ACTS();
}

/* A list, set or dict under construction may be older than this transaction where the code has been suspended since. */
TEST bool
STM_DISPLAY_LEFT(PyObject *o)
{
    Tx *tx = stm_open;
    return tx != NULL && !quickly_captured(tx, o) && !captured(tx, o);
}

/* Nothing, once it is known that no function of the module rebinds a global. */
TEST bool
STM_GLOBAL_LEFT(_PyInterpreterFrame *frame, PyObject *name)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    PyObject *globals = frame->f_globals;
    if (LIKELY(is_settled_module_dict(globals)))
        return false;
    return !(opened_name(tx, globals, name, OF_GLOBAL) && STM_QUIET(tx));
}

/* A step of a loop, or of an await, in a frame that can be suspended: the iterator may be older than the transaction.
 * Elsewhere GET_ITER has opened it. */
TEST bool
STM_STEP_LEFT(_PyInterpreterFrame *frame, PyObject *iterator)
{
    if (LIKELY(frame->owner != FRAME_OWNED_BY_GENERATOR))
        return false;
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    if (!Py_IS_TYPE(iterator, &PyGen_Type) && !Py_IS_TYPE(iterator, &PyCoro_Type))
        return !(opened(tx, iterator, OPENED_READ) || captured(tx, iterator));
    return !(is_captured_generator(tx, iterator) && STM_QUIET(tx));
}

/* A value is sent to an instance by a method that it has. */
TEST bool
STM_SEND_LEFT(_PyInterpreterFrame *frame, PyObject *receiver, PyObject *value)
{
    if (UNLIKELY(value != Py_None) && (Py_TYPE(receiver)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return STM_ACTS();
    return STM_STEP_LEFT(frame, receiver);
}

/* In an exclusive transaction: is it known that calls of that method need nothing, whatever their arguments? */
TEST bool
known_alone(Tx *tx, const void *method)
{
    Loop *loop = &thread_of(tx)->loop;
    return LIKELY(loop->plain_counts && plain_is(*plain_place(loop, method), method)) && method != NULL;
}

/* What a C function or method is known by (KnownCall); NULL: something else. */
TEST const void *
method_of(PyObject *callable)
{
    return Py_IS_TYPE(callable, &PyMethodDescr_Type) ? (const void *)((PyMethodDescrObject *)callable)->d_method
        : Py_IS_TYPE(callable, &PyCFunction_Type) ? (const void *)((PyCFunctionObject *)callable)->m_ml : NULL;
}

TEST bool
STM_CALL_LEFT(_PyStackRef *site, int n)
{
    PyObject *callable = PyStackRef_AsPyObjectBorrow(site[0]);
    if (Py_IS_TYPE(callable, &PyFunction_Type))
        return false;
    Tx *tx = stm_open;
    if (LIKELY(tx != NULL))
        return stm_call_left(tx, site, n);
    tx = stm_self;      /* twins stand in in exclusive transactions, too */
    return tx != NULL && tx->live && !known_alone(tx, method_of(callable)) && !needs_nothing_alone(tx, callable, &site[1], n + 1);
}

TEST bool
STM_APPEND_LEFT(PyObject *list)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return false;
    return !((captured_container(tx, list) || opened(tx, list, OPENED_APPEND)) && STM_QUIET(tx));
}

/* ---- What an instruction makes ------------------------------------------------------------------------ */

/* In front of GET_ITER: will it make an iterator, over something that is open then? */
TEST bool
STM_WILL_ITERATE(PyObject *o)
{
    Tx *tx = stm_open;
    if (tx != NULL) {
        PyTypeObject *t = Py_TYPE(o);
        thread_of(tx)->loop.new_iterator = t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type || t == &PySet_Type
            || t == &PyRange_Type || t == &PyUnicode_Type || t == &PyDictItems_Type || t == &PyDictKeys_Type
            || t == &PyDictValues_Type;
    }
    return false;
}

TEST void
STM_NOTE_ITERATOR(PyObject *o)
{
    Tx *tx = stm_open;
    if (tx != NULL && thread_of(tx)->loop.new_iterator) {
        note_captured(tx, o);
        note(tx, o, OPENED_READ, 1);
        thread_of(tx)->loop.new_iterator = false;
    }
}

TEST void
STM_NOTE_MADE(_PyInterpreterFrame *frame, PyObject *o)
{
    Tx *tx = stm_open;
    if (tx != NULL && !STM_TRUSTED(frame))
        note_captured(tx, o);
}

TEST void
STM_NOTE_GENERATOR(PyObject *o)
{
    Tx *tx = stm_open;
    if (tx != NULL)
        stm_made_generator(tx, o);
}

TEST void
STM_NOTE_SELF(_PyInterpreterFrame *frame, PyObject *o)
{
    Tx *tx = stm_open;
    if (tx == NULL || STM_TRUSTED(frame))
        return;
    if (UNLIKELY(Py_TYPE(o)->tp_finalize != NULL))
        stm_made_self(tx, o);
    Loop *loop = &thread_of(tx)->loop;
    if (LIKELY(loop->made == Py_TYPE(o) && loop->made_version == Py_TYPE(o)->tp_version_tag) || stm_meets(tx, o))
        note_captured(tx, o);
}

/* ---- What an instruction loads (borrowed.c) -------------------------------------------------------------- */

/* Behind the barrier, which trusted code does not have: need the reference to that not be counted? */
TEST bool
may_borrow(_PyInterpreterFrame *frame, PyObject *value)
{
    Tx *tx = stm_open;
    if (tx == NULL || LIKELY(!has_bias(value)) || !is_undisturbed(tx) || STM_TRUSTED(frame))
        return false;
    tx->borrowed = true;
    return true;
}

TEST _PyStackRef
borrowed(PyObject *value)
{
    return (_PyStackRef){.bits = (uintptr_t)value | Py_TAG_DEFERRED};
}

/* In the place of _Py_TryIncrefCompareStackRef() */
TEST int
STM_LOAD(_PyInterpreterFrame *frame, PyObject **place, PyObject *value, _PyStackRef *out)
{
    if (!may_borrow(frame, value))
        return _Py_TryIncrefCompareStackRef(place, value, out);
    *out = borrowed(value);
    return 1;
}

TEST _PyStackRef
STM_LOAD_CELL(_PyInterpreterFrame *frame, PyCellObject *cell)
{
    PyObject *value = FT_ATOMIC_LOAD_PTR(cell->ob_ref);
    return value != NULL && may_borrow(frame, value) ? borrowed(value) : _PyCell_GetStackRef(cell);
}

/* An item of a list that nobody else changes now, if that is known and it is there. */
TEST bool
STM_LOAD_ITEM(_PyInterpreterFrame *frame, PyListObject *list, Py_ssize_t index, _PyStackRef *out)
{
    Tx *tx = stm_open;
    if (tx == NULL || !is_undisturbed(tx) || (size_t)index >= (size_t)Py_SIZE(list) || STM_TRUSTED(frame))
        return false;
    PyObject *value = list->ob_item[index];
    *out = may_borrow(frame, value) ? borrowed(value) : PyStackRef_FromPyObjectNew(value);
    return true;
}

/* May the next item be taken from the list without a call?  (CPython asks for both, and so hardly ever does: 3.14.) */
TEST bool
STM_STEPS(_PyInterpreterFrame *frame, PyListObject *list)
{
    Tx *tx = stm_open;
    return _Py_IsOwnedByCurrentThread((PyObject *)list) || _PyObject_GC_IS_SHARED((PyObject *)list)
        || (tx != NULL && is_undisturbed(tx) && !STM_TRUSTED(frame));
}

/* Made by this attempt, which nobody has seen anything of yet: it needs no mutex.  So they are told that lock and unlock it in between. */
TEST bool
is_private(PyObject *o)
{
    Tx *tx = stm_open;
    return tx != NULL && is_undisturbed(tx) && quickly_captured(tx, o);
}

#define STM_LOCK(o) (is_private((PyObject *)(o)) || LOCK_OBJECT(o))
#define STM_UNLOCK(o) (is_private((PyObject *)(o)) ? (void)0 : (void)UNLOCK_OBJECT(o))

/* Has a frame that is about to be suspended anything that has to be counted then? */
TEST bool
STM_BORROWED(void)
{
    return stm_self != NULL && stm_self->borrowed;
}

#endif
