/* Attributes that C code makes when they are read: by a descriptor in the class.
 *
 * Those of the interpreter (functions, properties, slots) are known by their types.  Any other, such as a lazily computed property
 * of an extension module, is C code that may do anything, at a place that looks like a read of the instance.  So whenever a thread
 * meets a class that it does not know, the types of what lies in it and in its bases are looked at; the __get__ of one that is in C
 * and not known is exchanged for ours, which asks before it calls that.  A method's __get__ only binds: such types say so by a flag.
 *
 * Invariant.  Of a type whose version has been seen here, no descriptor with an unknown __get__ goes past ours.
 */
#include "descriptor.h"

#include "../../interpreter/loop.h"
#include "../calls/callbacks.h"
#include "access.h"
#include "special.h"

/* ---- Of the kind MEMO: propcache's properties ---------------------------------------------------------------------------- */

const struct Kind memo_kind = {.fixed_attributes = true, .plain = true, .write_whole = open_nothing, .read_key = open_no_key};

static PyObject *
attribute(PyObject *o, const char *name)
{
    PyObject *value = PyObject_GetAttrString(o, name);
    if (value == NULL)
        PyErr_Clear();
    return value;
}

/* under_cached_property: what its function returns is kept under the function's name, in the dict that is the instance's attribute
 * _cache.  Whoever reads it shall find it there. */
static int
open_under_cache(Tx *tx, PyObject *obj, PyObject *function, PyObject *name)
{
    static PyObject *cache_name;
    if (cache_name == NULL && (cache_name = PyUnicode_InternFromString("_cache")) == NULL)
        return -1;
    PyObject *cache = open_attr_read(tx, obj, cache_name) < 0 ? NULL : PyObject_GetAttr(obj, cache_name);
    int r = cache == NULL ? -1 : 0;
    if (r == 0 && !PyDict_CheckExact(cache))
        r = exclusive_for(tx, "a cache that is no dict, of", obj);
    else if (r == 0 && (r = open_key_read(tx, cache, name)) == 0 && (r = PyDict_Contains(cache, name)) == 0) {
        PyObject *value = stm_call(function, &obj, 1, NULL);
        r = value == NULL || (tx->open && open_key_write(tx, cache, name, false) < 0) ? -1 : PyDict_SetItem(cache, name, value);
        Py_XDECREF(value);
    }
    Py_XDECREF(cache);
    return r < 0 ? -1 : 0;
}

/* cached_property: what its function returns becomes the instance's attribute, which was looked for before. */
static PyObject *
make_cached(Tx *tx, PyObject *obj, PyObject *function, PyObject *name)
{
    PyObject *value = stm_call(function, &obj, 1, NULL);
    if (value != NULL && ((tx->open && open_attr_write(tx, obj, name, false) < 0) || PyObject_GenericSetAttr(obj, name, value) < 0))
        Py_CLEAR(value);
    return value;
}

/* Returns 0: call the original; 1 with the value; or -1. */
static int
open_memo(Tx *tx, PyObject *descr, PyObject *obj, PyObject **value)
{
    PyObject *wrapped = attribute(descr, "wrapped"), *function = wrapped != NULL ? Py_NewRef(wrapped) : attribute(descr, "func");
    PyObject *name = function == NULL ? NULL : attribute(function, "__name__");
    PyObject *there = name == NULL || !PyUnicode_CheckExact(name) ? NULL : _PyType_LookupRef(Py_TYPE(obj), name);
    int r;
    if (there != descr)     /* which name it has been given, only itself knows */
        r = exclusive_for(tx, "attribute by", descr);
    else if (wrapped != NULL)
        r = open_under_cache(tx, obj, function, name);
    else
        r = (*value = make_cached(tx, obj, function, name)) == NULL ? -1 : 1;
    Py_XDECREF(there);
    Py_XDECREF(name);
    Py_XDECREF(function);
    Py_XDECREF(wrapped);
    return r;
}

/* ---- In the place of __get__ ------------------------------------------------------------------------------------------- */

static struct { PyTypeObject *_Atomic type; descrgetfunc get; } watched[TYPE_TABLE];   /* entries are added, under the latch */
static Latch watching;

static descrgetfunc
get_of(PyTypeObject *type)
{
    for (size_t i = type_place(type); ; i = (i + 1) % TYPE_TABLE) {
        PyTypeObject *there = atomic_load_explicit(&watched[i].type, memory_order_acquire);
        if (there == type)
            return watched[i].get;
        if (there == NULL)
            return NULL;
    }
}

static PyObject *
watched_get(PyObject *descr, PyObject *obj, PyObject *owner)
{
    Tx *tx = stm_open;
    PyTypeObject *type = Py_TYPE(descr);
    descrgetfunc get;
    while ((get = get_of(type)) == NULL)
        type = type->tp_base;       /* it inherits ours */
    if (tx != NULL && !in_trusted_code(tx)) {
        Kind kind = classify(c_base(type));
        PyObject *value = NULL;
        int r = kind == &unknown_kind ? exclusive_for(tx, "attribute by", descr)
            : kind == &memo_kind && obj != NULL ? open_memo(tx, descr, obj, &value) : 0;
        if (r != 0)
            return value;
    }
    return get(descr, obj, owner);
}

/* Is its __get__ C code that nobody knows? */
static bool
is_unknown_get(PyTypeObject *type)
{
    if (type->tp_descr_get == NULL || type->tp_descr_get == watched_get || type->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR)
        return false;
    Kind kind = classify(c_base(type));
    if (kind != &unknown_kind && kind != &memo_kind && kind != &instance_kind)
        return false;
    static PyObject *get_name;
    if (get_name == NULL)
        get_name = PyUnicode_InternFromString("__get__");
    PyObject *method = get_name == NULL ? NULL : _PyType_LookupRef(type, get_name);
    bool in_c = method != NULL && Py_IS_TYPE(method, &PyWrapperDescr_Type);
    Py_XDECREF(method);
    PyErr_Clear();
    return in_c;
}

static void
watch(PyTypeObject *type)
{
    latch_take(&watching);
    size_t i = type_place(type), n = 0;
    while (watched[i].type != NULL && watched[i].type != type && n++ < TYPE_TABLE - 2)
        i = (i + 1) % TYPE_TABLE;
    if (watched[i].type == NULL && n < TYPE_TABLE - 2) {
        watched[i].get = type->tp_descr_get;
        atomic_store_explicit(&watched[i].type, (PyTypeObject *)Py_NewRef(type), memory_order_release);
        type->tp_descr_get = watched_get;
    }
    latch_give(&watching);
}

/* ---- Which types there are --------------------------------------------------------------------------------------------- */

/* The versions of types that have been looked at, at the places that they have here. No two types have one version. */
#define SEEN 8192
static _Atomic uint32_t seen[SEEN];

static void
look_into(PyTypeObject *type)
{
    PyObject *dict = PyType_GetDict(type), *name, *value, *of_python = NULL;
    if (dict == NULL)
        return;
    Py_BEGIN_CRITICAL_SECTION(dict);
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
        PyTypeObject *of = Py_TYPE(value);
        if (UNLIKELY(is_unknown_get(of)))
            watch(of);
        else if (UNLIKELY(of->tp_descr_get != NULL || of->tp_descr_set != NULL) && is_python_class(of) && of != type
                 && (of_python != NULL || (of_python = PyList_New(0)) != NULL) && PyList_Append(of_python, (PyObject *)of) < 0)
            PyErr_Clear();
    }
    Py_END_CRITICAL_SECTION();
    Py_DECREF(dict);
    for (Py_ssize_t i = 0; of_python != NULL && i < PyList_GET_SIZE(of_python); i++)    /* what their __get__ and __set__ are */
        special_look_into((PyTypeObject *)PyList_GET_ITEM(of_python, i));
    Py_XDECREF(of_python);
}

void
descriptors_watch(PyTypeObject *type)
{
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        uint32_t version = base->tp_version_tag;
        if (version != 0 && atomic_load_explicit(&seen[version % SEEN], memory_order_relaxed) == version)
            continue;
        look_into(base);
        special_look_into(base);
        if (version != 0)
            atomic_store_explicit(&seen[version % SEEN], version, memory_order_relaxed);
    }
}
