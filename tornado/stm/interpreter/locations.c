/* Where the program is, for the conflict log: File "app.py", line 12, in Handler.get
 *
 * Only the program's own code is named, and that of the libraries that it uses: never the project's,
 * nor what stands in for C code (tracebacks.c hides the same).  Where none of it runs, before
 * the first of its functions is called and after the last has returned, a transaction is where it
 * was last; in the beginning that is what it is going to call.
 *
 * The function of the program itself that a transaction has called first counts as the handler of all that it does: the method of
 * a RequestHandler, or the coroutine function that a framework awaits; of what is decorated, the function that is.
 *
 * Places and their texts are interned for ever, so that other threads may keep them.
 */
#include "locations.h"

#include "core/transaction.h"
#include "thread.h"
#include "tracebacks.h"

#include <string.h>

/* ---- Text -------------------------------------------------------------------------------- */

/* In chains that only grow; there are only as many as the program has lines, and what they want (wanted.c). */
typedef struct Text { struct Text *next; char text[]; } Text;
#define CHAINS 4096
static Text *_Atomic chains[CHAINS];

static Text *_Atomic *
chain_of(const char *text)
{
    uint32_t h = 2166136261u;
    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return &chains[h % CHAINS];
}

const char *
text_known(const char *text)
{
    for (Text *at = atomic_load(chain_of(text)); at != NULL; at = at->next) {
        if (strcmp(at->text, text) == 0)
            return at->text;
    }
    return NULL;
}

const char *
text_intern(const char *text)
{
    Text *_Atomic *chain = chain_of(text);
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
                return "";
            strcpy(made->text, text);
        }
        made->next = seen = first;
        if (atomic_compare_exchange_strong(chain, &first, made))
            return made->text;
    }
}

static const char no_text[] = "";

typedef struct KnownPlace { Place place; Losses losses; struct KnownPlace *next; } KnownPlace;
static KnownPlace *_Atomic places[CHAINS];

/* Of texts that are interned, or NULL. */
static const Place *
place_of(const char *line, const char *caller, const char *handler)
{
    Place wanted = {line != NULL ? line : no_text, caller != NULL ? caller : no_text, handler != NULL ? handler : no_text, NULL};
    uintptr_t h = ((uintptr_t)line * 31 + (uintptr_t)caller) * 31 + (uintptr_t)handler;
    KnownPlace *_Atomic *chain = &places[(h ^ h >> 12) >> 4 & (CHAINS - 1)];
    KnownPlace *first = atomic_load(chain), *seen = NULL, *made = NULL;
    for (;;) {
        for (KnownPlace *at = first; at != seen; at = at->next) {
            if (at->place.line == wanted.line && at->place.caller == wanted.caller && at->place.handler == wanted.handler) {
                PyMem_RawFree(made);
                return &at->place;
            }
        }
        if (made == NULL && (made = PyMem_RawCalloc(1, sizeof *made)) == NULL)
            return &stm_unknown_place;
        made->place = wanted;
        made->place.losses = &made->losses;
        made->next = seen = first;
        if (atomic_compare_exchange_strong(chain, &first, made))
            return &made->place;
    }
}

static int
add_losses(PyObject *list, const Place *place)
{
    Losses *l = place->losses;
    uint64_t conflicts = l->conflicts, waited = l->waited, lost = l->lost, inevitable = l->inevitable;
    if (conflicts + waited + lost + inevitable == 0)
        return 0;
    PyObject *row = Py_BuildValue("(yyyKddd)", place->line, place->caller, place->handler, (unsigned long long)conflicts,
                                  (double)waited * 1e-9, (double)lost * 1e-9, (double)inevitable * 1e-9);
    int r = row == NULL ? -1 : PyList_Append(list, row);
    Py_XDECREF(row);
    return r;
}

PyObject *
places_losses(void)
{
    PyObject *list = PyList_New(0);
    if (list != NULL && add_losses(list, &stm_unknown_place) < 0)
        Py_CLEAR(list);
    for (int i = 0; list != NULL && i < CHAINS; i++) {
        for (KnownPlace *at = atomic_load(&places[i]); list != NULL && at != NULL; at = at->next) {
            if (add_losses(list, &at->place) < 0)
                Py_CLEAR(list);
        }
    }
    return list;
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

/* The first byte from there on that begins a character of UTF-8. */
static const char *
character(const char *at)
{
    while ((*at & 0xC0) == 0x80)
        at++;
    return at;
}

static const char *
describe(PyCodeObject *code, int line)
{
    PyObject *file = encoded(code->co_filename), *function = encoded(code->co_qualname);
    const char *location = NULL;
    if (file != NULL && function != NULL) {
        char tail[120], text[256];
        const char *name = PyBytes_AS_STRING(file), *called = PyBytes_AS_STRING(function);
        int n = snprintf(tail, sizeof tail, "\", line %d, in ", line);
        size_t room = sizeof tail - 1 - n, len = strlen(called);
        if (len > room) {
            for (len = room - 3; (called[len] & 0xC0) == 0x80;)
                len--;
        }
        n += snprintf(tail + n, sizeof tail - n, "%.*s%s", (int)len, called, called[len] != '\0' ? "..." : "");
        /* The end of a long path says more than its beginning. */
        room = 255 - 6 - n;
        len = strlen(name);
        snprintf(text, sizeof text, "File \"%s%s%s", len > room ? "..." : "", len > room ? character(name + len - room + 3) : name, tail);
        location = text_intern(text);
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

static Whose
whose(PyObject *file)
{
    PyObject *folders = atomic_load(&library_folders);
    for (Py_ssize_t i = 0; folders != NULL && i < PyTuple_GET_SIZE(folders); i++) {
        if (PyUnicode_Tailmatch(file, PyTuple_GET_ITEM(folders, i), 0, PY_SSIZE_T_MAX, -1) == 1)
            return OF_LIBRARY;
    }
    return PyUnicode_CompareWithASCIIString(file, "<string>") == 0 ? MADE : OWN;
}

/* ---- Frames ------------------------------------------------------------------------------- */

/* The same few instructions are asked for again and again. The names tell code apart that has
 * taken the place of other code. */
static KnownLocation *
known_location(Tx *tx, _PyInterpreterFrame *f)
{
    PyCodeObject *code = _PyFrame_GetCode(f);
    uintptr_t at = (uintptr_t)f->instr_ptr;
    KnownLocation *known = &thread_of(tx)->locations.known[(at >> 1 ^ at >> 9) % KNOWN_LOCATIONS];
    if (known->instruction != f->instr_ptr || known->code != code || known->file != code->co_filename
        || known->function != code->co_qualname)
        *known = (KnownLocation){f->instr_ptr, code, code->co_filename, code->co_qualname,
                                 is_programs(code) ? describe(code, PyUnstable_InterpreterFrame_GetLine(f)) : NULL,
                                 whose(code->co_filename), NULL};
    return known;
}

/* A frame that has not begun is one that the interpreter has put under that of an `__init__`: it is on no line, as for CPython. */
static KnownLocation *
known_of_program(Tx *tx, _PyInterpreterFrame *f)
{
    KnownLocation *known = !_PyFrame_IsIncomplete(f) ? known_location(tx, f) : NULL;
    return known != NULL && known->location != NULL ? known : NULL;
}

/* Is that function there in the place of another, as functools.wraps() says?  Then all handlers with that decorator would be one. */
static bool
is_wrapper(_PyInterpreterFrame *f)
{
    PyObject *function = PyStackRef_IsNull(f->f_funcobj) ? NULL : PyStackRef_AsPyObjectBorrow(f->f_funcobj);
    PyObject *dict = function != NULL && PyFunction_Check(function) ? ((PyFunctionObject *)function)->func_dict : NULL;
    int found = dict != NULL ? PyDict_ContainsString(dict, "__wrapped__") : 0;
    if (found < 0)
        PyErr_Clear();
    return found > 0;
}

/* The outermost function of the program itself that runs from this frame on and is no wrapper, else of what is made of text; NULL: none.
 * It stays so until the attempt ends, but that a wrapper may call several. */
static const char *
handler_above(Tx *tx, _PyInterpreterFrame *f)
{
    Locations *l = &thread_of(tx)->locations;
    if (l->handler != NULL && l->handler_of == attempt_of(tx))
        return l->handler;
    PyCodeObject *code = NULL, *outermost = NULL, *made = NULL;
    for (; f != NULL && f != l->base; f = f->previous) {
        const KnownLocation *known = known_of_program(tx, f);
        if (known != NULL && known->whose == OWN) {
            outermost = known->code;
            code = is_wrapper(f) ? code : known->code;
        }
        else if (known != NULL && known->whose == MADE)
            made = known->code;
    }
    bool stays = code == outermost;
    code = code != NULL ? code : outermost != NULL ? outermost : made;
    const char *handler = code != NULL ? describe(code, code->co_firstlineno) : NULL;
    if (stays) {
        l->handler_of = attempt_of(tx);
        l->handler = handler;
    }
    return handler;
}

static const Place *
is_at(Tx *tx, const Place *place)
{
    atomic_store_explicit(&tx->logged.at, place, memory_order_release);
    return place;
}

/* Where this thread's transaction is, or else where it was last. */
const Place *
location(Tx *tx)
{
    Locations *l = &thread_of(tx)->locations;
    KnownLocation *innermost = NULL;
    const char *line = NULL, *caller = NULL, *made = NULL, *handler = NULL;
    _PyInterpreterFrame *maker = NULL;
    const Place *last = NULL;
    for (_PyInterpreterFrame *f = tx->tstate->current_frame; f != NULL && f != l->base && caller == NULL; f = f->previous) {
        KnownLocation *known = known_of_program(tx, f);
        if (known == NULL)
            continue;
        if (innermost == NULL) {
            innermost = known;
            line = known->location;
            last = known->place;
        }
        if (known->whose == OWN) {
            caller = known->location;
            handler = handler_above(tx, f);
        }
        else if (known->whose == MADE && made == NULL) {
            made = known->location;
            maker = f;
        }
    }
    if (caller == NULL && made != NULL) {
        caller = made;
        handler = handler_above(tx, maker);
    }
    if (line != NULL) {
        if (caller == line)
            caller = NULL;
        if (last == NULL || last->caller != (caller != NULL ? caller : no_text) || last->handler != (handler != NULL ? handler : no_text))
            last = place_of(line, caller, handler);
        if (innermost->location == line)    /* else another frame has taken its place among the known ones */
            innermost->place = last;
        return is_at(tx, last);
    }
    last = stm_log_on ? atomic_load_explicit(&tx->logged.at, memory_order_relaxed) : NULL;
    return last != NULL ? last : &stm_unknown_place;
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
    atomic_store_explicit(&tx->logged.at, found != NULL ? place_of(found, NULL, NULL) : NULL, memory_order_release);
    if (t == NULL)
        location(tx);   /* an atomic block: the program is there */
}
