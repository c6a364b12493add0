/* /api/tags, /api/show, /api/ps and /api/version: Ollama's endpoints about models. */
#include <nettle/sha2.h>
#include <string.h>

#include "request/request_input.h"
#include "routes.h"
#include "skv/tools.h"

/* "1.2B", "135M" */
static void write_count(skv_buf *out, uint64_t n)
{
    const bool billions = n >= 1000000000;
    skv_buf_printf(out, "\"%.*f%c\"",
                   billions       ? 1
                   : n < 10000000 ? 2
                                  : 0,
                   (double)n / (billions ? 1e9 : 1e6), billions ? 'B' : 'M');
}

/* The model's weights are not read again for this: the digest is of its name and shape. */
static void write_digest(const server_model *served, skv_buf *out)
{
    const skv_model_info *model = served->info;
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, strlen(served->name), (const uint8_t *)served->name);
    sha256_update(&sha, strlen(model->architecture), (const uint8_t *)model->architecture);
    sha256_update(&sha, sizeof model->parameters, (const uint8_t *)&model->parameters);
    sha256_digest(&sha, sizeof digest, digest);
    skv_buf_text(out, "\"");
    for (size_t i = 0; i < sizeof digest; i++) skv_buf_printf(out, "%02x", digest[i]);
    skv_buf_text(out, "\"");
}

static void write_details(const server_model *served, skv_buf *out)
{
    const skv_model_info *model = served->info;
    skv_buf_text(out, "\"details\":{\"parent_model\":\"\",\"format\":\"\",\"family\":");
    out_json_str(out, model->architecture);
    skv_buf_text(out, ",\"families\":[");
    out_json_str(out, model->architecture);
    skv_buf_text(out, "],\"parameter_size\":");
    write_count(out, model->parameters);
    skv_buf_text(out, ",\"quantization_level\":");
    out_json_str(out, skv_weights_name(served->limits.weights));
    skv_buf_text(out, "}");
}

static void write_started(const http_server *server, skv_buf *out)
{
    out_time(out, &(struct timespec){.tv_sec = (time_t)server->started_s}, 0);
}

/* A model as lists of models have it, without the last brace. */
static void write_entry(const server_model *served, skv_text_piece name, skv_buf *out)
{
    skv_buf_text(out, "{\"name\":");
    out_json(out, name.text, name.n);
    skv_buf_text(out, ",\"model\":");
    out_json(out, name.text, name.n);
    skv_buf_printf(out, ",\"size\":%zu,\"digest\":", served->limits.weight_bytes);
    write_digest(served, out);
    skv_buf_text(out, ",");
    write_details(served, out);
}

/* GET /api/tags: the models under each of their names. */
void api_ollama_tags(exchange *ex)
{
    const http_server *server = ex->server;
    skv_text_piece name;
    bool first = true;
    skv_buf out = exchange_text(ex);
    skv_buf_text(&out, "{\"models\":[");
    for (size_t i = 0; i < server->n_models; i++) {
        for (const char *at = server->models[i].names; server_list_next(&at, &name);) {
            if (!first) skv_buf_text(&out, ",");
            first = false;
            write_entry(&server->models[i], name, &out);
            skv_buf_text(&out, ",\"modified_at\":");
            write_started(server, &out);
            skv_buf_text(&out, "}");
        }
    }
    skv_buf_text(&out, "]}");
    exchange_reply_json(ex, 200, &out);
}

/* GET /api/ps: those that are loaded, which may stay until the server ends. */
void api_ollama_ps(exchange *ex)
{
    static const struct timespec never = {.tv_sec = 253402300799}; /* the end of the year 9999 */
    http_server *server = ex->server;
    bool first = true;
    skv_buf out = exchange_text(ex);
    skv_buf_text(&out, "{\"models\":[");
    for (size_t i = 0; i < server->n_models; i++) {
        const server_model *model = &server->models[i];
        if (strcmp(model_state_name(server, model), "loaded") != 0) continue;
        if (!first) skv_buf_text(&out, ",");
        first = false;
        write_entry(model, (skv_text_piece){model->name, strlen(model->name)}, &out);
        skv_buf_printf(
            &out, ",\"size_vram\":0,\"context_length\":%zu,\"expires_at\":", model->limits.context);
        out_time(&out, &never, 0);
        skv_buf_text(&out, "}");
    }
    skv_buf_text(&out, "]}");
    exchange_reply_json(ex, 200, &out);
}

void api_ollama_version(exchange *ex)
{
    skv_buf out = exchange_text(ex);
    skv_buf_printf(&out, "{\"version\":\"%d.%d.%d\"}", SKV_VERSION_MAJOR, SKV_VERSION_MINOR,
                   SKV_VERSION_PATCH);
    exchange_reply_json(ex, 200, &out);
}

/* The model's capabilities, for clients that choose by them. */
static void write_capabilities(const server_model *model, skv_buf *out)
{
    skv_buf_text(out, "\"capabilities\":[\"completion\",\"embedding\"");
    if (model->reply_format.calls != SKV_CALLS_NONE) skv_buf_text(out, ",\"tools\"");
    if (model->reply_format.thinks) skv_buf_text(out, ",\"thinking\"");
    skv_buf_text(out, "]");
}

static void write_shape(const server_model *model, skv_buf *out)
{
    const skv_model_info *m = model->info;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"context_length", model->limits.context},
                   {"embedding_length", m->hidden},
                   {"block_count", m->layers},
                   {"feed_forward_length", m->ffn},
                   {"attention.head_count", m->heads},
                   {"attention.head_count_kv", m->kv_heads},
                   {"vocab_size", m->vocab}};
    skv_buf_text(out, "\"model_info\":{\"general.architecture\":");
    out_json_str(out, m->architecture);
    skv_buf_printf(out, ",\"general.parameter_count\":%llu", (unsigned long long)m->parameters);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        skv_buf_printf(out, ",\"%s.%s\":%llu", m->architecture, numbers[i].name,
                       (unsigned long long)numbers[i].value);
    }
    skv_buf_text(out, "}");
}

/* POST /api/show */
void api_ollama_show(exchange *ex)
{
    const http_server *server = ex->server;
    json_t *body = NULL;
    api_error error;
    if (!request_body_read(ex, &body, &error) || !request_check_model(ex, body, &error)) {
        exchange_refuse(ex, &error);
    } else {
        skv_buf out = exchange_text(ex);
        skv_buf_text(&out,
                     "{\"modelfile\":\"\",\"parameters\":\"\",\"license\":\"\",\"template\":");
        const bool own = ex->model->template_text && !ex->model->guesses_template;
        out_json_str(&out, own ? ex->model->template_text : "");
        skv_buf_text(&out, ",\"modified_at\":");
        write_started(server, &out);
        skv_buf_text(&out, ",");
        write_details(ex->model, &out);
        skv_buf_text(&out, ",");
        write_shape(ex->model, &out);
        skv_buf_text(&out, ",");
        write_capabilities(ex->model, &out);
        skv_buf_text(&out, "}");
        exchange_reply_json(ex, 200, &out);
    }
    json_decref(body);
}
