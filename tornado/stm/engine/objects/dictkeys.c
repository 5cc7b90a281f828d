/* Surgery on dicts that the interpreter's own functions do not offer.
 *
 * The entries of a dict lie in the order of its keys, in one array; an index table
 * leads from a hash to an entry.  A deleted entry leaves a gap until the array is
 * replaced by a larger one.  Looking a key up takes no lock: whoever does it meets
 * entries of other keys on the way, and compares their keys with its own.  So
 * entries may be exchanged under the dict's lock, as long as nobody looks up the
 * two keys that they belong to; and all of the contents may, at once, by way of
 * the pointer to them.
 *
 * The interpreter's functions hash the key that they are given, and compare it with keys of the
 * same hash: code of the program, maybe.  A rollback and a commit must not run any.  There, a key
 * comes with its hash and is found by identity, or by a comparison in C code alone.  That is
 * enough: whoever logs a key that only Python code can compare logs the very one that is in the dict.
 */
#include "dictkeys.h"

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

/* Where its value is. */
static PyObject **
entry_value(PyDictKeysObject *keys, Py_ssize_t ix)
{
    return DK_IS_UNICODE(keys) ? &DK_UNICODE_ENTRIES(keys)[ix].me_value : &DK_ENTRIES(keys)[ix].me_value;
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
bool
is_plain_key(PyObject *key, int depth)
{
    richcmpfunc compare = Py_TYPE(key)->tp_richcompare;
    if (compare == PyUnicode_Type.tp_richcompare || compare == PyLong_Type.tp_richcompare
        || compare == PyBaseObject_Type.tp_richcompare || compare == PyBytes_Type.tp_richcompare
        || compare == PyFloat_Type.tp_richcompare)
        return true;
    if (compare == _PyWeakref_RefType.tp_richcompare) {
        /* What they refer to is compared, while both refer to something: then as these two are. */
        PyObject *referent = NULL;
        bool plain = depth <= 4 && PyWeakref_GetRef(key, &referent) >= 0 && (referent == NULL || is_plain_key(referent, depth + 1));
        Py_XDECREF(referent);
        return plain;
    }
    if (!PyTuple_CheckExact(key) || depth > 4)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
        if (!is_plain_key(PyTuple_GET_ITEM(key, i), depth + 1))
            return false;
    }
    return true;
}

/* Is this the key, as far as C code can tell? */
bool
is_same_key(PyObject *there, Py_hash_t hash_there, PyObject *key, Py_hash_t hash)
{
    if (there == key)
        return true;
    if (hash_there != hash || !is_plain_key(there, 0) || !is_plain_key(key, 0))
        return false;
    int same = PyObject_RichCompareBool(there, key, Py_EQ);
    if (same < 0)
        PyErr_Clear();      /* a BytesWarning */
    return same > 0;
}

bool
dict_is_of_strings(PyObject *dict)
{
    return DK_IS_UNICODE(((PyDictObject *)dict)->ma_keys);
}

/* Do the interpreter's functions compare nothing but strings there? */
static bool
is_of_strings(PyObject *dict, PyObject *key)
{
    return dict_is_of_strings(dict) && PyUnicode_CheckExact(key);
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

/* The slot of the index table that leads to the key, or false. */
static bool
slot_of(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash, size_t *slot)
{
    Py_ssize_t ix;
    for (Probe p = probe(keys, hash); (ix = index_get(keys, p.slot)) != DKIX_EMPTY; probe_next(&p)) {
        if (ix >= 0 && is_same_key(entry_key(keys, ix), entry_hash(keys, ix), key, hash)) {
            *slot = p.slot;
            return true;
        }
    }
    return false;
}

/* The entry that the hash leads to is this one, from here on. */
static void
lead_to(PyDictKeysObject *keys, Py_hash_t hash, Py_ssize_t ix)
{
    Probe p = probe(keys, hash);
    while (index_get(keys, p.slot) >= 0)
        probe_next(&p);
    index_set(keys, p.slot, ix);
}

/* Insert a key that is not there; the dict is locked. */
static int
insert(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *value)
{
    if (is_of_strings(dict, key))
        return PyDict_SetItem(dict, key, value);
    PyDictObject *d = (PyDictObject *)dict;
    PyDictKeysObject *keys = d->ma_keys;
    PyObject *k = Py_NewRef(key), *v = Py_NewRef(value);
    int r = 0;
    if (!DK_IS_UNICODE(keys) && keys->dk_usable > 0) {
        Py_ssize_t ix = keys->dk_nentries;
        entry_replace(keys, ix, &k, hash, &v);
        lead_to(keys, hash, ix);
        STORE(keys->dk_usable, keys->dk_usable - 1);
        STORE(keys->dk_nentries, ix + 1);
        STORE(d->ma_used, d->ma_used + 1);
        return 0;
    }
    /* An object that nothing else is equal to makes the dict grow, and the key takes its place: no index leads to
     * a deleted entry then, so that the slot may be empty again. */
    PyObject *stand_in = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    Py_hash_t other = stand_in == NULL ? -1 : PyObject_Hash(stand_in);
    size_t slot;
    r = stand_in == NULL ? -1 : PyDict_SetItem(dict, stand_in, value);
    keys = d->ma_keys;
    if (r == 0 && slot_of(keys, stand_in, other, &slot)) {
        Py_ssize_t ix = index_get(keys, slot);
        index_set(keys, slot, DKIX_EMPTY);
        entry_replace(keys, ix, &k, hash, &v);
        lead_to(keys, hash, ix);
    }
    Py_XDECREF(stand_in);
    Py_DECREF(k);
    Py_DECREF(v);
    return r;
}

/* The entry of a key of a dict that is locked; -1 if it is not there. */
static Py_ssize_t
entry_of(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    size_t slot;
    PyDictObject *d = (PyDictObject *)dict;
    return d->ma_values == NULL && slot_of(d->ma_keys, key, hash, &slot) ? index_get(d->ma_keys, slot) : -1;
}

/* Put a value under the key. Returns 0 with a new reference to what was there, or NULL; -1 with an exception. */
int
dict_put(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *value, PyObject **old)
{
    int r = 0;
    *old = NULL;
    Py_BEGIN_CRITICAL_SECTION(dict);
    Py_ssize_t ix;
    if (is_of_strings(dict, key)) {
        if (PyDict_GetItemRef(dict, key, old) < 0 || PyDict_SetItem(dict, key, value) < 0)
            r = -1;
    }
    else if ((ix = entry_of(dict, key, hash)) >= 0) {
        PyObject **place = entry_value(((PyDictObject *)dict)->ma_keys, ix);
        *old = *place;
        STORE(*place, Py_NewRef(value));
    }
    else
        r = insert(dict, key, hash, value);
    Py_END_CRITICAL_SECTION();
    return r;
}

/* Take the key out. Returns 1 with a new reference to its value, 0 if it is not there, -1 with an exception. */
int
dict_take(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject **value)
{
    int r = 0;
    PyObject *k = NULL;
    *value = NULL;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictObject *d = (PyDictObject *)dict;
    size_t slot;
    if (is_of_strings(dict, key))
        r = PyDict_Pop(dict, key, value);
    else if (d->ma_values == NULL && slot_of(d->ma_keys, key, hash, &slot)) {
        Py_ssize_t ix = index_get(d->ma_keys, slot);
        index_set(d->ma_keys, slot, DKIX_DUMMY);
        entry_replace(d->ma_keys, ix, &k, 0, value);
        STORE(d->ma_used, d->ma_used - 1);
        r = 1;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(k);
    return r;
}

/* A new reference to the value of the key, or NULL. */
PyObject *
dict_value(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    PyObject *value = NULL;
    Py_BEGIN_CRITICAL_SECTION(dict);
    Py_ssize_t ix = entry_of(dict, key, hash);
    if (ix >= 0)
        value = Py_NewRef(*entry_value(((PyDictObject *)dict)->ma_keys, ix));
    Py_END_CRITICAL_SECTION();
    return value;
}

/* Where among the entries the key is, which has been inserted; -1 if it is not there. */
Py_ssize_t
dict_entry(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    Py_ssize_t ix;
    Py_BEGIN_CRITICAL_SECTION(dict);
    ix = entry_of(dict, key, hash);
    Py_END_CRITICAL_SECTION();
    return ix;
}

/* The keys of that hash; a new list, or NULL with an exception. */
static PyObject *
keys_of_hash(PyObject *dict, Py_hash_t hash)
{
    PyObject *found = PyList_New(0);
    int r = found == NULL ? -1 : 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    Py_ssize_t ix;
    for (Probe p = probe(keys, hash); r == 0 && (ix = index_get(keys, p.slot)) != DKIX_EMPTY; probe_next(&p)) {
        if (ix >= 0 && entry_hash(keys, ix) == hash)
            r = PyList_Append(found, entry_key(keys, ix));
    }
    Py_END_CRITICAL_SECTION();
    if (r < 0)
        Py_CLEAR(found);
    return found;
}

/* Of keys of one hash, that which is equal to the key. It is among them, so where there is one, nothing is
 * compared. A new reference; NULL with an exception. */
PyObject *
equal_key(PyObject *keys, PyObject *key)
{
    Py_ssize_t n = PyList_GET_SIZE(keys);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *there = PyList_GET_ITEM(keys, i);
        int same = n == 1 || there == key ? 1 : PyObject_RichCompareBool(there, key, Py_EQ);
        if (same != 0)
            return same < 0 ? NULL : Py_NewRef(there);
    }
    return Py_NewRef(key);
}

/* The key that the dict has, which is equal to this one: 1 for 1.0. To be called where code of the program may run.
 * A new reference; NULL with an exception. */
PyObject *
dict_actual_key(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    if (is_of_strings(dict, key))
        return Py_NewRef(key);
    PyObject *actual = NULL;
    Py_BEGIN_CRITICAL_SECTION(dict);
    Py_ssize_t ix = entry_of(dict, key, hash);
    if (ix >= 0)
        actual = Py_NewRef(entry_key(((PyDictObject *)dict)->ma_keys, ix));
    Py_END_CRITICAL_SECTION();
    if (LIKELY(actual != NULL))
        return actual;
    PyObject *keys = keys_of_hash(dict, hash);
    actual = keys == NULL ? NULL : equal_key(keys, key);
    Py_XDECREF(keys);
    return actual;
}

/* Delete a key, and have a placeholder stand in its place. Returns 1 with new references to the key that the dict
 * had and to its value, and the place; 0 if the key is not there; -1 when only Python code could tell, or
 * the dict shares its keys with others. */
int
dict_hide(PyObject *dict, PyObject *key, Py_hash_t hash, PyObject *placeholder, PyObject **actual, PyObject **value,
          Py_ssize_t *place)
{
    PyDictObject *d = (PyDictObject *)dict;
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
dict_unhide(PyObject *dict, PyObject *placeholder, Py_ssize_t place, PyObject *key, Py_hash_t hash, PyObject *value)
{
    PyDictObject *d = (PyDictObject *)dict;
    int result = 0;
    PyObject *k = Py_NewRef(key), *v = Py_NewRef(value);
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = d->ma_keys;
    size_t slot_a, slot_b;
    if (is_at(keys, placeholder, place)) {
        /* The slot that led to it may have been used for another key: then there is
         * another one, for that key has not needed a new one. */
        entry_replace(keys, place, &k, hash, &v);
        lead_to(keys, hash, place);
    }
    else {
        Py_hash_t other = PyObject_Hash(placeholder);
        result = insert(dict, key, hash, value);
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

/* A new dict with the same contents at the same places, whatever a subclass makes of its methods. */
PyObject *
dict_copy_places(PyObject *dict)
{
    PyDictObject *d = (PyDictObject *)dict;
    PyObject *copy = PyDict_New();
    if (copy == NULL)
        return NULL;
    int result = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = d->ma_keys;
    if (d->ma_values == NULL && keys->dk_refcnt == 1) {
        bool unicode = DK_IS_UNICODE(keys);
        size_t room = ((size_t)1 << DK_LOG_SIZE(keys)) * 2 / 3;
        size_t size = sizeof(PyDictKeysObject) + ((size_t)1 << keys->dk_log2_index_bytes)
            + room * (unicode ? sizeof(PyDictUnicodeEntry) : sizeof(PyDictKeyEntry));
        PyDictKeysObject *new_keys = PyMem_Malloc(size);
        if (new_keys != NULL) {
            memcpy((void *)new_keys, keys, size);
            for (Py_ssize_t i = 0; i < new_keys->dk_nentries; i++) {
                Py_XINCREF(entry_key(new_keys, i));
                Py_XINCREF(*entry_value(new_keys, i));
            }
            ((PyDictObject *)copy)->ma_keys = new_keys;
            ((PyDictObject *)copy)->ma_used = d->ma_used;
        }
        else
            result = -1;
    }
    else {      /* the values of an instance, in their order; or nothing */
        PyObject *key, *value;
        for (Py_ssize_t at = 0; result == 0 && PyDict_Next(dict, &at, &key, &value);)
            result = PyDict_SetItem(copy, key, value);
    }
    Py_END_CRITICAL_SECTION();
    if (result < 0 && !PyErr_Occurred())
        PyErr_NoMemory();
    if (result < 0)
        Py_CLEAR(copy);
    return copy;
}

/* Exchange all that is in the dict with all that is in a copy, which nobody else knows:
 * at once for those who look up keys meanwhile. False if the dict is a view of an instance. */
bool
dict_exchange(PyObject *dict, PyObject *copy)
{
    PyDictObject *a = (PyDictObject *)dict, *b = (PyDictObject *)copy;
    bool done = false;
    Py_BEGIN_CRITICAL_SECTION(dict);
    if ((a->ma_values == NULL || !a->ma_values->embedded) && b->ma_values == NULL) {
        /* Others may still be reading what the copy has from now on: its memory is
         * freed only when they cannot any more. */
        _PyObject_GC_SET_SHARED(copy);
        PyDictKeysObject *keys = a->ma_keys;
        PyDictValues *values = a->ma_values;
        Py_ssize_t used = a->ma_used;
        STORE(a->ma_keys, b->ma_keys);
        STORE(a->ma_values, NULL);
        STORE(a->ma_used, b->ma_used);
        b->ma_keys = keys;
        b->ma_values = values;
        b->ma_used = used;
        done = true;
    }
    Py_END_CRITICAL_SECTION();
    return done;
}

/* Has it an entry with the key, whatever leads there? */
static bool
has_entry(PyDictKeysObject *keys, PyObject *key)
{
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
        if (entry_key(keys, i) == key)
            return true;
    }
    return false;
}

/* The copy gets what the dict has: at the places of the copy what that has too, and what has come since behind it. (No index leads to a
 * placeholder where it has been put; one does where entries have moved.) */
int
dict_put_into_places(PyObject *dict, PyObject *copy)
{
    int r = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    PyDictKeysObject *keys = ((PyDictObject *)copy)->ma_keys;
    for (Py_ssize_t i = 0; r >= 0 && i < keys->dk_nentries; i++) {
        PyObject *key = entry_key(keys, i), *before = NULL;
        if (key == NULL || *entry_value(keys, i) == NULL)
            continue;
        Py_hash_t hash = entry_hash(keys, i);
        PyObject *now = dict_value(dict, key, hash);
        if (now != NULL) {
            before = *entry_value(keys, i);
            STORE(*entry_value(keys, i), now);
        }
        else
            r = dict_take(copy, key, hash, &before);
        Py_XDECREF(before);
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; r >= 0 && PyDict_Next(dict, &at, &key, &value);) {
        Py_hash_t hash = entry_hash(((PyDictObject *)dict)->ma_keys, at - 1);
        if (dict_entry(copy, key, hash) < 0 && !has_entry(((PyDictObject *)copy)->ma_keys, key))
            r = insert(copy, key, hash, value);
    }
    Py_END_CRITICAL_SECTION();
    return r < 0 ? -1 : 0;
}

/* ---- By rank: where nobody else inserts or deletes -------------------------------------- */

/* The values of an instance that the dict is a view of, or NULL. */
static PyDictValues *
viewed(PyObject *dict)
{
    PyDictValues *v = ((PyDictObject *)dict)->ma_values;
    return v != NULL && v->embedded ? v : NULL;
}

/* How many keys stand before this one, which is there? */
Py_ssize_t
dict_rank(PyObject *dict, PyObject *key)
{
    PyObject *k, *v;
    Py_ssize_t pos = 0, n = 0;
    Py_BEGIN_CRITICAL_SECTION(dict);
    while (PyDict_Next(dict, &pos, &k, &v) && k != key
           && !(PyUnicode_Check(k) && PyUnicode_Check(key) && PyUnicode_Equal(k, key)))
        n++;
    Py_END_CRITICAL_SECTION();
    return n;
}

/* A name that is not there is put behind so many others, at once for who looks up these. */
int
dict_insert_at(PyObject *dict, PyObject *name, Py_hash_t hash, PyObject *value, Py_ssize_t rank)
{
    int r = 0;
    PyObject *copy = NULL;
    Py_BEGIN_CRITICAL_SECTION(dict);
    if (rank >= PyDict_GET_SIZE(dict))
        r = insert(dict, name, hash, value);
    else if (viewed(dict) != NULL) {
        /* The order of the values is a list of their numbers; the new one comes last. */
        r = PyDict_SetItem(dict, name, value);
        PyDictValues *v = viewed(dict);
        if (r == 0 && v != NULL) {
            uint8_t *order = get_insertion_order_array(v), number = order[v->size - 1];
            memmove(order + rank + 1, order + rank, v->size - 1 - rank);
            order[rank] = number;
        }
    }
    else {
        PyObject *k, *v;
        Py_ssize_t pos = 0, n = 0;
        copy = PyDict_New();
        r = copy == NULL ? -1 : 0;
        while (r == 0 && PyDict_Next(dict, &pos, &k, &v)) {
            if (n++ == rank)
                r = insert(copy, name, hash, value);
            Py_hash_t hash_there = PyUnicode_CheckExact(k) ? PyObject_Hash(k) : entry_hash(((PyDictObject *)dict)->ma_keys, pos - 1);
            if (r == 0)
                r = insert(copy, k, hash_there, v);
        }
        if (r == 0 && !dict_exchange(dict, copy))
            r = PyDict_SetItem(dict, name, value);   /* keys shared with others: no order to keep */
    }
    Py_END_CRITICAL_SECTION();
    if (copy != NULL) {
        PyDict_Clear(copy);
        Py_DECREF(copy);
    }
    return r;
}
