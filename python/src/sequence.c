/* Sequences: tokens, kept rows, eviction, speculation; samplers. */
#include "skvpy.h"

static void free_sequence(void *sequence)
{
    skv_sequence_free(sequence);
}

/* (engine, most tokens or 0, method or None) */
static PyObject *sequence_create(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t max_tokens;
    const char *name;
    if (!PyArg_ParseTuple(args, "Onz", &box, &max_tokens, &name)) return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    if (!engine) return NULL;
    skv_error err = {0};
    skv_sequence *sequence = NULL;
    skv_prefill prefill = SKV_PREFILL_AUTO;
    if (name && !skv_prefill_parse(name, &prefill)) {
        return PyErr_Format(PyExc_ValueError, "prefill: unknown method \"%s\"", name);
    }
    const size_t most = max_tokens > 0 ? (size_t)max_tokens : 0;
    const skv_status status = name ? skv_sequence_create_as(engine, prefill, most, &sequence, &err)
                                   : skv_sequence_create(engine, most, &sequence, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(sequence, "sequence", free_sequence, box);
}

/* The ids as bytes of int32. */
static PyObject *sequence_ids(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    return PyBytes_FromStringAndSize((const char *)skv_sequence_ids(sequence),
                                     (Py_ssize_t)(skv_sequence_length(sequence) * sizeof(int32_t)));
}

static PyObject *sequence_length(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    return sequence ? PyLong_FromSize_t(skv_sequence_length(sequence)) : NULL;
}

static PyObject *sequence_kv_bytes(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    return sequence ? PyLong_FromSize_t(skv_sequence_kv_bytes(sequence)) : NULL;
}

static PyObject *sequence_truncate(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On", &box, &n)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    if (n < 0 || (size_t)n > skv_sequence_length(sequence)) {
        return PyErr_Format(PyExc_ValueError, "truncate: %zd, the sequence has %zu tokens", n,
                            skv_sequence_length(sequence));
    }
    return PyLong_FromSize_t(skv_sequence_truncate(sequence, (size_t)n));
}

static PyObject *sequence_share(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *from_box;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "OOn", &box, &from_box, &n)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    const skv_sequence *from = sequence ? skvpy_unbox(from_box, "sequence") : NULL;
    if (!from) return NULL;
    if (n < 0 || (size_t)n > skv_sequence_length(from)) {
        return PyErr_Format(PyExc_ValueError, "share: %zd, the sequence has %zu tokens", n,
                            skv_sequence_length(from));
    }
    skv_error err = {0};
    return skvpy_done(skv_sequence_share(sequence, from, (size_t)n, &err), &err);
}

static PyObject *sequence_set_eviction(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    const char *text;
    if (!PyArg_ParseTuple(args, "Os", &box, &text)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    skv_error err = {0};
    skv_eviction how;
    skv_status status = skv_eviction_parse(text, &how, &err);
    if (status == SKV_OK) status = skv_sequence_set_eviction(sequence, &how, &err);
    return skvpy_done(status, &err);
}

static PyObject *sequence_set_speculation(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    const char *text;
    if (!PyArg_ParseTuple(args, "Os", &box, &text)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    skv_error err = {0};
    skv_speculation how;
    skv_status status = skv_speculation_parse(text, &how, &err);
    if (status == SKV_OK) status = skv_sequence_set_speculation(sequence, &how, &err);
    return skvpy_done(status, &err);
}

static PyObject *sequence_expect(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On", &box, &n)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    skv_error err = {0};
    return skvpy_done(skv_sequence_expect(sequence, n > 0 ? (size_t)n : 0, &err), &err);
}

static PyObject *sequence_evict(PyObject *module, PyObject *box)
{
    (void)module;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    skv_error err = {0};
    return skvpy_done(skv_sequence_evict(sequence, &err), &err);
}

/* The positions that (layer, head) holds, as bytes of size_t. */
static PyObject *sequence_kept(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t i_layer, i_head;
    if (!PyArg_ParseTuple(args, "Onn", &box, &i_layer, &i_head)) return NULL;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    const size_t layer = (size_t)i_layer, head = (size_t)i_head;
    const size_t n = skv_sequence_kept(sequence, layer, head, NULL, 0);
    size_t *rows = PyMem_Calloc(n + 1, sizeof *rows);
    if (!rows) return PyErr_NoMemory();
    (void)skv_sequence_kept(sequence, layer, head, rows, n);
    PyObject *out = PyBytes_FromStringAndSize((const char *)rows, (Py_ssize_t)(n * sizeof *rows));
    PyMem_Free(rows);
    return out;
}

/* A list of at most `most` ids that may follow `next`. */
static PyObject *sequence_draft(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    int next;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "Oin", &box, &next, &most)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    int32_t ids[SKV_DRAFT_MAX];
    if (most > SKV_DRAFT_MAX) most = SKV_DRAFT_MAX;
    const size_t n = most > 0 ? skv_sequence_draft(sequence, next, ids, (size_t)most) : 0;
    PyObject *out = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; out && i < n; i++) {
        PyList_SetItem(out, (Py_ssize_t)i, PyLong_FromLong(ids[i]));
    }
    return out;
}

static PyObject *sequence_settle(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    Py_ssize_t n_drafted, n_right;
    if (!PyArg_ParseTuple(args, "Onn", &box, &n_drafted, &n_right)) return NULL;
    skv_sequence *sequence = skvpy_unbox(box, "sequence");
    if (!sequence) return NULL;
    skv_sequence_settle(sequence, (size_t)n_drafted, (size_t)n_right);
    Py_RETURN_NONE;
}

/* {source: (drafted, accepted)} */
static PyObject *sequence_drafts(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_sequence *sequence = skvpy_unbox(box, "sequence");
    PyObject *out = sequence ? PyDict_New() : NULL;
    for (int i = 0; out && i < SKV_DRAFT_COUNT; i++) {
        const char *name = skv_drafting_name((skv_drafting)i);
        if (!name) continue;
        const skv_draft_counts counts = skv_sequence_drafts(sequence, (skv_drafting)i);
        PyObject *pair = Py_BuildValue("KK", (unsigned long long)counts.drafted,
                                       (unsigned long long)counts.accepted);
        if (!pair || PyDict_SetItemString(out, name, pair) < 0) Py_CLEAR(out);
        Py_XDECREF(pair);
    }
    return out;
}

/* ---- samplers ---- */

static void free_sampler(void *sampler)
{
    skv_sampler_free(sampler);
}

static PyObject *sampler_create(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given;
    Py_ssize_t vocab;
    if (!PyArg_ParseTuple(args, "O!n", &PyDict_Type, &given, &vocab)) return NULL;
    skv_sampling sampling = skv_sampling_default();
    if (!skvpy_fill(skvpy_sampling_fields, &sampling, given)) return NULL;
    skv_error err = {0};
    skv_sampler *sampler = NULL;
    const skv_status status = skv_sampler_create(&sampling, (size_t)vocab, &sampler, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    PyObject *size = PyLong_FromSsize_t(vocab);
    PyObject *box = skvpy_box(sampler, "sampler", free_sampler, size);
    Py_XDECREF(size);
    return box;
}

/* The number of logits that a sampler was made for. */
static size_t sampler_vocab(PyObject *box)
{
    PyObject *size = skvpy_parent(box, "sampler");
    return size ? PyLong_AsSize_t(size) : 0;
}

/* (sampler, ids, generated) */
static PyObject *sampler_accept(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *array;
    int generated;
    if (!PyArg_ParseTuple(args, "OOp", &box, &array, &generated)) return NULL;
    skv_sampler *sampler = skvpy_unbox(box, "sampler");
    Py_buffer ids;
    if (!sampler || !skvpy_array(array, false, sizeof(int32_t), &ids)) return NULL;
    const size_t vocab = sampler_vocab(box);
    for (size_t i = 0; i < skvpy_length(&ids); i++) {
        const int32_t id = ((const int32_t *)ids.buf)[i];
        if (id >= 0 && (size_t)id < vocab) skv_sampler_accept(sampler, id, generated);
    }
    PyBuffer_Release(&ids);
    Py_RETURN_NONE;
}

/* Chooses from logits, which it changes. */
static PyObject *sampler_choose(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *array;
    if (!PyArg_ParseTuple(args, "OO", &box, &array)) return NULL;
    skv_sampler *sampler = skvpy_unbox(box, "sampler");
    Py_buffer logits;
    if (!sampler || !skvpy_array(array, true, sizeof(float), &logits)) return NULL;
    PyObject *out = NULL;
    if (skvpy_length(&logits) == sampler_vocab(box)) {
        out = PyLong_FromLong(skv_sampler_choose(sampler, logits.buf));
    } else {
        PyErr_SetString(PyExc_ValueError, "choose: not as many logits as the vocabulary");
    }
    PyBuffer_Release(&logits);
    return out;
}

PyMethodDef skvpy_sequence_methods[] = {
    {"sequence_create", sequence_create, METH_VARARGS, NULL},
    {"sequence_ids", sequence_ids, METH_O, NULL},
    {"sequence_length", sequence_length, METH_O, NULL},
    {"sequence_kv_bytes", sequence_kv_bytes, METH_O, NULL},
    {"sequence_truncate", sequence_truncate, METH_VARARGS, NULL},
    {"sequence_share", sequence_share, METH_VARARGS, NULL},
    {"sequence_set_eviction", sequence_set_eviction, METH_VARARGS, NULL},
    {"sequence_set_speculation", sequence_set_speculation, METH_VARARGS, NULL},
    {"sequence_expect", sequence_expect, METH_VARARGS, NULL},
    {"sequence_evict", sequence_evict, METH_O, NULL},
    {"sequence_kept", sequence_kept, METH_VARARGS, NULL},
    {"sequence_draft", sequence_draft, METH_VARARGS, NULL},
    {"sequence_settle", sequence_settle, METH_VARARGS, NULL},
    {"sequence_drafts", sequence_drafts, METH_O, NULL},
    {"sampler_create", sampler_create, METH_VARARGS, NULL},
    {"sampler_accept", sampler_accept, METH_VARARGS, NULL},
    {"sampler_choose", sampler_choose, METH_VARARGS, NULL},
    {0}};
