/*
 * KV Prediction in an engine (prefill/kvpred.h): the auxiliary model beside the base, with a page
 * store and a workspace of its own.
 *
 * Of a span of new tokens the base runs those whose logits are wanted; all others run the
 * auxiliary, and the base's keys and values are predicted from the auxiliary's. So a prompt's last
 * token, and every generated one, has keys and values of the base's own, as the paper's figure 2b
 * has it. Tokens that the base ran alone are read by the auxiliary when the next prompt comes.
 * Tokens that only vote on which rows stay run both: the base has their queries, and keys and
 * values that are predicted, so that it reads the same rows as without eviction.
 */
#ifndef SKV_ENGINE_KVPRED_H
#define SKV_ENGINE_KVPRED_H

#include "prefill/kvpred.h"
#include "second_model/second_model.h"
#include "skv/skv.h"
#include "steps/step.h"

typedef struct skv_engine_kvpred {
    bool on;
    skv_second_model auxiliary;
    skv_safetensors *file;   /* owned; the predictor's, NULL for a preset */
    skv_plan predicted_plan; /* the base's where all of its keys and values are predicted */
    skv_kvpred predictor;
    /* Of a step, owned, [step_tokens] each: rows that the auxiliary runs, and rows that the base
     * runs itself. */
    skv_pass_span *read, *own;
    struct skv_reader **readers; /* owned, [step_tokens]: the rows of `read` */
} skv_engine_kvpred;

/* The state of a sequence whose prompts an auxiliary model reads. */
typedef struct skv_reader {
    skv_kv_cache cache; /* the auxiliary's, of the tokens that it has read */
    size_t n_read;      /* its rows that it read in prompts; the rows after them are of drafts */
    size_t mark;        /* n_read before the step that is running */
    bool all;           /* for likelihoods: no token has keys and values of the base's own */
} skv_reader;

/** Opens the second model that the engine's configuration names, without weights, and checks it. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_open(skv_engine *engine, const char *preset,
                                                 skv_error *err);
/** Adds the memory of the auxiliary. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_count(const skv_engine *engine,
                                                  const skv_load_options *load, skv_kv_type type,
                                                  skv_engine_bytes *bytes, skv_error *err);
SKV_MUST_CHECK skv_status skv_engine_kvpred_load(skv_engine *engine, const skv_load_options *load,
                                                 skv_kv_type kv, skv_error *err);
void skv_engine_kvpred_release(skv_engine *engine);

/** Gives a sequence its reader. */
SKV_MUST_CHECK skv_status skv_reader_create(skv_sequence *sequence, skv_error *err);
void skv_reader_free(skv_reader *reader);

/** Before a step: of the rows that stand ahead of the sequence those of the tokens ids [n] stay. */
void skv_reader_begin(skv_sequence *sequence, const int32_t *ids, size_t n);
/** The step failed: rows that prompts had read before it stay. */
void skv_reader_undo(skv_sequence *sequence);

/** Runs the base's pass over spans of sequences that have readers, given as `spans`. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_run(const skv_pass *base, const skv_span *spans,
                                                skv_error *err);

#endif
