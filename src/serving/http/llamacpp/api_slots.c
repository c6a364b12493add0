/*
 * POST /slots/ID?action=save|restore|erase, as llama-server has it: a slot's prompt and answer
 * (slots.h) go to a file of --slot-save-path, come back, or are forgotten. The file has token ids.
 * Restoring it is a prompt without an answer: the part that the prefix cache has in memory, on disk
 * or in a store is found there, and the rest is computed, so the rows are right in any case.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer/generation.h"
#include "answer/slots.h"
#include "llamacpp/slot_files.h"
#include "routes.h"

enum { FILE_MAX_BYTES = 256 << 20, VERSION = 1 };

typedef struct slot_request {
    exchange *ex;
    json_t *body; /* owned; NULL: none */
    size_t i;
    slot_file file; /* its filename is of the body */
} slot_request;

/* ---- files ---- */

static bool fail_restore(api_error *error)
{
    return api_fail(error, 400, "filename",
                    "Unable to restore slot, no available space in KV cache or invalid slot save "
                    "file");
}

/* The file's text, which the request's budget counts. */
static bool read_file(const slot_request *r, skv_buf *out, api_error *error)
{
    struct stat about;
    char piece[4096];
    const int fd = slot_file_open(r->ex, &r->file);
    ssize_t n = -1;
    if (fd < 0) return fail_restore(error);
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= FILE_MAX_BYTES) {
        while ((n = read(fd, piece, sizeof piece)) > 0) skv_buf_append(out, piece, (size_t)n);
    }
    (void)close(fd);
    if (n != 0 || (out->size == 0 && !out->failed)) return fail_restore(error);
    return !out->failed || request_lacks(r->ex, "filename", error);
}

/* ---- actions ---- */

static double ms_since(uint64_t begun_ns)
{
    return (double)(skv_now_ns() - begun_ns) * 1e-6;
}

static void begin_reply(const slot_request *r, skv_buf *out)
{
    skv_buf_printf(out, "{\"id_slot\":%zu,\"filename\":", r->i);
    out_json_str(out, r->file.filename);
}

static bool save(slot_request *r, skv_buf *out, api_error *error)
{
    size_t n;
    int32_t *ids;
    const uint64_t begun_ns = skv_now_ns();
    if (!slots_copy(r->ex, r->i, &ids, &n, error)) return false;
    skv_buf text = request_text(r->ex);
    skv_buf_printf(&text, "{\"swiftkv_slot\":%d,\"model\":", VERSION);
    out_json_str(&text, r->ex->model->name);
    skv_buf_text(&text, ",\"tokens\":[");
    for (size_t i = 0; i < n; i++) skv_buf_printf(&text, i > 0 ? ",%d" : "%d", ids[i]);
    skv_buf_text(&text, "]}\n");
    free(ids);
    bool ok = !text.failed || request_lacks(r->ex, "slot", error);
    ok = ok && slot_file_write(r->ex, &r->file, &text, error);
    if (ok) {
        begin_reply(r, out);
        skv_buf_printf(out, ",\"n_saved\":%zu,\"n_written\":%zu,\"timings\":{\"save_ms\":%.3f}}", n,
                       text.size, ms_since(begun_ns));
    }
    skv_buf_release(&text);
    return ok;
}

/* The ids of a file of this model, as a prompt. */
static bool read_ids(const slot_request *r, const skv_buf *text, prompt_list *out, api_error *error)
{
    json_t *file = NULL;
    json_error_t problem;
    const exchange *ex = r->ex;
    const json_place place = {.name = "slot", .text = {text->data, text->size}};
    const json_reading reading = json_text_read(ex, &place, &file, &problem, error);
    if (reading == JSON_READ_REFUSED) return false;
    const json_t *tokens = json_object_get(file, "tokens");
    bool ok = json_integer_value(json_object_get(file, "swiftkv_slot")) == VERSION &&
              json_text_is(json_object_get(file, "model"), ex->model->name) &&
              json_array_size(tokens) > 0;
    if (!ok) (void)fail_restore(error);
    ok = ok && prompts_create(ex, 1, out, error);
    if (ok) {
        out->n = 1;
        ok = json_body_ids(ex, tokens, "tokens", &out->at[0].ids, &out->at[0].n_ids, error);
    }
    json_decref(file);
    return ok;
}

static void take_nothing(void *user, size_t i_prompt, const skv_output *o)
{
    (void)user, (void)i_prompt, (void)o;
}

static bool restore_ids(const slot_request *r, const prompt_list *prompts, api_error *error)
{
    const request_params params = {.n = 1, .sampling = skv_sampling_default()};
    generation g = {.wake = {-1, -1}};
    const bool ok = generation_start(&g, r->ex, prompts, &params, 0, error) &&
                    generation_gather(&g, take_nothing, NULL, error);
    generation_release(&g);
    return ok;
}

static bool restore(slot_request *r, skv_buf *out, api_error *error)
{
    prompt_list prompts = {0};
    const uint64_t begun_ns = skv_now_ns();
    skv_buf text = request_text(r->ex);
    const bool ok = read_file(r, &text, error) && read_ids(r, &text, &prompts, error) &&
                    restore_ids(r, &prompts, error);
    if (ok) {
        const skv_id_piece ids = {prompts.at[0].ids, prompts.at[0].n_ids};
        slots_put(r->ex, r->i, ids, (skv_id_piece){NULL, 0});
        begin_reply(r, out);
        skv_buf_printf(out, ",\"n_restored\":%zu,\"n_read\":%zu,\"timings\":{\"restore_ms\":%.3f}}",
                       ids.n, text.size, ms_since(begun_ns));
    }
    prompts_release(&prompts);
    skv_buf_release(&text);
    return ok;
}

static bool erase(slot_request *r, skv_buf *out, api_error *error)
{
    (void)error;
    skv_buf_printf(out, "{\"id_slot\":%zu,\"n_erased\":%zu}", r->i, slots_erase(r->ex, r->i));
    return true;
}

/* ---- the request ---- */

static bool read_number(slot_request *r, api_error *error)
{
    const char *number = strrchr(r->ex->path, '/') + 1;
    const size_t n_slots = r->ex->server->options.scheduler.max_running;
    char *end;
    const unsigned long i = strtoul(number, &end, 10);
    if (number[0] < '0' || number[0] > '9' || *end || i >= n_slots) {
        return api_fail(error, 400, "id_slot", "Invalid slot ID");
    }
    r->i = (size_t)i;
    return true;
}

static bool answer_slot(slot_request *r, skv_buf *out, api_error *error)
{
    static const struct {
        const char *name;
        bool needs_file;
        bool (*act)(slot_request *r, skv_buf *out, api_error *error);
    } actions[] = {{"save", true, save}, {"restore", true, restore}, {"erase", false, erase}};
    exchange *ex = r->ex;
    if (!ex->server->slots) {
        return api_fail(error, 501, NULL,
                        "This server does not support slots action. Start it with "
                        "`--slot-save-path`");
    }
    if (ex->n_body > 0 && !request_body_read(ex, &r->body, error)) return false;
    if (!ex->model && !model_take_named(ex, NULL, error)) return false;
    if (!read_number(r, error)) return false;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (!http_head_asks(ex->head, "action", actions[i].name)) continue;
        if (actions[i].needs_file &&
            !slot_file_name(ex, json_body_get(r->body, "filename"), &r->file, error)) {
            return false;
        }
        return actions[i].act(r, out, error);
    }
    return api_fail(error, 400, "action", "Invalid action");
}

void api_slot(exchange *ex)
{
    slot_request r = {.ex = ex};
    api_error error;
    skv_buf out = exchange_text(ex);
    if (answer_slot(&r, &out, &error)) {
        exchange_reply_json(ex, 200, &out);
    } else {
        skv_buf_release(&out);
        exchange_refuse(ex, &error);
    }
    json_decref(r.body);
}
