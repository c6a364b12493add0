/* SentencePiece's normalisation (character map, spaces, the dummy prefix), and back. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_spm.h"

#define META_SPACE "\xe2\x96\x81"  /* U+2581 */
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* What the beginning of the text becomes; returns the bytes it takes. */
static size_t next_piece(const skv_spm_rules *rules, const char *text, size_t n, const char **to,
                         size_t *n_to)
{
    uint32_t value, code;
    size_t length = skv_trie_longest(&rules->user_defined, text, n, &value);
    if (length == 0) {
        length = skv_charsmap_find(&rules->charsmap, text, n, to, n_to);
        if (length > 0) return length;
        length = skv_utf8_decode(text, n, &code);
        if (code == SKV_UTF8_BAD) {
            length = 1;
            *to = rules->raw_bytes ? text : REPLACEMENT;
            *n_to = rules->raw_bytes ? 1 : strlen(REPLACEMENT);
            return length;
        }
    }
    *to = text;
    *n_to = length;
    return length;
}

static void put_escaped(const skv_spm_rules *rules, const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        const char *space = rules->escape ? memchr(text + i, ' ', n - i) : NULL;
        size_t end = space == NULL ? n : (size_t)(space - text);
        skv_buf_append(out, text + i, end - i);
        if (space != NULL) skv_buf_text(out, META_SPACE);
        i = space == NULL ? n : end + 1;
    }
}

static void drop_trailing(skv_buf *out, const char *space, size_t start)
{
    size_t n = strlen(space);
    while (out->size >= start + n && memcmp(out->data + out->size - n, space, n) == 0) {
        out->size -= n;
    }
}

/* Nothing to look up for most bytes: no map, no user-defined pieces, no spaces to merge. */
static bool is_plain(const skv_spm_rules *rules)
{
    return rules->charsmap.n_units == 0 && rules->user_defined.n_strings == 0 &&
           !rules->merge_spaces;
}

static void normalize_pieces(const skv_spm_rules *rules, const char *text, size_t n, skv_buf *out)
{
    bool after_space = rules->merge_spaces;
    for (size_t i = 0; i < n;) {
        const char *to = text;
        size_t n_to = 0;
        i += next_piece(rules, text + i, n - i, &to, &n_to);
        while (after_space && n_to > 0 && to[0] == ' ') {
            to++;
            n_to--;
        }
        if (n_to == 0) continue;
        put_escaped(rules, to, n_to, out);
        after_space = rules->merge_spaces && to[n_to - 1] == ' ';
    }
}

/* The offset behind the spaces that the text begins with, as the map sees them. */
static size_t leading_spaces(const skv_spm_rules *rules, const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        const char *to = text;
        size_t n_to = 0, length = next_piece(rules, text + at, n - at, &to, &n_to);
        if (n_to != 1 || to[0] != ' ') break;
        at += length;
    }
    return at;
}

bool skv_spm_normalize(const skv_spm_rules *rules, const char *text, size_t n, skv_buf *out)
{
    const char *space = rules->escape ? META_SPACE : " ";
    size_t skip = rules->merge_spaces ? leading_spaces(rules, text, n) : 0, start = out->size, bad;
    text += skip;
    n -= skip;
    if (n == 0) return skv_buf_text(out, "");
    if (rules->add_prefix && !rules->space_as_suffix) skv_buf_text(out, space);
    if (is_plain(rules) && (rules->raw_bytes || skv_utf8_valid(text, n, &bad))) {
        put_escaped(rules, text, n, out);
    } else {
        normalize_pieces(rules, text, n, out);
    }
    if (rules->merge_spaces) drop_trailing(out, space, start);
    if (rules->add_prefix && rules->space_as_suffix) skv_buf_text(out, space);
    return !out->failed;
}

skv_status skv_spm_set_decoder(skv_tokenizer *t, skv_error *err)
{
    skv_decode_step *steps = t->decoder.steps;
    steps[0] = (skv_decode_step){.kind = SKV_DECODE_BYTES};
    steps[1] = (skv_decode_step){.kind = SKV_DECODE_REPLACE, .n_from = 3, .n_to = 1};
    t->decoder.n_steps = 2;
    steps[1].from = skv_strndup("\xe2\x96\x81", 3);
    steps[1].to = skv_strndup(" ", 1);
    SKV_REQUIRE(steps[1].from != NULL && steps[1].to != NULL, err, SKV_MEMORY, "%s: no memory",
                t->name);
    t->decoder.lossy_bytes = true;
    if (!t->spm.add_prefix && !t->spm.merge_spaces) return SKV_OK;
    t->decoder.strip_char[0] = ' ';
    t->decoder.n_strip_char = 1;
    /* Where spaces are merged, none of those at the beginning are the text's own. */
    t->decoder.n_strip = t->spm.merge_spaces ? SIZE_MAX : 1;
    return SKV_OK;
}
