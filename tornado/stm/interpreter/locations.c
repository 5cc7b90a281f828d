/* Where the program is, for the conflict log: File "app.py", line 12, in Handler.get
 *
 * Only the program's own code is named, and that of the libraries that it uses: never the project's,
 * nor what stands in for C code (tracebacks.c hides the same).  Where none of it runs, before
 * the first of its functions is called and after the last has returned, a transaction is where it
 * was last; in the beginning that is what it is going to call.
 *
 * A location is text that is interned for ever, so that other threads may keep it.
 */
#include "locations.h"

#include "core/transaction.h"
#include "core/transaction.h"
#include "thread.h"
#include "core/transaction.h"
#include "thread.h"
#include "tracebacks.h"

#include <string.h>

static const char unknown[] = "";

/* ---- Text -------------------------------------------------------------------------------- */

/* In chains that only grow; there are only as many as the program has lines. */
typedef struct Text { struct Text *next; char text[]; } Text;
#define CHAINS 4096
static Text *_Atomic chains[CHAINS];

static const char *
intern(const char *text)
{
    uint32_t h = 2166136261u;
    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    Text *_Atomic *chain = &chains[h % CHAINS];
    Text *first = atomic_load(chain), *seen = NULL, *made = NULL;
    for (;;) {
        for (Text *at = first; at != seen; at = at->next) {
            if (strcmp(at->text, text) == 0) {
                PyMem_RawFree(made);
                return at->text;
            }
        }
        if (made == NULL) {
            made = PyMem_RawMalloc(sizeof(Text) + strlen(text) + 1);
            if (made == NULL)
                return unknown;
            strcpy(made->text, text);
        }
        made->next = seen = first;
        if (atomic_compare_exchange_strong(chain, &first, made))
            return made->text;
    }
}

/* A file's name may hold bytes that are no text: they come out as they came in. */
static PyObject *
encoded(PyObject *text)
{
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
    if (bytes == NULL)
        PyErr_Clear();
    return bytes;
}

static const char *
describe(PyCodeObject *code, int line)
{
    PyObject *file = encoded(code->co_filename), *function = encoded(code->co_qualname);
    const char *location = NULL;
    if (file != NULL && function != NULL) {
        char tail[120], text[256];
        int n = snprintf(tail, sizeof tail, "\", line %d, in %s", line, PyBytes_AS_STRING(function));
        if (n >= (int)sizeof tail)
            n = sizeof tail - 1;
        /* The end of a long path says more than its beginning. */
        const char *name = PyBytes_AS_STRING(file);
        size_t room = 255 - 6 - n, len = strlen(name);
        snprintf(text, sizeof text, "File \"%s%s", len > room ? name + len - room : name, tail);
        location = intern(text);
    }
    Py_XDECREF(file);
    Py_XDECREF(function);
    return location;
}

static bool
is_programs(PyCodeObject *code)
{
    return !(code->co_flags & CO_STM_TRUSTED) && !is_hidden_code(code);
}

static PyObject *_Atomic library_folders;      /* tuple; never freed, for others may be looking */

int
libraries_are_in(PyObject *folders)
{
    if (!PyTuple_CheckExact(folders)) {
        PyErr_SetString(PyExc_TypeError, "libraries_are_in() takes a tuple of text");
        return -1;
    }
    atomic_store(&library_folders, Py_NewRef(folders));
    return 0;
}

static bool
is_of_library(PyObject *file)
{
    PyObject *folders = atomic_load(&library_folders);
    bool found = false;
    for (Py_ssize_t i = 0; folders != NULL && !found && i < PyTuple_GET_SIZE(folders); i++)
        found = PyUnicode_Tailmatch(file, PyTuple_GET_ITEM(folders, i), 0, PY_SSIZE_T_MAX, -1) == 1;
    return found;
}

/* ---- Frames ------------------------------------------------------------------------------- */

/* The same few instructions are asked for again and again. The names tell code apart that has
 * taken the place of other code. */
static const KnownLocation *
known_location(Tx *tx, _PyInterpreterFrame *f)
{
    PyCodeObject *code = _PyFrame_GetCode(f);
    uintptr_t at = (uintptr_t)f->instr_ptr;
    KnownLocation *known = &thread_of(tx)->locations.known[(at >> 1 ^ at >> 9) % KNOWN_LOCATIONS];
    if (known->instruction != f->instr_ptr || known->code != code || known->file != code->co_filename
        || known->function != code->co_qualname)
        *known = (KnownLocation){f->instr_ptr, code, code->co_filename, code->co_qualname,
                                 is_programs(code) ? describe(code, PyUnstable_InterpreterFrame_GetLine(f)) : NULL,
                                 is_of_library(code->co_filename)};
    return known;
}

/* The innermost line of the program that runs in this thread's transaction, of its libraries too or of none; or NULL. */
static const char *
innermost(Tx *tx, bool of_libraries)
{
    for (_PyInterpreterFrame *f = tx->tstate->current_frame; f != NULL && f != thread_of(tx)->locations.base; f = f->previous) {
        const KnownLocation *known = f->owner < FRAME_OWNED_BY_INTERPRETER ? known_location(tx, f) : NULL;
        if (known != NULL && known->location != NULL && (of_libraries || !known->of_library))
            return known->location;
    }
    return NULL;
}

/* That, or else the last one. */
const char *
location(Tx *tx)
{
    const char *found = innermost(tx, true);
    if (found != NULL) {
        atomic_store_explicit(&tx->logged.at, found, memory_order_release);
        return found;
    }
    const char *last = stm_log_on ? atomic_load_explicit(&tx->logged.at, memory_order_relaxed) : NULL;
    return last != NULL ? last : unknown;
}

const char *
location_outside_libraries(Tx *tx)
{
    return innermost(tx, false);
}

/* ---- What is going to be called -------------------------------------------------------------- */

typedef struct { PyTypeObject *type; PyObject *name; } Holder;
#define MOST_HOLDERS 16
static Holder holders[MOST_HOLDERS];
static _Atomic int n_holders;

int
register_holder(PyTypeObject *type, PyObject *name)
{
    int n = atomic_load(&n_holders);
    if (n == MOST_HOLDERS) {
        PyErr_SetString(PyExc_RuntimeError, "too many types that hold what they call");
        return -1;
    }
    holders[n] = (Holder){(PyTypeObject *)Py_NewRef(type), Py_NewRef(name)};
    atomic_store(&n_holders, n + 1);
    return 0;
}

static const char *
location_of_suspended(PyGenObject *g)
{
    int8_t state = g->gi_frame_state;
    if (state >= FRAME_EXECUTING)
        return NULL;
    PyCodeObject *code = _PyFrame_GetCode(&g->gi_iframe);
    if (!is_programs(code))
        return NULL;
    return describe(code, state == FRAME_CREATED ? code->co_firstlineno
                                                 : PyUnstable_InterpreterFrame_GetLine(&g->gi_iframe));
}

/* Of the program's code that calling it would run, or NULL. */
static const char *
location_of_call(PyObject *called, int depth)
{
    if (depth > 5)
        return NULL;
    if (PyFunction_Check(called)) {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(called);
        return is_programs(code) ? describe(code, code->co_firstlineno) : NULL;
    }
    if (PyMethod_Check(called)) {
        const char *found = location_of_call(PyMethod_GET_FUNCTION(called), depth + 1);
        return found != NULL ? found : location_of_call(PyMethod_GET_SELF(called), depth + 1);
    }
    if (PyGen_CheckExact(called) || PyCoro_CheckExact(called))
        return location_of_suspended((PyGenObject *)called);
    if (PyCFunction_CheckExact(called))
        return PyCFunction_GET_SELF(called) != NULL ? location_of_call(PyCFunction_GET_SELF(called), depth + 1) : NULL;
    const char *found = NULL;
    for (int i = 0; i < atomic_load(&n_holders) && found == NULL; i++) {
        PyObject *held = NULL;
        if (!PyObject_TypeCheck(called, holders[i].type))
            continue;
        if (PyObject_GetOptionalAttr(called, holders[i].name, &held) < 0)
            PyErr_Clear();
        if (held != NULL)
            found = location_of_call(held, depth + 1);
        Py_XDECREF(held);
    }
    return found;
}

/* An attempt is about to begin. */
void
locate_beginning(Tx *tx)
{
    Transaction *t = tx->txn;
    const char *found = NULL;
    if (t != NULL && t->function != NULL) {
        found = location_of_call(t->function, 0);
        for (Py_ssize_t i = 0; i < Py_SIZE(t) && found == NULL; i++)
            found = location_of_call(t->args[i], 0);
    }
    atomic_store_explicit(&tx->logged.at, found, memory_order_release);
    if (t == NULL)
        location(tx);   /* an atomic block: the program is there */
}
