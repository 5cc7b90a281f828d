/* collections.OrderedDict: locked whole.
 *
 * The log has a copy; a rollback exchanges all that the two have, and the count of changes, by which iterators
 * notice these, comes back.
 */
#include "ordered_dict.h"

#include "access.h"
#include "dict.h"
#include "dictkeys.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_list.h"

typedef struct Node {
    PyObject *key;
    Py_hash_t hash;
    struct Node *next, *prev;
} Node;

typedef struct {
    PyDictObject dict;
    Node *first, *last, **nodes;
    Py_ssize_t size;
    void *sentinel;
    size_t changes;
    PyObject *attributes, *weakrefs;
} OrderedDict;

/* Its pairs, as they are at one moment; no method of a key runs. A new list, or NULL with an exception. */
static PyObject *
pairs_of(PyObject *od)
{
    PyObject *pairs = PyList_New(0);
    Py_BEGIN_CRITICAL_SECTION(od);
    for (Node *node = ((OrderedDict *)od)->first; pairs != NULL && node != NULL; node = node->next) {
        PyObject *value = dict_value(od, node->key, node->hash), *pair = value ? PyTuple_Pack(2, node->key, value) : NULL;
        Py_XDECREF(value);
        if (value != NULL && (pair == NULL || _PyList_AppendTakeRef((PyListObject *)pairs, pair) < 0))
            Py_CLEAR(pairs);
    }
    Py_END_CRITICAL_SECTION();
    return pairs;
}

static PyObject *
ordered_dict_contents(PyObject *od)
{
    PyObject *items = pairs_of(od), *copy = items ? PyODict_New() : NULL;
    for (Py_ssize_t i = 0; copy != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i);
        if (PyODict_SetItem(copy, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)) < 0)
            Py_CLEAR(copy);
    }
    Py_XDECREF(items);
    return copy;
}

static int
put_contents_back(Tx *tx, Undo *u)
{
    OrderedDict *a = (OrderedDict *)u->obj, *b = (OrderedDict *)u->old;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    dict_exchange(u->obj, u->old);      /* neither is the view of an instance */
    OrderedDict was = *a;
    a->first = b->first;
    a->last = b->last;
    a->nodes = b->nodes;
    a->size = b->size;
    a->sentinel = b->sentinel;
    a->changes = (size_t)u->n;
    b->first = was.first;
    b->last = was.last;
    b->nodes = was.nodes;
    b->size = was.size;
    b->sentinel = was.sentinel;
    Py_END_CRITICAL_SECTION();
    displace(tx, Py_NewRef(u->old));
    return 0;
}

static int
note_changes(Tx *Py_UNUSED(tx), Undo *u)
{
    u->n = (Py_ssize_t)((OrderedDict *)u->obj)->changes;
    return 0;
}

static const UndoKind undo_ordered_dict = {.what = "all", .undo = put_contents_back, .logged = note_changes};

int
ordered_dict_init(void)
{
    if (PyODict_Type.tp_basicsize == sizeof(OrderedDict))
        return 0;
    PyErr_Format(PyExc_SystemError, "OrderedDicts of this interpreter are of another size: %zd", PyODict_Type.tp_basicsize);
    return -1;
}

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
