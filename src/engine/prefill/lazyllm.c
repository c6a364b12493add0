/*
 * LazyLLM (arXiv:2407.14057): a prompt loses tokens on its way through the layers. The last token's
 * attention in the layer before chooses the tokens of layer i; a token that was dropped leaves keys
 * and values in the layers it has seen, and none in later ones. As arXiv:2410.08391 compares with
 * it: all tokens in the first 30 % of the layers, then a share that falls linearly from `keep` to
 * `end` at 90 %. Dropped tokens are not revived while the answer is generated.
 */
#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "model/pass.h"
#include "prefill/pruning.h"

static const double first_share = 0.3, last_share = 0.9; /* of the layers */

/* The share of a prompt that a layer runs. */
static double share_of(size_t i_layer, size_t n_layers, double keep, double end)
{
    const double at = ((double)i_layer + 0.5) / (double)n_layers;
    if (at < first_share) return 1;
    if (at >= last_share) return end;
    return keep + (end - keep) * (at - first_share) / (last_share - first_share);
}

/* Tokens of those that may be dropped that layer i keeps. */
static size_t count_kept(const skv_lazy *l, size_t i_layer)
{
    const double share = share_of(i_layer, l->probe.model->config->n_layers, l->keep, l->end);
    return skv_min_size(l->n_left, (size_t)(share * (double)l->n_all + 0.5));
}

static void look(void *user, size_t i_layer, skv_rows q, size_t n_rows)
{
    skv_lazy *l = user;
    const size_t next = i_layer + 1;
    if (next == l->probe.model->config->n_layers || count_kept(l, next) == l->n_left) return;
    const size_t slot = l->probe.plan->layers[i_layer].slot;
    l->probe.row0 = l->slot_rows[slot];
    l->probe.n = l->n_left;
    l->probe.n_rows = l->slot_rows[slot] + n_rows;
    memset(l->probe.scores, 0, l->n_left * sizeof *l->probe.scores);
    skv_prune_look(&l->probe, i_layer, q, n_rows);
}

/* Rows of the n of the step that layer i_layer runs, at `rows`; how many is returned. */
static size_t choose(skv_lazy *l, size_t i_layer, size_t n, uint32_t *rows)
{
    const size_t n_keep = count_kept(l, i_layer);
    size_t n_out = 0;
    if (n_keep == l->n_left) return n;
    skv_prune_by_score(l->probe.scores, l->n_left, n_keep, l->kept);
    for (size_t r = 0; r < n; r++) {
        if (r >= l->n_left || l->kept[r]) rows[n_out++] = (uint32_t)r;
    }
    l->n_left = n_keep;
    return n_out;
}

static void start(void *user, skv_pass *p)
{
    (void)user;
    assert(p->n_spans == 1);
    for (size_t r = 0; r < p->n_rows; r++) {
        p->ws->positions[r] = (uint32_t)(p->spans[0].at.position0 + r);
    }
    p->spec.positions = p->ws->positions;
}

/* The places of the rows that are left in a slot that has rows of its own. */
static void place_rows(void *user, skv_pass *p, size_t i)
{
    const skv_lazy *l = user;
    skv_backend_span *span = &p->spans[0].at;
    const size_t n_past = l->slot_rows[p->plan->layers[i].slot];
    if (n_past == span->n_past && span->n == p->n_rows) return;
    span->n_past = n_past;
    skv_pass_change(p);
}

/* The layer's slot has the rows, and some of them do not go on. */
static void drop_rows(void *user, skv_pass *p, size_t i)
{
    skv_lazy *l = user;
    l->slot_rows[p->plan->layers[i].slot] += p->n_rows;
    if (i + 1 == p->c->n_layers) return;
    size_t n = choose(l, i + 1, p->n_rows, p->ws->gathered);
    if (n == p->n_rows) return;
    skv_pass_keep(p, n);
    for (size_t r = 0; r < n; r++) p->ws->positions[r] = p->ws->positions[p->ws->gathered[r]];
    p->spans[0].at.n = n;
}

skv_hook skv_lazy_hook(skv_lazy *l)
{
    return (skv_hook){.user = l,
                      .start = start,
                      .before_layer = place_rows,
                      .on_query = look,
                      .after_layer = drop_rows};
}
