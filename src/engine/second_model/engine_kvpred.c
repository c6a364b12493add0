/* KV Prediction in an engine: opening the auxiliary model, and steps. See second_model.h. */
#include "second_model/second_model.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"
#include "prefill/method.h"

/* ---- opening ---- */

static skv_status open_files(skv_engine *e, skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    const char *path = skv_source_path(e->source);
    char *folder = skv_path_join(path, e->config->auxiliary);
    char *file = skv_path_join(path, SKV_KVPRED_FILE);
    skv_status status = folder && file ? skv_source_open(folder, &k->auxiliary.source, err)
                                       : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    if (status == SKV_OK) k->auxiliary.config = skv_source_config(k->auxiliary.source);
    if (status == SKV_OK) status = skv_second_model_check_ids(path, folder, "auxiliary model", err);
    if (status == SKV_OK) status = skv_safetensors_open(file, &k->file, err);
    skv_free(folder);
    skv_free(file);
    return status;
}

skv_status skv_engine_kvpred_open(skv_engine *e, const char *preset, skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    if (e->source) {
        SKV_TRY(open_files(e, err));
    } else {
        SKV_TRY(skv_preset_auxiliary(preset, e->config, &k->auxiliary.preset, err));
        k->auxiliary.config = k->auxiliary.preset;
    }
    const char *path = e->source ? skv_source_path(e->source) : preset;
    SKV_TRY(skv_kvpred_check(e->config, k->auxiliary.config, path, err));
    SKV_TRY(skv_plan_init(&k->auxiliary.plan, k->auxiliary.config, skv_fill_full, true, err));
    SKV_TRY(skv_plan_init(&k->predicted_plan, e->config, skv_fill_predicted, false, err));
    k->on = true;
    return SKV_OK;
}

skv_status skv_engine_kvpred_count(const skv_engine *e, const skv_load_options *load,
                                   skv_kv_type type, skv_engine_bytes *bytes, skv_error *err)
{
    const skv_engine_kvpred *k = &e->kvpred;
    const skv_config *c = k->auxiliary.config;
    bytes->weights =
        skv_bytes_add(bytes->weights, skv_kvpred_map_bytes(e->config, c, e->be, load->type));
    bytes->workspace = skv_bytes_add(
        bytes->workspace, skv_kvpred_row_bytes(e->config, c, e->be, e->options.step_tokens));
    return skv_second_model_count(e, &k->auxiliary, load, type, bytes, err);
}

static skv_status take_spans(skv_engine *e, skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    size_t n = e->options.step_tokens;
    k->read = skv_alloc_zero(n, sizeof *k->read);
    k->own = skv_alloc_zero(n, sizeof *k->own);
    k->readers = skv_alloc_zero(n, sizeof(skv_reader *));
    SKV_REQUIRE(k->read && k->own && k->readers, err, SKV_MEMORY, "engine: no memory for spans");
    return SKV_OK;
}

skv_status skv_engine_kvpred_load(skv_engine *e, const skv_load_options *load, skv_kv_type kv,
                                  skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    const skv_kvpred_options predictor = {.file = k->file,
                                          .path = k->file ? SKV_KVPRED_FILE : "preset",
                                          .type = load->type,
                                          .max_rows = e->options.step_tokens,
                                          .seed = load->seed};
    SKV_TRY(take_spans(e, err));
    SKV_TRY(skv_second_model_load(e, &k->auxiliary, load, kv, err));
    skv_status status =
        skv_kvpred_load(&k->predictor, e->config, k->auxiliary.config, e->be, &predictor, err);
    if (status == SKV_OK || !e->source) return status;
    return skv_fail_within(err, status, skv_source_path(e->source));
}

void skv_engine_kvpred_release(skv_engine *e)
{
    skv_engine_kvpred *k = &e->kvpred;
    skv_kvpred_release(&k->predictor);
    skv_second_model_release(&k->auxiliary, e->be);
    skv_plan_release(&k->predicted_plan);
    skv_free(k->read);
    skv_free(k->own);
    skv_free(k->readers);
    skv_safetensors_close(k->file);
    *k = (skv_engine_kvpred){0};
}

/* ---- the state of a sequence ---- */

skv_status skv_reader_create(skv_sequence *s, skv_error *err)
{
    const skv_engine *e = s->engine;
    s->reader = skv_alloc_zero(1, sizeof *s->reader);
    SKV_REQUIRE(s->reader, err, SKV_MEMORY, "sequence: no memory");
    return skv_kv_cache_init(&s->reader->cache, &e->kvpred.auxiliary.plan.layout, err);
}

void skv_reader_free(skv_reader *reader)
{
    if (!reader) return;
    skv_kv_cache_release(&reader->cache);
    skv_free(reader);
}

void skv_reader_begin(skv_sequence *s, const int32_t *ids, size_t n)
{
    skv_reader *reader = s->reader;
    const int32_t *ahead = s->ids + s->n_seen;
    size_t n_same = 0;
    while (n_same < n && s->n_seen + n_same < reader->cache.n_rows &&
           ahead[n_same] == ids[n_same]) {
        n_same++;
    }
    skv_kv_cache_truncate(&reader->cache, s->n_seen + n_same);
    reader->mark = reader->n_read;
}

void skv_reader_undo(skv_sequence *s)
{
    skv_reader *reader = s->reader;
    skv_kv_cache_truncate(&reader->cache, reader->mark);
    reader->n_read = reader->mark;
}

/* ---- steps ---- */

typedef struct kvpred_step {
    skv_engine *e;
    const skv_pass *base;  /* the base's pass, over the spans as they were given */
    const skv_span *spans; /* [base->n_spans] */
} kvpred_step;

static skv_status run_auxiliary(const kvpred_step *p, skv_pass_span *spans, size_t n,
                                const skv_hook *hook, skv_error *err)
{
    skv_pass pass = skv_second_model_pass(p->e, &p->e->kvpred.auxiliary, NULL, hook);
    pass.spans = spans;
    pass.n_spans = n;
    return skv_pass_run(&pass, err);
}

/* The base runs rows with keys and values of its own: those whose output is wanted. Rows in front
 * of them only vote on which rows of a cache stay. */
static size_t count_voters(const skv_pass_span *span)
{
    const size_t first_own = span->at.n - span->n_wanted;
    return first_own - skv_min_size(first_own, span->deep_from);
}

/* The auxiliary reads the tokens that the base has read without it. Tokens that it has read for
 * drafts it reads again: the bits are those of rows that came in one step. */
static skv_status catch_up(const kvpred_step *p, skv_sequence *s, skv_error *err)
{
    skv_kv_cache *cache = &s->reader->cache;
    skv_kv_cache_truncate(cache, s->reader->n_read);
    while (cache->n_rows < s->n_seen) {
        size_t at = cache->n_rows;
        size_t n = skv_min_size(s->n_seen - at, s->engine->options.step_tokens);
        SKV_TRY(skv_kv_cache_grow(cache, at + n, err));
        skv_pass_span span = skv_second_model_span(s, cache, s->ids + at, n, at);
        SKV_TRY(run_auxiliary(p, &span, 1, NULL, err));
    }
    return SKV_OK;
}

/* Runs all but the base's own rows through the auxiliary, and predicts the base's rows from
 * them. */
static skv_status predict(const kvpred_step *p, skv_error *err)
{
    skv_engine_kvpred *k = &p->e->kvpred;
    size_t n_spans = 0;
    for (size_t i = 0; i < p->base->n_spans; i++) {
        skv_sequence *s = p->spans[i].sequence;
        const skv_pass_span *given = &p->base->spans[i];
        const size_t n = given->at.n - (s->reader->all ? 0 : given->n_wanted);
        if (n == 0) continue;
        SKV_TRY(catch_up(p, s, err));
        SKV_TRY(skv_kv_cache_grow(&s->reader->cache, s->n_seen + n, err));
        k->readers[n_spans] = s->reader;
        k->read[n_spans] = skv_second_model_span(s, &s->reader->cache, given->ids, n, s->n_seen);
        p->base->ws->step_spans[n_spans] = k->read[n_spans].at;
        p->base->ws->step_spans[n_spans++].table = s->cache.table;
    }
    if (n_spans == 0) return SKV_OK;
    skv_kvpred_step step = {.predictor = &k->predictor, .base = p->base, .n_spans = n_spans};
    const skv_hook hook = skv_kvpred_hook(&step);
    const skv_status status = run_auxiliary(p, k->read, n_spans, &hook, err);
    const skv_status ended = skv_kvpred_end(&step, status == SKV_OK ? err : NULL);
    if (status != SKV_OK || ended != SKV_OK) return status != SKV_OK ? status : ended;
    for (size_t i = 0; i < n_spans; i++) {
        skv_reader *reader = k->readers[i];
        reader->n_read = reader->cache.n_rows;
    }
    return SKV_OK;
}

/* Rows [first, first + n) of span i, as the base's next span. */
static skv_pass_span *take_rows(const kvpred_step *p, size_t i, size_t first, size_t n,
                                size_t *n_spans)
{
    skv_pass_span *span = &p->e->kvpred.own[(*n_spans)++];
    *span = p->base->spans[i];
    span->ids += first;
    span->at.n = n;
    span->at.n_past += first;
    span->at.position0 += first;
    span->deep_from = span->deep_from > first ? span->deep_from - first : 0;
    return span;
}

static skv_status run_spans(const kvpred_step *p, size_t n_spans, bool predicted, skv_error *err)
{
    skv_pass pass = *p->base;
    if (n_spans == 0) return SKV_OK;
    pass.spans = p->e->kvpred.own;
    pass.n_spans = n_spans;
    if (predicted) pass.plan = &p->e->kvpred.predicted_plan;
    return skv_pass_run(&pass, err);
}

/* Tokens that vote have the base's queries and predicted keys and values, also of their own,
 * like every token whose output is not wanted: eviction leaves the rows that it chooses from
 * unchanged. */
static skv_status run_voters(const kvpred_step *p, skv_error *err)
{
    size_t n_spans = 0;
    for (size_t i = 0; i < p->base->n_spans; i++) {
        const skv_pass_span *given = &p->base->spans[i];
        const size_t n = count_voters(given), first = given->at.n - given->n_wanted - n;
        if (n > 0) take_rows(p, i, first, n, &n_spans)->n_wanted = 0;
    }
    return run_spans(p, n_spans, true, err);
}

static skv_status run_own(const kvpred_step *p, skv_error *err)
{
    size_t n_spans = 0;
    for (size_t i = 0; i < p->base->n_spans; i++) {
        const skv_pass_span *given = &p->base->spans[i];
        const size_t n = given->n_wanted;
        if (n > 0) (void)take_rows(p, i, given->at.n - n, n, &n_spans);
    }
    return run_spans(p, n_spans, p->spans[0].sequence->reader->all, err);
}

skv_status skv_engine_kvpred_run(const skv_pass *base, const skv_span *spans, skv_error *err)
{
    const kvpred_step p = {spans[0].sequence->engine, base, spans};
    SKV_TRY(predict(&p, err));
    SKV_TRY(run_voters(&p, err));
    return run_own(&p, err);
}
