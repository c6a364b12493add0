/*
 * Anthropic's Messages: see translate.h. Blocks of text become one text, calls and their results
 * OpenAI's tool_calls and tool messages.
 */
#include "request/translate.h"

#include <stdio.h>
#include <string.h>

/* ---- blocks ---- */

static bool refuse_block(const translation *t, const char *where, const json_t *block)
{
    return api_fail(t->error, 400, "messages", "%s: blocks of type \"%.40s\" are not supported",
                    where, json_show_member(block, "type").text);
}

static bool add_texts(translation *t, const char *where, const json_t *content);

/* A document whose source is a text, texts, or a file of text: title and context come first. */
static bool add_document(translation *t, const char *where, const json_t *block)
{
    const json_t *source = json_object_get(block, "source"),
                 *data = json_object_get(source, "data");
    const json_t *title = json_object_get(block, "title");
    const json_t *context = json_object_get(block, "context");
    if (json_is_string(title)) translation_add_text(t, title);
    if (json_is_string(context)) translation_add_text(t, context);
    if (json_body_is(source, "content")) {
        return add_texts(t, where, json_object_get(source, "content"));
    }
    if (json_body_is(source, "text") && json_is_string(data)) {
        translation_add_text(t, data);
        return true;
    }
    if (json_body_is(source, "base64") && translation_file(t, NULL, data)) return true;
    return api_fail(t->error, 400, "messages",
                    "%s: a document of type \"%.40s\" is not supported, unless it is text in UTF-8",
                    where, json_show_member(source, "type").text);
}

static bool add_search_result(translation *t, const char *where, const json_t *block)
{
    const json_t *title = json_object_get(block, "title"),
                 *source = json_object_get(block, "source");
    if (json_is_string(title)) translation_add_text(t, title);
    if (json_is_string(source)) translation_add_text(t, source);
    return add_texts(t, where, json_object_get(block, "content"));
}

/* A block that is text, or has some. */
static bool add_text_block(translation *t, const char *where, const json_t *block)
{
    const bool names_tool = json_body_is(block, "tool_reference");
    const json_t *text = json_object_get(block, names_tool ? "tool_name" : "text");
    if (json_body_is(block, "document")) return add_document(t, where, block);
    if (json_body_is(block, "search_result")) return add_search_result(t, where, block);
    if ((!names_tool && !json_body_is(block, "text")) || !json_is_string(text)) {
        return refuse_block(t, where, block);
    }
    translation_add_text(t, text);
    return true;
}

/* A block may be marked as the end of the part to be cached; messages are, as their texts are
 * joined. */
static void mark(translation *t, json_t *message, const json_t *block)
{
    json_t *control = json_object_get(block, "cache_control");
    if (!message || !json_is_object(control)) return;
    if (translation_hold(t, JSON_MEMBER_BYTES)) prompt_mark_longer(message, control);
}

/* Blocks of text, or a text, for the open message. */
static bool add_texts(translation *t, const char *where, const json_t *content)
{
    if (json_is_string(content)) {
        translation_add_text(t, content);
        return true;
    }
    if (!json_is_array(content)) {
        return api_fail(t->error, 400, "messages", "%s: expected a string or an array of blocks",
                        where);
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (!add_text_block(t, where, json_array_get(content, i))) return false;
        mark(t, t->open, json_array_get(content, i));
    }
    return true;
}

/* A tool's result of any kind: a part that is no text is named as such. */
static bool add_result(translation *t, const char *where, const json_t *content)
{
    if (!json_is_array(content)) return add_texts(t, where, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const bool text = json_body_is(block, "text") || json_body_is(block, "tool_reference");
        if (add_text_block(t, where, block)) continue;
        if (text || !translation_add_left_out(t, block)) return false;
    }
    return true;
}

/* A result is a message of its own; text after it is a new one. */
static bool add_user_block(translation *t, const char *where, const json_t *block, bool joins)
{
    const json_t *content = json_body_get(block, "content");
    if (json_body_is(block, "tool_result")) {
        translation_result(t, json_object_get(block, "tool_use_id"));
        return !content || add_result(t, where, content);
    }
    translation_open(t, "user", joins);
    return add_text_block(t, where, block);
}

static bool add_assistant_block(translation *t, const char *where, const json_t *block)
{
    if (json_body_is(block, "redacted_thinking")) return true; /* only its maker can read it */
    if (json_body_is(block, "tool_use")) {
        const json_t *name = json_object_get(block, "name");
        if (!json_is_string(name)) {
            return api_fail(t->error, 400, "messages", "%s: a tool_use without a name", where);
        }
        translation_call(t, json_object_get(block, "id"), name, json_object_get(block, "input"));
        return true;
    }
    const bool thinks = json_body_is(block, "thinking");
    const json_t *text = json_object_get(block, thinks ? "thinking" : "text");
    if ((!thinks && !json_body_is(block, "text")) || !json_is_string(text)) {
        return refuse_block(t, where, block);
    }
    if (thinks) {
        translation_add_thought(t, text);
    } else {
        translation_add_text(t, text);
    }
    return true;
}

static bool add_message(translation *t, const json_t *message, size_t i)
{
    char where[48];
    const json_t *content = json_object_get(message, "content");
    const json_t *role = json_object_get(message, "role");
    const bool user = json_text_is(role, "user");
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    if (json_text_is(role, "system")) {
        translation_open(t, "system", false);
        return add_texts(t, where, content);
    }
    if (!user && !json_text_is(role, "assistant")) {
        return api_fail(t->error, 400, "messages",
                        "%s.role: \"%.40s\" is not user, assistant or system", where,
                        json_show(role).text);
    }
    const bool blocks = json_is_array(content);
    if (!user || !blocks) translation_open(t, user ? "user" : "assistant", false);
    if (!blocks) return add_texts(t, where, content);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *block = json_array_get(content, k);
        const bool ok =
            user ? add_user_block(t, where, block, k > 0) : add_assistant_block(t, where, block);
        if (!ok) return false;
        mark(t, t->open, block);
    }
    return true;
}

static bool add_messages(translation *t)
{
    const json_t *messages = json_body_get(t->asked, "messages");
    const json_t *system = json_body_get(t->asked, "system");
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return api_refuse(t->error, "messages", "expected an array of messages");
    }
    if (system) {
        translation_open(t, "system", false);
        if (!add_texts(t, "system", system)) return false;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!add_message(t, json_array_get(messages, i), i)) return false;
    }
    translation_continue(t);
    return true;
}

/* ---- tools ---- */

/* Anthropic runs these, or its models know their parameters. */
static const char *const provider_tools[] = {"web_search_",       "web_fetch_", "code_execution_",
                                             "tool_search_tool_", "computer_",  "browser_",
                                             "mcp_toolset",       "advisor_"};

#define PATHS                                                                                      \
    "\"path\":{\"type\":\"string\"},\"file_text\":{\"type\":\"string\",\"description\":\"of "      \
    "create\"},"                                                                                   \
    "\"old_str\":{\"type\":\"string\",\"description\":\"of str_replace: what is replaced\"},"      \
    "\"new_str\":{\"type\":\"string\",\"description\":\"of str_replace: by what\"},"               \
    "\"insert_line\":{\"type\":\"integer\",\"description\":\"of insert: behind which line\"},"     \
    "\"insert_text\":{\"type\":\"string\",\"description\":\"of insert\"},"                         \
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"description\":"         \
    "\"of view: the first and the last line\"}"

/* Tools of the client whose parameters Anthropic's models know: other models are told them. */
static const struct {
    const char *type, *description, *schema;
} client_tools[] = {
    {"bash_", "Runs a command in the shell of the client, which stays open between calls.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},"
     "\"restart\":{\"type\":\"boolean\",\"description\":\"starts the shell anew\"}}}"},
    {"text_editor_", "Views, creates and edits text files of the client.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"enum\":[\"view\",\"create\",\"str_"
     "replace\","
     "\"insert\"]}," PATHS "},\"required\":[\"command\",\"path\"]}"},
    {"memory_", "Keeps notes in files that outlive the conversation.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"enum\":[\"view\",\"create\",\"str_"
     "replace\","
     "\"insert\",\"delete\",\"rename\"]}," PATHS
     ",\"old_path\":{\"type\":\"string\",\"description\":"
     "\"of rename\"},\"new_path\":{\"type\":\"string\"}},\"required\":[\"command\"]}"}};

#undef PATHS

/* The row of client_tools; their number: none. */
static size_t find_client_tool(const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    size_t i = 0;
    const size_t n = sizeof client_tools / sizeof client_tools[0];
    if (!type) return n;
    while (i < n && strncmp(type, client_tools[i].type, strlen(client_tools[i].type)) != 0) i++;
    return i;
}

static bool add_tool(translation *t, const json_t *tool, size_t i)
{
    if (translation_leave_out(t, tool, provider_tools,
                              sizeof provider_tools / sizeof provider_tools[0])) {
        return true;
    }
    json_t *name = json_object_get(tool, "name");
    const size_t i_known = find_client_tool(tool);
    const bool known = i_known < sizeof client_tools / sizeof client_tools[0];
    if (!known && !json_body_is(tool, "") && !json_body_is(tool, "custom")) {
        return api_fail(t->error, 400, "tools",
                        "tools[%zu].type: \"%.40s\": only the client's own functions are served", i,
                        json_show_member(tool, "type").text);
    }
    if (!json_is_string(name)) {
        return api_fail(t->error, 400, "tools", "tools[%zu].name: not a text", i);
    }
    if (!known) {
        translation_tool(t, translation_function(tool, "input_schema"));
        return true;
    }
    json_t *schema = json_loads(client_tools[i_known].schema, 0, NULL);
    translation_tool(t, json_pack("{s:s,s:{s:O,s:s,s:o}}", "type", "function", "function", "name",
                                  name, "description", client_tools[i_known].description,
                                  "parameters", schema));
    return true;
}

static bool set_choice(translation *t)
{
    const json_t *choice = json_body_get(t->asked, "tool_choice");
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    bool alone = false;
    if (!choice) return true;
    if (!json_body_flag(choice, "disable_parallel_tool_use", &alone, t->error)) return false;
    if (alone) translation_set(t, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!json_body_is(choice, words[i][0])) continue;
        translation_set(t, "tool_choice", json_string(words[i][1]));
        return true;
    }
    if (!json_body_is(choice, "tool")) {
        return api_fail(t->error, 400, "tool_choice",
                        "tool_choice.type: \"%.40s\" is none of auto, any, tool, none",
                        json_show_member(choice, "type").text);
    }
    translation_choose(t, choice);
    return true;
}

/* ---- the rest ---- */

static bool set_stops(translation *t)
{
    const json_t *stops = json_body_get(t->asked, "stop_sequences");
    if (!stops) return true;
    bool ok = json_is_array(stops) && json_array_size(stops) <= PARAM_STOPS_MAX;
    for (size_t i = 0; ok && i < json_array_size(stops); i++) {
        const size_t n = json_string_length(json_array_get(stops, i));
        ok = n > 0 && n <= PARAM_STOP_BYTES;
    }
    if (!ok) {
        return api_refuse(t->error, "stop_sequences", "not at most %d texts of 1 to %d bytes",
                          PARAM_STOPS_MAX, PARAM_STOP_BYTES);
    }
    translation_set(t, "stop", json_copy((json_t *)(uintptr_t)stops));
    return true;
}

static bool set_thinking(translation *t)
{
    const json_t *thinking = json_body_get(t->asked, "thinking");
    if (!thinking || json_body_is(thinking, "adaptive")) return true;
    const bool on = json_body_is(thinking, "enabled");
    if (!on && !json_body_is(thinking, "disabled")) {
        return api_fail(t->error, 400, "thinking",
                        "thinking.type: \"%.40s\" is none of enabled, adaptive, disabled",
                        json_show_member(thinking, "type").text);
    }
    translation_var(t, "enable_thinking", json_boolean(on));
    return true;
}

/* Tools stand at the beginning of a prompt, before or after its system text: their marks are
 * those of the first message. */
static bool mark_tools(translation *t)
{
    size_t i;
    const json_t *tool;
    json_t *first = json_array_get(t->messages, 0);
    json_array_foreach(json_object_get(t->asked, "tools"), i, tool) mark(t, first, tool);
    return true;
}

/* How much effort: a word for templates that read one. It turns no thinking on. */
static bool set_effort(translation *t)
{
    const json_t *effort = json_body_get(json_body_get(t->asked, "output_config"), "effort");
    if (!effort) return true;
    if (!json_text_whole(effort, "output_config.effort", t->error)) return false;
    translation_var(t, "reasoning_effort", json_string(json_string_value(effort)));
    return true;
}

/* {"type":"json_schema","schema":...}, at one of two places. */
static bool set_format(translation *t)
{
    const json_t *format = json_body_get(t->asked, "output_format");
    if (!format) {
        format = json_body_get(json_body_get(t->asked, "output_config"), "format");
    }
    if (!format) return true;
    if (json_body_is(format, "json_schema") && translation_schema(t, format)) return true;
    return api_refuse(t->error, "output_format", "not {\"type\":\"json_schema\",\"schema\":{...}}");
}

/* Anthropic's package sends new messages alone, where its server keeps the others. It does without
 * where it is told so by this code. */
static bool refuse_thread(const translation *t)
{
    if (translation_refuse(t, "thread", "conversations are not kept: send all of their messages")) {
        return true;
    }
    t->error->code = "thread_unsupported_request";
    return false;
}

json_t *messages_translate(exchange *ex, const json_t *asked, bool counts, api_error *error)
{
    translation t;
    bool ok = translation_begin(&t, ex, asked, error);
    ok = ok && (counts || translation_length(&t, "max_tokens", true)) &&
         translation_refuse(&t, "mcp_servers", "the server connects to no others") &&
         translation_refuse(&t, "container", "there are no containers") && refuse_thread(&t) &&
         add_messages(&t) && translation_tools(&t, add_tool) && set_choice(&t) && set_stops(&t) &&
         set_thinking(&t) && mark_tools(&t) && set_effort(&t) && set_format(&t);
    return translation_end(&t, ok);
}
