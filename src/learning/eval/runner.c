/* Batches of requests: see runner.h. */
#include "eval/runner.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "steps/step.h"

/* A beginning shorter than this is not worth a sequence of its own. */
enum { SHARED_MIN = 32 };

/* Tokens to append to a sequence, and the request that needs the results after them. */
typedef struct job {
    skv_sequence *sequence; /* owned */
    const int32_t *ids;     /* [n], borrowed */
    size_t n;
    size_t n_prompt;           /* rows are evicted after it; 0: it is the beginning of prompts */
    size_t wanted;             /* logits are needed after tokens wanted..n-1 */
    skv_eval_request *request; /* borrowed; NULL: no request */
    int32_t next;              /* of a generation: the most likely token */
    int32_t chosen[1 + SKV_DRAFT_MAX]; /* of a step: the one before it, and a draft */
    size_t n_drafted, n_right;
} job;

/* An example under way. */
typedef struct group {
    skv_eval_example *example; /* borrowed */
    job base;                  /* the beginning of its requests; n 0: none */
} group;

/* ---- life ---- */

/* Pages hold one KV head each; the engine itself reports the number that a token needs. The probe
 * requests output: with token pruning a prompt waits until output is requested. */
static skv_status probe(skv_eval_runner *r, skv_error *err)
{
    skv_engine_stats before, after;
    const int32_t id = 0;
    const skv_span span = {r->kept, &id, 1, SKV_WANT_LAST};
    skv_engine_get_stats(r->engine, &before);
    SKV_TRY(skv_step(r->engine, &span, 1, NULL, NULL, err));
    skv_engine_get_stats(r->engine, &after);
    skv_sequence_truncate(r->kept, 0);
    r->block_pages = skv_max_size(1, before.kv_pages_free - after.kv_pages_free);
    return SKV_OK;
}

skv_status skv_eval_runner_init(skv_eval_runner *r, skv_engine *engine, const skv_vocab *vocab,
                                skv_error *err)
{
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    *r = (skv_eval_runner){.engine = engine,
                           .vocab = vocab,
                           .eviction = stats.eviction,
                           .context = stats.context,
                           .step_tokens = stats.step_tokens};
    r->spans = skv_alloc(r->step_tokens, sizeof *r->spans);
    r->span_jobs = skv_alloc(r->step_tokens, sizeof *r->span_jobs);
    r->span_starts = skv_alloc(r->step_tokens, sizeof *r->span_starts);
    r->requests = skv_alloc(r->step_tokens, sizeof *r->requests);
    skv_status status = r->spans && r->span_jobs && r->span_starts && r->requests
                            ? skv_sequence_create(engine, 0, &r->kept, err)
                            : skv_fail(err, SKV_MEMORY, "evaluation: no memory");
    if (status == SKV_OK) status = probe(r, err);
    if (status != SKV_OK) skv_eval_runner_release(r);
    return status;
}

void skv_eval_runner_release(skv_eval_runner *r)
{
    skv_sequence_free(r->kept);
    skv_free(r->spans);
    skv_free(r->span_jobs);
    skv_free(r->span_starts);
    skv_free(r->requests);
    *r = (skv_eval_runner){.engine = NULL};
}

/* ---- memory ---- */

static size_t blocks_of(size_t n_tokens, size_t n_shared)
{
    return skv_ceil_div(n_tokens, SKV_EVAL_BLOCK) - n_shared / SKV_EVAL_BLOCK;
}

static size_t common(const skv_ids *a, const int32_t *b, size_t n_b, size_t limit)
{
    const size_t most = skv_min_size(limit, skv_min_size(a->n, n_b));
    size_t n = 0;
    while (n < most && a->data[n] == b[n]) n++;
    return n;
}

/* Returns the length of the prompt: the tokens after it have a probability, or are generated. */
static size_t prompt_of(const skv_eval_request *q)
{
    return q->max_new > 0 ? q->ids.n : q->n_context;
}

/* Returns the number of tokens of a request that may be shared: the token before the first scored
 * one must be computed, and so must the voting tokens if the prompt will lose rows. */
static size_t shareable(const skv_eval_runner *r, const skv_eval_request *q)
{
    const size_t n = prompt_of(q);
    const skv_eviction *how = &r->eviction;
    if (how->method == SKV_EVICT_NONE || n <= how->capacity) return n - 1;
    return n - skv_min_size(n, skv_max_size(1, skv_eviction_voters(how)));
}

/* Tokens that all requests of an example begin with. */
static size_t shared_by_all(const skv_eval_runner *r, const skv_eval_example *e)
{
    const skv_ids *first = &e->requests[0].ids;
    size_t n = shareable(r, &e->requests[0]);
    for (size_t i = 1; i < e->n_requests; i++) {
        const skv_eval_request *q = &e->requests[i];
        n = common(first, q->ids.data, q->ids.n, skv_min_size(n, shareable(r, q)));
    }
    return n;
}

size_t skv_eval_blocks(const skv_eval_runner *r, const skv_eval_example *e)
{
    if (e->n_requests == 0) return 0;
    const size_t n_shared = e->n_requests > 1 ? shared_by_all(r, e) : 0;
    size_t n = blocks_of(n_shared, 0);
    for (size_t i = 0; i < e->n_requests; i++) {
        n += blocks_of(e->requests[i].ids.n + e->requests[i].max_new, n_shared);
    }
    return n;
}

size_t skv_eval_runner_blocks(const skv_eval_runner *r)
{
    skv_engine_stats stats;
    skv_engine_get_stats(r->engine, &stats);
    return stats.kv_pages_free / r->block_pages;
}

/* ---- steps ---- */

typedef struct feeding {
    const skv_eval_runner *runner;
    job *jobs;
} feeding;

static job *job_of(const feeding *f, size_t i_span)
{
    return &f->jobs[f->runner->span_jobs[i_span]];
}

/* The place of the token after a row, if its probability is asked for; 0: it is not. */
static size_t scored_after(const feeding *f, size_t i_span, size_t i_row)
{
    const skv_eval_request *q = job_of(f, i_span)->request;
    const size_t next = f->runner->span_starts[i_span] + i_row + 1;
    return next >= q->n_context && next < q->ids.n ? next : 0;
}

/* The most likely token after a row, and how likely the next one of a request is. */
static bool wish(void *user, skv_wishes *to)
{
    const feeding *f = user;
    const skv_eval_request *q = job_of(f, to->i_span)->request;
    if (!q) return true;
    skv_pick_row pick = {.norm = false};
    if (q->max_new == 0) {
        const size_t next = scored_after(f, to->i_span, to->i_row);
        if (next == 0) return true;
        pick = (skv_pick_row){.norm = true, .ids = &q->ids.data[next], .n_ids = 1};
    }
    to->picks[to->n++] = pick;
    return true;
}

static void take_picked(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    const feeding *f = user;
    job *j = job_of(f, owner->i_span);
    skv_eval_request *q = j->request;
    if (q->max_new > 0) {
        if (owner->i_row > j->n_right && j->n_drafted > 0) return; /* the draft has ended */
        j->next = picked->best.id;
        if (owner->i_row < j->n_drafted && j->next == j->chosen[1 + owner->i_row]) j->n_right++;
        return;
    }
    const size_t next = scored_after(f, owner->i_span, owner->i_row);
    q->logprob += (double)picked->at[0] - picked->norm;
    q->greedy = q->greedy && picked->best.id == q->ids.data[next];
}

static skv_status run_step(feeding *f, size_t n_spans, skv_error *err)
{
    const skv_step_sink sink = {.on_wish = wish, .on_picked = take_picked, .user = f};
    return skv_engine_step(f->runner->engine, f->runner->spans, n_spans, &sink, err);
}

/* Returns the next span of a job within `room` tokens. Tokens without wanted logits go alone, so
 * that a method that skips layers can skip them; only a single wanted one may end such a span. */
static skv_span span_of(const job *j, size_t room)
{
    const size_t at = skv_sequence_length(j->sequence);
    const size_t n_left = j->n - at;
    const size_t n_here = at < j->n_prompt ? skv_min_size(n_left, j->n_prompt - at) : n_left;
    skv_span span = {j->sequence, j->ids + at, skv_min_size(n_here, room), SKV_WANT_NONE};
    if (!j->request) return span;
    if (j->wanted + 1 == j->n) {
        if (span.n == n_left) span.want = SKV_WANT_LAST;
    } else if (at < j->wanted) {
        span.n = skv_min_size(span.n, j->wanted - at);
    } else {
        span.want = SKV_WANT_ALL;
    }
    return span;
}

/* Evicts rows after the prompts that are complete with this step. */
static skv_status evict_prompts(const skv_eval_runner *r, job *jobs, size_t n_spans, skv_error *err)
{
    for (size_t i = 0; i < n_spans; i++) {
        const job *j = &jobs[r->span_jobs[i]];
        if (j->n_prompt == 0 || skv_sequence_length(j->sequence) != j->n_prompt) continue;
        SKV_TRY(skv_sequence_evict(j->sequence, err));
    }
    return SKV_OK;
}

/* Gives every sequence its tokens, in steps that are as full as they can be. */
static skv_status feed(skv_eval_runner *r, job *jobs, size_t n, skv_error *err)
{
    feeding f = {r, jobs};
    for (;;) {
        size_t n_spans = 0, room = r->step_tokens;
        for (size_t i = 0; i < n && room > 0; i++) {
            const job *j = &jobs[i];
            if (skv_sequence_length(j->sequence) >= j->n) continue;
            const skv_span span = span_of(j, room);
            r->span_jobs[n_spans] = i;
            r->span_starts[n_spans] = skv_sequence_length(j->sequence);
            r->spans[n_spans++] = span;
            room -= span.n;
        }
        if (n_spans == 0) return SKV_OK;
        SKV_TRY(run_step(&f, n_spans, err));
        SKV_TRY(evict_prompts(r, jobs, n_spans, err));
    }
}

/* ---- generation ---- */

static skv_status holds(const skv_eval_runner *r, const skv_ids *ids, const char *text, bool *found,
                        skv_error *err)
{
    *found = false;
    if (!text) return SKV_OK;
    char *said;
    size_t n;
    SKV_TRY(skv_vocab_decode(r->vocab, (skv_id_piece){ids->data, ids->n}, (skv_decode_options){0},
                             &said, &n, err));
    /* The text may begin with white space that only separates. */
    const size_t n_space = strspn(said, " \n");
    *found = strstr(said + n_space, text);
    skv_text_free(said);
    return SKV_OK;
}

/* Takes the token that a job chose; *go_on is set if it needs another. */
static skv_status take_token(const skv_eval_runner *r, job *j, bool *go_on, skv_error *err)
{
    skv_eval_request *q = j->request;
    *go_on = false;
    if (skv_engine_is_eos(r->engine, j->next) || j->next == q->stop_id) return SKV_OK;
    SKV_TRY(skv_ids_push(&q->answer, j->next, err));
    if (q->answer.n == q->max_new) return SKV_OK;
    bool stopped;
    SKV_TRY(holds(r, &q->answer, q->stop_text, &stopped, err));
    *go_on = !stopped;
    return SKV_OK;
}

/* As above for the accepted drafts, and then for the token after them. */
static skv_status take_tokens(const skv_eval_runner *r, job *j, bool *go_on, skv_error *err)
{
    const int32_t last = j->next;
    *go_on = true;
    for (size_t i = 0; i < j->n_right && *go_on; i++) {
        j->next = j->chosen[1 + i];
        SKV_TRY(take_token(r, j, go_on, err));
    }
    j->next = last;
    return *go_on ? take_token(r, j, go_on, err) : SKV_OK;
}

/* The token that a job chose, with room for a draft of at most `most` tokens. */
static skv_draft_request ask_draft(job *j, size_t most)
{
    const skv_eval_request *q = j->request;
    j->chosen[0] = j->next;
    j->n_right = 0;
    most = skv_min_size(most, skv_min_size(q->max_new - q->answer.n - 1, SKV_DRAFT_MAX));
    return (skv_draft_request){
        .sequence = j->sequence, .next = j->next, .out = j->chosen + 1, .most = most};
}

/* Builds the spans of the step's n jobs: their tokens, and the drafts for all of them at once. */
static void draft(skv_eval_runner *r, job *jobs, size_t n)
{
    skv_sequences_draft(r->requests, n);
    for (size_t i = 0; i < n; i++) {
        job *j = &jobs[r->span_jobs[i]];
        j->n_drafted = r->requests[i].n;
        r->spans[i] = (skv_span){j->sequence, j->chosen, 1 + j->n_drafted, SKV_WANT_DRAFTED};
    }
}

/* Decodes one token a step, with a draft, for every unfinished job; the first logits are those
 * after the prompt. */
static skv_status decode(skv_eval_runner *r, job *jobs, size_t n, skv_error *err)
{
    for (;;) {
        size_t n_live = 0;
        for (size_t i = 0; i < n; i++) {
            job *j = &jobs[i];
            if (!j->request || j->request->max_new == 0 || !j->sequence) continue;
            bool go_on;
            SKV_TRY(take_tokens(r, j, &go_on, err));
            if (!go_on) {
                skv_sequence_free(j->sequence);
                j->sequence = NULL;
                continue;
            }
            assert(n_live < r->step_tokens);
            r->span_jobs[n_live] = i;
            r->requests[n_live++] = ask_draft(j, (r->step_tokens - n) / n);
        }
        if (n_live == 0) return SKV_OK;
        draft(r, jobs, n_live);
        feeding f = {r, jobs};
        SKV_TRY(run_step(&f, n_live, err));
        for (size_t i = 0; i < n_live; i++) {
            job *j = &jobs[r->span_jobs[i]];
            if (j->n_drafted > 0) skv_sequence_settle(j->sequence, j->n_drafted, j->n_right);
            r->n_generated += 1 + j->n_right;
            r->drafts.drafted += j->n_drafted;
            r->drafts.accepted += j->n_right;
            j->n_drafted = 0;
        }
    }
}

/* ---- a batch ---- */

static void free_jobs(job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) skv_sequence_free(jobs[i].sequence);
}

/* Starts a job's sequence with the common prefix of its ids and `from`, up to `limit`. */
static skv_status start(skv_eval_runner *r, job *j, const skv_sequence *from, size_t limit,
                        skv_error *err)
{
    SKV_TRY(skv_sequence_create(r->engine, 0, &j->sequence, err));
    const int32_t *ids = skv_sequence_ids(from);
    const size_t most = skv_min_size(skv_min_size(limit, j->n), skv_sequence_length(from));
    size_t n = 0;
    while (n < most && ids[n] == j->ids[n]) n++;
    return skv_sequence_share(j->sequence, from, n, err);
}

/* The beginning of all examples, computed once and kept for the next batch. */
static skv_status keep_beginning(skv_eval_runner *r, skv_eval_example *const *examples, size_t n,
                                 skv_error *err)
{
    const skv_ids *first = &examples[0]->requests[0].ids;
    size_t n_common = shared_by_all(r, examples[0]);
    for (size_t i = 1; i < n; i++) {
        const skv_eval_request *q = &examples[i]->requests[0];
        n_common = common(first, q->ids.data, q->ids.n,
                          skv_min_size(n_common, shared_by_all(r, examples[i])));
    }
    const size_t n_kept = skv_sequence_length(r->kept);
    const size_t n_same = common(first, skv_sequence_ids(r->kept), n_kept, n_kept);
    skv_sequence_truncate(r->kept, n_same);
    if (n_common < SHARED_MIN || n < 2) return SKV_OK;
    job j = {.sequence = r->kept, .ids = first->data, .n = n_common};
    return feed(r, &j, 1, err);
}

/* Sequences that can still be made: in hybrid models each takes a state. */
static size_t sequences_left(const skv_eval_runner *r)
{
    skv_engine_stats stats;
    skv_engine_get_stats(r->engine, &stats);
    return stats.states > 0 ? stats.states_free : SIZE_MAX;
}

static skv_status compute_bases(skv_eval_runner *r, group *groups, size_t n, skv_error *err)
{
    job bases[SKV_EVAL_BATCH_MAX];
    size_t n_bases = 0;
    skv_status status = SKV_OK;
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        const skv_eval_example *e = groups[i].example;
        job *j = &groups[i].base;
        if (e->n_requests < 2 || sequences_left(r) < 2) continue;
        *j = (job){.ids = e->requests[0].ids.data, .n = shared_by_all(r, e)};
        if (j->n < SHARED_MIN) j->n = 0;
        if (j->n == 0) continue;
        status = start(r, j, r->kept, j->n, err);
        if (status == SKV_OK) bases[n_bases++] = *j; /* it feeds the same sequence */
    }
    return status == SKV_OK ? feed(r, bases, n_bases, err) : status;
}

/* The position of the next request to run. */
typedef struct cursor {
    size_t i_group, i_request;
} cursor;

static void step_on(cursor *at, const group *groups)
{
    if (++at->i_request < groups[at->i_group].example->n_requests) return;
    at->i_group++;
    at->i_request = 0;
}

static skv_status add_fork(skv_eval_runner *r, const group *g, skv_eval_request *q, job *out,
                           skv_error *err)
{
    /* Also the last id, which no step reads. */
    SKV_TRY(skv_engine_check_ids(r->engine, q->ids.data, q->ids.n, err));
    q->logprob = 0;
    q->greedy = true;
    q->answer.n = 0;
    /* The last token has a probability, and nothing is asked after it. */
    const bool generates = q->max_new > 0;
    *out = (job){.ids = q->ids.data,
                 .n = generates ? q->ids.n : q->ids.n - 1,
                 .wanted = generates ? q->ids.n - 1 : q->n_context - 1,
                 .n_prompt = prompt_of(q),
                 .request = q};
    SKV_TRY(start(r, out, g->base.n ? g->base.sequence : r->kept, shareable(r, q), err));
    const size_t n_there = skv_sequence_length(out->sequence);
    return skv_sequence_expect(out->sequence, out->n_prompt - n_there, err);
}

/* As many requests as fit, asked to the end. */
static skv_status run_portion(skv_eval_runner *r, const group *groups, size_t n, cursor *at,
                              skv_error *err)
{
    job jobs[SKV_EVAL_BATCH_MAX] = {{.n = 0}};
    size_t n_jobs = 0, n_blocks = skv_eval_runner_blocks(r);
    const size_t most =
        skv_min_size(skv_min_size(SKV_EVAL_BATCH_MAX, r->step_tokens), sequences_left(r));
    skv_status status = SKV_OK;
    for (; at->i_group < n && n_jobs < most && status == SKV_OK; step_on(at, groups)) {
        const group *g = &groups[at->i_group];
        skv_eval_request *q = &g->example->requests[at->i_request];
        if (q->ids.n < 2 && q->max_new == 0) continue; /* nothing has a probability */
        const size_t cost = blocks_of(q->ids.n + q->max_new, g->base.n);
        if (cost > n_blocks) break;
        n_blocks -= cost;
        status = add_fork(r, g, q, &jobs[n_jobs++], err);
    }
    if (status == SKV_OK && n_jobs == 0 && at->i_group < n) {
        status = skv_fail(err, SKV_FULL,
                          "evaluation: %zu tokens of KV memory are too few for one example",
                          n_blocks * SKV_EVAL_BLOCK);
    }
    if (status == SKV_OK) status = feed(r, jobs, n_jobs, err);
    if (status == SKV_OK) status = decode(r, jobs, n_jobs, err);
    free_jobs(jobs, n_jobs);
    return status;
}

skv_status skv_eval_runner_run(skv_eval_runner *r, skv_eval_example *const *examples, size_t n,
                               skv_error *err)
{
    assert(n <= SKV_EVAL_BATCH_MAX);
    if (n == 0) return SKV_OK;
    group groups[SKV_EVAL_BATCH_MAX] = {{.example = NULL}};
    for (size_t i = 0; i < n; i++) groups[i].example = examples[i];
    skv_status status = keep_beginning(r, examples, n, err);
    if (status == SKV_OK) status = compute_bases(r, groups, n, err);
    cursor at = {0};
    while (status == SKV_OK && at.i_group < n) {
        status = run_portion(r, groups, n, &at, err);
    }
    for (size_t i = 0; i < n; i++) skv_sequence_free(groups[i].base.sequence);
    return status;
}
