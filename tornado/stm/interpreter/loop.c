/* The evaluation loop is put in the place of the interpreter's own (PEP 523), and fetches what it compares by identity. */
#include "loop.h"

#include "entry.h"
#include "yields.h"

#include "calls/connection.h"
#include "core/bystanders.h"

#include "internal/pycore_ceval.h"
#include "internal/pycore_interp.h"

/* The tables of instructions that the interpreter keeps to itself. */
#define NEED_OPCODE_METADATA
#include "internal/pycore_opcode_metadata.h"

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN vectorcallfunc loop_function_vectorcall;
HIDDEN getattrofunc loop_getattr_hook, loop_getattro;
HIDDEN PyObject *loop_missing, *loop_disable;
/* With all barriers, and with those alone that act in exclusive transactions, too. */
HIDDEN PyObject *loop_evaluate(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag);
HIDDEN PyObject *loop_evaluate_alone(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag);

static PyObject *
enter(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    Tx *tx = stm_self;
    /* A generator that C code resumes: nothing is made or returned by that which C code would look into unseen. */
    bool unseen = tx == NULL || frame->owner == FRAME_OWNED_BY_GENERATOR || stm_barriers_off;
    if (UNLIKELY(tx != NULL && tx->aborting) && tx->paused && !STM_TRUSTED(frame))
        count_one(&tx->strays);
    if (!unseen) {
        if (UNLIKELY(thread_of(tx)->connection_inside) && !STM_TRUSTED(frame) && connection_calls_back(tx) < 0) {
            _PyEval_FrameClearAndPop(tstate, frame);
            return NULL;
        }
        PyObject **called = &thread_of(tx)->loop.called;
        if (*called != NULL && *called == PyStackRef_AsPyObjectBorrow(frame->f_funcobj))
            *called = NULL;
        else if (!throwflag && !begins_plainly(frame)) {
            int stopped = stm_enter(tx, tstate, frame);
            if (UNLIKELY(stopped != 0)) {
                _PyEval_FrameClearAndPop(tstate, frame);
                return stopped > 0 ? Py_NewRef(Py_None) : NULL;
            }
        }
    }
    /* Outside of transactions and in exclusive ones a frame runs on the loop for that, to its end: whatever begins a transaction
     * of another grade calls its function from C, and that gets a frame of its own.  But a fiber's may wait, and go on in another one. */
    if (stm_open == NULL && !(tx != NULL && thread_of(tx)->in_fiber)) {
        bool in_transaction = tx != NULL && state_of(tx) != TX_IDLE;
        if (LIKELY(stm_stands_by || in_transaction || STM_TRUSTED(frame)))
            return loop_evaluate_alone(tstate, frame, throwflag);
        bystander_begins();
        PyObject *result = loop_evaluate_alone(tstate, frame, throwflag);
        bystander_ends();
        return result;
    }
    if (unseen)
        return loop_evaluate(tstate, frame, throwflag);
    Called called = called_by_c(frame);
    _PyErr_StackItem *handling = tstate->exc_info;
    PyObject *handled = Py_XNewRef(handling->exc_value);
    Conversion *conversion = thread_of(tx)->conversion;     /* C code that calls this frame will look into what it returns */
    bool looked_into = UNLIKELY(conversion != NULL) && !STM_TRUSTED(frame);
    thread_of(tx)->conversion = NULL;
    PyObject *result = loop_evaluate(tstate, frame, throwflag);
    if (UNLIKELY(conversion != NULL) && result == NULL)
        conversion->raises_python = true;
    if (UNLIKELY(stm_self != tx)) {     /* a fiber's, whose last step was another thread's, alone */
        Py_XDECREF(handled);
        return result;
    }
    thread_of(tx)->conversion = conversion;
    if (UNLIKELY(handling->exc_value != handled)) {
        /* An abort has passed the end of a handler, which puts that back. */
        PyObject *passed = handling->exc_value;
        handling->exc_value = handled;
        handled = passed;
    }
    Py_XDECREF(handled);
    if (UNLIKELY(looked_into) && result != NULL && tx->open)
        return conversion_received(tx, conversion, result);
    return result != NULL && tx->open && !is_constant(result) ? stm_return(tx, &called, result) : result;
}

static const char samples[] =
    "def function(): pass\n"
    "class Hook:\n"
    "    def __getattr__(self, name): pass\n"
    "class Replaced:\n"
    "    def __getattribute__(self, name): pass\n"
    "from sys import monitoring\n"
    "missing, disable = monitoring.MISSING, monitoring.DISABLE\n";

static int
fetch_identities(void)
{
    PyObject *names = PyDict_New();
    PyObject *done = names == NULL ? NULL : PyRun_String(samples, Py_file_input, names, names);
    if (done == NULL) {
        Py_XDECREF(names);
        return -1;
    }
    Py_DECREF(done);
    loop_function_vectorcall = ((PyFunctionObject *)PyDict_GetItemString(names, "function"))->vectorcall;
    loop_getattr_hook = ((PyTypeObject *)PyDict_GetItemString(names, "Hook"))->tp_getattro;
    loop_getattro = ((PyTypeObject *)PyDict_GetItemString(names, "Replaced"))->tp_getattro;
    loop_missing = Py_NewRef(PyDict_GetItemString(names, "missing"));
    loop_disable = Py_NewRef(PyDict_GetItemString(names, "disable"));
    Py_DECREF(names);
    return 0;
}

/* Does Python code run on our loop? Not while another module evaluates frames (a compiler, a debugger): it has our place,
 * and transactions run alone. One that has given the place back leaves the interpreter's own loop there. */
bool
loop_is_ours(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    if (LIKELY(interp->eval_frame == enter))
        return true;
    if (interp->eval_frame == NULL) {
        _PyInterpreterState_SetEvalFrameFunc(interp, enter);
        return true;
    }
    static _Atomic int said;
    if (!atomic_exchange(&said, 1))
        PySys_WriteStderr("tornado.stm: another module evaluates Python's frames (PEP 523): transactions run one at a time\n");
    return false;
}

PyObject *
attribute_asked_for(PyThreadState *tstate)
{
    _PyInterpreterFrame *frame = tstate->current_frame;
    if (frame == NULL || !PyStackRef_CodeCheck(frame->f_executable))
        return NULL;
    PyCodeObject *code = _PyFrame_GetCode(frame);
    /* what it is beneath what a debugger has put there */
    if (_Py_GetBaseCodeUnit(code, (int)(frame->instr_ptr - _PyFrame_GetBytecode(frame))).op.code != LOAD_ATTR)
        return NULL;
    PyObject *names = code->co_names;
    Py_ssize_t i = frame->instr_ptr->op.arg >> 1;   /* of more than 127 names only those are known */
    return i < PyTuple_GET_SIZE(names) ? PyTuple_GET_ITEM(names, i) : NULL;
}

/* begin_loop(): from here on, frames run on our loop. */
PyObject *
begin_loop(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    static bool is_begun;
    if (loop_missing == NULL && (fetch_identities() < 0 || loop_barriers_init() < 0))
        return NULL;
    if (!loop_is_ours() || is_begun)
        Py_RETURN_NONE;
    is_begun = true;
    keep_processor();
    int others = -1;
    for (PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); t != NULL; t = PyThreadState_Next(t))
        others++;
    bystanders_init(others);
    Py_RETURN_NONE;
}
