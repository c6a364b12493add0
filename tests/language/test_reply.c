/*
 * Replies: thoughts, text and calls told apart, the same however the text is cut; formats read off
 * published templates; grammars whose answers the reader reads back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "reply_check.h"
#include "skv/grammar.h"
#include "skv/reply.h"
#include "skv/text.h"
#include "text/json_scan.h"

static const how hermes = {.calls = SKV_CALLS_HERMES}, llama3 = {.calls = SKV_CALLS_LLAMA3},
                 plain = {.calls = SKV_CALLS_NONE},
                 qwen3 = {.calls = SKV_CALLS_HERMES, .thinks = true},
                 thinker = {.calls = SKV_CALLS_NONE, .thinks = true};

static void test_text(void **state)
{
    (void)state;
    check(plain, " Hello <tool_call> {\n ", "T: Hello <tool_call> {\n ");
    check(hermes, " Hello <b>\n\n <tool_cal ", "T: Hello <b>\n\n <tool_cal ");
    check(hermes, "a <<tool_callx", "T:a <<tool_callx");
    check(llama3, " Hello {\"name\": \"f\"}", "T: Hello {\"name\": \"f\"}");
    check(llama3, "  ", "T:  ");
    check(hermes, "", "");
}

static void count_text(void *user, const skv_reply_piece *piece)
{
    size_t *n = user;
    *n += piece->kind == SKV_REPLY_TEXT || piece->kind == SKV_REPLY_THOUGHT ? piece->n : 0;
}

/* Blanks that may belong to a mark are held, but not looked at again with every one that comes. */
static void test_many_blanks(void **state)
{
    enum { N_BLANKS = 1 << 19 };
    (void)state;
    for (int calls = SKV_CALLS_NONE; calls < SKV_CALLS_COUNT; calls++) {
        for (int thinks = 0; thinks < 2; thinks++) {
            size_t n = 0;
            skv_reply *reply = NULL;
            const skv_reply_options options = {
                .format = {(skv_call_syntax)calls, thinks ? SKV_THOUGHTS_THINK : SKV_THOUGHTS_NONE},
                .in_thought = thinks,
                .tell = count_text,
                .user = &n};
            assert_int_equal(skv_reply_create(&options, &reply, NULL), SKV_OK);
            assert_int_equal(skv_reply_push(reply, "x", 1, NULL), SKV_OK);
            for (int i = 0; i < N_BLANKS; i++) {
                assert_int_equal(skv_reply_push(reply, " ", 1, NULL), SKV_OK);
            }
            assert_int_equal(skv_reply_push(reply, "y", 1, NULL), SKV_OK);
            assert_int_equal(skv_reply_finish(reply, NULL), SKV_OK);
            assert_int_equal(n, N_BLANKS + 2);
            skv_reply_free(reply);
        }
    }
}

static void test_calls_of_hermes(void **state)
{
    (void)state;
    check(hermes,
          "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"}\": \"\\\"}\"}]}}"
          "\n</tool_call>",
          "C:f|A:{\"a\": [1, {\"}\": \"\\\"}\"}]}|E:");
    check(hermes,
          "Let me see.\n\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{}}</tool_call>"
          "\n<tool_call>\n{\"arguments\": {\"x\": -1.5e3}, \"name\": \"f\"}\n</tool_call> ok \n",
          "T:Let me see.|C:get_weather|A:{}|E:|C:f|A:{\"x\": -1.5e3}|E:|T:ok \n");
    check(hermes, "<tool_call>{\"id\":7,\"name\":\"f\"}</tool_call>", "C:f|A:{}|E:");
    /* Without its closing mark, with a part of it, and cut off. */
    check(hermes, "<tool_call>{\"name\":\"f\"}\n</tool_c", "C:f|A:{}|E:");
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}", "C:f|A:{\"a\":1}|E:");
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":",
          "C:f|A:{\"a\":|B:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": (0)");
    check(hermes, "<tool_call>{\"name\":\"f\",\"argu", "T:<tool_call>{\"name\":\"f\",\"argu");
}

static void test_what_is_no_call(void **state)
{
    (void)state;
    check(hermes, "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
          "T:<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>");
    check(hermes, "<tool_call>f(1)</tool_call>", "T:<tool_call>f(1)</tool_call>");
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}} more",
          "C:f|A:{\"a\":1,|B:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,} (1)|T:} more");
    check(hermes, "<tool_call>{\"name\":\"f\",\"arguments\":[1]}",
          "T:<tool_call>{\"name\":\"f\",\"arguments\":[1]}");
    check(hermes, "<tool_call>{\"name\":\"f\",\"name\":\"f\"}",
          "T:<tool_call>{\"name\":\"f\",\"name\":\"f\"}");
    check(llama3, "{\"name\": \"Bob\", \"age\": 3}", "T:{\"name\": \"Bob\", \"age\": 3}");
    check(llama3, "\n{\"answer\": 3}", "T:\n{\"answer\": 3}");
    check(llama3, "{\"name\": \"f\", \"age\": 3}", "T:{\"name\": \"f\", \"age\": 3}");
    check(llama3, "<|python_tag|>print(1)", "T:<|python_tag|>print(1)");
}

static void test_calls_of_llama3(void **state)
{
    (void)state;
    check(llama3, "{\"name\": \"f\", \"parameters\": {\"a\": \"\\u00e4\"}}",
          "C:f|A:{\"a\": \"\\u00e4\"}|E:");
    check(llama3,
          " {\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
          "{\"name\": \"get_weather\", \"parameters\": {\"b\": null}} x",
          "C:f|A:{}|E:|C:get_weather|A:{\"b\": null}|E:|T:x");
    check(llama3, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "C:f|A:{}|E:");
    const how one = {.calls = SKV_CALLS_LLAMA3, .one_call = true};
    check(one, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}",
          "C:f|A:{}|E:");
}

static void test_thoughts(void **state)
{
    (void)state;
    check(thinker, "\n<think>\nHm.\n\nSo.\n</think>\n\nYes. ", "R:Hm.\n\nSo.|T:Yes. ");
    check(thinker, "<think></think>No", "T:No");
    check(thinker, "<thin", "T:<thin");
    check(thinker, "Not <think> so", "T:Not <think> so");
    check(thinker, "<think>cut off </th", "R:cut off </th");
    const how inside = {.calls = SKV_CALLS_HERMES, .thinks = true, .in_thought = true};
    check(inside, "\nHm </think> <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
          "R:Hm|C:f|A:{}|E:");
    check(qwen3, "<think>a <tool_call></think>\n{}", "R:a <tool_call>|T:{}");
}

/* Texts made of pieces of marks and JSON: each cut gives what the whole gives. */
static void test_random_texts(void **state)
{
    (void)state;
    static const char *const bits[] = {"<tool_call>",
                                       "</tool_call>",
                                       "<think>",
                                       "</think>",
                                       "{\"name\": \"f\", ",
                                       "\n",
                                       " ",
                                       "\"arguments\": {\"a\": 1}}",
                                       "\"parameters\": {}}",
                                       "{",
                                       "}",
                                       "<",
                                       "tool",
                                       "x",
                                       ";",
                                       "\""};
    static const how hows[] = {{.calls = SKV_CALLS_HERMES, .thinks = true},
                               {.calls = SKV_CALLS_LLAMA3},
                               {.calls = SKV_CALLS_LLAMA3, .thinks = true, .in_thought = true}};
    skv_rng rng;
    skv_rng_init(&rng, 5);
    for (size_t i = 0; i < 3000; i++) {
        char text[400];
        size_t n = 0;
        for (uint64_t k = skv_rng_next(&rng) % 12; k > 0; k--) {
            const char *bit = bits[skv_rng_next(&rng) % (sizeof bits / sizeof bits[0])];
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", bit);
        }
        text[n] = 0;
        const how *h = &hows[i % 3];
        story whole;
        tell_story(h, text, cut_nowhere, 0, &whole);
        expect(h, text, cut_everywhere, 0, whole.text.data);
        for (size_t k = 1; k < n; k++) expect(h, text, cut_once, k, whole.text.data);
        skv_buf_release(&whole.text);
    }
}

static void test_json_scan(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        skv_json_place last;
    } rows[] = {{"{}", SKV_JSON_ENDED},
                {" [ ] ", SKV_JSON_BAD},
                {"[1,2.5,-0,1e+3,0.1E-2]", SKV_JSON_ENDED},
                {"[01]", SKV_JSON_BAD},
                {"[1.]", SKV_JSON_BAD},
                {"[-]", SKV_JSON_BAD},
                {"[1e]", SKV_JSON_BAD},
                {"[.5]", SKV_JSON_BAD},
                {"[true,false,null]", SKV_JSON_ENDED},
                {"[tru]", SKV_JSON_BAD},
                {"{\"a\":{\"b\":[]},\"c\":\"\\u12aF\\n\"}", SKV_JSON_ENDED},
                {"{\"a\" 1}", SKV_JSON_BAD},
                {"{\"a\":1,}", SKV_JSON_BAD},
                {"{,}", SKV_JSON_BAD},
                {"[1,]", SKV_JSON_BAD},
                {"[}", SKV_JSON_BAD},
                {"{\"a\":\"\n\"}", SKV_JSON_BAD},
                {"{\"a\":\"\\x\"}", SKV_JSON_BAD},
                {"{\"a\":\"\\u12g4\"}", SKV_JSON_BAD},
                {"1", SKV_JSON_BAD},
                {"\"a\"", SKV_JSON_BAD}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        skv_json_scan scan;
        skv_json_scan_init(&scan);
        for (const char *at = rows[i].text; *at != 0; at++) (void)skv_json_scan_byte(&scan, *at);
        if (scan.place != rows[i].last) fail_msg("%s: %d", rows[i].text, (int)scan.place);
    }
    skv_json_scan scan;
    skv_json_scan_init(&scan);
    for (size_t i = 0; i < SKV_JSON_SCAN_DEPTH_MAX; i++) {
        assert_int_equal(skv_json_scan_byte(&scan, '['), SKV_JSON_FIRST_VALUE);
    }
    assert_int_equal(skv_json_scan_byte(&scan, '['), SKV_JSON_BAD);
}

/* ---- formats ---- */

static void test_formats_of_templates(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        skv_call_syntax calls;
        skv_thought_marks thinks;
    } rows[] = {
        {"Qwen-Qwen3-0.6B", SKV_CALLS_HERMES, true},
        {"Qwen-Qwen2.5-7B-Instruct", SKV_CALLS_HERMES, false},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", SKV_CALLS_HERMES, false},
        {"meta-llama-Llama-3.1-8B-Instruct", SKV_CALLS_LLAMA3, false},
        {"meta-llama-Llama-3.2-3B-Instruct", SKV_CALLS_LLAMA3, false},
        {"meta-llama-Llama-3.3-70B-Instruct", SKV_CALLS_LLAMA3, false},
        {"Qwen3-Coder", SKV_CALLS_QWEN_CODER, SKV_THOUGHTS_NONE},
        {"GLM-5.2", SKV_CALLS_GLM, SKV_THOUGHTS_THINK},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", SKV_CALLS_QWEN_CODER, SKV_THOUGHTS_THINK},
        {"StepFun3.5-Flash", SKV_CALLS_QWEN_CODER, SKV_THOUGHTS_THINK},
        {"fireworks-ai-llama-3-firefunction-v2", SKV_CALLS_FIREFUNCTION, SKV_THOUGHTS_NONE},
        {"Cohere2MoE", SKV_CALLS_COHERE, SKV_THOUGHTS_COHERE},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", SKV_CALLS_DEEPSEEK, SKV_THOUGHTS_THINK},
        {"moonshotai-Kimi-K2", SKV_CALLS_KIMI, SKV_THOUGHTS_NONE},
        {"google-gemma-2-2b-it", SKV_CALLS_NONE, SKV_THOUGHTS_NONE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[1024], *text = NULL;
        size_t n = 0;
        snprintf(path, sizeof path, "%s/templates/%s.jinja", SKV_TEST_ASSETS, rows[i].name);
        if (skv_file_read(path, 1 << 20, &text, &n, NULL) != SKV_OK) {
            print_message("templates of other models are absent: %s\n", path);
            skip();
        }
        const skv_reply_format format = skv_reply_format_of(text, n);
        skv_text_free(text);
        if (format.calls != rows[i].calls || format.thinks != rows[i].thinks) {
            fail_msg("%s: %s, %d", rows[i].name, skv_call_syntax_name(format.calls), format.thinks);
        }
    }
}

static void test_names_of_formats(void **state)
{
    (void)state;
    skv_call_syntax syntax = SKV_CALLS_NONE;
    assert_true(skv_call_syntax_parse("hermes", &syntax));
    assert_int_equal(syntax, SKV_CALLS_HERMES);
    assert_true(!skv_call_syntax_parse("basic", &syntax));
    const skv_reply_format none = skv_reply_format_of(NULL, 0);
    assert_int_equal(none.calls, SKV_CALLS_NONE);
    const skv_reply_format thinks = {SKV_CALLS_NONE, SKV_THOUGHTS_THINK};
    assert_true(skv_reply_prompt_thinks(thinks, "<|assistant|><think>\n", 21));
    assert_true(!skv_reply_prompt_thinks(none, "<|assistant|><think>\n", 21));
    assert_true(!skv_reply_prompt_thinks(thinks, "<think>\n\n</think>\n\n", 19));
    assert_true(!skv_reply_prompt_thinks(thinks, "hink>", 5));
    assert_int_equal(skv_reply_thought_opening(thinks, "<|assistant|><think>\n", 21), 8);
    assert_int_equal(skv_reply_thought_opening(thinks, "<think>", 7), 7);
    assert_int_equal(skv_reply_thought_opening(thinks, "<think> x", 9), 0);
}

/* ---- grammars ---- */

static const char tools[] =
    "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":3}},\"required\":[\"n\"]}},{\"name\":\"get_weather\"}]";

static bool accepts(const skv_grammar *g, const char *text)
{
    skv_matcher *m = NULL;
    assert_int_equal(skv_matcher_create(g, NULL, NULL, &m, NULL), SKV_OK);
    const bool ok = skv_matcher_accept_bytes(m, text, strlen(text), NULL) == SKV_OK &&
                    skv_matcher_is_complete(m);
    skv_matcher_free(m);
    return ok;
}

static skv_grammar *grammar_like(skv_call_syntax calls, bool in_thought, bool may_talk,
                                 size_t max_calls)
{
    const skv_reply_rules rules = {.format = {calls, false},
                                   .in_thought = in_thought,
                                   .may_talk = may_talk,
                                   .tools_json = tools,
                                   .n_tools_json = sizeof tools - 1,
                                   .max_calls = max_calls};
    char *text = NULL;
    size_t n = 0;
    skv_grammar *g = NULL;
    skv_error err = {0};
    if (skv_reply_grammar(&rules, &text, &n, &err) != SKV_OK) fail_msg("%s", err.text);
    if (skv_grammar_compile(SKV_GRAMMAR_PARTS, text, n, NULL, &g, &err) != SKV_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    skv_text_free(text);
    return g;
}

static skv_grammar *grammar_of(skv_call_syntax calls, bool in_thought, size_t max_calls)
{
    return grammar_like(calls, in_thought, false, max_calls);
}

/* Text is free, but a call that is begun is whole and follows its schema. */
static void test_grammars_of_talk(void **state)
{
    (void)state;
    static const char call[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 2}}\n</tool_call>";
    char text[400];
    skv_grammar *g = grammar_like(SKV_CALLS_HERMES, true, true, 2);
    for (size_t n_calls = 0; n_calls < 4; n_calls++) {
        size_t n = (size_t)snprintf(text, sizeof text, "<<to \xc3\xa4 <tool_cal\n");
        for (size_t i = 0; i < n_calls; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s and <", call);
        }
        assert_int_equal(accepts(g, text), n_calls <= 2);
    }
    assert_true(accepts(g, ""));
    assert_true(accepts(g, call));
    assert_true(!accepts(g, "<tool_call>"));
    assert_true(!accepts(g, "x<<tool_call>\n{\"name\": \"g\"}\n</tool_call>"));
    assert_true(!accepts(g, "<tool_call>{\"name\": \"f\"}</tool_call>"));
    skv_grammar_free(g);
    g = grammar_like(SKV_CALLS_LLAMA3, false, true, 1);
    assert_true(accepts(g, ""));
    assert_true(accepts(g, "{\"nam"));
    assert_true(accepts(g, "{\"age\": 3}"));
    assert_true(accepts(g, "Hello {\"name\": \"g\"}"));
    assert_true(accepts(g, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}"));
    assert_true(!accepts(g, "{\"name\": \"g\"}"));
    assert_true(!accepts(g, "{\"name\": \"f\", \"parameters\": {\"n\": 7}}"));
    skv_grammar_free(g);
}

static void test_grammars_of_calls(void **state)
{
    (void)state;
    static const char one[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 2}}\n</tool_call>";
    static const char two[] =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n"
        "</tool_call>\n"
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 2}}\n</tool_call>";
    skv_grammar *g = grammar_of(SKV_CALLS_HERMES, false, 2);
    assert_true(accepts(g, one));
    assert_true(accepts(g, two));
    assert_true(
        !accepts(g, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 4}}\n</tool_call>"));
    assert_true(!accepts(g, "Hello"));
    check(hermes, two, "C:get_weather|A:{}|E:|C:f|A:{\"n\": 2}|E:");
    skv_grammar_free(g);
    g = grammar_of(SKV_CALLS_HERMES, true, 1);
    assert_true(!accepts(g, two));
    assert_true(!accepts(g, one));
    static const char three[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 3}}\n</tool_call>";
    static const char *const leads[] = {"</think>\n\n", "</think>",
                                        "Hm {<tool_call>\n</thin </think>\n"};
    for (size_t i = 0; i < 3; i++) { /* the thought is free */
        char text[200];
        (void)snprintf(text, sizeof text, "%s%s", leads[i], three);
        assert_true(accepts(g, text));
        (void)snprintf(text, sizeof text, "%sx%s", leads[i], three);
        assert_true(!accepts(g, text));
    }
    assert_true(!accepts(g, "Hm "));
    skv_grammar_free(g);
    g = grammar_of(SKV_CALLS_LLAMA3, false, 16);
    assert_true(accepts(g, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}"));
    assert_true(accepts(g, "{\"name\": \"get_weather\", \"parameters\": {\"any\": [1]}}"));
    assert_true(!accepts(g, "{\"name\": \"get_weather\", \"parameters\": 3}"));
    skv_grammar_free(g);
}

/* Marks that are special tokens are demanded as such: their letters do not do. */
static void test_special_marks(void **state)
{
    (void)state;
    static const char *const special[] = {"[TOOL_CALLS]", "[ARGS]", "<tool_call>"};
    static const struct {
        skv_call_syntax calls;
        bool may_talk;
        const char *fits, *spelt;
    } cases[] = {
        {SKV_CALLS_MISTRAL_ARGS, false, "\xff[TOOL_CALLS]f\xff[ARGS]{\"n\": 2}",
         "[TOOL_CALLS]f[ARGS]{\"n\": 2}"},
        {SKV_CALLS_MISTRAL_ARGS, true, "Hm: \xff[TOOL_CALLS]f\xff[ARGS]{\"n\": 2}",
         "Hm: [TOOL_CALLS]f[ARGS]{\"n\": 2}"},
        {SKV_CALLS_HERMES, false,
         "\xff<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 2}}\n</tool_call>",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 2}}\n</tool_call>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_reply_rules rules = {.format = {cases[i].calls, false},
                                 .may_talk = cases[i].may_talk,
                                 .tools_json = tools,
                                 .n_tools_json = strlen(tools),
                                 .max_calls = 2,
                                 .special = special,
                                 .n_special = 3};
        for (int named = 1; named >= 0; named--) {
            char *text = NULL;
            size_t n = 0;
            skv_grammar *g = NULL;
            if (!named) rules.n_special = 0;
            assert_int_equal(skv_reply_grammar(&rules, &text, &n, NULL), SKV_OK);
            assert_int_equal(skv_grammar_compile(SKV_GRAMMAR_PARTS, text, n, NULL, &g, NULL),
                             SKV_OK);
            assert_int_equal(accepts(g, cases[i].fits), named);
            assert_int_equal(accepts(g, cases[i].spelt), !named);
            skv_grammar_free(g);
            skv_text_free(text);
        }
    }
}

/* Whether a grammar that waits behind a thought accepts a text. */
static bool accepts_behind(const skv_reply_rules *rules, skv_grammar_kind kind, const char *grammar,
                           const char *answer)
{
    skv_grammar_source source = {.kind = kind, .text = {grammar, strlen(grammar)}};
    char *lead = NULL;
    skv_grammar *g = NULL;
    skv_error err = {0};
    assert_int_equal(skv_reply_thought_grammar(rules, &lead, &source.lead.n, NULL), SKV_OK);
    source.lead.text = lead;
    if (skv_grammar_compile_behind(&source, NULL, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    const bool ok = accepts(g, answer);
    skv_grammar_free(g);
    skv_text_free(lead);
    return ok;
}

/* Every kind of grammar waits for the end of a thought, spelt or a token of its own. */
static void test_grammars_behind_thoughts(void **state)
{
    (void)state;
    static const struct {
        skv_grammar_kind kind;
        const char *grammar, *fits;
    } cases[] = {
        {SKV_GRAMMAR_JSON_OBJECT, "", "{\"a\": [1]}"},
        {SKV_GRAMMAR_JSON_SCHEMA, "{\"$defs\":{\"a\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a\"}",
         "null"},
        {SKV_GRAMMAR_REGEX, "[0-9]{2}", "12"},
        {SKV_GRAMMAR_GBNF, "root ::= parts \"!\"\nparts ::= \"a\"*", "aa!"},
        {SKV_GRAMMAR_CHOICE, "[\"yes\",\"no\"]", "no"},
        {SKV_GRAMMAR_PARTS, "[\"a\",{\"schema\":{\"const\":1}}]", "a1"},
    };
    static const skv_thought_marks marks[] = {SKV_THOUGHTS_THINK, SKV_THOUGHTS_MISTRAL,
                                              SKV_THOUGHTS_SEED, SKV_THOUGHTS_MINIMAX,
                                              SKV_THOUGHTS_APRIEL};
    static const char *const ends[] = {"</think>", "[/THINK]", "</seed:think>", "</mm:think>",
                                       "[BEGIN FINAL RESPONSE]"};
    static const char *const blanks[] = {"", "\n", "\n\n", " "};
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const skv_grammar_kind kind = cases[i].kind;
        for (size_t k = 0; k < 16; k++) {
            const bool special = k / 4 % 2 == 1;
            const char *end = ends[k % 4];
            const skv_reply_rules rules = {
                .format = {SKV_CALLS_NONE, marks[k % 4]}, .special = &end, .n_special = special};
            const char *fits = cases[i].fits, *mark = special ? "\xff" : "";
            (void)snprintf(text, sizeof text, "Hm, { \"\xc3\xa4 <%s%s%s%s", mark, end,
                           blanks[k % 4], fits);
            assert_true(accepts_behind(&rules, kind, cases[i].grammar, text));
            (void)snprintf(text, sizeof text, "%s%s%s", mark, end, fits);
            assert_true(accepts_behind(&rules, kind, cases[i].grammar, text));
            (void)snprintf(text, sizeof text, "Hm%s%sx%s", mark, end, fits);
            assert_true(!accepts_behind(&rules, kind, cases[i].grammar, text));
            assert_true(!accepts_behind(&rules, kind, cases[i].grammar, fits));
            assert_true(!accepts_behind(&rules, kind, cases[i].grammar, "Hm"));
        }
    }
}

/* ---- the other published forms ---- */

/* Every form: the grammar of calls takes what the reader reads back, and no text in their place. */
static void test_grammars_of_forms(void **state)
{
    (void)state;
    for (int i = SKV_CALLS_NONE + 1; i < SKV_CALLS_COUNT; i++) {
        const skv_call_syntax calls = (skv_call_syntax)i;
        skv_grammar *g = grammar_of(calls, false, 2);
        assert_true(!accepts(g, ""));
        assert_true(!accepts(g, "Hello"));
        char text[2000];
        size_t n = 0;
        skv_matcher *m = NULL;
        /* Walks through the grammar: what is forced, else the first of a few bytes that fits. */
        assert_int_equal(skv_matcher_create(g, NULL, NULL, &m, NULL), SKV_OK);
        while (!skv_matcher_is_complete(m) && n < sizeof text - 300) {
            size_t k = skv_matcher_forced(m, text + n, 200);
            static const char bytes[] = "f12}]<\n)\"0: [(,/soct";
            if (k > 0) {
                assert_int_equal(skv_matcher_accept_bytes(m, text + n, k, NULL), SKV_OK);
            }
            for (size_t b = 0; k == 0 && b < sizeof bytes - 1; b++) {
                text[n] = bytes[b];
                k = skv_matcher_accept_bytes(m, text + n, 1, NULL) == SKV_OK;
            }
            if (k == 0) fail_msg("%s: %.*s", skv_call_syntax_name(calls), (int)n, text);
            n += k;
        }
        text[n] = 0;
        skv_matcher_free(m);
        skv_grammar_free(g);
        story s;
        const how h = {.calls = calls};
        tell_story(&h, text, cut_nowhere, 0, &s);
        if (!strstr(s.text.data, "C:") || !strstr(s.text.data, "|E:") ||
            strstr(s.text.data, "T:")) {
            fail_msg("%s: %s: %s", skv_call_syntax_name(calls), text, s.text.data);
        }
        skv_buf_release(&s.text);
        skv_call_syntax again = SKV_CALLS_NONE;
        assert_true(skv_call_syntax_parse(skv_call_syntax_name(calls), &again));
        assert_int_equal(again, calls);
    }
}

static void refuses(const char *text, const char *part)
{
    skv_grammar *g = NULL;
    skv_error err = {0};
    assert_true(skv_grammar_compile(SKV_GRAMMAR_PARTS, text, strlen(text), NULL, &g, &err) !=
                SKV_OK);
    if (!strstr(err.text, part)) fail_msg("%s: %s", text, err.text);
}

static void test_parts(void **state)
{
    (void)state;
    static const char text[] = "[\"a\",{\"any\":[\"b\",[]]},{\"repeat\":\"c\",\"min\":0,\"max\":3,"
                               "\"between\":\",\"},{\"repeat\":\"d\",\"min\":2,\"max\":2}]";
    skv_grammar *g = NULL;
    assert_int_equal(skv_grammar_compile(SKV_GRAMMAR_PARTS, text, sizeof text - 1, NULL, &g, NULL),
                     SKV_OK);
    assert_true(accepts(g, "abc,cdd"));
    assert_true(accepts(g, "add"));
    assert_true(accepts(g, "ac,c,cdd"));
    assert_true(!accepts(g, "ac,c,c,cdd"));
    assert_true(!accepts(g, "ad"));
    skv_grammar_free(g);
    refuses("{}", "any, schema, repeat");
    refuses("[3]", "neither");
    refuses("{\"any\":[]}", "any");
    refuses("{\"any\":3}", "any");
    refuses("{\"until\":\"\"}", "mark");
    refuses("{\"without\":\"aba\"}", "mark");
    refuses("{\"unlike\":\"\xc3\xa4\"}", "mark");
    refuses("{\"until\":3}", "mark");
    refuses("{\"repeat\":\"a\",\"min\":1}", "max");
    refuses("{\"repeat\":\"a\",\"min\":2,\"max\":1}", "min");
    refuses("[{\"schema\":{\"not\":{}}}]", "not");
    refuses("[{\"schema\":3}]", "schema");
    char deep[200];
    memset(deep, '[', 70);
    memset(deep + 70, ']', 70);
    deep[140] = 0;
    refuses(deep, "nested");
}

static void test_without_memory(void **state)
{
    (void)state;
    const skv_reply_options options = {
        .format = {SKV_CALLS_HERMES, true}, .tell = write_piece, .names = functions, .n_names = 2};
    for (size_t k = 1; k < 40; k++) {
        story s = {.last = -1};
        skv_reply_options o = options;
        skv_reply *reply = NULL;
        skv_buf_init(&s.text, 1 << 16);
        o.user = &s;
        alloc_fail_at(k);
        skv_status status = skv_reply_create(&o, &reply, NULL);
        static const char text[] = "<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}";
        for (size_t i = 0; status == SKV_OK && i < sizeof text - 1; i++) {
            status = skv_reply_push(reply, text + i, 1, NULL);
        }
        alloc_fail_at(0);
        assert_true(status == SKV_OK || status == SKV_MEMORY);
        skv_reply_free(reply);
        skv_buf_release(&s.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_many_blanks),
        cmocka_unit_test(test_calls_of_hermes),
        cmocka_unit_test(test_what_is_no_call),
        cmocka_unit_test(test_calls_of_llama3),
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_json_scan),
        cmocka_unit_test(test_formats_of_templates),
        cmocka_unit_test(test_names_of_formats),
        cmocka_unit_test(test_grammars_of_calls),
        cmocka_unit_test(test_grammars_of_talk),
        cmocka_unit_test(test_special_marks),
        cmocka_unit_test(test_grammars_behind_thoughts),
        cmocka_unit_test(test_grammars_of_forms),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
