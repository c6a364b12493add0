/* The trie of a vocabulary: see token_table.h. */
#include "grammar/token_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/size.h"

enum { ALL_BYTES_MAX = 1 << 30 };

typedef struct entry {
    const char *bytes;
    uint32_t n, id;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order != 0) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Copies the bytes of all tokens. */
static skv_status collect(skv_token_table *t, skv_token_bytes_fn *get, void *user, skv_error *err)
{
    skv_buf all;
    skv_buf_init(&all, ALL_BYTES_MAX);
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        const char *bytes = NULL;
        size_t n = 0;
        t->starts[id] = (uint32_t)all.size;
        if (get(user, id, &bytes, &n)) skv_buf_append(&all, bytes, n);
    }
    t->starts[t->n_tokens] = (uint32_t)all.size;
    if (all.failed || (!all.data && !skv_buf_text(&all, ""))) {
        skv_buf_release(&all);
        return skv_fail(err, SKV_MEMORY, "tokens: no memory, or more than 1 GiB of text");
    }
    t->bytes = all.data;
    return SKV_OK;
}

static size_t list_entries(const skv_token_table *t, entry *entries)
{
    size_t n_entries = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        uint32_t n = t->starts[id + 1] - t->starts[id];
        if (n == 0 || n > SKV_TOKEN_BYTES_MAX) continue;
        entries[n_entries++] = (entry){t->bytes + t->starts[id], n, id};
    }
    if (n_entries > 1) qsort(entries, n_entries, sizeof *entries, by_bytes);
    return n_entries;
}

static uint32_t shared_bytes(const entry *a, const entry *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Sorted entries follow the order of the walk; open[d]: the node above at depth d + 1. */
static void fill_nodes(skv_token_table *t, const entry *entries, size_t n_entries)
{
    uint32_t open[SKV_TOKEN_BYTES_MAX], n_open = 0, n_nodes = 0;
    for (size_t i = 0; i < n_entries; i++) {
        const entry *e = &entries[i];
        uint32_t shared = i > 0 ? shared_bytes(e - 1, e) : 0;
        while (n_open > shared) t->nodes[open[--n_open]].skip = n_nodes;
        for (; n_open < e->n; n_open++) {
            open[n_open] = n_nodes;
            t->nodes[n_nodes++] =
                (skv_token_node){.byte = (uint8_t)e->bytes[n_open], .depth = (uint8_t)(n_open + 1)};
        }
        skv_token_node *node = &t->nodes[open[n_open - 1]];
        if (node->n_ids == 0) node->first_id = (uint32_t)t->n_ids;
        if (node->n_ids == UINT16_MAX) continue;
        node->n_ids++;
        t->ids[t->n_ids++] = e->id;
        t->longest = skv_max_size(t->longest, e->n);
    }
    while (n_open > 0) t->nodes[open[--n_open]].skip = n_nodes;
    t->n_nodes = n_nodes;
}

static size_t count_nodes(const entry *entries, size_t n_entries)
{
    size_t n = 0;
    for (size_t i = 0; i < n_entries; i++) {
        n += entries[i].n - (i > 0 ? shared_bytes(&entries[i - 1], &entries[i]) : 0);
    }
    return n;
}

static skv_status make_trie(skv_token_table *t, skv_error *err)
{
    entry *entries = skv_alloc(t->n_tokens, sizeof *entries);
    SKV_REQUIRE(entries, err, SKV_MEMORY, "tokens: no memory");
    size_t n = list_entries(t, entries);
    t->nodes = skv_alloc(count_nodes(entries, n), sizeof *t->nodes);
    t->ids = skv_alloc(n, sizeof *t->ids);
    bool made = t->nodes && t->ids;
    if (made) fill_nodes(t, entries, n);
    skv_free(entries);
    SKV_REQUIRE(made, err, SKV_MEMORY, "tokens: no memory for a trie of %zu", n);
    return SKV_OK;
}

skv_status skv_token_table_build(size_t n_tokens, skv_token_bytes_fn *get, void *user,
                                 skv_token_table **out, skv_error *err)
{
    SKV_REQUIRE(n_tokens <= SKV_TOKENS_MAX, err, SKV_RANGE, "tokens: %zu, at most %d", n_tokens,
                SKV_TOKENS_MAX);
    skv_token_table *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "tokens: no memory");
    t->n_tokens = n_tokens;
    t->starts = skv_alloc_zero(n_tokens + 1, sizeof *t->starts);
    t->ends = skv_alloc_zero(n_tokens / 32 + 1, sizeof *t->ends);
    skv_status status = t->starts && t->ends ? collect(t, get, user, err)
                                             : skv_fail(err, SKV_MEMORY, "tokens: no memory");
    if (status == SKV_OK) status = make_trie(t, err);
    if (status == SKV_OK) {
        *out = t;
    } else {
        skv_token_table_free(t);
    }
    return status;
}

void skv_token_table_add_end(skv_token_table *t, int32_t id)
{
    if (id < 0 || (size_t)id >= t->n_tokens) return;
    t->ends[id / 32] |= UINT32_C(1) << id % 32;
}

void skv_token_table_free(skv_token_table *t)
{
    if (!t) return;
    skv_free(t->nodes);
    skv_free(t->ids);
    skv_free(t->starts);
    skv_free(t->bytes);
    skv_free(t->ends);
    skv_free(t);
}
