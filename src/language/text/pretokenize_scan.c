/*
 * The scanners. Each follows its pattern alternative by alternative; comments beside the code
 * derive the results that backtracking would give.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pretokenize.h"
#include "text/unicode_class.h"

/* clang-format off */
static const uint8_t ascii_class[128] = { /* the low eight skv_unicode flags */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 32, 32, 32, 32, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    32, 4, 4, 4, 8, 4, 4, 4, 4, 4, 4, 8, 4, 4, 4, 4,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 8, 8, 8, 4,
    4, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65,
    65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 4, 4, 4, 8, 4,
    8, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129,
    129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 129, 4, 8, 4, 8, 0,
};
/* clang-format on */

/* The class of the character at text[at], at < n, and its length. */
static inline unsigned class_at(const char *text, size_t n, size_t at, size_t *length)
{
    unsigned char byte = (unsigned char)text[at];
    if (byte < 0x80) {
        *length = 1;
        return ascii_class[byte];
    }
    uint32_t code;
    *length = skv_utf8_decode(text + at, n - at, &code);
    return skv_unicode_class(code);
}

/* The end of the run of characters from `at` whose class has one of these flags. */
static inline size_t run_of(const char *text, size_t n, size_t at, unsigned flags)
{
    size_t length;
    while (at < n && (class_at(text, n, at, &length) & flags) != 0) at += length;
    return at;
}

/* As above, for characters with none of these flags. */
static inline size_t run_without(const char *text, size_t n, size_t at, unsigned flags)
{
    size_t length;
    while (at < n && (class_at(text, n, at, &length) & flags) == 0) at += length;
    return at;
}

static inline bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

/*
 * 's 't 're 've 'm 'll 'd at text[at], in either case where any_case is set: its length, or 0.
 * Without case, U+017F (long s) is an s.
 */
static inline size_t contraction(const char *text, size_t n, size_t at, bool any_case)
{
    if (n - at < 2 || text[at] != '\'') return 0;
    char fold = any_case ? 0x20 : 0;
    char a = (char)(text[at + 1] | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (n - at < 3) return 0;
    char b = (char)(text[at + 2] | fold);
    if ((a == 'l' && b == 'l') || ((a == 'r' || a == 'v') && b == 'e')) return 3;
    bool long_s = any_case && memcmp(text + at + 1, "\xc5\xbf", 2) == 0;
    return long_s ? 3 : 0;
}

/* \s+(?!\S)|\s+ at white space: the run, less its last character if something follows. */
static size_t spaces(const char *text, size_t n)
{
    size_t at = 0, last = 0, length;
    while (at < n && (class_at(text, n, at, &length) & SKV_U_SPACE) != 0) {
        last = at;
        at += length;
    }
    return at == n || last == 0 ? at : last;
}

/*
 * '(s|t|re|..)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * (GPT-2, StarCoder, Falcon, and after another split many more)
 */
size_t skv_scan_gpt2(const char *text, size_t n)
{
    size_t length, at = text[0] == ' ' && n > 1 ? 1 : 0;
    if (text[0] == '\'' && (length = contraction(text, n, 0, false)) > 0) return length;
    unsigned class = class_at(text, n, at, &length);
    if ((class & SKV_U_SPACE) != 0) return spaces(text, n);
    if ((class & SKV_U_LETTER) != 0) return run_of(text, n, at + length, SKV_U_LETTER);
    if ((class & SKV_U_NUMBER) != 0) return run_of(text, n, at + length, SKV_U_NUMBER);
    return run_without(text, n, at + length, SKV_U_SPACE | SKV_U_LETTER | SKV_U_NUMBER);
}

/* \s*[\r\n]+|\s+(?!\S)|\s+: a run goes to its last line end, if it has one. */
static size_t spaces_by_line(const char *text, size_t n)
{
    size_t at = 0, line = 0, length;
    while (at < n && (class_at(text, n, at, &length) & SKV_U_SPACE) != 0) {
        at += length;
        if (is_line_end(text[at - 1])) line = at;
    }
    return line > 0 ? line : spaces(text, n);
}

/*  ?[^..]+ followed by line ends (and slashes): where punctuation from `at` ends. */
static inline size_t punctuation(const char *text, size_t n, size_t at, unsigned others,
                                 bool slashes)
{
    at = run_without(text, n, at, others);
    while (at < n && (is_line_end(text[at]) || (slashes && text[at] == '/'))) at++;
    return at;
}

static inline size_t digits(const char *text, size_t n, size_t max)
{
    size_t at = 0, length;
    for (size_t i = 0; i < max && at < n; i++) {
        if ((class_at(text, n, at, &length) & SKV_U_NUMBER) == 0) break;
        at += length;
    }
    return at;
}

/*
 * (?i:'s|..)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,max}| ?[^\s W \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * where W is \p{L}, or \p{L} and \p{M}.
 */
static inline size_t scan_cl100k(const char *text, size_t n, unsigned letters, size_t max_digits)
{
    size_t length, next_length;
    if (text[0] == '\'' && (length = contraction(text, n, 0, true)) > 0) {
        return length;
    }
    unsigned class = class_at(text, n, 0, &length);
    unsigned next = length < n ? class_at(text, n, length, &next_length) : 0;
    if ((class & letters) != 0) return run_of(text, n, length, letters);
    if ((class & SKV_U_NUMBER) != 0) return digits(text, n, max_digits);
    if ((next & letters) != 0 && !is_line_end(text[0])) return run_of(text, n, length, letters);
    unsigned others = SKV_U_SPACE | SKV_U_NUMBER | letters;
    if ((class & SKV_U_SPACE) == 0) return punctuation(text, n, length, others, false);
    if (text[0] == ' ' && n > 1 && (next & others) == 0) {
        return punctuation(text, n, 1, others, false);
    }
    return spaces_by_line(text, n);
}

static size_t scan_llama3(const char *text, size_t n)
{
    return scan_cl100k(text, n, SKV_U_LETTER, 3);
}

static size_t scan_qwen2(const char *text, size_t n)
{
    return scan_cl100k(text, n, SKV_U_LETTER, 1);
}

static size_t scan_qwen35(const char *text, size_t n)
{
    return scan_cl100k(text, n, SKV_U_LETTER | SKV_U_MARK, 1);
}

/* Of the letters and marks, those that a word may begin with, and those that it may end with. */

static inline bool is_head(unsigned class)
{
    return (class & (SKV_U_LETTER | SKV_U_MARK)) != 0 && (class & SKV_U_LOWER) == 0;
}

static inline bool is_tail(unsigned class)
{
    return (class & (SKV_U_LETTER | SKV_U_MARK)) != 0 && (class & SKV_U_UPPER) == 0;
}

static size_t run_of_tails(const char *text, size_t n, size_t at)
{
    size_t length;
    while (at < n && is_tail(class_at(text, n, at, &length))) at += length;
    return at;
}

/*
 * A*B+ from `at`, where A are heads and B tails: 0 when it does not match. When no tail follows
 * the heads, backtracking ends with the last head that is a tail too.
 */
static size_t heads_then_tails(const char *text, size_t n, size_t at, size_t *heads_end)
{
    size_t length, end = 0;
    while (at < n) {
        unsigned class = class_at(text, n, at, &length);
        if (!is_head(class)) break;
        at += length;
        if (is_tail(class)) end = at;
    }
    *heads_end = at;
    size_t tails = run_of_tails(text, n, at);
    return tails > at ? tails : end;
}

/* The two word alternatives of o200k from `at`: A*B+, then A+B*; 0 when neither matches. */
static size_t cased_word(const char *text, size_t n, size_t skip)
{
    size_t plain_end = 0, heads_end, skip_end = 0, end = 0;
    if (skip > 0) end = heads_then_tails(text, n, skip, &skip_end);
    if (end == 0) end = heads_then_tails(text, n, 0, &plain_end);
    if (end > 0) return end;
    heads_end = skip > 0 && skip_end > skip ? skip_end : plain_end;
    return heads_end; /* heads without any tail */
}

/*
 * [^\r\n\p{L}\p{N}]?A*B+(?i:'s|..)?|[^\r\n\p{L}\p{N}]?A+B*(?i:'s|..)?|\p{N}{1,max}
 * | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
static inline size_t scan_cased(const char *text, size_t n, size_t max_digits, bool contractions)
{
    size_t length, next_length;
    unsigned class = class_at(text, n, 0, &length);
    if ((class & SKV_U_NUMBER) != 0) return digits(text, n, max_digits);
    bool may_lead = (class & SKV_U_LETTER) == 0 && !is_line_end(text[0]);
    size_t end = cased_word(text, n, may_lead ? length : 0);
    if (end > 0) return end + (contractions && end < n ? contraction(text, n, end, true) : 0);
    unsigned others = SKV_U_SPACE | SKV_U_NUMBER | SKV_U_LETTER;
    if ((class & SKV_U_SPACE) == 0) return punctuation(text, n, length, others, true);
    if (text[0] == ' ' && n > 1 && (class_at(text, n, 1, &next_length) & others) == 0) {
        return punctuation(text, n, 1, others, true);
    }
    return spaces_by_line(text, n);
}

static size_t scan_o200k(const char *text, size_t n)
{
    return scan_cased(text, n, 3, true);
}

static size_t scan_tekken(const char *text, size_t n)
{
    return scan_cased(text, n, 1, false);
}

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define HEAD_TAIL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define HEADS_TAIL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT2_TAIL "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define OTHERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    skv_scan_fn *scan;
} known_patterns[] = {
    {CONTRACTIONS GPT2_TAIL "|\\s+", skv_scan_gpt2},
    {CONTRACTIONS GPT2_TAIL, skv_scan_gpt2}, /* it only omits a single space, which is a piece
                                              * anyway */
    {"'(?:[sdmt]|ll|ve|re)" GPT2_TAIL "|\\s+", skv_scan_gpt2},
    {"(?i:" CONTRACTIONS ")|" LEAD "\\p{L}+|\\p{N}{1,3}" OTHERS, scan_llama3},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}"
     "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     scan_llama3},
    {"(?i:" CONTRACTIONS ")|" LEAD "\\p{L}+|\\p{N}" OTHERS, scan_qwen2},
    {"(?i:" CONTRACTIONS ")|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan_qwen35},
    {LEAD HEAD_TAIL "(?i:" CONTRACTIONS ")?|" LEAD HEADS_TAIL "(?i:" CONTRACTIONS ")?"
                    "|\\p{N}{1,3}" OTHERS_SLASH,
     scan_o200k},
    {LEAD HEAD_TAIL "|" LEAD HEADS_TAIL "|\\p{N}" OTHERS_SLASH, scan_tekken},
};

skv_scan_fn *skv_scan_for_pattern(const char *pattern, size_t n)
{
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++) {
        const char *known = known_patterns[i].pattern;
        if (strlen(known) == n && memcmp(known, pattern, n) == 0) return known_patterns[i].scan;
    }
    return NULL;
}
