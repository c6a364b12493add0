/*
 * Drafts: a table of sources (draft.c), each a file of its own (draft_text.c), and the state that a
 * sequence keeps of its source (drafter.c). A source knows nothing of sampling: it proposes ids,
 * and the code that runs the step judges them (generate.c, the scheduler's advance.c). How many of
 * the proposed tokens go into a step is planned from their cost (draft_plan.c).
 *
 * A step over the next token and K drafted ones is a span that wants SKV_WANT_DRAFTED: its rows
 * give the bits that single steps would give (skv_attention_item.follows), and the sequence is
 * truncated after the last token that was right. So a draft never takes back more than K rows.
 */
#ifndef SKV_ENGINE_DRAFT_H
#define SKV_ENGINE_DRAFT_H

#include <math.h>

#include "backend/backend.h"
#include "base/fail.h"
#include "drafts/draft_cost.h"
#include "drafts/draft_history.h"
#include "kv/kv_cache.h"
#include "model/hook.h"
#include "skv/skv.h"

/* Rows after those that a sequence has seen that have run the layers below l. The keys and
 * values of all layers are in the cache: a step that begins with their tokens goes on at layer
 * l. Any other change of the sequence forgets them. */
typedef struct skv_ready_rows {
    size_t n, n_columns; /* n_columns: D */
    skv_backend *be;     /* borrowed */
    skv_area *x; /* [SKV_DRAFT_MAX + 1, D], owned: the residual stream at boundary l; NULL: none */
} skv_ready_rows;

/** Those from row i on. */
static inline skv_rows skv_ready_rows_from(const skv_ready_rows *ready, size_t i)
{
    return (skv_rows){ready->x, i * ready->n_columns, ready->n_columns};
}

/* A sequence as a head that predicts further tokens has it (draft_mtp.c). Its row i is made of
 * h_i, the result of the model's last norm there, and of token i + 1. `cache` of the drafter has
 * its rows of tokens from `first` on; of the n tokens after those there is h alone. */
typedef struct skv_mtp_rows {
    size_t first, n;
    size_t next_at;  /* the last row of the cache was made with the token `next`, */
    int32_t next;    /* which is this one of the sequence */
    size_t told_row; /* of the step that runs: h of n_told tokens from told_at on are rows of */
    size_t told_at;  /* skv_engine_mtp.told from told_row on */
    size_t n_told;
    skv_backend *be; /* borrowed */
    skv_area *h;     /* [SKV_DRAFT_MAX + 1, D], owned; NULL: none */
} skv_mtp_rows;

/* The step that drafts are for. */
typedef struct skv_draft_step {
    size_t n_sequences; /* each has a token of its own in it */
    size_t n_rows;      /* drafted tokens of all of them, at most */
} skv_draft_step;

typedef struct skv_draft_method {
    const char *name;
    skv_drafting id;
    size_t most; /* K, the default */
    double sure; /* P, the default; 0: it takes none */
    /* The state of a sequence of at most max_tokens tokens. */
    skv_status (*create)(size_t max_tokens, void **state, skv_error *err);
    void (*free)(void *state); /* NULL is allowed */
    /* Writes tokens that may follow ids [n], at most `most`, to out; returns how many, and in
     * *n_match how many tokens agree with those that it followed before. Between two calls ids
     * may have become longer, or shorter and different from some point on. */
    size_t (*propose)(void *state, const int32_t *ids, size_t n, int32_t *out, size_t most,
                      size_t *n_match);
    /* In place of these three, if the model itself drafts: tokens that may follow the tokens
     * `next` of sequences of this source and of one plan, which are their ids[n_seen]. Each has
     * room for 1 + most rows, most is 1 or more, and n is SKV_LOGIT_ROWS or less. Returns
     * whether its time tells the cost of drafts: the model may have had a prompt to read. */
    bool (*run)(skv_draft_request *requests, size_t n, const skv_draft_step *step);
    bool keeps_rows; /* skv_drafter.ready */
    bool is_apart;   /* skv_drafter.cache */
    bool predicts;   /* skv_drafter.cache and .mtp */
    /* In place of all of these: a source that proposes, and one that runs where it does not. */
    const struct skv_draft_method *first, *then;
} skv_draft_method;

extern const skv_draft_method skv_draft_text, skv_draft_self, skv_draft_aux, skv_draft_model,
    skv_draft_mtp;

/** Returns the source with this id, or NULL if there is none. */
const skv_draft_method *skv_draft_method_of(skv_drafting id);

/* The state that a sequence keeps of a source. */
typedef struct skv_drafter {
    const skv_draft_method *text, *model; /* one that proposes, and one that runs; NULL: none */
    skv_drafting last;                    /* the source of the latest draft */
    void *state;                          /* of `text`, owned */
    size_t most;                          /* K */
    double sure;                          /* P */
    bool measures;                        /* AUTO: it drafts as long as that pays */
    skv_draft_learnt *learnt;             /* borrowed: of its domain */
    skv_draft_chances chances;            /* of text */
    skv_draft_gain gain;                  /* of the model */
    skv_ready_rows ready;
    skv_kv_cache cache; /* of MODEL and of MTP: the tokens that it has read */
    skv_mtp_rows mtp;
    skv_draft_counts counts[SKV_DRAFT_SOURCES];
    /* Of the text that is planned with: tokens of the match, those that stay, and the probability
     * that the next one and all before it are right. */
    size_t n_match, n_kept;
    double chance;
    bool asks;       /* the model, in place of a text */
    bool reads;      /* AUTO has chosen that its model reads the tokens before the answer */
    double spare_ns; /* of AUTO's steps whose model had not read the tokens before them */
} skv_drafter;

void skv_drafter_free(skv_drafter *drafter);
/** Whether the largest logit of a row is likely enough to be drafted. */
static inline bool skv_drafter_is_sure(const skv_drafter *drafter, const skv_picked *picked)
{
    return exp((double)picked->best.logit - picked->norm) >= drafter->sure;
}
/** Lets a sequence's drafts learn in a domain, until another is set. Without it they learn in the
 * engine's own, as if all of the engine's texts had one reader. */
void skv_sequence_set_learnt(skv_sequence *sequence, skv_draft_learnt *learnt);

/** skv_sequences_draft for a step that others may share. The rows go to the texts that are most
 * likely right; the rest is divided among the sequences that a model drafts for. */
void skv_sequences_draft_for(skv_draft_request *requests, size_t n, const skv_draft_step *step);

/* ---- draft_mtp.c ---- */

/** A hook of the model's own passes over `spans`, which is the step's, that takes h of rows of
 * sequences that draft by the head. */
skv_hook skv_mtp_hook(const skv_span *spans);
/** Whether a sequence drafts by the head. */
bool skv_sequence_predicts(const skv_sequence *sequence);
/** Before a step: there is no h of it yet. Its rows are the step's from `row` on. */
void skv_mtp_begin(skv_sequence *sequence, size_t row);
/** After a step, which the sequence has seen: h that was taken of its rows goes to the head. */
void skv_mtp_end(skv_sequence *sequence);
/** The head forgets tokens after the first n_seen. */
void skv_mtp_keep(skv_drafter *drafter, size_t n_seen);

/* ---- draft_plan.c ---- */

/** Of the texts that were proposed (requests[i].n tokens, skv_drafter.n_match) as many tokens stay
 * as the step has rows for and, for AUTO, as pay. Returns how many. */
size_t skv_draft_plan_texts(skv_draft_request *requests, size_t n, const skv_draft_step *step);
/** Whether a sequence's model is to draft for it. Where that pays more than its text, the text is
 * dropped. */
bool skv_draft_plan_asks(skv_draft_request *request, const skv_draft_step *step);
/** Learns from the time of a step of an engine that holds nothing but answers; other steps teach
 * nothing. Called while its ready rows are known. */
void skv_draft_plan_learn_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                               double ns);
/** After the step: learns from the fate of a draft of the source `last`. */
void skv_draft_plan_learn(skv_sequence *sequence, size_t n_drafted, size_t n_right);

/** How many ready rows a sequence has that are those of the tokens ids [n]: n or 0. */
size_t skv_sequence_ready(const skv_sequence *sequence, const int32_t *ids, size_t n);
/** Keeps the first n of its ready rows and takes the others back; so does an auxiliary with the
 * tokens that it has read after them. */
void skv_sequence_keep_ready(skv_sequence *sequence, size_t n);

#endif
