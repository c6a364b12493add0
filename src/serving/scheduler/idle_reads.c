/* Reads expected prompts while no lane waits: see idle_reads.h. */
#include "scheduler/idle_reads.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/system.h"
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

enum {
    LEAST_TOKENS = 256, /* to be read: with fewer a read is left out */
    CHUNK_MIN = 8,      /* of a step, however long it takes */
    MEMORY_PART = 4,    /* a read takes at most one of so many parts of the KV memory, */
    ACCOUNT_PART = 16   /* and all ids together of an account */
};

/* ---- texts that the program hands over ---- */

static skv_status check_ids(const skv_scheduler *s, const skv_job_params *p, skv_error *err)
{
    SKV_REQUIRE(p->n_ids < s->context, err, SKV_RANGE, "prompt: %zu tokens, the context is %zu",
                p->n_ids, s->context);
    for (size_t i = 0; i < p->n_ids; i++) {
        SKV_REQUIRE(p->ids[i] >= 0 && (size_t)p->ids[i] < s->vocab_size, err, SKV_ARGUMENT,
                    "prompt[%zu]: %d, the vocabulary has %zu", i, p->ids[i], s->vocab_size);
    }
    return SKV_OK;
}

/* A job that has the ids, and none of its other params. */
static skv_status create_job(skv_scheduler *s, const skv_job_params *p, skv_job **out,
                             skv_error *err)
{
    skv_job_params own = skv_job_params_default();
    skv_account *account = p->account ? p->account : s->options.account;
    own.ids = p->ids;
    own.n_ids = p->n_ids;
    own.max_tokens = 0;
    own.prefill = p->prefill;
    memcpy(own.adapters, p->adapters, sizeof own.adapters);
    own.n_adapters = p->n_adapters;
    own.tenant = p->tenant;
    own.salt = p->salt;
    SKV_TRY(skv_job_check(&own, err));
    const size_t most = skv_account_max(account) / ACCOUNT_PART / SKV_IDLE_READS;
    SKV_REQUIRE(!account || skv_job_bytes(&own) <= most, err, SKV_MEMORY,
                "prompt: %zu tokens are too many to be kept", p->n_ids);
    SKV_TRY(skv_job_create(&own, account, out, err));
    skv_job_drop(*out); /* the reader's: there is none */
    (*out)->domain = skv_worker_domain(s, &own);
    (*out)->owner = skv_worker_owner(s, &own);
    return SKV_OK;
}

skv_status skv_scheduler_expect(skv_scheduler *s, const skv_job_params *params, skv_error *err)
{
    skv_job *job, *dropped = NULL;
    if (!(s->options.idle_share > 0) || s->options.no_prefix_cache || params->no_prefix_cache ||
        params->n_ids < LEAST_TOKENS) {
        return SKV_OK;
    }
    SKV_TRY(check_ids(s, params, err));
    SKV_TRY(create_job(s, params, &job, err));
    pthread_mutex_lock(&s->lock);
    skv_idle *idle = &s->idle;
    if (s->draining) {
        dropped = job;
    } else {
        if (idle->n_inbox == SKV_IDLE_READS) {
            dropped = idle->inbox[0];
            memmove(idle->inbox, idle->inbox + 1, --idle->n_inbox * sizeof *idle->inbox);
        }
        idle->inbox[idle->n_inbox++] = job;
        (void)pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (dropped) skv_job_drop(dropped);
    return SKV_OK;
}

/* ---- the worker's list ---- */

static void end_read(skv_scheduler *s, skv_idle_read *r)
{
    skv_sequence_free(s->idle.sequence);
    s->idle.sequence = NULL;
    s->idle.reading = NULL;
    r->done = true;
}

static void remove_read(skv_scheduler *s, size_t i)
{
    skv_idle *idle = &s->idle;
    skv_idle_read *r = &idle->at[i];
    if (idle->reading == r->job) end_read(s, r);
    if (!r->done) s->tally.idle_dropped++;
    skv_job_drop(r->job);
    memmove(r, r + 1, (--idle->n - i) * sizeof *r);
}

static void collect(skv_scheduler *s)
{
    skv_job *jobs[SKV_IDLE_READS];
    pthread_mutex_lock(&s->lock);
    const size_t n = s->idle.n_inbox;
    memcpy(jobs, s->idle.inbox, n * sizeof *jobs);
    s->idle.n_inbox = 0;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        if (s->idle.n == SKV_IDLE_READS) remove_read(s, 0);
        s->idle.at[s->idle.n++] = (skv_idle_read){.job = jobs[i]};
    }
}

/* The newest that is not done: its conversation is the likeliest to go on. */
static skv_idle_read *next_read(skv_idle *idle)
{
    for (size_t i = idle->n; i-- > 0;) {
        if (!idle->at[i].done) return &idle->at[i];
    }
    return NULL;
}

uint64_t skv_worker_idle_due(skv_scheduler *s)
{
    const bool any = s->idle.n_inbox > 0 || next_read(&s->idle);
    return any && !s->draining ? s->idle.due_ns : UINT64_MAX;
}

void skv_worker_pause_idle(skv_scheduler *s)
{
    if (!s->idle.sequence) return;
    skv_sequence_free(s->idle.sequence); /* the index has its blocks */
    s->idle.sequence = NULL;
    s->idle.reading = NULL;
    s->tally.idle_interrupted++;
}

void skv_worker_end_idle(skv_scheduler *s)
{
    collect(s);
    while (s->idle.n > 0) remove_read(s, 0);
}

/* ---- reading ---- */

static size_t count_known(const skv_scheduler *s, const skv_job *job)
{
    uint8_t name[SKV_BLOCK_NAME_BYTES];
    return skv_prefix_index_known(s->prefix, job->domain, job->params.ids, job->params.n_ids,
                                  name) *
           SKV_PAGE_ROWS;
}

/* Whether the missing part of a text is worth reading, and leaves others' prompts in the cache. */
static bool is_worth_reading(const skv_scheduler *s, const skv_job *job)
{
    const size_t n = skv_whole_blocks(job->params.n_ids), n_known = count_known(s, job);
    if (n < n_known + LEAST_TOKENS) return false;
    const size_t n_pages = skv_kv_layout_pages(skv_worker_layout(s, job), n - n_known);
    return n_pages <= skv_kv_store_pages(s->engine->store) / MEMORY_PART;
}

/* A sequence that begins with the known part of the text; false: the read has ended. */
static bool begin_read(skv_scheduler *s, skv_idle_read *r)
{
    const skv_job *job = r->job;
    skv_sequence *sequence;
    if (!r->begun && !is_worth_reading(s, job)) {
        s->tally.idle_left_out++;
        r->done = true;
        return false;
    }
    if (skv_worker_create_sequence(s, &job->params, &sequence, NULL) != SKV_OK) {
        r->done = true;
        return false;
    }
    const size_t n = skv_whole_blocks(job->params.n_ids);
    size_t checkpoint;
    const size_t n_found = skv_prefix_index_match(s->prefix, job->domain, job->params.ids, n,
                                                  &sequence->cache, &checkpoint);
    skv_sequence_adopt(sequence, job->params.ids, n_found, checkpoint);
    skv_tell_match(sequence, job->domain, job->params.ids, n, n_found);
    if (!r->begun) r->from = r->to = n_found;
    r->begun = true;
    s->idle.sequence = sequence;
    s->idle.reading = job;
    return true;
}

/* In hybrid models a step ends where a checkpoint may stand, at the end of a block. */
static size_t chunk_of(const skv_scheduler *s, size_t n_seen, size_t n)
{
    const double ns = skv_step_clock_room(&s->clock, 0, 0);
    const size_t n_fit = skv_max_size(skv_step_clock_fit(&s->clock, ns, n_seen), CHUNK_MIN);
    const size_t n_chunk = skv_min_size(n - n_seen, skv_min_size(n_fit, s->step_tokens));
    const size_t end = skv_whole_blocks(n_seen + n_chunk);
    return s->engine->checkpoints.n > 0 && end > n_seen ? end - n_seen : n_chunk;
}

/* A hybrid model keeps one state along with the rows. */
static void keep_state(skv_scheduler *s, skv_idle_read *r, size_t n)
{
    const skv_job *job = r->job;
    const int32_t *ids = job->params.ids;
    if (s->engine->checkpoints.n == 0 || n % SKV_PAGE_ROWS != 0) return;
    const bool is_new = !skv_prefix_index_has_state(s->prefix, job->domain, ids, n);
    if (!skv_prefix_index_keep_state(s->prefix, job->domain, ids, n, s->engine->states.states,
                                     s->idle.sequence->state)) {
        return;
    }
    if (r->kept > 0) skv_prefix_index_drop_state(s->prefix, job->domain, ids, r->kept);
    r->kept = is_new ? n : 0; /* others' stay */
}

/* Rows in front of windows are gone with the next step, so the index gets blocks after each. */
static void keep_rows(skv_scheduler *s, skv_idle_read *r, size_t n_added)
{
    const skv_job *job = r->job;
    const skv_sequence *sequence = s->idle.sequence;
    const size_t n = sequence->cache.n_rows;
    skv_prefix_index_insert(s->prefix, job->domain, job->params.ids, n, &sequence->cache);
    skv_tell_remember(sequence, job->domain, n);
    keep_state(s, r, n);
    skv_turns_give(&s->turns, job->params.tenant, n_added);
    r->to = skv_max_size(r->to, n);
    s->tally.idle_tokens += n_added;
    s->tally.idle_steps++;
}

static void step(skv_scheduler *s, skv_idle_read *r)
{
    const skv_job_params *p = &r->job->params;
    const skv_step_sink sink = {.on_row = NULL};
    const size_t n_all = skv_whole_blocks(p->n_ids);
    const size_t n_seen = s->idle.sequence->cache.n_rows;
    const skv_span span = {.sequence = s->idle.sequence,
                           .ids = p->ids + n_seen,
                           .n = chunk_of(s, n_seen, n_all),
                           .want = SKV_WANT_NONE};
    skv_status status = SKV_MEMORY;
    const uint64_t begun_ns = skv_clock_ns();
    const size_t n_pages = skv_kv_cache_needs(&span.sequence->cache, n_seen + span.n);
    if (skv_worker_make_room(s, n_pages)) {
        if (!skv_worker_begin_idle_step(s)) return;
        status = skv_engine_step(s->engine, &span, 1, &sink, NULL);
        skv_worker_end_step(s);
    }
    if (status == SKV_CANCELLED) return;
    if (status == SKV_OK) keep_rows(s, r, span.n);
    if (status != SKV_OK || n_seen + span.n == n_all) end_read(s, r);
    s->tally.idle_reads += status == SKV_OK && r->done;
    const uint64_t now = skv_clock_ns();
    const double rest = 1 / s->options.idle_share - 1;
    s->busy_ns = now;
    s->idle.due_ns = now + (uint64_t)fmin((double)(now - begun_ns) * rest, 1e18);
}

void skv_worker_read_idle(skv_scheduler *s)
{
    collect(s);
    skv_idle_read *r = next_read(&s->idle);
    if (!r || skv_clock_ns() < s->idle.due_ns) return;
    if (s->idle.sequence && s->idle.reading != r->job) skv_worker_pause_idle(s);
    if (s->idle.sequence || begin_read(s, r)) step(s, r);
}

/* ---- counting its use ---- */

static size_t count_common(const skv_job_params *p, const skv_lane *lane)
{
    const size_t n = skv_min_size(p->n_ids, lane->n_prompt);
    size_t i = 0;
    while (i < n && p->ids[i] == lane->ids[i]) i++;
    return i;
}

void skv_worker_follow_idle(skv_scheduler *s, const skv_lane *lane, size_t n_found)
{
    collect(s);
    for (size_t i = s->idle.n; i-- > 0;) {
        const skv_idle_read *r = &s->idle.at[i];
        if (r->job->domain != lane->job->domain) continue;
        const size_t n_same = count_common(&r->job->params, lane);
        if (n_same <= (r->begun ? r->from : count_known(s, r->job))) continue;
        const size_t n = skv_min_size(skv_min_size(n_same, n_found), r->to);
        if (r->begun && n > r->from) s->tally.idle_saved_tokens += n - r->from;
        remove_read(s, i);
    }
}
