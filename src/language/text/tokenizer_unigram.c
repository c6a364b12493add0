/* Viterbi's algorithm for the unigram model. */
#include <float.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

/* The best spelling that ends at a byte position. */
typedef struct best_end {
    float score;    /* as SentencePiece: single precision decides ties the same way */
    uint32_t id;    /* of its last piece */
    uint32_t start; /* where that piece begins; UINT32_MAX: position not reached */
} best_end;

void skv_unigram_release(skv_unigram *model)
{
    skv_trie_release(&model->pieces);
    skv_free(model->scores);
    *model = (skv_unigram){0};
}

static void offer(best_end *end, size_t start, uint32_t id, float score)
{
    if (end->start != UINT32_MAX && score <= end->score) return;
    *end = (best_end){.score = score, .id = id, .start = (uint32_t)start};
}

static void extend(const skv_unigram *model, const char *text, size_t n, size_t start,
                   best_end *ends)
{
    float base = start == 0 ? 0.0f : ends[start].score;
    uint32_t code, state = 0, id;
    size_t length = skv_utf8_decode(text + start, n - start, &code), at = 0;
    bool single = false;
    while (skv_trie_next(&model->pieces, text + start, n - start, &state, &at, &id)) {
        single = single || at == length;
        offer(&ends[start + at], start, id, base + model->scores[id]);
    }
    if (!single) offer(&ends[start + length], start, model->unk, base + model->unk_score);
}

/* Unknown pieces: their bytes where there are tokens for all, one unknown token for a run else. */
static skv_status write_unknown(const skv_unigram *model, const char *text, size_t n,
                                bool after_unknown, skv_ids *out, bool *fell_back, skv_error *err)
{
    *fell_back = model->byte_fallback;
    for (size_t i = 0; *fell_back && i < n; i++) {
        if (model->byte_token[(unsigned char)text[i]] == SKV_NO_TOKEN) *fell_back = false;
    }
    if (!*fell_back) return after_unknown ? SKV_OK : skv_ids_push(out, (int32_t)model->unk, err);
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(skv_ids_push(out, (int32_t)model->byte_token[(unsigned char)text[i]], err));
    }
    return SKV_OK;
}

/* Turns the chain of last pieces around and writes it. */
static skv_status write_path(const skv_unigram *model, const char *text, size_t n, best_end *ends,
                             skv_ids *out, skv_error *err)
{
    uint32_t next = (uint32_t)n;
    for (uint32_t at = (uint32_t)n; at > 0;) {
        uint32_t start = ends[at].start;
        ends[at].start = next; /* from here on: where the following piece ends */
        next = at;
        at = start;
    }
    bool unknown = false;
    for (uint32_t start = 0, end = next; start < n;) {
        uint32_t following = ends[end].start;
        if (ends[end].id == model->unk) {
            bool fell_back;
            SKV_TRY(write_unknown(model, text + start, end - start, unknown, out, &fell_back, err));
            unknown = !fell_back;
        } else {
            SKV_TRY(skv_ids_push(out, (int32_t)ends[end].id, err));
            unknown = false;
        }
        start = end;
        end = following;
    }
    return SKV_OK;
}

skv_status skv_unigram_encode(const skv_unigram *model, const char *text, size_t n, skv_ids *out,
                              skv_error *err)
{
    if (n == 0) return SKV_OK;
    best_end *ends = skv_alloc(n + 1, sizeof *ends);
    SKV_REQUIRE(ends, err, SKV_MEMORY, "no memory to tokenize %zu bytes", n);
    for (size_t i = 0; i <= n; i++) ends[i].start = UINT32_MAX;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        extend(model, text, n, i, ends);
        i += skv_utf8_decode(text + i, n - i, &code);
    }
    skv_status status = write_path(model, text, n, ends, out, err);
    skv_free(ends);
    return status;
}
