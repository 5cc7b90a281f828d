/* What an attempt has made whose end somebody could notice: coroutines, since a
 * warning tells of those that nobody awaited, and objects with a finalizer in
 * Python.
 *
 * If the attempt is aborted, none of them ever was.  Most die with it, and their
 * finalizers are stopped at the first barrier (transaction.c, release).  But those
 * in a cycle of references live on until the garbage collector comes by, at a time
 * when nothing tells them from others.  So they are marked:
 *
 *      coroutine   its frame refers to the birth that it shares with the others of
 *                  the attempt (barriers.c), and the birth learns of the abort.
 *      object      the attempt has a weak reference to it, and the abort sets the
 *                  collector's own flag "has been finalized".  As long as the attempt lasts
 *                  the collector leaves it alone (garbage.c), like anything else to which it has made a weak reference that calls back.
 *
 * Objects that C code makes (copy, pickle) are missed.
 *
 * And where a finalizer in Python runs.  An object belongs to the thread that made it:
 * when another one drops the last reference, the interpreter lets the first one finalize
 * it, at some call or jump of whatever it is doing then; and there the garbage collector
 * runs.  That may be an attempt which has nothing to do with the object, whose abort would
 * undo what the finalizer did; or code of this project, with a lock in its hand and no
 * transaction around it; or where the thread drops what a transaction held that has just
 * committed, with that transaction's log in its hand.  So a finalizer that begins in a wrong place
 * is put off.  It runs in an irrevocable transaction of its own after the commit (transaction.c,
 * finalize_dying), or outside transactions as soon as code of the program runs again.  The right
 * places are these, an exclusive transaction, and the attempt that made the object.
 *
 *      __del__     (or close, of a stream) does not begin; the object stays alive, and dies again (endings.c).
 *      generator   (a coroutine, an asynchronous generator) the same, before it is closed
 *                  or given to the event loop's hook.
 *      future      (a task) the same, before it tells its loop that nobody has awaited it.
 *      callback    of a weak reference: the call is put off.  Is it not sure that the
 *                  interpreter calls it, its result may be wanted, and the attempt becomes
 *                  exclusive for it.
 */
#include "born.h"

#include "../../interpreter/tracebacks.h"
#include "context.h"
#include "garbage.h"
#include "known.h"

#include "internal/pycore_ceval.h"
#include "internal/pycore_context.h"
#include "internal/pycore_gc.h"
#include "internal/pycore_hamt.h"
#include "internal/pycore_weakref.h"

static inline Births *
births_of(Tx *tx)
{
    return &thread_of(tx)->births;
}

typedef struct {
    PyObject_HEAD
    bool aborted;
} Birth;

static PyTypeObject *variables_type;        /* of those of a context */

static PyTypeObject Birth_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Birth",
    .tp_basicsize = sizeof(Birth),
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static void generator_finalizer(PyObject *gen);
static destructor finalize_generator;       /* the interpreter's */

int
born_init(void)
{
    PyObject *variables = context_variables();
    if (variables == NULL)
        return -1;
    variables_type = Py_TYPE(variables);
    Py_DECREF(variables);
    finalize_generator = PyGen_Type.tp_finalize;
    PyGen_Type.tp_finalize = PyCoro_Type.tp_finalize = PyAsyncGen_Type.tp_finalize = generator_finalizer;
    return PyType_Ready(&Birth_Type);
}

/* What the frames of the generators of an attempt refer to: see Births. */
PyObject *
new_birth(void)
{
    Birth *birth = PyObject_New(Birth, &Birth_Type);
    if (birth != NULL)
        birth->aborted = false;
    return (PyObject *)birth;
}

/* Was the coroutine, which has not begun, made by an attempt that was aborted? */
bool
never_was(PyObject *coroutine)
{
    if (!PyCoro_CheckExact(coroutine))
        return false;
    PyGenObject *g = (PyGenObject *)coroutine;
    PyObject *birth = g->gi_frame_state < FRAME_COMPLETED ? g->gi_iframe.f_locals : NULL;
    return birth != NULL && Py_IS_TYPE(birth, &Birth_Type) && ((Birth *)birth)->aborted;
}

/* Is an instance of the class that its call has returned, or whose __init__ it is about to call, sure to have been made just now?
 * A __new__ in Python may return what others have. */
bool
is_made_anew(Tx *tx, PyObject *self)
{
    static PyObject *name;
    if (name == NULL)
        name = PyUnicode_InternFromString("__new__");
    PyObject *maker = _PyType_LookupRef(Py_TYPE(self), name);
    bool in_c = maker != NULL && PyCFunction_Check(maker);
    Py_XDECREF(maker);
    return in_c || captured(tx, self);
}

/* The same of what that has returned: C.__new__, a class, or type.__call__ of one.  A metaclass with a __call__ in Python may
 * do as such a __new__ does. */
static bool
returns_anew(Tx *tx, PyObject *callable, PyObject *made)
{
    if (PyCFunction_Check(callable))
        return true;
    bool in_python = PyType_Check(callable) && Py_TYPE(callable)->tp_call != PyType_Type.tp_call;
    return in_python ? captured(tx, made) : is_made_anew(tx, made);
}

static int
never_finalize(Tx *Py_UNUSED(tx), Undo *u)
{
    _PyGC_SET_FINALIZED(u->obj);
    return 0;
}

const UndoKind undo_birth = {.what = "the birth", .undo = never_finalize};

/* The collector leaves it alone as long as the attempt lasts. */
static int
freeze(PyObject **frozen, PyObject *ref, PyObject *obj)
{
    keep_from_collector(obj);
    if (*frozen == NULL)
        *frozen = PyList_New(0);
    int r = *frozen == NULL ? -1 : PyList_Append(*frozen, ref);
    Py_DECREF(ref);
    return r;
}

static int
note_id(PyObject **ids, PyObject *obj)
{
    if (*ids == NULL && (*ids = PySet_New(NULL)) == NULL)
        return -1;
    PyObject *id = PyLong_FromVoidPtr(obj);
    int r = id == NULL ? -1 : PySet_Add(*ids, id);
    Py_XDECREF(id);
    return r;
}

static bool
is_id_noted(PyObject *ids, PyObject *obj)
{
    if (ids == NULL)
        return false;
    PyObject *exception = PyErr_GetRaisedException();
    PyObject *id = PyLong_FromVoidPtr(obj);
    bool there = id != NULL && PySet_Contains(ids, id) == 1;
    Py_XDECREF(id);
    PyErr_SetRaisedException(exception);
    return there;
}

int
note_birth(Tx *tx, PyObject *obj)
{
    PyObject *ref = PyWeakref_NewRef(obj, NULL);
    if (ref != NULL && note_id(&births_of(tx)->noted_ids, ref) < 0)
        Py_CLEAR(ref);
    if (ref != NULL)
        return freeze(&births_of(tx)->noted, ref, obj);
    PyErr_Clear();      /* it has no room for one: nothing could tell the collector, later, that it never was */
    note(tx, obj, OPENED_BORN, 1);
    return become_inevitable(tx, GRADE_IRREVOCABLE);
}

int
note_reference(Tx *tx, PyObject *reference)
{
    return note_id(&births_of(tx)->references, reference);
}

/* Has the present attempt made the weak reference, or the one that has just been rolled back?  (What takes the place of a dead one until
 * then, this thread has made as well.) */
static bool
reference_made_here(Tx *tx, PyObject *reference)
{
    return is_id_noted(births_of(tx)->references, reference);
}

int
note_referent(Tx *tx, PyObject *obj)
{
    PyObject *ref = PyWeakref_NewRef(obj, NULL);
    return ref == NULL ? -1 : freeze(&births_of(tx)->referents, ref, obj);
}

/* Stands in for the constructor of a class with a finalizer. An __init__ in Python notes the
 * birth when it begins, since the attempt may be aborted before it ends. */
static PyObject *
call_and_watch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(self, args, nargs, kwnames);
    PyTypeObject *outer = births_of(tx)->watching;
    births_of(tx)->watching = (PyTypeObject *)self;
    PyObject *made = PyObject_Vectorcall(self, args, nargs, kwnames);
    bool noted = births_of(tx)->watching == NULL;
    births_of(tx)->watching = outer;
    if (made != NULL && !noted && tx->open && returns_anew(tx, self, made) && note_birth(tx, made) < 0)
        Py_CLEAR(made);
    return made;
}

static PyMethodDef call_and_watch_def = {"call_and_watch", _PyCFunction_CAST(call_and_watch),
                                         METH_FASTCALL | METH_KEYWORDS, NULL};

PyObject *
watched_constructor(PyObject *callable)
{
    return PyCFunction_New(&call_and_watch_def, callable);
}

/* Is that generator, which is suspended, of the present attempt, or of one that was aborted? */
static bool
generator_born_here(Tx *tx, PyObject *obj)
{
    PyObject *birth = ((PyGenObject *)obj)->gi_iframe.f_locals;
    return birth != NULL && Py_IS_TYPE(birth, &Birth_Type)
        && (birth == births_of(tx)->shared[0] || birth == births_of(tx)->shared[1] || ((Birth *)birth)->aborted);
}

static bool
is_generator(PyObject *obj)
{
    return PyGen_CheckExact(obj) || PyCoro_CheckExact(obj) || PyAsyncGen_CheckExact(obj);
}

static bool
born_here(Tx *tx, PyObject *obj)
{
    if (is_generator(obj))
        return generator_born_here(tx, obj);
    /* A finalizer comes before weak references are cleared.  That without a callback is the first one. */
    if (births_of(tx)->noted_ids != NULL && _PyType_SUPPORTS_WEAKREFS(Py_TYPE(obj))) {
        PyObject *first = (PyObject *)FT_ATOMIC_LOAD_PTR(*_PyObject_GET_WEAKREFS_LISTPTR(obj));
        if (first != NULL && is_id_noted(births_of(tx)->noted_ids, first))
            return true;
    }
    return opened(tx, obj, OPENED_BORN);    /* which may have been forgotten */
}

/* Have it die, or be called if it is a tuple of a callable and its arguments, in a right place. */
static int
put_off(Tx *tx, PyObject *obj)
{
    Births *births = births_of(tx);
    if (births->dying == NULL) {
        births->said = NULL;
        births->dying = PyList_New(0);
    }
    if (births->dying == NULL)
        return -1;
    if (births->variables != births->said) {
        if (PyList_Append(births->dying, births->variables != NULL ? births->variables : Py_None) < 0)
            return -1;
        births->said = births->variables;
    }
    born_ask(tx);
    return PyList_Append(births->dying, obj);
}

static bool
tells_variables(PyObject *dying)
{
    return dying == Py_None || Py_IS_TYPE(dying, variables_type);
}

static int
undo_nothing(Tx *Py_UNUSED(tx), Undo *Py_UNUSED(u))
{
    return 0;
}

/* What the callback has logged is forgotten after this entry, which is the last of it: by that most of what it has let go is held. */
static void
tell_whose(Undo *u)
{
    Py_XSETREF(births_of(stm_self)->variables, Py_XNewRef(u->obj));
}

static const UndoKind undo_callback = {.what = "a callback", .undo = undo_nothing, .forget = tell_whose};

int
note_callback_end(Tx *tx, PyObject *context)
{
    PyHamtObject *variables = ((struct _pycontextobject *)context)->ctx_vars;
    Births *births = births_of(tx);
    if (variables->h_count > 0)
        births->noted_in = attempt_of(tx);
    else if (births->variables == NULL && births->noted_in != attempt_of(tx))
        return 0;       /* nobody has had any: mostly */
    return undo_push(tx, &undo_callback, variables->h_count > 0 ? (PyObject *)variables : NULL, NULL, NULL) != NULL ? 0 : -1;
}

/* Outside transactions, where none may come any more: have the eval breaker say when code of the program runs again
 * (stm_handle_pending).  Any bit will do; this one makes the thread merge reference counts, which is done soon. */
void
born_ask(Tx *tx)
{
    if (state_of(tx) == TX_IDLE)
        _Py_set_eval_breaker_bit(PyThreadState_Get(), _PY_EVAL_EXPLICIT_MERGE_BIT);
}

/* May the finalizer of an object begin, called from there? Not in a transaction that may be rolled back, but for its own objects. */
static bool
is_right_place(Tx *tx, bool own, _PyInterpreterFrame *caller)
{
    if (tx->live)
        return tx->grade == GRADE_EXCLUSIVE || own
            || (tx->releasing == FINALIZING && caller == births_of(tx)->dying_from);     /* and not in the midst of another one */
    while (caller != NULL && caller->owner >= FRAME_OWNED_BY_INTERPRETER)
        caller = caller->previous;
    return state_of(tx) == TX_IDLE
        && (caller == NULL || !(_PyFrame_GetCode(caller)->co_flags & CO_STM_TRUSTED));
}

/* The interpreter calls the __del__ of the object, where that frame runs: 0; 1 if that has been put off; or -1 with an exception. */
int
finalizer_called(Tx *tx, PyObject *obj, _PyInterpreterFrame *caller)
{
    /* After an abort: what has no room for a weak reference cannot be told from what was
     * made in the attempt. */
    if (is_right_place(tx, (tx->releasing == HOLDING && born_here(tx, obj))
                           || (tx->releasing == AFTER_ABORT && !_PyType_SUPPORTS_WEAKREFS(Py_TYPE(obj))), caller))
        return tx->live && tx->grade != GRADE_EXCLUSIVE ? check_doomed(tx) : 0;
    return put_off(tx, obj) < 0 ? -1 : 1;
}

/* Was the generator, whose frame that is, made by an attempt that was aborted? */
bool
frame_never_was(_PyInterpreterFrame *f)
{
    PyObject *birth = f->owner == FRAME_OWNED_BY_GENERATOR ? f->f_locals : NULL;
    return birth != NULL && Py_IS_TYPE(birth, &Birth_Type) && ((Birth *)birth)->aborted;
}

/* ---- Finalizers in C that call the program ------------------------------------------------- */

/* Is its finalizer to do nothing now? */
static bool
end_put_off(Tx *tx, PyObject *obj, bool own)
{
    if (is_right_place(tx, own, PyThreadState_Get()->current_frame))
        return false;
    PyObject *exception = PyErr_GetRaisedException();
    int r = put_off(tx, obj);
    PyErr_SetRaisedException(exception);
    return r == 0;
}

bool
teller_put_off(PyObject *obj)
{
    Tx *tx = stm_self;
    return tx != NULL && !stm_barriers_off
        && end_put_off(tx, obj, tx->releasing == HOLDING && born_here(tx, obj));    /* what never was does not tell (born_never_was) */
}

static void
generator_finalizer(PyObject *gen)
{
    Tx *tx = stm_self;
    PyGenObject *g = (PyGenObject *)gen;
    if (tx == NULL || g->gi_frame_state >= FRAME_COMPLETED || stm_barriers_off
        || (_PyFrame_GetCode(&g->gi_iframe)->co_flags & CO_STM_TRUSTED)
        || !end_put_off(tx, gen, generator_born_here(tx, gen)))
        finalize_generator(gen);
}

/* ---- Callbacks of weak references ----------------------------------------------------------- */

static _Atomic(vectorcallfunc) call_function;   /* the interpreter's, for all functions */

static bool
is_dead_reference(Tx *tx, PyObject *obj)
{
    return UNLIKELY(may_be_reference(obj)) && type_entry(tx, Py_TYPE(obj))->reference && ((PyWeakReference *)obj)->wr_object == Py_None;
}

/* The call of a function. Returns 0, or -1 without an exception if it cannot be put off. */
static int
put_off_call(Tx *tx, PyObject *func, PyObject *const *args, Py_ssize_t n)
{
    PyObject *exception = PyErr_GetRaisedException();
    PyObject *call = PyTuple_New(n + 1);
    if (call != NULL) {
        PyTuple_SET_ITEM(call, 0, Py_NewRef(func));
        for (Py_ssize_t i = 0; i < n; i++)
            PyTuple_SET_ITEM(call, i + 1, Py_NewRef(args[i]));
    }
    int r = call == NULL ? -1 : put_off(tx, call);
    Py_XDECREF(call);
    PyErr_Clear();
    PyErr_SetRaisedException(exception);
    return r;
}

/* Has the interpreter called it, because the referent has died? It does so once,
 * before anybody else can have a dead reference, which the collector's own flag "has been
 * finalized" remembers; and who calls it by its name has it on the stack. */
static bool
is_called_back(PyObject *func, PyObject *reference)
{
    if (Py_TYPE(reference)->tp_finalize != NULL || _PyGC_FINALIZED(reference))
        return false;
    _PyGC_SET_FINALIZED(reference);
    _PyInterpreterFrame *caller = PyThreadState_Get()->current_frame;
    if (caller == NULL || caller->owner >= FRAME_OWNED_BY_INTERPRETER)
        return true;
    _PyStackRef *bottom = caller->localsplus + _PyFrame_GetCode(caller)->co_nlocalsplus;
    for (_PyStackRef *at = caller->stackpointer; --at >= bottom;) {
        PyObject *o = PyStackRef_IsNullOrInt(*at) ? NULL : PyStackRef_AsPyObjectBorrow(*at);
        if (o == func || (o != NULL && PyMethod_Check(o) && PyMethod_GET_FUNCTION(o) == func))
            return false;
    }
    return true;
}

bool
callback_put_off(Tx *tx, PyObject *callable, PyObject *const *args, Py_ssize_t n)
{
    if (n == 0 || LIKELY(!is_dead_reference(tx, args[n - 1])) || stm_barriers_off)
        return false;
    /* After an abort, of one that never was: it is stopped at the first barrier.  But others die there as well. */
    bool own = reference_made_here(tx, args[n - 1]);
    bool called_back = is_called_back(callable, args[n - 1]);
    if (is_right_place(tx, own, PyThreadState_Get()->current_frame)
        || (!called_back && tx->live && become_inevitable(tx, GRADE_EXCLUSIVE) == 0) || put_off_call(tx, callable, args, n) < 0)
        return false;
    PyErr_Clear();
    return true;
}

/* Of a function that is a weak reference's callback. */
static PyObject *
callback_vectorcall(PyObject *func, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx != NULL && kwnames == NULL && callback_put_off(tx, func, args, PyVectorcall_NARGS(nargsf)))
        Py_RETURN_NONE;
    return call_function(func, args, nargsf, kwnames);
}

/* The function, or that of the method, is a weak reference's callback. */
void
note_callback(PyObject *callable)
{
    PyObject *func = PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable;
    if (PyFunction_Check(func) && !(((PyCodeObject *)PyFunction_GET_CODE(func))->co_flags & CO_STM_TRUSTED)
        && ((PyFunctionObject *)func)->vectorcall != callback_vectorcall) {
        call_function = ((PyFunctionObject *)func)->vectorcall;
        PyFunction_SetVectorcall((PyFunctionObject *)func, callback_vectorcall);
    }
}

/* C code calls a function, where the frame `caller` runs. Returns 1 if it is a weak reference's
 * callback that has been put off. */
int
callback_called(Tx *tx, _PyInterpreterFrame *f, _PyInterpreterFrame *caller)
{
    PyCodeObject *code = _PyFrame_GetCode(f);
    PyObject *args[2] = {NULL, NULL}, *func = PyStackRef_AsPyObjectBorrow(f->f_funcobj);
    int n = 0;
    bool dead = false;
    while (n < 2 && n < code->co_argcount && !PyStackRef_IsNull(f->localsplus[n]) && !dead) {
        args[n] = PyStackRef_AsPyObjectBorrow(f->localsplus[n]);
        dead = is_dead_reference(tx, args[n++]);    /* of a method, it is the second one */
    }
    if (!dead || !PyFunction_Check(func)
        || ((PyFunctionObject *)func)->vectorcall == callback_vectorcall    /* that has looked already */
        || !is_called_back(func, args[n - 1]))
        return 0;
    note_callback(func);
    if (is_right_place(tx, reference_made_here(tx, args[n - 1]), caller)
        || put_off_call(tx, func, args, n) < 0)
        return 0;
    PyErr_Clear();
    return 1;
}

/* ---- Putting off ------------------------------------------------------------------------------ */

bool
call_after_release(Tx *tx, PyObject *callable, PyObject *const *args, Py_ssize_t n)
{
    return tx->releasing == AFTER_ABORT || (tx->releasing == AFTER_COMMIT && put_off_call(tx, callable, args, n) == 0);
}

static const char *
what_is_called(PyObject *call)
{
    bool with_reference = PyTuple_GET_SIZE(call) > 1 && is_reference_type(Py_TYPE(PyTuple_GET_ITEM(call, PyTuple_GET_SIZE(call) - 1)));
    return with_reference ? "Exception ignored while calling weakref callback %R" : "Exception ignored while calling %R";
}

/* The context has these variables, in the place of those, or of none (NULL): returns what it has. */
static PyObject *
change_variables(Tx *tx, PyObject *before, PyObject *variables)
{
    if (before != NULL)
        context_exit(tx, before);
    if (variables == Py_None)
        return NULL;
    if (context_enter(tx, variables) == 0)
        return variables;
    PyErr_Clear();
    return NULL;
}

/* Where finalizers may run: let those objects die that were about to in a wrong place. */
void
let_die(Tx *tx)
{
    PyObject *dying = births_of(tx)->dying;
    births_of(tx)->dying = NULL;
    births_of(tx)->dying_from = PyThreadState_Get()->current_frame;
    PyObject *variables = NULL;
    for (Py_ssize_t i = 0; dying != NULL && i < PyList_GET_SIZE(dying); i++) {
        PyObject *obj = PyList_GET_ITEM(dying, i);
        if (tells_variables(obj)) {
            variables = change_variables(tx, variables, obj);
            continue;
        }
        if (PyTuple_CheckExact(obj)) {
            PyObject *r = PyObject_Vectorcall(PyTuple_GET_ITEM(obj, 0), &PyTuple_GET_ITEM(obj, 1),
                                              PyTuple_GET_SIZE(obj) - 1, NULL);
            if (r == NULL)
                PyErr_FormatUnraisable(what_is_called(obj), PyTuple_GET_ITEM(obj, 0));
            Py_XDECREF(r);
        }
        else if (PyObject_IS_GC(obj)) {
            _PyObject_CLEAR_GC_BITS(obj, _PyGC_BITS_FINALIZED);
            PyObject_CallFinalizer(obj);        /* what is in a cycle does not die by being dropped */
        }
        PyList_SetItem(dying, i, Py_NewRef(Py_None));
    }
    change_variables(tx, variables, Py_None);
    Py_XDECREF(dying);
}

static void
never_finalized(PyObject *obj)
{
    if (PyObject_IS_GC(obj))
        _PyGC_SET_FINALIZED(obj);
}

/* Of those of these that live still. */
static void
for_each(PyObject *references, void (*function)(PyObject *))
{
    for (Py_ssize_t i = 0; references != NULL && i < PyList_GET_SIZE(references); i++) {
        PyObject *obj;
        if (PyWeakref_GetRef(PyList_GET_ITEM(references, i), &obj) > 0) {
            function(obj);
            Py_DECREF(obj);
        }
    }
}

/* The attempt is rolled back: nothing that it has made was ever there. */
void
born_never_was(Tx *tx)
{
    for (int i = 0; i < 2; i++) {
        if (births_of(tx)->shared[i] != NULL)
            ((Birth *)births_of(tx)->shared[i])->aborted = true;
    }
    /* Nor will it be finalized later; it goes with what the rollback takes out. */
    for (Py_ssize_t i = births_of(tx)->dying != NULL ? PyList_GET_SIZE(births_of(tx)->dying) : 0; --i >= 0;) {
        PyObject *obj = PyList_GET_ITEM(births_of(tx)->dying, i);
        if (tells_variables(obj) || !born_here(tx, obj))
            continue;
        if ((tx->undo.displaced == NULL && (tx->undo.displaced = PyList_New(0)) == NULL)
            || PyList_Append(tx->undo.displaced, obj) < 0 || PyList_SetSlice(births_of(tx)->dying, i, i + 1, NULL) < 0)
            PyErr_Clear();
    }
    for_each(births_of(tx)->noted, never_finalized);
}

/* It is not rolled back any more: the collector may have what it has made. */
void
born_really(Tx *tx)
{
    for_each(births_of(tx)->noted, leave_to_collector);
    for_each(births_of(tx)->referents, leave_to_collector);
}

/* Not before what the attempt has held is dropped, if it has been rolled back: weak references that it has made would call back. */
void
born_forget(Tx *tx)
{
    born_really(tx);
    Py_CLEAR(births_of(tx)->noted);
    Py_CLEAR(births_of(tx)->noted_ids);
    Py_CLEAR(births_of(tx)->referents);
    Py_CLEAR(births_of(tx)->references);
}
