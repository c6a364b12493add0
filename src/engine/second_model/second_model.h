/*
 * A model beside an engine's own: the auxiliary of KV Prediction, or one that drafts
 * (engine_draft.h). It has a page store and a workspace of its own, and shares the back end.
 */
#ifndef SKV_ENGINE_SECOND_MODEL_H
#define SKV_ENGINE_SECOND_MODEL_H

#include "format/source.h"
#include "kv/kv_cache.h"
#include "model/forward.h"
#include "model/model.h"
#include "skv/skv.h"

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

#endif
