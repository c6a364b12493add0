/* The table of fields: see request_params.h. */
#include "request_params.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum param_kind { PARAM_NUMBER, PARAM_INTEGER, PARAM_FLAG, PARAM_CHOICE } param_kind;

typedef struct param_row {
    const char *name;
    unsigned apis;
    param_kind kind;
    size_t offset;
    double min, max;
    bool open_min, open_max;
    const char *choices; /* of CHOICE: "one|other", of which the field gets the number */
} param_row;

#define BOTH (PARAM_COMPLETIONS | PARAM_CHAT)
#define ALL (BOTH | PARAM_EMBEDDINGS)
#define AT(field) offsetof(request_params, field)
#define TOKENS_MAX 1e9

static const param_row rows[] = {
    {"temperature", BOTH, PARAM_NUMBER, AT(temperature), .min = 0, .max = 100},
    {"top_p", BOTH, PARAM_NUMBER, AT(top_p), .min = 0, .max = 1, .open_min = true},
    {"top_k", BOTH, PARAM_INTEGER, AT(top_k), .min = -1, .max = TOKENS_MAX},
    {"min_p", BOTH, PARAM_NUMBER, AT(min_p), .min = 0, .max = 1, .open_max = true},
    {"presence_penalty", BOTH, PARAM_NUMBER, AT(presence_penalty), .min = -2, .max = 2},
    {"frequency_penalty", BOTH, PARAM_NUMBER, AT(frequency_penalty), .min = -2, .max = 2},
    {"repetition_penalty", BOTH, PARAM_NUMBER, AT(repetition_penalty), .min = 0, .max = 10,
     .open_min = true},
    {"max_tokens", BOTH, PARAM_INTEGER, AT(max_tokens), .min = 0, .max = TOKENS_MAX},
    {"max_completion_tokens", PARAM_CHAT, PARAM_INTEGER, AT(max_tokens), .min = 0,
     .max = TOKENS_MAX},
    {"min_tokens", BOTH, PARAM_INTEGER, AT(min_tokens), .min = 0, .max = TOKENS_MAX},
    {"n", BOTH, PARAM_INTEGER, AT(n), .min = 1, .max = SKV_JOB_ANSWERS_MAX},
    {"best_of", PARAM_COMPLETIONS, PARAM_INTEGER, AT(best_of), .min = 1, .max = 1},
    {"logprobs", PARAM_COMPLETIONS, PARAM_INTEGER, AT(logprobs), .min = 0, .max = SKV_JOB_TOP_MAX},
    {"logprobs", PARAM_CHAT, PARAM_FLAG, AT(wants_logprobs), .min = 0},
    {"top_logprobs", PARAM_CHAT, PARAM_INTEGER, AT(top_logprobs), .min = 0, .max = SKV_JOB_TOP_MAX},
    {"ignore_eos", BOTH, PARAM_FLAG, AT(ignore_eos), .min = 0},
    {"stream", BOTH, PARAM_FLAG, AT(stream), .min = 0},
    {"return_progress", BOTH, PARAM_FLAG, AT(return_progress), .min = 0},
    {"echo", PARAM_COMPLETIONS, PARAM_FLAG, AT(echo), .min = 0},
    {"swiftkv", ALL, PARAM_CHOICE, AT(i_method), .choices = "auto|full|teacher"},
    {"dimensions", PARAM_EMBEDDINGS, PARAM_INTEGER, AT(dimensions), .min = 1, .max = TOKENS_MAX},
    {"encoding_format", PARAM_EMBEDDINGS, PARAM_CHOICE, AT(i_encoding), .choices = "float|base64"},
    {"pooling", PARAM_EMBEDDINGS, PARAM_CHOICE, AT(i_pooling), .choices = "last|mean"},
};

/* Fields that would change the answer, and that nobody serves here. */
static const struct {
    const char *name;
    unsigned apis;
    const char *why;
} refused[] = {
    {"suffix", BOTH, "text is only continued at its end"},
    {"tools", PARAM_COMPLETIONS, "only chats have tools"},
    {"functions", BOTH, "the older name is not served: send tools"},
    {"function_call", BOTH, "the older name is not served: send tool_choice"},
    {"audio", BOTH, "only text is served"},
    {"prompt_embeds", BOTH, "only text and token ids are served"},
    {"use_beam_search", BOTH, "there is no beam search"},
    {"chat_template", BOTH, "a client may not send templates"},
};

static bool out_of_range(const param_row *row, double value, api_error *error)
{
    return api_fail(error, 400, row->name, "%s: %.15g is not %s %.15g and %s %.15g", row->name,
                    value, row->open_min ? "above" : "at least", row->min,
                    row->open_max ? "below" : "at most", row->max);
}

static bool read_choice(const param_row *row, const json_t *value, size_t *out, api_error *error)
{
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    const char *at = row->choices;
    for (*out = 0;; ++*out) {
        const size_t n = strcspn(at, "|");
        if (strlen(name) == n && memcmp(name, at, n) == 0) return true;
        if (at[n] == 0) break;
        at += n + 1;
    }
    return api_fail(error, 400, row->name, "%s: \"%.40s\" is none of %s", row->name, name,
                    row->choices);
}

static bool read_row(const param_row *row, const json_t *value, request_params *out,
                     api_error *error)
{
    char *field = (char *)out + row->offset;
    if (row->kind == PARAM_FLAG) {
        if (!json_is_boolean(value)) {
            return api_fail(error, 400, row->name, "%s: not true or false", row->name);
        }
        *(bool *)(void *)field = json_is_true(value);
        return true;
    }
    if (row->kind == PARAM_CHOICE) {
        return read_choice(row, value, (size_t *)(void *)field, error);
    }
    const double number = json_number_value(value);
    const bool whole = json_is_integer(value) ||
                       (json_is_real(value) && number == floor(number) && fabs(number) < 1e15);
    if (!json_is_number(value) || (row->kind == PARAM_INTEGER && !whole)) {
        return api_fail(error, 400, row->name, "%s: not %s", row->name,
                        row->kind == PARAM_INTEGER ? "a whole number" : "a number");
    }
    const bool above = row->open_min ? number > row->min : number >= row->min;
    const bool below = row->open_max ? number < row->max : number <= row->max;
    if (!above || !below) return out_of_range(row, number, error);
    if (row->kind == PARAM_NUMBER) {
        *(double *)(void *)field = number;
    } else {
        *(int64_t *)(void *)field = (int64_t)number;
    }
    return true;
}

static bool read_rows(const json_t *body, param_api api, request_params *out, api_error *error)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_t *value = json_body_get(body, rows[i].name);
        if ((rows[i].apis & (unsigned)api) == 0 || value == NULL) continue;
        if (!read_row(&rows[i], value, out, error)) return false;
    }
    return true;
}

/* Empty ones are as good as absent. */
static bool check_refused(const json_t *body, param_api api, api_error *error)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const json_t *value = json_body_get(body, refused[i].name);
        const bool empty = value == NULL || json_is_false(value) ||
                           (json_is_string(value) && json_string_length(value) == 0) ||
                           (json_is_array(value) && json_array_size(value) == 0);
        if (empty || (refused[i].apis & (unsigned)api) == 0) continue;
        return api_fail(error, 400, refused[i].name, "%s: %s", refused[i].name, refused[i].why);
    }
    return true;
}

static bool add_stop(const json_t *value, request_params *out, api_error *error)
{
    const size_t n = json_string_length(value);
    if (!json_is_string(value) || n == 0 || n > PARAM_STOP_BYTES) {
        return api_fail(error, 400, "stop", "stop: not a text of 1 to %d bytes", PARAM_STOP_BYTES);
    }
    if (out->n_stops == PARAM_STOPS_MAX) {
        return api_fail(error, 400, "stop", "stop: more than %d texts", PARAM_STOPS_MAX);
    }
    out->stops[out->n_stops++] = (skv_text_piece){json_string_value(value), n};
    return true;
}

static bool read_stops(const json_t *body, request_params *out, api_error *error)
{
    const json_t *stop = json_body_get(body, "stop");
    if (stop == NULL) return true;
    if (!json_is_array(stop)) return add_stop(stop, out, error);
    for (size_t i = 0; i < json_array_size(stop); i++) {
        if (!add_stop(json_array_get(stop, i), out, error)) return false;
    }
    return true;
}

static bool read_stop_ids(const exchange *ex, const json_t *body, request_params *out,
                          api_error *error)
{
    const json_t *ids = json_body_get(body, "stop_token_ids");
    if (ids == NULL) return true;
    if (!json_is_array(ids) || json_array_size(ids) > PARAM_STOP_IDS_MAX) {
        return api_fail(error, 400, "stop_token_ids",
                        "stop_token_ids: not an array of at most %d token ids", PARAM_STOP_IDS_MAX);
    }
    return json_body_ids(ids, "stop_token_ids", skv_engine_vocab(ex->server->engine),
                         &out->stop_ids, &out->n_stop_ids, error);
}

static bool read_bias(const char *key, const json_t *value, size_t vocab, skv_logit_bias *out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long id = strtoul(key, &end, 10);
    const double bias = json_number_value(value);
    const bool ok = *key >= '0' && *key <= '9' && errno == 0 && *end == 0 && id < vocab &&
                    json_is_number(value) && fabs(bias) <= 100;
    *out = (skv_logit_bias){ok ? (int32_t)id : 0, ok ? (float)bias : 0};
    return ok;
}

static bool read_biases(const exchange *ex, const json_t *body, request_params *out,
                        api_error *error)
{
    enum { BIASES_MAX = 1024 };
    /* The iterator wants a pointer that it does not write through. */
    json_t *map = json_object_get(body, "logit_bias");
    if (map == NULL || json_is_null(map)) return true;
    if (!json_is_object(map) || json_object_size(map) > BIASES_MAX) {
        return api_fail(error, 400, "logit_bias",
                        "logit_bias: not an object of at most %d token ids", BIASES_MAX);
    }
    out->biases = calloc(json_object_size(map) + 1, sizeof *out->biases);
    if (out->biases == NULL) return api_fail(error, 503, NULL, "no memory");
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        if (read_bias(key, value, skv_engine_vocab(ex->server->engine),
                      &out->biases[out->n_biases++])) {
            continue;
        }
        return api_fail(error, 400, "logit_bias",
                        "logit_bias: \"%.40s\" is not a token id with a number from -100 to 100",
                        key);
    }
    return true;
}

static bool resolve_method(const exchange *ex, request_params *out, api_error *error)
{
    static const skv_prefill methods[] = {SKV_PREFILL_AUTO, SKV_PREFILL_FULL, SKV_PREFILL_TEACHER};
    out->prefill = methods[out->i_method];
    skv_error err = {0};
    const skv_engine *engine = ex->server->engine;
    if (skv_engine_check(engine, SKV_WHERE_SEQUENCE, out->prefill, NULL, &err) == SKV_OK) {
        return true;
    }
    return api_fail(error, 400, "swiftkv", "swiftkv: %s", err.text);
}

/* {"capacity": C, "window": w, "kernel": k, "pooling": "max"|"avg"} as "snapkv:C,w,k,max". */
static bool write_snapkv(const json_t *object, char text[SKV_EVICTION_TEXT], api_error *error)
{
    static const char *const numbers[] = {"capacity", "window", "kernel"};
    int n = snprintf(text, SKV_EVICTION_TEXT, "snapkv:");
    size_t n_known = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = json_object_get(object, numbers[i]);
        if (value == NULL && i > 0) break;
        if (!json_is_integer(value)) {
            return api_fail(error, 400, "snapkv", "snapkv: %s is not a whole number", numbers[i]);
        }
        n += snprintf(text + n, SKV_EVICTION_TEXT - (size_t)n, "%s%lld", i > 0 ? "," : "",
                      (long long)json_integer_value(value));
        n_known++;
    }
    const json_t *pooling = json_object_get(object, "pooling");
    if (pooling != NULL) {
        const char *word = json_is_string(pooling) ? json_string_value(pooling) : "";
        if (strcmp(word, "max") != 0 && strcmp(word, "avg") != 0) {
            return api_fail(error, 400, "snapkv", "snapkv: pooling '%.40s' is not max or avg",
                            word);
        }
        (void)snprintf(text + n, SKV_EVICTION_TEXT - (size_t)n, ",%s", word);
        n_known++;
    }
    if (n_known == json_object_size(object)) return true;
    return api_fail(error, 400, "snapkv",
                    "snapkv: an object of capacity, window (needs capacity), kernel (needs window) "
                    "and pooling, and no more");
}

/* "evict": any method as text; "snapkv": that one as an object. */
static bool read_eviction(const exchange *ex, const json_t *body, request_params *out,
                          api_error *error)
{
    const json_t *evict = json_body_get(body, "evict"), *snapkv = json_body_get(body, "snapkv");
    const char *name = evict != NULL ? "evict" : "snapkv";
    char text[SKV_EVICTION_TEXT] = "";
    if (evict == NULL && snapkv == NULL) return true;
    if (evict != NULL && snapkv != NULL) {
        return api_fail(error, 400, "evict", "evict: excludes snapkv");
    }
    if (evict != NULL ? !json_is_string(evict) : !json_is_object(snapkv)) {
        return api_fail(error, 400, name, "%s: not %s", name, evict ? "a text" : "an object");
    }
    if (snapkv != NULL && !write_snapkv(snapkv, text, error)) return false;
    skv_error err = {0};
    const char *how = evict != NULL ? json_string_value(evict) : text;
    if (skv_eviction_parse(how, &out->eviction, &err) != SKV_OK ||
        skv_engine_check(ex->server->engine, SKV_WHERE_SERVE, SKV_PREFILL_AUTO, &out->eviction,
                         &err) != SKV_OK) {
        return api_fail(error, 400, name, "%s: %s", name, err.text);
    }
    out->eviction_given = true;
    return true;
}

static bool read_seed(const json_t *body, request_params *out, api_error *error)
{
    const json_t *value = json_body_get(body, "seed");
    if (value == NULL) return true;
    if (!json_is_integer(value)) return api_fail(error, 400, "seed", "seed: not a whole number");
    out->seed = json_integer_value(value);
    out->seed_given = true;
    return true;
}

static bool read_stream_options(const json_t *body, request_params *out, api_error *error)
{
    const json_t *options = json_body_get(body, "stream_options");
    if (options == NULL) return true;
    if (!json_is_object(options)) {
        return api_fail(error, 400, "stream_options", "stream_options: not an object");
    }
    return json_body_flag(options, "include_usage", &out->include_usage, error) &&
           json_body_flag(options, "continuous_usage_stats", &out->continuous_usage, error);
}

bool request_check_min(int64_t min_tokens, int64_t max_tokens, api_error *error)
{
    if (min_tokens <= max_tokens) return true;
    return api_fail(error, 400, "min_tokens",
                    "min_tokens: %lld, but the answer has at most %lld tokens",
                    (long long)min_tokens, (long long)max_tokens);
}

static bool check_together(param_api api, request_params *out, api_error *error)
{
    const int64_t most = out->max_tokens;
    if (most >= 0 && !request_check_min(out->min_tokens, most, error)) return false;
    if (api == PARAM_COMPLETIONS && out->logprobs >= 0) {
        out->wants_logprobs = true;
        out->n_top = (size_t)out->logprobs;
    }
    if (api == PARAM_CHAT && out->top_logprobs >= 0) {
        if (out->top_logprobs > 0 && !out->wants_logprobs) {
            return api_fail(error, 400, "top_logprobs", "top_logprobs: needs logprobs: true");
        }
        out->n_top = (size_t)out->top_logprobs;
    }
    return true;
}

/* Vectors are not made to be cut: a shorter one would mean something else. */
static bool resolve_embedding(const exchange *ex, request_params *out, api_error *error)
{
    static const skv_pooling poolings[] = {SKV_POOLING_LAST, SKV_POOLING_MEAN};
    const size_t D = skv_engine_hidden(ex->server->engine);
    out->max_tokens = 0;
    out->pooling = poolings[out->i_pooling];
    if (out->dimensions < 0 || (uint64_t)out->dimensions == D) return true;
    return api_fail(error, 400, "dimensions",
                    "dimensions: %lld, but the vectors of this model have %zu and cannot be cut",
                    (long long)out->dimensions, D);
}

bool request_params_read(const exchange *ex, const json_t *body, param_api api, request_params *out,
                         api_error *error)
{
    *out = (request_params){.temperature = 1,
                            .top_p = 1,
                            .repetition_penalty = 1,
                            .max_tokens = -1,
                            .n = 1,
                            .best_of = 1,
                            .logprobs = -1,
                            .top_logprobs = -1,
                            .dimensions = -1};
    if (!read_rows(body, api, out, error) || !resolve_method(ex, out, error)) return false;
    if (api == PARAM_EMBEDDINGS) return resolve_embedding(ex, out, error);
    return check_refused(body, api, error) && read_stops(body, out, error) &&
           read_stop_ids(ex, body, out, error) && read_biases(ex, body, out, error) &&
           read_seed(body, out, error) && read_eviction(ex, body, out, error) &&
           read_stream_options(body, out, error) && check_together(api, out, error);
}

/* ["one","other",null] */
static json_t *describe_choices(const char *choices)
{
    json_t *names = json_array();
    for (size_t n = strcspn(choices, "|");; n = strcspn(choices, "|")) {
        (void)json_array_append_new(names, json_stringn(choices, n));
        if (choices[n] == 0) break;
        choices += n + 1;
    }
    (void)json_array_append_new(names, json_null());
    return json_pack("{s:o}", "enum", names);
}

/* null is as good as absent everywhere. */
static json_t *describe_row(const param_row *row)
{
    if (row->kind == PARAM_CHOICE) return describe_choices(row->choices);
    if (row->kind == PARAM_FLAG) return json_pack("{s:[s,s]}", "type", "boolean", "null");
    const bool whole = row->kind == PARAM_INTEGER;
    return json_pack("{s:[s,s], s:o, s:o}", "type", whole ? "integer" : "number", "null",
                     row->open_min ? "exclusiveMinimum" : "minimum",
                     whole ? json_integer((json_int_t)row->min) : json_real(row->min),
                     row->open_max ? "exclusiveMaximum" : "maximum",
                     whole ? json_integer((json_int_t)row->max) : json_real(row->max));
}

/* The two fields that say which rows of the prompt stay. */
static bool describe_eviction(json_t *properties)
{
    json_t *text = json_pack("{s:[s,s], s:s}", "type", "string", "null", "description",
                             "Rows that stay behind the prompt: \"METHOD:C,...\" or \"none\".");
    json_t *whole = json_pack("{s:s, s:i}", "type", "integer", "minimum", 1);
    json_t *pooling = json_pack("{s:[s,s]}", "enum", "max", "avg");
    json_t *members = json_pack("{s:o, s:O, s:O, s:o}", "capacity", whole, "window", whole,
                                "kernel", whole, "pooling", pooling);
    json_t *object = json_pack("{s:[s,s], s:[s], s:b, s:o}", "type", "object", "null", "required",
                               "capacity", "additionalProperties", 0, "properties", members);
    return json_object_set_new(properties, "evict", text) == 0 &&
           json_object_set_new(properties, "snapkv", object) == 0;
}

bool request_params_describe(param_api api, json_t *properties)
{
    if (api != PARAM_EMBEDDINGS && !describe_eviction(properties)) return false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((rows[i].apis & (unsigned)api) == 0) continue;
        if (json_object_set_new(properties, rows[i].name, describe_row(&rows[i])) != 0) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if ((refused[i].apis & (unsigned)api) == 0) continue;
        json_t *empty =
            json_pack("{s:s, s:[n,b,s,[]]}", "description", refused[i].why, "enum", 0, "");
        if (json_object_set_new(properties, refused[i].name, empty) != 0) return false;
    }
    return true;
}

bool request_check_model(const exchange *ex, const json_t *body, api_error *error)
{
    const json_t *model = json_body_get(body, "model");
    const char *name = ex->server->name;
    if (model == NULL) return true;
    if (!json_is_string(model)) return api_fail(error, 400, "model", "model: not a text");
    const char *asked = json_string_value(model);
    const size_t n = strlen(name);
    if (json_string_length(model) == n && memcmp(asked, name, n) == 0) return true;
    (void)api_fail(error, 404, "model", "model: \"%.100s\" is not served, \"%.100s\" is", asked,
                   name);
    error->code = "model_not_found";
    return false;
}

void request_params_release(request_params *params)
{
    free(params->stop_ids);
    free(params->biases);
    params->stop_ids = NULL;
    params->biases = NULL;
}

skv_job_params request_params_job(const exchange *ex, const request_params *params)
{
    skv_job_params job = skv_job_params_default();
    job.n_answers = (size_t)params->n;
    job.min_tokens = (size_t)params->min_tokens;
    job.sampling.temperature = params->temperature;
    job.sampling.top_k = params->top_k > 0 ? (size_t)params->top_k : 0;
    job.sampling.top_p = params->top_p;
    job.sampling.min_p = params->min_p;
    job.sampling.repetition_penalty = params->repetition_penalty;
    job.sampling.presence_penalty = params->presence_penalty;
    job.sampling.frequency_penalty = params->frequency_penalty;
    job.sampling.seed = params->seed_given ? (uint64_t)params->seed : server_draw(ex->server);
    job.ignore_eos = params->ignore_eos;
    job.special_text = params->special_text;
    job.stops = params->stops;
    job.n_stops = params->n_stops;
    job.stop_ids = params->stop_ids;
    job.n_stop_ids = params->n_stop_ids;
    job.biases = params->biases;
    job.n_biases = params->n_biases;
    job.logprobs = params->wants_logprobs;
    job.n_top = params->n_top;
    job.prompt_logprobs = params->echo && params->wants_logprobs;
    job.prefill = params->prefill;
    if (params->eviction_given) job.eviction = &params->eviction;
    job.pooling = params->pooling;
    job.tenant = ex->tenant;
    if (ex->key != NULL) {
        job.salt = skv_scheduler_salt(ex->server->scheduler, ex->key, strlen(ex->key));
    }
    return job;
}
