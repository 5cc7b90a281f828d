/* Dicts that are namespaces: the globals of modules and the attributes of instances.
 *
 * Their keys are also reached as names, by instructions that know nothing of the
 * dict and take no intention on it.  So such a dict is locked in another way than
 * others: a name has a cell of its own, known by the *base* of the namespace;
 * what makes or deletes names has the intention to write on the base as a whole (or owns
 * it, to delete); reading the whole takes that and the cell of each name.
 *
 * Module.  The base is the dict.  A table says which names are rebound: these have
 * barriers wherever functions of the module use them, and all others are only
 * changed exclusively.  A dict becomes a module's when a transaction sees it as that for
 * the first time.  Others may have used it as any dict before: the transaction owns all
 * of it first, and who has waited for that asks again what it is.  One that the transaction
 * has made itself it may go on to change as it likes.
 *
 * Instance.  Where the values of the attributes lie in the instance, their
 * address is the base.  The dict of such an instance is a view of them, until it gets storage
 * of its own (more than 30 attributes, popitem, the death of the instance).  Then a
 * table says what its base was, and remains: others may hold locks.  The engine
 * enters a dict into it when it first sees it, while it is a view still.  A dict that has storage of its own
 * when it is first seen is its own base, and locked as any dict; the attributes of its instance are
 * locked both ways then, for the same reason.  If such a dict holds the globals of functions
 * too, it is only changed exclusively.
 *
 * The tables are told by PyDict_Watch when a dict dies.
 */
#include "namespaces.h"

#include "../core/latch.h"
#include "access.h"
#include "known.h"

#include "internal/pycore_dict.h"

/* ---- A table by address, whose entries may go --------------------------------------- */

typedef struct { PyObject *dict; void *value; } Entry;

typedef struct {
    Latch lock;
    Entry *entries;             /* open addressing; dict == NULL is free */
    size_t cap, used;
} Table;

static size_t
find(Table *t, PyObject *dict)
{
    size_t i = ((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15ull % t->cap;
    while (t->entries[i].dict != NULL && t->entries[i].dict != dict)
        i = (i + 1) % t->cap;
    return i;
}

static int
table_init(Table *t)
{
    t->cap = 1024;
    t->entries = PyMem_RawCalloc(t->cap, sizeof(Entry));
    return t->entries == NULL ? -1 : 0;
}

static int
grow(Table *t)
{
    Entry *old = t->entries;
    size_t n = t->cap;
    Entry *p = PyMem_RawCalloc(2 * n, sizeof(Entry));
    if (p == NULL)
        return -1;
    t->entries = p;
    t->cap = 2 * n;
    for (size_t i = 0; i < n; i++) {
        if (old[i].dict != NULL)
            t->entries[find(t, old[i].dict)] = old[i];
    }
    PyMem_RawFree(old);
    return 0;
}

/* Enter it unless it is there; true if it has been entered. -1 without memory. */
static int
table_enter(Table *t, PyObject *dict, void *value)
{
    int entered = 0;
    latch_take(&t->lock);
    if (2 * t->used > t->cap && grow(t) < 0)
        entered = -1;
    else {
        size_t i = find(t, dict);
        if (t->entries[i].dict == NULL) {
            t->used++;
            t->entries[i] = (Entry){dict, value};
            entered = 1;
        }
    }
    latch_give(&t->lock);
    return entered;
}

static void *
table_remove(Table *t, PyObject *dict)
{
    latch_take(&t->lock);
    size_t i = find(t, dict);
    void *value = t->entries[i].value;
    if (t->entries[i].dict == NULL)
        value = NULL;
    else {
        t->entries[i].dict = NULL;
        t->used--;
        /* Close the gap: move up those that were displaced past it. */
        for (size_t j = (i + 1) % t->cap; t->entries[j].dict != NULL; j = (j + 1) % t->cap) {
            Entry e = t->entries[j];
            t->entries[j].dict = NULL;
            t->entries[find(t, e.dict)] = e;
        }
    }
    latch_give(&t->lock);
    return value;
}

/* ---- Modules ------------------------------------------------------------------------- */

static Table modules;           /* -> frozenset of the rebound names */
static Table instances;         /* -> where the values lie, or lay */
static int module_watcher = -1, instance_watcher = -1;
static int rebound_watcher = -1;    /* of the modules of which a global is rebound: it only tells them from others */
uint64_t stm_module_bit, stm_instance_bit, stm_rebound_bit;
PyObject *stm_register_module;  /* Python: globals -> None, enters them */

static int
on_module_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    if (event == PyDict_EVENT_DEALLOCATED)
        Py_XDECREF((PyObject *)table_remove(&modules, dict));
    return 0;
}

static int
on_instance_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    if (event == PyDict_EVENT_DEALLOCATED)
        table_remove(&instances, dict);
    return 0;
}

static int
on_rebound_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)event;
    (void)dict;
    (void)key;
    (void)value;
    return 0;
}

int
namespaces_init(void)
{
    if (table_init(&modules) < 0 || table_init(&instances) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    module_watcher = PyDict_AddWatcher(on_module_event);
    instance_watcher = PyDict_AddWatcher(on_instance_event);
    rebound_watcher = PyDict_AddWatcher(on_rebound_event);
    if (module_watcher < 0 || instance_watcher < 0 || rebound_watcher < 0)
        return -1;
    stm_module_bit = 1ull << module_watcher;
    stm_instance_bit = 1ull << instance_watcher;
    stm_rebound_bit = 1ull << rebound_watcher;
    return 0;
}

/* The names that the table has for these globals, or NULL; a new reference. */
static PyObject *
names_of(PyObject *globals)
{
    PyObject *rebound = NULL;
    latch_take(&modules.lock);
    size_t i = find(&modules, globals);
    if (modules.entries[i].dict == globals)
        rebound = Py_NewRef(modules.entries[i].value);
    latch_give(&modules.lock);
    return rebound;
}

/* `rebound` are the names that are read with barriers. The first call decides.  It is a module's once all is known of it, whichever of several
 * threads comes first. */
int
register_module_globals(PyObject *globals, PyObject *rebound)
{
    int entered = table_enter(&modules, globals, Py_NewRef(rebound));
    if (entered <= 0)
        Py_DECREF(rebound);
    if (entered < 0) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *names = names_of(globals);
    bool rebinds = names != NULL && PyObject_Length(names) > 0;
    Py_XDECREF(names);
    if ((rebinds || !PyDict_CheckExact(globals)) && PyDict_Watch(rebound_watcher, globals) < 0)
        return -1;
    return PyDict_Watch(module_watcher, globals);
}

/* Somebody reads names in that dict without asking: from now on it is changed exclusively only, as the globals of a module are. */
int
keep_unchanged(PyObject *dict)
{
    static PyObject *_Atomic none;
    Tx *tx = stm_open;
    if (!PyDict_CheckExact(dict) || is_module_dict(dict))
        return 0;
    if (none == NULL && (none = PyFrozenSet_New(NULL)) == NULL)
        return -1;
    return tx != NULL && open_as_globals(tx, dict) < 0 ? -1 : register_module_globals(dict, none);
}

/* Functions with these globals find names of the program's own builtins, if it has given such, as settled as globals that nobody
 * rebinds (`is_settled_module_dict`). */
int
keep_builtins(PyObject *globals)
{
    PyObject *builtins = NULL;
    int r = PyDict_GetItemStringRef(globals, "__builtins__", &builtins);
    if (r > 0)
        r = keep_unchanged(builtins);
    Py_XDECREF(builtins);
    return r;
}

/* The names given to register_module_globals(), or None. */
PyObject *
globals_rebound(PyObject *globals)
{
    PyObject *rebound = is_module_dict(globals) ? names_of(globals) : NULL;
    return rebound ? rebound : Py_NewRef(Py_None);
}

/* The dict is about to become a module's. From then on others read names there without asking:
 * the transaction must not have changed any, nor have looked at all of them as in any dict. */
int
open_as_globals(Tx *tx, PyObject *dict)
{
    Cell whole = cell_of(dict, WHOLE);
    bool first;
    if (LIKELY(is_module_dict(dict)) || !tx->open || captured(tx, dict))
        return 0;
    if (namespace_of(dict) != NULL)
        return exclusive_for(tx, "a function whose globals are attributes", NULL);
    bool used = marked(tx, whole, MODE_SHARED) || has_inserted(tx, whole) || may_have_read_by_bias(tx, dict);
    tx->logged.preparing = true;
    int r = lock_exclusive(tx, whole, &first);
    if (r == 0)
        r = bias_revoke(tx, dict);
    if (r == 0 && (used || !first))
        r = exclusive_for(tx, "a function whose globals have just been changed", NULL);
    tx->logged.preparing = false;
    return r;
}

/* Somebody gets hold of the globals of a module of which no function may have run in a
 * transaction yet: from here on they are known for what they are. */
int
see_globals(Tx *tx, PyObject *globals)
{
    if (open_as_globals(tx, globals) < 0 || keep_builtins(globals) < 0)
        return -1;
    if (is_module_dict(globals) || stm_register_module == NULL)
        return check_doomed(tx);
    tx_pause(tx);
    PyObject *r = PyObject_CallOneArg(stm_register_module, globals);
    tx_resume(tx);
    Py_XDECREF(r);
    if (r != NULL)
        return check_doomed(tx);
    PyErr_FormatUnraisable("tornado.stm: cannot look for the functions of a module");
    return exclusive_for(tx, "a module whose functions cannot be found", NULL);
}

/* locals(), or anything else that looks at all variables where it is called: those of a function,
 * closure variables among them; or the names of a module or class. */
int
open_locals(Tx *tx)
{
    _PyInterpreterFrame *f = tx->tstate->current_frame;
    PyCodeObject *code = _PyFrame_GetCode(f);
    if (!(code->co_flags & CO_OPTIMIZED)) {
        PyObject *names = f->f_locals;
        if (names == NULL || (names == f->f_globals && see_globals(tx, names) < 0))
            return names == NULL ? check_doomed(tx) : -1;
        return open_whole_read(tx, names);
    }
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        if (PyStackRef_IsNull(f->localsplus[i]))
            continue;
        PyObject *local = PyStackRef_AsPyObjectBorrow(f->localsplus[i]);
        if (PyCell_Check(local) && open_closure_read(tx, local) < 0)
            return -1;
    }
    return check_doomed(tx);
}

/* The module of that name, and the package that it is in, are looked for in sys.modules. */
int
open_module_name(Tx *tx, PyObject *name)
{
    PyObject *modules = PyImport_GetModuleDict();
    Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
    PyObject *package = dot > 0 ? PyUnicode_Substring(name, 0, dot) : NULL;
    int r = !PyDict_CheckExact(modules) ? 0 : open_key_read(tx, modules, name);
    if (r == 0 && package != NULL && PyDict_CheckExact(modules))
        r = open_key_read(tx, modules, package);
    Py_XDECREF(package);
    return r;
}

/* The name of the module that is meant by this one, so many levels up from where the globals are; NULL, perhaps with an exception,
 * if they do not say in which package that is. */
PyObject *
full_module_name(PyObject *globals, PyObject *name, long up)
{
    if (up == 0)
        return Py_NewRef(name);
    PyObject *package, *full = NULL;
    if (PyDict_GetItemStringRef(globals, "__package__", &package) <= 0)
        return NULL;
    if (PyUnicode_Check(package)) {
        Py_ssize_t end = PyUnicode_GET_LENGTH(package);
        while (--up > 0 && end > 0) {
            end = PyUnicode_FindChar(package, '.', 0, end, -1);
            if (end < 0)
                end = 0;
        }
        PyObject *base = PyUnicode_Substring(package, 0, end);
        if (base != NULL)
            full = PyUnicode_GET_LENGTH(name) ? PyUnicode_FromFormat("%U.%U", base, name) : Py_NewRef(base);
        Py_XDECREF(base);
    }
    Py_DECREF(package);
    return full;
}

/* ---- Instances ------------------------------------------------------------------------ */

/* The base of a dict that is watched, or a view of values; NULL for one like any other. */
const void *
namespace_base(PyObject *dict)
{
    bool known = ((PyDictObject *)dict)->_ma_watcher_tag & stm_instance_bit;
    PyDictValues *v = _Py_atomic_load_ptr_acquire(&((PyDictObject *)dict)->ma_values);
    if (v != NULL && v->embedded) {
        if (!known && table_enter(&instances, dict, v) >= 0)
            PyDict_Watch(instance_watcher, dict);
        return v;
    }
    if (!known)
        return is_module_dict(dict) ? dict : NULL;
    latch_take(&instances.lock);
    size_t i = find(&instances, dict);
    const void *base = instances.entries[i].dict == dict ? instances.entries[i].value : NULL;
    latch_give(&instances.lock);
    return base;
}

/* ---- Read bias (bias.c) ------------------------------------------------------------------ *
 * An attribute can be changed as a key of the instance's __dict__, by who has never seen the instance. So before an
 * instance may get the bias, the header of its values is told how far from it they lie, in four
 * bytes that are 0 in a new instance: a writer to a dict that is a view of values finds the
 * instance there. Who looked before is a writer whose lock is older than what that reader has seen. */

_Static_assert(offsetof(PyDictValues, values) == 8 && offsetof(PyDictValues, valid) == 3,
               "there are four bytes to spare in the header of an instance's values");

static _Atomic uint32_t *
distance_of(PyDictValues *values)
{
    return (_Atomic uint32_t *)((char *)values + 4);
}

/* Is all of its state behind locks that its readers and writers take by this object? */
bool
may_be_biased(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    return kind->may_be_biased != NULL && kind->may_be_biased(obj);
}

bool
instance_may_be_biased(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (!(type->tp_flags & Py_TPFLAGS_INLINE_VALUES))
        return !(type->tp_flags & Py_TPFLAGS_MANAGED_DICT) && type->tp_dictoffset == 0;
    PyDictValues *values = _PyObject_InlineValues(obj);
    if (!values->valid)
        return false;
    atomic_store(distance_of(values), (uint32_t)((char *)values - (char *)obj));
    return true;
}

/* By a writer of names in a namespace, who has its lock. Returns -1 when the transaction has to abort. */
int
bias_revoke_namespace(Tx *tx, PyObject *dict)
{
    PyObject *obj = NULL;
    bool read = false;
    /* The dict keeps the instance from dying meanwhile; afterwards only its address is used. */
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictValues *values = ((PyDictObject *)dict)->ma_values;
    uint32_t distance = values != NULL && values->embedded ? atomic_load(distance_of(values)) : 0;
    if (distance != 0) {
        obj = (PyObject *)((char *)values - distance);
        read = is_bias_known(obj) && bias_take(obj);
    }
    Py_END_CRITICAL_SECTION();
    return bias_revoke(tx, dict) < 0 || (read && bias_await_readers(tx, obj) < 0) ? -1 : 0;
}
