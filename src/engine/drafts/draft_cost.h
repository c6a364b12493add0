/*
 * The cost and gain of drafts, as this engine measured them: `--speculate auto` drafts only what
 * pays.
 *
 * Costs are times of this machine, so an engine has them once. Their gain is learnt from texts, so
 * it is kept by domain (the requests that may see each other's texts): how much is drafted for a
 * reader tells nothing about the texts of others.
 *
 * A step of a token each of n sequences takes step_ns, and each drafted row adds the part `row` of
 * it (measured curves are straight lines, about: docs/results/speculation.md). So with tokens
 * expected of a step that has D drafted rows, another row that is right with probability p pays as
 * long as
 *
 *     (tokens + p) / (1 + row (D + 1)) > tokens / (1 + row D).
 *
 * Steps are learnt from where they hold nothing but answers. All figures are running means, so they
 * follow the load of the machine and the number of rows that attention reads.
 */
#ifndef SKV_ENGINE_DRAFT_COST_H
#define SKV_ENGINE_DRAFT_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/skv.h"

enum {
    SKV_COST_SEQUENCES =
        32,               /* of a step with more of them nothing is learnt, and none is drafted */
    SKV_MATCH_CLASSES = 5 /* of text drafts, by the length of their match */
};

/* Of steps with one number of sequences. */
typedef struct skv_draft_cost {
    double step_ns;        /* a token each; 0: unknown */
    double added, squares; /* over steps with d drafted rows: d (time / step_ns - 1), and d d */
    double ready_ns;       /* a token each, where rows are ready (draft.h); 0: unknown */
    double draft_ns[SKV_DRAFT_SOURCES]; /* a token each, drafted by a model; 0: unknown */
    size_t n_drafted_steps;             /* since the last one without drafts */
} skv_draft_cost;

/* An engine's. */
typedef struct skv_draft_costs {
    skv_draft_cost of[SKV_COST_SEQUENCES];
    double read_ns; /* a token of a prompt that a model apart reads before it drafts; 0: unknown */
} skv_draft_costs;

/* How often a token of a text draft was right, by the tokens before it that agreed: those of the
 * match, and those of the draft. */
typedef struct skv_draft_chances {
    struct {
        double seen, right;
    } of[SKV_MATCH_CLASSES];
} skv_draft_chances;

/* The gain of a model's drafts: running means of a draft's tokens, and of those that were right. */
typedef struct skv_draft_gain {
    bool known;
    double drafted, right;
} skv_draft_gain;

/* Steps that did not draft because nothing seemed to pay, and after how many one drafts anyway. */
typedef struct skv_draft_wait {
    uint16_t n_idle, n_wait;
} skv_draft_wait;

/* The gain of drafts in a domain. A sequence begins with it. All zeros: nothing is known. */
typedef struct skv_draft_learnt {
    skv_draft_chances chances;               /* of texts */
    skv_draft_gain gains[SKV_DRAFT_SOURCES]; /* of models */
    skv_draft_wait waits[SKV_COST_SEQUENCES];
    double spare_ns; /* of steps of AUTO whose model had not read its prompt, since one began to */
} skv_draft_learnt;

/** The costs of steps of n sequences; NULL: there are too many. */
skv_draft_cost *skv_draft_cost_of(skv_draft_costs *costs, size_t n_sequences);
/** The cost of a drafted row, as a part of a step. */
double skv_draft_cost_row(const skv_draft_cost *cost);
/** Learns from a step of answers alone with n_drafted rows beside a token of each. */
void skv_draft_cost_learn(skv_draft_cost *cost, size_t n_drafted, bool ready, double ns);
/** Learns from n_tokens that a model has drafted one after another for each of its sequences. */
void skv_draft_cost_learn_model(skv_draft_cost *cost, skv_drafting source, size_t n_tokens,
                                double ns);
/** Learns from n_tokens of prompts that a model apart has read before it drafted. */
void skv_draft_cost_learn_read(skv_draft_costs *costs, size_t n_tokens, double ns);
/** Whether step_ns is known and not old; else the next step has to be a plain one. */
bool skv_draft_cost_is_fresh(const skv_draft_cost *cost);

/* ---- their gain ---- */

/** Whether to draft in this step although it does not seem to pay: otherwise a change would go
 * unnoticed. True for one step of 32, and for fewer, down to one of 256, as tries keep failing. */
bool skv_draft_wait_is_over(skv_draft_wait *wait);
/** Something paid: tries come more often again. */
void skv_draft_wait_reset(skv_draft_wait *wait);

/** The probability that the token after n_match tokens is right; `all` (the domain's) stands in
 * where `own` (a sequence's) has seen little. */
double skv_draft_chance(const skv_draft_chances *own, const skv_draft_chances *all, size_t n_match);
/** Of n_drafted tokens after a match of n_match the first n_right were right. */
void skv_draft_chances_learn(skv_draft_chances *chances, size_t n_match, size_t n_drafted,
                             size_t n_right);

/** A model has drafted n_drafted tokens, of which n_right were right. */
void skv_draft_gain_learn(skv_draft_gain *gain, size_t n_drafted, size_t n_right);

#endif
