/* Upcalls of a core on which nothing is built. */

#include "upcalls.h"

#include "transaction.h"

static void nothing(Tx *Py_UNUSED(tx)) {}
static bool never(Tx *Py_UNUSED(tx)) { return false; }
static bool is_ready(void) { return true; }
static bool nobody_asks(void) { return false; }
static PyObject *variables(void) { return Py_NewRef(Py_None); }
static int first_grade(void) { return GRADE_NONE; }
static int may_commit(Tx *Py_UNUSED(tx)) { return 0; }
static void waits(Tx *Py_UNUSED(tx), uint64_t Py_UNUSED(since)) {}
static uint64_t states_made(void) { return 0; }
static void do_nothing(void) {}
static void goes_on(Tx *Py_UNUSED(tx), uint64_t Py_UNUSED(transactions), bool Py_UNUSED(several)) {}
static bool may_be_biased(Tx *Py_UNUSED(tx), PyObject *Py_UNUSED(obj)) { return true; }
static void tell_reason(Tx *Py_UNUSED(tx), const char *Py_UNUSED(why)) {}
static void was_exclusive(Tx *Py_UNUSED(tx), uint64_t Py_UNUSED(ns)) {}
static const Place *location(Tx *Py_UNUSED(tx)) { return &stm_unknown_place; }
static const char *name_of_cell(Tx *Py_UNUSED(tx), uint64_t Py_UNUSED(c)) { return NULL; }

static PyObject *
call(Tx *Py_UNUSED(tx), Transaction *t)
{
    Py_ssize_t n_named = t->kwnames != NULL ? PyTuple_GET_SIZE(t->kwnames) : 0;
    return PyObject_Vectorcall(t->function, t->args, (Py_SIZE(t) - n_named) | PY_VECTORCALL_ARGUMENTS_OFFSET, t->kwnames);
}

static PyThreadState *sleeps(bool Py_UNUSED(between)) { return PyEval_SaveThread(); }

const Upcalls stm_no_upcalls = {
    .thread_size = sizeof(Tx),
    .is_ready = is_ready,
    .first_grade = first_grade,
    .variables = variables,
    .goes_on = goes_on,
    .run_begins = nothing,
    .begins = nothing,
    .call = call,
    .may_commit = may_commit,
    .will_commit = nothing,
    .states_made = states_made,
    .counts_borrowed = nothing,
    .became_inevitable = nothing,
    .lends = nothing,
    .committed = nothing,
    .rolled_back = nothing,
    .ends = nothing,
    .aborted = nothing,
    .drops = nothing,
    .finalizes = nothing,
    .is_late = never,
    .retries = nothing,
    .sleeps = sleeps,
    .wakes = PyEval_RestoreThread,
    .is_in_the_way = never,
    .waits = waits,
    .is_asked = nobody_asks,
    .serve = do_nothing,
    .may_be_biased = may_be_biased,
    .tell_reason = tell_reason,
    .was_exclusive = was_exclusive,
    .location = location,
    .name_of_cell = name_of_cell,
    .locate_beginning = nothing,
    .abandon = nothing,
    .in_child = do_nothing,
};

const Upcalls *stm_upcalls = &stm_no_upcalls;
