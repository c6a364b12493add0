/* What must hold for every tokenizer that opens, shared by its fuzz targets. */
#ifndef SKV_FUZZ_TOKENIZER_H
#define SKV_FUZZ_TOKENIZER_H

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static inline void fuzz_require(int ok)
{
    if (!ok) abort();
}

static inline void fuzz_decode(const skv_tokenizer *t, const skv_ids *ids, bool with_special)
{
    skv_buf whole, pieces;
    skv_stream_decoder d;
    skv_buf_init(&whole, 1 << 22);
    skv_buf_init(&pieces, 1 << 22);
    skv_stream_decoder_init(&d, t, with_special);
    skv_status status = skv_tokenizer_decode(
        t, ids->data, ids->n, (skv_decode_options){.with_special = with_special}, &whole, NULL);
    for (size_t i = 0; i < ids->n && status == SKV_OK; i++) {
        status = skv_stream_decoder_push(&d, ids->data[i], &pieces, NULL);
    }
    if (status == SKV_OK) status = skv_stream_decoder_finish(&d, &pieces, NULL);
    if (status == SKV_OK) {
        fuzz_require(whole.size == pieces.size);
        fuzz_require(whole.size == 0 || memcmp(whole.data, pieces.data, whole.size) == 0);
    }
    skv_buf_release(&whole);
    skv_buf_release(&pieces);
}

/* Encodes text[0..n) in both ways, and with data in the middle. */
static inline void fuzz_tokenizer(const skv_tokenizer *t, const char *text, size_t n)
{
    skv_ids ids = {0};
    size_t at[4] = {n / 4, n / 3, n / 2, n / 2 + n / 3};
    const skv_text_marks data = {at, at[0] < at[1] && at[1] < at[2] && at[2] < at[3] ? 4 : 0};
    for (int i = 0; i < 3; i++) {
        skv_encode_options options = {
            .add_special = i == 0, .parse_special = i != 1, .data = i == 2 ? &data : NULL};
        ids.n = 0;
        if (skv_tokenizer_encode(t, text, n, options, &ids, NULL) != SKV_OK) continue;
        for (size_t k = 0; k < ids.n; k++) {
            fuzz_require(ids.data[k] >= 0 && (size_t)ids.data[k] < skv_tokenizer_size(t));
        }
        fuzz_decode(t, &ids, i != 1);
    }
    skv_ids_release(&ids);
}

#endif
