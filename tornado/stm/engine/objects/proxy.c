/* types.MappingProxyType and the like: what they are around. */
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
