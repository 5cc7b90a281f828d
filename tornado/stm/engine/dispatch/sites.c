/* Sites, and what their transactions have taken lately.
 *
 * A table has a fixed size.  Each key has a few places in it, of which the one that has not been used for longest is
 * reused.  Who asks has no lock and may see a key with the times of another one, or miss one: that makes for a wrong guess,
 * and the guess decides on the order only.
 */
#include "sites.h"

#include "../calls/callbacks.h"
#include "../thread.h"
#include "handle.h"
#include "task.h"

#include <math.h>

/* A kind is expected to be long if at least this share of its runs, the latest counting most, was; it is known to be short, or prompt,
 * if at most that share was not.  And how much of these shares the latest run makes up. */
#define LONG_KIND 0.8f
#define FEW_OF_KIND 0.1f
#define WEIGHT 0.1f

/* What a run leaves of the longest one before.  By processor time one in hundreds counts, for it may be long again; by the clock only the
 * last few do: on a busy machine now and then a thread has to wait for its turn, whatever it runs. */
#define LEFT_OF_USED 0.99f
#define LEFT_OF_PASSED 0.5f

/* What had to run alone, or on the loop's thread, in at least that share of its runs, the latest counting that much, is expected to.
 * Once it is gathered nobody knows whether it has to be alone, so that share dwindles: one in some fifty runs tells. */
#define ALONE 0.5f
#define WEIGHT_ALONE 0.3f
#define LEFT_OF_ALONE 0.99f
#define MOST_REASONS 1000

#define PLACES 4096     /* of a table */
#define WAYS 4          /* of a key */

#define LONGEST_PLAIN 64
#define DEEPEST 64      /* what a coroutine awaits, and so on: so many at most tell one place from another */

static _Atomic bool some_run_alone, some_are_anchored;      /* some transaction has had to */

static _Atomic double short_below = SHORT;
static PyTypeObject *partial_type;

/* ---- Hashes ------------------------------------------------------------------------------- */

static uint64_t
mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

static uint64_t
mixed_address(uint64_t hash, const void *of)
{
    return mixed(hash, (uint64_t)(uintptr_t)of >> 4);
}

/* What tells two calls of a function from each other: a plain value that is not too long, of anything else the type. */
static uint64_t
mixed_argument(uint64_t hash, PyObject *value)
{
    bool plain = PyLong_CheckExact(value) || PyBool_Check(value) || value == Py_None
                 || (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) <= LONGEST_PLAIN)
                 || (PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) <= LONGEST_PLAIN);
    hash = mixed_address(hash, Py_TYPE(value));
    return plain ? mixed(hash, (uint64_t)PyObject_Hash(value)) : hash;
}

/* ---- Sites --------------------------------------------------------------------------------- */

static PyObject *
site_made(uint64_t kind, uint64_t which)
{
    Site *site = PyObject_New(Site, &Site_Type);
    if (site != NULL) {
        site->kind = kind;
        site->which = mixed(which, kind);
    }
    return (PyObject *)site;
}

uint64_t
place_of_wait(PyObject *coroutine)
{
    uint64_t hash = 5;
    for (int depth = 0; depth < DEEPEST && (PyCoro_CheckExact(coroutine) || PyGen_CheckExact(coroutine)); depth++) {
        PyGenObject *g = (PyGenObject *)coroutine;
        if (g->gi_frame_state != FRAME_SUSPENDED && g->gi_frame_state != FRAME_SUSPENDED_YIELD_FROM)
            break;
        hash = mixed_address(hash, _PyFrame_GetCode(&g->gi_iframe));
        hash = mixed(hash, (uint64_t)(uintptr_t)g->gi_iframe.instr_ptr);
        if (g->gi_frame_state != FRAME_SUSPENDED_YIELD_FROM)
            break;
        coroutine = PyStackRef_AsPyObjectBorrow(_PyFrame_StackPeek(&g->gi_iframe));
    }
    return hash;
}

/* Of the step of a task: which coroutine, with which plain arguments (those after a star one by one), and where it waits, if it has begun.
 * What it does then, a connection's will do again, so `owner` tells it from others.  A new
 * reference; None while the coroutine runs. */
static PyObject *
site_of_step(PyObject *coroutine, Future *owner)
{
    PyGenObject *g = (PyGenObject *)coroutine;
    if (!PyCoro_CheckExact(coroutine) && !PyGen_CheckExact(coroutine))
        return site_made(mixed_address(7, Py_TYPE(coroutine)), mixed_address(0, owner));
    if (g->gi_frame_state >= FRAME_EXECUTING)
        Py_RETURN_NONE;
    PyCodeObject *code = _PyFrame_GetCode(&g->gi_iframe);
    bool begun = g->gi_frame_state != FRAME_CREATED;
    uint64_t kind = mixed(mixed_address(1, code), begun), which = begun ? mixed_address(0, owner) : 0;
    int named = code->co_argcount + code->co_kwonlyargcount;
    for (int i = 0; i < named + !!(code->co_flags & CO_VARARGS); i++) {
        _PyStackRef slot = g->gi_iframe.localsplus[i];
        PyObject *value = PyStackRef_IsNullOrInt(slot) ? Py_None : PyStackRef_AsPyObjectBorrow(slot);
        if (PyCell_Check(value))
            value = (PyObject *)Py_TYPE(value);
        bool star = i == named && PyTuple_CheckExact(value);
        for (Py_ssize_t k = 0; k < (star ? PyTuple_GET_SIZE(value) : 1); k++) {
            PyObject *argument = star ? PyTuple_GET_ITEM(value, k) : value;
            which = mixed_argument(which, argument);
            if (i == 0 && !star)
                kind = mixed_address(kind, Py_TYPE(argument));      /* of a method: whose */
        }
    }
    if (begun)
        kind = mixed(kind, atomic_load_explicit(&owner->waits_at, memory_order_relaxed));
    return site_made(kind, which);
}

/* The kind of what has been cancelled: nothing is called. */
#define CANCELLED 6

/* Which callback it runs, of what; wrapped in partials or not. */
static PyObject *
site_of_callback(PyObject *callback)
{
    while (Py_IS_TYPE(callback, partial_type))
        callback = ((Partial *)callback)->function;
    if (PyFunction_Check(callback))
        return site_made(mixed_address(2, PyFunction_GET_CODE(callback)), 0);
    Future *task = task_of_callback(callback);
    if (task != NULL && task->coroutine != NULL) {
        PyObject *coroutine = Py_NewRef(task->coroutine), *site = site_of_step(coroutine, task);
        Py_DECREF(coroutine);
        if (site != Py_None)
            return site;
    }
    if (PyCFunction_CheckExact(callback))
        return site_made(mixed_address(3, ((PyCFunctionObject *)callback)->m_ml), 0);
    if (!PyMethod_Check(callback))
        return site_made(mixed_address(5, Py_TYPE(callback)), mixed_address(0, callback));
    PyObject *owner = PyMethod_GET_SELF(callback), *function = PyMethod_GET_FUNCTION(callback);
    const void *code = PyFunction_Check(function) ? PyFunction_GET_CODE(function) : (PyObject *)Py_TYPE(function);
    return site_made(mixed_address(mixed_address(4, code), Py_TYPE(owner)), mixed_address(0, owner));
}

PyObject *
site_of(PyObject *Py_UNUSED(module), PyObject *handle)
{
    PyObject *callback = Py_XNewRef(handle_callback(handle));
    PyObject *site = callback == NULL ? Py_NewRef(Py_None) : callback == Py_None ? site_made(CANCELLED, 0) : site_of_callback(callback);
    Py_XDECREF(callback);
    return site;
}

bool
tells_of_future(PyObject *handle)
{
    PyObject *args = handle_arguments(handle);
    return args != NULL && PyTuple_CheckExact(args) && PyTuple_GET_SIZE(args) == 1 && is_future(PyTuple_GET_ITEM(args, 0));
}

bool
begins_task(PyObject *handle)
{
    PyObject *callback = handle_callback(handle);
    Future *task = callback != NULL ? task_of_callback(callback) : NULL;
    PyObject *coroutine = task != NULL ? task->coroutine : NULL;
    return coroutine != NULL && (PyCoro_CheckExact(coroutine) || PyGen_CheckExact(coroutine))
        && ((PyGenObject *)coroutine)->gi_frame_state == FRAME_CREATED;
}

static PyObject *
site_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *kind, *which;
    if (!PyArg_ParseTuple(args, "OO", &kind, &which))
        return NULL;
    Py_hash_t a = PyObject_Hash(kind), b = PyObject_Hash(which);
    return (a == -1 || b == -1) && PyErr_Occurred() ? NULL : site_made((uint64_t)a, (uint64_t)b);
}

static PyObject *
site_compare(PyObject *a, PyObject *b, int op)
{
    if (!Py_IS_TYPE(b, &Site_Type) || (op != Py_EQ && op != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((((Site *)a)->which == ((Site *)b)->which) == (op == Py_EQ));
}

static Py_hash_t
site_hash(PyObject *site)
{
    return (Py_hash_t)(((Site *)site)->which >> 1);
}

static PyMemberDef site_members[] = {
    {"kind", Py_T_ULONGLONG, offsetof(Site, kind), Py_READONLY, PyDoc_STR("what it shares with others of its kind")},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Site_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Site",
    .tp_doc = PyDoc_STR("Site(kind, which)\n--\n\nOf transactions that do the same, as far as that can be told; both are any hashable"
                        " values.  Equal to one that was made of equal values."),
    .tp_basicsize = sizeof(Site),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = site_new,
    .tp_richcompare = site_compare,
    .tp_hash = site_hash,
    .tp_members = site_members,
};

/* ---- Tables -------------------------------------------------------------------------------- */

typedef struct { float a, b; } Pair;

/* Invariant: the key is 0 while the pair is not its own. */
typedef struct {
    _Atomic uint64_t key;
    _Atomic uint64_t pair;
    uint32_t used;      /* when it was used last; for who learns only */
} Position;

typedef struct {
    uint32_t now;
    Position places[PLACES];
} Table;

static Position *
places_of(Table *table, uint64_t key)
{
    return &table->places[key % (PLACES / WAYS) * WAYS];
}

static bool
recall(Table *table, uint64_t key, Pair *found)
{
    Position *places = places_of(table, key);
    for (int i = 0; i < WAYS; i++) {
        if (atomic_load_explicit(&places[i].key, memory_order_acquire) == key) {
            uint64_t pair = atomic_load_explicit(&places[i].pair, memory_order_relaxed);
            memcpy(found, &pair, sizeof pair);
            return true;
        }
    }
    return false;
}

static void
note(Table *table, uint64_t key, Pair pair)
{
    Position *places = places_of(table, key), *at = places;
    for (int i = 0; i < WAYS; i++) {
        if (atomic_load_explicit(&places[i].key, memory_order_relaxed) == key) {
            at = &places[i];
            break;
        }
        if (places[i].used < at->used)
            at = &places[i];
    }
    uint64_t bits;
    memcpy(&bits, &pair, sizeof bits);
    if (atomic_load_explicit(&at->key, memory_order_relaxed) != key)
        atomic_store_explicit(&at->key, 0, memory_order_relaxed);
    atomic_store_explicit(&at->pair, bits, memory_order_release);
    atomic_store_explicit(&at->key, key, memory_order_release);
    at->used = ++table->now;
}

/* ---- Estimates ------------------------------------------------------------------------------- */

struct Estimates {
    PyObject_HEAD
    Table sites;        /* the shorter of the last two runs, the last run; in seconds */
    Table kinds;        /* the share of long runs, that of those that were not short */
    Table alone;        /* of kinds: the share of runs that had to be alone, that of those that had to be on the loop's thread */
    PyObject *reasons;  /* dict: kind -> why it had last; or NULL: none has */
    Table longest;      /* of sites and kinds: the longest run by processor time, and by the clock, the less the more there have been since;
                         * the first is negative where no run has been so long, but they are too few to tell, or were */
};

_Static_assert(sizeof(Pair) == sizeof(uint64_t), "a pair is read and written in one go");

static uint64_t
key_of(uint64_t hash)
{
    return hash != 0 ? hash : 1;
}

double
expected_of(Estimates *estimates, PyObject *site)
{
    if (site == Py_None)
        return 0.0;
    Pair known;
    if (recall(&estimates->sites, key_of(((Site *)site)->which), &known))
        return known.a;
    return recall(&estimates->kinds, key_of(((Site *)site)->kind), &known) && known.a >= LONG_KIND ? LONG : 0.0;
}

bool
is_expected_short(Estimates *estimates, PyObject *site)
{
    return expected_of(estimates, site) < atomic_load(&short_below);
}

static float
prompt_below(void)
{
    return (float)(LONG / SHORT * atomic_load(&short_below));
}

/* Both told by the same: but for few, the runs of the kind were below the limit, and so was the last one of the site. */
static bool
is_known_below(Estimates *estimates, PyObject *site, float limit, bool prompt)
{
    Pair kind, known;
    if (site == Py_None || !recall(&estimates->kinds, key_of(((Site *)site)->kind), &kind) || (prompt ? kind.a : kind.b) > FEW_OF_KIND)
        return false;
    return !recall(&estimates->sites, key_of(((Site *)site)->which), &known) || known.b < limit;
}

bool
is_known_short(Estimates *estimates, PyObject *site)
{
    return is_known_below(estimates, site, (float)atomic_load(&short_below), false);
}

bool
is_known_prompt(Estimates *estimates, PyObject *site)
{
    return is_known_below(estimates, site, prompt_below(), true);
}

/* What is not known of a site for long enough is told by its kind: tasks that come and go have sites that run once or twice. */
bool
is_always_prompt(Estimates *estimates, PyObject *site)
{
    Pair of_kind, longest;
    float limit = prompt_below();
    if (site == Py_None || !recall(&estimates->longest, key_of(((Site *)site)->kind), &of_kind))
        return false;
    if (!recall(&estimates->longest, key_of(((Site *)site)->which), &longest))
        longest = of_kind;
    float used = longest.a < 0 ? fminf(-longest.a, fabsf(of_kind.a)) : longest.a;
    return used < limit && longest.b < limit;
}

/* The first run of a site, which is not like those that follow, says of it what is known of its kind. */
static void
learn_longest(Estimates *estimates, uint64_t key, uint64_t kind, double used, double passed)
{
    Pair longest;
    if (recall(&estimates->longest, key, &longest)) {
        float took = (float)used, left = LEFT_OF_USED * longest.a;
        bool seen = took >= fabsf(left) || took >= prompt_below() || left > 0;
        longest = (Pair){seen ? fmaxf(took, fabsf(left)) : left, fmaxf((float)passed, LEFT_OF_PASSED * longest.b)};
    }
    else {
        if (!recall(&estimates->longest, kind, &longest))
            longest.a = 8 * LONG;       /* so there must be hundreds of runs before anybody relies on that */
        longest = (Pair){-fabsf(longest.a), (float)passed};
    }
    note(&estimates->longest, key, longest);
}

/* One more run: was it so? */
static float
share_after(float share, bool so)
{
    return share + WEIGHT * ((so ? 1.0f : 0.0f) - share);
}

void
learn(Estimates *estimates, PyObject *site, double used, double passed)
{
    if (site == Py_None)
        return;
    uint64_t key = key_of(((Site *)site)->which), kind = key_of(((Site *)site)->kind);
    float took = (float)used;
    Pair known;
    bool again = recall(&estimates->sites, key, &known);
    note(&estimates->sites, key, (Pair){again && known.b < took ? known.b : took, took});
    learn_longest(estimates, key, kind, used, passed);
    learn_longest(estimates, kind, kind, used, passed);
    if (recall(&estimates->kinds, kind, &known))
        known = (Pair){share_after(known.a, used >= LONG), share_after(known.b, used >= atomic_load(&short_below))};
    else
        known = (Pair){0.0f, 0.0f};     /* the first run of a kind is not like those that follow */
    note(&estimates->kinds, kind, known);
}

bool
is_gathered(Estimates *estimates, PyObject *site)
{
    Pair share;
    return atomic_load_explicit(&some_run_alone, memory_order_relaxed) && site != Py_None
        && recall(&estimates->alone, key_of(((Site *)site)->kind), &share) && share.a >= ALONE;
}

PyObject *
why_alone(Estimates *estimates, PyObject *site)
{
    if (estimates->reasons == NULL || !is_gathered(estimates, site))
        return NULL;
    PyObject *kind = PyLong_FromUnsignedLongLong(((Site *)site)->kind), *why = NULL;
    if (kind != NULL)
        why = PyDict_GetItemWithError(estimates->reasons, kind);
    Py_XDECREF(kind);
    PyErr_Clear();
    return why;
}

/* Of that kind, the reason from here on. */
static void
note_reason(Estimates *estimates, PyObject *site, PyObject *why)
{
    if (estimates->reasons == NULL)
        estimates->reasons = PyDict_New();
    else if (PyDict_GET_SIZE(estimates->reasons) >= MOST_REASONS)
        PyDict_Clear(estimates->reasons);
    PyObject *kind = PyLong_FromUnsignedLongLong(((Site *)site)->kind);
    if (estimates->reasons == NULL || kind == NULL || PyDict_SetItem(estimates->reasons, kind, why) < 0)
        PyErr_Clear();
    Py_XDECREF(kind);
}

void
learn_alone(Estimates *estimates, PyObject *site, PyObject *why, double before, bool gathered)
{
    Pair share = {0.0f, 0.0f};
    if (why != NULL)
        atomic_store_explicit(&some_run_alone, true, memory_order_relaxed);
    if (site == Py_None || (why == NULL && estimates->reasons == NULL))
        return;
    uint64_t key = key_of(((Site *)site)->kind);
    bool known = recall(&estimates->alone, key, &share), alone = why != NULL && before < SHORT;
    if (!known && !alone)
        return;
    if (gathered)
        share.a *= LEFT_OF_ALONE;
    else
        share.a += WEIGHT_ALONE * ((alone ? 1.0f : 0.0f) - share.a);
    note(&estimates->alone, key, share);
    if (alone && !gathered)
        note_reason(estimates, site, why);
}

bool
is_anchored(Estimates *estimates, PyObject *site)
{
    Pair share;
    return atomic_load_explicit(&some_are_anchored, memory_order_relaxed) && site != Py_None
        && recall(&estimates->alone, key_of(((Site *)site)->kind), &share) && share.b >= ALONE;
}

void
learn_anchored(Estimates *estimates, PyObject *site, bool anchored)
{
    if (anchored)
        atomic_store_explicit(&some_are_anchored, true, memory_order_relaxed);
    Pair share = {0.0f, 0.0f};
    if (site == Py_None || !atomic_load_explicit(&some_are_anchored, memory_order_relaxed))
        return;
    uint64_t key = key_of(((Site *)site)->kind);
    if (!recall(&estimates->alone, key, &share) && !anchored)
        return;
    share.b += WEIGHT_ALONE * ((anchored ? 1.0f : 0.0f) - share.b);
    note(&estimates->alone, key, share);
}

Estimates *
estimates_new(void)
{
    return (Estimates *)Estimates_Type.tp_alloc(&Estimates_Type, 0);
}

static PyObject *
make_estimates(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return (PyObject *)estimates_new();
}

bool
is_site(PyObject *o)
{
    if (o == Py_None || Py_IS_TYPE(o, &Site_Type))
        return true;
    PyErr_SetString(PyExc_TypeError, "a site is a Site or None");
    return false;
}

static void
estimates_dealloc(PyObject *self)
{
    Py_XDECREF(((Estimates *)self)->reasons);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
estimates_expected(PyObject *self, PyObject *site)
{
    return is_site(site) ? PyFloat_FromDouble(expected_of((Estimates *)self, site)) : NULL;
}

static PyObject *
estimates_is_short(PyObject *self, PyObject *site)
{
    return is_site(site) ? PyBool_FromLong(is_known_short((Estimates *)self, site)) : NULL;
}

static PyObject *
estimates_is_known_prompt(PyObject *self, PyObject *site)
{
    return is_site(site) ? PyBool_FromLong(is_known_prompt((Estimates *)self, site)) : NULL;
}

static PyObject *
estimates_is_always_prompt(PyObject *self, PyObject *site)
{
    return is_site(site) ? PyBool_FromLong(is_always_prompt((Estimates *)self, site)) : NULL;
}

static PyObject *
estimates_learn(PyObject *self, PyObject *args)
{
    PyObject *site;
    double used, passed = -1.0;
    if (!PyArg_ParseTuple(args, "Od|d", &site, &used, &passed) || !is_site(site))
        return NULL;
    learn((Estimates *)self, site, used, passed < 0 ? used : passed);
    Py_RETURN_NONE;
}

static PyObject *
estimates_why_alone(PyObject *self, PyObject *site)
{
    if (!is_site(site))
        return NULL;
    PyObject *why = why_alone((Estimates *)self, site);
    return Py_NewRef(why != NULL ? why : Py_None);
}

static PyObject *
estimates_is_anchored(PyObject *self, PyObject *site)
{
    return is_site(site) ? PyBool_FromLong(is_anchored((Estimates *)self, site)) : NULL;
}

static PyObject *
estimates_learn_anchored(PyObject *self, PyObject *args)
{
    PyObject *site;
    int anchored;
    if (!PyArg_ParseTuple(args, "Op", &site, &anchored) || !is_site(site))
        return NULL;
    learn_anchored((Estimates *)self, site, anchored);
    Py_RETURN_NONE;
}

static PyObject *
estimates_learn_alone(PyObject *self, PyObject *args)
{
    PyObject *site, *why;
    double before = 0.0;
    int gathered = 0;
    if (!PyArg_ParseTuple(args, "OO|dp", &site, &why, &before, &gathered) || !is_site(site))
        return NULL;
    learn_alone((Estimates *)self, site, why != Py_None ? why : NULL, before, gathered);
    Py_RETURN_NONE;
}

static PyMethodDef estimates_methods[] = {
    {"expected", estimates_expected, METH_O,
     PyDoc_STR("expected($self, site, /)\n--\n\nSeconds that a transaction of this site is expected to take.")},
    {"is_short", estimates_is_short, METH_O,
     PyDoc_STR("is_short($self, site, /)\n--\n\nIs it known that a transaction of this site takes less than `SHORT`?")},
    {"is_prompt", estimates_is_known_prompt, METH_O,
     PyDoc_STR("is_prompt($self, site, /)\n--\n\nIs it known that a transaction of this site takes less than `LONG`?")},
    {"is_always_prompt", estimates_is_always_prompt, METH_O,
     PyDoc_STR("is_always_prompt($self, site, /)\n--\n\nHas no transaction of this site taken longer lately, nor one of the last few"
               " waited?")},
    {"why_alone", estimates_why_alone, METH_O,
     PyDoc_STR("why_alone($self, site, /)\n--\n\nWhy a transaction of this kind had to run alone, if it is expected to again, else None.")},
    {"learn_alone", estimates_learn_alone, METH_VARARGS,
     PyDoc_STR("learn_alone($self, site, why, before=0.0, gathered=False, /)\n--\n\nA transaction of this kind had to run alone for that reason,"
               " and found out after so many seconds; None: it had not.  gathered: nobody knows.")},
    {"is_anchored", estimates_is_anchored, METH_O,
     PyDoc_STR("is_anchored($self, site, /)\n--\n\nIs a transaction of this kind expected to have to run on the loop's thread, beside others?")},
    {"learn_anchored", estimates_learn_anchored, METH_VARARGS,
     PyDoc_STR("learn_anchored($self, site, anchored, /)\n--\n\nA transaction of this kind has run, and had to, or had not.")},
    {"learn", estimates_learn, METH_VARARGS,
     PyDoc_STR("learn($self, site, used, passed=None, /)\n--\n\nA transaction of this site has used so many seconds of processor"
               " time, and so many have passed.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Estimates_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Estimates",
    .tp_doc = PyDoc_STR("Estimates()\n--\n\nWhat transactions have taken lately, by site and by kind of site."),
    .tp_basicsize = sizeof(Estimates),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make_estimates,
    .tp_dealloc = estimates_dealloc,
    .tp_methods = estimates_methods,
};

PyObject *
set_short(PyObject *Py_UNUSED(module), PyObject *seconds)
{
    double below = PyFloat_AsDouble(seconds);
    if (below == -1.0 && PyErr_Occurred())
        return NULL;
    atomic_store(&short_below, below);
    Py_RETURN_NONE;
}

int
sites_init(PyObject *module)
{
    partial_type = (PyTypeObject *)PyImport_ImportModuleAttrString("functools", "partial");
    if (partial_type == NULL)
        return -1;
    if (partial_type->tp_basicsize != sizeof(Partial)) {
        PyErr_SetString(PyExc_ImportError, "functools.partial has another layout than this engine knows");
        return -1;
    }
    return PyModule_AddType(module, &Site_Type) < 0 || PyModule_AddType(module, &Estimates_Type) < 0 ? -1 : 0;
}
