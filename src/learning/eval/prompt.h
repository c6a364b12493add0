/*
 * From texts to tokens: a context with its continuation, and a question in the frame that the
 * model was trained with (its chat template, written as training data are written).
 */
#ifndef SKV_EVAL_PROMPT_H
#define SKV_EVAL_PROMPT_H

#include "data/data_doc.h"
#include "eval/example.h"
#include "skv/text.h"

typedef struct skv_eval_prompter {
    const skv_vocab *vocab; /* borrowed */
    skv_data_writer writer;
    bool templated; /* questions go through the chat template */
    skv_error why;  /* the reason why it cannot be used, reported with the first question; SKV_OK:
                     * usable */
    char *primer;   /* owned; before every prompt; NULL: none */
    size_t n_primer;
    int32_t begin; /* the first token of a text if the tokenizer adds none; -1: none */
} skv_eval_prompter;

SKV_MUST_CHECK skv_status skv_eval_prompter_init(skv_eval_prompter *p, const skv_vocab *vocab,
                                                 size_t n_vocab, const skv_eval_options *options,
                                                 skv_error *err);
void skv_eval_prompter_release(skv_eval_prompter *p);

/* A text, a choice, a question: borrowed bytes. */
typedef struct skv_eval_text {
    const char *at;
    size_t n;
} skv_eval_text;

skv_eval_text skv_eval_text_of(const char *terminated);
/** Without the white space at its end. */
skv_eval_text skv_eval_text_trim(skv_eval_text text);

/**
 * A request for the likelihood of `continuation` after `context`. Both are tokenized together; the
 * continuation starts after as many tokens as the context has alone. White space at the end of the
 * context moves to the continuation, as tokenizers expect.
 */
SKV_MUST_CHECK skv_status skv_eval_pair(const skv_eval_prompter *p, skv_eval_text context,
                                        skv_eval_text continuation, skv_eval_example *e,
                                        skv_error *err);

/* A question to be answered by generation. */
typedef struct skv_eval_question {
    skv_eval_text prompt;
    const char *cue;       /* ends the prompt without a template: "\n", "" */
    const char *lead;      /* begins the answer without a template: "", " " */
    const char *stop_text; /* ends the answer without a template; NULL: none */
    skv_eval_text answer;  /* the right one */
    size_t max_new;        /* 0: as long as the right one and some more */
} skv_eval_question;

SKV_MUST_CHECK skv_status skv_eval_ask(const skv_eval_prompter *p, const skv_eval_question *q,
                                       skv_eval_example *e, skv_error *err);

#endif
