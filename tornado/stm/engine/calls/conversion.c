/* C code that makes data of other data: validators, serializers, encoders (pydantic-core, for one).
 *
 * Such code reads all that can be reached from what it is given, attributes of instances too, and makes new objects
 * of that.  Python functions that it calls have barriers of their own.  So it may run in any transaction
 *
 *      if   all that it may read has been opened before: open_reachable() does that,
 *      and  it calls no C function of which nobody knows what it does: the *converter*, the object that has been
 *           made for the purpose, refers to what it calls, and so do those that the classes of the data name.
 *           Each converter is looked through once, and never changes.
 *
 * What it is given under a name may be an instance that it gives the first attributes (`self_instance`): nobody
 * else knows that one, or the call is left to an exclusive transaction.
 */
#include "conversion.h"

#include "../core/tx.h"
#include "../objects/access.h"
#include "../objects/deep.h"
#include "../objects/known.h"
#include "calls.h"

#define MOST_REACHED 20000      /* objects that are opened one by one: whoever reads more runs alone */
#define MOST_LOOKED_THROUGH 4096

static PyObject *names_in_classes;      /* list that only grows: under these a class has the converters of its instances */
static PyObject *looked_through;        /* converter's address -> (itself, does it call only what is known?) */
static PyObject *call_name;

int
conversion_init(void)
{
    names_in_classes = PyList_New(0);
    looked_through = PyDict_New();
    call_name = PyUnicode_InternFromString("__call__");
    return names_in_classes == NULL || looked_through == NULL || call_name == NULL ? -1 : 0;
}

int
conversion_named(PyObject *name)
{
    return PyList_Append(names_in_classes, name);
}

/* ---- What a converter calls ------------------------------------------------------------- */

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

/* Each once. */
static int
reach(Reached *r, PyObject *obj)
{
    PyObject *id = PyLong_FromVoidPtr(obj);
    int seen = id == NULL ? -1 : PySet_Contains(r->seen, id);
    if (seen == 0)
        seen = PySet_Add(r->seen, id) < 0 ? -1 : PyList_Append(r->todo, obj);
    Py_XDECREF(id);
    return seen < 0 ? -1 : 0;
}

static int
reach_referent(PyObject *obj, void *arg)
{
    return obj == NULL ? 0 : reach(arg, obj);
}

/* Of a dict, the values. */
static int
reach_items(PyObject *container, Reached *r)
{
    PyObject *items = PyDict_CheckExact(container) ? PyDict_Values(container) : PySequence_List(container);
    int ok = items == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; ok == 0 && i < PyList_GET_SIZE(items); i++)
        ok = reach(r, PyList_GET_ITEM(items, i));
    Py_XDECREF(items);
    return ok;
}

/* May C code call this, with what has been opened deeply or is its own? -1 to abort. */
static int
is_known_to_read(Tx *tx, PyObject *callable)
{
    if (PyMethod_Check(callable))
        callable = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(callable))
        return 1;
    if (PyType_Check(callable))
        return makes_what_is_known((PyTypeObject *)callable);
    if (is_python_class(Py_TYPE(callable))) {
        PyObject *call = _PyType_LookupRef(Py_TYPE(callable), call_name);
        bool python = call != NULL && PyFunction_Check(call);
        Py_XDECREF(call);
        return python;
    }
    int effect = effect_as_callback(tx, callable);
    return effect < 0 ? -1 : effect == EFFECT_PURE || effect == EFFECT_READS || effect == EFFECT_DEEP;
}

int
calls_only_known(Tx *tx, PyObject *converter)
{
    Reached reached;
    int known = reached_begin(&reached) < 0 || reach(&reached, converter) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; known == 1 && i < PyList_GET_SIZE(reached.todo); i++) {
        PyObject *next = PyList_GET_ITEM(reached.todo, i);
        PyTypeObject *type = Py_TYPE(next);
        if (i >= MOST_REACHED)
            known = 0;
        else if (next == (PyObject *)Py_TYPE(converter))
            continue;
        else if (PyCallable_Check(next))
            known = is_known_to_read(tx, next);
        else if (type == Py_TYPE(converter))
            known = type->tp_traverse != NULL ? (type->tp_traverse(next, reach_referent, &reached) == 0 ? 1 : -1) : 0;
        else if (PyDict_CheckExact(next) || PyList_CheckExact(next) || PyTuple_CheckExact(next) || PyAnySet_CheckExact(next))
            known = reach_items(next, &reached) < 0 ? -1 : 1;
    }
    reached_end(&reached);
    return known;
}

static int
check_converter(Tx *tx, PyObject *converter)
{
    PyObject *id = PyLong_FromVoidPtr(converter), *answer = NULL;
    if (id == NULL || PyDict_GetItemRef(looked_through, id, &answer) < 0) {
        Py_XDECREF(id);
        return -1;
    }
    int known = answer == NULL ? calls_only_known(tx, converter) : PyTuple_GET_ITEM(answer, 1) == Py_True;
    if (answer == NULL && known >= 0) {
        if (PyDict_GET_SIZE(looked_through) >= MOST_LOOKED_THROUGH)
            PyDict_Clear(looked_through);
        answer = PyTuple_Pack(2, converter, known ? Py_True : Py_False);
        if (answer == NULL || PyDict_SetItem(looked_through, id, answer) < 0)
            known = -1;
    }
    Py_XDECREF(answer);
    Py_DECREF(id);
    return known < 0 ? -1 : known ? 0 : exclusive_for(tx, "calls of unknown code by", converter);
}

/* ---- What it is given ------------------------------------------------------------------- */

static int
visit_reached(Tx *Py_UNUSED(tx), PyObject *inside, void *arg)
{
    return reach(arg, inside);
}

/* Attributes that have been opened. */
static int
reach_attributes(Tx *tx, PyObject *obj, Reached *r)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
        PyObject *dict = PyObject_GenericGetDict(obj, NULL), *name, *value;
        Py_ssize_t pos = 0;
        int ok = dict == NULL ? -1 : 0;
        while (ok == 0 && PyDict_Next(dict, &pos, &name, &value))
            ok = visit_unless_inert(tx, value, visit_reached, r);
        Py_XDECREF(dict);
        if (ok < 0)
            return -1;
    }
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *members = is_python_class(base) ? PyType_GetDict(base) : NULL, *name, *member;
        Py_ssize_t pos = 0;
        int ok = 0;
        while (members != NULL && ok == 0 && PyDict_Next(members, &pos, &name, &member)) {
            if (!Py_IS_TYPE(member, &PyMemberDescr_Type))
                continue;
            PyObject *value = PyMemberDescr_Type.tp_descr_get(member, obj, (PyObject *)type);
            if (value == NULL)
                PyErr_Clear();      /* an empty slot */
            else
                ok = visit_unless_inert(tx, value, visit_reached, r);
            Py_XDECREF(value);
        }
        Py_XDECREF(members);
        if (ok < 0)
            return -1;
    }
    return 0;
}

/* What the class says that converts its instances. */
static int
check_converters_of(Tx *tx, PyTypeObject *type)
{
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(names_in_classes); i++) {
        PyObject *name = PyList_GetItemRef(names_in_classes, i);
        PyObject *converter = name ? _PyType_LookupRef(type, name) : NULL;
        Py_XDECREF(name);
        if (converter != NULL && !is_python_class(Py_TYPE(converter)))
            r = check_converter(tx, converter);
        Py_XDECREF(converter);
    }
    return r;
}

static int
open_and_reach(Tx *tx, PyObject *obj, Reached *reached)
{
    PyTypeObject *type = Py_TYPE(obj);
    Kind kind = kind_of(tx, obj);
    if (kind == &class_kind || kind == &module_kind || kind == &function_kind || kind == &method_kind)
        return 0;       /* it makes nothing of them */
    bool is_view = PyDictViewSet_Check(obj) || PyDictValues_Check(obj);
    if (kind->c_state == C_STATE_UNKNOWN || kind == &generator_kind || (kind == &iterator_kind && !is_view))
        return exclusive_for(tx, "a look into", obj);
    if (kind == &instance_kind || is_python_class(type)) {
        if (check_converters_of(tx, type) < 0 || open_attributes(tx, obj) < 0 || reach_attributes(tx, obj, reached) < 0)
            return -1;
        if (kind == &instance_kind)
            return 0;
    }
    return kind->visit != NULL ? kind->visit(tx, obj, visit_reached, reached) : open_whole_read(tx, obj);
}

/* Open for reading all that can be reached from there by items and attributes. */
static int
open_reachable(Tx *tx, PyObject *obj)
{
    if (kind_of(tx, obj) == &inert_kind && !is_python_class(Py_TYPE(obj)))
        return 0;
    Reached reached;
    int r = reached_begin(&reached) < 0 ? -1 : reach(&reached, obj);
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(reached.todo); i++)
        r = i < MOST_REACHED ? open_and_reach(tx, PyList_GET_ITEM(reached.todo, i), &reached)
                             : exclusive_for(tx, "a look into all that is reached from", obj);
    reached_end(&reached);
    return r;
}

static int
open_argument(Tx *tx, PyObject *arg)
{
    bool is_data = PyType_Check(arg) || !PyCallable_Check(arg) || is_python_class(Py_TYPE(arg));
    if (is_data)
        return open_reachable(tx, arg);
    int known = is_known_to_read(tx, arg);
    return known < 0 ? -1 : known ? 0 : exclusive_for(tx, "call back of", arg);
}

int
open_conversion(Tx *tx, PyObject *converter, PyObject *const *args, Py_ssize_t n, PyObject *const *kwvalues, Py_ssize_t nkw)
{
    if (converter != NULL && check_converter(tx, converter) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (open_argument(tx, args[i]) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < nkw; i++) {
        PyObject *arg = kwvalues[i];
        if (is_python_class(Py_TYPE(arg)) && !captured(tx, arg) && kind_of(tx, arg) == &instance_kind)
            return exclusive_for(tx, "a conversion that may change", arg);
        if (open_argument(tx, arg) < 0)
            return -1;
    }
    return check_doomed(tx);
}
