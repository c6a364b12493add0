/* Text: tokenizers, streams of text, chat templates. */
#include "skvpy.h"

#include "skv/text.h"

static void close_vocab(void *vocab)
{
    skv_vocab_close(vocab);
}

static PyObject *vocab_open(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    skv_vocab *vocab = NULL;
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status = skv_vocab_open(path, &vocab, &err);
    Py_END_ALLOW_THREADS if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(vocab, "vocab", close_vocab, NULL);
}

/* (size, BOS or -1, EOS or -1, chat template or None) */
static PyObject *vocab_shape(PyObject *module, PyObject *box)
{
    (void)module;
    const skv_vocab *vocab = skvpy_unbox(box, "vocab");
    if (!vocab) return NULL;
    return Py_BuildValue("niiz", (Py_ssize_t)skv_vocab_size(vocab), skv_vocab_bos(vocab),
                         skv_vocab_eos(vocab), skv_vocab_chat_template(vocab));
}

/* The ids of a text as bytes of int32. */
static PyObject *vocab_encode(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    const char *text;
    Py_ssize_t n_text;
    int add_special, parse_special;
    if (!PyArg_ParseTuple(args, "Os#pp", &box, &text, &n_text, &add_special, &parse_special))
        return NULL;
    const skv_vocab *vocab = skvpy_unbox(box, "vocab");
    if (!vocab) return NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    skv_error err = {0};
    skv_status status;
    const skv_encode_options options = {.add_special = add_special, .parse_special = parse_special};
    Py_BEGIN_ALLOW_THREADS status =
        skv_vocab_encode(vocab, (skv_text_piece){text, (size_t)n_text}, options, &ids, &n, &err);
    Py_END_ALLOW_THREADS if (status != SKV_OK) return skvpy_fail(status, &err);
    PyObject *out = PyBytes_FromStringAndSize((const char *)ids, (Py_ssize_t)(n * sizeof(int32_t)));
    skv_text_free(ids);
    return out;
}

static PyObject *take_text(char *text, size_t n)
{
    PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace");
    skv_text_free(text);
    return out;
}

static PyObject *vocab_decode(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *array;
    int with_special;
    if (!PyArg_ParseTuple(args, "OOp", &box, &array, &with_special)) return NULL;
    const skv_vocab *vocab = skvpy_unbox(box, "vocab");
    Py_buffer ids;
    if (!vocab || !skvpy_array(array, false, sizeof(int32_t), &ids)) return NULL;
    char *text = NULL;
    size_t n = 0;
    skv_error err = {0};
    const skv_status status =
        skv_vocab_decode(vocab, (skv_id_piece){ids.buf, skvpy_length(&ids)},
                         (skv_decode_options){.with_special = with_special}, &text, &n, &err);
    PyBuffer_Release(&ids);
    return status == SKV_OK ? take_text(text, n) : skvpy_fail(status, &err);
}

/* ---- streams ---- */

static void free_stream(void *stream)
{
    skv_text_stream_free(stream);
}

static PyObject *stream_create(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    int with_special;
    if (!PyArg_ParseTuple(args, "Op", &box, &with_special)) return NULL;
    const skv_vocab *vocab = skvpy_unbox(box, "vocab");
    if (!vocab) return NULL;
    skv_text_stream *stream = NULL;
    skv_error err = {0};
    const skv_status status = skv_text_stream_create(vocab, with_special, &stream, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    return skvpy_box(stream, "text stream", free_stream, box);
}

/* The text that an id makes certain; -1 ends the stream. */
static PyObject *stream_push(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box;
    int id;
    if (!PyArg_ParseTuple(args, "Oi", &box, &id)) return NULL;
    skv_text_stream *stream = skvpy_unbox(box, "text stream");
    if (!stream) return NULL;
    const char *text = "";
    size_t n = 0;
    skv_error err = {0};
    const skv_status status = id < 0 ? skv_text_stream_finish(stream, &text, &n, &err)
                                     : skv_text_stream_push(stream, id, &text, &n, &err);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace");
}

/* ---- templates ---- */

/* (template, variables as JSON, vocab or None) */
static PyObject *render(PyObject *module, PyObject *args)
{
    (void)module;
    skv_render_input input = {0};
    Py_ssize_t n_template, n_vars;
    PyObject *box;
    if (!PyArg_ParseTuple(args, "s#s#O", &input.template_text.text, &n_template, &input.vars.text,
                          &n_vars, &box))
        return NULL;
    input.template_text.n = (size_t)n_template;
    input.vars.n = (size_t)n_vars;
    if (box != Py_None && !(input.vocab = skvpy_unbox(box, "vocab"))) return NULL;
    char *text = NULL;
    size_t n = 0;
    skv_error err = {0};
    const skv_status status = skv_render(&input, &text, &n, &err);
    return status == SKV_OK ? take_text(text, n) : skvpy_fail(status, &err);
}

/* (template, variables as JSON, vocab, whether variables may spell special tokens): ids as bytes of
 * int32. */
static PyObject *encode_chat(PyObject *module, PyObject *args)
{
    (void)module;
    skv_render_input input = {0};
    Py_ssize_t n_template, n_vars;
    PyObject *box;
    int special_text;
    if (!PyArg_ParseTuple(args, "s#s#Op", &input.template_text.text, &n_template, &input.vars.text,
                          &n_vars, &box, &special_text))
        return NULL;
    input.template_text.n = (size_t)n_template;
    input.vars.n = (size_t)n_vars;
    if (!(input.vocab = skvpy_unbox(box, "vocab"))) return NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    skv_text_marks data = {0};
    skv_error err = {0};
    skv_status status = skv_render_marked(&input, &text, &n, &data, &err);
    const skv_encode_options options = {.parse_special = true, .data = special_text ? NULL : &data};
    if (status == SKV_OK) {
        Py_BEGIN_ALLOW_THREADS status =
            skv_vocab_encode(input.vocab, (skv_text_piece){text, n}, options, &ids, &n_ids, &err);
        Py_END_ALLOW_THREADS
    }
    skv_text_free(text);
    skv_text_free(data.at);
    if (status != SKV_OK) return skvpy_fail(status, &err);
    PyObject *out = PyBytes_FromStringAndSize((const char *)ids, (Py_ssize_t)(n_ids * sizeof *ids));
    skv_text_free(ids);
    return out;
}

PyMethodDef skvpy_text_methods[] = {{"vocab_open", vocab_open, METH_VARARGS, NULL},
                                    {"vocab_shape", vocab_shape, METH_O, NULL},
                                    {"vocab_encode", vocab_encode, METH_VARARGS, NULL},
                                    {"vocab_decode", vocab_decode, METH_VARARGS, NULL},
                                    {"stream_create", stream_create, METH_VARARGS, NULL},
                                    {"stream_push", stream_push, METH_VARARGS, NULL},
                                    {"render", render, METH_VARARGS, NULL},
                                    {"encode_chat", encode_chat, METH_VARARGS, NULL},
                                    {0}};
