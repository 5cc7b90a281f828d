/* What a program sees of the engine in a traceback: nothing.
 *
 * Twins that are written in Python, and asyncio's tasks and futures, stand in for C functions, whose
 * frames no traceback has.  So on the way into a handler the frames of hidden code go from the
 * traceback of what is caught: whoever has called it comes right before whoever it has called.
 *
 * Traceback objects may be shared, with an exception that is raised a second time, and are changed
 * under their own lock; to take out a frame once more changes nothing.
 */
#include "tracebacks.h"

#include "frameobject.h"

#define LONGEST_LOOK 500        /* entries: each handler on the way out of a recursion looks at all of them */

/* A tuple of (beginning of a file's name, beginning of a qualified name). Never changed, but replaced
 * now and then at start, and for whoever may be looking at it never dropped. */
static PyObject *_Atomic hidden;

int
tracebacks_hide(PyObject *pair)
{
    PyObject *before = atomic_load(&hidden);
    Py_ssize_t n = before == NULL ? 0 : PyTuple_GET_SIZE(before);
    PyObject *pairs = PyTuple_New(n + 1);
    if (pairs == NULL)
        return -1;
    for (Py_ssize_t i = 0; i <= n; i++)
        PyTuple_SET_ITEM(pairs, i, Py_NewRef(i < n ? PyTuple_GET_ITEM(before, i) : pair));
    atomic_store(&hidden, pairs);
    return 0;
}

static bool
begins_with(PyObject *text, PyObject *beginning)
{
    Py_ssize_t n = PyUnicode_GET_LENGTH(beginning);
    return n == 0 || PyUnicode_Tailmatch(text, beginning, 0, PyUnicode_GET_LENGTH(text), -1) == 1;
}

bool
is_hidden_code(PyCodeObject *code)
{
    PyObject *pairs = atomic_load(&hidden);
    bool found = false;
    for (Py_ssize_t i = 0; pairs != NULL && !found && i < PyTuple_GET_SIZE(pairs); i++) {
        PyObject *pair = PyTuple_GET_ITEM(pairs, i);
        found = begins_with(code->co_filename, PyTuple_GET_ITEM(pair, 0))
                && begins_with(code->co_qualname, PyTuple_GET_ITEM(pair, 1));
    }
    return found;
}

static bool
is_hidden(PyTracebackObject *entry)
{
    PyCodeObject *code = PyFrame_GetCode(entry->tb_frame);
    bool hidden_code = is_hidden_code(code);
    Py_DECREF(code);
    return hidden_code;
}

/* A new reference, or NULL. */
static PyTracebackObject *
next_of(PyTracebackObject *entry)
{
    PyTracebackObject *next;
    Py_BEGIN_CRITICAL_SECTION(entry);
    next = (PyTracebackObject *)Py_XNewRef(entry->tb_next);
    Py_END_CRITICAL_SECTION();
    return next;
}

/* The first entry from here on that is not hidden; takes the reference and gives one, or NULL. */
static PyTracebackObject *
first_visible(PyTracebackObject *entry)
{
    while (entry != NULL && is_hidden(entry))
        Py_SETREF(entry, next_of(entry));
    return entry;
}

void
traceback_clean(PyObject *exception)
{
    if (!PyExceptionInstance_Check(exception))
        return;
    PyObject *traceback = PyException_GetTraceback(exception);
    if (traceback == NULL)
        return;
    PyTracebackObject *entry = first_visible((PyTracebackObject *)Py_NewRef(traceback));
    if ((PyObject *)entry != traceback)
        PyException_SetTraceback(exception, entry == NULL ? Py_None : (PyObject *)entry);
    Py_DECREF(traceback);
    for (int n = 0; entry != NULL && n < LONGEST_LOOK; n++) {
        PyTracebackObject *next = next_of(entry), *visible = first_visible((PyTracebackObject *)Py_XNewRef(next));
        if (visible != next) {
            Py_BEGIN_CRITICAL_SECTION(entry);
            Py_XSETREF(entry->tb_next, (PyTracebackObject *)Py_XNewRef(visible));
            Py_END_CRITICAL_SECTION();
        }
        Py_XDECREF(next);
        Py_SETREF(entry, visible);
    }
    Py_XDECREF(entry);
}
