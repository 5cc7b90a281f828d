/* Stand-ins in C for C functions that look into containers piece by piece.
 *
 * Opening a container for such a function as a whole would cost more than the
 * function itself (a heap of a thousand entries for the ten that a push compares), and
 * would conflict with more than it should.  So these do the work themselves, with a
 * barrier before each step.  What they are given wrongly they leave to the original.
 */
#include "twins.h"

#include "../core/latch.h"
#include "../objects/access.h"
#include "../objects/class.h"
#include "../objects/deep.h"
#include "../objects/dict.h"
#include "../objects/exception.h"
#include "../objects/function.h"
#include "../objects/known.h"
#include "../objects/lru_cache.h"
#include "../objects/names.h"
#include "../objects/namespaces.h"
#include "callbacks.h"

/* ---- Heaps ------------------------------------------------------------------------------
 * The order of comparisons and the list that results are those of heapq; as there, all of a call is in the list's critical section, which
 * comparisons in Python leave meanwhile. */

typedef struct { Tx *tx; PyObject *list; Py_ssize_t n; bool max, logged; } Heap;

static PyObject *
item(Heap *h, Py_ssize_t i)
{
    return PyList_GET_ITEM(h->list, i);
}

typedef enum { LESS, EQUAL, GREATER, UNTOLD } Order;

/* How two numbers of one type, two texts, or two tuples of such compare, up to where that is decided: which needs no
 * look at anything that a transaction can change. */
static Order
order_of(PyObject *a, PyObject *b, int depth)
{
    if (a == b)
        return EQUAL;
    if (PyLong_CheckExact(a) && PyLong_CheckExact(b) && PyUnstable_Long_IsCompact((PyLongObject *)a)
        && PyUnstable_Long_IsCompact((PyLongObject *)b)) {
        Py_ssize_t x = PyUnstable_Long_CompactValue((PyLongObject *)a), y = PyUnstable_Long_CompactValue((PyLongObject *)b);
        return x < y ? LESS : x > y ? GREATER : EQUAL;
    }
    if (PyFloat_CheckExact(a) && PyFloat_CheckExact(b)) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return x < y ? LESS : x > y ? GREATER : x == y ? EQUAL : UNTOLD;
    }
    if (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b)) {
        int order = PyUnicode_Compare(a, b);
        return order < 0 ? LESS : order > 0 ? GREATER : EQUAL;
    }
    if (!PyTuple_CheckExact(a) || !PyTuple_CheckExact(b) || depth > 2)
        return UNTOLD;
    Py_ssize_t n = PyTuple_GET_SIZE(a), m = PyTuple_GET_SIZE(b);
    for (Py_ssize_t i = 0; i < n && i < m; i++) {
        Order order = order_of(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i), depth + 1);
        if (order != EQUAL)
            return order;
    }
    return n < m ? LESS : n > m ? GREATER : EQUAL;
}

/* Is a to come before b? -1 on error. */
static int
before(Heap *h, PyObject *a, PyObject *b)
{
    Order order = a == b ? UNTOLD : order_of(a, b, 0);  /* what is not equal to itself may be less */
    if (order != UNTOLD)
        return order == (h->max ? GREATER : LESS);
    Py_INCREF(a);
    Py_INCREF(b);
    int r = -1;
    if (h->tx == NULL || (open_deep_read(h->tx, a) == 0 && open_deep_read(h->tx, b) == 0))
        r = h->max ? PyObject_RichCompareBool(b, a, Py_LT) : PyObject_RichCompareBool(a, b, Py_LT);
    Py_DECREF(a);
    Py_DECREF(b);
    if (r >= 0 && PyList_GET_SIZE(h->list) != h->n) {
        PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
        return -1;
    }
    return r;
}

static int
log_item(Heap *h, Py_ssize_t i)
{
    if (h->tx == NULL || h->logged)
        return 0;
    PyObject *index = PyLong_FromSsize_t(i);
    int r = index == NULL ? -1 : open_key_write(h->tx, h->list, index, false);
    Py_XDECREF(index);
    return r;
}

static int
put(Heap *h, Py_ssize_t i, PyObject *value)
{
    return log_item(h, i) < 0 ? -1 : PyList_SetItem(h->list, i, Py_NewRef(value));
}

static int
exchange(Heap *h, Py_ssize_t i, Py_ssize_t j)
{
    if (log_item(h, i) < 0 || log_item(h, j) < 0)
        return -1;
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(h->list);
    PyObject **items = ((PyListObject *)h->list)->ob_item;
    if (PyList_GET_SIZE(h->list) != h->n) {
        PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
        r = -1;
    }
    else {
        /* Threads that are no transactions may be reading, without a lock. */
        PyObject *a = items[i];
        _Py_atomic_store_ptr_release(&items[i], items[j]);
        _Py_atomic_store_ptr_release(&items[j], a);
    }
    Py_END_CRITICAL_SECTION();
    return r;
}

/* Move the item at i towards the root, `top` at the farthest. */
static int
rise(Heap *h, Py_ssize_t top, Py_ssize_t i)
{
    while (i > top) {
        Py_ssize_t parent = (i - 1) / 2;
        int r = before(h, item(h, i), item(h, parent));
        if (r <= 0)
            return r;
        if (exchange(h, i, parent) < 0)
            return -1;
        i = parent;
    }
    return 0;
}

/* The item at i may be too large: let the smaller children rise into its place down to
 * a leaf, and then the item from there. */
static int
sink(Heap *h, Py_ssize_t i)
{
    Py_ssize_t top = i;
    for (Py_ssize_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n) {
            int r = before(h, item(h, child), item(h, child + 1));
            if (r < 0)
                return -1;
            child += !r;
        }
        if (exchange(h, i, child) < 0)
            return -1;
    }
    return rise(h, top, i);
}

/* The heap of the first argument, not opened yet; false if the original shall deal with
 * it. */
static bool
heap_of(Heap *h, PyObject *const *args, Py_ssize_t n, Py_ssize_t wanted, bool max)
{
    if (n != wanted || !PyList_Check(args[0]))
        return false;
    Tx *tx = stm_self;
    *h = (Heap){tx != NULL && tx->open ? tx : NULL, args[0], 0, max, false};
    h->logged = h->tx != NULL && (opened(tx, args[0], OPENED_WRITE) || captured(tx, args[0]));
    return true;
}

/* Now it is open: how many items there are. */
static Py_ssize_t
measure(Heap *h)
{
    return h->n = PyList_GET_SIZE(h->list);
}

static PyObject *
heap_push(PyObject *original, PyObject *const *args, Py_ssize_t n, bool max)
{
    Heap h;
    if (!heap_of(&h, args, n, 2, max))
        return PyObject_Vectorcall(original, args, n, NULL);
    if (h.tx != NULL && open_list_append(h.tx, h.list) < 0)
        return NULL;
    int r;
    Py_BEGIN_CRITICAL_SECTION(h.list);
    r = PyList_Append(h.list, args[1]) < 0 ? -1 : rise(&h, 0, measure(&h) - 1);
    Py_END_CRITICAL_SECTION();
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
pop_item(Heap *h, PyObject *original)
{
    if (measure(h) == 0)
        return PyObject_CallOneArg(original, h->list);
    PyObject *last = Py_NewRef(item(h, --h->n));
    PyObject *result = NULL;
    if (PyList_SetSlice(h->list, h->n, h->n + 1, NULL) == 0) {
        if (h->n == 0)
            result = Py_NewRef(last);
        else {
            result = Py_NewRef(item(h, 0));
            if (put(h, 0, last) < 0 || sink(h, 0) < 0)
                Py_CLEAR(result);
        }
    }
    Py_DECREF(last);
    return result;
}

static PyObject *
heap_pop(PyObject *original, PyObject *const *args, Py_ssize_t n, bool max)
{
    Heap h;
    if (!heap_of(&h, args, n, 1, max))
        return PyObject_Vectorcall(original, args, n, NULL);
    if (h.tx != NULL && open_list_pop(h.tx, h.list, -1) < 0)
        return NULL;
    PyObject *result;
    Py_BEGIN_CRITICAL_SECTION(h.list);
    result = pop_item(&h, original);
    Py_END_CRITICAL_SECTION();
    return result;
}

static PyObject *
replace_root(Heap *h, PyObject *value)
{
    PyObject *result = Py_NewRef(item(h, 0));
    if (put(h, 0, value) < 0 || sink(h, 0) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *
heap_replace(PyObject *original, PyObject *const *args, Py_ssize_t n, bool max)
{
    Heap h;
    if (!heap_of(&h, args, n, 2, max))
        return PyObject_Vectorcall(original, args, n, NULL);
    if ((h.tx != NULL && open_whole_read(h.tx, h.list) < 0) || (PyList_GET_SIZE(h.list) > 0 && log_item(&h, 0) < 0))
        return NULL;
    PyObject *result;
    Py_BEGIN_CRITICAL_SECTION(h.list);
    result = measure(&h) == 0 ? PyObject_Vectorcall(original, args, n, NULL) : replace_root(&h, args[1]);
    Py_END_CRITICAL_SECTION();
    return result;
}

/* Does the value come back at once, since nothing comes before it? Else `root` is what does; if it is that already, nothing is compared. -1
 * on error. */
static int
comes_back(Heap *h, PyObject *value, PyObject **root)
{
    PyObject *first = measure(h) == 0 ? NULL : item(h, 0);
    if (first != NULL && first == *root)
        return 0;
    int r = first == NULL ? 0 : before(h, first, value);
    if (r < 0 && PyList_GET_SIZE(h->list) == 0 && PyErr_ExceptionMatches(PyExc_RuntimeError))
        PyErr_SetString(PyExc_IndexError, "index out of range");
    if (r > 0)
        *root = item(h, 0);
    return r < 0 ? -1 : !r;
}

static PyObject *
heap_push_pop(PyObject *original, PyObject *const *args, Py_ssize_t n, bool max)
{
    Heap h;
    if (!heap_of(&h, args, n, 2, max))
        return PyObject_Vectorcall(original, args, n, NULL);
    if (h.tx != NULL && open_whole_read(h.tx, h.list) < 0)
        return NULL;
    PyObject *root = NULL, *result = NULL;
    int r;
    Py_BEGIN_CRITICAL_SECTION(h.list);
    r = comes_back(&h, args[1], &root);
    Py_XINCREF(root);
    Py_END_CRITICAL_SECTION();
    if (r == 0 && log_item(&h, 0) == 0) {       /* which may wait, and a thread changes the heap meanwhile */
        Py_BEGIN_CRITICAL_SECTION(h.list);
        PyObject *now = root;
        r = comes_back(&h, args[1], &now);
        result = r == 0 ? replace_root(&h, args[1]) : NULL;
        Py_END_CRITICAL_SECTION();
    }
    Py_XDECREF(root);
    return r > 0 ? Py_NewRef(args[1]) : result;
}

static PyObject *
heap_make(PyObject *original, PyObject *const *args, Py_ssize_t n, bool max)
{
    Heap h;
    if (!heap_of(&h, args, n, 1, max))
        return PyObject_Vectorcall(original, args, n, NULL);
    if (h.tx != NULL && open_whole_write(h.tx, h.list) < 0)
        return NULL;
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(h.list);
    for (Py_ssize_t i = measure(&h) / 2; --i >= 0 && r == 0;)
        r = sink(&h, i);
    Py_END_CRITICAL_SECTION();
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

#define HEAP_TWIN(function, max) \
    static PyObject *function##_##max(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) \
    { \
        return kwnames == NULL ? function(original, args, n, max) : PyObject_Vectorcall(original, args, n, kwnames); \
    }
HEAP_TWIN(heap_push, false)
HEAP_TWIN(heap_push, true)
HEAP_TWIN(heap_pop, false)
HEAP_TWIN(heap_pop, true)
HEAP_TWIN(heap_replace, false)
HEAP_TWIN(heap_replace, true)
HEAP_TWIN(heap_push_pop, false)
HEAP_TWIN(heap_push_pop, true)
HEAP_TWIN(heap_make, false)
HEAP_TWIN(heap_make, true)

/* ---- Counting ------------------------------------------------------------------------------ */

static bool
has_method(PyObject *obj, const char *name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(obj), name);
    PyErr_Clear();
    bool same = found == wanted;
    Py_XDECREF(found);
    return same;
}

/* Count the elements in a dict whose methods are those of dict. */
static PyObject *
count_elements(PyObject *original, PyObject *const *args, Py_ssize_t n)
{
    static PyObject *get, *setitem, *one;
    if (get == NULL) {
        setitem = PyObject_GetAttrString((PyObject *)&PyDict_Type, "__setitem__");
        one = PyLong_FromLong(1);
        get = PyObject_GetAttrString((PyObject *)&PyDict_Type, "get");
    }
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(original, args, n, NULL);
    if (n != 2 || !PyDict_Check(args[0]) || !has_method(args[0], "get", get)
        || !has_method(args[0], "__setitem__", setitem)) {
        if (exclusive_for(tx, "counting in", n ? args[0] : NULL) < 0)
            return NULL;
        return PyObject_Vectorcall(original, args, n, NULL);
    }
    PyObject *counts = args[0];
    PyObject *it = open_iter(tx, args[1]) < 0 ? NULL : PyObject_GetIter(args[1]);
    if (it == NULL || (tx->open && open_iter(tx, it) < 0)) {
        Py_XDECREF(it);
        return NULL;
    }
    PyObject *element;
    while ((element = PyIter_Next(it)) != NULL) {
        PyObject *old = NULL, *sum = NULL;
        int r = tx->open ? open_key_write(tx, counts, element, false) : 0;
        if (r == 0)
            r = PyDict_GetItemRef(counts, element, &old);
        if (r >= 0) {
            sum = old == NULL ? Py_NewRef(one) : PyNumber_Add(old, one);
            r = sum == NULL ? -1 : PyDict_SetItem(counts, element, sum);
        }
        Py_XDECREF(old);
        Py_XDECREF(sum);
        Py_DECREF(element);
        if (r < 0)
            break;
    }
    Py_DECREF(it);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- Guarded calls ------------------------------------------------------------------------------
 * The original does the work itself, so that each step comes in its order and an exception leaves
 * what it always leaves; what it takes from iterables, and what the functions that it was given
 * return, is opened on the way. */

typedef enum {
    AS_IT_IS = 0,
    LOOKED_AT,              /* compared, added, copied */
    LOOKED_AT_UNLESS_KEYED, /* the same, unless a `key` is given, of which the results are */
    ITEMS_PASSED_ON,        /* an iterable: what becomes of its items */
    ITEMS_TESTED,
    ITEMS_LOOKED_AT,
    ITEMS_LOOKED_AT_UNLESS_KEYED,
    FUNCTION,               /* its results are passed on */
    SORTED,                 /* a list that is changed */
} Part;

typedef struct {
    Part parts[3];          /* of the positional arguments; more are like the last */
    Part one;               /* what the only positional argument is, where that is different */
    const char *keyword;    /* an argument beside `key` that is LOOKED_AT */
} Guarding;

typedef bool (*Simple)(PyObject *o);

static bool
are_simple(PyObject *const *items, Py_ssize_t n, Simple is_simple)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!is_simple(items[i]))
            return false;
    }
    return true;
}

/* Of a list or tuple that is open. */
static bool
holds_simple(PyObject *container, Simple is_simple)
{
    return are_simple(PySequence_Fast_ITEMS(container), PySequence_Fast_GET_SIZE(container), is_simple);
}

/* The argument, opened, or what guards it: a new reference. */
static PyObject *
guard_argument(Tx *tx, PyObject *arg, Part part, bool keyed)
{
    if (part == LOOKED_AT_UNLESS_KEYED)
        part = keyed ? AS_IT_IS : LOOKED_AT;
    if (part == ITEMS_LOOKED_AT_UNLESS_KEYED)
        part = keyed ? ITEMS_PASSED_ON : ITEMS_LOOKED_AT;
    switch (part) {
    case AS_IT_IS:
        break;
    case LOOKED_AT:
        return open_deep_read(tx, arg) < 0 ? NULL : Py_NewRef(arg);
    case ITEMS_PASSED_ON:
        if (PyList_CheckExact(arg) || PyTuple_CheckExact(arg))
            return open_whole_read(tx, arg) < 0 ? NULL : Py_NewRef(arg);
        return guarded_items(arg, USE_NOTHING);
    case ITEMS_TESTED:
        return guarded_items(arg, USE_TRUTH);
    case FUNCTION:
        return PyCallable_Check(arg) ? guarded_new(arg, USE_NOTHING) : Py_NewRef(arg);
    case SORTED:
        if (PyList_Check(arg) && (open_whole_write(tx, arg) < 0
                                  || (!keyed && !holds_simple(arg, compares_plainly) && open_deep_read(tx, arg) < 0)))
            return NULL;
        break;
    default:
        return guarded_items(arg, USE_ALL);
    }
    return Py_NewRef(arg);
}

#define MOST_GUARDED 16

static PyObject *
call_guarded(PyObject *original, const Guarding *g, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    Py_ssize_t nkw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), all = n + nkw, made = 0;
    if (tx == NULL || !tx->open)
        return PyObject_Vectorcall(original, args, n, kwnames);
    bool keyed = false;
    for (Py_ssize_t i = 0; i < nkw; i++)
        keyed |= PyUnicode_EqualToUTF8(PyTuple_GET_ITEM(kwnames, i), "key") && args[n + i] != Py_None;
    PyObject *few[MOST_GUARDED], **more = all > MOST_GUARDED ? PyMem_Malloc(all * sizeof(PyObject *)) : few;
    if (more == NULL)
        return PyErr_NoMemory();
    Py_ssize_t last = (Py_ssize_t)Py_ARRAY_LENGTH(g->parts) - 1;
    for (; made < all; made++) {
        PyObject *name = made < n ? NULL : PyTuple_GET_ITEM(kwnames, made - n);
        if (name == NULL)
            more[made] = guard_argument(tx, args[made], n == 1 && g->one ? g->one : g->parts[Py_MIN(made, last)], keyed);
        else if (keyed && PyUnicode_EqualToUTF8(name, "key"))
            more[made] = PyCallable_Check(args[made]) ? guarded_new(args[made], USE_ALL) : Py_NewRef(args[made]);
        else
            more[made] = guard_argument(
                tx, args[made], g->keyword != NULL && PyUnicode_EqualToUTF8(name, g->keyword) ? LOOKED_AT : AS_IT_IS, keyed);
        if (more[made] == NULL)
            break;
    }
    PyObject *result = made == all ? PyObject_Vectorcall(original, more, n, kwnames) : NULL;
    while (made > 0)
        Py_DECREF(more[--made]);
    if (more != few)
        PyMem_Free(more);
    return result;
}

#define GUARDED(function, ...) \
    static PyObject *function(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) \
    { \
        static const Guarding guarding = {__VA_ARGS__}; \
        return call_guarded(original, &guarding, args, n, kwnames); \
    }
GUARDED(reduce, {FUNCTION, ITEMS_PASSED_ON, AS_IT_IS})
GUARDED(sort, {SORTED})

/* The same for what is often given constants, which need no guards. */

/* False also on error. */
static bool
all_simple(Tx *tx, PyObject *const *args, Py_ssize_t n, Simple is_simple)
{
    if (n == 1 && Py_IS_TYPE(args[0], &PyRange_Type))
        return true;
    if (n == 1) {
        bool in_container = PyList_CheckExact(args[0]) || PyTuple_CheckExact(args[0]);
        return in_container && open_iter(tx, args[0]) == 0 && holds_simple(args[0], is_simple);
    }
    return are_simple(args, n, is_simple);
}

/* `receivers`: so many arguments come before what is gone over. */
#define AGGREGATE(function, receivers, is_simple, ...) \
    static PyObject *function(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) \
    { \
        static const Guarding guarding = {__VA_ARGS__}; \
        Tx *tx = stm_self; \
        bool simple = tx != NULL && tx->open && kwnames == NULL && n >= receivers && (!receivers || is_simple(args[0])) \
            && all_simple(tx, args + receivers, n - receivers, is_simple); \
        if (PyErr_Occurred()) \
            return NULL; \
        return simple ? PyObject_Vectorcall(original, args, n, NULL) \
                      : call_guarded(original, &guarding, args, n, kwnames); \
    }
AGGREGATE(test_items, 0, is_constant, {ITEMS_TESTED})
AGGREGATE(sum_up, 0, is_constant, {ITEMS_LOOKED_AT, LOOKED_AT}, .keyword = "start")
AGGREGATE(join, 1, is_constant, {LOOKED_AT, ITEMS_LOOKED_AT})
AGGREGATE(sorted_list, 0, compares_plainly, {ITEMS_LOOKED_AT_UNLESS_KEYED})
AGGREGATE(choose_item, 0, compares_plainly, {LOOKED_AT_UNLESS_KEYED, LOOKED_AT_UNLESS_KEYED, LOOKED_AT_UNLESS_KEYED},
          .one = ITEMS_LOOKED_AT_UNLESS_KEYED)

/* Nobody else knows the list. */
static PyObject *
sort_items(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *list = sorted_list(original, args, n, kwnames);
    Tx *tx = live_tx();
    if (list != NULL && tx != NULL)
        note_captured(tx, list);
    return list;
}

/* ---- Tables as text ----------------------------------------------------------------------------
 * A writer of csv's looks at all fields of a row, in the order in which they are yielded, and calls what it was made with
 * (structure.c). */

/* What is asked for attributes: those of a class change exclusively. */
static int
open_named(Tx *tx, PyObject *obj, const char *const *names, size_t n)
{
    if (is_constant(obj) || PyType_Check(obj))
        return check_doomed(tx);
    int r = 0;
    for (size_t i = 0; r == 0 && tx->open && i < n; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        r = name == NULL ? -1 : open_attr_read(tx, obj, name);
        Py_XDECREF(name);
    }
    return r;
}

/* csv.reader(lines, dialect) and csv.writer(file, dialect); parts of the dialect may be given by their names. */
static PyObject *
make_csv(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, bool writer)
{
    static const char *const write[] = {"write"};
    static const char *const parts[] = {"delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting",
                                        "skipinitialspace", "strict"};
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && n > 0 && (writer ? open_named(tx, args[0], write, 1) : open_iter(tx, args[0])) < 0)
        return NULL;
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 1; tx != NULL && tx->open && i < all; i++) {
        if (open_named(tx, args[i], parts, Py_ARRAY_LENGTH(parts)) < 0)
            return NULL;
    }
    return PyObject_Vectorcall(original, args, n, kwnames);
}

static PyObject *
make_reader(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return make_csv(original, args, n, kwnames, false);
}

static PyObject *
make_writer(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return make_csv(original, args, n, kwnames, true);
}

static PyObject *
write_fields(Tx *tx, PyObject *original, PyObject *writer, PyObject *row)
{
    PyObject *fields = NULL;
    if (!tx->open || PyList_CheckExact(row) || PyTuple_CheckExact(row)) {
        if (tx->open && open_deep_read(tx, row) < 0)
            return NULL;
        fields = Py_NewRef(row);
    }
    else {
        PyObject *it = open_iter(tx, row) < 0 ? NULL : PyObject_GetIter(row);
        if (it != NULL)
            fields = guarded_new(it, USE_ALL);
        else if (PyErr_ExceptionMatches(PyExc_TypeError)) {     /* it has a complaint of its own */
            PyErr_Clear();
            fields = Py_NewRef(row);
        }
        Py_XDECREF(it);
    }
    PyObject *result = NULL;
    if (fields != NULL && (!tx->open || open_whole_write(tx, writer) == 0))
        result = PyObject_Vectorcall(original, (PyObject *[]){writer, fields}, 2, NULL);
    Py_XDECREF(fields);
    return result;
}

static PyObject *
write_row(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open || n != 2 || kwnames != NULL)
        return PyObject_Vectorcall(original, args, n, kwnames);
    return write_fields(tx, original, args[0], args[1]);
}

static PyObject *
write_rows(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx == NULL || !tx->open || n != 2 || kwnames != NULL)
        return PyObject_Vectorcall(original, args, n, kwnames);
    PyObject *one = PyObject_GetAttrString((PyObject *)Py_TYPE(args[0]), "writerow"), *row;
    PyObject *it = one == NULL || open_iter(tx, args[1]) < 0 ? NULL : PyObject_GetIter(args[1]);
    if (it != NULL && (!tx->open || open_iter(tx, it) == 0)) {
        while ((row = PyIter_Next(it)) != NULL) {
            PyObject *result = write_fields(tx, one, args[0], row);
            Py_DECREF(row);
            if (result == NULL)
                break;
            Py_DECREF(result);
        }
    }
    Py_XDECREF(it);
    Py_XDECREF(one);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- Searching in what is sorted ------------------------------------------------------------------
 * In the steps of bisect, which opens no more items than it compares. */

typedef struct { PyObject *a, *x, *key; Py_ssize_t lo, hi; } Search;

#define TO_THE_END (-1)

/* What bisect or insort was called with: 0 if the original shall complain, -1 on error. */
static int
get_search(Search *s, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static const char *const names[] = {"a", "x", "lo", "hi", "key"};
    PyObject *given[5] = {NULL};
    if (n > 4)
        return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        given[i] = args[i];
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        int which = 0;
        while (which < 5 && !PyUnicode_EqualToUTF8(PyTuple_GET_ITEM(kwnames, i), names[which]))
            which++;
        if (which == 5 || given[which] != NULL)
            return 0;
        given[which] = args[n + i];
    }
    if (given[0] == NULL || given[1] == NULL)
        return 0;
    *s = (Search){given[0], given[1], given[4] == Py_None ? NULL : given[4], 0, TO_THE_END};
    if (given[2] != NULL) {
        PyObject *index = PyNumber_Index(given[2]);
        s->lo = index == NULL ? -1 : PyLong_AsSsize_t(index);
        Py_XDECREF(index);
        if (s->lo == -1 && PyErr_Occurred())
            return -1;
    }
    if (given[3] != NULL && given[3] != Py_None) {
        if (!PyIndex_Check(given[3])) {
            PyErr_Format(PyExc_TypeError, "argument should be integer or None, not '%.200s'", Py_TYPE(given[3])->tp_name);
            return -1;
        }
        s->hi = PyNumber_AsSsize_t(given[3], PyExc_OverflowError);
        if (s->hi == -1 && PyErr_Occurred())
            return -1;
    }
    return 1;
}

/* What the key function makes of a reference, or that itself; opened, unless it is NULL. */
static PyObject *
key_of_item(Tx *tx, PyObject *key, PyObject *item)
{
    if (item != NULL && key != NULL)
        Py_SETREF(item, stm_call(key, &item, 1, NULL));
    if (item != NULL && tx->open && open_deep_read(tx, item) < 0)
        Py_CLEAR(item);
    return item;
}

/* Where the key belongs: to the right of what is equal, or to the left; -1 on error. */
static Py_ssize_t
search(Tx *tx, Search *s, PyObject *x, bool right)
{
    Py_ssize_t lo = s->lo, hi = s->hi;
    if (lo < 0) {
        PyErr_SetString(PyExc_ValueError, "lo must be non-negative");
        return -1;
    }
    if (kind_of(tx, s->a) != &instance_kind && open_whole_read(tx, s->a) < 0)
        return -1;
    if (hi == TO_THE_END && (hi = PySequence_Size(s->a)) < 0)
        return -1;
    PySequenceMethods *methods = Py_TYPE(s->a)->tp_as_sequence;
    if (methods == NULL || methods->sq_item == NULL) {      /* which is said also where nothing is looked at */
        PyObject *item = PySequence_GetItem(s->a, 0);
        Py_XDECREF(item);
        return -1;
    }
    while (lo < hi) {
        Py_ssize_t middle = lo + (hi - lo) / 2;
        PyObject *item = key_of_item(tx, s->key, PySequence_GetItem(s->a, middle));
        int r = item == NULL ? -1
            : right ? PyObject_RichCompareBool(x, item, Py_LT) : PyObject_RichCompareBool(item, x, Py_LT);
        Py_XDECREF(item);
        if (r < 0)
            return -1;
        if (r == right)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

static PyObject *
bisect(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, bool right)
{
    Tx *tx = stm_self;
    Search s;
    int usual = tx == NULL || !tx->open ? 0 : get_search(&s, args, n, kwnames);
    if (usual <= 0)
        return usual < 0 ? NULL : PyObject_Vectorcall(original, args, n, kwnames);
    Py_ssize_t at = tx->open && open_deep_read(tx, s.x) < 0 ? -1 : search(tx, &s, s.x, right);
    return at < 0 ? NULL : PyLong_FromSsize_t(at);
}

static int
insert(Tx *tx, PyObject *a, Py_ssize_t at, PyObject *x)
{
    static PyObject *name;
    if (PyList_CheckExact(a))
        return tx->open && open_whole_write(tx, a) < 0 ? -1 : PyList_Insert(a, at, x);
    if (name == NULL)
        name = PyUnicode_InternFromString("insert");
    PyObject *method = name == NULL || (tx->open && open_attr_read(tx, a, name) < 0) ? NULL : PyObject_GetAttr(a, name);
    PyObject *index = method == NULL ? NULL : PyLong_FromSsize_t(at);
    PyObject *result = index == NULL ? NULL : stm_call(method, (PyObject *[]){index, x}, 2, NULL);
    Py_XDECREF(method);
    Py_XDECREF(index);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *
insort(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, bool right)
{
    Tx *tx = stm_self;
    Search s;
    int usual = tx == NULL || !tx->open ? 0 : get_search(&s, args, n, kwnames);
    if (usual <= 0)
        return usual < 0 ? NULL : PyObject_Vectorcall(original, args, n, kwnames);
    PyObject *x = key_of_item(tx, s.key, Py_NewRef(s.x));
    Py_ssize_t at = x == NULL ? -1 : search(tx, &s, x, right);
    Py_XDECREF(x);
    return at < 0 || insert(tx, s.a, at, s.x) < 0 ? NULL : Py_NewRef(Py_None);
}

#define SEARCH_TWIN(function, right) \
    static PyObject *function##_##right(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) \
    { \
        return function(original, args, n, kwnames, right); \
    }
SEARCH_TWIN(bisect, false)
SEARCH_TWIN(bisect, true)
SEARCH_TWIN(insort, false)
SEARCH_TWIN(insort, true)

/* ---- Short ways ---------------------------------------------------------------------------------
 * What is simple is left to the original, once it has been opened, and anything else to a
 * stand-in in Python: `pair` is the original and that. */

static PyObject *
ways(PyObject *pair, int which)
{
    return PyTuple_GET_ITEM(pair, which);
}

static int
put_row(Tx *tx, PyObject *dict, PyObject *row, Py_ssize_t number, PyObject *as_pair)
{
    bool usual = PyTuple_CheckExact(row) || PyList_CheckExact(row);
    if (usual && tx->open && open_whole_read(tx, row) < 0)
        return -1;
    if (usual && PySequence_Fast_GET_SIZE(row) == 2) {
        PyObject *key = Py_NewRef(PySequence_Fast_GET_ITEM(row, 0)), *value = Py_NewRef(PySequence_Fast_GET_ITEM(row, 1));
        int r = PyDict_SetItem(dict, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
        return r;
    }
    PyObject *args[] = {PyLong_FromSsize_t(number), row};
    PyObject *made = args[0] != NULL ? stm_call(as_pair, args, 2, NULL) : NULL;
    int r = made != NULL ? PyDict_SetItem(dict, PyTuple_GET_ITEM(made, 0), PyTuple_GET_ITEM(made, 1)) : -1;
    Py_XDECREF(args[0]);
    Py_XDECREF(made);
    return r;
}

/* Of what yields pairs; as_pair(i, row) makes such a tuple of a row that is neither a list nor a tuple, or complains. */
static PyObject *
dict_of_rows(Tx *tx, PyObject *rows, PyObject *as_pair)
{
    PyObject *it = open_iter(tx, rows) < 0 ? NULL : PyObject_GetIter(rows), *dict = NULL, *row;
    if (it != NULL && (!tx->open || open_iter(tx, it) == 0) && (dict = PyDict_New()) != NULL) {
        for (Py_ssize_t i = 0; (row = PyIter_Next(it)) != NULL; i++) {
            int r = put_row(tx, dict, row, i, as_pair);
            Py_DECREF(row);
            if (r < 0)
                break;
        }
        if (PyErr_Occurred())
            Py_CLEAR(dict);
    }
    Py_XDECREF(it);
    return dict;
}

/* dict(...) from nothing, from a dict, from pairs */
static PyObject *
make_dict(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    PyObject *result;
    bool alone = n == 1 && kwnames == NULL && tx != NULL && tx->open;
    if (alone && (PyList_CheckExact(args[0]) || PyTuple_CheckExact(args[0]) || kind_of(tx, args[0]) == &iterator_kind
                  || kind_of(tx, args[0]) == &generator_kind))
        result = dict_of_rows(tx, args[0], PyTuple_GET_ITEM(pair, 2));
    else if (tx == NULL || !tx->open || n == 0 || PyDict_CheckExact(args[0])) {
        if (n > 0 && tx != NULL && tx->open && open_whole_read(tx, args[0]) < 0)
            return NULL;
        result = PyObject_Vectorcall(ways(pair, 0), args, n, kwnames);
    }
    else
        return stm_call(ways(pair, 1), args, n, kwnames);
    if (result != NULL && tx != NULL && tx->live)
        note_captured(tx, result);
    return result;
}

/* str.format() where no field looks inside an argument; which formats are such is remembered. */
static PyObject *
format_text(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    int simple = tx == NULL || !tx->open || n == 0 || !PyUnicode_CheckExact(args[0]);
    if (!simple)
        simple = PyDict_Contains(PyTuple_GET_ITEM(pair, 2), args[0]);
    if (simple < 0)
        return NULL;
    if (!simple)
        return stm_call(ways(pair, 1), args, n, kwnames);
    Py_ssize_t all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 1; tx != NULL && tx->open && i < all; i++) {
        if (open_deep_read(tx, args[i]) < 0)
            return NULL;
    }
    return PyObject_Vectorcall(ways(pair, 0), args, n, kwnames);
}

/* dict.update(...) of one that nobody else knows, by names or from a dict */
static PyObject *
update_dict(PyObject *pair, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    bool usual = n == 1 || n == 2;      /* else the original complains */
    bool own = tx != NULL && tx->open && usual && PyDict_CheckExact(args[0]) && captured(tx, args[0]);
    if (usual && !(own && (n == 1 || PyDict_CheckExact(args[1]))))
        return stm_call(ways(pair, 1), args, n, kwnames);
    if (own && n == 2 && open_whole_read(tx, args[1]) < 0)
        return NULL;
    return PyObject_Vectorcall(ways(pair, 0), args, n, kwnames);
}

#define SHORT_WAY(name, f) {name, _PyCFunction_CAST(f), METH_FASTCALL | METH_KEYWORDS, NULL}
static PyMethodDef short_ways[] = {
    SHORT_WAY("dict", make_dict),
    SHORT_WAY("format", format_text),
    SHORT_WAY("update", update_dict),
    {NULL, NULL, 0, NULL},
};

static const char *
name_of(PyObject *callable)
{
    if (PyType_Check(callable))
        return ((PyTypeObject *)callable)->tp_name;
    if (PyCFunction_Check(callable))
        return ((PyCFunctionObject *)callable)->m_ml->ml_name;
    return Py_IS_TYPE(callable, &PyMethodDescr_Type) ? ((PyMethodDescrObject *)callable)->d_method->ml_name : "";
}

PyObject *
find_twin(PyMethodDef *table, PyObject *original, PyObject *self)
{
    for (PyMethodDef *d = table; d->ml_name != NULL; d++) {
        if (strcmp(d->ml_name, name_of(original)) == 0)
            return shared_function(d, self);
    }
    return PyErr_Format(PyExc_ValueError, "no function in C stands in for %R", original);
}

/* Put a short way before a stand-in in Python. */
PyObject *
short_way(PyObject *args)
{
    return find_twin(short_ways, ways(args, 0), args);
}

/* ---- Warnings --------------------------------------------------------------------------------
 * The lock of all warnings is held by C code while it makes one and asks the filters, so no code of the program may run
 * then: it could wait for a transaction that is about to warn.  What is shown waits for the commit (patches/warned.py).  Python remembers
 * what has been shown: all that warn share that, and who has had one shown owns it, and has Python remember, as soon as C code has let go of
 * its lock; so nobody takes for shown what an attempt has warned of. */

static _Thread_local bool amid_warn;
static _Thread_local PyObject *after_warn;     /* (function, *args), or NULL */

/* Call the first of these with the others as soon as this thread's call of warn() has let go of the lock; false if it is in none. */
bool
call_after_warning(PyObject *call)
{
    if (amid_warn)
        Py_XSETREF(after_warn, Py_NewRef(call));
    return amid_warn;
}

/* Are those of the category made, compared and printed by C code alone? */
static bool
is_plain_category(PyObject *category)
{
    PyTypeObject *type = (PyTypeObject *)category, *base = (PyTypeObject *)PyExc_Warning;
    return Py_IS_TYPE(category, &PyType_Type) && PyType_IsSubtype(type, base) && type->tp_init == base->tp_init && type->tp_new == base->tp_new;
}

/* A text, or a warning that has nothing but one, and may be raised.  -1 to abort. */
static int
is_plain_warning(Tx *tx, PyObject *message, PyObject *category)
{
    if (PyUnicode_CheckExact(message))
        return category == NULL || category == Py_None || is_plain_category(category);
    PyTypeObject *type = Py_TYPE(message);
    if (!is_plain_category((PyObject *)type) || type->tp_str != ((PyTypeObject *)PyExc_Warning)->tp_str)
        return 0;
    static PyObject *args_name;
    if (args_name == NULL)
        args_name = PyUnicode_InternFromString("args");
    if (args_name == NULL || open_exception(tx, message) < 0 || open_attr_read(tx, message, args_name) < 0)
        return -1;
    PyObject *args = ((PyBaseExceptionObject *)message)->args;
    return args != NULL && PyTuple_GET_SIZE(args) == 1 && PyUnicode_CheckExact(PyTuple_GET_ITEM(args, 0));
}

static PyObject *
warn(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    PyObject *category = n > 1 ? args[1] : NULL;
    bool plain = n > 0;
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_EqualToUTF8(name, "category"))
            category = args[n + i];
        else if (!PyUnicode_EqualToUTF8(name, "stacklevel") && !PyUnicode_EqualToUTF8(name, "source"))
            plain = false;
    }
    if (tx != NULL && tx->open) {
        int known = plain ? is_plain_warning(tx, args[0], category) : 0;
        if (known < 0 || (known == 0 && exclusive_for(tx, "call of", original) < 0))
            return NULL;
    }
    if (tx == NULL || !tx->open || tx->grade == GRADE_EXCLUSIVE)
        return PyObject_Vectorcall(original, args, n, kwnames);
    if (lock_shared(tx, cell_of(original, WHOLE)) < 0)
        return NULL;
    amid_warn = true;
    PyObject *result = PyObject_Vectorcall(original, args, n, kwnames), *after = after_warn;
    amid_warn = false;
    after_warn = NULL;
    if (after != NULL && result != NULL)
        Py_SETREF(result, stm_call(PyTuple_GET_ITEM(after, 0), &PyTuple_GET_ITEM(after, 1), PyTuple_GET_SIZE(after) - 1, NULL));
    Py_XDECREF(after);
    return result;
}

/* ---- Running code ----------------------------------------------------------------------------
 * exec and eval run text, or compiled code, with barriers. In C, because the code may look at the
 * frame that called them. A namespace becomes a module's by that. */

typedef struct { PyObject *source, *globals, *locals; } Running;

/* What exec or eval was called with; false if the call is not a usual one. */
static bool
get_running(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, Running *r)
{
    PyObject *given[3] = {NULL, NULL, NULL};
    if (n < 1 || n > 3)
        return false;
    for (Py_ssize_t i = 0; i < n; i++)
        given[i] = args[i];
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i), *value = args[n + i];
        int which = PyUnicode_EqualToUTF8(name, "globals") ? 1 : PyUnicode_EqualToUTF8(name, "locals") ? 2 : 0;
        if (which == 0 ? value != Py_None : given[which] != NULL)
            return false;       /* a closure; or it will complain */
        if (which != 0)
            given[which] = value;
    }
    *r = (Running){given[0], given[1] == Py_None ? NULL : given[1], given[2] == Py_None ? NULL : given[2]};
    return true;
}

#define LONG_TEXT 10000
#define COMPILED_TEXTS 500

/* Compiled text: the same text gives the same code, whose globals are known by then. */
static PyObject *
compiled(PyObject *text, int start)
{
    static PyObject *texts;             /* (text, start, flags) -> code */
    static Latch making;
    latch_take(&making);
    if (texts == NULL)
        texts = PyDict_New();
    latch_give(&making);
    Py_ssize_t size;
    const char *p = PyUnicode_AsUTF8AndSize(text, &size);
    if (p == NULL || texts == NULL)
        return NULL;
    PyCompilerFlags flags = {PyCF_SOURCE_IS_UTF8 | PyCF_IGNORE_COOKIE, PY_MINOR_VERSION};
    PyEval_MergeCompilerFlags(&flags);
    PyObject *key = Py_BuildValue("Oii", text, start, flags.cf_flags), *code = NULL;
    if (key != NULL && PyDict_GetItemRef(texts, key, &code) == 0) {
        while (start == Py_eval_input && (*p == ' ' || *p == '\t'))
            p++;
        code = Py_CompileStringExFlags(p, "<string>", start, &flags, -1);
        if (code != NULL && size < LONG_TEXT) {
            if (PyDict_GET_SIZE(texts) >= COMPILED_TEXTS)
                PyDict_Clear(texts);
            if (PyDict_SetItem(texts, key, code) < 0)
                Py_CLEAR(code);
        }
    }
    Py_XDECREF(key);
    return code;
}

/* Can the text be compiled by us? */
static bool
is_plain_text(PyObject *source)
{
    if (!PyUnicode_CheckExact(source))
        return false;
    Py_ssize_t size;
    const char *p = PyUnicode_AsUTF8AndSize(source, &size);
    PyErr_Clear();
    return p != NULL && strlen(p) == (size_t)size;
}

/* Builtins of its own that nobody else can change: none, or made in this transaction. */
static bool
has_usual_builtins(Tx *tx, PyObject *globals)
{
    PyObject *builtins = PyDict_GetItemString(globals, "__builtins__");
    return builtins == NULL || PyModule_Check(builtins) || builtins == PyEval_GetBuiltins()
        || (PyDict_CheckExact(builtins) && captured(tx, builtins));
}

/* Have code run with these globals, into which exec and eval put the builtins. */
static int
open_globals(Tx *tx, PyObject *globals)
{
    static PyObject *builtins_name;
    if (builtins_name == NULL)
        builtins_name = PyUnicode_InternFromString("__builtins__");
    if (open_as_globals(tx, globals) < 0)
        return -1;
    if (!tx->open || captured(tx, globals))
        return 0;
    /* Who has put them there just now may be rolled back. */
    if (lock_key_shared(tx, globals, attr_cell(globals, builtins_name)) < 0)
        return -1;
    int there = PyDict_Contains(globals, builtins_name);
    return there < 0 || (!there && open_key_write(tx, globals, builtins_name, false) < 0) ? -1 : 0;
}

/* The globals that the code rebinds are known before it runs. */
static int
see_code(Tx *tx, PyObject *code, PyObject *globals)
{
    tx_pause(tx);
    PyObject *seen = PyObject_CallFunctionObjArgs(stm_register_module, globals, code, NULL);
    tx_resume(tx);
    Py_XDECREF(seen);
    return seen == NULL ? -1 : 0;
}

/* Run it as transactional code. NULL without an exception if that cannot be done. */
static PyObject *
run_transactional(Tx *tx, PyObject *original, Running r, int start)
{
    PyObject *locals = NULL, *code = NULL, *result = NULL;
    if (r.globals == NULL) {
        r.globals = PyEval_GetGlobals();
        if (r.locals == NULL) {
            if (tx->open && open_locals(tx) < 0)
                return NULL;
            r.locals = locals = PyEval_GetFrameLocals();
        }
    }
    else if (r.locals == NULL)
        r.locals = r.globals;
    bool usual = r.globals != NULL && r.locals != NULL && PyDict_CheckExact(r.globals) && PyDict_CheckExact(r.locals)
        && (PyCode_Check(r.source) || is_plain_text(r.source));
    if (usual && PyCode_Check(r.source) && PyCode_GetNumFree((PyCodeObject *)r.source) > 0)
        usual = false;          /* it will complain */
    if (usual && (!tx->open || open_globals(tx, r.globals) == 0) && has_usual_builtins(tx, r.globals))
        code = PyCode_Check(r.source) ? Py_NewRef(r.source) : compiled(r.source, start);
    if (code != NULL && see_code(tx, code, r.globals) == 0)
        result = PyObject_CallFunctionObjArgs(original, code, r.globals, r.locals, NULL);
    Py_XDECREF(code);
    Py_XDECREF(locals);
    return result;
}

static PyObject *
run_code(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, int start)
{
    Tx *tx = stm_self;
    Running r;
    if (tx == NULL || !tx->live)
        return PyObject_Vectorcall(original, args, n, kwnames);
    if (get_running(args, n, kwnames, &r)) {
        PyObject *result = run_transactional(tx, original, r, start);
        if (result != NULL || PyErr_Occurred())
            return result;
    }
    if (exclusive_for(tx, "what the engine does not understand is run by", original) < 0)
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

static PyObject *
run_statements(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return run_code(original, args, n, kwnames, Py_file_input);
}

static PyObject *
run_expression(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return run_code(original, args, n, kwnames, Py_eval_input);
}

/* ---- Imports ---------------------------------------------------------------------------------
 * In C, because a module that warns while it is imported names the frame that called __import__. */

/* Are the module and these attributes of it there, so that importing them changes nothing? */
static bool
is_imported(PyObject *name, PyObject *attributes)
{
    PyObject *module = PyUnicode_Check(name) ? PyImport_GetModule(name) : NULL;
    bool there = module != NULL && PyModule_Check(module)
        && (attributes == NULL || attributes == Py_None || PyTuple_CheckExact(attributes)
            || PyList_CheckExact(attributes));
    PyObject *each = NULL;
    if (there && attributes != NULL && attributes != Py_None)
        each = PySequence_Tuple(attributes);
    for (Py_ssize_t i = 0; there && each != NULL && i < PyTuple_GET_SIZE(each); i++) {
        PyObject *attribute = PyTuple_GET_ITEM(each, i);
        there = PyUnicode_Check(attribute) && PyDict_Contains(PyModule_GetDict(module), attribute) == 1;
    }
    Py_XDECREF(each);
    Py_XDECREF(module);
    PyErr_Clear();
    return there;
}

/* What that names where the globals are, a reference; NULL without an exception if that cannot be told without importing it. */
static PyObject *
imported_name(Tx *tx, PyObject *name, PyObject *globals, PyObject *attributes, PyObject *level)
{
    if (!PyUnicode_Check(name))
        return NULL;
    if (level == NULL || (PyLong_CheckExact(level) && PyLong_IsZero(level)))
        return Py_NewRef(name);
    /* Without attributes, what is given is the module of a part of the name. */
    bool usual = PyLong_CheckExact(level) && globals != NULL && PyDict_CheckExact(globals) && attributes != NULL
        && (PyTuple_CheckExact(attributes) || PyList_CheckExact(attributes)) && PySequence_Fast_GET_SIZE(attributes) > 0;
    long up = usual ? PyLong_AsLong(level) : 0;
    static PyObject *package_name, *spec_name;
    if (package_name == NULL)
        package_name = PyUnicode_InternFromString("__package__");
    if (spec_name == NULL)
        spec_name = PyUnicode_InternFromString("__spec__");
    if (up <= 0) {
        PyErr_Clear();          /* it will complain */
        return NULL;
    }
    if (open_key_read(tx, globals, package_name) < 0 || open_key_read(tx, globals, spec_name) < 0)
        return NULL;
    return full_module_name(globals, name, up);
}

/* __import__(name, globals, locals, fromlist, level) */
static PyObject *
import_module(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    PyObject *globals = n > 1 ? args[1] : NULL, *attributes = n > 3 ? args[3] : NULL, *level = n > 4 ? args[4] : NULL;
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "globals") == 0)
            globals = args[n + i];
        else if (PyUnicode_CompareWithASCIIString(name, "fromlist") == 0)
            attributes = args[n + i];
        else if (PyUnicode_CompareWithASCIIString(name, "level") == 0)
            level = args[n + i];
    }
    if (tx != NULL && tx->open && attributes != NULL && open_whole_read(tx, attributes) < 0)
        return NULL;
    if (tx != NULL && tx->open) {
        PyObject *full = n > 0 ? imported_name(tx, args[0], globals, attributes, level) : NULL;
        if (PyErr_Occurred() || (full != NULL && open_module_name(tx, full) < 0)) {
            Py_XDECREF(full);
            return NULL;
        }
        bool there = full != NULL && is_imported(full, attributes);
        Py_XDECREF(full);
        if (!there && exclusive_for(tx, "an import", NULL) < 0)
            return NULL;
    }
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* _imp.acquire_lock(): what importlib imports, or looks for, without calling __import__(). */
static PyObject *
begin_import(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Tx *tx = stm_self;
    if (tx != NULL && tx->open && exclusive_for(tx, "an import", NULL) < 0)
        return NULL;
    return PyObject_Vectorcall(original, args, n, kwnames);
}

/* ---- The table -------------------------------------------------------------------------------- */

/* The original complains of keywords. */
#define WITHOUT_KEYWORDS(name, f) \
    static PyObject *name(PyObject *original, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) \
    { \
        return kwnames == NULL ? f(original, args, n) : PyObject_Vectorcall(original, args, n, kwnames); \
    }
WITHOUT_KEYWORDS(count, count_elements)
WITHOUT_KEYWORDS(cache_info, lru_info)
WITHOUT_KEYWORDS(cache_clear, lru_clear)

#define TWIN(name, f) {name, _PyCFunction_CAST(f), METH_FASTCALL | METH_KEYWORDS, NULL}
static PyMethodDef twins[] = {
    TWIN("heappush", heap_push_false),
    TWIN("heappop", heap_pop_false),
    TWIN("heapreplace", heap_replace_false),
    TWIN("heappushpop", heap_push_pop_false),
    TWIN("heapify", heap_make_false),
    TWIN("heappush_max", heap_push_true),
    TWIN("heappop_max", heap_pop_true),
    TWIN("heapreplace_max", heap_replace_true),
    TWIN("heappushpop_max", heap_push_pop_true),
    TWIN("heapify_max", heap_make_true),
    TWIN("_count_elements", count),
    TWIN("cache_info", cache_info),
    TWIN("cache_clear", cache_clear),
    TWIN("_abc_subclasscheck", check_subclass),
    TWIN("__subclasses__", subclasses),
    TWIN("all", test_items),
    TWIN("any", test_items),
    TWIN("bisect_left", bisect_false),
    TWIN("bisect_right", bisect_true),
    TWIN("insort_left", insort_false),
    TWIN("insort_right", insort_true),
    TWIN("join", join),
    TWIN("max", choose_item),
    TWIN("min", choose_item),
    TWIN("reduce", reduce),
    TWIN("sort", sort),
    TWIN("sorted", sort_items),
    TWIN("sum", sum_up),
    TWIN("prod", sum_up),
    TWIN("warn", warn),
    TWIN("reader", make_reader),
    TWIN("writer", make_writer),
    TWIN("writerow", write_row),
    TWIN("writerows", write_rows),
    TWIN("exec", run_statements),
    TWIN("eval", run_expression),
    TWIN("__import__", import_module),
    TWIN("acquire_lock", begin_import),
    {NULL, NULL, 0, NULL},
};

/* The twin of that C function or method, or NULL with an exception. */
PyObject *
c_twin(PyObject *original)
{
    return find_twin(twins, original, original);
}
