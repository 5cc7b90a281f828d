#include "absent.h"

#include "internal/pycore_interp.h"
#include "internal/pycore_tstate.h"

/* The interpreter's table of those who have made objects, by thread (Python/brc.c there). */
static struct _brc_bucket *
bucket_of(PyThreadState *ts)
{
    return &ts->interp->brc.table[((_PyThreadStateImpl *)ts)->brc.tid % _Py_BRC_NUM_BUCKETS];
}

/* Invariant.  Who is in no bucket is linked with itself, so that it does no harm to take it out again: in the child of a fork,
 * CPython does that with all threads that are no more.  And it is attached whenever it changes a bucket: a fork stops those. */
static bool
is_in_bucket(struct llist_node *node)
{
    return node->next != node;
}

/* Drop the queue's reference to an object that this thread has made, and count all others as those of anybody from here on.  Nobody ends
 * it before it is marked so, which _Py_MergeZeroLocalRefcount() does. */
static void
drop_queued(PyObject *o)
{
    if (_Py_atomic_load_uintptr_relaxed(&o->ob_tid) == 0) {
        Py_DECREF(o);
        return;
    }
    Py_ssize_t own = (Py_ssize_t)o->ob_ref_local - 1;
    _Py_atomic_store_uint32_relaxed(&o->ob_ref_local, 0);
    _Py_atomic_add_ssize(&o->ob_ref_shared, own * (1 << _Py_REF_SHARED_SHIFT));
    _Py_MergeZeroLocalRefcount(o);
}

static void
end_what_waits(PyThreadState *ts)
{
    struct _brc_thread_state *brc = &((_PyThreadStateImpl *)ts)->brc;
    struct _brc_bucket *bucket = bucket_of(ts);
    for (;;) {
        PyMutex_Lock(&bucket->mutex);
        _PyObjectStackChunk *chunk = brc->objects_to_merge.head;
        brc->objects_to_merge.head = NULL;
        PyMutex_Unlock(&bucket->mutex);
        if (chunk == NULL)
            return;
        for (_PyObjectStackChunk *prev; chunk != NULL; chunk = prev) {
            prev = chunk->prev;
            for (Py_ssize_t i = 0; i < chunk->n; i++)
                drop_queued(chunk->objs[i]);
            PyMem_RawFree(chunk);
        }
    }
}

PyThreadState *
absent_begin(bool between)
{
    PyThreadState *ts = PyThreadState_Get();
    if (between)
        end_what_waits(ts);
    struct _brc_thread_state *brc = &((_PyThreadStateImpl *)ts)->brc;
    struct _brc_bucket *bucket = bucket_of(ts);
    PyMutex_Lock(&bucket->mutex);
    /* What waits already refers to the object, and only this thread may drop that. */
    if (brc->objects_to_merge.head == NULL) {
        llist_remove(&brc->bucket_node);
        llist_init(&brc->bucket_node);
    }
    PyMutex_Unlock(&bucket->mutex);
    return PyEval_SaveThread();
}

void
absent_end(PyThreadState *ts)
{
    int error = errno;
    PyEval_RestoreThread(ts);
    struct _brc_thread_state *brc = &((_PyThreadStateImpl *)ts)->brc;
    if (!is_in_bucket(&brc->bucket_node)) {
        struct _brc_bucket *bucket = bucket_of(ts);
        PyMutex_Lock(&bucket->mutex);
        llist_insert_tail(&bucket->root, &brc->bucket_node);
        PyMutex_Unlock(&bucket->mutex);
    }
    errno = error;
}
