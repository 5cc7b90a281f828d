/* tornado.stm._engine: what the Python side sees of the engine. */
#include "../interpreter/loop.h"
#include "../interpreter/tracebacks.h"
#include "calls/callbacks.h"
#include "calls/calls.h"
#include "calls/connection.h"
#include "calls/conversion.h"
#include "calls/fiber.h"
#include "calls/makers.h"
#include "calls/references.h"
#include "calls/trees.h"
#include "calls/twins.h"
#include "calls/waiting.h"
#include "core/bystanders.h"
#include "core/history.h"
#include "core/park.h"
#include "core/queue.h"
#include "core/transaction.h"
#include "deferred.h"
#include "dispatch/chain.h"
#include "dispatch/dispatcher.h"
#include "dispatch/handle.h"
#include "dispatch/ready.h"
#include "dispatch/sites.h"
#include "dispatch/task.h"
#include "guard.h"
#include "objects/access.h"
#include "objects/attributes.h"
#include "objects/class.h"
#include "objects/deep.h"
#include "objects/dict.h"
#include "objects/element.h"
#include "objects/endings.h"
#include "objects/ordered_dict.h"
#include "objects/function.h"
#include "objects/garbage.h"
#include "objects/instance.h"
#include "objects/known.h"
#include "objects/lazy.h"
#include "objects/local.h"
#include "objects/memoryview.h"
#include "objects/namespaces.h"
#include "objects/structure.h"
#include "per_thread.h"
#include "signals.h"
#include "sockets/outbox.h"
#include "sockets/socket.h"

/* ---- Tables, filled once at start ---------------------------------------------- */

static PyObject *
register_type(PyObject *self, PyObject *args)
{
    (void)self;
    PyTypeObject *type;
    int kind;
    if (!PyArg_ParseTuple(args, "O!i", &PyType_Type, &type, &kind) || types_register(type, kind) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_effect(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *callable, *twin = Py_None;
    int effect;
    if (!PyArg_ParseTuple(args, "Oi|O", &callable, &effect, &twin)
        || effects_register(callable, effect, twin == Py_None ? NULL : twin) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
stands_aside(PyObject *Py_UNUSED(self), PyObject *callable)
{
    twin_stands_aside(callable);
    Py_RETURN_NONE;
}

static PyObject *
register_instances(PyObject *self, PyObject *args)
{
    (void)self;
    PyTypeObject *type;
    PyObject *twin = Py_None;
    int effect;
    if (!PyArg_ParseTuple(args, "O!i|O", &PyType_Type, &type, &effect, &twin)
        || effects_register_instances(type, effect, twin == Py_None ? NULL : twin) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_hidden_type(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *name;
    int kind;
    if (!PyArg_ParseTuple(args, "Ui", &name, &kind) || types_register_name(name, kind) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_exposed(PyObject *self, PyObject *endpoint)
{
    (void)self;
    return PyBool_FromLong(state_expose(endpoint));
}

static PyObject *
register_leaf(PyObject *self, PyObject *type)
{
    (void)self;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a type is expected");
        return NULL;
    }
    if (conversion_leaf((PyTypeObject *)type) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_converters(PyObject *self, PyObject *name)
{
    (void)self;
    if (conversion_named(name) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_unread(PyObject *self, PyObject *name)
{
    (void)self;
    if (conversion_unread(name) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_asked(PyObject *self, PyObject *name)
{
    (void)self;
    if (conversion_asks(name) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
register_unordered(PyObject *self, PyObject *generator)
{
    (void)self;
    Py_XSETREF(stm_unordered, Py_NewRef(generator));
    Py_RETURN_NONE;
}

static PyObject *
hide_frames(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *file, *name;
    if (!PyArg_ParseTuple(args, "UU", &file, &name) || tracebacks_hide(args) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
say_where_libraries_are(PyObject *Py_UNUSED(self), PyObject *folders)
{
    return libraries_are_in(folders) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
holds(PyObject *self, PyObject *args)
{
    (void)self;
    PyTypeObject *type;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O!U", &PyType_Type, &type, &name) || register_holder(type, name) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
is_hidden(PyObject *self, PyObject *code)
{
    (void)self;
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "a code object is needed, not %R", code);
    return PyBool_FromLong(is_hidden_code((PyCodeObject *)code));
}

static PyObject *
register_module(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *globals, *rebound;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &globals, &rebound)
        || register_module_globals(globals, rebound) < 0 || keep_builtins(globals) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
rebound_globals(PyObject *self, PyObject *globals)
{
    (void)self;
    return globals_rebound(globals);
}

static PyObject *
dict_of_function(PyObject *self, PyObject *function)
{
    (void)self;
    PyObject *dict = PyFunction_Check(function) ? own_dict(function) : NULL;
    return dict != NULL ? dict : Py_NewRef(Py_None);
}

static PyObject *
configure(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *register_globals;
    PyTypeObject *probe;
    if (!PyArg_ParseTuple(args, "OO!k", &register_globals, &PyType_Type, &probe, &stm_main_thread))
        return NULL;
    Py_XSETREF(stm_register_module, Py_NewRef(register_globals));
    types_set_probe(probe);
    Py_RETURN_NONE;
}

/* Code is trusted by a flag of its own, and so is what it defines. */
static void
trust_code(PyCodeObject *code)
{
    __atomic_fetch_or(&code->co_flags, CO_STM_TRUSTED, __ATOMIC_RELAXED);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); i++) {
        PyObject *constant = PyTuple_GET_ITEM(code->co_consts, i);
        if (PyCode_Check(constant))
            trust_code((PyCodeObject *)constant);
    }
}

static PyObject *
trust(PyObject *self, PyObject *code)
{
    (void)self;
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "code is needed, not %R", code);
    trust_code((PyCodeObject *)code);
    Py_RETURN_NONE;
}

/* ---- From inside a transaction ----------------------------------------------------- */

static PyObject *
defer(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "defer() needs a callable");
        return NULL;
    }
    if (tx_defer(args, n) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
change(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && open_whole_write(tx, obj) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
on_abort(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "on_abort() needs a callable");
        return NULL;
    }
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE) {
        PyObject *rest = arguments_of_call(args, n);
        Undo *u = rest ? undo_push(tx, &undo_call, args[0], rest, NULL) : NULL;
        Py_XDECREF(rest);
        if (u == NULL)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* A call and the entry in the undo log that takes it back, with nothing in between
 * where an exception could come from. */
static PyObject *
receive(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 3) {
        PyErr_SetString(PyExc_TypeError, "receive() needs put_back, key and a function");
        return NULL;
    }
    PyObject *result = ask(live_tx(), args[2], args + 3, n - 3);
    Tx *tx = live_tx();
    if (result != NULL && tx != NULL && tx->grade != GRADE_EXCLUSIVE) {
        PyObject *undo_args = PyTuple_Pack(2, args[1], result);
        Undo *u = undo_args ? undo_push(tx, &undo_call, args[0], undo_args, NULL) : NULL;
        Py_XDECREF(undo_args);
        if (u == NULL)
            Py_CLEAR(result);
    }
    return result;
}

static PyObject *
in_transaction(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(live_tx() != NULL);
}

static PyObject *
engine_answers_follow(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    answers_follow();
    Py_RETURN_NONE;
}

static bool
unwinding(Tx *tx)
{
    return tx != NULL && (tx->releasing == AFTER_ABORT || state_of(tx) == TX_DOOMED || tx->aborting);
}

/* As C code, so that the warning names the line of whoever has dropped the coroutine. */
static PyObject *
warn_unless_rolled_back(PyObject *warn, PyObject *coroutine)
{
    if (unwinding(stm_self) || never_was(coroutine))
        Py_RETURN_NONE;
    return PyObject_CallOneArg(warn, coroutine);
}

static PyObject *
quiet_unawaited(PyObject *self, PyObject *warn)
{
    (void)self;
    static PyMethodDef method = {"_warn_unawaited_coroutine", warn_unless_rolled_back, METH_O, NULL};
    return PyCFunction_New(&method, warn);
}

static PyObject *
is_unwinding(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(unwinding(stm_self));
}

static PyObject *
after_release(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n)
{
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "after_release() takes a function, and its arguments");
        return NULL;
    }
    return PyBool_FromLong(stm_self != NULL && call_after_release(stm_self, args[0], args + 1, n - 1));
}

static PyObject *
after_warning(PyObject *Py_UNUSED(self), PyObject *args)
{
    return PyBool_FromLong(call_after_warning(args));
}

static PyObject *
current(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Tx *tx = stm_self;
    return Py_NewRef(tx && tx->txn ? (PyObject *)tx->txn : Py_None);
}

static PyObject *
exclusive(PyObject *self, PyObject *args)
{
    (void)self;
    const char *why;
    int usual = true;
    if (!PyArg_ParseTuple(args, "s|p", &why, &usual))
        return NULL;
    Tx *tx = live_tx();
    if (tx != NULL)
        thread_of(tx)->was_alone.unusual = !usual;
    if (tx != NULL && exclusive_for(tx, why, NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
exclusive_anew(PyObject *Py_UNUSED(self), PyObject *args)
{
    const char *why;
    if (!PyArg_ParseTuple(args, "s", &why))
        return NULL;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade == GRADE_NONE && begin_again_exclusive(tx, why) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
irrevocable(PyObject *self, PyObject *why)
{
    (void)self;
    (void)why;      /* for those who read the call */
    Tx *tx = live_tx();
    if (tx != NULL && become_inevitable(tx, GRADE_IRREVOCABLE) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
engine_ask_main(PyObject *self, PyObject *request)
{
    (void)self;
    if (ask_main(request) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
engine_serve(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (serve() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
thread_ident(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(identified_thread());
}

static PyObject *
puts_off(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Tx *tx = live_tx();
    return PyBool_FromLong(tx != NULL && tx->grade != GRADE_EXCLUSIVE);
}

static PyObject *
is_exclusive(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(stm_self != NULL && stm_self->grade == GRADE_EXCLUSIVE);
}

static PyObject *
keeps_others_waiting(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Tx *tx = live_tx();
    return PyBool_FromLong(tx != NULL && tx->grade != GRADE_NONE && tx->company != SEQUENTIAL);
}

static PyObject *
is_only_thread(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(runs_on_few(1));
}

static PyObject *
own(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && own_whole(tx, obj) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
share(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && lock_shared(tx, cell_of(obj, WHOLE)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A part of the object that has this number: lock(cell). */
static PyObject *
lock_part(PyObject *args, int (*lock)(Tx *, Cell))
{
    PyObject *obj;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "OK", &obj, &number))
        return NULL;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && lock(tx, cell_of(obj, key_bits((Py_hash_t)number))) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
add_to(PyObject *self, PyObject *args)
{
    (void)self;
    return lock_part(args, lock_intent_write);
}

static PyObject *
look_into(PyObject *self, PyObject *args)
{
    (void)self;
    return lock_part(args, lock_shared_container);
}

static PyObject *
open_all(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && open_deep_read(tx, obj) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
engine_tree_twin(PyObject *self, PyObject *original)
{
    (void)self;
    return tree_twin(original);
}

static PyObject *
engine_begin_elements(PyObject *self, PyObject *type)
{
    (void)self;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "a class, not %R", type);
    if (element_begin((PyTypeObject *)type) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
engine_watch_handlers(PyObject *self, PyObject *type)
{
    (void)self;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "a class, not %R", type);
    watch_handlers((PyTypeObject *)type);
    Py_RETURN_NONE;
}

static PyObject *
engine_c_twin(PyObject *self, PyObject *original)
{
    (void)self;
    return c_twin(original);
}

static PyObject *
engine_short_way(PyObject *self, PyObject *args)
{
    (void)self;
    return short_way(args);
}

static PyObject *
capture(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL)
        note_captured(tx, obj);
    return Py_NewRef(obj);
}

static PyObject *
engine_forget_past(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade == GRADE_EXCLUSIVE)
        forget_past(tx);
    Py_RETURN_NONE;
}

static PyObject *
dies_anywhere(PyObject *Py_UNUSED(self), PyObject *obj)
{
    if (obj->ob_tid == _Py_ThreadId())
        _Py_ExplicitMergeRefcount(obj, 0);
    Py_RETURN_NONE;
}

static PyObject *
is_captured(PyObject *Py_UNUSED(self), PyObject *obj)
{
    Tx *tx = live_tx();
    return PyBool_FromLong(tx != NULL && captured(tx, obj));
}

static PyObject *
set_in_type(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyTypeObject *type;
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "O!UO", &PyType_Type, &type, &name, &value))
        return NULL;
    PyObject *dict = PyType_GetDict(type);
    int r = PyDict_SetItem(dict, name, value);
    Py_DECREF(dict);
    PyType_Modified(type);
    if (r < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
open_items(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && open_iter(tx, obj) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
open_plain(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    int plain = tx != NULL && tx->grade != GRADE_EXCLUSIVE ? open_plain_read(tx, obj) : 1;
    return plain < 0 ? NULL : PyBool_FromLong(plain);
}

static PyObject *
may_be_called(PyObject *self, PyObject *f)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && tx->grade != GRADE_EXCLUSIVE && call_with_own(tx, f) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
guarded(PyObject *self, PyObject *inner)
{
    (void)self;
    return guarded_new(inner, USE_ALL);
}

static PyObject *
fresh(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = live_tx();
    if (tx != NULL && make_fresh(tx, obj) < 0)
        return NULL;
    return Py_NewRef(obj);
}

static PyObject *
engine_is_fresh(PyObject *self, PyObject *obj)
{
    (void)self;
    return PyBool_FromLong(stm_self != NULL && is_fresh(stm_self, obj));
}

/* ---- Forks ----------------------------------------------------------------------------- */

static PyObject *
before_fork(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    fork_begins();
    Py_RETURN_NONE;
}

static PyObject *
after_fork(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    fork_ends();
    Py_RETURN_NONE;
}

static PyMethodDef fork_handlers[] = {
    {"before_fork", before_fork, METH_NOARGS, NULL},
    {"after_fork", after_fork, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* The last becomes the first. */
static int
move_to_front(PyObject *handlers)
{
    Py_ssize_t last = PyList_GET_SIZE(handlers) - 1;
    return PyList_Insert(handlers, 0, PyList_GET_ITEM(handlers, last)) < 0 ? -1 : PyList_SetSlice(handlers, last + 1, last + 2, NULL);
}

/* Nearest to the fork, whoever has registered handlers before: those take locks, for which transactions may have to go on. */
static int
forks_init(void)
{
    PyObject *before = PyCFunction_New(&fork_handlers[0], NULL), *after = PyCFunction_New(&fork_handlers[1], NULL), *none = PyTuple_New(0);
    PyObject *os = PyImport_ImportModule("os"), *function = os != NULL ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
    PyObject *named = before != NULL && after != NULL ? Py_BuildValue("{s:O,s:O}", "before", before, "after_in_parent", after) : NULL;
    PyObject *r = function != NULL && named != NULL && none != NULL ? PyObject_Call(function, none, named) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(after);
    Py_XDECREF(none);
    Py_XDECREF(os);
    Py_XDECREF(function);
    Py_XDECREF(named);
    Py_XDECREF(r);
    PyInterpreterState *interp = PyInterpreterState_Get();
    return r == NULL || move_to_front(interp->before_forkers) < 0 || move_to_front(interp->after_forkers_parent) < 0 ? -1 : 0;
}

/* ---- Around transactions -------------------------------------------------------------- */

static PyObject *
atomic_enter(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Tx *tx = stm_thread_tx();
    if (tx == NULL)
        return NULL;
    if (state_of(tx) != TX_IDLE)
        Py_RETURN_FALSE;
    thread_of(tx)->locations.base = NULL;
    tx->contention.began = __builtin_ia32_rdtsc();
    tx->contention.kept_out = 0;
    tx_begin(tx, atomic_fetch_add(&stm_next_age, 1), GRADE_EXCLUSIVE);
    history(tx, DID_BEGIN, 0, 0);
    Py_RETURN_TRUE;
}

static PyObject *
atomic_exit(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    uint64_t began = stm_self->contention.began;    /* finalizers begin anew */
    if (tx_commit(stm_self) < 0)
        return NULL;
    count_run(stm_self, began);
    Py_RETURN_NONE;
}

static PyObject *
take_place(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    if (stm_thread_tx() != NULL)
        Py_RETURN_TRUE;
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_FALSE;
}

static PyObject *
has_lent(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(interrupts_lent());
}

static PyObject *
in_turn(PyObject *Py_UNUSED(self), PyObject *const *call, Py_ssize_t n)
{
    if (n > 0 && interrupts_lent())
        return call_in_turn(call, n);
    PyErr_SetString(PyExc_RuntimeError, "in_turn() is for transactions that have lent their turn");
    return NULL;
}

static PyObject *
is_interrupted(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Queue *q = stm_self != NULL && stm_self->txn != NULL ? stm_self->txn->queue : NULL;
    return PyBool_FromLong(q != NULL && queue_has_calls(q));
}

static PyObject *
set_allowance(PyObject *self, PyObject *seconds)
{
    (void)self;
    double value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred())
        return NULL;
    limit_allowance(value);
    Py_RETURN_NONE;
}

/* A hook of the garbage collector's, at its beginning and its end. */
static PyObject *
tell_collection(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n)
{
    if (n > 0 && PyUnicode_Check(args[0]) && PyUnicode_EqualToUTF8(args[0], "stop"))
        garbage_collected();
    else
        forget_converters();
    Py_RETURN_NONE;
}

static PyObject *
set_sequential(PyObject *Py_UNUSED(self), PyObject *threads)
{
    int limit = PyLong_AsInt(threads);
    if (limit == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(atomic_exchange(&stm_sequential_limit, limit));
}

static PyObject *
settle(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Tx *tx = stm_self;
    if (tx == NULL || state_of(tx) != TX_IDLE)
        Py_RETURN_NONE;
    /* Finalizers may wait for a loop: they are a group of their own. */
    const void *group = atomic_exchange(&tx->contention.group, tx);
    /* Others may have dropped what this thread has made: it is told so where the interpreter handles what is pending. */
    int r = stm_handle_pending(PyThreadState_Get());
    if (r == 0) {
        finalize_garbage(tx, false);
        finalize_dying(tx, GRADE_IRREVOCABLE);
    }
    atomic_store(&tx->contention.group, group);
    if (r < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* When the engine was loaded, by both clocks: for what a cycle takes. */
static struct { uint64_t ns, cycles; } first_moment;

static double
seconds_in(uint64_t cycles)
{
    double cycle = (double)(now_ns() - first_moment.ns) / (double)(__builtin_ia32_rdtsc() - first_moment.cycles);
    return (double)cycles * cycle * 1e-9;
}

/* Of other threads, as far as can be told: they go on. */
static PyObject *
running(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    PyObject *found = PyList_New(0);
    for (int i = 1; found != NULL && i < MAX_THREADS; i++) {
        Tx *tx = atomic_load(&stm_threads[i]);
        uint64_t began = tx != NULL ? atomic_load_explicit(&tx->contention.began, memory_order_relaxed) : 0;
        if (tx == NULL || state_of(tx) == TX_IDLE)
            continue;
        PyObject *one = Py_BuildValue("(kd)", tx->thread_id, seconds_in(__builtin_ia32_rdtsc() - began));
        if (one == NULL || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

static PyObject *
stats(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    unsigned long long commits = 0, aborts = 0, exclusives = 0, sequentials = 0, strays = 0, alone = 0, lost = 0, ran = 0;
    for (int i = 1; i < MAX_THREADS; i++) {
        Tx *tx = atomic_load(&stm_threads[i]);
        if (tx != NULL) {
            commits += tx->commits;
            aborts += tx->aborts;
            exclusives += tx->exclusives;
            sequentials += tx->sequentials;
            strays += tx->strays;
            alone += tx->alone;
            lost += tx->lost;
            ran += tx->ran;
        }
    }
    PyObject *reasons = PyDict_Copy(stm_exclusive_reasons), *seconds = PyDict_Copy(stm_exclusive_seconds);
    if (reasons == NULL || seconds == NULL) {
        Py_XDECREF(reasons);
        Py_XDECREF(seconds);
        return NULL;
    }
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:d,s:N,s:N}", "commits", commits, "aborts", aborts, "exclusives", exclusives,
                         "sequentials", sequentials, "strays", strays, "seconds_alone", (double)alone * 1e-9,
                         "seconds_lost", seconds_in(lost), "seconds_running", seconds_in(ran), "exclusive_reasons", reasons,
                         "exclusive_seconds", seconds);
}

/* While an extension module is loaded by any thread the interpreter has its GIL on, too, by a count; for good it is by this number. */
static PyObject *
gil_is_enabled(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(_Py_atomic_load_int(&_PyInterpreterState_GET()->ceval.gil->enabled) == INT_MAX);
}

static PyObject *
inject_aborts(PyObject *self, PyObject *args)
{
    (void)self;
    double rate;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "dK", &rate, &seed))
        return NULL;
    if (!(rate >= 0 && rate < 1)) {
        PyErr_SetString(PyExc_ValueError, "the rate of injected aborts must be in [0, 1)");
        return NULL;
    }
    stm_inject_seed = seed;
    stm_inject_rate = (uint32_t)(rate * 4294967296.0);
    for (int i = 1; i < MAX_THREADS; i++) {
        Tx *tx = atomic_load(&stm_threads[i]);
        if (tx != NULL)
            tx->contention.inject_state = (seed + i) * 0x9E3779B97F4A7C15ull | 1;
    }
    Py_RETURN_NONE;
}

static PyObject *
bias(PyObject *self, PyObject *obj)
{
    (void)self;
    Tx *tx = stm_thread_tx();
    return tx == NULL ? NULL : PyBool_FromLong(bias_give(tx, obj));
}

static PyObject *
bias_waits(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLongLong(atomic_load(&stm_bias_waits));
}

static PyObject *
step_in(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(bystander_steps_in());
}

static PyObject *
step_back(PyObject *self, PyObject *stood_by)
{
    (void)self;
    bystander_steps_back(stood_by == Py_True);
    Py_RETURN_NONE;
}

static PyObject *
forget_bystanders(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    bystanders_forget();
    Py_RETURN_NONE;
}

static PyObject *
is_biased(PyObject *self, PyObject *obj)
{
    (void)self;
    return PyBool_FromLong(has_bias(obj));
}

static PyObject *
inject_delays(PyObject *self, PyObject *args)
{
    (void)self;
    double rate, limit;
    if (!PyArg_ParseTuple(args, "dd", &rate, &limit))
        return NULL;
    if (!(rate >= 0 && rate < 1 && limit >= 0 && limit < 1)) {
        PyErr_SetString(PyExc_ValueError, "the rate and the seconds of injected delays must be in [0, 1)");
        return NULL;
    }
    stm_delay_limit = (uint32_t)(limit * 1e6);
    stm_delay_rate = (uint32_t)(rate * 4294967296.0);
    Py_RETURN_NONE;
}

static PyObject *
record_history(PyObject *self, PyObject *on)
{
    (void)self;
    int yes = PyObject_IsTrue(on);
    if (yes < 0)
        return NULL;
    history_switch(yes);
    Py_RETURN_NONE;
}

static PyObject *
recorded_history(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return history_list();
}

static PyObject *
rehearse(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Tx *tx = live_tx();
    if (tx != NULL && tx->txn != NULL && tx->txn->attempts == 0 && tx->grade == GRADE_NONE)
        tx->rehearsing = true;
    return PyBool_FromLong(tx != NULL && tx->rehearsing);
}

static PyObject *
switch_barriers(PyObject *self, PyObject *on)
{
    (void)self;
    int yes = PyObject_IsTrue(on);
    if (yes < 0)
        return NULL;
    stm_barriers_off = !yes;
    Py_RETURN_NONE;
}

static PyObject *
engine_log_open(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *path;     /* bytes, as the file system has it */
    unsigned long long limit = 0;
    if (!PyArg_ParseTuple(args, "O&|K", PyUnicode_FSConverter, &path, &limit))
        return NULL;
    int r = logfile_open(PyBytes_AS_STRING(path), limit);
    Py_DECREF(path);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
engine_log_close(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    logfile_close();
    Py_RETURN_NONE;
}

static PyObject *
engine_log_losses(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return places_losses();
}

#define DOC(text) PyDoc_STR(text)
PyObject *begin_loop(PyObject *self, PyObject *ignored);     /* ../interpreter/loop.c */

static PyMethodDef methods[] = {
    {"register_type", register_type, METH_VARARGS, DOC("register_type(type, kind): declare a C type")},
    {"register_effect", register_effect, METH_VARARGS,
     DOC("register_effect(callable, effect, twin=None): declare a C callable")},
    {"stands_aside", stands_aside, METH_O,
     DOC("stands_aside(callable): its twin is the same but for barriers, so exclusive transactions call what it stands in for")},
    {"register_instances", register_instances, METH_VARARGS,
     DOC("register_instances(type, effect, twin=None): declare calls of a type's instances")},
    {"register_hidden_type", register_hidden_type, METH_VARARGS,
     DOC("register_hidden_type(name, kind): declare a C type that has this name, module included, and that no module has")},
    {"register_exposed", register_exposed, METH_O,
     DOC("register_exposed(endpoint): others write to its memory, who ask nobody; False where there is no room for one more")},
    {"register_leaf", register_leaf, METH_O,
     DOC("register_leaf(type): its objects have no state, and refer to nothing that has any")},
    {"tell_collection", _PyCFunction_CAST(tell_collection), METH_FASTCALL,
     DOC("tell_collection(phase, info): for gc.callbacks")},
    {"register_converters", register_converters, METH_O,
     DOC("register_converters(name): under this name classes have the C objects that convert their instances")},
    {"register_asked", register_asked, METH_O,
     DOC("register_asked(name): these objects call the method of this name of what they are given")},
    {"register_unread", register_unread, METH_O,
     DOC("register_unread(name): none of these objects reads the slot that instances have under this name")},
    {"register_unordered", register_unordered, METH_O,
     DOC("register_unordered(generator): nobody can tell in which order its random numbers are drawn (None: of no generator)")},
    {"register_module", register_module, METH_VARARGS,
     DOC("register_module(globals, names): functions of this module read these names with a barrier")},
    {"dict_of_function", dict_of_function, METH_O, DOC("the dict with the function's attributes; None: it has none, and none is made")},
    {"rebound_globals", rebound_globals, METH_O, DOC("the names given to register_module, or None")},
    {"holds", holds, METH_VARARGS,
     DOC("holds(type, name): what this attribute is will be called; for the conflict log")},
    {"libraries_are_in", say_where_libraries_are, METH_O,
     DOC("libraries_are_in(folders): files whose names begin with one of these are not the program's own")},
    {"hide_frames", hide_frames, METH_VARARGS,
     DOC("hide_frames(file, name): tracebacks leave out functions whose file and qualified name begin so")},
    {"is_hidden", is_hidden, METH_O, DOC("is_hidden(code): do tracebacks leave it out?")},
    {"configure", configure, METH_VARARGS,
     DOC("configure(register_globals, python_class, main_thread_ident): what the engine needs from Python")},
    {"trust", trust, METH_O, DOC("trust(code): from here on it has no barriers, nor has code that is nested in it")},
    {"defer", _PyCFunction_CAST(defer), METH_FASTCALL,
     DOC("defer(f, *args): call at commit, in order; at once outside a transaction")},
    {"on_abort", _PyCFunction_CAST(on_abort), METH_FASTCALL,
     DOC("on_abort(f, *args): call if this attempt is rolled back, in its turn in the undo log")},
    {"receive", _PyCFunction_CAST(receive), METH_FASTCALL,
     DOC("receive(put_back, key, f, *args): f(*args); if rolled back, put_back(key, result)")},
    {"sockets_begin", sockets_begin, METH_VARARGS,
     DOC("sockets_begin(send, setsockopt, close, shutdown, fileno, gettimeout, family, type, proto): methods and attributes of"
         " _socket.socket")},
    {"receiving_begin", receiving_begin, METH_VARARGS,
     DOC("receiving_begin(inboxes, put_back, nothing): dict by descriptor of what the next attempts receive, put_back(descriptor, bytes),"
         " and a tuple of the exceptions that say that nothing has come")},
    {"receive_by_twins", receive_by_twins, METH_NOARGS, DOC("receive_by_twins(): from here on no short way receives anything")},
    {"socket_send", socket_send, METH_VARARGS, DOC("socket_send(send, twin): a method of sockets that sends in order, whoever calls it")},
    {"socket_way", socket_way, METH_VARARGS,
     DOC("socket_way(method, twin): what stands in for that method of _socket.socket, in C, where that is simple, and else calls the twin")},
    {"unset_bytearray", unset_bytearray, METH_O,
     DOC("unset_bytearray(size): bytearray(size), which is not set to zero: of what is received into it, only that is read")},
    {"set_option_now", _PyCFunction_CAST(set_option_now), METH_FASTCALL,
     DOC("set_option_now(socket, level, option, ...): setsockopt, at the commit: a peer that has gone meanwhile does not matter")},
    {"sends_no_more", sends_no_more, METH_O,
     DOC("sends_no_more(socket): until the end of this transaction no other one sends by it")},
    {"answers_follow", engine_answers_follow, METH_NOARGS,
     DOC("answers_follow(): this transaction, which will not be rolled back, is about to send; what is answered comes after what it schedules")},
    {"put_off", _PyCFunction_CAST(put_off), METH_FASTCALL,
     DOC("put_off(socket, data[, write]): let as much of it be sent at the commit as there is room for; returns how much.  write(bytes),"
         " in the place of socket.send, returns how many the kernel took.  Raises BlockingIOError without room, and what the"
         " kernel has said of earlier bytes")},
    {"find_outbox", find_outbox, METH_O, DOC("find_outbox(fd): the Outbox of that descriptor's socket, or None")},
    {"take_outbox", take_outbox, METH_O, DOC("take_outbox(fd): the same; from here on the socket has none")},
    {"site_of", site_of, METH_O, DOC("site_of(handle): the Site of an asyncio handle's callback, or None if it is no handle of asyncio's")},
    {"new_handle", _PyCFunction_CAST(new_handle), METH_FASTCALL,
     DOC("new_handle(loop, callback, args, context[, when]): asyncio's Handle, or a TimerHandle, but for debug mode")},
    {"call_soon", _PyCFunction_CAST(call_soon), METH_FASTCALL,
     DOC("call_soon(dispatcher, loop, callback, args, context): let it run, in this transaction or in one after it; returns the Handle")},
    {"submit_soon", _PyCFunction_CAST(submit_soon), METH_FASTCALL, DOC("submit_soon(dispatcher, handle): the same for a handle")},
    {"run_handle", run_handle, METH_O, DOC("run_handle(handle): a transaction, which calls back")},
    {"run_timer", run_timer, METH_O, DOC("run_timer(timer): the same of a timer that is due")},
    {"check_pollable", check_pollable, METH_O,
     DOC("check_pollable(fd): raises OSError if the kernel does not tell of that descriptor's events, as for a regular file")},
    {"handle_event", _PyCFunction_CAST(handle_event), METH_FASTCALL,
     DOC("handle_event(dispatcher, watch, reader, writer): the same of those two of a descriptor that are not None and still there")},
    {"handles_begin", _PyCFunction_CAST(handles_begin), METH_FASTCALL,
     DOC("handles_begin(Handle, TimerHandle, call_soon, run, tell, function, instruction, line): asyncio's classes, and the function"
         " that call_soon() is in the place of; run(handle) in debug mode, and for other classes; tell(handle, exception) of what a"
         " callback has raised, which asyncio calls in that function, there")},
    {"futures_begin", futures_begin, METH_O,
     DOC("futures_begin(finalizer): asyncio has been imported; finalizer(future, unfinished): one dies with something to tell")},
    {"tasks_begin", tasks_begin, METH_O, DOC("tasks_begin(eager_start): what begins the first step of a task at once")},
    {"tasks_all", tasks_all, METH_NOARGS, DOC("tasks_all(): a list of the tasks that have not ended; while no transaction runs")},
    {"task_eager_step", task_eager_step, METH_O, DOC("task_eager_step(task): its first step, while it is being made")},
    {"future_add_to_awaited_by", _PyCFunction_CAST(future_add_to_awaited_by), METH_FASTCALL,
     DOC("future_add_to_awaited_by(future, waiter): in the place of asyncio's")},
    {"future_discard_from_awaited_by", _PyCFunction_CAST(future_discard_from_awaited_by), METH_FASTCALL,
     DOC("future_discard_from_awaited_by(future, waiter): in the place of asyncio's")},
    {"end_chain", end_chain, METH_O, DOC("end_chain(dispatcher): what this transaction has scheduled follows no more, and what it will neither")},
    {"set_longest_question", set_longest_question, METH_O,
     DOC("set_longest_question(seconds): a test hook, so long an answer waits at most for what was scheduled with the question; what it was")},
    {"set_short", set_short, METH_O, DOC("set_short(seconds): a test hook, what takes less is short; SHORT at first")},
    {"exchange_locals", exchange_locals, METH_O,
     DOC("exchange_locals(key): what this thread's threading.local attributes are found by from here on; returns what it was")},
    {"in_transaction", in_transaction, METH_NOARGS, DOC("is this thread in a transaction?")},
    {"quiet_unawaited", quiet_unawaited, METH_O,
     DOC("quiet_unawaited(f): f(coroutine), but for coroutines of an attempt that was rolled back")},
    {"is_unwinding", is_unwinding, METH_NOARGS, DOC("is this thread rolling an attempt back?")},
    {"after_release", _PyCFunction_CAST(after_release), METH_FASTCALL,
     DOC("after_release(function, *args): if this thread drops what a transaction has held that is over, call that later and return True;"
         " what one has held that was rolled back calls nothing")},
    {"after_warning", after_warning, METH_VARARGS,
     DOC("after_warning(function, *args): if this thread gives a warning by warnings.warn, call that as soon as it has let go of the lock of"
         " all warnings, and return True")},
    {"current", current, METH_NOARGS, DOC("the Transaction of this thread, or None")},
    {"exclusive", exclusive, METH_VARARGS,
     DOC("exclusive(why, usual=True): from here on run alone, never abort; are others of its kind expected to?")},
    {"exclusive_anew", exclusive_anew, METH_VARARGS,
     DOC("exclusive_anew(why): end the attempt, and let the next one run alone; without effect where that cannot be")},
    {"irrevocable", irrevocable, METH_O, DOC("irrevocable(why): from here on never abort")},
    {"in_fiber", _PyCFunction_CAST(in_fiber), METH_FASTCALL | METH_KEYWORDS,
     DOC("in_fiber(barriers, function, *args, **kwargs): call it on the loop's thread, irrevocable or alone: it lets a fiber go on, which may"
         " wait; its new frames have barriers, or need not have any")},
    {"fiber_goes_on", fiber_goes_on, METH_NOARGS,
     DOC("fiber_goes_on(): in a fiber that has waited: what its frames loop over is opened, in the transaction that lets it go on.")},
    {"is_in_c", is_in_c, METH_NOARGS, DOC("is_in_c(): is anything but functions in Python between the beginning of this fiber and here?")},
    {"ask_main", engine_ask_main, METH_O,
     DOC("ask_main(f): from an exclusive transaction, have the main thread call f() between transactions")},
    {"serve", engine_serve, METH_NOARGS, DOC("between transactions: do what another thread has asked this one for, if anything")},
    {"thread_ident", thread_ident, METH_NOARGS, DOC("the identifier of this thread, or of that whose transaction it has at the moment")},
    {"set_anchor", anchor_set, METH_VARARGS,
     DOC("set_anchor(ident, wake): this thread runs transactions for that one, which wake() has call serve(); (0, None): no more")},
    {"take_place", take_place, METH_NOARGS,
     DOC("take_place(): has this thread one of the places for those that run transactions, now or from before?")},
    {"set_untied", anchor_set_untied, METH_VARARGS,
     DOC("set_untied(modules, tied): C code of these top-level modules runs on any thread, but for what `tied` names, module -> names")},
    {"tie", anchor_tie, METH_VARARGS,
     DOC("tie(type, next_twin=None): its instances are used on the loop's thread, also where that is no call; but iterated over, "
         "while others run beside, by next_twin(instance)")},
    {"learn_connections", connection_learn, METH_VARARGS,
     DOC("learn_connections(a, b, thread, flags): see from connections of sqlite3 where they keep who has made them, and whether they "
         "convert; has it been found?")},
    {"connection_converts", connection_converts, METH_O, DOC("connection_converts(connection): may it call converters?")},
    {"connection_made", connection_made, METH_O, DOC("connection_made(connection): it was made for the thread of the loop")},
    {"connection_call", _PyCFunction_CAST(connection_call), METH_FASTCALL,
     DOC("connection_call(connection, function, *args): call it, as on the thread that has made the connection")},
    {"set_in_type", set_in_type, METH_VARARGS, DOC("set_in_type(type, name, value): also in one in C")},
    {"begin_loop", begin_loop, METH_NOARGS, DOC("begin_loop(): frames that begin from here on run on the engine's evaluation loop")},
    {"main_takes", signals_main_takes, METH_VARARGS,
     DOC("main_takes(signum, takes): does the main thread take this signal, whichever thread the kernel gives it to?")},
    {"handlers", signals_handlers, METH_NOARGS, DOC("handlers(): those of signals that are in Python, by number")},
    {"exchange_handlers", signals_exchange, METH_O,
     DOC("exchange_handlers({number: (this, that)}): on the main thread, where a signal has this handler it has that one from here on")},
    {"has_lent", has_lent, METH_NOARGS, DOC("is this thread in a transaction that has lent its turn, and waits?")},
    {"in_turn", _PyCFunction_CAST(in_turn), METH_FASTCALL,
     DOC("in_turn(f, *args): call it in the transaction that has lent its turn, which takes it back for so long")},
    {"is_interrupted", is_interrupted, METH_NOARGS,
     DOC("is the main thread to make calls between two transactions of this one's queue, a signal's?")},
    {"await_signal", guard_await, METH_VARARGS,
     DOC("await_signal(signum, seconds): wait for it, to be killed that much later; had the main thread taken it?")},
    {"stand_down", guard_stand_down, METH_NOARGS, DOC("stand_down(): what await_signal() returned for will not kill")},
    {"to_guard", guard_tell, METH_VARARGS, DOC("to_guard(signum, frame): a handler, for the thread that waits in await_signal()")},
    {"forward_signal", guard_forward, METH_VARARGS,
     DOC("forward_signal(signum, thread): to_guard() hands it to that thread, from here on without the interpreter")},
    {"puts_off", puts_off, METH_NOARGS, DOC("is this thread in a transaction that may be rolled back, so that defer() waits for the commit?")},
    {"is_exclusive", is_exclusive, METH_NOARGS, DOC("does this thread run alone?")},
    {"keeps_others_waiting", keeps_others_waiting, METH_NOARGS,
     DOC("is this thread in a transaction that is irrevocable or runs alone, and not only since nobody else has anything to do?")},
    {"is_only_thread", is_only_thread, METH_NOARGS,
     DOC("do transactions run on one thread only, so that none keeps another one waiting?")},
    {"own", own, METH_O, DOC("own(obj): lock it for writing until the end of the transaction")},
    {"share", share, METH_O, DOC("share(obj): lock it for reading until the end of the transaction")},
    {"add_to", add_to, METH_VARARGS,
     DOC("add_to(obj, number): lock that part of it for who adds something, until the end of the transaction; others may add to it as well")},
    {"look_into", look_into, METH_VARARGS, DOC("look_into(obj, number): nobody adds anything to that part of it until the end of the transaction")},
    {"change", change, METH_O, DOC("change(obj): own a container and log its contents, to be changed by C code")},
    {"open_all", open_all, METH_O, DOC("open_all(obj): lock all that C code may read from there")},
    {"begin_elements", engine_begin_elements, METH_O, DOC("begin_elements(type): of XML; RuntimeError: their structure is not known")},
    {"tree_twin", engine_tree_twin, METH_O, DOC("tree_twin(f): what stands in for this C function, or type, of XML parsers and elements")},
    {"watch_handlers", engine_watch_handlers, METH_O, DOC("watch_handlers(type): its objects call in transactions what is in Python")},
    {"c_twin", engine_c_twin, METH_O, DOC("c_twin(f): what stands in for this C function, in C")},
    {"short_way", engine_short_way, METH_VARARGS,
     DOC("short_way(f, twin, ...): what stands in for f, in C, where that is simple, and else calls the twin")},
    {"capture", capture, METH_O, DOC("capture(obj): nobody else can know it before the commit; return it")},
    {"forget_past", engine_forget_past, METH_NOARGS,
     DOC("forget_past(): of an exclusive transaction, drop what it has kept to be rolled back")},
    {"dies_anywhere", dies_anywhere, METH_O,
     DOC("dies_anywhere(obj): it dies where its last reference is dropped, not when the thread that has made it comes to that")},
    {"is_captured", is_captured, METH_O, DOC("is_captured(obj): is it known that nobody else can know it before the commit?")},
    {"open_items", open_items, METH_O, DOC("open_items(obj): lock it for C code that takes its items")},
    {"open_plain", open_plain, METH_O,
     DOC("open_plain(obj): open_all, but stop at an instance of a Python class; was there none?")},
    {"may_be_called", may_be_called, METH_O,
     DOC("may_be_called(f): C code will call it with objects that nobody else has")},
    {"guarded", guarded, METH_O,
     DOC("guarded(f): f, to be given to C code that calls it and looks at all that it returns")},
    {"fresh", fresh, METH_O, DOC("fresh(obj): declare it created in this transaction; return it")},
    {"is_fresh", engine_is_fresh, METH_O, DOC("was it created in this transaction?")},
    {"atomic_enter", atomic_enter, METH_NOARGS,
     DOC("exclude all transactions; False if this thread is in one already")},
    {"atomic_exit", atomic_exit, METH_NOARGS, DOC("let transactions run again")},
    {"set_sequential", set_sequential, METH_O,
     DOC("set_sequential(threads): a test hook, on at most how many threads transactions run exclusively where nobody else has anything to"
         " do; returns the number before")},
    {"set_allowance", set_allowance, METH_O,
     DOC("so many seconds at most do others wait for a transaction that runs and runs, before it is rolled back for them")},
    {"begin_collecting", begin_collecting, METH_NOARGS, DOC("until end_collecting(), garbage in cycles is collected between transactions")},
    {"end_collecting", end_collecting, METH_NOARGS, DOC("the interpreter collects garbage again, if it did before begin_collecting()")},
    {"several_run", several_run, METH_NOARGS, DOC("do several loops or queues run?")},
    {"collector_enable", collector_enable, METH_NOARGS, DOC("what gc.enable is to the program")},
    {"collector_disable", collector_disable, METH_NOARGS, DOC("what gc.disable is to the program")},
    {"collector_is_enabled", collector_is_enabled, METH_NOARGS, DOC("what gc.isenabled is to the program")},
    {"collect_garbage", engine_collect_garbage, METH_NOARGS, DOC("outside transactions: collect garbage in cycles, beside those that run")},
    {"set_garbage", set_garbage, METH_O,
     DOC("set_garbage(objects): a test hook, how many containers that have come and not gone make a collection due; returns the old number")},
    {"settle", settle, METH_NOARGS,
     DOC("outside transactions, without locks: run finalizers that could not run where they began")},
    {"stats", stats, METH_NOARGS,
     DOC("counts since the start: commits, aborts, exclusives (transactions that had to run alone), sequentials (that ran alone since"
         " nobody else had anything to do), strays (functions of the program that a rollback has called: none); seconds_alone (in which"
         " others were kept out by those that had to), seconds_lost (by conflicts, of all threads together: waits and what was rolled"
         " back), seconds_running (of all threads together: from the beginnings of transactions to their ends, but for those in which others kept"
         " them out); all of them by the clock; and by reason and place the dicts exclusive_reasons, counts, and exclusive_seconds")},
    {"running", running, METH_NOARGS,
     DOC("running(): of each transaction that runs now the number of its thread, and since how many seconds")},
    {"gil_is_enabled", gil_is_enabled, METH_NOARGS,
     DOC("gil_is_enabled(): do threads take turns from here on, and not just while an extension module is loaded?")},
    {"inject_aborts", inject_aborts, METH_VARARGS,
     DOC("inject_aborts(rate, seed): a test hook, abort at a barrier with this probability, at the commit with 64 times that; each"
         " attempt halves it")},
    {"bias", bias, METH_O,
     DOC("bias(obj): a test hook, while no transactions run: let it be read without a lock as if nobody had written to it for long;"
         " False if that cannot be")},
    {"bias_waits", bias_waits, METH_NOARGS,
     DOC("bias_waits(): for tests, how often a writer has interrupted all threads for the sake of those who read without a lock")},
    {"step_in", step_in, METH_NOARGS,
     DOC("step_in(): until step_back() this thread does nothing but run transactions; gives what that has to be told")},
    {"step_back", step_back, METH_O, DOC("step_back(stood_by): see step_in()")},
    {"forget_bystanders", forget_bystanders, METH_NOARGS,
     DOC("forget_bystanders(): a test hook, borrow as if there had been no other thread when the engine was made ready,"
         " and at once when those that come are gone")},
    {"is_biased", is_biased, METH_O, DOC("is_biased(obj): a test hook, is it read without a lock?")},
    {"inject_delays", inject_delays, METH_VARARGS,
     DOC("inject_delays(rate, seconds): a test hook, wait that long at most at a barrier with this probability")},
    {"record_history", record_history, METH_O,
     DOC("record_history(on): begin an empty history, or end it; while no transactions run")},
    {"recorded_history", recorded_history, METH_NOARGS,
     DOC("a list of (number, slot, age, event, other, detail), see history.c")},
    {"rehearse", rehearse, METH_NOARGS,
     DOC("rehearse(): a test hook, true in the first attempt of a transaction, which then never becomes inevitable")},
    {"switch_barriers", switch_barriers, METH_O, DOC("a test hook: run without barriers")},
    {"log_open", engine_log_open, METH_VARARGS, DOC("log_open(path, limit=0): write the conflict log there, of so many bytes at most")},
    {"log_losses", engine_log_losses, METH_NOARGS,
     DOC("a list of (place, caller, handler, number of conflicts, seconds waited, in attempts rolled back, inevitable), places as bytes")},
    {"log_close", engine_log_close, METH_NOARGS, DOC("end the conflict log")},
    {NULL, NULL, 0, NULL},
};

/* ---- The module ---------------------------------------------------------------------- */

/* Of each enumeration, the names by their numbers. */
static const char *const kinds[] = {
#define KIND(name, constant) [KIND_##name] = #name,
#include "objects/kinds.def"
#undef KIND
};
static const char *const effects[] = {
#define EFFECT(name) [EFFECT_##name] = #name,
#include "calls/effects.def"
#undef EFFECT
};
static const char *const causes[] = {
#define CAUSE(name) #name,
#include "core/causes.def"
#undef CAUSE
};
static const char *const waits[] = {
#define WAIT(name) #name,
#include "core/waits.def"
#undef WAIT
};
static const char *const grades[] = {
#define GRADE(name) #name,
#include "core/grades.def"
#undef GRADE
};
static const char *const log_events[] = {
#define EVENT(name, text) text,
#include "core/proflog.def"
#undef EVENT
};

#define ADD_NUMBERS(module, attribute, names) add_numbers(module, attribute, names, Py_ARRAY_LENGTH(names))

/* A dict of the numbers by their names. */
static int
add_numbers(PyObject *module, const char *attribute, const char *const *names, size_t n)
{
    PyObject *numbers = PyDict_New();
    for (size_t i = 0; i < n && numbers != NULL; i++) {
        if (names[i] == NULL)
            continue;
        PyObject *number = PyLong_FromSize_t(i);
        if (number == NULL || PyDict_SetItemString(numbers, names[i], number) < 0)
            Py_CLEAR(numbers);
        Py_XDECREF(number);
    }
    return PyModule_Add(module, attribute, numbers);
}

static int
engine_exec(PyObject *module)
{
    stm_upcalls = &stm_engine_upcalls;
    const char *sequential = getenv("TORNADO_STM_SEQUENTIAL");     /* for programs that tests and measurements start */
    if (sequential != NULL)
        stm_sequential_limit = atoi(sequential);
    first_moment.ns = now_ns();
    first_moment.cycles = __builtin_ia32_rdtsc();
    bias_init();
    if (orec_init() < 0 || born_init() < 0 || reasons_init() < 0 || dict_init() < 0 || ordered_dict_init() < 0 || instances_init() < 0
        || namespaces_init() < 0 || calls_init() < 0 || makers_init() < 0 || trees_init() < 0 || conversion_init() < 0 || functions_init() < 0
        || special_init() < 0 || endings_init() < 0 || lazy_init() < 0 || classes_init() < 0 || views_init() < 0 || mutexes_init() < 0
        || sites_init(module) < 0 || ready_init(module) < 0 || dispatcher_init(module) < 0 || outbox_init(module) < 0 || sockets_init(module) < 0
        || chain_init() < 0 || handles_init() < 0 || futures_init(module) < 0 || per_thread_init(module) < 0
        || PyModule_AddFunctions(module, mutex_functions) < 0)
        return -1;
    PyObject *wrapper = PyObject_GetAttrString(Py_None, "__repr__");
    if (wrapper == NULL)
        return -1;
    stm_method_wrapper_type = Py_TYPE(wrapper);
    Py_DECREF(wrapper);
    stm_Abort = PyErr_NewExceptionWithDoc(
        "tornado.stm._engine.Abort",
        "Unwinds an attempt that will be rolled back and run again. Never catch it.",
        PyExc_BaseException, NULL);
    if (stm_Abort == NULL || PyModule_AddObjectRef(module, "Abort", stm_Abort) < 0)
        return -1;
    PyObject *operators = PyImport_ImportModule("_operator");
    stm_add = operators ? PyObject_GetAttrString(operators, "add") : NULL;
    Py_XDECREF(operators);
    if (stm_add == NULL || PyType_Ready(&Guarded_Type) < 0 || PyType_Ready(&GuardedItems_Type) < 0
        || types_register(&Guarded_Type, KIND_INERT) < 0 || types_register(&GuardedItems_Type, KIND_INERT) < 0
        || effects_register_instances(&Guarded_Type, EFFECT_PURE, NULL) < 0 || references_init() < 0 || waiting_init() < 0
        || forks_init() < 0)
        return -1;
    if (PyType_Ready(&Transaction_Type) < 0
        || PyModule_AddObjectRef(module, "Transaction", (PyObject *)&Transaction_Type) < 0)
        return -1;
    if (PyType_Ready(&Queue_Type) < 0 || PyModule_AddObjectRef(module, "Queue", (PyObject *)&Queue_Type) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "CO_TRUSTED", CO_STM_TRUSTED) < 0
        || PyModule_AddIntConstant(module, "MOST_THREADS", MAX_THREADS - 1) < 0
        || PyModule_Add(module, "LONG", PyFloat_FromDouble(LONG)) < 0 || PyModule_Add(module, "SHORT", PyFloat_FromDouble(SHORT)) < 0)
        return -1;
    return ADD_NUMBERS(module, "KINDS", kinds) < 0 || ADD_NUMBERS(module, "EFFECTS", effects) < 0
        || ADD_NUMBERS(module, "CAUSES", causes) < 0 || ADD_NUMBERS(module, "WAITS", waits) < 0
        || ADD_NUMBERS(module, "GRADES", grades) < 0 || ADD_NUMBERS(module, "LOG_EVENTS", log_events) < 0 ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, engine_exec},
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_engine",
    .m_doc = PyDoc_STR("The transactional engine: locks, undo, contention, barriers."),
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__engine(void)
{
    return PyModuleDef_Init(&definition);
}
