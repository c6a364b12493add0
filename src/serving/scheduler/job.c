/* Jobs: their life, their queue of outputs, and the functions that a reader calls. */
#include "scheduler/job.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"

enum { STOPS_MAX = 64, STOP_IDS_MAX = 1024, BIASES_MAX = 1024, STOP_BYTES_MAX = 1 << 16 };
enum { SHORT_QUEUE_BYTES = 1 << 15 }; /* of outputs: counted when the job begins */

skv_job_params skv_job_params_default(void)
{
    return (skv_job_params){.n_answers = 1, .max_tokens = 16, .sampling = skv_sampling_default()};
}

/* ---- life ---- */

skv_status skv_job_check(const skv_job_params *p, skv_error *err)
{
    SKV_REQUIRE(p->n_ids >= 1 && p->ids, err, SKV_ARGUMENT, "prompt: empty");
    SKV_REQUIRE(p->n_pins <= SKV_JOB_PINS, err, SKV_RANGE, "pins: %zu of them, at most %d",
                p->n_pins, SKV_JOB_PINS);
    SKV_REQUIRE(p->n_answers >= 1 && p->n_answers <= SKV_JOB_ANSWERS_MAX, err, SKV_RANGE,
                "n: %zu answers, 1 to %d", p->n_answers, SKV_JOB_ANSWERS_MAX);
    SKV_REQUIRE(p->n_top <= SKV_JOB_TOP_MAX, err, SKV_RANGE, "logprobs: %zu, at most %d", p->n_top,
                SKV_JOB_TOP_MAX);
    SKV_REQUIRE(p->n_stops <= STOPS_MAX, err, SKV_RANGE, "stop: %zu texts, at most %d", p->n_stops,
                STOPS_MAX);
    SKV_REQUIRE(p->n_stop_ids <= STOP_IDS_MAX, err, SKV_RANGE, "stop_token_ids: %zu, at most %d",
                p->n_stop_ids, STOP_IDS_MAX);
    SKV_REQUIRE(p->n_biases <= BIASES_MAX, err, SKV_RANGE, "logit_bias: %zu tokens, at most %d",
                p->n_biases, BIASES_MAX);
    bool plain = p->max_tokens == 0 && p->n_answers == 1 && !p->prompt_logprobs;
    SKV_REQUIRE(
        p->pooling == SKV_POOLING_NONE || plain, err, SKV_ARGUMENT,
        "pooling: gives a vector of a prompt, so it excludes answers and log-probabilities");
    SKV_REQUIRE(!p->stores || (plain && p->pooling == SKV_POOLING_NONE), err, SKV_ARGUMENT,
                "stores: a prompt that is read for others has no answers, vectors or "
                "log-probabilities");
    for (size_t i = 0; i < p->n_stops; i++) {
        SKV_REQUIRE(p->stops[i].n >= 1 && p->stops[i].n <= STOP_BYTES_MAX, err, SKV_RANGE,
                    "stop: a text of %zu bytes, 1 to %d", p->stops[i].n, STOP_BYTES_MAX);
    }
    return SKV_OK;
}

/* A copy of n items on the heap; NULL for none. */
static bool copy_items(const void *from, size_t n, size_t item_bytes, void **out)
{
    *out = NULL;
    if (n == 0) return true;
    *out = skv_alloc(n, item_bytes);
    if (*out) memcpy(*out, from, n * item_bytes);
    return *out;
}

static bool copy_stops(skv_job *job, const skv_job_params *p)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < p->n_stops; i++) n_bytes += p->stops[i].n;
    if (n_bytes == 0) return true;
    skv_text_piece *stops = skv_alloc(p->n_stops, sizeof *stops);
    job->params.stops = stops;
    job->stop_bytes = skv_alloc(n_bytes, 1);
    if (!stops || !job->stop_bytes) return false;
    char *at = job->stop_bytes;
    for (size_t i = 0; i < p->n_stops; i++) {
        memcpy(at, p->stops[i].text, p->stops[i].n);
        stops[i] = (skv_text_piece){at, p->stops[i].n};
        at += p->stops[i].n;
    }
    return true;
}

static bool copy_params(skv_job *job, const skv_job_params *p)
{
    void *ids, *top_ids, *stop_ids, *biases, *key;
    job->params = *p;
    if (p->speculation) {
        job->speculation = *p->speculation;
        job->params.speculation = &job->speculation;
    }
    if (p->eviction) {
        job->eviction = *p->eviction;
        job->params.eviction = &job->eviction;
    }
    job->params.stops = NULL;
    bool ok = copy_items(p->ids, p->n_ids, sizeof *p->ids, &ids);
    ok = copy_items(p->top_ids, p->top_ids ? p->n_top : 0, sizeof *p->top_ids, &top_ids) && ok;
    ok = copy_items(p->stop_ids, p->n_stop_ids, sizeof *p->stop_ids, &stop_ids) && ok;
    ok = copy_items(p->biases, p->n_biases, sizeof *p->biases, &biases) && ok;
    ok = copy_items(p->key, p->key ? strlen(p->key) + 1 : 0, 1, &key) && ok;
    job->params.key = key;
    job->params.ids = ids;
    job->params.top_ids = top_ids;
    job->params.stop_ids = stop_ids;
    job->params.biases = biases;
    job->ends = skv_alloc_zero(p->n_answers, sizeof *job->ends);
    return copy_stops(job, p) && ok && job->ends;
}

static void free_nodes(skv_job *job, skv_output_node *node)
{
    while (node) {
        skv_output_node *next = node->next;
        bool reserved = node >= job->ends && node < job->ends + job->params.n_answers;
        skv_account_give(job->account, node->n_counted);
        if (!reserved) skv_free(node);
        node = next;
    }
}

static void free_job(skv_job *job)
{
    skv_job_params *p = &job->params;
    if (p->constraint.begin && p->constraint.release) p->constraint.release(p->constraint.user);
    free_nodes(job, job->first);
    free_nodes(job, job->reading);
    skv_free((void *)(uintptr_t)p->ids);
    skv_free((void *)(uintptr_t)p->stops);
    skv_free((void *)(uintptr_t)p->top_ids);
    skv_free((void *)(uintptr_t)p->stop_ids);
    skv_free((void *)(uintptr_t)p->biases);
    skv_free((void *)(uintptr_t)p->key);
    skv_free(job->stop_bytes);
    skv_free(job->ends);
    (void)pthread_mutex_destroy(&job->lock);
    skv_account_give(job->account, job->own_bytes + job->reserved_bytes);
    skv_free(job);
}

size_t skv_job_bytes(const skv_job_params *p)
{
    size_t n_bytes = sizeof(skv_job) + SHORT_QUEUE_BYTES + p->n_ids * sizeof *p->ids +
                     p->n_answers * sizeof(skv_output_node) + p->n_stop_ids * sizeof *p->stop_ids +
                     p->n_biases * sizeof *p->biases + (p->key ? strlen(p->key) + 1 : 0) +
                     (p->top_ids ? p->n_top * sizeof *p->top_ids : 0);
    for (size_t i = 0; i < p->n_stops; i++) n_bytes += sizeof *p->stops + p->stops[i].n;
    return n_bytes;
}

skv_status skv_job_create(const skv_job_params *params, skv_account *account, skv_job **out,
                          skv_error *err)
{
    size_t n_bytes = skv_job_bytes(params);
    SKV_REQUIRE(skv_account_take(account, n_bytes), err, SKV_MEMORY,
                "job: the memory for %zu tokens is in use by other requests", params->n_ids);
    skv_job *job = skv_alloc_zero(1, sizeof *job);
    if (!job) {
        skv_account_give(account, n_bytes);
        return skv_fail(err, SKV_MEMORY, "job: no memory");
    }
    job->account = account;
    job->own_bytes = n_bytes;
    (void)pthread_mutex_init(&job->lock, NULL);
    if (!copy_params(job, params)) {
        job->params.constraint.begin = NULL; /* still the caller's */
        free_job(job);
        return skv_fail(err, SKV_MEMORY, "job: no memory for %zu tokens", params->n_ids);
    }
    job->notify = params->notify;
    job->queued_ns = skv_clock_ns();
    job->n_open = params->n_answers;
    job->stats.prompt_tokens = params->n_ids;
    atomic_init(&job->references, 2);
    atomic_init(&job->cancelled, false);
    *out = job;
    return SKV_OK;
}

void skv_job_drop(skv_job *job)
{
    if (atomic_fetch_sub(&job->references, 1) == 1) free_job(job);
}

/* ---- outputs ---- */

/* The output and the memory that it points to, in one block. */
static skv_output_node *copy_output(const skv_output *o)
{
    size_t n_top = o->n_top * sizeof *o->top, n_vector = o->n_vector * sizeof *o->vector;
    size_t n_bytes =
        sizeof(skv_output_node) + n_top + n_vector + o->n_text + o->n_stopped + o->n_bytes;
    skv_output_node *node = skv_alloc(1, n_bytes);
    if (!node) return NULL;
    *node = (skv_output_node){.n_bytes = n_bytes, .output = *o};
    skv_token_prob *top = (skv_token_prob *)(node + 1);
    float *vector = (float *)(void *)((char *)top + n_top);
    char *text = (char *)vector + n_vector, *stopped = text + o->n_text;
    char *bytes = stopped + o->n_stopped;
    if (n_top > 0) memcpy(top, o->top, n_top);
    if (n_vector > 0) memcpy(vector, o->vector, n_vector);
    if (o->n_text > 0) memcpy(text, o->text, o->n_text);
    if (o->n_stopped > 0) memcpy(stopped, o->stopped, o->n_stopped);
    if (o->n_bytes > 0) memcpy(bytes, o->bytes, o->n_bytes);
    node->output.top = top;
    node->output.vector = vector;
    node->output.text = text;
    node->output.bytes = bytes;
    if (o->stopped) node->output.stopped = stopped;
    return node;
}

/* With the lock held. */
static void append(skv_job *job, skv_output_node *node)
{
    *(job->last ? &job->last->next : &job->first) = node;
    job->last = node;
    job->n_bytes += node->n_bytes;
    if (job->notify) job->notify(job->params.user);
}

bool skv_job_put(skv_job *job, const skv_output *output, size_t max_bytes)
{
    skv_output_node *node = copy_output(output);
    if (!node) return false;
    pthread_mutex_lock(&job->lock);
    bool fits = node->n_bytes <= max_bytes && job->n_bytes <= max_bytes - node->n_bytes;
    if (fits && job->n_bytes + node->n_bytes > SHORT_QUEUE_BYTES) {
        fits = skv_account_take(job->account, node->n_bytes);
        node->n_counted = fits ? node->n_bytes : 0;
    }
    if (fits) append(job, node);
    pthread_mutex_unlock(&job->lock);
    if (!fits) skv_free(node);
    return fits;
}

void skv_job_end(skv_job *job, const skv_output *output)
{
    assert(output->kind == SKV_OUTPUT_END && output->i_answer < job->params.n_answers);
    static const char no_memory[] = "out of memory";
    skv_output_node *node = copy_output(output);
    if (!node) {
        node = &job->ends[output->i_answer];
        node->output = (skv_output){.kind = SKV_OUTPUT_END,
                                    .i_answer = output->i_answer,
                                    .finish = SKV_FINISH_FAILED,
                                    .status = SKV_MEMORY,
                                    .logprob = (double)NAN,
                                    .text = no_memory,
                                    .n_text = sizeof no_memory - 1};
    }
    pthread_mutex_lock(&job->lock);
    if (job->n_bytes + node->n_bytes > SHORT_QUEUE_BYTES) {
        skv_account_take_anyway(job->account, node->n_bytes);
        node->n_counted = node->n_bytes;
    }
    job->n_open--;
    append(job, node);
    pthread_mutex_unlock(&job->lock);
}

/* ---- the reader ---- */

bool skv_job_next(skv_job *job, skv_output *out)
{
    pthread_mutex_lock(&job->lock);
    if (job->reading) job->n_bytes -= job->reading->n_bytes;
    free_nodes(job, job->reading);
    skv_output_node *node = job->first;
    job->reading = node;
    if (node) {
        job->first = node->next;
        if (!job->first) job->last = NULL;
        node->next = NULL;
        *out = node->output;
    }
    pthread_mutex_unlock(&job->lock);
    return node;
}

bool skv_job_done(skv_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool done = job->n_open == 0 && !job->first;
    pthread_mutex_unlock(&job->lock);
    return done;
}

uint64_t skv_job_wait_ns(const skv_job *job, uint64_t now)
{
    uint64_t passed = now - job->begun_ns, computed = job->stats.prefill_ns;
    return passed > computed ? passed - computed : 0;
}

void skv_job_get_stats(skv_job *job, skv_job_stats *out)
{
    pthread_mutex_lock(&job->lock);
    uint64_t now = skv_clock_ns(), first = job->first_token_ns;
    *out = job->stats;
    out->queue_ns = (job->begun_ns ? job->begun_ns : now) - job->queued_ns;
    if (job->begun_ns) out->wait_ns = skv_job_wait_ns(job, first ? first : now);
    if (first) out->decode_ns = job->last_token_ns - first;
    pthread_mutex_unlock(&job->lock);
}
