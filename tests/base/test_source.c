/*
 * Models on disk under one set of names: GGUF files of every architecture
 * (tests/data/format/twin-*.gguf, made by tools/fixtures/make_gguf_twins.py from the gguf package's
 * own tables) and folders in the published layouts, element by element; shapes that do not fit; the
 * real models of the assets.
 *
 * Element k of the published tensor NAME is a hash of NAME and k, in C as in the tool.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "bytes_script.h"
#include "describe_config.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "format/source_impl.h"
#include "temp_folder.h"

enum { ELEMENTS_MAX = 4096, TENSORS_MAX = 64 };

static float element(const char *name, size_t k)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    uint32_t mixed = (hash + 2654435761u * (uint32_t)k) >> 24;
    return (float)((int)mixed - 128) / 64.0F;
}

static void check_elements(const skv_source *s, const char *name, size_t rows, size_t columns,
                           float offset)
{
    const skv_tensor *t = skv_source_find(s, name);
    if (!t) fail_msg("%s: %s is missing", skv_source_path(s), name);
    assert_string_equal(t->name, name);
    assert_int_equal(skv_tensor_rows(t), rows);
    assert_int_equal(skv_tensor_columns(t), columns);
    float values[ELEMENTS_MAX];
    assert_true(rows * columns <= ELEMENTS_MAX);
    skv_tensor_read_rows(t, 0, rows, values);
    for (size_t k = 0; k < rows * columns; k++) {
        if (values[k] == element(name, k) + offset) continue;
        fail_msg("%s: %s[%zu]: %g, expected %g", skv_source_path(s), name, k, (double)values[k],
                 (double)(element(name, k) + offset));
    }
}

static void check_part(const skv_source *s, size_t i, const char *part, size_t rows, size_t columns,
                       float offset)
{
    char name[96];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i, part);
    check_elements(s, name, rows, columns, offset);
}

/* Every tensor that the configuration calls for; norms have 1 added where `offset` says so. */
static void check_model(const skv_source *s, float offset)
{
    const skv_config *c = skv_source_config(s);
    check_elements(s, "model.embed_tokens.weight", c->vocab, c->hidden, 0);
    check_elements(s, "model.norm.weight", 1, c->hidden, offset);
    if (!c->tied) check_elements(s, "lm_head.weight", c->vocab, c->hidden, 0);
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i];
        size_t q = l->n_heads * c->head_dim, kv = l->n_kv_heads * c->head_dim;
        check_part(s, i, "self_attn.q_proj.weight", q, c->hidden, 0);
        check_part(s, i, "self_attn.k_proj.weight", kv, c->hidden, 0);
        check_part(s, i, "self_attn.v_proj.weight", kv, c->hidden, 0);
        check_part(s, i, "self_attn.o_proj.weight", c->hidden, q, 0);
        check_part(s, i, "mlp.gate_proj.weight", l->ffn, c->hidden, 0);
        check_part(s, i, "mlp.up_proj.weight", l->ffn, c->hidden, 0);
        check_part(s, i, "mlp.down_proj.weight", c->hidden, l->ffn, 0);
        check_part(s, i, "input_layernorm.weight", 1, c->hidden, offset);
        check_part(s, i, "post_attention_layernorm.weight", 1, c->hidden, offset);
        if (c->qkv_bias) check_part(s, i, "self_attn.q_proj.bias", 1, q, 0);
        if (c->qkv_bias) check_part(s, i, "self_attn.k_proj.bias", 1, kv, 0);
        if (c->qkv_bias) check_part(s, i, "self_attn.v_proj.bias", 1, kv, 0);
        if (c->o_bias) check_part(s, i, "self_attn.o_proj.bias", 1, c->hidden, 0);
        if (c->mlp_bias) check_part(s, i, "mlp.gate_proj.bias", 1, l->ffn, 0);
        if (c->mlp_bias) check_part(s, i, "mlp.down_proj.bias", 1, c->hidden, 0);
        if (c->qk_norm) check_part(s, i, "self_attn.q_norm.weight", 1, c->head_dim, offset);
        if (c->qk_norm) check_part(s, i, "self_attn.k_norm.weight", 1, c->head_dim, offset);
        if (!c->post_norms) continue;
        check_part(s, i, "pre_feedforward_layernorm.weight", 1, c->hidden, offset);
        check_part(s, i, "post_feedforward_layernorm.weight", 1, c->hidden, offset);
    }
}

static skv_source *open_source(const char *path)
{
    skv_source *s = NULL;
    skv_error err = {0};
    if (skv_source_open(path, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

#define TWIN " D=16 Dh=4 V=12 ctx=256 eps=1e-05 scale=0.5"

static void gguf_of_every_architecture(void **state)
{
    (void)state;
    static const struct {
        const char *name, *config;
        float offset;
    } twins[] = {
        {"llama", "llama" TWIN " 2x(4/2 16) rope factors theta=500000 rot=4 1 4.5 bos=1 eos=2", 0},
        {"llama-bias",
         "llama" TWIN " qkv_bias o_bias mlp_bias tied 2x(4/2 16) rope linear theta=10000 rot=4 "
         "factor=4 bos=1 eos=2",
         0},
        {"qwen2",
         "qwen2" TWIN " qkv_bias tied 2x(4/2 16) rope plain theta=1000000 rot=4 bos=1 eos=2", 0},
        {"qwen3", "qwen3" TWIN " qk_norm 2x(4/2 16) rope plain theta=1000000 rot=4 bos=1 eos=2", 0},
        {"phi3",
         "phi3" TWIN " 2x(4/2 16 window=100) rope longrope theta=10000 rot=4 factor=4 from=64 "
         "attention=1.125 1/2 1.5/8 bos=1 eos=2",
         0},
        {"gemma2",
         "gemma2" TWIN " post_norms tied gelu cap=40 final_cap=20 embed*4 1x(4/2 16 window=64) "
         "1x(4/2 16) rope plain theta=10000 rot=4 bos=1 eos=2",
         1},
        {"gemma3",
         "gemma3_text" TWIN " qk_norm post_norms tied gelu embed*4 2x(4/2 16 window=64 local) rope "
         "linear theta=1000000 rot=4 factor=8, local plain theta=10000 rot=4 bos=1 eos=2",
         1},
        {"openelm",
         "openelm" TWIN " qk_norm tied 1x(4/1 8) 1x(8/2 16) rope plain theta=10000 rot=4 bos=1 "
         "eos=2",
         0},
    };
    skv_buf text;
    skv_buf_init(&text, 1 << 12);
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/format/twin-%s.gguf", SKV_TEST_DATA, twins[i].name);
        skv_source *s = open_source(path);
        describe_config(skv_source_config(s), &text);
        assert_string_equal(text.data, twins[i].config);
        assert_non_null(skv_source_gguf(s));
        check_model(s, twins[i].offset);
        skv_source_close(s);
    }
    skv_buf_release(&text);
}

#define KEYS_OF(a)                                                                                 \
    "s:general.architecture 4:8 s:" a " s:" a ".embedding_length 4:4 4:8 s:" a                     \
    ".context_length 4:4 4:64 s:" a ".attention.head_count 4:4 4:2 s:" a                           \
    ".feed_forward_length 4:4 4:8 s:" a ".block_count 4:4 4:1 "
#define KEYS KEYS_OF("llama")
#define EMBEDDING "s:token_embd.weight 4:2 8:8 8:4 4:0 8:0 p:32 z:128"

/* A file, and what its refusal says. */
typedef struct refused_file {
    const char *script, *expected;
} refused_file;

static void check_refused(const refused_file *file)
{
    skv_buf b;
    skv_buf_init(&b, 1 << 12);
    bytes_script(&b, file->script);
    skv_source *s = NULL;
    skv_error err = {0};
    skv_status status = skv_source_parse_gguf(b.data, b.size, "x.gguf", &s, &err);
    if (status == SKV_OK || s) fail_msg("accepted: %s", file->script);
    if (strncmp(err.text, "x.gguf: ", 8) != 0 || !strstr(err.text, file->expected)) {
        fail_msg("%s\n  says %s\n  expected %s", file->script, err.text, file->expected);
    }
    skv_buf_release(&b);
}

static void gguf_that_is_no_model(void **state)
{
    (void)state;
    static const refused_file cases[] = {
        {"r:GGUF 4:3 8:0 8:0", "general.architecture: missing"},
        {"r:GGUF 4:3 8:0 8:1 s:general.architecture 4:4 4:7", "type U32, expected STRING"},
        {"r:GGUF 4:3 8:0 8:1 s:general.architecture 4:8 s:mamba", "mamba is not supported"},
        {"r:GGUF 4:3 8:0 8:1 s:general.architecture 4:8 s:kimi-linear",
         "kimi-linear is not supported: latent attention beside Kimi's delta rule"},
        {"r:GGUF 4:3 8:0 8:1 s:general.architecture 4:8 s:llama",
         "llama.embedding_length: missing"},
        {"r:GGUF 4:3 8:0 8:6 " KEYS, "token_embd.weight: missing"},
        {"r:GGUF 4:3 8:0 8:7 " KEYS "s:split.count 4:2 b:3 b:0", "split.count: 3"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.expert_count 4:4 4:8 " EMBEDDING,
         "llama.expert_used_count: missing"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.attention.value_length 4:4 4:8 " EMBEDDING,
         "value_length: 8, expected 4"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS
         "s:llama.attention.head_count_kv 4:9 4:4 8:2 4:1 4:1 " EMBEDDING,
         "head_count_kv: 2 values, expected 1"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.attention.head_count_kv 4:9 4:5 8:1 4:-1 " EMBEDDING,
         "llama.attention.head_count_kv 0 (layer 0), expected a divisor of "
         "llama.attention.head_count 2"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.attention.head_count_kv 4:9 4:8 8:1 s:x " EMBEDDING,
         "type ARRAY, expected an integer"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.rope.scaling.type 4:8 s:cubic " EMBEDDING,
         "llama.rope.scaling.type: cubic is not supported"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.rope.dimension_count 4:4 4:2 " EMBEDDING,
         "dimension_count: 2, expected the head dimension 4"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.rope.freq_base 4:6 4:0x7fc00000 " EMBEDDING,
         "llama.rope.freq_base nan"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.attention.layer_norm_rms_epsilon 4:8 s:x " EMBEDDING,
         "type STRING, expected a number"},
        {"r:GGUF 4:3 8:2 8:6 " KEYS "s:rope_freqs.weight 4:1 8:3 4:0 8:0 "
         "s:token_embd.weight 4:2 8:8 8:4 4:0 8:32 p:32 z:160",
         "rope_freqs.weight: 3 values, expected 2"},
        {"r:GGUF 4:3 8:1 8:6 " KEYS "s:token_embd.weight 4:2 8:9 8:3 4:0 8:0 p:32 z:128",
         "model.embed_tokens.weight: shape [3,9], expected [token_embd.weight 3, "
         "llama.embedding_length 8]"},
        {"r:GGUF 4:3 8:1 8:6 " KEYS EMBEDDING,
         "model.norm.weight: missing, llama.block_count is 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_refused(&cases[i]);
}

static void gguf_that_would_be_misread(void **state)
{
    (void)state;
    static const refused_file cases[] = {
        {"r:GGUF 4:3 8:1 8:7 " KEYS "s:llama.nextn_predict_layers 4:4 4:1 " EMBEDDING,
         "llama.nextn_predict_layers: layers that predict further tokens: not supported"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS
         "s:llama.rope.dimension_sections 4:9 4:5 8:4 4:1 4:1 4:0 4:0 " EMBEDDING,
         "llama.rope.dimension_sections: rotation by several positions: not supported"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS /* sections that are none */
         "s:llama.rope.dimension_sections 4:9 4:5 8:4 4:0 4:0 4:0 4:0 " EMBEDDING,
         "model.norm.weight: missing"},
        {"r:GGUF 4:3 8:1 8:6 " KEYS_OF("granite") EMBEDDING, "granite.logit_scale: missing"},
        {"r:GGUF 4:3 8:1 8:7 " KEYS_OF("granite") "s:granite.logit_scale 4:6 4:0 " EMBEDDING,
         "granite.logit_scale: 0, expected a positive number"},
        {"r:GGUF 4:3 8:1 8:8 " KEYS_OF(
             "granite") "s:granite.logit_scale 4:6 4:0x3f800000 "
                        "s:granite.rope.scaling.finetuned 4:7 b:0 " EMBEDDING,
         "granite.rope.scaling.finetuned: false (no rotation): not supported"},
        {"r:GGUF 4:3 8:2 8:6 " KEYS "s:token_embd.weight 4:2 8:8 8:4 4:0 8:0 "
         "s:blk.0.attn_qkv.bias 4:1 8:23 4:0 8:128 p:32 z:256",
         "blk.0.attn_qkv.bias: shape [23], expected [24]"},
        {"r:GGUF 4:3 8:2 8:6 " KEYS "s:token_embd.weight 4:2 8:8 8:4 4:0 8:0 "
         "s:blk.0.attn_qkv.weight 4:1 8:24 4:0 8:128 p:32 z:256",
         "blk.0.attn_qkv.weight: shape [24], expected [24,8]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_refused(&cases[i]);
}

/* llama.cpp multiplies YaRN's own factor by attn_factor; its converter writes the published
 * attention_factor as yarn_attn_factor alone. */
static void gguf_yarn_attention(void **state)
{
    (void)state;
#define YARN(n)                                                                                    \
    "r:GGUF 4:3 8:1 8:" n " " KEYS "s:llama.rope.scaling.type 4:8 s:yarn "                         \
    "s:llama.rope.scaling.factor 4:6 4:0x40800000 "
#define ATTN "s:llama.rope.scaling.attn_factor 4:6 4:0x3f000000 "
#define YARN_ATTN "s:llama.rope.scaling.yarn_attn_factor 4:6 4:0x40000000 "
    static const struct {
        const char *script;
        double expected;
    } cases[] = {
        {YARN("8") EMBEDDING, 1.1386294361119891}, /* 0.1 ln 4 + 1 */
        {YARN("9") ATTN EMBEDDING, 0.5 * 1.1386294361119891},
        {YARN("9") YARN_ATTN EMBEDDING, 2.0},
        {YARN("10") ATTN YARN_ATTN EMBEDDING, 0.5 * 1.1386294361119891},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skv_buf b;
        skv_buf_init(&b, 1 << 12);
        bytes_script(&b, cases[i].script);
        skv_gguf *g = NULL;
        skv_config c = {0};
        skv_error err = {0};
        if (skv_gguf_parse(b.data, b.size, "x.gguf", &g, &err) != SKV_OK ||
            skv_config_from_gguf(g, &c, &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        assert_float_equal(c.ropes[0].attention_factor, cases[i].expected, 1e-12);
        skv_config_release(&c);
        skv_gguf_close(g);
        skv_buf_release(&b);
    }
}

static void put_u64(skv_buf *out, uint64_t value)
{
    (void)skv_buf_append(out, &value, sizeof value);
}

static void put_gguf_text(skv_buf *out, const char *text)
{
    put_u64(out, strlen(text));
    (void)skv_buf_text(out, text);
}

/* The test model with a list of tokens as its first entry. */
static void ends_of_gemma4(void **state)
{
    static const char key[] = "tokenizer.ggml.tokens";
    enum { HEAD_BYTES = 24, N_TOKENS = 107, TURN = 50, END = 1, TOOL = 106 };
    static const uint32_t types[2] = {9, 8}; /* an array of texts */
    char *data;
    size_t n;
    uint64_t n_entries;
    skv_buf b;
    skv_gguf *g = NULL;
    skv_config c = {0};
    skv_error err = {0};
    (void)state;
    assert_int_equal(
        skv_file_read(SKV_TEST_DATA "/models/gemma4-gguf/model.gguf", 1 << 24, &data, &n, &err), 0);
    skv_buf_init(&b, 1 << 24);
    memcpy(&n_entries, data + HEAD_BYTES - 8, sizeof n_entries);
    (void)skv_buf_append(&b, data, HEAD_BYTES - 8);
    put_u64(&b, n_entries + 1);
    put_gguf_text(&b, key);
    (void)skv_buf_append(&b, types, sizeof types);
    put_u64(&b, N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) {
        const char *names[] = {[TURN] = "<turn|>", [END] = "<eos>", [TOOL] = "<|tool_response>"};
        /* The first one's length keeps what follows on a multiple of 32 bytes. */
        put_gguf_text(&b, names[i] ? names[i] : i ? "t" : "twenty-four letters long");
    }
    (void)skv_buf_append(&b, data + HEAD_BYTES, n - HEAD_BYTES);
    if (skv_gguf_parse(b.data, b.size, "x.gguf", &g, &err) != SKV_OK ||
        skv_config_from_gguf(g, &c, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    static const int32_t ends[] = {2, END, TURN, TOOL}; /* the file names 2 */
    assert_int_equal(c.n_eos, 4);
    assert_memory_equal(c.eos, ends, sizeof ends);
    skv_config_release(&c);
    skv_gguf_close(g);
    skv_buf_release(&b);
    skv_free(data);
}

static int make_folder(void **state)
{
    return temp_folder_make(state, "source");
}

static void put_text(const char *folder, const char *name, const char *text)
{
    char *path = skv_path_join(folder, name);
    assert_int_equal(skv_file_write(path, text, strlen(text), NULL), SKV_OK);
    skv_free(path);
}

/* One tensor of a folder to be made: its parts, stacked by rows, each with the published name
 * whose hash it holds. */
typedef struct planned {
    char name[96];
    char parts[3][96];
    size_t part_rows[3];
    size_t n_dims, columns;
} planned;

typedef struct plan {
    planned tensors[TENSORS_MAX];
    size_t n;
} plan;

static planned *add(plan *p, const char *name, const char *part, size_t rows, size_t columns)
{
    assert_true(p->n < TENSORS_MAX);
    planned *t = &p->tensors[p->n++];
    *t = (planned){.n_dims = rows ? 2 : 1, .columns = columns, .part_rows = {rows ? rows : 1}};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(t->parts[0], sizeof t->parts[0], "%s", part);
    return t;
}

/* In layer i: `name` after the prefix, `part` after "model.layers.{i}.". */
static planned *add_in(plan *p, const char *prefix, size_t i, const char *name, const char *part,
                       size_t rows, size_t columns)
{
    char full[96], published[96];
    int n = snprintf(full, sizeof full, "%s%zu.%s", prefix, i, name);
    assert_true(n > 0 && (size_t)n < sizeof full);
    n = snprintf(published, sizeof published, "model.layers.%zu.%s", i, part);
    assert_true(n > 0 && (size_t)n < sizeof published);
    return add(p, full, published, rows, columns);
}

static void stack(planned *t, size_t at, size_t i, const char *part, size_t rows)
{
    (void)snprintf(t->parts[at], sizeof t->parts[at], "model.layers.%zu.%s", i, part);
    t->part_rows[at] = rows;
}

/* A skv_tensor_rows_fn over a planned tensor. */
static skv_status fill_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    (void)err;
    const planned *t = arg;
    for (size_t i = 0; i < n; i++) {
        size_t row = row0 + i, part = 0;
        while (row >= t->part_rows[part]) row -= t->part_rows[part++];
        float values[64];
        assert_true(t->columns <= 64);
        for (size_t k = 0; k < t->columns; k++) {
            values[k] = element(t->parts[part], row * t->columns + k);
        }
        skv_dtype_from_f32(SKV_DTYPE_BF16, out + i * t->columns * 2, values, t->columns);
    }
    return SKV_OK;
}

static void write_plan(const char *folder, plan *p, const char *config, size_t shard_bytes)
{
    skv_tensor_out out[TENSORS_MAX];
    for (size_t i = 0; i < p->n; i++) {
        planned *t = &p->tensors[i];
        size_t rows = t->part_rows[0] + t->part_rows[1] + t->part_rows[2];
        out[i] = (skv_tensor_out){.name = t->name,
                                  .type = SKV_DTYPE_BF16,
                                  .n_dims = t->n_dims,
                                  .dims = {t->n_dims == 1 ? t->columns : rows, t->columns},
                                  .rows = fill_rows,
                                  .arg = t};
    }
    skv_error err = {0};
    skv_status status = skv_safetensors_write_folder(folder, out, p->n, shard_bytes, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
    put_text(folder, "config.json", config);
}

#define SHAPE                                                                                      \
    "\"vocab_size\":12,\"hidden_size\":16,\"intermediate_size\":8,\"num_hidden_layers\":2,"        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64"

/* A plain layer under `prefix`, D = 16, four heads of 4, two of K,V, F = 8. */
static void add_plain_layer(plan *p, const char *prefix, size_t i)
{
    static const struct {
        const char *name;
        size_t rows, columns;
    } parts[] = {{"self_attn.q_proj.weight", 16, 16},       {"self_attn.k_proj.weight", 8, 16},
                 {"self_attn.v_proj.weight", 8, 16},        {"self_attn.o_proj.weight", 16, 16},
                 {"mlp.gate_proj.weight", 8, 16},           {"mlp.up_proj.weight", 8, 16},
                 {"mlp.down_proj.weight", 16, 8},           {"input_layernorm.weight", 0, 16},
                 {"post_attention_layernorm.weight", 0, 16}};
    for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
        add_in(p, prefix, i, parts[j].name, parts[j].name, parts[j].rows, parts[j].columns);
    }
}

static void plan_llama(plan *p, bool head)
{
    p->n = 0;
    add(p, "model.embed_tokens.weight", "model.embed_tokens.weight", 12, 16);
    add(p, "model.norm.weight", "model.norm.weight", 0, 16);
    if (head) add(p, "lm_head.weight", "lm_head.weight", 12, 16);
    for (size_t i = 0; i < 2; i++) add_plain_layer(p, "model.layers.", i);
}

static void a_folder_in_shards(void **state)
{
    plan p;
    plan_llama(&p, true);
    write_plan(*state, &p, "{\"model_type\":\"llama\"," SHAPE "}", 1000);
    put_text(*state, "generation_config.json", "{\"eos_token_id\":[2,5],\"temperature\":0.5}");
    skv_source *s = open_source(*state);
    check_model(s, 0);
    const skv_config *c = skv_source_config(s);
    assert_true(!c->tied && c->n_eos == 2 && c->has_sampling && c->temperature == 0.5);
    assert_null(skv_source_gguf(s));
    assert_null(skv_source_find(s, "model.layers.2.input_layernorm.weight"));
    assert_int_equal(skv_source_count(s), 21);
    assert_string_equal(skv_source_path(s), *state);
    skv_source_close(s);
}

static void heads_that_are_tied(void **state)
{
    plan p;
    plan_llama(&p, false); /* says untied, and has no head */
    write_plan(*state, &p, "{\"model_type\":\"llama\"," SHAPE "}", SKV_SHARD_BYTES_MAX);
    skv_source *s = open_source(*state);
    assert_true(skv_source_config(s)->tied);
    check_model(s, 0);
    skv_source_close(s);
    /* The library that wrote it kept the head of the two equal tensors. */
    (void)snprintf(p.tensors[0].name, sizeof p.tensors[0].name, "lm_head.weight");
    write_plan(*state, &p, "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," SHAPE "}",
               SKV_SHARD_BYTES_MAX);
    s = open_source(*state);
    check_model(s, 0);
    skv_source_close(s);
}

static void phi3_is_cut_into_its_parts(void **state)
{
    plan p = {.n = 0};
    add(&p, "model.embed_tokens.weight", "model.embed_tokens.weight", 12, 16);
    add(&p, "model.norm.weight", "model.norm.weight", 0, 16);
    add(&p, "lm_head.weight", "lm_head.weight", 12, 16);
    for (size_t i = 0; i < 2; i++) {
        const char *at = "model.layers.";
        planned *t =
            add_in(&p, at, i, "self_attn.qkv_proj.weight", "self_attn.q_proj.weight", 16, 16);
        stack(t, 1, i, "self_attn.k_proj.weight", 8);
        stack(t, 2, i, "self_attn.v_proj.weight", 8);
        t = add_in(&p, at, i, "mlp.gate_up_proj.weight", "mlp.gate_proj.weight", 8, 16);
        stack(t, 1, i, "mlp.up_proj.weight", 8);
        add_in(&p, at, i, "self_attn.o_proj.weight", "self_attn.o_proj.weight", 16, 16);
        add_in(&p, at, i, "mlp.down_proj.weight", "mlp.down_proj.weight", 16, 8);
        add_in(&p, at, i, "input_layernorm.weight", "input_layernorm.weight", 0, 16);
        add_in(&p, at, i, "post_attention_layernorm.weight", "post_attention_layernorm.weight", 0,
               16);
    }
    write_plan(*state, &p, "{\"model_type\":\"phi3\"," SHAPE "}", SKV_SHARD_BYTES_MAX);
    skv_source *s = open_source(*state);
    check_model(s, 0);
    skv_source_close(s);
    put_text(*state, "config.json", "{\"model_type\":\"phi3\",\"head_dim\":6," SHAPE "}");
    skv_error err;
    s = NULL;
    assert_int_equal(skv_source_open(*state, &s, &err), SKV_FORMAT);
    assert_non_null(strstr(err.text, "self_attn.qkv_proj.weight: shape [32,16], expected [48,16]"));
}

static void openelm_under_its_own_names(void **state)
{
    static const size_t heads[] = {4, 8, 8}, kv[] = {1, 2, 2}, ffn[] = {8, 16, 24};
    plan p = {.n = 0};
    add(&p, "transformer.token_embeddings.weight", "model.embed_tokens.weight", 12, 16);
    add(&p, "transformer.norm.weight", "model.norm.weight", 0, 16);
    for (size_t i = 0; i < 3; i++) {
        const char *at = "transformer.layers.";
        planned *t =
            add_in(&p, at, i, "attn.qkv_proj.weight", "self_attn.q_proj.weight", heads[i] * 4, 16);
        stack(t, 1, i, "self_attn.k_proj.weight", kv[i] * 4);
        stack(t, 2, i, "self_attn.v_proj.weight", kv[i] * 4);
        t = add_in(&p, at, i, "ffn.proj_1.weight", "mlp.gate_proj.weight", ffn[i], 16);
        stack(t, 1, i, "mlp.up_proj.weight", ffn[i]);
        add_in(&p, at, i, "attn.out_proj.weight", "self_attn.o_proj.weight", 16, heads[i] * 4);
        add_in(&p, at, i, "ffn.proj_2.weight", "mlp.down_proj.weight", 16, ffn[i]);
        add_in(&p, at, i, "attn_norm.weight", "input_layernorm.weight", 0, 16);
        add_in(&p, at, i, "ffn_norm.weight", "post_attention_layernorm.weight", 0, 16);
        add_in(&p, at, i, "attn.q_norm.weight", "self_attn.q_norm.weight", 0, 4);
        add_in(&p, at, i, "attn.k_norm.weight", "self_attn.k_norm.weight", 0, 4);
    }
    write_plan(*state, &p,
               "{\"model_type\":\"openelm\",\"vocab_size\":12,\"model_dim\":16,\"head_dim\":4,"
               "\"num_transformer_layers\":3,\"num_query_heads\":[4,8,8],\"num_kv_heads\":[1,2,2],"
               "\"ffn_multipliers\":[0.5,1.0,1.5],\"ffn_dim_divisor\":8,"
               "\"normalize_qk_projections\":true,\"share_input_output_layers\":true}",
               SKV_SHARD_BYTES_MAX);
    skv_source *s = open_source(*state);
    check_model(s, 0);
    skv_source_close(s);
}

/* The text part of a Gemma 3 with images, under the names of transformers before and since 4.52. */
static void gemma3_with_images(void **state)
{
    static const char *const prefixes[] = {"language_model.model.", "model.language_model."};
    for (size_t v = 0; v < 2; v++) {
        plan p = {.n = 0};
        char name[96], layers[96];
        (void)snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[v]);
        add(&p, name, "model.embed_tokens.weight", 12, 16);
        (void)snprintf(name, sizeof name, "%snorm.weight", prefixes[v]);
        add(&p, name, "model.norm.weight", 0, 16);
        add(&p, "vision_tower.vision_model.embeddings.weight", "vision", 3, 5);
        add(&p, "model.multi_modal_projector.weight", "projector", 3, 5);
        (void)snprintf(layers, sizeof layers, "%slayers.", prefixes[v]);
        static const char *const norms[] = {"pre_feedforward_layernorm.weight",
                                            "post_feedforward_layernorm.weight"};
        for (size_t i = 0; i < 2; i++) {
            add_plain_layer(&p, layers, i);
            for (size_t j = 0; j < 2; j++) add_in(&p, layers, i, norms[j], norms[j], 0, 16);
            add_in(&p, layers, i, "self_attn.q_norm.weight", "self_attn.q_norm.weight", 0, 4);
            add_in(&p, layers, i, "self_attn.k_norm.weight", "self_attn.k_norm.weight", 0, 4);
        }
        write_plan(*state, &p,
                   "{\"model_type\":\"gemma3\",\"text_config\":{\"head_dim\":4," SHAPE "}}",
                   SKV_SHARD_BYTES_MAX);
        skv_source *s = open_source(*state);
        check_model(s, 0);
        assert_null(skv_source_find(s, "vision_tower.vision_model.embeddings.weight"));
        assert_true(skv_source_config(s)->embedding_scale == 4.0);
        skv_source_close(s);
    }
}

static void refuse_plan(const char *folder, plan *p, const char *config, const char *expected)
{
    write_plan(folder, p, config, SKV_SHARD_BYTES_MAX);
    skv_source *s = NULL;
    skv_error err = {0};
    if (skv_source_open(folder, &s, &err) == SKV_OK || s) fail_msg("accepted; %s", expected);
    if (!strstr(err.text, expected)) fail_msg("%s\n  expected %s", err.text, expected);
}

/* The field of config.json that the rows of a matrix follow from. */
static const char *row_field(const char *name)
{
    static const char *const fields[][2] = {{"embed_tokens", "vocab_size"},
                                            {"lm_head", "vocab_size"},
                                            {"q_proj", "num_attention_heads * head_dim"},
                                            {"k_proj", "num_key_value_heads * head_dim"},
                                            {"v_proj", "num_key_value_heads * head_dim"},
                                            {"gate_proj", "intermediate_size"},
                                            {"up_proj", "intermediate_size"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strstr(name, fields[i][0])) return fields[i][1];
    }
    return "hidden_size";
}

static void shapes_that_do_not_fit(void **state)
{
    plan p;
    const char *config = "{\"model_type\":\"llama\"," SHAPE "}";
    plan_llama(&p, true);
    size_t n = p.n;
    for (size_t i = 0; i < n; i++) {
        char expected[256];
        planned saved = p.tensors[i];
        bool is_head = strcmp(saved.name, "lm_head.weight") == 0;
        p.tensors[i].columns++;
        size_t rows = saved.part_rows[0];
        if (saved.n_dims == 1) {
            (void)snprintf(expected, sizeof expected, "%s: shape [%zu], expected [hidden_size %zu]",
                           saved.name, saved.columns + 1, saved.columns);
        } else {
            (void)snprintf(expected, sizeof expected,
                           "%s: shape [%zu,%zu], expected [%s %zu, %s %zu]", saved.name, rows,
                           saved.columns + 1, row_field(saved.name), rows,
                           strstr(saved.name, "o_proj")      ? "num_attention_heads * head_dim"
                           : strstr(saved.name, "down_proj") ? "intermediate_size"
                                                             : "hidden_size",
                           saved.columns);
        }
        refuse_plan(*state, &p, config, expected);
        (void)snprintf(p.tensors[i].name, sizeof saved.name, "renamed");
        (void)snprintf(expected, sizeof expected, "%s: missing", saved.name);
        if (!is_head) refuse_plan(*state, &p, config, expected);
        p.tensors[i] = saved;
    }
    refuse_plan(*state, &p, "{\"model_type\":\"qwen2\"," SHAPE "}",
                "model.layers.0.self_attn.q_proj.bias: missing");
    refuse_plan(*state, &p, "{\"model_type\":\"llama\",\"attention_bias\":true," SHAPE "}",
                "model.layers.0.self_attn.q_proj.bias: missing");
    refuse_plan(*state, &p, "{\"model_type\":\"llama\",\"mlp_bias\":true," SHAPE "}",
                "model.layers.0.mlp.gate_proj.bias: missing");
    refuse_plan(*state, &p, "{\"model_type\":\"qwen3\",\"head_dim\":4," SHAPE "}",
                "model.layers.0.self_attn.q_norm.weight: missing");
    refuse_plan(*state, &p, "{\"model_type\":\"gemma2\",\"head_dim\":4," SHAPE "}",
                "model.layers.0.pre_feedforward_layernorm.weight: missing");
    refuse_plan(*state, &p,
                "{\"model_type\":\"llama_swiftkv\",\"num_key_value_layers\":1," SHAPE "}",
                "model.norm_swiftkv.weight: missing");
    add(&p, "model.norm_swiftkv.weight", "x", 0, 16);
    refuse_plan(*state, &p,
                "{\"model_type\":\"llama_swiftkv\",\"num_key_value_layers\":1," SHAPE "}",
                "model.layers.1.self_attn.q_proj_swiftkv.weight: missing");
}

/* The teacher's projections above l may be dropped, all of a layer together. */
static void swiftkv_with_and_without_its_teacher(void **state)
{
    const char *config = "{\"model_type\":\"llama_swiftkv\",\"num_key_value_layers\":1," SHAPE "}";
    plan p;
    plan_llama(&p, true);
    add(&p, "model.norm_swiftkv.weight", "model.norm_swiftkv.weight", 0, 16);
    static const char *const parts[] = {"self_attn.q_proj_swiftkv.weight",
                                        "self_attn.k_proj_swiftkv.weight",
                                        "self_attn.v_proj_swiftkv.weight"};
    for (size_t i = 0; i < 3; i++) {
        add_in(&p, "model.layers.", 1, parts[i], parts[i], i ? 8 : 16, 16);
    }
    write_plan(*state, &p, config, SKV_SHARD_BYTES_MAX);
    skv_source *s = open_source(*state);
    check_model(s, 0);
    check_part(s, 1, parts[1], 8, 16, 0);
    skv_source_close(s);
    /* The second layer's q, k, v stand three, and its first at 3 + 9. */
    for (size_t i = 12; i < 15; i++) {
        (void)snprintf(p.tensors[i].name, sizeof p.tensors[i].name, "dropped.%zu", i);
        if (i == 14) continue;
        refuse_plan(*state, &p, config, "model.layers.1.self_attn.q_proj.weight: missing");
    }
    write_plan(*state, &p, config, SKV_SHARD_BYTES_MAX);
    s = open_source(*state);
    assert_null(skv_source_find(s, "model.layers.1.self_attn.q_proj.weight"));
    skv_source_close(s);
}

static void paths_that_are_no_models(void **state)
{
    skv_source *s = NULL;
    skv_error err;
    assert_int_equal(skv_source_open("/nonexistent/model", &s, &err), SKV_IO);
    assert_int_equal(skv_source_open(*state, &s, &err), SKV_IO);
    assert_non_null(strstr(err.text, "config.json: cannot open"));
    put_text(*state, "config.json", "{\"model_type\":\"llama\"," SHAPE "}");
    assert_int_equal(skv_source_open(*state, &s, &err), SKV_IO);
    assert_non_null(strstr(err.text, "neither model.safetensors nor"));
    char *path = skv_path_join(*state, "config.json");
    assert_int_equal(skv_source_open(path, &s, &err), SKV_FORMAT);
    assert_non_null(strstr(err.text, "not a GGUF file"));
    skv_free(path);
    assert_null(s);
}

static bool open_once(void *arg)
{
    skv_source *s = NULL;
    bool ok = skv_source_open(arg, &s, NULL) == SKV_OK;
    skv_source_close(s);
    return ok;
}

static void survives_every_failed_allocation(void **state)
{
    plan p;
    plan_llama(&p, true);
    write_plan(*state, &p, "{\"model_type\":\"llama\"," SHAPE "}", 1000);
    size_t n = alloc_fail_each(open_once, *state, false);
    assert_true(n > 20 && n != SIZE_MAX);
    char path[] = SKV_TEST_DATA "/format/twin-phi3.gguf";
    n = alloc_fail_each(open_once, path, false);
    assert_true(n > 20 && n != SIZE_MAX);
}

static void opens_real_models(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t layers, hidden, vocab;
        skv_dtype type;
        bool tied;
    } models[] = {
        {"stories260k/stories260k-f32.gguf", 5, 64, 512, SKV_DTYPE_F32, false},
        {"tinystories-656k", 2, 128, 2048, SKV_DTYPE_F32, true},
        {"tinystories-656k-f16", 2, 128, 2048, SKV_DTYPE_BF16, true},
    };
    if (!skv_file_is_folder(SKV_TEST_ASSETS "/models")) {
        print_message("skipped: %s is absent\n", SKV_TEST_ASSETS "/models");
        skip();
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_ASSETS, models[i].path);
        skv_source *s = open_source(path);
        const skv_config *c = skv_source_config(s);
        assert_int_equal(c->n_layers, models[i].layers);
        assert_int_equal(c->hidden, models[i].hidden);
        assert_int_equal(c->vocab, models[i].vocab);
        assert_int_equal(c->tied, models[i].tied);
        assert_int_equal(c->bos, 1);
        assert_int_equal(c->eos[0], 2);
        assert_int_equal(skv_source_find(s, "model.embed_tokens.weight")->type, models[i].type);
        skv_source_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_of_every_architecture),
        cmocka_unit_test(gguf_that_is_no_model),
        cmocka_unit_test(gguf_that_would_be_misread),
        cmocka_unit_test(gguf_yarn_attention),
        cmocka_unit_test_setup_teardown(a_folder_in_shards, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(heads_that_are_tied, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(phi3_is_cut_into_its_parts, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(openelm_under_its_own_names, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(gemma3_with_images, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(shapes_that_do_not_fit, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(swiftkv_with_and_without_its_teacher, make_folder,
                                        temp_folder_drop),
        cmocka_unit_test_setup_teardown(paths_that_are_no_models, make_folder, temp_folder_drop),
        cmocka_unit_test_setup_teardown(survives_every_failed_allocation, make_folder,
                                        temp_folder_drop),
        cmocka_unit_test(ends_of_gemma4),
        cmocka_unit_test(opens_real_models),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
