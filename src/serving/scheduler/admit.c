/*
 * Pages: a waiting lane begins when its whole prompt fits beside the pages that the running lanes
 * will need soon. It first takes over the blocks that were computed for others. If pages run out
 * all the same, the youngest lane waits again: it continues later with the same tokens.
 */
#include "base/size.h"
#include "base/system.h"
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

enum { GROWTH_TOKENS = SKV_PAGE_ROWS }; /* room that a running answer is promised */

/* How a job's prompt loses rows; method NONE: it does not. */
static skv_eviction eviction_of(const skv_scheduler *s, const skv_job *job)
{
    const skv_job_params *p = &job->params;
    const skv_eviction *how = p->eviction ? p->eviction : &s->options.eviction;
    bool answers = p->max_tokens > 0 && p->pooling == SKV_POOLING_NONE;
    if (!answers || p->n_ids <= how->capacity) return (skv_eviction){.method = SKV_EVICT_NONE};
    return *how;
}

/* Ids of a lane that may come from elsewhere. The last one must be computed if its logits are
 * wanted, and so must those that vote. */
static size_t matchable(const skv_scheduler *s, const skv_lane *lane)
{
    skv_eviction how = eviction_of(s, lane->job);
    if (lane->job->params.stores) return lane->n_ids;
    if (how.method == SKV_EVICT_NONE) return lane->n_ids - 1;
    size_t n_voters = skv_max_size(1, skv_eviction_voters(&how));
    return lane->n_prompt - skv_min_size(lane->n_prompt, n_voters);
}

/* A prompt of which every token is wanted has to run every token. */
static bool may_match(const skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    bool wants_all =
        (p->prompt_logprobs && skv_lane_generated(lane) == 0) || p->pooling == SKV_POOLING_MEAN;
    return s->prefix && !p->no_prefix_cache && !wants_all && matchable(s, lane) > 0;
}

/* ---- evicting ---- */

/* Room for copies of the rows that stay, if the whole prompt is kept for others; else only for
 * the blocks that are shared as they are. */
bool skv_worker_evict(skv_scheduler *s, skv_lane *lane, size_t n_needed)
{
    const skv_sequence *sequence = lane->sequence;
    size_t most = skv_eviction_most_rows(sequence, &sequence->eviction, lane->n_prompt);
    size_t n_copies = skv_kv_layout_pages(sequence->cache.layout, most);
    if (skv_worker_make_room(s, n_copies + n_needed)) skv_worker_remember(s, lane);
    if (!skv_worker_make_room(s, skv_sequence_evict_needs(lane->sequence)) ||
        skv_sequence_evict(lane->sequence, NULL) != SKV_OK) {
        lane->failure = "the KV memory cannot hold the rows that are kept of the prompt";
        return false;
    }
    return true;
}

/* ---- beginning ---- */

/* Pages that the running lanes are going to take soon. */
static size_t promised_pages(const skv_scheduler *s)
{
    size_t n = 0;
    for (const skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (!lane->sequence) continue;
        size_t n_left = lane->n_prompt + lane->job->params.max_tokens - lane->n_ids;
        size_t n_rows = lane->n_ids + skv_min_size(n_left, GROWTH_TOKENS);
        n += skv_kv_cache_needs(&lane->sequence->cache, n_rows);
    }
    return n;
}

/* Blocks of its prompt that are not in use are counted as needed, and as evictable too. */
static bool fits(const skv_scheduler *s, const skv_lane *lane)
{
    if (s->n_running == 0) return true;
    size_t n_pages = skv_kv_layout_pages(skv_worker_layout(s, lane->job), lane->n_ids + 1);
    size_t n_there = skv_kv_store_free_pages(s->engine->store);
    if (may_match(s, lane)) {
        n_pages -=
            skv_prefix_index_in_use(s->prefix, lane->job->domain, lane->ids, matchable(s, lane));
    }
    size_t wanted = n_pages + promised_pages(s);
    if (n_there >= wanted) return true;
    return s->prefix && n_there + skv_prefix_index_evictable(s->prefix) >= wanted;
}

/* How many of n tokens lie in [from, to). */
static size_t count_within(size_t n, size_t from, size_t to)
{
    size_t end = skv_min_size(n, to);
    return end > from ? end - from : 0;
}

/* The blocks that each source has found; disk and store come before the text. */
static void count_found(skv_scheduler *s, const skv_lane *lane, size_t n_found)
{
    const skv_prompt_text *text = &lane->job->params.text;
    size_t n_disk = count_within(n_found, lane->disk.n_before, lane->disk.n_disk);
    size_t n_store = count_within(n_found, lane->disk.n_disk, lane->disk.n_store);
    size_t n_reader = count_within(n_found, lane->disk.n_store, lane->disk.n_restored);
    size_t n_elsewhere = n_disk + n_store + n_reader;
    size_t n_text = count_within(n_found - n_elsewhere, text->n_plain, text->n_matched);
    s->tally.prefix_hits_tokens += n_found;
    s->tally.prefix_disk_tokens += n_disk;
    s->tally.prefix_store_tokens += n_store;
    s->tally.prefix_text_tokens += n_text;
    s->tally.prefix_reader_tokens += n_reader;
    s->tally.prefix_memory_tokens += n_found - n_elsewhere - n_text;
}

static void count_begin(skv_scheduler *s, skv_lane *lane, size_t n_found, bool looked)
{
    skv_job *job = lane->job;
    uint64_t now = skv_clock_ns();
    skv_worker_unqueue(s, job);
    pthread_mutex_lock(&job->lock);
    job->begun_ns = now;
    job->stats.cached_tokens = job->stats.prefilled_tokens = n_found;
    pthread_mutex_unlock(&job->lock);
    s->tally.prompt_tokens += lane->n_prompt;
    if (looked) s->tally.prefix_queries_tokens += lane->n_prompt;
    count_found(s, lane, n_found);
    skv_histogram_add(&s->tally.queue_time, now - job->queued_ns - lane->remote.spent_ns);
}

/* Whether a prompt and the rows that stay of it fit side by side, so that it may begin with
 * shared pages. If they do not, it gets pages of its own, within which rows can be moved. */
static bool fits_twice(const skv_scheduler *s, const skv_sequence *sequence, const skv_lane *lane,
                       const skv_eviction *how)
{
    if (how->method == SKV_EVICT_NONE) return true;
    const skv_kv_layout *layout = sequence->cache.layout;
    size_t most = skv_eviction_most_rows(sequence, how, lane->n_prompt);
    return skv_kv_layout_pages(layout, lane->n_prompt) + skv_kv_layout_pages(layout, most) <=
           skv_kv_store_pages(s->engine->store);
}

/* A lane without an answer drafts nothing, and the scheduler's source drafts only where it can:
 * a request for the teacher has no exit head. */
static skv_status set_speculation(const skv_scheduler *s, skv_sequence *sequence,
                                  const skv_job *job, skv_error *err)
{
    static const skv_speculation none = {.source = SKV_DRAFT_NONE};
    const skv_job_params *p = &job->params;
    const skv_speculation *how = p->speculation ? p->speculation : &s->options.speculation;
    if (p->max_tokens < 2) how = &none;
    const skv_status status = skv_sequence_set_speculation(sequence, how, err);
    if (status != SKV_UNSUPPORTED || p->speculation) return status;
    return skv_sequence_set_speculation(sequence, &none, err);
}

/* Gives the lane a sequence that begins with the known part of its ids. */
static skv_status begin(skv_scheduler *s, skv_lane *lane, skv_error *err)
{
    const skv_job_params *p = &lane->job->params;
    skv_sequence *sequence;
    SKV_TRY(skv_worker_create_sequence(s, p, &sequence, err));
    size_t n_found = 0;
    skv_eviction how = eviction_of(s, lane->job);
    bool looks = may_match(s, lane) && fits_twice(s, sequence, lane, &how);
    if (looks) {
        const size_t n = matchable(s, lane);
        size_t checkpoint;
        n_found = skv_prefix_index_match(s->prefix, lane->job->domain, lane->ids, n,
                                         &sequence->cache, &checkpoint);
        skv_sequence_adopt(sequence, lane->ids, n_found, checkpoint);
        skv_tell_match(sequence, lane->job->domain, lane->ids, n, n_found);
    }
    skv_worker_place_checkpoints(s, lane, n_found, matchable(s, lane));
    skv_status status = skv_sequence_set_eviction(sequence, &how, err);
    if (status == SKV_OK && how.method != SKV_EVICT_NONE) {
        status = skv_sequence_expect(sequence, lane->n_prompt - n_found, err);
    }
    if (status == SKV_OK) status = set_speculation(s, sequence, lane->job, err);
    if (status != SKV_OK) {
        skv_sequence_free(sequence);
        return status;
    }
    lane->sequence = sequence;
    lane->queue.state = SKV_LANE_PROMPT;
    s->n_waiting--;
    s->n_running++;
    if (!lane->queue.begun && lane->i_answer == 0) {
        count_begin(s, lane, n_found, looks);
        skv_worker_follow_idle(s, lane, n_found);
        skv_worker_explain(s, lane, matchable(s, lane), n_found, looks);
    }
    const bool takes = looks && how.method == SKV_EVICT_NONE && !lane->job->params.stores;
    skv_worker_begin_shift(s, lane, takes ? matchable(s, lane) : 0,
                           !lane->queue.begun && lane->i_answer == 0);
    lane->queue.begun = true;
    return SKV_OK;
}

void skv_worker_share_prompt(skv_scheduler *s, const skv_lane *from, skv_lane *fork)
{
    fork->queue.begun = true;
    if (from->failure) return;
    if (s->n_running >= s->options.max_running) return;
    skv_sequence *sequence;
    if (skv_worker_create_sequence(s, &fork->job->params, &sequence, NULL) != SKV_OK) return;
    fork->sequence = sequence;
    if (skv_sequence_share(fork->sequence, from->sequence, from->n_prompt, NULL) != SKV_OK ||
        set_speculation(s, fork->sequence, fork->job, NULL) != SKV_OK) {
        skv_sequence_free(fork->sequence);
        fork->sequence = NULL;
        return;
    }
    skv_worker_share_shift(from, fork);
    fork->queue.state = SKV_LANE_PROMPT;
    s->n_waiting--;
    s->n_running++;
}

void skv_worker_begin_answer(skv_lane *lane)
{
    if (lane->sequence) lane->queue.state = SKV_LANE_DECODE;
}

/* Lanes that were put back go first, the oldest before others; then tenants take turns, and a
 * tenant's jobs come in order. */
static skv_lane *next_waiting(const skv_scheduler *s)
{
    skv_lane *best = NULL;
    uint64_t best_last = 0;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (lane->sequence || lane->disk.fetch || lane->remote.reading) continue;
        if (lane->queue.passed) continue;
        if (lane->queue.begun || lane->i_answer > 0) return lane;
        uint64_t last = s->admitted_last[lane->job->params.tenant % SKV_TENANTS];
        if (best && last >= best_last) continue;
        best = lane;
        best_last = last;
    }
    return best;
}

/* There is no memory for the other answers of a lane's job: lanes that share its account wait
 * with it, all others go on. */
static void pass_over(const skv_scheduler *s, const skv_lane *poor)
{
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (lane->job->account == poor->job->account) lane->queue.passed = true;
    }
}

/* Whether a lane waits for the disk, the store or a reader. */
static bool seek(skv_scheduler *s, skv_lane *lane)
{
    return skv_worker_seek(s, lane) || skv_worker_ask_reader(s, lane, matchable(s, lane));
}

void skv_worker_admit(skv_scheduler *s)
{
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) lane->queue.passed = false;
    while (s->n_running < s->options.max_running) {
        skv_lane *lane = next_waiting(s);
        if (!lane || !fits(s, lane)) return;
        /* If no lane runs, the awaited memory might never become free. */
        if (!skv_lane_reserve(lane->job, s->vocab_size, s->n_running == 0)) {
            pass_over(s, lane);
            continue;
        }
        if (may_match(s, lane) && seek(s, lane)) continue;
        skv_error err;
        s->admitted_last[lane->job->params.tenant % SKV_TENANTS] = ++s->n_admitted;
        if (begin(s, lane, &err) != SKV_OK) {
            skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(err.text));
        }
    }
}
