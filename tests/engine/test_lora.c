/*
 * LoRA adapters: what models say with them is what peft's say (tests/data/lora), whatever runs
 * beside them; files that do not fit are refused by name.
 */
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

#include "skv/skv.h"

enum { IDS_MAX = 128, V_MAX = 512, CHUNK = 7, SEQUENCES_MAX = 4 };
static const double TOLERANCE = 1e-3;

static skv_status open_with(const char *model, const char *adapters, skv_engine **out,
                            skv_error *err)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA, model);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = IDS_MAX;
    options.kv_tokens = SEQUENCES_MAX * IDS_MAX;
    options.step_tokens = IDS_MAX + 64;
    options.adapters = adapters;
    return skv_engine_open(path, &options, out, err);
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

static skv_sequence *sequence_of(skv_engine *engine, const char *adapter)
{
    skv_sequence *s = NULL;
    skv_error err;
    if (skv_sequence_create(engine, 0, &s, &err) != SKV_OK ||
        skv_sequence_set_adapter(s, adapter, &err) != SKV_OK) {
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

static void check_case(const json_t *case_, const char *file, told *t)
{
    char list[600];
    int32_t ids[IDS_MAX] = {0};
    const size_t n = read_ids(case_, ids);
    const json_t *expected = json_object_get(case_, "logprobs");
    const json_t *last = json_object_get(case_, "last");
    skv_engine *engine =
        open_engine(json_string_value(json_object_get(case_, "model")), entry(list, "a", file));
    for (size_t chunk = CHUNK; chunk <= IDS_MAX; chunk += IDS_MAX - CHUNK) {
        skv_sequence *s = sequence_of(engine, "a");
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
    char path[512];
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
    size_t i;
    assert_true(json_array_size(json_object_get(json, "cases")) >= 12);
    json_array_foreach(json_object_get(json, "cases"), i, case_)
    {
        const char *name = json_string_value(json_object_get(case_, "adapter"));
        check_case(case_, name, t);
        if (strcmp(name, "narrow") == 0) check_case(case_, "narrow.gguf", t);
        if (strcmp(name, "fused") == 0) check_case(case_, "fused.gguf", t);
    }
    free(t);
    json_decref(json);
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
    const char *const names[SEQUENCES_MAX] = {"wide", NULL, "narrow", "wide"};
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
        for (size_t s = 0; s < SEQUENCES_MAX; s++) all[s] = sequence_of(engine, names[s]);
        run(engine, all, SEQUENCES_MAX, ids, n, chunks[c], together);
        for (size_t s = 0; s < SEQUENCES_MAX; s++) {
            skv_engine *where = names[s] ? engine : plain;
            skv_sequence *own = sequence_of(where, names[s]);
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
    skv_sequence *with = NULL, *without = sequence_of(engine, NULL);
    assert_int_equal(skv_sequence_create(engine, 0, &with, &err), SKV_OK); /* has the first */
    assert_int_equal(skv_prompt(engine, with, ids, 3, NULL, &err), SKV_OK);
    assert_int_equal(skv_sequence_share(without, with, 2, &err), SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapter(with, NULL, &err), SKV_ARGUMENT);
    assert_int_equal(skv_sequence_set_adapter(with, "a", &err), SKV_OK);
    assert_int_equal(skv_sequence_set_adapter(without, "b", &err), SKV_ARGUMENT);
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
    char path[700];
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
        cmocka_unit_test(test_adapters_share_a_step),
        cmocka_unit_test(test_pages_are_not_shared_across_adapters),
        cmocka_unit_test(test_refused_configurations),
        cmocka_unit_test(test_refused_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
