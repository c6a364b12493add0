/*
 * Generated documents inside the library: the text of one with its pieces. The public side is
 * skv/documents.h.
 */
#ifndef SKV_DATA_DOC_MAKER_H
#define SKV_DATA_DOC_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "skv/documents.h"
#include "text/tokenizer.h"

enum { SKV_DOC_ROOM_MIN = 48 };

typedef enum skv_piece_role {
    SKV_PIECE_TEXT, /* of a document without turns */
    SKV_PIECE_USER,
    SKV_PIECE_ASSISTANT
} skv_piece_role;

typedef struct skv_piece {
    size_t at, n; /* bytes of the document's text */
    skv_piece_role role;
    bool loss;    /* its tokens are learnt */
    double depth; /* of an answer: its place in the context, 0 to 1 */
} skv_piece;

typedef struct skv_document {
    skv_doc_task task;
    skv_buf text;
    skv_piece *pieces; /* owned */
    size_t n_pieces, pieces_capacity;
    size_t n_tokens; /* counted while it was written, turns and all */
} skv_document;

void skv_document_init(skv_document *doc);
void skv_document_release(skv_document *doc);

/**
 * Like skv_documents_open; a tokenizer that is given (borrowed) goes before options->vocab.
 */
SKV_MUST_CHECK skv_status skv_documents_create(const skv_documents_options *options,
                                               const skv_tokenizer *tokenizer, skv_documents **out,
                                               skv_error *err);
/** Makes document `index`; `doc` keeps its memory between calls. Threads may share `documents`. */
SKV_MUST_CHECK skv_status skv_documents_make(const skv_documents *documents, uint64_t index,
                                             skv_document *doc, skv_error *err);
/** The same within `room` tokens, at least SKV_DOC_ROOM_MIN: a shorter document where it must be,
 * of a task that is possible in it. */
SKV_MUST_CHECK skv_status skv_documents_make_within(const skv_documents *documents, uint64_t index,
                                                    size_t room, skv_document *doc, skv_error *err);
/** Sets the number of tokens that the marks of a question and its answer take (5 by default), and
 * those at both ends of a conversation (2). */
void skv_documents_set_turns(skv_documents *documents, size_t turn_tokens, size_t frame_tokens);

/** Whether a word belongs to the evaluation: one in eight does. */
bool skv_doc_held_out(const char *word, size_t n);

#endif
