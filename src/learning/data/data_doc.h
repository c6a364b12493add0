/*
 * One document as tokens, with a mark on those that are learnt: from the generator, or from a line
 * of JSON ({"text"}, {"segments"}, {"messages"}, {"prompt", "answer"}).
 *
 * Conversations are written as the model's chat template has it. Of them only the answers are
 * learnt, each with the token that ends it. No text of a document becomes a special token: only the
 * template writes these.
 */
#ifndef SKV_DATA_DATA_DOC_H
#define SKV_DATA_DATA_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "data/doc_maker.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

typedef struct skv_data_tokens {
    skv_ids ids;
    uint8_t *loss; /* owned; [ids.n]: the token is learnt */
    size_t loss_capacity;
} skv_data_tokens;

void skv_data_tokens_clear(skv_data_tokens *tokens);
void skv_data_tokens_release(skv_data_tokens *tokens);
/** Says of the tokens from `from` on whether they are learnt. */
SKV_MUST_CHECK skv_status skv_data_mark(skv_data_tokens *tokens, size_t from, bool loss,
                                        skv_error *err);

/* A writer of documents for a model. */
typedef struct skv_data_writer {
    const skv_tokenizer *tokenizer; /* borrowed; NULL: nothing can be written */
    size_t vocab;                   /* ids are below this */
    skv_template *chat;             /* owned; NULL: the model has none */
    /* The text around the turns: before the first question, between question and answer, between
     * answer and question, after the last answer. Learnt from the template. */
    skv_buf head, to_answer, answer_start, to_question, tail;
    char bos[64], eos[64]; /* as the template wants them */
} skv_data_writer;

SKV_MUST_CHECK skv_status skv_data_writer_init(skv_data_writer *w, const skv_tokenizer *tokenizer,
                                               size_t vocab, skv_error *err);
void skv_data_writer_release(skv_data_writer *w);

/** Appends a plain text; `begin` puts the tokenizer's first token (BOS) before it. */
SKV_MUST_CHECK skv_status skv_data_put_text(const skv_data_writer *w, const char *text, size_t n,
                                            bool begin, skv_data_tokens *out, skv_error *err);
SKV_MUST_CHECK skv_status skv_data_put_document(const skv_data_writer *w, const skv_document *doc,
                                                skv_data_tokens *out, skv_error *err);
/** `where` names the line in errors. */
SKV_MUST_CHECK skv_status skv_data_put_json(const skv_data_writer *w, const char *line, size_t n,
                                            const char *where, skv_data_tokens *out,
                                            skv_error *err);

#endif
