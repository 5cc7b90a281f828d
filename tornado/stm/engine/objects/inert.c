/* What has no state that a transaction may write. */
#include "access.h"
#include "deep.h"

const struct Kind inert_kind = {
    .fixed_attributes = true,
    .plain = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
};

static int
visit_items(Tx *tx, PyObject *tuple, Visit visit, void *arg)
{
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple); i++)
        r = visit_unless_inert(tx, PyTuple_GET_ITEM(tuple, i), visit, arg);
    return r;
}

const struct Kind tuple_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .visit = visit_items,
};

static int
gather(PyObject *obj, void *arg)
{
    return obj == NULL || PyType_Check(obj) ? 0 : PyList_Append(arg, obj);
}

static int
visit_each(Tx *tx, PyObject *list, Visit visit, void *arg)
{
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++)
        r = visit_unless_inert(tx, PyList_GET_ITEM(list, i), visit, arg);
    return r;
}

int
visit_referents(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    PyTypeObject *type = c_base(Py_TYPE(obj));
    PyObject *inside = PyList_New(0);
    int r = inside == NULL || (type->tp_traverse != NULL && type->tp_traverse(obj, gather, inside) != 0) ? -1 : 0;
    if (r == 0)
        r = visit_each(tx, inside, visit, arg);
    Py_XDECREF(inside);
    return r;
}

const struct Kind record_kind = {
    .fixed_attributes = true,
    .compared_inside = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .visit = visit_referents,
};

/* Two weak references are equal if what they refer to is, and its name is printed. */
static int
visit_referent(Tx *tx, PyObject *reference, Visit visit, void *arg)
{
    static PyObject *name;
    PyObject *obj = NULL;
    if (name == NULL)
        name = PyUnicode_InternFromString("__name__");
    if (PyWeakref_GetRef(reference, &obj) <= 0)
        return check_doomed(tx);
    int r = open_attr_read(tx, obj, name) < 0 ? -1 : visit_unless_inert(tx, obj, visit, arg);
    Py_DECREF(obj);
    return r;
}

const struct Kind reference_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .visited_in_part = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .visit = visit_referent,
};

/* What it would be made of anew, as it tells who pickles it: that calls nothing. */
static PyObject *
told_items(PyObject *obj)
{
    PyObject *told = PyObject_CallMethod(obj, "__reduce__", NULL), *maker, *items = NULL;
    if (told != NULL && PyTuple_CheckExact(told) && PyArg_ParseTuple(told, "O(O!)", &maker, &PyList_Type, &items))
        Py_INCREF(items);
    else
        items = NULL;
    PyErr_Clear();
    Py_XDECREF(told);
    return items;
}

static int
visit_told(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    PyObject *items = told_items(obj);
    if (items == NULL)
        return exclusive_for(tx, "a look into all of", obj);
    int r = visit_each(tx, items, visit, arg);
    Py_DECREF(items);
    return r;
}

const struct Kind persistent_kind = {
    .fixed_attributes = true,
    .compared_inside = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .visit = visit_told,
};
