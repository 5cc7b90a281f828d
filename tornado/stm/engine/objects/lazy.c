/* What is evaluated when somebody asks for it first (PEP 649, 695, 696), by Python code, and kept by C code: annotations of classes, functions and
 * modules, values of type aliases, bounds, constraints and defaults of type variables; what static methods and class methods have found in
 * their functions.
 *
 * What an attempt has evaluated must not be kept when it is rolled back: it consists of objects that are taken back as well.  So who is
 * the first to ask does so alone, unless the class is its own.  A function's annotations are locked, and forgotten again; so is what a
 * method has in its dict.
 *
 * C code asks as well, so it is the attributes' getters that take care.
 */
#include "lazy.h"

#include "../calls/calls.h"
#include "access.h"
#include "attributes.h"
#include "function.h"
#include "known.h"

#include "internal/pycore_function.h"
#include "internal/pycore_moduleobject.h"

/* The interpreter's own, which it does not show. */
typedef struct { PyObject_HEAD PyObject *name, *bound, *evaluate_bound, *constraints, *evaluate_constraints, *default_, *evaluate_default; } Variable;
typedef struct { PyObject_HEAD PyObject *name, *default_, *evaluate_default; } VariableTuple;
typedef struct { PyObject_HEAD PyObject *name, *bound, *default_, *evaluate_default; } ParamSpec;
typedef struct { PyObject_HEAD PyObject *name, *parameters, *evaluate, *value; } Alias;

/* Nobody else may be asking, or see what comes of it. */
static int
ask_first(PyObject *obj)
{
    Tx *tx = stm_open;
    if (tx == NULL || is_fresh(tx, obj))
        return 0;
    return exclusive_for(tx, "the first evaluation of what is annotated, of", obj);
}

static bool
dict_has(PyObject *dict, const char *name)
{
    PyObject *found = NULL;
    bool there = dict != NULL && PyDict_GetItemStringRef(dict, name, &found) > 0;
    Py_XDECREF(found);
    PyErr_Clear();
    return there;
}

static bool
class_is_annotated(PyObject *cls)
{
    PyTypeObject *type = (PyTypeObject *)cls;
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return true;        /* it complains */
    PyObject *dict = PyType_GetDict(type);
    bool there = dict_has(dict, "__annotations_cache__") || dict_has(dict, "__annotations__");
    Py_XDECREF(dict);
    return there;
}

/* Of one without annotations, it makes an empty dict. */
static bool
module_is_annotated(PyObject *module)
{
    return dict_has(((PyModuleObject *)module)->md_dict, "__annotations__");
}

/* A static method or class method keeps in its dict what it has asked its function for. */
static int
open_kept(PyObject *method, const char *attribute)
{
    Tx *tx = stm_open;
    if (tx == NULL)
        return 0;
    PyObject *name = PyUnicode_InternFromString(attribute), *dict = NULL;
    int r = name == NULL ? -1 : make_own_dict(tx, method, &dict);
    if (r == 0 && dict != NULL) {
        int there = open_key_read(tx, dict, name) < 0 ? -1 : PyDict_Contains(dict, name);
        r = there != 0 ? there : open_key_write(tx, dict, name, false);
    }
    Py_XDECREF(name);
    Py_XDECREF(dict);
    return r < 0 ? -1 : 0;
}

#define HAS(type, field, evaluator) (((type *)obj)->field != NULL || ((type *)obj)->evaluator == NULL)

/* name, the type, its attribute, and: has it been evaluated, or is there nothing to be? */
#define EACH_LAZY(X) \
    X(class_annotations, &PyType_Type, "__annotations__", class_is_annotated(obj)) \
    X(module_annotations, &PyModule_Type, "__annotations__", module_is_annotated(obj)) \
    X(bound, variable, "__bound__", HAS(Variable, bound, evaluate_bound)) \
    X(constraints, variable, "__constraints__", HAS(Variable, constraints, evaluate_constraints)) \
    X(default, variable, "__default__", HAS(Variable, default_, evaluate_default)) \
    X(default_of_tuple, variable_tuple, "__default__", HAS(VariableTuple, default_, evaluate_default)) \
    X(default_of_spec, spec, "__default__", HAS(ParamSpec, default_, evaluate_default)) \
    X(value, alias, "__value__", HAS(Alias, value, evaluate))

#define DEFINE(name, type, attribute, is_there) \
    static getter original_##name; \
    static PyObject * \
    get_##name(PyObject *obj, void *closure) \
    { \
        return !(is_there) && ask_first(obj) < 0 ? NULL : original_##name(obj, closure); \
    }
EACH_LAZY(DEFINE)

static getter original_annotations;     /* of functions */

static PyObject *
get_annotations(PyObject *function, void *closure)
{
    if (stm_open != NULL && open_function_annotations(stm_open, function) < 0)
        return NULL;
    bool there = ((PyFunctionObject *)function)->func_annotations != NULL;
    PyObject *annotations = original_annotations(function, closure);
    if (annotations != NULL && !there && stm_open != NULL)
        forget_capture(stm_open, annotations);      /* an empty dict may have been made, where a captured one has died */
    return annotations;
}

#define EACH_WRAPPED(X) \
    X(static_annotations, &PyStaticMethod_Type, "__annotations__") \
    X(static_annotate, &PyStaticMethod_Type, "__annotate__") \
    X(class_method_annotations, &PyClassMethod_Type, "__annotations__") \
    X(class_method_annotate, &PyClassMethod_Type, "__annotate__")

#define DEFINE_WRAPPED(name, type, attribute) \
    static getter original_##name; \
    static PyObject * \
    get_##name(PyObject *method, void *closure) \
    { \
        return open_kept(method, attribute) < 0 ? NULL : original_##name(method, closure); \
    }
EACH_WRAPPED(DEFINE_WRAPPED)

/* ---- Once, when the engine is imported ------------------------------------------------------------ */

static int
exchange(PyTypeObject *type, const char *attribute, getter ours, getter *original)
{
    PyObject *dict = PyType_GetDict(type), *found = NULL;
    if (PyDict_GetItemStringRef(dict, attribute, &found) > 0 && Py_IS_TYPE(found, &PyGetSetDescr_Type)) {
        PyGetSetDef *definition = ((PyGetSetDescrObject *)found)->d_getset;
        if (definition->get != ours) {
            *original = definition->get;
            definition->get = ours;
        }
    }
    else if (!PyErr_Occurred())
        PyErr_Format(PyExc_ImportError, "%s of %s is something else in this Python", attribute, type->tp_name);
    Py_XDECREF(found);
    Py_DECREF(dict);
    return PyErr_Occurred() ? -1 : 0;
}

/* A type of `_typing`, whose structure begins with so much; borrowed from there. */
static PyTypeObject *
type_of_typing(PyObject *module, const char *name, size_t size)
{
    PyObject *type = PyObject_GetAttrString(module, name);
    if (type != NULL && (!PyType_Check(type) || ((PyTypeObject *)type)->tp_basicsize < (Py_ssize_t)size))
        PyErr_Format(PyExc_ImportError, "%s is something else in this Python", name);
    Py_XDECREF(type);
    return PyErr_Occurred() ? NULL : (PyTypeObject *)type;
}

int
lazy_init(void)
{
    PyObject *typing = PyImport_ImportModule("_typing");
    if (typing == NULL)
        return -1;
    PyTypeObject *variable = type_of_typing(typing, "TypeVar", sizeof(Variable));
    PyTypeObject *variable_tuple = variable == NULL ? NULL : type_of_typing(typing, "TypeVarTuple", sizeof(VariableTuple));
    PyTypeObject *spec = variable_tuple == NULL ? NULL : type_of_typing(typing, "ParamSpec", sizeof(ParamSpec));
    PyTypeObject *alias = spec == NULL ? NULL : type_of_typing(typing, "TypeAliasType", sizeof(Alias));
    Py_DECREF(typing);
    if (alias == NULL)
        return -1;
#define EXCHANGE(name, type, attribute, ...) || exchange(type, attribute, get_##name, &original_##name) < 0
    return exchange(&PyFunction_Type, "__annotations__", get_annotations, &original_annotations) < 0
        EACH_WRAPPED(EXCHANGE) EACH_LAZY(EXCHANGE) ? -1 : 0;
}
