/* The head of a model that predicts further tokens, in an engine: see second_model.h. */
#include "engine/engine.h"
#include "prefill/method.h"
#include "second_model/second_model.h"

bool skv_engine_wants_mtp(const skv_engine *e)
{
    const skv_drafting source = e->options.speculation.source;
    return e->options.mtp || source == SKV_DRAFT_MTP || source == SKV_DRAFT_TEXT_MTP;
}

skv_status skv_engine_mtp_open(skv_engine *e, skv_error *err)
{
    skv_second_model *head = &e->draft.model;
    SKV_REQUIRE(e->source, err, SKV_UNSUPPORTED, "speculation: mtp: a preset has no MTP head");
    SKV_REQUIRE(!e->ranks, err, SKV_UNSUPPORTED,
                "speculation: mtp: the head is not divided between ranks");
    SKV_TRY(skv_source_open_mtp(skv_source_path(e->source), &head->source, err));
    head->config = skv_source_config(head->source);
    e->draft.mtp.on = true;
    return skv_plan_method(&head->plan, SKV_PREFILL_FULL, head->config, true, err);
}

typedef struct mtp_areas {
    skv_area_spec of[2]; /* told, in */
} mtp_areas;

static mtp_areas areas_of(const skv_engine *e)
{
    const size_t T = e->options.step_tokens, D = e->config->hidden;
    return (mtp_areas){{{SKV_AREA_F32, T, D, false, true}, {SKV_AREA_F32, T, 2 * D, false, true}}};
}

skv_bytes skv_engine_mtp_bytes(const skv_engine *e)
{
    const mtp_areas areas = areas_of(e);
    return e->be->areas_bytes(e->be, areas.of, 2);
}

skv_status skv_engine_mtp_load(skv_engine *e, skv_error *err)
{
    const mtp_areas areas = areas_of(e);
    skv_model *head = &e->draft.model.model;
    skv_area *made[2];
    head->head = e->model.head;
    head->embedding_table = e->model.embedding_table;
    SKV_TRY(e->be->areas_create(e->be, areas.of, 2, made, err));
    e->draft.mtp.told = made[0];
    e->draft.mtp.in = made[1];
    return SKV_OK;
}

void skv_engine_mtp_release(skv_engine *e)
{
    skv_engine_mtp *mtp = &e->draft.mtp;
    skv_model *head = &e->draft.model.model;
    if (!mtp->on) return;
    head->head = NULL;
    head->embedding_table = NULL;
    skv_area *made[] = {mtp->told, mtp->in};
    if (mtp->told) e->be->areas_free(e->be, made, 2);
}
