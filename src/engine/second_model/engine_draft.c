/* A model that drafts, beside an engine's own: see second_model.h. */
#include "second_model/second_model.h"

#include <string.h>

#include "engine/engine.h"
#include "prefill/method.h"

static const char PRESET[] = "preset:";

static skv_status open_config(skv_engine *e, const char *path, skv_error *err)
{
    skv_second_model *draft = &e->draft.model;
    if (strncmp(path, PRESET, sizeof PRESET - 1) == 0) {
        SKV_TRY(skv_preset_config(path + sizeof PRESET - 1, 0, 0, &draft->preset, err));
        draft->config = draft->preset;
        return SKV_OK;
    }
    SKV_TRY(skv_source_open(path, &draft->source, err));
    draft->config = skv_source_config(draft->source);
    return SKV_OK;
}

/* Embeddings may have more rows than the tokenizer has tokens, and not equally many. */
static skv_status check_vocabulary(const skv_engine *e, const char *path, skv_error *err)
{
    const size_t n = e->config->vocab, n_own = e->draft.model.config->vocab;
    if (e->source && e->draft.model.source) {
        return skv_second_model_check_ids(skv_source_path(e->source), path, "draft model", err);
    }
    SKV_REQUIRE(n == n_own, err, SKV_FORMAT,
                "%s: the draft model's vocabulary has %zu tokens, the base's %zu", path, n_own, n);
    return SKV_OK;
}

skv_status skv_engine_draft_open(skv_engine *e, skv_error *err)
{
    const char *path = e->options.draft_model;
    SKV_TRY(open_config(e, path, err));
    skv_second_model *draft = &e->draft.model;
    const skv_model_traits model = skv_model_traits_of(draft->config, draft->source);
    SKV_REQUIRE(model.kind != SKV_MODEL_KVPRED, err, SKV_UNSUPPORTED,
                "%s: a KV Prediction model cannot draft for another; its auxiliary can", path);
    SKV_REQUIRE(!skv_config_is_hybrid(draft->config), err, SKV_UNSUPPORTED,
                "%s: a hybrid model cannot draft for another: its states cannot take rejected "
                "tokens back",
                path);
    SKV_TRY(check_vocabulary(e, path, err));
    const skv_prefill prefill = skv_prefill_resolve(SKV_PREFILL_AUTO, model.kind);
    return skv_plan_method(&draft->plan, prefill, draft->config, true, err);
}

skv_status skv_engine_check_draft_model(const skv_engine *e, const skv_speculation *how,
                                        skv_error *err)
{
    const bool asks = how->source == SKV_DRAFT_MODEL || how->source == SKV_DRAFT_TEXT_MODEL;
    const bool apart = e->options.draft_model || (e->draft.model.config && !e->draft.mtp.on);
    SKV_REQUIRE(!asks || apart, err, SKV_UNSUPPORTED,
                "speculation: %s: no draft model was given (--draft MODEL)",
                skv_drafting_name(how->source));
    const bool predicts = how->source == SKV_DRAFT_MTP || how->source == SKV_DRAFT_TEXT_MTP;
    SKV_REQUIRE(!(predicts || e->options.mtp) || !apart, err, SKV_UNSUPPORTED,
                "speculation: mtp: not beside a draft model");
    SKV_REQUIRE(!predicts || e->draft.mtp.on || skv_engine_wants_mtp(e), err, SKV_UNSUPPORTED,
                "speculation: %s: the MTP head was not loaded (--speculate mtp at the start)",
                skv_drafting_name(how->source));
    return SKV_OK;
}
