/* Elements of trees of XML, in C (_elementtree).
 *
 * Each is locked by itself, and its structure is copied before it is changed: a rollback lets the copy and what is there then change
 * places.  A tree that a transaction has parsed, made or copied is its own, and needs neither.
 *
 * An element's attributes are a dict, which the program may have given it, or been given: it is opened like any other, but for one
 * that nobody but an element of the transaction's own refers to.
 *
 * Who asks for a text joins the pieces that a parser has left, and who asks for attributes may make the dict.  That changes nothing
 * that the program could see, so it is never undone, but it takes an exclusive lock.
 *
 * Invariant.  What make_tree_fresh() takes for the transaction's own can be reached by nobody else: C code has just made it,
 * or a single reference leads to it, from such an element.  (What somebody has referred to before, the undo log does now.)
 */
#include "element.h"

#include "../calls/calls.h"
#include "access.h"
#include "deep.h"
#include "known.h"

static PyTypeObject *element_type;      /* NULL: the module has not been imported, or is another one */
static PyObject *tag_name, *text_name, *tail_name, *attrib_name;

bool
is_element(PyObject *obj)
{
    return element_type != NULL && PyObject_TypeCheck(obj, element_type);
}

static inline ElementRest *
rest_of(PyObject *element)
{
    return ((Element *)element)->rest;
}

Py_ssize_t
element_size(PyObject *element)
{
    return rest_of(element) == NULL ? 0 : rest_of(element)->n;
}

PyObject *
element_child(PyObject *element, Py_ssize_t i)
{
    return rest_of(element)->children[i];
}

static bool
is_in_pieces(PyObject *element)
{
    Element *e = (Element *)element;
    return (((uintptr_t)e->text | (uintptr_t)e->tail) & 1) != 0;
}

/* ---- The copy ----------------------------------------------------------------------------- */

/* With references of its own. */
typedef struct { PyObject *tag, *text, *tail; ElementRest *rest; } Parts;

static PyObject *
without_bit(PyObject *text)
{
    return (PyObject *)((uintptr_t)text & ~(uintptr_t)1);
}

static void
drop_rest(ElementRest *rest)
{
    if (rest == NULL)
        return;
    Py_XDECREF(rest->attributes);
    for (Py_ssize_t i = 0; i < rest->n; i++)
        Py_DECREF(rest->children[i]);
    if (rest->children != rest->few)
        PyMem_Free(rest->children);
    PyMem_Free(rest);
}

/* As the original would make it. */
static ElementRest *
copy_rest(const ElementRest *rest)
{
    ElementRest *copy = PyMem_Malloc(sizeof(ElementRest));
    bool many = rest->n > (Py_ssize_t)Py_ARRAY_LENGTH(rest->few);
    PyObject **children = copy == NULL ? NULL : many ? PyMem_Malloc(rest->n * sizeof(PyObject *)) : copy->few;
    if (children == NULL) {
        PyMem_Free(copy);
        PyErr_NoMemory();
        return NULL;
    }
    copy->attributes = Py_XNewRef(rest->attributes);
    copy->n = rest->n;
    copy->allocated = many ? rest->n : (Py_ssize_t)Py_ARRAY_LENGTH(rest->few);
    copy->children = children;
    for (Py_ssize_t i = 0; i < rest->n; i++)
        children[i] = Py_NewRef(rest->children[i]);
    return copy;
}

static int
swap_back(Tx *Py_UNUSED(tx), Undo *u)
{
    Element *e = (Element *)u->obj;
    Parts *copy = u->mem, now = {e->tag, e->text, e->tail, e->rest};
    e->tag = copy->tag;
    e->text = copy->text;
    e->tail = copy->tail;
    e->rest = copy->rest;
    *copy = now;
    return 0;
}

static void
forget(Undo *u)
{
    Parts *copy = u->mem;
    Py_DECREF(copy->tag);
    Py_DECREF(without_bit(copy->text));
    Py_DECREF(without_bit(copy->tail));
    drop_rest(copy->rest);
    PyMem_RawFree(copy);
}

static const UndoKind undo_element = {.what = "the parts", .undo = swap_back, .forget = forget};

/* Log it, which this transaction owns. */
static int
log_element_parts(Tx *tx, PyObject *element)
{
    Element *e = (Element *)element;
    Parts *copy = PyMem_RawMalloc(sizeof(Parts));
    ElementRest *rest = copy == NULL || e->rest == NULL ? NULL : copy_rest(e->rest);
    Undo *u = copy == NULL || (rest == NULL && e->rest != NULL) ? NULL : undo_push(tx, &undo_element, element, NULL, NULL);
    if (u == NULL) {
        if (copy == NULL)
            PyErr_NoMemory();
        PyMem_RawFree(copy);
        drop_rest(rest);
        return -1;
    }
    Py_INCREF(e->tag);
    Py_INCREF(without_bit(e->text));
    Py_INCREF(without_bit(e->tail));
    *copy = (Parts){e->tag, e->text, e->tail, rest};
    u->mem = copy;
    note_opened(tx, element, OPENED_SNAPSHOT);
    return 0;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static int
read_element(Tx *tx, PyObject *element)
{
    if (is_fresh(tx, element))
        return check_doomed(tx);
    return lock_container_read(tx, element);
}

/* The same, to ask for its text or tail. */
int
open_element_texts(Tx *tx, PyObject *element)
{
    if (read_element(tx, element) < 0)
        return -1;
    return LIKELY(!is_in_pieces(element)) || is_fresh(tx, element) ? 0 : own_whole(tx, element);
}

static int
write_element(Tx *tx, PyObject *element)
{
    if (is_fresh(tx, element))
        return check_doomed(tx);
    if (own_whole(tx, element) < 0)
        return -1;
    return tx->grade == GRADE_EXCLUSIVE || snapshot_taken(tx, element) ? 0 : log_element_parts(tx, element);
}

/* Does this thread alone refer to it, so many times? */
static bool
has_references(PyObject *obj, Py_ssize_t n)
{
    return obj->ob_tid == _Py_ThreadId() && obj->ob_ref_shared == 0 && obj->ob_ref_local == (uint32_t)n;
}

int
open_element_attributes(Tx *tx, PyObject *element, bool write)
{
    if ((write ? write_element : read_element)(tx, element) < 0)
        return -1;
    PyObject *dict = rest_of(element) == NULL ? NULL : rest_of(element)->attributes;
    if (dict == NULL || (is_fresh(tx, element) && has_references(dict, 1)))
        return 0;
    return write ? open_whole_write(tx, dict) : open_whole_read(tx, dict);
}

int
open_children(Tx *tx, PyObject *element, bool texts)
{
    if (read_element(tx, element) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < element_size(element); i++) {
        if ((texts ? open_element_texts : read_element)(tx, element_child(element, i)) < 0)
            return -1;
    }
    return 0;
}

/* Is that one of the attributes in C, and does the object's class, if it is a derived one, leave it to them? */
static bool
is_part(PyObject *element, PyObject *name)
{
    if (!PyUnicode_Equal(name, text_name) && !PyUnicode_Equal(name, tag_name) && !PyUnicode_Equal(name, tail_name)
        && !PyUnicode_Equal(name, attrib_name))
        return false;
    if (Py_IS_TYPE(element, element_type))
        return true;
    PyObject *here = _PyType_LookupRef(Py_TYPE(element), name), *there = _PyType_LookupRef(element_type, name);
    bool same = here == there;
    Py_XDECREF(here);
    Py_XDECREF(there);
    return same;
}

/* 1: another name. */
static int
read_attr(Tx *tx, PyObject *element, PyObject *name)
{
    if (!is_part(element, name))
        return 1;
    if (PyUnicode_Equal(name, text_name) || PyUnicode_Equal(name, tail_name))
        return open_element_texts(tx, element);
    if (PyUnicode_Equal(name, tag_name))
        return read_element(tx, element);
    if (read_element(tx, element) < 0)
        return -1;
    if ((rest_of(element) != NULL && rest_of(element)->attributes != NULL) || is_fresh(tx, element))
        return 0;
    if (own_whole(tx, element) < 0)
        return -1;
    PyObject *dict = PyObject_GenericGetAttr(element, name);    /* which makes it, maybe where a captured one has died */
    if (dict == NULL)
        return -1;
    forget_capture(tx, dict);
    Py_DECREF(dict);
    return 0;
}

static int
change_attr(Tx *tx, PyObject *element, PyObject *name, bool Py_UNUSED(del), bool Py_UNUSED(raw))
{
    return is_part(element, name) ? write_element(tx, element) : 1;
}

static int
visit_element(Tx *tx, PyObject *element, Visit visit, void *arg)
{
    return open_element_texts(tx, element) < 0 ? -1 : visit_referents(tx, element, visit, arg);
}

static bool
element_may_be_biased(PyObject *element)
{
    return Py_IS_TYPE(element, element_type);   /* a derived one's attributes have cells of their own */
}

const struct Kind element_kind = {
    .c_state = C_STATE_WHOLE,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .read_whole = read_element,
    .write_whole = write_element,
    .visit = visit_element,
    .may_be_biased = element_may_be_biased,
};

/* ---- Own trees ----------------------------------------------------------------------------- */

typedef struct { PyObject *counted; Py_ssize_t n; } Count;

static int
count_reference(PyObject *obj, void *arg)
{
    Count *count = arg;
    if (obj == count->counted)
        count->n++;
    else if (obj != NULL && PyList_CheckExact(obj)) {   /* a builder's stack */
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); i++)
            count->n += PyList_GET_ITEM(obj, i) == count->counted;
    }
    return 0;
}

static bool
is_private(PyObject *child, PyObject *copies, PyObject *builder)
{
    Py_ssize_t n = 1 + (copies != NULL);
    if (!Py_IS_TYPE(child, element_type))
        return false;
    if (has_references(child, n))
        return true;
    if (builder == NULL)
        return false;
    Count count = {child, n};
    Py_TYPE(builder)->tp_traverse(builder, count_reference, &count);
    return has_references(child, count.n);
}

int
make_tree_fresh(Tx *tx, PyObject *element, PyObject *copies, PyObject *builder)
{
    PyObject *todo = PyList_New(0);
    int r = todo == NULL || make_fresh(tx, element) < 0 ? -1 : 0;
    while (r == 0 && element != NULL) {
        for (Py_ssize_t i = 0; r == 0 && i < element_size(element); i++) {
            PyObject *child = element_child(element, i);
            if (!is_private(child, copies, builder))
                continue;
            r = make_fresh(tx, child);
            if (r == 0 && element_size(child) > 0)
                r = PyList_Append(todo, child);
        }
        Py_ssize_t left = PyList_GET_SIZE(todo);
        element = left == 0 ? NULL : PyList_GET_ITEM(todo, left - 1);      /* the transaction keeps it */
        if (left > 0 && r == 0)
            r = PyList_SetSlice(todo, left - 1, left, NULL);
    }
    Py_XDECREF(todo);
    return r;
}

/* ---- Once, when the module is imported -------------------------------------------------------- */

/* Does an element with an attribute and five children look like one? */
static bool
looks_like_one(PyObject *element, PyObject *attributes, PyObject *child)
{
    Element *e = (Element *)element;
    bool is_as_expected = PyUnicode_EqualToUTF8(e->tag, "a") && e->text == Py_None && e->tail == Py_None && e->weakrefs == NULL
        && e->rest != NULL && e->rest->attributes != NULL && e->rest->n == 5 && e->rest->allocated >= 5
        && e->rest->children != e->rest->few && PyObject_RichCompareBool(e->rest->attributes, attributes, Py_EQ) == 1;
    for (int i = 0; is_as_expected && i < 5; i++)
        is_as_expected = e->rest->children[i] == child;
    return is_as_expected;
}

int
element_begin(PyTypeObject *type)
{
    tag_name = PyUnicode_InternFromString("tag");
    text_name = PyUnicode_InternFromString("text");
    tail_name = PyUnicode_InternFromString("tail");
    attrib_name = PyUnicode_InternFromString("attrib");
    PyObject *attributes = Py_BuildValue("{s:s}", "b", "c");
    PyObject *child = PyObject_CallFunction((PyObject *)type, "s", "d");
    PyObject *example = attributes != NULL ? PyObject_CallFunction((PyObject *)type, "sO", "a", attributes) : NULL;
    bool made = tag_name && text_name && tail_name && attrib_name && child != NULL && example != NULL;
    for (int i = 0; made && i < 5; i++) {
        PyObject *r = PyObject_CallMethod(example, "append", "O", child);
        made = r != NULL;
        Py_XDECREF(r);
    }
    if (made && type->tp_basicsize == sizeof(Element) && looks_like_one(example, attributes, child))
        element_type = type;
    else if (made)
        PyErr_SetString(PyExc_RuntimeError, "elements have another structure in this Python");
    Py_XDECREF(attributes);
    Py_XDECREF(child);
    Py_XDECREF(example);
    return element_type == NULL ? -1 : 0;
}
