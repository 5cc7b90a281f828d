/* Attributes of functions, of functools.partial and lru_cache objects, and of other objects of C
 * types that can be given attributes.
 *
 * The dict is made when the first attribute is (attributes.c): so each attribute is locked by the object and
 * its name, and, once there is a dict, as a key of that.
 *
 * Calls read `__kwdefaults__` without asking.  Who gets hold of that dict, or has given it, can change it in place: from then on it is
 * changed exclusively only, as the globals of a module are.
 */
#include "function.h"

#include "access.h"
#include "attributes.h"
#include "deep.h"
#include "instance.h"
#include "known.h"
#include "namespaces.h"

#include "internal/pycore_descrobject.h"

static PyObject *qualname_name, *annotations_name;
static getter get_defaults;     /* the interpreter's */
static setter set_defaults;

static PyObject *
get_defaults_to_keep(PyObject *function, void *closure)
{
    PyObject *defaults = get_defaults(function, closure);
    if (defaults != NULL && keep_unchanged(defaults) < 0)
        Py_CLEAR(defaults);
    return defaults;
}

/* In a transaction: exclusively. */
static int
set_defaults_to_keep(PyObject *function, PyObject *value, void *closure)
{
    return value != NULL && keep_unchanged(value) < 0 ? -1 : set_defaults(function, value, closure);
}

int
functions_init(void)
{
    qualname_name = PyUnicode_InternFromString("__qualname__");
    annotations_name = PyUnicode_InternFromString("__annotations__");
    PyObject *dict = PyType_GetDict(&PyFunction_Type);
    PyObject *found = dict != NULL ? PyDict_GetItemString(dict, "__kwdefaults__") : NULL;
    Py_XDECREF(dict);
    if (qualname_name == NULL || annotations_name == NULL)
        return -1;
    if (found == NULL || !Py_IS_TYPE(found, &PyGetSetDescr_Type)) {
        PyErr_SetString(PyExc_ImportError, "__kwdefaults__ of functions is something else in this Python");
        return -1;
    }
    PyGetSetDef *definition = ((PyGetSetDescrObject *)found)->d_getset;
    if (definition->get != get_defaults_to_keep) {
        get_defaults = definition->get;
        set_defaults = definition->set;
        definition->get = get_defaults_to_keep;
        definition->set = set_defaults_to_keep;
    }
    return 0;
}

PyObject *
shared_function(PyMethodDef *def, PyObject *self)
{
    PyObject *function = PyCFunction_New(def, self);
    if (function != NULL)
        PyUnstable_Object_EnableDeferredRefcount(function);
    return function;
}

/* ---- Annotations: assigning to one of __annotations__ and __annotate__ drops the other, and both have one lock ------------- */

static int
put_annotations_back(Tx *Py_UNUSED(tx), Undo *u)
{
    PyFunctionObject *f = (PyFunctionObject *)u->obj;
    undo_exchange(&f->func_annotate, &u->key);
    undo_exchange(&f->func_annotations, &u->old);
    return 0;
}

static const UndoKind undo_annotations = {.what = "annotations", .undo = put_annotations_back};

static bool
is_of_annotations(PyObject *name)
{
    return PyUnicode_EqualToUTF8(name, "__annotate__") || PyUnicode_Equal(name, annotations_name);
}

/* Who asks first for the dict makes it, by what it sees then. */
static bool
makes_annotations(PyObject *function, PyObject *name)
{
    PyObject *annotations = ((PyFunctionObject *)function)->func_annotations;
    return PyUnicode_Equal(name, annotations_name) && (annotations == NULL || !PyDict_Check(annotations));
}

/* ---- Attributes ------------------------------------------------------------------------------------------------------------ */

/* Not the cell of a key, should the object be a dict. */
static Cell
attribute_cell(PyObject *obj, PyObject *name)
{
    return cell_of(obj, key_bits(PyObject_Hash(name)) ^ FUNCTION_BITS);
}

int
lock_function_attribute(Tx *tx, PyObject *function, PyObject *name, bool write)
{
    bool first;
    Cell c = attribute_cell(function, name);
    return write ? lock_exclusive(tx, c, &first) : lock_shared(tx, c);
}

static int
change_annotations(Tx *tx, PyObject *function)
{
    bool first;
    PyFunctionObject *f = (PyFunctionObject *)function;
    if (lock_exclusive(tx, attribute_cell(function, annotations_name), &first) < 0)
        return -1;
    return !first || tx->grade == GRADE_EXCLUSIVE || undo_push(tx, &undo_annotations, function, f->func_annotate, f->func_annotations) != NULL
        ? 0 : -1;
}

static int
read_annotations(Tx *tx, PyObject *function, PyObject *name)
{
    if (lock_shared(tx, attribute_cell(function, annotations_name)) < 0)
        return -1;
    return makes_annotations(function, name) ? change_annotations(tx, function) : check_doomed(tx);
}

int
open_function_annotations(Tx *tx, PyObject *function)
{
    return read_annotations(tx, function, annotations_name);
}

/* A property that has got no name from a class has that of its function. */
static int
read_name_of_getter(Tx *tx, PyObject *property, PyObject *name)
{
    PyObject *get = ((propertyobject *)property)->prop_get;     /* which never changes */
    return get == NULL ? 0 : open_attr_read(tx, get, name);
}

static int
read_attr(Tx *tx, PyObject *obj, PyObject *name)
{
    if (is_python_class(Py_TYPE(obj)))
        return 1;
    if (PyFunction_Check(obj) && is_of_annotations(name))
        return read_annotations(tx, obj, name);
    if (PyMethod_Check(obj))
        return open_attr_read(tx, PyMethod_GET_FUNCTION(obj), name);
    if (PyObject_TypeCheck(obj, &PyProperty_Type) && PyUnicode_EqualToUTF8(name, "__name__"))
        return read_name_of_getter(tx, obj, name);
    if (!can_have_dict(Py_TYPE(obj)))
        return check_doomed(tx);
    bool makes = name == stm_dict_name || PyUnicode_Equal(name, stm_dict_name);
    if (!makes && lock_shared(tx, attribute_cell(obj, name)) < 0)
        return -1;
    PyObject *dict;
    if ((makes ? make_own_dict : find_own_dict)(tx, obj, &dict) < 0)
        return -1;
    int r = dict == NULL || makes ? 0 : open_key_read(tx, dict, name);
    Py_XDECREF(dict);
    return r;
}

/* What nothing but Python code, and the text of error messages, is made of. */
static bool
is_description(PyObject *name)
{
    static const char *const names[] = {
        "__annotate__", "__annotations__", "__doc__", "__module__", "__name__", "__qualname__", "__type_params__",
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if (PyUnicode_EqualToUTF8(name, names[i]))
            return true;
    }
    return false;
}

static int
change_attr(Tx *tx, PyObject *obj, PyObject *name, bool del, bool Py_UNUSED(raw))
{
    if (is_python_class(Py_TYPE(obj)))
        return 1;
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_setattro != PyObject_GenericSetAttr || !can_have_dict(type))
        return exclusive_for(tx, "attribute assignment to", obj);
    PyObject *descr = _PyType_LookupRef(type, name);
    bool data = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL, first;
    Py_XDECREF(descr);
    PyErr_Clear();
    if (data && !(PyFunction_Check(obj) && is_description(name)))
        return exclusive_for(tx, "attribute assignment to", obj);
    if (data && is_of_annotations(name))
        return change_annotations(tx, obj);
    if (lock_exclusive(tx, attribute_cell(obj, name), &first) < 0)
        return -1;
    if (!data) {
        PyObject *dict;
        int r = make_own_dict(tx, obj, &dict);
        if (r == 0 && dict != NULL)
            r = open_key_write(tx, dict, name, del);
        Py_XDECREF(dict);
        return r;
    }
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyObject *old = PyObject_GetAttr(obj, name);
    Undo *u = old == NULL ? NULL : undo_push(tx, &undo_attr, obj, name, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}

/* What it is compared by and printed with: what a property is around is in no text, nor what an lru_cache has kept. */
static int
visit_shown(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    if (PyFunction_Check(obj))
        return lock_function_attribute(tx, obj, qualname_name, false);
    return Py_TYPE(obj)->tp_repr == PyBaseObject_Type.tp_repr ? check_doomed(tx) : visit_referents(tx, obj, visit, arg);
}

const struct Kind function_kind = {
    .plain = true,
    .visited_in_part = true,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .visit = visit_shown,
};

const struct Kind method_kind = {
    .compared_inside = true,
    .visited_in_part = true,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .visit = visit_shown,
};
