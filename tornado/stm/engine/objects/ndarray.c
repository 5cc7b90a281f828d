/* Arrays of numpy: read by many, changed by who has made them.
 *
 * An array either owns its memory or shows that of its base, in the end that of an array which owns it, or of a buffer.
 * So an array does not tell by its address who else can see a change, and numbers in C (a square root, an index) are taken
 * from arrays where no barrier is.  Therefore:
 *
 *      reading     needs no lock, for nobody changes, in a transaction that others run beside, an array that others can have;
 *      changing    is free in what the transaction has made (the owner is captured), or what only its stack knows;
 *                  else the transaction runs alone.
 *
 * What an array is of (its shape, the type of its items, its base) is an attribute in C: assigning to that runs alone by itself.
 * Arrays of objects are used alone, as are those with fields and those of types that numpy has not built in: their items
 * are more than memory.  So are arrays in the memory of something that is neither an array nor one of CPython's buffers; an
 * array in such a buffer is locked as that is.
 *
 * Numbers of numpy's (its scalars) do not change.  Operators of both look into whatever the other operand is, as deep as it goes.
 */
#include "ndarray.h"

#include "access.h"
#include "deep.h"
#include "known.h"

/* The structures of numpy 2.5 (ndarraytypes.h, ufuncobject.h), as far as they are looked at here; the rest is there for its size. */
typedef struct {
    PyObject_HEAD
    char *data;
    int dimensions;
    Py_ssize_t *shape, *strides;
    PyObject *base, *descr;
    int flags;
    PyObject *weakrefs;
    void *buffer_info;
    PyObject *allocator;
} Array;
typedef struct { PyObject_HEAD PyTypeObject *scalar; char kind, type, order, former_flags; int number; } Descr;
typedef struct {
    PyObject_HEAD
    int inputs, outputs, arguments, identity;
    void *functions, *data;
    int types, flags;
    const char *name, *signatures, *doc;
    void *memory;
    PyObject *function, *user_loops;
    int has_core, core_dimensions;
    void *core[3];
    void *resolver;
    PyObject *dict;
    void *vectorcall, *reserved, *operand_flags;
    uint32_t iterator_flags;
    void *more[7];
} Ufunc;

enum { OWNS_MEMORY = 0x4, WRITES_BACK = 0x2000 };

const size_t ufunc_size = sizeof(Ufunc);

bool
ndarray_type_is_known(PyTypeObject *type)
{
    return strcmp(type->tp_name, "numpy.ndarray") == 0 && type->tp_basicsize == sizeof(Array);
}

Py_ssize_t
ufunc_inputs(PyObject *ufunc)
{
    return ((Ufunc *)ufunc)->inputs;
}

bool
ufunc_calls_back(PyObject *ufunc)
{
    return ((Ufunc *)ufunc)->function != NULL;
}

static Array *
array_of(PyObject *obj)
{
    return (Array *)obj;
}

static bool
is_array(Tx *tx, PyObject *obj)
{
    return kind_of(tx, obj) == &ndarray_kind;
}

/* Numbers, texts of a fixed size and times: nothing but memory. */
static bool
is_plain(Array *a)
{
    enum { OBJECT = 17, STRING = 18, UNICODE = 19, DATETIME = 21, TIMEDELTA = 22, HALF = 23 };
    int n = ((Descr *)a->descr)->number;
    return ((0 <= n && n < OBJECT) || n == STRING || n == UNICODE || n == DATETIME || n == TIMEDELTA || n == HALF)
        && !(a->flags & WRITES_BACK);
}

/* The array whose memory this one shows in the end, or whose base is no array. */
static Array *
owner_of(Tx *tx, PyObject *array)
{
    Array *a = array_of(array);
    while (!(a->flags & OWNS_MEMORY) && a->base != NULL && is_array(tx, a->base))
        a = array_of(a->base);
    return a;
}

/* Of CPython's buffers it is known who changes them. */
static bool
is_known_buffer(Tx *tx, PyObject *base)
{
    return PyMemoryView_Check(base) || PyByteArray_CheckExact(base) || kind_of(tx, base) == &array_kind;
}

static int
read_whole(Tx *tx, PyObject *array)
{
    Array *owner = owner_of(tx, array);
    if (!is_plain(array_of(array)) || !is_plain(owner))
        return exclusive_for(tx, "use of", array);
    if (owner->flags & OWNS_MEMORY || owner->base == NULL || PyBytes_CheckExact(owner->base))
        return check_doomed(tx);
    return is_known_buffer(tx, owner->base) ? open_whole_read(tx, owner->base) : exclusive_for(tx, "use of", array);
}

static int
write_whole(Tx *tx, PyObject *array)
{
    Array *owner = owner_of(tx, array);
    if (!is_plain(array_of(array)) || !is_plain(owner))
        return exclusive_for(tx, "change of", array);
    if (owner->flags & OWNS_MEMORY)
        return captured(tx, (PyObject *)owner) ? check_doomed(tx) : exclusive_for(tx, "change of", array);
    return owner->base != NULL && is_known_buffer(tx, owner->base) ? open_whole_write(tx, owner->base) : exclusive_for(tx, "change of", array);
}

/* The key may be a list or an array. */
static int
read_item(Tx *tx, PyObject *array, PyObject *key)
{
    return open_deep_read(tx, key) < 0 ? -1 : open_whole_read(tx, array);
}

bool
is_ndarray(Tx *tx, PyObject *obj)
{
    return Py_TYPE(obj)->tp_basicsize >= (Py_ssize_t)sizeof(Array) && is_array(tx, obj);
}

bool
ndarray_known_here_only(Tx *tx, PyObject *array)
{
    Array *owner = owner_of(tx, array);
    if (!_PyObject_IsUniquelyReferenced(array) || array_of(array)->weakrefs != NULL || !(owner->flags & OWNS_MEMORY))
        return false;
    if ((PyObject *)owner != array
        && (array_of(array)->base != (PyObject *)owner || !_PyObject_IsUniquelyReferenced((PyObject *)owner) || owner->weakrefs != NULL))
        return false;
    note_captured(tx, (PyObject *)owner);
    return true;
}

int
open_result(Tx *tx, PyObject *result)
{
    if (PyTuple_Check(result)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++) {
            PyObject *item = PyTuple_GET_ITEM(result, i);
            if (is_array(tx, item) && open_whole_write(tx, item) < 0)
                return -1;
        }
        return 0;
    }
    return is_array(tx, result) ? open_whole_write(tx, result) : 0;
}

int
open_array_operands(Tx *tx, PyObject *left, PyObject *right, bool in_place)
{
    if (open_deep_read(tx, right) < 0)
        return -1;
    return in_place && is_array(tx, left) ? open_whole_write(tx, left) : open_deep_read(tx, left);
}

int
open_array_item(Tx *tx, PyObject *array, PyObject *key, PyObject *value)
{
    return open_deep_read(tx, key) < 0 || open_deep_read(tx, value) < 0 ? -1 : open_whole_write(tx, array);
}

const struct Kind ndarray_kind = {
    .compared_inside = true,
    .compared_by_memory = true,
    .reads_operands = true,
    .read_whole = read_whole,
    .write_whole = write_whole,
    .read_item = read_item,
};

const struct Kind number_kind = {
    .fixed_attributes = true,
    .reads_operands = true,
    .write_whole = open_nothing,
    .read_key = open_no_key,
};
