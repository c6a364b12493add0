/* The normalizer and the pre_tokenizer of tokenizer.json, and checked access to its values. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"
#include "text/unicode_class.h"

enum { NESTING_MAX = 8 };

const char *skv_node_type(const json_t *node)
{
    const char *type = json_string_value(json_object_get(node, "type"));
    return type ? type : "(no type)";
}

bool skv_node_is(const json_t *node, const char *type)
{
    return strcmp(skv_node_type(node), type) == 0;
}

skv_status skv_node_sequence(const skv_tokenizer *t, const json_t *node, const char *what,
                             int depth, const json_t **list, skv_error *err)
{
    *list = NULL;
    if (!skv_node_is(node, "Sequence")) return SKV_OK;
    *list = json_object_get(node, what);
    SKV_REQUIRE(json_is_array(*list) && depth < NESTING_MAX, err, SKV_FORMAT,
                "%s: %s is no list, or nested too deep", t->name, what);
    return SKV_OK;
}

skv_status skv_node_bool(const skv_tokenizer *t, const json_t *node, const char *what,
                         bool fallback, bool *out, skv_error *err)
{
    const json_t *value = json_object_get(node, what);
    *out = fallback;
    if (!value || json_is_null(value)) return SKV_OK;
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
    *is_regex = json_object_get(pattern, "Regex");
    const json_t *value = json_object_get(pattern, *is_regex ? "Regex" : "String");
    SKV_REQUIRE(json_is_string(value), err, SKV_FORMAT,
                "%s: pattern of %s is neither String nor Regex", t->name, skv_node_type(node));
    *text = json_string_value(value);
    *n = json_string_length(value);
    return SKV_OK;
}

static skv_status copy_text(const skv_tokenizer *t, const char *text, size_t n, char **out,
                            size_t *n_out, skv_error *err)
{
    *out = skv_strndup(text, n);
    *n_out = n;
    SKV_REQUIRE(*out, err, SKV_MEMORY, "%s: no memory", t->name);
    return SKV_OK;
}

static skv_status read_replace(skv_tokenizer *t, const json_t *node, skv_norm_step *step,
                               skv_error *err)
{
    const char *text = NULL;
    size_t n = 0;
    bool is_regex;
    SKV_TRY(skv_node_text(t, node, "content", &text, &n, err));
    SKV_TRY(copy_text(t, text, n, &step->to, &step->n_to, err));
    SKV_TRY(skv_node_pattern(t, node, &text, &n, &is_regex, err));
    if (is_regex) {
        step->kind = SKV_NORM_REPLACE_REGEX;
        return skv_regex_create(text, n, t->name, &step->regex, err);
    }
    SKV_REQUIRE(n > 0, err, SKV_UNSUPPORTED, "%s: normalizer Replace of an empty text", t->name);
    return copy_text(t, text, n, &step->from, &step->n_from, err);
}

static const struct {
    const char *type;
    skv_norm_kind kind;
} norm_types[] = {
    {"NFC", SKV_NORM_NFC},
    {"NFD", SKV_NORM_NFD},
    {"NFKC", SKV_NORM_NFKC},
    {"NFKD", SKV_NORM_NFKD},
    {"Lowercase", SKV_NORM_LOWERCASE},
    {"Prepend", SKV_NORM_PREPEND},
    {"Replace", SKV_NORM_REPLACE},
    {"Strip", SKV_NORM_STRIP},
    {"StripAccents", SKV_NORM_STRIP_ACCENTS},
};

static skv_status read_norm_step(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_normalizer *normalizer = &t->normalizer;
    size_t i = 0, n_types = sizeof norm_types / sizeof norm_types[0];
    while (i < n_types && !skv_node_is(node, norm_types[i].type)) i++;
    SKV_REQUIRE(i < n_types, err, SKV_UNSUPPORTED, "%s: normalizer %s", t->name,
                skv_node_type(node));
    SKV_REQUIRE(normalizer->n_steps < SKV_NORM_STEPS_MAX, err, SKV_RANGE,
                "%s: more than %d normalizers", t->name, (int)SKV_NORM_STEPS_MAX);
    skv_norm_step *step = &normalizer->steps[normalizer->n_steps++];
    *step = (skv_norm_step){.kind = norm_types[i].kind};
    if (step->kind == SKV_NORM_REPLACE) return read_replace(t, node, step, err);
    if (step->kind == SKV_NORM_PREPEND) {
        const char *text = NULL;
        size_t n = 0;
        SKV_TRY(skv_node_text(t, node, "prepend", &text, &n, err));
        return copy_text(t, text, n, &step->to, &step->n_to, err);
    }
    if (step->kind == SKV_NORM_STRIP) {
        SKV_TRY(skv_node_bool(t, node, "strip_left", false, &step->left, err));
        return skv_node_bool(t, node, "strip_right", false, &step->right, err);
    }
    return SKV_OK;
}

static skv_status read_norms(skv_tokenizer *t, const json_t *node, int depth, skv_error *err)
{
    const json_t *list;
    SKV_TRY(skv_node_sequence(t, node, "normalizers", depth, &list, err));
    if (!list) return read_norm_step(t, node, err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        SKV_TRY(read_norms(t, json_array_get(list, i), depth + 1, err));
    }
    return SKV_OK;
}

skv_status skv_read_normalizer(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    if (!node || json_is_null(node)) return SKV_OK;
    return read_norms(t, node, 0, err);
}

static skv_status add_step(skv_tokenizer *t, skv_pre_kind kind, skv_pre_step **step, skv_error *err)
{
    *step = skv_pretokenizer_add(&t->pretokenizer, kind);
    SKV_REQUIRE(*step, err, SKV_RANGE, "%s: more than %d pre_tokenizers", t->name,
                (int)SKV_PRE_STEPS_MAX);
    return SKV_OK;
}

/* The bytes stay bytes as long as ByteLevel is the last step; others would see its alphabet. */
static skv_status read_byte_level(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    bool prefix, regex;
    skv_pre_step *step;
    SKV_TRY(skv_node_bool(t, node, "add_prefix_space", true, &prefix, err));
    SKV_TRY(skv_node_bool(t, node, "use_regex", true, &regex, err));
    if (prefix) SKV_TRY(add_step(t, SKV_PRE_PREFIX, &step, err));
    if (regex) {
        SKV_TRY(add_step(t, SKV_PRE_SCAN, &step, err));
        step->scan = skv_scan_gpt2;
    }
    return add_step(t, SKV_PRE_ALPHABET, &step, err);
}

static skv_status read_behavior(const skv_tokenizer *t, const json_t *node, const char *fallback,
                                skv_split_behavior *out, skv_error *err)
{
    static const struct {
        const char *name;
        skv_split_behavior behavior;
    } behaviors[] = {
        {"Isolated", SKV_SPLIT_ISOLATED},
        {"Removed", SKV_SPLIT_REMOVED},
        {"Contiguous", SKV_SPLIT_CONTIGUOUS},
        {"MergedWithPrevious", SKV_SPLIT_MERGED_WITH_PREVIOUS},
        {"MergedWithNext", SKV_SPLIT_MERGED_WITH_NEXT},
    };
    const char *name = json_string_value(json_object_get(node, "behavior"));
    if (!name) name = fallback;
    for (size_t i = 0; i < sizeof behaviors / sizeof behaviors[0]; i++) {
        if (strcmp(behaviors[i].name, name) != 0) continue;
        *out = behaviors[i].behavior;
        return SKV_OK;
    }
    return skv_fail(err, SKV_UNSUPPORTED, "%s: behavior '%s' of pre_tokenizer %s", t->name, name,
                    skv_node_type(node));
}

static skv_status read_split(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    const char *text = NULL;
    size_t n = 0;
    bool is_regex, invert;
    skv_split_behavior behavior = SKV_SPLIT_ISOLATED;
    skv_pre_step *step;
    SKV_TRY(read_behavior(t, node, "(none)", &behavior, err));
    SKV_TRY(skv_node_bool(t, node, "invert", false, &invert, err));
    SKV_TRY(skv_node_pattern(t, node, &text, &n, &is_regex, err));
    if (is_regex) {
        return skv_pretokenizer_add_regex(&t->pretokenizer, text, n, behavior, invert, t->name,
                                          err);
    }
    SKV_REQUIRE(n > 0, err, SKV_UNSUPPORTED, "%s: pre_tokenizer Split at an empty text", t->name);
    SKV_TRY(add_step(t, SKV_PRE_TEXT, &step, err));
    step->behavior = behavior;
    step->invert = invert;
    return copy_text(t, text, n, &step->text, &step->n_text, err);
}

static skv_status read_metaspace(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_pre_step *step;
    const char *text = NULL;
    size_t n = 0;
    bool prefix;
    SKV_TRY(add_step(t, SKV_PRE_METASPACE, &step, err));
    step->behavior = SKV_SPLIT_MERGED_WITH_NEXT;
    SKV_TRY(skv_node_text(t, node, "replacement", &text, &n, err));
    SKV_TRY(copy_text(t, text, n, &step->text, &step->n_text, err));
    SKV_TRY(skv_node_bool(t, node, "split", true, &step->split, err));
    SKV_TRY(skv_node_bool(t, node, "add_prefix_space", true, &prefix, err));
    const char *scheme = json_string_value(json_object_get(node, "prepend_scheme"));
    if (!scheme) scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        step->prepend = SKV_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        step->prepend = SKV_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        step->prepend = SKV_PREPEND_NEVER;
    else
        return skv_fail(err, SKV_UNSUPPORTED, "%s: prepend_scheme '%s'", t->name, scheme);
    return SKV_OK;
}

static skv_status read_classes(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_pre_step *step;
    SKV_TRY(add_step(t, SKV_PRE_CLASS, &step, err));
    if (skv_node_is(node, "Digits")) {
        bool individual;
        SKV_TRY(skv_node_bool(t, node, "individual_digits", false, &individual, err));
        step->classes = SKV_U_NUMERIC;
        step->behavior = individual ? SKV_SPLIT_ISOLATED : SKV_SPLIT_CONTIGUOUS;
        return SKV_OK;
    }
    if (skv_node_is(node, "WhitespaceSplit")) {
        step->classes = SKV_U_SPACE;
        step->behavior = SKV_SPLIT_REMOVED;
        return SKV_OK;
    }
    step->classes = SKV_U_OLD_PUNCT;
    step->ascii_punct = true;
    return read_behavior(t, node, "Isolated", &step->behavior, err);
}

/* \w+|[^\w\s]+, everything else dropped: two splits by class do the same. */
static skv_status read_whitespace(skv_tokenizer *t, skv_error *err)
{
    skv_pre_step *step;
    SKV_TRY(add_step(t, SKV_PRE_CLASS, &step, err));
    step->classes = SKV_U_SPACE;
    step->behavior = SKV_SPLIT_REMOVED;
    SKV_TRY(add_step(t, SKV_PRE_CLASS, &step, err));
    step->classes = SKV_U_WORD;
    step->behavior = SKV_SPLIT_CONTIGUOUS;
    return SKV_OK;
}

static skv_status read_pres(skv_tokenizer *t, const json_t *node, int depth, skv_error *err)
{
    const json_t *list;
    SKV_TRY(skv_node_sequence(t, node, "pretokenizers", depth, &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        SKV_TRY(read_pres(t, json_array_get(list, i), depth + 1, err));
    }
    if (list) return SKV_OK;
    if (skv_node_is(node, "ByteLevel")) return read_byte_level(t, node, err);
    if (skv_node_is(node, "Split")) return read_split(t, node, err);
    if (skv_node_is(node, "Metaspace")) return read_metaspace(t, node, err);
    if (skv_node_is(node, "Whitespace")) return read_whitespace(t, err);
    if (skv_node_is(node, "Digits") || skv_node_is(node, "Punctuation") ||
        skv_node_is(node, "WhitespaceSplit")) {
        return read_classes(t, node, err);
    }
    return skv_fail(err, SKV_UNSUPPORTED, "%s: pre_tokenizer %s", t->name, skv_node_type(node));
}

skv_status skv_read_pretokenizer(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_pretokenizer *pre = &t->pretokenizer;
    if (!node || json_is_null(node)) return SKV_OK;
    SKV_TRY(read_pres(t, node, 0, err));
    if (pre->n_steps == 0 || pre->steps[pre->n_steps - 1].kind != SKV_PRE_ALPHABET) return SKV_OK;
    /* The model maps the bytes of a word itself, where no other step did before. */
    for (size_t i = 0; i + 1 < pre->n_steps; i++) {
        if (pre->steps[i].kind == SKV_PRE_ALPHABET) return SKV_OK;
    }
    pre->n_steps--;
    t->bpe.byte_level = true;
    return SKV_OK;
}
