/* Classes that transactions make: what __subclasses__() shows, and what abstract classes remember.
 *
 * A class enters itself into a dict of each of its bases, in C, before anybody has a reference to it.  That
 * dict is opened like any other (access.c): who makes a class has the intention to write in the dicts of its
 * bases, so that classes are made side by side; __subclasses__() reads the whole.  A rollback takes the key
 * out again, and a commit puts it in its place (order.c).
 *
 * All classes are made by type.__new__, whatever metaclass they have: it is stood in for in the type's own
 * slot, and there the dicts are locked.  Methods that it calls (__set_name__, __init_subclass__) may raise, or
 * end the attempt, when the class has been entered already; so a watcher of the dict logs the entry.
 *
 * The interpreter drops a dict that is empty, which must not happen to one that is locked.  So those that
 * transactions use are kept: by a key that stands for a class which has died long ago, as it does itself
 * between the death of a class and the deletion of its key.  The bases that this transaction has made need
 * none of this: others do not know them.
 *
 * An abstract class (abc) answers issubclass() from what it remembers of earlier questions, and else asks all
 * subclasses, in C.  What it remembers cannot be rolled back, so that new questions are asked exclusively;
 * then remembered answers may be read without a lock, as all of a class.
 */
#include "class.h"

#include "../calls/calls.h"
#include "access.h"
#include "dict.h"
#include "endings.h"
#include "instance.h"
#include "known.h"

#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"

static newfunc make_class;          /* the interpreter's type.__new__ */
static int kept_watcher = -1;       /* of types: those whose dict is kept */
static int entered_watcher = -1;    /* of their dicts */
static PyObject *long_dead;         /* a weak reference */

/* ---- Subclasses --------------------------------------------------------------------------- */

/* Where the class has the dict of its subclasses. */
static PyObject **
subclasses_field(PyTypeObject *type)
{
    if (!(type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN))
        return (PyObject **)&type->tp_subclasses;
    struct types_state *types = &PyInterpreterState_Get()->types;
    size_t i = (size_t)type->tp_subclasses - 1;
    return types->builtins.initialized[i].type == type ? &types->builtins.initialized[i].tp_subclasses
        : &types->for_extensions.initialized[i].tp_subclasses;
}

/* The dict of the subclasses of a class that others know, which is kept from now on. Borrowed; NULL
 * with an exception. */
static PyObject *
subclasses_of(PyTypeObject *type)
{
    PyObject **at = subclasses_field(type);
    if (LIKELY(type->tp_watched >> kept_watcher & 1))
        return *at;
    PyObject *made = PyDict_New();
    if (made == NULL)
        return NULL;
    /* Classes that die leave the dict, and may drop it, without a lock. */
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyEval_StopTheWorld(interpreter);
    if (*at == NULL)
        *at = Py_NewRef(made);
    PyObject *dict = *at;
    int r = PyDict_SetItem(dict, Py_None, long_dead);
    if (r == 0)
        r = PyDict_Watch(entered_watcher, dict);
    _PyEval_StartTheWorld(interpreter);
    Py_DECREF(made);
    return r < 0 || PyType_Watch(kept_watcher, (PyObject *)type) < 0 ? NULL : dict;
}

static int
on_type_event(PyTypeObject *Py_UNUSED(type))
{
    return 0;
}

/* A transaction is about to enter a class. It may change that, and keeps it alive, so that no other
 * gets its address, which is the key. */
static int
on_entry(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *ref)
{
    Tx *tx = stm_self;
    PyObject *cls;
    if (event != PyDict_EVENT_ADDED || tx == NULL || !tx->open || PyWeakref_GetRef(ref, &cls) <= 0)
        return 0;
    int r = make_fresh(tx, cls) < 0 || log_key(tx, dict, key, PyObject_Hash(key), NULL) == NULL ? -1 : 0;
    Py_DECREF(cls);
    return r;
}

/* The dict of the subclasses of a class that others know may have been made just now, where a captured
 * dict has died. */
static PyObject *
shared_subclasses(Tx *tx, PyTypeObject *type)
{
    PyObject *dict = subclasses_of(type);
    if (dict != NULL)
        forget_capture(tx, dict);
    return dict;
}

static int
open_base(Tx *tx, PyTypeObject *base)
{
    if (is_fresh(tx, (PyObject *)base))
        return check_doomed(tx);
    PyObject *dict = shared_subclasses(tx, base);
    return dict == NULL || lock_intent_write(tx, cell_of(dict, WHOLE)) < 0 ? -1 : bias_revoke(tx, dict);
}

static PyObject *
make_watched_class(PyTypeObject *metatype, PyObject *args, PyObject *kwds)
{
    PyObject *made = make_class(metatype, args, kwds);
    if (made != NULL && PyType_Check(made)) {
        watch_endings((PyTypeObject *)made);
        if (PyType_IsSubtype((PyTypeObject *)made, &PyType_Type))
            special_look_into((PyTypeObject *)made);    /* isinstance() asks it, and announces nothing */
    }
    return made;
}

/* A part of a class that is about to be made: C code calls methods of it. */
static int
meet(Tx *tx, PyObject *part)
{
    kind_of(tx, part);      /* guards what is bound to something already, in its class, and in itself */
    if (PyType_Check(part))
        type_entry(tx, (PyTypeObject *)part);
    bool unguarded = has_unguarded_special_methods(Py_TYPE(part))
        || (PyType_Check(part) && has_unguarded_special_methods((PyTypeObject *)part));
    return unguarded ? exclusive_for(tx, "a class that is made with", part) : check_doomed(tx);
}

/* __build_class__(function, name, *bases, metaclass=...) */
int
open_class_parts(Tx *tx, PyObject *const *parts, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (meet(tx, parts[i]) < 0)
            return -1;
    }
    return check_doomed(tx);
}

/* The namespace is copied, and the names of the slots are taken one by one. */
static int
open_namespace(Tx *tx, PyObject *namespace)
{
    static PyObject *slots_name;
    if (slots_name == NULL)
        slots_name = PyUnicode_InternFromString("__slots__");
    if (open_whole_read(tx, namespace) < 0)
        return -1;
    PyObject *slots = NULL;
    int r = PyDict_GetItemRef(namespace, slots_name, &slots) < 0 || (slots != NULL && open_iter(tx, slots) < 0) ? -1 : 0;
    Py_XDECREF(slots);
    /* __set_name__ */
    PyObject *values = r < 0 ? NULL : PyDict_Values(namespace);
    for (Py_ssize_t i = 0; r == 0 && i < (values == NULL ? 0 : PyList_GET_SIZE(values)); i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        if (is_python_class(Py_TYPE(value)) && !PyType_Check(value))
            r = meet(tx, value);
    }
    Py_XDECREF(values);
    return r;
}

/* type.__new__(metatype, name, bases, namespace). What it makes is this transaction's own, unless another
 * metaclass is to make it. */
static PyObject *
new_class(PyTypeObject *metatype, PyObject *args, PyObject *kwds)
{
    Tx *tx = stm_self;
    PyObject *bases = PyTuple_GET_SIZE(args) == 3 ? PyTuple_GET_ITEM(args, 1) : NULL;
    if (tx == NULL || !tx->open || bases == NULL || !PyTuple_Check(bases))
        return make_watched_class(metatype, args, kwds);
    bool own = true;
    PyObject *namespace = PyTuple_GET_ITEM(args, 2);
    if (PyDict_Check(namespace) && open_namespace(tx, namespace) < 0)
        return NULL;
    if (PyTuple_GET_SIZE(bases) == 0 && open_base(tx, &PyBaseObject_Type) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); i++) {
        PyObject *base = PyTuple_GET_ITEM(bases, i);
        own = own && PyType_IsSubtype(metatype, Py_TYPE(base));
        if (meet(tx, base) < 0)
            return NULL;
        if (PyType_Check(base) && open_base(tx, (PyTypeObject *)base) < 0)
            return NULL;
    }
    PyObject *made = make_watched_class(metatype, args, kwds);
    if (made != NULL && own && tx->open && make_fresh(tx, made) < 0)
        Py_CLEAR(made);
    return made;
}

/* 1: seen for the first time.  Known by its address: a metaclass may have a __hash__. */
static int
see(PyObject *seen, PyTypeObject *type)
{
    PyObject *address = PyLong_FromVoidPtr(type);
    int r = address == NULL ? -1 : PySet_Contains(seen, address);
    r = r != 0 ? -(r < 0) : PySet_Add(seen, address) < 0 ? -1 : 1;
    Py_XDECREF(address);
    return r;
}

static int
each_unseen(PyTypeObject *type, void (*each)(PyTypeObject *), PyObject *seen)
{
    int first = see(seen, type);
    if (first <= 0)
        return first;
    each(type);
    PyObject *derived = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    int r = derived == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(derived); i++)
        r = each_unseen((PyTypeObject *)PyList_GET_ITEM(derived, i), each, seen);
    Py_XDECREF(derived);
    return r;
}

int
each_derived(PyTypeObject *type, void (*each)(PyTypeObject *))
{
    PyObject *seen = PySet_New(NULL);
    int r = seen == NULL ? -1 : each_unseen(type, each, seen);
    Py_XDECREF(seen);
    return r;
}

/* Metaclasses have inherited the slot. */
static void
stand_in(PyTypeObject *metatype)
{
    special_look_into(metatype);
    if (metatype->tp_new == make_class)
        metatype->tp_new = new_class;
}

int
classes_init(void)
{
    PyObject *dies = PySet_New(NULL);
    long_dead = dies == NULL ? NULL : PyWeakref_NewRef(dies, NULL);
    Py_XDECREF(dies);
    kept_watcher = PyType_AddWatcher(on_type_event);
    entered_watcher = PyDict_AddWatcher(on_entry);
    if (long_dead == NULL || kept_watcher < 0 || entered_watcher < 0)
        return -1;
    make_class = PyType_Type.tp_new;
    return each_derived(&PyType_Type, stand_in);
}

/* Twin of type.__subclasses__. */
PyObject *
subclasses(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && n == 1 && PyType_Check(args[0]) && !is_fresh(tx, args[0])) {
        PyObject *dict = shared_subclasses(tx, (PyTypeObject *)args[0]);
        if (dict == NULL || open_whole_read(tx, dict) < 0)
            return NULL;
    }
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* ---- Abstract classes ------------------------------------------------------------------------- */

/* Private to CPython's _abc.c. */
typedef struct { PyObject_HEAD PyObject *registry, *subclasses, *others; uint64_t version; } Memory;

/* Does the abstract class know already whether that is a subclass? -1 with an exception. Of those that
 * have been registered with it, it remembers no answer, but finds them there. */
static int
remembers(PyObject *cls, PyObject *asked)
{
    static PyObject *current_version;
    if (current_version == NULL)
        current_version = PyImport_ImportModuleAttrString("_abc", "get_cache_token");
    PyObject *version = current_version ? PyObject_CallNoArgs(current_version) : NULL;
    PyObject *memory = version ? PyObject_GetAttrString(cls, "_abc_impl") : NULL;
    PyObject *ref = memory ? PyWeakref_NewRef(asked, NULL) : NULL;
    int found = ref == NULL ? -1 : 0;
    if (found == 0 && Py_TYPE(memory)->tp_basicsize == sizeof(Memory)
        && strcmp(Py_TYPE(memory)->tp_name, "_abc._abc_data") == 0) {
        Memory *m = (Memory *)memory;
        if (m->subclasses != NULL)
            found = PySet_Contains(m->subclasses, ref);
        if (found == 0 && m->registry != NULL)
            found = PySet_Contains(m->registry, ref);
        if (found == 0 && m->others != NULL && m->version == PyLong_AsUnsignedLongLong(version))
            found = PySet_Contains(m->others, ref);
    }
    Py_XDECREF(ref);
    Py_XDECREF(memory);
    Py_XDECREF(version);
    return found;
}

/* Twin of _abc._abc_subclasscheck, of which isinstance() and issubclass() make use. */
PyObject *
check_subclass(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && n == 2 && PyType_Check(args[1])) {
        int remembered = remembers(args[0], args[1]);
        if (remembered < 0
            || (!remembered && exclusive_for(tx, "the first comparison of a class with", args[0]) < 0))
            return NULL;
    }
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* ---- Attributes ------------------------------------------------------------------------- */

static int
read_attr(Tx *tx, PyObject *Py_UNUSED(cls), PyObject *Py_UNUSED(name))
{
    return check_doomed(tx);
}

/* An attribute is to be set or deleted, by a method of the metaclass, or `raw`, past
 * that. Classes are read without asking, and so changed exclusively: but by who has just made them. */
static int
change_attr(Tx *tx, PyObject *cls, PyObject *Py_UNUSED(name), bool del, bool raw)
{
    if (((PyTypeObject *)cls)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return check_doomed(tx);    /* cannot be done */
    int hook = raw ? HOOK_NONE : assignment_hook(Py_TYPE(cls), del ? "__delattr__" : "__setattr__");
    if (hook == HOOK_PYTHON || is_fresh(tx, cls))
        return check_doomed(tx);
    return exclusive_for(tx, "attribute assignment to", cls);
}

/* Special methods of a class are those that its metaclass has. */
static int
use_whole(Tx *tx, PyObject *cls)
{
    return has_unguarded_special_methods(Py_TYPE(cls)) ? exclusive_for(tx, "a special method in C of", cls) : check_doomed(tx);
}

/* Class[key] */
static int
read_key(Tx *tx, PyObject *cls, PyObject *Py_UNUSED(key))
{
    type_entry(tx, (PyTypeObject *)cls);    /* guards what is bound to something already */
    return has_unguarded_special_methods((PyTypeObject *)cls) ? exclusive_for(tx, "a special method in C of", cls) : use_whole(tx, cls);
}

static int
write_key(Tx *tx, PyObject *cls, PyObject *Py_UNUSED(key), bool Py_UNUSED(del))
{
    return use_whole(tx, cls);
}

static int
iterate(Tx *tx, PyObject *cls, int Py_UNUSED(depth))
{
    return use_whole(tx, cls);
}

const struct Kind class_kind = {
    .fixed_attributes = true,
    .plain = true,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .read_whole = use_whole,
    .read_key = read_key,
    .write_key = write_key,
    .iterate = iterate,
};
