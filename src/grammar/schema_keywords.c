/* The keywords of JSON schemas, and the values that some of them want. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/schema_impl.h"

typedef struct keyword {
    const char *name, *type; /* type: NULL for every type */
    skv_keyword_use use;
} keyword;

/* What is not in this table is refused by its name. */
static const keyword keywords[] = {
    {"type", NULL, SKV_KEYWORD_USED},
    {"enum", NULL, SKV_KEYWORD_USED},
    {"const", NULL, SKV_KEYWORD_USED},
    {"anyOf", NULL, SKV_KEYWORD_USED},
    {"oneOf", NULL, SKV_KEYWORD_USED},
    {"allOf", NULL, SKV_KEYWORD_USED},
    {"$ref", NULL, SKV_KEYWORD_USED},
    {"nullable", NULL, SKV_KEYWORD_USED},
    {"properties", "object", SKV_KEYWORD_USED},
    {"required", "object", SKV_KEYWORD_USED},
    {"additionalProperties", "object", SKV_KEYWORD_USED},
    {"items", "array", SKV_KEYWORD_USED},
    {"additionalItems", "array", SKV_KEYWORD_USED},
    {"prefixItems", "array", SKV_KEYWORD_USED},
    {"minItems", "array", SKV_KEYWORD_USED},
    {"maxItems", "array", SKV_KEYWORD_USED},
    {"minLength", "string", SKV_KEYWORD_USED},
    {"maxLength", "string", SKV_KEYWORD_USED},
    {"pattern", "string", SKV_KEYWORD_USED},
    {"format", "string", SKV_KEYWORD_USED},
    {"minimum", "number", SKV_KEYWORD_USED},
    {"maximum", "number", SKV_KEYWORD_USED},
    {"exclusiveMinimum", "number", SKV_KEYWORD_USED},
    {"exclusiveMaximum", "number", SKV_KEYWORD_USED},
    {"title", NULL, SKV_KEYWORD_NOTE},
    {"description", NULL, SKV_KEYWORD_NOTE},
    {"default", NULL, SKV_KEYWORD_NOTE},
    {"examples", NULL, SKV_KEYWORD_NOTE},
    {"example", NULL, SKV_KEYWORD_NOTE},
    {"deprecated", NULL, SKV_KEYWORD_NOTE},
    {"readOnly", NULL, SKV_KEYWORD_NOTE},
    {"writeOnly", NULL, SKV_KEYWORD_NOTE},
    {"discriminator", NULL, SKV_KEYWORD_NOTE},
    {"externalDocs", NULL, SKV_KEYWORD_NOTE},
    {"contentMediaType", NULL, SKV_KEYWORD_NOTE},
    {"contentEncoding", NULL, SKV_KEYWORD_NOTE},
    {"$schema", NULL, SKV_KEYWORD_NOTE},
    {"$id", NULL, SKV_KEYWORD_NOTE},
    {"id", NULL, SKV_KEYWORD_NOTE},
    {"$comment", NULL, SKV_KEYWORD_NOTE},
    {"$defs", NULL, SKV_KEYWORD_NOTE},
    {"definitions", NULL, SKV_KEYWORD_NOTE},
};

static const keyword *find(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    }
    return NULL;
}

skv_keyword_use skv_schema_keyword(const char *name)
{
    const keyword *found = find(name);
    if (found != NULL) return found->use;
    return strncmp(name, "x-", 2) == 0 ? SKV_KEYWORD_NOTE : SKV_KEYWORD_UNKNOWN;
}

const char *skv_schema_keyword_type(const char *name)
{
    const keyword *found = find(name);
    return found != NULL ? found->type : NULL;
}

skv_status skv_schema_fail(skv_schema *s, skv_status status, const char *format, ...)
{
    char text[SKV_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *path = s->path.size > 0 ? s->path.data : "/";
    return skv_fail(s->err, status, "json schema: %s: %s", path, text);
}

skv_status skv_schema_refuse(skv_schema *s, const char *keyword_name)
{
    return skv_schema_fail(s, SKV_UNSUPPORTED, "the keyword \"%s\" is not supported here",
                           keyword_name);
}

skv_status skv_schema_count(skv_schema *s, const json_t *node, const char *key, uint32_t fallback,
                            uint32_t *out)
{
    const json_t *value = json_object_get(node, key);
    *out = fallback;
    if (value == NULL) return SKV_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != (double)(long long)number) {
        return skv_schema_fail(s, SKV_FORMAT, "\"%s\" is no whole number from 0", key);
    }
    if (number > SKV_REPEAT_COUNT_MAX) {
        return skv_schema_fail(s, SKV_RANGE, "\"%s\" is %.0f, at most %d", key, number,
                               SKV_REPEAT_COUNT_MAX);
    }
    *out = (uint32_t)number;
    return SKV_OK;
}

bool skv_schema_has_type(const json_t *node, const char *type)
{
    const json_t *types = json_object_get(node, "type"), *one;
    size_t i;
    if (json_is_string(types)) return strcmp(json_string_value(types), type) == 0;
    json_array_foreach(types, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), type) == 0) return true;
    }
    return false;
}
