/* Recipes: values, stages, and mistakes named with their line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/field.h"
#include "skv/recipe.h"

static void reads_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"12", 12},  {"1K", 1000},      {"1.5K", 1500}, {"4Ki", 4096},
                {"2M", 2e6}, {"2^20", 1 << 20}, {"5%", 0.05},   {"1e-3", 1e-3},
                {"-1", -1},  {".5", 0.5},       {"3G", 3e9},    {"1Mi", 1 << 20}};
    static const char *const bad[] = {"",    "x",  "1k",  "1 K", "1K ",   " 1",  "nan",
                                      "inf", "2^", "2^x", "--1", "1e999", "5%%", "1^2K"};
    double value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(skv_number_parse(good[i].text, &value));
        assert_true(value - good[i].value < 1e-12 && good[i].value - value < 1e-12);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(skv_number_parse(bad[i], &value));
    }
}

static const char whole[] = "task: scratch\n"
                            "model: our-base\n"
                            "seq: 1Ki\n"
                            "lr: 1e-3\n"
                            "f32: true\n"
                            "loss-denominator: all\n"
                            "schedule: cosine\n"
                            "data:\n"
                            "  - {generate: 'stage:copy', weight: 3, tokens-max: 256}\n"
                            "  - file: prose.txt\n"
                            "    loss: all\n"
                            "stages:\n"
                            "  - {steps: 2K, seq: 128}\n"
                            "  - steps: 10K\n"
                            "    data: other.jsonl\n";

static void reads_a_recipe(void **state)
{
    (void)state;
    skv_recipe r;
    skv_error err = {0};
    skv_recipe_init(&r, SKV_TRAIN_DISTILL);
    if (skv_recipe_parse(whole, sizeof whole - 1, "r.yaml", &r, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(r.options.task, SKV_TRAIN_SCRATCH);
    assert_string_equal(r.options.model, "our-base");
    assert_true(r.options.f32 && r.options.all_positions && !r.options.drop_teacher);
    assert_int_equal(r.options.n_stages, 2);
    assert_int_equal(r.options.stages[0].steps, 2000);
    assert_int_equal(r.options.stages[0].seq, 128);
    assert_int_equal(r.options.stages[1].seq, 1024);
    assert_int_equal(r.options.stages[1].schedule, SKV_TRAIN_COSINE);
    assert_true(r.options.stages[1].rate > 0.00099 && r.options.stages[1].rate < 0.00101);
    assert_int_equal(r.options.stages[0].n_data, 2);
    assert_string_equal(r.options.stages[0].data[0].documents.tasks, "stage:copy");
    assert_int_equal(r.options.stages[0].data[0].documents.tokens_max, 256);
    assert_int_equal(r.options.stages[0].data[1].learn, SKV_LEARN_ALL);
    assert_int_equal(r.options.stages[0].data[0].learn, SKV_LEARN_ANSWERS);
    assert_int_equal(r.options.stages[1].n_data, 1);
    assert_string_equal(r.options.stages[1].data[0].file, "other.jsonl");
    assert_int_equal(skv_recipe_set(&r, "lr", "5%", NULL), SKV_OK);
    assert_true(r.options.stages[0].rate > 0.049 && r.options.stages[1].rate > 0.049);
    assert_int_equal(skv_recipe_set(&r, "data", "generate:kv=2,lines", NULL), SKV_OK);
    assert_string_equal(r.options.stages[1].data[0].documents.tasks, "kv=2,lines");
    const char *const two = "[{file: a.txt, weight: 2}, {generate: kv}]";
    assert_int_equal(skv_recipe_set(&r, "data", two, NULL), SKV_OK);
    assert_int_equal(skv_recipe_add_data(&r, "{file: b, loss: all}", NULL), SKV_OK);
    assert_int_equal(r.options.stages[1].n_data, 3);
    assert_true(r.options.stages[0].data[0].weight > 1.9);
    assert_true(r.options.stages[0].data[2].learn == SKV_LEARN_ALL);
    assert_int_equal(skv_recipe_set(&r, "stages", "[{steps: 5}]", NULL), SKV_OK);
    assert_int_equal(r.options.n_stages, 1);
    assert_int_equal(r.options.stages[0].n_data, 3);
    assert_int_equal(skv_recipe_add_data(&r, "{file: b, wait: 1}", NULL), SKV_ARGUMENT);
    assert_int_equal(skv_recipe_set(&r, "data", "self:2M", NULL), SKV_OK);
    assert_int_equal(r.options.stages[0].data[0].self_tokens, 2000000);
    const char *const own = "{self: 1K, temperature: 0.5, begin: b.txt, loss: none}";
    assert_int_equal(skv_recipe_add_data(&r, own, NULL), SKV_OK);
    assert_true(r.options.stages[0].data[1].temperature < 0.6);
    assert_int_equal(r.options.stages[0].data[1].learn, SKV_LEARN_NONE);
    assert_int_equal(skv_recipe_add_data(&r, "{self: 1K, file: a}", NULL), SKV_ARGUMENT);
    assert_int_equal(skv_recipe_set(&r, "fuse", "10%", NULL), SKV_OK);
    assert_true(r.options.stages[0].fuse > 0.099);
    skv_recipe_release(&r);
}

/* The defaults are those of the task that the recipe names, wherever it names it. */
static void task_decides_defaults(void **state)
{
    (void)state;
    static const char text[] = "seed: 5\ntask: distill\n";
    skv_recipe r;
    skv_recipe_init(&r, SKV_TRAIN_SCRATCH);
    assert_int_equal(skv_recipe_parse(text, sizeof text - 1, "r.yaml", &r, NULL), SKV_OK);
    assert_int_equal(r.options.task, SKV_TRAIN_DISTILL);
    assert_int_equal(r.options.loss, SKV_TRAIN_KL);
    assert_int_equal(r.options.part, SKV_TRAIN_QKV);
    assert_int_equal(r.options.seed, 5);
    skv_recipe_release(&r);
}

static void names_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"seed: 1\nstep: 5\n", "r.yaml:2: step: unknown key"},
        {"seed: x\n", "r.yaml:1: seed: 'x' is not a whole number"},
        {"\n\nsteps: 1.5\n", "r.yaml:3: steps: 1.5 is not a whole number"},
        {"seq: 1\n", "r.yaml:1: seq: 1 is not between 16 and 1048576"},
        {"steps: 0\n", "r.yaml:1: steps: 0 is not between 1 and 1000000000000"},
        {"beta1: 1\n", "r.yaml:1: beta1: 1 is not between 0 and 0.999999"},
        {"eps: 0\n", "r.yaml:1: eps: 0 is not between 1e-30 and 1"},
        {"loss: mse\n", "r.yaml:1: loss: 'mse' is not one of kl, lm"},
        {"seed: 1\nseed: 2\n", "r.yaml:2: seed: given twice"},
        {"seed: [1]\n", "r.yaml:1: seed: not one value"},
        {"data:\n  - weight: 2\n", "r.yaml:2: data: give one of file, generate, self"},
        {"data:\n  - {file: a, wait: 2}\n", "r.yaml:2: wait: unknown key"},
        {"stages:\n  - {model: x}\n", "r.yaml:2: model: unknown key"},
        {"stages: []\n", "r.yaml:1: stages: a list of 1 to 16"},
        {"- 1\n", "r.yaml:1: expected keys with values"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        skv_recipe r;
        skv_error err = {0};
        skv_recipe_init(&r, SKV_TRAIN_SCRATCH);
        assert_int_not_equal(skv_recipe_parse(bad[i].text, strlen(bad[i].text), "r.yaml", &r, &err),
                             SKV_OK);
        assert_string_equal(err.text, bad[i].message);
        skv_recipe_release(&r);
    }
    skv_recipe r;
    skv_error err = {0};
    skv_recipe_init(&r, SKV_TRAIN_SCRATCH);
    assert_int_equal(skv_recipe_parse("a: [", 4, "r.yaml", &r, &err), SKV_FORMAT);
    assert_int_equal(skv_recipe_set(&r, "nothing", "1", &err), SKV_ARGUMENT);
    assert_int_equal(skv_recipe_parse("", 0, "r.yaml", &r, &err), SKV_OK);
    skv_recipe_release(&r);
}

/* Every key takes a value and no two have one name. */
static void lists_its_keys(void **state)
{
    (void)state;
    skv_recipe_key key, other;
    size_t n = 0;
    while (skv_recipe_key_at(n, &key)) {
        for (size_t i = 0; i < n; i++) {
            assert_true(skv_recipe_key_at(i, &other));
            assert_string_not_equal(key.name, other.name);
        }
        assert_true(key.help[0] != 0 && key.argument[0] != 0);
        n++;
    }
    assert_true(n > 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_numbers),         cmocka_unit_test(reads_a_recipe),
        cmocka_unit_test(task_decides_defaults), cmocka_unit_test(names_mistakes),
        cmocka_unit_test(lists_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
