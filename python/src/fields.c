/* Dictionaries from and to the structs of the public headers; arrays by the buffer protocol. */
#include <string.h>

#include "skvpy.h"

#define SAMPLING(member, kind) SKVPY_FIELD(skv_sampling, member, kind)
const skvpy_field skvpy_sampling_fields[] = {SAMPLING(temperature, NUMBER),
                                             SAMPLING(top_k, SIZE),
                                             SAMPLING(top_p, NUMBER),
                                             SAMPLING(min_p, NUMBER),
                                             SAMPLING(repetition_penalty, NUMBER),
                                             SAMPLING(presence_penalty, NUMBER),
                                             SAMPLING(frequency_penalty, NUMBER),
                                             SAMPLING(seed, COUNT),
                                             {0}};

#define WORK(member, kind) SKVPY_FIELD(skv_work, member, kind)
const skvpy_field skvpy_work_fields[] = {WORK(kv, NUMBER),         WORK(q, NUMBER),
                                         WORK(o, NUMBER),          WORK(mlp, NUMBER),
                                         WORK(attention, NUMBER),  WORK(vocabulary, NUMBER),
                                         WORK(prediction, NUMBER), WORK(total, NUMBER),
                                         WORK(model, NUMBER),      WORK(mlp_blocks, COUNT),
                                         WORK(mlp_skipped, COUNT), WORK(exits_asked, COUNT),
                                         WORK(exits, COUNT),       {0}};

/* ---- from a dictionary ---- */

static bool fill_text(const skvpy_field *field, void *at, PyObject *value)
{
    const char *text = PyUnicode_AsUTF8AndSize(value, NULL);
    if (!text) return false;
    skv_error err = {.text = "not one of the known values"};
    skv_status status = SKV_ARGUMENT;
    bool known = false;
    switch (field->kind) {
    case SKVPY_TEXT: *(const char **)at = text; return true;
    case SKVPY_WEIGHTS: known = skv_weights_parse(text, at); break;
    case SKVPY_KV: known = skv_kv_parse(text, at); break;
    case SKVPY_STATE: known = skv_state_type_parse(text, at); break;
    case SKVPY_PREFILL: known = skv_prefill_parse(text, at); break;
    case SKVPY_PRUNING: known = skv_pruning_parse(text, at); break;
    case SKVPY_FFN_SKIP: known = skv_ffn_skip_parse(text, at); break;
    case SKVPY_EVICTION: status = skv_eviction_parse(text, at, &err); break;
    case SKVPY_SPECULATION: status = skv_speculation_parse(text, at, &err); break;
    default: break;
    }
    if (known || status == SKV_OK) return true;
    skv_error told = {.status = status};
    PyOS_snprintf(told.text, sizeof told.text, "%s: \"%.100s\": %.300s", field->name, text,
                  err.text);
    skvpy_fail(status, &told);
    return false;
}

static bool fill_value(const skvpy_field *field, char *object, PyObject *value)
{
    void *at = object + field->offset;
    switch (field->kind) {
    case SKVPY_SIZE: *(size_t *)at = PyLong_AsSize_t(value); break;
    case SKVPY_COUNT: *(uint64_t *)at = PyLong_AsUnsignedLongLong(value); break;
    case SKVPY_NUMBER: *(double *)at = PyFloat_AsDouble(value); break;
    case SKVPY_FLAG: *(bool *)at = PyObject_IsTrue(value) == 1; break;
    default: return fill_text(field, at, value);
    }
    return !PyErr_Occurred();
}

bool skvpy_fill(const skvpy_field *table, void *object, PyObject *options)
{
    PyObject *key, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(options, &place, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name) return false;
        const skvpy_field *field = table;
        while (field->name && strcmp(field->name, name) != 0) field++;
        if (!field->name) {
            PyErr_Format(PyExc_TypeError, "unknown option \"%s\"", name);
            return false;
        }
        if (value != Py_None && !fill_value(field, object, value)) return false;
    }
    return true;
}

/* ---- to a dictionary ---- */

static PyObject *dump_value(const skvpy_field *field, const char *object)
{
    const void *at = object + field->offset;
    char text[SKV_FFN_SKIP_TEXT];
    switch (field->kind) {
    case SKVPY_SIZE: return PyLong_FromSize_t(*(const size_t *)at);
    case SKVPY_COUNT: return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case SKVPY_NUMBER: return PyFloat_FromDouble(*(const double *)at);
    case SKVPY_FLAG: return PyBool_FromLong(*(const bool *)at);
    case SKVPY_TEXT: return Py_BuildValue("z", *(const char *const *)at);
    case SKVPY_CHARS: return PyUnicode_FromString(at);
    case SKVPY_WEIGHTS: return Py_BuildValue("z", skv_weights_name(*(const skv_weights *)at));
    case SKVPY_KV: return Py_BuildValue("z", skv_kv_name(*(const skv_kv *)at));
    case SKVPY_STATE: return Py_BuildValue("z", skv_state_type_name(*(const skv_state_type *)at));
    case SKVPY_PREFILL: return Py_BuildValue("z", skv_prefill_name(*(const skv_prefill *)at));
    case SKVPY_EVICTION: skv_eviction_print(at, text); return PyUnicode_FromString(text);
    case SKVPY_SPECULATION: skv_speculation_print(at, text); return PyUnicode_FromString(text);
    case SKVPY_FFN_SKIP: skv_ffn_skip_print(at, text); return PyUnicode_FromString(text);
    case SKVPY_PRUNING: break;
    }
    Py_RETURN_NONE;
}

PyObject *skvpy_dump(const skvpy_field *table, const void *object)
{
    PyObject *out = PyDict_New();
    for (const skvpy_field *field = table; out && field->name; field++) {
        PyObject *value = dump_value(field, object);
        if (!value || PyDict_SetItemString(out, field->name, value) < 0) Py_CLEAR(out);
        Py_XDECREF(value);
    }
    return out;
}

/* ---- arrays ---- */

bool skvpy_array(PyObject *object, bool writable, size_t n_bytes, Py_buffer *out)
{
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, out, flags) < 0) return false;
    if ((size_t)out->itemsize == n_bytes) return true;
    PyErr_Format(PyExc_TypeError, "an array with elements of %zd bytes, expected %zu",
                 out->itemsize, n_bytes);
    PyBuffer_Release(out);
    return false;
}

size_t skvpy_length(const Py_buffer *array)
{
    return (size_t)(array->len / array->itemsize);
}
