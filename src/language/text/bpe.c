/* The pair table and the merging of one word; see bpe.h. */
#include "text/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"

enum {
    SHORT_MAX = 40,          /* symbols; below this, scanning beats the heap */
    SPARE_SYMBOLS = 1 << 16, /* up to here there is room for longer words */
    LOOK_EVERY = 1 << 12     /* merges, about a millisecond */
};

/* A symbol of a long word, in a doubly linked list over positions. */
struct skv_bpe_node {
    uint32_t previous, next; /* SKV_BPE_NONE at the ends */
    uint32_t rank;           /* of the pair with the next symbol; SKV_BPE_NONE: they do not join */
};

bool skv_bpe_init(skv_bpe *bpe, size_t n_pairs)
{
    size_t n_slots = 16;
    while (n_slots < n_pairs + n_pairs / 2) n_slots *= 2;
    *bpe = (skv_bpe){.pairs = skv_alloc(n_slots, sizeof *bpe->pairs), .mask = n_slots - 1};
    if (!bpe->pairs) return false;
    memset(bpe->pairs, 0xff, n_slots * sizeof *bpe->pairs);
    bpe->limit = n_pairs;
    return true;
}

void skv_bpe_release(skv_bpe *bpe)
{
    skv_free(bpe->pairs);
    *bpe = (skv_bpe){0};
}

static size_t slot_of(const skv_bpe *bpe, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash ^ hash >> 32) & bpe->mask;
    while (bpe->pairs[i].id != SKV_BPE_NONE && bpe->pairs[i].key != key) i = (i + 1) & bpe->mask;
    return i;
}

static uint64_t key_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

void skv_bpe_put(skv_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = key_of(left, right);
    skv_bpe_pair *pair = &bpe->pairs[slot_of(bpe, key)];
    if (pair->id == SKV_BPE_NONE) {
        if (bpe->n_pairs == bpe->limit) return;
        bpe->n_pairs++;
    }
    *pair = (skv_bpe_pair){.key = key, .rank = rank, .id = id};
}

/* NULL when the two do not join. */
static const skv_bpe_pair *find_pair(const skv_bpe *bpe, uint32_t left, uint32_t right)
{
    const skv_bpe_pair *pair = &bpe->pairs[slot_of(bpe, key_of(left, right))];
    return pair->id == SKV_BPE_NONE ? NULL : pair;
}

void skv_bpe_find_margin(skv_bpe *bpe, const uint32_t *lengths, uint32_t *made, size_t n_ids)
{
    bool rises = true, one_rank = true;
    size_t n_left = 0, n_all = 0;
    memset(made, 0, n_ids * sizeof *made); /* the highest rank that makes a symbol, plus 1 */
    for (size_t i = 0; i < n_ids; i++) n_all += lengths[i];
    for (size_t i = 0; i <= bpe->mask; i++) {
        const skv_bpe_pair *pair = &bpe->pairs[i];
        const uint32_t left = (uint32_t)(pair->key >> 32);
        if (pair->id >= n_ids) continue;
        one_rank = one_rank && (made[pair->id] == 0 || made[pair->id] == pair->rank + 1);
        if (made[pair->id] <= pair->rank) made[pair->id] = pair->rank + 1;
        n_left += left < n_ids ? lengths[left] : 1;
    }
    for (size_t i = 0; i <= bpe->mask && rises; i++) {
        const skv_bpe_pair *pair = &bpe->pairs[i];
        if (pair->id == SKV_BPE_NONE) continue;
        uint32_t left = (uint32_t)(pair->key >> 32), right = (uint32_t)pair->key;
        rises = (left >= n_ids || made[left] <= pair->rank) &&
                (right >= n_ids || made[right] <= pair->rank);
    }
    bpe->margin = !rises ? 0 : one_rank ? skv_min_size(n_left, n_all) : n_left;
}

bool skv_bpe_reserve(skv_bpe_work *work, size_t n)
{
    if (n <= work->capacity) return true;
    size_t capacity = n < 256 ? 256 : n < SPARE_SYMBOLS ? n + n / 2 : n;
    return skv_budget_resize(work->budget, &work->symbols, &work->capacity, capacity,
                             sizeof *work->symbols);
}

static void release_long(skv_bpe_work *work)
{
    skv_budget_free(work->budget, work->nodes, work->long_capacity, sizeof *work->nodes);
    skv_budget_free(work->budget, work->heap, work->heap_capacity, sizeof *work->heap);
    work->nodes = NULL;
    work->heap = NULL;
    work->long_capacity = work->heap_capacity = 0;
}

void skv_bpe_work_release(skv_bpe_work *work)
{
    skv_budget_free(work->budget, work->symbols, work->capacity, sizeof *work->symbols);
    release_long(work);
    *work = (skv_bpe_work){0};
}

/* Short words: ranks[i] belongs to the pair (i, i + 1), SKV_BPE_NONE if there is none. */

static void look_up(const skv_bpe *bpe, const uint32_t *symbols, size_t i, uint32_t *ranks,
                    uint32_t *ids)
{
    const skv_bpe_pair *pair = find_pair(bpe, symbols[i], symbols[i + 1]);
    ranks[i] = pair ? pair->rank : SKV_BPE_NONE;
    ids[i] = pair ? pair->id : SKV_BPE_NONE;
}

static size_t merge_short(const skv_bpe *bpe, uint32_t *symbols, size_t n)
{
    uint32_t ranks[SHORT_MAX], ids[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) look_up(bpe, symbols, i, ranks, ids);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == SKV_BPE_NONE) break;
        symbols[best] = ids[best];
        for (size_t i = best + 1; i + 1 < n; i++) symbols[i] = symbols[i + 1];
        for (size_t i = best + 1; i + 2 < n; i++) {
            ranks[i] = ranks[i + 1];
            ids[i] = ids[i + 1];
        }
        n--;
        if (best + 1 < n) look_up(bpe, symbols, best, ranks, ids);
        if (best > 0) look_up(bpe, symbols, best - 1, ranks, ids);
    }
    return n;
}

/* Long words: a binary heap of (rank, position); entries that no longer hold are skipped. */

static void heap_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Room for n pairs that hold, and for a quarter as many that no longer do. */
static bool reserve_long(skv_bpe_work *work, size_t n)
{
    if (n <= work->long_capacity) return true;
    release_long(work);
    if (n < SPARE_SYMBOLS) n += n / 2;
    size_t n_heap = n + n / 4;
    work->nodes = skv_budget_alloc_zero(work->budget, n, sizeof *work->nodes);
    if (work->nodes) work->long_capacity = n;
    work->heap =
        work->nodes ? skv_budget_alloc_zero(work->budget, n_heap, sizeof *work->heap) : NULL;
    if (work->heap) work->heap_capacity = n_heap;
    return work->heap;
}

/* Looks up the pair that begins at a symbol; false: the two do not join. */
static bool rank_pair(const skv_bpe *bpe, skv_bpe_work *work, uint32_t i)
{
    struct skv_bpe_node *node = &work->nodes[i];
    const skv_bpe_pair *pair = node->next == SKV_BPE_NONE
                                   ? NULL
                                   : find_pair(bpe, work->symbols[i], work->symbols[node->next]);
    node->rank = pair ? pair->rank : SKV_BPE_NONE;
    return pair;
}

/* The heap of all pairs that hold. The first symbol never goes, so the list begins there. */
static void fill_heap(skv_bpe_work *work, size_t *n_heap)
{
    *n_heap = 0;
    for (uint32_t i = 0; i != SKV_BPE_NONE; i = work->nodes[i].next) {
        const uint64_t rank = work->nodes[i].rank;
        if (rank != SKV_BPE_NONE) heap_push(work->heap, n_heap, rank << 32 | i);
    }
}

static void look_up_node(const skv_bpe *bpe, skv_bpe_work *work, uint32_t i, size_t *n_heap)
{
    if (!rank_pair(bpe, work, i)) return;
    if (*n_heap == work->heap_capacity) {
        fill_heap(work, n_heap);
    } else {
        heap_push(work->heap, n_heap, (uint64_t)work->nodes[i].rank << 32 | i);
    }
}

static void join(const skv_bpe *bpe, skv_bpe_work *work, uint32_t i, size_t *n_heap)
{
    struct skv_bpe_node *node = &work->nodes[i];
    uint32_t gone = node->next;
    work->symbols[i] = find_pair(bpe, work->symbols[i], work->symbols[gone])->id;
    node->next = work->nodes[gone].next;
    work->nodes[gone].rank = SKV_BPE_NONE;
    if (node->next != SKV_BPE_NONE) work->nodes[node->next].previous = i;
    look_up_node(bpe, work, i, n_heap);
    if (node->previous != SKV_BPE_NONE) look_up_node(bpe, work, node->previous, n_heap);
}

/* Merges the symbols in the nodes' list; false: the budget is used up. */
static bool merge_nodes(const skv_bpe *bpe, skv_bpe_work *work, size_t n)
{
    size_t n_heap;
    for (size_t i = 0; i < n; i++) {
        work->nodes[i].previous = i == 0 ? SKV_BPE_NONE : (uint32_t)(i - 1);
        work->nodes[i].next = i + 1 == n ? SKV_BPE_NONE : (uint32_t)(i + 1);
        (void)rank_pair(bpe, work, (uint32_t)i);
    }
    fill_heap(work, &n_heap);
    for (size_t n_popped = 1; n_heap > 0; n_popped++) {
        if (n_popped % LOOK_EVERY == 0 && !skv_budget_look(work->budget)) return false;
        uint64_t key = heap_pop(work->heap, &n_heap);
        uint32_t i = (uint32_t)key;
        if (work->nodes[i].rank == key >> 32) join(bpe, work, i, &n_heap);
    }
    return true;
}

static bool merge_long(const skv_bpe *bpe, skv_bpe_work *work, size_t *n, size_t n_safe,
                       size_t *n_taken)
{
    if (*n >= SKV_BPE_NONE || !reserve_long(work, *n)) return false;
    if (!merge_nodes(bpe, work, *n)) return false;
    size_t n_left = 0;
    uint32_t i = 0;
    while (i != SKV_BPE_NONE) {
        uint32_t next = work->nodes[i].next;
        if ((next == SKV_BPE_NONE ? *n : next) > n_safe) break;
        work->symbols[n_left++] = work->symbols[i];
        i = next;
    }
    *n_taken = i == SKV_BPE_NONE ? *n : i;
    *n = n_left;
    return true;
}

bool skv_bpe_merge(const skv_bpe *bpe, skv_bpe_work *work, size_t *n)
{
    size_t n_taken;
    if (*n < 2 || bpe->n_pairs == 0) return true;
    if (*n > SHORT_MAX) return merge_long(bpe, work, n, *n, &n_taken);
    *n = merge_short(bpe, work->symbols, *n);
    return true;
}

bool skv_bpe_merge_front(const skv_bpe *bpe, skv_bpe_work *work, size_t *n, size_t *n_taken)
{
    assert(bpe->margin > 0 && *n > 2 * bpe->margin);
    return merge_long(bpe, work, n, *n - bpe->margin, n_taken);
}
