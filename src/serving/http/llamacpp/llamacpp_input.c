/*
 * Requests to llama-server's /completion and /infill: see translate.h. They are completions with
 * fields of other names; the texts around a gap become the ids of one prompt.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request_input.h"
#include "request/translate.h"

enum {
    RESPONSE_FIELDS_MAX = 64,
    ID_BYTES = 64, /* of an id as a JSON value */
    FILE_IDS = 4   /* of another file at least: its mark, its name, a line end and its text */
};

/* ---- /completion ---- */

static bool put_bias(json_t *map, int32_t id, const json_t *bias, api_error *error)
{
    char key[16];
    (void)snprintf(key, sizeof key, "%d", (int)id);
    return json_put_new(
        map, key, json_is_false(bias) ? json_integer(-100) : json_copy((json_t *)(uintptr_t)bias),
        error);
}

/* A bias for an id, or for each token of a text; false in place of a number forbids them. */
static bool add_bias(const exchange *ex, json_t *map, const json_t *of, const json_t *bias,
                     api_error *error)
{
    if (!(json_is_number(bias) || json_is_false(bias))) {
        return api_refuse(error, "logit_bias", "%s is not a number or false", json_show(bias).text);
    }
    const json_int_t id = json_is_integer(of) ? json_integer_value(of) : -1;
    if (id >= 0 && id <= INT32_MAX) return put_bias(map, (int32_t)id, bias, error);
    if (!json_is_string(of)) {
        return api_refuse(error, "logit_bias", "%s is neither a token id nor a text",
                          json_show(of).text);
    }
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok = text_encode(ex, json_string_value(of), json_string_length(of),
                          (encode_flags){.parse_special = true}, &ids, &n, error);
    for (size_t i = 0; ok && i < n && json_object_size(map) <= PARAM_BIASES_MAX; i++) {
        ok = put_bias(map, ids[i], bias, error); /* more of them are refused later */
    }
    text_ids_free(ex, ids, n);
    return ok;
}

/* A key of {"id or text": bias}: digits are an id. */
static bool add_member(const exchange *ex, json_t *map, const char *key, const json_t *bias,
                       api_error *error)
{
    const bool is_id = *key && strspn(key, "0123456789") == strlen(key) && strlen(key) < 10;
    json_t *of = is_id ? json_integer(strtol(key, NULL, 10)) : json_string(key);
    const bool ok =
        of ? add_bias(ex, map, of, bias, error) : api_fail(error, 503, NULL, "no memory");
    json_decref(of);
    return ok;
}

/* [[id or text, bias], ...] or {"id or text": bias} as {"id": bias}. */
static bool set_biases(const exchange *ex, json_t *body, const json_t *asked, api_error *error)
{
    json_t *given = json_object_get(asked, "logit_bias"), *value;
    const char *key;
    if (!given || json_is_null(given)) return true;
    if (json_array_size(given) > PARAM_BIASES_MAX || json_object_size(given) > PARAM_BIASES_MAX) {
        return api_refuse(error, "logit_bias", "more than %d", PARAM_BIASES_MAX);
    }
    json_t *map = json_object();
    bool ok = map || api_fail(error, 503, NULL, "no memory");
    for (size_t i = 0; ok && i < json_array_size(given); i++) {
        const json_t *pair = json_array_get(given, i);
        ok = json_array_size(pair) == 2
                 ? add_bias(ex, map, json_array_get(pair, 0), json_array_get(pair, 1), error)
                 : api_fail(error, 400, "logit_bias", "logit_bias[%zu]: not a pair", i);
    }
    json_object_foreach(given, key, value)
    {
        if (ok) ok = add_member(ex, map, key, value, error);
    }
    if (ok && (json_is_array(given) || json_is_object(given))) {
        return json_put_new(body, "logit_bias", map, error);
    }
    json_decref(map);
    return ok && api_refuse(error, "logit_bias", "neither a list nor an object");
}

/* {"prompt_string": text} as the text. */
static json_t *plain_prompt(json_t *given)
{
    json_t *text = json_object_get(given, "prompt_string");
    return text ? text : given;
}

static bool has_media(const json_t *prompt)
{
    return json_body_get(prompt, "multimodal_data");
}

static bool set_prompt(const exchange *ex, json_t *body, const json_t *asked, api_error *error)
{
    json_t *given = json_object_get(asked, "prompt");
    bool media = has_media(given);
    for (size_t i = 0; i < json_array_size(given); i++) {
        media = media || has_media(json_array_get(given, i));
    }
    if (media)
        return api_fail(error, 400, "prompt", "prompt.multimodal_data: only text is supported");
    if (json_is_object(given)) {
        return json_put_new(body, "prompt", json_incref(plain_prompt(given)), error);
    }
    if (!json_is_array(given)) return true;
    json_t *list = json_copy_within(ex, given, "prompt", error);
    bool ok = list;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        json_t *plain = plain_prompt(json_array_get(list, i));
        ok = json_array_set(list, i, plain) == 0 || api_fail(error, 503, NULL, "no memory");
    }
    if (ok) return json_put_new(body, "prompt", list, error);
    json_decref(list);
    return false;
}

static bool refuse(const json_t *asked, const char *name, const char *why, api_error *error)
{
    const json_t *value = json_body_get(asked, name);
    const bool neutral =
        !value || json_is_false(value) || (json_is_number(value) && json_number_value(value) <= 0);
    return neutral || api_refuse(error, name, "%s", why);
}

/* `n_probs` is the number of likely tokens; none are wanted where it is 0. */
static bool set_probs(json_t *body, const json_t *asked, api_error *error)
{
    json_t *n = json_object_get(asked, "n_probs");
    (void)json_object_del(body, "logprobs");
    if (!n || json_is_null(n)) return true;
    if (!json_is_integer(n) || json_integer_value(n) < 0 ||
        json_integer_value(n) > SKV_JOB_TOP_MAX) {
        return api_refuse(error, "n_probs", "%s is not a whole number from 0 to %d",
                          json_show(n).text, SKV_JOB_TOP_MAX);
    }
    return json_integer_value(n) == 0 || json_put_new(body, "logprobs", json_incref(n), error);
}

/* The fields that only the response is made by. */
static bool check_fields(const json_t *asked, api_error *error)
{
    bool returns_tokens = false;
    if (!json_body_flag(asked, "return_tokens", &returns_tokens, error)) return false;
    const json_t *fields = json_body_get(asked, "response_fields");
    bool ok = !fields || (json_is_array(fields) && json_array_size(fields) <= RESPONSE_FIELDS_MAX);
    for (size_t i = 0; ok && i < json_array_size(fields); i++) {
        ok = json_is_string(json_array_get(fields, i));
    }
    return ok ||
           api_refuse(error, "response_fields", "expected at most %d names", RESPONSE_FIELDS_MAX);
}

json_t *llamacpp_translate(exchange *ex, const json_t *asked, api_error *error)
{
    json_t *body = json_copy_within(ex, (json_t *)(uintptr_t)asked, "request", error);
    if (!body) return NULL;
    /* A seed of -1 is none. */
    const json_t *seed = json_object_get(body, "seed");
    if (json_is_integer(seed) && json_integer_value(seed) == -1) {
        (void)json_object_del(body, "seed");
    }
    if (set_biases(ex, body, asked, error) && set_prompt(ex, body, asked, error) &&
        set_probs(body, asked, error) && check_fields(asked, error) &&
        refuse(asked, "post_sampling_probs", "log-probabilities are the model's own", error) &&
        refuse(asked, "t_max_predict_ms", "answers end by their length, not by time", error) &&
        refuse(asked, "n_indent", "lines are not counted by their indentation", error) &&
        refuse(asked, "n_keep", "prompts are never cut", error) &&
        refuse(asked, "image_data", "only text is supported", error)) {
        return body;
    }
    json_decref(body);
    return NULL;
}

/* ---- /infill: a text with a gap ---- */

/* The marks of models that were trained to fill a gap, as their vocabularies spell them. */
typedef struct gap_marks {
    const char *prefix, *suffix, *middle;
    bool suffix_first;
    const char *repository, *file; /* of other files in front; NULL: none */
} gap_marks;

static const gap_marks known_marks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false, "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false, "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", false, NULL, NULL},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false, NULL, NULL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     false, NULL, NULL},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", true, NULL, NULL},
    {"<PRE>", "<SUF>", "<MID>", false, NULL, NULL},
};

/* The id of a mark; -1: the vocabulary has none. */
static int32_t id_of(const server_model *model, const char *mark)
{
    int32_t *ids = NULL, id = -1;
    size_t n = 0;
    if (!mark || !model->vocab) return -1;
    const skv_status status =
        skv_vocab_encode(model->vocab, (skv_text_piece){mark, strlen(mark)},
                         (skv_encode_options){.parse_special = true}, &ids, &n, NULL);
    if (status == SKV_OK && n == 1) id = ids[0];
    skv_text_free(ids);
    return id;
}

/* The prompt on its way. */
typedef struct gap {
    const exchange *ex; /* borrowed */
    const json_t *asked;
    api_error *error;
    const gap_marks *marks;
    json_t *ids; /* owned */
} gap;

static bool add_id(gap *g, int32_t id)
{
    if (!request_hold(g->ex, ID_BYTES, "prompt", g->error)) return false;
    return json_array_append_new(g->ids, json_integer(id)) == 0 ||
           api_fail(g->error, 503, NULL, "no memory");
}

static bool add_mark(gap *g, const char *mark)
{
    return add_id(g, id_of(g->ex->model, mark));
}

/* Appends at most `most` ids of a text, the first or the last ones. */
static bool add_text(gap *g, const char *text, size_t n, size_t most, bool last)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    /* The last ones are known at the end of the text only. */
    const encode_flags flags = {.max_ids = last ? 0 : most};
    if (n == 0 || most == 0) return true;
    if (!text_encode(g->ex, text, n, flags, &ids, &n_ids, g->error)) return false;
    const size_t from = last && n_ids > most ? n_ids - most : 0;
    const size_t n_taken = n_ids > most ? most : n_ids;
    bool ok = true;
    for (size_t i = 0; ok && i < n_taken; i++) ok = add_id(g, ids[from + i]);
    text_ids_free(g->ex, ids, n_ids);
    return ok;
}

/* A field that is a text, or absent. */
static bool text_of(const gap *g, const json_t *object, const char *name, skv_text_piece *out)
{
    const json_t *value = json_body_get(object, name);
    if (value && !json_is_string(value)) return api_refuse(g->error, name, "not a text");
    *out = (skv_text_piece){value ? json_string_value(value) : "", json_string_length(value)};
    return true;
}

/* Other files: {"filename","text"}, each after its mark if the model has one. */
static bool add_file(gap *g, const json_t *file, size_t most)
{
    skv_text_piece name = {"", 0}, text = {"", 0};
    if (!json_is_object(file)) {
        return api_refuse(g->error, "input_extra", "not an array of {\"filename\",\"text\"}");
    }
    if (!text_of(g, file, "filename", &name) || !text_of(g, file, "text", &text)) return false;
    const bool marked = id_of(g->ex->model, g->marks->file) >= 0;
    if (marked) {
        return add_mark(g, g->marks->file) && add_text(g, name.text, name.n, most, true) &&
               add_text(g, "\n", 1, 1, true) && add_text(g, text.text, text.n, most, false);
    }
    return add_text(g, "\n\n", 2, 2, true) && add_text(g, text.text, text.n, most, false);
}

static bool add_files(gap *g, size_t most)
{
    static const char name[] = "filename\n";
    const json_t *files = json_body_get(g->asked, "input_extra");
    const size_t n_all = json_array_size(files),
                 n = n_all < most / FILE_IDS ? n_all : most / FILE_IDS;
    if (files && !json_is_array(files)) return api_refuse(g->error, "input_extra", "not an array");
    if (n == 0) return true;
    const bool named = id_of(g->ex->model, g->marks->repository) >= 0;
    if (named && !(add_mark(g, g->marks->repository) && add_text(g, "repository\n", 11, 11, true)))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!add_file(g, json_array_get(files, i), most / n)) return false;
    }
    if (id_of(g->ex->model, g->marks->file) < 0) return true;
    return add_mark(g, g->marks->file) && add_text(g, name, sizeof name - 1, sizeof name, true);
}

/* Half of the context is for the text around the gap, three parts before it and one after it; a
 * quarter is for other files, and the rest for the answer. */
static bool add_gap(gap *g)
{
    const size_t room = g->ex->model->limits.context / 8;
    const gap_marks *m = g->marks;
    skv_text_piece prefix = {"", 0}, suffix = {"", 0}, prompt = {"", 0};
    if (!text_of(g, g->asked, "input_prefix", &prefix) ||
        !text_of(g, g->asked, "input_suffix", &suffix) ||
        !text_of(g, g->asked, "prompt", &prompt)) {
        return false;
    }
    const int32_t bos = skv_engine_bos(g->ex->model->engine);
    bool ok = (bos < 0 || add_id(g, bos)) && add_files(g, 2 * room);
    for (size_t i = 0; ok && i < 2; i++) {
        if ((i == 0) == m->suffix_first) {
            ok = add_mark(g, m->suffix) && add_text(g, suffix.text, suffix.n, room, false);
        } else {
            ok = add_mark(g, m->prefix) && add_text(g, prefix.text, prefix.n, 3 * room, true) &&
                 add_text(g, prompt.text, prompt.n, room, true);
        }
    }
    return ok && (m->suffix_first || add_mark(g, m->middle));
}

static const gap_marks *marks_of(const server_model *model)
{
    for (size_t i = 0; i < sizeof known_marks / sizeof known_marks[0]; i++) {
        const gap_marks *m = &known_marks[i];
        const bool fits = id_of(model, m->prefix) >= 0 && id_of(model, m->suffix) >= 0;
        if (fits && (m->suffix_first || id_of(model, m->middle) >= 0)) return m;
    }
    return NULL;
}

json_t *infill_translate(exchange *ex, const json_t *asked, api_error *error)
{
    gap g = {.ex = ex, .asked = asked, .error = error, .marks = marks_of(ex->model)};
    if (!g.marks) {
        (void)api_fail(error, 400, NULL,
                       "infill: the model's vocabulary has no marks for a gap in a text");
        return NULL;
    }
    if (!json_body_get(asked, "input_prefix") && !json_body_get(asked, "input_suffix")) {
        (void)api_fail(error, 400, "input_prefix", "input_prefix, input_suffix: both are missing");
        return NULL;
    }
    json_t *body = llamacpp_translate(ex, asked, error);
    g.ids = json_array();
    if (body && g.ids && add_gap(&g) && json_put_new(body, "prompt", json_incref(g.ids), error)) {
        json_decref(g.ids);
        return body;
    }
    if (body && !g.ids) (void)api_fail(error, 503, NULL, "no memory");
    json_decref(g.ids);
    json_decref(body);
    return NULL;
}
