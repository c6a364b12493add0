/*
 * LoRA adapters: what models say with them is what peft's say (tests/data/lora), whatever runs
 * beside them; files that do not fit are refused by name.
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "format/lora.h"
#include "format/source.h"
#include "skv/skv.h"
#include "skv/tools.h"
#include "temp_folder.h"

enum { PATH_BYTES = 1024, IDS_MAX = 128, V_MAX = 512, CHUNK = 7, SEQUENCES_MAX = 4 };
static const double TOLERANCE = 1e-3;
/* A path, or the name of a model of the test data. */
static const char *model_path(char out[PATH_BYTES], const char *model)
{
    if (*model == '/') return model;
    const int n = snprintf(out, PATH_BYTES, "%s/models/%s", SKV_TEST_DATA, model);
    assert_in_range(n, 1, PATH_BYTES - 1);
    return out;
}

static skv_status open_with(const char *model, const char *adapters, skv_engine **out,
                            skv_error *err)
{
    char path[PATH_BYTES];
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = IDS_MAX;
    options.kv_tokens = SEQUENCES_MAX * IDS_MAX;
    options.step_tokens = IDS_MAX + 64;
    options.adapters = adapters;
    return skv_engine_open(model_path(path, model), &options, out, err);
}

static skv_engine *open_engine(const char *model, const char *adapters)
{
    skv_engine *engine = NULL;
    skv_error err;
    if (open_with(model, adapters, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    return engine;
}

/* "NAME=TEST_DATA/lora/FILE" */
static const char *entry(char out[600], const char *name, const char *file)
{
    (void)snprintf(out, 600, "%s=%s/lora/%s", name, SKV_TEST_DATA, file);
    return out;
}

static skv_sequence *sequence_of(skv_engine *engine, const skv_adapter_use *uses, size_t n)
{
    skv_sequence *s = NULL;
    skv_error err;
    if (skv_sequence_create(engine, 0, &s, &err) != SKV_OK ||
        skv_sequence_set_adapters(s, uses, n, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return s;
}

/* ---- what a step says ---- */

typedef struct told {
    size_t vocab;
    float logits[SEQUENCES_MAX][IDS_MAX][V_MAX];
    size_t n[SEQUENCES_MAX];
} told;

static void take(void *user, size_t i_span, size_t i_token, const float *logits)
{
    told *t = user;
    (void)i_token;
    memcpy(t->logits[i_span][t->n[i_span]++], logits, t->vocab * sizeof *logits);
}

static double logprob(const float *logits, size_t vocab, size_t id)
{
    double sum = 0;
    for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - (double)logits[id]);
    return -log(sum);
}

static size_t read_ids(const json_t *case_, int32_t *ids)
{
    const json_t *list = json_object_get(case_, "ids");
    for (size_t i = 0; i < json_array_size(list); i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return json_array_size(list);
}

/* All tokens of sequences, `chunk` of each to a step. */
static void run(skv_engine *engine, skv_sequence **sequences, size_t n_sequences,
                const int32_t *ids, size_t n, size_t chunk, told *t)
{
    skv_error err;
    *t = (told){.vocab = skv_engine_vocab(engine)};
    for (size_t at = 0; at < n; at += chunk) {
        skv_span spans[SEQUENCES_MAX];
        for (size_t s = 0; s < n_sequences; s++) {
            const size_t m = n - at < chunk ? n - at : chunk;
            spans[s] = (skv_span){sequences[s], ids + at, m, SKV_WANT_ALL};
        }
        if (skv_step(engine, spans, n_sequences, take, t, &err) != SKV_OK) fail_msg("%s", err.text);
    }
}

/* `list`: adapters, the first of which is used; NULL: none. */
static skv_sequence *sequence_with(skv_engine *engine, const json_t *case_)
{
    skv_adapter_use uses[SKV_ADAPTERS_TOGETHER];
    size_t n = 0;
    const char *name;
    json_t *scale;
    json_object_foreach(json_object_get(case_, "scales"), name, scale)
    {
        uses[n++] = (skv_adapter_use){name, (float)json_real_value(scale)};
    }
    return n > 0 ? sequence_of(engine, uses, n)
                 : sequence_of(engine, &(skv_adapter_use){"a", 1}, !!skv_engine_adapter(engine, 0));
}

static void check_case(const json_t *case_, const char *model, const char *list, told *t)
{
    int32_t ids[IDS_MAX] = {0};
    const size_t n = read_ids(case_, ids);
    const json_t *expected = json_object_get(case_, "logprobs");
    const json_t *last = json_object_get(case_, "last");
    skv_engine *engine = open_engine(model, list);
    for (size_t chunk = CHUNK; chunk <= IDS_MAX; chunk += IDS_MAX - CHUNK) {
        skv_sequence *s = sequence_with(engine, case_);
        run(engine, &s, 1, ids, n, chunk, t);
        for (size_t i = 1; i < n; i++) {
            const double p = logprob(t->logits[0][i - 1], t->vocab, (size_t)ids[i]);
            assert_true(fabs(p - json_real_value(json_array_get(expected, i))) < TOLERANCE);
        }
        for (size_t v = 0; v < t->vocab; v++) {
            const double p = logprob(t->logits[0][n - 1], t->vocab, v);
            assert_true(fabs(p - json_real_value(json_array_get(last, v))) < TOLERANCE);
        }
        skv_sequence_free(s);
    }
    skv_engine_close(engine);
}

static json_t *goldens(void)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/lora/golden.json", SKV_TEST_DATA);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static void test_models_say_what_peft_says(void **state)
{
    (void)state;
    json_t *json = goldens(), *case_;
    told *t = malloc(sizeof *t);
    char list[600];
    size_t i;
    assert_true(json_array_size(json_object_get(json, "cases")) >= 12);
    json_array_foreach(json_object_get(json, "cases"), i, case_)
    {
        const char *name = json_string_value(json_object_get(case_, "adapter"));
        const char *model = json_string_value(json_object_get(case_, "model"));
        check_case(case_, model, entry(list, "a", name), t);
        if (strcmp(name, "narrow") == 0) {
            check_case(case_, model, entry(list, "a", "narrow.gguf"), t);
        }
        if (strcmp(name, "fused") == 0) check_case(case_, model, entry(list, "a", "fused.gguf"), t);
    }
    (void)snprintf(list, sizeof list, "narrow=%s/lora/narrow,wide=%s/lora/wide", SKV_TEST_DATA,
                   SKV_TEST_DATA);
    json_array_foreach(json_object_get(json, "mixed"), i, case_)
    {
        check_case(case_, json_string_value(json_object_get(case_, "model")), list, t);
    }
    free(t);
    json_decref(json);
}

/* ---- merged into the weights ---- */

static void transform(const char *model, const char *out, const char *list, size_t l)
{
    char path[PATH_BYTES];
    skv_error err;
    skv_transform_options options = skv_transform_options_default();
    options.adapters = list;
    options.kv_layers = l;
    if (skv_transform_run(model_path(path, model), out, &options, NULL, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

/* sum [N, K] += scale B A of an adapter's pair of that name; whether there is one. */
static bool add_pair(const skv_lora *lora, const char *name, size_t N, size_t K, float *sum)
{
    for (size_t p = 0; p < lora->n_pairs; p++) {
        const skv_lora_pair *pair = &lora->pairs[p];
        const size_t r = pair->a.dims[0], n = strlen(pair->name);
        if (strncmp(name, pair->name, n) != 0 || strcmp(name + n, ".weight") != 0) continue;
        float *a = malloc(r * K * sizeof *a), *b = malloc(N * r * sizeof *b);
        skv_tensor_read_rows(&pair->a, 0, r, a);
        skv_tensor_read_rows(&pair->b, 0, N, b);
        for (size_t i = 0; i < N * K; i++) {
            double product = 0;
            for (size_t j = 0; j < r; j++)
                product += (double)b[i / K * r + j] * (double)a[j * K + i % K];
            sum[i] += (float)(product * (double)pair->scale);
        }
        free(a);
        free(b);
        return true;
    }
    return false;
}

/* Every tensor of a merged model is the sum, as near as bf16 comes, and every pair is in one. */
static void check_weights(const char *model, const char *adapter, const char *out)
{
    char path[PATH_BYTES], from[600];
    skv_source *before = NULL, *after = NULL;
    skv_lora lora;
    size_t n_added = 0;
    assert_int_equal(skv_source_open(model_path(path, model), &before, NULL), SKV_OK);
    assert_int_equal(skv_source_open(out, &after, NULL), SKV_OK);
    assert_int_equal(skv_lora_open(strchr(entry(from, "", adapter), '=') + 1,
                                   skv_source_config(before), &lora, NULL),
                     SKV_OK);
    assert_int_equal(skv_source_count(before), skv_source_count(after));
    for (size_t i = 0; i < skv_source_count(after); i++) {
        const skv_tensor *t = skv_source_at(after, i);
        const size_t N = skv_tensor_rows(t), K = skv_tensor_columns(t);
        float *sum = malloc(N * K * sizeof *sum), *is = malloc(N * K * sizeof *is);
        skv_tensor_read_rows(skv_source_find(before, t->name), 0, N, sum);
        skv_tensor_read_rows(t, 0, N, is);
        if (add_pair(&lora, t->name, N, K, sum)) n_added++;
        for (size_t j = 0; j < N * K; j++) {
            assert_true(fabsf(is[j] - sum[j]) <= 0x1p-8F * fabsf(sum[j]) + 1e-6F);
        }
        free(sum);
        free(is);
    }
    assert_int_equal(n_added, lora.n_pairs);
    skv_lora_close(&lora);
    skv_source_close(before);
    skv_source_close(after);
}

static void test_merged_models_say_what_peft_says(void **state)
{
    (void)state;
    char folder[] = "/tmp/skv_lora_XXXXXX", out[PATH_BYTES], list[600];
    assert_non_null(mkdtemp(folder));
    json_t *json = goldens(), *case_;
    told *t = malloc(sizeof *t);
    size_t i;
    json_array_foreach(json_object_get(json, "cases"), i, case_)
    {
        const char *name = json_string_value(json_object_get(case_, "adapter"));
        (void)snprintf(out, sizeof out, "%s/%s", folder, name);
        if (access(out, F_OK) != 0) {
            transform(json_string_value(json_object_get(case_, "model")), out,
                      entry(list, "a", name), 0);
            check_weights(json_string_value(json_object_get(case_, "model")), name, out);
        }
        /* The files of the others are bf16: their weights are compared instead. */
        const bool rounded = strcmp(name, "gemma") == 0 || strcmp(name, "swiftkv") == 0;
        if (!rounded) check_case(case_, out, NULL, t);
    }
    free(t);
    json_decref(json);
    assert_int_equal(temp_folder_remove(folder), 0);
}

static char *read_weights(const char *folder, size_t *n)
{
    char path[PATH_BYTES];
    assert_in_range(snprintf(path, sizeof path, "%s/model.safetensors", folder), 1,
                    sizeof path - 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n);
    assert_int_equal(fread(data, 1, *n, f), *n);
    assert_int_equal(fclose(f), 0);
    return data;
}

/* Merging and the SwiftKV form at once are the two one after the other. */
static void test_merging_comes_before_the_transform(void **state)
{
    (void)state;
    char folder[] = "/tmp/skv_lora_XXXXXX", list[600], paths[3][PATH_BYTES];
    char *data[2];
    size_t n[2];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 3; i++) (void)snprintf(paths[i], PATH_BYTES, "%s/%zu", folder, i);
    transform("llama3-v5", paths[0], entry(list, "a", "wide"), 1);
    transform("llama3-v5", paths[1], list, 0);
    transform(paths[1], paths[2], NULL, 1);
    for (size_t i = 0; i < 2; i++) data[i] = read_weights(paths[2 * i], &n[i]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    free(data[0]);
    free(data[1]);
    assert_int_equal(temp_folder_remove(folder), 0);
}

/* ---- several in one step ---- */

/* Each of four sequences gets, to the bit, what it gets in a step of its own; the one without an
 * adapter what an engine without adapters gives. */
static void test_adapters_share_a_step(void **state)
{
    (void)state;
    char one[600], two[600], list[1300];
    (void)snprintf(list, sizeof list, "narrow=%s,wide=%s",
                   strchr(entry(one, "", "narrow"), '=') + 1,
                   strchr(entry(two, "", "wide"), '=') + 1);
    const skv_adapter_use both[] = {{"wide", 0.5F}, {"narrow", 2}}, narrow = {"narrow", 1};
    const skv_adapter_use *const uses[SEQUENCES_MAX] = {both, NULL, &narrow, both};
    const size_t n_uses[SEQUENCES_MAX] = {2, 0, 1, 1};
    int32_t ids[IDS_MAX];
    const size_t n = 40;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(3 + (i * 31) % 90);
    told *together = malloc(sizeof *together), *alone = malloc(sizeof *alone);
    skv_engine *engine = open_engine("llama3-v5", list), *plain = open_engine("llama3-v5", NULL);
    assert_string_equal(skv_engine_adapter(engine, 1), "wide");
    assert_null(skv_engine_adapter(engine, 2));
    const size_t chunks[] = {1, CHUNK, n};
    for (size_t c = 0; c < 3; c++) {
        skv_sequence *all[SEQUENCES_MAX];
        for (size_t s = 0; s < SEQUENCES_MAX; s++) all[s] = sequence_of(engine, uses[s], n_uses[s]);
        run(engine, all, SEQUENCES_MAX, ids, n, chunks[c], together);
        for (size_t s = 0; s < SEQUENCES_MAX; s++) {
            skv_engine *where = uses[s] ? engine : plain;
            skv_sequence *own = sequence_of(where, uses[s], n_uses[s]);
            run(where, &own, 1, ids, n, chunks[c], alone);
            for (size_t i = 0; i < n; i++) {
                assert_memory_equal(together->logits[s][i], alone->logits[0][i],
                                    alone->vocab * sizeof(float));
            }
            skv_sequence_free(own);
            skv_sequence_free(all[s]);
        }
        assert_true(together->logits[0][0][0] != together->logits[1][0][0]);
        assert_true(together->logits[0][0][0] != together->logits[2][0][0]);
    }
    skv_engine_close(plain);
    skv_engine_close(engine);
    free(together);
    free(alone);
}

static void test_pages_are_not_shared_across_adapters(void **state)
{
    (void)state;
    char list[600];
    skv_error err;
    const int32_t ids[] = {5, 6, 7};
    skv_engine *engine = open_engine("llama3-v5", entry(list, "a", "narrow"));
    skv_sequence *with = NULL, *without = sequence_of(engine, NULL, 0);
    assert_int_equal(skv_sequence_create(engine, 0, &with, &err), SKV_OK); /* has the first */
    assert_int_equal(skv_prompt(engine, with, ids, 3, NULL, &err), SKV_OK);
    assert_int_equal(skv_sequence_share(without, with, 2, &err), SKV_ARGUMENT);
    const skv_adapter_use a = {"a", 1}, half = {"a", 0.5F}, b = {"b", 1}, wild = {"a", INFINITY};
    assert_int_equal(skv_sequence_set_adapters(with, NULL, 0, &err), SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapters(with, &half, 1, &err), SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapters(with, &a, 1, &err), SKV_OK);
    assert_int_equal(skv_sequence_set_adapters(without, &wild, 1, &err), SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapters(without, (skv_adapter_use[]){a, half}, 2, &err),
                     SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapters(without, &b, 1, &err), SKV_ARGUMENT);
    assert_non_null(strstr(err.text, "\"b\""));
    skv_sequence_free(with);
    skv_sequence_free(without);
    skv_engine_close(engine);
}

/* ---- what is refused ---- */

static void refuses(const char *model, const char *list, const char *says)
{
    skv_engine *engine = NULL;
    skv_error err = {0};
    assert_int_not_equal(open_with(model, list, &engine, &err), SKV_OK);
    if (!strstr(err.text, says)) fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    assert_null(strchr(err.text, '\n'));
}

static void write_file(const char *folder, const char *name, const char *data, size_t n)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_refused_configurations(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } cases[] = {
        {"{\"r\":4,\"lora_alpha\":8,\"use_dora\":true}", "use_dora: true"},
        {"{\"r\":4,\"fan_in_fan_out\":true}", "fan_in_fan_out"},
        {"{\"r\":4,\"bias\":\"all\"}", "bias: \"all\""},
        {"{\"r\":4,\"modules_to_save\":[\"lm_head\"]}", "modules_to_save"},
        {"{\"r\":5,\"lora_alpha\":8}", "rank 4, but r is 5"},
        {"{\"r\":4,\"peft_type\":\"LOHA\"}", "peft_type: \"LOHA\""},
        {"{\"r\":4,\"init_lora_weights\":\"pissa_niter_4\"}", "init_lora_weights"},
        {"{\"r\":4,\"target_modules\":[\"q_proj\",\"o_proj\"]}", "target_modules: \"o_proj\""},
        {"{\"r\":4,\"alpha_pattern\":{\"q_.*\":3}}", "alpha_pattern"},
        {"{\"r\":4,\"lora_alpha\":1e400}", "adapter_config.json"},
        {"[]", "not a JSON object"},
        {"{", "adapter_config.json"},
    };
    char folder[] = "/tmp/skv_lora_XXXXXX", list[600], from[600], to[600];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(from, sizeof from, "%s/lora/narrow/adapter_model.safetensors", SKV_TEST_DATA);
    (void)snprintf(to, sizeof to, "%s/adapter_model.safetensors", folder);
    assert_int_equal(symlink(from, to), 0);
    (void)snprintf(list, sizeof list, "a=%s", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(folder, "adapter_config.json", cases[i].config, strlen(cases[i].config));
        refuses("llama3-v5", list, cases[i].says);
    }
    write_file(folder, "adapter_config.json", "{\"r\":4}", 7);
    assert_int_equal(unlink(to), 0);
    refuses("llama3-v5", list, "adapter_model.safetensors");
    write_file(folder, "adapter_model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{", 9);
    refuses("llama3-v5", list, "adapter_model.safetensors");
    assert_int_equal(unlink(to), 0);
    (void)snprintf(to, sizeof to, "%s/adapter_config.json", folder);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_refused_adapters(void **state)
{
    (void)state;
    char list[600], both[1300];
    refuses("llama3-v5", "a", "expected NAME=PATH");
    refuses("llama3-v5", "=x", "expected NAME=PATH");
    refuses("llama3-v5", "a=/nowhere", "/nowhere");
    entry(list, "a", "narrow");
    (void)snprintf(both, sizeof both, "%s,%s", list, list);
    refuses("llama3-v5", both, "two are named a");
    refuses("qwen2", list, "the model's matrix is");
    refuses("gpt-oss", entry(list, "a", "regex"), "no such matrix");
    refuses("qwen2-swiftkv-g1", entry(list, "a", "narrow"), "narrow");
    refuses("qwen2", entry(list, "a", "swiftkv"), "_swiftkv");
    refuses("llama3-v5", entry(list, "a", "golden.json"), "golden.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_say_what_peft_says),
        cmocka_unit_test(test_merged_models_say_what_peft_says),
        cmocka_unit_test(test_merging_comes_before_the_transform),
        cmocka_unit_test(test_adapters_share_a_step),
        cmocka_unit_test(test_pages_are_not_shared_across_adapters),
        cmocka_unit_test(test_refused_configurations),
        cmocka_unit_test(test_refused_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
