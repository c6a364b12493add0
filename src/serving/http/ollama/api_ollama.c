/*
 * POST /api/chat and /api/generate: Ollama's interface, for its clients. A stream is a line of JSON
 * for every piece of the answer, and streams are the default.
 */
#include "answer/api_answer.h"
#include "request/translate.h"
#include "routes.h"

/* {"model":...,"created_at":... */
static void write_head(const exchange *ex, skv_buf *out)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    skv_buf_text(out, "{\"model\":");
    out_json_str(out, ex->model->name);
    skv_buf_text(out, ",\"created_at\":");
    out_time(out, &now, 6);
}

/* JSON without line ends, which would end the line; inside its strings there are none. */
static void add_line(skv_buf *out, const skv_buf *json)
{
    for (size_t i = 0; i < json->size; i++) {
        const char c = json->data[i];
        skv_buf_byte(out, c == '\n' || c == '\r' ? ' ' : c);
    }
}

/* "tool_calls":[...] with those that are whole and new. */
static bool write_calls(skv_buf *out, reply_parts *parts)
{
    size_t n = 0, i_call = 0;
    for (size_t i = 0; i < parts->n; i++) {
        reply_part *part = &parts->at[i];
        if (part->kind != PART_CALL) continue;
        const size_t index = i_call++;
        if (!part->whole || part->begun) continue;
        skv_buf_text(out, n++ > 0 ? "," : ",\"tool_calls\":[");
        skv_buf_text(out, "{\"id\":");
        reply_part_call_id(part, "call_", out);
        skv_buf_printf(out, ",\"function\":{\"index\":%zu,\"name\":", index);
        out_json(out, part->name.data, part->name.size);
        skv_buf_text(out, ",\"arguments\":");
        add_line(out, &part->text);
        skv_buf_text(out, "}}");
        out->failed = out->failed || part->name.failed || part->text.failed;
        part->begun = true;
        part->n_told = part->text.size;
    }
    if (n > 0) skv_buf_text(out, "]");
    return n > 0;
}

/* The new part of the answer; false: there is none. */
static bool write_pieces(reply_parts *parts, const char *text_name, skv_buf *out)
{
    bool any = reply_parts_write(parts, PART_TEXT, text_name, out);
    if (!any) {
        skv_buf_text(out, text_name);
        skv_buf_text(out, "\"\"");
    }
    any |= reply_parts_write(parts, PART_THOUGHT, ",\"thinking\":", out);
    any |= write_calls(out, parts);
    /* The last part may grow, and a call that turns out to be none becomes text of the one before.
     */
    const reply_part *last = parts->n > 0 ? &parts->at[parts->n - 1] : NULL;
    const size_t n_open = !last ? 0 : last->kind == PART_CALL && !last->whole ? 2 : 1;
    parts->i_told = parts->n > n_open ? parts->n - n_open : 0;
    return any;
}

/* A chat's answer is a message, that to a prompt a text. */
static bool write_answer(answer *a, skv_buf *out)
{
    reply_parts *parts = &a->choices[0].parts;
    if (a->dialect->read_prompts != messages_read) {
        return write_pieces(parts, ",\"response\":", out);
    }
    skv_buf_text(out, ",\"message\":{\"role\":\"assistant\"");
    const bool any = write_pieces(parts, ",\"content\":", out);
    skv_buf_text(out, "}");
    return any;
}

/* Times are in nanoseconds. */
static void write_done(answer *a, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&a->g, &stats);
    write_head(a->ex, out);
    (void)write_answer(a, out);
    skv_buf_printf(out,
                   ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,"
                   "\"load_duration\":0,\"prompt_eval_count\":%zu,\"prompt_eval_duration\":%llu,"
                   "\"eval_count\":%zu,\"eval_duration\":%llu}",
                   answer_finish(a->choices[0].finish),
                   (unsigned long long)(skv_now_ns() - a->ex->begun_ns), stats.prompt_tokens,
                   (unsigned long long)stats.prefill_ns, stats.completion_tokens,
                   (unsigned long long)stats.decode_ns);
}

/* ---- lines ---- */

static void write_news(answer *a, skv_buf *out, size_t i)
{
    (void)i;
    const size_t begun = out->size;
    if (a->choices[0].ended) return; /* the last line tells the rest */
    write_head(a->ex, out);
    const bool any = write_answer(a, out);
    skv_buf_text(out, ",\"done\":false}\n");
    if (!any) out->size = begun;
}

static void write_quiet(answer *a, skv_buf *out)
{
    write_head(a->ex, out);
    (void)write_answer(a, out);
    skv_buf_text(out, ",\"done\":false}\n");
}

static void write_last(answer *a, skv_buf *out)
{
    write_done(a, out);
    skv_buf_text(out, "\n");
}

static void write_failed(answer *a, skv_buf *out, const api_error *error)
{
    api_error_write(out, error, ERRORS_OLLAMA, a->ex->id);
    skv_buf_text(out, "\n");
}

static const answer_shape shape = {.whole = write_done,
                                   .news = write_news,
                                   .quiet = write_quiet,
                                   .done = write_last,
                                   .failed = write_failed};

/* ---- requests that only load the model, which is loaded ---- */

static void write_loaded(const exchange *ex, const char *nothing, skv_buf *out)
{
    write_head(ex, out);
    skv_buf_printf(out, ",%s,\"done\":true,\"done_reason\":\"load\"}", nothing);
}

static bool loads_chat(exchange *ex, const json_t *asked, skv_buf *out)
{
    if (json_array_size(json_object_get(asked, "messages")) > 0) return false;
    write_loaded(ex, "\"message\":{\"role\":\"assistant\",\"content\":\"\"}", out);
    return true;
}

static bool loads_prompt(exchange *ex, const json_t *asked, skv_buf *out)
{
    const json_t *prompt = json_body_get(asked, "prompt");
    if (prompt && !json_text_is(prompt, "")) return false;
    write_loaded(ex, "\"response\":\"\"", out);
    return true;
}

/* ---- endpoints ---- */

/* A model without a template of its own continues the text. */
static bool read_prompt(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    const bool raw = json_is_true(json_object_get(body, "raw"));
    if (!raw && !ex->model->guesses_template) return messages_read(ex, body, out, error);
    if (!prompts_read(ex, body, "prompt", true, out, error)) return false;
    for (size_t i = 0; i < out->n; i++) out->at[i].continues = true;
    return true;
}

void api_ollama_chat(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .stream_type = "application/x-ndjson",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .whole_calls = true,
                                           .at_once = loads_chat,
                                           .translate = ollama_chat_translate,
                                           .shape = &shape,
                                           .read_prompts = messages_read};
    answer_handle(ex, &dialect);
}

void api_ollama_generate(exchange *ex)
{
    static const answer_dialect dialect = {.api = PARAM_CHAT,
                                           .stream_type = "application/x-ndjson",
                                           .default_tokens = SIZE_MAX,
                                           .in_parts = true,
                                           .whole_calls = true,
                                           .at_once = loads_prompt,
                                           .translate = ollama_prompt_translate,
                                           .shape = &shape,
                                           .read_prompts = read_prompt};
    answer_handle(ex, &dialect);
}
