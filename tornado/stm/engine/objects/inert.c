/* What has no state that a transaction may write. */
#include "access.h"
#include "deep.h"

const struct Kind inert_kind = {
    .fixed_attributes = true,
    .plain = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
};

static int
visit_items(Tx *tx, PyObject *tuple, Visit visit, void *arg)
{
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple); i++)
        r = visit_unless_inert(tx, PyTuple_GET_ITEM(tuple, i), visit, arg);
    return r;
}

const struct Kind tuple_kind = {
    .fixed_attributes = true,
    .plain = true,
    .compared_inside = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
    .visit = visit_items,
};
