/* Exceptions: what raising one sets is locked with the exception as a whole. */
#include "exception.h"

#include "../calls/conversion.h"
#include "access.h"
#include "deep.h"
#include "instance.h"
#include "known.h"

static bool
is_attribute_error(PyObject *exception)
{
    return PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_AttributeError);
}

/* What raising an exception sets is locked with the exception as a whole.  Who has looked for an attribute notes in an
 * AttributeError that it gets, and that does not say so yet, what it was. */
bool
set_by_raising(PyObject *obj, PyObject *name)
{
    static PyObject *names[6];
    if (!PyExceptionInstance_Check(obj))
        return false;
    static const char *const texts[6] = {"__traceback__", "__context__", "__cause__", "__suppress_context__", "name", "obj"};
    for (int i = 0; i < (is_attribute_error(obj) ? 6 : 4); i++) {
        if (names[i] == NULL)
            names[i] = PyUnicode_InternFromString(texts[i]);
        if (name == names[i] || (names[i] != NULL && PyUnicode_Equal(name, names[i])))
            return true;
    }
    return false;
}

static int
put_field_back(Tx *Py_UNUSED(tx), Undo *u)
{
    undo_exchange((PyObject **)((char *)u->obj + u->n), &u->old);
    return 0;
}

/* Not by its name, which the class may have given to something else; and that it is not set is not None. */
static const UndoKind undo_field = {.what = "what an exception or a traceback says", .undo = put_field_back};

static int
log_field(Tx *tx, PyObject *o, size_t offset)
{
    Undo *u = undo_push(tx, &undo_field, o, NULL, *(PyObject **)((char *)o + offset));
    if (u == NULL)
        return -1;
    u->n = offset;
    return 0;
}

static int
put_suppression_back(Tx *Py_UNUSED(tx), Undo *u)
{
    ((PyBaseExceptionObject *)u->obj)->suppress_context = u->n != 0;
    return 0;
}

static const UndoKind undo_suppression = {.what = "whether the context of an exception is shown", .undo = put_suppression_back};

static int
put_missed_back(Tx *Py_UNUSED(tx), Undo *u)
{
    PyAttributeErrorObject *e = (PyAttributeErrorObject *)u->obj;
    undo_exchange(&e->name, &u->key);
    undo_exchange(&e->obj, &u->old);
    return 0;
}

static const UndoKind undo_missed = {.what = "what an attribute was missed in", .undo = put_missed_back};

/* The exception is about to be raised, which sets its traceback, context and cause. */
int
open_exception(Tx *tx, PyObject *exception)
{
    static PyObject *value_name;
    bool first;
    if (captured(tx, exception))
        return check_doomed(tx);
    if (value_name == NULL)
        value_name = PyUnicode_InternFromString("value");
    if (lock_exclusive(tx, cell_of(exception, WHOLE), &first) < 0)
        return -1;
    /* `yield from` takes its value, where that ends. */
    if (UNLIKELY(PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_StopIteration)) && open_attr_read(tx, exception, value_name) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyAttributeErrorObject *missed = is_attribute_error(exception) ? (PyAttributeErrorObject *)exception : NULL;
    if (missed != NULL && undo_push(tx, &undo_missed, exception, missed->name, missed->obj) == NULL)
        return -1;
    if (log_field(tx, exception, offsetof(PyBaseExceptionObject, traceback)) < 0
        || log_field(tx, exception, offsetof(PyBaseExceptionObject, context)) < 0
        || log_field(tx, exception, offsetof(PyBaseExceptionObject, cause)) < 0)
        return -1;
    Undo *u = undo_push(tx, &undo_suppression, exception, NULL, NULL);
    if (u != NULL)
        u->n = ((PyBaseExceptionObject *)exception)->suppress_context;
    return u == NULL ? -1 : 0;
}

/* Are the attributes that are objects all that this kind of exception consists of? */
static bool
has_plain_fields(PyTypeObject *kind)
{
    return !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_UnicodeError)
        && !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_BlockingIOError)
        && !PyType_IsSubtype(kind, (PyTypeObject *)PyExc_BaseExceptionGroup);
}

/* The exception begins anew, with other arguments. */
int
open_exception_init(Tx *tx, PyObject *exception)
{
    if (captured(tx, exception))
        return check_doomed(tx);
    PyTypeObject *kind = c_base(Py_TYPE(exception));
    if (!has_plain_fields(kind))
        return exclusive_for(tx, "a new beginning of", exception);
    if (open_exception(tx, exception) < 0 || log_field(tx, exception, offsetof(PyBaseExceptionObject, args)) < 0)
        return -1;
    for (; kind != NULL && kind != (PyTypeObject *)PyExc_BaseException; kind = kind->tp_base) {
        for (PyMemberDef *m = kind->tp_members; m != NULL && m->name != NULL; m++) {
            if (m->type == _Py_T_OBJECT && !(m->flags & Py_READONLY) && log_field(tx, exception, m->offset) < 0)
                return -1;
        }
    }
    return 0;
}

/* Splitting a group copies what its parts say to new groups, their notes among it. */
int
open_exception_group(Tx *tx, PyObject *exception, int depth)
{
    if (!PyExceptionInstance_Check(exception))
        return check_doomed(tx);
    if (open_exception(tx, exception) < 0)
        return -1;
    if (!PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_BaseExceptionGroup))
        return 0;
    if (depth > MAX_DEPTH)
        return exclusive_for(tx, "deeply nested", exception);
    static PyObject *notes_name, *method_names[2];
    if (notes_name == NULL)
        notes_name = PyUnicode_InternFromString("__notes__");
    if (open_attr_read(tx, exception, notes_name) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (method_names[i] == NULL)
            method_names[i] = PyUnicode_InternFromString(i == 0 ? "split" : "derive");
        if (open_through_attribute(tx, exception, method_names[i]) < 0)
            return -1;
    }
    PyObject *notes = _PyObject_GenericGetAttrWithDict(exception, notes_name, NULL, 1);
    int r = notes == NULL ? 0 : open_iter(tx, notes);
    Py_XDECREF(notes);
    PyObject *parts = ((PyBaseExceptionGroupObject *)exception)->excs;
    for (Py_ssize_t i = 0; r == 0 && parts != NULL && i < PyTuple_GET_SIZE(parts); i++)
        r = open_exception_group(tx, PyTuple_GET_ITEM(parts, i), depth + 1);
    return r;
}

bool
tells_errors(PyTypeObject *type)
{
    return !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !is_python_class(type) && PyType_IsSubtype(type, (PyTypeObject *)PyExc_BaseException);
}

/* Its text: the arguments, and what a type of its own has besides them, but for what an attribute was missed in. */
int
visit_exception(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    static PyObject *args_name;
    if (args_name == NULL)
        args_name = PyUnicode_InternFromString("args");
    if (open_attr_read(tx, obj, args_name) < 0)
        return -1;
    PyObject *args = ((PyBaseExceptionObject *)obj)->args;
    int r = args == NULL ? 0 : visit(tx, args, arg);
    PyTypeObject *type = c_base(Py_TYPE(obj));
    if (r == 0 && tells_errors(type))
        return visit_errors(tx, obj, visit, arg);
    for (; r == 0 && type != NULL && type->tp_str != ((PyTypeObject *)PyExc_BaseException)->tp_str; type = type->tp_base) {
        for (PyMemberDef *m = type->tp_members; r == 0 && m != NULL && m->name != NULL; m++) {
            PyObject *name = PyUnicode_InternFromString(m->name), *value = NULL;
            r = name == NULL || open_attr_read(tx, obj, name) < 0 ? -1 : 0;
            if (r == 0 && (value = PyMember_GetOne((char *)obj, m)) != NULL)
                r = visit_unless_inert(tx, value, visit, arg);
            else if (r == 0)
                PyErr_Clear();      /* it is not set */
            Py_XDECREF(value);
            Py_XDECREF(name);
        }
    }
    return r;
}

int
visit_all_of_exception(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    static const PyMemberDef base[] = {
        {"args", _Py_T_OBJECT, offsetof(PyBaseExceptionObject, args)},
        {"__context__", _Py_T_OBJECT, offsetof(PyBaseExceptionObject, context)},
        {"__cause__", _Py_T_OBJECT, offsetof(PyBaseExceptionObject, cause)},
        {NULL},
    };
    PyTypeObject *type = c_base(Py_TYPE(obj));
    if (!has_plain_fields(type) || tells_errors(type))
        return exclusive_for(tx, "a look into", obj);
    for (; type != NULL && type != &PyBaseObject_Type; type = type->tp_base) {
        const PyMemberDef *m = type == (PyTypeObject *)PyExc_BaseException ? base : type->tp_members;
        for (; m != NULL && m->name != NULL; m++) {
            if (m->type != _Py_T_OBJECT)
                continue;
            PyObject *name = PyUnicode_InternFromString(m->name), *value = NULL;
            int r = name == NULL ? -1 : open_attr_read(tx, obj, name);
            if (r == 0 && (value = Py_XNewRef(*(PyObject **)((char *)obj + m->offset))) != NULL)
                r = visit(tx, value, arg);
            Py_XDECREF(value);
            Py_XDECREF(name);
            if (r < 0)
                return -1;
        }
    }
    return 0;
}

/* ---- Tracebacks: nothing of them changes but what comes next, which templates rewrite --------------------------------------- */

static bool
is_next(PyObject *name)
{
    return PyUnicode_EqualToUTF8(name, "tb_next");
}

static int
read_traceback(Tx *tx, PyObject *traceback, PyObject *name)
{
    return is_next(name) && lock_shared(tx, cell_of(traceback, WHOLE)) < 0 ? -1 : check_doomed(tx);
}

/* The interpreter looks for loops, from the new one on, so one transaction at a time joins tracebacks. */
static int
change_traceback(Tx *tx, PyObject *traceback, PyObject *name, bool del, bool Py_UNUSED(raw))
{
    bool first;
    if (del || !is_next(name))
        return exclusive_for(tx, "attribute assignment to", traceback);
    if (lock_exclusive(tx, cell_of(&PyTraceBack_Type, WHOLE), &first) < 0 || lock_exclusive(tx, cell_of(traceback, WHOLE), &first) < 0)
        return -1;
    return !first || tx->grade == GRADE_EXCLUSIVE ? 0 : log_field(tx, traceback, offsetof(PyTracebackObject, tb_next));
}

const struct Kind traceback_kind = {
    .plain = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .read_attr = read_traceback,
    .change_attr = change_traceback,
};
