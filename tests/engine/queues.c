/* Queues of transactions without the interpreter, as stress.c has single transactions: for the sanitizers.
 *
 *      queues SEED THREADS TREES
 *
 * Each transaction adds those below it in a tree, some of them to another queue; two queues are worked at a time, by as many
 * threads each, most of which the engine hires itself.  Aborts are injected.
 *
 * Checked:
 *
 *  once          of each tree, every transaction commits exactly once, an aborted attempt adds nothing;
 *  failure       one that raises is the last of its queue's run in the order of commits, so the only one, and the queue
 *                tells of it;
 *  no leak       of objects, of what is dropped neither.
 */
#include "interpreter.h"

#include "core/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define QUEUES 2
#define ROUND 16            /* trees that are in the queues at the same time */
#define DEPTH 5
#define MAX_HIRED 4096

/* ---- Trees ------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    int expected;           /* transactions; more than commit, if some raise */
    int committed;          /* by the one that owns the tree */
} Tree;

static PyTypeObject Tree_Type = {.tp_name = "Tree"};
static Tree *trees[ROUND];

/* The function of a transaction. */
typedef struct {
    Native native;
    Tree *tree;
    int queue, depth;
    uint64_t random;
    bool may_raise;
} Node;

static PyObject *queues[QUEUES];
static Number *n_workers;

static int
n_children(uint64_t random, int depth)
{
    return depth == 0 ? 0 : (int)(random % 4);
}

static int
size_of_tree(uint64_t random, int depth)
{
    int n = 1;
    for (int i = 0; i < n_children(random, depth); i++)
        n += size_of_tree(mix(random + i), depth - 1);
    return n;
}

static PyMethodDef *
method(const char *name)
{
    for (PyMethodDef *m = Queue_Type.tp_methods;; m++) {
        if (strcmp(m->ml_name, name) == 0)
            return m;
    }
}

static PyObject *run_node(Native *native);

static void
add_node(Node like)
{
    Node *node = object_new(&Native_Type, sizeof(Node));
    like.native = node->native;
    like.native.call = run_node;
    *node = like;
    PyObject *args[] = {(PyObject *)node};
    PyObject *r = ((PyCFunctionFastWithKeywords)(void (*)(void))method("add")->ml_meth)(queues[node->queue], args, 1, NULL);
    if (r == NULL)
        fail("a transaction cannot be added");
    Py_DECREF(r);
    Py_DECREF(node);
}

/* Of one run of a queue: the last ticket that one of its transactions has drawn, and how many have raised. */
static struct { _Atomic uint64_t last, last_raised; _Atomic int n_raised; } runs[QUEUES];

/* A deferred action: before the locks go. */
typedef struct { Native native; Tree *tree; int queue; bool raises; } Commit;

static PyObject *
count_commit(Native *native)
{
    Commit *commit = (Commit *)native;
    uint64_t ticket = atomic_load(&stm_thread_tx()->ticket), last = atomic_load(&runs[commit->queue].last);
    commit->tree->committed++;
    while (last < ticket && !atomic_compare_exchange_weak(&runs[commit->queue].last, &last, ticket))
        continue;
    if (commit->raises) {
        atomic_store(&runs[commit->queue].last_raised, ticket);
        atomic_fetch_add(&runs[commit->queue].n_raised, 1);
    }
    return none();
}

static PyObject *
run_node(Native *native)
{
    Node *node = (Node *)native;
    Tx *tx = stm_thread_tx();
    bool first, raises = node->may_raise && mix(node->random) % 8 == 0;
    int before = n_children(node->random, node->depth) / 2;
    for (int i = 0; i < n_children(node->random, node->depth); i++) {
        if (safe_point() < 0 || (i == before && lock_exclusive(tx, cell_of(node->tree, WHOLE), &first) < 0))
            return NULL;
        uint64_t random = mix(node->random + i);
        add_node((Node){.tree = node->tree, .queue = mix(random) % 8 == 0 ? !node->queue : node->queue,
                        .depth = node->depth - 1, .random = random, .may_raise = node->may_raise});
    }
    if (lock_exclusive(tx, cell_of(node->tree, WHOLE), &first) < 0)
        return NULL;
    if (mix(node->random + 99) % 50 == 0 && become_inevitable(tx, GRADE_EXCLUSIVE) < 0)
        return NULL;
    Commit *commit = object_new(&Native_Type, sizeof(Commit));
    commit->native.call = count_commit;
    commit->tree = node->tree;
    commit->queue = node->queue;
    commit->raises = raises;
    append_action(&tx->deferred, (PyObject *)commit);
    if (raises) {
        PyErr_SetNone((PyObject *)&Failure_Type);
        return NULL;
    }
    return none();
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

typedef struct { Native native; PyObject *queue; } Starter;

static Starter *starters[QUEUES];
static PyMutex hired_lock;
static pthread_t hired[MAX_HIRED];
static int n_hired;
static _Atomic uint64_t next_seed;

/* A thread that wakes up late may find work that has come in meanwhile, and hire others. */
static void
join_hired(void)
{
    for (;;) {
        PyMutex_Lock(&hired_lock);
        bool any = n_hired > 0;
        pthread_t thread = hired[any ? --n_hired : 0];
        PyMutex_Unlock(&hired_lock);
        if (!any)
            return;
        pthread_join(thread, NULL);
    }
}

static void
work_for(PyObject *queue, Starter *starter)
{
    PyObject *r = method("_work")->ml_meth(queue, (PyObject *)starter);
    if (r == NULL || safe_point() < 0)
        fail("a worker ends with an exception");
    Py_DECREF(r);
}

static void *
worker(void *starter)
{
    thread_begin(atomic_fetch_add(&next_seed, 1));
    work_for(((Starter *)starter)->queue, starter);
    thread_end();
    return NULL;
}

static PyObject *
start_worker(Native *native)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, native) != 0)
        fail("no more threads");
    PyMutex_Lock(&hired_lock);
    if (n_hired == MAX_HIRED)
        fail("%d threads have been hired", n_hired);
    hired[n_hired++] = thread;
    PyMutex_Unlock(&hired_lock);
    return none();
}

/* As TransactionQueue.run(). Returns whether a transaction has raised. */
static bool
run_queue(int i)
{
    atomic_store(&runs[i].last, 0);
    atomic_store(&runs[i].n_raised, 0);
    PyObject *args[] = {(PyObject *)n_workers, (PyObject *)starters[i], Py_None};
    PyObject *failure = ((PyCFunctionFast)(void *)method("_run")->ml_meth)(queues[i], args, 3);
    if (failure == NULL || safe_point() < 0)
        fail("a run ends with an exception");
    bool failed = failure != Py_None;
    if (failed && !Py_IS_TYPE(failure, &Failure_Type))
        fail("a queue failed for a wrong reason");
    Py_DECREF(failure);
    if (atomic_load(&runs[i].n_raised) != failed)
        fail("%d transactions of a run have raised, and it %s", atomic_load(&runs[i].n_raised), failed ? "fails" : "does not fail");
    if (failed && atomic_load(&runs[i].last) != atomic_load(&runs[i].last_raised))
        fail("a transaction commits after the one that has raised");
    return failed;
}

static _Atomic bool failed[QUEUES];

static void *
drive(void *number)
{
    int i = (int)(intptr_t)number;
    thread_begin(atomic_fetch_add(&next_seed, 1));
    atomic_store(&failed[i], run_queue(i));
    thread_end();
    return NULL;
}

/* ---- The run ------------------------------------------------------------------------------------------ */

/* Both queues at once, then what they have added to each other after one of them had ended. */
static void
run_round(uint64_t seed, bool may_raise)
{
    pthread_t drivers[QUEUES];
    long before = atomic_load(&objects_alive);
    thread_begin(seed);
    for (int i = 0; i < ROUND; i++) {
        uint64_t random = mix(seed * ROUND + i);
        trees[i]->committed = 0;
        trees[i]->expected = size_of_tree(random, DEPTH);
        add_node((Node){.tree = trees[i], .queue = i % QUEUES, .depth = DEPTH, .random = random, .may_raise = may_raise});
    }
    thread_end();
    for (int i = 0; i < QUEUES; i++)
        pthread_create(&drivers[i], NULL, drive, (void *)(intptr_t)i);
    for (int i = 0; i < QUEUES; i++)
        pthread_join(drivers[i], NULL);
    join_hired();
    bool some_failed = atomic_load(&failed[0]) || atomic_load(&failed[1]);
    thread_begin(seed);
    for (int i = 0; i < 2 * QUEUES * DEPTH; i++)
        some_failed |= run_queue(i % QUEUES);
    thread_end();
    join_hired();

    bool fewer = false;
    for (int i = 0; i < ROUND; i++) {
        fewer |= trees[i]->committed < trees[i]->expected;
        if (trees[i]->committed > trees[i]->expected)
            fail("%d transactions of a tree of %d have committed", trees[i]->committed, trees[i]->expected);
    }
    if (fewer && !some_failed)
        fail("transactions have been lost");
    if (some_failed && !may_raise)
        fail("nothing could raise");
    if (atomic_load(&objects_alive) != before)
        fail("%ld objects are left of a round", atomic_load(&objects_alive) - before);
}

static PyObject *
transaction_alloc(PyTypeObject *type, Py_ssize_t n)
{
    PyVarObject *t = object_new(type, sizeof(Transaction) + n * sizeof(PyObject *));
    t->ob_size = n;
    return (PyObject *)t;
}

static void
transaction_free(void *t)
{
    Native_Type.tp_dealloc(t);
}

int
main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s SEED THREADS TREES\n", argv[0]);
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10);
    int n_threads = atoi(argv[2]), n_trees = atoi(argv[3]), n = 0, with_failures = 0;
    if (n_threads < 1 || QUEUES * n_threads >= MAX_THREADS)
        fail("at most %d threads", MAX_THREADS / QUEUES - 1);
    stm_Abort = (PyObject *)&Abort_Type;
    Transaction_Type.tp_alloc = transaction_alloc;
    Transaction_Type.tp_free = transaction_free;
    if (orec_init() < 0)
        fail("no memory");
    n_workers = object_new_immortal(&Native_Type, sizeof(Number));
    n_workers->value = n_threads;
    for (int i = 0; i < ROUND; i++)
        trees[i] = object_new_immortal(&Tree_Type, sizeof(Tree));
    for (int i = 0; i < QUEUES; i++) {
        queues[i] = object_new_immortal(&Queue_Type, Queue_Type.tp_basicsize);
        starters[i] = object_new_immortal(&Native_Type, sizeof(Starter));
        starters[i]->native.call = start_worker;
        starters[i]->queue = queues[i];
    }
    atomic_store(&next_seed, seed << 20);
    stm_inject_rate = 0x100000000ull / 20;
    for (int done = 0; done < n_trees; done += ROUND) {
        bool may_raise = mix(seed + done) % 4 == 0;
        run_round(mix(seed ^ (uint64_t)done << 32), may_raise);
        with_failures += may_raise;
        for (int i = 0; i < ROUND; i++)
            n += trees[i]->committed;
    }
    printf("seed %lu, %d threads: %d transactions of queues, some raising in %d rounds\n", (long)seed, n_threads, n, with_failures);
    return 0;
}
