/* The functions that instrumented bytecode calls.
 *
 * A barrier stands right before the instruction that it is for.  It is called in one of two
 * ways, neither of which moves anything on the value stack:
 *
 *      SETUP_ANNOTATIONS; <the instruction>
 *      LOAD_CONST barrier; UNARY_NEGATIVE; POP_TOP; <the instruction>
 *
 * The first is the shortest way there is from bytecode to C: the instruction looks a key up in
 * the namespace of its frame and drops what it finds.  A function's frame has no namespace of
 * its own, so that one gets a table of the function's barriers in that place when it begins
 * (`table_begin`; a generator also by way of `born`); the argument of the instruction, which
 * the interpreter does not use, tells which barrier.  The second way is an object whose negation does the work: in code that has
 * a namespace, or has too few barriers for a table to be worth it.
 *
 * A barrier looks at the instruction's operands where they lie, on the caller's value
 * stack, and at the instruction's own argument behind it.  So nothing is copied, no
 * reference is counted, and the instruction runs as it would without the barrier.
 */
#include "barriers.h"

#include "internal/pycore_code.h"
#include "internal/pycore_opcode_utils.h"
#include "internal/pycore_dict.h"
#include "opcode.h"

int stm_barriers_off;
PyObject *stm_disable;

typedef struct Barrier Barrier;

/* The site comes in three registers: a structure of that size would come in memory. */
#define SITE _PyInterpreterFrame *frame, _PyStackRef *top, const _Py_CODEUNIT *next
#define THE_SITE ((Site){frame, top, next})
typedef PyObject *(*Enter)(Barrier *b, Tx *tx, SITE);

struct Barrier {
    PyObject_HEAD
    Enter enter;
    const char *name;
    PyObject *operand;      /* interned name of an attribute or global, or another object, or None */
    PyObject *table;        /* of the function that this begins, or NULL */
    uint32_t what;          /* number of this barrier in the table of what is opened */
    bool pure;              /* call_builtin: a call of that function needs nothing */
};

static inline PyObject *
operand(Site s, int i)
{
    return PyStackRef_AsPyObjectBorrow(s.top[-i]);
}

/* A KeyError is taken for "there is none" by the instruction that calls barriers by their
 * numbers. It goes on to store one: then the error is raised again (table_store). */
static __attribute__((cold, noinline)) PyObject *
failed(Tx *tx)
{
    if (PyErr_ExceptionMatches(PyExc_KeyError)) {
        Py_XSETREF(tx->key_error, PyErr_GetRaisedException());
        PyErr_SetRaisedException(Py_NewRef(tx->key_error));
    }
    return NULL;
}

/* The argument of the instruction that the barrier is for. */
static inline int
instruction_arg(const _Py_CODEUNIT *p)
{
    int arg = 0;
    while (p->op.code == EXTENDED_ARG) {
        arg = (arg | p->op.arg) << 8;
        p++;
    }
    return arg | p->op.arg;
}

#define BARRIER(name) \
    __attribute__((noinline)) int name##_work(Tx *tx, Site s, PyObject *name_operand); \
    static PyObject *name(Barrier *b, Tx *tx, SITE) \
    { \
        if (!tx->open) \
            return Py_None; \
        return UNLIKELY(name##_work(tx, THE_SITE, b->operand) < 0) ? failed(tx) : Py_None; \
    } \
    int name##_work(Tx *tx, Site s, PyObject *name_operand)

#define UNUSED_NAME (void)name_operand
#define UNUSED_SITE (void)s

/* The short way through a barrier calls nothing; the rest is kept apart, so that
 * the compiler saves no registers for it there. */
#define NOTHING_LEFT(tx) LIKELY(!atomic_load_explicit(&(tx)->attention, memory_order_relaxed))

static __attribute__((noinline)) PyObject *
open_attr(Tx *tx, PyObject *obj, Barrier *b, int (*opener)(Tx *tx, PyObject *obj, PyObject *name))
{
    if (check_doomed(tx) < 0)
        return failed(tx);
    if (opened(tx, obj, b->what))
        return Py_None;
    Kind kind = kind_of(tx, obj);
    bool attributes = is_python_class(Py_TYPE(obj));
    if (!attributes && opener == open_attr_read
        && (kind == KIND_INERT || kind == KIND_TUPLE || kind == KIND_LIST || kind == KIND_DICT
            || kind == KIND_SET || kind == KIND_DEQUE || kind == KIND_BYTEARRAY || kind == KIND_CLASS))
        return Py_None;     /* their methods */
    attributes |= kind != KIND_INERT && kind != KIND_TUPLE;
    if (attributes && captured(tx, obj))
        return Py_None;
    if (opener(tx, obj, b->operand) < 0)
        return failed(tx);
    if (attributes)
        note_opened(tx, obj, b->what);
    return Py_None;
}

int
open_own_attr_write(Tx *tx, PyObject *obj, PyObject *name)
{
    return open_attr_write(tx, obj, name, false);
}

/* Of these types, attributes are methods. */
static inline bool
has_only_methods(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyList_Type || t == &PyUnicode_Type || t == &PyDict_Type || t == &PySet_Type;
}

#define ATTR_BARRIER(name, opener) \
    static PyObject *name(Barrier *b, Tx *tx, SITE) \
    { \
        if (!tx->open) \
            return Py_None; \
        PyObject *obj = operand(THE_SITE, 1); \
        if (LIKELY(captured(tx, obj) || opened(tx, obj, b->what) || has_only_methods(obj)) \
            && NOTHING_LEFT(tx)) \
            return Py_None; \
        return open_attr(tx, obj, b, opener); \
    }

ATTR_BARRIER(attr_read, open_attr_read)
ATTR_BARRIER(attr_write, open_own_attr_write)
/* __dict__ and __class__: what assigning to them does is not done once for all. */
BARRIER(special_read) { return open_attr_read(tx, operand(s, 1), name_operand); }
BARRIER(special_write) { return open_attr_write(tx, operand(s, 1), name_operand, false); }

/* At the beginning of an __init__: its first argument is a new object, if the call
 * of its class was what came last. */
BARRIER(constructed)
{
    UNUSED_NAME;
    PyTypeObject *type = tx->constructing;
    tx->constructing = NULL;
    _PyStackRef first = s.frame->localsplus[0];
    PyObject *self = PyStackRef_IsNull(first) ? NULL : PyStackRef_AsPyObjectBorrow(first);
    if (self != NULL && tx->watching == Py_TYPE(self)) {
        tx->watching = NULL;
        if (note_birth(tx, self) < 0)
            return -1;
    }
    if (self != NULL && type != NULL && Py_IS_TYPE(self, type) && self->ob_tid == tx->tid
        && self->ob_ref_shared == 0) {
        if (type->tp_finalize != NULL && undo_push(tx, UNDO_BIRTH, self, NULL, NULL) == NULL)
            return -1;
        note_captured(tx, self);
    }
    return check_doomed(tx);
}

/* At the beginning of a __del__, wherever that runs: also outside transactions, where tx is NULL. */
static PyObject *
finalizing(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    tx = stm_self;
    if (tx == NULL || UNLIKELY(stm_barriers_off))
        return Py_None;
    _PyStackRef first = frame->localsplus[0];
    if (!PyStackRef_IsNull(first)
        && finalizer_begins(tx, PyStackRef_AsPyObjectBorrow(first), frame) < 0)
        return failed(tx);
    return Py_None;
}

/* Have those barriers run for those local variables, which the operand has as ((place,
 * (barrier, ...)), ...)? True: the instrumented function then goes on where it has none of
 * these. Once the answer was yes for an object, it is found under this barrier's number. */
static PyObject *
opened_before(Barrier *b, Tx *tx, SITE)
{
    if (!tx->open)
        return Py_True;
    PyObject *places = b->operand;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++) {
        PyObject *entry = PyTuple_GET_ITEM(places, i);
        PyObject *barriers = PyTuple_GET_ITEM(entry, 1);
        _PyStackRef local = frame->localsplus[PyLong_AsLong(PyTuple_GET_ITEM(entry, 0))];
        if (PyStackRef_IsNull(local))
            return Py_False;
        PyObject *obj = PyStackRef_AsPyObjectBorrow(local);
        uint32_t what = b->what == OPENED_NEVER ? OPENED_NEVER : b->what + (uint32_t)i;
        if (LIKELY(captured(tx, obj) || opened(tx, obj, what)))
            continue;
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(barriers); j++) {
            if (!opened(tx, obj, ((Barrier *)PyTuple_GET_ITEM(barriers, j))->what))
                return Py_False;
        }
        note_opened(tx, obj, what);
    }
    return NOTHING_LEFT(tx) ? Py_True : Py_False;
}

/* Before RETURN_GENERATOR: tells the generator that this will make from older ones. The
 * frame of a function has no use of its f_locals. The operand: can it handle exceptions? */
static PyObject *
born(Barrier *b, Tx *tx, SITE)
{
    (void)top;
    (void)next;
    if (!tx->open)
        return Py_None;
    PyObject **birth = &tx->births[b->operand == Py_True];
    if (*birth == NULL && (*birth = new_birth()) == NULL)
        return NULL;
    if (frame->f_locals == b->table)
        frame->f_locals = Py_NewRef(*birth);
    return Py_None;
}

/* After the display of a list, dict or set. */
BARRIER(made)
{
    UNUSED_NAME;
    note_captured(tx, operand(s, 1));
    return 0;
}

BARRIER(attr_delete) { return open_attr_delete(tx, operand(s, 1), name_operand, false); }

/* ---- Exceptions: raising one sets its traceback, its context and its cause ------------- */

/* The exception that is being handled in this frame or below, or NULL. */
static PyObject *
handled_exception(Tx *tx)
{
    _PyErr_StackItem *item = tx->tstate->exc_info;
    while ((item->exc_value == NULL || item->exc_value == Py_None) && item->previous_item != NULL)
        item = item->previous_item;
    return item->exc_value == Py_None ? NULL : item->exc_value;
}

BARRIER(raising)
{
    UNUSED_NAME;
    PyObject *exception = operand(s, instruction_arg(s.next) == 2 ? 2 : 1);
    if (!PyExceptionInstance_Check(exception))
        return check_doomed(tx);
    if (_PyObject_IsUniquelyReferenced(exception)) {
        /* Only this stack knows it: what undo entries refer to has more references. */
        note_captured(tx, exception);
        return check_doomed(tx);
    }
    /* The interpreter cuts it out of the chain of contexts that becomes its own. */
    PyObject *o = handled_exception(tx), *context;
    for (int depth = 0; o != NULL && o != exception && depth < 1000; o = context, depth++) {
        context = PyException_GetContext(o);
        Py_XDECREF(context);
        if (context == exception && open_exception(tx, o) < 0)
            return -1;
    }
    return open_exception(tx, exception);
}

/* raise without an operand */
BARRIER(raising_again)
{
    UNUSED_NAME;
    UNUSED_SITE;
    PyObject *exception = handled_exception(tx);
    return exception == NULL ? check_doomed(tx) : open_exception(tx, exception);
}

/* What was caught before a suspension leaves its handler, or `finally`, after it. */
BARRIER(reraising)
{
    UNUSED_NAME;
    PyObject *exception = operand(s, 1);
    return PyExceptionInstance_Check(exception) ? open_exception(tx, exception) : check_doomed(tx);
}

/* except*: a group is split, and with it what its parts say. */
BARRIER(group) { UNUSED_NAME; return open_exception_group(tx, operand(s, 2), 0); }

/* ---- Names: globals, class bodies, what exec runs -------------------------------------- */

BARRIER(global_read) { return open_global_read(tx, s.frame->f_globals, name_operand); }
BARRIER(global_write) { return open_global_write(tx, s.frame->f_globals, name_operand); }
BARRIER(global_delete) { return open_key_write(tx, s.frame->f_globals, name_operand, true); }

int
open_name(Tx *tx, PyObject *namespace, PyObject *globals, PyObject *name)
{
    if (namespace != NULL && namespace != globals && open_key_read(tx, namespace, name) < 0)
        return -1;
    return open_global_read(tx, globals, name);
}

BARRIER(name_read) { return open_name(tx, s.frame->f_locals, s.frame->f_globals, name_operand); }
BARRIER(name_or_global) { return open_name(tx, operand(s, 1), s.frame->f_globals, name_operand); }
BARRIER(name_write)
{
    PyObject *namespace = s.frame->f_locals;
    return namespace == NULL ? check_doomed(tx) : open_key_write(tx, namespace, name_operand, false);
}
BARRIER(name_delete)
{
    PyObject *namespace = s.frame->f_locals;
    return namespace == NULL ? check_doomed(tx) : open_key_write(tx, namespace, name_operand, true);
}

BARRIER(unknown) { UNUSED_SITE; return exclusive_for(tx, "the instruction", name_operand); }

static PyObject *
handler(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    if (tx->open && check_doomed(tx) < 0)
        return failed(tx);
    traceback_clean(operand(THE_SITE, 1));
    return Py_None;
}

BARRIER(item_write)
{
    UNUSED_NAME;
    PyObject *key = operand(s, 1);
    if (PySlice_Check(key) && open_iter(tx, operand(s, 3)) < 0)
        return -1;
    return open_key_write(tx, operand(s, 2), key, false);
}

static void
replace_operand(Site s, int i, PyObject *o)
{
    _PyStackRef old = s.top[-i];
    s.top[-i] = PyStackRef_FromPyObjectNew(o);
    PyStackRef_CLOSE(old);
}

/* Where the key is deleted here, the instruction gets another to delete. */
BARRIER(item_delete)
{
    UNUSED_NAME;
    PyObject *container = operand(s, 2), *value = NULL;
    PyMappingMethods *mapping = Py_TYPE(container)->tp_as_mapping;
    if (mapping != NULL && mapping->mp_ass_subscript != PyDict_Type.tp_as_mapping->mp_ass_subscript)
        return PyDict_Check(container) && !PyODict_Check(container)
            ? check_doomed(tx)      /* a __delitem__ in Python */
            : open_key_write(tx, container, operand(s, 1), true);
    int done = delete_key(tx, container, operand(s, 1), &value);
    if (done <= 0)
        return done;
    Py_DECREF(value);       /* the undo log has it */
    if (tx->scratch == NULL && (tx->scratch = PyDict_New()) == NULL)
        return -1;
    if (PyDict_SetItem(tx->scratch, Py_None, Py_None) < 0)
        return -1;
    replace_operand(s, 2, tx->scratch);
    replace_operand(s, 1, Py_None);
    return 0;
}
BARRIER(slice_read) { UNUSED_NAME; return open_whole_read(tx, operand(s, 3)); }

BARRIER(slice_write)
{
    UNUSED_NAME;
    PyObject *container = operand(s, 3);
    return open_iter(tx, operand(s, 4)) < 0 || open_whole_write(tx, container) < 0 ? -1 : open_resize(tx, container);
}

/* Does looking for an item take what the container makes then, which nobody has opened? */
static bool
makes_items(Tx *tx, PyObject *container, Kind kind)
{
    (void)tx;
    if (kind == KIND_GENERATOR)
        return true;
    if (kind == KIND_ITERATOR)
        return !PyDictViewSet_Check(container) && !PyDictValues_Check(container);
    if (kind != KIND_INSTANCE)
        return false;
    static PyObject *name;
    if (name == NULL)
        name = PyUnicode_InternFromString("__contains__");
    PyObject *method = _PyType_LookupRef(Py_TYPE(container), name);
    bool python = method != NULL && PyFunction_Check(method);
    Py_XDECREF(method);
    return !python;
}

/* Something whose comparison never looks into containers. */
static bool
is_deep_inert(Tx *tx, PyObject *o, int depth)
{
    Kind kind = kind_of(tx, o);
    if (kind != KIND_TUPLE || !PyTuple_Check(o) || depth > 4)
        return kind != KIND_TUPLE && kind != KIND_LIST && kind != KIND_DICT && kind != KIND_ODICT
            && kind != KIND_SET && kind != KIND_DEQUE && kind != KIND_BYTEARRAY && kind != KIND_ARRAY && kind != KIND_BUFFER
            && kind != KIND_PROXY && kind != KIND_ITERATOR && kind != KIND_UNKNOWN;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
        if (!is_deep_inert(tx, PyTuple_GET_ITEM(o, i), depth + 1))
            return false;
    }
    return true;
}

BARRIER(contains)
{
    UNUSED_NAME;
    PyObject *item = operand(s, 2), *container = operand(s, 1);
    Kind kind = kind_of(tx, container);
    if (kind == KIND_DICT || kind == KIND_SET)
        return open_key_read(tx, container, item);
    if (kind_of(tx, item) == KIND_INERT)
        return kind == KIND_TUPLE ? check_doomed(tx) : open_iter(tx, container);
    if (makes_items(tx, container, kind) && !is_deep_inert(tx, item, 0))
        return exclusive_for(tx, "a look for a container in the items of", container);
    return open_deep_read(tx, item) < 0 || open_deep_read(tx, container) < 0
        || open_iter(tx, container) < 0 ? -1 : 0;
}

BARRIER(mapping) { UNUSED_NAME; return open_mapping(tx, operand(s, 1)); }

/* Before the return of an __iter__ or keys, which C code may call and go on with what it
 * gets. What nothing else refers to has just been made. */
BARRIER(iterable_returned)
{
    UNUSED_NAME;
    PyObject *o = operand(s, 1);
    bool view = PyDictViewSet_Check(o) || PyDictValues_Check(o);
    return _PyObject_IsUniquelyReferenced(o) && !view ? check_doomed(tx) : open_iter(tx, o);
}

/* GET_ITER in code that can suspend: there the iterator will be opened at each step. */
BARRIER(get_iterator)
{
    UNUSED_NAME;
    PyObject *iterable = operand(s, 1);
    PyTypeObject *t = Py_TYPE(iterable);
    tx->new_iterator = t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type || t == &PySet_Type
        || t == &PyRange_Type || t == &PyUnicode_Type;
    return open_iter(tx, iterable);
}

BARRIER(got_iterator)
{
    UNUSED_NAME;
    if (tx->new_iterator) {
        /* What it goes over has been opened, too. */
        note_captured(tx, operand(s, 1));
        note(tx, operand(s, 1), OPENED_READ, 1);
    }
    tx->new_iterator = false;
    return 0;
}

BARRIER(send) { UNUSED_NAME; return open_iter(tx, operand(s, 2)); }

/* A container that only this stack knows, such as C code has just returned: as good as made in
 * this transaction, since an older one that is on a stack is known to an undo entry, too. Only
 * for operands: what lies in a container may have one reference, and be known to others. */
bool
known_here_only(Tx *tx, PyObject *o)
{
    if (!is_builtin_container(o) || !_PyObject_IsUniquelyReferenced(o))
        return false;
    note_captured(tx, o);
    return true;
}

static __attribute__((noinline)) PyObject *
open_item(Tx *tx, PyObject *container, PyObject *key)
{
    int r = known_here_only(tx, container) ? check_doomed(tx) : open_item_read(tx, container, key);
    return r < 0 ? failed(tx) : Py_None;
}

static PyObject *
item_read(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    if (!tx->open)
        return Py_None;
    PyObject *container = operand(THE_SITE, 2);
    if (LIKELY(Py_IS_TYPE(container, &PyTuple_Type) || own_container(tx, container) || opened(tx, container, OPENED_ITEMS))
        && NOTHING_LEFT(tx))
        return Py_None;
    return open_item(tx, container, operand(THE_SITE, 1));
}

/* container["key"], container["key"] = ...: with a key that is the barrier's own. A plain dict is
 * noted as opened for that. */
static __attribute__((noinline)) PyObject *
open_constant_key(Tx *tx, PyObject *container, Barrier *b, bool write)
{
    int r = write ? open_key_write(tx, container, b->operand, false) : open_item_read(tx, container, b->operand);
    if (r < 0)
        return failed(tx);
    if (PyDict_CheckExact(container) && namespace_of(container) == NULL)
        note_opened(tx, container, b->what);
    return Py_None;
}

static PyObject *
key_read(Barrier *b, Tx *tx, SITE)
{
    if (!tx->open)
        return Py_None;
    PyObject *container = operand(THE_SITE, 2);
    if (LIKELY(own_container(tx, container) || opened(tx, container, b->what)) && NOTHING_LEFT(tx))
        return Py_None;
    return open_constant_key(tx, container, b, false);
}

static PyObject *
key_write(Barrier *b, Tx *tx, SITE)
{
    if (!tx->open)
        return Py_None;
    PyObject *container = operand(THE_SITE, 2);
    /* What has been deleted must be logged once more when it is inserted. */
    if (LIKELY(own_container(tx, container) || (opened(tx, container, b->what) && !tx->deletes_keys)) && NOTHING_LEFT(tx))
        return Py_None;
    return open_constant_key(tx, container, b, true);
}

/* A generator made in this transaction that handles no exceptions, or a view of such a dict. */
static inline bool
own_iterable(Tx *tx, PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    if (t == &PyGen_Type) {
        PyGenObject *g = (PyGenObject *)o;
        return (g->gi_frame_state == FRAME_CREATED || g->gi_frame_state == FRAME_SUSPENDED)
            && tx->births[0] != NULL && g->gi_iframe.f_locals == tx->births[0];
    }
    return (t == &PyDictItems_Type || t == &PyDictKeys_Type || t == &PyDictValues_Type)
        && ((_PyDictViewObject *)o)->dv_dict != NULL && own_container(tx, (PyObject *)((_PyDictViewObject *)o)->dv_dict);
}

int
iterate_work(Tx *tx, PyObject *o)
{
    return own_iterable(tx, o) ? check_doomed(tx) : open_iter(tx, o);
}

static PyObject *
iterate(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    if (!tx->open)
        return Py_None;
    PyObject *o = operand(THE_SITE, 1);
    if (LIKELY(Py_IS_TYPE(o, &PyTuple_Type) || own_container(tx, o) || opened(tx, o, OPENED_READ) || known_here_only(tx, o))
        && NOTHING_LEFT(tx))
        return Py_None;
    return UNLIKELY(iterate_work(tx, o) < 0) ? failed(tx) : Py_None;
}

static __attribute__((noinline)) PyObject *
open_truth(Tx *tx, PyObject *obj)
{
    return open_whole_read(tx, obj) < 0 ? failed(tx) : Py_None;
}

static PyObject *
truth(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    if (!tx->open)
        return Py_None;
    PyObject *obj = operand(THE_SITE, 1);
    if ((is_constant(obj) || own_container(tx, obj) || opened(tx, obj, OPENED_READ)) && NOTHING_LEFT(tx))
        return Py_None;
    return open_truth(tx, obj);
}

BARRIER(deep) { UNUSED_NAME; return open_deep_read(tx, operand(s, 1)); }
BARRIER(deep_second) { UNUSED_NAME; return open_deep_read(tx, operand(s, 2)); }

/* In a comprehension that awaits, the list under construction outlives a
 * transaction; the instruction's argument says how deep it lies. */
BARRIER(comprehension_append)
{
    UNUSED_NAME;
    return open_list_append(tx, operand(s, 1 + instruction_arg(s.next)));
}
BARRIER(comprehension_extend)
{
    UNUSED_NAME;
    if (open_iter(tx, operand(s, 1)) < 0)
        return -1;
    return open_list_append(tx, operand(s, 1 + instruction_arg(s.next)));
}
BARRIER(comprehension_update)
{
    UNUSED_NAME;
    if (open_iter(tx, operand(s, 1)) < 0)
        return -1;
    return open_whole_write(tx, operand(s, 1 + instruction_arg(s.next)));
}
BARRIER(comprehension_merge)
{
    UNUSED_NAME;
    if (open_mapping(tx, operand(s, 1)) < 0)
        return -1;
    return open_whole_write(tx, operand(s, 1 + instruction_arg(s.next)));
}
BARRIER(comprehension_add)
{
    UNUSED_NAME;
    return open_whole_write(tx, operand(s, 1 + instruction_arg(s.next)));
}
BARRIER(comprehension_put)
{
    UNUSED_NAME;
    return open_whole_write(tx, operand(s, 2 + instruction_arg(s.next)));
}

/* ---- match --------------------------------------------------------------------------- */

/* case Class(...): gets attributes of the subject, those in the pattern and those that
 * __match_args__ names for its positional parts. */
BARRIER(match_class)
{
    UNUSED_NAME;
    PyObject *subject = operand(s, 3), *type = operand(s, 2), *names = operand(s, 1);
    int positional = instruction_arg(s.next);
    if (!PyType_Check(type) || !PyTuple_Check(names))
        return check_doomed(tx);
    if (Py_TYPE(type)->tp_getattro != PyType_Type.tp_getattro)
        return exclusive_for(tx, "a pattern of the class", type);
    if (positional > 0) {
        PyObject *key = PyUnicode_InternFromString("__match_args__");
        PyObject *args = key ? _PyType_LookupRef((PyTypeObject *)type, key) : NULL;
        Py_XDECREF(key);
        int r = 0;
        for (int i = 0; args != NULL && PyTuple_Check(args) && r == 0 && i < positional
             && i < PyTuple_GET_SIZE(args); i++) {
            PyObject *name = PyTuple_GET_ITEM(args, i);
            r = PyUnicode_Check(name) ? open_attr_read(tx, subject, name) : 0;
        }
        if (r == 0 && args != NULL && !PyTuple_Check(args) && Py_TYPE(args)->tp_descr_get != NULL)
            r = exclusive_for(tx, "a pattern of the class", type);
        Py_XDECREF(args);
        if (r < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (open_attr_read(tx, subject, PyTuple_GET_ITEM(names, i)) < 0)
            return -1;
    }
    return check_doomed(tx);
}

/* case {key: ...}: by subject.get() */
BARRIER(match_keys)
{
    UNUSED_NAME;
    PyObject *subject = operand(s, 2), *keys = operand(s, 1);
    if (!PyTuple_Check(keys))
        return check_doomed(tx);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (open_key_read(tx, subject, PyTuple_GET_ITEM(keys, i)) < 0)
            return -1;
    }
    return check_doomed(tx);
}

static int
open_operand(Tx *tx, PyObject *o, Kind kind)
{
    return kind == KIND_INERT || kind == KIND_TUPLE || kind == KIND_INSTANCE
        ? 0 : open_whole_read(tx, o);
}

static inline bool
is_value(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type;
}

/* A barrier on two operands, which mostly are numbers or strings. */
#define OPERATOR_BARRIER(name) \
    __attribute__((noinline)) int name##_work(Tx *tx, PyObject *a, PyObject *b, Site s); \
    static PyObject *name(Barrier *Py_UNUSED(barrier), Tx *tx, SITE) \
    { \
        if (!tx->open) \
            return Py_None; \
        PyObject *a = operand(THE_SITE, 2), *b = operand(THE_SITE, 1); \
        if (LIKELY(is_value(a) && is_value(b)) && NOTHING_LEFT(tx)) \
            return Py_None; \
        return UNLIKELY(name##_work(tx, a, b, THE_SITE) < 0) ? failed(tx) : Py_None; \
    } \
    int name##_work(Tx *tx, PyObject *a, PyObject *b, Site s)

OPERATOR_BARRIER(binary)
{
    Kind ka = kind_of(tx, a), kb = kind_of(tx, b);
    if (ka == KIND_INERT && kb == KIND_INERT)
        return check_doomed(tx);
    int op = instruction_arg(s.next);
    if (op == NB_REMAINDER || op == NB_INPLACE_REMAINDER)
        return open_interpolated(tx, a, b) < 0 ? -1 : open_operand(tx, a, ka);
    if (op >= NB_INPLACE_ADD && op != NB_SUBSCR
        && (ka == KIND_LIST || ka == KIND_DICT || ka == KIND_SET || ka == KIND_DEQUE
            || ka == KIND_BYTEARRAY || ka == KIND_ARRAY || ka == KIND_ODICT)) {
        if ((ka == KIND_DICT || ka == KIND_ODICT ? open_mapping(tx, b) : open_iter(tx, b)) < 0)
            return -1;
        return ka == KIND_LIST && op == NB_INPLACE_ADD ? open_list_append(tx, a)
            : open_merge(tx, a, b);
    }
    return open_operand(tx, a, ka) < 0 ? -1 : open_operand(tx, b, kb);
}

OPERATOR_BARRIER(compare)
{
    UNUSED_SITE;
    if (compares_plainly(a) && compares_plainly(b))
        return check_doomed(tx);
    Kind ka = kind_of(tx, a), kb = kind_of(tx, b);
    if (ka == KIND_INERT && kb == KIND_INERT)
        return check_doomed(tx);
    if (ka == KIND_INERT || kb == KIND_INERT) {
        /* Something inert never looks into a container. */
        PyObject *o = ka == KIND_INERT ? b : a;
        Kind k = ka == KIND_INERT ? kb : ka;
        return k == KIND_UNKNOWN || k == KIND_OPAQUE || k == KIND_BYTEARRAY || k == KIND_BUFFER
            ? open_whole_read(tx, o) : check_doomed(tx);
    }
    return open_deep_read(tx, a) < 0 ? -1 : open_deep_read(tx, b);
}

/* super().name: a slot, or the state of a C type, that a base class gives access to; with
 * the object's own class and name it has the same lock. Methods that only classes have, by
 * their names, need none. */
BARRIER(super_attr)
{
    PyObject *self = operand(s, 1);
    bool method = instruction_arg(s.next) & 1;
    Py_ssize_t n = PyUnicode_GET_LENGTH(name_operand);
    if (method && n > 4 && PyUnicode_READ_CHAR(name_operand, 0) == '_'
        && PyUnicode_READ_CHAR(name_operand, 1) == '_' && PyUnicode_READ_CHAR(name_operand, n - 1) == '_')
        return kind_of(tx, self) == KIND_UNKNOWN ? open_attr_read(tx, self, name_operand) : check_doomed(tx);
    return open_attr_read(tx, self, name_operand);
}

static PyObject *
cell_at(Site s)
{
    return PyStackRef_AsPyObjectBorrow(s.frame->localsplus[instruction_arg(s.next)]);
}

BARRIER(cell_read) { UNUSED_NAME; return open_cell_read(tx, cell_at(s)); }
BARRIER(name_or_cell)
{
    UNUSED_NAME;
    PyObject *names = _PyFrame_GetCode(s.frame)->co_localsplusnames;
    if (open_key_read(tx, operand(s, 1), PyTuple_GET_ITEM(names, instruction_arg(s.next))) < 0)
        return -1;
    return open_cell_read(tx, cell_at(s));
}
BARRIER(cell_write) { UNUSED_NAME; return open_cell_write(tx, cell_at(s)); }

/* import name: free of effects once the module is there. */
BARRIER(import_name)
{
    PyObject *level = operand(s, 2);
    if (!PyLong_Check(level))
        return exclusive_for(tx, "import of", name_operand);
    long up = PyLong_AsLong(level);
    PyObject *full = NULL;
    if (up == 0)
        full = Py_NewRef(name_operand);
    else {
        PyObject *package = PyDict_GetItemString(s.frame->f_globals, "__package__");
        if (package != NULL && PyUnicode_Check(package)) {
            Py_ssize_t end = PyUnicode_GET_LENGTH(package);
            while (--up > 0 && end > 0) {
                end = PyUnicode_FindChar(package, '.', 0, end, -1);
                if (end < 0)
                    end = 0;
            }
            PyObject *base = PyUnicode_Substring(package, 0, end);
            if (base != NULL)
                full = PyUnicode_GET_LENGTH(name_operand)
                    ? PyUnicode_FromFormat("%U.%U", base, name_operand) : Py_NewRef(base);
            Py_XDECREF(base);
        }
    }
    int r = full == NULL ? 0 : open_module_name(tx, full);
    PyObject *module = full && r == 0 ? PyImport_GetModule(full) : NULL;
    Py_XDECREF(full);
    if (r < 0)
        return -1;
    PyErr_Clear();
    if (module == NULL)
        return exclusive_for(tx, "import of", name_operand);
    Py_DECREF(module);
    return 0;
}

/* ---- Calls ---------------------------------------------------------------------------- */

/* Unlike the others these act in an exclusive transaction too: functions get
 * instrumented there as well, and effects are deferred in their order. */
static inline bool
entering_call(Tx *tx)
{
    if (UNLIKELY(stm_barriers_off))
        return false;
    tx->constructing = NULL;
    return true;
}

#define CALL_BARRIER(name) \
    __attribute__((noinline)) int name##_work(Tx *tx, Site s); \
    static PyObject *name(Barrier *Py_UNUSED(b), Tx *tx, SITE) \
    { \
        if (!entering_call(tx)) \
            return Py_None; \
        return UNLIKELY(name##_work(tx, THE_SITE) < 0) ? failed(tx) : Py_None; \
    } \
    int name##_work(Tx *tx, Site s)

#define MAX_STACK_ARGS 64

/* Calls of C code that are frequent and simple, without keywords. 1: this is not one. */
static int
before_simple_call(Tx *tx, PyObject *callable, _PyStackRef *at, int n)
{
    PyObject *receiver = NULL;      /* the first argument, unless that is args[0] */
    bool bound = !PyStackRef_IsNull(at[1]);
    if (PyCFunction_CheckExact(callable)) {
        receiver = PyCFunction_GET_SELF(callable);
        if (bound || receiver == NULL || PyType_Check(receiver))
            return 1;       /* C.__new__(...) makes an object */
    }
    else if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && bound)
        receiver = PyStackRef_AsPyObjectBorrow(at[1]);
    else
        return 1;
    int effect = plain_effect(callable, receiver);
    if (effect == EFFECT_PURE)
        return check_doomed(tx);
    if (!bound && PyModule_Check(receiver))
        receiver = NULL;
    _PyStackRef *args = at + 2;
    if (effect == EFFECT_DEEP || effect == EFFECT_READS || effect == EFFECT_ITERATES) {
        if (receiver != NULL && !is_constant(receiver)
            && (effect == EFFECT_DEEP || (effect == EFFECT_READS ? open_whole_read : open_iter)(tx, receiver) < 0))
            return effect == EFFECT_DEEP ? 1 : -1;
        for (int i = 0; i < n; i++) {
            PyObject *arg = PyStackRef_AsPyObjectBorrow(args[i]);
            if (is_constant(arg))
                continue;
            if (effect == EFFECT_DEEP)
                return 1;
            if ((effect == EFFECT_READS ? open_whole_read : open_iter)(tx, arg) < 0)
                return -1;
        }
        return check_doomed(tx);
    }
    if (receiver == NULL)
        return 1;
    PyObject *first = n > 0 ? PyStackRef_AsPyObjectBorrow(args[0]) : NULL;
    switch (effect) {
    case EFFECT_LIST_EXTEND:
        return n != 1 ? 1 : open_list_append(tx, receiver) < 0 ? -1 : iterate_work(tx, first);
    case EFFECT_MUTATES:
        return n != 0 ? 1 : open_whole_write(tx, receiver) < 0 ? -1 : open_resize(tx, receiver);
    case EFFECT_LIST_APPEND:
        return n == 1 ? open_list_append(tx, receiver) : 1;
    case EFFECT_LIST_POP:
        return n == 0 ? open_list_pop(tx, receiver, -1) : 1;
    case EFFECT_SET_CHANGE:
        return n == 1 ? open_set_change(tx, receiver, first) : 1;
    case EFFECT_GETS_KEY:
        return n > 0 ? open_key_read(tx, receiver, first) : 1;
    default:
        return 1;
    }
}

/* callable, self or NULL, and n arguments lie from `at` upwards. */
int
before_stack_call(Tx *tx, _PyStackRef *at, int n, PyObject *kwnames)
{
    PyObject *callable = PyStackRef_AsPyObjectBorrow(at[0]);
    if (LIKELY(PyFunction_Check(callable)))
        return ensure_instrumented(tx, callable);
    if (PyType_Check(callable) && type_entry(tx, (PyTypeObject *)callable)->simple_call) {
        tx->constructing = (PyTypeObject *)callable;
        return check_doomed(tx);
    }
    if (tx->open && kwnames == NULL) {
        int result = before_simple_call(tx, callable, at, n);
        if (result <= 0)
            return result;
    }
    if (n >= MAX_STACK_ARGS)
        return exclusive_for(tx, "call with many arguments of", callable);
    PyObject *args[MAX_STACK_ARGS + 1];
    int count = 0;
    if (!PyStackRef_IsNull(at[1]))
        args[count++] = PyStackRef_AsPyObjectBorrow(at[1]);
    for (int i = 0; i < n; i++)
        args[count++] = PyStackRef_AsPyObjectBorrow(at[2 + i]);
    int nkw = kwnames ? (int)PyTuple_GET_SIZE(kwnames) : 0;
    return before_call(tx, &at[0], args, count - nkw, args + count - nkw, nkw);
}

static __attribute__((noinline)) PyObject *
open_call(Tx *tx, _PyStackRef *at, int n)
{
    return before_stack_call(tx, at, n, NULL) < 0 ? failed(tx) : Py_None;
}

static PyObject *
call(Barrier *Py_UNUSED(b), Tx *tx, SITE)
{
    if (!entering_call(tx))
        return Py_None;
    int n = instruction_arg(next);
    _PyStackRef *at = top - n - 2;
    PyObject *callable = PyStackRef_AsPyObjectBorrow(at[0]);
    if (LIKELY(PyFunction_Check(callable))
        && LIKELY(((PyCodeObject *)PyFunction_GET_CODE(callable))->co_flags & CO_STM_ANY)
        && NOTHING_LEFT(tx))
        return Py_None;
    return open_call(tx, at, n);
}

/* The instrumenter takes this call for one of a certain builtin and has left
 * out barriers for what follows; should it be another, all others stand still. */
static PyObject *
call_builtin(Barrier *b, Tx *tx, SITE)
{
    if (!entering_call(tx))
        return Py_None;
    int n = instruction_arg(next);
    _PyStackRef *at = top - n - 2;
    PyObject *builtin = b->operand;
    if (LIKELY(PyStackRef_AsPyObjectBorrow(at[0]) == builtin && b->pure) && NOTHING_LEFT(tx))
        return Py_None;
    if (UNLIKELY(PyStackRef_AsPyObjectBorrow(at[0]) != builtin)) {
        if (exclusive_for(tx, "another function under the name of the builtin", builtin) < 0)
            return failed(tx);
    }
    return before_stack_call(tx, at, n, NULL) < 0 ? failed(tx) : Py_None;
}

CALL_BARRIER(call_kw)
{
    int n = instruction_arg(s.next);
    return before_stack_call(tx, s.top - n - 3, n, operand(s, 1));
}

CALL_BARRIER(call_ex)
{
    PyObject *kwargs = PyStackRef_IsNull(s.top[-1]) ? NULL : operand(s, 1);
    PyObject *positional = operand(s, 2);
    _PyStackRef *callable = &s.top[-4];
    if (tx->grade != GRADE_EXCLUSIVE) {
        if (open_iter(tx, positional) < 0 || (kwargs != NULL && open_whole_read(tx, kwargs) < 0))
            return -1;
    }
    PyObject *c = PyStackRef_AsPyObjectBorrow(*callable);
    if (PyFunction_Check(c))
        return ensure_instrumented(tx, c);
    if (PyMethod_Check(c) && PyFunction_Check(PyMethod_GET_FUNCTION(c)))
        return ensure_instrumented(tx, PyMethod_GET_FUNCTION(c));
    if (!PyTuple_CheckExact(positional)) {
        /* The instruction would do the same; or complain, if that cannot be iterated over. */
        if (Py_TYPE(positional)->tp_iter == NULL && !PySequence_Check(positional))
            return check_doomed(tx);
        positional = PySequence_Tuple(positional);
        if (positional == NULL)
            return -1;
        _PyStackRef old = s.top[-2];
        s.top[-2] = PyStackRef_FromPyObjectSteal(positional);
        PyStackRef_CLOSE(old);
    }
    PyObject *few[MAX_STACK_ARGS], **kw = few;
    Py_ssize_t nkw = 0;
    if (kwargs != NULL) {
        PyObject *k, *v;
        Py_ssize_t pos = 0;
        if (PyDict_GET_SIZE(kwargs) > MAX_STACK_ARGS)
            kw = PyMem_Malloc(PyDict_GET_SIZE(kwargs) * sizeof(PyObject *));
        if (kw == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        while (PyDict_Next(kwargs, &pos, &k, &v))
            kw[nkw++] = v;
    }
    int r = before_call(tx, callable, &PyTuple_GET_ITEM(positional, 0), PyTuple_GET_SIZE(positional), kw, nkw);
    if (kw != few)
        PyMem_Free(kw);
    return r;
}

/* with: the exit function is called on the way of an exception. */
CALL_BARRIER(with_except)
{
    if (tx->grade != GRADE_EXCLUSIVE && check_doomed(tx) < 0)
        return -1;
    PyObject *args[4] = {NULL, Py_None, Py_None, Py_None};
    bool bound = PyStackRef_IsNull(s.top[-4]);
    if (!bound)
        args[0] = operand(s, 4);
    return before_call(tx, &s.top[-5], bound ? args + 1 : args, bound ? 3 : 4, NULL, 0);
}

/* ---- All barriers ----------------------------------------------------------------------------- */

#define ENTRY(name) {#name, name}
static const struct { const char *name; Enter enter; } barriers[] = {
    ENTRY(attr_read),
    ENTRY(attr_write),
    ENTRY(attr_delete),
    ENTRY(special_read),
    ENTRY(special_write),
    ENTRY(constructed),
    ENTRY(finalizing),
    ENTRY(made),
    ENTRY(born),
    {"opened", opened_before},
    ENTRY(super_attr),
    ENTRY(global_read),
    ENTRY(global_write),
    ENTRY(global_delete),
    ENTRY(name_read),
    ENTRY(name_write),
    ENTRY(name_delete),
    ENTRY(name_or_global),
    ENTRY(name_or_cell),
    ENTRY(cell_read),
    ENTRY(cell_write),
    ENTRY(item_read),
    ENTRY(item_write),
    ENTRY(key_read),
    ENTRY(key_write),
    ENTRY(item_delete),
    ENTRY(slice_read),
    ENTRY(slice_write),
    ENTRY(contains),
    ENTRY(iterate),
    ENTRY(get_iterator),
    ENTRY(got_iterator),
    ENTRY(mapping),
    ENTRY(iterable_returned),
    ENTRY(send),
    ENTRY(truth),
    ENTRY(deep),
    ENTRY(deep_second),
    ENTRY(binary),
    ENTRY(compare),
    ENTRY(comprehension_append),
    ENTRY(comprehension_extend),
    ENTRY(comprehension_update),
    ENTRY(comprehension_merge),
    ENTRY(comprehension_add),
    ENTRY(comprehension_put),
    ENTRY(import_name),
    ENTRY(call),
    ENTRY(call_builtin),
    ENTRY(call_kw),
    ENTRY(call_ex),
    ENTRY(with_except),
    ENTRY(raising),
    ENTRY(raising_again),
    ENTRY(reraising),
    ENTRY(group),
    ENTRY(match_class),
    ENTRY(match_keys),
    ENTRY(handler),
    ENTRY(unknown),
    {NULL, NULL},
};

static PyObject *
barrier_repr(PyObject *self)
{
    Barrier *b = (Barrier *)self;
    return PyUnicode_FromFormat("<barrier %s(%R)>", b->name, b->operand);
}

static PyMemberDef barrier_members[] = {
    {"__name__", Py_T_STRING, offsetof(Barrier, name), Py_READONLY, NULL},
    {"operand", _Py_T_OBJECT, offsetof(Barrier, operand), Py_READONLY, NULL},
    {"table", _Py_T_OBJECT, offsetof(Barrier, table), Py_READONLY, NULL},
    {0},
};

/* At the beginning of a function: its frame gets the table of its barriers. */
static inline _PyInterpreterFrame *
begin(Tx *tx, PyObject *table)
{
    _PyInterpreterFrame *f = (tx == NULL ? PyThreadState_Get() : tx->tstate)->current_frame;
    if (table != NULL)
        f->f_locals = table;    /* immortal; a function's frame has none before */
    return f;
}

static PyObject *
negate(PyObject *self)
{
    Barrier *b = (Barrier *)self;
    Tx *tx = stm_self;
    if (tx != NULL && !tx->live)
        tx = NULL;
    if (tx == NULL && b->table == NULL && b->enter != finalizing)
        return Py_None;
    _PyInterpreterFrame *f = begin(tx, b->table);
    if (tx == NULL && b->enter != finalizing)
        return b->enter == opened_before ? Py_True : Py_None;
    return b->enter(b, tx, f, f->stackpointer - 1, f->instr_ptr + 2);      /* past UNARY_NEGATIVE, POP_TOP */
}

static PyNumberMethods barrier_as_number = {.nb_negative = negate};

static PyTypeObject Barrier_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Barrier",
    .tp_doc = PyDoc_STR("What instrumented bytecode calls before an instruction: opens what that will touch."),
    .tp_basicsize = sizeof(Barrier),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_as_number = &barrier_as_number,
    .tp_repr = barrier_repr,
    .tp_members = barrier_members,
};

/* barrier_make(name, operand, table): the operand is an attribute's or global's name, or None, or
 * what the barrier says; the table that of the function which this barrier begins, or NULL.
 * Under the instrumenter's lock. Immortal, so that threads which load it share no reference count. */
PyObject *
barrier_make(const char *name, PyObject *operand, PyObject *table)
{
    static uint32_t made;
    for (int i = 0; barriers[i].name != NULL; i++) {
        if (strcmp(barriers[i].name, name) != 0)
            continue;
        Barrier *b = PyObject_New(Barrier, &Barrier_Type);
        if (b == NULL)
            return NULL;
        Py_INCREF(operand);
        if (PyUnicode_Check(operand))
            PyUnicode_InternInPlace(&operand);
        b->operand = operand;
        b->table = Py_XNewRef(table);
        b->enter = barriers[i].enter;
        b->name = barriers[i].name;
        uint32_t numbers = PyTuple_Check(operand) ? (uint32_t)PyTuple_GET_SIZE(operand) : 1;
        b->pure = PyCFunction_CheckExact(operand) && PyCFunction_GET_SELF(operand) != NULL
            && plain_effect(operand, PyCFunction_GET_SELF(operand)) == EFFECT_PURE;
        b->what = OPENED_NEVER;
        if (OPENED_NAMES + made + numbers <= OPENED_LIMIT) {
            b->what = OPENED_NAMES + made;
            made += numbers;
        }
        _Py_SetImmortal((PyObject *)b);
        return (PyObject *)b;
    }
    return PyErr_Format(PyExc_ValueError, "no barrier is called %s", name);
}

/* ---- Tables of barriers ------------------------------------------------------------------------ */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *barriers;     /* the tuple of them, for Python */
    struct { Enter enter; Barrier *barrier; } at[];
} Table;

/* SETUP_ANNOTATIONS: "is there a key __annotations__ in the namespace?" */
static PyObject *
table_enter(PyObject *self, PyObject *Py_UNUSED(key))
{
    Tx *tx = stm_self;
    if (UNLIKELY(tx == NULL || !tx->live))
        return Py_None;
    _PyInterpreterFrame *f = tx->tstate->current_frame;
    int i = f->instr_ptr->op.arg;
    Table *t = (Table *)self;
    return t->at[i].enter(t->at[i].barrier, tx, f, f->stackpointer, f->instr_ptr + 1);
}

static int
table_store(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    Tx *tx = stm_self;
    PyErr_SetRaisedException(tx->key_error);
    tx->key_error = NULL;
    return -1;
}

/* The same in a generator that was made in a transaction: its frame refers to that one's birth, and
 * its code has the table as the last constant. */
static PyObject *
birth_enter(PyObject *Py_UNUSED(self), PyObject *key)
{
    Tx *tx = stm_self;
    if (UNLIKELY(tx == NULL || !tx->live))
        return Py_None;
    PyObject *consts = _PyFrame_GetCode(tx->tstate->current_frame)->co_consts;
    return table_enter(PyTuple_GET_ITEM(consts, PyTuple_GET_SIZE(consts) - 1), key);
}

PyMappingMethods birth_as_mapping = {.mp_subscript = birth_enter, .mp_ass_subscript = table_store};

static PyObject *
table_begin(PyObject *self)
{
    Tx *tx = stm_self;
    begin(tx != NULL && tx->live ? tx : NULL, self);
    return Py_None;
}

static PyMappingMethods table_as_mapping = {.mp_subscript = table_enter, .mp_ass_subscript = table_store};
static PyNumberMethods table_as_number = {.nb_negative = table_begin};
static PyMemberDef table_members[] = {
    {"barriers", _Py_T_OBJECT, offsetof(Table, barriers), Py_READONLY, NULL},
    {0},
};

static PyTypeObject Table_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.BarrierTable",
    .tp_doc = PyDoc_STR("The barriers of a function, in the place of its frame's namespace."),
    .tp_basicsize = sizeof(Table),
    .tp_itemsize = sizeof(((Table *)NULL)->at[0]),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_as_number = &table_as_number,
    .tp_as_mapping = &table_as_mapping,
    .tp_members = table_members,
};

/* A table of these barriers, a tuple of at most 256; immortal like them. */
PyObject *
barrier_table(PyObject *barriers)
{
    Py_ssize_t n = PyTuple_GET_SIZE(barriers);
    Table *t = PyObject_NewVar(Table, &Table_Type, n);
    if (t == NULL)
        return NULL;
    t->barriers = Py_NewRef(barriers);
    for (Py_ssize_t i = 0; i < n; i++) {
        Barrier *b = (Barrier *)PyTuple_GET_ITEM(barriers, i);
        t->at[i].enter = b->enter;
        t->at[i].barrier = b;
    }
    _Py_SetImmortal((PyObject *)t);
    return (PyObject *)t;
}

int
barriers_init(PyObject *module)
{
    return PyType_Ready(&Barrier_Type) < 0 || PyType_Ready(&Table_Type) < 0
        || PyModule_AddObjectRef(module, "Barrier", (PyObject *)&Barrier_Type) < 0
        || PyModule_AddObjectRef(module, "BarrierTable", (PyObject *)&Table_Type) < 0
        || PyModule_AddIntMacro(module, MOST_BARRIERS) < 0 ? -1 : 0;
}

/* ---- Python code that no barrier announced ---------------------------------------------------- */

static bool
is_finalizer(PyCodeObject *code)
{
    return code->co_argcount == 1 && PyUnicode_EqualToUTF8AndSize(code->co_name, "__del__", 7);
}

/* sys.monitoring callback for PY_START and PY_RESUME: the net under the call
 * barriers. Code that C called (a comparison, a weak reference's callback, a
 * property) arrives here the first time, and runs exclusively that once. */
PyObject *
on_python_start(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 1 || !PyCode_Check(args[0]))
        Py_RETURN_NONE;
    if (((PyCodeObject *)args[0])->co_flags & CO_STM_ANY)
        return Py_NewRef(stm_disable);
    Tx *tx = stm_self;
    if (tx == NULL || stm_barriers_off)
        Py_RETURN_NONE;
    _PyInterpreterFrame *f = PyThreadState_Get()->current_frame;
    if (f != NULL && is_finalizer((PyCodeObject *)args[0])
        && finalizer_begins(tx, PyStackRef_AsPyObjectBorrow(f->localsplus[0]), f) < 0)
        return NULL;
    if (f != NULL && !PyStackRef_IsNull(f->f_funcobj) && callback_begins(tx, f))
        return NULL;
    if (!tx->live)
        Py_RETURN_NONE;
    if (f != NULL && !PyStackRef_IsNull(f->f_funcobj)) {
        PyObject *func = PyStackRef_AsPyObjectBorrow(f->f_funcobj);
        if (PyFunction_Check(func) && PyFunction_GET_CODE(func) == args[0]
            && ensure_instrumented(tx, func) < 0)
            return NULL;
        if (PyFunction_Check(func)
            && (((PyCodeObject *)PyFunction_GET_CODE(func))->co_flags & CO_STM_TRUSTED))
            Py_RETURN_NONE;
    }
    /* What an ended transaction sets off runs alone, every time. */
    bool first = !tx->releasing;
    tx->instrumenting = first;
    int r = first ? exclusive_for(tx, "first call from C of", ((PyCodeObject *)args[0])->co_qualname)
        : become_inevitable(tx, GRADE_EXCLUSIVE);
    tx->instrumenting = false;
    if (r < 0)
        return NULL;
    Py_RETURN_NONE;
}
