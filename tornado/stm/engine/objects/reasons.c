/* Why transactions have run alone, and for how long: by reason and place, for stats(). */
#include "../../interpreter/locations.h"
#include "../thread.h"
#include "access.h"

PyObject *stm_exclusive_reasons;    /* dict: "why: where" -> how often */
PyObject *stm_exclusive_seconds;    /* dict: the same -> for how long, altogether */

int
reasons_init(void)
{
    stm_exclusive_reasons = PyDict_New();
    stm_exclusive_seconds = PyDict_New();
    return stm_exclusive_reasons == NULL || stm_exclusive_seconds == NULL ? -1 : 0;
}

/* So much more, of a reason; takes the reference to it, which may be NULL.  Threads do so beside each other. */
static void
add(PyObject *sums, PyObject *reason, PyObject *more)
{
    PyObject *before = NULL, *sum = NULL;
    Py_BEGIN_CRITICAL_SECTION(sums);
    if (more != NULL && PyDict_GetItemRef(sums, reason, &before) >= 0)
        sum = before != NULL ? PyNumber_Add(before, more) : Py_NewRef(more);
    if (sum != NULL)
        PyDict_SetItem(sums, reason, sum);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    Py_XDECREF(sum);
    Py_XDECREF(more);
    PyErr_Clear();
}

/* Once more, for that reason. */
static void
count(PyObject *reason)
{
    add(stm_exclusive_reasons, reason, PyLong_FromLong(1));
}

void
count_gathered(Tx *tx, PyObject *reason)
{
    count(reason);
    Py_XSETREF(thread_of(tx)->reason, Py_NewRef(reason));
}

void
count_reason(Tx *tx, const char *why)
{
    Thread *t = thread_of(tx);
    const Place *at = location(tx);
    bool elsewhere = at->caller[0] != '\0';
    PyObject *raised = PyErr_GetRaisedException();
    tx_pause(tx);
    PyObject *key = elsewhere ? PyUnicode_FromFormat("%s: %s, for %s", why, at->line, at->caller)
        : at->line[0] != '\0' ? PyUnicode_FromFormat("%s: %s", why, at->line) : PyUnicode_FromString(why);
    if (key != NULL) {
        count(key);
        Py_XSETREF(t->reason, key);
        Py_XSETREF(t->was_alone.site, Py_XNewRef(t->chain.site));
        t->was_alone.before = clock_read(&t->chain.clock) - t->chain.began;
    }
    PyErr_Clear();
    tx_resume(tx);
    PyErr_SetRaisedException(raised);
}

void
count_time_alone(Tx *tx, uint64_t ns)
{
    PyObject *key = thread_of(tx)->reason;
    if (key == NULL)
        return;
    PyObject *raised = PyErr_GetRaisedException();
    tx_pause(tx);
    add(stm_exclusive_seconds, key, PyFloat_FromDouble((double)ns * 1e-9));
    Py_XSETREF(thread_of(tx)->was_alone.why, thread_of(tx)->reason);
    thread_of(tx)->reason = NULL;
    tx_resume(tx);
    PyErr_SetRaisedException(raised);
}

/* What C functions and bound methods belong to: a module or a type, by the name under which a declaration finds it; or "" */
static const char *
owner_of_function(PyObject *function)
{
    PyObject *self = PyCFunction_GET_SELF(function), *module = ((PyCFunctionObject *)function)->m_module;
    if (module != NULL && PyUnicode_Check(module))
        return PyUnicode_CompareWithASCIIString(module, "builtins") == 0 ? "" : PyUnicode_AsUTF8(module);
    return self == NULL || PyModule_Check(self) ? "" : PyType_Check(self) ? ((PyTypeObject *)self)->tp_name : Py_TYPE(self)->tp_name;
}

/* The name of an object that is called as a function and has one, as numba's and those of ctypes: a new reference, or NULL. */
static PyObject *
name_of_called(PyObject *obj)
{
    static PyObject *attribute;
    if (attribute == NULL)
        attribute = PyUnicode_InternFromString("__name__");
    PyTypeObject *t = Py_TYPE(obj);
    bool own = attribute != NULL && t->tp_call != NULL && _PyType_Lookup(t, attribute) == NULL;     /* no code of the class gives it */
    return own ? _PyObject_GenericGetAttrWithDict(obj, attribute, NULL, 1) : NULL;
}

/* Go exclusive because of something that the engine does not understand. */
int
exclusive_for(Tx *tx, const char *what, PyObject *obj)
{
    if (tx->grade == GRADE_EXCLUSIVE)
        return 0;
    char text[400];
    if (obj == NULL)
        snprintf(text, sizeof text, "%s", what);
    else if (PyCFunction_Check(obj)) {
        const char *owner = owner_of_function(obj);
        if (owner == NULL)
            PyErr_Clear();
        bool named = owner != NULL && owner[0] != '\0';
        snprintf(text, sizeof text, "%s %s%s%s", what, named ? owner : "", named ? "." : "", ((PyCFunctionObject *)obj)->m_ml->ml_name);
    }
    else if (Py_IS_TYPE(obj, &PyMethodDescr_Type))
        snprintf(text, sizeof text, "%s %s.%s", what, PyDescr_TYPE(obj)->tp_name,
                 ((PyMethodDescrObject *)obj)->d_method->ml_name);
    else if (Py_IS_TYPE(obj, &PyWrapperDescr_Type))
        snprintf(text, sizeof text, "%s %s.%s", what, PyDescr_TYPE(obj)->tp_name, ((PyWrapperDescrObject *)obj)->d_base->name);
    else if (PyType_Check(obj))
        snprintf(text, sizeof text, "%s %s", what, ((PyTypeObject *)obj)->tp_name);
    else if (PyUnicode_CheckExact(obj)) {   /* a name */
        const char *name = PyUnicode_AsUTF8(obj);
        if (name == NULL)
            PyErr_Clear();
        snprintf(text, sizeof text, "%s %s", what, name != NULL ? name : "what has no name in UTF-8");
    }
    else {
        PyObject *name = name_of_called(obj);
        const char *called = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
        PyErr_Clear();
        snprintf(text, sizeof text, "%s %s object%s%s", what, Py_TYPE(obj)->tp_name, called != NULL ? " " : "", called != NULL ? called : "");
        Py_XDECREF(name);
    }
    return become_exclusive(tx, text);
}
