/* The decoder and the post_processor of tokenizer.json. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"

static skv_status add_step(skv_tokenizer *t, skv_decode_kind kind, skv_decode_step **out,
                           skv_error *err)
{
    SKV_REQUIRE(t->decoder.n_steps < SKV_STEPS_MAX, err, SKV_RANGE, "%s: more than %d decoders",
                t->name, (int)SKV_STEPS_MAX);
    *out = &t->decoder.steps[t->decoder.n_steps++];
    **out = (skv_decode_step){.kind = kind};
    return SKV_OK;
}

static skv_status copy_texts(const skv_tokenizer *t, skv_decode_step *step, const char *from,
                             size_t n_from, const char *to, size_t n_to, skv_error *err)
{
    step->from = skv_strndup(from, n_from);
    step->to = skv_strndup(to, n_to);
    step->n_from = n_from;
    step->n_to = n_to;
    SKV_REQUIRE(step->from && step->to, err, SKV_MEMORY, "%s: no memory", t->name);
    return SKV_OK;
}

static skv_status read_replace(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_decode_step *step = NULL;
    const char *from, *to;
    size_t n_from, n_to;
    bool is_regex;
    SKV_TRY(skv_node_pattern(t, node, &from, &n_from, &is_regex, err));
    SKV_TRY(skv_node_text(t, node, "content", &to, &n_to, err));
    SKV_REQUIRE(!is_regex, err, SKV_UNSUPPORTED, "%s: decoder Replace by a regular expression",
                t->name);
    SKV_TRY(add_step(t, SKV_DECODE_REPLACE, &step, err));
    return copy_texts(t, step, from, n_from, to, n_to, err);
}

static skv_status read_metaspace(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    skv_decode_step *step = NULL;
    const char *from;
    size_t n_from;
    bool prefix;
    const char *scheme = json_string_value(json_object_get(node, "prepend_scheme"));
    SKV_TRY(skv_node_bool(t, node, "add_prefix_space", true, &prefix, err));
    SKV_TRY(skv_node_text(t, node, "replacement", &from, &n_from, err));
    SKV_TRY(add_step(t, SKV_DECODE_METASPACE, &step, err));
    step->keep_first = !prefix || (scheme && strcmp(scheme, "never") == 0);
    return copy_texts(t, step, from, n_from, " ", 1, err);
}

/* Strip works on single tokens before Fuse, on the whole text after it. */
static skv_status read_strip(skv_tokenizer *t, const json_t *node, bool fused, skv_error *err)
{
    skv_decoder *decoder = &t->decoder;
    skv_decode_step *step = NULL;
    const char *text;
    size_t n, start, stop;
    SKV_TRY(skv_node_text(t, node, "content", &text, &n, err));
    SKV_TRY(skv_node_size(t, node, "start", 1024, &start, err));
    SKV_TRY(skv_node_size(t, node, "stop", 1024, &stop, err));
    SKV_REQUIRE(stop == 0 && n > 0 && n <= 4, err, SKV_UNSUPPORTED,
                "%s: decoder Strip with stop %zu and a content of %zu bytes", t->name, stop, n);
    if (fused) {
        SKV_REQUIRE(decoder->n_strip == 0, err, SKV_UNSUPPORTED,
                    "%s: two decoders Strip after Fuse", t->name);
        memcpy(decoder->strip_char, text, n);
        decoder->n_strip_char = n;
        decoder->n_strip = start;
        return SKV_OK;
    }
    SKV_TRY(add_step(t, SKV_DECODE_STRIP, &step, err));
    step->n = start;
    return copy_texts(t, step, text, n, "", 0, err);
}

static skv_status read_decoders(skv_tokenizer *t, const json_t *node, int depth, bool *fused,
                                skv_error *err)
{
    skv_decode_step *step = NULL;
    const json_t *list;
    SKV_TRY(skv_node_sequence(t, node, "decoders", depth, &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        SKV_TRY(read_decoders(t, json_array_get(list, i), depth + 1, fused, err));
    }
    if (list) return SKV_OK;
    if (skv_node_is(node, "Fuse")) {
        *fused = true;
        return SKV_OK;
    }
    if (skv_node_is(node, "Strip")) return read_strip(t, node, *fused, err);
    SKV_REQUIRE(!*fused, err, SKV_UNSUPPORTED, "%s: decoder %s after the tokens are joined",
                t->name, skv_node_type(node));
    if (skv_node_is(node, "Replace")) return read_replace(t, node, err);
    if (skv_node_is(node, "Metaspace")) return read_metaspace(t, node, err);
    if (skv_node_is(node, "ByteFallback")) {
        t->decoder.lossy_bytes = true;
        return add_step(t, SKV_DECODE_BYTES, &step, err);
    }
    SKV_REQUIRE(skv_node_is(node, "ByteLevel"), err, SKV_UNSUPPORTED, "%s: decoder %s", t->name,
                skv_node_type(node));
    *fused = true;
    return add_step(t, SKV_DECODE_BYTE_LEVEL, &step, err);
}

skv_status skv_read_decoder(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    bool fused = false;
    t->decoder.join_by_space = !node || json_is_null(node);
    return t->decoder.join_by_space ? SKV_OK : read_decoders(t, node, 0, &fused, err);
}

static skv_status put_id(skv_tokenizer *t, const json_t *value, int32_t *ids, size_t *n,
                         skv_error *err)
{
    json_int_t id = json_integer_value(value);
    SKV_REQUIRE(json_is_integer(value) && id >= 0 && (uint64_t)id < t->vocab.n_ids, err, SKV_FORMAT,
                "%s: id %lld in post_processor, the vocabulary has %zu", t->name, (long long)id,
                t->vocab.n_ids);
    SKV_REQUIRE(*n < SKV_AFFIX_MAX, err, SKV_UNSUPPORTED,
                "%s: post_processor adds more than %d tokens", t->name, (int)SKV_AFFIX_MAX);
    ids[(*n)++] = (int32_t)id;
    return SKV_OK;
}

/* single: [{"SpecialToken": {"id": name}}, {"Sequence": {"id": "A"}}, ...] */
static skv_status read_template(skv_tokenizer *t, const json_t *node, int32_t *before,
                                size_t *n_before, int32_t *after, size_t *n_after, skv_error *err)
{
    const json_t *single = json_object_get(node, "single");
    const json_t *tokens = json_object_get(node, "special_tokens");
    bool seen = false;
    SKV_REQUIRE(json_is_array(single), err, SKV_FORMAT, "%s: TemplateProcessing without single",
                t->name);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (!special) {
            SKV_REQUIRE(json_object_get(piece, "Sequence") && !seen, err, SKV_UNSUPPORTED,
                        "%s: TemplateProcessing with a single that repeats the text", t->name);
            seen = true;
            continue;
        }
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids = json_object_get(json_object_get(tokens, name ? name : ""), "ids");
        SKV_REQUIRE(json_is_array(ids), err, SKV_FORMAT,
                    "%s: TemplateProcessing names no token '%s'", t->name, name ? name : "");
        for (size_t k = 0; k < json_array_size(ids); k++) {
            SKV_TRY(put_id(t, json_array_get(ids, k), seen ? after : before,
                           seen ? n_after : n_before, err));
        }
    }
    SKV_REQUIRE(seen, err, SKV_UNSUPPORTED, "%s: TemplateProcessing without the text", t->name);
    return SKV_OK;
}

static skv_status add_affixes(skv_tokenizer *t, const int32_t *before, size_t n_before,
                              const int32_t *after, size_t n_after, skv_error *err)
{
    SKV_REQUIRE(t->n_prefix + n_before <= SKV_AFFIX_MAX && t->n_suffix + n_after <= SKV_AFFIX_MAX,
                err, SKV_UNSUPPORTED, "%s: post_processor adds more than %d tokens", t->name,
                (int)SKV_AFFIX_MAX);
    memmove(t->prefix + n_before, t->prefix, t->n_prefix * sizeof *t->prefix);
    memcpy(t->prefix, before, n_before * sizeof *before);
    memcpy(t->suffix + t->n_suffix, after, n_after * sizeof *after);
    t->n_prefix += n_before;
    t->n_suffix += n_after;
    return SKV_OK;
}

static skv_status read_post(skv_tokenizer *t, const json_t *node, int depth, skv_error *err)
{
    int32_t before[SKV_AFFIX_MAX], after[SKV_AFFIX_MAX];
    size_t n_before = 0, n_after = 0;
    if (skv_node_is(node, "ByteLevel")) return SKV_OK;
    const json_t *list;
    SKV_TRY(skv_node_sequence(t, node, "processors", depth, &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        SKV_TRY(read_post(t, json_array_get(list, i), depth + 1, err));
    }
    if (list) return SKV_OK;
    if (skv_node_is(node, "TemplateProcessing")) {
        SKV_TRY(read_template(t, node, before, &n_before, after, &n_after, err));
    } else {
        SKV_REQUIRE(skv_node_is(node, "BertProcessing") || skv_node_is(node, "RobertaProcessing"),
                    err, SKV_UNSUPPORTED, "%s: post_processor %s", t->name, skv_node_type(node));
        SKV_TRY(put_id(t, json_array_get(json_object_get(node, "cls"), 1), before, &n_before, err));
        SKV_TRY(put_id(t, json_array_get(json_object_get(node, "sep"), 1), after, &n_after, err));
    }
    return add_affixes(t, before, n_before, after, n_after, err);
}

skv_status skv_read_postprocessor(skv_tokenizer *t, const json_t *node, skv_error *err)
{
    return !node || json_is_null(node) ? SKV_OK : read_post(t, node, 0, err);
}
