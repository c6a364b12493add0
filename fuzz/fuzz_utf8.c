/* UTF-8 decoding and JSON escaping of arbitrary bytes: each must agree with the others. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"

static void check(int ok)
{
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t bad = SIZE_MAX, first_bad = SIZE_MAX;
    bool valid = skv_utf8_valid(text, size, &bad);
    for (size_t i = 0; i < size;) {
        uint32_t code;
        size_t step = skv_utf8_decode(text + i, size - i, &code);
        check(step >= 1 && step <= size - i);
        if (code == SKV_UTF8_BAD) {
            if (first_bad == SIZE_MAX) first_bad = i;
        } else {
            char again[4];
            check(skv_utf8_encode(code, again) == step);
            for (size_t j = 0; j < step; j++) check(again[j] == text[i + j]);
        }
        i += step;
    }
    check(valid == (first_bad == SIZE_MAX) && (valid || bad == first_bad));
    check(skv_utf8_complete(text, size) <= size);

    skv_buf out;
    skv_buf_init(&out, 6 * size);
    check(skv_buf_json_text(&out, text, size));
    check(skv_utf8_valid(out.data ? out.data : "", out.size, NULL));
    skv_buf_release(&out);
    return 0;
}
