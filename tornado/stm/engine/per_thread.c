/* What each thread has for itself: not as a threading.local, which all threads of a loop have in common. */
#include "per_thread.h"

#include "calls/calls.h"
#include "core/tx.h"
#include "objects/types.h"

typedef struct {
    PyObject_HEAD
    PyObject *make;
    PyObject *by_thread;        /* dict: identifier, which threads of a child get again -> what `make` has returned */
} PerThread;

unsigned long
identified_thread(void)
{
    return stm_self != NULL ? stm_self->thread_id : PyThread_get_thread_ident();
}

static PyObject *
mine(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PerThread *all = (PerThread *)self;
    PyObject *thread = PyLong_FromUnsignedLong(identified_thread()), *found = NULL;
    if (thread != NULL && PyDict_GetItemRef(all->by_thread, thread, &found) == 0) {
        found = PyObject_CallNoArgs(all->make);
        if (found != NULL && PyDict_SetItem(all->by_thread, thread, found) < 0)
            Py_CLEAR(found);
    }
    Py_XDECREF(thread);
    return found;
}

/* In the child of a fork. What its parent's other threads have is amid something, and nothing of it may end here: it stays. */
static PyObject *
begin_anew(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PerThread *all = (PerThread *)self;
    PyObject *thread = PyLong_FromUnsignedLong(identified_thread()), *by_thread = PyDict_New(), *found = NULL;
    int r = thread == NULL || by_thread == NULL ? -1 : PyDict_GetItemRef(all->by_thread, thread, &found);
    if (r > 0)
        r = PyDict_SetItem(by_thread, thread, found);
    Py_XDECREF(thread);
    Py_XDECREF(found);
    if (r < 0) {
        Py_XDECREF(by_thread);
        return NULL;
    }
    all->by_thread = by_thread;
    Py_RETURN_NONE;
}

/* It stays until the end of the process. */
static int
register_at_fork(PyObject *self)
{
    PyObject *os = PyImport_ImportModule("os"), *function = PyObject_GetAttrString(self, "begin_anew"), *r = NULL;
    PyObject *register_ = os ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
    PyObject *named = function ? Py_BuildValue("{s:O}", "after_in_child", function) : NULL, *none = PyTuple_New(0);
    if (register_ != NULL && named != NULL && none != NULL)
        r = PyObject_Call(register_, none, named);
    Py_XDECREF(none);
    Py_XDECREF(named);
    Py_XDECREF(register_);
    Py_XDECREF(function);
    Py_XDECREF(os);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

static PyObject *
make_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *make;
    if (!PyArg_ParseTuple(args, "O", &make))
        return NULL;
    PyObject *by_thread = PyDict_New();
    PerThread *self = by_thread != NULL ? (PerThread *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        Py_XDECREF(by_thread);
        return NULL;
    }
    self->make = Py_NewRef(make);
    self->by_thread = by_thread;
    if (register_at_fork((PyObject *)self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int
traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((PerThread *)self)->make);
    Py_VISIT(((PerThread *)self)->by_thread);
    return 0;
}

static int
clear(PyObject *self)
{
    Py_CLEAR(((PerThread *)self)->make);
    Py_CLEAR(((PerThread *)self)->by_thread);
    return 0;
}

static void
dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"mine", mine, METH_NOARGS, PyDoc_STR("mine($self, /)\n--\n\nThis thread's.")},
    {"begin_anew", begin_anew, METH_NOARGS, PyDoc_STR("begin_anew($self, /)\n--\n\nForget the other threads', after a fork.")},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject PerThread_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tornado.stm._engine.PerThread",
    .tp_doc = PyDoc_STR("PerThread(make, /)\n--\n\nWhat each thread has for itself; make() returns it when the thread first asks."),
    .tp_basicsize = sizeof(PerThread),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = make_new,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_methods = methods,
};

int
per_thread_init(PyObject *module)
{
    if (PyModule_AddType(module, &PerThread_Type) < 0 || types_register(&PerThread_Type, KIND_INERT) < 0)
        return -1;
    PyObject *method = PyObject_GetAttrString((PyObject *)&PerThread_Type, "mine");
    int r = method != NULL ? effects_register(method, EFFECT_PURE, NULL) : -1;
    Py_XDECREF(method);
    return r;
}
