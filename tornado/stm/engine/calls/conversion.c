/* C code that makes data of other data: validators, serializers, encoders (pydantic-core, for one).
 *
 * Such code reads all that can be reached from what it is given, attributes of instances and of their classes too, and makes
 * new objects of that.  It may run in any transaction
 *
 *      if   all that it may read is open before it does: what it is given (open_all_reachable), and what Python functions
 *           that it calls return to it, with what these may have put into the former meanwhile (conversion_received);
 *      and  it calls no C function of which nobody knows what it does: the *converter*, the object that has been
 *           made for the purpose, refers to what it calls, and so do those that the classes of the data name.
 *           A converter never changes, so it is looked through once, with its parts: objects of its own type, and records.
 *
 * An exception that it raises is the attempt's own, and tells of what is open, unless a Python function has raised one of its own, with anything
 * inside: so C code may look into what has been noted there, and not beyond (OPAQUE).
 *
 * Python functions that it calls have barriers of their own.  What it is given under a name may be an instance that it
 * gives the first attributes (`self_instance`): nobody else knows that one, or an exclusive transaction makes the call.
 */
#include "conversion.h"

#include "../objects/access.h"
#include "../objects/attributes.h"
#include "../objects/deep.h"
#include "../objects/exception.h"
#include "../objects/instance.h"
#include "../objects/known.h"
#include "../objects/names.h"
#include "../objects/structure.h"
#include "../thread.h"
#include "callbacks.h"
#include "calls.h"

#include "internal/pycore_unionobject.h"

#define MOST_REACHED 20000      /* objects that one conversion opens one by one: whoever reads more runs alone */
#define MOST_PARTS 1000000      /* of a converter, which is looked through once: a schema of hundreds of models has more than the above */
#define MOST_LOOKED_THROUGH 4096
#define MOST_LEAVES 64
#define MOST_NAMES 16
#define MOST_EXCEPTIONS 1000    /* of one attempt, to whose end they live */

static PyObject *names_in_classes;      /* list that only grows: under these a class has the converters of its instances */
static PyObject *looked_through;        /* converter's address -> (itself, does it call only what is known?, what it reads of its own) */
static PyObject *call_name, *init_name, *new_name, *default_name, *expected_name, *context_name, *abc_name, *name_name,
    *qualname_name;

/* Types without state, whose objects refer to nothing that has any. */
static PyTypeObject *leaves[MOST_LEAVES];
static _Atomic int leaf_count;

typedef struct { PyObject *names[MOST_NAMES]; _Atomic int n; } Names;

static Names unread;    /* slots of instances that converters never read, though they may give new ones a value there */
static Names asked;     /* methods of what they are given that converters call */

int
conversion_init(void)
{
    names_in_classes = PyList_New(0);
    looked_through = PyDict_New();
    call_name = PyUnicode_InternFromString("__call__");
    init_name = PyUnicode_InternFromString("__init__");
    new_name = PyUnicode_InternFromString("__new__");
    default_name = PyUnicode_InternFromString("default");
    expected_name = PyUnicode_InternFromString("expected");
    context_name = PyUnicode_InternFromString("custom_error_context");
    abc_name = PyUnicode_InternFromString("_abc_impl");
    name_name = PyUnicode_InternFromString("__name__");
    qualname_name = PyUnicode_InternFromString("__qualname__");
    return names_in_classes == NULL || looked_through == NULL || call_name == NULL || init_name == NULL || new_name == NULL
        || default_name == NULL || expected_name == NULL || context_name == NULL || abc_name == NULL
        || name_name == NULL || qualname_name == NULL ? -1 : 0;
}

int
conversion_named(PyObject *name)
{
    return PyList_Append(names_in_classes, name);
}

int
conversion_leaf(PyTypeObject *type)
{
    int n = leaf_count;
    if (n == MOST_LEAVES) {
        PyErr_SetString(PyExc_RuntimeError, "there are too many types of leaves");
        return -1;
    }
    leaves[n] = (PyTypeObject *)Py_NewRef(type);
    leaf_count = n + 1;
    return 0;
}

static int
names_add(Names *all, PyObject *name)
{
    int n = all->n;
    if (n == MOST_NAMES) {
        PyErr_Format(PyExc_RuntimeError, "there are too many names of %s", all == &unread ? "slots that are not read" : "methods that are called");
        return -1;
    }
    all->names[n] = Py_NewRef(name);
    all->n = n + 1;
    return 0;
}

int
conversion_unread(PyObject *name)
{
    return names_add(&unread, name);
}

int
conversion_asks(PyObject *name)
{
    return names_add(&asked, name);
}

void
forget_converters(void)
{
    PyDict_Clear(looked_through);
}

static bool
is_leaf(PyObject *obj)
{
    if (is_constant(obj))
        return true;
    for (int i = 0; i < leaf_count; i++) {
        if (Py_IS_TYPE(obj, leaves[i]))
            return true;
    }
    return false;
}

static bool
is_among(const Names *all, PyObject *name)
{
    for (int i = 0; i < all->n; i++) {
        if (name == all->names[i] || (PyUnicode_Check(name) && PyUnicode_Equal(name, all->names[i])))
            return true;
    }
    return false;
}

/* ---- Objects, each once ----------------------------------------------------------------- */

typedef struct { PyObject *seen, *todo; } Reached;

static int
reached_begin(Reached *r)
{
    r->seen = PySet_New(NULL);
    r->todo = PyList_New(0);
    return r->seen == NULL || r->todo == NULL ? -1 : 0;
}

static void
reached_end(Reached *r)
{
    Py_XDECREF(r->seen);
    Py_XDECREF(r->todo);
}

/* 1 if it is new. */
static int
see(Reached *r, PyObject *obj)
{
    PyObject *id = PyLong_FromVoidPtr(obj);
    int seen = id == NULL ? -1 : PySet_Contains(r->seen, id);
    if (seen == 0 && PySet_Add(r->seen, id) < 0)
        seen = -1;
    Py_XDECREF(id);
    return seen < 0 ? -1 : !seen;
}

static int
reach(Reached *r, PyObject *obj)
{
    if (is_leaf(obj))
        return 0;
    int is_new = see(r, obj);
    return is_new <= 0 ? is_new : PyList_Append(r->todo, obj);
}

static int
reach_referent(PyObject *obj, void *arg)
{
    return obj == NULL ? 0 : reach(arg, obj);
}

static int
visit_reached(Tx *Py_UNUSED(tx), PyObject *inside, void *arg)
{
    return reach(arg, inside);
}

/* ---- What a converter calls ------------------------------------------------------------- */

/* Is this, what a class has under a name of its construction, Python code or that of a C type which is known? */
static bool
is_known_step(PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_LookupRef(type, name);
    if (found != NULL && Py_IS_TYPE(found, &PyStaticMethod_Type))
        Py_SETREF(found, PyObject_GetAttr((PyObject *)type, name));
    bool known = found != NULL && (PyFunction_Check(found) || found == (PyObject *)&PyDict_Type);   /* that is how TypedDicts are made */
    if (found != NULL && Py_IS_TYPE(found, &PyWrapperDescr_Type))
        known = classify(PyDescr_TYPE(found)) != &unknown_kind;
    else if (found != NULL && PyCFunction_Check(found) && PyCFunction_GET_SELF(found) != NULL && PyType_Check(PyCFunction_GET_SELF(found)))
        known = classify((PyTypeObject *)PyCFunction_GET_SELF(found)) != &unknown_kind;
    Py_XDECREF(found);
    PyErr_Clear();
    return known;
}

static int is_known_to_read(Tx *tx, PyObject *callable);

static int
gather_part(PyObject *obj, void *parts)
{
    return obj == NULL || PyDict_Check(obj) || PyType_Check(obj) ? 0 : PyList_Append(parts, obj);
}

/* What a class refers to besides its bases and its dict, or what a record refers to. */
static PyObject *
parts_of(PyObject *obj)
{
    PyObject *parts = PyList_New(0);
    if (parts != NULL && Py_TYPE(obj)->tp_traverse(obj, gather_part, parts) != 0)
        Py_CLEAR(parts);
    return parts;
}

/* May it be called, or, where that makes a default, what it refers to? */
static int
is_known_part(Tx *tx, PyObject *part, bool is_default)
{
    Kind kind = kind_of(tx, part);
    if (!is_default)
        return PyCallable_Check(part) ? is_known_to_read(tx, part) : 1;
    if (kind != &record_kind || is_python_class(Py_TYPE(part)))
        return kind != &unknown_kind;
    PyObject *factory = PyObject_GetAttrString(part, "factory");
    if (factory == NULL)
        PyErr_Clear();      /* a default itself */
    int known = factory == NULL ? 1 : is_known_to_read(tx, factory);
    Py_XDECREF(factory);
    return known;
}

/* Of a class whose instances are made in C: it calls what makes defaults, and what it has noted of the class for the end. */
static int
calls_known_parts(Tx *tx, PyTypeObject *type)
{
    static PyObject *post_name;
    if (post_name == NULL)
        post_name = PyUnicode_InternFromString("__post_init__");
    PyObject *post = post_name == NULL ? NULL : _PyType_LookupRef(type, post_name), *parts = parts_of((PyObject *)type);
    int known = post_name == NULL || parts == NULL ? -1 : (post == NULL || PyFunction_Check(post)) && Py_TYPE(type)->tp_call == PyVectorcall_Call;
    for (Py_ssize_t i = 0; known == 1 && i < PyList_GET_SIZE(parts); i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        known = is_known_part(tx, part, false);
        for (Py_ssize_t j = 0; known == 1 && PyTuple_Check(part) && j < PyTuple_GET_SIZE(part); j++) {
            PyObject *item = PyTuple_GET_ITEM(part, j);
            known = PyType_Check(item) ? 1 : is_known_part(tx, item, true);
        }
    }
    Py_XDECREF(parts);
    Py_XDECREF(post);
    return known;
}

/* -1 to abort. */
static int
makes_what_is_known(Tx *tx, PyTypeObject *type)
{
    if (classify(type) == &fields_kind)
        return calls_known_parts(tx, type);
    if (!is_python_class(type)) {
        int effect = effect_of_construction(type);
        return type == &PyDict_Type || effect == EFFECT_PURE || effect == EFFECT_READS || effect == EFFECT_DEEP || effect == EFFECT_PRINTS
            || effect == EFFECT_ITERATES;
    }
    PyTypeObject *meta = Py_TYPE(type);
    return classify(type) != &unknown_kind && is_known_step(type, init_name) && is_known_step(type, new_name)
        && (meta->tp_call == PyType_Type.tp_call || is_known_step(meta, call_name));
}

/* The same object, if it is a functools.partial and of no class derived from that; else NULL. */
static Partial *
as_partial(PyObject *obj)
{
    return !is_python_class(Py_TYPE(obj)) && effect_of_instances(Py_TYPE(obj)) == EFFECT_PARTIAL ? (Partial *)obj : NULL;
}

/* The dict, of no class derived from that, whose items the callable looks up: texts.__getitem__; else NULL. */
static PyObject *
looked_up_in(PyObject *callable)
{
    PyObject *self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : NULL;
    return self != NULL && PyDict_CheckExact(self) && strcmp(((PyCFunctionObject *)callable)->m_ml->ml_name, "__getitem__") == 0 ? self : NULL;
}

/* May C code call this, with what has been opened or is its own? -1 to abort. */
static int
is_known_to_read(Tx *tx, PyObject *callable)
{
    for (Partial *p; (p = as_partial(callable)) != NULL;)
        callable = p->function;
    if (PyMethod_Check(callable))
        callable = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(callable))
        return 1;
    if (PyType_Check(callable))
        return makes_what_is_known(tx, (PyTypeObject *)callable);
    if (is_python_class(Py_TYPE(callable))) {
        PyObject *call = _PyType_LookupRef(Py_TYPE(callable), call_name);
        bool python = call != NULL && PyFunction_Check(call);
        Py_XDECREF(call);
        return python;
    }
    bool bound = PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) != NULL && !PyModule_Check(PyCFunction_GET_SELF(callable));
    if (bound || !(PyCFunction_Check(callable) || Py_IS_TYPE(callable, &PyMethodDescr_Type)))
        return 0;
    int effect = effect_as_callback(tx, callable);
    return effect < 0 ? -1 : effect == EFFECT_PURE || effect == EFFECT_READS || effect == EFFECT_DEEP;
}

/* Is it under this key what a converter compares with data, gives as data, or makes the texts of errors of? */
static bool
is_key_of_data(PyObject *key)
{
    return key != NULL && PyUnicode_Check(key)
        && (PyUnicode_Equal(key, default_name) || PyUnicode_Equal(key, expected_name) || PyUnicode_Equal(key, context_name));
}

/* Of a dict, the values; those that the converter reads as data go to `own`. 0 if there is something that
 * is not known. */
static int
reach_items(PyObject *container, Reached *r, PyObject *own)
{
    PyObject *keys = PyDict_CheckExact(container) ? PyDict_Keys(container) : NULL;
    PyObject *items = keys != NULL ? PyDict_Values(container) : PySequence_List(container);
    int known = items == NULL ? -1 : 1;
    for (Py_ssize_t i = 0; known > 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        PyObject *key = keys != NULL && i < PyList_GET_SIZE(keys) ? PyList_GET_ITEM(keys, i) : NULL;
        bool data = is_key_of_data(key);
        if (is_dunder(item) || (key != NULL && is_among(&unread, key)))
            known = 0;      /* the alias of an attribute, or its name, perhaps */
        else if ((data && !is_leaf(item) && PyList_Append(own, item) < 0) || reach(r, item) < 0)
            known = -1;
    }
    Py_XDECREF(keys);
    Py_XDECREF(items);
    return known;
}

/* A property whose functions are Python's, or something that is none. */
static bool
is_known_property(PyObject *obj)
{
    if (!PyObject_TypeCheck(obj, &PyProperty_Type))
        return true;
    PyObject *get = PyObject_GetAttrString(obj, "fget");
    bool known = get != NULL && (get == Py_None || PyFunction_Check(get));
    Py_XDECREF(get);
    PyErr_Clear();
    return known;
}

/* Does it call only what is known?  What else it reads goes to `own`, if the caller opens that each time. */
static int
look_through(Tx *tx, PyObject *converter, PyObject *own, bool own_is_opened)
{
    Reached reached;
    int known = reached_begin(&reached) < 0 || reach(&reached, converter) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; known == 1 && i < PyList_GET_SIZE(reached.todo); i++) {
        PyObject *next = PyList_GET_ITEM(reached.todo, i);
        PyTypeObject *type = Py_TYPE(next);
        if (i >= MOST_PARTS || !is_known_property(next))
            known = 0;
        else if (next == (PyObject *)Py_TYPE(converter))
            continue;
        else if (next != converter && PyCallable_Check(next) && type != &Py_GenericAliasType) {
            PyObject *table = own_is_opened ? looked_up_in(next) : NULL, *read = table != NULL ? table : as_partial(next) != NULL ? next : NULL;
            known = table != NULL ? 1 : is_known_to_read(tx, next);
            if (known > 0 && read != NULL && PyList_Append(own, read) < 0)
                known = -1;
        }
        else if (type == Py_TYPE(converter) || type == &Py_GenericAliasType || (kind_of(tx, next) == &record_kind && type != &_PyUnion_Type))
            known = type->tp_traverse == NULL ? 0 : type->tp_traverse(next, reach_referent, &reached) == 0 ? 1 : -1;
        else if (PyDict_CheckExact(next) || PyList_CheckExact(next) || PyTuple_CheckExact(next) || PyAnySet_CheckExact(next))
            known = reach_items(next, &reached, own);
        else if (kind_of(tx, next) == &unknown_kind)
            known = 0;      /* a part of its own, perhaps, that refers to what it calls */
    }
    reached_end(&reached);
    return known;
}

int
calls_only_known(Tx *tx, PyObject *obj)
{
    PyObject *own = PyList_New(0);
    int known = own == NULL ? -1 : look_through(tx, obj, own, false);
    Py_XDECREF(own);
    return known;
}

int
visit_errors(Tx *tx, PyObject *exception, Visit visit, void *arg)
{
    static PyObject *errors_name, *data_names[2];
    if (!is_own_exception(tx, exception))
        return exclusive_for(tx, "a look into", exception);
    if (errors_name == NULL) {
        data_names[0] = PyUnicode_InternFromString("input");
        data_names[1] = PyUnicode_InternFromString("ctx");
        errors_name = PyUnicode_InternFromString("errors");
    }
    PyObject *errors = errors_name == NULL ? NULL : PyObject_CallMethodNoArgs(exception, errors_name);
    int r = errors == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(errors); i++) {
        for (int j = 0; r == 0 && j < 2; j++) {
            PyObject *data = PyDict_GetItemWithError(PyList_GET_ITEM(errors, i), data_names[j]);     /* the dict is new */
            if (data != NULL && !is_leaf(data))
                r = visit(tx, data, arg);
        }
    }
    Py_XDECREF(errors);
    return r;
}

/* What the converter reads of its own is to be reached, too: also an exception that it has made can be converted. */
static int
check_converter(Tx *tx, PyObject *converter, Reached *reached)
{
    if (PyExceptionInstance_Check(converter))
        return visit_errors(tx, converter, visit_reached, reached);
    if (is_leaf(converter))     /* it refers to nothing that it could call */
        return 0;
    PyObject *id = PyLong_FromVoidPtr(converter), *answer = NULL;
    if (id == NULL || PyDict_GetItemRef(looked_through, id, &answer) < 0) {
        Py_XDECREF(id);
        return -1;
    }
    if (answer == NULL) {
        PyObject *own = PyList_New(0);
        int known = own == NULL ? -1 : PyType_Check(converter) ? makes_what_is_known(tx, (PyTypeObject *)converter)
            : look_through(tx, converter, own, true);
        if (known >= 0)
            answer = PyTuple_Pack(3, converter, known ? Py_True : Py_False, own);
        Py_XDECREF(own);
        bool lasts = kind_of(tx, converter) != &opaque_kind;    /* it is not made for one transaction */
        if (answer != NULL && lasts && PyDict_GET_SIZE(looked_through) < MOST_LOOKED_THROUGH
            && PyDict_SetItem(looked_through, id, answer) < 0)
            Py_CLEAR(answer);
    }
    Py_DECREF(id);
    int r = answer == NULL ? -1 : 0;
    if (r == 0 && PyTuple_GET_ITEM(answer, 1) != Py_True)
        r = exclusive_for(tx, "calls of unknown code by", converter);
    PyObject *own = answer != NULL ? PyTuple_GET_ITEM(answer, 2) : NULL;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(own); i++)
        r = reach(reached, PyList_GET_ITEM(own, i));
    Py_XDECREF(answer);
    return r;
}

/* ---- What it is given ------------------------------------------------------------------- */

/* What an instance has under this name: does the converter call that, and nobody knows what it does? */
static int
check_asked(Tx *tx, PyObject *name, PyObject *value)
{
    if (!is_among(&asked, name))
        return 0;
    int known = PyCallable_Check(value) ? is_known_to_read(tx, value) : 1;
    return known < 0 ? -1 : known > 0 ? 0 : exclusive_for(tx, "call of", value);
}

/* The methods of a class in Python that the converter calls: are they Python's? */
static int
check_asked_of_class(Tx *tx, PyTypeObject *type)
{
    for (int i = 0; i < asked.n; i++) {
        PyObject *found = function_of_class(type, asked.names[i]);
        if (found == NULL) {
            if (PyErr_Occurred())
                return -1;
            continue;
        }
        /* A slot's value is looked at where the instance is; what a descriptor in Python gives, where it gives that. */
        bool known = PyFunction_Check(found) || Py_IS_TYPE(found, &PyMemberDescr_Type) || is_python_class(Py_TYPE(found))
            || (PyObject_TypeCheck(found, &PyProperty_Type) && is_known_property(found));
        bool may_be = Py_TYPE(found)->tp_descr_get == NULL || Py_IS_TYPE(found, &PyMethodDescr_Type);      /* dict.items, for one */
        int r = known ? 0 : may_be ? check_asked(tx, asked.names[i], found) : exclusive_for(tx, "call of", found);
        Py_DECREF(found);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* Attributes of the instance that have been opened. */
static int
reach_attributes(Tx *tx, PyObject *obj, Reached *r)
{
    PyObject *dict = can_have_dict(Py_TYPE(obj)) ? own_dict(obj) : NULL, *name, *value;
    Py_ssize_t pos = 0;
    int ok = 0;
    while (dict != NULL && ok == 0 && PyDict_Next(dict, &pos, &name, &value))
        ok = check_asked(tx, name, value) < 0 ? -1 : reach(r, value);
    Py_XDECREF(dict);
    return ok;
}

/* The elements of a set that has been opened: nothing else opens those, for in C they are only compared, by methods of their own. */
static int
reach_elements(PyObject *set, Reached *r)
{
    PyObject *elements = c_items(set);
    int ok = elements == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; ok == 0 && i < PyList_GET_SIZE(elements); i++)
        ok = reach(r, PyList_GET_ITEM(elements, i));
    Py_XDECREF(elements);
    return ok;
}

/* What its class has under names of data, and the slots of the instance. */
static int
reach_by_class(Tx *tx, PyObject *obj, PyTypeObject *base, bool is_new, Reached *r)
{
    PyObject *members = PyType_GetDict(base), *name, *member;
    Py_ssize_t pos = 0;
    int ok = members == NULL ? -1 : 0;
    while (ok == 0 && PyDict_Next(members, &pos, &name, &member)) {
        if (Py_IS_TYPE(member, &PyMemberDescr_Type)) {
            if (is_among(&unread, name))
                continue;
            PyObject *value = PyMemberDescr_Type.tp_descr_get(member, obj, (PyObject *)Py_TYPE(obj));
            if (value == NULL)
                PyErr_Clear();      /* an empty slot */
            else
                ok = check_asked(tx, name, value) < 0 ? -1 : reach(r, value);
            Py_XDECREF(value);
        }
        else if (!is_new || is_dunder(name) || name == abc_name)
            continue;
        else if (!is_known_property(member))
            ok = exclusive_for(tx, "a property in C of", (PyObject *)base);
        else if (Py_TYPE(member)->tp_descr_get == NULL && !PyType_Check(member))
            ok = reach(r, member);
    }
    Py_XDECREF(members);
    return ok;
}

/* What the class says that converts its instances, and its attributes. */
static int
reach_class_of(Tx *tx, PyObject *obj, Reached *r)
{
    PyTypeObject *type = Py_TYPE(obj);
    int is_new = see(r, (PyObject *)type);
    if (is_new < 0)
        return -1;
    for (Py_ssize_t i = 0; is_new && i < PyList_GET_SIZE(names_in_classes); i++) {
        PyObject *name = PyList_GetItemRef(names_in_classes, i);
        PyObject *converter = name ? _PyType_LookupRef(type, name) : NULL;
        Py_XDECREF(name);
        int ok = converter != NULL && !is_python_class(Py_TYPE(converter)) ? check_converter(tx, converter, r) : 0;
        Py_XDECREF(converter);
        if (ok < 0)
            return -1;
    }
    if (is_new && is_python_class(type) && check_asked_of_class(tx, type) < 0)
        return -1;
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        if (is_python_class(base) && reach_by_class(tx, obj, base, is_new, r) < 0)
            return -1;
    }
    return 0;
}

/* What C code reads when it calls a partial: the names that this adds, and in a function of C, what it adds. */
static int
reach_partial(Tx *tx, Partial *p, Reached *r)
{
    PyObject *f = PyMethod_Check(p->function) ? PyMethod_GET_FUNCTION(p->function) : p->function;
    if (PyFunction_Check(f))
        return open_whole_read(tx, p->keywords);
    return reach(r, p->function) < 0 || reach(r, p->args) < 0 ? -1 : reach(r, p->keywords);
}

/* list[int], or int | None: who makes something by that calls the types. */
static bool
is_made_of_types(PyTypeObject *type)
{
    return type == &Py_GenericAliasType || type == &_PyUnion_Type;
}

static int
open_and_reach(Tx *tx, PyObject *obj, Reached *reached)
{
    PyTypeObject *type = Py_TYPE(obj);
    Kind kind = kind_of(tx, obj);
    if (as_partial(obj) != NULL)
        return reach_partial(tx, as_partial(obj), reached);
    if (type == &PyCoro_Type)       /* nobody but who awaits it looks into it; printed, it tells its name */
        return open_attr_read(tx, obj, qualname_name);
    if (type == &PyFunction_Type || type == &PyCFunction_Type || type == &PyMethod_Type || type == &PyModule_Type || type == &PyType_Type
        || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type)
        return 0;       /* it makes nothing of them, but calls them where it asks for a method */
    if (PyType_Check(obj)) {    /* of another metaclass: it may be asked for attributes */
        PyObject *mro = ((PyTypeObject *)obj)->tp_mro;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
            PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
            if (is_python_class(base) && reach_by_class(tx, obj, base, true, reached) < 0)
                return -1;
        }
        return reach_class_of(tx, obj, reached);
    }
    bool is_view = PyDictViewSet_Check(obj) || PyDictValues_Check(obj);
    bool has_items = (kind->visit != NULL && !kind->visited_in_part && !is_made_of_types(type))
        || kind == &dict_kind || kind == &list_kind || kind == &set_kind || kind == &deque_kind || kind == &ordered_dict_kind
        || kind == &bytearray_kind || kind == &array_kind || kind == &memoryview_kind || kind == &tuple_kind || kind == &proxy_kind;
    bool python = is_python_class(type) && kind->c_state != C_STATE_UNKNOWN;
    if (PyExceptionInstance_Check(obj)) {
        if (kind != &instance_kind)
            return exclusive_for(tx, "a look into", obj);
        if (visit_all_of_exception(tx, obj, visit_reached, reached) < 0)
            return -1;
    }
    if (kind == &instance_kind || (python && (has_items || kind == &inert_kind))) {
        /* Two may look into it at a time, so neither makes the dict for itself. */
        if (can_have_dict(type) && give_own_dict(tx, obj) < 0)
            return -1;
        if (open_attributes(tx, obj) < 0 || reach_attributes(tx, obj, reached) < 0 || reach_class_of(tx, obj, reached) < 0)
            return -1;
        if (kind == &instance_kind || kind == &inert_kind || kind == &fields_kind)
            return 0;
    }
    else if (!(has_items && kind != &iterator_kind && kind != &generator_kind) && !is_view)
        return exclusive_for(tx, "a look into", obj);
    if (PyAnySet_Check(obj))
        return open_whole_read(tx, obj) < 0 ? -1 : reach_elements(obj, reached);
    return kind->visit != NULL ? kind->visit(tx, obj, visit_reached, reached) : open_whole_read(tx, obj);
}

/* Open for reading all that is reached from there by items and attributes; so many at most. Returns how many. */
static Py_ssize_t
open_all(Tx *tx, Reached *reached, Py_ssize_t most)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(reached->todo); i++) {
        PyObject *next = PyList_GET_ITEM(reached->todo, i);
        if ((i < most ? open_and_reach(tx, next, reached) : exclusive_for(tx, "a look into all that is reached from", next)) < 0)
            return -1;
    }
    return PyList_GET_SIZE(reached->todo);
}

/* The call's arguments, and what has been returned to it so far. */
static int
open_all_reachable(Tx *tx, Conversion *c)
{
    Reached reached;
    Py_ssize_t n = reached_begin(&reached);
    if (n == 0 && c->converter != NULL)
        n = check_converter(tx, c->converter, &reached);
    for (Py_ssize_t i = 0; n == 0 && i < c->n; i++)
        n = reach(&reached, c->args[i]);
    for (Py_ssize_t i = 0; n == 0 && c->received != NULL && i < PyList_GET_SIZE(c->received); i++)
        n = reach(&reached, PyList_GET_ITEM(c->received, i));
    if (n == 0)
        n = open_all(tx, &reached, MOST_REACHED - c->reached);
    c->reached += Py_MAX(n, 0);
    reached_end(&reached);
    return n < 0 ? -1 : 0;
}

/* It is the converter that nobody has named; what it reads of its own is opened. */
static int
open_converter(Tx *tx, PyObject *converter)
{
    Reached reached;
    int r = reached_begin(&reached) < 0 || check_converter(tx, converter, &reached) < 0 || open_all(tx, &reached, MOST_REACHED) < 0 ? -1 : 0;
    reached_end(&reached);
    return r < 0 ? -1 : check_doomed(tx);
}

int
open_making(Tx *tx, PyTypeObject *cls)
{
    return open_converter(tx, (PyObject *)cls);
}

/* It will make instances of such a class: what it knows of the fields, the class refers to, once somebody has found that out. */
static int
open_known_fields(Tx *tx, PyObject *cls)
{
    PyObject *parts = parts_of(cls), *known = NULL;
    for (Py_ssize_t i = 0; parts != NULL && known == NULL && i < PyList_GET_SIZE(parts); i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        if (kind_of(tx, part) == &record_kind && !is_python_class(Py_TYPE(part)) && !PyCallable_Check(part))
            known = part;
    }
    int r = parts == NULL ? -1 : known == NULL ? exclusive_for(tx, "the first conversion to", cls) : open_converter(tx, known);
    Py_XDECREF(parts);
    return r;
}

/* It will call this, if that can be called. */
static int
open_hook(Tx *tx, PyObject *arg)
{
    if (!PyCallable_Check(arg))
        return 0;
    if (PyType_Check(arg) && classify((PyTypeObject *)arg) == &fields_kind)
        return open_known_fields(tx, arg);
    /* Of a class of Python's it may make instances past the constructor, and call what that says of its attributes. */
    int known = PyType_Check(arg) && is_python_class((PyTypeObject *)arg) ? 0 : is_known_to_read(tx, arg);
    return known < 0 ? -1 : known > 0 ? 0 : exclusive_for(tx, "call back of", arg);
}

int
open_conversion(Tx *tx, PyObject *converter, PyObject *const *args, Py_ssize_t n, PyObject *const *kwvalues, Py_ssize_t nkw)
{
    if (converter != NULL && kind_of(tx, converter) == &opaque_kind && open_state(tx, converter) < 0)
        return -1;
    /* The first argument is data, of which it makes nothing if that can be called. */
    for (Py_ssize_t i = 1; i < n; i++) {
        /* What typing makes of a type, in which what has been found out of that is kept. */
        if (is_python_class(Py_TYPE(args[i])) && PyCallable_Check(args[i]) && !captured(tx, args[i]))
            return exclusive_for(tx, "a conversion that may change", args[i]);
        if (open_hook(tx, args[i]) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < nkw; i++) {
        if (is_python_class(Py_TYPE(kwvalues[i])) && !captured(tx, kwvalues[i]))
            return exclusive_for(tx, "a conversion that may change", kwvalues[i]);
        if (open_hook(tx, kwvalues[i]) < 0)
            return -1;
    }
    Conversion given = {.converter = converter, .args = args, .n = n}, named = {.args = kwvalues, .n = nkw};
    return open_all_reachable(tx, &given) < 0 || open_all_reachable(tx, &named) < 0 ? -1 : check_doomed(tx);
}

/* Is it a method in C that is given its converter as the first argument?  Cython's functions are of a type of its own, which does not tell
 * whether they are methods. */
bool
is_converters_method(PyObject *function, PyObject *receiver)
{
    if (PyCFunction_Check(function) || Py_IS_TYPE(function, &PyMethodDescr_Type) || receiver == NULL)
        return Py_IS_TYPE(function, &PyMethodDescr_Type);
    PyObject *name = is_python_class(Py_TYPE(function)) ? NULL : PyObject_GetAttr(function, name_name);
    PyObject *found = name != NULL && PyUnicode_Check(name) ? _PyType_LookupRef(Py_TYPE(receiver), name) : NULL;
    bool is_method = found == function;
    Py_XDECREF(found);
    Py_XDECREF(name);
    PyErr_Clear();
    return is_method;
}

/* ---- While it runs ---------------------------------------------------------------------- */

bool
is_own_exception(Tx *tx, PyObject *obj)
{
    return fresh_has(&thread_of(tx)->raised, obj);
}

/* That of C code to which no Python function has raised any. */
static void
note_own_exception(Tx *tx)
{
    PyObject *exception = PyErr_GetRaisedException();
    /* Without memory C code that looks into it runs alone. */
    if (exception != NULL && !(Py_TYPE(exception)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && thread_of(tx)->raised.n < MOST_EXCEPTIONS
        && fresh_add(&thread_of(tx)->raised, exception) < 0)
        PyErr_Clear();
    PyErr_SetRaisedException(exception);
}

PyObject *
call_conversion(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(function, args, n, kwnames);
    Conversion c = {.args = args, .n = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)), .outer = thread_of(tx)->conversion};
    if (is_converters_method(function, n > 0 ? args[0] : NULL)) {
        c.converter = args[0];
        c.args++;
        c.n--;
    }
    else if (PyCFunction_Check(function) && PyCFunction_GET_SELF(function) != NULL && !PyModule_Check(PyCFunction_GET_SELF(function)))
        c.converter = PyCFunction_GET_SELF(function);
    else if (effect_of_instances(Py_TYPE(function)) == EFFECT_CONVERTS)
        c.converter = function;
    thread_of(tx)->conversion = &c;
    PyObject *result = PyObject_Vectorcall(function, args, n, kwnames);
    thread_of(tx)->conversion = c.outer;
    Py_XDECREF(c.received);
    if (result == NULL && !c.raises_python && tx->open)
        note_own_exception(tx);
    return result;
}

/* The function may have changed what is its transaction's own without a trace, so all is looked at once more. */
PyObject *
conversion_received(Tx *tx, Conversion *c, PyObject *result)
{
    /* A property, or __getattr__, may give what is called next. */
    int r = asked.n > 0 && PyCallable_Check(result) && !PyType_Check(result) && !is_python_class(Py_TYPE(result))
        ? is_known_to_read(tx, result) : 1;
    r = r < 0 ? -1 : r > 0 ? 0 : exclusive_for(tx, "call of", result);
    if (r == 0 && !is_leaf(result)) {
        if (c->received == NULL)
            c->received = PyList_New(0);
        r = c->received == NULL ? -1 : PyList_Append(c->received, result);
    }
    if (r < 0 || open_all_reachable(tx, c) < 0)
        Py_CLEAR(result);
    return result;
}
