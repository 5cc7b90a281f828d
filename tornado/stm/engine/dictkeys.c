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

#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)

/* Give the entry another key and value; takes and gives back references to them. What
 * remembers the place of an entry looks it up again. */
static void
entry_replace(PyDictKeysObject *keys, Py_ssize_t ix, PyObject **key, Py_hash_t hash, PyObject **value)
{
    PyObject *old_key, *old_value;
    if (DK_IS_UNICODE(keys)) {
        PyDictUnicodeEntry *e = &DK_UNICODE_ENTRIES(keys)[ix];
        old_key = e->me_key;
        old_value = e->me_value;
        STORE(e->me_value, *value);
        STORE(e->me_key, *key);
    }
    else {
        PyDictKeyEntry *e = &DK_ENTRIES(keys)[ix];
        old_key = e->me_key;
        old_value = e->me_value;
        STORE(e->me_value, *value);
        STORE(e->me_hash, hash);
        STORE(e->me_key, *key);
    }
    *key = old_key;
    *value = old_value;
    STORE(keys->dk_version, 0);
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

/* Delete a key without any Python code but its __hash__, and have a placeholder stand in
 * its place. Returns 1 with new references to the key that the dict had and to its value,
 * and the place; 0 if the key is not there; -1 when only Python code could tell, or
 * the dict shares its keys with others. */
int
dict_hide(PyObject *dict, PyObject *key, PyObject *placeholder, PyObject **actual, PyObject **value,
          Py_ssize_t *place)
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
        *actual = Py_NewRef(placeholder);
        *value = Py_NewRef(Py_None);
        index_set(keys, p.slot, DKIX_DUMMY);
        entry_replace(keys, ix, actual, PyObject_Hash(placeholder), value);
        *place = ix;
        result = 1;
    }
    Py_END_CRITICAL_SECTION();
    return result;
}

/* Does the placeholder stand there, with no index that leads to it? Then the array is
 * still that of the deletion. */
static bool
is_at(PyDictKeysObject *keys, PyObject *placeholder, Py_ssize_t place)
{
    size_t slot;
    return place < keys->dk_nentries && entry_key(keys, place) == placeholder
        && !slot_of(keys, placeholder, PyObject_Hash(placeholder), &slot);
}

/* Put a deleted key, which is not there, in the place of its placeholder. */
int
dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, PyObject *value)
{
    PyDictObject *d = (PyDictObject *)dict;
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1 && PyErr_Occurred())
        return -1;
    int result = 0;
    PyObject *k = Py_NewRef(key), *v = Py_NewRef(value);
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = d->ma_keys;
    size_t slot_a, slot_b;
    if (is_at(keys, placeholder, place)) {
        /* The slot that led to it may have been used for another key: then there is
         * another one, for that key has not needed a new one. */
        Probe p = probe(keys, hash);
        while (index_get(keys, p.slot) >= 0)
            probe_next(&p);
        entry_replace(keys, place, &k, hash, &v);
        index_set(keys, p.slot, place);
    }
    else {
        Py_hash_t other = PyObject_Hash(placeholder);
        result = PyDict_SetItem(dict, key, value);
        keys = d->ma_keys;
        if (result == 0 && slot_of(keys, key, hash, &slot_a) && slot_of(keys, placeholder, other, &slot_b)) {
            Py_ssize_t a = index_get(keys, slot_a), b = index_get(keys, slot_b);
            entry_replace(keys, b, &k, hash, &v);
            index_set(keys, slot_a, b);
            index_set(keys, slot_b, a);
            entry_replace(keys, a, &k, other, &v);
        }
        if (PyDict_Pop(dict, placeholder, NULL) < 0)
            result = -1;
    }
    Py_END_CRITICAL_SECTION();
    Py_DECREF(k);
    Py_DECREF(v);
    return result;
}

/* The key stays deleted. */
int
dict_drop_placeholder(PyObject *dict, PyObject *placeholder, Py_ssize_t place)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyObject *k = NULL, *v = NULL;
    int result = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    if (is_at(d->ma_keys, placeholder, place)) {
        entry_replace(d->ma_keys, place, &k, 0, &v);
        STORE(d->ma_used, d->ma_used - 1);
    }
    else if (PyDict_Pop(dict, placeholder, NULL) < 0)
        result = -1;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(k);
    Py_XDECREF(v);
    return result;
}

/* Would it move other entries to insert the key, because there are gaps between them? */
bool
dict_would_close_gaps(PyObject *dict, PyObject *key)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyDictKeysObject *keys = d->ma_keys;
    bool moves = keys->dk_usable <= 0 || (DK_IS_UNICODE(keys) && !PyUnicode_CheckExact(key));
    return moves && d->ma_values == NULL && keys->dk_nentries > d->ma_used;
}

/* A new dict with the same contents at the same places. */
PyObject *
dict_copy_places(PyObject *dict)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyObject *copy = PyDict_New();
    if (copy == NULL)
        return NULL;
    bool own_keys = false;
    int result = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = d->ma_keys, *new_keys = NULL;
    if (d->ma_values == NULL && keys->dk_refcnt == 1) {
        bool unicode = DK_IS_UNICODE(keys);
        size_t room = ((size_t)1 << DK_LOG_SIZE(keys)) * 2 / 3;
        size_t size = sizeof(PyDictKeysObject) + ((size_t)1 << keys->dk_log2_index_bytes)
            + room * (unicode ? sizeof(PyDictUnicodeEntry) : sizeof(PyDictKeyEntry));
        own_keys = true;
        new_keys = PyMem_Malloc(size);
        if (new_keys != NULL) {
            memcpy((void *)new_keys, keys, size);
            for (Py_ssize_t i = 0; i < new_keys->dk_nentries; i++) {
                Py_XINCREF(entry_key(new_keys, i));
                Py_XINCREF(unicode ? DK_UNICODE_ENTRIES(new_keys)[i].me_value : DK_ENTRIES(new_keys)[i].me_value);
            }
            ((PyDictObject *)copy)->ma_keys = new_keys;
            ((PyDictObject *)copy)->ma_used = d->ma_used;
        }
        else
            result = -1;
    }
    Py_END_CRITICAL_SECTION();
    if (result < 0)
        PyErr_NoMemory();
    else if (!own_keys)
        result = PyDict_Update(copy, dict);
    if (result < 0)
        Py_CLEAR(copy);
    return copy;
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

/* The number of the attribute among those that the class knows, or -1. The keys are locked. */
static Py_ssize_t
attribute_number(PyDictKeysObject *keys, PyObject *name, Py_hash_t hash)
{
    Py_ssize_t ix;
    for (Probe p = probe(keys, hash); (ix = index_get(keys, p.slot)) != DKIX_EMPTY; probe_next(&p)) {
        PyObject *k = ix >= 0 ? entry_key(keys, ix) : NULL;
        if (k == name || (k != NULL && PyUnicode_Equal(k, name)))
            return ix;
    }
    return -1;
}

/* The attribute among the values, whose cell the transaction owns. A new reference, or NULL. */
PyObject *
values_get(PyDictKeysObject *keys, PyDictValues *v, PyObject *name)
{
    if (!PyUnicode_Check(name))
        return NULL;
    Py_hash_t hash = PyObject_Hash(name);
    PyMutex_Lock(&keys->dk_mutex);
    Py_ssize_t ix = attribute_number(keys, name, hash);
    PyMutex_Unlock(&keys->dk_mutex);
    return ix >= 0 && ix < v->capacity ? Py_XNewRef(v->values[ix]) : NULL;
}

/* Is there room for the attribute in the values? Only then does it leave all others where they
 * are. Makes the name known to the class, so that nobody else takes that room. */
bool
values_make_room(PyDictKeysObject *keys, PyDictValues *v, PyObject *name)
{
    if (!PyUnicode_Check(name))
        return false;
    Py_hash_t hash = PyObject_Hash(name);
    PyMutex_Lock(&keys->dk_mutex);
    Py_ssize_t ix = attribute_number(keys, name, hash);
    bool known = ix >= 0;
    if (!known)
        ix = keys->dk_nentries;
    bool room = ix < v->capacity
        && (known || (keys->dk_usable > 0 && PyUnicode_CheckExact(name) && PyUnicode_CHECK_INTERNED(name)));
    if (room && !known) {
        Probe p = probe(keys, hash);
        while (index_get(keys, p.slot) != DKIX_EMPTY)
            probe_next(&p);
        STORE(keys->dk_version, 0);
        STORE(DK_UNICODE_ENTRIES(keys)[ix].me_key, Py_NewRef(name));
        index_set(keys, p.slot, ix);
        STORE(keys->dk_nentries, ix + 1);
        STORE(keys->dk_usable, keys->dk_usable - 1);
    }
    PyMutex_Unlock(&keys->dk_mutex);
    return room;
}
