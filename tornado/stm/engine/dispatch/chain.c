/* Callbacks that follow in the transaction that has scheduled them. */
#include "chain.h"

#include "../core/undo.h"
#include "../deferred.h"
#include "../thread.h"
#include "dispatcher.h"

#define FOLLOWERS 16    /* of one transaction at most */
#define TRIFLE 25e-6    /* seconds: what takes less is not worth a turn of its own */

static PyObject *submit;    /* the method of dispatchers */

static CallbackChain *
chain_of(Tx *tx)
{
    return &thread_of(tx)->chain;
}

/* ---- The life of an attempt ------------------------------------------------------------------- */

void
chain_begins(CallbackChain *chain)
{
    chain->open = false;
    chain->next = chain->level = chain->level_left = 0;
    chain->depth = 0;
    chain->began_task = false;
}

void
chain_rolled_back(Tx *tx, CallbackChain *chain)
{
    displace(tx, chain->handles);
    displace(tx, chain->site);
    displace(tx, chain->followers);
    chain->handles = chain->site = chain->followers = NULL;
}

/* ---- Followers ---------------------------------------------------------------------------------- */

/* What ran is over; now one of that site does, or none (NULL). */
static int
step(CallbackChain *chain, PyObject *site)
{
    double time = clock_read(&chain->clock);
    if (chain->site != NULL) {
        if (chain->followers == NULL && (chain->followers = PyList_New(0)) == NULL)
            return -1;
        PyObject *took = Py_BuildValue("(Od)", chain->site, time - chain->began);
        int r = took != NULL ? PyList_Append(chain->followers, took) : -1;
        Py_XDECREF(took);
        if (r < 0)
            return -1;
    }
    Py_XSETREF(chain->site, Py_XNewRef(site));
    chain->began = time;
    return 0;
}

static int
submit_later(PyObject *dispatcher, PyObject *handle)
{
    return tx_defer((PyObject *const[]){submit, dispatcher, handle}, 3);
}

void
chain_run(Scheduling *by)
{
    if (stm_self != NULL)
        chain_of(stm_self)->by = by;
}

void
chain_open(void)
{
    Tx *tx = live_tx();
    if (tx != NULL)
        chain_of(tx)->open = true;
}

int
chain_add(PyObject *dispatcher, PyObject *handle)
{
    Tx *tx = live_tx();
    CallbackChain *chain = tx != NULL ? chain_of(tx) : NULL;
    if (chain == NULL || !chain->open)
        return submit_later(dispatcher, handle);
    if (chain->handles == NULL && (chain->handles = PyList_New(0)) == NULL)
        return -1;
    return PyList_Append(chain->handles, handle);
}

/* Shall what has just read for one connection read for the others that wait first, before what each of them then does?  In turns that
 * costs less (chain.h), where a transaction costs next to nothing: a sequential one. */
static bool
goes_in_turns(Tx *tx, CallbackChain *chain, ReadyQueue *ready, PyObject *site)
{
    return tx->company == SEQUENTIAL && chain->site == NULL && ready_has_prompt(ready) && expected_of(ready->estimates, site) >= TRIFLE;
}

/* Does such a transaction wait for the loop's thread, in a line of its own? */
static bool
waits_for_anchor(Estimates *estimates, PyObject *site)
{
    return is_gathered(estimates, site) || is_anchored(estimates, site);
}

int
chain_follower(Dispatcher *d, PyObject **handle)
{
    Tx *tx = live_tx();
    CallbackChain *chain = tx != NULL ? chain_of(tx) : NULL;
    *handle = NULL;
    if (chain == NULL || !chain->open || chain->handles == NULL || chain->next == PyList_GET_SIZE(chain->handles)
        || (tx->grade != GRADE_NONE && tx->company == AMONG_OTHERS) || (chain->by != NULL && !is_last_of_strand(chain->by->running))
        || (chain->followers != NULL && PyList_GET_SIZE(chain->followers) >= FOLLOWERS))
        return 0;
    PyObject *next = PyList_GET_ITEM(chain->handles, chain->next);
    bool task = !tells_of_future(next);
    if (task && (chain->began_task || chain->next + 1 < PyList_GET_SIZE(chain->handles) || ready_has_prompt(d->ready) || !begins_task(next)))
        return 0;
    PyObject *site = site_of(NULL, next);
    if (site == NULL)
        return -1;
    /* Others wait at the gate for a sequential one, if there are any. */
    bool always = task || (tx->company == SEQUENTIAL && d->n_threads != 1);
    bool follows = is_known_short(d->ready->estimates, site) && (!always || is_always_prompt(d->ready->estimates, site))
        && (tx->company != AMONG_OTHERS || !waits_for_anchor(d->ready->estimates, site)) && !goes_in_turns(tx, chain, d->ready, site);
    int r = follows ? step(chain, site) : 0;
    Py_DECREF(site);
    if (!follows || r < 0)
        return r;
    chain->began_task |= task;
    if (chain->next == chain->level) {
        chain->depth++;
        chain->level = PyList_GET_SIZE(chain->handles);
    }
    /* What follows this one may rely on it being gone. */
    PyList_SET_ITEM(chain->handles, chain->next++, Py_NewRef(Py_None));
    *handle = next;
    return 0;
}

int
chain_close(PyObject *dispatcher)
{
    Tx *tx = live_tx();
    if (tx == NULL || !chain_of(tx)->open)
        return 0;
    CallbackChain *chain = chain_of(tx);
    chain->open = false;
    PyObject *handles = chain->handles;
    int r = step(chain, NULL);
    chain->handles = NULL;
    chain->level_left = chain->level - chain->next;
    for (Py_ssize_t i = chain->next; r == 0 && handles != NULL && i < PyList_GET_SIZE(handles); i++)
        r = submit_later(dispatcher, PyList_GET_ITEM(handles, i));
    chain->next = chain->level = 0;
    Py_XDECREF(handles);
    return r;
}

unsigned
chain_depth(void)
{
    return stm_self != NULL ? chain_of(stm_self)->depth : 0;
}

unsigned
chain_depth_of_next(void)
{
    if (stm_self == NULL)
        return 1;
    CallbackChain *chain = chain_of(stm_self);
    bool same = chain->level_left > 0;
    chain->level_left -= same;
    return chain->depth + !same;
}

PyObject *
end_chain(PyObject *Py_UNUSED(module), PyObject *dispatcher)
{
    return !is_dispatcher(dispatcher) || chain_close(dispatcher) < 0 ? NULL : Py_NewRef(Py_None);
}

double
chain_learn(Estimates *estimates, Py_ssize_t *n)
{
    double sum = 0.0;
    PyObject *followers = NULL;
    if (stm_self != NULL) {
        followers = chain_of(stm_self)->followers;
        chain_of(stm_self)->followers = NULL;
    }
    *n = followers != NULL ? PyList_GET_SIZE(followers) : 0;
    for (Py_ssize_t i = 0; i < *n; i++) {
        PyObject *took = PyList_GET_ITEM(followers, i);
        double seconds = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(took, 1));
        learn(estimates, PyTuple_GET_ITEM(took, 0), seconds, seconds);
        sum += seconds;
    }
    Py_XDECREF(followers);
    return sum;
}

int
chain_init(void)
{
    submit = PyObject_GetAttrString((PyObject *)&Dispatcher_Type, "submit");
    return submit != NULL ? 0 : -1;
}
