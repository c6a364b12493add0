/* Texts and the ids that they became: see text_index.h. */
#include "serve/text_index.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum {
    N_BUCKETS = 1 << 13,   /* a power of two */
    ENTRIES_MAX = 1 << 13, /* whatever their lengths */
    PREFIXES = 4096        /* looked up under one lock */
};

typedef struct entry {
    struct entry *next_in_bucket; /* newer ones of a key stand before older ones */
    struct entry *newer, *older;  /* in order of use */
    uint64_t domain, key;
    size_t n;
    int32_t ids[]; /* [n] */
} entry;

struct skv_text_index {
    uint64_t seed;
    size_t max_ids;
    pthread_mutex_t lock; /* guards what follows */
    size_t n_ids, n_entries;
    entry *newest, *oldest;
    entry *buckets[N_BUCKETS];
};

skv_status skv_text_index_create(size_t max_ids, uint64_t seed, skv_text_index **out,
                                 skv_error *err)
{
    skv_text_index *index = skv_alloc_zero(1, sizeof *index);
    SKV_REQUIRE(index, err, SKV_MEMORY, "text index: no memory");
    index->seed = seed;
    index->max_ids = max_ids;
    (void)pthread_mutex_init(&index->lock, NULL);
    *out = index;
    return SKV_OK;
}

/* ---- order of use ---- */

static void unlink_use(skv_text_index *index, entry *e)
{
    *(e->newer ? &e->newer->older : &index->newest) = e->older;
    *(e->older ? &e->older->newer : &index->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(skv_text_index *index, entry *e)
{
    e->newer = NULL;
    e->older = index->newest;
    *(index->newest ? &index->newest->newer : &index->oldest) = e;
    index->newest = e;
}

static entry **bucket_of(skv_text_index *index, uint64_t key)
{
    return &index->buckets[key & (N_BUCKETS - 1)];
}

static void remove_entry(skv_text_index *index, entry *e)
{
    entry **at = bucket_of(index, e->key);
    while (*at != e) at = &(*at)->next_in_bucket;
    *at = e->next_in_bucket;
    unlink_use(index, e);
    index->n_ids -= e->n;
    index->n_entries--;
    skv_free(e);
}

void skv_text_index_free(skv_text_index *index)
{
    if (!index) return;
    while (index->oldest) remove_entry(index, index->oldest);
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

static entry *find_entry(skv_text_index *index, uint64_t domain, uint64_t key)
{
    entry *e = *bucket_of(index, key);
    while (e && (e->key != key || e->domain != domain)) e = e->next_in_bucket;
    return e;
}

/* The entries of a key, copied. */
static void copy_answers(skv_text_index *index, uint64_t domain, uint64_t key, skv_text_found *out)
{
    entry *answers[SKV_TEXT_ANSWERS_MAX];
    size_t n = 0, n_ids = 0;
    for (entry *e = *bucket_of(index, key); e && n < SKV_TEXT_ANSWERS_MAX; e = e->next_in_bucket) {
        if (e->key != key || e->domain != domain) continue;
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
        unlink_use(index, answers[i]);
        link_newest(index, answers[i]);
    }
    out->n_answers = n;
}

void skv_text_index_find(skv_text_index *index, uint64_t domain, const char *text, size_t n,
                         skv_text_found *out)
{
    *out = (skv_text_found){.ids = NULL};
    uint64_t keys[PREFIXES], longest = 0;
    prefix_hash hash = begin_hash(index);
    bool found = false;
    for (size_t done = 0; done < n;) {
        size_t n_keys = skv_min_size(PREFIXES, n - done);
        for (size_t i = 0; i < n_keys; i++) keys[i] = add_byte(&hash, text[done + i]);
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
    copy_answers(index, domain, longest, out);
    pthread_mutex_unlock(&index->lock);
}

/* ---- remembering ---- */

/* Drops what the new ids say as well, and the oldest answer where there are too many. */
static void make_way(skv_text_index *index, uint64_t domain, uint64_t key, const int32_t *ids,
                     size_t n)
{
    size_t n_answers = 0;
    entry *next;
    for (entry *e = *bucket_of(index, key); e; e = next) {
        next = e->next_in_bucket;
        if (e->key != key || e->domain != domain) continue;
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
    *e = (entry){.domain = domain, .key = key, .n = n};
    memcpy(e->ids, ids, n * sizeof *ids);
    pthread_mutex_lock(&index->lock);
    make_way(index, domain, key, ids, n);
    while (index->oldest &&
           (index->n_entries >= ENTRIES_MAX || index->n_ids > index->max_ids - n)) {
        remove_entry(index, index->oldest);
    }
    entry **bucket = bucket_of(index, key);
    e->next_in_bucket = *bucket;
    *bucket = e;
    link_newest(index, e);
    index->n_ids += n;
    index->n_entries++;
    pthread_mutex_unlock(&index->lock);
}

size_t skv_text_index_size(skv_text_index *index)
{
    pthread_mutex_lock(&index->lock);
    size_t n = index->n_ids;
    pthread_mutex_unlock(&index->lock);
    return n;
}
