/*
 * Replies, told apart while they come: see skv/reply.h.
 *
 * Text that may turn out to be the beginning of a mark is held, and blanks in front of it: they
 * belong to the mark. So what is told does not depend on where the text was cut.
 */
#include "skv/reply.h"

#include <string.h>

#include "base/mem.h"
#include "text/json_scan.h"
#include "text/reply_call.h"
#include "text/reply_form.h"
#include "text/reply_frame.h"

enum {
    TEXT_BYTES_MAX = 1 << 28,
    HEAD_BYTES_MAX = 512,
    SLICE_BYTES = 256 /* that are read at a time: a mark that is missing is looked for in no more */
};

typedef enum reply_place {
    PLACE_BEGIN,   /* where a thought may begin */
    PLACE_THOUGHT, /* inside it */
    PLACE_FIRST,   /* the answer's first byte, where a call may begin without its mark */
    PLACE_TEXT,    /* in which calls begin by a mark */
    PLACE_CHOICE,  /* where a call without a mark may begin */
    PLACE_PLAIN,   /* only text comes */
    PLACE_HEADER,  /* of a message */
    PLACE_BODY,    /* of one that is no call */
    PLACE_LIST,    /* where a list of calls opens */
    PLACE_ITEM,    /* where one of several calls begins */
    PLACE_HEAD,    /* a call's name and id */
    PLACE_CALL,    /* byte by byte */
    PLACE_RAW,     /* a call that is read when it is whole */
    PLACE_BEHIND,  /* a call */
    PLACE_DROPPED  /* nobody wants what comes */
} reply_place;

struct skv_reply {
    skv_reply_options options;
    const skv_reply_form *form; /* NULL: no calls */
    const skv_thought_form *thought;
    reply_place place;
    skv_reply_kind body; /* of a message: TEXT or THOUGHT */
    bool begun;          /* text or a call was read */
    bool skips_blanks;   /* until something else comes */
    bool last;           /* nothing comes behind what is held */
    bool ended, closed;  /* BEHIND a call: its mark and its list were read */
    skv_buf held;
    size_t n_done;  /* of held */
    size_t n_blank; /* of held, which is nothing else and was waited with; 0: it is none of that */
    size_t n_front, front_at; /* of held, blanks that stand in front where n_done was front_at */
    size_t n_looked;          /* bytes that were looked at for marks: a test holds them linear */
    skv_raw_scan scan;
    skv_reply_call call;
    skv_frame_filter frame; /* every piece goes through it */
};

static reply_place place_of_text(const skv_reply *r)
{
    if (r->form && r->form->spelling == SKV_SPELL_MESSAGE) return PLACE_HEADER;
    if (!r->form || r->options.no_calls) return PLACE_PLAIN;
    if (!r->form->open) return PLACE_CHOICE;
    return r->begun ? PLACE_TEXT : PLACE_FIRST;
}

skv_status skv_reply_create(const skv_reply_options *options, skv_reply **out, skv_error *err)
{
    const skv_thought_marks thinks = options->format.thinks;
    const bool harmony = thinks == SKV_THOUGHTS_HARMONY;
    const skv_reply_memory *m = &options->memory;
    const skv_buf empty = {.max = TEXT_BYTES_MAX, .memory = {m->take, m->give, m->user}};
    const bool counted = !m->take || m->take(m->user, sizeof(skv_reply));
    skv_reply *r = counted ? skv_alloc_zero(1, sizeof *r) : NULL;
    if (!r && counted && m->give) m->give(m->user, sizeof *r);
    SKV_REQUIRE(r, err, SKV_MEMORY, "reply: no memory");
    r->options = *options;
    r->form = skv_reply_form_at(harmony ? SKV_CALLS_HARMONY : options->format.calls);
    r->thought = skv_thought_form_at(thinks);
    r->held = empty;
    skv_frame_init(&r->frame, options, r->form, &empty);
    skv_reply_call_init(&r->call, options->names, options->n_names, &empty);
    r->call.wants_id = r->form && r->form->own_id == SKV_ID_MEMBER;
    r->skips_blanks = options->in_thought;
    r->place = place_of_text(r);
    if (r->thought->begin) r->place = options->in_thought ? PLACE_THOUGHT : PLACE_BEGIN;
    *out = r;
    return SKV_OK;
}

void skv_reply_free(skv_reply *reply)
{
    if (!reply) return;
    const skv_reply_memory memory = reply->options.memory;
    skv_buf_release(&reply->held);
    skv_frame_release(&reply->frame);
    skv_reply_call_release(&reply->call);
    skv_free(reply);
    if (memory.give) memory.give(memory.user, sizeof *reply);
}

size_t skv_reply_looked(const skv_reply *reply)
{
    return reply->n_looked;
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

/* Those in front of what is held are looked at once. */
static size_t blanks(skv_reply *r, const char *text, size_t n)
{
    const bool front = n > 0 && text == held(r);
    const size_t known = front && r->front_at == r->n_done ? r->n_front : 0;
    size_t k = known < n ? known : n;
    while (k < n && skv_json_is_blank(text[k])) k++;
    r->n_looked += k - (known < k ? known : k);
    if (front) r->n_front = k, r->front_at = r->n_done;
    return k;
}

static size_t without_last_blanks(skv_reply *r, const char *text, size_t n)
{
    size_t k = n;
    while (k > 0 && skv_json_is_blank(text[k - 1])) k--;
    r->n_looked += n - k;
    return k;
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
static size_t find_mark(skv_reply *r, const char *text, size_t n, const char *mark, match *found)
{
    size_t i = 0;
    for (*found = MATCH_NO; i < n; i++) {
        const char *at = memchr(text + i, mark[0], n - i);
        i = at ? (size_t)(at - text) : n;
        if (!at) break;
        *found = match_mark(r, at, n - i, mark);
        if (*found != MATCH_NO) break;
    }
    r->n_looked += i;
    return i;
}

static void tell(skv_reply *r, skv_reply_kind kind, const char *text, size_t n)
{
    const skv_reply_piece piece = {.kind = kind, .text = text, .n = n};
    if (n > 0 || kind == SKV_REPLY_CALL_END) skv_frame_tell(&r->frame, &piece);
}

/* Drops blanks that nobody wants; false: there was nothing else. */
static bool skip_blanks(skv_reply *r)
{
    if (r->skips_blanks) r->n_done += blanks(r, held(r), n_held(r));
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
    const size_t shown = r->last && found == MATCH_NO ? n : without_last_blanks(r, text, at);
    tell(r, kind, text, shown);
    r->n_done += found == MATCH_WHOLE ? at + strlen(mark) : shown;
    return found == MATCH_WHOLE;
}

/* ---- calls ---- */

/* Reads n bytes of what is held into what the call is made of. */
static void take_raw(skv_reply *r, size_t n)
{
    skv_buf_append(&r->call.raw, held(r), n);
    r->n_done += n;
}

/* Reads a mark and the blanks in front of it; NULL stands nowhere. */
static match take_mark(skv_reply *r, const char *mark)
{
    if (!mark) return MATCH_NO;
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (k == n && !r->last) return MATCH_PART;
    const match found = match_mark(r, text + k, n - k, mark);
    if (found == MATCH_WHOLE) take_raw(r, k + strlen(mark));
    return found;
}

/* A call begins, behind its marks. */
static void begin_call(skv_reply *r)
{
    switch (r->form->spelling) {
    case SKV_SPELL_NAMED: r->place = PLACE_HEAD; return;
    case SKV_SPELL_XML:
    case SKV_SPELL_PYTHON:
    case SKV_SPELL_GEMMA:
        r->scan = (skv_raw_scan){0};
        r->place = PLACE_RAW;
        return;
    case SKV_SPELL_OBJECT:
    case SKV_SPELL_KEYED:
    case SKV_SPELL_MESSAGE:
        skv_reply_call_begin(&r->call, r->form->spelling == SKV_SPELL_KEYED);
        r->place = PLACE_CALL;
        return;
    }
}

/* Tells what is known of the call: its arguments only behind its name, and behind its id. */
static void tell_call(skv_reply *r, bool whole)
{
    skv_reply_call *call = &r->call;
    if (!call->has_name || !call->has_args || (call->wants_id && !whole)) return;
    if (!call->told) {
        tell(r, SKV_REPLY_CALL, call->name.data, call->name.size);
        tell(r, SKV_REPLY_CALL_ID, call->id.data, call->id.size);
    }
    call->told = true;
    if (call->args.size > 0) tell(r, SKV_REPLY_ARGUMENTS, call->args.data, call->args.size);
    skv_reply_call_clear(call, &call->args);
    call->n_raw_told = call->raw.size;
}

/* What was no call is text; what was told as one cannot be taken back. */
static void give_up_call(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    if (call->told) {
        const skv_reply_piece piece = {SKV_REPLY_CALL_BAD, call->raw.data, call->raw.size,
                                       call->raw.size - call->n_raw_told};
        skv_frame_tell(&r->frame, &piece);
    } else {
        tell(r, SKV_REPLY_TEXT, call->raw.data, call->raw.size);
    }
    call->told = call->needs_args = false;
    r->begun = true;
    const reply_place place = place_of_text(r);
    r->body = SKV_REPLY_TEXT;
    r->place = place == PLACE_CHOICE ? PLACE_PLAIN : place == PLACE_HEADER ? PLACE_BODY : place;
}

static void end_call(skv_reply *r)
{
    tell(r, SKV_REPLY_CALL_END, "", 0);
    skv_reply_call_clear(&r->call, &r->call.raw);
    r->call.told = r->call.needs_args = false;
    r->begun = true;
    r->ended = r->closed = false;
    r->place = r->options.one_call ? PLACE_DROPPED : PLACE_BEHIND;
}

/* Whether one of the marks behind a call stands here, or may. */
static match match_behind(const skv_reply *r)
{
    const char *const marks[] = {r->form->end, r->form->close, r->form->open};
    match best = MATCH_NO;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (!marks[i] || *held(r) != marks[i][0]) continue;
        const match found = match_mark(r, held(r), n_held(r), marks[i]);
        if (found == MATCH_WHOLE || best == MATCH_NO) best = found;
    }
    return best;
}

/* A call whose last bracket is missing, or whose arguments are: the mark behind it stands here. */
static match take_short_end(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    const bool no_args = call->n_outer == 0 && call->args.size == 0 && !call->has_args;
    if (!no_args && !skv_reply_call_lacks_bracket(call)) return MATCH_NO;
    match found = match_behind(r);
    if (no_args && found != MATCH_WHOLE) {
        const match null = match_mark(r, held(r), n_held(r), "null");
        if (null == MATCH_WHOLE) take_raw(r, 4);
        if (null != MATCH_NO) found = null;
    } else if (!no_args && r->form->list && *held(r) == ']') {
        found = MATCH_WHOLE;
    }
    if (found == MATCH_WHOLE && no_args) {
        call->has_args = skv_buf_text(&call->args, "{}");
    }
    return found;
}

static bool step_call(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    skv_call_state state = SKV_CALL_MORE;
    match early = MATCH_NO;
    while (state == SKV_CALL_MORE && n_held(r) > 0) {
        early = take_short_end(r);
        if (early != MATCH_NO) break;
        state = skv_reply_call_byte(call, *held(r));
        r->n_done++;
    }
    if (early == MATCH_WHOLE) state = SKV_CALL_ENDED;
    tell_call(r, state == SKV_CALL_ENDED);
    if (state == SKV_CALL_MORE) return false;
    if (state == SKV_CALL_BAD) {
        /* All but the last byte was told, however the text was cut. */
        if (call->told) call->n_raw_told = call->raw.size - 1;
        give_up_call(r);
        return true;
    }
    end_call(r);
    return true;
}

static bool step_list(skv_reply *r)
{
    const match found = take_mark(r, "[");
    if (found == MATCH_PART) return false;
    r->place = PLACE_ITEM;
    if (found == MATCH_NO) give_up_call(r);
    return true;
}

static bool step_item(skv_reply *r)
{
    const match found = r->form->begin ? take_mark(r, r->form->begin) : MATCH_WHOLE;
    if (found == MATCH_PART) return false;
    if (found == MATCH_WHOLE) {
        begin_call(r);
    } else {
        give_up_call(r);
    }
    return true;
}

/* The id in text[0..n), which skv_reply_name_in has read NAME out of. */
static void take_id(skv_reply *r, const char *text, size_t n, const char *name, size_t n_name)
{
    const skv_reply_form *form = r->form;
    const char *end = text + n, *from = text;
    switch (form->own_id) {
    case SKV_ID_BEHIND:
        from = name + n_name;
        if ((size_t)(end - from) < strlen(form->id)) return;
        if (memcmp(from, form->id, strlen(form->id)) != 0) return;
        from += strlen(form->id);
        break;
    case SKV_ID_WHOLE: from = name - strlen(form->prefix); break;
    case SKV_ID_BEFORE: end = name - strlen(form->prefix); break;
    case SKV_ID_NONE:
    case SKV_ID_MEMBER: return;
    }
    if (from >= end) return;
    const size_t n_id = without_last_blanks(r, from, (size_t)(end - from)),
                 k = blanks(r, from, n_id);
    skv_reply_call_set_id(&r->call, from + k, n_id - k);
}

static bool step_head(skv_reply *r)
{
    match found;
    size_t n_name = 0;
    const char *text = held(r), *mark = r->form->separator;
    const size_t n = n_held(r), at = find_mark(r, text, n, mark, &found);
    if (found != MATCH_WHOLE && !r->last && at <= HEAD_BYTES_MAX) return false;
    const char *name = found == MATCH_WHOLE && at <= HEAD_BYTES_MAX
                           ? skv_reply_name_in(r->form, text, at, &n_name)
                           : NULL;
    if (name && skv_reply_call_knows(&r->call, name, n_name)) {
        skv_reply_call_begin_named(&r->call, name, n_name);
        take_id(r, text, at, name, n_name);
        take_raw(r, at + strlen(mark));
        r->place = PLACE_CALL;
    } else {
        give_up_call(r);
    }
    return true;
}

/* Goes on to the end of the call, unless its name is no function's: then nothing of it was read,
 * however the text was cut. */
static skv_raw_state scan_raw(skv_reply *r)
{
    skv_raw_scan *scan = &r->scan;
    const char *text = held(r);
    skv_raw_state state = skv_raw_scan_text(r->form, scan, text, n_held(r));
    if (state == SKV_RAW_NAMED) {
        const skv_raw_span name = scan->name;
        const bool known = skv_reply_call_knows(&r->call, text + name.from, name.to - name.from);
        state = known ? skv_raw_scan_text(r->form, scan, text, n_held(r)) : SKV_RAW_BAD;
        if (!known) scan->pos = 0;
    }
    r->n_looked += scan->n_looked;
    scan->n_looked = 0;
    return state;
}

static bool step_raw(skv_reply *r)
{
    skv_reply_call *call = &r->call;
    if (r->scan.pos == 0) take_raw(r, blanks(r, held(r), n_held(r)));
    const skv_raw_state state = scan_raw(r);
    if (state == SKV_RAW_MORE && !r->last) return false;
    skv_reply_call_begin(call, false);
    /* What was cut off is text to its end, and what is no call is text as far as it was read: marks
     * inside it begin nothing. */
    const char *text = held(r);
    const size_t n = state == SKV_RAW_MORE ? n_held(r) : r->scan.pos;
    take_raw(r, n);
    if (state == SKV_RAW_ENDED) {
        call->has_name = call->has_args =
            skv_raw_convert(&r->options, r->form, text, n, &call->name, &call->args) &&
            skv_json_scan_is_whole(call->args.data, call->args.size);
        tell_call(r, true);
        if (call->told) {
            end_call(r);
            r->ended = r->form->spelling == SKV_SPELL_XML;
            return true;
        }
    }
    give_up_call(r);
    return true;
}

/* ---- messages ---- */

static bool may_be_header(const skv_reply_form *form, char c)
{
    if (form->prefix) return c == '<' || c == form->prefix[0];
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* A header that says what comes: a call, or a body. */
static bool take_header(skv_reply *r, const char *text, size_t n)
{
    const skv_reply_form *form = r->form;
    const bool thinks = r->options.format.thinks != SKV_THOUGHTS_NONE;
    size_t n_name = 0;
    const char *name = skv_reply_name_in(form, text, n, &n_name);
    match found = MATCH_NO;
    if (name && !r->options.no_calls && skv_reply_call_knows(&r->call, name, n_name)) {
        skv_reply_call_begin_named(&r->call, name, n_name);
        skv_reply_call_clear(&r->call, &r->call.raw);
        take_raw(r, n + strlen(form->separator));
        r->place = PLACE_CALL;
        return true;
    }
    if (name && (form->prefix || n_name != 3 || memcmp(name, "all", 3) != 0)) return false;
    if (!name && thinks) (void)find_mark(r, text, n, "analysis", &found);
    r->n_done += n + strlen(form->separator);
    r->body = found == MATCH_WHOLE ? SKV_REPLY_THOUGHT : SKV_REPLY_TEXT;
    r->place = PLACE_BODY;
    r->skips_blanks = true;
    return true;
}

static bool step_header(skv_reply *r)
{
    match found;
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (k == n) {
        if (!r->last) return false;
    } else if (may_be_header(r->form, text[k])) {
        const size_t at = find_mark(r, text + k, n - k, r->form->separator, &found);
        if (found != MATCH_WHOLE && !r->last && at <= HEAD_BYTES_MAX) return false;
        if (found == MATCH_WHOLE && at <= HEAD_BYTES_MAX && take_header(r, text, k + at)) {
            return true;
        }
    }
    r->body = SKV_REPLY_TEXT;
    r->place = PLACE_BODY;
    return true;
}

static bool step_body(skv_reply *r)
{
    if (!take_until(r, r->body, r->form->end)) return false;
    r->skips_blanks = true;
    r->place = PLACE_HEADER;
    return true;
}

/* ---- places ---- */

static bool step_begin(skv_reply *r)
{
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (k == n && !r->last) return false;
    const match found = match_mark(r, text + k, n - k, r->thought->begin);
    /* A model that may think or not says by the closing mark alone that it does not. */
    const match ended = match_mark(r, text + k, n - k, r->thought->end);
    if (found == MATCH_PART || ended == MATCH_PART) return false;
    if (found == MATCH_WHOLE) r->n_done += k + strlen(r->thought->begin);
    const bool thinks = found == MATCH_WHOLE || ended == MATCH_WHOLE;
    if (thinks) r->skips_blanks = true;
    r->place = thinks ? PLACE_THOUGHT : place_of_text(r);
    return true;
}

static bool step_thought(skv_reply *r)
{
    if (!take_until(r, SKV_REPLY_THOUGHT, r->thought->end)) return false;
    r->skips_blanks = true;
    r->place = place_of_text(r);
    return true;
}

/* An answer that begins with an object, or a list of them, may be calls whose first mark is
 * missing: they are if they have the members of calls and the name of a function. */
static bool step_first(skv_reply *r)
{
    if (!skip_blanks(r) && !r->last) return false;
    const char *text = held(r), first = r->form->list ? '[' : '{';
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (k == n && !r->last) return false;
    const match marked = match_mark(r, text + k, n - k, r->form->open);
    if (marked == MATCH_PART) return false;
    const bool object =
        r->form->spelling == SKV_SPELL_OBJECT && marked == MATCH_NO && k < n && text[k] == first;
    r->begun = true;
    r->place = PLACE_TEXT;
    if (!object) return true;
    skv_reply_call_clear(&r->call, &r->call.raw);
    take_raw(r, k);
    r->place = PLACE_LIST;
    if (!r->form->list) begin_call(r);
    r->call.needs_args = true;
    return true;
}

/* The mark with which a call may begin without the one that opens calls; NULL: there is none. */
static const char *bare_mark(const skv_reply_form *form)
{
    return form->open && form->begin && !form->list ? form->begin : NULL;
}

/* Text up to a mark of calls, which the blanks in front of it belong to. Models leave the first
 * mark out where another one says as much. */
static bool step_text(skv_reply *r)
{
    match found, bare_found = MATCH_NO;
    if (!skip_blanks(r)) return false;
    const char *text = held(r), *mark = r->form->open, *bare = bare_mark(r->form);
    const size_t n = n_held(r);
    size_t at = find_mark(r, text, n, mark, &found);
    const size_t bare_at = bare ? find_mark(r, text, n, bare, &bare_found) : n;
    const bool is_bare = bare_found != MATCH_NO && bare_at < at;
    if (is_bare) {
        at = bare_at;
        mark = bare;
        found = bare_found;
    }
    const size_t shown = r->last && found == MATCH_NO ? n : without_last_blanks(r, text, at);
    tell(r, SKV_REPLY_TEXT, text, shown);
    r->n_done += shown;
    if (found != MATCH_WHOLE) return false;
    skv_reply_call_clear(&r->call, &r->call.raw);
    take_raw(r, at - shown + strlen(mark));
    if (is_bare) {
        begin_call(r);
    } else {
        r->place = r->form->list ? PLACE_LIST : PLACE_ITEM;
    }
    return true;
}

/* A call stands at the beginning of the answer, or it has none. */
static bool step_choice(skv_reply *r)
{
    if (!skip_blanks(r) && !r->last) return false;
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (k == n && !r->last) return false;
    skv_reply_call_clear(&r->call, &r->call.raw);
    const match found = match_mark(r, text + k, n - k, r->form->begin);
    if (found == MATCH_PART) return false;
    if (found == MATCH_WHOLE) {
        r->n_done += k;
        take_raw(r, strlen(r->form->begin));
        begin_call(r);
    } else if (k < n && text[k] == '{') {
        begin_call(r);
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

/* Reads a mark behind a call; one that was cut off is no text. */
static match take_behind(skv_reply *r, const char *mark)
{
    const char *text = held(r);
    const size_t n = n_held(r), k = blanks(r, text, n);
    if (!mark) return MATCH_NO;
    if (k == n) return MATCH_PART;
    if (r->last && n - k < strlen(mark) && memcmp(text + k, mark, n - k) == 0) return MATCH_PART;
    return take_mark(r, mark);
}

/* Another object, where they stand between two marks without any of their own. */
static match next_object(skv_reply *r)
{
    const size_t n = n_held(r), k = blanks(r, held(r), n);
    if (k == n) return MATCH_PART;
    if (held(r)[k] != '{') return MATCH_NO;
    take_raw(r, k);
    begin_call(r);
    return MATCH_WHOLE;
}

/* Another call, or what closes their list; PART: more has to come. */
static match next_call(skv_reply *r)
{
    const skv_reply_form *form = r->form;
    if (skv_reply_form_has_objects(form) && !r->closed) return next_object(r);
    const bool items = form->open && form->begin;
    const char *mark = form->list ? "," : items ? form->begin : form->between;
    const match found = r->closed ? MATCH_NO : take_behind(r, mark);
    if (found != MATCH_WHOLE) return found;
    if (items && !form->list) {
        begin_call(r);
    } else {
        r->place = form->list ? PLACE_ITEM : PLACE_CHOICE;
    }
    return MATCH_WHOLE;
}

static bool step_behind(skv_reply *r)
{
    const skv_reply_form *form = r->form;
    match found = r->ended ? MATCH_NO : take_behind(r, form->end);
    if (found == MATCH_PART) return false;
    r->ended = true;
    skv_reply_call_clear(&r->call, &r->call.raw);
    found = next_call(r);
    if (found != MATCH_NO) return found == MATCH_WHOLE;
    if (form->list && !r->closed && take_behind(r, "]") == MATCH_PART) return false;
    r->closed = true;
    if (take_behind(r, form->close) == MATCH_PART) return false;
    r->skips_blanks = true;
    r->place = form->open || form->spelling == SKV_SPELL_MESSAGE ? place_of_text(r) : PLACE_PLAIN;
    return true;
}

static bool step(skv_reply *r)
{
    switch (r->place) {
    case PLACE_BEGIN: return step_begin(r);
    case PLACE_THOUGHT: return step_thought(r);
    case PLACE_FIRST: return step_first(r);
    case PLACE_TEXT: return step_text(r);
    case PLACE_CHOICE: return step_choice(r);
    case PLACE_PLAIN: return step_plain(r);
    case PLACE_HEADER: return step_header(r);
    case PLACE_BODY: return step_body(r);
    case PLACE_LIST: return step_list(r);
    case PLACE_ITEM: return step_item(r);
    case PLACE_HEAD: return step_head(r);
    case PLACE_CALL: return step_call(r);
    case PLACE_RAW: return step_raw(r);
    case PLACE_BEHIND: return step_behind(r);
    case PLACE_DROPPED: r->n_done = r->held.size; return false;
    }
    return false;
}

/* ---- in and out ---- */

/* Whether blanks alone are held until something else comes: they may belong to a mark, and none
 * begins with one. So the many that a text may have are looked at once. */
static bool waits_with_blanks(const skv_reply *r)
{
    switch (r->place) {
    case PLACE_BEGIN:
    case PLACE_THOUGHT:
    case PLACE_FIRST:
    case PLACE_TEXT:
    case PLACE_CHOICE:
    case PLACE_HEADER:
    case PLACE_BODY:
    case PLACE_LIST:
    case PLACE_ITEM:
    case PLACE_BEHIND: return true;
    case PLACE_PLAIN:
    case PLACE_HEAD:
    case PLACE_CALL:
    case PLACE_RAW:
    case PLACE_DROPPED: break;
    }
    return false;
}

static skv_status run(skv_reply *r, skv_error *err)
{
    while (step(r)) continue;
    const bool failed = r->held.failed || r->frame.held.failed || r->call.failed ||
                        r->call.raw.failed || r->call.args.failed || r->call.name.failed;
    SKV_REQUIRE(!failed, err, SKV_MEMORY, "reply: no memory for its text");
    const size_t n = n_held(r);
    if (r->front_at != r->n_done) r->n_front = 0;
    r->front_at = 0;
    if (n > 0 && r->n_done > 0) memmove(r->held.data, r->held.data + r->n_done, n);
    r->held.size = n;
    r->n_done = 0;
    r->n_blank = waits_with_blanks(r) && n > 0 && blanks(r, r->held.data, n) == n ? n : 0;
    return SKV_OK;
}

static skv_status push_slice(skv_reply *r, const char *text, size_t n, skv_error *err)
{
    skv_buf_append(&r->held, text, n);
    if (r->n_blank == 0 || r->held.failed || blanks(r, text, n) < n) return run(r, err);
    r->n_blank += n;
    return SKV_OK;
}

/* The bytes of the next slice, which ends between characters. */
static size_t slice_of(const char *text, size_t n)
{
    size_t k = SLICE_BYTES;
    if (n <= k) return n;
    while (k > SLICE_BYTES - 3 && ((unsigned char)text[k] & 0xc0) == 0x80) k--;
    return k;
}

skv_status skv_reply_push(skv_reply *reply, const char *text, size_t n, skv_error *err)
{
    for (size_t i = 0; i < n;) {
        const size_t n_slice = slice_of(text + i, n - i);
        SKV_TRY(push_slice(reply, text + i, n_slice, err));
        i += n_slice;
    }
    return SKV_OK;
}

skv_status skv_reply_finish(skv_reply *reply, skv_error *err)
{
    reply->last = true;
    SKV_TRY(run(reply, err));
    if (reply->place == PLACE_CALL && skv_reply_call_lacks_bracket(&reply->call)) {
        tell_call(reply, true);
        end_call(reply);
    } else if (reply->place == PLACE_CALL) {
        give_up_call(reply);
    }
    skv_frame_end(&reply->frame);
    return SKV_OK;
}
