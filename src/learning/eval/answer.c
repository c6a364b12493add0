/* Comparing answers: see format.h. */
#include "eval/format.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "skv/eval.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- normal forms: each writes a copy of `text` that is no longer than it ---- */

/* Single spaces, none at the ends, no last full stop. */
static void write_exact(const char *text, char *out)
{
    size_t n = 0;
    for (; *text; text++) {
        if (!is_space(*text)) {
            out[n++] = *text;
        } else if (n > 0 && out[n - 1] != ' ') {
            out[n++] = ' ';
        }
    }
    if (n > 0 && out[n - 1] == ' ') n--;
    if (n > 1 && out[n - 1] == '.') n--;
    out[n] = 0;
}

static bool is_article(const char *word, size_t n)
{
    return (n == 1 && word[0] == 'a') || (n == 2 && memcmp(word, "an", 2) == 0) ||
           (n == 3 && memcmp(word, "the", 3) == 0);
}

/* ASCII lower case without punctuation; words that are articles are left out. */
static void write_words(const char *text, char *out)
{
    size_t n = 0;
    while (*text) {
        const size_t start = n > 0 ? n + 1 : 0; /* room for a space */
        size_t end = start;
        while (is_space(*text)) text++;
        for (; *text && !is_space(*text); text++) {
            const unsigned char c = (unsigned char)*text;
            if (c < 0x80 && ispunct(c)) continue;
            out[end++] = (char)(c < 0x80 ? tolower(c) : c);
        }
        if (end == start || is_article(out + start, end - start)) continue;
        if (start > 0) out[start - 1] = ' ';
        n = end;
    }
    out[n] = 0;
}

/* The number that text begins with, without commas and a fraction of zeros: "1,234.00" -> "1234".
 * Returns how many characters it takes; 0, and `out` as it was, when there is none. */
static size_t write_number(const char *text, char *out)
{
    const char *at = text;
    size_t n = 0;
    if (!isdigit((unsigned char)at[*at == '-'])) return 0;
    if (*at == '-') out[n++] = *at++;
    for (; isdigit((unsigned char)*at) || (*at == ',' && isdigit((unsigned char)at[1])); at++) {
        if (*at != ',') out[n++] = *at;
    }
    const size_t n_whole = n;
    if (*at == '.' && isdigit((unsigned char)at[1])) {
        for (out[n++] = *at++; isdigit((unsigned char)*at); at++) out[n++] = *at;
        while (out[n - 1] == '0') n--;
        if (n == n_whole + 1) n = n_whole;
    }
    out[n] = 0;
    return (size_t)(at - text);
}

static void write_last_number(const char *text, char *out)
{
    out[0] = 0;
    while (*text) {
        const size_t n = write_number(text, out);
        text += n ? n : 1;
    }
}

static void write_marked_number(const char *text, char *out)
{
    const char *mark = strstr(text, "####");
    out[0] = 0;
    if (mark) {
        for (mark += 4; *mark && *mark != '\n'; mark++) {
            if (write_number(mark, out) > 0) return;
        }
    }
    write_last_number(text, out);
}

typedef struct rule_row {
    void (*write)(const char *text, char *out);
    bool contains; /* the right answer may be a part of it */
} rule_row;

static const rule_row rules[] = {
    [SKV_ANSWER_EXACT] = {write_exact, false},
    [SKV_ANSWER_WORDS] = {write_words, false},
    [SKV_ANSWER_CONTAINS] = {write_exact, true},
    [SKV_ANSWER_LAST_NUMBER] = {write_last_number, false},
    [SKV_ANSWER_MARKED_NUMBER] = {write_marked_number, false},
};

static char *normal_form(const rule_row *rule, const char *text)
{
    char *out = skv_alloc(strlen(text) + 1, 1);
    if (out) rule->write(text, out);
    return out;
}

skv_status skv_answer_check(skv_answer_rule rule, const char *said, char *const *answers,
                            size_t n_answers, bool *right, skv_error *err)
{
    const rule_row *row = &rules[rule];
    char *mine = normal_form(row, said);
    bool found = false, failed = !mine;
    for (size_t i = 0; i < n_answers && !found && !failed; i++) {
        char *theirs = normal_form(row, answers[i]);
        failed = !theirs;
        if (failed) break;
        found = row->contains ? !!strstr(mine, theirs) : strcmp(mine, theirs) == 0;
        found = found && theirs[0] != 0; /* no number matches no number */
        skv_free(theirs);
    }
    skv_free(mine);
    SKV_REQUIRE(!failed, err, SKV_MEMORY, "no memory for an answer");
    *right = found;
    return SKV_OK;
}
