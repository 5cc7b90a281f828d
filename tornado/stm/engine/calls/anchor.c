/* The anchor: the thread that runs a loop or a queue, and the calls that belong on it.
 *
 * To the program, the threads that run the transactions of a loop are one.  C code is not
 * asked: some of its objects work on the thread alone that has made them (greenlets, windows
 * of tkinter; for connections of sqlite3 see connection.c), and of C code that the engine does not know
 * nobody can tell.  So such calls are made on the anchor, whichever thread the transaction is on:
 *
 *      what       calls of C code from outside the standard library (those by ctypes, too), or from the
 *                 modules of it that effects.py says are tied, where the table of effects knows nothing about
 *                 them; calls with an object of such a type among the arguments; and
 *                 what uses a few types without a call (items, attributes, length).
 *                 In a queue that the main thread runs, calls that wait, too: there handlers of signals
 *                 break them off (waiting.c).
 *      when       the transaction is exclusive by then.  So there is one such call at a time, and the
 *                 anchor is between two attempts: it waits for its turn, for an event or for work.
 *      how        the calling thread hands its transaction over with the call, and waits.  The anchor
 *                 has that transaction, its context variables, the exception that is being
 *                 handled and the current task until the call returns: Python code that it calls back
 *                 cannot tell the difference but by its callers.
 *      again      such calls come in rows: after one, the anchor looks out for the next for a moment.
 *
 * Where Python code has no barriers (it was called from C for the first time, or cannot have any), its calls go
 * unseen: they are made where the transaction is.
 *
 * The transaction begins and ends where it did.  A thread that runs transactions for nobody else is
 * its own anchor, as are those of executors, which are no part of a loop: C code tells them what
 * it tells any other thread.
 */
#include "anchor.h"

#include "connection.h"

#include "../core/park.h"
#include "../core/transaction.h"
#include "../core/queue.h"
#include "../objects/absent.h"
#include "../objects/class.h"
#include "../objects/known.h"
#include "../thread.h"

#include "internal/pycore_tstate.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_OUT 2000
/* Who has been woken in the place of the anchor looks away again: so often, it is woken once more. */
#define ANSWER_NS 1000000L

typedef struct {
    Tx *tx;
    Work work;
    void *arg;
    PyThreadState *asker;
    PyObject *result, *exception;
} AnchorCall;

/* There is one exclusive transaction at most, so one call.  It belongs to the thread that
 * `asked_anchor` names until that has taken the name away, and then until it answers. */
static AnchorCall *call_made;
static _Atomic unsigned long asked_anchor;
static _Atomic int attending;       /* the anchor looks out for calls: it need not be woken */
static PyObject *_Atomic untied;    /* set of the top-level names of modules whose C code runs anywhere */
static PyObject *tied_names;        /* but what this dict of sets names: module -> names of types and functions */

bool
anchor_asked(void)
{
    unsigned long anchor = atomic_load(&asked_anchor);
    return UNLIKELY(anchor != 0) && anchor == PyThread_get_thread_ident();
}

bool
is_on_anchor(Tx *tx)
{
    return tx->anchor == 0 || tx->anchor == PyThread_get_thread_ident();
}

static _Thread_local Tx *own_aside;

Tx *
anchors_own(void)
{
    return own_aside;
}

/* ---- On the anchor ---------------------------------------------------------------------- */

static void
exchange(PyObject **a, PyObject **b)
{
    PyObject *was = *a;
    *a = *b;
    *b = was;
}

/* What a thread state has that belongs to the code which runs, and not to the thread's stack. */
static void
exchange_states(PyThreadState *here, PyThreadState *there)
{
    exchange(&here->context, &there->context);
    here->context_ver++;
    there->context_ver++;
    exchange(&((_PyThreadStateImpl *)here)->asyncio_running_task, &((_PyThreadStateImpl *)there)->asyncio_running_task);
}

static void
make_anchor_call(AnchorCall *call)
{
    PyThreadState *here = PyThreadState_Get();
    _PyErr_StackItem *handled = here->exc_info;
    Tx *own = stm_self, *tx = call->tx;
    stm_self = tx;
    own_aside = own;
    tx->tstate = here;
    here->exc_info = call->asker->exc_info;
    exchange_states(here, call->asker);
    mutexes_change_thread(tx, tx->thread_id, tx->anchor);
    call->result = call->work(call->arg);
    call->exception = PyErr_GetRaisedException();
    mutexes_change_thread(tx, tx->anchor, tx->thread_id);
    exchange_states(here, call->asker);
    here->exc_info = handled;
    tx->tstate = call->asker;
    own_aside = NULL;
    stm_self = own;
}

/* Between two attempts: make the calls that this thread is asked for. */
void
anchor_serve(void)
{
    while (anchor_asked()) {
        AnchorCall *call = call_made;
        _Atomic uint32_t *answered = &thread_of(call->tx)->anchor.answered;
        atomic_store(&asked_anchor, 0);
        make_anchor_call(call);
        PyThreadState *ts = absent_begin(true);     /* before who has asked goes on: it may let go of what this thread has made for it */
        atomic_store(answered, 1);
        syscall(SYS_futex, answered, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        atomic_store(&attending, 1);
        for (int i = 0; i < LOOK_OUT && !anchor_asked(); i++)
            __builtin_ia32_pause();
        atomic_store(&attending, 0);
        atomic_thread_fence(memory_order_seq_cst);
        absent_end(ts);
    }
}

/* ---- Elsewhere ---------------------------------------------------------------------------- */

static void
wake_anchor(Tx *tx)
{
    wake_idle();
    if (tx->txn != NULL && tx->txn->queue != NULL)
        queue_wake(tx->txn->queue);
    if (thread_of(tx)->anchor.wake == NULL)
        return;
    PyObject *r = PyObject_CallNoArgs(thread_of(tx)->anchor.wake);
    if (r == NULL)
        PyErr_FormatUnraisable("Exception ignored in waking the thread of a loop");
    Py_XDECREF(r);
}

PyObject *
do_on_anchor(Tx *tx, Work work, void *arg)
{
    AnchorCall call = {tx, work, arg, PyThreadState_Get(), NULL, NULL};
    atomic_store(&thread_of(tx)->anchor.answered, 0);
    stm_self = NULL;        /* the transaction is the anchor's until that has answered */
    call_made = &call;
    atomic_store(&asked_anchor, tx->anchor);
    while (atomic_load(&thread_of(tx)->anchor.answered) == 0) {
        if (!atomic_load(&attending))
            wake_anchor(tx);
        PyThreadState *ts = absent_begin(false);
        for (int i = 0; i < LOOK_OUT && atomic_load(&thread_of(tx)->anchor.answered) == 0; i++)
            __builtin_ia32_pause();
        struct timespec nap = {0, ANSWER_NS};
        if (atomic_load(&thread_of(tx)->anchor.answered) == 0)
            syscall(SYS_futex, &thread_of(tx)->anchor.answered, FUTEX_WAIT_PRIVATE, 0, &nap, NULL, 0);
        absent_end(ts);
    }
    stm_self = tx;
    if (call.exception != NULL)
        PyErr_SetRaisedException(call.exception);
    return call.result;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

PyObject *
make_call(void *arg)
{
    Call *c = arg;
    return PyObject_Vectorcall(c->callable, c->args, (size_t)c->n, c->kwnames);
}

/* Stands in for a callable that belongs on the anchor (a trampoline). */
PyObject *
call_on_anchor(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Call c = {callable, args, n, kwnames};
    Tx *tx = stm_self;
    bool away = tx != NULL && tx->grade == GRADE_EXCLUSIVE && !is_on_anchor(tx);
    return away ? do_on_anchor(tx, make_call, &c) : make_call(&c);
}

/* Is the C code of that function or type of that module tied to the thread, as far as anybody knows? */
static bool
is_tied_name(PyObject *module, const char *name)
{
    if (untied == NULL || module == NULL || !PyUnicode_Check(module))
        return false;
    Py_ssize_t dot = PyUnicode_FindChar(module, '.', 0, PyUnicode_GET_LENGTH(module), 1);
    PyObject *top = dot < 0 ? Py_NewRef(module) : PyUnicode_Substring(module, 0, dot);
    bool tied = top != NULL && PySet_Contains(untied, top) == 0;
    Py_XDECREF(top);
    PyObject *names = tied ? NULL : PyDict_GetItemWithError(tied_names, module);
    if (names != NULL) {
        PyObject *text = PyUnicode_FromString(name);
        tied = text != NULL && PySet_Contains(names, text) == 1;
        Py_XDECREF(text);
    }
    PyErr_Clear();
    return tied;
}

static bool
is_tied_type(PyTypeObject *type)
{
    static PyObject *module_name;
    if (module_name == NULL)
        module_name = PyUnicode_InternFromString("__module__");
    type = c_base(type);
    if (type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN)
        return false;
    PyObject *module = PyObject_GetAttr((PyObject *)type, module_name);
    PyErr_Clear();
    const char *dot = strrchr(type->tp_name, '.');
    bool tied = is_tied_name(module, dot == NULL ? type->tp_name : dot + 1);
    Py_XDECREF(module);
    return tied;
}

static bool
is_tied(Tx *tx, PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    if (PyCFunction_Check(o)) {
        PyObject *self = PyCFunction_GET_SELF(o), *module = ((PyCFunctionObject *)o)->m_module;
        if (self != NULL && !PyModule_Check(self))
            return PyType_Check(self) ? is_tied_type((PyTypeObject *)self) : is_tied_type(Py_TYPE(self));
        return is_tied_name(module, ((PyCFunctionObject *)o)->m_ml->ml_name);
    }
    if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type || type == &PyWrapperDescr_Type)
        return is_tied_type(PyDescr_TYPE(o));
    if (PyType_Check(o))
        return is_tied_type((PyTypeObject *)o);
    if (type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN)
        return false;
    TypeEntry *entry = type_entry(tx, type);
    if (entry->tied == TIED_UNKNOWN) {
        bool tied = is_tied_type(type);     /* which may make another entry of it */
        entry = type_entry(tx, type);
        entry->tied = tied ? TIED : UNTIED;
    }
    return entry->tied == TIED;
}

/* Does this call, of an exclusive transaction, belong on the anchor, and is it elsewhere? If `known`, the table of effects
 * has the callable, and only the arguments matter. */
bool
belongs_on_anchor(Tx *tx, PyObject *callable, bool known, PyObject *const *args, Py_ssize_t n,
             PyObject *const *kwvalues, Py_ssize_t nkw)
{
    if (LIKELY(is_on_anchor(tx)))
        return false;
    if (!known && is_tied(tx, callable))
        return true;
    for (Py_ssize_t i = 0; i < n + nkw; i++) {
        if (is_tied(tx, i < n ? args[i] : kwvalues[i - n]))
            return true;
    }
    return false;
}

bool
belong_on_anchor(Tx *tx, _PyStackRef const *args, int n)
{
    for (int i = 0; i < n; i++) {
        if (!PyStackRef_IsNull(args[i]) && is_tied(tx, PyStackRef_AsPyObjectBorrow(args[i])))
            return true;
    }
    return false;
}

/* ---- Use without a call -------------------------------------------------------------------------- */

/* A type whose instances are used by more than calls, and how that goes by itself. */
typedef struct {
    PyTypeObject *type;
    iternextfunc next;
    PyMappingMethods mapping;
    PyObject *next_twin;    /* function(self) instead of `next` in a transaction that others run beside, or NULL */
} TiedType;

#define MOST_TIED 8
static TiedType tied_types[MOST_TIED];
static int n_tied;

typedef struct {
    const TiedType *type;
    const PyGetSetDef *attribute;
    PyObject *self, *key, *value;
    Py_ssize_t status;
} Use;

static const TiedType *
tied_type_of(PyObject *self)
{
    for (int i = 0; i < n_tied; i++) {
        if (PyObject_TypeCheck(self, tied_types[i].type))
            return &tied_types[i];
    }
    Py_UNREACHABLE();
}

static PyObject *
use(Use u, Work work, Py_ssize_t *status)
{
    Tx *tx = stm_self;
    bool away = tx != NULL && tx->grade == GRADE_EXCLUSIVE && !is_on_anchor(tx);
    bool beside = tx != NULL && tx->open && is_connection(u.self);
    PyObject *result = away ? do_on_anchor(tx, work, &u) : beside ? with_connection(tx, u.self, work, &u) : work(&u);
    if (status != NULL)
        *status = u.status;
    return result;
}

static PyObject *use_next(void *p) { Use *u = p; return u->type->next(u->self); }
static PyObject *use_item(void *p) { Use *u = p; return u->type->mapping.mp_subscript(u->self, u->key); }
static PyObject *use_get(void *p) { Use *u = p; return u->attribute->get(u->self, u->attribute->closure); }

static PyObject *
use_length(void *p)
{
    Use *u = p;
    u->status = u->type->mapping.mp_length(u->self);
    return NULL;
}

static PyObject *
use_set_item(void *p)
{
    Use *u = p;
    u->status = u->type->mapping.mp_ass_subscript(u->self, u->key, u->value);
    return NULL;
}

static PyObject *
use_set(void *p)
{
    Use *u = p;
    u->status = u->attribute->set(u->self, u->value, u->attribute->closure);
    return NULL;
}

static PyObject *
tied_next(PyObject *self)
{
    const TiedType *type = tied_type_of(self);
    Tx *tx = stm_self;
    if (type->next_twin != NULL && tx != NULL && tx->open)
        return PyObject_CallOneArg(type->next_twin, self);
    return use((Use){.type = type, .self = self}, use_next, NULL);
}

static PyObject *
tied_item(PyObject *self, PyObject *key)
{
    return use((Use){.type = tied_type_of(self), .self = self, .key = key}, use_item, NULL);
}

static Py_ssize_t
tied_length(PyObject *self)
{
    Py_ssize_t status;
    use((Use){.type = tied_type_of(self), .self = self}, use_length, &status);
    return status;
}

static int
tied_set_item(PyObject *self, PyObject *key, PyObject *value)
{
    Py_ssize_t status;
    use((Use){.type = tied_type_of(self), .self = self, .key = key, .value = value}, use_set_item, &status);
    return (int)status;
}

static PyObject *
tied_get(PyObject *self, void *attribute)
{
    return use((Use){.attribute = attribute, .self = self}, use_get, NULL);
}

static int
tied_set(PyObject *self, PyObject *value, void *attribute)
{
    Py_ssize_t status;
    use((Use){.attribute = attribute, .self = self, .value = value}, use_set, &status);
    return (int)status;
}

/* The computed attributes of the type go through tied_get() and tied_set() from here on. */
static int
tie_attributes(PyTypeObject *type)
{
    PyObject *dict = PyType_GetDict(type), *name, *descr;
    Py_ssize_t pos = 0;
    int r = 0;
    while (r == 0 && PyDict_Next(dict, &pos, &name, &descr)) {
        if (!Py_IS_TYPE(descr, &PyGetSetDescr_Type))
            continue;
        PyGetSetDef *original = ((PyGetSetDescrObject *)descr)->d_getset;
        PyGetSetDef *tied = PyMem_Malloc(sizeof *tied);     /* for ever, as the type */
        if (tied == NULL) {
            PyErr_NoMemory();
            r = -1;
            break;
        }
        *tied = *original;
        tied->closure = original;
        if (original->get != NULL)
            tied->get = tied_get;
        if (original->set != NULL)
            tied->set = tied_set;
        ((PyGetSetDescrObject *)descr)->d_getset = tied;
    }
    Py_DECREF(dict);
    return r;
}

/* What a method for a slot calls, and what classes that will be derived get for theirs, is that function from here on. */
static void
replace_wrapped(PyTypeObject *type, const char *name, void *original, void *tied)
{
    PyObject *dict = PyType_GetDict(type), *descr = PyDict_GetItemString(dict, name);
    if (original != NULL && descr != NULL && Py_IS_TYPE(descr, &PyWrapperDescr_Type)
        && ((PyWrapperDescrObject *)descr)->d_wrapped == original)
        ((PyWrapperDescrObject *)descr)->d_wrapped = tied;
    Py_DECREF(dict);
}

/* A class has copies of what it inherits. */
static int
replace_slots(PyTypeObject *type, const TiedType *t)
{
    PyMappingMethods *mapping = type->tp_as_mapping;
    if (t->next != NULL && type->tp_iternext == t->next)
        type->tp_iternext = tied_next;
    if (mapping != NULL && mapping->mp_subscript != NULL && mapping->mp_subscript == t->mapping.mp_subscript)
        mapping->mp_subscript = tied_item;
    if (mapping != NULL && mapping->mp_length != NULL && mapping->mp_length == t->mapping.mp_length)
        mapping->mp_length = tied_length;
    if (mapping != NULL && mapping->mp_ass_subscript != NULL && mapping->mp_ass_subscript == t->mapping.mp_ass_subscript)
        mapping->mp_ass_subscript = tied_set_item;
    PyType_Modified(type);
    PyObject *subclasses = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
    int r = subclasses == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(subclasses); i++)
        r = replace_slots((PyTypeObject *)PyList_GET_ITEM(subclasses, i), t);
    Py_XDECREF(subclasses);
    return r;
}

/* tie(type, next_twin=None): its instances are used on the anchor, also where that is no call. */
PyObject *
anchor_tie(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyTypeObject *type;
    PyObject *twin = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &PyType_Type, &type, &twin))
        return NULL;
    if (n_tied == MOST_TIED) {
        PyErr_SetString(PyExc_TypeError, "tie() takes a few types");
        return NULL;
    }
    TiedType *t = &tied_types[n_tied];
    *t = (TiedType){(PyTypeObject *)Py_NewRef(type), type->tp_iternext, {0}, twin != Py_None ? Py_NewRef(twin) : NULL};
    if (type->tp_as_mapping != NULL)
        t->mapping = *type->tp_as_mapping;
    n_tied++;
    replace_wrapped(type, "__next__", t->next, tied_next);
    replace_wrapped(type, "__getitem__", t->mapping.mp_subscript, tied_item);
    replace_wrapped(type, "__len__", t->mapping.mp_length, tied_length);
    replace_wrapped(type, "__setitem__", t->mapping.mp_ass_subscript, tied_set_item);
    replace_wrapped(type, "__delitem__", t->mapping.mp_ass_subscript, tied_set_item);
    if (tie_attributes(type) < 0 || replace_slots(type, t) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Which thread it is ------------------------------------------------------------------------------ */

/* set_untied(modules, tied): C code of those top-level modules runs on any thread, but for what `tied` has sets of names of.
 * That is the same each time. */
PyObject *
anchor_set_untied(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *names, *tied;
    if (!PyArg_ParseTuple(args, "O!O!", &PyFrozenSet_Type, &names, &PyDict_Type, &tied))
        return NULL;
    Py_XSETREF(tied_names, Py_NewRef(tied));
    atomic_store(&untied, Py_NewRef(names));    /* the old one stays: another thread may be looking at it */
    Py_RETURN_NONE;
}

/* set_anchor(ident, wake): this thread runs transactions for that thread, which wake() has look around; (0, None): no more. */
PyObject *
anchor_set(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long ident;
    PyObject *wake_up;
    Tx *tx = stm_thread_tx();
    if (tx == NULL || !PyArg_ParseTuple(args, "kO", &ident, &wake_up))
        return NULL;
    tx->anchor = ident;
    Py_XSETREF(thread_of(tx)->anchor.wake, wake_up == Py_None ? NULL : Py_NewRef(wake_up));
    Py_RETURN_NONE;
}

/* In the child of a fork this thread is the only one. */
void
anchor_in_child(void)
{
    atomic_store(&asked_anchor, 0);
    atomic_store(&attending, 0);
    if (stm_self != NULL)
        stm_self->anchor = 0;
}
