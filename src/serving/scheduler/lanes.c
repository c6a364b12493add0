/* The list of lanes, how they lose their pages, and how they end. */
#include <math.h>

#include "base/system.h"
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

/* ---- the list, and its numbers for other threads ---- */

void skv_worker_insert(skv_scheduler *s, skv_lane *lane, skv_lane *after)
{
    lane->queue.before = after;
    lane->queue.next = after ? after->queue.next : s->oldest;
    *(lane->queue.next ? &lane->queue.next->queue.before : &s->youngest) = lane;
    *(after ? &after->queue.next : &s->oldest) = lane;
    s->n_waiting++;
    s->n_storing += lane->job->params.stores;
}

static void remove_lane(skv_scheduler *s, skv_lane *lane)
{
    *(lane->queue.next ? &lane->queue.next->queue.before : &s->youngest) = lane->queue.before;
    *(lane->queue.before ? &lane->queue.before->queue.next : &s->oldest) = lane->queue.next;
    s->n_waiting--;
    s->n_storing -= lane->job->params.stores;
}

void skv_worker_unqueue(skv_scheduler *s, const skv_job *job)
{
    pthread_mutex_lock(&s->lock);
    s->n_queued--;
    s->n_queued_of[job->params.tenant % SKV_TENANTS]--;
    s->n_queued_tokens -= job->params.n_ids;
    pthread_mutex_unlock(&s->lock);
}

static void count_end(skv_scheduler *s, const skv_lane *lane, skv_finish finish)
{
    uint64_t now = skv_clock_ns();
    const skv_job *job = lane->job;
    s->tally.finished[finish]++;
    if (finish == SKV_FINISH_CANCELLED) {
        bool decodes = skv_lane_generated(lane) > 0;
        s->tally.cancelled_queued += !lane->queue.begun;
        s->tally.cancelled_prefill += lane->queue.begun && !decodes;
        s->tally.cancelled_decode += decodes;
    }
    if (finish != SKV_FINISH_STOP && finish != SKV_FINISH_LENGTH) return;
    skv_histogram_add(&s->tally.end_to_end, now - job->queued_ns);
    if (job->first_token_ns) {
        skv_histogram_add(&s->tally.decode_time, now - job->first_token_ns);
    }
}

size_t skv_worker_held_bytes(const skv_lane *lane)
{
    const skv_constraint *c = &lane->job->params.constraint;
    return lane->mask.constraint && c->bytes ? c->bytes(lane->mask.constraint) : 0;
}

/* Bytes that the constraints of all lanes hold. */
static size_t grammar_bytes(const skv_scheduler *s)
{
    size_t sum = 0;
    const skv_job *last = NULL;
    for (const skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (lane->job != last) sum += skv_worker_held_bytes(lane);
        last = lane->job;
    }
    return sum;
}

void skv_worker_publish(skv_scheduler *s)
{
    skv_scheduler_metrics *m = &s->tally;
    m->running = s->n_running;
    m->waiting = s->n_waiting;
    m->grammar_bytes = grammar_bytes(s);
    m->kv_pages = skv_kv_store_pages(s->engine->store);
    m->kv_pages_used = m->kv_pages - skv_kv_store_free_pages(s->engine->store);
    m->kv_pages_cached = s->prefix ? skv_prefix_index_evictable(s->prefix) : 0;
    pthread_mutex_lock(&s->lock);
    s->published = *m;
    s->seconds_a_token = skv_step_clock_seconds(&s->clock, 1);
    pthread_mutex_unlock(&s->lock);
}

/* ---- giving back ---- */

void skv_worker_remember(skv_scheduler *s, const skv_lane *lane)
{
    if (!s->prefix || lane->job->params.no_prefix_cache || !lane->sequence) return;
    /* Rows after an eviction have seen fewer rows than a prompt would show them. */
    if (lane->sequence->cache.kept) return;
    skv_prefix_index_insert_parts(s->prefix, lane->job->domain, lane->ids, skv_lane_cached(lane),
                                  &lane->sequence->cache, lane->shift.parts, lane->shift.n_parts);
    skv_tell_remember(lane->sequence, lane->job->domain, skv_lane_cached(lane));
    skv_worker_note_prompt(s, lane, skv_lane_cached(lane));
    skv_worker_share(s, lane);
}

/* Keeps a lane's blocks in the cache for others, and gives its pages back. */
static void give_back(skv_scheduler *s, skv_lane *lane)
{
    if (!lane->sequence) return;
    skv_worker_settle_state(lane);
    skv_worker_remember(s, lane);
    skv_sequence_free(lane->sequence);
    lane->sequence = NULL;
    lane->queue.state = SKV_LANE_WAITING;
    skv_worker_seek_again(lane);
    skv_worker_ask_again(lane);
    s->n_running--;
    s->n_waiting++;
}

bool skv_worker_preempt(skv_scheduler *s)
{
    if (s->n_running <= 1) return false;
    skv_lane *lane = s->youngest;
    while (!lane->sequence) lane = lane->queue.before;
    give_back(s, lane);
    s->tally.preemptions++;
    pthread_mutex_lock(&lane->job->lock);
    lane->job->stats.preemptions++;
    pthread_mutex_unlock(&lane->job->lock);
    return true;
}

/* ---- the end ---- */

void skv_worker_end(skv_scheduler *s, skv_lane *lane, skv_finish finish, skv_text_piece text)
{
    skv_job *job = lane->job;
    skv_worker_tell_owed(s, lane);
    const skv_text_piece *stopped = lane->output.stop.stopped;
    skv_output end = {.kind = SKV_OUTPUT_END,
                      .i_answer = lane->i_answer,
                      .logprob = (double)NAN,
                      .text = text.text,
                      .n_text = text.n,
                      .finish = finish,
                      .status = finish != SKV_FINISH_FAILED ? SKV_OK
                                : lane->failure_status      ? lane->failure_status
                                                            : SKV_MEMORY,
                      .stopped = stopped ? stopped->text : NULL,
                      .n_stopped = stopped ? stopped->n : 0};
    skv_worker_stop_fetch(s, lane);
    skv_worker_stop_reading(s, lane);
    skv_worker_keep_text(s, lane);
    skv_worker_keep_answer(s, lane);
    /* When the reader sees the end, the pages are free and the whole request is counted. */
    give_back(s, lane);
    if (lane->i_answer == 0 && !lane->queue.begun) skv_worker_unqueue(s, job);
    count_end(s, lane, finish);
    remove_lane(s, lane);
    skv_worker_publish(s);
    size_t n_answers = lane->i_answer == 0 && !job->forked ? job->params.n_answers : 1;
    for (size_t i = 0; i < n_answers; i++) {
        skv_job_end(job, &end);
        end.i_answer++;
    }
    skv_lane_free(lane);
    pthread_mutex_lock(&job->lock);
    bool done = job->n_open == 0;
    pthread_mutex_unlock(&job->lock);
    if (done) skv_job_drop(job);
}
