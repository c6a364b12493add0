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

/* Marks around all calls, the parts of one, the keys of its object, the marks of a parameter. */
#define AROUND(opens, closes) .open = (opens), .close = (closes)
#define CALL(begins, separates, ends) .begin = (begins), .separator = (separates), .end = (ends)
#define KEYS(of_name, of_args) .name_key = (of_name), .args_key = (of_args)
#define PARAMETER(name, after_name, text, ends)                                                    \
    .key = (name), .behind_key = (after_name), .value = (text), .value_end = (ends)

/* The order is that of skv_call_syntax; where several rows fit a template, the first counts. */
static const skv_reply_form forms[SKV_CALLS_COUNT] = {
    [SKV_CALLS_NONE] = {.name = "none"},
    [SKV_CALLS_HARMONY] = {.name = "harmony",
                           .spelling = SKV_SPELL_MESSAGE,
                           .prefix = "to=functions.",
                           CALL(NULL, "<|message|>", "<|end|>"),
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
                           KEYS("name", "arguments"),
                           .signs = {"[TOOL_CALLS]["}},
    [SKV_CALLS_DSML_V4] = {.name = "deepseek-v4",
                           DSML_ROW("tool_calls"),
                           .signs = {"DSML", "tool_calls", "invoke name="}},
    [SKV_CALLS_DSML] = {.name = "deepseek-v3.2",
                        DSML_ROW("function_calls"),
                        .signs = {"DSML", "function_calls", "invoke name="}},
    [SKV_CALLS_DEEPSEEK] = {.name = "deepseek-r1",
                            .spelling = SKV_SPELL_NAMED,
                            AROUND(DEEPSEEK_CALLS, DEEPSEEK_CALLED),
                            CALL(DEEPSEEK_CALL, "\n```json\n", "```" DEEPSEEK_END),
                            .prefix = "function" DEEPSEEK_SEP,
                            .signs = {DEEPSEEK_CALLS, DEEPSEEK_SEP, "```json"}},
    [SKV_CALLS_DEEPSEEK_V31] = {.name = "deepseek-v3.1",
                                .spelling = SKV_SPELL_NAMED,
                                AROUND(DEEPSEEK_CALLS, DEEPSEEK_CALLED),
                                CALL(DEEPSEEK_CALL, DEEPSEEK_SEP, DEEPSEEK_END),
                                .signs = {DEEPSEEK_CALLS, DEEPSEEK_SEP}},
    [SKV_CALLS_KIMI] = {.name = "kimi-k2",
                        .spelling = SKV_SPELL_NAMED,
                        AROUND("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                        CALL("<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                             "<|tool_call_end|>"),
                        .prefix = "functions.",
                        .id = ":",
                        .own_id = SKV_ID_WHOLE,
                        .signs = {"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"}},
    [SKV_CALLS_KIMI_K3] = {.name = "kimi-k3",
                           .spelling = SKV_SPELL_XML,
                           AROUND("<|open|>tools<|sep|>",
                                  "<|close|>tools<|sep|><|close|>message<|sep|>"),
                           CALL("<|open|>call tool=\"", "\"<|sep|>", "<|close|>call<|sep|>"),
                           .id = "\" index=\"",
                           .typed = "type=\"",
                           .text_type = "type=\"string\"",
                           PARAMETER("<|open|>argument key=\"", "\" type=\"", "<|sep|>",
                                     "<|close|>argument<|sep|>"),
                           .tight = true,
                           .escaped = true,
                           .front = {"<|open|>response<|sep|>", "<|close|>response<|sep|>"},
                           .signs = {"<|open|>", "('call', [('tool'", "('argument', [('key'"}},
    [SKV_CALLS_SOLAR] = {.name = "solar",
                         .spelling = SKV_SPELL_NAMED,
                         .open = "<|tool_calls|>",
                         CALL("<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>"),
                         .prefix = "<|tool_call:name|>",
                         .own_id = SKV_ID_BEFORE,
                         .signs = {"<|tool_call:begin|>", "<|tool_call:args|>"}},
    [SKV_CALLS_QWEN_CODER] = {.name = "qwen3-coder",
                              .spelling = SKV_SPELL_XML,
                              AROUND("<tool_call>", "</tool_call>"),
                              CALL("<function=", ">", "</function>"),
                              PARAMETER("<parameter=", ">\n", ">", "</parameter>"),
                              .alone = true,
                              .signs = {"<function=", "<parameter=", "<tool_call>"}},
    [SKV_CALLS_SEED] = {.name = "seed",
                        .spelling = SKV_SPELL_XML,
                        AROUND("<seed:tool_call>", "</seed:tool_call>"),
                        CALL("<function=", ">", "</function>"),
                        PARAMETER("<parameter=", ">", ">", "</parameter>"),
                        .alone = true,
                        .signs = {"<function=", "<parameter=", "seed:tool_call"}},
    [SKV_CALLS_MINIMAX] = {.name = "minimax-m2",
                           .spelling = SKV_SPELL_XML,
                           AROUND("<minimax:tool_call>", "</minimax:tool_call>"),
                           CALL("<invoke name=\"", "\">", "</invoke>"),
                           PARAMETER("<parameter name=\"", "\">", "\">", "</parameter>"),
                           .signs = {"minimax:tool_call", "<invoke name=", "<parameter name="}},
    [SKV_CALLS_MUSE] = {.name = "muse",
                        .spelling = SKV_SPELL_XML,
                        AROUND("<atem:function_calls>", "</atem:function_calls>"),
                        CALL("<atem:invoke name=\"", "\">", "</atem:invoke>"),
                        PARAMETER("<atem:parameter name=\"", "\">", "\">", "</atem:parameter>"),
                        .address = &muse_address,
                        .signs = {"<atem:function_calls>",
                                  "<atem:invoke name=", "<atem:parameter name="}},
    [SKV_CALLS_HY3] = {.name = "hy3",
                       .spelling = SKV_SPELL_XML,
                       AROUND("<tool_calls:" HY, "</tool_calls:" HY),
                       CALL("<tool_call:" HY, "<tool_sep:" HY, "</tool_call:" HY),
                       PARAMETER("<arg_key:" HY, "</arg_key:" HY "\n<arg_value:" HY,
                                 "<arg_value:" HY, "</arg_value:" HY),
                       .signs = {"<tool_sep{}>", "<arg_key{}>", ":opensource"}},
    [SKV_CALLS_MINICPM] = {.name = "minicpm",
                           .spelling = SKV_SPELL_XML,
                           .open = "<function name=\"",
                           CALL(NULL, "\">", "</function>"),
                           PARAMETER("<param name=\"", "\">", "\">", "</param>"),
                           .alone = true,
                           .tight = true,
                           .cdata = true,
                           .signs = {"<function name=\"", "<param name=\"", "<![CDATA["}},
    [SKV_CALLS_GLM] = {.name = "glm",
                       .spelling = SKV_SPELL_XML,
                       .open = "<tool_call>",
                       CALL(NULL, "", "</tool_call>"),
                       PARAMETER("<arg_key>", "</arg_key>\n<arg_value>", "<arg_value>",
                                 "</arg_value>"),
                       .alone = true,
                       .signs = {"<tool_call>", "<arg_key>", "<arg_value>"}},
    [SKV_CALLS_FUNCTIONARY_V31] = {.name = "functionary-v3.1",
                                   .spelling = SKV_SPELL_NAMED,
                                   .open = "<function=",
                                   CALL(NULL, ">", "</function>"),
                                   .signs = {"<function=", "</function>", "<|eom_id|>"}},
    [SKV_CALLS_FUNCTIONARY_V32] = {.name = "functionary-v3.2",
                                   .spelling = SKV_SPELL_MESSAGE,
                                   CALL(NULL, "\n", ">>>"),
                                   .signs = {">>>all", "<|eot_id|>"}},
    [SKV_CALLS_FIREFUNCTION] = {.name = "firefunction",
                                .open = "functools",
                                .list = true,
                                KEYS("name", "arguments"),
                                .signs = {"functools["}},
    [SKV_CALLS_COHERE] = {.name = "cohere",
                          AROUND("<|START_ACTION|>", "<|END_ACTION|>"),
                          .list = true,
                          KEYS("tool_name", "parameters"),
                          .signs = {"<|START_ACTION|>", "<|END_ACTION|>", "tool_name"}},
    [SKV_CALLS_COMMAND_R] = {.name = "command-r",
                             AROUND("Action:\n```json", "```"),
                             .list = true,
                             KEYS("tool_name", "parameters"),
                             .signs = {"Action:", "```json", "tool_name"}},
    [SKV_CALLS_GRANITE] = {.name = "granite",
                           .open = "<|tool_call|>",
                           .list = true,
                           KEYS("name", "arguments"),
                           .signs = {"<|tool_call|>", "<|start_of_role|>"}},
    [SKV_CALLS_PHI4] = {.name = "phi4",
                        AROUND("<|tool_call|>", "<|/tool_call|>"),
                        .list = true,
                        KEYS("name", "arguments"),
                        .signs = {"<|tool|>", "<|/tool|>"}},
    [SKV_CALLS_APERTUS] = {.name = "apertus",
                           .spelling = SKV_SPELL_KEYED,
                           AROUND("<|tools_prefix|>", "<|tools_suffix|>"),
                           .list = true,
                           .signs = {"<|tools_prefix|>", "<|tools_suffix|>"}},
    [SKV_CALLS_APRIEL] = {.name = "apriel",
                          AROUND("<tool_calls>", "</tool_calls>"),
                          .list = true,
                          KEYS("name", "arguments"),
                          .signs = {"<tool_calls>[", "</tool_calls>"}},
    [SKV_CALLS_MINIMAX_M1] = {.name = "minimax-m1",
                              AROUND("<tool_calls>", "</tool_calls>"),
                              KEYS("name", "arguments"),
                              .signs = {"<tool_calls>", "</tool_calls>",
                                        "<beginning_of_sentence>"}},
    [SKV_CALLS_NEMOTRON] = {.name = "nemotron",
                            AROUND("<TOOLCALL>", "</TOOLCALL>"),
                            .list = true,
                            KEYS("name", "arguments"),
                            .signs = {"<TOOLCALL>[", "</TOOLCALL>"}},
    [SKV_CALLS_GIGACHAT31] = {.name = "gigachat-3.1",
                              .open = "<|function_call|>",
                              KEYS("name", "arguments"),
                              .signs = {"<|function_call|>", "<|role_sep|>"}},
    [SKV_CALLS_GIGACHAT] = {.name = "gigachat",
                            .open = "<|message_sep|>\n\nfunction call<|role_sep|>\n",
                            KEYS("name", "arguments"),
                            .signs = {"function call", "<|role_sep|>"}},
    [SKV_CALLS_LFM2] = {.name = "lfm2",
                        .spelling = SKV_SPELL_PYTHON,
                        AROUND("<|tool_call_start|>", "<|tool_call_end|>"),
                        .list = true,
                        .signs = {"<|im_start|>", "List of tools: "}},
    [SKV_CALLS_HERMES] = {.name = "hermes",
                          .open = "<tool_call>",
                          .end = "</tool_call>",
                          KEYS("name", "arguments"),
                          .signs = {"<tool_call>", "</tool_call>", "\"arguments\": "}},
    [SKV_CALLS_LLAMA3] = {.name = "llama3",
                          .begin = "<|python_tag|>",
                          .between = ";",
                          KEYS("name", "parameters"),
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
