/* The implementation of pretokenize_regex.h with PCRE2: rewrites Oniguruma's patterns for it, and
 * matches. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize_regex.h"

#include <pcre2.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode_class.h"

enum {
    PATTERN_MAX = 1 << 16, /* bytes */
    MATCH_LIMIT = 1 << 20, /* backtracking steps of one match */
    HEAP_LIMIT = 1 << 16,  /* KiB */
    STACK_MIN = 32 << 10,  /* bytes of the compiled code's stack */
    STACK_MAX = 4 << 20,
    UNKNOWN_BYTE = 0x1a /* stands for a byte that is no UTF-8, for matching only */
};

struct skv_regex {
    pcre2_code *code;
    char *pattern; /* owned; as the file has it, for messages */
};

struct skv_regex_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- rewriting ---- */

/*
 * Patterns are rewritten where the two engines differ: \s and \p{..} become explicit ranges from
 * our own tables (PCRE2's Unicode is older, and its \s has U+180E), \h is a hexadecimal digit,
 * (?m) is PCRE2's (?s). Class intersections and nested classes are refused.
 */
typedef struct rewriter {
    const char *pattern, *name;
    size_t n, at;
    skv_buf *out;
    bool in_class;
} rewriter;

/* Names of \p{..} that the tables know. */
static const struct {
    const char *name;
    unsigned flags;
} properties[] = {
    {"L", SKV_U_LETTER}, {"N", SKV_U_NUMBER}, {"P", SKV_U_PUNCT}, {"S", SKV_U_SYMBOL},
    {"M", SKV_U_MARK},   {"Ll", SKV_U_LOWER}, {"Han", SKV_U_HAN},
};

/* The ranges of all characters with (or without) the flags, as the inside of a class. */
static void put_ranges(skv_buf *out, unsigned flags, bool without)
{
    uint32_t start = 0;
    bool inside = false;
    for (uint32_t code = 0; code <= SKV_UNICODE_END; code++) {
        bool hit = code < SKV_UNICODE_END && (code < 0xd800 || code > 0xdfff) &&
                   ((skv_unicode_class(code) & flags) != 0) != without;
        if (hit && !inside) start = code;
        if (!hit && inside) {
            skv_buf_printf(out, "\\x{%x}-\\x{%x}", (unsigned)start, (unsigned)code - 1);
        }
        inside = hit;
    }
}

static void put_class(rewriter *r, unsigned flags, bool without)
{
    if (!r->in_class) skv_buf_text(r->out, "[");
    put_ranges(r->out, flags, without);
    if (!r->in_class) skv_buf_text(r->out, "]");
}

/* \p{Name}, \P{Name}, \p{^Name}: ours where the tables know it, PCRE2's otherwise. */
static void put_property(rewriter *r)
{
    size_t start = r->at + 2, end = start;
    bool without = r->pattern[r->at + 1] == 'P';
    if (start < r->n && r->pattern[start] == '{') {
        while (end < r->n && r->pattern[end] != '}') end++;
        start++;
    } else if (end < r->n) {
        end++;
    }
    size_t next = end < r->n && r->pattern[end] == '}' ? end + 1 : end;
    size_t from = start;
    bool inverted = without;
    if (from < end && r->pattern[from] == '^') {
        inverted = !inverted;
        from++;
    }
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        if (strlen(properties[i].name) != end - from ||
            memcmp(properties[i].name, r->pattern + from, end - from) != 0) {
            continue;
        }
        put_class(r, properties[i].flags, inverted);
        r->at = next;
        return;
    }
    skv_buf_append(r->out, r->pattern + r->at, next - r->at);
    r->at = next;
}

static void put_escape(rewriter *r)
{
    char c = r->at + 1 < r->n ? r->pattern[r->at + 1] : '\0';
    if (c == 'p' || c == 'P') {
        put_property(r);
        return;
    }
    if (c == 's' || c == 'S')
        put_class(r, SKV_U_SPACE, c == 'S');
    else if (c == 'h')
        skv_buf_text(r->out, r->in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
    else
        skv_buf_append(r->out, r->pattern + r->at, r->n - r->at < 2 ? r->n - r->at : 2);
    r->at += 2;
}

/* Copies one character inside [..]; false if PCRE2 cannot express it. */
static bool put_class_char(rewriter *r)
{
    const char *at = r->pattern + r->at;
    size_t left = r->n - r->at;
    if (left >= 2 && at[0] == '&' && at[1] == '&') return false;
    if (at[0] == '[') {
        const char *end = left >= 2 && at[1] == ':' ? memchr(at, ']', left) : NULL;
        if (!end || end[-1] != ':') return false;
        size_t n = (size_t)(end - at) + 1;
        skv_buf_append(r->out, at, n);
        r->at += n;
        return true;
    }
    if (at[0] == ']') r->in_class = false;
    skv_buf_byte(r->out, at[0]);
    r->at++;
    return true;
}

static void open_class(rewriter *r)
{
    r->in_class = true;
    skv_buf_byte(r->out, '[');
    r->at++;
    if (r->at < r->n && r->pattern[r->at] == '^') {
        skv_buf_byte(r->out, '^');
        r->at++;
    }
    if (r->at < r->n && r->pattern[r->at] == ']') {
        skv_buf_text(r->out, "\\]");
        r->at++;
    }
}

/* (?m: lets the dot match line ends in Ruby; that is s here. */
static void put_group_start(rewriter *r)
{
    size_t start = r->at;
    r->at += 2;
    while (r->at < r->n && strchr("imx-", r->pattern[r->at])) r->at++;
    for (size_t i = start; i < r->at; i++) {
        skv_buf_byte(r->out, i > start + 1 && r->pattern[i] == 'm' ? 's' : r->pattern[i]);
    }
}

/* Appends the rewritten pattern; SKV_UNSUPPORTED names the construct that PCRE2 cannot express. */
static skv_status rewrite(const char *pattern, size_t n, const char *name, skv_buf *out,
                          skv_error *err)
{
    rewriter r = {.pattern = pattern, .name = name, .n = n, .out = out};
    SKV_REQUIRE(!memchr(pattern, 0, n), err, SKV_FORMAT, "%s: a zero byte in a pattern", name);
    while (r.at < n) {
        char c = pattern[r.at];
        if (c == '\\') {
            put_escape(&r);
        } else if (r.in_class) {
            SKV_REQUIRE(put_class_char(&r), err, SKV_UNSUPPORTED,
                        "%s: class operations in the regular expression '%.*s'", name,
                        (int)(n < 200 ? n : 200), pattern);
        } else if (c == '[') {
            open_class(&r);
        } else if (c == '(' && r.at + 1 < n && pattern[r.at + 1] == '?') {
            put_group_start(&r);
        } else {
            skv_buf_byte(out, c);
            r.at++;
        }
    }
    SKV_REQUIRE(!out->failed, err, SKV_RANGE, "%s: a pattern that is too long", name);
    return SKV_OK;
}

/* ---- matching ---- */

static void *take(PCRE2_SIZE n, void *unused)
{
    (void)unused;
    return skv_alloc(n, 1);
}

static void give(void *block, void *unused)
{
    (void)unused;
    skv_free(block);
}

static skv_status compile(skv_regex *regex, const skv_buf *pattern, const char *name,
                          skv_error *err)
{
    int error;
    PCRE2_SIZE offset;
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code =
            pcre2_compile((PCRE2_SPTR)pattern->data, pattern->size,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &offset, context);
    }
    if (regex->code) (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    SKV_REQUIRE(context, err, SKV_MEMORY, "%s: no memory for a pattern", name);
    SKV_REQUIRE(regex->code, err, SKV_UNSUPPORTED, "%s: the regular expression '%s'", name,
                regex->pattern);
    return SKV_OK;
}

skv_status skv_regex_create(const char *pattern, size_t n, const char *name, skv_regex **out,
                            skv_error *err)
{
    SKV_REQUIRE(n <= PATTERN_MAX, err, SKV_RANGE, "%s: a pattern of %zu bytes, at most %d", name, n,
                (int)PATTERN_MAX);
    skv_buf rewritten;
    skv_buf_init(&rewritten, (size_t)PATTERN_MAX * 64);
    skv_regex *regex = skv_alloc_zero(1, sizeof *regex);
    skv_status status = SKV_MEMORY;
    if (regex) regex->pattern = skv_strndup(pattern, n);
    if (!regex || !regex->pattern) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for a pattern", name);
    } else {
        status = rewrite(pattern, n, name, &rewritten, err);
    }
    if (status == SKV_OK) status = compile(regex, &rewritten, name, err);
    skv_buf_release(&rewritten);
    if (status == SKV_OK)
        *out = regex;
    else
        skv_regex_free(regex);
    return status;
}

void skv_regex_free(skv_regex *regex)
{
    if (!regex) return;
    pcre2_code_free(regex->code);
    skv_free(regex->pattern);
    skv_free(regex);
}

void skv_regex_work_release(skv_regex_work *work)
{
    if (work->state) {
        pcre2_match_data_free(work->state->data);
        pcre2_match_context_free(work->state->context);
        pcre2_jit_stack_free(work->state->stack);
        skv_free(work->state);
        if (work->budget) skv_budget_give(work->budget, STACK_MAX);
    }
    skv_buf_release(&work->valid);
    *work = (skv_regex_work){0};
}

static bool make_state(skv_regex_work *work)
{
    if (work->state) return true;
    if (work->budget && !skv_budget_take(work->budget, STACK_MAX)) return false;
    struct skv_regex_state *state = skv_alloc_zero(1, sizeof *state);
    if (!state && work->budget) skv_budget_give(work->budget, STACK_MAX);
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    if (state && general) {
        state->data = pcre2_match_data_create(1, general);
        state->context = pcre2_match_context_create(general);
        state->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, general);
    }
    pcre2_general_context_free(general);
    work->state = state;
    skv_buf_init_within(&work->valid, SIZE_MAX / 4, work->budget);
    if (!state || !state->data || !state->context || !state->stack) {
        return false;
    }
    pcre2_set_match_limit(state->context, MATCH_LIMIT);
    pcre2_set_heap_limit(state->context, HEAP_LIMIT);
    pcre2_jit_stack_assign(state->context, NULL, state->stack);
    return true;
}

/* Bad bytes are masked in a copy of the same length, so that offsets stay. */
static bool mask_bad_bytes(skv_regex_search *search)
{
    skv_buf *copy = &search->work->valid;
    skv_buf_clear(copy);
    if (!skv_buf_append(copy, search->text, search->n)) return false;
    for (size_t i = 0; i < copy->size;) {
        uint32_t code;
        size_t length = skv_utf8_decode(copy->data + i, copy->size - i, &code);
        if (code == SKV_UTF8_BAD) memset(copy->data + i, UNKNOWN_BYTE, length);
        i += length;
    }
    search->text = copy->data;
    return true;
}

skv_status skv_regex_begin(skv_regex_search *search, const skv_regex *regex, skv_regex_work *work,
                           const char *text, size_t n, skv_error *err)
{
    size_t bad;
    *search = (skv_regex_search){.regex = regex, .work = work, .text = text, .n = n};
    if (make_state(work) && (skv_utf8_valid(text, n, &bad) || mask_bad_bytes(search)))
        return SKV_OK;
    if (work->budget) SKV_TRY(skv_budget_check(work->budget, "splitting", err));
    return skv_fail(err, SKV_MEMORY, "no memory to match a pattern");
}

static size_t next_char(const skv_regex_search *search, size_t at)
{
    at++;
    while (at < search->n && ((unsigned char)search->text[at] & 0xc0) == 0x80) at++;
    return at;
}

skv_status skv_regex_next(skv_regex_search *search, bool *found, size_t *start, size_t *end,
                          skv_error *err)
{
    const struct skv_regex_state *state = search->work->state;
    *found = false;
    while (search->at <= search->n) {
        int got = pcre2_match(search->regex->code, (PCRE2_SPTR)search->text, search->n, search->at,
                              PCRE2_NO_UTF_CHECK, state->data, state->context);
        if (got == PCRE2_ERROR_NOMATCH) break;
        SKV_REQUIRE(got >= 0, err, SKV_RANGE, "the pattern '%s' takes too long on this text",
                    search->regex->pattern);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(state->data);
        *start = at[0];
        *end = at[1] < at[0] ? at[0] : at[1];
        search->at = *end > *start ? *end : next_char(search, *end);
        if (*end == *start && search->any && *end == search->last_end) continue;
        search->any = true;
        search->last_end = *end;
        *found = true;
        return SKV_OK;
    }
    search->at = search->n + 1;
    return SKV_OK;
}
