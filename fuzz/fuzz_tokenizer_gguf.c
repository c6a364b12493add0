/* The tokenizer of a GGUF file from arbitrary bytes, then a text through it. */
#include "fuzz.h"

#include "format/gguf.h"
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "The quick  brown fox <s> \xc3\xa9\xff \n He's 12345";
    skv_gguf *g = NULL;
    skv_tokenizer *t = NULL;
    if (skv_gguf_parse(data, size, "fuzz", &g, NULL) != SKV_OK) return 0;
    if (skv_tokenizer_open_gguf(g, &t, NULL) == SKV_OK && t) {
        fuzz_tokenizer(t, text, sizeof text - 1);
    }
    skv_tokenizer_free(t);
    skv_gguf_close(g);
    return 0;
}
