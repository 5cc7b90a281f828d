/* functools.lru_cache, transactional.
 *
 * The cache is the C object's own, so that code outside transactions sees the same
 * results, counts and order.
 *
 * A call that finds its result changes the order of use and a count.  Both wait for
 * the commit, so that such calls do not conflict: they take the wrapper with the
 * intention to write, which they may have together.  A call that does not find its
 * result calls the function with no more locks than that.  Then, in a cache without
 * limit, it puts the result under its key, as into any dict.  In one with a limit it
 * owns the wrapper, does what it has put off so far, and links the result in; what it
 * does to the list of links is in the undo log, step by step.
 *
 * Threads that are no transactions call the wrapper in C meanwhile.  Each step, and each inverse, is whole in its critical section,
 * as the wrapper's own are, and goes by what it finds there.
 */
#include "lru_cache.h"

#include "../../interpreter/loop.h"
#include "../calls/callbacks.h"
#include "access.h"
#include "dictkeys.h"
#include "function.h"

#include <stddef.h>

/* Structures private to CPython's _functoolsmodule.c; effects_register_instances() compares
 * the size of the wrapper. */
typedef struct Link {
    PyObject_HEAD
    struct Link *prev, *next;
    Py_hash_t hash;
    PyObject *key, *result;
} Link;

typedef struct {
    Link root;
    void *wrapper;
    int typed;
    PyObject *cache;            /* key -> result, or Link where there is a limit */
    Py_ssize_t hits;
    PyObject *function;
    Py_ssize_t maxsize;         /* -1: no limit */
    Py_ssize_t misses;
    PyObject *mark;             /* stands between positional and keyword arguments */
    PyTypeObject *link_type;
    PyObject *info_type, *dict, *weakrefs;
} Cache;

const size_t lru_size = sizeof(Cache);

static Cell
cell(Cache *c)
{
    return cell_of(c, WHOLE);
}

/* The key of a call: equal where that of CPython is, as others may have put it there. */
static PyObject *
make_key(Cache *c, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    if (!c->typed && nkw == 0 && n == 1 && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0])))
        return Py_NewRef(args[0]);
    Py_ssize_t size = n + (nkw ? 2 * nkw + 1 : 0) + (c->typed ? n + nkw : 0), at = 0;
    PyObject *key = PyTuple_New(size);
    if (key == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        PyTuple_SET_ITEM(key, at++, Py_NewRef(args[i]));
    if (nkw)
        PyTuple_SET_ITEM(key, at++, Py_NewRef(c->mark));
    for (Py_ssize_t i = 0; i < nkw; i++) {
        PyTuple_SET_ITEM(key, at++, Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
        PyTuple_SET_ITEM(key, at++, Py_NewRef(args[n + i]));
    }
    for (Py_ssize_t i = 0; c->typed && i < n + nkw; i++)
        PyTuple_SET_ITEM(key, at++, Py_NewRef(Py_TYPE(args[i])));
    return key;
}

/* ---- The list of links, oldest first -------------------------------------------------- */

/* The list has a reference to each link, besides that of the dict: the wrapper drops both when
 * it is cleared. */

static void
unlink_(Link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
}

static void
link_after(Link *prev, Link *link)
{
    link->prev = prev;
    link->next = prev->next;
    prev->next = link->next->prev = link;
}

/* A thread that is no transaction calls the wrapper as well, which drops links, and takes the oldest one for another key.  So whoever
 * looks at a link is in the wrapper's critical section, in which the dict is nobody else's, and knows then only that it is still there. */
static bool
is_there(Cache *c, Link *link)
{
    PyObject *there = dict_value(c->cache, link->key, link->hash);
    Py_XDECREF(there);      /* not the last one, for the dict has it */
    return there == (PyObject *)link;
}

/* ---- Steps and their inverses ----------------------------------------------------------- */

typedef struct { enum { MOVED, ADDED, REMOVED } what; Py_ssize_t hits, misses; } Step;

/* Put back what has been removed, unless threads have filled its place. */
static int
put_link_back(Tx *tx, Cache *c, Link *prev, Link *link)
{
    PyObject *other = dict_value(c->cache, link->key, link->hash);
    int r = 0;
    if (other == NULL && PyDict_GET_SIZE(c->cache) < c->maxsize) {
        r = dict_put(c->cache, link->key, link->hash, (PyObject *)link, &other);
        if (r == 0)
            link_after(prev, (Link *)Py_NewRef(link));
    }
    displace(tx, other);
    return r;
}

/* Of the cache `obj`: what happened to the link `key`, which stood behind `old`; NULL: only the counts have changed. */
static int
take_back(Tx *tx, Undo *u)
{
    Cache *c = (Cache *)u->obj;
    Link *link = (Link *)u->key, *prev = (Link *)u->old;
    Step *step = u->mem;
    PyObject *taken = NULL;
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(u->obj);
    if (prev == NULL || prev == &c->root || !is_there(c, prev))
        prev = &c->root;
    if (link != NULL && step->what == REMOVED)
        r = put_link_back(tx, c, prev, link);
    else if (link != NULL && prev != link && is_there(c, link)) {
        unlink_(link);
        if (step->what == MOVED)
            link_after(prev, link);
        else {
            r = dict_take(c->cache, link->key, link->hash, &taken);
            Py_DECREF(link);    /* the list's; the log has one */
        }
    }
    c->hits = step->hits;
    c->misses = step->misses;
    Py_END_CRITICAL_SECTION();
    displace(tx, taken);
    return r < 0 ? -1 : 0;
}

static void
forget_step(Undo *u)
{
    PyMem_RawFree(u->mem);
}

static const UndoKind undo_step = {.what = "the links", .undo = take_back, .forget = forget_step};

/* Log how to undo what is about to be done. Requires: the critical section. */
static int
log_step(Tx *tx, Cache *c, int what, Link *link)
{
    if (tx == NULL || !tx->open)
        return 0;
    Step *step = PyMem_RawMalloc(sizeof(*step));
    if (step == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *step = (Step){what, c->hits, c->misses};
    PyObject *prev = link && what != ADDED ? (PyObject *)link->prev : NULL;
    Undo *u = undo_push(tx, &undo_step, (PyObject *)c, (PyObject *)link, prev);
    if (u == NULL) {
        PyMem_RawFree(step);
        return -1;
    }
    u->mem = step;
    return 0;
}

/* ---- What is put off until the commit ------------------------------------------------------ */

/* note_use(cache, found, link or None): count a call; what it has found was used last. */
static PyObject *
note_use(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    assert(n == 3);
    Cache *c = (Cache *)args[0];
    int r;
    Py_BEGIN_CRITICAL_SECTION(args[0]);
    Link *link = args[2] != Py_None && is_there(c, (Link *)args[2]) ? (Link *)args[2] : NULL;
    r = log_step(stm_self, c, MOVED, link);
    if (r == 0) {
        if (args[1] == Py_True)
            c->hits++;
        else
            c->misses++;
        if (link != NULL) {
            unlink_(link);
            link_after(c->root.prev, link);
        }
    }
    Py_END_CRITICAL_SECTION();
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef note_use_def = {"lru_note_use", _PyCFunction_CAST(note_use), METH_FASTCALL, NULL};

static PyObject *
note_use_function(void)
{
    static PyObject *f;
    if (f == NULL)
        f = shared_function(&note_use_def, NULL);
    return f;
}

static int
put_off_use(Tx *tx, Cache *c, PyObject *found, PyObject *link)
{
    PyObject *f = note_use_function();
    PyObject *args = f ? PyTuple_Pack(3, (PyObject *)c, found, link) : NULL;
    PyObject *action = args ? PyTuple_Pack(2, f, args) : NULL;
    if (action != NULL && tx->deferred == NULL)
        tx->deferred = PyList_New(0);
    int r = action == NULL || tx->deferred == NULL ? -1 : PyList_Append(tx->deferred, action);
    Py_XDECREF(args);
    Py_XDECREF(action);
    return r;
}

/* Own the cache, and do now what was put off. */
static int
own(Tx *tx, Cache *c)
{
    bool first;
    if (lock_exclusive(tx, cell(c), &first) < 0)
        return -1;
    PyObject *actions = tx->deferred;
    for (Py_ssize_t i = 0; actions != NULL && i < PyList_GET_SIZE(actions);) {
        PyObject *action = PyList_GET_ITEM(actions, i);
        PyObject *args = PyTuple_GET_ITEM(action, 1);
        if (PyTuple_GET_ITEM(action, 0) != note_use_function() || PyTuple_GET_ITEM(args, 0) != (PyObject *)c) {
            i++;
            continue;
        }
        PyObject *r = note_use(NULL, &PyTuple_GET_ITEM(args, 0), 3);
        Py_XDECREF(r);
        if (r == NULL || PyList_SetSlice(actions, i, i + 1, NULL) < 0)
            return -1;
    }
    return 0;
}

/* ---- Calls ------------------------------------------------------------------------------------ */

/* Take the oldest link out of the cache; the caller drops both references to it that are left, outside of the critical section.
 * Requires: that, and that there is a link. */
static int
drop_oldest(Tx *tx, Cache *c, PyObject *dropped[2])
{
    Link *link = c->root.next;
    if (log_step(tx, c, REMOVED, link) < 0)
        return -1;
    unlink_(link);
    dropped[0] = (PyObject *)link;  /* the list's */
    return dict_take(c->cache, link->key, link->hash, &dropped[1]) < 0 ? -1 : 0;
}

static int
add_link(Tx *tx, Cache *c, Link *link, PyObject *dropped[2])
{
    PyObject *old;
    int there = PyDict_Contains(c->cache, link->key);   /* Python code may compare: the last step that runs any */
    if (there != 0)
        return there < 0 ? -1 : 0;      /* a thread was faster, or the function has called itself with that */
    if (PyDict_GET_SIZE(c->cache) >= c->maxsize && c->root.next != &c->root && drop_oldest(tx, c, dropped) < 0)
        return -1;
    if (log_step(tx, c, ADDED, link) < 0 || dict_put(c->cache, link->key, link->hash, (PyObject *)link, &old) < 0)
        return -1;
    link_after(c->root.prev, (Link *)Py_NewRef(link));
    return 0;
}

static int
add(Tx *tx, Cache *c, PyObject *key, PyObject *result)
{
    if (tx != NULL && own(tx, c) < 0)
        return -1;
    Py_hash_t hash = PyObject_Hash(key);
    Link *link = hash == -1 ? NULL : PyObject_New(Link, c->link_type);
    if (link == NULL)
        return -1;
    *link = (Link){.ob_base = link->ob_base, .hash = hash, .key = Py_NewRef(key), .result = Py_NewRef(result)};
    PyObject *dropped[2] = {NULL, NULL};
    int r;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)c);
    r = add_link(tx, c, link, dropped);
    Py_END_CRITICAL_SECTION();
    Py_DECREF(link);
    Py_XDECREF(dropped[0]);
    Py_XDECREF(dropped[1]);
    return r;
}

/* Is there a result for the key? 1 with a reference to it, and to the link of a cache with a limit; 0; -1 with an exception. */
static int
look_up(Tx *tx, Cache *c, PyObject *key, PyObject **result, PyObject **link)
{
    *link = NULL;
    if (c->maxsize < 0)
        return open_key_read(tx, c->cache, key) < 0 ? -1 : PyDict_GetItemRef(c->cache, key, result);
    int there;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)c);
    there = PyDict_GetItemRef(c->cache, key, link);
    *result = there > 0 ? Py_NewRef(((Link *)*link)->result) : NULL;
    Py_END_CRITICAL_SECTION();
    return there;
}

/* A call of the wrapper. */
PyObject *
lru_call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    Cache *c = (Cache *)self;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(self, args, n, kwnames);
    if (lock_intent_write(tx, cell(c)) < 0)
        return NULL;
    if (c->maxsize == 0)
        return put_off_use(tx, c, Py_False, Py_None) < 0 ? NULL : stm_call(c->function, args, n, kwnames);
    PyObject *key = make_key(c, args, n, kwnames), *found = NULL, *link = NULL;
    if (key == NULL)
        return NULL;
    int there = PyObject_Hash(key) == -1 ? -1 : look_up(tx, c, key, &found, &link);
    if (there >= 0 && put_off_use(tx, c, there ? Py_True : Py_False, link != NULL ? link : Py_None) < 0) {
        there = -1;
        Py_CLEAR(found);
    }
    Py_XDECREF(link);
    if (there == 0) {
        found = stm_call(c->function, args, n, kwnames);
        int r = 0;
        if (found != NULL && c->maxsize > 0)
            r = add(tx->open ? tx : NULL, c, key, found);
        else if (found != NULL && (r = tx->open ? open_key_write(tx, c->cache, key, false) : 0) == 0)
            r = PyDict_SetItem(c->cache, key, found);
        if (r < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

/* ---- Calls by C code ------------------------------------------------------------------------- */

static ternaryfunc plain_call;

static PyObject *
call_from_c(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Tx *tx = stm_open;
    if (tx == NULL || stm_barriers_off || in_trusted_code(tx))
        return plain_call(self, args, kwargs);
    Py_ssize_t n = PyTuple_GET_SIZE(args), nkw = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs), i = 0;
    PyObject *names = nkw == 0 ? NULL : PyTuple_New(nkw), *name, *value, *result = NULL;
    PyObject **all = PyMem_New(PyObject *, n + nkw + 1);
    if (all == NULL)
        PyErr_NoMemory();
    else if (nkw == 0 || names != NULL) {
        memcpy(all, &PyTuple_GET_ITEM(args, 0), (size_t)n * sizeof(PyObject *));
        for (Py_ssize_t at = 0; names != NULL && PyDict_Next(kwargs, &at, &name, &value); i++) {
            PyTuple_SET_ITEM(names, i, Py_NewRef(name));
            all[n + i] = Py_NewRef(value);      /* the dict may be the caller's, who changes it */
        }
        result = lru_call(self, all, n, names);
        while (i > 0)
            Py_DECREF(all[n + --i]);
    }
    PyMem_Free(all);
    Py_XDECREF(names);
    return result;
}

void
lru_watch(PyTypeObject *type)
{
    if (type->tp_call != call_from_c) {
        plain_call = type->tp_call;
        type->tp_call = call_from_c;
    }
}

bool
is_watched_lru(PyTypeObject *type)
{
    return type->tp_call == call_from_c;
}

static Cache *
owned(PyObject *const *args, Py_ssize_t n)
{
    Tx *tx = stm_self;
    return n == 1 && tx != NULL && tx->open && own(tx, (Cache *)args[0]) == 0 ? (Cache *)args[0] : NULL;
}

/* cache_info() */
PyObject *
lru_info(PyObject *original, PyObject *const *args, Py_ssize_t n)
{
    Cache *c = owned(args, n);
    if (c == NULL && PyErr_Occurred())
        return NULL;
    if (c != NULL && c->maxsize < 0 && open_whole_read(stm_self, c->cache) < 0)
        return NULL;
    return PyObject_Vectorcall(original, args, n, NULL);
}

/* cache_clear() */
PyObject *
lru_clear(PyObject *original, PyObject *const *args, Py_ssize_t n)
{
    Tx *tx = stm_self;
    Cache *c = owned(args, n);
    if (c == NULL && PyErr_Occurred())
        return NULL;
    if (c != NULL) {
        if (c->maxsize < 0 && open_whole_write(tx, c->cache) < 0)
            return NULL;
        int r = 1;
        for (bool first = true; r > 0; first = false) {
            PyObject *dropped[2] = {NULL, NULL};
            Py_BEGIN_CRITICAL_SECTION((PyObject *)c);
            r = first ? log_step(tx, c, MOVED, NULL) : 0;
            if (r == 0 && c->root.next != &c->root)
                r = drop_oldest(tx, c, dropped) < 0 ? -1 : 1;
            Py_END_CRITICAL_SECTION();
            Py_XDECREF(dropped[0]);
            Py_XDECREF(dropped[1]);
        }
        if (r < 0)
            return NULL;
    }
    return PyObject_Vectorcall(original, args, n, NULL);
}
