/*
 * Runs the steps. A step hands each of its pieces to the next one at once, so that a word reaches
 * the model while it is in cache and no list of pieces is kept.
 */
#include "text/pretokenize.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode_class.h"

typedef struct run {
    skv_pre_work *work;
    size_t i_step;
    bool first; /* the piece begins the text */
    /* The piece that is not yet handed on, for the behaviours that join. */
    const char *base;
    size_t held_start, held_end;
    bool holds, held_match;
} run;

static skv_status run_step(skv_pre_work *work, size_t i, const char *text, size_t n, bool first,
                           skv_error *err);

void skv_pretokenizer_release(skv_pretokenizer *pre)
{
    for (size_t i = 0; i < pre->n_steps; i++) {
        skv_regex_free(pre->steps[i].regex);
        skv_free(pre->steps[i].text);
    }
    *pre = (skv_pretokenizer){0};
}

void skv_pre_work_init(skv_pre_work *work, const skv_pretokenizer *pre, size_t max,
                       skv_budget *budget, skv_word_fn *word, void *arg)
{
    *work = (skv_pre_work){.pre = pre, .word = word, .arg = arg};
    for (size_t i = 0; i < SKV_PRE_STEPS_MAX; i++) {
        skv_buf_init_within(&work->texts[i], max, budget);
        work->regexes[i].budget = budget;
    }
}

void skv_pre_work_release(skv_pre_work *work)
{
    for (size_t i = 0; i < SKV_PRE_STEPS_MAX; i++) {
        skv_buf_release(&work->texts[i]);
        skv_regex_work_release(&work->regexes[i]);
    }
}

skv_pre_step *skv_pretokenizer_add(skv_pretokenizer *pre, skv_pre_kind kind)
{
    if (pre->n_steps == SKV_PRE_STEPS_MAX) return NULL;
    skv_pre_step *step = &pre->steps[pre->n_steps++];
    *step = (skv_pre_step){.kind = kind};
    return step;
}

skv_status skv_pretokenizer_add_regex(skv_pretokenizer *pre, const char *pattern, size_t n,
                                      skv_split_behavior behavior, bool invert, const char *name,
                                      skv_error *err)
{
    skv_scan_fn *scan = skv_scan_for_pattern(pattern, n);
    bool every_match =
        (behavior == SKV_SPLIT_ISOLATED) || (behavior == SKV_SPLIT_REMOVED && invert);
    bool by_scan = scan && every_match;
    skv_pre_step *step = skv_pretokenizer_add(pre, by_scan ? SKV_PRE_SCAN : SKV_PRE_REGEX);
    SKV_REQUIRE(step, err, SKV_RANGE, "%s: more than %d pre_tokenizer steps", name,
                (int)SKV_PRE_STEPS_MAX);
    step->behavior = behavior;
    step->invert = invert;
    step->scan = scan;
    return by_scan ? SKV_OK : skv_regex_create(pattern, n, name, &step->regex, err);
}

uint32_t skv_alphabet_char(unsigned char byte)
{
    if (byte <= ' ') return 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0) return 0x121u + (byte - 0x7fu);
    return byte == 0xad ? 0x143u : byte;
}

int skv_alphabet_byte(uint32_t code)
{
    if (code >= 0x100 && code <= 0x120) return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142) return (int)(code - 0x121 + 0x7f);
    if (code == 0x143) return 0xad;
    bool itself = (code > ' ' && code < 0x7f) || (code > 0xa0 && code <= 0xff && code != 0xad);
    return itself ? (int)code : -1;
}

static skv_status hand_on(run *r, size_t start, size_t end, skv_error *err)
{
    if (end <= start) return SKV_OK;
    return run_step(r->work, r->i_step + 1, r->base + start, end - start, r->first && start == 0,
                    err);
}

static skv_status flush(run *r, skv_error *err)
{
    if (!r->holds) return SKV_OK;
    r->holds = false;
    return hand_on(r, r->held_start, r->held_end, err);
}

/* Handles one stretch, match or not, in order; joins it to the held one according to the
 * behaviour. */
static skv_status stretch(run *r, size_t start, size_t end, bool match, skv_error *err)
{
    const skv_pre_step *step = &r->work->pre->steps[r->i_step];
    match = match != step->invert;
    bool joins = false;
    switch (step->behavior) {
    case SKV_SPLIT_ISOLATED: return hand_on(r, start, end, err);
    case SKV_SPLIT_REMOVED: return match ? SKV_OK : hand_on(r, start, end, err);
    case SKV_SPLIT_CONTIGUOUS: joins = r->holds && match == r->held_match; break;
    case SKV_SPLIT_MERGED_WITH_PREVIOUS: joins = r->holds && match && !r->held_match; break;
    case SKV_SPLIT_MERGED_WITH_NEXT: joins = r->holds && !match && r->held_match; break;
    }
    if (joins) {
        r->held_end = end;
        r->held_match = match;
        return SKV_OK;
    }
    SKV_TRY(flush(r, err));
    r->holds = true;
    r->held_start = start;
    r->held_end = end;
    r->held_match = match;
    return SKV_OK;
}

static skv_status run_scan(run *r, const skv_pre_step *step, size_t n, skv_error *err)
{
    for (size_t at = 0; at < n;) {
        size_t length = step->scan(r->base + at, n - at);
        SKV_TRY(run_step(r->work, r->i_step + 1, r->base + at, length, r->first && at == 0, err));
        at += length;
    }
    return SKV_OK;
}

static skv_status run_regex(run *r, const skv_pre_step *step, size_t n, skv_error *err)
{
    skv_regex_search search;
    size_t done = 0, start, end;
    bool found;
    SKV_TRY(skv_regex_begin(&search, step->regex, &r->work->regexes[r->i_step], r->base, n, err));
    for (;;) {
        SKV_TRY(skv_regex_next(&search, &found, &start, &end, err));
        if (!found) break;
        if (start > done) SKV_TRY(stretch(r, done, start, false, err));
        SKV_TRY(stretch(r, start, end, true, err));
        done = end;
    }
    if (done < n) SKV_TRY(stretch(r, done, n, false, err));
    return flush(r, err);
}

static skv_status run_text(run *r, const char *text, size_t n_text, size_t n, skv_error *err)
{
    size_t done = 0;
    for (size_t i = 0; n_text > 0 && i + n_text <= n;) {
        if (memcmp(r->base + i, text, n_text) != 0) {
            i++;
            continue;
        }
        if (i > done) SKV_TRY(stretch(r, done, i, false, err));
        SKV_TRY(stretch(r, i, i + n_text, true, err));
        i += n_text;
        done = i;
    }
    if (done < n) SKV_TRY(stretch(r, done, n, false, err));
    return flush(r, err);
}

static bool is_ascii_punct(unsigned char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static skv_status run_class(run *r, const skv_pre_step *step, size_t n, skv_error *err)
{
    size_t done = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = skv_utf8_decode(r->base + i, n - i, &code);
        bool hit = (skv_unicode_class(code) & step->classes) != 0 ||
                   (step->ascii_punct && code < 0x80 && is_ascii_punct((unsigned char)code));
        if (hit) {
            if (i > done) SKV_TRY(stretch(r, done, i, false, err));
            SKV_TRY(stretch(r, i, i + length, true, err));
            done = i + length;
        }
        i += length;
    }
    if (done < n) SKV_TRY(stretch(r, done, n, false, err));
    return flush(r, err);
}

static void put_metaspace(const skv_pre_step *step, const char *text, size_t n, bool first,
                          skv_buf *out)
{
    bool has = text[0] == ' ' || (n >= step->n_text && memcmp(text, step->text, step->n_text) == 0);
    bool wants =
        step->prepend == SKV_PREPEND_ALWAYS || (step->prepend == SKV_PREPEND_FIRST && first);
    if (wants && !has) skv_buf_append(out, step->text, step->n_text);
    for (size_t i = 0; i < n;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t end = !space ? n : (size_t)(space - text);
        skv_buf_append(out, text + i, end - i);
        if (space) skv_buf_append(out, step->text, step->n_text);
        i = !space ? n : end + 1;
    }
}

static void put_alphabet(const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        skv_buf_append(out, bytes,
                       skv_utf8_encode(skv_alphabet_char((unsigned char)text[i]), bytes));
    }
}

/* Steps that write a new text, which the next step (or this one's split) then reads. */
static skv_status run_rewriting(run *r, const skv_pre_step *step, size_t n, skv_error *err)
{
    skv_buf *out = &r->work->texts[r->i_step];
    skv_buf_clear(out);
    if (step->kind == SKV_PRE_METASPACE) {
        put_metaspace(step, r->base, n, r->first, out);
    } else if (step->kind == SKV_PRE_ALPHABET) {
        put_alphabet(r->base, n, out);
    } else {
        skv_buf_byte(out, ' ');
        skv_buf_append(out, r->base, n);
    }
    if (out->failed && out->budget) SKV_TRY(skv_budget_check(out->budget, "splitting", err));
    SKV_REQUIRE(!out->full, err, SKV_RANGE, "splitting: makes more than %zu bytes of %zu", out->max,
                n);
    SKV_REQUIRE(!out->failed, err, SKV_MEMORY, "no memory to split %zu bytes of text", n);
    r->base = out->data;
    if (step->kind == SKV_PRE_METASPACE && step->split) {
        return run_text(r, step->text, step->n_text, out->size, err);
    }
    return hand_on(r, 0, out->size, err);
}

static skv_status run_step(skv_pre_work *work, size_t i, const char *text, size_t n, bool first,
                           skv_error *err)
{
    if (i == work->pre->n_steps) return work->word(work->arg, text, n, err);
    const skv_pre_step *step = &work->pre->steps[i];
    run r = {.work = work, .i_step = i, .first = first, .base = text};
    switch (step->kind) {
    case SKV_PRE_SCAN: return run_scan(&r, step, n, err);
    case SKV_PRE_REGEX: return run_regex(&r, step, n, err);
    case SKV_PRE_TEXT: return run_text(&r, step->text, step->n_text, n, err);
    case SKV_PRE_CLASS: return run_class(&r, step, n, err);
    case SKV_PRE_PREFIX:
        if (text[0] == ' ') return hand_on(&r, 0, n, err);
        return run_rewriting(&r, step, n, err);
    case SKV_PRE_METASPACE:
    case SKV_PRE_ALPHABET: return run_rewriting(&r, step, n, err);
    }
    return SKV_OK;
}

skv_status skv_pretokenize(skv_pre_work *work, const char *text, size_t n, bool first,
                           skv_error *err)
{
    return n == 0 ? SKV_OK : run_step(work, 0, text, n, first, err);
}
