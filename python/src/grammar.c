/* Grammars, and matchers that mask logits. */
#include "skvpy.h"

#include <string.h>

#include "skv/grammar.h"

static void free_grammar(void *grammar)
{
    skv_grammar_free(grammar);
}

static void free_table(void *table)
{
    skv_token_table_free(table);
}

static void free_matcher(void *matcher)
{
    skv_matcher_free(matcher);
}

/* (kind, text); the kinds have the order of skv_grammar_kind. */
static PyObject *grammar_compile(PyObject *module, PyObject *args)
{
    (void)module;
    static const char *const kinds[] = {"json", "schema", "regex", "gbnf", "choice"};
    const char *name, *text;
    Py_ssize_t n_text;
    if (!PyArg_ParseTuple(args, "ss#", &name, &text, &n_text)) return NULL;
    size_t kind = 0;
    while (kind < sizeof kinds / sizeof kinds[0] && strcmp(kinds[kind], name) != 0) kind++;
    if (kind == sizeof kinds / sizeof kinds[0]) {
        return PyErr_Format(PyExc_ValueError, "grammar: unknown kind \"%s\"", name);
    }
    skv_grammar *grammar = NULL;
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status =
        skv_grammar_compile((skv_grammar_kind)kind, text, (size_t)n_text, NULL, &grammar, &err);
    Py_END_ALLOW_THREADS if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(grammar, "grammar", free_grammar, NULL);
}

/* (vocab, ids that end an answer) */
static PyObject *table_create(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *array;
    if (!PyArg_ParseTuple(args, "OO", &box, &array)) return NULL;
    const skv_vocab *vocab = skvpy_unbox(box, "vocab");
    Py_buffer ids;
    if (!vocab || !skvpy_array(array, false, sizeof(int32_t), &ids)) return NULL;
    skv_token_table *table = NULL;
    skv_error err = {0};
    const skv_status status =
        skv_token_table_create(vocab, ids.buf, skvpy_length(&ids), &table, &err);
    PyBuffer_Release(&ids);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(table, "token table", free_table, NULL);
}

static PyObject *matcher_create(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *grammar_box, *table_box;
    if (!PyArg_ParseTuple(args, "OO", &grammar_box, &table_box)) return NULL;
    const skv_grammar *grammar = skvpy_unbox(grammar_box, "grammar");
    const skv_token_table *table = grammar ? skvpy_unbox(table_box, "token table") : NULL;
    if (!table) return NULL;
    skv_matcher *matcher = NULL;
    skv_error err = {0};
    const skv_status status = skv_matcher_create(grammar, table, NULL, &matcher, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(matcher, "matcher", free_matcher, args);
}

/* Masks logits. False: no token may come. */
static PyObject *matcher_mask(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *array;
    if (!PyArg_ParseTuple(args, "OO", &box, &array)) return NULL;
    skv_matcher *matcher = skvpy_unbox(box, "matcher");
    if (!matcher) return NULL;
    if (skv_matcher_is_finished(matcher)) Py_RETURN_FALSE;
    Py_buffer logits;
    if (!skvpy_array(array, true, sizeof(float), &logits)) return NULL;
    const size_t n = skvpy_length(&logits);
    uint32_t *bits = PyMem_Calloc(n / 32 + 1, sizeof *bits);
    skv_error err = {.text = "mask: no memory"};
    skv_status status = SKV_MEMORY;
    bool any = false;
    if (bits) {
        Py_BEGIN_ALLOW_THREADS status = skv_matcher_mask(matcher, bits, n, &err);
        for (size_t i = 0; i < n / 32 + 1 && !any; i++) any = bits[i] != 0;
        if (status == SKV_OK && any) skv_mask_logits(bits, logits.buf, n);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(bits);
    PyBuffer_Release(&logits);
    return status == SKV_OK ? PyBool_FromLong(any) : skvpy_fail(status, &err);
}

static PyObject *matcher_accept(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    int id;
    if (!PyArg_ParseTuple(args, "Oi", &box, &id)) return NULL;
    skv_matcher *matcher = skvpy_unbox(box, "matcher");
    if (!matcher) return NULL;
    skv_error err = {0};
    return skvpy_done(skv_matcher_accept(matcher, id, NULL, NULL, &err), &err);
}

/* (may end here, has ended) */
static PyObject *matcher_state(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_matcher *matcher = skvpy_unbox(box, "matcher");
    if (!matcher) return NULL;
    return Py_BuildValue("NN", PyBool_FromLong(skv_matcher_is_complete(matcher)),
                         PyBool_FromLong(skv_matcher_is_finished(matcher)));
}

PyMethodDef skvpy_grammar_methods[] = {{"grammar_compile", grammar_compile, METH_VARARGS, NULL},
                                       {"table_create", table_create, METH_VARARGS, NULL},
                                       {"matcher_create", matcher_create, METH_VARARGS, NULL},
                                       {"matcher_mask", matcher_mask, METH_VARARGS, NULL},
                                       {"matcher_accept", matcher_accept, METH_VARARGS, NULL},
                                       {"matcher_state", matcher_state, METH_O, NULL},
                                       {0}};
