/* threading.local: attributes of which each thread has its own.
 *
 * They are the keys of a dict of the thread, which is obj.__dict__ there, and opened as such:
 * no thread comes by that of another, unless somebody hands it over, so that nobody conflicts.
 * A transaction that has been aborted runs again on the same thread, and finds what was there.
 *
 * The threads of one event loop are one thread to the program: they share the key by which a
 * threading.local finds a thread's dict, and its attributes are locked like any others.
 *
 * The first use in a thread makes the dict, and calls the __init__ of a subclass, once for ever:
 * if rolled back it would not be called again. So that runs exclusively.
 */
#include "local.h"

#include "access.h"
#include "known.h"

typedef struct { PyObject_HEAD PyObject *args, *kw, *weakrefs, *dicts, *watchdogs; } Local;

/* Is it going to call an __init__ in this thread? */
static bool
calls_its_init(Tx *tx, PyObject *local)
{
    if (LIKELY(Py_TYPE(local)->tp_init == PyBaseObject_Type.tp_init))
        return false;
    PyObject *thread = tx->tstate->threading_local_key;
    if (thread == NULL || c_base(Py_TYPE(local))->tp_basicsize != sizeof(Local))
        return true;
    int there = PyDict_Contains(((Local *)local)->dicts, thread);
    PyErr_Clear();
    return there != 1;
}

/* The attributes that this thread has; NULL with an exception. */
static PyObject *
thread_dict(Tx *tx, PyObject *local)
{
    static PyObject *dict_name;
    if (dict_name == NULL)
        dict_name = PyUnicode_InternFromString("__dict__");
    if (calls_its_init(tx, local) && exclusive_for(tx, "the first use in a thread of", local) < 0)
        return NULL;
    PyObject *dict = c_base(Py_TYPE(local))->tp_getattro(local, dict_name);
    if (dict != NULL)
        forget_capture(tx, dict);   /* it may have been made just now, where a captured one has died */
    return dict;
}

/* Is this name a key of that dict, unless it is missing there? */
static bool
is_thread_attr(PyObject *local, PyObject *name)
{
    PyObject *descr = _PyType_LookupRef(Py_TYPE(local), name);
    bool data = descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL;
    Py_XDECREF(descr);
    return !data;
}

/* 1: it is an attribute as of other objects. */
static int
read_attr(Tx *tx, PyObject *local, PyObject *name)
{
    bool whole = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
    if (!whole && !is_thread_attr(local, name))
        return 1;
    PyObject *dict = thread_dict(tx, local);
    int r = dict == NULL ? -1 : whole ? 0 : open_key_read(tx, dict, name);
    Py_XDECREF(dict);
    return r;
}

/* The same for an assignment or a deletion, but by a method of the class. */
static int
change_attr(Tx *tx, PyObject *local, PyObject *name, bool del, bool raw)
{
    if (raw || Py_TYPE(local)->tp_setattro != c_base(Py_TYPE(local))->tp_setattro || !is_thread_attr(local, name))
        return 1;
    PyObject *dict = thread_dict(tx, local);
    int r = dict == NULL ? -1 : open_key_write(tx, dict, name, del);
    Py_XDECREF(dict);
    return r;
}

static int
read_whole(Tx *tx, PyObject *local)
{
    PyObject *dict = thread_dict(tx, local);
    int r = dict == NULL ? -1 : open_whole_read(tx, dict);
    Py_XDECREF(dict);
    return r;
}

const struct Kind local_kind = {
    .c_state = C_STATE_UNKNOWN,
    .read_attr = read_attr,
    .change_attr = change_attr,
    .read_whole = read_whole,
};

/* From here on this thread has that key and that sentinel, or none; returns the pair that it had. */
PyObject *
exchange_locals(PyObject *self, PyObject *pair)
{
    (void)self;
    PyThreadState *tstate = PyThreadState_Get();
    PyObject *key = NULL, *sentinel = NULL;
    if (pair != Py_None && !PyArg_ParseTuple(pair, "OO", &key, &sentinel))
        return NULL;
    PyObject *had = tstate->threading_local_key == NULL ? Py_NewRef(Py_None)
        : PyTuple_Pack(2, tstate->threading_local_key, tstate->threading_local_sentinel);
    if (had == NULL)
        return NULL;
    Py_XSETREF(tstate->threading_local_key, Py_XNewRef(key));
    Py_XSETREF(tstate->threading_local_sentinel, Py_XNewRef(sentinel));
    return had;
}
