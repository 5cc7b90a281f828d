#include "fresh.h"

#define PLACES_AT_FIRST 16

static void
put(FreshTable *table, PyObject *obj)
{
    size_t i = fresh_place(obj);
    while (table->places[i & table->mask] != NULL)
        i++;
    table->places[i & table->mask] = obj;
}

static int
grow(FreshTable *table)
{
    size_t n_places = table->places == NULL ? PLACES_AT_FIRST : 2 * (table->mask + 1);
    PyObject **places = PyMem_RawCalloc(n_places, sizeof *places);
    PyObject **made = places == NULL ? NULL : PyMem_RawRealloc(table->made, n_places / 2 * sizeof *made);
    if (made == NULL) {
        PyMem_RawFree(places);
        PyErr_NoMemory();
        return -1;
    }
    PyMem_RawFree(table->places);
    *table = (FreshTable){places, made, n_places - 1, table->n};
    for (size_t i = 0; i < table->n; i++)
        put(table, made[i]);
    return 0;
}

int
fresh_add(FreshTable *table, PyObject *obj)
{
    if (fresh_has(table, obj))
        return 0;
    if ((table->places == NULL || 2 * table->n > table->mask) && grow(table) < 0)
        return -1;
    put(table, obj);
    table->made[table->n++] = Py_NewRef(obj);
    return 0;
}

void
fresh_clear(FreshTable *table)
{
    FreshTable old = *table;
    *table = (FreshTable){0};
    for (size_t i = 0; i < old.n; i++)
        Py_DECREF(old.made[i]);
    PyMem_RawFree(old.places);
    PyMem_RawFree(old.made);
}
