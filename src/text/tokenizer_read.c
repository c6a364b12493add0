/* Checked access to the JSON values of tokenizer.json. */
#include <jansson.h>

#include "text/tokenizer_impl.h"

const char *skv_node_type(const json_t *node)
{
    const char *type = json_string_value(json_object_get(node, "type"));
    return type != NULL ? type : "(no type)";
}

skv_status skv_node_bool(const skv_tokenizer *t, const json_t *node, const char *what,
                         bool fallback, bool *out, skv_error *err)
{
    const json_t *value = json_object_get(node, what);
    *out = fallback;
    if (value == NULL || json_is_null(value)) return SKV_OK;
    SKV_REQUIRE(json_is_boolean(value), err, SKV_FORMAT, "%s: %s is not true or false", t->name,
                what);
    *out = json_is_true(value);
    return SKV_OK;
}

skv_status skv_node_text(const skv_tokenizer *t, const json_t *node, const char *what,
                         const char **text, size_t *n, skv_error *err)
{
    const json_t *value = json_object_get(node, what);
    SKV_REQUIRE(json_is_string(value), err, SKV_FORMAT, "%s: %s of %s is not a text", t->name, what,
                skv_node_type(node));
    *text = json_string_value(value);
    *n = json_string_length(value);
    return SKV_OK;
}

skv_status skv_node_size(const skv_tokenizer *t, const json_t *node, const char *what, size_t max,
                         size_t *out, skv_error *err)
{
    const json_t *value = json_object_get(node, what);
    json_int_t number = json_integer_value(value);
    SKV_REQUIRE(json_is_integer(value) && number >= 0 && (uint64_t)number <= max, err, SKV_FORMAT,
                "%s: %s of %s is not a number up to %zu", t->name, what, skv_node_type(node), max);
    *out = (size_t)number;
    return SKV_OK;
}

skv_status skv_node_pattern(const skv_tokenizer *t, const json_t *node, const char **text,
                            size_t *n, bool *is_regex, skv_error *err)
{
    const json_t *pattern = json_object_get(node, "pattern");
    *is_regex = json_object_get(pattern, "Regex") != NULL;
    const json_t *value = json_object_get(pattern, *is_regex ? "Regex" : "String");
    SKV_REQUIRE(json_is_string(value), err, SKV_FORMAT,
                "%s: pattern of %s is neither String nor Regex", t->name, skv_node_type(node));
    *text = json_string_value(value);
    *n = json_string_length(value);
    return SKV_OK;
}
