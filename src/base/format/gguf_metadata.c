/* skv_config -> GGUF metadata: see gguf_metadata.h. */
#include "format/gguf_metadata.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/source_impl.h"

typedef struct family {
    const char *model_type, *gguf;
} family;

static const family families[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"},
    {"qwen3", "qwen3"}, {"gemma2", "gemma2"}, {"gemma3_text", "gemma3"},
};

static const family *family_of(const skv_config *c)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].model_type, c->architecture) == 0) return &families[i];
    }
    return NULL;
}

/* "{architecture}.key" */
typedef struct key {
    char text[96];
} key;

static key key_of(const family *f, const char *name)
{
    key k;
    (void)snprintf(k.text, sizeof k.text, "%s.%s", f->gguf, name);
    return k;
}

static bool is_gemma(const family *f)
{
    return strncmp(f->gguf, "gemma", 5) == 0;
}

/* Returns the feature of a model that GGUF's keys cannot describe; NULL: none. */
static const char *unwritable(const skv_config *c, const family *f)
{
    if (c->n_shared > 0) return "num_kv_shared_layers";
    const skv_rope_scaling scaling = c->ropes[0].scaling;
    if (scaling == SKV_ROPE_LONGROPE || scaling == SKV_ROPE_YARN || scaling == SKV_ROPE_NONE) {
        return "this rope_scaling";
    }
    if (c->ropes[0].n_rot != c->head_dim) return "partial_rotary_factor";
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i], *first = &c->layers[0];
        if (l->n_experts > 0) return "num_experts";
        if (l->n_heads != first->n_heads || l->n_kv_heads != first->n_kv_heads ||
            l->ffn != first->ffn) {
            return "layers of different shapes";
        }
        if (!is_gemma(f) && l->window > 0) return "sliding_window";
    }
    return NULL;
}

static void put_sizes(const skv_config *c, const family *f, skv_gguf_out *out)
{
    const skv_layer_shape *l = &c->layers[0];
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {
        {"block_count", c->n_layers},
        {"context_length", c->context},
        {"embedding_length", c->hidden},
        {"feed_forward_length", l->ffn},
        {"attention.head_count", l->n_heads},
        {"attention.head_count_kv", l->n_kv_heads},
        {"attention.key_length", c->head_dim},
        {"attention.value_length", c->head_dim},
        {"rope.dimension_count", c->ropes[0].n_rot},
        {"vocab_size", c->vocab},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        skv_gguf_put_u32(out, key_of(f, sizes[i].name).text, sizes[i].value);
    }
}

static void put_rope(const skv_config *c, const family *f, skv_gguf_out *out)
{
    const skv_rope *rope = &c->ropes[0];
    skv_gguf_put_f32(out, key_of(f, "rope.freq_base").text, rope->theta);
    if (strcmp(f->gguf, "gemma3") == 0) {
        skv_gguf_put_f32(out, key_of(f, "rope.freq_base_swa").text, c->ropes[1].theta);
    }
    if (rope->scaling != SKV_ROPE_LINEAR) return;
    skv_gguf_put_text(out, key_of(f, "rope.scaling.type").text, "linear");
    skv_gguf_put_f32(out, key_of(f, "rope.scaling.factor").text, rope->factor);
}

static void put_gemma(const skv_config *c, const family *f, skv_gguf_out *out)
{
    size_t window = 0;
    skv_gguf_put_array(out, key_of(f, "attention.sliding_window_pattern").text, SKV_GGUF_BOOL,
                       c->n_layers);
    for (size_t i = 0; i < c->n_layers; i++) {
        skv_gguf_put_element_bool(out, c->layers[i].window > 0);
        if (c->layers[i].window > 0) window = c->layers[i].window;
    }
    skv_gguf_put_u32(out, key_of(f, "attention.sliding_window").text, window);
    skv_gguf_put_f32(out, key_of(f, "attention.scale").text, c->attention_scale);
    if (strcmp(f->gguf, "gemma2") != 0) return;
    skv_gguf_put_f32(out, key_of(f, "attn_logit_softcapping").text, c->attention_softcap);
    skv_gguf_put_f32(out, key_of(f, "final_logit_softcapping").text, c->final_softcap);
}

skv_status skv_gguf_put_config(const skv_config *c, skv_gguf_out *out, skv_error *err)
{
    const family *f = family_of(c);
    SKV_REQUIRE(!c->swiftkv && !c->kv_prediction, err, SKV_UNSUPPORTED,
                "GGUF output: there is no place for the weights that %s adds",
                c->swiftkv ? "SwiftKV" : "KV Prediction");
    SKV_REQUIRE(f, err, SKV_UNSUPPORTED, "GGUF output: model_type %s is not supported",
                c->architecture);
    const char *field = unwritable(c, f);
    SKV_REQUIRE(!field, err, SKV_UNSUPPORTED, "GGUF output: %s: there is no place for %s", f->gguf,
                field);
    skv_gguf_put_text(out, "general.architecture", f->gguf);
    put_sizes(c, f, out);
    skv_gguf_put_f32(out, key_of(f, "attention.layer_norm_rms_epsilon").text, c->norm_eps);
    put_rope(c, f, out);
    if (is_gemma(f)) put_gemma(c, f, out);
    return SKV_OK;
}

size_t skv_gguf_rope_factors(const skv_config *c, float factors[SKV_ROPE_FACTORS_MAX])
{
    const skv_rope *rope = &c->ropes[0];
    const size_t n = rope->n_rot / 2;
    if (n > SKV_ROPE_FACTORS_MAX) return 0;
    if (rope->scaling == SKV_ROPE_FACTORS) {
        memcpy(factors, rope->long_factor, n * sizeof *factors);
        return n;
    }
    if (rope->scaling != SKV_ROPE_LLAMA3) return 0;
    for (size_t i = 0; i < n; i++) {
        const double frequency = pow(rope->theta, -2.0 * (double)i / (double)rope->n_rot);
        factors[i] = (float)(frequency / skv_rope_llama3(rope, frequency));
    }
    return n;
}

static const skv_name_rule *rule_to(const skv_name_rule *rules, const char *to)
{
    for (; rules->from; rules++) {
        if (rules->to && strcmp(rules->to, to) == 0) return rules;
    }
    return NULL;
}

bool skv_gguf_name_of(const skv_config *c, const char *name, char *out, size_t size, bool *in_pairs)
{
    static const char prefix[] = "model.layers.";
    const family *f = family_of(c);
    if (!f) return false;
    const skv_name_scheme *scheme =
        skv_gguf_scheme(strcmp(f->gguf, "llama") == 0 ? "llama" : c->architecture);
    const skv_name_rule *rule = rule_to(scheme->global, name);
    int n = -1;
    if (rule) {
        n = snprintf(out, size, "%s", rule->from);
    } else if (strncmp(name, prefix, sizeof prefix - 1) == 0) {
        char *part;
        const unsigned long i = strtoul(name + sizeof prefix - 1, &part, 10);
        rule = *part == '.' ? rule_to(scheme->layer, part + 1) : NULL;
        if (rule) n = snprintf(out, size, "%s%lu.%s", scheme->layer_prefix, i, rule->from);
    }
    *in_pairs = rule && rule->action == SKV_NAME_INTERLEAVE;
    return n >= 0 && (size_t)n < size;
}
