/* Changes to prompts by option: see prompt_changes.h. */
#define _GNU_SOURCE /* memmem */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "prompt/prompt_changes.h"

#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skv/skv.h"

enum {
    BYTES_A_UNIT = 16,        /* that are searched */
    MATCH_STEPS = 10000,      /* of the pattern in one line: a line that takes more stays */
    VALUE_BYTES = 160,        /* of a text that is made, beside its bytes */
    TEXT_BYTES_MAX = 1 << 30, /* the budget is less */
    MARKS_A_THOUGHT = 6       /* its two ends, and twice two for the client's text around it */
};

/* Patterns with a name. */
static const struct {
    const char *name, *pattern;
} ready[] = {{"claude-code", "^x-anthropic-billing-header:"}};

struct line_pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
};

/* ---- lines of system text ---- */

bool line_pattern_open(const char *text, line_pattern **out, char *error)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128] = "no memory";
    line_pattern *pattern = calloc(1, sizeof *pattern);
    for (size_t i = 0; i < sizeof ready / sizeof ready[0]; i++) {
        if (strcmp(text, ready[i].name) == 0) text = ready[i].pattern;
    }
    if (pattern) {
        pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
        pattern->limits = pcre2_match_context_create(NULL);
    }
    if (pattern && pattern->code && pattern->limits) {
        (void)pcre2_set_match_limit(pattern->limits, MATCH_STEPS);
        *out = pattern;
        return true;
    }
    if (code != 0) (void)pcre2_get_error_message(code, why, sizeof why);
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "--prompt-strip: \"%.100s\" at byte %zu: %s", text,
                   (size_t)at, (const char *)why);
    line_pattern_free(pattern);
    return false;
}

void line_pattern_free(line_pattern *pattern)
{
    if (!pattern) return;
    pcre2_match_context_free(pattern->limits);
    pcre2_code_free(pattern->code);
    free(pattern);
}

static size_t line_length(const char *text, size_t n)
{
    const char *end = memchr(text, '\n', n);
    return end ? (size_t)(end - text) + 1 : n;
}

/* The text without the lines that match. */
static bool strip_lines(const line_pattern *pattern, skv_budget *budget, skv_text_piece text,
                        skv_buf *out, size_t *n_lines)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    bool ok = data;
    for (size_t i = 0, n; ok && i < text.n; i += n) {
        n = line_length(text.text + i, text.n - i);
        const size_t n_line = n - (text.text[i + n - 1] == '\n');
        const int found = pcre2_match(pattern->code, (PCRE2_SPTR)text.text + i, n_line, 0, 0, data,
                                      pattern->limits);
        const bool hard = found == PCRE2_ERROR_MATCHLIMIT;
        ok = skv_budget_work(budget, hard ? MATCH_STEPS : 1 + n / BYTES_A_UNIT);
        if (found < 0) skv_buf_append(out, text.text + i, n);
        *n_lines += found >= 0;
    }
    pcre2_match_data_free(data);
    return ok && !out->failed;
}

/* A text as a value, which counts until the request ends; NULL: no memory. */
static json_t *value_of(skv_budget *budget, const skv_buf *text)
{
    if (text->failed || !skv_budget_take(budget, VALUE_BYTES + text->size)) return NULL;
    return json_stringn(text->size > 0 ? text->data : "", text->size);
}

static bool strip_message(const line_pattern *pattern, skv_budget *budget, json_t *message,
                          size_t *n_all)
{
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    const bool system = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    if (!system || !json_is_string(content)) return true;
    size_t n_lines = 0;
    skv_buf text;
    skv_buf_init_within(&text, TEXT_BYTES_MAX, budget);
    const skv_text_piece given = {json_string_value(content), json_string_length(content)};
    bool ok = strip_lines(pattern, budget, given, &text, &n_lines);
    if (ok && n_lines > 0) {
        ok = json_object_set_new(message, "content", value_of(budget, &text)) == 0;
    }
    *n_all += n_lines;
    skv_buf_release(&text);
    return ok;
}

bool line_pattern_strip(const line_pattern *pattern, skv_budget *budget, json_t *messages,
                        size_t *n_lines)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        ok = strip_message(pattern, budget, json_array_get(messages, i), n_lines);
    }
    return ok;
}

/* ---- the order of tools ---- */

static const char *name_of(const json_t *tool)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    return name ? name : "";
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(json_t *const *)a), name_of(*(json_t *const *)b));
}

json_t *prompt_order_tools(const json_t *tools)
{
    const size_t n = json_array_size(tools);
    json_t **items = calloc(n + 1, sizeof(json_t *)), *out = json_array();
    bool ok = items && out;
    for (size_t i = 0; ok && i < n; i++) items[i] = json_array_get(tools, i);
    if (ok) qsort(items, n, sizeof(json_t *), by_name);
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append(out, items[i]) == 0;
    free(items);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* ---- thoughts ---- */

static const char blanks[] = " \t\r\n";

/* Without the blanks around it; n 0: the message has no thought. */
static skv_text_piece thought_of(const json_t *message)
{
    const json_t *thought = json_object_get(message, "reasoning_content");
    const char *role = json_string_value(json_object_get(message, "role"));
    skv_text_piece out = {"", 0};
    if (!role || strcmp(role, "assistant") != 0 || !json_is_string(thought)) return out;
    out = (skv_text_piece){json_string_value(thought), json_string_length(thought)};
    while (out.n > 0 && out.text[0] && strchr(blanks, out.text[0])) {
        out.text++;
        out.n--;
    }
    while (out.n > 0 && out.text[out.n - 1] && strchr(blanks, out.text[out.n - 1])) out.n--;
    return out;
}

/* The content with a mark in front of it; the one before goes into `kept`. */
static bool mark_message(skv_budget *budget, json_t *message, size_t i, kept_thoughts *kept)
{
    json_t *content = json_object_get(message, "content");
    skv_buf text;
    skv_buf_init_within(&text, TEXT_BYTES_MAX, budget);
    skv_buf_printf(&text, "%s%zu|>", kept->mark, i);
    if (json_is_string(content)) {
        skv_buf_append(&text, json_string_value(content), json_string_length(content));
    }
    json_t *marked = value_of(budget, &text),
           *before = content ? json_incref(content) : json_null();
    skv_buf_release(&text);
    const bool kept_it = json_array_set_new(kept->contents, i, before) == 0;
    const bool ok = kept_it && marked && json_object_set(message, "content", marked) == 0;
    json_decref(marked);
    return ok;
}

/* A place for the content of each message. */
static bool begin_kept(skv_budget *budget, size_t n, uint64_t draw, kept_thoughts *kept)
{
    if (kept->contents) return true;
    (void)snprintf(kept->mark, sizeof kept->mark, "<|swiftkv_thought_%016" PRIx64 "_", draw);
    kept->contents = skv_budget_take(budget, n * sizeof(json_t *)) ? json_array() : NULL;
    bool ok = kept->contents;
    for (size_t i = 0; ok && i < n; i++) {
        ok = json_array_append_new(kept->contents, json_false()) == 0;
    }
    return ok;
}

bool prompt_find_lost_thoughts(skv_budget *budget, json_t *messages, const rendered_text *rendered,
                               uint64_t draw, kept_thoughts *out)
{
    const size_t n = json_array_size(messages);
    const char *at = rendered->text.size > 0 ? rendered->text.data : "";
    const char *end = at + rendered->text.size;
    *out = (kept_thoughts){.contents = NULL};
    for (size_t i = 0; i < n; i++) {
        json_t *message = json_array_get(messages, i);
        const skv_text_piece thought = thought_of(message);
        if (thought.n == 0) continue;
        const char *found = memmem(at, (size_t)(end - at), thought.text, thought.n);
        const size_t n_read = (size_t)((found ? found : end) - at);
        if (!skv_budget_work(budget, 1 + n_read / BYTES_A_UNIT)) return false;
        if (found) at = found + thought.n;
        if (found) continue;
        if (!begin_kept(budget, n, draw, out) || !mark_message(budget, message, i, out)) {
            return false;
        }
    }
    return true;
}

void prompt_unmark_thoughts(json_t *messages, kept_thoughts *kept)
{
    for (size_t i = 0; i < json_array_size(kept->contents); i++) {
        json_t *before = json_array_get(kept->contents, i);
        if (json_is_false(before)) continue;
        (void)json_object_set(json_array_get(messages, i), "content", before);
    }
    json_decref(kept->contents);
    kept->contents = NULL;
}

/* The text that is put together anew, and which of it is the client's. */
typedef struct splicing {
    const rendered_text *from; /* borrowed */
    skv_buf text;
    size_t *at; /* owned, [room] */
    size_t n, room;
    size_t i_mark; /* in from->data: the next one */
} splicing;

/* From here on the text is, or is not, the client's. */
static void turn(splicing *s)
{
    if (s->n > 0 && s->at[s->n - 1] == s->text.size) {
        s->n--;
    } else if (s->n < s->room) {
        s->at[s->n++] = s->text.size;
    }
}

/* Copies [from, to) of the old text, with its parts that are the client's. */
static void copy_to(splicing *s, size_t from, size_t to)
{
    const skv_text_marks *data = &s->from->data;
    for (; s->i_mark < data->n && data->at[s->i_mark] <= to; s->i_mark++) {
        const size_t at = data->at[s->i_mark];
        if (at > from) skv_buf_append(&s->text, s->from->text.data + from, at - from);
        from = at > from ? at : from;
        turn(s);
    }
    skv_buf_append(&s->text, s->from->text.data + from, to - from);
}

static void add_own(splicing *s, const char *text)
{
    const bool inside = s->n % 2 == 1;
    if (inside) turn(s);
    skv_buf_text(&s->text, text);
    if (inside) turn(s);
}

static void add_thought(splicing *s, skv_text_piece thought)
{
    const bool inside = s->n % 2 == 1;
    add_own(s, "<think>\n");
    if (!inside) turn(s);
    skv_buf_append(&s->text, thought.text, thought.n);
    if (!inside) turn(s);
    add_own(s, "\n</think>\n\n");
}

/* After a mark: blank lines in front of a content, as templates cut them off; if there is none,
 * the line that parts it from calls. */
static size_t skip_lines(const rendered_text *from, size_t at, const json_t *content, bool calls)
{
    const bool empty = json_string_length(content) == 0;
    const size_t most = empty ? at + calls : SIZE_MAX;
    while (at < from->text.size && at < most && from->text.data[at] == '\n') at++;
    return at;
}

/* Returns how many thoughts were put in. */
static size_t splice_all(const json_t *messages, const kept_thoughts *kept, splicing *s)
{
    size_t at = 0, n_kept = 0;
    const skv_buf *text = &s->from->text;
    for (size_t i = 0; i < json_array_size(kept->contents); i++) {
        char mark[80];
        const json_t *before = json_array_get(kept->contents, i);
        if (json_is_false(before)) continue;
        const int n = snprintf(mark, sizeof mark, "%s%zu|>", kept->mark, i);
        const char *found = memmem(text->data + at, text->size - at, mark, (size_t)n);
        if (!found) continue;
        copy_to(s, at, (size_t)(found - text->data));
        const json_t *message = json_array_get(messages, i);
        const bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
        add_thought(s, thought_of(message));
        at = skip_lines(s->from, (size_t)(found - text->data) + (size_t)n, before, calls);
        n_kept++;
    }
    copy_to(s, at, text->size);
    return n_kept;
}

bool prompt_put_thoughts(skv_budget *budget, const json_t *messages, const kept_thoughts *kept,
                         rendered_text *rendered, size_t *n_kept)
{
    const size_t room = rendered->data.n + MARKS_A_THOUGHT * json_array_size(kept->contents);
    splicing s = {.from = rendered, .room = room};
    skv_buf_init_within(&s.text, TEXT_BYTES_MAX, budget);
    if (skv_budget_take(budget, room * sizeof *s.at)) s.at = calloc(room + 1, sizeof *s.at);
    if (s.at) *n_kept += splice_all(messages, kept, &s);
    if (!s.at || s.text.failed) {
        free(s.at);
        skv_buf_release(&s.text);
        return false;
    }
    skv_buf_release(&rendered->text);
    skv_text_free(rendered->data.at);
    *rendered = (rendered_text){.text = s.text, .data = {s.at, s.n}};
    return true;
}

/* ---- telling ---- */

void prompt_report_tell(const prompt_report *report, skv_buf *out)
{
    const size_t before = out->size;
    if (report->n_stripped > 0) skv_buf_printf(out, "strip=%zu", report->n_stripped);
    if (report->sorted) skv_buf_printf(out, "%ssort=tools", out->size > before ? ", " : "");
    if (report->n_kept > 0) {
        skv_buf_printf(out, "%skeep-thoughts=%zu", out->size > before ? ", " : "", report->n_kept);
    }
    if (!report->effort) return;
    skv_buf_printf(out, "%seffort=%s", out->size > before ? ", " : "", report->effort);
}
