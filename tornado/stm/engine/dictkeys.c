/* Surgery on dicts that the interpreter's own functions do not offer.
 *
 * The entries of a dict lie in the order of its keys, in one array; an index table
 * leads from a hash to an entry.  A deleted entry leaves a gap until the array is
 * replaced by a larger one.  Looking a key up takes no lock: whoever does it meets
 * entries of other keys on the way, and compares their keys with its own.  So
 * entries may be exchanged under the dict's lock, as long as nobody looks up the
 * two keys that they belong to; and all of the contents may, at once, by way of
 * the pointer to them.
 */
#include "stm.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_gc.h"

static Py_ssize_t
index_get(PyDictKeysObject *keys, size_t slot)
{
    int log2 = DK_LOG_SIZE(keys);
    if (log2 < 8)
        return ((int8_t *)keys->dk_indices)[slot];
    if (log2 < 16)
        return ((int16_t *)keys->dk_indices)[slot];
    if (log2 < 32)
        return ((int32_t *)keys->dk_indices)[slot];
    return ((int64_t *)keys->dk_indices)[slot];
}

static void
index_set(PyDictKeysObject *keys, size_t slot, Py_ssize_t ix)
{
    int log2 = DK_LOG_SIZE(keys);
    if (log2 < 8)
        __atomic_store_n(&((int8_t *)keys->dk_indices)[slot], (int8_t)ix, __ATOMIC_RELEASE);
    else if (log2 < 16)
        __atomic_store_n(&((int16_t *)keys->dk_indices)[slot], (int16_t)ix, __ATOMIC_RELEASE);
    else if (log2 < 32)
        __atomic_store_n(&((int32_t *)keys->dk_indices)[slot], (int32_t)ix, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&((int64_t *)keys->dk_indices)[slot], (int64_t)ix, __ATOMIC_RELEASE);
}

static PyObject *
entry_key(PyDictKeysObject *keys, Py_ssize_t ix)
{
    return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[ix].me_key : DK_ENTRIES(keys)[ix].me_key;
}

static PyObject *
entry_value(PyDictKeysObject *keys, Py_ssize_t ix)
{
    return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[ix].me_value : DK_ENTRIES(keys)[ix].me_value;
}

static Py_hash_t
entry_hash(PyDictKeysObject *keys, Py_ssize_t ix)
{
    return DK_IS_UNICODE(keys) ? PyObject_Hash(DK_UNICODE_ENTRIES(keys)[ix].me_key) : DK_ENTRIES(keys)[ix].me_hash;
}

/* Walks the slots of the index table that a hash leads to. */
typedef struct { size_t mask, slot, perturb; } Probe;

static Probe
probe(PyDictKeysObject *keys, Py_hash_t hash)
{
    size_t mask = ((size_t)1 << DK_LOG_SIZE(keys)) - 1;
    return (Probe){mask, (size_t)hash & mask, (size_t)hash};
}

static void
probe_next(Probe *p)
{
    p->perturb >>= 5;
    p->slot = (p->slot * 5 + p->perturb + 1) & p->mask;
}

/* Is comparing the key with another such key C code that cannot fail? */
static bool
is_plain_key(PyObject *key, int depth)
{
    richcmpfunc compare = Py_TYPE(key)->tp_richcompare;
    if (compare == PyUnicode_Type.tp_richcompare || compare == PyLong_Type.tp_richcompare
        || compare == PyBaseObject_Type.tp_richcompare || compare == PyBytes_Type.tp_richcompare
        || compare == PyFloat_Type.tp_richcompare)
        return true;
    if (!PyTuple_CheckExact(key) || depth > 4)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
        if (!is_plain_key(PyTuple_GET_ITEM(key, i), depth + 1))
            return false;
    }
    return true;
}

/* Look a key up, without any Python code but its __hash__. Returns 1 with new references to the key
 * that the dict has and to its value; 0 when it is not there; -1 when only Python
 * code could tell, or the dict shares its keys with others. */
int
dict_find(PyObject *dict, PyObject *key, PyObject **actual, PyObject **value)
{
    PyDictObject *d = (PyDictObject *)dict;
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1) {
        PyErr_Clear();
        return -1;
    }
    if (!is_plain_key(key, 0))
        return -1;
    int result = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = d->ma_keys;
    if (d->ma_values != NULL)
        result = -1;
    Py_ssize_t ix;
    for (Probe p = probe(keys, hash); result == 0 && (ix = index_get(keys, p.slot)) != DKIX_EMPTY; probe_next(&p)) {
        if (ix < 0)
            continue;
        PyObject *k = entry_key(keys, ix);
        if (k != key) {
            if (entry_hash(keys, ix) != hash)
                continue;
            if (!is_plain_key(k, 0)) {
                result = -1;
                break;
            }
            if (PyObject_RichCompareBool(k, key, Py_EQ) != 1)
                continue;
        }
        *actual = Py_NewRef(k);
        *value = Py_NewRef(entry_value(keys, ix));
        result = 1;
    }
    Py_END_CRITICAL_SECTION();
    return result;
}

/* The slot of the index table that leads to this very key, or false. */
static bool
slot_of(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash, size_t *slot)
{
    Py_ssize_t ix;
    for (Probe p = probe(keys, hash); (ix = index_get(keys, p.slot)) != DKIX_EMPTY; probe_next(&p)) {
        if (ix >= 0 && entry_key(keys, ix) == key) {
            *slot = p.slot;
            return true;
        }
    }
    return false;
}

#define SWAP_FIELD(a, b, field) do { \
        __typeof__((a)->field) t_ = (a)->field; \
        __atomic_store_n(&(a)->field, (b)->field, __ATOMIC_RELEASE); \
        __atomic_store_n(&(b)->field, t_, __ATOMIC_RELEASE); \
    } while (0)

/* Let two keys, which both are in the dict as these very objects, change places. The
 * caller holds the dict's lock, and nobody else looks for either of them. */
bool
dict_swap_places(PyObject *dict, PyObject *a, Py_hash_t hash_a, PyObject *b, Py_hash_t hash_b)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyDictKeysObject *keys = d->ma_keys;
    size_t slot_a, slot_b;
    if (d->ma_values != NULL || !slot_of(keys, a, hash_a, &slot_a) || !slot_of(keys, b, hash_b, &slot_b))
        return false;
    Py_ssize_t ix_a = index_get(keys, slot_a), ix_b = index_get(keys, slot_b);
    if (DK_IS_UNICODE(keys)) {
        PyDictUnicodeEntry *e = DK_UNICODE_ENTRIES(keys);
        SWAP_FIELD(&e[ix_a], &e[ix_b], me_value);
        SWAP_FIELD(&e[ix_a], &e[ix_b], me_key);
    }
    else {
        PyDictKeyEntry *e = DK_ENTRIES(keys);
        SWAP_FIELD(&e[ix_a], &e[ix_b], me_value);
        SWAP_FIELD(&e[ix_a], &e[ix_b], me_hash);
        SWAP_FIELD(&e[ix_a], &e[ix_b], me_key);
    }
    index_set(keys, slot_a, ix_b);
    index_set(keys, slot_b, ix_a);
    /* What remembers the place of an entry looks it up again. */
    __atomic_store_n(&keys->dk_version, 0, __ATOMIC_RELAXED);
    return true;
}

/* Exchange all that is in the dict with all that is in a copy, which nobody else knows:
 * at once for those who look up keys meanwhile. False if one of them shares its keys. */
bool
dict_exchange(PyObject *dict, PyObject *copy)
{
    PyDictObject *a = (PyDictObject *)dict, *b = (PyDictObject *)copy;
    bool done = false;
    Py_BEGIN_CRITICAL_SECTION(dict);
    if (a->ma_values == NULL && b->ma_values == NULL) {
        /* Others may still be reading what the copy has from now on: its memory is
         * freed only when they cannot any more. */
        _PyObject_GC_SET_SHARED(copy);
        PyDictKeysObject *keys = a->ma_keys;
        Py_ssize_t used = a->ma_used;
        __atomic_store_n(&a->ma_keys, b->ma_keys, __ATOMIC_RELEASE);
        __atomic_store_n(&a->ma_used, b->ma_used, __ATOMIC_RELEASE);
        b->ma_keys = keys;
        b->ma_used = used;
        done = true;
    }
    Py_END_CRITICAL_SECTION();
    return done;
}
