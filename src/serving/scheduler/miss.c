/*
 * Why no more of a prompt was found in the prefix cache: told once for each job, when its first
 * lane begins.
 */
#include "base/buf.h"
#include "base/size.h"
#include "base/system.h"
#include "base/utf8.h"
#include "language/vocab_impl.h"
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

enum {
    PAST_CONTEXTS = 16, /* ids of past prompts, in KV memories: they outlive their pages */
    BEFORE_BYTES = 32,  /* of a text, in front of the place where it parts; */
    AROUND_TOKENS = 32, /* looked at for it, on each side */
    TEXT_BYTES_MAX = 64 << 10
};

static const char *const names[SKV_MISS_COUNT] = {
    [SKV_MISS_NONE] = "none",       [SKV_MISS_NEW] = "new",     [SKV_MISS_TEXT] = "text",
    [SKV_MISS_EVICTED] = "evicted", [SKV_MISS_STATE] = "state", [SKV_MISS_FORM] = "form",
    [SKV_MISS_BLOCK] = "block",     [SKV_MISS_OFF] = "off"};

const char *skv_miss_name(skv_miss miss)
{
    return (size_t)miss < SKV_MISS_COUNT ? names[miss] : "none";
}

void skv_worker_open_past(skv_scheduler *s)
{
    s->past.account = s->options.account;
    s->past.max_ids = PAST_CONTEXTS * s->engine->options.kv_tokens;
    s->past.max_pinned = s->engine->options.kv_tokens;
}

static void pin(skv_scheduler *s, const skv_lane *lane, size_t n, double seconds, uint64_t key)
{
    const skv_job *job = lane->job;
    if (!(seconds > 0) || n == 0) return;
    const uint64_t end = skv_clock_ns() + (uint64_t)(seconds * 1e9);
    const skv_past_pin made = {.n = n, .end = end, .key = key};
    skv_past_prompts_pin(&s->past, job->owner, &made);
    skv_worker_pin_kept(s, job, &made, lane->ids);
}

/* Pins the beginnings that a job names: up to the token that spells the last byte of each. Returns
 * the length of the longest that is pinned for long. */
static size_t pin_beginnings(skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    bool pinned[SKV_JOB_PINS] = {false};
    size_t n_seen = 0, n_left = p->n_pins, n_long = 0;
    skv_buf text;
    skv_buf_init(&text, TEXT_BYTES_MAX);
    for (size_t n = 1; n <= lane->n_prompt && n_left > 0; n++) {
        skv_buf_clear(&text);
        if (s->vocab && !skv_tokenizer_bytes(s->vocab->tokenizer, lane->ids[n - 1], &text)) break;
        n_seen += s->vocab ? text.size : 1;
        for (size_t i = 0; i < p->n_pins; i++) {
            if (pinned[i] || (n_seen < p->pins[i].n_bytes && n < lane->n_prompt)) continue;
            pin(s, lane, n, p->pins[i].seconds, 0);
            if (p->pins[i].seconds >= SKV_PIN_LONG_SECONDS) n_long = n;
            pinned[i] = true;
            n_left--;
        }
    }
    skv_buf_release(&text);
    return n_long;
}

void skv_worker_note_prompt(skv_scheduler *s, const skv_lane *lane, size_t n)
{
    skv_job *job = lane->job;
    const double seconds = job->params.pin_seconds;
    if (lane->i_answer > 0 || n < lane->n_prompt) return;
    const size_t n_kept = lane->n_prompt / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
    const bool known = skv_past_prompts_add(&s->past, job->owner, job->domain, lane->ids, n);
    const bool begins = known && n == lane->n_prompt; /* the answer's end has its pins from here */
    const size_t n_pinned = begins ? pin_beginnings(s, lane) : 0;
    if (known) pin(s, lane, n, seconds, job->params.pin_key);
    const size_t n_long = begins && seconds >= SKV_PIN_LONG_SECONDS ? n_kept : n_pinned;
    pthread_mutex_lock(&job->lock);
    job->stats.kept_tokens = n_kept;
    if (begins) job->stats.kept_long_tokens = skv_min_size(n_long, n_kept);
    pthread_mutex_unlock(&job->lock);
}

void skv_worker_touch_pinned(skv_scheduler *s)
{
    const uint64_t now = skv_clock_ns();
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        size_t n;
        const skv_past_prompt *p = skv_past_prompts_pinned(&s->past, i, now, &n);
        if (!p) continue;
        skv_prefix_index_touch(s->prefix, p->domain, p->ids, n);
        skv_tell_touch(s->engine, p->domain, p->ids, n);
    }
}

static bool add_pieces(const skv_tokenizer *t, const int32_t *ids, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (!skv_tokenizer_bytes(t, ids[i], out)) return false;
    }
    return true;
}

/* The text around token `at`: whole characters. */
static void tell_text(const skv_scheduler *s, const int32_t *ids, size_t n, size_t at, char *out)
{
    const size_t n_before = skv_min_size(at, AROUND_TOKENS);
    skv_buf text;
    skv_buf_init(&text, TEXT_BYTES_MAX);
    if (add_pieces(s->vocab->tokenizer, ids + at - n_before, n_before, &text)) {
        const size_t parts = text.size;
        size_t first = parts - skv_min_size(parts, BEFORE_BYTES);
        const size_t n_after = skv_min_size(n - at, AROUND_TOKENS);
        if (add_pieces(s->vocab->tokenizer, ids + at, n_after, &text)) {
            while (first < text.size && ((unsigned char)text.data[first] & 0xc0) == 0x80) first++;
            size_t n_text = skv_min_size(text.size - first, SKV_MISS_TEXT_BYTES);
            n_text = n_text > 0 ? skv_utf8_complete(text.data + first, n_text) : 0;
            if (n_text > 0) memcpy(out, text.data + first, n_text);
            out[n_text] = 0;
        }
    }
    skv_buf_release(&text);
}

void skv_worker_explain(skv_scheduler *s, skv_lane *lane, size_t n_usable, size_t n_found,
                        bool looked)
{
    const skv_past_prompt *with;
    skv_job *job = lane->job;
    const size_t n_rows =
        looked && s->engine->states.n > 0
            ? skv_prefix_index_rows(s->prefix, job->domain, lane->ids, n_usable, NULL)
            : 0;
    const skv_begun_prompt begun = {.owner = job->owner,
                                    .domain = job->domain,
                                    .ids = lane->ids,
                                    .n = lane->n_prompt,
                                    .n_usable = n_usable,
                                    .n_found = n_found,
                                    .n_rows = n_rows,
                                    .looked = looked};
    skv_cache_miss miss = skv_past_prompts_explain(&s->past, &begun, &with);
    miss.block = miss.token / SKV_PAGE_ROWS;
    if (with && s->vocab && s->options.tell_miss_texts) {
        tell_text(s, lane->ids, lane->n_prompt, miss.token, miss.sent);
        tell_text(s, with->ids, with->n, miss.token, miss.known);
    }
    s->tally.misses[miss.reason]++;
    s->tally.missed_tokens[miss.reason] += miss.lost_tokens;
    pthread_mutex_lock(&job->lock);
    job->stats.miss = miss;
    pthread_mutex_unlock(&job->lock);
}
