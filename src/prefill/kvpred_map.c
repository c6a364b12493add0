/*
 * Which layer of the auxiliary model predicts which of the base (arXiv:2410.08391, section 4.2,
 * Tables 1 and 4).
 */
#include <string.h>

#include "prefill/kvpred.h"

void skv_kvpred_map_canonical(size_t n_base, size_t n_auxiliary, uint16_t *layers)
{
    size_t each = n_base / n_auxiliary, more = n_base % n_auxiliary;
    size_t first = more * (each + 1); /* base layers that are served by those with one more */
    for (size_t i = 0; i < n_base; i++) {
        size_t j = i < first ? i / (each + 1) : more + (i - first) / each;
        layers[i] = (uint16_t)j;
    }
}

void skv_kvpred_map_pruned(size_t n_base, const uint16_t *kept, size_t n_kept, uint16_t *layers)
{
    size_t j = 0;
    for (size_t i = 0; i < n_base; i++) {
        while (j + 1 < n_kept && kept[j + 1] <= i) j++;
        layers[i] = (uint16_t)j;
    }
}

size_t skv_kvpred_kept(size_t n_base, size_t quarters, uint16_t *kept)
{
    size_t n = 0;
    for (size_t i = 0; i < n_base; i++) {
        bool keeps = quarters == 3 ? i % 4 != 3 : i % (4 / quarters) == 0;
        if (keeps) kept[n++] = (uint16_t)i;
    }
    return n;
}

size_t skv_kvpred_quarters(const char *name)
{
    static const struct {
        const char *name;
        size_t quarters;
    } all[] = {{"lp-0.25", 1}, {"lp-0.50", 2}, {"lp-0.5", 2}, {"lp-0.75", 3}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) return all[i].quarters;
    }
    return 0;
}
