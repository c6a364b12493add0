/* What a BPE model works out once from its vocabulary and merges. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/pretokenize.h"
#include "text/tokenizer_word.h"

void skv_bpe_model_release(skv_bpe_model *model)
{
    skv_bpe_release(&model->merges);
    skv_free(model->virtual_codes);
    *model = (skv_bpe_model){0};
}

static void find_byte_tokens(skv_bpe_model *model, const skv_vocab *vocab)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t b = 0; b < 256; b++) {
        char text[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'}, alphabet[4];
        size_t n = skv_utf8_encode(skv_alphabet_char((unsigned char)b), alphabet);
        model->byte_token[b] = skv_vocab_find(vocab, text, sizeof text);
        model->byte_symbol[b] = skv_vocab_find(vocab, alphabet, n);
        char byte = (char)b;
        if (b < 128) model->ascii[b] = skv_vocab_find(vocab, &byte, 1);
    }
}

/* The class in `cut` of a symbol's first (or last) character; -1: none of them. */
static int edge_class(const skv_bpe_model *model, const skv_vocab *vocab, uint32_t symbol,
                      bool last)
{
    if (symbol >= vocab->n_ids) {
        uint32_t code = model->virtual_codes[symbol - vocab->n_ids];
        return code < 128 ? (int)code : code == 0x2581 ? 128 : -1;
    }
    size_t n;
    const char *text = skv_vocab_text(vocab, symbol, &n);
    if (n == 0) return -1;
    unsigned char byte = (unsigned char)text[last ? n - 1 : 0];
    if (byte < 128) return byte;
    if (n < 3) return -1;
    return memcmp(last ? text + n - 3 : text, "\xe2\x96\x81", 3) == 0 ? 128 : -1;
}

/* A merge of these would be found by id although the text does not spell the token. */
static bool is_stand_in(const skv_bpe_model *model, const skv_vocab *vocab, uint32_t symbol)
{
    if (model->late_unknown || symbol >= vocab->n_ids) return false;
    size_t n;
    const char *text = skv_vocab_text(vocab, symbol, &n);
    return symbol == model->unk || skv_byte_token_value(text, n) >= 0;
}

static bool is_known(const skv_bpe_model *model, const skv_vocab *vocab, size_t class)
{
    if (class < 128) return model->ascii[class] != SKV_NO_TOKEN;
    return skv_vocab_find(vocab, "\xe2\x96\x81", 3) != SKV_NO_TOKEN;
}

/* Cuts are safe between known characters (an unknown one may fuse with its neighbour). */
static void find_cuts(skv_bpe_model *model, const skv_vocab *vocab)
{
    bool known[SKV_CUT_CLASSES];
    for (size_t a = 0; a < SKV_CUT_CLASSES; a++) known[a] = is_known(model, vocab, a);
    for (size_t a = 0; a < SKV_CUT_CLASSES; a++) {
        for (size_t b = 0; b < SKV_CUT_CLASSES; b++) model->cut[a][b] = known[a] && known[b];
    }
    for (size_t i = 0; i <= model->merges.mask; i++) {
        const skv_bpe_pair *pair = &model->merges.pairs[i];
        if (pair->id == SKV_BPE_NONE) continue;
        uint32_t left = (uint32_t)(pair->key >> 32), right = (uint32_t)pair->key;
        if (is_stand_in(model, vocab, left) || is_stand_in(model, vocab, right)) return;
        int a = edge_class(model, vocab, left, true), b = edge_class(model, vocab, right, false);
        if (a >= 0 && b >= 0) model->cut[a][b] = 0;
    }
    model->can_cut = true;
}

void skv_bpe_model_prepare(skv_bpe_model *model, const skv_vocab *vocab)
{
    find_byte_tokens(model, vocab);
    if (!model->byte_level && model->merges.pairs != NULL) find_cuts(model, vocab);
}
