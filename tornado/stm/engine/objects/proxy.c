/* types.MappingProxyType and the like: what they are around; and what super() returns: whose attributes it gives access to. */
#include "access.h"

/* What a proxy stands for: the first field of it. */
static PyObject *
proxied(PyObject *proxy)
{
    return *(PyObject **)((char *)proxy + (Py_TYPE(proxy)->tp_itemsize ? sizeof(PyVarObject) : sizeof(PyObject)));
}

static int
read_whole(Tx *tx, PyObject *proxy)
{
    return open_whole_read(tx, proxied(proxy));
}

static int
write_whole(Tx *tx, PyObject *proxy)
{
    return open_whole_write(tx, proxied(proxy));
}

static int
read_key(Tx *tx, PyObject *proxy, PyObject *key)
{
    return open_key_read(tx, proxied(proxy), key);
}

static int
read_item(Tx *tx, PyObject *proxy, PyObject *key)
{
    return open_item_read(tx, proxied(proxy), key);
}

static int
visit_proxied(Tx *tx, PyObject *proxy, Visit visit, void *arg)
{
    return visit(tx, proxied(proxy), arg);
}

const struct Kind proxy_kind = {
    .compared_inside = true,
    .read_whole = read_whole,
    .write_whole = write_whole,
    .read_key = read_key,
    .read_item = read_item,
    .visit = visit_proxied,
};

/* (Private to CPython's typeobject.c.) */
typedef struct { PyObject_HEAD PyTypeObject *type; PyObject *obj; PyTypeObject *obj_type; } Super;

/* A slot, or the state of a C type, that a base class gives access to, has the same lock as by the object's own class. */
static int
read_attr_of_object(Tx *tx, PyObject *obj, PyObject *name)
{
    if (Py_TYPE(obj)->tp_basicsize < (Py_ssize_t)sizeof(Super))
        return exclusive_for(tx, "attribute of", obj);
    PyObject *of = ((Super *)obj)->obj;
    if (of != NULL && open_attr_read(tx, of, name) < 0)
        return -1;
    return is_python_class(Py_TYPE(obj)) ? 1 : check_doomed(tx);
}

const struct Kind super_kind = {
    .plain = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .read_attr = read_attr_of_object,
};
