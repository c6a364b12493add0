/*
 * A model beside an engine's own that drafts (`--draft MODEL`): any that has the same vocabulary.
 * It reads a prompt when it is first asked for a draft: at once for a sequence that runs alone,
 * else in parts, one in each step, so that other sequences do not wait for it.
 */
#ifndef SKV_ENGINE_DRAFT_MODEL_H
#define SKV_ENGINE_DRAFT_MODEL_H

#include "second_model/second_model.h"

typedef struct skv_engine_draft {
    skv_second_model model; /* no configuration: there is none */
    skv_weights weights;    /* as asked for */
} skv_engine_draft;

/** Refuses a source that drafts by a model where there is none. */
SKV_MUST_CHECK skv_status skv_engine_check_draft_model(const skv_engine *engine,
                                                       const skv_speculation *how, skv_error *err);
/** Opens options.draft_model without weights, and checks it against the engine's own model. */
SKV_MUST_CHECK skv_status skv_engine_draft_open(skv_engine *engine, skv_error *err);

#endif
