/* Constraints: the place where grammars meet requests. This version knows free text only, and
 * refuses by name what it would otherwise have to ignore. */
#include "constrain.h"

#include <string.h>

static const char *const fields[] = {"guided_json",       "guided_regex", "guided_choice",
                                     "guided_grammar",    "grammar",      "json_schema",
                                     "structured_outputs"};

bool constrain_read(const exchange *ex, const json_t *body, skv_constraint *out, api_error *error)
{
    (void)ex;
    *out = (skv_constraint){0};
    const json_t *format = json_body_get(body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0)) {
        return api_fail(error, 400, "response_format",
                        "response_format: type \"%.40s\" is not "
                        "served by this version",
                        type != NULL ? type : "");
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (json_body_get(body, fields[i]) == NULL) continue;
        return api_fail(error, 400, fields[i], "%s: not served by this version", fields[i]);
    }
    return true;
}

void constrain_release(skv_constraint *constraint)
{
    if (constraint->begin != NULL && constraint->release != NULL) {
        constraint->release(constraint->user);
    }
    *constraint = (skv_constraint){0};
}
