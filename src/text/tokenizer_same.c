/* Whether two tokenizers are of one vocabulary: see tokenizer.h. */
#include <string.h>

#include "base/size.h"
#include "text/tokenizer.h"

enum { TEXT_SHOWN = 24 };

skv_status skv_tokenizer_compare(const skv_tokenizer *t, const skv_tokenizer *other,
                                 const char *name, skv_error *err)
{
    size_t n = skv_tokenizer_size(t), n_other = skv_tokenizer_size(other);
    SKV_REQUIRE(n == n_other, err, SKV_FORMAT,
                "%s: the auxiliary model's tokenizer has %zu tokens, the base's %zu", name, n_other,
                n);
    for (size_t id = 0; id < n; id++) {
        size_t n_a = 0, n_b = 0;
        const char *a = skv_tokenizer_text(t, (int32_t)id, &n_a);
        const char *b = skv_tokenizer_text(other, (int32_t)id, &n_b);
        bool same = (a && b) ? n_a == n_b && memcmp(a, b, n_a) == 0 : a == b;
        SKV_REQUIRE(same, err, SKV_FORMAT,
                    "%s: the auxiliary model's tokenizer has \"%.*s\" for id %zu, the base's "
                    "\"%.*s\"",
                    name, (int)skv_min_size(n_b, TEXT_SHOWN), b ? b : "", id,
                    (int)skv_min_size(n_a, TEXT_SHOWN), a ? a : "");
    }
    return SKV_OK;
}
