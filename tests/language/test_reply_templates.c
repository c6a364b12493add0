/*
 * Replies of published models: what a chat template writes for the calls of an earlier turn is read
 * back as those calls, the same however it is cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "reply_story.h"
#include "skv/text.h"

/* ---- calls as the templates themselves write them ---- */

static const char turns[] =
    "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"date_string\":\"\",\"datetime\":\"\","
    "\"functions\":\"[]\",\"add_generation_prompt\":true,\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"get_weather\",\"description\":\"W\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{}}}}],\"messages\":[{\"role\":\"user\",\"content\":\"Q?\"}";
static const char arguments[] =
    "{\"city\": \"Paris \\\"x\\\"\", \"days\": 3, \"flag\": true, \"o\": {\"a\": [1, 2]}}";

/* Renders a conversation; NULL: the template refuses it. */
static char *render_turns(const char *text, size_t n, const char *more, size_t *n_out)
{
    skv_buf vars;
    char *out = NULL;
    skv_buf_init(&vars, 1 << 16);
    skv_buf_printf(&vars, "%s%s]}", turns, more);
    const skv_render_input input = {.template_text = {text, n}, .vars = {vars.data, vars.size}};
    if (skv_render(&input, &out, n_out, NULL) != SKV_OK) out = NULL;
    skv_buf_release(&vars);
    return out;
}

static void squeeze(char *text)
{
    char *to = text;
    bool quoted = false;
    for (const char *at = text; *at; at++) {
        if (*at == '"' && (at == text || at[-1] != '\\')) quoted = !quoted;
        if (quoted || (*at != ' ' && *at != '\n')) *to++ = *at;
    }
    *to = 0;
}

/* Without the ids that models give calls. */
static void drop_ids(char *text)
{
    char *at;
    while ((at = strstr(text, "|I:"))) {
        const char *rest = strchr(at + 1, '|');
        memmove(at, rest, strlen(rest) + 1);
    }
}

/* Reads the calls of `whole` back, from the place where it leaves `prompt`. */
static void read_back(const char *name, skv_reply_format format, const char *prompt,
                      const char *whole, size_t n_calls)
{
    const char *marks[SKV_REPLY_MARKS_MAX];
    const skv_reply_format no_thoughts = {format.calls, SKV_THOUGHTS_NONE};
    const size_t n_marks = skv_reply_marks(no_thoughts, marks);
    size_t k = 0;
    while (prompt[k] && prompt[k] == whole[k]) k++;
    /* A mark of the call may begin like what stands in the prompt. */
    const char *from = whole + (k > 20 ? k - 20 : 0), *first = NULL;
    if (n_marks > 0) first = strstr(from, marks[0]);
    const bool messages = format.calls == SKV_CALLS_HARMONY;
    if (messages || !first || first > whole + k + 60) first = whole + k;
    how h = {.calls = format.calls};
    story s;
    char want[400], text[4000];
    snprintf(text, sizeof text, "%s", first);
    tell_story(&h, text, cut_nowhere, 0, &s);
    drop_ids(s.text.data);
    squeeze(s.text.data);
    snprintf(want, sizeof want, "C:get_weather|A:%s|E:", arguments);
    squeeze(want);
    const char *at = strstr(s.text.data, want);
    if (!at || (n_calls == 2 && !strstr(at + strlen(want), "C:get_weather|A:{}|E:"))) {
        fail_msg("%s: %s: \"%s\" is read as %s", name, skv_call_syntax_name(format.calls), text,
                 s.text.data);
    }
    for (size_t i = 1; i < strlen(text); i++) {
        story cut;
        tell_story(&h, text, cut_once, i, &cut);
        drop_ids(cut.text.data);
        squeeze(cut.text.data);
        assert_string_equal(cut.text.data, s.text.data);
        skv_buf_release(&cut.text);
    }
    skv_buf_release(&s.text);
}

/* False: the template writes no calls. */
static bool reads_back(const char *name, const char *text, size_t n)
{
    static const char call[] =
        "{\"id\":\"abcdefgh%d\",\"type\":\"function\",\"function\":{\"name\":"
        "\"get_weather\",\"arguments\":%s}}";
    const skv_reply_format format = skv_reply_format_of(text, n);
    size_t n_prompt = 0, n_whole = 0, n_calls = 2;
    char *prompt = render_turns(text, n, "", &n_prompt), *whole = NULL;
    for (; prompt && !whole && n_calls > 0; n_calls -= whole ? 0 : 1) {
        skv_buf more;
        skv_buf_init(&more, 1 << 12);
        skv_buf_text(&more, ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
        skv_buf_printf(&more, call, 1, arguments);
        if (n_calls == 2) skv_buf_byte(&more, ',');
        if (n_calls == 2) skv_buf_printf(&more, call, 2, "{}");
        skv_buf_printf(&more,
                       "]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"R\","
                       "\"name\":\"get_weather\"}%s",
                       n_calls == 2
                           ? ",{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh2\",\"content\":"
                             "\"R\",\"name\":\"get_weather\"}"
                           : "");
        skv_buf_byte(&more, '\0');
        whole = render_turns(text, n, more.data, &n_whole);
        skv_buf_release(&more);
    }
    const bool writes = whole && strstr(whole, "Paris") && format.calls != SKV_CALLS_NONE;
    if (writes) {
        /* gpt-oss's template writes the first call of a turn alone. */
        const bool one =
            format.calls == SKV_CALLS_HARMONY || !strstr(strstr(whole, "Paris"), "get_weather");
        read_back(name, format, prompt, whole, one ? 1 : n_calls);
    }
    skv_text_free(prompt);
    skv_text_free(whole);
    return writes;
}

static void test_templates_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {"Apertus-8B-Instruct",
                                        "Apriel-1.6-15b-Thinker-fixed",
                                        "Cohere2MoE",
                                        "CohereForAI-c4ai-command-r-plus-tool_use",
                                        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
                                        "GLM-4.6",
                                        "GLM-5.2",
                                        "GigaChat3-10B-A1.8B",
                                        "GigaChat3.1-10B-A1.8B",
                                        "Kimi-K2-Thinking",
                                        "LFM2-8B-A1B",
                                        "LFM2.5-Instruct",
                                        "Mistral-Small-3.2-24B-Instruct-2506",
                                        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
                                        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
                                        "Qwen-Qwen2.5-7B-Instruct",
                                        "Qwen-Qwen3-0.6B",
                                        "Qwen3-Coder",
                                        "Qwen3.5-4B",
                                        "StepFun3.5-Flash",
                                        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
                                        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                        "deepseek-ai-DeepSeek-V4",
                                        "fireworks-ai-llama-3-firefunction-v2",
                                        "google-gemma-2-2b-it",
                                        "ibm-granite-granite-3.3-2B-Instruct",
                                        "llama-cpp-deepseek-r1",
                                        "llama-cpp-rwkv-world",
                                        "meta-llama-Llama-3.1-8B-Instruct",
                                        "meta-llama-Llama-3.2-3B-Instruct",
                                        "meta-llama-Llama-3.3-70B-Instruct",
                                        "mistralai-Mistral-Nemo-Instruct-2407",
                                        "moonshotai-Kimi-K2",
                                        "openai-gpt-oss-120b",
                                        "unsloth-mistral-Devstral-Small-2507"};
    size_t n_back = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1024], *text = NULL;
        size_t n = 0;
        snprintf(path, sizeof path, "%s/templates/%s.jinja", SKV_TEST_ASSETS, names[i]);
        if (skv_file_read(path, 1 << 20, &text, &n, NULL) != SKV_OK) {
            print_message("templates of other models are absent: %s\n", path);
            skip();
        }
        const bool writes = reads_back(names[i], text, n);
        if (!writes) print_message("%s writes no calls\n", names[i]);
        n_back += writes ? 1 : 0;
        skv_text_free(text);
    }
    assert_true(n_back >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
