/* Barriers in front of calls.
 *
 * Unlike the others these act in an exclusive transaction too: twins stand in there as well, and effects are deferred in
 * their order.
 */
#include "loop.h"

#include "calls/callbacks.h"
#include "calls/calls.h"
#include "objects/access.h"
#include "objects/names.h"
#include "objects/ndarray.h"
#include "objects/structure.h"

#define MAX_STACK_ARGS 64

/* Can a name be noted by its address?  No other string comes to lie there, and no other one has that text. */
static bool
is_lasting_name(PyObject *name)
{
    return PyUnicode_CheckExact(name) && PyUnicode_CHECK_INTERNED(name) && _Py_IsImmortal(name);
}

/* Is it open, whatever that name is, for who asks by a function?  Classes change exclusively. */
static bool
is_open_by_any_name(Tx *tx, PyObject *obj, PyObject *name)
{
    return PyUnicode_CheckExact(name) && !is_dunder(name) && (PyType_CheckExact(obj) || captured(tx, obj));
}

/* tuple.__new__(cls, (a, b)), as named tuples are made: it has nothing to open. */
static bool
makes_tuple_of_tuple(PyObject *new, _PyStackRef *args, int n)
{
    if (n != 2 || PyCFunction_GET_SELF(new) != (PyObject *)&PyTuple_Type || strcmp(((PyCFunctionObject *)new)->m_ml->ml_name, "__new__") != 0)
        return false;
    PyObject *type = PyStackRef_AsPyObjectBorrow(args[0]), *items = PyStackRef_AsPyObjectBorrow(args[1]);
    return PyTuple_CheckExact(items) && PyType_Check(type) && ((PyTypeObject *)type)->tp_finalize == NULL;
}

/* Calls of C code that are frequent and simple, without keywords. 1: this is not one. */
static int
before_simple_call(Tx *tx, PyObject *callable, _PyStackRef *at, int n)
{
    PyObject *receiver = NULL;      /* the first argument, unless that is args[0] */
    bool bound = !PyStackRef_IsNull(at[1]);
    if (PyType_Check(callable))     /* int("1") */
        return n == 1 && !bound && reads_constant(callable, PyStackRef_AsPyObjectBorrow(at[2])) ? check_doomed(tx) : 1;
    if (PyCFunction_CheckExact(callable)) {
        receiver = PyCFunction_GET_SELF(callable);
        if (!bound && receiver != NULL && makes_tuple_of_tuple(callable, at + 2, n))
            return check_doomed(tx);
        if (bound || receiver == NULL || PyType_Check(receiver))
            return 1;       /* C.__new__(...) makes an object */
    }
    else if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && bound)
        receiver = PyStackRef_AsPyObjectBorrow(at[1]);
    else
        return 1;
    int effect = plain_effect(callable, receiver);
    if (effect == EFFECT_PURE)
        return check_doomed(tx);
    if (!bound && PyModule_Check(receiver))
        receiver = NULL;
    _PyStackRef *args = at + 2;
    if (effect == EFFECT_DEEP || effect == EFFECT_READS || effect == EFFECT_ITERATES) {
        if (receiver != NULL && !is_constant(receiver)
            && (effect == EFFECT_DEEP || (effect == EFFECT_READS ? open_whole_read : open_iter)(tx, receiver) < 0))
            return effect == EFFECT_DEEP ? 1 : -1;
        for (int i = 0; i < n; i++) {
            PyObject *arg = PyStackRef_AsPyObjectBorrow(args[i]);
            if (is_constant(arg))
                continue;
            if (effect == EFFECT_DEEP)
                return 1;
            if ((effect == EFFECT_READS ? open_whole_read : open_iter)(tx, arg) < 0)
                return -1;
        }
        return check_doomed(tx);
    }
    if (receiver == NULL) {
        if (effect != EFFECT_GETS_ATTR || n < 2)
            return 1;
        PyObject *obj = PyStackRef_AsPyObjectBorrow(args[0]), *name = PyStackRef_AsPyObjectBorrow(args[1]);
        if (is_open_by_any_name(tx, obj, name))
            return check_doomed(tx);
        return is_lasting_name(name) ? stm_read_attr(obj, name) : PyUnicode_Check(name) ? open_attr_read(tx, obj, name) : 1;
    }
    PyObject *first = n > 0 ? PyStackRef_AsPyObjectBorrow(args[0]) : NULL;
    switch (effect) {
    case EFFECT_LIST_EXTEND:
        return n != 1 ? 1 : open_list_append(tx, receiver) < 0 ? -1 : open_iterable(tx, first);
    case EFFECT_MUTATES:
        return n != 0 ? 1 : open_change(tx, receiver, NULL);
    case EFFECT_LIST_APPEND:
        return n == 1 ? open_list_append(tx, receiver) : 1;
    case EFFECT_LIST_POP:
        return n == 0 ? open_list_pop(tx, receiver, -1) : 1;
    case EFFECT_SET_CHANGE:
        return n == 1 ? open_set_change(tx, receiver, first) : 1;
    case EFFECT_GETS_KEY:
        return n > 0 ? open_key_read(tx, receiver, first) : 1;
    default:
        return 1;
    }
}

/* callable, self or NULL, and n arguments lie from `at` upwards. */
static int
before_stack_call(Tx *tx, _PyStackRef *at, int n, PyObject *kwnames)
{
    PyObject *callable = PyStackRef_AsPyObjectBorrow(at[0]);
    if (LIKELY(PyFunction_Check(callable)))
        return check_doomed(tx);
    if (PyType_Check(callable)) {
        TypeEntry *type = type_entry(tx, (PyTypeObject *)callable);
        if (type->simple_call)
            thread_of(tx)->loop.constructing = (PyTypeObject *)callable;
        if (type->simple_call || type->python_call)
            return check_doomed(tx);
    }
    if (tx->open && kwnames == NULL) {
        int result = before_simple_call(tx, callable, at, n);
        if (result <= 0)
            return result;
    }
    for (int i = PyStackRef_IsNull(at[1]); tx->open && i <= n; i++) {
        PyObject *arg = PyStackRef_AsPyObjectBorrow(at[1 + i]);
        if (UNLIKELY(is_ndarray(tx, arg)))
            ndarray_known_here_only(tx, arg);
    }
    if (n >= MAX_STACK_ARGS)
        return exclusive_for(tx, "call with many arguments of", callable);
    PyObject *args[MAX_STACK_ARGS + 1];
    int count = 0;
    if (!PyStackRef_IsNull(at[1]))
        args[count++] = PyStackRef_AsPyObjectBorrow(at[1]);
    for (int i = 0; i < n; i++)
        args[count++] = PyStackRef_AsPyObjectBorrow(at[2 + i]);
    int nkw = kwnames ? (int)PyTuple_GET_SIZE(kwnames) : 0;
    return before_call(tx, &at[0], args, count - nkw, args + count - nkw, nkw);
}

/* The receiver of a call of a C function or method: for functions their module. NULL: it is not there yet. */
static inline PyObject *
receiver_of(PyObject *callable, _PyStackRef self_or_null)
{
    return !PyStackRef_IsNull(self_or_null) ? PyStackRef_AsPyObjectBorrow(self_or_null)
        : PyCFunction_CheckExact(callable) ? PyCFunction_GET_SELF(callable) : NULL;
}

/* A module, whose function it is, or something that no transaction changes. */
static bool
is_settled_receiver(Tx *tx, PyObject *receiver)
{
    return PyModule_Check(receiver) || (kind_of(tx, receiver) == &inert_kind && !is_python_class(Py_TYPE(receiver)));
}

/* Can it be told at once when such calls need nothing? */
static void
know_call(Tx *tx, PyObject *callable, _PyStackRef self_or_null)
{
    bool function = PyCFunction_CheckExact(callable);
    PyObject *receiver = receiver_of(callable, self_or_null);
    const void *method = method_of(callable);
    if (method == NULL || receiver == NULL || PyType_Check(receiver) || function != PyStackRef_IsNull(self_or_null))
        return;
    KnownCall known = {method, Py_TYPE(receiver), CALL_PURE};
    bool uses_struct = uses_state(callable, receiver) && kind_of(tx, receiver) == &struct_kind;
    switch (uses_struct ? EFFECT_USES : plain_effect(callable, receiver)) {
    case EFFECT_USES:
        known.needs = CALL_OF_OWNED;
        if (!uses_struct)
            return;
        break;
    case EFFECT_PURE:
        break;
    case EFFECT_GETS_KEY:
        known.needs = PyDict_CheckExact(receiver) ? CALL_OF_KEYS : CALL_OF_CAPTURED;
        break;
    case EFFECT_LIST_APPEND: case EFFECT_LIST_POP: case EFFECT_SET_CHANGE:
    case EFFECT_DEQUE_APPEND: case EFFECT_DEQUE_APPENDLEFT: case EFFECT_DEQUE_POP: case EFFECT_DEQUE_POPLEFT:
        known.needs = CALL_OF_CAPTURED;
        if (PyModule_Check(receiver))
            return;
        break;
    case EFFECT_PUTS_KEY: case EFFECT_DELETES_KEY:
        known.needs = CALL_OF_CAPTURED;
        if (!PyDict_CheckExact(receiver))
            return;
        break;
    case EFFECT_LIST_EXTEND: case EFFECT_MUTATES:
        known.needs = CALL_INTO_CAPTURED;
        if (!is_builtin_container(receiver))
            return;
        break;
    case EFFECT_READS: case EFFECT_ITERATES:
        known.needs = CALL_OF_OPEN;
        if (!is_settled_receiver(tx, receiver) && !is_builtin_container(receiver))
            return;
        break;
    case EFFECT_DEEP:
        known.needs = CALL_OF_CONSTANTS;
        if (!is_settled_receiver(tx, receiver))
            return;
        break;
    case EFFECT_GETS_ATTR:
        known.needs = CALL_OF_ATTRIBUTE;
        if (!PyModule_Check(receiver))
            return;
        break;
    case EFFECT_NONE:
        known.needs = CALL_OF_TWIN;
        known.twin = PyModule_Check(receiver) || !function ? plain_twin(callable, receiver) : NULL;
        if (known.twin == NULL)
            return;
        if (function)
            known.receiver = receiver;
        break;
    default:
        return;
    }
    *known_call_at(tx, method) = known;
}

/* Of a struct_kind: has open_state() nothing left to do? */
static bool
is_owned(Tx *tx, PyObject *o)
{
    return opened(tx, o, OPENED_READ) || o == stm_unordered;
}

/* What is in it is not looked at. */
static bool
is_open(Tx *tx, PyObject *o)
{
    return PyTuple_CheckExact(o)
        || (is_builtin_container(o) && (captured(tx, o) || opened(tx, o, OPENED_READ) || read_by_bias(tx, o)));
}

static bool
is_open_attribute(Tx *tx, PyObject *obj, PyObject *name)
{
    return is_open_by_any_name(tx, obj, name)
        || (is_lasting_name(name) && (attr_read_by_bias(tx, obj, name) || !stm_attr_left(tx, obj, name, OF_READ_ATTR)));
}

/* operator.attrgetter(name)(object): is that attribute open? */
static bool
gets_open_attribute(Tx *tx, PyObject *callable, _PyStackRef *site, int n)
{
    if (n != 1 || !PyStackRef_IsNull(site[1]) || effect_of_instances(Py_TYPE(callable)) != EFFECT_GETS_ATTRS)
        return false;
    AttrGetter *getter = (AttrGetter *)callable;
    return getter->n == 1 && is_open_attribute(tx, PyStackRef_AsPyObjectBorrow(site[2]), PyTuple_GET_ITEM(getter->attrs, 0));
}

static bool
are_constant(_PyStackRef *args, int n)
{
    for (int i = 0; i < n; i++)
        if (!is_constant(PyStackRef_AsPyObjectBorrow(args[i])))
            return false;
    return true;
}

static bool
are_open(Tx *tx, _PyStackRef *args, int n)
{
    for (int i = 0; i < n; i++) {
        PyObject *arg = PyStackRef_AsPyObjectBorrow(args[i]);
        if (!is_constant(arg) && !is_open(tx, arg))
            return false;
    }
    return true;
}

/* Has a call of that method, on the receiver and with n arguments, what it needs?  Of the most frequent stm_call_left() can tell itself. */
static __attribute__((noinline)) bool
has_what_it_needs(Tx *tx, KnownCall *known, PyObject *receiver, _PyStackRef *args, int n)
{
    switch (known->needs) {
    case CALL_PURE:
        return true;
    case CALL_OF_CONSTANTS:
        return are_constant(args, n);
    case CALL_OF_CAPTURED:
        return captured(tx, receiver) && !(PySet_CheckExact(receiver) && n > 0 && may_be_set_as_key(PyStackRef_AsPyObjectBorrow(args[0])));
    case CALL_OF_KEYS:
        return is_open(tx, receiver);
    case CALL_OF_ATTRIBUTE:
        return n >= 2 && is_open_attribute(tx, PyStackRef_AsPyObjectBorrow(args[0]), PyStackRef_AsPyObjectBorrow(args[1]));
    case CALL_INTO_CAPTURED:
        return captured(tx, receiver) && are_open(tx, args, n);
    case CALL_OF_OPEN:
        return (!is_builtin_container(receiver) || is_open(tx, receiver)) && are_open(tx, args, n);
    case CALL_OF_OWNED:
        return is_owned(tx, receiver) && are_constant(args, n);
    case CALL_OF_TWIN:
        return false;
    }
    Py_UNREACHABLE();
}

/* Is anything left to do before the call, with n arguments?  Nothing, where it is known what a call of that method needs, and this one has it. */
bool
stm_call_left(Tx *tx, _PyStackRef *site, int n)
{
    PyObject *callable = PyStackRef_AsPyObjectBorrow(site[0]);
    const void *method = method_of(callable);
    KnownCall *known = known_call_at(tx, method);
    if (UNLIKELY(known->method != method || method == NULL || !STM_QUIET(tx)))
        return true;
    if (known->needs == CALL_PURE)
        return false;
    PyObject *receiver = receiver_of(callable, site[1]);
    if (UNLIKELY(receiver == NULL || Py_TYPE(receiver) != known->receiver))
        return true;
    if (known->needs == CALL_OF_CONSTANTS && n == 1)
        return !is_constant(PyStackRef_AsPyObjectBorrow(site[2]));
    return !has_what_it_needs(tx, known, receiver, &site[2], n);
}

/* list(items), and others that make a container of what they go over: their twin, where that is open. */
static PyObject *
twin_of_container(Tx *tx, PyObject *type, _PyStackRef *site, int n)
{
    if (n != 1 || !PyStackRef_IsNull(site[1]) || !is_open(tx, PyStackRef_AsPyObjectBorrow(site[2])))
        return NULL;
    KnownCall *known = known_call_at(tx, type);
    if (known->method == type)
        return known->twin;
    PyObject *twin = container_twin(type);
    if (twin != NULL)
        *known = (KnownCall){type, NULL, CALL_OF_TWIN, twin};
    return twin;
}

/* Not of a method that is bound already: its twin would have to be. */
static PyObject *
known_twin(Tx *tx, PyObject *callable, _PyStackRef self_or_null)
{
    const void *method = method_of(callable);
    KnownCall *known = known_call_at(tx, method);
    if (method == NULL || known->method != method || known->needs != CALL_OF_TWIN)
        return NULL;
    PyObject *receiver = receiver_of(callable, self_or_null);
    if (receiver == NULL)
        return NULL;
    return known->receiver == (PyCFunction_CheckExact(callable) ? (void *)receiver : (void *)Py_TYPE(receiver)) ? known->twin : NULL;
}

int
stm_before_call(_PyStackRef *site, int n)
{
    BARRIER_OF(tx);
    PyObject *callable = PyStackRef_AsPyObjectBorrow(site[0]);
    thread_of(tx)->loop.constructing = NULL;
    PyObject *twin = !tx->open ? NULL : PyType_Check(callable) ? twin_of_container(tx, callable, site, n) : known_twin(tx, callable, site[1]);
    if (twin != NULL) {
        replace_operand(&site[0], twin);
        return check_doomed(tx);
    }
    if (stands_in(callable))
        return 0;       /* for something that may be half done: no abort now */
    if (PyFunction_Check(callable) || (tx->open && gets_open_attribute(tx, callable, site, n)))
        return check_doomed(tx);
    if (tx->open)
        know_call(tx, callable, site[1]);
    return before_stack_call(tx, site, n, NULL);
}

int
stm_before_call_kw(_PyStackRef *site, int n)
{
    BARRIER_OF(tx);
    thread_of(tx)->loop.constructing = NULL;
    if (stands_in(PyStackRef_AsPyObjectBorrow(site[0])))
        return 0;
    return before_stack_call(tx, site, n, PyStackRef_AsPyObjectBorrow(site[n + 2]));
}

int
stm_before_call_ex(_PyStackRef *site)
{
    BARRIER_OF(tx);
    thread_of(tx)->loop.constructing = NULL;
    PyObject *kwargs = PyStackRef_IsNull(site[3]) ? NULL : PyStackRef_AsPyObjectBorrow(site[3]);
    PyObject *positional = PyStackRef_AsPyObjectBorrow(site[2]);
    if (tx->grade != GRADE_EXCLUSIVE) {
        if (open_iter(tx, positional) < 0 || (kwargs != NULL && open_whole_read(tx, kwargs) < 0))
            return -1;
    }
    PyObject *c = PyStackRef_AsPyObjectBorrow(site[0]);
    if (PyFunction_Check(c) || (PyMethod_Check(c) && PyFunction_Check(PyMethod_GET_FUNCTION(c))))
        return check_doomed(tx);
    if (!PyTuple_CheckExact(positional)) {
        /* The instruction would do the same; or complain, if that cannot be iterated over. */
        if (Py_TYPE(positional)->tp_iter == NULL && !PySequence_Check(positional))
            return check_doomed(tx);
        positional = PySequence_Tuple(positional);
        if (positional == NULL)
            return -1;
        _PyStackRef old = site[2];
        site[2] = PyStackRef_FromPyObjectSteal(positional);
        PyStackRef_CLOSE(old);
    }
    PyObject *few[MAX_STACK_ARGS], **kw = few;
    Py_ssize_t nkw = 0;
    if (kwargs != NULL) {
        PyObject *k, *v;
        Py_ssize_t pos = 0;
        if (PyDict_GET_SIZE(kwargs) > MAX_STACK_ARGS)
            kw = PyMem_Malloc(PyDict_GET_SIZE(kwargs) * sizeof(PyObject *));
        if (kw == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        while (PyDict_Next(kwargs, &pos, &k, &v))
            kw[nkw++] = v;
    }
    int r = before_call(tx, &site[0], &PyTuple_GET_ITEM(positional, 0), PyTuple_GET_SIZE(positional), kw, nkw);
    if (kw != few)
        PyMem_Free(kw);
    return r;
}

/* with: the exit function is called on the way of an exception. */
int
stm_before_exit(_PyStackRef *site)
{
    BARRIER_OF(tx);
    thread_of(tx)->loop.constructing = NULL;
    if (tx->grade != GRADE_EXCLUSIVE && check_doomed(tx) < 0)
        return -1;
    PyObject *args[4] = {NULL, Py_None, Py_None, Py_None};
    bool bound = PyStackRef_IsNull(site[1]);
    if (!bound)
        args[0] = PyStackRef_AsPyObjectBorrow(site[1]);
    return before_call(tx, &site[0], bound ? args + 1 : args, bound ? 3 : 4, NULL, 0);
}
