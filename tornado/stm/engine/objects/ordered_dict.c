/* collections.OrderedDict: locked whole.
 *
 * An iterator over it looks its keys up; only its count of changes is put back.
 */
#include "access.h"
#include "dict.h"

#include "internal/pycore_dict.h"

typedef struct {
    PyDictObject dict;
    void *first, *last, **nodes;
    Py_ssize_t size;
    void *sentinel;
    size_t changes;
    PyObject *attributes, *weakrefs;
} OrderedDict;

static Py_ssize_t
odict_changes(PyObject *od)
{
    return PyODict_Type.tp_basicsize == sizeof(OrderedDict) ? (Py_ssize_t)((OrderedDict *)od)->changes : 0;
}

static void
odict_restore_changes(PyObject *od, Py_ssize_t changes)
{
    if (PyODict_Type.tp_basicsize == sizeof(OrderedDict))
        ((OrderedDict *)od)->changes = (size_t)changes;
}

static PyObject *
pairs(PyObject *od)
{
    PyObject *view = c_method_result(od, "items", NULL);
    PyObject *list = view ? PySequence_List(view) : NULL;
    Py_XDECREF(view);
    return list;
}

static PyObject *
ordered_dict_contents(PyObject *od)
{
    PyObject *items = pairs(od), *copy = items ? PyDict_New() : NULL;
    if (copy != NULL && PyDict_MergeFromSeq2(copy, items, 1) < 0)
        Py_CLEAR(copy);
    Py_XDECREF(items);
    return copy;
}

static int
put_contents_back(Tx *tx, Undo *u)
{
    displace(tx, pairs(u->obj));
    int r = call_c_method(u->obj, "clear", NULL);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; r == 0 && PyDict_Next(u->old, &at, &key, &value);)
        r = PyODict_SetItem(u->obj, key, value);
    if (r == 0)
        odict_restore_changes(u->obj, u->n);
    return r;
}

static void
note_changes(Tx *Py_UNUSED(tx), Undo *u)
{
    u->n = odict_changes(u->obj);
}

static const UndoKind undo_ordered_dict = {.what = "all", .undo = put_contents_back, .logged = note_changes};

const struct Kind ordered_dict_kind = {
    .plain = true,
    .compared_inside = true,
    .mapping = true,
    .made_captured = true,
    .read_whole = lock_container_read,
    .write_whole = lock_container_write,
    .visit = visit_dict,
    .contents = ordered_dict_contents,
    .undo = &undo_ordered_dict,
};
