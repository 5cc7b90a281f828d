/* The conflict log: what threads tell of their transactions, in the terms of PyPy-STM's log (C7).
 *
 * The records of each thread, whenever the log was opened, obey this grammar:
 *
 *      thread       (transaction | pause)*
 *      transaction  START (conflict | pause | BECOME_INEVITABLE)* (COMMIT | conflict-lost ABORT | ABORT)
 *      conflict     details CONTENTION_... [ABORTING_OTHER] WAIT_CONTENTION WAIT_DONE
 *      conflict-lost    details CONTENTION_...
 *      details      [CONTENTION_OBJECT] [CONTENTION_CALLERS] [CONTENTION_HANDLERS]
 *      pause        WAIT_SYNC_PAUSE WAIT_DONE
 *
 * A conflict names the line where this thread is, and the one where the other thread did what is in the way: of the
 * program or of a library that it uses.  Who waits because another one is inevitable, to begin itself among others,
 * has a conflict with that one.  A pause is nobody's: the wait for the commit of an earlier transaction, and what the
 * engine itself has to wait for (Logged.preparing).
 *
 * The rest PyPy-STM's log did not have.  Details are of the conflict that follows: the object, attribute or key that both want; the lines
 * of the program itself that have called those lines (empty: that line is the program's); the functions of the program that these
 * belong to.  BECOME_INEVITABLE has the line, and as its second marker which grade the transaction has from now on, or "sequential": it is
 * exclusive since nobody else has anything to do.
 *
 * An attempt begins with the wait for those that are exclusive.  The transaction in which a thread drops what an ended
 * one held is in the log only if it has a conflict.
 */
#include "proflog.h"

#include "tx.h"
#include "upcalls.h"

static Losses nobodys, of_unknown_places;
const Place stm_nowhere = {"", "", "", &nobodys}, stm_unknown_place = {"", "", "", &of_unknown_places};

/* Returns when. */
static uint64_t
append(Tx *tx, int other, int event, const char *here, const char *there)
{
    return logfile_tell(tx->slot, (Told){.log = tx->logged.story.log, .other = (uint32_t)other, .event = event, .here = here, .there = there});
}

/* Is there a log? Then with tx->logged.story about this one. */
static bool
is_logged(Tx *tx)
{
    if (LIKELY(!stm_log_on))
        return false;
    uint32_t number = atomic_load(&stm_log_number);
    if (tx->logged.story.log != number)
        tx->logged.story = (Story){.log = number};
    return true;
}

static void
append_both(Tx *tx, int event, const char *here, const char *there)
{
    if (here[0] != '\0' || there[0] != '\0')
        append(tx, 0, event, here, there);
}

/* Many threads count at one place. */
static void
add_to(_Atomic uint64_t *sum, uint64_t more)
{
    atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
}

static void
append_start(Tx *tx)
{
    tx->logged.story.since = append(tx, 0, LOG_START, NULL, NULL);
    tx->logged.story.begun = true;
    tx->logged.story.inevitable_since = 0;
}

static void
append_conflict(Tx *tx)
{
    Story *story = &tx->logged.story;
    const Place *here = story->here, *there = story->there;
    if (!story->begun)
        append_start(tx);
    if (story->object != NULL)
        append(tx, 0, LOG_OBJECT, story->object, NULL);
    append_both(tx, LOG_CALLERS, here->caller, there->caller);
    append_both(tx, LOG_HANDLERS, here->handler, there->handler);
    append(tx, story->other, story->conflict, here->line, there->line);
}

static void
append_wait(Tx *tx)
{
    tx->logged.story.waits_since = append(tx, 0, tx->logged.story.conflict ? LOG_WAIT_CONTENTION : LOG_WAIT_SYNC_PAUSE, NULL, NULL);
    tx->logged.story.waiting = true;
}

/* Where this thread is, unless what it is about is none of the program's business. */
const Place *
log_location(Tx *tx)
{
    return tx->logged.preparing ? &stm_nowhere : stm_upcalls->location(tx);
}

void
log_begin(Tx *tx)
{
    if (is_logged(tx))
        append_start(tx);
    stm_upcalls->locate_beginning(tx);
    if (UNLIKELY(tx->grade != GRADE_NONE))
        log_grade(tx);
}

/* With LOG_COMMIT or LOG_ABORT. */
void
log_end(Tx *tx, int event)
{
    if (!is_logged(tx))
        return;
    Story *story = &tx->logged.story;
    if (story->begun) {
        uint64_t now = append(tx, 0, event, NULL, NULL);
        const Place *at = atomic_load_explicit(event == LOG_ABORT ? &tx->logged.at : &tx->logged.inevitable_at, memory_order_relaxed);
        if (event == LOG_ABORT)
            add_to(&(story->conflict ? story->here : at != NULL ? at : &stm_unknown_place)->losses->lost, now - story->since);
        else if (story->inevitable_since != 0 && at != NULL)
            add_to(&at->losses->inevitable, now - story->inevitable_since);
    }
    story->begun = false;
    story->conflict = 0;
}

/* This transaction has a new grade. */
void
log_grade(Tx *tx)
{
    if (!is_logged(tx) || !tx->logged.story.begun)
        return;
    const Place *at = atomic_load_explicit(&tx->logged.inevitable_at, memory_order_relaxed);
    bool sequential = tx->company == SEQUENTIAL;
    const char *grade = sequential ? "sequential" : tx->grade == GRADE_EXCLUSIVE ? "exclusive" : "irrevocable";
    uint64_t now = append(tx, 0, LOG_BECOME_INEVITABLE, at != NULL ? at->line : "", grade), since = tx->logged.story.inevitable_since;
    if (since != 0 && at != NULL)
        add_to(&at->losses->inevitable, now - since);   /* in the grade before, which is the same place's now */
    tx->logged.story.inevitable_since = sequential ? 0 : now;
}

/* Something that the other thread did there (NULL: nobody knows where) is in the way of this one, which is about to lock that cell, if
 * any.  What comes next is log_aborting(), log_wait(), or the abort of this attempt. */
void
log_conflict(Tx *tx, int event, Tx *other, const Place *there, const uint64_t *cell)
{
    if (LIKELY(!stm_log_on))
        return;
    const Place *here = log_location(tx);
    if (there == NULL)
        there = atomic_load_explicit(&other->logged.at, memory_order_acquire);
    if (there == NULL)
        there = &stm_unknown_place;
    if (!is_logged(tx))
        return;
    Story *story = &tx->logged.story;
    story->conflict = 0;
    if (here != &stm_nowhere && there != &stm_nowhere) {
        story->conflict = event;
        story->other = other->slot;
        story->here = here;
        story->there = there;
        story->object = cell != NULL ? stm_upcalls->name_of_cell(tx, *cell) : NULL;
        add_to(&here->losses->conflicts, 1);
        append_conflict(tx);
    }
}

/* For that conflict, the other one will be rolled back. The grammar has that before the wait: one that
 * has lasted until now ends here, and goes on as another conflict. */
void
log_aborting(Tx *tx, Tx *other)
{
    if (!is_logged(tx))
        return;
    Story *story = &tx->logged.story;
    if (!story->conflict)
        return;
    bool waiting = story->waiting;
    if (waiting) {
        uint64_t now = append(tx, 0, LOG_WAIT_DONE, NULL, NULL);
        add_to(&story->here->losses->waited, now - story->waits_since);
        if (story->other != other->slot) {
            const Place *there = atomic_load_explicit(&other->logged.at, memory_order_acquire);
            story->other = other->slot;
            story->there = there != NULL ? there : &stm_unknown_place;
        }
        append_conflict(tx);
    }
    append(tx, other->slot, LOG_ABORTING_OTHER, NULL, NULL);
    if (waiting)
        append_wait(tx);
}

/* This thread waits, for that conflict if there is one. */
void
log_wait(Tx *tx)
{
    if (is_logged(tx) && !tx->logged.story.waiting)
        append_wait(tx);
}

/* It has waited, be it only for a moment. */
void
log_go(Tx *tx)
{
    if (!is_logged(tx))
        return;
    if (!tx->logged.story.waiting && tx->logged.story.conflict)
        append_wait(tx);
    Story *story = &tx->logged.story;
    if (story->waiting) {
        uint64_t now = append(tx, 0, LOG_WAIT_DONE, NULL, NULL);
        if (story->conflict)
            add_to(&story->here->losses->waited, now - story->waits_since);
    }
    story->waiting = false;
    story->conflict = 0;
}
