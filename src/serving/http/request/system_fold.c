/*
 * System messages that a template leaves out or refuses: whether a prompt has them, and how they
 * become a part of the user's messages; and turns in a row that are of one side. One pass over
 * messages and prompt each.
 */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "request/request_input.h"

enum { BYTES_A_UNIT = 16 /* that are searched */ };

static const char blanks[] = " \t\r\n";

/* The text of a message of this role; NULL: it is of another, or has none. */
static const json_t *text_of(const json_t *message, const char *role)
{
    const json_t *content = json_object_get(message, "content");
    const bool fits = json_text_is(json_object_get(message, "role"), role);
    return fits && json_is_string(content) ? content : NULL;
}

/* Without the blanks around it, which templates cut off. */
static skv_text_piece inner_text(const json_t *content)
{
    skv_text_piece out = {json_string_value(content), json_string_length(content)};
    while (out.n > 0 && out.text[0] && strchr(blanks, out.text[0])) {
        out.text++;
        out.n--;
    }
    while (out.n > 0 && out.text[out.n - 1] && strchr(blanks, out.text[out.n - 1])) out.n--;
    return out;
}

/* They are looked for in their order, each after the one before. */
bool system_is_shown(const exchange *ex, const json_t *messages, size_t from, const skv_buf *prompt,
                     bool *shown, api_error *error)
{
    const char *at = prompt->data ? prompt->data : "", *end = at + prompt->size;
    *shown = true;
    for (size_t i = from; *shown && i < json_array_size(messages); i++) {
        const json_t *content = text_of(json_array_get(messages, i), "system");
        if (!request_work(ex, 1, "messages", error)) return false;
        if (!content) continue;
        const skv_text_piece text = inner_text(content);
        const char *found = memmem(at, (size_t)(end - at), text.text, text.n);
        *shown = found;
        if (!found) break;
        if (!request_work(ex, (uint64_t)(found - at) / BYTES_A_UNIT, "messages", error)) {
            return false;
        }
        at = found + text.n;
    }
    return true;
}

/* The messages on their way: those that stay move up. */
typedef struct folding {
    const exchange *ex; /* borrowed */
    json_t *messages;   /* borrowed */
    size_t n_kept;
    skv_buf text; /* of the last one that stays, where several become it */
    bool joins;   /* there are several */
    api_error *error;
} folding;

/* Several that became one text are in the first. */
static bool close_joined(folding *f)
{
    if (!f->joins) return true;
    json_t *content = json_of_text(f->ex, &f->text, "messages", f->error);
    skv_buf_clear(&f->text);
    f->joins = false;
    return content &&
           json_put_new(json_array_get(f->messages, f->n_kept - 1), "content", content, f->error);
}

static void add_text(skv_buf *out, const json_t *content)
{
    skv_buf_append(out, json_string_value(content), json_string_length(content));
}

static void join(folding *f, const json_t *content)
{
    if (!f->joins) {
        add_text(&f->text, json_object_get(json_array_get(f->messages, f->n_kept - 1), "content"));
    }
    f->joins = true;
    skv_buf_text(&f->text, "\n\n");
    add_text(&f->text, content);
}

static bool keep(folding *f, json_t *message)
{
    if (!close_joined(f)) return false;
    return json_array_set(f->messages, f->n_kept++, message) == 0 ||
           api_fail(f->error, 503, NULL, "no memory");
}

/* A system message becomes the user's, and one with those of the user around it. */
static bool fold_all(folding *f, bool *any)
{
    bool after_user = false, after_system = false; /* the message before is of that kind */
    for (size_t i = 0; i < json_array_size(f->messages); i++) {
        json_t *message = json_array_get(f->messages, i);
        const json_t *system = text_of(message, "system"), *user = text_of(message, "user");
        const bool joins = (system && (after_user || after_system)) || (user && after_system);
        if (!request_work(f->ex, 1, "messages", f->error)) return false;
        if (joins) {
            join(f, system ? system : user);
        } else if (!keep(f, message)) {
            return false;
        }
        if (system && !joins && !json_put_new(message, "role", json_string("user"), f->error))
            return false;
        after_system = system;
        after_user = user;
        *any = *any || system;
    }
    if (!close_joined(f)) return false;
    json_array_cut(f->messages, f->n_kept);
    return true;
}

static bool has_role(const json_t *message, const char *role)
{
    return json_text_is(json_object_get(message, "role"), role);
}

/* The first message that is not the system's. */
static size_t first_turn(const json_t *messages)
{
    size_t i = 0;
    while (has_role(json_array_get(messages, i), "system")) i++;
    return i;
}

bool system_join(const exchange *ex, json_t *messages, bool *any, api_error *error)
{
    const size_t n = first_turn(messages);
    folding f = {.ex = ex, .messages = messages, .text = request_text(ex), .error = error};
    bool ok = true;
    *any = false;
    for (size_t i = 0; ok && n > 1 && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const json_t *text = text_of(message, "system");
        const json_t *before = f.n_kept > 0 ? json_array_get(messages, f.n_kept - 1) : NULL;
        const bool joins = i < n && text && text_of(before, "system");
        ok = request_work(ex, 1, "messages", error);
        if (ok && joins) join(&f, text);
        if (ok && !joins) ok = keep(&f, message);
        *any = *any || joins;
    }
    ok = ok && close_joined(&f);
    if (ok && *any) json_array_cut(messages, f.n_kept);
    skv_buf_release(&f.text);
    return ok;
}

bool system_fold(const exchange *ex, json_t *messages, bool *any, api_error *error)
{
    folding f = {.ex = ex, .messages = messages, .text = request_text(ex), .error = error};
    bool users = false;
    *any = false;
    for (size_t i = 0; !users && i < json_array_size(messages); i++) {
        users = text_of(json_array_get(messages, i), "user");
    }
    const bool ok = !users || fold_all(&f, any);
    skv_buf_release(&f.text);
    return ok;
}

/* ---- turns in a row ---- */

/* Whether a message goes on with the one before: both are texts of the user, or of the assistant.
 */
static bool goes_on(const json_t *before, const json_t *message)
{
    const bool calls =
        json_object_get(before, "tool_calls") || json_object_get(message, "tool_calls");
    return (text_of(before, "user") && text_of(message, "user")) ||
           (!calls && text_of(before, "assistant") && text_of(message, "assistant"));
}

static bool put_user(const exchange *ex, json_t *messages, size_t i, api_error *error)
{
    if (!request_hold(ex, JSON_CONTAINER_BYTES + 2 * JSON_MEMBER_BYTES, "messages", error)) {
        return false;
    }
    json_t *user = json_pack("{s:s,s:s}", "role", "user", "content", "");
    return json_array_insert_new(messages, i, user) == 0 || api_fail(error, 503, NULL, "no memory");
}

bool turns_begin(const exchange *ex, json_t *messages, api_error *error)
{
    const size_t i = first_turn(messages);
    const json_t *first = json_array_get(messages, i);
    const bool late = has_role(first, "tool") || json_object_get(first, "tool_calls");
    return !late || put_user(ex, messages, i, error);
}

bool turns_join(const exchange *ex, json_t *messages, bool *any, api_error *error)
{
    folding f = {.ex = ex, .messages = messages, .text = request_text(ex), .error = error};
    const size_t i_first = first_turn(messages);
    *any = has_role(json_array_get(messages, i_first), "assistant");
    bool ok = !*any || put_user(ex, messages, i_first, error);
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const json_t *before = f.n_kept > 0 ? json_array_get(messages, f.n_kept - 1) : NULL;
        ok = request_work(ex, 1, "messages", error);
        if (ok && goes_on(before, message)) {
            join(&f, json_object_get(message, "content"));
            *any = true;
        } else if (ok) {
            ok = keep(&f, message);
        }
    }
    ok = ok && close_joined(&f);
    if (ok) json_array_cut(messages, f.n_kept);
    skv_buf_release(&f.text);
    return ok;
}
