/*
 * Chat templates: a conversation as the one text that a model was trained on. Published models
 * bring theirs as a Jinja template; this renders it to the byte as jinja2 does in the set-up of
 * the transformers library (sandboxed, trim_blocks, lstrip_blocks, break and continue, its own
 * tojson, raise_exception, strftime_now and the tag `generation`).
 *
 * A parsed template is immutable and may be shared by threads; each rendering has its own memory
 * and limits, so that a hostile template or conversation costs a bounded amount and then fails.
 */
#ifndef SKV_TEXT_CHAT_TEMPLATE_H
#define SKV_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "skv/text.h"

typedef struct skv_template skv_template;

/* Of a rendering; all borrowed. */
typedef struct skv_template_options {
    skv_budget *budget; /* NULL: the default limits */
    int64_t now;        /* seconds since 1970 for strftime_now; 0: the system's clock */
    skv_text_piece bos_token, eos_token; /* set where the variables do not; text NULL: none */
    skv_text_piece own_mark;             /* as in skv_render_input */
    /* Gets where data begin and end in the text in turn, size_t each; NULL: not wanted. */
    skv_buf *marks;
} skv_template_options;

/** Parses n bytes of source within a budget (NULL: the default limits), in which the template's
 * memory counts until this returns. `name` appears in messages ("chat template: line 12: ..."). */
SKV_MUST_CHECK skv_status skv_template_parse(const char *source, size_t n, const char *name,
                                             skv_budget *budget, skv_template **out,
                                             skv_error *err);
void skv_template_free(skv_template *t);

/**
 * Appends the text for variables given as one JSON object (messages, tools, documents, bos_token,
 * eos_token, add_generation_prompt and whatever else the template asks for; repeated keys are
 * refused). `options` may be NULL. A template that refuses by raise_exception gives SKV_ARGUMENT
 * and its text alone, one that exceeds a limit SKV_RANGE. On failure `out` is as it was.
 */
SKV_MUST_CHECK skv_status skv_template_render(const skv_template *t, const char *vars_json,
                                              size_t n, const skv_template_options *options,
                                              skv_buf *out, skv_error *err);

/* What a server or `chat` knows; JSON texts and strings are borrowed, NULL means none. */
typedef struct skv_chat_input {
    const char *messages_json; /* an array of objects */
    const char *tools_json;    /* an array, or NULL */
    const char *documents_json;
    const char *extra_json; /* an object of further variables (chat_template_kwargs), or NULL */
    const char *bos_token, *eos_token;
    bool add_generation_prompt;
} skv_chat_input;

/** Puts the variables together as transformers does and renders. */
SKV_MUST_CHECK skv_status skv_chat_render(const skv_template *t, const skv_chat_input *input,
                                          const skv_template_options *options, skv_buf *out,
                                          skv_error *err);

#endif
