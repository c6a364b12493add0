/**
 * Replies: parses the text of a chat model. Thoughts, text for the reader and function calls are
 * separated while the text arrives, by the marks of the model's chat template.
 *
 *   skv_reply_format  the marks; skv_reply_format_of derives them from the template
 *   skv_reply         the parser of one answer: text goes in, pieces come out
 *   skv_reply_rules   the grammar of an answer that must call functions
 *
 * The result does not depend on how the input is cut into pieces. An object belongs to one thread
 * at a time.
 */
#ifndef SKV_REPLY_H
#define SKV_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"
#include "skv/budget.h"
#include "skv/error.h"
#include "skv/text.h"

SKV_BEGIN

/* ---- formats ---- */

/* How a model writes a call: docs/reference/http.md shows each. Where several fit a template, the
 * first counts. */
typedef enum skv_call_syntax {
    SKV_CALLS_NONE,
    SKV_CALLS_HARMONY, /* gpt-oss */
    SKV_CALLS_GEMMA4,
    SKV_CALLS_MISTRAL_ID,
    SKV_CALLS_MISTRAL_ARGS,
    SKV_CALLS_MISTRAL,
    SKV_CALLS_DSML_V4,
    SKV_CALLS_DSML, /* DeepSeek V3.2 */
    SKV_CALLS_DEEPSEEK,
    SKV_CALLS_DEEPSEEK_V31,
    SKV_CALLS_KIMI,
    SKV_CALLS_KIMI_K3,
    SKV_CALLS_SOLAR,
    SKV_CALLS_SEED,
    SKV_CALLS_QWEN_CODER,
    SKV_CALLS_MINIMAX,
    SKV_CALLS_MUSE,
    SKV_CALLS_MINICPM,
    SKV_CALLS_GLM,
    SKV_CALLS_HY3,
    SKV_CALLS_FUNCTIONARY_V31,
    SKV_CALLS_FUNCTIONARY_V32,
    SKV_CALLS_FIREFUNCTION,
    SKV_CALLS_COHERE,
    SKV_CALLS_COMMAND_R,
    SKV_CALLS_GRANITE,
    SKV_CALLS_PHI4,
    SKV_CALLS_APERTUS,
    SKV_CALLS_APRIEL,
    SKV_CALLS_MINIMAX_M1,
    SKV_CALLS_NEMOTRON,
    SKV_CALLS_GIGACHAT31,
    SKV_CALLS_GIGACHAT,
    SKV_CALLS_LFM2,
    SKV_CALLS_HERMES, /* Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call> */
    SKV_CALLS_LLAMA3, /* the whole answer is {"name": ..., "parameters": {...}} */
    SKV_CALLS_COUNT
} skv_call_syntax;

/* By which marks an answer may begin with a thought. */
typedef enum skv_thought_marks {
    SKV_THOUGHTS_NONE,
    SKV_THOUGHTS_THINK, /* <think>...</think> */
    SKV_THOUGHTS_GEMMA4,
    SKV_THOUGHTS_MISTRAL,
    SKV_THOUGHTS_COHERE,
    SKV_THOUGHTS_SEED,
    SKV_THOUGHTS_MINIMAX,
    SKV_THOUGHTS_APRIEL,
    SKV_THOUGHTS_KIMI_K3,
    SKV_THOUGHTS_SOLAR,
    SKV_THOUGHTS_MUSE,
    SKV_THOUGHTS_HY3,
    SKV_THOUGHTS_HARMONY, /* messages of the channel analysis */
    SKV_THOUGHTS_COUNT
} skv_thought_marks;

typedef struct skv_reply_format {
    skv_call_syntax calls;
    skv_thought_marks thinks;
} skv_reply_format;

/** The marks around `thought` in a text; NONE: none that are known. */
SKV_API skv_thought_marks skv_reply_thought_marks(const char *text, const char *thought);
/** The mark that ends a thought, NULL where there is none. */
SKV_API const char *skv_thought_marks_end(skv_thought_marks marks);
/** What the answers to a chat template look like. */
SKV_API skv_reply_format skv_reply_format_of(const char *template_text, size_t n);
/** "none", "llama3", "hermes" ... */
SKV_API const char *skv_call_syntax_name(skv_call_syntax syntax);
/** Whether calls do not tell "3" and 3 apart, so that their reader needs types. */
SKV_API bool skv_call_syntax_lacks_types(skv_call_syntax syntax);
SKV_CHECKED bool skv_call_syntax_parse(const char *name, skv_call_syntax *out);
enum { SKV_REPLY_MARKS_MAX = 24 };

/** The marks of a format, and how many there are; where the tokenizer has them as special tokens,
 * the reader needs the text of these (skv_job_params.special_text). */
SKV_API size_t skv_reply_marks(skv_reply_format format, const char *marks[SKV_REPLY_MARKS_MAX]);
/** Whether a prompt ends inside a thought that it has opened. */
SKV_API bool skv_reply_prompt_thinks(skv_reply_format format, const char *prompt, size_t n);
/** The bytes at the end of such a prompt that open the thought, blanks included; 0: it has not. */
SKV_API size_t skv_reply_thought_opening(skv_reply_format format, const char *prompt, size_t n);

/* ---- types of parameters ---- */

/* Types of JSON, as bits of a set. */
typedef enum skv_reply_type {
    SKV_TYPE_STRING = 1,
    SKV_TYPE_INTEGER = 2,
    SKV_TYPE_NUMBER = 4, /* one that is no integer */
    SKV_TYPE_BOOLEAN = 8,
    SKV_TYPE_NULL = 16,
    SKV_TYPE_ARRAY = 32,
    SKV_TYPE_OBJECT = 64,
    SKV_TYPE_ANY = 127
} skv_reply_type;

struct json_t; /* of jansson */

/** Returns the types that a JSON schema allows, from type, enum, const, anyOf, oneOf, allOf and
 * references into `root`, which contains the schema. Parts that exceed the budget's work count as
 * any type. */
SKV_API unsigned skv_reply_schema_types(const struct json_t *root, const struct json_t *schema,
                                        skv_budget *budget);

/* ---- reading ---- */

typedef enum skv_reply_kind {
    SKV_REPLY_TEXT,
    SKV_REPLY_THOUGHT,
    SKV_REPLY_CALL,      /* a call begins: the text is the function's name */
    SKV_REPLY_CALL_ID,   /* after CALL: the id that the model gave the call, if the form has one */
    SKV_REPLY_ARGUMENTS, /* a part of its arguments, which are one JSON object */
    SKV_REPLY_CALL_END,  /* they are whole */
    SKV_REPLY_CALL_BAD /* they are not JSON, or were cut off: the text is the call as far as it was
                        * written; its last n_rest bytes were not reported in any form */
} skv_reply_kind;

typedef struct skv_reply_piece {
    skv_reply_kind kind;
    const char *text; /* valid during the call */
    size_t n, n_rest;
} skv_reply_piece;

/** Told of every piece. */
typedef void skv_reply_fn(void *user, const skv_reply_piece *piece);

/** Returns the types (skv_reply_type) that a function's schema allows for a parameter, 0 if
 * unknown: XML does not distinguish "3" and 3. */
typedef unsigned skv_reply_types_fn(const void *functions, const char *function, size_t n_function,
                                    const char *parameter, size_t n_parameter);

/* Allocator hooks; `take` may wait. */
typedef struct skv_reply_memory {
    bool (*take)(void *user, size_t n_bytes); /* NULL: no hooks */
    void (*give)(void *user, size_t n_bytes);
    void *user; /* borrowed */
} skv_reply_memory;

/* The marks of a template around the text of an answer: neither text nor a call, and no thought.
 * Rendering a conversation shows it. NULL: nothing. */
typedef struct skv_reply_frame {
    const char *lead;   /* between a prompt and the text of its answer */
    const char *behind; /* between a thought's end and the text */
    const char *tail;   /* after the text, before the mark that ends the answer */
} skv_reply_frame;

typedef struct skv_reply_options {
    skv_reply_format format;
    skv_reply_frame frame;    /* borrowed; for formats whose answers are no messages */
    bool no_calls;            /* what would be one is text */
    bool in_thought;          /* the prompt has opened a thought */
    bool one_call;            /* text after the first call is dropped */
    const char *const *names; /* [n_names]: borrowed; a call of another function is text */
    size_t n_names;
    skv_reply_types_fn *types; /* NULL: all unknown */
    const void *functions;     /* borrowed: for types */
    skv_reply_fn *tell;
    void *user; /* for tell */
    skv_reply_memory memory;
} skv_reply_options;

typedef struct skv_reply skv_reply;

SKV_CHECKED skv_status skv_reply_create(const skv_reply_options *options, skv_reply **out,
                                        skv_error *err);
SKV_API void skv_reply_free(skv_reply *reply);
/** Whole UTF-8 characters, as a skv_text_stream gives them. */
SKV_CHECKED skv_status skv_reply_push(skv_reply *reply, const char *text, size_t n, skv_error *err);
/** Reports the remaining text. A call that was cut off is BAD, or ends normally if only brackets of
 * the form are missing. */
SKV_CHECKED skv_status skv_reply_finish(skv_reply *reply, skv_error *err);

/* ---- writing ---- */

/**
 * Calls as a model of this format writes them, to be freed with skv_text_free. calls_json is an
 * array of {"name":..., "arguments": {...}}. The format's own marks stand between two of own_mark
 * (skv_render_input); n 0: as they are. SKV_UNSUPPORTED: the format's calls are written by its
 * template alone.
 */
SKV_CHECKED skv_status skv_reply_write_calls(skv_reply_format format, skv_text_piece calls_json,
                                             skv_text_piece own_mark, char **text, size_t *n,
                                             skv_error *err);

/* The most levels of a call's arguments: deeper calls are reported as text, so that every call can
 * be sent back in a request and through a chat template, which add levels of their own. */
enum { SKV_REPLY_DEPTH_MAX = 48 };

/** Whether a text of JSON nests deeper than that. It need not be valid. */
SKV_CHECKED bool skv_reply_is_deep(const char *text, size_t n);

/**
 * Closes a JSON object that was cut off: the text that came of a value stays, an unfinished name,
 * number or word is dropped. The result is on the heap, to be freed with skv_text_free; SKV_FORMAT:
 * the text is not the beginning of an object.
 */
SKV_CHECKED skv_status skv_reply_close_object(const char *text, size_t n, char **closed,
                                              size_t *n_closed, skv_error *err);

enum { SKV_REPLY_CALLS_MAX = 16 };

typedef struct skv_reply_rules {
    skv_reply_format format;
    bool in_thought; /* the prompt has opened a thought: the answer ends it first */
    /* An array of {"name":..., "parameters": a JSON schema, "loose":...}. If `loose` is true, parts
     * of the schema that the grammar does not support are ignored; otherwise they are refused by
     * name. */
    const char *tools_json;
    size_t n_tools_json;
    bool may_talk;    /* the answer may be text too; a call that it begins is a whole one */
    size_t max_calls; /* at least one is made; 1..SKV_REPLY_CALLS_MAX. LLAMA3 has one */
    /* [n_special], borrowed: texts of special tokens in the marks. The grammar demands these tokens
     * there, not their letters. */
    const char *const *special;
    size_t n_special;
    skv_budget *budget; /* borrowed: limits the reading of tools; NULL: the default limits */
} skv_reply_rules;

/** A grammar (SKV_GRAMMAR_PARTS) of answers that are calls, to be freed with skv_text_free. */
SKV_CHECKED skv_status skv_reply_grammar(const skv_reply_rules *rules, char **text, size_t *n,
                                         skv_error *err);

/** Returns a grammar (SKV_GRAMMAR_PARTS) of the text before an answer whose prompt has opened a
 * thought: any text up to the thought's end, and blanks. Only the format and the special tokens of
 * the rules count. To be freed with skv_text_free. */
SKV_CHECKED skv_status skv_reply_thought_grammar(const skv_reply_rules *rules, char **text,
                                                 size_t *n, skv_error *err);

SKV_END

#endif
