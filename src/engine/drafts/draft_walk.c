/* The walk of drafts that a model makes: see draft_walk.h. */
#include "drafts/draft_walk.h"

#include <assert.h>

#include "engine/engine.h"

void skv_draft_walk_run(const skv_draft_walk *walk, skv_draft_request *requests, size_t n)
{
    bool over[SKV_LOGIT_ROWS] = {false};
    size_t owner[SKV_LOGIT_ROWS]; /* of a row: the request */
    assert(n <= SKV_LOGIT_ROWS);
    for (;;) {
        size_t n_rows = 0;
        walk->begin(walk->user);
        for (size_t i = 0; i < n; i++) {
            if (over[i]) continue;
            over[i] = !walk->add(walk->user, &requests[i]);
            if (!over[i]) owner[n_rows++] = i;
        }
        if (n_rows == 0) return;
        const skv_status status = walk->run(walk->user);
        for (size_t i = 0; i < n_rows; i++) {
            over[owner[i]] = !walk->settle(walk->user, i, status);
        }
    }
}

skv_status skv_draft_pass_run(skv_engine *e, skv_pass *pass)
{
    const skv_status status = skv_pass_run(pass, NULL);
    if (status == SKV_CANCELLED) atomic_store(&e->cancel, true);
    return status;
}

bool skv_draft_wish(void *user, skv_wishes *wishes)
{
    (void)user;
    wishes->picks[wishes->n++] = (skv_pick_row){.norm = true};
    return true;
}

bool skv_draft_take(skv_draft_request *r, int32_t id)
{
    skv_sequence *s = r->sequence;
    if (skv_engine_is_eos(s->engine, id)) return false;
    r->out[r->n] = id;
    s->ids[s->n_seen + 1 + r->n++] = id;
    return true;
}
