/* XML: stand-ins for what parses it, and for the methods of elements.
 *
 * A parser, and a builder of trees, has state that cannot be put back: it is used by the transaction that has made it; later ones that
 * use it run alone.  What it calls are Python functions, with barriers of their own, or it runs alone.
 *
 * Elements are opened one by one (objects/element.c), as many as the original looks at: the children for `find`, what is below,
 * step by step, for `iter`.
 */
#include "trees.h"

#include "../core/tx.h"
#include "../objects/access.h"
#include "../objects/deep.h"
#include "../objects/element.h"
#include "../objects/known.h"
#include "calls.h"
#include "twins.h"

/* This thread's transaction, where a method of an element has been called that has to be opened; else NULL. */
static Tx *
tx_for(PyObject *const *args, Py_ssize_t n)
{
    Tx *tx = stm_self;
    return tx != NULL && tx->open && n > 0 && is_element(args[0]) ? tx : NULL;
}

static int
open_rest(Tx *tx, PyObject *const *args, Py_ssize_t from, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = from; i < all; i++) {
        if (tx->open && !is_constant(args[i]) && !is_element(args[i]) && open_deep_read(tx, args[i]) < 0)
            return -1;
    }
    return 0;
}

/* ---- Methods of elements ------------------------------------------------------------------- */

/* get, keys, items, __copy__ */
static PyObject *
read_attributes(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    if (tx != NULL && (open_rest(tx, args, 1, n, kwnames) < 0 || (tx->open && open_element_attributes(tx, args[0], false) < 0)))
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

static PyObject *
set_attribute(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    if (tx != NULL && (open_rest(tx, args, 1, n < 2 ? n : 2, NULL) < 0 || (tx->open && open_element_attributes(tx, args[0], true) < 0)))
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* append, insert, remove, clear, extend */
static PyObject *
change_children(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    for (Py_ssize_t i = 1; tx != NULL && tx->open && i < n; i++) {
        if (!is_element(args[i]) && open_iter(tx, args[i]) < 0)
            return NULL;
    }
    if (tx != NULL && tx->open && open_whole_write(tx, args[0]) < 0)
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* find, findall, findtext: where the path is more than a tag, code in Python goes on. */
static PyObject *
find_below(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, bool texts)
{
    Tx *tx = tx_for(args, n);
    if (tx != NULL && (open_rest(tx, args, 1, n < 2 ? n : 2, NULL) < 0 || (tx->open && open_children(tx, args[0], texts) < 0)))
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

static PyObject *
find_child(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return find_below(original, args, n, kwnames, false);
}

static PyObject *
find_text(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return find_below(original, args, n, kwnames, true);
}

/* What has just been made, unless the call failed. */
static PyObject *
own(PyObject *made)
{
    Tx *tx = stm_self;
    if (made != NULL && tx != NULL && tx->open && make_fresh(tx, made) < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *
copy_element(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return own(read_attributes(original, args, n, kwnames));
}

static PyObject *
copy_tree(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    if (tx == NULL)
        return PyObject_Vectorcall(original, args, n, kwnames);
    for (Py_ssize_t i = 1; tx->open && i < n; i++) {
        if (open_whole_write(tx, args[i]) < 0)
            return NULL;
    }
    if (tx->open && open_deep_read(tx, args[0]) < 0)
        return NULL;
    PyObject *made = PyObject_Vectorcall(original, args, n, kwnames);
    bool notes = n == 2 && PyDict_CheckExact(args[1]) && captured(tx, args[1]);
    if (made != NULL && tx->open && make_tree_fresh(tx, made, notes ? args[1] : NULL, NULL) < 0)
        Py_CLEAR(made);
    return made;
}

/* Element(tag, attributes), and makeelement */
static PyObject *
make_element(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && open_rest(tx, args, 0, n, kwnames) < 0)
        return NULL;
    return own(PyObject_Vectorcall(original, args, n, kwnames));
}

static PyObject *
make_subelement(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    if (tx != NULL && (open_rest(tx, args, 1, n, kwnames) < 0 || (tx->open && open_whole_write(tx, args[0]) < 0)))
        return NULL;
    return own(PyObject_Vectorcall(original, args, n, kwnames));
}

/* ---- All that is below --------------------------------------------------------------------- */

typedef struct { PyObject *element; Py_ssize_t next; } Step;

/* Stands in for the iterator of the original: the same steps, with each element opened before it is looked at. */
typedef struct {
    PyObject_HEAD
    PyObject *root;         /* not yet looked at, or NULL */
    PyObject *tag;          /* that is asked for, or None */
    bool texts;             /* it gives these */
    Py_ssize_t depth, room;
    Step *path;             /* whose children come next */
} Walk;

static int
walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Walk *w = (Walk *)self;
    Py_VISIT(w->root);
    Py_VISIT(w->tag);
    for (Py_ssize_t i = 0; i < w->depth; i++)
        Py_VISIT(w->path[i].element);
    return 0;
}

static int
walk_clear(PyObject *self)
{
    Walk *w = (Walk *)self;
    Py_CLEAR(w->root);
    Py_CLEAR(w->tag);
    while (w->depth > 0)
        Py_CLEAR(w->path[--w->depth].element);
    return 0;
}

static void
walk_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    walk_clear(self);
    PyMem_Free(((Walk *)self)->path);
    PyObject_GC_Del(self);
}

static int
go_down(Walk *w, PyObject *element)
{
    if (w->depth == w->room) {
        Py_ssize_t room = w->room == 0 ? 8 : 2 * w->room;
        Step *path = PyMem_Realloc(w->path, room * sizeof(Step));
        if (path == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        w->path = path;
        w->room = room;
    }
    w->path[w->depth++] = (Step){Py_NewRef(element), 0};
    return 0;
}

static int
open_element(PyObject *element)
{
    Tx *tx = stm_open;
    return tx == NULL ? 0 : open_whole_read(tx, element);
}

/* Its text or tail, if there is one: 1, 0, or -1. */
static int
get_text(PyObject *element, const char *which, PyObject **text)
{
    Tx *tx = stm_open;
    if ((tx != NULL && open_element_texts(tx, element) < 0) || (*text = PyObject_GetAttrString(element, which)) == NULL)
        return -1;
    int r = Py_IsNone(*text) ? 0 : PyObject_IsTrue(*text);
    if (r <= 0)
        Py_CLEAR(*text);
    return r;
}

/* Is it asked for? 1 with what is given for it, 0 or -1. */
static int
look_at(Walk *w, PyObject *element, PyObject **found)
{
    PyObject *tag = Py_NewRef(((Element *)element)->tag);
    int r;
    if (w->texts)
        r = Py_IsNone(tag) || PyUnicode_Check(tag) ? get_text(element, "text", found) : 0;
    else {
        bool plain = Py_IsNone(w->tag) || (is_constant(tag) && is_constant(w->tag));
        Tx *tx = stm_open;
        if (tx != NULL && !plain && (open_deep_read(tx, tag) < 0 || open_deep_read(tx, w->tag) < 0))
            r = -1;
        else
            r = Py_IsNone(w->tag) ? 1 : PyObject_RichCompareBool(tag, w->tag, Py_EQ);
        if (r > 0)
            *found = Py_NewRef(element);
    }
    Py_DECREF(tag);
    return r;
}

/* One step: 1 with what it gives, 0 without, -1 with an exception, or without one at the end. */
static int
go_on(Walk *w, PyObject **found)
{
    PyObject *element = w->root;
    w->root = NULL;
    if (element == NULL && w->depth == 0)
        return -1;
    if (element == NULL) {
        Step *last = &w->path[w->depth - 1];
        if (open_element(last->element) < 0)
            return -1;
        if (last->next >= element_size(last->element)) {
            element = last->element;
            w->depth--;
            int r = w->texts && w->depth > 0 ? get_text(element, "tail", found) : 0;
            Py_DECREF(element);
            return r;
        }
        element = Py_NewRef(element_child(last->element, last->next++));
    }
    int r = open_element(element) < 0 || go_down(w, element) < 0 ? -1 : look_at(w, element, found);
    Py_DECREF(element);
    return r;
}

static PyObject *
walk_next(PyObject *self)
{
    PyObject *found = NULL;
    int r;
    do {
        r = go_on((Walk *)self, &found);
    } while (r == 0);
    return found;
}

static PyTypeObject Walk_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "_elementtree._element_iterator",
    .tp_basicsize = sizeof(Walk),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = walk_dealloc,
    .tp_traverse = walk_traverse,
    .tp_clear = walk_clear,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = walk_next,
};

static PyObject *
walk(Tx *tx, PyObject *root, PyObject *tag, bool texts)
{
    bool all = (PyUnicode_Check(tag) && PyUnicode_EqualToUTF8(tag, "*"))
        || (PyBytes_Check(tag) && PyBytes_GET_SIZE(tag) == 1 && *PyBytes_AS_STRING(tag) == '*');
    Walk *w = PyObject_GC_New(Walk, &Walk_Type);
    if (w == NULL)
        return NULL;
    w->root = Py_NewRef(root);
    w->tag = Py_NewRef(all ? Py_None : tag);
    w->texts = texts;
    w->depth = w->room = 0;
    w->path = NULL;
    PyObject_GC_Track((PyObject *)w);
    if (make_fresh(tx, (PyObject *)w) < 0)
        Py_CLEAR(w);
    return (PyObject *)w;
}

/* iter(tag=None) */
static PyObject *
iterate(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    if (tx == NULL || n + named > 2 || (named == 1 && !PyUnicode_EqualToUTF8(PyTuple_GET_ITEM(kwnames, 0), "tag")))
        return PyObject_Vectorcall(original, args, n, kwnames);
    return walk(tx, args[0], n + named == 2 ? args[1] : Py_None, false);
}

static PyObject *
iterate_texts(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = tx_for(args, n);
    if (tx == NULL || n > 1 || kwnames != NULL)
        return PyObject_Vectorcall(original, args, n, kwnames);
    return walk(tx, args[0], Py_None, true);
}

/* ---- Parsers and builders -------------------------------------------------------------------- */

static PyTypeObject *builder_type;

/* A Python function, which has barriers of its own. */
static bool
is_in_python(PyObject *handler)
{
    return PyFunction_Check(handler) || (PyMethod_Check(handler) && PyFunction_Check(PyMethod_GET_FUNCTION(handler)));
}

/* Of an object whose methods of these names, if any, C code will call: exclusive unless they are in Python. */
static int
calls_python(Tx *tx, PyObject *target)
{
    static const char *const names[] = {"start_ns", "end_ns", "start", "data", "end", "comment", "pi", "close", "doctype"};
    int r = 0;
    for (size_t i = 0; r == 0 && tx->open && i < Py_ARRAY_LENGTH(names); i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        PyObject *of_class = name != NULL ? _PyType_LookupRef(Py_TYPE(target), name) : NULL, *found = NULL;
        r = name == NULL ? -1 : open_attr_read(tx, target, name);
        bool plain = Py_TYPE(target)->tp_getattro == PyObject_GenericGetAttr && (of_class == NULL || PyFunction_Check(of_class));
        if (r == 0 && tx->open && plain) {
            r = PyObject_GetOptionalAttr(target, name, &found) < 0 ? -1 : 0;
            plain = found == NULL || is_in_python(found);
        }
        if (r == 0 && tx->open && !plain)
            r = exclusive_for(tx, "parsing with a target whose methods are not all in Python,", target);
        Py_XDECREF(found);
        Py_XDECREF(of_class);
        Py_XDECREF(name);
    }
    return r;
}

/* XMLParser(target=None, encoding=None) */
static PyObject *
make_parser(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 0; tx != NULL && tx->open && i < all; i++) {
        int r = is_constant(args[i]) ? 0
            : !Py_IS_TYPE(args[i], builder_type) ? calls_python(tx, args[i])
            : is_fresh(tx, args[i]) ? 0 : exclusive_for(tx, "use of", args[i]);
        if (r < 0)
            return NULL;
    }
    return own(PyObject_Vectorcall(original, args, n, kwnames));
}

/* TreeBuilder(element_factory=None, comment_factory=None, ...): with functions of the program's for that, what it builds may be
 * anybody's. */
static PyObject *
make_builder(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 0; tx != NULL && tx->open && i < all; i++) {
        if (!is_constant(args[i]) && exclusive_for(tx, "a builder of trees with", args[i]) < 0)
            return NULL;
    }
    return own(PyObject_Vectorcall(original, args, n, kwnames));
}

/* Methods of parsers and builders: 0 where the original may be called. */
static int
open_own(PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open || n == 0)
        return 0;
    if (!is_fresh(tx, args[0]) && exclusive_for(tx, "use of", args[0]) < 0)
        return -1;
    return open_rest(tx, args, 1, n, kwnames);
}

static PyObject *
parse(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return open_own(args, n, kwnames) < 0 ? NULL : PyObject_Vectorcall(original, args, n, kwnames);
}

/* An element that a builder has made (start), or that is complete. */
static PyObject *
build(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    PyObject *element = parse(original, args, n, kwnames);
    if (element == NULL || tx == NULL || !tx->open || !is_element(element) || is_fresh(tx, element))
        return element;
    PyObject *builder = n > 0 ? Py_NewRef(args[0]) : NULL;
    if (builder != NULL && !Py_IS_TYPE(builder, builder_type))
        Py_SETREF(builder, PyObject_GetAttrString(builder, "target"));      /* of a parser */
    bool built = builder != NULL && Py_IS_TYPE(builder, builder_type);
    if (builder == NULL || (built && make_tree_fresh(tx, element, NULL, builder) < 0))
        Py_CLEAR(element);
    Py_XDECREF(builder);
    return element;
}

/* ParserCreate(encoding=None, namespace_separator=None, intern=None), whose dict the parser writes to from then on, and
 * parser.ExternalEntityParserCreate(context, encoding). */
static PyObject *
make_expat(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 0; tx != NULL && tx->open && i < all; i++) {
        if (!is_constant(args[i]) && open_whole_write(tx, args[i]) < 0)
            return NULL;
    }
    return own(PyObject_Vectorcall(original, args, n, kwnames));
}

/* ---- Handlers of expat's ---------------------------------------------------------------------- */

static setattrofunc set_attribute_of_parser;    /* the interpreter's */

/* Of a builder that this transaction has made: which nobody else can use. */
static bool
is_method_of_own_builder(Tx *tx, PyObject *handler)
{
    PyObject *self = PyCFunction_Check(handler) ? PyCFunction_GET_SELF(handler) : NULL;
    return self != NULL && Py_IS_TYPE(self, builder_type) && is_fresh(tx, self);
}

/* What it is to call when it parses. */
static int
set_handler(PyObject *parser, PyObject *name, PyObject *value)
{
    Tx *tx = stm_open;
    if (tx != NULL && value != NULL && PyCallable_Check(value) && !is_in_python(value) && !is_method_of_own_builder(tx, value)
        && exclusive_for(tx, "parsing with a handler that is not in Python,", value) < 0)
        return -1;
    return set_attribute_of_parser(parser, name, value);
}

void
watch_handlers(PyTypeObject *type)
{
    if (type->tp_setattro == set_handler)
        return;
    set_attribute_of_parser = type->tp_setattro;
    type->tp_setattro = set_handler;
    PyType_Modified(type);
}

/* ---- The table -------------------------------------------------------------------------------- */

#define TWIN(name, f) {name, _PyCFunction_CAST(f), METH_FASTCALL | METH_KEYWORDS, NULL}
static PyMethodDef twins[] = {
    TWIN("get", read_attributes),
    TWIN("keys", read_attributes),
    TWIN("items", read_attributes),
    TWIN("set", set_attribute),
    TWIN("append", change_children),
    TWIN("clear", change_children),
    TWIN("extend", change_children),
    TWIN("insert", change_children),
    TWIN("remove", change_children),
    TWIN("find", find_child),
    TWIN("findall", find_child),
    TWIN("findtext", find_text),
    TWIN("iter", iterate),
    TWIN("itertext", iterate_texts),
    TWIN("__copy__", copy_element),
    TWIN("__deepcopy__", copy_tree),
    TWIN("makeelement", make_element),
    TWIN("xml.etree.ElementTree.Element", make_element),
    TWIN("SubElement", make_subelement),
    TWIN("xml.etree.ElementTree.XMLParser", make_parser),
    TWIN("xml.etree.ElementTree.TreeBuilder", make_builder),
    TWIN("feed", parse),
    TWIN("flush", parse),
    TWIN("data", parse),
    TWIN("start", build),
    TWIN("end", build),
    TWIN("comment", build),
    TWIN("pi", build),
    TWIN("close", build),
    TWIN("Parse", parse),
    TWIN("ParserCreate", make_expat),
    TWIN("ExternalEntityParserCreate", make_expat),
    {NULL, NULL, 0, NULL},
};

PyObject *
tree_twin(PyObject *original)
{
    if (builder_type == NULL && PyType_Check(original) && strcmp(((PyTypeObject *)original)->tp_name, "xml.etree.ElementTree.TreeBuilder") == 0)
        builder_type = (PyTypeObject *)Py_NewRef(original);
    return find_twin(twins, original, original);
}

int
trees_init(void)
{
    return PyType_Ready(&Walk_Type) < 0 ? -1 : types_register(&Walk_Type, KIND_OPAQUE);
}
