/* KV Prediction in an engine: opening the auxiliary model, and steps. See engine_kvpred.h. */
#include "engine/engine_kvpred.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "prefill/methods.h"
#include "text/tokenizer.h"

/* ---- opening ---- */

/* An auxiliary without a tokenizer has the base's. */
static skv_status check_tokenizers(const char *path, const char *folder, skv_error *err)
{
    skv_tokenizer *base = NULL, *own = NULL;
    skv_status status = skv_tokenizer_open_folder(path, &base, err);
    if (status == SKV_OK) status = skv_tokenizer_open_folder(folder, &own, err);
    if (status == SKV_OK && base && own) status = skv_tokenizer_compare(base, own, path, err);
    skv_tokenizer_free(base);
    skv_tokenizer_free(own);
    return status;
}

static skv_status open_files(skv_engine *e, skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    const char *path = skv_source_path(e->source);
    char *folder = skv_path_join(path, e->config->auxiliary);
    char *file = skv_path_join(path, SKV_KVPRED_FILE);
    skv_status status = folder && file ? skv_source_open(folder, &k->source, err)
                                       : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    if (status == SKV_OK) k->config = skv_source_config(k->source);
    if (status == SKV_OK) status = check_tokenizers(path, folder, err);
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
        SKV_TRY(skv_preset_auxiliary(preset, e->config, &k->preset, err));
        k->config = k->preset;
    }
    const char *path = e->source ? skv_source_path(e->source) : preset;
    SKV_TRY(skv_kvpred_check(e->config, k->config, path, err));
    SKV_TRY(skv_plan_full(&k->plan, k->config, true, err));
    SKV_TRY(skv_plan_foreign(&k->foreign_plan, e->config, err));
    k->on = true;
    return SKV_OK;
}

/* Pages of the auxiliary for as many tokens as the base has. */
static size_t count_pages(const skv_engine *e)
{
    const skv_engine_options *o = &e->options;
    const skv_kv_layout *layout = &e->kvpred.plan.layout;
    size_t n_sequences = skv_ceil_div(o->kv_tokens, skv_max_size(1, o->context));
    return skv_kv_layout_pages(layout, o->kv_tokens) +
           (n_sequences - 1) * skv_kv_layout_tracks(layout);
}

skv_status skv_engine_kvpred_count(const skv_engine *e, const skv_load_options *load,
                                   skv_kv_type type, size_t *weights, size_t *kv, size_t *workspace,
                                   skv_error *err)
{
    const skv_engine_kvpred *k = &e->kvpred;
    size_t n_bytes;
    skv_load_options own = {.type = load->type, .teacher = true};
    SKV_TRY(skv_model_bytes(k->config, e->be, &own, &n_bytes, err));
    *weights += n_bytes + skv_kvpred_bytes(e->config, k->config, e->be, load->type, 0);
    *workspace +=
        skv_workspace_bytes(k->config, e->options.step_tokens) +
        skv_kvpred_bytes(e->config, k->config, e->be, load->type, e->options.step_tokens) -
        skv_kvpred_bytes(e->config, k->config, e->be, load->type, 0);
    size_t page = skv_kv_page_bytes(type, k->config->head_dim), pool;
    SKV_REQUIRE(skv_size_mul(count_pages(e), page, &pool) && skv_size_add(*kv, pool, kv), err,
                SKV_RANGE, "kv cache: %zu pages of %zu bytes do not fit", count_pages(e), page);
    return SKV_OK;
}

static skv_status take_spans(skv_engine *e, skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    size_t n = e->options.step_tokens;
    k->read = skv_alloc_zero(n, sizeof *k->read);
    k->kept = skv_alloc_zero(n, sizeof *k->kept);
    k->own = skv_alloc_zero(n, sizeof *k->own);
    k->span_of = skv_alloc_zero(n, sizeof *k->span_of);
    k->row0 = skv_alloc_zero(n, sizeof *k->row0);
    SKV_REQUIRE(k->read && k->kept && k->own && k->span_of && k->row0, err, SKV_MEMORY,
                "engine: no memory for spans");
    return SKV_OK;
}

skv_status skv_engine_kvpred_load(skv_engine *e, const skv_load_options *load, skv_kv_type kv,
                                  skv_error *err)
{
    skv_engine_kvpred *k = &e->kvpred;
    skv_load_options own = {.type = load->type, .teacher = true, .seed = load->seed + 1};
    const skv_kvpred_options predictor = {.file = k->file,
                                          .path = k->file ? SKV_KVPRED_FILE : "preset",
                                          .type = load->type,
                                          .max_rows = e->options.step_tokens,
                                          .seed = load->seed};
    SKV_TRY(skv_workspace_init(&k->ws, k->config, e->be, e->options.step_tokens, err));
    SKV_TRY(skv_kv_pool_create(e->be, kv, k->config->head_dim, count_pages(e), &k->pool, err));
    SKV_TRY(take_spans(e, err));
    SKV_TRY(skv_model_load(&k->model, k->config, k->source, e->be, &own, err));
    skv_status status =
        skv_kvpred_load(&k->predictor, e->config, k->config, e->be, &predictor, err);
    if (status == SKV_OK || !e->source) return status;
    return skv_fail_within(err, status, skv_source_path(e->source));
}

void skv_engine_kvpred_release(skv_engine *e)
{
    skv_engine_kvpred *k = &e->kvpred;
    skv_kvpred_release(&k->predictor);
    skv_model_release(&k->model);
    skv_kv_pool_free(k->pool);
    if (e->be) skv_workspace_release(&k->ws, e->be);
    skv_plan_release(&k->plan);
    skv_plan_release(&k->foreign_plan);
    skv_free(k->read);
    skv_free(k->kept);
    skv_free(k->own);
    skv_free(k->span_of);
    skv_free(k->row0);
    skv_safetensors_close(k->file);
    skv_source_close(k->source);
    skv_preset_free(k->preset);
    *k = (skv_engine_kvpred){0};
}

/* ---- steps ---- */

typedef struct kvpred_pass {
    skv_engine *e;
    skv_engine_kvpred *k;
    const skv_span *spans;
    const skv_forward_span *all; /* [n_spans]: the spans as the base has them */
    size_t n_spans;
    const skv_forward *base; /* whom rows are told to */
} kvpred_pass;

static bool ask_cancelled(void *user)
{
    const kvpred_pass *p = user;
    return p->base->cancelled && p->base->cancelled(p->base->user);
}

static void pass_row(void *user, size_t i_span, size_t i_row, const float *row)
{
    const kvpred_pass *p = user;
    p->base->on_row(p->base->user, p->k->span_of[i_span], p->k->row0[i_span] + i_row, row);
}

static skv_forward auxiliary_pass(const kvpred_pass *p, const skv_forward_span *spans, size_t n)
{
    return (skv_forward){.model = &p->k->model,
                         .plan = &p->k->plan,
                         .ws = &p->k->ws,
                         .spans = spans,
                         .n_spans = n,
                         .user = (void *)(uintptr_t)p,
                         .work = p->base->work,
                         .cancelled = ask_cancelled};
}

/* Rows of a span that the base runs with keys and values of its own: those whose output is wanted,
 * its last ones. */
static size_t count_own(const skv_forward_span *span)
{
    if (span->wanted == SKV_ROWS_NONE) return 0;
    return span->wanted == SKV_ROWS_LAST ? 1 : span->n;
}

/* Rows in front of those that only vote on which rows of a cache stay. */
static size_t count_voters(const skv_forward_span *span)
{
    const size_t first_own = span->n - count_own(span);
    return first_own - skv_min_size(first_own, span->deep_from);
}

/* The auxiliary reads what the base has read without it. */
static skv_status catch_up(const kvpred_pass *p, skv_sequence *s, size_t n_past, skv_error *err)
{
    while (s->read.n_rows < n_past) {
        size_t at = s->read.n_rows;
        size_t n = skv_min_size(n_past - at, p->e->options.step_tokens);
        SKV_TRY(skv_kv_cache_grow(&s->read, at + n, err));
        skv_forward_span span = {.ids = s->ids + at,
                                 .n = n,
                                 .n_past = at,
                                 .position0 = at,
                                 .context = s->max_tokens,
                                 .cache = &s->read,
                                 .wanted = SKV_ROWS_NONE,
                                 .deep_from = n};
        skv_forward f = auxiliary_pass(p, &span, 1);
        SKV_TRY(skv_forward_run(&f, err));
    }
    return SKV_OK;
}

/* All but the base's own rows through the auxiliary, and what follows of them to the base. */
static skv_status predict(const kvpred_pass *p, skv_error *err)
{
    skv_engine_kvpred *k = p->k;
    size_t n = 0;
    for (size_t i = 0; i < p->n_spans; i++) {
        skv_sequence *s = p->spans[i].sequence;
        skv_forward_span span = p->all[i];
        if (!s->predicts_all) span.n -= count_own(&span);
        if (span.n == 0) continue;
        span.wanted = SKV_ROWS_NONE;
        span.votes = NULL;
        span.deep_from = span.n;
        SKV_TRY(catch_up(p, s, span.n_past, err));
        SKV_TRY(skv_kv_cache_grow(&s->read, span.n_past + span.n, err));
        k->kept[n] = k->read[n] = span;
        k->read[n++].cache = &s->read;
    }
    if (n == 0) return SKV_OK;
    skv_kvpred_step step = {.predictor = &k->predictor,
                            .base = &p->e->model,
                            .plan = p->base->plan,
                            .ws = &p->e->ws,
                            .work = p->base->work,
                            .auxiliary = &k->model,
                            .auxiliary_ws = &k->ws,
                            .spans = k->kept,
                            .n_spans = n};
    skv_kvpred_begin(&step);
    skv_forward f = auxiliary_pass(p, k->read, n);
    f.on_kv = skv_kvpred_write;
    f.kv_user = &step;
    return skv_forward_run(&f, err);
}

/* Rows [first, first + n) of span i, as the base's next span. */
static skv_forward_span *take_rows(const kvpred_pass *p, size_t i, size_t first, size_t n,
                                   size_t *n_spans)
{
    skv_engine_kvpred *k = p->k;
    skv_forward_span *span = &k->own[*n_spans];
    *span = p->all[i];
    span->ids += first;
    span->n = n;
    span->n_past += first;
    span->position0 += first;
    span->deep_from = span->deep_from > first ? span->deep_from - first : 0;
    k->span_of[*n_spans] = i;
    k->row0[*n_spans] = first;
    *n_spans += 1;
    return span;
}

static skv_status run_spans(const kvpred_pass *p, size_t n_spans, bool foreign, skv_error *err)
{
    skv_forward f = *p->base;
    if (n_spans == 0) return SKV_OK;
    f.spans = p->k->own;
    f.n_spans = n_spans;
    f.on_row = pass_row;
    f.user = (void *)(uintptr_t)p;
    f.cancelled = ask_cancelled;
    if (foreign) f.plan = &p->k->foreign_plan;
    return skv_forward_run(&f, err);
}

/* Tokens that vote have the base's queries and predicted keys and values, also of their own, like
 * every token that nobody wants: eviction changes nothing of what it chooses from. */
static skv_status run_voters(const kvpred_pass *p, skv_error *err)
{
    size_t n_spans = 0;
    for (size_t i = 0; i < p->n_spans; i++) {
        const size_t n = count_voters(&p->all[i]);
        const size_t first = p->all[i].n - count_own(&p->all[i]) - n;
        if (n > 0) take_rows(p, i, first, n, &n_spans)->wanted = SKV_ROWS_NONE;
    }
    return run_spans(p, n_spans, true, err);
}

static skv_status run_own(const kvpred_pass *p, skv_error *err)
{
    size_t n_spans = 0;
    for (size_t i = 0; i < p->n_spans; i++) {
        const size_t n = count_own(&p->all[i]);
        if (n > 0) (void)take_rows(p, i, p->all[i].n - n, n, &n_spans);
    }
    return run_spans(p, n_spans, p->spans[0].sequence->predicts_all, err);
}

skv_status skv_engine_kvpred_run(skv_engine *e, const skv_span *spans, size_t span0, size_t n_spans,
                                 const skv_forward *base, skv_error *err)
{
    kvpred_pass p = {e, &e->kvpred, spans, e->spans + span0, n_spans, base};
    for (size_t i = 0; i < n_spans; i++) {
        spans[i].sequence->read_mark = spans[i].sequence->read.n_rows;
    }
    skv_status status = predict(&p, err);
    if (status == SKV_OK) status = run_voters(&p, err);
    if (status == SKV_OK) status = run_own(&p, err);
    for (size_t i = 0; status != SKV_OK && i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        skv_kv_cache_truncate(&s->read, s->read_mark);
    }
    return status;
}
