/* What the interpreter calls by itself, from C: the special methods of classes, and the functions of properties.
 *
 * As a rule these are functions in Python, which have barriers of their own, so barriers for an instance of a class made in Python
 * leave its operators, its items and so on to them.  But a class may have anything that can be called under such a name:
 *
 *      class Config(dict): __getattr__ = dict.get
 *      class Registry: __getitem__ = _things.__getitem__
 *      size = property(operator.attrgetter("_size"))
 *      @property with @functools.lru_cache below it
 *
 * The interpreter calls that from C, and nothing announces it.  So
 *
 *      a property          calls what is no function in Python as transactional code would, and so does
 *      an lru_cache        that C code calls (lru_cache.c), and
 *      a __getattr__,      which proxies and dicts with attributes have;
 *      a descriptor        whose methods are in C calls these as transactional code would; one
 *                          in Python (werkzeug's proxies have one for each special method) gives a guard around what it is to be called,
 *                          also after its class has got another __get__;
 *      a method in C       that is bound to an object already lies there with a guard around it;
 *      any other           makes the class one of which nothing is known: who uses an instance runs alone.
 */
#include "special.h"

#include "../../interpreter/entry.h"
#include "../../interpreter/loop.h"
#include "../calls/callbacks.h"
#include "access.h"
#include "class.h"
#include "lru_cache.h"

#include "internal/pycore_descrobject.h"

/* ---- Properties -------------------------------------------------------------------------------------------------------- */

static descrgetfunc plain_property_get;
static descrsetfunc plain_property_set;

/* Does C code here call that, in an attempt that may be rolled back, and nothing announces it? */
static bool
goes_past_barriers(PyObject *callable)
{
    Tx *tx = stm_open;
    return tx != NULL && callable != NULL && callable != Py_None && !PyFunction_Check(callable) && !in_trusted_code(tx);
}

static PyObject *
property_get(PyObject *self, PyObject *obj, PyObject *type)
{
    PyObject *get = ((propertyobject *)self)->prop_get;
    if (LIKELY(obj == NULL || obj == Py_None || !goes_past_barriers(get)))
        return plain_property_get(self, obj, type);
    return stm_call(get, &obj, 1, NULL);
}

static int
property_set(PyObject *self, PyObject *obj, PyObject *value)
{
    PyObject *change = value == NULL ? ((propertyobject *)self)->prop_del : ((propertyobject *)self)->prop_set;
    if (LIKELY(!goes_past_barriers(change)))
        return plain_property_set(self, obj, value);
    PyObject *args[] = {obj, value}, *result = stm_call(change, args, value == NULL ? 1 : 2, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Derived classes that were there before have the original ones. */
static void
watch_property(PyTypeObject *type)
{
    if (type->tp_descr_get == plain_property_get)
        type->tp_descr_get = property_get;
    if (type->tp_descr_set == plain_property_set)
        type->tp_descr_set = property_set;
}

/* ---- __getattr__ ------------------------------------------------------------------------------------------------------- */

static getattrofunc hook_of_python;     /* what calls a __getattr__ */
static PyObject *getattr_name, *getattribute_name, *setattr_name, *delattr_name, *call_name, *get_name, *set_name,
    *delete_name;

/* Call the method as the interpreter would, but as transactional code does. */
static PyObject *
call_method_of(PyObject *method, PyObject *const *args, Py_ssize_t n)
{
    if (Py_TYPE(method)->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR)
        return stm_call(method, args, n, NULL);
    descrgetfunc get = Py_TYPE(method)->tp_descr_get;
    PyObject *bound = get != NULL ? get(method, args[0], (PyObject *)Py_TYPE(args[0])) : Py_NewRef(method);
    PyObject *result = bound == NULL ? NULL : stm_call(bound, args + 1, n - 1, NULL);
    Py_XDECREF(bound);
    return result;
}

/* Call what a class has under the name of a special method. */
static PyObject *
call_special(PyObject *method, PyObject *self, PyObject *arg)
{
    PyObject *args[] = {self, arg};
    return call_method_of(method, args, 2);
}

/* Has the class a __getattr__ at most? */
bool
asks_only_for_what_is_missing(PyTypeObject *type)
{
    PyObject *found = _PyType_LookupRef(type, getattribute_name);
    bool plain = found != NULL && Py_IS_TYPE(found, &PyWrapperDescr_Type)
        && ((PyWrapperDescrObject *)found)->d_wrapped == (void *)PyObject_GenericGetAttr;
    Py_XDECREF(found);
    return plain;
}

/* In the place of the interpreter's own, where a class has a __getattr__ that is no function in Python. */
static PyObject *
getattr_hook(PyObject *self, PyObject *name)
{
    Tx *tx = stm_open;
    PyTypeObject *type = Py_TYPE(self);
    if (tx == NULL || in_trusted_code(tx))
        return hook_of_python(self, name);
    if (!asks_only_for_what_is_missing(type))
        return exclusive_for(tx, "__getattr__ in C of", self) < 0 ? NULL : hook_of_python(self, name);
    PyObject *value = _PyObject_GenericGetAttrWithDict(self, name, NULL, true);
    if (value != NULL || PyErr_Occurred())
        return value;
    PyObject *method = _PyType_LookupRef(type, getattr_name);
    if (method == NULL)
        return PyObject_GenericGetAttr(self, name);     /* it has been taken from the class */
    value = call_special(method, self, name);
    Py_DECREF(method);
    return value;
}

/* ---- Descriptors in Python --------------------------------------------------------------------------------------------- */

static descrgetfunc get_of_python;      /* what calls a __get__ */

/* Those that lie under special names, which live for ever; the others of their classes give what they give. */
#define DESCRIPTORS 4096
static PyObject *_Atomic descriptors[DESCRIPTORS];      /* entries are added, under the latch, until half of the places are taken */
static _Atomic int n_descriptors;
static Latch adding;

/* Where it is, or would be. */
static PyObject *_Atomic *
descriptor_place(PyObject *descriptor)
{
    size_t i = ((uintptr_t)descriptor >> 4) * 0x9E3779B97F4A7C15ull >> 52;
    while (descriptors[i] != NULL && descriptors[i] != descriptor)
        i = (i + 1) % DESCRIPTORS;
    return &descriptors[i];
}

/* If there are too many to tell them from others, all do. */
static bool
is_guarding(PyObject *descriptor)
{
    return n_descriptors == DESCRIPTORS / 2 || *descriptor_place(descriptor) != NULL;
}

static bool is_special(PyObject *name);

/* One of those by which a class makes and changes attributes? */
static bool
is_hook(PyObject *name)
{
    return name == getattr_name || name == setattr_name || name == delattr_name;
}

/* What the type has under that name, if it is no function in Python, so that C code would call it past the barriers; a new reference, or NULL. */
static PyObject *
method_in_c(PyTypeObject *type, PyObject *name)
{
    PyObject *method = _PyType_LookupRef(type, name);
    if (method != NULL && PyFunction_Check(method))
        Py_CLEAR(method);
    PyErr_Clear();
    return method;
}

static bool
has_method_in_c(PyTypeObject *type, PyObject *name)
{
    PyObject *method = method_in_c(type, name);
    Py_XDECREF(method);
    return method != NULL;
}

/* Has what C code calls barriers of its own? */
static bool
ends_in_a_function(PyObject *callable)
{
    if (PyMethod_Check(callable))
        callable = PyMethod_GET_FUNCTION(callable);
    return PyFunction_Check(callable) || PyType_Check(callable)
        || (is_python_class(Py_TYPE(callable)) && !has_method_in_c(Py_TYPE(callable), call_name));
}

/* A guard around what has been given for the object, if C code calls it. */
static PyObject *
give_guarded(PyObject *value, PyObject *obj)
{
    Tx *tx = stm_open;
    if (value == NULL || obj == NULL || tx == NULL || !PyCallable_Check(value) || ends_in_a_function(value) || in_trusted_code(tx))
        return value;
    PyObject *asked_for = attribute_asked_for(tx->tstate);
    if (asked_for != NULL && (is_special(asked_for) || is_hook(asked_for)))
        return value;   /* the program sees it */
    Py_SETREF(value, guarded_new(value, USE_NOTHING));
    return value;
}

static PyObject *
get_guarded(PyObject *self, PyObject *obj, PyObject *type)
{
    PyObject *value = get_of_python(self, obj, type);
    return stm_open != NULL && is_guarding(self) ? give_guarded(value, obj) : value;
}

/* In the place of what calls a __get__ that is in C, or that its class has got since.  Where its instances lie nobody knows: they all
 * give a guard to the interpreter, which asks for no attribute. */
static PyObject *
get_changed(PyObject *self, PyObject *obj, PyObject *type)
{
    Tx *tx = stm_open;
    PyObject *get = tx != NULL && !in_trusted_code(tx) ? method_in_c(Py_TYPE(self), get_name) : NULL, *value;
    if (get == NULL)
        value = get_of_python(self, obj, type);
    else {
        PyObject *args[] = {self, obj != NULL ? obj : Py_None, type != NULL ? type : Py_None};
        value = stm_call(get, args, 3, NULL);       /* the interpreter does not bind it, either */
        Py_DECREF(get);
    }
    return tx != NULL && (attribute_asked_for(tx->tstate) == NULL || is_guarding(self)) ? give_guarded(value, obj) : value;
}

static descrsetfunc set_of_python;      /* what calls a __set__ or __delete__ */

static int
set_changed(PyObject *self, PyObject *obj, PyObject *value)
{
    Tx *tx = stm_open;
    PyObject *name = value != NULL ? set_name : delete_name;
    PyObject *method = tx != NULL && !in_trusted_code(tx) ? method_in_c(Py_TYPE(self), name) : NULL;
    if (method == NULL)
        return set_of_python(self, obj, value);
    PyObject *args[] = {self, obj, value}, *result = call_method_of(method, args, value != NULL ? 3 : 2);
    Py_DECREF(method);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* A descriptor lies in a class: C code calls its methods. */
static void
watch_descriptor(PyTypeObject *type)
{
    if (type->tp_descr_get == get_of_python && has_method_in_c(type, get_name))
        type->tp_descr_get = get_changed;
    if (type->tp_descr_set == set_of_python && (has_method_in_c(type, set_name) || has_method_in_c(type, delete_name)))
        type->tp_descr_set = set_changed;
}

static setattrofunc set_attribute;      /* the interpreter's, of classes */

static void
note_changed(PyTypeObject *type)
{
    if (type->tp_descr_get == get_of_python)
        type->tp_descr_get = get_changed;
    if (type->tp_descr_set == set_of_python)
        type->tp_descr_set = set_changed;
}

/* Assigning to a class makes the interpreter choose again what calls its methods. */
static int
set_attribute_of_class(PyObject *cls, PyObject *name, PyObject *value)
{
    int r = set_attribute(cls, name, value);
    if (r == 0 && PyUnicode_Check(name) && (PyUnicode_Equal(name, get_name) || PyUnicode_Equal(name, set_name) || PyUnicode_Equal(name, delete_name)))
        r = each_derived((PyTypeObject *)cls, note_changed);
    return r;
}

static void
stand_in(PyTypeObject *metatype)
{
    if (metatype->tp_setattro == set_attribute)
        metatype->tp_setattro = set_attribute_of_class;
}

static int
watch_assignments(void)
{
    static const char *const names[] = {"__setattr__", "__delattr__"};
    set_attribute = PyType_Type.tp_setattro;
    PyObject *dict = PyType_GetDict(&PyType_Type);
    for (size_t i = 0; dict != NULL && i < Py_ARRAY_LENGTH(names); i++) {
        PyWrapperDescrObject *method = (PyWrapperDescrObject *)PyDict_GetItemString(dict, names[i]);
        if (method != NULL && Py_IS_TYPE((PyObject *)method, &PyWrapperDescr_Type) && method->d_wrapped == (void *)set_attribute)
            method->d_wrapped = (void *)set_attribute_of_class;
    }
    Py_XDECREF(dict);
    return each_derived(&PyType_Type, stand_in);
}

static void
let_guard(PyObject *descriptor)
{
    latch_take(&adding);
    PyObject *_Atomic *place = descriptor_place(descriptor);
    if (*place == NULL && n_descriptors < DESCRIPTORS / 2) {
        *place = Py_NewRef(descriptor);
        n_descriptors++;
    }
    latch_give(&adding);
    if (Py_TYPE(descriptor)->tp_descr_get == get_of_python)
        Py_TYPE(descriptor)->tp_descr_get = get_guarded;
}

/* ---- Other special methods --------------------------------------------------------------------------------------------- */

/* By their order.  Not those that are asked for by instructions, which have barriers (__enter__), and those that are cared for
 * elsewhere: assignment_hook(), and above. */
static const char *const special_names[] = {
    "__abs__", "__add__", "__aiter__", "__and__", "__anext__", "__await__", "__bool__", "__buffer__", "__bytes__", "__call__",
    "__ceil__", "__class_getitem__", "__complex__", "__contains__", "__del__", "__delete__", "__delitem__", "__dir__", "__divmod__",
    "__eq__", "__float__", "__floor__", "__floordiv__", "__format__", "__fspath__", "__ge__", "__get__", "__getattribute__",
    "__getitem__", "__gt__", "__hash__", "__iadd__", "__iand__", "__ifloordiv__", "__ilshift__", "__imatmul__", "__imod__", "__imul__",
    "__index__", "__init__", "__init_subclass__", "__instancecheck__", "__int__", "__invert__", "__ior__", "__ipow__", "__irshift__",
    "__isub__", "__iter__", "__itruediv__", "__ixor__", "__le__", "__len__", "__length_hint__", "__lshift__", "__lt__", "__matmul__",
    "__missing__", "__mod__", "__mro_entries__", "__mul__", "__ne__", "__neg__", "__new__", "__next__", "__or__", "__pos__", "__pow__",
    "__prepare__", "__radd__", "__rand__", "__rdivmod__", "__release_buffer__", "__repr__", "__reversed__", "__rfloordiv__",
    "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__", "__ror__", "__round__", "__rpow__", "__rrshift__", "__rshift__", "__rsub__",
    "__rtruediv__", "__rxor__", "__set__", "__set_name__", "__setitem__", "__sizeof__", "__str__", "__sub__", "__subclasscheck__",
    "__truediv__", "__trunc__", "__xor__",
};

static int
compare_names(const void *name, const void *entry)
{
    return strcmp(name, *(const char *const *)entry);
}

static bool
is_special(PyObject *name)
{
    if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_ASCII(name))
        return false;
    const char *text = PyUnicode_DATA(name);
    return text[0] == '_' && text[1] == '_'
        && bsearch(text, special_names, Py_ARRAY_LENGTH(special_names), sizeof(char *), compare_names) != NULL;
}

static bool
is_one_of(PyObject *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (PyUnicode_EqualToUTF8(name, *names))
            return true;
    }
    return false;
}

/* Does a method of that C type look at nothing that others can change, or do what the class does without it? */
static bool
is_harmless(PyTypeObject *type, PyObject *name, PyObject *descr)
{
    static const char *const changing[] = {"__setattr__", "__delattr__", "__getattribute__", "__init__", NULL};
    static const char *const of_one_slot[] = {
        "__repr__", "__str__", "__hash__", "__len__", "__iter__", "__next__", "__init__", "__getattribute__", "__format__", "__sizeof__",
        "__reversed__", "__dir__", "__instancecheck__", "__subclasscheck__", NULL,
    };
    PyTypeObject *owner = PyDescr_TYPE(descr);
    bool same = PyUnicode_Equal(PyDescr_NAME(descr), name);
    if (same && Py_IS_TYPE(descr, &PyWrapperDescr_Type) && PyType_IsSubtype(type, owner)) {
        PyWrapperDescrObject *d = (PyWrapperDescrObject *)descr;    /* the class has the base's own function in that place, perhaps */
        if (*(void **)((char *)type + d->d_base->offset) == d->d_wrapped)
            return true;
    }
    if (owner == &PyBaseObject_Type)
        return same || !is_one_of(PyDescr_NAME(descr), changing);
    if (!is_python_class(owner) && classify(owner) == &inert_kind)
        return true;
    return same && PyType_IsSubtype(type, owner) && is_one_of(name, of_one_slot);
}

/* How CPython's classmethod and staticmethod begin. */
typedef struct { PyObject_HEAD PyObject *callable; } Wrapper;

/* A function in C that is bound already; but for object.__new__ and the like, which are the C base's, and NewType's, which does
 * nothing. */
static bool
is_bound_in_c(PyObject *value)
{
    if (!PyCFunction_Check(value))
        return Py_IS_TYPE(value, stm_method_wrapper_type);
    const char *called = ((PyCFunctionObject *)value)->m_ml->ml_name;
    return strcmp(called, "__new__") != 0 && strcmp(called, "_idfunc") != 0;
}

/* May the interpreter call what a class has under that name, without a barrier?  Not what is only bound. */
static bool
needs_no_barrier(PyTypeObject *type, PyObject *name, PyObject *value)
{
    PyTypeObject *t = Py_TYPE(value);
    if (PyFunction_Check(value) || value == Py_None || t == &Guarded_Type || is_watched_lru(t))
        return true;
    if (PyCFunction_Check(value) || t == stm_method_wrapper_type)
        return !is_bound_in_c(value);
    if (PyObject_TypeCheck(value, &PyClassMethod_Type) || PyObject_TypeCheck(value, &PyStaticMethod_Type)) {
        PyObject *inner = ((Wrapper *)value)->callable;
        return inner == NULL || needs_no_barrier(type, name, inner);
    }
    if (t == &PyWrapperDescr_Type || t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type)
        return is_harmless(type, name, value);
    if (PyMethod_Check(value))
        return needs_no_barrier(type, name, PyMethod_GET_FUNCTION(value));
    if (PyType_Check(value))            /* what is called to make a TypedDict is dict, and what Class[key] makes a GenericAlias */
        return is_python_class((PyTypeObject *)value) || value == (PyObject *)&PyDict_Type
            || PyUnicode_EqualToUTF8(name, "__class_getitem__");
    return is_python_class(t) || (!PyCallable_Check(value) && t->tp_descr_get == NULL);
}

static bool
look_for_unguarded(PyTypeObject *type)
{
    PyObject *mro = type->tp_mro;
    bool found = false;
    for (Py_ssize_t i = 0; mro != NULL && !found && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *dict = is_python_class(base) ? PyType_GetDict(base) : NULL, *name, *value;
        if (dict == NULL)
            continue;
        Py_BEGIN_CRITICAL_SECTION(dict);
        for (Py_ssize_t at = 0; !found && PyDict_Next(dict, &at, &name, &value);)
            found = !PyFunction_Check(value) && is_special(name) && !is_bound_in_c(value) && !needs_no_barrier(type, name, value);
        Py_END_CRITICAL_SECTION();
        Py_DECREF(dict);
    }
    return found;
}

/* Versions of types for which that has been found out, at the places that they have here, and what. No two types have one version. */
#define SEEN 8192
static _Atomic uint64_t seen[SEEN];

bool
has_unguarded_special_methods(PyTypeObject *type)
{
    if (!is_python_class(type))
        return false;
    if (type->tp_version_tag == 0)
        PyUnstable_Type_AssignVersionTag(type);
    uint64_t version = type->tp_version_tag;
    uint64_t there = atomic_load_explicit(&seen[version % SEEN], memory_order_relaxed);
    if (LIKELY(version != 0 && there >> 1 == version))
        return there & 1;
    bool found = look_for_unguarded(type);
    if (version != 0)
        atomic_store_explicit(&seen[version % SEEN], version << 1 | found, memory_order_relaxed);
    return found;
}

/* ---- Classes that are met ---------------------------------------------------------------------------------------------- */

/* What C code makes of what a special method returns. */
static int
use_of(PyObject *name)
{
    static const char *const tested[] = {
        "__contains__", "__eq__", "__ge__", "__gt__", "__instancecheck__", "__le__", "__lt__", "__ne__", "__subclasscheck__", NULL,
    };
    return is_one_of(name, tested) ? USE_TRUTH : PyUnicode_EqualToUTF8(name, "__iter__") ? USE_ITEMS : USE_NOTHING;
}

/* Put guards around these values of a class, {name: value}. */
static void
guard_values(PyTypeObject *type, PyObject *dict, PyObject *values)
{
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(values, &at, &name, &value);) {
        PyObject *guarded = guarded_new(value, use_of(name));   /* keeps the value, which somebody may be about to call */
        Py_BEGIN_CRITICAL_SECTION(dict);
        PyObject *now = PyDict_GetItemWithError(dict, name);
        if (guarded == NULL || (now == value && PyDict_SetItem(dict, name, guarded) < 0))
            PyErr_Clear();
        Py_END_CRITICAL_SECTION();
        Py_XDECREF(guarded);
    }
    PyType_Modified(type);
}

static bool
is_guarded_by_get(PyObject *value)
{
    descrgetfunc get = Py_TYPE(value)->tp_descr_get;
    return get == get_of_python || get == get_guarded || get == get_changed;
}

bool
gives_guarded(PyObject *descriptor)
{
    descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
    return (get == get_guarded || get == get_changed) && is_guarding(descriptor);
}

void
special_look_into(PyTypeObject *type)
{
    PyObject *dict = is_python_class(type) ? PyType_GetDict(type) : NULL, *bound = NULL, *name, *value;
    if (dict == NULL)
        return;
    Py_BEGIN_CRITICAL_SECTION(dict);
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
        watch_descriptor(Py_TYPE(value));
        if (Py_TYPE(value) != &PyProperty_Type && PyObject_TypeCheck(value, &PyProperty_Type))
            watch_property(Py_TYPE(value));
        else if (is_guarded_by_get(value) && (is_special(name) || is_hook(name)))
            let_guard(value);
        else if (UNLIKELY(is_bound_in_c(value)) && is_special(name) && (bound != NULL || (bound = PyDict_New()) != NULL)
                 && PyDict_SetItem(bound, name, value) < 0)
            PyErr_Clear();
    }
    Py_END_CRITICAL_SECTION();
    if (bound != NULL)
        guard_values(type, dict, bound);
    Py_XDECREF(bound);
    Py_DECREF(dict);
}

void
special_watch(PyTypeObject *type)
{
    if (type->tp_getattro == hook_of_python) {
        PyObject *method = _PyType_LookupRef(type, getattr_name);
        if (method != NULL && !PyFunction_Check(method))
            type->tp_getattro = getattr_hook;
        Py_XDECREF(method);
    }
}

int
special_init(void)
{
    PyObject **names[] = {
        &getattr_name, &getattribute_name, &setattr_name, &delattr_name, &call_name, &get_name, &set_name, &delete_name,
    };
    static const char *const texts[] = {
        "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__call__", "__get__", "__set__", "__delete__",
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    }
    PyObject *probe = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){sOsOsO}", "probe", "__getattr__", Py_None, "__get__", Py_None,
                                            "__set__", Py_None);
    if (probe == NULL)
        return -1;
    hook_of_python = ((PyTypeObject *)probe)->tp_getattro;
    get_of_python = ((PyTypeObject *)probe)->tp_descr_get;
    set_of_python = ((PyTypeObject *)probe)->tp_descr_set;
    Py_DECREF(probe);
    plain_property_get = PyProperty_Type.tp_descr_get;
    plain_property_set = PyProperty_Type.tp_descr_set;
    watch_property(&PyProperty_Type);
    return watch_assignments();
}
