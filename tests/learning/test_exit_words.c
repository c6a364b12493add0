/*
 * Exit heads of some tokens (FR-Spec): the rows that are cut, answers with the bits of those
 * without drafts, drafts of no other token, and files that are refused.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "drafted_answer.h"
#include "engine/engine.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "group_folder.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/quantize.h"
#include "skv/skv.h"
#include "skv/tools.h"

#define EXIT_MODEL SKV_TEST_DATA "/comparators/exit"
#define MINI SKV_TEST_DATA "/../../models/mini/kv6"
#define HEAD "lm_head_swiftkv.weight"
#define IDS "lm_head_swiftkv.ids"

enum { N_DRAFT = 8 };

static const char *in_folder(const char *name)
{
    static char path[8][128];
    static size_t i;
    char *out = path[i++ % 8];
    (void)snprintf(out, sizeof path[0], "%s/%s", group_folder, name);
    return out;
}

/* A text of these ids, the first of which stands there to be followed. */
static const char *write_ids(const int32_t *ids, size_t n)
{
    const char *path = in_folder("ids.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("[0", f);
    for (size_t i = 0; i < n; i++) (void)fprintf(f, ",%d", (int)ids[i]);
    (void)fputs("]", f);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* `model` with an exit head of W tokens: those of ids [n], and then the lowest. */
static const char *cut(const char *model, size_t W, const int32_t *ids, size_t n)
{
    const char *out = in_folder("cut"), *text = n > 0 ? write_ids(ids, n) : NULL;
    skv_transform_options options = skv_transform_options_default();
    skv_transform_report report;
    skv_error err;
    (void)temp_folder_remove(out);
    options.exit_words = W;
    options.data = &text;
    options.n_data = n > 0 ? 1 : 0;
    if (skv_transform_run(model, out, &options, &report, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(report.counted, n);
    return out;
}

/* ---- what is cut ---- */

static void read_row(const skv_source *source, const char *name, size_t row, float *out)
{
    const skv_tensor *t = skv_source_find(source, name);
    if (!t) fail_msg("%s is missing", name);
    assert_int_equal(skv_tensor_fetch_row(t, row, out, NULL), SKV_OK);
}

static void test_rows_are_those_of_the_ids(void **state)
{
    (void)state;
    static const int32_t seen[] = {50, 7, 7, 61, 50, 9};
    skv_source *whole, *few;
    assert_int_equal(skv_source_open(EXIT_MODEL, &whole, NULL), SKV_OK);
    assert_int_equal(skv_source_open(cut(EXIT_MODEL, 10, seen, 6), &few, NULL), SKV_OK);
    const skv_config *c = skv_source_config(whole), *cut_config = skv_source_config(few);
    assert_int_equal(cut_config->exit_words, 10);
    assert_int_equal(skv_source_count(few), skv_source_count(whole) + 1);
    float ids[10];
    float *a = calloc(c->hidden, sizeof *a), *b = calloc(c->hidden, sizeof *b);
    read_row(few, IDS, 0, ids);
    size_t found = 0;
    for (size_t i = 0; i < 10; i++) {
        assert_true(i == 0 || ids[i] > ids[i - 1]);
        for (size_t k = 0; k < 6; k++) {
            bool again = false;
            for (size_t j = 0; j < k; j++) again = again || seen[j] == seen[k];
            found += !again && (int32_t)ids[i] == seen[k];
        }
        read_row(whole, HEAD, (size_t)ids[i], a);
        read_row(few, HEAD, i, b);
        assert_memory_equal(a, b, c->hidden * sizeof *a);
    }
    assert_int_equal(found, 4);
    free(a);
    free(b);
    skv_source_close(whole);
    skv_source_close(few);
}

static void test_models_that_cannot_be_cut(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        size_t W;
        const char *adapters;
        const char *says;
    } wrong[] = {{SKV_TEST_DATA "/models/llama3-v5", 10, NULL, "it has no exit head"},
                 {EXIT_MODEL, 10, "a=b", "go with no other change"},
                 {EXIT_MODEL, 1 << 20, NULL, "exit words: 1048576, expected"},
                 {"", 10, NULL, "is cut to 10 already"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *model = wrong[i].model[0] ? wrong[i].model : cut(EXIT_MODEL, 10, NULL, 0);
        skv_transform_options options = skv_transform_options_default();
        skv_error err;
        options.adapters = wrong[i].adapters;
        options.exit_words = wrong[i].W;
        assert_int_not_equal(skv_transform_run(model, in_folder("wrong"), &options, NULL, &err),
                             SKV_OK);
        if (!strstr(err.text, wrong[i].says)) fail_msg("%s", err.text);
    }
}

/* ---- answers ---- */

/* With each source and without any. Where not every mix is tried, each source has one of the two
 * samplings, and the other one in the next turn. */
static void expect_same_answers(skv_engine *engine, size_t turn, skv_draft_counts *sum)
{
    static const char *const hows[] = {"self:1,0", "self:5,0", "self:12,0.3", "text+self:5,0",
                                       "auto:9,0"};
    static const skv_sampling samplings[] = {
        {.top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 6}};
    int32_t ids[N_PROMPT];
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    for (size_t i = 0; i < 2; i++) {
        const answer plain = answer_of(engine, ids, &samplings[i], "none");
        for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
            /* Each source has one of the two samplings, and the other one in the next turn. */
            if (!every_case() && (turn + i + k) % 2 != 0) continue;
            const answer drafted = answer_of(engine, ids, &samplings[i], hows[k]);
            assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
            sum->drafted += drafted.drafts.drafted;
            sum->accepted += drafted.drafts.accepted;
        }
    }
}

static void test_answers_are_the_same(void **state)
{
    (void)state;
    static const skv_weights weights[] = {SKV_WEIGHTS_AUTO, SKV_WEIGHTS_F32, SKV_WEIGHTS_INT8,
                                          SKV_WEIGHTS_INT4};
    static const size_t words[] = {2, 20, 100, 3071};
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < 4; i++) {
        const char *model = cut(MINI, words[i], NULL, 0);
        for (size_t k = i % 2; k < 4; k += 2) {
            skv_engine_options options = options_for_drafts();
            options.weights = weights[k];
            options.threads = 1 + (i + k) % 3;
            skv_engine *engine = open_or_fail(model, &options);
            assert_int_equal(engine->model.n_exit_ids, words[i]);
            expect_same_answers(engine, i + k / 2, &sum);
            skv_engine_close(engine);
        }
    }
    assert_true(sum.accepted > 100 && sum.drafted > sum.accepted);
}

/* Of random weights in the shape of a small model with fewer layers and tokens. */
static skv_engine *open_shape(size_t vocab, size_t words)
{
    skv_engine_options options = options_for_drafts();
    skv_config *config;
    skv_engine *engine = NULL;
    skv_error err;
    assert_int_equal(skv_preset_config("smollm2-135m", 2, 1, &config, &err), SKV_OK);
    config->n_layers = 4;
    config->vocab = vocab;
    config->early_exit = true;
    config->exit_words = words;
    if (skv_engine_open_shape(config, NULL, &options, &engine, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return engine;
}

/* Of one token and of all: a head of all tokens drafts as one that was never cut. */
static void test_shapes(void **state)
{
    (void)state;
    static const skv_sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    static const size_t words[] = {0, 1001, 1, 250};
    answer whole = {.n = 0};
    for (size_t i = 0; i < 4; i++) {
        skv_engine *engine = open_shape(1001, words[i]);
        int32_t ids[N_PROMPT];
        make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
        const answer plain = answer_of(engine, ids, &greedy, "none");
        const answer drafted = answer_of(engine, ids, &greedy, "self:5,0");
        assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
        assert_true(drafted.drafts.drafted > 0);
        if (i == 0) whole = drafted;
        if (i == 1) assert_int_equal(drafted.drafts.drafted, whole.drafts.drafted);
        if (i == 1) assert_int_equal(drafted.drafts.accepted, whole.drafts.accepted);
        skv_engine_close(engine);
    }
}

static void test_presets(void **state)
{
    (void)state;
    skv_engine_options options = options_for_drafts();
    skv_engine *engine = NULL;
    skv_error err;
    options.preset_kv_layers = 15;
    options.preset_exit_words = 49153;
    options.speculation = (skv_speculation){.source = SKV_DRAFT_SELF, .most = 4};
    assert_int_equal(skv_engine_open_preset("smollm2-135m", &options, &engine, &err), SKV_RANGE);
    assert_non_null(strstr(err.text, "49153, at most 49152"));
    options.preset_exit_words = 1000;
    if (skv_engine_open_preset("smollm2-135m", &options, &engine, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(engine->model.n_exit_ids, 1000);
    skv_engine_close(engine);
}

/* ---- drafts ---- */

/* What the exit drafts behind the prompt and `next`, out [N_DRAFT]. */
static size_t draft_of(const char *model, int32_t next, int32_t *out)
{
    skv_engine_options options = options_for_drafts();
    skv_engine *engine = open_or_fail(model, &options);
    const skv_speculation how = {.source = SKV_DRAFT_SELF, .most = N_DRAFT};
    skv_sequence *s = NULL;
    int32_t ids[N_PROMPT];
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    assert_int_equal(skv_sequence_create(engine, 0, &s, NULL), SKV_OK);
    assert_int_equal(skv_sequence_set_speculation(s, &how, NULL), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, ids, N_PROMPT, NULL, NULL), SKV_OK);
    skv_draft_request r = {.sequence = s, .next = next, .out = out, .most = N_DRAFT};
    skv_sequences_draft(&r, 1);
    skv_sequence_free(s);
    skv_engine_close(engine);
    return r.n;
}

static void test_drafts_are_of_the_ids(void **state)
{
    (void)state;
    int32_t whole[N_DRAFT], same[N_DRAFT], other[N_DRAFT], few[128];
    int32_t next = 2;
    while (next < 40 && draft_of(MINI, next, whole) < N_DRAFT) next++; /* some end an answer */
    assert_true(next < 40);
    /* All that the whole head says: the same draft. */
    assert_int_equal(draft_of(cut(MINI, 64, whole, N_DRAFT), next, same), N_DRAFT);
    assert_memory_equal(whole, same, sizeof whole);
    /* Everything but the first token of it: another one, of those that there are. */
    size_t n_few = 0;
    for (int32_t id = 100; n_few < 120; id++) {
        if (id != whole[0]) few[n_few++] = id;
    }
    const size_t n_other = draft_of(cut(MINI, 121, few, n_few), next, other);
    for (size_t i = 0; i < n_other; i++) {
        bool found = other[i] == 1; /* what ends an answer */
        for (size_t k = 0; k < n_few; k++) found = found || few[k] == other[i];
        assert_true(found);
    }
    assert_true(n_other > 0 && other[0] != whole[0]);
}

/* ---- files ---- */

/* Writes `value` over element i of the ids of the cut model at `path`. */
static void set_id(const char *path, size_t i, int32_t value)
{
    skv_safetensors *files;
    char name[256];
    (void)snprintf(name, sizeof name, "%s/model.safetensors", path);
    assert_int_equal(skv_safetensors_open(name, &files, NULL), SKV_OK);
    const skv_tensor *t = skv_safetensors_find(files, IDS);
    assert_non_null(t);
    const long at = (long)((const char *)t->data - (const char *)t->file->data) + 4 * (long)i;
    skv_safetensors_close(files);
    FILE *f = fopen(name, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void expect_refused(const char *model, const skv_engine_options *options, const char *says)
{
    skv_engine *engine = NULL;
    skv_error err;
    assert_int_not_equal(skv_engine_open(model, options, &engine, &err), SKV_OK);
    if (!strstr(err.text, says)) fail_msg("%s", err.text);
}

static void test_wrong_ids_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t i;
        int32_t value;
        const char *says;
    } wrong[] = {
        {0, -1, "element 0: -1, expected 0 to 3071"},
        {3, 3072, "element 3: 3072, expected 3 to 3071"},
        {3, INT32_MAX, "element 3: 2147483648, expected 3 to 3071"},
        {3, INT32_MIN, "element 3: -2147483648, expected 3 to 3071"},
        {3, 2, "element 3: 2, expected 3 to 3071"},
        {2, 5, "element 3: 3, expected 6 to 3071"},
        {9, (1 << 24) + 1, "element 9: 16777216, expected 9 to 3071"},
    };
    const skv_engine_options options = options_for_drafts();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *model = cut(MINI, 10, NULL, 0);
        char says[256];
        set_id(model, wrong[i].i, wrong[i].value);
        (void)snprintf(says, sizeof says, "model.safetensors: %s: %s", IDS, wrong[i].says);
        expect_refused(model, &options, says);
    }
}

/* Replaces a text in config.json by one that is not longer. */
static void edit_config(const char *model, const char *from, const char *to)
{
    char path[256], text[4096];
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    char *at = strstr(text, from);
    assert_non_null(at);
    memset(at, ' ', strlen(from));
    memcpy(at, to, strlen(to));
    rewind(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_wrong_configurations_are_refused(void **state)
{
    (void)state;
    static const char words[] = "\"swiftkv_exit_words\": 10";
    static const char *const wrong[][3] = {
        {words, "\"swiftkv_exit_words\": 11",
         HEAD ": shape [10,192], expected [swiftkv_exit_words 11"},
        {words, "\"swiftkv_exit_words\": 0", HEAD ": shape [10,192], expected [vocab_size 3072"},
        {words, "\"swiftkv_exit_words\":-1", "swiftkv_exit_words"},
        {words, "\"swiftkv_exit_words\":4e3", "swiftkv_exit_words"},
        {words, "\"swiftkv_exit_words\":4000", "swiftkv_exit_words 4000, expected at most"},
        {"\"swiftkv_early_exit\": true", "\"swiftkv_early_exit\":false",
         "expected none without swiftkv_early_exit"}};
    const skv_engine_options options = options_for_drafts();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *model = cut(MINI, 10, NULL, 0);
        edit_config(model, wrong[i][0], wrong[i][1]);
        expect_refused(model, &options, wrong[i][2]);
    }
}

static void test_early_exit_is_refused(void **state)
{
    (void)state;
    skv_engine_options options = options_for_drafts();
    options.early_exit = 0.5;
    expect_refused(cut(MINI, 10, NULL, 0), &options, "an exit head of some tokens");
}

/* Quantised, and merged again: the ids stay. */
static void test_other_forms_keep_it(void **state)
{
    (void)state;
    const char *model = cut(MINI, 100, NULL, 0), *out = in_folder("quantised");
    skv_quantize_options options = skv_quantize_options_default();
    skv_draft_counts sum = {0};
    skv_error err;
    options.weights = SKV_WEIGHTS_INT4;
    if (skv_quantize(model, out, &options, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    const skv_engine_options small = options_for_drafts();
    skv_engine *engine = open_or_fail(out, &small), *from = open_or_fail(model, &small);
    assert_int_equal(engine->model.n_exit_ids, 100);
    assert_memory_equal(engine->model.exit_ids, from->model.exit_ids, 100 * sizeof(int32_t));
    expect_same_answers(engine, 0, &sum);
    skv_engine_close(engine);
    skv_engine_close(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_of_the_ids),
        cmocka_unit_test(test_models_that_cannot_be_cut),
        cmocka_unit_test(test_answers_are_the_same),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_drafts_are_of_the_ids),
        cmocka_unit_test(test_wrong_ids_are_refused),
        cmocka_unit_test(test_wrong_configurations_are_refused),
        cmocka_unit_test(test_early_exit_is_refused),
        cmocka_unit_test(test_other_forms_keep_it),
    };
    return cmocka_run_group_tests(tests, group_folder_make, group_folder_drop);
}
