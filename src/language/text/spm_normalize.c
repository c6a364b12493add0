/* SentencePiece's normalisation (character map, spaces, the dummy prefix), and back. */
#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

enum { LOOK_BYTES = 64 << 10 /* of text, between two looks at the budget */ };

#define META_SPACE "\xe2\x96\x81"  /* U+2581 */
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/*
 * SentencePiece's precompiled character map. Bytes: u32 size of the trie, the trie's units
 * (u32, little endian), then the replacement texts. A unit is Darts' packed node: bits 0-7 label
 * (bit 31 set in leaves, whose low bits are the offset of the replacement), bit 8 "a leaf hangs
 * here", bits 10-30 offset, bit 9 scales it by 256.
 */
skv_status skv_charsmap_parse(skv_charsmap *map, const void *data, size_t n, const char *name,
                              skv_error *err)
{
    const unsigned char *bytes = data;
    uint32_t trie_bytes;
    *map = (skv_charsmap){0};
    if (n == 0) return SKV_OK;
    SKV_REQUIRE(n > 4, err, SKV_FORMAT, "%s: precompiled_charsmap of %zu bytes", name, n);
    trie_bytes = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                 (uint32_t)bytes[3] << 24;
    SKV_REQUIRE(trie_bytes < n - 4 && trie_bytes % 4 == 0 && trie_bytes > 0, err, SKV_FORMAT,
                "%s: precompiled_charsmap says %u bytes of trie, it has %zu in all", name,
                (unsigned)trie_bytes, n);
    map->n_units = trie_bytes / 4;
    map->n_texts = n - 4 - trie_bytes;
    map->units = skv_alloc(map->n_units, sizeof *map->units);
    map->texts = skv_strndup((const char *)bytes + 4 + trie_bytes, map->n_texts);
    if (!map->units || !map->texts) {
        skv_charsmap_release(map);
        return skv_fail(err, SKV_MEMORY, "%s: no memory for precompiled_charsmap", name);
    }
    for (size_t i = 0; i < map->n_units; i++) {
        const unsigned char *at = bytes + 4 + i * 4;
        map->units[i] =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }
    return SKV_OK;
}

void skv_charsmap_release(skv_charsmap *map)
{
    skv_free(map->units);
    skv_free(map->texts);
    *map = (skv_charsmap){0};
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Returns the bytes of text[0..n), n >= 1, that the map replaces (0: none), and the replacement. */
static size_t find_replacement(const skv_charsmap *map, const char *text, size_t n, const char **to,
                               size_t *n_to)
{
    size_t length = 0;
    if (map->n_units == 0) return 0;
    size_t node = offset_of(map->units[0]);
    for (size_t i = 0; i < n && text[i] != 0; i++) {
        unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (node >= map->n_units) break;
        uint32_t unit = map->units[node];
        if ((unit & (1u << 31 | 0xffu)) != byte) break;
        node ^= offset_of(unit);
        if ((unit & 1u << 8) == 0) continue;
        if (node >= map->n_units) break;
        size_t at = map->units[node] & 0x7fffffffu;
        if (at >= map->n_texts) continue;
        length = i + 1;
        *to = map->texts + at;
        *n_to = strlen(*to); /* the copy of the texts is terminated */
    }
    return length;
}

/* Returns the bytes that the first piece of the text takes, and its replacement. */
static size_t next_piece(const skv_spm_rules *rules, const char *text, size_t n, const char **to,
                         size_t *n_to)
{
    uint32_t value, code;
    size_t length = skv_trie_longest(&rules->user_defined, text, n, &value);
    if (length == 0) {
        length = find_replacement(&rules->charsmap, text, n, to, n_to);
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

/* Whether the work may go on, which is asked now and then. */
static bool goes_on(skv_buf *out, size_t at, size_t *looked)
{
    if (at - *looked >= LOOK_BYTES) {
        *looked = at;
        out->failed = out->failed || !skv_budget_look(out->budget);
    }
    return !out->failed;
}

static void put_escaped(const skv_spm_rules *rules, const char *text, size_t n, skv_buf *out)
{
    size_t looked = 0;
    for (size_t i = 0; i < n && goes_on(out, i, &looked);) {
        const char *space = rules->escape ? memchr(text + i, ' ', n - i) : NULL;
        size_t end = !space ? n : (size_t)(space - text);
        skv_buf_append(out, text + i, end - i);
        if (space) skv_buf_text(out, META_SPACE);
        i = !space ? n : end + 1;
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
    size_t looked = 0;
    for (size_t i = 0; i < n && goes_on(out, i, &looked);) {
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

/* Returns the offset after the leading spaces, as the map sees them. */
static size_t leading_spaces(const skv_spm_rules *rules, const char *text, size_t n, skv_buf *out)
{
    size_t at = 0, looked = 0;
    while (at < n && goes_on(out, at, &looked)) {
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
    size_t skip = rules->merge_spaces ? leading_spaces(rules, text, n, out) : 0, start = out->size,
           bad;
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
    SKV_REQUIRE(steps[1].from && steps[1].to, err, SKV_MEMORY, "%s: no memory", t->name);
    t->decoder.lossy_bytes = true;
    if (!t->spm.add_prefix && !t->spm.merge_spaces) return SKV_OK;
    t->decoder.strip_char[0] = ' ';
    t->decoder.n_strip_char = 1;
    /* Where spaces are merged, none of those at the beginning are the text's own. */
    t->decoder.n_strip = t->spm.merge_spaces ? SIZE_MAX : 1;
    return SKV_OK;
}
