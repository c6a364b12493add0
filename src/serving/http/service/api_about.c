/* Endpoints about the server itself: the page, /openapi.json, the model and its health. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/sampling_fields.h"
#include "request/request_input.h"
#include "routes.h"

/* Files that CMakeLists.txt puts into the program. */
extern const unsigned char page_html[];
extern const size_t page_html_bytes;
extern const unsigned char openapi_json[];
extern const size_t openapi_json_bytes;
/* Content-Security-Policy: the page's own style and script, requests to this server alone. */
extern const char page_policy[];

/* GET /: the page for people. It holds no secrets, so it needs no key; the endpoints that it
 * calls do. */
void api_page(exchange *ex)
{
    static const char *const headers[][2] = {{"Content-Security-Policy", page_policy},
                                             {"Referrer-Policy", "no-referrer"}};
    exchange_response response = {
        200,   "text/html; charset=utf-8", (const char *)page_html, page_html_bytes,
        false, {.max = LIMIT_TEXT_BYTES}};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        skv_buf_printf(&response.fields, "%s: %s\r\n", headers[i][0], headers[i][1]);
    }
    (void)exchange_send(ex, &response);
}

/* The model that runs: `limits` are those of the engine while the model is loaded. */
static void write_facts(const skv_engine_stats *l, skv_buf *out)
{
    skv_buf_printf(out,
                   ",\"weights\":\"%s\",\"weight_bytes\":%zu,\"kv\":\"%s\",\"kv_tokens\":%zu,"
                   "\"kv_bytes\":%zu,\"threads\":%zu,\"kernels\":\"%s\"",
                   skv_weights_name(l->weights), l->weight_bytes, skv_kv_name(l->kv), l->kv_tokens,
                   l->kv_bytes_max, l->threads, l->cpu);
}

/* A model under one of its names, in OpenAI's words, Anthropic's and, in `meta`, llama-server's. */
static void write_model(http_server *server, const server_model *model, skv_text_piece name,
                        skv_buf *out)
{
    const struct timespec started = {.tv_sec = (time_t)server->started_s};
    const char *state = model_state_name(server, model);
    const bool active = model->n_loads > 0 ? model->limits.swiftkv : model->info->swiftkv;
    skv_buf_text(out, "{\"id\":");
    out_json(out, name.text, name.n);
    skv_buf_text(out, ",\"display_name\":");
    out_json(out, name.text, name.n);
    skv_buf_printf(out, ",\"object\":\"model\",\"type\":\"model\",\"created\":%lld,\"created_at\":",
                   (long long)server->started_s);
    out_time(out, &started, 0);
    skv_buf_text(out, ",\"owned_by\":\"swiftkv\",\"root\":");
    out_json_str(out, model->name);
    const skv_model_info *info = model->info;
    skv_buf_printf(out,
                   ",\"parent\":null,\"max_model_len\":%zu,\"meta\":{\"n_vocab\":%zu,"
                   "\"n_ctx_train\":%zu,\"n_embd\":%zu,\"n_params\":%llu}",
                   model->limits.context, info->vocab, info->context, info->hidden,
                   (unsigned long long)info->parameters);
    skv_buf_printf(out, ",\"swiftkv\":{\"active\":%s,\"teacher\":%s,\"state\":\"%s\"",
                   active ? "true" : "false", model->limits.has_teacher ? "true" : "false", state);
    if (strcmp(state, "loaded") == 0) write_facts(&model->limits, out);
    skv_buf_text(out, "}}");
}

/* GET /v1/models: each model, once for each of its names. */
void api_models(exchange *ex)
{
    http_server *server = ex->server;
    skv_text_piece name, last = {"", 0};
    skv_buf out = exchange_text(ex);
    skv_buf_text(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < server->n_models; i++) {
        for (const char *at = server->models[i].names; server_list_next(&at, &name);) {
            if (last.n > 0) skv_buf_text(&out, ",");
            write_model(server, &server->models[i], name, &out);
            last = name;
        }
    }
    skv_buf_text(&out, "],\"has_more\":false,\"first_id\":");
    out_json_str(&out, server->models[0].name);
    skv_buf_text(&out, ",\"last_id\":");
    out_json(&out, last.text, last.n);
    skv_buf_text(&out, "}");
    exchange_reply_json(ex, 200, &out);
}

/* Of a hexadecimal digit; -1: it is none. */
static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != 0 ? strchr(digits, c) : NULL;
    return at ? (int)((at - digits) % 16) : -1;
}

/* %2F and its kin of a path, in place. */
static size_t decode_path(char *text)
{
    size_t n = 0;
    for (const char *at = text; *at; n++) {
        const int high = *at == '%' ? digit_of(at[1]) : -1;
        const int low = high >= 0 ? digit_of(at[2]) : -1;
        const bool coded = high >= 0 && low >= 0 && high + low > 0;
        text[n] = coded ? (char)(high * 16 + low) : *at;
        at += coded ? 3 : 1;
    }
    text[n] = 0;
    return n;
}

/* GET /v1/models/{model} */
void api_model(exchange *ex)
{
    static const char before[] = "/models/";
    char name[sizeof ex->path];
    (void)snprintf(name, sizeof name, "%s", strstr(ex->path, before) + sizeof before - 1);
    const size_t n = decode_path(name);
    const server_model *model = models_find(ex->server, (skv_text_piece){name, n});
    if (!model) {
        api_error error;
        (void)models_lack(ex->server, (skv_text_piece){name, n}, &error);
        exchange_refuse(ex, &error);
        return;
    }
    skv_buf out = exchange_text(ex);
    write_model(ex->server, model, (skv_text_piece){name, n}, &out);
    exchange_reply_json(ex, 200, &out);
}

static const char *state_of(exchange *ex)
{
    http_server *server = ex->server;
    switch (server_get_state(server)) {
    case SERVER_LOADING: return "loading";
    case SERVER_READY: break;
    default: return "draining";
    }
    return atomic_load(&server->dog.stalled) ? "stalled" : NULL;
}

/* ,"models":{"one":"loaded",...} */
static void write_states(http_server *server, skv_buf *out)
{
    skv_buf_text(out, ",\"models\":{");
    for (size_t i = 0; i < server->n_models; i++) {
        if (i > 0) skv_buf_text(out, ",");
        out_json_str(out, server->models[i].name);
        skv_buf_printf(out, ":\"%s\"", model_state_name(server, &server->models[i]));
    }
    skv_buf_text(out, "}");
}

/* GET /health: whether requests should be sent here. Never waits for the model. */
void api_health(exchange *ex)
{
    const char *state = state_of(ex);
    skv_buf out = {.max = LIMIT_TEXT_BYTES};
    skv_buf_printf(&out, "{\"status\":\"%s\"", state ? state : "ok");
    if (ex->server->n_models > 1) write_states(ex->server, &out);
    skv_buf_text(&out, "}");
    exchange_reply_json(ex, state ? 503 : 200, &out);
}

/*
 * ---- GET /openapi.json ----
 *
 * openapi.json is kept by hand; the fields of requests, their bounds and their refusals come from
 * the tables that check them, and a route without a description is marked
 * `x-undescribed` (a test looks for that).
 */

enum { FIELDS_BYTES = 1 << 18 /* of the fields that are filled in, as JSON */ };

/* Of "x-fields" in a schema: the fields of which requests belong to its properties; "x-only" may
 * name some of them, "sampling" being those of skv_sampling. */
static const struct {
    const char *name;
    param_api api;
} field_sets[] = {
    {"completions", PARAM_COMPLETIONS}, {"chat", PARAM_CHAT}, {"embeddings", PARAM_EMBEDDINGS}};

static json_t *member(json_t *object, const char *name)
{
    return json_object_get(object, name);
}

/* The answers of every operation, unless it lists others. */
static bool add_refusals(json_t *operation)
{
    json_t *responses = member(operation, "responses");
    static const char *const classes[] = {"4XX", "5XX"};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (member(responses, classes[i])) continue;
        json_t *ref = json_pack("{s:s}", "$ref", "#/components/responses/Refused");
        if (json_object_set_new(responses, classes[i], ref) != 0) return false;
    }
    return true;
}

static bool add_route(json_t *paths, const server_route *route)
{
    char method[16] = "";
    for (size_t i = 0; i + 1 < sizeof method && route->method[i] != 0; i++) {
        method[i] = (char)(route->method[i] | 0x20); /* small letters */
    }
    json_t *path = member(paths, route->path);
    if (!path) {
        path = json_object();
        if (json_object_set_new(paths, route->path, path) != 0) return false;
    }
    if (!member(path, method)) {
        json_t *unknown = json_pack("{s:b, s:{}}", "x-undescribed", 1, "responses");
        if (json_object_set_new(path, method, unknown) != 0) return false;
    }
    return add_refusals(member(path, method));
}

static bool is_of_sampling(const char *name)
{
    for (size_t i = 0; skv_sampling_field(i); i++) {
        if (strcmp(skv_sampling_field(i)->name, name) == 0) return true;
    }
    return false;
}

static bool is_wanted(const json_t *only, const char *name)
{
    for (size_t i = 0; i < json_array_size(only); i++) {
        const char *wanted = json_string_value(json_array_get(only, i));
        if (strcmp(wanted, name) == 0) return true;
        if (strcmp(wanted, "sampling") == 0 && is_of_sampling(name)) return true;
    }
    return !only;
}

static bool add_rows(const http_server *server, json_t *schema, param_api api)
{
    json_t *rows = json_object(), *row;
    const char *name;
    bool ok = request_params_describe(&server->models[0].sampling, api, rows);
    json_object_foreach(rows, name, row)
    {
        if (!is_wanted(member(schema, "x-only"), name)) continue;
        ok = ok && json_object_set(member(schema, "properties"), name, row) == 0;
    }
    json_decref(rows);
    return ok;
}

static bool add_fields(const http_server *server, json_t *schema)
{
    const char *name = json_string_value(member(schema, "x-fields"));
    if (!name) return true;
    for (size_t i = 0; i < sizeof field_sets / sizeof field_sets[0]; i++) {
        if (strcmp(field_sets[i].name, name) != 0) continue;
        if (!add_rows(server, schema, field_sets[i].api)) return false;
    }
    (void)json_object_del(schema, "x-only");
    return json_object_del(schema, "x-fields") == 0;
}

static bool complete(const http_server *server, json_t *doc)
{
    char version[48];
    (void)snprintf(version, sizeof version, "%d.%d.%d", SKV_VERSION_MAJOR, SKV_VERSION_MINOR,
                   SKV_VERSION_PATCH);
    bool ok = json_object_set_new(member(doc, "info"), "version", json_string(version)) == 0;
    for (const server_route *route = server->routes; ok && route->path; route++) {
        ok = add_route(member(doc, "paths"), route);
    }
    json_t *schemas = member(member(doc, "components"), "schemas"), *schema;
    const char *name;
    json_object_foreach(schemas, name, schema)
    {
        ok = ok && add_fields(server, schema);
    }
    /* Other names are a 404, which a schema has to say; "": as if it were absent. */
    const bool any = server_list_has(server->models[0].names, (skv_text_piece){"", 0});
    json_t *names = json_array();
    for (size_t i = 0; i < server->n_models; i++) {
        (void)json_array_append_new(names, json_string(server->models[i].name));
    }
    (void)json_array_append_new(names, json_string(""));
    (void)json_array_append_new(names, json_null());
    ok = ok && (any ? (json_decref(names), true)
                    : json_object_set_new(member(schemas, "Model"), "enum", names) == 0);
    if (!server->keys) return ok;
    json_t *either = json_pack("[{s:[]}, {s:[]}]", "bearer", "key");
    return ok && json_object_set_new(doc, "security", either) == 0;
}

void api_openapi(exchange *ex)
{
    const json_place place = {.name = "openapi",
                              .text = {(const char *)openapi_json, openapi_json_bytes}};
    json_error_t problem;
    json_t *doc = NULL;
    api_error error;
    skv_buf out = exchange_text(ex);
    (void)api_fail(&error, 503, NULL, "no memory");
    bool ok = request_hold(ex, FIELDS_BYTES, place.name, &error) &&
              json_text_read(ex, &place, &doc, &problem, &error) == JSON_READ;
    ok = ok && complete(ex->server, doc);
    if (ok) {
        out_json_value(&out, doc);
        json_decref(doc);
        exchange_reply_json(ex, 200, &out);
        return;
    }
    json_decref(doc);
    exchange_refuse(ex, &error);
}
