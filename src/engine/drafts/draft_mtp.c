/*
 * A head that the model has for further tokens drafts (multi-token prediction: DeepSeek-V3,
 * arXiv:2412.19437, 2.2, as Qwen 3.5 and Qwen3-Next have it). Its row i is
 *
 *     x_i = Wfc [NORM_e(embed(t_{i+1})), NORM_h(h_i)]    h_i: the result of the model's last norm
 *     layer of attention, norm, the model's head: t_{i+2}
 *
 * and it goes on with its own output as h. Keys and values of the head are its own, of rows that
 * there is h of: those that ran to the model's end. After tokens that have none (prompts of SwiftKV
 * stop at layer l, known prompts come from the cache), the head begins anew with the next one that
 * has. h of some last tokens is kept until the token after them is certain.
 */
#include <assert.h>

#include "base/size.h"
#include "drafts/draft_walk.h"
#include "engine/engine.h"

enum { H_ROWS = SKV_DRAFT_MAX + 1 };

bool skv_sequence_predicts(const skv_sequence *s)
{
    return s->drafter && s->drafter->model && s->drafter->model->predicts;
}

static skv_rows told_rows(const skv_engine *e, size_t row)
{
    const size_t D = e->config->hidden;
    return (skv_rows){e->draft.mtp.told, row * D, D};
}

static skv_rows own_rows(const skv_sequence *s, size_t row)
{
    const size_t D = s->engine->config->hidden;
    return (skv_rows){s->drafter->mtp.h, row * D, D};
}

/* The position of the row that comes next in the cache. */
static size_t next_row(const skv_drafter *d)
{
    return d->mtp.first + d->cache.n_rows;
}

/* The head begins anew at token `first`. */
static void begin_at(skv_drafter *d, size_t first)
{
    skv_kv_cache_truncate(&d->cache, 0);
    d->mtp.first = first;
    d->mtp.n = 0;
    d->mtp.next_at = SIZE_MAX;
}

void skv_mtp_keep(skv_drafter *d, size_t n_seen)
{
    if (n_seen <= d->mtp.first) {
        begin_at(d, n_seen);
        return;
    }
    skv_kv_cache_truncate(&d->cache, skv_min_size(d->cache.n_rows, n_seen - d->mtp.first));
    d->mtp.n = skv_min_size(d->mtp.n, n_seen - next_row(d));
}

/* Whether the head has all before token `at`, which is `next`. */
static bool has_all(const skv_drafter *d, size_t at, int32_t next)
{
    if (next_row(d) + d->mtp.n != at) return false;
    return d->mtp.n > 0 || d->cache.n_rows == 0 || (d->mtp.next_at == at && d->mtp.next == next);
}

/* ---- h of the model's own rows ---- */

void skv_mtp_begin(skv_sequence *s, size_t row)
{
    s->drafter->mtp.told_row = row;
    s->drafter->mtp.n_told = 0;
}

static void take_h(void *user, skv_pass *p, size_t i_layer)
{
    const skv_span *spans = user;
    size_t at = 0; /* the span's first row of x */
    if (i_layer + 1 != p->c->n_layers) return;
    for (size_t i = 0; i < p->n_spans; i++) {
        const skv_pass_span *span = &p->spans[i];
        skv_sequence *s = spans[i].sequence;
        const size_t first = p->set == SKV_SET_ALL ? 0 : skv_span_kept(span);
        const size_t n = span->at.n - first;
        if (skv_sequence_predicts(s) && n > 0) {
            skv_mtp_rows *mtp = &s->drafter->mtp;
            p->be->norm(p->be, &(skv_norm_args){told_rows(s->engine, mtp->told_row),
                                                skv_rows_from(p->ws->x, at, 0), n, p->c->hidden,
                                                skv_pass_norm(p, p->m->final_norm)});
            mtp->told_at = span->at.position0 + first;
            mtp->n_told = n;
        }
        at += n;
    }
    assert(at == p->n_alive);
}

skv_hook skv_mtp_hook(const skv_span *spans)
{
    return (skv_hook){.user = (void *)(uintptr_t)spans, .after_layer = take_h};
}

/* ---- the head's passes ---- */

/* A pass of the head: h of each span's rows, and where its last row's own goes. */
typedef struct head_pass {
    skv_engine *engine;
    skv_pass_span spans[SKV_LOGIT_ROWS];
    skv_rows h[SKV_LOGIT_ROWS];
    skv_draft_request *requests[SKV_LOGIT_ROWS]; /* NULL: nothing is wanted */
    bool goes_on[SKV_LOGIT_ROWS];
    size_t n_spans, n_rows;
} head_pass;

/* The rows have their embeddings, and become the input of the layer. */
static void make_rows(void *user, skv_pass *p)
{
    const head_pass *head = user;
    const size_t D = p->c->hidden;
    const skv_rows in = {head->engine->draft.mtp.in, 0, 2 * D};
    const skv_norm norms[] = {skv_pass_norm(p, p->m->mtp_norms[0]),
                              skv_pass_norm(p, p->m->mtp_norms[1])};
    p->be->norm(p->be, &(skv_norm_args){in, p->ws->x, p->n_rows, D, norms[0]});
    for (size_t i = 0, row = 0; i < p->n_spans; row += p->spans[i++].at.n) {
        p->be->norm(p->be, &(skv_norm_args){skv_rows_from(in, row, D), head->h[i], p->spans[i].at.n,
                                            D, norms[1]});
    }
    p->be->linear(
        p->be, &(skv_linear_args){
                   .w = p->m->mtp_in, .y = p->ws->x, .x = in, .n_rows = p->n_rows, .step = NULL});
    p->work->prediction += skv_work_product(p->n_rows, 2 * D, D);
}

/* Of each request the last row is left. Its output is h of the row after it. */
static void take_own(void *user, skv_pass *p, size_t i_layer)
{
    const head_pass *head = user;
    (void)i_layer;
    for (size_t i = 0, at = 0; i < p->n_spans; i++) {
        if (!head->requests[i]) continue;
        const skv_sequence *s = head->requests[i]->sequence;
        const size_t n = p->set == SKV_SET_ALL ? p->spans[i].at.n : p->spans[i].n_wanted;
        p->be->norm(p->be, &(skv_norm_args){own_rows(s, 0), skv_rows_from(p->ws->x, at + n - 1, 0),
                                            1, p->c->hidden, skv_pass_norm(p, p->m->final_norm)});
        at += n;
    }
}

static skv_status run_head(head_pass *head, const skv_step_sink *sink)
{
    skv_engine *e = head->engine;
    const skv_hook hook = {.user = head, .start = make_rows, .after_layer = take_own};
    skv_pass pass = skv_second_model_pass(e, &e->draft.model, sink, &hook);
    pass.spans = head->spans;
    pass.n_spans = head->n_spans;
    return skv_draft_pass_run(e, &pass);
}

/* The next n rows of a sequence, of h. False: pages are short. */
static bool add_span(head_pass *head, skv_sequence *s, size_t n, skv_rows h)
{
    skv_drafter *d = s->drafter;
    const size_t i = head->n_spans, at = d->cache.n_rows, next = next_row(d);
    if (skv_kv_cache_grow(&d->cache, at + n, NULL) != SKV_OK) return false;
    head->spans[i] = skv_second_model_span(s, &d->cache, s->ids + next + 1, n, at);
    head->spans[i].at.position0 = next;
    head->h[i] = h;
    head->requests[i] = NULL;
    head->n_spans++;
    head->n_rows += n;
    return true;
}

/* Keys and values of n rows; the sequence has seen the tokens after them. */
static bool feed(skv_sequence *s, size_t n, skv_rows h)
{
    const size_t most = s->engine->options.step_tokens;
    for (size_t i = 0, m; i < n; i += m) {
        head_pass head = {.engine = s->engine};
        m = skv_min_size(n - i, most);
        if (!add_span(&head, s, m, skv_rows_from(h, i, 0))) return false;
        if (run_head(&head, NULL) != SKV_OK) return false;
    }
    return true;
}

void skv_mtp_end(skv_sequence *s)
{
    skv_drafter *d = s->drafter;
    skv_mtp_rows *mtp = &d->mtp;
    skv_backend *be = mtp->be;
    const size_t D = s->engine->config->hidden;
    if (mtp->n_told == 0) return;
    if (!has_all(d, mtp->told_at, s->ids[mtp->told_at])) begin_at(d, mtp->told_at);
    const skv_rows told = told_rows(s->engine, mtp->told_row);
    if (mtp->n + mtp->n_told <= H_ROWS) {
        be->copy_rows(be, own_rows(s, mtp->n), told, mtp->n_told, D);
        mtp->n += mtp->n_told;
        return;
    }
    /* Those that may be taken back are among the last of a step. */
    const size_t n = skv_min_size(mtp->n_told, H_ROWS), n_sure = mtp->n_told - n;
    const bool fed = feed(s, mtp->n, own_rows(s, 0)) && feed(s, n_sure, told);
    if (!fed) begin_at(d, mtp->told_at + n_sure);
    be->copy_rows(be, own_rows(s, 0), skv_rows_from(told, n_sure, 0), n, D);
    mtp->n = n;
}

/* ---- drafts ---- */

static void take_picked(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    head_pass *head = user;
    skv_draft_request *r = head->requests[owner->i_span];
    if (!skv_drafter_is_sure(r->sequence->drafter, picked)) return;
    if (!skv_draft_take(r, picked->best.id)) return;
    head->goes_on[owner->i_span] = r->n < r->most;
}

/* The rows that there is h of: those before a draft, or the one after a drafted token. The last
 * predicts a token. */
static bool add_request(void *user, skv_draft_request *r)
{
    head_pass *head = user;
    skv_sequence *s = r->sequence;
    skv_mtp_rows *mtp = &s->drafter->mtp;
    const size_t most = s->engine->options.step_tokens;
    if (r->n == 0 && (mtp->n == 0 || next_row(s->drafter) + mtp->n != s->n_seen)) return false;
    if (mtp->n > 1 && head->n_rows + mtp->n > most) {
        const size_t n = mtp->n - 1;
        if (!feed(s, n, own_rows(s, 0))) {
            begin_at(s->drafter, s->n_seen);
            return false;
        }
        mtp->be->copy_rows(mtp->be, own_rows(s, 0), own_rows(s, n), 1, s->engine->config->hidden);
        mtp->n = 1;
    }
    const size_t n = skv_max_size(1, mtp->n), i = head->n_spans;
    if (head->n_rows + n > most || !add_span(head, s, n, own_rows(s, 0))) return false;
    skv_step_want(&head->spans[i], SKV_WANT_LAST, i);
    head->requests[i] = r;
    head->goes_on[i] = false;
    return true;
}

/* The rows of a request are in the cache now, or nothing is. */
static bool settle(void *user, size_t i, skv_status status)
{
    const head_pass *head = user;
    const skv_sequence *s = head->requests[i]->sequence;
    skv_drafter *d = s->drafter;
    if (status != SKV_OK) {
        begin_at(d, s->n_seen);
        return false;
    }
    d->mtp.n = 0;
    if (next_row(d) == s->n_seen) {
        d->mtp.next_at = s->n_seen;
        d->mtp.next = s->ids[s->n_seen];
    }
    return head->goes_on[i];
}

static void begin(void *user)
{
    head_pass *head = user;
    head->n_spans = head->n_rows = 0;
}

static skv_status run_requests(void *user)
{
    const skv_step_sink sink = {.on_wish = skv_draft_wish, .on_picked = take_picked, .user = user};
    return run_head(user, &sink);
}

static bool run(skv_draft_request *requests, size_t n, const skv_draft_step *step)
{
    head_pass head = {.engine = requests[0].sequence->engine};
    const skv_draft_walk walk = {
        .begin = begin, .add = add_request, .run = run_requests, .settle = settle, .user = &head};
    (void)step;
    skv_draft_walk_run(&walk, requests, n);
    return true;
}

const skv_draft_method skv_draft_mtp = {
    .name = "mtp",
    .id = SKV_DRAFT_MTP,
    .most = 4,
    .sure = 0.4,
    .run = run,
    .predicts = true,
};
