/* The table of fields: see request_input.h. */
#include "request/request_input.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "common/sampling_fields.h"

typedef struct param_row {
    unsigned apis;
    skv_field field; /* of request_params */
} param_row;

#define BOTH (PARAM_COMPLETIONS | PARAM_CHAT)
#define ALL (BOTH | PARAM_EMBEDDINGS)
#define AT(field) offsetof(request_params, field)
#define TOKENS_MAX SKV_ANSWER_TOKENS_MAX

enum { TOKENS_UNSAID = -2, LORA_SCALE_MAX = 1000 };

#define PARAM(apis, name, argument, kind, member, ...)                                             \
    {                                                                                              \
        apis,                                                                                      \
        {                                                                                          \
            name, argument, SKV_FIELD_##kind, AT(member), __VA_ARGS__                              \
        }                                                                                          \
    }

/* Beside those of skv_sampling. */
static const param_row rows[] = {
    PARAM(BOTH, "max_tokens", "N", INTEGER, max_tokens, -1, TOKENS_MAX,
          .help = "longest answer in tokens; it ends with the context in any case, -1: only there"),
    PARAM(PARAM_CHAT, "max_completion_tokens", "N", INTEGER, max_tokens, -1, TOKENS_MAX,
          .help = "the newer name of max_tokens"),
    PARAM(BOTH, "n_predict", "N", INTEGER, max_tokens, -1, TOKENS_MAX,
          .help = "llama.cpp's name of max_tokens"),
    PARAM(BOTH, "repeat_penalty", "X", NUMBER, sampling.repetition_penalty, 0, 10, .open_min = true,
          .help = "llama.cpp's name of repetition_penalty"),
    PARAM(PARAM_CHAT, "reasoning_format", "auto|deepseek|none", CHOICE, i_reasoning,
          .initial = "auto", .help = "none: thoughts stay in the text, with their marks"),
    PARAM(
        BOTH, "min_tokens", "N", INTEGER, min_tokens, 0, TOKENS_MAX, .initial = "0",
        .help =
            "shortest answer in tokens; one that follows a grammar still ends when it is complete"),
    PARAM(BOTH, "n", "N", INTEGER, n, 1, SKV_JOB_ANSWERS_MAX, .initial = "1",
          .help = "answers to each prompt; answer i draws with seed + i"),
    PARAM(PARAM_COMPLETIONS, "best_of", "N", INTEGER, best_of, 1, 1, .initial = "1",
          .help = "only 1 is supported"),
    PARAM(PARAM_COMPLETIONS, "logprobs", "N", INTEGER, logprobs, 0, SKV_JOB_TOP_MAX,
          .help = "log-probabilities of the tokens, and this many of the most likely ones"),
    PARAM(PARAM_CHAT, "logprobs", NULL, FLAG, wants_logprobs, .initial = "no",
          .help = "log-probabilities of the tokens"),
    PARAM(PARAM_CHAT, "top_logprobs", "N", INTEGER, top_logprobs, 0, SKV_JOB_TOP_MAX,
          .help = "this many of the most likely tokens; needs logprobs"),
    PARAM(BOTH, "ignore_eos", NULL, FLAG, ignore_eos, .initial = "no",
          .help = "continue after end-of-sequence tokens"),
    PARAM(BOTH, "stream", NULL, FLAG, stream, .initial = "no",
          .help = "send events as the answer is generated"),
    PARAM(BOTH, "return_progress", NULL, FLAG, return_progress, .initial = "no",
          .help = "events with prompt_progress while the prompt is read"),
    PARAM(BOTH, "timings_per_token", NULL, FLAG, timings_per_token, .initial = "no",
          .help = "timings in every event with a text"),
    PARAM(PARAM_COMPLETIONS, "echo", NULL, FLAG, echo, .initial = "no",
          .help = "the answer begins with the prompt"),
    PARAM(ALL, "swiftkv", "auto|full|teacher", CHOICE, i_method, .initial = "auto",
          .help = "full: skip no layer; teacher: run the model that a SwiftKV file was made from"),
    PARAM(PARAM_EMBEDDINGS, "dimensions", "N", INTEGER, dimensions, 1, TOKENS_MAX,
          .help = "only the model's own width"),
    PARAM(PARAM_EMBEDDINGS, "encoding_format", "float|base64", CHOICE, i_encoding,
          .initial = "float", .help = "base64: f32, lowest byte first"),
    PARAM(PARAM_EMBEDDINGS, "pooling", "last|mean", CHOICE, i_pooling, .initial = "last",
          .help = "last: of the last token; mean: of all tokens"),
};

/* Fields that would change the answer, and that this server does not support. */
typedef struct refused_row {
    const char *name;
    unsigned apis;
    const char *why;
    const double *neutral; /* the number that changes nothing; NULL: no number does */
} refused_row;

static const double neutral_0 = 0, neutral_1 = 1, neutral_below = -1;

static const refused_row refused[] = {
    {"typical_p", BOTH, "typical sampling is not supported", &neutral_1},
    {"tfs_z", BOTH, "tail-free sampling is not supported", &neutral_1},
    {"mirostat", BOTH, "Mirostat is not supported", &neutral_0},
    {"dynatemp_range", BOTH, "dynamic temperature is not supported", &neutral_0},
    {"xtc_probability", BOTH, "XTC is not supported", &neutral_0},
    {"dry_multiplier", BOTH, "DRY is not supported", &neutral_0},
    {"top_n_sigma", BOTH, "top-n-sigma sampling is not supported", &neutral_below},
    {"samplers", BOTH, "the order of samplers is fixed: top_k, min_p, top_p", NULL},
    {"suffix", BOTH, "text is only continued at its end", NULL},
    {"tools", PARAM_COMPLETIONS, "only chats have tools", NULL},
    {"functions", BOTH, "the older name is not served: send tools", NULL},
    {"function_call", BOTH, "the older name is not served: send tool_choice", NULL},
    {"audio", BOTH, "only text is supported", NULL},
    {"prompt_embeds", BOTH, "only text and token ids are supported", NULL},
    {"use_beam_search", BOTH, "there is no beam search", NULL},
    {"chat_template", BOTH, "chat templates cannot be sent with a request", NULL},
};

const char *request_refused_field(size_t i)
{
    return i < sizeof refused / sizeof refused[0] ? refused[i].name : NULL;
}

/* The i-th field of requests to the endpoint, beginning with those of sampling; false at the end.
 */
static bool field_at(param_api api, size_t i, skv_field *out)
{
    const bool samples = api != PARAM_EMBEDDINGS;
    for (size_t k = 0; samples && skv_sampling_field(k); k++) {
        *out = *skv_sampling_field(k);
        out->offset += AT(sampling);
        out->initial = NULL; /* the server's */
        if (i-- == 0) return true;
    }
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if ((rows[k].apis & (unsigned)api) == 0) continue;
        *out = rows[k].field;
        if (i-- == 0) return true;
    }
    return false;
}

static skv_status read_value(const skv_field *field, const json_t *value, void *out, skv_error *err)
{
    unsigned char *at = (unsigned char *)out + field->offset;
    if (field->kind == SKV_FIELD_FLAG) {
        SKV_REQUIRE(json_is_boolean(value), err, SKV_ARGUMENT, "%s: %s is not true or false",
                    field->name, json_show(value).text);
        memcpy(at, &(bool){json_is_true(value)}, sizeof(bool));
        return SKV_OK;
    }
    if (field->kind == SKV_FIELD_SEED && json_is_integer(value)) {
        memcpy(at, &(uint64_t){(uint64_t)json_integer_value(value)}, sizeof(uint64_t));
        return SKV_OK;
    }
    if (field->kind == SKV_FIELD_CHOICE && json_is_string(value) &&
        strlen(json_string_value(value)) == json_string_length(value)) {
        return skv_field_parse(field, json_string_value(value), out, err);
    }
    if (field->kind == SKV_FIELD_CHOICE || field->kind == SKV_FIELD_SEED ||
        !json_is_number(value)) {
        return skv_field_mismatch(field, json_show(value).text, err);
    }
    return skv_field_set(field, json_number_value(value), out, err);
}

static bool read_fields(const exchange *ex, const json_t *body, param_api api, request_params *out,
                        api_error *error)
{
    skv_field field;
    skv_error err = {0};
    for (size_t i = 0; field_at(api, i, &field); i++) {
        const json_t *value = json_body_get(body, field.name);
        skv_status status = SKV_OK;
        if (value) {
            status = read_value(&field, value, out, &err);
        } else if (field.initial) {
            status = skv_field_parse(&field, field.initial, out, &err);
        }
        if (status != SKV_OK) return api_fail(error, 400, field.name, "%s", err.text);
    }
    out->seed_given = ex->server->options.seed_given || json_body_get(body, "seed");
    return true;
}

/* Whether a value is as good as absent. */
static bool changes_nothing(const refused_row *row, const json_t *value)
{
    if (row->neutral && json_is_number(value)) return json_number_value(value) == *row->neutral;
    return !value || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static bool check_refused(const json_t *body, param_api api, api_error *error)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const json_t *value = json_body_get(body, refused[i].name);
        if ((refused[i].apis & (unsigned)api) == 0 || changes_nothing(&refused[i], value)) continue;
        return api_fail(error, 400, refused[i].name, "%s: %s", refused[i].name, refused[i].why);
    }
    return true;
}

static bool add_stop(const json_t *value, request_params *out, api_error *error)
{
    const size_t n = json_string_length(value);
    if (!json_is_string(value) || n == 0 || n > PARAM_STOP_BYTES) {
        return api_refuse(error, "stop", "not a text of 1 to %d bytes", PARAM_STOP_BYTES);
    }
    if (out->n_stops == PARAM_STOPS_MAX) {
        return api_refuse(error, "stop", "more than %d texts", PARAM_STOPS_MAX);
    }
    out->stops[out->n_stops++] = (skv_text_piece){json_string_value(value), n};
    return true;
}

static bool read_stops(const json_t *body, request_params *out, api_error *error)
{
    const json_t *stop = json_body_get(body, "stop");
    if (!stop) return true;
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
    if (!ids) return true;
    if (!json_is_array(ids) || json_array_size(ids) > PARAM_STOP_IDS_MAX) {
        return api_refuse(error, "stop_token_ids", "not an array of at most %d token ids",
                          PARAM_STOP_IDS_MAX);
    }
    return json_body_ids(ex, ids, "stop_token_ids", &out->stop_ids, &out->n_stop_ids, error);
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
    /* The iterator wants a pointer that it does not write through. */
    json_t *map = json_object_get(body, "logit_bias");
    if (!map || json_is_null(map)) return true;
    if (!json_is_object(map) || json_object_size(map) > PARAM_BIASES_MAX) {
        return api_refuse(error, "logit_bias", "not an object of at most %d token ids",
                          PARAM_BIASES_MAX);
    }
    out->biases = calloc(json_object_size(map) + 1, sizeof *out->biases);
    if (!out->biases) return api_fail(error, 503, NULL, "no memory");
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        if (read_bias(key, value, skv_engine_vocab(ex->model->engine),
                      &out->biases[out->n_biases++])) {
            continue;
        }
        return api_refuse(error, "logit_bias",
                          "\"%.40s\" is not a token id with a number from -100 to 100", key);
    }
    return true;
}

static bool resolve_method(const exchange *ex, request_params *out, api_error *error)
{
    static const skv_prefill methods[] = {SKV_PREFILL_AUTO, SKV_PREFILL_FULL, SKV_PREFILL_TEACHER};
    out->prefill = methods[out->i_method];
    skv_error err = {0};
    const skv_engine *engine = ex->model->engine;
    if (skv_engine_check(engine, SKV_WHERE_SEQUENCE, out->prefill, NULL, &err) == SKV_OK) {
        return true;
    }
    return api_refuse(error, "swiftkv", "%s", err.text);
}

static void put_adapter(request_params *out, const char *name, double scale)
{
    out->adapters[out->n_adapters++] = (skv_adapter_use){name, (float)scale};
}

/* The adapter of a name; whether there is one. */
static bool put_named(const skv_engine *engine, const json_t *name, request_params *out)
{
    for (size_t i = 0; skv_engine_adapter(engine, i); i++) {
        if (!json_text_is(name, skv_engine_adapter(engine, i))) continue;
        put_adapter(out, skv_engine_adapter(engine, i), 1);
        return true;
    }
    return false;
}

/* llama-server's form: {"id": place in --lora, "scale": s}. */
static bool put_scaled(const skv_engine *engine, const json_t *entry, request_params *out,
                       api_error *error)
{
    const json_t *id = json_object_get(entry, "id"), *number = json_object_get(entry, "scale");
    size_t n = 0;
    while (skv_engine_adapter(engine, n)) n++;
    if (n == 0) return api_refuse(error, "lora", "the server has no adapters (serve --lora)");
    const json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
    const double scale = json_is_number(number) ? json_number_value(number) : number ? HUGE_VAL : 1;
    if (i < 0 || (size_t)i >= n || !(fabs(scale) <= (double)LORA_SCALE_MAX)) {
        return api_refuse(error, "lora",
                          "%s, expected {\"id\": 0 to %zu, \"scale\": a number up to %d}",
                          json_show(entry).text, n - 1, LORA_SCALE_MAX);
    }
    const char *name = skv_engine_adapter(engine, (size_t)i);
    for (size_t j = 0; j < out->n_adapters; j++) {
        if (strcmp(out->adapters[j].name, name) != 0) continue;
        return api_refuse(error, "lora", "id %zu comes twice", (size_t)i);
    }
    if (scale != 0) put_adapter(out, name, scale);
    return true;
}

/* "lora", or a "model" that is the name of an adapter. */
static bool resolve_adapters(const exchange *ex, const json_t *body, request_params *out,
                             api_error *error)
{
    const skv_engine *engine = ex->model->engine;
    const json_t *lora = json_object_get(body, "lora");
    if (!lora || json_is_null(lora) || (json_is_array(lora) && json_array_size(lora) == 0)) {
        (void)put_named(engine, json_body_get(body, "model"), out);
        return true;
    }
    if (!json_is_array(lora)) {
        return put_named(engine, lora, out) ||
               api_refuse(error, "lora", "%s is not the name of an adapter (serve --lora)",
                          json_show(lora).text);
    }
    if (json_array_size(lora) > SKV_ADAPTERS_TOGETHER) {
        return api_refuse(error, "lora", "%zu adapters, at most %d", json_array_size(lora),
                          SKV_ADAPTERS_TOGETHER);
    }
    for (size_t i = 0; i < json_array_size(lora); i++) {
        if (!put_scaled(engine, json_array_get(lora, i), out, error)) return false;
    }
    return true;
}

/* {"capacity": C, "window": w, "kernel": k, "pooling": "max"|"avg"} as "snapkv:C,w,k,max". */
static bool write_snapkv(const json_t *object, char text[SKV_EVICTION_TEXT], api_error *error)
{
    static const char *const numbers[] = {"capacity", "window", "kernel"};
    int n = snprintf(text, SKV_EVICTION_TEXT, "snapkv:");
    size_t n_known = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = json_object_get(object, numbers[i]);
        if (!value && i > 0) break;
        if (!json_is_integer(value)) {
            return api_fail(error, 400, "snapkv", "snapkv.%s: %s is not a whole number", numbers[i],
                            json_show(value).text);
        }
        n += snprintf(text + n, SKV_EVICTION_TEXT - (size_t)n, "%s%lld", i > 0 ? "," : "",
                      (long long)json_integer_value(value));
        n_known++;
    }
    const json_t *pooling = json_object_get(object, "pooling");
    if (pooling) {
        const char *word = json_text_is(pooling, "max")   ? "max"
                           : json_text_is(pooling, "avg") ? "avg"
                                                          : NULL;
        if (!word) {
            return api_refuse(error, "snapkv", "pooling '%s' is not max or avg",
                              json_show(pooling).text);
        }
        (void)snprintf(text + n, SKV_EVICTION_TEXT - (size_t)n, ",%s", word);
        n_known++;
    }
    if (n_known == json_object_size(object)) return true;
    return api_refuse(error, "snapkv",
                      "an object of capacity, window (needs capacity), kernel (needs window) and "
                      "pooling, and no more");
}

/* "evict": any method as text; "snapkv": that one as an object. */
static bool read_eviction(const exchange *ex, const json_t *body, request_params *out,
                          api_error *error)
{
    const json_t *evict = json_body_get(body, "evict"), *snapkv = json_body_get(body, "snapkv");
    const char *name = evict ? "evict" : "snapkv";
    char text[SKV_EVICTION_TEXT] = "";
    if (!evict && !snapkv) return true;
    if (evict && snapkv) return api_refuse(error, "evict", "excludes snapkv");
    if (evict ? !json_is_string(evict) : !json_is_object(snapkv)) {
        return api_refuse(error, name, "not %s", evict ? "a text" : "an object");
    }
    if (snapkv && !write_snapkv(snapkv, text, error)) return false;
    if (evict && !json_text_whole(evict, "evict", error)) return false;
    skv_error err = {0};
    const char *how = evict ? json_string_value(evict) : text;
    if (skv_eviction_parse(how, &out->eviction, &err) != SKV_OK ||
        skv_engine_check(ex->model->engine, SKV_WHERE_SERVE, SKV_PREFILL_AUTO, &out->eviction,
                         &err) != SKV_OK) {
        return api_refuse(error, name, "%s", err.text);
    }
    out->eviction_given = true;
    return true;
}

static bool read_stream_options(const json_t *body, request_params *out, api_error *error)
{
    const json_t *options = json_body_get(body, "stream_options");
    if (!options) return true;
    if (!json_is_object(options)) return api_refuse(error, "stream_options", "not an object");
    return json_body_flag(options, "include_usage", &out->include_usage, error) &&
           json_body_flag(options, "continuous_usage_stats", &out->continuous_usage, error);
}

bool request_check_min(int64_t min_tokens, int64_t max_tokens, api_error *error)
{
    if (min_tokens <= max_tokens) return true;
    return api_refuse(error, "min_tokens", "%lld, but the answer has at most %lld tokens",
                      (long long)min_tokens, (long long)max_tokens);
}

static bool check_together(param_api api, request_params *out, api_error *error)
{
    const int64_t most = out->max_tokens;
    out->keep_thoughts = out->i_reasoning == 2; /* "none" */
    if (most >= 0 && !request_check_min(out->min_tokens, most, error)) return false;
    if (api == PARAM_COMPLETIONS && out->logprobs >= 0) {
        out->wants_logprobs = true;
        out->n_top = (size_t)out->logprobs;
    }
    if (api == PARAM_CHAT && out->top_logprobs >= 0) {
        if (out->top_logprobs > 0 && !out->wants_logprobs) {
            return api_refuse(error, "top_logprobs", "needs logprobs: true");
        }
        out->n_top = (size_t)out->top_logprobs;
    }
    return true;
}

/* "speculate": the source of drafts, as text. */
static bool read_speculation(const json_t *body, request_params *out, api_error *error)
{
    skv_error err;
    const json_t *how = json_body_get(body, "speculate");
    if (!how) return true;
    if (!json_is_string(how)) return api_refuse(error, "speculate", "not a text");
    if (!json_text_whole(how, "speculate", error)) return false;
    if (skv_speculation_parse(json_string_value(how), &out->speculation, &err) != SKV_OK) {
        return api_refuse(error, "speculate", "%s", err.text);
    }
    out->speculation_given = true;
    return true;
}

/* Vectors are not made to be cut: a shorter one would mean something else. */
static bool resolve_embedding(const exchange *ex, request_params *out, api_error *error)
{
    static const skv_pooling poolings[] = {SKV_POOLING_LAST, SKV_POOLING_MEAN};
    const size_t D = skv_engine_hidden(ex->model->engine);
    out->max_tokens = 0;
    out->pooling = poolings[out->i_pooling];
    if (out->dimensions < 0 || (uint64_t)out->dimensions == D) return true;
    return api_refuse(error, "dimensions", "%lld, but the vectors of this model have %zu",
                      (long long)out->dimensions, D);
}

/* How long a whole prompt is wanted in the cache: cache_control (5m or 1h), prompt_cache_key and
 * prompt_cache_retention of OpenAI's interfaces. Their other members change nothing here. */
static void read_pin(const json_t *body, request_params *out)
{
    enum { SHORT = 300, DAY = 86400 };
    const json_t *mark = json_body_get(body, "cache_control");
    const json_t *key = json_body_get(body, "prompt_cache_key");
    const bool day = json_text_is(json_body_get(body, "prompt_cache_retention"), "24h");
    out->pin_seconds = prompt_mark_seconds(mark);
    if (!json_is_string(key) || json_string_length(key) == 0) return;
    out->pin_seconds = fmax(out->pin_seconds, day ? DAY : SHORT);
    out->pin_key = UINT64_C(0xcbf29ce484222325); /* FNV-1a: keys of one tenant are told apart */
    for (size_t i = 0; i < json_string_length(key); i++) {
        out->pin_key = (out->pin_key ^ (unsigned char)json_string_value(key)[i]) * 0x100000001b3;
    }
}

bool request_params_read(const exchange *ex, const json_t *body, param_api api, request_params *out,
                         api_error *error)
{
    *out = (request_params){.sampling = ex->model->sampling,
                            .n = 1,
                            .max_tokens = TOKENS_UNSAID,
                            .logprobs = -1,
                            .top_logprobs = -1,
                            .dimensions = -1};
    if (!read_fields(ex, body, api, out, error) || !resolve_method(ex, out, error) ||
        !resolve_adapters(ex, body, out, error)) {
        return false;
    }
    if (out->max_tokens == TOKENS_UNSAID) {
        out->max_tokens = -1;
    } else if (out->max_tokens < 0) {
        out->max_tokens = TOKENS_MAX;
    }
    read_pin(body, out);
    if (api == PARAM_EMBEDDINGS) return resolve_embedding(ex, out, error);
    return check_refused(body, api, error) && read_stops(body, out, error) &&
           read_stop_ids(ex, body, out, error) && read_biases(ex, body, out, error) &&
           read_eviction(ex, body, out, error) && read_speculation(body, out, error) &&
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

static json_t *describe_number(const skv_field *field)
{
    const bool whole = field->kind != SKV_FIELD_NUMBER;
    if (field->kind == SKV_FIELD_SEED) {
        return json_pack("{s:[s,s], s:I, s:I}", "type", "integer", "null", "minimum",
                         (json_int_t)INT64_MIN, "maximum", (json_int_t)INT64_MAX);
    }
    return json_pack("{s:[s,s], s:o, s:o}", "type", whole ? "integer" : "number", "null",
                     field->open_min ? "exclusiveMinimum" : "minimum",
                     whole ? json_integer((json_int_t)field->min) : json_real(field->min),
                     field->open_max ? "exclusiveMaximum" : "maximum",
                     whole ? json_integer((json_int_t)field->max) : json_real(field->max));
}

/* The default as JSON. */
static json_t *initial_value(const skv_field *field)
{
    double value = 0;
    if (field->kind == SKV_FIELD_CHOICE) return json_string(field->initial);
    if (field->kind == SKV_FIELD_FLAG) return json_boolean(strcmp(field->initial, "yes") == 0);
    (void)skv_number_parse(field->initial, &value);
    return field->kind == SKV_FIELD_NUMBER ? json_real(value) : json_integer((json_int_t)value);
}

/* null is as good as absent everywhere. */
static json_t *describe_field(const skv_field *field, const request_params *initial)
{
    json_t *out = field->kind == SKV_FIELD_CHOICE ? describe_choices(field->argument)
                  : field->kind == SKV_FIELD_FLAG
                      ? json_pack("{s:[s,s]}", "type", "boolean", "null")
                      : describe_number(field);
    if (field->help) (void)json_object_set_new(out, "description", json_string(field->help));
    if (field->initial) (void)json_object_set_new(out, "default", initial_value(field));
    const unsigned char *at = (const unsigned char *)initial + field->offset;
    double number;
    size_t size;
    if (field->offset < AT(sampling) + sizeof initial->sampling && !field->initial) {
        memcpy(&number, at, sizeof number);
        memcpy(&size, at, sizeof size);
        if (field->kind == SKV_FIELD_NUMBER) {
            (void)json_object_set_new(out, "default", json_real(number));
        } else if (field->kind == SKV_FIELD_INTEGER) {
            int64_t whole;
            memcpy(&whole, at, sizeof whole);
            (void)json_object_set_new(out, "default", json_integer(whole));
        } else if (field->kind == SKV_FIELD_SIZE) {
            (void)json_object_set_new(out, "default", json_integer((json_int_t)size));
        }
    }
    return out;
}

/* The two fields that say which rows of the prompt stay, and the one that names the source of
 * drafts. */
static bool describe_methods(json_t *properties)
{
    json_t *drafts = json_pack("{s:[s,s], s:s}", "type", "string", "null", "description",
                               "Who drafts tokens of the answer: \"auto[:K,P]\", \"text[:K]\", "
                               "\"self[:K,P]\", \"model[:K,P]\", \"mtp[:K,P]\", "
                               "\"text+self[:K,P]\", \"text+model[:K,P]\", "
                               "\"text+mtp[:K,P]\" or \"none\".");
    json_t *text =
        json_pack("{s:[s,s], s:s}", "type", "string", "null", "description",
                  "How to evict keys and values after the prompt: \"METHOD:C,...\" or \"none\".");
    json_t *whole = json_pack("{s:s, s:i}", "type", "integer", "minimum", 1);
    json_t *pooling = json_pack("{s:[s,s]}", "enum", "max", "avg");
    json_t *members = json_pack("{s:o, s:O, s:O, s:o}", "capacity", whole, "window", whole,
                                "kernel", whole, "pooling", pooling);
    json_t *object = json_pack("{s:[s,s], s:[s], s:b, s:o}", "type", "object", "null", "required",
                               "capacity", "additionalProperties", 0, "properties", members);
    return json_object_set_new(properties, "speculate", drafts) == 0 &&
           json_object_set_new(properties, "evict", text) == 0 &&
           json_object_set_new(properties, "snapkv", object) == 0;
}

bool request_params_describe(const skv_sampling *sampling, param_api api, json_t *properties)
{
    const request_params initial = {.sampling = *sampling};
    if (api != PARAM_EMBEDDINGS && !describe_methods(properties)) return false;
    skv_field field;
    for (size_t i = 0; field_at(api, i, &field); i++) {
        if (json_object_set_new(properties, field.name, describe_field(&field, &initial)) != 0)
            return false;
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if ((refused[i].apis & (unsigned)api) == 0) continue;
        json_t *empty =
            json_pack("{s:s, s:[n,b,s,[]]}", "description", refused[i].why, "enum", 0, "");
        if (refused[i].neutral) {
            (void)json_array_append_new(json_object_get(empty, "enum"),
                                        json_real(*refused[i].neutral));
        }
        if (json_object_set_new(properties, refused[i].name, empty) != 0) return false;
    }
    return true;
}

bool request_body_read(exchange *ex, json_t **out, api_error *error)
{
    if (!json_body_parse(ex, out, error)) return false;
    const json_t *name = json_body_get(*out, "model");
    if (ex->model) return true;
    if (name && !json_is_string(name)) return api_refuse(error, "model", "expected a string");
    const skv_text_piece text = {name ? json_string_value(name) : "", json_string_length(name)};
    ex->may_ping = ex->has_events && json_is_true(json_object_get(*out, "stream"));
    return model_take_named(ex, &text, error);
}

bool request_check_model(const exchange *ex, const json_t *body, api_error *error)
{
    const json_t *model = json_body_get(body, "model");
    if (!model) return true;
    if (!json_is_string(model)) return api_refuse(error, "model", "expected a string");
    const skv_text_piece asked = {json_string_value(model), json_string_length(model)};
    if (asked.n == 0 || models_find(ex->server, asked) == ex->model) return true;
    return models_lack(ex->server, asked, error);
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
    job.sampling = params->sampling;
    /* Clients read the seed as a signed number. */
    if (!params->seed_given) job.sampling.seed = server_draw(ex->server) >> 1;
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
    job.top_ids = params->top_ids;
    job.prompt_logprobs = params->echo && params->wants_logprobs;
    job.prefill = params->prefill;
    memcpy(job.adapters, params->adapters, sizeof job.adapters);
    job.n_adapters = params->n_adapters;
    if (params->eviction_given) job.eviction = &params->eviction;
    if (params->speculation_given) job.speculation = &params->speculation;
    job.pin_seconds = params->pin_seconds;
    job.pin_key = params->pin_key;
    job.pooling = params->pooling;
    job.stores = params->stores;
    if (ex->server->options.scheduler.readers) job.key = ex->key;
    job.tenant = ex->tenant;
    job.account = ex->share->account;
    if (ex->key) {
        job.salt = skv_scheduler_salt(ex->model->scheduler, ex->key, strlen(ex->key));
    }
    return job;
}
