/* The keywords of JSON schemas, and the values that some of them want: types, numbers, $ref. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/grammar_front.h"
#include "grammar/schema_impl.h"

enum { REF_WORK = 16 /* units to look up a $ref */ };

typedef struct keyword {
    const char *name, *type; /* type: NULL for every type */
    skv_keyword_use use;
} keyword;

/* Keywords that are not in this table are refused by name. */
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
    {"propertyNames", "object", SKV_KEYWORD_USED},
    {"patternProperties", "object", SKV_KEYWORD_USED},
    {"minProperties", "object", SKV_KEYWORD_USED},
    {"maxProperties", "object", SKV_KEYWORD_USED},
    {"items", "array", SKV_KEYWORD_USED},
    {"additionalItems", "array", SKV_KEYWORD_USED},
    {"prefixItems", "array", SKV_KEYWORD_USED},
    {"minItems", "array", SKV_KEYWORD_USED},
    {"maxItems", "array", SKV_KEYWORD_USED},
    {"uniqueItems", "array", SKV_KEYWORD_USED},
    {"minLength", "string", SKV_KEYWORD_USED},
    {"maxLength", "string", SKV_KEYWORD_USED},
    {"pattern", "string", SKV_KEYWORD_USED},
    {"format", "string", SKV_KEYWORD_USED},
    {"minimum", "number", SKV_KEYWORD_USED},
    {"maximum", "number", SKV_KEYWORD_USED},
    {"exclusiveMinimum", "number", SKV_KEYWORD_USED},
    {"exclusiveMaximum", "number", SKV_KEYWORD_USED},
    {"multipleOf", "number", SKV_KEYWORD_USED},
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
    {"contentSchema", NULL, SKV_KEYWORD_NOTE},
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
    if (found) return found->use;
    return strncmp(name, "x-", 2) == 0 ? SKV_KEYWORD_NOTE : SKV_KEYWORD_UNKNOWN;
}

const char *skv_schema_keyword_type(const char *name)
{
    const keyword *found = find(name);
    return found ? found->type : NULL;
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

skv_status skv_schema_no_memory(skv_schema *s)
{
    SKV_TRY(skv_budget_check(s->exprs->budget, "json schema", s->err));
    return skv_schema_fail(s, SKV_MEMORY, "no memory");
}

skv_status skv_schema_count(skv_schema *s, uint64_t work, size_t n_bytes)
{
    skv_budget *budget = s->exprs->budget;
    bool fits = skv_budget_work(budget, work) && skv_budget_take(budget, n_bytes);
    if (fits) s->json_bytes += n_bytes;
    return fits ? SKV_OK : skv_budget_check(budget, "json schema", s->err);
}

skv_status skv_schema_integer(skv_schema *s, const json_t *node, const char *key, uint32_t fallback,
                              uint32_t *out)
{
    const json_t *value = json_object_get(node, key);
    *out = fallback;
    if (!value) return SKV_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != trunc(number)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"%s\" is no whole number from 0", key);
    }
    if (number > SKV_REPEAT_COUNT_MAX && s->loose) return SKV_OK;
    if (number > SKV_REPEAT_COUNT_MAX) {
        return skv_schema_fail(s, SKV_RANGE, "\"%s\" is %.15g, at most %d", key, number,
                               SKV_REPEAT_COUNT_MAX);
    }
    *out = (uint32_t)number;
    return SKV_OK;
}

static const char *const types[SKV_N_TYPES] = {"object",  "array",   "string", "number",
                                               "integer", "boolean", "null"};

const char *skv_schema_type_name(skv_schema_type type)
{
    return types[type];
}

static unsigned type_bit(const json_t *name)
{
    for (unsigned i = 0; json_is_string(name) && i < SKV_N_TYPES; i++) {
        if (strcmp(json_string_value(name), types[i]) == 0) return 1u << i;
    }
    return 0;
}

skv_status skv_schema_types(skv_schema *s, const json_t *value, unsigned *out)
{
    size_t n = json_array_size(value);
    unsigned set = type_bit(value);
    bool good = set != 0 || (n > 0 && n <= SKV_N_TYPES);
    for (size_t i = 0; good && i < n; i++) {
        unsigned bit = type_bit(json_array_get(value, i));
        good = bit != 0 && !(set & bit);
        set |= bit;
    }
    *out = set;
    if (good) return SKV_OK;
    return skv_schema_fail(s, SKV_FORMAT,
                           "\"type\" is none of object, array, string, number, "
                           "integer, boolean, null, nor a list of some");
}

/* ---- references ---- */

/* One step of a JSON pointer: "~1" is '/', "~0" is '~', "%XX" a byte. */
static void unescape(const char *text, size_t n, skv_buf *out)
{
    skv_buf_clear(out);
    for (size_t i = 0; i < n; i++) {
        uint32_t code;
        size_t at = i + 1;
        char c = text[i];
        if (c == '~' && at < n && (text[at] == '0' || text[at] == '1')) {
            c = text[at] == '0' ? '~' : '/';
            i++;
        } else if (c == '%' && skv_read_hex(text, n, &at, 2, &code)) {
            c = (char)code;
            i += 2;
        }
        (void)skv_buf_byte(out, c);
    }
}

static const json_t *step_into(const json_t *node, const char *key, size_t n)
{
    if (json_is_object(node)) return json_object_getn(node, key, n);
    size_t i = 0;
    if (!json_is_array(node) || n == 0 || n > 6) return NULL;
    for (size_t k = 0; k < n; k++) {
        if (key[k] < '0' || key[k] > '9') return NULL;
        i = i * 10 + (size_t)(key[k] - '0');
    }
    return json_array_get(node, i);
}

skv_status skv_schema_resolve(skv_schema *s, const json_t *referrer, const json_t **out)
{
    const json_t *node = s->root, *text = json_object_get(referrer, "$ref");
    const char *ref = json_string_value(text);
    if (!ref) return skv_schema_fail(s, SKV_FORMAT, "\"$ref\" is no text");
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        *out = json_true(); /* any value */
        if (s->loose) return SKV_OK;
        return skv_schema_fail(s, SKV_UNSUPPORTED,
                               "\"$ref\" to \"%.100s\": only \"#/...\" is supported", ref);
    }
    SKV_TRY(skv_schema_count(s, REF_WORK + json_string_length(text) / 4, 0));
    for (const char *at = ref + 1; *at == '/' && node;) {
        size_t n = strcspn(++at, "/");
        unescape(at, n, &s->key);
        if (s->key.failed) return skv_schema_no_memory(s);
        node = step_into(node, s->key.data, s->key.size);
        at += n;
    }
    if (!node) {
        return skv_schema_fail(s, SKV_FORMAT, "\"$ref\" to \"%.100s\", which is not there", ref);
    }
    *out = node;
    return SKV_OK;
}
