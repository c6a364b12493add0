/*
 * KV Prediction in an engine (prefill/kvpred.h): the auxiliary model beside the base, with a page
 * pool and a workspace of its own.
 *
 * Of a span of new tokens the base runs those whose logits are wanted; all others run the
 * auxiliary, and the base gets keys and values that are predicted from its. So a prompt's last
 * token, and every generated one, has keys and values of the base's own, as the paper's figure 2b
 * has it. Tokens that the base ran alone are read by the auxiliary when the next prompt comes.
 * Tokens that only vote on which rows stay run both: the base has their queries, and keys and
 * values that are predicted, so that it reads what it would without eviction.
 */
#ifndef SKV_ENGINE_KVPRED_H
#define SKV_ENGINE_KVPRED_H

#include "prefill/kvpred.h"
#include "skv/skv.h"

typedef struct skv_engine_kvpred {
    bool on;
    skv_source *source;       /* owned; NULL for a preset */
    skv_config *preset;       /* owned; NULL for a file */
    const skv_config *config; /* of one of the two */
    skv_safetensors *file;    /* owned; the predictor's, NULL for a preset */
    skv_model model;
    skv_plan plan;         /* the auxiliary's */
    skv_plan foreign_plan; /* the base's where all of its keys and values are predicted */
    skv_kv_pool *pool;     /* owned */
    skv_workspace ws;
    skv_kvpred predictor;
    /* Of a step, owned, [step_tokens] each: rows that the auxiliary runs, where the base keeps
     * them, and rows that the base runs itself: rows row0[i].. of span span_of[i]. */
    skv_forward_span *read, *kept, *own;
    size_t *span_of, *row0;
} skv_engine_kvpred;

/** Opens what the engine's configuration names beside the base, without weights, and checks it. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_open(skv_engine *engine, const char *preset,
                                                 skv_error *err);
/** Bytes of weights, of the page pool and of workspaces, to be added. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_count(const skv_engine *engine,
                                                  const skv_load_options *load, skv_kv_type type,
                                                  size_t *weights, size_t *kv, size_t *workspace,
                                                  skv_error *err);
SKV_MUST_CHECK skv_status skv_engine_kvpred_load(skv_engine *engine, const skv_load_options *load,
                                                 skv_kv_type kv, skv_error *err);
void skv_engine_kvpred_release(skv_engine *engine);

/** Runs spans of sequences that predict, as engine->spans from span0 on describes them; `base` has
 * plan and sinks of a pass of the base. */
SKV_MUST_CHECK skv_status skv_engine_kvpred_run(skv_engine *engine, const skv_span *spans,
                                                size_t span0, size_t n_spans,
                                                const skv_forward *base, skv_error *err);

#endif
