/* The table of reply_form.h. */
#include "text/reply_form.h"

#include <string.h>

#include "text/json_scan.h"

#define DEEPSEEK_CALLS "<｜tool▁calls▁begin｜>"
#define DEEPSEEK_CALLED "<｜tool▁calls▁end｜>"
#define DEEPSEEK_CALL "<｜tool▁call▁begin｜>"
#define DEEPSEEK_END "<｜tool▁call▁end｜>"
#define DEEPSEEK_SEP "<｜tool▁sep｜>"

/* DeepSeek's markup of 2025 and later; V3.2 and V4 differ in the name of the outer mark. */
#define DSML_ROW(outer)                                                                            \
    .spelling = SKV_SPELL_XML, .open = "<｜DSML｜" outer ">", .close = "</｜DSML｜" outer ">",     \
    .begin = "<｜DSML｜invoke name=\"", .separator = "\">", .end = "</｜DSML｜invoke>",            \
    .typed = "string=\"", .text_type = "string=\"true\"", .behind_key = "\" string=\"",            \
    .key = "<｜DSML｜parameter name=\"", .value = ">", .value_end = "</｜DSML｜parameter>"

/* Every mark of Tencent's has this word at its end. */
#define HY "opensource>"

static const skv_reply_address muse_address = {
    .turn_end = "<|eom|>", .turn_begin = "<|start|>assistant", .to = "to=", .end = "<|message|>"};

/* The order is that of skv_call_syntax; where several rows fit a template, the first counts. */
static const skv_reply_form forms[SKV_CALLS_COUNT] = {
    [SKV_CALLS_NONE] = {.name = "none"},
    [SKV_CALLS_HARMONY] = {.name = "harmony",
                           .spelling = SKV_SPELL_MESSAGE,
                           .prefix = "to=functions.",
                           .separator = "<|message|>",
                           .end = "<|end|>",
                           .close = "<|call|>",
                           .signs = {"<|channel|>commentary", "<|message|>", "functions."}},
    [SKV_CALLS_GEMMA4] = {.name = "gemma4",
                          .spelling = SKV_SPELL_GEMMA,
                          .open = "<|tool_call>",
                          .prefix = "call:",
                          .end = "<tool_call|>",
                          .signs = {"<|tool_call>call:", "<tool_call|>"}},
    [SKV_CALLS_MISTRAL_ID] = {.name = "mistral-id",
                              .spelling = SKV_SPELL_NAMED,
                              .open = "[TOOL_CALLS]",
                              .id = "[CALL_ID]",
                              .own_id = SKV_ID_BEHIND,
                              .separator = "[ARGS]",
                              .signs = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}},
    [SKV_CALLS_MISTRAL_ARGS] = {.name = "mistral-args",
                                .spelling = SKV_SPELL_NAMED,
                                .open = "[TOOL_CALLS]",
                                .separator = "[ARGS]",
                                .signs = {"[TOOL_CALLS]", "[ARGS]"}},
    [SKV_CALLS_MISTRAL] = {.name = "mistral",
                           .open = "[TOOL_CALLS]",
                           .own_id = SKV_ID_MEMBER,
                           .list = true,
                           .name_key = "name",
                           .args_key = "arguments",
                           .signs = {"[TOOL_CALLS]["}},
    [SKV_CALLS_DSML_V4] = {.name = "deepseek-v4",
                           DSML_ROW("tool_calls"),
                           .signs = {"DSML", "tool_calls", "invoke name="}},
    [SKV_CALLS_DSML] = {.name = "deepseek-v3.2",
                        DSML_ROW("function_calls"),
                        .signs = {"DSML", "function_calls", "invoke name="}},
    [SKV_CALLS_DEEPSEEK] = {.name = "deepseek-r1",
                            .spelling = SKV_SPELL_NAMED,
                            .open = DEEPSEEK_CALLS,
                            .close = DEEPSEEK_CALLED,
                            .begin = DEEPSEEK_CALL,
                            .prefix = "function" DEEPSEEK_SEP,
                            .separator = "\n```json\n",
                            .end = "```" DEEPSEEK_END,
                            .signs = {DEEPSEEK_CALLS, DEEPSEEK_SEP, "```json"}},
    [SKV_CALLS_DEEPSEEK_V31] = {.name = "deepseek-v3.1",
                                .spelling = SKV_SPELL_NAMED,
                                .open = DEEPSEEK_CALLS,
                                .close = DEEPSEEK_CALLED,
                                .begin = DEEPSEEK_CALL,
                                .separator = DEEPSEEK_SEP,
                                .end = DEEPSEEK_END,
                                .signs = {DEEPSEEK_CALLS, DEEPSEEK_SEP}},
    [SKV_CALLS_KIMI] = {.name = "kimi-k2",
                        .spelling = SKV_SPELL_NAMED,
                        .open = "<|tool_calls_section_begin|>",
                        .close = "<|tool_calls_section_end|>",
                        .begin = "<|tool_call_begin|>",
                        .prefix = "functions.",
                        .id = ":",
                        .own_id = SKV_ID_WHOLE,
                        .separator = "<|tool_call_argument_begin|>",
                        .end = "<|tool_call_end|>",
                        .signs = {"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"}},
    [SKV_CALLS_KIMI_K3] = {.name = "kimi-k3",
                           .spelling = SKV_SPELL_XML,
                           .open = "<|open|>tools<|sep|>",
                           .close = "<|close|>tools<|sep|><|close|>message<|sep|>",
                           .begin = "<|open|>call tool=\"",
                           .id = "\" index=\"",
                           .separator = "\"<|sep|>",
                           .end = "<|close|>call<|sep|>",
                           .typed = "type=\"",
                           .text_type = "type=\"string\"",
                           .key = "<|open|>argument key=\"",
                           .behind_key = "\" type=\"",
                           .value = "<|sep|>",
                           .value_end = "<|close|>argument<|sep|>",
                           .tight = true,
                           .escaped = true,
                           .front = {"<|open|>response<|sep|>", "<|close|>response<|sep|>"},
                           .signs = {"<|open|>", "('call', [('tool'", "('argument', [('key'"}},
    [SKV_CALLS_SOLAR] = {.name = "solar",
                         .spelling = SKV_SPELL_NAMED,
                         .open = "<|tool_calls|>",
                         .begin = "<|tool_call:begin|>",
                         .prefix = "<|tool_call:name|>",
                         .own_id = SKV_ID_BEFORE,
                         .separator = "<|tool_call:args|>",
                         .end = "<|tool_call:end|>",
                         .signs = {"<|tool_call:begin|>", "<|tool_call:args|>"}},
    [SKV_CALLS_QWEN_CODER] = {.name = "qwen3-coder",
                              .spelling = SKV_SPELL_XML,
                              .open = "<tool_call>",
                              .close = "</tool_call>",
                              .begin = "<function=",
                              .separator = ">",
                              .end = "</function>",
                              .key = "<parameter=",
                              .value = ">",
                              .value_end = "</parameter>",
                              .behind_key = ">\n",
                              .alone = true,
                              .signs = {"<function=", "<parameter=", "<tool_call>"}},
    [SKV_CALLS_SEED] = {.name = "seed",
                        .spelling = SKV_SPELL_XML,
                        .open = "<seed:tool_call>",
                        .close = "</seed:tool_call>",
                        .begin = "<function=",
                        .separator = ">",
                        .end = "</function>",
                        .key = "<parameter=",
                        .value = ">",
                        .value_end = "</parameter>",
                        .behind_key = ">",
                        .alone = true,
                        .signs = {"<function=", "<parameter=", "seed:tool_call"}},
    [SKV_CALLS_MINIMAX] = {.name = "minimax-m2",
                           .spelling = SKV_SPELL_XML,
                           .open = "<minimax:tool_call>",
                           .close = "</minimax:tool_call>",
                           .begin = "<invoke name=\"",
                           .separator = "\">",
                           .end = "</invoke>",
                           .key = "<parameter name=\"",
                           .value = "\">",
                           .value_end = "</parameter>",
                           .behind_key = "\">",
                           .signs = {"minimax:tool_call", "<invoke name=", "<parameter name="}},
    [SKV_CALLS_MUSE] = {.name = "muse",
                        .spelling = SKV_SPELL_XML,
                        .open = "<atem:function_calls>",
                        .close = "</atem:function_calls>",
                        .begin = "<atem:invoke name=\"",
                        .separator = "\">",
                        .end = "</atem:invoke>",
                        .key = "<atem:parameter name=\"",
                        .value = "\">",
                        .value_end = "</atem:parameter>",
                        .behind_key = "\">",
                        .address = &muse_address,
                        .signs = {"<atem:function_calls>",
                                  "<atem:invoke name=", "<atem:parameter name="}},
    [SKV_CALLS_HY3] = {.name = "hy3",
                       .spelling = SKV_SPELL_XML,
                       .open = "<tool_calls:" HY,
                       .close = "</tool_calls:" HY,
                       .begin = "<tool_call:" HY,
                       .separator = "<tool_sep:" HY,
                       .end = "</tool_call:" HY,
                       .key = "<arg_key:" HY,
                       .value = "<arg_value:" HY,
                       .value_end = "</arg_value:" HY,
                       .behind_key = "</arg_key:" HY "\n<arg_value:" HY,
                       .signs = {"<tool_sep{}>", "<arg_key{}>", ":opensource"}},
    [SKV_CALLS_MINICPM] = {.name = "minicpm",
                           .spelling = SKV_SPELL_XML,
                           .open = "<function name=\"",
                           .separator = "\">",
                           .end = "</function>",
                           .key = "<param name=\"",
                           .value = "\">",
                           .value_end = "</param>",
                           .behind_key = "\">",
                           .alone = true,
                           .tight = true,
                           .cdata = true,
                           .signs = {"<function name=\"", "<param name=\"", "<![CDATA["}},
    [SKV_CALLS_GLM] = {.name = "glm",
                       .spelling = SKV_SPELL_XML,
                       .open = "<tool_call>",
                       .separator = "",
                       .end = "</tool_call>",
                       .key = "<arg_key>",
                       .value = "<arg_value>",
                       .value_end = "</arg_value>",
                       .behind_key = "</arg_key>\n<arg_value>",
                       .alone = true,
                       .signs = {"<tool_call>", "<arg_key>", "<arg_value>"}},
    [SKV_CALLS_FUNCTIONARY_V31] = {.name = "functionary-v3.1",
                                   .spelling = SKV_SPELL_NAMED,
                                   .open = "<function=",
                                   .separator = ">",
                                   .end = "</function>",
                                   .signs = {"<function=", "</function>", "<|eom_id|>"}},
    [SKV_CALLS_FUNCTIONARY_V32] = {.name = "functionary-v3.2",
                                   .spelling = SKV_SPELL_MESSAGE,
                                   .separator = "\n",
                                   .end = ">>>",
                                   .signs = {">>>all", "<|eot_id|>"}},
    [SKV_CALLS_FIREFUNCTION] = {.name = "firefunction",
                                .open = "functools",
                                .list = true,
                                .name_key = "name",
                                .args_key = "arguments",
                                .signs = {"functools["}},
    [SKV_CALLS_COHERE] = {.name = "cohere",
                          .open = "<|START_ACTION|>",
                          .list = true,
                          .close = "<|END_ACTION|>",
                          .name_key = "tool_name",
                          .args_key = "parameters",
                          .signs = {"<|START_ACTION|>", "<|END_ACTION|>", "tool_name"}},
    [SKV_CALLS_COMMAND_R] = {.name = "command-r",
                             .open = "Action:\n```json",
                             .list = true,
                             .close = "```",
                             .name_key = "tool_name",
                             .args_key = "parameters",
                             .signs = {"Action:", "```json", "tool_name"}},
    [SKV_CALLS_GRANITE] = {.name = "granite",
                           .open = "<|tool_call|>",
                           .list = true,
                           .name_key = "name",
                           .args_key = "arguments",
                           .signs = {"<|tool_call|>", "<|start_of_role|>"}},
    [SKV_CALLS_PHI4] = {.name = "phi4",
                        .open = "<|tool_call|>",
                        .list = true,
                        .close = "<|/tool_call|>",
                        .name_key = "name",
                        .args_key = "arguments",
                        .signs = {"<|tool|>", "<|/tool|>"}},
    [SKV_CALLS_APERTUS] = {.name = "apertus",
                           .spelling = SKV_SPELL_KEYED,
                           .open = "<|tools_prefix|>",
                           .list = true,
                           .close = "<|tools_suffix|>",
                           .signs = {"<|tools_prefix|>", "<|tools_suffix|>"}},
    [SKV_CALLS_APRIEL] = {.name = "apriel",
                          .open = "<tool_calls>",
                          .list = true,
                          .close = "</tool_calls>",
                          .name_key = "name",
                          .args_key = "arguments",
                          .signs = {"<tool_calls>[", "</tool_calls>"}},
    [SKV_CALLS_MINIMAX_M1] = {.name = "minimax-m1",
                              .open = "<tool_calls>",
                              .close = "</tool_calls>",
                              .name_key = "name",
                              .args_key = "arguments",
                              .signs = {"<tool_calls>", "</tool_calls>",
                                        "<beginning_of_sentence>"}},
    [SKV_CALLS_NEMOTRON] = {.name = "nemotron",
                            .open = "<TOOLCALL>",
                            .list = true,
                            .close = "</TOOLCALL>",
                            .name_key = "name",
                            .args_key = "arguments",
                            .signs = {"<TOOLCALL>[", "</TOOLCALL>"}},
    [SKV_CALLS_GIGACHAT31] = {.name = "gigachat-3.1",
                              .open = "<|function_call|>",
                              .name_key = "name",
                              .args_key = "arguments",
                              .signs = {"<|function_call|>", "<|role_sep|>"}},
    [SKV_CALLS_GIGACHAT] = {.name = "gigachat",
                            .open = "<|message_sep|>\n\nfunction call<|role_sep|>\n",
                            .name_key = "name",
                            .args_key = "arguments",
                            .signs = {"function call", "<|role_sep|>"}},
    [SKV_CALLS_LFM2] = {.name = "lfm2",
                        .spelling = SKV_SPELL_PYTHON,
                        .open = "<|tool_call_start|>",
                        .list = true,
                        .close = "<|tool_call_end|>",
                        .signs = {"<|im_start|>", "List of tools: "}},
    [SKV_CALLS_HERMES] = {.name = "hermes",
                          .open = "<tool_call>",
                          .end = "</tool_call>",
                          .name_key = "name",
                          .args_key = "arguments",
                          .signs = {"<tool_call>", "</tool_call>", "\"arguments\": "}},
    [SKV_CALLS_LLAMA3] = {.name = "llama3",
                          .begin = "<|python_tag|>",
                          .between = ";",
                          .name_key = "name",
                          .args_key = "parameters",
                          .signs = {"<|eot_id|>", "{\"name\": ", "\"parameters\": "}},
};

static const skv_thought_form thoughts[SKV_THOUGHTS_COUNT] = {
    [SKV_THOUGHTS_THINK] = {"<think>", "</think>"},
    [SKV_THOUGHTS_GEMMA4] = {"<|channel>thought", "<channel|>"},
    [SKV_THOUGHTS_MISTRAL] = {"[THINK]", "[/THINK]"},
    [SKV_THOUGHTS_COHERE] = {"<|START_THINKING|>", "<|END_THINKING|>"},
    [SKV_THOUGHTS_SEED] = {"<seed:think>", "</seed:think>"},
    [SKV_THOUGHTS_MINIMAX] = {"<mm:think>", "</mm:think>"},
    [SKV_THOUGHTS_KIMI_K3] = {"<|open|>think<|sep|>", "<|close|>think<|sep|>"},
    [SKV_THOUGHTS_SOLAR] = {"<|think|>", "<|end|>"},
    [SKV_THOUGHTS_MUSE] = {"to=self<|message|>", "<|eom|>"},
    [SKV_THOUGHTS_HY3] = {"<think:" HY, "</think:" HY},
    [SKV_THOUGHTS_APRIEL] = {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
};

const skv_reply_form *skv_reply_form_at(skv_call_syntax syntax)
{
    return syntax == SKV_CALLS_NONE ? NULL : &forms[syntax];
}

bool skv_reply_form_is_harmony(const skv_reply_form *form)
{
    return form && form->spelling == SKV_SPELL_MESSAGE && form->prefix;
}

bool skv_reply_form_has_objects(const skv_reply_form *form)
{
    return form->spelling == SKV_SPELL_OBJECT && form->close && !form->list && !form->end;
}

bool skv_call_syntax_lacks_types(skv_call_syntax syntax)
{
    const skv_reply_form *form = skv_reply_form_at(syntax);
    return form && form->spelling == SKV_SPELL_XML;
}

const skv_thought_form *skv_thought_form_at(skv_thought_marks marks)
{
    return &thoughts[marks];
}

const char *skv_reply_name_in(const skv_reply_form *form, const char *text, size_t n,
                              size_t *n_name)
{
    const char *end = text + n;
    size_t k = 0;
    if (form->prefix) {
        const size_t n_prefix = strlen(form->prefix);
        while (text < end &&
               ((size_t)(end - text) < n_prefix || memcmp(text, form->prefix, n_prefix) != 0)) {
            text++;
        }
        if (text == end) return NULL;
        text += n_prefix;
    }
    while (text < end && skv_json_is_blank(*text)) text++;
    while (text + k < end && !skv_json_is_blank(text[k]) && text[k] != '<') {
        const size_t n_left = (size_t)(end - text) - k;
        const size_t n_id = form->id ? strlen(form->id) : 0;
        if (n_id > 0 && n_left >= n_id && memcmp(text + k, form->id, n_id) == 0) break;
        k++;
    }
    *n_name = k;
    return text;
}
