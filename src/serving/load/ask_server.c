/* Questions to a server before the load begins. */

#include "common/json_out.h"
#include "load.h"
#include "load_http.h"

enum { REPLY_BYTES_MAX = 16 << 20, TEXT_ASKED = 16 << 10, VOCAB_UNKNOWN = 1000 };
static const double ASK_SECONDS = 30, BYTES_UNKNOWN = 4;

static bool collect(load_call *call, const char *bytes, size_t n)
{
    skv_buf *reply = call->user;
    return skv_buf_append(reply, bytes, n);
}

/* The object that the server answers, NULL where there is none; `call` tells why. */
static json_t *ask(load_http *http, const char *path, const skv_buf *body, load_call *call)
{
    skv_buf reply;
    json_t *object = NULL;
    skv_buf_init(&reply, REPLY_BYTES_MAX);
    *call = (load_call){.path = path,
                        .body = body ? body->data : NULL,
                        .n_body = body ? body->size : 0,
                        .timeout_seconds = ASK_SECONDS,
                        .on_data = collect,
                        .user = &reply};
    if (load_http_ask(http, call)) object = json_loadb(reply.data, reply.size, 0, NULL);
    skv_buf_release(&reply);
    return object;
}

static bool ask_model(load_http *http, const char *url, char *name, size_t room, char *error)
{
    load_call call;
    json_t *models = ask(http, "/v1/models", NULL, &call);
    const json_t *first = json_array_get(json_object_get(models, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    if (id) {
        (void)snprintf(name, room, "%s", id);
    } else if (call.status != 0) {
        (void)snprintf(error, LOAD_ERROR_MAX, "%.200s/v1/models: status %d: %.200s", url,
                       call.status, call.detail);
    } else {
        (void)snprintf(error, LOAD_ERROR_MAX, "%.200s: %.200s", url, call.detail);
    }
    json_decref(models);
    return id;
}

static size_t ask_vocab(load_http *http)
{
    load_call call;
    json_t *info = ask(http, "/tokenizer_info", NULL, &call);
    const json_int_t n = json_integer_value(json_object_get(info, "vocab_size"));
    json_decref(info);
    return n > 0 ? (size_t)n : VOCAB_UNKNOWN;
}

/* Measured on the text's beginning, where the server has a tokenizer to ask. */
static double ask_bytes_per_token(load_http *http, const load_options *o)
{
    const size_t n = o->n_text < TEXT_ASKED ? o->n_text : TEXT_ASKED;
    skv_buf body;
    load_call call;
    skv_buf_init(&body, REPLY_BYTES_MAX);
    (void)skv_buf_text(&body, "{\"model\":");
    skv_buf_json_str(&body, o->model);
    (void)skv_buf_text(&body, ",\"prompt\":");
    skv_buf_json(&body, o->text, n);
    (void)skv_buf_text(&body, "}");
    json_t *reply = body.failed ? NULL : ask(http, "/tokenize", &body, &call);
    const json_int_t count = json_integer_value(json_object_get(reply, "count"));
    json_decref(reply);
    skv_buf_release(&body);
    return count > 0 ? (double)n / (double)count : BYTES_UNKNOWN;
}

bool load_ask_server(load_options *options, char *name, size_t name_room, char *error)
{
    load_http *http = NULL;
    if (!load_http_create(options->url, options->key, 1, &http, error)) return false;
    bool ok = true;
    if (!options->model) {
        ok = ask_model(http, options->url, name, name_room, error);
        options->model = name;
    }
    if (ok && !options->text && options->vocab == 0) options->vocab = ask_vocab(http);
    if (ok && options->text && options->bytes_per_token <= 0) {
        options->bytes_per_token = ask_bytes_per_token(http, options);
    }
    load_http_free(http);
    return ok;
}
