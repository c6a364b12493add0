/* Names of options, as the command line spells them. */
#include <stdlib.h>
#include <string.h>

#include "skv/skv.h"

static const char *const weights_names[] = {"auto", "f32", "bf16", "int8", "int4", "file", "fp8"};
static const char *const kv_names[] = {"auto", "f32", "bf16", "fp8", "int8"};
static const char *const state_names[] = {"f32", "bf16"};
static const char *const prefill_names[] = {"auto",    "full",   "swiftkv", "swiftkv-full",
                                            "teacher", "kvpred", "merged"};
static const char *const sums_names[] = {"auto", "nccl", "copies"};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool find_name(const char *const *names, size_t n, const char *name, unsigned *value)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *value = (unsigned)i;
        return true;
    }
    return false;
}

/* Defines the name of a value, NULL for none, and the value of a name, which may be unknown. */
#define NAMED(kind, names)                                                                         \
    const char *skv_##kind##_name(skv_##kind value)                                                \
    {                                                                                              \
        return (unsigned)value < COUNT(names) ? (names)[value] : NULL;                             \
    }                                                                                              \
    bool skv_##kind##_parse(const char *name, skv_##kind *value)                                   \
    {                                                                                              \
        unsigned i;                                                                                \
        if (!find_name(names, COUNT(names), name, &i)) return false;                               \
        *value = (skv_##kind)i;                                                                    \
        return true;                                                                               \
    }
NAMED(weights, weights_names)
NAMED(kv, kv_names)
NAMED(state_type, state_names)
NAMED(prefill, prefill_names)
NAMED(sums, sums_names)

bool skv_pruning_parse(const char *text, skv_pruning *out)
{
    static const struct {
        const char *prefix;
        skv_prune kind;
    } kinds[] = {
        {"random:", SKV_PRUNE_RANDOM}, {"static:", SKV_PRUNE_STATIC}, {"lazy:", SKV_PRUNE_LAZY}};
    *out = (skv_pruning){.kind = SKV_PRUNE_NONE, .keep = 1};
    if (strcmp(text, "none") == 0) return true;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const size_t n = strlen(kinds[i].prefix);
        if (strncmp(text, kinds[i].prefix, n) != 0) continue;
        char *end;
        const double keep = strtod(text + n, &end);
        double last = keep;
        if (kinds[i].kind == SKV_PRUNE_LAZY) {
            if (end == text + n || *end != ',') return false;
            text = end + 1 - n;
            last = strtod(end + 1, &end);
        }
        if (end == text + n || *end != 0 || !(keep <= 1 && last > 0 && last <= keep)) return false;
        *out = (skv_pruning){kinds[i].kind, keep, last};
        return true;
    }
    return false;
}
