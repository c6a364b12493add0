/* Prompts: see request_input.h. */
#include "request/request_input.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool text_encode(const exchange *ex, const char *text, size_t n, encode_flags flags, int32_t **ids,
                 size_t *n_ids, api_error *error)
{
    skv_error err;
    if (!ex->model->vocab) {
        return api_refuse(error, "prompt", "this model has no tokenizer: send token ids");
    }
    const skv_encode_options options = {.add_special = flags.add_special,
                                        .parse_special = flags.parse_special,
                                        .budget = ex->budget,
                                        .max_ids = flags.max_ids,
                                        .data = flags.data};
    const skv_status status =
        skv_vocab_encode(ex->model->vocab, (skv_text_piece){text, n}, options, ids, n_ids, &err);
    if (status != SKV_OK) return exchange_fail(ex, status, &err, NULL, error);
    if (request_hold(ex, *n_ids * sizeof **ids, "prompt", error)) return true;
    skv_text_free(*ids);
    *ids = NULL;
    return false;
}

void text_ids_free(const exchange *ex, int32_t *ids, size_t n_ids)
{
    if (!ids) return;
    skv_text_free(ids);
    skv_budget_give(ex->budget, n_ids * sizeof *ids);
}

void prompts_release(prompt_list *list)
{
    for (size_t i = 0; list->at && i < list->n; i++) {
        free(list->at[i].ids);
        free(list->at[i].text);
        skv_text_free(list->at[i].data.at);
    }
    free(list->at);
    *list = (prompt_list){0};
}

bool prompts_create(const exchange *ex, size_t n, prompt_list *out, api_error *error)
{
    *out = (prompt_list){0};
    if (!request_hold(ex, n * sizeof *out->at, "prompt", error)) return false;
    out->at = calloc(n, sizeof *out->at);
    return out->at || api_fail(error, 503, NULL, "no memory");
}

/* The caller needs no more of a prompt than that it exceeds the context. */
static size_t most_ids(const exchange *ex)
{
    return ex->model->limits.context + 1;
}

static void note_end(const exchange *ex, api_prompt *prompt)
{
    prompt->is_cut = prompt->n_ids >= most_ids(ex);
    if (prompt->is_cut) prompt->n_ids = most_ids(ex);
}

/* Both copies are the prompt's own, and count until the request ends. A text that was not read to
 * its end is not kept. */
static bool set_text(const exchange *ex, api_prompt *out, const char *text, size_t n,
                     encode_flags flags, api_error *error)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (!text_encode(ex, text, n, flags, &ids, &n_ids, error)) return false;
    /* An empty text is the token that begins one. */
    const skv_engine *engine = ex->model->engine;
    const int32_t bos = n_ids == 0 && engine ? skv_engine_bos(engine) : -1;
    const bool begins = bos >= 0;
    out->n_ids = begins ? 1 : n_ids;
    if (flags.max_ids > 0) note_end(ex, out);
    const size_t n_text = out->is_cut ? 0 : n + 1, n_bytes = (n_ids + 1) * sizeof *ids + n_text;
    bool ok = request_hold(ex, n_bytes, "prompt", error);
    if (ok) {
        out->ids = calloc(n_ids + 1, sizeof *out->ids);
        out->text = n_text > 0 ? malloc(n_text) : NULL;
        ok = (out->ids && (out->text || n_text == 0)) || api_fail(error, 503, NULL, "no memory");
    }
    if (ok) {
        if (begins) out->ids[0] = bos;
        if (n_ids > 0) memcpy(out->ids, ids, n_ids * sizeof *ids);
        out->add_special = flags.add_special;
    }
    if (ok && out->text) {
        if (n > 0) memcpy(out->text, text, n);
        out->text[n] = 0;
        out->n_text = n;
    }
    text_ids_free(ex, ids, n_ids);
    return ok;
}

/* Room for n more ids of a prompt of pieces. */
static bool reserve_ids(const exchange *ex, api_prompt *out, size_t *room, size_t n,
                        api_error *error)
{
    if (out->n_ids + n <= *room) return true;
    const size_t grown = 2 * *room > out->n_ids + n ? 2 * *room : out->n_ids + n;
    if (!request_hold(ex, (grown - *room) * sizeof *out->ids, "prompt", error)) return false;
    int32_t *ids = realloc(out->ids, grown * sizeof *ids);
    if (!ids) return api_fail(error, 503, NULL, "no memory");
    out->ids = ids;
    *room = grown;
    return true;
}

/* One more piece of a prompt of texts and ids. */
static bool add_piece(const exchange *ex, const json_t *piece, encode_flags flags, const char *name,
                      api_prompt *out, size_t *room, api_error *error)
{
    if (!json_is_string(piece)) {
        const json_int_t id = json_integer_value(piece);
        const size_t vocab = skv_engine_vocab(ex->model->engine);
        if (!json_is_integer(piece) || id < 0 || (uint64_t)id >= vocab) {
            return api_refuse(error, name, "%s is not a token id from 0 to %zu",
                              json_show(piece).text, vocab - 1);
        }
        if (!reserve_ids(ex, out, room, 1, error)) return false;
        out->ids[out->n_ids++] = (int32_t)id;
        return true;
    }
    int32_t *ids = NULL;
    size_t n = 0;
    const bool ok = text_encode(ex, json_string_value(piece), json_string_length(piece), flags,
                                &ids, &n, error) &&
                    reserve_ids(ex, out, room, n, error);
    if (ok && n > 0) memcpy(out->ids + out->n_ids, ids, n * sizeof *ids);
    if (ok) out->n_ids += n;
    text_ids_free(ex, ids, n);
    return ok;
}

/* ["text", 12, 34, "more text"] is one prompt. */
static bool read_mixed(const exchange *ex, const json_t *pieces, const char *name,
                       encode_flags flags, api_prompt *out, api_error *error)
{
    size_t room = 0;
    for (size_t i = 0; i < json_array_size(pieces) && out->n_ids < most_ids(ex); i++) {
        const json_t *piece = json_array_get(pieces, i);
        flags.add_special = i == 0;
        if (!add_piece(ex, piece, flags, name, out, &room, error)) return false;
    }
    note_end(ex, out);
    return true;
}

static bool has_kind(const json_t *array, json_type kind)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (json_typeof(json_array_get(array, i)) == kind) return true;
    }
    return false;
}

static bool read_prompt(const exchange *ex, const json_t *value, const char *name,
                        bool parse_special, api_prompt *out, api_error *error)
{
    const encode_flags flags = {
        .add_special = true, .parse_special = parse_special, .max_ids = most_ids(ex)};
    if (json_is_string(value)) {
        return set_text(ex, out, json_string_value(value), json_string_length(value), flags, error);
    }
    if (!json_is_array(value)) {
        return api_refuse(error, name, "expected a string, token ids, or an array of them");
    }
    if (has_kind(value, JSON_STRING)) return read_mixed(ex, value, name, flags, out, error);
    return json_body_ids(ex, value, name, &out->ids, &out->n_ids, error);
}

static bool check_empty(const prompt_list *list, const char *name, api_error *error)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].n_ids == 0) return api_refuse(error, name, "number %zu has no tokens", i);
    }
    return true;
}

bool prompts_read(const exchange *ex, const json_t *body, const char *name, bool parse_special,
                  prompt_list *out, api_error *error)
{
    const json_t *value = json_body_get(body, name);
    *out = (prompt_list){0};
    if (!value) return api_refuse(error, name, "is missing");
    const bool many = json_is_array(value) && !has_kind(value, JSON_INTEGER);
    const size_t n = many ? json_array_size(value) : 1;
    if (n == 0 || n > PROMPTS_MAX) {
        return api_refuse(error, name, "%zu, expected 1 to %d", n, PROMPTS_MAX);
    }
    if (!prompts_create(ex, n, out, error)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        out->n++;
        ok = read_prompt(ex, many ? json_array_get(value, i) : value, name, parse_special,
                         &out->at[i], error);
    }
    if (ok && check_empty(out, name, error)) return true;
    prompts_release(out);
    return false;
}

/* The bytes that looking for known ids takes for each id of the prompt and of the known text,
 * which fits into the context: where it ends in the text, the known id, and the ids that come of
 * it, twice. */
enum { RECALL_BYTES = sizeof(size_t) + 3 * sizeof(int32_t) };

static void put_known(const exchange *ex, api_prompt *prompt, const skv_job_params *job,
                      const int32_t *ids)
{
    const size_t n_bytes = job->n_ids * sizeof *ids;
    int32_t *copy = skv_budget_try(ex->budget, n_bytes) ? malloc(n_bytes) : NULL;
    if (!copy) return;
    memcpy(copy, ids, n_bytes);
    free(prompt->ids);
    prompt->ids = copy;
    prompt->n_ids = job->n_ids;
    prompt->known = job->text;
}

/* Without memory, or with nothing known, the prompt stays as the tokenizer gave it. */
static void recall(const exchange *ex, api_prompt *prompt, skv_job_params *job)
{
    const skv_recalled_text text = {.text = {prompt->text, prompt->n_text},
                                    .add_special = prompt->add_special,
                                    .data = prompt->data};
    const size_t n_bytes = RECALL_BYTES * (prompt->n_ids + ex->model->limits.context);
    int32_t *ids = NULL;
    if (!skv_budget_try(ex->budget, n_bytes)) return;
    job->ids = prompt->ids;
    job->n_ids = prompt->n_ids;
    const skv_status status = skv_scheduler_recall(ex->model->scheduler, job, &text, &ids, NULL);
    if (status == SKV_OK && ids) put_known(ex, prompt, job, ids);
    if (status == SKV_OK && !ids) prompt->known = job->text;
    skv_text_free(ids);
    skv_budget_give(ex->budget, n_bytes);
}

void prompts_recall(const exchange *ex, prompt_list *list, skv_job_params *job)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].text) recall(ex, &list->at[i], job);
    }
}

/* ---- conversations ---- */

const char *part_type(const json_t *part)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const json_t *type = json_object_get(part, "type");
    const char *text = json_string_value(type);
    return text && strspn(text, letters) == json_string_length(type) ? text : NULL;
}

/* Whether a part is no text. A tool may have sent any: the model is told of it, since a refusal
 * would end the conversation, which has it in its history. */
static bool tell_left_out(const json_t *message, const json_t *part, skv_buf *out)
{
    const char *type = part_type(part);
    const bool text = !type || strcmp(type, "text") == 0;
    if (text || !json_text_is(json_object_get(message, "role"), "tool")) return false;
    skv_buf_printf(out, PART_LEFT_OUT, type);
    return true;
}

/* The text of a message's parts, each on a line of its own. Only those of text are served. */
static bool flatten_content(const exchange *ex, const json_t *message, size_t i, skv_buf *out,
                            api_error *error)
{
    const json_t *content = json_object_get(message, "content");
    if (!request_work(ex, json_array_size(content), "messages", error)) return false;
    for (size_t j = 0; j < json_array_size(content); j++) {
        const json_t *part = json_array_get(content, j), *text = json_object_get(part, "text");
        if (j > 0) skv_buf_text(out, "\n");
        if (tell_left_out(message, part, out)) continue;
        if (!json_body_is(part, "text") || !json_is_string(text)) {
            return api_fail(error, 400, "messages",
                            "messages[%zu].content[%zu]: type \"%.40s\": only text is supported", i,
                            j, json_show_member(part, "type").text);
        }
        skv_buf_append(out, json_string_value(text), json_string_length(text));
    }
    return true;
}

/* Parts become one text, since templates expect one. The body itself is changed: nothing else
 * reads its messages. */
static bool check_message(const exchange *ex, json_t *message, size_t i, api_error *error)
{
    const json_t *content = json_object_get(message, "content");
    if (!request_work(ex, 1, "messages", error)) return false;
    if (!json_is_string(json_object_get(message, "role"))) {
        return api_fail(error, 400, "messages", "messages[%zu].role: expected a string", i);
    }
    if (!content || json_is_string(content) || json_is_null(content)) return true;
    if (!json_is_array(content)) {
        return api_fail(error, 400, "messages",
                        "messages[%zu].content: expected a string or an array of parts", i);
    }
    size_t k;
    const json_t *part;
    json_array_foreach(content, k, part)
    {
        prompt_mark_longer(message, json_object_get(part, "cache_control"));
    }
    skv_buf text = request_text(ex);
    bool ok = flatten_content(ex, message, i, &text, error);
    json_t *joined = ok ? json_of_text(ex, &text, "messages", error) : NULL;
    ok = joined && json_put_new(message, "content", joined, error);
    skv_buf_release(&text);
    return ok;
}

const char *template_own_var(const json_t *vars)
{
    static const char *const own[] = {"messages", "tools", "bos_token", "eos_token",
                                      "add_generation_prompt"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (json_object_get(vars, own[i])) return own[i];
    }
    return NULL;
}

/* A client may set variables that a template reads, but not those that the server sets. */
static bool add_kwargs(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    if (!kwargs || json_is_null(kwargs)) return true;
    if (!json_is_object(kwargs)) {
        return api_refuse(error, "chat_template_kwargs", "expected an object");
    }
    const char *own = template_own_var(kwargs);
    if (own) return api_refuse(error, "chat_template_kwargs", "%s is set by the server", own);
    json_t *copy = json_copy_within(ex, kwargs, "chat_template_kwargs", error);
    if (!copy) return false;
    const bool ok = json_object_update(vars, copy) == 0;
    json_decref(copy);
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* Variables that templates read and that neither the conversation nor chat_template_kwargs sets,
 * which may override them: the day, the server's own options, and how much the model shall
 * think. */
static bool add_defaults(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    const time_t now = time(NULL);
    struct tm parts = {.tm_mday = 1};
    char day[32] = "", month_first[32] = "";
    (void)gmtime_r(&now, &parts);
    (void)strftime(day, sizeof day, "%d %b %Y", &parts);
    (void)strftime(month_first, sizeof month_first, "%b %d %Y", &parts);
    if (!json_put_new(vars, "date_string", json_string(day), error) ||
        !json_put_new(vars, "datetime", json_string(month_first), error)) {
        return false;
    }
    if (ex->server->template_vars && json_object_update(vars, ex->server->template_vars) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    const json_t *effort = json_body_get(body, "reasoning_effort");
    if (!effort || json_text_is(effort, "")) return true;
    if (!json_text_whole(effort, "reasoning_effort", error)) return false;
    const bool thinks = !json_text_is(effort, "none");
    return json_put_new(vars, "enable_thinking", json_boolean(thinks), error) &&
           (!thinks ||
            json_put_new(vars, "reasoning_effort", json_string(json_string_value(effort)), error));
}

/* After the last message if the answer continues it; the prompt ends in front of it. */
static const char continue_mark[] = "<|swiftkv_continues_here|>";

/* Whether the answer goes on with the last message: continue_final_message of vLLM and
 * transformers, or "prefix" of the message, as DeepSeek and Mistral say it. */
static bool mark_last(const exchange *ex, const json_t *body, json_t *messages, bool *continues,
                      api_error *error)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (!json_body_flag(last, "prefix", continues, error) ||
        !json_body_flag(body, "continue_final_message", continues, error)) {
        return false;
    }
    (void)json_object_del(last, "prefix");
    if (!*continues) return true;
    const json_t *content = json_object_get(last, "content");
    if (!json_text_is(json_object_get(last, "role"), "assistant") || !json_is_string(content) ||
        json_object_get(last, "tool_calls")) {
        return api_refuse(error, "continue_final_message",
                          "the last message is no text of the assistant");
    }
    if (json_is_true(json_object_get(body, "add_generation_prompt"))) {
        return api_refuse(error, "continue_final_message", "excludes add_generation_prompt");
    }
    skv_buf text = request_text(ex);
    skv_buf_append(&text, json_string_value(content), json_string_length(content));
    skv_buf_text(&text, continue_mark);
    json_t *marked = json_of_text(ex, &text, "messages", error);
    skv_buf_release(&text);
    return marked && json_put_new(last, "content", marked, error);
}

/* Ends the prompt in front of a mark, which is data. */
static bool cut_at_mark(rendered_text *rendered, const char *mark, api_error *error)
{
    skv_buf *text = &rendered->text;
    skv_text_marks *data = &rendered->data;
    const size_t n = strlen(mark);
    for (size_t i = text->size; i-- > 0;) {
        if (text->size - i < n || memcmp(text->data + i, mark, n) != 0) continue;
        text->size = i;
        text->data[i] = 0;
        while (data->n >= 2 && data->at[data->n - 2] >= i) data->n -= 2;
        if (data->n >= 2 && data->at[data->n - 1] > i) data->at[data->n - 1] = i;
        return true;
    }
    return api_refuse(error, "continue_final_message",
                      "the chat template does not write the last message");
}

/* Variables that transformers gives a template as None if they are missing. */
static const char *const nones[] = {"tools", "documents"};
enum { N_NONES = sizeof nones / sizeof nones[0] };

static bool add_nones(json_t *vars, api_error *error)
{
    for (size_t i = 0; i < N_NONES; i++) {
        if (!json_object_get(vars, nones[i]) && !json_put_new(vars, nones[i], json_null(), error)) {
            return false;
        }
    }
    return true;
}

/* False: none of them is None. */
static bool drop_nones(json_t *vars)
{
    bool any = false;
    for (size_t i = 0; i < N_NONES; i++) {
        const bool is_none = json_is_null(json_object_get(vars, nones[i]));
        any = (is_none && json_object_del(vars, nones[i]) == 0) || any;
    }
    return any;
}

static bool make_vars(const exchange *ex, const json_t *body, json_t *vars, bool *continues,
                      api_error *error)
{
    const json_t *given = json_body_get(body, "messages");
    if (!json_is_array(given) || json_array_size(given) == 0) {
        return api_refuse(error, "messages", "expected an array of messages");
    }
    json_t *messages = json_object_get(body, "messages");
    if (json_object_set(vars, "messages", messages) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (!check_message(ex, message, i, error) || !tool_message_tidy(ex, message, i, error)) {
            return false;
        }
    }
    const line_pattern *strip = ex->server->strip;
    if (strip && !line_pattern_strip(strip, ex->budget, messages, &ex->changes->n_stripped)) {
        return request_lacks(ex, "messages", error);
    }
    if (!turns_begin(ex, messages, error)) return false;
    const bool splits = ex->model->habits.one_call && !ex->model->generic_tools;
    if (splits && !tool_turns_split(ex, messages, error)) return false;
    if (ex->model->habits.short_ids && !tool_ids_shorten(ex, messages, error)) return false;
    if (!mark_last(ex, body, messages, continues, error)) return false;
    bool begins_answer = !*continues;
    if (!json_body_flag(body, "add_generation_prompt", &begins_answer, error)) return false;
    return add_defaults(ex, body, vars, error) && add_kwargs(ex, body, vars, error) &&
           tool_template_name_vars(ex, vars, error) && tool_request_vars(ex, body, vars, error) &&
           add_nones(vars, error) &&
           json_put_new(vars, "add_generation_prompt", json_boolean(begins_answer), error);
}

void rendered_release(rendered_text *rendered)
{
    skv_buf_release(&rendered->text);
    skv_text_free(rendered->data.at);
    rendered->data = (skv_text_marks){0};
}

/* Before another try. */
static void clear_rendered(const exchange *ex, rendered_text *out)
{
    skv_buf_clear(&out->text);
    skv_text_free(out->data.at);
    skv_budget_give(ex->budget, out->data.n * sizeof *out->data.at);
    out->data = (skv_text_marks){0};
}

static bool render_vars(const exchange *ex, const json_t *vars, rendered_text *out,
                        api_error *error)
{
    const server_model *model = ex->model;
    size_t n_json = 0, n = 0;
    skv_text_marks data = {0};
    char *text = NULL, *json = json_text_write(ex, vars, "messages", &n_json, error);
    if (!json) return false;
    skv_error err;
    const skv_render_input input = {.template_text = {model->template_text, model->n_template},
                                    .vars = {json, n_json},
                                    .vocab = model->vocab,
                                    .budget = ex->budget,
                                    .own_mark = server_own_mark(ex->server)};
    const skv_status status = skv_render_marked(&input, &text, &n, &data, &err);
    json_text_free(ex, json, n_json);
    if (status != SKV_OK) {
        return exchange_fail(ex, status, &err, "messages", error);
    }
    bool ok = request_hold(ex, data.n * sizeof *data.at, "messages", error);
    if (ok) {
        out->data = data;
    } else {
        skv_text_free(data.at);
    }
    ok = ok && request_hold(ex, n, "messages", error); /* as long as there are two of it */
    if (ok) {
        skv_buf_append(&out->text, text, n);
        skv_budget_give(ex->budget, n);
        ok = !out->text.failed || request_lacks(ex, "messages", error);
    }
    skv_text_free(text);
    return ok;
}

/* Templates for tools alone loop over None, which fails; over an undefined value they do not. */
static bool render(const exchange *ex, json_t *vars, rendered_text *out, api_error *error)
{
    api_error other;
    if (render_vars(ex, vars, out, error)) return true;
    if (error->status != 400 || !drop_nones(vars)) return false;
    clear_rendered(ex, out);
    if (render_vars(ex, vars, out, &other)) return true;
    (void)add_nones(vars, &other);
    return false;
}

/* The arguments of one call as a text of JSON, or as the value of that text. False: they are
 * that, or there is no memory for it. */
static bool turn_arguments(const exchange *ex, json_t *function, bool to_text)
{
    static const char name[] = "arguments";
    json_t *arguments = json_object_get(function, name), *turned = NULL;
    json_error_t problem;
    api_error error;
    if (to_text && json_is_object(arguments)) {
        size_t n = 0;
        char *text = json_text_write(ex, arguments, name, &n, &error);
        if (text) turned = json_stringn(text, n);
        if (text) json_text_free(ex, text, n);
    } else if (!to_text && json_is_string(arguments)) {
        const skv_text_piece text = {json_string_value(arguments), json_string_length(arguments)};
        const json_place place = {.name = name, .param = "messages", .text = text};
        (void)json_text_read(ex, &place, &turned, &problem, &error);
    }
    return turned && json_object_set_new(function, name, turned) == 0;
}

/* False: no call has other arguments now. */
static bool turn_all_arguments(const exchange *ex, json_t *messages, bool to_text)
{
    bool any = false;
    size_t i, k;
    json_t *message, *call;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            any = turn_arguments(ex, json_object_get(call, "function"), to_text) || any;
        }
    }
    return any;
}

/* Most templates want the arguments of calls as objects; some add them to a text, which an object
 * cannot be. */
static bool render_calls(const exchange *ex, json_t *vars, rendered_text *out, api_error *error)
{
    json_t *messages = json_object_get(vars, "messages");
    api_error other;
    if (render(ex, vars, out, error)) return true;
    if (error->status != 400 || !turn_all_arguments(ex, messages, true)) return false;
    clear_rendered(ex, out);
    if (render(ex, vars, out, &other)) return true;
    (void)turn_all_arguments(ex, messages, false);
    return false;
}

/* The same; *shown: with the system messages from there on. */
static bool render_shown(const exchange *ex, json_t *vars, size_t from, rendered_text *out,
                         bool *shown, api_error *error)
{
    *shown = false;
    return render_calls(ex, vars, out, error) &&
           system_is_shown(ex, json_object_get(vars, "messages"), from, &out->text, shown, error);
}

/* Renders the conversation as the template can take it: the system messages at its beginning are
 * one, or all are the user's. */
static bool render_folded(const exchange *ex, json_t *vars, rendered_text *out, api_error *error)
{
    json_t *messages = json_object_get(vars, "messages");
    bool shown;
    api_error other;
    /* Of several at the beginning some templates write the last alone. */
    const json_t *second = json_array_get(messages, 1);
    const size_t from = json_text_is(json_object_get(second, "role"), "system") ? 0 : 1;
    bool ok = render_shown(ex, vars, from, out, &shown, error);
    for (int step = 0; step < 2 && !shown; step++) {
        const bool spent = ex->budget->exceeded != SKV_EXCEEDED_NONE; /* nothing can be tried */
        bool any = false;
        if (!ok && (error->status != 400 || spent)) return false;
        const bool changed = step == 0 ? system_join(ex, messages, &any, &other)
                                       : system_fold(ex, messages, &any, &other);
        if (!changed) *error = other;
        if (!changed) return false;
        if (!any) continue;
        clear_rendered(ex, out);
        ok = render_shown(ex, vars, 0, out, &shown, error);
    }
    return ok;
}

/* The faults that a template may refuse a history for are mended, and then its calls and results
 * become texts: otherwise the conversation would have ended for ever. */
static bool render_history(const exchange *ex, json_t *vars, rendered_text *out, api_error *error)
{
    enum { SHAPES, CALLS, RESULTS, STEPS };
    json_t *messages = json_object_get(vars, "messages");
    api_error other = {0};
    if (render_folded(ex, vars, out, error)) return true;
    for (int step = SHAPES; step < STEPS && error->status == 400; step++) {
        bool joined = false;
        if (ex->budget->exceeded != SKV_EXCEEDED_NONE) return false;
        const bool other_now = step == SHAPES
                                   ? tool_turns_describe(ex, json_object_get(vars, "tools"))
                                   : tool_generic_plain(ex, messages, step == RESULTS, &other);
        if (!turns_join(ex, messages, &joined, &other)) return false;
        if (!other_now && !joined) continue;
        clear_rendered(ex, out);
        if (render_folded(ex, vars, out, &other)) return true;
    }
    return false;
}

/* The same, with the thoughts that the template leaves out, where the operator wants them. */
static bool render_thoughts(const exchange *ex, json_t *vars, rendered_text *out, api_error *error)
{
    json_t *messages = json_object_get(vars, "messages");
    kept_thoughts kept;
    if (!render_history(ex, vars, out, error)) return false;
    if (!ex->server->options.prompt_keep_thoughts) return true;
    if (ex->model->reply_format.thinks != SKV_THOUGHTS_THINK) return true;
    bool ok = prompt_find_lost_thoughts(ex->budget, messages, out, server_draw(ex->server), &kept);
    if (!ok) (void)request_lacks(ex, "messages", error);
    if (ok && kept.contents) {
        clear_rendered(ex, out);
        ok = render_history(ex, vars, out, error) &&
             (prompt_put_thoughts(ex->budget, messages, &kept, out, &ex->changes->n_kept) ||
              request_lacks(ex, "messages", error));
    }
    prompt_unmark_thoughts(messages, &kept);
    return ok;
}

static bool find_pins(const exchange *ex, const json_t *vars, rendered_text *out, api_error *error)
{
    return prompt_find_pins(ex->budget, json_object_get(vars, "messages"), out) ||
           request_lacks(ex, "messages", error);
}

bool messages_render(const exchange *ex, const json_t *body, rendered_text *out, api_error *error)
{
    *out = (rendered_text){.text = request_text(ex)};
    if (!ex->model->vocab) {
        return api_refuse(error, "messages",
                          "this model has no tokenizer: send token ids to /v1/completions");
    }
    if (!ex->model->template_text) {
        return api_refuse(error, "messages",
                          "the model has no chat template (serve --template FILE)");
    }
    if (ex->model->template_error[0]) {
        return api_refuse(error, "messages",
                          "the model's template cannot be used: %s (serve --template FILE)",
                          ex->model->template_error);
    }
    bool continues = false;
    json_t *vars = json_object();
    if (!vars) return api_fail(error, 503, NULL, "no memory");
    const bool ok = make_vars(ex, body, vars, &continues, error) &&
                    render_thoughts(ex, vars, out, error) && find_pins(ex, vars, out, error) &&
                    (!continues || cut_at_mark(out, continue_mark, error));
    out->continues = continues;
    json_decref(vars);
    return ok;
}

/* mark: the prompt ends in front of it; NULL: there is none. */
static bool read_messages(const exchange *ex, const json_t *body, size_t max_ids, const char *mark,
                          prompt_list *out, api_error *error)
{
    rendered_text rendered = {0};
    *out = (prompt_list){0};
    bool ok = messages_render(ex, body, &rendered, error) &&
              (!mark || cut_at_mark(&rendered, mark, error)) && prompts_create(ex, 1, out, error);
    if (ok) {
        const bool all = ex->server->options.allow_special_text;
        const encode_flags flags = {.add_special = ex->model->guesses_template,
                                    .parse_special = true,
                                    .max_ids = max_ids,
                                    .data = all ? NULL : &rendered.data};
        const skv_buf *text = &rendered.text;
        out->n = 1;
        ok =
            set_text(ex, &out->at[0], text->size > 0 ? text->data : "", text->size, flags, error) &&
            check_empty(out, "messages", error);
        out->at[0].continues = rendered.continues;
        if (!all) out->at[0].data = rendered.data;
        if (!all) rendered.data = (skv_text_marks){0};
        memcpy(out->at[0].pins, rendered.pins, sizeof rendered.pins);
        out->at[0].n_pins = rendered.n_pins;
    }
    rendered_release(&rendered);
    if (!ok) prompts_release(out);
    return ok;
}

bool messages_read(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return read_messages(ex, body, most_ids(ex), NULL, out, error);
}

bool messages_read_front(const exchange *ex, const json_t *body, const char *mark, prompt_list *out,
                         api_error *error)
{
    return read_messages(ex, body, most_ids(ex), mark, out, error);
}

bool messages_read_whole(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    return read_messages(ex, body, 0, NULL, out, error);
}
