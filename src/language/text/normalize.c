/* The steps of normalisation; the Unicode forms through utf8proc's tables. */
#include "text/normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/unicode_class.h"

enum { BYTES_A_UNIT = 8, LOOK_CHARS = 1 << 14 /* about a millisecond */ };

/* All characters below U+0300 are their own NFC, and their UTF-8 begins below this byte. */
#define FIRST_COMPOSING_BYTE 0xcc

void skv_normalizer_release(skv_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n_steps; i++) {
        skv_free(normalizer->steps[i].from);
        skv_free(normalizer->steps[i].to);
        skv_regex_free(normalizer->steps[i].regex);
    }
    *normalizer = (skv_normalizer){0};
}

size_t skv_text_growth(size_t n)
{
    enum { GROWTH = 32, ALWAYS = 1 << 16, MAX = 1 << 30 };
    return n < MAX / GROWTH ? GROWTH * n + ALWAYS : skv_max_size(n, MAX);
}

void skv_norm_work_init(skv_norm_work *work, skv_budget *budget)
{
    *work = (skv_norm_work){.budget = budget, .regex = {.budget = budget}};
    skv_buf_init_within(&work->buffers[0], 0, budget);
    skv_buf_init_within(&work->buffers[1], 0, budget);
    skv_buf_init_within(&work->spare, 0, budget);
}

void skv_norm_work_release(skv_norm_work *work)
{
    skv_buf_release(&work->buffers[0]);
    skv_buf_release(&work->buffers[1]);
    skv_buf_release(&work->spare);
    skv_budget_free(work->budget, work->marks, work->marks_room, sizeof *work->marks);
    skv_budget_free(work->budget, work->codes, work->n_codes, sizeof *work->codes);
    skv_regex_work_release(&work->regex);
    *work = (skv_norm_work){0};
}

static void append_code(skv_buf *out, uint32_t code)
{
    char bytes[4];
    skv_buf_append(out, bytes, skv_utf8_encode(code, bytes));
}

/* Nothing to do for NFC; the other forms change no ASCII. */
static bool is_simple(skv_norm_kind kind, const char *text, size_t n)
{
    unsigned char limit = kind == SKV_NORM_NFC ? FIRST_COMPOSING_BYTE : 0x80;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] >= limit && ((unsigned char)text[i] & 0xc0) != 0x80) {
            return false;
        }
    }
    return true;
}

static bool reserve_codes(skv_norm_work *work, size_t n)
{
    if (n <= work->n_codes) return true;
    return skv_budget_resize(work->budget, &work->codes, &work->n_codes, n + n / 2,
                             sizeof *work->codes);
}

static unsigned class_of(int32_t code)
{
    if ((skv_unicode_class((uint32_t)code) & SKV_U_NEWER) != 0) return 0;
    return (unsigned)utf8proc_get_property(code)->combining_class;
}

/*
 * Puts each run of combining marks in the order of their classes, keeping the order of equals:
 * a counting sort, so that a megabyte of marks stays linear.
 */
static bool order_marks(int32_t *codes, size_t n, int32_t *spare)
{
    for (size_t start = 0; start < n; start++) {
        size_t counts[257] = {0}, end = start;
        while (end < n && class_of(codes[end]) != 0) end++;
        if (end - start < 2) {
            start = end > start ? end - 1 : start;
            continue;
        }
        for (size_t i = start; i < end; i++) counts[class_of(codes[i]) + 1]++;
        for (size_t k = 1; k < 257; k++) counts[k] += counts[k - 1];
        for (size_t i = start; i < end; i++) spare[counts[class_of(codes[i])]++] = codes[i];
        memcpy(codes + start, spare, (end - start) * sizeof *codes);
        start = end - 1;
    }
    return true;
}

/* text -> decomposed code points in work->codes; a bad byte becomes -1 - byte. */
static bool decompose(skv_norm_work *work, const char *text, size_t n, bool compatible,
                      size_t *n_codes)
{
    utf8proc_option_t options =
        compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;
    size_t used = 0, looked = 0;
    int last_class = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        if (used - looked >= LOOK_CHARS) {
            if (!skv_budget_look(work->budget)) return false;
            looked = used;
        }
        if (!reserve_codes(work, used + 32)) return false;
        size_t length = skv_utf8_decode(text + i, n - i, &code);
        if (code == SKV_UTF8_BAD) {
            work->codes[used++] = -1 - (int32_t)(unsigned char)text[i];
            i++;
            continue;
        }
        if ((skv_unicode_class(code) & SKV_U_NEWER) != 0) {
            work->codes[used++] = (int32_t)code;
            i += length;
            continue;
        }
        utf8proc_ssize_t made = utf8proc_decompose_char((utf8proc_int32_t)code, work->codes + used,
                                                        32, options, &last_class);
        if (made < 0 || made > 32) return false;
        used += (size_t)made;
        i += length;
    }
    *n_codes = used;
    return true;
}

/*
 * Whether a character separates the stretches that the Unicode forms work on. Bad bytes have no
 * properties. U+11A7 (one before the first final consonant) composes with nothing, but utf8proc
 * joins it to the syllable before it.
 */
static bool stands_apart(int32_t code)
{
    return code < 0 || code == 0x11a7;
}

static void write_form(skv_norm_work *work, size_t n, bool compose, skv_buf *out)
{
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    for (size_t start = 0; start < n;) {
        size_t end = start;
        int32_t code = work->codes[start];
        if (stands_apart(code)) {
            if (code < 0)
                skv_buf_byte(out, (char)(-1 - code));
            else
                append_code(out, (uint32_t)code);
            start++;
            continue;
        }
        while (end < n && !stands_apart(work->codes[end])) end++;
        order_marks(work->codes + start, end - start, work->codes + n);
        size_t kept = end - start;
        if (compose) {
            kept = (size_t)utf8proc_normalize_utf32(work->codes + start, (utf8proc_ssize_t)kept,
                                                    options);
        }
        for (size_t i = 0; i < kept; i++) append_code(out, (uint32_t)work->codes[start + i]);
        start = end;
    }
}

static bool unicode_form(skv_norm_work *work, skv_norm_kind kind, const char *text, size_t n,
                         skv_buf *out)
{
    bool compatible = kind == SKV_NORM_NFKC || kind == SKV_NORM_NFKD;
    bool compose = kind == SKV_NORM_NFC || kind == SKV_NORM_NFKC;
    size_t n_codes;
    if (!decompose(work, text, n, compatible, &n_codes)) return false;
    if (!reserve_codes(work, n_codes * 2)) return false;
    write_form(work, n_codes, compose, out);
    return true;
}

/* The small letter of a capital, anything else as it is. U+0130 gives 'i' (without its dot). */
static uint32_t lower_case(uint32_t code)
{
    size_t low = 0, high = skv_unicode_n_lower;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (skv_unicode_lower_runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == skv_unicode_n_lower) return code;
    const skv_unicode_case *run = &skv_unicode_lower_runs[low];
    if (code < run->first || (code - run->first) % (uint32_t)run->step != 0) return code;
    return (uint32_t)((int32_t)code + run->delta);
}

static void lowercase(const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = skv_utf8_decode(text + i, n - i, &code);
        if (code == SKV_UTF8_BAD) {
            skv_buf_append(out, text + i, length);
        } else {
            append_code(out, lower_case(code));
            if (code == 0x130) append_code(out, 0x307); /* the dot of the Turkish capital I */
        }
        i += length;
    }
}

static void strip_accents(const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = skv_utf8_decode(text + i, n - i, &code);
        if ((skv_unicode_class(code) & SKV_U_OLD_MARK) == 0) skv_buf_append(out, text + i, length);
        i += length;
    }
}

static void replace_bad_bytes(const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = skv_utf8_decode(text + i, n - i, &code);
        if (code == SKV_UTF8_BAD) {
            skv_buf_text(out, "\xef\xbf\xbd");
            i++;
        } else {
            skv_buf_append(out, text + i, length);
            i += length;
        }
    }
}

static void replace(const skv_norm_step *step, const char *text, size_t n, skv_buf *out)
{
    size_t done = 0;
    for (size_t i = 0; step->n_from > 0 && i + step->n_from <= n;) {
        const char *hit = memchr(text + i, step->from[0], n - i - (step->n_from - 1));
        if (!hit) break;
        i = (size_t)(hit - text);
        if (memcmp(hit, step->from, step->n_from) != 0) {
            i++;
            continue;
        }
        skv_buf_append(out, text + done, i - done);
        skv_buf_append(out, step->to, step->n_to);
        i += step->n_from;
        done = i;
    }
    skv_buf_append(out, text + done, n - done);
}

static skv_status replace_regex(const skv_norm_step *step, skv_norm_work *work, const char *text,
                                size_t n, skv_buf *out, skv_error *err)
{
    skv_regex_search search;
    skv_status status = skv_regex_begin(&search, step->regex, &work->regex, text, n, err);
    size_t done = 0, start, end;
    bool found = false;
    while (status == SKV_OK &&
           (status = skv_regex_next(&search, &found, &start, &end, err)) == SKV_OK && found) {
        skv_buf_append(out, text + done, start - done);
        skv_buf_append(out, step->to, step->n_to);
        done = end;
    }
    skv_buf_append(out, text + done, n - done);
    return status;
}

static void strip(const skv_norm_step *step, const char **text, size_t *n)
{
    uint32_t code;
    while (step->left && *n > 0) {
        size_t length = skv_utf8_decode(*text, *n, &code);
        if ((skv_unicode_class(code) & SKV_U_SPACE) == 0) break;
        *text += length;
        *n -= length;
    }
    while (step->right && *n > 0) {
        size_t start = *n - 1;
        while (start > 0 && *n - start < 4 && ((unsigned char)(*text)[start] & 0xc0) == 0x80) {
            start--;
        }
        size_t length = skv_utf8_decode(*text + start, *n - start, &code);
        if (start + length != *n || (skv_unicode_class(code) & SKV_U_SPACE) == 0) break;
        *n = start;
    }
}

static skv_status apply(const skv_norm_step *step, skv_norm_work *work, const char *text, size_t n,
                        skv_buf *out, skv_error *err)
{
    bool made = true;
    switch (step->kind) {
    case SKV_NORM_NFC:
    case SKV_NORM_NFD:
    case SKV_NORM_NFKC:
    case SKV_NORM_NFKD: made = unicode_form(work, step->kind, text, n, out); break;
    case SKV_NORM_LOWERCASE: lowercase(text, n, out); break;
    case SKV_NORM_PREPEND:
        if (n > 0) skv_buf_append(out, step->to, step->n_to);
        skv_buf_append(out, text, n);
        break;
    case SKV_NORM_REPLACE: replace(step, text, n, out); break;
    case SKV_NORM_REPLACE_REGEX: SKV_TRY(replace_regex(step, work, text, n, out, err)); break;
    case SKV_NORM_STRIP: break;
    case SKV_NORM_VALID: replace_bad_bytes(text, n, out); break;
    case SKV_NORM_STRIP_ACCENTS: strip_accents(text, n, out); break;
    }
    if (made && !out->failed) return SKV_OK;
    if (work->budget) SKV_TRY(skv_budget_check(work->budget, "normalisation", err));
    SKV_REQUIRE(!out->full, err, SKV_RANGE, "normalisation: makes more than %zu bytes of %zu",
                out->max, n);
    return skv_fail(err, SKV_MEMORY, "no memory to normalise %zu bytes of text", n);
}

static bool changes_nothing(const skv_norm_step *step, const char *text, size_t n)
{
    size_t bad;
    switch (step->kind) {
    case SKV_NORM_NFC:
    case SKV_NORM_NFD:
    case SKV_NORM_NFKC:
    case SKV_NORM_NFKD: return is_simple(step->kind, text, n);
    case SKV_NORM_VALID: return skv_utf8_valid(text, n, &bad);
    case SKV_NORM_PREPEND: return n == 0 || step->n_to == 0;
    default: return false;
    }
}

bool skv_norm_work_mark(skv_norm_work *work, size_t n)
{
    work->marks_lost = false;
    if (n > work->marks_room &&
        !skv_budget_resize(work->budget, &work->marks, &work->marks_room, n, sizeof *work->marks))
        return false;
    work->n_marks = n;
    return true;
}

/* Moves marks to where they are in a step's result, stretch by stretch. A step that works across
 * two stretches (an accent after the letter of another, a pattern of several characters) gives a
 * different total length: the caller compares it with the sum, *n_made. */
static skv_status move_marks(const skv_norm_step *step, skv_norm_work *work, const char *text,
                             size_t n, size_t *n_made, skv_error *err)
{
    size_t from = 0, made = 0;
    if (step->kind == SKV_NORM_PREPEND) {
        for (size_t i = 0; i < work->n_marks; i++) work->marks[i] += step->n_to;
        *n_made = n + step->n_to;
        return SKV_OK;
    }
    for (size_t i = 0; i <= work->n_marks; i++) {
        size_t to = i < work->n_marks ? work->marks[i] : n;
        skv_buf_clear(&work->spare);
        work->spare.max = skv_text_growth(n);
        SKV_TRY(apply(step, work, text + from, to - from, &work->spare, err));
        made += work->spare.size;
        if (i < work->n_marks) work->marks[i] = made;
        from = to;
    }
    *n_made = made;
    return SKV_OK;
}

/* `n` bytes are left of a text, from byte `from` on. */
static void strip_marks(skv_norm_work *work, size_t from, size_t n)
{
    for (size_t i = 0; i < work->n_marks; i++) {
        size_t at = skv_max_size(work->marks[i], from) - from;
        work->marks[i] = skv_min_size(at, n);
    }
}

skv_status skv_normalize(const skv_normalizer *normalizer, skv_norm_work *work, const char *text,
                         size_t n, const char **out, size_t *n_out, skv_error *err)
{
    size_t i_buffer = 0, max = skv_text_growth(n);
    for (size_t i = 0; i < normalizer->n_steps; i++) {
        const skv_norm_step *step = &normalizer->steps[i];
        if (work->budget && !skv_budget_work(work->budget, n / BYTES_A_UNIT))
            return skv_budget_check(work->budget, "normalisation", err);
        if (step->kind == SKV_NORM_STRIP) {
            const char *whole = text;
            strip(step, &text, &n);
            strip_marks(work, (size_t)(text - whole), n);
        } else if (!changes_nothing(step, text, n)) {
            skv_buf *buf = &work->buffers[i_buffer];
            size_t n_made = 0;
            bool marked = work->n_marks > 0;
            if (marked) SKV_TRY(move_marks(step, work, text, n, &n_made, err));
            skv_buf_clear(buf);
            buf->max = max;
            SKV_TRY(apply(step, work, text, n, buf, err));
            if (marked && n_made != buf->size) {
                work->n_marks = 0;
                work->marks_lost = true;
            }
            text = buf->size > 0 ? buf->data : "";
            n = buf->size;
            i_buffer ^= 1;
        }
    }
    *out = text;
    *n_out = n;
    return SKV_OK;
}
