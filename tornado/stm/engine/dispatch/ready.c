/* The transactions that wait for a thread of the loop: two lines, each first come, first served. */
#include "ready.h"

#include "../core/transaction.h"
#include "chain.h"

/* ---- Lines --------------------------------------------------------------------------------- */

/* One more, or (-1) one less.  ready_has_prompt() reads it without the lock. */
static void
line_count(Line *line, Entry *entry, int by)
{
    _Py_atomic_store_ssize_relaxed(&line->n, line->n + by);
    line->n_prompt += by * entry->is_prompt;
}

static void
line_append(Line *line, Entry *entry)
{
    entry->line = line;
    if (line->last != NULL)
        line->last->next = entry;
    else
        line->first = entry;
    line->last = entry;
    line_count(line, entry, 1);
}

static void
line_prepend(Line *line, Entry *entry)
{
    entry->line = line;
    entry->next = line->first;
    line->first = entry;
    if (line->last == NULL)
        line->last = entry;
    line_count(line, entry, 1);
}

/* The first, which the caller owns from here on; not of an empty line. */
static Entry *
line_pop(Line *line)
{
    Entry *entry = line->first;
    line->first = entry->next;
    if (line->first == NULL)
        line->last = NULL;
    line_count(line, entry, -1);
    entry->next = NULL;
    entry->line = NULL;
    return entry;
}

/* Not the first: what comes after `ahead`; the caller owns it from here on. */
static Entry *
line_remove_after(Line *line, Entry *ahead)
{
    Entry *entry = ahead->next;
    ahead->next = entry->next;
    if (line->last == entry)
        line->last = ahead;
    line_count(line, entry, -1);
    entry->next = NULL;
    entry->line = NULL;
    return entry;
}

static void
line_clear(Line *line)
{
    while (line->first != NULL) {
        Entry *entry = line_pop(line);
        Py_CLEAR(entry->before);    /* here, where they do not drop each other in a long row */
        Py_DECREF(entry);
    }
}

static uint64_t
age_of(Entry *entry)
{
    return ((Transaction *)entry->transaction)->age;
}

/* ---- Strands ----------------------------------------------------------------------------------- */

int
strand_join(Strand *strand, Entry *entry, bool last)
{
    if (strand == NULL) {
        strand = PyMem_RawCalloc(1, sizeof *strand);
        if (strand == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        strand->number = age_of(entry);
    }
    _Py_atomic_store_ssize_relaxed(&strand->n, strand->n + 1);
    if (last)
        _Py_atomic_store_ptr_relaxed(&strand->last, entry);
    entry->strand = strand;
    return 0;
}

static void
free_unused(Strand *strand)
{
    if (strand->n + strand->holders == 0)
        PyMem_RawFree(strand);
}

void
strand_hold(Strand **held, Strand *strand)
{
    Strand *before = *held;
    if (strand != NULL)
        strand->holders++;
    *held = strand;
    if (before != NULL) {
        before->holders--;
        free_unused(before);
    }
}

static void
strand_leave(Entry *entry)
{
    Strand *strand = entry->strand;
    entry->strand = NULL;
    if (strand == NULL)
        return;
    if (strand->last == entry)
        _Py_atomic_store_ptr_relaxed(&strand->last, NULL);
    _Py_atomic_store_ssize_relaxed(&strand->n, strand->n - 1);
    free_unused(strand);
}

/* ---- Entries -------------------------------------------------------------------------------- */

/* Of a transaction of that function and arguments, which commits after that of `before` (or NULL).  A new reference. */
static Entry *
entry_new(PyObject *function, PyObject *args, PyObject *site, Entry *before, double expected)
{
    if (!PyTuple_Check(args)) {
        PyErr_Format(PyExc_TypeError, "the arguments of what is to be run must be a tuple, not %T", args);
        return NULL;
    }
    PyObject *transaction = (PyObject *)transaction_after(function, args, before != NULL ? (Transaction *)before->transaction : NULL);
    if (transaction == NULL)
        return NULL;
    Entry *entry = (Entry *)Entry_Type.tp_alloc(&Entry_Type, 0);
    if (entry == NULL) {
        Py_DECREF(transaction);
        return NULL;
    }
    entry->transaction = transaction;
    entry->site = Py_NewRef(site);
    entry->before = (Entry *)Py_XNewRef(before);
    entry->expected = expected;
    entry->is_fresh = true;
    return entry;
}

static int
entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Entry *entry = (Entry *)self;
    Py_VISIT(entry->transaction);
    Py_VISIT(entry->site);
    Py_VISIT(entry->before);
    return 0;
}

static int
entry_clear(PyObject *self)
{
    Entry *entry = (Entry *)self;
    strand_leave(entry);
    Py_CLEAR(entry->transaction);
    Py_CLEAR(entry->site);
    Py_CLEAR(entry->before);
    Py_CLEAR(entry->why_alone);     /* a string */
    return 0;
}

static void
entry_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef entry_members[] = {
    {"transaction", Py_T_OBJECT_EX, offsetof(Entry, transaction), Py_READONLY, PyDoc_STR("the Transaction that waits")},
    {"site", Py_T_OBJECT_EX, offsetof(Entry, site), Py_READONLY, PyDoc_STR("its Site, or None")},
    {"expected", Py_T_DOUBLE, offsetof(Entry, expected), Py_READONLY, PyDoc_STR("seconds that it is expected to take")},
    {"why_alone", _Py_T_OBJECT, offsetof(Entry, why_alone), Py_READONLY, PyDoc_STR("why such ones have had to run alone, or None")},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.Entry",
    .tp_doc = PyDoc_STR("A transaction that waits, or has waited, in a ReadyQueue."),
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = entry_dealloc,
    .tp_traverse = entry_traverse,
    .tp_clear = entry_clear,
    .tp_members = entry_members,
};

/* ---- The queue ------------------------------------------------------------------------------- */

static PyObject *while_only_prompt;     /* as stats() tells why what is anchored runs alone */

static ReadyQueue *
as_queue(PyObject *self)
{
    return (ReadyQueue *)self;
}

#define LINES 5
static Line *
line_of(ReadyQueue *q, int i)
{
    Line *lines[LINES] = {&q->prompt, &q->long_ones, &q->gathered, &q->anchored, &q->aside};
    return lines[i];
}

static bool
is_waiting_in(Entry *entry, Line *line)
{
    return entry != NULL && entry->line == line;
}

Entry *
ready_make(ReadyQueue *q, PyObject *function, PyObject *args, PyObject *site, Entry *before)
{
    Entry *entry = entry_new(function, args, site, before, expected_of(q->estimates, site));
    if (entry != NULL)
        entry->is_prompt = is_known_prompt(q->estimates, site);
    return entry;
}

/* It waits for what comes before it, and goes back to that line.  Takes the reference. */
static void
wait_aside(ReadyQueue *q, Entry *entry, Line *back)
{
    entry->before->holds_up++;
    entry->back = back;
    line_append(&q->aside, entry);
}

/* Those that wait aside for this one, in their order, linked by `next`, are no more: the caller owns them. */
static Entry *
take_from_aside(ReadyQueue *q, Entry *before)
{
    Line *line = &q->aside;
    Entry *ahead = NULL, *first = NULL, **end = &first;
    while (before->holds_up > 0) {
        Entry *each = ahead != NULL ? ahead->next : line->first;
        if (each->before != before) {
            ahead = each;
            continue;
        }
        *end = ahead != NULL ? line_remove_after(line, ahead) : line_pop(line);
        end = &each->next;
        before->holds_up--;
    }
    return first;
}

/* Of what has been taken from aside: the rest, after what waits aside for this one. */
static Entry *
with_its_own(ReadyQueue *q, Entry *entry, Entry *rest)
{
    Entry *own = take_from_aside(q, entry), *last = own;
    if (own == NULL)
        return rest;
    while (last->next != NULL)
        last = last->next;
    last->next = rest;
    return own;
}

static void
place(ReadyQueue *q, Entry *entry)
{
    PyObject *site = entry->site;
    Entry *before = entry->before;
    Line *line = entry->expected >= LONG ? &q->long_ones : &q->prompt;
    PyObject *why = q->gathers ? why_alone(q->estimates, site) : NULL;
    bool anchored = q->gathers && is_anchored(q->estimates, site);
    if (why == NULL && anchored && ready_only_prompt(q))
        why = while_only_prompt;
    entry->is_fresh = false;
    /* Fresh: the thread that has run what schedules that one is not through with it. */
    if (UNLIKELY(before != NULL && (before->is_fresh || before->line == &q->aside))) {
        wait_aside(q, entry, line);
        return;
    }
    if (is_waiting_in(before, &q->long_ones))
        line = before->line;
    else if (why != NULL) {
        entry->why_alone = Py_NewRef(why);
        line = &q->gathered;
    }
    else if (is_waiting_in(before, &q->gathered))
        line = before->line;
    else if (anchored)
        line = &q->anchored;
    line_append(line, entry);
}

void
ready_place(ReadyQueue *q, Entry *entry)
{
    place(q, entry);
    for (Entry *to_come = take_from_aside(q, entry); (entry = to_come) != NULL; to_come = with_its_own(q, entry, to_come)) {
        to_come = entry->next;
        entry->next = NULL;
        place(q, entry);
    }
}

static PyObject *
queue_put(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    PyObject *site = n > 2 ? args[2] : Py_None, *before = n > 3 ? args[3] : Py_None;
    if (n < 2 || n > 4 || (before != Py_None && !Py_IS_TYPE(before, &Entry_Type))) {
        PyErr_SetString(PyExc_TypeError, "put() takes a function, a tuple of its arguments, a Site or None, and an Entry or None");
        return NULL;
    }
    if (!is_site(site))
        return NULL;
    Entry *entry = ready_make(as_queue(self), args[0], args[1], site, before != Py_None ? (Entry *)before : NULL);
    if (entry != NULL)
        ready_place(as_queue(self), (Entry *)Py_NewRef(entry));
    return (PyObject *)entry;
}

int
ready_put_first(ReadyQueue *q, PyObject *function, PyObject *args)
{
    Entry *entry = entry_new(function, args, Py_None, NULL, 0.0);
    if (entry == NULL || strand_join(NULL, entry, true) < 0) {
        Py_XDECREF(entry);
        return -1;
    }
    entry->is_fresh = false;
    line_prepend(&q->prompt, entry);
    return 0;
}

static PyObject *
queue_put_first(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "put_first() takes a function and a tuple of its arguments");
        return NULL;
    }
    if (ready_put_first(as_queue(self), args[0], args[1]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
queue_only_long(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(ready_only_long(as_queue(self)));
}

static double
at_least_long(double seconds)
{
    return seconds < LONG ? LONG : seconds;
}

void
ready_put_off(ReadyQueue *q, Entry *entry)
{
    Transaction *before = entry->before != NULL ? (Transaction *)entry->before->transaction : NULL;
    Py_INCREF(entry);
    if (before != NULL && !atomic_load(&before->done))
        wait_aside(q, entry, &q->prompt);
    else if (((Transaction *)entry->transaction)->moves && !entry->moves_not)
        line_prepend(&q->anchored, entry);      /* what comes after it may be there */
    else
        line_prepend(&q->prompt, entry);
}

/* Where what goes back goes to: not before what it has to come after. */
static Line *
line_back(ReadyQueue *q, Entry *entry)
{
    Line *of_before = entry->before->back;
    return of_before == &q->long_ones || of_before == &q->gathered ? of_before : entry->back;
}

/* This one has run: what waits aside for it goes back, before all others of its line, for it has waited already.  What waits aside for that
 * goes with it: the next ones of a strand run beside each other again. */
static void
let_go_on(ReadyQueue *q, Entry *entry)
{
    entry->back = NULL;
    Entry *freed = NULL;        /* the last one first */
    for (Entry *each, *to_come = take_from_aside(q, entry); (each = to_come) != NULL; to_come = with_its_own(q, each, to_come)) {
        to_come = each->next;
        each->back = line_back(q, each);
        each->next = freed;
        freed = each;
    }
    while (freed != NULL) {
        Entry *each = freed;
        freed = each->next;
        line_prepend(each->back, each);
    }
}

/* What comes first in that line, and must come after what waits aside, waits with that, and so does what must come after what only
 * another thread may take. */
static void
let_wait_aside(ReadyQueue *q, Line *line)
{
    while (UNLIKELY(q->aside.n + q->anchored.n > 0) && line->first != NULL
           && (is_waiting_in(line->first->before, &q->aside) || (line != &q->anchored && is_waiting_in(line->first->before, &q->anchored))))
        wait_aside(q, line_pop(line), line);
}

bool
is_of_next_rounds(ReadyQueue *q, Entry *entry)
{
    return entry->strand != NULL && entry->strand->number == q->stopped && entry->round > q->stopped_in;
}

static bool
can_be_taken(ReadyQueue *q, Entry *entry, uint64_t until)
{
    return entry != NULL && age_of(entry) < until && (entry->before == NULL || entry->before->line == NULL)
        && (LIKELY(q->stopped == 0) || !is_of_next_rounds(q, entry));
}

void
ready_stop(ReadyQueue *q, Entry *running, unsigned behind)
{
    q->stopped = running != NULL ? running->strand->number : 0;
    q->stopped_in = running != NULL ? running->round + behind : 0;
}

Entry *
ready_take_anchored(ReadyQueue *q, uint64_t until)
{
    let_wait_aside(q, &q->anchored);
    return can_be_taken(q, q->anchored.first, until) ? line_pop(&q->anchored) : NULL;
}

Entry *
ready_take(ReadyQueue *q, uint64_t until, bool on_anchor)
{
    let_wait_aside(q, &q->prompt);
    let_wait_aside(q, &q->long_ones);
    bool owing = q->long_ones.n > 0 && q->owed >= at_least_long(q->long_ones.first->expected);
    if (on_anchor && q->anchored.n > 0 && !owing && (q->prompt.n == 0 || age_of(q->anchored.first) < age_of(q->prompt.first))) {
        Entry *entry = ready_take_anchored(q, until);
        if (entry != NULL)
            return entry;
    }
    Line *lines[] = {owing ? &q->long_ones : &q->prompt, owing ? &q->prompt : &q->long_ones};
    for (int i = 0; i < 2; i++) {
        Entry *entry = lines[i]->first;
        if (!can_be_taken(q, entry, until))
            continue;
        line_pop(lines[i]);
        if (lines[i] == &q->long_ones) {
            q->owed -= at_least_long(entry->expected);
            if (q->owed < 0 || q->long_ones.n == 0)
                q->owed = 0;
        }
        return entry;
    }
    return on_anchor ? ready_take_anchored(q, until) : NULL;
}

bool
ready_has_gathered(ReadyQueue *q, uint64_t until)
{
    let_wait_aside(q, &q->gathered);
    return can_be_taken(q, q->gathered.first, until);
}

Entry *
ready_take_gathered(ReadyQueue *q, uint64_t until)
{
    return ready_has_gathered(q, until) ? line_pop(&q->gathered) : NULL;
}

Entry *
ready_take_prompt(ReadyQueue *q, uint64_t until)
{
    let_wait_aside(q, &q->prompt);
    return q->prompt.n > 0 && q->prompt.first->is_prompt && can_be_taken(q, q->prompt.first, until) ? line_pop(&q->prompt) : NULL;
}

Entry *
ready_take_in_gathering(ReadyQueue *q, uint64_t until)
{
    let_wait_aside(q, &q->gathered);
    let_wait_aside(q, &q->prompt);
    /* What is gathered may schedule what is, too, without end. */
    bool older = q->prompt.n > 0 && q->gathered.n > 0 && age_of(q->prompt.first) < age_of(q->gathered.first);
    Entry *entry = older ? ready_take_prompt(q, until) : NULL;
    if (entry == NULL)
        entry = ready_take_gathered(q, until);
    return entry != NULL || older ? entry : ready_take_prompt(q, until);
}

static PyObject *
taken(PyObject *self, PyObject *const *args, Py_ssize_t n, Entry *(*take)(ReadyQueue *q, uint64_t until))
{
    unsigned long long until = n > 0 && args[0] != Py_None ? PyLong_AsUnsignedLongLong(args[0]) : ULLONG_MAX;
    if (until == ULLONG_MAX && PyErr_Occurred())
        return NULL;
    Entry *entry = take(as_queue(self), until);
    return entry != NULL ? (PyObject *)entry : Py_NewRef(Py_None);
}

static Entry *take_on_anchor(ReadyQueue *q, uint64_t until) { return ready_take(q, until, true); }
static Entry *take_elsewhere(ReadyQueue *q, uint64_t until) { return ready_take(q, until, false); }

static PyObject *
queue_take(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return taken(self, args, n, n < 2 || PyObject_IsTrue(args[1]) ? take_on_anchor : take_elsewhere);
}

static PyObject *
queue_take_gathered(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return taken(self, args, n, ready_take_gathered);
}

static PyObject *
queue_take_prompt(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return taken(self, args, n, ready_take_prompt);
}

void
ready_ran(ReadyQueue *q, Entry *entry, double used, double passed)
{
    Py_CLEAR(entry->before);
    strand_leave(entry);
    if (UNLIKELY(entry->holds_up > 0))
        let_go_on(q, entry);
    if (q->long_ones.n > 0 && entry->expected < LONG)
        q->owed += used;
    Py_ssize_t followers;
    double of_followers = chain_learn(q->estimates, &followers);
    q->callbacks += 1 + (uint64_t)followers;
    q->ran++;
    if (used >= LONG)
        q->long_ran = q->ran;
    learn(q->estimates, entry->site, used - of_followers, passed - of_followers);
}

static PyObject *
queue_ran(PyObject *self, PyObject *args)
{
    Entry *entry;
    double seconds;
    if (!PyArg_ParseTuple(args, "O!d", &Entry_Type, &entry, &seconds))
        return NULL;
    ready_ran(as_queue(self), entry, seconds, seconds);
    Py_RETURN_NONE;
}

static PyObject *
queue_put_off(PyObject *self, PyObject *args)
{
    Entry *entry;
    int moves = false;
    if (!PyArg_ParseTuple(args, "O!|p", &Entry_Type, &entry, &moves))
        return NULL;
    if (entry->line != NULL) {
        PyErr_SetString(PyExc_TypeError, "put_off() takes an Entry that has been taken");
        return NULL;
    }
    ((Transaction *)entry->transaction)->moves |= moves;
    ready_put_off(as_queue(self), entry);
    Py_RETURN_NONE;
}

static Py_ssize_t
queue_length(PyObject *self)
{
    return ready_length(as_queue(self));
}

static PyObject *
queue_make(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Estimates *estimates = estimates_new();
    ReadyQueue *q = estimates != NULL ? (ReadyQueue *)type->tp_alloc(type, 0) : NULL;
    if (q != NULL)
        q->estimates = (Estimates *)Py_NewRef(estimates);
    Py_XDECREF(estimates);
    return (PyObject *)q;
}

ReadyQueue *
ready_new(void)
{
    return (ReadyQueue *)queue_make(&ReadyQueue_Type, NULL, NULL);
}

static int
queue_traverse(PyObject *self, visitproc visit, void *arg)
{
    ReadyQueue *q = as_queue(self);
    for (int i = 0; i < LINES; i++) {
        for (Entry *entry = line_of(q, i)->first; entry != NULL; entry = entry->next)
            Py_VISIT(entry);
    }
    Py_VISIT(q->estimates);
    return 0;
}

void
ready_begin(ReadyQueue *q)
{
    ready_stop(q, NULL, 0);
    for (int i = 0; i < LINES; i++) {
        for (Entry *entry = line_of(q, i)->first; entry != NULL; entry = entry->next)
            entry->round = 0;
    }
}

Entry *
ready_youngest(ReadyQueue *q)
{
    Entry *youngest = NULL;
    for (int i = 0; i < LINES; i++) {
        for (Entry *entry = line_of(q, i)->first; entry != NULL; entry = entry->next) {
            if (youngest == NULL || age_of(entry) > age_of(youngest))
                youngest = entry;
        }
    }
    return youngest;
}

bool
ready_is_known_prompt(ReadyQueue *q)
{
    return q->long_ones.n == 0 && q->prompt.n_prompt == q->prompt.n;
}

bool
ready_leaves_some(ReadyQueue *q)
{
    return q->anchored.n > 0 || q->aside.n > 0;
}

void
ready_clear(ReadyQueue *q)
{
    line_clear(&q->prompt);
    line_clear(&q->long_ones);
    line_clear(&q->gathered);
    line_clear(&q->anchored);
    for (Entry *entry = q->aside.first; entry != NULL; entry = entry->next) {
        if (entry->before != NULL)      /* the collector may have been here first */
            entry->before->holds_up = 0;
    }
    line_clear(&q->aside);
}

static int
queue_clear(PyObject *self)
{
    ready_clear(as_queue(self));
    return 0;
}

static PyObject *
queue_forget(PyObject *self, PyObject *Py_UNUSED(unused))
{
    ready_clear(as_queue(self));
    Py_RETURN_NONE;
}

static void
queue_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    queue_clear(self);
    Py_XDECREF(as_queue(self)->estimates);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef queue_methods[] = {
    {"put", _PyCFunction_CAST(queue_put), METH_FASTCALL,
     PyDoc_STR("put($self, function, args, site=None, before=None, /)\n--\n\nLet function(*args) wait, as one transaction.\n\n"
               "`before` is the Entry of its predecessor, or None.  Returns its Entry.")},
    {"put_first", _PyCFunction_CAST(queue_put_first), METH_FASTCALL,
     PyDoc_STR("put_first($self, function, args, /)\n--\n\nLet function(*args) wait before all others, as one transaction.")},
    {"only_long", queue_only_long, METH_NOARGS, PyDoc_STR("only_long($self, /)\n--\n\nDo none but long ones wait?")},
    {"take", _PyCFunction_CAST(queue_take), METH_FASTCALL,
     PyDoc_STR("take($self, until=None, on_anchor=True, /)\n--\n\nRemove the next and return its Entry, or None if none may be"
               " dispatched; of those with an age below `until`.\n\non_anchor: the loop's thread takes it.")},
    {"take_gathered", _PyCFunction_CAST(queue_take_gathered), METH_FASTCALL,
     PyDoc_STR("take_gathered($self, until=None, /)\n--\n\nThe same of those that are expected to run alone, which `take` leaves.")},
    {"take_prompt", _PyCFunction_CAST(queue_take_prompt), METH_FASTCALL,
     PyDoc_STR("take_prompt($self, until=None, /)\n--\n\nThe same of what is known to be prompt, and comes before all others that are expected to"
               " be.")},
    {"ran", queue_ran, METH_VARARGS,
     PyDoc_STR("ran($self, entry, seconds, /)\n--\n\nThis thread has run the transaction, which has taken so many seconds of processor"
               " time.")},
    {"put_off", queue_put_off, METH_VARARGS,
     PyDoc_STR("put_off($self, entry, moves=False, /)\n--\n\nIt has been taken, and is to be taken again when the one before it has run.\n\n"
               "moves: it turned out to need the loop's thread.")},
    {"clear", queue_forget, METH_NOARGS, PyDoc_STR("clear($self, /)\n--\n\nForget all that wait.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"estimates", Py_T_OBJECT_EX, offsetof(ReadyQueue, estimates), Py_READONLY, PyDoc_STR("what its transactions have taken lately")},
    {"owed", Py_T_DOUBLE, offsetof(ReadyQueue, owed), 0,
     PyDoc_STR("seconds that the threads have given to prompt ones while long ones waited")},
    {"gathers", Py_T_BOOL, offsetof(ReadyQueue, gathers), 0, PyDoc_STR("does what is expected to run alone wait for itself?")},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
queue_only_prompt(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(ready_only_prompt(as_queue(self)));
}

static PyGetSetDef queue_computed[] = {
    {"only_prompt", queue_only_prompt, NULL, PyDoc_STR("has nothing taken long for long?  Also without the lock: now, or a moment ago."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods queue_as_sequence = {.sq_length = queue_length};

PyTypeObject ReadyQueue_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.ReadyQueue",
    .tp_doc = PyDoc_STR("ReadyQueue()\n--\n\nThe transactions that wait for a thread.  All but `estimates` is for who has the dispatcher's"
                        " lock."),
    .tp_basicsize = sizeof(ReadyQueue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = queue_make,
    .tp_dealloc = queue_dealloc,
    .tp_traverse = queue_traverse,
    .tp_clear = queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
    .tp_getset = queue_computed,
    .tp_as_sequence = &queue_as_sequence,
};

int
ready_init(PyObject *module)
{
    while_only_prompt = PyUnicode_InternFromString("a greenlet, since nothing takes long");
    return while_only_prompt == NULL || PyModule_AddType(module, &Entry_Type) < 0 || PyModule_AddType(module, &ReadyQueue_Type) < 0 ? -1 : 0;
}
