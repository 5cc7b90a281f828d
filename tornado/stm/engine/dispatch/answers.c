/* What has been asked, and may be answered before what was scheduled with it has run. */
#include "answers.h"

#include "../thread.h"
#include "dispatcher.h"

#define LONGEST 0.1     /* seconds */

static _Atomic double longest = LONGEST;

PyObject *
set_longest_question(PyObject *Py_UNUSED(module), PyObject *seconds)
{
    double value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred())
        return NULL;
    return PyFloat_FromDouble(atomic_exchange(&longest, value));
}

void
answers_follow(void)
{
    Scheduling *by = stm_self != NULL ? thread_of(stm_self)->chain.by : NULL;
    if (by != NULL)
        atomic_store_explicit(&by->sent.something, true, memory_order_release);
}

static void
remove_at(Questions *questions, int i)
{
    questions->n--;
    memmove(questions->open + i, questions->open + i + 1, (size_t)(questions->n - i) * sizeof(Question));
}

static void
forget_old(Questions *questions, double now)
{
    for (int i = questions->n; i-- > 0;) {
        if (now - questions->open[i].since >= atomic_load(&longest))
            remove_at(questions, i);
    }
}

static bool
has_room(Questions *questions, double now)
{
    if (questions->n == questions->room)
        forget_old(questions, now);
    if (questions->n < questions->room)
        return true;
    int room = questions->room ? 2 * questions->room : 16;
    Question *open = PyMem_RawRealloc(questions->open, (size_t)room * sizeof(Question));
    if (open == NULL)
        return false;
    questions->open = open;
    questions->room = room;
    return true;
}

/* It has a number from here on. */
static void
give_number(Questions *questions, Sent *sent, double now)
{
    if (sent->number != 0)
        return;
    sent->number = ++questions->asked;
    sent->since = now;
}

void
question_goes_on(Questions *questions, Sent *sent, Entry *last)
{
    double now = last != NULL ? seconds_of(CLOCK_MONOTONIC) : 0;
    if (last != NULL && has_room(questions, now)) {
        give_number(questions, sent, now);
        last->question = sent->number;
        questions->open[questions->n++] = (Question){sent->number, sent->since};
    }
    sent->number = 0;
    atomic_store_explicit(&sent->something, false, memory_order_relaxed);
}

void
question_is_over(Questions *questions, Entry *entry)
{
    for (int i = 0; i < questions->n; i++) {
        if (questions->open[i].number == entry->question) {
            remove_at(questions, i);
            return;
        }
    }
}

/* The number of this thread's open question; UINT64_MAX: it has none, or it has been open for too long. */
static uint64_t
number_of(Questions *questions, Sent *sent, double now)
{
    if (!atomic_load_explicit(&sent->something, memory_order_acquire))
        return UINT64_MAX;
    give_number(questions, sent, now);
    return now - sent->since < atomic_load(&longest) ? sent->number : UINT64_MAX;
}

uint64_t
questions_oldest(Dispatcher *d)
{
    uint64_t oldest = UINT64_MAX;
    double now = seconds_of(CLOCK_MONOTONIC);
    PyObject *thread, *scheduling;
    for (Py_ssize_t at = 0; PyDict_Next(d->threads, &at, &thread, &scheduling);) {
        uint64_t number = number_of(&d->questions, &((Scheduling *)scheduling)->sent, now);
        oldest = number < oldest ? number : oldest;
    }
    forget_old(&d->questions, now);
    for (int i = 0; i < d->questions.n; i++)
        oldest = d->questions.open[i].number < oldest ? d->questions.open[i].number : oldest;
    return oldest;
}

uint64_t
questions_open(Dispatcher *d)
{
    return d->n_threads > 1 && questions_oldest(d) != UINT64_MAX ? d->questions.asked : 0;
}
