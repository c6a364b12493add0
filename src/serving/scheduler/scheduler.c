/* The scheduler's life, the functions that other threads call, and the worker's loop: see
 * worker.h. */
#include <time.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

enum {
    REST_MS = 20,           /* while all there is to do is on its way from the disk */
    STORE_FLUSH_SECONDS = 2 /* for blocks that are queued for the store at the end */
};

skv_scheduler_options skv_scheduler_options_default(void)
{
    return (skv_scheduler_options){0};
}

/* ---- the worker ---- */

static void end_unwanted(skv_scheduler *s)
{
    uint64_t now = skv_clock_ns();
    skv_lane *next;
    for (skv_lane *lane = s->oldest; lane; lane = next) {
        next = lane->queue.next;
        double waited = (double)(now - lane->job->queued_ns - lane->remote.spent_ns) * 1e-9;
        bool waits = !lane->queue.begun && !lane->remote.reading;
        if (atomic_load(&lane->job->cancelled)) {
            skv_worker_end(s, lane, SKV_FINISH_CANCELLED, skv_text_of("cancelled"));
        } else if (waits && waited > s->options.queue_seconds_max) {
            s->tally.rejected_timeout++;
            skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of("waited too long in the queue"));
        }
    }
}

/* With the lock held: waits for something to do, an idle read for its part of the time. */
static void wait_for_work(skv_scheduler *s)
{
    while (!s->stopping && !s->inbox && !s->nudged && !s->oldest) {
        const uint64_t due = skv_worker_idle_due(s), now = skv_clock_ns();
        if (due <= now) return;
        atomic_store(&s->beat_ns, 0);
        if (due == UINT64_MAX) {
            (void)pthread_cond_wait(&s->wake, &s->lock);
        } else {
            const struct timespec end = skv_clock_in(due - now);
            (void)skv_cond_wait_until(&s->wake, &s->lock, &end);
        }
        s->busy_ns = skv_clock_ns();
    }
}

/* Moves submitted jobs into the list of lanes; waits while there is nothing to do. False: the
 * scheduler stops. */
static bool take_inbox(skv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    wait_for_work(s);
    bool go_on = !s->stopping;
    s->nudged = false;
    skv_lane *lane = s->inbox;
    s->inbox = s->inbox_last = NULL;
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->beat_ns, skv_clock_ns());
    while (lane) {
        skv_lane *next = lane->queue.next;
        skv_worker_insert(s, lane, s->youngest);
        lane = next;
    }
    return go_on;
}

/* Waits a little for the disk, or for another thread. */
static void rest(skv_scheduler *s)
{
    const struct timespec end = skv_clock_in(REST_MS * UINT64_C(1000000));
    pthread_mutex_lock(&s->lock);
    if (!s->stopping && !s->inbox && !s->nudged) {
        (void)skv_cond_wait_until(&s->wake, &s->lock, &end);
    }
    pthread_mutex_unlock(&s->lock);
    s->busy_ns = skv_clock_ns();
}

static bool waits_for_others(const skv_scheduler *s)
{
    return s->n_fetching > 0 || s->n_starved > 0 || s->n_reading > 0 || s->n_storing > 0;
}

static void *work(void *arg)
{
    skv_scheduler *s = arg;
    skv_thread_computes();
    s->busy_ns = skv_clock_ns();
    while (take_inbox(s)) {
        if (s->oldest) skv_worker_pause_idle(s);
        end_unwanted(s);
        skv_worker_tell_stored(s);
        skv_worker_collect(s);
        skv_worker_look_at_readers(s);
        skv_worker_admit(s);
        bool more_masks = skv_worker_prepare_masks(s);
        const bool steps = skv_worker_compose(s);
        if (!steps) skv_worker_tell_all_owed(s);
        if (steps) {
            skv_worker_advance(s);
        } else if (!more_masks && waits_for_others(s)) {
            rest(s);
        } else if (!s->oldest) {
            skv_worker_read_idle(s);
        }
        skv_worker_spill_ahead(s);
        skv_worker_settle_pages(s, !s->oldest);
        skv_worker_publish(s);
    }
    while (s->oldest) {
        skv_worker_end(s, s->oldest, SKV_FINISH_CANCELLED, skv_text_of("the server stops"));
    }
    skv_worker_end_idle(s);
    skv_worker_spill_all(s);
    skv_worker_settle_pages(s, true);
    skv_worker_publish(s);
    return NULL;
}

/* ---- life ---- */

static void resolve_options(skv_scheduler *s, const skv_scheduler_options *given,
                            const skv_engine_stats *engine)
{
    skv_scheduler_options *o = &s->options;
    *o = given ? *given : skv_scheduler_options_default();
    if (o->max_running == 0) o->max_running = SKV_RUNNING_DEFAULT;
    o->max_running = skv_min_size(o->max_running, s->step_tokens);
    if (engine->states > 0) { /* of a hybrid model: an answer has one */
        o->max_running = skv_min_size(o->max_running, engine->states);
        o->no_prefix_cache = o->no_prefix_cache || engine->checkpoints == 0;
    }
    if (o->max_queued == 0) o->max_queued = SKV_QUEUED_DEFAULT;
    if (o->max_queued_tokens == 0) o->max_queued_tokens = SKV_QUEUED_CONTEXTS_DEFAULT * s->context;
    if (!(o->step_ms > 0)) o->step_ms = SKV_STEP_MS_DEFAULT;
    if (!(o->mask_seconds_max > 0)) o->mask_seconds_max = SKV_MASK_SECONDS_DEFAULT;
    if (o->mask_work_max == 0) o->mask_work_max = SKV_MASK_WORK_DEFAULT;
    if (o->output_bytes_max == 0) o->output_bytes_max = (size_t)SKV_OUTPUT_MIB_DEFAULT << 20;
    if (!(o->queue_seconds_max > 0)) o->queue_seconds_max = SKV_QUEUE_SECONDS_DEFAULT;
}

static skv_status build(skv_scheduler *s, const skv_scheduler_options *options, skv_error *err)
{
    skv_engine_stats stats;
    skv_engine_get_stats(s->engine, &stats);
    s->context = skv_min_size(stats.context, s->engine->options.kv_tokens);
    s->step_tokens = stats.step_tokens;
    s->vocab_size = skv_engine_vocab(s->engine);
    resolve_options(s, options, &stats);
    s->drafts.account = s->options.account;
    skv_worker_open_past(s);
    skv_step_clock_init(&s->clock, s->options.step_ms);
    s->spans = skv_alloc(s->step_tokens, sizeof *s->spans);
    s->span_lanes = skv_alloc(s->step_tokens, sizeof *s->span_lanes);
    SKV_REQUIRE(s->spans && s->span_lanes, err, SKV_MEMORY, "scheduler: no memory");
    SKV_TRY(skv_worker_open_choices(s, err));
    if (!s->options.no_prefix_cache) {
        SKV_TRY(skv_prefix_index_create(s->engine->store, stats.kv_pages, s->options.seed,
                                        &s->prefix, err));
        if (stats.states > 0) {
            SKV_TRY(skv_prefix_index_set_states(s->prefix, &s->engine->checkpoints, err));
        }
        skv_tell_index(s->engine, stats.kv_pages, s->options.seed);
    }
    SKV_TRY(skv_worker_open_shift(s, err));
    SKV_TRY(skv_worker_open_kept(s, err));
    SKV_TRY(skv_worker_open_readers(s, err));
    skv_worker_publish(s);
    return SKV_OK;
}

static void free_parts(skv_scheduler *s)
{
    skv_worker_close_readers(s);
    skv_spill_close(s->store, STORE_FLUSH_SECONDS);
    skv_spill_close(s->spill, s->flush_seconds);
    skv_prefix_index_free(s->prefix);
    skv_draft_domains_release(&s->drafts);
    skv_past_prompts_release(&s->past);
    skv_text_index_free(s->texts);
    skv_free(s->step_rows);
    skv_free(s->spans);
    skv_free(s->span_lanes);
    skv_worker_close_choices(s);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->wake);
    skv_free(s);
}

static skv_status check_speculation(const skv_engine *engine, skv_prefill prefill,
                                    const skv_speculation *how, skv_error *err)
{
    SKV_TRY(skv_speculation_check(how, err));
    if (how->source == SKV_DRAFT_NONE) return SKV_OK;
    return skv_engine_check_speculation(engine, prefill, how, err);
}

skv_status skv_scheduler_create(skv_engine *engine, const skv_vocab *vocab,
                                const skv_scheduler_options *options, skv_scheduler **out,
                                skv_error *err)
{
    const skv_prefill method = engine->options.prefill;
    const skv_eviction *evicts = options ? &options->eviction : NULL;
    SKV_TRY(skv_engine_check(engine, SKV_WHERE_SERVE, method, evicts, err));
    if (options) SKV_TRY(check_speculation(engine, method, &options->speculation, err));
    skv_scheduler *s = skv_alloc_zero(1, sizeof *s);
    SKV_REQUIRE(s, err, SKV_MEMORY, "scheduler: no memory");
    s->engine = engine;
    s->vocab = vocab;
    (void)pthread_mutex_init(&s->lock, NULL);
    skv_cond_init(&s->wake);
    skv_status status = build(s, options, err);
    if (status == SKV_OK && pthread_create(&s->thread, NULL, work, s) != 0) {
        status = skv_fail(err, SKV_MEMORY, "scheduler: cannot start a thread%s",
                          skv_memory_limit(SKV_STACK_BYTES));
    }
    if (status != SKV_OK) {
        free_parts(s);
        return status;
    }
    *out = s;
    return SKV_OK;
}

void skv_scheduler_free(skv_scheduler *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->draining = s->stopping = true;
    skv_worker_cut_step(s);
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    free_parts(s);
}

void skv_scheduler_drain(skv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_mutex_unlock(&s->lock);
}

/* ---- jobs ---- */

static skv_status check_ids(const skv_scheduler *s, const int32_t *ids, size_t n, const char *name,
                            skv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        SKV_REQUIRE(ids[i] >= 0 && (size_t)ids[i] < s->vocab_size, err, SKV_ARGUMENT,
                    "%s[%zu]: %d, the vocabulary has %zu", name, i, ids[i], s->vocab_size);
    }
    return SKV_OK;
}

static skv_status check_method(const skv_scheduler *s, const skv_job_params *p, skv_error *err)
{
    const skv_engine *e = s->engine;
    skv_adapter_mix adapters;
    SKV_TRY(skv_adapters_mix(&e->adapters, p->adapters, p->n_adapters, &adapters, err));
    SKV_TRY(skv_engine_check(e, SKV_WHERE_SEQUENCE, p->prefill, NULL, err));
    if (p->speculation) SKV_TRY(check_speculation(e, p->prefill, p->speculation, err));
    if (!p->eviction) return SKV_OK;
    SKV_TRY(skv_eviction_check(p->eviction, err));
    return skv_engine_check(e, SKV_WHERE_SERVE, e->options.prefill, p->eviction, err);
}

static skv_account *account_of(const skv_scheduler *s, const skv_job_params *p)
{
    return p->account ? p->account : s->options.account;
}

/* A job that can never fit is refused at once. */
static skv_status check_memory(const skv_scheduler *s, const skv_job_params *p, skv_error *err)
{
    size_t n_bytes = skv_job_bytes(p) + p->n_answers * skv_lane_bytes(p, s->vocab_size);
    const skv_account *account = account_of(s, p);
    size_t max = skv_account_max(account);
    SKV_REQUIRE(!account || n_bytes <= max, err, SKV_RANGE,
                "n: %zu answers of %zu tokens take %zu bytes of memory, at most %zu", p->n_answers,
                p->max_tokens, n_bytes, max);
    return SKV_OK;
}

/* A server that reads prompts for others does nothing else, and needs a store for the blocks. */
static skv_status check_stores(const skv_scheduler *s, const skv_job_params *p, skv_error *err)
{
    SKV_REQUIRE(p->stores || !s->engine->options.prompt_only, err, SKV_UNSUPPORTED,
                "this engine reads prompts for others (prompt_only) and writes no answers");
    SKV_REQUIRE(!p->stores || !s->options.cache_shift, err, SKV_UNSUPPORTED,
                "a store has exact blocks only, and this server has others too (cache_shift)");
    SKV_REQUIRE(!p->stores || (s->store && s->prefix && !p->no_prefix_cache), err, SKV_UNSUPPORTED,
                "there is no store that the prompt's blocks could go to");
    return SKV_OK;
}

static skv_status check_job(const skv_scheduler *s, const skv_job_params *p, skv_error *err)
{
    SKV_TRY(skv_job_check(p, err));
    SKV_TRY(check_stores(s, p, err));
    size_t longest = p->pooling == SKV_POOLING_NONE ? s->context - 1 : s->context;
    SKV_REQUIRE(p->n_ids <= longest && p->max_tokens <= s->context - p->n_ids, err, SKV_RANGE,
                "prompt: %zu tokens and max_tokens %zu, the context is %zu", p->n_ids,
                p->max_tokens, s->context);
    SKV_REQUIRE(s->vocab || p->n_stops == 0, err, SKV_ARGUMENT,
                "stop: this model has no tokenizer");
    SKV_TRY(check_method(s, p, err));
    SKV_TRY(check_memory(s, p, err));
    SKV_TRY(check_ids(s, p->ids, p->n_ids, "prompt", err));
    SKV_TRY(check_ids(s, p->stop_ids, p->n_stop_ids, "stop_token_ids", err));
    if (p->top_ids) SKV_TRY(check_ids(s, p->top_ids, p->n_top, "top_ids", err));
    for (size_t i = 0; i < p->n_biases; i++) {
        SKV_TRY(check_ids(s, &p->biases[i].id, 1, "logit_bias", err));
    }
    return SKV_OK;
}

/* Into the inbox, or why not. */
static skv_status enqueue(skv_scheduler *s, skv_lane *lane, skv_error *err)
{
    const skv_job_params *p = &lane->job->params;
    SKV_REQUIRE(!s->draining, err, SKV_CANCELLED, "the server is shutting down");
    size_t *n_own = &s->n_queued_of[p->tenant % SKV_TENANTS];
    bool full = *n_own > 0 && (s->n_queued >= s->options.max_queued ||
                               s->n_queued_tokens + p->n_ids > s->options.max_queued_tokens);
    if (full && !p->tries_again) s->n_rejected++;
    SKV_REQUIRE(!full, err, SKV_FULL, "queue: %zu requests with %zu prompt tokens are waiting",
                s->n_queued, s->n_queued_tokens);
    lane->job->number = s->n_submitted++;
    s->n_queued++;
    *n_own += 1;
    s->n_queued_tokens += p->n_ids;
    *(s->inbox_last ? &s->inbox_last->queue.next : &s->inbox) = lane;
    s->inbox_last = lane;
    if (s->idle.stepping) skv_worker_cut_step(s);
    (void)pthread_cond_signal(&s->wake);
    return SKV_OK;
}

static skv_status create_first_lane(const skv_scheduler *s, skv_job *job, skv_lane **out,
                                    skv_error *err)
{
    SKV_TRY(skv_lane_create(job, 0, s->vocab_size, s->vocab, out, err));
    skv_status status = skv_lane_constrain(*out, NULL, err);
    if (status == SKV_OK && job->params.pooling != SKV_POOLING_NONE) {
        status = skv_pooled_init(&(*out)->output.pooled, skv_engine_hidden(s->engine), err);
    }
    if (status != SKV_OK) skv_lane_free(*out);
    return status;
}

skv_status skv_scheduler_submit(skv_scheduler *s, const skv_job_params *params, skv_job **out,
                                skv_error *err)
{
    skv_job *job;
    skv_lane *lane;
    SKV_TRY(check_job(s, params, err));
    SKV_TRY(skv_job_create(params, account_of(s, params), &job, err));
    job->scheduler = s;
    job->domain = skv_worker_domain(s, params);
    job->owner = skv_worker_owner(s, params);
    skv_status status = create_first_lane(s, job, &lane, err);
    if (status == SKV_OK) {
        pthread_mutex_lock(&s->lock);
        status = enqueue(s, lane, err);
        pthread_mutex_unlock(&s->lock);
        if (status != SKV_OK) skv_lane_free(lane);
    }
    if (status != SKV_OK) {
        job->params.constraint.begin = NULL; /* still the caller's */
        skv_job_drop(job);
        skv_job_drop(job);
        return status;
    }
    *out = job;
    return SKV_OK;
}

void skv_job_cancel(skv_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool open = job->n_open > 0;
    pthread_mutex_unlock(&job->lock);
    if (!open) return;
    skv_scheduler *s = job->scheduler;
    atomic_store(&job->cancelled, true);
    pthread_mutex_lock(&s->lock);
    s->nudged = true;
    if (s->stepping == job) skv_worker_cut_step(s);
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void skv_job_release(skv_job *job)
{
    if (!job) return;
    pthread_mutex_lock(&job->lock);
    job->notify = NULL;
    pthread_mutex_unlock(&job->lock);
    skv_job_cancel(job);
    skv_job_drop(job);
}

/* ---- looking in ---- */

double skv_scheduler_backlog_seconds(skv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    double seconds = (double)s->n_queued_tokens * s->seconds_a_token;
    pthread_mutex_unlock(&s->lock);
    return seconds;
}

uint64_t skv_scheduler_stalled_ms(const skv_scheduler *s)
{
    uint64_t beat = atomic_load(&s->beat_ns), now = skv_clock_ns();
    return beat == 0 || now <= beat ? 0 : (now - beat) / 1000000;
}

void skv_scheduler_get_metrics(skv_scheduler *s, skv_scheduler_metrics *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->published;
    out->queued_tokens = s->n_queued_tokens;
    out->rejected_full = s->n_rejected;
    out->waiting = s->published.waiting;
    pthread_mutex_unlock(&s->lock);
    skv_scheduler_disk_metrics(s, out);
}
