/**
 * The extension module swiftkv._skv: libskv's public functions for the classes in python/swiftkv.
 *
 * C objects travel as capsules that hold a box (box.c). Options and results are dictionaries, which
 * tables of fields convert (fields.c). Arrays are any objects with the buffer protocol, so nothing
 * here knows numpy. The module uses the stable ABI of Python 3.11.
 */
#ifndef SKVPY_H
#define SKVPY_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>

#include "skv/skv.h"
#include "skv/text.h"

/* ---- boxes: capsules of C objects ---- */

typedef void skvpy_free_fn(void *object);

/** Takes an object, and a reference to what it must not outlive (NULL: nothing). NULL frees the
 * object and sets an exception. `name` is a constant, the object's type. */
PyObject *skvpy_box(void *object, const char *name, skvpy_free_fn *free_object, PyObject *parent);
/** Returns the object; NULL with an exception where it has another type or is closed. */
void *skvpy_unbox(PyObject *box, const char *name);
/** Returns what the box must not outlive; NULL for nothing. Borrowed. */
PyObject *skvpy_parent(PyObject *box, const char *name);
/** Frees the object now. Later uses raise. */
PyObject *skvpy_release(PyObject *module, PyObject *box);

/* ---- errors and callbacks ---- */

/** Sets the exception of a status and returns NULL; an exception that is set already stays. */
PyObject *skvpy_fail(skv_status status, const skv_error *err);
/** Returns None, or NULL with an exception where the status or a callback failed. */
PyObject *skvpy_done(skv_status status, const skv_error *err);
/** From inside a call that has released the GIL: handles signals, then calls `callable` (None:
 * nothing). Returns false where either raised; the exception stays until the call returns. */
bool skvpy_tell(PyObject *callable, const char *format, ...);

/* ---- options and results ---- */

typedef enum skvpy_kind {
    SKVPY_SIZE,
    SKVPY_COUNT, /* uint64_t */
    SKVPY_NUMBER,
    SKVPY_FLAG,
    SKVPY_TEXT,  /* const char *, borrowed from the dictionary */
    SKVPY_CHARS, /* char [], only in results */
    SKVPY_WEIGHTS,
    SKVPY_KV,
    SKVPY_STATE,
    SKVPY_PREFILL,
    SKVPY_EVICTION,
    SKVPY_SPECULATION,
    SKVPY_PRUNING,
    SKVPY_FFN_SKIP
} skvpy_kind;

typedef struct skvpy_field {
    const char *name; /* NULL ends a table */
    skvpy_kind kind;
    size_t offset;
} skvpy_field;

#define SKVPY_FIELD(type, member, kind)                                                            \
    {                                                                                              \
#member, SKVPY_##kind, offsetof(type, member)                                              \
    }

/** Sets the members that a dictionary names; None leaves a default. False with an exception. */
bool skvpy_fill(const skvpy_field *table, void *object, PyObject *options);
/** Returns a dictionary of the members. */
PyObject *skvpy_dump(const skvpy_field *table, const void *object);

extern const skvpy_field skvpy_sampling_fields[], skvpy_work_fields[];

/* ---- arrays ---- */

/** Contiguous elements of n_bytes each; false with an exception. Release with PyBuffer_Release. */
bool skvpy_array(PyObject *object, bool writable, size_t n_bytes, Py_buffer *out);
/** Returns the number of elements. */
size_t skvpy_length(const Py_buffer *array);

/* ---- the module's functions, by file ---- */

extern PyMethodDef skvpy_engine_methods[], skvpy_sequence_methods[], skvpy_inspect_methods[],
    skvpy_text_methods[], skvpy_grammar_methods[], skvpy_model_methods[], skvpy_learn_methods[],
    skvpy_eval_methods[];

#endif
