/* What sequences hold and attend to: skv/inspect.h. */
#include "skv/inspect.h"

#include <string.h>

#include "skvpy.h"

/* (heads, query heads, head size, slot, window) of a layer; None: there is no such layer. */
static PyObject *sequence_kv_shape(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t layer;
    if (!PyArg_ParseTuple(args, "On", &box, &layer)) return NULL;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    skv_kv_shape shape;
    if (!sequence) return NULL;
    if (layer < 0 || !skv_sequence_kv_shape(sequence, (size_t)layer, &shape)) Py_RETURN_NONE;
    return Py_BuildValue("nnnnn", (Py_ssize_t)shape.n_heads, (Py_ssize_t)shape.n_query_heads,
                         (Py_ssize_t)shape.head_dim, (Py_ssize_t)shape.slot,
                         (Py_ssize_t)shape.window);
}

/* (sequence, layer, head, keys, values): floats [n, head size] each, n as sequence_kept has it. */
static PyObject *sequence_read_kv(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *arrays[2];
    Py_ssize_t i_layer, i_head;
    if (!PyArg_ParseTuple(args, "OnnOO", &box, &i_layer, &i_head, &arrays[0], &arrays[1])) {
        return NULL;
    }
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    const size_t layer = (size_t)i_layer, head = (size_t)i_head;
    Py_buffer got[2];
    size_t n = 0;
    while (sequence && n < 2 && skvpy_array(arrays[n], true, sizeof(float), &got[n])) n++;
    PyObject *result = NULL;
    if (n == 2) {
        skv_kv_shape shape = {.n_heads = 0};
        skv_error err = {0};
        (void)skv_sequence_kv_shape(sequence, layer, &shape);
        const size_t n_floats = skv_sequence_kept(sequence, layer, head, NULL, 0) * shape.head_dim;
        if (skvpy_length(&got[0]) == n_floats && skvpy_length(&got[1]) == n_floats) {
            result = skvpy_done(
                skv_sequence_read_kv(sequence, layer, head, got[0].buf, got[1].buf, &err), &err);
        } else {
            PyErr_Format(PyExc_ValueError, "keys and values: %zu floats, expected %zu",
                         skvpy_length(&got[0]), n_floats);
        }
    }
    while (n > 0) PyBuffer_Release(&got[--n]);
    return result;
}

/* A list of (layer, head, positions) as rows; got [*n] are to be released, also after a failure. */
static bool read_rows(PyObject *list, skv_head_rows *heads, Py_buffer *got, size_t *n)
{
    const size_t n_items = (size_t)PyList_Size(list);
    for (*n = 0; *n < n_items; ++*n) {
        PyObject *array;
        Py_ssize_t layer, head;
        PyObject *item = PyList_GetItem(list, (Py_ssize_t)*n);
        if (!PyArg_ParseTuple(item, "nnO", &layer, &head, &array)) return false;
        if (!skvpy_array(array, false, sizeof(size_t), &got[*n])) return false;
        heads[*n] = (skv_head_rows){.i_layer = (size_t)layer,
                                    .i_head = (size_t)head,
                                    .positions = got[*n].buf,
                                    .n = skvpy_length(&got[*n])};
    }
    return true;
}

static PyObject *sequence_keep(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *list;
    if (!PyArg_ParseTuple(args, "OO!", &box, &PyList_Type, &list)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    const size_t n_items = (size_t)PyList_Size(list);
    skv_head_rows *heads = PyMem_Calloc(n_items + 1, sizeof *heads);
    Py_buffer *got = PyMem_Calloc(n_items + 1, sizeof *got);
    size_t n = 0;
    PyObject *result = NULL;
    if (!heads || !got) {
        PyErr_NoMemory();
    } else if (read_rows(list, heads, got, &n)) {
        skv_error err = {0};
        result = skvpy_done(skv_sequence_keep(sequence, heads, n, &err), &err);
    }
    while (n > 0) PyBuffer_Release(&got[--n]);
    PyMem_Free(heads);
    PyMem_Free(got);
    return result;
}

/* Weights of a step: `out` is [layers, tokens, heads, positions]. */
typedef struct weights_sink {
    float *out;
    size_t n_layers, n_tokens, n_heads, n_positions;
} weights_sink;

static void on_weights(void *user, size_t i_layer, size_t i_token, const float *weights,
                       size_t n_heads, size_t n)
{
    const weights_sink *sink = user;
    if (i_layer >= sink->n_layers || i_token >= sink->n_tokens || n > sink->n_positions) return;
    float *to =
        sink->out + (i_layer * sink->n_tokens + i_token) * sink->n_heads * sink->n_positions;
    for (size_t h = 0; h < n_heads && h < sink->n_heads; h++) {
        memcpy(to + h * sink->n_positions, weights + h * n, n * sizeof *weights);
    }
}

/* (sequence, ids, out, layers, heads) */
static PyObject *sequence_attention(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *ids_array, *out_array;
    Py_ssize_t n_layers, n_heads;
    if (!PyArg_ParseTuple(args, "OOOnn", &box, &ids_array, &out_array, &n_layers, &n_heads)) {
        return NULL;
    }
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    Py_buffer ids, out;
    if (!sequence || !skvpy_array(ids_array, false, sizeof(int32_t), &ids)) return NULL;
    PyObject *result = NULL;
    if (skvpy_array(out_array, true, sizeof(float), &out)) {
        const size_t n = skvpy_length(&ids);
        weights_sink sink = {out.buf, (size_t)n_layers, n, (size_t)n_heads,
                             skv_sequence_length(sequence) + n};
        if (skvpy_length(&out) == sink.n_layers * n * sink.n_heads * sink.n_positions) {
            skv_error err = {0};
            skv_status status;
            Py_BEGIN_ALLOW_THREADS status =
                skv_step_attention(sequence, ids.buf, n, on_weights, &sink, &err);
            Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
        } else {
            PyErr_Format(PyExc_ValueError, "attention: %zu floats", skvpy_length(&out));
        }
        PyBuffer_Release(&out);
    }
    PyBuffer_Release(&ids);
    return result;
}

PyMethodDef skvpy_inspect_methods[] = {
    {"sequence_kv_shape", sequence_kv_shape, METH_VARARGS, NULL},
    {"sequence_read_kv", sequence_read_kv, METH_VARARGS, NULL},
    {"sequence_keep", sequence_keep, METH_VARARGS, NULL},
    {"sequence_attention", sequence_attention, METH_VARARGS, NULL},
    {0}};
