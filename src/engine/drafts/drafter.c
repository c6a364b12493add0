/* The drafts of a sequence: see draft.h. */
#include "drafts/draft.h"

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"

void skv_drafter_free(skv_drafter *d)
{
    if (!d) return;
    if (d->text) d->text->free(d->state);
    if (d->model && (d->model->is_apart || d->model->predicts)) skv_kv_cache_release(&d->cache);
    if (d->mtp.h) d->mtp.be->areas_free(d->mtp.be, &d->mtp.h, 1);
    if (d->ready.x) d->ready.be->areas_free(d->ready.be, &d->ready.x, 1);
    skv_free(d);
}

/* A drafter of `source`, with the settings of `how`. */
static skv_status create_drafter(skv_drafting source, const skv_speculation *how,
                                 const skv_sequence *s, skv_drafter **out, skv_error *err)
{
    skv_drafter *d = skv_alloc_zero(1, sizeof *d);
    SKV_REQUIRE(d, err, SKV_MEMORY, "drafts: no memory");
    const skv_draft_method *method = skv_draft_method_of(source);
    d->text = method->first ? method->first : method->propose ? method : NULL;
    d->model = method->then ? method->then : method->run ? method : NULL;
    d->most = how->most;
    d->sure = how->sure;
    d->measures = how->source == SKV_DRAFT_AUTO;
    skv_status status = SKV_OK;
    skv_backend *be = s->engine->be;
    const skv_area_spec spec = {.kind = SKV_AREA_F32,
                                .n_rows = SKV_DRAFT_MAX + 1,
                                .n_columns = s->engine->config->hidden,
                                .lasts = true};
    if (d->model && d->model->keeps_rows) {
        d->ready = (skv_ready_rows){.n_columns = spec.n_columns, .be = be};
        status = be->areas_create(be, &spec, 1, &d->ready.x, err);
    }
    if (d->model && d->model->predicts) {
        d->mtp = (skv_mtp_rows){.be = be, .next_at = SIZE_MAX};
        status = be->areas_create(be, &spec, 1, &d->mtp.h, err);
    }
    if (d->model && (d->model->is_apart || d->model->predicts) && status == SKV_OK) {
        const skv_engine *e = s->engine;
        status = skv_kv_cache_init(&d->cache, &e->draft.model.plan.layout, err);
    }
    if (d->text && status == SKV_OK) status = d->text->create(s->max_tokens, &d->state, err);
    if (status != SKV_OK) {
        skv_drafter_free(d);
        return status;
    }
    *out = d;
    return SKV_OK;
}

/* How its tokens are read, where that is not as the engine's options say. */
static skv_prefill prefill_of(const skv_sequence *s)
{
    if (s->plan == &s->engine->teacher_plan) return SKV_PREFILL_TEACHER;
    return s->unskipped ? SKV_PREFILL_FULL : SKV_PREFILL_AUTO;
}

/* The source that AUTO stands for: the first that the model and its methods have; NONE: no
 * source at all. */
static skv_drafting choose_source(const skv_sequence *s, const skv_speculation *how)
{
    static const skv_drafting sources[] = {SKV_DRAFT_TEXT_MODEL, SKV_DRAFT_TEXT_SELF,
                                           SKV_DRAFT_TEXT_AUX, SKV_DRAFT_TEXT};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        skv_speculation one = *how;
        one.source = sources[i];
        if (skv_engine_check_speculation(s->engine, prefill_of(s), &one, NULL) == SKV_OK) {
            return one.source;
        }
    }
    return SKV_DRAFT_NONE;
}

skv_status skv_sequence_set_speculation(skv_sequence *s, const skv_speculation *how, skv_error *err)
{
    skv_drafter *drafter = NULL;
    SKV_TRY(skv_speculation_check(how, err));
    const skv_drafting source = how->source == SKV_DRAFT_AUTO ? choose_source(s, how) : how->source;
    if (source != SKV_DRAFT_NONE) {
        SKV_TRY(skv_engine_check_speculation(s->engine, prefill_of(s), how, err));
        SKV_TRY(create_drafter(source, how, s, &drafter, err));
    }
    skv_sequence_keep_ready(s, 0);
    skv_drafter_free(s->drafter);
    s->drafter = drafter;
    skv_sequence_set_learnt(s, &s->engine->draft_learnt);
    return SKV_OK;
}

void skv_sequence_set_learnt(skv_sequence *s, skv_draft_learnt *learnt)
{
    skv_drafter *d = s->drafter;
    if (!d) return;
    d->learnt = learnt;
    if (d->model && !d->gain.known) d->gain = learnt->gains[d->model->id];
}
