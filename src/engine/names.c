/* Names of options, as the command line spells them. */
#include <string.h>

#include "base/size.h"
#include "skv/skv.h"

static const char *const weights_names[] = {"auto", "f32", "bf16", "int8"};
static const char *const kv_names[] = {"auto", "f32", "bf16", "fp8", "int8"};
static const char *const prefill_names[] = {"auto",         "full",    "swiftkv",
                                            "swiftkv-full", "teacher", "kvpred"};

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

bool skv_prefill_parse(const char *name, skv_prefill *value)
{
    unsigned i;
    if (!find_name(prefill_names, COUNT(prefill_names), name, &i)) return false;
    *value = (skv_prefill)i;
    return true;
}
