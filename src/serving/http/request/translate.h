/*
 * Requests of other dialects in the words of OpenAI's chats, and the helpers that a dialect's own
 * file needs to put one together. Names and places in errors are those of the client's request.
 */
#ifndef SKV_SERVER_TRANSLATE_H
#define SKV_SERVER_TRANSLATE_H

#include "limits/json_body.h"

/** A request of Responses as a chat's body, owned; NULL: refused. */
json_t *responses_translate(exchange *ex, const json_t *asked, api_error *error);
/** The same of Messages. `counts`: nothing is generated, max_tokens is not asked for. */
json_t *messages_translate(exchange *ex, const json_t *asked, bool counts, api_error *error);
/** The same of Ollama's chats, and of its prompts: the body has the text as "prompt" too, and
 * "raw" if that is wanted. */
json_t *ollama_chat_translate(exchange *ex, const json_t *asked, api_error *error);
json_t *ollama_prompt_translate(exchange *ex, const json_t *asked, api_error *error);
/** A completion's body of a request to llama-server's /completion, and of a text with a gap. */
json_t *llamacpp_translate(exchange *ex, const json_t *asked, api_error *error);
json_t *infill_translate(exchange *ex, const json_t *asked, api_error *error);

/* A chat's body on its way. */
typedef struct translation {
    exchange *ex;          /* borrowed */
    const json_t *asked;   /* borrowed */
    json_t *body;          /* owned */
    json_t *messages;      /* borrowed from body */
    json_t *tools;         /* borrowed from body; NULL: none so far */
    json_t *open;          /* borrowed: the last message, which texts are added to */
    skv_buf text, thought; /* of the open message, so far */
    api_error *error;
    bool failed; /* memory ran out, or the client has left: nothing more is added */
} translation;

/** Begins with the fields that both call the same, and no messages. */
bool translation_begin(translation *t, exchange *ex, const json_t *asked, api_error *error);
/** The body, owned by the caller, or NULL: `ok` is false or memory ran out. */
json_t *translation_end(translation *t, bool ok);
/** Counts parts that are made beside the request's own JSON, a unit of work and n_bytes; false,
 * and `failed`, beyond the budget. */
bool translation_hold(translation *t, size_t n_bytes);
/** Sets a member of the body and takes the value over. */
void translation_set(translation *t, const char *name, json_t *value);

/** A new message at the end; `joins`: the open one will do if it has the same role. */
void translation_open(translation *t, const char *role, bool joins);
/** Adds to the open message, in a line of its own. */
void translation_add_text(translation *t, const json_t *text);
void translation_add_thought(translation *t, const json_t *text);
/** Adds the name and the text of a file in base64 or a data: address; false: it is no text in UTF-8
 * (attached_text.c). */
bool translation_file(translation *t, const json_t *name, const json_t *data);
/** Adds a line that names the omitted part: one of a tool's result that is no text. Refusing it
 * would end the conversation, which has it in its history. False: it has no type. The response
 * names it in a header. */
bool translation_add_left_out(translation *t, const json_t *part);
/** A call of an earlier turn, of the open assistant or a new one; the values are shared, and may
 * be NULL but for the name. */
void translation_call(translation *t, const json_t *id, const json_t *name,
                      const json_t *arguments);
/** Opens the result of a call. */
void translation_result(translation *t, const json_t *id);
/** The function that a result belongs to, by name. */
void translation_name(translation *t, const json_t *name);
/** The answer goes on with the last message, if that is a text of the assistant. */
void translation_continue(translation *t);
/** Sets a variable of the template, unless the client has done so itself, and takes it over. */
void translation_var(translation *t, const char *name, json_t *value);
/** How long the answer may be: a whole number from 1 on. */
bool translation_length(translation *t, const char *name, bool is_required);
/** The elements of "tools"; `add` refuses a tool, adds functions for it, or leaves it out. */
bool translation_tools(translation *t, bool (*add)(translation *t, const json_t *tool, size_t i));
/** Adds a tool and takes over its reference. */
void translation_tool(translation *t, json_t *tool);
/** {"type":"function","function":{...}} with the values of a tool, which calls its parameters
 * `schema`. */
json_t *translation_function(const json_t *tool, const char *schema);
/** Leaves out a tool if its type begins with one of these words: its own provider runs it, and no
 * other can. The response names it in a header. */
bool translation_leave_out(translation *t, const json_t *tool, const char *const *words, size_t n);
/** The answer has to call the function that this tool_choice names. */
void translation_choose(translation *t, const json_t *choice);
/** The answer has to follow the schema of a format; false: it has none. */
bool translation_schema(translation *t, const json_t *format);

/** Refuses a field that is given and not empty. */
bool translation_refuse(const translation *t, const char *name, const char *why);

#endif
