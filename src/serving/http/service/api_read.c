/*
 * POST /read, of servers that read prompts for others (--role read): a prompt's blocks go to the
 * shared store, and the response names each as soon as it is there. Each line is JSON:
 *
 *     {"tokens":2048}          at once
 *     {"block":"0f3c..."}      the next block is in the store, under this name
 *     {"read":1024}            tokens that were computed or known so far; also a sign of life
 *     {"done":true}            or {"error":"..."}
 *
 * The client may send the name that it has for the first block: a server with another model, key or
 * version learns at once that these blocks are of no use to it.
 */
#include <stdio.h>
#include <string.h>

#include "answer/api_answer.h"
#include "routes.h"

enum { NAME_DIGITS = 2 * SKV_CACHE_NAME_BYTES, BLOCKS_AT_ONCE = 128 };

static const double SIGN_SECONDS = 0.5; /* of life */

typedef struct read_request {
    exchange *ex; /* borrowed */
    json_t *body; /* owned */
    request_params params;
    prompt_list prompts;
    generation g;
    bool begun;
} read_request;

static void write_name(const uint8_t *name, char out[NAME_DIGITS + 1])
{
    for (size_t i = 0; i < SKV_CACHE_NAME_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", name[i]);
}

/* Whether the prompt's first block has the name that was sent, if one was. */
static bool check_block(read_request *r, api_error *error)
{
    const json_t *given = json_body_get(r->body, "block");
    uint8_t name[SKV_CACHE_NAME_BYTES];
    char text[NAME_DIGITS + 1];
    skv_error err;
    skv_job_params job = request_params_job(r->ex, &r->params);
    job.ids = r->prompts.at[0].ids;
    job.n_ids = r->prompts.at[0].n_ids;
    if (skv_scheduler_first_block(r->ex->model->scheduler, &job, name, &err) != SKV_OK) {
        return api_refuse(error, "prompt", "%s", err.text);
    }
    write_name(name, text);
    if (!given || json_text_is(given, text)) return true;
    return api_fail(error, 409, "block",
                    "block: %s here: another model, cache key, API key or version", text);
}

static bool read_fields(read_request *r, api_error *error)
{
    exchange *ex = r->ex;
    const json_t *method = json_body_get(r->body, "swiftkv");
    if (method && !json_text_is(method, "auto")) {
        return api_refuse(error, "swiftkv", "%s, and a reader has the method auto only",
                          json_show(method).text);
    }
    if (!prompts_read(ex, r->body, "prompt", true, &r->prompts, error)) return false;
    if (r->prompts.n > 1) return api_refuse(error, "prompt", "one at a time");
    r->params = (request_params){.n = 1, .sampling = skv_sampling_default(), .stores = true};
    return check_block(r, error);
}

static bool begin(read_request *r, api_error *error)
{
    exchange *ex = r->ex;
    return request_body_read(ex, &r->body, error) && request_check_model(ex, r->body, error) &&
           read_fields(r, error) && generation_start(&r->g, ex, &r->prompts, &r->params, 0, error);
}

static bool write_error(skv_buf *out, const char *text, size_t n)
{
    skv_buf_text(out, "{\"error\":");
    out_json(out, text, n);
    skv_buf_text(out, "}\n");
    return false;
}

/* False: it was the last. */
static bool write_output(skv_buf *out, const skv_output *o)
{
    api_error error;
    char text[NAME_DIGITS + 1];
    if (o->kind == SKV_OUTPUT_STORED) {
        write_name((const uint8_t *)o->text, text);
        skv_buf_printf(out, "{\"block\":\"%s\"}\n", text);
        return true;
    }
    if (o->kind != SKV_OUTPUT_END) return true;
    if (generation_output_failed(o, &error)) {
        return write_error(out, error.message, strlen(error.message));
    }
    skv_buf_text(out, "{\"done\":true}\n");
    return false;
}

static bool fill(void *state, skv_buf *out)
{
    read_request *r = state;
    skv_output o;
    size_t i_prompt;
    if (!r->begun) {
        r->begun = true;
        skv_buf_printf(out, "{\"tokens\":%zu}\n", r->prompts.at[0].n_ids);
        return true;
    }
    for (size_t n = 0; n < BLOCKS_AT_ONCE; n++) {
        skv_job_stats stats;
        switch (generation_next(&r->g, n > 0 ? 0 : SIGN_SECONDS, &i_prompt, &o)) {
        case GENERATION_OUTPUT:
            if (!write_output(out, &o)) return false;
            break;
        case GENERATION_QUIET:
            generation_stats(&r->g, &stats);
            if (n == 0) skv_buf_printf(out, "{\"read\":%zu}\n", stats.prefilled_tokens);
            return true;
        case GENERATION_DONE: return false;
        case GENERATION_GONE: return write_error(out, "cancelled", 9);
        case GENERATION_FAILED:
            return write_error(out, r->g.failure.message, strlen(r->g.failure.message));
        }
    }
    return true;
}

static void release(void *state)
{
    read_request *r = state;
    generation_release(&r->g);
    prompts_release(&r->prompts);
    request_params_release(&r->params);
    json_decref(r->body);
}

void api_read(exchange *ex)
{
    read_request r = {.ex = ex, .g = {.wake = {-1, -1}}};
    api_error error;
    if (begin(&r, &error)) {
        event_stream_send(ex, "application/x-ndjson", fill, release, &r);
        return;
    }
    exchange_refuse(ex, &error);
    release(&r);
}
