/* Calls that C code makes: back into Python, or into other C code that it was given.
 *
 * A call barrier sees the calls that bytecode makes.  A C function that is given a
 * callable makes calls that no barrier sees, and looks at what they return.  So
 * such a callable is wrapped: a Guarded calls what it is around as transactional
 * code would, barrier included, and then opens what came back for what the C code
 * is going to do with it.  Around an iterator it does the same for each item.
 *
 * The trampolines stand in for C callables that call another one: bound methods,
 * functools.partial, operator.attrgetter, functions that take a callable.
 */
#include "callbacks.h"

#include "../objects/access.h"
#include "../objects/deep.h"
#include "../objects/known.h"
#include "../objects/lru_cache.h"
#include "../objects/ndarray.h"
#include "anchor.h"
#include "calls.h"
#include "conversion.h"

/* The function begins at once, and the loop need not find out why it is called. */
static PyObject *
call_python(Tx *tx, PyFunctionObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    if (check_doomed(tx) < 0)
        return NULL;
    thread_of(tx)->loop.called = (PyObject *)function;
    PyObject *result = function->vectorcall((PyObject *)function, args, n, kwnames);
    thread_of(tx)->loop.called = NULL;
    return result;
}

#define SMALL 8

/* Call as transactional code would. `n` positional arguments, then those named. */
PyObject *
stm_call(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->live || stm_barriers_off)
        return PyObject_Vectorcall(callable, args, n, kwnames);
    /* Code of Python has barriers of its own. */
    if (PyFunction_Check(callable))
        return call_python(tx, (PyFunctionObject *)callable, args, n, kwnames);
    if (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable)) && n < SMALL && kwnames == NULL) {
        PyObject *all[SMALL] = {PyMethod_GET_SELF(callable)};
        for (Py_ssize_t i = 0; i < n; i++)      /* without arguments there may be no array */
            all[i + 1] = args[i];
        return call_python(tx, (PyFunctionObject *)PyMethod_GET_FUNCTION(callable), all, n + 1, NULL);
    }
    if (n == 1 && kwnames == NULL && PyType_Check(callable) && reads_constant(callable, args[0]))
        return check_doomed(tx) < 0 ? NULL : PyObject_CallOneArg(callable, args[0]);
    _PyStackRef c = PyStackRef_FromPyObjectNew(callable);
    Py_ssize_t nkw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *result = NULL;
    if (before_call(tx, &c, args, n, args + n, nkw) == 0)
        result = PyObject_Vectorcall(PyStackRef_AsPyObjectBorrow(c), args, n, kwnames);
    PyStackRef_CLOSE(c);
    return result;
}

/* ---- What C code gets to see ------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *inner;        /* None stands for the function that returns its argument */
    int use;                /* of the results, by whoever calls */
    vectorcallfunc vectorcall;
} Guarded;

static PyObject *
open_variable_for_use(PyObject *result, int use)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open)
        return result;
    int r = use == USE_TRUTH ? open_whole_read(tx, result)
        : use == USE_ITEMS ? open_iter(tx, result)
        : use == USE_ALL ? open_deep_read(tx, result) : 0;
    if (r < 0)
        Py_CLEAR(result);
    return result;
}

static inline PyObject *
open_for_use(PyObject *result, int use)
{
    return result == NULL || LIKELY(is_constant(result)) ? result : open_variable_for_use(result, use);
}

static PyObject *
guarded_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Guarded *o = (Guarded *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    Tx *tx = stm_self;
    if (tx != NULL && kwnames == NULL && n > 0 && may_be_reference(args[n - 1]) && callback_put_off(tx, self, args, n))
        Py_RETURN_NONE;
    if (LIKELY(PyFunction_Check(o->inner) && tx != NULL && tx->live && !stm_barriers_off))
        return open_for_use(call_python(tx, (PyFunctionObject *)o->inner, args, n, kwnames), o->use);
    if (o->inner == Py_None && n == 1 && kwnames == NULL)
        return open_for_use(Py_NewRef(args[0]), o->use);
    return open_for_use(stm_call(o->inner, args, n, kwnames), o->use);
}

static bool
is_open_iterator(Tx *tx, PyObject *it)
{
    return is_captured_generator(tx, it) || opened(tx, it, OPENED_READ);
}

static PyObject *
guarded_next(PyObject *self)
{
    Guarded *o = (Guarded *)self;
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && (is_open_iterator(tx, o->inner) ? check_doomed(tx) : open_iter(tx, o->inner)) < 0)
        return NULL;
    iternextfunc next = Py_TYPE(o->inner)->tp_iternext;
    if (next == NULL)
        return PyErr_Format(PyExc_TypeError, "'%T' object is not an iterator", o->inner);
    return open_for_use(next(o->inner), o->use);
}

static int
guarded_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Guarded *)self)->inner);
    return 0;
}

static void
guarded_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_DECREF(((Guarded *)self)->inner);
    Py_TYPE(self)->tp_free(self);
}

/* To a program that meets one it is what it is around. */
static PyObject *
guarded_getattr(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((Guarded *)self)->inner, name);
}

static PyObject *
guarded_repr(PyObject *self)
{
    return PyObject_Repr(((Guarded *)self)->inner);
}

static Py_hash_t
guarded_hash(PyObject *self)
{
    return PyObject_Hash(((Guarded *)self)->inner);
}

static PyObject *
guarded_compare(PyObject *self, PyObject *other, int op)
{
    return PyObject_RichCompare(unguarded(self), unguarded(other), op);
}

PyTypeObject Guarded_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Guarded",
    .tp_doc = PyDoc_STR("A callable or iterator whose results are opened for C code."),
    .tp_basicsize = sizeof(Guarded),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_dealloc = guarded_dealloc,
    .tp_traverse = guarded_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Guarded, vectorcall),
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = guarded_next,
    .tp_getattro = guarded_getattr,
    .tp_repr = guarded_repr,
    .tp_hash = guarded_hash,
    .tp_richcompare = guarded_compare,
};

static PyObject *
guard_around(PyTypeObject *type, PyObject *inner, int use)
{
    Guarded *o = PyObject_GC_New(Guarded, type);
    if (o == NULL)
        return NULL;
    o->inner = Py_NewRef(inner);
    o->use = use;
    o->vectorcall = guarded_vectorcall;
    PyObject_GC_Track(o);
    return (PyObject *)o;
}

PyObject *
guarded_new(PyObject *inner, int use)
{
    return guard_around(&Guarded_Type, inner, use);
}

PyObject *
unguarded(PyObject *callable)
{
    return Py_IS_TYPE(callable, &Guarded_Type) ? ((Guarded *)callable)->inner : callable;
}

/* How many items are to come, for code that makes room for them. */
static PyObject *
guarded_length_hint(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Py_ssize_t n = PyObject_LengthHint(((Guarded *)self)->inner, 0);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

static PyMethodDef guarded_methods[] = {
    {"__length_hint__", guarded_length_hint, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
guarded_iter(PyObject *self)
{
    Guarded *o = (Guarded *)self;
    Tx *tx = stm_self;
    PyObject *it = tx != NULL && tx->open && open_iter(tx, o->inner) < 0 ? NULL : PyObject_GetIter(o->inner);
    PyObject *guarded = it == NULL ? NULL : it == o->inner ? Py_NewRef(self) : guarded_items(it, o->use);
    Py_XDECREF(it);
    return guarded;
}

PyTypeObject GuardedItems_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.GuardedItems",
    .tp_doc = PyDoc_STR("An iterable whose items are opened for C code."),
    .tp_basicsize = sizeof(Guarded),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = guarded_dealloc,
    .tp_traverse = guarded_traverse,
    .tp_iter = guarded_iter,
    .tp_iternext = guarded_next,
    .tp_methods = guarded_methods,
};

PyObject *
guarded_items(PyObject *iterable, int use)
{
    return guard_around(&GuardedItems_Type, iterable, use);
}

/* ---- Trampolines --------------------------------------------------------------------- */

static PyObject *
call_prepended(PyObject *f, PyObject *first, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *small[SMALL + 1];
    PyObject **more = all > SMALL ? PyMem_Malloc((all + 1) * sizeof(PyObject *)) : small;
    if (more == NULL)
        return PyErr_NoMemory();
    more[0] = first;
    if (all > 0)
        memcpy(more + 1, args, all * sizeof(PyObject *));
    PyObject *result = stm_call(f, more, n + 1, kwnames);
    if (more != small)
        PyMem_Free(more);
    return result;
}

/* A bound method of something else than a Python function. */
static PyObject *
call_method(PyObject *method, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return call_prepended(PyMethod_GET_FUNCTION(method), PyMethod_GET_SELF(method), args, n, kwnames);
}

/* functools.partial of something else than a Python function: one like it, guarded. */
static PyObject *
call_partial(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyTypeObject *type = Py_TYPE(self);
    while (is_python_class(type))
        type = type->tp_base;
    PyObject *function = PyObject_GetAttrString(self, "func");
    PyObject *first = PyObject_GetAttrString(self, "args");
    PyObject *keywords = PyObject_GetAttrString(self, "keywords");
    PyObject *guarded = function ? guarded_new(function, USE_NOTHING) : NULL;
    PyObject *head = guarded ? PyTuple_Pack(1, guarded) : NULL;
    PyObject *all = head && first ? PySequence_Concat(head, first) : NULL;
    PyObject *again = all && keywords ? PyObject_Call((PyObject *)type, all, keywords) : NULL;
    PyObject *result = again ? PyObject_Vectorcall(again, args, n, kwnames) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(first);
    Py_XDECREF(keywords);
    Py_XDECREF(guarded);
    Py_XDECREF(head);
    Py_XDECREF(all);
    Py_XDECREF(again);
    return result;
}

static PyObject *
get_attr(PyObject *obj, PyObject *name)
{
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && open_attr_read(tx, obj, name) < 0)
        return NULL;
    return PyObject_GetAttr(obj, name);
}

/* operator.attrgetter("a.b"): attributes of objects that are only known on the way. */
static PyObject *
call_attrgetter(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    if (n != 1 || kwnames != NULL)
        return PyObject_Vectorcall(self, args, n, kwnames);     /* which will complain */
    AttrGetter *getter = (AttrGetter *)self;
    PyObject *results = PyTuple_New(getter->n);
    for (Py_ssize_t i = 0; results != NULL && i < getter->n; i++) {
        PyObject *path = PyTuple_GET_ITEM(getter->attrs, i);
        PyObject *found = Py_NewRef(args[0]);
        if (!PyTuple_Check(path))
            Py_SETREF(found, get_attr(found, path));
        else for (Py_ssize_t j = 0; found != NULL && j < PyTuple_GET_SIZE(path); j++)
            Py_SETREF(found, get_attr(found, PyTuple_GET_ITEM(path, j)));
        if (found == NULL)
            Py_CLEAR(results);
        else
            PyTuple_SET_ITEM(results, i, found);
    }
    if (results != NULL && getter->n == 1)
        Py_SETREF(results, Py_NewRef(PyTuple_GET_ITEM(results, 0)));
    return results;
}

/* operator.methodcaller */
static PyObject *
call_methodcaller(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    if (n != 1 || kwnames != NULL)
        return PyObject_Vectorcall(self, args, n, kwnames);     /* which will complain */
    MethodCaller *caller = (MethodCaller *)self;
    PyObject *method = get_attr(args[0], caller->name);
    PyObject *guarded = method ? guarded_new(method, USE_NOTHING) : NULL;
    PyObject *result = guarded ? PyObject_Call(guarded, caller->args, caller->kwds) : NULL;
    Py_XDECREF(method);
    Py_XDECREF(guarded);
    return result;
}

/* The call with guards around some of its arguments. */
static PyObject *
call_guarding(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, int use,
              Py_ssize_t from, Py_ssize_t to)
{
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *small[SMALL];
    PyObject **more = all > SMALL ? PyMem_Malloc(all * sizeof(PyObject *)) : small;
    if (more == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    Py_ssize_t made = 0;
    for (; made < all; made++) {
        more[made] = from <= made && made < to && PyCallable_Check(args[made])
            ? guarded_new(args[made], use) : Py_NewRef(args[made]);
        if (more[made] == NULL)
            break;
    }
    if (made == all)
        result = PyObject_Vectorcall(function, more, n, kwnames);
    while (made > 0)
        Py_DECREF(more[--made]);
    if (more != small)
        PyMem_Free(more);
    return result;
}

/* A C function that calls what is callable among its arguments. */
static PyObject *
call_with_callbacks(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return call_guarding(function, args, n, kwnames, USE_ALL, 0, PY_SSIZE_T_MAX);
}

/* C code that computes with arrays.  Its results are put into what is given as such: under that name, or behind the other arguments.  What it
 * returns, if nobody else knows that, it has made. */
static PyObject *
compute(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, Py_ssize_t inputs)
{
    Tx *tx = stm_self;
    bool open = tx != NULL && tx->open;
    for (Py_ssize_t i = inputs; open && i < n; i++) {
        if (open_result(tx, args[i]) < 0)
            return NULL;
    }
    for (Py_ssize_t i = 0; open && kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        if (PyUnicode_EqualToUTF8(PyTuple_GET_ITEM(kwnames, i), "out") && open_result(tx, args[n + i]) < 0)
            return NULL;
    }
    PyObject *result = PyObject_Vectorcall(function, args, n, kwnames);
    if (result != NULL && tx != NULL && tx->open && kind_of(tx, result) == &ndarray_kind)
        ndarray_known_here_only(tx, result);
    return result;
}

static PyObject *
call_computation(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return compute(function, args, n, kwnames, n);
}

/* Two arguments come before a result, if there can be one without a name: a receiver and another one, or two of a function. */
static PyObject *
call_computation_into(PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    if (PyCFunction_Check(function)) {
        PyObject *self = PyCFunction_GET_SELF(function);
        return compute(function, args, n, kwnames, self == NULL || PyModule_Check(self) ? 2 : 1);
    }
    bool is_ufunc = Py_TYPE(function)->tp_basicsize == (Py_ssize_t)ufunc_size && strcmp(Py_TYPE(function)->tp_name, "numpy.ufunc") == 0;
    return compute(function, args, n, kwnames, is_ufunc ? ufunc_inputs(function) : 2);
}

/* contextvars.Context.run, bound to the context or not. */
static PyObject *
call_in_context(PyObject *run, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t function = PyCFunction_Check(run) ? 0 : 1;
    return call_guarding(run, args, n, kwnames, USE_NOTHING, function, function + 1);
}

/* Can the function be called so? */
static bool
takes(PyFunctionObject *f, Py_ssize_t n, PyObject *kwnames)
{
    PyCodeObject *code = (PyCodeObject *)f->func_code;
    Py_ssize_t defaults = f->func_defaults == NULL ? 0 : PyTuple_GET_SIZE(f->func_defaults);
    Py_ssize_t missing = Py_MAX(code->co_argcount - defaults - n, 0);
    if (n > code->co_argcount && !(code->co_flags & CO_VARARGS))
        return false;
    for (Py_ssize_t k = 0; kwnames != NULL && k < PyTuple_GET_SIZE(kwnames); k++) {
        Py_ssize_t i = code->co_posonlyargcount, end = code->co_argcount + code->co_kwonlyargcount;
        while (i < end && !PyUnicode_Equal(PyTuple_GET_ITEM(code->co_localsplusnames, i), PyTuple_GET_ITEM(kwnames, k)))
            i++;
        if (i == end ? !(code->co_flags & CO_VARKEYWORDS) : i < Py_MIN(n, code->co_argcount))
            return false;
        missing -= i < code->co_argcount - defaults;
    }
    return missing == 0;
}

/* A twin whose arguments have not been looked at. What it does not take the original complains of. */
PyObject *
call_checked(PyObject *parts, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *original = PyTuple_GET_ITEM(parts, 0), *twin = PyTuple_GET_ITEM(parts, 1);
    PyObject *self = PyTuple_GET_SIZE(parts) > 2 ? PyTuple_GET_ITEM(parts, 2) : NULL;
    Tx *tx = stm_self;
    if (takes((PyFunctionObject *)twin, n + (self != NULL), kwnames))
        return self != NULL ? call_prepended(twin, self, args, n, kwnames) : stm_call(twin, args, n, kwnames);
    if (tx != NULL && tx->open && exclusive_for(tx, "an unusual call of", original) < 0)
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* The twin in Python, for a call with so many positional arguments and perhaps others: a new reference.
 *
 * `self` is bound in the original, or NULL. */
PyObject *
twin_for(PyObject *original, PyObject *twin, PyObject *self, Py_ssize_t n, bool has_keywords)
{
    static PyMethodDef checked = {"call_checked", _PyCFunction_CAST(call_checked), METH_FASTCALL | METH_KEYWORDS, NULL};
    if (!has_keywords && takes((PyFunctionObject *)twin, n + (self != NULL), NULL))
        return self != NULL ? PyMethod_New(twin, self) : Py_NewRef(twin);
    PyObject *parts = self != NULL ? PyTuple_Pack(3, original, twin, self) : PyTuple_Pack(2, original, twin);
    PyObject *result = parts == NULL ? NULL : PyCFunction_New(&checked, parts);
    Py_XDECREF(parts);
    return result;
}

/* object.__new__, or a class that has neither that nor __init__ in Python: nobody else knows yet what it makes. */
static PyObject *
call_new(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *made = PyObject_Vectorcall(callable, args, (size_t)n, kwnames);
    Tx *tx = live_tx();
    if (made != NULL && tx != NULL && (PyObject *)Py_TYPE(made) == (PyType_Check(callable) ? callable : args[0])) {
        PyUnstable_Type_AssignVersionTag(Py_TYPE(made));    /* what is noted of the object counts while that stays */
        note_captured(tx, made);
    }
    return made;
}

#define TRAMPOLINE(f) {#f, _PyCFunction_CAST(f), METH_FASTCALL | METH_KEYWORDS, NULL}
static PyMethodDef trampolines[] = {
    [VIA_METHOD] = TRAMPOLINE(call_method),
    [VIA_PARTIAL] = TRAMPOLINE(call_partial),
    [VIA_ATTRGETTER] = TRAMPOLINE(call_attrgetter),
    [VIA_METHODCALLER] = TRAMPOLINE(call_methodcaller),
    [VIA_CALLBACKS] = TRAMPOLINE(call_with_callbacks),
    [VIA_CONTEXT] = TRAMPOLINE(call_in_context),
    [VIA_CONVERSION] = TRAMPOLINE(call_conversion),
    [VIA_LRU] = TRAMPOLINE(lru_call),
    [VIA_ANCHOR] = TRAMPOLINE(call_on_anchor),
    [VIA_NEW] = TRAMPOLINE(call_new),
    [VIA_COMPUTATION] = TRAMPOLINE(call_computation),
    [VIA_COMPUTATION_INTO] = TRAMPOLINE(call_computation_into),
};

/* What stands in for this callable in a call. */
PyObject *
trampoline(int via, PyObject *callable)
{
    return PyCFunction_New(&trampolines[via], callable);
}
