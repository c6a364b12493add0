/*
 * POST /completion and /infill, GET /props, /slots and /lora-adapters: llama-server's endpoints
 * beside OpenAI's interface, for editors and monitors that call them.
 */
#include <string.h>

#include "answer/api_answer.h"
#include "request/translate.h"
#include "routes.h"

enum { MEMBERS_MAX = 40 /* of an object of our own, above the size of any of them */ };

/* ---- settings ---- */

/* With ignore_eos, tokens that would end the answer are forbidden: null, for minus infinity. */
static void write_biases(const exchange *ex, const request_params *params, skv_buf *out)
{
    size_t n_eos = 0, n = 0;
    const int32_t *eos = skv_engine_eos(ex->model->engine, &n_eos);
    for (size_t i = 0; params && params->ignore_eos && i < n_eos; i++) {
        skv_buf_printf(out, "%s{\"bias\":null,\"token\":%d}", n++ > 0 ? "," : "", eos[i]);
    }
    for (size_t i = 0; params && i < params->n_biases; i++) {
        skv_buf_printf(out, "%s{\"bias\":%.9g,\"token\":%d}", n++ > 0 ? "," : "",
                       (double)params->biases[i].bias, params->biases[i].id);
    }
}

/* The settings of sampling, and the request's other fields. */
static void write_settings(const exchange *ex, const skv_sampling *s, const request_params *params,
                           skv_buf *out)
{
    skv_buf_printf(out, "{\"temperature\":%.9g,\"top_k\":%zu,\"top_p\":%.9g,\"min_p\":%.9g,",
                   s->temperature, s->top_k, s->top_p, s->min_p);
    skv_buf_printf(out,
                   "\"repeat_penalty\":%.9g,\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g,",
                   s->repetition_penalty, s->presence_penalty, s->frequency_penalty);
    skv_buf_printf(out, "\"seed\":%llu,\"n_predict\":%lld,\"max_tokens\":%lld,\"n_probs\":%zu,",
                   (unsigned long long)s->seed, (long long)(params ? params->max_tokens : -1),
                   (long long)(params ? params->max_tokens : -1), params ? params->n_top : 0);
    skv_buf_printf(out, "\"ignore_eos\":%s,\"stream\":%s,\"stop\":[",
                   params && params->ignore_eos ? "true" : "false",
                   !params || params->stream ? "true" : "false");
    for (size_t i = 0; params && i < params->n_stops; i++) {
        if (i > 0) skv_buf_text(out, ",");
        out_json(out, params->stops[i].text, params->stops[i].n);
    }
    skv_buf_text(out, "],\"logit_bias\":[");
    write_biases(ex, params, out);
    skv_buf_text(out, "]}");
}

/* ---- /completion ---- */

/* Ids stand in text_offset, log-probabilities in tokens. */
static void add_token(answer *a, api_choice *c, const skv_output *token)
{
    const char *comma = c->n_tokens++ > 0 ? "," : "";
    skv_buf_printf(&c->text_offset, "%s%d", comma, token->id);
    if (!a->params.wants_logprobs) return;
    skv_buf_text(&c->tokens, comma);
    answer_chat_logprob(a->ex, &c->tokens, token);
}

static bool returns_tokens(const answer *a)
{
    return a->params.stream || json_is_true(json_object_get(a->asked, "return_tokens"));
}

static size_t slot_of(const answer *a)
{
    return a->i_slot == SIZE_MAX ? 0 : a->i_slot;
}

/* {"index":...,"content":... without the last brace. */
static void write_front(answer *a, skv_buf *out, size_t i)
{
    api_choice *c = &a->choices[i];
    if (c->text.size > 0 && memchr(c->text.data, '\n', c->text.size)) c->has_line_end = true;
    skv_buf_printf(out, "{\"index\":%zu,\"content\":", i);
    out_json(out, c->text.data, c->text.size);
    skv_buf_text(out, ",\"tokens\":[");
    if (returns_tokens(a)) skv_buf_append(out, c->text_offset.data, c->text_offset.size);
    skv_buf_printf(out, "],\"id_slot\":%zu,\"stop\":%s", slot_of(a), c->ended ? "true" : "false");
    if (a->params.wants_logprobs && c->n_tokens > 0) {
        skv_buf_text(out, ",\"completion_probabilities\":[");
        skv_buf_append(out, c->tokens.data, c->tokens.size);
        skv_buf_text(out, "]");
    }
    out->failed = out->failed || c->text.failed || c->tokens.failed || c->text_offset.failed;
}

static const char *stop_type(const api_choice *c)
{
    if (c->finish == SKV_FINISH_LENGTH) return "limit";
    return c->stopped.size > 0 ? "word" : "eos";
}

static void write_counts(const skv_job_stats *stats, skv_buf *out)
{
    skv_buf_printf(out, ",\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu",
                   stats->completion_tokens, stats->prompt_tokens);
}

static void add_quoted(skv_buf *out, const char *text, size_t n)
{
    out_json_inside(out, text, n);
}

/* The prompt that the model got: the tokens that the server adds have their text too. */
static void write_prompt(const answer *a, size_t i_prompt, skv_buf *out)
{
    const api_prompt *prompt = &a->prompts.at[i_prompt];
    skv_buf_text(out, "\"");
    answer_ids_text(a->ex, (skv_id_piece){prompt->ids, prompt->n_ids}, true, add_quoted, out);
    skv_buf_text(out, "\"");
}

static void write_back(answer *a, skv_buf *out, size_t i)
{
    const api_choice *c = &a->choices[i];
    const size_t i_prompt = i / (size_t)a->params.n;
    skv_job_stats stats;
    generation_prompt_stats(&a->g, i_prompt, &stats);
    skv_buf_text(out, ",\"model\":");
    out_json_str(out, a->ex->model->name);
    write_counts(&stats, out);
    skv_buf_printf(out, ",\"tokens_cached\":%zu,\"truncated\":%s,\"stop_type\":\"%s\"",
                   stats.cached_tokens,
                   a->fitted && c->finish == SKV_FINISH_LENGTH ? "true" : "false", stop_type(c));
    skv_buf_printf(out,
                   ",\"has_new_line\":%s,\"stopping_word\":", c->has_line_end ? "true" : "false");
    out_json(out, c->stopped.size > 0 ? c->stopped.data : "", c->stopped.size);
    skv_buf_text(out, ",\"generation_settings\":");
    write_settings(a->ex, &a->g.job.sampling, &a->params, out);
    skv_buf_text(out, ",\"prompt\":");
    write_prompt(a, i_prompt, out);
    skv_buf_text(out, ",\"timings\":");
    answer_timings(out, &stats);
    skv_buf_text(out, "}");
}

/* ---- `response_fields`: pieces of the text that was written, which is never parsed as a whole
 * ---- */

/* The place after the text in quotation marks that begins at `at`. */
static const char *skip_text(const char *at)
{
    for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
    return *at ? at + 1 : at;
}

/* The place after the value that begins at `at`: JSON of our own, without blanks, ended by a
 * zero. */
static const char *skip_value(const char *at)
{
    size_t depth = 0;
    do {
        if (*at == '"') {
            at = skip_text(at);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
        while (depth == 0 && *at && !strchr(",]}", *at)) at++; /* of a number or a word */
    } while (depth > 0 && *at);
    return at;
}

/* A member of an object. */
typedef struct member {
    const char *name, *value, *end;
    size_t n_name;
} member;

/* The first members of the object that begins at `at`; 0: it has none, or is none. */
static size_t list_members(const char *at, member *out, size_t room)
{
    size_t n = 0;
    while (n < room && (*at == '{' || *at == ',') && at[1] == '"') {
        const char *value = skip_text(at + 1) + 1;
        out[n] = (member){.name = at + 2, .value = value, .end = skip_value(value)};
        out[n].n_name = (size_t)(value - out[n].name) - 2;
        at = out[n++].end;
    }
    return n;
}

/* The value that a path such as "timings/prompt_n" leads to, from one of the members on; NULL:
 * none. */
static const member *member_at(const member *members, size_t n, const char *path, member *inner)
{
    const size_t n_name = strcspn(path, "/");
    for (size_t i = 0; i < n; i++) {
        if (members[i].n_name != n_name || memcmp(members[i].name, path, n_name) != 0) continue;
        if (!path[n_name]) return &members[i];
        const size_t n_inner = list_members(members[i].value, inner, MEMBERS_MAX);
        const size_t n_last = strlen(path + n_name + 1);
        for (size_t k = 0; k < n_inner; k++) {
            const bool is_it =
                inner[k].n_name == n_last && memcmp(inner[k].name, path + n_name + 1, n_last) == 0;
            if (is_it) return &inner[k];
        }
        return NULL;
    }
    return NULL;
}

static bool is_listed_before(const json_t *fields, size_t i, const char *path)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(json_string_value(json_array_get(fields, k)), path) == 0) return true;
    }
    return false;
}

/* Only the values that `response_fields` lists, under the paths as they are listed. */
static void write_fields(const json_t *fields, const skv_buf *whole, skv_buf *out)
{
    const char *comma = "";
    member members[MEMBERS_MAX], inner[MEMBERS_MAX];
    const size_t n = list_members(whole->data, members, MEMBERS_MAX);
    skv_buf_text(out, "{");
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        const member *found = member_at(members, n, path, inner);
        if (!found || is_listed_before(fields, i, path)) continue;
        skv_buf_text(out, comma);
        out_json_str(out, path);
        skv_buf_text(out, ":");
        skv_buf_append(out, found->value, (size_t)(found->end - found->value));
        comma = ",";
    }
    skv_buf_text(out, "}");
}

/* An answer's last object. */
static void write_last(answer *a, skv_buf *out, size_t i)
{
    const json_t *fields = json_body_get(a->asked, "response_fields");
    if (json_array_size(fields) == 0) {
        write_front(a, out, i);
        write_back(a, out, i);
        return;
    }
    skv_buf whole = exchange_text(a->ex);
    write_front(a, &whole, i);
    write_back(a, &whole, i);
    if (!whole.failed) write_fields(fields, &whole, out);
    out->failed = out->failed || whole.failed;
    skv_buf_release(&whole);
}

static void write_whole(answer *a, skv_buf *out)
{
    write_last(a, out, 0);
}

static void write_news(answer *a, skv_buf *out, size_t i)
{
    api_choice *c = &a->choices[i];
    const bool ends = c->ended && !c->begun;
    if (c->text.size == 0 && c->n_tokens == 0 && !ends) return;
    skv_buf_text(out, "data: ");
    if (c->ended) {
        write_last(a, out, i);
    } else {
        skv_job_stats stats;
        write_front(a, out, i);
        generation_prompt_stats(&a->g, i / (size_t)a->params.n, &stats);
        write_counts(&stats, out);
        skv_buf_text(out, "}");
    }
    skv_buf_text(out, "\n\n");
    c->begun = c->ended;
    answer_clear_choice(c);
}

static void write_quiet(answer *a, skv_buf *out)
{
    (void)a;
    skv_buf_text(out, ": waiting\n\n");
}

/* The last event of each choice has told its end. */
static void write_done(answer *a, skv_buf *out)
{
    (void)a;
    (void)out;
}

static void write_failed(answer *a, skv_buf *out, const api_error *error)
{
    skv_buf_text(out, "data: ");
    errors_openai.write(out, error, a->ex->id);
    skv_buf_text(out, "\n\n");
}

/* The first one comes before anything was computed. */
static void write_progress(answer *a, skv_buf *out, const skv_job_stats *stats)
{
    skv_job_stats so_far = *stats;
    if (stats->prefilled_tokens <= stats->cached_tokens) so_far.prefill_ns = 0;
    so_far.completion_tokens = 0;
    so_far.decode_ns = 0;
    skv_buf_printf(out,
                   "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":%zu,"
                   "\"stop\":false,\"prompt_progress\":",
                   slot_of(a));
    answer_progress(out, &a->g, stats);
    skv_buf_text(out, ",\"timings\":");
    answer_timings(out, &so_far);
    skv_buf_text(out, "}\n\n");
}

static void open_list(answer *a, skv_buf *out)
{
    (void)a;
    skv_buf_text(out, "[");
}

static void close_list(answer *a, skv_buf *out)
{
    (void)a;
    skv_buf_text(out, "]");
}

static const answer_shape shape = {.whole = write_whole,
                                   .front = open_list,
                                   .element = write_last,
                                   .back = close_list,
                                   .repeats_asked = true,
                                   .news = write_news,
                                   .quiet = write_quiet,
                                   .done = write_done,
                                   .failed = write_failed,
                                   .progress = write_progress};

static bool read_prompts(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return prompts_read(ex, body, "prompt", true, out, error);
}

const answer_dialect dialect_completion = {.api = PARAM_COMPLETIONS,
                                           .default_tokens = SIZE_MAX,
                                           .every_token = true,
                                           .translate = llamacpp_translate,
                                           .shape = &shape,
                                           .read_prompts = read_prompts,
                                           .add_logprob = add_token};

const answer_dialect dialect_infill = {.api = PARAM_COMPLETIONS,
                                       .default_tokens = SIZE_MAX,
                                       .every_token = true,
                                       .translate = infill_translate,
                                       .shape = &shape,
                                       .read_prompts = read_prompts,
                                       .add_logprob = add_token};

/* ---- /props and /slots ---- */

static void write_token(const server_model *model, const char *name, int32_t id, skv_buf *out)
{
    char *text = NULL;
    size_t n = 0;
    const bool has =
        id >= 0 && model->vocab &&
        skv_vocab_decode(model->vocab, (skv_id_piece){&id, 1},
                         (skv_decode_options){.with_special = true}, &text, &n, NULL) == SKV_OK;
    skv_buf_printf(out, ",\"%s\":", name);
    out_json(out, has ? text : "", has ? n : 0);
    skv_text_free(text);
}

/* GET /props: the server's settings. Of the model's path, the last part is told. */
void api_props(exchange *ex)
{
    const http_server *server = ex->server;
    const server_model *model = ex->model;
    skv_buf out = exchange_text(ex);
    skv_buf_printf(&out, "{\"default_generation_settings\":{\"id\":0,\"n_ctx\":%zu,\"params\":",
                   model->limits.context);
    write_settings(ex, &model->sampling, NULL, &out);
    skv_buf_printf(&out,
                   "},\"total_slots\":%zu,\"model_alias\":", server->options.scheduler.max_running);
    out_json_str(&out, model->name);
    skv_buf_text(&out, ",\"model_path\":");
    out_json_str(&out, server->options.sources[model - server->models].file);
    skv_buf_text(&out, ",\"modalities\":{\"vision\":false,\"audio\":false},\"chat_template\":");
    out_json_str(&out, model->template_text ? model->template_text : "");
    write_token(model, "bos_token", model->vocab ? skv_vocab_bos(model->vocab) : -1, &out);
    write_token(model, "eos_token", model->vocab ? skv_vocab_eos(model->vocab) : -1, &out);
    skv_buf_printf(&out, ",\"build_info\":\"swiftkv-%d.%d.%d\",\"is_sleeping\":false}",
                   SKV_VERSION_MAJOR, SKV_VERSION_MINOR, SKV_VERSION_PATCH);
    exchange_reply_json(ex, 200, &out);
}

/* GET /slots: as many as answers that run together, and how many of them are busy. It reveals
 * nothing of their texts, since every client may ask. `?fail_on_no_slot=1`: 503 if none is free. */
void api_slots(exchange *ex)
{
    const http_server *server = ex->server;
    const server_model *model = ex->model;
    const size_t n = server->options.scheduler.max_running;
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(model->scheduler, &m);
    if (m.running >= n && http_head_asks(ex->head, "fail_on_no_slot", "1")) {
        api_error error;
        (void)api_fail(&error, 503, NULL, "no slot is free");
        exchange_refuse(ex, &error);
        return;
    }
    skv_buf out = exchange_text(ex);
    skv_buf_text(&out, "[");
    for (size_t i = 0; i < n; i++) {
        skv_buf_printf(&out, "%s{\"id\":%zu,\"n_ctx\":%zu,\"speculative\":%s,\"is_processing\":%s}",
                       i > 0 ? "," : "", i, model->limits.context,
                       server->options.scheduler.speculation.source != SKV_DRAFT_NONE ? "true"
                                                                                      : "false",
                       i < m.running ? "true" : "false");
    }
    skv_buf_text(&out, "]");
    exchange_reply_json(ex, 200, &out);
}

/* GET /lora-adapters: the numbers that `lora` of a request takes. Without it a request uses none.
 */
void api_adapters(exchange *ex)
{
    skv_buf out = exchange_text(ex);
    const char *name;
    skv_buf_text(&out, "[");
    for (size_t i = 0; (name = skv_engine_adapter(ex->model->engine, i)); i++) {
        skv_buf_printf(&out, "%s{\"id\":%zu,\"name\":", i > 0 ? "," : "", i);
        out_json_str(&out, name);
        skv_buf_text(&out, ",\"scale\":0}");
    }
    skv_buf_text(&out, "]");
    exchange_reply_json(ex, 200, &out);
}
