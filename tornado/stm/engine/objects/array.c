/* array.array: locked whole. */
#include "access.h"
#include "memoryview.h"

static int
put_items_back(PyObject *array, PyObject *old)
{
    PySequenceMethods *sequence = c_base(Py_TYPE(array))->tp_as_sequence;
    int r = 0;
    if (sequence->sq_length(array) != PyList_GET_SIZE(old))
        return call_c_method(array, "clear", NULL) < 0 ? -1 : call_c_method(array, "extend", old);
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(old); i++)
        r = sequence->sq_ass_item(array, i, PyList_GET_ITEM(old, i));
    return r;
}

/* One of unchanged size is restored in place: views of it may be about. */
static int
put_contents_back(Tx *Py_UNUSED(tx), Undo *u)
{
    Py_ssize_t views = views_ignore(u->obj);
    int r = put_items_back(u->obj, u->old);
    views_regard(u->obj, views);
    return r;
}

static const UndoKind undo_array = {.what = "all", .undo = put_contents_back};

const struct Kind array_kind = {
    .c_state = C_STATE_WHOLE,
    .plain = true,
    .compared_inside = true,
    .made_captured = true,
    .read_whole = lock_container_read,
    .write_whole = lock_container_write,
    .contents = c_items,
    .undo = &undo_array,
};
