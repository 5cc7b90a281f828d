/* Opening objects: the locks that an operation needs, and the undo it must log.
 *
 * One function for each shape of operation; what it does depends on the kind
 * of the object (types.c).  All of them come before the native operation, which
 * then runs at full speed on the object in place.
 *
 * The dict of an instance (obj.__dict__) and the dict of a module are the same
 * cells as the attributes.  Such dicts are watched (PyDict_Watch) as soon as
 * somebody gets hold of them, and a table tells whose they are.
 */
#include "stm.h"

#include "internal/pycore_context.h"
#include "internal/pycore_dict.h"

/* Keys of cells beside WHOLE that no key hash can be (those have the top bit). */
#define SNAPSHOT_TAKEN 1ull

PyObject *stm_exclusive_reasons;    /* dict: why -> how often; for stats() */

/* Go exclusive because of something that the engine does not understand. */
int
exclusive_for(Tx *tx, const char *what, PyObject *obj)
{
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    const char *place = log_place(tx);
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
    return become_inevitable(tx, GRADE_EXCLUSIVE, text);
}

/* ---- Dicts that are somebody's attributes ------------------------------------ */

typedef struct { PyObject *dict; PyObject *owner; PyObject *rebound; } Alias;

static PyMutex alias_lock;
static Alias *aliases;              /* open addressing; dict == NULL is free */
static size_t alias_cap, alias_used;
static int watcher = -1;

static size_t
alias_find(PyObject *dict)
{
    size_t i = ((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15ull % alias_cap;
    while (aliases[i].dict != NULL && aliases[i].dict != dict)
        i = (i + 1) % alias_cap;
    return i;
}

static void
alias_remove(PyObject *dict)
{
    PyMutex_Lock(&alias_lock);
    size_t i = alias_find(dict);
    PyObject *rebound = NULL;
    if (aliases[i].dict == dict) {
        rebound = aliases[i].rebound;
        aliases[i].dict = NULL;
        alias_used--;
        /* Close the gap: move up those that were displaced past it. */
        for (size_t j = (i + 1) % alias_cap; aliases[j].dict != NULL; j = (j + 1) % alias_cap) {
            Alias a = aliases[j];
            aliases[j].dict = NULL;
            aliases[alias_find(a.dict)] = a;
        }
    }
    PyMutex_Unlock(&alias_lock);
    Py_XDECREF(rebound);
}

static int
on_dict_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    if (event == PyDict_EVENT_DEALLOCATED)
        alias_remove(dict);
    return 0;
}

int
aliased_dicts_init(void)
{
    alias_cap = 1024;
    aliases = PyMem_RawCalloc(alias_cap, sizeof(Alias));
    watcher = PyDict_AddWatcher(on_dict_event);
    stm_exclusive_reasons = PyDict_New();
    if (aliases == NULL || watcher < 0 || stm_exclusive_reasons == NULL)
        return -1;
    return 0;
}

static bool
is_watched(PyObject *dict)
{
    return ((PyDictObject *)dict)->_ma_watcher_tag >> watcher & 1;
}

/* The dict is the attributes of owner (borrowed; a module's: owner NULL). */
static int
alias_add(PyObject *dict, PyObject *owner, PyObject *rebound)
{
    PyMutex_Lock(&alias_lock);
    if (2 * alias_used > alias_cap) {
        Alias *old = aliases;
        size_t n = alias_cap;
        Alias *p = PyMem_RawCalloc(2 * n, sizeof(Alias));
        if (p == NULL) {
            PyMutex_Unlock(&alias_lock);
            PyErr_NoMemory();
            return -1;
        }
        aliases = p;
        alias_cap = 2 * n;
        for (size_t i = 0; i < n; i++) {
            if (old[i].dict != NULL)
                aliases[alias_find(old[i].dict)] = old[i];
        }
        PyMem_RawFree(old);
    }
    size_t i = alias_find(dict);
    if (aliases[i].dict == NULL) {
        alias_used++;
        aliases[i] = (Alias){dict, owner, Py_XNewRef(rebound)};
    }
    PyMutex_Unlock(&alias_lock);
    return PyDict_Watch(watcher, dict);
}

/* Whose attributes is this dict? False for an ordinary one. */
static bool
alias_of(PyObject *dict, PyObject **owner, PyObject **rebound)
{
    if (LIKELY(!is_watched(dict)))
        return false;
    PyMutex_Lock(&alias_lock);
    size_t i = alias_find(dict);
    bool found = aliases[i].dict == dict;
    *owner = aliases[i].owner;
    *rebound = found ? Py_XNewRef(aliases[i].rebound) : NULL;
    PyMutex_Unlock(&alias_lock);
    return found;
}

/* Called by the instrumenter before it compiles a function of the module;
 * `rebound` are the names that get barriers. The first call decides. */
int
register_module_globals(PyObject *globals, PyObject *rebound)
{
    return alias_add(globals, NULL, rebound);
}

PyObject *
globals_rebound(PyObject *globals)
{
    PyObject *owner, *rebound;
    if (!alias_of(globals, &owner, &rebound) || rebound == NULL)
        Py_RETURN_NONE;
    return rebound;
}

/* ---- Attributes ------------------------------------------------------------------ */

static inline Cell
attr_cell(PyObject *obj, PyObject *name)
{
    return cell_of(obj, key_bits(PyObject_Hash(name)));
}

/* What the type says of the name: nothing but code, or state of the C object? */
enum { NAME_ABSENT, NAME_CODE, NAME_SLOT, NAME_C_STATE };

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
    return NAME_CODE;
}

static bool
is_name(PyObject *name, const char *text)
{
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

/* obj.__dict__ is about to be handed out. */
static int
open_instance_dict(PyObject *obj)
{
    PyObject *dict = PyObject_GenericGetDict(obj, NULL);
    if (dict == NULL) {
        PyErr_Clear();      /* has none, or computes it */
        return 0;
    }
    int r = is_watched(dict) ? 0 : alias_add(dict, obj, NULL);
    Py_DECREF(dict);
    return r;
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
        if (kind == KIND_GENERATOR || kind == KIND_CONTEXT || kind == KIND_ITERATOR)
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
    if (UNLIKELY(is_name(name, "__dict__")) && open_instance_dict(obj) < 0)
        return -1;
    return lock_shared(tx, attr_cell(obj, name));
}

int
open_attr_read(Tx *tx, PyObject *obj, PyObject *name)
{
    Kind kind = kind_of(tx, obj);
    switch (kind) {
    case KIND_INSTANCE: {
        Cell c = attr_cell(obj, name);
        if (LIKELY(marked(tx, c, MODE_SHARED)))
            return check_doomed(tx);
        return attr_read_slow(tx, obj, name, kind);
    }
    case KIND_INERT:
    case KIND_TUPLE:
    case KIND_CLASS:
    case KIND_FUNCTION:
    case KIND_METHOD:
        return check_doomed(tx);
    case KIND_MODULE:
        return open_global_read(tx, PyModule_GetDict(obj), name);
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

int
open_attr_write(Tx *tx, PyObject *obj, PyObject *name)
{
    Kind kind = kind_of(tx, obj);
    PyTypeObject *type = Py_TYPE(obj);
    if (kind == KIND_MODULE)
        return open_global_write(tx, PyModule_GetDict(obj), name);
    if (kind != KIND_INSTANCE && !is_python_class(type))
        return is_fresh(tx, obj) ? 0 : exclusive_for(tx, "attribute assignment to", obj);
    if (type->tp_setattro != PyObject_GenericSetAttr) {
        /* __setattr__ in Python has barriers of its own. */
        PyObject *descr = NULL;
        PyObject *setattr_name = PyUnicode_InternFromString("__setattr__");
        if (setattr_name == NULL)
            return -1;
        descr = _PyType_LookupRef(type, setattr_name);
        Py_DECREF(setattr_name);
        bool python = descr != NULL && PyFunction_Check(descr);
        Py_XDECREF(descr);
        return python ? 0 : exclusive_for(tx, "attribute assignment to", obj);
    }
    PyObject *descr;
    int where = name_in_type(type, name, &descr);
    bool data = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL;
    bool raw = false;   /* reading it by the descriptor gives what is stored */
    if (data && where == NAME_CODE) {
        Py_DECREF(descr);
        return 0;       /* a property or a descriptor in Python: its own barriers */
    }
    if (where == NAME_C_STATE) {
        raw = PyExceptionInstance_Check(obj);
        if (!raw) {
            Py_DECREF(descr);
            return exclusive_for(tx, "assignment to an attribute of", obj);
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
    Py_XDECREF(descr);
    if (UNLIKELY(is_name(name, "__class__")))
        return exclusive_for(tx, "change of the class of", obj);
    bool first;
    if (lock_exclusive(tx, attr_cell(obj, name), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyObject *old = instance_value(obj, name, descr != NULL && !raw);
    if (old == NULL && PyErr_Occurred())
        PyErr_Clear();
    Undo *u = undo_push(tx, UNDO_ATTR, obj, name, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* ---- Module globals ------------------------------------------------------------------ */

int
open_global_read(Tx *tx, PyObject *globals, PyObject *name)
{
    return lock_shared(tx, attr_cell(globals, name));
}

/* Rebinding a global is a keyed write if every function of the module reads
 * that name with a barrier; else all others must stand still. */
int
open_global_write(Tx *tx, PyObject *globals, PyObject *name)
{
    PyObject *owner, *rebound;
    bool barriers = false;
    if (alias_of(globals, &owner, &rebound) && rebound != NULL) {
        barriers = PySequence_Contains(rebound, name) == 1;
        Py_DECREF(rebound);
    }
    if (!barriers)
        return exclusive_for(tx, "assignment to the module global", name);
    bool first;
    if (lock_exclusive(tx, attr_cell(globals, name), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyObject *old = NULL;
    if (PyDict_GetItemRef(globals, name, &old) < 0)
        return -1;
    Undo *u = undo_push(tx, UNDO_DICT_SET, globals, name, old);
    if (u != NULL)
        u->n = 1;       /* the order of globals is nobody's business at commit */
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* ---- Whole objects ---------------------------------------------------------------------- */

int
open_whole_read(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    switch (kind) {
    case KIND_LIST:
    case KIND_DEQUE:
    case KIND_BYTEARRAY:
    case KIND_ODICT:
    case KIND_CONTEXT:
        return lock_shared(tx, cell_of(obj, WHOLE));
    case KIND_DICT:
        if (is_watched(obj))
            return exclusive_for(tx, "all attributes through", obj);
        return lock_shared_container(tx, cell_of(obj, WHOLE));
    case KIND_SET:
        return lock_shared_container(tx, cell_of(obj, WHOLE));
    case KIND_ITERATOR:
        return open_iter(tx, obj);
    case KIND_OPAQUE:
    case KIND_UNKNOWN:
        if (is_fresh(tx, obj))
            return 0;
        return exclusive_for(tx, "use of", obj);
    default:
        return check_doomed(tx);
    }
}

#define MAX_DEPTH 100

/* Everything that C code may come to read from here: comparing, printing,
 * encoding. It does not look into instances: their methods are Python. */
int
open_deep_read(Tx *tx, PyObject *obj, int depth)
{
    Kind kind = kind_of(tx, obj);
    if (LIKELY(kind == KIND_INERT))
        return 0;
    if (depth > MAX_DEPTH)
        return exclusive_for(tx, "deeply nested", obj);
    switch (kind) {
    case KIND_TUPLE:
        if (PyTuple_Check(obj)) {
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); i++) {
                if (open_deep_read(tx, PyTuple_GET_ITEM(obj, i), depth + 1) < 0)
                    return -1;
            }
        }
        return 0;
    case KIND_LIST:
        if (open_whole_read(tx, obj) < 0)
            return -1;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); i++) {
            PyObject *item = PyList_GetItemRef(obj, i);
            if (item == NULL) {
                PyErr_Clear();
                break;
            }
            int r = open_deep_read(tx, item, depth + 1);
            Py_DECREF(item);
            if (r < 0)
                return -1;
        }
        return 0;
    case KIND_DICT:
    case KIND_ODICT: {
        if (open_whole_read(tx, obj) < 0)
            return -1;
        PyObject *key, *value;
        Py_ssize_t pos = 0;
        int r = 0;
        Py_BEGIN_CRITICAL_SECTION(obj);
        while (r == 0 && PyDict_Next(obj, &pos, &key, &value)) {
            if (kind_of(tx, key) != KIND_INERT)
                r = open_deep_read(tx, key, depth + 1);
            if (r == 0 && kind_of(tx, value) != KIND_INERT)
                r = open_deep_read(tx, value, depth + 1);
        }
        Py_END_CRITICAL_SECTION();
        return r;
    }
    case KIND_DEQUE: {
        if (open_whole_read(tx, obj) < 0)
            return -1;
        Py_ssize_t n = PyObject_Size(obj);
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *item = PySequence_GetItem(obj, i);
            if (item == NULL) {
                PyErr_Clear();
                break;
            }
            int r = open_deep_read(tx, item, depth + 1);
            Py_DECREF(item);
            if (r < 0)
                return -1;
        }
        return 0;
    }
    case KIND_INSTANCE:
        if (PyExceptionInstance_Check(obj)) {
            PyObject *args = ((PyBaseExceptionObject *)obj)->args;
            if (args != NULL)
                return open_deep_read(tx, args, depth + 1);
        }
        return check_doomed(tx);
    case KIND_GENERATOR:
        return open_generator(tx, obj);
    default:
        return open_whole_read(tx, obj);
    }
}

/* ---- Iterators ---------------------------------------------------------------------------- */

typedef struct { Tx *tx; int result; int depth; PyTypeObject *type; } Visit;

static int
open_iter_depth(Tx *tx, PyObject *obj, int depth);

static int
take_ref(PyObject *o, void *arg)
{
    (void)arg;
    Py_INCREF(o);
    return 0;
}

static int
open_referent(PyObject *o, void *arg)
{
    Visit *v = arg;
    if (o == (PyObject *)v->type)
        return 0;
    switch (kind_of(v->tx, o)) {
    case KIND_OPAQUE:
    case KIND_UNKNOWN:
    case KIND_LIST:
    case KIND_DICT:
    case KIND_ODICT:
    case KIND_SET:
    case KIND_DEQUE:
    case KIND_BYTEARRAY:
    case KIND_GENERATOR:
    case KIND_ITERATOR:
        v->result = open_iter_depth(v->tx, o, v->depth + 1);
        return v->result;
    case KIND_TUPLE:
        /* zip and map keep their iterators in a tuple; the depth is bounded. */
        if (PyTuple_Check(o)) {
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o) && v->result == 0; i++) {
                PyObject *item = PyTuple_GET_ITEM(o, i);
                Kind k = kind_of(v->tx, item);
                if (k == KIND_ITERATOR || k == KIND_GENERATOR)
                    v->result = open_iter_depth(v->tx, item, v->depth + 1);
            }
        }
        return v->result;
    default:
        return 0;
    }
}

/* A C iterator: it advances in place, over what it refers to. Its memory is
 * saved as it is; the type's own traversal finds the references in it. */
static int
open_c_iterator(Tx *tx, PyObject *obj, int depth)
{
    bool first;
    if (lock_exclusive(tx, cell_of(obj, WHOLE), &first) < 0)
        return -1;
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_traverse == NULL || type->tp_itemsize != 0)
        return exclusive_for(tx, "iteration over", obj);
    if (first && tx->grade != GRADE_EXCLUSIVE) {
        char *copy = PyMem_RawMalloc(type->tp_basicsize);
        if (copy == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(copy, obj, type->tp_basicsize);
        type->tp_traverse((PyObject *)copy, take_ref, NULL);
        Undo *u = undo_push(tx, UNDO_STRUCT, obj, NULL, NULL);
        if (u == NULL)
            return -1;
        u->mem = copy + sizeof(PyObject);
        u->n = type->tp_basicsize - (Py_ssize_t)sizeof(PyObject);
    }
    if (!first)
        return 0;
    Visit v = {tx, 0, depth, type};
    type->tp_traverse(obj, open_referent, &v);
    return v.result;
}

static int
open_iter_depth(Tx *tx, PyObject *obj, int depth)
{
    if (depth > MAX_DEPTH)
        return exclusive_for(tx, "deeply nested", obj);
    Kind kind = kind_of(tx, obj);
    switch (kind) {
    case KIND_GENERATOR:
        return open_generator(tx, obj);
    case KIND_ITERATOR:
        if (PyDictViewSet_Check(obj) || PyDictValues_Check(obj)) {
            PyDictObject *d = ((_PyDictViewObject *)obj)->dv_dict;
            return d == NULL ? 0 : open_whole_read(tx, (PyObject *)d);
        }
        return open_c_iterator(tx, obj, depth);
    default:
        return open_whole_read(tx, obj);
    }
}

int
open_iter(Tx *tx, PyObject *obj)
{
    return open_iter_depth(tx, obj, 0);
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

static PyObject *
owner_or_dict(PyObject *dict, bool *aliased)
{
    PyObject *owner, *rebound;
    *aliased = alias_of(dict, &owner, &rebound);
    if (!*aliased)
        return dict;
    Py_XDECREF(rebound);
    return owner ? owner : dict;
}

static bool
inserts_missing_keys(PyObject *dict)
{
    static PyObject *name;
    if (PyDict_CheckExact(dict))
        return false;
    if (name == NULL)
        name = PyUnicode_InternFromString("__missing__");
    PyObject *m = _PyType_LookupRef(Py_TYPE(dict), name);
    bool c_code = m != NULL && Py_IS_TYPE(m, &PyMethodDescr_Type);
    Py_XDECREF(m);
    return c_code;
}

int
open_key_read(Tx *tx, PyObject *obj, PyObject *key)
{
    Kind kind = kind_of(tx, obj);
    if (kind != KIND_DICT && kind != KIND_SET) {
        if (kind == KIND_INERT || kind == KIND_TUPLE || kind == KIND_INSTANCE || kind == KIND_CLASS)
            return check_doomed(tx);
        return open_whole_read(tx, obj);
    }
    uint64_t bits;
    int h = hash_of(key, &bits);
    if (h <= 0)
        return h;
    bool aliased = false;
    PyObject *base = kind == KIND_DICT ? owner_or_dict(obj, &aliased) : obj;
    Cell c = cell_of(base, bits);
    if (marked(tx, c, MODE_SHARED) && !inserts_missing_keys(obj))
        return check_doomed(tx);
    if (!aliased && lock_intent_read(tx, cell_of(base, WHOLE)) < 0)
        return -1;
    if (lock_shared(tx, c) < 0)
        return -1;
    if (kind == KIND_DICT && inserts_missing_keys(obj)) {
        int there = PyDict_Contains(obj, key);
        if (there < 0)
            return -1;
        if (!there)
            return open_key_write(tx, obj, key, false);
    }
    return 0;
}

/* A read mark that nobody conflicts with remembers that all of it is logged. */
static bool
snapshot_taken(Tx *tx, PyObject *obj)
{
    return marked(tx, cell_of(obj, SNAPSHOT_TAKEN), MODE_SHARED);
}

/* Log a copy of the whole contents, once a transaction. The caller owns it. */
static int
log_all(Tx *tx, PyObject *obj, Kind kind)
{
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, obj))
        return 0;
    UndoKind undo;
    PyObject *copy;
    switch (kind) {
    case KIND_LIST:
        undo = UNDO_LIST_ALL;
        copy = PyList_GetSlice(obj, 0, PyList_GET_SIZE(obj));
        break;
    case KIND_DICT:
        undo = UNDO_DICT_ALL;
        copy = PyDict_New();
        if (copy != NULL && PyDict_Update(copy, obj) < 0)
            Py_CLEAR(copy);
        break;
    case KIND_SET:
        undo = UNDO_SET_ALL;
        copy = PySet_New(obj);
        break;
    case KIND_BYTEARRAY:
        undo = UNDO_SEQ_ALL;
        copy = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(obj), PyByteArray_GET_SIZE(obj));
        break;
    case KIND_ODICT:
        undo = UNDO_SEQ_ALL;
        copy = PyDict_New();
        if (copy != NULL && PyDict_Update(copy, obj) < 0)
            Py_CLEAR(copy);
        break;
    default:
        undo = UNDO_SEQ_ALL;
        copy = PySequence_List(obj);
        break;
    }
    if (copy == NULL)
        return -1;
    Undo *u = undo_push(tx, undo, obj, NULL, copy);
    Py_DECREF(copy);
    if (u == NULL)
        return -1;
    return lock_shared(tx, cell_of(obj, SNAPSHOT_TAKEN));
}

int
open_whole_write(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    bool first;
    switch (kind) {
    case KIND_DICT:
        if (is_watched(obj))
            return exclusive_for(tx, "all attributes through", obj);
        /* fall through */
    case KIND_LIST:
    case KIND_ODICT:
    case KIND_SET:
    case KIND_DEQUE:
    case KIND_BYTEARRAY:
        if (lock_exclusive(tx, cell_of(obj, WHOLE), &first) < 0)
            return -1;
        return log_all(tx, obj, kind);
    case KIND_ITERATOR:
    case KIND_GENERATOR:
        return open_iter(tx, obj);
    case KIND_INERT:
    case KIND_TUPLE:
    case KIND_INSTANCE:
        return check_doomed(tx);
    default:
        if (is_fresh(tx, obj))
            return 0;
        return exclusive_for(tx, "change of", obj);
    }
}

/* Where the key stands among the others, or -1 with no exception if absent. */
static Py_ssize_t
position_of(PyObject *dict, PyObject *key, PyObject **actual)
{
    PyObject *k, *v;
    Py_ssize_t pos = 0, n = 0, found = -1;
    Py_BEGIN_CRITICAL_SECTION(dict);
    while (PyDict_Next(dict, &pos, &k, &v)) {
        if (k == key || (PyUnicode_CheckExact(k) && PyUnicode_CheckExact(key)
                         ? PyUnicode_Equal(k, key)
                         : PyObject_Hash(k) == PyObject_Hash(key)
                               && PyObject_RichCompareBool(k, key, Py_EQ) == 1)) {
            found = n;
            *actual = Py_NewRef(k);
            break;
        }
        n++;
    }
    Py_END_CRITICAL_SECTION();
    PyErr_Clear();
    return found;
}

static int
open_dict_delete(Tx *tx, PyObject *dict, PyObject *key)
{
    bool first;
    if (lock_exclusive(tx, cell_of(dict, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    PyObject *value;
    int there = PyDict_GetItemRef(dict, key, &value);
    if (there <= 0) {
        if (there < 0 && PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    PyObject *actual = NULL;
    Py_ssize_t n = position_of(dict, key, &actual);
    if (n < 0) {
        Py_DECREF(value);
        return log_all(tx, dict, KIND_DICT);
    }
    Undo *u = undo_push(tx, UNDO_DICT_DEL, dict, actual, value);
    Py_DECREF(value);
    Py_DECREF(actual);
    if (u == NULL)
        return -1;
    u->n = n;
    return 0;
}

static int
open_dict_write(Tx *tx, PyObject *dict, PyObject *key, bool del)
{
    uint64_t bits;
    int h = hash_of(key, &bits);
    if (h <= 0)
        return h;
    bool aliased;
    PyObject *base = owner_or_dict(dict, &aliased);
    if (aliased && base == dict)
        return PyUnicode_CheckExact(key) && !del ? open_global_write(tx, dict, key)
                                                 : exclusive_for(tx, "change of globals()", NULL);
    bool first;
    if (!aliased) {
        if (del)
            return open_dict_delete(tx, dict, key);
        if (lock_intent_write(tx, cell_of(dict, WHOLE)) < 0)
            return -1;
    }
    if (lock_exclusive(tx, cell_of(base, bits), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, dict))
        return 0;
    PyObject *old = NULL;
    if (PyDict_GetItemRef(dict, key, &old) < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
    }
    Undo *u = undo_push(tx, UNDO_DICT_SET, dict, key, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

#define SMALL_LIST 64

static int
open_list_item(Tx *tx, PyObject *list, PyObject *key, bool del)
{
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0)
        return -1;
    if (del || !PyLong_CheckExact(key) || PyList_GET_SIZE(list) <= SMALL_LIST)
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
    Kind kind = kind_of(tx, obj);
    switch (kind) {
    case KIND_DICT:
        return open_dict_write(tx, obj, key, del);
    case KIND_LIST:
        return open_list_item(tx, obj, key, del);
    case KIND_SET:
        return open_set_change(tx, obj, key);
    default:
        return open_whole_write(tx, obj);
    }
}

int
open_set_change(Tx *tx, PyObject *set, PyObject *key)
{
    uint64_t bits;
    if (kind_of(tx, set) != KIND_SET)
        return open_whole_write(tx, set);
    int h = hash_of(key, &bits);
    if (h <= 0)
        return h;
    bool first;
    if (lock_intent_write(tx, cell_of(set, WHOLE)) < 0
        || lock_exclusive(tx, cell_of(set, bits), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, set))
        return 0;
    int there = PySet_Contains(set, key);
    if (there < 0) {
        if (PyErr_ExceptionMatches(stm_Abort))
            return -1;
        PyErr_Clear();
        return 0;
    }
    return undo_push(tx, there ? UNDO_SET_DEL : UNDO_SET_ADD, set, key, NULL) ? 0 : -1;
}

/* ---- Lists and deques as stacks and queues -------------------------------------------------- */

int
open_list_append(Tx *tx, PyObject *list)
{
    if (kind_of(tx, list) != KIND_LIST)
        return open_whole_write(tx, list);
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Undo *last = tx->n_undo ? &tx->undo[tx->n_undo - 1] : NULL;
    if (last != NULL && last->kind == UNDO_LIST_LEN && last->obj == list)
        return 0;
    Undo *u = undo_push(tx, UNDO_LIST_LEN, list, NULL, NULL);
    if (u == NULL)
        return -1;
    u->n = PyList_GET_SIZE(list);
    return 0;
}

/* An interned method name for UNDO_METHOD. */
static int
push_inverse(Tx *tx, PyObject *obj, const char *method, PyObject *value)
{
    PyObject *name = PyUnicode_InternFromString(method);
    if (name == NULL)
        return -1;
    Undo *u = undo_push(tx, UNDO_METHOD, obj, name, value);
    Py_DECREF(name);
    return u == NULL ? -1 : 0;
}

int
open_list_pop(Tx *tx, PyObject *list, Py_ssize_t index)
{
    if (kind_of(tx, list) != KIND_LIST)
        return open_whole_write(tx, list);
    bool first;
    if (lock_exclusive(tx, cell_of(list, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, list))
        return 0;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (index != -1 || n <= SMALL_LIST)
        return log_all(tx, list, KIND_LIST);
    PyObject *last = PyList_GetItemRef(list, n - 1);
    if (last == NULL)
        return -1;
    int r = push_inverse(tx, list, "append", last);
    Py_DECREF(last);
    return r;
}

int
open_deque_op(Tx *tx, PyObject *deque, int op)
{
    if (kind_of(tx, deque) != KIND_DEQUE)
        return open_whole_write(tx, deque);
    bool first;
    if (lock_exclusive(tx, cell_of(deque, WHOLE), &first) < 0)
        return -1;
    if (tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, deque))
        return 0;
    Py_ssize_t n = PyObject_Size(deque);
    if (op == DEQUE_POP || op == DEQUE_POPLEFT) {
        if (n == 0)
            return 0;
        PyObject *item = PySequence_GetItem(deque, op == DEQUE_POP ? n - 1 : 0);
        if (item == NULL)
            return -1;
        int r = push_inverse(tx, deque, op == DEQUE_POP ? "append" : "appendleft", item);
        Py_DECREF(item);
        return r;
    }
    PyObject *maxlen = PyObject_GetAttrString(deque, "maxlen");
    if (maxlen == NULL)
        return -1;
    bool bounded = maxlen != Py_None;
    Py_DECREF(maxlen);
    if (bounded)
        return log_all(tx, deque, KIND_DEQUE);
    return push_inverse(tx, deque, op == DEQUE_APPEND ? "pop" : "popleft", NULL);
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
    if (lock_exclusive(tx, cell_of(ctx, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    return undo_push(tx, UNDO_CONTEXT, ctx, NULL,
                     (PyObject *)((struct _pycontextobject *)ctx)->ctx_vars) ? 0 : -1;
}
