/* A stand-in for the interpreter: as much of it as the engine's algorithms call (see interpreter.c). */
#ifndef INTERPRETER_H
#define INTERPRETER_H

#include "core/transaction.h"

#include "internal/pycore_dict.h"
#include "internal/pycore_tstate.h"

/* A random number from a counter or seed (splitmix64). */
static inline uint64_t
mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

/* Each thread that runs transactions calls these around its work. */
void thread_begin(uint64_t seed);
void thread_end(void);

/* Where the real interpreter would look at its eval breaker: stand still while another
 * thread has stopped the world; -1 if the transaction is told there that it is doomed. */
int safe_point(void);

/* A random number of this thread, apart from those that decide what transactions do. */
uint32_t thread_random(void);

/* Objects are counted by reference like any other; immortal ones are not. */
void *object_new(PyTypeObject *type, size_t size);
void *object_new_immortal(PyTypeObject *type, size_t size);
extern _Atomic long objects_alive;

/* A callable object: object_new(&Native_Type, sizeof(Native) or more). */
typedef struct Native {
    PyObject_HEAD
    PyObject *(*call)(struct Native *self);
} Native;
extern PyTypeObject Native_Type;
extern PyObject *no_arguments;
PyObject *native_new(PyObject *(*call)(Native *));

/* Append to a list of actions, as deferred ones are; takes the reference. */
void append_action(PyObject **list, PyObject *native);

/* What such a function returns. */
PyObject *none(void);

/* An int. */
typedef struct { PyObject_HEAD int value; } Number;

/* A dict whose keys are compared by identity; it holds DICT_ROOM entries at most, dead ones too. */
#define DICT_ROOM 256
PyObject *dict_new_immortal(void);

/* Pending exception of this thread. */
bool exception_is(PyTypeObject *type);
extern PyTypeObject Abort_Type, Failure_Type;

/* Report and end the process with a failure. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
