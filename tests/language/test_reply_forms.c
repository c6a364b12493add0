/* Replies in each published form, and what templates write around answers: how they are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "reply_check.h"
#include "skv/reply.h"

/* What models write, as their templates and cards show it: {"n": 3, "s": "<b>"} to f, {} to
 * get_weather. */
static const struct {
    skv_call_syntax calls;
    skv_thought_marks thinks;
    const char *text, *want;
} published[] = {
    {SKV_CALLS_HARMONY, SKV_THOUGHTS_HARMONY,
     "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"n\": 3}<|call|>",
     "R:Need it.|C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_HARMONY, SKV_THOUGHTS_HARMONY,
     " to=functions.f<|channel|>commentary json<|message|>{\"n\": 3}<|call|>",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_HARMONY, SKV_THOUGHTS_HARMONY,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Yes.\n",
     "R:a|T:Yes.\n"},
    {SKV_CALLS_HARMONY, SKV_THOUGHTS_HARMONY,
     "<|channel|>commentary to=functions.other<|message|>{}",
     "T:<|channel|>commentary to=functions.other<|message|>{}"},
    {SKV_CALLS_HARMONY, SKV_THOUGHTS_HARMONY, "{\"a\": 1}", "T:{\"a\": 1}"},
    {SKV_CALLS_GEMMA4, SKV_THOUGHTS_GEMMA4,
     "<|channel>thought\nHm\n<channel|><|tool_call>call:f{n:3,s:<|\"|>a\"}<|\"|>,o:{a:[1,true],b:"
     "{}}}<tool_call|><|tool_call>call:get_weather{}<tool_call|>",
     "R:Hm|C:f|A:{\"n\":3,\"s\":\"a\\\"}\",\"o\":{\"a\":[1,true],\"b\":{}}}|E:|C:get_weather|A:{}"
     "|E:"},
    {SKV_CALLS_GEMMA4, 0, "a <|tool_call>call:g{n:3}<tool_call|> b",
     "T:a <|tool_call>call:g{n:3}<tool_call|> b"},
    {SKV_CALLS_GEMMA4, 0, "<|tool_call>call:f{n:3", "T:<|tool_call>call:f{n:3"},
    {SKV_CALLS_MISTRAL, 0,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 3}, \"id\": \"abcdefgh1\"}, "
     "{\"name\": \"get_weather\", \"arguments\": {}}]",
     "C:f|I:abcdefgh1|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MISTRAL, 0, "[TOOL_CALLS][{\"name\": \"g\"}]", "T:[TOOL_CALLS][{\"name\": \"g\"}]"},
    {SKV_CALLS_MISTRAL_ARGS, SKV_THOUGHTS_MISTRAL,
     "[THINK]Hm[/THINK]Well.[TOOL_CALLS]f[ARGS]{\"n\": 3}[TOOL_CALLS]get_weather[ARGS]{}",
     "R:Hm|T:Well.|C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]g[ARGS]{} x", "T:[TOOL_CALLS]g[ARGS]{} x"},
    {SKV_CALLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]f", "T:[TOOL_CALLS]f"},
    {SKV_CALLS_MISTRAL_ID, 0, "[TOOL_CALLS]f[CALL_ID]abcdefgh1[ARGS]{\"n\": 3}",
     "C:f|I:abcdefgh1|A:{\"n\": 3}|E:"},
    {SKV_CALLS_DEEPSEEK, SKV_THOUGHTS_THINK,
     "<think>x</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
     "{\"n\": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
     "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "R:x|C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_DEEPSEEK_V31, 0,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 3}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_DSML_V4, 0,
     "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">3 \"x\"</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">3"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n"
     "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "C:f|A:{\"s\":\"3 \\\"x\\\"\",\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_KIMI, 0,
     "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"n\": 3}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "T:Ok|C:f|I:functions.f:0|A:{\"n\": 3}|E:|C:get_weather|I:functions.get_weather:1|A:{}|E:"},
    {SKV_CALLS_KIMI_K3, 0,
     "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument "
     "key=\"s&amp;t\" "
     "type=\"string\"<|sep|>3 "
     "\"x\"\n<|close|>argument<|sep|>?<|close|>argument<|sep|><|open|>argument "
     "key=\"n\" type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
     "tool=\"get_weather\" "
     "index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message"
     "<|sep|>",
     "C:f|A:{\"s&t\":\"3 "
     "\\\"x\\\"\\n<|close|>argument<|sep|>?\",\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_KIMI_K3, 0, "a<|open|>tools<|sep|><|open|>call tool=\"f\"",
     "T:a<|open|>tools<|sep|><|open|>call tool=\"f\""},
    {SKV_CALLS_SOLAR, 0,
     "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>f<|tool_call:args|>{\"n\": 3}"
     "<|tool_call:end|>",
     "C:f|I:a1|A:{\"n\": 3}|E:"},
    {SKV_CALLS_QWEN_CODER, SKV_THOUGHTS_THINK,
     "<tool_call>\n<function=f>\n<parameter=s>\na\n</function>\n</parameter>\n<parameter=n>\n3\n"
     "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n</function>\n"
     "</tool_call>",
     "C:f|A:{\"s\":\"a\\n</function>\",\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_QWEN_CODER, 0, "<tool_call>\n<function=f>\n<parameter=s>\nx",
     "T:<tool_call>\n<function=f>\n<parameter=s>\nx"},
    {SKV_CALLS_SEED, SKV_THOUGHTS_SEED,
     "<seed:think>a</seed:think><seed:tool_call>\n<function=f>\n<parameter=o>{'a': [1, None]}"
     "</parameter>\n</function>\n</seed:tool_call>",
     "R:a|C:f|A:{\"o\":{\"a\":[1,null]}}|E:"},
    {SKV_CALLS_NONE, SKV_THOUGHTS_MINIMAX, "<mm:think>a</mm:think>b", "R:a|T:b"},
    {SKV_CALLS_NONE, SKV_THOUGHTS_MINIMAX, "</mm:think>b", "T:b"},
    {SKV_CALLS_MINIMAX, 0,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">3</parameter>\n</invoke>\n"
     "<invoke name=\"get_weather\">\n</invoke>\n</minimax:tool_call>",
     "C:f|A:{\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MUSE, SKV_THOUGHTS_MUSE,
     " to=self<|message|>hm<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n"
     "<atem:invoke name=\"f\">\n<atem:parameter name=\"s\">a\n</atem:parameter>\n</atem:invoke>\n"
     "</atem:function_calls><|eom|><|start|>assistant to=get_weather<|message|>"
     "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n</atem:invoke>\n"
     "</atem:function_calls>",
     "R:hm|C:f|A:{\"s\":\"a\\n\"}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MUSE, SKV_THOUGHTS_MUSE, " to=user<|message|>Well <b> <|eom|x",
     "T:Well <b> <|eom|x"},
    {SKV_CALLS_MUSE, SKV_THOUGHTS_MUSE,
     " to=user<|message|>I look.<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n"
     "<atem:invoke name=\"f\">\n</atem:invoke>\n</atem:function_calls>",
     "T:I look.|C:f|A:{}|E:"},
    {SKV_CALLS_MUSE, 0, "to the end", "T:to the end"},
    {SKV_CALLS_MINICPM, 0,
     "<function name=\"f\"><param name=\"s\"><![CDATA[a\n</param> <b>]]></param><param name=\"n\">3"
     "</param></function>\n<function name=\"get_weather\"></function>",
     "C:f|A:{\"s\":\"a\\n</param> <b>\",\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_HY3, SKV_THOUGHTS_HY3,
     "<think:opensource>a</think:opensource>b<tool_calls:opensource>\n<tool_call:opensource>f"
     "<tool_sep:opensource>\n<arg_key:opensource>s</arg_key:opensource>\n<arg_value:opensource>x"
     "</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>get_weather"
     "<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
     "R:a|T:b|C:f|A:{\"s\":\"x\"}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MINIMAX_M1, 0,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"n\": 3}}\n{\"name\": \"get_weather\", "
     "\"arguments\": {}}\n</tool_calls>",
     "C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_MINIMAX_M1, 0, "<tool_calls>\n{\"name\": \"g\"}\n</tool_calls>",
     "T:<tool_calls>\n{\"name\": \"g\"}\n</tool_calls>"},
    {SKV_CALLS_GLM, 0,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call><tool_call>get_weather</tool_call>",
     "C:f|A:{\"s\":\"a b\",\"n\":3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_FUNCTIONARY_V31, 0,
     "<function=f>{\"n\": 3}</function><function=get_weather>{}</function>",
     "C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_FUNCTIONARY_V32, 0, "all\nSure.>>>f\n{\"n\": 3}>>>get_weather\n{}",
     "T:Sure.|C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_FIREFUNCTION, 0, " functools[{\"name\": \"f\", \"arguments\": {\"n\": 3}}]",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_COHERE, SKV_THOUGHTS_COHERE,
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"f\", \"parameters\": {\"n\": 3}}\n]<|END_ACTION|>",
     "R:a|C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_COMMAND_R, 0,
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"n\": 3}"
     "\n    }\n]```",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_GRANITE, 0, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 3}}]",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_PHI4, 0, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 3}}]<|/tool_call|>",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_APERTUS, 0,
     "<|tools_prefix|>[{\"f\": {\"n\": 3}}, {\"get_weather\": {}}]<|tools_suffix|>",
     "C:f|A:{\"n\": 3}|E:|C:get_weather|A:{}|E:"},
    {SKV_CALLS_GIGACHAT31, 0, "<|function_call|>{\"name\": \"f\", \"arguments\": {\"n\": 3}}",
     "C:f|A:{\"n\": 3}|E:"},
    {SKV_CALLS_LFM2, 0,
     "<|tool_call_start|>[f(s='it\\'s (', n=3, t=True, o={\"a\": (1, 2)}), get_weather()]"
     "<|tool_call_end|>Done",
     "C:f|A:{\"s\":\"it's (\",\"n\":3,\"t\":true,\"o\":{\"a\":[1,2]}}|E:|C:get_weather|A:{}|E:|T:"
     "Done"},
};

static void test_published_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const how h = {.calls = published[i].calls, .thinks = published[i].thinks};
        check(h, published[i].text, published[i].want);
    }
}

/* What templates write around the text of an answer is none of it. */
static void test_frames(void **state)
{
    (void)state;
    const how reka = {.frame = {.lead = " "}};
    const how muse = {
        .thinks = SKV_THOUGHTS_MUSE,
        .frame = {" to=user<|message|>", "<|start|>assistant to=user<|message|>", NULL}};
    const how solar = {.calls = SKV_CALLS_SOLAR,
                       .thinks = SKV_THOUGHTS_SOLAR,
                       .frame = {"<|content|>", "<|begin|>assistant<|content|>", "<|end|>"}};
    const how kimi = {.calls = SKV_CALLS_HERMES,
                      .thinks = SKV_THOUGHTS_KIMI_K3,
                      .in_thought = true,
                      .frame = {"<r>", "<r>", "<|close|>r<|close|>m"}};
    check(reka, " Hi", "T:Hi");
    check(reka, "Hi ", "T:Hi ");
    check(reka, "  x", "T: x");
    check(muse, " to=user<|message|>Hi", "T:Hi");
    check(muse, " to=us", "T: to=us");
    check(muse, " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hi", "R:hm|T:Hi");
    check(solar, "<|content|>Hi <|endx<|end|>", "T:Hi <|endx");
    check(
        solar,
        "<|think|>hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>i1<|tool_call:name|>f"
        "<|tool_call:args|>{}<|tool_call:end|>",
        "R:hm|C:f|I:i1|A:{}|E:");
    check(kimi, "a<|close|>think<|sep|><r>Hi <b> <|close|>s<|close|>r", "R:a|T:Hi <b> <|close|>s");
    check(kimi,
          "a<|close|>think<|sep|><r>x<tool_call>{\"name\":\"f\"}</tool_call><|close|>r<|close|>m",
          "R:a|T:x|C:f|A:{}|E:");
    assert_int_equal(skv_reply_thought_marks("x <|think|>t<|end|>", "t"), SKV_THOUGHTS_NONE);
    assert_int_equal(skv_reply_thought_marks("x <|think|>\nqq\n<|end|>", "qq"), SKV_THOUGHTS_SOLAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_forms),
        cmocka_unit_test(test_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
