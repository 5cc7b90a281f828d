/* Instances of Python classes over a base in C whose methods compare, print, copy and hash what is in the slots that the class gives them, and
 * whose metaclass makes them in C: msgspec's Structs.
 *
 *      Fields are locked as slots are, and whoever compares or prints an instance opens all of them, and what is in them.
 *      The base hashes what is frozen only: nothing but an undeclared function changes that.  A class that keeps the hash, or has one in Python
 *      and compares in C, is unknown.
 *      Assigning to a field may hand the instance to the garbage collector, once: two at a time do not.
 */
#include "fields.h"

#include "access.h"
#include "deep.h"
#include "instance.h"
#include "known.h"

bool
fields_are_known(PyTypeObject *type)
{
    PyTypeObject *base = c_base(type);
    if (type->tp_hash != base->tp_hash && type->tp_richcompare == base->tp_richcompare && type->tp_hash != PyObject_HashNotImplemented)
        return false;
    static PyObject *config_name;
    PyObject *raised = PyErr_GetRaisedException();
    if (config_name == NULL)
        config_name = PyUnicode_InternFromString("__struct_config__");
    PyObject *config = config_name == NULL ? NULL : PyType_Type.tp_getattro((PyObject *)type, config_name);    /* past any override in Python */
    PyObject *keeps_hash = config != NULL ? PyObject_GetAttrString(config, "cache_hash") : NULL;
    bool known = keeps_hash == Py_False;
    Py_XDECREF(keeps_hash);
    Py_XDECREF(config);
    PyErr_Clear();
    PyErr_SetRaisedException(raised);
    return known;
}

static int
visit_fields(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    PyObject *mro = Py_TYPE(obj)->tp_mro;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *members = is_python_class(base) ? PyType_GetDict(base) : NULL, *name, *member;
        Py_ssize_t pos = 0;
        while (members != NULL && r == 0 && PyDict_Next(members, &pos, &name, &member)) {
            if (!Py_IS_TYPE(member, &PyMemberDescr_Type))
                continue;
            r = open_attr_read(tx, obj, name);
            PyObject *value = r == 0 ? PyMemberDescr_Type.tp_descr_get(member, obj, (PyObject *)Py_TYPE(obj)) : NULL;
            if (value != NULL)
                r = visit_unless_inert(tx, value, visit, arg);
            else if (r == 0)
                PyErr_Clear();      /* an empty slot */
            Py_XDECREF(value);
        }
        Py_XDECREF(members);
    }
    return r;
}

static int
change_field(Tx *tx, PyObject *obj, PyObject *Py_UNUSED(name), bool Py_UNUSED(del), bool Py_UNUSED(raw))
{
    return captured(tx, obj) ? 1 : own_whole(tx, obj) < 0 ? -1 : 1;
}

const struct Kind fields_kind = {
    .compared_inside = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .iterate = iterate_instance,
    .change_attr = change_field,
    .visit = visit_fields,
};
