/* Types: which have state that a transaction may write, and of which shape.
 *
 * The table of known C types is filled from Python (effects.py).  A class made
 * by a class statement takes the kind of the C types in its MRO; what inherits
 * from a C type that nobody has declared is unknown, and using its state makes
 * a transaction exclusive; so is one with special methods in C that nobody
 * guards (special.c).
 */
#include "types.h"

#include "exception.h"
#include "fields.h"
#include "ndarray.h"
#include "special.h"
#include "structure.h"

static struct { PyTypeObject *_Atomic type; Kind kind; } table[TYPE_TABLE];     /* entries are added, by one thread at a time */

static const Kind kinds[KINDS] = {
#define KIND(name, constant) [KIND_##name] = &constant,
#include "kinds.def"
#undef KIND
};
static destructor python_class_dealloc;

void
types_set_probe(PyTypeObject *python_class)
{
    python_class_dealloc = python_class->tp_dealloc;
}

/* Made by a class statement, not by a C extension? */
bool
is_python_class(PyTypeObject *type)
{
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_dealloc == python_class_dealloc
        && type->tp_methods == NULL;
}

/* The C type whose structure the instances of the class begin with. */
PyTypeObject *
c_base(PyTypeObject *type)
{
    while (is_python_class(type))
        type = type->tp_base;
    return type;
}

/* By one thread at a time; types live for ever. */
int
types_register(PyTypeObject *type, int number)
{
    if (number <= KIND_NONE || number >= KINDS) {
        PyErr_Format(PyExc_ValueError, "there is no kind %d", number);
        return -1;
    }
    Kind kind = structure_register(type) ? kinds[number] : &unknown_kind;
    if (kind == &record_kind && type->tp_traverse == NULL)
        kind = &unknown_kind;       /* nobody can tell what it refers to */
    if (kind == &ndarray_kind && !ndarray_type_is_known(type))
        kind = &unknown_kind;
    for (size_t i = type_place(type), n = 0; n < TYPE_TABLE; n++, i = (i + 1) % TYPE_TABLE) {
        if (table[i].type == NULL || table[i].type == type) {
            table[i].kind = kind;
            if (table[i].type == NULL)      /* last, for those who look meanwhile */
                atomic_store_explicit(&table[i].type, (PyTypeObject *)Py_NewRef(type), memory_order_release);
            if (!(type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN))
                PyType_Modified(type);      /* what threads know of it counts no more; the interpreter's own are there first */
            return 0;
        }
    }
    PyErr_SetString(PyExc_RuntimeError, "the table of types is full");
    return -1;
}

static Kind
registered(PyTypeObject *type)
{
    for (size_t i = type_place(type), n = 0; n < TYPE_TABLE; n++, i = (i + 1) % TYPE_TABLE) {
        if (table[i].type == type)
            return table[i].kind;
        if (table[i].type == NULL)
            return NULL;
    }
    return NULL;
}

/* ---- Types of C code that no module has under their names: they are known by these, with the module's ---- */

#define NAMED 256
static struct { const char *name; Kind kind; } named[NAMED];
static _Atomic int named_count;

int
types_register_name(PyObject *name, int number)
{
    const char *text = PyUnicode_AsUTF8(Py_NewRef(name));   /* for ever */
    int n = named_count;
    if (text == NULL)
        return -1;
    if (n == NAMED || number <= KIND_NONE || number >= KINDS) {
        PyErr_SetString(PyExc_RuntimeError, "there are too many hidden types, or there is no such kind");
        return -1;
    }
    named[n].name = text;
    named[n].kind = kinds[number];
    named_count = n + 1;
    return 0;
}

static Kind
kind_by_name(PyTypeObject *type)
{
    for (int i = 0; i < named_count; i++) {
        if (strcmp(named[i].name, type->tp_name) == 0)
            return named[i].kind == &record_kind && type->tp_traverse == NULL ? &unknown_kind : named[i].kind;
    }
    return &unknown_kind;
}

Kind
classify(PyTypeObject *type)
{
    Kind kind = registered(type);
    if (kind != NULL)
        return kind;
    if (PyType_IsSubtype(type, &PyType_Type))
        return &class_kind;
    if (!is_python_class(type))
        return kind_by_name(type);
    PyObject *mro = type->tp_mro;
    if (mro == NULL)
        return &unknown_kind;
    kind = &instance_kind;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        if (base == &PyBaseObject_Type)
            continue;
        Kind k = registered(base);
        if (k == NULL) {
            if (!is_python_class(base))
                return &unknown_kind;
            continue;
        }
        if (k == &database_kind || tells_errors(base))      /* twins know these types alone; nobody knows what their constructors read */
            return &unknown_kind;
        /* The first one says most: an OrderedDict is a dict, too. An instance of a subclass
         * of int or tuple has attributes of its own. */
        if (kind == &instance_kind && k != &inert_kind)
            kind = k;
    }
    if (kind == &fields_kind && !fields_are_known(type))
        return &unknown_kind;
    return has_unguarded_special_methods(type) ? &unknown_kind : kind;
}
