/* Texts and the ids that they became: see text_index.h. */
#include "scheduler/text_index.h"

#include <pthread.h>
#include <string.h>

#include "base/lru.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum {
    ENTRIES_MAX = 1 << 13, /* whatever their lengths */
    PREFIXES = 512         /* looked up under one lock */
};

typedef struct entry {
    skv_lru_node node; /* its hash is the key of the text */
    uint64_t domain;
    size_t n;
    int32_t ids[]; /* [n] */
} entry;

struct skv_text_index {
    uint64_t seed;
    size_t max_ids;
    pthread_mutex_t lock; /* guards the fields below */
    size_t n_ids;
    skv_lru entries;
};

skv_status skv_text_index_create(size_t max_ids, uint64_t seed, skv_text_index **out,
                                 skv_error *err)
{
    skv_text_index *index = skv_alloc_zero(1, sizeof *index);
    SKV_REQUIRE(index, err, SKV_MEMORY, "text index: no memory");
    skv_status status = skv_lru_init(&index->entries, ENTRIES_MAX, err);
    if (status != SKV_OK) {
        skv_free(index);
        return skv_fail_within(err, status, "text index");
    }
    index->seed = seed;
    index->max_ids = max_ids;
    (void)pthread_mutex_init(&index->lock, NULL);
    *out = index;
    return SKV_OK;
}

static void remove_entry(skv_text_index *index, entry *e)
{
    skv_lru_remove(&index->entries, &e->node);
    index->n_ids -= e->n;
    skv_free(e);
}

void skv_text_index_free(skv_text_index *index)
{
    if (!index) return;
    while (index->entries.oldest) remove_entry(index, (entry *)index->entries.oldest);
    skv_lru_release(&index->entries);
    (void)pthread_mutex_destroy(&index->lock);
    skv_free(index);
}

/* ---- finding ---- */

/* A hash of every prefix: a polynomial whose base is secret. */
typedef struct prefix_hash {
    uint64_t base, sum;
    size_t n;
} prefix_hash;

static prefix_hash begin_hash(const skv_text_index *index)
{
    return (prefix_hash){.base = skv_mix64(index->seed) | 1, .sum = skv_mix64(~index->seed)};
}

static uint64_t add_byte(prefix_hash *h, char byte)
{
    h->sum = h->sum * h->base + (unsigned char)byte + 1;
    h->n++;
    return skv_mix64(h->sum ^ (uint64_t)h->n << 40);
}

/* This entry or the next one of its key that belongs to the domain: of a key, newer ones come
 * before older ones. */
static entry *in_domain(skv_lru_node *node, uint64_t domain)
{
    entry *e = (entry *)node;
    while (e && e->domain != domain) e = (entry *)skv_lru_next(&e->node);
    return e;
}

static entry *find_entry(const skv_text_index *index, uint64_t domain, uint64_t key)
{
    return in_domain(skv_lru_first(&index->entries, key), domain);
}

static entry *next_entry(const entry *e)
{
    return in_domain(skv_lru_next(&e->node), e->domain);
}

/* The newest entries of a key that have max_ids together, copied. */
static void copy_answers(skv_text_index *index, uint64_t domain, uint64_t key, size_t max_ids,
                         skv_text_found *out)
{
    entry *answers[SKV_TEXT_ANSWERS_MAX];
    size_t n = 0, n_ids = 0;
    entry *e = find_entry(index, domain, key);
    for (; e && n < SKV_TEXT_ANSWERS_MAX && e->n <= max_ids - n_ids; e = next_entry(e)) {
        n_ids += e->n;
        answers[n++] = e;
    }
    out->ids = n > 0 ? skv_alloc(n_ids, sizeof *out->ids) : NULL;
    if (!out->ids) return;
    int32_t *to = out->ids;
    for (size_t i = 0; i < n; i++) {
        memcpy(to, answers[i]->ids, answers[i]->n * sizeof *to);
        to += answers[i]->n;
        out->n_ids[i] = answers[i]->n;
        skv_lru_touch(&index->entries, &answers[i]->node);
    }
    out->n_answers = n;
}

void skv_text_index_find(skv_text_index *index, uint64_t domain, skv_text_piece text,
                         size_t max_ids, skv_text_found *out)
{
    const size_t n = text.n;
    *out = (skv_text_found){.ids = NULL};
    uint64_t keys[PREFIXES], longest = 0;
    prefix_hash hash = begin_hash(index);
    bool found = false;
    for (size_t done = 0; done < n;) {
        size_t n_keys = skv_min_size(PREFIXES, n - done);
        for (size_t i = 0; i < n_keys; i++) keys[i] = add_byte(&hash, text.text[done + i]);
        pthread_mutex_lock(&index->lock);
        for (size_t i = 0; i < n_keys; i++) {
            if (!find_entry(index, domain, keys[i])) continue;
            longest = keys[i];
            found = true;
        }
        pthread_mutex_unlock(&index->lock);
        done += n_keys;
        out->key = keys[n_keys - 1];
    }
    if (!found) return;
    pthread_mutex_lock(&index->lock);
    copy_answers(index, domain, longest, max_ids, out);
    pthread_mutex_unlock(&index->lock);
}

/* ---- remembering ---- */

/* Drops entries that the new ids contain, and the oldest answer if there are too many. */
static void make_way(skv_text_index *index, uint64_t domain, uint64_t key, const int32_t *ids,
                     size_t n)
{
    size_t n_answers = 0;
    entry *next;
    for (entry *e = find_entry(index, domain, key); e; e = next) {
        next = next_entry(e);
        bool is_covered = e->n <= n && memcmp(e->ids, ids, e->n * sizeof *ids) == 0;
        if (is_covered || ++n_answers == SKV_TEXT_ANSWERS_MAX) remove_entry(index, e);
    }
}

void skv_text_index_put(skv_text_index *index, uint64_t domain, uint64_t key, const int32_t *ids,
                        size_t n)
{
    if (n == 0 || n > index->max_ids) return;
    entry *e = skv_alloc(1, sizeof *e + n * sizeof *ids);
    if (!e) return;
    *e = (entry){.domain = domain, .n = n};
    memcpy(e->ids, ids, n * sizeof *ids);
    pthread_mutex_lock(&index->lock);
    make_way(index, domain, key, ids, n);
    skv_lru *entries = &index->entries;
    while (entries->oldest && (entries->n >= ENTRIES_MAX || index->n_ids > index->max_ids - n)) {
        remove_entry(index, (entry *)entries->oldest);
    }
    skv_lru_add(entries, &e->node, key);
    index->n_ids += n;
    pthread_mutex_unlock(&index->lock);
}
