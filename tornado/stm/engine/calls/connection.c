/* Connections of sqlite3, on any thread of a loop.
 *
 * A connection works on the thread alone that has made it, which it knows by a number that each call compares with the
 * thread's.  To the program the threads of a loop are one.  So a call in a transaction has the number changed meanwhile, if the
 * connection is that of the loop's thread (its anchor); to all other threads it is not theirs, before, meanwhile and afterwards.
 *
 * The number lies in a structure that is private to sqlite3.  Where, is found by a look at two connections that differ in it; where
 * that finds nothing, or too much, calls are made on the anchor, as those of other tied objects.
 *
 * What may be called, and what is owned for it: ../../input_output/databases.py.  Who may be aborted only reads, and others with it,
 * perhaps the same connection, whose C code was not made for that: a lock keeps them apart.  Who is irrevocable owns all
 * databases, and needs no lock.
 *
 * Functions that the program has given to a connection are Python code in the midst of a call of it.  They run in exclusive
 * transactions.  When one begins in another, that becomes exclusive there if it is irrevocable: it waits for all others, and holds
 * no lock that one of them waits for.  A reader holds one: its attempt ends, and the next one is exclusive.
 */
#include "connection.h"

#include "../core/transaction.h"
#include "../objects/known.h"
#include "../thread.h"

/* The places in the structure: 0 if they are not known. */
static struct {
    Py_ssize_t maker;           /* unsigned long: the thread's number */
    Py_ssize_t converts;        /* int: the flags for converters */
} place;
static PyTypeObject *connection_type;

#define LOCKS 16
static PyMutex locks[LOCKS];    /* one for several connections each */

static unsigned long *
maker_of(PyObject *connection)
{
    return (unsigned long *)((char *)connection + place.maker);
}

bool
is_connection(PyObject *obj)
{
    return connection_type != NULL && PyObject_TypeCheck(obj, connection_type);
}

PyObject *
with_connection(Tx *tx, PyObject *connection, Work work, void *arg)
{
    if (tx == NULL || state_of(tx) == TX_IDLE)
        return work(arg);
    unsigned long here = PyThread_get_thread_ident(), was = *maker_of(connection);
    Thread *thread = thread_of(tx);
    bool inside = thread->connection_inside;
    PyMutex *lock = tx->grade != GRADE_NONE || inside ? NULL : &locks[((uintptr_t)connection >> 6) % LOCKS];
    if (lock != NULL) {
        PyMutex_Lock(lock);
        was = *maker_of(connection);
    }
    thread->connection_inside = tx->grade != GRADE_EXCLUSIVE;
    unsigned long loop = tx->anchor != 0 ? tx->anchor : tx->thread_id;
    bool differs = (was == loop || was == here) && loop != here;
    if (differs)        /* the number may be that of a thread that is no more, and this one's by chance */
        *maker_of(connection) = was == loop ? here : loop;
    PyObject *result = work(arg);
    if (differs)
        *maker_of(connection) = was;
    thread->connection_inside = inside;
    if (lock != NULL)
        PyMutex_Unlock(lock);
    if (UNLIKELY(state_of(tx) == TX_DOOMED) && tx->paused == 0) {
        /* What has called back has made an error of its own of the abort. */
        Py_CLEAR(result);
        PyErr_Clear();
        check_doomed(tx);
    }
    return result;
}

int
connection_calls_back(Tx *tx)
{
    static const char why[] = "a call of the program's code by sqlite3";
    if (tx->grade == GRADE_NONE)
        return begin_again_exclusive(tx, why);
    thread_of(tx)->connection_inside = false;
    return become_exclusive(tx, why);
}

/* In the child of a fork: those of other threads that had a lock are no more. */
void
connection_in_child(void)
{
    memset(locks, 0, sizeof locks);
}

/* ---- For Python ---------------------------------------------------------------------------------- */

/* The only place, in steps of that size, where `a` has the first value and `b` the second; or 0. */
static Py_ssize_t
find(PyObject *a, PyObject *b, const void *first, const void *second, size_t size)
{
    Py_ssize_t found = 0;
    for (size_t i = sizeof(PyObject); i + size <= (size_t)Py_TYPE(a)->tp_basicsize; i += size) {
        if (memcmp((char *)a + i, first, size) != 0 || memcmp((char *)b + i, second, size) != 0)
            continue;
        if (found != 0)
            return 0;
        found = (Py_ssize_t)i;
    }
    return found;
}

/* learn_connections(a, b, thread, flags): `a` has been made by this thread, without converters, `b` by that one, with these flags
 * for them.  Is the structure known from here on?  Once, before there are transactions or in an exclusive one. */
PyObject *
connection_learn(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *a, *b;
    unsigned long here = PyThread_get_thread_ident(), other;
    int none = 0, flags;
    if (!PyArg_ParseTuple(args, "OOki", &a, &b, &other, &flags))
        return NULL;
    if (Py_TYPE(a) != Py_TYPE(b) || here == other || flags == none) {
        PyErr_SetString(PyExc_ValueError, "learn_connections() needs two connections that differ");
        return NULL;
    }
    place.maker = find(a, b, &here, &other, sizeof here);
    place.converts = find(a, b, &none, &flags, sizeof none);
    bool known = place.maker != 0 && place.converts != 0;
    if (known)
        connection_type = (PyTypeObject *)Py_NewRef(Py_TYPE(a));
    return PyBool_FromLong(known);
}

static int
check_connection(PyObject *obj)
{
    if (is_connection(obj))
        return 0;
    PyErr_SetString(PyExc_TypeError, "no connection of sqlite3");
    return -1;
}

PyObject *
connection_converts(PyObject *Py_UNUSED(self), PyObject *connection)
{
    if (check_connection(connection) < 0)
        return NULL;
    return PyBool_FromLong(*(int *)((char *)connection + place.converts) != 0);
}

/* A transaction has made it: so has the thread of the loop. */
PyObject *
connection_made(PyObject *Py_UNUSED(self), PyObject *connection)
{
    if (check_connection(connection) < 0)
        return NULL;
    Tx *tx = live_tx();
    if (tx != NULL && tx->anchor != 0 && *maker_of(connection) == PyThread_get_thread_ident())
        *maker_of(connection) = tx->anchor;
    Py_RETURN_NONE;
}

/* connection_call(connection, function, *args) */
PyObject *
connection_call(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n)
{
    if (n < 2) {
        PyErr_SetString(PyExc_TypeError, "connection_call() needs a connection and a function");
        return NULL;
    }
    Call c = {args[1], args + 2, n - 2, NULL};
    /* A cursor that was never made has no connection: its methods complain. */
    return is_connection(args[0]) ? with_connection(stm_self, args[0], make_call, &c) : make_call(&c);
}
