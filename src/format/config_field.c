/* What a configuration and its fields are called: see config_field.h, config.h. */
#include "format/config_field.h"

#include <stdio.h>
#include <string.h>

bool skv_config_is(const skv_config *c, const char *model_type)
{
    size_t n = strlen(model_type);
    if (strncmp(c->architecture, model_type, n) != 0) return false;
    return !c->architecture[n] || strcmp(c->architecture + n, "_swiftkv") == 0;
}

skv_field_name skv_config_field_name(const skv_config *c, skv_config_field field)
{
    static const char *const names[SKV_FIELD_COUNT][3] = {
#define SKV_FIELD_NAMES(name, json, openelm, gguf) {json, openelm, gguf},
        SKV_FIELD_LIST(SKV_FIELD_NAMES)
#undef SKV_FIELD_NAMES
    };
    skv_field_name out;
    const char *name = names[field][c->gguf ? 2 : skv_config_is(c, "openelm") ? 1 : 0];
    if (*name == '/') { /* whole */
        (void)snprintf(out.text, sizeof out.text, "%s", name + 1);
    } else {
        (void)snprintf(out.text, sizeof out.text, "%.30s%s%s", c->gguf ? c->gguf : "",
                       c->gguf ? "." : "", name);
    }
    return out;
}
