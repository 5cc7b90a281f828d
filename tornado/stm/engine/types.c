/* Types: which have state that a transaction may write, and of which shape.
 *
 * The table of known C types is filled from Python (effects.py).  A class made
 * by a class statement takes the kind of the C types in its MRO; what inherits
 * from a C type that nobody has declared is unknown, and using its state makes
 * a transaction exclusive.
 */
#include "stm.h"

#define TABLE 4096
static struct { PyTypeObject *type; int kind; } table[TABLE];
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

static size_t
place(PyTypeObject *type)
{
    return ((uintptr_t)type >> 4) * 0x9E3779B97F4A7C15ull >> 52;
}

/* Called while the program starts, under the import lock; types live for ever. */
int
types_register(PyTypeObject *type, int kind)
{
    if (!structure_register(type))
        kind = KIND_UNKNOWN;
    for (size_t i = place(type), n = 0; n < TABLE; n++, i = (i + 1) % TABLE) {
        if (table[i].type == NULL || table[i].type == type) {
            table[i].kind = kind;
            if (table[i].type == NULL)
                table[i].type = (PyTypeObject *)Py_NewRef(type);
            return 0;
        }
    }
    PyErr_SetString(PyExc_RuntimeError, "the table of types is full");
    return -1;
}

static int
registered(PyTypeObject *type)
{
    for (size_t i = place(type), n = 0; n < TABLE; n++, i = (i + 1) % TABLE) {
        if (table[i].type == type)
            return table[i].kind;
        if (table[i].type == NULL)
            return 0;
    }
    return 0;
}

Kind
classify(PyTypeObject *type)
{
    int kind = registered(type);
    if (kind)
        return kind;
    if (PyType_IsSubtype(type, &PyType_Type))
        return KIND_CLASS;
    if (!is_python_class(type))
        return KIND_UNKNOWN;
    PyObject *mro = type->tp_mro;
    if (mro == NULL)
        return KIND_UNKNOWN;
    kind = KIND_INSTANCE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        if (base == &PyBaseObject_Type)
            continue;
        int k = registered(base);
        if (k == 0) {
            if (!is_python_class(base))
                return KIND_UNKNOWN;
            continue;
        }
        /* The first one says most: an OrderedDict is a dict, too. An instance of a subclass
         * of int or tuple has attributes of its own. */
        if (kind == KIND_INSTANCE && k != KIND_INERT)
            kind = k;
    }
    return kind;
}
