/* Formats of replies: which one a chat template teaches, and the grammar of their calls. */
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "skv/grammar.h"
#include "skv/reply.h"
#include "text/reply_call.h"

/* ---- from a template ---- */

static bool contains(const char *text, size_t n, const char *part)
{
    const size_t n_part = strlen(part);
    for (const char *at = text; at && n >= n_part;) {
        at = memchr(at, part[0], n - n_part + 1 - (size_t)(at - text));
        if (!at) return false;
        if (memcmp(at, part, n_part) == 0) return true;
        if ((size_t)(++at - text) > n - n_part) return false;
    }
    return false;
}

/*
 * The marks of a format stand in the template, since it writes the calls of earlier turns. Other
 * formats share some of them: Qwen3-Coder writes <tool_call><function=...>, GLM
 * <tool_call>name<arg_key>..., Firefunction " functools[".
 */
static skv_call_syntax calls_of(const char *text, size_t n)
{
    const bool marked = contains(text, n, SKV_MARK_CALL) && contains(text, n, SKV_MARK_CALLED);
    const bool other = contains(text, n, "<function=") || contains(text, n, "<arg_key>");
    if (marked && !other && contains(text, n, "\"arguments\": ")) return SKV_CALLS_HERMES;
    const bool llama3 = contains(text, n, "<|eot_id|>") && contains(text, n, "tool_calls") &&
                        contains(text, n, "{\"name\": ") && contains(text, n, "\"parameters\": ");
    return llama3 && !marked ? SKV_CALLS_LLAMA3 : SKV_CALLS_NONE;
}

skv_reply_format skv_reply_format_of(const char *template_text, size_t n)
{
    if (!template_text) return (skv_reply_format){SKV_CALLS_NONE, false};
    return (skv_reply_format){calls_of(template_text, n),
                              contains(template_text, n, SKV_MARK_THOUGHT)};
}

const char *const *skv_reply_marks(skv_reply_format format, size_t *n)
{
    static const char *const marks[] = {SKV_MARK_CALL, SKV_MARK_CALLED, SKV_MARK_THINK,
                                        SKV_MARK_THOUGHT};
    const bool calls = format.calls == SKV_CALLS_HERMES;
    *n = (calls ? 2u : 0) + (format.thinks ? 2u : 0);
    return calls ? marks : marks + 2;
}

bool skv_reply_prompt_thinks(const char *prompt, size_t n)
{
    const size_t n_mark = strlen(SKV_MARK_THINK);
    while (n > 0 && (prompt[n - 1] == '\n' || prompt[n - 1] == ' ')) n--;
    return n >= n_mark && memcmp(prompt + n - n_mark, SKV_MARK_THINK, n_mark) == 0;
}

static const char *const names[SKV_CALLS_COUNT] = {"none", "llama3", "hermes"};

const char *skv_call_syntax_name(skv_call_syntax syntax)
{
    return names[syntax];
}

bool skv_call_syntax_parse(const char *name, skv_call_syntax *out)
{
    for (int i = 0; i < SKV_CALLS_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (skv_call_syntax)i;
        return true;
    }
    return false;
}

/* ---- grammars ---- */

static void add_text(skv_buf *out, const char *text)
{
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, text, strlen(text));
    skv_buf_byte(out, '"');
}

static int append(const char *text, size_t n, void *out)
{
    return skv_buf_append(out, text, n) ? 0 : -1;
}

/* One call without its marks: ["{\"name\": \"f\", \"arguments\": ", {"schema": ...}, "}"] */
static skv_status add_call(skv_buf *out, skv_call_syntax syntax, const json_t *tool, skv_error *err)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    const json_t *schema = json_object_get(tool, "parameters");
    SKV_REQUIRE(name, err, SKV_ARGUMENT, "tools: one has no name");
    skv_buf_text(out, "[\"{\\\"name\\\": \\\"");
    skv_buf_json_text(out, name, strlen(name));
    skv_buf_printf(out, "\\\", \\\"%s\\\": \",{\"schema\":",
                   syntax == SKV_CALLS_LLAMA3 ? "parameters" : "arguments");
    if (!schema || (json_is_object(schema) && json_object_size(schema) == 0)) {
        skv_buf_text(out, "{\"type\":\"object\"}");
    } else if (json_dump_callback(schema, append, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        out->failed = true;
    }
    skv_buf_text(out, "},\"}\"]");
    return SKV_OK;
}

/* {"any":[call, ...]} */
static skv_status add_any(skv_buf *out, skv_call_syntax syntax, json_t *tools, skv_error *err)
{
    json_t *tool;
    size_t i;
    skv_buf_text(out, "{\"any\":[");
    json_array_foreach(tools, i, tool)
    {
        if (i > 0) skv_buf_byte(out, ',');
        SKV_TRY(add_call(out, syntax, tool, err));
    }
    skv_buf_text(out, "]}");
    return SKV_OK;
}

/* Calls in lines of their own; or text in which whole calls stand. */
static skv_status add_hermes(skv_buf *out, const skv_reply_rules *rules, json_t *tools,
                             skv_error *err)
{
    skv_buf_text(out, "{\"repeat\":[");
    if (rules->may_talk) {
        skv_buf_text(out, "{\"until\":\"" SKV_MARK_CALL "\"},\"\\n\"");
    } else {
        add_text(out, SKV_MARK_CALL "\n");
    }
    skv_buf_byte(out, ',');
    SKV_TRY(add_any(out, rules->format.calls, tools, err));
    skv_buf_byte(out, ',');
    add_text(out, "\n" SKV_MARK_CALLED);
    skv_buf_printf(out, "],\"min\":%d,\"max\":%zu,\"between\":\"%s\"}", rules->may_talk ? 0 : 1,
                   rules->max_calls, rules->may_talk ? "" : "\\n");
    if (rules->may_talk) skv_buf_text(out, ",{\"without\":\"" SKV_MARK_CALL "\"}");
    return SKV_OK;
}

/* One call, or a text that is none. */
static skv_status add_llama3(skv_buf *out, const skv_reply_rules *rules, json_t *tools,
                             skv_error *err)
{
    skv_buf_text(out, "{\"any\":[");
    SKV_TRY(add_any(out, rules->format.calls, tools, err));
    if (rules->may_talk) skv_buf_text(out, ",{\"unlike\":\"{\\\"name\\\": \"}");
    skv_buf_text(out, "]}");
    return SKV_OK;
}

static skv_status write_grammar(skv_buf *out, const skv_reply_rules *rules, json_t *tools,
                                skv_error *err)
{
    skv_buf_byte(out, '[');
    if (rules->in_thought && !rules->may_talk) {
        add_text(out, SKV_MARK_THOUGHT "\n\n");
        skv_buf_byte(out, ',');
    }
    if (rules->format.calls == SKV_CALLS_HERMES) {
        SKV_TRY(add_hermes(out, rules, tools, err));
    } else {
        SKV_TRY(add_llama3(out, rules, tools, err));
    }
    skv_buf_byte(out, ']');
    SKV_REQUIRE(!out->failed, err, SKV_RANGE, "tools: schemas of more than %zu bytes, or no memory",
                SKV_GRAMMAR_TEXT_MAX);
    return SKV_OK;
}

/* The tools; *n_bytes is what they count for in the budget. */
static skv_status load_tools(const skv_reply_rules *rules, skv_budget *budget, json_t **out,
                             size_t *n_bytes, skv_error *err)
{
    json_error_t problem;
    if (!skv_budget_json(budget, rules->tools_json, rules->n_tools_json, n_bytes)) {
        return skv_budget_check(budget, "tools", err);
    }
    json_t *tools = json_loadb(rules->tools_json, rules->n_tools_json, JSON_ALLOW_NUL, &problem);
    if (json_is_array(tools) && json_array_size(tools) > 0) {
        *out = tools;
        return SKV_OK;
    }
    json_decref(tools);
    skv_budget_give(budget, *n_bytes);
    return skv_fail(err, SKV_ARGUMENT, "tools: no array of tools");
}

skv_status skv_reply_grammar(const skv_reply_rules *rules, char **text, size_t *n, skv_error *err)
{
    skv_budget own;
    size_t n_bytes = 0;
    json_t *tools = NULL;
    if (!rules->budget) skv_budget_init(&own, NULL);
    skv_budget *budget = rules->budget ? rules->budget : &own;
    SKV_REQUIRE(rules->format.calls != SKV_CALLS_NONE, err, SKV_UNSUPPORTED,
                "tools: the model's template has no calls");
    SKV_REQUIRE(rules->max_calls >= 1 && rules->max_calls <= SKV_REPLY_CALLS_MAX, err, SKV_RANGE,
                "tools: %zu calls, 1 to %d", rules->max_calls, SKV_REPLY_CALLS_MAX);
    SKV_TRY(load_tools(rules, budget, &tools, &n_bytes, err));
    skv_buf out;
    skv_buf_init(&out, SKV_GRAMMAR_TEXT_MAX);
    const skv_status status = write_grammar(&out, rules, tools, err);
    json_decref(tools);
    skv_budget_give(budget, n_bytes);
    if (status != SKV_OK) {
        skv_buf_release(&out);
        return status;
    }
    *text = out.data;
    *n = out.size;
    return SKV_OK;
}
