/* Dicts that are namespaces: the globals of modules and the attributes of instances. */
#ifndef TORNADO_STM_NAMESPACES_H
#define TORNADO_STM_NAMESPACES_H

#include "../core/tx.h"

#include "internal/pycore_dict.h"

bool may_be_biased(Tx *tx, PyObject *obj);
bool instance_may_be_biased(PyObject *obj);
int bias_revoke_namespace(Tx *tx, PyObject *dict);
extern uint64_t stm_module_bit, stm_instance_bit, stm_rebound_bit;     /* in a dict's _ma_watcher_tag */
extern PyObject *stm_register_module;
int namespaces_init(void);
int register_module_globals(PyObject *globals, PyObject *rebound);
PyObject *globals_rebound(PyObject *globals);
int open_as_globals(Tx *tx, PyObject *dict);
int see_globals(Tx *tx, PyObject *globals);
int keep_unchanged(PyObject *dict);
int keep_builtins(PyObject *globals);
int open_module_name(Tx *tx, PyObject *name);
PyObject *full_module_name(PyObject *globals, PyObject *name, long up);
int open_locals(Tx *tx);
const void *namespace_base(PyObject *dict);

static inline bool
is_module_dict(PyObject *dict)
{
    return ((PyDictObject *)dict)->_ma_watcher_tag & stm_module_bit;
}

/* What the names in this dict are known by, or NULL: it is a dict like any other. */
static inline const void *
namespace_of(PyObject *dict)
{
    PyDictObject *d = (PyDictObject *)dict;
    return LIKELY(d->ma_values == NULL && !(d->_ma_watcher_tag & (stm_module_bit | stm_instance_bit))) ? NULL : namespace_base(dict);
}

#endif
