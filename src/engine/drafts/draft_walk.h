/*
 * The walk of drafts that a model makes: one pass after another, each with the next row of every
 * draft that goes on. A source says what a row is, how a pass runs, and whether the draft goes on
 * after its row (draft_self.c, draft_model.c, draft_mtp.c).
 */
#ifndef SKV_ENGINE_DRAFT_WALK_H
#define SKV_ENGINE_DRAFT_WALK_H

#include "model/pass.h"
#include "skv/skv.h"

typedef struct skv_draft_walk {
    void (*begin)(void *user);                     /* the next pass has no rows yet */
    bool (*add)(void *user, skv_draft_request *r); /* adds a row of it; false: the draft ends */
    skv_status (*run)(void *user);                 /* runs the rows */
    /* The i-th row that was added has been run, or nothing has: whether its draft goes on. */
    bool (*settle)(void *user, size_t i, skv_status status);
    void *user;
} skv_draft_walk;

/** Walks until no draft goes on; n is SKV_LOGIT_ROWS or less. A failure ends its drafts: the step
 * that comes next will say why. */
void skv_draft_walk_run(const skv_draft_walk *walk, skv_draft_request *requests, size_t n);
/** A pass of it. A cancellation means the step that comes next. */
SKV_MUST_CHECK skv_status skv_draft_pass_run(skv_engine *engine, skv_pass *pass);
/** For a sink whose row wants the most likely token, and how likely it is. */
bool skv_draft_wish(void *user, skv_wishes *wishes);
/** Drafts a token. False: nothing follows an end, and none is drafted. */
bool skv_draft_take(skv_draft_request *request, int32_t id);

#endif
