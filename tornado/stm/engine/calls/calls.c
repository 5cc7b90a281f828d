/* What a call is about to do: Python functions have barriers of their own, C callables
 * are looked up in the effects table, anything else runs exclusively.
 *
 * The table (filled from effects.py) is keyed by what stays the same whichever
 * way a C function is reached: its PyMethodDef for functions and methods, its
 * slot definition for slot wrappers but constructors, the type for a class, and the address of
 * tp_call for instances of a C type that can be called.
 */
#include "calls.h"

#include "../../interpreter/entry.h"
#include "../objects/access.h"
#include "../objects/attributes.h"
#include "../objects/class.h"
#include "../objects/deep.h"
#include "../objects/dict.h"
#include "../objects/endings.h"
#include "../objects/exception.h"
#include "../objects/function.h"
#include "../objects/generator.h"
#include "../objects/instance.h"
#include "../objects/known.h"
#include "../objects/lru_cache.h"
#include "../objects/memoryview.h"
#include "../objects/namespaces.h"
#include "../objects/ndarray.h"
#include "../objects/structure.h"
#include "callbacks.h"
#include "conversion.h"

#include "internal/pycore_descrobject.h"

typedef struct {
    const void *_Atomic key;    /* written last: others may be looking */
    int effect;
    PyObject *twin;
    PyTypeObject *owner;    /* whose method it is, or NULL: another copy of its module has other types */
    PyObject *module;       /* whose function it is, or NULL: likewise */
    int via;                /* which trampoline, of EFFECT_VIA */
    bool stands_aside;      /* the twin does what the original does, but with barriers: who is exclusive needs none */
} EffectEntry;

#define TABLE 8192
static EffectEntry table[TABLE];
_Atomic unsigned stm_effects_registered;

/* What threads have noted of calls counts no more: the one that is exclusive, which is this one if any, has looked already. */
static void
count_registered(void)
{
    stm_effects_registered++;
    if (stm_self != NULL)
        thread_of(stm_self)->loop.plain_counts = false;
}

PyTypeObject *stm_method_wrapper_type;    /* CPython does not export its name */

static size_t
place(const void *key)
{
    return ((uintptr_t)key >> 3) * 0x9E3779B97F4A7C15ull >> 51;
}

static const EffectEntry *
lookup(const void *key)
{
    static const EffectEntry nothing = {0};
    for (size_t i = place(key);; i = (i + 1) % TABLE) {
        if (table[i].key == key)
            return &table[i];
        if (table[i].key == NULL)
            return &nothing;
    }
}

/* Of a class with a finalizer: its constructor is stood in for (born.c). */
static const EffectEntry watched = {.effect = EFFECT_CREATES};

static const void *
key_of(PyObject *callable)
{
    if (PyCFunction_Check(callable))
        return ((PyCFunctionObject *)callable)->m_ml;
    if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyClassMethodDescr_Type))
        return ((PyMethodDescrObject *)callable)->d_method;
    if (Py_IS_TYPE(callable, &PyWrapperDescr_Type)
        && strcmp(((PyWrapperDescrObject *)callable)->d_base->name, "__init__") != 0)
        return ((PyWrapperDescrObject *)callable)->d_base;
    return callable;
}

/* What a C function or method does, if nothing has to be put in its place and its
 * receiver is of the type that it was declared for; else EFFECT_NONE. */
int
plain_effect(PyObject *callable, PyObject *receiver)
{
    const EffectEntry *e = lookup(key_of(callable));
    bool plain = e->twin == NULL && (e->owner == NULL || Py_IS_TYPE(receiver, e->owner));
    return plain ? e->effect : EFFECT_NONE;
}

/* Does a method use the C state of its receiver, also of a derived type, and nothing else? */
bool
uses_state(PyObject *callable, PyObject *receiver)
{
    const EffectEntry *e = lookup(key_of(callable));
    return e->effect == EFFECT_USES && e->twin == NULL && (e->owner == NULL || PyObject_TypeCheck(receiver, e->owner));
}

/* The module whose function it is, or NULL. */
static PyObject *
module_of(PyObject *callable)
{
    PyObject *self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : NULL;
    return self != NULL && PyModule_Check(self) ? self : NULL;
}

/* A module that is loaded once more has the same definitions, but functions and types of its own. */
static bool
is_of_another_copy(const EffectEntry *e, PyObject *callable)
{
    PyObject *module = e->module != NULL ? module_of(callable) : NULL;
    return module != NULL && module != e->module;
}

PyObject *
plain_twin(PyObject *callable, PyObject *receiver)
{
    const EffectEntry *e = lookup(key_of(callable));
    bool plain = e->effect == EFFECT_TWIN && (e->owner == NULL || Py_IS_TYPE(receiver, e->owner)) && PyCFunction_CheckExact(e->twin)
        && !is_of_another_copy(e, callable);
    return plain ? e->twin : NULL;
}

PyObject *
container_twin(PyObject *type)
{
    const EffectEntry *e = lookup(type);
    return e->effect == EFFECT_ITERATES && e->twin != NULL && PyCFunction_CheckExact(e->twin) ? e->twin : NULL;
}

/* ---- Objects created in this transaction ------------------------------------------ */

/* Stands in for a constructor of C objects whose state cannot be restored: what
 * it makes belongs to this transaction and needs no undo. */
static PyObject *
call_fresh(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *result = PyObject_Vectorcall(self, args, nargs, kwnames);
    Tx *tx = stm_self;
    if (result != NULL && tx != NULL && tx->open && make_fresh(tx, result) < 0)
        Py_CLEAR(result);
    return result;
}

static bool
makes_own(int effect)
{
    return effect == EFFECT_CREATES || effect == EFFECT_DERIVES;
}

/* Stands in for the type of a container or iterator: what it makes is captured. */
static PyObject *
call_captured(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *result = PyObject_Vectorcall(self, args, nargs, kwnames);
    Tx *tx = stm_self;
    if (result != NULL && tx != NULL && tx->live && (PyTypeObject *)self == Py_TYPE(result))
        note_captured(tx, result);
    return result;
}

/* Of an iterator that calls something: a loop takes what is captured for what needs nothing, so there are guards in it from here on. */
static PyObject *
call_guarded(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *result = call_captured(self, args, nargs, kwnames);
    Tx *tx = stm_self;
    if (result != NULL && tx != NULL && tx->open && open_iter(tx, result) < 0)
        Py_CLEAR(result);
    return result;
}

static PyMethodDef call_captured_def = {"call_captured", _PyCFunction_CAST(call_captured),
                                        METH_FASTCALL | METH_KEYWORDS, NULL};
static PyMethodDef call_guarded_def = {"call_guarded", _PyCFunction_CAST(call_guarded), METH_FASTCALL | METH_KEYWORDS, NULL};

/* reversed() may give what a method returns, which can be old. */
static bool
makes_containers(PyObject *type)
{
    if ((PyTypeObject *)type == &PyReversed_Type)
        return false;
    return classify((PyTypeObject *)type)->made_captured;
}

static PyMethodDef call_fresh_def = {"call_fresh", _PyCFunction_CAST(call_fresh),
                                     METH_FASTCALL | METH_KEYWORDS, NULL};

static void
enter(EffectEntry *e, const void *key, int effect, PyObject *twin, PyTypeObject *owner, PyObject *module)
{
    e->effect = effect;
    e->twin = Py_XNewRef(twin);
    e->owner = owner;
    e->module = module;     /* the callable keeps it */
    e->via = 0;
    e->stands_aside = false;
    atomic_store_explicit(&e->key, key, memory_order_release);
    count_registered();
}

/* By one thread at a time. */
int
effects_register(PyObject *callable, int effect, PyObject *twin)
{
    const void *key = key_of(callable);
    if (makes_own(effect)) {
        twin = shared_function(&call_fresh_def, callable);
        if (twin == NULL)
            return -1;
    }
    else if (twin == NULL && PyType_Check(callable) && makes_containers(callable)) {
        twin = shared_function(structure_calls((PyTypeObject *)callable) ? &call_guarded_def : &call_captured_def, callable);
        if (twin == NULL)
            return -1;
    }
    for (size_t i = place(key), n = 0; n < TABLE; n++, i = (i + 1) % TABLE) {
        if (table[i].key != NULL && table[i].key != key)
            continue;
        PyTypeObject *owner = Py_IS_TYPE(callable, &PyMethodDescr_Type) ? PyDescr_TYPE(callable) : NULL;
        if (table[i].key == NULL)
            Py_INCREF(callable);    /* the key lives as long as the table */
        else if (owner != NULL && table[i].owner != NULL && owner != table[i].owner && PyType_IsSubtype(owner, table[i].owner))
            return 0;       /* a derived type has the same definition: what is declared for the base is for both */
        enter(&table[i], key, effect, twin, owner, module_of(callable));
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError, "the table of effects is full");
    return -1;
}

void
twin_stands_aside(PyObject *callable)
{
    EffectEntry *e = (EffectEntry *)lookup(key_of(callable));
    if (e->twin != NULL)
        e->stands_aside = true;
}

/* Calls of instances of this C type have the effect. */
int
effects_register_instances(PyTypeObject *type, int effect, PyObject *twin)
{
    size_t size = effect == EFFECT_PARTIAL ? sizeof(Partial) : effect == EFFECT_GETS_ITEMS ? sizeof(ItemGetter)
        : effect == EFFECT_GETS_ATTRS ? sizeof(AttrGetter) : effect == EFFECT_CALLS_METHOD ? sizeof(MethodCaller)
        : effect == EFFECT_CACHED ? lru_size : effect == EFFECT_COMPUTES_INTO ? ufunc_size : 0;
    if (size != 0 && size != (size_t)type->tp_basicsize)
        effect = EFFECT_EXCLUSIVE;
    if (effect == EFFECT_CACHED)
        lru_watch(type);
    for (size_t i = place(&type->tp_call); ; i = (i + 1) % TABLE) {
        if (table[i].key == NULL || table[i].key == &type->tp_call) {
            Py_INCREF(type);
            enter(&table[i], &type->tp_call, effect, twin, NULL, NULL);
            return 0;
        }
    }
}

/* ---- C functions ---------------------------------------------------------------------- */

typedef struct {
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *const *kw;
    Py_ssize_t nkw;
} Args;

typedef int (*Opener)(Tx *tx, PyObject *obj);

/* The effect of calling an instance of the type. */
static const EffectEntry *
lookup_instances(PyTypeObject *type)
{
    const EffectEntry *e = lookup(&type->tp_call);
    while (e->effect == EFFECT_NONE && is_python_class(type)) {
        type = type->tp_base;
        e = lookup(&type->tp_call);
    }
    return e;
}

static int before_class_call(Tx *tx, PyObject *cls, Args a, const EffectEntry **entry);

/* A function that C code will call with what it finds. Returns the effect that
 * such calls have, or EFFECT_EXCLUSIVE. */
int
effect_as_callback(Tx *tx, PyObject *f)
{
    if (PyMethod_Check(f))
        f = PyMethod_GET_FUNCTION(f);
    if (PyFunction_Check(f))
        return check_doomed(tx) < 0 ? -1 : EFFECT_PURE;
    if (PyCFunction_Check(f) || Py_IS_TYPE(f, &PyMethodDescr_Type)
        || Py_IS_TYPE(f, &PyWrapperDescr_Type) || PyType_Check(f)) {
        int effect = lookup(key_of(f))->effect;
        if (effect == EFFECT_PURE || effect == EFFECT_READS || effect == EFFECT_DEEP)
            return effect;
        if (PyType_Check(f) && is_python_class((PyTypeObject *)f)
            && classify((PyTypeObject *)f) == &instance_kind) {
            const EffectEntry *ignored;
            return before_class_call(tx, f, (Args){0}, &ignored) < 0 ? -1 : EFFECT_PURE;
        }
        return EFFECT_EXCLUSIVE;
    }
    return lookup_instances(Py_TYPE(f))->effect == EFFECT_PURE ? EFFECT_PURE : EFFECT_EXCLUSIVE;
}

int
effect_of_construction(PyTypeObject *type)
{
    return lookup(type)->effect;
}

/* Does calling the class with that do nothing but read it, and can nobody change it? */
bool
reads_constant(PyObject *type, PyObject *arg)
{
    const EffectEntry *e = lookup(type);
    return is_constant(arg) && (e->effect == EFFECT_DEEP || e->effect == EFFECT_PRINTS) && e->twin == NULL;
}

int
effect_of_instances(PyTypeObject *type)
{
    return lookup_instances(type)->effect;
}

/* C code will call it with objects that nobody else has: only what is not known at all,
 * or reaches outside, matters. */
int
call_with_own(Tx *tx, PyObject *f)
{
    if (PyType_Check(f) && is_python_class((PyTypeObject *)f)) {
        const EffectEntry *ignored;
        return before_class_call(tx, f, (Args){0}, &ignored);
    }
    int effect = effect_as_callback(tx, f);
    if (effect < 0 || effect == EFFECT_PURE)
        return effect < 0 ? -1 : check_doomed(tx);
    const EffectEntry *e = lookup(key_of(f));
    bool unknown = e->effect == EFFECT_NONE || e->effect == EFFECT_EXCLUSIVE || e->effect == EFFECT_OPAQUE
        || e->effect == EFFECT_IRREVOCABLE || e->effect == EFFECT_SETS_CONTEXT;
    return unknown ? exclusive_for(tx, "call back of", f) : check_doomed(tx);
}

static bool
is_empty(PyObject *obj)
{
    return is_builtin_container(obj)
        && (PyList_CheckExact(obj) ? PyList_GET_SIZE(obj) : PyDict_CheckExact(obj) ? PyDict_GET_SIZE(obj) : PySet_GET_SIZE(obj)) == 0;
}

/* A method is about to change its receiver in any way, and takes the second argument's items. */
int
open_change(Tx *tx, PyObject *receiver, PyObject *second)
{
    if (second != NULL)
        return open_merge(tx, receiver, second);
    /* There is nothing to clear, reverse or pop: many clear a cache that is empty mostly. */
    if (is_empty(receiver)) {
        if (open_whole_read(tx, receiver) < 0)
            return -1;
        if (is_empty(receiver))
            return check_doomed(tx);
    }
    return open_whole_write(tx, receiver) < 0 ? -1 : open_resize(tx, receiver);
}

static int
open_args(Tx *tx, Args a, Py_ssize_t from, Opener open)
{
    for (int pass = 0; pass < 2; pass++) {
        PyObject *const *v = pass ? a.kw : a.args;
        Py_ssize_t n = pass ? a.nkw : a.n;
        for (Py_ssize_t i = pass ? 0 : from; i < n; i++) {
            if (open(tx, v[i]) < 0)
                return -1;
        }
    }
    return 0;
}

/* C code that is about to make an object takes items from this, and from these, or asks an instance for attributes, and reads their memory. */
static int
open_to_create(Tx *tx, PyObject *obj)
{
    Kind kind = kind_of(tx, obj);
    if (is_python_class(Py_TYPE(obj)) && kind == &instance_kind)
        return open_attributes(tx, obj) < 0 ? -1 : open_memory_of_attributes(tx, obj);
    return kind == &generator_kind || kind == &iterator_kind ? open_iter(tx, obj) : open_deep_read(tx, obj);
}

static bool
has_callable(Args a)
{
    for (Py_ssize_t i = 0; i < a.n + a.nkw; i++) {
        if (PyCallable_Check(i < a.n ? a.args[i] : a.kw[i - a.n]))
            return true;
    }
    return false;
}

static int
open_token(Tx *tx, PyObject *obj)
{
    return Py_IS_TYPE(obj, &PyContextToken_Type) ? open_structure(tx, obj) : 0;
}

static int
open_printed(Tx *tx, PyObject *obj)
{
    return open_deep_read(tx, obj);
}

/* A partial of a partial gets what that adds, if it has no attributes. */
static int
open_partial(Tx *tx, PyObject *obj)
{
    if (kind_of(tx, obj) != &method_kind || lookup_instances(Py_TYPE(obj))->effect != EFFECT_PARTIAL)
        return check_doomed(tx);
    PyObject *dict = NULL;
    if (find_own_dict(tx, obj, &dict) < 0)
        return -1;
    Py_XDECREF(dict);
    return open_whole_read(tx, ((Partial *)obj)->keywords);
}

/* A staticmethod, classmethod or property copies what the function says of itself. */
static int
open_wrapped(Tx *tx, PyObject *obj)
{
    static const char *const texts[4] = {"__doc__", "__module__", "__name__", "__qualname__"};
    static PyObject *names[4];
    if (is_constant(obj))
        return check_doomed(tx);
    if (PyObject_TypeCheck(obj, &PyProperty_Type)) {
        PyObject *get = ((propertyobject *)obj)->prop_get;      /* which never changes */
        return get == NULL ? check_doomed(tx) : open_wrapped(tx, get);
    }
    for (int i = 0; i < 4; i++) {
        if (names[i] == NULL)
            names[i] = PyUnicode_InternFromString(texts[i]);
        if (open_attr_read(tx, obj, names[i]) < 0)
            return -1;
    }
    return 0;
}

/* Exceptions of these types copy what there is in their arguments. */
static bool
copies_arguments(PyObject *exception)
{
    return PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_SyntaxError) || PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_UnicodeError);
}

/* object.__init__, list.__init__, ...: those that have no twin. */
static int
before_init(Tx *tx, Args a)
{
    if (a.n == 0)
        return 0;
    Kind kind = kind_of(tx, a.args[0]);
    if (PyExceptionInstance_Check(a.args[0])) {
        int r = open_exception_init(tx, a.args[0]);
        return r == 0 && copies_arguments(a.args[0]) ? open_args(tx, a, 1, open_iter) : r;
    }
    bool wraps = kind == &inert_kind || kind == &method_kind || kind == &function_kind || kind == &super_kind;
    if (wraps && Py_TYPE(a.args[0])->tp_init != PyBaseObject_Type.tp_init)
        return exclusive_for(tx, "a new beginning of", a.args[0]);     /* a property, for example */
    /* A default_factory, which else only who runs alone sets; attributes. */
    PyTypeObject *base = c_base(Py_TYPE(a.args[0]));
    bool sets_more = (kind == &dict_kind && base->tp_init != PyDict_Type.tp_init)
        || (kind == &instance_kind && base->tp_dictoffset != 0 && base->tp_init != PyBaseObject_Type.tp_init);
    if (sets_more && !captured(tx, a.args[0]))
        return exclusive_for(tx, "a new beginning of", a.args[0]);
    if (kind == &instance_kind || kind == &inert_kind || kind == &tuple_kind || kind == &class_kind
        || kind == &function_kind || kind == &module_kind || kind == &reference_kind)
        return 0;
    if (kind == &deque_kind)
        return exclusive_for(tx, "a new beginning of", a.args[0]);     /* changes maxlen too */
    if (kind == &dict_kind && namespace_of(a.args[0]) != NULL)
        return exclusive_for(tx, "a new beginning of", a.args[0]);
    if (open_whole_write(tx, a.args[0]) < 0 || open_resize(tx, a.args[0]) < 0)
        return -1;
    return open_args(tx, a, 1, kind->mapping ? open_deep : open_iter);
}

/* Stands in for a call that was to delete a key, and give back its value: it has been done. */
static PyObject *
give_deleted(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    PyObject *value = thread_of(stm_self)->loop.deleted;
    thread_of(stm_self)->loop.deleted = NULL;
    return value;
}

static PyMethodDef give_deleted_def = {"give_deleted", _PyCFunction_CAST(give_deleted), METH_FASTCALL, NULL};

/* pop, not __delitem__ or operator.delitem */
static bool
gives_value(PyObject *callable)
{
    return Py_IS_TYPE(callable, &PyMethodDescr_Type)
        || (PyCFunction_Check(callable) && !PyModule_Check(PyCFunction_GET_SELF(callable)));
}

/* Is this call sure to delete the key from the dict, by no Python code? */
static bool
deletes_itself(PyObject *callable, PyObject *receiver, Args a)
{
    if (a.n > (gives_value(callable) ? 3 : 2) || a.nkw > 0)
        return false;       /* it will complain */
    if (!PyCFunction_Check(callable) || PyCFunction_GET_SELF(callable) == receiver)
        return true;        /* dict.pop, dict.__delitem__ */
    if (strcmp(((PyCFunctionObject *)callable)->m_ml->ml_name, "delitem") != 0)
        return false;       /* weakref._remove_dead_weakref looks at what is there */
    PyMappingMethods *mapping = Py_TYPE(receiver)->tp_as_mapping;
    return mapping != NULL && mapping->mp_ass_subscript == PyDict_Type.tp_as_mapping->mp_ass_subscript;
}

/* C code that computes with arrays, or draws random numbers: who has drawn some is another one then. */
static int
open_computation(Tx *tx, Args a)
{
    PyObject *first = a.n > 0 ? a.args[0] : Py_None;
    if (lookup_instances(Py_TYPE(first))->effect == EFFECT_COMPUTES_INTO && ufunc_calls_back(first))
        return exclusive_for(tx, "a method of", first);
    bool draws = kind_of(tx, first) == &endpoint_kind;
    if (draws && open_whole_write(tx, a.args[0]) < 0)
        return -1;
    return open_args(tx, a, draws, open_deep);
}

/* Of the methods that continue a generator: not throw, nor close */
static bool
is_send(PyObject *callable)
{
    PyMethodDef *method = PyCFunction_Check(callable) ? ((PyCFunctionObject *)callable)->m_ml
        : Py_IS_TYPE(callable, &PyMethodDescr_Type) ? ((PyMethodDescrObject *)callable)->d_method : NULL;
    return method != NULL && strcmp(method->ml_name, "send") == 0;
}

/* throw(Class): does the class say how one is made, and may give one that others know? */
static bool
makes_other_exceptions(PyTypeObject *type)
{
    return is_python_class(type) && (type->tp_new != c_base(type)->tp_new || has_unguarded_special_methods(type)
                                     || Py_TYPE(type)->tp_call != PyType_Type.tp_call);
}

static int
apply(Tx *tx, const EffectEntry *e, PyObject *callable, Args a)
{
    PyObject *receiver = a.n ? a.args[0] : NULL;
    switch (e->effect) {
    case EFFECT_GETS_LOCALS:
        return open_locals(tx);
    case EFFECT_PURE:
    case EFFECT_TWIN:
        return check_doomed(tx);
    case EFFECT_WRAPS:
        if (PyType_Check(callable) && lookup_instances((PyTypeObject *)callable)->effect == EFFECT_PARTIAL)
            return receiver == NULL ? check_doomed(tx) : open_partial(tx, receiver);
        return open_args(tx, a, 0, open_wrapped);
    case EFFECT_BUILDS_CLASS:
        return open_class_parts(tx, a.args, a.n) < 0 ? -1 : open_class_parts(tx, a.kw, a.nkw);
    case EFFECT_REFERS:
        keep_referent(tx, callable);
        return check_doomed(tx);
    case EFFECT_CREATES:
        return open_args(tx, a, 0, open_to_create);
    case EFFECT_DERIVES:
        return receiver != NULL && open_to_create(tx, receiver) < 0 ? -1 : open_args(tx, a, 1, open_whole_write);
    case EFFECT_COMPUTES:
    case EFFECT_COMPUTES_INTO:
        return open_computation(tx, a);
    case EFFECT_READS:
    case EFFECT_CALLS_BACK:
        return open_args(tx, a, 0, open_whole_read);
    case EFFECT_DEEP:
        return open_args(tx, a, 0, open_deep);
    case EFFECT_PRINTS:
        return open_args(tx, a, 0, open_printed);
    case EFFECT_INTERPOLATES:
        thread_of(tx)->loop.prints = true;
        if (a.n > 1 && open_interpolated(tx, a.args[0], a.args[1]) < 0)
            return -1;
        return open_args(tx, a, 0, open_printed);
    case EFFECT_LOOKS_UP:
        return open_args(tx, a, 0, open_lookups) < 0 ? -1 : open_args(tx, a, 0, open_deep);
    case EFFECT_ITERATES:
        return open_args(tx, a, 0, open_iter);
    case EFFECT_COMPILES:
        return receiver == NULL || PyUnicode_Check(receiver) || PyBytes_Check(receiver)
            ? check_doomed(tx) : exclusive_for(tx, "call of", callable);
    case EFFECT_CALLED_LATER:
        return a.n > 1 && PyCallable_Check(a.args[1]) && effect_as_callback(tx, a.args[1]) < 0 ? -1 : check_doomed(tx);
    case EFFECT_IRREVOCABLE:
        return become_inevitable(tx, GRADE_IRREVOCABLE);
    case EFFECT_RUNS_CONTEXT:
        return receiver == NULL ? 0 : open_context(tx, receiver);
    case EFFECT_SETS_CONTEXT:
        /* ContextVar.reset uses its token up, and so does the end of `with variable.set(value):`. */
        if (open_args(tx, a, 0, open_token) < 0)
            return -1;
        /* A thread gets its context when somebody asks for that. */
        if (tx->tstate->context == NULL)
            Py_XDECREF(PyContext_CopyCurrent());
        return tx->tstate->context == NULL ? -1 : open_context(tx, tx->tstate->context);
    case EFFECT_OPAQUE:
        return receiver == NULL || is_fresh(tx, receiver) || is_own_exception(tx, receiver)
            ? check_doomed(tx) : exclusive_for(tx, "call of", callable);
    case EFFECT_CONVERTS: {
        bool bound = PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) != NULL && !PyModule_Check(PyCFunction_GET_SELF(callable));
        bool method = bound || is_converters_method(callable, receiver);
        if (method && receiver == NULL)
            return 0;
        return open_conversion(tx, method ? receiver : NULL, a.args + method, a.n - method, a.kw, a.nkw);
    }
    case EFFECT_SEEDS:
        if (receiver != NULL && receiver == stm_unordered) {
            if (exclusive_for(tx, "the module's random numbers get an order by", callable) < 0)
                return -1;
            Py_CLEAR(stm_unordered);
        }
        /* fall through */
    case EFFECT_FILLS:
        if (e->effect == EFFECT_FILLS && a.n > 1 && open_whole_write(tx, a.args[1]) < 0)
            return -1;
        /* fall through */
    case EFFECT_USES:
        if (open_args(tx, a, 1, open_iter) < 0)
            return -1;
        return receiver == NULL ? 0 : open_state(tx, receiver);
    case EFFECT_NONE:
    case EFFECT_EXCLUSIVE:
        return exclusive_for(tx, "call of", callable);
    default:
        break;
    }
    if (receiver == NULL && (e->effect == EFFECT_GETS_DICT || e->effect == EFFECT_ATTRIBUTES))
        return open_locals(tx);
    if (receiver == NULL)       /* the call itself will complain, unless all have names */
        return a.nkw == 0 ? 0 : exclusive_for(tx, "call by names of", callable);
    PyObject *second = a.n > 1 ? a.args[1] : NULL;
    switch (e->effect) {
    case EFFECT_GETS_KEY:
        return second == NULL ? 0 : open_key_read(tx, receiver, second);
    case EFFECT_GETS_ITEM:
        return second == NULL ? 0 : open_item_read(tx, receiver, second);
    case EFFECT_PUTS_KEY:
        if (second != NULL && a.n > 2 && kind_of(tx, receiver) == &ndarray_kind)
            return open_array_item(tx, receiver, second, a.args[2]);
        if (second != NULL && PySlice_Check(second) && a.n > 2 && open_iter(tx, a.args[2]) < 0)
            return -1;
        if (second == NULL)     /* the key has a name */
            return a.nkw == 0 ? 0 : open_whole_write(tx, receiver);
        return open_key_write(tx, receiver, second, false);
    case EFFECT_DELETES_KEY: {
        if (second == NULL)
            return open_whole_write(tx, receiver);
        if (!deletes_itself(callable, receiver, a))
            return open_key_write(tx, receiver, second, true);
        int done = delete_key(tx, receiver, second, &thread_of(tx)->loop.deleted);
        if (done > 0 && !gives_value(callable))
            Py_SETREF(thread_of(tx)->loop.deleted, Py_NewRef(Py_None));
        return done < 0 ? -1 : 0;
    }
    case EFFECT_MUTATES:
        if (open_change(tx, receiver, second) < 0)
            return -1;
        return open_args(tx, a, 1, open_iter);
    case EFFECT_DEQUE_REMOVE: {
        int opened = second != NULL ? open_deque_remove(tx, receiver, second) : 0;
        if (opened != 0)
            return opened < 0 ? -1 : 0;
    }
        /* fall through */
    case EFFECT_MUTATES_DEEP:
        if (open_change(tx, receiver, second) < 0)
            return -1;
        if (second != NULL && kind_of(tx, receiver)->mapping && open_dict_operand(tx, second) < 0)
            return -1;      /* dict.__ior__ */
        return open_args(tx, a, 0, open_deep);
    case EFFECT_MUTATES_SECOND:
        if (second == NULL || open_whole_write(tx, second) < 0)
            return second == NULL ? 0 : -1;
        return open_args(tx, a, 2, open_whole_read);
    case EFFECT_LIST_APPEND:
        return open_list_append(tx, receiver);
    case EFFECT_LIST_EXTEND:
        if (open_list_append(tx, receiver) < 0)
            return -1;
        return open_args(tx, a, 1, open_iter);
    case EFFECT_LIST_POP:
        return open_list_pop(tx, receiver, second == NULL ? -1 : 0);
    case EFFECT_SET_CHANGE:
        return second == NULL ? 0 : open_set_change(tx, receiver, second);
    case EFFECT_DEQUE_APPEND:
        return open_deque_op(tx, receiver, DEQUE_APPEND);
    case EFFECT_DEQUE_APPENDLEFT:
        return open_deque_op(tx, receiver, DEQUE_APPENDLEFT);
    case EFFECT_DEQUE_POP:
        return open_deque_op(tx, receiver, DEQUE_POP);
    case EFFECT_DEQUE_POPLEFT:
        return open_deque_op(tx, receiver, DEQUE_POPLEFT);
    case EFFECT_GETS_ATTR:
        if (second == NULL || !PyUnicode_Check(second))
            return 0;
        return open_attr_read(tx, receiver, second);
    case EFFECT_SETS_ATTR:
        if (second == NULL || !PyUnicode_Check(second))
            return 0;
        if (a.n > 2 && replaces_own(tx, receiver, second, a.args[2], Py_IS_TYPE(callable, &PyWrapperDescr_Type)))
            return check_doomed(tx);
        return open_attr_write(tx, receiver, second,
                               Py_IS_TYPE(callable, &PyWrapperDescr_Type));
    case EFFECT_DELETES_ATTR:
        if (second == NULL || !PyUnicode_Check(second))
            return 0;
        return open_attr_delete(tx, receiver, second, Py_IS_TYPE(callable, &PyWrapperDescr_Type));
    case EFFECT_BINDS: {
        bool reads = Py_IS_TYPE(receiver, &PyMemberDescr_Type) || Py_IS_TYPE(receiver, &PyGetSetDescr_Type);
        return reads && second != NULL && second != Py_None ? open_attr_read(tx, second, PyDescr_NAME(receiver)) : check_doomed(tx);
    }
    case EFFECT_GETS_DICT: {
        PyObject *name = a.n == 1 ? PyUnicode_InternFromString("__dict__") : NULL;
        int r = name == NULL ? exclusive_for(tx, "call of", callable) : open_attr_read(tx, receiver, name);
        Py_XDECREF(name);
        return r;
    }
    case EFFECT_ATTRIBUTES:
        return open_attributes(tx, receiver);
    case EFFECT_REDUCES:
        return open_reduced(tx, receiver);
    case EFFECT_REMAKES:
        if (open_attributes(tx, receiver) < 0)
            return -1;
        return kind_of(tx, receiver) == &fields_kind ? open_making(tx, Py_TYPE(receiver)) : check_doomed(tx);
    case EFFECT_RAISES:
        return PyExceptionInstance_Check(receiver) ? open_exception(tx, receiver) : 0;
    case EFFECT_RELEASES:
        return open_view_release(tx, receiver);
    case EFFECT_RESUMES: {
        /* Or what is awaited of an asynchronous generator, and refers to it. */
        Kind kind = kind_of(tx, receiver);
        if (kind != &generator_kind && kind != &iterator_kind)
            return exclusive_for(tx, "call of", callable);      /* another type's, whose wrapper is the same */
        /* throw(exception): it gets a traceback. */
        for (Py_ssize_t i = 1; i < a.n; i++) {
            if (PyExceptionInstance_Check(a.args[i]) && open_exception(tx, a.args[i]) < 0)
                return -1;
            if (PyExceptionClass_Check(a.args[i]) && makes_other_exceptions((PyTypeObject *)a.args[i])
                && exclusive_for(tx, "an exception that is made by", a.args[i]) < 0)
                return -1;
        }
        if (kind == &generator_kind)
            return is_send(callable) ? open_generator(tx, receiver) : open_generator_throw(tx, receiver);
        return open_iter(tx, receiver);
    }
    case EFFECT_ADVANCES:
        return open_iter(tx, receiver);
    }
    return exclusive_for(tx, "call of", callable);
}

/* Entries for what is called through a trampoline. */
static const EffectEntry via[] = {
    [VIA_METHOD] = {.effect = EFFECT_VIA, .via = VIA_METHOD},
    [VIA_PARTIAL] = {.effect = EFFECT_VIA, .via = VIA_PARTIAL},
    [VIA_ATTRGETTER] = {.effect = EFFECT_VIA, .via = VIA_ATTRGETTER},
    [VIA_METHODCALLER] = {.effect = EFFECT_VIA, .via = VIA_METHODCALLER},
    [VIA_CALLBACKS] = {.effect = EFFECT_VIA, .via = VIA_CALLBACKS},
    [VIA_CONTEXT] = {.effect = EFFECT_VIA, .via = VIA_CONTEXT},
    [VIA_CONVERSION] = {.effect = EFFECT_VIA, .via = VIA_CONVERSION},
    [VIA_LRU] = {.effect = EFFECT_VIA, .via = VIA_LRU},
    [VIA_ANCHOR] = {.effect = EFFECT_VIA, .via = VIA_ANCHOR},
    [VIA_NEW] = {.effect = EFFECT_VIA, .via = VIA_NEW},
    [VIA_COMPUTATION] = {.effect = EFFECT_VIA, .via = VIA_COMPUTATION},
    [VIA_COMPUTATION_INTO] = {.effect = EFFECT_VIA, .via = VIA_COMPUTATION_INTO},
};

/* ---- Classes ------------------------------------------------------------------------------ */

static PyObject *init_name, *new_name, *call_name;

int
calls_init(void)
{
    init_name = PyUnicode_InternFromString("__init__");
    new_name = PyUnicode_InternFromString("__new__");
    call_name = PyUnicode_InternFromString("__call__");
    return init_name == NULL || new_name == NULL || call_name == NULL ? -1 : 0;
}

/* Does a call of that class do nothing but object.__new__, whose end nobody is told of? */
static bool
makes_plain_object(PyTypeObject *type)
{
    return type->tp_new == PyBaseObject_Type.tp_new && type->tp_init == PyBaseObject_Type.tp_init && type->tp_finalize == NULL
        && Py_TYPE(type)->tp_call == PyType_Type.tp_call;
}

/* Does the __new__ of that class do nothing but make an object? */
static bool
only_makes(PyTypeObject *type)
{
    Kind kind = classify(type);
    newfunc makes = type->tp_new;
    return makes == PyBaseObject_Type.tp_new || makes == ((PyTypeObject *)PyExc_BaseException)->tp_new
        || (kind == &dict_kind && makes == PyDict_Type.tp_new) || (kind == &list_kind && makes == PyList_Type.tp_new)
        || (kind == &set_kind && makes == PySet_Type.tp_new);
}

/* Does a call of that class do what that of a container in C does from which it is derived, and nothing else? */
static bool
only_takes_items(PyTypeObject *type)
{
    PyTypeObject *base = c_base(type);
    bool container = base == &PyTuple_Type || base == &PyList_Type || base == &PySet_Type || base == &PyFrozenSet_Type
        || base == &PyBytes_Type || base == &PyByteArray_Type || classify(base) == &deque_kind;
    return container && type->tp_new == base->tp_new && type->tp_init == base->tp_init && Py_TYPE(type)->tp_call == PyType_Type.tp_call;
}

static int
before_class_call(Tx *tx, PyObject *cls, Args a, const EffectEntry **entry)
{
    PyTypeObject *type = (PyTypeObject *)cls;
    const EffectEntry *e = lookup(cls);
    if (e->effect != EFFECT_NONE) {
        *entry = e;
        return apply(tx, e, cls, a);
    }
    if (!is_python_class(type))
        return exclusive_for(tx, "construction of", cls);
    if (type_entry(tx, type)->kind == &unknown_kind || has_unguarded_special_methods(Py_TYPE(cls)))
        return exclusive_for(tx, "construction of", cls);
    bool watch = ends_in_python(type);
    if (watch)
        *entry = &watched;
    if (type_entry(tx, type)->kind == &fields_kind)
        return open_making(tx, type);
    bool python_init = false;
    PyObject *names[2] = {init_name, new_name};
    for (int i = 0; i < 2; i++) {
        PyObject *m = _PyType_LookupRef(type, names[i]);
        if (m != NULL && Py_IS_TYPE(m, &PyStaticMethod_Type))
            Py_SETREF(m, PyObject_GetAttr(cls, names[i]));
        int r = 0;
        if (m != NULL && PyFunction_Check(m)) {
            python_init = true;
            r = check_doomed(tx);
        }
        Py_XDECREF(m);
        if (r < 0)
            return -1;
        /* A C function would begin it, with what it is given. */
        if (i == 0 && !python_init && type_entry(tx, type)->kind == &opaque_kind)
            return exclusive_for(tx, "construction of", cls);
    }
    if (python_init) {
        if (Py_TYPE(cls)->tp_call == PyType_Type.tp_call && only_makes(type) && !watch) {
            type_entry(tx, type)->simple_call = true;
            thread_of(tx)->loop.constructing = type;
        }
        else
            type_entry(tx, type)->python_call = !watch;
        return 0;
    }
    if (a.n == 0 && a.nkw == 0 && !watch && makes_plain_object(type)) {
        *entry = &via[VIA_NEW];
        return check_doomed(tx);
    }
    if (a.n == 1 && a.nkw == 0 && Py_TYPE(cls) == &PyType_Type && classify(type) == &dict_kind && type->tp_init == PyDict_Type.tp_init) {
        Kind kind = kind_of(tx, a.args[0]);
        if (kind == &generator_kind || kind == &iterator_kind) {
            /* A subclass of dict from rows: the twin takes them one by one. */
            *entry = lookup(&PyType_Type.tp_call);
            return check_doomed(tx);
        }
    }
    /* The constructor of the C base takes the arguments. */
    return open_args(tx, a, 0, only_takes_items(type) ? open_iter : open_deep);
}

/* ---- The barrier's work ---------------------------------------------------------------------- */

/* One of the engine's functions, which has been put in the place of another: a call may be announced twice, by the
 * instruction that was specialised for the other, and by the generic one in its place. */
bool
stands_in(PyObject *callable)
{
    if (!PyCFunction_CheckExact(callable))
        return false;
    extern char __ehdr_start __attribute__((visibility("hidden"))), _end __attribute__((visibility("hidden")));
    /* Not what it calls: that may stand in for the interpreter's own (waiting.c). */
    char *definition = (char *)((PyCFunctionObject *)callable)->m_ml;
    return definition > &__ehdr_start && definition < &_end && lookup(key_of(callable))->effect == EFFECT_NONE;
}

static int before(Tx *tx, PyObject *callable, Args a, const EffectEntry **entry, int depth);

/* A C function or method: its effect, and what it calls. */
static int
before_c_function(Tx *tx, PyObject *callable, Args a, const EffectEntry **entry)
{
    const EffectEntry *e = lookup(key_of(callable));
    *entry = e;
    if (apply(tx, e, callable, a) < 0)
        return -1;
    if (e->effect == EFFECT_CONVERTS)
        *entry = &via[VIA_CONVERSION];
    if (e->effect == EFFECT_CALLS_BACK && has_callable(a))
        *entry = &via[VIA_CALLBACKS];
    if (e->effect == EFFECT_RUNS_CONTEXT && a.n > 1 && !PyFunction_Check(a.args[1]))
        *entry = &via[VIA_CONTEXT];
    if (e->effect == EFFECT_COMPUTES)
        *entry = &via[VIA_COMPUTATION];
    if (e->effect == EFFECT_COMPUTES_INTO)
        *entry = &via[VIA_COMPUTATION_INTO];
    return 0;
}

/* functools.partial of something else than a Python function: where nothing stands in for
 * that, it may make the call itself. */
static int
before_partial(Tx *tx, Partial *p, Args a, const EffectEntry **entry)
{
    PyObject *all[16], *k, *v;
    Py_ssize_t own = PyTuple_GET_SIZE(p->args), own_kw = PyDict_GET_SIZE(p->keywords), pos = 0, n = 0;
    *entry = &via[VIA_PARTIAL];
    if (p->placeholders != 0 || own + a.n + own_kw + a.nkw > (Py_ssize_t)Py_ARRAY_LENGTH(all))
        return check_doomed(tx);
    for (Py_ssize_t i = 0; i < own; i++)
        all[n++] = PyTuple_GET_ITEM(p->args, i);
    for (Py_ssize_t i = 0; i < a.n; i++)
        all[n++] = a.args[i];
    PyObject **kw = all + n;
    while (PyDict_Next(p->keywords, &pos, &k, &v))
        all[n++] = v;
    for (Py_ssize_t i = 0; i < a.nkw; i++)
        all[n++] = a.kw[i];
    const EffectEntry *e = NULL;
    if (before(tx, p->function, (Args){all, own + a.n, kw, own_kw + a.nkw}, &e, 1) < 0)
        return -1;
    if (e == NULL || (e->twin == NULL && e->effect != EFFECT_VIA && e != &watched))
        *entry = NULL;
    return 0;
}

/* An instance of a C type that can be called, or of a class derived from one. */
static int
before_instance(Tx *tx, const EffectEntry *e, PyObject *callable, Args a, const EffectEntry **entry)
{
    *entry = e;
    switch (e->effect) {
    case EFFECT_PARTIAL: {
        Partial *p = (Partial *)callable;
        PyObject *f = PyMethod_Check(p->function) ? PyMethod_GET_FUNCTION(p->function) : p->function;
        if (open_whole_read(tx, p->keywords) < 0)
            return -1;
        if (PyFunction_Check(f))
            return check_doomed(tx);
        return before_partial(tx, p, a, entry);
    }
    case EFFECT_GETS_ITEMS: {
        ItemGetter *getter = (ItemGetter *)callable;
        for (Py_ssize_t i = 0; a.n == 1 && i < getter->n; i++) {
            PyObject *item = getter->n == 1 ? getter->items : PyTuple_GET_ITEM(getter->items, i);
            if (open_item_read(tx, a.args[0], item) < 0)
                return -1;
        }
        return check_doomed(tx);
    }
    case EFFECT_GETS_ATTRS: {
        AttrGetter *getter = (AttrGetter *)callable;
        for (Py_ssize_t i = 0; a.n == 1 && i < getter->n; i++) {
            PyObject *name = PyTuple_GET_ITEM(getter->attrs, i);
            if (PyTuple_Check(name)) {
                *entry = &via[VIA_ATTRGETTER];
                break;
            }
            if (open_attr_read(tx, a.args[0], name) < 0)
                return -1;
        }
        return check_doomed(tx);
    }
    case EFFECT_CALLS_PARTS:
        return guard_parts(tx, callable) < 0 ? -1 : open_args(tx, a, 0, open_deep);
    case EFFECT_CONVERTS:
        *entry = &via[VIA_CONVERSION];
        return open_conversion(tx, callable, a.args, a.n, a.kw, a.nkw);
    case EFFECT_CACHED:
        *entry = &via[VIA_LRU];
        return check_doomed(tx);
    case EFFECT_COMPUTES_INTO:
        *entry = &via[VIA_COMPUTATION_INTO];
        return ufunc_calls_back(callable) ? exclusive_for(tx, "call of", callable) : open_computation(tx, a);
    case EFFECT_DISPATCHES: {
        PyObject *function = PyObject_GetAttrString(callable, "_implementation");
        int r = function == NULL ? -1 : before(tx, function, a, entry, 1);
        Py_XDECREF(function);       /* the callable keeps it */
        if (r == 0 && *entry != NULL && (*entry)->effect != EFFECT_VIA)
            *entry = NULL;
        return r;
    }
    case EFFECT_CALLS_METHOD:
        *entry = &via[VIA_METHODCALLER];
        return check_doomed(tx);
    default:
        return apply(tx, e, callable, a);
    }
}

/* Is the slot that this wrapper calls another one than that of a call of the receiver, whose class has its own in Python? */
static bool
is_overridden_call(PyObject *wrapper, PyObject *receiver)
{
    PyTypeObject *t = Py_TYPE(receiver);
    return !PyType_Check(receiver) && is_python_class(t) && t->tp_call != PyDescr_TYPE(wrapper)->tp_call;
}

/* super().__call__() in such a class. */
static int
before_inherited_call(Tx *tx, PyObject *wrapper, Args a)
{
    const EffectEntry *e = lookup_instances(PyDescr_TYPE(wrapper));
    if (e->effect != EFFECT_PURE && e->effect != EFFECT_REFERS)
        return exclusive_for(tx, "call of", a.args[0]);
    return apply(tx, e, a.args[0], (Args){a.args + 1, a.n - 1, a.kw, a.nkw});
}

/* Does the twin only note what has been made, for an attempt that may be rolled back? */
static bool
only_notes(PyObject *twin)
{
    const PyMethodDef *def = PyCFunction_CheckExact(twin) ? ((PyCFunctionObject *)twin)->m_ml : NULL;
    return def == &call_captured_def || def == &call_guarded_def || def == &call_fresh_def;
}

/* What c(...) calls, if c is something.__call__ that does what calling that does. */
static PyObject *
called_by(PyObject *c)
{
    while (UNLIKELY(Py_IS_TYPE(c, stm_method_wrapper_type))) {
        MethodWrapper *bound = (MethodWrapper *)c;
        if (strcmp(((PyWrapperDescrObject *)bound->descr)->d_base->name, "__call__") != 0
            || Py_TYPE(bound->self)->tp_call != PyDescr_TYPE(bound->descr)->tp_call)
            break;
        c = bound->self;
    }
    return c;
}

/* Does the entry say that something is put in the place of what is called? */
static bool
is_stood_in(const EffectEntry *e)
{
    return e != NULL && (e->twin != NULL || e->effect == EFFECT_VIA);
}

/* C code calls what has that entry, in whose place nothing can be put. */
static int
leave_to_c(Tx *tx, PyObject *callable, const EffectEntry **entry)
{
    const EffectEntry *e = *entry;
    if (!is_stood_in(e))
        return 0;
    *entry = NULL;
    bool notes = e->effect == EFFECT_VIA ? e->via == VIA_NEW : only_notes(e->twin);
    return notes ? 0 : exclusive_for(tx, "call by __call__ of", callable);
}

/* The same for something bound: with its receiver as the first argument. */
static int
before_bound(Tx *tx, PyObject *callable, PyObject *self, Args a, const EffectEntry **entry, int depth)
{
    PyObject *few[8], **more = few;
    if (a.n >= 8 && (more = PyMem_Malloc((a.n + 1) * sizeof(PyObject *))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    more[0] = self;
    if (a.n > 0)
        memcpy(more + 1, a.args, a.n * sizeof(PyObject *));
    a = (Args){more, a.n + 1, a.kw, a.nkw};
    int r = PyCFunction_Check(callable) ? before_c_function(tx, callable, a, entry)
        : before(tx, callable, a, entry, depth + 1);
    if (more != few)
        PyMem_Free(more);
    return r;
}

static int
before(Tx *tx, PyObject *callable, Args a, const EffectEntry **entry, int depth)
{
    if (PyFunction_Check(callable))
        return check_doomed(tx);
    if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyClassMethodDescr_Type))
        return before_c_function(tx, callable, a, entry);
    if (depth > 8)
        return exclusive_for(tx, "call of", callable);
    if (PyMethod_Check(callable)) {
        PyObject *f = PyMethod_GET_FUNCTION(callable);
        if (PyFunction_Check(f))
            return check_doomed(tx);
        *entry = &via[VIA_METHOD];
        return check_doomed(tx);
    }
    if (PyCFunction_Check(callable)) {
        if (stands_in(callable))
            return 0;
        PyObject *self = PyCFunction_GET_SELF(callable);
        int flags = PyCFunction_GET_FLAGS(callable);
        if (self != NULL && PyType_Check(self) && a.n > 0
            && strcmp(((PyCFunctionObject *)callable)->m_ml->ml_name, "__new__") == 0) {
            /* tuple.__new__(cls, ...): what the constructor of that type does. */
            const EffectEntry *type_entry = lookup(self);
            if (PyType_Check(a.args[0]) && ends_in_python((PyTypeObject *)a.args[0]))
                *entry = &watched;
            else if (self == (PyObject *)&PyBaseObject_Type && PyType_Check(a.args[0]) && ((PyTypeObject *)a.args[0])->tp_finalize == NULL)
                *entry = &via[VIA_NEW];
            return apply(tx, type_entry, self, (Args){a.args + 1, a.n - 1, a.kw, a.nkw});
        }
        if (self == NULL || PyModule_Check(self) || (flags & METH_STATIC))
            return before_c_function(tx, callable, a, entry);
        return before_bound(tx, callable, self, a, entry, depth);
    }
    if (Py_IS_TYPE(callable, stm_method_wrapper_type)) {
        PyObject *called = called_by(callable);
        if (called != callable)
            return before(tx, called, a, entry, depth + 1);
        MethodWrapper *bound = (MethodWrapper *)callable;
        return before_bound(tx, bound->descr, bound->self, a, entry, depth);
    }
    if (Py_IS_TYPE(callable, &PyWrapperDescr_Type)) {
        const char *name = ((PyWrapperDescrObject *)callable)->d_base->name;
        if (strcmp(name, "__init__") == 0) {
            *entry = lookup(callable);
            return (*entry)->twin != NULL ? check_doomed(tx) : before_init(tx, a);
        }
        if (strcmp(name, "__call__") == 0 && a.n > 0) {
            if (is_overridden_call(callable, a.args[0]))
                return before_inherited_call(tx, callable, a);
            int r = before(tx, a.args[0], (Args){a.args + 1, a.n - 1, a.kw, a.nkw}, entry, depth + 1);
            return r < 0 ? -1 : leave_to_c(tx, a.args[0], entry);
        }
        const EffectEntry *e = lookup(key_of(callable));
        return apply(tx, e, callable, a);
    }
    if (PyType_Check(callable))
        return before_class_call(tx, callable, a, entry);
    if (Py_TYPE(callable)->tp_call == NULL)
        return check_doomed(tx);        /* the interpreter complains */
    /* An instance that can be called. */
    if (is_python_class(Py_TYPE(callable))) {
        PyObject *call = _PyType_LookupRef(Py_TYPE(callable), call_name);
        int r = -1;
        bool python = call != NULL && PyFunction_Check(call);
        if (python)
            r = check_doomed(tx);
        else if (call != NULL && PyCFunction_CheckExact(call)) {    /* it is called without the instance: typing.NewType's */
            python = true;
            r = before(tx, call, a, entry, depth + 1);
            bool stood_in = is_stood_in(*entry);
            *entry = NULL;
            if (r == 0 && stood_in)
                r = exclusive_for(tx, "call of", callable);
        }
        else if (call == NULL || !Py_IS_TYPE(call, &PyWrapperDescr_Type)) {
            python = true;
            r = exclusive_for(tx, "call of", callable);
        }
        Py_XDECREF(call);
        if (python)
            return r;
    }
    const EffectEntry *e = lookup_instances(Py_TYPE(callable));
    if (e->effect != EFFECT_NONE)
        return before_instance(tx, e, callable, a, entry);
    return before_c_function(tx, callable, a, entry);       /* of another C type than CPython's: Cython's */
}

/* What the effect of a call is found by in an exclusive transaction, which is told of no other's callbacks. */
static const void *
key_when_alone(PyObject *c)
{
    if (LIKELY(Py_IS_TYPE(c, &PyMethodDescr_Type)))
        return ((PyMethodDescrObject *)c)->d_method;
    if (LIKELY(Py_IS_TYPE(c, &PyCFunction_Type)))
        return ((PyCFunctionObject *)c)->m_ml;
    if (PyCFunction_Check(c))
        return key_of(c);
    /* An instance may be declared by itself. */
    return PyType_Check(c) || lookup(c)->effect != EFFECT_NONE ? (const void *)c : (const void *)&Py_TYPE(c)->tp_call;
}

bool
needs_nothing_alone(Tx *tx, PyObject *callable, _PyStackRef const *args, int n)
{
    if (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable)))
        return true;
    Loop *loop = &thread_of(tx)->loop;
    const void *key = key_when_alone(callable);
    uintptr_t plain = *plain_place(loop, key);
    if (!plain_is(plain, key) || tx->undo.n != 0
        || loop->registered != atomic_load_explicit(&stm_effects_registered, memory_order_relaxed))
        return false;
    loop->plain_counts = tx->anchor == 0 || tx->anchor == tx->thread_id;    /* to the end of the attempt, so not while the anchor only lends a hand */
    return is_on_anchor(tx) || (!(plain & PLAIN_ON_ANCHOR) && !belong_on_anchor(tx, args, n));
}

/* In every exclusive transaction, calls of what has that key need nothing but a look at their arguments; or (PLAIN_ON_ANCHOR) nothing there. */
static void
note_plain(Tx *tx, const void *key, int where)
{
    Loop *loop = &thread_of(tx)->loop;
    unsigned registered = atomic_load(&stm_effects_registered);
    if (loop->registered != registered) {
        memset(loop->plain, 0, sizeof loop->plain);
        loop->plain_counts = false;
        loop->registered = registered;
    }
    *plain_place(loop, key) = (uintptr_t)key | where;
}

/* The same in an exclusive transaction: what stands in stands in there, too, and some calls belong on another thread. */
static const EffectEntry *
entry_when_alone(Tx *tx, PyObject *c, PyObject *const *args, Py_ssize_t n, PyObject *const *kwvalues, Py_ssize_t nkw)
{
    const void *key = key_when_alone(c);
    const EffectEntry *e = lookup(key);
    if (e->effect == EFFECT_VIA || (e->twin != NULL && !e->stands_aside && !only_notes(e->twin)))
        return e;
    bool known = e->effect != EFFECT_NONE;
    if (belongs_on_anchor(tx, c, known, args, n, kwvalues, nkw))
        return &via[VIA_ANCHOR];
    /* What a type does that lives for a while is found once more elsewhere: another one may come to lie there. */
    if (known || (PyType_Check(c) && !(((PyTypeObject *)c)->tp_flags & Py_TPFLAGS_HEAPTYPE)))
        note_plain(tx, key, 0);
    else if (is_on_anchor(tx))
        note_plain(tx, key, PLAIN_ON_ANCHOR);
    return NULL;
}

/* Before a call of *callable with these arguments (borrowed; the receiver of a
 * method is the first). May put a twin in the place of the callable. */
int
before_call(Tx *tx, _PyStackRef *callable, PyObject *const *args, Py_ssize_t n,
            PyObject *const *kwvalues, Py_ssize_t nkw)
{
    PyObject *c = PyStackRef_AsPyObjectBorrow(*callable), *called = called_by(c);
    const EffectEntry *e = NULL;
    if (called != c) {
        _PyStackRef wrapper = *callable;
        *callable = PyStackRef_FromPyObjectNew(called);
        PyStackRef_CLOSE(wrapper);
        c = called;
    }
    if (tx->grade != GRADE_EXCLUSIVE) {
        if (before(tx, c, (Args){args, n, kwvalues, nkw}, &e, 0) < 0)
            return -1;
    }
    if (tx->grade == GRADE_EXCLUSIVE) {     /* before, or because of this call */
        if (PyFunction_Check(c) || (PyMethod_Check(c) && PyFunction_Check(PyMethod_GET_FUNCTION(c))))
            return 0;
        e = entry_when_alone(tx, c, args, n, kwvalues, nkw);
        /* The call of a C function (gc.collect, a weak reference) could tell that
         * something lives which nobody but the undo log refers to, or the table of what it has made.  A finalizer that runs
         * because of that goes on without: of thousands, each would begin within the one before. */
        if (UNLIKELY(tx->undo.n > 0 || thread_of(tx)->fresh.n > 0 || thread_of(tx)->raised.n > 0) && !thread_of(tx)->drops_past)
            forget_past(tx);
    }
    if (thread_of(tx)->loop.deleted != NULL) {
        static PyObject *giver;
        if (giver == NULL)
            giver = shared_function(&give_deleted_def, NULL);
        if (giver == NULL)
            return -1;
        _PyStackRef old = *callable;
        *callable = PyStackRef_FromPyObjectNew(giver);
        PyStackRef_CLOSE(old);
        return 0;
    }
    if (e == NULL || (e->twin == NULL && e != &watched && e->effect != EFFECT_VIA))
        return 0;
    PyObject *self = PyCFunction_Check(c) ? PyCFunction_GET_SELF(c)
        : Py_IS_TYPE(c, stm_method_wrapper_type) ? ((MethodWrapper *)c)->self : NULL;
    PyObject *receiver = self != NULL ? self : n > 0 ? args[0] : NULL;
    if ((e->owner != NULL && (receiver == NULL || !PyObject_TypeCheck(receiver, e->owner))) || is_of_another_copy(e, c))
        return exclusive_for(tx, "call of", c);
    PyObject *twin;
    if (e == &watched)
        twin = watched_constructor(c);
    else if (e->effect == EFFECT_VIA)
        twin = trampoline(e->via, c);
    else if (e->effect == EFFECT_TWIN && e == lookup_instances(Py_TYPE(c)))
        twin = PyMethod_New(e->twin, c);
    else if (PyFunction_Check(e->twin))
        twin = twin_for(c, e->twin, self != NULL && !PyModule_Check(self) ? self : NULL, n, nkw > 0);
    else if ((!makes_own(e->effect) || e->owner != NULL) && self != NULL && !PyModule_Check(self))
        twin = PyMethod_New(e->twin, self);
    else
        twin = Py_NewRef(e->twin);
    if (twin == NULL)
        return -1;
    _PyStackRef old = *callable;
    *callable = PyStackRef_FromPyObjectSteal(twin);
    PyStackRef_CLOSE(old);
    return 0;
}
