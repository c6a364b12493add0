/* Prompts: from what a request says to token ids. */
#ifndef SKV_SERVER_PROMPT_INPUT_H
#define SKV_SERVER_PROMPT_INPUT_H

#include "json_body.h"

typedef struct api_prompt {
    int32_t *ids; /* owned, [n_ids] */
    size_t n_ids;
    char *text; /* owned; NULL: it was given as ids */
    size_t n_text;
    bool add_special;      /* how the text was encoded */
    skv_prompt_text known; /* what prompts_recall found out */
} api_prompt;

typedef struct prompt_list {
    api_prompt *at; /* owned, [n] */
    size_t n;
} prompt_list;

enum { PROMPTS_MAX = 1024 };

/** The field `name` of a request: a text, token ids, or an array of either. */
bool prompts_read(const exchange *ex, const json_t *body, const char *name, prompt_list *out,
                  api_error *error);
void prompts_release(prompt_list *list);
/** Texts that continue an answer of ours get the ids of that answer back. */
void prompts_recall(const exchange *ex, prompt_list *list, skv_job_params *job);

/** The chat template's text for "messages" and what else it reads, on the heap. */
bool messages_render(const exchange *ex, const json_t *body, out_text *out, api_error *error);
/** The same as a prompt. */
bool messages_read(const exchange *ex, const json_t *body, prompt_list *out, api_error *error);

typedef struct encode_flags {
    bool add_special, parse_special;
} encode_flags;

/** Ids of a text, to be freed with skv_text_free. */
bool text_encode(const exchange *ex, const char *text, size_t n, encode_flags flags, int32_t **ids,
                 size_t *n_ids, api_error *error);

#endif
