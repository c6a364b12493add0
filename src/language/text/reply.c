/*
 * Replies, told apart while they come: see skv/reply.h.
 *
 * Text that may turn out to be the beginning of a mark is held, and blanks in front of it: they
 * belong to the mark. So what is told does not depend on where the text was cut.
 */
#include "skv/reply.h"

#include <string.h>

#include "base/mem.h"
#include "text/reply_call.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

typedef enum reply_place {
    PLACE_BEGIN,   /* where a thought may begin */
    PLACE_THOUGHT, /* inside it */
    PLACE_TEXT,    /* in which calls begin by a mark */
    PLACE_CHOICE,  /* where a call without a mark may begin */
    PLACE_PLAIN,   /* only text comes */
    PLACE_CALL,
    PLACE_BEHIND, /* a call */
    PLACE_DROPPED /* nobody wants what comes */
} reply_place;

struct skv_reply {
    skv_reply_options options;
    reply_place place;
    bool skips_blanks; /* until something else comes */
    bool last;         /* nothing comes behind what is held */
    skv_buf held;
    size_t n_done; /* of held */
    skv_reply_call call;
};

static reply_place place_of_text(const skv_reply *r)
{
    switch (r->options.format.calls) {
    case SKV_CALLS_HERMES: return PLACE_TEXT;
    case SKV_CALLS_LLAMA3: return PLACE_CHOICE;
    case SKV_CALLS_NONE:
    case SKV_CALLS_COUNT: break;
    }
    return PLACE_PLAIN;
}

skv_status skv_reply_create(const skv_reply_options *options, skv_reply **out, skv_error *err)
{
    skv_reply *r = skv_alloc_zero(1, sizeof *r);
    SKV_REQUIRE(r, err, SKV_MEMORY, "reply: no memory");
    r->options = *options;
    skv_buf_init(&r->held, TEXT_BYTES_MAX);
    skv_reply_call_init(&r->call, options->names, options->n_names, TEXT_BYTES_MAX);
    r->skips_blanks = options->in_thought;
    r->place = options->in_thought      ? PLACE_THOUGHT
               : options->format.thinks ? PLACE_BEGIN
                                        : place_of_text(r);
    *out = r;
    return SKV_OK;
}

void skv_reply_free(skv_reply *reply)
{
    if (!reply) return;
    skv_buf_release(&reply->held);
    skv_reply_call_release(&reply->call);
    skv_free(reply);
}

/* ---- what is held ---- */

static const char *held(const skv_reply *r)
{
    return r->held.size > 0 ? r->held.data + r->n_done : "";
}

static size_t n_held(const skv_reply *r)
{
    return r->held.size - r->n_done;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t blanks(const char *text, size_t n)
{
    size_t k = 0;
    while (k < n && is_blank(text[k])) k++;
    return k;
}

static size_t without_last_blanks(const char *text, size_t n)
{
    while (n > 0 && is_blank(text[n - 1])) n--;
    return n;
}

typedef enum match { MATCH_NO, MATCH_PART, MATCH_WHOLE } match;

/* Whether text[0..n) begins with the mark, or may when more comes. */
static match match_mark(const skv_reply *r, const char *text, size_t n, const char *mark)
{
    const size_t n_mark = strlen(mark);
    if (n >= n_mark) return memcmp(text, mark, n_mark) == 0 ? MATCH_WHOLE : MATCH_NO;
    return !r->last && memcmp(text, mark, n) == 0 ? MATCH_PART : MATCH_NO;
}

/* The first place where the mark stands, or may; n: nowhere. */
static size_t find_mark(const skv_reply *r, const char *text, size_t n, const char *mark,
                        match *found)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = memchr(text + i, mark[0], n - i);
        if (!at) break;
        i = (size_t)(at - text);
        *found = match_mark(r, at, n - i, mark);
        if (*found != MATCH_NO) return i;
    }
    *found = MATCH_NO;
    return n;
}

static void tell(const skv_reply *r, skv_reply_kind kind, const char *text, size_t n)
{
    const skv_reply_piece piece = {.kind = kind, .text = text, .n = n};
    if (n > 0 || kind == SKV_REPLY_CALL_END) r->options.tell(r->options.user, &piece);
}

/* Drops blanks that nobody wants; false: there was nothing else. */
static bool skip_blanks(skv_reply *r)
{
    if (r->skips_blanks) r->n_done += blanks(held(r), n_held(r));
    r->skips_blanks = r->skips_blanks && n_held(r) == 0;
    return n_held(r) > 0;
}

/* Tells what stands before the mark; true: it came, and is done with. */
static bool take_until(skv_reply *r, skv_reply_kind kind, const char *mark)
{
    match found;
    if (!skip_blanks(r)) return false;
    const char *text = held(r);
    const size_t n = n_held(r), at = find_mark(r, text, n, mark, &found);
    const size_t shown = r->last && found == MATCH_NO ? n : without_last_blanks(text, at);
    tell(r, kind, text, shown);
    r->n_done += found == MATCH_WHOLE ? at + strlen(mark) : shown;
    return found == MATCH_WHOLE;
}

/* ---- calls ---- */

static void begin_call(skv_reply *r, const char *mark)
{
    skv_reply_call_begin(&r->call, mark, strlen(mark));
    r->place = PLACE_CALL;
}

/* Tells what is known of the call: its arguments only behind its name. */
static void tell_call(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    if (!call->has_name || !call->has_args) return;
    if (!call->told) tell(r, SKV_REPLY_CALL, call->name.data, call->name.size);
    call->told = true;
    if (call->args.size > 0) tell(r, SKV_REPLY_ARGUMENTS, call->args.data, call->args.size);
    skv_buf_clear(&call->args);
    call->n_raw_told = call->raw.size;
}

/* What was no call is text; what was told as one cannot be taken back. */
static void give_up_call(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    if (call->told) {
        const skv_reply_piece piece = {SKV_REPLY_CALL_BAD, call->raw.data, call->raw.size,
                                       call->raw.size - call->n_raw_told};
        r->options.tell(r->options.user, &piece);
    } else {
        tell(r, SKV_REPLY_TEXT, call->raw.data, call->raw.size);
    }
    r->place = r->options.format.calls == SKV_CALLS_HERMES ? PLACE_TEXT : PLACE_PLAIN;
}

static bool step_call(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    skv_call_state state = SKV_CALL_MORE;
    while (state == SKV_CALL_MORE && n_held(r) > 0) {
        state = skv_reply_call_byte(call, *held(r));
        r->n_done++;
    }
    tell_call(r);
    if (state == SKV_CALL_MORE) return false;
    if (state == SKV_CALL_BAD) {
        /* All but the last byte was told, however the text was cut. */
        if (call->told) call->n_raw_told = call->raw.size - 1;
        give_up_call(r);
        return true;
    }
    tell(r, SKV_REPLY_CALL_END, "", 0);
    r->place = r->options.one_call ? PLACE_DROPPED : PLACE_BEHIND;
    return true;
}

/* ---- places ---- */

static bool step_begin(skv_reply *r)
{
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(text, n);
    if (k == n && !r->last) return false;
    const match found = match_mark(r, text + k, n - k, SKV_MARK_THINK);
    if (found == MATCH_PART) return false;
    if (found == MATCH_WHOLE) {
        r->n_done += k + strlen(SKV_MARK_THINK);
        r->skips_blanks = true;
    }
    r->place = found == MATCH_WHOLE ? PLACE_THOUGHT : place_of_text(r);
    return true;
}

static bool step_thought(skv_reply *r)
{
    if (!take_until(r, SKV_REPLY_THOUGHT, SKV_MARK_THOUGHT)) return false;
    r->skips_blanks = true;
    r->place = place_of_text(r);
    return true;
}

static bool step_text(skv_reply *r)
{
    if (!take_until(r, SKV_REPLY_TEXT, SKV_MARK_CALL)) return false;
    begin_call(r, SKV_MARK_CALL);
    return true;
}

/* A call stands at the beginning of the answer, or it has none. */
static bool step_choice(skv_reply *r)
{
    if (!skip_blanks(r) && !r->last) return false;
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(text, n);
    if (k == n && !r->last) return false;
    const match python = match_mark(r, text + k, n - k, SKV_MARK_PYTHON);
    if (python == MATCH_PART) return false;
    if (python == MATCH_WHOLE) {
        r->n_done += k + strlen(SKV_MARK_PYTHON);
        begin_call(r, SKV_MARK_PYTHON);
    } else if (k < n && text[k] == '{') {
        begin_call(r, "");
    } else {
        r->place = PLACE_PLAIN;
    }
    return true;
}

static bool step_plain(skv_reply *r)
{
    if (!skip_blanks(r)) return false;
    tell(r, SKV_REPLY_TEXT, held(r), n_held(r));
    r->n_done = r->held.size;
    return false;
}

static bool step_behind(skv_reply *r)
{
    const bool hermes = r->options.format.calls == SKV_CALLS_HERMES;
    const char *mark = hermes ? SKV_MARK_CALLED : ";";
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(text, n);
    if (k == n) return false;
    const match found = match_mark(r, text + k, n - k, mark);
    if (found == MATCH_PART) return false;
    if (found == MATCH_WHOLE) r->n_done += k + strlen(mark);
    /* A mark that was cut off is no text. */
    if (r->last && n - k < strlen(mark) && memcmp(text + k, mark, n - k) == 0) return false;
    r->skips_blanks = true;
    r->place = hermes ? PLACE_TEXT : found == MATCH_WHOLE ? PLACE_CHOICE : PLACE_PLAIN;
    return true;
}

static bool step(skv_reply *r)
{
    switch (r->place) {
    case PLACE_BEGIN: return step_begin(r);
    case PLACE_THOUGHT: return step_thought(r);
    case PLACE_TEXT: return step_text(r);
    case PLACE_CHOICE: return step_choice(r);
    case PLACE_PLAIN: return step_plain(r);
    case PLACE_CALL: return step_call(r);
    case PLACE_BEHIND: return step_behind(r);
    case PLACE_DROPPED: r->n_done = r->held.size; return false;
    }
    return false;
}

/* ---- in and out ---- */

static skv_status run(skv_reply *r, skv_error *err)
{
    while (step(r)) continue;
    const bool failed =
        r->held.failed || r->call.raw.failed || r->call.args.failed || r->call.name.failed;
    SKV_REQUIRE(!failed, err, SKV_MEMORY, "reply: no memory for its text");
    const size_t n = n_held(r);
    if (n > 0 && r->n_done > 0) memmove(r->held.data, r->held.data + r->n_done, n);
    r->held.size = n;
    r->n_done = 0;
    return SKV_OK;
}

skv_status skv_reply_push(skv_reply *reply, const char *text, size_t n, skv_error *err)
{
    if (n > 0) skv_buf_append(&reply->held, text, n);
    return run(reply, err);
}

skv_status skv_reply_finish(skv_reply *reply, skv_error *err)
{
    reply->last = true;
    SKV_TRY(run(reply, err));
    if (reply->place == PLACE_CALL && !reply->call.told) give_up_call(reply);
    return SKV_OK;
}
