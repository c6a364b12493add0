/* Prompts: see request_input.h. */
#define _GNU_SOURCE /* memmem */
#include "request_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool text_encode(const exchange *ex, const char *text, size_t n, encode_flags flags, int32_t **ids,
                 size_t *n_ids, api_error *error)
{
    skv_error err;
    if (!ex->model->vocab) {
        return api_fail(error, 400, "prompt",
                        "prompt: the model brings no tokenizer: send token ids");
    }
    const skv_status status = skv_vocab_encode(
        ex->model->vocab, (skv_text_piece){text, n},
        (skv_encode_options){flags.add_special, flags.parse_special, ex->budget}, ids, n_ids, &err);
    return status == SKV_OK || exchange_fail(ex, status, &err, NULL, error);
}

void prompts_release(prompt_list *list)
{
    for (size_t i = 0; list->at && i < list->n; i++) {
        free(list->at[i].ids);
        free(list->at[i].text);
    }
    free(list->at);
    *list = (prompt_list){0};
}

/* Both copies are the prompt's own. */
static bool set_text(const exchange *ex, api_prompt *out, const char *text, size_t n,
                     encode_flags flags, api_error *error)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (!text_encode(ex, text, n, flags, &ids, &n_ids, error)) return false;
    /* An empty text is the token that begins one. */
    const int32_t bos = skv_engine_bos(ex->model->engine);
    const bool begins = n_ids == 0 && bos >= 0;
    out->n_ids = begins ? 1 : n_ids;
    out->ids = calloc(out->n_ids + 1, sizeof *out->ids);
    out->text = malloc(n + 1);
    const bool ok = out->ids && out->text;
    if (ok) {
        if (begins) out->ids[0] = bos;
        if (n_ids > 0) memcpy(out->ids, ids, n_ids * sizeof *ids);
        if (n > 0) memcpy(out->text, text, n);
        out->text[n] = 0;
        out->n_text = n;
        out->add_special = flags.add_special;
    }
    skv_text_free(ids);
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* One more piece of a prompt of texts and ids. */
static bool add_piece(const exchange *ex, const json_t *piece, bool first, const char *name,
                      api_prompt *out, api_error *error)
{
    int32_t *ids = NULL;
    size_t n = 0;
    const bool is_text = json_is_string(piece);
    json_t *list = is_text ? NULL : json_pack("[O]", (json_t *)(uintptr_t)piece);
    const bool read =
        is_text ? text_encode(ex, json_string_value(piece), json_string_length(piece),
                              (encode_flags){first, true}, &ids, &n, error)
                : json_body_ids(list, name, skv_engine_vocab(ex->model->engine), &ids, &n, error);
    json_decref(list);
    int32_t *grown = read ? realloc(out->ids, (out->n_ids + n + 1) * sizeof *grown) : NULL;
    if (grown) {
        out->ids = grown;
        if (n > 0) memcpy(out->ids + out->n_ids, ids, n * sizeof *ids);
        out->n_ids += n;
    }
    if (is_text) {
        skv_text_free(ids);
    } else {
        free(ids);
    }
    return grown || (read && api_fail(error, 503, NULL, "no memory"));
}

/* ["text", 12, 34, "more text"] is one prompt. */
static bool read_mixed(const exchange *ex, const json_t *pieces, const char *name, api_prompt *out,
                       api_error *error)
{
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        if (!add_piece(ex, json_array_get(pieces, i), i == 0, name, out, error)) return false;
    }
    return true;
}

static bool has_kind(const json_t *array, json_type kind)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (json_typeof(json_array_get(array, i)) == kind) return true;
    }
    return false;
}

static bool read_prompt(const exchange *ex, const json_t *value, const char *name, api_prompt *out,
                        api_error *error)
{
    if (json_is_string(value)) {
        return set_text(ex, out, json_string_value(value), json_string_length(value),
                        (encode_flags){true, true}, error);
    }
    if (!json_is_array(value)) {
        return api_fail(error, 400, name, "%s: expected a string, token ids, or an array of them",
                        name);
    }
    if (has_kind(value, JSON_STRING)) return read_mixed(ex, value, name, out, error);
    return json_body_ids(value, name, skv_engine_vocab(ex->model->engine), &out->ids, &out->n_ids,
                         error);
}

static bool check_empty(const prompt_list *list, const char *name, api_error *error)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].n_ids == 0) {
            return api_fail(error, 400, name, "%s: number %zu has no tokens", name, i);
        }
    }
    return true;
}

bool prompts_read(const exchange *ex, const json_t *body, const char *name, prompt_list *out,
                  api_error *error)
{
    const json_t *value = json_body_get(body, name);
    *out = (prompt_list){0};
    if (!value) return api_fail(error, 400, name, "%s: is missing", name);
    const bool many = json_is_array(value) && !has_kind(value, JSON_INTEGER);
    const size_t n = many ? json_array_size(value) : 1;
    if (n == 0 || n > PROMPTS_MAX) {
        return api_fail(error, 400, name, "%s: %zu, expected 1 to %d", name, n, PROMPTS_MAX);
    }
    out->at = calloc(n, sizeof *out->at);
    if (!out->at) return api_fail(error, 503, NULL, "no memory");
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        out->n++;
        ok = read_prompt(ex, many ? json_array_get(value, i) : value, name, &out->at[i], error);
    }
    if (ok && check_empty(out, name, error)) return true;
    prompts_release(out);
    return false;
}

/* Without memory, or with nothing known, the prompt stays as the tokenizer gave it. */
static void recall(const exchange *ex, api_prompt *prompt, skv_job_params *job)
{
    const skv_text_piece text = {prompt->text, prompt->n_text};
    int32_t *ids = NULL;
    job->ids = prompt->ids;
    job->n_ids = prompt->n_ids;
    const skv_status status =
        skv_scheduler_recall(ex->model->scheduler, job, &text, prompt->add_special, &ids, NULL);
    int32_t *copy = status == SKV_OK && ids ? calloc(job->n_ids, sizeof *copy) : NULL;
    if (copy) {
        memcpy(copy, ids, job->n_ids * sizeof *copy);
        free(prompt->ids);
        prompt->ids = copy;
        prompt->n_ids = job->n_ids;
    }
    if (status == SKV_OK && (!ids || copy)) prompt->known = job->text;
    skv_text_free(ids);
}

void prompts_recall(const exchange *ex, prompt_list *list, skv_job_params *job)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].text) recall(ex, &list->at[i], job);
    }
}

/* ---- conversations ---- */

/* The text of a message's parts, each on a line of its own. Only those of text are served. */
static bool flatten_content(const json_t *content, size_t i, skv_buf *out, api_error *error)
{
    for (size_t j = 0; j < json_array_size(content); j++) {
        const json_t *part = json_array_get(content, j), *text = json_object_get(part, "text");
        if (!json_body_is(part, "text") || !json_is_string(text)) {
            return api_fail(error, 400, "messages",
                            "messages[%zu].content[%zu]: type \"%.40s\": only text is supported", i,
                            j, json_show_member(part, "type").text);
        }
        if (j > 0) skv_buf_text(out, "\n");
        skv_buf_append(out, json_string_value(text), json_string_length(text));
    }
    return !out->failed || api_fail(error, 503, NULL, "no memory");
}

/* Parts become one text, since templates expect one. The body itself is changed: nobody else reads
 * its messages. */
static bool check_message(json_t *message, size_t i, api_error *error)
{
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(json_object_get(message, "role"))) {
        return api_fail(error, 400, "messages", "messages[%zu].role: expected a string", i);
    }
    if (!content || json_is_string(content) || json_is_null(content)) return true;
    if (!json_is_array(content)) {
        return api_fail(error, 400, "messages",
                        "messages[%zu].content: expected a string or an array of parts", i);
    }
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    bool ok = flatten_content(content, i, &text, error);
    if (ok) {
        json_t *joined = json_stringn(text.size > 0 ? text.data : "", text.size);
        ok = joined && json_object_set_new(message, "content", joined) == 0;
        if (!ok) (void)api_fail(error, 503, NULL, "no memory");
    }
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

/* A client may set what a template reads, but not what the server does. */
static bool add_kwargs(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    if (!kwargs || json_is_null(kwargs)) return true;
    if (!json_is_object(kwargs)) {
        return api_fail(error, 400, "chat_template_kwargs",
                        "chat_template_kwargs: expected an object");
    }
    const char *own = template_own_var(kwargs);
    if (own) {
        return api_fail(error, 400, "chat_template_kwargs",
                        "chat_template_kwargs: %s is set by the server", own);
    }
    json_t *copy = json_copy_within(ex, kwargs, "chat_template_kwargs", error);
    if (!copy) return false;
    const bool ok = json_object_update(vars, copy) == 0;
    json_decref(copy);
    return ok || api_fail(error, 503, NULL, "no memory");
}

static bool set_new(json_t *object, const char *name, json_t *value, api_error *error)
{
    return json_object_set_new(object, name, value) == 0 || api_fail(error, 503, NULL, "no memory");
}

/* What templates read that is neither in the conversation nor in chat_template_kwargs, which may
 * say otherwise: the day, what the server was started with, and how much the model shall think. */
static bool add_defaults(const exchange *ex, const json_t *body, json_t *vars, api_error *error)
{
    const time_t now = time(NULL);
    struct tm parts = {.tm_mday = 1};
    char day[32] = "", month_first[32] = "";
    (void)gmtime_r(&now, &parts);
    (void)strftime(day, sizeof day, "%d %b %Y", &parts);
    (void)strftime(month_first, sizeof month_first, "%b %d %Y", &parts);
    if (!set_new(vars, "date_string", json_string(day), error) ||
        !set_new(vars, "datetime", json_string(month_first), error)) {
        return false;
    }
    if (ex->server->template_vars && json_object_update(vars, ex->server->template_vars) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    const json_t *effort = json_body_get(body, "reasoning_effort");
    if (!effort || json_text_is(effort, "")) return true;
    if (!json_text_whole(effort, "reasoning_effort", error)) return false;
    const bool thinks = !json_text_is(effort, "none");
    return set_new(vars, "enable_thinking", json_boolean(thinks), error) &&
           (!thinks ||
            set_new(vars, "reasoning_effort", json_string(json_string_value(effort)), error));
}

/* Behind the last message where the answer goes on with it; the prompt ends in front of it. */
static const char continue_mark[] = "<|swiftkv_continues_here|>";

/* Whether the answer goes on with the last message: continue_final_message of vLLM and
 * transformers, or "prefix" of the message, as DeepSeek and Mistral say it. */
static bool mark_last(const json_t *body, json_t *messages, bool *continues, api_error *error)
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
        return api_fail(error, 400, "continue_final_message",
                        "continue_final_message: the last message is no text of the assistant");
    }
    if (json_is_true(json_object_get(body, "add_generation_prompt"))) {
        return api_fail(error, 400, "continue_final_message",
                        "continue_final_message: excludes add_generation_prompt");
    }
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    skv_buf_append(&text, json_string_value(content), json_string_length(content));
    skv_buf_text(&text, continue_mark);
    const bool ok = !text.failed &&
                    json_object_set_new(last, "content", json_stringn(text.data, text.size)) == 0;
    skv_buf_release(&text);
    return ok || api_fail(error, 503, NULL, "no memory");
}

/* Ends the prompt in front of the mark. */
static bool cut_at_mark(skv_buf *text, api_error *error)
{
    const size_t n = sizeof continue_mark - 1;
    for (size_t i = text->size; i-- > 0;) {
        if (text->size - i < n || memcmp(text->data + i, continue_mark, n) != 0) continue;
        text->size = i;
        text->data[i] = 0;
        return true;
    }
    return api_fail(error, 400, "continue_final_message",
                    "continue_final_message: the chat template does not write the last message");
}

/* What transformers gives a template as None where there is none. */
static const char *const nones[] = {"tools", "documents"};
enum { N_NONES = sizeof nones / sizeof nones[0] };

static bool add_nones(json_t *vars, api_error *error)
{
    for (size_t i = 0; i < N_NONES; i++) {
        if (!json_object_get(vars, nones[i]) && !set_new(vars, nones[i], json_null(), error)) {
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
        return api_fail(error, 400, "messages", "messages: expected an array of messages");
    }
    json_t *messages = json_object_get(body, "messages");
    if (json_object_set(vars, "messages", messages) != 0) {
        return api_fail(error, 503, NULL, "no memory");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (!check_message(message, i, error) || !tool_message_tidy(ex, message, i, error)) {
            return false;
        }
    }
    if (!mark_last(body, messages, continues, error)) return false;
    bool begins_answer = !*continues;
    if (!json_body_flag(body, "add_generation_prompt", &begins_answer, error)) return false;
    return add_defaults(ex, body, vars, error) && add_kwargs(ex, body, vars, error) &&
           tool_request_vars(ex, body, vars, error) && add_nones(vars, error) &&
           set_new(vars, "add_generation_prompt", json_boolean(begins_answer), error);
}

static bool render_vars(const exchange *ex, const json_t *vars, skv_buf *out, api_error *error)
{
    const server_model *model = ex->model;
    size_t n_json = 0, n = 0;
    char *text = NULL, *json = json_text_write(ex, vars, "messages", &n_json, error);
    if (!json) return false;
    skv_error err;
    const skv_render_input input = {.template_text = {model->template_text, model->n_template},
                                    .vars = {json, n_json},
                                    .vocab = model->vocab,
                                    .budget = ex->budget};
    const skv_status status = skv_render(&input, &text, &n, &err);
    json_text_free(ex, json, n_json);
    if (status != SKV_OK) {
        return exchange_fail(ex, status, &err, "messages", error);
    }
    skv_buf_append(out, text, n);
    skv_text_free(text);
    return !out->failed || api_fail(error, 503, NULL, "no memory");
}

/* Templates for tools alone loop over None, which fails; over what is undefined they do not. */
static bool render(const exchange *ex, json_t *vars, skv_buf *out, api_error *error)
{
    api_error other;
    if (render_vars(ex, vars, out, error)) return true;
    if (error->status != 400 || !drop_nones(vars)) return false;
    skv_buf_clear(out);
    if (render_vars(ex, vars, out, &other)) return true;
    (void)add_nones(vars, &other);
    return false;
}

static const json_t *text_of(const json_t *messages, size_t i, const char *role)
{
    const json_t *message = json_array_get(messages, i);
    const json_t *content = json_object_get(message, "content");
    const bool fits = json_text_is(json_object_get(message, "role"), role);
    return fits && json_is_string(content) ? content : NULL;
}

/* Two messages of the user in a row become one. */
static bool join_users(json_t *messages, size_t i)
{
    const json_t *one = text_of(messages, i, "user"), *two = text_of(messages, i + 1, "user");
    if (!one || !two) return true;
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    skv_buf_append(&text, json_string_value(one), json_string_length(one));
    skv_buf_text(&text, "\n\n");
    skv_buf_append(&text, json_string_value(two), json_string_length(two));
    const bool ok = !text.failed &&
                    json_object_set_new(json_array_get(messages, i), "content",
                                        json_stringn(text.data, text.size)) == 0 &&
                    json_array_remove(messages, i + 1) == 0;
    skv_buf_release(&text);
    return ok;
}

/* Templates that know no system message, or none behind others, refuse it: its text becomes part of
 * the user's around it. False: there is none, or none of the user. */
static bool fold_system(json_t *messages)
{
    bool any = false, users = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        users = users || text_of(messages, i, "user");
    }
    for (size_t i = 0; users && i < json_array_size(messages); i++) {
        if (!text_of(messages, i, "system")) continue;
        const json_t *role = json_object_get(json_array_get(messages, i), "role");
        if (!role ||
            json_object_set_new(json_array_get(messages, i), "role", json_string("user")) != 0 ||
            !join_users(messages, i) || (i > 0 && !join_users(messages, i - 1))) {
            return false;
        }
        any = true;
    }
    return any;
}

/* Whether every system message behind the first message is in the prompt: some templates leave it
 * out without a word. */
static bool shows_system(const json_t *messages, const skv_buf *prompt)
{
    for (size_t i = 1; i < json_array_size(messages); i++) {
        const json_t *content = text_of(messages, i, "system");
        const char *text = json_string_value(content);
        if (!text || !prompt->data) continue;
        text += strspn(text, " \t\r\n");
        size_t n = strlen(text);
        while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
        if (n > 0 && !memmem(prompt->data, prompt->size, text, n)) return false;
    }
    return true;
}

/* The arguments of one call as a text of JSON, or as what that text says. False: they are that, or
 * there is no memory for it. */
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
static bool render_calls(const exchange *ex, json_t *vars, skv_buf *out, api_error *error)
{
    json_t *messages = json_object_get(vars, "messages");
    api_error other;
    if (render(ex, vars, out, error)) return true;
    if (error->status != 400 || !turn_all_arguments(ex, messages, true)) return false;
    skv_buf_clear(out);
    if (render(ex, vars, out, &other)) return true;
    (void)turn_all_arguments(ex, messages, false);
    return false;
}

/* Renders the conversation as the template can take it. */
static bool render_folded(const exchange *ex, json_t *vars, skv_buf *out, api_error *error)
{
    json_t *messages = json_object_get(vars, "messages");
    const bool ok = render_calls(ex, vars, out, error);
    if (ok ? shows_system(messages, out) : error->status != 400) return ok;
    if (!fold_system(messages)) return ok;
    skv_buf_clear(out);
    return render_calls(ex, vars, out, error);
}

bool messages_render(const exchange *ex, const json_t *body, skv_buf *out, api_error *error)
{
    if (!ex->model->vocab) {
        return api_fail(error, 400, "messages",
                        "messages: the model brings no tokenizer: send token ids to "
                        "/v1/completions");
    }
    if (!ex->model->template_text) {
        return api_fail(error, 400, "messages",
                        "messages: the model has no chat template (serve --template FILE)");
    }
    if (ex->model->template_error[0]) {
        return api_fail(error, 400, "messages",
                        "messages: the model's template cannot be used: %s (serve --template FILE)",
                        ex->model->template_error);
    }
    bool continues = false;
    json_t *vars = json_object();
    if (!vars) return api_fail(error, 503, NULL, "no memory");
    const bool ok = make_vars(ex, body, vars, &continues, error) &&
                    render_folded(ex, vars, out, error) && (!continues || cut_at_mark(out, error));
    json_decref(vars);
    return ok;
}

bool messages_read(const exchange *ex, const json_t *body, prompt_list *out, api_error *error)
{
    *out = (prompt_list){0};
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    bool ok = messages_render(ex, body, &text, error);
    if (ok) {
        out->at = calloc(1, sizeof *out->at);
        ok = out->at || api_fail(error, 503, NULL, "no memory");
    }
    if (ok) {
        out->n = 1;
        ok = set_text(ex, &out->at[0], text.size > 0 ? text.data : "", text.size,
                      (encode_flags){ex->model->guesses_template, true}, error) &&
             check_empty(out, "messages", error);
    }
    skv_buf_release(&text);
    if (!ok) prompts_release(out);
    return ok;
}
