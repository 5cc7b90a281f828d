/* Elements of trees of XML, in C (_elementtree): their structure, and opening them. */
#ifndef TORNADO_STM_ELEMENT_H
#define TORNADO_STM_ELEMENT_H

#include "types.h"

typedef struct {
    PyObject *attributes;           /* a dict, or NULL */
    Py_ssize_t n, allocated;
    PyObject **children;            /* elements: memory of their own, or `few` */
    PyObject *few[4];
} ElementRest;

/* The lowest bit of `text` and `tail` says that they are lists of pieces, which whoever asks joins. */
typedef struct {
    PyObject_HEAD
    PyObject *tag, *text, *tail;
    ElementRest *rest;              /* or NULL: it has neither attributes nor children */
    PyObject *weakrefs;
} Element;

/* Is the type's structure that? RuntimeError if not. */
int element_begin(PyTypeObject *type);
bool is_element(PyObject *obj);
Py_ssize_t element_size(PyObject *element);
PyObject *element_child(PyObject *element, Py_ssize_t i);      /* borrowed */

/* As opening in access.h. */
int open_element_attributes(Tx *tx, PyObject *element, bool write);
int open_element_texts(Tx *tx, PyObject *element);
int open_children(Tx *tx, PyObject *element, bool texts);

/* Of an element that C code has just made: it is this transaction's own, and so is what is below it that nobody else refers to.
 * `copies`: a dict that C code has noted the elements below in as well, or NULL; `builder` may refer to some of them, or NULL. */
int make_tree_fresh(Tx *tx, PyObject *element, PyObject *copies, PyObject *builder);

#endif
