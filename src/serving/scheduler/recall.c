/*
 * Prompts that continue an answer: the model's answer comes back as text, which the tokenizer may
 * cut otherwise than the model did. The ids of the answer are put back in its place, so that its
 * pages are found again.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "language/vocab_impl.h"
#include "scheduler/worker.h"

/* Texts are shared as pages are; the same text is not the same with and without BOS. */
static uint64_t domain_of(const skv_scheduler *s, const skv_job_params *p, bool add_special)
{
    return skv_mix64(skv_worker_domain(s, p) + add_special);
}

/* The splice with the answer that keeps most. */
static skv_status splice_best(const skv_vocab *vocab, const skv_read_text *read,
                              const skv_text_found *found, skv_splice *best, skv_error *err)
{
    const int32_t *known = found->ids;
    *best = (skv_splice){.ids = NULL};
    for (size_t i = 0; i < found->n_answers; i++) {
        skv_splice splice;
        skv_status status = skv_vocab_splice(vocab, read, known, found->n_ids[i], &splice, err);
        if (status != SKV_OK) {
            skv_text_free(best->ids);
            return status;
        }
        known += found->n_ids[i];
        bool is_better = splice.n_kept > best->n_kept;
        skv_text_free(is_better ? best->ids : splice.ids);
        if (is_better) *best = splice;
    }
    return SKV_OK;
}

skv_status skv_scheduler_recall(skv_scheduler *s, skv_job_params *params,
                                const skv_recalled_text *recalled, int32_t **ids, skv_error *err)
{
    const skv_text_piece *text = &recalled->text;
    *ids = NULL;
    params->text = (skv_prompt_text){.key = 0};
    if (!s->texts || params->no_prefix_cache || text->n == 0) return SKV_OK;
    uint64_t domain = domain_of(s, params, recalled->add_special);
    skv_text_found found;
    /* As many as the caller's account has room for: each is as long as a prompt. */
    skv_text_index_find(s->texts, domain, *text, params->n_ids + s->context, &found);
    skv_read_text read = {.text = text->text,
                          .n = text->n,
                          .add_special = recalled->add_special,
                          .ids = params->ids,
                          .n_ids = params->n_ids,
                          .data = recalled->data};
    skv_splice splice;
    skv_status status = splice_best(s->vocab, &read, &found, &splice, err);
    skv_free(found.ids);
    if (status != SKV_OK) return status;
    params->text = (skv_prompt_text){.key = found.key, .domain = domain};
    if (!splice.ids) return SKV_OK;
    params->text.n_plain = splice.n_same;
    params->text.n_matched = splice.n_kept;
    params->ids = *ids = splice.ids;
    params->n_ids = splice.n_ids;
    return SKV_OK;
}

void skv_worker_keep_text(skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    if (!s->texts || p->text.key == 0 || !lane->queue.begun || skv_lane_generated(lane) == 0)
        return;
    skv_text_index_put(s->texts, p->text.domain, p->text.key, lane->ids, lane->n_ids);
    if (!s->spill) return;
    skv_spill_put_text(s->spill, p->text.domain, p->text.key, lane->ids, lane->n_ids);
}
