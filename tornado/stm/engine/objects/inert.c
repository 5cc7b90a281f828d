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

int
visit_referents(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    PyTypeObject *type = c_base(Py_TYPE(obj));
    PyObject *inside = PyList_New(0);
    int r = inside == NULL || (type->tp_traverse != NULL && type->tp_traverse(obj, gather, inside) != 0) ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(inside); i++)
        r = visit_unless_inert(tx, PyList_GET_ITEM(inside, i), visit, arg);
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

/* What it would be made of anew, as it tells who pickles it: that calls nothing. */
static PyObject *
told_items(PyObject *obj)
{
    PyObject *told = PyObject_CallMethod(obj, "__reduce__", NULL), *items = NULL;
    if (told != NULL && PyTuple_CheckExact(told) && PyTuple_GET_SIZE(told) == 2 && PyTuple_CheckExact(PyTuple_GET_ITEM(told, 1))
        && PyTuple_GET_SIZE(PyTuple_GET_ITEM(told, 1)) == 1) {
        PyObject *list = PyTuple_GET_ITEM(PyTuple_GET_ITEM(told, 1), 0);
        items = PyList_CheckExact(list) ? Py_NewRef(list) : NULL;
    }
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
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++)
        r = visit_unless_inert(tx, PyList_GET_ITEM(items, i), visit, arg);
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
