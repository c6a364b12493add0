/*
 * Earlier answers by domain (skv_worker_domain), for drafts from text: nobody's answers are drafted
 * from those of another key. Both numbers are bounded; the domain that was idle longest gives way.
 * It is the worker's own, without a lock.
 */
#ifndef SKV_SERVE_HISTORIES_H
#define SKV_SERVE_HISTORIES_H

#include "engine/draft_history.h"

enum {
    SKV_HISTORIES = 32,             /* domains */
    SKV_HISTORY_TOKENS = 1 << 15,   /* of each: 320 KiB */
    SKV_HISTORY_TOKENS_MIN = 1 << 2 /* a shorter answer says nothing */
};

typedef struct skv_histories {
    struct {
        uint64_t domain, used;      /* used: the `clock` of its last use; 0: free */
        skv_draft_history *history; /* owned */
    } at[SKV_HISTORIES];
    uint64_t clock;
} skv_histories;

/** The answers of a domain, until another is added; NULL: none. */
const skv_draft_history *skv_histories_find(skv_histories *histories, uint64_t domain);
/** Adds an answer ids [n]. Without memory it is forgotten. */
void skv_histories_add(skv_histories *histories, uint64_t domain, const int32_t *ids, size_t n);
void skv_histories_release(skv_histories *histories);

#endif
