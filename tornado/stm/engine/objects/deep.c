/* All that C code may come to read from an object on: when it compares, prints, encodes.
 *
 * It does not look into instances, whose methods are Python and have barriers of their
 * own.  Objects inside objects are followed by recursion; where that gets deep, there may
 * be a cycle, and those that are left are opened one after the other, each once.
 */
#include "deep.h"

#include "../calls/calls.h"
#include "../thread.h"
#include "access.h"
#include "attributes.h"
#include "dict.h"
#include "exception.h"
#include "instance.h"
#include "known.h"

#include <datetime.h>

#define DEEP 8

/* Open the object itself, and visit what is inside, but for what is inert. */
static int
open_and_visit(Tx *tx, PyObject *obj, Kind kind, Visit visit, void *arg)
{
    return kind->visit != NULL ? kind->visit(tx, obj, visit, arg) : open_whole_read(tx, obj);
}

/* What an inert object is pickled with: the object to which a method in C is bound, or the time zone of a time, which may be in Python.
 * Who compares or prints it does not look there. */
static PyObject *
pickled_with(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type == &PyCFunction_Type) {
        PyObject *self = PyCFunction_GET_SELF(obj);
        return self == NULL || PyModule_Check(self) ? NULL : self;
    }
    if (type == stm_method_wrapper_type)
        return ((MethodWrapper *)obj)->self;
    if (PyDateTimeAPI == NULL)      /* until something is pickled */
        return NULL;
    return type == PyDateTimeAPI->DateTimeType ? PyDateTime_DATE_GET_TZINFO(obj)
        : type == PyDateTimeAPI->TimeType ? PyDateTime_TIME_GET_TZINFO(obj) : NULL;
}

int
visit_unless_inert(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    return kind_of(tx, obj) == &inert_kind && LIKELY(pickled_with(obj) == NULL) ? 0 : visit(tx, obj, arg);
}

/* ---- One after the other ---------------------------------------------------------------- */

typedef struct { PyObject *seen, *todo; bool only_plain; } Graph;

static int
remember(Tx *tx, PyObject *inside, void *arg)
{
    (void)tx;
    Graph *g = arg;
    PyObject *id = PyLong_FromVoidPtr(inside);
    int seen = id == NULL ? -1 : PySet_Contains(g->seen, id);
    if (seen == 0)
        seen = PySet_Add(g->seen, id) < 0 ? -1 : PyList_Append(g->todo, inside);
    Py_XDECREF(id);
    return seen < 0 ? -1 : 0;
}

/* Returns 1 if it has come upon an instance of a Python class, where only plain data will do. */
static int
open_graph(Tx *tx, PyObject *obj, bool only_plain)
{
    Graph g = {PySet_New(NULL), PyList_New(0), only_plain};
    int r = g.seen == NULL || g.todo == NULL ? -1 : remember(tx, obj, &g);
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(g.todo); i++) {
        PyObject *next = PyList_GET_ITEM(g.todo, i);    /* stays there, so that no other object gets its id */
        Kind kind = kind_of(tx, next);
        PyObject *with = only_plain ? pickled_with(next) : NULL;
        r = only_plain && (!kind->plain || is_python_class(Py_TYPE(next))) ? 1 : with != NULL ? remember(tx, with, &g) : 0;
        if (r == 0)
            r = open_and_visit(tx, next, kind, remember, &g);
    }
    Py_XDECREF(g.seen);
    Py_XDECREF(g.todo);
    return r;
}

static int
go_deeper(Tx *tx, PyObject *inside, void *arg)
{
    int depth = *(int *)arg + 1;
    return depth > DEEP ? open_graph(tx, inside, false)
                        : open_and_visit(tx, inside, kind_of(tx, inside), go_deeper, &depth);
}

/* Or of such tuples: keys and coordinates. */
bool
is_tuple_of_constants(PyObject *o, int depth)
{
    if (!PyTuple_CheckExact(o) || depth > 2)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
        PyObject *item = PyTuple_GET_ITEM(o, i);
        if (!is_constant(item) && !is_tuple_of_constants(item, depth + 1))
            return false;
    }
    return true;
}

int
open_deep_read(Tx *tx, PyObject *obj)
{
    if (is_tuple_of_constants(obj, 0))
        return 0;
    Kind kind = kind_of(tx, obj);
    int depth = 0;
    return LIKELY(kind == &inert_kind) ? 0 : open_and_visit(tx, obj, kind, go_deeper, &depth);
}

int
open_deep(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    if (kind == &generator_kind
        || (kind == &iterator_kind && !PyDictViewSet_Check(obj) && !PyDictValues_Check(obj)))
        return exclusive_for(tx, "a look into the items of", obj);
    return open_deep_read(tx, obj);
}

static int
open_lookups_inside(Tx *tx, PyObject *obj, void *Py_UNUSED(arg))
{
    return open_lookups(tx, obj);
}

/* C code looks items up in it, by its own method, and goes on with what that returns: what a __getitem__ or __missing__ in Python does
 * the evaluation loop opens (stm_return). */
int
open_lookups(Tx *tx, PyObject *obj)
{
    static PyObject *getitem, *missing;
    PyMappingMethods *mapping = Py_TYPE(obj)->tp_as_mapping;
    if (PyTuple_Check(obj) || mapping == NULL || mapping->mp_subscript == NULL)
        return 0;
    if (kind_of(tx, obj) == &proxy_kind)
        return proxy_kind.visit(tx, obj, open_lookups_inside, NULL);
    if (!is_python_class(Py_TYPE(obj)))
        return PyDict_Check(obj) ? open_missing_keys(tx, obj) : 0;
    if (getitem == NULL) {
        getitem = PyUnicode_InternFromString("__getitem__");
        missing = PyUnicode_InternFromString("__missing__");
    }
    bool as_dict = PyDict_Check(obj) && mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript;
    return open_through_method(tx, obj, as_dict ? missing : getitem);
}

/* `text % values` does so in values that are no tuple, and prints what it finds. */
int
open_interpolated(Tx *tx, PyObject *text, PyObject *values)
{
    bool may_look_up = PyUnicode_Check(text) ? PyUnicode_FindChar(text, '(', 0, PyUnicode_GET_LENGTH(text), 1) >= 0
        : PyBytes_Check(text) || PyByteArray_Check(text);
    return may_look_up && open_lookups(tx, values) < 0 ? -1 : open_deep_read(tx, values);
}

/* All that is in the items of it, which are not there yet where a method in Python will make them. */
int
open_rows(Tx *tx, PyObject *rows)
{
    return kind_of(tx, rows) == &instance_kind ? exclusive_for(tx, "a look into the items of", rows) : open_deep(tx, rows);
}

/* `dict |= other`: what has no keys is taken for rows. */
int
open_dict_operand(Tx *tx, PyObject *other)
{
    static PyObject *keys;
    if (keys == NULL)
        keys = PyUnicode_InternFromString("keys");
    PyObject *method = _PyType_LookupRef(Py_TYPE(other), keys);
    bool mapping = method != NULL;
    Py_XDECREF(method);
    return mapping ? open_mapping(tx, other) : open_rows(tx, other);
}

/* All of it; 1 if it is of C types that copy and pickle know, 0 if not. */
int
open_plain_read(Tx *tx, PyObject *obj)
{
    if (PyDateTimeAPI == NULL)
        PyDateTime_IMPORT;
    int r = PyDateTimeAPI == NULL ? -1 : open_graph(tx, obj, true);
    return r < 0 ? -1 : !r;
}

/* Those in slots, and what it contains. */
static int
open_beside_dict(Tx *tx, PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro) && is_python_class(type); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *members = is_python_class(base) ? PyType_GetDict(base) : NULL, *name, *member;
        Py_ssize_t pos = 0;
        int r = 0;
        while (members != NULL && r == 0 && PyDict_Next(members, &pos, &name, &member)) {
            if (Py_IS_TYPE(member, &PyMemberDescr_Type))
                r = open_attr_read(tx, obj, name);
        }
        Py_XDECREF(members);
        if (r < 0)
            return -1;
    }
    if (UNLIKELY(tells_errors(type)))
        return exclusive_for(tx, "a look into", obj);
    return kind_of(tx, obj) == &instance_kind ? check_doomed(tx) : open_whole_read(tx, obj);
}

/* All attributes of an instance, in its dict and in slots, and what it contains: what copy
 * and pickle take for its state, by asking for its __dict__. */
int
open_attributes(Tx *tx, PyObject *obj)
{
    if (PyType_Check(obj))
        return check_doomed(tx);
    if (PyModule_Check(obj))
        return open_whole_read(tx, PyModule_GetDict(obj));
    if (can_have_dict(Py_TYPE(obj))) {
        PyObject *dict = NULL;
        if (make_own_dict(tx, obj, &dict) < 0)
            return -1;
        if (dict != NULL)
            forget_capture(tx, dict);
        Py_XDECREF(dict);
        if (open_own_dict(tx, obj) < 0)
            return -1;
    }
    return open_beside_dict(tx, obj);
}

/* Will object.__reduce_ex__() not ask for its __dict__, but call a __reduce__ which is in Python, or in C and looks whether there is a dict? */
static bool
tells_whether_dict(PyTypeObject *type)
{
    static PyObject *reduce_name;
    if (reduce_name == NULL)
        reduce_name = PyUnicode_InternFromString("__reduce__");
    PyObject *method = reduce_name == NULL ? NULL : _PyType_LookupRef(type, reduce_name);
    PyTypeObject *owner = method != NULL && Py_IS_TYPE(method, &PyMethodDescr_Type) ? PyDescr_TYPE(method) : NULL;
    bool tells = owner == NULL ? method != NULL && PyFunction_Check(method)
        : classify(owner) == &method_kind || PyType_IsSubtype(owner, (PyTypeObject *)PyExc_BaseException);
    Py_XDECREF(method);
    return tells;
}

/* All of that, for obj.__reduce__() or object.__reduce_ex__(obj). */
int
open_reduced(Tx *tx, PyObject *obj)
{
    if (!can_have_dict(Py_TYPE(obj)) || !tells_whether_dict(Py_TYPE(obj)))
        return open_attributes(tx, obj);
    return open_own_dict(tx, obj) < 0 ? -1 : open_beside_dict(tx, obj);
}

/* Memory of unknown kinds is only changed by who runs alone. */
static int
open_memory(Tx *tx, PyObject *value)
{
    Kind kind = kind_of(tx, value);
    return kind == &bytearray_kind || kind == &memoryview_kind || kind == &array_kind ? open_whole_read(tx, value) : 0;
}

/* Of an instance whose attributes are open: those of them that are memory which may change. */
int
open_memory_of_attributes(Tx *tx, PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    int r = 0;
    if (can_have_dict(type)) {
        PyObject *dict = own_dict(obj), *name, *value;
        Py_ssize_t pos = 0;
        while (dict != NULL && r == 0 && PyDict_Next(dict, &pos, &name, &value))
            r = open_memory(tx, value);
        Py_XDECREF(dict);
    }
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; r == 0 && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *members = is_python_class(base) ? PyType_GetDict(base) : NULL, *name, *member;
        Py_ssize_t pos = 0;
        while (members != NULL && r == 0 && PyDict_Next(members, &pos, &name, &member)) {
            if (!Py_IS_TYPE(member, &PyMemberDescr_Type))
                continue;
            PyObject *value = PyMemberDescr_Type.tp_descr_get(member, obj, (PyObject *)type);
            if (value == NULL)
                PyErr_Clear();      /* an empty slot */
            else
                r = open_memory(tx, value);
            Py_XDECREF(value);
        }
        Py_XDECREF(members);
    }
    return r;
}
