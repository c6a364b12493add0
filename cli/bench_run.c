/* Reads and continues random prompts, and measures the time. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

/* ---- running ---- */

typedef struct lane {
    skv_sequence *sequence;            /* owned */
    int32_t *ids;                      /* [prompt], owned */
    size_t n_done;                     /* tokens of the prompt that were read */
    int32_t next;                      /* the token chosen last */
    size_t n_left;                     /* tokens to generate after it */
    int32_t tokens[1 + SKV_DRAFT_MAX]; /* of a step: `next` and a draft */
    size_t n_drafted, n_right;
    size_t i_replay, n_replayed; /* the next recorded draft, and the accepted length of the last */
} lane;

typedef struct run {
    bench_variant *variant;
    const bench_load *load;
    lane *lanes;               /* [batch], owned */
    skv_span *spans;           /* [batch], owned */
    skv_draft_request *drafts; /* [batch], owned */
    lane **span_lane;          /* [batch], owned: the lane of each span */
    size_t vocab;
    size_t n_read, n_steps; /* prompt tokens; steps of decoding */
} run;

/* Decoding a token takes about as long as reading this many. */
enum { READ_PER_STEP = 8 };

/* How far the runs are together; a line is written ten times a second at most. */
static void tell(const run *r)
{
    const bench_load *l = r->load;
    if (!l->progress || l->n_runs == 0) return;
    const double all = (double)(l->prompt * l->batch) + READ_PER_STEP * (double)l->gen;
    const double done = (double)r->n_read + READ_PER_STEP * (double)r->n_steps;
    cli_progress_share(l->progress, ((double)l->i_run + done / all) / (double)l->n_runs);
}

static void choose(void *user, size_t i_span, size_t i_token, const float *logits)
{
    run *r = user;
    lane *l = r->span_lane[i_span];
    if (i_token > l->n_right && l->n_drafted > 0) return; /* the draft has ended */
    size_t best = 0;
    for (size_t i = 1; i < r->vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    l->next = (int32_t)best;
    if (i_token >= l->n_drafted) return;
    const bool right = l->next == l->tokens[1 + i_token];
    if (r->load->replay ? i_token < l->n_replayed : right) l->n_right++;
}

/* The next recorded draft: how many of its tokens are right goes to the lane. */
static size_t next_recorded(const run *r, lane *l)
{
    const cli_ids *replay = r->load->replay;
    const size_t at = l->i_replay++ % (replay->n / 2) * 2;
    l->n_replayed = (size_t)replay->at[at + 1];
    return (size_t)replay->at[at];
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
            r->n_read += r->spans[i].n;
            if (l->n_done == r->load->prompt) status = skv_sequence_evict(l->sequence, err);
        }
        tell(r);
    }
    return status;
}

/* Adds the next tokens of n lanes, each followed by drafts, as far as a step has room. */
static void add_tokens(run *r, size_t n)
{
    const size_t room = r->variant->limits.step_tokens / n;
    for (size_t i = 0; i < n; i++) {
        lane *l = r->span_lane[i];
        size_t most = l->n_left < room ? l->n_left : room;
        if (r->load->replay) {
            const size_t n_recorded = 1 + next_recorded(r, l);
            if (n_recorded < most) most = n_recorded;
        }
        l->tokens[0] = l->next;
        l->n_right = 0;
        r->drafts[i] =
            (skv_draft_request){.sequence = l->sequence,
                                .next = l->next,
                                .out = l->tokens + 1,
                                .most = most <= SKV_DRAFT_MAX ? most - 1 : SKV_DRAFT_MAX};
    }
    const bool any_will_do =
        r->load->replay && r->variant->options.speculation.source == SKV_DRAFT_TEXT;
    if (!any_will_do) skv_sequences_draft(r->drafts, n);
    for (size_t i = 0; i < n; i++) {
        lane *l = r->span_lane[i];
        for (size_t k = 0; any_will_do && k < r->drafts[i].most; k++) l->tokens[1 + k] = l->next;
        l->n_drafted = any_will_do ? r->drafts[i].most : r->drafts[i].n;
        r->spans[i] = (skv_span){l->sequence, l->tokens, 1 + l->n_drafted, SKV_WANT_DRAFTED};
    }
}

static void end_step(run *r, size_t n_spans)
{
    for (size_t i = 0; i < n_spans; i++) {
        lane *l = r->span_lane[i];
        l->n_left -= 1 + l->n_right;
        if (l->n_drafted > 0) skv_sequence_settle(l->sequence, l->n_drafted, l->n_right);
        l->n_drafted = 0;
    }
}

/* Decodes one token and its drafts for every unfinished sequence; uses several steps if they do not
 * fit in one. */
static skv_status decode_tokens(run *r, bool *done, skv_error *err)
{
    skv_status status = SKV_OK;
    *done = true;
    for (size_t i = 0; status == SKV_OK && i < r->load->batch;) {
        size_t n = 0;
        for (; i < r->load->batch && n < r->variant->limits.step_tokens; i++) {
            if (r->lanes[i].n_left > 0) r->span_lane[n++] = &r->lanes[i];
        }
        if (n == 0) break;
        add_tokens(r, n);
        *done = false;
        status = skv_step(r->variant->model.engine, r->spans, n, choose, r, err);
        if (status == SKV_OK) end_step(r, n);
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
    r->drafts = cli_alloc(load->batch, sizeof *r->drafts);
    r->span_lane = cli_alloc(load->batch, sizeof(lane *));
    const skv_speculation how = cli_speculation_of(&r->variant->options);
    skv_status status = SKV_OK;
    for (size_t i = 0; i < load->batch && status == SKV_OK; i++) {
        r->lanes[i].ids = cli_alloc(load->prompt, sizeof(int32_t));
        r->lanes[i].n_left = load->gen > 0 ? load->gen - 1 : 0; /* the prompt gives the first */
        fill_ids(r, &r->lanes[i], i);
        status = skv_sequence_create(r->variant->model.engine, load->prompt + load->gen,
                                     &r->lanes[i].sequence, err);
        if (status != SKV_OK) break;
        status = skv_sequence_set_speculation(r->lanes[i].sequence, &how, err);
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
    free(r->drafts);
    free(r->span_lane);
}

/* Measures the current memory bandwidth; NaN if the load does not ask for it. */
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
    for (bool done = false; !done && status == SKV_OK;) {
        status = decode_tokens(&r, &done, &err);
        r.n_steps += !done;
        tell(&r);
    }
    const uint64_t end = skv_now_ns();
    if (status == SKV_OK) status = read_bandwidth(&r, &after, &err);
    *out = (bench_times){.ttft_s = (double)(first - start) * 1e-9,
                         .decode_s = (double)(end - second) * 1e-9,
                         .n_steps = r.n_steps,
                         .read_gbs = fmax(before, after),
                         .work = skv_work_since(&now, &before_work)};
    for (size_t i = 0; i < load->batch && status == SKV_OK; i++) {
        out->kv_bytes += skv_sequence_kv_bytes(r.lanes[i].sequence);
        for (size_t d = 0; d < SKV_DRAFT_SOURCES; d++) {
            const skv_draft_counts counts =
                skv_sequence_drafts(r.lanes[i].sequence, (skv_drafting)d);
            out->drafts[d].drafted += counts.drafted;
            out->drafts[d].accepted += counts.accepted;
        }
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
