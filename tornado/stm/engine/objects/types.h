/* Types: which have state that a transaction may write, and of which kind.
 *
 * A kind is a constant structure, beside the code that knows how objects of that kind are transactional.  Whoever opens
 * an object goes through open_...() in access.h, which does what all kinds have in common.
 *
 * Such functions return 0 when the caller may go on and -1 with an exception set when the transaction must abort (or
 * failed).  They come before the native operation, which then runs at full speed on the object in place.
 */
#ifndef TORNADO_STM_TYPES_H
#define TORNADO_STM_TYPES_H

#include "../core/base.h"
#include "../core/undo.h"

typedef int (*Visit)(Tx *tx, PyObject *inside, void *arg);

struct Kind {
    /* What nothing but the type says: */
    bool fixed_attributes;      /* attributes in C are methods, or never change */
    enum { C_STATE_CONSTANT = 0, C_STATE_WHOLE, C_STATE_UNKNOWN } c_state;      /* what attributes in C tell of: what never changes,
                                                                                   the whole, or nobody knows what */
    bool has_attributes;        /* in a dict, besides those in C */
    bool plain;                 /* copy and pickle take it apart without running Python code */
    bool compared_inside;       /* comparing it compares what is in it */
    bool visited_in_part;       /* `visit` is for who compares or prints it, not for all that it is made of */
    bool compared_by_memory;    /* comparing something inert with it may look into its memory */
    bool mapping;
    bool reads_operands;        /* its operators read all that the other operand contains */
    bool made_captured;         /* calling the type makes an object that nobody else knows */

    /* Opening it. NULL: see open_...() in access.h. */
    int (*read_attr)(Tx *tx, PyObject *obj, PyObject *name);                         /* 1: as of other objects */
    int (*change_attr)(Tx *tx, PyObject *obj, PyObject *name, bool del, bool raw);   /* 1: as of other objects */
    int (*read_whole)(Tx *tx, PyObject *obj);
    int (*write_whole)(Tx *tx, PyObject *obj);
    int (*read_key)(Tx *tx, PyObject *obj, PyObject *key);
    int (*read_item)(Tx *tx, PyObject *obj, PyObject *key);             /* the same, and what is missed may be made */
    int (*write_key)(Tx *tx, PyObject *obj, PyObject *key, bool del);
    int (*iterate)(Tx *tx, PyObject *obj, int depth);                   /* items will be taken from it */
    int (*visit)(Tx *tx, PyObject *obj, Visit visit, void *arg);        /* open it, and visit what is inside, but for what is inert */
    bool (*may_be_biased)(PyObject *obj);                               /* all that read or write it ask by the object itself */

    /* Of a container, whose contents can be logged as a whole: */
    PyObject *(*contents)(PyObject *obj);   /* a copy of all, whatever a subclass makes of the methods; NULL with an exception */
    const UndoKind *undo;                   /* puts back the contents in `old` */
    int (*log_more)(Tx *tx, PyObject *obj); /* before that, or NULL */
};
typedef const struct Kind *Kind;

#define KIND(name, constant) extern const struct Kind constant;
#include "kinds.def"
#undef KIND

/* Tables of types, by their addresses: how many entries they have, and where a type is looked for first. */
#define TYPE_TABLE 4096

static inline size_t
type_place(PyTypeObject *type)
{
    return ((uintptr_t)type >> 4) * 0x9E3779B97F4A7C15ull >> 52;
}

Kind classify(PyTypeObject *type);

/* The kind with that number, as effects.py knows it: KIND_... RuntimeError when the table is full. */
int types_register(PyTypeObject *type, int number);
/* The same of a type that has this name, module included, and that no module has under it. */
int types_register_name(PyObject *name, int number);
void types_set_probe(PyTypeObject *python_class);
bool is_python_class(PyTypeObject *type);
PyTypeObject *c_base(PyTypeObject *type);

enum {
    KIND_NONE = 0,
#define KIND(name, constant) KIND_##name,
#include "kinds.def"
#undef KIND
    KINDS,
};

/* What a thread knows of types. */
#define TYPE_CACHE_BITS 11
#define TYPE_CACHE (1u << TYPE_CACHE_BITS)
typedef struct {
    PyTypeObject *type;
    uint32_t version;
    Kind kind;
    bool simple_call;   /* calling the class runs a Python __init__ and no other Python code */
    bool python_call;   /* calling the class runs Python code, whose barriers are all that it needs */
    bool reference;     /* a weak one */
    enum { TIED_UNKNOWN, UNTIED, TIED } tied;   /* instances: may C code use them on the anchor only? (calls/anchor.c) */
} TypeEntry;

#endif
