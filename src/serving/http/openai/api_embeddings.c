/*
 * POST /v1/embeddings, and llama-server's and Ollama's kin: a vector for each text, of its
 * final hidden states. Every input is a job of the scheduler like any other request's prompt, and
 * takes its turn among them.
 */
#include <stdlib.h>
#include <string.h>

#include "answer/api_answer.h"
#include "routes.h"

struct embedding_request;

/* How an interface asks for vectors and is told them. */
typedef struct embedding_dialect {
    const char *input; /* the field with the texts */
    bool truncates;    /* texts longer than the context are cut, unless `truncate` is false */
    void (*write)(const struct embedding_request *r, skv_buf *out);
} embedding_dialect;

typedef struct embedding_request {
    const embedding_dialect *dialect;
    exchange *ex; /* borrowed */
    json_t *body; /* owned */
    request_params params;
    prompt_list inputs;
    generation g;
    float *vectors; /* owned, [inputs.n, D]: n_held bytes of the account */
    size_t D, n_held;
} embedding_request;

static bool truncate_inputs(embedding_request *r, api_error *error)
{
    const size_t context = r->ex->model->limits.context;
    bool truncates = true;
    if (!json_body_flag(r->body, "truncate", &truncates, error)) return false;
    for (size_t i = 0; truncates && i < r->inputs.n; i++) {
        if (r->inputs.at[i].n_ids <= context) continue;
        r->inputs.at[i].n_ids = context;
        r->inputs.at[i].is_cut = false;
    }
    return true;
}

static bool begin(embedding_request *r, api_error *error)
{
    exchange *ex = r->ex;
    if (!request_body_read(ex, &r->body, error) || !request_check_model(ex, r->body, error) ||
        !request_params_read(ex, r->body, PARAM_EMBEDDINGS, &r->params, error) ||
        !prompts_read(ex, r->body, r->dialect->input, ex->server->options.allow_special_text,
                      &r->inputs, error)) {
        return false;
    }
    if (r->dialect->truncates && !truncate_inputs(r, error)) return false;
    r->D = skv_engine_hidden(ex->model->engine);
    const size_t n_bytes = r->inputs.n * r->D * sizeof *r->vectors;
    if (!exchange_take(ex, n_bytes, error)) return false;
    r->n_held = n_bytes;
    r->vectors = calloc(r->inputs.n * r->D, sizeof *r->vectors);
    if (!r->vectors) return api_fail(error, 503, NULL, "no memory");
    return generation_start(&r->g, ex, &r->inputs, &r->params, 0, error);
}

static void take(void *user, size_t i, const skv_output *o)
{
    const embedding_request *r = user;
    if (o->kind != SKV_OUTPUT_VECTOR) return;
    memcpy(r->vectors + i * r->D, o->vector, r->D * sizeof *o->vector);
}

/* The numbers as f32, the lowest byte first, in base64. */
static void write_base64(skv_buf *out, const float *vector, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n_bytes = n * sizeof *vector;
    unsigned char bytes[3];
    skv_buf_text(out, "\"");
    for (size_t at = 0; at < n_bytes; at += 3) {
        const size_t some = n_bytes - at < 3 ? n_bytes - at : 3;
        for (size_t i = 0; i < 3; i++) {
            uint32_t bits = 0;
            if (i < some) memcpy(&bits, vector + (at + i) / 4, sizeof bits);
            bytes[i] = (unsigned char)(bits >> 8 * ((at + i) % 4));
        }
        const char four[4] = {digits[bytes[0] >> 2], digits[(bytes[0] & 3) << 4 | bytes[1] >> 4],
                              some > 1 ? digits[(bytes[1] & 15) << 2 | bytes[2] >> 6] : '=',
                              some > 2 ? digits[bytes[2] & 63] : '='};
        skv_buf_append(out, four, sizeof four);
    }
    skv_buf_text(out, "\"");
}

static void write_numbers(skv_buf *out, const float *vector, size_t n)
{
    skv_buf_text(out, "[");
    for (size_t i = 0; i < n; i++) skv_buf_printf(out, i > 0 ? ",%.9g" : "%.9g", (double)vector[i]);
    skv_buf_text(out, "]");
}

static void write_openai(const embedding_request *r, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&r->g, &stats);
    skv_buf_text(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < r->inputs.n; i++) {
        skv_buf_printf(
            out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i > 0 ? "," : "", i);
        (r->params.i_encoding == 1 ? write_base64 : write_numbers)(out, r->vectors + i * r->D,
                                                                   r->D);
        skv_buf_text(out, "}");
    }
    skv_buf_text(out, "],\"model\":");
    out_json_str(out, r->ex->model->name);
    skv_buf_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}}",
                   stats.prompt_tokens, stats.prompt_tokens, stats.cached_tokens);
}

/* Ollama's of several texts. */
static void write_vectors(const embedding_request *r, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&r->g, &stats);
    skv_buf_text(out, "{\"model\":");
    out_json_str(out, r->ex->model->name);
    skv_buf_text(out, ",\"embeddings\":[");
    for (size_t i = 0; i < r->inputs.n; i++) {
        if (i > 0) skv_buf_text(out, ",");
        write_numbers(out, r->vectors + i * r->D, r->D);
    }
    skv_buf_printf(out, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%zu}",
                   (unsigned long long)(skv_now_ns() - r->ex->begun_ns), stats.prompt_tokens);
}

/* Ollama's of one text. */
static void write_vector(const embedding_request *r, skv_buf *out)
{
    skv_buf_text(out, "{\"embedding\":");
    write_numbers(out, r->vectors, r->D);
    skv_buf_text(out, "}");
}

/* llama-server's: a list of vectors for each text. */
static void write_lists(const embedding_request *r, skv_buf *out)
{
    skv_buf_text(out, "[");
    for (size_t i = 0; i < r->inputs.n; i++) {
        skv_buf_printf(out, "%s{\"index\":%zu,\"embedding\":[", i > 0 ? "," : "", i);
        write_numbers(out, r->vectors + i * r->D, r->D);
        skv_buf_text(out, "]}");
    }
    skv_buf_text(out, "]");
}

static void embed(exchange *ex, const embedding_dialect *dialect)
{
    embedding_request r = {.dialect = dialect, .ex = ex, .g = {.wake = {-1, -1}}};
    api_error error;
    skv_buf out = exchange_text(ex);
    if (begin(&r, &error) && generation_gather(&r.g, take, &r, &error)) {
        dialect->write(&r, &out);
        exchange_reply_json(ex, 200, &out);
    } else {
        exchange_refuse(ex, &error);
    }
    generation_release(&r.g);
    prompts_release(&r.inputs);
    request_params_release(&r.params);
    free(r.vectors);
    exchange_give(ex, r.n_held);
    json_decref(r.body);
}

void api_embeddings(exchange *ex)
{
    static const embedding_dialect dialect = {"input", false, write_openai};
    embed(ex, &dialect);
}

void api_embedding(exchange *ex)
{
    static const embedding_dialect dialect = {"content", false, write_lists};
    embed(ex, &dialect);
}

void api_ollama_embed(exchange *ex)
{
    static const embedding_dialect dialect = {"input", true, write_vectors};
    embed(ex, &dialect);
}

void api_ollama_embedding(exchange *ex)
{
    static const embedding_dialect dialect = {"prompt", true, write_vector};
    embed(ex, &dialect);
}
