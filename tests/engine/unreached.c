/* What the interpreter has for the Python face of the core, and no stress program reaches.
 *
 * In a file of its own, since CPython's headers declare these otherwise.
 */
#include <stdio.h>
#include <stdlib.h>

#define UNREACHED(name) \
    void name(void) \
    { \
        fprintf(stderr, "FAILED: the core calls " #name ", which the stand-in lacks\n"); \
        abort(); \
    }

UNREACHED(PyArg_ParseTuple)
UNREACHED(PyArg_ParseTupleAndKeywords)
UNREACHED(PyBool_FromLong)
UNREACHED(PyCMethod_New)
UNREACHED(PyErr_Format)
UNREACHED(PyErr_SetFromErrnoWithFilename)
UNREACHED(PyList_GetItemRef)
UNREACHED(PyList_SetSlice)
UNREACHED(PyList_Sort)
UNREACHED(PyLong_FromUnsignedLongLong)
UNREACHED(PyObject_GenericSetAttr)
UNREACHED(PyType_GenericNew)
UNREACHED(PyUnicode_Equal)
UNREACHED(Py_BuildValue)
UNREACHED(_PyObject_GenericGetAttrWithDict)
UNREACHED(_Py_FatalErrorFunc)
UNREACHED(own_dict)
