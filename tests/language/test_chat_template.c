/*
 * The chat template API, and the published templates: for every template in the shared assets and
 * every conversation in tests/data/templates/conversations.json the text must have the length and
 * hash that jinja2's has (tests/data/template_hashes.json, made by
 * tools/fixtures/make_template_goldens.py), and must be refused where jinja2 refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/chat_template.h"

enum { OUTPUT_MAX = 1 << 24 };

static const skv_template_options noon = {.now = 1753272000}; /* 2025-07-23 12:00 UTC */

static uint64_t fnv1a(const char *data, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash;
}

static skv_template *parse(const char *source)
{
    skv_template *t = NULL;
    skv_error err = {0};
    if (skv_template_parse(source, strlen(source), "chat template", NULL, &t, &err) != SKV_OK)
        fail_msg("%s", err.text);
    return t;
}

/* Whether one rendering is what the table says; prints a line when it is not. */
static bool case_agrees(const skv_template *t, const char *name, const char *key,
                        const json_t *vars, const json_t *wanted)
{
    char *text = json_dumps(vars, JSON_COMPACT), hash[20] = "";
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, OUTPUT_MAX);
    skv_status status = skv_template_render(t, text, strlen(text), &noon, &out, &err);
    bool agrees;
    if (json_is_null(wanted)) {
        agrees = status != SKV_OK;
        if (!agrees) print_message("%s, %s: rendered, jinja2 refuses\n", name, key);
    } else {
        json_int_t size = json_integer_value(json_array_get(wanted, 0));
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, fnv1a(out.data, out.size));
        agrees = status == SKV_OK && (json_int_t)out.size == size &&
                 strcmp(hash, json_string_value(json_array_get(wanted, 1))) == 0;
        if (!agrees)
            print_message("%s, %s: %s\n", name, key, status == SKV_OK ? "another text" : err.text);
    }
    skv_buf_release(&out);
    free(text);
    return agrees;
}

static size_t count_wrong(const char *name, const json_t *row, const json_t *conversations)
{
    char path[512], *source;
    size_t size, n_wrong = 0;
    skv_error err = {0};
    skv_template *t = NULL;
    (void)snprintf(path, sizeof path, "%s/templates/%s", SKV_TEST_ASSETS, name);
    assert_int_equal(skv_file_read(path, 1 << 22, &source, &size, &err), SKV_OK);
    skv_status status = skv_template_parse(source, size, "chat template", NULL, &t, &err);
    if (status != SKV_OK) print_message("%s: %s\n", name, err.text);
    const char *key;
    json_t *wanted;
    union {
        const json_t *in;
        json_t *out;
    } object = {.in = row};
    json_object_foreach(object.out, key, wanted)
    {
        const json_t *vars = json_object_get(conversations, key);
        assert_non_null(vars);
        if (status != SKV_OK)
            n_wrong += !json_is_null(wanted);
        else
            n_wrong += !case_agrees(t, name, key, vars, wanted);
    }
    skv_template_free(t);
    skv_free(source);
    return n_wrong;
}

static void test_published(void **state)
{
    (void)state;
    json_error_t why;
    if (!skv_file_is_folder(SKV_TEST_ASSETS "/templates")) {
        print_message("skipped: no %s/templates\n", SKV_TEST_ASSETS);
        skip();
    }
    json_t *table = json_load_file(SKV_TEST_DATA "/template_hashes.json", 0, &why);
    json_t *conversations = json_load_file(SKV_TEST_DATA "/templates/conversations.json", 0, &why);
    assert_non_null(table);
    assert_non_null(conversations);
    size_t n_wrong = 0;
    const char *name;
    json_t *row;
    json_object_foreach(table, name, row) n_wrong += count_wrong(name, row, conversations);
    json_decref(table);
    json_decref(conversations);
    assert_int_equal(n_wrong, 0);
}

static void expect_text(const char *source, const char *vars, const char *wanted)
{
    skv_template *t = parse(source);
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, OUTPUT_MAX);
    if (skv_template_render(t, vars, strlen(vars), &noon, &out, &err) != SKV_OK)
        fail_msg("%s", err.text);
    assert_string_equal(out.data, wanted);
    skv_buf_release(&out);
    skv_template_free(t);
}

/* max: NULL for the default limits. */
static void expect_failure(const char *source, const char *vars, const skv_limits *max,
                           skv_status status, const char *message)
{
    skv_budget budget;
    skv_budget_init(&budget, max);
    const skv_template_options options = {.budget = &budget};
    skv_template *t = NULL;
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, OUTPUT_MAX);
    skv_status got = skv_template_parse(source, strlen(source), "chat template", &budget, &t, &err);
    if (got == SKV_OK) got = skv_template_render(t, vars, strlen(vars), &options, &out, &err);
    assert_string_equal(err.text, message);
    assert_int_equal(got, status);
    assert_int_equal(out.size, 0);
    assert_true(budget.bytes == 0 && budget.depth == 0);
    skv_buf_release(&out);
    skv_template_free(t);
}

static void test_messages(void **state)
{
    (void)state;
    expect_failure("a\n\n{{ x|foo }}", "{}", NULL, SKV_FORMAT,
                   "chat template: line 3: unknown filter 'foo'");
    expect_failure("a\n{{ x.y }}", "{}", NULL, SKV_ARGUMENT,
                   "chat template: line 2: 'x' is undefined");
    expect_failure("{{ x.y.z }}", "{\"x\": {}}", NULL, SKV_ARGUMENT,
                   "chat template: line 1: 'dict' has no attribute 'y'");
    expect_failure("{{ raise_exception('roles must alternate') }}", "{}", NULL, SKV_ARGUMENT,
                   "roles must alternate");
    expect_failure("{% for x in y recursive %}{% endfor %}", "{}", NULL, SKV_FORMAT,
                   "chat template: line 1: recursive loops are not supported");
    expect_failure("{% include 'x' %}", "{}", NULL, SKV_FORMAT,
                   "chat template: line 1: tag 'include' is not supported");
    expect_failure("{{ cycler(1) }}", "{}", NULL, SKV_UNSUPPORTED,
                   "chat template: line 1: cycler() is not supported");
    expect_failure("{{ x }}", "{\"x\": 1, \"x\": 2}", NULL, SKV_FORMAT,
                   "chat template: variables: duplicate object key near '\"x\"' at byte 12");
    expect_failure("{{ x }}", "[]", NULL, SKV_FORMAT,
                   "chat template: variables are not a JSON object");
    expect_failure("\xff", "{}", NULL, SKV_FORMAT, "chat template: invalid UTF-8 at byte 0");
}

static void test_limits(void **state)
{
    (void)state;
    const skv_limits small = {.work = 5000, .bytes = 200000, .depth = 10};
    const skv_limits work = {.work = 1000000, .bytes = (size_t)64 << 20, .depth = 64};
    expect_failure("{% for i in range(10000) %}{% for j in range(100) %}{% endfor %}{% endfor %}",
                   "{}", &work, SKV_RANGE, "chat template: needs more than 1000000 units of work");
    expect_failure("{% for i in range(9999) %}{% endfor %}", "{}", &small, SKV_RANGE,
                   "chat template: needs more than 5000 units of work");
    for (size_t i = 0; i < 2; i++) { /* a number with a point takes many tries to write */
        static const char *const writes[] = {"{{ [0.1] * 100 }}", "{{ ([0.1] * 100)|tojson }}"};
        expect_failure(writes[i], "{}", &small, SKV_RANGE,
                       "chat template: needs more than 5000 units of work");
    }
    expect_failure("{% set x = [1, 2, 3] * 5000000 %}", "{}", NULL, SKV_RANGE,
                   "chat template: needs more than 67108864 bytes of memory");
    expect_failure("{{ 'ab' * 100000 }}", "{}", &small, SKV_RANGE,
                   "chat template: needs more than 200000 bytes of memory");
    expect_failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", &small, SKV_RANGE,
                   "chat template: nested more than 10 levels deep");
    expect_failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", NULL, SKV_RANGE,
                   "chat template: nested more than 64 levels deep");
    expect_failure("{{ 'a' * 100000000000 }}", "{}", NULL, SKV_RANGE,
                   "chat template: needs more than 67108864 bytes of memory");
    expect_failure("{{ x }}", "{\"x\": [[[[[[[[[[[[1]]]]]]]]]]]]}", &small, SKV_RANGE,
                   "chat template: variables: nested more than 10 levels deep");
    expect_failure("{{ range(100001) }}", "{}", NULL, SKV_RANGE,
                   "chat template: line 1: range too big, at most 100000 items");
}

static void test_chat(void **state)
{
    (void)state;
    skv_template *t = parse("{{ bos_token }}{% for m in messages %}<{{ m.role }}>"
                            "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
                            "{{ m.content }}{% endfor %}{{ tools }}{{ mood }}"
                            "{% if add_generation_prompt %}<assistant>{% endif %}");
    skv_chat_input input = {.messages_json = "[{\"role\": \"user\", \"content\": \"hi\"},"
                                             "{\"role\": \"assistant\", \"content\": \"yo\","
                                             " \"reasoning\": \"hm\"}]",
                            .extra_json = "{\"mood\": \"!\"}",
                            .bos_token = "<s>",
                            .add_generation_prompt = true};
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, OUTPUT_MAX);
    assert_int_equal(skv_chat_render(t, &input, NULL, &out, &err), SKV_OK);
    assert_string_equal(out.data, "<s><user>hi<assistant>[hm]yoNone!<assistant>");
    skv_buf_clear(&out);
    input.messages_json = "{}";
    assert_int_equal(skv_chat_render(t, &input, NULL, &out, &err), SKV_FORMAT);
    assert_string_equal(err.text, "chat template: messages is not an array");
    input.messages_json = "[1]";
    assert_int_equal(skv_chat_render(t, &input, NULL, &out, &err), SKV_FORMAT);
    assert_string_equal(err.text, "chat template: messages[0] is not an object");
    skv_buf_release(&out);
    skv_template_free(t);
}

static void test_clock(void **state)
{
    (void)state;
    expect_text("{{ strftime_now('%Y-%m-%d') }}", "{}", "2025-07-23");
    expect_text("{{ strftime_now('%d %b %Y') }}", "{}", "23 Jul 2025");
    expect_text("[{{ strftime_now('%Z%z') }}]", "{}", "[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_chat), cmocka_unit_test(test_clock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
