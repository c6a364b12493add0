/*
 * Checkpoints of hybrid models: after which tokens the prefix cache keeps a copy of a lane's
 * state. A prompt can be continued only there, and a state is as large as the keys and values of
 * thousands of tokens, so they stand where later prompts are likely to begin or to part:
 *
 *     1. the last whole block of the prompt: the next turn, and the same prompt again
 *     2. where the prompt leaves those that are known: a common system prompt
 *     3. the last messages, and the first: the template's text before an answer, a turn that is
 *        asked again or edited, tools
 *     4. some places on the way through a long prompt
 *     5. the last whole block of the answer so far, one at a time
 *
 * Messages begin and end with control tokens, which texts of clients cannot hold. All places are
 * ends of blocks, where a step of the prompt is made to end.
 */
#include "base/size.h"
#include "language/vocab_impl.h"
#include "scheduler/worker.h"

enum {
    MESSAGES = 3,       /* the last ones, with the template's text around them */
    LONG_TOKENS = 4096, /* at least, between places of kind 4 */
    LONG_PARTS = 4,     /* of a prompt, between them, at most */
    SHARE = 2           /* one prompt has at most one in so many of the checkpoints */
};

static bool keeps(const skv_scheduler *s, const skv_lane *lane)
{
    return s->prefix && s->engine->checkpoints.n > 0 && !lane->job->params.no_prefix_cache;
}

/* ---- places in a prompt ---- */

/* Where checkpoints may stand, after `from`, at most `most` of them. */
typedef struct places {
    size_t *at, n; /* ascending */
    size_t from, most;
} places;

static void add(places *p, size_t n_tokens)
{
    const size_t at = skv_whole_blocks(n_tokens);
    if (at <= p->from || p->n == p->most) return;
    size_t i = 0;
    while (i < p->n && p->at[i] < at) i++;
    if (i < p->n && p->at[i] == at) return;
    memmove(p->at + i + 1, p->at + i, (p->n - i) * sizeof *p->at);
    p->at[i] = at;
    p->n++;
}

/* Whether a message, or the template's text around it, begins or ends in front of token i. */
static bool is_border(const skv_tokenizer *t, const int32_t *ids, size_t i)
{
    return skv_tokenizer_is_special(t, ids[i]) && !skv_tokenizer_is_special(t, ids[i - 1]);
}

static void add_messages(places *p, const skv_tokenizer *t, const int32_t *ids, size_t n)
{
    size_t first = 0, last = SIZE_MAX, n_last = 0;
    for (size_t i = n; i-- > 1 && n_last < MESSAGES;) {
        if (skv_whole_blocks(i) == last || !is_border(t, ids, i)) continue;
        last = skv_whole_blocks(i);
        add(p, i);
        n_last++;
    }
    for (size_t i = SKV_PAGE_ROWS; i < n && first == 0; i++) {
        if (is_border(t, ids, i)) first = i;
    }
    add(p, first);
}

size_t skv_checkpoint_places(const skv_vocab *vocab, const skv_read_prompt *prompt, size_t most,
                             size_t at[SKV_CHECKPOINTS_MAX])
{
    const size_t n = prompt->n;
    places p = {.at = at,
                .from = prompt->n_found,
                .most = skv_min_size(SKV_CHECKPOINTS_MAX, skv_ceil_div(most, SHARE))};
    add(&p, n);
    add(&p, prompt->n_known);
    if (vocab) add_messages(&p, vocab->tokenizer, prompt->ids, n);
    const size_t part = skv_max_size(LONG_TOKENS, skv_ceil_div(n, LONG_PARTS));
    for (size_t i = part; i < n; i += part) add(&p, i);
    return p.n;
}

void skv_worker_place_checkpoints(skv_scheduler *s, skv_lane *lane, size_t n_found, size_t n_usable)
{
    lane->checkpoints = (skv_lane_checkpoints){.n = 0};
    if (!keeps(s, lane)) return;
    const uint64_t domain = lane->job->domain;
    const skv_read_prompt prompt = {
        .ids = lane->ids,
        .n = n_usable,
        .n_found = n_found,
        .n_known = skv_prefix_index_rows(s->prefix, domain, lane->ids, n_usable, NULL)};
    lane->checkpoints.n =
        skv_checkpoint_places(s->vocab, &prompt, s->engine->checkpoints.n, lane->checkpoints.at);
}

size_t skv_worker_until_checkpoint(const skv_lane *lane, size_t n_seen, size_t n)
{
    const skv_lane_checkpoints *c = &lane->checkpoints;
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i] > n_seen) return skv_min_size(n, c->at[i] - n_seen);
    }
    return n;
}

/* ---- keeping them ---- */

static bool is_place(const skv_lane *lane, size_t at)
{
    const skv_lane_checkpoints *c = &lane->checkpoints;
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i] == at) return true;
    }
    return false;
}

/* Returns the length of ids that a lane has read at which its state is kept; 0: nowhere. */
static size_t wanted_place(const skv_scheduler *s, const skv_lane *lane)
{
    const size_t n = skv_lane_cached(lane), at = skv_whole_blocks(n);
    /* Pages of a prompt that loses rows are shared only where there is room for copies, at its
     * end. */
    if (!keeps(s, lane) || lane->sequence->cache.kept || lane->sequence->votes.votes) return 0;
    if (!skv_sequence_reaches(lane->sequence, at)) return 0;
    /* Of several answers one is likely to go on. */
    const bool answers =
        lane->i_answer == 0 && n >= lane->n_prompt && at + SKV_PAGE_ROWS > lane->n_prompt;
    return is_place(lane, at) || (answers && at > lane->checkpoints.answer) ? at : 0;
}

bool skv_worker_wants_state(const skv_scheduler *s, const skv_lane *lane)
{
    return wanted_place(s, lane) > 0;
}

/* The checkpoint after the answer so far replaces the one before; others' stay. */
void skv_worker_keep_state(skv_scheduler *s, skv_lane *lane)
{
    skv_lane_checkpoints *c = &lane->checkpoints;
    const size_t at = wanted_place(s, lane);
    const uint64_t domain = lane->job->domain;
    const bool is_new = !skv_prefix_index_has_state(s->prefix, domain, lane->ids, at);
    if (!skv_prefix_index_keep_state(s->prefix, domain, lane->ids, at, s->engine->states.states,
                                     lane->sequence->state) ||
        is_place(lane, at)) {
        return;
    }
    if (c->answer > 0) skv_prefix_index_drop_state(s->prefix, domain, lane->ids, c->answer);
    c->answer = is_new ? at : 0;
}

void skv_worker_settle_state(skv_lane *lane)
{
    lane->checkpoints.answer = 0;
}
