/* Reading and continuing random prompts, and counting what that takes. */
#include "bench_run.h"

#include <math.h>
#include <stdlib.h>

/* ---- running ---- */

typedef struct lane {
    skv_sequence *sequence; /* owned */
    int32_t *ids;           /* [prompt], owned */
    size_t n_done;          /* tokens of the prompt that were read */
    int32_t next;           /* the token chosen last */
} lane;

typedef struct run {
    bench_variant *variant;
    const bench_load *load;
    lane *lanes;      /* [batch], owned */
    skv_span *spans;  /* [batch], owned */
    lane **span_lane; /* [batch], owned: whose span it is */
    size_t vocab;
} run;

static void choose(void *user, size_t i_span, size_t i_token, const float *logits)
{
    run *r = user;
    (void)i_token;
    size_t best = 0;
    for (size_t i = 1; i < r->vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    r->span_lane[i_span]->next = (int32_t)best;
}

/* As much of the prompts as one step takes, in order; 0 when all are read. */
static size_t fill_prompt_step(run *r)
{
    size_t n = 0, room = r->variant->limits.step_tokens;
    for (size_t i = 0; i < r->load->batch && room > 0; i++) {
        lane *l = &r->lanes[i];
        const size_t rest = r->load->prompt - l->n_done;
        const size_t take = rest < room ? rest : room;
        if (take == 0) continue;
        r->spans[n] = (skv_span){l->sequence, l->ids + l->n_done, take,
                                 take == rest ? SKV_WANT_LAST : SKV_WANT_NONE};
        r->span_lane[n++] = l;
        l->n_done += take;
        room -= take;
    }
    return n;
}

static skv_status read_prompts(run *r, skv_error *err)
{
    skv_status status = SKV_OK;
    for (size_t i = 0; i < r->load->batch && status == SKV_OK; i++) {
        status = skv_sequence_expect(r->lanes[i].sequence, r->load->prompt, err);
    }
    while (status == SKV_OK) {
        const size_t n = fill_prompt_step(r);
        if (n == 0) break;
        status = skv_step(r->variant->model.engine, r->spans, n, choose, r, err);
        for (size_t i = 0; i < n && status == SKV_OK; i++) {
            const lane *l = r->span_lane[i];
            if (l->n_done == r->load->prompt) status = skv_sequence_evict(l->sequence, err);
        }
    }
    return status;
}

/* One more token for every sequence; more sequences than a step takes are several steps. */
static skv_status decode_token(run *r, skv_error *err)
{
    const size_t most = r->variant->limits.step_tokens;
    skv_status status = SKV_OK;
    for (size_t at = 0; status == SKV_OK && at < r->load->batch; at += most) {
        size_t n = 0;
        for (size_t i = at; i < r->load->batch && n < most; i++, n++) {
            lane *l = &r->lanes[i];
            r->spans[n] = (skv_span){l->sequence, &l->next, 1, SKV_WANT_LAST};
            r->span_lane[n] = l;
        }
        status = skv_step(r->variant->model.engine, r->spans, n, choose, r, err);
    }
    return status;
}

/* Ids that differ by sequence, so that nothing could be shared; the same in every run. */
static void fill_ids(run *r, lane *l, size_t i_lane)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (i_lane + 1);
    for (size_t i = 0; i < r->load->prompt; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        l->ids[i] = (int32_t)((state >> 33) % r->vocab);
    }
}

static skv_status make_lanes(run *r, skv_error *err)
{
    const bench_load *load = r->load;
    r->lanes = cli_alloc(load->batch, sizeof *r->lanes);
    r->spans = cli_alloc(load->batch, sizeof *r->spans);
    r->span_lane = cli_alloc(load->batch, sizeof(lane *));
    skv_status status = SKV_OK;
    for (size_t i = 0; i < load->batch && status == SKV_OK; i++) {
        r->lanes[i].ids = cli_alloc(load->prompt, sizeof(int32_t));
        fill_ids(r, &r->lanes[i], i);
        status = skv_sequence_create(r->variant->model.engine, load->prompt + load->gen,
                                     &r->lanes[i].sequence, err);
    }
    return status;
}

static void free_lanes(run *r)
{
    for (size_t i = 0; i < r->load->batch; i++) {
        skv_sequence_free(r->lanes[i].sequence);
        free(r->lanes[i].ids);
    }
    free(r->lanes);
    free(r->spans);
    free(r->span_lane);
}

/* What memory gives at this moment, or NaN. */
static skv_status read_bandwidth(const run *r, double *gbs, skv_error *err)
{
    *gbs = (double)NAN;
    if (!r->load->measure_read) return SKV_OK;
    return skv_read_measure(r->variant->limits.threads, gbs, err);
}

int bench_run(bench_variant *variant, const bench_load *load, bench_times *out)
{
    skv_error err = {0};
    run r = {.variant = variant, .load = load, .vocab = skv_engine_vocab(variant->model.engine)};
    skv_status status = make_lanes(&r, &err);
    const uint64_t start = skv_now_ns();
    if (status == SKV_OK) status = read_prompts(&r, &err);
    const uint64_t first = skv_now_ns();
    double before = 0, after = 0;
    if (status == SKV_OK) status = read_bandwidth(&r, &before, &err);
    const uint64_t second = skv_now_ns();
    for (size_t i = 1; i < load->gen && status == SKV_OK; i++) status = decode_token(&r, &err);
    const uint64_t end = skv_now_ns();
    if (status == SKV_OK) status = read_bandwidth(&r, &after, &err);
    *out = (bench_times){.ttft_s = (double)(first - start) * 1e-9,
                         .decode_s = (double)(end - second) * 1e-9,
                         .read_gbs = (before + after) / 2};
    for (size_t i = 0; i < load->batch && status == SKV_OK; i++) {
        out->kv_bytes += skv_sequence_kv_bytes(r.lanes[i].sequence);
    }
    free_lanes(&r);
    return cli_check(status, &err);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- counting ---- */

/* Projections of a token, without the head and attention. */
static double projections(const skv_cost *cost)
{
    return cost->kv + cost->q + cost->o + cost->mlp;
}

/* Attention of the last of n tokens: what n tokens have more than n - 1. skv_model_cost gives the
 * mean over a prompt. */
static int last_attention(const bench_variant *v, size_t l, size_t g, size_t n, double *out)
{
    skv_error err = {0};
    skv_cost with = {0}, without = {0};
    int status = cli_check(skv_model_cost(v->path, l, g, n, &with, &err), &err);
    if (status == CLI_DONE && n > 1) {
        status = cli_check(skv_model_cost(v->path, l, g, n - 1, &without, &err), &err);
    }
    *out = (double)n * with.attention - (double)(n - 1) * without.attention;
    return status;
}

/* KV Prediction: all tokens but the last run the auxiliary model and the linear maps; the last one
 * runs the base. `all` is of the base, a token of the prompt's. */
static int predicted_work(const bench_variant *v, const bench_load *load, const skv_cost *all,
                          double last_attention, bench_work *out)
{
    skv_error err = {0};
    skv_cost auxiliary = {0};
    double predictor = 0;
    const size_t n = load->prompt > 1 ? load->prompt - 1 : 1;
    const int status = cli_check(skv_kvpred_cost(v->path, n, &auxiliary, &predictor, &err), &err);
    if (status != CLI_DONE) return status;
    const double read = (double)(load->prompt - 1) * (auxiliary.total + predictor);
    out->done = (double)load->batch * (read + projections(all) + last_attention + all->vocabulary);
    return CLI_DONE;
}

/* A prompt without its pruned tokens, and a quarter of the layers over all of it where it takes
 * that to choose them. */
/* The share of a prompt that the layers of LazyLLM run, and of pairs of its tokens. */
static void add_shares_of(const bench_variant *v, double *rows, double *pairs)
{
    const size_t n = v->model.info.layers;
    for (size_t i = 0; i < n; i++) {
        const double share = skv_pruning_share(&v->limits.pruning, i, n);
        *rows += share / (double)n;
        *pairs += share * share / (double)n;
    }
}

static int pruned_work(const bench_variant *v, const bench_load *load, const skv_cost *all,
                       bench_work *out)
{
    const skv_pruning pruning = v->limits.pruning;
    if (pruning.kind == SKV_PRUNE_LAZY) {
        double rows = 0, pairs = 0;
        add_shares_of(v, &rows, &pairs);
        const double each = rows * projections(all) + pairs * all->attention;
        out->done = (double)load->batch * ((double)load->prompt * each + all->vocabulary);
        return CLI_DONE;
    }
    bench_variant plain = *v;
    bench_load shorter = *load;
    bench_work rest = {0};
    plain.limits.pruning.kind = SKV_PRUNE_NONE;
    shorter.prompt = 1 + (size_t)(pruning.keep * (double)(load->prompt - 1) + 0.5);
    const int status = bench_work_of(&plain, &shorter, &rest);
    out->done = rest.done;
    if (pruning.kind == SKV_PRUNE_STATIC && pruning.keep < 1) {
        out->done +=
            0.25 * (double)(load->batch * load->prompt) * (projections(all) + all->attention);
    }
    return status;
}

/*
 * All tokens of a prompt run the layers before l and leave K,V beyond; the last one, whose logits
 * are wanted, runs every layer and the head. The unmodified model does that with l = L - 1: its
 * last layer needs nothing but K,V of the other tokens.
 */
int bench_work_of(const bench_variant *v, const bench_load *load, bench_work *out)
{
    const size_t L = v->model.info.layers, n = load->prompt;
    const bool no_skip = v->limits.prefill == SKV_PREFILL_SWIFTKV_FULL;
    size_t l = no_skip ? L : v->kv_layers, g = no_skip ? 1 : v->group;
    if (!no_skip && l == L && L > 1) l = L - 1;
    skv_error err = {0};
    skv_cost all, shallow;
    int status = cli_check(skv_model_cost(v->path, L, 1, n, &all, &err), &err);
    if (status == CLI_DONE) {
        status = cli_check(skv_model_cost(v->path, l, g, n, &shallow, &err), &err);
    }
    double last_all = 0, last_shallow = 0;
    if (status == CLI_DONE) status = last_attention(v, L, 1, n, &last_all);
    if (status == CLI_DONE) status = last_attention(v, l, g, n, &last_shallow);
    if (status != CLI_DONE) return status;
    const double deep =
        projections(&all) - all.kv - (projections(&shallow) - shallow.kv) + last_all - last_shallow;
    const double prompts = (double)load->batch, tokens = (double)n;
    out->model = prompts * (tokens * (projections(&all) + all.attention) + all.vocabulary);
    out->done =
        prompts * (tokens * (projections(&shallow) + shallow.attention) + deep + all.vocabulary);
    if (v->limits.pruning.kind != SKV_PRUNE_NONE) return pruned_work(v, load, &all, out);
    if (v->limits.kv_prediction) return predicted_work(v, load, &all, last_all, out);
    return CLI_DONE;
}
