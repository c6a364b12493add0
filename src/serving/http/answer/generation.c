/* Answers on their way: see generation.h. */
#include "answer/generation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 16,       /* jobs of one request that are begun at a time */
    WAIT_MS_MAX = 100, /* after which the server's state, and a full queue, are looked at again */
};

/* Called by the worker. */
static void wake(void *user)
{
    const generation *g = user;
    skv_wake_ring(&g->wake);
}

/* ---- lengths ---- */

/* Clients that do not know the context ask for a large answer: it ends with the context. */
static bool check_length(const generation *g, const api_prompt *prompt, size_t *max_tokens,
                         api_error *error)
{
    const size_t context = g->ex->model->limits.context;
    const size_t room = prompt->n_ids < context ? context - prompt->n_ids : 0;
    const size_t wanted = g->max_tokens >= 0 ? (size_t)g->max_tokens : g->default_tokens;
    if (g->job.min_tokens > wanted) {
        return request_check_min((int64_t)g->job.min_tokens, (int64_t)wanted, error);
    }
    *max_tokens = wanted < room ? wanted : room;
    /* A vector comes of a whole context, an answer needs a place in it. */
    if (room > 0 || (g->job.pooling != SKV_POOLING_NONE && prompt->n_ids == context)) return true;
    /* A text is not read further than this. Clients look for words of Anthropic's, llama-server's
     * and OpenAI's message, and shorten the conversation then. */
    (void)api_fail(error, 400, "messages",
                   "the prompt is too long: %s%zu tokens > %zu maximum; it exceeds the available "
                   "context size: this model's maximum context length is %zu tokens, of which the "
                   "answer needs one",
                   prompt->is_cut ? "more than " : "", prompt->n_ids - prompt->is_cut, context,
                   context);
    error->code = "context_length_exceeded";
    error->param[0] = 0;
    error->n_context = context;
    error->n_prompt = prompt->n_ids;
    error->prompt_is_cut = prompt->is_cut;
    return false;
}

/* ---- jobs ---- */

/* The response for GENERATION_GONE; returns false. */
static bool gone_error(const generation *g, api_error *error)
{
    return exchange_fail(g->ex, SKV_CANCELLED, &(const skv_error){.text = "cancelled"}, NULL,
                         error);
}

typedef struct submission {
    generation *g;
    size_t i_prompt;
    const skv_job_params *job;
    skv_status status;
    skv_error err;
} submission;

/* False: there is no memory for it now. */
static bool try_submit(void *user, bool first)
{
    submission *s = user;
    (void)first;
    s->status =
        skv_scheduler_submit(s->g->ex->model->scheduler, s->job, &s->g->jobs[s->i_prompt], &s->err);
    return s->status != SKV_MEMORY;
}

/* Where nothing of the request is on its way, it waits for memory. */
static skv_status submit_patiently(submission *s)
{
    const bool idle = s->g->n_begun == s->g->n_done;
    if (!try_submit(s, false) && idle) (void)memory_wait(s->g->ex, (memory_turn){0}, try_submit, s);
    return s->status;
}

static bool submit(generation *g, size_t i, api_error *error)
{
    const api_prompt *prompt = &g->prompts->at[i];
    skv_job_params job = g->job;
    submission s = {.g = g, .i_prompt = i, .job = &job};
    if (!check_length(g, prompt, &job.max_tokens, error)) return false;
    if (job.min_tokens > job.max_tokens) job.min_tokens = job.max_tokens;
    job.ids = prompt->ids;
    job.n_ids = prompt->n_ids;
    job.text = prompt->known;
    memcpy(job.pins, prompt->pins, sizeof job.pins);
    job.n_pins = prompt->n_pins;
    job.tries_again = g->n_begun > g->n_done;
    job.notify = wake;
    job.user = g;
    const skv_status status = submit_patiently(&s);
    if (status == SKV_OK) {
        g->job.constraint = (skv_constraint){0}; /* the job has it now */
        return true;
    }
    if (status == SKV_MEMORY && exchange_stopped(g->ex)) return gone_error(g, error);
    (void)api_fail_status(error, status, &s.err);
    g->is_full = status == SKV_FULL || status == SKV_MEMORY;
    if (error->status == 429 || error->status == 503) {
        const double backlog = skv_scheduler_backlog_seconds(g->ex->model->scheduler);
        error->retry_after_s = backlog < 1 ? 1 : backlog > 120 ? 120 : backlog;
    }
    return false;
}

/* As many jobs as the window and the queue allow. Only the first one has to find room. */
static bool begin_jobs(generation *g, api_error *error)
{
    while (g->n_begun < g->prompts->n && g->n_begun - g->n_done < WINDOW) {
        if (!submit(g, g->n_begun, error)) return g->is_full && g->n_begun > g->n_done;
        g->n_begun++;
    }
    return true;
}

/* Tokens of the key; the tokens of the answers are known when they end. */
static void use_tokens(const exchange *ex, size_t n)
{
    http_server *server = ex->server;
    if (!ex->rated || n == 0) return;
    rates_use(server->rates, ex->tenant, server_limits(server, ex->tenant), skv_now_ns(), n);
}

bool generation_start(generation *g, exchange *ex, const prompt_list *prompts,
                      const request_params *params, size_t default_tokens, api_error *error)
{
    const skv_constraint constraint = g->job.constraint;
    *g = (generation){.ex = ex,
                      .prompts = prompts,
                      .job = request_params_job(ex, params),
                      .max_tokens = params->max_tokens,
                      .default_tokens = default_tokens,
                      .start_ns = skv_now_ns()};
    g->job.constraint = constraint;
    if (ex->read_ns == 0) {
        ex->read_ns = g->start_ns - ex->begun_ns - ex->load_ns - ex->memory_ns;
    }
    if (!request_hold(ex, prompts->n * (sizeof(skv_job *) + sizeof *g->stats), "prompt", error)) {
        return false;
    }
    g->jobs = calloc(prompts->n, sizeof(skv_job *));
    g->stats = calloc(prompts->n, sizeof *g->stats);
    const bool woken = skv_wake_open(&g->wake);
    if (!g->jobs || !g->stats || !woken) {
        return api_fail(error, 503, NULL, "no memory or descriptor for the request");
    }
    size_t n_tokens = 0;
    for (size_t i = 0; i < prompts->n; i++) {
        size_t max_tokens;
        if (!check_length(g, &prompts->at[i], &max_tokens, error)) return false;
        n_tokens += prompts->at[i].n_ids;
    }
    if (!begin_jobs(g, error)) return false;
    ex->running = g;
    memory_pass(ex);
    use_tokens(ex, n_tokens);
    return true;
}

static void finish_job(generation *g, size_t i)
{
    skv_job_get_stats(g->jobs[i], &g->stats[i]);
    skv_job_release(g->jobs[i]);
    g->jobs[i] = NULL;
    g->n_done++;
}

/* Looks through the jobs that were begun, in rotation. */
static bool find_output(generation *g, size_t *i_prompt, skv_output *out)
{
    for (size_t k = 0; k < g->n_begun; k++) {
        const size_t i = (g->i_next + k) % g->n_begun;
        if (!g->jobs[i]) continue;
        if (skv_job_next(g->jobs[i], out)) {
            *i_prompt = i;
            g->i_next = i;
            return true;
        }
        if (skv_job_done(g->jobs[i])) finish_job(g, i);
    }
    return false;
}

/* ---- waiting ---- */

static bool is_gone(generation *g, int wait_ms)
{
    const bool left = skv_socket_has_left(g->ex->fd, &g->wake, wait_ms);
    skv_wake_clear(&g->wake);
    return left || exchange_stopped(g->ex);
}

/* Counts its tokens, for the key's rate and the log; once. */
static void settle(generation *g)
{
    if (g->settled || !g->ex || g->ex->running != g) return;
    generation_stats(g, &g->ex->used);
    use_tokens(g->ex, g->ex->used.completion_tokens);
    g->ex->running = NULL;
    g->settled = true;
}

generation_event generation_next(generation *g, double seconds, size_t *i_prompt, skv_output *out)
{
    const uint64_t start = skv_now_ns();
    for (;;) {
        if (find_output(g, i_prompt, out)) return GENERATION_OUTPUT;
        if (g->n_done == g->prompts->n) {
            settle(g);
            return GENERATION_DONE;
        }
        if (!begin_jobs(g, &g->failure)) return GENERATION_FAILED;
        const double left = seconds - (double)(skv_now_ns() - start) * 1e-9;
        if (left <= 0) return GENERATION_QUIET;
        const int wait_ms = left * 1e3 < WAIT_MS_MAX ? (int)(left * 1e3) + 1 : WAIT_MS_MAX;
        if (is_gone(g, wait_ms)) return GENERATION_GONE;
    }
}

bool generation_output_failed(const skv_output *end, api_error *error)
{
    if (end->finish == SKV_FINISH_STOP || end->finish == SKV_FINISH_LENGTH) return false;
    const bool hopeless = end->finish == SKV_FINISH_FAILED && end->status == SKV_RANGE;
    (void)api_fail(error, hopeless ? 400 : 503, NULL, "%.*s", (int)end->n_text, end->text);
    if (!hopeless) error->retry_after_s = 1;
    return true;
}

bool generation_gather(generation *g,
                       void (*take)(void *user, size_t i_prompt, const skv_output *o), void *user,
                       api_error *error)
{
    skv_output o;
    size_t i_prompt;
    for (;;) {
        switch (generation_next(g, HUGE_VAL, &i_prompt, &o)) {
        case GENERATION_OUTPUT:
            if (o.kind == SKV_OUTPUT_END && generation_output_failed(&o, error)) return false;
            take(user, i_prompt, &o);
            if (g->ex->refusal.status == 0) break;
            *error = g->ex->refusal;
            return false;
        case GENERATION_QUIET: break;
        case GENERATION_DONE: return true;
        case GENERATION_GONE: return gone_error(g, error);
        case GENERATION_FAILED: *error = g->failure; return false;
        }
    }
}

void generation_prompt_stats(const generation *g, size_t i, skv_job_stats *out)
{
    *out = g->stats[i];
    if (g->jobs[i]) skv_job_get_stats(g->jobs[i], out);
}

/* Of several prompts, the one that lost most tells why; the lost tokens are summed. */
static void add_miss(skv_cache_miss *sum, const skv_cache_miss *one)
{
    const size_t lost = sum->lost_tokens + one->lost_tokens;
    if (sum->reason == SKV_MISS_NONE || one->lost_tokens > sum->lost_tokens) *sum = *one;
    sum->lost_tokens = lost;
}

void generation_stats(const generation *g, skv_job_stats *out)
{
    *out = (skv_job_stats){0};
    for (size_t i = 0; i < g->prompts->n; i++) {
        skv_job_stats one;
        generation_prompt_stats(g, i, &one);
        out->prompt_tokens += one.prompt_tokens;
        out->cached_tokens += one.cached_tokens;
        out->shifted_tokens += one.shifted_tokens;
        out->kept_tokens += one.kept_tokens;
        out->kept_long_tokens += one.kept_long_tokens;
        add_miss(&out->miss, &one.miss);
        out->prefilled_tokens += one.prefilled_tokens;
        out->completion_tokens += one.completion_tokens;
        for (size_t d = 0; d < SKV_DRAFT_SOURCES; d++) {
            out->drafts[d].drafted += one.drafts[d].drafted;
            out->drafts[d].accepted += one.drafts[d].accepted;
        }
        out->preemptions += one.preemptions;
        out->queue_ns += one.queue_ns;
        out->prefill_ns += one.prefill_ns;
        out->wait_ns += one.wait_ns;
        out->decode_ns += one.decode_ns;
    }
}

void generation_release(generation *g)
{
    if (!g->settled) settle(g);
    for (size_t i = 0; g->jobs && i < g->prompts->n; i++) skv_job_release(g->jobs[i]);
    free(g->jobs);
    free(g->stats);
    skv_wake_close(&g->wake);
    if (g->job.constraint.begin && g->job.constraint.release) {
        g->job.constraint.release(g->job.constraint.user);
    }
    *g = (generation){.wake = {-1, -1}};
}
