/* Names of options, as the command line spells them. */
#include <stdlib.h>
#include <string.h>

#include "skv/skv.h"

static const char *const weights_names[] = {"auto", "f32", "bf16", "int8", "int4", "file", "fp8"};
static const char *const kv_names[] = {"auto", "f32", "bf16", "fp8", "int8"};
static const char *const state_names[] = {"f32", "bf16"};
static const char *const prefill_names[] = {"auto",    "full",   "swiftkv", "swiftkv-full",
                                            "teacher", "kvpred", "merged"};

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

const char *skv_weights_name(skv_weights value)
{
    return (unsigned)value < COUNT(weights_names) ? weights_names[value] : NULL;
}

const char *skv_kv_name(skv_kv value)
{
    return (unsigned)value < COUNT(kv_names) ? kv_names[value] : NULL;
}

const char *skv_state_type_name(skv_state_type value)
{
    return (unsigned)value < COUNT(state_names) ? state_names[value] : NULL;
}

const char *skv_prefill_name(skv_prefill value)
{
    return (unsigned)value < COUNT(prefill_names) ? prefill_names[value] : NULL;
}

bool skv_weights_parse(const char *name, skv_weights *value)
{
    unsigned i;
    if (!find_name(weights_names, COUNT(weights_names), name, &i)) return false;
    *value = (skv_weights)i;
    return true;
}

bool skv_kv_parse(const char *name, skv_kv *value)
{
    unsigned i;
    if (!find_name(kv_names, COUNT(kv_names), name, &i)) return false;
    *value = (skv_kv)i;
    return true;
}

bool skv_state_type_parse(const char *name, skv_state_type *value)
{
    unsigned i;
    if (!find_name(state_names, COUNT(state_names), name, &i)) return false;
    *value = (skv_state_type)i;
    return true;
}

bool skv_prefill_parse(const char *name, skv_prefill *value)
{
    unsigned i;
    if (!find_name(prefill_names, COUNT(prefill_names), name, &i)) return false;
    *value = (skv_prefill)i;
    return true;
}

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
