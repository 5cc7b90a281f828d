/* The barriers of the evaluation loop, where their inline tests (loop.h) find something left to do. */
#include "loop.h"

#include "calls/callbacks.h"
#include "objects/access.h"
#include "objects/deep.h"
#include "objects/dict.h"
#include "objects/endings.h"
#include "objects/exception.h"
#include "objects/instance.h"
#include "objects/memoryview.h"
#include "objects/names.h"
#include "objects/namespaces.h"
#include "objects/ndarray.h"
#include "tracebacks.h"

#include "internal/pycore_ceval.h"

/* Methods that C code calls, and what it looks at in what they return. */
enum { LOOKS_AT_ITEMS, LOOKS_AT_TRUTH, LOOKS_AT_ALL, LOOKS_AT_MEMORY, PRINTS, MAKES_PART };
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
    {"__instancecheck__", LOOKS_AT_TRUTH},
    {"__subclasscheck__", LOOKS_AT_TRUTH},
    {"__dir__", LOOKS_AT_ITEMS},
    {"__buffer__", LOOKS_AT_MEMORY},
    {"items", LOOKS_AT_ALL},    /* where it encodes them */
    {"__getitem__", PRINTS},    /* where a text is formatted; else it hands it on */
    {"__missing__", PRINTS},
    {"derive", MAKES_PART},     /* where it splits a group of exceptions */
};
enum { LOOKED_INTO = sizeof looked_into / sizeof looked_into[0] };
static PyObject *looked_into_names[LOOKED_INTO];
PyObject *stm_init_name;

int
loop_barriers_init(void)
{
    for (int i = 0; i < LOOKED_INTO; i++) {
        if ((looked_into_names[i] = PyUnicode_InternFromString(looked_into[i].name)) == NULL)
            return -1;
        assert(may_be_looked_into(looked_into_names[i]));
    }
    stm_init_name = PyUnicode_InternFromString("__init__");
    return stm_init_name == NULL ? -1 : 0;
}

static void
note_name(Tx *tx, PyObject *o, PyObject *name, unsigned of)
{
    uintptr_t what = (uintptr_t)name | of;
    if (Py_TYPE(o)->tp_version_tag != 0)
        *opened_name_at(tx, o, what) = opened_name_entry(tx, o, what);
}

/* ---- Behind the tests ----------------------------------------------------------------------------- */

bool
stm_attr_left(Tx *tx, PyObject *o, PyObject *name, unsigned of)
{
    uintptr_t what = (uintptr_t)name | of;
    OpenedName *e = opened_name_at(tx, o, what), entry = opened_name_entry(tx, o, what);
    if (LIKELY(is_noted(e, entry)))
        return false;
    /* What assigning to those two does is not done once for all. */
    if (UNLIKELY(name == stm_dict_name))
        return of != OF_READ_ATTR || !has_captured_dict(tx, o);
    if (!captured(tx, o) || name == stm_class_name)
        return true;
    *e = entry;
    return false;
}

/* Whatever its class is: what lies in the instance itself is the attribute, and has one lock. A mark says that it is there. */
bool
stm_value_left(Tx *tx, PyObject *o, PyObject *name)
{
    if (!(Py_TYPE(o)->tp_flags & Py_TPFLAGS_INLINE_VALUES) || name == stm_dict_name || name == stm_class_name || in_trusted_code(tx))
        return stm_attr_left(tx, o, name, OF_READ_ATTR) || !STM_QUIET(tx);
    PyDictValues *values = _PyObject_InlineValues(o);
    AtOnce locked = LIKELY(values->valid) ? lock_shared_at_once(tx, attr_cell(values, name)) : NOT_AT_ONCE;
    /* Until it was locked its owner could move them into a dict. */
    if (locked == NOT_AT_ONCE || UNLIKELY(!values->valid))
        return true;
    if (locked == LOCKED_NOW)
        bias_seen(tx, o);
    return false;
}

bool
stm_item_left(Tx *tx, PyObject *container, PyObject *key)
{
    return !(opened(tx, container, OPENED_ITEMS) || opened_item(tx, container, key, OF_READ_ITEM) || captured_container(tx, container));
}

bool
stm_key_left(Tx *tx, PyObject *container, PyObject *key)
{
    /* What has been deleted must be logged once more when it is inserted. */
    return !((opened_item(tx, container, key, OF_WRITTEN_ITEM) && !thread_of(tx)->order.deletes_keys)
             || captured_container(tx, container));
}

/* A container that only this stack knows, such as C code has just returned: as good as made in
 * this transaction, since an older one that is on a stack is known to an undo entry, too, or has a
 * bias, and is on the stack uncounted (borrowed.c).  Only
 * for operands: what lies in a container may have one reference, and be known to others. */
static bool
known_here_only(Tx *tx, PyObject *o)
{
    if (!is_builtin_container(o) || !_PyObject_IsUniquelyReferenced(o) || is_bias_known(o))
        return false;
    note_captured(tx, o);
    return true;
}

/* ---- Attributes ----------------------------------------------------------------------------------- */

static int
open_attr(Tx *tx, PyObject *obj, PyObject *name, unsigned of, int (*opener)(Tx *tx, PyObject *obj, PyObject *name))
{
    if (check_doomed(tx) < 0)
        return -1;
    Kind kind = kind_of(tx, obj);
    bool attributes = is_python_class(Py_TYPE(obj));
    if (!attributes && of == OF_READ_ATTR && kind->fixed_attributes) {
        if (kind != &class_kind)
            note_name(tx, obj, name, of);
        else
            type_entry(tx, (PyTypeObject *)obj);    /* what lies in it may have a __get__ */
        return 0;     /* their methods */
    }
    attributes |= kind != &inert_kind && kind != &tuple_kind;
    bool special = name == stm_dict_name || name == stm_class_name;
    if (attributes && !special && captured(tx, obj))
        return 0;
    if (opener(tx, obj, name) < 0)
        return -1;
    if (attributes && !special)
        note_name(tx, obj, name, of);
    return 0;
}

static int
open_own_attr_write(Tx *tx, PyObject *obj, PyObject *name)
{
    return open_attr_write(tx, obj, name, false);
}

int
stm_read_attr(PyObject *obj, PyObject *name)
{
    BARRIER_OF(tx);
    return open_attr(tx, obj, name, OF_READ_ATTR, open_attr_read);
}

static bool
has_value(PyObject *obj, PyObject *name, PyObject *value)
{
    PyObject *now = _PyObject_GenericGetAttrWithDict(obj, name, NULL, 1);
    bool same = now == value;
    Py_XDECREF(now);
    PyErr_Clear();
    return same;
}

/* The same of a class, of its own attributes; not of what says how its instances behave. */
static bool
class_has_value(PyObject *cls, PyObject *name, PyObject *value)
{
    if (!Py_IS_TYPE(cls, &PyType_Type) || PyType_HasFeature((PyTypeObject *)cls, Py_TPFLAGS_IMMUTABLETYPE) || is_dunder(name))
        return false;
    PyObject *in_metaclass = _PyType_LookupRef(&PyType_Type, name), *dict = PyType_GetDict((PyTypeObject *)cls), *now = NULL;
    bool same = in_metaclass == NULL && dict != NULL && PyDict_GetItemRef(dict, name, &now) > 0 && now == value;
    Py_XDECREF(in_metaclass);
    Py_XDECREF(dict);
    Py_XDECREF(now);
    PyErr_Clear();
    return same;
}

/* Is True, False or None about to be assigned to an attribute that has this value?  Who assigns it only reads ("silent stores",
 * Lepak & Lipasti, 2000): frameworks set such flags in each request.  1, 0, or -1 to abort. */
static int
writes_what_is_there(Tx *tx, PyObject *obj, PyObject *name, PyObject *value)
{
    if (!PyBool_Check(value) && value != Py_None)
        return 0;
    if (PyType_Check(obj))
        return class_has_value(obj, name, value);
    PyTypeObject *type = Py_TYPE(obj);
    if (kind_of(tx, obj) != &instance_kind || type->tp_setattro != PyObject_GenericSetAttr || captured(tx, obj))
        return 0;
    PyObject *in_class = _PyType_LookupRef(type, name);
    Py_XDECREF(in_class);
    if (in_class != NULL || !has_value(obj, name, value))
        return 0;
    if (open_attr(tx, obj, name, OF_READ_ATTR, open_attr_read) < 0)
        return -1;
    return has_value(obj, name, value);
}

static bool
is_of_object(PyTypeObject *type, PyObject *name)
{
    PyObject *in_class = _PyType_LookupRef(type, name);
    bool plain = in_class != NULL && Py_IS_TYPE(in_class, &PyGetSetDescr_Type);
    Py_XDECREF(in_class);
    return plain;
}

/* Does an object that nobody else knows yet get a dict that nobody else knows either?  So are copies made of objects by their class.
 * Or another class, one in Python without a finalizer?  So are copies made past a constructor (Django's queries).  It goes on to be
 * this transaction's own, which is noted for that class before it has it. `raw`: as of open_attr_write. */
bool
replaces_own(Tx *tx, PyObject *obj, PyObject *name, PyObject *value, bool raw)
{
    if ((name != stm_dict_name && name != stm_class_name) || value == NULL || kind_of(tx, obj) != &instance_kind
        || !(raw || Py_TYPE(obj)->tp_setattro == PyObject_GenericSetAttr) || !captured(tx, obj) || !is_of_object(Py_TYPE(obj), name))
        return false;
    if (name == stm_dict_name)
        return PyDict_CheckExact(value) && (captured(tx, value) || known_here_only(tx, value));
    PyTypeObject *type = PyType_Check(value) ? (PyTypeObject *)value : NULL;
    if (type == NULL || !is_python_class(type) || type->tp_finalize != NULL || type_entry(tx, type)->kind != &instance_kind
        || !PyUnstable_Type_AssignVersionTag(type))
        return false;
    note_captured_as(tx, obj, type);
    return true;
}

int
stm_write_attr(PyObject *obj, PyObject *name, PyObject *value)
{
    BARRIER_OF(tx);
    if (UNLIKELY(replaces_own(tx, obj, name, value, false)))
        return check_doomed(tx);
    int there = writes_what_is_there(tx, obj, name, value);
    if (there != 0)
        return there < 0 ? -1 : 0;
    return open_attr(tx, obj, name, OF_WRITTEN_ATTR, open_own_attr_write);
}

int
stm_delete_attr(PyObject *obj, PyObject *name)
{
    BARRIER_OF(tx);
    return open_attr_delete(tx, obj, name, false);
}

/* super().name: a slot, or the state of a C type, that a base class gives access to; with
 * the object's own class and name it has the same lock. Methods that only classes have, by
 * their names, need none. */
int
stm_super_attr(PyObject *super, PyObject *self, PyObject *name, int oparg)
{
    BARRIER_OF(tx);
    if (UNLIKELY(super != (PyObject *)&PySuper_Type))
        return exclusive_for(tx, "an attribute of what is returned by", super);
    bool method = oparg & 1;
    Py_ssize_t n = PyUnicode_GET_LENGTH(name);
    if (method && n > 4 && PyUnicode_READ_CHAR(name, 0) == '_'
        && PyUnicode_READ_CHAR(name, 1) == '_' && PyUnicode_READ_CHAR(name, n - 1) == '_')
        return kind_of(tx, self) == &unknown_kind ? open_attr_read(tx, self, name) : check_doomed(tx);
    return open_attr_read(tx, self, name);
}

/* ---- Items and operators ------------------------------------------------------------------------------ */

/* A generator made in this transaction that handles no exceptions, or a view of such a dict. */
static inline bool
own_iterable(Tx *tx, PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return is_captured_generator(tx, o)
        || ((t == &PyDictItems_Type || t == &PyDictKeys_Type || t == &PyDictValues_Type)
            && ((_PyDictViewObject *)o)->dv_dict != NULL && captured_container(tx, (PyObject *)((_PyDictViewObject *)o)->dv_dict));
}

int
open_iterable(Tx *tx, PyObject *o)
{
    return own_iterable(tx, o) ? check_doomed(tx) : open_iter(tx, o);
}

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
    if (UNLIKELY(is_ndarray(tx, container))) {
        ndarray_known_here_only(tx, container);
        return open_array_item(tx, container, key, value);
    }
    if (open_key_write(tx, container, key, false) < 0)
        return -1;
    note_item(tx, container, key, OF_WRITTEN_ITEM);
    return 0;
}

/* A class that has but a __setitem__ in Python inherits how a key is deleted. */
static bool
deletes_by_python(PyObject *container)
{
    static PyObject *name;
    if (name == NULL)
        name = PyUnicode_InternFromString("__delitem__");
    PyObject *method = _PyType_LookupRef(Py_TYPE(container), name);
    bool python = method != NULL && PyFunction_Check(method);
    Py_XDECREF(method);
    return python;
}

/* Where the key is deleted here, the instruction gets another to delete. */
int
stm_delete_item(_PyStackRef *site)
{
    BARRIER_OF(tx);
    PyObject *container = PyStackRef_AsPyObjectBorrow(site[0]), *value = NULL;
    PyMappingMethods *mapping = Py_TYPE(container)->tp_as_mapping;
    if (mapping != NULL && mapping->mp_ass_subscript != PyDict_Type.tp_as_mapping->mp_ass_subscript)
        return PyDict_Check(container) && !PyODict_Check(container) && deletes_by_python(container)
            ? check_doomed(tx)
            : open_key_write(tx, container, PyStackRef_AsPyObjectBorrow(site[1]), true);
    int done = delete_key(tx, container, PyStackRef_AsPyObjectBorrow(site[1]), &value);
    if (done <= 0)
        return done;
    Py_DECREF(value);       /* the undo log has it */
    if (thread_of(tx)->loop.scratch == NULL && (thread_of(tx)->loop.scratch = PyDict_New()) == NULL)
        return -1;
    if (PyDict_SetItem(thread_of(tx)->loop.scratch, Py_None, Py_None) < 0)
        return -1;
    replace_operand(&site[0], thread_of(tx)->loop.scratch);
    replace_operand(&site[1], Py_None);
    return 0;
}

int
stm_write_slice(PyObject *container, PyObject *value)
{
    BARRIER_OF(tx);
    if (UNLIKELY(is_ndarray(tx, container))) {
        ndarray_known_here_only(tx, container);
        return open_array_item(tx, container, Py_None, value);
    }
    return open_iter(tx, value) < 0 || open_whole_write(tx, container) < 0 ? -1 : open_resize(tx, container);
}

/* Does looking for an item take what the container makes then, which nobody has opened? */
static bool
makes_items(PyObject *container, Kind kind)
{
    if (kind == &generator_kind)
        return true;
    if (kind == &iterator_kind)
        return !PyDictViewSet_Check(container) && !PyDictValues_Check(container);
    if (kind != &instance_kind)
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
    if (kind != &tuple_kind || !PyTuple_Check(o) || depth > 4)
        return !kind->compared_inside;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
        if (!is_deep_inert(tx, PyTuple_GET_ITEM(o, i), depth + 1))
            return false;
    }
    return true;
}

int
stm_contains(PyObject *item, PyObject *container)
{
    BARRIER_OF(tx);
    Kind kind = kind_of(tx, container);
    if (kind == &dict_kind || kind == &set_kind)
        return open_key_read(tx, container, item);
    if (kind_of(tx, item) == &inert_kind && !PyBytes_Check(item))
        return kind == &tuple_kind ? check_doomed(tx) : open_iter(tx, container);
    if (makes_items(container, kind) && !is_deep_inert(tx, item, 0))
        return exclusive_for(tx, "a look for a container in the items of", container);
    return open_deep_read(tx, item) < 0 || open_deep_read(tx, container) < 0
        || open_iter(tx, container) < 0 ? -1 : 0;
}

static int
open_operand(Tx *tx, PyObject *o, Kind kind)
{
    return kind->read_whole == NULL ? 0 : open_whole_read(tx, o);
}

int
stm_binary(PyObject *left, PyObject *right, int op)
{
    BARRIER_OF(tx);
    if (op == NB_SUBSCR)
        return stm_read_item(left, right);
    Kind ka = kind_of(tx, left), kb = kind_of(tx, right);
    if (ka == &inert_kind && kb == &inert_kind)
        return check_doomed(tx);
    if (UNLIKELY(ka->reads_operands || kb->reads_operands)) {
        if (op >= NB_INPLACE_ADD && is_ndarray(tx, left))
            ndarray_known_here_only(tx, left);
        if (open_array_operands(tx, left, right, op >= NB_INPLACE_ADD) < 0)
            return -1;
        if (op < NB_INPLACE_ADD || ka->contents == NULL)
            return 0;
    }
    if (op == NB_REMAINDER || op == NB_INPLACE_REMAINDER)
        return open_interpolated(tx, left, right) < 0 ? -1 : open_operand(tx, left, ka);
    if (op >= NB_INPLACE_ADD && op != NB_SUBSCR && ka->contents != NULL) {
        if ((ka->mapping ? open_dict_operand(tx, right) : open_iter(tx, right)) < 0)
            return -1;
        return ka == &list_kind && op == NB_INPLACE_ADD ? open_list_append(tx, left)
            : open_merge(tx, left, right);
    }
    return open_operand(tx, left, ka) < 0 ? -1 : open_operand(tx, right, kb);
}

int
stm_compare(PyObject *left, PyObject *right)
{
    BARRIER_OF(tx);
    if (is_tuple_of_constants(left, 0) && is_tuple_of_constants(right, 0))
        return check_doomed(tx);
    if (compares_plainly(left) && compares_plainly(right))
        return check_doomed(tx);
    Kind ka = kind_of(tx, left), kb = kind_of(tx, right);
    if (ka == &inert_kind && kb == &inert_kind)
        return check_doomed(tx);
    if (ka == &inert_kind || kb == &inert_kind) {
        /* Something inert never looks into a container. */
        PyObject *o = ka == &inert_kind ? right : left;
        Kind k = ka == &inert_kind ? kb : ka;
        return k->compared_by_memory ? open_whole_read(tx, o) : check_doomed(tx);
    }
    return open_deep_read(tx, left) < 0 ? -1 : open_deep_read(tx, right);
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
    if (kind_of(tx, obj) == &persistent_kind)
        thread_of(tx)->loop.new_iterator = true;
    return known_here_only(tx, obj) ? check_doomed(tx) : open_iterable(tx, obj);
}

int
stm_send(PyObject *receiver, PyObject *value)
{
    BARRIER_OF(tx);
    static PyObject *send_name;
    if (send_name == NULL)
        send_name = PyUnicode_InternFromString("send");
    if (value != Py_None && open_through_attribute(tx, receiver, send_name) < 0)
        return -1;
    return stm_iterate(receiver);
}

int
stm_extend_list(PyObject *list, PyObject *items)
{
    BARRIER_OF(tx);
    return open_iterable(tx, items) < 0 ? -1 : captured(tx, list) ? check_doomed(tx) : open_list_append(tx, list);
}

int
stm_extend_set(PyObject *set, PyObject *items)
{
    BARRIER_OF(tx);
    return open_iterable(tx, items) < 0 ? -1 : captured(tx, set) ? check_doomed(tx) : open_whole_write(tx, set);
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
    if (open_closure_read(tx, cell) < 0)
        return -1;
    *read_cell_at(&thread_of(tx)->loop, cell) = cell;
    return 0;
}

int
stm_write_cell(PyObject *cell)
{
    BARRIER_OF(tx);
    if (open_closure_write(tx, cell) < 0)
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
    if (see_module(tx, globals) < 0 || keep_unchanged(frame->f_builtins) < 0)
        return -1;
    if (UNLIKELY(inserts_missing_keys(globals)) && PyDict_Contains(globals, name) == 0)
        return exclusive_for(tx, "a global that is missing in", globals);
    PyObject *rebound = globals_rebound(globals);
    int is_rebound = rebound == Py_None ? 0 : PySequence_Contains(rebound, name);
    Py_DECREF(rebound);
    if (is_rebound < 0 || (is_rebound ? open_global_read(tx, globals, name) : check_doomed(tx)) < 0)
        return -1;
    note_name(tx, globals, name, OF_GLOBAL);
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

/* What a name is looked up in may be no dict, or make what is missing. */
static int
open_name_in(Tx *tx, PyObject *namespace, PyObject *name)
{
    return PyDict_CheckExact(namespace) ? open_key_read(tx, namespace, name) : open_item_read(tx, namespace, name);
}

static int
open_name(Tx *tx, PyObject *namespace, _PyInterpreterFrame *frame, PyObject *name)
{
    if (namespace != NULL && namespace != frame->f_globals && open_name_in(tx, namespace, name) < 0)
        return -1;
    return keep_unchanged(frame->f_builtins) < 0 ? -1 : open_global_read(tx, frame->f_globals, name);
}

int
stm_read_name(_PyInterpreterFrame *frame, PyObject *name)
{
    BARRIER_OF(tx);
    return open_name(tx, frame->f_locals, frame, name);
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
    return open_name(tx, namespace, frame, name);
}

int
stm_read_name_or_cell(PyObject *namespace, _PyInterpreterFrame *frame, int oparg)
{
    BARRIER_OF(tx);
    PyObject *names = _PyFrame_GetCode(frame)->co_localsplusnames;
    if (open_name_in(tx, namespace, PyTuple_GET_ITEM(names, oparg)) < 0)
        return -1;
    return open_closure_read(tx, PyStackRef_AsPyObjectBorrow(frame->localsplus[oparg]));
}

int
stm_setup_annotations(_PyInterpreterFrame *frame)
{
    BARRIER_OF(tx);
    return frame->f_locals == NULL ? check_doomed(tx) : open_whole_write(tx, frame->f_locals);
}

/* import name: free of effects once the module is there. */
int
stm_import(_PyInterpreterFrame *frame, PyObject *name, PyObject *level)
{
    BARRIER_OF(tx);
    if (!PyLong_Check(level))
        return exclusive_for(tx, "import of", name);
    PyObject *full = full_module_name(frame->f_globals, name, PyLong_AsLong(level));
    int r = full == NULL ? 0 : open_module_name(tx, full);
    PyObject *module = full && r == 0 ? PyImport_GetModule(full) : NULL;
    Py_XDECREF(full);
    if (r < 0)
        return -1;
    PyErr_Clear();
    if (module == NULL)
        return exclusive_for(tx, "import of", name);
    Py_DECREF(module);
    return 0;
}

int stm_load_special(void) { BARRIER_OF(tx); return check_doomed(tx); }

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

/* case Class(...): gets attributes of the subject, those in the pattern and those that
 * __match_args__ names for its positional parts. */
int
stm_match_class(PyObject *subject, PyObject *type, PyObject *names, int positional)
{
    BARRIER_OF(tx);
    if (!PyType_Check(type) || !PyTuple_Check(names))
        return check_doomed(tx);
    if (positional > 0) {
        if (Py_TYPE(type)->tp_getattro != PyType_Type.tp_getattro)
            return exclusive_for(tx, "a pattern of the class", type);
        PyObject *key = PyUnicode_InternFromString("__match_args__");
        PyObject *args = key ? _PyType_LookupRef((PyTypeObject *)type, key) : NULL;
        PyObject *of_metaclass = key ? _PyType_LookupRef(Py_TYPE(type), key) : NULL;
        bool elsewhere = of_metaclass != NULL;
        Py_XDECREF(of_metaclass);
        Py_XDECREF(key);
        int r = elsewhere ? exclusive_for(tx, "a pattern of the class", type) : 0;
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
int
stm_match_keys(PyObject *subject, PyObject *keys)
{
    BARRIER_OF(tx);
    static PyObject *get_name;
    if (!PyTuple_Check(keys))
        return check_doomed(tx);
    if (get_name == NULL)
        get_name = PyUnicode_InternFromString("get");
    if (open_through_attribute(tx, subject, get_name) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (open_key_read(tx, subject, PyTuple_GET_ITEM(keys, i)) < 0)
            return -1;
    }
    return check_doomed(tx);
}

/* ---- Intrinsic functions ----------------------------------------------------------------------------------------- */

/* A class that is generic by such a parameter: the interpreter calls Python code of `typing` and is not prepared that this raises an
 * exception.  Who runs alone is not rolled back. */
static int
before_generic(Tx *tx, PyObject *parameters)
{
    for (Py_ssize_t i = 0; PyTuple_Check(parameters) && i < PyTuple_GET_SIZE(parameters); i++) {
        if (strcmp(Py_TYPE(PyTuple_GET_ITEM(parameters, i))->tp_name, "typing.TypeVarTuple") == 0)
            return exclusive_for(tx, "a class with a TypeVarTuple", NULL);
    }
    return check_doomed(tx);
}

int
stm_intrinsic_1(PyObject *operand, int function)
{
    BARRIER_OF(tx);
    switch (function) {
    case INTRINSIC_SUBSCRIPT_GENERIC:
        return before_generic(tx, operand);
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

/* The exception that is being handled in this frame or below, or NULL. */
static PyObject *
handled_exception(Tx *tx)
{
    _PyErr_StackItem *item = tx->tstate->exc_info;
    while ((item->exc_value == NULL || item->exc_value == Py_None) && item->previous_item != NULL)
        item = item->previous_item;
    return item->exc_value == Py_None ? NULL : item->exc_value;
}

/* `raise Class`, `raise ... from Class`: of a class in Python the exception is made here, with barriers; it may be one that others know. */
static int
make_raised(_PyStackRef *raised, bool is_cause)
{
    PyObject *cls = PyStackRef_AsPyObjectBorrow(*raised);
    if (LIKELY(!PyExceptionClass_Check(cls) || !is_python_class((PyTypeObject *)cls)))
        return 0;
    PyObject *made = stm_call(cls, NULL, 0, NULL);
    if (made != NULL && !is_cause && PyExceptionInstance_Check(made) && !PyType_IsSubtype(Py_TYPE(made), (PyTypeObject *)cls))
        Py_SETREF(made, stm_call(cls, &made, 1, NULL));     /* what the interpreter makes of one of another class */
    if (made == NULL)
        return -1;
    if (PyExceptionInstance_Check(made))
        replace_operand(raised, made);
    else
        PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", cls, Py_TYPE(made));
    Py_DECREF(made);
    return PyErr_Occurred() ? -1 : 0;
}

int
stm_raise(_PyStackRef *raised, int n)
{
    BARRIER_OF(tx);
    for (int i = 0; i < n; i++) {
        if (make_raised(&raised[i], i > 0) < 0)
            return -1;
    }
    if (!tx->open)
        return 0;       /* a constructor in C has made it exclusive */
    if (n == 0) {
        PyObject *again = handled_exception(tx);
        return again == NULL ? check_doomed(tx) : open_exception(tx, again);
    }
    PyObject *exception = PyStackRef_AsPyObjectBorrow(raised[0]);
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

/* What was caught before a suspension leaves its handler, or `finally`, after it. */
int
stm_reraise(PyObject *exception)
{
    BARRIER_OF(tx);
    return PyExceptionInstance_Check(exception) ? open_exception(tx, exception) : check_doomed(tx);
}

/* except*: a group is split, and with it what its parts say. */
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
static bool
unwinds(PyThreadState *tstate, _PyInterpreterFrame *frame)
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

/* What the frame of an attempt that never was would keep alive for ever, or until the cyclic garbage is collected: handlers that an
 * abort passes by do not drop the exception that they handle, and its traceback refers to the frame. */
static void
drop_locals(_PyInterpreterFrame *frame)
{
    int n = _PyFrame_GetCode(frame)->co_nlocalsplus;
    for (int i = 0; i < n; i++) {
        _PyStackRef local = frame->localsplus[i];
        frame->localsplus[i] = PyStackRef_NULL;
        PyStackRef_XCLOSE(local);
    }
}

bool
stm_unwinds(PyThreadState *tstate, _PyInterpreterFrame *frame)
{
    if (LIKELY(!unwinds(tstate, frame)))
        return false;
    if (frame->frame_obj != NULL && frame->owner == FRAME_OWNED_BY_THREAD) {
        PyObject *raised = PyErr_GetRaisedException();
        drop_locals(frame);
        PyErr_SetRaisedException(raised);
    }
    return true;
}

/* Has a signal arrived where the project's own code begins or ends a transaction, or an atomic block, or acts in it?  Its handler runs when
 * that is over: what it raises would leave things half done. */
static bool
signal_waits(PyThreadState *tstate)
{
    return UNLIKELY(_Py_atomic_load_uintptr_relaxed(&tstate->eval_breaker) & _PY_SIGNALS_PENDING_BIT) && stm_self != NULL
        && state_of(stm_self) != TX_IDLE && STM_TRUSTED(tstate->current_frame);
}

int
stm_handle_pending(PyThreadState *tstate)
{
    bool waits = signal_waits(tstate);
    if (waits)
        _Py_unset_eval_breaker_bit(tstate, _PY_SIGNALS_PENDING_BIT);
    int r = _Py_HandlePending(tstate);
    if (waits)
        _Py_set_eval_breaker_bit(tstate, _PY_SIGNALS_PENDING_BIT);
    if (r < 0)
        return -1;
    Tx *tx = stm_self;
    if (tx == NULL)
        return 0;
    if (UNLIKELY(thread_of(tx)->births.dying != NULL) && state_of(tx) == TX_IDLE) {
        if (STM_TRUSTED(tstate->current_frame))
            born_ask(tx);       /* not here */
        else
            let_die(tx);
    }
    return tx->open && !in_trusted_code(tx) ? check_doomed(tx) : 0;
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
        /* start, size, target, depth: each of so many bytes of six bits, as the seventh says */
        int target;
        if (LIKELY(end - at >= 4 && !((at[0] | at[1] | at[2] | at[3]) & 64))) {
            target = at[2] & 63;
            at += 4;
        }
        else {
            int entry[4];
            for (int i = 0; i < 4; i++) {
                entry[i] = *at & 63;
                while (*at++ & 64)
                    entry[i] = entry[i] << 6 | (*at & 63);
            }
            target = entry[2];
        }
        if (first >= 0 && target != first)
            return true;
        first = target;
    }
    return false;
}

/* The generator refers to the birth that it shares with others of the attempt (born.c). */
void
stm_made_generator(Tx *tx, PyObject *generator)
{
    if (!PyGen_CheckExact(generator) && !PyCoro_CheckExact(generator) && !PyAsyncGen_CheckExact(generator))
        return;
    _PyInterpreterFrame *f = &((PyGenObject *)generator)->gi_iframe;
    PyCodeObject *code = _PyFrame_GetCode(f);
    if (code->co_flags & CO_STM_TRUSTED || f->f_locals != NULL)
        return;
    PyObject **birth = &thread_of(tx)->births.shared[handles_exceptions(code)];
    if (*birth == NULL && (*birth = new_birth()) == NULL)
        PyErr_Clear();      /* it is taken for an older one */
    f->f_locals = Py_XNewRef(*birth);
}

/* The class of an object that an instruction makes may be met here first.  Is it known?  Who uses an instance of another one runs alone,
 * whoever has made it. */
bool
stm_meets(Tx *tx, PyObject *self)
{
    if (kind_of(tx, self) == &unknown_kind)
        return false;
    thread_of(tx)->loop.made = Py_TYPE(self);
    thread_of(tx)->loop.made_version = Py_TYPE(self)->tp_version_tag;
    return true;
}

/* An object whose class has a finalizer. */
void
stm_made_self(Tx *tx, PyObject *self)
{
    if (ends_in_python(Py_TYPE(self)) ? note_birth(tx, self) < 0
        : undo_push(tx, &undo_birth, self, NULL, NULL) == NULL)
        PyErr_Clear();
}

/* ---- Python code that C code calls ------------------------------------------------------------------------------- */

/* An __init__, of an object that the call of its class may just have made. */
static int
constructor_begins(Tx *tx, PyObject *self)
{
    PyTypeObject *type = thread_of(tx)->loop.constructing != NULL ? thread_of(tx)->loop.constructing : thread_of(tx)->births.watching;
    bool watched = thread_of(tx)->births.watching == Py_TYPE(self), anew = !watched || is_made_anew(tx, self);
    bool made = anew && Py_IS_TYPE(self, type) && self->ob_tid == thread_of(tx)->opened.tid && self->ob_ref_shared == 0;
    thread_of(tx)->loop.constructing = NULL;
    if (watched) {
        thread_of(tx)->births.watching = NULL;
        if (anew && note_birth(tx, self) < 0)
            return -1;
    }
    else if (made && type->tp_finalize != NULL && undo_push(tx, &undo_birth, self, NULL, NULL) == NULL)
        return -1;
    if (made) {
        PyUnstable_Type_AssignVersionTag(type);     /* what is noted of the object counts while that stays */
        note_captured(tx, self);
    }
    return check_doomed(tx);
}

/* C code calls a function. Returns 0; 1 if it is not to run now, and nobody waits for a result; or -1 with an exception. */
int
stm_enter(Tx *tx, PyThreadState *tstate, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = _PyFrame_GetCode(frame);
    if (code->co_argcount == 0 || frame->owner != FRAME_OWNED_BY_THREAD || PyStackRef_IsNull(frame->localsplus[0]))
        return 0;
    PyObject *first = PyStackRef_AsPyObjectBorrow(frame->localsplus[0]);
    _PyInterpreterFrame *caller = tstate->current_frame;
    if (code->co_flags & CO_STM_TRUSTED)
        return 0;
    if (!PyStackRef_IsNull(frame->f_funcobj) && callback_called(tx, frame, caller))
        return 1;
    return tx->open && code->co_name == stm_init_name ? constructor_begins(tx, first) : 0;
}

/* Did nothing else refer to what a method has just returned, it has been made in it; but a view of a dict is not all
 * that C code looks into. */
static bool
is_made_there(PyObject *o)
{
    return _PyObject_IsUniquelyReferenced(o) && !PyDictViewSet_Check(o) && !PyDictValues_Check(o);
}

/* Has a function been called by C code that formats a text with what it returns? */
static bool
is_formatting(Tx *tx)
{
    if (thread_of(tx)->loop.prints)
        return true;
    _PyInterpreterFrame *caller = tx->tstate->current_frame;
    if (caller == NULL || !PyStackRef_CodeCheck(caller->f_executable))
        return false;
    _Py_CODEUNIT now = *caller->instr_ptr;
    bool may_be_operator = now.op.code == BINARY_OP || now.op.code == BINARY_OP_EXTEND || now.op.code >= MIN_INSTRUMENTED_OPCODE;
    return may_be_operator && (now.op.arg == NB_REMAINDER || now.op.arg == NB_INPLACE_REMAINDER);
}

/* It may write there, too. */
static int
open_memory_for_any_use(Tx *tx, PyObject *view)
{
    return PyMemoryView_Check(view) && !PyMemoryView_GET_BUFFER(view)->readonly ? open_whole_write(tx, view) : open_whole_read(tx, view);
}

/* It copies to the part of a group, which may be one that others have, what the group says of itself. */
static int
open_part(Tx *tx, PyObject *group, PyObject *part)
{
    static PyObject *notes_name;
    if (!PyExceptionInstance_Check(part) || group == NULL || !PyExceptionInstance_Check(group) || captured(tx, part))
        return check_doomed(tx);
    if (notes_name == NULL)
        notes_name = PyUnicode_InternFromString("__notes__");
    PyObject *notes = notes_name == NULL ? NULL : _PyObject_GenericGetAttrWithDict(group, notes_name, NULL, 1);
    int r = open_exception(tx, part);
    if (r == 0 && notes != NULL)
        r = open_attr_write(tx, part, notes_name, false);
    Py_XDECREF(notes);
    return r;
}

static int
open_returned(Tx *tx, const Called *called, PyObject *result, int at)
{
    return at == MAKES_PART ? open_part(tx, called->self, result)
        : at == LOOKS_AT_TRUTH ? open_whole_read(tx, result)
        : at == LOOKS_AT_ALL ? open_rows(tx, result)
        : at == LOOKS_AT_MEMORY ? open_memory_for_any_use(tx, result)
        : at == PRINTS ? (is_formatting(tx) ? open_deep_read(tx, result) : 0)
        : is_made_there(result) ? check_doomed(tx) : open_iter(tx, result);
}

static const KnownMethod *
known_method(Tx *tx, PyObject *function, PyTypeObject *type)
{
    KnownMethod *known = &thread_of(tx)->loop.methods[((uintptr_t)function >> 4 ^ (uintptr_t)type >> 6) % KNOWN_METHODS];
    if (LIKELY(known->function == function && known->type == type && known->version == type->tp_version_tag && known->version != 0))
        return known;
    uint32_t names = 0;
    for (int i = 0; i < LOOKED_INTO; i++) {
        PyObject *method = _PyType_LookupRef(type, looked_into_names[i]);
        names |= (uint32_t)(method == function) << i;
        Py_XDECREF(method);
    }
    *known = (KnownMethod){function, type, type->tp_version_tag, names};
    return known;
}

/* Of a function that has another name than the class has it by (a decorator's, a lambda): what C code may be looking at. */
static int
open_returned_by_class(Tx *tx, const Called *called, PyObject *result)
{
    uint32_t names = known_method(tx, called->function, Py_TYPE(called->self))->names;
    int r = 0;
    for (int i = 0; r == 0 && names >> i != 0; i++) {
        if (names >> i & 1)
            r = open_returned(tx, called, result, looked_into[i].at);
    }
    return r;
}

PyObject *
stm_return(Tx *tx, const Called *called, PyObject *result)
{
    int i = may_be_looked_into(called->name) ? 0 : LOOKED_INTO, r = 0;
    while (i < LOOKED_INTO && looked_into_names[i] != called->name)
        i++;
    if (i < LOOKED_INTO)
        r = open_returned(tx, called, result, looked_into[i].at);
    else if (PyIter_Check(result))      /* whoever gets an iterator goes over it, without asking for more */
        r = open_returned(tx, called, result, LOOKS_AT_ITEMS);
    else if (called->self != NULL && !captured_container(tx, result))
        r = open_returned_by_class(tx, called, result);
    if (r < 0)
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
