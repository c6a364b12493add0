/* Answers in parts: see reply_parts.h. */
#include "answer/reply_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static reply_part *last_of(const reply_parts *parts, part_kind kind)
{
    reply_part *part = parts->n > 0 ? &parts->at[parts->n - 1] : NULL;
    return part && part->kind == kind ? part : NULL;
}

/* Room for one more part. */
static bool make_room(reply_parts *parts)
{
    const skv_buf_memory memory = exchange_text(parts->ex).memory;
    const size_t room = parts->room > 0 ? 2 * parts->room : 1;
    const size_t n_more = (room - parts->room) * sizeof *parts->at;
    if (parts->n < parts->room) return true;
    if (!memory.take(memory.user, n_more)) return false;
    reply_part *at = realloc(parts->at, room * sizeof *at);
    if (!at) {
        memory.give(memory.user, n_more);
        return false;
    }
    parts->at = at;
    parts->room = room;
    return true;
}

static reply_part *add_part(reply_parts *parts, part_kind kind)
{
    if (!make_room(parts)) {
        parts->failed = true;
        return NULL;
    }
    reply_part *part = &parts->at[parts->n++];
    *part = (reply_part){.kind = kind,
                         .name = exchange_text(parts->ex),
                         .text = exchange_text(parts->ex),
                         .own_id = exchange_text(parts->ex)};
    (void)snprintf(part->id, sizeof part->id, "%016llx",
                   (unsigned long long)server_draw(parts->ex->server));
    return part;
}

static void add_text(reply_parts *parts, part_kind kind, const char *text, size_t n)
{
    reply_part *part = last_of(parts, kind);
    if (!part) part = add_part(parts, kind);
    if (part) skv_buf_append(&part->text, text, n);
}

static void release_part(reply_part *part)
{
    custom_input_release(&part->input);
    skv_buf_release(&part->name);
    skv_buf_release(&part->text);
    skv_buf_release(&part->own_id);
}

/* If it was not sent yet, it was text all along; otherwise the rest of it is. */
static void end_bad_call(reply_parts *parts, const skv_reply_piece *piece)
{
    size_t n = piece->n_rest;
    if (!parts->streams && last_of(parts, PART_CALL)) {
        release_part(&parts->at[--parts->n]);
        n = piece->n;
    }
    if (n == 0) return;
    add_text(parts, PART_TEXT, piece->text + piece->n - n, n);
}

static void begin_call(reply_parts *parts, const skv_reply_piece *piece)
{
    reply_part *part = add_part(parts, PART_CALL);
    if (!part) return;
    const tool_origin *origin = tool_request_origin(parts->tools, piece->text, piece->n);
    skv_buf_append(&part->name, piece->text, piece->n);
    if (!origin) return;
    part->n_namespace = origin->n_namespace;
    part->custom = origin->custom;
    if (part->custom) custom_input_init(&part->input, exchange_text(parts->ex));
}

/* The model's own id, unless another call of the answer has it. */
static void set_id(reply_parts *parts, const skv_reply_piece *piece)
{
    reply_part *part = last_of(parts, PART_CALL);
    if (!part) return;
    for (size_t i = 0; i + 1 < parts->n; i++) {
        const skv_buf *other = &parts->at[i].own_id;
        if (other->size == piece->n && memcmp(other->data, piece->text, piece->n) == 0) return;
    }
    skv_buf_append(&part->own_id, piece->text, piece->n);
}

void reply_part_call_id(const reply_part *part, const char *prefix, skv_buf *out)
{
    /* Both are letters, digits and - _ . : */
    if (part->own_id.size > 0) {
        skv_buf_printf(out, "\"%s\"", part->own_id.data);
    } else {
        skv_buf_printf(out, "\"%s%s\"", prefix, part->id);
    }
    out->failed = out->failed || part->own_id.failed;
}

static void add_arguments(reply_part *part, const skv_reply_piece *piece)
{
    if (part->custom) {
        custom_input_push(&part->input, piece->text, piece->n, &part->text);
    } else {
        skv_buf_append(&part->text, piece->text, piece->n);
    }
}

static void end_call(reply_parts *parts)
{
    reply_part *part = last_of(parts, PART_CALL);
    if (part && part->custom) custom_input_end(&part->input, &part->text);
    if (part) part->whole = true;
    parts->n_whole++;
}

static void take_piece(void *user, const skv_reply_piece *piece)
{
    reply_parts *parts = user;
    reply_part *part;
    switch (piece->kind) {
    case SKV_REPLY_TEXT: add_text(parts, PART_TEXT, piece->text, piece->n); break;
    case SKV_REPLY_THOUGHT: add_text(parts, PART_THOUGHT, piece->text, piece->n); break;
    case SKV_REPLY_CALL: begin_call(parts, piece); break;
    case SKV_REPLY_CALL_ID: set_id(parts, piece); break;
    case SKV_REPLY_ARGUMENTS:
        part = last_of(parts, PART_CALL);
        if (part) add_arguments(part, piece);
        break;
    case SKV_REPLY_CALL_END: end_call(parts); break;
    case SKV_REPLY_CALL_BAD: end_bad_call(parts, piece); break;
    }
}

bool reply_parts_open(reply_parts *parts, exchange *ex, const tool_request *tools,
                      const skv_reply_options *options, bool streams)
{
    skv_reply_options o = *options;
    const skv_buf_memory memory = exchange_text(ex).memory;
    o.tell = take_piece;
    o.user = parts;
    o.memory = (skv_reply_memory){memory.take, memory.give, memory.user};
    *parts = (reply_parts){.ex = ex, .tools = tools, .streams = streams};
    return skv_reply_create(&o, &parts->reader, NULL) == SKV_OK;
}

void reply_parts_release(reply_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) release_part(&parts->at[i]);
    free(parts->at);
    if (parts->room > 0) exchange_give(parts->ex, parts->room * sizeof *parts->at);
    skv_reply_free(parts->reader);
    *parts = (reply_parts){.n = 0};
}

void reply_parts_push(reply_parts *parts, const char *text, size_t n, bool last)
{
    skv_status status = skv_reply_push(parts->reader, text, n, NULL);
    if (status == SKV_OK && last) status = skv_reply_finish(parts->reader, NULL);
    parts->failed = parts->failed || status != SKV_OK;
}

bool reply_parts_have_news(const reply_parts *parts)
{
    for (size_t i = parts->i_told; i < parts->n; i++) {
        if (!parts->at[i].begun || parts->at[i].n_told < parts->at[i].text.size) return true;
    }
    return false;
}

bool reply_parts_write(reply_parts *parts, part_kind kind, const char *before, skv_buf *out)
{
    skv_buf joined = exchange_text(parts->ex);
    bool any = false;
    for (size_t i = parts->i_told; i < parts->n; i++) {
        reply_part *part = &parts->at[i];
        out->failed = out->failed || part->text.failed;
        if (part->kind != kind || part->n_told == part->text.size) continue;
        skv_buf_append(&joined, part->text.data + part->n_told, part->text.size - part->n_told);
        part->n_told = part->text.size;
        part->begun = any = true;
    }
    if (any) {
        skv_buf_text(out, before);
        out_json(out, joined.data, joined.size);
    }
    out->failed = out->failed || joined.failed || parts->failed;
    skv_buf_release(&joined);
    return any;
}

void reply_parts_tell(reply_parts *parts, bool ended, const part_writer *writer, void *user,
                      skv_buf *out)
{
    for (; parts->i_told < parts->n; parts->i_told++) {
        const size_t i = parts->i_told;
        reply_part *part = &parts->at[i];
        if (!part->begun) writer->begin(user, out, part, i);
        part->begun = true;
        if (part->n_told < part->text.size) writer->more(user, out, part, i);
        part->n_told = part->text.size;
        out->failed = out->failed || part->text.failed || part->name.failed;
        if (i + 1 == parts->n && !ended) break;
        writer->end(user, out, part, i);
    }
    out->failed = out->failed || parts->failed;
}

/* ---- as messages ---- */

/* Counts the memory of the answer's messages. */
static bool hold_messages(const reply_parts *parts, api_error *error)
{
    size_t n = (2 + 2 * parts->n) * (JSON_CONTAINER_BYTES + 4 * JSON_MEMBER_BYTES);
    for (size_t i = 0; i < parts->n; i++)
        n += 2 * (parts->at[i].text.size + parts->at[i].name.size);
    return request_hold(parts->ex, n, "messages", error) &&
           request_work(parts->ex, n, "messages", error);
}

static bool has_thoughts(const json_t *message)
{
    return json_is_string(json_object_get(message, "reasoning_content")) ||
           json_is_string(json_object_get(message, "reasoning"));
}

/* Whether the client sends thoughts back: as it did so far. One that has not had any does. */
static bool sends_thoughts(const json_t *messages)
{
    size_t i, n_answers = 0, n_thoughts = 0;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        if (!json_text_is(json_object_get(message, "role"), "assistant")) continue;
        n_answers++;
        n_thoughts += has_thoughts(message);
    }
    return n_answers == 0 || n_thoughts > 0;
}

/* The texts of one kind, one after the other; NULL: there are none, or no memory. */
static json_t *join_texts(const reply_parts *parts, part_kind kind)
{
    api_error error;
    skv_buf text = request_text(parts->ex);
    for (size_t i = 0; i < parts->n; i++) {
        const skv_buf *part = &parts->at[i].text;
        if (parts->at[i].kind == kind) skv_buf_append(&text, part->data, part->size);
    }
    json_t *joined = text.size > 0 ? json_of_text(parts->ex, &text, "messages", &error) : NULL;
    skv_buf_release(&text);
    return joined;
}

static json_t *id_of(const exchange *ex, const reply_part *part)
{
    skv_buf text = request_text(ex);
    reply_part_call_id(part, ex->errors == ERRORS_MESSAGES ? "toolu_" : "call_", &text);
    json_t *id = text.failed ? NULL : json_loadb(text.data, text.size, JSON_DECODE_ANY, NULL);
    skv_buf_release(&text);
    return id;
}

static json_t *call_of(const exchange *ex, const reply_part *part)
{
    const char *type = part->custom ? "custom" : "function";
    json_t *function = json_pack("{s:s%, s:s%}", "name", part->name.data ? part->name.data : "",
                                 part->name.size, part->custom ? "input" : "arguments",
                                 part->text.data ? part->text.data : "", part->text.size);
    return json_pack("{s:o, s:s, s:o}", "id", id_of(ex, part), "type", type, type, function);
}

/* The next message after the answer: the results of its calls, or the user's. */
static bool add_next(const reply_parts *parts, const char *text, json_t *messages)
{
    const char *const mark = text;
    bool ok = true;
    for (size_t i = 0; i < parts->n && ok; i++) {
        if (parts->at[i].kind != PART_CALL) continue;
        ok = json_array_append_new(
                 messages, json_pack("{s:s, s:o, s:s}", "role", "tool", "tool_call_id",
                                     id_of(parts->ex, &parts->at[i]), "content", text)) == 0;
        text = "-";
    }
    if (ok && text == mark) {
        ok = json_array_append_new(messages,
                                   json_pack("{s:s, s:s}", "role", "user", "content", text)) == 0;
    }
    return ok;
}

/* The answer as the client has it. */
static bool add_answer(const reply_parts *parts, json_t *messages)
{
    const bool thinks = sends_thoughts(messages);
    json_t *calls = json_array(), *text = join_texts(parts, PART_TEXT);
    json_t *thought = thinks ? join_texts(parts, PART_THOUGHT) : NULL;
    bool ok = calls;
    for (size_t i = 0; i < parts->n && ok; i++) {
        if (parts->at[i].kind != PART_CALL) continue;
        ok = json_array_append_new(calls, call_of(parts->ex, &parts->at[i])) == 0;
    }
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", text ? text : json_string(""));
    if (thought) ok = json_object_set_new(message, "reasoning_content", thought) == 0 && ok;
    if (json_array_size(calls) > 0) ok = json_object_set(message, "tool_calls", calls) == 0 && ok;
    json_decref(calls);
    return json_array_append_new(messages, message) == 0 && ok;
}

bool reply_parts_add_messages(const reply_parts *parts, const char *mark, json_t *messages,
                              api_error *error)
{
    return hold_messages(parts, error) && add_answer(parts, messages) &&
           add_next(parts, mark, messages);
}
