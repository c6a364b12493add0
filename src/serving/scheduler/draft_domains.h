/*
 * The draft statistics of each domain (skv_worker_domain): how often drafts were right, and the
 * answers that texts are drafted from. A key's drafts never use the requests of another key.
 *
 * Both numbers are bounded, and the domain that was idle longest gives way. Answers count in the
 * account, of which they take a small part at most. Only the worker uses this, without a lock.
 */
#ifndef SKV_SERVE_DRAFT_DOMAINS_H
#define SKV_SERVE_DRAFT_DOMAINS_H

#include "drafts/draft.h"
#include "drafts/draft_history.h"
#include "skv/budget.h"

enum {
    SKV_DRAFT_DOMAINS = 128,
    SKV_HISTORIES = 32,              /* domains with answers */
    SKV_HISTORY_TOKENS = 1 << 15,    /* of each: 320 KiB */
    SKV_HISTORY_TOKENS_MIN = 1 << 2, /* a shorter answer says nothing */
    SKV_HISTORY_PART = 16            /* one of so many parts of the account is theirs */
};

typedef struct skv_draft_domain {
    uint64_t id, used; /* used: the `clock` of its last use; 0: free */
    skv_draft_learnt learnt;
    skv_draft_history *history; /* owned; NULL: no answers */
} skv_draft_domain;

typedef struct skv_draft_domains {
    skv_draft_domain at[SKV_DRAFT_DOMAINS];
    uint64_t clock;
    size_t n_histories;
    skv_account *account; /* borrowed; NULL: none */
} skv_draft_domains;

/** A domain, new if it is not known. It stands until SKV_DRAFT_DOMAINS others were asked for. */
skv_draft_domain *skv_draft_domains_of(skv_draft_domains *domains, uint64_t id);
/** Adds an answer ids [n]. Without memory it is forgotten. */
void skv_draft_domains_add(skv_draft_domains *domains, uint64_t id, const int32_t *ids, size_t n);
void skv_draft_domains_release(skv_draft_domains *domains);

#endif
