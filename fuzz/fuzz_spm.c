/* tokenizer.model from arbitrary bytes, then a text (its own last bytes) through it. */
#include "fuzz.h"

#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    skv_tokenizer *t = NULL;
    size_t n_text = size < 64 ? size : 64;
    if (skv_tokenizer_parse_spm(data, size, "fuzz", &t, NULL) != SKV_OK) return 0;
    fuzz_tokenizer(t, (const char *)data + size - n_text, n_text);
    static const char text[] = "The quick  brown fox <s> \xc3\xa9\xff \n";
    fuzz_tokenizer(t, text, sizeof text - 1);
    skv_tokenizer_free(t);
    return 0;
}
