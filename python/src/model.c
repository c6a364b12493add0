/* Models on disk: what they are, the SwiftKV transform, quantising. */
#include "skvpy.h"

#include <string.h>

#include "skv/quantize.h"
#include "skv/tools.h"

#define INFO(member, kind) SKVPY_FIELD(skv_model_info, member, kind)
static const skvpy_field info_fields[] = {INFO(architecture, CHARS),
                                          INFO(layers, SIZE),
                                          INFO(hidden, SIZE),
                                          INFO(head_dim, SIZE),
                                          INFO(vocab, SIZE),
                                          INFO(context, SIZE),
                                          INFO(heads, SIZE),
                                          INFO(kv_heads, SIZE),
                                          INFO(ffn, SIZE),
                                          INFO(per_layer, FLAG),
                                          INFO(tied, FLAG),
                                          INFO(swiftkv, FLAG),
                                          INFO(swiftkv_layers, SIZE),
                                          INFO(group, SIZE),
                                          INFO(kv_slots, SIZE),
                                          INFO(parameters, COUNT),
                                          INFO(experts, SIZE),
                                          INFO(active_experts, SIZE),
                                          INFO(active_parameters, COUNT),
                                          INFO(codes, CHARS),
                                          INFO(kv_elements, COUNT),
                                          INFO(kv_window_elements, COUNT),
                                          INFO(kv_window, SIZE),
                                          INFO(has_sampling, FLAG),
                                          INFO(kv_prediction, FLAG),
                                          INFO(auxiliary_layers, SIZE),
                                          INFO(auxiliary_parameters, COUNT),
                                          INFO(predictor_parameters, COUNT),
                                          {0}};

static PyObject *model_info(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    skv_model_info info;
    skv_error err = {0};
    const skv_status status = skv_model_info_read(path, &info, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    PyObject *out = skvpy_dump(info_fields, &info);
    PyObject *sampling = out ? skvpy_dump(skvpy_sampling_fields, &info.sampling) : NULL;
    if (!sampling || PyDict_SetItemString(out, "sampling", sampling) < 0) Py_CLEAR(out);
    Py_XDECREF(sampling);
    return out;
}

static void on_share(void *user, double share)
{
    (void)skvpy_tell(user, "(d)", share);
}

/* The texts of a list of str, borrowed from it; NULL with an exception. Free with PyMem_Free. */
static const char **list_texts(PyObject *list, size_t *n)
{
    *n = (size_t)PyList_Size(list);
    const char **texts = PyMem_Calloc(*n + 1, sizeof *texts);
    if (!texts) PyErr_NoMemory();
    for (size_t i = 0; texts && i < *n; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, (Py_ssize_t)i), NULL);
        if (texts[i]) continue;
        PyMem_Free(texts);
        return NULL;
    }
    return texts;
}

#define TRANSFORM(member, kind) SKVPY_FIELD(skv_transform_options, member, kind)
static const skvpy_field transform_fields[] = {TRANSFORM(kv_layers, SIZE),
                                               TRANSFORM(group, SIZE),
                                               TRANSFORM(keep_layers, TEXT),
                                               TRANSFORM(tokens, SIZE),
                                               TRANSFORM(seq, SIZE),
                                               TRANSFORM(ridge, NUMBER),
                                               TRANSFORM(toward_zero, FLAG),
                                               TRANSFORM(seed, COUNT),
                                               TRANSFORM(threads, SIZE),
                                               TRANSFORM(cpu, TEXT),
                                               TRANSFORM(weights, WEIGHTS),
                                               TRANSFORM(exit_words, SIZE),
                                               {0}};

#define REPORT(member, kind) SKVPY_FIELD(skv_transform_report, member, kind)
static const skvpy_field report_fields[] = {
    REPORT(tokens, SIZE),        REPORT(width, SIZE),
    REPORT(ridge, NUMBER),       REPORT(copied_error, NUMBER),
    REPORT(ridge_error, NUMBER), REPORT(counted, COUNT),
    REPORT(covered, COUNT),      {0}};

/* (model, out, options, data files, progress): with data the projections are fitted. */
static PyObject *transform(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path, *out;
    PyObject *given, *data, *progress;
    if (!PyArg_ParseTuple(args, "ssO!O!O", &path, &out, &PyDict_Type, &given, &PyList_Type, &data,
                          &progress))
        return NULL;
    skv_transform_options options = skv_transform_options_default();
    if (!skvpy_fill(transform_fields, &options, given)) return NULL;
    const char **texts = list_texts(data, &options.n_data);
    if (!texts) return NULL;
    options.data = texts;
    if (options.n_data > 0) options.init = SKV_TRANSFORM_RIDGE;
    options.progress = on_share;
    options.user = progress;
    skv_transform_report report = {0};
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status = skv_transform_run(path, out, &options, &report, &err);
    Py_END_ALLOW_THREADS PyMem_Free(texts);
    if (status != SKV_OK || PyErr_Occurred()) return skvpy_fail(status, &err);
    return skvpy_dump(report_fields, &report);
}

#define QUANTIZED(member, kind) SKVPY_FIELD(skv_quantize_report, member, kind)
static const skvpy_field quantized_fields[] = {QUANTIZED(n_quantized, SIZE),
                                               QUANTIZED(n_left, SIZE),
                                               QUANTIZED(bytes_from, COUNT),
                                               QUANTIZED(bytes, COUNT),
                                               QUANTIZED(tokens, SIZE),
                                               QUANTIZED(error, NUMBER),
                                               {0}};

#define QUANTIZE(member, kind) SKVPY_FIELD(skv_quantize_options, member, kind)
static const skvpy_field quantize_fields[] = {
    QUANTIZE(weights, WEIGHTS), QUANTIZE(group, SIZE), QUANTIZE(threads, SIZE), {0}};

/* (model, out, options, data files, progress) */
static PyObject *quantize(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path, *out;
    PyObject *given, *data, *progress;
    if (!PyArg_ParseTuple(args, "ssO!O!O", &path, &out, &PyDict_Type, &given, &PyList_Type, &data,
                          &progress))
        return NULL;
    skv_quantize_options options = skv_quantize_options_default();
    if (!skvpy_fill(quantize_fields, &options, given)) return NULL;
    const char **texts = list_texts(data, &options.n_data);
    if (!texts) return NULL;
    options.data = texts;
    options.progress = on_share;
    options.user = progress;
    skv_quantize_report report = {0};
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status = skv_quantize(path, out, &options, &report, &err);
    Py_END_ALLOW_THREADS PyMem_Free(texts);
    if (status != SKV_OK || PyErr_Occurred()) return skvpy_fail(status, &err);
    return skvpy_dump(quantized_fields, &report);
}

PyMethodDef skvpy_model_methods[] = {{"model_info", model_info, METH_VARARGS, NULL},
                                     {"transform", transform, METH_VARARGS, NULL},
                                     {"quantize", quantize, METH_VARARGS, NULL},
                                     {0}};
