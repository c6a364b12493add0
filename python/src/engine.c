/* Engines: opening, steps, prompts, likelihoods. */
#include "skvpy.h"

#include <string.h>

#include "skv/tools.h"

#define OPTION(member, kind) SKVPY_FIELD(skv_engine_options, member, kind)
static const skvpy_field option_fields[] = {OPTION(threads, SIZE),
                                            OPTION(weights, WEIGHTS),
                                            OPTION(kv, KV),
                                            OPTION(state, STATE),
                                            OPTION(prefill, PREFILL),
                                            OPTION(cpu, TEXT),
                                            OPTION(device, TEXT),
                                            OPTION(by_layer, FLAG),
                                            OPTION(device_layers, SIZE),
                                            OPTION(context, SIZE),
                                            OPTION(kv_tokens, SIZE),
                                            OPTION(kv_sequences, SIZE),
                                            OPTION(kv_checkpoints, SIZE),
                                            OPTION(step_tokens, SIZE),
                                            OPTION(f32_activations, FLAG),
                                            OPTION(no_skip, FLAG),
                                            OPTION(batch_invariant, FLAG),
                                            OPTION(eviction, EVICTION),
                                            OPTION(speculation, SPECULATION),
                                            OPTION(draft_model, TEXT),
                                            OPTION(mtp, FLAG),
                                            OPTION(with_teacher, FLAG),
                                            OPTION(pruning, PRUNING),
                                            OPTION(ffn_skip, FFN_SKIP),
                                            OPTION(early_exit, NUMBER),
                                            OPTION(random_seed, COUNT),
                                            OPTION(preset_kv_layers, SIZE),
                                            OPTION(preset_group, SIZE),
                                            OPTION(preset_exit_words, SIZE),
                                            {0}};

#define STAT(member, kind) SKVPY_FIELD(skv_engine_stats, member, kind)
static const skvpy_field stat_fields[] = {STAT(weight_bytes, SIZE),  STAT(workspace_bytes, SIZE),
                                          STAT(kv_bytes_max, SIZE),  STAT(kv_bytes, SIZE),
                                          STAT(kv_pages, SIZE),      STAT(kv_pages_free, SIZE),
                                          STAT(kv_tokens, SIZE),     STAT(context, SIZE),
                                          STAT(step_tokens, SIZE),   STAT(threads, SIZE),
                                          STAT(weights, WEIGHTS),    STAT(kv, KV),
                                          STAT(prefill, PREFILL),    STAT(eviction, EVICTION),
                                          STAT(swiftkv, FLAG),       STAT(has_teacher, FLAG),
                                          STAT(ffn_skip, FFN_SKIP),  STAT(early_exit, NUMBER),
                                          STAT(kv_prediction, FLAG), STAT(device, TEXT),
                                          STAT(cpu, TEXT),           {0}};

static void close_engine(void *engine)
{
    skv_engine_close(engine);
}

static void on_share(void *user, double share)
{
    (void)skvpy_tell(user, "(d)", share);
}

static PyObject *engine_open(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    PyObject *given, *progress;
    if (!PyArg_ParseTuple(args, "sO!O", &path, &PyDict_Type, &given, &progress)) return NULL;
    skv_engine_options options = skv_engine_options_default();
    if (!skvpy_fill(option_fields, &options, given)) return NULL;
    options.progress = on_share;
    options.user = progress;
    skv_engine *engine = NULL;
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status = strncmp(path, "preset:", 7) == 0
                                        ? skv_engine_open_preset(path + 7, &options, &engine, &err)
                                        : skv_engine_open(path, &options, &engine, &err);
    Py_END_ALLOW_THREADS if (status != SKV_OK || PyErr_Occurred())
    {
        skv_engine_close(engine);
        return skvpy_fail(status, &err);
    }
    return skvpy_box(engine, "engine", close_engine, NULL);
}

static PyObject *engine_stats(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    return skvpy_dump(stat_fields, &stats);
}

static PyObject *engine_work(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    const skv_work work = skv_engine_get_work(engine);
    return skvpy_dump(skvpy_work_fields, &work);
}

/* (vocabulary, hidden size, BOS or -1, end-of-sequence ids) */
static PyObject *engine_shape(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    size_t n;
    const int32_t *eos = skv_engine_eos(engine, &n);
    PyObject *ids = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; ids && i < n; i++) {
        PyTuple_SetItem(ids, (Py_ssize_t)i, PyLong_FromLong(eos[i]));
    }
    return ids ? Py_BuildValue("nniN", (Py_ssize_t)skv_engine_vocab(engine),
                               (Py_ssize_t)skv_engine_hidden(engine), skv_engine_bos(engine), ids)
               : NULL;
}

static PyObject *engine_cancel(PyObject *module, PyObject *box)
{
    (void)module;
    skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    skv_cancel(engine);
    Py_RETURN_NONE;
}

static PyObject *engine_uncancel(PyObject *module, PyObject *box)
{
    (void)module;
    skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    skv_uncancel(engine);
    Py_RETURN_NONE;
}

/* ---- steps ---- */

/* A span and the array that receives its rows. */
typedef struct row_sink {
    Py_buffer ids, out;
    bool has_ids, has_out;
    size_t row, n_rows, length; /* rows of the array, and floats of a row */
} row_sink;

typedef struct stepping {
    skv_span *spans;
    row_sink *sinks;
    size_t n;
} stepping;

static void release_step(stepping *s)
{
    for (size_t i = 0; s->sinks && i < s->n; i++) {
        if (s->sinks[i].has_ids) PyBuffer_Release(&s->sinks[i].ids);
        if (s->sinks[i].has_out) PyBuffer_Release(&s->sinks[i].out);
    }
    PyMem_Free(s->spans);
    PyMem_Free(s->sinks);
}

/* The sequence, ids, want and array of a tuple. `out` has as many rows as are wanted. */
static bool read_span(PyObject *item, size_t length, skv_span *span, row_sink *sink)
{
    PyObject *sequence, *ids, *out;
    int want;
    if (!PyArg_ParseTuple(item, "OOiO", &sequence, &ids, &want, &out)) return false;
    span->sequence = skvpy_unbox(sequence, "sequence");
    if (!span->sequence) return false;
    sink->has_ids = skvpy_array(ids, false, sizeof(int32_t), &sink->ids);
    if (!sink->has_ids) return false;
    span->ids = sink->ids.buf;
    span->n = skvpy_length(&sink->ids);
    span->want = (skv_want)want;
    if (out == Py_None) return true;
    sink->has_out = skvpy_array(out, true, sizeof(float), &sink->out);
    if (!sink->has_out) return false;
    const bool last = want == SKV_WANT_LAST || want == SKV_WANT_LAST_HIDDEN;
    sink->row = last && span->n > 0 ? span->n - 1 : 0;
    sink->n_rows = span->n - sink->row;
    sink->length = length;
    if (span->n == 0 || skvpy_length(&sink->out) == sink->n_rows * length) return true;
    PyErr_Format(PyExc_ValueError, "out: %zu floats, expected [%zu, %zu]", skvpy_length(&sink->out),
                 sink->n_rows, length);
    return false;
}

static bool read_spans(const skv_engine *engine, PyObject *list, stepping *out)
{
    out->n = (size_t)PyList_Size(list);
    out->spans = PyMem_Calloc(out->n + 1, sizeof *out->spans);
    out->sinks = PyMem_Calloc(out->n + 1, sizeof *out->sinks);
    if (!out->spans || !out->sinks) return PyErr_NoMemory();
    for (size_t i = 0; i < out->n; i++) {
        PyObject *item = PyList_GetItem(list, (Py_ssize_t)i);
        long want = PyLong_AsLong(PyTuple_GetItem(item, 2));
        const bool hidden = want == SKV_WANT_LAST_HIDDEN || want == SKV_WANT_ALL_HIDDEN;
        const size_t length = hidden ? skv_engine_hidden(engine) : skv_engine_vocab(engine);
        if (!read_span(item, length, &out->spans[i], &out->sinks[i])) return false;
    }
    return true;
}

static void on_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const row_sink *sink = &((const stepping *)user)->sinks[i_span];
    if (!sink->has_out) return;
    memcpy((float *)sink->out.buf + (i_token - sink->row) * sink->length, logits,
           sink->length * sizeof *logits);
}

static PyObject *engine_step(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *list;
    if (!PyArg_ParseTuple(args, "OO!", &box, &PyList_Type, &list)) return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    stepping s = {0};
    PyObject *result = NULL;
    if (read_spans(engine, list, &s)) {
        skv_error err = {0};
        skv_status status;
        Py_BEGIN_ALLOW_THREADS status = skv_step(engine, s.spans, s.n, on_row, &s, &err);
        Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
    }
    release_step(&s);
    return result;
}

/* The hidden states of every layer: `out` is [L + 1, T, D]. */
typedef struct layer_sink {
    float *out;
    size_t n_floats, hidden;
} layer_sink;

static void on_layer(void *user, size_t i_layer, const float *x, size_t n_rows)
{
    const layer_sink *sink = user;
    const size_t n = n_rows * sink->hidden;
    if ((i_layer + 1) * n > sink->n_floats) return;
    memcpy(sink->out + i_layer * n, x, n * sizeof *x);
}

static PyObject *engine_layers(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *list, *array;
    if (!PyArg_ParseTuple(args, "OO!O", &box, &PyList_Type, &list, &array)) return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    Py_buffer out;
    if (!engine || !skvpy_array(array, true, sizeof(float), &out)) return NULL;
    layer_sink sink = {out.buf, skvpy_length(&out), skv_engine_hidden(engine)};
    stepping s = {0};
    PyObject *result = NULL;
    if (read_spans(engine, list, &s)) {
        skv_error err = {0};
        skv_status status;
        Py_BEGIN_ALLOW_THREADS status =
            skv_step_hidden(engine, s.spans, s.n, on_layer, &sink, &err);
        Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
    }
    release_step(&s);
    PyBuffer_Release(&out);
    return result;
}

/* ---- prompts and likelihoods ---- */

typedef struct reading {
    skv_engine *engine;
    PyObject *progress;
} reading;

/* A callback that raises, or a signal, stops the engine before the next chunk. */
static void on_chunk(void *user, size_t done, size_t total)
{
    const reading *r = user;
    if (!skvpy_tell(r->progress, "(nn)", (Py_ssize_t)done, (Py_ssize_t)total) && done < total) {
        skv_cancel(r->engine);
    }
}

static PyObject *engine_prompt(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *sequence_box, *ids_array, *logits_array, *progress;
    if (!PyArg_ParseTuple(args, "OOOOO", &box, &sequence_box, &ids_array, &logits_array, &progress))
        return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    skv_sequence *sequence = engine ? skvpy_unbox(sequence_box, "sequence") : NULL;
    Py_buffer ids, logits;
    if (!sequence || !skvpy_array(ids_array, false, sizeof(int32_t), &ids)) return NULL;
    PyObject *result = NULL;
    if (skvpy_array(logits_array, true, sizeof(float), &logits)) {
        if (skvpy_length(&logits) == skv_engine_vocab(engine)) {
            reading r = {engine, progress};
            const skv_prompt_options options = {
                .logits = logits.buf, .progress = on_chunk, .user = &r};
            skv_error err = {0};
            skv_status status;
            Py_BEGIN_ALLOW_THREADS status =
                skv_prompt(engine, sequence, ids.buf, skvpy_length(&ids), &options, &err);
            Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
        } else {
            PyErr_SetString(PyExc_ValueError, "out: not as many floats as the vocabulary");
        }
        PyBuffer_Release(&logits);
    }
    PyBuffer_Release(&ids);
    return result;
}

static PyObject *engine_score(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *arrays[3];
    if (!PyArg_ParseTuple(args, "OOOO", &box, &arrays[0], &arrays[1], &arrays[2])) return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    const size_t sizes[3] = {sizeof(int32_t), sizeof(double), sizeof(int32_t)};
    Py_buffer got[3];
    size_t n = 0;
    while (engine && n < 3 && skvpy_array(arrays[n], n > 0, sizes[n], &got[n])) n++;
    PyObject *result = NULL;
    if (n == 3 && skvpy_length(&got[0]) == skvpy_length(&got[1]) &&
        skvpy_length(&got[0]) == skvpy_length(&got[2])) {
        skv_error err = {0};
        skv_status status;
        Py_BEGIN_ALLOW_THREADS status =
            skv_score(engine, got[0].buf, skvpy_length(&got[0]), got[1].buf, got[2].buf, &err);
        Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
    } else if (n == 3) {
        PyErr_SetString(PyExc_ValueError, "score: arrays of different lengths");
    }
    while (n > 0) PyBuffer_Release(&got[--n]);
    return result;
}

/* SimScore of every layer but the last, into doubles [L - 1]. */
static PyObject *engine_similarity(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *ids_array, *scores_array;
    if (!PyArg_ParseTuple(args, "OOO", &box, &ids_array, &scores_array)) return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    Py_buffer ids, scores;
    if (!engine || !skvpy_array(ids_array, false, sizeof(int32_t), &ids)) return NULL;
    PyObject *result = NULL;
    if (skvpy_array(scores_array, true, sizeof(double), &scores)) {
        skv_error err = {0};
        const skv_similarity_text text = {.ids = ids.buf, .n = skvpy_length(&ids)};
        skv_status status;
        Py_BEGIN_ALLOW_THREADS status = skv_similarity(engine, &text, scores.buf, &err);
        Py_END_ALLOW_THREADS result = skvpy_done(status, &err);
        PyBuffer_Release(&scores);
    }
    PyBuffer_Release(&ids);
    return result;
}

PyMethodDef skvpy_engine_methods[] = {{"release", skvpy_release, METH_O, NULL},
                                      {"engine_open", engine_open, METH_VARARGS, NULL},
                                      {"engine_stats", engine_stats, METH_O, NULL},
                                      {"engine_work", engine_work, METH_O, NULL},
                                      {"engine_shape", engine_shape, METH_O, NULL},
                                      {"engine_cancel", engine_cancel, METH_O, NULL},
                                      {"engine_uncancel", engine_uncancel, METH_O, NULL},
                                      {"engine_step", engine_step, METH_VARARGS, NULL},
                                      {"engine_layers", engine_layers, METH_VARARGS, NULL},
                                      {"engine_prompt", engine_prompt, METH_VARARGS, NULL},
                                      {"engine_score", engine_score, METH_VARARGS, NULL},
                                      {"engine_similarity", engine_similarity, METH_VARARGS, NULL},
                                      {0}};
