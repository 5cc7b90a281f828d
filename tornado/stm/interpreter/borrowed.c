/* Borrowed references: what a frame holds uncounted, since nothing can end its life before the attempt is over.
 *
 * To count a reference is to write to the object.  Where several threads do that to the same objects, their lines of memory travel from
 * processor to processor, though nobody changes anything that the program could see.  So what an instruction loads that has a read bias
 * (an instance, list, dict or set that many transactions have read, and none has written for long) gets on the stack without being
 * counted, marked as the interpreter marks references to what is counted in another way (LOAD_FAST_BORROW, deferred reference counts).
 *
 * Invariant.  In an attempt that may be rolled back, all lives on that was there when it began and that it has found: the place
 * where it was found is locked against others (or has a trace, for which a writer waits), and what the attempt itself replaces there
 * the undo log keeps, for a rollback to put it back.  What has a read bias was there.
 *
 * That ends, and what was borrowed is counted,
 *
 *      where the attempt becomes inevitable: nothing of it will be put back, and C code may change whatever it likes (count_borrowed)
 *      where a frame is suspended: it outlives the attempt (stm_suspend).  A generator's first frame, a frame that somebody refers
 *          to, and what is returned or yielded the interpreter makes safe by itself.
 *
 * None of this holds for threads that run code of the program's outside of transactions: nothing is borrowed while there is one (bystanders.c).
 *
 * Two ways to an object leave no lock behind.  Weak references: what they refer to may lose its last other reference in
 * another transaction, and with it what it refers to; it is kept to the end (keep_referent).  Trusted code: it borrows nothing.
 */
#include "borrowed.h"

#include "core/bias.h"
#include "core/undo.h"
#include "loop.h"

static bool
is_borrowed(_PyStackRef r)
{
    if (PyStackRef_IsNullOrInt(r) || !PyStackRef_IsDeferred(r))
        return false;
    PyObject *o = PyStackRef_AsPyObjectBorrow(r);
    return !_Py_IsImmortal(o) && !_PyObject_HasDeferredRefcount(o);
}

static _PyStackRef
counted(_PyStackRef r)
{
    return PyStackRef_FromPyObjectSteal(Py_NewRef(PyStackRef_AsPyObjectBorrow(r)));
}

/* To local variables the reference is the frame's own from now on.  Operands an instruction may have in hand that is in the middle of its
 * work, so theirs is the transaction's: it is dropped at the end of that.  Most are borrowed from variables, by the compiler, and
 * are nobody's business here; what has ever had a bias in this attempt still shows that it had (bias.c). */
void
count_borrowed(Tx *tx)
{
    if (!tx->borrowed)
        return;
    PyObject *raised = PyErr_GetRaisedException();
    _PyInterpreterFrame *base = thread_of(tx)->locations.base;
    for (_PyInterpreterFrame *f = tx->tstate->current_frame; f != NULL && f != base; f = f->previous) {
        if (f->owner >= FRAME_OWNED_BY_INTERPRETER)
            continue;
        _PyStackRef *operands = f->localsplus + _PyFrame_GetCode(f)->co_nlocalsplus;
        for (_PyStackRef *p = f->localsplus; p < f->stackpointer; p++) {
            if (!is_borrowed(*p))
                continue;
            if (p < operands)
                *p = counted(*p);
            else if (is_bias_known(PyStackRef_AsPyObjectBorrow(*p)))
                displace(tx, Py_NewRef(PyStackRef_AsPyObjectBorrow(*p)));
        }
    }
    PyErr_SetRaisedException(raised);
}

int
stm_suspend(_PyInterpreterFrame *frame)
{
    _PyStackRef *yielded = frame->stackpointer - 1;     /* the instruction has it in hand */
    for (_PyStackRef *p = frame->localsplus; p < yielded; p++) {
        if (is_borrowed(*p))
            *p = counted(*p);
    }
    return 0;
}
