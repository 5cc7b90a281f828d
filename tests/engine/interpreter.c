/* A stand-in for the interpreter, so that the engine's algorithms run without it, under any sanitizer.
 *
 * The engine's own files are compiled as they are, against CPython's own headers; what they call of the interpreter is
 * defined here: threads that attach, detach and can be stopped, exceptions, reference counts, and just enough of lists,
 * tuples and dicts.  What is not here cannot be reached by the stress program; the build fills it in with stubs that fail.
 *
 * A thread's attachment orders nothing between threads that never stop each other, exactly as in the interpreter:
 * a lock here would hide races of the engine.
 */
#include "interpreter.h"

#include "internal/pycore_ceval.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void
fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    fflush(stderr);
    abort();
}

/* ---- Threads ----------------------------------------------------------------------------- */

enum { DETACHED = 0, ATTACHED, STOPPED };

typedef struct {
    _PyThreadStateImpl state;
    _Atomic int attachment;
    _Atomic int used;
    PyObject *raised;
    uint64_t random;
    unsigned countdown;             /* to the next delay */
} Thread;

static Thread threads[MAX_THREADS];
static _Atomic int world_stopped;
static _Thread_local Thread *me;

static void
pause_briefly(void)
{
    nanosleep(&(struct timespec){0, 20000}, NULL);
}

uint32_t
thread_random(void)
{
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return (uint32_t)(me->random >> 24);
}

/* Called before each atomic access of the engine. */
void
jitter(void)
{
    if (me == NULL || --me->countdown != 0)
        return;
    uint32_t r = thread_random();
    me->countdown = 1 + r % 512;
    if (r >> 16 & 15)
        sched_yield();
    else
        pause_briefly();
}

static void
attach(Thread *t)
{
    for (;;) {
        int expected = DETACHED;
        if (atomic_compare_exchange_strong(&t->attachment, &expected, ATTACHED))
            return;
        pause_briefly();
    }
}

static void
detach(Thread *t)
{
    atomic_store(&t->attachment, DETACHED);
}

void
thread_begin(uint64_t seed)
{
    for (int i = 0; i < MAX_THREADS; i++) {
        int expected = 0;
        if (!atomic_compare_exchange_strong(&threads[i].used, &expected, 1))
            continue;
        me = &threads[i];
        me->random = (seed + 1) * 0x9E3779B97F4A7C15ull | 1;
        me->countdown = 1;
        attach(me);
        return;
    }
    fail("too many threads");
}

void
thread_end(void)
{
    if (me->raised != NULL)
        fail("a thread ends with an exception");
    Thread *t = me;
    me = NULL;
    detach(t);
    atomic_store(&t->used, 0);
}

PyThreadState *
PyThreadState_Get(void)
{
    return &me->state.base;
}

unsigned long
PyThread_get_thread_ident(void)
{
    return (unsigned long)me;
}

PyInterpreterState *
PyInterpreterState_Get(void)
{
    return NULL;
}

PyThreadState *
PyEval_SaveThread(void)
{
    detach(me);
    return &me->state.base;
}

void
PyEval_RestoreThread(PyThreadState *state)
{
    (void)state;
    attach(me);
}

static void
stand_still(void)
{
    detach(me);
    while (atomic_load(&world_stopped))
        pause_briefly();
    attach(me);
}

void
_PyEval_StopTheWorld(PyInterpreterState *interp)
{
    (void)interp;
    detach(me);
    int expected = 0;
    while (!atomic_compare_exchange_strong(&world_stopped, &expected, 1)) {
        expected = 0;
        pause_briefly();
    }
    for (int i = 0; i < MAX_THREADS; i++) {
        Thread *t = &threads[i];
        while (t != me) {
            int state = DETACHED;
            if (atomic_compare_exchange_strong(&t->attachment, &state, STOPPED) || state == STOPPED)
                break;
            pause_briefly();
        }
    }
    attach(me);
}

void
_PyEval_StartTheWorld(PyInterpreterState *interp)
{
    (void)interp;
    for (int i = 0; i < MAX_THREADS; i++) {
        int state = STOPPED;
        atomic_compare_exchange_strong(&threads[i].attachment, &state, DETACHED);
    }
    atomic_store(&world_stopped, 0);
}

int
safe_point(void)
{
    if (atomic_load_explicit(&world_stopped, memory_order_relaxed))
        stand_still();
    if (!_Py_eval_breaker_bit_is_set(&me->state.base, _PY_EVAL_EXPLICIT_MERGE_BIT))
        return 0;
    _Py_unset_eval_breaker_bit(&me->state.base, _PY_EVAL_EXPLICIT_MERGE_BIT);
    return stm_self != NULL && stm_self->open ? check_doomed(stm_self) : 0;
}

/* ---- Locks ------------------------------------------------------------------------------------ */

/* The headers have the uncontended case; a waiting thread detaches. */
#undef PyMutex_Lock
#undef PyMutex_Unlock
void
PyMutex_Lock(PyMutex *m)
{
    uint8_t expected = 0;
    while (!__atomic_compare_exchange_n(&m->_bits, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        expected = 0;
        if (me != NULL)
            detach(me);
        sched_yield();
        if (me != NULL)
            attach(me);
    }
}

void
PyMutex_Unlock(PyMutex *m)
{
    __atomic_store_n(&m->_bits, 0, __ATOMIC_RELEASE);
}

/* The section that this thread is in; the same object may be locked again inside. */
static _Thread_local PyMutex *in_section;

void
PyCriticalSection_Begin(PyCriticalSection *section, PyObject *object)
{
    section->_cs_mutex = NULL;
    if (in_section == &object->ob_mutex)
        return;
    PyMutex_Lock(&object->ob_mutex);
    section->_cs_mutex = in_section = &object->ob_mutex;
}

void
PyCriticalSection_End(PyCriticalSection *section)
{
    if (section->_cs_mutex == NULL)
        return;
    in_section = NULL;
    PyMutex_Unlock(section->_cs_mutex);
}

/* ---- Exceptions ---------------------------------------------------------------------------------- */

static void
release_plainly(PyObject *object)
{
    atomic_fetch_sub_explicit(&objects_alive, 1, memory_order_relaxed);
    free(object);
}

#define TYPE(identifier, dealloc) \
    PyTypeObject identifier = { \
        .ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL}, \
        .tp_name = #identifier, \
        .tp_dealloc = (dealloc), \
    }

TYPE(Abort_Type, release_plainly);
TYPE(Failure_Type, release_plainly);
TYPE(PyCode_Type, NULL);
TYPE(PyMethod_Type, NULL);
TYPE(PyFunction_Type, NULL);
PyObject *PyExc_RuntimeError, *PyExc_TypeError, *PyExc_OSError, *PyExc_AttributeError;
PyObject _Py_NoneStruct = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL};

void
PyErr_SetNone(PyObject *type)
{
    PyErr_SetRaisedException(object_new((PyTypeObject *)type, sizeof(PyObject)));
}

PyObject *
PyErr_GetRaisedException(void)
{
    PyObject *raised = me->raised;
    me->raised = NULL;
    return raised;
}

void
PyErr_SetRaisedException(PyObject *exception)
{
    Py_XDECREF(me->raised);
    me->raised = exception;
}

PyObject *
PyErr_Occurred(void)
{
    return me->raised == NULL ? NULL : (PyObject *)Py_TYPE(me->raised);
}

void
PyErr_Clear(void)
{
    Py_CLEAR(me->raised);
}

int
PyErr_ExceptionMatches(PyObject *type)
{
    return exception_is((PyTypeObject *)type);
}

bool
exception_is(PyTypeObject *type)
{
    return me->raised != NULL && Py_IS_TYPE(me->raised, type);
}

void
PyErr_SetString(PyObject *type, const char *message)
{
    (void)type;
    fail("the engine raised: %s", message);
}

void
PyErr_FormatUnraisable(const char *format, ...)
{
    fail("the engine said: %s", format);
}

PyObject *
PyErr_NoMemory(void)
{
    fail("out of memory");
}

/* ---- Objects ---------------------------------------------------------------------------------------- */

_Atomic long objects_alive;

static void *
allocate(PyTypeObject *type, size_t size)
{
    PyObject *object = calloc(1, size);
    if (object == NULL)
        fail("out of memory");
    object->ob_type = type;
    return object;
}

void *
object_new_immortal(PyTypeObject *type, size_t size)
{
    PyObject *object = allocate(type, size);
    object->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
    return object;
}

/* All counts are shared ones, as of an object that has outlived its thread. */
void *
object_new(PyTypeObject *type, size_t size)
{
    PyObject *object = allocate(type, size);
    object->ob_ref_shared = _Py_REF_SHARED(1, _Py_REF_MERGED);
    atomic_fetch_add_explicit(&objects_alive, 1, memory_order_relaxed);
    return object;
}

void
_Py_DecRefShared(PyObject *object)
{
    Py_ssize_t before = __atomic_fetch_sub(&object->ob_ref_shared, 1 << _Py_REF_SHARED_SHIFT, __ATOMIC_ACQ_REL);
    if (before >> _Py_REF_SHARED_SHIFT < 1)
        fail("a %s has been released too often", Py_TYPE(object)->tp_name);
    if (before >> _Py_REF_SHARED_SHIFT == 1)
        Py_TYPE(object)->tp_dealloc(object);
}

void
_Py_MergeZeroLocalRefcount(PyObject *object)
{
    fail("a %s has a local reference count", Py_TYPE(object)->tp_name);
}

void PyObject_GC_UnTrack(void *object) { (void)object; }

void *PyMem_RawMalloc(size_t n) { return malloc(n); }
void *PyMem_RawCalloc(size_t n, size_t size) { return calloc(n, size); }
void *PyMem_RawRealloc(void *p, size_t n) { return realloc(p, n); }
void PyMem_RawFree(void *p) { free(p); }

static PyObject *
native_call(PyObject *self, PyObject *args, PyObject *kwds)
{
    (void)args;
    (void)kwds;
    return ((Native *)self)->call((Native *)self);
}

PyTypeObject Native_Type = {
    .ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL},
    .tp_name = "Native",
    .tp_dealloc = release_plainly,
    .tp_call = native_call,
};

PyObject *
PyObject_Call(PyObject *callable, PyObject *args, PyObject *kwds)
{
    PyObject *result = Py_TYPE(callable)->tp_call(callable, args, kwds);
    if ((result == NULL) != (me->raised != NULL))
        fail("a call returned %p with%s an exception", (void *)result, me->raised ? "" : "out");
    return result;
}

PyObject *
PyObject_Vectorcall(PyObject *callable, PyObject *const *args, size_t n, PyObject *kwnames)
{
    (void)args;
    (void)n;
    return PyObject_Call(callable, no_arguments, kwnames);
}

/* ---- Lists and tuples ----------------------------------------------------------------------------------- */

static void
tuple_dealloc(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        Py_DECREF(PyTuple_GET_ITEM(tuple, i));
    release_plainly(tuple);
}

static void
list_dealloc(PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        Py_DECREF(PyList_GET_ITEM(list, i));
    free(((PyListObject *)list)->ob_item);
    release_plainly(list);
}

PyTypeObject PyTuple_Type = {
    .ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL},
    .tp_name = "tuple",
    .tp_flags = Py_TPFLAGS_TUPLE_SUBCLASS,
    .tp_dealloc = tuple_dealloc,
};
PyTypeObject PyList_Type = {
    .ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL},
    .tp_name = "list",
    .tp_flags = Py_TPFLAGS_LIST_SUBCLASS,
    .tp_dealloc = list_dealloc,
};
static struct { PyTupleObject tuple; PyObject *item; } nothing = {
    .tuple.ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL, .ob_type = &PyTuple_Type},
};
PyObject *no_arguments = (PyObject *)&nothing;

PyObject *
PyTuple_Pack(Py_ssize_t n, ...)
{
    PyTupleObject *tuple = object_new(&PyTuple_Type, sizeof(PyTupleObject) + n * sizeof(PyObject *));
    va_list items;
    va_start(items, n);
    tuple->ob_base.ob_size = n;
    for (Py_ssize_t i = 0; i < n; i++)
        tuple->ob_item[i] = Py_NewRef(va_arg(items, PyObject *));
    va_end(items);
    return (PyObject *)tuple;
}

PyObject *
PyList_New(Py_ssize_t n)
{
    if (n != 0)
        fail("a list that is not empty");
    return object_new(&PyList_Type, sizeof(PyListObject));
}

int
PyList_Append(PyObject *list, PyObject *item)
{
    PyListObject *l = (PyListObject *)list;
    Py_ssize_t n = l->ob_base.ob_size;
    l->ob_item = realloc(l->ob_item, (n + 1) * sizeof(PyObject *));
    l->ob_item[n] = Py_NewRef(item);
    l->ob_base.ob_size = n + 1;
    return 0;
}

/* ---- Dicts ---------------------------------------------------------------------------------------------- */

/* The layout is CPython's, since the engine looks into it; the index is not used. */
PyTypeObject PyDict_Type = {
    .ob_base.ob_base = {.ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL},
    .tp_name = "dict",
    .tp_flags = Py_TPFLAGS_DICT_SUBCLASS,
};

PyObject *
dict_new_immortal(void)
{
    PyDictObject *d = object_new_immortal(&PyDict_Type, sizeof(PyDictObject));
    d->ma_keys = calloc(1, sizeof(PyDictKeysObject) + 8 + DICT_ROOM * sizeof(PyDictUnicodeEntry));
    d->ma_keys->dk_kind = DICT_KEYS_UNICODE;
    d->ma_keys->dk_log2_index_bytes = 3;
    return (PyObject *)d;
}

static PyDictUnicodeEntry *
entry_of(PyDictObject *d, PyObject *key)
{
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(d->ma_keys);
    for (Py_ssize_t i = 0; i < d->ma_keys->dk_nentries; i++) {
        if (entries[i].me_value != NULL && entries[i].me_key == key)
            return &entries[i];
    }
    return NULL;
}

static void
dict_count(PyDictObject *d, int change)
{
    __atomic_store_n(&d->ma_used, d->ma_used + change, __ATOMIC_RELAXED);
}

int
PyDict_GetItemRef(PyObject *dict, PyObject *key, PyObject **value)
{
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of((PyDictObject *)dict, key);
    *value = e ? Py_NewRef(e->me_value) : NULL;
    PyCriticalSection_End(&section);
    return e != NULL;
}

int
PyDict_Contains(PyObject *dict, PyObject *key)
{
    PyObject *value;
    int there = PyDict_GetItemRef(dict, key, &value);
    Py_XDECREF(value);
    return there;
}

int
PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyObject *old = NULL;
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of(d, key), *entries = DK_UNICODE_ENTRIES(d->ma_keys);
    if (e != NULL)
        old = e->me_value;
    else {
        if (d->ma_keys->dk_nentries == DICT_ROOM) {
            Py_ssize_t n = 0;
            for (Py_ssize_t i = 0; i < DICT_ROOM; i++) {
                if (entries[i].me_value != NULL)
                    entries[n++] = entries[i];
            }
            d->ma_keys->dk_nentries = n;
        }
        if (d->ma_keys->dk_nentries == DICT_ROOM)
            fail("a dict is full");
        e = &entries[d->ma_keys->dk_nentries++];
        e->me_key = key;    /* keys are immortal */
        dict_count(d, 1);
    }
    e->me_value = Py_NewRef(value);
    PyCriticalSection_End(&section);
    Py_XDECREF(old);
    return 0;
}

int
PyDict_Pop(PyObject *dict, PyObject *key, PyObject **value)
{
    PyObject *old = NULL;
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of((PyDictObject *)dict, key);
    if (e != NULL) {
        old = e->me_value;
        e->me_value = NULL;
        dict_count((PyDictObject *)dict, -1);
    }
    PyCriticalSection_End(&section);
    int found = old != NULL;
    if (value != NULL)
        *value = old;
    else
        Py_XDECREF(old);
    return found;
}

int
PyDict_DelItem(PyObject *dict, PyObject *key)
{
    if (PyDict_Pop(dict, key, NULL) == 0)
        fail("a key to delete is not there");
    return 0;
}

PyObject *
PyDict_Items(PyObject *dict)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyObject *items = PyList_New(0);
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(d->ma_keys);
    for (Py_ssize_t i = 0; i < d->ma_keys->dk_nentries; i++) {
        if (entries[i].me_value != NULL) {
            PyObject *pair = PyTuple_Pack(2, entries[i].me_key, entries[i].me_value);
            PyList_Append(items, pair);
            Py_DECREF(pair);
        }
    }
    PyCriticalSection_End(&section);
    return items;
}

/* In the engine: dictkeys.c, for the layout with an index. */
int
dict_put(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *value, PyObject **old)
{
    (void)hash;
    PyDict_GetItemRef(dict, key, old);
    return PyDict_SetItem(dict, key, value);
}

int
dict_take(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value)
{
    (void)hash;
    return PyDict_Pop(dict, key, value);
}

Py_ssize_t
dict_entry(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    (void)hash;
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of((PyDictObject *)dict, key);
    Py_ssize_t at = e == NULL ? -1 : e - DK_UNICODE_ENTRIES(((PyDictObject *)dict)->ma_keys);
    PyCriticalSection_End(&section);
    return at;
}

int
dict_hide(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *placeholder, PyObject **actual, PyObject **value,
          Py_ssize_t *place)
{
    (void)hash;
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of((PyDictObject *)dict, key);
    if (e != NULL) {
        *actual = Py_NewRef(key);
        *value = e->me_value;
        e->me_key = placeholder;
        e->me_value = Py_NewRef(Py_None);
        *place = 0;     /* an entry is found by its key here */
    }
    PyCriticalSection_End(&section);
    return e != NULL;
}

int
dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, Py_hash_t hash, PyObject *value)
{
    (void)place;
    (void)hash;
    PyCriticalSection section;
    PyCriticalSection_Begin(&section, dict);
    PyDictUnicodeEntry *e = entry_of((PyDictObject *)dict, placeholder);
    if (e == NULL || entry_of((PyDictObject *)dict, key) != NULL)
        fail("a deleted key has no place to go back to");
    Py_DECREF(e->me_value);
    e->me_key = key;
    e->me_value = Py_NewRef(value);
    PyCriticalSection_End(&section);
    return 0;
}

int
dict_drop_placeholder(PyObject *dict, PyObject *placeholder, Py_ssize_t place)
{
    (void)place;
    return PyDict_Pop(dict, placeholder, NULL);
}

Py_hash_t
PyObject_Hash(PyObject *object)
{
    return (Py_hash_t)((uintptr_t)object >> 4);
}

/* Only placeholders in dicts are made so; they live as long as the thread that uses them. */
PyObject *
PyUnicode_FromFormat(const char *format, ...)
{
    (void)format;
    static PyTypeObject text = {.tp_name = "str"};
    return object_new_immortal(&text, sizeof(PyObject));
}

PyObject *
none(void)
{
    return Py_NewRef(Py_None);
}

PyObject *
native_new(PyObject *(*call)(Native *))
{
    Native *native = object_new(&Native_Type, sizeof(Native) + sizeof(int));
    native->call = call;
    return (PyObject *)native;
}

void
append_action(PyObject **list, PyObject *native)
{
    if (*list == NULL)
        *list = PyList_New(0);
    PyObject *action = PyTuple_Pack(2, native, no_arguments);
    PyList_Append(*list, action);
    Py_DECREF(action);
    Py_DECREF(native);
}

/* What queues ask besides. */
int PyErr_CheckSignals(void) { return 0; }
int PyUnstable_Object_EnableDeferredRefcount(PyObject *object) { (void)object; return 0; }
int PyLong_AsInt(PyObject *number) { return ((Number *)number)->value; }
PyObject *PyObject_CallNoArgs(PyObject *callable) { return PyObject_Call(callable, no_arguments, NULL); }
PyTypeObject PyBool_Type, PyLong_Type;
PyObject *PyExc_Exception;
