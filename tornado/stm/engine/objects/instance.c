/* Attributes of instances of Python classes, and of any other object.
 *
 * An attribute can be reached as a key of obj.__dict__ too, and must be the same
 * cell (namespaces.c).
 */
#include "instance.h"

#include "../../interpreter/tracebacks.h"
#include "../calls/calls.h"
#include "access.h"
#include "attributes.h"
#include "dict.h"
#include "dictkeys.h"
#include "exception.h"
#include "known.h"
#include "names.h"
#include "namespaces.h"
#include "special.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_weakref.h"

PyObject *stm_dict_name, *stm_class_name;

int
instances_init(void)
{
    stm_dict_name = PyUnicode_InternFromString("__dict__");
    stm_class_name = PyUnicode_InternFromString("__class__");
    return stm_dict_name == NULL || stm_class_name == NULL ? -1 : 0;
}

/* ---- Undo ----------------------------------------------------------------------------- */

static int
put_attr_back(Tx *tx, Undo *u)
{
    displace(tx, _PyObject_GenericGetAttrWithDict(u->obj, u->key, NULL, 1));
    if (PyObject_GenericSetAttr(u->obj, u->key, u->old) == 0)
        return 0;
    if (u->old != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();      /* it was set and deleted again */
    return 0;
}

const UndoKind undo_attr = {.what = "an attribute", .undo = put_attr_back, .logged = order_logged};

/* ---- Locks ---------------------------------------------------------------------------- */

/* An attribute of an instance without a dict; not the cell of a key, should the
 * object be a dict itself. */
static inline Cell
slot_cell(PyObject *obj, PyObject *name)
{
    return cell_of(obj, key_bits(PyObject_Hash(name)) ^ SLOT_BITS);
}

static inline PyDictValues *
inline_values(PyObject *obj)
{
    if (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_INLINE_VALUES)
        return _PyObject_InlineValues(obj);
    return NULL;
}

/* Where instances of the class have the value of that name; -1: they have no room for it.  Only where they have is it sure that a new
 * one leaves the values where they are. */
static Py_ssize_t
place_of_name(PyDictKeysObject *keys, PyObject *name)
{
    Py_ssize_t n = _Py_atomic_load_ssize_acquire(&keys->dk_nentries);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *k = DK_UNICODE_ENTRIES(keys)[i].me_key;
        if (k == name || (k != NULL && PyUnicode_Check(name) && PyUnicode_Equal(k, name)))
            return i;
    }
    return -1;
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
    PyObject *dict = NULL;
    if (can_have_dict(Py_TYPE(obj)) && find_own_dict(tx, obj, &dict) < 0)
        return -1;
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
lock_attr_cells(Tx *tx, PyObject *obj, PyObject *name, bool beside, bool *first)
{
    PyDictValues *v = inline_values(obj);
    PyObject *dict;
    if (v != NULL && lock_exclusive(tx, attr_cell(v, name), first) < 0)
        return -1;
    if (v != NULL && v->valid) {
        dict = (PyObject *)_PyObject_GetManagedDict(obj);
        return LIKELY(dict == NULL || !is_module_dict(dict)) ? 0 : exclusive_for(tx, globals_of, obj);
    }
    dict = NULL;
    if (can_have_dict(Py_TYPE(obj)) && (beside ? find_own_dict_beside : make_own_dict)(tx, obj, &dict) < 0)
        return -1;
    if (dict == NULL)
        return lock_exclusive(tx, slot_cell(obj, name), first);
    const void *base = namespace_of(dict);
    int r = base == NULL ? lock_key_owned(tx, dict, attr_cell(dict, name), first)
        : UNLIKELY(is_module_dict(dict)) ? exclusive_for(tx, globals_of, obj)
        : base == v ? 0 : lock_exclusive(tx, attr_cell(base, name), first);
    Py_DECREF(dict);
    return r;
}

/* `beside`: it is no attribute in the dict, but in a slot or a field. */
static int
lock_attr_owned(Tx *tx, PyObject *obj, PyObject *name, bool beside, bool *first)
{
    return lock_attr_cells(tx, obj, name, beside, first) < 0 ? -1 : bias_revoke(tx, obj);
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
        if (place_of_name(keys, name) >= 0)
            return 0;
        /* The values may move into a dict: which is to be known for what it is before. */
        if (make_own_dict(tx, obj, &dict) < 0)
            return -1;
    }
    else if (can_have_dict(Py_TYPE(obj)))
        dict = own_dict(obj);
    const void *base = dict ? namespace_of(dict) : NULL;
    int r = base == NULL || base == v ? 0 : lock_intent_write(tx, cell_of(base, WHOLE));
    Py_XDECREF(dict);
    return r;
}

/* ---- What the class says ---------------------------------------------------------------- */

/* A data descriptor in C that nobody has declared, like a field of a ctypes structure. */
static bool
is_unknown_descriptor(PyObject *d)
{
    PyTypeObject *t = Py_TYPE(d);
    return t->tp_descr_set != NULL && t != &PyProperty_Type && !is_python_class(t)
        && classify(t) == &unknown_kind;
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

int
name_in_c_type(PyObject *obj, PyObject *name)
{
    PyObject *descr;
    int where = name_in_type(Py_TYPE(obj), name, &descr);
    Py_XDECREF(descr);
    return where;
}

int
assignment_hook(PyTypeObject *type, const char *method)
{
    if (type->tp_setattro == PyObject_GenericSetAttr)
        return HOOK_NONE;
    PyObject *name = PyUnicode_InternFromString(method);
    PyObject *found = name ? _PyType_LookupRef(type, name) : NULL;
    int hook = found != NULL && (PyFunction_Check(found) || gives_guarded(found)) ? HOOK_PYTHON
        : found != NULL && Py_IS_TYPE(found, &PyWrapperDescr_Type)
            && (PyDescr_TYPE(found) == &PyBaseObject_Type || classify(PyDescr_TYPE(found)) == &fields_kind) ? HOOK_NONE : HOOK_UNKNOWN;
    Py_XDECREF(found);
    Py_XDECREF(name);
    PyErr_Clear();
    return hook;
}

/* ---- Reading ---------------------------------------------------------------------------- */

/* Is the dict a view of what lies in an instance that this attempt has made?  So it has made that, too: any other one has been given to it. */
static bool
views_captured(Tx *tx, PyObject *obj, PyObject *dict)
{
    PyDictValues *v = inline_values(obj);
    return v != NULL && v->valid && ((PyDictObject *)dict)->ma_values == v && captured(tx, obj);
}

bool
has_captured_dict(Tx *tx, PyObject *obj)
{
    PyObject *dict = inline_values(obj) != NULL ? (PyObject *)_PyObject_GetManagedDict(obj) : NULL;
    return dict != NULL && captured(tx, dict) && views_captured(tx, obj, dict) && kind_of(tx, obj) == &instance_kind;
}

/* Reading obj.__dict__ may make the dict.  1: it is captured itself. */
static int
prepare_dict(Tx *tx, PyObject *obj, PyObject *name)
{
    if (LIKELY(name != stm_dict_name && !PyUnicode_Equal(name, stm_dict_name)))
        return 0;
    PyObject *dict = NULL;
    if (can_have_dict(Py_TYPE(obj)) && make_own_dict(tx, obj, &dict) < 0)
        return -1;
    bool own = dict != NULL && views_captured(tx, obj, dict);
    if (own)
        note_captured(tx, dict);
    else if (dict != NULL)
        forget_capture(tx, dict);
    Py_XDECREF(dict);
    return own;
}

/* For an attribute in C that tells of the object's state. */
static int
open_c_state(Tx *tx, PyObject *obj, Kind kind)
{
    if (kind->c_state == C_STATE_WHOLE)
        return lock_shared(tx, cell_of(obj, WHOLE));
    return is_fresh(tx, obj) ? 0 : exclusive_for(tx, "attribute of", obj);
}

/* What the name is of an object that is no instance of a Python class. */
static int
open_c_attr(Tx *tx, PyObject *obj, PyObject *name, Kind kind)
{
    PyObject *descr;
    int where = name_in_type(Py_TYPE(obj), name, &descr);
    Py_XDECREF(descr);
    if (where == NAME_CODE || where == NAME_ABSENT || kind->c_state == C_STATE_CONSTANT)
        return 0;
    return open_c_state(tx, obj, kind);
}

/* Of an unknown C type that looks for attributes in a way of its own: in other objects perhaps, as weak proxies do; or of a closure's
 * variable, whose contents are read as its functions read them. 1: as of other objects. */
static int
open_attr_elsewhere(Tx *tx, PyObject *obj, PyObject *name)
{
    if (PyCell_Check(obj) && PyUnicode_EqualToUTF8(name, "cell_contents"))
        return open_closure_read(tx, obj);
    PyTypeObject *base = c_base(Py_TYPE(obj));
    if (base->tp_getattro == PyObject_GenericGetAttr)
        return 1;
    PyObject *referent = PyWeakref_CheckProxy(obj) ? _PyWeakref_GET_REF(obj) : NULL;
    if (referent == NULL)
        return exclusive_for(tx, "attribute of", obj);
    int r = open_attr_read(tx, referent, name);
    Py_DECREF(referent);
    return r;
}

/* Will the interpreter, which looks for an attribute of that name, find nothing in the object but a value in it, if that?  Mostly so. */
static bool
is_value_read(Tx *tx, PyObject *obj, PyObject *name)
{
    PyDictValues *v = inline_values(obj);
    return kind_of(tx, obj) == &instance_kind && v != NULL && v->valid && PyUnicode_CHECK_INTERNED(name) && name != stm_dict_name
        && !PyExceptionInstance_Check(obj);
}

bool
attr_read_by_bias(Tx *tx, PyObject *obj, PyObject *name)
{
    return has_bias(obj) && is_value_read(tx, obj, name) && read_by_bias(tx, obj);
}

static int
open_value_read(Tx *tx, PyObject *obj, PyObject *name)
{
    if (read_by_bias(tx, obj))
        return check_doomed(tx);
    PyDictValues *v = inline_values(obj);
    if (lock_shared(tx, attr_cell(v, name)) < 0)
        return -1;
    if (UNLIKELY(!v->valid))
        return lock_attr_shared(tx, obj, name);     /* until then somebody had it, who has moved them into a dict */
    bias_seen(tx, obj);
    return 0;
}

int
open_attr_read(Tx *tx, PyObject *obj, PyObject *name)
{
    if (LIKELY(is_value_read(tx, obj, name)))
        return open_value_read(tx, obj, name);
    Kind kind = kind_of(tx, obj);
    if (kind->read_attr != NULL) {
        int r = kind->read_attr(tx, obj, name);
        if (r <= 0)
            return r;
    }
    if (kind == &unknown_kind) {
        int r = open_attr_elsewhere(tx, obj, name);
        if (r <= 0)
            return r;
    }
    int own = prepare_dict(tx, obj, name);
    if (own < 0 || (own && kind == &instance_kind))
        return own < 0 ? -1 : check_doomed(tx);
    bool python = is_python_class(Py_TYPE(obj));
    if (!python && kind != &instance_kind && !kind->has_attributes)
        return open_c_attr(tx, obj, name, kind);
    if (kind->c_state != C_STATE_CONSTANT) {
        /* A Python class over a C type that has state, or that nobody has declared. */
        PyObject *descr;
        int where = name_in_type(Py_TYPE(obj), name, &descr);
        Py_XDECREF(descr);
        if (where == NAME_C_STATE)
            return open_c_state(tx, obj, kind);
    }
    return lock_attr_shared(tx, obj, name);
}

/* ---- Writing ---------------------------------------------------------------------------- */

/* The value in the instance itself, whatever the class has under that name.  Requires: the attribute is locked. */
static PyObject *
instance_value(PyObject *obj, PyObject *name, bool class_has_it)
{
    if (!class_has_it)
        return _PyObject_GenericGetAttrWithDict(obj, name, NULL, 1);
    PyDictValues *v = inline_values(obj);
    if (v != NULL && v->valid) {
        Py_ssize_t i = place_of_name(((PyHeapTypeObject *)Py_TYPE(obj))->ht_cached_keys, name);
        return i < 0 ? NULL : Py_XNewRef(_Py_atomic_load_ptr_relaxed(&v->values[i]));   /* moved meanwhile or not */
    }
    PyObject *value = NULL;
    PyObject *dict = can_have_dict(Py_TYPE(obj)) ? own_dict(obj) : NULL;
    if (dict != NULL) {
        PyDict_GetItemRef(dict, name, &value);
        Py_DECREF(dict);
    }
    return value;
}

/* Nothing of this name can be changed in an object of this C type, which has no dict: that raises, and does nothing else. */
static bool
lacks_attr(PyTypeObject *type, PyObject *name)
{
    if (type->tp_setattro != PyObject_GenericSetAttr || type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        || !PyUnicode_CheckExact(name))
        return false;
    PyObject *descr = _PyType_LookupRef(type, name);
    bool settable = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL;
    Py_XDECREF(descr);
    return !settable;
}

/* Of an object whose kind has rules of its own for that, or which is no instance of a Python class. 1: as of other objects. */
static int
change_other_attr(Tx *tx, PyObject *obj, PyObject *name, bool del, bool raw)
{
    Kind kind = kind_of(tx, obj);
    if (kind->change_attr != NULL) {
        int r = kind->change_attr(tx, obj, name, del, raw);
        if (r <= 0)
            return r;
    }
    if (kind == &instance_kind || kind->has_attributes || is_python_class(Py_TYPE(obj)))
        return 1;
    return is_fresh(tx, obj) || lacks_attr(Py_TYPE(obj), name) ? 0 : exclusive_for(tx, "attribute assignment to", obj);
}

/* Log the attribute, which this transaction owns. A dict with other keys than strings may have one that only the program's code can
 * tell from the name, and a name that is not just a string has a hash by such code. */
static int
log_attr(Tx *tx, PyObject *obj, PyObject *name, PyObject *old, bool in_dict)
{
    if (UNLIKELY(!PyUnicode_CheckExact(name)))
        return exclusive_for(tx, "assignment to an attribute whose name is of a class derived from str, of", obj);
    PyDictValues *v = inline_values(obj);
    PyObject *dict = !in_dict || (v != NULL && v->valid) || !can_have_dict(Py_TYPE(obj)) ? NULL : own_dict(obj);
    Undo *u = dict == NULL || LIKELY(dict_is_of_strings(dict)) ? undo_push(tx, &undo_attr, obj, name, old)
        : log_key(tx, dict, name, PyObject_Hash(name), old);
    Py_XDECREF(dict);
    return u == NULL ? -1 : 0;
}

/* `raw`: by object.__setattr__, past a __setattr__ of the class. */
int
open_attr_write(Tx *tx, PyObject *obj, PyObject *name, bool raw_write)
{
    int other = change_other_attr(tx, obj, name, false, raw_write);
    if (other <= 0)
        return other;
    PyTypeObject *type = Py_TYPE(obj);
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
        /* a property, or a descriptor in Python: its own barriers, or guards, now that its class has been met */
        int r = kind_of(tx, descr) == &unknown_kind ? exclusive_for(tx, "assignment to an attribute of", obj) : check_doomed(tx);
        Py_DECREF(descr);
        return r;
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
    if (UNLIKELY(PyUnicode_EqualToUTF8(name, "__class__")))
        return exclusive_for(tx, "change of the class of", obj);
    bool first;
    if (lock_attr_owned(tx, obj, name, raw, &first) < 0)
        return -1;
    bool shares_hashes = thread_of(tx)->order.shares_hashes;    /* then owning the name does not tell that it is logged */
    if (tx->grade == GRADE_EXCLUSIVE || (!first && !thread_of(tx)->order.deletes_keys && !shares_hashes))
        return 0;
    PyObject *old = instance_value(obj, name, in_class && !raw);
    if (old == NULL && PyErr_Occurred())
        PyErr_Clear();
    int r = 0;
    if (old == NULL && !raw && lock_new_attr(tx, obj, name) < 0)
        r = -1;
    else if (first || old == NULL || shares_hashes)
        r = log_attr(tx, obj, name, old, !raw);
    Py_XDECREF(old);
    return r;
}

/* del obj.name. A slot or a property is as in an assignment. */
int
open_attr_delete(Tx *tx, PyObject *obj, PyObject *name, bool raw)
{
    int other = change_other_attr(tx, obj, name, true, raw);
    if (other <= 0)
        return other;
    PyTypeObject *type = Py_TYPE(obj);
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
    PyObject *dict = NULL;
    if (can_have_dict(type) && make_own_dict(tx, obj, &dict) < 0)
        return -1;
    if (dict == NULL)
        return check_doomed(tx);    /* there is nothing to delete */
    const void *base = namespace_of(dict);
    PyDictValues *v = inline_values(obj);
    bool first;
    int r = v != NULL && base != v && lock_exclusive(tx, attr_cell(v, name), &first) < 0 ? -1
        : UNLIKELY(is_module_dict(dict)) ? exclusive_for(tx, globals_of, obj)
        : base != NULL ? open_name_delete(tx, dict, base, name) : open_whole_write(tx, dict);
    Py_DECREF(dict);
    return r < 0 ? -1 : bias_revoke(tx, obj);
}

/* Does a class inherit methods in C that look at all attributes: those of a types.SimpleNamespace? */
static bool
shows_attributes(PyTypeObject *type)
{
    PyTypeObject *base = c_base(type);
    return base != &PyBaseObject_Type
        && ((type->tp_repr == base->tp_repr && base->tp_repr != PyBaseObject_Type.tp_repr)
            || (type->tp_richcompare == base->tp_richcompare && base->tp_richcompare != PyBaseObject_Type.tp_richcompare));
}

static int
visit_attributes(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    if (PyExceptionInstance_Check(obj))
        return visit_exception(tx, obj, visit, arg);
    if (is_python_class(Py_TYPE(obj)) && !shows_attributes(Py_TYPE(obj)))
        return check_doomed(tx);    /* its methods are Python, and have barriers of their own */
    if (!can_have_dict(Py_TYPE(obj))) {
        if (classify(c_base(Py_TYPE(obj))) == &inert_kind)
            return check_doomed(tx);    /* there are none, but those in slots, of which str's methods know nothing */
        return exclusive_for(tx, "all attributes at once of", obj);
    }
    PyObject *dict = NULL;
    if (open_own_dict(tx, obj) < 0)
        return -1;
    dict = own_dict(obj);
    if (dict != NULL)
        forget_capture(tx, dict);
    int r = dict == NULL ? 0 : visit(tx, dict, arg);
    Py_XDECREF(dict);
    return r;
}

/* A method in C of a type without state: str's, for a class that is derived from that; or a stream's that returns the stream. */
static bool
needs_no_state(PyObject *method)
{
    if (!Py_IS_TYPE(method, &PyWrapperDescr_Type))
        return false;
    Kind kind = classify(PyDescr_TYPE(method));
    return kind == &inert_kind || (kind == &instance_kind && PyDescr_TYPE(method)->tp_iternext != NULL
                                   && strcmp(((PyWrapperDescrObject *)method)->d_base->name, "__iter__") == 0);
}

PyObject *
function_of_class(PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_LookupRef(type, name);
    if (found != NULL && (Py_IS_TYPE(found, &PyClassMethod_Type) || Py_IS_TYPE(found, &PyStaticMethod_Type)))
        Py_SETREF(found, PyObject_GetAttrString(found, "__func__"));
    return found;
}

/* C code will call this method, if there is one, and go on with what it returns: nobody has opened that but the evaluation loop,
 * of functions in Python (stm_return). */
int
open_through_method(Tx *tx, PyObject *obj, PyObject *name)
{
    PyObject *method = function_of_class(Py_TYPE(obj), name);
    bool known = method == NULL || method == Py_None || PyFunction_Check(method) || needs_no_state(method);
    Py_XDECREF(method);
    return known ? check_doomed(tx) : exclusive_for(tx, "a method that is no function in Python of", obj);
}

/* The same, where C code looks in the object for what it calls: it may be an attribute of the instance, or what a __getattr__ makes. */
int
open_through_attribute(Tx *tx, PyObject *obj, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (!is_python_class(type))
        return check_doomed(tx);
    PyObject *method = _PyType_LookupRef(type, name);
    bool of_class = method != NULL && (PyFunction_Check(method) || Py_IS_TYPE(method, &PyMethodDescr_Type));
    bool known = of_class || (method == NULL && type->tp_getattro == PyObject_GenericGetAttr);
    if (known && type->tp_getattro != PyObject_GenericGetAttr)
        known = asks_only_for_what_is_missing(type);
    if (known && open_attr_read(tx, obj, name) < 0) {
        Py_XDECREF(method);
        return -1;
    }
    if (known) {
        PyObject *found = _PyObject_GenericGetAttrWithDict(obj, name, NULL, 1);
        PyErr_Clear();
        known = found == NULL || (of_class && PyMethod_Check(found) && PyMethod_GET_FUNCTION(found) == method)
            || (of_class && !PyFunction_Check(method) && PyCFunction_Check(found) && PyCFunction_GET_SELF(found) == obj);
        Py_XDECREF(found);
    }
    Py_XDECREF(method);
    return known ? check_doomed(tx) : exclusive_for(tx, "what is called by its name, an attribute of", obj);
}

int
iterate_instance(Tx *tx, PyObject *obj, int Py_UNUSED(depth))
{
    static PyObject *iter_name;
    if (iter_name == NULL)
        iter_name = PyUnicode_InternFromString("__iter__");
    return open_through_method(tx, obj, iter_name);
}

/* What the header of an instance says of its attributes is in namespaces.c. */
const struct Kind instance_kind = {
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .iterate = iterate_instance,
    .visit = visit_attributes,
    .may_be_biased = instance_may_be_biased,
};
