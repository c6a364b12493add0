/* PCRE2 behind pretokenize_regex.h; the rewriting is in pretokenize_rewrite.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize_regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/pretokenize_rewrite.h"

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
    pcre2_compile_context *context = general != NULL ? pcre2_compile_context_create(general) : NULL;
    if (context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code =
            pcre2_compile((PCRE2_SPTR)pattern->data, pattern->size,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &offset, context);
    }
    if (regex->code != NULL) (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    SKV_REQUIRE(context != NULL, err, SKV_MEMORY, "%s: no memory for a pattern", name);
    SKV_REQUIRE(regex->code != NULL, err, SKV_UNSUPPORTED, "%s: the regular expression '%s'", name,
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
    if (regex != NULL) regex->pattern = skv_strndup(pattern, n);
    if (regex == NULL || regex->pattern == NULL) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for a pattern", name);
    } else {
        status = skv_regex_rewrite(pattern, n, name, &rewritten, err);
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
    if (regex == NULL) return;
    pcre2_code_free(regex->code);
    skv_free(regex->pattern);
    skv_free(regex);
}

void skv_regex_work_release(skv_regex_work *work)
{
    if (work->state != NULL) {
        pcre2_match_data_free(work->state->data);
        pcre2_match_context_free(work->state->context);
        pcre2_jit_stack_free(work->state->stack);
        skv_free(work->state);
    }
    skv_buf_release(&work->valid);
    *work = (skv_regex_work){0};
}

static bool make_state(skv_regex_work *work)
{
    if (work->state != NULL) return true;
    struct skv_regex_state *state = skv_alloc_zero(1, sizeof *state);
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    if (state != NULL && general != NULL) {
        state->data = pcre2_match_data_create(1, general);
        state->context = pcre2_match_context_create(general);
        state->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, general);
    }
    pcre2_general_context_free(general);
    work->state = state;
    skv_buf_init(&work->valid, SIZE_MAX / 4);
    if (state == NULL || state->data == NULL || state->context == NULL || state->stack == NULL) {
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
    SKV_REQUIRE(make_state(work), err, SKV_MEMORY, "no memory to match a pattern");
    if (skv_utf8_valid(text, n, &bad)) return SKV_OK;
    SKV_REQUIRE(mask_bad_bytes(search), err, SKV_MEMORY, "no memory to match a pattern");
    return SKV_OK;
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
