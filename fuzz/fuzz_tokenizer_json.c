/*
 * tokenizer.json from arbitrary bytes, then a text through what was opened: nothing crashes, ids
 * are below the size, and decoding in pieces equals decoding at once.
 */
#include "fuzz.h"

#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    skv_tokenizer *t = NULL;
    const char *text = (const char *)data;
    /* What follows a zero byte is the text. */
    const char *zero = size > 0 ? memchr(text, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - text) : size;
    if (skv_tokenizer_parse_json(text, n, NULL, 0, "fuzz", &t, NULL) != SKV_OK) return 0;
    fuzz_tokenizer(t, zero ? zero + 1 : text, zero ? size - n - 1 : n);
    skv_tokenizer_free(t);
    return 0;
}
