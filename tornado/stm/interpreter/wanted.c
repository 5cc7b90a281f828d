/* What a transaction is about to lock, by a name that the user knows: Session.hits, app.cache['k'], a list.
 *
 * A cell is a hash of an object and a key, and whoever locks it does not say of what.  But the hash can be undone: with the
 * object, its key follows.  And when a conflict is told of, the object lies on the stack of the function that asks for it, or in one of its
 * variables; its key, too, or it is one of the names and constants of the code.  So all of these are tried.  What C code has
 * taken from somewhere else is not found.
 */
#include "wanted.h"

#include "core/orec.h"
#include "locations.h"
#include "objects/instance.h"
#include "objects/namespaces.h"
#include "thread.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"
#include "internal/pycore_stackref.h"

#include <string.h>

#define MOST_FRAMES 3       /* from the innermost outwards */
#define MOST_TEXT 256
#define LONGEST_KEY 200
#define MOST_PARTS 8        /* of a tuple */
#define MOST_NAMES 10000    /* they live for ever, and a program has as many keys as it has users: of more only the containers are told */

/* ---- The object ------------------------------------------------------------------------ */

/* Whose hash and text no code of the program makes, and soon. */
static bool
is_plain(PyObject *o, int depth)
{
    if (!PyTuple_CheckExact(o))
        return PyUnicode_CheckExact(o) ? PyUnicode_GET_LENGTH(o) <= LONGEST_KEY
            : PyBytes_CheckExact(o) ? PyBytes_GET_SIZE(o) <= LONGEST_KEY : PyLong_CheckExact(o) && _PyLong_IsCompact((PyLongObject *)o);
    if (PyTuple_GET_SIZE(o) > MOST_PARTS)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
        if (depth == 0 || !is_plain(PyTuple_GET_ITEM(o, i), depth - 1))
            return false;
    }
    return true;
}

/* Is this the key, or its name, of a cell?  Attributes without a dict and those of functions are known by other bits than keys. */
static bool
is_key(PyObject *key, uint64_t bits)
{
    static const uint64_t kinds[] = {0, SLOT_BITS, FUNCTION_BITS};
    if (!is_plain(key, 2))
        return false;
    uint64_t hash = key_bits(PyObject_Hash(key));
    for (size_t i = 0; i < Py_ARRAY_LENGTH(kinds); i++) {
        if (bits == (hash ^ kinds[i]))
            return true;
    }
    return false;
}

typedef struct {
    Cell cell;
    _PyInterpreterFrame *frame;
    PyObject *object;       /* borrowed from the stack */
    PyObject *key;          /* likewise, or from the code; NULL: all of the object */
    bool attribute;
} Wanted;

static PyObject *
find_key(Wanted *w, uint64_t bits)
{
    PyCodeObject *code = _PyFrame_GetCode(w->frame);
    PyObject *tuples[] = {code->co_names, code->co_consts};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(tuples); i++) {
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuples[i]); k++) {
            if (is_key(PyTuple_GET_ITEM(tuples[i], k), bits))
                return PyTuple_GET_ITEM(tuples[i], k);
        }
    }
    for (_PyStackRef *s = w->frame->localsplus; s < w->frame->stackpointer; s++) {
        PyObject *o = PyStackRef_IsNullOrInt(*s) ? NULL : PyStackRef_AsPyObjectBorrow(*s);
        if (o != NULL && is_key(o, bits))
            return o;
    }
    return NULL;
}

/* Is it a cell of that memory, which the object is known by? */
static bool
is_of(Wanted *w, const void *memory, PyObject *object, bool attribute)
{
    if (memory == NULL)
        return false;
    uint64_t bits = key_of_cell(w->cell, memory);
    if (bits != WHOLE && (w->key = bits == MISSING_BITS ? stm_dict_name : find_key(w, bits)) == NULL)
        return false;
    w->object = object;
    w->attribute = attribute || bits == MISSING_BITS;
    return true;
}

static bool
is_wanted(Wanted *w, PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    if (is_of(w, o, o, !PyDict_Check(o) && !PyAnySet_Check(o)))
        return true;
    if ((type->tp_flags & Py_TPFLAGS_INLINE_VALUES) && is_of(w, _PyObject_InlineValues(o), o, true))
        return true;
    PyObject *dict = type->tp_flags & Py_TPFLAGS_MANAGED_DICT ? (PyObject *)_PyObject_GetManagedDict(o)
        : PyModule_Check(o) ? PyModule_GetDict(o) : PyType_Check(o) ? ((PyTypeObject *)o)->tp_dict : NULL;
    if (is_of(w, dict, o, true))
        return true;
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && is_of(w, type->tp_dict, (PyObject *)type, true);
}

static bool
find(Tx *tx, Wanted *w)
{
    int frames = 0;
    for (_PyInterpreterFrame *f = tx->tstate->current_frame; f != NULL && f != thread_of(tx)->locations.base; f = f->previous) {
        if (_PyFrame_IsIncomplete(f))   /* such as the one that the interpreter puts under that of an `__init__`: it has no globals */
            continue;
        if (frames++ == MOST_FRAMES)
            break;
        w->frame = f;
        if (is_of(w, f->f_globals, f->f_globals, true))
            return true;
        for (_PyStackRef *s = f->stackpointer; s-- > f->localsplus;) {
            if (!PyStackRef_IsNullOrInt(*s) && is_wanted(w, PyStackRef_AsPyObjectBorrow(*s)))
                return true;
        }
    }
    return false;
}

/* ---- Its name ---------------------------------------------------------------------------- */

/* The name of this code under which a value is in that dict, or NULL.  Of names only: a key of another type might compare itself. */
static PyObject *
name_in(PyObject *dict, PyObject *names, PyObject *value)
{
    PyDictKeysObject *keys = dict != NULL ? _Py_atomic_load_ptr_acquire(&((PyDictObject *)dict)->ma_keys) : NULL;
    if (keys == NULL || !DK_IS_UNICODE(keys))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *found = NULL;
        if (PyDict_GetItemRef(dict, PyTuple_GET_ITEM(names, i), &found) < 0)
            PyErr_Clear();
        bool same = found == value;
        Py_XDECREF(found);
        if (same)
            return PyTuple_GET_ITEM(names, i);
    }
    return NULL;
}

/* The name of an attribute of that instance that has this value, or NULL. */
static PyObject *
attribute_of(PyObject *instance, PyObject *names, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(instance);
    PyDictValues *values = type->tp_flags & Py_TPFLAGS_INLINE_VALUES ? _PyObject_InlineValues(instance) : NULL;
    if (values == NULL || !values->valid)
        return type->tp_flags & Py_TPFLAGS_MANAGED_DICT ? name_in((PyObject *)_PyObject_GetManagedDict(instance), names, value) : NULL;
    PyDictKeysObject *keys = ((PyHeapTypeObject *)type)->ht_cached_keys;
    Py_ssize_t n = _Py_atomic_load_ssize_acquire(&keys->dk_nentries);
    for (Py_ssize_t i = 0; i < n && i < values->capacity; i++) {
        if (_Py_atomic_load_ptr_relaxed(&values->values[i]) == value)
            return DK_UNICODE_ENTRIES(keys)[i].me_key;
    }
    return NULL;
}

/* Of a module with those globals. */
static PyObject *
name_of_module(PyObject *globals)
{
    PyObject *name = NULL;
    if (PyDict_GetItemStringRef(globals, "__name__", &name) < 0)
        PyErr_Clear();
    if (name != NULL && !PyUnicode_Check(name))
        Py_CLEAR(name);
    return name != NULL ? name : PyUnicode_FromString("?");
}

/* As the code calls it: a global, an attribute of one of its variables, or else by its type, with its type if all of it is wanted.
 * What is wanted with a key that is an attribute belongs to the type: instances are many. */
static PyObject *
name_of_object(Wanted *w)
{
    PyObject *o = w->object, *names = _PyFrame_GetCode(w->frame)->co_names, *found;
    if (o == w->frame->f_globals)
        return name_of_module(o);
    if (PyModule_Check(o))
        return name_of_module(PyModule_GetDict(o));
    if (PyType_Check(o))
        return PyUnicode_FromString(((PyTypeObject *)o)->tp_name);
    if (w->attribute && w->key != NULL)
        return PyUnicode_FromString(Py_TYPE(o)->tp_name);
    const char *of_all[] = {" (", Py_TYPE(o)->tp_name, ")"}, *of_key[] = {"", "", ""}, **type = w->key == NULL ? of_all : of_key;
    if ((found = name_in(w->frame->f_globals, names, o)) != NULL) {
        PyObject *module = name_of_module(w->frame->f_globals);
        PyObject *name = module != NULL ? PyUnicode_FromFormat("%U.%U%s%s%s", module, found, type[0], type[1], type[2]) : NULL;
        Py_XDECREF(module);
        return name;
    }
    for (_PyStackRef *s = w->frame->localsplus; s < w->frame->stackpointer; s++) {
        PyObject *local = PyStackRef_IsNullOrInt(*s) ? NULL : PyStackRef_AsPyObjectBorrow(*s);
        if (local != NULL && (found = attribute_of(local, names, o)) != NULL)
            return PyUnicode_FromFormat("%s.%U%s%s%s", Py_TYPE(local)->tp_name, found, type[0], type[1], type[2]);
    }
    return PyUnicode_FromFormat("%s object", Py_TYPE(o)->tp_name);
}

static PyObject *
describe(Wanted *w)
{
    PyObject *name = name_of_object(w), *text = NULL;
    if (name == NULL || w->key == NULL)
        return name;
    if (w->attribute && PyUnicode_Check(w->key))
        text = PyUnicode_FromFormat("%U.%U", name, w->key);
    else
        text = PyUnicode_FromFormat("%U[%.100R]", name, w->key);
    Py_DECREF(name);
    return text;
}

/* Interned, or NULL. */
static const char *
interned_name(Wanted *w)
{
    static _Atomic int n_names;
    PyObject *text = describe(w);
    PyObject *bytes = text != NULL ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;
    const char *name = NULL;
    if (bytes != NULL && strlen(PyBytes_AS_STRING(bytes)) < MOST_TEXT) {
        name = text_known(PyBytes_AS_STRING(bytes));
        if (name == NULL && (w->key == NULL || w->attribute || atomic_fetch_add(&n_names, 1) < MOST_NAMES))
            name = text_intern(PyBytes_AS_STRING(bytes));
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    PyErr_Clear();
    return name;
}

const char *
name_of_cell(Tx *tx, Cell c)
{
    Wanted w = {.cell = c};
    if (!find(tx, &w))
        return NULL;
    PyObject *raised = PyErr_GetRaisedException();
    tx_pause(tx);
    const char *name = interned_name(&w);
    if (name == NULL && w.key != NULL && !w.attribute) {
        w.key = NULL;
        name = interned_name(&w);
    }
    tx_resume(tx);
    PyErr_SetRaisedException(raised);
    return name;
}
