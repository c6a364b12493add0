/* A call byte by byte: see reply_call.h. */
#include "text/reply_call.h"

#include <string.h>

enum { WORD_MAX = 64, ID_MAX = 64 };

void skv_reply_call_init(skv_reply_call *call, const char *const *names, size_t n_names,
                         const skv_buf *empty)
{
    *call = (skv_reply_call){.names = names, .n_names = n_names};
    call->raw = call->word = call->name = call->id = call->args = *empty;
    call->word.max = WORD_MAX;
}

void skv_reply_call_release(skv_reply_call *call)
{
    skv_buf_release(&call->raw);
    skv_buf_release(&call->word);
    skv_buf_release(&call->name);
    skv_buf_release(&call->id);
    skv_buf_release(&call->args);
}

void skv_reply_call_clear(skv_reply_call *call, skv_buf *text)
{
    call->failed = call->failed || (text->failed && !text->full);
    skv_buf_clear(text);
}

void skv_reply_call_begin(skv_reply_call *call, bool keyed)
{
    skv_json_scan_init(&call->scan);
    skv_reply_call_clear(call, &call->word);
    skv_reply_call_clear(call, &call->name);
    skv_reply_call_clear(call, &call->id);
    skv_reply_call_clear(call, &call->args);
    call->field = SKV_CALL_NO_FIELD;
    call->has_name = call->has_args = call->in_args = call->told = false;
    call->quoted = call->saw_args = false;
    call->keyed = keyed;
    call->n_outer = 1;
    call->n_raw_told = 0;
}

void skv_reply_call_begin_named(skv_reply_call *call, const char *name, size_t n)
{
    skv_reply_call_begin(call, false);
    skv_buf_append(&call->name, name, n);
    call->has_name = true;
    call->n_outer = 0;
}

void skv_reply_call_set_id(skv_reply_call *call, const char *id, size_t n)
{
    skv_reply_call_clear(call, &call->id);
    if (n > ID_MAX) return;
    for (size_t i = 0; i < n; i++) {
        const char c = id[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '-' && c != '.' && c != ':')
            return;
    }
    skv_buf_append(&call->id, id, n);
}

bool skv_reply_call_lacks_bracket(const skv_reply_call *call)
{
    return call->n_outer == 1 && call->has_name && call->has_args && !call->in_args &&
           call->scan.depth == 1 && call->scan.place == SKV_JSON_BEHIND;
}

bool skv_reply_call_knows(const skv_reply_call *call, const char *name, size_t n)
{
    if (!call->names) return n > 0;
    for (size_t i = 0; i < call->n_names; i++) {
        const char *one = call->names[i];
        if (strlen(one) == n && memcmp(one, name, n) == 0) return true;
    }
    return false;
}

static bool word_is(const skv_reply_call *call, const char *word)
{
    return call->word.size == strlen(word) && memcmp(call->word.data, word, call->word.size) == 0;
}

/* Which member begins; every one comes once. */
static bool begin_member(skv_reply_call *call)
{
    if (call->keyed) {
        call->field = SKV_CALL_ARGUMENTS;
        skv_buf_append(&call->name, call->word.data, call->word.size);
        call->has_name =
            !call->has_args && skv_reply_call_knows(call, call->name.data, call->name.size);
        return call->has_name;
    }
    if ((word_is(call, "name") || word_is(call, "tool_name")) && !call->has_name) {
        call->field = SKV_CALL_NAME;
        return true;
    }
    if ((word_is(call, "arguments") || word_is(call, "parameters")) && !call->has_args) {
        call->field = SKV_CALL_ARGUMENTS;
        call->saw_args = true;
        return true;
    }
    call->field = call->wants_id && word_is(call, "id") ? SKV_CALL_ID : SKV_CALL_NOTE;
    if (call->field == SKV_CALL_ID) skv_reply_call_clear(call, &call->id);
    return word_is(call, "type") || word_is(call, "id") || word_is(call, "tool_call_id");
}

static bool in_text(skv_json_place place)
{
    return place == SKV_JSON_STRING || place == SKV_JSON_ESCAPE || place == SKV_JSON_HEX;
}

/* A byte of the name of a member of the call itself; `before` is where it was read. */
static bool take_word(skv_reply_call *call, skv_json_place before, char c)
{
    if (!in_text(before)) {
        if (call->scan.place == SKV_JSON_STRING) skv_reply_call_clear(call, &call->word);
        return true;
    }
    if (call->scan.place == SKV_JSON_COLON) return begin_member(call);
    skv_buf_byte(&call->word, c);
    return call->word.size < WORD_MAX;
}

/* A byte of a function's name, which never has escapes. */
static bool take_name(skv_reply_call *call, skv_json_place before, char c)
{
    if (before == SKV_JSON_VALUE) {
        return call->scan.place == SKV_JSON_VALUE || call->scan.place == SKV_JSON_STRING;
    }
    if (before != SKV_JSON_STRING) return true;
    if (call->scan.place == SKV_JSON_BEHIND) {
        call->has_name = skv_reply_call_knows(call, call->name.data, call->name.size);
        return call->has_name;
    }
    skv_buf_byte(&call->name, c);
    return c != '\\';
}

/* A byte of an id, which is a text without escapes or is none. */
static bool take_id(skv_reply_call *call, skv_json_place before, char c)
{
    if (before != SKV_JSON_STRING) {
        if (in_text(before)) skv_buf_byte(&call->id, '\\');
        return true;
    }
    if (call->scan.place != SKV_JSON_BEHIND) return skv_buf_byte(&call->id, c);
    skv_buf id = call->id;
    call->id = (skv_buf){.max = id.max, .memory = id.memory};
    skv_reply_call_set_id(call, id.size > 0 ? id.data : "", id.size);
    skv_buf_release(&id);
    return true;
}

/* Arguments that were written as a text: what the text says, {} where it says nothing. */
static bool end_quoted(skv_reply_call *call)
{
    skv_buf text = {.max = call->args.max, .memory = call->args.memory};
    skv_json_scan scan;
    skv_json_unescape(call->args.data ? call->args.data : "", call->args.size, &text);
    skv_json_scan_init(&scan);
    bool blank = true, ended = false, ok = !text.failed;
    for (size_t i = 0; ok && i < text.size; i++) {
        const bool space = strchr(" \t\r\n", text.data[i]) && text.data[i] != 0;
        blank = blank && space;
        if (ended && space) continue;
        if (blank) continue;
        const skv_json_place place = skv_json_scan_byte(&scan, text.data[i]);
        const bool list = place == SKV_JSON_FIRST_VALUE && scan.depth == 1;
        ok = !ended && place != SKV_JSON_BAD && !list;
        ended = ended || place == SKV_JSON_ENDED;
    }
    ok = ok && (ended || blank);
    skv_reply_call_clear(call, &call->args);
    if (ok && !blank) skv_buf_append(&call->args, text.data, text.size);
    if (ok && blank) skv_buf_text(&call->args, "{}");
    call->has_args = ok;
    call->quoted = false;
    call->args.failed = call->args.failed || text.failed;
    skv_buf_release(&text);
    return ok;
}

/* A byte of the text that the arguments are in. */
static bool take_quoted(skv_reply_call *call, char c)
{
    if (call->scan.place == SKV_JSON_BEHIND) return end_quoted(call);
    return skv_buf_byte(&call->args, c);
}

/* The arguments begin: an object, one in a text, or null, which is none. */
static bool take_args(skv_reply_call *call, skv_json_place before, char c)
{
    if (call->quoted) return take_quoted(call, c);
    if (call->in_args) {
        skv_buf_byte(&call->args, c);
        call->in_args = call->scan.depth > call->n_outer;
        return true;
    }
    if (before != SKV_JSON_VALUE || call->scan.place == SKV_JSON_VALUE) return true;
    call->quoted = call->scan.place == SKV_JSON_STRING;
    if (call->quoted || (call->scan.place == SKV_JSON_WORD && c == 'n')) return true;
    if (call->scan.place != SKV_JSON_FIRST_NAME) return false;
    call->in_args = call->has_args = true;
    return skv_buf_byte(&call->args, c);
}

static bool take(skv_reply_call *call, skv_json_place before, char c)
{
    const bool words = before == SKV_JSON_NAME || before == SKV_JSON_FIRST_NAME ||
                       (in_text(before) && call->scan.in_name);
    if (!call->in_args && call->scan.depth == 1 && words) return take_word(call, before, c);
    switch (call->field) {
    case SKV_CALL_NAME: return take_name(call, before, c);
    case SKV_CALL_ARGUMENTS: return take_args(call, before, c);
    case SKV_CALL_ID: return take_id(call, before, c);
    case SKV_CALL_NOTE:
    case SKV_CALL_NO_FIELD: break;
    }
    return true;
}

skv_call_state skv_reply_call_byte(skv_reply_call *call, char byte)
{
    const skv_json_place before = call->scan.place;
    const size_t depth = call->scan.depth;
    const skv_json_place now = skv_json_scan_byte(&call->scan, byte);
    skv_buf_byte(&call->raw, byte);
    if (now == SKV_JSON_BAD) return SKV_CALL_BAD;
    if (call->n_outer == 0) {
        if (depth == 0 && now == SKV_JSON_VALUE) return SKV_CALL_MORE;
        if (depth == 0 && now != SKV_JSON_FIRST_NAME) return SKV_CALL_BAD;
        skv_buf_byte(&call->args, byte);
        call->has_args = true;
        return now == SKV_JSON_ENDED ? SKV_CALL_ENDED : SKV_CALL_MORE;
    }
    if (depth == 0) {
        return now == SKV_JSON_VALUE || now == SKV_JSON_FIRST_NAME ? SKV_CALL_MORE : SKV_CALL_BAD;
    }
    if (!take(call, before, byte)) return SKV_CALL_BAD;
    if (now != SKV_JSON_ENDED) return SKV_CALL_MORE;
    if (!call->has_name || (call->needs_args && !call->saw_args)) return SKV_CALL_BAD;
    if (!call->has_args) skv_buf_text(&call->args, "{}");
    call->has_args = true;
    return SKV_CALL_ENDED;
}
