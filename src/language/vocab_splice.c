/* Ids for a text that is partly known: see vocab_impl.h. */
#include <string.h>

#include "base/marks.h"
#include "base/mem.h"
#include "base/size.h"
#include "language/vocab_impl.h"

/* Finds the last common boundary: *n_known and *n_own ids lie before it. */
static void find_boundary(const size_t *known, size_t *n_known, const size_t *own, size_t *n_own)
{
    size_t i = *n_known, j = *n_own;
    while (i > 0 && j > 0 && known[i - 1] != own[j - 1]) {
        if (known[i - 1] > own[j - 1]) {
            i--;
        } else {
            j--;
        }
    }
    *n_known = i;
    *n_own = i > 0 ? j : 0;
}

static size_t common_ids(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t i = 0, n = skv_min_size(n_a, n_b);
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* known[0..n_kept) with the text's own ids from n_skipped on. */
static skv_status join(const skv_read_text *read, const int32_t *known, size_t n_kept,
                       size_t n_skipped, skv_splice *out, skv_error *err)
{
    size_t n_rest = read->n_ids - n_skipped;
    int32_t *ids = skv_alloc(n_kept + n_rest, sizeof *ids);
    SKV_REQUIRE(ids, err, SKV_MEMORY, "text: no memory for %zu ids", n_kept + n_rest);
    memcpy(ids, known, n_kept * sizeof *ids);
    if (n_rest > 0) memcpy(ids + n_kept, read->ids + n_skipped, n_rest * sizeof *ids);
    out->ids = ids;
    out->n_ids = n_kept + n_rest;
    out->n_kept = n_kept;
    return SKV_OK;
}

/* Returns the number of known ids before the first special one that covers data. */
static size_t before_special_data(const skv_tokenizer *t, const skv_read_text *read,
                                  const int32_t *known, const size_t *ends, size_t n)
{
    for (size_t i = 0; i < n && read->data.n > 0; i++) {
        size_t n_text = 0, i_end;
        if (!skv_tokenizer_is_special(t, known[i])) continue;
        (void)skv_tokenizer_text(t, known[i], &n_text);
        const size_t start = ends[i] - skv_min_size(n_text, ends[i]);
        if (skv_marks_touch(read->data.at, read->data.n, start, ends[i], &i_end)) return i;
    }
    return n;
}

skv_status skv_vocab_splice(const skv_vocab *vocab, const skv_read_text *read, const int32_t *known,
                            size_t n_known, skv_splice *out, skv_error *err)
{
    const skv_tokenizer *t = vocab->tokenizer;
    size_t n_same = common_ids(read->ids, read->n_ids, known, n_known);
    *out = (skv_splice){.n_ids = read->n_ids, .n_same = n_same, .n_kept = n_same};
    if (n_same == n_known || n_same == read->n_ids) return SKV_OK;
    size_t n_before = read->add_special ? skv_token_walk_prefix(t) : 0;
    if (n_same < n_before) return SKV_OK;
    size_t n_own_ids = read->n_ids - n_before, n_known_ids = n_known - n_before;
    size_t *ends = skv_alloc(read->n_ids + n_known, sizeof *ends);
    SKV_REQUIRE(ends, err, SKV_MEMORY, "text: no memory to compare %zu ids", read->n_ids);
    size_t *known_ends = ends + n_own_ids, n_walked = 0, n_own = 0;
    skv_status status = skv_token_walk(t, known + n_before, n_known_ids, read->text, read->n,
                                       known_ends, &n_walked, err);
    if (status == SKV_OK) {
        n_walked = before_special_data(t, read, known + n_before, known_ends, n_walked);
    }
    if (status == SKV_OK && n_before + n_walked > n_same) {
        status = skv_token_walk(t, read->ids + n_before, n_own_ids, read->text, read->n, ends,
                                &n_own, err);
        find_boundary(known_ends, &n_walked, ends, &n_own);
        if (status == SKV_OK && n_before + n_walked > n_same) {
            status = join(read, known, n_before + n_walked, n_before + n_own, out, err);
        }
    }
    skv_free(ends);
    return status;
}
