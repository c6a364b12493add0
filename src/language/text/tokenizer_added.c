/* The set of strings (a trie whose edges are hashed) and the search for added tokens. */
#include "text/tokenizer_added.h"

#include "base/marks.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode_class.h"

struct skv_trie_edge {
    uint64_t key;  /* node << 8 | byte, plus 1; 0: empty */
    uint32_t node; /* where it leads */
};

enum { NODES_MAX = 1 << 26 };

void skv_trie_release(skv_trie *trie)
{
    skv_free(trie->edges);
    skv_free(trie->values);
    *trie = (skv_trie){0};
}

static size_t edge_slot(const skv_trie *trie, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash ^ hash >> 29) & trie->mask;
    while (trie->edges[i].key != 0 && trie->edges[i].key != key) i = (i + 1) & trie->mask;
    return i;
}

/* Node 0 is the root; its edges are the array `first`. */
static uint32_t follow(const skv_trie *trie, uint32_t node, unsigned char byte)
{
    if (node == 0) return trie->first[byte];
    if (!trie->edges) return 0;
    const struct skv_trie_edge *edge =
        &trie->edges[edge_slot(trie, ((uint64_t)node << 8 | byte) + 1)];
    return edge->key == 0 ? 0 : edge->node;
}

static bool grow_edges(skv_trie *trie)
{
    if (trie->edges && trie->n_edges < trie->mask / 2) return true;
    skv_trie bigger = *trie;
    bigger.mask = !trie->edges ? 63 : trie->mask * 2 + 1;
    bigger.edges = skv_alloc_zero(bigger.mask + 1, sizeof *bigger.edges);
    if (!bigger.edges) return false;
    for (size_t i = 0; trie->edges && i <= trie->mask; i++) {
        if (trie->edges[i].key == 0) continue;
        bigger.edges[edge_slot(&bigger, trie->edges[i].key)] = trie->edges[i];
    }
    skv_free(trie->edges);
    *trie = bigger;
    return true;
}

static bool grow_nodes(skv_trie *trie)
{
    if (trie->n_nodes < trie->nodes_capacity) return true;
    size_t capacity = trie->nodes_capacity == 0 ? 64 : trie->nodes_capacity * 2;
    uint32_t *values = skv_realloc(trie->values, capacity, sizeof *values);
    if (!values) return false;
    trie->values = values;
    trie->nodes_capacity = capacity;
    return true;
}

static uint32_t add_node(skv_trie *trie, uint32_t parent, unsigned char byte)
{
    if (trie->n_nodes == 0) {
        if (!grow_nodes(trie)) return 0;
        trie->values[0] = 0;
        trie->n_nodes = 1;
    }
    if (trie->n_nodes >= NODES_MAX || !grow_nodes(trie) || !grow_edges(trie)) return 0;
    uint32_t node = (uint32_t)trie->n_nodes++;
    trie->values[node] = 0;
    if (parent == 0) {
        trie->first[byte] = node;
        return node;
    }
    uint64_t key = ((uint64_t)parent << 8 | byte) + 1;
    trie->edges[edge_slot(trie, key)] = (struct skv_trie_edge){.key = key, .node = node};
    trie->n_edges++;
    return node;
}

skv_status skv_trie_add(skv_trie *trie, const char *text, size_t n, uint32_t value, skv_error *err)
{
    SKV_REQUIRE(n > 0 && n <= SKV_TRIE_TEXT_MAX, err, SKV_RANGE,
                "added token of %zu bytes, 1 to %d are possible", n, (int)SKV_TRIE_TEXT_MAX);
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = follow(trie, node, (unsigned char)text[i]);
        if (next == 0) next = add_node(trie, node, (unsigned char)text[i]);
        SKV_REQUIRE(next != 0, err, SKV_MEMORY, "no memory for the added tokens");
        node = next;
    }
    trie->n_strings += trie->values[node] == 0;
    trie->values[node] = value + 1;
    return SKV_OK;
}

bool skv_trie_next(const skv_trie *trie, const char *text, size_t n, uint32_t *state, size_t *at,
                   uint32_t *value)
{
    while (*at < n) {
        uint32_t node = follow(trie, *state, (unsigned char)text[*at]);
        if (node == 0) return false;
        *state = node;
        ++*at;
        if (trie->values[node] == 0) continue;
        *value = trie->values[node] - 1;
        return true;
    }
    return false;
}

size_t skv_trie_longest(const skv_trie *trie, const char *text, size_t n, uint32_t *value)
{
    uint32_t state = 0;
    size_t at = 0, length = 0;
    while (skv_trie_next(trie, text, n, &state, &at, value)) length = at;
    return length;
}

void skv_added_release(skv_added *added)
{
    skv_free(added->tokens);
    skv_trie_release(&added->raw);
    skv_trie_release(&added->normalized);
    *added = (skv_added){0};
}

skv_status skv_added_put(skv_added *added, const char *text, size_t n, skv_added_token token,
                         bool after_normalizing, skv_error *err)
{
    if (n == 0) return SKV_OK;
    if (added->n == added->capacity) {
        size_t capacity = added->capacity == 0 ? 16 : added->capacity * 2;
        skv_added_token *tokens = skv_realloc(added->tokens, capacity, sizeof *tokens);
        SKV_REQUIRE(tokens, err, SKV_MEMORY, "no memory for the added tokens");
        added->tokens = tokens;
        added->capacity = capacity;
    }
    added->tokens[added->n] = token;
    skv_trie *trie = after_normalizing ? &added->normalized : &added->raw;
    added->late_special = added->late_special || (after_normalizing && token.special);
    SKV_TRY(skv_trie_add(trie, text, n, (uint32_t)added->n, err));
    added->n++;
    return SKV_OK;
}

static bool is_word_at(const char *text, size_t n)
{
    uint32_t code;
    if (n == 0) return false;
    skv_utf8_decode(text, n, &code);
    return (skv_unicode_class(code) & SKV_U_WORD) != 0;
}

/* The start of the character that ends at text[end]. */
static size_t char_before(const char *text, size_t end)
{
    size_t start = end - 1;
    while (start > 0 && end - start < 4 && ((unsigned char)text[start] & 0xc0) == 0x80) start--;
    return start;
}

static bool is_space(const char *text, size_t n, bool ascii)
{
    uint32_t code;
    skv_utf8_decode(text, n, &code);
    if (ascii) return code == ' ' || (code >= '\t' && code <= '\r');
    return (skv_unicode_class(code) & SKV_U_SPACE) != 0;
}

static bool stands_alone(const char *text, size_t n, size_t start, size_t end)
{
    size_t before = start == 0 ? 0 : char_before(text, start);
    return !is_word_at(text + before, start - before) && !is_word_at(text + end, n - end);
}

static skv_added_match strip(const skv_added_token *token, const char *text, size_t n, size_t done,
                             size_t start, size_t end)
{
    while (token->lstrip && start > done) {
        size_t before = char_before(text, start);
        if (!is_space(text + before, start - before, token->trim_ascii)) break;
        start = before;
    }
    while (token->rstrip && end < n && is_space(text + end, n - end, token->trim_ascii)) {
        uint32_t code;
        end += skv_utf8_decode(text + end, n - end, &code);
    }
    return (skv_added_match){.start = start < done ? done : start, .end = end, .token = token};
}

/* Whether a byte of text[start..end) is data; *behind: the end of the first such data. */
static bool touches_data(const skv_added_text *in, size_t start, size_t end, size_t *behind)
{
    size_t i_end;
    if (!skv_marks_touch(in->marks, in->n_marks, start, end, &i_end)) return false;
    *behind = i_end < in->n_marks ? in->marks[i_end] : in->n;
    return true;
}

/* Returns the length of the longest special token at `start` that touches no data; 0: none. A
 * longer token that touches data must not hide it: the data after it would decide its meaning. */
static size_t longest_clean(const skv_added *added, const skv_trie *trie, const skv_added_text *in,
                            size_t start, uint32_t *value)
{
    uint32_t state = 0, some;
    size_t length = 0, best = 0, behind;
    while (skv_trie_next(trie, in->text + start, in->n - start, &state, &length, &some)) {
        if (touches_data(in, start, start + length, &behind)) break;
        if (!added->tokens[some].special) continue;
        best = length;
        *value = some;
    }
    return best;
}

skv_added_match skv_added_find(const skv_added *added, const skv_trie *trie,
                               const skv_added_text *in, size_t done, size_t *at)
{
    const char *text = in->text;
    const size_t n = in->n;
    skv_added_match none = {.start = n, .end = n, .token = NULL};
    if (trie->n_strings == 0) return none;
    for (size_t i = *at; i < n;) {
        uint32_t value;
        size_t behind;
        if (trie->first[(unsigned char)text[i]] == 0) {
            i++;
            continue;
        }
        size_t length = skv_trie_longest(trie, text + i, n - i, &value);
        if (length == 0) {
            i++;
            continue;
        }
        size_t start = i;
        i += length;
        if (in->special && added->tokens[value].special && touches_data(in, start, i, &behind)) {
            length = longest_clean(added, trie, in, start, &value);
            i = length > 0 ? start + length : behind < i ? behind : i;
            if (length == 0) continue;
        }
        const skv_added_token *token = &added->tokens[value];
        *at = i;
        if (token->special && !in->special) continue;
        if (token->single_word && !stands_alone(text, n, start, i)) continue;
        return strip(token, text, n, done, start, i);
    }
    *at = n;
    return none;
}
