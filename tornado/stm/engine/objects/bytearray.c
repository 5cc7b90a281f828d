/* bytearray: locked whole. */
#include "access.h"
#include "memoryview.h"

static PyObject *
bytearray_contents(PyObject *bytearray)
{
    PyObject *bytes;
    Py_BEGIN_CRITICAL_SECTION(bytearray);
    bytes = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(bytearray), PyByteArray_GET_SIZE(bytearray));
    Py_END_CRITICAL_SECTION();
    return bytes;
}

/* One of unchanged size is restored in place: views of it may be about. */
static int
put_contents_back(Tx *Py_UNUSED(tx), Undo *u)
{
    int r;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    Py_ssize_t views = views_ignore(u->obj), n = PyBytes_GET_SIZE(u->old);
    r = PyByteArray_GET_SIZE(u->obj) == n ? 0 : PyByteArray_Resize(u->obj, n);
    if (r == 0)
        memcpy(PyByteArray_AS_STRING(u->obj), PyBytes_AS_STRING(u->old), n);
    views_regard(u->obj, views);
    Py_END_CRITICAL_SECTION();
    return r < 0 ? -1 : 0;
}

static const UndoKind undo_bytearray = {.what = "all", .undo = put_contents_back};

const struct Kind bytearray_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .compared_by_memory = true,
    .made_captured = true,
    .read_whole = lock_container_read,
    .write_whole = lock_container_write,
    .contents = bytearray_contents,
    .undo = &undo_bytearray,
};
