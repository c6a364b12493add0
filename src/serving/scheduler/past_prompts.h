/*
 * The last prompts of each key, by which the server tells why a prompt was not found in the prefix
 * cache.
 *
 * The index of blocks cannot tell: it gives up blocks, has no ends shorter than a block, and finds
 * nothing after the first token that differs. So the ids of the last prompts that were read to
 * their end stay here, with their answers, at four bytes a token; a prompt that continues another
 * takes its place. An owner is a key, and a domain is the part of it that shares pages (an adapter,
 * a method). Nothing of one owner is compared with another's prompts. Only the worker uses this,
 * without a lock.
 */
#ifndef SKV_SERVE_PAST_PROMPTS_H
#define SKV_SERVE_PAST_PROMPTS_H

#include "skv/serve.h"

enum {
    SKV_PAST_PROMPTS = 64,     /* of all owners */
    SKV_PAST_PROMPTS_OWN = 16, /* of one */
    SKV_PAST_PART = 16,        /* one of so many parts of the account is theirs */
    SKV_PIN_PART = 4,          /* pins of one owner have one of so many parts of max_pinned */
    SKV_PAST_PINS = 6          /* of one prompt */
};

/* A beginning of a prompt that stays. */
typedef struct skv_past_pin {
    size_t n;     /* tokens */
    uint64_t end; /* until when, of the caller's clock; 0: free */
    uint64_t key; /* 0: none */
} skv_past_pin;

typedef struct skv_past_prompt {
    uint64_t owner, domain, used; /* used: the `clock` of its last use; 0: free */
    int32_t *ids;                 /* owned, [n] */
    size_t n;
    skv_past_pin pins[SKV_PAST_PINS];
} skv_past_prompt;

typedef struct skv_past_prompts {
    skv_past_prompt at[SKV_PAST_PROMPTS];
    uint64_t clock;
    size_t n_ids, max_ids, max_pinned;
    skv_account *account; /* borrowed; NULL: none */
} skv_past_prompts;

/* A prompt as it began. */
typedef struct skv_begun_prompt {
    uint64_t owner, domain;
    const int32_t *ids; /* [n] */
    size_t n;
    size_t n_usable; /* of them, those that may come from the cache */
    size_t n_found;  /* that did */
    size_t n_rows;   /* whose rows the cache has without a state at their end; 0: no layer keeps one
                      */
    bool looked;     /* whether they were looked up at all */
} skv_begun_prompt;

/** Remembers ids [n], whose rows were computed; false: less than a block is not worth it, or there
 * is no memory. */
bool skv_past_prompts_add(skv_past_prompts *all, uint64_t owner, uint64_t domain,
                          const int32_t *ids, size_t n);
/** Pins a beginning of the prompt that was added last. A key that is not 0 has one pin of its
 * owner, the last. A prompt that continues another has its pins too. Beyond the owner's part the
 * oldest pinned prompts lose their longest pins. */
void skv_past_prompts_pin(skv_past_prompts *all, uint64_t owner, const skv_past_pin *pin);
/** The i-th place's prompt if something of it is pinned at `now`, and how much; else NULL. */
const skv_past_prompt *skv_past_prompts_pinned(const skv_past_prompts *all, size_t i, uint64_t now,
                                               size_t *n);
/** Why no more of a prompt was found. `with`: the earlier prompt from which it parts at
 * miss.token, of the same domain; NULL unless the reason is SKV_MISS_TEXT. */
skv_cache_miss skv_past_prompts_explain(const skv_past_prompts *all, const skv_begun_prompt *prompt,
                                        const skv_past_prompt **with);
void skv_past_prompts_release(skv_past_prompts *all);

#endif
