/* What instructions and calls have found open already. */
#ifndef TORNADO_STM_NAMES_H
#define TORNADO_STM_NAMES_H

#include "core/base.h"

/* An attribute, item or global that an instruction has opened, by its name. It counts while it is opened_name_entry()
 * (../interpreter/loop.h) of the object. */
typedef struct {
    PyObject *obj;
    uintptr_t what;         /* the name, and an OF_ in its lowest bits */
    uint64_t check;         /* as in Opened */
    uintptr_t tid;          /* the object's ob_tid: one that is there by capture is known from those of other threads */
} OpenedName;

enum { OF_READ_ATTR, OF_WRITTEN_ATTR, OF_READ_ITEM, OF_WRITTEN_ITEM, OF_GLOBAL };
#define OPENED_NAME_SLOTS 1024

/* A C function and what makes that a call of it needs nothing. That stays so. */
typedef struct {
    const void *method;         /* PyMethodDef */
    void *receiver;             /* of exactly this type; of a function, that of its module, or, with a twin, the module itself: of several
                                   copies of a module, which have the same definitions, one has the twin */
    enum {
        CALL_PURE,              /* nothing has to */
        CALL_OF_CAPTURED,       /* a receiver made in this transaction */
        CALL_OF_KEYS,           /* a dict in which keys may be looked up */
        CALL_OF_CONSTANTS,      /* constants as arguments */
        CALL_OF_OPEN,           /* a receiver and arguments that are constants or open for reading */
        CALL_INTO_CAPTURED,     /* a receiver made in this transaction, and such arguments */
        CALL_OF_ATTRIBUTE,      /* the attribute of its first argument that the second names, for ever, to be open */
        CALL_OF_OWNED,          /* a receiver whose C state is this transaction's, and constants as arguments */
        CALL_OF_TWIN,           /* nothing does: `twin` is to be called in its place */
    } needs;
    PyObject *twin;             /* borrowed: lives for ever */
} KnownCall;
/* Which of the names that C code calls a class has for a function, as bits. It counts for that version of the class, which keeps
 * its functions alive. */
typedef struct {
    PyObject *function;
    PyTypeObject *type;
    uint32_t version, names;
} KnownMethod;
#define KNOWN_METHODS 256

#define KNOWN_CALLS_LOG2 10
#define KNOWN_CALLS (1 << KNOWN_CALLS_LOG2)     /* that many functions have each its place; two of one place are found out again each time */

static inline size_t
known_call_place(const void *key)
{
    return (uintptr_t)key * 0x9E3779B97F4A7C15ull >> (64 - KNOWN_CALLS_LOG2);
}

#define READ_CELLS 16

/* What the evaluation loop keeps for a thread. */
typedef struct {
    PyObject *read_cells[READ_CELLS];   /* closure cells that this attempt has locked for reading: their addresses, by which locks go */
    PyTypeObject *made;             /* class of which an instruction has made an instance last, and its version then */
    uint32_t made_version;
    PyTypeObject *constructing;     /* class whose call comes next; its __init__ gets a captured object */
    PyObject *called;               /* function that C code calls next with what it was given, as a Guarded: borrowed, or NULL */
    bool prints;                    /* this attempt has formatted a text by another way than the operator, with what a mapping returns perhaps */
    bool new_iterator;              /* GET_ITER comes next, and will make an iterator */
    PyObject *deleted;              /* value of a key that the engine has deleted in the place of a call */
    PyObject *scratch;              /* dict for an instruction to delete from, in the place of another */
    OpenedName names[OPENED_NAME_SLOTS];
    KnownCall calls[KNOWN_CALLS];           /* what makes a call of that method need nothing */
    uintptr_t plain[KNOWN_CALLS];           /* keys of what needs nothing in exclusive transactions (PLAIN_), as long as no effects */
    unsigned registered;                    /* have been registered but those (../engine/calls/calls.c) */
    bool plain_counts;                      /* the attempt is exclusive, on the anchor's thread, and will have nothing to forget */
    KnownMethod methods[KNOWN_METHODS];
} Loop;

/* In the lowest bit of such a key: the table of effects does not know it, and elsewhere than on the anchor's thread it may belong there. */
#define PLAIN_ON_ANCHOR 1

/* Where it is noted that calls of what has that key need nothing in an exclusive transaction. */
static inline uintptr_t *
plain_place(Loop *loop, const void *key)
{
    return &loop->plain[known_call_place(key)];
}

/* Is that noted there? */
static inline bool
plain_is(uintptr_t noted, const void *key)
{
    return (noted & ~(uintptr_t)PLAIN_ON_ANCHOR) == (uintptr_t)key;
}

static inline PyObject **
read_cell_at(Loop *loop, PyObject *cell)
{
    return &loop->read_cells[((uintptr_t)cell >> 4 ^ (uintptr_t)cell >> 8) & (READ_CELLS - 1)];
}

/* An attempt begins. With the first stamp of all, old entries would count again. */
static inline void
loop_reset(Loop *loop, uint32_t stamp)
{
    loop->constructing = NULL;
    loop->called = NULL;
    loop->plain_counts = loop->prints = false;
    memset(loop->read_cells, 0, sizeof loop->read_cells);
    if (UNLIKELY(stamp == 1))
        memset(loop->names, 0, sizeof loop->names);
}

#endif
