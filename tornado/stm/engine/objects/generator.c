/* Snapshots of suspended generators, coroutines and asynchronous generators.
 *
 * A transaction that resumes a coroutine and aborts must leave it where it
 * found it.  The snapshot copies the suspended frame (locals, value stack,
 * instruction pointer), each stack reference as one that is counted (a frame need
 * not count those to functions and types, because the garbage collector looks into
 * frames; into a snapshot it does not), and the exception state.  What it does not copy is the state of an iterator
 * that lies on the frame's stack: each step of a
 * loop that can suspend has a barrier, and that barrier saves the iterator.
 *
 * A generator made in the same transaction is captured memory (opened.h): an abort drops
 * it.  It must not be finalized then, if it would handle that.
 *
 * A generator that completed keeps its executable and drops the rest, so it
 * can be refilled in place; nothing of the frame moves, since the generator
 * object owns its memory.  If somebody else knows its frame object (a traceback, a debugger), what it drops goes into that:
 * it is locked and kept then, and a rollback makes it once more the object of the generator's frame.
 */
#include "generator.h"

#include "access.h"
#include "instance.h"
#include "known.h"

#include "internal/pycore_frame.h"

typedef struct {
    int8_t frame_state;
    char closed, running_async, hooks_inited;
    int stack_size;
    int32_t tlbc_index;
    uint16_t return_offset;
    char owner;
    _Py_CODEUNIT *instr_ptr;
    PyObject *exc_value;
    PyObject *f_locals;
    PyObject *f_globals, *f_builtins;
    PyFrameObject *frame_obj, *f_back;  /* the frame object that others know; what that got when the generator completed */
    _PyStackRef funcobj;
    _PyStackRef *slots;     /* locals and stack, stack_size of them */
} Snapshot;

static _PyStackRef
keep(_PyStackRef r)
{
    if (PyStackRef_IsNullOrInt(r))
        return r;
    return PyStackRef_FromPyObjectSteal(Py_NewRef(PyStackRef_AsPyObjectBorrow(r)));
}

static Snapshot *
snapshot(PyGenObject *g)
{
    _PyInterpreterFrame *f = &g->gi_iframe;
    bool done = g->gi_frame_state >= FRAME_COMPLETED;
    int n = done ? 0 : (int)(f->stackpointer - f->localsplus);
    Snapshot *s = PyMem_RawMalloc(sizeof(Snapshot));
    _PyStackRef *slots = PyMem_RawMalloc(n * sizeof(_PyStackRef));
    if (s == NULL || slots == NULL) {
        PyMem_RawFree(s);
        PyMem_RawFree(slots);
        PyErr_NoMemory();
        return NULL;
    }
    s->slots = slots;
    s->frame_state = g->gi_frame_state;
    s->closed = g->gi_closed;
    s->running_async = g->gi_running_async;
    s->hooks_inited = g->gi_hooks_inited;
    s->stack_size = n;
    s->exc_value = Py_XNewRef(g->gi_exc_state.exc_value);
    s->f_locals = NULL;
    s->frame_obj = s->f_back = NULL;
    s->funcobj = PyStackRef_NULL;
    if (!done) {
        if (f->frame_obj != NULL && !_PyObject_IsUniquelyReferenced((PyObject *)f->frame_obj))
            s->frame_obj = (PyFrameObject *)Py_NewRef(f->frame_obj);
        s->tlbc_index = f->tlbc_index;
        s->return_offset = f->return_offset;
        s->owner = f->owner;
        s->instr_ptr = f->instr_ptr;
        s->f_locals = Py_XNewRef(f->f_locals);
        s->f_globals = f->f_globals;
        s->f_builtins = f->f_builtins;
        s->funcobj = keep(f->f_funcobj);
        for (int i = 0; i < n; i++)
            s->slots[i] = keep(f->localsplus[i]);
    }
    return s;
}

/* The references of a frame go to the snapshot. */
static void
take_frame(Snapshot *now, _PyInterpreterFrame *f)
{
    now->stack_size = (int)(f->stackpointer - f->localsplus);
    now->slots = PyMem_RawMalloc(now->stack_size * sizeof(_PyStackRef));
    if (now->slots == NULL)
        Py_FatalError("tornado.stm: out of memory while restoring a coroutine");
    memcpy(now->slots, f->localsplus, now->stack_size * sizeof(_PyStackRef));
    now->f_locals = f->f_locals;
    now->funcobj = f->f_funcobj;
}

/* Exchange the frame with the snapshot, so that what the frame refers to now goes
 * when the entry is forgotten: no finalizer may run in the middle of a rollback. */
static int
restore(Tx *Py_UNUSED(tx), Undo *u)
{
    PyGenObject *g = (PyGenObject *)u->obj;
    Snapshot *s = u->mem;
    _PyInterpreterFrame *f = &g->gi_iframe;
    if (s == NULL || s->frame_state >= FRAME_COMPLETED)
        return 0;
    Snapshot now = {.exc_value = g->gi_exc_state.exc_value, .funcobj = PyStackRef_NULL};
    if (g->gi_frame_state < FRAME_COMPLETED) {
        take_frame(&now, f);
        now.frame_obj = s->frame_obj;
    }
    else {
        PyFrameObject *known = f->frame_obj = s->frame_obj;
        if (known != NULL) {    /* it has taken the frame over */
            take_frame(&now, known->f_frame);
            PyStackRef_CLOSE(known->f_frame->f_executable);     /* the generator has it, too */
            now.f_back = known->f_back;
            known->f_back = NULL;
            known->f_frame = f;
            PyObject_GC_UnTrack(known);     /* as those whose frames others own: the collector would clear the generator's */
        }
    }
    f->previous = NULL;
    f->tlbc_index = s->tlbc_index;
    f->return_offset = s->return_offset;
    f->owner = s->owner;
    f->visited = 0;
    f->instr_ptr = s->instr_ptr;
    f->f_globals = s->f_globals;
    f->f_builtins = s->f_builtins;
    f->f_locals = s->f_locals;
    f->f_funcobj = s->funcobj;
    memcpy(f->localsplus, s->slots, s->stack_size * sizeof(_PyStackRef));
    f->stackpointer = f->localsplus + s->stack_size;
    g->gi_exc_state.exc_value = s->exc_value;
    g->gi_exc_state.previous_item = NULL;
    g->gi_closed = s->closed;
    g->gi_running_async = s->running_async;
    if (g->gi_hooks_inited && !s->hooks_inited)
        Py_CLEAR(g->gi_origin_or_finalizer);    /* it asks for the loop's finalizer again; the thread has that one, too */
    g->gi_hooks_inited = s->hooks_inited;
    g->gi_frame_state = s->frame_state;
    PyMem_RawFree(s->slots);
    *s = now;
    return 0;
}

static void
forget(Undo *u)
{
    Snapshot *s = u->mem;
    if (s == NULL)
        return;
    for (int i = 0; i < s->stack_size; i++) {
        if (!PyStackRef_IsNullOrInt(s->slots[i]))
            PyStackRef_CLOSE(s->slots[i]);
    }
    PyMem_RawFree(s->slots);
    if (!PyStackRef_IsNull(s->funcobj))
        PyStackRef_CLOSE(s->funcobj);
    Py_XDECREF(s->f_locals);
    Py_XDECREF(s->frame_obj);
    Py_XDECREF(s->f_back);
    Py_XDECREF(s->exc_value);
    PyMem_RawFree(s);
}

static const UndoKind undo_generator = {.what = "the frame", .undo = restore, .forget = forget};

/* 1: made in this transaction, nothing to save; -1: error. */
static int
generator_captured(Tx *tx, PyGenObject *g)
{
    PyObject *birth = g->gi_iframe.f_locals;
    if (birth == NULL || (birth != thread_of(tx)->births.shared[0] && birth != thread_of(tx)->births.shared[1]))
        return 0;
    if (birth == thread_of(tx)->births.shared[1] && !opened(tx, (PyObject *)g, OPENED_WRITE)) {
        if (undo_push(tx, &undo_birth, (PyObject *)g, NULL, NULL) == NULL)
            return -1;
        note_opened(tx, (PyObject *)g, OPENED_WRITE);
    }
    return check_doomed(tx) < 0 ? -1 : 1;
}

/* Save the generator, and those that it delegates to, before they are resumed. */
int
open_generator(Tx *tx, PyObject *gen)
{
    for (int depth = 0; gen != NULL && depth < 10000; depth++) {
        if (!PyGen_CheckExact(gen) && !PyCoro_CheckExact(gen) && !PyAsyncGen_CheckExact(gen))
            return depth == 0 ? 0 : open_iter(tx, gen);
        PyGenObject *g = (PyGenObject *)gen;
        bool first = false;
        int captured = g->gi_frame_state < FRAME_COMPLETED ? generator_captured(tx, g) : 0;
        if (captured < 0 || (!captured && lock_exclusive(tx, cell_of(gen, WHOLE), &first) < 0))
            return -1;
        if (g->gi_frame_state == FRAME_EXECUTING)
            return 0;   /* by this very transaction: the interpreter complains */
        if (first && tx->grade != GRADE_EXCLUSIVE) {
            Undo *u = undo_push(tx, &undo_generator, gen, NULL, NULL);
            if (u == NULL)
                return -1;
            Snapshot *s = snapshot(g);
            if (s == NULL)
                return -1;
            u->mem = s;
            if (s->frame_obj != NULL && lock_exclusive(tx, cell_of(s->frame_obj, WHOLE), &first) < 0)
                return -1;
        }
        PyObject *inner = g->gi_frame_state == FRAME_SUSPENDED_YIELD_FROM ? _PyGen_yf(g) : NULL;
        /* It stays alive: the saved frame refers to it. */
        Py_XDECREF(inner);
        gen = inner;
    }
    return 0;
}

/* What a generator delegates to, and that in its turn, if that is something else in the end: a new reference, or NULL. */
static PyObject *
last_delegate(PyObject *gen)
{
    PyObject *last = Py_NewRef(gen);
    while (last != NULL && (PyGen_CheckExact(last) || PyCoro_CheckExact(last))) {
        PyGenObject *g = (PyGenObject *)last;
        PyObject *inner = g->gi_frame_state == FRAME_SUSPENDED_YIELD_FROM ? _PyGen_yf(g) : NULL;
        Py_DECREF(last);
        last = inner;
    }
    return last;
}

int
open_generator_throw(Tx *tx, PyObject *gen)
{
    static PyObject *names[2];
    if (open_generator(tx, gen) < 0)
        return -1;
    PyObject *last = last_delegate(gen);
    int r = 0;
    for (int i = 0; last != NULL && i < 2 && r == 0; i++) {
        if (names[i] == NULL)
            names[i] = PyUnicode_InternFromString(i == 0 ? "throw" : "close");
        r = open_through_attribute(tx, last, names[i]);
    }
    Py_XDECREF(last);
    return r;
}

static int
iterate(Tx *tx, PyObject *gen, int Py_UNUSED(depth))
{
    return open_generator(tx, gen);
}

static int
visit_generator(Tx *tx, PyObject *gen, Visit Py_UNUSED(visit), void *Py_UNUSED(arg))
{
    return open_generator(tx, gen);
}

/* The frame object is made when somebody asks for it: but once, whoever else asks at that moment. */
static int
read_attr(Tx *tx, PyObject *gen, PyObject *name)
{
    PyGenObject *g = (PyGenObject *)gen;
    if (!PyUnicode_EqualToUTF8(name, "gi_frame") && !PyUnicode_EqualToUTF8(name, "cr_frame") && !PyUnicode_EqualToUTF8(name, "ag_frame"))
        return 1;
    if (lock_shared(tx, cell_of(gen, WHOLE)) < 0)
        return -1;
    if (g->gi_frame_state >= FRAME_COMPLETED)
        return 0;
    PyFrameObject *frame;
    Py_BEGIN_CRITICAL_SECTION(gen);
    frame = _PyFrame_GetFrameObject(&g->gi_iframe);
    Py_END_CRITICAL_SECTION();
    return frame == NULL ? -1 : 0;
}

const struct Kind generator_kind = {
    .c_state = C_STATE_WHOLE,
    .read_attr = read_attr,
    .read_whole = open_iter,
    .write_whole = open_iter,
    .iterate = iterate,
    .visit = visit_generator,
};
