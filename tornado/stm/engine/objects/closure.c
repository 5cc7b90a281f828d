/* Variables of closures. */
#include "access.h"

static int
put_back(Tx *tx, Undo *u)
{
    displace(tx, PyCell_Get(u->obj));
    return PyCell_Set(u->obj, u->old);
}

static const UndoKind undo_closure = {.what = "a variable", .undo = put_back};

int
open_closure_read(Tx *tx, PyObject *cell)
{
    return lock_shared(tx, cell_of(cell, WHOLE));
}

int
open_closure_write(Tx *tx, PyObject *cell)
{
    bool first;
    if (lock_exclusive(tx, cell_of(cell, WHOLE), &first) < 0)
        return -1;
    if (!first || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyObject *old = PyCell_Get(cell);
    PyErr_Clear();
    Undo *u = undo_push(tx, &undo_closure, cell, NULL, old);
    Py_XDECREF(old);
    return u == NULL ? -1 : 0;
}
