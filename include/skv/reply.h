/**
 * Replies: what a chat model's text says. Thoughts, text for the reader, and calls of functions
 * are told apart while the text comes, by the marks that the model's chat template has taught it.
 *
 *   skv_reply_format  which marks; skv_reply_format_of reads them off the template
 *   skv_reply         one answer on its way: text goes in, pieces come out
 *   skv_reply_rules   the grammar of an answer that has to call functions
 *
 * However a text is cut into pieces on its way in, the same text comes out in the same order.
 * An object belongs to one thread at a time.
 */
#ifndef SKV_REPLY_H
#define SKV_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"
#include "skv/budget.h"
#include "skv/error.h"

SKV_BEGIN

/* ---- formats ---- */

/* How a model writes a call. */
typedef enum skv_call_syntax {
    SKV_CALLS_NONE,
    SKV_CALLS_LLAMA3, /* the whole answer is {"name": ..., "parameters": {...}} */
    SKV_CALLS_HERMES, /* Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call> */
    SKV_CALLS_COUNT
} skv_call_syntax;

typedef struct skv_reply_format {
    skv_call_syntax calls;
    bool thinks; /* an answer may begin with <think>...</think> */
} skv_reply_format;

/** What the answers to a chat template look like. */
SKV_API skv_reply_format skv_reply_format_of(const char *template_text, size_t n);
/** "none", "llama3", "hermes" */
SKV_API const char *skv_call_syntax_name(skv_call_syntax syntax);
SKV_CHECKED bool skv_call_syntax_parse(const char *name, skv_call_syntax *out);
/** The marks of a format, [*n]; where the tokenizer has them as special tokens, the reader needs
 * the text of these (skv_job_params.special_text). */
SKV_API const char *const *skv_reply_marks(skv_reply_format format, size_t *n);
/** Whether a prompt ends inside a thought that it has opened. */
SKV_API bool skv_reply_prompt_thinks(const char *prompt, size_t n);

/* ---- reading ---- */

typedef enum skv_reply_kind {
    SKV_REPLY_TEXT,
    SKV_REPLY_THOUGHT,
    SKV_REPLY_CALL,      /* a call begins: the text is the function's name */
    SKV_REPLY_ARGUMENTS, /* a part of its arguments, which are one JSON object */
    SKV_REPLY_CALL_END,  /* they are whole */
    SKV_REPLY_CALL_BAD   /* they are no JSON: the text is what came of the call as it was written,
                          * of which the last n_rest bytes have not been told in any form */
} skv_reply_kind;

typedef struct skv_reply_piece {
    skv_reply_kind kind;
    const char *text; /* valid during the call */
    size_t n, n_rest;
} skv_reply_piece;

/** Told of every piece. */
typedef void skv_reply_fn(void *user, const skv_reply_piece *piece);

typedef struct skv_reply_options {
    skv_reply_format format;
    bool in_thought;          /* the prompt has opened a thought */
    bool one_call;            /* what follows the first call is dropped */
    const char *const *names; /* [n_names]: borrowed; a call of another function is text */
    size_t n_names;
    skv_reply_fn *tell;
    void *user;
} skv_reply_options;

typedef struct skv_reply skv_reply;

SKV_CHECKED skv_status skv_reply_create(const skv_reply_options *options, skv_reply **out,
                                        skv_error *err);
SKV_API void skv_reply_free(skv_reply *reply);
/** Whole UTF-8 characters, as a skv_text_stream gives them. */
SKV_CHECKED skv_status skv_reply_push(skv_reply *reply, const char *text, size_t n, skv_error *err);
/** Tells what is left. A call that was cut off has no end. */
SKV_CHECKED skv_status skv_reply_finish(skv_reply *reply, skv_error *err);

/* ---- writing ---- */

enum { SKV_REPLY_CALLS_MAX = 16 };

typedef struct skv_reply_rules {
    skv_reply_format format;
    bool in_thought;        /* the prompt has opened a thought: the answer closes it first */
    const char *tools_json; /* an array of {"name":..., "parameters": a JSON schema} */
    size_t n_tools_json;
    bool may_talk;      /* the answer may be text too; a call that it begins is a whole one */
    size_t max_calls;   /* at least one is made; 1..SKV_REPLY_CALLS_MAX. LLAMA3 has one */
    skv_budget *budget; /* borrowed: what reading the tools may take; NULL: the default limits */
} skv_reply_rules;

/** A grammar (SKV_GRAMMAR_PARTS) of answers that are calls, to be freed with skv_text_free. */
SKV_CHECKED skv_status skv_reply_grammar(const skv_reply_rules *rules, char **text, size_t *n,
                                         skv_error *err);

SKV_END

#endif
