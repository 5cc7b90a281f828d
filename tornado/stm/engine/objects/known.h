/* What this transaction knows of an object: its kind, whether it has made it, what it has opened it for. */
#ifndef TORNADO_STM_KNOWN_H
#define TORNADO_STM_KNOWN_H

#include "../thread.h"
#include "descriptor.h"
#include "special.h"

#define MAX_DEPTH 100   /* of objects inside objects */

static inline bool
is_reference_type(PyTypeObject *t)
{
    return PyType_IsSubtype(t, &_PyWeakref_RefType) || t == &_PyWeakref_ProxyType || t == &_PyWeakref_CallableProxyType;
}

/* Most of what functions are called with is smaller than a weak reference. */
static inline bool
may_be_reference(PyObject *obj)
{
    return Py_TYPE(obj)->tp_basicsize >= (Py_ssize_t)sizeof(PyWeakReference);
}

static inline TypeEntry *
type_entry(Tx *tx, PyTypeObject *t)
{
    TypeEntry *e = &thread_of(tx)->types[((uintptr_t)t >> 4) * 0x9E3779B97F4A7C15ull >> (64 - TYPE_CACHE_BITS)];
    if (LIKELY(e->type == t && e->version == t->tp_version_tag && e->version != 0))
        return e;
    Kind k = classify(t);
    if (t->tp_version_tag == 0)
        PyUnstable_Type_AssignVersionTag(t);
    descriptors_watch(t);
    special_watch(t);
    *e = (TypeEntry){.type = t, .version = t->tp_version_tag, .kind = k, .reference = is_reference_type(t)};
    return e;
}

static inline Kind
kind_of(Tx *tx, PyObject *obj)
{
    return type_entry(tx, Py_TYPE(obj))->kind;
}

/* ---- Captured and opened ------------------------------------------------------------------ */

static inline Opened *
opened_at(Tx *tx, PyObject *obj, uint32_t what)
{
    uintptr_t a = (uintptr_t)obj;
    return &thread_of(tx)->opened.entries[((a >> 4) ^ (a >> 14) ^ what * 0x4F2B) & (OPENED_SLOTS - 1)];
}

static inline uint64_t
opened_key(PyObject *obj, uint32_t what, uint32_t by_capture)
{
    return (uint64_t)(uintptr_t)obj << 16 | what << 1 | by_capture;
}

static inline uint64_t
opened_check_as(Tx *tx, PyTypeObject *type)
{
    return (uint64_t)thread_of(tx)->opened.stamp << 32 | type->tp_version_tag;
}

static inline uint64_t
opened_check(Tx *tx, PyObject *obj)
{
    return opened_check_as(tx, Py_TYPE(obj));
}

/* Has this transaction opened the object for that? */
static inline bool
opened(Tx *tx, PyObject *obj, uint32_t what)
{
    Opened *e = opened_at(tx, obj, what);
    uint64_t by_capture = e->key ^ opened_key(obj, what, 0);
    return e->check == opened_check(tx, obj)
        && (by_capture == 0 || (by_capture == 1 && obj->ob_tid == thread_of(tx)->opened.tid));
}

/* Where an entry goes that has to make room. */
static inline Opened *
spare_place(Tx *tx, Opened *e)
{
    return &thread_of(tx)->opened.entries[(e - thread_of(tx)->opened.entries) ^ 1];
}

/* `type` is the object's, or the one that it is about to get. */
static inline void
note_as(Tx *tx, PyObject *obj, PyTypeObject *type, uint32_t what, uint32_t by_capture)
{
    Opened *e = opened_at(tx, obj, what);
    uint64_t key = opened_key(obj, what, by_capture);
    if (UNLIKELY(type->tp_version_tag == 0))
        return;
    if (e->check >> 32 == thread_of(tx)->opened.stamp && e->key != key
        && (e->key & 0xFFFF) == (OPENED_CAPTURED << 1 | 1)) {
        thread_of(tx)->opened.forgot = true;
        *spare_place(tx, e) = *e;
    }
    *e = (Opened){key, opened_check_as(tx, type)};
}

static inline void
note(Tx *tx, PyObject *obj, uint32_t what, uint32_t by_capture)
{
    note_as(tx, obj, Py_TYPE(obj), what, by_capture);
}

static inline void
note_opened(Tx *tx, PyObject *obj, uint32_t what)
{
    note(tx, obj, what, 0);
}

static inline uint64_t *
captured_at(Tx *tx, PyObject *obj)
{
    uintptr_t a = (uintptr_t)obj;
    return &thread_of(tx)->opened.captured[((a >> 4) ^ (a >> 16)) & (CAPTURED_SLOTS - 1)];
}

static inline uint64_t
captured_entry(Tx *tx, PyObject *obj)
{
    return (uintptr_t)obj >> 4 | thread_of(tx)->opened.captured_stamp;
}

/* An instance of a Python class, or exactly a list, dict or set: made in this transaction? May say no though it was. */
static inline bool
quickly_captured(Tx *tx, PyObject *obj)
{
    return *captured_at(tx, obj) == captured_entry(tx, obj) && obj->ob_tid == thread_of(tx)->opened.tid;
}

static inline void
note_captured_as(Tx *tx, PyObject *obj, PyTypeObject *type)
{
    note_as(tx, obj, type, OPENED_CAPTURED, 1);
    *captured_at(tx, obj) = captured_entry(tx, obj);
}

static inline void
note_captured(Tx *tx, PyObject *obj)
{
    note_captured_as(tx, obj, Py_TYPE(obj));
}

static inline void
forget_opened(Tx *tx, PyObject *obj, uint32_t what)
{
    Opened *e = opened_at(tx, obj, what), *spare = spare_place(tx, e);
    if (e->key >> 16 == (uintptr_t)obj)
        e->key = 0;
    if (spare->key >> 16 == (uintptr_t)obj)
        spare->key = 0;
}

/* What lies there was made in this transaction, but is a way to something that was not. */
static inline void
forget_capture(Tx *tx, PyObject *obj)
{
    for (uint32_t what = OPENED_CAPTURED; what < OPENED_END; what++)
        forget_opened(tx, obj, what);
    *captured_at(tx, obj) = 0;
}

static inline bool
says_captured(Tx *tx, Opened *e, PyObject *obj)
{
    return e->key == opened_key(obj, OPENED_CAPTURED, 1) && e->check == opened_check(tx, obj)
        && obj->ob_tid == thread_of(tx)->opened.tid;
}

/* Made in this transaction? Then it is opened for everything by that alone. What had to make room once is known still. */
static inline bool
captured(Tx *tx, PyObject *obj)
{
    Opened *e = opened_at(tx, obj, OPENED_CAPTURED);
    return says_captured(tx, e, obj) || says_captured(tx, spare_place(tx, e), obj);
}

/* Is all of it logged? It may be forgotten that it is: to log it twice does no harm. */
static inline bool
snapshot_taken(Tx *tx, PyObject *obj)
{
    return opened(tx, obj, OPENED_SNAPSHOT);
}

/* Is it one of those C objects that this attempt has made (fresh.h)? */
static inline bool
is_fresh(Tx *tx, PyObject *obj)
{
    return fresh_has(&thread_of(tx)->fresh, obj);
}

static inline int
make_fresh(Tx *tx, PyObject *obj)
{
    return fresh_add(&thread_of(tx)->fresh, obj);
}

/* A generator or coroutine of this attempt, which handles no exceptions: nothing of it is saved before it goes on. */
static inline bool
is_captured_generator(Tx *tx, PyObject *o)
{
    if (!Py_IS_TYPE(o, &PyGen_Type) && !Py_IS_TYPE(o, &PyCoro_Type))
        return false;
    PyObject *birth = ((PyGenObject *)o)->gi_iframe.f_locals;
    return birth != NULL && birth == thread_of(tx)->births.shared[0];
}

/* ---- Values ------------------------------------------------------------------------------- */

static inline bool
is_builtin_container(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyList_Type || t == &PyDict_Type || t == &PySet_Type;
}

/* A container that has been made in this transaction. */
static inline bool
captured_container(Tx *tx, PyObject *o)
{
    return is_builtin_container(o) && (LIKELY(quickly_captured(tx, o)) || captured(tx, o));
}

/* Something that no transaction can change, nor what is in it. */
static inline bool
is_constant(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyUnicode_Type || t == &PyLong_Type || t == &PyFloat_Type || o == Py_None || t == &PyBool_Type
        || t == &PyBytes_Type;
}

/* Something that is compared without a look at what a transaction can change: by its value
 * or, where its class says nothing, by its identity, as a bound method by those of its parts. */
static inline bool
compares_plainly(PyObject *o)
{
    richcmpfunc f = Py_TYPE(o)->tp_richcompare;
    return f == PyLong_Type.tp_richcompare || f == PyUnicode_Type.tp_richcompare || f == PyFloat_Type.tp_richcompare
        || f == PyBaseObject_Type.tp_richcompare || is_constant(o)
        || (PyMethod_Check(o) && PyFunction_Check(PyMethod_GET_FUNCTION(o)));
}

/* May this transaction read all that is in that list, dict or set without a lock? */
static inline bool
container_read_by_bias(Tx *tx, PyObject *obj)
{
    return is_builtin_container(obj) && read_by_bias(tx, obj);
}

/* May this be a set, which is looked for in another one as the frozenset that is equal to it? */
static inline bool
may_be_set_as_key(PyObject *key)
{
    return Py_TYPE(key)->tp_hash == PyObject_HashNotImplemented;
}

#endif
