/* Reading and continuing random prompts, and counting what that takes. */
#include "bench.h"

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
    const skv_work before_work = skv_engine_get_work(variant->model.engine);
    const uint64_t start = skv_now_ns();
    if (status == SKV_OK) status = read_prompts(&r, &err);
    const uint64_t first = skv_now_ns();
    const skv_work now = skv_engine_get_work(variant->model.engine);
    double before = 0, after = 0;
    if (status == SKV_OK) status = read_bandwidth(&r, &before, &err);
    const uint64_t second = skv_now_ns();
    for (size_t i = 1; i < load->gen && status == SKV_OK; i++) status = decode_token(&r, &err);
    const uint64_t end = skv_now_ns();
    if (status == SKV_OK) status = read_bandwidth(&r, &after, &err);
    *out = (bench_times){.ttft_s = (double)(first - start) * 1e-9,
                         .decode_s = (double)(end - second) * 1e-9,
                         .read_gbs = fmax(before, after),
                         .work = skv_work_since(&now, &before_work)};
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
