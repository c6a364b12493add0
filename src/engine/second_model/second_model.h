/*
 * A model beside an engine's own: the auxiliary of KV Prediction, or one that drafts
 * (engine_draft.c). It has a page store and a workspace of its own, and shares the back end.
 */
#ifndef SKV_ENGINE_SECOND_MODEL_H
#define SKV_ENGINE_SECOND_MODEL_H

#include "format/source.h"
#include "kv/kv_cache.h"
#include "model/forward.h"
#include "model/model.h"
#include "prefill/kvpred.h"
#include "skv/skv.h"
#include "steps/step.h"

typedef struct skv_second_model {
    skv_source *source;       /* owned; NULL for a preset */
    skv_config *preset;       /* owned; NULL for a file */
    const skv_config *config; /* of one of the two; NULL: there is no second model */
    skv_model model;
    skv_plan plan;
    skv_kv_store *store; /* owned */
    skv_workspace ws;
} skv_second_model;

/* The memory of an engine. */
typedef struct skv_engine_bytes {
    skv_bytes weights, workspace;
    skv_bytes kv;     /* of pages and states */
    skv_bytes states; /* of states alone */
} skv_engine_bytes;

/** Refuses a model at `other` that means another text by an id than the one at `path` does; models
 * without a tokenizer are not compared. `role` names it in errors: "auxiliary". */
SKV_MUST_CHECK skv_status skv_second_model_check_ids(const char *path, const char *other,
                                                     const char *role, skv_error *err);
/** Adds its memory; source, configuration and plan are there. */
SKV_MUST_CHECK skv_status skv_second_model_count(const skv_engine *engine,
                                                 const skv_second_model *second,
                                                 const skv_load_options *load, skv_kv_type type,
                                                 skv_engine_bytes *bytes, skv_error *err);
/** Loads its weights, and makes its store and workspace. */
SKV_MUST_CHECK skv_status skv_second_model_load(const skv_engine *engine, skv_second_model *second,
                                                const skv_load_options *load, skv_kv_type type,
                                                skv_error *err);
/** A pass of it, as skv_step_pass. */
skv_pass skv_second_model_pass(skv_engine *engine, skv_second_model *second,
                               const skv_step_sink *sink, const skv_hook *hook);
/** skv_step_span, with rows in the model's cache of the sequence. */
skv_pass_span skv_second_model_span(skv_sequence *sequence, const skv_kv_cache *cache,
                                    const int32_t *ids, size_t n, size_t at);
void skv_second_model_release(skv_second_model *second, skv_backend *be);

/*
 * ---- engine_draft.c ----
 *
 * A model beside an engine's own that drafts (`--draft MODEL`): any that has the same vocabulary.
 * It reads a prompt when it is first asked for a draft: at once for a sequence that runs alone,
 * else in parts, one in each step, so that other sequences do not wait for it.
 */

/* The areas of a head that predicts further tokens (engine_mtp.c), owned. */
typedef struct skv_engine_mtp {
    bool on;        /* the model that drafts is that head */
    skv_area *told; /* [T, D]: h of the rows of a step, as they leave the model's last norm */
    skv_area *in;   /* [T, 2 D]: the input of its first product */
} skv_engine_mtp;

typedef struct skv_engine_draft {
    skv_second_model model; /* no configuration: there is none */
    skv_weights weights;    /* as asked for */
    skv_engine_mtp mtp;
} skv_engine_draft;

/** Refuses a source that drafts by a model where there is none. */
SKV_MUST_CHECK skv_status skv_engine_check_draft_model(const skv_engine *engine,
                                                       const skv_speculation *how, skv_error *err);
/** Opens options.draft_model without weights, and checks it against the engine's own model. */
SKV_MUST_CHECK skv_status skv_engine_draft_open(skv_engine *engine, skv_error *err);

/*
 * ---- engine_mtp.c ----
 *
 * The head of a model that predicts further tokens (`--speculate mtp`) takes the place of the model
 * that drafts: it is one layer, with pages and a workspace of its own, and has the embedding and
 * the head of the engine's own model.
 */

/** Whether the engine's options ask for one. */
bool skv_engine_wants_mtp(const skv_engine *engine);
/** Opens it without weights. */
SKV_MUST_CHECK skv_status skv_engine_mtp_open(skv_engine *engine, skv_error *err);
skv_bytes skv_engine_mtp_bytes(const skv_engine *engine);
/** Its weights are loaded; makes its areas, and borrows those of the model. */
SKV_MUST_CHECK skv_status skv_engine_mtp_load(skv_engine *engine, skv_error *err);
void skv_engine_mtp_release(skv_engine *engine);

/*
 * ---- engine_kvpred.c ----
 *
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
