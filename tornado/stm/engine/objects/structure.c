/* C objects whose state is their structure: above all iterators.
 *
 * Such an object is owned before C code uses it, and its memory is copied.  A
 * rollback lets the copy and the memory change places; what the undo log holds
 * then is dropped with it.  The copy has references of its own: the type's
 * traversal finds them.  The table of layouts tells what cannot be found so:
 * memory and containers that only this object knows (they are copied too), references
 * that the type does not traverse, a structure that does not end with its state.
 *
 * An iterator is made of others, and of what it calls.  It is opened with all of
 * these, as the layout says.  Where it is C code that looks at what these return (the
 * truth of it, its items), a guard goes in between (callbacks.c), in the place of
 * the original: nobody else can tell them apart.  A type without a layout has its
 * containers opened, and may not call anything but what is free of effects.
 *
 * The structures are private to CPython.  A layout applies to a type of that name and
 * size; a type whose size is another one is unknown.
 *
 * What a rollback takes back must still be there then, whatever the attempt has freed,
 * replaced or set to NULL meanwhile.  Why it is, for each type that effects.py registers:
 *
 *   references       The copy has its own, so that an iterator may let go of what it goes over,
 *                    or take another one: all those of lists, tuples, strings, bytes, dicts,
 *                    OrderedDicts, sets, deques, arrays, memoryviews and sequences, reversed(),
 *                    iter(function, sentinel), map, filter, chain, islice, compress, takewhile,
 *                    dropwhile, filterfalse, starmap, repeat, count, batched, accumulate,
 *                    groupby, tee, longrange_iterator, the awaitables of asynchronous
 *                    generators and of coroutines, the views of dicts.
 *   results          kept to be used again (zip, zip_longest, enumerate, pairwise, product,
 *                    combinations, permutations, the items of dicts and OrderedDicts):
 *                    written in place only while nobody else refers to them. The copy does.
 *   own containers   cycle's list grows, zip_longest's tuple gets gaps: the copy has others.
 *   own memory       the indices of product, combinations and permutations keep their size and
 *                    die with the iterator; both structures have some, and free their own.
 *                    What csv collects a field or a record in is used by a call from its beginning
 *                    on, and moves when it grows: it stays with the object.
 *   others' memory   Iterators over a contextvars.Context point into nodes that their first
 *                    field keeps, those of a format string into that string, those over a
 *                    memoryview to a constant. One over a deque looks into its block only
 *                    while the deque's count of changes is the one that it knows, and
 *                    that is put back together with the blocks (deque.c).
 *   borrowed         groupby only compares the address of its current group; the number 1
 *                    of enumerate is immortal; the state of a module outlives its types.
 *   numbers          range_iterator, _random.Random.
 *   decimal.Context  Its dicts of signals point into this very object, which does not move.
 *                    Its attributes are written exclusively only.
 *   COPIED      The library's memory (zlib, OpenSSL, HACL) is replaced by nobody, but zlib's
 *                    is freed and its pointer NULL when a stream ends. copy() makes
 *                    memory of its own, and each structure frees what it has in the end, or
 *                    nothing. The locks that C code holds meanwhile are taken, and stay.
 *   STATED      BytesIO and StringIO reallocate their memory with each write: they are
 *                    filled again, not copied. Not what `__getstate__` does not tell of:
 *                    memory that others write to, a decoder of line ends. Not their
 *                    attributes: these have undo entries of their own.
 */
#include "structure.h"

#include "../calls/callbacks.h"
#include "../calls/calls.h"
#include "access.h"
#include "deep.h"
#include "known.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_hamt.h"

PyObject *stm_add;
PyObject *stm_unordered;

/* ---- Layouts ----------------------------------------------------------------------- */

typedef struct { PyObject_HEAD PyObject *it; Py_ssize_t size; bool strict; } Batched;
typedef struct { PyObject_HEAD PyObject *it, *old, *result; } Pairwise;
typedef struct { PyObject_HEAD PyObject *it, *keyfunc, *target, *key, *value; const void *grouper; void *state; } GroupBy;
typedef struct { PyObject_HEAD PyObject *parent, *target; } Grouper;
typedef struct { PyObject_HEAD PyObject *it; int read, running; PyObject *next, *values[57]; } TeeData;
typedef struct { PyObject_HEAD PyObject *data; int index; PyObject *weakrefs; void *state; } Tee;
typedef struct { PyObject_HEAD PyObject *it, *saved; Py_ssize_t index; } Cycle;
typedef struct { PyObject_HEAD PyObject *function, *it; long flag; } While;
typedef struct { PyObject_HEAD PyObject *it; Py_ssize_t next, stop, step, count; } ISlice;
typedef struct { PyObject_HEAD PyObject *function, *it; } Filter;
typedef struct { PyObject_HEAD PyObject *source, *active; } Chain;
typedef struct { PyObject_HEAD PyObject *pools; Py_ssize_t *indices; PyObject *result; int stopped; } Product;
typedef struct { PyObject_HEAD PyObject *pool; Py_ssize_t *indices; PyObject *result; Py_ssize_t r; int stopped; } Combinations;
typedef struct {
    PyObject_HEAD
    PyObject *pool;
    Py_ssize_t *indices, *cycles;
    PyObject *result;
    Py_ssize_t r;
    int stopped;
} Permutations;
typedef struct { PyObject_HEAD PyObject *total, *it, *function, *initial; void *state; } Accumulate;
typedef struct { PyObject_HEAD PyObject *data, *selectors; } Compress;
typedef struct { PyObject_HEAD Py_ssize_t count; PyObject *number, *step; } Count;
typedef struct { PyObject_HEAD PyObject *element; Py_ssize_t count; } Repeat;
typedef struct { PyObject_HEAD Py_ssize_t n, active; PyObject *iterators, *result, *fill; } ZipLongest;
typedef struct { PyObject_HEAD Py_ssize_t n; PyObject *iterators, *result; int strict; } Zip;
typedef struct { PyObject_HEAD PyObject *iterators, *function; int strict; } Map;
typedef struct { PyObject_HEAD Py_ssize_t index; PyObject *it, *result, *number, *one; } Enumerate;
typedef struct { PyObject_HEAD PyObject *function, *sentinel; } CallIter;
typedef struct { PyObject_HEAD PyObject *start, *step, *length; } LongRangeIter;
typedef struct { PyObject_HEAD long start, step, length; } RangeIter;
typedef struct { PyObject_HEAD int index; uint32_t state[624]; } RandomState;
typedef struct {
    PyObject_HEAD
    PyObject *buffer;
    Py_ssize_t position, size;
    PyObject *dict, *weakrefs;
    Py_ssize_t exports;
    int buffer_shared;
} BytesIO;
typedef struct {
    PyObject_HEAD
    void *buffer;
    Py_ssize_t position, size;
    size_t allocated;
    int state;
    void *writer;
    char initialised, closed, universal, translating;
    PyObject *decoder, *read_end, *written_end, *dict, *weakrefs;
    void *module;
} StringIO;

typedef struct {
    PyObject_HEAD
    PyObject *markers, *fallback, *encoder, *indent, *key_separator, *item_separator;
    char sort_keys, skip_keys;
    int allow_nan;
    void *fast_encode;
} Encoder;

typedef struct { PyObject_HEAD PyObject *text; void *piece; Py_ssize_t start, end; } FormatIter;
typedef struct { PyObject_HEAD PyObject *text; void *piece; Py_ssize_t start, end, index; } FieldIter;
/* With the beginning of zlib's z_stream, whose `state` points to memory that points back. */
typedef struct {
    PyObject_HEAD
    void *next_in;
    unsigned int in;
    unsigned long total_in;
    void *next_out;
    unsigned int out;
    unsigned long total_out;
    void *message, *state, *functions[3];
    int kind;
    unsigned long adler, reserved;
    PyObject *unused, *unconsumed;
    char eof;
    bool is_initialised;
    PyObject *dictionary;
    void *lock;
} ZlibObject;
typedef struct {
    PyObject_HEAD
    PyObject *lines, *dialect, *fields;
    int state;
    void *field;
    Py_ssize_t allocated, length;
    bool unquoted;
    unsigned long line;
} CsvReader;
typedef struct {
    PyObject_HEAD
    PyObject *write, *dialect;
    void *record;
    Py_ssize_t allocated, length;
    int n_fields;
    PyObject *error;
} CsvWriter;
typedef struct { PyObject_HEAD void *context; bool use_mutex; PyMutex mutex; } HashObject;
typedef struct { PyObject_HEAD void *state; int implementation; bool use_mutex; PyMutex mutex; } Blake2;
typedef struct { PyObject_HEAD bool use_mutex; PyMutex mutex; void *state; } MD5OrSHA3;
typedef struct { PyObject_HEAD bool use_mutex; PyMutex mutex; void *lock, *state; } SHA1;
typedef struct { PyObject_HEAD int size; bool use_mutex; PyMutex mutex; void *state; } SHA2;

typedef enum {
    NO_PART = 0,
    ADVANCED,           /* an iterator, or a tuple of iterators */
    PARSES,             /* a function that is given a string; its results are passed on */
    CALLED,             /* a function whose results are passed on */
    ASKED,              /* a function; the truth of its results counts */
    COMPARED,           /* a function whose results are compared */
    SPREAD,             /* an iterator over iterables */
    TESTED,             /* an iterator; the truth of its items counts */
    LOOKED_AT,          /* an object to compare with */
    PRINTED,            /* an object that the text of the iterator has */
    REFERENCE,          /* a reference that the type does not traverse */
    COPIED_LIST,           /* a list that nobody else knows */
    COPIED_TUPLE,          /* a tuple that is changed in place */
    COPIED_PER_ITEM,       /* memory: a Py_ssize_t for each item of the tuple at `count` */
    COPIED_COUNTED,        /* memory: as many Py_ssize_t as the number at `count` says */
    POINTED_BACK,       /* memory whose first word is the address of what follows the object's head; or NULL */
    STAYS,              /* `count` bytes: memory that is used during a call only, and how much it is; or the mutex of such a call */
    MUST_BE_ZERO,       /* a number or address; where it is not 0, there is state that only others know */
} Role;

typedef struct {
    size_t at;
    Role role;
    size_t count;
} Part;

typedef struct {
    const char *name;
    size_t size;
    size_t end;         /* of the state, where the structure goes on after it */
    size_t mutex, lock; /* that C code holds while it uses the state: a PyMutex, a PyThread_type_lock */
    bool untraversed;
    Part parts[5];
    PyTypeObject *type; /* when registered */
} Layout;

#define AT(type, field) offsetof(type, field)
#define HASH_OF_HACL(name, type) \
    {name, sizeof(type), .mutex = AT(type, mutex), .parts = {{AT(type, use_mutex), STAYS, AT(type, state) - AT(type, use_mutex)}}}
static Layout layouts[] = {
    {"map", sizeof(Map), .parts = {{AT(Map, iterators), ADVANCED}, {AT(Map, function), CALLED}}},
    {"filter", sizeof(Filter), .parts = {{AT(Filter, it), ADVANCED}, {AT(Filter, function), ASKED}}},
    {"zip", sizeof(Zip), .parts = {{AT(Zip, iterators), ADVANCED}}},
    {"enumerate", sizeof(Enumerate), .parts = {{AT(Enumerate, it), ADVANCED}}},
    {"callable_iterator", sizeof(CallIter), .parts = {
        {AT(CallIter, function), COMPARED}, {AT(CallIter, sentinel), LOOKED_AT}}},
    {"range_iterator", sizeof(RangeIter), .untraversed = true},
    {"longrange_iterator", sizeof(LongRangeIter), .untraversed = true, .parts = {
        {AT(LongRangeIter, start), REFERENCE}, {AT(LongRangeIter, step), REFERENCE},
        {AT(LongRangeIter, length), REFERENCE}}},
    {"itertools.accumulate", sizeof(Accumulate), .parts = {
        {AT(Accumulate, it), ADVANCED}, {AT(Accumulate, function), CALLED}}},
    {"itertools.batched", sizeof(Batched), .parts = {{AT(Batched, it), ADVANCED}}},
    {"itertools.chain", sizeof(Chain), .parts = {{AT(Chain, source), SPREAD}, {AT(Chain, active), ADVANCED}}},
    {"itertools.combinations", sizeof(Combinations), .parts = {
        {AT(Combinations, indices), COPIED_COUNTED, AT(Combinations, r)}}},
    {"itertools.combinations_with_replacement", sizeof(Combinations), .parts = {
        {AT(Combinations, indices), COPIED_COUNTED, AT(Combinations, r)}}},
    {"itertools.compress", sizeof(Compress), .parts = {
        {AT(Compress, data), ADVANCED}, {AT(Compress, selectors), TESTED}}},
    {"itertools.count", sizeof(Count)},
    {"itertools.cycle", sizeof(Cycle), .parts = {{AT(Cycle, it), ADVANCED}, {AT(Cycle, saved), COPIED_LIST}}},
    {"itertools.dropwhile", sizeof(While), .parts = {{AT(While, it), ADVANCED}, {AT(While, function), ASKED}}},
    {"itertools.filterfalse", sizeof(Filter), .parts = {{AT(Filter, it), ADVANCED}, {AT(Filter, function), ASKED}}},
    {"itertools.groupby", sizeof(GroupBy), .parts = {
        {AT(GroupBy, it), ADVANCED}, {AT(GroupBy, keyfunc), COMPARED},
        {AT(GroupBy, target), LOOKED_AT}, {AT(GroupBy, key), LOOKED_AT}}},
    {"itertools._grouper", sizeof(Grouper), .parts = {
        {AT(Grouper, parent), ADVANCED}, {AT(Grouper, target), LOOKED_AT}}},
    {"itertools.islice", sizeof(ISlice), .parts = {{AT(ISlice, it), ADVANCED}}},
    {"itertools.pairwise", sizeof(Pairwise), .parts = {{AT(Pairwise, it), ADVANCED}}},
    {"itertools.permutations", sizeof(Permutations), .parts = {
        {AT(Permutations, indices), COPIED_PER_ITEM, AT(Permutations, pool)},
        {AT(Permutations, cycles), COPIED_COUNTED, AT(Permutations, r)}}},
    {"itertools.product", sizeof(Product), .parts = {{AT(Product, indices), COPIED_PER_ITEM, AT(Product, pools)}}},
    {"itertools.repeat", sizeof(Repeat), .parts = {{AT(Repeat, element), PRINTED}}},
    {"itertools.starmap", sizeof(Filter), .parts = {{AT(Filter, it), SPREAD}, {AT(Filter, function), CALLED}}},
    {"itertools.takewhile", sizeof(While), .parts = {{AT(While, it), ADVANCED}, {AT(While, function), ASKED}}},
    {"itertools._tee", sizeof(Tee), .end = AT(Tee, weakrefs), .parts = {{AT(Tee, data), ADVANCED}}},
    {"itertools._tee_dataobject", sizeof(TeeData), .parts = {{AT(TeeData, it), ADVANCED}, {AT(TeeData, next), ADVANCED}}},
    {"itertools.zip_longest", sizeof(ZipLongest), .parts = {
        {AT(ZipLongest, iterators), ADVANCED}, {AT(ZipLongest, iterators), COPIED_TUPLE}}},
    {"keys", sizeof(PyHamtIterator)},
    {"values", sizeof(PyHamtIterator)},
    {"items", sizeof(PyHamtIterator)},
    {"formatteriterator", sizeof(FormatIter), .untraversed = true, .parts = {{AT(FormatIter, text), REFERENCE}}},
    {"fieldnameiterator", sizeof(FieldIter), .untraversed = true, .parts = {{AT(FieldIter, text), REFERENCE}}},
    {"zlib.Compress", sizeof(ZlibObject), .end = AT(ZlibObject, lock), .lock = AT(ZlibObject, lock), .parts = {
        {AT(ZlibObject, state), POINTED_BACK}}},
    {"zlib.Decompress", sizeof(ZlibObject), .end = AT(ZlibObject, lock), .lock = AT(ZlibObject, lock), .parts = {
        {AT(ZlibObject, state), POINTED_BACK}}},
    {"_hashlib.HASH", sizeof(HashObject), .end = AT(HashObject, use_mutex), .mutex = AT(HashObject, mutex)},
    {"_hashlib.HASHXOF", sizeof(HashObject), .end = AT(HashObject, use_mutex), .mutex = AT(HashObject, mutex)},
    {"_hashlib.HMAC", sizeof(HashObject), .end = AT(HashObject, use_mutex), .mutex = AT(HashObject, mutex)},
    {"_blake2.blake2b", sizeof(Blake2), .end = AT(Blake2, use_mutex), .mutex = AT(Blake2, mutex)},
    {"_blake2.blake2s", sizeof(Blake2), .end = AT(Blake2, use_mutex), .mutex = AT(Blake2, mutex)},
    HASH_OF_HACL("_md5.md5", MD5OrSHA3),
    HASH_OF_HACL("_sha1.sha1", SHA1),
    HASH_OF_HACL("_sha2.SHA224Type", SHA2),
    HASH_OF_HACL("_sha2.SHA256Type", SHA2),
    HASH_OF_HACL("_sha2.SHA384Type", SHA2),
    HASH_OF_HACL("_sha2.SHA512Type", SHA2),
    HASH_OF_HACL("_sha3.sha3_224", MD5OrSHA3),
    HASH_OF_HACL("_sha3.sha3_256", MD5OrSHA3),
    HASH_OF_HACL("_sha3.sha3_384", MD5OrSHA3),
    HASH_OF_HACL("_sha3.sha3_512", MD5OrSHA3),
    HASH_OF_HACL("_sha3.shake_128", MD5OrSHA3),
    HASH_OF_HACL("_sha3.shake_256", MD5OrSHA3),
    {"_json.Encoder", sizeof(Encoder), .parts = {
        {AT(Encoder, fallback), COMPARED}, {AT(Encoder, encoder), CALLED}}},
    {"_json.Scanner", sizeof(JSONScanner), .parts = {
        {AT(JSONScanner, object_hook), CALLED}, {AT(JSONScanner, object_pairs_hook), CALLED}, {AT(JSONScanner, parse_float), PARSES},
        {AT(JSONScanner, parse_int), PARSES}, {AT(JSONScanner, parse_constant), PARSES}}},
    {"_csv.reader", sizeof(CsvReader), .parts = {
        {AT(CsvReader, lines), ADVANCED}, {AT(CsvReader, field), STAYS, sizeof(void *) + sizeof(Py_ssize_t)}}},
    {"_csv.writer", sizeof(CsvWriter), .parts = {
        {AT(CsvWriter, write), CALLED}, {AT(CsvWriter, record), STAYS, sizeof(void *) + sizeof(Py_ssize_t)}}},
    {"_random.Random", sizeof(RandomState), .untraversed = true},
    {"_io.BytesIO", sizeof(BytesIO), .parts = {{AT(BytesIO, exports), MUST_BE_ZERO}}},
    {"_io.StringIO", sizeof(StringIO), .parts = {{AT(StringIO, decoder), MUST_BE_ZERO}}},
};

/* Remember the type if it has a layout. False if it should, but looks different. */
bool
structure_register(PyTypeObject *type)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(layouts); i++) {
        if (strcmp(layouts[i].name, type->tp_name) == 0) {
            if (layouts[i].size != (size_t)type->tp_basicsize)
                return false;
            layouts[i].type = type;
        }
    }
    return true;
}

static const Layout *
layout_of(PyTypeObject *type)
{
    static const Layout none = {0};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(layouts); i++) {
        if (layouts[i].type == type)
            return &layouts[i];
    }
    return &none;
}

#define PARTS(p, layout) \
    for (const Part *p = (layout)->parts; p < (layout)->parts + Py_ARRAY_LENGTH((layout)->parts) && p->role; p++)

static inline PyObject **
field(const void *structure, size_t at)
{
    return (PyObject **)((char *)structure + at);
}

static size_t
bytes_copied(const void *structure, const Part *p)
{
    PyObject **count = field(structure, p->count);
    Py_ssize_t n = p->role == COPIED_PER_ITEM ? PyTuple_GET_SIZE(*count) : *(Py_ssize_t *)count;
    return n * sizeof(Py_ssize_t);
}

/* ---- Snapshots ------------------------------------------------------------------------ */

static int
take_ref(PyObject *o, void *arg)
{
    (void)arg;
    Py_INCREF(o);
    return 0;
}

static int
drop_ref(PyObject *o, void *arg)
{
    (void)arg;
    Py_DECREF(o);
    return 0;
}

/* The C type whose structure begins the object's. */
static PyTypeObject *
c_type(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    while (is_python_class(type))
        type = type->tp_base;
    return type;
}

/* A copy of a tuple that may have gaps. */
static PyObject *
copy_tuple(PyObject *tuple)
{
    PyObject *copy = PyTuple_New(PyTuple_GET_SIZE(tuple));
    for (Py_ssize_t i = 0; copy != NULL && i < PyTuple_GET_SIZE(tuple); i++)
        PyTuple_SET_ITEM(copy, i, Py_XNewRef(PyTuple_GET_ITEM(tuple, i)));
    return copy;
}

/* The copy has references to everything; let it have parts of its own where it must. */
static int
copy_parts(char *copy, const Layout *layout)
{
    int result = 0;
    PARTS(p, layout) {
        PyObject **at = field(copy, p->at), *own = NULL;
        if (p->role == REFERENCE)
            Py_XINCREF(*at);
        if (p->role == COPIED_LIST || p->role == COPIED_TUPLE) {
            own = p->role == COPIED_LIST ? PyList_GetSlice(*at, 0, PyList_GET_SIZE(*at)) : copy_tuple(*at);
            if (own == NULL)
                result = -1;
            else
                Py_SETREF(*at, own);
        }
        if (p->role == COPIED_PER_ITEM || p->role == COPIED_COUNTED) {
            size_t n = bytes_copied(copy, p);
            void *memory = PyMem_Malloc(n);
            if (memory == NULL) {
                PyErr_NoMemory();
                result = -1;
            }
            else
                memcpy(memory, *at, n);
            *at = memory;
        }
    }
    return result;
}

/* A thread beside the transactions may be in a method that has let go of the thread state. */
static void
lock_structure(PyObject *obj, const Layout *layout)
{
    if (layout->mutex)
        PyMutex_Lock((PyMutex *)field(obj, layout->mutex));
    PyThread_type_lock lock = layout->lock ? *(PyThread_type_lock *)field(obj, layout->lock) : NULL;
    if (lock != NULL && !PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

static void
unlock_structure(PyObject *obj, const Layout *layout)
{
    if (layout->mutex)
        PyMutex_Unlock((PyMutex *)field(obj, layout->mutex));
    if (layout->lock)
        PyThread_release_lock(*(PyThread_type_lock *)field(obj, layout->lock));
}

/* The memory in there, unless the object has let go of it, points to where its owner was. */
static void
point_back(void *structure, size_t at)
{
    void **memory = *(void ***)field(structure, at);
    if (memory != NULL)
        *memory = (char *)structure + sizeof(PyObject);
}

static void
swap_bytes(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* Let the structure and its copy, which may be an object, change places. */
void
structure_swap(PyObject *obj, void *copy)
{
    const Layout *layout = layout_of(c_type(obj));
    lock_structure(obj, layout);
    char *a = (char *)obj, *b = copy;
    size_t end = layout->end ? layout->end : (size_t)c_type(obj)->tp_basicsize;
    size_t from = sizeof(PyObject);
    PARTS(p, layout) {
        if (p->role == STAYS) {     /* others look at a mutex, even while it is locked */
            swap_bytes(a + from, b + from, p->at - from);
            from = p->at + p->count;
        }
    }
    swap_bytes(a + from, b + from, end - from);
    PARTS(p, layout) {
        if (p->role == POINTED_BACK) {
            point_back(a, p->at);
            point_back(b, p->at);
        }
    }
    unlock_structure(obj, layout);
}

static int
swap_back(Tx *Py_UNUSED(tx), Undo *u)
{
    structure_swap(u->obj, u->mem);
    return 0;
}

static void
forget(Undo *u)
{
    PyTypeObject *type = c_type(u->obj);
    const Layout *layout = layout_of(type);
    PARTS(p, layout) {
        PyObject **at = field(u->mem, p->at);
        if (p->role == REFERENCE)
            Py_XDECREF(*at);
        if (p->role == COPIED_PER_ITEM || p->role == COPIED_COUNTED)
            PyMem_Free(*at);
    }
    if (!layout->untraversed)
        type->tp_traverse(u->mem, drop_ref, NULL);
    PyMem_RawFree(u->mem);
}

static const UndoKind undo_structure = {.what = "the structure", .undo = swap_back, .forget = forget};

/* Log the structure of an object that this transaction owns. */
static int
snapshot(Tx *tx, PyObject *obj, PyTypeObject *type, const Layout *layout)
{
    size_t size = type->tp_basicsize;
    char *copy = PyMem_RawMalloc(size);
    Undo *u = copy == NULL ? NULL : undo_push(tx, &undo_structure, obj, NULL, NULL);
    if (u == NULL) {
        PyMem_RawFree(copy);
        if (copy == NULL)
            PyErr_NoMemory();
        return -1;
    }
    memcpy(copy, obj, size);
    if (!layout->untraversed)
        type->tp_traverse((PyObject *)copy, take_ref, NULL);
    u->mem = copy;
    return copy_parts(copy, layout);
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* Does C code that calls this, and passes the results on, need a guard? -1 to abort. */
static int
needs_guard(Tx *tx, PyObject *callable, Role role)
{
    if (callable == Py_None)
        return 0;
    int effect = effect_as_callback(tx, callable);
    if (effect < 0)
        return -1;
    return effect != EFFECT_PURE && (role != PARSES || (effect != EFFECT_READS && effect != EFFECT_DEEP));
}

/* Put a guard in the place of a callable or an iterator, unless nothing needs one. */
static int
guard(Tx *tx, PyObject *obj, const Part *p)
{
    static const int uses[] = {[ASKED] = USE_TRUTH, [COMPARED] = USE_ALL, [SPREAD] = USE_ITEMS, [TESTED] = USE_TRUTH};
    PyObject **at = field(obj, p->at), *inner = *at;
    bool passed_on = p->role == PARSES || p->role == CALLED;
    if (inner == NULL && !passed_on)
        return 0;       /* an exhausted iterator has let go of it */
    if (inner != NULL && Py_IS_TYPE(inner, &Guarded_Type))
        return 0;
    if (inner != NULL && passed_on) {
        int needed = needs_guard(tx, inner, p->role);
        if (needed <= 0)
            return needed;
    }
    PyObject *guarded = guarded_new(inner == NULL ? stm_add : inner, passed_on ? USE_NOTHING : uses[p->role]);
    if (guarded == NULL)
        return -1;
    /* Another thread may be doing the same: to an object that nobody owns, since it never changes. */
    Py_BEGIN_CRITICAL_SECTION(obj);
    if (*at == inner) {
        *at = guarded;
        guarded = inner;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(guarded);
    return 0;
}

static int
guard_layout(Tx *tx, PyObject *obj, const Layout *layout)
{
    PARTS(p, layout) {
        if (PARSES <= p->role && p->role <= TESTED && guard(tx, obj, p) < 0)
            return -1;
        if (p->role == POINTED_BACK
            && (*field(obj, p->at) == NULL || *(void **)*field(obj, p->at) != (char *)obj + sizeof(PyObject)))
            return exclusive_for(tx, "use of", obj);
        if (p->role == MUST_BE_ZERO && *(Py_ssize_t *)field(obj, p->at) != 0)
            return exclusive_for(tx, "use of what is behind", obj);
    }
    return 0;
}

/* An object that calls what it was made with, and never changes. */
int
guard_parts(Tx *tx, PyObject *obj)
{
    return guard_layout(tx, obj, layout_of(c_type(obj)));
}

static int
open_parts(Tx *tx, PyObject *obj, const Layout *layout, int depth)
{
    PARTS(p, layout) {
        PyObject *part = *field(obj, p->at);
        int r = 0;
        if (p->role == ADVANCED && part != NULL && PyTuple_CheckExact(part)) {
            for (Py_ssize_t i = 0; r == 0 && i < PyTuple_GET_SIZE(part); i++) {
                PyObject *item = PyTuple_GET_ITEM(part, i);
                if (item != NULL)
                    r = open_at_depth(tx, item, depth + 1);
            }
        }
        else if (p->role == ADVANCED && part != NULL)
            r = open_at_depth(tx, part, depth + 1);
        else if (p->role == LOOKED_AT && part != NULL)
            r = open_deep_read(tx, part);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* Does it call something, or compare, as it advances? */
static bool
has_guards(const Layout *layout)
{
    PARTS(p, layout) {
        if ((PARSES <= p->role && p->role <= TESTED) || p->role == LOOKED_AT)
            return true;
    }
    return false;
}

typedef struct { Tx *tx; int result; int depth; PyTypeObject *type; } Traversal;

/* The current key of an OrderedDict's iterator: it is looked up, by a hash of its own or of where it lies, and not called. */
static bool
is_callable_key(Tx *tx, PyTypeObject *type, PyObject *o)
{
    return type == &PyODictIter_Type && (PyWeakref_CheckRefExact(o) || PyFunction_Check(o) || PyMethod_Check(o) || PyCFunction_Check(o)
                                         || kind_of(tx, o) == &instance_kind);
}

/* What an iterator without a layout refers to. */
static int
open_referent(PyObject *o, void *arg)
{
    Traversal *v = arg;
    if (o == NULL || o == (PyObject *)v->type || is_callable_key(v->tx, v->type, o))
        return 0;
    if (!PyType_Check(o) && PyCallable_Check(o)) {
        int effect = effect_as_callback(v->tx, o);
        if (effect < 0 || (effect != EFFECT_PURE
                           && exclusive_for(v->tx, "iteration that calls", o) < 0))
            v->result = -1;
        return v->result;
    }
    Kind kind = kind_of(v->tx, o);
    if (kind == &inert_kind || kind == &tuple_kind || kind == &instance_kind || kind == &class_kind || kind == &module_kind)
        return 0;
    v->result = open_at_depth(v->tx, o, v->depth + 1);
    return v->result;
}

static int
open_structure_at_depth(Tx *tx, PyObject *obj, int depth)
{
    if (opened(tx, obj, OPENED_READ) || obj == stm_unordered)
        return check_doomed(tx);
    bool first = false, mine = opened(tx, obj, OPENED_CAPTURED);
    if (!mine && lock_exclusive(tx, cell_of(obj, WHOLE), &first) < 0)
        return -1;
    if (!(first || mine) || tx->grade == GRADE_EXCLUSIVE)
        return 0;
    PyTypeObject *type = c_type(obj);
    const Layout *layout = layout_of(type);
    if (layout->type == NULL && (type->tp_traverse == NULL || type->tp_itemsize != 0 || is_python_class(Py_TYPE(obj))))
        return exclusive_for(tx, "iteration over", obj);
    if (guard_layout(tx, obj, layout) < 0)
        return -1;
    if (first && tx->grade != GRADE_EXCLUSIVE && snapshot(tx, obj, type, layout) < 0)
        return -1;
    Traversal v = {tx, 0, depth, type};
    if (layout->type != NULL)
        v.result = open_parts(tx, obj, layout, depth);
    else
        type->tp_traverse(obj, open_referent, &v);
    /* What is captured may end, and another one of its type lie in the same place, without guards. */
    if (v.result == 0 && !(mine && has_guards(layout)))
        note(tx, obj, OPENED_READ, mine);
    return v.result;
}

/* Own a C object whose state is its structure. */
int
open_structure(Tx *tx, PyObject *obj)
{
    return open_structure_at_depth(tx, obj, 0);
}

bool
structure_calls(PyTypeObject *type)
{
    return has_guards(layout_of(type));
}

static bool
is_view_of_dict(PyObject *obj)
{
    return PyDictViewSet_Check(obj) || PyDictValues_Check(obj);
}

static int
iterate(Tx *tx, PyObject *obj, int depth)
{
    if (is_view_of_dict(obj)) {
        PyDictObject *d = ((_PyDictViewObject *)obj)->dv_dict;
        return d == NULL ? 0 : open_whole_read(tx, (PyObject *)d);
    }
    return is_fresh(tx, obj) ? check_doomed(tx) : open_structure_at_depth(tx, obj, depth);
}

static int
visit_iterator(Tx *tx, PyObject *obj, Visit visit, void *arg)
{
    if (is_view_of_dict(obj)) {
        PyObject *dict = (PyObject *)((_PyDictViewObject *)obj)->dv_dict;
        return dict == NULL ? 0 : visit(tx, dict, arg);
    }
    int r = open_iter(tx, obj);
    const Layout *layout = layout_of(c_type(obj));
    PARTS(p, layout) {
        if (r == 0 && p->role == PRINTED)
            r = visit_unless_inert(tx, *field(obj, p->at), visit, arg);
    }
    bool shows_more = layout->type == NULL && c_type(obj)->tp_repr != PyBaseObject_Type.tp_repr;    /* a view of a library's dict, say */
    return r == 0 && shows_more ? visit_referents(tx, obj, visit, arg) : r;
}

const struct Kind iterator_kind = {
    .c_state = C_STATE_WHOLE,
    .compared_inside = true,
    .made_captured = true,
    .read_whole = open_iter,
    .write_whole = open_iter,
    .iterate = iterate,
    .visit = visit_iterator,
};

const struct Kind struct_kind = {
    .c_state = C_STATE_WHOLE,
    .read_whole = open_state,
    .write_whole = open_state,
};
