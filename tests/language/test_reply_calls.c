/*
 * Calls as models really write them: values that only a schema tells apart, marks inside values,
 * calls that lack a part; and calls of earlier turns, which become texts again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "reply_check.h"
#include "skv/text.h"
#include "text/reply_form.h"

static const how hermes = {.calls = SKV_CALLS_HERMES};

#define CODER(inside) "<tool_call>\n<function=f>\n" inside "</function>\n</tool_call>"

/* Values of parameters that nothing but their schema tells apart. */
static void test_values(void **state)
{
    (void)state;
    enum { TEXT = SKV_TYPE_STRING, OPTIONAL = SKV_TYPE_STRING | SKV_TYPE_NULL, ANY = SKV_TYPE_ANY };
    const unsigned number = SKV_TYPE_NUMBER | SKV_TYPE_INTEGER;
    const struct {
        unsigned types;
        const char *value, *want;
    } rows[] = {
        /* What is not one value of JSON stays a text. */
        {0, "1,5", "\"1,5\""},
        {number, "1,5", "\"1,5\""},
        {SKV_TYPE_ARRAY, "1, 2", "\"1, 2\""},
        {SKV_TYPE_ARRAY, "[1, 2] [3]", "\"[1, 2] [3]\""},
        {SKV_TYPE_ARRAY, "[1, 2]", "[1,2]"},
        {SKV_TYPE_ARRAY, "['a', \"it's\", None,]", "[\"a\",\"it's\",null]"},
        {SKV_TYPE_ARRAY, "(1, 2)", "[1,2]"},
        {SKV_TYPE_ARRAY, "", "\"\""},
        {SKV_TYPE_OBJECT, "{\"a\": \"}\"}", "{\"a\":\"}\"}"},
        {SKV_TYPE_OBJECT, "{'a': '\\x41\\'\\d'}", "{\"a\":\"A'\\\\d\"}"},
        /* Another type than the schema's stays a text too. */
        {SKV_TYPE_INTEGER, "1.5", "\"1.5\""},
        {SKV_TYPE_INTEGER, "7", "7"},
        {SKV_TYPE_INTEGER, "\"7\"", "\"\\\"7\\\"\""},
        {number, "1e5", "1e5"},
        {number, "true", "\"true\""},
        {SKV_TYPE_BOOLEAN, "True", "true"},
        {SKV_TYPE_BOOLEAN, "None", "\"None\""},
        {SKV_TYPE_BOOLEAN | SKV_TYPE_NULL, "None", "null"},
        /* Texts that may be missing are texts. */
        {TEXT, "null", "\"null\""},
        {OPTIONAL, "1.10", "\"1.10\""},
        {OPTIONAL, "5", "\"5\""},
        {OPTIONAL, "true", "\"true\""},
        {OPTIONAL, "[1]", "\"[1]\""},
        {OPTIONAL, "null", "null"},
        {OPTIONAL, "None", "null"},
        /* A text or something else: as templates write it. */
        {ANY, "1.10", "\"1.10\""},
        {ANY, "007", "\"007\""},
        {ANY, "491701234567890123", "\"491701234567890123\""},
        {ANY, "1.5", "1.5"},
        {ANY, "-3", "-3"},
        {ANY, "1e-07", "1e-07"},
        {ANY, "1e5", "\"1e5\""},
        {ANY, "\"a\"", "\"\\\"a\\\"\""},
        {ANY, "(5)", "\"(5)\""},
        {TEXT | SKV_TYPE_ARRAY, "[\"a\"]", "[\"a\"]"},
        {TEXT | SKV_TYPE_ARRAY, "['a']", "\"['a']\""},
        {TEXT | SKV_TYPE_INTEGER, "5", "5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400], want[400];
        const how h = {.calls = SKV_CALLS_QWEN_CODER, .types = rows[i].types};
        snprintf(text, sizeof text, CODER("<parameter=s>\n%s\n</parameter>\n"), rows[i].value);
        snprintf(want, sizeof want, "C:f|A:{\"s\":%s}|E:", rows[i].want);
        expect(&h, text, cut_nowhere, 0, want);
        expect(&h, text, cut_everywhere, 0, want);
    }
}

static void test_marks_inside_values(void **state)
{
    (void)state;
    const how coder = {.calls = SKV_CALLS_QWEN_CODER, .types = SKV_TYPE_STRING},
              glm = {.calls = SKV_CALLS_GLM, .types = SKV_TYPE_STRING},
              dsml = {.calls = SKV_CALLS_DSML_V4}, gemma = {.calls = SKV_CALLS_GEMMA4},
              lfm = {.calls = SKV_CALLS_LFM2};
    check(coder, CODER("<parameter=s>\na\n</parameter>\nb\n</parameter>\n"),
          "C:f|A:{\"s\":\"a\\n</parameter>\\nb\"}|E:");
    check(
        coder,
        CODER("<parameter=s>\n</function></parameter></parameter> </para\n</parameter>\n"
              "<parameter=t>\n<parameter=u>\n</parameter>\n"),
        "C:f|A:{\"s\":\"</function></parameter></parameter> </para\",\"t\":\"<parameter=u>\"}|E:");
    check(glm,
          "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>line1\nline2\n</arg_value>\n</tool_call>",
          "C:f|A:{\"s\":\"line1\\nline2\\n\"}|E:");
    check(glm,
          "<tool_call>f<arg_key>s</arg_key><arg_value></tool_call></arg_value>x</arg_value></"
          "tool_call>",
          "C:f|A:{\"s\":\"</tool_call></arg_value>x\"}|E:");
    check(dsml,
          "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"s\" "
          "string=\"true\"></｜DSML｜invoke></｜DSML｜parameter>1</｜DSML｜parameter></"
          "｜DSML｜invoke>",
          "C:f|A:{\"s\":\"</｜DSML｜invoke></｜DSML｜parameter>1\"}|E:");
    check(gemma, "<|tool_call>call:f{s:<|\"|>a<|\"|>b}<tool_call|><|\"|>,n:1}<tool_call|>",
          "C:f|A:{\"s\":\"a<|\\\"|>b}<tool_call|>\",\"n\":1}|E:");
    check(lfm, "<|tool_call_start|>[f(s=''', t='it's', u=\"\\\"\")]<|tool_call_end|>",
          "C:f|A:{\"s\":\"'\",\"t\":\"it's\",\"u\":\"\\\"\"}|E:");
    /* Two parameters of one name are the last one. */
    check(coder,
          CODER("<parameter=s>\na\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
                "<parameter=s>\nb\n</parameter>\n"),
          "C:f|A:{\"n\":\"1\",\"s\":\"b\"}|E:");
    check(lfm, "<|tool_call_start|>[f(a=1, b={\"x\": 1, \"y\": [2]}, a='2')]<|tool_call_end|>",
          "C:f|A:{\"b\":{\"x\":1,\"y\":[2]},\"a\":\"2\"}|E:");
}

static void test_short_calls(void **state)
{
    (void)state;
    const how coder = {.calls = SKV_CALLS_QWEN_CODER}, kimi = {.calls = SKV_CALLS_KIMI},
              mistral = {.calls = SKV_CALLS_MISTRAL_ARGS}, nemo = {.calls = SKV_CALLS_MISTRAL},
              v31 = {.calls = SKV_CALLS_FUNCTIONARY_V31};
    /* Without the first mark. */
    check(coder,
          "I look.\n\n<function=f>\n<parameter=s>\n*.md\n</parameter>\n</function>\n</tool_call>",
          "T:I look.|C:f|A:{\"s\":\"*.md\"}|E:");
    check(coder, "<function=f>\n</function>\n<function=get_weather>\n</function> done",
          "C:f|A:{}|E:|C:get_weather|A:{}|E:|T:done");
    check(coder, "Say <function=f> or\n<function=g>.", "T:Say <function=f> or\n<function=g>.");
    check(kimi, "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
          "C:f|I:functions.f:0|A:{}|E:");
    check(hermes, "\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
          "C:f|A:{\"a\": 1}|E:");
    check(hermes, "{\"name\": \"f\"}", "T:{\"name\": \"f\"}");
    check(hermes, "\n{\"answer\": 3} <tool_call>{\"name\":\"f\"}",
          "T:\n{\"answer\": 3}|C:f|A:{}|E:");
    check(nemo, "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\"}] x",
          "C:f|A:{}|E:|C:f|A:{}|E:|T:x");
    check(nemo, "[1, 2] [TOOL_CALLS][{\"name\": \"f\"}]", "T:[1, 2]|C:f|A:{}|E:");
    /* Blanks in front of what is no call. */
    check(coder, "a\n\n<tool_call> is a mark", "T:a\n\n<tool_call> is a mark");
    check(hermes, "a\n <tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\" 1}}",
          "T:a|C:f|A:{\"a\" |B:\n <tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\" 1 (1)|T:}}");
    /* Without arguments, or with a text of them. */
    check(hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>",
          "C:f|A:{}|E:");
    check(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "C:f|A:{}|E:");
    check(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e4\\\"}\"}",
          "C:f|A:{\"a\": \"ä\"}|E:");
    check(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"a\"}",
          "T:<tool_call>{\"name\": \"f\", \"arguments\": \"a\"}");
    check(mistral, "[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]get_weather[ARGS] [TOOL_CALLS]f[ARGS]{}",
          "C:f|A:{}|E:|C:get_weather|A:{}|E:|C:f|A:{}|E:");
    check(mistral, "[TOOL_CALLS]f[ARGS]nul", "T:[TOOL_CALLS]f[ARGS]nul");
    check(v31, "<function=f></function>", "C:f|A:{}|E:");
    /* Without the last bracket. */
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}\n</tool_call> x",
          "C:f|A:{\"a\":1}|E:|T:x");
    check(nemo, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":1}]", "C:f|A:{\"a\":1}|E:");
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}", "C:f|A:{\"a\":1}|E:");
    /* Cut off: marks inside a value begin nothing. */
    check(coder, "<tool_call>\n<function=f>\n<parameter=s>\n<function=f>\n</function>",
          "T:<tool_call>\n<function=f>\n<parameter=s>\n<function=f>\n</function>");
}

static const skv_text_piece no_mark = {0};

static void test_written_calls(void **state)
{
    (void)state;
    static const char calls[] =
        "[{\"name\":\"f\",\"arguments\":{\"a\":\"it's \\\"\\n\",\"b\":[true,null,{\"c\":1.5}]}},"
        "{\"name\":\"get_weather\",\"arguments\":{}}]";
    static const skv_call_syntax written[] = {SKV_CALLS_LFM2,         SKV_CALLS_GRANITE,
                                              SKV_CALLS_NEMOTRON,     SKV_CALLS_COHERE,
                                              SKV_CALLS_KIMI,         SKV_CALLS_SOLAR,
                                              SKV_CALLS_MISTRAL_ARGS, SKV_CALLS_DEEPSEEK,
                                              SKV_CALLS_DEEPSEEK_V31, SKV_CALLS_FUNCTIONARY_V31};
    char *text = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        const skv_reply_format format = {written[i], SKV_THOUGHTS_NONE};
        story s;
        assert_int_equal(skv_reply_write_calls(format, (skv_text_piece){calls, sizeof calls - 1},
                                               no_mark, &text, &n, NULL),
                         SKV_OK);
        const how h = {.calls = written[i]};
        tell_story(&h, text, cut_nowhere, 0, &s);
        skv_text_free(text);
        for (char *at; (at = strstr(s.text.data, "|I:"));) {
            const char *rest = strchr(at + 1, '|');
            memmove(at, rest, strlen(rest) + 1);
        }
        char *to = s.text.data;
        for (const char *at = to; *at; at++) {
            if (*at != ' ' || at[-1] == 's') *to++ = *at;
        }
        *to = 0;
        assert_string_equal(s.text.data,
                            "C:f|A:{\"a\":\"it's \\\"\\n\",\"b\":[true,null,{\"c\":1.5}]}|E:|"
                            "C:get_weather|A:{}|E:");
        skv_buf_release(&s.text);
    }
    const skv_reply_format none = {SKV_CALLS_QWEN_CODER, SKV_THOUGHTS_NONE},
                           lfm = {SKV_CALLS_LFM2, SKV_THOUGHTS_NONE};
    assert_int_equal(skv_reply_write_calls(none, (skv_text_piece){calls, sizeof calls - 1}, no_mark,
                                           &text, &n, NULL),
                     SKV_UNSUPPORTED);
    assert_int_equal(
        skv_reply_write_calls(lfm, (skv_text_piece){"[{}]", 4}, no_mark, &text, &n, NULL),
        SKV_FORMAT);
    assert_int_equal(skv_reply_write_calls(lfm, (skv_text_piece){"[", 1}, no_mark, &text, &n, NULL),
                     SKV_FORMAT);
}

/* Every beginning of an object is closed to JSON, and what is none is refused. */
static void test_closed_objects(void **state)
{
    (void)state;
    static const char whole[] = " {\"a\": \"x\\n\\u00e4\\ud83d\\ude00\", \"b\": [1, -2.5e3, true, "
                                "{\"c\": null}], \"d\": {}} ";
    static const struct {
        const char *text, *want;
    } rows[] = {{"{", "{}"},
                {"{\"a", "{}"},
                {"{\"a\": ", "{}"},
                {"{\"a\": \"hel", "{\"a\": \"hel\"}"},
                {"{\"a\": \"x\\", "{\"a\": \"x\"}"},
                {"{\"a\": \"x\\ud83d", "{\"a\": \"x\"}"},
                {"{\"a\": [1, 2", "{\"a\": [1]}"},
                {"{\"a\": [1, {\"b\": tr", "{\"a\": [1, {}]}"},
                {"{\"a\": 1}", "{\"a\": 1}"},
                {"", NULL},
                {"[1", NULL},
                {"\"a\"", NULL},
                {"{\"a\": 1} x", NULL},
                {"{\"a\" 1", NULL},
                {"{a", NULL}};
    char *closed = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const skv_status status =
            skv_reply_close_object(rows[i].text, strlen(rows[i].text), &closed, &n, NULL);
        assert_int_equal(status, rows[i].want ? SKV_OK : SKV_FORMAT);
        if (status != SKV_OK) continue;
        assert_string_equal(closed, rows[i].want);
        assert_int_equal(n, strlen(closed));
        skv_text_free(closed);
    }
    for (size_t k = 2; k < sizeof whole; k++) {
        json_error_t why;
        assert_int_equal(skv_reply_close_object(whole, k, &closed, &n, NULL), SKV_OK);
        json_t *json = json_loadb(closed, n, 0, &why);
        if (!json_is_object(json)) fail_msg("%.*s: %s: %s", (int)k, whole, closed, why.text);
        json_decref(json);
        skv_text_free(closed);
    }
}

static void test_types_of_schemas(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        unsigned types;
    } rows[] = {
        {"{}", SKV_TYPE_ANY},
        {"{\"type\":\"string\"}", SKV_TYPE_STRING},
        {"{\"type\":\"number\"}", SKV_TYPE_NUMBER | SKV_TYPE_INTEGER},
        {"{\"type\":[\"string\",\"null\"]}", SKV_TYPE_STRING | SKV_TYPE_NULL},
        {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}",
         SKV_TYPE_STRING | SKV_TYPE_NULL},
        {"{\"oneOf\":[{\"type\":\"array\"},{\"const\":3}]}", SKV_TYPE_ARRAY | SKV_TYPE_INTEGER},
        {"{\"enum\":[\"a\",\"b\",null]}", SKV_TYPE_STRING | SKV_TYPE_NULL},
        {"{\"type\":\"string\",\"nullable\":true}", SKV_TYPE_STRING | SKV_TYPE_NULL},
        {"{\"allOf\":[{\"type\":[\"string\",\"object\"]},{\"type\":[\"object\",\"array\"]}]}",
         SKV_TYPE_OBJECT},
        {"{\"$ref\":\"#/$defs/c\"}", SKV_TYPE_STRING},
        {"{\"anyOf\":[{\"$ref\":\"#/$defs/c\"},{\"type\":\"null\"}]}",
         SKV_TYPE_STRING | SKV_TYPE_NULL},
        {"{\"$ref\":\"#/$defs/loop\"}", SKV_TYPE_ANY},
        {"{\"$ref\":\"#/$defs/none\"}", SKV_TYPE_ANY},
        {"{\"$ref\":\"https://example.com\"}", SKV_TYPE_ANY},
    };
    json_t *root = json_loads("{\"$defs\":{\"c\":{\"enum\":[\"a\",\"b\"]},\"loop\":{\"anyOf\":["
                              "{\"$ref\":\"#/$defs/loop\"},{\"$ref\":\"#/$defs/loop\"}]}}}",
                              0, NULL);
    assert_non_null(root);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *schema = json_loads(rows[i].schema, 0, NULL);
        assert_non_null(schema);
        const unsigned types = skv_reply_schema_types(root, schema, NULL);
        if (types != rows[i].types) fail_msg("%s: %u", rows[i].schema, types);
        json_decref(schema);
    }
    json_decref(root);
}

/* A list of values is read to its end, as far as the budget goes; what it does not reach is of any
 * type. */
static void test_types_of_many_values(void **state)
{
    enum { N_VALUES = 1 << 18, N_REFS = 400 };
    (void)state;
    skv_budget budget;
    skv_error err;
    json_t *values = json_array(), *refs = json_array();
    for (int i = 0; i < N_VALUES; i++) json_array_append_new(values, json_integer(i));
    for (int i = 0; i < N_REFS; i++) json_array_append_new(refs, json_pack("{s:s}", "$ref", "#/x"));
    json_t *root = json_pack("{s:{s:o},s:o}", "x", "enum", values, "anyOf", refs);
    assert_non_null(root);
    skv_limits limits = skv_limits_default();
    limits.max_ns = 0;
    skv_budget_init(&budget, &limits);
    const json_t *one = json_array_get(refs, 0);
    assert_int_equal(skv_reply_schema_types(root, one, &budget), SKV_TYPE_INTEGER);
    json_array_append_new(values, json_string("a"));
    assert_int_equal(skv_reply_schema_types(root, one, &budget),
                     SKV_TYPE_INTEGER | SKV_TYPE_STRING);
    assert_int_equal(skv_budget_check(&budget, "tools", &err), SKV_OK);
    assert_true(budget.work >= 2 * N_VALUES);
    assert_int_equal(skv_reply_schema_types(root, root, &budget), SKV_TYPE_ANY);
    assert_int_equal(skv_budget_check(&budget, "tools", &err), SKV_RANGE);
    assert_non_null(strstr(err.text, "units of work"));
    json_decref(root);
}

/* The grammar of a call whose parameter is one of two lists of n texts, "x" and "10000" to ...;
 * its bytes, 0: it is refused by its size. */
static size_t n_grammar(size_t n, bool loose, bool *lists)
{
    skv_error err;
    char *text = NULL;
    size_t n_text = 0;
    json_t *first = json_array(), *second = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(first, json_string("x"));
        json_array_append_new(second, json_sprintf("%zu", 10000 + i));
    }
    json_t *tools = json_pack("[{s:s,s:b,s:{s:s,s:{s:{s:[{s:o},{s:o}]}},s:[s]}}]", "name", "f",
                              "loose", loose, "parameters", "type", "object", "properties", "a",
                              "anyOf", "enum", first, "enum", second, "required", "a");
    assert_non_null(tools);
    char *json = json_dumps(tools, JSON_COMPACT);
    const skv_reply_rules rules = {.format = {.calls = SKV_CALLS_QWEN_CODER},
                                   .tools_json = json,
                                   .n_tools_json = strlen(json),
                                   .max_calls = 1};
    const skv_status status = skv_reply_grammar(&rules, &text, &n_text, &err);
    if (status != SKV_OK) assert_non_null(strstr(err.text, "schemas of more than 262144 bytes"));
    *lists = status == SKV_OK && strstr(text, "\"10000\"");
    skv_text_free(text);
    free(json);
    json_decref(tools);
    return status == SKV_OK ? n_text : 0;
}

/* Lists of values are followed, refused by their size, or left out where that was agreed. */
static void test_grammars_of_many_values(void **state)
{
    (void)state;
    bool lists;
    assert_true(n_grammar(9000, false, &lists) > 9000 * strlen("\"x\",\"10000\","));
    assert_true(lists);
    assert_int_equal(n_grammar(40000, false, &lists), 0);
    assert_true(n_grammar(40000, true, &lists) > 0);
    assert_false(lists);
}

/* ---- memory ---- */

typedef struct meter {
    size_t n_now, n_peak, n_most;
} meter;

static bool take_some(void *user, size_t n)
{
    meter *m = user;
    if (n > m->n_most - m->n_now) return false;
    m->n_now += n;
    if (m->n_now > m->n_peak) m->n_peak = m->n_now;
    return true;
}

static void give_some(void *user, size_t n)
{
    meter *m = user;
    assert_true(n <= m->n_now);
    m->n_now -= n;
}

static void hear_nothing(void *user, const skv_reply_piece *piece)
{
    (void)user;
    (void)piece;
}

static skv_status read_within(skv_call_syntax calls, const char *text, meter *m)
{
    skv_reply *reply = NULL;
    const skv_reply_options options = {
        .format = {.calls = calls}, .tell = hear_nothing, .memory = {take_some, give_some, m}};
    skv_status status = skv_reply_create(&options, &reply, NULL);
    if (status == SKV_OK) status = skv_reply_push(reply, text, strlen(text), NULL);
    if (status == SKV_OK) status = skv_reply_finish(reply, NULL);
    skv_reply_free(reply);
    assert_int_equal(m->n_now, 0);
    return status;
}

/* What a reader holds is asked for, and given back; with less it fails. */
static void test_memory(void **state)
{
    static const skv_call_syntax forms[] = {SKV_CALLS_HERMES, SKV_CALLS_QWEN_CODER, SKV_CALLS_LFM2};
    (void)state;
    skv_buf text;
    skv_buf_init(&text, 1 << 20);
    skv_buf_text(&text, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>");
    skv_buf_text(&text, "<tool_call><function=f><parameter=a>1</parameter><parameter=a>");
    for (int i = 0; i < 1 << 16; i++) skv_buf_byte(&text, 'x');
    skv_buf_text(&text, "</parameter></function></tool_call>");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        meter all = {.n_most = SIZE_MAX};
        assert_int_equal(read_within(forms[i], text.data, &all), SKV_OK);
        if (forms[i] == SKV_CALLS_QWEN_CODER) assert_true(all.n_peak > 4 << 16);
        assert_true(all.n_peak > 512);
        for (size_t n = 0; n < all.n_peak; n += 1 + all.n_peak / 97) {
            meter less = {.n_most = n};
            assert_int_equal(read_within(forms[i], text.data, &less), SKV_MEMORY);
        }
    }
    skv_buf_release(&text);
}

/* ---- hostile answers ---- */

enum { N_PIECES = 20, HOSTILE_BYTES = 1 << 17 };

/* What answers of a form are made of, known and unknown names, and what may hold a reader up. */
static size_t list_pieces(const skv_reply_form *form, const char *pieces[N_PIECES])
{
    const char *const all[] = {form->open,
                               form->close,
                               form->begin,
                               form->end,
                               form->key,
                               form->value,
                               form->value_end,
                               form->separator,
                               form->id,
                               form->prefix,
                               "f",
                               "z",
                               " ",
                               "{\"name\":\"",
                               "\"",
                               "[{",
                               "(\"",
                               "}",
                               "<|\"|>",
                               form->between};
    size_t n = 0;
    for (size_t i = 0; i < N_PIECES; i++) {
        if (all[i] && all[i][0]) pieces[n++] = all[i];
    }
    return n;
}

static void put_pieces(const skv_reply_form *form, skv_rng *rng, size_t n_most, skv_buf *out)
{
    const char *pieces[N_PIECES];
    const size_t n = list_pieces(form, pieces);
    for (size_t k = 1 + skv_rng_below(rng, n_most); k > 0; k--) {
        skv_buf_text(out, pieces[skv_rng_below(rng, n)]);
    }
}

/* A call as it should be, or a few pieces, again and again; then others, and more than a name. */
static void make_hostile(const skv_reply_form *form, skv_rng *rng, skv_buf *out)
{
    skv_buf unit;
    skv_buf_init(&unit, 1 << 16);
    const char *const call[] = {form->open,      form->begin, form->prefix, "f",        form->id,
                                form->separator, form->key,   "a",          form->value};
    const size_t n_call = skv_rng_below(rng, 10);
    for (size_t i = 0; i < n_call; i++) {
        if (call[i]) skv_buf_text(&unit, call[i]);
    }
    if (n_call == 0 || skv_rng_below(rng, 2) == 0) put_pieces(form, rng, 5, &unit);
    while (unit.size > 0 && out->size < HOSTILE_BYTES) skv_buf_append(out, unit.data, unit.size);
    if (form->value_end) skv_buf_text(out, form->value_end);
    put_pieces(form, rng, 3, out);
    for (int i = 0; i < 5000; i++) skv_buf_byte(out, 'x');
    put_pieces(form, rng, 3, out);
    skv_buf_release(&unit);
}

static void tell_nothing(void *user, const skv_reply_piece *piece)
{
    *(size_t *)user += piece->n;
}

/* Bytes looked at in reading the text in pushes of n_push bytes. */
static size_t look_at(skv_reply_format format, const skv_buf *text, size_t n_push)
{
    size_t n_told = 0;
    skv_reply *reply = NULL;
    const skv_reply_options options = {
        .format = format, .names = functions, .n_names = 2, .tell = tell_nothing, .user = &n_told};
    assert_int_equal(skv_reply_create(&options, &reply, NULL), SKV_OK);
    for (size_t i = 0; i < text->size; i += n_push) {
        const size_t n = text->size - i < n_push ? text->size - i : n_push;
        assert_int_equal(skv_reply_push(reply, text->data + i, n, NULL), SKV_OK);
    }
    assert_int_equal(skv_reply_finish(reply, NULL), SKV_OK);
    const size_t n_looked = skv_reply_looked(reply);
    skv_reply_free(reply);
    return n_looked;
}

/* However often marks open calls that are none, every byte is looked at a bounded number of times:
 * for each of the marks that may open a call around it, of which a name of 4096 bytes has hundreds,
 * and in a header for each push. A reader that begins anew at each mark takes thousands. */
static void test_hostile_answers(void **state)
{
    enum { N_TEXTS = 8, LOOKS_MAX = 640 };
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 35);
    for (int calls = SKV_CALLS_NONE + 1; calls < SKV_CALLS_COUNT; calls++) {
        const skv_reply_format format = {.calls = (skv_call_syntax)calls};
        for (int i = 0; i < N_TEXTS; i++) {
            skv_buf text;
            skv_buf_init(&text, 1 << 20);
            make_hostile(skv_reply_form_at(format.calls), &rng, &text);
            const size_t whole = look_at(format, &text, text.size) / text.size,
                         bytewise = look_at(format, &text, 1) / text.size;
            if (whole > LOOKS_MAX || bytewise > LOOKS_MAX) {
                fail_msg("%s, text %d, \"%.80s\": %zu and %zu looks at a byte",
                         skv_call_syntax_name(format.calls), i, text.data, whole, bytewise);
            }
            skv_buf_release(&text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_marks_inside_values),
        cmocka_unit_test(test_short_calls),
        cmocka_unit_test(test_written_calls),
        cmocka_unit_test(test_closed_objects),
        cmocka_unit_test(test_types_of_schemas),
        cmocka_unit_test(test_types_of_many_values),
        cmocka_unit_test(test_grammars_of_many_values),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_hostile_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
