/* Measured costs and chances of drafts: see draft_cost.h. */
#include "drafts/draft_cost.h"

#include <math.h>

/* Where nothing was measured: of a row, a part of a step as small models take, so that a large one
 * begins with short drafts and not a small one with slow steps. */
#define ROW_GUESS 0.3
#define ROW_WEIGHT 1.0
#define CHANCE_WEIGHT 4.0 /* tokens */

/* Parts that a new measurement has in a mean, and that older ones keep. */
#define NEW_PART 0.125
#define KEPT_PART 0.95
/* A step that takes longer than expected by more than this was interrupted, and counts as that. */
#define FAR_OFF 1.5

enum {
    FRESH_STEPS = 64, /* steps with drafts between two plain ones */
    WAIT_MIN = 32,
    WAIT_MAX = 256,
    OWN_SEEN_MAX = 64, /* tokens that a mean of chances goes back over, about */
};

skv_draft_cost *skv_draft_cost_of(skv_draft_costs *costs, size_t n_sequences)
{
    return n_sequences >= 1 && n_sequences <= SKV_COST_SEQUENCES ? &costs->of[n_sequences - 1]
                                                                 : NULL;
}

double skv_draft_cost_row(const skv_draft_cost *c)
{
    const double row = (c->added + ROW_WEIGHT * ROW_GUESS) / (c->squares + ROW_WEIGHT);
    return fmax(row, 0.001);
}

static void follow(double *mean, double value)
{
    if (*mean == 0) {
        *mean = value;
    } else {
        *mean += NEW_PART * (fmin(value, FAR_OFF * *mean) - *mean);
    }
}

void skv_draft_cost_learn(skv_draft_cost *c, size_t n_drafted, bool ready, double ns)
{
    const double n = (double)n_drafted;
    if (ready) {
        c->n_drafted_steps++;
        follow(&c->ready_ns, ns / (1 + n * skv_draft_cost_row(c)));
        return;
    }
    if (n_drafted == 0) {
        c->n_drafted_steps = 0;
        follow(&c->step_ns, ns);
        return;
    }
    c->n_drafted_steps++;
    if (c->step_ns == 0) return;
    const double most = FAR_OFF * (1 + n * skv_draft_cost_row(c));
    c->added = KEPT_PART * c->added + n * (fmin(ns / c->step_ns, most) - 1);
    c->squares = KEPT_PART * c->squares + n * n;
}

void skv_draft_cost_learn_model(skv_draft_cost *c, skv_drafting source, size_t n_tokens, double ns)
{
    follow(&c->draft_ns[source], ns / (double)n_tokens);
}

void skv_draft_cost_learn_read(skv_draft_costs *costs, size_t n_tokens, double ns)
{
    follow(&costs->read_ns, ns / (double)n_tokens);
}

bool skv_draft_cost_is_fresh(const skv_draft_cost *c)
{
    return c->step_ns > 0 && c->n_drafted_steps < FRESH_STEPS;
}

/* ---- their gain ---- */

bool skv_draft_wait_is_over(skv_draft_wait *w)
{
    if (w->n_wait == 0) w->n_wait = WAIT_MIN;
    if (++w->n_idle < w->n_wait) return false;
    w->n_idle = 0;
    w->n_wait = w->n_wait < WAIT_MAX ? 2 * w->n_wait : WAIT_MAX;
    return true;
}

void skv_draft_wait_reset(skv_draft_wait *w)
{
    *w = (skv_draft_wait){.n_wait = WAIT_MIN};
}

/* Classes are by the length of the match, and the guess grows with it. */
static const struct {
    size_t most; /* tokens of the match */
    double guess;
} classes[SKV_MATCH_CLASSES] = {{2, 0.3}, {4, 0.5}, {8, 0.7}, {16, 0.85}, {SIZE_MAX, 0.95}};

static size_t class_of(size_t n_match)
{
    size_t i = 0;
    while (n_match > classes[i].most) i++;
    return i;
}

double skv_draft_chance(const skv_draft_chances *own, const skv_draft_chances *all, size_t n_match)
{
    const size_t i = class_of(n_match);
    const double usual =
        (all->of[i].right + CHANCE_WEIGHT * classes[i].guess) / (all->of[i].seen + CHANCE_WEIGHT);
    return (own->of[i].right + CHANCE_WEIGHT * usual) / (own->of[i].seen + CHANCE_WEIGHT);
}

static void count(skv_draft_chances *c, size_t n_match, bool right)
{
    const size_t i = class_of(n_match);
    if (c->of[i].seen >= OWN_SEEN_MAX) {
        c->of[i].seen /= 2;
        c->of[i].right /= 2;
    }
    c->of[i].seen++;
    c->of[i].right += right;
}

void skv_draft_chances_learn(skv_draft_chances *c, size_t n_match, size_t n_drafted, size_t n_right)
{
    for (size_t i = 0; i < n_right; i++) count(c, n_match + i, true);
    if (n_right < n_drafted) count(c, n_match + n_right, false);
}

void skv_draft_gain_learn(skv_draft_gain *g, size_t n_drafted, size_t n_right)
{
    const double part = g->known ? NEW_PART : 1;
    g->known = true;
    g->drafted += part * ((double)n_drafted - g->drafted);
    g->right += part * ((double)n_right - g->right);
}
