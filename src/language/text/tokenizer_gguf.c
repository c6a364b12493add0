/*
 * The tokenizer in the metadata of a GGUF file, as llama.cpp runs it: "llama" is SentencePiece's
 * BPE by scores, "gpt2" a byte-level BPE whose splitting has a name (tokenizer.ggml.pre), "gemma4"
 * a BPE by merges over characters, where a space is U+2581 and bytes stand in for unknown
 * characters.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/gguf.h"
#include "text/tokenizer_impl.h"

enum token_type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* The arrays of the file; NULL if absent. */
typedef struct gguf_vocab {
    const skv_gguf *gguf;
    const skv_gguf_value *tokens, *types, *scores, *merges;
    size_t n;
} gguf_vocab;

/* Names that llama.cpp takes for control tokens whatever type the file gives them. */
static const char *const control_names[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

/* And those that it always takes for text to be shown. */
static const char *const shown_names[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>"};

static bool is_one_of(const char *const *names, size_t n_names, const char *text, size_t n)
{
    for (size_t i = 0; i < n_names; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], text, n) == 0) return true;
    }
    return false;
}

static skv_status find_array(const skv_gguf *gguf, const char *key, skv_gguf_type element,
                             const skv_gguf_value **out, size_t *n, skv_error *err)
{
    *n = 0;
    *out = skv_gguf_find(gguf, key);
    return !*out ? SKV_OK : skv_gguf_array(*out, element, n, err);
}

static skv_status find_arrays(const skv_gguf *gguf, gguf_vocab *v, skv_error *err)
{
    const char *name = skv_gguf_name(gguf);
    size_t n_types, n_scores, n_merges;
    *v = (gguf_vocab){.gguf = gguf};
    SKV_TRY(find_array(gguf, "tokenizer.ggml.tokens", SKV_GGUF_STRING, &v->tokens, &v->n, err));
    SKV_REQUIRE(v->n > 0, err, SKV_FORMAT, "%s: tokenizer.ggml.tokens is missing or empty", name);
    SKV_TRY(find_array(gguf, "tokenizer.ggml.token_type", SKV_GGUF_I32, &v->types, &n_types, err));
    SKV_TRY(find_array(gguf, "tokenizer.ggml.scores", SKV_GGUF_F32, &v->scores, &n_scores, err));
    SKV_TRY(find_array(gguf, "tokenizer.ggml.merges", SKV_GGUF_STRING, &v->merges, &n_merges, err));
    SKV_REQUIRE(!v->types || n_types == v->n, err, SKV_FORMAT,
                "%s: tokenizer.ggml.token_type has %zu entries for %zu tokens", name, n_types,
                v->n);
    SKV_REQUIRE(!v->scores || n_scores == v->n, err, SKV_FORMAT,
                "%s: tokenizer.ggml.scores has %zu entries for %zu tokens", name, n_scores, v->n);
    return SKV_OK;
}

static unsigned flags_of(int type, const char *text, size_t n)
{
    size_t n_control = sizeof control_names / sizeof control_names[0];
    size_t n_shown = sizeof shown_names / sizeof shown_names[0];
    if (is_one_of(shown_names, n_shown, text, n)) return SKV_TOKEN_LITERAL;
    if (type == CONTROL || is_one_of(control_names, n_control, text, n)) {
        return SKV_TOKEN_LITERAL | SKV_TOKEN_SPECIAL;
    }
    if (type == UNKNOWN) return SKV_TOKEN_LITERAL | SKV_TOKEN_SPECIAL | SKV_TOKEN_UNKNOWN;
    if (type == USER_DEFINED) return SKV_TOKEN_LITERAL;
    if (type == BYTE && skv_byte_token_value(text, n) >= 0) return SKV_TOKEN_BYTE;
    return 0;
}

/* Phi-3's control tokens consume the white space after them, except these. */
static bool strips_right(const skv_gguf *gguf, const char *text, size_t n)
{
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    const skv_gguf_value *value = skv_gguf_find(gguf, "general.name");
    const char *name;
    size_t n_name;
    if (!value || skv_gguf_string(value, &name, &n_name, NULL) != SKV_OK) return false;
    bool is_phi3 = false;
    for (size_t i = 0; i + 4 <= n_name && !is_phi3; i++) {
        bool phi =
            (name[i] | 0x20) == 'p' && (name[i + 1] | 0x20) == 'h' && (name[i + 2] | 0x20) == 'i';
        is_phi3 = phi && (name[i + 3] == '3' ||
                          (i + 5 <= n_name && name[i + 3] == '-' && name[i + 4] == '3'));
    }
    return is_phi3 && !is_one_of(keep, 3, text, n);
}

static skv_status put_token(skv_tokenizer *t, const gguf_vocab *v, size_t i, skv_error *err)
{
    size_t n;
    const char *text = skv_gguf_string_at(v->tokens, i, &n);
    int type = !v->types ? NORMAL : (int)skv_gguf_i32_at(v->types, i);
    unsigned flags = flags_of(type, text, n);
    if (n == 0) return SKV_OK; /* a gap: no text leads to it */
    SKV_REQUIRE(skv_vocab_find(&t->vocab, text, n) == SKV_NO_TOKEN, err, SKV_FORMAT,
                "%s: token %zu '%.*s' is there twice", t->name, i, (int)skv_min_size(n, 64), text);
    SKV_REQUIRE(skv_vocab_put(&t->vocab, (uint32_t)i, text, n, flags), err, SKV_FORMAT,
                "%s: token %zu does not fit", t->name, i);
    if ((flags & SKV_TOKEN_LITERAL) == 0) return SKV_OK;
    skv_added_token token = {.id = (uint32_t)i,
                             .special = (flags & SKV_TOKEN_SPECIAL) != 0,
                             .rstrip = strips_right(v->gguf, text, n),
                             .trim_ascii = true};
    if (token.rstrip) t->vocab.flags[i] |= SKV_TOKEN_STRIPS;
    return skv_added_put(&t->added, text, n, token, false, err);
}

static skv_status read_tokens(skv_tokenizer *t, const gguf_vocab *v, skv_error *err)
{
    size_t n_bytes = 0, n;
    for (size_t i = 0; i < v->n; i++) {
        (void)skv_gguf_string_at(v->tokens, i, &n);
        n_bytes += n;
    }
    SKV_TRY(skv_vocab_init(&t->vocab, v->n, n_bytes, t->name, err));
    for (size_t i = 0; i < v->n; i++) SKV_TRY(put_token(t, v, i, err));
    return SKV_OK;
}

/* The id under a key; `fallback` when it is absent or no token. */
static int32_t id_under(const skv_tokenizer *t, const skv_gguf *gguf, const char *key,
                        int32_t fallback)
{
    const skv_gguf_value *value = skv_gguf_find(gguf, key);
    uint64_t id;
    if (value && skv_gguf_u64(value, &id, NULL) == SKV_OK && id < t->vocab.n_ids) {
        return (int32_t)id;
    }
    return fallback >= 0 && (size_t)fallback < t->vocab.n_ids ? fallback : -1;
}

static skv_status flag_under(const skv_gguf *gguf, const char *key, bool fallback, bool *out,
                             skv_error *err)
{
    const skv_gguf_value *value = skv_gguf_find(gguf, key);
    *out = fallback;
    return !value ? SKV_OK : skv_gguf_bool(value, out, err);
}

static skv_status read_affixes(skv_tokenizer *t, const skv_gguf *gguf, bool add_bos, skv_error *err)
{
    bool add_eos;
    SKV_TRY(flag_under(gguf, "tokenizer.ggml.add_bos_token", add_bos, &add_bos, err));
    SKV_TRY(flag_under(gguf, "tokenizer.ggml.add_eos_token", false, &add_eos, err));
    t->prefix[0] = t->bos;
    t->suffix[0] = t->eos;
    t->n_prefix = add_bos && t->bos >= 0 ? 1 : 0;
    t->n_suffix = add_eos && t->eos >= 0 ? 1 : 0;
    return SKV_OK;
}

static skv_status build_spm(skv_tokenizer *t, const gguf_vocab *v, skv_error *err)
{
    t->bos = id_under(t, v->gguf, "tokenizer.ggml.bos_token_id", 1);
    t->eos = id_under(t, v->gguf, "tokenizer.ggml.eos_token_id", 2);
    int32_t unk = id_under(t, v->gguf, "tokenizer.ggml.unknown_token_id", 0);
    t->bpe.unk = unk >= 0 && skv_vocab_has(&t->vocab, (uint32_t)unk) ? (uint32_t)unk : SKV_NO_TOKEN;
    t->bpe.byte_fallback = true;
    t->spm = (skv_spm_rules){.active = true, .escape = true, .raw_bytes = true};
    SKV_TRY(flag_under(v->gguf, "tokenizer.ggml.add_space_prefix", true, &t->spm.add_prefix, err));
    SKV_TRY(read_affixes(t, v->gguf, true, err));
    float *scores = skv_alloc_zero(v->n, sizeof *scores);
    SKV_REQUIRE(scores, err, SKV_MEMORY, "%s: no memory", t->name);
    for (size_t i = 0; v->scores && i < v->n; i++) {
        scores[i] = skv_gguf_f32_at(v->scores, i);
        if (isnan(scores[i])) scores[i] = -INFINITY;
    }
    skv_status status = skv_spm_build_merges(t, scores, true, err);
    skv_free(scores);
    return status == SKV_OK ? skv_spm_set_decoder(t, err) : status;
}

static skv_status read_merges(skv_tokenizer *t, const gguf_vocab *v, skv_error *err)
{
    size_t n_merges = v->merges ? v->merges->count : 0;
    skv_buf joined;
    skv_status status = SKV_OK;
    SKV_REQUIRE(v->merges, err, SKV_FORMAT, "%s: tokenizer.ggml.merges is missing", t->name);
    SKV_REQUIRE(n_merges < SKV_BPE_NONE && skv_bpe_init(&t->bpe.merges, n_merges), err, SKV_MEMORY,
                "%s: no memory for %zu merges", t->name, n_merges);
    skv_buf_init(&joined, SIZE_MAX / 4);
    /* The first of two equal merges counts here, and the last one put: so from the end. */
    for (size_t i = n_merges; i-- > 0 && status == SKV_OK;) {
        size_t n;
        const char *text = skv_gguf_string_at(v->merges, i, &n);
        const char *space = n > 1 ? memchr(text + 1, ' ', n - 1) : NULL;
        if (!space) {
            status = skv_fail(err, SKV_FORMAT, "%s: tokenizer.ggml.merges[%zu] has no space",
                              t->name, i);
            break;
        }
        skv_merge_text merge = {{text, space + 1},
                                {(size_t)(space - text), n - (size_t)(space - text) - 1}};
        status = skv_put_merge(t, i, &merge, &joined, err);
    }
    skv_buf_release(&joined);
    return status;
}

static skv_status read_pre(skv_tokenizer *t, const skv_gguf *gguf, bool *add_bos, skv_error *err)
{
    const skv_gguf_value *value = skv_gguf_find(gguf, "tokenizer.ggml.pre");
    const char *name = "default";
    size_t n = strlen(name);
    if (value) SKV_TRY(skv_gguf_string(value, &name, &n, err));
    const skv_pre_type *pre = skv_pre_type_find(name, n);
    SKV_REQUIRE(pre, err, SKV_UNSUPPORTED, "%s: tokenizer.ggml.pre '%.*s'", t->name,
                (int)skv_min_size(n, 64), name);
    for (size_t i = 0; i < SKV_PRE_PATTERNS_MAX && pre->patterns[i]; i++) {
        SKV_TRY(skv_pretokenizer_add_regex(&t->pretokenizer, pre->patterns[i],
                                           strlen(pre->patterns[i]), SKV_SPLIT_ISOLATED, false,
                                           t->name, err));
    }
    t->bpe.ignore_merges = pre->ignore_merges;
    *add_bos = pre->add_bos;
    return SKV_OK;
}

static skv_status build_gpt2(skv_tokenizer *t, const gguf_vocab *v, skv_error *err)
{
    bool add_bos = false;
    t->bos = id_under(t, v->gguf, "tokenizer.ggml.bos_token_id", -1);
    t->eos = id_under(t, v->gguf, "tokenizer.ggml.eos_token_id", -1);
    SKV_TRY(read_pre(t, v->gguf, &add_bos, err));
    SKV_TRY(read_affixes(t, v->gguf, add_bos, err));
    /* Bytes that are no UTF-8 are replaced before anything else. */
    t->normalizer.steps[t->normalizer.n_steps++] = (skv_norm_step){.kind = SKV_NORM_VALID};
    t->bpe.byte_level = true;
    t->bpe.late_unknown = true;
    SKV_TRY(read_merges(t, v, err));
    skv_bpe_model_prepare(&t->bpe, &t->vocab);
    t->decoder.steps[t->decoder.n_steps++] = (skv_decode_step){.kind = SKV_DECODE_BYTE_LEVEL};
    return SKV_OK;
}

/* One word between newlines. llama.cpp begins with BOS regardless of
 * tokenizer.ggml.add_bos_token. */
static skv_status build_gemma4(skv_tokenizer *t, const gguf_vocab *v, skv_error *err)
{
    static const char pattern[] = "[^\\n]+|[\\n]+";
    skv_norm_step *steps = t->normalizer.steps;
    t->bos = id_under(t, v->gguf, "tokenizer.ggml.bos_token_id", -1);
    t->eos = id_under(t, v->gguf, "tokenizer.ggml.eos_token_id", -1);
    const int32_t unk = id_under(t, v->gguf, "tokenizer.ggml.unknown_token_id", -1);
    t->bpe.unk = unk >= 0 && skv_vocab_has(&t->vocab, (uint32_t)unk) ? (uint32_t)unk : SKV_NO_TOKEN;
    SKV_TRY(read_affixes(t, v->gguf, true, err));
    t->n_prefix = t->bos >= 0 ? 1 : 0;
    steps[0] = (skv_norm_step){.kind = SKV_NORM_VALID};
    steps[1] = (skv_norm_step){.kind = SKV_NORM_REPLACE, .n_from = 1, .n_to = 3};
    t->normalizer.n_steps = 2;
    steps[1].from = skv_strndup(" ", 1);
    steps[1].to = skv_strndup("\xe2\x96\x81", 3);
    SKV_REQUIRE(steps[1].from && steps[1].to, err, SKV_MEMORY, "%s: no memory", t->name);
    SKV_TRY(skv_pretokenizer_add_regex(&t->pretokenizer, pattern, sizeof pattern - 1,
                                       SKV_SPLIT_ISOLATED, false, t->name, err));
    t->bpe.byte_fallback = true;
    t->bpe.late_unknown = true;
    t->bpe.whole_newlines = true;
    SKV_TRY(read_merges(t, v, err));
    skv_bpe_model_prepare(&t->bpe, &t->vocab);
    return skv_spm_set_decoder(t, err);
}

static skv_status read_chat_template(skv_tokenizer *t, const skv_gguf *gguf, skv_error *err)
{
    const skv_gguf_value *value = skv_gguf_find(gguf, "tokenizer.chat_template");
    const char *text;
    size_t n;
    if (!value) return SKV_OK;
    SKV_TRY(skv_gguf_string(value, &text, &n, err));
    t->chat_template = skv_strndup(text, n);
    SKV_REQUIRE(t->chat_template, err, SKV_MEMORY, "%s: no memory", t->name);
    return SKV_OK;
}

static skv_status build(skv_tokenizer *t, const skv_gguf *gguf, const char *model, size_t n,
                        skv_error *err)
{
    static const char *const models[] = {"llama", "gpt2", "gemma4"};
    gguf_vocab v;
    SKV_REQUIRE(is_one_of(models, 3, model, n), err, SKV_UNSUPPORTED,
                "%s: tokenizer.ggml.model '%.*s'", t->name, (int)skv_min_size(n, 64), model);
    SKV_TRY(find_arrays(gguf, &v, err));
    SKV_TRY(read_tokens(t, &v, err));
    SKV_TRY(read_chat_template(t, gguf, err));
    if (model[0] == 'l') return build_spm(t, &v, err);
    return n == strlen("gpt2") ? build_gpt2(t, &v, err) : build_gemma4(t, &v, err);
}

skv_status skv_tokenizer_open_gguf(const struct skv_gguf *gguf, skv_tokenizer **out, skv_error *err)
{
    const skv_gguf_value *value = skv_gguf_find(gguf, "tokenizer.ggml.model");
    const char *model;
    size_t n;
    skv_tokenizer *t = NULL;
    if (!value) {
        *out = NULL;
        return SKV_OK;
    }
    SKV_TRY(skv_gguf_string(value, &model, &n, err));
    SKV_TRY(skv_tokenizer_create(skv_gguf_name(gguf), &t, err));
    skv_status status = build(t, gguf, model, n, err);
    if (status == SKV_OK)
        *out = t;
    else
        skv_tokenizer_free(t);
    return status;
}
