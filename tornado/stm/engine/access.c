/* Opening objects: the locks that an operation needs, and the undo it must log.
 *
 * One function for each shape of operation; what it does depends on the kind
 * of the object (types.c).  All of them come before the native operation, which
 * then runs at full speed on the object in place.
 *
 * An attribute can be reached as a key of obj.__dict__ too, and must be the same
 * cell (namespaces.c).
 */
#include "stm.h"

#include "internal/pycore_context.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_setobject.h"

PyObject *stm_exclusive_reasons;    /* dict: why -> how often; for stats() */
static PyObject *missing_name;      /* "__missing__" */

int
access_init(void)
{
    stm_exclusive_reasons = PyDict_New();
    missing_name = PyUnicode_InternFromString("__missing__");
    return stm_exclusive_reasons == NULL || missing_name == NULL ? -1 : 0;
}

/* Go exclusive because of something that the engine does not understand. */
int
exclusive_for(Tx *tx, const char *what, PyObject *obj)
{
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    const char *place = location(tx);
    char text[400];
    if (obj == NULL)
        snprintf(text, sizeof text, "%s", what);
    else if (PyCFunction_Check(obj))
        snprintf(text, sizeof text, "%s %s", what, ((PyCFunctionObject *)obj)->m_ml->ml_name);
    else if (Py_IS_TYPE(obj, &PyMethodDescr_Type))
        snprintf(text, sizeof text, "%s %s.%s", what, PyDescr_TYPE(obj)->tp_name,
                 ((PyMethodDescrObject *)obj)->d_method->ml_name);
    else if (PyType_Check(obj))
        snprintf(text, sizeof text, "%s %s", what, ((PyTypeObject *)obj)->tp_name);
    else if (PyUnicode_Check(obj))
        snprintf(text, sizeof text, "%s %s", what, PyUnicode_AsUTF8(obj));
    else
        snprintf(text, sizeof text, "%s %s object", what, Py_TYPE(obj)->tp_name);
    tx_pause(tx);
    PyObject *key = PyUnicode_FromFormat("%s: %s", text, place);
    if (key != NULL) {
        PyObject *old = NULL;
        if (PyDict_GetItemRef(stm_exclusive_reasons, key, &old) >= 0) {
            PyObject *now = PyLong_FromLong(old ? PyLong_AsLong(old) + 1 : 1);
            if (now != NULL)
                PyDict_SetItem(stm_exclusive_reasons, key, now);
            Py_XDECREF(now);
        }
        Py_XDECREF(old);
        Py_DECREF(key);
    }
    PyErr_Clear();
    tx_resume(tx);
    return become_inevitable(tx, GRADE_EXCLUSIVE);
}

/* ---- Attributes ------------------------------------------------------------------ */

static inline Cell
attr_cell(const void *base, PyObject *name)
{
    return cell_of(base, key_bits(PyObject_Hash(name)));
}

/* An attribute of an instance without a dict; not the cell of a key, should the
 * object be a dict itself. */
static inline Cell
slot_cell(PyObject *obj, PyObject *name)
{
    return cell_of(obj, key_bits(PyObject_Hash(name)) ^ 0x5bd1e995deadbeefull);
}

static inline PyDictValues *
inline_values(PyObject *obj)
{
    if (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_INLINE_VALUES)
        return _PyObject_InlineValues(obj);
    return NULL;
}

static int lock_key_shared(Tx *tx, PyObject *dict, Cell key_cell);
static int lock_key_owned(Tx *tx, PyObject *dict, Cell key_cell, bool *first);

/* The dict in which the instance has its attributes, made if need be; NULL
 * without an exception if it has none. */
static PyObject *
dict_of_instance(PyObject *obj)
{
    PyTypeObject *t = Py_TYPE(obj);
    if (!(t->tp_flags & Py_TPFLAGS_MANAGED_DICT) && t->tp_dictoffset == 0)
        return NULL;
    PyObject *dict = PyObject_GenericGetDict(obj, NULL);
    if (dict == NULL)
        PyErr_Clear();
    else if (!PyDict_Check(dict))
        Py_CLEAR(dict);
    return dict;
}

/* Is the name among the attributes that instances of the class have room for?
 * Only then is it sure that a new one leaves the values where they are. */
static bool
has_room_for(PyDictKeysObject *keys, PyObject *name)
{
    Py_ssize_t n = _Py_atomic_load_ssize_acquire(&keys->dk_nentries);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *k = DK_UNICODE_ENTRIES(keys)[i].me_key;
        if (k == name || (k != NULL && PyUnicode_Check(name) && PyUnicode_Equal(k, name)))
            return true;
    }
    return false;
}

/* What raising an exception sets is locked with the exception as a whole. */
static bool
set_by_raising(PyObject *obj, PyObject *name)
{
    static PyObject *names[4];
    if (!PyExceptionInstance_Check(obj))
        return false;
    static const char *const texts[4] = {"__traceback__", "__context__", "__cause__", "__suppress_context__"};
    for (int i = 0; i < 4; i++) {
        if (names[i] == NULL)
            names[i] = PyUnicode_InternFromString(texts[i]);
        if (name == names[i] || (names[i] != NULL && PyUnicode_Equal(name, names[i])))
            return true;
    }
    return false;
}

static int
lock_attr_shared(Tx *tx, PyObject *obj, PyObject *name)
{
    if (UNLIKELY(set_by_raising(obj, name)))
        return lock_shared(tx, cell_of(obj, WHOLE));
    PyDictValues *v = inline_values(obj);
    if ((v == NULL || v->valid) && read_by_bias(tx, obj))
        return check_doomed(tx);
    if (v != NULL && lock_shared(tx, attr_cell(v, name)) < 0)
        return -1;
    if (v != NULL && v->valid) {
        bias_seen(tx, obj);
        return 0;
    }
    PyObject *dict = dict_of_instance(obj);
    if (dict == NULL) {
        if (lock_shared(tx, slot_cell(obj, name)) < 0)
            return -1;
        bias_seen(tx, obj);
        return 0;
    }
    const void *base = namespace_of(dict);
    int r = base == NULL ? lock_key_shared(tx, dict, attr_cell(dict, name))
        : base == v ? 0 : lock_shared(tx, attr_cell(base, name));
    Py_DECREF(dict);
    return r;
}

/* Who runs code in the dict of an instance: that is not known by name as others are. */
static const char globals_of[] = "attributes that are globals of a function";

static int
lock_attr_cells(Tx *tx, PyObject *obj, PyObject *name, bool *first)
{
    PyDictValues *v = inline_values(obj);
    if (v != NULL && lock_exclusive(tx, attr_cell(v, name), first) < 0)
        return -1;
    PyObject *dict = v != NULL && v->valid ? (PyObject *)_PyObject_GetManagedDict(obj) : dict_of_instance(obj);
    if (v != NULL && v->valid)
        return LIKELY(dict == NULL || !is_module_dict(dict)) ? 0 : exclusive_for(tx, globals_of, obj);
    if (dict == NULL)
        return lock_exclusive(tx, slot_cell(obj, name), first);
    const void *base = namespace_of(dict);
    int r = base == NULL ? lock_key_owned(tx, dict, attr_cell(dict, name), first)
        : UNLIKELY(is_module_dict(dict)) ? exclusive_for(tx, globals_of, obj)
        : base == v ? 0 : lock_exclusive(tx, attr_cell(base, name), first);
    Py_DECREF(dict);
    return r;
}

static int
lock_attr_owned(Tx *tx, PyObject *obj, PyObject *name, bool *first)
{
    return lock_attr_cells(tx, obj, name, first) < 0 ? -1 : bias_revoke(tx, obj);
}

/* The instance is about to get a new attribute: nobody may look at all of them. */
static int
lock_new_attr(Tx *tx, PyObject *obj, PyObject *name)
{
    PyDictValues *v = inline_values(obj);
    if (v != NULL && lock_intent_write(tx, cell_of(v, WHOLE)) < 0)
        return -1;
    PyObject *dict = NULL;
    if (v != NULL && v->valid) {
        PyDictKeysObject *keys = ((PyHeapTypeObject *)Py_TYPE(obj))->ht_cached_keys;
        if (has_room_for(keys, name))
            return 0;
        /* The values may move into a dict: which is to be known for what it is before. */
    }
    dict = dict_of_instance(obj);
    const void *base = dict ? namespace_of(dict) : NULL;
    int r = base == NULL || base == v ? 0 : lock_intent_write(tx, cell_of(base, WHOLE));
    Py_XDECREF(dict);
    return r;
}

/* What the type says of the name: nothing but code, or state of the C object? */
enum { NAME_ABSENT, NAME_CODE, NAME_SLOT, NAME_C_STATE };

/* A data descriptor in C that nobody has declared, like a field of a ctypes structure. */
static bool
is_unknown_descriptor(PyObject *d)
{
    PyTypeObject *t = Py_TYPE(d);
    return t->tp_descr_set != NULL && t != &PyProperty_Type && !is_python_class(t)
        && classify(t) == KIND_UNKNOWN;
}

static int
name_in_type(PyTypeObject *type, PyObject *name, PyObject **descr)
{
    *descr = _PyType_LookupRef(type, name);
    PyObject *d = *descr;
    if (d == NULL) {
        PyErr_Clear();
        return NAME_ABSENT;
    }
    if (Py_IS_TYPE(d, &PyMemberDescr_Type) || Py_IS_TYPE(d, &PyGetSetDescr_Type))
        return is_python_class(PyDescr_TYPE(d)) ? NAME_SLOT : NAME_C_STATE;
    return is_unknown_descriptor(d) ? NAME_C_STATE : NAME_CODE;
}

static bool
is_name(PyObject *name, const char *text)
{
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

static int
attr_read_slow(Tx *tx, PyObject *obj, PyObject *name, Kind kind)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (!is_python_class(type) && kind != KIND_INSTANCE) {
        PyObject *descr;
        int where = name_in_type(type, name, &descr);
        Py_XDECREF(descr);
        if (where == NAME_CODE || where == NAME_ABSENT)
            return 0;
        if (kind == KIND_UNKNOWN || kind == KIND_OPAQUE) {
            if (is_fresh(tx, obj))
                return 0;
            return exclusive_for(tx, "attribute of", obj);
        }
        if (kind == KIND_GENERATOR || kind == KIND_CONTEXT || kind == KIND_ITERATOR || kind == KIND_STRUCT
            || kind == KIND_COPIED || kind == KIND_STATED || kind == KIND_ARRAY || kind == KIND_BUFFER)
            return lock_shared(tx, cell_of(obj, WHOLE));
        return 0;
    }
    if (kind == KIND_UNKNOWN) {
        /* A Python class over a C type that nobody has declared. */
        PyObject *descr;
        int where = name_in_type(type, name, &descr);
        Py_XDECREF(descr);
        if (where == NAME_C_STATE)
            return exclusive_for(tx, "attribute of", obj);
    }
    return lock_attr_shared(tx, obj, name);
}

static int
log_exception_field(Tx *tx, PyObject *exception, const char *field)
{
    PyObject *name = PyUnicode_InternFromString(field);
    PyObject *old = name ? PyObject_GetAttr(exception, name) : NULL;
    Undo *u = old ? undo_push(tx, UNDO_ATTR, exception, name, old) : NULL;
    Py_XDECREF(old);
    Py_XDECREF(name);
    return u == NULL ? -1 : 0;
}

/* The exception is about to be raised, which sets its traceback, context and cause. */
int
open_exception(Tx *tx, PyObject *exception)
{
    bool first;
    if (captured(tx, exception))
        return check_doomed(tx);
    if (lock_exclusive(tx, cell_of(exception, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    /* Undone backwards: setting the cause sets __suppress_context__ as well. */
    if (log_exception_field(tx, exception, "__traceback__") < 0
        || log_exception_field(tx, exception, "__suppress_context__") < 0
        || log_exception_field(tx, exception, "__context__") < 0
        || log_exception_field(tx, exception, "__cause__") < 0)
        return -1;
    return 0;
}

/* Are the attributes that are objects all that this kind of exception consists of? */
static bool
has_plain_fields(PyTypeObject *kind)
{
    return !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_UnicodeError)
        && !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_BlockingIOError)
        && !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_BaseExceptionGroup);
}

/* The exception begins anew, with other arguments. */
int
open_exception_init(Tx *tx, PyObject *exception)
{
    if (captured(tx, exception))
        return check_doomed(tx);
    PyTypeObject *kind = c_base(Py_TYPE(exception));
    if (!has_plain_fields(kind))
        return exclusive_for(tx, "a new beginning of", exception);
    if (open_exception(tx, exception) < 0 || log_exception_field(tx, exception, "args") < 0)
        return -1;
    for (; kind != NULL && kind != (PyTypeObject *)PyExc_BaseException; kind = kind->tp_base) {
        for (PyMemberDef *m = kind->tp_members; m != NULL && m->name != NULL; m++) {
            if (m->type == _Py_T_OBJECT && !(m->flags & Py_READONLY) && log_exception_field(tx, exception, m->name) < 0)
                return -1;
        }
    }
    return 0;
}

/* Splitting a group copies what its parts say to new groups, their notes among it. */
int
open_exception_group(Tx *tx, PyObject *exception, int depth)
{
    if (!PyExceptionInstance_Check(exception))
        return check_doomed(tx);
    if (open_exception(tx, exception) < 0)
        return -1;
    if (!PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_BaseExceptionGroup))
        return 0;
    if (depth > MAX_DEPTH)
        return exclusive_for(tx, "deeply nested", exception);
    static PyObject *notes_name;
    if (notes_name == NULL)
        notes_name = PyUnicode_InternFromString("__notes__");
    if (open_attr_read(tx, exception, notes_name) < 0)
        return -1;
    PyObject *notes = _PyObject_GenericGetAttrWithDict(exception, notes_name, NULL, 1);
    int r = notes == NULL ? 0 : open_iter(tx, notes);
    Py_XDECREF(notes);
    PyObject *parts = ((PyBaseExceptionGroupObject *)exception)->excs;
    for (Py_ssize_t i = 0; r == 0 && parts != NULL && i < PyTuple_GET_SIZE(parts); i++)
        r = open_exception_group(tx, PyTuple_GET_ITEM(parts, i), depth + 1);
    return r;
}

/* Reading obj.__dict__ may make the dict, where a captured one has just died. */
static void
prepare_dict(Tx *tx, PyObject *obj, PyObject *name)
{
    static PyObject *dict_name;
    if (dict_name == NULL)
        dict_name = PyUnicode_InternFromString("__dict__");
    if (LIKELY(name != dict_name && !PyUnicode_Equal(name, dict_name)))
        return;
    PyObject *dict = dict_of_instance(obj);
    if (dict != NULL)
        forget_capture(tx, dict);
    Py_XDECREF(dict);
}

int
open_attr_read(Tx *tx, PyObject *obj, PyObject *name)
{
    Kind kind = kind_of(tx, obj);
    if ((kind == KIND_FUNCTION || kind == KIND_METHOD) && !is_python_class(Py_TYPE(obj)))
        return open_function_attr_read(tx, obj, name);
    prepare_dict(tx, obj, name);
    switch (kind) {
    case KIND_INSTANCE: {
        PyDictValues *v = inline_values(obj);
        if (LIKELY(v != NULL && v->valid && marked(tx, attr_cell(v, name), MODE_SHARED)))
            return check_doomed(tx);
        return attr_read_slow(tx, obj, name, kind);
    }
    case KIND_INERT:
    case KIND_TUPLE:
    case KIND_FUNCTION:
    case KIND_METHOD:
        if (UNLIKELY(is_python_class(Py_TYPE(obj))))
            return attr_read_slow(tx, obj, name, KIND_INSTANCE);
        return check_doomed(tx);
    case KIND_FRAME:
        return open_frame_read(tx, obj);
    case KIND_CLASS:
        return check_doomed(tx);
    case KIND_MODULE:
        if (UNLIKELY(is_name(name, "__dict__")))
            return see_globals(tx, PyModule_GetDict(obj));
        return open_global_read(tx, PyModule_GetDict(obj), name);
    case KIND_LOCAL: {
        int r = open_local_read(tx, obj, name);
        return r > 0 ? attr_read_slow(tx, obj, name, KIND_UNKNOWN) : r;
    }
    default:
        return attr_read_slow(tx, obj, name, kind);
    }
}

/* The value in the instance itself, whatever the class has under that name. */
static PyObject *
instance_value(PyObject *obj, PyObject *name, bool class_has_it)
{
    if (!class_has_it)
        return _PyObject_GenericGetAttrWithDict(obj, name, NULL, 1);
    PyObject *value = NULL;
    PyObject *dict = PyObject_GenericGetDict(obj, NULL);
    if (dict != NULL) {
        PyDict_GetItemRef(dict, name, &value);
        Py_DECREF(dict);
    }
    return value;
}

/* Who assigns to attributes of such objects, or deletes them: object, or a method? */
enum { HOOK_NONE, HOOK_PYTHON, HOOK_UNKNOWN };

static int
assignment_hook(PyTypeObject *type, const char *method)
{
    if (type->tp_setattro == PyObject_GenericSetAttr)
        return HOOK_NONE;
    PyObject *name = PyUnicode_InternFromString(method);
    PyObject *found = name ? _PyType_LookupRef(type, name) : NULL;
    int hook = found != NULL && PyFunction_Check(found) ? HOOK_PYTHON
        : found != NULL && Py_IS_TYPE(found, &PyWrapperDescr_Type)
            && PyDescr_TYPE(found) == &PyBaseObject_Type ? HOOK_NONE : HOOK_UNKNOWN;
    Py_XDECREF(found);
    Py_XDECREF(name);
    PyErr_Clear();
    return hook;
}

/* An attribute of a class is to be set or deleted, by this method of the metaclass, or `raw`, past
 * that. Classes are read without asking, and so changed exclusively: but by who has just made them. */
static int
open_class_change(Tx *tx, PyObject *cls, const char *method, bool raw)
{
    if (((PyTypeObject *)cls)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return check_doomed(tx);    /* cannot be done */
    if ((!raw && assignment_hook(Py_TYPE(cls), method) == HOOK_PYTHON) || is_fresh(tx, cls))
        return check_doomed(tx);
    return exclusive_for(tx, "attribute assignment to", cls);
}

/* `raw`: by object.__setattr__, past a __setattr__ of the class. */
int
open_attr_write(Tx *tx, PyObject *obj, PyObject *name, bool raw_write)
{
    Kind kind = kind_of(tx, obj);
    PyTypeObject *type = Py_TYPE(obj);
    if (kind == KIND_LOCAL && !raw_write) {
        int r = open_local_write(tx, obj, name, false);
        if (r <= 0)
            return r;
    }
    if (kind == KIND_MODULE)
        return open_global_write(tx, PyModule_GetDict(obj), name);
    if (kind == KIND_CLASS)
        return open_class_change(tx, obj, "__setattr__", raw_write);
    if ((kind == KIND_FUNCTION || kind == KIND_METHOD) && !is_python_class(type))
        return open_function_attr_write(tx, obj, name);
    if (kind != KIND_INSTANCE && !is_python_class(type))
        return is_fresh(tx, obj) ? 0 : exclusive_for(tx, "attribute assignment to", obj);
    int hook = raw_write ? HOOK_NONE : assignment_hook(type, "__setattr__");
    if (hook == HOOK_PYTHON)
        return check_doomed(tx);    /* it has barriers of its own */
    if (hook == HOOK_UNKNOWN)
        return exclusive_for(tx, "attribute assignment to", obj);
    PyObject *descr;
    int where = name_in_type(type, name, &descr);
    bool data = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL;
    bool raw = false;   /* reading it by the descriptor gives what is stored */
    if (data && where == NAME_CODE) {
        Py_DECREF(descr);
        return 0;       /* a property or a descriptor in Python: its own barriers */
    }
    if (where == NAME_C_STATE) {
        raw = PyExceptionInstance_Check(obj) && Py_TYPE(descr)->tp_descr_set != NULL
            && !is_unknown_descriptor(descr);
        if (!raw) {
            Py_DECREF(descr);
            return exclusive_for(tx, "assignment to an attribute of", obj);
        }
        if (set_by_raising(obj, name)) {
            Py_DECREF(descr);
            return open_exception(tx, obj);
        }
    }
    if (where == NAME_SLOT) {
        raw = true;
        if (Py_IS_TYPE(descr, &PyGetSetDescr_Type)) {
            /* __dict__, __weakref__ */
            Py_DECREF(descr);
            return exclusive_for(tx, "replacement of the dict of", obj);
        }
    }
    bool in_class = descr != NULL;
    Py_XDECREF(descr);
    if (UNLIKELY(is_name(name, "__class__")))
        return exclusive_for(tx, "change of the class of", obj);
    bool first;
    if (lock_attr_owned(tx, obj, name, &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || (!first && !tx->deletes_keys))
        return 0;
    PyObject *old = instance_value(obj, name, in_class && !raw);
    if (old == NULL && PyErr_Occurred())
        PyErr_Clear();
    int r = 0;
    if (old == NULL && lock_new_attr(tx, obj, name) < 0)
        r = -1;
    else if (first || old == NULL)
        r = undo_push(tx, UNDO_ATTR, obj, name, old) ? 0 : -1;
    Py_XDECREF(old);
    return r;
}

static int open_name_delete(Tx *tx, PyObject *dict, const void *base, PyObject *name);

/* del obj.name. A slot or a property is as in an assignment. */
int
open_attr_delete(Tx *tx, PyObject *obj, PyObject *name, bool raw)
{
    Kind kind = kind_of(tx, obj);
    PyTypeObject *type = Py_TYPE(obj);
    if (kind == KIND_LOCAL && !raw) {
        int r = open_local_write(tx, obj, name, true);
        if (r <= 0)
            return r;
    }
    if (kind == KIND_MODULE)
        return open_key_write(tx, PyModule_GetDict(obj), name, true);
    if (kind == KIND_CLASS)
        return open_class_change(tx, obj, "__delattr__", raw);
    if (kind != KIND_INSTANCE && !is_python_class(type))
        return open_attr_write(tx, obj, name, raw);
    int hook = raw ? HOOK_NONE : assignment_hook(type, "__delattr__");
    if (hook == HOOK_PYTHON)
        return check_doomed(tx);
    if (hook == HOOK_UNKNOWN)
        return exclusive_for(tx, "deletion of an attribute of", obj);
    PyObject *descr;
    name_in_type(type, name, &descr);
    bool data = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL;
    Py_XDECREF(descr);
    if (data)
        return open_attr_write(tx, obj, name, true);
    if (captured(tx, obj))
        return check_doomed(tx);
    PyObject *dict = dict_of_instance(obj);
    if (dict == NULL)
        return check_doomed(tx);    /* there is nothing to delete */
    forget_capture(tx, dict);       /* it may have been made just now, where a captured one has died */
    const void *base = namespace_of(dict);
    PyDictValues *v = inline_values(obj);
    bool first;
    int r = v != NULL && base != v && lock_exclusive(tx, attr_cell(v, name), &first) < 0 ? -1
        : UNLIKELY(is_module_dict(dict)) ? exclusive_for(tx, globals_of, obj)
        : base != NULL ? open_name_delete(tx, dict, base, name) : open_whole_write(tx, dict);
    Py_DECREF(dict);
    return r < 0 ? -1 : bias_revoke(tx, obj);
}

/* ---- Names in a namespace (namespaces.c), by its dict ------------------------------------- */

static bool key_is_logged(Tx *tx, PyObject *obj, PyObject *key);
static int hash_of(PyObject *key, uint64_t *bits);

/* Is all of it logged? It may be forgotten that it is: to log it twice does no harm. */
static bool
snapshot_taken(Tx *tx, PyObject *obj)
{
    return opened(tx, obj, OPENED_SNAPSHOT);
}

static PyObject *
value_of(PyObject *dict, PyObject *key)
{
    PyObject *value = NULL;
    if (PyDict_GetItemRef(dict, key, &value) < 0)
        PyErr_Clear();
    return value;
}

static int
open_name_write(Tx *tx, PyObject *dict, const void *base, PyObject *name)
{
    bool first;
    if (lock_exclusive(tx, attr_cell(base, name), &first) < 0 || bias_revoke_namespace(tx, dict) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    bool logged = !first && key_is_logged(tx, dict, name);
    if (logged && !tx->deletes_keys)
        return 0;
    PyObject *old = value_of(dict, name);
    int r = 0;
    if (old == NULL || !logged) {
        if (old == NULL && lock_intent_write(tx, cell_of(base, WHOLE)) < 0)
            r = -1;
        else
            r = undo_push(tx, UNDO_DICT_SET, dict, name, old) ? 0 : -1;
    }
    Py_XDECREF(old);
    return r;
}

static int open_all_names(Tx *tx, PyObject *dict, const void *base, bool write);
static int log_contents(Tx *tx, PyObject *obj, Kind kind);

/* Deletion owns the whole: the name comes back to where it stands, should it have to. */
static int
open_name_delete(Tx *tx, PyObject *dict, const void *base, PyObject *name)
{
    bool first;
    Cell whole = cell_of(base, WHOLE);
    if (!PyUnicode_CheckExact(name))    /* not a name: another key may be equal to it */
        return open_all_names(tx, dict, base, true) < 0 ? -1 : log_contents(tx, dict, KIND_DICT);
    if (lock_exclusive(tx, attr_cell(base, name), &first) < 0 || lock_exclusive(tx, whole, &first) < 0
        || bias_revoke_namespace(tx, dict) < 0)
        return -1;
    tx->deletes_keys = true;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    if (has_inserted(tx, whole))
        order_inserted_keys(tx, order_place(dict));
    PyObject *old = value_of(dict, name);
    Undo *u = undo_push(tx, old ? UNDO_NAME_DEL : UNDO_DICT_SET, dict, name, old);
    if (u != NULL && old != NULL)
        u->n = dict_rank(dict, name);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* All names: each of them, and, against new ones and deletions, the whole. Those of a
 * module that nobody rebinds are only changed exclusively. */
static int
open_all_names(Tx *tx, PyObject *dict, const void *base, bool write)
{
    bool first;
    Cell whole = cell_of(base, WHOLE);
    if ((write ? lock_exclusive(tx, whole, &first) : lock_shared_container(tx, whole)) < 0
        || (write && bias_revoke_namespace(tx, dict) < 0))
        return -1;
    if (has_inserted(tx, whole))
        order_inserted_keys(tx, order_place(dict));
    PyObject *names = is_module_dict(dict) ? globals_rebound(dict) : PyDict_Keys(dict);
    PyObject *list = names ? PySequence_List(names) : NULL;
    Py_XDECREF(names);
    int r = list == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *name = PyList_GET_ITEM(list, i);
        uint64_t bits;
        int h = hash_of(name, &bits);
        r = h <= 0 ? h
            : write ? lock_exclusive(tx, cell_of(base, bits), &first) : lock_shared(tx, cell_of(base, bits));
    }
    Py_XDECREF(list);
    return r;
}

/* ---- Module globals ------------------------------------------------------------------ */

int
open_global_read(Tx *tx, PyObject *globals, PyObject *name)
{
    return lock_shared(tx, attr_cell(globals, name));
}

/* Rebinding a global is a keyed write if every function of the module reads
 * that name with a barrier; else all others must stand still. */
static int
open_global_change(Tx *tx, PyObject *globals, PyObject *name, bool del)
{
    if (captured(tx, globals))
        return check_doomed(tx);
    PyObject *rebound = globals_rebound(globals);
    bool barriers = rebound != Py_None && PyUnicode_CheckExact(name)
        && PySequence_Contains(rebound, name) == 1;
    Py_DECREF(rebound);
    if (!barriers)
        return exclusive_for(tx, del ? "deletion of the module global" : "assignment to the module global", name);
    if (namespace_of(globals) != globals)
        return exclusive_for(tx, "a change of globals that are attributes", NULL);
    return del ? open_name_delete(tx, globals, globals, name) : open_name_write(tx, globals, globals, name);
}

int
open_global_write(Tx *tx, PyObject *globals, PyObject *name)
{
    return open_global_change(tx, globals, name, false);
}

/* The transaction excludes others from changing the container. What stands for keys that
 * it has deleted (order.c) is taken out before it looks at the whole, and it can be seen in which
 * order the keys are that it has inserted. */
static int
settle_keys(Tx *tx, PyObject *obj)
{
    if (tx->n_placeholders > 0 && PyDict_Check(obj) && !snapshot_taken(tx, obj)) {
        int hidden = order_hide_placeholders(tx, obj);
        if (hidden < 0)
            return -1;
        if (hidden)
            note_opened(tx, obj, OPENED_SNAPSHOT);
    }
    if (has_inserted(tx, cell_of(obj, WHOLE)))
        order_inserted_keys(tx, obj);
    return 0;
}

static int
lock_whole_shared(Tx *tx, PyObject *container)
{
    return lock_shared_container(tx, cell_of(container, WHOLE)) < 0 ? -1 : settle_keys(tx, container);
}

static int
lock_whole_owned(Tx *tx, PyObject *container)
{
    bool first;
    return lock_exclusive(tx, cell_of(container, WHOLE), &first) < 0 || settle_keys(tx, container) < 0 ? -1
        : bias_revoke(tx, container);
}

/* ---- Whole objects ---------------------------------------------------------------------- */

/* What a proxy stands for: the first field of it. */
PyObject *
proxied(PyObject *proxy)
{
    return *(PyObject **)((char *)proxy + (Py_TYPE(proxy)->tp_itemsize ? sizeof(PyVarObject) : sizeof(PyObject)));
}

int
open_whole_read(Tx *tx, PyObject *obj)
{
    if (own_container(tx, obj) || opened(tx, obj, OPENED_READ))
        return check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    int result;
    switch (kind) {
    case KIND_LIST:
    case KIND_DEQUE:
    case KIND_BYTEARRAY:
    case KIND_ARRAY:
    case KIND_ODICT:
    case KIND_CONTEXT:
        if (captured(tx, obj) || read_by_bias(tx, obj))
            return check_doomed(tx);
        result = lock_shared(tx, cell_of(obj, WHOLE));
        break;
    case KIND_DICT: {
        const void *base = namespace_of(obj);
        if (base != NULL)
            return open_all_names(tx, obj, base, false);
    }   /* fall through */
    case KIND_SET:
        if (captured(tx, obj) || read_by_bias(tx, obj))
            return check_doomed(tx);
        result = lock_whole_shared(tx, obj);
        if (result == 0 && kind == KIND_DICT && UNLIKELY(namespace_of(obj) != NULL))
            return open_whole_read(tx, obj);    /* it has become one meanwhile */
        break;
    case KIND_ITERATOR:
        return open_iter(tx, obj);
    case KIND_PROXY:
        return open_whole_read(tx, proxied(obj));
    case KIND_BUFFER:
        return open_view_read(tx, obj);
    case KIND_LOCAL: {
        PyObject *dict = thread_dict(tx, obj);
        int r = dict == NULL ? -1 : open_whole_read(tx, dict);
        Py_XDECREF(dict);
        return r;
    }
    case KIND_STRUCT:
    case KIND_COPIED:
    case KIND_STATED:
    case KIND_OPAQUE:
    case KIND_UNKNOWN:
        return open_state(tx, obj);
    default:
        return check_doomed(tx);
    }
    if (result == 0) {
        bias_seen(tx, obj);
        note_opened(tx, obj, OPENED_READ);
    }
    return result;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* 1 with the hash, 0 when the key has none (the native operation complains),
 * -1 when the transaction aborted in a __hash__. */
static int
hash_of(PyObject *key, uint64_t *bits)
{
    Py_hash_t h = PyObject_Hash(key);
    if (h == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    *bits = key_bits(h);
    return 1;
}

/* Lock one key of a dict, for reading or to own it; of a dict with storage of its
 * own with the intention on the whole, of a view of an instance as its attribute. */
static int
lock_key_shared(Tx *tx, PyObject *dict, Cell key_cell)
{
    if (lock_intent_read(tx, cell_of(dict, WHOLE)) < 0 || lock_shared(tx, key_cell) < 0)
        return -1;
    bias_seen(tx, dict);
    return 0;
}

static int
lock_key_owned(Tx *tx, PyObject *dict, Cell key_cell, bool *first)
{
    if (lock_intent_write(tx, cell_of(dict, WHOLE)) < 0 || lock_exclusive(tx, key_cell, first) < 0)
        return -1;
    return bias_revoke(tx, dict);
}

/* Has this very key been logged? Owning its cell does not tell, for another key may
 * have the same hash: hash(-1) == hash(-2), and so with tuples of them. Among the
 * latest entries only: to log a key twice does no harm. */
static bool
key_is_logged(Tx *tx, PyObject *obj, PyObject *key)
{
    if (PyUnicode_CheckExact(key) || (PyLong_CheckExact(key) && PyObject_Hash(key) != -2))
        return true;
    for (Py_ssize_t i = tx->n_undo; --i >= 0 && i >= tx->n_undo - 16;) {
        Undo *u = &tx->undo[i];
        if (u->obj == obj && u->key == key)
            return true;
    }
    return false;
}

static bool
inserts_missing_keys(PyObject *dict)
{
    if (PyDict_CheckExact(dict))
        return false;
    PyObject *m = _PyType_LookupRef(Py_TYPE(dict), missing_name);
    bool c_code = m != NULL && Py_IS_TYPE(m, &PyMethodDescr_Type);
    Py_XDECREF(m);
    return c_code;
}

/* All of it has been opened for reading, and no method makes items that are missed. */
static void
note_items(Tx *tx, PyObject *obj)
{
    if (opened(tx, obj, OPENED_READ))
        note(tx, obj, OPENED_ITEMS, opened_at(tx, obj, OPENED_READ)->key & 1);
}

int
open_key_read(Tx *tx, PyObject *obj, PyObject *key)
{
    Kind kind = kind_of(tx, obj);
    if (kind == KIND_PROXY)
        return open_key_read(tx, proxied(obj), key);
    if (kind != KIND_DICT && kind != KIND_SET) {
        if (kind == KIND_INERT || kind == KIND_TUPLE || kind == KIND_INSTANCE || kind == KIND_CLASS)
            return check_doomed(tx);
        if (open_whole_read(tx, obj) < 0)
            return -1;
        if (kind == KIND_LIST)
            note_items(tx, obj);
        return 0;
    }
    if (opened(tx, obj, OPENED_READ) || captured(tx, obj)) {
        if (PyDict_CheckExact(obj) || PySet_CheckExact(obj))
            note_items(tx, obj);
        return check_doomed(tx);
    }
    if (read_by_bias(tx, obj))
        return check_doomed(tx);
    uint64_t bits;
    int h = hash_of(key, &bits);
    if (h == 0 && kind == KIND_SET && PyAnySet_Check(key))
        return open_whole_read(tx, obj);
    if (h <= 0)
        return h;
    const void *base = kind == KIND_DICT ? namespace_of(obj) : NULL;
    if (base != NULL)
        return lock_shared(tx, cell_of(base, bits));
    Cell c = cell_of(obj, bits);
    if (marked(tx, c, MODE_SHARED))
        return check_doomed(tx);
    return lock_key_shared(tx, obj, c);
}

/* obj[key], by which a defaultdict gets a key that it does not have: what its factory makes is
 * put there now, so that the operation finds it. */
int
open_item_read(Tx *tx, PyObject *obj, PyObject *key)
{
    if (kind_of(tx, obj) == KIND_PROXY)
        return open_item_read(tx, proxied(obj), key);
    if (open_key_read(tx, obj, key) < 0)
        return -1;
    if (kind_of(tx, obj) != KIND_DICT || !inserts_missing_keys(obj) || PyObject_Hash(key) == -1) {
        PyErr_Clear();
        return 0;
    }
    int there = PyDict_Contains(obj, key);
    if (there != 0)
        return there < 0 ? -1 : 0;
    PyObject *factory = PyObject_GetAttrString(obj, "default_factory");
    if (factory == NULL || factory == Py_None) {
        Py_XDECREF(factory);
        return factory == NULL ? -1 : 0;
    }
    PyObject *value = stm_call(factory, NULL, 0, NULL);
    Py_DECREF(factory);
    int r = value == NULL || (tx->open && open_key_write(tx, obj, key, false) < 0) ? -1
        : PyDict_SetDefaultRef(obj, key, value, NULL);   /* the factory may have put one there */
    Py_XDECREF(value);
    return r < 0 ? -1 : 0;
}

/* Log where its items lie. */
static int
log_deque_places(Tx *tx, PyObject *deque)
{
    PyObject *places = deque_places(deque);
    Undo *u = places == NULL ? NULL : undo_push(tx, UNDO_DEQUE_PLACES, deque, NULL, places);
    Py_XDECREF(places);
    return u == NULL ? -1 : 0;
}

/* Log a copy of the whole contents, once a transaction. Nobody else may change them. */
static int
log_contents(Tx *tx, PyObject *obj, Kind kind)
{
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, obj))
        return 0;
    UndoKind undo = kind == KIND_LIST ? UNDO_LIST_ALL : kind == KIND_DICT ? UNDO_DICT_ALL
        : kind == KIND_SET ? UNDO_SET_ALL : kind == KIND_ARRAY ? UNDO_ARRAY
        : kind == KIND_BYTEARRAY ? UNDO_BYTES : UNDO_SEQ_ALL;
    if (kind == KIND_DEQUE && log_deque_places(tx, obj) < 0)
        return -1;
    PyObject *copy = contents_of(obj, kind);
    if (copy == NULL)
        return -1;
    Undo *u = undo_push(tx, undo, obj, NULL, copy);
    Py_DECREF(copy);
    if (u == NULL)
        return -1;
    if (kind == KIND_ODICT)
        u->n = odict_changes(obj);
    note_opened(tx, obj, OPENED_SNAPSHOT);
    return 0;
}

/* The same for one that this transaction owns, to do with it what it likes. */
static int
log_all(Tx *tx, PyObject *obj, Kind kind)
{
    if (log_contents(tx, obj, kind) < 0)
        return -1;
    if (tx->grade != GRADE_EXCLUSIVE)
        note_opened(tx, obj, OPENED_WRITE);
    return 0;
}

int
open_whole_write(Tx *tx, PyObject *obj)
{
    if (opened(tx, obj, OPENED_WRITE))
        return check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    switch (kind) {
    case KIND_DICT: {
        const void *base = namespace_of(obj);
        if (base != NULL && is_module_dict(obj))
            return exclusive_for(tx, "all globals at once through", obj);
        if (base != NULL)
            return open_all_names(tx, obj, base, true) < 0 ? -1 : log_contents(tx, obj, KIND_DICT);
    }   /* fall through */
    case KIND_LIST:
    case KIND_ODICT:
    case KIND_SET:
    case KIND_DEQUE:
    case KIND_BYTEARRAY:
    case KIND_ARRAY:
        if (captured(tx, obj))
            return check_doomed(tx);
        if (lock_whole_owned(tx, obj) < 0)
            return -1;
        if (kind == KIND_DICT && UNLIKELY(namespace_of(obj) != NULL))
            return open_whole_write(tx, obj);   /* it has become one meanwhile */
        return log_all(tx, obj, kind);
    case KIND_ITERATOR:
    case KIND_GENERATOR:
        return open_iter(tx, obj);
    case KIND_BUFFER:
        return open_view_write(tx, obj);
    case KIND_INERT:
    case KIND_TUPLE:
    case KIND_INSTANCE:
        return check_doomed(tx);
    case KIND_STRUCT:
    case KIND_COPIED:
    case KIND_STATED:
    case KIND_OPAQUE:
        return open_state(tx, obj);
    default:
        if (is_fresh(tx, obj))
            return 0;
        return exclusive_for(tx, "change of", obj);
    }
}

/* The container gets what is in the other one, which is open. In a namespace, each new name
 * has to be opened for itself: those that are there already say nothing of it. */
int
open_merge(Tx *tx, PyObject *obj, PyObject *other)
{
    if (kind_of(tx, obj) != KIND_DICT || namespace_of(obj) == NULL)
        return open_whole_write(tx, obj) < 0 ? -1 : open_resize(tx, obj);
    if (!PyDict_CheckExact(other))
        return exclusive_for(tx, "attributes set by the keys of", other);
    PyObject *names = PyDict_Keys(other);
    int r = names == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(names); i++)
        r = open_key_write(tx, obj, PyList_GET_ITEM(names, i), false);
    Py_XDECREF(names);
    return r;
}

/* One key is to be changed, which can only be undone by putting back the contents of all the dict. A thread may
 * change another key meanwhile, which another lock of the program's guards: it would lose that. */
static int
open_whole_for_key(Tx *tx, PyObject *dict)
{
    if (UNLIKELY(tx->mutexes.n > 0) && exclusive_for(tx, "a change of a key, and under a lock, of", dict) < 0)
        return -1;
    return open_whole_write(tx, dict);
}

static int
open_dict_write(Tx *tx, PyObject *dict, PyObject *key, bool del)
{
    uint64_t bits;
    int h = hash_of(key, &bits);
    if (h <= 0)
        return h;
    const void *base = namespace_of(dict);
    if (base != NULL && is_module_dict(dict))
        return open_global_change(tx, dict, key, del);
    if (base != NULL)
        return del ? open_name_delete(tx, dict, base, key) : open_name_write(tx, dict, base, key);
    if (del)
        return open_whole_for_key(tx, dict);
    bool first;
    if (lock_key_owned(tx, dict, cell_of(dict, bits), &first) < 0)
        return -1;
    if (UNLIKELY(namespace_of(dict) != NULL))
        return open_dict_write(tx, dict, key, del);     /* it has become one meanwhile */
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    bool logged = !first && key_is_logged(tx, dict, key);
    if (logged && !tx->deletes_keys)
        return 0;
    PyObject *old = NULL;
    if (PyDict_GetItemRef(dict, key, &old) < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
    }
    if (logged && old != NULL) {
        Py_DECREF(old);
        return 0;
    }
    if (old == NULL && dict_would_close_gaps(dict, key))
        return open_whole_for_key(tx, dict);
    Undo *u = undo_push(tx, UNDO_DICT_SET, dict, key, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

#define SMALL_LIST 64

static int
open_list_item(Tx *tx, PyObject *list, PyObject *key, bool del)
{
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0 || bias_revoke(tx, list) < 0)
        return -1;
    /* The items may be guarded by different locks of the program's: then a thread may change another one. */
    bool small = PyList_GET_SIZE(list) <= SMALL_LIST && tx->mutexes.n == 0;
    if (del || !PyLong_CheckExact(key) || small)
        return log_all(tx, list, KIND_LIST);
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Py_ssize_t i = PyLong_AsSsize_t(key);
    if (i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    if (i < 0)
        i += PyList_GET_SIZE(list);
    PyObject *old = i < 0 ? NULL : PyList_GetItemRef(list, i);
    if (old == NULL) {
        PyErr_Clear();
        return 0;
    }
    Undo *u = undo_push(tx, UNDO_LIST_ITEM, list, NULL, old);
    Py_DECREF(old);
    if (u == NULL)
        return -1;
    u->n = i;
    return 0;
}

int
open_key_write(Tx *tx, PyObject *obj, PyObject *key, bool del)
{
    if (own_container(tx, obj))
        return check_doomed(tx);
    bool resized = del || PySlice_Check(key);
    if (opened(tx, obj, OPENED_WRITE))
        return resized ? open_resize(tx, obj) : check_doomed(tx);
    Kind kind = kind_of(tx, obj);
    if ((kind == KIND_DICT || kind == KIND_LIST || kind == KIND_SET) && captured(tx, obj))
        return check_doomed(tx);
    switch (kind) {
    case KIND_DICT:
        return open_dict_write(tx, obj, key, del);
    case KIND_LIST:
        return open_list_item(tx, obj, key, del);
    case KIND_SET:
        return open_set_change(tx, obj, key);
    default:
        return open_whole_write(tx, obj) < 0 ? -1 : resized ? open_resize(tx, obj) : 0;
    }
}

/* A key is to be deleted. Returns 1 if that is done, with a new reference to its value;
 * 0 if it is open for being deleted, or complained about, by who wants to. */
int
delete_key(Tx *tx, PyObject *obj, PyObject *key, PyObject **value)
{
    uint64_t bits;
    bool first;
    if (kind_of(tx, obj) != KIND_DICT || namespace_of(obj) != NULL || opened(tx, obj, OPENED_WRITE)
        || captured(tx, obj))
        return open_key_write(tx, obj, key, true);
    int h = hash_of(key, &bits);
    if (h <= 0)
        return h;
    if (lock_key_owned(tx, obj, cell_of(obj, bits), &first) < 0)
        return -1;
    if (UNLIKELY(namespace_of(obj) != NULL))
        return open_key_write(tx, obj, key, true);      /* it has become one meanwhile */
    tx->deletes_keys = true;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, obj))
        return 0;
    /* It has read the whole, so that nobody else writes there, and may do so again without being asked. */
    if (opened(tx, obj, OPENED_READ))
        return tx->mutexes.n > 0 ? open_whole_for_key(tx, obj) : log_contents(tx, obj, KIND_DICT);
    /* The same may be true, and forgotten; or it may have made the dict, and that has been forgotten. */
    if (may_have_read(tx, cell_of(obj, WHOLE)) || (tx->forgot && obj->ob_tid == tx->tid))
        return open_whole_for_key(tx, obj);
    int done = order_delete_key(tx, obj, key, value);
    if (done == -2)
        return open_whole_for_key(tx, obj);
    if (done == 0)
        return undo_push(tx, UNDO_DICT_SET, obj, key, NULL) ? 0 : -1;
    return done;
}

/* The element that is equal to the key: 1 for 1.0. A new reference. */
static PyObject *
element_of(PyObject *set, PyObject *key)
{
    if (PyUnicode_CheckExact(key) || PyBytes_CheckExact(key)
        || Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare)
        return Py_NewRef(key);
    PyObject *candidate, *found = NULL;
    Py_ssize_t pos = 0;
    Py_hash_t hash, wanted = PyObject_Hash(key);
    while (found == NULL && _PySet_NextEntryRef(set, &pos, &candidate, &hash)) {
        if (candidate == key || (hash == wanted && PyObject_RichCompareBool(candidate, key, Py_EQ) == 1))
            found = Py_NewRef(candidate);
        Py_DECREF(candidate);
    }
    PyErr_Clear();
    return found ? found : Py_NewRef(key);
}

int
open_set_change(Tx *tx, PyObject *set, PyObject *key)
{
    uint64_t bits;
    if (captured(tx, set) || opened(tx, set, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, set) != KIND_SET)
        return open_whole_write(tx, set);
    int h = hash_of(key, &bits);
    if (h == 0 && PyAnySet_Check(key))
        return open_whole_write(tx, set);   /* taken for a frozenset */
    if (h <= 0)
        return h;
    bool first;
    if (lock_intent_write(tx, cell_of(set, WHOLE)) < 0
        || lock_exclusive(tx, cell_of(set, bits), &first) < 0 || bias_revoke(tx, set) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, set))
        return 0;
    int there = PySet_Contains(set, key);
    if (there < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (!there && set_would_grow(set)) {
        PyObject *copy = set_copy_places(set);
        Undo *u = copy == NULL ? NULL : undo_push(tx, UNDO_SET_GROWN, set, NULL, copy);
        Py_XDECREF(copy);
        if (u == NULL)
            return -1;
    }
    if (!first && key_is_logged(tx, set, key))
        return 0;
    if (!there)
        return undo_push(tx, UNDO_SET_ADD, set, key, NULL) ? 0 : -1;
    PyObject *element = element_of(set, key);
    Undo *u = undo_push(tx, UNDO_SET_DEL, set, element, NULL);
    if (u != NULL)
        u->n = set_place(set, element, PyObject_Hash(element));
    Py_DECREF(element);
    return u == NULL ? -1 : 0;
}

/* ---- Lists and deques as stacks and queues -------------------------------------------------- */

int
open_list_append(Tx *tx, PyObject *list)
{
    if (captured(tx, list) || opened(tx, list, OPENED_APPEND))
        return check_doomed(tx);
    if (kind_of(tx, list) != KIND_LIST)
        return open_whole_write(tx, list);
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0 || bias_revoke(tx, list) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    if (!snapshot_taken(tx, list)) {
        Undo *u = undo_push(tx, UNDO_LIST_LEN, list, NULL, NULL);
        if (u == NULL)
            return -1;
        u->n = PyList_GET_SIZE(list);
    }
    note_opened(tx, list, OPENED_APPEND);
    return 0;
}

/* The method of that name of the C type that the object's class derives from. */
PyObject *
c_base_method(PyObject *obj, PyObject *name)
{
    return PyObject_GetAttr((PyObject *)c_base(Py_TYPE(obj)), name);
}

/* An interned method name for UNDO_METHOD. */
int
push_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value)
{
    PyObject *name = PyUnicode_InternFromString(method);
    if (name == NULL)
        return -1;
    Undo *u = undo_push(tx, UNDO_METHOD, obj, name, value);
    Py_DECREF(name);
    return u == NULL ? -1 : 0;
}

/* The same for an operation that changes the size of the object, which is n now. A call may be announced twice: by
 * the instruction that was specialised for another callable, and by the generic one in its place. */
static int
push_resizing_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value, Py_ssize_t n)
{
    Undo *last = tx->n_undo > 0 ? &tx->undo[tx->n_undo - 1] : NULL;
    if (last != NULL && last->kind == UNDO_METHOD && last->obj == obj && last->n == n
        && PyUnicode_EqualToUTF8(last->key, method))
        return 0;
    if (push_inverse(tx, obj, method, value) < 0)
        return -1;
    tx->undo[tx->n_undo - 1].n = n;
    return 0;
}

int
open_list_pop(Tx *tx, PyObject *list, Py_ssize_t index)
{
    if (captured(tx, list) || opened(tx, list, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, list) != KIND_LIST)
        return open_whole_write(tx, list);
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0 || bias_revoke(tx, list) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (index != -1 || n <= SMALL_LIST)
        return log_all(tx, list, KIND_LIST);
    /* The length that was logged may lie above what is left now. */
    forget_opened(tx, list, OPENED_APPEND);
    PyObject *last = PyList_GetItemRef(list, n - 1);
    if (last == NULL)
        return -1;
    int r = push_resizing_inverse(tx, list, "append", last, n);
    Py_DECREF(last);
    return r;
}

int
open_deque_op(Tx *tx, PyObject *deque, int op)
{
    if (captured(tx, deque) || opened(tx, deque, OPENED_WRITE))
        return check_doomed(tx);
    if (kind_of(tx, deque) != KIND_DEQUE)
        return open_whole_write(tx, deque);
    bool first;
    if (lock_exclusive(tx, cell_of(deque, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, deque))
        return 0;
    if (first && log_deque_places(tx, deque) < 0)
        return -1;
    PySequenceMethods *sequence = c_base(Py_TYPE(deque))->tp_as_sequence;
    Py_ssize_t n = sequence->sq_length(deque);
    if (op == DEQUE_POP || op == DEQUE_POPLEFT) {
        if (n == 0)
            return 0;
        PyObject *item = sequence->sq_item(deque, op == DEQUE_POP ? n - 1 : 0);
        if (item == NULL)
            return -1;
        int r = push_resizing_inverse(tx, deque, op == DEQUE_POP ? "append" : "appendleft", item, n);
        Py_DECREF(item);
        return r;
    }
    if (is_python_class(Py_TYPE(deque)))
        return log_all(tx, deque, KIND_DEQUE);  /* what it calls its maxlen may be anything */
    PyObject *maxlen = PyObject_GetAttrString(deque, "maxlen");
    if (maxlen == NULL)
        return -1;
    bool bounded = maxlen != Py_None;
    Py_DECREF(maxlen);
    if (bounded)
        return log_all(tx, deque, KIND_DEQUE);
    return push_resizing_inverse(tx, deque, op == DEQUE_APPEND ? "pop" : "popleft", NULL, n);
}

/* ---- Closure cells and contexts --------------------------------------------------------------- */

int
open_cell_read(Tx *tx, PyObject *cell)
{
    return lock_shared(tx, cell_of(cell, WHOLE));
}

int
open_cell_write(Tx *tx, PyObject *cell)
{
    bool first;
    if (lock_exclusive(tx, cell_of(cell, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyObject *old = PyCell_Get(cell);
    PyErr_Clear();
    Undo *u = undo_push(tx, UNDO_CELL, cell, NULL, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

int
open_context(Tx *tx, PyObject *ctx)
{
    bool first;
    if (ctx == tx->context)
        return check_doomed(tx);        /* nobody else's (contexts.c) */
    if (lock_exclusive(tx, cell_of(ctx, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    return undo_push(tx, UNDO_CONTEXT, ctx, NULL,
                     (PyObject *)((struct _pycontextobject *)ctx)->ctx_vars) ? 0 : -1;
}
