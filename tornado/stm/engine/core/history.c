/* The history: what the engine decided, in one order, for tests that judge it.
 *
 * Off, it costs one look at a flag where something is decided.  On, each thread
 * writes into a list of its own; a counter gives the records their order.  An event
 * that lets others go on (a commit, an abort) is recorded before it takes effect, one
 * that others have let happen (a begin, a lock at last) after.
 */
#include "history.h"

#include "tx.h"

typedef struct {
    uint64_t number;    /* place in the order */
    uint64_t age;       /* of the transaction; UINT64_MAX: only drops references */
    uint64_t other;
    int what, detail;
} Record;

typedef struct { Record *record; Py_ssize_t n, cap; } Records;

int stm_history_on;
static _Atomic uint64_t next_number = 1;
static Records records[MAX_THREADS];

static const char *const names[] = {
#define EVENT(name, text) [DID_##name] = text,
#include "history.def"
#undef EVENT
};

void
history_add(Tx *tx, int what, uint64_t other, int detail)
{
    Records *r = &records[tx->slot];
    if (r->n == r->cap) {
        Py_ssize_t cap = r->cap ? 2 * r->cap : 1024;
        Record *p = PyMem_RawRealloc(r->record, cap * sizeof(Record));
        if (p == NULL)
            Py_FatalError("tornado.stm: no memory for the history");
        r->record = p;
        r->cap = cap;
    }
    uint64_t age = atomic_load_explicit(&tx->age, memory_order_relaxed);
    r->record[r->n++] = (Record){atomic_fetch_add(&next_number, 1), age, other, what, detail};
}

/* While no transactions run: begin an empty history, or end it. */
void
history_switch(bool on)
{
    stm_history_on = on;
    for (int i = 0; on && i < MAX_THREADS; i++) {
        PyMem_RawFree(records[i].record);
        records[i] = (Records){NULL, 0, 0};
    }
}

/* While no transactions run: a list of (number, slot, age, event, other, detail). */
PyObject *
history_list(void)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < MAX_THREADS; i++) {
        for (Py_ssize_t j = 0; list != NULL && j < records[i].n; j++) {
            Record *r = &records[i].record[j];
            PyObject *item = Py_BuildValue("KiKsKi", (unsigned long long)r->number, i,
                                           (unsigned long long)r->age, names[r->what],
                                           (unsigned long long)r->other, r->detail);
            if (item == NULL || PyList_Append(list, item) < 0)
                Py_CLEAR(list);
            Py_XDECREF(item);
        }
    }
    if (list != NULL && PyList_Sort(list) < 0)
        Py_CLEAR(list);
    return list;
}
