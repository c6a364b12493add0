/*
 * The template language, against texts that jinja2 made: tests/data/templates/snippets.json holds
 * templates, variables and what tools/fixtures/make_template_goldens.py got for them.
 *
 * `test_jinja --serve` instead reads one JSON object a line, {"template": ..., "vars": {...}},
 * and answers each with {"text": ...} or {"error": ...}; tools/checks/check_jinja.py talks to that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_template.h"
#include "text/jinja/jinja_value.h"

enum { OUTPUT_MAX = 1 << 24 };

static skv_status render(const char *source, size_t n, const json_t *vars, skv_buf *out,
                         skv_error *err)
{
    static const skv_template_options options = {.now = 1753272000};
    skv_template *t = NULL;
    skv_status status = skv_template_parse(source, n, "chat template", NULL, &t, err);
    if (status != SKV_OK) return status;
    char *text = json_dumps(vars, JSON_COMPACT);
    status = skv_template_render(t, text, strlen(text), &options, out, err);
    free(text);
    skv_template_free(t);
    return status;
}

static void answer(const json_t *query)
{
    const json_t *source = json_object_get(query, "template");
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, OUTPUT_MAX);
    skv_status status = render(json_string_value(source), json_string_length(source),
                               json_object_get(query, "vars"), &out, &err);
    json_t *reply = status == SKV_OK
                        ? json_pack("{s:s#}", "text", out.data ? out.data : "", (int)out.size)
                        : json_pack("{s:s,s:i}", "error", err.text, "status", (int)status);
    json_dumpf(reply, stdout, JSON_COMPACT);
    puts("");
    (void)fflush(stdout);
    json_decref(reply);
    skv_buf_release(&out);
}

static int serve(void)
{
    json_error_t why;
    json_t *query;
    while ((query = json_loadf(stdin, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &why))) {
        answer(query);
        json_decref(query);
    }
    return 0;
}

/* Every snippet, with a line for each that differs. */
static void test_snippets(void **state)
{
    (void)state;
    json_error_t why;
    json_t *cases = json_load_file(SKV_TEST_DATA "/templates/snippets.json", JSON_ALLOW_NUL, &why);
    assert_non_null(cases);
    size_t i, n_wrong = 0;
    json_t *entry;
    json_array_foreach(cases, i, entry)
    {
        const json_t *source = json_object_get(entry, "template");
        const char *wanted = json_string_value(json_object_get(entry, "text"));
        skv_buf out;
        skv_error err = {0};
        skv_buf_init(&out, OUTPUT_MAX);
        skv_status status = render(json_string_value(source), json_string_length(source),
                                   json_object_get(entry, "vars"), &out, &err);
        bool right = wanted ? status == SKV_OK && strcmp(out.data ? out.data : "", wanted) == 0
                            : status != SKV_OK;
        if (!right)
            print_message("snippet %zu: %s\n  wanted: %s\n  got:    %s\n", i,
                          json_string_value(source), wanted ? wanted : "(an error)",
                          status == SKV_OK ? out.data : err.text);
        n_wrong += !right;
        skv_buf_release(&out);
    }
    assert_int_equal(n_wrong, 0);
    assert_true(i > 100);
    json_decref(cases);
}

/* Keys that collide: to look for a place and to take it are both work of the budget. */
static void test_colliding_keys(void **state)
{
    enum { N = 1000, SLOTS = 2048, KEY_BYTES = 16 };
    skv_budget budget;
    skv_jarena arena;
    skv_jdict dict = {0};
    (void)state;
    skv_budget_init(&budget, NULL);
    skv_jarena_init(&arena, &budget);
    for (unsigned i = 0; dict.n < N; i++) {
        char name[KEY_BYTES];
        skv_jstr text = {.data = name, .size = (size_t)snprintf(name, sizeof name, "%x", i)};
        const uint64_t hash = skv_jdict_hash_text(&text);
        if (hash % SLOTS != 0) continue;
        char *kept = skv_jarena_take(&arena, KEY_BYTES, 1);
        skv_jstr *key = skv_jarena_take(&arena, 1, sizeof *key);
        assert_true(kept && key);
        memcpy(kept, name, text.size);
        *key = (skv_jstr){.data = kept, .size = text.size, .n_chars = text.size};
        const skv_jv value = {.kind = SKV_J_STRING, .as.s = key};
        assert_true(skv_jdict_put(&arena, &dict, hash, value, skv_j_int(i)));
    }
    assert_true(budget.work >= (uint64_t)N * N);
    skv_jarena_release(&arena);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--serve") == 0) return serve();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_snippets),
                                       cmocka_unit_test(test_colliding_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
