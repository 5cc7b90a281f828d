/* Random transactions on the engine's algorithms, without the interpreter, and a proof that each run was a serial one.
 *
 *      stress SEED THREADS TRANSACTIONS
 *
 * The engine's files are compiled as they are and driven through its own doors: transaction_run(), the locks, the undo
 * log.  What is locked are accounts, plain memory that is changed in place, and dicts.  So the thread sanitizer sees
 * every pair of accesses that the locks fail to order, and the address sanitizer every undo entry that is used up.
 *
 * Checked, by seed, with aborts injected:
 *
 *  opacity       the balances of a group of accounts add up to nothing; a transaction that reads all of them and finds
 *                otherwise fails, whatever becomes of it later;
 *                where a group has not been written for long this goes without locks, until somebody writes;
 *  serializable  each commit leaves a record of what it read and wrote, with its ticket; replayed in the order of the
 *                tickets on a model, every read must find what the model has, the order of keys in dicts included, and
 *                the memory must end as the model does;
 *  rollback      the first entry of each undo log finds everything as the attempt found it;
 *  exclusive     works on anything without locks; irrevocable is never aborted;
 *  order         after the predecessor; deferred actions in order, once, and between transactions that insert into one
 *                dict in that of their commits; finalizers after commits only;
 *  no leak       of objects or of locks;
 *  progress      every transaction commits, and some transaction does all the time (a watchdog says otherwise).
 */
#include "interpreter.h"

#include "core/upcalls.h"
#include "objects/order.h"
#include "thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GROUPS 24
#define GROUP 4
#define CROWDED_GROUPS 7
#define BUSY_GROUPS 12      /* the others are seldom written: readers need no locks then */
#define ACCOUNTS (GROUPS * GROUP)
#define DICTS 3
#define KEYS 24
#define MAX_STEPS 400
#define WATCHDOG_SECONDS 120

/* ---- What transactions work on --------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int64_t balance;
    uint64_t writer;            /* unique to each write */
} Account;

typedef struct {
    PyObject_HEAD
    uint64_t writer;
} Value;

static PyTypeObject Account_Type = {.tp_name = "Account"}, Key_Type = {.tp_name = "Key"};
static PyTypeObject Value_Type = {.tp_name = "Value"}, Finalized_Type = {.tp_name = "Finalized"};

static Account *accounts[ACCOUNTS];
static Cell account_cells[ACCOUNTS];
static PyObject *dicts[DICTS], *keys[KEYS];

/* Ordered by the locks of a dict alone: the tickets of those that inserted into it, by their deferred actions. */
static struct { uint64_t *tickets; int n; } insertions[DICTS];

/* Ordered by exclusiveness alone. */
static long finalizers_run;

/* ---- What is known of a run ---------------------------------------------------------------------------- */

typedef enum { READ, WRITE, GET, PUT, DELETE, SCAN } StepKind;
typedef struct {
    StepKind kind;
    short where, key;           /* account; or dict and key; of a scan, key is how many follow */
    int64_t balance;
    uint64_t writer;            /* 0: no such key */
} Step;

typedef struct { uint64_t ticket; int transaction, n; Step *steps; } Record;

typedef struct {
    Tx *tx;
    uint64_t random;
    int transaction;            /* number of the one that runs */
    unsigned writes;
    int n;
    Step steps[MAX_STEPS];
    bool irrevocable;
    int deferred, deferred_run;
    bool inserted[DICTS], deleted[DICTS];
    int finalizers;
    struct { int where; Account was; } found[ACCOUNTS];
    int n_found;
    Record *records;
    int n_records, cap_records;
    long aborts, exclusives, told, finalizers_due;
} Worker;

static _Thread_local Worker *self;

static int n_threads, n_transactions;
static uint64_t seed;
static Transaction **transactions;
static PyObject **functions;    /* what they run, which they let go of */
static uint64_t *tickets;       /* by transaction */
static _Atomic int next_transaction;
static Worker workers[MAX_THREADS];

/* The number of the transaction that this one commits after, or -1. */
static int
predecessor_of(int i)
{
    return i >= 3 && mix(seed + i) % 4 == 0 ? i - 1 - (int)(mix(seed * 3 + i) % 3) : -1;
}

/* Decides what the transaction does: each attempt does the same. */
static int
choose(int n)
{
    self->random = mix(self->random);
    return (int)(self->random % (unsigned)n);
}

static Step *
record(StepKind kind, int where, int key, int64_t balance, uint64_t writer)
{
    if (self->n == MAX_STEPS)
        fail("a transaction has too many steps");
    Step *s = &self->steps[self->n++];
    *s = (Step){kind, (short)where, (short)key, balance, writer};
    return s;
}

static uint64_t
new_writer(void)
{
    return (uint64_t)(self->transaction + 1) << 20 | ++self->writes;
}

/* An operation has been refused: only an abort may be the reason. */
static int
refused(void)
{
    if (!exception_is(&Abort_Type))
        fail("an operation failed without an abort");
    if (self->irrevocable)
        fail("an irrevocable transaction was told to abort");
    return -1;
}

static bool
locks_apply(void)
{
    return self->tx->grade != GRADE_EXCLUSIVE;
}

/* ---- Accounts -------------------------------------------------------------------------------------------- */

/* To the engine, a group is one object, and its accounts are the attributes. */
static PyObject *
group_of(int i)
{
    return (PyObject *)accounts[i - i % GROUP];
}

static bool
may_be_biased(Tx *tx, PyObject *object)
{
    (void)tx;
    return Py_IS_TYPE(object, &Account_Type);
}

static int
account_read(int i, int64_t *balance)
{
    if (locks_apply() && !read_by_bias(self->tx, group_of(i))) {
        if (lock_shared(self->tx, account_cells[i]) < 0)
            return refused();
        bias_seen(self->tx, group_of(i));
    }
    *balance = accounts[i]->balance;
    record(READ, i, 0, *balance, accounts[i]->writer);
    return 0;
}

/* Let the balance and its copy change places. */
static int
account_restore(Tx *tx, Undo *u)
{
    (void)tx;
    Account *a = (Account *)u->obj, *b = u->mem;
    int64_t balance = a->balance;
    uint64_t writer = a->writer;
    a->balance = b->balance;
    a->writer = b->writer;
    b->balance = balance;
    b->writer = writer;
    return 0;
}

static void
account_forget(Undo *u)
{
    PyMem_RawFree(u->mem);
}

static const UndoKind undo_account = {.what = "a balance", .undo = account_restore, .forget = account_forget};

static int
account_write(int i, int64_t balance)
{
    Account *a = accounts[i];
    Tx *tx = self->tx;
    if (locks_apply()) {
        bool first;
        if (lock_exclusive(tx, account_cells[i], &first) < 0 || bias_revoke(tx, group_of(i)) < 0)
            return refused();
        if (locks_apply() && (first || choose(4) == 0)) {
            /* Not the header: others may set bits there. */
            Account *copy = PyMem_RawCalloc(1, sizeof(Account));
            copy->balance = a->balance;
            copy->writer = a->writer;
            if (first) {
                self->found[self->n_found].where = i;
                self->found[self->n_found++].was = *copy;
            }
            undo_push(tx, &undo_account, (PyObject *)a, NULL, NULL)->mem = (char *)copy;
        }
    }
    a->balance = balance;
    a->writer = new_writer();
    record(WRITE, i, 0, balance, a->writer);
    return 0;
}

/* The last of a rollback, being the first entry of the log. */
static PyObject *
verify_rollback(Native *native)
{
    (void)native;
    for (int i = 0; i < self->n_found; i++) {
        Account *a = accounts[self->found[i].where];
        if (a->balance != self->found[i].was.balance || a->writer != self->found[i].was.writer)
            fail("transaction %d: account %d is not rolled back", self->transaction, self->found[i].where);
    }
    return none();
}

static Native *rollback_verifier;

static int
transfer(void)
{
    int g = choose(choose(100) == 0 ? GROUPS : BUSY_GROUPS), from = g * GROUP + choose(GROUP), to = g * GROUP + choose(GROUP), amount = choose(100);
    int64_t a, b;
    if (from == to)
        return 0;
    if (account_read(from, &a) < 0 || account_write(from, a - amount) < 0 || safe_point() < 0)
        return -1;
    return account_read(to, &b) < 0 || account_write(to, b + amount) < 0 ? -1 : 0;
}

static int
audit(void)
{
    int group = choose(GROUPS) * GROUP;
    int64_t sum = 0, balance;
    for (int i = 0; i < GROUP; i++) {
        if (account_read(group + i, &balance) < 0 || safe_point() < 0)
            return -1;
        sum += balance;
    }
    if (sum != 0)
        fail("transaction %d sees a group of accounts that adds up to %ld", self->transaction, (long)sum);
    return 0;
}

/* ---- Dicts -------------------------------------------------------------------------------------------------- */

static uint64_t
value_at(int d, int k)
{
    PyObject *value;
    PyDict_GetItemRef(dicts[d], keys[k], &value);
    uint64_t writer = value ? ((Value *)value)->writer : 0;
    Py_XDECREF(value);
    return writer;
}

static Cell
key_cell(int d, int k)
{
    return cell_of(dicts[d], key_bits(k));
}

static int
get_key(int d, int k)
{
    if (locks_apply() && (lock_intent_read(self->tx, cell_of(dicts[d], WHOLE)) < 0
                          || lock_shared(self->tx, key_cell(d, k)) < 0))
        return refused();
    record(GET, d, k, 0, value_at(d, k));
    return 0;
}

static int
key_restore(Tx *tx, Undo *u)
{
    PyObject *now = NULL;
    PyDict_GetItemRef(u->obj, u->key, &now);
    displace(tx, now);
    if (u->old != NULL)
        return PyDict_SetItem(u->obj, u->key, u->old);
    return PyDict_Pop(u->obj, u->key, NULL) < 0 ? -1 : 0;
}

/* In the engine: access.c, dict.c and instance.c. Nobody has attributes, or hides placeholders to look at the whole. */
const UndoKind undo_key = {.what = "a key", .undo = key_restore, .logged = order_logged};
const UndoKind undo_attr, undo_dict;

Undo *
undo_push_key(Tx *tx, const UndoKind *kind, PyObject *obj, PyObject *key, Py_hash_t hash, PyObject *old)
{
    Undo *u = undo_push(tx, kind, obj, key, old);
    if (u != NULL)
        u->hash = hash;
    return u;
}

uint64_t stm_module_bit, stm_instance_bit;   /* no dict is watched */
const void *namespace_base(PyObject *dict) { (void)dict; return NULL; }
PyObject *dict_copy_places(PyObject *dict) { (void)dict; fail("placeholders are hidden"); }

static int
put_key(int d, int k)
{
    bool first;
    Tx *tx = self->tx;
    if (locks_apply() && (lock_intent_write(tx, cell_of(dicts[d], WHOLE)) < 0
                          || (locks_apply() && lock_exclusive(tx, key_cell(d, k), &first) < 0)))
        return refused();
    PyObject *old;
    PyDict_GetItemRef(dicts[d], keys[k], &old);
    if (locks_apply())
        undo_push_key(tx, &undo_key, dicts[d], keys[k], PyObject_Hash(keys[k]), old);
    if (old == NULL)
        self->inserted[d] = true;
    Py_XDECREF(old);
    Value *value = object_new(&Value_Type, sizeof(Value));
    value->writer = new_writer();
    record(PUT, d, k, 0, value->writer);
    PyDict_SetItem(dicts[d], keys[k], (PyObject *)value);
    Py_DECREF(value);
    return 0;
}

static int
delete_key(int d, int k)
{
    bool first;
    Tx *tx = self->tx;
    if (locks_apply() && (lock_intent_write(tx, cell_of(dicts[d], WHOLE)) < 0
                          || (locks_apply() && lock_exclusive(tx, key_cell(d, k), &first) < 0)))
        return refused();
    PyObject *old;
    if (PyDict_GetItemRef(dicts[d], keys[k], &old) == 0) {
        record(GET, d, k, 0, 0);
        return 0;
    }
    if (locks_apply()) {
        PyObject *value;
        if (order_delete_key(tx, dicts[d], keys[k], PyObject_Hash(keys[k]), &value) != 1 || value != old)
            fail("a key is not deleted");
        Py_DECREF(value);
        self->deleted[d] = true;
    }
    else
        PyDict_DelItem(dicts[d], keys[k]);
    Py_DECREF(old);
    record(DELETE, d, k, 0, 0);
    return 0;
}

static int
scan_dict(int d)
{
    if (locks_apply() && lock_shared_container(self->tx, cell_of(dicts[d], WHOLE)) < 0)
        return refused();
    if (locks_apply())
        order_inserted_items(self->tx, dicts[d]);
    PyObject *items = PyDict_Items(dicts[d]);
    int n = (int)PyList_GET_SIZE(items);
    record(SCAN, d, n, 0, 0);
    for (int i = 0; i < n; i++) {
        PyObject *pair = PyList_GET_ITEM(items, i);
        int k = 0;
        while (keys[k] != PyTuple_GET_ITEM(pair, 0))
            k++;
        record(GET, d, k, 0, ((Value *)PyTuple_GET_ITEM(pair, 1))->writer);
    }
    Py_DECREF(items);
    return 0;
}

static int
use_dict(void)
{
    int d = choose(DICTS), k = choose(KEYS);
    switch (choose(12)) {
    case 0:
        /* What stands for keys that it has deleted is in the way. */
        return self->deleted[d] ? 0 : scan_dict(d);
    case 1: case 2: case 3: case 4:
        return delete_key(d, k);
    case 5: case 6: case 7:
        return get_key(d, k);
    default:
        return put_key(d, k);
    }
}

/* ---- Actions ---------------------------------------------------------------------------------------------------- */

typedef struct { Native native; int number; } Numbered;

static PyObject *
run_numbered(Native *native)
{
    if (((Numbered *)native)->number != self->deferred_run++)
        fail("transaction %d: deferred actions in a wrong order", self->transaction);
    return none();
}

static int
defer_something(void)
{
    if (self->tx->grade == GRADE_EXCLUSIVE)
        return 0;
    Numbered *n = (Numbered *)native_new(run_numbered);
    n->number = self->deferred++;
    append_action(&self->tx->deferred, (PyObject *)n);
    return 0;
}

static PyObject *
do_nothing(Native *native)
{
    (void)native;
    return none();
}

/* Dies when the undo log is dropped, and is like an object with a finalizer in Python. */
static void
finalized_dealloc(PyObject *object)
{
    Tx *tx = self->tx;
    if (tx->live && tx->grade != GRADE_EXCLUSIVE && check_doomed(tx) < 0) {
        if (tx->releasing != AFTER_ABORT)
            fail("a finalizer after a commit was stopped");
        PyErr_Clear();
    }
    else {
        if (tx->releasing != AFTER_COMMIT || tx->grade != GRADE_EXCLUSIVE)
            fail("a finalizer runs that should not");
        finalizers_run++;
    }
    atomic_fetch_sub_explicit(&objects_alive, 1, memory_order_relaxed);
    free(object);
}

static int
hold_finalized(void)
{
    if (!locks_apply())
        return 0;
    PyObject *object = object_new(&Finalized_Type, sizeof(PyObject));
    PyObject *call = native_new(do_nothing);
    undo_push(self->tx, &undo_call, call, no_arguments, object);
    Py_DECREF(object);
    Py_DECREF(call);
    self->finalizers++;
    return 0;
}

static int
go_irrevocable(void)
{
    if (self->tx->grade != GRADE_NONE)
        return 0;
    if (become_inevitable(self->tx, GRADE_IRREVOCABLE) < 0)
        return refused();
    self->irrevocable = true;
    return 0;
}

static int
go_exclusive(void)
{
    if (become_inevitable(self->tx, GRADE_EXCLUSIVE) < 0)
        return refused();
    self->irrevocable = true;
    return 0;
}

/* A loop without barriers that holds an account, until it is told that it is doomed, or for long enough. */
static int
loop_without_barriers(void)
{
    int64_t balance;
    int i = choose(BUSY_GROUPS * GROUP);
    if (account_read(i, &balance) < 0 || account_write(i, balance) < 0)
        return -1;
    int result = 0;
    for (int n = 0; result == 0 && n < 4000; n++) {
        nanosleep(&(struct timespec){0, 100000}, NULL);
        result = safe_point();
        if (n > 20 && state_of(self->tx) != TX_DOOMED)
            break;
    }
    self->told += result < 0;
    return result < 0 ? refused() : 0;
}

/* ---- A transaction ------------------------------------------------------------------------------------------------ */

static struct { int weight; int (*run)(void); } operations[] = {
    {600, transfer},
    {400, audit},
    {500, use_dict},
    {100, defer_something},
    {4, hold_finalized},
    {2, go_irrevocable},
    {1, go_exclusive},
};
#define OFTEN_EXCLUSIVE 30      /* instead, with every third seed */

static int
some_operation(void)
{
    int total = 0;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(operations); i++)
        total += operations[i].weight;
    int at = choose(total);
    for (size_t i = 0;; i++) {
        at -= operations[i].weight;
        if (at < 0)
            return operations[i].run();
    }
}

/* The last deferred action: while the ticket is held, before the locks go. */
static PyObject *
note_commit(Native *native)
{
    (void)native;
    Worker *w = self;
    uint64_t ticket = atomic_load(&w->tx->ticket);
    if (w->deferred_run != w->deferred)
        fail("transaction %d: %d of %d deferred actions have run", w->transaction, w->deferred_run, w->deferred);
    if (w->n_records == w->cap_records) {
        w->cap_records = w->cap_records ? 2 * w->cap_records : 1024;
        w->records = realloc(w->records, w->cap_records * sizeof(Record));
    }
    Record *r = &w->records[w->n_records++];
    *r = (Record){ticket, w->transaction, w->n, malloc(w->n * sizeof(Step) + 1)};
    memcpy(r->steps, w->steps, w->n * sizeof(Step));
    for (int d = 0; d < DICTS; d++) {
        if (w->inserted[d])
            insertions[d].tickets[insertions[d].n++] = ticket;
    }
    w->finalizers_due += w->finalizers;
    return none();
}

static void
begin_attempt(int transaction)
{
    Worker *w = self;
    w->random = seed ^ mix((uint64_t)transaction);
    w->transaction = transaction;
    w->n = w->n_found = w->deferred = w->deferred_run = w->finalizers = 0;
    w->irrevocable = w->tx->grade != GRADE_NONE;
    memset(w->inserted, 0, sizeof w->inserted);
    memset(w->deleted, 0, sizeof w->deleted);
    if (w->tx->undo.n != 0)
        fail("transaction %d begins with an undo log", transaction);
    if (locks_apply())
        undo_push(w->tx, &undo_call, (PyObject *)rollback_verifier, no_arguments, NULL);
}

typedef struct { Native native; int transaction; } Function;

static PyObject *
run_transaction(Native *native)
{
    begin_attempt(((Function *)native)->transaction);
    bool raises = choose(20) == 0, loops = n_threads > 1 && choose(3000) == 0;
    for (int n = choose(12); n >= 0; n--) {
        if (safe_point() < 0 || some_operation() < 0)
            return NULL;
    }
    if (loops && loop_without_barriers() < 0)
        return NULL;
    append_action(&self->tx->deferred, native_new(note_commit));
    if (raises) {
        PyErr_SetNone((PyObject *)&Failure_Type);
        return NULL;
    }
    return none();
}

/* As `with atomic:` does in a thread that is in no transaction. */
static void
run_atomic(int transaction)
{
    Tx *tx = self->tx;
    tx_begin(tx, atomic_fetch_add(&stm_next_age, 1), GRADE_EXCLUSIVE);
    begin_attempt(transaction);
    for (int n = choose(12); n >= 0; n--) {
        if (transfer() < 0 || audit() < 0)
            fail("an atomic block was stopped");
    }
    append_action(&tx->deferred, native_new(note_commit));
    if (tx_commit(tx) < 0)
        fail("an atomic block was aborted");
}

/* The first half of the threads ends when half of the transactions have begun; only then the second half begins, and
 * takes the descriptors of the first over, of which nothing but the engine tells it. */
static void *
work(void *arg)
{
    Worker *w = self = arg;
    bool late = w >= workers + n_threads;
    while (late && atomic_load_explicit(&next_transaction, memory_order_relaxed) < n_transactions / 2)
        usleep(1000);
    thread_begin(seed * MAX_THREADS + (uint64_t)(w - workers));
    w->tx = stm_thread_tx();
    long aborts = w->tx->aborts, exclusives = w->tx->exclusives;
    for (;;) {
        int i = atomic_fetch_add_explicit(&next_transaction, 1, memory_order_relaxed);
        if (i >= n_transactions)
            break;
        if (transactions[i] == NULL)
            run_atomic(i);
        else {
            int how;
            while ((how = transaction_run(transactions[i], choose(20) == 0, NULL)) == RUN_PUT_OFF)
                usleep(100);
            if (how == RUN_RAISED && !exception_is(&Failure_Type))
                fail("transaction %d raised something else", i);
            PyErr_Clear();
        }
        if (w->n_records == 0 || w->records[w->n_records - 1].transaction != i)
            fail("transaction %d has not committed", i);
        tickets[i] = w->records[w->n_records - 1].ticket;
        if (safe_point() < 0)
            fail("the transaction %d was told of its doom after its end", i);
        if (!late && i >= n_transactions / 2)
            break;
    }
    w->aborts += w->tx->aborts - aborts;
    w->exclusives += w->tx->exclusives - exclusives;
    thread_end();
    return NULL;
}

/* ---- The proof --------------------------------------------------------------------------------------------------------- */

static int
by_ticket(const void *a, const void *b)
{
    uint64_t x = ((const Record *)a)->ticket, y = ((const Record *)b)->ticket;
    return (x > y) - (x < y);
}

static struct { int64_t balance; uint64_t writer; } model[ACCOUNTS];
static struct { int keys[KEYS], n; uint64_t writers[KEYS]; } model_dicts[DICTS];

static int
model_position(int d, int k)
{
    for (int i = 0; i < model_dicts[d].n; i++) {
        if (model_dicts[d].keys[i] == k)
            return i;
    }
    return -1;
}

static void
replay_step(const Record *r, int i)
{
    Step *s = &r->steps[i];
    int k = s->key, d = s->where, at;
    switch (s->kind) {
    case READ:
        if (s->balance != model[d].balance || s->writer != model[d].writer)
            fail("transaction %d, ticket %lu: reads %ld of %lx from account %d, which has %ld of %lx in the order of commits",
                 r->transaction, (long)r->ticket, (long)s->balance, (long)s->writer, d, (long)model[d].balance,
                 (long)model[d].writer);
        return;
    case WRITE:
        model[d].balance = s->balance;
        model[d].writer = s->writer;
        return;
    case GET:
        at = model_position(d, k);
        if (s->writer != (at < 0 ? 0 : model_dicts[d].writers[k]))
            fail("transaction %d, ticket %lu: finds %lx under key %d of dict %d, not %lx", r->transaction, (long)r->ticket,
                 (long)s->writer, k, d, at < 0 ? 0 : (long)model_dicts[d].writers[k]);
        return;
    case PUT:
        if (model_position(d, k) < 0)
            model_dicts[d].keys[model_dicts[d].n++] = k;
        model_dicts[d].writers[k] = s->writer;
        return;
    case DELETE:
        at = model_position(d, k);
        if (at < 0)
            fail("transaction %d, ticket %lu: deletes a key that is not there", r->transaction, (long)r->ticket);
        model_dicts[d].n--;
        memmove(&model_dicts[d].keys[at], &model_dicts[d].keys[at + 1], (model_dicts[d].n - at) * sizeof(int));
        return;
    case SCAN:
        if (s->key != model_dicts[d].n)
            fail("transaction %d, ticket %lu: finds %d keys in dict %d, not %d", r->transaction, (long)r->ticket, s->key, d,
                 model_dicts[d].n);
        for (int n = 0; n < s->key; n++) {
            if (r->steps[i + 1 + n].key != model_dicts[d].keys[n])
                fail("transaction %d, ticket %lu: the keys of dict %d are not in the order of commits", r->transaction,
                     (long)r->ticket, d);
        }
        return;
    }
}

static void
prove(void)
{
    Record *all = malloc((n_transactions + 1) * sizeof(Record));
    int n = 0;
    for (int i = 0; i < 2 * n_threads; i++) {
        memcpy(all + n, workers[i].records, workers[i].n_records * sizeof(Record));
        n += workers[i].n_records;
    }
    if (n != n_transactions)
        fail("%d commits of %d transactions", n, n_transactions);
    qsort(all, n, sizeof(Record), by_ticket);
    for (int i = 0; i < n; i++) {
        if (i > 0 && all[i].ticket == all[i - 1].ticket)
            fail("two commits have one ticket");
        for (int j = 0; j < all[i].n; j++)
            replay_step(&all[i], j);
        free(all[i].steps);
    }
    free(all);
    for (int i = 0; i < ACCOUNTS; i++) {
        if (accounts[i]->balance != model[i].balance || accounts[i]->writer != model[i].writer)
            fail("account %d does not end as in the order of commits", i);
    }
    for (int d = 0; d < DICTS; d++) {
        PyObject *items = PyDict_Items(dicts[d]);
        if (PyList_GET_SIZE(items) != model_dicts[d].n)
            fail("dict %d does not end with as many keys as in the order of commits", d);
        for (int i = 0; i < model_dicts[d].n; i++) {
            PyObject *pair = PyList_GET_ITEM(items, i);
            int k = model_dicts[d].keys[i];
            if (PyTuple_GET_ITEM(pair, 0) != keys[k]
                || ((Value *)PyTuple_GET_ITEM(pair, 1))->writer != model_dicts[d].writers[k])
                fail("dict %d does not end as in the order of commits", d);
        }
        Py_DECREF(items);
        for (int i = 1; i < insertions[d].n; i++) {
            if (insertions[d].tickets[i - 1] >= insertions[d].tickets[i])
                fail("deferred actions of insertions into dict %d are not in the order of commits", d);
        }
    }
}

static void
check_rest(void)
{
    long due = 0, alive = 0, aborts = 0, exclusives = 0, told = 0;
    int attempts = 0;
    for (int i = 0; i < n_transactions; i++) {
        Transaction *t = transactions[i];
        if (t == NULL)
            continue;
        if (!atomic_load(&t->done) || t->function != NULL)
            fail("transaction %d is not as a committed one should be", i);
        int p = predecessor_of(i);
        if (p >= 0 && transactions[p] != NULL && tickets[p] >= tickets[i])
            fail("transaction %d commits before its predecessor %d", i, p);
        if (attempts < t->attempts)
            attempts = t->attempts;
    }
    for (int i = 0; i < 2 * n_threads; i++) {
        due += workers[i].finalizers_due;
        aborts += workers[i].aborts;
        exclusives += workers[i].exclusives;
        told += workers[i].told;
    }
    if (finalizers_run != due)
        fail("%ld finalizers have run, not %ld", finalizers_run, due);
    for (int d = 0; d < DICTS; d++)
        alive += model_dicts[d].n;
    for (int i = 1; i < MAX_THREADS; i++)
        alive += stm_threads[i] != NULL && thread_of(stm_threads[i])->order.placeholders != NULL;
    if (atomic_load(&objects_alive) != alive)
        fail("%ld objects are alive, not %ld", objects_alive, alive);
    if (n_transactions >= 20000 && stm_biases_taken == 0)
        fail("no read bias has been taken away");
    printf("seed %lu, %d threads: %d commits, %ld aborts (at most %d of one), %ld exclusive, %ld loops stopped, "
           "read bias given %lu times and taken %lu times\n", (long)seed, n_threads, n_transactions, aborts, attempts,
           exclusives, told, (unsigned long)stm_biases_given, (unsigned long)stm_biases_taken);
}

/* A lock that somebody forgot stands in the way of this. */
static void
check_locks(void)
{
    self = &workers[0];
    thread_begin(seed);
    Tx *tx = self->tx = stm_thread_tx();
    bool first;
    stm_inject_rate = 0;
    tx_begin(tx, atomic_fetch_add(&stm_next_age, 1), GRADE_NONE);
    for (int i = 0; i < ACCOUNTS; i++) {
        if (lock_exclusive(tx, account_cells[i], &first) < 0)
            fail("account %d cannot be locked", i);
    }
    for (int d = 0; d < DICTS; d++) {
        if (lock_exclusive(tx, cell_of(dicts[d], WHOLE), &first) < 0)
            fail("dict %d cannot be locked", d);
    }
    tx_commit(tx);
    thread_end();
}

/* ---- The run -------------------------------------------------------------------------------------------------------------- */

/* Cells that meet in the tables: of one bucket, small and large, more than it has ways; of a small one; and such that no read
 * mark can tell apart. */
static void
choose_account_cells(void)
{
    for (int i = 0; i < ACCOUNTS; i++)
        account_cells[i] = cell_of(accounts[i], WHOLE);
    Cell bucket = account_cells[0] & (LARGE_BUCKETS - 1), small = bucket & (SMALL_BUCKETS - 1);
    for (int i = 1; i < CROWDED_GROUPS * GROUP; i++) {
        Cell random = mix(seed + i);
        if (i < 4 * GROUP)
            account_cells[i] = bucket | random << LARGE_BITS;
        else if (i < 5 * GROUP)
            account_cells[i] = small | random << SMALL_BITS;
        else if (i < 6 * GROUP)
            account_cells[i] = (account_cells[i - GROUP] & 0xFFFFFFFFull) | random << 32;
        else    /* the tag that stands for any, and its neighbours */
            account_cells[i] = (mix(seed) & (SMALL_BUCKETS - 1)) | (0xFFFFull - (i & 3)) << SMALL_BITS | random << 32;
    }
}

/* What is built on the core: the order of keys. */
static void
begins(Tx *tx)
{
    order_reset(&thread_of(tx)->order);
}

static void
will_commit(Tx *tx)
{
    order_drop_placeholders(tx);
    if (!tx->releasing)
        order_inserted_keys(tx);
}

static Upcalls upcalls;

static void
set_up(void)
{
    stm_Abort = (PyObject *)&Abort_Type;
    upcalls = stm_no_upcalls;
    upcalls.thread_size = sizeof(Thread);
    upcalls.begins = begins;
    upcalls.will_commit = will_commit;
    upcalls.may_be_biased = may_be_biased;
    stm_upcalls = &upcalls;
    Finalized_Type.tp_dealloc = finalized_dealloc;
    Value_Type.tp_dealloc = Failure_Type.tp_dealloc;
    if (orec_init() < 0)
        fail("no memory");
    bias_init();
    for (int i = 0; i < ACCOUNTS; i++)
        accounts[i] = object_new_immortal(&Account_Type, sizeof(Account));
    for (int i = 0; i < KEYS; i++)
        keys[i] = object_new_immortal(&Key_Type, sizeof(PyObject));
    for (int d = 0; d < DICTS; d++) {
        dicts[d] = dict_new_immortal();
        insertions[d].tickets = calloc(n_transactions, sizeof(uint64_t));
    }
    choose_account_cells();
    rollback_verifier = object_new_immortal(&Native_Type, sizeof(Native));
    rollback_verifier->call = verify_rollback;
    transactions = calloc(n_transactions, sizeof *transactions);
    functions = calloc(n_transactions, sizeof *functions);
    tickets = calloc(n_transactions, sizeof *tickets);
    for (int i = 0; i < n_transactions; i++) {
        if (mix(seed * 5 + i) % 200 == 0)
            continue;       /* an atomic block */
        Function *f = object_new_immortal(&Native_Type, sizeof(Function));
        f->native.call = run_transaction;
        f->transaction = i;
        Transaction *t = object_new_immortal(&Transaction_Type, sizeof(Transaction));
        t->function = functions[i] = (PyObject *)f;
        t->age = atomic_fetch_add(&stm_next_age, 1);
        int p = predecessor_of(i);
        if (p >= 0 && transactions[p] != NULL)
            t->predecessor = (PyObject *)transactions[p];
        t->may_be_put_off = mix(seed * 7 + i) % 2 == 0;
        transactions[i] = t;
    }
}

/* Counted as the statistics of the module are, while the threads run. */
static uint64_t
progress(void)
{
    uint64_t n = 0;
    for (int i = 1; i < MAX_THREADS; i++) {
        Tx *tx = atomic_load(&stm_threads[i]);
        if (tx != NULL)
            n += tx->commits;
    }
    return n;
}

static _Atomic bool finished;

static void *
watch(void *unused)
{
    (void)unused;
    uint64_t before = 0;
    for (int still = 0; !atomic_load(&finished); usleep(100000)) {
        if (seed % 2 && still % 4 == 0)
            logfile_close();
        else if (seed % 2 && logfile_open("/dev/null", 0) < 0)
            fail("no log");
        uint64_t now = progress();
        still = now == before ? still + 1 : 0;
        before = now;
        if (still < WATCHDOG_SECONDS * 10)
            continue;
        for (int i = 1; i < MAX_THREADS && stm_threads[i] != NULL; i++) {
            Tx *tx = stm_threads[i];
            fprintf(stderr, "thread %d: state %d, grade %d, age %lu, ticket %lu\n", i, state_of(tx), tx->grade,
                    (long)tx->age, (long)tx->ticket);
        }
        fail("no transaction has ended for %d seconds", WATCHDOG_SECONDS);
    }
    return NULL;
}

int
main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s SEED THREADS TRANSACTIONS\n", argv[0]);
        return 2;
    }
    seed = strtoull(argv[1], NULL, 10);
    n_threads = atoi(argv[2]);
    n_transactions = atoi(argv[3]);
    if (n_threads < 1 || 2 * n_threads >= MAX_THREADS || n_transactions < 0)
        fail("at most %d threads", MAX_THREADS / 2 - 1);
    set_up();
    stm_inject_rate = 0x100000000ull / 200;
    if (seed % 3 == 0)
        operations[Py_ARRAY_LENGTH(operations) - 1].weight = OFTEN_EXCLUSIVE;
    pthread_t watchdog, threads[MAX_THREADS];
    pthread_create(&watchdog, NULL, watch, NULL);
    for (int i = 0; i < 2 * n_threads; i++)
        pthread_create(&threads[i], NULL, work, &workers[i]);
    for (int i = 0; i < 2 * n_threads; i++)
        pthread_join(threads[i], NULL);
    check_locks();
    atomic_store(&finished, true);
    pthread_join(watchdog, NULL);
    prove();
    check_rest();
    return 0;
}
