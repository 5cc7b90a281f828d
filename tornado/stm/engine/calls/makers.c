/* Methods, operators and parsers in C that make a list, dict or set, and asynchronous generators, which make what is awaited of them: what they
 * return is the attempt's own, for nobody else knows it yet.
 *
 * No barrier sees what a call returns.  So the functions are exchanged in the interpreter's own types, once and for all threads: those
 * that stand in for them make the call, and note what it has made.  Where a method is called in another way than is known here, it is left
 * alone; then what it makes is locked and logged when it changes.
 *
 * Trusted code keeps what it makes wherever it likes, without a log: there nothing is noted.
 */
#include "makers.h"

#include "../../interpreter/tracebacks.h"
#include "../objects/known.h"
#include "../objects/structure.h"
#include "callbacks.h"

static bool
in_trusted_code(void)
{
    _PyInterpreterFrame *frame = PyThreadState_Get()->current_frame;
    while (frame != NULL && frame->owner >= FRAME_OWNED_BY_INTERPRETER)
        frame = frame->previous;
    return frame != NULL && _PyFrame_GetCode(frame)->co_flags & CO_STM_TRUSTED;
}

static inline PyObject *
own(PyObject *made)
{
    Tx *tx = stm_open;
    if (tx != NULL && made != NULL && is_builtin_container(made) && !in_trusted_code())
        note_captured(tx, made);
    return made;
}

/* ---- Methods -------------------------------------------------------------------------------- */

/* Of one argument, or none; of several; of several, some by name. */
#define ONE(method) \
    static PyCFunction method##_itself; \
    static PyObject *method(PyObject *self, PyObject *argument) { return own(method##_itself(self, argument)); }
#define SEVERAL(method) \
    static PyCFunction method##_itself; \
    static PyObject *method(PyObject *self, PyObject *const *args, Py_ssize_t n) \
    { \
        return own(((PyCFunctionFast)(void (*)(void))method##_itself)(self, args, n)); \
    }
#define NAMED(method) \
    static PyCFunction method##_itself; \
    static PyObject *method(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) \
    { \
        return own(((PyCFunctionFastWithKeywords)(void (*)(void))method##_itself)(self, args, n, names)); \
    }

ONE(list_copy)
ONE(dict_copy)
ONE(set_copy)
ONE(set_symmetric_difference)
SEVERAL(set_union)
SEVERAL(set_intersection)
SEVERAL(set_difference)
SEVERAL(dict_fromkeys)
NAMED(str_split)
NAMED(str_rsplit)
NAMED(str_splitlines)
NAMED(bytes_split)
NAMED(bytes_rsplit)
NAMED(bytes_splitlines)
NAMED(pattern_findall)
NAMED(pattern_split)

/* What is awaited of an asynchronous generator: neither locked nor logged, nor, after a rollback, what nobody has awaited. */
static PyObject *
own_awaitable(PyObject *made)
{
    Tx *tx = stm_open;
    if (tx != NULL && made != NULL && !in_trusted_code()) {
        PyUnstable_Type_AssignVersionTag(Py_TYPE(made));
        note_captured(tx, made);
    }
    return made;
}

#define AWAITED(method) \
    static PyCFunction async_generator_##method##_itself; \
    static PyObject *async_generator_##method(PyObject *self, PyObject *argument) \
    { \
        return own_awaitable(async_generator_##method##_itself(self, argument)); \
    }

AWAITED(asend)
AWAITED(athrow)
AWAITED(aclose)

static unaryfunc async_next_itself;
static PyObject *async_next(PyObject *generator) { return own_awaitable(async_next_itself(generator)); }

#define MAKER(type, name, flags) {#type, #name, flags, &type##_##name##_itself, _PyCFunction_CAST(type##_##name)}
static const struct {
    const char *type, *name;
    int flags;
    PyCFunction *itself, stands_in;
} makers[] = {
    MAKER(list, copy, METH_NOARGS),
    MAKER(dict, copy, METH_NOARGS),
    MAKER(dict, fromkeys, METH_FASTCALL | METH_CLASS),
    MAKER(set, copy, METH_NOARGS),
    MAKER(set, union, METH_FASTCALL),
    MAKER(set, intersection, METH_FASTCALL),
    MAKER(set, difference, METH_FASTCALL),
    MAKER(set, symmetric_difference, METH_O),
    MAKER(str, split, METH_FASTCALL | METH_KEYWORDS),
    MAKER(str, rsplit, METH_FASTCALL | METH_KEYWORDS),
    MAKER(str, splitlines, METH_FASTCALL | METH_KEYWORDS),
    MAKER(bytes, split, METH_FASTCALL | METH_KEYWORDS),
    MAKER(bytes, rsplit, METH_FASTCALL | METH_KEYWORDS),
    MAKER(bytes, splitlines, METH_FASTCALL | METH_KEYWORDS),
    MAKER(pattern, findall, METH_FASTCALL | METH_KEYWORDS),
    MAKER(pattern, split, METH_FASTCALL | METH_KEYWORDS),
    MAKER(async_generator, asend, METH_O),
    MAKER(async_generator, athrow, METH_VARARGS),
    MAKER(async_generator, aclose, METH_NOARGS),
};

/* How the type has it defined, or NULL: as nothing that is known here, or with an exception. */
static PyMethodDef *
definition_of(const char *type, const char *name)
{
    PyObject *owner = strcmp(type, "pattern") == 0 ? PyImport_ImportModuleAttrString("re", "Pattern")
        : strcmp(type, "async_generator") == 0 ? Py_NewRef(&PyAsyncGen_Type) : PyImport_ImportModuleAttrString("builtins", type);
    PyObject *method = owner != NULL ? PyObject_GetAttrString(owner, name) : NULL;
    PyMethodDef *found = method == NULL ? NULL : Py_IS_TYPE(method, &PyMethodDescr_Type) ? ((PyMethodDescrObject *)method)->d_method
        : PyCFunction_CheckExact(method) ? ((PyCFunctionObject *)method)->m_ml : NULL;
    Py_XDECREF(owner);
    Py_XDECREF(method);
    return found;
}

static int
exchange_methods(void)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(makers); i++) {
        PyMethodDef *method = definition_of(makers[i].type, makers[i].name);
        if (method == NULL && PyErr_Occurred())
            return -1;
        if (method == NULL || method->ml_flags != makers[i].flags || method->ml_meth == makers[i].stands_in)
            continue;
        *makers[i].itself = method->ml_meth;
        method->ml_meth = makers[i].stands_in;
    }
    return 0;
}

/* ---- Operators ------------------------------------------------------------------------------ */

#define OPERATOR(name) \
    static binaryfunc name##_itself; \
    static PyObject *name(PyObject *left, PyObject *right) { return own(name##_itself(left, right)); }

OPERATOR(list_concatenation)
OPERATOR(dict_or)
OPERATOR(set_or)
OPERATOR(set_and)
OPERATOR(set_subtract)
OPERATOR(set_xor)

static ssizeargfunc list_repetition_itself;
static PyObject *list_repetition(PyObject *list, Py_ssize_t n) { return own(list_repetition_itself(list, n)); }

/* A slice is made; an item was there. */
static binaryfunc list_subscript_itself;
static PyObject *
list_subscript(PyObject *list, PyObject *key)
{
    PyObject *found = list_subscript_itself(list, key);
    return PySlice_Check(key) ? own(found) : found;
}

static void
exchange_operator(binaryfunc *slot, binaryfunc *itself, binaryfunc stands_in)
{
    if (*slot == stands_in)
        return;
    *itself = *slot;
    *slot = stands_in;
}

static void
exchange_operators(void)
{
    PyNumberMethods *set = PySet_Type.tp_as_number;
    exchange_operator(&PyList_Type.tp_as_sequence->sq_concat, &list_concatenation_itself, list_concatenation);
    exchange_operator(&PyList_Type.tp_as_mapping->mp_subscript, &list_subscript_itself, list_subscript);
    exchange_operator(&PyDict_Type.tp_as_number->nb_or, &dict_or_itself, dict_or);
    exchange_operator(&set->nb_or, &set_or_itself, set_or);
    exchange_operator(&set->nb_and, &set_and_itself, set_and);
    exchange_operator(&set->nb_subtract, &set_subtract_itself, set_subtract);
    exchange_operator(&set->nb_xor, &set_xor_itself, set_xor);
    if (PyAsyncGen_Type.tp_as_async->am_anext != async_next) {
        async_next_itself = PyAsyncGen_Type.tp_as_async->am_anext;
        PyAsyncGen_Type.tp_as_async->am_anext = async_next;
    }
    if (PyList_Type.tp_as_sequence->sq_repeat != list_repetition) {
        list_repetition_itself = PyList_Type.tp_as_sequence->sq_repeat;
        PyList_Type.tp_as_sequence->sq_repeat = list_repetition;
    }
}

/* ---- Parsers -------------------------------------------------------------------------------- */

/* So many of the containers that a text contains are noted: the table of what is captured has room for some thousands. */
#define MOST_OF_TREE 1000

/* What has been made of a text, the whole first.  Returns how many more may be noted. */
static int
own_tree(Tx *tx, PyObject *made, int left)
{
    PyObject *value;
    Py_ssize_t at = 0;
    if (left <= 0 || !(PyList_CheckExact(made) || PyDict_CheckExact(made)) || !_PyObject_IsUniquelyReferenced(made))
        return left;
    note_captured(tx, made);
    left--;
    if (PyList_CheckExact(made)) {
        for (; at < PyList_GET_SIZE(made); at++)
            left = own_tree(tx, PyList_GET_ITEM(made, at), left);
        return left;
    }
    while (PyDict_Next(made, &at, NULL, &value))
        left = own_tree(tx, value, left);
    return left;
}

/* Does it call nothing but what json's own decoder does?  What the program has given it may return what was there before. */
static bool
parses_plainly(const JSONScanner *scanner)
{
    PyObject *constant = unguarded(scanner->parse_constant);        /* by its name, out of a dict */
    PyObject *table = PyCFunction_CheckExact(constant) ? PyCFunction_GET_SELF(constant) : NULL;
    return scanner->object_hook == Py_None && scanner->object_pairs_hook == Py_None && scanner->parse_float == (PyObject *)&PyFloat_Type
        && scanner->parse_int == (PyObject *)&PyLong_Type && table != NULL && PyDict_CheckExact(table)
        && strcmp(((PyCFunctionObject *)constant)->m_ml->ml_name, "__getitem__") == 0;
}

static ternaryfunc scan_itself;

/* In the place of calling JSON's scanner. */
static PyObject *
scan(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *found = scan_itself(self, args, kwargs);      /* and where it ends */
    Tx *tx = stm_open;
    if (found != NULL && tx != NULL && parses_plainly((JSONScanner *)self) && !in_trusted_code())
        own_tree(tx, PyTuple_GET_ITEM(found, 0), MOST_OF_TREE);
    return found;
}

static iternextfunc next_row_itself;
static PyObject *next_row(PyObject *reader) { return own(next_row_itself(reader)); }

/* A type whose structure is another one than is known here is left alone. */
static int
exchange_parsers(void)
{
    PyTypeObject *scanner = (PyTypeObject *)PyImport_ImportModuleAttrString("_json", "make_scanner");
    PyTypeObject *reader = (PyTypeObject *)PyImport_ImportModuleAttrString("_csv", "Reader");
    if (scanner != NULL && scanner->tp_basicsize == sizeof(JSONScanner) && scanner->tp_call != scan) {
        scan_itself = scanner->tp_call;
        scanner->tp_call = scan;
    }
    if (reader != NULL && reader->tp_iternext != next_row) {
        next_row_itself = reader->tp_iternext;
        reader->tp_iternext = next_row;
    }
    Py_XDECREF(scanner);
    Py_XDECREF(reader);
    return scanner == NULL || reader == NULL ? -1 : 0;
}

int
makers_init(void)
{
    exchange_operators();
    return exchange_methods() < 0 || exchange_parsers() < 0 ? -1 : 0;
}
