/* First values of a model from scratch: their sizes, heads that look back by one, and queries and
 * outputs that lean on keys and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "format/config.h"
#include "train/net.h"

enum { D = 96, DH = 32, HEADS = 4, KV_HEADS = 2, LAYERS = 4, FFN = 160, VOCAB = 211 };
static const double theta = 50000.0;

static const char shape[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 96, \"intermediate_size\": 160, \"head_dim\": 32,"
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    "\"vocab_size\": 211, \"max_position_embeddings\": 64, \"rope_theta\": 50000.0,"
    "\"tie_word_embeddings\": true, \"attention_bias\": %s}";

typedef struct fresh {
    skv_config config;
    skv_net *net;
} fresh;

static bool all(void *user, const skv_param *p)
{
    (void)user;
    (void)p;
    return true;
}

/* The net borrows the configuration, so the pair stays where it is. */
static void make(fresh *f, bool bias, uint64_t seed)
{
    *f = (fresh){0};
    skv_error err;
    char json[512];
    (void)snprintf(json, sizeof json, shape, bias ? "true" : "false");
    if (skv_config_parse(json, strlen(json), "shape", &f->config, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_net_options options = {.threads = 1, .max_tokens = 8, .seed = seed, .trainable = all};
    if (skv_net_create(&f->config, NULL, &options, &f->net, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

static void release(fresh *f)
{
    skv_net_free(f->net);
    skv_config_release(&f->config);
}

static const float *values(const fresh *f, size_t layer, const char *what)
{
    char name[128];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s", layer, what);
    const skv_param *p = skv_params_find(skv_net_params(f->net), name);
    if (!p) fail_msg("%s is missing", name);
    return p->w;
}

static double deviation(const float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

static void assert_near(double x, double want, double tolerance)
{
    if (!(fabs(x - want) <= tolerance)) fail_msg("%g, expected %g", x, want);
}

static void sizes_follow_the_columns(void **state)
{
    (void)state;
    fresh f;
    make(&f, false, 1);
    const skv_param *e = skv_params_find(skv_net_params(f.net), "model.embed_tokens.weight");
    const double unit = 1.0 / sqrt((double)D), residual = 1.0 / sqrt(2.0 * LAYERS);
    assert_near(deviation(e->w, (size_t)VOCAB * D) / unit, 1.0, 0.03);
    for (size_t i = 0; i < LAYERS; i++) {
        const float *q = values(&f, i, "self_attn.q_proj.weight");
        assert_near(deviation(q, (size_t)HEADS * DH * D) / unit, 1.0, 0.03);
        assert_near(deviation(values(&f, i, "mlp.up_proj.weight"), (size_t)FFN * D) / unit, 1.0,
                    0.03);
        const float *down = values(&f, i, "mlp.down_proj.weight");
        assert_near(deviation(down, (size_t)FFN * D) * sqrt((double)FFN) / residual, 1.0, 0.03);
        const float *norm = values(&f, i, "input_layernorm.weight");
        for (size_t d = 0; d < D; d++) assert_true(norm[d] == 1.0f);
    }
    release(&f);
}

static void a_seed_is_a_model(void **state)
{
    (void)state;
    fresh a, b, c;
    make(&a, true, 7);
    make(&b, true, 7);
    make(&c, true, 8);
    const size_t n = (size_t)HEADS * DH * D * sizeof(float);
    const char *name = "self_attn.q_proj.weight";
    assert_memory_equal(values(&a, 2, name), values(&b, 2, name), n);
    assert_memory_not_equal(values(&a, 2, name), values(&c, 2, name), n);
    release(&a);
    release(&b);
    release(&c);
}

/* What the biases of a head alone score for the key `back` tokens before the query: RoPE turns the
 * pair (j, j + Dh / 2) by position * angle, written out here as it is defined. */
static double bias_score(const float q[DH], const float k[DH], double back)
{
    double sum = 0.0;
    for (size_t j = 0; j < DH / 2; j++) {
        const double angle = -back * pow(theta, -2.0 * (double)j / DH);
        const double k0 = (double)k[j] * cos(angle) - (double)k[j + DH / 2] * sin(angle);
        const double k1 = (double)k[j] * sin(angle) + (double)k[j + DH / 2] * cos(angle);
        sum += (double)q[j] * k0 + (double)q[j + DH / 2] * k1;
    }
    return sum / sqrt((double)DH);
}

static void first_heads_look_back(void **state)
{
    (void)state;
    fresh f;
    make(&f, true, 1);
    const float *q = values(&f, 0, "self_attn.q_proj.bias"),
                *k = values(&f, 0, "self_attn.k_proj.bias");
    for (size_t h = 0; h < HEADS / KV_HEADS; h++) {
        const double best = bias_score(q + h * DH, k, 1.0);
        for (int back = 0; back < 32; back++) {
            if (back != 1) assert_true(bias_score(q + h * DH, k, back) < best - 2.0);
        }
        const float *w = values(&f, 0, "self_attn.q_proj.weight") + h * DH * D;
        for (size_t i = 0; i < (size_t)DH * D; i++) assert_true(w[i] == 0.0f);
    }
    /* No other head and no later layer has biases. */
    for (size_t i = DH; i < (size_t)KV_HEADS * DH; i++) assert_true(k[i] == 0.0f);
    const float *later = values(&f, 1, "self_attn.k_proj.bias");
    for (size_t i = 0; i < (size_t)KV_HEADS * DH; i++) assert_true(later[i] == 0.0f);
    release(&f);
}

static double cosine(const float *a, size_t step_a, const float *b, size_t step_b, size_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)a[i * step_a], y = (double)b[i * step_b];
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return ab / sqrt(aa * bb);
}

static void queries_lean_on_keys(void **state)
{
    (void)state;
    fresh f;
    make(&f, false, 1);
    const float *q = values(&f, 1, "self_attn.q_proj.weight"),
                *k = values(&f, 1, "self_attn.k_proj.weight");
    const float *v = values(&f, 1, "self_attn.v_proj.weight"),
                *o = values(&f, 1, "self_attn.o_proj.weight");
    for (size_t r = 0; r < (size_t)HEADS * DH; r++) {
        const size_t kv = r / (HEADS / KV_HEADS * DH) * DH + r % DH;
        assert_true(cosine(q + r * D, 1, k + kv * D, 1, D) > 0.75);
        assert_true(cosine(o + r, (size_t)HEADS * DH, v + kv * D, 1, D) > 0.4);
        const size_t other = (kv + DH) % ((size_t)KV_HEADS * DH);
        assert_true(fabs(cosine(q + r * D, 1, k + other * D, 1, D)) < 0.45);
    }
    release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_columns), cmocka_unit_test(a_seed_is_a_model),
        cmocka_unit_test(first_heads_look_back), cmocka_unit_test(queries_lean_on_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
